//! Pronouncing dictionaries in the form of CMUdict.

use std::collections::HashSet;

use crate::data::Pair;
use crate::data::lines::Reason;

/// Reads lines of a word, at times with a number in brackets behind it for another way to speak it, and its phonemes, after which a
/// comment may stand behind a `#`. Lines that begin with `;;;` are comments. A way to speak a word that came before is left out, as
/// some are the same without stress.
pub(super) fn reader(stress: bool) -> impl FnMut(&str) -> Result<Option<Pair>, Reason> + Send {
    let mut known = HashSet::new();
    move |line| {
        let said = line.split('#').next().unwrap_or_default();
        if said.trim().is_empty() || line.starts_with(";;;") {
            return Ok(None);
        }
        let mut cells = said.split_whitespace();
        let word = cells.next().unwrap_or_default();
        let plain = |phoneme: &'_ str| -> String {
            match stress {
                true => phoneme.to_owned(),
                false => phoneme.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(),
            }
        };
        let phonemes: Vec<String> = cells.map(plain).collect();
        if phonemes.is_empty() || phonemes.iter().any(String::is_empty) {
            return Err(Reason { expected: "a word and its phonemes".to_owned(), got: format!("{line:?}") });
        }
        let pair = Pair { source: spelling(word).to_owned(), target: phonemes.join(" ") };
        Ok(known.insert(pair.clone()).then_some(pair))
    }
}

/// A word without the number of the way to speak it.
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
    use crate::data::records::OneLine;
    use crate::data::{Records, TextFile};

    #[test]
    fn words_have_each_way_to_speak_them_once() {
        let of = |text: &'static str, stress| -> crate::error::Result<Vec<String>> {
            let found: Records<Pair> =
                TextFile::embedded("some.dict", text).records(OneLine(reader(stress)))?;
            found.map(|pair| pair.map(|pair| format!("{}={}", pair.source, pair.target))).collect()
        };
        let text =
            ";;; spoken\na AH0\na(2) EY1\na(3) EY2\naalborg AO1 L B AO0 R G # place, danish\n\n(paren) P\n";
        assert_eq!(of(text, false).unwrap(), ["a=AH", "a=EY", "aalborg=AO L B AO R G", "(paren)=P"]);
        assert_eq!(of(text, true).unwrap()[1..3], ["a=EY1", "a=EY2"]);
        let error = of("a AH0\nb\n", false).unwrap_err().to_string();
        assert!(error.starts_with("some.dict:2: expected a word and its phonemes, got \"b\""), "{error}");
    }
}
