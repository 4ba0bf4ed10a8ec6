//! Several runs that answer together.

use super::{Place, SMALL, reviews, says, with};

#[test]
fn probabilities_are_means_over_all_runs() {
    let place = Place::new("ensemble");
    place.write("reviews.tsv", &reviews());
    place.write("test.tsv", "it was fine\tgood\nit was dull\tbad\nit was odd\tgood\n");
    let data = ["train", "--train", "reviews.tsv", "--dev", "reviews.tsv"];
    place.said(&with(&data, &["--epochs", "1", "--seeds", "2", "--run", "seeds"]), "");
    let other = ["--epochs", "2", "--set", "model.cell=gru", "--set", "text.min_count=1", "--run", "gru"];
    place.said(&with(&data, &other), "");
    let of = |runs: &[&str]| {
        let ask = [&["predict"][..], runs, &["--json"]].concat();
        place.json(&ask, "it was dull\n")["probabilities"]["bad"].as_f64().unwrap()
    };
    let runs = ["seeds/seed-1", "seeds/seed-2", "gru"];
    let mean = runs.iter().map(|run| of(&[run])).sum::<f64>() / 3.0;
    let all = of(&["--ensemble", "seeds/seed-1", "seeds/seed-2", "gru"]);
    assert!((all - mean).abs() < 1e-6, "{all} {mean}");
    // A folder of seeds is all runs in it.
    assert_eq!(of(&["--ensemble", "seeds", "gru"]), all);
    let joined = |place: &Place| {
        let output = place.given(&["predict", "--ensemble", "seeds", "gru"], "it was dull\n");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = joined(&place);
    assert!(said.contains("--ensemble seeds: joins 2 runs") && !said.contains("warning"), "{said}");
    std::fs::rename(place.0.join("seeds/seed-2"), place.0.join("kept")).unwrap();
    let said = joined(&place);
    assert!(said.contains("joins 1 run\n") && said.contains("no checkpoint of seed-2"), "{said}");
    std::fs::rename(place.0.join("kept"), place.0.join("seeds/seed-2")).unwrap();
    let page = place.said(&["report", "seeds", "gru"], "");
    assert!(["seeds/seed-1", "seeds/seed-2", "gru"].iter().all(|run| page.contains(run)), "{page}");
    let pairs = |i: usize| format!("it was\t{}\t{}\n", ["fine", "dull"][i % 2], ["good", "bad"][i % 2]);
    place.write("pairs.tsv", &(0..60).map(pairs).collect::<String>());
    let columns = ["--set", "data.text=1", "--set", "data.pair=2", "--set", "data.label=3"];
    let pair = ["train", "--train", "pairs.tsv", "--dev", "pairs.tsv", "--epochs", "1", "--run", "pair"];
    place.said(&with(&pair, &columns), "");
    let said = place.refused(&["predict", "--ensemble", "gru", "pair"]);
    let expected = "expected models that read one text column, as the first model, got a model that reads pairs of texts";
    assert!(said.contains(expected) && said.contains("run `pair` cannot join"), "{said}");

    let answered = place.said(&["predict", "--ensemble", "seeds", "gru", "test.tsv"], "");
    assert_eq!(answered.lines().count(), 3, "{answered}");
    assert_eq!(place.said(&["predict", "--ensemble", "seeds", "gru"], "\n  \n"), "\n\n");
    let alone = place.said(&["predict", "--ensemble", "seeds", "test.tsv", "-q"], "");
    assert_eq!(alone.lines().count(), 3, "{alone}");
    let scores = place.json(&["eval", "--ensemble", "seeds", "gru", "test.tsv", "--json"], "");
    assert!(scores["interval"][1].as_f64().is_some() && scores["tables"]["label"].is_array(), "{scores}");
    assert!(scores["scores"]["loss"].as_f64() > Some(0.0), "{scores}");

    place.write("other.tsv", &reviews().replace("\tgood", "\tfair"));
    place.said(&with(&["train", "--train", "other.tsv"], &["--epochs", "1", "--run", "other"]), "");
    place.said(
        &with(
            &["train", "--task", "lm", "--train", "reviews.tsv", "--set", "data.text=1"],
            &["--epochs", "1", "--run", "lm"],
        ),
        "",
    );
    let refused = |runs: &[&str]| place.refused(&[&["predict", "--ensemble"], runs].concat());
    let said = refused(&["gru", "other"]);
    says(
        &said,
        &["labels of models to join: expected the 2 labels of the first model, got labels with `fair`"],
    );
    assert!(said.contains("run `other` cannot join"), "{said}");
    let said = refused(&["gru", "lm"]);
    says(&said, &["expected models of the task `classify`, as the first model, got a model of `lm`"]);
    let said = refused(&["lm", "lm"]);
    assert!(said.contains("models to join: expected classifiers of texts, or taggers"), "{said}");
    assert!(refused(&["gru"]).contains("expected several runs"), "{}", refused(&["gru"]));
    assert!(refused(&["gru", "nothing"]).contains("expected several runs"));
    place.refuses(&["predict", "gru", "seeds/seed-1", "test.tsv"], &["--ensemble joins several runs"]);
    place.refuses(&["predict", "gru", "test.tsv", "--json"], &["--json: expected lines of standard input"]);
    assert!(place.refused(&["predict", "gru", "--output", "x"]).contains("--output: expected a file"));
}

#[test]
fn several_labels_and_numbers_have_means() {
    let place = Place::new("ensemble-kinds");
    let texts = |label: fn(usize) -> String| -> String {
        (0..60).map(|i| format!("it was {} of {}\t{}\n", ["fine", "dull"][i % 2], i % 7, label(i))).collect()
    };
    place.write("numbers.tsv", &texts(|i| format!("{}.5", i % 2)));
    place.write("labels.tsv", &texts(|i| ["a,b", "b"][i % 2].to_owned()));
    for (target, file) in [("number", "numbers.tsv"), ("labels", "labels.tsv")] {
        let target_is = format!("data.target={target}");
        let train = ["train", "--train", file, "--dev", file, "--set", &target_is, "--seeds", "2"];
        place.said(&with(&train, &["--epochs", "2", "--run", target]), "");
        let runs = [1, 2].map(|seed| format!("{target}/seed-{seed}"));
        let of = |arguments: &[&str]| {
            let answer = place.json(&[&["predict"], arguments, &["--json"]].concat(), "it was fine of 3\n");
            answer["number"].as_f64().or(answer["probabilities"]["a"].as_f64()).unwrap()
        };
        let mean = (of(&[&runs[0]]) + of(&[&runs[1]])) / 2.0;
        assert!((of(&["--ensemble", target]) - mean).abs() < 1e-5, "{target}");
        place.said(&["eval", "--ensemble", target, file], "");
    }
    place.refuses(&["predict", "--ensemble", "number", "labels"], &["got a classifier with another target"]);
}

#[test]
fn taggers_vote() {
    let place = Place::new("ensemble-tags");
    let names = ["Rome", "Bonn", "Oslo", "Lima"];
    let text: String = (0..48)
        .map(|i| {
            format!("{} B-place travel\nin O travel\n{} O travel\n\n", names[i % 4], ["May", "June"][i % 2])
        })
        .collect();
    place.write("train.conll", &text);
    let train = ["train", "--task", "tag", "--train", "train.conll", "--dev", "train.conll"];
    let columns = ["--set", "data.text=1", "--set", "data.label=2"];
    let train = [&train[..], &columns].concat();
    place.said(&with(&train, &["--epochs", "6", "--seeds", "3", "--run", "tags"]), "");
    let answers = place.json(&["predict", "--ensemble", "tags", "--json"], "Bonn in May\n");
    assert_eq!(answers["tags"].as_array().unwrap().len(), 3, "{answers}");
    let of = |runs: &[&str]| {
        let eval = [&["eval"], runs, &["train.conll", "--json"]].concat();
        place.json(&eval, "")["value"].as_f64().unwrap()
    };
    let alone = ["tags/seed-1", "tags/seed-2", "tags/seed-3"].map(|run| of(&[run]));
    let all = of(&["--ensemble", "tags"]);
    let least = alone.iter().copied().fold(f64::INFINITY, f64::min);
    assert!(all >= least && all > 50.0, "{all} {alone:?}");

    let other = [&["train", "--task", "tag", "--train", "other.conll"][..], &columns, &SMALL].concat();
    place.write("other.conll", &text.replace("B-place", "B-town"));
    place.said(&[&other[..], &["--epochs", "1", "--run", "other", "--dev", "other.conll"]].concat(), "");
    place.refuses(
        &["eval", "--ensemble", "tags", "other", "train.conll"],
        &["tags of models to join: expected the 2 tags of the first model, got tags with `B-town`"],
    );
}
