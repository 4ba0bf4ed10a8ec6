//! Trainings that start from a trained model: `train --from`.

use super::*;
use unpadded::checkpoint::Checkpoint;
use unpadded::tensor::Storage;

fn checkpoint(dir: &TestDir, run: &str, name: &str) -> Checkpoint {
    Checkpoint::load(dir.0.join(run).join(name)).unwrap()
}

/// A row of a table.
fn row(checkpoint: &Checkpoint, parameter: &str, at: i64) -> Vec<f32> {
    let value: &Storage = &checkpoint.tensors[parameter];
    let width: usize = value.shape().iter().skip(1).product();
    let from = at as usize * width;
    value.as_dense().unwrap().as_slice::<f32>().unwrap()[from..from + width].to_vec()
}

/// Returns the lines that a training prints.
fn lines(dir: &TestDir, arguments: &[&str]) -> String {
    let output = dir.given(arguments, "");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    error
}

/// Requests with other words and another label than `reviews`.
fn others() -> String {
    let line = |i: usize| {
        let (word, label) = [("fine", "good"), ("tepid", "middling"), ("superb", "good")][i % 3];
        format!("{}it was {word} indeed\t{label}\n", "and then ".repeat(i % 5))
    };
    (0..120).map(line).collect()
}

#[test]
fn new_words_and_labels_are_added_to_what_was_learnt() {
    let dir = TestDir::new("from-new");
    dir.write("reviews.tsv", &reviews());
    dir.write("others.tsv", &others());
    dir.stdout(
        &with(&["train", "--train", "reviews.tsv"], &["--epochs", "4", "--run", "old", "--quiet"]),
        "",
    );
    // Nothing moves at so small a rate: parameters show where they come from.
    let arguments =
        split("train --from old --train others.tsv --run new --epochs 1 --set training.rate=1e-12");
    let text = lines(&dir, &arguments);
    says(&text, &["from old: ", "1 of 2 labels", "layers lstm_0"]);
    let (old, new) = (checkpoint(&dir, "old", "best.ckpt"), checkpoint(&dir, "new", "best.ckpt"));
    let (known, words) = (&old.vocabularies["words"], &new.vocabularies["words"]);
    assert!(known.tokens().eq(words.tokens().take(known.len())) && words.len() == known.len() + 3);
    assert!(words.count(words.id("was").unwrap()) > known.count(known.id("was").unwrap()));
    assert!(new.vocabularies["labels"].tokens().eq(["good", "middling"]));
    let close =
        |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5) && a.len() == b.len();
    for word in ["was", "fine", "dull"] {
        let id = known.id(word).unwrap();
        assert!(close(&row(&old, "words.weight", id), &row(&new, "words.weight", id)), "{word}");
    }
    let bias = |model: &Checkpoint, label: &str| {
        let id = model.vocabularies["labels"].id(label).unwrap();
        row(model, "labels.bias", id)
    };
    assert!(close(&bias(&old, "good"), &bias(&new, "good")) && bias(&old, "good") != [0.0]);
    assert!(close(&bias(&new, "middling"), &[0.0]));
    // The settings are taken from the old run; parts and columns are not.
    let config = fs::read_to_string(dir.0.join("new/config.toml")).unwrap();
    assert!(config.contains("hidden = 8") && config.contains("from = \"old\""), "{config}");
    // The transferred parameters help at once.
    let value = |arguments: &[&str]| dir.json(arguments, "")["value"].as_f64().unwrap();
    let again =
        ["train", "--train", "reviews.tsv", "--epochs", "1", "--set", "training.rate=1e-12", "--json"];
    assert_eq!(value(&[&again[..], &["--from", "old"]].concat()), 100.0);
    assert!(value(&with(&again, &["--seed", "2"])) < 100.0);
}

#[test]
fn a_resumed_training_does_not_need_the_model_that_it_started_from() {
    let dir = TestDir::new("from-resumed");
    dir.write("reviews.tsv", &reviews());
    dir.write("others.tsv", &others());
    dir.stdout(
        &with(&["train", "--train", "reviews.tsv"], &["--epochs", "2", "--run", "old", "--quiet"]),
        "",
    );
    let levels = ["--set", "training.unfreeze=1", "--set", "training.lower_rates=0.5", "--quiet"];
    let from = [&["train", "--from", "old", "--train", "others.tsv"], &levels[..]].concat();
    dir.stdout(&[&from[..], &["--run", "whole", "--epochs", "4"]].concat(), "");
    dir.stdout(&[&from[..], &["--run", "parts", "--epochs", "2"]].concat(), "");
    fs::remove_dir_all(dir.0.join("old")).unwrap();
    dir.stdout(&["train", "--resume", "parts", "--epochs", "4", "--quiet"], "");
    let bytes = |run: &str| fs::read(dir.0.join(run).join("best.ckpt")).unwrap();
    let [whole, parts] = ["whole", "parts"].map(|run| checkpoint(&dir, run, "last.ckpt"));
    assert!(whole.tensors == parts.tensors && whole.vocabularies == parts.vocabularies);
    assert!(bytes("whole").len() == bytes("parts").len());
    let answer = dir.stdout(&["predict", "parts"], "it was superb\n");
    assert!(answer.starts_with("good"), "{answer}");
    // The rates of levels follow from the config, which a resumed training has to keep.
    let update = |model: &Checkpoint, parameter: &str| {
        let id = model.program.find(parameter).unwrap();
        let op =
            model.program.root().ops.iter().find(|op| op.kind == "adam" && op.writes().any(|var| var == id));
        let attributes = op.unwrap().attributes.clone();
        (attributes.float("rate_factor").unwrap_or(1.0), attributes.size("held").unwrap_or(0))
    };
    let steps = update(&whole, "lstm_0.weight_hh").1;
    assert!(steps > 0);
    assert_eq!(update(&whole, "labels.weight"), (1.0, 0));
    assert_eq!(update(&whole, "lstm_0.weight_hh"), (0.5, steps));
    assert_eq!(update(&whole, "words.weight"), (0.25, 2 * steps));
}

fn prose() -> String {
    let line =
        |i: usize| format!("{}it was {} .\n", "and then ".repeat(i % 5), ["fine", "dull", "1984"][i % 3]);
    (0..400).map(line).collect()
}

fn sentences() -> String {
    let sentence = |i: usize| {
        let (word, tag) = [("Paris", "B-place"), ("fine", "O"), ("2001", "B-year")][i % 3];
        format!("{}it O\nwas O\n{word} {tag}\nn{i} O\n. O\n\n", "then O\n".repeat(i % 3))
    };
    (0..90).map(sentence).collect()
}

#[test]
fn a_language_model_starts_a_classifier_and_a_tagger() {
    let dir = TestDir::new("from-lm");
    dir.write("prose.txt", &prose());
    dir.write("reviews.tsv", &reviews());
    dir.write("others.tsv", &others());
    dir.write("tags.conll", &sentences());
    let lm = split("train --task lm --train prose.txt --set text.tokens=words --run lm --quiet");
    let small = split("--epochs 1 --set model.layers=2 --set model.hidden=12 --set model.embedding=8");
    dir.stdout(&[&lm[..], &small].concat(), "");
    let own = ["--set", "model.hidden=8", "--set", "training.rate=0.03"];
    let from = |task: &'static str, train: &'static str, run: &'static str| {
        [&["train", "--task", task, "--from", "lm", "--train", train, "--run", run], &own[..]].concat()
    };
    // Case and digits count in the language model; a classifier reads as it does, a tagger by its forms.
    let text = lines(&dir, &[&from("classify", "reviews.tsv", "classes")[..], &["--epochs", "15"]].concat());
    assert!(text.contains("layers lm_0, lm_1; new: labels, lstm_0"), "{text}");
    let (lm, classes) = (checkpoint(&dir, "lm", "best.ckpt"), checkpoint(&dir, "classes", "best.ckpt"));
    let (tokens, words) = (&lm.vocabularies["tokens"], &classes.vocabularies["words"]);
    assert!(tokens.tokens().eq(words.tokens().take(tokens.len())));
    assert!(classes.tensors.contains_key("lm_1.weight_hh"));
    assert!(dir.stdout(&["predict", "classes"], "it was dull\n").starts_with("bad"));

    lines(&dir, &[&from("tag", "tags.conll", "tags")[..], &["--epochs", "1"]].concat());
    let tags = checkpoint(&dir, "tags", "best.ckpt");
    let words = &tags.vocabularies["words"];
    assert!(words.id("0000").is_some() && words.id("1984").is_none() && words.id("paris").is_some());
    assert!(dir.stdout(&["predict", "tags"], "it was Paris\n").contains("Paris/"));

    // The projection of tied weights has the name and the shape of the attention's first layer.
    let tied = ["--set", "model.tied=true", "--set", "model.embedding=64", "--set", "model.hidden=8"];
    let prose = ["train", "--task", "lm", "--train", "prose.txt", "--set", "text.tokens=words", "--run"];
    dir.stdout(&[&prose[..], &["tied", "--quiet", "--epochs", "1"], &tied].concat(), "");
    let classify =
        ["train", "--from", "tied", "--task", "classify", "--train", "reviews.tsv", "--epochs", "1"];
    let attends = ["--set", "model.pool=attention", "--set", "model.hidden=4"];
    let text = lines(&dir, &[&classify[..], &attends].concat());
    assert!(text.contains("layers lm_0; new: ") && text.contains("linear_0"), "{text}");

    // A further training keeps the layers of the language model, without it.
    fs::remove_dir_all(dir.0.join("lm")).unwrap();
    let text = lines(
        &dir,
        &["train", "--from", "classes", "--train", "others.tsv", "--run", "more", "--epochs", "1"],
    );
    assert!(text.contains("layers lm_0, lm_1, lstm_0"), "{text}");
    dir.stdout(&["train", "--resume", "more", "--epochs", "2", "--quiet"], "");
}

#[test]
fn what_no_training_starts_from_is_refused() {
    let dir = TestDir::new("from-refused");
    dir.write("reviews.tsv", &reviews());
    dir.write("prose.txt", &prose());
    dir.write("tags.conll", &sentences());
    let train = ["train", "--train", "reviews.tsv"];
    dir.stdout(&with(&train, &["--epochs", "1", "--run", "classes", "--quiet"]), "");
    let refused = |arguments: &[&str], expected: &[&str]| {
        let text = dir.refused(&[&train[..], arguments].concat());
        expected.iter().for_each(|expected| assert!(text.contains(expected), "{text}"));
    };
    refused(
        &["--from", "none"],
        &["training.from: expected a run folder or a checkpoint, got nothing at `none`"],
    );
    fs::create_dir(dir.0.join("empty")).unwrap();
    refused(&["--from", "empty"], &["best.ckpt or last.ckpt, got neither in `empty`"]);
    fs::create_dir_all(dir.0.join("several/seed-1")).unwrap();
    dir.write("several/seed-1/best.ckpt", "");
    refused(
        &["--from", "several"],
        &["a folder of several runs, `several`; name one of the runs, as `several/seed-1`"],
    );
    refused(&["--from", "reviews.tsv"], &["reviews.tsv"]);
    let words = checkpoint(&dir, "classes", "best.ckpt").vocabularies["words"].len();
    let expected = format!(
        "text.max_size: expected at least {words}, the size of the vocabulary `words` of `classes`, got 3"
    );
    refused(&["--from", "classes", "--set", "text.max_size=3"], &[&expected]);
    refused(
        &["--from", "classes", "--set", "text.tokens=characters"],
        &[
            "expected `words, lowercase`, as `classes`",
            "`text.tokens`, `text.lowercase` and `text.tokenizer`",
        ],
    );
    let tag = ["train", "--task", "tag", "--train", "tags.conll"];
    let text = dir.refused(&[&tag[..], &["--from", "classes"]].concat());
    let expected = "training.from: expected a run of `tag` or of `lm`, got `classes`, a run of `classify`";
    assert!(text.contains(expected), "{text}");
    let text = dir.refused(&["train", "--task", "translate", "--train", "reviews.tsv", "--from", "classes"]);
    assert!(text.contains("expected a run of `translate`, got `classes`, a run of `classify`"), "{text}");
    // A language model by characters is none for words that are given.
    let lm = ["train", "--task", "lm", "--train", "prose.txt", "--epochs", "1", "--run", "lm", "--quiet"];
    dir.stdout(&with(&lm, &[]), "");
    let text = dir.refused(&[&tag[..], &["--from", "lm"]].concat());
    assert!(text.contains("expected a language model of `words` or `whitespace`"), "{text}");
    refused(
        &["--task", "classify", "--from", "lm", "--set", "model.embedding=9"],
        &["model.embedding: expected 8, the width of the word vectors of `lm`, got 9"],
    );
    refused(
        &["--set", "training.unfreeze=1"],
        &["training.unfreeze: expected none", "without `training.from`"],
    );
    refused(
        &["--set", "training.lower_rates=0"],
        &["training.lower_rates: expected a number above 0, at most 1"],
    );
    refused(
        &["--from", "lm"],
        &[
            "the task is `lm`, because `lm` is a language model; `--task classify` trains a classifier over it",
        ],
    );
    dir.refuses(&["train", "--resume", "classes", "--from", "lm"], &["cannot be used with"]);
}

#[test]
fn transitions_of_known_tags_are_copied_and_partly_copied_layers_are_new() {
    let dir = TestDir::new("from-tags");
    dir.write("old.conll", &sentences());
    dir.write("new.conll", &sentences().replace("B-year", "B-month"));
    let train =
        ["train", "--task", "tag", "--train", "old.conll", "--epochs", "2", "--run", "old", "--quiet"];
    dir.stdout(&with(&train, &[]), "");
    let from = ["train", "--from", "old", "--train", "new.conll", "--epochs", "1"];
    let text = lines(&dir, &[&from[..], &["--run", "new", "--set", "training.rate=1e-12"]].concat());
    assert!(text.contains("2 of 3 tags") && !text.contains("; new:"), "{text}");
    let (old, new) = (checkpoint(&dir, "old", "best.ckpt"), checkpoint(&dir, "new", "best.ckpt"));
    let score = |model: &Checkpoint, [from, to]: [&str; 2]| {
        let id = |tag: &str| model.vocabularies["tags"].id(tag).unwrap();
        row(model, "crf.transitions", id(from))[id(to) as usize]
    };
    for pair in [["O", "B-place"], ["B-place", "O"], ["O", "O"]] {
        let (a, b) = (score(&old, pair), score(&new, pair));
        assert!((a - b).abs() < 1e-5 && a != 0.0, "{pair:?}: {a} {b}");
    }
    let text = lines(&dir, &[&from[..], &["--run", "wide", "--set", "model.embedding=12"]].concat());
    let warning = "warning: no vector of `words` was copied: `model.embedding` is 12, and 8 in `old`";
    assert!(text.contains(warning) && text.contains("2 of 3 tags"), "{text}");
    let line = text.lines().find(|line| line.starts_with("from old")).unwrap();
    let (copied, new) = line.split_once("; new: ").unwrap();
    assert!(new.contains("words") && new.contains("lstm_0") && !copied.contains("lstm_0"), "{line}");
}
