//! The metric BLEU, with the values of the tool sacreBLEU.

use std::collections::HashMap;
use std::hash::Hash;

use super::edits::pairs;
use super::{Better, Metric, RunningMetric, Unit};
use crate::error::Result;
use crate::program::Var;
use crate::tensor::Variable;

/// The maximum n of the n-grams that BLEU counts.
const LONGEST: usize = 4;

/// The name of the metric BLEU in files.
pub(super) const BLEU: &str = "bleu";

/// BLEU of a corpus (Papineni et al., 2002), from 0 to 1: the geometric mean of the n-gram precisions, n = 1 … 4, times a
/// brevity penalty. An n-gram of a text counts at most as often as it occurs in the reference. The brevity penalty is exp(1 − r
/// / f) if all texts together have f tokens, fewer than the r tokens of the references. The smoothing is `exp`: for the k-th
/// length n at which no n-gram matches, 1/2ᵏ matches are counted instead of 0. If no n-gram of any length matches, or there
/// is no n-gram of a length n, BLEU is 0. The value equals the score of sacreBLEU (Post, "A call for clarity in reporting
/// BLEU scores", 2018) divided by 100.
///
/// In a trainer, BLEU reads two variables with sequences of whole numbers, as [`ErrorRate`](super::ErrorRate) does;
/// [`RunningMetric::texts`] adds a text without variables.
///
/// ```
/// use unpadded::metrics::{Bleu, RunningMetric};
/// let mut bleu = RunningMetric::new(Bleu::of_texts())?;
/// bleu.texts("The cat sat on the mat.", &["The cat is on the mat."]);
/// assert!((100.0 * bleu.value() - 48.89).abs() < 0.01);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Bleu {
    name: String,
    variables: Vec<Var>,
}

impl Bleu {
    /// The number of sums: for n = 1 … 4, the number of n-grams that occur in the reference; for n = 1 … 4, the number of all
    /// n-grams; the number of tokens of the texts; the number of tokens of the references.
    pub const SUMS: usize = 2 * LONGEST + 2;

    /// Makes the metric BLEU of the sequences `found` against the sequences `reference`.
    pub fn new(found: Var, reference: Var) -> Self {
        Self { variables: vec![found, reference], ..Self::of_texts() }
    }

    /// Makes a BLEU without variables: only [`Self::add`] and [`RunningMetric::texts`] add texts.
    pub fn of_texts() -> Self {
        Self { name: "BLEU".to_owned(), variables: Vec::new() }
    }

    options_of_metric! { "`BLEU`" }

    /// Adds a sequence of tokens with its references to the sums. An n-gram counts at most as often as in the reference in which it is
    /// most frequent. The reference length is the length that is nearest to the length of the sequence; of two equally near
    /// lengths, the shorter.
    ///
    /// ```
    /// use unpadded::metrics::{Bleu, Metric};
    /// let (bleu, mut sums) = (Bleu::of_texts(), [0.0; Bleu::SUMS]);
    /// Bleu::add(&mut sums, &[1, 2, 3, 4, 5], &[&[1, 2, 3, 4], &[2, 3, 4, 5, 6, 7]]);
    /// assert_eq!(bleu.value(&sums), 1.0); // every n-gram is in a reference, and 4 is the nearest length
    /// ```
    pub fn add<T: Eq + Hash>(sums: &mut [f64], found: &[T], references: &[&[T]]) {
        for n in 1..=LONGEST {
            let mut left: HashMap<&[T], usize> = HashMap::new();
            for reference in references {
                let mut of_this: HashMap<&[T], usize> = HashMap::new();
                reference.windows(n).for_each(|gram| *of_this.entry(gram).or_default() += 1);
                for (gram, times) in of_this {
                    let most = left.entry(gram).or_default();
                    *most = times.max(*most);
                }
            }
            let hits = found.windows(n).filter(|gram| match left.get_mut(gram) {
                Some(times) if *times > 0 => {
                    *times -= 1;
                    true
                }
                _ => false,
            });
            sums[n - 1] += hits.count() as f64;
            sums[LONGEST + n - 1] += found.windows(n).len() as f64;
        }
        let lengths = references.iter().map(|reference| reference.len());
        let nearest = lengths.min_by_key(|&length| (length.abs_diff(found.len()), length)).unwrap_or(0);
        sums[2 * LONGEST] += found.len() as f64;
        sums[2 * LONGEST + 1] += nearest as f64;
    }
}

impl RunningMetric<Bleu> {
    /// Adds a text and its references, tokenized by [`tokens_13a`]; [`Bleu::add`] has the rules for several references.
    pub fn texts(&mut self, found: &str, references: &[&str]) {
        let references: Vec<Vec<String>> = references.iter().map(|reference| tokens_13a(reference)).collect();
        let references: Vec<&[String]> = references.iter().map(Vec::as_slice).collect();
        Bleu::add(&mut self.sums, &tokens_13a(found), &references);
    }
}

impl Metric for Bleu {
    fn name(&self) -> &str {
        &self.name
    }

    fn variables(&self) -> Vec<Var> {
        self.variables.clone()
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn unit(&self) -> Unit {
        Unit::Share
    }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        for [found, reference] in pairs(&self.name, values)? {
            Self::add(sums, &found, &[&reference]);
        }
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        let (hits, rest) = sums.split_at(LONGEST);
        let (all, lengths) = rest.split_at(LONGEST);
        if hits.iter().all(|&hits| hits == 0.0) || all.contains(&0.0) {
            return 0.0;
        }
        let mut smoothed = 1.0;
        let shares = hits.iter().zip(all).map(|(&hits, all)| {
            if hits == 0.0 {
                smoothed /= 2.0;
            }
            (if hits == 0.0 { smoothed } else { hits } / all).ln()
        });
        let mean = shares.sum::<f64>() / LONGEST as f64;
        let (found, reference) = (lengths[0], lengths[1]);
        (mean + (1.0 - reference / found).min(0.0)).exp()
    }

    fn sums(&self) -> usize {
        Self::SUMS
    }

    fn kind(&self) -> Option<&'static str> {
        (self.variables.len() == 2).then_some(BLEU)
    }
}

/// Tokenizes a text by the rules `13a` of the NIST evaluation (mteval-v13a), the default of sacreBLEU. Each ASCII
/// punctuation mark or symbol is a separate token, except apostrophes, most hyphens, and full stops and commas between
/// digits.
///
/// ```
/// use unpadded::metrics::tokens_13a;
/// assert_eq!(tokens_13a("It's 1,000.5 (about) 5-year."), ["It's", "1,000.5", "(", "about", ")", "5", "-", "year", "."]);
/// ```
pub fn tokens_13a(text: &str) -> Vec<String> {
    let text = text.replace("<skipped>", "").replace("-\n", "").replace('\n', " ");
    let text = match text.contains('&') {
        true => text.replace("&quot;", "\"").replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">"),
        false => text,
    };
    let alone = |c: char| matches!(c, '{'..='~' | '['..='`' | ' '..='&' | '('..='+' | ':'..='@' | '/');
    let mut apart = Vec::with_capacity(text.len() + 2);
    for c in format!(" {text} ").chars() {
        apart.extend(if alone(c) { vec![' ', c, ' '] } else { vec![c] });
    }
    let point = |c: char| matches!(c, '.' | ',');
    // The next three lines separate a full stop or comma after a non-digit, then a full stop or comma before a non-digit, then
    // a hyphen after a digit.
    let apart = pairwise(&apart, |a, b| !a.is_ascii_digit() && point(b), |a, b| [a, ' ', b, ' ']);
    let apart = pairwise(&apart, |a, b| point(a) && !b.is_ascii_digit(), |a, b| [' ', a, ' ', b]);
    let apart = pairwise(&apart, |a, b| a.is_ascii_digit() && b == '-', |a, b| [a, ' ', b, ' ']);
    apart.into_iter().collect::<String>().split_whitespace().map(str::to_owned).collect()
}

/// Replaces each pair of consecutive characters for which `found` returns true by the characters that `made` returns, from left
/// to right. A character is in at most one replaced pair.
fn pairwise(
    text: &[char],
    found: impl Fn(char, char) -> bool,
    made: impl Fn(char, char) -> [char; 4],
) -> Vec<char> {
    let mut out = Vec::with_capacity(text.len() + text.len() / 4);
    let mut at = 0;
    while let Some(&a) = text.get(at) {
        match text.get(at + 1) {
            Some(&b) if found(a, b) => {
                out.extend(made(a, b));
                at += 2;
            }
            _ => {
                out.push(a);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text, its reference, and the score of sacreBLEU 2.x for this text alone.
    const TEXTS: [(&str, &str, f64); 7] = [
        ("The cat sat on the mat.", "The cat is on the mat.", 48.892302243490086),
        ("a b c d e", "a b c d e", 100.0),
        ("hello there", "hello world my friend", 0.0),
        ("It's 1,000.5 (about) 5-year-old, no?", "It's 1,000.5 about a 5-year-old.", 18.36028134946796),
        ("&quot;Well&quot; - he said ... 3.", "\"Well\", he said. 3", 25.7831345911991),
        ("", "x y", 0.0),
        (
            "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich.",
            "Zwölf Boxkämpfer jagen Viktor über den Sylter Deich.",
            37.81790427652475,
        ),
    ];

    #[test]
    fn values_are_those_of_sacrebleu() {
        let mut all = RunningMetric::new(Bleu::of_texts()).unwrap();
        for (found, reference, expected) in TEXTS {
            let mut one = RunningMetric::new(Bleu::of_texts()).unwrap();
            one.texts(found, &[reference]);
            all.texts(found, &[reference]);
            assert!((100.0 * one.value() - expected).abs() < 1e-9, "{found}: {}", one.value());
        }
        assert!((100.0 * all.value() - 35.71254619460934).abs() < 1e-9, "{}", all.value());
        assert_eq!(Bleu::of_texts().value(&[0.0; Bleu::SUMS]), 0.0);
    }

    /// An entry of `texts` is a text, its references, and the score of sacreBLEU 2.6 for this text alone.
    #[test]
    fn several_references_count_as_in_sacrebleu() {
        let texts: [(&str, &[&str], f64); 4] = [
            (
                "the the the the the the the",
                &["the cat is on the mat", "there is a cat on the mat"],
                7.809849842300637,
            ),
            (
                "Il est parti hier soir.",
                &["Il est parti hier.", "Il s'en est allé hier soir.", "Hier soir, il est parti."],
                70.71067811865478,
            ),
            ("Va !", &["Pars !", "Va-t'en d'ici !"], 0.0),
            (
                "J'ai faim aujourd'hui.",
                &["J'ai faim.", "J'ai très faim aujourd'hui, moi."],
                45.18010018049227,
            ),
        ];
        let mut all = RunningMetric::new(Bleu::of_texts()).unwrap();
        for (found, references, expected) in texts {
            let mut one = RunningMetric::new(Bleu::of_texts()).unwrap();
            one.texts(found, references);
            all.texts(found, references);
            assert!((100.0 * one.value() - expected).abs() < 1e-9, "{found}: {}", one.value());
        }
        assert!((100.0 * all.value() - 32.300465312920515).abs() < 1e-9, "{}", all.value());
    }

    #[test]
    fn tokens_are_those_of_sacrebleu() {
        for (text, expected) in [
            ("a.b 1.2 .5 5. a,b ,, ..1..", "a . b 1.2 . 5 5 . a , b , , . .1 . ."),
            (
                "5-6 -7 a-b 1--2 x_y $5.00 50% #@! ~[]{}|",
                "5 - 6 -7 a-b 1 - -2 x _ y $ 5.00 50 % # @ ! ~ [ ] { } |",
            ),
            (
                "don't \"quote\" 'single' <b> a/b c\\d e^f",
                "don't \" quote \" 'single' < b > a / b c \\ d e ^ f",
            ),
        ] {
            assert_eq!(tokens_13a(text).join(" "), expected);
        }
    }
}
