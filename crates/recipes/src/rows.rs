//! Classification of rows of numbered features: the logits of a wide part, a weight per feature, and of a deep part, the sum of the
//! vectors of the features, are added (Cheng et al., "Wide & deep learning for recommender systems", 2016).

use std::path::Path;

use unpadded::data::{Fingerprint, Loader, TokenCounts, Vocabulary};
use unpadded::layers::{Linear, init};
use unpadded::metrics::Accuracy;
use unpadded::predict::Predictor;
use unpadded::tensor::Csr;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, ErrorKind, Result, Variable};
use unpadded_text::{
    FileFormat, FirstIndex, LabelledRow, LabelledRows, QuestionKind, ReadOptions, RecordSource, path_of_text,
};

use super::answer::Answer;
use super::config::Config;
use super::evaluation::{EachOutcome, Evaluation};
use super::labels::{self, LABELS, PROBABILITIES};
use super::net;
use super::portions::{self, EachClass, Portion, RecordAnswers};
use super::prepare::{
    DevTexts, FirstRecords, RecordCounts, TaskNetwork, TaskSurvey, TrainingTexts, Within, prepare,
};
use super::recipe::{AnsweringModel, Preview, RecordModel, TestFile};
use super::sections::DecodingConfig;
use super::started::{Origin, Table};
use super::texts::Texts;
use super::training::{Case, Column, DataMemory, Paths, Preparation, Truth, batches, options};

const FEEDS: [&str; 2] = ["features", "label"];
/// The name of the note with the number of features in training; only the checkpoint of a model of rows has this note.
pub(super) const COLUMNS: &str = "columns";
/// The name of the note with the index of the first feature, 0 or 1, in the files of the data set.
const FIRST: &str = "first index";
/// Maximum number of features: each feature has a vector in memory, and a larger index is probably a mistake.
const MOST: usize = 1 << 21;

const USED: [&str; 3] = ["model.embedding", "model.hidden", "model.dropout"];

pub(super) fn are_meant(config: &Config, path: &Path) -> Result<bool> {
    match &config.data.format {
        Some(format) => Ok(format.parse::<FileFormat>()? == FileFormat::Libsvm),
        None => Ok(LabelledRows::are_in(path)),
    }
}

pub(super) struct Classifier;

impl AnsweringModel for Classifier {
    fn embeds(&self) -> Option<&'static str> {
        Some(PROBABILITIES)
    }

    fn rows(&self, by: &Predictor, texts: &[&str], output: &str) -> Result<Variable> {
        Ok(by.run(&[(FEEDS[0], &fed(by, texts)?)], &[output])?.swap_remove(0))
    }

    fn answers(&self, by: &Predictor, texts: &[&str], _: &DecodingConfig) -> Result<Vec<Answer>> {
        let (known, found) = (by.vocabulary(LABELS)?, found(by, &fed(by, texts)?)?);
        Ok(found.chunks_exact(known.len()).map(|row| labels::answer(known, row, Vec::new())).collect())
    }
}

impl RecordAnswers for Classifier {
    type Record = LabelledRow;

    /// Adding 0.0 changes a label −0 to 0.
    fn classes(_: &Config, row: &LabelledRow, each: EachClass<'_>) {
        each(portions::LABEL, &(row.label + 0.0).to_string(), &|| portions::location(row));
    }

    fn answer(_: &Config, row: &LabelledRow) -> u64 {
        Fingerprint::default().number((row.label + 0.0).to_bits()).finish()
    }
}

impl RecordModel for Classifier {
    const ASKING: QuestionKind = QuestionKind::Row;
    const COLUMNS: [Column; 2] = labels::COLUMNS;
    const TABLES: &'static [Table] = &[];

    fn training_options(config: &Config) -> Result<ReadOptions> {
        let set = config.data.first_index.and_then(|first| FirstIndex::of_number(i64::try_from(first).ok()?));
        Ok(set.into_iter().fold(options(config, labels::COLUMNS)?, ReadOptions::first_index))
    }

    fn line(row: &LabelledRow) -> String {
        format!("label {}", row.label)
    }

    /// The features have the numbers of the file.
    fn preview(config: &Config, path: &Path) -> Result<Preview> {
        let memory = DataMemory(super::memory_limit(config, None)?);
        let rows = within(path, &Self::training_options(config)?, memory)?;
        let first = rows.first_index().number();
        let line = |row: &LabelledRow| {
            let entries = row.indices.iter().zip(&row.values).take(8);
            let entries: Vec<String> =
                entries.map(|(index, value)| format!("{}:{value}", index + first)).collect();
            format!("features {}, {}", entries.join(" "), Self::line(row))
        };
        Ok(Preview::new(rows.read_as(), rows.records().iter().take(Preview::SHOWN).map(line).collect()))
    }

    fn prepare(config: &Config, paths: Paths) -> Result<Preparation> {
        unused(config)?;
        paths.from.of_rows(COLUMNS)?;
        if let Some(window) = config.data.window {
            let expected = "none for rows of features, which are in memory";
            return Err(Error::new("data.window", expected, window.to_string()));
        }
        prepare::<RowSurvey<'_>>(config, paths)
    }

    fn load(_: &Predictor, _: &Config) -> Result<Self> {
        Ok(Self)
    }

    fn adds(&self, _: &Predictor, _: &DecodingConfig) -> Vec<String> {
        Answer::LABEL.map(str::to_owned).into()
    }

    /// Reads a file of rows as the training rows were read; the rows are always in memory.
    fn open(file: &TestFile<'_>, _: bool) -> Result<(Texts<LabelledRow>, Vec<String>)> {
        let (columns, first) = noted(file.known)?;
        let like = options(file.config, labels::COLUMNS)?.first_index(first);
        let memory = DataMemory::set_by(file.config);
        let (rows, dropped) = fitting(&path_of_text(file.path), columns, &like, memory)?;
        let counted = format!("indices count from {}, as in the training", first.number());
        Ok((Texts::Held(rows), [counted].into_iter().chain(dropped).collect()))
    }

    fn loader(&self, file: &TestFile<'_>, rows: &Texts<LabelledRow>) -> Result<Loader> {
        loader(file.config, held(rows)?, noted(file.known)?.0, file.known.vocabulary(LABELS)?)
    }

    fn scored(
        &self,
        file: &TestFile<'_>,
        rows: Texts<LabelledRow>,
        each: EachOutcome<'_>,
    ) -> Result<Evaluation> {
        let by = file.known;
        let (columns, first) = noted(file.known)?;
        let known = file.known.vocabulary(LABELS)?;
        let mut scores = labels::LabelScores::new(known);
        rows.in_batches(self.batch(), &|row| row.indices.len(), &mut |part| {
            let found = found(by, &sparse(columns, part.iter().map(|(_, row)| row))?)?;
            for ((number, row), p) in part.iter().zip(found.chunks_exact(known.len())) {
                // Adding 0.0 changes a label −0 to 0.
                let (text, label) = (case(row, first).text, (row.label + 0.0).to_string());
                let location = || format!("record {number} of `{}`", rows.called());
                scores.add((&text, &label), &location, row.indices.len(), p, each);
            }
            Ok(())
        })?;
        Ok(scores.end())
    }
}

/// Refuses settings that rows of features do not have, and returns warnings about ignored settings of the text.
fn unused(config: &Config) -> Result<Vec<String>> {
    const EXPECTED: &str = "the default for rows of features, which have no words and one label each";
    let beside = [
        ("data.target", !config.data.target.has_one_label(), config.data.target.name()),
        ("data.pair", config.data.pair.is_some(), "a column"),
        ("data.group", config.data.group.is_some(), "a column"),
        ("training.label_smoothing", config.training.label_smoothing.is_some(), "a share"),
        ("training.focal", config.training.focal > 0.0, "an exponent"),
        ("training.class_weights", !config.training.class_weights.is_empty(), "some"),
    ];
    if let Some((name, _, got)) = beside.into_iter().find(|(_, set, _)| *set) {
        return Err(Error::new(name, EXPECTED, got));
    }
    let (usual, mut ignored) = (Config::new(config.run.task), Vec::new());
    for key in Config::keys(config.run.task).map(|key| key.to_string()) {
        let (set, default) = (config.get(&key), usual.get(&key));
        if set == default || USED.contains(&key.as_str()) {
            continue;
        }
        let got = set.map_or_else(|| "none".to_owned(), |set| set.to_string());
        if key.starts_with("model.") {
            return Err(Error::new(key, EXPECTED, got));
        }
        if key.starts_with("text.") {
            ignored.push(format!("warning: `{key} = {got}` is ignored: rows of features have no words"));
        }
    }
    Ok(ignored)
}

struct RowSurvey<'a>(&'a Config);

impl<'a> TaskSurvey<'a> for RowSurvey<'a> {
    type Record = LabelledRow;
    type Model = Classifier;

    fn embedded(_: bool) -> Result<LabelledRows> {
        let expected = "a LIBSVM file, as `data.format` requires";
        Err(Error::new("data.train", expected, "none: no rows come with the program"))
    }

    fn open(path: &Path, (_, memory): Within<'_>, options: &ReadOptions) -> Result<Texts<LabelledRow>> {
        let all = within(path, options, memory)?;
        let columns = all.columns();
        all.classes()?;
        if !(1..=MOST).contains(&columns) {
            let what = format!("features in `{}`", all.name());
            let expected = format!("features with numbers up to {MOST}");
            let has = |row: &LabelledRow| row.indices.iter().any(|&index| index as usize >= MOST);
            let row = all.records().iter().position(has).map(|row| format!(" in row {}", row + 1));
            let got = format!("the largest number {columns}{}", row.unwrap_or_default());
            let error = Error::of(ErrorKind::Format, what, expected, got);
            return Err(error.noted(
                "rows are counted without blank lines and comments; number the features anew, without gaps",
            ));
        }
        Ok(Texts::Held(all))
    }

    fn open_dev(train: &Texts<LabelledRow>, path: &Path, (_, memory): Within<'_>) -> DevTexts<LabelledRow> {
        let (dev, dropped) = fitting(path, held(train)?.columns(), train.options(), memory)?;
        Ok((Texts::Held(dev), dropped))
    }

    fn begin(config: &'a Config, _: FirstRecords<'_, LabelledRow>, _: &Origin) -> Result<Self> {
        Ok(Self(config))
    }

    fn count(&mut self, row: &LabelledRow, portion: Portion, counts: &mut RecordCounts) {
        match portion {
            Portion::Train => counts.lengths.push(row.indices.len()),
            Portion::HeldOut | Portion::Dev => counts.dev += 1,
        }
    }

    fn end(self, texts: &mut TrainingTexts<'_, LabelledRow>, _: TokenCounts) -> Result<TaskNetwork> {
        let (config, train, dev) = (self.0, held(&texts.train)?, held(&texts.dev)?);
        let (columns, first) = (train.columns().max(dev.columns()), train.first_index());
        let labels = train.classes_with(dev)?;
        dev.records().iter().for_each(|row| texts.counts.held_out.add(|| case(row, first)));
        let trainer = network(config, columns, &labels, train.records().len())?;
        Ok(TaskNetwork {
            loaders: [loader(config, train, columns, &labels)?, loader(config, dev, columns, &labels)?],
            trainer: trainer.note(COLUMNS, columns.to_string()).note(FIRST, first.number().to_string()),
            metric: "accuracy",
            reading: None,
            known: [format!(" of {columns} features and {} labels", labels.len()), String::new()],
            messages: [Vec::new(), unused(config)?, Vec::new()],
        })
    }
}

/// Returns rows in memory: all functions of this file that open rows read them into memory.
fn held(rows: &Texts<LabelledRow>) -> Result<&LabelledRows> {
    match rows {
        Texts::Held(rows) => Ok(rows),
        Texts::InFiles(files, _) => Err(files.larger_than(0)),
    }
}

fn found(predictor: &Predictor, rows: &Variable) -> Result<Vec<f32>> {
    let found = predictor.run(&[(FEEDS[0], rows)], &[PROBABILITIES])?;
    let found = found.first().map(|found| found.as_slice::<f32>()).transpose()?;
    Ok(found.unwrap_or_default().to_vec())
}

fn sparse<'a>(columns: usize, rows: impl Iterator<Item = &'a LabelledRow>) -> Result<Variable> {
    let entries = rows.map(|row| row.indices.iter().copied().zip(row.values.iter().copied()));
    Variable::new(Csr::from_rows(columns, entries)?, None)
}

fn within(path: &Path, options: &ReadOptions, memory: DataMemory) -> Result<LabelledRows> {
    match RecordSource::read(&[path.to_owned()], options, memory.texts())? {
        RecordSource::Memory(rows) => Ok(rows),
        RecordSource::Files(files) => Err(files.larger_than(memory.texts())),
    }
}

/// Opens a file of rows, and drops the entries of features from `columns` on, which training never saw.
fn fitting(
    path: &Path,
    columns: usize,
    options: &ReadOptions,
    memory: DataMemory,
) -> Result<(LabelledRows, Option<String>)> {
    let mut rows = within(path, options, memory)?;
    let dropped = rows.drop_beyond(columns);
    let last = columns as i64 - 1 + rows.first_index().number();
    let message = format!(
        "{}: {dropped} entries beyond feature {last}, the last in training, are left out",
        rows.name()
    );
    Ok((rows, (dropped > 0).then_some(message)))
}

fn loader(config: &Config, rows: &LabelledRows, columns: usize, labels: &Vocabulary) -> Result<Loader> {
    Ok(batches(rows.loader(FEEDS, columns, unpadded_text::Target::Class(labels))?, config))
}

/// Returns the number of features and, 1 without a note, the index of the first feature from the notes of a model.
fn noted(known: &Predictor) -> Result<(usize, FirstIndex)> {
    let wrong = |note: &str, expected: &str, got: &str| {
        Error::of(ErrorKind::Format, format!("note `{note}` of the checkpoint"), expected, got)
    };
    let columns = known.note(COLUMNS).and_then(|columns| columns.parse().ok());
    let columns = columns.ok_or_else(|| wrong(COLUMNS, "a number", "none"))?;
    let Some(note) = known.note(FIRST) else { return Ok((columns, FirstIndex::One)) };
    let first = note.parse().ok().and_then(FirstIndex::of_number);
    Ok((columns, first.ok_or_else(|| wrong(FIRST, "0 or 1", &format!("`{note}`")))?))
}

/// Returns a row as a text of its entries, as in a line of the file, with the label as its right answer.
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
    // The product of a sparse row and a table is the sum of the features' vectors, each times the feature's value.
    let vectors = Linear::new(model.embedding).without_bias().weight_init(init::normal(0.1)).named("vectors");
    let deep = features.linear(vectors).dropout(model.dropout).linear(model.hidden).relu();
    let logits = wide + deep.linear(Linear::new(labels.len()).named(LABELS));
    let loss = logits.cross_entropy(label).mean();
    let logits = net::of_trained(&net, logits, (LABELS, labels));
    let probabilities = logits.softmax();
    let trainer = net::trainer(net, loss, config, net::steps(config, rows))?;
    Ok(trainer
        .metric(Accuracy::new(logits, label))
        .output(PROBABILITIES, probabilities)
        .vocabulary(LABELS, labels.clone()))
}

/// Parses lines, with or without a label, to rows; entries of features that training never saw are dropped.
fn fed(predictor: &Predictor, lines: &[&str]) -> Result<Variable> {
    let (columns, first) = noted(predictor)?;
    let row = |line: &&str| {
        let unlabelled = line.split_ascii_whitespace().next().is_none_or(|cell| cell.contains(':'));
        let line = if unlabelled { format!("0 {line}") } else { (*line).to_owned() };
        Ok(LabelledRow::of_line(&line, first)?.unwrap_or_default())
    };
    let mut rows = LabelledRows::new("lines", lines.iter().map(row).collect::<Result<Vec<_>>>()?);
    rows.drop_beyond(columns);
    sparse(columns, rows.records().iter())
}
