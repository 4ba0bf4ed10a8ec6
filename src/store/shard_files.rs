//! The files of a store that several ranks save: one for each rank, and the file that makes them a set.
//!
//! The file at the path of the set names the others and has a checksum of each. It is written last, in one piece, and the files that it
//! names are not those of the set before: at each moment the path leads to one set, whole.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::error::{Error, ErrorKind, Result};
use crate::wire;
use crate::wire::record::{FieldType, Source, to_bytes, wrong};

/// The one section of the file at the path of a set.
const SECTION: &str = "shards";

/// The names that sets have in turns.
const NAMES: [u8; 2] = *b"ab";

/// The files of the ranks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ShardFiles {
    /// Which of the names they have.
    name: u8,
    /// By rank, the checksum of its file.
    sums: Vec<u64>,
}

impl FieldType for ShardFiles {
    fn put(&self, out: &mut Vec<u8>) {
        u32::from(self.name).put_field(1, out);
        self.sums.put_field(2, out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        let (mut name, mut sums) = (None, None);
        while let Some(field) = from.field()? {
            match field {
                1 => from.once::<u32>(&mut name, "the name")?,
                2 => from.once(&mut sums, "the checksums")?,
                _ => from.skip()?,
            }
        }
        let name = name.and_then(|name| NAMES.into_iter().find(|known| u32::from(*known) == name));
        match (name, sums) {
            (Some(name), Some(sums)) => Ok(Self { name, sums }),
            _ => Err(wrong("a name and checksums", "others")),
        }
    }
}

impl ShardFiles {
    /// The set that `path` leads to; `None` if it is a file of one store.
    ///
    /// # Errors
    /// If it cannot be read, or is damaged.
    pub(super) fn find(path: &Path) -> Result<Option<Self>> {
        let mut reader = wire::open(path)?;
        if reader.next_section()? != Some(SECTION) {
            return Ok(None);
        }
        let found = reader.read_stored::<Self>(wire::STRUCTURED)?;
        while reader.next_section()?.is_some() {}
        if found.sums.is_empty() {
            return Err(reader.refused("files of the ranks", "at least one", "none"));
        }
        Ok(Some(found))
    }

    /// The number of ranks.
    pub(super) fn len(&self) -> usize {
        self.sums.len()
    }

    /// The path of a rank's file, which is as it was when the set was written.
    ///
    /// # Errors
    /// If it is missing, or another.
    pub(super) fn checked(&self, set: &Path, rank: usize) -> Result<PathBuf> {
        let path = path(set, self.name, (rank, self.sums.len()))?;
        let sum = checksum(&path).map_err(|e| {
            e.noted(format!("`{}` is a set of {} files, which lie beside it", set.display(), self.sums.len()))
        })?;
        if self.sums.get(rank) == Some(&sum) {
            return Ok(path);
        }
        let (what, expected) = (
            format!("file `{}`", path.display()),
            format!("that of rank {rank} in the set `{}`", set.display()),
        );
        Err(Error::of(ErrorKind::Format, what, expected, "one that is damaged, or of another set"))
    }
}

/// The path of a rank's file.
///
/// # Errors
/// If `set` is no path of a file.
pub(super) fn path(set: &Path, name: u8, (rank, ranks): (usize, usize)) -> Result<PathBuf> {
    let Some(file) = set.file_name() else {
        let what = format!("file `{}`", set.display());
        return Err(Error::of(ErrorKind::Io, what, "the path of a file", "that of a folder"));
    };
    let mut file = file.to_owned();
    file.push(format!(".{}.{rank}-of-{ranks}", char::from(name)));
    Ok(set.with_file_name(file))
}

/// The name for the files of the next set at `path`: not that of the one that is there.
pub(super) fn next_name(path: &Path) -> u8 {
    let [first, second] = NAMES;
    match ShardFiles::find(path) {
        Ok(Some(set)) if set.name == first => second,
        _ => first,
    }
}

/// Writes the file of a set, and removes those of ranks that are no longer of it.
///
/// # Errors
/// If it cannot be written.
pub(super) fn write(path: &Path, name: u8, sums: Vec<u64>) -> Result<()> {
    let set = ShardFiles { name, sums };
    wire::write_atomically(path, |out| out.write_section(SECTION, &to_bytes(&set)))?;
    clear(path, Some(&set));
    Ok(())
}

/// Removes files of ranks beside `path` that are not of this set.
pub(super) fn clear(path: &Path, set: Option<&ShardFiles>) {
    let Some(file) = path.file_name().map(|name| name.as_encoded_bytes()) else { return };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // What cannot be listed or removed is in nobody's way.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(end) =
            name.as_encoded_bytes().strip_prefix(file).and_then(|end| std::str::from_utf8(end).ok())
        else {
            continue;
        };
        let parts = end.strip_prefix('.').and_then(|end| end.split_once('.'));
        let Some((kind, Some((rank, ranks)))) = parts.map(|(kind, of)| (kind, of.split_once("-of-"))) else {
            continue;
        };
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| n.to_string() == text);
        let (Some(rank), Some(ranks), &[kind]) = (number(rank), number(ranks), kind.as_bytes()) else {
            continue;
        };
        let ours = set.is_some_and(|set| set.name == kind && set.len() == ranks && rank < ranks);
        if NAMES.contains(&kind) && !ours {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The checksum of a file: FNV-1a of 64 bits. A CRC is of no use here, as that of a body with its own CRC behind it is always the same.
///
/// # Errors
/// If it cannot be read.
pub(super) fn checksum(path: &Path) -> Result<u64> {
    let failed = |e: std::io::Error| Error::io(format!("file `{}`", path.display()), "read", &e);
    let mut file = File::open(path).map_err(failed)?;
    let (mut sum, mut piece) = (0xcbf2_9ce4_8422_2325_u64, vec![0; 1 << 16]);
    loop {
        let read = file.read(&mut piece).map_err(failed)?;
        let bytes = piece.get(..read).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(sum);
        }
        sum =
            bytes.iter().fold(sum, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3));
    }
}
