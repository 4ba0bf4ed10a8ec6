//! Which columns of a table, or fields of JSON, are wanted, and what they are called in many data sets.

/// A column that is wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted<'a> {
    /// What it is, such as `text`: the option that names it.
    pub(super) what: &'static str,
    /// Its name or number, if it was said.
    pub(super) given: Option<&'a str>,
    /// What it is called in many data sets, the likeliest first.
    pub(super) known: &'static [&'static str],
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

/// Languages by the names and the codes of ISO 639 that headers have.
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

/// Whether a cell is a language, or a text in one, as `en-US`, `sentence_en` and `English words` are.
pub(super) fn language(cell: &str) -> bool {
    const MOST: usize = 24;
    let words = || cell.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty());
    cell.chars().count() <= MOST
        && words().count() <= 3
        && words().any(|word| LANGUAGES.contains(&&*word.to_lowercase()))
}

impl<'a> Wanted<'a> {
    /// The columns of a text: the given ones; of none, one with a known name. Several columns have no known names.
    pub(super) fn texts(given: &'a [String]) -> Vec<Self> {
        let of = |given, known| Self { what: "text", given, known };
        match given {
            [] => vec![of(None, TEXT)],
            [one] => vec![of(Some(one.as_str()), TEXT)],
            several => several.iter().map(|one| of(Some(one.as_str()), &[])).collect(),
        }
    }
}

impl Wanted<'_> {
    /// The setting that names it.
    pub(super) fn setting(&self) -> &'static str {
        match self.what {
            "label" | "target" | "tags" => "data.label",
            _ => "data.text",
        }
    }

    /// Whether a cell is its name.
    pub(super) fn names(&self, cell: &str) -> bool {
        self.known.contains(&&*plain(cell)) || self.given.is_some_and(|given| given.trim() == cell.trim())
    }

    /// What to do to name it.
    pub(super) fn advice(&self) -> String {
        format!(
            "set `{}` (`{}` in a config) to its name, or to its number from 1 on",
            self.what,
            self.setting()
        )
    }
}

/// A name as it is compared.
pub(super) fn plain(name: &str) -> String {
    name.trim().to_lowercase()
}
