//! The records of a data set within a memory limit: in memory if they fit, else in their files.

use std::path::PathBuf;

use unpadded::{AtCaller, Result, reserve};

use super::data_set::planned;
use crate::memory::Whole;
use crate::{DataSet, FileRecords, Files, ReadOptions, Record};

/// The records of a data set: in memory, or in files.
pub enum RecordSource<R, M = Vec<R>, F = FileRecords<R>> {
    /// The records are in memory.
    Memory(DataSet<R, M>),
    /// Each pass over the records reads the files.
    Files(DataSet<R, F>),
}

impl<R: Record> RecordSource<R> {
    /// Reads the records of several paths into memory if they take at most `most` bytes; else they stay in their files.
    ///
    /// # Errors
    /// Fails as [`DataSet::open_with`] does.
    #[track_caller]
    pub fn read(paths: &[PathBuf], options: &ReadOptions, most: usize) -> Result<Self> {
        let _whole = Whole::begin();
        let plan = planned::<R>(paths, options, false).at_caller()?;
        let (mut records, mut bytes) = (Vec::new(), 0usize);
        for record in plan.records.open() {
            let record = record.at_caller()?;
            bytes = bytes.saturating_add(record.bytes());
            if bytes > most {
                drop(records);
                return Files::planned(plan).map(Self::Files).at_caller();
            }
            reserve::items(&mut records, 1, &format!("records of `{}`", plan.name)).at_caller()?;
            records.push(record);
        }
        DataSet::of_plan(plan, records).map(Self::Memory).at_caller()
    }
}
