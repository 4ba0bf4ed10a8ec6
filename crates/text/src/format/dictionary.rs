//! Reads pronouncing dictionaries in the format of CMUdict.

use std::collections::HashSet;

use super::line_format::LineFormat;
use crate::Pair;
use crate::source::reason::Reason;
use crate::source::records::shown;

pub(crate) const FORMAT: LineFormat = LineFormat {
    fits: |line| line.starts_with(";;;") || (!line.contains('\t') && is_spoken(line)),
    why: "each line is a word with phonemes in capital letters",
    records: |settings| {
        let mut pair = reader(settings.stress);
        Box::new(move |line| Ok(pair(line)?.map(|pair| vec![pair])))
    },
    texts: |settings| {
        let mut pair = reader(settings.stress);
        Box::new(move |line| Ok(pair(line)?.map(|[word, _]| word)))
    },
    note: |_, settings| Ok((!settings.stress).then(|| "stress, as the 1 of `AH1`, is left out".to_owned())),
    ..LineFormat::DEFAULT
};

/// Returns whether a line looks like a word followed by phonemes in capital letters.
fn is_spoken(line: &str) -> bool {
    let entry = line.split('#').next().unwrap_or_default();
    let mut phonemes = entry.split_whitespace().skip(1).peekable();
    let is = |p: &str| {
        p.len() <= 4
            && p.starts_with(|c: char| c.is_ascii_uppercase())
            && p.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit())
    };
    phonemes.peek().is_some() && phonemes.all(is)
}

/// Returns whether pairs are words with their pronunciations. The source is then one word. The target has about as many
/// phonemes, between spaces, as the word has letters.
pub fn are_pronunciations<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> bool {
    const LOOKED_AT: usize = 1_000;
    /// Maximum number of characters of a phoneme, with marks such as a tie bar, a length mark or a tone mark.
    const LONGEST: usize = 6;
    let (mut words, mut letters, mut phonemes, mut signs) = (0usize, 0usize, 0usize, 0usize);
    for Pair { source, target, .. } in pairs.into_iter().take(LOOKED_AT) {
        if source.contains(char::is_whitespace) {
            return false;
        }
        for phoneme in target.split_whitespace() {
            let length = phoneme.chars().count();
            if length > LONGEST {
                return false;
            }
            (phonemes, signs) = (phonemes + 1, signs + length);
        }
        (words, letters) = (words + 1, letters + source.chars().count());
    }
    // A translation of a word has fewer and longer parts than a pronunciation.
    words > 0 && phonemes > words && 2 * phonemes > letters && 5 * signs <= 12 * phonemes
}

/// Returns a parser of lines with a word, possibly with the number of the pronunciation in brackets, and its phonemes. `#`,
/// and `;;;` at the start of a line, begin comments. A pronunciation that is repeated, as some are without stress, is skipped.
fn reader(stress: bool) -> impl FnMut(&str) -> Result<Option<[String; 2]>, Reason> + Send {
    let mut known = HashSet::new();
    move |line| {
        let entry = line.split('#').next().unwrap_or_default();
        if entry.trim().is_empty() || line.starts_with(";;;") {
            return Ok(None);
        }
        let mut cells = entry.split_whitespace();
        let word = cells.next().unwrap_or_default();
        let plain = |phoneme: &'_ str| -> String {
            match phoneme.strip_suffix(['0', '1', '2']) {
                // Only the digits of stress are removed; other digits are tones, or signs of X-SAMPA.
                Some(vowel) if !stress && vowel.bytes().all(|b| b.is_ascii_uppercase()) => vowel.to_owned(),
                _ => phoneme.to_owned(),
            }
        };
        let phonemes: Vec<String> = cells.map(plain).collect();
        if phonemes.is_empty() || phonemes.iter().any(String::is_empty) {
            return Err(Reason::of("a word and its phonemes", shown(line)));
        }
        let pair = [spelling(word).to_owned(), phonemes.join(" ")];
        Ok(known.insert(pair.clone()).then_some(pair))
    }
}

/// Removes the number of the pronunciation from a word: `read(2)` becomes `read`.
fn spelling(word: &str) -> &str {
    let numbered = |(word, number): (&'_ str, &str)| {
        (!word.is_empty() && !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
            .then_some(word.len())
    };
    let end = word.strip_suffix(')').and_then(|rest| rest.rsplit_once('(')).and_then(numbered);
    end.and_then(|end| word.get(..end)).unwrap_or(word)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::records::OneLine;

    #[test]
    fn pronunciations_are_words_with_short_signs() {
        let are = |lines: &[(&str, &str)]| {
            let pair = |&(source, target): &(&str, &str)| Pair::new(source, target);
            are_pronunciations(&lines.iter().map(pair).collect::<Vec<_>>())
        };
        assert!(are(&[("alma", "ɒ l m ɒ"), ("gyár", "ɟ aː r"), ("x", "i k s")]));
        assert!(are(&[("abbey", "AE B IY"), ("aback", "AH B AE K")]));
        assert!(are(&[("Zweig", "t͡s v aɪ k")]));
        for lines in [
            &[("dog", "Hund"), ("cat", "Katze")][..],
            &[("hello", "bon jour"), ("goodbye", "au revoir")],
            &[("go", "va t en"), ("go on", "k l")],
            &[("go", "geh"), ("I", "ich")],
            &[],
        ] {
            assert!(!are(lines), "{lines:?}");
        }
    }
    use crate::{Records, TextFile};

    #[test]
    fn words_have_each_way_to_speak_them_once() {
        let read = |text: &'static str, stress| -> unpadded::Result<Vec<String>> {
            let mut pair = reader(stress);
            let found: Records<[String; 2]> =
                TextFile::embedded("some.dict", text).records(OneLine(move |_, line: &str| pair(line)))?;
            found.map(|pair| pair.map(|[source, target]| format!("{source}={target}"))).collect()
        };
        let text =
            ";;; spoken\na AH0\na(2) EY1\na(3) EY2\naalborg AO1 L B AO0 R G # place, danish\n\n(paren) P\n";
        assert_eq!(read(text, false).unwrap(), ["a=AH", "a=EY", "aalborg=AO L B AO R G", "(paren)=P"]);
        assert_eq!(read(text, true).unwrap()[1..3], ["a=EY1", "a=EY2"]);
        let error = read("a AH0\nb\n", false).unwrap_err().to_string();
        assert!(error.starts_with("some.dict:2: expected a word and its phonemes, got \"b\""), "{error}");
    }
}
