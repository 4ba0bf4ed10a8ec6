//! The wanted columns of a table, or fields of JSON, and their usual names in data sets.

/// A column that a reader needs, such as the column of the texts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Column<'a> {
    /// The role of the column, such as `text`, which is also the name of the option that sets it.
    pub(super) what: &'static str,
    /// The name or the number of the column; `None` if it is not set.
    pub(super) given: Option<&'a str>,
    /// The usual names of the column in data sets, the likeliest first.
    pub(super) known: &'static [&'static str],
}

/// The rule that decides which cells of a record may be empty.
#[derive(Debug, Clone, Copy)]
pub(super) struct Empty {
    /// The number of text columns, which come first.
    texts: usize,
    /// Whether the last text column is a second text.
    pub(super) pair: bool,
    /// Whether the label may be empty, as a text may have several labels or none.
    label: bool,
}

impl Empty {
    /// The rule for these wanted columns. `pair`: the last text column is a second text; `label_lists`: a text may have
    /// several labels or none.
    pub(super) fn of(wanted: &[Column<'_>], pair: bool, label_lists: bool) -> Self {
        let count = |what: &str| wanted.iter().filter(|one| one.what == what).count();
        Self { texts: count("text"), pair, label: label_lists && count("label") > 0 }
    }

    /// The position of the first cell that is empty but must not be empty; `None` if there is none. `empty[i]` is true
    /// if cell *i* is empty.
    pub(super) fn missing(self, empty: &[bool]) -> Option<usize> {
        let (texts, others) = empty.split_at(self.texts.min(empty.len()));
        let other = || others.iter().position(|empty| *empty && !self.label).map(|at| texts.len() + at);
        missing_text(texts, self.pair).or_else(other)
    }
}

/// The position of a missing text; `None` if no text is missing. `empty[i]` is true if cell *i* is empty. Some cells of a
/// text may be empty, but not all. If `pair`, the last cell is a second text.
pub(super) fn missing_text(empty: &[bool], pair: bool) -> Option<usize> {
    let (first, second) = match empty.split_last() {
        Some((second, first)) if pair && !first.is_empty() => (first, Some(second)),
        _ => (empty, None),
    };
    match first.contains(&false) {
        false => Some(0).filter(|_| !first.is_empty()),
        true => second.filter(|empty| **empty).map(|_| first.len()),
    }
}

pub(super) const TEXT: &[&str] = &[
    "text",
    "sentence",
    "review",
    "content",
    "body",
    "document",
    "comment",
    "tweet",
    "message",
    "question",
    "utterance",
    "query",
    "title",
    "phrase",
    "name",
    "texts",
    "sentences",
    "reviews",
    "headline",
    "description",
    "post",
    "sms",
    "input",
];
pub(super) const LABEL: &[&str] = &[
    "label",
    "labels",
    "class",
    "category",
    "sentiment",
    "intent",
    "target",
    "topic",
    "rating",
    "stars",
    "polarity",
    "tag",
    "language",
    "score",
    "classes",
    "emotion",
    "intents",
    "lang",
    "genre",
    "type",
    "gold",
];
pub(super) const SOURCE: &[&str] = &[
    "source",
    "src",
    "input",
    "question",
    "english",
    "en",
    "word",
    "from",
    "text",
    "source_text",
    "src_text",
    "input_text",
    "article",
    "document",
    "noisy",
    "original",
    "prompt",
];
pub(super) const TARGET: &[&str] = &[
    "target",
    "tgt",
    "output",
    "answer",
    "translation",
    "french",
    "fr",
    "to",
    "phonemes",
    "summary",
    "target_text",
    "tgt_text",
    "output_text",
    "highlights",
    "clean",
    "corrected",
    "response",
];
pub(super) const TOKENS: &[&str] = &["tokens", "words"];
pub(super) const TAGS: &[&str] = &["tags", "ner_tags", "labels", "slots", "chunk_tags", "pos_tags", "ner"];
pub(super) const INTENT: &[&str] = &["intent", "label", "class"];

/// Languages in headers, by name and by code of ISO 639.
const LANGUAGES: &[&str] = &[
    "english",
    "en",
    "eng",
    "german",
    "deutsch",
    "de",
    "deu",
    "ger",
    "french",
    "français",
    "fr",
    "fra",
    "fre",
    "spanish",
    "español",
    "es",
    "spa",
    "italian",
    "italiano",
    "it",
    "ita",
    "portuguese",
    "português",
    "pt",
    "por",
    "dutch",
    "nl",
    "nld",
    "swedish",
    "sv",
    "swe",
    "danish",
    "da",
    "dan",
    "norwegian",
    "no",
    "nor",
    "finnish",
    "fi",
    "fin",
    "polish",
    "pl",
    "pol",
    "czech",
    "cs",
    "ces",
    "russian",
    "ru",
    "rus",
    "ukrainian",
    "uk",
    "ukr",
    "turkish",
    "tr",
    "tur",
    "arabic",
    "ar",
    "ara",
    "hebrew",
    "he",
    "heb",
    "persian",
    "fa",
    "fas",
    "hindi",
    "hi",
    "hin",
    "bengali",
    "bn",
    "ben",
    "chinese",
    "zh",
    "zho",
    "japanese",
    "ja",
    "jpn",
    "korean",
    "ko",
    "kor",
    "vietnamese",
    "vi",
    "vie",
    "thai",
    "th",
    "tha",
    "indonesian",
    "ind",
    "greek",
    "el",
    "ell",
    "hungarian",
    "hu",
    "hun",
    "romanian",
    "ro",
    "ron",
    "bulgarian",
    "bg",
    "bul",
    "latin",
    "la",
    "lat",
    "esperanto",
    "eo",
    "epo",
    "catalan",
    "ca",
    "cat",
    "englisch",
    "französisch",
    "spanisch",
    "italienisch",
    "russisch",
];

/// Returns whether a header cell names a language, or a text in a language, such as `en-US`, `sentence_en` and
/// `English words`.
pub(super) fn language(cell: &str) -> bool {
    const MOST: usize = 24;
    let words = || cell.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    cell.chars().count() <= MOST
        && words().count() <= 3
        && words().any(|word| LANGUAGES.contains(&&*word.to_lowercase()))
}

impl<'a> Column<'a> {
    /// The wanted columns of a text: the given columns, else one column that has a known name. If several columns are
    /// given, known names do not count.
    pub(super) fn texts(given: &'a [String]) -> Vec<Self> {
        let of = |given, known| Self { what: "text", given, known };
        match given {
            [] => vec![of(None, TEXT)],
            [one] => vec![of(Some(one.as_str()), TEXT)],
            several => several.iter().map(|one| of(Some(one.as_str()), &[])).collect(),
        }
    }
}

impl Column<'_> {
    /// The setting that names the column.
    pub(super) fn setting(&self) -> &'static str {
        match self.what {
            "label" | "target" | "tags" => "data.label",
            _ => "data.text",
        }
    }

    /// Returns whether a header cell is the set name or a known name of the column.
    pub(super) fn names(&self, cell: &str) -> bool {
        self.known.contains(&&*plain(cell)) || self.given.is_some_and(|given| given.trim() == cell.trim())
    }

    /// Advice for messages how to name the column.
    pub(super) fn advice(&self) -> String {
        format!(
            "set `{}` (`{}` in a config) to its name, or to its number from 1 on",
            self.what,
            self.setting()
        )
    }
}

/// A name normalized for comparison.
pub(super) fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}
