//! Data sets that are read from files in each pass, instead of being held in memory.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use unpadded::data::{Field, Fingerprint, Sample, SampleIterator, SampleStream, SamplesBuilder};
use unpadded::{AtCaller, Error, ErrorKind, Result, memory};

use super::data_set::{DataSet, DataStorage, HoldOutRule, Passes, Record, RecordStorage, none, planned};
use crate::record::plan::{Plan, StreamOpener};
use crate::{LabelledText, Pair, ReadOptions, TaggedText};

/// Records in files that may be larger than memory: each pass reads the files again and holds one record in
/// memory. `Files` reads the same formats as [`DataSet`](crate::DataSet), with the same options. The files must
/// not change between passes.
///
/// ```
/// use unpadded::data::{Data, Limits, Tokenizer};
/// use unpadded_text::LabelledFiles;
/// # let path = std::env::temp_dir().join(format!("unpadded-files-{}.tsv", std::process::id()));
/// # std::fs::write(&path, "A fine film.\tpraise\nDull.\tblame\nFine, but dull!\tblame\n").unwrap();
/// let reviews = LabelledFiles::open(&path)?; // A fine film.⇥praise ↵ Dull.⇥blame ↵ …
/// let tokenizer = Tokenizer::words().lowercase();
/// let (words, labels) = (reviews.vocabulary(&tokenizer, &Limits::default())?, reviews.labels()?);
/// // An epoch is shuffled within a window of 10,000 texts, which are in memory.
/// let train = reviews.loader(["words", "label"], &tokenizer, (&words, &labels))?.shuffle(1).buffer(10_000);
/// assert_eq!(train.batch_count(), Some(1));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), unpadded::Error>(())
/// ```
pub type Files<R> = DataSet<R, FileRecords<R>>;

/// The records of [`Files`].
#[derive(Debug, Clone)]
pub struct FileRecords<R> {
    all: StreamOpener<R>,
    /// The number of records and their fingerprint, if [`Files::hold_out_by_pass`] has computed both; else `None`.
    known: Option<RecordCount>,
    /// The memory, in bytes, that the samples may take; `None` if each pass makes the samples again.
    samples_within: Option<usize>,
}

/// Labelled texts in files that may be larger than memory; [`LabelledTexts`](crate::LabelledTexts) are in memory.
pub type LabelledFiles = Files<LabelledText>;
/// Pairs of texts in files that may be larger than memory. [`Pairs`](crate::Pairs) holds pairs in memory.
pub type PairFiles = Files<Pair>;
/// Tagged texts in files that may be larger than memory; [`TaggedTexts`](crate::TaggedTexts) are in memory.
pub type TaggedFiles = Files<TaggedText>;

#[derive(Debug, Clone, Copy, Default)]
struct RecordCount {
    size: u64,
    fingerprint: Fingerprint,
}

impl RecordCount {
    fn add(&mut self, record: &impl Record) {
        (self.size, self.fingerprint) = (self.size + 1, record.fingerprint(self.fingerprint));
    }
}

impl<R: Record> Files<R> {
    /// Makes the data set of a plan. [`Record::settled`] may read all records.
    pub(crate) fn planned(plan: Plan<R>) -> Result<Self> {
        let Plan { name, mut options, records: mut all } = plan;
        let pass =
            |visit: &mut dyn FnMut(&R)| all.open().try_for_each(|record| record.map(|record| visit(&record)));
        if let Some(change) = R::settled(&pass, &mut options)? {
            let (change, raw) = (Arc::new(change), all);
            all = StreamOpener::new(move || {
                let change = Arc::clone(&change);
                Box::new(raw.open().map(move |record| record.map(|record| change(record))))
            });
        }
        let records = FileRecords { all, known: None, samples_within: None };
        Ok(Self::of_records(name, records, options))
    }

    /// Holds out records as [`Self::hold_out_by`] does, in one pass over the files. `visit` gets each record, and whether the
    /// record is held out. The loaders of both parts need no further pass over the files, unless [`Self::samples_within`] is set.
    ///
    /// # Errors
    /// Fails if a file is malformed or cannot be read.
    #[track_caller]
    pub fn hold_out_by_pass(
        self,
        is_held: HoldOutRule<R>,
        visit: &mut dyn FnMut(&R, bool),
    ) -> Result<(Self, Self)> {
        let mut known = [RecordCount::default(); 2];
        let each = self.each(&mut |record| {
            let held = is_held(record);
            known[usize::from(held)].add(record);
            visit(record, held);
        });
        each.at_caller()?;
        let (mut rest, mut held) = self.hold_out_by(is_held);
        (rest.records.known, held.records.known) = (Some(known[0]), Some(known[1]));
        Ok((rest, held))
    }

    /// Keeps only the records for which `wanted` is true.
    #[must_use]
    pub fn retain(mut self, wanted: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        self.records = self.records.kept(wanted);
        self
    }

    /// Holds the samples in memory if they take at most `bytes`. Otherwise each epoch reads the files again, and the samples of a
    /// shuffle buffer take at most `bytes`.
    pub fn samples_within(mut self, bytes: usize) -> Self {
        self.records.samples_within = Some(bytes);
        self
    }

    /// Returns the error for records that take more than `most` bytes.
    pub fn larger_than(&self, most: usize) -> Error {
        let what = format!("{} of `{}`", R::PLURAL, self.name);
        let expected = format!("at most {}, as the memory limit allows", memory::limit_shown(most as u128));
        Error::of(ErrorKind::Memory, what, expected, "more")
    }

    /// Iterates over the records, in the order of the files. An error in a file is the last item.
    pub fn records(&self) -> Box<dyn Iterator<Item = Result<R>> + Send> {
        self.records.all.open()
    }
}

impl<R: Record> FileRecords<R> {
    fn kept(self, wanted: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        let (raw, wanted) = (self.all, Arc::new(wanted));
        let all = StreamOpener::new(move || {
            let wanted = Arc::clone(&wanted);
            Box::new(raw.open().filter(move |record| record.as_ref().map_or(true, &*wanted)))
        });
        Self { all, known: None, ..self }
    }
}

impl<R: Record> DataStorage<R> for FileRecords<R> {
    fn open(paths: &[PathBuf], options: &ReadOptions) -> Result<Files<R>> {
        Files::planned(planned(paths, options, true)?)
    }
}

impl<R: Record> RecordStorage<R> for FileRecords<R> {
    type Samples = SampleStream;

    fn pass(&self) -> Box<dyn Iterator<Item = Result<Cow<'_, R>>> + '_> {
        Box::new(self.all.open().map(|record| record.map(Cow::Owned)))
    }

    fn hold_out_by(self, held: HoldOutRule<R>) -> [Self; 2] {
        let is_held = Arc::clone(&held);
        [self.clone().kept(move |record| !is_held(record)), self.kept(move |record| held(record))]
    }

    /// Makes a stream of samples that are numbered from 0. To find errors, this call reads all records and makes a sample
    /// of each, unless a hold-out has read the files and `samples_within` is `None`.
    fn samples(
        data: &Files<R>,
        salt: impl FnOnce(Fingerprint) -> Fingerprint,
        sample: impl Fn(&R) -> Result<Vec<Field>> + Send + Sync + 'static,
    ) -> Result<SampleStream> {
        let files = &data.records;
        let (mut flat, mut largest) = (files.samples_within.map(|_| SamplesBuilder::default()), 0);
        let most = files.samples_within.unwrap_or(0);
        let known = match files.known {
            Some(known) if flat.is_none() => known,
            _ => {
                let mut known = RecordCount::default();
                for record in files.all.open() {
                    let record = record?;
                    let sample = Sample::new(known.size, sample(&record)?).placed(record.file_line());
                    known.add(&record);
                    largest = largest.max(sample.buffered_bytes());
                    if let Some(samples) = &mut flat {
                        samples.try_push(&sample)?;
                    }
                    if flat.as_ref().is_some_and(|samples| samples.size() > most) {
                        flat = None;
                    }
                }
                known
            }
        };
        if known.size == 0 {
            return Err(none::<R>(&data.name));
        }
        if let Some(samples) = flat {
            return Ok(samples.end().into());
        }
        let (own, sample) = (files.all.clone(), Arc::new(sample));
        let open = move || -> Result<SampleIterator> {
            let sample = Arc::clone(&sample);
            let numbered = move |(number, record): (u64, Result<R>)| {
                let record = record?;
                Ok(Sample::new(number, sample(&record)?).placed(record.file_line()))
            };
            Ok(Box::new((0..).zip(own.open()).map(numbered)))
        };
        let stream = SampleStream::new(salt(known.fingerprint).finish(), open).size(known.size);
        // The buffer takes a further sample while it is below its limit, so it may exceed the limit by nearly the
        // largest sample. The limit is therefore reduced by the largest sample.
        Ok(match files.samples_within {
            Some(most) => stream.buffer_within(most.saturating_sub(largest)),
            None => stream,
        })
    }
}
