//! The file format of programs and checkpoints: sections with checksums, and decoding with limited memory.
//!
//! ```text
//! file    = "unpadded" | format version u32 | section... | section named "" of length 0
//! section = length of name u8 | name | length of body u64 | crc32 of these u32 | body | crc32 of body u32
//! ```
//!
//! Numbers are little-endian. A section with an empty name marks the end of the file. If a file lacks this section,
//! the file was cut short. The body of a section may be any bytes. Structured data, such as a program, is encoded as a
//! record (`wire/record.rs`). The fields of a record have numbers, so that a later release can add a field. This
//! module does not depend on programs or tensors.
//!
//! **The format version** is the version of the sections' layout and of the encoding of records. New fields and new
//! sections do not need a new version, because readers skip unknown fields and sections.

mod encoding;
pub(crate) mod record;
pub(crate) mod stored;
mod target;

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use crc32fast::Hasher;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::reserve;
use record::FieldType;
pub use target::write_atomically;
pub(crate) use target::{Target, check_plain};

/// The magic bytes: every file of this crate begins with these bytes.
pub const MAGIC: [u8; 8] = *b"unpadded";
/// The format version of the files that this release writes. A file with another version is refused.
pub const VERSION: u32 = 1;

/// Maximum size in bytes of a section that is read at once. Sections of tensors may be longer, because tensors are read
/// piece by piece.
pub const LONGEST: u64 = 0x1000_0000;
/// Maximum size in bytes of a section with a record, such as a program. Only the section of a vocabulary may be longer.
pub const STRUCTURED: u64 = 0x100_0000;

/// The size in bytes of the smallest valid file, which has only the section that marks the end.
const SMALLEST: u64 = 8 + 4 + (1 + 8 + 4 + 4);
/// Maximum number of bytes of a body that are read at once.
const PIECE: usize = 1 << 16;

/// Returns the error that the last `left` bytes of a body of `size` bytes do not belong to the record.
fn longer(size: u64, left: u64) -> Error {
    damaged("structured section", format!("{} bytes", size - left), format!("{size} bytes"))
}

#[track_caller]
fn damaged(what: impl Into<String>, expected: impl Into<String>, got: impl Into<String>) -> Error {
    Error::of(ErrorKind::Format, what, expected, got)
}

/// Writes a file section by section.
pub struct Writer<W> {
    /// The name of the file in error messages.
    target: String,
    out: W,
}

/// The body of a section that is being written piece by piece.
pub struct Body<'a, W> {
    writer: &'a mut Writer<W>,
    sum: Hasher,
    /// The number of bytes of the body that must still be written.
    left: u64,
}

impl<W: Write> Body<'_, W> {
    /// Writes the next bytes of the body.
    ///
    /// # Errors
    /// Fails if the body becomes longer than its declared length, or if the bytes cannot be written.
    #[track_caller]
    pub fn write(&mut self, piece: &[u8]) -> Result<()> {
        let Some(left) = self.left.checked_sub(piece.len() as u64) else {
            return Err(damaged("body of a section", format!("{} more bytes", self.left), "more"));
        };
        self.left = left;
        self.sum.update(piece);
        self.writer.put(piece).at_caller()
    }
}

impl<W: Write> Writer<W> {
    /// Starts to write a file: writes the magic bytes and the format version to `out`.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    #[track_caller]
    pub fn new(out: W) -> Result<Self> {
        Self::named("bytes", out).at_caller()
    }

    fn named(target: &str, out: W) -> Result<Self> {
        let mut writer = Self { target: target.to_owned(), out };
        writer.put(&MAGIC)?;
        writer.put(&VERSION.to_le_bytes())?;
        Ok(writer)
    }

    fn put(&mut self, bytes: &[u8]) -> Result<()> {
        self.out.write_all(bytes).map_err(|e| unwritable(&self.target, &e))
    }

    /// Writes a section with this name and this body.
    ///
    /// # Errors
    /// Fails if the name is empty or longer than 255 bytes, or if the file cannot be written.
    #[track_caller]
    pub fn write_section(&mut self, name: &str, body: &[u8]) -> Result<()> {
        self.stream_section(name, body.len() as u64, |out| out.write(body))
    }

    /// Writes a section with a body of `length` bytes, which `write` writes piece by piece. The body is never in memory
    /// as a whole.
    ///
    /// # Errors
    /// Fails if the name is empty or longer than 255 bytes, or if the file cannot be written. Also fails if `write`
    /// fails, or does not write exactly `length` bytes.
    #[track_caller]
    pub fn stream_section(
        &mut self,
        name: &str,
        length: u64,
        write: impl FnOnce(&mut Body<'_, W>) -> Result<()>,
    ) -> Result<()> {
        if name.is_empty() {
            return Err(damaged("section name", "1 to 255 bytes", "none"));
        }
        self.section(name, length, write).at_caller()
    }

    fn section(
        &mut self,
        name: &str,
        length: u64,
        write: impl FnOnce(&mut Body<'_, W>) -> Result<()>,
    ) -> Result<()> {
        let bytes = u8::try_from(name.len())
            .map_err(|_| damaged("section name", "1 to 255 bytes", format!("{} bytes", name.len())))?;
        let mut head = vec![bytes];
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(&length.to_le_bytes());
        self.put(&head)?;
        self.put(&crc32fast::hash(&head).to_le_bytes())?;
        let mut body = Body { writer: self, sum: Hasher::new(), left: length };
        write(&mut body)?;
        let (left, sum) = (body.left, body.sum.finalize());
        if left > 0 {
            let got = format!("{left} bytes fewer");
            return Err(damaged(format!("body of section `{name}`"), format!("{length} bytes"), got));
        }
        self.put(&sum.to_le_bytes())
    }

    /// Writes the section that marks the end of the file, and returns the output.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    #[track_caller]
    pub fn finish(mut self) -> Result<W> {
        self.section("", 0, |_| Ok(())).at_caller()?;
        self.out.flush().map_err(|e| unwritable(&self.target, &e)).at_caller()?;
        Ok(self.out)
    }
}

/// Reads a file section by section. Every checksum is verified, even in sections that are skipped.
pub struct Reader<R> {
    source: String,
    input: R,
    /// The size of the file in bytes.
    size: u64,
    left: u64,
    /// The section whose body is being read; `None` before the first section and between sections.
    open: Option<Open>,
    done: bool,
}

/// A section whose body is being read.
struct Open {
    name: String,
    /// The number of bytes of the body that are not read yet.
    left: u64,
    sum: Hasher,
}

/// A reader of the body of the open section, from which a record is decoded.
struct BodyReader<'a, R> {
    reader: &'a mut Reader<R>,
    failed: Option<Error>,
}

impl<R: Read> Read for BodyReader<'_, R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.reader.section_left()).unwrap_or(usize::MAX);
        let n = bytes.len().min(left);
        match self.reader.read(&mut bytes[..n]) {
            Ok(()) => Ok(n),
            Err(e) => Err(io::Error::other(self.failed.insert(e).to_string())),
        }
    }
}

impl<R: Read> Reader<R> {
    /// Starts to read a file of `size` bytes; `source` is the name of the file in error messages.
    ///
    /// # Errors
    /// Fails if the input is not a file of this crate, or has another format version.
    #[track_caller]
    pub fn new(source: &str, input: R, size: u64) -> Result<Self> {
        let source = source.to_owned();
        let mut reader = Self { source, input, size, left: size, open: None, done: false };
        let mut first = [0; MAGIC.len()];
        let known = usize::try_from(size).map_or(MAGIC.len(), |size| size.min(MAGIC.len()));
        reader.fill(&mut first[..known], "first bytes").at_caller()?;
        if size == 0 || first[..known] != MAGIC[..known] {
            let got = if size == 0 { "an empty file" } else { "a file of another format" };
            return Err(reader.refused("first bytes", "a file of `unpadded`", got));
        }
        if size < SMALLEST {
            let got = format!("{size}: the file is cut short");
            return Err(reader.refused("size", format!("at least {SMALLEST} bytes"), got));
        }
        let version = u32::from_le_bytes(reader.take("the format version").at_caller()?);
        if version != VERSION {
            let why = if version == 0 {
                "the file is damaged"
            } else {
                "read the file with the release of `unpadded` that wrote it"
            };
            return Err(reader.refused("format version", VERSION.to_string(), format!("{version}: {why}")));
        }
        Ok(reader)
    }

    /// Returns the error that the file does not contain what was expected; the message begins with the name of the
    /// file.
    #[track_caller]
    pub fn refused(&self, what: &str, expected: impl Into<String>, got: impl Into<String>) -> Error {
        damaged(format!("{}: {what}", self.source), expected, got)
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<()> {
        let n = bytes.len() as u64;
        if n > self.left {
            return Err(self.short(what, n));
        }
        match self.input.read_exact(bytes) {
            Ok(()) => self.left -= n,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(self.short(what, n)),
            Err(e) => {
                return Err(Error::io(format!("{}: {what}", self.source), "read", &e));
            }
        }
        Ok(())
    }

    #[track_caller]
    fn short(&self, what: &str, wanted: u64) -> Error {
        let got = format!("{} of the file's {}: it is cut short, or damaged", self.left, self.size);
        self.refused(what, format!("{wanted} more bytes"), got)
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// Starts the next section and returns its name; `None` at the end of the file. Unread bytes of the previous
    /// section are skipped.
    ///
    /// # Errors
    /// Fails if the file is damaged.
    #[track_caller]
    pub fn next_section(&mut self) -> Result<Option<&str>> {
        if self.open.is_some() {
            self.end_section()?;
        }
        if self.done {
            return Ok(None);
        }
        let mut head = vec![self.take::<1>("length of a section name").at_caller()?[0]];
        let length = usize::from(head[0]);
        head.resize(1 + length + 8, 0);
        self.fill(&mut head[1..], "head of a section").at_caller()?;
        let sum = u32::from_le_bytes(self.take("checksum of a section head").at_caller()?);
        self.check("head of a section", crc32fast::hash(&head), sum).at_caller()?;
        let (name, size) = head[1..].split_at(length);
        let name = String::from_utf8(name.to_vec())
            .map_err(|_| self.refused("section name", "text", "bytes that are no UTF-8"))
            .at_caller()?;
        let size = size.iter().rev().fold(0, |size, &byte| size << 8 | u64::from(byte));
        if length == 0 && size > 0 {
            return Err(self.refused("end section", "0 bytes", format!("{size} bytes")));
        }
        if size.checked_add(4).is_none_or(|size| size > self.left) {
            return Err(self.short(&format!("section `{name}`"), size.saturating_add(4)));
        }
        self.open = Some(Open { name, left: size, sum: Hasher::new() });
        if length == 0 {
            self.end_section()?;
            self.done = true;
            if self.left > 0 {
                return Err(self.refused(
                    "end section",
                    "the end of the file after it",
                    format!("{} more bytes", self.left),
                ));
            }
        }
        Ok(self.open.as_ref().map(|open| open.name.as_str()))
    }

    /// Returns the number of bytes of the open section's body that are not read yet. At least this number of bytes
    /// remains in the file.
    pub fn section_left(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.left)
    }

    /// Fills `bytes` with the next bytes of the open section's body. The checksum is not verified before
    /// [`Self::end_section`].
    ///
    /// # Errors
    /// Fails if fewer bytes of the body are left, or if the file cannot be read.
    #[track_caller]
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Err(self.refused("section", "an open section (call `next_section` first)", "none"));
        };
        let what = format!("section `{}`", open.name);
        let n = bytes.len() as u64;
        let outcome = if n > open.left {
            Err(self.refused(&what, format!("{n} more bytes"), open.left.to_string()))
        } else {
            self.fill(bytes, &what).map(|()| {
                open.left -= n;
                open.sum.update(bytes);
            })
        };
        self.open = Some(open);
        outcome.at_caller()
    }

    /// Reads the next `count` bytes of the open section's body. Memory is allocated piece by piece, so a forged
    /// `count` cannot allocate much more memory than the file has bytes.
    ///
    /// # Errors
    /// Fails as [`Self::read`] does.
    #[track_caller]
    pub fn read_bytes(&mut self, count: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while (bytes.len() as u64) < count {
            let (start, left) = (bytes.len(), count - bytes.len() as u64);
            let more = usize::try_from(left).unwrap_or(PIECE).min(PIECE);
            reserve::items(&mut bytes, more, "section of a file").at_caller()?;
            bytes.resize(start + more, 0);
            self.read(&mut bytes[start..])?;
        }
        Ok(bytes)
    }

    /// Reads the whole body of the section whose name [`Self::next_section`] returned.
    ///
    /// # Errors
    /// Fails if the file is damaged, or if the body is longer than [`LONGEST`].
    #[track_caller]
    #[cfg(feature = "internals")]
    pub fn read_section(&mut self) -> Result<Vec<u8>> {
        self.at_most(LONGEST).at_caller()?;
        let body = self.read_bytes(self.section_left()).at_caller()?;
        self.end_section()?;
        Ok(body)
    }

    /// Decodes the whole body of the section whose name [`Self::next_section`] returned. The body is decoded while it
    /// is read, so a malformed field is refused before later fields take memory.
    ///
    /// # Errors
    /// Fails if the file is damaged, if the body is longer than `most` bytes, or if the body does not encode a `T`.
    #[track_caller]
    pub(crate) fn read_stored<T: FieldType>(&mut self, most: u64) -> Result<T> {
        self.at_most(most).at_caller()?;
        let what = format!("section `{}`", self.open.as_ref().map_or("", |open| &open.name));
        let size = self.section_left();
        let mut body = BodyReader { reader: self, failed: None };
        let mut pieces = BufReader::with_capacity(PIECE.min(size as usize), &mut body);
        let value = record::from_read(&mut pieces, size);
        let unused = pieces.buffer().len() as u64;
        if let Some(error) = body.failed {
            return Err(error);
        }
        let left = unused + self.section_left();
        // The checksum is verified before an error of the decoding is returned: if bytes are damaged, the error about
        // the checksum helps more.
        self.end_section()?;
        let value = value.and_then(|value| if left > 0 { Err(longer(size, left)) } else { Ok(value) });
        value.map_err(|e| self.refused(&what, "what this release writes there", format!("{e:#}")))
    }

    /// Checks that the body of the open section has at most `most` bytes.
    fn at_most(&self, most: u64) -> Result<()> {
        let Some(Open { name, left, .. }) = self.open.as_ref().filter(|open| open.left > most) else {
            return Ok(());
        };
        Err(self.refused(&format!("section `{name}`"), format!("at most {most} bytes"), left.to_string()))
    }

    /// Skips the rest of the open section's body, and verifies the checksum of the body.
    ///
    /// # Errors
    /// Fails if the file is damaged.
    #[track_caller]
    pub fn end_section(&mut self) -> Result<()> {
        let mut piece = vec![0; PIECE.min(usize::try_from(self.section_left()).unwrap_or(PIECE))];
        while self.section_left() > 0 {
            let n = piece.len().min(usize::try_from(self.section_left()).unwrap_or(PIECE));
            self.read(&mut piece[..n])?;
        }
        let Some(open) = self.open.take() else {
            return Err(self.refused("section", "an open section (call `next_section` first)", "none"));
        };
        let what = format!("section `{}`", open.name);
        let stored = u32::from_le_bytes(self.take(&what).at_caller()?);
        self.check(&what, open.sum.finalize(), stored).at_caller()
    }

    fn check(&self, what: &str, computed: u32, stored: u32) -> Result<()> {
        if computed == stored {
            return Ok(());
        }
        let got = format!("{computed:08x}: the file is damaged");
        Err(self.refused(what, format!("checksum {stored:08x}"), got))
    }
}

fn unwritable(target: &str, error: &io::Error) -> Error {
    Error::io(target, "write", error)
}

/// Opens a file of this crate for reading.
///
/// # Errors
/// Fails if the file cannot be opened, or if [`Reader::new`] fails.
#[track_caller]
pub fn open(path: &Path) -> Result<Reader<BufReader<File>>> {
    let source = format!("file `{}`", path.display());
    let failed = |e: io::Error| Error::io(&source, "read", &e);
    // Only a regular file is opened, because opening a pipe would wait for a writer.
    if !fs::metadata(path).map_err(failed).at_caller()?.is_file() {
        return Err(Error::of(ErrorKind::Io, source, "a file", "a folder or a device"));
    }
    let file = File::open(path).map_err(failed).at_caller()?;
    let size = file.metadata().map_err(failed).at_caller()?.len();
    Reader::new(&source, BufReader::new(file), size)
}

#[cfg(test)]
mod tests;
