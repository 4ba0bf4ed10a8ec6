//! Several trainings of one config: seeds and folds.

use std::fs;

use serde_json::Value;

use super::{SMALL, TestDir, reviews, with};

/// Numbers of this name of each run.
fn of_runs(last: &Value, name: &str) -> Vec<f64> {
    last["runs"].as_array().unwrap().iter().map(|run| run[name].as_f64().unwrap()).collect()
}

#[test]
fn seeds_are_ordinary_runs_with_a_mean() {
    let dir = TestDir::new("seeds");
    dir.write("reviews.tsv", &reviews());
    dir.write("test.tsv", "it was fine\tgood\nit was dull\tbad\nand then it was dull\tgood\n");
    let data = ["--train", "reviews.tsv", "--dev", "reviews.tsv", "--test", "test.tsv"];
    let train = [&["train"][..], &data, &["--seeds", "3"]].concat();
    let last = dir.json(&with(&train, &["--seed", "5", "--epochs", "3", "--json"]), "");
    assert_eq!((&last["run"], &last["seeds"]), (&"runs/classify-1".into(), &3.into()), "{last}");
    let (values, tests) = (of_runs(&last, "value"), of_runs(&last, "test"));
    let mean = |numbers: &[f64]| numbers.iter().sum::<f64>() / 3.0;
    let deviation =
        |numbers: &[f64]| (numbers.iter().map(|x| (x - mean(numbers)).powi(2)).sum::<f64>() / 2.0).sqrt();
    for (numbers, name, about) in [(&values, "value", "deviation"), (&tests, "test", "test_deviation")] {
        assert!((last[name].as_f64().unwrap() - mean(numbers)).abs() < 1e-9, "{last}");
        assert!((last[about].as_f64().unwrap() - deviation(numbers)).abs() < 1e-9, "{last}");
    }
    let folder = dir.0.join("runs/classify-1");
    let kept: Value = serde_json::from_str(&fs::read_to_string(folder.join("seeds.json")).unwrap()).unwrap();
    assert_eq!(kept["runs"], last["runs"]);
    // One of them is the training that its seed alone makes.
    let alone = with(&train[..7], &["--seed", "6", "--epochs", "3", "--run", "alone", "--json"]);
    assert_eq!(dir.json(&alone, "")["value"], values[1]);
    let bytes = |run: &str| fs::read(dir.0.join(run).join("best.ckpt")).unwrap();
    assert!(bytes("alone") == bytes("runs/classify-1/seed-6"));
    dir.stdout(&["eval", "runs/classify-1/seed-7", "test.tsv"], "");
    let runs = ["runs/classify-1/seed-5", "runs/classify-1/seed-6"];
    dir.stdout(&["report", runs[0], runs[1], "-o", "both.html"], "");
    dir.refuses(&["predict", "runs/classify-1"], &["got a folder of several runs"]);

    // The command continues where it stopped: finished trainings are not repeated.
    let whole = bytes("runs/classify-1/seed-7");
    let before = bytes("runs/classify-1/seed-6");
    fs::write(folder.join("seed-6/best.ckpt"), "kept").unwrap();
    let mut truncated = kept.clone();
    truncated["runs"].as_array_mut().unwrap().pop();
    fs::write(folder.join("seeds.json"), truncated.to_string()).unwrap();
    fs::remove_dir_all(folder.join("seed-7")).unwrap();
    let again = dir.json(&["train", "--resume", "runs/classify-1", "--json"], "");
    assert_eq!(of_runs(&again, "value"), values);
    assert!(bytes("runs/classify-1/seed-7") == whole);
    assert_eq!(bytes("runs/classify-1/seed-6"), b"kept");
    fs::write(folder.join("seed-6/best.ckpt"), before).unwrap();

    let text = dir.refused(&["train", "--resume", "runs/classify-1", "--epochs", "9"]);
    assert!(text.contains("expected no settings but --threads"), "{text}");
    dir.refuses(&with(&train, &["--run", "runs/classify-1"]), &["got a folder of several runs"]);
    dir.write("runs/classify-1/seeds.json", "[");
    dir.refuses(
        &["train", "--resume", "runs/classify-1"],
        &["seeds.json: expected the figures that `train --seeds` writes, got no JSON"],
    );
    let text = dir.refused(&with(&train, &["--seed", "9223372036854775807", "--run", "large"]));
    assert!(text.contains("seed: expected at most") && !dir.0.join("large").exists(), "{text}");
    for wrong in [&["--seeds", "1"][..], &["--seeds", "2", "--folds", "2"]] {
        dir.refused(&[&train[..7], wrong].concat());
    }
}

#[test]
fn folds_hold_out_each_text_once() {
    let dir = TestDir::new("folds");
    dir.write("reviews.tsv", &reviews());
    let train = ["train", "--train", "reviews.tsv", "--folds", "4"];
    let text = dir.stdout(&with(&train, &["--epochs", "2", "--run", "cross"]), "");
    assert!(text.contains("fold 4 of 4: held-out accuracy: "), "{text}");
    assert!(text.contains("mean and standard deviation of 4 folds"), "{text}");
    let config = fs::read_to_string(dir.0.join("cross/fold-2/config.toml")).unwrap();
    assert!(config.contains("fold = \"2/4\""), "{config}");
    // There are ten texts, each twelve times: all of them are in one fold.
    let report = fs::read_to_string(dir.0.join("cross/folds.json")).unwrap();
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["folds"], report["runs"].as_array().unwrap().len()), (&4.into(), 4), "{report}");
    // A fold continues by itself, and is the same one.
    dir.stdout(&["train", "--resume", "cross/fold-2", "--epochs", "3"], "");

    let refused = |arguments: &[&str]| dir.refused(&[arguments, &SMALL, &["--run", "none"]].concat());
    let text = refused(&["train", "--train", "reviews.tsv", "--folds", "40"]);
    assert!(
        text.contains(
            "expected at most 10 folds, since `reviews.tsv` has 120 texts, 10 of them different, got 40 folds"
        ),
        "{text}"
    );
    let text = refused(&[&train[..], &["--set", "data.window=16"]].concat());
    assert!(text.contains("data.fold: expected none beside `data.window`"), "{text}");
    let text = refused(&[&train[..], &["--set", "data.dev=reviews.tsv"]].concat());
    assert!(text.contains("--folds 4: expected no `data.dev`"), "{text}");
    let text = refused(&["train", "--train", "reviews.tsv", "--task", "lm", "--folds", "4"]);
    assert!(
        text.contains("expected `classify`, `tag` or `translate`, whose data are records, got `lm`"),
        "{text}"
    );
    let text = refused(&["train", "--train", "reviews.tsv", "--set", "data.fold=7/4"]);
    assert!(text.contains("expected a fold of several, as \"2/5\""), "{text}");
    assert!(!dir.0.join("none").exists());
}

#[test]
fn texts_of_a_group_are_held_out_together() {
    let dir = TestDir::new("folds-of-groups");
    let mut csv = "text,label,author\n".to_owned();
    let mut json = String::new();
    for i in 0..96 {
        let (label, author) = (["good", "bad"][i % 2], i / 8);
        csv += &format!("{label} text number {i},{label},author {author}\n");
        json += &format!(
            "{{\"author\": {author}, \"text\": \"{label} text number {i}\", \"label\": \"{label}\"}}\n"
        );
    }
    dir.write("texts.csv", &csv);
    dir.write("texts.jsonl", &json);
    // A test file needs no such column.
    dir.write("test.tsv", "text\tlabel\ngood text\tgood\nbad text\tbad\n");
    for file in ["texts.csv", "texts.jsonl"] {
        let train = ["train", "--train", file, "--set", "data.group=author", "--epochs", "1"];
        // Three of twelve authors with eight texts each are in a fold.
        let fold = ["--set", "data.fold=2/4", "--test", "test.tsv", "--run", "one", "--overwrite"];
        let text = dir.given(&with(&train, &fold), "").stderr;
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains("group in `author`") && text.contains("24 held out"), "{text}");
        dir.stdout(&with(&train, &["--folds", "4", "--run", &format!("{file}-folds")]), "");
    }
    let refused = |arguments: &[&str]| {
        dir.refused(&[&["train", "--run", "none", "--set", "data.group=author"], arguments].concat())
    };
    let text = refused(&["--train", "texts.csv", "--dev", "texts.csv"]);
    assert!(text.contains("data.group: expected none unless a part of `data.train` is held out"), "{text}");
    let text = refused(&["--train", "texts.csv", "--set", "data.group=writer"]);
    assert!(text.contains("group") && text.contains("`writer`"), "{text}");
    dir.write("trees.txt", "(4 (3 good) (4 film))\n(0 (1 bad) (0 film))\n");
    let text = refused(&["--train", "trees.txt"]);
    assert!(text.contains("column of the group (`data.group` in a config)"), "{text}");
    dir.write("rows.svm", "+1 1:1 2:1\n-1 3:1\n");
    let text = refused(&["--train", "rows.svm"]);
    assert!(text.contains("data.group"), "{text}");
    let text = refused(&["--train", "texts.csv", "--task", "lm"]);
    assert!(text.contains("data.group"), "{text}");
}

#[test]
fn other_tasks_have_folds_too() {
    let dir = TestDir::new("folds-of-tasks");
    let words: String = (0..30)
        .map(|i| format!("in O\n{} B-place\n\n", ["Rome", "Bonn", "Oslo"][i % 3].repeat(i / 3 + 1)))
        .collect();
    dir.write("train.conll", &words);
    let rows: String = (0..40).map(|i| format!("{} {}:1 {}:0.{i}\n", i % 2, 1 + i % 2, 3 + i)).collect();
    dir.write("rows.libsvm", &rows);
    let pairs: String = (0..24).map(|i| format!("go {i}\tgeh {i}\n")).collect();
    dir.write("pairs.tsv", &pairs);
    for (task, file) in [("tag", "train.conll"), ("classify", "rows.libsvm"), ("translate", "pairs.tsv")] {
        let train = ["train", "--task", task, "--train", file, "--folds", "2", "--json"];
        let small = ["--epochs", "1", "--set", "text.min_count=1", "--run", task];
        let last = dir.json(&with(&train, &small), "");
        assert_eq!(last["folds"], 2, "{last}");
        assert!(last["deviation"].as_f64().is_some(), "{last}");
    }
}

#[test]
fn seeds_start_from_a_trained_model_and_go_on_without_it() {
    let dir = TestDir::new("seeds-from");
    dir.write("reviews.tsv", &reviews());
    dir.stdout(&with(&["train", "--train", "reviews.tsv"], &["--epochs", "1", "--run", "first"]), "");
    let train = ["train", "--from", "first", "--train", "reviews.tsv", "--seeds", "2", "--epochs", "2"];
    let before = dir.json(&[&train[..], &["--run", "seeds", "--json"]].concat(), "");
    // A saved training no longer needs the first model; a training that has not begun does.
    fs::remove_dir_all(dir.0.join("first")).unwrap();
    let mut truncated = before.clone();
    truncated["runs"].as_array_mut().unwrap().pop();
    dir.write("seeds/seeds.json", &truncated.to_string());
    let again = dir.json(&["train", "--resume", "seeds", "--json"], "");
    assert_eq!(of_runs(&again, "value"), of_runs(&before, "value"));
    fs::remove_dir_all(dir.0.join("seeds/seed-2")).unwrap();
    dir.write("seeds/seeds.json", &truncated.to_string());
    assert!(dir.refused(&["train", "--resume", "seeds"]).contains("first"));
}

#[cfg(unix)]
#[test]
fn interrupted_seeds_go_on_to_the_same_figures() {
    let dir = TestDir::new("seeds-interrupted");
    dir.write("reviews.tsv", &reviews());
    let train = |run: &'static str| {
        let several = ["--epochs", "30", "--seeds", "2", "--threads", "1", "--run", run];
        with(&["train", "--train", "reviews.tsv"], &several)
    };
    dir.stdout(&train("whole"), "");
    let mut child = dir.command(&train("run")).spawn().unwrap();
    super::wait_for(&dir.0.join("run/seed-2"), 2);
    super::signal(&child, "-INT");
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let text = dir.given(&["train", "--resume", "run", "--threads", "1"], "");
    assert_eq!(text.status.code(), Some(0));
    for name in ["seed-1", "seed-2"] {
        let [one, other] =
            ["whole", "run"].map(|run| fs::read(dir.0.join(run).join(name).join("best.ckpt")).unwrap());
        assert!(one == other, "{name}");
    }
}
