//! The spellings of tags: letters, separators and brackets.

/// The spelling of tags: the letters, their position, and the separator between the letter and the kind.
///
/// The standard spelling is `B-kind`. Other spellings differ in one or several of these properties:
/// - the separator: another separator, as in `B_kind` and `B/kind`, or no separator, as in `Bkind`;
/// - the order: first the kind, as in `kind-B`;
/// - the kind: left out, so that the tag is only the letter `B`;
/// - the case: lower-case letters;
/// - brackets around the tag, as in `<B-kind>`;
/// - the letters: the letters of BILOU (`L` for `E`, `U` for `S`), BMES (`M` for `I`) or BMEWO (`M` for `I`, `W` for
///   `S`);
/// - the tag of a word outside of chunks: another tag than `O`, such as `_`, `0` or `OUT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TagSpelling {
    /// The letters that this spelling has in place of `I`, `E` and `S`.
    letters: &'static [u8; 3],
    pub(crate) position: LetterPosition,
    /// Whether the letters of tags are lower case.
    small: bool,
    /// The opening and the closing bracket around tags of chunks; `None` for tags without brackets.
    around: Option<(char, char)>,
    /// The tag of a word that is in no chunk.
    pub(crate) outside: &'static str,
}

/// The position of the letter in a tag; the character is the separator between the letter and the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LetterPosition {
    Before(char),
    Behind(char),
    /// The letter is before the kind, without a separator.
    Joined,
    /// The tag is the letter alone, without a kind.
    Alone,
}

/// The kind that every chunk gets if the tags of the data set are single letters without a kind.
const NO_KIND: &str = "chunk";

const SEPARATORS: [char; 10] = ['-', '_', '/', ':', '.', '|', '=', '+', '~', '@'];

const AROUND: [(char, char); 6] = [('<', '>'), ('[', ']'), ('(', ')'), ('{', '}'), ('"', '"'), ('\'', '\'')];

/// The possible tags of words that are in no chunk.
const OUTSIDE: [&str; 18] = [
    "O", "o", "0", "_", "-", "OUT", "out", "OTHER", "Other", "other", "NONE", "None", "none", "<O>", "[O]",
    "(O)", "{O}", "\"O\"",
];

impl TagSpelling {
    /// The standard spelling, `B-kind`.
    pub const STANDARD: Self = Self {
        letters: b"IES",
        position: LetterPosition::Before('-'),
        small: false,
        around: None,
        outside: "O",
    };

    /// Returns the spellings that these tags may have; the standard spelling is the first.
    pub(crate) fn of(tags: &[&str]) -> Vec<Self> {
        // Letters of known schemes are tried before letters that mix several schemes.
        const LETTERS: [&[u8; 3]; 12] =
            [b"IES", b"ILU", b"MES", b"MEW", b"IEU", b"IEW", b"ILS", b"ILW", b"MEU", b"MLS", b"MLU", b"MLW"];
        let found = |text: &str| tags.contains(&text);
        let mut outsides: Vec<&'static str> = OUTSIDE.into_iter().filter(|tag| found(tag)).collect();
        if !outsides.contains(&"O") {
            outsides.push("O");
        }
        let has = |mark: &char| tags.iter().any(|tag| tag.contains(*mark));
        let separators: Vec<char> = SEPARATORS.into_iter().filter(has).collect();
        let before = ['-'].into_iter().chain(separators.iter().copied().filter(|mark| *mark != '-'));
        let mut places: Vec<LetterPosition> = before.map(LetterPosition::Before).collect();
        places.extend(separators.into_iter().map(LetterPosition::Behind));
        places.extend([LetterPosition::Alone, LetterPosition::Joined]);
        let around = AROUND.into_iter().filter(|(open, _)| tags.iter().any(|tag| tag.starts_with(*open)));
        let around: Vec<_> = std::iter::once(None).chain(around.map(Some)).collect();
        let mut all = Vec::new();
        for small in [false, true] {
            for &outside in &outsides {
                for &around in &around {
                    for &position in
                        places.iter().filter(|position| **position != LetterPosition::Joined || !small)
                    {
                        all.extend(LETTERS.map(|letters| Self { letters, position, small, around, outside }));
                    }
                }
            }
        }
        all
    }

    /// Returns whether a tag has no separator between letter and kind, so that an ordinary word could be read as a tag.
    pub(crate) fn is_bare(&self) -> bool {
        matches!(self.position, LetterPosition::Alone | LetterPosition::Joined)
    }

    /// Returns an example tag per letter, and the tag of words in no chunk, joined by spaces.
    pub(crate) fn samples(&self) -> String {
        ["B-kind", "I-kind", "E-kind", "S-kind", "O"].map(|tag| self.spelled(tag)).join(" ")
    }

    /// Parses a tag in this spelling into its letter in the standard spelling and its kind.
    pub(crate) fn parse<'a>(&self, tag: &'a str) -> Option<(char, &'a str)> {
        if tag == self.outside {
            return Some(('O', ""));
        }
        let tag = match self.around {
            Some((open, close)) => tag.strip_prefix(open)?.strip_suffix(close)?,
            None => tag,
        };
        let (letter, kind) = match self.position {
            LetterPosition::Before(separator) => tag.split_once(separator)?,
            // Without a separator, the kind must begin with a letter or a digit, or be a single character, as in `B-`.
            // Other tags, such as `B-kind`, have a spelling with a separator.
            LetterPosition::Joined => {
                let is_kind =
                    |kind: &str| kind.starts_with(char::is_alphanumeric) || kind.chars().count() == 1;
                tag.split_at_checked(1).filter(|(_, kind)| is_kind(kind))?
            }
            LetterPosition::Behind(separator) => {
                tag.rsplit_once(separator).map(|(kind, letter)| (letter, kind))?
            }
            LetterPosition::Alone => (tag, NO_KIND),
        };
        let mut characters = letter.chars();
        let (letter, None) = (characters.next()?, characters.next()) else { return None };
        if kind.is_empty() || letter.is_ascii_lowercase() != self.small {
            return None;
        }
        let [inside, end, single] = self.letters.map(char::from);
        match letter.to_ascii_uppercase() {
            'B' => Some(('B', kind)),
            letter if letter == inside => Some(('I', kind)),
            letter if letter == end => Some(('E', kind)),
            letter if letter == single => Some(('S', kind)),
            _ => None,
        }
    }

    pub(crate) fn is_of_chunk(&self, tag: &str) -> bool {
        self.parse(tag).is_some_and(|(letter, _)| letter != 'O')
    }

    /// Translates a tag of this spelling to the standard spelling; `None` for a tag in another spelling.
    pub(crate) fn standard(&self, tag: &str) -> Option<String> {
        match self.parse(tag)? {
            ('O', _) => Some("O".to_owned()),
            (letter, kind) => Some(format!("{letter}-{kind}")),
        }
    }

    /// Translates a tag from the standard spelling to this spelling.
    pub(crate) fn spelled(&self, standard: &str) -> String {
        let Some((letter, kind)) = standard.split_once('-') else { return self.outside.to_owned() };
        let [inside, end, single] = self.letters.map(char::from);
        let letter = match letter {
            "I" => inside,
            "E" => end,
            "S" => single,
            _ => 'B',
        };
        let letter = if self.small { letter.to_ascii_lowercase() } else { letter };
        let tag = match self.position {
            LetterPosition::Before(separator) => format!("{letter}{separator}{kind}"),
            LetterPosition::Behind(separator) => format!("{kind}{separator}{letter}"),
            LetterPosition::Joined => format!("{letter}{kind}"),
            LetterPosition::Alone => letter.to_string(),
        };
        self.around.map_or(tag.clone(), |(open, close)| format!("{open}{tag}{close}"))
    }
}
