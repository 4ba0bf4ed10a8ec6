//! Scores of models on test files: figures, classes, labels that training never saw, and two models side by side.

use std::path::PathBuf;

use unpadded::metrics::{Accuracy, MeanError, Unit};
use unpadded::train::{Progress, Until};
use unpadded::{Result, ops};
use unpadded_recipes::{
    Aligner, Config, Evaluation, Model, Target, Task, compare, prepare, prepare_within, scores, scores_with,
    test_data,
};

fn written(name: &str, text: &str) -> std::io::Result<String> {
    let path = std::env::temp_dir().join(format!("unpadded-scores-{}-{name}", std::process::id()));
    std::fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

fn trained(config: &Config) -> Result<Model> {
    let prepared = prepare(config)?;
    let mut trainer = prepared.trainer.progress(Progress::Quiet);
    trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(config.training.epochs))?;
    Model::new(trainer.for_inference()?)
}

fn small(task: Task, train: &str, epochs: u64) -> Config {
    let mut config = Config::new(task);
    config.data.train = Some(train.to_owned());
    (config.model.embedding, config.model.hidden, config.training.epochs) = (8, 8, epochs);
    config.training.rate = 0.03;
    config
}

fn reviews(texts: usize) -> Vec<String> {
    let line = |i: usize| {
        let (word, label) = [("fine", "good"), ("dull", "bad"), ("so so", "fair")][i % 3];
        format!("{}it was {word} {}\t{label}\n", "and then ".repeat(i % 5), i % 7)
    };
    (0..texts).map(line).collect()
}

fn of(config: &Config, model: &Model, path: &str) -> Result<Evaluation> {
    let mut config = config.clone();
    config.data.test = Some(path.to_owned());
    scores(&config, model)
}

/// Checks that a message reports held-out texts without a table of scores: 60 texts of 1000 bytes exceed a 32nd of 1 MB.
#[test]
fn large_held_out_texts_are_reported() -> Result<()> {
    let lines =
        |count| (0..count).map(|i| format!("{i} {}\tp{}\n", "word ".repeat(200), i % 2)).collect::<String>();
    let mut config = small(Task::Classify, &written("few.tsv", &lines(40))?, 1);
    config.data.dev = Some(written("large.tsv", &lines(60))?);
    for (memory, reported) in [(1 << 20, true), (1 << 30, false)] {
        let text = prepare_within(&config, None, memory)?.messages;
        let found = text.iter().any(|line| line.contains("large.tsv: the texts exceed"));
        assert_eq!(found, reported, "{text:?}");
    }
    Ok(())
}

/// Checks that a training counts a tag that only its development texts have as wrong, whatever the model predicts.
#[test]
fn tags_of_development_texts_alone_are_never_predicted() -> Result<()> {
    for (scheme, crf) in [("B-", true), ("", true), ("", false)] {
        let sentence = |tags: &[&str]| -> String {
            (0..40)
                .map(|i| format!("w{} {scheme}{}\nw {scheme}{}\n\n", i % 5, tags[i % tags.len()], tags[0]))
                .collect()
        };
        let name = format!("{scheme}{crf}");
        let mut config = small(Task::Tag, &written(&format!("{name}-train.txt"), &sentence(&["a", "b"]))?, 1);
        config.data.dev =
            Some(written(&format!("{name}-dev.txt"), &sentence(&["c", "d", "e", "f", "g", "h"]))?);
        (config.model.crf, config.training.rate) = (crf, 1e-6);
        let mut prepared = prepare(&config)?;
        let found = Model::new(prepared.trainer.for_inference()?)?.predictor().evaluate(&*prepared.dev)?;
        let metric = if scheme.is_empty() { "token accuracy" } else { "chunk F1" };
        assert_eq!(found.get(metric), Some(0.0), "{name}");
    }
    Ok(())
}

#[test]
fn labels_without_training_are_named_and_wrong() -> Result<()> {
    let mut config = small(Task::Classify, &written("train.tsv", &reviews(120).concat())?, 4);
    // A score is without smoothing.
    config.training.label_smoothing = Some(0.0);
    let model = trained(&config)?;
    let lines = reviews(60);
    let known = written("known.tsv", &lines.concat())?;
    let scored = of(&config, &model, &known)?;
    // The same as by batches of the loader.
    let mut test = config.clone();
    test.data.test = Some(known);
    let before = model.predictor().evaluate(&*test_data(&test, &model)?.data)?;
    assert_eq!(scored.get("accuracy"), before.get("accuracy"));
    let loss = scored.get("loss").unwrap_or(f64::NAN);
    assert!((loss - before.loss()).abs() < 1e-5, "{loss} {}", before.loss());
    assert!(scored.unseen.is_empty() && scored.headline == "accuracy");

    // Two labels of 62 are new.
    let more = [&lines.concat(), "it was fine\tnew\nit was dull\tnewer\n"].concat();
    let scored = of(&config, &model, &written("more.tsv", &more)?)?;
    let right = scored.get("accuracy").unwrap_or(0.0) * 62.0;
    assert!((right - before.get("accuracy").unwrap_or(0.0) * 60.0).abs() < 1e-9, "{right}");
    let names: Vec<&str> = scored.unseen.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(names, ["new", "newer"]);
    assert!(
        matches!(&scored.unseen[0].places[..], [location] if location.ends_with("more.tsv:61")),
        "{scored:?}"
    );

    // Counts of classes add up.
    let rows = &scored.tables[0].rows;
    let sum = |of: &dyn Fn(&unpadded_recipes::ScoreRow) -> u64| rows.iter().map(of).sum::<u64>();
    assert_eq!((sum(&|row| row.support), sum(&|row| row.found)), (62, 62));
    assert_eq!(sum(&|row| row.right) as f64, right.round());
    let [confusion] = &scored.confusions[..] else { panic!("{:?}", scored.confusions) };
    assert_eq!((confusion.of, confusion.cells.iter().map(|cell| cell.count).sum::<u64>()), ("label", 62));
    let ranges = scored.lengths.as_ref().map(unpadded_recipes::ByLength::ranges).unwrap_or_default();
    assert_eq!(ranges.iter().map(|range| range.texts).sum::<u64>(), 62);
    let wrong: f64 = ranges.iter().map(|range| range.value * range.texts as f64).sum();
    assert!((wrong + right - 62.0).abs() < 1e-9, "{ranges:?}");
    let f1: f64 = rows.iter().map(|row| row.f1()).sum::<f64>() / rows.len() as f64;
    assert!((scored.get("macro F1").unwrap_or(0.0) - f1).abs() < 1e-12);
    let interval = scored.headline().and_then(|of| of.interval).unwrap_or_default();
    assert!(interval[0] <= right / 62.0 && right / 62.0 <= interval[1], "{interval:?}");

    // The order of the texts changes nothing.
    let turned: String = more.lines().rev().map(|line| format!("{line}\n")).collect();
    let other = of(&config, &model, &written("turned.tsv", &turned)?)?;
    assert_eq!((&other.figures[1..], &other.tables), (&scored.figures[1..], &scored.tables));
    let nothing = of(&config, &model, &written("nothing.tsv", "")?);
    assert!(nothing.is_err());
    Ok(())
}

#[test]
fn several_labels_without_training_are_rows_of_the_table() -> Result<()> {
    let mut config = small(Task::Classify, &written("several.tsv", &reviews(60).concat())?, 1);
    config.data.target = Target::Labels;
    let more = [&reviews(20).concat(), "it was fine\tnew, good\nit was dull\tnew, newer\n"].concat();
    let scored = of(&config, &trained(&config)?, &written("several-test.tsv", &more)?)?;
    let rows = &scored.tables[0].rows;
    let new: Vec<_> = rows.iter().filter(|row| row.name.starts_with("new")).collect();
    assert!(matches!(new[..], [new, newer] if (new.support, newer.support) == (2, 1)), "{rows:?}");
    let f1: f64 = rows.iter().map(|row| row.f1()).sum::<f64>() / rows.len() as f64;
    assert!((scored.get("macro F1").unwrap_or(f64::NAN) - f1).abs() < 1e-12, "{scored:?}");
    Ok(())
}

#[test]
fn a_test_file_with_other_labels_stops_no_training() -> Result<()> {
    let mut config = small(Task::Classify, &written("own.tsv", &reviews(60).concat())?, 1);
    config.data.test = Some(written("own-test.tsv", "it was fine\tnew\nit was fine\tgood\n")?);
    assert_eq!(prepare(&config)?.test, config.data.test.as_ref().map(PathBuf::from));
    let tagged = "Ann B-PER\nruns O\n\nBob B-PER\nwalks O\n\nCy B-PER\nsits O\n\n";
    let mut config = small(Task::Tag, &written("own.conll", tagged)?, 1);
    config.data.dev = config.data.train.clone();
    config.text.min_count = 1;
    config.data.test = Some(written("own-test.conll", "Acme B-ORG\nruns O\n\n")?);
    let model = trained(&config)?;
    let scored = scores(&config, &model)?;
    assert!(scored.unseen[0].places[0].ends_with("own-test.conll:1"), "{:?}", scored.unseen);
    Ok(())
}

#[test]
fn plain_tags_choose_their_epoch_by_token_accuracy() -> Result<()> {
    let line = |i: usize| ["the DET\ndog NOUN\nruns VERB\n\n", "a DET\ncat NOUN\nsits VERB\n\n"][i % 2];
    let mut config = small(Task::Tag, &written("plain.conll", &(0..40).map(line).collect::<String>())?, 3);
    config.data.dev = config.data.train.clone();
    assert_eq!(prepare(&config)?.metric, "token accuracy");
    let model = trained(&config)?;
    let mut test = config.clone();
    test.data.test = config.data.train.clone();
    let before = model.predictor().evaluate(&*test_data(&test, &model)?.data)?;
    let scored = scores(&test, &model)?;
    assert_eq!(scored.get("token accuracy"), before.get("token accuracy"));
    assert_eq!((scored.get("loss"), scored.headline), (Some(before.loss()), "token accuracy"));
    Ok(())
}

#[test]
fn perplexity_is_exp_of_the_loss() -> Result<()> {
    let text = "to be or not to be\n".repeat(60);
    let mut config = small(Task::Lm, &written("text.txt", &text)?, 2);
    config.data.test = config.data.train.clone();
    let model = trained(&config)?;
    let scored = scores(&config, &model)?;
    let before = model.predictor().evaluate(&*test_data(&config, &model)?.data)?;
    let [loss, perplexity, bits] = ["loss", "perplexity", "bits per character"].map(|name| scored.get(name));
    let (loss, perplexity, bits) = (loss.unwrap_or(0.0), perplexity.unwrap_or(0.0), bits.unwrap_or(0.0));
    assert_eq!(perplexity, loss.exp());
    assert!((bits - loss / 2f64.ln()).abs() < 1e-9);
    let known = before.get("bits per character").unwrap_or(0.0);
    assert!((bits - known).abs() < 1e-4, "{bits} {known}");
    let count = |name: &str| scored.counts.iter().find(|(known, _)| *known == name).map(|(_, count)| *count);
    assert_eq!((count("characters"), count("words"), count("bytes")), (Some(1140), Some(360), Some(1140)));
    assert!(scored.headline().is_some_and(|figure| figure.interval.is_some()));
    Ok(())
}

#[test]
fn a_unit_comes_from_the_metric() -> Result<()> {
    let words = written("units.tsv", &reviews(120).concat())?;
    let prose = written("units.txt", &reviews(120).concat())?;
    let numbers = (0..120).map(|i| format!("it was {} out of 10\t{}\n", i % 10, i % 10));
    let numbers = written("units-numbers.tsv", &numbers.collect::<String>())?;
    let tags = (0..120).map(|i| format!("play O\njazz{i} B-genre\n\n"));
    let tags = written("units.conll", &tags.collect::<String>())?;
    let labels = |config: &mut Config| config.data.target = Target::Labels;
    let number = |config: &mut Config| config.data.target = Target::Number;
    let weights = |config: &mut Config| config.training.class_weights = vec!["balanced".to_owned()];
    type Set<'a> = &'a dyn Fn(&mut Config);
    let cases: [(Task, &str, Set<'_>, Unit); 7] = [
        (Task::Classify, &words, &|_| (), Unit::Share),
        (Task::Classify, &words, &weights, Unit::Share),
        (Task::Classify, &words, &labels, Unit::Share),
        (Task::Classify, &numbers, &number, Unit::Number),
        (Task::Tag, &tags, &|_| (), Unit::Share),
        (Task::Lm, &prose, &|_| (), Unit::Number),
        (Task::Translate, &words, &|_| (), Unit::Number),
    ];
    for (task, path, set, unit) in cases {
        let mut config = small(task, path, 1);
        set(&mut config);
        let mut prepared = prepare(&config)?;
        let selected = prepared.trainer.selected().map(|metric| (metric.name(), metric.unit()));
        assert_eq!(selected, Some((prepared.metric, unit)), "{task:?}");
        // The file contains the units, too.
        let units = Unit::of_metrics(&prepared.trainer.for_inference()?, &ops::catalogue());
        assert!(units.contains(&(prepared.metric.to_owned(), unit)), "{units:?}");
        assert!(units.contains(&("loss".to_owned(), Unit::Number)), "{units:?}");
    }
    Ok(())
}

/// A metric that is given to `scores_with` has the same value and interval as the figure of the task: of few texts and of many,
/// as a share of texts and as another figure.
#[test]
fn a_metric_of_ones_own_has_the_figure_of_the_task() -> Result<()> {
    let mut config = small(Task::Classify, &written("own.tsv", &reviews(60).concat())?, 3);
    let model = trained(&config)?;
    let var = |name| model.predictor().variable(name);
    let accuracy = Accuracy::new(var("probabilities")?, var("label")?).named("own accuracy");
    let mean = MeanError::squared(var("probabilities")?, var("probabilities")?);
    for (texts, add) in [(40, ""), (150, ""), (40, "it was dull\tgood\n")] {
        config.data.test = Some(written("own-test.tsv", &(reviews(texts).concat() + add))?);
        let (plain, scored) = (scores(&config, &model)?, scores_with(&config, &model, &[&accuracy, &mean])?);
        let (of_task, own) = scored.figures.split_at(plain.figures.len());
        assert_eq!(of_task, plain.figures);
        let accuracy = of_task.iter().find(|figure| figure.name == "accuracy").unwrap();
        assert_eq!(
            (own[0].value, own[0].unit, own[0].interval),
            (accuracy.value, accuracy.unit, accuracy.interval)
        );
        assert_eq!((own[1].value, own[1].interval), (0.0, Some([0.0; 2])));
    }
    let error = model.predictor().variable("labels").unwrap_err().to_string();
    assert!(error.contains("expected a known name"), "{error}");
    Ok(())
}

#[test]
fn two_models_are_set_side_by_side() -> Result<()> {
    let train = written("pair.tsv", &reviews(120).concat())?;
    let test = written("pair-test.tsv", &reviews(40).concat())?;
    let mut config = small(Task::Classify, &train, 4);
    config.data.test = Some(test);
    let trained_one = trained(&config)?;
    let untrained = Model::new(prepare(&config)?.trainer.for_inference()?)?;
    let models = [(&config, &trained_one), (&config, &untrained), (&config, &trained_one)];
    let compared = compare(&models)?;
    let [other, same] = &compared.against_first[..] else { panic!("{compared:?}") };
    assert_eq!((same.p_value, same.differ, same.texts.len()), (Some(1.0), 0, 0));
    let [one, two] = [0, 1].map(|at| compared.scored[at].get("accuracy").unwrap_or(0.0));
    assert!(one > two && other.p_value.is_some_and(|p| p < 0.05), "{one} {two} {:?}", other.p_value);
    assert_eq!(other.texts.len() as u64, other.differ.min(10));
    for text in &other.texts {
        assert!(text.found[0] != text.found[1], "{text:?}");
        assert_eq!(
            trained_one.predict(&[&text.text])?[0].to_string().split('\t').next(),
            Some(&*text.found[0])
        );
    }
    let tagger = prepare(&Config::new(Task::Tag))?.trainer.for_inference()?;
    let error = compare(&[models[0], (&config, &Model::new(tagger)?)]).err().map(|e| e.to_string());
    assert!(error.unwrap_or_default().contains("of the task `classify`"));
    Ok(())
}

#[test]
fn translations_have_examples_and_attention() -> Result<()> {
    let numbers = [("eins", "one"), ("zwei", "two"), ("drei", "three"), ("vier", "four"), ("sechs", "six")];
    let line = |i: usize| {
        let (a, b) = (numbers[i % 5], numbers[(i / 5 + 2 * i) % 5]);
        match i % 3 {
            0 => format!("{}\t{}\n", a.0, a.1),
            _ => format!("{} {} {}\t{} {} {}\n", a.0, b.0, a.0, a.1, b.1, a.1),
        }
    };
    let lines: Vec<String> = (0..60).map(line).collect();
    let path = written("pairs.tsv", &lines.concat())?;
    let mut config = small(Task::Translate, &path, 2);
    config.data.dev = Some(path.clone());
    let prepared = prepare(&config)?;
    let mut trainer = prepared.trainer.progress(Progress::Quiet);
    trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(2))?;
    let checkpoint = trainer.for_inference()?;
    let scored = of(&config, &Model::new(checkpoint.clone())?, &path)?;
    let exact = scored.examples.iter().filter(|one| one.exact).count();
    assert!(scored.examples.len() <= 12 && scored.examples.len() > 4, "{}", scored.examples.len());
    assert_eq!(exact, scored.examples.iter().filter(|one| one.references.contains(&one.found)).count());
    let lengths = scored.lengths.as_ref().unwrap();
    let ranges: Vec<(usize, usize)> = lengths.ranges().iter().map(|range| (range.from, range.to)).collect();
    assert_eq!((lengths.of, ranges), ("chrF", vec![(1, 1), (3, 3)]));

    let mut aligner = Aligner::new(&config, checkpoint, 1)?;
    let found = aligner.align("eins zwei drei", "one two")?;
    assert_eq!((found.weights.len(), found.written.len()), (found.written.len(), found.weights.len()));
    for row in &found.weights {
        assert_eq!(row.len(), found.source.len());
        assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-5 && row.iter().all(|&x| x > 0.0), "{row:?}");
    }
    // Of a single source token there is all of the weight; of none there is none.
    assert_eq!(aligner.align("eins", "one")?.weights, [[1.0]]);
    assert!(aligner.align("", "one")?.weights.is_empty() && aligner.align("eins", "")?.weights.is_empty());
    // What is written later changes nothing.
    let longer = aligner.align("eins zwei drei", "one two three four")?;
    assert!(
        found
            .weights
            .iter()
            .flatten()
            .zip(longer.weights.iter().flatten())
            .all(|(a, b)| (a - b).abs() < 1e-6)
    );
    Ok(())
}
