//! Several trainings of one config: seeds and folds.

use std::fs;

use serde_json::Value;

use super::{Place, SMALL, reviews, with};

/// Numbers of this name of each run.
fn of_runs(last: &Value, name: &str) -> Vec<f64> {
    last["runs"].as_array().unwrap().iter().map(|run| run[name].as_f64().unwrap()).collect()
}

#[test]
fn seeds_are_ordinary_runs_with_a_mean() {
    let place = Place::new("seeds");
    place.write("reviews.tsv", &reviews());
    place.write("test.tsv", "it was fine\tgood\nit was dull\tbad\nand then it was dull\tgood\n");
    let data = ["--train", "reviews.tsv", "--dev", "reviews.tsv", "--test", "test.tsv"];
    let train = [&["train"][..], &data, &["--seeds", "3"]].concat();
    let last = place.json(&with(&train, &["--seed", "5", "--epochs", "3", "--json"]), "");
    assert_eq!((&last["run"], &last["seeds"]), (&"runs/classify-1".into(), &3.into()), "{last}");
    let (values, tests) = (of_runs(&last, "value"), of_runs(&last, "test"));
    let mean = |of: &[f64]| of.iter().sum::<f64>() / 3.0;
    let deviation = |of: &[f64]| (of.iter().map(|x| (x - mean(of)).powi(2)).sum::<f64>() / 2.0).sqrt();
    for (of, name, about) in [(&values, "value", "deviation"), (&tests, "test", "test_deviation")] {
        assert!((last[name].as_f64().unwrap() - mean(of)).abs() < 1e-9, "{last}");
        assert!((last[about].as_f64().unwrap() - deviation(of)).abs() < 1e-9, "{last}");
    }
    let folder = place.0.join("runs/classify-1");
    let kept: Value = serde_json::from_str(&fs::read_to_string(folder.join("seeds.json")).unwrap()).unwrap();
    assert_eq!(kept["runs"], last["runs"]);
    // One of them is the training that its seed alone makes.
    let alone = with(&train[..7], &["--seed", "6", "--epochs", "3", "--run", "alone", "--json"]);
    assert_eq!(place.json(&alone, "")["value"], values[1]);
    let bytes = |run: &str| fs::read(place.0.join(run).join("best.ckpt")).unwrap();
    assert!(bytes("alone") == bytes("runs/classify-1/seed-6"));
    place.said(&["eval", "runs/classify-1/seed-7", "test.tsv"], "");
    let runs = ["runs/classify-1/seed-5", "runs/classify-1/seed-6"];
    place.said(&["report", runs[0], runs[1], "-o", "both.html"], "");
    place.refuses(&["predict", "runs/classify-1"], &["got a folder of several runs"]);

    // The command continues where it stopped: finished trainings are not repeated.
    let whole = bytes("runs/classify-1/seed-7");
    let before = bytes("runs/classify-1/seed-6");
    fs::write(folder.join("seed-6/best.ckpt"), "kept").unwrap();
    let mut cut = kept.clone();
    cut["runs"].as_array_mut().unwrap().pop();
    fs::write(folder.join("seeds.json"), cut.to_string()).unwrap();
    fs::remove_dir_all(folder.join("seed-7")).unwrap();
    let again = place.json(&["train", "--resume", "runs/classify-1", "--json"], "");
    assert_eq!(of_runs(&again, "value"), values);
    assert!(bytes("runs/classify-1/seed-7") == whole);
    assert_eq!(bytes("runs/classify-1/seed-6"), b"kept");
    fs::write(folder.join("seed-6/best.ckpt"), before).unwrap();

    let said = place.refused(&["train", "--resume", "runs/classify-1", "--epochs", "9"]);
    assert!(said.contains("expected no settings but --threads"), "{said}");
    place.refuses(&with(&train, &["--run", "runs/classify-1"]), &["got a folder of several runs"]);
    place.write("runs/classify-1/seeds.json", "[");
    place.refuses(
        &["train", "--resume", "runs/classify-1"],
        &["seeds.json: expected the figures that `train --seeds` writes, got no JSON"],
    );
    let said = place.refused(&with(&train, &["--seed", "9223372036854775807", "--run", "large"]));
    assert!(said.contains("seed: expected at most") && !place.0.join("large").exists(), "{said}");
    for wrong in [&["--seeds", "1"][..], &["--seeds", "2", "--folds", "2"]] {
        place.refused(&[&train[..7], wrong].concat());
    }
}

#[test]
fn folds_hold_out_each_text_once() {
    let place = Place::new("folds");
    place.write("reviews.tsv", &reviews());
    let train = ["train", "--train", "reviews.tsv", "--folds", "4"];
    let said = place.said(&with(&train, &["--epochs", "2", "--run", "cross"]), "");
    assert!(said.contains("fold 4 of 4: held-out accuracy: "), "{said}");
    assert!(said.contains("mean and standard deviation of 4 folds"), "{said}");
    let config = fs::read_to_string(place.0.join("cross/fold-2/config.toml")).unwrap();
    assert!(config.contains("fold = \"2/4\""), "{config}");
    // There are ten texts, each twelve times: all of them are in one fold.
    let report = fs::read_to_string(place.0.join("cross/folds.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["folds"], report["runs"].as_array().unwrap().len()), (&4.into(), 4), "{report}");
    // A fold continues by itself, and is the same one.
    place.said(&["train", "--resume", "cross/fold-2", "--epochs", "3"], "");

    let refused = |arguments: &[&str]| place.refused(&[arguments, &SMALL, &["--run", "none"]].concat());
    let said = refused(&["train", "--train", "reviews.tsv", "--folds", "40"]);
    assert!(
        said.contains(
            "expected at most 10 folds, since `reviews.tsv` has 120 texts, 10 of them different, got 40 folds"
        ),
        "{said}"
    );
    let said = refused(&[&train[..], &["--set", "data.window=16"]].concat());
    assert!(said.contains("data.fold: expected none beside `data.window`"), "{said}");
    let said = refused(&[&train[..], &["--set", "data.dev=reviews.tsv"]].concat());
    assert!(said.contains("--folds 4: expected no `data.dev`"), "{said}");
    let said = refused(&["train", "--train", "reviews.tsv", "--task", "lm", "--folds", "4"]);
    assert!(
        said.contains("expected `classify`, `tag` or `translate`, whose data are records, got `lm`"),
        "{said}"
    );
    let said = refused(&["train", "--train", "reviews.tsv", "--set", "data.fold=7/4"]);
    assert!(said.contains("expected a fold of several, as \"2/5\""), "{said}");
    assert!(!place.0.join("none").exists());
}

#[test]
fn texts_of_a_group_are_held_out_together() {
    let place = Place::new("folds-of-groups");
    let mut csv = "text,label,author\n".to_owned();
    let mut json = String::new();
    for i in 0..96 {
        let (label, author) = (["good", "bad"][i % 2], i / 8);
        csv += &format!("{label} text number {i},{label},author {author}\n");
        json += &format!(
            "{{\"author\": {author}, \"text\": \"{label} text number {i}\", \"label\": \"{label}\"}}\n"
        );
    }
    place.write("texts.csv", &csv);
    place.write("texts.jsonl", &json);
    // A test file needs no such column.
    place.write("test.tsv", "text\tlabel\ngood text\tgood\nbad text\tbad\n");
    for file in ["texts.csv", "texts.jsonl"] {
        let train = ["train", "--train", file, "--set", "data.group=author", "--epochs", "1"];
        // Three of twelve authors with eight texts each are in a fold.
        let fold = ["--set", "data.fold=2/4", "--test", "test.tsv", "--run", "one", "--overwrite"];
        let said = place.given(&with(&train, &fold), "").stderr;
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("group in `author`") && said.contains("24 held out"), "{said}");
        place.said(&with(&train, &["--folds", "4", "--run", &format!("{file}-folds")]), "");
    }
    let refused = |arguments: &[&str]| {
        place.refused(&[&["train", "--run", "none", "--set", "data.group=author"], arguments].concat())
    };
    let said = refused(&["--train", "texts.csv", "--dev", "texts.csv"]);
    assert!(said.contains("data.group: expected none unless a part of `data.train` is held out"), "{said}");
    let said = refused(&["--train", "texts.csv", "--set", "data.group=writer"]);
    assert!(said.contains("group") && said.contains("`writer`"), "{said}");
    place.write("trees.txt", "(4 (3 good) (4 film))\n(0 (1 bad) (0 film))\n");
    let said = refused(&["--train", "trees.txt"]);
    assert!(said.contains("column of the group (`data.group` in a config)"), "{said}");
    place.write("rows.svm", "+1 1:1 2:1\n-1 3:1\n");
    let said = refused(&["--train", "rows.svm"]);
    assert!(said.contains("data.group"), "{said}");
    let said = refused(&["--train", "texts.csv", "--task", "lm"]);
    assert!(said.contains("data.group"), "{said}");
}

#[test]
fn other_tasks_have_folds_too() {
    let place = Place::new("folds-of-tasks");
    let words: String = (0..30)
        .map(|i| format!("in O\n{} B-place\n\n", ["Rome", "Bonn", "Oslo"][i % 3].repeat(i / 3 + 1)))
        .collect();
    place.write("train.conll", &words);
    let rows: String = (0..40).map(|i| format!("{} {}:1 {}:0.{i}\n", i % 2, 1 + i % 2, 3 + i)).collect();
    place.write("rows.libsvm", &rows);
    let pairs: String = (0..24).map(|i| format!("go {i}\tgeh {i}\n")).collect();
    place.write("pairs.tsv", &pairs);
    for (task, file) in [("tag", "train.conll"), ("classify", "rows.libsvm"), ("translate", "pairs.tsv")] {
        let train = ["train", "--task", task, "--train", file, "--folds", "2", "--json"];
        let small = ["--epochs", "1", "--set", "text.min_count=1", "--run", task];
        let last = place.json(&with(&train, &small), "");
        assert_eq!(last["folds"], 2, "{last}");
        assert!(last["deviation"].as_f64().is_some(), "{last}");
    }
}

#[test]
fn seeds_start_from_a_trained_model_and_go_on_without_it() {
    let place = Place::new("seeds-from");
    place.write("reviews.tsv", &reviews());
    place.said(&with(&["train", "--train", "reviews.tsv"], &["--epochs", "1", "--run", "first"]), "");
    let train = ["train", "--from", "first", "--train", "reviews.tsv", "--seeds", "2", "--epochs", "2"];
    let before = place.json(&[&train[..], &["--run", "seeds", "--json"]].concat(), "");
    // A saved training no longer needs the first model; a training that has not begun does.
    fs::remove_dir_all(place.0.join("first")).unwrap();
    let mut cut = before.clone();
    cut["runs"].as_array_mut().unwrap().pop();
    place.write("seeds/seeds.json", &cut.to_string());
    let again = place.json(&["train", "--resume", "seeds", "--json"], "");
    assert_eq!(of_runs(&again, "value"), of_runs(&before, "value"));
    fs::remove_dir_all(place.0.join("seeds/seed-2")).unwrap();
    place.write("seeds/seeds.json", &cut.to_string());
    assert!(place.refused(&["train", "--resume", "seeds"]).contains("first"));
}

#[cfg(unix)]
#[test]
fn interrupted_seeds_go_on_to_the_same_figures() {
    let place = Place::new("seeds-interrupted");
    place.write("reviews.tsv", &reviews());
    let train = |run: &'static str| {
        let several = ["--epochs", "30", "--seeds", "2", "--threads", "1", "--run", run];
        with(&["train", "--train", "reviews.tsv"], &several)
    };
    place.said(&train("whole"), "");
    let mut child = place.command(&train("run")).spawn().unwrap();
    super::wait_for(&place.0.join("run/seed-2"), 2);
    super::signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let said = place.given(&["train", "--resume", "run", "--threads", "1"], "");
    assert_eq!(said.status.code(), Some(0));
    for name in ["seed-1", "seed-2"] {
        let [one, other] =
            ["whole", "run"].map(|run| fs::read(place.0.join(run).join(name).join("best.ckpt")).unwrap());
        assert!(one == other, "{name}");
    }
}
