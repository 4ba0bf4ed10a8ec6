//! What classifiers of texts and of rows have in common: labels with their probabilities.

use super::answer::Answer;
use super::by_length::ByLength;
use super::prepared::Column;
use super::sample::{Of, Sample};
use super::scored::{Outcome, ScoreTable, Scored, Tally, macro_f1, weighted_f1};
use crate::data::Vocabulary;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::{Counts, ratio};
use crate::predict::Predictor;
use crate::tensor::Variable;

/// What `data.text` and `data.label` are.
pub(super) const COLUMNS: [Column; 2] = [|o, column| o.text(column), |o, column| o.label(column)];
/// The vocabulary.
pub(super) const LABELS: &str = "labels";
/// The outputs; attention only if the model has it.
pub(super) const PROBABILITIES: &str = "probabilities";
pub(super) const ATTENTION: &str = "attention";

/// The likeliest label of each text, by what is fed of them; with the words that attention weighs.
pub(super) fn answers(
    predictor: &Predictor,
    feed: (&str, &Variable),
    texts: &[&str],
    words: &dyn Fn(&str) -> Vec<String>,
) -> Result<Vec<Answer>> {
    let labels = predictor.vocabulary(LABELS)?;
    let attends = predictor.outputs().any(|output| output == ATTENTION);
    let outputs: &[&str] = if attends { &[PROBABILITIES, ATTENTION] } else { &[PROBABILITIES] };
    let found = predictor.run(&[feed], outputs)?;
    let mut weights = match found.get(1) {
        Some(weights) => weights.as_slice::<f32>()?.iter(),
        None => [].iter(),
    };
    let rows = found[0].as_slice::<f32>()?.chunks_exact(labels.len());
    let answer = |(row, text): (&[f32], &&str)| {
        let all: Vec<(String, f32)> = labels.tokens().map(str::to_owned).zip(row.iter().copied()).collect();
        let likelier = |a: (String, f32), b: (String, f32)| if b.1 > a.1 { b } else { a };
        let (label, probability) = all.iter().cloned().reduce(likelier).unwrap_or_default();
        let words = words(text).into_iter();
        let words = words.map(|word| (word, weights.next().copied().unwrap_or(0.0))).collect();
        Answer::Label { label, probability, all, words }
    };
    Ok(rows.zip(texts).map(answer).collect())
}

/// Labels that a model finds, against the right ones.
pub(super) struct Scores<'a> {
    labels: &'a Vocabulary,
    /// What messages call the texts.
    name: String,
    tally: Tally,
    sample: Sample,
    /// The sum of −ln p of the right labels, and how many of them training saw.
    loss: [f64; 2],
    /// Wrong texts.
    lengths: ByLength,
}

/// The columns of a sample: texts that are right, all texts; then of each label how often it is right, there and found.
const RIGHT: usize = 0;
const ALL: usize = 1;
const OF_LABELS: usize = 2;
/// With more labels, macro F1 has no interval: it would be resampled label by label.
const MOST_LABELS: usize = 20;

impl<'a> Scores<'a> {
    /// No text yet; `name` is what messages call them.
    pub(super) fn new(labels: &'a Vocabulary, name: String) -> Self {
        let tally = Tally::new("label", labels.tokens());
        Self {
            labels,
            name,
            tally,
            sample: Sample::default(),
            loss: [0.0; 2],
            lengths: ByLength::new("wrong texts", true),
        }
    }

    /// Scores some texts by what is fed of them: each with its right label and its place, in order.
    pub(super) fn add<'t>(
        &mut self,
        predictor: &Predictor,
        feed: (&str, &Variable),
        texts: impl IntoIterator<Item = (&'t str, &'t str, Option<String>, u64)>,
        each: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<()> {
        let found = predictor.run(&[feed], &[PROBABILITIES])?;
        let Some(found) = found.first() else { return Ok(()) };
        let rows = found.as_slice::<f32>()?.chunks_exact(self.labels.len());
        let lengths: Vec<usize> = match feed.1.lod() {
            Some(lod) => lod.lengths(0)?.collect(),
            None => Vec::new(),
        };
        for (at, (row, (text, truth, place, number))) in rows.zip(texts).enumerate() {
            let likelier = |a: (usize, f32), b: (usize, f32)| if b.1 > a.1 { b } else { a };
            let guess = row.iter().copied().enumerate().reduce(likelier).map_or(0, |(guess, _)| guess);
            let id = self.labels.id(truth).and_then(|id| usize::try_from(id).ok());
            if let Some(p) = id.and_then(|id| row.get(id)) {
                self.loss[0] -= f64::from(p.max(f32::MIN_POSITIVE)).ln();
                self.loss[1] += 1.0;
            }
            let truth_id = self.tally.add(truth, id, guess, || {
                place.unwrap_or_else(|| format!("record {number} of `{}`", self.name))
            });
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
            // A row of features has as many as its text has words.
            let length = lengths.get(at).copied().unwrap_or_else(|| text.split_whitespace().count());
            self.lengths.add(length, 1.0 - right, 1.0);
            each(Outcome {
                text,
                asked: text,
                truth,
                found: self.labels.token(guess as i64).unwrap_or_default(),
            });
        }
        Ok(())
    }

    /// The scores of all texts.
    ///
    /// # Errors
    /// If there is no text.
    pub(super) fn end(self, said: Vec<String>) -> Result<Scored> {
        let Self { name, tally, sample, loss, lengths, .. } = self;
        if sample.texts() == 0 {
            return Err(none(&name));
        }
        let rows = tally.rows();
        let accuracy: Figures = &[("accuracy", true, |sums| ratio(sums[RIGHT], sums[ALL]))];
        let with_macro: Figures = &[accuracy[0], ("macro F1", true, macro_of_sums)];
        let few = tally.names() <= MOST_LABELS;
        let scored = Scored::of(sample, OF_LABELS, if few { with_macro } else { accuracy });
        let scored = if few { scored } else { scored.with("macro F1", true, macro_f1(&rows)) };
        let scored = scored.with("weighted F1", true, weighted_f1(&rows));
        let mean = (loss[1] > 0.0).then(|| loss[0] / loss[1]);
        let scored = Scored {
            confusions: vec![tally.confusion()],
            lengths: Some(lengths),
            tables: vec![ScoreTable { of: "label", rows }],
            unseen: tally.unseen_ones(),
            said,
            ..scored
        };
        Ok(scored.with_loss(mean))
    }
}

/// That a file has no text to score.
pub(super) fn none(name: &str) -> Error {
    Error::of(ErrorKind::Format, format!("texts of `{name}`"), "at least one", "none")
}

type Figures<'a> = &'a [(&'static str, bool, Of)];

/// Macro F1 of the columns of labels, over those that occur.
fn macro_of_sums(sums: &[f64]) -> f64 {
    let (mut sum, mut classes) = (0.0, 0.0);
    for counts in sums.get(OF_LABELS..).unwrap_or_default().chunks(3) {
        let [hits, labels, guesses] = std::array::from_fn(|at| counts.get(at).copied().unwrap_or(0.0));
        if labels + guesses > 0.0 {
            (sum, classes) = (sum + Counts { hits, labels, guesses }.f1(), classes + 1.0);
        }
    }
    ratio(sum, classes)
}
