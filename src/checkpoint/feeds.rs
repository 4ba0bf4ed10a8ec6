//! Converts the state of a step-by-step text model to bytes, and bytes back to the state. The state consists of the values of
//! feeds and the number of steps.

use std::collections::BTreeMap;

use super::sections::CARRIED;
use super::tensor;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::program::Program;
use crate::tensor::Variable;
use crate::wire::{Reader, Writer};

/// The name of the section that holds the number of steps.
const STEPS: &str = "steps";

/// Returns the values of dense feeds, by name, and the number of steps (`steps`), as bytes in the checkpoint file format.
pub(crate) fn feeds_to_bytes<'a>(
    steps: u64,
    values: impl Iterator<Item = (&'a str, &'a Variable)>,
) -> Result<Vec<u8>> {
    let mut writer = Writer::new(Vec::new())?;
    writer.write_section(STEPS, &steps.to_le_bytes())?;
    for (name, value) in values {
        tensor::write(
            &mut writer,
            CARRIED,
            name,
            value.storage().as_dense()?,
            value.lod().map(|lod| &**lod),
        )?;
    }
    writer.finish()
}

/// Reads the bytes of [`feeds_to_bytes`] and checks them against the program. Returns the number of steps, and the values by
/// feed name.
///
/// # Errors
/// Fails if the bytes are damaged, come from a later version, or contain a value for a name that is not a feed of the program.
pub(crate) fn feeds_from_bytes(program: &Program, bytes: &[u8]) -> Result<(u64, BTreeMap<String, Variable>)> {
    let mut reader = Reader::new("saved state", bytes, bytes.len() as u64)?;
    let (mut steps, mut values) = (None, BTreeMap::new());
    while let Some(name) = reader.next_section()? {
        match name {
            STEPS => {
                let mut count = [0; 8];
                reader.read(&mut count)?;
                reader.end_section()?;
                steps = Some(u64::from_le_bytes(count));
            }
            CARRIED => {
                let (name, value) = tensor::read(&mut reader, CARRIED, program)?;
                if values.contains_key(&name) {
                    let got = format!("`{name}` twice");
                    return Err(Error::of(ErrorKind::Format, "saved state", "each feed once", got))
                        .at_caller();
                }
                values.insert(name, value);
            }
            _ => {}
        }
    }
    let none = || Error::of(ErrorKind::Format, "saved state", format!("a section `{STEPS}`"), "none");
    Ok((steps.ok_or_else(none)?, values))
}
