//! Reads the lines of a text file: decodes bytes, limits the length of lines and counts line numbers.

use std::borrow::Cow;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use super::archive::Bytes;
use super::encoding::Encoding;
use super::reason::{Reason, wrong_format};
use super::skipped::SkipLog;
use super::watched::FileChange;
use crate::memory::Usage;
use unpadded::reserve;
use unpadded::{Error, Result};

/// Returns the error for a failed read; `what` is the place in the message, such as `FILE:LINE`.
pub(crate) fn broken(what: String, error: &std::io::Error) -> Error {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    if let Some(changed) = FileChange::of(&what, error) {
        return changed;
    }
    // These kinds of errors come from the decompression: reading a plain file never returns them.
    match error.kind() {
        UnexpectedEof => {
            let got = "its end: it was cut short, as by a download that broke off";
            wrong_format(what, "more of the compressed file", got)
        }
        InvalidData | InvalidInput => {
            wrong_format(what, "a compressed file that can be unpacked", format!("a damaged file ({error})"))
        }
        _ => Error::io(what, "read", error),
    }
}

/// Formats names for a message, in backticks; only the first ten names are shown.
pub(crate) fn quoted(names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    const SHOWN: usize = 10;
    let mut names = names.into_iter();
    let shown: Vec<String> = names.by_ref().take(SHOWN).map(|name| format!("`{}`", name.as_ref())).collect();
    format!("{}{}", shown.join(", "), if names.next().is_some() { ", …" } else { "" })
}

/// Returns whether a list of words between spaces has a word.
pub(crate) fn has_word(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|own| own == word)
}

#[cfg(test)]
thread_local! {
    /// The number of bytes that parsers have got on this thread.
    pub(crate) static PARSED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts bytes that a parser gets; only tests count them.
pub(crate) fn count_parsed(_bytes: usize) {
    #[cfg(test)]
    PARSED.set(PARSED.get() + _bytes);
}

pub(crate) struct Lines {
    pub(crate) name: Arc<str>,
    input: BufReader<Bytes>,
    encoding: Encoding,
    guessed: bool,
    max: usize,
    pub(crate) number: u64,
    /// The number of bytes of the file that [`Self::pieces`] has read.
    read: u64,
    bytes: Vec<u8>,
    room: Usage,
    /// The log of malformed lines that [`Self::pieces`] leaves out; `None` if they are errors.
    pub(crate) log: Option<Arc<SkipLog>>,
}

/// The byte order mark of UTF-8.
pub(crate) const MARK: &[u8] = &[0xef, 0xbb, 0xbf];

impl Lines {
    /// Returns a reader of lines in an encoding, which may be `guessed`: valid UTF-8 in guessed Windows-1252 is an error.
    pub(crate) fn new(
        name: Arc<str>,
        input: Bytes,
        (encoding, guessed): (Encoding, bool),
        max: usize,
    ) -> Self {
        let input = BufReader::with_capacity(1 << 16, input);
        let (bytes, room) = (Vec::new(), Usage::default());
        Self { name, input, encoding, guessed, max, number: 0, read: 0, bytes, room, log: None }
    }

    /// Returns the error `FILE:LINE: expected …, got …` for the line that was read last.
    pub(crate) fn malformed(&self, reason: Reason) -> Error {
        reason.at(format!("{}:{}", self.name, self.number))
    }

    fn broken(&self, error: &std::io::Error) -> Error {
        broken(format!("{}:{}", self.name, self.number), error)
    }

    /// Reads the next line, without its line end; returns `None` behind the last line. The inner `Err` is a malformed
    /// line; the outer `Err` is a file that cannot be read further.
    pub(crate) fn next(&mut self) -> Result<Option<Result<Cow<'_, str>, Reason>>> {
        self.bytes.clear();
        self.number += 1;
        // The longest accepted line has `max` bytes, and its line end has at most two bytes.
        let most = self.max.saturating_add(2);
        let read = self.read_line(most)?;
        if read == 0 {
            return Ok(None);
        }
        count_parsed(read);
        self.room.read(read, || format!("{}:{}", self.name, self.number))?;
        if read == most && !self.bytes.ends_with(b"\n") {
            self.input.skip_until(b'\n').map_err(|e| self.broken(&e))?;
        }
        let line = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > self.max {
            let expected = format!("a line of at most {} bytes", self.max);
            return Ok(Some(Err(Reason::of(expected, "a longer line: is the file text with line ends?"))));
        }
        let marked = self.number == 1 && self.encoding == Encoding::Utf8;
        let line = line.strip_prefix(MARK).filter(|_| marked).unwrap_or(line);
        Ok(Some(self.encoding.decode(self.guessed, line)))
    }

    /// Appends the next line with its line end, but at most `most` bytes, to `bytes`; returns the number of bytes.
    fn read_line(&mut self, most: usize) -> Result<usize> {
        /// The number of bytes for which memory is reserved first; most lines are shorter.
        const SHORT: usize = 1 << 10;
        let mut read = 0;
        loop {
            let there = match self.input.fill_buf() {
                Ok(bytes) => bytes.len().min(most - read).min(self.bytes.len().max(SHORT)),
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.broken(&e)),
            };
            if !reserve::fits(&mut self.bytes, there) {
                let what = format!("{}:{}", self.name, self.number);
                return Err(reserve::refused(&what, self.bytes.len() + there));
            }
            // The bytes that are read here are already in the buffer of the input.
            let piece = self.input.by_ref().take(there as u64).read_until(b'\n', &mut self.bytes);
            read += piece.map_err(|e| self.broken(&e))?;
            if there == 0 || self.bytes.ends_with(b"\n") {
                return Ok(read);
            }
        }
    }

    /// Returns the line end of the line that was read last, such as `\n`; empty if the file ends without a line end.
    pub(crate) fn end(&self) -> &'static str {
        match self.bytes.as_slice() {
            [.., b'\r', b'\n'] => "\r\n",
            [.., b'\n'] => "\n",
            _ => "",
        }
    }

    /// Returns whether the line that was read last begins with the byte order mark of UTF-8.
    pub(crate) fn is_marked(&self) -> bool {
        self.number == 1 && self.encoding == Encoding::Utf8 && self.bytes.starts_with(MARK)
    }

    /// Returns the line that was read last; malformed bytes become replacement characters.
    pub(crate) fn lossy(&self) -> String {
        let line = self.bytes.strip_suffix(b"\n").unwrap_or(&self.bytes);
        String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)).into_owned()
    }

    /// Returns a function that reads the next piece of the text, of about a mebibyte; all line ends become `\n`. A piece
    /// ends at the end of a line, or behind a space if a line is longer than a piece. If the caller keeps all pieces in
    /// memory, the available memory is checked, and `held` is the maximum number of bytes of the text; else it is `None`.
    pub(crate) fn pieces(mut self, held: Option<usize>) -> impl FnMut() -> Result<Option<String>> + Send {
        let (mut bytes, mut all) = (Vec::new(), 0usize);
        move || {
            let before = self.read;
            let Some(piece) = self.piece(&mut bytes)? else { return Ok(None) };
            let Some(max) = held else { return Ok(Some(piece)) };
            self.room.read((self.read - before) as usize, || format!("file `{}`", self.name))?;
            all = all.saturating_add(piece.len());
            if all > max {
                let (what, expected) = (format!("file `{}`", self.name), format!("at most {max} bytes"));
                let got = "more: divide it into several files, or set `data.window` in a config";
                return Err(wrong_format(what, expected, got));
            }
            Ok(Some(piece))
        }
    }

    /// Reads the next piece of the text; `bytes` has the bytes that did not fit into the previous piece.
    fn piece(&mut self, bytes: &mut Vec<u8>) -> Result<Option<String>> {
        const PIECE: usize = 1 << 20;
        let left = PIECE.saturating_sub(bytes.len()) as u64;
        let read = self.input.by_ref().take(left).read_to_end(bytes);
        let read = read.map_err(|e| broken(format!("{}:{}", self.name, self.number + 1), &e))?;
        if self.read == 0 && self.encoding == Encoding::Utf8 && bytes.starts_with(MARK) {
            bytes.drain(..MARK.len());
        }
        self.read += read as u64;
        count_parsed(read);
        if bytes.is_empty() {
            return Ok(None);
        }
        let behind = |wanted: &[u8]| bytes.iter().rposition(|byte| wanted.contains(byte)).map(|at| at + 1);
        // No piece ends within a character, or between a carriage return and a line feed.
        let is_within =
            |at: &usize| bytes.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80) || bytes[at - 1] == b'\r';
        let whole = match (read as u64) < left {
            true => bytes.len(),
            false => behind(b"\n").or_else(|| behind(b" \t")).unwrap_or_else(|| {
                let mut ends = (1..bytes.len()).rev().take(8);
                ends.find(|at| !is_within(at)).unwrap_or(bytes.len())
            }),
        };
        let rest = bytes.split_off(whole);
        let piece = std::mem::replace(bytes, rest);
        let text = match self.encoding.decode(self.guessed, &piece) {
            Ok(text) => text.into_owned(),
            Err(_) => self.without_malformed(&piece)?,
        };
        self.number += piece.iter().filter(|&&byte| byte == b'\n').count() as u64;
        Ok(Some(if text.contains('\r') { text.replace("\r\n", "\n") } else { text }))
    }

    /// Returns the text of a piece without its malformed lines; without a log, the first malformed line is an error.
    fn without_malformed(&self, bytes: &[u8]) -> Result<String> {
        let mut text = String::new();
        for (number, line) in (self.number + 1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
            match self.encoding.decode(self.guessed, line) {
                Ok(line) => text.push_str(&line),
                Err(reason) => match &self.log {
                    Some(log) => log.add(&self.name, [number, 0], &reason, &String::from_utf8_lossy(line))?,
                    None => return Err(reason.at(format!("{}:{number}", self.name))),
                },
            }
        }
        Ok(text)
    }
}
