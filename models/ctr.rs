//! Learns the class of sparse rows, such as whether somebody clicks: a wide part weighs each feature, a deep part joins
//! vectors of them, and their logits are added (Cheng et al., "Wide & deep learning for recommender systems", 2016).
//!
//! `cargo run --release --example ctr` trains on made-up clicks and shows what came of it; see `--help`.
mod flags;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use flags::{Flags, Found, Outcome};
use unpadded::data::{Batching, FirstIndex, LabelledRow, LabelledRows, Loader, Target, TextFile, Vocabulary};
use unpadded::layers::{Linear, init};
use unpadded::metrics::Accuracy;
use unpadded::optimizer::Adam;
use unpadded::predict::Predictor;
use unpadded::tensor::Csr;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, Result, Var, Variable};

const MODEL: &str = "ctr";
const FEEDS: [&str; 2] = ["features", "class"];
const TRAIN: (&str, &str) = ("datasets/clicks/train.libsvm", include_str!("../datasets/clicks/train.libsvm"));
const TEST: (&str, &str) = ("datasets/clicks/test.libsvm", include_str!("../datasets/clicks/test.libsvm"));
/// How often one is right in `TEST` who knows how its rows were drawn, as the script that wrote them says.
const KNOWING: &str = "83.4 %";
/// The most epochs; training ends after `PATIENCE` without a better one.
const EPOCHS: u64 = 40;
const PATIENCE: u64 = 5;
const BATCH: usize = 64;
/// The length of a row with --tf-idf: the longer, the faster the wide part learns beside the deep one.
const LENGTH: f64 = 5.0;
/// Each feature has a vector in memory, so a number beyond this is a mistake or wants numbering anew.
const MOST_FEATURES: usize = 1 << 21;

/// Learns the class of sparse rows, in LIBSVM lines of `label feature:value ...` with features numbered from 1; FILE!NAME
/// is a file in a zip. Without --dev a tenth of --train is held out to choose the best epoch by. --predict answers lines
/// from standard input, with a label or without.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    /// The values are counts of words: take square roots, weigh rare words more, and make rows equally long
    #[arg(long, conflicts_with = "predict")]
    tf_idf: bool,
}

/// The model: a weight for each feature and class, and vectors -> hidden layer -> classes, added up.
fn network(columns: usize, classes: &Vocabulary, idf: Option<Vec<f32>>, seed: u64) -> Result<Trainer> {
    let net = Builder::new().seed(seed);
    let features = net.feed_csr(FEEDS[0], DType::F32, columns, 0);
    let class = net.feed(FEEDS[1], DType::I64, &[], 0);
    let x = if idf.is_some() { weighed(&net, features, columns) } else { features };
    let wide = x.linear(Linear::new(classes.len()).weight_init(init::zeros()).named("wide"));
    // A sparse row times a table is an embedding bag: the sum of the vectors of its features, times their values.
    let bag = x.linear(Linear::new(192).without_bias().weight_init(init::normal(0.1)).named("vectors"));
    let logits = wide + bag.dropout(0.85).linear(64).relu().linear(classes.len());
    let (loss, probabilities) = (logits.cross_entropy(class).mean(), logits.softmax());
    let trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy())?;
    // The loss says more than the accuracy about which of two epochs is better, on as few rows.
    let trainer = trainer.metric(Accuracy::new(logits, class)).select("loss").patience(PATIENCE);
    let trainer = trainer.output("probabilities", probabilities).vocabulary("classes", classes.clone());
    let mut trainer = trainer.note("columns", columns.to_string());
    if let Some(idf) = idf {
        trainer.set_parameter("idf", ndarray::Array1::from(idf))?;
    }
    Ok(trainer)
}

/// Square roots of counts, times how rare each word is, in rows of length `LENGTH`. In training each batch lacks some words, so
/// that no few of them decide alone.
fn weighed(net: &Builder, counts: Var, columns: usize) -> Var {
    let idf = net.parameter("idf", DType::F32, &[columns], init::constant(1.0));
    net.stop_gradient(idf);
    let roots = counts.sqrt() * idf.dropout(0.3);
    let length = (roots.square().sum_features() + 1e-12).sqrt(); // a row of no words has none
    roots / length * LENGTH
}

/// How rare each feature is, ln((1 + rows) / (1 + rows that have it)).
fn rarity(rows: &LabelledRows, columns: usize) -> Vec<f32> {
    let mut counts = vec![0u32; columns];
    for &index in rows.records().iter().flat_map(|row| &row.indices) {
        counts[index as usize] += 1;
    }
    let all = rows.records().len() as f32;
    counts.into_iter().map(|count| ((1.0 + all) / (1.0 + count as f32)).ln()).collect()
}

/// A file of the user's, perhaps in a zip, or the one that comes with the program.
///
/// With `counts`, a value below 0 is an error.
fn read(path: Option<&PathBuf>, (name, text): (&str, &'static str), counts: bool) -> Outcome<LabelledRows> {
    let file = match path {
        None => TextFile::embedded(name, text),
        Some(path) => match path.to_str().and_then(|path| path.split_once('!')) {
            Some((zip, member)) if !path.exists() => TextFile::open(zip)?.member(member)?,
            _ => TextFile::open(path)?,
        },
    };
    let rows = LabelledRows::of_files([&file], FirstIndex::One)?;
    let negative = |row: &LabelledRow| row.values.iter().copied().find(|value| *value < 0.0);
    let negative = rows.records().iter().zip(1..).find_map(|(row, number)| Some((number, negative(row)?)));
    match negative.filter(|_| counts) {
        None => Ok(rows),
        Some((number, value)) => {
            let expected = "expected counts, 0 or more, with --tf-idf";
            Err(format!("value in row {number} of `{}`: {expected}, got {value}", rows.name()).into())
        }
    }
}

/// The likeliest class of a line and its probability. Nothing was learned of features beyond the last.
fn predict(predictor: &Predictor, line: &str) -> Result<String> {
    let columns = predictor.note("columns").and_then(|columns| columns.parse().ok());
    let columns =
        columns.ok_or_else(|| Error::new("note `columns` of the checkpoint", "a number", "none"))?;
    let first = line.split_ascii_whitespace().next();
    let unlabelled = first.is_some_and(|cell| cell.contains(':'));
    let line = if unlabelled { format!("0 {line}") } else { line.to_owned() };
    let row = LabelledRow::of_line(&line, FirstIndex::One)?.unwrap_or_default();
    let mut row = LabelledRows::new("line", vec![row]);
    row.drop_beyond(columns);
    let entries = row.records().iter().map(|row| row.indices.iter().copied().zip(row.values.iter().copied()));
    let features = Variable::new(Csr::from_rows(columns, entries)?, None)?;
    let found = predictor.likeliest(&[(FEEDS[0], &features)], "probabilities", "classes")?;
    if found.iter().any(|(_, probability)| probability.is_nan()) {
        return Err(Error::new(
            "probability of each class",
            "a number",
            "none: do the values fit the model?",
        ));
    }
    Ok(found.iter().map(|(class, probability)| format!("{class}\t{probability:.3}")).collect())
}

/// How right one is who always says the class that was most frequent in training.
fn always_one(rows: &LabelledRows, classes: &Vocabulary) -> f64 {
    let most = classes.tokens().enumerate().max_by_key(|(id, _)| classes.count(*id as i64));
    let is_it = |row: &&LabelledRow| most.is_some_and(|(_, class)| row.label.to_string() == class);
    100.0 * rows.records().iter().filter(is_it).count() as f64 / rows.records().len() as f64
}

/// That rows can be trained on or scored: entries beyond the features of training, of which nothing was learned, are left out.
fn fit_in(rows: &mut LabelledRows, columns: usize) -> Outcome<()> {
    let dropped = rows.drop_beyond(columns);
    if dropped > 0 {
        let beyond = format!("feature number{} beyond {columns}", if dropped == 1 { "" } else { "s" });
        flags::print(format!("{}: left out {dropped} {beyond}, the last in training", rows.name()))?;
    }
    Ok(())
}

fn run(cli: &Cli) -> Outcome<()> {
    let Cli { ref flags, tf_idf } = *cli;
    if let Some(predictor) = flags.predictor(MODEL)? {
        return flags::answer(|line| predict(&predictor, line));
    }
    let all = read(flags.train.as_ref(), TRAIN, tf_idf)?;
    let (columns, classes, count) = (all.columns(), all.classes()?, all.records().len());
    if !(1..=MOST_FEATURES).contains(&columns) {
        let expected = format!("expected some, numbered up to {MOST_FEATURES}");
        return Err(
            format!("features in `{}`: {expected}, got {columns} as the largest number", all.name()).into()
        );
    }
    let (mut train, mut dev) = match &flags.dev {
        Some(path) => (all, read(Some(path), TRAIN, tf_idf)?),
        None => all.hold_out(10, flags.seed), // by the row alone, so that equal ones are on one side
    };
    if train.records().is_empty() || dev.records().is_empty() {
        let expected = "expected enough that about a tenth is held out, or --dev FILE";
        return Err(format!("rows of `{}`: {expected}, got {count}", train.name()).into());
    }
    let own = flags.train.is_none();
    let mut test =
        if own || flags.test.is_some() { Some(read(flags.test.as_ref(), TEST, tf_idf)?) } else { None };
    for rows in [&mut train, &mut dev].into_iter().chain(&mut test) {
        fit_in(rows, columns)?;
    }
    let loader = |rows: &LabelledRows| -> Result<Loader> {
        let loader = rows.loader(FEEDS, columns, Target::Class(&classes))?;
        Ok(loader.batching(Batching::Sequences(BATCH)))
    };
    let (seen, held_out) = (loader(&train)?.shuffle(flags.seed).prefetch(4), loader(&dev)?);
    let unseen = test.as_ref().map(&loader).transpose()?;
    let idf = tf_idf.then(|| rarity(&train, columns));
    let trainer = network(columns, &classes, idf, flags.seed)?;
    let Some((mut trainer, report)) = flags.fit(MODEL, trainer, (&seen, &held_out), EPOCHS)? else {
        return Ok(());
    };
    trainer.use_best()?;
    let mut score = |data: &Loader| -> Result<f64> {
        Ok(100.0 * trainer.evaluate(data)?.get("accuracy").unwrap_or(f64::NAN))
    };
    let dev_value = score(&held_out)?;
    flags::print(format!("\nheld-out accuracy {dev_value:.1} %, in the epoch with the least loss there"))?;
    let (mut metric, mut value) = ("dev_accuracy", dev_value);
    if let (Some(test), Some(unseen)) = (&test, &unseen) {
        (metric, value) = ("test_accuracy", score(unseen)?);
        let always = always_one(test, &classes);
        let best = if own { format!(", knowing how they were drawn {KNOWING}") } else { String::new() };
        flags::print(format!("test accuracy {value:.2} % (always the same class {always:.1} %{best})"))?;
    }
    flags.conclude(&Found { model: MODEL, dataset: train.name(), metric, value, more: &[] }, &report)
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use unpadded::train::{Progress, Until};

    use super::*;

    fn rows(text: &'static str) -> Outcome<LabelledRows> {
        read(None, ("test", text), false)
    }

    /// Trains on all rows of a text and predicts out of the checkpoint.
    fn learn(name: &str, text: &'static str, tf_idf: bool) -> Outcome<(f64, Predictor)> {
        let rows = rows(text)?;
        let (columns, classes) = (rows.columns(), rows.classes()?);
        let path = std::env::temp_dir().join(format!("unpadded-ctr-{name}-{}.ckpt", std::process::id()));
        let idf = tf_idf.then(|| rarity(&rows, columns));
        let trainer = network(columns, &classes, idf, 1)?.progress(Progress::Quiet);
        let mut trainer = trainer.checkpoint(&path).patience(300);
        let data = rows.loader(FEEDS, columns, Target::Class(&classes))?;
        trainer.fit(&data, &data, Until::Epochs(300))?;
        trainer.use_best()?;
        let accuracy = trainer.evaluate(&data)?.get("accuracy").unwrap_or(f64::NAN);
        let predictor = Predictor::load(&path)?;
        fs::remove_file(path)?;
        Ok((accuracy, predictor))
    }

    #[test]
    fn it_learns_what_no_sum_of_weights_says_and_predicts() -> Outcome<()> {
        let (accuracy, predictor) = learn("xor", "-1 1:1 3:1\n1 1:1 4:1\n1 2:1 3:1\n-1 2:1 4:1\n", false)?;
        assert_eq!(accuracy, 1.0);
        for (line, class) in [
            ("1:1 4:1", "1\t"),
            ("1 1:1 3:1 9:7", "-1\t"),
            ("  qid:3 2:1 3:1 # so", "1\t"),
            ("0 4:1 2:1", "-1\t"),
        ] {
            let found = predict(&predictor, line)?;
            assert!(found.starts_with(class), "{line}: {found}");
        }
        assert_eq!(predict(&predictor, "")?, predict(&predictor, "# nothing")?);
        let wrong = predict(&predictor, "1:1 x").map_err(|e| format!("{e:#}"));
        assert_eq!(wrong, Err("row: expected index:value in pair 2, got \"x\"".to_owned()));
        Ok(())
    }

    #[test]
    fn counts_of_words_count_by_their_roots_and_not_by_the_length_of_a_text() -> Outcome<()> {
        let text = "3 1:4 2:1\n1 2:2 3:1\n2 3:9 4:1\n3 1:1\n1 2:5\n2 4:2 3:1\n";
        let (accuracy, predictor) = learn("words", text, true)?;
        assert_eq!(accuracy, 1.0);
        assert_eq!(predict(&predictor, "1:1 2:4 4:9")?, predict(&predictor, "1:4 2:16 4:36")?);
        assert!(predict(&predictor, "1:-1").is_err());
        let idf = rarity(&rows(text)?, 4);
        let expected = [2, 3, 3, 2].map(|count| (7.0 / (1.0 + count as f32)).ln());
        assert_eq!(idf, expected);
        Ok(())
    }

    #[test]
    fn bad_files_are_refused_before_anything_is_written() -> Outcome<()> {
        let folder = std::env::temp_dir().join(format!("unpadded-ctr-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        let good: String = (0..60).map(|i| format!("{} {}:1 {}:0.5\n", i % 2, i % 2 + 1, i + 3)).collect();
        for (name, text) in [
            ("good", good.as_str()),
            ("pair", "1 1:1\n0 2:1 7\n"),
            ("empty", ""),
            ("blank", "\n# nothing\n"),
            ("one", "1 1:1\n1 2:1\n"),
            ("half", "1 1:1\n0.5 2:1\n"),
            ("none", "1\n0\n"),
            ("few", "1 1:1\n0 2:1\n"),
            ("unknown", "1 1:1\n3 1:1\n"),
            ("negative", "1 1:1\n0 1:-2\n"),
            ("huge", "1 1:1\n0 9000000000:1\n"),
        ] {
            fs::write(folder.join(name), text)?;
        }
        let files = fs::read_dir(&folder)?.count();
        let shown = |name: &str| folder.join(name).display().to_string();
        let refused = |words: &[&str]| {
            let paths = words.iter().map(|word| match word.strip_prefix('@') {
                Some(name) => shown(name),
                None => (*word).to_owned(),
            });
            let save = ["--epochs", "1", "--save"].map(str::to_owned).into_iter().chain([shown("saved")]);
            let words = ["ctr".to_owned()].into_iter().chain(paths).chain(save);
            let outcome = Cli::try_parse_from(words).map_err(Into::into).and_then(|cli| run(&cli));
            let said = |e: Box<dyn std::error::Error>| match e.downcast::<Error>() {
                Ok(error) => format!("{error:#}"),
                Err(error) => error.to_string(),
            };
            outcome.map_err(said).err().unwrap_or_default().replace(&format!("{}/", folder.display()), "")
        };
        for (words, expected) in [
            (&["--train", "@pair"][..], "pair:2: expected index:value in pair 2, got \"7\""),
            (&["--train", "@empty"], "records of file `empty`: expected at least one, got none"),
            (&["--train", "@blank"], "records of file `blank`: expected at least one, got none"),
            (&["--train", "@one"], "labels in `one`: expected at least two, got `1` alone"),
            (&["--train", "@half"], "labels in `half`: expected whole numbers"),
            (&["--train", "@none"], "features in `none`: expected some, numbered up to 2097152, got 0 as"),
            (
                &["--train", "@huge"],
                "features in `huge`: expected some, numbered up to 2097152, got 9000000000 as",
            ),
            (
                &["--train", "@few"],
                "rows of `few`: expected enough that about a tenth is held out, or --dev FILE",
            ),
            (&["--train", "@absent"], "file `absent`"),
            (&["--train", "@good!part"], "member `part` of file `good`: expected a zip"),
            (&["--train", "@good", "--test", "@pair"], "pair:2: expected index:value in pair 2, got \"7\""),
            (
                &["--train", "@good", "--test", "@empty"],
                "records of file `empty`: expected at least one, got none",
            ),
            (
                &["--train", "@good", "--test", "@unknown"],
                "token: expected one of `0`, `1`, got `3`; the label of row 1 in `unknown`",
            ),
            (
                &["--train", "@good", "--dev", "@unknown"],
                "token: expected one of `0`, `1`, got `3`; the label of row 1 in `unknown`",
            ),
            (
                &["--train", "@good", "--test", "@negative", "--tf-idf"],
                "value in row 2 of `negative`: expected counts, 0 or more, with --tf-idf, got -2",
            ),
            (&["--test", "@good"], "error: the following required arguments were not provided"),
        ] {
            let said = refused(words);
            assert!(said.starts_with(expected), "{words:?}: {said}");
        }
        assert_eq!(fs::read_dir(&folder)?.count(), files, "something was written");
        // A file as good as the rest, so that it was the bad ones that were refused; its features fit.
        assert_eq!(refused(&["--train", "@good", "--test", "@huge"]), "");
        assert!(folder.join("saved").exists());
        Ok(fs::remove_dir_all(&folder)?)
    }
}
