//! Kinds of classifiers: several labels, numbers, pairs, several columns, documents; weights of classes; and every setting.

use unpadded::optimizer::OptimizerKind;

use super::{SMALL, TestDir, says, split, with};

/// The held-out value of a training in a folder of this name.
fn trained(dir: &TestDir, run: &str, arguments: &[&str]) -> f64 {
    let first = with(&["train", "--run", run, "--json"], arguments);
    dir.json(&first, "")["value"].as_f64().unwrap()
}

#[test]
fn several_labels_per_text_are_learnt_with_a_threshold_each() {
    let dir = TestDir::new("labels");
    let line = |i: usize| {
        let (a, b) = (i.is_multiple_of(2), i.is_multiple_of(3));
        let words = format!("{}{}text", if a { "rude " } else { "" }, if b { "wrong " } else { "" });
        let labels: Vec<&str> =
            [(a, "insult"), (b, "false")].into_iter().filter(|(is, _)| *is).map(|(_, l)| l).collect();
        (words, labels)
    };
    let csv: String = (0..150)
        .map(|i| {
            let (words, labels) = line(i);
            format!("{words} {}\t{}\n", "and so on ".repeat(i % 4), labels.join(","))
        })
        .collect();
    dir.write("texts.tsv", &format!("text\tlabel\n{csv}"));
    // Without the setting, cells that hold several labels are hinted at.
    let with_labels = csv.lines().filter(|line| !line.ends_with('\t'));
    dir.write("some.tsv", &format!("text\tlabel\n{}\n", with_labels.collect::<Vec<_>>().join("\n")));
    let check = dir.given(&["data", "check", "some.tsv"], "");
    let text = String::from_utf8(check.stdout).unwrap() + &String::from_utf8(check.stderr).unwrap();
    assert!(text.contains("data.target=labels"), "{text}");
    let stats = dir.stdout(&["data", "stats", "texts.tsv", "--set", "data.target=labels"], "");
    assert!(stats.contains("labels of 150 texts, of which "), "{stats}");
    let options = split(
        "--train texts.tsv --dev texts.tsv --set data.target=labels --epochs 20 --set model.dropout=0.2",
    );
    assert_eq!(trained(&dir, "run", &options), 100.0);
    let text = dir.stdout(&["predict", "run"], "a rude and wrong text\ntext and so on\n");
    let answers: Vec<&str> = text.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(answers, ["false,insult", ""]);
    assert!(dir.stdout(&["predict", "run"], " \n\na\n").starts_with("\n\n"));
    let scores = dir.json(&["eval", "run", "texts.tsv", "--json"], "");
    assert_eq!((&scores["metric"], scores["value"].as_f64()), (&"micro F1".into(), Some(100.0)), "{scores}");
    // Another separator applies to the file and to the answers.
    dir.write("other.tsv", "text\tlabel\na rude and wrong text\tfalse; insult\n");
    let semicolon = ["--set", "data.label_separator=;"];
    let scores = dir.json(&[&["eval", "run", "other.tsv", "--json"], &semicolon[..]].concat(), "");
    assert_eq!(scores["value"].as_f64(), Some(100.0), "{scores}");
    let text = dir.stdout(&[&["predict", "run"], &semicolon[..]].concat(), "a rude and wrong text\n");
    assert!(text.starts_with("false;insult\t0."), "{text}");
    // The settings of a trained model cannot be changed.
    for setting in ["data.target=number", "model.hidden=3"] {
        for arguments in [&["eval", "run", "other.tsv"][..], &["predict", "run"]] {
            dir.refuses(&[arguments, &["--set", setting]].concat(), &["which a trained model keeps"]);
        }
    }
    // Lists in JSON Lines, with a label that training never saw.
    dir.write("new.jsonl", "{\"text\": \"a rude text\", \"label\": [\"insult\", \"new, one\"]}\n");
    let text = dir.stdout(&["eval", "run", "new.jsonl"], "");
    assert!(text.contains("exact match") && text.contains("0.00 %"), "{text}");
    dir.write("ask.csv", "text\na rude and wrong text\n");
    let text = dir.stdout(&["predict", "run", "ask.csv", "--quiet"], "");
    assert!(text.starts_with("text,labels,probabilities\n"), "{text}");
    says(&text, &[",\"false,insult\",\"0."]);
}

/// `eval` and `predict` read labels as they were detected in the training: between bars, or in columns of 0 and 1.
#[test]
fn labels_of_any_notation_are_read_alike() {
    let dir = TestDir::new("notations");
    let lines = |notation: &dyn Fn(bool, bool) -> String| -> String {
        let line = |i: usize| {
            format!("so {} {},{}\n", i % 7, i % 5, notation(i.is_multiple_of(2), !i.is_multiple_of(3)))
        };
        (0..60).map(line).collect()
    };
    let bars = |a: bool, b: bool| {
        ["", "left", "right", "left|right"][usize::from(a) + 2 * usize::from(b)].to_owned()
    };
    let flags = |a: bool, b: bool| format!("{},{}", u8::from(a), u8::from(b));
    dir.write("bars.csv", &format!("text,label\n{}", lines(&bars)));
    dir.write("bars-test.csv", "text,label\nso 1 1,left|right\n");
    dir.write("flags.csv", &format!("text,left,right\n{}", lines(&flags)));
    dir.write("flags-test.csv", "right,text,left\n1,so 1 1,0\n");
    let refused = dir.refused(&["data", "check", "flags.csv"]);
    says(&refused, &["`left`, `right` have only 0 and 1", "`data.label = [\"left\", \"right\"]`"]);
    for (name, set, joined) in [
        ("bars", "data.label_separator=|", "left|right"),
        ("flags", "data.label=[\"left\", \"right\"]", "left,right"),
    ] {
        let train = format!("{name}.csv");
        let notation = with(&["--train", &train, "--set", "data.target=labels", "--epochs", "1"], &SMALL);
        // The columns of the labels are set; the separator is detected.
        let notation = if name == "flags" { with(&notation, &["--set", set]) } else { notation };
        trained(&dir, name, &notation);
        let text = dir.stdout(&["eval", name, &format!("{name}-test.csv")], "");
        assert!(text.contains("right") && !text.contains("never saw"), "{text}");
        let text = dir.stdout(&["predict", name, "--set", "decoding.threshold=0.001"], "so 1 1\n");
        assert!(text.starts_with(joined), "{text}");
    }
    let error = "data.label: expected one column, or `data.target` = `labels`, got 2 columns";
    dir.refuses(&["train", "--train", "flags.csv", "--set", "data.label=[\"left\", \"right\"]"], &[error]);
}

#[test]
fn numbers_are_learnt_and_measured_by_their_errors() {
    let dir = TestDir::new("numbers");
    let line = |i: usize| {
        let (very, number) = ("very ".repeat(i % 5), 100.0 + 10.0 * (i % 5) as f64 + i as f64 / 1e3);
        format!("\"it is {very}so, {}\",{number}\n", "and ".repeat(i / 5))
    };
    dir.write("texts.csv", &format!("text,score\n{}", (0..200).map(line).collect::<String>()));
    let columns = ["--train", "texts.csv", "--set", "data.label=score"];
    let text = dir.refused(&[&["train"][..], &columns].concat());
    says(&text, &["200 different numbers in 200 texts", "data.target=number"]);
    let arguments =
        [&columns[..], &["--set", "data.target=number", "--epochs", "25", "--set", "model.dropout=0.1"]]
            .concat();
    let error = trained(&dir, "run", &arguments);
    assert!(error < 20.0, "{error}");
    let text = dir.stdout(&["predict", "run"], "it is so,\nit is very very very very so,\n");
    let found: Vec<f64> = text.lines().map(|line| line.trim().parse().unwrap()).collect();
    assert!((found[0] - 100.0).abs() < 12.0 && (found[1] - 140.0).abs() < 12.0, "{found:?}");
    assert_eq!(dir.stdout(&["predict", "run"], "\n"), "\n");
    let text = dir.stdout(&["eval", "run", "texts.csv"], "");
    for figure in ["mean squared error", "mean absolute error", "Spearman correlation", "Pearson correlation"]
    {
        assert!(text.contains(figure), "{text}");
    }
    dir.write("wrong.csv", "text,score\nit is,100\nit is very,many\n");
    let text = dir.refused(&["eval", "run", "wrong.csv"]);
    assert!(text.contains("wrong.csv:3: number of a text: expected a number, as 2.5, got `many`"), "{text}");
}

#[test]
fn pairs_and_several_columns_are_read_by_one_encoder() {
    let dir = TestDir::new("pairs");
    let animals = ["cat", "dog", "cow"];
    let line = |i: usize| {
        let (a, b) = (animals[i % 3], animals[(i / 3) % 3]);
        let label = if a == b { "same" } else { "other" };
        format!("{a},\"a {b}{}\",{label}\n", " or so".repeat(i % 4))
    };
    dir.write("pairs.csv", &format!("one,two,label\n{}", (0..300).map(line).collect::<String>()));
    let pair = ["--train", "pairs.csv", "--set", "data.text=one", "--set", "data.pair=two", "--epochs", "25"];
    assert_eq!(trained(&dir, "pair", &[&pair[..], &["--set", "model.dropout=0.1"]].concat()), 100.0);
    let text = dir.stdout(&["predict", "pair"], "cat\ta cat\ncow\ta dog\n");
    let answers: Vec<&str> = text.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(answers, ["same", "other"]);
    let text = dir.refused(&["train", "--train", "pairs.csv", "--set", "data.pair=two"]);
    assert!(text.contains("data.text: expected the column of the first text, beside `data.pair`"), "{text}");
    // A pair that lacks one of its texts has no answer, and is no mistake.
    assert_eq!(dir.stdout(&["predict", "pair"], "cat\t \n\ta cat\n\n"), "\n\n\n");
    // A line with another number of texts is named, and gets an empty answer.
    let output = dir.given(&["predict", "pair"], "cat\n");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && error.contains("expected 2, separated by tabs"), "{error}");
    dir.write("ask.csv", "id,two,one\n7,a cow,cow\n8,,cow\n");
    let text = dir.stdout(&["predict", "pair", "ask.csv", "--quiet"], "");
    assert!(text.starts_with("id,two,one,label,probability\n7,a cow,cow,same,0."), "{text}");
    assert!(text.ends_with("\n8,,cow,,\n"), "{text}");
    let joined = [
        "--train",
        "pairs.csv",
        "--set",
        "data.text=[\"one\", \"two\"]",
        "--epochs",
        "25",
        "--set",
        "model.dropout=0.1",
    ];
    assert!(trained(&dir, "joined", &joined) > 60.0);
    says(&dir.stdout(&["predict", "joined", "ask.csv", "-q"], ""), &[",probability\n7,a cow,cow,"]);
}

#[test]
fn documents_are_read_sentence_by_sentence() {
    let dir = TestDir::new("documents");
    let line = |i: usize| {
        let (word, label) = if i.is_multiple_of(2) { ("fine", "good") } else { ("dull", "bad") };
        format!("It has {} lines. It was {word}. {}\t{label}\n", i % 7, "So it is! ".repeat(i % 5))
    };
    dir.write("texts.tsv", &(0..120).map(line).collect::<String>());
    let arguments =
        split("--train texts.tsv --set model.documents=punctuation --epochs 12 --set model.dropout=0.2");
    assert_eq!(trained(&dir, "run", &arguments), 100.0);
    let text = dir.stdout(&["predict", "run"], "So. It was dull. So it is!\n\n");
    assert!(text.starts_with("bad\t"), "{text}");
}

#[test]
fn rare_classes_are_weighed() {
    let dir = TestDir::new("weights");
    let line = |i: usize| {
        let label = if i.is_multiple_of(10) { "rare" } else { "common" };
        format!(
            "{} text\t{label}\n",
            if i.is_multiple_of(10) || i.is_multiple_of(7) { "odd" } else { "usual" }
        )
    };
    dir.write("texts.tsv", &(0..300).map(line).collect::<String>());
    // Equal texts are never on both sides of a hold-out, so development data are a file.
    let rare = |run: &str, settings: &[&str]| {
        let files = ["--train", "texts.tsv", "--dev", "texts.tsv", "--epochs", "8"];
        trained(&dir, run, &[&files[..], settings].concat());
        dir.stdout(&["predict", run], "odd text\n").starts_with("rare")
    };
    assert!(rare("heavy", &["--set", "training.class_weights=rare=20"]));
    assert!(!rare("light", &["--set", "training.class_weights=rare=0.05"]));
    assert!(rare("balanced", &["--set", "training.class_weights=balanced"]));
    rare("focal", &["--set", "training.focal=2"]);
    let text =
        dir.refused(&split("train --train texts.tsv --dev texts.tsv --set training.class_weights=rear=2"));
    says(&text, &["training.class_weights: expected a label, perhaps `rare`, got `rear=2`"]);
}

#[test]
fn phrases_of_trees_are_trained_on_and_never_measured_on() {
    let dir = TestDir::new("phrases");
    let line = |i: usize| {
        let (word, label) = [("fine", 4), ("dull", 0)][i % 2];
        format!("({label} (2 it{i}) ({label} (2 is) ({label} {word})))\n")
    };
    dir.write("trees.txt", &(0..40).map(line).collect::<String>());
    let arguments = ["train", "--train", "trees.txt", "--dev", "trees.txt", "--epochs", "1"];
    let text = |phrases: &str, run: &str| {
        let setting = format!("data.phrases={phrases}");
        let output = dir.given(&with(&arguments, &["--set", &setting, "--run", run]), "");
        String::from_utf8(output.stderr).unwrap()
    };
    // Of each tree five phrases: the sentence, `it…`, `is fine`, `is` and the word.
    let (sentences, phrases) = (text("false", "sentences"), text("true", "phrases"));
    assert!(sentences.contains("40 texts of 2 labels") && sentences.contains("40 held out"), "{sentences}");
    assert!(phrases.contains("200 texts of 3 labels") && phrases.contains("40 held out"), "{phrases}");
    let text = dir.refused(&["train", "--train", "trees.txt", "--set", "data.phrases=true"]);
    assert!(text.contains("data.phrases: expected false without `data.dev`"), "{text}");
}

#[test]
fn frozen_vectors_stay_and_others_move() {
    let dir = TestDir::new("frozen");
    dir.write("reviews.tsv", &super::reviews());
    dir.write("vectors.txt", "was 0 1 2 3 4 5 6 7\nfine 7 6 5 4 3 2 1 0\n");
    let row = |run: &str| {
        let found = unpadded::checkpoint::Checkpoint::load(dir.0.join(run).join("best.ckpt")).unwrap();
        let id = found.vocabularies["words"].id("fine").unwrap() as usize;
        let table = found.tensors["words.weight"].as_dense().unwrap();
        table.as_slice::<f32>().unwrap()[8 * id..8 * id + 8].to_vec()
    };
    let arguments = ["--train", "reviews.tsv", "--epochs", "2", "--set", "text.vectors=vectors.txt"];
    for optimizer in ["adam", "adamw", "sgd"] {
        let rule = format!("training.optimizer={optimizer}");
        let run = |freeze: &'static str, run: &str| {
            let set = ["--set", &rule, "--set", freeze, "--set", "training.weight_decay=0.01"];
            trained(&dir, run, &[&arguments[..], &SMALL, &set].concat());
            row(run)
        };
        let given = [7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0];
        assert_eq!(run("text.freeze=true", &format!("frozen-{optimizer}")), given, "{optimizer}");
        assert_ne!(run("text.freeze=false", &format!("moved-{optimizer}")), given, "{optimizer}");
    }
}

#[test]
fn every_optimizer_schedule_and_average_trains_and_is_resumed() {
    let dir = TestDir::new("settings-all");
    dir.write("texts.tsv", &super::reviews());
    // FTRL, for linear models, is in no config.
    let optimizers = OptimizerKind::ALL.iter().filter(|one| **one != OptimizerKind::Ftrl);
    let schedules = ["cosine", "linear", "inverse-sqrt", "one-cycle", "halve", "plateau"];
    let mut runs: Vec<Vec<String>> = Vec::new();
    let one = |setting: &str, value: &str| vec![format!("{setting}={value}")];
    runs.extend(optimizers.map(|kind| one("training.optimizer", kind.name())));
    runs.extend(schedules.map(|name| one("training.schedule", name)));
    runs.extend(["ema", "mean"].map(|name| one("training.averaging", name)));
    let several = |all: &[&str]| all.iter().map(|setting| (*setting).to_owned()).collect::<Vec<_>>();
    runs.push(several(&[
        "training.optimizer=sgd",
        "training.momentum=0.9",
        "training.warm_up=5",
        "training.weight_decay=0.01",
    ]));
    runs.push(several(&[
        "model.embedding_dropout=0.3",
        "model.recurrent_dropout=0.3",
        "model.word_dropout=0.2",
        "model.characters=true",
    ]));
    runs.push(several(&["training.label_smoothing=0.1", "training.class_weights=balanced"]));
    for (number, settings) in runs.iter().enumerate() {
        let run = format!("run-{number}");
        let mut first = vec!["train", "--quiet", "--run", &run, "--train", "texts.tsv", "--epochs", "1"];
        first.extend(settings.iter().flat_map(|setting| ["--set", setting.as_str()]));
        first.extend(SMALL);
        assert_eq!(dir.given(&first, "").status.code(), Some(0), "{settings:?}");
        // A schedule over all epochs would have had other rates in the first epoch.
        let over_all = ["cosine", "linear", "one-cycle"].map(|name| format!("training.schedule={name}"));
        let resume = ["train", "--quiet", "--resume", &run];
        if over_all.contains(&settings[0]) {
            let log = dir.0.join(&run).join("metrics.jsonl");
            let before = std::fs::read(&log).unwrap();
            let text = dir.refused(&[&resume[..], &["--epochs", "2"]].concat());
            for part in [
                "learning-rate schedule: expected the schedule of the model being built for the ",
                "the rate would change from ",
                "`training.epochs` was 1, and is 2",
                &format!("`unpadded train {run}/config.toml --set training.epochs=2 --run NEW` trains anew"),
                &format!("`unpadded train --from {run} --run NEW` starts"),
            ] {
                assert!(text.contains(part), "{text}");
            }
            assert!(std::fs::read(&log).unwrap() == before, "{settings:?}");
            let text = dir.given(&["train", "--resume", &run], "").stderr;
            let text = String::from_utf8(text).unwrap();
            assert!(text.contains("the training is complete"), "{text}");
        } else {
            dir.stdout(&[&resume[..], &["--epochs", "2"]].concat(), "");
        }
        assert!(dir.stdout(&["predict", &run], "it was fine\n").contains('\t'), "{settings:?}");
    }
}

#[test]
fn a_tagger_does_without_characters_and_without_a_random_field() {
    let dir = TestDir::new("plain-tagger");
    let line = |i: usize| format!("a\tO\n{}\tB-CITY\nb\tO\n\n", ["Paris", "Rome", "Oslo"][i % 3]);
    dir.write("train.conll", &(0..120).map(|i| "x\tO\n".repeat(i % 11) + &line(i)).collect::<String>());
    let arguments = split(
        "--task tag --train train.conll --dev train.conll --epochs 25 \
         --set model.word_dropout=0 --set model.crf=false --set model.characters=false",
    );
    assert_eq!(trained(&dir, "run", &arguments), 100.0);
    assert_eq!(dir.stdout(&["predict", "run"], "x x a Rome b\n").trim(), "x/O x/O a/O Rome/B-CITY b/O");
    let text = dir.stdout(&["eval", "run", "train.conll"], "");
    assert!(text.contains("chunk F1"), "{text}");
}

#[test]
fn a_language_model_ties_its_weights() {
    let dir = TestDir::new("tied");
    dir.write("text.txt", &"to be or not to be\n".repeat(80));
    for width in ["8", "12"] {
        let width = format!("model.embedding={width}");
        let run = format!("run-{width}");
        let first =
            ["train", "--quiet", "--task", "lm", "--train", "text.txt", "--run", &run, "--epochs", "1"];
        let settings = [
            "--set",
            "model.hidden=8",
            "--set",
            &width,
            "--set",
            "model.tied=true",
            "--set",
            "training.label_smoothing=0.1",
        ];
        dir.stdout(&[&first[..], &settings].concat(), "");
        assert!(!dir.stdout(&["generate", &run, "--length", "5"], "to\n").is_empty());
    }
}
