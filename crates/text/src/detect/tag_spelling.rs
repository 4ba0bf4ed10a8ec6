//! Detects the scheme and the spelling of the tags of a data set, from all its sentences.

mod spelling;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use self::spelling::LetterPosition;
pub use self::spelling::TagSpelling;
use crate::source::reason::wrong_format;
use unpadded::data::{TagScheme, Vocabulary};
use unpadded::{AtCaller, Result};

/// The tag scheme of a data set, and the spelling of its tags.
///
/// ```
/// use unpadded::data::{TagScheme, Vocabulary};
/// use unpadded_text::Tagging;
/// let tags = ["B_A", "I_A", "O"].map(str::to_owned);
/// let found = Tagging::detect([&tags[..]])?;
/// assert_eq!((found.scheme, found.to_string().as_str()), (TagScheme::Iob2, "IOB2, spelled `B_kind`, `I_kind`"));
/// let standard = found.standard(&Vocabulary::labels(&tags)?)?;
/// assert_eq!(standard.tokens().collect::<Vec<_>>(), ["B-A", "I-A", "O"]);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tagging {
    /// The tag scheme: it decides which tags may follow each other.
    pub scheme: TagScheme,
    /// The spelling of the tags, such as `B_kind`.
    pub spelling: TagSpelling,
    note: Option<String>,
}

impl Tagging {
    fn new(scheme: TagScheme, spelling: TagSpelling) -> Self {
        Self { scheme, spelling, note: None }
    }

    /// Returns the scheme and an example tag per letter, such as `IOB2 B_kind I_kind E_kind S_kind O`.
    pub(crate) fn to_note(&self) -> String {
        format!("{} {}", self.scheme.name(), self.spelling.samples())
    }

    /// Parses the note of a tagging, its name and its sample tags; `None` for any other text.
    pub fn of_note(note: &str) -> Option<Self> {
        let (name, samples) = note.split_once(' ')?;
        let (scheme, _) = TagScheme::ALL.into_iter().find(|(_, one)| *one == name)?;
        let tags: Vec<&str> = samples.split(' ').collect();
        let spelling = TagSpelling::of(&tags).into_iter().find(|spelling| spelling.samples() == samples)?;
        Some(Self::new(scheme, spelling))
    }

    /// Returns the reason if the tags are treated as plain although some look like tags of a scheme.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Returns the vocabulary of tags, with the same ids, in the standard spelling for metrics and transitions.
    ///
    /// # Errors
    /// Fails if a tag is not in this spelling.
    #[track_caller]
    pub fn standard(&self, tags: &Vocabulary) -> Result<Vocabulary> {
        if self.scheme == TagScheme::Plain || self.spelling == TagSpelling::STANDARD {
            return Ok(tags.clone());
        }
        let standard = |(id, tag): (i64, &str)| match self.spelling.standard(tag) {
            Some(standard) => Ok((standard, tags.count(id))),
            None => Err(wrong_format("tag", format!("one of {self}"), format!("`{tag}`"))),
        };
        let entries = (0..).zip(tags.tokens()).map(standard).collect::<Result<Vec<_>>>().at_caller()?;
        let twice = |tag| wrong_format("tags", format!("each of {self} once"), format!("`{tag}` twice"));
        Vocabulary::counted(entries).map_err(twice).at_caller()
    }

    /// Repairs the tags of a sentence: finds the chunks as the CoNLL script `conlleval` does, and writes their tags by
    /// the scheme. Returns `None` if the tags keep the scheme already, or if a tag is not in this spelling.
    pub(crate) fn repaired(&self, tags: &[String]) -> Option<Vec<String>> {
        let standard = self.sentence(tags)?;
        self.scheme.breach(&standard)?;
        self.written(self, tags)
    }

    /// Returns the tagging of these sentences if their tags must be translated to the scheme of `known`; `None` if the
    /// tags already keep that scheme.
    ///
    /// # Errors
    /// Fails, with the location of the first sentence and the number of such sentences, if the tags break the scheme of `known`,
    /// and either the user has set that scheme or the tags keep no other scheme.
    pub(crate) fn translated(
        known: &Self,
        is_set: bool,
        sentences: Sentences<'_>,
        location: WordLocation<'_>,
    ) -> Result<Option<Self>> {
        if known.scheme == TagScheme::Plain {
            return Ok(None);
        }
        let origin = if is_set { Origin::Set } else { Origin::Training };
        let held = TagSurvey::keeping(&[known.scheme], known.spelling, sentences, origin)?;
        if held.broken == 0 {
            return Ok(None);
        }
        let own = TagSurvey::of(sentences, None)?;
        let named = |tagging: &Self| tagging.spelling.position != LetterPosition::Alone;
        let is_stated = own.broken == 0 && own.tagging.scheme != TagScheme::Plain;
        if !is_set && is_stated && named(&own.tagging) == named(known) {
            return Ok(Some(own.tagging));
        }
        held.whole(sentences, location).map(|_| None)
    }

    /// Translates the tags of a sentence from the tagging `own`; `None` if a tag is not in its spelling.
    pub(crate) fn written(&self, own: &Self, tags: &[String]) -> Option<Vec<String>> {
        let standard = own.sentence(tags)?;
        let standard: Vec<&str> = standard.iter().map(String::as_str).collect();
        let chunks = own.scheme.chunks(&standard).ok()?;
        Some(self.scheme.written(&chunks, tags.len()).iter().map(|tag| self.spelling.spelled(tag)).collect())
    }

    /// Returns the tags of a sentence in the standard spelling; `None` if a tag is not in this spelling.
    fn sentence(&self, tags: &[String]) -> Option<Vec<String>> {
        tags.iter().map(|tag| self.spelling.standard(tag)).collect()
    }

    /// Returns the index of the first word whose tag breaks the scheme, and the reason.
    fn breach(&self, tags: &[String]) -> Option<(usize, String)> {
        let position = |is: &dyn Fn(&String) -> bool| {
            let at = tags.iter().position(is)?;
            Some((at, format!("`{}`", tags.get(at)?)))
        };
        if self.scheme == TagScheme::Plain {
            return position(&|tag| TagSpelling::STANDARD.is_of_chunk(tag));
        }
        let Some(standard) = self.sentence(tags) else {
            return position(&|tag| self.spelling.parse(tag).is_none());
        };
        let at = self.scheme.breach(&standard)?;
        let shown = |at: usize| tags.get(at).map(|tag| format!("`{tag}`"));
        Some(match (shown(at), at.checked_sub(1).and_then(shown)) {
            (Some(tag), Some(before)) => (at, format!("{tag} behind {before}")),
            (Some(tag), None) => (at, format!("{tag} at the start of the sentence")),
            (None, last) => (at - 1, format!("{} at the end of the sentence", last.unwrap_or_default())),
        })
    }
}

/// Shows the name of the scheme, and example tags if the spelling is not the standard spelling.
impl fmt::Display for Tagging {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scheme.name())?;
        if self.scheme == TagScheme::Plain || self.spelling == TagSpelling::STANDARD {
            return Ok(());
        }
        let tag =
            |&letter: &u8| format!("`{}`", self.spelling.spelled(&format!("{}-kind", char::from(letter))));
        let mut tags: Vec<String> = self.scheme.letters().iter().map(tag).collect();
        if !self.spelling.outside.eq_ignore_ascii_case("O") {
            tags.push(format!("`{}`", self.spelling.outside));
        }
        write!(f, ", spelled {}", tags.join(", "))
    }
}

/// A function that passes the tags of each sentence to a visitor.
pub(crate) type Sentences<'a> = &'a AllSentences<'a>;
type AllSentences<'a> = dyn Fn(&mut dyn FnMut(&[String])) -> Result<()> + 'a;

/// Returns the location of a word in its file, by the index of the sentence and of the word in it.
pub(crate) type WordLocation<'a> = &'a dyn Fn(usize, usize) -> Result<String>;

/// The tag scheme and spelling that were detected in sentences, and the number of sentences that break the scheme.
pub(crate) struct TagSurvey {
    pub(crate) tagging: Tagging,
    pub(crate) broken: usize,
    /// The index and the tags of the first sentence that breaks the scheme; `None` if all sentences keep the scheme.
    first: Option<(usize, Vec<String>)>,
    all: usize,
    origin: Origin,
}

/// The origin of a scheme, for error messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Detected,
    Set,
    Training,
}

impl TagSurvey {
    /// Detects the scheme of these sentences. Tags are plain unless all or most of them have the same spelling of a
    /// scheme's tags, such as `B-kind`. If `set` is given, the scheme is `set`; otherwise, the scheme is the one that
    /// the fewest sentences break.
    ///
    /// # Errors
    /// Fails if the sentences cannot be read from their files.
    pub(crate) fn of(sentences: Sentences<'_>, set: Option<TagScheme>) -> Result<Self> {
        let mut found: HashMap<String, u64> = HashMap::new();
        let mut all = 0;
        sentences(&mut |tags| {
            all += 1;
            for tag in tags {
                match found.get_mut(tag) {
                    Some(count) => *count += 1,
                    None => drop(found.insert(tag.clone(), 1)),
                }
            }
        })?;
        let counts: BTreeMap<&str, u64> = found.iter().map(|(tag, &count)| (tag.as_str(), count)).collect();
        let standard = TagSpelling::STANDARD;
        let plain = |note| {
            let tagging = Tagging { note, ..Tagging::new(TagScheme::Plain, standard) };
            let origin = if set.is_some() { Origin::Set } else { Origin::Detected };
            Self { tagging, broken: 0, first: None, all, origin }
        };
        let tags: Vec<&str> = counts.keys().copied().collect();
        if let Some(scheme) = set {
            let kept = |spelling: &TagSpelling| -> u64 {
                if spelling.is_bare() && !counts.keys().all(|tag| spelling.parse(tag).is_some()) {
                    return 0;
                }
                counts.iter().filter(|(tag, _)| spelling.parse(tag).is_some()).map(|(_, count)| count).sum()
            };
            // If several spellings fit the same number of tags, the first of these spellings is chosen.
            let best = TagSpelling::of(&tags).into_iter().rev().max_by_key(kept);
            return match scheme {
                TagScheme::Plain => Ok(plain(None)),
                _ => Self::keeping(&[scheme], best.unwrap_or(standard), sentences, Origin::Set),
            };
        }
        if counts.keys().all(|tag| *tag == standard.outside) {
            return Self::spelled(standard, sentences);
        }
        // Counts the chunk tags; in a nonstandard spelling, the count is 0 if no tag begins or continues a chunk.
        let count = |spelling: &TagSpelling| -> u64 {
            let begun = |tag: &&str| matches!(spelling.parse(tag), Some(('B' | 'I', _)));
            // Tags with a separator count without `B` and `I`, too, since all chunks may have a single word.
            let separated =
                matches!(spelling.position, LetterPosition::Before(_) | LetterPosition::Behind(_))
                    && spelling.outside == "O"
                    && counts.contains_key("O");
            if *spelling != standard && !separated && !counts.keys().any(begun) {
                return 0;
            }
            // Any plain tag may begin with the letter of a scheme. So a spelling without a separator counts only if a
            // kind of chunk has both a tag with `B` and a tag with `I`.
            let goes_on = |tag: &&str| match spelling.parse(tag) {
                Some(('B', kind)) => counts.contains_key(&*spelling.spelled(&format!("I-{kind}"))),
                _ => false,
            };
            let joined = spelling.position == LetterPosition::Joined;
            if joined && !(counts.contains_key(spelling.outside) && counts.keys().any(goes_on)) {
                return 0;
            }
            counts.iter().filter(|(tag, _)| spelling.is_of_chunk(tag)).map(|(_, count)| count).sum()
        };
        let whole = |spelling: &TagSpelling| {
            count(spelling) > 0 && counts.keys().all(|tag| spelling.parse(tag).is_some())
        };
        if let Some(spelling) = TagSpelling::of(&tags).into_iter().find(whole) {
            let found = Self::spelled(spelling, sentences)?;
            if !spelling.is_bare() {
                return Ok(found);
            }
            let mut chunked = 0;
            sentences(&mut |tags| {
                chunked += usize::from(tags.iter().any(|tag| tag != spelling.outside));
            })?;
            // Tags that are single letters may be plain names, and not the letters of a scheme.
            let letters = found.tagging.scheme.letters();
            let is_other = |tag: &&str| {
                let letter = spelling.parse(tag).and_then(|(letter, _)| u8::try_from(letter).ok());
                letter.is_some_and(|letter| letter != b'O' && !letters.contains(&letter))
            };
            let broken = found.broken;
            if broken * 4 > chunked || counts.keys().any(is_other) {
                let name = found.tagging.scheme.name();
                let why = format!(
                    "their letters are the letters of {name}, but {broken} of {chunked} sentences break this scheme"
                );
                return Ok(plain(Some(why)));
            }
            return Ok(found);
        }
        // A few tags of a scheme are wrong, or all tags are plain and a few look like tags of a scheme.
        for spelling in TagSpelling::of(&tags).into_iter().filter(|spelling| !spelling.is_bare()) {
            let of_chunks = counts.iter().filter(|(tag, _)| **tag != spelling.outside);
            let all: u64 = of_chunks.map(|(_, count)| count).sum();
            let share = if spelling == standard { (1, 2) } else { (9, 10) };
            if count(&spelling).saturating_mul(share.1) >= all.saturating_mul(share.0) {
                return Self::spelled(spelling, sentences);
            }
        }
        let similar = counts.keys().find(|tag| standard.is_of_chunk(tag));
        let Some(similar) = similar else { return Ok(plain(None)) };
        let all: u64 = counts.values().sum();
        if count(&standard).saturating_mul(20) < all {
            let why = format!("`{similar}` looks like a tag of a scheme, but most tags do not");
            return Ok(plain(Some(why)));
        }
        Self::keeping(&[TagScheme::Plain], standard, sentences, Origin::Detected)
    }

    fn spelled(spelling: TagSpelling, sentences: Sentences<'_>) -> Result<Self> {
        const SCHEMES: [TagScheme; 5] =
            [TagScheme::Iob2, TagScheme::Iobes, TagScheme::Ioe2, TagScheme::Iob1, TagScheme::Ioe1];
        Self::keeping(&SCHEMES, spelling, sentences, Origin::Detected)
    }

    /// Chooses, among `schemes`, the scheme that the fewest sentences break; `spelling` is the spelling of the tags.
    fn keeping(
        schemes: &[TagScheme],
        spelling: TagSpelling,
        sentences: Sentences<'_>,
        origin: Origin,
    ) -> Result<Self> {
        let candidate = |&scheme| {
            let tagging = Tagging::new(scheme, spelling);
            Self { tagging, broken: 0, first: None, all: 0, origin }
        };
        let mut found: Vec<Self> = schemes.iter().map(candidate).collect();
        let mut letters = BTreeSet::new();
        sentences(&mut |tags| {
            letters.extend(tags.iter().filter_map(|tag| spelling.parse(tag)).map(|(letter, _)| letter));
            for one in &mut found {
                if one.tagging.breach(tags).is_some() {
                    one.first.get_or_insert_with(|| (one.all, tags.to_vec()));
                    one.broken += 1;
                }
                one.all += 1;
            }
        })?;
        // If the same number of sentences break two schemes, a scheme that has all letters of the tags is preferred.
        let others = |candidate: &Self| {
            let known = |&letter: &char| {
                letter == 'O' || candidate.tagging.scheme.letters().contains(&(letter as u8))
            };
            u8::from(!letters.iter().all(known))
        };
        let best = found.into_iter().min_by_key(|one| (one.broken, others(one)));
        Ok(best.unwrap_or_else(|| candidate(&TagScheme::Plain)))
    }

    /// Returns the detected tagging; if a sentence breaks it, returns an error with the `location` of the word.
    pub(crate) fn whole(self, sentences: Sentences<'_>, location: WordLocation<'_>) -> Result<Tagging> {
        let Self { tagging, broken, first, all, origin } = self;
        let breach =
            |(at, tags): &(usize, Vec<String>)| tagging.breach(tags).map(|(word, got)| (*at, word, got));
        let (Some((at, word, got)), Some((_, tags))) = (first.as_ref().and_then(breach), &first) else {
            return Ok(tagging);
        };
        let mut repairable = true;
        sentences(&mut |tags| {
            repairable &= tagging.breach(tags).is_none() || tagging.repaired(tags).is_some();
        })?;
        let hint = match tagging.scheme {
            _ if repairable => {
                "; `repair_tags` (`data.repair_tags` in a config) rewrites tags in the wrong order as conlleval reads them"
            }
            _ if origin == Origin::Training => "; the training has this scheme",
            _ if at == 0 && word == 0 && broken == 1 => {
                "; `header` (`data.header` in a config) sets whether the first line is a header"
            }
            _ if origin == Origin::Set => "; `scheme` (`data.scheme` in a config) set this scheme",
            _ => {
                "; `scheme` (`data.scheme` in a config) sets another scheme: `plain` keeps all tags as they are"
            }
        };
        let kept = all - broken;
        let expected = match tagging.scheme {
            TagScheme::Plain => format!(
                "plain tags, as {kept} of {all} sentences have, none of which begins with `B-`, `I-`, `E-` or `S-`"
            ),
            _ => {
                let is_other = tags.get(word).is_some_and(|tag| tagging.spelling.parse(tag).is_none());
                let spelled = tagging.spelling.spelled("B-kind");
                let spelled = if is_other { format!(", spelled `{spelled}`") } else { String::new() };
                format!("a tag of {tagging}, which {kept} of {all} sentences keep{spelled}")
            }
        };
        let (plural, does) = if broken == 1 { ("", "does") } else { ("s", "do") };
        let count = format!("{broken} sentence{plural} {does} not fit");
        Err(wrong_format(location(at, word)?, expected, got).noted(format!("{count}{hint}")))
    }
}

/// Returns whether nine tenths of the sentences keep a scheme with a separator, as in `B-NP`, and some word is in a chunk.
pub(crate) fn is_scheme(sentences: &[&[String]]) -> bool {
    let Ok(TagSurvey { tagging, broken, .. }) = TagSurvey::of(&*in_memory(sentences), None) else {
        return false;
    };
    let is_chunk = |tag: &String| tagging.spelling.is_of_chunk(tag);
    tagging.scheme != TagScheme::Plain
        && !tagging.spelling.is_bare()
        && broken * 10 <= sentences.len()
        && sentences.iter().copied().flatten().any(is_chunk)
}

fn in_memory<'a>(sentences: &'a [&'a [String]]) -> Box<AllSentences<'a>> {
    Box::new(|visit| {
        sentences.iter().for_each(|tags| visit(tags));
        Ok(())
    })
}

impl Tagging {
    /// Detects the scheme and the spelling of the tags in these sentences. If the tags fit several schemes, the result
    /// is the first of these schemes in the order IOB2, IOBES, IOE2, IOB1, IOE1. Tags that fit no scheme are plain.
    ///
    /// ```
    /// use unpadded::data::TagScheme;
    /// use unpadded_text::Tagging;
    /// let begun = ["O", "B-A", "I-A"].map(str::to_owned);
    /// let only_where_it_must = ["I-A", "B-A"].map(str::to_owned);
    /// assert_eq!(Tagging::detect([&begun[..]]).unwrap().scheme, TagScheme::Iob2);
    /// assert_eq!(Tagging::detect([&begun[..2], &only_where_it_must]).unwrap_err().to_string().lines().count(), 1);
    /// assert_eq!(Tagging::detect([&only_where_it_must[..]]).unwrap().scheme, TagScheme::Iob1);
    /// ```
    ///
    /// # Errors
    /// Fails if most tags are tags of a scheme but some sentences break the scheme, or if most tags are plain but some
    /// look like tags of a scheme. The message has the first sentence with a wrong tag, and the number of sentences
    /// with a wrong tag.
    #[track_caller]
    pub fn detect<'a>(sentences: impl IntoIterator<Item = &'a [String]>) -> Result<Self> {
        let sentences: Vec<&[String]> = sentences.into_iter().collect();
        let location = |at: usize, _| Ok(format!("tags of sentence {}", at + 1));
        let all = in_memory(&sentences);
        TagSurvey::of(&*all, None).and_then(|found| found.whole(&*all, &location)).at_caller()
    }
}

#[cfg(test)]
mod tests;
