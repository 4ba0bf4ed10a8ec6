//! Checkpoints: everything that a training needs to go on exactly where it was, in one file.
//!
//! The file is framed as [`crate::wire`] says. Its sections:
//!
//! ```text
//! program      the program that trains, as in a program's own file
//! position     how far the training is
//! notes        name -> text
//! outputs      name -> variable
//! vocabulary   one for each: its name, the vocabulary
//! criterion    by what the best epoch was chosen; files of earlier releases do not have it
//! tensor       one for each persistent variable of the program: head, numbers
//! best         one for each parameter, as it was after the best epoch: head, numbers
//! carried      one for each value that passes from batch to batch: head, numbers
//!
//! head    = length u32 | name, dtype by name, shape, offsets if there are any
//! numbers = row-major, little-endian, every bit as it was; a bool is 0 or 1
//! ```
//!
//! The first four are there once, `program` first. Names are sorted and nothing comes from a clock, so equal states
//! give equal bytes. The layouts belong to the format version, [`crate::wire::VERSION`]. What later releases have to
//! add goes into sections of other names: a reader skips those it does not know, once their checksums are right.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::best::Criterion;
use crate::data::Vocabulary;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::Scope;
use crate::program::save::SECTION as PROGRAM;
use crate::program::{Program, VarDesc, VarRole};
use crate::tensor::{Dense, Variable};
use crate::wire::{self, Reader, Target, Writer};
use tensor::{complete, declared, fits, persistent};

mod tensor;

/// A training at one moment, or a model to predict with. Everything is found by name.
///
/// ```
/// use unpadded::executor::Scope;
/// use unpadded::train::{Checkpoint, Position};
/// use unpadded::{Builder, DType};
///
/// let net = Builder::new().seed(1);
/// let x = net.feed("x", DType::F32, &[3], 0);
/// let y = x.linear(2);
/// let mut checkpoint = Checkpoint {
///     outputs: [("y".to_owned(), net.name_of(y))].into(),
///     position: Position { epoch: 2, step: 640, ..Position::default() },
///     program: net.finish()?,
///     ..Checkpoint::default()
/// };
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
pub struct Checkpoint {
    /// The program that trains: forward, backward and updates.
    pub program: Program,
    /// Its persistent variables: parameters and the optimizer's state.
    pub tensors: BTreeMap<String, Dense>,
    /// The parameters as they were after the best epoch so far; empty if none was kept.
    pub best: BTreeMap<String, Dense>,
    /// By what the best epoch was chosen; `None` if there is none, and in files of earlier releases.
    pub criterion: Option<Criterion>,
    /// What numbers the tokens and the labels.
    pub vocabularies: BTreeMap<String, Vocabulary>,
    /// The user's own strings, such as the name of a tokenizer.
    pub notes: BTreeMap<String, String>,
    /// The names under which a predictor gives variables of the program: name to variable's name.
    pub outputs: BTreeMap<String, String>,
    /// Values that pass from batch to batch, by the name of the feed that takes them.
    pub carried: BTreeMap<String, Variable>,
    /// How far the training is.
    pub position: Position,
}

/// How far a training is. A count is below 2^53.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Position {
    /// Epochs that are finished.
    pub epoch: u64,
    /// Batches of the epoch after them that are finished.
    pub batch: u64,
    /// Steps in all.
    pub step: u64,
    /// Tokens in all.
    pub tokens: u64,
    /// The fingerprint of the data that it trains on.
    pub data: u64,
    /// The best epoch so far.
    pub best: Option<Best>,
    /// Epochs since the best one.
    pub since_best: u64,
    /// Running sums of the loss and of metrics over the epoch so far.
    pub running: BTreeMap<String, Vec<f64>>,
}

/// The best epoch so far.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Best {
    /// What it reached: the metric that decides.
    pub value: f64,
    /// The epoch, from 1 on.
    pub epoch: u64,
    /// The steps that had been made when it ended.
    pub step: u64,
}

const POSITION: &str = "position";
const NOTES: &str = "notes";
const OUTPUTS: &str = "outputs";
const VOCABULARY: &str = "vocabulary";
const CRITERION: &str = "criterion";
const TENSOR: &str = "tensor";
const BEST: &str = "best";
const CARRIED: &str = "carried";

/// Counts are exact as floats too, and there is room to count on.
const MOST: u64 = 1 << 53;

impl Checkpoint {
    /// Writes the file: whole, or not at all.
    ///
    /// # Errors
    /// If the parts do not fit each other, such as a tensor that the program does not have, or the operating system
    /// refuses. What stood at `path` is then untouched.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.check_all(&unfit).at_caller()?;
        wire::write_atomically(path.as_ref(), |out| self.write(out, &mut |name| self.tensor(name)))
    }

    /// The same with the tensors of a scope in place of [`Self::tensors`], which are not looked at. They are never
    /// copied all at once.
    ///
    /// # Errors
    /// As [`Self::save`], or if the scope lacks a persistent variable of the program.
    #[track_caller]
    pub fn save_from(&self, scope: &mut Scope, path: impl AsRef<Path>) -> Result<()> {
        self.save_to(scope, &Target::find(path.as_ref()).at_caller()?).at_caller()
    }

    /// What [`Self::save_from`] does.
    pub(super) fn save_to(&self, scope: &mut Scope, target: &Target) -> Result<()> {
        self.check(&unfit)?;
        target.write(|out| self.write(out, &mut |name| scope.get(name).map(Cow::Owned)))
    }

    /// What [`Self::save`] writes.
    ///
    /// # Errors
    /// If the parts do not fit each other.
    #[track_caller]
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        self.check_all(&unfit).at_caller()?;
        let mut out = Writer::new(Vec::new())?;
        self.write(&mut out, &mut |name| self.tensor(name)).at_caller()?;
        out.finish()
    }

    /// Reads a file. No operator needs to be known.
    ///
    /// # Errors
    /// If the file is damaged, foreign or of a future version, or its parts do not fit each other. The error names the
    /// file and the section.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        Self::load_file(path.as_ref()).at_caller()
    }

    /// [`Self::load`], compiled once and not by every crate that calls it.
    fn load_file(path: &Path) -> Result<Self> {
        Self::read(wire::open(path)?)
    }

    /// What [`Self::load`] reads.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[track_caller]
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::read(Reader::new("bytes of a checkpoint", bytes, bytes.len() as u64)?).at_caller()
    }

    /// Moves the tensors into a scope; [`Self::tensors`] is empty after it.
    ///
    /// # Errors
    /// If the scope has one of another shape or dtype.
    #[track_caller]
    pub fn restore(&mut self, scope: &mut Scope) -> Result<()> {
        // One at a time, so that no more than one tensor is there twice.
        while let Some((name, value)) = self.tensors.pop_first() {
            scope.set(&name, value)?;
        }
        Ok(())
    }

    fn tensor(&self, name: &str) -> Result<Cow<'_, Dense>> {
        let found = self.tensors.get(name).map(Cow::Borrowed);
        found.ok_or_else(|| unfit("tensors", "one for each persistent variable", "none").variable(name))
    }

    fn write<'a, W: Write>(
        &self,
        out: &mut Writer<W>,
        tensor: &mut dyn FnMut(&str) -> Result<Cow<'a, Dense>>,
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
        put(POSITION, wire::encode(&self.position)?)?;
        put(NOTES, wire::encode(&self.notes)?)?;
        put(OUTPUTS, wire::encode(&self.outputs)?)?;
        for named in &self.vocabularies {
            put(VOCABULARY, wire::encode(&named)?)?;
        }
        if let Some(criterion) = &self.criterion {
            put(CRITERION, wire::encode(criterion)?)?;
        }
        for (name, desc) in persistent(&self.program) {
            let value = tensor(name)?;
            fits(desc, value.dtype(), value.shape(), &unfit).map_err(|e| e.variable(name))?;
            tensor::write(out, TENSOR, name, (&value, None))?;
        }
        for (name, value) in &self.best {
            tensor::write(out, BEST, name, (value, None))?;
        }
        for (name, value) in &self.carried {
            tensor::write(out, CARRIED, name, (value.storage().as_dense()?, value.lod().map(|lod| &**lod)))?;
        }
        Ok(())
    }

    fn read(mut reader: Reader<impl Read>) -> Result<Self> {
        let (mut program, mut position, mut notes, mut outputs) = (None, None, None, None);
        let mut read = Self::default();
        while let Some(section) = reader.next_section()?.map(str::to_owned) {
            let what = section.as_str();
            match what {
                PROGRAM => {
                    let value: Program = reader.read_value(longest(what))?;
                    let value = value.checked().map_err(|e| malformed(&reader, what, &e))?;
                    once(&reader, what, &mut program, value)?;
                }
                POSITION => one(&mut reader, what, &mut position)?,
                NOTES => one(&mut reader, what, &mut notes)?,
                OUTPUTS => one(&mut reader, what, &mut outputs)?,
                CRITERION => one(&mut reader, what, &mut read.criterion)?,
                VOCABULARY => {
                    let (name, value): (String, Vocabulary) = reader.read_value(longest(what))?;
                    named(&reader, what, &mut read.vocabularies, name, value)?;
                }
                TENSOR | BEST | CARRIED => {
                    // What it says of a tensor is held against the program's word before there is room for it.
                    let Some(program) = &program else { return present(&reader, PROGRAM, None) };
                    let (name, value) = tensor::read(&mut reader, what, program)?;
                    if what == CARRIED {
                        named(&reader, what, &mut read.carried, name, value)?;
                    } else {
                        let all = if what == TENSOR { &mut read.tensors } else { &mut read.best };
                        named(&reader, what, all, name, value.into_parts().0.into_dense()?)?;
                    }
                }
                // Of a later release.
                _ => reader.end_section()?,
            }
        }
        read.program = present(&reader, PROGRAM, program)?;
        read.position = present(&reader, POSITION, position)?;
        read.notes = present(&reader, NOTES, notes)?;
        read.outputs = present(&reader, OUTPUTS, outputs)?;
        read.check_all(&|what, expected, got| reader.refused(what, expected, got))?;
        Ok(read)
    }

    /// Checks what [`Self::check`] does, and the tensors.
    fn check_all(&self, wrong: Wrong<'_>) -> Result<()> {
        complete(TENSOR, &persistent(&self.program), &self.tensors, wrong)?;
        self.check(wrong)
    }

    /// Checks that the parts but for the tensors fit each other.
    fn check(&self, wrong: Wrong<'_>) -> Result<()> {
        if !self.best.is_empty() {
            let parameter = |(_, desc): &(&str, &VarDesc)| desc.role != VarRole::State;
            let parameters = persistent(&self.program).into_iter().filter(parameter).collect();
            complete(BEST, &parameters, &self.best, wrong)?;
        }
        for (name, of) in &self.outputs {
            let found = self.program.find(of).map(|id| self.program.var(id));
            if found.is_none_or(|desc| desc.block.0 != 0 || desc.spec().is_none()) {
                let got = format!("`{of}`");
                return Err(wrong(&about(OUTPUTS, name), "a tensor outside step blocks", &got));
            }
        }
        for (name, value) in &self.carried {
            let not_dense = |e: Error| wrong(&about(CARRIED, name), "a dense value", &e.to_string());
            let dense = value.storage().as_dense().map_err(not_dense)?;
            let levels = value.lod().map_or(0, |lod| lod.levels());
            declared(&self.program, CARRIED, name, (dense.dtype(), dense.shape(), levels), wrong)?;
        }
        self.position.check(wrong)
    }
}

impl Position {
    fn check(&self, wrong: Wrong<'_>) -> Result<()> {
        let best = self.best.unwrap_or(Best { value: 0.0, epoch: 0, step: 0 });
        for (what, count) in [
            ("epoch", self.epoch),
            ("batch", self.batch),
            ("step", self.step),
            ("tokens", self.tokens),
            ("since_best", self.since_best),
            ("best epoch", best.epoch),
            ("best step", best.step),
        ] {
            if count >= MOST {
                return Err(wrong(&about(POSITION, what), "a count below 2^53", &count.to_string()));
            }
        }
        let sums =
            self.running.iter().flat_map(|(name, sums)| sums.iter().map(move |&sum| (name.as_str(), sum)));
        for (what, number) in sums.chain([("best value", best.value)]) {
            if !number.is_finite() {
                return Err(wrong(&about(POSITION, what), "a finite number", &number.to_string()));
            }
        }
        Ok(())
    }
}

/// Bytes of the longest section of this name that is no tensor.
fn longest(section: &str) -> u64 {
    if section == VOCABULARY { wire::LONGEST } else { wire::STRUCTURED }
}

/// Makes an error of what is wrong, what was expected and what was found.
type Wrong<'a> = &'a dyn Fn(&str, &str, &str) -> Error;

/// The error for parts that a caller put together.
fn unfit(what: &str, expected: &str, got: &str) -> Error {
    Error::of(ErrorKind::Program, format!("checkpoint: {what}"), expected, got)
}

fn about(section: &str, name: &str) -> String {
    format!("section `{section}`, `{name}`")
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

fn malformed<R: Read>(reader: &Reader<R>, section: &str, error: &Error) -> Error {
    reader.refused(&format!("section `{section}`"), "what this release writes there", error.to_string())
}

/// Reads a section that is there once.
fn one<T: DeserializeOwned>(
    reader: &mut Reader<impl Read>,
    section: &str,
    place: &mut Option<T>,
) -> Result<()> {
    let value = reader.read_value(longest(section))?;
    once(reader, section, place, value)
}

fn once<T>(reader: &Reader<impl Read>, section: &str, place: &mut Option<T>, value: T) -> Result<()> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(reader.refused(&format!("section `{section}`"), "it once", "a second one")),
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
        true => return Err(refused(reader, section, &name, "it once", "a second one")),
    }
    Ok(())
}

fn present<T>(reader: &Reader<impl Read>, section: &str, value: Option<T>) -> Result<T> {
    let missing = || reader.refused("a checkpoint's sections", format!("`{section}` among them"), "none");
    value.ok_or_else(missing)
}
