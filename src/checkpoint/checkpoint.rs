//! The type [`Checkpoint`]: reads and writes the sections of a checkpoint file, and checks that they are consistent.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Write};
use std::path::Path;

use super::history::EpochScores;
use super::metric::MetricDesc;
use super::position::{Criterion, Position};
use super::purpose::Purpose;
use super::sections::{
    BEST, BEST_ROWS, CARRIED, CRITERION, EPOCH, METRIC, MakeError, NOTES, OUTPUTS, POSITION, PROGRAM,
    PURPOSE, ROWS, SHARDS, SUMS, TENSOR, VOCABULARY, about, longest, malformed, unfit,
};
use super::shard_files::ShardFiles;
use super::stored::{
    NamedVocabulary, StoredCriterion, StoredEpoch, StoredMetric, StoredPosition, StoredPurpose, StoredSums,
    StoredTexts,
};
use super::sums::SparseSums;
use super::tensor::{self, Layout, complete, declared, fits, persistent};
use crate::data::Vocabulary;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::Scope;
use crate::program::{Program, VarDesc, VarRole};
use crate::tensor::{Storage, StorageKind, Variable};
use crate::wire::record::{FieldType, to_bytes};
use crate::wire::stored::StoredForm;
use crate::wire::{self, Reader, Target, Writer};

/// A checkpoint: the state of a training, or a model to predict with. Tensors, vocabularies, notes and outputs are found by
/// name.
///
/// [`Self::for_inference`] turns the checkpoint of a training into a model, without the optimizer state.
///
/// ```
/// use unpadded::executor::Scope;
/// use unpadded::checkpoint::Checkpoint;
/// use unpadded::{Builder, DType};
///
/// let net = Builder::new().seed(1);
/// let x = net.feed("x", DType::F32, &[3], 0);
/// let y = x.linear(2);
/// let outputs = [("y".to_owned(), net.name_of(y))];
/// let mut checkpoint = Checkpoint::of(net.finish()?, outputs);
/// (checkpoint.position.epoch, checkpoint.position.step) = (2, 640);
/// let mut scope = Scope::of(&checkpoint.program)?;
/// let path = std::env::temp_dir().join(format!("unpadded-doc-{}.ckpt", std::process::id()));
/// checkpoint.save_from(&mut scope, &path)?;
///
/// let mut loaded = Checkpoint::load(&path)?;
/// assert_eq!((loaded.position.step, loaded.tensors.len()), (640, 2)); // a weight and a bias
/// loaded.restore(&mut scope)?;
/// # std::fs::remove_file(path)?;
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Checkpoint {
    /// The purpose of the checkpoint: training or inference.
    pub purpose: Purpose,
    /// The training program: forward pass, backward pass and updates. A checkpoint for inference has only the operators that
    /// its outputs and metrics need.
    pub program: Program,
    /// The values of the persistent variables: parameters and optimizer state. A checkpoint for inference has only the
    /// variables that its program reads. The value of a row-sparse variable contains only the rows that at least one update
    /// has touched.
    pub tensors: BTreeMap<String, Storage>,
    /// The parameters at the end of the best epoch so far; empty if they were not kept.
    pub best: BTreeMap<String, Storage>,
    /// The criterion by which the best epoch is chosen; `None` if there is no best epoch yet.
    pub criterion: Option<Criterion>,
    /// The vocabularies of tokens and labels, by name.
    pub vocabularies: BTreeMap<String, Vocabulary>,
    /// Strings of the user, by name; for example, the name of a tokenizer.
    pub notes: BTreeMap<String, String>,
    /// The outputs of a predictor: for each output name, the name of the program's variable.
    pub outputs: BTreeMap<String, String>,
    /// The metrics by which a predictor scores data; the loss is the first metric.
    pub metrics: Vec<MetricDesc>,
    /// The scores of each finished epoch, in the order of the epochs.
    pub history: Vec<EpochScores>,
    /// The values of carried states (such as an LSTM's last hidden state), by the name of the feed that receives each value
    /// in the next batch.
    pub carried: BTreeMap<String, Variable>,
    /// The position of the training: epoch, batch, step and related counts.
    pub position: Position,
    /// The files with the rows of the row-sparse variables, which several ranks hold; `None` if this checkpoint has all rows.
    pub(crate) shards: Option<ShardFiles>,
}

impl Checkpoint {
    /// Returns the checkpoint of a training before its first step, without tensors. `outputs` maps the name of each
    /// predictor output to the name of a variable in the program.
    pub fn of(program: Program, outputs: impl Into<BTreeMap<String, String>>) -> Self {
        Self { program, outputs: outputs.into(), ..Self::default() }
    }

    /// Saves the checkpoint to a file; if saving fails, the file is not changed.
    ///
    /// # Errors
    /// Fails if the parts of the checkpoint are inconsistent (such as a tensor that the program does not declare), or if the
    /// file cannot be written. After an error, an existing file at `path` is unchanged.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.check_all(&unfit).at_caller()?;
        wire::write_atomically(path.as_ref(), |out| self.write(out, &mut |name| self.tensor(name)))
    }

    /// Saves the checkpoint with the tensors of a scope; [`Self::tensors`] is ignored. To save memory, at most one tensor is
    /// copied at a time.
    ///
    /// # Errors
    /// Fails if [`Self::save`] would fail, or if the scope lacks a persistent variable of the program.
    #[track_caller]
    pub fn save_from(&self, scope: &mut Scope, path: impl AsRef<Path>) -> Result<()> {
        self.save_to(scope, &Target::find(path.as_ref()).at_caller()?).at_caller()
    }

    /// Saves the checkpoint as [`Self::save_from`] does, but to a `target` whose path is already resolved.
    pub(crate) fn save_to(&self, scope: &mut Scope, target: &Target) -> Result<()> {
        self.save_each(target, &mut |name| scope.value(name).map(Cow::Owned))
    }

    /// Returns the bytes that [`Self::save_from`] writes to a file.
    pub(crate) fn bytes_from(&self, scope: &mut Scope) -> Result<Vec<u8>> {
        self.check(&unfit)?;
        let mut out = Writer::new(Vec::new())?;
        self.write(&mut out, &mut |name| scope.value(name).map(Cow::Owned))?;
        out.finish()
    }

    /// Saves the checkpoint with the tensors that the function `tensor` returns, one at a time.
    pub(crate) fn save_each<'a>(
        &self,
        target: &Target,
        tensor: &mut dyn FnMut(&str) -> Result<Cow<'a, Storage>>,
    ) -> Result<()> {
        self.check(&unfit)?;
        target.write(|out| self.write(out, tensor))
    }

    /// Returns the bytes that [`Self::save`] writes to a file.
    ///
    /// # Errors
    /// Fails if the parts of the checkpoint are inconsistent.
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.check_all(&unfit).at_caller()?;
        let mut out = Writer::new(Vec::new())?;
        self.write(&mut out, &mut |name| self.tensor(name)).at_caller()?;
        out.finish()
    }

    /// Loads a checkpoint from a file. The operators of its program need not be registered.
    ///
    /// # Errors
    /// Fails if the file is damaged, is not a checkpoint, or was written by a later version, or if the parts of the checkpoint
    /// are inconsistent. The error names the file and the section.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_file(path.as_ref()).at_caller()
    }

    /// Reads the position of the training in a checkpoint file, without the tensors.
    ///
    /// # Errors
    /// Fails if the file is not a checkpoint, or is damaged before the end of the section `position`.
    #[track_caller]
    pub fn position_in(path: impl AsRef<Path>) -> Result<Position> {
        Self::position_of(path.as_ref()).at_caller()
    }

    fn position_of(path: &Path) -> Result<Position> {
        let mut reader = wire::open(path)?;
        while let Some(section) = reader.next_section()?.map(str::to_owned) {
            if section == POSITION {
                return value::<StoredPosition, _>(&mut reader, POSITION);
            }
            reader.end_section()?;
        }
        present(&reader, POSITION, None)
    }

    /// Loads a checkpoint from the bytes of a file, as [`Self::load`] does from a file.
    ///
    /// # Errors
    /// Fails as [`Self::load`] does.
    #[track_caller]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let read =
            Self::read(Reader::new("bytes of a checkpoint", bytes, bytes.len() as u64)?).at_caller()?;
        match &read.shards {
            None => Ok(read),
            Some(_) => {
                let expected = "a checkpoint that has all its rows";
                let got = "a list of rank files, which lie beside the file of this checkpoint";
                Err(Error::of(ErrorKind::Format, "bytes of a checkpoint", expected, got)).at_caller()
            }
        }
    }

    /// Reads the state of a training that another rank has sent, without the rows of row-sparse variables if the rank sent no
    /// rows.
    pub(crate) fn from_message(bytes: &[u8]) -> Result<Self> {
        Self::read(Reader::new("state of a training", bytes, bytes.len() as u64)?)
    }

    /// Moves all tensors into a scope; afterwards, [`Self::tensors`] is empty.
    ///
    /// # Errors
    /// Fails if a variable in the scope has the name of a tensor in the checkpoint, but a different shape, dtype or storage.
    #[track_caller]
    pub fn restore(&mut self, scope: &mut Scope) -> Result<()> {
        // Tensors are moved one at a time, so that at most one tensor is in memory twice.
        while let Some((name, value)) = self.tensors.pop_first() {
            scope.set_of(&self.program, &name, value).at_caller()?;
        }
        Ok(())
    }

    fn tensor(&self, name: &str) -> Result<Cow<'_, Storage>> {
        let found = self.tensors.get(name).map(Cow::Borrowed);
        found.ok_or_else(|| unfit("tensors", "a tensor for each persistent variable", "none").variable(name))
    }

    fn write<'a, W: Write>(
        &self,
        out: &mut Writer<W>,
        tensor: &mut dyn FnMut(&str) -> Result<Cow<'a, Storage>>,
    ) -> Result<()> {
        let mut put = |section, body: Vec<u8>| {
            let most = longest(section);
            if body.len() as u64 > most {
                let (expected, got) = (format!("at most {most} bytes"), body.len().to_string());
                return Err(unfit(&format!("section `{section}`"), &expected, &got));
            }
            out.write_section(section, &body)
        };
        put(PROGRAM, self.program.to_section()?)?;
        put(POSITION, to_bytes(&StoredPosition::of(&self.position)))?;
        if let Some(shards) = &self.shards {
            put(SHARDS, to_bytes(shards))?;
        }
        for (name, sums) in &self.position.sparse {
            for piece in sums.pieces() {
                put(SUMS, to_bytes(&StoredSums::of(name, sums.count, piece)))?;
            }
        }
        put(NOTES, to_bytes(&StoredTexts::of(&self.notes)))?;
        put(OUTPUTS, to_bytes(&StoredTexts::of(&self.outputs)))?;
        for named in &self.vocabularies {
            put(VOCABULARY, to_bytes(&NamedVocabulary::from(named)))?;
        }
        if let Some(criterion) = &self.criterion {
            put(CRITERION, to_bytes(&StoredCriterion::of(criterion)))?;
        }
        for metric in &self.metrics {
            put(METRIC, to_bytes(&StoredMetric::of(metric)))?;
        }
        for epoch in &self.history {
            put(EPOCH, to_bytes(&StoredEpoch::of(epoch)))?;
        }
        if self.purpose != Purpose::Training {
            put(PURPOSE, to_bytes(&StoredPurpose::of(&self.purpose)))?;
        }
        for (name, desc) in self.kept() {
            let value = tensor(name)?;
            fits(desc, Layout::of(&value), &unfit).map_err(|e| e.variable(name))?;
            tensor::write_value(out, TENSOR, name, &value)?;
        }
        for (name, value) in self.best.iter().filter(|(_, value)| self.holds(value.kind())) {
            tensor::write_value(out, BEST, name, value)?;
        }
        for (name, value) in &self.carried {
            let lod = value.lod().map(|lod| &**lod);
            tensor::write(out, CARRIED, name, value.storage().as_dense()?, lod)?;
        }
        Ok(())
    }

    pub(super) fn read(mut reader: Reader<impl Read>) -> Result<Self> {
        let (mut program, mut position, mut notes, mut outputs) = (None, None, None, None);
        let (mut criterion, mut purpose, mut sparse) = (None, None, BTreeMap::new());
        let mut read = Self::default();
        while let Some(section) = reader.next_section()?.map(str::to_owned) {
            let what = section.as_str();
            let most = longest(what);
            match what {
                PROGRAM => {
                    let value = Program::of_stored(reader.read_stored(most)?);
                    once(&reader, what, &mut program, value.map_err(|e| malformed(&reader, what, &e))?)?;
                }
                POSITION => {
                    let value = value::<StoredPosition, _>(&mut reader, what)?;
                    once(&reader, what, &mut position, value)?;
                }
                SHARDS => {
                    let value = reader.read_stored(most)?;
                    once(&reader, what, &mut read.shards, value)?;
                }
                SUMS => {
                    let piece: StoredSums = reader.read_stored(most)?;
                    let (metric, sums) = piece.into_parts();
                    SparseSums::join(&mut sparse, metric, sums).map_err(|e| malformed(&reader, what, &e))?;
                }
                NOTES | OUTPUTS => {
                    let value = value::<StoredTexts, _>(&mut reader, what)?;
                    let target = if what == NOTES { &mut notes } else { &mut outputs };
                    once(&reader, what, target, value)?;
                }
                CRITERION => {
                    let value = value::<StoredCriterion, _>(&mut reader, what)?;
                    once(&reader, what, &mut criterion, value)?;
                }
                METRIC => read.metrics.push(value::<StoredMetric, _>(&mut reader, what)?),
                EPOCH => read.history.push(value::<StoredEpoch, _>(&mut reader, what)?),
                PURPOSE => {
                    let value = value::<StoredPurpose, _>(&mut reader, what)?;
                    once(&reader, what, &mut purpose, value)?;
                }
                VOCABULARY => {
                    let value: NamedVocabulary = reader.read_stored(most)?;
                    let (name, value) = value.into_parts().map_err(|e| malformed(&reader, what, &e))?;
                    named(&reader, what, &mut read.vocabularies, name, value)?;
                }
                TENSOR | BEST | ROWS | BEST_ROWS | CARRIED => {
                    // The head of a tensor is checked against the program before memory is allocated for the tensor.
                    let Some(program) = &program else { return present(&reader, PROGRAM, None) };
                    let (name, value) = tensor::read(&mut reader, what, program)?;
                    if what == CARRIED {
                        named(&reader, what, &mut read.carried, name, value)?;
                    } else {
                        let all =
                            if matches!(what, TENSOR | ROWS) { &mut read.tensors } else { &mut read.best };
                        named(&reader, what, all, name, value.into_parts().0)?;
                    }
                }
                // A later release wrote this section, and this release skips it.
                _ => reader.end_section()?,
            }
        }
        read.program = present(&reader, PROGRAM, program)?;
        read.position = Position { sparse, ..present(&reader, POSITION, position)? };
        read.notes = present(&reader, NOTES, notes)?;
        read.outputs = present(&reader, OUTPUTS, outputs)?;
        read.criterion = criterion;
        read.purpose = purpose.unwrap_or_default();
        read.check_all(&|what, expected, got| reader.refused(what, expected, got))?;
        Ok(read)
    }

    /// Returns whether this checkpoint has the values of a storage; rank files have the row-sparse values, if there are any.
    pub(super) fn holds(&self, storage: StorageKind) -> bool {
        self.shards.is_none() || storage == StorageKind::Dense
    }

    /// Checks that the tensors fit the program, and checks everything that [`Self::check`] checks.
    pub(super) fn check_all(&self, wrong: MakeError<'_>) -> Result<()> {
        let tensors = self.tensors.iter().map(|(name, value)| (&**name, value)).collect();
        complete(TENSOR, &self.kept(), &tensors, wrong)?;
        self.check(wrong)
    }

    /// Returns, by name, the variables of the program that must have a tensor in this checkpoint.
    fn kept(&self) -> BTreeMap<&str, &VarDesc> {
        let mut kept = persistent(&self.program);
        if self.purpose == Purpose::Inference {
            let read = self.program.reads();
            let read: BTreeSet<&str> = read.into_iter().map(|id| &*self.program.var(id).name).collect();
            kept.retain(|name, _| read.contains(name));
        }
        kept.retain(|_, desc| desc.spec().is_none_or(|spec| self.holds(spec.storage)));
        kept
    }

    /// Checks that the parts of the checkpoint, without the tensors, are consistent.
    fn check(&self, wrong: MakeError<'_>) -> Result<()> {
        let bare = self.best.is_empty() && self.carried.is_empty() && self.criterion.is_none();
        let bare = bare && self.history.is_empty();
        EpochScores::check(&self.history, &self.position, wrong)?;
        if self.purpose == Purpose::Inference && !(bare && self.position == Position::default()) {
            let expected = "no position, no best epoch and no carried values";
            return Err(wrong("checkpoint for inference", expected, "at least one of these"));
        }
        if !self.best.is_empty() {
            let here = |desc: &VarDesc| desc.spec().is_none_or(|spec| self.holds(spec.storage));
            let parameter = |(_, desc): &(&str, &VarDesc)| desc.role != VarRole::State && here(desc);
            let parameters = persistent(&self.program).into_iter().filter(parameter).collect();
            let best = self.best.iter().filter(|(_, value)| self.holds(value.kind()));
            complete(BEST, &parameters, &best.map(|(name, value)| (&**name, value)).collect(), wrong)?;
        }
        let computed = self
            .program
            .computed()
            .map_err(|e| wrong(PROGRAM, "a well-formed program", &format!("{e:#}")))?;
        let named = self.outputs.iter().map(|(name, variable)| (OUTPUTS, name, variable));
        let seen =
            self.metrics.iter().flat_map(|m| m.variables.iter().map(|variable| (METRIC, &m.name, variable)));
        for (section, name, variable) in named.chain(seen) {
            let id = self.program.find(variable);
            let found = id.map(|id| self.program.var(id));
            let inside = |desc: &VarDesc| desc.block.0 != 0 && section == METRIC;
            let unknown = found.is_some_and(|desc| desc.role.is_computed())
                && id.is_some_and(|id| !computed.contains(&id));
            if unknown || found.is_none_or(|desc| inside(desc) || desc.spec().is_none()) {
                let got =
                    format!("`{variable}`{}", if unknown { ", which no operator computes" } else { "" });
                let expected = if section == METRIC { "a tensor of the root block" } else { "a tensor" };
                return Err(wrong(&about(section, name), expected, &got));
            }
        }
        for (name, value) in &self.carried {
            let not_dense = |e: Error| wrong(&about(CARRIED, name), "a dense value", &format!("{e:#}"));
            let dense = value.storage().as_dense().map_err(not_dense)?;
            let levels = value.lod().map_or(0, |lod| lod.levels());
            let storage = StorageKind::Dense;
            let layout = Layout { storage, dtype: dense.dtype(), shape: dense.shape(), levels };
            declared(&self.program, CARRIED, name, layout, wrong)?;
        }
        self.position.check(wrong)
    }
}

fn refused<R: Read>(
    reader: &Reader<R>,
    section: &str,
    name: &str,
    expected: &str,
    got: impl Into<String>,
) -> Error {
    reader.refused(&about(section, name), expected, got)
}

fn value<S: FieldType + StoredForm<T>, T>(reader: &mut Reader<impl Read>, section: &str) -> Result<T> {
    let stored: S = reader.read_stored(longest(section))?;
    stored.read().map_err(|e| malformed(reader, section, &e))
}

fn once<T>(reader: &Reader<impl Read>, section: &str, target: &mut Option<T>, value: T) -> Result<()> {
    match target.replace(value) {
        None => Ok(()),
        Some(_) => {
            Err(reader.refused(&format!("section `{section}`"), "the section once", "the section twice"))
        }
    }
}

fn named<T>(
    reader: &Reader<impl Read>,
    section: &str,
    all: &mut BTreeMap<String, T>,
    name: String,
    value: T,
) -> Result<()> {
    match all.contains_key(&name) {
        false => drop(all.insert(name, value)),
        true => return Err(refused(reader, section, &name, "the name once", "the name twice")),
    }
    Ok(())
}

fn present<T>(reader: &Reader<impl Read>, section: &str, value: Option<T>) -> Result<T> {
    let missing = || reader.refused("sections of a checkpoint", format!("a section `{section}`"), "none");
    value.ok_or_else(missing)
}
