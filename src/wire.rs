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
//! of `Program`, `Block`, `OpDesc`, `StepDesc`, `VarDesc` and `Spec`, of a checkpoint's `Position` and `Best` and of a
//! `Vocabulary`, and of the variants of `Extent`, `VarKind` and `Literal`, is part of [`VERSION`]; whoever changes it
//! raises the version. Sections of new names need no other version.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use bincode::config::{Configuration, Fixint, LittleEndian, standard};
use crc32fast::Hasher;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{AtCaller, Error, ErrorKind, Result};

/// The first bytes of every file.
pub const MAGIC: [u8; 8] = *b"unpadded";
/// The version that is written, and the last one that is read.
pub const VERSION: u32 = 1;

/// Bytes of a file without sections: none is smaller.
const SMALLEST: u64 = 8 + 4 + (1 + 8 + 4 + 4);
/// Bytes that are skipped at once.
const PIECE: usize = 1 << 16;

const CONFIG: Configuration<LittleEndian, Fixint> = standard().with_fixed_int_encoding();

/// A value as bytes.
///
/// # Errors
/// If the value refuses to be written.
#[track_caller]
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    bincode::serde::encode_to_vec(value, CONFIG)
        .map_err(|e| Error::of(ErrorKind::Format, "encoding", "a value that can be stored", e.to_string()))
        .at_caller()
}

/// A value from bytes, all of them. No length inside is believed: beyond a mebibyte, nothing larger than about
/// sixteen times the bytes is allocated for it.
///
/// # Errors
/// If the bytes are not those of such a value, or longer than 256 MiB.
#[track_caller]
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
    let (value, used): (T, usize) = decoded
        .map_err(|e| damaged("structured section", "a value of this version", e.to_string()))
        .at_caller()?;
    if used != bytes.len() {
        return Err(damaged("structured section", format!("{used} bytes"), format!("{} bytes", bytes.len())));
    }
    Ok(value)
}

#[track_caller]
fn damaged(what: impl Into<String>, expected: impl Into<String>, got: impl Into<String>) -> Error {
    Error::of(ErrorKind::Format, what, expected, got)
}

/// Writes a file section by section.
pub struct Writer<W> {
    /// What errors call the file.
    target: String,
    out: W,
}

/// The body of a section while it is written, piece by piece.
pub struct Body<'a, W> {
    writer: &'a mut Writer<W>,
    sum: Hasher,
    /// Bytes that are still to come.
    left: u64,
}

impl<W: Write> Body<'_, W> {
    /// Writes the next bytes.
    ///
    /// # Errors
    /// If they are more than was said, or cannot be written.
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
    /// Starts a file.
    ///
    /// # Errors
    /// If `out` cannot be written.
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

    /// Writes a section.
    ///
    /// # Errors
    /// If the name is empty or longer than 255 bytes, or the file cannot be written.
    #[track_caller]
    pub fn write_section(&mut self, name: &str, body: &[u8]) -> Result<()> {
        self.stream_section(name, body.len() as u64, |out| out.write(body))
    }

    /// Writes a section of `length` bytes without holding them: `write` hands them over piece by piece.
    ///
    /// # Errors
    /// If the name is empty or longer than 255 bytes, `write` hands over another number of bytes or fails, or the
    /// file cannot be written.
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
            let got = format!("{left} fewer");
            return Err(damaged(format!("body of section `{name}`"), format!("{length} bytes"), got));
        }
        self.put(&sum.to_le_bytes())
    }

    /// Ends the file.
    ///
    /// # Errors
    /// If it cannot be written.
    #[track_caller]
    pub fn finish(mut self) -> Result<W> {
        self.section("", 0, |_| Ok(())).at_caller()?;
        self.out.flush().map_err(|e| unwritable(&self.target, &e)).at_caller()?;
        Ok(self.out)
    }
}

/// Reads a file section by section; every checksum is checked, also of what is skipped.
pub struct Reader<R> {
    source: String,
    input: R,
    /// Bytes of the file, and those of them that are not read yet.
    size: u64,
    left: u64,
    /// The section whose body comes next.
    open: Option<Open>,
    done: bool,
}

/// A section whose body is being read.
struct Open {
    name: String,
    /// Bytes of the body that are not read yet.
    left: u64,
    sum: Hasher,
}

impl<R: Read> Reader<R> {
    /// Starts to read `size` bytes; `source` is what errors call them.
    ///
    /// # Errors
    /// If it is no file of this crate or one of a future version.
    #[track_caller]
    pub fn new(source: &str, input: R, size: u64) -> Result<Self> {
        let mut reader = Self { source: source.to_owned(), input, size, left: size, open: None, done: false };
        let mut first = [0; MAGIC.len()];
        let known = usize::try_from(size).map_or(MAGIC.len(), |size| size.min(MAGIC.len()));
        reader.fill(&mut first[..known], "first bytes").at_caller()?;
        if size == 0 || first[..known] != MAGIC[..known] {
            let got = if size == 0 { "an empty one" } else { "a foreign one" };
            return Err(reader.refused("first bytes", "a file of `unpadded`", got));
        }
        if size < SMALLEST {
            let got = format!("{size}: the file is cut short");
            return Err(reader.refused("size", format!("at least {SMALLEST} bytes"), got));
        }
        let version = u32::from_le_bytes(reader.take("the format version").at_caller()?);
        if version == 0 || version > VERSION {
            let expected = format!("1 to {VERSION}: a newer release may read it");
            return Err(reader.refused("format version", expected, version.to_string()));
        }
        Ok(reader)
    }

    /// The error that the file holds something else than it should; it names the file.
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
                return Err(Error::of(
                    ErrorKind::Io,
                    format!("{}: {what}", self.source),
                    "to be readable",
                    e.to_string(),
                ));
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

    /// The name of the next section, or `None` at the end. What was not read of the one before is skipped.
    ///
    /// # Errors
    /// If the file is damaged.
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
            return Err(self.refused("end", "a section without bytes", format!("one of {size}")));
        }
        if size.checked_add(4).is_none_or(|size| size > self.left) {
            return Err(self.short(&format!("section `{name}`"), size.saturating_add(4)));
        }
        self.open = Some(Open { name, left: size, sum: Hasher::new() });
        if length == 0 {
            self.end_section()?;
            self.done = true;
            if self.left > 0 {
                return Err(self.refused("end", "nothing after it", format!("{} bytes", self.left)));
            }
        }
        Ok(self.open.as_ref().map(|open| open.name.as_str()))
    }

    /// Bytes of the section's body that are not read yet: at most as many as the file still has.
    pub fn section_left(&self) -> u64 {
        self.open.as_ref().map_or(0, |open| open.left)
    }

    /// The next bytes of the section's body. They are known to be right once [`Self::end_section`] returns.
    ///
    /// # Errors
    /// If the body has fewer, or the file cannot be read.
    #[track_caller]
    pub fn read(&mut self, bytes: &mut [u8]) -> Result<()> {
        let Some(mut open) = self.open.take() else {
            return Err(self.refused("section", "one that is open", "none"));
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

    /// The whole body of the section that [`Self::next_section`] named.
    ///
    /// # Errors
    /// If the file is damaged.
    #[track_caller]
    pub fn read_section(&mut self) -> Result<Vec<u8>> {
        let (mut body, size) = (Vec::new(), usize::try_from(self.section_left()).unwrap_or(usize::MAX));
        let room = body.try_reserve_exact(size);
        room.map_err(|e| Error::of(ErrorKind::Io, "memory for a section", "to be there", e.to_string()))
            .at_caller()?;
        body.resize(size, 0);
        self.read(&mut body)?;
        self.end_section()?;
        Ok(body)
    }

    /// Skips what is left of the section's body and checks all of it.
    ///
    /// # Errors
    /// If the file is damaged.
    #[track_caller]
    pub fn end_section(&mut self) -> Result<()> {
        let mut piece = vec![0; PIECE.min(usize::try_from(self.section_left()).unwrap_or(PIECE))];
        while self.section_left() > 0 {
            let n = piece.len().min(usize::try_from(self.section_left()).unwrap_or(PIECE));
            self.read(&mut piece[..n])?;
        }
        let Some(open) = self.open.take() else {
            return Err(self.refused("section", "one that is open", "none"));
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
    Error::of(ErrorKind::Io, target, "to be writable", error.to_string())
}

/// Opens a file to read.
///
/// # Errors
/// If it cannot be opened, or as [`Reader::new`].
#[track_caller]
pub fn open(path: &Path) -> Result<Reader<BufReader<File>>> {
    let source = format!("file `{}`", path.display());
    let failed = |e: io::Error| Error::of(ErrorKind::Io, &source, "to be readable", e.to_string());
    // Asked before it is opened: to open a pipe would wait for whoever writes it.
    if !fs::metadata(path).map_err(failed).at_caller()?.is_file() {
        return Err(Error::of(ErrorKind::Io, source, "a file", "a folder or a device"));
    }
    let file = File::open(path).map_err(failed).at_caller()?;
    let size = file.metadata().map_err(failed).at_caller()?.len();
    Reader::new(&source, BufReader::new(file), size)
}

/// Writes a file whole or not at all: into a temporary file beside it, synced, then renamed over `path`. Temporary
/// files that a killed process left there for the same `path` go. If `path` is a link, the file it leads to is written.
///
/// # Errors
/// What `write` returns, if `path` is something else than a file, or if the operating system refuses; what stood at
/// `path` is then untouched.
#[track_caller]
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<()>,
) -> Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let target = format!("file `{}`", path.display());
    let failed = |e: io::Error| unwritable(&target, &e);
    let refused = |got: &str| Err(Error::of(ErrorKind::Io, &target, "the path of a file", got));
    // To rename over a link would replace the link, and over a device the device.
    let led;
    let path = match fs::symlink_metadata(path) {
        Ok(about) if about.is_symlink() => match fs::canonicalize(path) {
            Ok(file) => {
                led = file;
                &led
            }
            Err(_) => return refused("a link that leads nowhere").at_caller(),
        },
        _ => path,
    };
    let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
        return refused("that of a folder").at_caller();
    };
    if path.exists() && !path.is_file() {
        return refused("that of a device or a pipe").at_caller();
    }
    let folder = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !folder.is_dir() {
        let got = format!("none at `{}`", folder.display());
        return Err(Error::of(ErrorKind::Io, target, "a folder to write it in", got));
    }
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut beside = OsString::from(".");
    beside.push(name);
    beside.push(format!(".{}.{number}.tmp", std::process::id()));
    let temporary = folder.join(beside);
    let outcome = (|| {
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary).map_err(failed)?;
        let mut writer = Writer::named(&target, BufWriter::new(file))?;
        write(&mut writer)?;
        let file = writer.finish()?.into_inner().map_err(|e| failed(e.into_error()))?;
        file.sync_all().map_err(failed)?;
        fs::rename(&temporary, path).map_err(failed)
    })();
    if outcome.is_err() {
        // The first error is the one to report.
        let _ = fs::remove_file(&temporary);
        return outcome.at_caller();
    }
    clear(folder, name);
    // The renamed entry itself is safe once its folder is synced; only unix can open one.
    if cfg!(unix) {
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(failed).at_caller()?;
    }
    Ok(())
}

/// Removes temporary files of other processes for the file `name`. One that is still at work gets an error when it
/// renames its own, and writes nothing half.
fn clear(folder: &Path, name: &OsStr) {
    let (Some(name), Ok(entries)) = (name.to_str(), fs::read_dir(folder)) else { return };
    let own = std::process::id().to_string();
    for entry in entries.flatten() {
        let file = entry.file_name();
        let middle = file.to_str().and_then(|file| {
            file.strip_prefix('.')?
                .strip_prefix(name)?
                .strip_prefix('.')?
                .strip_suffix(".tmp")?
                .split_once('.')
        });
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if middle.is_some_and(|(process, number)| digits(process) && digits(number) && process != own) {
            // Whether it goes or not, the file that was asked for is written.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
