//! The evaluation of a model: scores on texts with known right answers.

use std::collections::BTreeMap;

use unpadded::metrics::{ChrF, Counts, Metric, Unit, ratio};

use super::by_length::ByLength;
use super::sample::{Bootstrap, FigureFn, OfSums};

/// Maximum number of unseen labels that are listed by name; further unseen labels are counted together as one entry.
const MOST_UNSEEN: usize = 1_000;
/// The name of the entry that counts further unseen labels together.
pub(super) const OTHERS: &str = "(others that training never saw)";
const PLACES: usize = 3;

/// The scores of a model on the texts of a file.
///
/// Each interval is a 95 % percentile bootstrap interval from 1,000 samples of the texts, drawn with replacement from a
/// fixed seed. With more than 10,000 texts, the samples are drawn from 10,000 groups of texts. With fewer than 100 texts, the
/// interval of an accuracy or another share of texts is Wilson's score interval.
#[derive(Debug, Clone, Default)]
pub struct Evaluation {
    /// The name of the most important figure, for example `accuracy`.
    pub headline: &'static str,
    /// All figures, in the order in which they are shown.
    pub figures: Vec<Figure>,
    /// Named counts, such as the number of texts, tokens or characters.
    pub counts: Vec<(&'static str, u64)>,
    /// Tables with precision, recall, F1 and support of each label, tag or type of chunk.
    pub tables: Vec<ScoreTable>,
    /// The confusion counts of the labels, and of the tags.
    pub confusions: Vec<Confusion>,
    /// A score by the length of texts, such as the share of wrong texts; `None` if the task has no such score.
    pub lengths: Option<ByLength>,
    /// Translations with their references: the first texts of the file, and the worst of the other texts. The list is
    /// empty for tasks other than translation.
    pub examples: Vec<TranslatedText>,
    /// Labels and tags that occur in the scored texts but never in the training.
    pub unseen: Vec<UnseenLabel>,
    /// The settings with which BLEU and chrF were computed, in the signature format of sacreBLEU. The list is empty
    /// for tasks other than translation.
    pub signatures: Vec<String>,
    /// Notes for people about the figures, for example about texts that a figure leaves out.
    pub notes: Vec<String>,
    /// Lines for people about how the file was read.
    pub messages: Vec<String>,
    pub(super) sample: Bootstrap,
    /// Whether a text has no label, which is a right answer if a text may have several labels.
    pub(super) bare: bool,
    /// The function that computes the headline figure from `columns` summed counts of all texts.
    pub(super) of: Option<FigureFn>,
    pub(super) columns: usize,
}

/// A named score with a unit and an interval.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Figure {
    /// The name of the score, for example `macro F1`.
    pub name: String,
    /// The value of the score; a share is a number from 0 to 1; NaN if the score is undefined.
    pub value: f64,
    /// The unit of the score; a share is shown in percent.
    pub unit: Unit,
    /// The 95 % interval of the score; `None` if no interval was computed.
    pub interval: Option<[f64; 2]>,
}

/// A table with precision, recall and F1 of each class.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScoreTable {
    /// What the classes are: `label`, `tag` or `chunk type`.
    pub of: &'static str,
    /// One row per class, sorted by the name of the class.
    pub rows: Vec<ScoreRow>,
}

/// The counts of a class: correct predictions, all predictions, and true occurrences.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ScoreRow {
    /// The class.
    pub name: String,
    /// The number of correct predictions of this class.
    pub right: u64,
    /// The number of all predictions of this class.
    pub found: u64,
    /// The support: how often this class truly occurs.
    pub support: u64,
}

impl ScoreRow {
    pub(super) fn new(name: impl Into<String>, [right, found, support]: [u64; 3]) -> Self {
        Self { name: name.into(), right, found, support }
    }

    fn counts(&self) -> Counts {
        Counts { hits: self.right as f64, labels: self.support as f64, guesses: self.found as f64 }
    }

    /// Returns the precision, right / found; 0 if the class was never predicted.
    pub fn precision(&self) -> f64 {
        self.counts().precision()
    }

    /// Returns the recall, right / support; 0 if the class never occurs.
    pub fn recall(&self) -> f64 {
        self.counts().recall()
    }

    /// Returns F1, 2 · right / (found + support); 0 if the class was never predicted and never occurs.
    pub fn f1(&self) -> f64 {
        self.counts().f1()
    }
}

/// Confusion counts: how often each true class was predicted as each class.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Confusion {
    /// What the classes are: `label` or `tag`.
    pub of: &'static str,
    /// One count per pair of a true and a predicted class that occurs.
    pub cells: Vec<ConfusionCount>,
}

/// The number of texts or words with a true class and a predicted class; the two classes may be equal.
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

/// A label or tag that occurs in the scored texts but not in the training; each occurrence is scored as wrong.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct UnseenLabel {
    /// What is unseen: `label` or `tag`.
    pub what: &'static str,
    /// The name of the label or tag.
    pub name: String,
    /// The number of occurrences in the scored texts.
    pub count: u64,
    /// The locations of the first occurrences, at most 3.
    pub places: Vec<String>,
}

impl UnseenLabel {
    pub(super) fn new(what: &'static str, name: &str) -> Self {
        Self { what, name: name.to_owned(), count: 0, places: Vec::new() }
    }

    /// Counts an occurrence at a location, if the location is known.
    pub(super) fn add(&mut self, location: impl FnOnce() -> Option<String>) {
        self.count += 1;
        if self.places.len() < PLACES {
            self.places.extend(location());
        }
    }

    /// Returns warnings about unseen labels and tags, for people; each of the first ones has a line.
    pub fn warnings(unseen: &[Self]) -> Vec<String> {
        const LINES: usize = 10;
        let line = |label: &Self| {
            let (what, name, places) =
                (label.what, named(&label.name), first_places(&label.places, label.count));
            let count = count_of(label.count, "occurrences");
            format!("warning: {what} {name} never occurs in training: {count} scored as wrong{places}")
        };
        let more = unseen.get(LINES..).unwrap_or_default();
        let count: u64 = more.iter().map(|unseen| unseen.count).sum();
        let rest = (!more.is_empty()).then(|| {
            let count = count_of(count, "occurrences");
            let more = match more.len() {
                1 => "1 more label or tag never occurs".to_owned(),
                more => format!("{more} more labels or tags never occur"),
            };
            format!("warning: {more} in training: {count} scored as wrong")
        });
        unseen.iter().take(LINES).map(line).chain(rest).collect()
    }
}

/// Returns the first locations of `count` occurrences in brackets, after a space; empty if none is known.
pub(super) fn first_places(places: &[String], count: u64) -> String {
    let more = if count as usize > places.len() { ", …" } else { "" };
    if places.is_empty() { String::new() } else { format!(" ({}{more})", places.join(", ")) }
}

/// Returns a number with its noun, such as `1 text`; `plural` is the noun in the plural.
pub(super) fn count_of(count: u64, plural: &str) -> String {
    let noun = if count == 1 { plural.strip_suffix('s').unwrap_or(plural) } else { plural };
    format!("{count} {noun}")
}

/// Returns the name of a class for a message: in one line, and cut after 60 characters.
pub(super) fn named(name: &str) -> String {
    let name = name.replace('\n', "\\n").replace('\t', "\\t");
    match name.char_indices().nth(60) {
        Some((end, _)) => format!("`{}…`", name.get(..end).unwrap_or_default()),
        None => format!("`{name}`"),
    }
}

impl Evaluation {
    /// Returns the value of a figure by its name; `None` if the evaluation has no such figure.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Returns the headline figure; `None` if the evaluation has no figures.
    pub fn headline(&self) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == self.headline)
    }

    /// Returns whether training saw none of the classes of a kind (`label` or `tag`) of the scored texts; each text has a class.
    pub(super) fn is_foreign(&self, what: &str) -> bool {
        let is_unseen =
            |name: &str| self.unseen.iter().any(|unseen| unseen.what == what && unseen.name == name);
        let rows = self.tables.iter().filter(|table| table.of == what).flat_map(|table| &table.rows);
        let cells =
            self.confusions.iter().filter(|unseen| unseen.of == what).flat_map(|unseen| &unseen.cells);
        !self.bare
            && self.unseen.iter().any(|unseen| unseen.what == what)
            && cells.map(|cell| &cell.truth).all(|name| is_unseen(name))
            && rows.filter(|row| row.support > 0).all(|row| is_unseen(&row.name))
    }

    pub(super) fn with(mut self, name: &str, unit: Unit, value: f64) -> Self {
        self.figures.push(Figure { name: name.to_owned(), value, unit, interval: None });
        self
    }

    /// Adds the figure of a metric of the user's own, with its interval over the texts of `sample`.
    pub(super) fn push_metric(&mut self, metric: &dyn Metric, sample: &Bootstrap) {
        let (value, interval) = sample.of_metric(metric);
        self.figures.push(Figure { name: metric.name().to_owned(), value, unit: metric.unit(), interval });
    }

    pub(super) fn with_loss(mut self, loss: Option<f64>) -> Self {
        let Some(value) = loss else { return self };
        self.figures.insert(0, Figure { name: "loss".to_owned(), value, unit: Unit::Number, interval: None });
        if !self.unseen.is_empty() {
            let note = "loss: without texts that have a label or tag that training never saw";
            self.notes.push(note.to_owned());
        }
        self
    }
}

#[derive(Default)]
pub(super) struct ScoreSums {
    pub(super) sample: Bootstrap,
    pub(super) lengths: ByLength,
    /// The sum of −ln p of the true labels, and the number of terms in this sum.
    loss: [f64; 2],
}

impl ScoreSums {
    pub(super) fn new(lengths: ByLength) -> Self {
        Self { lengths, ..Self::default() }
    }

    /// Adds a text: the counts for the figures, by column; the length of the text, and its score and weight by length.
    pub(super) fn add(
        &mut self,
        counts: impl IntoIterator<Item = (usize, f64)>,
        length: usize,
        [score, weight]: [f64; 2],
    ) {
        self.sample.add(counts);
        self.lengths.add(length, score, weight);
    }

    /// Adds −ln p to the loss; `p` is the predicted probability of the truth.
    pub(super) fn add_loss(&mut self, p: f32) {
        self.loss[0] -= f64::from(p.max(f32::MIN_POSITIVE)).ln();
        self.loss[1] += 1.0;
    }

    /// The first figure is the headline. Figures are of the summed columns, and intervals of resampled sums.
    pub(super) fn end(self, columns: usize, figures: &[NamedFigure], unseen: Vec<UnseenLabel>) -> Evaluation {
        let Self { sample, lengths, loss: [sum, count] } = self;
        let total = sample.total(columns);
        let figure_fn: Vec<FigureFn> = figures.iter().map(|(.., figure_fn)| *figure_fn).collect();
        let intervals = sample.intervals(columns, &figure_fn);
        let figure = |(&(name, unit, figure_fn), interval): (&NamedFigure, Option<[f64; 2]>)| Figure {
            name: name.to_owned(),
            value: figure_fn.value(&total),
            unit,
            interval,
        };
        let scored = Evaluation {
            headline: figures.first().map_or("", |(name, ..)| name),
            figures: figures.iter().zip(intervals).map(figure).collect(),
            counts: vec![("texts", sample.texts)],
            lengths: Some(lengths),
            of: figure_fn.first().copied(),
            columns,
            sample,
            unseen,
            ..Evaluation::default()
        };
        scored.with_loss((count > 0.0).then(|| sum / count))
    }

    /// Also adds macro F1, whose interval needs the counts of every label in the columns of [`of_label`].
    pub(super) fn end_by_label(
        self,
        figures: &[NamedFigure],
        few: bool,
        rows: Vec<ScoreRow>,
        unseen: Vec<UnseenLabel>,
    ) -> Evaluation {
        /// The mean over the labels that occur or were predicted.
        const MACRO_F1: NamedFigure = (
            "macro F1",
            Unit::Share,
            FigureFn::Of(|sums| {
                let of_labels = sums.get(OF_LABELS..).unwrap_or_default().chunks(3);
                let occurs = of_labels.filter(|counts| counts.iter().any(|count| *count > 0.0));
                let (sum, classes) =
                    occurs.fold((0.0, 0.0), |(sum, n), counts| (sum + f1_of(counts), n + 1.0));
                ratio(sum, classes)
            }),
        );
        let resampled = [figures, if few { &[MACRO_F1] } else { &[] }].concat();
        let scored = self.end(OF_LABELS, &resampled, unseen);
        let scored = if few { scored } else { scored.with("macro F1", Unit::Share, macro_f1(&rows)) };
        Evaluation { tables: vec![ScoreTable { of: "label", rows }], ..scored }
    }
}

/// The first of the columns with three counts per label: hits, true occurrences and predictions.
const OF_LABELS: usize = 5;

pub(super) fn of_label(id: usize, count: usize) -> usize {
    OF_LABELS + 3 * id + count
}

#[derive(Debug, Default)]
pub(super) struct Tally {
    what: &'static str,
    /// The names of the classes: seen classes by their ids, then unseen classes in the order of occurrence.
    pub(super) names: Vec<String>,
    /// For the name of each unseen class, its index in `names`, and its occurrences.
    unseen: BTreeMap<String, (usize, UnseenLabel)>,
    cells: BTreeMap<(usize, usize), u64>,
}

impl Tally {
    pub(super) fn new<'a>(what: &'static str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Self { what, names: known.into_iter().map(str::to_owned).collect(), ..Self::default() }
    }

    /// Counts a prediction; `id` is `None` if training never saw the class `truth`. Returns the index of `truth` among all classes.
    pub(super) fn add(
        &mut self,
        truth: &str,
        id: Option<usize>,
        found: usize,
        location: impl FnOnce() -> String,
    ) -> usize {
        let truth = id.unwrap_or_else(|| self.unseen(truth, location));
        *self.cells.entry((truth, found)).or_default() += 1;
        truth
    }

    fn unseen(&mut self, name: &str, location: impl FnOnce() -> String) -> usize {
        let full = self.unseen.len() >= MOST_UNSEEN && !self.unseen.contains_key(name);
        let name = if full { OTHERS } else { name };
        let (number, label) = self.unseen.entry(name.to_owned()).or_insert_with(|| {
            // The vocabulary may have the class from the held-out texts.
            let known = self.names.iter().position(|known| known == name);
            let number = known.unwrap_or(self.names.len());
            if known.is_none() {
                self.names.push(name.to_owned());
            }
            (number, UnseenLabel::new(self.what, name))
        });
        label.add(|| Some(location()));
        *number
    }

    pub(super) fn rows(&self) -> Vec<ScoreRow> {
        let mut rows: Vec<_> = self.names.iter().map(|name| ScoreRow::new(name, [0; 3])).collect();
        let unseen: Vec<usize> = self.unseen.values().map(|(number, _)| *number).collect();
        for (&(truth, found), &count) in &self.cells {
            if let Some(row) = rows.get_mut(truth) {
                row.support += count;
                row.right += if truth == found && !unseen.contains(&truth) { count } else { 0 };
            }
            if let Some(row) = rows.get_mut(found) {
                row.found += count;
            }
        }
        sorted(rows)
    }

    pub(super) fn confusion(&self) -> Confusion {
        let name = |number: usize| self.names.get(number).cloned().unwrap_or_default();
        let cell = |(&(truth, found), &count): (&(usize, usize), &u64)| {
            let [truth, found] = [truth, found].map(name);
            ConfusionCount { truth, found, count }
        };
        Confusion { of: self.what, cells: self.cells.iter().map(cell).collect() }
    }

    pub(super) fn unseen_ones(self) -> Vec<UnseenLabel> {
        self.unseen.into_values().map(|(_, label)| label).collect()
    }
}

pub(super) type NamedFigure = (&'static str, Unit, FigureFn);

/// With more labels, macro F1 gets no bootstrap interval, since the counts of every label would be resampled.
pub(super) const MOST_LABELS: usize = 20;

/// Returns F1 from the first three summed counts: hits, then true occurrences and predictions in either order.
pub(super) fn f1_of(counts: &[f64]) -> f64 {
    let [hits, labels, guesses] = std::array::from_fn(|at| counts.get(at).copied().unwrap_or(0.0));
    Counts { hits, labels, guesses }.f1()
}

/// Returns the index of the largest probability of a row; the first of several equal ones.
pub(super) fn likeliest(row: &[f32]) -> Option<usize> {
    let larger = |a: (usize, f32), b: (usize, f32)| if b.1 > a.1 { b } else { a };
    row.iter().copied().enumerate().reduce(larger).map(|(at, _)| at)
}

/// Returns the rows of the classes that occur or were predicted, sorted by name.
pub(super) fn sorted(mut rows: Vec<ScoreRow>) -> Vec<ScoreRow> {
    rows.retain(|row| row.support + row.found > 0);
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    rows
}

pub(super) fn macro_f1(rows: &[ScoreRow]) -> f64 {
    ratio(rows.iter().map(ScoreRow::f1).sum(), rows.len() as f64)
}

pub(super) fn weighted_f1(rows: &[ScoreRow]) -> f64 {
    let sum = rows.iter().map(|row| row.f1() * row.support as f64).sum();
    ratio(sum, rows.iter().map(|row| row.support as f64).sum())
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Outcome<'a> {
    pub(super) text: &'a str,
    /// The text in the form that `Model::predict` accepts: tagged texts have one word per line, since a word may contain spaces.
    pub(super) asked: &'a str,
    pub(super) truth: &'a str,
    pub(super) found: &'a str,
}

pub(super) type EachOutcome<'a> = &'a mut dyn FnMut(Outcome<'_>);

/// A translation that a model wrote, with its reference translations and scores.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct TranslatedText {
    /// The source text of the translation.
    pub source: String,
    /// The reference translations of the source text.
    pub references: Vec<String>,
    /// The translation that the model wrote.
    pub found: String,
    /// Whether the translation has exactly the words of one of the references.
    pub exact: bool,
    /// The chrF2 score of this translation alone, from 0 to 1.
    pub chrf: f64,
}

impl TranslatedText {
    /// Returns a translation, scored against its references.
    pub fn new(source: &str, references: &[&str], found: &str) -> Self {
        let mut chrf = ChrF::default();
        chrf.texts_of_several(found, references);
        let exact = references.iter().any(|text| text.split_whitespace().eq(found.split_whitespace()));
        let references = references.iter().map(|&text| text.to_owned()).collect();
        let (source, found, chrf) = (source.to_owned(), found.to_owned(), chrf.value());
        Self { source, references, found, exact, chrf }
    }
}

#[derive(Debug, Default)]
pub(super) struct Examples {
    first: Vec<TranslatedText>,
    /// The worst of the later translations; the translation with the lowest chrF2 is the first.
    worst: Vec<TranslatedText>,
}

impl Examples {
    const FIRST: usize = 8;
    const WORST: usize = 4;

    pub(super) fn add(&mut self, source: &str, references: &[&str], found: &str, chrf: f64) {
        let one = || TranslatedText::new(source, references, found);
        if self.first.len() < Self::FIRST {
            return self.first.push(one());
        }
        let at = self.worst.partition_point(|known| known.chrf <= chrf);
        if at < Self::WORST {
            self.worst.insert(at, one());
            self.worst.truncate(Self::WORST);
        }
    }

    pub(super) fn end(self) -> Vec<TranslatedText> {
        let Self { first, worst } = self;
        first.into_iter().chain(worst).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_worst_are_kept() {
        let mut examples = Examples::default();
        for number in 0..100 {
            let found = if number % 10 == 9 { "zzz" } else { "a b c" };
            let one = TranslatedText::new(&number.to_string(), &["a b c"], found);
            examples.add(&one.source, &["a b c"], found, one.chrf);
        }
        let kept = examples.end();
        let numbers: Vec<&str> = kept.iter().map(|one| one.source.as_str()).collect();
        assert_eq!(numbers, ["0", "1", "2", "3", "4", "5", "6", "7", "9", "19", "29", "39"]);
        assert_eq!((kept[0].exact, kept[0].chrf, kept[8].exact, kept[8].chrf), (true, 1.0, false, 0.0));
    }
}
