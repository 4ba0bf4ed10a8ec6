//! Standard output: with `--json` only JSON, with `-q` only the result, and otherwise tables and examples with headings.

use super::*;

/// Returns the standard output of a command.
fn output(dir: &TestDir, arguments: &[&str]) -> String {
    dir.stdout(arguments, "it was fine\n")
}

#[test]
fn json_stands_alone_and_quiet_leaves_the_result() {
    let dir = TestDir::new("console");
    dir.write("reviews.tsv", &reviews());
    dir.write("test.tsv", "it was fine\tgood\nit was dull\tbad\nit was\tmiddling\n");
    let train = with(&["train", "--train", "reviews.tsv", "--test", "test.tsv"], &["--epochs", "2", "--run"]);
    let run =
        |name: &'static str, flags: &[&'static str]| [train.clone(), vec![name], flags.to_vec()].concat();
    let lm = with(&["train", "--task", "lm", "--train", "test.tsv"], &["--epochs", "1", "--run", "lm", "-q"]);
    let lm = [lm, vec!["--set", "data.format=plain", "--set", "data.hold_out=0.5"]].concat();
    assert_eq!(output(&dir, &lm).lines().count(), 1);
    let bench = with(&["bench", "--train", "reviews.tsv"], &["--seconds", "0.2"]);
    let commands: [&[&str]; 11] = [
        &run("one", &[]),
        &run("two", &["-q"]),
        &["eval", "one", "test.tsv"],
        &["eval", "one", "two", "test.tsv"],
        &["predict", "one"],
        &["generate", "lm", "--length", "3"],
        &["inspect", "one"],
        &["data", "check", "reviews.tsv"],
        &["data", "stats", "reviews.tsv"],
        &["data", "vocab", "reviews.tsv"],
        &bench,
    ];
    for command in commands {
        let text = output(&dir, &[command, &["--json"]].concat());
        assert!(!text.is_empty(), "{command:?}");
        for line in text.lines() {
            assert!(serde_json::from_str::<Value>(line).is_ok(), "{command:?}: {line}");
        }
    }

    // Figures and no headings, examples or notes.
    let text = output(&dir, &run("three", &["-q"]));
    let first: Vec<&str> = text.lines().map(|line| line.split("  ").next().unwrap_or_default()).collect();
    assert!(first[0].starts_with("held-out accuracy: ") && first[1].starts_with("test accuracy: "), "{text}");
    assert_eq!(first[2..], ["loss", "accuracy", "macro F1", "weighted F1"], "{text}");
    let text = output(&dir, &["eval", "one", "three", "test.tsv", "-q"]);
    assert!(text.starts_with("loss ") && text.lines().last().unwrap().starts_with("three against one: p = "));
    assert_eq!(output(&dir, &["data", "check", "reviews.tsv", "-q"]), "the data is valid\n");

    let text = output(&dir, &run("four", &[]));
    assert!(text.contains("the first 3 held-out texts, each with its answer below it:\n  "), "{text}");
    assert!(text.contains("\nscore ") && text.contains("\nlabel "), "{text}");
    says(&text, &["\nloss: without texts that have a label or tag that training never saw\n"]);
    let text = output(&dir, &["inspect", "one"]);
    assert!(text.contains("\nparameter ") && text.contains("\nconfig (--config "), "{text}");
    assert!(output(&dir, &["data", "stats", "reviews.tsv"]).contains("\nlabel  training  held out\n"));
    assert!(output(&dir, &["data", "check", "reviews.tsv"]).contains("the first 3 records:\nrecord 1: "));
    assert!(output(&dir, &bench).contains("\noperator "));
}

#[test]
fn the_config_of_a_checkpoint_trains_again() {
    let dir = TestDir::new("config");
    dir.write("reviews.tsv", &reviews());
    dir.stdout(&with(&["train", "--train", "reviews.tsv"], &["--epochs", "1", "--run", "one", "-q"]), "");
    let config = dir.stdout(&["inspect", "one", "--config"], "");
    assert!(config.contains("epochs = 1\n") && config.contains("train = \"reviews.tsv\"\n"), "{config}");
    dir.write("again.toml", &config);
    dir.stdout(&["train", "again.toml", "--run", "two", "-q"], "");
    assert_eq!(
        fs::read(dir.0.join("one/best.ckpt")).unwrap(),
        fs::read(dir.0.join("two/best.ckpt")).unwrap()
    );
    dir.write("wrong.toml", "[model]\nhidden = 8\nlayers = \"two\"\n");
    dir.refuses(
        &["train", "wrong.toml"],
        &["wrong.toml:3: model.layers: expected a whole number from 0 on, got \"two\""],
    );
}
