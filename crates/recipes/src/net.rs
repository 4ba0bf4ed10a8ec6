//! Layers and optimizers that the networks of all recipes share.

use unpadded::data::{Limits, TokenCounts, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, init};
use unpadded::ndarray::Array2;
use unpadded::ops::CrossEntropy;
use unpadded::optimizer::{AnyOptimizer, Group, Schedule, SparseMode};
use unpadded::train::{Averaging, Plateau, Trainer};
use unpadded::{Builder, DType, Error, ErrorKind, Result, Var, memory};
use unpadded_text::{WordVectors, path_of_text};

use super::config::Config;
use super::sections::{Average, ModelConfig, RateSchedule, Tables, TrainingConfig, label_smoothing};
use super::started::{self, Origin, Table};
use super::training::too_few;

/// Applies word dropout: in training, sets a share `rate` of the vectors to zero, each vector as a whole.
pub(super) fn without_some(vectors: Var, rate: f64) -> Var {
    match rate {
        0.0 => vectors,
        // The mask is drawn once per row, as a column of width 1.
        rate => vectors * vectors.slice(0..1).fill_like(1.0).dropout(rate),
    }
}

pub(super) fn dropped(vectors: Var, model: &ModelConfig) -> Var {
    without_some(vectors, model.word_dropout).dropout(embedding_dropout(model))
}

/// Returns the dropout rate of token vectors: `model.embedding_dropout` or, if it is not set, `model.dropout`.
pub(super) fn embedding_dropout(model: &ModelConfig) -> f64 {
    model.embedding_dropout.unwrap_or(model.dropout)
}

/// Returns a trainer that minimizes `loss` over `steps` steps; an error, if the parameters exceed the available memory.
pub(super) fn trainer(net: Builder, loss: Var, config: &Config, steps: usize) -> Result<Trainer> {
    // An invalid program is skipped here: `Trainer::new` below returns its error.
    let mut groups = Vec::new();
    if let Ok(program) = net.program() {
        fits(program.parameter_count(), memory::available())?;
        groups = started::groups(config, &program, steps);
    }
    let trainer = Trainer::new(net, loss, &optimizer(config, groups, steps))?;
    Ok(paced(trainer, &config.training, steps / (config.training.epochs as usize).max(1)))
}

fn fits(parameters: u128, available: Option<u64>) -> Result<()> {
    // A parameter takes 16 bytes: the value, the gradient and two moments of the optimizer, each an `f32`.
    let bytes = parameters.saturating_mul(16);
    match available {
        Some(available) if bytes > u128::from(available) => {
            let expected = format!("at most {}, the available memory", memory::shown(available.into()));
            let got = format!(
                "{parameters} parameters, which take {} with gradients and moments; smaller `model.hidden`, `model.embedding`, `model.layers` or `text.max_size` reduce the number",
                memory::shown(bytes)
            );
            Err(Error::new("memory of the model's parameters", expected, got))
        }
        _ => Ok(()),
    }
}

fn schedule(training: &TrainingConfig, steps: usize) -> Schedule {
    let least = training.rate / 100.0;
    let behind = steps.saturating_sub(training.warm_up).max(1);
    let epoch = (steps / (training.epochs as usize).max(1)).max(1);
    let schedule = match training.schedule {
        RateSchedule::Constant | RateSchedule::Plateau => Schedule::constant(),
        RateSchedule::Cosine => Schedule::cosine_to(behind, least),
        RateSchedule::Linear => Schedule::linear_to(behind, least),
        RateSchedule::InverseSqrt => Schedule::inverse_sqrt(training.warm_up.max(epoch)),
        RateSchedule::OneCycle => Schedule::one_cycle(behind, 0.3),
        RateSchedule::Halve => {
            let start = epoch.saturating_mul(training.halve_after as usize);
            Schedule::step_after(start.saturating_sub(training.warm_up), epoch, 0.5)
        }
    };
    if training.warm_up > 0 { schedule.warm_up(training.warm_up) } else { schedule }
}

fn optimizer(config: &Config, groups: Vec<Group>, steps: usize) -> AnyOptimizer {
    let training = &config.training;
    let mut optimizer = training.optimizer.at_rate(training.rate);
    let attributes = &mut optimizer.rule.attributes;
    training.weight_decay.into_iter().for_each(|decay| attributes.set("weight_decay", decay));
    if training.momentum > 0.0 {
        attributes.set("momentum", training.momentum);
    }
    let options = &mut optimizer.options;
    options.mode = SparseMode::Lazy;
    options.max_norm = Some(training.clip);
    options.schedule = schedule(training, steps);
    options.groups = groups;
    if config.text.freeze {
        options.groups.push(Group::of([TABLE]).rate(0.0).weight_decay(0.0));
    }
    optimizer
}

fn paced(mut trainer: Trainer, training: &TrainingConfig, epoch: usize) -> Trainer {
    let since = epoch.saturating_mul(training.averaging_from as usize) as u64;
    let averaging = match training.averaging {
        Average::None => None,
        Average::Ema => Some(Averaging::ema(training.averaging_decay)),
        Average::Mean => Some(Averaging::mean()),
    };
    trainer = averaging.into_iter().fold(trainer, |trainer, average| trainer.averaged(average.since(since)));
    if training.schedule == RateSchedule::Plateau {
        trainer = trainer.plateau(Plateau::new(0.5).patience(training.halve_after));
    }
    if training.patience > 0 { trainer.patience(training.patience) } else { trainer }
}

/// Subtracts 10⁹ from the scores of classes without training texts, so that none is predicted; losses take the scores before.
pub(super) fn of_trained(net: &Builder, scores: Var, (name, classes): (&str, &Vocabulary)) -> Var {
    let bias = |id| if classes.count(id) > 0 { 0.0 } else { -1e9 };
    let values: Vec<f64> = (0..classes.len() as i64).map(bias).collect();
    if values.iter().all(|value| *value == 0.0) {
        return scores;
    }
    // The initializer has a value for each number of the parameter.
    let untrained =
        net.parameter(&format!("untrained.{name}"), DType::F32, &[values.len()], init::gate_biases(&values));
    net.stop_gradient(untrained);
    scores + untrained
}

/// Returns the cross-entropy of each row with label smoothing; `None` if the config has no label smoothing.
pub(super) fn smoothed(logits: Var, labels: Var, config: &Config) -> Option<Var> {
    let rate = label_smoothing(config);
    let options = CrossEntropy::default().label_smoothing(rate);
    (rate > 0.0).then(|| logits.cross_entropy_with(labels, options).0)
}

/// Returns a table of token vectors. Its gradients are sparse, unless averaging changes every row in each step.
pub(super) fn table(tokens: usize, name: &str, config: &Config) -> Embedding {
    let table = Embedding::new(tokens, config.model.embedding).named(name);
    match (config.training.tables, config.training.averaging) {
        (Tables::Dealt, _) => table.row_sparse(),
        (Tables::Whole, Average::None) => table.sparse(),
        (Tables::Whole, _) => table,
    }
}

pub(super) fn steps(config: &Config, texts: usize) -> usize {
    (config.training.epochs as usize).saturating_mul(texts.div_ceil(config.training.batch))
}

/// Returns the vocabulary of counted tokens, which keeps the tokens of the model that the training starts from.
pub(super) fn vocabulary(
    (tokenizer, counted): (&Tokenizer, TokenCounts),
    specials: &[&str],
    (from, table): (&Origin, &Table),
    (config, name): (&Config, &str),
) -> Result<Vocabulary> {
    let found = tokenizer.vocabulary_of(counted, &from.grows(limits(config, specials), table));
    known(found.map_err(|e| e.noted(format!("in `{name}`"))), config)
}

/// Adds a hint to the error about a vocabulary without tokens: the settings that would keep more tokens.
pub(super) fn known(found: Result<Vocabulary>, config: &Config) -> Result<Vocabulary> {
    found.map_err(|e| match e.kind() {
        ErrorKind::Mismatch => {
            let text = &config.text;
            let tokenizer = match text.tokens.filter(|_| Config::has(config.run.task, "text.tokens")) {
                Some(tokens) => format!(", or change `text.tokens` (it is `{}`)", tokens.name()),
                None => String::new(),
            };
            let hint = format!("use more text, lower `text.min_count` (it is {}){tokenizer}", text.min_count);
            too_few(e).noted(hint)
        }
        // Other errors, such as an unreadable file, get no note about these settings.
        _ => e,
    })
}

pub(super) fn limits(config: &Config, specials: &[&str]) -> Limits {
    let limits = Limits::default().min_count(config.text.min_count as u64).specials(specials.iter().copied());
    config.text.max_size.into_iter().fold(limits, Limits::max_size)
}

/// The name of the layer that has the word vectors. `TABLE` is the name of the parameter with the word vectors.
pub(super) const WORDS: &str = "words";
pub(super) const TABLE: &str = "words.weight";

/// Copies the vectors of `text.vectors` into the model. Returns a line with the share of running words that have a vector.
pub(super) fn vectors(config: &Config, trainer: &mut Trainer, words: &Vocabulary) -> Result<Option<String>> {
    let path = config.text.vectors.as_ref().filter(|_| Config::has(config.run.task, "text.vectors"));
    let Some(path) = path else { return Ok(None) };
    let found = WordVectors::open(path_of_text(path), words)?;
    if found.width() != config.model.embedding {
        let expected = format!("{}, as `{path}` has", found.width());
        return Err(Error::new("model.embedding", expected, config.model.embedding.to_string()));
    }
    // A word that has no vector in the file keeps its random vector.
    let mut table = Array2::zeros((words.len(), found.width()));
    let drawn = trainer.scope().value(TABLE)?;
    table.iter_mut().zip(drawn.as_dense()?.as_slice::<f32>()?).for_each(|(to, x)| *to = *x);
    found.fill(&mut table)?;
    trainer.set_parameter(TABLE, table)?;
    // The unknown token has the count of all unknown words, so the sum of all counts is the number of running words.
    let running: u64 = (0..words.len() as i64).map(|id| words.count(id)).sum();
    let known = found.vectors().filter(|(id, _)| Some(*id) != words.unknown());
    let covered: u64 = known.map(|(id, _)| words.count(id)).sum();
    let share = 100.0 * covered as f64 / running.max(1) as f64;
    Ok(Some(format!("{found}: {share:.1} % of the running words")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_larger_than_memory_is_refused() {
        assert!(fits(1 << 20, Some(1 << 24)).is_ok() && fits(u128::MAX, None).is_ok());
        let message = fits((1 << 20) + 1, Some(1 << 24)).unwrap_err().to_string();
        assert!(
            message.contains("expected at most 17 MB, the available memory")
                && message.contains("`model.hidden`"),
            "{message}"
        );
    }
}
