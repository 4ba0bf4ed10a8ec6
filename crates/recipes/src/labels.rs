//! Code that classifiers of texts and of rows share: labels with their probabilities, and scores.

use unpadded::data::Vocabulary;
use unpadded::metrics::Unit;
use unpadded::{Error, ErrorKind, Result};

use super::answer::Answer;
use super::by_length::ByLength;
use super::evaluation::{
    EachOutcome, Evaluation, MOST_LABELS, Outcome, ScoreSums, Tally, likeliest, of_label, weighted_f1,
};
use super::sample::FigureFn;
use super::training::Column;

/// The functions that pass the settings `data.text` and `data.label` to the read options.
pub(super) const COLUMNS: [Column; 2] = [|o, column| o.text(column), |o, column| o.label(column)];
pub(super) const LABELS: &str = "labels";
pub(super) const PROBABILITIES: &str = "probabilities";
pub(super) const ATTENTION: &str = "attention";

/// Returns the id of a label or tag; `None` if no training text has it, although the vocabulary may have it.
pub(super) fn trained_id(known: &Vocabulary, name: &str) -> Option<usize> {
    let id = known.id(name).filter(|&id| known.count(id) > 0)?;
    usize::try_from(id).ok()
}

/// For each label of `first`, returns its index in `other`; an error, unless both have the same labels (in messages `what`).
pub(super) fn places(what: &str, first: &Vocabulary, other: &Vocabulary) -> Result<Vec<usize>> {
    let different = |here: &Vocabulary, there: &Vocabulary| {
        here.tokens().find(|label| there.id(label).is_none()).map(str::to_owned)
    };
    let got = match (different(first, other), different(other, first)) {
        (_, Some(label)) => format!("{what} with `{label}`"),
        (Some(label), None) => format!("{what} without `{label}`"),
        (None, None) => {
            let location =
                |label| other.id(label).and_then(|id| usize::try_from(id).ok()).unwrap_or_default();
            return Ok(first.tokens().map(location).collect());
        }
    };
    let expected = format!("the {} {what} of the first model", first.len());
    Err(Error::of(ErrorKind::Program, format!("{what} of models to join"), expected, got))
}

/// Adds the values of a further model of an ensemble; `places` has its index of each value in a row of the first model.
pub(super) fn add_rows(sums: &mut [f32], values: &[f32], places: &[usize]) {
    let rows = values.chunks_exact(places.len().max(1));
    let values = rows.flat_map(|row| places.iter().map(|&at| row.get(at).copied().unwrap_or_default()));
    sums.iter_mut().zip(values).for_each(|(sum, x)| *sum += x);
}

/// Returns the answer with the most probable label; `row` has the probabilities, `words` the tokens with their weights.
pub(super) fn answer(labels: &Vocabulary, row: &[f32], words: Vec<(String, f32)>) -> Answer {
    let all: Vec<(String, f32)> = labels.tokens().map(str::to_owned).zip(row.iter().copied()).collect();
    let (label, probability) = likeliest(row).and_then(|at| all.get(at)).cloned().unwrap_or_default();
    Answer::Label { label, probability, all, words }
}

pub(super) struct LabelScores<'a> {
    labels: &'a Vocabulary,
    tally: Tally,
    sums: ScoreSums,
}

/// The first columns of a bootstrap sample: correct texts, all texts. The columns of [`of_label`] follow.
const RIGHT: usize = 0;
const ALL: usize = 1;

impl<'a> LabelScores<'a> {
    pub(super) fn new(labels: &'a Vocabulary) -> Self {
        let sums = ScoreSums::new(ByLength::new("wrong texts", Unit::Share));
        Self { labels, tally: Tally::new("label", labels.tokens()), sums }
    }

    /// Scores a text with the label `truth` and `tokens` tokens; `row` has the probability of each label.
    pub(super) fn add(
        &mut self,
        (text, truth): (&str, &str),
        location: &dyn Fn() -> String,
        tokens: usize,
        row: &[f32],
        each: EachOutcome<'_>,
    ) {
        let guess = likeliest(row).unwrap_or(0);
        let id = trained_id(self.labels, truth);
        id.and_then(|id| row.get(id)).into_iter().for_each(|p| self.sums.add_loss(*p));
        let truth_id = self.tally.add(truth, id, guess, location);
        let right = f64::from(u8::from(id == Some(guess)));
        let mut counts = vec![(RIGHT, right), (ALL, 1.0)];
        if self.labels.len().max(truth_id) <= MOST_LABELS {
            let of_labels = [(of_label(truth_id, 0), right), (of_label(truth_id, 1), 1.0)];
            counts.extend(of_labels.into_iter().chain([(of_label(guess, 2), 1.0)]));
        }
        self.sums.add(counts, tokens, [1.0 - right, 1.0]);
        let found = self.labels.token(guess as i64).unwrap_or_default();
        each(Outcome { text, asked: text, truth, found });
    }

    pub(super) fn end(self) -> Evaluation {
        let Self { tally, sums, .. } = self;
        let (rows, few) = (tally.rows(), tally.names.len() <= MOST_LABELS);
        let (weighted, confusions) = (weighted_f1(&rows), vec![tally.confusion()]);
        let accuracy = ("accuracy", Unit::Share, FigureFn::Share(RIGHT, ALL));
        let scored = sums.end_by_label(&[accuracy], few, rows, tally.unseen_ones());
        Evaluation { confusions, ..scored.with("weighted F1", Unit::Share, weighted) }
    }
}

pub(super) fn none(name: &str) -> Error {
    Error::of(ErrorKind::Format, format!("texts of `{name}`"), "at least one", "none")
}
