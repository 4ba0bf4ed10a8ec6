//! Exports weights to a safetensors file; if the export fails, no file is changed.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::Path;

use ::safetensors::tensor::TensorInfo;
use serde::Serialize;

use super::file::stored;
use super::modules::Form;
use super::names::{Entry, Names, parameters};
use crate::checkpoint::{Checkpoint, Purpose};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::layers::turned;
use crate::operator::Registry;
use crate::tensor::{Dense, Storage};
use crate::wire::Target;

/// The report of an [`export`]: the names of the tensors that were written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ExportReport {
    /// The names of the tensors in the file, sorted.
    pub tensors: Vec<String>,
    /// The names of the parameters that belong to no PyTorch module, and were written with their own names and layout; sorted.
    pub as_they_are: Vec<String>,
}

/// Exports the parameters of a checkpoint, in their own dtypes: the parameters of the best epoch if the checkpoint has
/// them, else the current parameters. If the export fails, an existing file is not changed. Two exports of equal
/// weights write the same bytes. The metadata in the file is `format: pt` (which other libraries require) and the
/// version of this crate. `registry` has the update rule of the training, whose postponed updates are applied.
///
/// # Errors
/// Fails if a parameter has no value in the checkpoint or is row-sparse, if a name is invalid ([`Names::table`]), if
/// `registry` lacks the update rule, or if the file cannot be written.
#[track_caller]
pub fn export(
    checkpoint: &Checkpoint,
    registry: &Registry,
    names: &Names,
    path: impl AsRef<Path>,
) -> Result<ExportReport> {
    export_file(checkpoint, registry, names, path.as_ref()).at_caller()
}

/// The header of a safetensors file, which is written as JSON.
#[derive(Serialize)]
struct Head<'a> {
    #[serde(rename = "__metadata__")]
    metadata: BTreeMap<&'static str, &'static str>,
    #[serde(flatten)]
    tensors: BTreeMap<&'a str, TensorInfo>,
}

fn export_file(
    checkpoint: &Checkpoint,
    registry: &Registry,
    names: &Names,
    path: &Path,
) -> Result<ExportReport> {
    let checkpoint = checkpoint.predicting_copy(registry)?;
    checkpoint.check_whole("checkpoint to export")?;
    let value = |name: &str| checkpoint.best.get(name).or_else(|| checkpoint.tensors.get(name));
    let mut all = parameters(&checkpoint.program);
    if checkpoint.purpose == Purpose::Inference {
        // A checkpoint for inference has only the parameters that its outputs and metrics need.
        all.retain(|desc| value(&desc.name).is_some());
    }
    let entries = names.entries(&checkpoint.program, &all)?;
    let mut tensors: Vec<(&str, usize, &Entry<'_>)> = Vec::new();
    for entry in &entries {
        tensors.extend(entry.tensors.iter().enumerate().map(|(k, tensor)| (tensor.as_str(), k, entry)));
    }
    // Tensors with wider numbers come first, so that all numbers are aligned.
    tensors.sort_by_key(|(name, _, entry)| (Reverse(entry.dtype.size_of()), *name));
    let mut at = 0;
    let mut infos = BTreeMap::new();
    for &(name, _, entry) in &tensors {
        let unknown =
            || Error::new("dtype of a tensor", "a dtype that safetensors has", entry.dtype.to_string());
        let dtype = stored(entry.dtype).ok_or_else(unknown)?;
        let bytes = entry.shape.iter().try_fold(entry.dtype.size_of(), |bytes, &n| bytes.checked_mul(n));
        let end = bytes.and_then(|bytes| bytes.checked_add(at));
        let many = || Error::new("parameters", "a size that can be counted", "more").variable(name);
        let end = end.ok_or_else(many)?;
        infos.insert(name, TensorInfo { dtype, shape: entry.shape.clone(), data_offsets: (at, end) });
        at = end;
    }
    let metadata = [("format", "pt"), ("unpadded", env!("CARGO_PKG_VERSION"))].into();
    let mut head = serde_json::to_vec(&Head { metadata, tensors: infos })
        .map_err(|e| Error::of(ErrorKind::Format, "head of a safetensors file", "JSON", e.to_string()))?;
    // The head is padded, so that the numbers that follow it are aligned.
    head.resize(head.len().next_multiple_of(8), b' ');

    let missing = |name: &str| {
        Error::of(ErrorKind::Program, "checkpoint", "a value for this variable", "none").variable(name)
    };
    for entry in &entries {
        let name = &entry.parameter.name;
        fits(entry, value(name).ok_or_else(|| missing(name))?)?;
    }
    let shown = format!("file `{}`", path.display());
    let put = |out: &mut BufWriter<_>, bytes: &[u8]| {
        out.write_all(bytes).map_err(|e| Error::io(&shown, "write", &e))
    };
    Target::find(path)?.write_raw(|mut out| {
        put(&mut out, &(head.len() as u64).to_le_bytes())?;
        put(&mut out, &head)?;
        for &(_, k, entry) in &tensors {
            let name = &entry.parameter.name;
            let value = value(name).ok_or_else(|| missing(name))?.as_dense()?;
            let value = match entry.form {
                // The parameter is one bias, but PyTorch has two: the first tensor holds the parameter, and the second tensor
                // is zero.
                Form::Sum if k > 0 => Cow::Owned(Dense::zeros(entry.dtype, &entry.shape)?),
                Form::Turned => Cow::Owned(turned(value)?.cast(entry.dtype)),
                Form::Same | Form::Sum => Cow::Borrowed(value),
            };
            value.write_numbers(|piece| put(&mut out, piece))?;
        }
        Ok(out)
    })?;
    let mut exported = ExportReport {
        tensors: tensors.iter().map(|(name, ..)| (*name).to_owned()).collect(),
        as_they_are: entries.iter().filter(|e| !e.known).map(|e| e.parameter.name.clone()).collect(),
    };
    exported.tensors.sort_unstable();
    exported.as_they_are.sort_unstable();
    Ok(exported)
}

/// Checks that a value has the shape and dtype of the program's variable; the fields of a checkpoint are public, so callers may
/// have changed them.
fn fits(entry: &Entry<'_>, value: &Storage) -> Result<()> {
    let mut shape = value.shape().to_vec();
    if entry.form == Form::Turned {
        shape.reverse();
    }
    let dense = matches!(value, Storage::Dense(_));
    if dense && (value.dtype(), &shape) == (entry.dtype, &entry.shape) {
        return Ok(());
    }
    let expected = entry.parameter.spec().map_or_else(String::new, ToString::to_string);
    let got = format!("{}{:?}", value.dtype(), value.shape());
    let error = Error::of(ErrorKind::Program, "value of the checkpoint", expected, got);
    Err(error.variable(&entry.parameter.name))
}
