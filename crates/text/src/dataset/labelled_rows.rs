//! Data sets of sparse rows with labels, and loaders of batches of these rows.

use std::collections::BTreeMap;

use unpadded::data::{Field, Loader, Vocabulary};
use unpadded::{AtCaller, Error, Result};

use crate::source::reason::wrong_format;
use crate::{DataSet, FirstIndex, LabelledRow, ReadOptions, TextFile};

/// A data set of sparse rows with one label each, in memory.
///
/// [`DataSet::open`] reads a LIBSVM file by its path, several files by a pattern such as `data/*.svm`, and a file in a
/// zip by `data.zip!train.svm`. Files may be compressed with gzip or zip. Columns are counted from 0 if any index of
/// the data is 0, else from 1, as in scikit-learn; [`ReadOptions::first_index`] overrides this detection.
///
/// The training rows determine the number of columns and the classes. [`LabelledRows::drop_beyond`] removes the further
/// columns of test rows.
///
/// ```
/// use unpadded::data::Data;
/// use unpadded_text::{FirstIndex, LabelledRows, Target, TextFile};
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

/// The value that the feed of the label gets: a class or a number.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Target<'a> {
    /// For classification, the id of the label in the vocabulary of [`LabelledRows::classes`]: a [`Field::Int`].
    Class(&'a Vocabulary),
    /// For regression, the label itself: a [`Field::Float`].
    Number,
}

impl LabelledRows {
    /// Reads the rows of LIBSVM files, in the order of the files, as [`TextFile::libsvm`] does. To get the number of
    /// skipped malformed lines, call [`TextFile::libsvm`], [`Records::skipped`](crate::Records::skipped) and
    /// [`DataSet::new`] instead.
    ///
    /// # Errors
    /// Fails if there is no file, or if a file cannot be read, has no row, or has a malformed line.
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
        Ok(Self::of_records(names.join(", "), rows, ReadOptions::new().first_index(first)))
    }

    /// The number of the first column in the files, 0 or 1, as detected or set; other files are read alike.
    pub fn first_index(&self) -> FirstIndex {
        self.read_as.first_index.unwrap_or_default()
    }

    /// The number of columns of the rows: one more than the largest column index, which counts from 0. A model needs
    /// the number of columns of the training rows.
    pub fn columns(&self) -> usize {
        let largest = self.records.iter().flat_map(|row| &row.indices).max();
        largest
            .and_then(|&largest| usize::try_from(largest).ok())
            .map_or(0, |largest| largest.saturating_add(1))
    }

    /// Removes all entries from column `columns` on, which only test rows may have. Returns their number.
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

    /// Returns a vocabulary of the labels as classes, in ascending order: the labels -1 and 1 get the ids 0 and 1.
    ///
    /// # Errors
    /// Fails if a label is not a whole number ([`Target::Number`] accepts other numbers), or if there are fewer than
    /// two classes, since a model could learn nothing.
    #[track_caller]
    pub fn classes(&self) -> Result<Vocabulary> {
        self.classes_with(&Self::new("", [])).at_caller()
    }

    /// Returns the vocabulary of [`Self::classes`] with the classes of `dev`, too. The counts are of this data set alone: a class
    /// that only `dev` has gets the count 0.
    ///
    /// # Errors
    /// Fails as [`Self::classes`] does.
    #[track_caller]
    pub fn classes_with(&self, dev: &Self) -> Result<Vocabulary> {
        let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
        for (rows, count) in [(self, 1), (dev, 0)] {
            for (number, row) in rows.records.iter().enumerate() {
                // The largest number up to which `f64` represents every whole number exactly.
                const LARGEST: f64 = (1u64 << 53) as f64;
                if row.label.fract() != 0.0 || row.label.abs() > LARGEST {
                    let expected = "whole numbers, because the labels are classes";
                    let got = format!("{} of row {number}", row.label);
                    return Err(wrong_format(format!("labels in `{}`", rows.name), expected, got))
                        .at_caller();
                }
                *counts.entry(row.label as i64).or_default() += count;
            }
        }
        let what = || format!("labels in `{}`", self.name);
        if counts.len() < 2 {
            let got = counts.keys().next().map_or_else(|| "none".to_owned(), |one| format!("only `{one}`"));
            return Err(wrong_format(what(), "at least two", got)).at_caller();
        }
        let entries = counts.into_iter().map(|(class, count)| (class.to_string(), count));
        Vocabulary::counted(entries)
            .map_err(|label| Error::new(what(), "each once", format!("`{label}` twice")))
            .at_caller()
    }

    /// Makes a loader of batches with two feeds, named by `feeds`: the rows as csr `[rows, columns]`, and the labels.
    ///
    /// # Errors
    /// Fails as [`Loader::new`] does. Also fails if there is no row, if an entry is not in the first `columns` columns,
    /// or if a label is not one of the classes or is not finite in `f32`. The message has the number of the row,
    /// counted from 0.
    #[track_caller]
    pub fn loader(&self, feeds: [&str; 2], columns: usize, target: Target<'_>) -> Result<Loader> {
        let sample = |number: u64, row: &LabelledRow| {
            let named = |what: &str| format!("{what} of row {number} in `{}`", self.name);
            let beyond = |&&index: &&i64| usize::try_from(index).map_or(true, |index| index >= columns);
            if let Some(index) = row.indices.iter().find(beyond) {
                let expected = format!("0 or more and less than {columns}, the number of columns");
                let error = wrong_format(named("index"), expected, index.to_string());
                return Err(error.noted("`LabelledRows::drop_beyond` leaves such entries out"));
            }
            let label = match target {
                // Adding 0 turns the label -0 into 0.
                Target::Class(classes) => classes
                    .lookup(&(row.label + 0.0).to_string())
                    .map(Field::Int)
                    .map_err(|e| e.noted(named("the label")))?,
                Target::Number if (row.label as f32).is_finite() => Field::Float(row.label as f32),
                Target::Number => {
                    let (what, got) = (named("label"), row.label.to_string());
                    return Err(wrong_format(what, "a number that is finite in f32", got));
                }
            };
            let (indices, values) = (row.indices.clone(), row.values.clone());
            Ok(vec![Field::Sparse { columns, indices, values }, label])
        };
        let samples = self.numbered_samples(&sample).at_caller()?;
        Loader::new(samples, &feeds)
    }
}
