//! Finds the files of the paths and patterns of a data set.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::{Error, ErrorKind, Result};

use super::path_text::{path_of_text, text_of_path};
use super::reason::wrong_format;
use crate::detect::options::ReadOptions;
use crate::format::extension;
use crate::{Encoding, MalformedLines, TextFile};

/// The content of a path: one file, or several files.
pub(crate) enum PathContent {
    File(TextFile),
    /// A folder, or a zip with several files.
    Folder(PathBuf),
}

/// Opens all files and folders of these paths and patterns. Also returns the name of the data set for messages.
pub(crate) fn find<P: AsRef<Path>>(paths: impl IntoIterator<Item = P>) -> Result<(String, Vec<PathContent>)> {
    let (mut found, mut names) = (Vec::new(), Vec::new());
    for path in paths {
        names.push(text_of_path(path.as_ref()).replace('\n', "\\n"));
        for path in matching(path.as_ref())? {
            found.push(of(&path)?);
            // With several files, each file is closed until it is read, so that few files are open at once.
            if found.len() > 1 {
                for one in found.iter_mut().rev().take(2) {
                    if let PathContent::File(file) = one {
                        file.close();
                    }
                }
            }
        }
    }
    if found.is_empty() {
        return Err(Error::of(ErrorKind::Io, "files of a data set", "at least one path", "none"));
    }
    Ok((names.join(", "), found))
}

/// Parses the path of two parallel files, such as `train.{de,en}`; `None` for an existing path, or a path without two
/// names in braces. Within the braces, a backslash escapes a comma or a brace that belongs to a name.
pub(crate) fn two(path: &Path) -> Option<[PathBuf; 2]> {
    if path.exists() {
        return None;
    }
    let text = text_of_path(path);
    // `parts` has the text before the braces, the two names in the braces, and the text after the braces.
    let (mut parts, mut at) = <([String; 4], usize)>::default();
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        match (at, c) {
            (1 | 2, '\\') if characters.peek().is_some_and(|next| [',', '{', '}'].contains(next)) => {
                parts[at].extend(characters.next());
            }
            (0, '{') | (1, ',') | (2, '}') => at += 1,
            (2, ',') => return None,
            // Braces around a single name are part of the path.
            (1, '}') => {
                let within = std::mem::take(&mut parts[1]);
                parts[0] += &format!("{{{within}}}");
                at = 0;
            }
            _ => parts[at].push(c),
        }
    }
    let [before, first, second, behind] = parts;
    (at == 3).then(|| [first, second].map(|one| path_of_text(&format!("{before}{}{behind}", one.trim()))))
}

/// Formats the path of two parallel files so that [`two`] parses it.
pub(crate) fn of_two([source, target]: [&str; 2]) -> String {
    let escaped = |name: &str| -> String {
        let mark = |c: char| [',', '{', '}'].contains(&c).then_some('\\');
        name.chars().flat_map(|c| mark(c).into_iter().chain([c])).collect()
    };
    format!("{{{},{}}}", escaped(source), escaped(target))
}

/// Returns the sorted files that match a pattern; a path without a pattern is returned unchanged.
fn matching(path: &Path) -> Result<Vec<PathBuf>> {
    let pattern = text_of_path(path);
    if !pattern.contains(['*', '?', '[']) || path.exists() || within(&pattern).is_some() {
        return Ok(vec![path.to_owned()]);
    }
    let what = || format!("files of the pattern `{pattern}`");
    let paths = glob::glob(path.to_str().unwrap_or_default())
        .map_err(|e| Error::of(ErrorKind::Io, what(), "a pattern as `data/*.tsv`", e.to_string()))?;
    let found = paths.collect::<Result<Vec<PathBuf>, _>>();
    let mut found = found.map_err(|e| Error::io(format!("`{}`", e.path().display()), "read", e.error()))?;
    let count = found.len();
    // `glob` leaves out paths that are not UTF-8.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().and_then(|name| glob::Pattern::new(&text_of_path(name)).ok());
    for (entry, pattern) in fs::read_dir(folder).into_iter().flatten().flatten().zip(name.iter().cycle()) {
        let (path, name) = (path.with_file_name(entry.file_name()), text_of_path(entry.file_name()));
        found.extend((path.to_str().is_none() && pattern.matches(&name)).then_some(path));
    }
    if found.len() > count {
        found.sort();
    }
    if found.is_empty() {
        return Err(Error::of(ErrorKind::Io, what(), "at least one", "none"));
    }
    Ok(found)
}

/// Splits a path such as `some.zip!member` into an existing file, the longest one, and a member.
fn within(path: &str) -> Option<(PathBuf, &str)> {
    let mut parts =
        path.rmatch_indices('!').map(|(at, mark)| (path_of_text(&path[..at]), &path[at + mark.len()..]));
    parts.find(|(file, _)| file.is_file())
}

fn of(path: &Path) -> Result<PathContent> {
    if path.is_dir() {
        return Ok(PathContent::Folder(path.to_owned()));
    }
    // The path `some.zip!file` means the member `file` of a zip; messages name the member in the same way.
    if !path.exists()
        && let text = text_of_path(path)
        && let Some((zip, member)) =
            within(&text).or_else(|| text.split_once('!').map(|(zip, member)| (path_of_text(zip), member)))
    {
        return Ok(PathContent::File(TextFile::open(zip)?.member(member)?));
    }
    match TextFile::open(path)?.chosen()? {
        (_, true) => Ok(PathContent::Folder(path.to_owned())),
        (file, false) => Ok(PathContent::File(file)),
    }
}

/// Number of bytes that are read to detect the encoding of a file that is read record by record.
const IN_A_WINDOW: u64 = 1 << 18;
/// Number of bytes that are read again, and not held in memory, if the first bytes are ASCII; smaller in tests.
const BEHIND_ASCII: u64 = if cfg!(test) { 1 << 20 } else { 1 << 24 };

/// Applies the options to a file, and detects the file's encoding if the options do not set it. With `window`, only the
/// first 256 KiB are used for detection, since these bytes are held in memory.
pub(crate) fn prepared(file: TextFile, options: &ReadOptions, window: bool) -> Result<TextFile> {
    in_encoding(file, options, if window { IN_A_WINDOW } else { u64::MAX }, None)
}

/// As [`prepared`] with `window`, but uses `known`, the encoding of earlier files, if only few lines of the file are not valid
/// UTF-8; records that are not valid in this encoding are malformed.
pub(crate) fn prepared_as(file: TextFile, options: &ReadOptions, known: Encoding) -> Result<TextFile> {
    in_encoding(file, options, IN_A_WINDOW, Some(known))
}

fn in_encoding(
    file: TextFile,
    options: &ReadOptions,
    most: u64,
    known: Option<Encoding>,
) -> Result<TextFile> {
    let trained = options.found.encoding.and_then(|name| name.parse().ok());
    // UTF-16 has a mark of its own in each file.
    let known = known.or(trained).filter(|known: &Encoding| !known.is_utf_16());
    let found = match options.encoding {
        Some(set) => refuse_ascii(&file, set).map(|()| set)?,
        None => encoding(&file, most, known)?,
    };
    let mut file = file.encoding(found);
    file.guessed = options.encoding.is_none() && found != Encoding::Utf8;
    Ok(as_set(file, options))
}

/// Sets the treatment of malformed lines and of the lines above a table.
pub(crate) fn as_set(file: TextFile, options: &ReadOptions) -> TextFile {
    let mut file = file.malformed(options.malformed);
    let is_logged = options.malformed == MalformedLines::Skip && options.skips.0.most.is_some();
    file.skips = is_logged.then(|| Arc::clone(&options.skips.0));
    file.skip_lines = options.skip_lines.unwrap_or_default();
    file
}

/// Refuses a file of ASCII that is to be read as UTF-16: its bytes would be other characters, without any error.
fn refuse_ascii(file: &TextFile, encoding: Encoding) -> Result<()> {
    if !encoding.is_utf_16() {
        return Ok(());
    }
    let ((name, bytes), mut first) = (file.raw_sample()?, Vec::new());
    let read = bytes.take(512).read_to_end(&mut first);
    read.map_err(|e| super::lines::broken(format!("file `{name}`"), &e))?;
    if first.len() < 2 || !first.is_ascii() || first.contains(&0) {
        return Ok(());
    }
    let expected = format!("{encoding}, as `encoding` (`data.encoding` in a config) sets");
    Err(wrong_format(format!("file `{name}`"), expected, "ASCII: set it to `utf-8`"))
}

/// Detects the encoding of a file from its first `most` bytes. A byte order mark shows UTF-16. Otherwise the encoding is
/// UTF-8 if enough characters beyond ASCII are valid UTF-8, else Windows-1252 if this is the likeliest encoding.
///
/// # Errors
/// Fails if neither UTF-8 nor Windows-1252 is likely: the text would be decoded wrongly without any message.
fn encoding(file: &TextFile, most: u64, known: Option<Encoding>) -> Result<Encoding> {
    const PIECE: u64 = 1 << 16;
    /// Number of bytes that are used to guess the likeliest encoding; pieces of pure ASCII are not counted.
    const GUESSED: usize = 1 << 20;
    /// Valid UTF-8 beyond ASCII is accidental if there are more malformed sequences per valid character.
    const CHANCE: usize = 10;
    /// The known encoding is kept if at most one in this many lines has a malformed sequence.
    const FEW: usize = 10;
    let (name, bytes) = file.raw_sample()?;
    let what = || format!("file `{name}`");
    let (mut bytes, mut again) = (bytes.take(most), false);
    let (mut good, mut bad, mut lines, mut piece, mut begun) = (0, 0, 0, Vec::new(), false);
    let mut looked_at = Vec::new();
    loop {
        piece.clear();
        let read = bytes.by_ref().take(PIECE).read_to_end(&mut piece);
        let read = read.map_err(|e| super::lines::broken(what(), &e))?;
        if read == 0 {
            // A file that ended before the limit was read as a whole.
            if again || bytes.limit() > 0 || most != IN_A_WINDOW || !looked_at.is_empty() {
                break;
            }
            lines = 0;
            (again, bytes) = (true, file.reopened().raw()?.1.take(BEHIND_ASCII));
            continue;
        }
        if !std::mem::replace(&mut begun, true)
            && let Some(marked) = Encoding::marked(&piece)
        {
            return Ok(marked);
        }
        if piece.contains(&0) {
            let Some(unmarked) = Encoding::unmarked(&piece) else { return Ok(Encoding::Utf8) };
            let got = format!("{unmarked} without a byte order mark: {}", set(unmarked));
            return Err(wrong_format(what(), "UTF-8, or UTF-16 with a byte order mark", got));
        }
        lines += piece.iter().filter(|&&byte| byte == b'\n').count();
        if piece.is_ascii() {
            continue;
        }
        if looked_at.len() < GUESSED {
            looked_at.extend_from_slice(&piece);
        }
        for chunk in piece.utf8_chunks() {
            good += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
            bad += usize::from(!chunk.invalid().is_empty());
        }
        // A character that is cut by the end of a piece does not count as malformed.
        if !piece.is_ascii() && bad > 0 && std::str::from_utf8(&piece).is_err_and(|e| e.error_len().is_none())
        {
            bad -= 1;
        }
    }
    // If all bytes are ASCII, the encoding of the earlier files is assumed: other bytes may follow later in the file.
    if let Some(known) = known.filter(|known| looked_at.is_empty() && *known != Encoding::Utf8) {
        return Ok(known);
    }
    if bad <= good {
        return Ok(Encoding::Utf8);
    }
    match Encoding::likeliest(&looked_at) {
        // With enough valid UTF-8, the other lines are reported as malformed.
        guess if bad <= good * CHANCE && guess.has_single_bytes() => Ok(Encoding::Utf8),
        Encoding::Windows1252 => {
            let few = known.filter(|known| *known != Encoding::Utf8 && bad * FEW <= lines.max(2 * FEW));
            Ok(few.unwrap_or(Encoding::Windows1252))
        }
        other => known.filter(|_| bad * FEW <= lines.max(2 * FEW)).ok_or_else(|| {
            let got = format!("bytes that are most likely {other}: {}, or to another encoding", set(other));
            wrong_format(what(), "UTF-8 or windows-1252", got)
        }),
    }
}

/// Formats the advice to set the encoding.
fn set(encoding: Encoding) -> String {
    format!("set `encoding` (`data.encoding` in a config) to `{}`", encoding.name().to_lowercase())
}

/// Returns whether a name, such as `README.md`, is the name of a note about the data.
pub(crate) fn is_note(below: &str) -> bool {
    let name = below.rsplit('/').next().unwrap_or(below);
    let start = ["README", "LICENSE", "LICENCE", "COPYING", "CHANGELOG", "SHA256SUMS", "NOTICE", "_"];
    start.iter().any(|start| name.to_uppercase().starts_with(start)) || extension(name) == Some("md")
}
