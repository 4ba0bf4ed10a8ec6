//! The contribution of each word to the prediction of a classifier, by gradient × input.

use unpadded::checkpoint::Checkpoint;
use unpadded::data::Vocabulary;
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::op::MatrixUnit;
use unpadded::program::backward::differentiate;
use unpadded::program::{Append, BlockId, Role, VarId};
use unpadded::{AtCaller, Error, ErrorKind, Program, Result, Variable, ops};

use super::classify::{FIRST, LABEL, Reader, SECOND, SEPARATOR};
use super::config::Config;
use super::labels::LABELS;
use super::sections::Task;
use super::training::{CONFIG, TASK, TOKENIZER_NOTE};

/// Computes how much each word of a text contributes to the probability of a label, to first order. With x the vector
/// of the word and p the probability, the contribution is x · ∂ log p / ∂x: gradient × input (Shrikumar et al., "Not
/// just a black box: learning important features through propagating activation differences", 2016). The contribution
/// is positive if the word raises p, and negative if the word lowers p.
pub struct Weigher {
    executor: Executor,
    scope: Scope,
    reader: Reader,
    labels: Vocabulary,
    program: Program,
    /// For each text of a record, one or a pair: the word vectors, and their gradient.
    vectors: Vec<[VarId; 2]>,
}

impl Weigher {
    /// Returns a weigher for a checkpoint that the recipe `classify` has saved.
    ///
    /// # Errors
    /// Returns an error if the checkpoint belongs to a task other than `classify`.
    #[track_caller]
    pub fn new(checkpoint: Checkpoint, threads: usize) -> Result<Self> {
        Self::of(checkpoint, threads).at_caller()
    }

    fn of(checkpoint: Checkpoint, threads: usize) -> Result<Self> {
        const WHAT: &str = "checkpoint to weigh words by";
        let wrong = |got: &str| Error::of(ErrorKind::Program, WHAT, "a checkpoint of `classify`", got);
        checkpoint.check_whole(WHAT)?;
        if checkpoint.notes.get(TASK).map(String::as_str) != Some(Task::Classify.name()) {
            return Err(wrong("a checkpoint of another task"));
        }
        let config = checkpoint.notes.get(CONFIG).map(|config| Config::from_toml(config));
        let config = config.transpose()?.unwrap_or_default();
        let Checkpoint { program, mut tensors, mut best, mut vocabularies, metrics, notes, .. } = checkpoint;
        let mut known =
            |name: &str| vocabularies.remove(name).ok_or_else(|| wrong("a checkpoint without vocabularies"));
        let (reader, labels) =
            (Reader::of(&config, notes.get(TOKENIZER_NOTE).map(|note| &**note), &mut known)?, known(LABELS)?);
        let registry = ops::catalogue();
        let accuracy = metrics.iter().find(|metric| metric.name == "accuracy");
        let of_accuracy = accuracy.map(|metric| &metric.variables[..]).unwrap_or_default();
        let found: Vec<VarId> = of_accuracy.iter().filter_map(|name| program.find(name)).collect();
        let &[logits, label] = &found[..] else { return Err(wrong("a checkpoint without logits")) };
        let mut program: Program = program.inference(&[logits, label])?;
        program.unit = MatrixUnit::F32;

        // The gradient is of the plain loss −ln p, since the training loss may have label smoothing or class weights.
        let mut append = |kind, inputs| {
            let mut request = Append::forward(kind);
            request.inputs = inputs;
            Ok::<VarId, Error>(program.append(&registry, BlockId(0), request)?[0][0])
        };
        let losses = append("cross_entropy", vec![("logits", vec![logits]), ("labels", vec![label])])?;
        let mean = append("mean", vec![("x", vec![losses])])?;
        let gradients = differentiate(&mut program, &registry, mean)?;
        let feed = |name: &str| program.find(name).ok_or_else(|| wrong("a checkpoint with other feeds"));
        let mut vectors = Vec::new();
        for name in [FIRST[0], SECOND[0]].into_iter().filter(|name| reader.feeds().contains(name)) {
            let words = feed(name)?;
            let mut lookups = program.ops().filter(|op| op.kind == "embedding" && op.role == Role::Forward);
            let of_text =
                lookups.find(|op| op.reads().any(|var| var == words)).and_then(|op| op.writes().next());
            let of_text = of_text.ok_or_else(|| wrong("a checkpoint without word vectors"))?;
            let gradient = gradients.get(&of_text).copied();
            let none = || wrong("a checkpoint whose word vectors have no gradient");
            vectors.push([of_text, gradient.ok_or_else(none)?]);
        }
        let mut scope = Scope::new();
        let persistent: Vec<String> =
            program.vars().filter(|(_, var)| var.persistable).map(|(_, var)| var.name.clone()).collect();
        for name in persistent {
            if let Some(value) = best.remove(&name).or_else(|| tensors.remove(&name)) {
                scope.set_of(&program, &name, value)?;
            }
        }
        let executor = Executor::new(&program, &registry, &vectors.concat(), threads)?;
        Ok(Self { executor, scope, reader, labels, program, vectors })
    }

    /// Returns the words of each column of a text, each with its contribution to the probability of `label`. The last column
    /// of a pair is the second text.
    ///
    /// # Errors
    /// Returns an error if the model does not know `label`, or if a computed value is not a number.
    #[track_caller]
    pub fn weigh(&mut self, text: &str, label: &str) -> Result<Vec<Vec<(String, f32)>>> {
        self.weights(text, label).at_caller()
    }

    fn weights(&mut self, text: &str, label: &str) -> Result<Vec<Vec<(String, f32)>>> {
        let columns = self.reader.columns(text)?;
        if columns.iter().all(Vec::is_empty) {
            return Ok(vec![Vec::new(); columns.len()]);
        }
        let mut values = self.reader.batch(&[text])?;
        let label = unpadded::ndarray::array![self.labels.lookup(label)?];
        values.push((LABEL.to_owned(), Variable::dense(label)));
        let feeds: Vec<(VarId, &Variable)> =
            values.iter().filter_map(|(name, value)| Some((self.program.find(name)?, value))).collect();
        let run = Run::infer(&feeds).until(Stage::Gradients);
        self.executor.run(&mut self.scope, &run)?;
        let mut weights = Vec::new();
        for &[vectors, gradient] in &self.vectors {
            let (x, g) = (self.executor.fetch(vectors)?, self.executor.fetch(gradient)?);
            let width = x.shape().last().copied().unwrap_or(1).max(1);
            let (x, g) = (x.as_slice::<f32>()?, g.as_slice::<f32>()?);
            let rows = x.chunks_exact(width).zip(g.chunks_exact(width));
            // The sign is reversed, because the gradient is of the loss −log p and not of log p.
            weights.extend(rows.map(|(x, g)| -x.iter().zip(g).map(|(x, g)| x * g).sum::<f32>()));
        }
        let mut weights = weights.into_iter();
        let mut weighed = |(at, tokens): (usize, Vec<String>)| -> Vec<(String, f32)> {
            let joined = at > 0 && tokens.first().is_some_and(|token| token == SEPARATOR);
            tokens.into_iter().zip(weights.by_ref()).skip(usize::from(joined)).collect()
        };
        Ok(columns.into_iter().enumerate().map(&mut weighed).collect())
    }
}
