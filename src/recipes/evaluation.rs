//! What a model scores on texts with their right answers.

use std::collections::BTreeMap;

use super::by_length::ByLength;
use super::sample::{Bootstrap, FigureFn};
use super::translated::TranslatedText;
use crate::metrics::{Counts, Unit};

/// The most distinct labels without training that are named; others are counted together.
const MOST_UNSEEN: usize = 1_000;
/// How many places of a label are named.
const PLACES: usize = 3;

/// What a model scores on a file.
///
/// Intervals are percentile bootstrap intervals of 95 %: 1,000 samples of the texts with replacement, from a fixed seed. Of more than
/// 10,000 texts, several are drawn together.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// The name of the figure that stands for all.
    pub headline: &'static str,
    /// The figures, in the order in which they are shown.
    pub figures: Vec<Figure>,
    /// How many texts, tokens, characters and the like there are.
    pub counts: Vec<(&'static str, u64)>,
    /// Precision, recall, F1 and support of each label, tag or type of chunk.
    pub tables: Vec<ScoreTable>,
    /// Which labels, and which tags, were taken for which.
    pub confusions: Vec<Confusion>,
    /// The errors by the length of texts.
    pub lengths: Option<ByLength>,
    /// The first texts that the model wrote, and the worst of the others.
    pub examples: Vec<TranslatedText>,
    /// Labels and tags that training never saw.
    pub unseen: Vec<UnseenLabel>,
    /// How BLEU and chrF were computed, as sacreBLEU writes it.
    pub signatures: Vec<String>,
    /// What the figures are of, for people: texts that a figure leaves out, or counts once.
    pub notes: Vec<String>,
    /// How the file was read, for people.
    pub said: Vec<String>,
    pub(super) sample: Bootstrap,
    /// The headline figure of summed counts, and how many of them there are.
    pub(super) of: Option<FigureFn>,
    pub(super) columns: usize,
}

/// A named value.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// Its name.
    pub name: &'static str,
    /// Its value; of a share from 0 to 1.
    pub value: f64,
    /// Its unit: a share is shown in percent.
    pub unit: Unit,
    /// The 95 % bootstrap interval.
    pub interval: Option<[f64; 2]>,
}

/// Precision, recall and F1 of each of several classes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScoreTable {
    /// What the classes are: `label`, `tag`, `chunk type`.
    pub of: &'static str,
    /// A row a class, by name.
    pub rows: Vec<ScoreRow>,
}

/// How often a class is right, found and there.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScoreRow {
    /// The class.
    pub name: String,
    /// How often it was found where it is.
    pub right: u64,
    /// How often it was found.
    pub found: u64,
    /// How often it is there: its support.
    pub support: u64,
}

impl ScoreRow {
    fn counts(&self) -> Counts {
        Counts { hits: self.right as f64, labels: self.support as f64, guesses: self.found as f64 }
    }

    /// right / found; 0 if it was never found.
    pub fn precision(&self) -> f64 {
        self.counts().precision()
    }

    /// right / support; 0 if it is never there.
    pub fn recall(&self) -> f64 {
        self.counts().recall()
    }

    /// 2 · right / (found + support); 0 without either.
    pub fn f1(&self) -> f64 {
        self.counts().f1()
    }
}

/// Which classes were taken for which.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Confusion {
    /// What the classes are: `label`, `tag`.
    pub of: &'static str,
    /// A cell for each pair of classes that occurs.
    pub cells: Vec<ConfusionCount>,
}

/// How often a label or a tag was found where this one, or another, is right.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ConfusionCount {
    /// What is right.
    pub truth: String,
    /// What was found.
    pub found: String,
    /// How often.
    pub count: u64,
}

/// A label or tag that training never saw: it is scored as wrong.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UnseenLabel {
    /// `label` or `tag`.
    pub what: &'static str,
    /// The label or tag.
    pub name: String,
    /// How often it is there.
    pub count: u64,
    /// Where it is first, a few places.
    pub places: Vec<String>,
}

impl Evaluation {
    /// The value of this name.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// The figure that stands for all.
    pub fn headline(&self) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == self.headline)
    }

    /// Figures of the sums of a sample of `columns` columns, the first of them the headline.
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

    /// With a figure that has no interval.
    pub(super) fn with(mut self, name: &'static str, unit: Unit, value: f64) -> Self {
        self.figures.push(Figure { name, value, unit, interval: None });
        self
    }

    /// With the mean loss, which comes first.
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

/// Labels or tags against the right ones, counted as they come.
#[derive(Debug, Default)]
pub(super) struct Tally {
    what: &'static str,
    /// Those that training saw, by number; then the others, as they come.
    names: Vec<String>,
    known: usize,
    unseen: BTreeMap<String, usize>,
    places: Vec<(u64, Vec<String>)>,
    /// By the numbers of the right one and the one found.
    cells: BTreeMap<(usize, usize), u64>,
}

impl Tally {
    pub(super) fn new<'a>(what: &'static str, known: impl IntoIterator<Item = &'a str>) -> Self {
        let names: Vec<String> = known.into_iter().map(str::to_owned).collect();
        Self { what, known: names.len(), names, ..Self::default() }
    }

    /// Counts one, by the number of the right one, if training saw it, and that of the one found. Returns the number of the right one.
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

    /// How many there are.
    pub(super) fn names(&self) -> usize {
        self.names.len()
    }

    /// The number of a label that training never saw.
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

    /// The row of each that is there or was found, by name.
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

/// The mean of F1 over the classes that are there or were found.
pub(super) fn macro_f1(rows: &[ScoreRow]) -> f64 {
    crate::metrics::ratio(rows.iter().map(ScoreRow::f1).sum(), rows.len() as f64)
}

/// The mean of F1 over the classes, weighted by their support.
pub(super) fn weighted_f1(rows: &[ScoreRow]) -> f64 {
    let sum = rows.iter().map(|row| row.f1() * row.support as f64).sum();
    crate::metrics::ratio(sum, rows.iter().map(|row| row.support as f64).sum())
}

/// What a visitor sees of each text that is scored.
#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome<'a> {
    pub(super) text: &'a str,
    /// The text as a model is asked about it: of words one a line, as they may have spaces in them.
    pub(super) asked: &'a str,
    pub(super) truth: &'a str,
    pub(super) found: &'a str,
}

/// Gives records in parts that are answered together: by number, and by length.
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
