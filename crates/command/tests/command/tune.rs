//! A search of settings.

use std::fs;

use serde_json::Value;

use super::{TestDir, reviews, with};

const SPACE: &str =
    "\n[space]\ntraining.rate = { from = 1e-3, to = 0.1, log = true }\nmodel.hidden = [4, 8, 12]\n";

fn space(dir: &TestDir, more: &str) {
    let config = "task = \"classify\"\nthreads = 1\n[data]\ntrain = \"reviews.tsv\"\ndev = \"reviews.tsv\"\n\
                  [model]\nhidden = 8\nembedding = 8\n[training]\nepochs = 9\nrate = 0.01\n";
    dir.write("space.toml", &(config.to_owned() + SPACE + more));
    dir.write("reviews.tsv", &reviews());
}

fn trials(dir: &TestDir, run: &str) -> Vec<Value> {
    let state = fs::read_to_string(dir.0.join(run).join("tune.json")).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    state["trials"].as_array().unwrap().clone()
}

/// Returns the fields of trials that do not depend on the time.
fn made(trials: &[Value]) -> Vec<[Value; 4]> {
    trials
        .iter()
        .map(|trial| ["settings", "rungs", "epochs", "value"].map(|name| trial[name].clone()))
        .collect()
}

#[test]
fn a_search_trains_the_best_third_on() {
    let dir = TestDir::new("tune");
    space(&dir, "");
    let tune = ["tune", "space.toml", "--trials", "6", "--budget", "1h"];
    let last = dir.json(&[&tune[..], &["--json"]].concat(), "");
    assert_eq!(last["run"], "runs/tune-1", "{last}");
    let all = trials(&dir, "runs/tune-1");
    let reached = |rungs: u64| all.iter().filter(|trial| trial["rungs"].as_u64() >= Some(rungs)).count();
    assert_eq!(all.len(), 6, "{all:?}");
    assert!((2..=3).contains(&reached(2)) && reached(3) == reached(2), "{all:?}");
    assert_eq!(all[0]["settings"]["model.hidden"], 8, "{all:?}");
    let best = all.iter().filter_map(|trial| trial["value"].as_f64()).fold(0.0, f64::max);
    assert_eq!(last["value"].as_f64(), Some(100.0 * best), "{last}");
    // The best is an ordinary run, and its config trains it anew.
    let run = last["best"].as_str().unwrap();
    let alone = dir.json(&["train", last["config"].as_str().unwrap(), "--run", "anew", "--json"], "");
    assert_eq!(alone["value"], last["value"]);
    let bytes = |run: &str| fs::read(dir.0.join(run).join("last.ckpt")).unwrap();
    // Trial 1 is trained in three parts, to the bytes of one.
    assert_eq!(all[0]["rungs"], 3, "{all:?}");
    dir.stdout(&["train", "runs/tune-1/trial-1/config.toml", "--run", "whole", "-q"], "");
    assert!(bytes("whole") == bytes("runs/tune-1/trial-1"));
    dir.stdout(&["eval", run, "reviews.tsv"], "");
    // Equal seeds search alike, others do not.
    dir.stdout(&[&tune[..], &["--run", "again", "-q"]].concat(), "");
    assert_eq!(made(&trials(&dir, "again")), made(&all));
    dir.stdout(&[&tune[..], &["--run", "other", "--seed", "2"]].concat(), "");
    assert!(made(&trials(&dir, "other")) != made(&all));
    // A search that has ended shows its table again, and continues with more trials.
    let text = dir.stdout(&["tune", "--resume", "runs/tune-1"], "");
    assert!(text.contains("1 (as it is)") && text.contains("best: trial "), "{text}");
    dir.stdout(&["tune", "--resume", "runs/tune-1", "--trials", "8"], "");
    assert_eq!(trials(&dir, "runs/tune-1").len(), 8);
}

#[test]
fn a_search_keeps_to_its_budget_and_goes_on() {
    let dir = TestDir::new("tune-budget");
    space(&dir, "");
    let begun = std::time::Instant::now();
    dir.stdout(
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
    let before = trials(&dir, "short");
    assert!(before[0]["epochs"].as_u64() > Some(0), "{before:?}");
    let more = dir.json(&["tune", "--resume", "short", "--budget", "8s", "--json"], "");
    assert!(more["seconds"].as_f64() >= Some(7.0), "{more}");
    assert!(trials(&dir, "short")[0]["epochs"].as_u64() > before[0]["epochs"].as_u64());
}

#[test]
fn trials_that_fail_are_left_and_mistakes_are_refused() {
    let dir = TestDir::new("tune-refused");
    space(&dir, "training.clip = [1.0, 1e30]\n");
    // The rate is too high for the mean of squares to be finite: those trials fail.
    let config = fs::read_to_string(dir.0.join("space.toml")).unwrap();
    dir.write(
        "high.toml",
        &config.replace("to = 0.1", "to = 1e38").replace("[training]", "[training]\nclip = 1e30"),
    );
    let last = dir.json(&["tune", "high.toml", "--trials", "9", "--budget", "1h", "--json"], "");
    let failed =
        last["trials"].as_array().unwrap().iter().filter(|trial| trial["failed"].is_string()).count();
    assert!(failed > 0 && last["value"].as_f64().is_some(), "{last}");
    let text = dir.stdout(&["tune", "--resume", last["run"].as_str().unwrap()], "");
    assert!(text.contains(&format!("failed trials: {failed} (reasons in tune.json)")), "{text}");

    let before = dir.files();
    let text = dir.refused(&["tune", "space.toml", "--budget", "9s", "--test", "reviews.tsv"]);
    assert!(text.contains("test set: expected none while settings are searched"), "{text}");
    for (wrong, expected) in [
        (&["tune", "space.toml"][..], "--budget"),
        (&["tune", "space.toml", "--budget", "9"], "expected a time, as 90s, 30m, 2h or 1h30m"),
        (&["tune", "--resume", "runs"], "expected a folder of `tune` with a tune.json"),
        (&["train", "--resume", "runs/tune-1"], "unpadded tune --resume runs/tune-1"),
        (&["predict", "--ensemble", "runs/tune-1"], "name the trials to join"),
        (&["tune", "--train", "none.tsv", "--budget", "9s"], "none.tsv"),
    ] {
        dir.refuses(wrong, &[expected]);
    }
    dir.write("wrong.toml", "[space]\nmodel.hiden = [1, 2]\ntraining.epochs = [1]\n");
    for wrong in [&["tune", "wrong.toml", "--budget", "9s"][..], &["train", "wrong.toml"]] {
        dir.refuses(wrong, &["wrong.toml:2:", "wrong.toml:3: space: expected"]);
    }
    fs::remove_file(dir.0.join("wrong.toml")).unwrap();
    assert_eq!(dir.files(), before);
}

#[test]
fn every_task_has_a_space() {
    let dir = TestDir::new("tune-spaces");
    for task in ["classify", "tag", "lm", "translate"] {
        let written = dir.stdout(&["init", task, "--space"], "");
        assert!(written.contains("\n[space]\n") && written.contains("training.rate = { from"), "{written}");
        dir.write("space.toml", &written);
        // Only the data is missing.
        if task == "translate" {
            assert!(dir.refused(&["tune", "space.toml", "--budget", "9s"]).contains("data.train"));
        }
    }
    dir.write("reviews.tsv", &reviews());
    // Without a search space in its file, a search uses the space of its task.
    let tune = ["tune", "--train", "reviews.tsv", "--task", "lm", "--trials", "1", "--budget", "1h"];
    let last = dir.json(&with(&tune, &["--epochs", "1", "--set", "data.text=1", "--json"]), "");
    assert_eq!(last["metric"], "bits per character", "{last}");
    assert!(last["trials"][0]["settings"]["model.layers"].is_u64(), "{last}");
}

#[cfg(unix)]
#[test]
fn an_interrupted_search_goes_on_to_the_same_trials() {
    let dir = TestDir::new("tune-interrupted");
    space(&dir, "");
    let tune = |run: &'static str| {
        ["tune", "space.toml", "--trials", "4", "--budget", "1h", "--epochs", "45", "--run", run]
    };
    dir.stdout(&tune("whole"), "");
    for name in ["-INT", "-KILL"] {
        let mut child = dir.command(&tune("run")).spawn().unwrap();
        super::wait_for(&dir.0.join("run/trial-2"), 2);
        super::signal(&child, name);
        let code = child.wait().unwrap().code();
        assert!(code == if name == "-INT" { Some(130) } else { None }, "{name}: {code:?}");
        dir.stdout(&["tune", "--resume", "run"], "");
        assert_eq!(made(&trials(&dir, "run")), made(&trials(&dir, "whole")), "{name}");
        fs::remove_dir_all(dir.0.join("run")).unwrap();
    }
}

#[test]
fn what_a_flag_sets_does_not_vary() {
    let dir = TestDir::new("tune-set");
    space(&dir, "");
    let text = dir.refused(&["tune", "space.toml", "--budget", "1h", "--set", "model.hidden=8"]);
    assert!(text.contains("--set model.hidden: expected a setting that does not vary"), "{text}");
    let tune = ["tune", "--train", "reviews.tsv", "--trials", "1", "--budget", "1h", "--epochs", "1"];
    let output = dir.given(&[&tune[..], &["--set", "model.hidden=8"]].concat(), "");
    let text = String::from_utf8(output.stderr).unwrap();
    let line = text.lines().find(|line| line.starts_with("settings that vary: ")).unwrap();
    assert!(line.contains("model.dropout") && !line.contains("model.hidden"), "{text}");
    dir.stdout(&["report", "runs/tune-1", "-o", "all.html"], "");
}
