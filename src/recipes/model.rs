//! A trained recipe: from its file alone to labels, tags and text.

use std::fmt;
use std::path::Path;

use super::config::Task;
use super::prepared::{CONFIG, CUT, TARGET_CUT, TASK};
use super::translate::Translator;
use super::{classify, rows, tag};
use crate::checkpoint::Checkpoint;
use crate::data::{TaggedText, Tokenizer};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::ops;
use crate::predict::{Predictor, Sampling, Session};
use crate::tensor::Variable;

/// A model that a recipe has trained, with all that it needs to answer: program, parameters, vocabularies, labels, and how text is cut.
///
/// ```no_run
/// use unpadded::recipes::Model;
/// let model = Model::load("runs/reviews/best.ckpt")?;
/// let answers = model.predict(&["What a film!"])?;
/// println!("{}", answers[0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Model {
    predictor: Predictor,
    of: Of,
}

/// What a task needs beside the predictor.
enum Of {
    Classify(Tokenizer),
    /// Classes of rows of features, which no text is cut into.
    Rows,
    Tag,
    Lm(Tokenizer),
    Translate(Box<Translator>),
}

/// What a model says of a text.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A label for the text.
    Label {
        /// The likeliest one.
        label: String,
        /// Its probability.
        probability: f32,
        /// The probability of every label, in the order of the vocabulary.
        all: Vec<(String, f32)>,
        /// The tokens and how much attention weighed them, if the model has it; else 0.
        words: Vec<(String, f32)>,
    },
    /// A tag for each word.
    Tags {
        /// The words.
        words: Vec<String>,
        /// Their tags.
        tags: Vec<String>,
        /// A label for the text and its probability, if the model has them.
        label: Option<(String, f32)>,
    },
    /// Another text, or how it goes on.
    Text(String),
}

/// For people: a label with its probability, words over their tags, or the text.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Label { label, probability, .. } => write!(f, "{label}\t{probability:.3}"),
            Answer::Text(text) => f.write_str(text),
            Answer::Tags { words, tags, label } => {
                let tagged: Vec<String> =
                    words.iter().zip(tags).map(|(word, tag)| format!("{word}/{tag}")).collect();
                f.write_str(&tagged.join(" "))?;
                match label {
                    Some((label, probability)) => write!(f, "\t{label}\t{probability:.3}"),
                    None => Ok(()),
                }
            }
        }
    }
}

impl Model {
    /// Loads the file that a recipe's training has saved.
    ///
    /// # Errors
    /// If it cannot be read, or was not saved by a recipe.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let of_file = |e: Error| e.noted(format!("in `{}`", path.display()));
        Self::new(Checkpoint::load(path).at_caller()?).map_err(of_file).at_caller()
    }

    /// The same of a checkpoint in memory.
    ///
    /// # Errors
    /// As [`Self::load`].
    #[track_caller]
    pub fn new(checkpoint: Checkpoint) -> Result<Self> {
        let wrong = |got: String| {
            let expected = "one that a recipe has saved, which says its task";
            Error::of(ErrorKind::Format, "checkpoint", expected, got)
        };
        let task = match checkpoint.notes.get(TASK) {
            Some(name) => Task::from_name(name).ok_or_else(|| wrong(format!("task `{name}`"))),
            None => match checkpoint.notes.get("model") {
                Some(model) => Err(wrong(format!("one of the program `{model}`"))),
                None => Err(wrong("one of another program".into())),
            },
        }
        .at_caller()?;
        let cut = |note: &str| Tokenizer::from_name(checkpoint.notes.get(note).map_or("", String::as_str));
        let of_rows = task == Task::Classify && checkpoint.notes.contains_key(rows::COLUMNS);
        let tokenizer = if of_rows || task == Task::Tag { None } else { Some(cut(CUT).at_caller()?) };
        let target = if task == Task::Translate { Some(cut(TARGET_CUT).at_caller()?) } else { None };
        let widths = [("probabilities", "labels"), ("logits", "tokens"), ("logits", "targets")];
        for (output, vocabulary) in widths {
            let found = (checkpoint.outputs.get(output), checkpoint.vocabularies.get(vocabulary));
            let (Some(output), Some(vocabulary)) = found else { continue };
            let id = checkpoint.program.find(output);
            let width = id.and_then(|id| checkpoint.program.spec(id).ok()).map(crate::program::Spec::width);
            if width != Some(vocabulary.len()) || vocabulary.len() == 0 {
                return Err(wrong(format!("{} tokens for the columns of `{output}`", vocabulary.len())));
            }
        }
        let predictor = Predictor::new(checkpoint, &ops::catalogue()).at_caller()?;
        let of = match (task, tokenizer, target) {
            (Task::Classify, Some(cut), _) => Of::Classify(cut),
            (Task::Classify, None, _) => Of::Rows,
            (Task::Lm, Some(cut), _) => Of::Lm(cut),
            (Task::Translate, Some(cut), Some(target)) => {
                Of::Translate(Box::new(Translator::new(&predictor, cut, target).at_caller()?))
            }
            _ => Of::Tag,
        };
        Ok(Self { predictor, of })
    }

    /// What it has learnt.
    pub fn task(&self) -> Task {
        match self.of {
            Of::Classify(_) | Of::Rows => Task::Classify,
            Of::Tag => Task::Tag,
            Of::Lm(_) => Task::Lm,
            Of::Translate(_) => Task::Translate,
        }
    }

    /// How it cuts texts; not of `tag`, whose words are given, nor of rows of features.
    pub fn tokenizer(&self) -> Option<&Tokenizer> {
        self.tokenizers().map(|[read, _]| read)
    }

    /// How it cuts what it reads, and what it writes.
    pub(super) fn tokenizers(&self) -> Option<[&Tokenizer; 2]> {
        match &self.of {
            Of::Classify(cut) | Of::Lm(cut) => Some([cut; 2]),
            Of::Translate(translator) => Some(translator.tokenizers()),
            Of::Rows | Of::Tag => None,
        }
    }

    /// The config that it was trained with, as TOML.
    pub fn config(&self) -> &str {
        self.predictor.note(CONFIG).unwrap_or_default()
    }

    /// The predictor, for what stands in no recipe.
    pub fn predictor(&self) -> &Predictor {
        &self.predictor
    }

    /// What it says of each text: a label, tags, a translation; of a language model, how the text goes on, by its likeliest tokens.
    ///
    /// # Errors
    /// If the file lacks a vocabulary, or what is computed is not a number.
    #[track_caller]
    pub fn predict<T: AsRef<str>>(&self, texts: &[T]) -> Result<Vec<Answer>> {
        let texts: Vec<&str> = texts.iter().map(AsRef::as_ref).collect();
        self.answers(&texts).at_caller()
    }

    fn answers(&self, texts: &[&str]) -> Result<Vec<Answer>> {
        match &self.of {
            // A few hundred at a time: what a batch holds is all in memory.
            Of::Classify(_) | Of::Rows => {
                let parts = texts.chunks(256).map(|texts| self.labels(self.tokenizer(), texts));
                Ok(parts.collect::<Result<Vec<_>>>()?.concat())
            }
            Of::Tag => {
                let parts = texts.chunks(256).map(|texts| self.tags(texts));
                Ok(parts.collect::<Result<Vec<_>>>()?.concat())
            }
            Of::Lm(_) => {
                let greedy = Sampling { temperature: 0.0, ..Sampling::default() };
                texts.iter().map(|text| Ok(Answer::Text(self.write(text, greedy, 0, 100)?))).collect()
            }
            Of::Translate(translator) => {
                let found = translator.translate(&self.predictor, texts, 4)?;
                Ok(found.into_iter().map(Answer::Text).collect())
            }
        }
    }

    fn labels(&self, cut: Option<&Tokenizer>, texts: &[&str]) -> Result<Vec<Answer>> {
        let labels = self.predictor.vocabulary("labels")?;
        let (feed, fed) = match cut {
            Some(cut) => {
                let words = self.predictor.vocabulary("words")?;
                let ids = texts.iter().map(|text| classify::ids(words, cut, text));
                (classify::FEEDS[0], Variable::from_sequences(&ids.collect::<Result<Vec<_>>>()?)?)
            }
            None => (rows::FED, rows::fed(&self.predictor, texts)?),
        };
        let attends = self.predictor.outputs().any(|output| output == "attention");
        let outputs: &[&str] = if attends { &["probabilities", "attention"] } else { &["probabilities"] };
        let found = self.predictor.run(&[(feed, &fed)], outputs)?;
        let mut weights = match found.get(1) {
            Some(weights) => weights.as_slice::<f32>()?.iter(),
            None => [].iter(),
        };
        let rows = found[0].as_slice::<f32>()?.chunks_exact(labels.len());
        let answer = |(row, text): (&[f32], &&str)| {
            let all: Vec<(String, f32)> =
                labels.tokens().map(str::to_owned).zip(row.iter().copied()).collect();
            let likelier = |a: (String, f32), b: (String, f32)| if b.1 > a.1 { b } else { a };
            let (label, probability) = all.iter().cloned().reduce(likelier).unwrap_or_default();
            let words = cut.iter().flat_map(|cut| cut.tokens(text));
            let words = words.map(|word| (word.into_owned(), weights.next().copied().unwrap_or(0.0)));
            let words = words.collect();
            Answer::Label { label, probability, all, words }
        };
        Ok(rows.zip(texts).map(answer).collect())
    }

    fn tags(&self, texts: &[&str]) -> Result<Vec<Answer>> {
        let words: Vec<Vec<String>> =
            texts.iter().map(|text| TaggedText::words_of(text).map(str::to_owned).collect()).collect();
        let (known, spelt) = (self.predictor.vocabulary("words")?, self.predictor.vocabulary("characters")?);
        let ids: Vec<Vec<i64>> = words
            .iter()
            .map(|words| known.ids(words.iter().map(|word| tag::form(word))))
            .collect::<Result<_>>()?;
        let of = |word: &String| spelt.ids(word.chars().map(String::from));
        let characters: Vec<Vec<Vec<i64>>> =
            words.iter().map(|words| words.iter().map(of).collect()).collect::<Result<_>>()?;
        let (ids, characters) = (Variable::from_sequences(&ids)?, Variable::from_nested(&characters)?);
        let feeds = [("words", &ids), ("characters", &characters)];
        let found = self.predictor.run(&feeds, &["tags"])?;
        let labels = match self.predictor.outputs().any(|output| output == "labels") {
            true => self.predictor.likeliest(&feeds, "labels", "labels")?,
            false => Vec::new(),
        };
        let (tags, mut at) = (self.predictor.vocabulary("tags")?, found[0].as_slice::<i64>()?.iter());
        let answer = |(i, words): (usize, Vec<String>)| Answer::Tags {
            tags: words
                .iter()
                .filter_map(|_| at.next())
                .map(|&id| tags.token(id).unwrap_or_default().to_owned())
                .collect(),
            words,
            label: labels.get(i).cloned(),
        };
        Ok(words.into_iter().enumerate().map(answer).collect())
    }

    /// Goes on from a text by so many tokens of a language model, drawn as `sampling` says; returns what it wrote.
    ///
    /// # Errors
    /// If it is no language model, `sampling` makes no sense, or what is computed is not a number.
    #[track_caller]
    pub fn write(&self, text: &str, sampling: Sampling, seed: u64, tokens: usize) -> Result<String> {
        self.written(text, sampling, seed, tokens).at_caller()
    }

    fn written(&self, text: &str, sampling: Sampling, seed: u64, count: usize) -> Result<String> {
        let Of::Lm(cut) = &self.of else {
            let got = format!("one of `{}`", self.task().name());
            return Err(Error::of(ErrorKind::Program, "model that writes", "a language model (`lm`)", got));
        };
        let tokens = self.predictor.vocabulary("tokens")?;
        let mut sampler = sampling.sampler(seed)?;
        let mut session = self.predictor.session(&["logits"])?;
        let mut next = Variable::dense(ndarray::array![0i64]);
        let mut read = |id: i64, session: &mut Session| -> Result<()> {
            next.as_mut_slice()?[0] = id;
            session.step(&[("x", &next)])
        };
        let mut prompt = tokens.ids(cut.tokens(text))?;
        if prompt.is_empty() {
            // What stands between lines; else whatever token is the first.
            prompt.push(tokens.id("\n").unwrap_or_default());
        }
        for id in prompt {
            read(id, &mut session)?;
        }
        let (unknown, mut found, mut row) = (tokens.unknown(), Vec::new(), Vec::new());
        for _ in 0..count {
            row.clear();
            row.extend_from_slice(session.output("logits")?.as_slice::<f32>()?);
            // What is not known cannot be written.
            let never = unknown.and_then(|id| row.get_mut(id as usize));
            never.into_iter().for_each(|logit| *logit = f32::NEG_INFINITY);
            let id = sampler.draw(&row)?;
            found.push(tokens.token(id).unwrap_or_default());
            read(id, &mut session)?;
        }
        Ok(cut.join(found))
    }
}
