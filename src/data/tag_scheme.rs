//! Tag schemes: how the tags of words mark the start and the end of chunks, by the rules of the CoNLL shared tasks.

use std::ops::Range;

use super::Vocabulary;
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// A tag scheme: how tags mark the chunks of a sentence. A tag is `O` for a word outside of chunks, or a letter and the kind
/// of a chunk, such as `B-NP`.
///
/// ```
/// use unpadded::data::{Chunk, TagScheme};
/// let tags = ["B-NP", "I-NP", "O", "B-NP", "B-VP"];
/// let chunks = TagScheme::Iob2.chunks(&tags)?;
/// assert_eq!(chunks[0], Chunk { words: 0..2, kind: "NP" });
/// assert_eq!(chunks.len(), 3);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TagScheme {
    /// IOB1: `I` for the words of a chunk, but `B` for the first word if the chunk comes right after a chunk of the
    /// same kind.
    Iob1,
    /// IOB2: `B` for the first word of a chunk, `I` for the other words of the chunk.
    Iob2,
    /// IOE1: `I` for the words of a chunk, but `E` for the last word if the chunk comes right before a chunk of the
    /// same kind.
    Ioe1,
    /// IOE2: `E` for the last word of a chunk, `I` for the other words of the chunk.
    Ioe2,
    /// IOBES: `B` for the first word of a chunk, `I` for the inner words, `E` for the last word, and `S` for a chunk of
    /// a single word.
    Iobes,
    /// The tag of a word is the kind of its chunk; adjacent words with equal tags are one chunk.
    Plain,
}

/// A chunk of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Chunk<'a> {
    /// The range of the chunk's words in the sentence, counted from 0.
    pub words: Range<usize>,
    /// The kind of the chunk, such as `NP`.
    pub kind: &'a str,
}

/// A parsed tag: a letter such as `B`, and the kind of the chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Tag<'a> {
    letter: u8,
    kind: &'a str,
}

const OUTSIDE: Tag<'static> = Tag { letter: b'O', kind: "" };

impl TagScheme {
    /// All schemes with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::Iob1, "IOB1"),
        (Self::Iob2, "IOB2"),
        (Self::Ioe1, "IOE1"),
        (Self::Ioe2, "IOE2"),
        (Self::Iobes, "IOBES"),
        (Self::Plain, "plain"),
    ];

    /// Parses the name of a scheme, such as `iob2`; the names `bio`, `bioes`, `bilou`, `bmes` and `bmewo` are accepted,
    /// too.
    ///
    /// # Errors
    /// Fails if there is no scheme with this name.
    #[track_caller]
    pub fn from_name(name: &str) -> Result<Self> {
        let lower = name.to_lowercase();
        let own = Self::ALL.into_iter().find(|(_, known)| known.to_lowercase() == lower);
        match (own, &*lower) {
            (Some((scheme, _)), _) => Ok(scheme),
            (None, "bio" | "bio2") => Ok(Self::Iob2),
            (None, "bioes" | "bilou" | "biluo" | "bmes" | "bmewo") => Ok(Self::Iobes),
            (None, _) => {
                let known = Self::ALL.map(|(_, known)| known.to_lowercase()).join("`, `");
                Err(Error::new("scheme of tags", format!("one of `{known}`"), format!("`{name}`")))
                    .at_caller()
            }
        }
    }

    /// Returns the name of the scheme, such as `IOB2`.
    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(scheme, _)| *scheme == self).map_or("", |(_, name)| name)
    }

    /// Returns the letters with which tags of the scheme begin, except `O`.
    pub fn letters(self) -> &'static [u8] {
        match self {
            Self::Iob1 | Self::Iob2 => b"BI",
            Self::Ioe1 | Self::Ioe2 => b"IE",
            Self::Iobes => b"BIES",
            Self::Plain => b"",
        }
    }

    /// Parses a tag of this scheme, in the standard spelling.
    fn tag(self, text: &str) -> Result<Tag<'_>> {
        if text == "O" {
            return Ok(OUTSIDE);
        }
        if self == Self::Plain {
            return Ok(Tag { letter: b'I', kind: text });
        }
        // Only the first hyphen separates the letter from the kind; the kind may contain hyphens.
        match text.split_once('-') {
            Some((letter, kind))
                if matches!(letter.as_bytes(), [one] if self.letters().contains(one)) && !kind.is_empty() =>
            {
                Ok(Tag { letter: letter.as_bytes()[0], kind })
            }
            _ => {
                let letters = self.letters().iter().map(|&letter| format!("`{}-kind`", char::from(letter)));
                let known = letters.collect::<Vec<_>>().join(", ");
                Err(Error::of(
                    ErrorKind::Format,
                    format!("tag of {}", self.name()),
                    format!("`O`, {known}"),
                    format!("`{text}`"),
                ))
            }
        }
    }

    /// Returns the position of the first tag that breaks the scheme: a tag with a wrong letter, or a tag that may not
    /// follow the previous tag. Returns the number of tags if the last tag may not end a sentence, and `None` if the
    /// whole sentence keeps the scheme. The tags must be in the standard spelling.
    pub fn breach(self, sentence: &[String]) -> Option<usize> {
        let mut before = OUTSIDE;
        for (at, tag) in sentence.iter().enumerate() {
            match self.tag(tag) {
                Ok(tag) if self.follows(before, tag) => before = tag,
                _ => return Some(at),
            }
        }
        (!self.follows(before, OUTSIDE)).then_some(sentence.len())
    }

    /// Returns the tags of a sentence of `words` words with the given chunks, in the standard spelling.
    pub fn written(self, chunks: &[Chunk<'_>], words: usize) -> Vec<String> {
        let mut tags = vec!["O".to_owned(); words];
        for (k, chunk) in chunks.iter().enumerate() {
            let touches = |other: Option<&Chunk<'_>>, at: usize| {
                other.is_some_and(|o| o.kind == chunk.kind && (o.words.end == at || o.words.start == at))
            };
            let behind = k.checked_sub(1).and_then(|k| chunks.get(k));
            for at in chunk.words.clone() {
                let (first, last) = (at == chunk.words.start, at + 1 == chunk.words.end);
                let letter = match self {
                    Self::Iob1 if first && touches(behind, at) => 'B',
                    Self::Iob2 if first => 'B',
                    Self::Ioe1 if last && touches(chunks.get(k + 1), at + 1) => 'E',
                    Self::Ioe2 if last => 'E',
                    Self::Iobes if first && last => 'S',
                    Self::Iobes if first => 'B',
                    Self::Iobes if last => 'E',
                    _ => 'I',
                };
                if let Some(tag) = tags.get_mut(at) {
                    *tag = match self {
                        Self::Plain => chunk.kind.to_owned(),
                        _ => format!("{letter}-{}", chunk.kind),
                    };
                }
            }
        }
        tags
    }

    /// Returns the tag that a chunk of a single word gets, in the standard spelling.
    pub fn of_one_word(self, kind: &str) -> String {
        self.written(&[Chunk { words: 0..1, kind }], 1).pop().unwrap_or_default()
    }

    /// Returns the kind of chunk that a tag names; `None` for the tag `O`.
    ///
    /// # Errors
    /// Fails if `tag` is not a tag of the scheme.
    #[track_caller]
    pub fn kind(self, tag: &str) -> Result<Option<&str>> {
        Ok(Some(self.tag(tag).at_caller()?.kind).filter(|_| tag != "O"))
    }

    /// Decodes the tags of a sentence into its chunks, in order. Tags that break the scheme are decoded, too. The rule of the
    /// CoNLL shared tasks decides where chunks begin: a tag other than `O` begins a chunk if it follows `O` or a tag of another
    /// kind.
    ///
    /// # Errors
    /// Fails if one of `tags` is not a tag of the scheme.
    #[track_caller]
    pub fn chunks<'a>(self, tags: &[&'a str]) -> Result<Vec<Chunk<'a>>> {
        let mut found: Vec<Chunk<'a>> = Vec::new();
        let mut before = OUTSIDE;
        for (at, text) in tags.iter().enumerate() {
            let tag = self.tag(text).at_caller()?;
            if tag != OUTSIDE {
                match found.last_mut() {
                    Some(chunk) if !begins(before, tag) => chunk.words.end = at + 1,
                    _ => found.push(Chunk { words: at..at + 1, kind: tag.kind }),
                }
            }
            before = tag;
        }
        Ok(found)
    }

    /// Decodes only the chunks with exactly the tags that the scheme writes for them: in IOB2, `B-NP I-NP` is a chunk,
    /// but `I-NP I-NP` after `O` is no chunk.
    ///
    /// ```
    /// use unpadded::data::TagScheme;
    /// let tags = ["I-NP", "O", "B-VP", "I-VP"];
    /// assert_eq!(TagScheme::Iob2.chunks(&tags)?.len(), 2);
    /// assert_eq!(TagScheme::Iob2.strict_chunks(&tags)?[0].words, 2..4);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if a tag is not a tag of the scheme.
    #[track_caller]
    pub fn strict_chunks<'a>(self, tags: &[&'a str]) -> Result<Vec<Chunk<'a>>> {
        let mut chunks = self.chunks(tags).at_caller()?;
        let written = self.written(&chunks, tags.len());
        chunks.retain(|chunk| {
            let (own, right) = (tags.get(chunk.words.clone()), written.get(chunk.words.clone()));
            own.zip(right).is_some_and(|(own, right)| own.iter().zip(right).all(|(own, right)| own == right))
        });
        Ok(chunks)
    }

    /// Returns the transition constraints of the scheme as an array of shape `[tags + 2, tags]`, indexed by the ids of `tags`.
    /// An entry is 0 if the tag of the column may follow the tag of the row, otherwise minus infinity. Row *i* is for the
    /// previous tag *i*. The last two rows are for the start and the end of a sentence. The parameter with the transitions of a
    /// conditional random field has the same layout.
    ///
    /// # Errors
    /// Fails if a token of `tags` is not a tag of the scheme.
    #[track_caller]
    pub fn transitions(self, tags: &Vocabulary) -> Result<ndarray::Array2<f32>> {
        let known: Vec<Tag<'_>> = (0..tags.len() as i64)
            .filter_map(|id| tags.token(id))
            .map(|tag| self.tag(tag))
            .collect::<Result<_>>()
            .at_caller()?;
        let n = known.len();
        Ok(ndarray::Array2::from_shape_fn((n + 2, n), |(from, to)| {
            let may = match from.checked_sub(n) {
                None => self.follows(known[from], known[to]),
                Some(0) => self.follows(OUTSIDE, known[to]),
                // Row n + 1 is for the end of a sentence: a tag may be the last tag of a sentence if `O` may follow
                // this tag.
                Some(_) => self.follows(known[to], OUTSIDE),
            };
            if may { 0.0 } else { f32::NEG_INFINITY }
        }))
    }

    fn follows(self, before: Tag<'_>, tag: Tag<'_>) -> bool {
        let goes_on = before != OUTSIDE && before.kind == tag.kind;
        match (self, before.letter, tag.letter) {
            (Self::Plain, ..) => true,
            // In IOB1, `B` is used only for a chunk right after a chunk of the same kind, where `I` would be ambiguous.
            (Self::Iob1, _, b'B') => goes_on,
            (Self::Iob1, ..) => true,
            (Self::Iob2, _, b'I') => goes_on,
            (Self::Iob2, ..) => true,
            // In IOE1, `E` is used only for a chunk right before a chunk of the same kind.
            (Self::Ioe1, b'E', _) => goes_on,
            (Self::Ioe1, ..) => true,
            // In IOE2, `I` is never the last tag of a chunk, so the chunk must continue.
            (Self::Ioe2, b'I', _) => goes_on,
            (Self::Ioe2, ..) => true,
            (Self::Iobes, b'B' | b'I', letter) => goes_on && matches!(letter, b'I' | b'E'),
            (Self::Iobes, _, letter) => !matches!(letter, b'I' | b'E'),
        }
    }
}

/// Returns whether `tag`, which is not `O`, begins a chunk after the tag `before`: the rule of the CoNLL evaluation,
/// which is the same for all schemes.
fn begins(before: Tag<'_>, tag: Tag<'_>) -> bool {
    before == OUTSIDE
        || before.kind != tag.kind
        || matches!(tag.letter, b'B' | b'S')
        || matches!(before.letter, b'E' | b'S')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(scheme: TagScheme, tags: &str) -> String {
        let tags: Vec<&str> = tags.split(' ').collect();
        let chunks = scheme.chunks(&tags).unwrap();
        let chunks = chunks.iter().map(|c| format!("{}{}..{}", c.kind, c.words.start, c.words.end));
        chunks.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn chunks_are_those_of_the_conll_evaluation() {
        use TagScheme::*;
        for (scheme, tags, expected) in [
            (Iob2, "B-A I-A O B-A B-A", "A0..2 A3..4 A4..5"),
            (Iob2, "O I-A I-A I-B O", "A1..3 B3..4"),
            (Iob2, "B-A I-B I-A", "A0..1 B1..2 A2..3"),
            (Iob1, "I-A I-A B-A I-A I-B", "A0..2 A2..4 B4..5"),
            (Ioe1, "I-A E-A I-A O I-B", "A0..2 A2..3 B4..5"),
            (Ioe2, "I-A E-A E-A O E-B", "A0..2 A2..3 B4..5"),
            (Iobes, "B-A I-A E-A S-A S-B O", "A0..3 A3..4 B4..5"),
            (Iobes, "I-A E-A E-A B-A O", "A0..2 A2..3 A3..4"),
            (Iobes, "B-A E-A I-A S-A I-A", "A0..2 A2..3 A3..4 A4..5"),
            (Plain, "A A B O A", "A0..2 B2..3 A4..5"),
            (Iob2, "B-date-time I-date-time", "date-time0..2"),
        ] {
            assert_eq!(chunks(scheme, tags), expected, "{scheme:?}: {tags}");
        }
        assert!(Iob2.chunks(&[]).unwrap().is_empty());
    }

    #[test]
    fn a_tag_of_another_scheme_is_refused() {
        let message = |scheme: TagScheme, tag: &str| scheme.chunks(&[tag]).unwrap_err().to_string();
        let text = message(TagScheme::Iob2, "E-NP");
        assert!(text.starts_with("tag of IOB2: expected `O`, `B-kind`, `I-kind`, got `E-NP`"), "{text}");
        for tag in ["", "B", "B-", "-NP", "BI-NP", "o"] {
            assert!(message(TagScheme::Iobes, tag).contains(&format!("got `{tag}`")), "{tag}");
        }
    }

    /// Checks that the transitions allow a sequence of tags if and only if `written` returns the sequence for some list
    /// of chunks.
    #[test]
    fn transitions_allow_what_chunks_are_written_as() {
        for (scheme, _) in TagScheme::ALL {
            let letters = if scheme == TagScheme::Plain { &b"I"[..] } else { scheme.letters() };
            let tags = letters.iter().flat_map(|&letter| {
                ["X", "Y"].map(|kind| match scheme {
                    TagScheme::Plain => kind.to_owned(),
                    _ => format!("{}-{kind}", char::from(letter)),
                })
            });
            let tags = Vocabulary::labels(tags.chain(["O".to_owned()])).unwrap();
            let (n, length) = (tags.len(), 4);
            let may = scheme.transitions(&tags).unwrap();
            // A sentence of four tags is allowed exactly if `written` returns the same tags for its chunks.
            for number in 0..n.pow(length) {
                let ids: Vec<usize> = (0..length).map(|k| number / n.pow(k) % n).collect();
                let pairs = ids.windows(2).map(|pair| may[[pair[0], pair[1]]]);
                let ends = [may[[n, ids[0]]], may[[n + 1, ids[ids.len() - 1]]]];
                let allowed = pairs.chain(ends).all(|number| number == 0.0);
                let texts: Vec<&str> = ids.iter().filter_map(|&id| tags.token(id as i64)).collect();
                let chunks = scheme.chunks(&texts).unwrap();
                assert_eq!(allowed, scheme.written(&chunks, ids.len()) == texts, "{scheme:?}: {texts:?}");
            }
        }
    }
}
