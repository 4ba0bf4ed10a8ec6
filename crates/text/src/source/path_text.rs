//! Paths as text: a path on Unix may have bytes that are not UTF-8, but a config, JSON and a message need text.

use std::path::{Path, PathBuf};

/// Returns a path as text, from which [`path_of_text`] restores the path. On Unix, each byte that is not UTF-8 is an
/// escape, such as `\xe9`; a backslash that would begin an escape is `\x5c`. On other systems, bytes that are not
/// Unicode are replaced.
///
/// ```
/// # #[cfg(unix)] {
/// use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
/// let path = OsStr::from_bytes(b"data/caf\xe9.csv");
/// let text = unpadded_text::text_of_path(path);
/// assert_eq!(text, r"data/caf\xe9.csv");
/// assert_eq!(unpadded_text::path_of_text(&text), path);
/// # }
/// ```
pub fn text_of_path(path: impl AsRef<Path>) -> String {
    let path = path.as_ref();
    if cfg!(not(unix)) {
        return path.to_string_lossy().into_owned();
    }
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        for (at, piece) in chunk.valid().split('\\').enumerate() {
            text += match escaped(piece) {
                _ if at == 0 => "",
                Some(_) => r"\x5c",
                None => r"\",
            };
            text += piece;
        }
        text.extend(chunk.invalid().iter().map(|byte| format!(r"\x{byte:02x}")));
    }
    text
}

/// Returns the byte of an escape, whose backslash is before `piece`; `None` if the backslash begins no escape.
fn escaped(piece: &str) -> Option<u8> {
    let byte = u8::from_str_radix(piece.strip_prefix('x')?.get(..2)?, 16).ok();
    byte.filter(|&byte| byte == b'\\' || !byte.is_ascii())
}

/// Returns the path of a text: the inverse of [`text_of_path`]. If only the path without the escapes exists, it is this path.
pub fn path_of_text(text: &str) -> PathBuf {
    let written = PathBuf::from(text);
    #[cfg(unix)]
    if text.contains(r"\x") {
        let mut pieces = text.split('\\');
        let mut bytes = pieces.next().unwrap_or_default().as_bytes().to_vec();
        for piece in pieces {
            let byte = escaped(piece);
            bytes.push(byte.unwrap_or(b'\\'));
            bytes.extend(piece.bytes().skip(if byte.is_some() { 3 } else { 0 }));
        }
        let path = PathBuf::from(<std::ffi::OsString as std::os::unix::ffi::OsStringExt>::from_vec(bytes));
        return if written.exists() && !path.exists() { written } else { path };
    }
    written
}

#[cfg(all(test, unix))]
mod tests;
