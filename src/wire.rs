//! Files: framing, checksums and bounded decoding, the same for programs and checkpoints.
//!
//! ```text
//! file    = "unpadded" | format version u32 | section... | section named "" of length 0
//! section = length of name u8 | name | length of body u64 | crc32 of these u32 | body | crc32 of body u32
//! ```
//!
//! Numbers are little-endian. The empty section marks the end, so that a file cut between two sections is noticed
//! too. A body is any bytes; [`encode`] and [`decode`] make it from a value and back, through bincode with integers
//! of fixed width. This file knows nothing of programs or tensors, and no other file names bincode.
//!
//! **What belongs to the format version:** bincode writes the fields of a struct in their order and the variants of
//! an enum by their position. Closed lists that are likely to grow (dtypes, storages, roles) and operator kinds,
//! slots, attributes and initialisers are stored by name. Structure is stored by position: the order of the fields
//! of `Program`, `Block`, `OpDesc`, `StepDesc`, `VarDesc` and `Spec`, and of the variants of `Extent`, `VarKind` and
//! `Literal`, is part of [`VERSION`]; whoever changes it raises the version.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use bincode::config::{Configuration, Fixint, LittleEndian, standard};
use crc32fast::Hasher;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{Error, ErrorKind, Result};

/// The first bytes of every file.
pub const MAGIC: [u8; 8] = *b"unpadded";
/// The version that is written, and the last one that is read.
pub const VERSION: u32 = 1;

/// Bytes that are copied at once; memory for a body grows as its bytes arrive.
const PIECE: usize = 1 << 16;

const CONFIG: Configuration<LittleEndian, Fixint> = standard().with_fixed_int_encoding();

/// A value as bytes.
///
/// # Errors
/// If the value refuses to be written.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    bincode::serde::encode_to_vec(value, CONFIG)
        .map_err(|e| Error::of(ErrorKind::Format, "encoding", "a value that can be stored", e.to_string()))
}

/// A value from bytes, all of them. No length inside is believed: nothing larger than about sixteen times the bytes
/// is allocated for it.
///
/// # Errors
/// If the bytes are not those of such a value, or longer than 256 MiB.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    // bincode takes its limit as a constant, so the next of four steps serves.
    let decoded = match bytes.len() {
        0..=0x1_0000 => bincode::serde::decode_from_slice(bytes, CONFIG.with_limit::<0x1_0000>()),
        0x1_0001..=0x10_0000 => bincode::serde::decode_from_slice(bytes, CONFIG.with_limit::<0x10_0000>()),
        0x10_0001..=0x100_0000 => bincode::serde::decode_from_slice(bytes, CONFIG.with_limit::<0x100_0000>()),
        0x100_0001..=0x1000_0000 => {
            bincode::serde::decode_from_slice(bytes, CONFIG.with_limit::<0x1000_0000>())
        }
        n => return Err(damaged("structured section", "at most 256 MiB", format!("{n} bytes"))),
    };
    let (value, used): (T, usize) =
        decoded.map_err(|e| damaged("structured section", "a value of this version", e.to_string()))?;
    if used != bytes.len() {
        return Err(damaged("structured section", format!("{used} bytes"), format!("{} bytes", bytes.len())));
    }
    Ok(value)
}

fn damaged(what: impl Into<String>, expected: impl Into<String>, got: impl Into<String>) -> Error {
    Error::of(ErrorKind::Format, what, expected, got)
}

/// Writes a file section by section.
pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    /// Starts a file.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn new(mut out: W) -> Result<Self> {
        out.write_all(&MAGIC)?;
        out.write_all(&VERSION.to_le_bytes())?;
        Ok(Self { out })
    }

    /// Writes a section.
    ///
    /// # Errors
    /// If the name is empty or longer than 255 bytes, or `out` cannot be written.
    pub fn write_section(&mut self, name: &str, body: &[u8]) -> Result<()> {
        if name.is_empty() {
            return Err(damaged("section name", "1 to 255 bytes", "none"));
        }
        self.section(name, body)
    }

    fn section(&mut self, name: &str, body: &[u8]) -> Result<()> {
        let length = u8::try_from(name.len())
            .map_err(|_| damaged("section name", "1 to 255 bytes", format!("{} bytes", name.len())))?;
        let mut head = vec![length];
        head.extend_from_slice(name.as_bytes());
        head.extend_from_slice(&(body.len() as u64).to_le_bytes());
        self.out.write_all(&head)?;
        self.out.write_all(&crc32fast::hash(&head).to_le_bytes())?;
        self.out.write_all(body)?;
        self.out.write_all(&crc32fast::hash(body).to_le_bytes())?;
        Ok(())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If `out` cannot be written.
    pub fn finish(mut self) -> Result<W> {
        self.section("", &[])?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads a file section by section; every checksum is checked, also of what is skipped.
pub struct Reader<R> {
    source: String,
    input: R,
    /// Bytes of the file that are not read yet.
    left: u64,
    /// Name and length of the section whose body comes next.
    open: Option<(String, u64)>,
    done: bool,
}

impl<R: Read> Reader<R> {
    /// Starts to read `size` bytes; `source` is what errors call them.
    ///
    /// # Errors
    /// If it is no file of this crate or one of a future version.
    pub fn new(source: &str, input: R, size: u64) -> Result<Self> {
        let mut reader = Self { source: source.to_owned(), input, left: size, open: None, done: false };
        if size < MAGIC.len() as u64 || reader.take::<8>("its first bytes")? != MAGIC {
            return Err(reader.error("first bytes", "a file of `unpadded`", "a foreign file"));
        }
        let version = u32::from_le_bytes(reader.take("the format version")?);
        if version == 0 || version > VERSION {
            let expected = format!("1 to {VERSION}: a newer release may read it");
            return Err(reader.error("format version", expected, version.to_string()));
        }
        Ok(reader)
    }

    fn error(&self, what: &str, expected: impl Into<String>, got: impl Into<String>) -> Error {
        damaged(format!("{}: {what}", self.source), expected, got)
    }

    fn fill(&mut self, bytes: &mut [u8], what: &str) -> Result<()> {
        let short = |reader: &Self| reader.error(what, "more bytes", "the end: the file is cut short");
        if bytes.len() as u64 > self.left {
            return Err(short(self));
        }
        match self.input.read_exact(bytes) {
            Ok(()) => self.left -= bytes.len() as u64,
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(short(self)),
            Err(e) => {
                return Err(Error::of(
                    ErrorKind::Io,
                    format!("reading {}", self.source),
                    "to succeed",
                    e.to_string(),
                ));
            }
        }
        Ok(())
    }

    fn take<const N: usize>(&mut self, what: &str) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes, what)?;
        Ok(bytes)
    }

    /// The name of the next section, or `None` at the end. A body that was not read is skipped.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn next_section(&mut self) -> Result<Option<&str>> {
        if self.open.is_some() {
            self.copy_section(|_| Ok(()))?;
        }
        if self.done {
            return Ok(None);
        }
        let mut head = vec![self.take::<1>("length of a section name")?[0]];
        let length = usize::from(head[0]);
        head.resize(1 + length + 8, 0);
        self.fill(&mut head[1..], "head of a section")?;
        let sum = u32::from_le_bytes(self.take("checksum of a section head")?);
        self.check("head of a section", crc32fast::hash(&head), sum)?;
        let (name, size) = head[1..].split_at(length);
        let name = String::from_utf8(name.to_vec())
            .map_err(|_| self.error("section name", "text", "bytes that are no UTF-8"))?;
        let size = size.iter().rev().fold(0, |size, &byte| size << 8 | u64::from(byte));
        if size.checked_add(4).is_none_or(|size| size > self.left) {
            let expected = format!("at most the {} bytes that are left", self.left);
            return Err(self.error(&format!("length of section `{name}`"), expected, size.to_string()));
        }
        self.open = Some((name, size));
        if length == 0 {
            self.copy_section(|_| Ok(()))?;
            self.done = true;
            if self.left > 0 {
                return Err(self.error("end", "nothing after it", format!("{} bytes", self.left)));
            }
        }
        Ok(self.open.as_ref().map(|(name, _)| name.as_str()))
    }

    /// The body of the section that [`Self::next_section`] named.
    ///
    /// # Errors
    /// If the file is damaged.
    pub fn read_section(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        self.copy_section(|piece| {
            let room = body.try_reserve(piece.len());
            room.map_err(|e| Error::of(ErrorKind::Io, "memory for a section", "to be there", e.to_string()))?;
            body.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(body)
    }

    /// Hands the body to `take` piece by piece. Only when this returns is the checksum known to be right.
    ///
    /// # Errors
    /// If the file is damaged, or what `take` returns.
    pub fn copy_section(&mut self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let Some((name, size)) = self.open.take() else {
            return Err(self.error("section", "one that is open", "none"));
        };
        let what = format!("section `{name}`");
        let mut piece = vec![0; PIECE.min(usize::try_from(size).unwrap_or(PIECE))];
        let (mut left, mut sum) = (size, Hasher::new());
        while left > 0 {
            let n = piece.len().min(usize::try_from(left).unwrap_or(PIECE));
            self.fill(&mut piece[..n], &what)?;
            sum.update(&piece[..n]);
            take(&piece[..n])?;
            left -= n as u64;
        }
        let stored = u32::from_le_bytes(self.take(&what)?);
        self.check(&what, sum.finalize(), stored)
    }

    fn check(&self, what: &str, computed: u32, stored: u32) -> Result<()> {
        if computed == stored {
            return Ok(());
        }
        let got = format!("{computed:08x}: the file is damaged");
        Err(self.error(what, format!("checksum {stored:08x}"), got))
    }
}

/// Opens a file to read.
///
/// # Errors
/// If it cannot be opened, or as [`Reader::new`].
pub fn open(path: &Path) -> Result<Reader<BufReader<File>>> {
    let source = format!("file `{}`", path.display());
    let failed = |e: io::Error| Error::of(ErrorKind::Io, &source, "to be readable", e.to_string());
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    Reader::new(&source, BufReader::new(file), size)
}

/// Writes a file whole or not at all: into a temporary file beside it, synced, then renamed over `path`.
///
/// # Errors
/// What `write` returns, or if the operating system refuses; what stood at `path` is then untouched.
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<()>,
) -> Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let failed = |e: io::Error| {
        Error::of(ErrorKind::Io, format!("file `{}`", path.display()), "to be writable", e.to_string())
    };
    let Some(name) = path.file_name() else {
        return Err(failed(io::Error::new(io::ErrorKind::InvalidInput, "the path names no file")));
    };
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
        _ => PathBuf::from("."),
    };
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut beside = std::ffi::OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.{number}.tmp", std::process::id()));
    let temporary = folder.join(beside);
    let outcome = (|| {
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(failed)?;
        let mut writer = Writer::new(BufWriter::new(file))?;
        write(&mut writer)?;
        let file = writer.finish()?.into_inner().map_err(|e| failed(e.into_error()))?;
        file.sync_all().map_err(failed)?;
        fs::rename(&temporary, path).map_err(failed)
    })();
    if outcome.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
        return outcome;
    }
    // The renamed entry itself is safe once its folder is synced; only unix can open one.
    if cfg!(unix) {
        File::open(&folder).and_then(|folder| folder.sync_all()).map_err(failed)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
