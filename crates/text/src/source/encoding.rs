//! Character encodings of files: names, detection and decoding.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::io::Read;
use std::str::FromStr;

use encoding_rs::{Decoder, DecoderResult, UTF_16BE, UTF_16LE, WINDOWS_1252};
use unpadded::{Error, Result};

use super::archive::Bytes;
use super::kind::peeked;
use super::reason::Reason;

/// The character encoding of a file. Invalid bytes are errors; Latin-1 and Windows-1252 have no invalid bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Encoding {
    /// UTF-8, with or without a byte order mark; a file with the byte order mark of UTF-16 is read as UTF-16.
    #[default]
    Utf8,
    /// ISO 8859-1.
    Latin1,
    /// Windows-1252: Latin-1, but with dashes, quotation marks and the euro in place of control characters.
    Windows1252,
    /// Another encoding by its name: `"windows-1251".parse()` returns this variant.
    Named(NamedEncoding),
}

/// An encoding that has no variant of its own in [`Encoding`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NamedEncoding(&'static encoding_rs::Encoding);

/// Shows the name of the encoding, such as `windows-1251`.
impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parses a name of the Encoding Standard of the web, such as `gbk`, `shift_jis` or `utf-16le`.
///
/// ```
/// use unpadded_text::Encoding;
/// assert_eq!("cp1251".parse::<Encoding>()?.to_string(), "windows-1251");
/// assert!("utf-9".parse::<Encoding>().is_err());
/// # Ok::<(), unpadded::Error>(())
/// ```
impl FromStr for Encoding {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self> {
        let lower = name.trim().to_lowercase();
        match &*lower {
            "utf-8" | "utf8" => Ok(Self::Utf8),
            "windows-1252" | "cp1252" => Ok(Self::Windows1252),
            "latin-1" | "latin1" | "iso-8859-1" => Ok(Self::Latin1),
            other => {
                let found = encoding_rs::Encoding::for_label_no_replacement(other.as_bytes());
                found.map(|found| Self::Named(NamedEncoding(found))).ok_or_else(|| {
                    let expected = "the name of an encoding, as `utf-8`, `windows-1252`, `latin-1`, `windows-1251`, `gbk` or `shift_jis`";
                    Error::new("data.encoding", expected, format!("`{name}`"))
                })
            }
        }
    }
}

impl Encoding {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Utf8 => "UTF-8",
            Self::Latin1 => "latin-1",
            Self::Windows1252 => "windows-1252",
            Self::Named(NamedEncoding(encoding)) => encoding.name(),
        }
    }

    /// Returns whether every character of the encoding is a single byte.
    pub(crate) fn has_single_bytes(self) -> bool {
        match self {
            Self::Utf8 => false,
            Self::Latin1 | Self::Windows1252 => true,
            Self::Named(NamedEncoding(encoding)) => encoding.is_single_byte(),
        }
    }

    /// Returns UTF-16, little-endian or big-endian, if the bytes begin with its byte order mark.
    pub(crate) fn marked(first: &[u8]) -> Option<Self> {
        let found = [(&[0xff, 0xfe], UTF_16LE), (&[0xfe, 0xff], UTF_16BE)];
        let found = found.into_iter().find(|(mark, _)| first.starts_with(*mark));
        found.map(|(_, encoding)| Self::Named(NamedEncoding(encoding)))
    }

    /// Detects UTF-16 without a byte order mark by zero bytes: more than half of the bytes at odd positions (little-endian) or
    /// at even positions (big-endian) are 0, and hardly any others.
    pub(crate) fn unmarked(first: &[u8]) -> Option<Self> {
        let zeros = |from: usize| first.iter().skip(from).step_by(2).filter(|&&byte| byte == 0).count();
        let (even, odd, half) = (zeros(0), zeros(1), first.len() / 2);
        let encoding = match () {
            () if odd * 2 > half && even * 20 < half => UTF_16LE,
            () if even * 2 > half && odd * 20 < half => UTF_16BE,
            () => return None,
        };
        Some(Self::Named(NamedEncoding(encoding)))
    }

    /// Returns whether the encoding is UTF-16, in either order of bytes.
    pub(crate) fn is_utf_16(self) -> bool {
        matches!(self, Self::Named(NamedEncoding(encoding)) if encoding == UTF_16LE || encoding == UTF_16BE)
    }

    /// Guesses the encoding of bytes that are not UTF-8. A guess other than Windows-1252 needs several letters: signs such
    /// as `£`, or the letter of one foreign name, are no evidence of another language.
    pub(crate) fn likeliest(bytes: &[u8]) -> Self {
        let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Deny);
        detector.feed(bytes, true);
        match detector.guess(None, chardetng::Utf8Detection::Deny) {
            encoding if encoding == WINDOWS_1252 => Self::Windows1252,
            encoding if has_letters(encoding, bytes) => Self::Named(NamedEncoding(encoding)),
            _ => Self::Windows1252,
        }
    }

    /// Decodes the bytes of a line; a named encoding is already converted to UTF-8. If Windows-1252 was `guessed`, valid UTF-8
    /// beyond ASCII is malformed, because the file mixes both encodings.
    pub(crate) fn decode(self, guessed: bool, bytes: &[u8]) -> Result<Cow<'_, str>, Reason> {
        let is_utf_8 = |line: &[u8]| !line.is_ascii() && std::str::from_utf8(line).is_ok();
        if guessed && self == Self::Windows1252 && bytes.split(|&byte| byte == b'\n').any(is_utf_8) {
            return Err(Reason::of(
                "windows-1252, as the first bytes beyond ASCII are",
                "UTF-8: the file mixes both encodings; `data.encoding` in a config sets the encoding",
            ));
        }
        let text = match self {
            Self::Utf8 | Self::Named(_) => Cow::Borrowed(std::str::from_utf8(bytes).map_err(|e| {
                let position = e.valid_up_to();
                let byte = bytes.get(position).copied().unwrap_or_default();
                let advice = "`data.encoding` in a config sets another encoding";
                let got = match self {
                    Self::Named(_) => format!("other bytes at place {position}: {advice}"),
                    _ => format!("byte 0x{byte:02x} at place {position}: {advice}"),
                };
                Reason::of(self.name(), got)
            })?),
            Self::Latin1 => encoding_rs::mem::decode_latin1(bytes),
            Self::Windows1252 => WINDOWS_1252.decode_without_bom_handling(bytes).0,
        };
        match text.bytes().position(|byte| byte == 0) {
            None => Ok(text),
            Some(position) => {
                let got = format!(
                    "byte 0x00 at place {position}: is it no text at all, or UTF-16 (`data.encoding = \"utf-16le\"` in a config)?"
                );
                Err(Reason::of("text", got))
            }
        }
    }

    /// Converts bytes in a named encoding, or with the byte order mark of UTF-16, to UTF-8.
    pub(crate) fn decoded(self, bytes: Bytes) -> Bytes {
        let (encoding, bytes) = match self == Self::Utf8 || self.is_utf_16() {
            true => {
                let (first, bytes) = peeked(bytes, 2);
                (Self::marked(&first).unwrap_or(self), bytes)
            }
            false => (self, bytes),
        };
        let Self::Named(NamedEncoding(known)) = encoding else { return bytes };
        let (decoder, raw, text) = (known.new_decoder_with_bom_removal(), vec![0; PIECE], vec![0; 2 * PIECE]);
        Box::new(Decoded { input: bytes, decoder, raw, left: 0..0, text, found: 0..0, ended: false })
    }
}

/// Returns whether the text of these bytes in an encoding has enough letters beyond ASCII to tell it from Windows-1252.
fn has_letters(encoding: &'static encoding_rs::Encoding, bytes: &[u8]) -> bool {
    // Windows-1252 has no character for these bytes, or a character that Western texts hardly have, `ÿ`.
    if bytes.iter().any(|byte| [0x81, 0x8d, 0x8f, 0x90, 0x9d, 0xff].contains(byte)) {
        return true;
    }
    let (text, western) =
        (encoding.decode_without_bom_handling(bytes).0, WINDOWS_1252.decode_without_bom_handling(bytes).0);
    let foreign = |c: char| !c.is_ascii() && c.is_alphabetic();
    let (mut pairs, mut known, mut words) = (0, HashSet::new(), HashSet::new());
    for word in text.split(|c: char| !c.is_alphabetic()).filter(|word| word.chars().count() > 1) {
        for run in word.split(|c| !foreign(c)).filter(|run| !run.is_empty()) {
            let (first, count) = (run.chars().next(), run.chars().count());
            let varies = run.chars().any(|c| Some(c) != first);
            if varies && (count > 2 || !encoding.is_single_byte()) {
                return true;
            }
            pairs += usize::from(varies);
            known.extend(run.chars());
            words.insert(word.to_lowercase());
        }
    }
    // A letter between letters that is a sign in Windows-1252, as `ł` in place of `³`, shows a language of another encoding.
    let (own, other): (Vec<char>, Vec<char>) = (text.chars().collect(), western.chars().collect());
    let is_sign = |at: usize| {
        let within = own.get(at - 1..at + 2).is_some_and(|three| three.iter().all(|c| c.is_alphabetic()));
        within && other.get(at).is_some_and(|c| !c.is_alphabetic())
    };
    let signs = || (1..own.len()).filter(|&at| is_sign(at)).take(2).count();
    // Slovene has only three letters beyond ASCII.
    let several = known.len() > 3 || (known.len() > 1 && words.len() > 3);
    pairs > 2 || several || (encoding.is_single_byte() && signs() > 1)
}

/// The number of bytes that one decoding step reads.
const PIECE: usize = 1 << 14;

/// A reader that decodes bytes to UTF-8; an invalid byte becomes invalid UTF-8, an error of its line.
struct Decoded {
    input: Bytes,
    decoder: Decoder,
    raw: Vec<u8>,
    /// The range of `raw` with the bytes that are not decoded yet.
    left: std::ops::Range<usize>,
    text: Vec<u8>,
    /// The range of `text` with the decoded bytes that are not read yet.
    found: std::ops::Range<usize>,
    ended: bool,
}

impl Decoded {
    /// Decodes more bytes; returns `false` at the end of the file.
    fn fill(&mut self) -> std::io::Result<bool> {
        if self.ended {
            return Ok(false);
        }
        let mut last = false;
        if self.left.is_empty() {
            let read = self.input.read(&mut self.raw)?;
            self.left = 0..read;
            last = read == 0;
        }
        let raw = self.raw.get(self.left.clone()).unwrap_or_default();
        // The last byte of the buffer is reserved for `NO_UTF_8`, the mark of an invalid byte.
        let Some((_, room)) = self.text.split_last_mut() else { return Ok(false) };
        let (outcome, read, written) = self.decoder.decode_to_utf8_without_replacement(raw, room, last);
        self.left.start += read;
        self.found = 0..written;
        if let DecoderResult::Malformed(..) = outcome {
            if let Some(behind) = self.text.get_mut(written) {
                *behind = NO_UTF_8;
            }
            self.found.end += 1;
        }
        self.ended = last && matches!(outcome, DecoderResult::InputEmpty);
        Ok(true)
    }
}

/// A byte that never occurs in valid UTF-8.
const NO_UTF_8: u8 = 0xff;

impl Read for Decoded {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        while self.found.is_empty() {
            if !self.fill()? {
                return Ok(0);
            }
        }
        let found = self.text.get(self.found.clone()).unwrap_or_default();
        let read = found.len().min(into.len());
        into[..read].copy_from_slice(&found[..read]);
        self.found.start += read;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TextFile;

    fn file(bytes: &[u8]) -> TextFile {
        TextFile::embedded("f", Box::leak(bytes.to_vec().into_boxed_slice()))
    }

    fn utf_16(text: &str, bytes: fn(u16) -> [u8; 2]) -> Vec<u8> {
        text.encode_utf16().flat_map(bytes).collect()
    }

    #[test]
    fn utf_16_is_read_by_its_mark_or_its_name() {
        let text = "a é\r\n日本 😀\n".repeat(9000);
        let expected = text.replace('\r', "");
        for (bytes, name) in
            [(u16::to_le_bytes as fn(u16) -> [u8; 2], "utf-16le"), (u16::to_be_bytes, "utf-16be")]
        {
            let marked = utf_16(&format!("\u{feff}{text}"), bytes);
            let bare = utf_16(&text, bytes);
            let named: Encoding = name.parse().unwrap();
            assert_eq!(file(&marked).text().unwrap(), expected);
            assert_eq!(file(&marked).encoding(named).text().unwrap(), expected);
            assert_eq!(file(&bare).encoding(named).text().unwrap(), expected);
            assert_eq!(Encoding::unmarked(&bare[..512]).map(Encoding::name), None);
            let ascii = utf_16(&"plain text\n".repeat(50), bytes);
            assert_eq!(Encoding::unmarked(&ascii), Some(named));
        }
        assert_eq!(Encoding::unmarked(b"a\0b and other text"), None);
    }

    #[test]
    fn named_encodings_are_read_and_others_refused_with_their_line() {
        let cyrillic: Encoding = "windows-1251".parse().unwrap();
        let bytes = encoding_rs::WINDOWS_1251.encode("хороший фильм\nда\n").0.into_owned();
        assert_eq!(file(&bytes).encoding(cyrillic).text().unwrap(), "хороший фильм\nда\n");
        let japanese: Encoding = "shift_jis".parse().unwrap();
        let shown = file(b"a\n\x83\x65\xff\x83\nb\n").encoding(japanese).lines().unwrap().read_all();
        let shown = shown.unwrap_err().to_string();
        assert!(
            shown.starts_with("f:2: expected Shift_JIS, got other bytes at place 3: `data.encoding`"),
            "{shown}"
        );
        let shown = "nothing".parse::<Encoding>().unwrap_err().to_string();
        assert!(shown.starts_with("data.encoding: expected the name of an encoding"), "{shown}");
    }

    #[test]
    fn the_likeliest_encoding_is_windows_1252_of_western_texts_alone() {
        for (text, encoding) in [
            ("L'été dernier, nous avons mangé à côté du château.", WINDOWS_1252),
            ("Das Gemüse schmeckt köstlich, größer als früher.", WINDOWS_1252),
            ("a nice café in the old town", WINDOWS_1252),
            ("a naïve façade, a cliché in the café; Zoë and Noël", WINDOWS_1252),
            ("film mi je všeč, čeprav je začetek težak in včasih preveč glasen", encoding_rs::WINDOWS_1250),
            ("плохое кино, мне не понравилось", encoding_rs::WINDOWS_1251),
            ("Książka była świetna, żółć i gęś", encoding_rs::ISO_8859_2),
            ("这部电影非常好看我很喜欢", encoding_rs::GBK),
            ("とても面白い映画でした", encoding_rs::SHIFT_JIS),
            ("영화가 정말 재미있어요", encoding_rs::EUC_KR),
        ] {
            let bytes = encoding.encode(text).0;
            assert_eq!(Encoding::likeliest(&bytes).name(), encoding.name(), "{text}");
        }
    }
}
