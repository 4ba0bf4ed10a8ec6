//! Cuts the lines of a file with columns into cells, and detects the marks of documents and of comments.

use serde::{Deserialize, Serialize};

use crate::source::lines::has_word;
use crate::source::records::is_blank;

/// The start of a line that marks the start of a document in CoNLL-2003.
const DOCUMENT: &str = "-DOCSTART-";

/// The starts of lines that mark documents in CoNLL-2012 and JNLPBA.
pub(crate) const MARKS: [&str; 3] = ["#begin document", "#end document", "###MEDLINE:"];

/// The known keys of comments before a sentence, such as `# sent_id 5`.
const KEYS: &str = "id sent sent_id sentence sentence_id text text_en newdoc newpar doc doc_id document source title domain \
    url date file intent predicted_intent probability predicted_probability";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Separator {
    /// A run of spaces and tabs separates two columns.
    #[default]
    Spaces,
    /// One tab separates two columns.
    Tabs,
    /// A run of tabs separates two columns; the tabs align the columns.
    TabRuns,
}

/// Iterates over the cells of a line. White space that is not the separator is part of a cell.
pub(crate) fn cells(line: &str, separator: Separator) -> impl Iterator<Item = &str> {
    // White space at the end of a line is not a column.
    let line = line.trim_start_matches(['\r', ' ']).trim_end_matches(is_blank);
    let separates = move |c| if separator == Separator::Spaces { is_blank(c) } else { c == '\t' };
    let cells = line.split(separates).map(|cell| cell.trim_matches(' '));
    // In a file of tab runs, a tab at the start of a line is an empty first cell: a missing word.
    let stays = move |at| separator == Separator::Tabs || (separator == Separator::TabRuns && at == 0);
    cells.enumerate().filter(move |(at, cell)| stays(*at) || !cell.is_empty()).map(|(_, cell)| cell)
}

/// Returns whether a tag, such as `O` or `B-PER`, looks like a tag of a scheme such as IOB2 or IOBES.
pub(crate) fn is_of_scheme(tag: &str) -> bool {
    let letter = |(letter, kind): (&str, &str)| matches!(letter, "B" | "I" | "E" | "S") && !kind.is_empty();
    tag == "O" || tag.split_once('-').is_some_and(letter)
}

/// Returns whether a word is the mark of a document, such as `-DOCSTART-` or `-DOCEND-`.
pub(crate) fn is_document(word: &str) -> bool {
    let inner = word.strip_prefix('-').and_then(|word| word.strip_suffix('-')).unwrap_or_default();
    let (doc, rest) = inner.split_at_checked(3).unwrap_or_default();
    doc.eq_ignore_ascii_case("doc") && !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphabetic())
}

/// Returns whether a line marks the start or the end of a document.
pub(crate) fn is_mark(line: &str) -> bool {
    let begins = |mark: &str| line.get(..mark.len()).is_some_and(|start| start.eq_ignore_ascii_case(mark));
    begins(DOCUMENT) || is_document(first_word(line)) || MARKS.iter().any(|mark| line.starts_with(mark))
}

/// Returns the first word of a line, up to a space or tab; empty for a blank line.
pub(crate) fn first_word(line: &str) -> &str {
    line.split(is_blank).find(|word| !word.is_empty()).unwrap_or_default()
}

/// Returns whether a word may begin a comment: each of its characters is one of `#%;/@`.
pub(crate) fn may_mark(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| b"#%;/@".contains(&byte))
}

/// Returns whether a line looks like a comment: `#`, then a space or a tab.
pub(crate) fn is_comment(line: &str) -> bool {
    line.strip_prefix('#').is_some_and(|rest| rest.starts_with([' ', '\t']))
}

/// Returns whether a line is a comment with a known key and a value, such as `# id 5`.
pub(crate) fn has_key(line: &str) -> bool {
    let mut words = line.strip_prefix('#').unwrap_or_default().split_whitespace();
    let key = words.next().is_some_and(|key| has_word(KEYS, &key.to_lowercase()));
    is_comment(line) && key && words.next().is_some()
}

/// Returns whether a cell in the column of word numbers is a range of words (`3-4`) or an empty node (`5.1`).
pub(crate) fn is_between(id: &str) -> bool {
    let parts = id.split_once(['-', '.']);
    parts.is_some_and(|(first, last)| [first, last].into_iter().all(is_number))
}

pub(crate) fn is_number(cell: &str) -> bool {
    !cell.is_empty() && cell.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses a bracketed tag, as in CoNLL-2005 and 2012. Returns the kind of the chunk that begins at the word (`None` if
/// no chunk begins), and whether a chunk ends at the word. Returns `None` for a tag without brackets.
///
/// Bracketed tags are `*`, `(kind*`, `*)`, `(kind*)` and `(kind)`; in CoNLL-2004, the tag that ends a chunk has the
/// kind, too: `*kind)`.
pub(crate) fn bracket(tag: &str) -> Option<(Option<&str>, bool)> {
    let (kind, rest) = match tag.strip_prefix('(') {
        Some(inner) => {
            let (kind, rest) = inner.split_at(inner.find(['*', ')', '('])?);
            (Some(kind).filter(|kind| !kind.is_empty()), rest)
        }
        None => (None, tag),
    };
    if tag.starts_with('(') && kind.is_none() {
        return None;
    }
    match (rest, kind) {
        ("*", _) => Some((kind, false)),
        (")", Some(_)) => Some((kind, true)),
        _ => {
            let again = rest.strip_prefix('*')?.strip_suffix(')')?;
            let fits = again.is_empty() || kind.is_none_or(|kind| kind == again);
            (fits && !again.contains(['(', ')', '*'])).then_some((kind, true))
        }
    }
}
