//! Computes the attention of each token of a translation to the tokens of the source text.

use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Tokenizer, Vocabulary};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::ndarray::Array2;
use unpadded::op::{Attributes, Operand};
use unpadded::program::VarId;
use unpadded::{AtCaller, Builder, Error, ErrorKind, Lod, Result, Variable, ops};

use super::config::Config;
use super::sections::Task;
use super::training::{TARGET_TOKENIZER_NOTE, TASK, TOKENIZER_NOTE};
use super::translate::{ENDS, FEEDS, KNOWN, layers};

/// An aligner of translations with their source texts, by the attention weights of a trained translator (Bahdanau, Cho
/// and Bengio, 2015). The program in a checkpoint does not output attention weights; so the aligner builds another
/// program, and copies the parameters from the checkpoint.
pub struct Aligner {
    executor: Executor,
    scope: Scope,
    known: [Vocabulary; 2],
    cuts: [Tokenizer; 2],
    feeds: [VarId; 2],
    /// The queries of the attention, one row per written token, and its keys, one row per source token.
    looked: [VarId; 2],
    /// The values of the parameter `v` of additive attention, which scores each pair of a query and a key.
    score: Vec<f32>,
}

/// An alignment: the attention of each written token to all source tokens.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Alignment {
    /// The tokens of the source text.
    pub source: Vec<String>,
    /// The tokens of the translation.
    pub written: Vec<String>,
    /// For each written token, the attention weights of all source tokens; the weights of a written token sum to 1. The
    /// list is empty if the source or the translation has no token.
    pub weights: Vec<Vec<f32>>,
}

impl Aligner {
    /// Returns an aligner for a checkpoint of the recipe `translate` that was trained with this config.
    ///
    /// # Errors
    /// If the checkpoint belongs to a recipe other than `translate`, has no attention, or lacks a vocabulary, a feed
    /// or a parameter of the model in the config.
    #[track_caller]
    pub fn new(config: &Config, checkpoint: Checkpoint, threads: usize) -> Result<Self> {
        Self::of(config, checkpoint, threads).at_caller()
    }

    fn of(config: &Config, checkpoint: Checkpoint, threads: usize) -> Result<Self> {
        const WHAT: &str = "checkpoint to align by";
        let wrong = |got: &str| Error::of(ErrorKind::Program, WHAT, "a checkpoint of `translate`", got);
        let Checkpoint { tensors, best, mut vocabularies, notes, .. } = checkpoint;
        if notes.get(TASK).map(String::as_str) != Some(Task::Translate.name()) {
            return Err(wrong("a checkpoint of another task"));
        }
        let mut known =
            |name: &str| vocabularies.remove(name).ok_or_else(|| wrong("a checkpoint without vocabularies"));
        let known = [known(KNOWN[0])?, known(KNOWN[1])?];
        let tokenizer = |note: &str| Tokenizer::from_name(notes.get(note).map_or("", String::as_str));
        let net = Builder::new();
        let attention = layers(&net, config, [&known[0], &known[1]], true).2;
        let [queries, keys, score] = attention.ok_or_else(|| wrong("a checkpoint without attention"))?;
        let (looked, score) = ([queries.id(), keys.id()], net.name_of(score));
        let program = net.finish()?.inference(&looked)?;
        let feed = |name: &str| program.find(name).ok_or_else(|| wrong("a checkpoint with other feeds"));
        let feeds = [feed(FEEDS[0])?, feed(FEEDS[1])?];
        let mut scope = Scope::new();
        let read = program.reads();
        let parameter = |name: &str| {
            let value = best.get(name).or_else(|| tensors.get(name)).cloned();
            value.ok_or_else(|| wrong(&format!("a checkpoint without the parameter `{name}`")))
        };
        for (_, var) in program.vars().filter(|(id, var)| var.persistable && read.contains(id)) {
            scope.set_of(&program, &var.name, parameter(&var.name)?)?;
        }
        let score = Variable::new(parameter(&score)?, None)?.as_slice::<f32>()?.to_vec();
        let executor = Executor::new(&program, &ops::catalogue(), &looked, threads)?;
        Ok(Self {
            executor,
            scope,
            known,
            cuts: [tokenizer(TOKENIZER_NOTE)?, tokenizer(TARGET_TOKENIZER_NOTE)?],
            feeds,
            looked,
            score,
        })
    }

    /// Computes the attention of each token of a translation to the tokens of its source.
    ///
    /// # Errors
    /// If a token is unknown, and the vocabulary has no entry for unknown tokens.
    #[track_caller]
    pub fn align(&mut self, source: &str, written: &str) -> Result<Alignment> {
        self.aligned(source, written).at_caller()
    }

    fn aligned(&mut self, source: &str, written: &str) -> Result<Alignment> {
        let tokens = |tokenizer: &Tokenizer, text: &str| -> Vec<String> {
            tokenizer.tokens(text).map(|token| token.into_owned()).collect()
        };
        let (source, written) = (tokens(&self.cuts[0], source), tokens(&self.cuts[1], written));
        if source.is_empty() || written.is_empty() {
            return Ok(Alignment { source, written, weights: Vec::new() });
        }
        let [sources, targets] = &self.known;
        // The decoder predicts each token from the start token and all earlier tokens.
        let before = written.iter().take(written.len() - 1).map(String::as_str);
        let given = targets.ids([ENDS[0]].into_iter().chain(before))?;
        let fed = [Variable::from_sequence(sources.ids(&source)?)?, Variable::from_sequence(given)?];
        let run = [(self.feeds[0], &fed[0]), (self.feeds[1], &fed[1])];
        self.executor.run(&mut self.scope, &Run::infer(&run))?;
        let [queries, keys] = [self.executor.fetch(self.looked[0])?, self.executor.fetch(self.looked[1])?];
        let weights = self.weights(queries.as_slice::<f32>()?, keys.as_slice::<f32>()?, written.len())?;
        let weights = weights.as_slice::<f32>()?.chunks(source.len()).map(<[f32]>::to_vec).collect();
        Ok(Alignment { source, written, weights })
    }

    fn weights(&self, queries: &[f32], keys: &[f32], written: usize) -> Result<Variable> {
        let rows = |numbers: Vec<f32>| {
            let width = self.score.len();
            let shape = (numbers.len() / width.max(1), width);
            let wrong = |e: unpadded::ndarray::ShapeError| {
                Error::of(ErrorKind::Program, "attention", "rows of one width", e.to_string())
            };
            Array2::from_shape_vec(shape, numbers).map_err(wrong)
        };
        let op = ops::catalogue().parse("additive_attention", &Attributes::new())?;
        let each = rows(keys.repeat(written))?;
        let lod = Lod::from_lengths1(&vec![each.nrows() / written.max(1); written])?;
        let each = Variable::sequences(each, lod)?;
        let found = op.call(&[
            Operand::batch("query", rows(queries.to_vec())?),
            Operand::batch("keys", each.clone()),
            Operand::batch("values", each),
            Operand::batch("v", rows(self.score.repeat(written))?),
        ])?;
        let none = || Error::of(ErrorKind::Program, "attention", "its weights", "none");
        found.into_iter().nth(1).ok_or_else(none)
    }
}
