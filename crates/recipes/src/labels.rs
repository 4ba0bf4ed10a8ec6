//! Code that classifiers of texts and of rows share: labels with their probabilities, and scores.

use unpadded::data::Vocabulary;
use unpadded::metrics::Unit;
use unpadded::{Error, ErrorKind, Result};

use super::answer::Answer;
use super::by_length::ByLength;
use super::evaluation::{
    EachOutcome, Evaluation, MOST_LABELS, NamedFigure, Outcome, ScoreTable, Tally, likeliest, macro_f1,
    macro_f1_of, weighted_f1,
};
use super::sample::{Bootstrap, FigureFn};
use super::training::Column;

/// The functions that pass the settings `data.text` and `data.label` to the read options.
pub(super) const COLUMNS: [Column; 2] = [|o, column| o.text(column), |o, column| o.label(column)];
/// The name of the vocabulary of labels.
pub(super) const LABELS: &str = "labels";
/// The names of the outputs of a classifier. A model without attention has no output `attention`.
pub(super) const PROBABILITIES: &str = "probabilities";
pub(super) const ATTENTION: &str = "attention";

/// For each label of `first`, returns the index of the same label in `other`.
///
/// # Errors
/// If the two vocabularies do not have the same labels; the error calls the labels `what`.
pub(super) fn places(what: &str, first: &Vocabulary, other: &Vocabulary) -> Result<Vec<usize>> {
    let different = |here: &Vocabulary, there: &Vocabulary| {
        here.tokens().find(|label| there.id(label).is_none()).map(str::to_owned)
    };
    let got = match (different(first, other), different(other, first)) {
        (_, Some(label)) => format!("{what} with `{label}`"),
        (Some(label), None) => format!("{what} without `{label}`"),
        (None, None) => {
            let place = |label| other.id(label).and_then(|id| usize::try_from(id).ok()).unwrap_or_default();
            return Ok(first.tokens().map(place).collect());
        }
    };
    let expected = format!("the {} {what} of the first model", first.len());
    Err(Error::of(ErrorKind::Program, format!("{what} of models to join"), expected, got))
}

/// Returns the answer with the most probable label. `row` has the probability of each label; `words` has the tokens of
/// the text with their attention weights.
pub(super) fn answer(labels: &Vocabulary, row: &[f32], words: Vec<(String, f32)>) -> Answer {
    let all: Vec<(String, f32)> = labels.tokens().map(str::to_owned).zip(row.iter().copied()).collect();
    let (label, probability) = likeliest(row).and_then(|at| all.get(at)).cloned().unwrap_or_default();
    Answer::Label { label, probability, all, words }
}

/// Scores the predicted label of each text against the true label.
pub(super) struct LabelScores<'a> {
    labels: &'a Vocabulary,
    tally: Tally,
    sample: Bootstrap,
    /// The sum of −ln p over the texts whose true label was seen in training, and the number of these texts; p is the
    /// probability of the true label.
    loss: [f64; 2],
    /// The share of wrongly labelled texts by the length of the texts.
    lengths: ByLength,
}

/// The columns of a bootstrap sample: correct texts, all texts; then three columns per label: correct predictions, true
/// occurrences, all predictions.
const RIGHT: usize = 0;
const ALL: usize = 1;
const OF_LABELS: usize = 2;

impl<'a> LabelScores<'a> {
    pub(super) fn new(labels: &'a Vocabulary) -> Self {
        Self {
            labels,
            tally: Tally::new("label", labels.tokens()),
            sample: Bootstrap::default(),
            loss: [0.0; 2],
            lengths: ByLength::new("wrong texts", Unit::Share),
        }
    }

    /// Scores a text: `truth` is the true label, `tokens` the length of the text, and `row` has the probability of each
    /// label.
    pub(super) fn add(
        &mut self,
        (text, truth): (&str, &str),
        place: &dyn Fn() -> String,
        tokens: usize,
        row: &[f32],
        each: EachOutcome<'_>,
    ) {
        let guess = likeliest(row).unwrap_or(0);
        let id = self.labels.id(truth).and_then(|id| usize::try_from(id).ok());
        if let Some(p) = id.and_then(|id| row.get(id)) {
            self.loss[0] -= f64::from(p.max(f32::MIN_POSITIVE)).ln();
            self.loss[1] += 1.0;
        }
        let truth_id = self.tally.add(truth, id, guess, place);
        let right = f64::from(u8::from(truth_id == guess));
        let mut counts = vec![(RIGHT, right), (ALL, 1.0)];
        if self.labels.len().max(truth_id) <= MOST_LABELS {
            let column = |id: usize, of: usize| OF_LABELS + 3 * id + of;
            counts.extend([
                (column(truth_id, 0), right),
                (column(truth_id, 1), 1.0),
                (column(guess, 2), 1.0),
            ]);
        }
        self.sample.add(counts);
        self.lengths.add(tokens, 1.0 - right, 1.0);
        let found = self.labels.token(guess as i64).unwrap_or_default();
        each(Outcome { text, asked: text, truth, found });
    }

    /// Returns the evaluation over all scored texts.
    pub(super) fn end(self) -> Evaluation {
        let Self { tally, sample, loss, lengths, .. } = self;
        let rows = tally.rows();
        let figures: [NamedFigure; 2] = [
            ("accuracy", Unit::Share, FigureFn::Share(RIGHT, ALL)),
            ("macro F1", Unit::Share, FigureFn::Of(|sums| macro_f1_of(sums, OF_LABELS))),
        ];
        let few = tally.names() <= MOST_LABELS;
        let scored = Evaluation::of(sample, OF_LABELS, &figures[..if few { 2 } else { 1 }]);
        let scored = if few { scored } else { scored.with("macro F1", Unit::Share, macro_f1(&rows)) };
        let scored = scored.with("weighted F1", Unit::Share, weighted_f1(&rows));
        let mean = (loss[1] > 0.0).then(|| loss[0] / loss[1]);
        let scored = Evaluation {
            confusions: vec![tally.confusion()],
            lengths: Some(lengths),
            tables: vec![ScoreTable { of: "label", rows }],
            unseen: tally.unseen_ones(),
            ..scored
        };
        scored.with_loss(mean)
    }
}

/// Returns the error that a file has no text to score.
pub(super) fn none(name: &str) -> Error {
    Error::of(ErrorKind::Format, format!("texts of `{name}`"), "at least one", "none")
}
