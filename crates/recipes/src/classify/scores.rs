//! Scores of models with several labels per text, and of regressions.

use unpadded::data::Vocabulary;
use unpadded::metrics::{Unit, ratio};

use super::objective::labels_in;
use crate::by_length::ByLength;
use crate::evaluation::{
    Evaluation, MOST_LABELS, NamedFigure, PLACES, ScoreRow, ScoreTable, UnseenLabel, f1_of, macro_f1,
    macro_f1_of, sorted,
};
use crate::sample::{Bootstrap, FigureFn};

/// The columns of a bootstrap sample: hits, true labels, predicted labels, texts with exactly the right labels, all
/// texts. From column `OF_LABELS` on, each label has three columns: hits, true occurrences, predictions.
const EXACT: usize = 3;
const SETS: usize = 4;
const OF_LABELS: usize = 5;

/// Scores the predicted sets of labels against the true sets.
pub(super) struct LabelSets<'a> {
    labels: &'a Vocabulary,
    separator: &'a str,
    rows: Vec<[u64; 3]>,
    sample: Bootstrap,
    lengths: ByLength,
    /// The sum of −ln p over all labels of all texts, and the number of terms in this sum; p is the predicted
    /// probability of the truth: that the text has the label, or that the text does not have the label.
    loss: [f64; 2],
    unseen: Vec<UnseenLabel>,
}

impl<'a> LabelSets<'a> {
    pub(super) fn new(labels: &'a Vocabulary, separator: &'a str) -> Self {
        Self {
            labels,
            separator,
            rows: vec![[0; 3]; labels.len()],
            sample: Bootstrap::default(),
            lengths: ByLength::new("texts with a wrong label", Unit::Share),
            loss: [0.0; 2],
            unseen: Vec::new(),
        }
    }

    /// Scores a text. `tokens` is the length of the text in tokens, `row` has the probability of each label, and
    /// `found` has, for each label, whether the label is predicted.
    pub(super) fn add(
        &mut self,
        truth: &str,
        place: &dyn Fn() -> String,
        tokens: usize,
        row: &[f32],
        found: &[bool],
    ) {
        let (mut there, mut unknown) = (vec![false; found.len()], 0);
        for label in labels_in(truth, self.separator) {
            match self.labels.id(label).and_then(|id| there.get_mut(id as usize)) {
                Some(there) => *there = true,
                None => {
                    unknown += 1;
                    self.unknown(label, place);
                }
            }
        }
        let mut counts = vec![(SETS, 1.0)];
        let count = |yes: bool| f64::from(u8::from(yes));
        let few = self.labels.len() <= MOST_LABELS;
        for (id, ((&there, &found), p)) in there.iter().zip(found).zip(row).enumerate() {
            let p = if there { *p } else { 1.0 - *p };
            self.loss[0] -= f64::from(p.max(f32::MIN_POSITIVE)).ln();
            self.loss[1] += 1.0;
            let three = [there && found, there, found];
            if let Some(row) = self.rows.get_mut(id) {
                row.iter_mut().zip(three).for_each(|(sum, yes)| *sum += u64::from(yes));
            }
            for (column, yes) in three.into_iter().enumerate().filter(|(_, yes)| *yes) {
                counts.push((column, count(yes)));
                if few {
                    counts.push((OF_LABELS + 3 * id + column, count(yes)));
                }
            }
        }
        // A true label that training never saw counts as not predicted.
        counts.push((1, unknown as f64));
        let exact = unknown == 0 && there == found;
        counts.push((EXACT, count(exact)));
        self.sample.add(counts);
        self.lengths.add(tokens, count(!exact), 1.0);
    }

    fn unknown(&mut self, label: &str, place: &dyn Fn() -> String) {
        if let Some(known) = self.unseen.iter_mut().find(|known| known.name == label) {
            known.count += 1;
            if known.places.len() < PLACES {
                known.places.push(place());
            }
            return;
        }
        self.unseen.push(UnseenLabel {
            what: "label",
            name: label.to_owned(),
            count: 1,
            places: vec![place()],
        });
    }

    /// Returns the evaluation over all scored texts.
    pub(super) fn end(self) -> Evaluation {
        let figures: [NamedFigure; 3] = [
            ("micro F1", Unit::Share, FigureFn::Of(f1_of)),
            ("exact match", Unit::Share, FigureFn::Share(EXACT, SETS)),
            ("macro F1", Unit::Share, FigureFn::Of(|sums| macro_f1_of(sums, OF_LABELS))),
        ];
        let few = self.labels.len() <= MOST_LABELS;
        let row = |(name, [right, support, found]): (&str, [u64; 3])| ScoreRow {
            name: name.to_owned(),
            right,
            found,
            support,
        };
        let rows = sorted(self.labels.tokens().zip(self.rows.iter().copied()).map(row).collect());
        let scored = Evaluation::of(self.sample, OF_LABELS, &figures[..if few { 3 } else { 2 }]);
        let scored = match few {
            true => scored,
            false => scored.with("macro F1", Unit::Share, macro_f1(&rows)),
        };
        let scored = Evaluation {
            lengths: Some(self.lengths),
            tables: vec![ScoreTable { of: "label", rows }],
            unseen: self.unseen,
            ..scored
        };
        let [sum, count] = self.loss;
        scored.with_loss((count > 0.0).then(|| sum / count))
    }
}

/// The columns of a bootstrap sample for a regression: squared errors, absolute errors, and the number of texts.
const SQUARED: usize = 0;
const ABSOLUTE: usize = 1;
const TEXTS: usize = 2;

/// Scores predicted numbers against the true numbers.
pub(super) struct Numbers {
    sample: Bootstrap,
    lengths: ByLength,
    /// The list of the true numbers, and the list of the predicted numbers, one entry per text.
    pairs: [Vec<f64>; 2],
}

impl Numbers {
    pub(super) fn new() -> Self {
        let lengths = ByLength::new("mean absolute error", Unit::Number);
        Self { sample: Bootstrap::default(), lengths, pairs: [Vec::new(), Vec::new()] }
    }

    /// Scores a text that has `tokens` tokens.
    pub(super) fn add(&mut self, truth: f64, found: f64, tokens: usize) {
        let error = found - truth;
        self.sample.add([(SQUARED, error * error), (ABSOLUTE, error.abs()), (TEXTS, 1.0)]);
        self.lengths.add(tokens, error.abs(), 1.0);
        self.pairs[0].push(truth);
        self.pairs[1].push(found);
    }

    /// Returns the evaluation over all scored texts.
    pub(super) fn end(self) -> Evaluation {
        let figures: [NamedFigure; 2] = [
            ("mean squared error", Unit::Number, FigureFn::Of(|x| ratio(x[SQUARED], x[TEXTS]))),
            ("mean absolute error", Unit::Number, FigureFn::Of(|x| ratio(x[ABSOLUTE], x[TEXTS]))),
        ];
        let [truth, found] = &self.pairs;
        let (spearman, pearson) = (pearson(&ranks(truth), &ranks(found)), pearson(truth, found));
        let mut scored = Evaluation::of(self.sample, 3, &figures);
        for (name, value) in [("Spearman correlation", spearman), ("Pearson correlation", pearson)] {
            match value {
                Some(value) => scored = scored.with(name, Unit::Number, value),
                None => scored.notes.push(format!("{name}: undefined, since all numbers are equal")),
            }
        }
        Evaluation { lengths: Some(self.lengths), ..scored }
    }
}

/// Returns the rank of each number, from 1 on; equal numbers get the mean of their ranks.
fn ranks(numbers: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..numbers.len()).collect();
    let number = |at: &usize| numbers.get(*at).copied().unwrap_or(f64::NAN);
    order.sort_by(|a, b| number(a).total_cmp(&number(b)));
    let (mut ranks, mut before) = (vec![0.0; numbers.len()], 0.0);
    for equal in order.chunk_by(|a, b| number(a) == number(b)) {
        let count = equal.len() as f64;
        for &at in equal {
            ranks[at] = before + (count + 1.0) / 2.0;
        }
        before += count;
    }
    ranks
}

/// Returns the Pearson correlation of two lists; `None` if all entries of a list are equal.
fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |of: &[f64]| ratio(of.iter().sum(), of.len() as f64);
    let (of_a, of_b) = (mean(a), mean(b));
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - of_a, b - of_b);
        (ab, aa, bb) = (ab + a * b, aa + a * a, bb + b * b);
    }
    let deviations = (aa * bb).sqrt();
    (deviations > 0.0).then(|| ab / deviations)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn correlations_are_those_of_scipy() {
        // Expected values: scipy.stats.spearmanr([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) = 0.8207826816681233, pearsonr =
        // 0.8320502943378437.
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 6.0, 7.0, 8.0, 7.0]);
        assert!((pearson(&ranks(&a), &ranks(&b)).unwrap() - 0.820_782_681_668_123_3).abs() < 1e-12);
        assert!((pearson(&a, &b).unwrap() - 0.832_050_294_337_843_7).abs() < 1e-12);
        assert_eq!(pearson(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [2.5, 1.0, 2.5]);
    }

    #[test]
    fn label_sets_are_counted_by_hand() {
        let labels = Vocabulary::labels(["a", "b", "c"]).unwrap();
        let mut sets = LabelSets::new(&labels, ",");
        let place = &|| "f:1".to_owned();
        sets.add("a,b", place, 3, &[0.9, 0.4, 0.1], &[true, false, false]);
        sets.add("c", place, 3, &[0.1, 0.2, 0.8], &[false, false, true]);
        sets.add("x", place, 3, &[0.1, 0.2, 0.8], &[false, false, true]);
        let scored = sets.end();
        // By hand: 2 hits, 4 true labels, 3 predicted labels; F1 is 1 for the label a, 0 for b and 2/3 for c.
        assert!((scored.get("micro F1").unwrap() - 4.0 / 7.0).abs() < 1e-12);
        assert!((scored.get("exact match").unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert!((scored.get("macro F1").unwrap() - 5.0 / 9.0).abs() < 1e-12);
        assert_eq!((scored.unseen[0].name.as_str(), scored.unseen[0].count), ("x", 1));
    }

    #[test]
    fn errors_of_numbers_are_counted_by_hand() {
        let mut numbers = Numbers::new();
        [(1.0, 2.0), (3.0, 1.0)].into_iter().for_each(|(truth, found)| numbers.add(truth, found, 2));
        let scored = numbers.end();
        assert_eq!(scored.get("mean squared error"), Some(2.5));
        assert_eq!((scored.get("mean absolute error"), scored.headline), (Some(1.5), "mean squared error"));
        assert_eq!(scored.get("Spearman correlation"), Some(-1.0));
    }
}
