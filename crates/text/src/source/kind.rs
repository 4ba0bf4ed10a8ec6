//! Detects files that are not text. The first bytes of a file decide, before the file is read as text.

use std::io::{self, Cursor, Read};

use super::reason::wrong_format;
use unpadded::{Error, Result};

/// The number of bytes that the detection reads: a file of numeric series may begin with a long comment.
const LOOKED_AT: usize = 1 << 13;

const CONVERT: &str = "convert it to CSV, JSON Lines or Parquet";
const NO_DATA: &str = "give the path of a file of text";
const EXPORT: &str = "export it as CSV";
const UTF_32: &str = "the byte order mark of UTF-32";
const AS_UTF_8: &str = "save the file as UTF-8, as by `iconv -f UTF-32 -t UTF-8 FILE`";

/// For each kind of file that is not text: the first bytes, the name of the kind, and advice for the user.
const STARTS: [(&[u8], &str, &str); 29] = [
    (b"BZh", "a bzip2 file", "unpack it by `bunzip2 FILE`"),
    (b"\xfd7zXZ\0", "an xz file", "unpack it by `xz -d FILE`"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file", "unpack it by `zstd -d FILE`"),
    (b"\x04\x22\x4d\x18", "an LZ4 file", "unpack it by `lz4 -d FILE`"),
    (b"LZIP\x01", "an lzip file", "unpack it by `lzip -d FILE`"),
    (b"\x1f\x9d", "a file of `compress`", "unpack it by `gunzip FILE`"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "unpack it by `7z x FILE`"),
    (b"Rar!\x1a\x07", "a RAR archive", "unpack it by `unrar x FILE`"),
    (b"\x1f\x8b\x08", "a gzip file in another archive", "unpack the outer archive"),
    (b"PK\x03\x04", "a zip in another archive", "unpack the outer archive"),
    (b"PK\x07\x08", "a part of a zip", "join the parts, or unpack them"),
    (
        b"version https://git-lfs",
        "a Git LFS pointer in the place of the file",
        "fetch the file by `git lfs pull`",
    ),
    (
        b"/annex/objects/",
        "a git-annex pointer in the place of the file",
        "fetch the file by `git annex get FILE`",
    ),
    (b"%PDF-", "a PDF document", "extract its text"),
    (b"{\\rtf", "an RTF document", "save it as plain text"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (.xls or .doc)", EXPORT),
    (
        b"SQLite format 3\0",
        "an SQLite database",
        "export the table as CSV: `sqlite3 -csv -header FILE 'select …'`",
    ),
    (b"\x89HDF\r\n\x1a\n", "an HDF5 file", CONVERT),
    (b"\x93NUMPY", "a NumPy array (.npy)", CONVERT),
    (b"\x80", "a Python pickle", CONVERT),
    (b"ARROW1\0\0", "an Arrow or Feather file", CONVERT),
    (b"Obj\x01", "an Avro file", CONVERT),
    (b"\x89PNG\r\n\x1a\n", "a PNG image", NO_DATA),
    (b"\xff\xd8\xff", "a JPEG image", NO_DATA),
    (b"GIF87a", "a GIF image", NO_DATA),
    (b"GIF89a", "a GIF image", NO_DATA),
    (b"\x7fELF", "a program", NO_DATA),
    // UTF-16 is accepted as text. The mark of UTF-32 begins with the mark of UTF-16, so four bytes are compared.
    (b"\xff\xfe\0\0", UTF_32, AS_UTF_8),
    (b"\0\0\xfe\xff", UTF_32, AS_UTF_8),
];

/// Returns the kind of a file that is not text, such as `a PDF document`, by its first bytes, and advice for the user.
pub(crate) fn foreign(first: &[u8]) -> Option<(&'static str, &'static str)> {
    let found = STARTS.iter().find(|(start, ..)| first.starts_with(start));
    match found {
        // A text may begin with `BZh`; in a bzip2 file, digits of π or of the square root of π follow.
        Some((b"BZh", ..)) if !matches!(first.get(4..6), Some(b"1A" | b"\x17\x72")) => {}
        // The number of the protocol follows in a pickle.
        Some((b"\x80", ..)) if !matches!(first.get(1), Some(2..=5)) => {}
        Some(&(_, kind, advice)) => return Some((kind, advice)),
        None => {}
    }
    if let Some(kind) = series(first) {
        return Some((
            kind,
            "only texts are read, and series of numbers are not: convert texts in it to CSV or JSON Lines",
        ));
    }
    let is_tar =
        first.get(257..262) == Some(b"ustar") && first.get(..100).is_some_and(|name| name.contains(&0));
    is_tar.then_some(("a tar archive", "unpack it by `tar -xf FILE`"))
}

/// Returns the kind of a file of numeric series by its first line that is no comment.
fn series(first: &[u8]) -> Option<&'static str> {
    let mut lines = first.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with(b"%") && !line.starts_with(b"#"))?;
    let begins = |start: &str| {
        line.get(..start.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(start.as_bytes()))
    };
    match () {
        () if begins("@relation ") || begins("@relation\t") => Some("an ARFF file"),
        () if begins("@problemname ") || begins("@timestamps ") => Some("a file of numeric series (.ts)"),
        () => None,
    }
}

/// Returns the kind and advice if the first bytes begin an HTML page or an XML document.
pub(crate) fn markup(first: &[u8]) -> Option<(&'static str, &'static str)> {
    let text = first.strip_prefix(b"\xef\xbb\xbf").unwrap_or(first).trim_ascii_start();
    // An HTML page has no tab in its first line; a table whose first text is an HTML page has a tab there.
    let line = text.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let begins = |start: &str| {
        line.get(..start.len()).is_some_and(|prefix| prefix.eq_ignore_ascii_case(start.as_bytes()))
            && line.get(start.len()).is_none_or(|behind| !behind.is_ascii_alphanumeric())
    };
    match line.contains(&b'\t') {
        false if begins("<!doctype html") || begins("<html") => Some((
            "an HTML page in the place of the file",
            "download the file itself if the page is one of login or of an error; if pages are the texts, set the format (`data.format`) to \
             `folder-per-class` or `plain`",
        )),
        false if begins("<?xml") || begins("<tei") || begins("<teicorpus") => Some((
            "an XML document",
            "convert it to CSV, JSON Lines or text; if documents are the texts, set the format (`data.format`) to `folder-per-class` or \
             `plain`",
        )),
        _ => None,
    }
}

/// Returns whether a name has the extension of an HTML or XML file.
pub(crate) fn is_markup(name: &str) -> bool {
    let extension = name.rsplit(['/', '!']).next().and_then(|name| name.rsplit_once('.'));
    let known = ["html", "htm", "xhtml", "xml"];
    extension.is_some_and(|(_, extension)| known.iter().any(|known| extension.eq_ignore_ascii_case(known)))
}

/// Refuses a file of a kind, such as [`foreign`] or [`markup`]; returns a reader of all bytes of any other file.
pub(crate) fn unless(
    prefix: fn(&[u8]) -> Option<(&'static str, &'static str)>,
    name: &str,
    bytes: Box<dyn Read + Send>,
) -> Result<Box<dyn Read + Send>> {
    let (first, bytes) = peeked(bytes, LOOKED_AT);
    prefix(&first).map_or(Ok(bytes), |(kind, advice)| Err(refused(name, kind, advice)))
}

/// Returns the first bytes, at most `most`, and a reader of all bytes, which also reports an error in the first bytes.
pub(crate) fn peeked(mut bytes: Box<dyn Read + Send>, most: usize) -> (Vec<u8>, Box<dyn Read + Send>) {
    let mut first = Vec::with_capacity(most);
    let read = bytes.by_ref().take(most as u64).read_to_end(&mut first);
    let begin = Cursor::new(first.clone());
    match read {
        Ok(_) => (first, Box::new(begin.chain(bytes))),
        Err(e) => (first, Box::new(begin.chain(FailedReader(Some(e))))),
    }
}

/// A reader that returns an error once, and no bytes after the error.
pub(crate) struct FailedReader(pub(crate) Option<io::Error>);

impl Read for FailedReader {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        self.0.take().map_or(Ok(0), Err)
    }
}

fn refused(name: &str, kind: &str, advice: &str) -> Error {
    let expected = if kind.contains("order mark") { "UTF-8" } else { "text, plain or in gzip or zip" };
    wrong_format(format!("file `{name}`"), expected, format!("{kind}: {advice}"))
}

/// Refuses a zip that is an Office document, an OpenDocument file or a PyTorch model.
pub(crate) fn no_document<'a>(name: &str, members: impl Iterator<Item = &'a str> + Clone) -> Result<()> {
    let has = |wanted: &str| members.clone().any(|member| member == wanted);
    let below = |folder: &str| members.clone().any(|member| member.starts_with(folder));
    let kind = match () {
        () if has("[Content_Types].xml") => match () {
            () if below("xl/") => ("an Excel workbook (.xlsx)", "export the sheet as CSV"),
            () if below("word/") => ("a Word document (.docx)", "save it as plain text"),
            () if below("ppt/") => ("a PowerPoint document (.pptx)", "save its text"),
            () => ("an Office document (.xlsx, .docx or .pptx)", "export it as CSV or plain text"),
        },
        () if has("mimetype") && has("content.xml") => {
            ("an OpenDocument file (.ods or .odt)", "export it as CSV or plain text")
        }
        () if members.clone().any(|member| member.ends_with("/data.pkl")) => {
            ("a file of PyTorch's (.pt)", NO_DATA)
        }
        () => return Ok(()),
    };
    Err(refused(name, kind.0, kind.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_text_is_known_and_what_is_text_is_not() {
        let tar = {
            let mut block = [0; 512];
            block[..5].copy_from_slice(b"a.tsv");
            block[257..262].copy_from_slice(b"ustar");
            block
        };
        let known: [(&[u8], &str); 11] = [
            (b"BZh91AY&SYxx", "bzip2"),
            (b"\xfd7zXZ\0\0", "xz"),
            (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS"),
            (b"\xef\xbb\xbf \r\n<!DocType HTML>\n<p>", "HTML"),
            (b"<HTML lang=en>", "HTML"),
            (b"<html", "HTML"),
            (&tar, "tar"),
            (b"\x93NUMPY\x01\0", "NumPy"),
            (b"\x80\x04\x95", "pickle"),
            (b"\xff\xfe\0\0a", "UTF-32"),
            (b"<?xml version='1.0'?><Error>", "XML"),
        ];
        for (bytes, kind) in known {
            let found = foreign(bytes).or_else(|| markup(bytes));
            assert!(found.is_some_and(|(found, _)| found.contains(kind)), "{kind}");
        }
        let texts: [&[u8]; 8] = [
            b"",
            b"BZhang\tname\n",
            b"<html> is a tag\tspam\n",
            b"<htmlish> words\n",
            b"version 2 of it\tgood\n",
            b"PARTS of speech\n",
            b"GIF89\tx\n",
            b"PAR1\x15",
        ];
        for bytes in texts {
            let found = foreign(bytes).or_else(|| markup(bytes));
            assert_eq!(found, None, "{:?}", String::from_utf8_lossy(bytes));
        }
    }
}
