//! Reads the bytes of a file, or of text that is embedded in the program. The bytes may be compressed with gzip or zip.
//! All bytes are streamed, so a large compressed file needs no more memory than a small one.

#[cfg(feature = "parquet")]
use std::fs::File;
use std::io::{self, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;
use flate2::read::DeflateDecoder;
use unpadded::{Error, Result};
use zip::{CompressionMethod, ZipArchive};

use super::gzip::Gzip;
use super::kind;
use super::path_text::text_of_path;
use super::reason::wrong_format;
use super::watched::{FileChange, WatchedFile};

pub(crate) type Bytes = Box<dyn Read + Send>;

/// The origin of a byte stream: a file, or text that is embedded in the program.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    File(Arc<WatchedFile>),
    Embedded { name: Arc<str>, bytes: &'static [u8] },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapping {
    Plain,
    Gzip,
    Zip,
}

#[derive(Debug, Clone)]
pub(crate) struct Member {
    pub(crate) name: Arc<str>,
    /// The position in the zip at which the member's stored bytes start.
    start: u64,
    packed: u64,
    deflated: bool,
    /// The size of the member in bytes after unpacking.
    size: u64,
    sum: u32,
}

trait Seekable: Read + Seek + Send {}
impl<T: Read + Seek + Send> Seekable for T {}

impl Origin {
    /// Returns the origin for an existing file. The file must not change while the origin is used.
    pub(crate) fn file(path: &Path) -> Result<Self> {
        WatchedFile::new(path).map(|file| Self::File(Arc::new(file)))
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Self::File(file) => text_of_path(&file.path),
            Self::Embedded { name, .. } => name.to_string(),
        }
    }

    pub(crate) fn share(&self) -> Option<f32> {
        match self {
            Self::File(file) => Some(file.share()),
            Self::Embedded { .. } => None,
        }
    }

    fn refused(&self, error: &io::Error) -> Error {
        let what = format!("file `{}`", self.name());
        FileChange::of(&what, error).unwrap_or_else(|| Error::io(what, "read", error))
    }

    fn damaged(&self, got: impl Into<String>) -> Error {
        wrong_format(format!("file `{}`", self.name()), "a zip that can be read", got)
    }

    fn open(&self) -> Result<Box<dyn Seekable>> {
        Ok(match self {
            Self::File(file) => Box::new(file.open()?),
            Self::Embedded { bytes, .. } => Box::new(Cursor::new(*bytes)),
        })
    }

    /// Detects the compression from the first bytes; returns the compression, and a reader of all stored bytes.
    fn unwrap(&self) -> Result<(Wrapping, impl Read + Send + use<>)> {
        let (mut file, mut first) = (self.open()?, Vec::new());
        file.by_ref().take(4).read_to_end(&mut first).map_err(|e| self.refused(&e))?;
        let wrapping = match first[..] {
            [0x1f, 0x8b, ..] => Wrapping::Gzip,
            [b'P', b'K', 3, 4] | [b'P', b'K', 5, 6] => Wrapping::Zip,
            _ => Wrapping::Plain,
        };
        Ok((wrapping, Cursor::new(first).chain(file)))
    }

    pub(crate) fn wrapping(&self) -> Result<Wrapping> {
        self.unwrap().map(|(wrapping, _)| wrapping)
    }

    /// Opens a reader of the bytes; gzip is unpacked, a zip is not. Other files that are not text are an error.
    pub(crate) fn bytes(&self) -> Result<(Wrapping, Bytes)> {
        let (wrapping, bytes) = self.unwrap()?;
        let bytes: Bytes = match wrapping {
            Wrapping::Gzip => Box::new(Gzip::new(bytes)),
            Wrapping::Plain => Box::new(bytes),
            Wrapping::Zip => return Ok((wrapping, Box::new(bytes))),
        };
        Ok((wrapping, kind::unless(kind::foreign, &self.name(), bytes)?))
    }

    #[cfg(feature = "parquet")]
    pub(crate) fn plain(&self) -> Result<Option<File>> {
        match self {
            Self::File(file) if self.wrapping()? == Wrapping::Plain => {
                file.open().map(|opened| Some(opened.file))
            }
            _ => Ok(None),
        }
    }

    /// Lists the files of a zip, sorted by name, without the files that macOS adds to a zip.
    pub(crate) fn members(&self) -> Result<Vec<Member>> {
        let mut zip =
            ZipArchive::new(BufReader::new(self.open()?)).map_err(|e| self.damaged(e.to_string()))?;
        let mut members = Vec::new();
        for i in 0..zip.len() {
            let file = zip.by_index_raw(i).map_err(|e| self.damaged(e.to_string()))?;
            if !file.is_file() {
                continue;
            }
            let name = file.name().map_err(|e| self.damaged(e.to_string()))?;
            if debris(&name) {
                continue;
            }
            let broken = |got: String| self.damaged(format!("a zip with the member `{name}`, {got}"));
            if file.encrypted() {
                return Err(broken("which is encrypted".into()));
            }
            let deflated = match file.compression() {
                CompressionMethod::Stored => false,
                CompressionMethod::Deflated => true,
                other => return Err(broken(format!("compressed by {other}, not stored or deflated"))),
            };
            let start = file.data_start().ok_or_else(|| broken("which has no bytes".into()))?;
            let (packed, size, sum) = (file.compressed_size(), file.size(), file.crc32());
            members.push(Member { name: (&*name).into(), start, packed, deflated, size, sum });
        }
        kind::no_document(&self.name(), members.iter().map(|member| &*member.name))?;
        members.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(members)
    }

    /// Opens the unpacked bytes of a file in a zip; a file that is no text, such as a PDF document, is an error.
    pub(crate) fn member(&self, member: &Member) -> Result<Bytes> {
        let mut file = self.open()?;
        file.seek(SeekFrom::Start(member.start)).map_err(|e| self.refused(&e))?;
        let packed = BufReader::new(file.take(member.packed));
        let bytes: Bytes =
            if member.deflated { Box::new(DeflateDecoder::new(packed)) } else { Box::new(packed) };
        let summed = Summed { bytes, left: member.size, sum: Hasher::new(), expected: member.sum };
        kind::unless(kind::foreign, &format!("{}!{}", self.name(), member.name), Box::new(summed))
    }
}

/// Returns whether a part of a path is a name that macOS adds to zips and folders: `__MACOSX`, `._NAME` or `.DS_Store`.
pub(crate) fn debris(name: &str) -> bool {
    name.split('/').any(|part| part == "__MACOSX" || part.starts_with("._") || part == ".DS_Store")
}

/// A reader of a zip member's unpacked bytes. At the end, the reader checks the number of bytes and the checksum.
struct Summed {
    bytes: Bytes,
    left: u64,
    sum: Hasher,
    expected: u32,
}

impl Read for Summed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let n = self.bytes.read(into)?;
        self.sum.update(into.get(..n).unwrap_or_default());
        let ends = n == 0 && !into.is_empty();
        match self.left.checked_sub(n as u64) {
            Some(left) if !ends || left == 0 => self.left = left,
            _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "another length than the zip says")),
        }
        if ends && self.sum.clone().finalize() != self.expected {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "another checksum than the zip says"));
        }
        Ok(n)
    }
}
