//! A class for each row of numbered features: a wide part weighs each feature, a deep part joins vectors of them, and their logits are
//! added. (Cheng et al., "Wide & deep learning for recommender systems", 2016.)

use std::path::{Path, PathBuf};

use super::config::Config;
use super::net;
use super::prepared::{Case, Paths, Prepared, TestData, Truth, batches, one_in};
use crate::data::{FileFormat, FirstIndex, LabelledRow, LabelledRows, Loader, Target, Vocabulary};
use crate::error::{Error, ErrorKind, Result};
use crate::layers::{Linear, init};
use crate::metrics::Accuracy;
use crate::predict::Predictor;
use crate::program::Builder;
use crate::tensor::{Csr, DType, Variable};
use crate::train::Trainer;

const FEEDS: [&str; 2] = ["features", "label"];
/// The note with how many features a model knows; that it is there says that its texts are rows.
pub(super) const COLUMNS: &str = "columns";
/// The note with the number of the first feature, by which all that a model reads is numbered.
const FIRST: &str = "first index";
/// Each feature has a vector in memory, so a number beyond this is a mistake or wants numbering anew.
const MOST: usize = 1 << 21;

/// Whether what a config trains on is rows of features, and no texts.
pub(super) fn are_meant(config: &Config, paths: &Paths) -> Result<bool> {
    match (&config.data.format, &paths.train) {
        (Some(format), _) => Ok(format.parse::<FileFormat>()? == FileFormat::Libsvm),
        (None, Some(train)) => Ok(LabelledRows::are_in(train)),
        (None, None) => Ok(false),
    }
}

/// The rows of a path, whose indices count as the config says or as is detected.
pub(super) fn open(config: &Config, path: &Path) -> Result<LabelledRows> {
    let set = config.data.first_index.and_then(|first| FirstIndex::of_number(i64::try_from(first).ok()?));
    match set {
        Some(first) => LabelledRows::open_from(path, first),
        None => LabelledRows::open(path),
    }
}

/// Rows of so many columns: others were not learnt of.
fn fitting(path: &Path, columns: usize, first: FirstIndex) -> Result<(LabelledRows, Option<String>)> {
    let mut rows = LabelledRows::open_from(path, first)?;
    let dropped = rows.drop_beyond(columns);
    let last = columns as i64 - 1 + first.number();
    let said = format!(
        "{}: {dropped} entries beyond feature {last}, the last in training, are left out",
        rows.name()
    );
    Ok((rows, (dropped > 0).then_some(said)))
}

fn loader(config: &Config, rows: &LabelledRows, columns: usize, labels: &Vocabulary) -> Result<Loader> {
    Ok(batches(rows.loader(FEEDS, columns, Target::Class(labels))?, config))
}

fn columns(predictor: &Predictor) -> Result<usize> {
    let found = predictor.note(COLUMNS).and_then(|columns| columns.parse().ok());
    found.ok_or_else(|| Error::of(ErrorKind::Format, "note `columns` of the checkpoint", "a number", "none"))
}

/// From which number on the features of a model count.
fn first(predictor: &Predictor) -> Result<FirstIndex> {
    let Some(note) = predictor.note(FIRST) else { return Ok(FirstIndex::One) };
    note.parse().ok().and_then(FirstIndex::of_number).ok_or_else(|| {
        let what = format!("note `{FIRST}` of the checkpoint");
        Error::of(ErrorKind::Format, what, "0 or 1", format!("`{note}`"))
    })
}

pub(super) fn data(config: &Config, predictor: &Predictor, path: &str) -> Result<TestData> {
    let (columns, first) = (columns(predictor)?, first(predictor)?);
    let (rows, dropped) = fitting(Path::new(path), columns, first)?;
    let data = loader(config, &rows, columns, predictor.vocabulary("labels")?)?;
    let counted = format!("indices count from {}, as in the training", first.number());
    Ok(TestData { data: Box::new(data), said: [counted].into_iter().chain(dropped).collect() })
}

pub(super) fn prepare(config: &Config, paths: Paths) -> Result<Prepared> {
    let Paths { train: Some(path), dev, test, .. } = paths else {
        let expected = "a LIBSVM file, as its format says";
        return Err(Error::new("data.train", expected, "none: no rows come with the program"));
    };
    if let Some(window) = config.data.window {
        return Err(Error::new(
            "data.window",
            "none for rows of features, which are in memory",
            window.to_string(),
        ));
    }
    let all = open(config, &path)?;
    let first = all.first_index();
    let (columns, labels, count) = (all.columns(), all.classes()?, all.rows().len());
    if !(1..=MOST).contains(&columns) {
        let what = format!("features in `{}`", all.name());
        let expected = format!("some, numbered up to {MOST}");
        let has = |row: &LabelledRow| row.indices.iter().any(|&index| index as usize >= MOST);
        let row = all.rows().iter().position(has).map(|row| format!(" in row {}", row + 1));
        let got = format!("{columns} as the largest number{}", row.unwrap_or_default());
        let error = Error::of(ErrorKind::Format, what, expected, got);
        return Err(error.noted(
            "rows are counted without blank lines and comments; number the features anew, without gaps",
        ));
    }
    let read = |path: &PathBuf| fitting(path, columns, first);
    let mut said = Vec::new();
    let (train, dev) = match &dev {
        Some(dev) => {
            let (dev, dropped) = read(dev)?;
            said.extend(dropped);
            (all, dev)
        }
        // By the row alone, so that equal ones are on one side.
        None => all.hold_out(one_in(config), config.run.seed),
    };
    if train.rows().is_empty() || dev.rows().is_empty() {
        let what = format!("rows of `{}`", train.name());
        let expected = "enough that some are held out, or `data.dev`";
        return Err(Error::of(ErrorKind::Format, what, expected, count.to_string()));
    }
    let test = match test.as_ref().map(read).transpose()? {
        Some((test, dropped)) => {
            said.extend(dropped);
            Some(loader(config, &test, columns, &labels)?)
        }
        None => None,
    };
    let of_train = loader(config, &train, columns, &labels)?.shuffle(config.run.seed).prefetch(4);
    let of_dev = loader(config, &dev, columns, &labels)?;
    let trainer = network(config, columns, &labels, train.rows().len())?
        .note(COLUMNS, columns.to_string())
        .note(FIRST, first.number().to_string());
    said.insert(
        0,
        format!(
            "{}: {} rows of {columns} features and {} labels; {} held out",
            train.name(),
            train.rows().len(),
            labels.len(),
            dev.rows().len()
        ),
    );
    said.insert(1, counted(first, config.data.first_index.is_some()));
    Ok(Prepared {
        trainer,
        train: Box::new(of_train),
        dev: Box::new(of_dev),
        test: test.map(|test| Box::new(test) as _),
        name: train.name().to_owned(),
        metric: "accuracy",
        coverage: None,
        lengths: train.rows().iter().map(|row| row.indices.len()).collect(),
        held_out: dev.rows().iter().map(|row| case(row, first)).collect(),
        said,
    })
}

/// From which number on features count, and how that is known, for people.
fn counted(first: FirstIndex, set: bool) -> String {
    let number = first.number();
    let why = match (set, first) {
        (true, _) => "as `data.first_index` says",
        (false, FirstIndex::Zero) => "since there is an index 0; `data.first_index` says otherwise",
        (false, FirstIndex::One) => "since there is no index 0; `data.first_index` says otherwise",
    };
    format!("indices count from {number}, {why}")
}

/// A row as a line of a file without its label.
fn case(row: &LabelledRow, first: FirstIndex) -> Case {
    let entry = |(index, value): (&i64, &f32)| format!("{}:{value}", index.saturating_add(first.number()));
    let entries = row.indices.iter().zip(&row.values).map(entry);
    Case { text: entries.collect::<Vec<_>>().join(" "), truth: Truth::Label(row.label.to_string()) }
}

fn network(config: &Config, columns: usize, labels: &Vocabulary, rows: usize) -> Result<Trainer> {
    let model = &config.model;
    let net = Builder::new().seed(config.run.seed);
    let features = net.feed_csr(FEEDS[0], DType::F32, columns, 0);
    let label = net.feed(FEEDS[1], DType::I64, &[], 0);
    let wide = features.linear(Linear::new(labels.len()).weight_init(init::zeros()).named("wide"));
    // A sparse row times a table is an embedding bag: the sum of the vectors of its features, times their values.
    let vectors = Linear::new(model.embedding).without_bias().weight_init(init::normal(0.1)).named("vectors");
    let deep = features.linear(vectors).dropout(model.dropout).linear(model.hidden).relu();
    let logits = wide + deep.linear(labels.len());
    let (loss, probabilities) = (logits.cross_entropy(label).mean(), logits.softmax());
    let trainer = net::trainer(net, loss, config, net::steps(config, rows))?;
    Ok(trainer
        .metric(Accuracy::new(logits, label))
        .output("probabilities", probabilities)
        .vocabulary("labels", labels.clone()))
}

/// The rows that lines say, with a label or without; entries of features that were not learnt of are left out.
pub(super) fn fed(predictor: &Predictor, lines: &[&str]) -> Result<Variable> {
    let (columns, first) = (columns(predictor)?, first(predictor)?);
    let row = |line: &&str| {
        let unlabelled = line.split_ascii_whitespace().next().is_none_or(|cell| cell.contains(':'));
        let line = if unlabelled { format!("0 {line}") } else { (*line).to_owned() };
        Ok(LabelledRow::of_line(&line, first)?.unwrap_or_default())
    };
    let mut rows = LabelledRows::new("lines", lines.iter().map(row).collect::<Result<_>>()?);
    rows.drop_beyond(columns);
    let entries = rows.rows().iter().map(|row| row.indices.iter().copied().zip(row.values.iter().copied()));
    Variable::new(Csr::from_rows(columns, entries)?, None)
}

/// What its rows are fed to.
pub(super) const FED: &str = FEEDS[0];
