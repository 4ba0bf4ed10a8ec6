//! Data sets: the records, the name of the data set in messages, and the options that the records were read with.

use std::borrow::Cow;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::data::{Field, FileLine, Fingerprint, Limits, Sample, Samples, Source, Tokenizer, Vocabulary};
use unpadded::{AtCaller, Error, Result, reserve};

use crate::ReadOptions;
use crate::memory::Whole;
use crate::record::plan::Plan;
use crate::source::reason::wrong_format;

/// The type of a data set's records: labelled texts, pairs of texts, tagged texts or rows of features.
pub trait Record: Clone + Send + Sync + 'static {
    /// The plural noun for the records in messages, such as `texts`.
    const PLURAL: &'static str;

    /// Adds a part of the record to a fingerprint: the part that decides whether the record is held out. If several
    /// records are equal in this part, either all or none of these records are held out.
    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint;

    /// Adds the input of the record to a fingerprint: what a model reads, without the answer. By default, it is the part
    /// that decides whether the record is held out.
    fn input(&self, fingerprint: Fingerprint) -> Fingerprint {
        self.held_out_by(fingerprint)
    }

    /// The hash that decides whether the record is held out, for a seed. Records with equal hashes are in one part.
    fn held_out_key(&self, seed: u64) -> u64 {
        self.held_out_by(Fingerprint::default().number(seed)).finish()
    }

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

/// A function that decides whether a record is held out.
pub type HoldOutRule<R> = Arc<dyn Fn(&R) -> bool + Send + Sync>;

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

/// The content of a data set, in memory or in files: records, or the pieces of a text.
pub trait DataStorage<R>: Sized {
    /// Opens the files of these paths, or reads them into memory.
    ///
    /// # Errors
    /// Fails as [`DataSet::open`] does.
    fn open(paths: &[PathBuf], options: &ReadOptions) -> Result<DataSet<R, Self>>;
}

/// The records of a data set: a `Vec` in memory, or [`FileRecords`](crate::FileRecords).
pub trait RecordStorage<R: Record>: DataStorage<R> {
    /// The samples that are made of the records.
    type Samples: Source + 'static;

    /// Iterates over the records, in the order of the files. An error in a file is the last item.
    fn pass(&self) -> Box<dyn Iterator<Item = Result<Cow<'_, R>>> + '_>;

    /// Divides the records into the remaining records and the records for which `held` is true.
    fn hold_out_by(self, held: HoldOutRule<R>) -> [Self; 2];

    /// Makes the samples of the data set `texts`, as [`DataSet::samples_by`] does. `salt` adds all other inputs of `sample`
    /// to a fingerprint.
    ///
    /// # Errors
    /// Fails as [`DataSet::samples_by`] does.
    fn samples(
        texts: &DataSet<R, Self>,
        salt: impl FnOnce(Fingerprint) -> Fingerprint,
        sample: impl Fn(&R) -> Result<Vec<Field>> + Send + Sync + 'static,
    ) -> Result<Self::Samples>;
}

impl<R: Record, S: RecordStorage<R>> Passes<R> for DataSet<R, S> {
    fn called(&self) -> Cow<'_, str> {
        (&*self.name).into()
    }

    fn options(&self) -> &ReadOptions {
        &self.read_as
    }

    fn each(&self, visit: &mut dyn FnMut(&R)) -> Result<()> {
        self.records.pass().try_for_each(|record| record.map(|record| visit(&record)))
    }
}

pub(crate) struct RecordText<'a, R: Clone>(Cow<'a, R>, fn(&R) -> &str);

impl<R: Clone> AsRef<str> for RecordText<'_, R> {
    fn as_ref(&self) -> &str {
        (self.1)(&self.0)
    }
}

/// A data set: records, a name for messages, and the options that the records were read with. The records are in memory,
/// unless the data set is [`Files`](crate::Files). The documentation of [`LabelledTexts`](crate::LabelledTexts),
/// [`Pairs`](crate::Pairs), [`TaggedTexts`](crate::TaggedTexts) and [`LabelledRows`](crate::LabelledRows) shows how to
/// train on each kind of record. The data set of a language model is a text, [`PlainText`](crate::PlainText) or
/// [`PlainFiles`](crate::PlainFiles), which is read in pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSet<R, S = Vec<R>> {
    pub(crate) name: String,
    pub(crate) records: S,
    pub(crate) read_as: ReadOptions,
    of: PhantomData<fn() -> R>,
}

impl<R, S> DataSet<R, S> {
    pub(crate) fn of_records(name: String, records: S, read_as: ReadOptions) -> Self {
        Self { name, records, read_as, of: PhantomData }
    }

    /// The name that messages show for the data set.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The options with the format and the columns that [`Self::open`] detected. With these options, other files of the
    /// data set are read in the same way.
    pub fn read_as(&self) -> &ReadOptions {
        &self.read_as
    }

    pub(crate) fn noted(&self, error: Error) -> Error {
        error.noted(format!("in `{}`", self.name))
    }
}

impl<R> DataSet<R> {
    /// Makes a data set of `records` in memory; messages show `name` as the name of the data set.
    pub fn new(name: &str, records: impl Into<Vec<R>>) -> Self {
        Self::of_records(name.to_owned(), records.into(), ReadOptions::default())
    }

    /// The records, in the order of the files.
    pub fn records(&self) -> &[R] {
        &self.records
    }
}

impl<R, S: DataStorage<R>> DataSet<R, S> {
    /// Reads the records of a path into memory; [`Files`](crate::Files) stay in their files. This call detects the format
    /// and the columns from the first lines, which [`Self::read_as`] returns.
    ///
    /// # Errors
    /// Fails if there is no file, no record, or a malformed record. The message has the file, the line and the reason
    /// for the detected format. In files, a malformed record behind the first lines is reported when a pass reads it.
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
        S::open(&paths, options).at_caller()
    }
}

impl<R: Record, S: RecordStorage<R>> DataSet<R, S> {
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
        self.hold_out_by(Arc::new(move |record| is_held(one_in, record.held_out_key(seed))))
    }

    /// Holds out the records for which the rule `held` is true: returns the remaining records, then the held-out records.
    #[must_use]
    pub fn hold_out_by(self, held: HoldOutRule<R>) -> (Self, Self) {
        let [rest, held] = self.records.hold_out_by(held);
        let held = Self::of_records(held_name(&self.name), held, self.read_as.clone());
        (Self { records: rest, ..self }, held)
    }

    /// Makes a sample of each record: `sample` returns the fields. For [`Files`](crate::Files), the result is a stream of
    /// samples: each epoch reads the files. This call reads the files once, to find errors before the training, unless a
    /// [hold-out by a pass](crate::Files::hold_out_by_pass) has read the files. `salt` is a hash of all other inputs of `sample`, such as
    /// vocabularies. The hash is part of the fingerprint of a stream, which must equal the fingerprint in a resumed
    /// checkpoint.
    ///
    /// # Errors
    /// Fails if there is no record, if a file has an error, or with the first error of `sample`.
    #[track_caller]
    pub fn samples_by(
        &self,
        salt: u64,
        sample: impl Fn(&R) -> Result<Vec<Field>> + Send + Sync + 'static,
    ) -> Result<S::Samples> {
        S::samples(self, |f| f.number(salt), sample).at_caller()
    }

    /// Passes a text of each record to `read`; an error in a file is returned instead of the result of `read`.
    pub(crate) fn with_texts<T>(
        &self,
        text: fn(&R) -> &str,
        read: impl FnOnce(&mut dyn Iterator<Item = RecordText<'_, R>>) -> Result<T>,
    ) -> Result<T> {
        let mut wrong = None;
        let records = self.records.pass().map_while(|record| record.map_err(|e| wrong = Some(e)).ok());
        let found = read(&mut records.map(|record| RecordText(record, text)));
        wrong.map_or(found, Err)
    }

    pub(crate) fn vocabulary_of(
        &self,
        text: fn(&R) -> &str,
        tokenizer: &Tokenizer,
        limits: &Limits,
    ) -> Result<Vocabulary> {
        self.with_texts(text, |texts| tokenizer.vocabulary(texts, limits).map_err(|e| self.noted(e)))
    }
}

impl<R: Record> DataSet<R> {
    pub(crate) fn of_plan(plan: Plan<R>, mut records: Vec<R>) -> Result<Self> {
        let Plan { name, mut options, .. } = plan;
        let all = |visit: &mut dyn FnMut(&R)| {
            records.iter().for_each(visit);
            Ok(())
        };
        if let Some(change) = R::settled(&all, &mut options)? {
            records = records.into_iter().map(change).collect();
        }
        let found = Self::of_records(name, records, options);
        if found.records.is_empty() { Err(none::<R>(&found.name)) } else { Ok(found) }
    }

    /// Makes a sample of each record; `sample` also gets the index of the record, counted from 0.
    pub(crate) fn numbered_samples(&self, sample: &dyn Fn(u64, &R) -> Result<Vec<Field>>) -> Result<Samples> {
        if self.records.is_empty() {
            return Err(none::<R>(&self.name));
        }
        let numbered = |(number, record): (u64, &R)| {
            Ok(Sample::new(number, sample(number, record)?).placed(record.file_line()))
        };
        Samples::try_of((0..).zip(&self.records).map(numbered))
    }
}

impl<R: Record> DataStorage<R> for Vec<R> {
    fn open(paths: &[PathBuf], options: &ReadOptions) -> Result<DataSet<R>> {
        let _whole = Whole::begin();
        let plan = planned::<R>(paths, options, false)?;
        let records = reserve::collected(plan.records.open(), &format!("records of `{}`", plan.name))?;
        DataSet::of_plan(plan, records)
    }
}

impl<R: Record> RecordStorage<R> for Vec<R> {
    type Samples = Samples;

    fn pass(&self) -> Box<dyn Iterator<Item = Result<Cow<'_, R>>> + '_> {
        Box::new(self.iter().map(|record| Ok(Cow::Borrowed(record))))
    }

    fn hold_out_by(self, held: HoldOutRule<R>) -> [Self; 2] {
        let (held, rest) = self.into_iter().partition(|record| held(record));
        [rest, held]
    }

    fn samples(
        texts: &DataSet<R>,
        _: impl FnOnce(Fingerprint) -> Fingerprint,
        sample: impl Fn(&R) -> Result<Vec<Field>> + Send + Sync + 'static,
    ) -> Result<Samples> {
        texts.numbered_samples(&|_, record| sample(record))
    }
}

/// Returns the plan for a data set, with a log of its malformed records.
pub(crate) fn planned<R: Record>(paths: &[PathBuf], options: &ReadOptions, window: bool) -> Result<Plan<R>> {
    Ok(R::plan(paths, &options.unlogged(), window)?.checked(|_| 1))
}

pub(crate) fn none<R: Record>(name: &str) -> Error {
    wrong_format(format!("{} of `{name}`", R::PLURAL), "at least one", "none")
}

/// Returns whether a sample is held out: about one in `one_in` samples is held out, and none if `one_in` is 0. Only `key`
/// decides, the hash of the seed and of the content of the sample. Equal samples are therefore in one part.
pub fn is_held(one_in: u64, key: u64) -> bool {
    one_in != 0 && key.is_multiple_of(one_in)
}

/// Returns the name, for messages, of the held-out part of the data set `name`.
pub(crate) fn held_name(name: &str) -> String {
    format!("{name}, held out")
}
