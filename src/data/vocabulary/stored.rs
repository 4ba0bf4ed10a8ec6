//! The format of vocabularies in files and checkpoints.

use std::path::Path;

use super::Vocabulary;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::wire;
use crate::wire::record::{self, FieldType, Source, record, wrong};

record! {
    pub(crate) struct StoredVocabulary {
        1 tokens: Tokens,
        2 counts: Vec<u64>,
        3 unknown: Option<i64>,
        // The range of the special tokens' ids: the first id, and the id after the last one.
        4 specials: Option<Vec<u64>>,
    }
}

/// The tokens of a stored vocabulary. Two successive empty tokens are refused while reading. Otherwise a damaged file
/// full of zeros would be read as an enormous number of empty tokens.
pub(crate) struct Tokens(Vec<String>);

impl FieldType for Tokens {
    fn put(&self, out: &mut Vec<u8>) {
        self.0.put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        let mut tokens: Vec<String> = Vec::new();
        while from.left() > 0 {
            let token: String = from.item()?;
            if token.is_empty() && tokens.last() == Some(&token) {
                return Err(wrong("each token once", format!("`{token}` twice")));
            }
            tokens.push(token);
        }
        Ok(Self(tokens))
    }
}

impl From<&Vocabulary> for StoredVocabulary {
    fn from(vocabulary: &Vocabulary) -> Self {
        let Vocabulary { tokens, counts, unknown, specials, .. } = vocabulary;
        let tokens = tokens.iter().map(|token| token.to_string()).collect();
        let specials = (!specials.is_empty()).then(|| vec![specials.start as u64, specials.end as u64]);
        Self { tokens: Tokens(tokens), counts: counts.clone(), unknown: *unknown, specials }
    }
}

impl TryFrom<StoredVocabulary> for Vocabulary {
    type Error = Error;

    fn try_from(stored: StoredVocabulary) -> Result<Self> {
        let damaged = |what: &str, expected: String, got: String| {
            Err(Error::of(ErrorKind::Format, format!("vocabulary: {what}"), expected, got))
        };
        let StoredVocabulary { tokens: Tokens(tokens), counts, unknown, specials } = stored;
        if tokens.is_empty() {
            return damaged("tokens", "at least one".into(), "none".into());
        }
        if counts.len() != tokens.len() {
            return damaged("counts", tokens.len().to_string(), counts.len().to_string());
        }
        if let Some(id) = unknown
            && usize::try_from(id).map_or(true, |id| id >= tokens.len())
        {
            return damaged("id of the unknown", format!("below {}", tokens.len()), id.to_string());
        }
        let specials = match specials.as_deref() {
            None => 0..0,
            Some(&[start, end]) if start < end && end <= tokens.len() as u64 => start as usize..end as usize,
            Some(other) => {
                let expected = format!("a range within 0..{}", tokens.len());
                return damaged("ids of the special tokens", expected, format!("{other:?}"));
            }
        };
        Self::new(tokens.into_iter().zip(counts), specials, unknown)
            .or_else(|token| damaged("tokens", "each once".into(), format!("`{token}` twice")))
    }
}

impl Vocabulary {
    /// Writes this vocabulary to a file; an existing file is replaced atomically.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    #[track_caller]
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        let body = record::to_bytes(&StoredVocabulary::from(self));
        if body.len() as u64 > wire::LONGEST {
            let (expected, got) = (format!("at most {} bytes", wire::LONGEST), body.len().to_string());
            return Err(Error::new("vocabulary to save", expected, got));
        }
        wire::write_atomically(path.as_ref(), |file| file.write_section(SECTION, &body))
    }

    /// Reads a vocabulary from a file that [`Self::save`] wrote.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is damaged, or contains no vocabulary.
    #[track_caller]
    pub fn load(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let mut file = wire::open(path)?;
        while let Some(name) = file.next_section()? {
            if name == SECTION {
                let vocabulary = file.read_stored::<StoredVocabulary>(wire::LONGEST)?.try_into();
                let vocabulary = vocabulary.map_err(|e: Error| {
                    file.refused("section `vocabulary`", "a vocabulary", format!("{e:#}")).caused_by(e)
                });
                let vocabulary = vocabulary.at_caller()?;
                // The sections of the file after the vocabulary are read, too, so that the checksums of these sections
                // are verified.
                while file.next_section()?.is_some() {}
                return Ok(vocabulary);
            }
        }
        let what = format!("file `{}`", path.display());
        Err(Error::of(ErrorKind::Format, what, format!("a section `{}`", SECTION), "none"))
    }
}

/// The name of the section that has the vocabulary in a file.
const SECTION: &str = "vocabulary";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Limits;

    #[test]
    fn what_a_file_says_is_checked() {
        let with = |tokens: &[&str], counts: Vec<u64>, unknown, specials: Option<Vec<u64>>| {
            let tokens = tokens.iter().map(|&token| token.to_owned()).collect();
            Vocabulary::try_from(StoredVocabulary { tokens: Tokens(tokens), counts, unknown, specials })
                .map_err(|e| e.to_string())
        };
        let decode = |tokens: &[&str], counts, unknown| with(tokens, counts, unknown, None);
        assert!(decode(&["a", "b"], vec![1, 1], Some(1)).is_ok());
        assert!(with(&["a", "a"], vec![1, 1], None, Some(vec![1, 2])).is_ok());
        for specials in [vec![], vec![1], vec![1, 1], vec![1, 3], vec![0, u64::MAX], vec![0, 1, 2]] {
            let message = with(&["a", "b"], vec![1, 1], None, Some(specials)).unwrap_err();
            assert!(message.contains("ids of the special tokens: expected"), "{message}");
        }
        for (tokens, counts, unknown, expected) in [
            (&["a", "a"][..], vec![1, 1], None, "`a` twice"),
            (&["a"], vec![1, 1], None, "expected 1, got 2"),
            (&["a"], vec![1], Some(1), "expected below 1, got 1"),
            (&["a"], vec![1], Some(-1), "expected below 1, got -1"),
            (&[], vec![], None, "expected at least one, got none"),
        ] {
            let message = decode(tokens, counts, unknown).unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    fn path(name: &str) -> std::path::PathBuf {
        std::env::temp_dir().join(format!("unpadded-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_file_of_it_is_read_back_and_a_damaged_one_is_not() {
        let words = Vocabulary::of(["b", "a", "b"], &Limits::default()).unwrap();
        let file = path("vocabulary");
        words.save(&file).unwrap();
        let read = Vocabulary::load(&file).unwrap();
        assert_eq!((&read, read.fingerprint()), (&words, words.fingerprint()));
        let bytes = std::fs::read(&file).unwrap();
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            std::fs::write(&file, &flipped).unwrap();
            assert!(Vocabulary::load(&file).is_err(), "flipped at {at}");
            std::fs::write(&file, &bytes[..at]).unwrap();
            assert!(Vocabulary::load(&file).is_err(), "cut at {at}");
        }
        wire::write_atomically(&file, |file| file.write_section("else", &[])).unwrap();
        let message = Vocabulary::load(&file).unwrap_err().to_string();
        assert!(message.ends_with("expected a section `vocabulary`, got none"), "{message}");
        std::fs::remove_file(&file).unwrap();
        assert_eq!(Vocabulary::load(&file).unwrap_err().kind(), ErrorKind::Io);
    }
}
