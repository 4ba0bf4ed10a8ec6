//! The files that the command writes: each gets its name once it is complete, and none is written through a link.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};

use unpadded::Printable;
use unpadded_text::{FileFormat, ReadOptions, path_of_text};

use super::outcome::{Outcome, bad, unwritten};
use super::terminal;

/// File extensions of compressed files.
const PACKED: [&str; 6] = ["gz", "zip", "zst", "bz2", "xz", "lz4"];

fn ending(path: &Path) -> String {
    path.extension().map(|extension| extension.to_string_lossy().to_lowercase()).unwrap_or_default()
}

/// Returns an error if the extension of the output path belongs to a format that differs from the format of the answers.
pub(super) fn check_ending(path: &Path, input: &str, read: &ReadOptions) -> Outcome<()> {
    let (name, output) = (path.display(), ending(path));
    if PACKED.contains(&&*output) {
        return bad(format!(
            "--output {name}: expected a name without `.{output}`, since answers are written uncompressed: `{}` fits",
            path.with_extension("").display()
        ));
    }
    // The input may be compressed, or a file in a zip archive, as in `some.zip!a.csv`.
    let input = Path::new(input.rsplit('!').next().unwrap_or_default());
    let unpacked =
        if PACKED.contains(&&*ending(input)) { input.with_extension("") } else { input.to_owned() };
    let format = |path: &Path| FileFormat::of_name(&path.to_string_lossy());
    let Some(named) = format(path).filter(|&named| format(&unpacked) != Some(named)) else { return Ok(()) };
    let (Some(written), separator) = read.format_and_separator() else { return Ok(()) };
    match written.answers_misnamed(separator, named) {
        None => Ok(()),
        Some([what, fits]) => bad(format!(
            "--output {name}: expected a name for {what}, the format that is written, got `.{output}`: `.{fits}` fits"
        )),
    }
}

/// Returns the files of an input name: the whole name, or each archive in a name such as `some.zip!a.csv`.
fn read_files(input: &str) -> impl Iterator<Item = PathBuf> {
    let whole = path_of_text(input).exists();
    let before = input.match_indices('!').filter_map(move |(at, _)| input.get(..at).filter(|_| !whole));
    std::iter::once(input).chain(before).map(path_of_text)
}

pub(super) enum Output {
    Standard,
    File(NewFile),
}

/// A writer to standard output that escapes control characters if standard output is a terminal.
struct Standard {
    waiting: Vec<u8>,
    terminal: bool,
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const TOGETHER: usize = 1 << 16;
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= TOGETHER {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        match self.terminal {
            true => {
                let text = Printable(String::from_utf8_lossy(&waiting)).to_string();
                terminal::write_bytes(text.as_bytes())
            }
            false => terminal::write_bytes(&waiting),
        }
    }
}

impl Drop for Standard {
    fn drop(&mut self) {
        self.flush().ok();
    }
}

/// A file that gets its name once it is complete. If it is never completed, nothing is left behind.
pub(super) struct NewFile {
    file: File,
    path: PathBuf,
    temporary: PathBuf,
}

impl Drop for NewFile {
    fn drop(&mut self) {
        fs::remove_file(&self.temporary).ok();
    }
}

impl NewFile {
    fn create(path: PathBuf) -> io::Result<Self> {
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.part", std::process::id()));
        let temporary = PathBuf::from(temporary);
        Ok(Self { file: File::create_new(&temporary)?, path, temporary })
    }

    fn end(&self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.temporary, &self.path)
    }

    fn write(mut self, text: &str) -> io::Result<()> {
        self.file.write_all(text.as_bytes())?;
        self.end()
    }
}

/// Checks that a path has a plain file or nothing: a write through a link would change another file, and a pipe would wait.
pub(super) fn check_plain(path: &Path) -> io::Result<()> {
    let got = match fs::symlink_metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
        Ok(about) if about.is_file() => return Ok(()),
        Ok(about) if about.is_symlink() => "a symbolic link",
        Ok(about) if about.is_dir() => "a folder",
        Ok(_) => "a pipe or a device",
    };
    let name = path.file_name().unwrap_or_default().display();
    Err(io::Error::other(format!("expected a plain file `{name}`, or none, got {got}: remove or rename it")))
}

/// Creates an empty file at a path; a plain file at this path is removed first. The new file is not opened through a link.
pub(super) fn create(path: &Path) -> io::Result<File> {
    check_plain(path)?;
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => File::create_new(path),
    }
}

/// Writes a file atomically; a temporary file that a killed process has left is replaced.
pub(super) fn replace(path: &Path, temporary: PathBuf, text: &str) -> io::Result<()> {
    check_plain(path)?;
    NewFile { file: create(&temporary)?, path: path.to_owned(), temporary }.write(text)
}

/// Writes a text to the new file of `--output`, or to standard output without this flag.
pub(super) fn print_or_write(output: Option<&Path>, text: &str) -> Outcome<()> {
    let Some(path) = output else { return terminal::print(text) };
    let written = NewFile::create(path.to_owned()).and_then(|file| file.write(text));
    written.map_err(|e| unwritten(format!("--output {}", path.display()), &e))
}

impl Output {
    pub(super) fn open(path: Option<&Path>, input: &str, overwrite: bool) -> Outcome<Self> {
        let Some(path) = path else { return Ok(Self::Standard) };
        let name = path.display();
        let real = |path: &Path| fs::canonicalize(path).ok();
        if path.is_symlink() && !path.exists() {
            return bad(format!(
                "--output {name}: expected the name of a file, got a symbolic link to a file that is not there"
            ));
        }
        if path.exists() {
            if !path.is_file() {
                return bad(format!(
                    "--output {name}: expected the name of a file, got a folder or a device"
                ));
            }
            if read_files(input).any(|input| real(&input) == real(path)) {
                return bad(format!("--output {name}: expected a new file, got the file that is read"));
            }
            if !overwrite {
                return bad(format!(
                    "--output {name}: expected a new file, got an existing file; --overwrite replaces it"
                ));
            }
        }
        // If the output path is a symbolic link, the link is kept and the target of the link is replaced.
        let path = real(path).unwrap_or_else(|| path.to_owned());
        Ok(Self::File(NewFile::create(path).map_err(|e| format!("--output {name}: {e}"))?))
    }

    pub(super) fn writer(&self) -> Outcome<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Standard => {
                Box::new(Standard { waiting: Vec::new(), terminal: io::stdout().is_terminal() })
            }
            Self::File(NewFile { file, path, .. }) => {
                let file = file.try_clone().map_err(|e| format!("{}: {e}", path.display()))?;
                Box::new(BufWriter::with_capacity(1 << 16, file))
            }
        })
    }

    pub(super) fn end(self) -> Outcome<()> {
        let Self::File(file) = self else { return Ok(()) };
        file.end().map_err(|e| unwritten(file.path.display(), &e))
    }
}
