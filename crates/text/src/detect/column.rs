//! The columns that a reader needs from a table or from JSON, such as the text and the label, and the usual names of
//! these columns.

use crate::source::lines::has_word;

/// A column that a reader needs, such as the column of the texts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column<'a> {
    /// The role of the column, such as `text`. The option that sets the column has this name, too.
    pub(crate) what: &'static str,
    /// The name or the number that the user set for the column; `None` if the user set none.
    pub(crate) given: Option<&'a str>,
    /// The usual names of the column in data sets, between spaces, the likeliest first.
    pub(crate) known: &'static str,
}

/// The rule that decides which cells of a record may be empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Empty {
    /// The number of text columns; the text columns come first in the list of wanted columns.
    texts: usize,
    pub(crate) pair: bool,
    /// Whether the label may be empty, because a text may have several labels or none.
    label: bool,
}

impl Empty {
    /// Returns the rule; `pair`: the last text column is a second text; `label_lists`: a label may be empty.
    pub(crate) fn of(wanted: &[Column<'_>], pair: bool, label_lists: bool) -> Self {
        let count = |what: &str| wanted.iter().filter(|one| one.what == what).count();
        Self { texts: count("text"), pair, label: label_lists && count("label") > 0 }
    }

    /// Returns the position of the first cell that must not be empty; `empty[i]` is true if cell *i* is empty.
    pub(crate) fn missing(self, empty: &[bool]) -> Option<usize> {
        let (texts, others) = empty.split_at(self.texts.min(empty.len()));
        let other = || others.iter().position(|empty| *empty && !self.label).map(|at| texts.len() + at);
        missing_text(texts, self.pair).or_else(other)
    }
}

/// Returns the position of a missing text; `None` if no text is missing. `empty[i]` is true if cell *i* is empty. A
/// text is missing if all its cells are empty. If `pair` is true, the last cell is a second text.
pub(crate) fn missing_text(empty: &[bool], pair: bool) -> Option<usize> {
    let (first, second) = match empty.split_last() {
        Some((second, first)) if pair && !first.is_empty() => (first, Some(second)),
        _ => (empty, None),
    };
    match first.contains(&false) {
        false => Some(0).filter(|_| !first.is_empty()),
        true => second.filter(|empty| **empty).map(|_| first.len()),
    }
}

pub(crate) const TEXT: &str = "text sentence review content body document comment tweet message question utterance query title phrase \
    name texts sentences reviews headline description post sms input";
/// The names that are accepted as the header of a file with a single column.
pub(crate) const SURE: [&str; 4] = ["text", "texts", "sentence", "sentences"];
pub(crate) const LABEL: &str = "label labels class category sentiment intent target topic rating stars polarity tag language score \
    classes emotion intents lang genre type gold cats";
pub(crate) const SOURCE: &str = "source src input question english en word from text source_text src_text input_text article document \
    noisy original prompt";
pub(crate) const TARGET: &str = "target tgt output answer translation french fr to phonemes summary target_text tgt_text output_text \
    highlights clean corrected response";
pub(crate) const TOKENS: &str = "tokens words";
pub(crate) const TAGS: &str = "tags ner_tags labels slots chunk_tags pos_tags ner tag";
pub(crate) const INTENT: &[&str] = &["intent", "label", "class"];

/// The names and the ISO 639 codes of the languages that headers may have.
const LANGUAGES: &str = "english en eng german deutsch de deu ger french français fr fra fre spanish español es spa italian \
    italiano it ita portuguese português pt por dutch nl nld swedish sv swe danish da dan norwegian no nor \
    finnish fi fin polish pl pol czech cs ces russian ru rus ukrainian uk ukr turkish tr tur arabic ar ara \
    hebrew he heb persian fa fas hindi hi hin bengali bn ben chinese zh zho japanese ja jpn korean ko kor \
    vietnamese vi vie thai th tha indonesian ind greek el ell hungarian hu hun romanian ro ron bulgarian bg \
    bul latin la lat esperanto eo epo catalan ca cat englisch französisch spanisch italienisch russisch";

/// Returns whether a header cell names a language, such as `en-US`, `sentence_en` or `English words`.
pub(crate) fn language(cell: &str) -> bool {
    const MOST: usize = 24;
    let words = || cell.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    cell.chars().count() <= MOST
        && words().count() <= 3
        && words().any(|word| has_word(LANGUAGES, &word.to_lowercase()))
}

impl<'a> Column<'a> {
    /// Returns the columns of a role: one that is not set, or those in `given`; several have no known names.
    pub(crate) fn several(what: &'static str, given: &'a [String], known: &'static str) -> Vec<Self> {
        let column = |given, known| Self { what, given, known };
        match given {
            [] => vec![column(None, known)],
            [one] => vec![column(Some(one.as_str()), known)],
            several => several.iter().map(|one| column(Some(one.as_str()), "")).collect(),
        }
    }
}

impl Column<'_> {
    /// Returns the name of the config setting for the column, such as `data.label`.
    pub(crate) fn setting(&self) -> &'static str {
        match self.what {
            "label" | "target" | "tags" => "data.label",
            "group" => "data.group",
            _ => "data.text",
        }
    }

    pub(crate) fn known(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.known.split_whitespace()
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        has_word(self.known, name)
    }

    /// Returns whether a header cell is the name that the user set for the column, or a known name of the column.
    pub(crate) fn names(&self, cell: &str) -> bool {
        self.has(&plain(cell)) || self.given.is_some_and(|given| given.trim() == cell.trim())
    }

    pub(crate) fn advice(&self) -> String {
        format!(
            "set `{}` (`{}` in a config) to the name or the number (from 1) of the column",
            self.what,
            self.setting()
        )
    }
}

/// Returns a note on columns (`what`) that are not read; `None` if all are read.
pub(crate) fn unread(what: &str, names: &[String]) -> Option<String> {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).map(String::as_str).collect::<Vec<_>>().join(", ");
    match names.len() {
        0 => None,
        1 => Some(format!("{what} {shown} is not read")),
        few if few <= SHOWN => Some(format!("{what}s {shown} are not read")),
        many => Some(format!("{what}s {shown} and {} more are not read", many - SHOWN)),
    }
}

/// Returns the most frequent number, and how often it occurs; of equally frequent numbers, the first.
pub(crate) fn most_frequent(numbers: impl Iterator<Item = usize>) -> Option<(usize, usize)> {
    let mut counts: Vec<(usize, usize)> = Vec::new();
    for number in numbers {
        match counts.iter_mut().find(|(own, _)| *own == number) {
            Some((_, count)) => *count += 1,
            None => counts.push((number, 1)),
        }
    }
    counts.into_iter().rev().max_by_key(|(_, count)| *count)
}

/// Normalizes a name for comparison: lower case, without white space around it.
pub(crate) fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}
