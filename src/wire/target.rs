//! Where a file is written: whole or not at all, under names that cannot collide, and by one training at a time.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};

use super::{MAGIC, Writer, unwritable};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// Writes a file whole or not at all: into a temporary file beside it, synced, then renamed over `path`. A file that
/// was there hands on its permissions. Temporary files that killed processes left there for the same `path` go. If
/// `path` is a link, the file it leads to is written.
///
/// # Errors
/// What `write` returns, if `path` is something else than a file, or if the operating system refuses; what stood at
/// `path` is then untouched.
#[track_caller]
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<()>,
) -> Result<()> {
    Target::find(path).at_caller()?.write(write).at_caller()
}

/// A file that is to be written, once or again.
pub(crate) struct Target {
    /// What errors call it.
    shown: String,
    /// Absolute and free of links, so that it stays the same file if the process changes its directory.
    folder: PathBuf,
    name: OsString,
    path: PathBuf,
    lock: Option<Lock>,
}

/// A locked file beside a target. The lock dies with its process; the file may stay, and is then the next one's.
struct Lock {
    file: File,
    path: PathBuf,
}

impl Target {
    /// What `path` leads to; nothing is made yet.
    ///
    /// # Errors
    /// If it is something else than a file, or there is no folder for it.
    pub(crate) fn find(path: &Path) -> Result<Self> {
        let shown = format!("file `{}`", path.display());
        let failed = |e: io::Error| unwritable(&shown, &e);
        let refused = |got: &str| Err(Error::of(ErrorKind::Io, &shown, "the path of a file", got));
        // To rename over a link would replace the link, and over a device the device.
        let led;
        let path = match fs::symlink_metadata(path) {
            Ok(about) if about.is_symlink() => match fs::canonicalize(path) {
                Ok(file) => {
                    led = file;
                    &led
                }
                Err(_) => return refused("a link that leads nowhere"),
            },
            _ => path,
        };
        let named = !path.is_dir() && !path.to_string_lossy().ends_with(std::path::is_separator);
        let Some(name) = path.file_name().filter(|_| named) else {
            return refused("the path of a folder");
        };
        if path.exists() && !path.is_file() {
            return refused("the path of a device or a pipe");
        }
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        if !folder.is_dir() {
            let got = format!("none at `{}`", folder.display());
            return Err(Error::of(ErrorKind::Io, shown, "a folder to write it in", got));
        }
        let folder = fs::canonicalize(folder).map_err(failed)?;
        Ok(Self { path: folder.join(name), name: name.to_owned(), folder, shown, lock: None })
    }

    /// Whether both are the same file.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.path == other.path
    }

    /// Locks the file for this target until it is dropped; without a lock where the file system has no locks.
    ///
    /// # Errors
    /// If another one has it, in this process or another.
    pub(crate) fn lock(mut self) -> Result<Self> {
        let path = self.beside("lock");
        // Who lets go removes the file, so what was opened may be gone when its lock is there.
        for _ in 0..100 {
            let opened = match lockable(&path) {
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    File::options().read(true).write(true).create_new(true).open(&path)
                }
                opened => opened,
            };
            let file = match opened {
                Ok(file) => file,
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue,
                // The write will report what prevents writing.
                Err(_) => break,
            };
            match file.try_lock() {
                Ok(()) if leads_to(&path, &file) => {
                    self.lock = Some(Lock { file, path });
                    break;
                }
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let got = format!(
                        "one that holds `{}`: wait until it ends, stop it, or save to another file",
                        path.display()
                    );
                    return Err(Error::of(
                        ErrorKind::Io,
                        &self.shown,
                        "no other training that saves to it",
                        got,
                    ));
                }
                // A file system without locks.
                Err(TryLockError::Error(_)) => {
                    let _ = fs::remove_file(&path);
                    break;
                }
            }
        }
        Ok(self)
    }

    /// Tries what a write will have to do, so that what forbids it is known before hours of work.
    ///
    /// # Errors
    /// If no file can be made in the folder; if there is a file that cannot be replaced, or is none of this crate.
    pub(crate) fn check(&self) -> Result<()> {
        self.clear();
        let wrong = |expected: &str, got: &str| Err(Error::of(ErrorKind::Io, &self.shown, expected, got));
        let tried = self.temporary(false).and_then(|(_, temporary)| fs::remove_file(temporary));
        if let Err(e) = tried {
            if e.kind() == io::ErrorKind::InvalidFilename {
                let expected = "a shorter name, as a temporary one beside it has 22 bytes more";
                return wrong(expected, &format!("{} bytes", self.name.len()));
            }
            return wrong("a folder that files can be written in", &format!("one where that fails: {e}"));
        }
        if !self.path.exists() {
            return Ok(());
        }
        // To rename over a file needs what its removal needs: in a sticky folder, to own it; and no attribute against
        // it. Removal as a folder asks for that first, and never removes a file.
        if let Err(e) = fs::remove_dir(&self.path)
            && e.kind() == io::ErrorKind::PermissionDenied
        {
            let got = format!("another user's or an immutable one: {e}");
            return wrong("a file that may be replaced", &got);
        }
        if mounted(&self.path) {
            let got = "one that is mounted there: mount its folder in its place";
            return wrong("a file that can be replaced", got);
        }
        let mut first = Vec::new();
        let read = File::open(&self.path).and_then(|f| f.take(MAGIC.len() as u64).read_to_end(&mut first));
        let expected = "a new file, or one of `unpadded` to replace";
        match read {
            Err(e) => wrong(expected, &format!("one that cannot be read: {e}")),
            Ok(_) if first.is_empty() || first == MAGIC => Ok(()),
            Ok(_) => wrong(expected, "a foreign one; it was left as it is"),
        }
    }

    /// What [`write_atomically`] does.
    pub(crate) fn write(&self, write: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<()>) -> Result<()> {
        self.write_raw(|out| {
            let mut writer = Writer::named(&self.shown, out)?;
            write(&mut writer)?;
            writer.finish()
        })
    }

    /// Writes a file of another format: `write` writes all of it, and returns the writer that it was given.
    pub(crate) fn write_raw(
        &self,
        write: impl FnOnce(BufWriter<File>) -> Result<BufWriter<File>>,
    ) -> Result<()> {
        let failed = |e: io::Error| unwritable(&self.shown, &e);
        self.clear(); // first: it may take the room that this needs
        let replaced = fs::metadata(&self.path).ok();
        let (file, temporary) = self.temporary(replaced.is_some()).map_err(failed)?;
        let outcome = (|| {
            if let Some(replaced) = &replaced {
                hand_on(replaced, &file);
            }
            let file = write(BufWriter::new(file))?.into_inner().map_err(|e| failed(e.into_error()))?;
            file.sync_all().map_err(failed)?;
            fs::rename(&temporary, &self.path).map_err(failed)
        })();
        if outcome.is_err() {
            // The first error is the one to report.
            let _ = fs::remove_file(&temporary);
            return outcome;
        }
        // The renamed entry itself is safe once its folder is synced. Only unix can open one, if it can be read, and not
        // every file system can sync one.
        use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
        match File::open(&self.folder).and_then(|folder| folder.sync_all()) {
            Err(e) if cfg!(unix) && !matches!(e.kind(), InvalidInput | PermissionDenied | Unsupported) => {
                Err(failed(e))
            }
            _ => Ok(()),
        }
    }

    /// The path of a hidden file that belongs to this one.
    fn beside(&self, end: &str) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(&self.name);
        name.push(".");
        name.push(end);
        self.folder.join(name)
    }

    /// A new file that nobody else has, locked so that nobody takes it for what a killed process left. A private one
    /// can be read by its owner alone.
    #[cfg_attr(not(unix), allow(unused_variables))]
    fn temporary(&self, private: bool) -> io::Result<(File, PathBuf)> {
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if private {
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        loop {
            // The standard library's random numbers: process numbers are the same in every container.
            let path = self.beside(&format!("{:016x}.tmp", RandomState::new().hash_one(0)));
            match options.open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                // Before it was locked, someone may have begun to clear it away.
                Ok(file) => match file.try_lock() {
                    Err(TryLockError::WouldBlock) => {}
                    _ if !path.exists() => {}
                    _ => return Ok((file, path)),
                },
            }
        }
    }

    /// Removes temporary files whose processes have ended.
    fn clear(&self) {
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let name = self.name.as_encoded_bytes();
        for entry in entries.flatten() {
            let file = entry.file_name();
            let middle = file
                .as_encoded_bytes()
                .strip_prefix(b".")
                .and_then(|file| file.strip_prefix(name)?.strip_prefix(b".")?.strip_suffix(b".tmp"));
            let ours = |text: &[u8]| text.len() == 16 && text.iter().all(u8::is_ascii_hexdigit);
            if !middle.is_some_and(ours) {
                continue;
            }
            // Who still writes it holds its lock; this one is held until the file is gone, so that nobody takes it up.
            if let Ok(file) = lockable(&entry.path())
                && file.try_lock().is_ok()
            {
                // If it stays, it is in nobody's way.
                let _ = fs::remove_file(entry.path());
                drop(file);
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Still locked: who opened it before finds that it is gone. Elsewhere nobody can detect that, and it stays.
        if cfg!(unix) && leads_to(&self.path, &self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Opens a file to lock it. Some network file systems want one that can be written; otherwise another user's will do.
fn lockable(path: &Path) -> io::Result<File> {
    match File::options().read(true).write(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => File::open(path),
        opened => opened,
    }
}

/// Whether the path leads to this file now.
#[cfg(unix)]
fn leads_to(path: &Path, file: &File) -> bool {
    use std::os::unix::fs::MetadataExt;
    let number = |about: Metadata| (about.dev(), about.ino());
    match (fs::metadata(path), file.metadata()) {
        (Ok(there), Ok(ours)) => number(there) == number(ours),
        _ => false,
    }
}

#[cfg(not(unix))]
fn leads_to(path: &Path, _: &File) -> bool {
    path.exists()
}

/// Gives a new file the owner, the group and the mode of the one that it replaces, as far as the system allows.
#[cfg(unix)]
fn hand_on(replaced: &Metadata, file: &File) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let _ = fchown(file, Some(replaced.uid()), None);
    let mut mode = replaced.mode() & 0o777;
    if fchown(file, None, Some(replaced.gid())).is_err() {
        // What one group might do is not for another: it may what everybody may.
        mode = mode & !0o070 | (mode & 0o007) << 3;
    }
    let _ = file.set_permissions(fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn hand_on(_: &Metadata, _: &File) {}

/// Whether something is mounted at just this path, as containers do with single files: it can be written, but not replaced.
fn mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = path.to_string_lossy().replace('\\', "\\134").replace(' ', "\\040");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&path))
}

#[cfg(test)]
mod tests;
