//! The training, development, test and held-out portions of the data: what they share, and what only one of them has.

use super::*;

/// Returns what `data check` says about files, on both outputs.
fn checked(dir: &TestDir, arguments: &[&str]) -> String {
    let output = dir.given(&[&["data", "check"], arguments].concat(), "");
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
    String::from_utf8(output.stdout).unwrap() + &error
}

#[track_caller]
fn lacks(text: &str, part: &str) {
    assert!(!text.contains(part), "{part} in {text}");
}

/// Returns different texts with the labels `p` and `n`, from number `from` on.
fn texts(from: usize, count: usize) -> String {
    (from..from + count).map(|i| format!("text {i}\t{}\n", if i % 2 == 0 { "p" } else { "n" })).collect()
}

/// Returns tagged texts of two words, from number `from` on.
fn sentences(from: usize, count: usize) -> String {
    (from..from + count).map(|i| format!("w{i}\tB-A\nx\tO\n\n")).collect()
}

#[test]
fn texts_of_two_portions_are_counted() {
    let dir = TestDir::new("shared-texts");
    dir.write("train.tsv", &texts(0, 60));
    // Ten texts are training texts, one of them with the other label; five are new.
    dir.write("dev.tsv", &format!("text 0\tn\n{}", texts(51, 14)));
    dir.write("test.tsv", &format!("{}{}", texts(63, 2), texts(90, 4)));
    let both = ["--set", "data.dev=dev.tsv", "--set", "data.test=test.tsv"];
    let window = ["--set", "data.window=16"];
    for more in [&[][..], &window] {
        let text = checked(&dir, &[&["train.tsv"], &both[..], more].concat());
        says(
            &text,
            &[
                "warning: 10 of 15 texts of `dev.tsv` are training texts, 1 of them with another right answer there (dev.tsv:1, dev.tsv:2, dev.tsv:3, …)",
                "warning: 2 of 6 texts of `test.tsv` are held-out texts of `dev.tsv`, which choose the best epoch (test.tsv:1, test.tsv:2); ",
            ],
        );
        lacks(&text, "of `test.tsv` are training texts");
        // Equal texts are not on both sides of a hold-out, and a text with two labels is counted once.
        dir.write("twice.tsv", &format!("{}text 3\tp\ntext 3\tn\ntext 4\tp\n", texts(0, 60)));
        let text = checked(&dir, &[&["twice.tsv"], more].concat());
        says(&text, &["warning: 1 text of `twice.tsv` occurs with different right answers\n"]);
        lacks(&text, "are training texts");
    }
    // A list of labels is equal in any order, and a number in any spelling.
    let lines = |label: &dyn Fn(usize) -> String| {
        (0..60).map(|i| format!("text {i}\t{}\n", label(i))).collect::<String>()
    };
    dir.write("lists.tsv", &format!("{}text 1\tb,a\n", lines(&|_| "a,b".to_owned())));
    lacks(&checked(&dir, &["lists.tsv", "--set", "data.target=labels"]), "different right answers");
    dir.write("numbers.tsv", &format!("text\tlabel\n{}text 1\t1.0\n", lines(&|i| i.to_string())));
    lacks(&checked(&dir, &["numbers.tsv", "--set", "data.target=number"]), "different right answers");
    // The texts of a group are in one portion; a text of several groups may be in both.
    let rows: String = (0..60)
        .map(|i| format!("text {},{},g{}\n", i / 30, if i % 2 == 0 { "p" } else { "n" }, i % 20))
        .collect();
    dir.write("groups.csv", &format!("text,label,who\n{rows}"));
    says(
        &checked(&dir, &["groups.csv", "--set", "data.group=who"]),
        &["texts of `groups.csv, held out` are training texts"],
    );
    // Tags, rows and sources.
    dir.write("train.txt", &sentences(0, 40));
    dir.write("dev.txt", "w1\tO\nx\tO\n\nnew\tO\n\n");
    let text = checked(&dir, &["train.txt", "--task", "tag", "--set", "data.dev=dev.txt"]);
    says(
        &text,
        &[
            "1 of 2 texts of `dev.txt` are training texts, 1 of them with another right answer there (dev.txt:1)",
        ],
    );
    let rows = |from: usize| (from..from + 40).map(|i| format!("{} 1:{i}\n", i % 2)).collect::<String>();
    dir.write("train.svm", &rows(1));
    dir.write("dev.svm", &rows(31));
    let text = checked(&dir, &["train.svm", "--set", "data.dev=dev.svm"]);
    says(&text, &["warning: 10 of 40 rows of `dev.svm` are training rows; "]);
    dir.write("pairs.tsv", &lines(&|i| format!("x {i}")));
    dir.write("more.tsv", "text 1\tanother\nnew\tx\n");
    let text = checked(&dir, &["pairs.tsv", "--task", "translate", "--set", "data.dev=more.tsv"]);
    says(&text, &["warning: 1 of 2 pairs of `more.tsv` have the source of training pairs (more.tsv:1); "]);
    // `train` warns, too.
    let run =
        with(&["train", "--train", "train.tsv", "--dev", "train.tsv", "--run", "run"], &["--epochs", "1"]);
    let text = String::from_utf8(dir.given(&run, "").stderr).unwrap();
    says(&text, &["warning: 60 of 60 texts of `train.tsv` are training texts"]);
}

#[test]
fn classes_of_one_portion_are_named_and_learnt_where_possible() {
    let dir = TestDir::new("rare-classes");
    dir.write("train.tsv", &texts(0, 60));
    dir.write("dev.tsv", "new\tp\nother\tq\nthird\tq\nfourth\tn\n");
    let dev = ["--dev", "dev.tsv", "--test", "dev.tsv", "--epochs", "1", "--run"];
    let run = with(&["train", "--train", "train.tsv", "--json"], &[&dev[..], &["run"]].concat());
    let output = dir.given(&run, "");
    let text = String::from_utf8(output.stderr).unwrap();
    const WARNING: &str =
        "warning: label `q` never occurs in training: 2 occurrences scored as wrong (dev.tsv:2, dev.tsv:3)\n";
    // Once for each file: the scores do not repeat the warning about the test file.
    assert_eq!(text.matches(WARNING).count(), 2, "{text}");
    // The held-out texts are scored as a test file, and q is wrong in both.
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let held = &found["held_out_scores"];
    assert_eq!((&held["dataset"], &held["unseen"]), (&"dev.tsv".into(), &found["test_scores"]["unseen"]));
    assert_eq!(
        (&held["scores"], &held["tables"]),
        (&found["test_scores"]["scores"], &found["test_scores"]["tables"])
    );
    assert_eq!(held["unseen"][0]["count"], 2, "{held}");
    let file: Value =
        serde_json::from_str(&fs::read_to_string(dir.0.join("run/held_out.json")).unwrap()).unwrap();
    assert_eq!((&file, held["value"].as_f64()), (held, found["value"].as_f64()));
    says(&text, &["\nlabel  precision    recall "]);
    // A file of other labels that hardly recur is refused: by `eval` and before a training.
    dir.write("foreign.tsv", "new\tx\nother\ty\n");
    let parts = [
        "labels of `foreign.tsv`: expected labels of the training, `n`, `p`",
        "got `x`, `y`; `data.label` sets",
    ];
    let files = ["--set", "data.dev=foreign.tsv", "--set", "data.test=foreign.tsv"];
    for files in [&files[..2], &files[2..], &files] {
        dir.refuses(&[&["data", "check", "train.tsv"], files].concat(), &parts);
    }
    let eval = dir.given(&["eval", "run", "foreign.tsv"], "");
    assert_ne!(eval.status.code(), Some(0));
    says(
        &String::from_utf8(eval.stderr).unwrap(),
        &["labels of `foreign.tsv`: expected labels of the training, `n`, `p`"],
    );
    // Other labels that recur are scored as wrong.
    dir.write("others.tsv", &texts(0, 20).replace("\tp", "\tx").replace("\tn", "\ty"));
    let files = ["--dev", "others.tsv", "--test", "others.tsv", "--epochs", "1", "--run", "others"];
    let output = dir.given(&with(&["train", "--train", "train.tsv", "--json"], &files), "");
    const OTHER: &str = "warning: label `x` never occurs in training: ";
    let (text, found) = (String::from_utf8(output.stderr).unwrap(), output.stdout);
    assert_eq!(text.matches(OTHER).count(), 2, "{text}");
    let found: Value = serde_json::from_slice(&found).unwrap();
    assert_eq!((found["value"].as_f64(), found["test_scores"]["value"].as_f64()), (Some(0.0), Some(0.0)));
    says(&String::from_utf8(dir.given(&["eval", "run", "others.tsv"], "").stderr).unwrap(), &[OTHER]);
    // A text without labels is an answer that a model with several labels learns.
    dir.write("unlabelled.tsv", "new\t\nother\ty\n");
    let several = ["--set", "data.target=labels", "--set", "data.header=false", "--set"];
    let text = checked(&dir, &[&["train.tsv"], &several[..], &["data.test=unlabelled.tsv"]].concat());
    says(&text, &["warning: label `y` never occurs in training: "]);
    // Long names, such as the texts of swapped columns, are cut.
    dir.write("long.tsv", &format!("p\t{0}x\nq\t{0}y\n", "word ".repeat(99)));
    let shortened = format!("got `{0}…`, `{0}…`; `data.label` sets", "word ".repeat(12));
    dir.refuses(&["data", "check", "train.tsv", "--set", "data.test=long.tsv"], &[&shortened]);
    // Tags of the development texts are named alike.
    dir.write("train.txt", &sentences(0, 40));
    dir.write("dev.txt", "new\tB-A\nx\tB-C\n\n");
    let text = checked(
        &dir,
        &["train.txt", "--task", "tag", "--set", "data.dev=dev.txt", "--set", "data.test=dev.txt"],
    );
    assert_eq!(
        text.matches("warning: tag `B-C` never occurs in training: 1 occurrence scored as wrong (dev.txt:2)")
            .count(),
        2,
        "{text}"
    );
    dir.write("train.svm", &(1..40).map(|i| format!("{} 1:{i}\n", i % 2)).collect::<String>());
    dir.write("dev.svm", "1 1:100\n7 1:101\n");
    let text = checked(&dir, &["train.svm", "--set", "data.dev=dev.svm"]);
    says(&text, &["label `7` never occurs in training: 1 occurrence scored as wrong (`dev.svm`)"]);

    // A hold-out leaves the only texts of a label in training, in memory and in files.
    let rare: String = (0..20).map(|i| format!("rare {i}\tr{i}\n")).collect();
    dir.write("rare.tsv", &(texts(0, 100) + &rare));
    let found = [&[][..], &["--set", "data.window=16"]].map(|more| {
        let text = checked(&dir, &[&["rare.tsv"], more].concat());
        lacks(&text, "never occurs in training");
        let kept = text.lines().find(|line| line.contains("in training instead of being held out")).unwrap();
        let first = text.lines().find(|line| line.starts_with("rare.tsv: ")).unwrap();
        (kept.to_owned(), first.to_owned())
    });
    assert_eq!(found[0], found[1]);
    // If nothing would be left to hold out, the labels are named instead.
    dir.write("singles.tsv", &format!("text\tlabel\n{rare}"));
    says(
        &checked(&dir, &["singles.tsv"]),
        &["warning: label `r", "` never occurs in training: 1 occurrence "],
    );
    // Folds hold out each text once.
    let text = dir.refused(&["data", "check", "singles.tsv", "--set", "data.fold=1/21"]);
    says(&text, &["data.fold: expected at most 20 folds, since `singles.tsv` has 20 texts, got 21 folds"]);
    let text = checked(&dir, &["rare.tsv", "--set", "data.fold=1/5"]);
    says(
        &text,
        &["warning: too few texts for each of the 5 folds: label `r0` in at most 1, ", ", and 10 more\n"],
    );
}

#[test]
fn a_check_shows_labels_and_checks_few_texts() {
    let dir = TestDir::new("few-texts");
    let labels = ["5", "05", "5.0", "New York", "new  york", "NaN", "b"];
    let line = |i: usize| format!("text {i}\t{}\n", labels[i % 7]);
    dir.write("spelt.tsv", &(0..140).map(line).collect::<String>());
    says(
        &checked(&dir, &["spelt.tsv"]),
        &[
            "warning: labels that differ only in case, in blanks or in the spelling of a number: `05` (20) and `5` (20) and `5.0` (20), `New York` (20) and `new  york` (20)\n",
            "warning: labels that look like a missing value that a program wrote: `NaN` (20)\n",
            "\nlabels of 140 texts, of which ",
            "\nlabel      training  held out\n",
        ],
    );
    dir.write("many.tsv", &(0..200).map(|i| format!("text {i}\tlabel {}\n", i % 25)).collect::<String>());
    says(&checked(&dir, &["many.tsv"]), &["\n5 more\n"]);
    dir.write(
        "intents.jsonl",
        &(0..40)
            .map(|i| {
                format!(
                    "{{\"tokens\": [\"w{i}\", \"x\"], \"tags\": [\"B-a\", \"{}\"], \"intent\": \"{}\"}}\n",
                    ["b-A", "O"][i % 2],
                    ["ask", "Ask"][i % 2]
                )
            })
            .collect::<String>(),
    );
    let text = checked(&dir, &["intents.jsonl", "--task", "tag", "--set", "data.scheme=plain"]);
    says(
        &text,
        &[
            "warning: labels that differ only in case",
            "warning: tags that differ only in case",
            "\ntags of 40 texts, ",
        ],
    );
    let found = dir.json(
        &["data", "check", "intents.jsonl", "--task", "tag", "--set", "data.scheme=plain", "--json"],
        "",
    );
    assert_eq!((&found["labels"]["ask"], &found["tags"]["B-a"]), (&20.into(), &40.into()), "{found}");

    // Labels that a tagger does not learn, since some texts have none, are not reported.
    let line = |i: usize| format!("{{\"tokens\": [\"w{i}\", \"x\"], \"tags\": [\"B-a\", \"O\"]}}\n");
    dir.write("bare.jsonl", &(0..40).map(line).collect::<String>());
    let labelled = |i: usize| line(i).replace('}', ", \"intent\": \"ask\"}");
    dir.write("dev.jsonl", &(50..60).map(labelled).collect::<String>());
    let files = ["--set", "data.dev=dev.jsonl", "--set", "data.test=dev.jsonl"];
    let text = checked(&dir, &[&["bare.jsonl", "--task", "tag"], &files[..]].concat());
    lacks(&text, "never occurs in training");

    // A small file is checked, and not trained on.
    dir.write("small.tsv", "text 1\tp\ntext 2\tn\n");
    const FEW: &str = "texts of `small.tsv`: expected enough texts to hold out a share of 0.1 of them: add texts, set `data.dev`";
    let text = checked(&dir, &["small.tsv"]);
    says(
        &text,
        &[
            "record 2: ",
            "\nlabel  training\n",
            "the records can be read, but a training needs more: ",
            FEW,
            "got 2 texts",
        ],
    );
    lacks(&text, "are training texts");
    dir.refuses(&["train", "--train", "small.tsv"], &[FEW, "got 2 texts, of which none would be held out"]);
    dir.write("small.txt", "x\tB-A\nx\tO\n");
    let text = checked(&dir, &["small.txt", "--task", "tag"]);
    says(&text, &["got 1 text, of which none would be held out; in columns, a blank line ends a text"]);
    dir.write("once.txt", "a\tX\nb\tY\n\nc\tX\nd\tY\n");
    let text = checked(&dir, &["once.txt", "--task", "tag"]);
    says(
        &text,
        &[
            "\nX           2\n",
            "but a training needs more: tokens of a vocabulary: ",
            "`text.min_count` (it is 2)",
        ],
    );
    dir.write("small.svm", "0 1:1\n1 1:2\n");
    says(&checked(&dir, &["small.svm"]), &["rows of `small.svm`: expected enough rows", "got 2 rows"]);
    // The malformed records of a small file are reported once.
    let skips = ["--set", "data.skip_bad=true", "--set", "data.skip_bad_share=0.5", "--json"];
    dir.write("bad.csv", "text,label\ntext 1,p\ntext 2,n\nthree\n");
    dir.write("bad.svm", "0 1:1\n1 1:2\n1 x\n");
    for file in ["bad.csv", "bad.svm"] {
        let output = dir.given(&[&["data", "check", file], &skips[..]].concat(), "");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&found["skipped"][0]["count"], &found["skipped"][1]),
            (&1.into(), &Value::Null),
            "{found}"
        );
    }
    // Only the clause that the pass over all records adds is printed after the records.
    dir.write("twice.csv", &format!("text,label\n{0}text,label\n{0}", "one,p\ntwo,n\n".repeat(20)));
    let text = checked(&dir, &["twice.csv"]);
    says(&text, &["\nheader repeated in 1 line, left out: twice.csv:42\n"]);
    assert_eq!(text.matches("read as ").count(), 1, "{text}");
    dir.write("wrong.tsv", "text 1\tp\ntext 2\n");
    dir.refuses(&["data", "check", "wrong.tsv"], &["wrong.tsv:2: "]);
}

#[test]
fn settings_that_rows_ignore_are_refused() {
    let dir = TestDir::new("ignored");
    dir.write("rows.svm", &(1..60).map(|i| format!("{} 1:{i}\n", i % 2)).collect::<String>());
    dir.write("reviews.tsv", &reviews());
    for (setting, got) in [("model.layers=3", "3"), ("model.pool=last", "\"last\"")] {
        let name = setting.split('=').next().unwrap();
        let expected = format!("{name}: expected the default for rows of features, which have no words");
        dir.refuses(&["train", "--train", "rows.svm", "--set", setting], &[&expected, &format!("got {got}")]);
    }
    let text = checked(&dir, &["rows.svm", "--set", "text.lowercase=false"]);
    says(&text, &["warning: `text.lowercase = false` is ignored: rows of features have no words\n"]);
    let small =
        ["--set", "model.hidden=4", "--set", "model.embedding=4", "--epochs", "1", "--quiet", "--run"];
    dir.stdout(&[&["train", "--train", "rows.svm"], &small[..], &["rows"]].concat(), "");
    dir.refuses(
        &["train", "--train", "reviews.tsv", "--from", "rows"],
        &["training.from: expected a model that reads texts, got `rows`"],
    );
    dir.stdout(
        &with(&["train", "--train", "reviews.tsv", "--quiet"], &["--epochs", "1", "--run", "texts"]),
        "",
    );
    dir.refuses(
        &["train", "--train", "rows.svm", "--from", "texts"],
        &["training.from: expected a classifier of rows of features, got `texts`"],
    );
}
