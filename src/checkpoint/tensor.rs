//! Tensors in a checkpoint: what stands in a file is held against the program before there is room for it.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use super::sections::{BEST, CARRIED, TENSOR, Wrong, about, malformed, unfit};
use super::stored::{Head, StoredHead};
use crate::error::Result;
use crate::lod::Lod;
use crate::program::{Program, Spec, VarDesc, VarRole};
use crate::tensor::{DType, Dense, Variable};
use crate::wire::record::to_bytes;
use crate::wire::{LONGEST, Reader, STRUCTURED, Writer};

pub(super) fn write<W: Write>(
    out: &mut Writer<W>,
    section: &str,
    name: &str,
    value: &Dense,
    lod: Option<&Lod>,
) -> Result<()> {
    let (dtype, shape) = (value.dtype(), value.shape().to_vec());
    let head = Head { name: name.to_owned(), dtype, shape, lod: lod.cloned() };
    let head = to_bytes(&StoredHead::from(&head));
    let length = u32::try_from(head.len()).ok().filter(|&n| u64::from(n) <= STRUCTURED).ok_or_else(|| {
        let expected = format!("a head of at most {STRUCTURED} bytes");
        unfit(&about(section, name), &expected, &head.len().to_string())
    })?;
    let numbers = value.len() as u64 * dtype.size_of() as u64;
    out.stream_section(section, 4 + head.len() as u64 + numbers, |body| {
        body.write(&length.to_le_bytes())?;
        body.write(&head)?;
        value.write_numbers(|piece| body.write(piece))
    })
}

/// Reads a tensor of the program: its name and its value. Nothing is allocated for it before it was found to be as the
/// program says, and its size to be that of the section.
pub(super) fn read(
    reader: &mut Reader<impl Read>,
    section: &str,
    program: &Program,
) -> Result<(String, Variable)> {
    let outcome = body(reader, section, program);
    // A checksum that is wrong says more than what its bytes seem to mean; but a forged length is not read to its end.
    if outcome.is_ok() || reader.section_left() <= LONGEST {
        reader.end_section()?;
    }
    outcome
}

fn body(reader: &mut Reader<impl Read>, section: &str, program: &Program) -> Result<(String, Variable)> {
    let mut length = [0; 4];
    reader.read(&mut length)?;
    let (length, most) = (u64::from(u32::from_le_bytes(length)), reader.section_left().min(STRUCTURED));
    if length > most {
        let (expected, got) = (format!("at most {most} bytes"), length.to_string());
        return Err(reader.refused(&format!("section `{section}`, length of the head"), expected, got));
    }
    let head = reader.read_bytes(length)?;
    let head = reader.decode::<StoredHead>(&head).and_then(Head::try_from);
    let Head { name, dtype, shape, lod } = head.map_err(|e| malformed(reader, section, &e))?;
    let what = about(section, &name);
    let levels = lod.as_ref().map_or(0, Lod::levels);
    let wrong: Wrong<'_> = &|what, expected, got| reader.refused(what, expected, got);
    declared(program, section, &name, Layout { dtype, shape: &shape, levels }, wrong)?;
    let bytes = shape.iter().map(|&n| n as u64).try_fold(dtype.size_of() as u64, u64::checked_mul);
    if bytes != Some(reader.section_left()) {
        let expected = format!("the bytes of {dtype}{shape:?}");
        return Err(reader.refused(&what, expected, reader.section_left().to_string()));
    }
    let value = Dense::read_numbers(dtype, &shape, |bytes| reader.read(bytes));
    let value = value.map_err(|e| reader.refused(&what, "a tensor", e.to_string()))?;
    let value = Variable::new(value, lod.map(Into::into))
        .map_err(|e| reader.refused(&what, "rows that fit", e.to_string()))?;
    Ok((name, value))
}

/// What a tensor is, but for its numbers.
pub(super) struct Layout<'a> {
    pub(super) dtype: DType,
    pub(super) shape: &'a [usize],
    /// Of offsets.
    pub(super) levels: usize,
}

/// Checks that the program has such a tensor for a section.
pub(super) fn declared(
    program: &Program,
    section: &str,
    name: &str,
    Layout { dtype, shape, levels }: Layout<'_>,
    wrong: Wrong<'_>,
) -> Result<()> {
    let what = about(section, name);
    let desc = program.find(name).map(|id| program.var(id)).filter(|desc| match section {
        TENSOR => desc.persistable,
        BEST => desc.persistable && desc.role != VarRole::State,
        _ => desc.role == VarRole::Feed,
    });
    let Some(desc) = desc else {
        return Err(match section {
            CARRIED => wrong(&what, "the name of a feed", "another"),
            _ => wrong(&what, "only what the program has", "a tensor"),
        });
    };
    fits(desc, dtype, shape, &|_, expected, got| wrong(&what, expected, got))?;
    let expected = if section == CARRIED { desc.lod_level() } else { 0 };
    if levels != expected {
        return Err(wrong(&what, &format!("{expected} levels of offsets"), &levels.to_string()));
    }
    // How many rows are carried the program does not say.
    let bytes = shape.iter().fold(dtype.size_of() as u64, |bytes, &n| bytes.saturating_mul(n as u64));
    if section == CARRIED && bytes > LONGEST {
        return Err(wrong(&what, &format!("at most {LONGEST} bytes"), &bytes.to_string()));
    }
    Ok(())
}

/// The persistent variables of a program, by name.
pub(super) fn persistent(program: &Program) -> BTreeMap<&str, &VarDesc> {
    let vars = program.vars().map(|(_, desc)| desc);
    vars.filter(|desc| desc.persistable && desc.spec().is_some()).map(|desc| (&*desc.name, desc)).collect()
}

/// Checks that there is a tensor for each variable, and none else.
pub(super) fn complete(
    section: &str,
    vars: &BTreeMap<&str, &VarDesc>,
    tensors: &BTreeMap<String, Dense>,
    wrong: Wrong<'_>,
) -> Result<()> {
    for (name, desc) in vars {
        let what = about(section, name);
        let value =
            tensors.get(*name).ok_or_else(|| wrong(&what, "a tensor, as the program has one", "none"))?;
        fits(desc, value.dtype(), value.shape(), &|_, expected, got| wrong(&what, expected, got))?;
    }
    match tensors.keys().find(|name| !vars.contains_key(name.as_str())) {
        Some(name) => Err(wrong(&about(section, name), "only what the program has", "a tensor")),
        None => Ok(()),
    }
}

/// Checks a value against its description.
pub(super) fn fits(desc: &VarDesc, dtype: DType, shape: &[usize], wrong: Wrong<'_>) -> Result<()> {
    let alike = |spec: &Spec| {
        let dims = &spec.shape;
        let same = dims.len() == shape.len()
            && dims.iter().zip(shape).all(|(extent, &n)| extent.known().is_none_or(|known| known == n));
        same && spec.dtype == dtype
    };
    if desc.spec().is_some_and(alike) {
        return Ok(());
    }
    let expected = desc.spec().map_or_else(|| "a tensor".to_owned(), Spec::to_string);
    Err(wrong("tensor", &expected, &format!("{dtype}{shape:?}")))
}
