//! A file that is read repeatedly and must not change between the first and the last reading. The size and the
//! modification time are checked when the file is opened. The checksum of the bytes is checked whenever a reader
//! reaches the end of the file.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use crc32fast::Hasher;
use unpadded::{Error, ErrorKind, Result};

use super::path_text::text_of_path;

/// A file, with the size and the modification time that it had when this value was made.
#[derive(Debug)]
pub(crate) struct WatchedFile {
    pub(crate) path: Box<Path>,
    size: u64,
    modified: Option<SystemTime>,
    /// The checksum of the file's bytes; unset until a reader has reached the end of the file.
    sum: OnceLock<u32>,
    /// The number of bytes that the latest reader of the file has read.
    read: AtomicU64,
}

/// The error that a file has changed; the text describes the change.
#[derive(Debug)]
pub(crate) struct FileChange(String);

impl fmt::Display for FileChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for FileChange {}

impl FileChange {
    /// Returns the error for a read that failed because the file has changed; `what` names the file in the message.
    pub(crate) fn of(what: &str, error: &io::Error) -> Option<Error> {
        let changed = error.get_ref()?.downcast_ref::<Self>()?;
        Some(changed.error(what))
    }

    fn error(&self, what: &str) -> Error {
        let expected = "the file unchanged since it was first opened";
        let got = format!(
            "{self}: a file must not change while it is read; begin again with a copy that does not change"
        );
        Error::of(ErrorKind::Io, what, expected, got)
    }
}

impl WatchedFile {
    /// Stores the size and the time of an existing file. A pipe is an error: it can be read only once.
    pub(crate) fn new(path: &Path) -> Result<Self> {
        let what = || format!("file `{}`", text_of_path(path));
        let about = fs::metadata(path).map_err(|e| Error::io(what(), "read", &e))?;
        let wrong = |expected: &str, got: &str| Err(Error::of(ErrorKind::Io, what(), expected, got));
        if about.is_dir() {
            return wrong("a file", "a folder: give the path of a file in it");
        }
        if !about.is_file() {
            let got = "a pipe or a device, which is read once only: write what comes out of it to a file, as `cat > FILE` does";
            return wrong("a file that can be read more than once", got);
        }
        let (modified, sum, read) = (about.modified().ok(), OnceLock::new(), AtomicU64::new(0));
        Ok(Self { path: path.into(), size: about.len(), modified, sum, read })
    }

    /// Checks that the metadata `now` agree with the stored size and time.
    fn change(&self, now: &Metadata) -> Result<(), FileChange> {
        let changed = |how: String| Err(FileChange(how));
        match () {
            () if now.is_dir() => changed("a folder in its place".into()),
            () if !now.is_file() => changed("a pipe or a device in its place".into()),
            () if now.len() != self.size => changed(format!("{} bytes instead of {}", now.len(), self.size)),
            () if now.modified().ok() != self.modified => {
                changed("a file that was written since then".into())
            }
            () => Ok(()),
        }
    }

    /// Opens the file for reading, after checking that it has not changed.
    ///
    /// # Errors
    /// Fails if the file was removed, replaced by something that is not a file, or changed since [`Self::new`].
    pub(crate) fn open(self: &Arc<Self>) -> Result<Reading> {
        let what = || format!("file `{}`", text_of_path(&self.path));
        let wrong = |e: io::Error| match e.kind() {
            io::ErrorKind::NotFound => FileChange("none: it was removed".into()).error(&what()),
            _ => Error::io(what(), "read", &e),
        };
        // The type of the file is checked before it is opened, because opening a pipe would wait for a writer.
        let about = fs::metadata(&self.path).map_err(wrong)?;
        self.change(&about).map_err(|e| e.error(&what()))?;
        let file = File::open(&self.path).map_err(wrong)?;
        self.read.store(0, Ordering::Relaxed);
        Ok(Reading { file, of: Arc::clone(self), sum: Some(Hasher::new()) })
    }

    pub(crate) fn share(&self) -> f32 {
        let read = self.read.load(Ordering::Relaxed);
        if self.size == 0 { 1.0 } else { (read as f64 / self.size as f64).min(1.0) as f32 }
    }
}

pub(crate) struct Reading {
    pub(crate) file: File,
    of: Arc<WatchedFile>,
    /// The checksum of the bytes so far; `None` after the end of the file, or after a seek, which skips bytes.
    sum: Option<Hasher>,
}

impl Read for Reading {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.of.read.fetch_add(read as u64, Ordering::Relaxed);
        if let Some(sum) = &mut self.sum {
            sum.update(into.get(..read).unwrap_or_default());
        }
        if read == 0
            && !into.is_empty()
            && let Some(sum) = self.sum.take()
        {
            self.of.change(&self.file.metadata()?).map_err(io::Error::other)?;
            let sum = sum.finalize();
            if *self.of.sum.get_or_init(|| sum) != sum {
                return Err(io::Error::other(FileChange("other bytes than at first".into())));
            }
        }
        Ok(read)
    }
}

impl Seek for Reading {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.sum = None;
        self.file.seek(to)
    }
}
