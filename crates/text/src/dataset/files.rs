//! Data sets that are read from files in each pass, instead of being held in memory.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::data::{
    Field, Fingerprint, Limits, Loader, Sample, SampleIterator, SampleStream, SamplesBuilder, TokenCounts,
    Tokenizer, Vocabulary,
};
use unpadded::{AtCaller, Error, ErrorKind, Result, memory};

use super::data_set::{Passes, Record, none};
use super::hold_out::{held_name, is_held};
use super::labelled_texts::at_least_two;
use super::{labelled_texts, pairs, tagged_texts};
use crate::record::plan::Plan;
use crate::source::records::Stream;
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
/// let cut = Tokenizer::words().lowercase();
/// let (words, labels) = (reviews.vocabulary(&cut, &Limits::default())?, reviews.labels()?);
/// // An epoch is shuffled within a window of 10,000 texts, which are in memory.
/// let train = reviews.loader(["words", "label"], &cut, (&words, &labels))?.shuffle(1).buffer(10_000);
/// assert_eq!(train.batch_count(), Some(1));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Clone)]
pub struct Files<R> {
    name: String,
    read_as: ReadOptions,
    open: Arc<dyn Fn() -> Stream<R> + Send + Sync>,
    /// The hold-outs that were applied, in order. A record belongs to this data set if every hold-out keeps the
    /// record.
    parts: Vec<HoldOutChoice>,
    /// The number of records and their fingerprint, if [`LabelledFiles::survey`] has computed both; else `None`.
    known: Option<RecordCount>,
    /// The memory, in bytes, that the samples may take; `None` if each pass makes the samples again.
    samples_within: Option<usize>,
}

/// Labelled texts in files that may be larger than memory. [`LabelledTexts`](crate::LabelledTexts) holds labelled texts
/// in memory.
pub type LabelledFiles = Files<LabelledText>;
/// Pairs of texts in files that may be larger than memory. [`Pairs`](crate::Pairs) holds pairs in memory.
pub type PairFiles = Files<Pair>;
/// Tagged texts in files that may be larger than memory. [`TaggedTexts`](crate::TaggedTexts) holds tagged texts in
/// memory.
pub type TaggedFiles = Files<TaggedText>;

impl<R> fmt::Debug for Files<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, read_as, parts, known, samples_within, .. } = self;
        let mut shown = f.debug_struct("Files");
        shown.field("name", name).field("read_as", read_as).field("parts", parts).field("known", known);
        shown.field("samples_within", samples_within).finish_non_exhaustive()
    }
}

/// The number of records of a data set, and the fingerprint of all its records.
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

/// The result of one pass over labelled texts in files, which [`LabelledFiles::survey`] returns.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Survey {
    /// The training texts, which are not held out. The loader of the training texts needs no further pass over the
    /// files.
    pub rest: LabelledFiles,
    /// The held-out texts. The loader of the held-out texts needs no further pass over the files.
    pub held: LabelledFiles,
    /// The distinct labels of all texts, sorted; an error if there are fewer than two labels.
    pub labels: Result<Vocabulary>,
    /// The vocabulary of the training texts, or the error that [`Vocabulary::of`] returned.
    pub words: Result<Vocabulary>,
}

/// A hold-out, and the part of the records that is kept: the held-out records or the remaining records.
#[derive(Debug, Clone, Copy)]
struct HoldOutChoice {
    one_in: u64,
    seed: u64,
    held: bool,
}

impl<R: Record> Files<R> {
    /// Opens the records of a path. This call accepts the paths and formats that
    /// [`DataSet::open`](crate::DataSet::open) accepts. The format is detected from the first lines. A malformed
    /// record after these lines is reported when a pass reads the record.
    ///
    /// # Errors
    /// Fails if there is no file, or if the first lines of a file do not match the format.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with([path], &ReadOptions::default())
    }

    /// Opens the records of several paths as one data set, with the options `options`.
    ///
    /// # Errors
    /// Fails as [`Self::open`] does. Also fails if there is no path, or if the options name a column that does not exist.
    #[track_caller]
    pub fn open_with<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &ReadOptions,
    ) -> Result<Self> {
        let paths: Vec<PathBuf> = paths.into_iter().map(|path| path.as_ref().to_owned()).collect();
        Self::planned(&paths, options).at_caller()
    }

    fn planned(paths: &[PathBuf], options: &ReadOptions) -> Result<Self> {
        Self::of_plan(R::plan(paths, options, true)?)
    }

    /// Makes the data set of a plan. [`Record::settled`] may read all records to decide whether every record needs a
    /// change.
    pub(crate) fn of_plan(plan: Plan<R>) -> Result<Self> {
        let Plan { name, mut options, mut open } = plan;
        let all =
            |visit: &mut dyn FnMut(&R)| open().try_for_each(|record| record.map(|record| visit(&record)));
        if let Some(change) = R::settled(&all, &mut options)? {
            let (change, raw) = (Arc::new(change), open);
            open = Arc::new(move || {
                let change = Arc::clone(&change);
                Box::new(raw().map(move |record| record.map(|record| change(record))))
            });
        }
        Ok(Self { name, read_as: options, open, parts: Vec::new(), known: None, samples_within: None })
    }

    /// The name that messages show for the data set.
    pub fn name(&self) -> String {
        let held = self.parts.iter().filter(|part| part.held);
        held.fold(self.name.clone(), |name, _| held_name(&name))
    }

    /// The options with the detected format and columns. With these options, other files of the data set are read in
    /// the same way.
    pub fn read_as(&self) -> &ReadOptions {
        &self.read_as
    }

    /// Hold-out: holds out about one in `one_in` records, and returns the remaining records, then the held-out records.
    /// If `one_in` is 0, nothing is held out. Only the seed and the record itself decide whether the record is held
    /// out. [`DataSet::hold_out`](crate::DataSet::hold_out) with the same seed holds out the same records.
    #[must_use]
    pub fn hold_out(self, one_in: u64, seed: u64) -> (Self, Self) {
        let (mut rest, mut out) = (Self { known: None, ..self.clone() }, Self { known: None, ..self });
        rest.parts.push(HoldOutChoice { one_in, seed, held: false });
        out.parts.push(HoldOutChoice { one_in, seed, held: true });
        (rest, out)
    }

    /// Holds out records as [`Self::hold_out`] does, in one pass over the files. `visit` gets each record, and whether the record
    /// is held out. The loaders of both parts need no further pass over the files, unless [`Self::samples_within`] is set.
    ///
    /// # Errors
    /// Fails if a file is malformed or cannot be read.
    #[track_caller]
    pub fn hold_out_by_pass(
        self,
        (one_in, seed): (u64, u64),
        visit: &mut dyn FnMut(&R, bool),
    ) -> Result<(Self, Self)> {
        let mut known = [RecordCount::default(); 2];
        let each = self.each(&mut |record| {
            let held = is_held(one_in, seed, |f| record.held_out_by(f));
            known[usize::from(held)].add(record);
            visit(record, held);
        });
        each.at_caller()?;
        let (mut rest, mut held) = self.hold_out(one_in, seed);
        (rest.known, held.known) = (Some(known[0]), Some(known[1]));
        Ok((rest, held))
    }

    /// Keeps only the records for which `wanted` is true.
    #[must_use]
    pub fn retain(self, wanted: impl Fn(&R) -> bool + Send + Sync + 'static) -> Self {
        let (raw, wanted) = (self.open, Arc::new(wanted));
        let open = move || -> Stream<R> {
            let wanted = Arc::clone(&wanted);
            Box::new(raw().filter(move |record| record.as_ref().map_or(true, &*wanted)))
        };
        Self { open: Arc::new(open), known: None, ..self }
    }

    /// Holds the samples in memory if they take at most `bytes`. Otherwise each epoch reads the files again, and the samples of a
    /// shuffle buffer take at most `bytes`.
    pub fn samples_within(self, bytes: usize) -> Self {
        Self { samples_within: Some(bytes), ..self }
    }

    /// Returns the error for records that take more than `most` bytes.
    pub fn larger_than(&self, most: usize) -> Error {
        let what = format!("{} of `{}`", R::PLURAL, self.name());
        let expected = format!("at most {}, as the memory limit allows", memory::limit_shown(most as u128));
        Error::of(ErrorKind::Memory, what, expected, "more")
    }

    /// Iterates over the records, in the order of the files. An error in a file is the last item.
    pub fn records(&self) -> Box<dyn Iterator<Item = Result<R>> + Send> {
        let parts = self.parts.clone();
        let is_of = move |record: &R| {
            let mut parts = parts.iter();
            parts.all(|part| is_held(part.one_in, part.seed, |f| record.held_out_by(f)) == part.held)
        };
        Box::new((self.open)().filter(move |record| record.as_ref().map_or(true, &is_of)))
    }

    /// Makes a stream of samples: each epoch reads the files, and `sample` makes the fields of each record's sample.
    /// This call reads the files once, to find errors before the training, unless a [survey](LabelledFiles::survey)
    /// has read the files. `salt` is a hash of all other inputs of `sample`, such as vocabularies. The hash is part of
    /// the fingerprint of the data, which must equal the fingerprint in a resumed checkpoint.
    ///
    /// # Errors
    /// Fails if there is no record, if a file has an error, or with the first error of `sample`.
    #[track_caller]
    pub fn samples_by(
        &self,
        salt: u64,
        sample: impl Fn(&R) -> Result<Vec<Field>> + Send + Sync + 'static,
    ) -> Result<SampleStream> {
        self.samples_of(|f| f.number(salt), sample).at_caller()
    }

    /// Makes a stream of samples that are numbered from 0; there must be at least one record. To find errors, this call
    /// reads all records and makes a sample of each, unless the files were surveyed and `samples_within` is `None`.
    /// `salt` adds all other inputs of `sample`, such as vocabularies, to the fingerprint.
    fn samples_of(
        &self,
        salt: impl FnOnce(Fingerprint) -> Fingerprint,
        sample: impl Fn(&R) -> Result<Vec<Field>> + Send + Sync + 'static,
    ) -> Result<SampleStream> {
        let (mut flat, mut largest) = (self.samples_within.map(|_| SamplesBuilder::default()), 0);
        let most = self.samples_within.unwrap_or(0);
        let known = match self.known {
            Some(known) if flat.is_none() => known,
            _ => {
                let mut known = RecordCount::default();
                for record in self.records() {
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
            return Err(none::<R>(&self.name()));
        }
        if let Some(samples) = flat {
            return Ok(samples.end().into());
        }
        let (files, sample) = (self.clone(), Arc::new(sample));
        let open = move || -> Result<SampleIterator> {
            let sample = Arc::clone(&sample);
            let of = move |(number, record): (u64, Result<R>)| {
                let record = record?;
                Ok(Sample::new(number, sample(&record)?).placed(record.file_line()))
            };
            Ok(Box::new((0..).zip(files.records()).map(of)))
        };
        let stream = SampleStream::new(salt(known.fingerprint).finish(), open).size(known.size);
        // The buffer takes a further sample while it is below its limit, so it may exceed the limit by nearly the
        // largest sample. The limit is therefore reduced by the largest sample.
        Ok(match self.samples_within {
            Some(most) => stream.buffer_within(most.saturating_sub(largest)),
            None => stream,
        })
    }
}

impl<R: Record> Passes<R> for Files<R> {
    fn called(&self) -> Cow<'_, str> {
        self.name().into()
    }

    fn options(&self) -> &ReadOptions {
        &self.read_as
    }

    fn each(&self, visit: &mut dyn FnMut(&R)) -> Result<()> {
        self.records().try_for_each(|record| record.map(|record| visit(&record)))
    }
}

impl LabelledFiles {
    /// Collects the labels, the vocabulary and both parts of [`Self::hold_out`] in one pass over the files. `visit`
    /// gets each text, and whether the text is held out.
    ///
    /// # Errors
    /// Fails if a file is malformed or cannot be read.
    #[track_caller]
    pub fn survey(
        self,
        (one_in, seed): (u64, u64),
        tokenizer: &Tokenizer,
        limits: &Limits,
        visit: &mut dyn FnMut(&LabelledText, bool),
    ) -> Result<Survey> {
        let (name, mut labels, mut words) = (self.name(), TokenCounts::default(), TokenCounts::default());
        let mut counted = |text: &LabelledText, held| {
            labels.add(&text.label);
            visit(text, held);
            if !held {
                tokenizer.tokens(&text.text).for_each(|token| words.add(&token));
            }
        };
        let (rest, held) = self.hold_out_by_pass((one_in, seed), &mut counted).at_caller()?;
        let words = tokenizer.vocabulary_of(words, limits).map_err(|e| e.noted(format!("in `{name}`")));
        Ok(Survey { rest, held, labels: at_least_two(&name, labels.labels()), words })
    }

    /// Makes the vocabulary of the texts with [`Tokenizer::vocabulary`], in one pass over the files. Each distinct
    /// token is in memory during this pass.
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does, or if a file has an error.
    #[track_caller]
    pub fn vocabulary(&self, tokenizer: &Tokenizer, limits: &Limits) -> Result<Vocabulary> {
        let mut wrong = None;
        let texts = self.records().map_while(|text| text.map_err(|e| wrong = Some(e)).ok());
        let found = tokenizer.vocabulary(texts.map(|text| text.text), limits);
        let found = found.map_err(|e| e.noted(format!("in `{}`", self.name())));
        wrong.map_or(found, Err).at_caller()
    }

    /// Collects the distinct labels, sorted, in one pass over the files.
    ///
    /// # Errors
    /// Fails if there are fewer than two labels, since a model could learn nothing, or if a file has an error.
    #[track_caller]
    pub fn labels(&self) -> Result<Vocabulary> {
        let mut wrong = None;
        let texts = self.records().map_while(|text| text.map_err(|e| wrong = Some(e)).ok());
        let found = at_least_two(&self.name(), Vocabulary::labels(texts.map(|text| text.label)));
        wrong.map_or(found, Err).at_caller()
    }

    /// Makes a loader of batches with the token ids and the label id of each text; `feeds` has the names of the two
    /// feeds. This call reads the files once, so that errors are reported before the first epoch, unless a
    /// [survey](Self::survey) has read the files. Each epoch reads the files again. [`Loader::shuffle`] shuffles within
    /// a window of [`Loader::buffer`] texts.
    ///
    /// # Errors
    /// Fails as [`Loader::new`] does. Also fails if there is no text, if a vocabulary lacks a label or a token, or if a file
    /// has an error.
    #[track_caller]
    pub fn loader(
        &self,
        feeds: [&str; 2],
        tokenizer: &Tokenizer,
        (tokens, labels): (&Vocabulary, &Vocabulary),
    ) -> Result<Loader> {
        let (name, own) = (self.name(), (tokenizer.clone(), tokens.clone(), labels.clone()));
        let sample = move |text: &LabelledText| {
            let (tokenizer, tokens, labels) = &own;
            labelled_texts::sample(text, &name, tokenizer, (tokens, labels))
        };
        // The vocabularies and the tokenizer are part of the fingerprint, because the ids depend on them.
        let salt =
            |f| tokens.tokens().chain(labels.tokens()).fold(f, Fingerprint::text).text(&tokenizer.name());
        Loader::new(self.samples_of(salt, sample).at_caller()?, &feeds)
    }
}

impl PairFiles {
    /// Makes a loader for three feeds, as [`Pairs::loader`](crate::Pairs::loader) does. This call reads the files once,
    /// so that errors are reported before the first epoch. Each epoch reads the files again. [`Loader::shuffle`]
    /// shuffles within a window of [`Loader::buffer`] pairs.
    ///
    /// # Errors
    /// Fails as [`Pairs::loader`](crate::Pairs::loader) does, or if a file has an error.
    #[track_caller]
    pub fn loader(
        &self,
        feeds: [&str; 3],
        cuts: [&Tokenizer; 2],
        known: [&Vocabulary; 2],
        ends: [&str; 2],
    ) -> Result<Loader> {
        let ids = pairs::end_ids(known[1], ends).at_caller()?;
        let (name, own) = (self.name(), (cuts.map(Tokenizer::clone), known.map(Vocabulary::clone)));
        let sample = move |pair: &Pair| {
            let (cuts, known) = &own;
            pairs::sample(pair, &name, cuts.each_ref(), known.each_ref(), ids)
        };
        let salt = |f| {
            let f = known.iter().fold(f, |f: Fingerprint, known| f.number(known.fingerprint()));
            cuts.iter().fold(f, |f, cut| f.text(&cut.name())).text(ends[0]).text(ends[1])
        };
        Loader::new(self.samples_of(salt, sample).at_caller()?, &feeds)
    }
}

impl TaggedFiles {
    /// Makes a stream of the samples that [`TaggedTexts::samples`](crate::TaggedTexts::samples) makes in memory. This
    /// call reads the files once, so that errors are reported before the first epoch. Each epoch reads the files again.
    /// [`Loader::shuffle`] shuffles within a window of [`Loader::buffer`] texts.
    ///
    /// # Errors
    /// Fails as [`TaggedTexts::samples`](crate::TaggedTexts::samples) does, or if a file has an error.
    #[track_caller]
    pub fn samples(
        &self,
        form: fn(&str) -> String,
        words: &Vocabulary,
        characters: Option<&Vocabulary>,
        tags: &Vocabulary,
        labels: Option<&Vocabulary>,
    ) -> Result<SampleStream> {
        let known = [Some(words), characters, Some(tags), labels];
        let (name, own) = (self.name(), known.map(Option::<&Vocabulary>::cloned));
        let sample = move |text: &TaggedText| {
            tagged_texts::sample(text, &name, &form, own.each_ref().map(Option::as_ref))
        };
        let salt = |f| known.into_iter().flatten().fold(f, |f: Fingerprint, of| f.number(of.fingerprint()));
        self.samples_of(salt, sample).at_caller()
    }
}
