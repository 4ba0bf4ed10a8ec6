//! Texts with a label each that are not held in memory.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::data_set::Record;
use super::hold_out::{held_name, is_held};
use super::labelled_texts::{at_least_two, sample};
use super::open::Plan;
use super::{
    Fingerprint, Labelled, Limits, Loader, ReadOptions, Sample, Sampled, Streamed, Tokenizer, Vocabulary,
};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// Texts with a label each in files that may be larger than memory: they are read anew whenever something is asked of them, and
/// one text is held at a time. What [`LabelledTexts`](super::LabelledTexts) finds out of a path and takes, this does, too.
///
/// ```
/// use unpadded::data::{Data, LabelledFiles, Limits, Tokenizer};
/// # let path = std::env::temp_dir().join(format!("unpadded-files-{}.tsv", std::process::id()));
/// # std::fs::write(&path, "A fine film.\tpraise\nDull.\tblame\nFine, but dull!\tblame\n").unwrap();
/// let reviews = LabelledFiles::open(&path)?; // A fine film.⇥praise ↵ Dull.⇥blame ↵ …
/// let cut = Tokenizer::words().lowercase();
/// let (words, labels) = (reviews.vocabulary(&cut, &Limits::default())?, reviews.labels()?);
/// // Of an epoch's texts so many are in memory, out of which the next is drawn.
/// let train = reviews.loader(["words", "label"], &cut, (&words, &labels))?.shuffle(1).buffer(10_000);
/// assert_eq!(train.batch_count(), Some(1));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LabelledFiles {
    plan: Arc<Plan>,
    /// Parts of parts, the last of which is meant.
    parts: Vec<Part>,
    /// What a pass over the texts has found.
    known: Option<Known>,
}

/// How many texts there are, and a number of what they are.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    size: u64,
    fingerprint: Fingerprint,
}

impl Known {
    fn add(&mut self, Labelled { text, label }: &Labelled) {
        (self.size, self.fingerprint) = (self.size + 1, self.fingerprint.text(text).text(label));
    }
}

/// What one pass over labelled files finds: [`LabelledFiles::survey`].
#[derive(Debug, Clone)]
pub struct Survey {
    /// The texts that are not held out. Their loader needs no pass over the files.
    pub rest: LabelledFiles,
    /// The texts that are held out. Their loader needs no pass over the files.
    pub held: LabelledFiles,
    /// The labels of all texts, sorted; an error if there are not two.
    pub labels: Result<Vocabulary>,
    /// The vocabulary of the rest; an error as of [`Vocabulary::of`].
    pub words: Result<Vocabulary>,
}

/// A part of the texts: those that are held out, or the rest.
#[derive(Debug, Clone, Copy)]
struct Part {
    one_in: u64,
    seed: u64,
    held: bool,
}

impl LabelledFiles {
    /// The labelled texts of a path, as [`LabelledTexts::open`](super::LabelledTexts::open) finds them. The form of the files is found
    /// out now, what is wrong further down when they are read.
    ///
    /// # Errors
    /// If there is no file, or its first lines are not as its format says.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_with([path], &ReadOptions::default())
    }

    /// The labelled texts of these paths together, read as the options say.
    ///
    /// # Errors
    /// As [`Self::open`]; if there is no path, or no column of the name that is given.
    #[track_caller]
    pub fn open_with<P: AsRef<Path>>(
        paths: impl IntoIterator<Item = P>,
        options: &ReadOptions,
    ) -> Result<Self> {
        Ok(Self {
            plan: Arc::new(Plan::new(paths, options, true).at_caller()?),
            parts: Vec::new(),
            known: None,
        })
    }

    /// What messages call them.
    pub fn name(&self) -> String {
        let held = self.parts.iter().filter(|part| part.held);
        held.fold(self.plan.name.clone(), |name, _| held_name(&name))
    }

    /// The format and the columns that were found, and all that was told: other parts of the same data set are read so.
    pub fn read_as(&self) -> &ReadOptions {
        &self.plan.options
    }

    /// Holds out about one in so many, the same ones as [`LabelledTexts::hold_out`](super::LabelledTexts::hold_out): by the seed and the
    /// text alone. The rest comes first; of 0, nothing is held out.
    #[must_use]
    pub fn hold_out(self, one_in: u64, seed: u64) -> (Self, Self) {
        let (mut rest, mut out) = (Self { known: None, ..self.clone() }, Self { known: None, ..self });
        rest.parts.push(Part { one_in, seed, held: false });
        out.parts.push(Part { one_in, seed, held: true });
        (rest, out)
    }

    /// Each of them, one after another. What is wrong in a file comes as an item, after which there are no more.
    pub fn records(&self) -> Box<dyn Iterator<Item = Result<Labelled>> + Send> {
        let parts = self.parts.clone();
        let is_of = move |text: &Labelled| {
            let mut parts = parts.iter();
            parts.all(|part| is_held(part.one_in, part.seed, |f| text.held_out_by(f)) == part.held)
        };
        Box::new(Arc::clone(&self.plan).records().filter(move |text| text.as_ref().map_or(true, &is_of)))
    }

    /// Labels, vocabulary and the parts of [`Self::hold_out`] by one pass over the files. `visit` sees each text, and whether it is held
    /// out.
    ///
    /// # Errors
    /// What is wrong in a file.
    #[track_caller]
    pub fn survey(
        self,
        (one_in, seed): (u64, u64),
        tokenizer: &Tokenizer,
        limits: &Limits,
        visit: &mut dyn FnMut(&Labelled, bool),
    ) -> Result<Survey> {
        let (mut labels, mut known, mut wrong) =
            (BTreeMap::<String, usize>::new(), [Known::default(); 2], None);
        let texts = self.records().map_while(|text| text.map_err(|e| wrong = Some(e)).ok());
        let mut texts = texts.filter_map(|text| {
            let held = is_held(one_in, seed, |f| text.held_out_by(f));
            match labels.get_mut(&text.label) {
                Some(count) => *count += 1,
                None => drop(labels.insert(text.label.clone(), 1)),
            }
            known[usize::from(held)].add(&text);
            visit(&text, held);
            (!held).then_some(text.text)
        });
        let words = tokenizer.vocabulary(texts.by_ref(), limits);
        texts.for_each(drop);
        if let Some(e) = wrong {
            return Err(e).at_caller();
        }
        let name = self.name();
        let labels =
            at_least_two(&name, labels.iter().flat_map(|(label, &count)| std::iter::repeat_n(label, count)));
        let words = words.map_err(|e| e.noted(format!("in `{name}`")));
        let (mut rest, mut held) = self.hold_out(one_in, seed);
        (rest.known, held.known) = (Some(known[0]), Some(known[1]));
        Ok(Survey { rest, held, labels, words })
    }

    /// The tokens of the texts that are known, by [`Tokenizer::vocabulary`]; distinct tokens are held in memory until they are counted.
    ///
    /// # Errors
    /// As [`Vocabulary::of`]; what is wrong in a file.
    #[track_caller]
    pub fn vocabulary(&self, tokenizer: &Tokenizer, limits: &Limits) -> Result<Vocabulary> {
        let mut wrong = None;
        let texts = self.records().map_while(|text| text.map_err(|e| wrong = Some(e)).ok());
        let found = tokenizer.vocabulary(texts.map(|text| text.text), limits);
        let found = found.map_err(|e| e.noted(format!("in `{}`", self.name())));
        wrong.map_or(found, Err).at_caller()
    }

    /// The labels, sorted.
    ///
    /// # Errors
    /// If there are not two: nothing could be learned; what is wrong in a file.
    #[track_caller]
    pub fn labels(&self) -> Result<Vocabulary> {
        let mut wrong = None;
        let texts = self.records().map_while(|text| text.map_err(|e| wrong = Some(e)).ok());
        let found = at_least_two(&self.name(), texts.map(|text| text.label));
        wrong.map_or(found, Err).at_caller()
    }

    /// Batches of the texts as the numbers of their tokens, and of the labels as theirs, for the feeds of these names. The files are read
    /// once now, so that nothing wrong is met in the midst of an epoch, unless a [survey](Self::survey) has read them; and once in each
    /// epoch.
    /// [`Loader::shuffle`] shuffles in a window of [`Loader::buffer`] texts.
    ///
    /// # Errors
    /// As [`Loader::new`]; if there is no text, or a label or token that its vocabulary does not have; what is wrong in a file.
    #[track_caller]
    pub fn loader(
        &self,
        feeds: [&str; 2],
        tokenizer: &Tokenizer,
        (tokens, labels): (&Vocabulary, &Vocabulary),
    ) -> Result<Loader> {
        let vocabularies = Arc::new((tokenizer.clone(), tokens.clone(), labels.clone()));
        let files = self.clone();
        let open = move || -> Result<Sampled> {
            let (name, of) = (files.name(), Arc::clone(&vocabularies));
            Ok(Box::new((0..).zip(files.records()).map(move |(number, text)| {
                let (tokenizer, tokens, labels) = &*of;
                let fields = sample(&text?, &name, tokenizer, (tokens, labels))?;
                Ok(Sample::new(number, fields))
            })))
        };
        let known = match self.known {
            Some(known) => known,
            None => {
                let (mut known, name) = (Known::default(), self.name());
                for text in self.records() {
                    let text = text.at_caller()?;
                    sample(&text, &name, tokenizer, (tokens, labels)).at_caller()?;
                    known.add(&text);
                }
                known
            }
        };
        if known.size == 0 {
            let what = format!("texts of `{}`", self.name());
            return Err(Error::of(ErrorKind::Format, what, "at least one", "none"));
        }
        // The numbers of tokens and labels follow from the texts and from what the vocabularies have.
        let fingerprint =
            tokens.tokens().chain(labels.tokens()).fold(known.fingerprint, |f, token| f.text(token));
        let fingerprint = fingerprint.text(&tokenizer.name()).finish();
        Loader::new(Streamed::new(fingerprint, open).size(known.size), &feeds)
    }
}
