//! The report of a run, and of several.

use std::fs;

use super::{TestDir, reviews, with};

/// Words with their tags and the label of their text.
fn requests(texts: usize) -> [String; 3] {
    let request = |i: usize| match i % 2 {
        0 => ("play some jazz", "O O B-genre", "music"),
        _ => ("wake me at nine please", "O O O B-time O", "alarm"),
    };
    let column = |pick: fn((&'static str, &'static str, &'static str)) -> &'static str| {
        (0..texts).map(|i| format!("{}\n", pick(request(i)))).collect()
    };
    [column(|request| request.0), column(|request| request.1), column(|request| request.2)]
}

#[test]
fn a_test_set_is_reported_by_class_and_by_length() {
    let dir = TestDir::new("report-classes");
    dir.write("reviews.tsv", &reviews());
    dir.write("test.tsv", "it was fine\tgood\nit was dull\tbad\nit was <b>\tmiddling\n");
    let train = ["train", "--train", "reviews.tsv", "--test", "test.tsv", "--run", "run"];
    dir.stdout(&with(&train, &["--epochs", "4"]), "");
    let page = fs::read_to_string(dir.0.join("run/report.html")).unwrap();
    for part in [
        "<h3>Each label</h3>",
        "<h3>Confusion of labels</h3>",
        "Test set: wrong texts by length in tokens",
        "middling",
        "95 % interval",
        "<h2 id=\"held\">Scores on the held-out texts</h2>",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let scores = dir.json(&["eval", "run", "test.tsv", "--json"], "");
    assert_eq!(scores["confusions"]["label"], scores["confusion"], "{scores}");
    assert_eq!(scores["shares"], serde_json::json!(["accuracy", "macro F1", "weighted F1"]));
    let texts = scores["lengths"]["ranges"].as_array().unwrap().iter().map(|range| range["texts"].as_u64());
    assert_eq!((texts.sum::<Option<u64>>(), &scores["lengths"]["of"]), (Some(3), &"wrong texts".into()));
}

#[test]
fn intents_stand_beside_chunks() {
    let dir = TestDir::new("report-tags");
    for folder in ["train", "test"] {
        fs::create_dir(dir.0.join(folder)).unwrap();
        let texts = requests(if folder == "train" { 60 } else { 10 });
        for (name, text) in ["seq.in", "seq.out", "label"].iter().zip(texts) {
            dir.write(&format!("{folder}/{name}"), &text);
        }
    }
    // All texts are equal but for two: none could be held out.
    let train =
        ["train", "--task", "tag", "--train", "train", "--dev", "test", "--test", "test", "--run", "run"];
    dir.stdout(&with(&train, &["--epochs", "2"]), "");
    let page = fs::read_to_string(dir.0.join("run/report.html")).unwrap();
    for part in [
        "<h3>Each chunk type</h3>",
        "<h3>Each label</h3>",
        "<h3>Confusion of tags</h3>",
        "<h3>Confusion of labels</h3>",
        "Test set: wrong tags by length in words",
        "token accuracy",
        "alarm",
    ] {
        assert!(page.contains(part), "{part}");
    }
    let scores = dir.json(&["eval", "run", "test", "--json"], "");
    assert_eq!(scores["confusion"], scores["confusions"]["label"], "{scores}");
    assert!(!scores["confusions"]["tag"].as_array().unwrap().is_empty(), "{scores}");
}

#[test]
fn translations_are_shown_with_their_attention() {
    let dir = TestDir::new("report-pairs");
    let numbers = [("eins", "one"), ("zwei", "two"), ("drei", "three"), ("vier", "four")];
    let line = |i: usize| {
        let (a, b) = (numbers[i % 4], numbers[i / 4 % 4]);
        format!("{} {}\t{} {}\n", a.0, b.0, a.1, b.1)
    };
    dir.write("pairs.tsv", &(0..64).map(line).collect::<String>());
    dir.write("test.tsv", "eins vier\tone four\nzwei\ttwo\n");
    let train = ["train", "--task", "translate", "--train", "pairs.tsv", "--dev", "pairs.tsv"];
    dir.stdout(&with(&train, &["--test", "test.tsv", "--epochs", "1", "--run", "run"]), "");
    dir.stdout(&with(&train, &["--epochs", "1", "--run", "untested"]), "");
    for (run, examples) in [("run", 2), ("untested", 12)] {
        let page = fs::read_to_string(dir.0.join(run).join("report.html")).unwrap();
        assert_eq!(page.matches("<dl class=\"pair\">").count(), examples, "{run}");
        assert!(page.contains("<dt>reference</dt>") && page.contains("chrF by length in tokens"), "{run}");
        let attended = page.matches("<table class=\"attention\">").count();
        // An empty output has no attention.
        assert_eq!(attended + page.matches("made\" dir=\"auto\"><i>(empty)</i>").count(), examples, "{run}");
        assert_eq!(page.contains("Test set: the first 8 texts"), run == "run");
    }
    let test = fs::read_to_string(dir.0.join("run/test.json")).unwrap();
    let test: serde_json::Value = serde_json::from_str(&test).unwrap();
    assert_eq!(test["examples"][0]["references"], serde_json::json!(["one four"]), "{test}");
}

#[test]
fn worst_errors_have_every_text_of_a_record() {
    let dir = TestDir::new("report-errors");
    let words = ["cat", "dog", "bird"];
    // No text has anything to do with its label or number, so every model has errors.
    let line = |i: usize| {
        let (a, b) = (words[i % 3], words[i / 3 % 3]);
        format!(
            "the {a} {i},no <{b}>,{},{}.5,{}\n",
            i * 7 % 5 % 2,
            i * 11 % 7,
            ["x|y", "z", ""][i * 5 % 7 % 3]
        )
    };
    let lines: String = (0..90).map(line).collect();
    dir.write("pairs.csv", &format!("one,two,label,number,labels\n{lines}"));
    let train = ["train", "--train", "pairs.csv", "--epochs", "1", "--set", "data.text=[\"one\"]"];
    let page = |run: &str, more: &[&str]| {
        let all = [&train[..], &["--run", run, "--set", "data.pair=two"], more].concat();
        dir.stdout(&with(&all, &[]), "");
        fs::read_to_string(dir.0.join(run).join("report.html")).unwrap()
    };
    for (run, more, parts) in [
        ("label", &["--set", "data.label=label"][..], &["have a wrong label", "class=\"w for\""][..]),
        (
            "number",
            &["--set", "data.label=number", "--set", "data.target=number"],
            &["(off by ", "true and predicted numbers", "class=\"spot\""],
        ),
        (
            "labels",
            &["--set", "data.label=labels", "--set", "data.target=labels", "--set", "data.label_separator=|"],
            &["a wrong or a missing label", "<h3>Thresholds of labels</h3>", ", threshold "],
        ),
    ] {
        let page = page(run, more);
        let errors = page.split("<h2 id=\"mistakes\">Worst errors</h2>").nth(1).expect(run);
        for part in ["<p class=\"column\">one</p>", "<p class=\"column\">two</p>", "cat", "&lt;"] {
            assert!(errors.contains(part), "{run}: {part}");
        }
        for part in parts {
            assert!(page.contains(part), "{run}: {part}");
        }
        assert_eq!(errors.contains("class=\"w for\""), run == "label");
    }
}

#[test]
fn several_runs_are_one_page() {
    let dir = TestDir::new("report-runs");
    dir.write("reviews.tsv", &reviews());
    dir.write("test.tsv", "it was fine\tgood\nit was dull\tbad\n");
    let train = |run: &'static str, more: &[&'static str]| {
        let all = ["train", "--train", "reviews.tsv", "--run", run];
        dir.stdout(&with(&[&all[..], more].concat(), &[]), "");
    };
    train("one", &["--test", "test.tsv", "--epochs", "2"]);
    train("two", &["--test", "test.tsv", "--epochs", "3"]);
    train("three", &["--epochs", "1"]);
    dir.stdout(&["report", "one", "two", "three", "--output", "all.html"], "");
    let page = fs::read_to_string(dir.0.join("all.html")).unwrap();
    for part in [
        "<h1 dir=\"auto\">3 runs</h1>",
        "held-out accuracy",
        "test accuracy",
        "<code>training.epochs</code>",
        "F1 of each class",
        "two: wrong texts by length in tokens",
        "1 run has no test.json",
        "class=\"line run2\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    // Metrics have their units; without a checkpoint the units are unknown.
    let held_out = |page: &str, run: usize| {
        let row = page.split("held-out accuracy</th>").nth(1).and_then(|row| row.split("</tr>").next());
        row.and_then(|row| row.split("<td>").nth(run)).unwrap_or_default().to_owned()
    };
    for run in 1..=3 {
        assert!(held_out(&page, run).contains(" %"), "{run}: {}", held_out(&page, run));
    }
    for name in ["best.ckpt", "last.ckpt"] {
        let path = dir.0.join("three").join(name);
        fs::rename(&path, path.with_extension("moved")).unwrap();
    }
    let output = dir.given(&["report", "three"], "");
    assert!(String::from_utf8_lossy(&output.stderr).contains("`three` has no readable checkpoint"));
    let without = String::from_utf8(output.stdout).unwrap();
    assert!(without.contains("held-out accuracy") && !held_out(&without, 1).contains('%'));
    for name in ["best", "last"] {
        let path = dir.0.join("three").join(name);
        fs::rename(path.with_extension("moved"), path.with_extension("ckpt")).unwrap();
    }
    assert!(!page.contains("<script") && !page.contains("http:") && !page.contains("https:"));
    // To standard output, as `graph` writes.
    assert_eq!(dir.stdout(&["report", "one", "two", "three"], "").trim_end(), page.trim_end());

    assert!(dir.refused(&["report", "one", "-o", "all.html"]).contains("new file"));
    assert!(dir.refused(&["report", "one", "none"]).contains("`none`: expected a run folder"));
    for (name, text, expected) in [
        ("metrics.jsonl", "{\"epoch\": 1}\n", "metrics.jsonl:1: expected the metrics of an epoch"),
        ("metrics.jsonl", "", ""),
        ("test.json", "{\"dataset\": 3}", "test.json: "),
        ("test.json", "{", "test.json:1: expected"),
    ] {
        let path = dir.0.join("three").join(name);
        let before = fs::read(&path).ok();
        fs::write(&path, text).unwrap();
        match text.is_empty() {
            // A run whose first epoch is not over has no curves yet.
            true => assert!(dir.stdout(&["report", "three"], "").contains("No epoch was trained.")),
            false => {
                dir.refuses(&["report", "one", "three"], &[expected]);
            }
        }
        match before {
            Some(before) => fs::write(&path, before).unwrap(),
            None => fs::remove_file(&path).unwrap(),
        }
    }
    // A line that is being written is no epoch yet.
    let path = dir.0.join("three/metrics.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    fs::write(&path, whole + "{\"epoch\": 2, \"st").unwrap();
    assert!(dir.stdout(&["report", "three"], "").contains("1 epoch,"));
}

/// A run that an interrupt ends has a report, which names the interrupt; a resumed run replaces this report.
#[cfg(unix)]
#[test]
fn an_interrupted_run_has_a_report() {
    let dir = TestDir::new("report-interrupted");
    dir.write("reviews.tsv", &reviews());
    dir.write("many.tsv", &reviews().repeat(500));
    let interrupted = |run: &str, file: &str, arguments: &[&str]| {
        let mut child = dir.command(&with(&["train"], arguments)).spawn().unwrap();
        while child.try_wait().unwrap().is_none() && !dir.0.join(run).join(file).exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // The file of metrics exists a moment before the training catches signals.
        std::thread::sleep(std::time::Duration::from_millis(300));
        super::signal(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130), "{}", String::from_utf8_lossy(&output.stderr));
        fs::read_to_string(dir.0.join(run).join("report.html")).unwrap()
    };
    let page =
        interrupted("first", "metrics.jsonl", &["--run", "first", "--train", "many.tsv", "--epochs", "9"]);
    assert!(page.contains("after 0 of 9 epochs; `unpadded train --resume first` continues"), "{page}");
    assert!(page.contains("No epoch was trained."), "{page}");
    let page = interrupted(
        "run",
        "held_out.json",
        &["--run", "run", "--train", "reviews.tsv", "--test", "many.tsv", "--epochs", "1"],
    );
    assert!(page.contains("while scoring `many.tsv`") && page.contains("held-out texts</h2>"), "{page}");
    dir.write("many.tsv", "it was fine\tgood\n");
    dir.stdout(&["train", "--resume", "run"], "");
    let page = fs::read_to_string(dir.0.join("run/report.html")).unwrap();
    assert!(page.contains("test set</h2>") && !page.contains("while scoring"), "{page}");
    // The scores of the model before these epochs go.
    fs::remove_file(dir.0.join("run/held_out.json")).unwrap();
    dir.write("many.tsv", &reviews().repeat(500));
    let page = interrupted("run", "held_out.json", &["--resume", "run", "--epochs", "2"]);
    assert!(page.contains("while scoring `many.tsv`") && !dir.0.join("run/test.json").exists(), "{page}");
}
