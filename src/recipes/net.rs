//! The parts that the networks of the recipes share.

use ndarray::Array2;

use super::config::{Cell, Config, ModelConfig, Pooling};
use super::started;
use crate::data::memory;
use crate::data::{Limits, Vocabulary, WordVectors};
use crate::error::{Error, ErrorKind, Result};
use crate::layers::{Gru, Lstm, RecurrentLayer, Rnn, Stacked};
use crate::ops::Pool;
use crate::optimizer::{Adam, Schedule};
use crate::program::{Builder, Var};
use crate::train::Trainer;

/// The states of the recurrent layers after each token.
pub(super) fn states(x: Var, model: &ModelConfig) -> Var {
    fn stacked<L: RecurrentLayer>(x: Var, layer: L, model: &ModelConfig) -> Var {
        let layers = Stacked::new(layer, model.layers).dropout(model.dropout);
        x.stacked(if model.bidirectional { layers.bidirectional() } else { layers })
    }
    match model.cell {
        Cell::Lstm => stacked(x, Lstm::new(model.hidden), model),
        Cell::Gru => stacked(x, Gru::new(model.hidden), model),
        Cell::Rnn => stacked(x, Rnn::new(model.hidden), model),
    }
}

/// Word vectors, and beside them the states of the language model below that reads them, if there is one (Peters et al., "Semi-supervised
/// sequence tagging with bidirectional language models", 2017).
pub(super) fn over_lm(net: &Builder, vectors: Var, below: Option<&ModelConfig>) -> Var {
    let Some(model) = below else { return vectors };
    let layer = |h: Var, at: usize| {
        let name = &started::layer(at);
        match model.cell {
            Cell::Lstm => h.lstm(Lstm::new(model.hidden).named(name)),
            Cell::Gru => h.gru(Gru::new(model.hidden).named(name)),
            Cell::Rnn => h.rnn(Rnn::new(model.hidden).named(name)),
        }
    };
    net.concat(&[vectors, (0..model.layers).fold(vectors, layer)])
}

/// One row a text, and the weights of its tokens if attention picks them.
pub(super) fn pooled(net: &Builder, states: Var, model: &ModelConfig) -> (Var, Option<Var>) {
    match model.pool {
        Pooling::Last if model.bidirectional => {
            // The backward layers have read all of a text at its first token.
            let (forth, back) = (states.slice(0..model.hidden), states.slice(model.hidden..2 * model.hidden));
            (net.concat(&[forth.sequence_pool(Pool::Last), back.sequence_pool(Pool::First)]), None)
        }
        Pooling::Last => (states.sequence_pool(Pool::Last), None),
        Pooling::Max => (states.sequence_pool(Pool::Max), None),
        Pooling::Mean => (states.sequence_pool(Pool::Mean), None),
        Pooling::Attention => {
            // Lin et al., "A structured self-attentive sentence embedding", 2017.
            let weights = states.linear(64).tanh().linear(1).sequence_softmax();
            ((states * weights).sequence_pool(Pool::Sum), Some(weights))
        }
    }
}

/// A trainer of `loss` with the optimizer of all recipes, for `steps` steps.
///
/// # Errors
/// As [`Trainer::new`]; if the parameters take more memory than there is.
pub(super) fn trainer(net: Builder, loss: Var, config: &Config, steps: usize) -> Result<Trainer> {
    // Of a program that is not right, the trainer says what is wrong.
    let Ok(program) = net.program() else { return Trainer::new(net, loss, &adam(config, steps)) };
    fits(program.parameter_count(), memory::available())?;
    let groups = started::groups(config, &program, steps);
    Trainer::new(net, loss, &groups.into_iter().fold(adam(config, steps), Adam::group))
}

/// Checks that the parameters fit into memory.
fn fits(parameters: u128, available: Option<u64>) -> Result<()> {
    // Each with its gradient and two moments, in f32.
    let bytes = parameters.saturating_mul(16);
    match available {
        Some(available) if bytes > u128::from(available) => {
            let expected = format!("at most {} for them, as is available", memory::shown(available.into()));
            let got = format!(
                "{parameters} parameters, which take {} with gradients and moments; `model.hidden`, `model.embedding`, \
                 `model.layers` and `text.max_size` make fewer",
                memory::shown(bytes)
            );
            Err(Error::new("memory of the model's parameters", expected, got))
        }
        _ => Ok(()),
    }
}

fn adam(config: &Config, steps: usize) -> Adam {
    let training = &config.training;
    let adam = Adam::new(training.rate).lazy().clip_global_norm(training.clip);
    if training.cosine {
        adam.schedule(Schedule::cosine_to(steps.max(1), training.rate / 100.0))
    } else {
        adam
    }
}

/// How many steps all epochs have.
pub(super) fn steps(config: &Config, texts: usize) -> usize {
    (config.training.epochs as usize).saturating_mul(texts.div_ceil(config.training.batch))
}

/// Names the settings behind a vocabulary into which no token got.
pub(super) fn known(found: Result<Vocabulary>, config: &Config) -> Result<Vocabulary> {
    found.map_err(|e| match e.kind() {
        ErrorKind::Mismatch => {
            let text = &config.text;
            let cut = match text.tokens.filter(|_| Config::has(config.run.task, "text.tokens")) {
                Some(tokens) => format!(", or cut text otherwise: `text.tokens` is `{}`", tokens.name()),
                None => String::new(),
            };
            e.noted(format!("use more text, lower `text.min_count` (it is {}){cut}", text.min_count))
        }
        // A file that cannot be read has nothing to do with them.
        _ => e,
    })
}

pub(super) fn limits(config: &Config, specials: &[&str]) -> Limits {
    Limits {
        min_count: config.text.min_count as u64,
        max_size: config.text.max_size.unwrap_or(Limits::default().max_size),
        specials: specials.iter().map(|&special| special.to_owned()).collect(),
        base: None,
    }
}

/// The parameter with the words' vectors.
pub(super) const TABLE: &str = "words.weight";

/// Starts the words' vectors from a file, if the config names one; says how much of the running words it has.
pub(super) fn vectors(config: &Config, trainer: &mut Trainer, words: &Vocabulary) -> Result<Option<String>> {
    let Some(path) = &config.text.vectors else { return Ok(None) };
    let found = WordVectors::open(path, words)?;
    if found.width() != config.model.embedding {
        let expected = format!("{}, as `{path}` has", found.width());
        return Err(Error::new("model.embedding", expected, config.model.embedding.to_string()));
    }
    // Words that the file does not have start as they would without it.
    let mut table = Array2::zeros((words.len(), found.width()));
    let drawn = trainer.scope().value(TABLE)?;
    table.iter_mut().zip(drawn.as_dense()?.as_slice::<f32>()?).for_each(|(to, x)| *to = *x);
    found.fill(&mut table)?;
    trainer.set_parameter(TABLE, table)?;
    // The unknown one was counted for all that are not known.
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
        let said = fits((1 << 20) + 1, Some(1 << 24)).unwrap_err().to_string();
        assert!(
            said.contains("expected at most 16 MiB for them") && said.contains("`model.hidden`"),
            "{said}"
        );
    }
}
