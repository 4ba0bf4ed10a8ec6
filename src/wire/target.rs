//! Atomic writes of files: a file is either written completely or not changed. New contents are first written to a
//! temporary file with a unique name. A lock ensures that only one training writes a file.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, BufWriter, Read};
use std::path::{Path, PathBuf};

use super::{MAGIC, Writer, unwritable};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// Writes a file atomically: writes and syncs a temporary file in the folder of `path`, then renames the temporary file
/// to `path`. The new file gets the permissions of the file that it replaces. Temporary files for this `path` that
/// killed processes left behind are removed. If `path` is a link, the target of the link is replaced.
///
/// # Errors
/// Fails with the first error of `write`, if `path` exists but is not a file, or if the operating system refuses to
/// write. After an error, an existing file at `path` is unchanged.
#[track_caller]
pub fn write_atomically(
    path: &Path,
    write: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<()>,
) -> Result<()> {
    Target::find(path).at_caller()?.write(write).at_caller()
}

/// A target: the path of a file that will be written, once or several times.
pub(crate) struct Target {
    /// The path as given by the caller, for error messages.
    shown: String,
    /// The folder of the file, as an absolute path without links. The target therefore stays the same if the working
    /// directory changes.
    folder: PathBuf,
    name: OsString,
    path: PathBuf,
    lock: Option<Lock>,
}

/// The lock file of a target, in the folder of the target. The operating system releases the lock when the process
/// ends. If a killed process leaves the lock file behind, the next process can lock this file.
struct Lock {
    file: File,
    path: PathBuf,
}

impl Target {
    /// Returns the target for a path, without writing anything.
    ///
    /// # Errors
    /// Fails if the path exists but is not a file, or if the folder of the path does not exist.
    pub(crate) fn find(path: &Path) -> Result<Self> {
        let shown = format!("file `{}`", path.display());
        let failed = |e: io::Error| unwritable(&shown, &e);
        let refused = |got: &str| Err(Error::of(ErrorKind::Io, &shown, "the path of a file", got));
        // A rename to a path replaces the link or the device at this path. Links are therefore followed, and devices
        // are refused.
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
            return Err(Error::of(ErrorKind::Io, shown, "an existing folder to write the file in", got));
        }
        let folder = fs::canonicalize(folder).map_err(failed)?;
        Ok(Self { path: folder.join(name), name: name.to_owned(), folder, shown, lock: None })
    }

    /// Returns the path of the file, as an absolute path without links.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns whether both targets have the same path.
    pub(crate) fn is(&self, other: &Self) -> bool {
        self.path == other.path
    }

    /// Locks the file until this target is dropped, so that no other target can lock it. On a file system without
    /// locks, nothing is locked.
    ///
    /// # Errors
    /// Fails if another target, of this process or of another process, holds the lock.
    pub(crate) fn lock(mut self) -> Result<Self> {
        let path = self.beside("lock");
        // The previous owner of the lock may remove the lock file after it is opened below, and before it is locked.
        // The loop then tries again.
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
                Err(e) if e.kind() == io::ErrorKind::InvalidInput => {
                    let expected = format!("a plain file `{}`, or none", path.display());
                    return Err(Error::of(ErrorKind::Io, &self.shown, expected, e.to_string()));
                }
                // If the lock file cannot be opened, the write will fail later and report the reason.
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
                        "a training that holds `{}`: wait until the training ends, stop it, or save to another file",
                        path.display()
                    );
                    return Err(Error::of(
                        ErrorKind::Io,
                        &self.shown,
                        "no other training that saves to this file",
                        got,
                    ));
                }
                // The file system has no locks.
                Err(TryLockError::Error(_)) => {
                    let _ = fs::remove_file(&path);
                    break;
                }
            }
        }
        Ok(self)
    }

    /// Checks that the file can be written, by trying the steps of a write. An obstacle is thus reported before the
    /// training, not hours later.
    ///
    /// # Errors
    /// Fails if no file can be created in the folder, if an existing file cannot be replaced, or if an existing file is
    /// not a file of this crate.
    pub(crate) fn check(&self) -> Result<()> {
        self.clear();
        let wrong = |expected: &str, got: &str| Err(Error::of(ErrorKind::Io, &self.shown, expected, got));
        let tried = self.temporary(false).and_then(|(_, temporary)| fs::remove_file(temporary));
        if let Err(e) = tried {
            if e.kind() == io::ErrorKind::InvalidFilename {
                let expected = "a shorter name, since the name of the temporary file is 22 bytes longer";
                return wrong(expected, &format!("{} bytes", self.name.len()));
            }
            return wrong(
                "a folder in which files can be written",
                &format!("a folder where writing fails: {e}"),
            );
        }
        if !self.path.exists() {
            return Ok(());
        }
        // Replacing a file needs the permission to remove it. In a sticky folder, only the owner has this permission;
        // nobody can remove an immutable file. `remove_dir` checks this permission, but never removes the file: it
        // fails in any case, because the path is not a folder.
        if let Err(e) = fs::remove_dir(&self.path)
            && e.kind() == io::ErrorKind::PermissionDenied
        {
            let got = format!("a file of another user, or an immutable file: {e}");
            return wrong("a file that may be replaced", &got);
        }
        if mounted(&self.path) {
            let got = "a mounted file: mount the folder of the file instead";
            return wrong("a file that can be replaced", got);
        }
        let mut first = Vec::new();
        let read = File::open(&self.path).and_then(|f| f.take(MAGIC.len() as u64).read_to_end(&mut first));
        let expected = "a new file, or an existing file of `unpadded`";
        match read {
            Err(e) => wrong(expected, &format!("a file that cannot be read: {e}")),
            Ok(_) if first.is_empty() || first == MAGIC => Ok(()),
            Ok(_) => wrong(expected, "a file of another format, which was left as it is"),
        }
    }

    /// Writes the file atomically, as [`write_atomically`] does.
    pub(crate) fn write(&self, write: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<()>) -> Result<()> {
        self.write_raw(|out| {
            let mut writer = Writer::named(&self.shown, out)?;
            write(&mut writer)?;
            writer.finish()
        })
    }

    /// Writes a file of any format atomically: `write` writes the whole file, and returns the writer that it got.
    pub(crate) fn write_raw(
        &self,
        write: impl FnOnce(BufWriter<File>) -> Result<BufWriter<File>>,
    ) -> Result<()> {
        let failed = |e: io::Error| unwritable(&self.shown, &e);
        self.clear(); // first, because old temporary files may take the disk space that the new file needs
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
            // The error of `outcome` is reported; an error of this removal is ignored.
            let _ = fs::remove_file(&temporary);
            return outcome;
        }
        // A rename is durable only after the folder is synced. Three kinds of errors are ignored: systems other than
        // Unix cannot open a folder, a folder may not be readable, and some file systems cannot sync a folder.
        use io::ErrorKind::{InvalidInput, PermissionDenied, Unsupported};
        match File::open(&self.folder).and_then(|folder| folder.sync_all()) {
            Err(e) if cfg!(unix) && !matches!(e.kind(), InvalidInput | PermissionDenied | Unsupported) => {
                Err(failed(e))
            }
            _ => Ok(()),
        }
    }

    /// Returns the path of a hidden file in the folder of the target: `.NAME.end`, where NAME is the name of the
    /// target.
    fn beside(&self, end: &str) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(&self.name);
        name.push(".");
        name.push(end);
        self.folder.join(name)
    }

    /// Creates and locks a temporary file. The lock shows other processes that the file is in use. If `private` is
    /// true, only the owner can read the file.
    #[cfg_attr(not(unix), allow(unused_variables))]
    fn temporary(&self, private: bool) -> io::Result<(File, PathBuf)> {
        let mut options = File::options();
        options.write(true).create_new(true);
        #[cfg(unix)]
        if private {
            std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        }
        loop {
            // The name contains a random number. A process number would not be unique, because processes in two
            // containers may have the same number.
            let path = self.beside(&format!("{:016x}.tmp", RandomState::new().hash_one(0)));
            match options.open(&path) {
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
                // Between the creation and the locking, another process may have locked the file to remove it. In this
                // case, the loop creates another file.
                Ok(file) => match file.try_lock() {
                    Err(TryLockError::WouldBlock) => {}
                    _ if !path.exists() => {}
                    _ => return Ok((file, path)),
                },
            }
        }
    }

    /// Removes the temporary files of this target that no process is writing any more.
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
            // If a process is still writing the file, the process holds the lock, so `try_lock` fails. Otherwise, this
            // process keeps the lock until the file is removed, so that no other process uses the file in the
            // meantime.
            if let Ok(file) = lockable(&entry.path())
                && file.try_lock().is_ok()
            {
                // If the removal fails, the temporary file does no harm.
                let _ = fs::remove_file(entry.path());
                drop(file);
            }
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The lock file is removed before the lock is released. A process that opened the lock file earlier then
        // detects the removal (`leads_to`). Only Unix can detect a removal, so other systems keep the lock file.
        if cfg!(unix) && leads_to(&self.path, &self.file) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Checks that a path at which this crate writes a file of its own, such as a lock, has a plain file or nothing. A write
/// through a link would change another file, and the opening of a pipe may wait.
pub(crate) fn check_plain(path: &Path) -> io::Result<()> {
    let got = match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => return Ok(()),
        Ok(about) if about.is_symlink() => "a symbolic link: remove it",
        Ok(_) => "a folder, a pipe or a device: remove it",
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    Err(io::Error::new(io::ErrorKind::InvalidInput, got))
}

/// Opens a plain file to lock it. The file is opened for writing, because some network file systems lock only files that are
/// open for writing. Without the permission to write, the file is opened for reading.
fn lockable(path: &Path) -> io::Result<File> {
    check_plain(path)?;
    match File::options().read(true).write(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::PermissionDenied => File::open(path),
        opened => opened,
    }
}

/// Returns whether the open `file` is still the file at `path`.
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

/// Copies the owner, the group and the mode of the replaced file to the new file, as far as the system allows.
#[cfg(unix)]
fn hand_on(replaced: &Metadata, file: &File) {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
    let _ = fchown(file, Some(replaced.uid()), None);
    let mut mode = replaced.mode() & 0o777;
    if fchown(file, None, Some(replaced.gid())).is_err() {
        // If the group cannot be copied, the new file has another group. This group gets only the permissions that
        // everybody has.
        mode = mode & !0o070 | (mode & 0o007) << 3;
    }
    let _ = file.set_permissions(fs::Permissions::from_mode(mode));
}

#[cfg(not(unix))]
fn hand_on(_: &Metadata, _: &File) {}

/// Returns whether a file is mounted at this path; containers can mount a single file. A mounted file can be written,
/// but not replaced.
fn mounted(path: &Path) -> bool {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let path = path.to_string_lossy().replace('\\', "\\134").replace(' ', "\\040");
    mounts.lines().any(|line| line.split(' ').nth(4) == Some(&path))
}

#[cfg(test)]
mod tests;
