//! The names and the maximum sizes of a checkpoint's sections, and errors about invalid sections.

use std::io::Read;

use crate::error::{Error, ErrorKind};
use crate::wire::{self, Reader};

pub(super) use crate::program::save::SECTION as PROGRAM;
pub(super) const SHARDS: &str = "shards";
pub(super) const POSITION: &str = "position";
pub(super) const SUMS: &str = "sums";
pub(super) const NOTES: &str = "notes";
pub(super) const OUTPUTS: &str = "outputs";
pub(super) const VOCABULARY: &str = "vocabulary";
pub(super) const CRITERION: &str = "criterion";
pub(super) const EPOCH: &str = "epoch";
pub(super) const METRIC: &str = "metric";
pub(super) const PURPOSE: &str = "purpose";
pub(super) const TENSOR: &str = "tensor";
pub(super) const BEST: &str = "best";
pub(super) const ROWS: &str = "rows";
pub(super) const BEST_ROWS: &str = "best_rows";
pub(super) const CARRIED: &str = "carried";

/// Returns the maximum size in bytes of the section `section`; sections with tensors have limits of their own.
pub(super) fn longest(section: &str) -> u64 {
    if section == VOCABULARY { wire::LONGEST } else { wire::STRUCTURED }
}

/// A function that makes an error from three texts: the subject, what was expected, and what was found.
pub(super) type MakeError<'a> = &'a dyn Fn(&str, &str, &str) -> Error;

/// Returns the error that a checkpoint in memory (not one read from a file) is inconsistent.
pub(super) fn unfit(what: &str, expected: &str, got: &str) -> Error {
    Error::of(ErrorKind::Program, format!("checkpoint: {what}"), expected, got)
}

pub(super) fn about(section: &str, name: &str) -> String {
    format!("section `{section}`, `{name}`")
}

pub(super) fn malformed<R: Read>(reader: &Reader<R>, section: &str, error: &Error) -> Error {
    reader.refused(&format!("section `{section}`"), "what this release writes there", format!("{error:#}"))
}
