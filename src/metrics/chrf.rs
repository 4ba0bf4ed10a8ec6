//! The metric chrF, with the values of the tool sacreBLEU.

use std::collections::HashMap;

/// The maximum n of the character n-grams that chrF counts.
const LONGEST: usize = 6;
/// The weight β of recall relative to precision, in the F-score F_β.
const BETA: f64 = 2.0;

/// chrF2 of a corpus (Popović, "chrF: character n-gram F-score for automatic MT evaluation", 2015), from 0 to 1: F₂ of the mean
/// precision and the mean recall of character n-grams, n = 1 … 6. White space is ignored. The means leave out each n for which
/// the texts or the references have no n-gram. If a text has several references, the reference with the largest score counts.
/// The value equals the score of sacreBLEU divided by 100.
///
/// ```
/// use unpadded::metrics::ChrF;
/// let mut chrf = ChrF::default();
/// chrf.texts("The cat sat on the mat.", "The cat is on the mat.");
/// assert!((100.0 * chrf.value() - 67.17).abs() < 0.01);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ChrF {
    /// For n = 1 … 6, three numbers of n-grams: in the texts, in the references, and in both a text and its reference.
    sums: [f64; 3 * LONGEST],
}

impl ChrF {
    /// Adds a text and its reference.
    pub fn texts(&mut self, found: &str, reference: &str) {
        self.texts_of_several(found, &[reference]);
    }

    /// Adds a text and several references; only the reference with the largest score for this text counts.
    pub fn texts_of_several(&mut self, found: &str, references: &[&str]) {
        let characters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<Vec<char>>();
        let found = characters(found);
        let counted = references.iter().map(|reference| Self::of(&found, &characters(reference)));
        let best = counted.reduce(|best, one| if one.value() > best.value() { one } else { best });
        let best = best.unwrap_or_default();
        self.sums.iter_mut().zip(best.sums).for_each(|(sum, one)| *sum += one);
    }

    fn of(found: &[char], reference: &[char]) -> Self {
        let mut counts = Self::default();
        for (n, sums) in (1..).zip(counts.sums.chunks_exact_mut(3)) {
            let mut left: HashMap<&[char], u64> = HashMap::new();
            reference.windows(n).for_each(|gram| *left.entry(gram).or_default() += 1);
            let both = found.windows(n).filter(|gram| match left.get_mut(gram) {
                Some(times) if *times > 0 => {
                    *times -= 1;
                    true
                }
                _ => false,
            });
            let both = both.count();
            let there = reference.windows(n).len();
            // If the reference has no n-gram of this length, the n-grams of the text do not count.
            let found = if there == 0 { 0 } else { found.windows(n).len() };
            for (sum, count) in sums.iter_mut().zip([found, there, both]) {
                *sum = count as f64;
            }
        }
        counts
    }

    /// Returns the score of all texts together; 0 if no n-gram of a text is in its reference.
    pub fn value(&self) -> f64 {
        let (mut precision, mut recall, mut lengths) = (0.0, 0.0, 0.0);
        for sums in self.sums.chunks_exact(3) {
            if let &[found, there, both] = sums
                && found > 0.0
                && there > 0.0
            {
                (precision, recall, lengths) =
                    (precision + both / found, recall + both / there, lengths + 1.0);
            }
        }
        if precision + recall == 0.0 {
            return 0.0;
        }
        let (precision, recall) = (precision / lengths, recall / lengths);
        (1.0 + BETA * BETA) * precision * recall / (BETA * BETA * precision + recall)
    }

    /// Returns the sums, which are the whole state: counts that can be added to the sums of another `ChrF`.
    pub fn sums(&mut self) -> &mut [f64] {
        &mut self.sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An entry of `texts` is a text, its references, and the chrF2 of sacreBLEU 2.6 for this text alone.
    #[test]
    fn values_are_those_of_sacrebleu() {
        let texts: [(&str, &[&str], f64); 8] = [
            ("The cat sat on the mat.", &["The cat is on the mat."], 67.17273492330233),
            ("a b c d e", &["a b c d e"], 100.0),
            ("hello there", &["hello world my friend"], 18.75850698435683),
            ("", &["x y"], 0.0),
            (
                "Zwölf Boxkämpfer jagen Viktor quer.",
                &["Zwölf Boxkämpfer jagen Viktor über den Deich."],
                69.05313840331847,
            ),
            (
                "Il est parti hier soir.",
                &["Il est parti hier.", "Il s'en est allé hier soir.", "Hier soir, il est parti."],
                88.43665299656399,
            ),
            ("Va !", &["Pars !", "Va-t'en d'ici !"], 14.492753623188406),
            ("ab", &["abc", "xabc"], 63.636363636363626),
        ];
        let mut all = ChrF::default();
        for (found, references, expected) in texts {
            let mut one = ChrF::default();
            one.texts_of_several(found, references);
            all.texts_of_several(found, references);
            assert!((100.0 * one.value() - expected).abs() < 1e-9, "{found}: {}", one.value());
        }
        assert!((100.0 * all.value() - 62.18142410692551).abs() < 1e-9, "{}", all.value());
        assert_eq!(ChrF::default().value(), 0.0);
    }
}
