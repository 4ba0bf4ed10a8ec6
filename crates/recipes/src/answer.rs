//! The answers of models.

use std::fmt;
use std::ops::Range;

use unpadded::Result;
use unpadded_text::AnswerCell;

/// An answer of a model to one text.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// A single label for the text.
    Label {
        /// The most probable label of the text.
        label: String,
        /// The probability of the most probable label.
        probability: f32,
        /// The probability of every label, in the order of the vocabulary.
        all: Vec<(String, f32)>,
        /// The tokens of the text with their attention weights; empty if the model has no attention pooling.
        words: Vec<(String, f32)>,
    },
    /// Several labels for the text, or none.
    Labels {
        /// The labels with a probability of at least their threshold.
        labels: Vec<String>,
        /// The probability of every label, in the order of the vocabulary.
        all: Vec<(String, f32)>,
        /// The separator that is put between labels in a cell of a file.
        separator: String,
    },
    /// A number for the text.
    Number(f32),
    /// One tag for each word of a text.
    Tags {
        /// The words.
        words: Vec<String>,
        /// The tag of each word.
        tags: Vec<String>,
        /// The entities that the tags mark, in the order of the text; empty for plain tags, such as parts of speech.
        entities: Vec<Entity>,
        /// The label of the whole text with its probability; `None` if the model predicts only tags.
        label: Option<(String, f32)>,
    },
    /// A translation of the text, or its continuation by a language model.
    Text(String),
    /// The empty answer to a record without a text.
    Empty,
    /// Several translations, the best first. The score of a translation is its log probability divided by the length
    /// penalty.
    Ranked(Vec<(String, f64)>),
}

/// An entity that tags of a scheme such as IOB2 mark: words in a row with one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// The label of the entity, as `PER`.
    pub label: String,
    /// The indices of its words.
    pub words: Range<usize>,
}

impl Answer {
    /// The names of the columns for the two cells that [`Self::cells`] returns for a label.
    pub(super) const LABEL: [&'static str; 2] = ["label", "probability"];

    /// Returns the probabilities of the predicted labels of [`Self::Labels`]; for every other answer, the list is empty.
    pub fn probabilities(&self) -> Vec<f32> {
        let Answer::Labels { labels, all, .. } = self else { return Vec::new() };
        all.iter().filter(|(label, _)| labels.contains(label)).map(|(_, p)| *p).collect()
    }

    /// Returns the cells that the answer adds to a record of a file, for example a label and its probability.
    pub fn cells(&self) -> Vec<AnswerCell> {
        let labelled = |label: &str, p: f32| [AnswerCell::Text(label.to_owned()), AnswerCell::Number(p)];
        match self {
            Answer::Label { label, probability, .. } => labelled(label, *probability).into(),
            Answer::Labels { labels, separator, .. } => {
                let probabilities = AnswerCell::Numbers(self.probabilities(), separator.clone());
                vec![AnswerCell::List(labels.clone(), separator.clone()), probabilities]
            }
            Answer::Number(number) => vec![AnswerCell::Number(*number)],
            Answer::Empty => Vec::new(),
            Answer::Tags { tags, label, .. } => {
                let label = label.iter().flat_map(|(label, p)| labelled(label, *p));
                [AnswerCell::Words(tags.clone())].into_iter().chain(label).collect()
            }
            Answer::Text(text) => vec![AnswerCell::Text(text.clone())],
            Answer::Ranked(texts) => {
                let cells = |(text, score): &(String, f64)| {
                    [AnswerCell::Text(text.clone()), AnswerCell::Number(*score as f32)]
                };
                texts.iter().flat_map(cells).collect()
            }
        }
    }

    /// Returns the columns of the answer in a line for people: a label and its probability, `word/tag` for each word, a number, or
    /// texts.
    pub fn columns(&self) -> Vec<String> {
        let labelled = |label: &str, p: f32| [label.to_owned(), format!("{p:.3}")];
        match self {
            Answer::Label { label, probability, .. } => labelled(label, *probability).into(),
            Answer::Labels { labels, separator, .. } => {
                let probabilities = self.probabilities().into_iter().map(|p| format!("{p:.3}"));
                vec![labels.join(separator), probabilities.collect::<Vec<_>>().join(separator)]
            }
            Answer::Number(number) => vec![number.to_string()],
            Answer::Empty => Vec::new(),
            Answer::Text(text) => vec![text.clone()],
            Answer::Ranked(texts) => {
                texts.iter().flat_map(|(text, score)| [text.clone(), format!("{score:.3}")]).collect()
            }
            Answer::Tags { words, tags, label, .. } => {
                let tagged = words.iter().zip(tags).map(|(word, tag)| format!("{word}/{tag}"));
                let label = label.iter().flat_map(|(label, p)| labelled(label, *p));
                [tagged.collect::<Vec<_>>().join(" ")].into_iter().chain(label).collect()
            }
        }
    }
}

/// Formats the answer as a line for people: [`Answer::columns`], separated by tabs.
impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.columns().join("\t"))
    }
}

/// The largest batch of texts that a model answers together. All computed values of a batch are in memory, so the size of a
/// batch is limited; the answers do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerBatch {
    texts: usize,
    bytes: usize,
}

impl AnswerBatch {
    /// The maximum number of texts in a batch of [`Model::batch`](super::Model::batch).
    pub const TEXTS: usize = 256;

    /// Returns a batch of at most [`Self::TEXTS`] texts that is complete from `bytes` bytes of text on.
    pub(super) const fn of_bytes(bytes: usize) -> Self {
        Self { texts: Self::TEXTS, bytes }
    }

    /// Sets the maximum number of texts.
    #[must_use]
    pub fn texts(self, texts: usize) -> Self {
        Self { texts, ..self }
    }

    /// Returns whether a batch with this number of texts and of bytes of text is complete.
    pub fn is_complete(self, texts: usize, bytes: usize) -> bool {
        texts >= self.texts || bytes >= self.bytes
    }

    /// Passes records to `each` batch by batch; `size` is the length of a record in bytes.
    pub(super) fn divide<R>(
        self,
        records: &mut dyn Iterator<Item = Result<R>>,
        size: &dyn Fn(&R) -> usize,
        each: &mut dyn FnMut(&[R]) -> Result<()>,
    ) -> Result<()> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for record in records {
            let record = record?;
            bytes += size(&record);
            batch.push(record);
            if self.is_complete(batch.len(), bytes) {
                each(&batch)?;
                batch.clear();
                bytes = 0;
            }
        }
        if batch.is_empty() { Ok(()) } else { each(&batch) }
    }
}
