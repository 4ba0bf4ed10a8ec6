//! The log of the lines of a data set that are left out: malformed records, and headers that are repeated below.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use unpadded::{Error, Result};

use super::reason::{Reason, wrong_format};

/// A malformed record that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkippedLine {
    /// The name of the file for messages.
    pub file: String,
    /// The line of the record, or the row in Parquet; 0 if it is unknown.
    pub line: u64,
    /// The reason: the expected and the found text.
    pub reason: String,
    /// The text of the line, at most its first 1,000 characters; empty if it is unknown.
    pub text: String,
}

/// Number of reasons or lines that messages show.
const SHOWN: usize = 3;

/// The malformed records of a data set that were left out, and the number of all records.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SkipReport {
    /// The records that were left out, by file and line; at most 10,000 of them.
    pub skipped: Vec<SkippedLine>,
    /// The number of further records that were left out.
    pub more: u64,
    /// The number of all records, with those that were left out.
    pub records: u64,
}

impl SkipReport {
    /// The number of all records that were left out.
    pub fn count(&self) -> u64 {
        self.skipped.len() as u64 + self.more
    }

    /// The share of the records that was left out, from 0 to 1.
    pub fn share(&self) -> f64 {
        self.count() as f64 / self.records.max(1) as f64
    }

    /// The first reasons, each with its file and line.
    pub fn first(&self) -> impl Iterator<Item = String> {
        self.skipped.iter().take(SHOWN).map(|one| format!("{}:{}: {}", one.file, one.line, one.reason))
    }
}

/// Shows how many records were left out, and the first reasons.
impl fmt::Display for SkipReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, share) = (self.count(), 100.0 * self.share());
        write!(f, "malformed records left out: {count} of {} ({share:.3} %)", self.records)?;
        self.first().try_for_each(|reason| write!(f, "; {reason}"))?;
        let more = count.saturating_sub(SHOWN as u64);
        if more > 0 { write!(f, "; and {more} more") } else { Ok(()) }
    }
}

/// The malformed records that passes have found.
#[derive(Debug, Default)]
struct SkippedLines {
    /// The first records, by file, line and number within the line.
    kept: BTreeMap<(String, [u64; 2]), SkippedLine>,
    more: u64,
    /// The line and the number within the line of the last further record of each file; each pass reads a file in order.
    last: BTreeMap<String, [u64; 2]>,
}

/// The greatest number of records whose texts are kept in memory.
pub(crate) const MANY: usize = 10_000;

impl SkippedLines {
    fn add(&mut self, file: &str, at: [u64; 2], reason: &Reason, text: &str) {
        let key = (file.to_owned(), at);
        if self.kept.contains_key(&key) {
            return;
        }
        if self.kept.len() < MANY {
            let text = text.char_indices().nth(1000).map_or(text, |(end, _)| text.get(..end).unwrap_or(text));
            let reason = format!("expected {}, got {}", reason.expected, reason.got);
            let (file, text) = (file.to_owned(), text.to_owned());
            self.kept.insert(key, SkippedLine { file, line: at[0], reason, text });
        } else if self.last.get(file).is_none_or(|last| *last < at) {
            self.last.insert(key.0, at);
            self.more += 1;
        }
    }

    fn count(&self) -> u64 {
        self.kept.len() as u64 + self.more
    }
}

/// The log of a data set's malformed records and repeated headers. Each pass adds the same lines, so that the log of
/// several passes equals the log of one.
#[derive(Debug, Default)]
pub(crate) struct SkipLog {
    /// The greatest share of malformed records; `None` for any share.
    pub(crate) most: Option<f64>,
    found: Mutex<SkippedLines>,
    /// The greatest number of well-formed records that a pass has read.
    read: AtomicU64,
    /// The files and lines in which files that were joined have the header of the first file again.
    headers: Mutex<BTreeSet<(Arc<str>, u64)>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SkipLog {
    pub(crate) fn of(most: Option<f64>) -> Self {
        Self { most, ..Self::default() }
    }

    /// Adds a malformed record; `at` is its line, and its number if a line may have several records.
    ///
    /// # Errors
    /// Fails if more than 10,000 records, and more than ten times the allowed share of the records so far, are malformed.
    pub(crate) fn add(&self, file: &str, at: [u64; 2], reason: &Reason, text: &str) -> Result<()> {
        let mut found = locked(&self.found);
        found.add(file, at, reason, text);
        let (count, read) = (found.count(), self.read.load(Ordering::Relaxed));
        drop(found);
        let over = |most: f64| count as f64 > 10.0 * most * (read + count) as f64;
        if count > MANY as u64 && self.most.is_some_and(over) {
            Err(self.refused("the first "))
        } else {
            Ok(())
        }
    }

    pub(crate) fn add_header(&self, file: &Arc<str>, line: u64) {
        locked(&self.headers).insert((Arc::clone(file), line));
    }

    /// Returns a note for the user on the repeated headers that were read so far: their number, and the first lines.
    pub(crate) fn headers(&self) -> Option<String> {
        let lines = locked(&self.headers);
        let first: Vec<String> =
            lines.iter().take(SHOWN).map(|(file, line)| format!("{file}:{line}")).collect();
        let (count, first) = (lines.len(), first.join(", "));
        let (plural, more) = (if count == 1 { "" } else { "s" }, if count > SHOWN { ", …" } else { "" });
        (count > 0).then(|| format!("header repeated in {count} line{plural}, left out: {first}{more}"))
    }

    /// Counts the well-formed records of a pass so far.
    pub(crate) fn count(&self, read: u64) {
        self.read.fetch_max(read, Ordering::Relaxed);
    }

    /// Returns the log, with the texts of the first records, at most `most`; `None` if no record was left out.
    pub(crate) fn report(&self, most: usize) -> Option<SkipReport> {
        let found = locked(&self.found);
        let skipped: Vec<_> = found.kept.values().take(most).cloned().collect();
        let count = found.count();
        let records = self.read.load(Ordering::Relaxed) + count;
        let more = count - skipped.len() as u64;
        (count > 0).then_some(SkipReport { skipped, more, records })
    }

    /// Checks the share of the malformed records at the end of a pass.
    pub(crate) fn check(&self) -> Result<()> {
        let count = locked(&self.found).count();
        let all = self.read.load(Ordering::Relaxed) + count;
        match self.most {
            Some(most) if count as f64 > most * all as f64 => Err(self.refused("")),
            _ => Ok(()),
        }
    }

    fn refused(&self, file: &str) -> Error {
        let Some(report) = self.report(SHOWN) else {
            return wrong_format("records", "some", "none");
        };
        let most = self.most.unwrap_or(1.0);
        let expected =
            format!("at most a share of {most} (`data.skip_bad_share`) for `data.skip_bad` to leave out");
        let share = (report.share() * 1e6).round() / 1e6;
        let got = format!("{} of {file}{} records, a share of {share}", report.count(), report.records);
        let error = wrong_format("malformed records", expected, got);
        report.first().fold(error, |error, reason| error.noted(reason))
    }
}
