//! The scores of a model on texts with their right answers.

use std::collections::BTreeMap;

use super::by_length::ByLength;
use super::sample::{Bootstrap, FigureFn};
use super::translated::TranslatedText;
use crate::metrics::{Counts, Unit};

/// The most unseen labels that are listed by name; all further unseen labels are counted as one entry.
const MOST_UNSEEN: usize = 1_000;
/// The most locations that are listed per unseen label.
const PLACES: usize = 3;

/// Scores of a model on a file.
///
/// Intervals are percentile bootstrap intervals of 95 %: 1,000 samples of the texts with replacement, from a fixed seed. With
/// more than 10,000 texts, groups of texts are drawn instead of single texts.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// The name of the headline figure, for example `accuracy`.
    pub headline: &'static str,
    /// The figures, in the order in which they are shown.
    pub figures: Vec<Figure>,
    /// The numbers of texts, tokens, characters and so on.
    pub counts: Vec<(&'static str, u64)>,
    /// Precision, recall, F1 and support of each label, tag or type of chunk.
    pub tables: Vec<ScoreTable>,
    /// The confusion counts of labels, and of tags.
    pub confusions: Vec<Confusion>,
    /// The errors by the length of texts, such as the share of wrong texts.
    pub lengths: Option<ByLength>,
    /// Translations beside their references: the first of the file, and the worst of the others. Empty for other tasks.
    pub examples: Vec<TranslatedText>,
    /// Labels and tags that training never saw.
    pub unseen: Vec<UnseenLabel>,
    /// The signatures of BLEU and chrF in the format of sacreBLEU: the settings of their computation. Empty for other tasks.
    pub signatures: Vec<String>,
    /// Notes on the figures, for people: texts that a figure leaves out, or counts once.
    pub notes: Vec<String>,
    /// How the file was read, for people.
    pub said: Vec<String>,
    pub(super) sample: Bootstrap,
    /// The function that computes the headline figure from summed counts. `columns` is the number of counts.
    pub(super) of: Option<FigureFn>,
    pub(super) columns: usize,
}

/// A named score, with its unit and its interval.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// The name, for example `macro F1`.
    pub name: &'static str,
    /// The value; a share is from 0 to 1.
    pub value: f64,
    /// The unit: a share is shown in percent.
    pub unit: Unit,
    /// The 95 % bootstrap interval; `None` if the score was not resampled.
    pub interval: Option<[f64; 2]>,
}

/// Precision, recall and F1 of each of several classes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScoreTable {
    /// The kind of the classes: `label`, `tag`, `chunk type`.
    pub of: &'static str,
    /// One row per class, sorted by name.
    pub rows: Vec<ScoreRow>,
}

/// Counts of a class: correct predictions, all predictions, and true occurrences.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScoreRow {
    /// The class.
    pub name: String,
    /// The number of correct predictions of the class.
    pub right: u64,
    /// The number of predictions of the class.
    pub found: u64,
    /// The number of true occurrences: the support.
    pub support: u64,
}

impl ScoreRow {
    fn counts(&self) -> Counts {
        Counts { hits: self.right as f64, labels: self.support as f64, guesses: self.found as f64 }
    }

    /// Returns right / found; 0 if the class was never predicted.
    pub fn precision(&self) -> f64 {
        self.counts().precision()
    }

    /// Returns right / support; 0 if the class never occurs.
    pub fn recall(&self) -> f64 {
        self.counts().recall()
    }

    /// Returns 2 · right / (found + support); 0 if the class was never predicted and never occurs.
    pub fn f1(&self) -> f64 {
        self.counts().f1()
    }
}

/// Confusion counts of pairs of classes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Confusion {
    /// The kind of the classes: `label`, `tag`.
    pub of: &'static str,
    /// One cell per pair of classes that occurs.
    pub cells: Vec<ConfusionCount>,
}

/// The count of one pair of a true class and a predicted class; the two classes may be equal.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConfusionCount {
    /// The true class.
    pub truth: String,
    /// The predicted class.
    pub found: String,
    /// The count.
    pub count: u64,
}

/// A label or tag that training never saw; each occurrence is scored as wrong.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UnseenLabel {
    /// `label` or `tag`.
    pub what: &'static str,
    /// The label or tag.
    pub name: String,
    /// The number of occurrences.
    pub count: u64,
    /// The locations of the first occurrences of the label or tag, at most 3.
    pub places: Vec<String>,
}

impl Evaluation {
    /// Returns the value of the figure with this name; `None` if there is no such figure.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Returns the headline figure.
    pub fn headline(&self) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == self.headline)
    }

    /// Returns an evaluation with these figures, computed from a bootstrap sample of `columns` columns; the first figure is the
    /// headline.
    pub(super) fn of(sample: Bootstrap, columns: usize, figures: &[(&'static str, Unit, FigureFn)]) -> Self {
        let total = sample.total(columns);
        let of: Vec<FigureFn> = figures.iter().map(|(.., of)| *of).collect();
        let intervals = sample.intervals(columns, &of);
        let figure = |(&(name, unit, of), interval): (&(&'static str, Unit, FigureFn), Option<[f64; 2]>)| {
            Figure { name, value: of(&total), unit, interval }
        };
        Self {
            headline: figures.first().map_or("", |(name, ..)| name),
            figures: figures.iter().zip(intervals).map(figure).collect(),
            counts: vec![("texts", sample.texts())],
            of: of.first().copied(),
            columns,
            sample,
            ..Self::default()
        }
    }

    /// Adds a figure without an interval.
    pub(super) fn with(mut self, name: &'static str, unit: Unit, value: f64) -> Self {
        self.figures.push(Figure { name, value, unit, interval: None });
        self
    }

    /// Adds the mean loss, if there is one, as the first figure.
    pub(super) fn with_loss(mut self, loss: Option<f64>) -> Self {
        let figure = |value| Figure { name: "loss", value, unit: Unit::Number, interval: None };
        self.figures.splice(0..0, loss.map(figure));
        if loss.is_some() && !self.unseen.is_empty() {
            let note = "loss: without texts that have a label or tag that training never saw";
            self.notes.push(note.to_owned());
        }
        self
    }
}

/// Confusion counts of labels or tags, updated text by text.
#[derive(Debug, Default)]
pub(super) struct Tally {
    what: &'static str,
    /// The names that training saw, by number; then unseen names, in the order of their first occurrence.
    names: Vec<String>,
    known: usize,
    unseen: BTreeMap<String, usize>,
    places: Vec<(u64, Vec<String>)>,
    /// The count of each pair: the number of the true name, and the number of the predicted name.
    cells: BTreeMap<(usize, usize), u64>,
}

impl Tally {
    pub(super) fn new<'a>(what: &'static str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<String> = known.into_iter().map(str::to_owned).collect();
        Self { what, known: names.len(), names, ..Self::default() }
    }

    /// Counts a prediction `found` where `truth` is right; `id` is the number of `truth` if training saw it. Returns the number
    /// of `truth`.
    pub(super) fn add(
        &mut self,
        truth: &str,
        id: Option<usize>,
        found: usize,
        place: impl FnOnce() -> String,
    ) -> usize {
        let truth = id.unwrap_or_else(|| self.unseen(truth, place));
        *self.cells.entry((truth, found)).or_default() += 1;
        truth
    }

    /// Returns the number of names that training saw, plus the number of unseen names.
    pub(super) fn names(&self) -> usize {
        self.names.len()
    }

    /// Counts an occurrence of a name that training never saw, and returns the number of the name.
    fn unseen(&mut self, name: &str, place: impl FnOnce() -> String) -> usize {
        const OTHERS: &str = "(others that training never saw)";
        let full = self.unseen.len() >= MOST_UNSEEN && !self.unseen.contains_key(name);
        let name = if full { OTHERS } else { name };
        let number = match self.unseen.get(name) {
            Some(&number) => number,
            None => {
                let number = self.names.len();
                self.names.push(name.to_owned());
                self.unseen.insert(name.to_owned(), number);
                self.places.push((0, Vec::new()));
                number
            }
        };
        if let Some((count, places)) = self.places.get_mut(number - self.known) {
            *count += 1;
            if places.len() < PLACES {
                places.push(place());
            }
        }
        number
    }

    /// Returns the row of each class that occurs or was predicted, by name.
    pub(super) fn rows(&self) -> Vec<ScoreRow> {
        let row = |name: &String| ScoreRow { name: name.clone(), right: 0, found: 0, support: 0 };
        let mut rows: Vec<ScoreRow> = self.names.iter().map(row).collect();
        for (&(truth, found), &count) in &self.cells {
            if let Some(row) = rows.get_mut(truth) {
                row.support += count;
                row.right += if truth == found { count } else { 0 };
            }
            if let Some(row) = rows.get_mut(found) {
                row.found += count;
            }
        }
        rows.retain(|row| row.support + row.found > 0);
        rows.sort_by(|a, b| a.name.cmp(&b.name));
        rows
    }

    pub(super) fn confusion(&self) -> Confusion {
        let name = |number: usize| self.names.get(number).cloned().unwrap_or_default();
        let cell = |(&(truth, found), &count): (&(usize, usize), &u64)| ConfusionCount {
            truth: name(truth),
            found: name(found),
            count,
        };
        Confusion { of: self.what, cells: self.cells.iter().map(cell).collect() }
    }

    pub(super) fn unseen_ones(self) -> Vec<UnseenLabel> {
        let Self { what, unseen, mut places, known, .. } = self;
        let one = |(name, number): (String, usize)| {
            let (count, places) = places.get_mut(number - known).map(std::mem::take).unwrap_or_default();
            UnseenLabel { what, name, count, places }
        };
        unseen.into_iter().map(one).collect()
    }
}

/// Returns the mean of F1 over the classes that occur or were predicted.
pub(super) fn macro_f1(rows: &[ScoreRow]) -> f64 {
    crate::metrics::ratio(rows.iter().map(ScoreRow::f1).sum(), rows.len() as f64)
}

/// Returns the mean of F1 over the classes, weighted by their support.
pub(super) fn weighted_f1(rows: &[ScoreRow]) -> f64 {
    let sum = rows.iter().map(|row| row.f1() * row.support as f64).sum();
    crate::metrics::ratio(sum, rows.iter().map(|row| row.support as f64).sum())
}

/// A scored text, as a scoring passes it to its function `each`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome<'a> {
    pub(super) text: &'a str,
    /// The text in the form in which a model reads it. A tagged text has one word per line, since words may contain spaces.
    pub(super) asked: &'a str,
    pub(super) truth: &'a str,
    pub(super) found: &'a str,
}

/// Passes records to `each` in groups, which a model answers together. A group ends at 256 records, or when the sum of `size`
/// reaches 2¹⁸.
pub(super) fn in_parts<R>(
    records: impl IntoIterator<Item = crate::error::Result<R>>,
    size: impl Fn(&R) -> usize,
    mut each: impl FnMut(&[R]) -> crate::error::Result<()>,
) -> crate::error::Result<()> {
    const TOGETHER: usize = 256;
    const SIZE: usize = 1 << 18;
    let (mut part, mut long) = (Vec::with_capacity(TOGETHER), 0);
    for record in records {
        let record = record?;
        long += size(&record);
        part.push(record);
        if part.len() == TOGETHER || long >= SIZE {
            each(&part)?;
            part.clear();
            long = 0;
        }
    }
    if part.is_empty() { Ok(()) } else { each(&part) }
}
