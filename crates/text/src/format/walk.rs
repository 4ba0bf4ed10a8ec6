//! A walk over a JSON file: it finds where values begin and end without parsing them, so that a file may be larger than
//! memory.

use std::io::{BufRead, BufReader};
use std::sync::Arc;

use unpadded::{Error, Result};

use crate::TextFile;
use crate::source::archive::Bytes;
use crate::source::lines::{MARK, broken, count_parsed};
use crate::source::reason::Reason;

pub(crate) struct Walk {
    pub(crate) name: Arc<str>,
    input: BufReader<Bytes>,
    /// The number of the current line, counted from 1.
    pub(crate) line: u64,
    /// Maximum length in bytes of a value that is kept in memory.
    most: usize,
}

impl Walk {
    pub(crate) fn new(file: &TextFile) -> Result<Self> {
        Self::over(file, file.bytes()?)
    }

    /// Returns a walk over the first bytes of a file, which are used for detection.
    pub(crate) fn ahead(file: &TextFile) -> Result<Self> {
        Self::over(file, file.sample()?)
    }

    fn over(file: &TextFile, (name, bytes): (Arc<str>, Bytes)) -> Result<Self> {
        let input = BufReader::with_capacity(1 << 16, bytes);
        let mut walk = Self { name, input, line: 1, most: file.max_line };
        if walk.buffer()?.starts_with(MARK) {
            walk.input.consume(MARK.len());
        }
        Ok(walk)
    }

    /// Returns the buffered bytes after the position; empty at the end of the file.
    fn buffer(&mut self) -> Result<&[u8]> {
        let Self { name, input, line, .. } = self;
        input.fill_buf().map_err(|e| broken(format!("{name}:{line}"), &e))
    }

    pub(crate) fn malformed(&self, line: u64, reason: Reason) -> Error {
        reason.at(format!("{}:{line}", self.name))
    }

    /// Skips white space and returns the next byte without moving past it; `None` at the end of the file.
    pub(crate) fn peek(&mut self) -> Result<Option<u8>> {
        loop {
            let buffer = self.buffer()?;
            if buffer.is_empty() {
                return Ok(None);
            }
            let space = buffer.iter().take_while(|byte| byte.is_ascii_whitespace()).count();
            let lines = buffer.iter().take(space).filter(|&&byte| byte == b'\n').count();
            let found = buffer.get(space).copied();
            self.input.consume(space);
            count_parsed(space);
            self.line += lines as u64;
            if found.is_some() {
                return Ok(found);
            }
        }
    }

    /// Moves past the byte that [`Self::peek`] returned.
    pub(crate) fn pass(&mut self) {
        self.input.consume(1);
    }

    /// Returns the error for the byte `found`, or for the end of the file, where `expected` was expected.
    pub(crate) fn unlike(&self, expected: &str, found: Option<u8>) -> Error {
        let got = match found {
            None => "the end of the file".to_owned(),
            Some(byte) if byte.is_ascii() => format!("`{}`", char::from(byte)),
            Some(byte) => format!("byte 0x{byte:02x}"),
        };
        self.malformed(self.line, Reason::of(expected, got))
    }

    /// Moves past the next byte, or returns an error if the next byte is not `byte`.
    pub(crate) fn take(&mut self, byte: u8, expected: &str) -> Result<()> {
        match self.peek()? {
            Some(found) if found == byte => self.pass(),
            found => return Err(self.unlike(expected, found)),
        }
        Ok(())
    }

    /// Moves past the next value, or past the rest of a value in which `depth` brackets are open; appends its bytes to `keep`,
    /// if given.
    pub(crate) fn value(&mut self, depth: usize, keep: Option<&mut Vec<u8>>) -> Result<()> {
        self.value_to(depth, keep, u64::MAX).map(drop)
    }

    /// As [`Self::value`], but stops at the end of line `last`. Returns whether the value ended by then.
    pub(crate) fn value_to(
        &mut self,
        mut depth: usize,
        mut keep: Option<&mut Vec<u8>>,
        last: u64,
    ) -> Result<bool> {
        self.peek()?;
        let (begun, mut string, mut escaped, mut any) = (self.line, false, false, depth > 0);
        loop {
            let (mut passed, mut ends) = (0, false);
            let (mut line, most) = (self.line, self.most);
            let buffer = self.buffer()?;
            if buffer.is_empty() {
                // A number has no closing character, so the end of the file may end a number.
                if depth == 0 && !string && any {
                    return Ok(true);
                }
                let expected = format!("the end of the value of JSON that begins in line {begun}");
                return Err(self.unlike(&expected, None));
            }
            for &byte in buffer {
                let (mut takes, before) = (true, depth);
                if string {
                    match byte {
                        _ if escaped => escaped = false,
                        b'\\' => escaped = true,
                        b'"' => (string, ends) = (false, depth == 0),
                        _ => {}
                    }
                } else {
                    match byte {
                        b'"' => string = true,
                        b'{' | b'[' => depth += 1,
                        b'}' | b']' => {
                            depth = depth.saturating_sub(1);
                            (takes, ends) = (before > 0, depth == 0);
                        }
                        b',' if depth == 0 => (takes, ends) = (false, true),
                        _ if depth == 0 && byte.is_ascii_whitespace() => (takes, ends) = (false, true),
                        _ => {}
                    }
                }
                passed += usize::from(takes);
                any |= takes;
                line += u64::from(takes && byte == b'\n');
                if ends || line > last {
                    break;
                }
            }
            if let Some(keep) = &mut keep {
                if keep.len() + passed > most {
                    let expected = format!("a record of at most {most} bytes");
                    let got = "a longer record; is a quotation mark or a bracket never closed?";
                    return Err(self.malformed(begun, Reason::of(expected, got)));
                }
                keep.extend_from_slice(buffer.get(..passed).unwrap_or_default());
            }
            self.input.consume(passed);
            count_parsed(passed);
            self.line = line;
            if ends && any {
                return Ok(true);
            }
            if ends {
                let found = self.peek()?;
                return Err(self.unlike("a value of JSON", found));
            }
            if line > last {
                return Ok(false);
            }
        }
    }

    /// Moves to the next value of a list, if there is one; `first` is true before the first value.
    pub(crate) fn element(&mut self, first: bool) -> Result<bool> {
        self.next_in(b']', "`,` or `]` in the list", first)
    }

    /// Moves past the next name in an object and returns the name; `first` is true before the first name.
    pub(crate) fn name(&mut self, first: bool) -> Result<Option<String>> {
        if !self.next_in(b'}', "`,` or `}` in the object", first)? {
            return Ok(None);
        }
        let found = self.peek()?;
        if found != Some(b'"') {
            return Err(self.unlike("a name in quotation marks", found));
        }
        let mut name = Vec::new();
        self.value(0, Some(&mut name))?;
        let name =
            serde_json::from_slice(&name).unwrap_or_else(|_| String::from_utf8_lossy(&name).into_owned());
        self.take(b':', "`:` behind a name")?;
        Ok(Some(name))
    }

    fn next_in(&mut self, end: u8, expected: &str, first: bool) -> Result<bool> {
        match self.peek()? {
            Some(found) if found == end || (found == b',' && !first) => {
                self.pass();
                Ok(found != end)
            }
            Some(_) if first => Ok(true),
            found => Err(self.unlike(expected, found)),
        }
    }
}
