//! Scores of texts, grouped by the length of the texts.

use std::collections::BTreeMap;

use unpadded::metrics::Unit;

/// A table of the mean score in each range of text lengths. The ranges begin at the lengths 0, 1, 2, 3, 4, 6, 8, 12, 16
/// and so on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ByLength {
    /// The name of the score, such as `wrong texts`, `wrong tags` or `chrF`.
    pub of: &'static str,
    /// The name of the length, with what it counts, such as `length in tokens`.
    pub by: &'static str,
    /// The unit of the score; a score with [`Unit::Share`] is shown in percent.
    pub unit: Unit,
    /// By the shortest length of a range: the number of texts, the sum of their weighted scores, and the sum of their weights.
    sums: BTreeMap<usize, (u64, f64, f64)>,
}

/// The mean score of the texts in one range of lengths.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LengthRange {
    /// The shortest text length in this range.
    pub from: usize,
    /// The longest text length in this range.
    pub to: usize,
    /// The number of texts with a length in the range.
    pub texts: u64,
    /// The mean score of the texts in the range; NaN if the weights of these texts are 0.
    pub value: f64,
}

impl ByLength {
    /// Returns an empty table for a score named `unit_name`, by the length in tokens.
    pub fn new(unit_name: &'static str, unit: Unit) -> Self {
        Self { of: unit_name, by: "length in tokens", unit, sums: BTreeMap::new() }
    }

    /// Sets the name of the length, for example `length in words`.
    #[must_use]
    pub fn by(self, by: &'static str) -> Self {
        Self { by, ..self }
    }

    /// Adds a text of the given length to the table. The score of the text is `sum` / `count`, and the weight of this
    /// score in the mean is `count`.
    pub fn add(&mut self, length: usize, sum: f64, count: f64) {
        let (texts, value, all) = self.sums.entry(range(length).0).or_default();
        (*texts, *value, *all) = (*texts + 1, *value + sum, *all + count);
    }

    /// Returns the ranges that contain texts; the range of the shortest texts is first.
    pub fn ranges(&self) -> Vec<LengthRange> {
        let one = |(&from, &(texts, sum, count)): (&usize, &(u64, f64, f64))| {
            let value = if count > 0.0 { sum / count } else { f64::NAN };
            LengthRange { from, to: range(from).1, texts, value }
        };
        self.sums.iter().map(one).collect()
    }
}

/// Returns the ends of the range with `length`. From 4 on, ranges begin at powers of two and halfway between two powers.
fn range(length: usize) -> (usize, usize) {
    if length < 4 {
        return (length, length);
    }
    let power = 1 << length.ilog2();
    match length < power + power / 2 {
        true => (power, power + power / 2 - 1),
        false => (power + power / 2, power + (power - 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_in_one_range() {
        assert_eq!(
            [0, 1, 3, 4, 5, 6, 8, 15, 16].map(range).map(|(from, _)| from),
            [0, 1, 3, 4, 4, 6, 8, 12, 16]
        );
        for length in 0..5_000 {
            let (from, to) = range(length);
            assert!((from..=to).contains(&length) && range(to).0 == from && range(to + 1).0 == to + 1);
        }
        assert_eq!(range(usize::MAX).1, usize::MAX);
    }

    #[test]
    fn a_mean_is_weighted_by_the_counts() {
        let mut wrong = ByLength::new("wrong tags", Unit::Share).by("length in words");
        for (length, sum, count) in [(4, 1.0, 4.0), (5, 2.0, 5.0), (1, 0.0, 1.0)] {
            wrong.add(length, sum, count);
        }
        let range = |from, to, texts, value| LengthRange { from, to, texts, value };
        assert_eq!(wrong.ranges(), [range(1, 1, 1, 0.0), range(4, 5, 2, 3.0 / 9.0)]);
    }
}
