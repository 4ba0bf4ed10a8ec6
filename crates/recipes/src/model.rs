//! Trained models, each loaded from a checkpoint without further files.

use std::ops::ControlFlow;
use std::path::Path;

use unpadded::checkpoint::Checkpoint;
use unpadded::data::Tokenizer;
use unpadded::predict::{Beam, Predictor, Sampler, Sampling};
use unpadded::{AtCaller, Error, ErrorKind, Result, ops};
use unpadded_text::{LabelNotation, QuestionKind, Questions, path_of_text};

use super::answer::{Answer, AnswerBatch};
use super::config::Config;
use super::evaluation::{EachOutcome, Evaluation};
use super::recipe::{Continuation, TestFile, TrainedModel};
use super::sections::{DecodingConfig, Task};
use super::text_session::TextSession;
use super::training::{CONFIG, TASK, TestData, options_of};

/// The output that is added to a model with one vector per text.
const EMBEDDING: &str = "embedding";

/// A trained model with everything that it needs to answer: program, parameters, vocabularies, labels and tokenizer.
///
/// ```no_run
/// use unpadded_recipes::Model;
/// let model = Model::load("runs/reviews/best.ckpt")?;
/// let answers = model.predict(&["What a film!"])?;
/// println!("{}", answers[0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Model {
    predictor: Predictor,
    task: Task,
    trained: Box<dyn TrainedModel>,
    decoding: DecodingConfig,
    /// The separator between several labels that [`Model::answering`] sets (default: the training config's).
    separator: Option<String>,
    trained_by: Config,
}

impl Model {
    /// Loads a model from a checkpoint file that the training of a recipe has saved.
    ///
    /// # Errors
    /// If the file cannot be read, or is not the checkpoint of a recipe.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let of_file = |e: Error| e.noted(format!("in `{}`", path.display()));
        Self::new(Checkpoint::load(path).at_caller()?).map_err(of_file).at_caller()
    }

    /// Loads a model from a checkpoint in memory.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[track_caller]
    pub fn new(checkpoint: Checkpoint) -> Result<Self> {
        let wrong = |got: String| {
            let expected = "a checkpoint of a recipe, with its task in a note";
            Error::of(ErrorKind::Format, "checkpoint", expected, got)
        };
        let task = match checkpoint.notes.get(TASK) {
            Some(name) => Task::from_name(name).ok_or_else(|| wrong(format!("task `{name}`"))),
            None => match checkpoint.notes.get("model") {
                Some(model) => Err(wrong(format!("a checkpoint of the program `{model}`"))),
                None => Err(wrong("a checkpoint of another program".into())),
            },
        }
        .at_caller()?;
        let widths = [("probabilities", "labels"), ("logits", "tokens"), ("logits", "targets")];
        for (output, vocabulary) in widths {
            let found = (checkpoint.outputs.get(output), checkpoint.vocabularies.get(vocabulary));
            let (Some(output), Some(vocabulary)) = found else { continue };
            let id = checkpoint.program.find(output);
            let width = id.and_then(|id| checkpoint.program.spec(id).ok()).map(unpadded::op::Spec::width);
            if width != Some(vocabulary.len()) || vocabulary.len() == 0 {
                return Err(wrong(format!("{} tokens for the columns of `{output}`", vocabulary.len())));
            }
        }
        let predictor = Predictor::new(checkpoint, &ops::catalogue()).at_caller()?;
        let config = predictor.note(CONFIG).map_or_else(|| Ok(Config::default()), Config::from_toml);
        let config = config.map_err(|e| e.noted("in the config of the checkpoint")).at_caller()?;
        let trained = (task.recipe().load)(&predictor, &config).at_caller()?;
        let decoding = config.decoding.clone();
        let predictor = match trained.embeds() {
            Some(output) => predictor.with_hidden(output, EMBEDDING).at_caller()?,
            None => predictor,
        };
        Ok(Self { predictor, task, trained, trained_by: config, decoding, separator: None })
    }

    /// Adds another model of the same task to the ensemble of this model; the models then answer together. The probabilities of
    /// labels, predicted numbers and label thresholds are averaged over all models. For tags, every model has one vote per
    /// word. Among the tag sequences that the scheme allows, the answer is the sequence with the most votes. In a tie, the
    /// model that was added earlier wins.
    ///
    /// ```no_run
    /// use unpadded_recipes::Model;
    /// let both = Model::load("runs/reviews-1")?.join(Model::load("runs/reviews-2")?)?;
    /// println!("{}", both.predict(&["What a film!"])?[0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the models differ in the task, the text columns, the labels or the tags, or if the models write texts.
    #[track_caller]
    pub fn join(mut self, other: Self) -> Result<Self> {
        let wrong = |models: String, model: String| {
            let (expected, got) =
                (format!("models {models}, as the first model"), format!("a model {model}"));
            Err(Error::of(ErrorKind::Program, "models to join", expected, got))
        };
        let (task, their_task) = (self.task.name(), other.task.name());
        if task != their_task {
            return wrong(format!("of the task `{task}`"), format!("of `{their_task}`")).at_caller();
        }
        let (own, theirs) = (self.reads(), other.reads());
        if own != theirs {
            return wrong(format!("that read {own}"), format!("that reads {theirs}")).at_caller();
        }
        self.trained.join(&self.predictor, other.predictor, &other.trained_by).at_caller()?;
        Ok(self)
    }

    fn reads(&self) -> String {
        let data = &self.trained_by.data;
        match (data.pair.is_some(), data.text.len()) {
            (true, _) => "pairs of texts (`data.pair`)".to_owned(),
            (false, 0 | 1) => "one text column".to_owned(),
            (false, columns) => format!("{columns} text columns (`data.text`)"),
        }
    }

    /// Returns the task of the model.
    pub fn task(&self) -> Task {
        self.task
    }

    /// Returns the tokenizer of the texts that the model reads; `None` for a tagger, which gets words, and for a
    /// classifier of rows of features.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.trained.tokenizers().map(|[read, _]| read)
    }

    pub(super) fn data(&self, config: &Config, path: &str) -> Result<TestData> {
        self.trained.data(&TestFile { path, config, known: &self.predictor })
    }

    pub(super) fn scores(&self, config: &Config, path: &str, each: EachOutcome<'_>) -> Result<Evaluation> {
        self.trained.scores(&TestFile { path, config, known: &self.predictor }, each)
    }

    /// Returns the config of the model's training as TOML.
    pub fn config(&self) -> &str {
        self.predictor.note(CONFIG).unwrap_or_default()
    }

    /// Returns the config of the model's training.
    pub fn trained_by(&self) -> &Config {
        &self.trained_by
    }

    /// Returns the predictor of the model, for uses that the recipes do not cover.
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// Returns what the model reads from a record that it answers; `None` for a language model.
    pub fn asking(&self) -> Option<QuestionKind> {
        Some(self.trained.asked(&self.predictor, &self.decoding)?.0)
    }

    /// Opens a file for prediction: returns its records, and the names of the columns for the cells of an answer
    /// ([`Answer::cells`]). The file is read with the options in the config; options that the config does not set are
    /// taken from the training.
    ///
    /// # Errors
    /// The errors of [`Questions::open`]; also if the model is a language model.
    #[track_caller]
    pub fn questions(&self, config: &Config, path: &str) -> Result<(Questions, Vec<String>)> {
        let Some((asking, columns, adds)) = self.trained.asked(&self.predictor, &self.decoding) else {
            let expected = "a model that answers records; `generate` continues lines of standard input";
            let got = format!("a language model for the file `{path}`");
            return Err(Error::of(ErrorKind::Program, "model", expected, got));
        };
        let options = options_of(config, columns, &self.predictor).at_caller()?;
        Ok((Questions::open(path_of_text(path), &options, asking).at_caller()?, adds))
    }

    /// Replaces two settings of the training by the settings of `config`: the table `decoding`, and the separator between several
    /// labels.
    #[must_use]
    pub fn answering(self, config: &Config) -> Self {
        let set = config.data.label_separator.as_deref().map(LabelNotation::parse);
        let separator = set.map(|notation| notation.joint().to_owned());
        Self { decoding: config.decoding.clone(), separator, ..self }
    }

    /// Sets the number of threads; 0 means one thread per core.
    #[must_use]
    pub fn threads(self, threads: usize) -> Self {
        Self { predictor: self.predictor.threads(threads), ..self }
    }

    /// Memory limit: sets the maximum memory of the model's computation for one batch, in bytes (default: no limit). Texts that do
    /// not fit together are answered in smaller batches. A long text is divided into windows if the model allows it; any
    /// other text that does not fit by itself is an error.
    #[must_use]
    pub fn memory_limit(self, bytes: u64) -> Self {
        self.set_memory_limit(bytes);
        self
    }

    /// Sets the memory limit of [`Self::memory_limit`] while the model is in use. The models of an ensemble share the limit in
    /// equal parts, because each keeps its memory while the others compute.
    pub fn set_memory_limit(&self, bytes: u64) {
        let others = self.trained.others();
        let each = bytes / (others.len() as u64 + 1);
        for predictor in [&self.predictor].into_iter().chain(others) {
            // The limit is shared by all clones of a predictor.
            drop(predictor.clone().memory_limit(each));
        }
    }

    /// Returns how many texts the model answers together; a caller with many texts passes about as many to [`Self::predict`].
    pub fn batch(&self) -> AnswerBatch {
        self.trained.batch()
    }

    /// Answers each text with a label, tags or a translation; a language model continues each text with the most
    /// probable tokens. The answer to a record without a text is [`Answer::Empty`]: a blank text, or a pair of which one
    /// text is blank.
    ///
    /// # Errors
    /// If a vocabulary is missing in the checkpoint, if a computed value is not a number, or if a text does not fit the
    /// memory limit.
    #[track_caller]
    pub fn predict<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Answer>> {
        let asked: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        self.predict_by(&asked, &self.decoding).at_caller()
    }

    /// Answers each text as [`Self::predict`], with other settings of decoding, such as the beam of a translation.
    ///
    /// # Errors
    /// As [`Self::predict`].
    #[track_caller]
    pub fn predict_by(&self, asked: &[&str], decoding: &DecodingConfig) -> Result<Vec<Answer>> {
        let predictor = &self.predictor;
        let answer = &mut |texts: &[&str]| self.trained.answers(predictor, texts, decoding);
        let mut found = self.divided(asked, answer).at_caller()?;
        for answer in found.iter_mut().flatten() {
            if let (Answer::Labels { separator, .. }, Some(own)) = (answer, &self.separator) {
                separator.clone_from(own);
            }
        }
        Ok(found.into_iter().map(|answer| answer.unwrap_or(Answer::Empty)).collect())
    }

    /// Calls `answer` with batches of texts; a batch that does not fit the memory limit is divided. Texts that are empty have no
    /// answer.
    fn divided<T>(
        &self,
        asked: &[&str],
        answer: &mut dyn FnMut(&[&str]) -> Result<Vec<T>>,
    ) -> Result<Vec<Option<T>>> {
        let texts: Vec<&str> = asked.iter().copied().filter(|text| !self.is_empty(text)).collect();
        let mut answers = Vec::with_capacity(texts.len());
        let mut batches = texts.iter().map(|&text| Ok(text));
        self.batch().divide(&mut batches, &|text| text.len(), &mut |texts| {
            let mut left = vec![texts];
            while let Some(texts) = left.pop() {
                match answer(texts) {
                    Ok(found) => answers.extend(found),
                    Err(error) if error.kind() == ErrorKind::Memory && texts.len() > 1 => {
                        let (first, second) = texts.split_at(texts.len() / 2);
                        left.extend([second, first]);
                    }
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })?;
        let mut found = answers.into_iter();
        Ok(asked.iter().map(|text| if self.is_empty(text) { None } else { found.next() }).collect())
    }

    /// Returns whether a record has no text: it is blank, or it is a pair of which one text is blank.
    pub fn is_empty(&self, text: &str) -> bool {
        let blank = |text: &str| text.trim().is_empty();
        let lacks = |(first, second)| blank(first) || blank(second);
        blank(text) || (self.trained_by.data.pair.is_some() && text.rsplit_once('\t').is_some_and(lacks))
    }

    /// Returns the settings of decoding with which [`Self::predict`] answers.
    pub fn decoding(&self) -> &DecodingConfig {
        &self.decoding
    }

    /// Returns the number of tokens that the model reads of a text: words for a tagger, entries for a row of features.
    pub fn length(&self, text: &str) -> usize {
        self.trained.length(text)
    }

    /// Truncates a text to at most `most` tokens: the first tokens, or the last if `last` is true.
    pub fn truncate<'a>(&self, text: &'a str, most: usize, last: bool) -> &'a str {
        let part = |at: usize| {
            let at = (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
            if last { &text[at..] } else { &text[..at] }
        };
        // The length of a part grows with its bytes, so the longest part that fits is found by bisection.
        let (mut fits, mut exceeds) = if last { (text.len(), 0) } else { (0, text.len()) };
        if self.length(text) <= most {
            return text;
        }
        while fits.abs_diff(exceeds) > 1 {
            let middle = fits.midpoint(exceeds);
            if self.length(part(middle)) <= most { fits = middle } else { exceeds = middle }
        }
        if last { part(fits).trim_start() } else { part(fits).trim_end() }
    }

    /// Returns the number of text columns of a record, which are joined by tabs in a text for [`Self::predict`].
    pub fn columns(&self) -> usize {
        let data = &self.trained_by.data;
        data.text.len().max(1) + usize::from(data.pair.is_some())
    }

    /// Returns the memory in bytes that a search with this beam width takes beside the batch of its texts: steps of a language
    /// model or of a translator. Returns 0 for a model that does not search.
    ///
    /// # Errors
    /// If the beam width is 0, or if the model cannot run row by row.
    #[track_caller]
    pub fn search_memory(&self, beam: usize) -> Result<u64> {
        self.trained.search_memory(&self.predictor, beam).at_caller()
    }

    /// Releases the memory that earlier batches have left for later ones, if it is more than `bytes` for a model of the ensemble.
    pub fn release_above(&self, bytes: u64) {
        for predictor in [&self.predictor].into_iter().chain(self.trained.others()) {
            predictor.release_above(bytes);
        }
    }

    /// Returns one vector per text: the input of the last linear layer, of the first model of an ensemble. The vector of an
    /// [empty](Self::is_empty) text is empty.
    ///
    /// # Errors
    /// If the model has no such vector (only models of `classify` have), and the errors of [`Self::predict`].
    #[track_caller]
    pub fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>> {
        let vectors = &mut |texts: &[&str]| {
            let found = self.trained.rows(&self.predictor, texts, EMBEDDING)?;
            let width = found.shape().iter().skip(1).product::<usize>().max(1);
            Ok(found.as_slice::<f32>()?.chunks(width).map(<[f32]>::to_vec).collect())
        };
        let found = self.divided(texts, vectors).at_caller()?;
        Ok(found.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Returns whether the model has one vector per text, for [`Self::embed`].
    pub fn embeds(&self) -> bool {
        self.trained.embeds().is_some()
    }

    /// Continues a text by `tokens` tokens with a language model, and returns the new text; `sampling` decides how
    /// tokens are drawn.
    ///
    /// # Errors
    /// If the model is not a language model, if `sampling` is invalid, or if a computed value is not a number.
    #[track_caller]
    pub fn write(&self, text: &str, sampling: Sampling, seed: u64, tokens: usize) -> Result<String> {
        let (mut written, mut state) = (String::new(), self.begin().at_caller()?);
        self.read(&mut state, text, &mut || ControlFlow::Continue(())).at_caller()?;
        let mut add = |piece: &str| {
            written.push_str(piece);
            ControlFlow::Continue(())
        };
        self.write_each(&mut state, &mut sampling.sampler(seed).at_caller()?, tokens, &mut add)
            .at_caller()?;
        Ok(written)
    }

    /// Begins a session of a language model, which keeps the state of the model between calls of [`Self::read`] and
    /// [`Self::write_each`].
    ///
    /// # Errors
    /// If the model is not a language model.
    #[track_caller]
    pub fn begin(&self) -> Result<TextSession> {
        if !self.task.continues_texts() {
            let (expected, got) = ("a language model (`lm`)", format!("a model of `{}`", self.task.name()));
            return Err(Error::of(ErrorKind::Program, "model that writes", expected, got).at_caller());
        }
        self.predictor.session(&["logits"]).map(TextSession::new).at_caller()
    }

    /// Reads a text in a session of this model, and returns the number of its tokens. An empty text at the beginning of a session
    /// is read as a line break. The callback `each` is called before each token, and ends the reading by `Break`.
    ///
    /// # Errors
    /// If the vocabulary has no entry for a token, or if a computed value is not a number.
    #[track_caller]
    pub fn read(
        &self,
        session: &mut TextSession,
        text: &str,
        each: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<usize> {
        self.trained.read(&self.predictor, session, text, each).at_caller()
    }

    /// Continues the text of a session by at most `tokens` tokens, and returns their number. The callback `each` gets each piece
    /// of the new text as soon as it is drawn, and ends the text by `Break`. The text before, and all pieces, are the whole text:
    /// a first word begins with its space.
    ///
    /// # Errors
    /// If the session has read nothing, or if a computed value is not a number.
    #[track_caller]
    pub fn write_each(
        &self,
        session: &mut TextSession,
        sampler: &mut Sampler,
        tokens: usize,
        each: &mut dyn FnMut(&str) -> ControlFlow<()>,
    ) -> Result<usize> {
        let how = Continuation { sampler, tokens };
        self.trained.write(&self.predictor, session, how, each).at_caller()
    }

    /// Searches the most probable continuations of a text by `tokens` tokens; returns the continuations with their scores, the
    /// best first.
    ///
    /// # Errors
    /// If the model is not a language model, if `beam` is invalid, or if a computed value is not a number.
    #[track_caller]
    pub fn search(&self, text: &str, tokens: usize, beam: &Beam) -> Result<Vec<(String, f64)>> {
        self.trained.search(&self.predictor, text, tokens, beam).at_caller()
    }
}
