//! A search of settings.

use std::fs;

use serde_json::Value;

use super::{Place, reviews, with};

const SPACE: &str =
    "\n[space]\ntraining.rate = { from = 1e-3, to = 0.1, log = true }\nmodel.hidden = [4, 8, 12]\n";

fn space(place: &Place, more: &str) {
    let config = "task = \"classify\"\nthreads = 1\n[data]\ntrain = \"reviews.tsv\"\ndev = \"reviews.tsv\"\n\
                  [model]\nhidden = 8\nembedding = 8\n[training]\nepochs = 9\nrate = 0.01\n";
    place.write("space.toml", &(config.to_owned() + SPACE + more));
    place.write("reviews.tsv", &reviews());
}

fn trials(place: &Place, run: &str) -> Vec<Value> {
    let state = fs::read_to_string(place.0.join(run).join("tune.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    state["trials"].as_array().unwrap().clone()
}

/// Returns the fields of trials that do not depend on the time.
fn made(trials: &[Value]) -> Vec<[Value; 4]> {
    trials.iter().map(|of| ["settings", "rungs", "epochs", "value"].map(|name| of[name].clone())).collect()
}

#[test]
fn a_search_trains_the_best_third_on() {
    let place = Place::new("tune");
    space(&place, "");
    let tune = ["tune", "space.toml", "--trials", "6", "--budget", "1h"];
    let last = place.json(&[&tune[..], &["--json"]].concat(), "");
    assert_eq!(last["run"], "runs/tune-1", "{last}");
    let all = trials(&place, "runs/tune-1");
    let reached = |rungs: u64| all.iter().filter(|of| of["rungs"].as_u64() >= Some(rungs)).count();
    assert_eq!(all.len(), 6, "{all:?}");
    assert!((2..=3).contains(&reached(2)) && reached(3) == reached(2), "{all:?}");
    assert_eq!(all[0]["settings"]["model.hidden"], 8, "{all:?}");
    let best = all.iter().filter_map(|of| of["value"].as_f64()).fold(0.0, f64::max);
    assert_eq!(last["value"].as_f64(), Some(100.0 * best), "{last}");
    // The best is an ordinary run, and its config trains it anew.
    let run = last["best"].as_str().unwrap();
    let alone = place.json(&["train", last["config"].as_str().unwrap(), "--run", "anew", "--json"], "");
    assert_eq!(alone["value"], last["value"]);
    let bytes = |run: &str| fs::read(place.0.join(run).join("last.ckpt")).unwrap();
    // Trial 1 is trained in three parts, to the bytes of one.
    assert_eq!(all[0]["rungs"], 3, "{all:?}");
    place.said(&["train", "runs/tune-1/trial-1/config.toml", "--run", "whole", "-q"], "");
    assert!(bytes("whole") == bytes("runs/tune-1/trial-1"));
    place.said(&["eval", run, "reviews.tsv"], "");
    // Equal seeds search alike, others do not.
    place.said(&[&tune[..], &["--run", "again", "-q"]].concat(), "");
    assert_eq!(made(&trials(&place, "again")), made(&all));
    place.said(&[&tune[..], &["--run", "other", "--seed", "2"]].concat(), "");
    assert!(made(&trials(&place, "other")) != made(&all));
    // A search that has ended shows its table again, and continues with more trials.
    let said = place.said(&["tune", "--resume", "runs/tune-1"], "");
    assert!(said.contains("1 (as it is)") && said.contains("best: trial "), "{said}");
    place.said(&["tune", "--resume", "runs/tune-1", "--trials", "8"], "");
    assert_eq!(trials(&place, "runs/tune-1").len(), 8);
}

#[test]
fn a_search_keeps_to_its_budget_and_goes_on() {
    let place = Place::new("tune-budget");
    space(&place, "");
    let begun = std::time::Instant::now();
    place.said(
        &[
            "tune",
            "space.toml",
            "--budget",
            "4s",
            "--run",
            "short",
            "--epochs",
            "100000",
            "--set",
            "training.patience=0",
        ],
        "",
    );
    assert!(begun.elapsed().as_secs() < 60);
    let before = trials(&place, "short");
    assert!(before[0]["epochs"].as_u64() > Some(0), "{before:?}");
    let more = place.json(&["tune", "--resume", "short", "--budget", "8s", "--json"], "");
    assert!(more["seconds"].as_f64() >= Some(7.0), "{more}");
    assert!(trials(&place, "short")[0]["epochs"].as_u64() > before[0]["epochs"].as_u64());
}

#[test]
fn trials_that_fail_are_left_and_mistakes_are_refused() {
    let place = Place::new("tune-refused");
    space(&place, "training.clip = [1.0, 1e30]\n");
    // The rate is too high for the mean of squares to be finite: those trials fail.
    let config = fs::read_to_string(place.0.join("space.toml")).unwrap();
    place.write(
        "high.toml",
        &config.replace("to = 0.1", "to = 1e38").replace("[training]", "[training]\nclip = 1e30"),
    );
    let last = place.json(&["tune", "high.toml", "--trials", "9", "--budget", "1h", "--json"], "");
    let failed = last["trials"].as_array().unwrap().iter().filter(|of| of["failed"].is_string()).count();
    assert!(failed > 0 && last["value"].as_f64().is_some(), "{last}");
    let said = place.said(&["tune", "--resume", last["run"].as_str().unwrap()], "");
    assert!(said.contains(&format!("failed trials: {failed} (reasons in tune.json)")), "{said}");

    let before = place.files();
    let said = place.refused(&["tune", "space.toml", "--budget", "9s", "--test", "reviews.tsv"]);
    assert!(said.contains("test set: expected none while settings are searched"), "{said}");
    for (wrong, expected) in [
        (&["tune", "space.toml"][..], "--budget"),
        (&["tune", "space.toml", "--budget", "9"], "expected a time, as 90s, 30m, 2h or 1h30m"),
        (&["tune", "--resume", "runs"], "expected a folder of `tune` with a tune.json"),
        (&["train", "--resume", "runs/tune-1"], "unpadded tune --resume runs/tune-1"),
        (&["predict", "--ensemble", "runs/tune-1"], "name the trials to join"),
        (&["tune", "--train", "none.tsv", "--budget", "9s"], "none.tsv"),
    ] {
        place.refuses(wrong, &[expected]);
    }
    place.write("wrong.toml", "[space]\nmodel.hiden = [1, 2]\ntraining.epochs = [1]\n");
    for wrong in [&["tune", "wrong.toml", "--budget", "9s"][..], &["train", "wrong.toml"]] {
        place.refuses(wrong, &["wrong.toml:2:", "wrong.toml:3: space: expected"]);
    }
    fs::remove_file(place.0.join("wrong.toml")).unwrap();
    assert_eq!(place.files(), before);
}

#[test]
fn every_task_has_a_space() {
    let place = Place::new("tune-spaces");
    for task in ["classify", "tag", "lm", "translate"] {
        let written = place.said(&["init", task, "--space"], "");
        assert!(written.contains("\n[space]\n") && written.contains("training.rate = { from"), "{written}");
        place.write("space.toml", &written);
        // Only the data is missing.
        if task == "translate" {
            assert!(place.refused(&["tune", "space.toml", "--budget", "9s"]).contains("data.train"));
        }
    }
    place.write("reviews.tsv", &reviews());
    // Without a search space in its file, a search uses the space of its task.
    let tune = ["tune", "--train", "reviews.tsv", "--task", "lm", "--trials", "1", "--budget", "1h"];
    let last = place.json(&with(&tune, &["--epochs", "1", "--set", "data.text=1", "--json"]), "");
    assert_eq!(last["metric"], "bits per character", "{last}");
    assert!(last["trials"][0]["settings"]["model.layers"].is_u64(), "{last}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_search_goes_on_to_the_same_trials() {
    let place = Place::new("tune-interrupted");
    space(&place, "");
    let tune = |run: &'static str| {
        ["tune", "space.toml", "--trials", "4", "--budget", "1h", "--epochs", "45", "--run", run]
    };
    place.said(&tune("whole"), "");
    for name in ["-INT", "-KILL"] {
        let mut child = place.command(&tune("run")).spawn().unwrap();
        super::wait_for(&place.0.join("run/trial-2"), 2);
        super::signal(&child, name);
        let code = child.wait().unwrap().code();
        assert!(code == if name == "-INT" { Some(130) } else { None }, "{name}: {code:?}");
        place.said(&["tune", "--resume", "run"], "");
        assert_eq!(made(&trials(&place, "run")), made(&trials(&place, "whole")), "{name}");
        fs::remove_dir_all(place.0.join("run")).unwrap();
    }
}

#[test]
fn what_a_flag_sets_does_not_vary() {
    let place = Place::new("tune-set");
    space(&place, "");
    let said = place.refused(&["tune", "space.toml", "--budget", "1h", "--set", "model.hidden=8"]);
    assert!(said.contains("--set model.hidden: expected a setting that does not vary"), "{said}");
    let tune = ["tune", "--train", "reviews.tsv", "--trials", "1", "--budget", "1h", "--epochs", "1"];
    let output = place.given(&[&tune[..], &["--set", "model.hidden=8"]].concat(), "");
    let said = String::from_utf8(output.stderr).unwrap();
    let line = said.lines().find(|line| line.starts_with("settings that vary: ")).unwrap();
    assert!(line.contains("model.dropout") && !line.contains("model.hidden"), "{said}");
    place.said(&["report", "runs/tune-1", "-o", "all.html"], "");
}
