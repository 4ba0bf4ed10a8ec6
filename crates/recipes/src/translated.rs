//! A model's translation of a text, with the reference translations.

use unpadded::metrics::ChrF;

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
        Self {
            source: source.to_owned(),
            references: references.iter().map(|&text| text.to_owned()).collect(),
            found: found.to_owned(),
            exact: references.iter().any(|text| text.split_whitespace().eq(found.split_whitespace())),
            chrf: chrf.value(),
        }
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
