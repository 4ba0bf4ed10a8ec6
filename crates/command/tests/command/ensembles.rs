//! Several runs that answer together.

use super::{SMALL, TestDir, reviews, says, with};

#[test]
fn probabilities_are_means_over_all_runs() {
    let dir = TestDir::new("ensemble");
    dir.write("reviews.tsv", &reviews());
    dir.write("test.tsv", "it was fine\tgood\nit was dull\tbad\nit was odd\tgood\n");
    let data = ["train", "--train", "reviews.tsv", "--dev", "reviews.tsv"];
    dir.stdout(&with(&data, &["--epochs", "1", "--seeds", "2", "--run", "seeds"]), "");
    let other = ["--epochs", "2", "--set", "model.cell=gru", "--set", "text.min_count=1", "--run", "gru"];
    dir.stdout(&with(&data, &other), "");
    let value_of = |runs: &[&str]| {
        let ask = [&["predict"][..], runs, &["--json"]].concat();
        dir.json(&ask, "it was dull\n")["probabilities"]["bad"].as_f64().unwrap()
    };
    let runs = ["seeds/seed-1", "seeds/seed-2", "gru"];
    let mean = runs.iter().map(|run| value_of(&[run])).sum::<f64>() / 3.0;
    let all = value_of(&["--ensemble", "seeds/seed-1", "seeds/seed-2", "gru"]);
    assert!((all - mean).abs() < 1e-6, "{all} {mean}");
    // A folder of seeds is all runs in it.
    assert_eq!(value_of(&["--ensemble", "seeds", "gru"]), all);
    let joined = |dir: &TestDir| {
        let output = dir.given(&["predict", "--ensemble", "seeds", "gru"], "it was dull\n");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = joined(&dir);
    assert!(text.contains("--ensemble seeds: joins 2 runs") && !text.contains("warning"), "{text}");
    std::fs::rename(dir.0.join("seeds/seed-2"), dir.0.join("kept")).unwrap();
    let text = joined(&dir);
    assert!(text.contains("joins 1 run\n") && text.contains("no checkpoint of seed-2"), "{text}");
    std::fs::rename(dir.0.join("kept"), dir.0.join("seeds/seed-2")).unwrap();
    let page = dir.stdout(&["report", "seeds", "gru"], "");
    assert!(["seeds/seed-1", "seeds/seed-2", "gru"].iter().all(|run| page.contains(run)), "{page}");
    let pairs = |i: usize| format!("it was\t{}\t{}\n", ["fine", "dull"][i % 2], ["good", "bad"][i % 2]);
    dir.write("pairs.tsv", &(0..60).map(pairs).collect::<String>());
    let columns = ["--set", "data.text=1", "--set", "data.pair=2", "--set", "data.label=3"];
    let pair = ["train", "--train", "pairs.tsv", "--dev", "pairs.tsv", "--epochs", "1", "--run", "pair"];
    dir.stdout(&with(&pair, &columns), "");
    let text = dir.refused(&["predict", "--ensemble", "gru", "pair"]);
    let expected = "expected models that read one text column, as the first model, got a model that reads pairs of texts";
    assert!(text.contains(expected) && text.contains("run `pair` cannot join"), "{text}");

    let answered = dir.stdout(&["predict", "--ensemble", "seeds", "gru", "test.tsv"], "");
    assert_eq!(answered.lines().count(), 3, "{answered}");
    assert_eq!(dir.stdout(&["predict", "--ensemble", "seeds", "gru"], "\n  \n"), "\n\n");
    let alone = dir.stdout(&["predict", "--ensemble", "seeds", "test.tsv", "-q"], "");
    assert_eq!(alone.lines().count(), 3, "{alone}");
    let scores = dir.json(&["eval", "--ensemble", "seeds", "gru", "test.tsv", "--json"], "");
    assert!(scores["interval"][1].as_f64().is_some() && scores["tables"]["label"].is_array(), "{scores}");
    assert!(scores["scores"]["loss"].as_f64() > Some(0.0), "{scores}");

    dir.write("other.tsv", &reviews().replace("\tgood", "\tfair"));
    dir.stdout(&with(&["train", "--train", "other.tsv"], &["--epochs", "1", "--run", "other"]), "");
    dir.stdout(
        &with(
            &["train", "--task", "lm", "--train", "reviews.tsv", "--set", "data.text=1"],
            &["--epochs", "1", "--run", "lm"],
        ),
        "",
    );
    let refused = |runs: &[&str]| dir.refused(&[&["predict", "--ensemble"], runs].concat());
    let text = refused(&["gru", "other"]);
    says(
        &text,
        &["labels of models to join: expected the 2 labels of the first model, got labels with `fair`"],
    );
    assert!(text.contains("run `other` cannot join"), "{text}");
    let text = refused(&["gru", "lm"]);
    says(&text, &["expected models of the task `classify`, as the first model, got a model of `lm`"]);
    let text = refused(&["lm", "lm"]);
    assert!(text.contains("models to join: expected classifiers of texts, or taggers"), "{text}");
    assert!(refused(&["gru"]).contains("expected several runs"), "{}", refused(&["gru"]));
    assert!(refused(&["gru", "nothing"]).contains("expected several runs"));
    dir.refuses(&["predict", "gru", "seeds/seed-1", "test.tsv"], &["--ensemble joins several runs"]);
    dir.refuses(&["predict", "gru", "test.tsv", "--json"], &["--json: expected lines of standard input"]);
    assert!(dir.refused(&["predict", "gru", "--output", "x"]).contains("--output: expected a file"));
}

#[test]
fn several_labels_and_numbers_have_means() {
    let dir = TestDir::new("ensemble-kinds");
    let texts = |label: fn(usize) -> String| -> String {
        (0..60).map(|i| format!("it was {} of {}\t{}\n", ["fine", "dull"][i % 2], i % 7, label(i))).collect()
    };
    dir.write("numbers.tsv", &texts(|i| format!("{}.5", i % 2)));
    dir.write("labels.tsv", &texts(|i| ["a,b", "b"][i % 2].to_owned()));
    for (target, file) in [("number", "numbers.tsv"), ("labels", "labels.tsv")] {
        let target_is = format!("data.target={target}");
        let train = ["train", "--train", file, "--dev", file, "--set", &target_is, "--seeds", "2"];
        dir.stdout(&with(&train, &["--epochs", "2", "--run", target]), "");
        let runs = [1, 2].map(|seed| format!("{target}/seed-{seed}"));
        let value_of = |arguments: &[&str]| {
            let answer = dir.json(&[&["predict"], arguments, &["--json"]].concat(), "it was fine of 3\n");
            answer["number"].as_f64().or(answer["probabilities"]["a"].as_f64()).unwrap()
        };
        let mean = (value_of(&[&runs[0]]) + value_of(&[&runs[1]])) / 2.0;
        assert!((value_of(&["--ensemble", target]) - mean).abs() < 1e-5, "{target}");
        dir.stdout(&["eval", "--ensemble", target, file], "");
    }
    dir.refuses(&["predict", "--ensemble", "number", "labels"], &["got a classifier with another target"]);
}

#[test]
fn taggers_vote() {
    let dir = TestDir::new("ensemble-tags");
    let names = ["Rome", "Bonn", "Oslo", "Lima"];
    let text: String = (0..48)
        .map(|i| {
            format!("{} B-place travel\nin O travel\n{} O travel\n\n", names[i % 4], ["May", "June"][i % 2])
        })
        .collect();
    dir.write("train.conll", &text);
    let train = ["train", "--task", "tag", "--train", "train.conll", "--dev", "train.conll"];
    let columns = ["--set", "data.text=1", "--set", "data.label=2"];
    let train = [&train[..], &columns].concat();
    dir.stdout(&with(&train, &["--epochs", "6", "--seeds", "3", "--run", "tags"]), "");
    let answers = dir.json(&["predict", "--ensemble", "tags", "--json"], "Bonn in May\n");
    assert_eq!(answers["tags"].as_array().unwrap().len(), 3, "{answers}");
    let value_of = |runs: &[&str]| {
        let eval = [&["eval"], runs, &["train.conll", "--json"]].concat();
        dir.json(&eval, "")["value"].as_f64().unwrap()
    };
    let alone = ["tags/seed-1", "tags/seed-2", "tags/seed-3"].map(|run| value_of(&[run]));
    let all = value_of(&["--ensemble", "tags"]);
    let least = alone.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(all >= least && all > 50.0, "{all} {alone:?}");

    let other = [&["train", "--task", "tag", "--train", "other.conll"][..], &columns, &SMALL].concat();
    dir.write("other.conll", &text.replace("B-place", "B-town"));
    dir.stdout(&[&other[..], &["--epochs", "1", "--run", "other", "--dev", "other.conll"]].concat(), "");
    dir.refuses(
        &["eval", "--ensemble", "tags", "other", "train.conll"],
        &["tags of models to join: expected the 2 tags of the first model, got tags with `B-town`"],
    );
}
