//! The held-out figure that a training prints is the model's: `eval` of the same texts, the report, metrics.jsonl and a count over
//! `predict` have the same figure.

use std::fs;

use serde_json::Value;
use unpadded_recipes::{Config, Task, Truth, prepare};

use super::{TestDir, with};

/// Returns a number below 100 that looks random.
fn dice(text: usize, draw: usize) -> usize {
    let mixed = (text * 7919 + draw * 104_729 + 12_345) as u32;
    let mixed = (mixed ^ (mixed >> 13)).wrapping_mul(1_274_126_177);
    ((mixed ^ (mixed >> 16)) % 100) as usize
}

/// Returns texts with several labels; the word of a label is wrong in one of five texts.
fn comments(texts: std::ops::Range<usize>) -> String {
    let line = |i: usize| {
        let (mut words, mut labels) = (vec![format!("number {}", i % 7)], Vec::new());
        for (at, (label, share)) in [("rude", 40), ("wrong", 25), ("old", 12)].into_iter().enumerate() {
            let there = dice(i, at) < share;
            labels.extend(there.then_some(label));
            words.extend((there != (dice(i, at + 10) < 20)).then(|| label.to_owned()));
        }
        format!("{}\t{}\n", words.join(" "), labels.join(","))
    };
    format!("text\tlabel\n{}", texts.map(line).collect::<String>())
}

/// Trains in the folder `run`; returns the value that the command prints, after a check that the report and metrics.jsonl have
/// the same value, and standard error.
fn printed(dir: &TestDir, run: &str, rest: &[&str]) -> (f64, String) {
    let output = dir.given(&with(&["train", "--run", run, "--epochs", "3", "--json"], rest), "");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{rest:?}: {error}");
    let last: Value =
        serde_json::from_str(String::from_utf8(output.stdout).unwrap().lines().last().unwrap()).unwrap();
    let (value, metric) = (last["value"].as_f64().unwrap(), last["metric"].as_str().unwrap());
    let epochs = fs::read_to_string(dir.0.join(run).join("metrics.jsonl")).unwrap();
    let mut epochs = epochs.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let best = epochs.rfind(|epoch| epoch["best"] == true).unwrap()["dev"][metric].as_f64().unwrap();
    // A share is printed in percent.
    assert!([1.0, 100.0].iter().any(|factor| (factor * best / value - 1.0).abs() < 1e-9), "{best} {value}");
    let report = fs::read_to_string(dir.0.join(run).join("report.html")).unwrap();
    let headline = report.split("class=\"headline\"").nth(1).unwrap().split("</p>").next().unwrap();
    let shown: String =
        headline.split("<b>").nth(1).unwrap().chars().take_while(|c| *c != '%' && *c != '<').collect();
    assert!((shown.trim().parse::<f64>().unwrap() - value).abs() < 0.006, "{headline} {value}");
    (value, error)
}

/// The micro F1 of the answers of `predict`, in percent, counted by hand.
fn counted(dir: &TestDir, run: &str, cases: &[(String, Vec<String>)], rest: &[&str]) -> f64 {
    let texts: String = cases.iter().map(|(text, _)| format!("{text}\n")).collect();
    let output = dir.stdout(&[&["predict", run], rest].concat(), &texts);
    let (mut hits, mut both) = (0, 0);
    for (line, (_, labels)) in output.lines().zip(cases) {
        let cell = line.split('\t').next().unwrap();
        let found: Vec<&str> = cell.split(',').filter(|label| !label.is_empty()).collect();
        hits += found.iter().filter(|found| labels.iter().any(|label| label == *found)).count();
        both += found.len() + labels.len();
    }
    assert_eq!(output.lines().count(), cases.len());
    100.0 * 2.0 * hits as f64 / both as f64
}

fn evaluated(dir: &TestDir, run: &str, file: &str, rest: &[&str]) -> f64 {
    dir.json(&[&["eval", run, file, "--json"], rest].concat(), "")["value"].as_f64().unwrap()
}

#[test]
fn several_labels_are_scored_by_the_thresholds_of_the_model() {
    let dir = TestDir::new("figures");
    let (train, dev) = (comments(0..280), comments(280..400));
    dir.write("train.tsv", &train);
    dir.write("dev.tsv", &dev);
    let case = |line: &str| {
        let (text, labels) = line.split_once('\t').unwrap();
        let labels = labels.split(',').filter(|label| !label.is_empty()).map(str::to_owned);
        (text.to_owned(), labels.collect::<Vec<_>>())
    };
    let cases: Vec<_> = dev.lines().skip(1).map(case).collect();
    let arguments = ["--train", "train.tsv", "--dev", "dev.tsv", "--set", "data.target=labels"];
    let mut values = Vec::new();
    for (run, set, rule) in [
        ("default", &[][..], "one, since `old` has only 1"),
        ("each", &["--set", "decoding.threshold=per-label"], "per-label"),
        ("number", &["--set", "decoding.threshold=0.3"], "0.3"),
        ("files", &["--set", "decoding.threshold=per-label", "--set", "data.window=50"], "per-label"),
    ] {
        let (value, output) = printed(&dir, run, &[&arguments, set].concat());
        assert!(output.contains(&format!("threshold of labels (decoding.threshold): {rule}")), "{output}");
        assert_eq!(value, evaluated(&dir, run, "dev.tsv", &[]), "{run}");
        assert!((value - counted(&dir, run, &cases, &[])).abs() < 1e-9, "{run}");
        values.push(value);
    }
    assert!(values[0] != values[1] && values[0] != values[2], "the rules must differ here: {values:?}");
    // A trained model obeys the setting, too.
    for set in ["one", "0.3", "per-label"] {
        let rest = ["--set", &format!("decoding.threshold={set}")];
        let found = evaluated(&dir, "each", "dev.tsv", &rest);
        assert!((found - counted(&dir, "each", &cases, &rest)).abs() < 1e-9, "{set}: {found}");
        assert_eq!(found == values[1], set == "per-label", "{set}: {found}");
    }
    // With a hold-out and with folds, `prepare` returns the held-out texts.
    dir.write("all.tsv", &comments(0..400));
    let arguments =
        ["--train", "all.tsv", "--set", "data.target=labels", "--set", "decoding.threshold=per-label"];
    let mut config = Config::new(Task::Classify);
    config.data.target = unpadded_recipes::Target::Labels;
    config.data.train = Some(dir.0.join("all.tsv").to_string_lossy().into_owned());
    let held_out = |config: &Config| -> Vec<(String, Vec<String>)> {
        let cases = prepare(config).unwrap().held_out.cases.into_iter();
        let case = |arguments: unpadded_recipes::Case| match arguments.truth {
            Truth::Labels(labels) => (arguments.text, labels),
            other => panic!("{other:?}"),
        };
        cases.map(case).collect()
    };
    let (value, _) = printed(&dir, "held", &arguments);
    assert!((value - counted(&dir, "held", &held_out(&config), &[])).abs() < 1e-9, "{value}");
    let folds = ["train", "--run", "folds", "--folds", "2", "--epochs", "2", "--json"];
    let folds = dir.json(&with(&folds, &arguments), "");
    for (at, run) in folds["runs"].as_array().unwrap().iter().enumerate() {
        config.set("data.fold", &unpadded_recipes::Value::Text(format!("{}/2", at + 1))).unwrap();
        let found = counted(&dir, &format!("folds/fold-{}", at + 1), &held_out(&config), &[]);
        assert!((run["value"].as_f64().unwrap() - found).abs() < 1e-9, "{run} {found}");
    }
    // A resumed training must not compare the best epoch with epochs of another threshold.
    let config = dir.0.join("each/config.toml");
    let text = fs::read_to_string(&config).unwrap().replace("= \"per-label\"", "= 0.4");
    fs::write(&config, text).unwrap();
    dir.refuses(
        &["train", "--resume", "each", "--epochs", "4"],
        &["expected `threshold` \"per-label\", by which the best epoch so far was", "`predict` and `eval`"],
    );
}

#[test]
fn thresholds_are_checked_and_belong_to_several_labels() {
    let dir = TestDir::new("threshold-errors");
    dir.write("reviews.tsv", &super::reviews());
    let arguments = ["train", "--train", "reviews.tsv", "--epochs", "1", "--run", "run"];
    for (value, expected) in [
        ("1", "expected `per-label`, `one`, or a number above 0 and below 1 (rounded to f32), got 1"),
        (
            "some",
            "expected `per-label`, `one`, or a number above 0 and below 1 (rounded to f32), got \"some\"",
        ),
        ("0.5", "decoding.threshold: expected none unless `data.target` is `labels`, got 0.5"),
    ] {
        dir.refuses(&with(&arguments, &["--set", &format!("decoding.threshold={value}")]), &[expected]);
    }
    dir.stdout(&with(&arguments, &[]), "");
    for first in [&["eval", "run", "reviews.tsv"][..], &["predict", "run"]] {
        let text = dir.refused(&[first, &["--set", "decoding.threshold=0.5"]].concat());
        assert!(text.contains("expected none unless `data.target` is `labels`"), "{text}");
    }
}

#[test]
fn the_printed_figure_of_each_task_is_that_of_eval() {
    let dir = TestDir::new("figures-of-tasks");
    let texts = |rows: std::ops::Range<usize>, line: &dyn Fn(usize, &str) -> String| -> String {
        let words = ["red", "blue", "old", "new", "cat", "dog"];
        let text = |i: usize| (0..1 + dice(i, 50) % 6).map(|at| words[dice(i, at) % 6]).collect::<Vec<_>>();
        rows.map(|i| line(i, &text(i).join(" "))).collect()
    };
    let label = |i: usize, text: &str| {
        let label = ["far", "near"][usize::from(text.starts_with('r')).max(dice(i, 61) / 80)];
        format!("{text}\t{label}\n")
    };
    let number = |i: usize, text: &str| format!("{text}\t{}\n", text.len() + dice(i, 62) / 25);
    let tags = |i: usize, text: &str| {
        let tag = |(at, word)| match word {
            "cat" | "dog" if dice(i, 70 + at) < 70 => format!("{word}\tB-PET\n"),
            word => format!("{word}\t{}\n", if dice(i, 80 + at) < 10 { "I-PET" } else { "O" }),
        };
        text.split(' ').enumerate().map(tag).collect::<String>() + "\n"
    };
    let pairs = |_: usize, text: &str| format!("{text}\t{}\n", text.chars().rev().collect::<String>());
    let prose = |_: usize, text: &str| format!("{text}.\n");
    type Line<'a> = &'a dyn Fn(usize, &str) -> String;
    let cases: [(&str, Line<'_>, &[&str], &str); 6] = [
        ("classify", &label, &[], "accuracy"),
        ("classify", &label, &["--set", "training.class_weights=balanced"], "macro F1"),
        ("classify", &number, &["--set", "data.target=number"], "mean squared error"),
        ("tag", &tags, &["--set", "data.repair_tags=true", "--set", "model.crf=false"], "chunk F1"),
        ("translate", &pairs, &["--set", "training.averaging=ema"], "perplexity"),
        ("lm", &prose, &[], "bits per character"),
    ];
    for (at, (task, line, set, metric)) in cases.into_iter().enumerate() {
        let names = [format!("train-{at}.tsv"), format!("dev-{at}.tsv")];
        dir.write(&names[0], &texts(0..200, line));
        dir.write(&names[1], &texts(200..290, line));
        let run = format!("run-{at}");
        let rows = ["--task", task, "--train", &names[0], "--dev", &names[1]];
        let (value, _) = printed(&dir, &run, &[&rows, set].concat());
        let scores = dir.json(&["eval", &run, &names[1], "--json"], "");
        let factor = if scores["shares"].as_array().unwrap().contains(&metric.into()) { 100.0 } else { 1.0 };
        let found = factor * scores["scores"][metric].as_f64().unwrap();
        assert!((found / value - 1.0).abs() < 1e-7, "{task} {set:?}: {value} {found}");
    }
}
