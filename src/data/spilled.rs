//! Token ids in a temporary file, for texts that are larger than memory.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::{Error, Result};
use crate::reserve;

/// A temporary file. On Unix, the file's name is removed right after the file is opened; elsewhere, the file is removed
/// when this value is dropped.
#[derive(Debug)]
struct Temporary {
    path: PathBuf,
    /// Whether the file still has a name in its folder and must be removed on drop.
    named: bool,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if self.named {
            drop(std::fs::remove_file(&self.path));
        }
    }
}

/// A writer of token ids to a temporary file; each id is written with as many bytes as the largest possible id needs.
pub(super) struct Spilling {
    file: BufWriter<File>,
    temporary: Temporary,
    width: usize,
    len: usize,
}

/// A reader of the token ids in a temporary file.
#[derive(Debug)]
pub(super) struct SpilledIds {
    // The field `file` is declared first, so that the file is closed before it is removed.
    file: Mutex<File>,
    temporary: Temporary,
    width: usize,
    pub(super) len: usize,
}

fn failed(path: &std::path::Path, what: &'static str, error: &std::io::Error) -> Error {
    let folder = path.parent().map_or_else(String::new, |folder| folder.display().to_string());
    Error::io(format!("temporary file `{}`", path.display()), what, error)
        .noted(format!("set `TMPDIR` to use another folder than `{folder}`"))
}

impl Spilling {
    /// Creates a temporary file for ids that are less than `below`.
    pub(super) fn new(below: usize) -> Result<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let width = match below {
            0..=0x100 => 1,
            0x101..=0x1_0000 => 2,
            _ => 4,
        };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("unpadded-ids-{}-{number}", std::process::id()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|e| failed(&path, "create", &e))?;
        // The file's name is removed while the file is open, so that a killed process leaves no file behind.
        let named = !(cfg!(unix) && std::fs::remove_file(&path).is_ok());
        let temporary = Temporary { path, named };
        Ok(Self { file: BufWriter::with_capacity(1 << 16, file), temporary, width, len: 0 })
    }

    pub(super) fn push(&mut self, id: u32) -> Result<()> {
        let bytes = id.to_le_bytes();
        let (own, rest) = bytes.split_at_checked(self.width).unwrap_or((&bytes, &[]));
        if rest.iter().any(|&byte| byte != 0) {
            let expected = format!("an id of at most {} bytes, as `below` says", self.width);
            return Err(Error::new(format!("id {} of a text", self.len), expected, id.to_string()));
        }
        self.len += 1;
        self.file.write_all(own).map_err(|e| failed(&self.temporary.path, "write", &e))
    }

    /// Ends the writing, and returns a reader of the written ids.
    pub(super) fn end(self) -> Result<SpilledIds> {
        let Self { file, temporary, width, len } = self;
        let file = file.into_inner().map_err(|e| failed(&temporary.path, "write", e.error()))?;
        Ok(SpilledIds { file: Mutex::new(file), temporary, width, len })
    }
}

impl SpilledIds {
    /// Reads the ids at the positions `places` of the text, and appends them to `ids`.
    pub(super) fn read(&self, places: Range<usize>, ids: &mut Vec<i64>) -> Result<()> {
        let size = |number: usize| number.saturating_mul(self.width);
        let mut bytes = reserve::vector(size(places.len()), "ids of a text")?;
        bytes.resize(size(places.len()), 0);
        reserve::items(ids, places.len(), "ids of a text")?;
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        let read =
            file.seek(SeekFrom::Start(size(places.start) as u64)).and_then(|_| file.read_exact(&mut bytes));
        read.map_err(|e| failed(&self.temporary.path, "read", &e))?;
        ids.extend(
            bytes
                .chunks_exact(self.width)
                .map(|own| own.iter().rev().fold(0, |id, &byte| (id << 8) | i64::from(byte))),
        );
        Ok(())
    }
}
