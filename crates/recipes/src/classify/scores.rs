//! Scores of models with several labels per text, and of regressions.

use unpadded::data::Vocabulary;
use unpadded::metrics::{Unit, ratio};

use super::objective::labels_in;
use crate::by_length::ByLength;
use crate::evaluation::{
    Evaluation, MOST_LABELS, NamedFigure, ScoreRow, ScoreSums, UnseenLabel, f1_of, of_label, sorted,
};
use crate::labels::trained_id;
use crate::sample::FigureFn;

/// The first columns of a bootstrap sample: hits, true labels, predicted labels, exactly right texts, all texts; then [`of_label`].
const EXACT: usize = 3;
const SETS: usize = 4;

pub(super) struct LabelSets<'a> {
    labels: &'a Vocabulary,
    rows: Vec<[u64; 3]>,
    /// The loss is over all labels of all texts: p is the probability that the text has the label, or that it does not.
    sums: ScoreSums,
    unseen: Vec<UnseenLabel>,
    bare: bool,
}

impl<'a> LabelSets<'a> {
    pub(super) fn new(labels: &'a Vocabulary) -> Self {
        let sums = ScoreSums::new(ByLength::new("texts with a wrong label", Unit::Share));
        Self { labels, rows: vec![[0; 3]; labels.len()], sums, unseen: Vec::new(), bare: false }
    }

    /// Scores a text of `tokens` tokens; `row` has a probability per label, and `found` whether the label is predicted.
    pub(super) fn add(
        &mut self,
        truth: &str,
        location: &dyn Fn() -> String,
        tokens: usize,
        row: &[f32],
        found: &[bool],
    ) {
        let (mut there, mut foreign, mut unlearnt) = (vec![false; found.len()], Vec::new(), false);
        let truth = labels_in(truth);
        self.bare |= truth.is_empty();
        for label in truth {
            let known = self.labels.id(label).and_then(|id| there.get_mut(id as usize));
            let is_known = known.map(|there| *there = true).is_some();
            if trained_id(self.labels, label).is_none() {
                unlearnt = true;
                let at = self
                    .unseen
                    .iter()
                    .position(|label_seen| label_seen.name == label)
                    .unwrap_or(self.unseen.len());
                if at == self.unseen.len() {
                    self.unseen.push(UnseenLabel::new("label", label));
                    self.rows.push([0; 3]);
                }
                self.unseen[at].add(|| Some(location()));
                foreign.extend((!is_known).then_some(self.labels.len() + at));
            }
        }
        let mut counts = vec![(SETS, 1.0)];
        let few = self.labels.len() <= MOST_LABELS;
        for (id, ((&there, &found), p)) in there.iter().zip(found).zip(row).enumerate() {
            let is_trained = self.labels.count(id as i64) > 0;
            if is_trained {
                self.sums.add_loss(if there { *p } else { 1.0 - *p });
            }
            let three = [there && found && is_trained, there, found];
            for (count, _) in three.into_iter().enumerate().filter(|(_, yes)| *yes) {
                self.rows[id][count] += 1;
                counts.push((count, 1.0));
                counts.extend(few.then(|| (of_label(id, count), 1.0)));
            }
        }
        // A true label that is not in the vocabulary counts as not predicted.
        for id in foreign {
            self.rows[id][1] += 1;
            counts.push((1, 1.0));
            counts.extend((id < MOST_LABELS).then(|| (of_label(id, 1), 1.0)));
        }
        let exact = f64::from(u8::from(!unlearnt && there == found));
        counts.push((EXACT, exact));
        self.sums.add(counts, tokens, [1.0 - exact, 1.0]);
    }

    pub(super) fn end(self) -> Evaluation {
        let figures: [NamedFigure; 2] = [
            ("micro F1", Unit::Share, FigureFn::Of(f1_of)),
            ("exact match", Unit::Share, FigureFn::Share(EXACT, SETS)),
        ];
        let row =
            |(name, [right, support, found]): (&str, [u64; 3])| ScoreRow::new(name, [right, found, support]);
        let few = self.rows.len() <= MOST_LABELS;
        let names = self.labels.tokens().chain(self.unseen.iter().map(|label| label.name.as_str()));
        let rows = sorted(names.zip(self.rows).map(row).collect());
        Evaluation { bare: self.bare, ..self.sums.end_by_label(&figures, few, rows, self.unseen) }
    }
}

/// The columns of a bootstrap sample for a regression: squared errors, absolute errors, and the number of texts.
const SQUARED: usize = 0;
const ABSOLUTE: usize = 1;
const TEXTS: usize = 2;

pub(super) struct Numbers {
    sums: ScoreSums,
    pairs: [Vec<f64>; 2],
}

impl Numbers {
    pub(super) fn new() -> Self {
        let sums = ScoreSums::new(ByLength::new("mean absolute error", Unit::Number));
        Self { sums, pairs: [Vec::new(), Vec::new()] }
    }

    pub(super) fn add(&mut self, truth: f64, found: f64, tokens: usize) {
        let error = found - truth;
        let counts = [(SQUARED, error * error), (ABSOLUTE, error.abs()), (TEXTS, 1.0)];
        self.sums.add(counts, tokens, [error.abs(), 1.0]);
        self.pairs[0].push(truth);
        self.pairs[1].push(found);
    }

    pub(super) fn end(self) -> Evaluation {
        let figures: [NamedFigure; 2] = [
            ("mean squared error", Unit::Number, FigureFn::Of(|x| ratio(x[SQUARED], x[TEXTS]))),
            ("mean absolute error", Unit::Number, FigureFn::Of(|x| ratio(x[ABSOLUTE], x[TEXTS]))),
        ];
        let [truth, found] = &self.pairs;
        let (spearman, pearson) = (pearson(&ranks(truth), &ranks(found)), pearson(truth, found));
        let mut scored = self.sums.end(3, &figures, Vec::new());
        for (name, value) in [("Spearman correlation", spearman), ("Pearson correlation", pearson)] {
            match value {
                Some(value) => scored = scored.with(name, Unit::Number, value),
                None => scored.notes.push(format!("{name}: undefined, since all numbers are equal")),
            }
        }
        scored
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

fn pearson(a: &[f64], b: &[f64]) -> Option<f64> {
    let mean = |values: &[f64]| ratio(values.iter().sum(), values.len() as f64);
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
        // scipy.stats.spearmanr([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) = 0.8207826816681233, pearsonr = 0.8320502943378437.
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0], [5.0, 6.0, 7.0, 8.0, 7.0]);
        assert!((pearson(&ranks(&a), &ranks(&b)).unwrap() - 0.820_782_681_668_123_3).abs() < 1e-12);
        assert!((pearson(&a, &b).unwrap() - 0.832_050_294_337_843_7).abs() < 1e-12);
        assert_eq!(pearson(&[1.0, 1.0], &[1.0, 2.0]), None);
        assert_eq!(ranks(&[3.0, 1.0, 3.0]), [2.5, 1.0, 2.5]);
    }

    #[test]
    fn label_sets_are_counted_by_hand() {
        let labels = Vocabulary::labels(["a", "b", "c"]).unwrap();
        let mut sets = LabelSets::new(&labels);
        let location = &|| "f:1".to_owned();
        sets.add("a\u{1f}b\u{1f}", location, 3, &[0.9, 0.4, 0.1], &[true, false, false]);
        sets.add("c", location, 3, &[0.1, 0.2, 0.8], &[false, false, true]);
        sets.add("x", location, 3, &[0.1, 0.2, 0.8], &[false, false, true]);
        let scored = sets.end();
        // By hand: 2 hits, 4 true labels, 3 predicted labels; F1 is 1 for the label a, 0 for b and the unseen x, 2/3 for c.
        assert!((scored.get("micro F1").unwrap() - 4.0 / 7.0).abs() < 1e-12);
        assert!((scored.get("exact match").unwrap() - 1.0 / 3.0).abs() < 1e-12);
        assert!((scored.get("macro F1").unwrap() - 5.0 / 12.0).abs() < 1e-12);
        assert_eq!((scored.unseen[0].name.as_str(), scored.unseen[0].count), ("x", 1));
    }

    #[test]
    fn texts_without_labels_are_right_answers() {
        let labels = Vocabulary::labels(["a", "b"]).unwrap();
        for (truth, is_foreign) in [("x", true), ("", false), ("a", false)] {
            let mut sets = LabelSets::new(&labels);
            ["x", truth].iter().for_each(|truth| sets.add(truth, &String::new, 3, &[0.1, 0.2], &[false; 2]));
            assert_eq!(sets.end().is_foreign("label"), is_foreign, "{truth}");
        }
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
