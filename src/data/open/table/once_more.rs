//! Parses the lines of a malformed record once more, as records of their own.
//!
//! If a quotation mark is never closed, each line behind it may open a quoted cell, too. In a quoted cell at the start of a line,
//! the lines that follow are parsed in the same way, whichever line has opened the cell. A cell that is open behind a line of a
//! malformed record therefore fails where this record failed, without another look at the lines that follow. Each line is parsed
//! at most twice.

use std::ops::RangeInclusive;

use super::{Rows, State};
use crate::data::lines::Reason;
use crate::data::records::Parser;

/// A parser of rows that fails early where a malformed record has failed.
pub(super) struct OnceMore<F> {
    rows: Rows<F>,
    /// The number of the second line of the current record.
    second: u64,
    /// The lines behind the first line of the last malformed record of several lines, and the reason.
    failed: Option<(RangeInclusive<u64>, Reason)>,
}

impl<F> OnceMore<F> {
    pub(super) fn new(rows: Rows<F>) -> Self {
        Self { rows, second: 0, failed: None }
    }

    fn is_open(&self) -> bool {
        matches!(self.rows.cells.state, State::Quoted)
    }

    fn fail(&mut self, last: u64, reason: &Reason) {
        self.rows.cells.clear();
        if self.second <= last {
            self.failed = Some((self.second..=last, reason.clone()));
        }
    }
}

impl<R, F: FnMut(Vec<String>) -> Result<R, Reason> + Send> Parser<R> for OnceMore<F> {
    fn at(&mut self, line: u64) {
        self.rows.cells.line = line;
    }

    fn line(&mut self, line: &str) -> Result<Option<R>, Reason> {
        let number = self.rows.cells.line;
        if !self.is_open() {
            self.second = number + 1;
        }
        self.rows.line(line).inspect_err(|reason| self.fail(number, reason))
    }

    fn fails(&mut self) -> Option<Reason> {
        let next = self.rows.cells.line + 1;
        let (lines, reason) = self.failed.as_ref().filter(|_| self.is_open())?;
        let reason = lines.contains(&next).then(|| reason.clone())?;
        self.rows.cells.clear();
        Some(reason)
    }

    fn spoil(&mut self) -> bool {
        // The record is still open if its last line cannot be decoded.
        if self.is_open()
            && let Err(reason) = Parser::<R>::end(&mut self.rows)
        {
            let got = "a malformed line".to_owned();
            self.fail(self.rows.cells.line, &Reason { got, ..reason });
        }
        true
    }

    fn end(&mut self) -> Result<Option<R>, Reason> {
        self.rows.end().inspect_err(|reason| self.fail(self.rows.cells.line, reason))
    }
}
