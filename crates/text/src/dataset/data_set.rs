//! Data sets in memory: the records, the name of the data set in messages, and the options that the records were read
//! with.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use unpadded::data::{Field, FileLine, Fingerprint, Sample, Samples};
use unpadded::{AtCaller, Error, ErrorKind, Result, reserve};

use super::hold_out::{held_name, is_held};
use crate::ReadOptions;
use crate::memory::Whole;
use crate::record::plan::Plan;

/// The type of a data set's records: labelled texts, pairs of texts, tagged texts or rows of features.
pub trait Record: Clone + Send + Sync + 'static {
    /// The plural noun for the records in messages, such as `texts`.
    const PLURAL: &'static str;

    /// Adds a part of the record to a fingerprint: the part that decides whether the record is held out. If several
    /// records are equal in this part, either all or none of these records are held out.
    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint;

    /// The stratum of the record for a cross-validation, such as the label. Each stratum is spread about equally over
    /// all folds. By default, all records are in one stratum.
    fn stratum(&self) -> Cow<'_, str> {
        "".into()
    }

    /// Adds the whole content of the record to a fingerprint.
    fn fingerprint(&self, fingerprint: Fingerprint) -> Fingerprint;

    /// The memory that the record takes, in bytes.
    fn bytes(&self) -> usize;

    /// Returns the line of the file from which the record was read, for messages. By default, the line is unknown (`None`).
    fn file_line(&self) -> Option<FileLine> {
        None
    }

    /// Finds the files of these paths, and detects the format and the columns from the first lines. `window` is true if
    /// the records will be read from the files in each pass, instead of being held in memory.
    ///
    /// # Errors
    /// Fails if there is no file, or if the first lines of a file do not match the format.
    fn plan(paths: &[PathBuf], options: &ReadOptions, window: bool) -> Result<Plan<Self>>;

    /// Returns a change for every record, such as a repair of tags, if the records as a whole need the change. By
    /// default, there is no change (`None`).
    ///
    /// # Errors
    /// Fails if the records contradict each other, or if a file is malformed.
    fn settled(_all: RecordPass<'_, Self>, _options: &mut ReadOptions) -> Result<Option<Change<Self>>> {
        Ok(None)
    }
}

/// A function that passes each record of a data set, in order, to a visitor.
pub type RecordPass<'a, R> = &'a dyn Fn(&mut dyn FnMut(&R)) -> Result<()>;

/// A function that changes a record.
pub type Change<R> = Box<dyn Fn(R) -> R + Send + Sync>;

/// A data set whose records, in memory or in files, can be read repeatedly.
pub trait Passes<R> {
    /// The name that messages show for the data set.
    fn called(&self) -> Cow<'_, str>;

    /// The options that the records were read with.
    fn options(&self) -> &ReadOptions;

    /// Passes each record, in order, to a visitor.
    ///
    /// # Errors
    /// Fails if a file is malformed or cannot be read.
    fn each(&self, visit: &mut dyn FnMut(&R)) -> Result<()>;
}

impl<R> Passes<R> for DataSet<R> {
    fn called(&self) -> Cow<'_, str> {
        (&*self.name).into()
    }

    fn options(&self) -> &ReadOptions {
        &self.read_as
    }

    fn each(&self, visit: &mut dyn FnMut(&R)) -> Result<()> {
        self.records.iter().for_each(visit);
        Ok(())
    }
}

/// A data set in memory: records, a name for messages, and the options that the records were read with. The
/// documentation of [`LabelledTexts`](crate::LabelledTexts), [`Pairs`](crate::Pairs),
/// [`TaggedTexts`](crate::TaggedTexts) and [`LabelledRows`](crate::LabelledRows) shows how to train on each kind of
/// record.
#[derive(Debug, Clone, PartialEq)]
pub struct DataSet<R> {
    pub(crate) name: String,
    pub(crate) records: Vec<R>,
    pub(crate) read_as: ReadOptions,
}

impl<R> DataSet<R> {
    /// Makes a data set of `records`; messages show `name` as the name of the data set.
    pub fn new(name: &str, records: impl Into<Vec<R>>) -> Self {
        Self { name: name.to_owned(), records: records.into(), read_as: ReadOptions::default() }
    }

    /// Sets the options that the records were read with.
    pub(crate) fn read_by(self, read_as: ReadOptions) -> Self {
        Self { read_as, ..self }
    }

    /// The name that messages show for the data set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The records, in the order of the files.
    pub fn records(&self) -> &[R] {
        &self.records
    }

    /// The options with the format and the columns that [`Self::open`] detected. With these options, other files of the
    /// data set are read in the same way.
    pub fn read_as(&self) -> &ReadOptions {
        &self.read_as
    }

    /// Makes a data set of some of the records, under another name.
    fn part(&self, name: String, records: Vec<R>) -> Self {
        Self { name, records, read_as: self.read_as.clone() }
    }

    /// Divides the records into two data sets: first the records for which `held` is false, then the records for which
    /// `held` is true.
    pub(crate) fn hold_out_where(mut self, held: impl FnMut(&R) -> bool) -> (Self, Self) {
        let (held, rest) = std::mem::take(&mut self.records).into_iter().partition(held);
        let held = self.part(held_name(&self.name), held);
        (Self { records: rest, ..self }, held)
    }

    /// Divides the records into a training, a held-out and a test part, which are returned in this order. A record is in the
    /// test part if `number` returns 0 for the record, and in the held-out part if `number` returns 1. Every other record is in
    /// the training part. `number` may be a hash that other programs use, too, so that all programs make the same three parts.
    ///
    /// ```
    /// use unpadded_text::{Pairs, TextFile};
    /// let words = TextFile::embedded("some.tsv", "go\tg ow\nseven\ts eh v ah n\nrain\tr ey n\n");
    /// let [train, dev, test] = Pairs::of_lines(&words)?.divide_by(|pair| pair.source.len() as u64 % 4);
    /// assert_eq!([train, dev, test].map(|part| part.records()[0].source.clone()), ["go", "seven", "rain"]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn divide_by(mut self, number: impl Fn(&R) -> u64) -> [Self; 3] {
        let mut parts = [Vec::new(), Vec::new(), Vec::new()];
        for record in std::mem::take(&mut self.records) {
            let [train, dev, test] = &mut parts;
            match number(&record) {
                0 => test.push(record),
                1 => dev.push(record),
                _ => train.push(record),
            }
        }
        let [train, dev, test] = parts;
        let dev = self.part(held_name(&self.name), dev);
        let test = self.part(format!("{}, test", self.name), test);
        [Self { records: train, ..self }, dev, test]
    }

    /// Adds a note with the name of the data set to an error.
    pub(crate) fn noted(&self, error: Error) -> Error {
        error.noted(format!("in `{}`", self.name))
    }
}

impl<R: Record> DataSet<R> {
    /// Reads the records of a path into memory. This call detects the format and the columns, which [`Self::read_as`]
    /// returns.
    ///
    /// # Errors
    /// Fails if there is no file, no record, or a malformed record. The message has the file, the line and the reason
    /// for the detected format.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with([path], &ReadOptions::default())
    }

    /// Reads the records of several paths into one data set, with the options `options`.
    ///
    /// # Errors
    /// Fails as [`Self::open`] does. Also fails if there is no path, or if the options name a column that does not exist.
    #[track_caller]
    pub fn open_with<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
        Self::read(&paths, options).at_caller()
    }

    fn read(paths: &[PathBuf], options: &ReadOptions) -> Result<Self> {
        let _whole = Whole::begin();
        let plan = R::plan(paths, options, false)?;
        let records = reserve::collected((plan.open)(), &format!("records of `{}`", plan.name))?;
        Self::of_plan(plan, records)
    }

    /// Makes the data set of all records that a plan has read.
    pub(crate) fn of_plan(plan: Plan<R>, mut records: Vec<R>) -> Result<Self> {
        let Plan { name, mut options, .. } = plan;
        let all = |visit: &mut dyn FnMut(&R)| {
            records.iter().for_each(visit);
            Ok(())
        };
        if let Some(change) = R::settled(&all, &mut options)? {
            records = records.into_iter().map(change).collect();
        }
        let found = Self::new(&name, records).read_by(options);
        found.some()?;
        Ok(found)
    }

    /// Checks that the data set has at least one record.
    fn some(&self) -> Result<()> {
        if self.records.is_empty() { Err(none::<R>(&self.name)) } else { Ok(()) }
    }

    /// Hold-out: holds out about one in `one_in` records, and returns the remaining records, then the held-out records. If
    /// `one_in` is 0, nothing is held out. Only the seed and a part of the record decide whether the record is held out. A
    /// held-out record therefore stays held out when other records are added.
    ///
    /// The part that decides is:
    /// - for a labelled text: the group; if the text has no group, the text itself;
    /// - for a pair: the source;
    /// - for a tagged text: the words;
    /// - for a row: the query number; if the row has no query number, the entries.
    ///
    /// For example, the texts of one group are either all held out or all kept.
    ///
    /// ```
    /// use unpadded_text::{LabelledTexts, TextFile};
    /// let names = LabelledTexts::of_classes("names", [
    ///     ("A".to_owned(), TextFile::embedded("a.txt", "Anna\nOtto\nInga\n")),
    ///     ("B".to_owned(), TextFile::embedded("b.txt", "Bea\nOtto\n")),
    /// ])?;
    /// let (rest, held) = names.hold_out(2, 7);
    /// assert_eq!(rest.records().len() + held.records().len(), 5);
    /// assert!(!rest.records().iter().any(|a| held.records().iter().any(|b| a.text == b.text)));
    /// assert_eq!(held.name(), "names, held out");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn hold_out(self, one_in: u64, seed: u64) -> (Self, Self) {
        self.hold_out_where(|record| is_held(one_in, seed, |f| record.held_out_by(f)))
    }

    /// Makes a sample of each record: `sample` gets the index of the record, counted from 0, and the record, and
    /// returns the fields.
    ///
    /// # Errors
    /// Fails if there is no record, or with the first error of `sample`.
    #[track_caller]
    pub fn samples_by(&self, sample: &dyn Fn(usize, &R) -> Result<Vec<Field>>) -> Result<Samples> {
        self.some().at_caller()?;
        let of = |(number, record): (usize, &R)| {
            Ok(Sample::new(number as u64, sample(number, record)?).placed(record.file_line()))
        };
        Samples::try_of(self.records.iter().enumerate().map(of)).at_caller()
    }
}

/// Returns the error for a data set without records.
pub(crate) fn none<R: Record>(name: &str) -> Error {
    Error::of(ErrorKind::Format, format!("{} of `{name}`", R::PLURAL), "at least one", "none")
}
