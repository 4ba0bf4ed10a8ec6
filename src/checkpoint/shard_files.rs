//! The files that several ranks save together: one file per rank with the rank's rows of tables, and a file that lists the rank
//! files. The list is a section of the checkpoint.
//!
//! The file with the list, which is at the path of the set, has a checksum of each rank file. The names of the rank files differ
//! from the names in the previous set, and the file with the list is written last and atomically. It therefore describes a
//! complete set at each moment.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use super::sections::{POSITION, PROGRAM, SHARDS};
use crate::error::{Error, ErrorKind, Result};
use crate::wire;
use crate::wire::record::{FieldType, Source, wrong};

/// The two names of sets: consecutive sets at one path use the names alternately.
const NAMES: [u8; 2] = *b"ab";

/// The list of rank files: the name of the set, and a checksum for each rank file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShardFiles {
    /// The name of the set, which is a part of the name of each rank file.
    pub(crate) name: u8,
    /// The checksum of each rank file, by rank; empty in a message to another rank, which has its rows already.
    pub(crate) sums: Vec<u64>,
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
            _ => Err(wrong("a name and checksums", "other values")),
        }
    }
}

impl ShardFiles {
    /// Returns an empty list, for the state in a message to a rank that has its rows already.
    pub(crate) fn none() -> Self {
        Self { name: NAMES[0], sums: Vec::new() }
    }

    /// Reads the list of the file at `path`; returns `None` if the file has no list.
    ///
    /// # Errors
    /// Returns an error if the file cannot be read, or is damaged.
    pub(crate) fn find(path: &Path) -> Result<Option<Self>> {
        let mut reader = wire::open(path)?;
        loop {
            match reader.next_section()? {
                Some(SHARDS) => break,
                // In a checkpoint, only these sections precede the list.
                Some(PROGRAM | POSITION) => reader.end_section()?,
                _ => return Ok(None),
            }
        }
        let found = reader.read_stored::<Self>(wire::STRUCTURED)?;
        while reader.next_section()?.is_some() {}
        if found.sums.is_empty() {
            return Err(reader.refused("files of the ranks", "at least one", "none"));
        }
        Ok(Some(found))
    }

    /// Returns the path of a rank file; first checks that the file has the checksum in the list.
    ///
    /// # Errors
    /// Returns an error if the file is missing, or does not have the checksum in the list.
    pub(crate) fn checked(&self, set: &Path, rank: usize) -> Result<PathBuf> {
        let path = path(set, self.name, (rank, self.sums.len()))?;
        let sum = checksum(&path).map_err(|e| {
            e.noted(format!("`{}` is a set of {} files, which lie beside it", set.display(), self.sums.len()))
        })?;
        if self.sums.get(rank) == Some(&sum) {
            return Ok(path);
        }
        let (what, expected) = (
            format!("file `{}`", path.display()),
            format!("the file of rank {rank} in the set `{}`", set.display()),
        );
        Err(Error::of(ErrorKind::Format, what, expected, "a file that is damaged, or of another set"))
    }
}

/// Returns the path of a rank file: the file of rank `rank`, of `ranks` ranks, in the set at the path `set`.
///
/// # Errors
/// Returns an error if `set` is not the path of a file.
pub(crate) fn path(set: &Path, name: u8, (rank, ranks): (usize, usize)) -> Result<PathBuf> {
    let Some(file) = set.file_name() else {
        let what = format!("file `{}`", set.display());
        return Err(Error::of(ErrorKind::Io, what, "the path of a file", "a folder"));
    };
    let mut file = file.to_owned();
    file.push(format!(".{}.{rank}-of-{ranks}", char::from(name)));
    Ok(set.with_file_name(file))
}

/// Checks that a rank file can be written: nothing but a plain file has its name, which the user has not given.
pub(crate) fn check(path: &Path) -> Result<()> {
    wire::check_plain(path).map_err(|e| {
        let what = format!("file `{}`", path.display());
        Error::of(ErrorKind::Io, what, "a plain file, or none", e.to_string())
    })
}

/// Returns the name for the next set at `path`, which differs from the name of the existing set.
///
/// # Errors
/// Returns an error if there is a file that cannot be read.
pub(crate) fn next_name(path: &Path) -> Result<u8> {
    let [first, second] = NAMES;
    match ShardFiles::find(path) {
        Ok(Some(set)) if set.name == first => Ok(second),
        // A damaged file has no set to keep.
        Err(e) if e.kind() != ErrorKind::Format && path.exists() => Err(e),
        _ => Ok(first),
    }
}

/// Removes rank files beside `path` that do not belong to `set`; `None` removes all rank files.
pub(crate) fn clear(path: &Path, set: Option<&ShardFiles>) {
    let Some(file) = path.file_name().map(|name| name.as_encoded_bytes()) else { return };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // Errors of listing or removing files are ignored, since old rank files do no harm.
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(end) =
            name.as_encoded_bytes().strip_prefix(file).and_then(|end| std::str::from_utf8(end).ok())
        else {
            continue;
        };
        let parts = end.strip_prefix('.').and_then(|end| end.split_once('.'));
        let Some((kind, Some((rank, ranks)))) = parts.map(|(kind, shard)| (kind, shard.split_once("-of-")))
        else {
            continue;
        };
        let number = |text: &str| text.parse::<usize>().ok().filter(|n| n.to_string() == text);
        let (Some(rank), Some(ranks), &[kind]) = (number(rank), number(ranks), kind.as_bytes()) else {
            continue;
        };
        let ours = set.is_some_and(|set| set.name == kind && set.sums.len() == ranks && rank < ranks);
        if NAMES.contains(&kind) && !ours {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// Computes the checksum of a file: FNV-1a of 64 bits. CRC-32 cannot be used here: all files that end with the CRC-32
/// of their preceding bytes have the same CRC-32.
///
/// # Errors
/// Returns an error if the file cannot be read.
pub(crate) fn checksum(path: &Path) -> Result<u64> {
    let failed = |e: std::io::Error| Error::io(format!("file `{}`", path.display()), "read", &e);
    check(path)?;
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
