//! Sparse rows with labels, and their batches.

use std::collections::BTreeMap;

use super::{DataSet, Field, FirstIndex, LabelledRow, Loader, ReadOptions, TextFile, Vocabulary};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// A data set of sparse rows with one label each, in memory.
///
/// [`DataSet::open`] reads LIBSVM files by their path, several by a pattern as `data/*.svm`, a file in a zip by
/// `data.zip!train.svm`; files may be compressed with gzip or zip. Indices count from 0 if any index is 0, and else
/// from 1, as scikit-learn reads them; [`ReadOptions::first_index`] sets the first.
///
/// The training rows determine the number of columns and the classes; [`LabelledRows::drop_beyond`] makes test rows
/// fit.
///
/// ```
/// use unpadded::data::{Data, FirstIndex, LabelledRows, Target, TextFile};
/// let file = TextFile::embedded("train", "+1 3:0.5 1:2\n-1 2:1\n+1 1:1 3:4 # the third\n");
/// let train = LabelledRows::of_files([&file], FirstIndex::One)?;
/// let file = TextFile::embedded("test", "-1 1:3 4:1\n");
/// let mut test = LabelledRows::of_files([&file], FirstIndex::One)?;
///
/// let (columns, classes) = (train.columns(), train.classes()?);
/// assert!(columns == 3 && classes.tokens().eq(["-1", "1"])); // so -1 is class 0, and +1 is class 1
/// let loader = train.loader(["x", "class"], columns, Target::Class(&classes))?.shuffle(7);
/// let batch = loader.batches(None, 0)?.next().unwrap()?;
/// assert_eq!((batch.values[0].1.shape(), batch.values[1].1.as_slice::<i64>()?), (&[3, 3][..], &[1, 0, 1][..]));
///
/// // No weight was learned for a fourth column: it is an error, or left out.
/// assert!(test.loader(["x", "class"], columns, Target::Class(&classes)).is_err());
/// assert_eq!(test.drop_beyond(columns), 1);
/// let loader = test.loader(["x", "class"], columns, Target::Class(&classes))?;
/// # assert_eq!(loader.batch_count(), Some(1));
/// # Ok::<(), unpadded::Error>(())
/// ```
pub type LabelledRows = DataSet<LabelledRow>;

/// The value that a feed gets for the label of a row.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Target<'a> {
    /// The id of the label's class, as [`LabelledRows::classes`] numbers them: a [`Field::Int`].
    Class(&'a Vocabulary),
    /// The label itself, for regression: a [`Field::Float`].
    Number,
}

impl LabelledRows {
    /// Reads the rows of LIBSVM files, one file after another, as [`TextFile::libsvm`] does. For the number of skipped
    /// malformed lines, use [`Records::skipped`](super::Records::skipped), and [`DataSet::new`] with the rows.
    ///
    /// # Errors
    /// If there is no file; if a file cannot be read, has no row, or has a malformed line.
    #[track_caller]
    pub fn of_files<'a>(files: impl IntoIterator<Item = &'a TextFile>, first: FirstIndex) -> Result<Self> {
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for file in files {
            names.push(file.name());
            rows.append(&mut file.libsvm(first)?.read_all().at_caller()?);
        }
        if names.is_empty() {
            return Err(Error::new("files of rows", "at least one", "none"));
        }
        Ok(Self::new(&names.join(", "), rows).read_by(ReadOptions::new().first_index(first)))
    }

    /// The number of the first column in the files, detected or set, to read other files of the data set in the same
    /// way.
    pub fn first_index(&self) -> FirstIndex {
        self.read_as.first_index.unwrap_or_default()
    }

    /// The number of columns of the rows: one more than the largest index. A model takes the number of its training rows.
    pub fn columns(&self) -> usize {
        let largest = self.records.iter().flat_map(|row| &row.indices).max();
        largest
            .and_then(|&largest| usize::try_from(largest).ok())
            .map_or(0, |largest| largest.saturating_add(1))
    }

    /// Removes the entries beyond the first `columns` columns, such as columns that only a test file has. Returns the number
    /// of removed entries.
    pub fn drop_beyond(&mut self, columns: usize) -> usize {
        let within = |index: i64| usize::try_from(index).is_ok_and(|index| index < columns);
        let mut dropped = 0;
        for row in self.records.iter_mut().filter(|row| row.indices.iter().any(|&index| !within(index))) {
            let before = row.indices.len();
            let pairs = row.indices.iter().copied().zip(row.values.iter().copied());
            (row.indices, row.values) = pairs.filter(|&(index, _)| within(index)).unzip();
            dropped += before - row.indices.len();
        }
        dropped
    }

    /// The labels as classes with ids, in ascending order: labels 0 and 1, -1 and 1, or 1 to 20 get the ids 0, 1 and so on.
    ///
    /// # Errors
    /// If a label is no whole number (use [`Target::Number`] for such labels), or if there are fewer than two classes: nothing
    /// could be learned.
    #[track_caller]
    pub fn classes(&self) -> Result<Vocabulary> {
        let what = || format!("labels in `{}`", self.name);
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        for (number, row) in self.records.iter().enumerate() {
            // `f64` represents every whole number up to this one exactly.
            const LARGEST: f64 = (1u64 << 53) as f64;
            if row.label.fract() != 0.0 || row.label.abs() > LARGEST {
                let expected = "whole numbers, as classes have";
                let got = format!("{} of row {number}", row.label);
                return Err(Error::of(ErrorKind::Format, what(), expected, got));
            }
            *counts.entry(row.label as i64).or_default() += 1;
        }
        if counts.len() < 2 {
            let got = counts.keys().next().map_or_else(|| "none".to_owned(), |one| format!("`{one}` alone"));
            return Err(Error::of(ErrorKind::Format, what(), "at least two", got));
        }
        let entries = counts.into_iter().map(|(class, count)| (class.to_string(), count));
        Vocabulary::new(entries, 0..0, None)
            .map_err(|label| Error::new(what(), "each once", format!("`{label}` twice")))
            .at_caller()
    }

    /// Loads batches of the rows as csr of shape `[rows, columns]`, and of their labels, for the feeds of these names.
    ///
    /// # Errors
    /// As [`Loader::new`]; if there is no row, an entry beyond the columns, a label that is no class, or a label that is not
    /// finite in `f32`. An error of a row has its number, counted from 0.
    #[track_caller]
    pub fn loader(&self, feeds: [&str; 2], columns: usize, target: Target<'_>) -> Result<Loader> {
        let sample = |number: usize, row: &LabelledRow| {
            let of = |what: &str| format!("{what} of row {number} in `{}`", self.name);
            let beyond = |&&index: &&i64| usize::try_from(index).map_or(true, |index| index >= columns);
            if let Some(index) = row.indices.iter().find(beyond) {
                let expected = format!("0 or more and below the {columns} columns");
                let error = Error::of(ErrorKind::Format, of("index"), expected, index.to_string());
                return Err(error.noted("`LabelledRows::drop_beyond` leaves such entries out"));
            }
            let label = match target {
                // Adding 0 turns a negative zero into 0.
                Target::Class(classes) => classes
                    .lookup(&(row.label + 0.0).to_string())
                    .map(Field::Int)
                    .map_err(|e| e.noted(of("the label")))?,
                Target::Number if (row.label as f32).is_finite() => Field::Float(row.label as f32),
                Target::Number => {
                    let (what, got) = (of("label"), row.label.to_string());
                    return Err(Error::of(ErrorKind::Format, what, "a number that is finite in f32", got));
                }
            };
            let (indices, values) = (row.indices.clone(), row.values.clone());
            Ok(vec![Field::Sparse { columns, indices, values }, label])
        };
        let samples = self.samples_by(&sample).at_caller()?;
        Loader::new(samples, &feeds)
    }
}
