//! Whole tasks from a config: text classification, tagging, language modelling and translation. The recipes use only
//! the public interfaces of `unpadded` and `unpadded_text`; the folder `models/` of the repository has models written in Rust.
//!
//! [`Config`] has the settings of a task. [`prepare`] reads the texts and builds the model with its [`Trainer`].
//! [`Model`] is loaded from the saved checkpoint alone, and answers texts:
//!
//! ```no_run
//! use unpadded_recipes::{Config, Model, Task, prepare};
//! use unpadded::train::Until;
//! let mut config = Config::new(Task::Classify);
//! config.data.train = Some("reviews.tsv".into()); // text<TAB>label
//! let mut prepared = prepare(&config)?;
//! prepared.trainer = prepared.trainer.checkpoint("reviews.ckpt");
//! prepared.trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(config.training.epochs))?;
//!
//! let model = Model::load("reviews.ckpt")?;
//! for answer in model.predict(&["What a film!", "Dull."])? {
//!     println!("{answer}");
//! }
//! # Ok::<(), unpadded::Error>(())
//! ```

mod aligned;
mod answer;
mod answer_json;
mod by_length;
mod byte_size;
mod classify;
mod compare;
mod config;
mod config_file;
mod embedded;
mod encoder;
mod evaluation;
pub mod guide;
mod labels;
mod lm;
mod model;
mod net;
mod portions;
mod prepare;
mod prose;
mod recipe;
mod rows;
mod sample;
mod sections;
mod settings;
mod space;
mod started;
mod tag;
mod tag_scores;
mod tasks;
mod text_scores;
mod text_session;
mod texts;
mod training;
mod translate;
mod vote;
mod weigh;

pub use aligned::{Aligner, Alignment};
pub use answer::{Answer, AnswerBatch, Entity};
pub use answer_json::AnswerJson;
pub use by_length::{ByLength, LengthRange};
pub use byte_size::ByteSize;
pub use compare::{Disagreement, ModelComparison, ModelDifference};
pub use config::{Config, nearest};
pub use evaluation::{
    Confusion, ConfusionCount, Evaluation, Figure, ScoreRow, ScoreTable, TranslatedText, UnseenLabel,
};
pub use model::Model;
pub use portions::ClassCount;
pub use recipe::Preview;
pub use sections::{
    Average, BatchRule, Cell, DataConfig, DecodingConfig, ModelConfig, Pooling, RateSchedule, RunConfig,
    Sentences, Tables, Target, Task, TextConfig, Tokens, TrainingConfig,
};
pub use settings::{SettingKey, Value};
pub use space::Space;
pub use text_session::TextSession;
pub use training::{Case, HeldOutScorer, HeldOutTexts, Preparation, TestData, Truth};
pub use weigh::Weigher;

use std::path::Path;

use unpadded::checkpoint::Checkpoint;
use unpadded::data::Data;
use unpadded::metrics::Metric;
use unpadded::op::MatrixUnit;
use unpadded::predict::Predictor;
use unpadded::train::Trainer;
use unpadded::{AtCaller, Error, Precision, Result, ops};

use recipe::{TestCheck, TestFile};
use training::{CONFIG, TASK};

/// Reads the texts of a config, and builds the model and its trainer.
///
/// # Errors
/// If the config is invalid, or if the texts cannot be read or do not fit the task. The test texts are also read and
/// checked, in the same way as by [`scores`].
#[track_caller]
pub fn prepare(config: &Config) -> Result<Preparation> {
    memory_limit(config, None).and_then(|memory| prepare_by(config, None, memory, false)).at_caller()
}

/// Prepares a training as [`prepare`] does, to check its data. If the texts are too few to hold some out, all texts are both the
/// training and the development data; if no token occurs `text.min_count` times, too, all tokens are known. The second result is
/// then the error that [`prepare`] returns.
///
/// # Errors
/// The errors of [`prepare`], except that there are too few texts.
#[track_caller]
pub fn check_data(config: &Config) -> Result<(Preparation, Option<Error>)> {
    let memory = memory_limit(config, None).at_caller()?;
    match prepare_by(config, None, memory, false) {
        Ok(prepared) => Ok((prepared, None)),
        Err(e) if training::is_too_few(&e) => {
            let (mut all, prepared) = (config.clone(), prepare_by(config, None, memory, true));
            all.text.min_count = 1;
            let is_short = prepared.as_ref().is_err_and(training::is_too_few);
            let prepared = if is_short { prepare_by(&all, None, memory, true) } else { prepared };
            prepared.map(|prepared| (prepared, Some(e))).at_caller()
        }
        Err(e) => Err(e).at_caller(),
    }
}

/// Prepares a training as [`prepare`] does, so that [`Trainer::resume`] can continue it from `checkpoint`. If the training was
/// started from another model (`training.from`), the other model is not read again: `checkpoint` has everything that was copied
/// from the other model. The memory limit of the checkpoint decides which data are in memory.
///
/// # Errors
/// The errors of [`prepare`]; also if `checkpoint` cannot be read.
#[track_caller]
pub fn prepare_resumed(config: &Config, checkpoint: impl AsRef<Path>) -> Result<Preparation> {
    let resumed = Some(checkpoint.as_ref());
    memory_limit(config, resumed).and_then(|memory| prepare_by(config, resumed, memory, false)).at_caller()
}

/// Prepares a training within a given memory limit. Without a checkpoint `resumed`, the function works as [`prepare`] does.
/// With `resumed`, it works as [`prepare_resumed`] does. `memory` is the limit in bytes that [`memory_limit`] returns; it
/// decides which data are in memory. All processes of a distributed training must pass the same limit. A process reads
/// `resumed` only if the training was started from another model (`training.from`).
///
/// # Errors
/// The errors of [`prepare_resumed`].
#[track_caller]
pub fn prepare_within(config: &Config, resumed: Option<&Path>, memory: u64) -> Result<Preparation> {
    prepare_by(config, resumed, memory, false).at_caller()
}

fn prepare_by(config: &Config, resumed: Option<&Path>, memory: u64, too_few: bool) -> Result<Preparation> {
    config.check()?;
    check_precision(config)?;
    let mut paths = training::Paths::of(config)?;
    let from = started::Origin::of(config, resumed)?;
    paths.from = from.clone();
    paths.memory = training::DataMemory(memory);
    if let Some(fold) = config.data.fold {
        let refused = |expected: &str, got: String| {
            Err(Error::new("data.fold", expected, format!("\"{fold}\" and {got}")))
        };
        if let Some(dev) = &paths.dev {
            let expected = "none beside a development part, since each fold is held out; let `data.train` name only the training file";
            return refused(expected, format!("`{}`", dev.display()));
        }
        if let Some(window) = config.data.window {
            return refused("none beside `data.window`: folds are of texts in memory", format!("{window}"));
        }
    }
    if let Some(group) = &config.data.group {
        let got = match (&paths.train, &paths.dev) {
            (_, Some(dev)) => Some(format!("`{group}` and `{}`", dev.display())),
            (None, None) => Some(format!("`{group}`, and the texts that come with the program")),
            (Some(_), None) => None,
        };
        if let Some(got) = got {
            let expected =
                "none unless a part of `data.train` is held out: groups only decide which texts are held out";
            return Err(Error::new("data.group", expected, got));
        }
    }
    if too_few {
        (paths.too_few, paths.dev) = (true, paths.train.clone());
    }
    let left_out = paths.left_out();
    let mut prepared = (config.run.task.recipe().prepare)(config, paths)?;
    let (trainer, copied) = from.start(prepared.trainer, config.run.task)?;
    prepared.messages.extend(copied.into_iter().chain(left_out));
    let trainer = trainer.threads(config.run.threads).select(prepared.metric).change_rate();
    let trainer = trainer.note(TASK, config.run.task.name()).note(CONFIG, config.to_toml());
    let trainer = config.training.parts.into_iter().fold(trainer, Trainer::parts);
    let trainer = if config.training.tables == Tables::Dealt { trainer.deal_tables() } else { trainer };
    let trainer = match config.training.precision {
        Precision::F32 => trainer,
        precision => trainer.precision(precision),
    };
    let trainer = if config.training.allow_slow { trainer.allow_slow() } else { trainer };
    let unit = trainer.unit();
    if unit != MatrixUnit::F32 {
        let slowly = format!(", by {}, more slowly than in f32", unit.instructions());
        prepared
            .messages
            .push(format!("matrix products in {unit}{}", if unit.is_fast() { "" } else { &slowly }));
    }
    prepared.trainer =
        config.run.memory.into_iter().fold(trainer, |trainer, size| trainer.memory_limit(size.bytes()));
    if let Some(path) = &prepared.test.clone() {
        let known = Predictor::new(prepared.trainer.for_inference()?, &ops::catalogue())?;
        let path = unpadded_text::text_of_path(path);
        let facts = std::mem::take(&mut prepared.facts);
        let file = &TestFile { path: &path, config, known: &known };
        let TestCheck { read, warnings, skipped } = (config.run.task.recipe().check)(file, &facts)?;
        let otherwise = read.into_iter().filter(|line| !prepared.messages.contains(line));
        let otherwise: Vec<String> = otherwise.map(|line| format!("{path}: {line}")).collect();
        prepared.messages.extend(otherwise.into_iter().chain(warnings));
        prepared.skipped.extend(skipped);
    }
    Ok(prepared)
}

fn check_precision(config: &Config) -> Result<()> {
    let precision = config.training.precision;
    if config.training.allow_slow || MatrixUnit::of_cpu(precision).is_some() {
        return Ok(());
    }
    let got = format!("`{precision}` on this CPU, which has no such unit");
    let note =
        "with `training.allow_slow = true`, the training runs more slowly than in f32, with the same results";
    Err(Error::new("training.precision", format!("`f32`, or {}", MatrixUnit::FAST_CPU), got).noted(note))
}

/// Returns the memory limit of a training in bytes. If there is a training checkpoint `resumed`, the result is the limit in the
/// checkpoint, because the training has divided its batches by this limit so far. Otherwise, the result is the setting
/// `memory`. If `memory` is not set, the result is 80 % of the memory of the machine or container.
///
/// # Errors
/// If the checkpoint cannot be read.
#[track_caller]
pub fn memory_limit(config: &Config, resumed: Option<&Path>) -> Result<u64> {
    let decided = resumed.map(Checkpoint::position_in).transpose().at_caller()?.map(|at| at.memory);
    let set = config.run.memory.or_else(ByteSize::of_machine).map(ByteSize::bytes);
    Ok(decided.filter(|&bytes| bytes > 0).or(set).unwrap_or(u64::MAX))
}

/// Completes the checkpoint of a finished training for prediction. For a classifier with several labels per text, the function
/// chooses the thresholds of the labels on `dev`, as `decoding.threshold` sets, and stores them in notes of the checkpoint. The
/// model then has the F1 on `dev` by which the training chose the best epoch. Tables that were dealt to processes become dense.
///
/// # Errors
/// If the batches of `dev` cannot be read, or do not fit the model; if a table does not fit into memory.
#[track_caller]
pub fn finished(checkpoint: Checkpoint, dev: &dyn Data) -> Result<Checkpoint> {
    checkpoint.dense_tables().and_then(|checkpoint| classify::finished(checkpoint, dev)).at_caller()
}

/// Reads the first records of the training data, even if the data have too few records to train on.
///
/// # Errors
/// If `data.train` is not set, or if the data cannot be read or do not fit the task.
#[track_caller]
pub fn preview(config: &Config) -> Result<Preview> {
    let paths = training::Paths::of(config).at_caller()?;
    let Some(path) = paths.train else {
        return Err(Error::new("data.train", "a path", "none"));
    };
    (config.run.task.recipe().preview)(config, &path).at_caller()
}

/// Returns the texts of `data.test` as batches for [`Predictor::evaluate`](unpadded::predict::Predictor::evaluate), with
/// the tokenizer and the vocabularies of the model. Settings in the config decide how the file is read; without a
/// setting, the file is read as the model's training files were.
///
/// # Errors
/// If the texts cannot be read or do not fit the task of the model, or if the model does not know a label or tag.
#[track_caller]
pub fn test_data(config: &Config, model: &Model) -> Result<TestData> {
    let path = config.data.test.as_deref().unwrap_or_default();
    model.data(config, path).at_caller()
}

/// Scores a model on the texts of `data.test`; the file is read as by [`test_data`].
///
/// | task | figures: the loss, then the headline, then others |
/// |---|---|
/// | `classify` | accuracy: right / texts; macro F1: the mean over labels of F1 = 2 · right / (predicted + true); weighted F1: the mean weighted by the number of texts with the label |
/// | `classify`, several labels | micro F1: 2 · hits / (true + predicted) over all labels; macro F1: the mean over labels; exact match: the share of texts whose labels are all right |
/// | `classify`, numbers | mean squared error, mean absolute error, Spearman and Pearson correlation |
/// | `tag`, chunks | chunk F1 as conlleval counts (Tjong Kim Sang and Buchholz, 2000); strict chunk F1, over chunks in the exact spelling of the scheme; token accuracy |
/// | `tag`, plain tags | token accuracy: tags that are right / tokens; macro F1 over tags |
/// | `tag` with labels | also label accuracy, and frame accuracy: texts whose label and tags are all right |
/// | `translate` | BLEU and chrF2 as sacreBLEU computes them (Post, 2018); word error rate: edits / words of the reference; exact match |
/// | `translate` from characters to tokens | phoneme error rate: edits / tokens of the reference; word error rate: the share of words that are not exactly right |
/// | `lm` | bits per character or perplexity = exp(mean −ln p of a token); bits per byte |
///
/// An error rate without a word or token in the references is NaN, and a note has the number of insertions.
///
/// `loss` is the mean −ln p of the right labels or tokens, without label smoothing. For `tag`, `loss` is the training loss. A
/// label or tag that training never saw is left out of the loss, and scored as wrong. [`Evaluation::unseen`] lists these labels
/// and tags with their locations. If the file has several targets for a source text, each target is a reference translation.
///
/// # Errors
/// If the texts cannot be read or do not fit the task of the model, or if the file has no text.
#[track_caller]
pub fn scores(config: &Config, model: &Model) -> Result<Evaluation> {
    let path = config.data.test.as_deref().unwrap_or_default();
    model.scores(config, path, &mut |_| ()).at_caller()
}

/// Scores a model as [`scores`] does, and adds a figure with its 95 % interval for each metric of your own.
///
/// A metric reads variables of the model: outputs and feeds ([`Predictor::variable`](unpadded::predict::Predictor::variable)). Its
/// sums are computed for each text by itself, and the texts are resampled as for every other figure (for `lm`, the windows of
/// text). A metric with more than 200 sums has no interval. For `translate`, the texts are pairs of a source and a target.
///
/// ```no_run
/// use unpadded::metrics::Accuracy; // or a metric of your own
/// use unpadded_recipes::{Config, Model, Task, scores_with};
/// let (mut config, model) = (Config::new(Task::Classify), Model::load("runs/reviews/best.ckpt")?);
/// config.data.test = Some("test.tsv".to_owned());
/// let var = |name| model.predictor().variable(name);
/// let own = Accuracy::new(var("probabilities")?, var("label")?).named("my accuracy");
/// let scored = scores_with(&config, &model, &[&own])?;
/// println!("{:?}", scored.figures.last());
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// # Errors
/// The errors of [`scores`] and of [`test_data`]; also if a metric does not fit the model.
#[track_caller]
pub fn scores_with(config: &Config, model: &Model, metrics: &[&dyn Metric]) -> Result<Evaluation> {
    let mut scored = scores(config, model)?;
    let mut samples = vec![sample::Bootstrap::default(); metrics.len()];
    let mut add = |sums: &[Vec<f64>]| {
        samples.iter_mut().zip(sums).for_each(|(sample, sums)| sample.add((0..).zip(sums.iter().copied())));
    };
    model.predictor().evaluate_each(&*test_data(config, model)?.data, metrics, &mut add).at_caller()?;
    metrics.iter().zip(&samples).for_each(|(metric, sample)| scored.push_metric(*metric, sample));
    Ok(scored)
}

/// Compares each later model with the first model on the texts of `data.test`. The comparison has the texts with different
/// answers, and the p value of a paired bootstrap test of the headline figure (1,000 samples; Riezler and Maxwell, 2005).
///
/// # Errors
/// The errors of [`scores`]; also if the models have different tasks.
#[track_caller]
pub fn compare(runs: &[(&Config, &Model)]) -> Result<ModelComparison> {
    compare::compare(runs).at_caller()
}
