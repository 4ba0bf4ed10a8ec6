//! Imports weights from a safetensors file; if the import fails, no weight is changed.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::file::{File, dtype};
use super::modules::Form;
use super::names::{Entry, Names, parameters};
use crate::checkpoint::{Checkpoint, Purpose};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::layers::{added, turned};
use crate::program::{Program, VarDesc};
use crate::tensor::{DType, Dense, Storage};

/// The report of an [`import`]: the parameters that were read, left out or converted, and the tensors that were ignored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ImportReport {
    /// The names of the parameters that were read from the file, sorted.
    pub parameters: Vec<String>,
    /// The names of the parameters that were left out by [`Names::without`], sorted.
    pub left_out: Vec<String>,
    /// The names of the tensors in the file that were ignored by [`Names::ignore`], sorted.
    pub ignored: Vec<String>,
    /// The names of the parameters whose dtype in the file differs from their dtype in the program, sorted. Floats of 64, 32
    /// and 16 bits are converted to the parameter's dtype, rounded to the nearest value.
    pub converted: Vec<String>,
}

/// Imports the values of a safetensors file into the parameters of a checkpoint. Floats are converted to the parameter's dtype.
///
/// The checkpoint must be [for inference](Checkpoint::for_inference), or must belong to a training before its first
/// step. After the first step, the optimizer state and the best epoch would not fit the imported values. The import
/// also sets parameters that have no value in the checkpoint.
///
/// # Errors
/// Fails if the file cannot be read, is damaged, or contains a number that is not finite. Also fails if the file's
/// tensors do not match the program's parameters; the message then lists every missing or unexpected tensor, and every
/// wrong shape or dtype. After an error, the checkpoint is unchanged.
#[track_caller]
pub fn import(path: impl AsRef<Path>, names: &Names, checkpoint: &mut Checkpoint) -> Result<ImportReport> {
    import_file(path.as_ref(), names, checkpoint).at_caller()
}

fn import_file(path: &Path, names: &Names, checkpoint: &mut Checkpoint) -> Result<ImportReport> {
    checkpoint.check_whole("checkpoint to import into")?;
    let begun = checkpoint.position.step > 0 || !checkpoint.best.is_empty();
    if begun && checkpoint.purpose == Purpose::Training {
        let expected = "a checkpoint for inference, or of a training before its first step";
        let got = format!("a training at {}", checkpoint.position);
        let error = Error::of(ErrorKind::Program, "checkpoint to read weights into", expected, got);
        return Err(error.noted_in_code("`Checkpoint::for_inference` makes a checkpoint for inference"));
    }
    let (values, imported) = read(path, names, &checkpoint.program, checkpoint.purpose)?;
    checkpoint.tensors.extend(values);
    Ok(imported)
}

/// Reads the values of a program's parameters, in the shapes and dtypes of the program. For inference, skips the parameters
/// that the program does not use.
pub(crate) fn read(
    path: &Path,
    names: &Names,
    program: &Program,
    purpose: Purpose,
) -> Result<(BTreeMap<String, Storage>, ImportReport)> {
    let mut all = parameters(program);
    if purpose == Purpose::Inference {
        let read: BTreeSet<&str> =
            program.reads().into_iter().map(|id| program.var(id).name.as_str()).collect();
        all.retain(|desc| read.contains(desc.name.as_str()));
    }
    let entries = names.entries(program, &all)?;
    let mut file = File::open(path)?;
    let mut imported = compared(&file, names, &entries)?;
    imported.left_out = left_out(&all, &entries);
    let mut values = BTreeMap::new();
    for entry in &entries {
        let value = read_one(&mut file, entry, &mut imported)?;
        imported.parameters.push(entry.parameter.name.clone());
        values.insert(entry.parameter.name.clone(), value);
    }
    imported.parameters.sort_unstable();
    imported.converted.sort_unstable();
    Ok((values, imported))
}

/// Returns the names of the parameters in `all` that are missing in `entries`, sorted.
fn left_out(all: &[&VarDesc], entries: &[Entry<'_>]) -> Vec<String> {
    let kept: BTreeSet<&str> = entries.iter().map(|entry| entry.parameter.name.as_str()).collect();
    let mut left: Vec<String> =
        all.iter().map(|desc| desc.name.clone()).filter(|name| !kept.contains(name.as_str())).collect();
    left.sort_unstable();
    left
}

fn read_one(file: &mut File, entry: &Entry<'_>, imported: &mut ImportReport) -> Result<Storage> {
    let mut read: Option<Dense> = None;
    for tensor in &entry.tensors {
        let next = file.read(tensor)?;
        read = Some(match read {
            Some(first) => added(&first, &next)?,
            None => next,
        });
    }
    let name = &entry.parameter.name;
    let value = read.ok_or_else(|| Error::new(file.shown(), "a tensor", "none").variable(name))?;
    let stored = entry.tensors.first().and_then(|tensor| dtype(file.tensors.get(tensor)?.dtype));
    if stored != Some(entry.dtype) {
        imported.converted.push(name.clone());
    }
    let value = if entry.form == Form::Turned { turned(&value)? } else { value };
    let value = value.cast(entry.dtype);
    // A number that is finite in 64 bits may become infinite when it is converted to 16 bits.
    let what = format!("value of {}, as {}", file.shown(), entry.dtype);
    value.check_finite(&what).map_err(|e| e.variable(name))?;
    Ok(value.into())
}

/// Compares the tensors of a file with the parameters of a program, before any tensor is read.
fn compared(file: &File, names: &Names, entries: &[Entry<'_>]) -> Result<ImportReport> {
    let (mut missing, mut shapes, mut dtypes) = (Vec::new(), Vec::new(), Vec::new());
    let mut wanted: BTreeSet<&str> = BTreeSet::new();
    for entry in entries {
        for tensor in &entry.tensors {
            wanted.insert(tensor);
            let Some(info) = file.tensors.get(tensor) else {
                missing.push(format!("{tensor} ({}{:?})", entry.dtype, entry.shape));
                continue;
            };
            if info.shape != entry.shape {
                shapes
                    .push(format!("{tensor} ({:?} in the model, {:?} in the file)", entry.shape, info.shape));
            }
            let stored = dtype(info.dtype);
            if !stored.is_some_and(|stored| becomes(stored, entry.dtype)) {
                let stored = stored.map_or_else(|| format!("{:?}", info.dtype), |stored| stored.to_string());
                dtypes.push(format!("{tensor} ({} in the model, {stored} in the file)", entry.dtype));
            }
        }
    }
    let (ignored, unexpected): (Vec<&String>, Vec<&String>) = file
        .tensors
        .keys()
        .filter(|name| !wanted.contains(name.as_str()))
        .partition(|name| names.ignores(name));
    let unexpected = unexpected.into_iter().map(|name| {
        let shape = file.tensors.get(name).map(|info| format!(" ({:?})", info.shape)).unwrap_or_default();
        format!("{name}{shape}")
    });
    let kinds = [
        ("missing", missing),
        ("unexpected", unexpected.collect()),
        ("of another shape", shapes),
        ("of another dtype", dtypes),
    ];
    let some = kinds.iter().filter(|(_, found)| !found.is_empty());
    let differences: Vec<String> =
        some.map(|(kind, found)| format!("{kind}: {}", found.join(", "))).collect();
    if differences.is_empty() {
        let ignored = ignored.into_iter().cloned().collect();
        return Ok(ImportReport { ignored, ..ImportReport::default() });
    }
    let what = format!("tensors of {}", file.shown());
    let expected = "the model's parameters, by PyTorch's names";
    let error = Error::of(ErrorKind::Mismatch, what, expected, differences.join("; "));
    let error = error.noted("nothing was changed");
    Err(error.noted_in_code("`Names` sets the names of layers in the file, and the tensors to leave out"))
}

/// Returns whether numbers of dtype `stored` can be converted to dtype `ours`: the two dtypes must be equal, or both
/// must be float dtypes.
fn becomes(stored: DType, ours: DType) -> bool {
    stored == ours || (stored.is_float() && ours.is_float())
}
