//! Reads and writes the tensors of a checkpoint. The head of a tensor is checked against the program before memory is allocated
//! for the tensor.

use std::collections::BTreeMap;
use std::io::{Read, Write};

use super::sections::{BEST, BEST_ROWS, CARRIED, MakeError, ROWS, TENSOR, about, malformed, unfit};
use super::stored::{Head, RowsHead, StoredHead, StoredRowsHead};
use crate::error::Result;
use crate::lod::Lod;
use crate::operator::Spec;
use crate::program::{Program, VarDesc, VarRole};
use crate::reserve;
use crate::tensor::{DType, Dense, SelectedRows, Storage, StorageKind, Variable};
use crate::wire::record::{from_bytes, to_bytes};
use crate::wire::stored::StoredForm;
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
    let head = to_bytes(&StoredHead::of(&head));
    let length = head_length(section, name, &head)?;
    let numbers = value.len() as u64 * dtype.size_of() as u64;
    out.stream_section(section, 4 + head.len() as u64 + numbers, |body| {
        body.write(&length.to_le_bytes())?;
        body.write(&head)?;
        value.write_numbers(|piece| body.write(piece))
    })
}

/// Returns the size in bytes of a tensor's head; an error if the head is too large.
fn head_length(section: &str, name: &str, head: &[u8]) -> Result<u32> {
    u32::try_from(head.len()).ok().filter(|&n| u64::from(n) <= STRUCTURED).ok_or_else(|| {
        let expected = format!("a head of at most {STRUCTURED} bytes");
        unfit(&about(section, name), &expected, &head.len().to_string())
    })
}

/// Writes the value of a persistent variable to a section: `tensor` or `best` for a dense value, `rows` or `best_rows` for a
/// row-sparse value.
pub(super) fn write_value<W: Write>(
    out: &mut Writer<W>,
    section: &str,
    name: &str,
    value: &Storage,
) -> Result<()> {
    match value {
        Storage::Dense(dense) => write(out, section, name, dense, None),
        Storage::SelectedRows(rows) if rows.is_merged() => {
            write_rows(out, if section == BEST { BEST_ROWS } else { ROWS }, name, rows)
        }
        // Rows with equal indices are merged before writing, so that equal values give equal bytes.
        Storage::SelectedRows(rows) => write_value(out, section, name, &rows.clone().merge()?.into()),
        Storage::Csr(_) | Storage::Coo(_) => {
            Err(unfit(&about(section, name), "a dense tensor or selected rows", value.kind().name()))
        }
    }
}

fn write_rows<W: Write>(out: &mut Writer<W>, section: &str, name: &str, value: &SelectedRows) -> Result<()> {
    let (dtype, shape, rows) = (value.dtype(), value.shape().to_vec(), value.row_ids().len());
    let head = to_bytes(&StoredRowsHead::of(&RowsHead { name: name.to_owned(), dtype, shape, rows }));
    let length = head_length(section, name, &head)?;
    let numbers = value.value().len() as u64 * dtype.size_of() as u64;
    out.stream_section(section, 4 + head.len() as u64 + rows as u64 * ID + numbers, |body| {
        body.write(&length.to_le_bytes())?;
        body.write(&head)?;
        for ids in value.row_ids().chunks(PIECE) {
            body.write(&ids.iter().flat_map(|id| id.to_le_bytes()).collect::<Vec<u8>>())?;
        }
        value.value().write_numbers(|piece| body.write(piece))
    })
}

/// The size in bytes of one stored row index.
const ID: u64 = size_of::<i64>() as u64;
/// The number of row indices that are converted to or from bytes at once.
const PIECE: usize = 1 << 12;

/// Reads a tensor section: the name and the value of a variable of the program. Before memory is allocated, dtype and shape are
/// checked against the program, and the size is checked against the length of the section.
pub(super) fn read(
    reader: &mut Reader<impl Read>,
    section: &str,
    program: &Program,
) -> Result<(String, Variable)> {
    let outcome = match section {
        ROWS | BEST_ROWS => rows_body(reader, section, program),
        _ => body(reader, section, program),
    };
    // After an error, the section is still read to its end: if the section is damaged, the checksum error is returned instead,
    // which helps more than an error about a shape. A section that is longer than any valid section is not read to its end,
    // because its length must be forged.
    if outcome.is_ok() || reader.section_left() <= LONGEST {
        reader.end_section()?;
    }
    outcome
}

fn head_bytes(reader: &mut Reader<impl Read>, section: &str) -> Result<Vec<u8>> {
    let mut length = [0; 4];
    reader.read(&mut length)?;
    let (length, most) = (u64::from(u32::from_le_bytes(length)), reader.section_left().min(STRUCTURED));
    if length > most {
        let (expected, got) = (format!("at most {most} bytes"), length.to_string());
        return Err(reader.refused(&format!("section `{section}`, length of the head"), expected, got));
    }
    reader.read_bytes(length)
}

/// Reads the rows of a row-sparse variable's section. The row count in the head is checked against the length of the
/// section, so that a forged count cannot allocate memory.
fn rows_body(reader: &mut Reader<impl Read>, section: &str, program: &Program) -> Result<(String, Variable)> {
    let head = head_bytes(reader, section)?;
    let head = from_bytes::<StoredRowsHead>(&head).and_then(StoredForm::read);
    let RowsHead { name, dtype, shape, rows } = head.map_err(|e| malformed(reader, section, &e))?;
    let what = about(section, &name);
    let wrong: MakeError<'_> = &|what, expected, got| reader.refused(what, expected, got);
    let layout = Layout { storage: StorageKind::SelectedRows, dtype, shape: &shape, levels: 0 };
    declared(program, section, &name, layout, wrong)?;
    let width = shape.iter().skip(1).try_fold(1u64, |width, &n| width.checked_mul(n as u64));
    let bytes_of_row = width.and_then(|n| n.checked_mul(dtype.size_of() as u64)?.checked_add(ID));
    let bytes = bytes_of_row.and_then(|n| n.checked_mul(rows as u64));
    if bytes != Some(reader.section_left()) {
        let expected = format!("the bytes of {rows} rows of {dtype}{shape:?}");
        return Err(reader.refused(&what, expected, reader.section_left().to_string()));
    }
    let height = shape.first().copied().unwrap_or(0);
    let mut ids: Vec<i64> = reserve::vector(rows, "row numbers")?;
    let mut piece = vec![0; ID as usize * rows.min(PIECE)];
    while ids.len() < rows {
        let bytes = &mut piece[..ID as usize * (rows - ids.len()).min(PIECE)];
        reader.read(bytes)?;
        for id in bytes.as_chunks::<{ ID as usize }>().0 {
            let id = i64::from_le_bytes(*id);
            if usize::try_from(id).map_or(true, |id| id >= height)
                || ids.last().is_some_and(|&last| last >= id)
            {
                let expected = format!("ascending row numbers, at least 0 and below {height}");
                return Err(reader.refused(&what, expected, format!("{id} at index {}", ids.len())));
            }
            ids.push(id);
        }
    }
    let stored: Vec<usize> = std::iter::once(rows).chain(shape.iter().skip(1).copied()).collect();
    let value = Dense::read_numbers(dtype, &stored, |bytes| reader.read(bytes))
        .and_then(|value| SelectedRows::new(height, ids, value))
        .and_then(|value| Variable::new(value, None));
    Ok((name, value.map_err(|e| reader.refused(&what, "valid rows", format!("{e:#}")))?))
}

fn body(reader: &mut Reader<impl Read>, section: &str, program: &Program) -> Result<(String, Variable)> {
    let head = head_bytes(reader, section)?;
    let head = from_bytes::<StoredHead>(&head).and_then(StoredForm::read);
    let Head { name, dtype, shape, lod } = head.map_err(|e| malformed(reader, section, &e))?;
    let what = about(section, &name);
    let levels = lod.as_ref().map_or(0, Lod::levels);
    let wrong: MakeError<'_> = &|what, expected, got| reader.refused(what, expected, got);
    let layout = Layout { storage: StorageKind::Dense, dtype, shape: &shape, levels };
    declared(program, section, &name, layout, wrong)?;
    let bytes = shape.iter().map(|&n| n as u64).try_fold(dtype.size_of() as u64, u64::checked_mul);
    if bytes != Some(reader.section_left()) {
        let expected = format!("the bytes of {dtype}{shape:?}");
        return Err(reader.refused(&what, expected, reader.section_left().to_string()));
    }
    let value = Dense::read_numbers(dtype, &shape, |bytes| reader.read(bytes));
    let value = value.map_err(|e| reader.refused(&what, "a tensor", format!("{e:#}")))?;
    let value = Variable::new(value, lod.map(Into::into))
        .map_err(|e| reader.refused(&what, "rows that fit the LoD", format!("{e:#}")))?;
    Ok((name, value))
}

/// The layout of a tensor: storage, dtype, shape and number of LoD levels, without the values.
#[derive(Clone, Copy)]
pub(super) struct Layout<'a> {
    pub(super) storage: StorageKind,
    pub(super) dtype: DType,
    pub(super) shape: &'a [usize],
    pub(super) levels: usize,
}

impl<'a> Layout<'a> {
    /// Returns the layout of a persistent variable's value, which has no LoD.
    pub(super) fn of(value: &'a Storage) -> Self {
        Self { storage: value.kind(), dtype: value.dtype(), shape: value.shape(), levels: 0 }
    }
}

/// Checks that the program declares a variable with this name and layout, and that the section `section` may hold this
/// variable.
pub(super) fn declared(
    program: &Program,
    section: &str,
    name: &str,
    layout: Layout<'_>,
    wrong: MakeError<'_>,
) -> Result<()> {
    let what = about(section, name);
    let desc = program.find(name).map(|id| program.var(id)).filter(|desc| match section {
        TENSOR | ROWS => desc.persistable,
        BEST | BEST_ROWS => desc.persistable && desc.role != VarRole::State,
        _ => desc.role == VarRole::Feed,
    });
    let Some(desc) = desc else {
        return Err(match section {
            CARRIED => wrong(&what, "the name of a feed", "another name"),
            _ => wrong(&what, "only variables that the program keeps", "another variable"),
        });
    };
    let Layout { dtype, shape, levels, .. } = layout;
    fits(desc, layout, &|_, expected, got| wrong(&what, expected, got))?;
    let expected = if section == CARRIED { desc.lod_level() } else { 0 };
    if levels != expected {
        return Err(wrong(&what, &format!("{expected} levels of offsets"), &levels.to_string()));
    }
    // The program does not limit the number of rows of a carried value, so its size is limited here.
    let bytes = shape.iter().fold(dtype.size_of() as u64, |bytes, &n| bytes.saturating_mul(n as u64));
    if section == CARRIED && bytes > LONGEST {
        return Err(wrong(&what, &format!("at most {LONGEST} bytes"), &bytes.to_string()));
    }
    Ok(())
}

/// Returns the persistent variables of a program that are tensors, by name.
pub(super) fn persistent(program: &Program) -> BTreeMap<&str, &VarDesc> {
    let vars = program.vars().map(|(_, desc)| desc);
    vars.filter(|desc| desc.persistable && desc.spec().is_some()).map(|desc| (&*desc.name, desc)).collect()
}

/// Checks that each variable has a tensor, and that each tensor belongs to a variable.
pub(super) fn complete(
    section: &str,
    vars: &BTreeMap<&str, &VarDesc>,
    tensors: &BTreeMap<&str, &Storage>,
    wrong: MakeError<'_>,
) -> Result<()> {
    for (name, desc) in vars {
        let what = about(section, name);
        let value = tensors
            .get(*name)
            .ok_or_else(|| wrong(&what, "a tensor for this variable of the program", "none"))?;
        fits(desc, Layout::of(value), &|_, expected, got| wrong(&what, expected, got))?;
    }
    match tensors.keys().find(|name| !vars.contains_key(**name)) {
        Some(name) => {
            Err(wrong(&about(section, name), "only variables that the program keeps", "another variable"))
        }
        None => Ok(()),
    }
}

/// Checks that a value has the storage, dtype and shape that the variable declares.
pub(super) fn fits(desc: &VarDesc, layout: Layout<'_>, wrong: MakeError<'_>) -> Result<()> {
    let Layout { storage, dtype, shape, .. } = layout;
    let alike = |spec: &Spec| {
        let dims = &spec.shape;
        let same = dims.len() == shape.len()
            && dims.iter().zip(shape).all(|(extent, &n)| extent.known().is_none_or(|known| known == n));
        same && (spec.storage, spec.dtype) == (storage, dtype)
    };
    if desc.spec().is_some_and(alike) {
        return Ok(());
    }
    let expected = desc.spec().map_or_else(|| "a tensor".to_owned(), Spec::to_string);
    let storage = if storage == StorageKind::Dense { String::new() } else { format!(" {storage}") };
    Err(wrong("tensor", &expected, &format!("{dtype}{shape:?}{storage}")))
}
