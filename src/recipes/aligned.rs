//! Which source tokens a translation attends to.

use super::config::{Config, Task};
use super::prepared::{CUT, TARGET_CUT, TASK};
use super::translate::{ENDS, FEEDS, KNOWN, layers};
use crate::checkpoint::Checkpoint;
use crate::data::{Tokenizer, Vocabulary};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::{Executor, Run, Scope};
use crate::ops;
use crate::program::{Builder, VarId};
use crate::tensor::Variable;

/// Finds how much a translation attends to each source token, by the weights of the attention of a checkpoint (Bahdanau, Cho and Bengio,
/// 2015). The program of the checkpoint itself computes no such output: another one is built, with its parameters.
pub struct Aligner {
    executor: Executor,
    scope: Scope,
    known: [Vocabulary; 2],
    cuts: [Tokenizer; 2],
    feeds: [VarId; 2],
    weights: VarId,
}

/// The attention of each written token to the source tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct Alignment {
    /// The source tokens.
    pub source: Vec<String>,
    /// The written tokens.
    pub written: Vec<String>,
    /// For each written token the weight of each source token; they sum to 1.
    pub weights: Vec<Vec<f32>>,
}

impl Aligner {
    /// An aligner with the parameters of a checkpoint that the recipe `translate` has saved, trained with this config.
    ///
    /// # Errors
    /// If it is a checkpoint of another task, or of another config.
    #[track_caller]
    pub fn new(config: &Config, checkpoint: Checkpoint, threads: usize) -> Result<Self> {
        Self::of(config, checkpoint, threads).at_caller()
    }

    fn of(config: &Config, checkpoint: Checkpoint, threads: usize) -> Result<Self> {
        let wrong = |got: &str| {
            Error::of(ErrorKind::Program, "checkpoint to align by", "one of `translate`", got.to_owned())
        };
        let Checkpoint { mut tensors, mut best, mut vocabularies, notes, .. } = checkpoint;
        if notes.get(TASK).map(String::as_str) != Some(Task::Translate.name()) {
            return Err(wrong("one of another task"));
        }
        let mut known = |name: &str| vocabularies.remove(name).ok_or_else(|| wrong("one without vocabularies"));
        let known = [known(KNOWN[0])?, known(KNOWN[1])?];
        let cut = |note: &str| Tokenizer::from_name(notes.get(note).map_or("", String::as_str));
        let net = Builder::new();
        let weights = layers(&net, config, [&known[0], &known[1]], true).2;
        let weights = weights.ok_or_else(|| wrong("one without attention"))?.id();
        let program = net.finish()?.inference(&[weights])?;
        let feed = |name: &str| program.find(name).ok_or_else(|| wrong("one with other feeds"));
        let feeds = [feed(FEEDS[0])?, feed(FEEDS[1])?];
        let mut scope = Scope::new();
        let read = program.reads();
        for (_, var) in program.vars().filter(|(id, var)| var.persistable && read.contains(id)) {
            let value = best.remove(&var.name).or_else(|| tensors.remove(&var.name));
            scope.set_of(&program, &var.name, value.ok_or_else(|| wrong("one of another config"))?)?;
        }
        let executor = Executor::new(&program, &ops::catalogue(), &[weights], threads)?;
        Ok(Self { executor, scope, known, cuts: [cut(CUT)?, cut(TARGET_CUT)?], feeds, weights })
    }

    /// The attention of each token of a translation to the tokens of its source.
    ///
    /// # Errors
    /// If the model computes what is not a number.
    #[track_caller]
    pub fn align(&mut self, source: &str, written: &str) -> Result<Alignment> {
        self.aligned(source, written).at_caller()
    }

    fn aligned(&mut self, source: &str, written: &str) -> Result<Alignment> {
        let tokens = |cut: &Tokenizer, text: &str| -> Vec<String> {
            cut.tokens(text).map(|token| token.into_owned()).collect()
        };
        let (source, written) = (tokens(&self.cuts[0], source), tokens(&self.cuts[1], written));
        if source.is_empty() || written.is_empty() {
            return Ok(Alignment { source, written, weights: Vec::new() });
        }
        let [sources, targets] = &self.known;
        // A token is written when those before it are given.
        let before = written.iter().take(written.len() - 1).map(String::as_str);
        let given = targets.ids([ENDS[0]].into_iter().chain(before))?;
        let fed = [Variable::from_sequence(sources.ids(&source)?)?, Variable::from_sequence(given)?];
        let run = [(self.feeds[0], &fed[0]), (self.feeds[1], &fed[1])];
        self.executor.run(&mut self.scope, &Run::infer(&run))?;
        let found = self.executor.fetch(self.weights)?;
        let weights = found.as_slice::<f32>()?.chunks(source.len()).map(<[f32]>::to_vec).collect();
        Ok(Alignment { source, written, weights })
    }
}
