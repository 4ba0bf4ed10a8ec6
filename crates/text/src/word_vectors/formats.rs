//! The formats of word vector files: detects the format, and parses each format.

use std::io::{BufRead, BufReader, Cursor, Read};
use std::sync::Arc;

use unpadded::{Error, Result};

use super::{VectorSearch, WordVectors};
use crate::source::archive::Bytes;
use crate::source::lines::{Lines, broken};
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::shown;
use crate::{MalformedLines, TextFile};

/// Number of bytes from which the format is detected.
const SAMPLE: u64 = 1 << 16;
/// Maximum length in bytes of a word; a longer word shows that the file is not binary word2vec.
const MAX_WORD: u64 = 1 << 16;
/// The characters that separate the columns of a line. Other white space, such as a no-break space, is part of a word.
const BLANK: [char; 2] = [' ', '\t'];

/// The magic number at the start of a fastText model, in little-endian order.
const FASTTEXT: [u8; 4] = 793_712_314_i32.to_le_bytes();

/// The first line of a word2vec file: the count and the width of the vectors.
#[derive(Debug, Clone, Copy)]
struct Header {
    count: u64,
    width: u64,
    /// The length of the first line in bytes, including the line end.
    bytes: usize,
}

impl Header {
    /// Parses the first line of a file; `None` unless the line consists of two whole numbers.
    fn of(sample: &[u8]) -> Option<Self> {
        let end = sample.iter().position(|&byte| byte == b'\n');
        let line = std::str::from_utf8(sample.get(..end.unwrap_or(sample.len()))?).ok()?;
        let mut numbers = line.trim_start_matches('\u{feff}').split_ascii_whitespace();
        let mut number = || {
            let digits = numbers.next().filter(|cell| cell.bytes().all(|byte| byte.is_ascii_digit()))?;
            // A count or width beyond `u64` is larger than in any real file.
            Some(digits.parse().unwrap_or(u64::MAX))
        };
        let (count, width) = (number()?, number()?);
        let bytes = end.map_or(sample.len(), |end| end + 1);
        numbers.next().is_none().then_some(Self { count, width, bytes })
    }

    /// Returns whether the bytes after the first word are binary `f32` numbers, not digits.
    fn is_binary(self, width: usize, sample: &[u8]) -> bool {
        let behind = sample.get(self.bytes..).unwrap_or_default();
        let Some(space) = behind.iter().position(|&byte| byte == b' ') else { return false };
        let numbers = behind.get(space + 1..).unwrap_or_default();
        let line = numbers.split(|&byte| byte == b'\n').next().unwrap_or_default();
        let plain = |byte: &u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r');
        let columns = line.split(u8::is_ascii_whitespace).filter(|cell| !cell.is_empty()).count();
        if line.iter().all(plain) && columns >= width {
            return false;
        }
        // The first vector is no full line of numbers: it is binary if it has bytes that cannot be text.
        let first = numbers.get(..width.saturating_mul(4)).unwrap_or(numbers);
        let control = |byte: &u8| byte.is_ascii_control() && !matches!(byte, b'\t' | b'\r' | b'\n');
        first.iter().any(control) || std::str::from_utf8(first).is_err_and(|e| e.error_len().is_some())
    }
}

impl VectorSearch<'_> {
    pub(crate) fn read(mut self, file: &TextFile) -> Result<WordVectors> {
        let (name, mut bytes) = file.bytes()?;
        let mut sample = Vec::new();
        let read = bytes.by_ref().take(SAMPLE).read_to_end(&mut sample);
        read.map_err(|e| broken(format!("file `{name}`"), &e))?;
        if sample.starts_with(&FASTTEXT) {
            let expected = "vectors as text, or binary vectors of word2vec";
            let got = "a whole model of fastText (`.bin`)";
            let error = wrong_format(format!("file `{name}`"), expected, got);
            return Err(error.noted("fastText writes the word vectors to a `.vec` file beside the model"));
        }
        let header = Header::of(&sample);
        let mut binary = false;
        if let Some(header) = header {
            let wrong = |expected: String, got: u64| {
                Err(wrong_format(format!("{name}:1"), expected, got.to_string()))
            };
            if header.count == 0 {
                return wrong("at least one vector".into(), 0);
            }
            self.width = usize::try_from(header.width).unwrap_or(usize::MAX);
            if !(1..=WordVectors::MAX_WIDTH).contains(&self.width) {
                return wrong(format!("vectors of 1 to {} numbers", WordVectors::MAX_WIDTH), header.width);
            }
            binary = header.is_binary(self.width, &sample);
        }
        let whole: Bytes = Box::new(Cursor::new(sample).chain(bytes));
        match header {
            Some(header) if binary => self.binary(&name, BufReader::new(whole), header, file.malformed)?,
            _ => self.text(file.lines_in(Arc::clone(&name), whole), header, file.malformed)?,
        }
        let Self { width, mut rows, found, skipped, .. } = self;
        rows.shrink_to_fit();
        let name = name.to_string();
        Ok(WordVectors { name, width, rows, found, skipped })
    }

    fn text(&mut self, mut lines: Lines, header: Option<Header>, policy: MalformedLines) -> Result<()> {
        if header.is_some() {
            lines.next()?;
        }
        let (mut count, mut vector) = (0u64, Vec::new());
        while let Some(line) = lines.next()? {
            let reason = match line {
                Ok(line) => match self.line(&line, &mut vector) {
                    Ok(None) => continue,
                    Ok(Some(word)) => {
                        count += 1;
                        if !vector.is_empty() {
                            self.keep(word, &vector)?;
                        }
                        continue;
                    }
                    Err(reason) => reason,
                },
                Err(reason) => reason,
            };
            if policy != MalformedLines::Skip {
                return Err(lines.malformed(reason));
            }
            count += 1;
            self.skipped.add(|| lines.malformed(reason));
        }
        match header {
            Some(header) if header.count != count => Err(counted(&lines.name, header, count.to_string())),
            _ if self.width == 0 => {
                Err(wrong_format(format!("vectors of file `{}`", lines.name), "at least one", "none"))
            }
            _ => Ok(()),
        }
    }

    /// Parses a line and returns the word. `vector` gets the numbers if a token needs them.
    fn line<'l>(&mut self, line: &'l str, vector: &mut Vec<f32>) -> Result<Option<&'l str>, Reason> {
        vector.clear();
        let line = line.trim_end_matches(BLANK);
        if line.is_empty() {
            return Ok(None);
        }
        let first = self.width == 0;
        let width = if first { columns(line) - 1 } else { self.width };
        let got = || format!("{} columns in {}", columns(line), shown(line));
        if width == 0 || width > WordVectors::MAX_WIDTH {
            return Err(Reason::of(format!("a word and 1 to {} numbers", WordVectors::MAX_WIDTH), got()));
        }
        let wrong = || Reason::of(format!("a word and {width} numbers, as in the first line"), got());
        let (word, numbers) = split_word(line, width).ok_or_else(wrong)?;
        let mut cells = numbers.split(BLANK).filter(|cell| !cell.is_empty()).zip(1..);
        // If the word contains a space and its last part is a number, the line has more numbers than the first vector.
        let last = word.rsplit_once(BLANK).map(|(_, last)| last);
        if word.is_empty() || last.is_some_and(|last| last.parse().is_ok_and(f32::is_finite)) {
            return Err(wrong());
        }
        if first || self.wants(word) {
            for (cell, at) in cells {
                vector.push(number(cell, at, word)?);
            }
            self.width = width;
        } else if let Some((cell, at)) = cells.next() {
            // If no token needs the word, only the first number is parsed, to check that the columns are numbers.
            number(cell, at, word)?;
        }
        if !self.wants(word) {
            vector.clear();
        }
        Ok(Some(word))
    }

    fn binary(
        &mut self,
        name: &str,
        mut input: BufReader<Bytes>,
        header: Header,
        policy: MalformedLines,
    ) -> Result<()> {
        let (mut word, mut raw, mut vector) = (Vec::new(), Vec::new(), Vec::new());
        let (size, mut at) = (4 * self.width, header.bytes as u64);
        input.by_ref().take(at).read_to_end(&mut raw).map_err(|e| broken(name.into(), &e))?;
        for n in 1..=header.count {
            let location = || format!("{name}: vector {n}, at byte {at}");
            let failed = |e: std::io::Error| broken(location(), &e);
            word.clear();
            raw.clear();
            // Before a word there may be a line feed; after a word there is a space.
            input.by_ref().take(MAX_WORD + 2).read_until(b' ', &mut word).map_err(failed)?;
            input.by_ref().take(size as u64).read_to_end(&mut raw).map_err(failed)?;
            let (before, spaced) = (word.len(), word.ends_with(b" "));
            if !spaced && before as u64 == MAX_WORD + 2 {
                let expected = format!("a word of at most {MAX_WORD} bytes and a space");
                return Err(wrong_format(location(), expected, "no space in this number of bytes"));
            }
            if before == 0 || (!spaced && word.iter().all(|byte| matches!(byte, b'\n' | b'\r'))) {
                return Err(counted(name, header, (n - 1).to_string()));
            }
            if !spaced || raw.len() < size {
                let expected = format!("a word and {size} bytes, {} numbers", self.width);
                let got =
                    format!("the end of the file behind {} bytes: it was cut short", before + raw.len());
                return Err(wrong_format(location(), expected, got));
            }
            let start = word.iter().take_while(|&&byte| byte == b'\n').count();
            let text = word.get(start..before - 1).unwrap_or_default();
            match self.vector(text, &raw, &mut vector) {
                Ok(Some(word)) => self.keep(word, &vector)?,
                Ok(None) => {}
                Err(reason) => {
                    let error = || reason.at(location());
                    if policy != MalformedLines::Skip {
                        return Err(error());
                    }
                    self.skipped.add(error);
                }
            }
            at += (before + raw.len()) as u64;
        }
        loop {
            let rest = input.fill_buf().map_err(|e| broken(format!("{name}: at byte {at}"), &e))?;
            if rest.is_empty() {
                return Ok(());
            }
            if !rest.iter().all(|byte| matches!(byte, b'\n' | b'\r')) {
                return Err(counted(name, header, "more bytes behind these vectors".into()));
            }
            let read = rest.len();
            at += read as u64;
            input.consume(read);
        }
    }

    /// Parses a binary vector: if a token needs it, returns the word and fills `vector`; otherwise returns `None`.
    fn vector<'w>(
        &self,
        word: &'w [u8],
        raw: &[u8],
        vector: &mut Vec<f32>,
    ) -> Result<Option<&'w str>, Reason> {
        let word = std::str::from_utf8(word)
            .map_err(|_| Reason::of("a word in UTF-8", shown(&String::from_utf8_lossy(word))))?;
        if word.is_empty() {
            return Err(Reason::of("a word", "an empty word"));
        }
        if !self.wants(word) {
            return Ok(None);
        }
        vector.clear();
        vector.extend(raw.as_chunks().0.iter().map(|&bytes| f32::from_le_bytes(bytes)));
        match vector.iter().position(|number| !number.is_finite()) {
            None => Ok(Some(word)),
            Some(at) => Err(unfinite(&vector.get(at).map_or_else(String::new, f32::to_string), at + 1, word)),
        }
    }
}

/// Returns the error that the file has another number of vectors than the first line declares.
fn counted(name: &str, header: Header, got: String) -> Error {
    let expected = format!("{}, as its first line says", header.count);
    wrong_format(format!("vectors of file `{name}`"), expected, got)
}

fn columns(line: &str) -> usize {
    line.split(BLANK).filter(|cell| !cell.is_empty()).count()
}

/// Cuts a line into the word and its last `width` columns; `None` if the line has fewer columns.
fn split_word(line: &str, width: usize) -> Option<(&str, &str)> {
    let mut word = line;
    for _ in 0..width {
        let blank = word.bytes().rposition(|byte| matches!(byte, b' ' | b'\t'))?;
        word = word.get(..blank)?.trim_end_matches(BLANK);
    }
    Some((word, line.get(word.len()..)?))
}

/// Parses the number at position `at`, counted from 1, in the vector of a word.
fn number(cell: &str, at: usize, word: &str) -> Result<f32, Reason> {
    match cell.parse::<f32>() {
        Ok(number) if number.is_finite() => Ok(number),
        _ => Err(unfinite(cell, at, word)),
    }
}

fn unfinite(cell: &str, at: usize, word: &str) -> Reason {
    let got = format!("{} as number {at} of the word {}", shown(cell), shown(word));
    Reason { expected: "a number that is finite in `f32`".into(), got }
}
