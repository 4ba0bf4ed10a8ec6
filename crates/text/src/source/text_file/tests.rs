//! Tests of text files: damaged files, files of other formats, huge files and empty files.

use std::io::Write;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;
use unpadded::ErrorKind;
use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use super::*;
use crate::{Folder, SkippedRecords};

type Classes = Vec<(String, TextFile)>;

/// A file that is removed at the end of the test.
struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("unpadded-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn file(bytes: &[u8]) -> TextFile {
    // The bytes are leaked, because an embedded text must live as long as the program.
    TextFile::embedded("f", Box::leak(bytes.to_vec().into_boxed_slice()))
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zipped(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in members {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn message<T: std::fmt::Debug>(result: Result<T>) -> String {
    result.unwrap_err().to_string()
}

#[test]
fn a_malformed_line_says_file_line_and_reason() {
    let labelled = |bytes: &[u8]| message(file(bytes).labelled().unwrap().read_all());
    let pairs = |bytes: &[u8]| message(file(bytes).translations().unwrap().read_all());
    let e = "expected text, one tab and a label, got";
    assert_eq!(labelled(b"a\t1\nb 1\n"), format!("f:2: {e} no tab in \"b 1\""));
    assert_eq!(labelled(b"a\t\t1"), format!("f:1: {e} 2 tabs in \"a\\t\\t1\""));
    assert_eq!(labelled(b"\n\n\t1\n"), format!("f:3: {e} nothing before the tab in \"\\t1\""));
    assert_eq!(labelled(b"a\t \n"), format!("f:1: {e} nothing behind the tab in \"a\\t \""));
    let third = "expected text, one tab and text, optionally followed by a tab and a third column";
    assert_eq!(pairs(b"a\tb\tc\td"), format!("f:1: {third}, got 3 tabs in \"a\\tb\\tc\\td\""));
    let long = "é".repeat(100);
    let shown = "é".repeat(60);
    assert_eq!(labelled(long.as_bytes()), format!("f:1: {e} no tab in \"{shown}\"…"));
    let e =
        "f:2: expected UTF-8, got byte 0xe9 at place 3: `data.encoding` in a config sets another encoding";
    assert_eq!(labelled(b"a\t1\ncaf\xe9\t1\n"), e);
    assert_eq!(message(file(b"ok\ncaf\xe9").text()), e);
    assert!(labelled(b"a\0b\t1\n").starts_with("f:1: expected text, got byte 0x00 at place 1: is it"));
}

#[test]
fn nothing_but_blank_lines_is_no_data() {
    for bytes in [&b""[..], b"\n\n", b" \r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\r\n"] {
        let file = file(bytes);
        let expected = "records of file `f`: expected at least one, got none";
        assert_eq!(message(file.labelled().unwrap().read_all()), expected);
        assert_eq!(file.translations().unwrap().count(), 0);
    }
    assert_eq!(message(file(b"").text()), "file `f`: expected text, got an empty file");
    let skipping = file(b"x\ny").malformed(MalformedLines::Skip);
    let expected = "records of file `f`: expected at least one, got none, and 2 malformed records";
    assert_eq!(message(skipping.labelled().unwrap().read_all()), expected);
}

#[test]
fn what_is_skipped_is_counted_and_spoils_its_whole_record() {
    let skipping = |bytes: &[u8]| file(bytes).malformed(MalformedLines::Skip);
    let mut records = skipping(b"a\t1\nbad\n\xff\t1\nb\t0\n").labelled().unwrap();
    assert_eq!(records.read_all().unwrap().len(), 2);
    let expected = [
        "f:2: expected text, one tab and a label, got no tab in \"bad\"",
        "f:3: expected UTF-8, got byte 0xff at place 0: `data.encoding` in a config sets another encoding",
    ];
    let first: Vec<String> = records.skipped().first.iter().map(ToString::to_string).collect();
    assert_eq!((records.skipped().count, first), (2, expected.map(str::to_owned).to_vec()));

    let many = b"bad\n".repeat(25);
    let mut records = skipping(&many).labelled().unwrap();
    assert_eq!(records.by_ref().count(), 0);
    assert_eq!((records.skipped().count, records.skipped().first.len()), (25, SkippedRecords::SHOWN));
}

#[test]
fn an_error_is_the_last_item() {
    let mut records = file(b"a\t1\nbad\nb\t0\n").labelled().unwrap();
    assert!(records.next().unwrap().is_ok() && records.next().unwrap().is_err() && records.next().is_none());
}

#[test]
fn line_ends_and_marks_are_no_text() {
    let file = file(b"\xef\xbb\xbfa\r\n\r\n\xc3\xa9 \xef\xbb\xbf\n\nlast");
    let lines: Vec<String> = file.lines().unwrap().collect::<Result<_>>().unwrap();
    assert_eq!(lines, ["a", "", "é \u{feff}", "", "last"]);
    assert_eq!(file.text().unwrap(), "a\n\né \u{feff}\n\nlast");
}

#[test]
fn bytes_become_characters_as_declared() {
    let text_in = |encoding| file(b"caf\xe9 \x96 \x80").encoding(encoding).text();
    assert_eq!(text_in(Encoding::Latin1).unwrap(), "café \u{96} \u{80}");
    assert_eq!(text_in(Encoding::Windows1252).unwrap(), "café – €");
    assert!(text_in(Encoding::Utf8).is_err());
}

#[test]
fn a_long_line_is_never_held() {
    let endless: Bytes = Box::new(std::io::Read::take(std::io::repeat(b'x'), 1 << 30));
    let bytes: Bytes = Box::new(std::io::Read::chain(endless, &b"\nb\t1\n"[..]));
    let lines = Lines::new("f".into(), bytes, (Encoding::Utf8, false), 1000);
    let mut records = Records::new(lines, Box::new(OneLine(labelled)), MalformedLines::Skip);
    assert_eq!(records.read_all().unwrap().len(), 1);
    let expected =
        "f:1: expected a line of at most 1000 bytes, got a longer line: is the file text with line ends?";
    assert_eq!(records.skipped().first[0].to_string(), expected);
    // A line whose length is exactly the limit is read, with any line end.
    for end in ["", "\n", "\r\n"] {
        let text = format!("{}{end}", "x".repeat(1000));
        let lines: Vec<_> = TextFile { max_line: 1000, ..file(text.as_bytes()) }.lines().unwrap().collect();
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].as_ref().unwrap().len(), 1000, "{end:?}");
        assert!(
            TextFile { max_line: 999, ..file(text.as_bytes()) }.lines().unwrap().next().unwrap().is_err(),
            "{end:?}"
        );
    }
    let message = message(TextFile { max_text: 3, ..file(b"abcd") }.text());
    assert_eq!(
        message,
        "file `f`: expected at most 3 bytes, got more: divide it into several files, or set `data.window` in a config"
    );
}

#[test]
fn what_is_no_text_is_named_wherever_it_is() {
    let shown = |bytes: &[u8], expected: &str| {
        for message in [message(file(bytes).text()), file(bytes).labelled().err().unwrap().to_string()] {
            assert!(message.contains(expected), "{message}");
        }
    };
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    let by_lfs = "got a Git LFS pointer in the place of the file: fetch the file by `git lfs pull`";
    shown(pointer, &format!("file `f`: expected text, plain or in gzip or zip, {by_lfs}"));
    shown(&gzip(pointer), &format!("file `f`: expected text, plain or in gzip or zip, {by_lfs}"));
    shown(
        &zipped(&[("d.csv", pointer)]),
        &format!("file `f!d.csv`: expected text, plain or in gzip or zip, {by_lfs}"),
    );
    shown(&gzip(&gzip(b"text")), "got a gzip file in another archive: unpack the outer archive");
    let book: &[(&str, &[u8])] = &[("[Content_Types].xml", b"<?xml?>"), ("xl/workbook.xml", b"<?xml?>")];
    shown(
        &zipped(book),
        "file `f`: expected text, plain or in gzip or zip, got an Excel workbook (.xlsx): export the sheet as CSV",
    );
    let zip = Temporary::new("book.xlsx", &zipped(book));
    assert!(message(Folder::open(&zip.0)).contains("an Excel workbook"));
    shown(&zipped(&[("[Content_Types].xml", b"x"), ("word/document.xml", b"x")]), "got a Word document");
}

#[test]
fn a_file_that_changes_is_an_error_when_it_is_read_again() {
    let path = Temporary::new("changes.tsv", b"a\t1\nb\t2\n");
    let write = |bytes: &[u8]| std::fs::write(&path.0, bytes).unwrap();
    let modified = std::fs::metadata(&path.0).unwrap().modified().unwrap();
    // The modification time is set to the old time, as a copy that keeps times does.
    let same_time =
        || std::fs::File::options().write(true).open(&path.0).unwrap().set_modified(modified).unwrap();
    let open = || TextFile::open(&path.0).unwrap();
    let data = open();
    let shown = |expected: &str| {
        let e = message(data.text());
        assert!(
            e.contains("expected the file unchanged since it was first opened, got") && e.contains(expected),
            "{e}"
        );
        assert!(e.contains("changes.tsv"), "{e}");
    };
    assert_eq!(data.labelled().unwrap().read_all().unwrap().len(), 2);
    assert_eq!(data.labelled().unwrap().read_all().unwrap().len(), 2);
    write(b"a\t1\nb\t2\nc\t3\n");
    shown("12 bytes instead of 8");
    write(b"a\t1\n");
    shown("4 bytes instead of 8");
    write(b"a\t1\nb\t3\n");
    same_time();
    // Size and time are unchanged; at the end of the file, the checksum of the bytes shows the change.
    shown("other bytes than at first");
    write(b"a\t1\nb\t2\n");
    same_time();
    assert!(data.text().is_ok());
    std::fs::File::options()
        .write(true)
        .open(&path.0)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    shown("a file that was written since then");
    std::fs::remove_file(&path.0).unwrap();
    shown("none: it was removed");
    #[cfg(unix)]
    {
        let _listener = std::os::unix::net::UnixListener::bind(&path.0).unwrap();
        shown("a pipe or a device in its place");
        std::fs::remove_file(&path.0).unwrap();
    }
    // The file grows while it is read, and is longer than a buffer.
    let long = "a\t1\n".repeat(1 << 16);
    write(long.as_bytes());
    let data = open();
    let mut records = data.labelled().unwrap();
    assert!(records.next().unwrap().is_ok());
    write((long + "b\t2\n").as_bytes());
    let e = records.find_map(Result::err).unwrap().to_string();
    assert!(e.contains("262148 bytes instead of 262144"), "{e}");
}

#[test]
fn gzip_is_recognised_and_its_damage_too() {
    let text = (0..20_000).map(|i| format!("line {i}\t{}\n", i % 2)).collect::<String>();
    let packed = gzip(text.as_bytes());
    assert_eq!(file(&packed).text().unwrap(), text);
    // Two successive members are one text.
    assert_eq!(file(&[gzip(b"a"), gzip(b"b")].concat()).text().unwrap(), "ab");
    assert_eq!(file(&[gzip(b"a"), vec![0; 1000]].concat()).text().unwrap(), "a");
    let behind = message(file(&[gzip(b"a"), b"more".to_vec()].concat()).text());
    assert!(behind.contains("other bytes behind its end, from byte"), "{behind}");
    for end in [3, 15, packed.len() / 2, packed.len() - 4] {
        let mut records = file(&packed[..end]).labelled().unwrap();
        assert!(records.any(|record| record.is_err_and(|e| e.kind() == ErrorKind::Format)), "cut at {end}");
    }
    let whole = text.lines().count();
    let mut records = file(&packed[..packed.len() / 2]).labelled().unwrap();
    let end = records.find_map(Result::err).unwrap().to_string();
    let line: usize = end.strip_prefix("f:").unwrap().split(':').next().unwrap().parse().unwrap();
    let shown = "expected more of the compressed file, got its end: it was cut short, as by a download that broke off";
    assert!((2..whole).contains(&line) && end.ends_with(shown), "{end}");
    assert!(message(file(&packed[..packed.len() / 2]).text()).ends_with(shown));
    let mut flipped = packed.clone();
    let middle = flipped.len() / 2;
    flipped[middle] ^= 16;
    assert!(file(&flipped).malformed(MalformedLines::Skip).labelled().unwrap().any(|record| record.is_err()));
}

#[test]
fn a_bomb_takes_no_more_memory_than_a_line() {
    // The file is a single line of 64 MiB, which is packed into 64 KB.
    let packed = gzip(&vec![b'x'; 1 << 26]);
    let mut records =
        TextFile { max_line: 1 << 16, ..file(&packed) }.malformed(MalformedLines::Skip).labelled().unwrap();
    assert!(records.next().is_none() && records.skipped().count == 1);
    assert!(TextFile { max_text: 1 << 16, ..file(&packed) }.text().is_err());
}

#[test]
fn zips_are_read_member_by_member() {
    let one = zipped(&[("a/only.txt", b"x\ty\n")]);
    assert_eq!(file(&one).translations().unwrap().read_all().unwrap().len(), 1);
    let two = file(&zipped(&[("b.txt", b"bb"), ("a.txt", b"aa")]));
    assert_eq!(two.clone().member("b.txt").unwrap().text().unwrap(), "bb");
    assert_eq!(two.clone().member("b.txt").unwrap().name(), "f!b.txt");
    let expected = "member of zip `f`: expected one of `a.txt`, `b.txt`, got 2 files: unpack the wanted file";
    assert_eq!(message(two.text()), expected);
    let absent = message(two.clone().member("c.txt"));
    assert_eq!(absent, "member of zip `f`: expected one of `a.txt`, `b.txt`, got `c.txt`");
    let plain = message(file(b"text").member("c.txt"));
    assert_eq!(
        plain,
        "member `c.txt` of file `f`: expected a zip, or a JSON file that is one object, got a file of another kind"
    );
    assert_eq!(message(file(&zipped(&[])).text()), "member of zip `f`: expected a file in the zip, got none");
}

#[test]
fn notes_in_a_zip_are_passed_over_where_one_other_file_is_left() {
    let text = |members: &[(&str, &[u8])]| file(&zipped(members)).chosen().and_then(|(file, _)| file.text());
    assert_eq!(text(&[("d/_about.txt", b"about"), ("d/fra.txt", b"fra")]).unwrap(), "fra");
    assert_eq!(text(&[("_about.txt", b"about")]).unwrap(), "about");
    assert!(
        message(text(&[("_a", b"a"), ("b", b"b"), ("c", b"c")])).contains("one of `_a`, `b`, `c`, got 3")
    );
    assert_eq!(file(b"plain").chosen().unwrap().0.text().unwrap(), "plain");
}

#[test]
fn what_macos_adds_to_a_zip_is_no_member() {
    let added: &[(&str, &[u8])] =
        &[("a.txt", b"a"), ("__MACOSX/._a.txt", b"\0\x05\x16\x07"), (".DS_Store", b"\0"), ("._a.txt", b"\0")];
    assert_eq!(file(&zipped(added)).text().unwrap(), "a");
    let folder = Temporary::new("macos.zip", &zipped(added));
    let below: Vec<_> =
        Folder::open(&folder.0).unwrap().files().iter().map(|(below, _)| below.clone()).collect();
    assert_eq!(below, ["a.txt"]);
}

#[test]
fn the_mark_of_utf_16_stands_at_the_start() {
    assert_eq!(file(b"\xff\xfea\0\n\0").text().unwrap(), "a\n");
    let later =
        "f:2: expected UTF-8, got byte 0xff at place 0: `data.encoding` in a config sets another encoding";
    assert_eq!(message(file(b"a\n\xff\xfeb\n").text()), later);
    assert_eq!(message(file(b"a\n\xff\xfeb\n").lines().unwrap().read_all()), later);
    let zero = "f:1: expected text, got byte 0x00 at place 1: is it no text at all, or UTF-16";
    assert!(message(file(b"a\0b\0").text()).starts_with(zero));
}

#[cfg(unix)]
#[test]
fn what_is_no_file_in_a_folder_is_named() {
    let folder = std::env::temp_dir().join(format!("unpadded-{}-classes", std::process::id()));
    std::fs::create_dir_all(folder.join("pos/.git")).unwrap();
    std::fs::write(folder.join("pos/1.txt"), "1").unwrap();
    let open = || Folder::open(&folder).map(|folder| folder.files().len()).map_err(|e| e.to_string());
    let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, folder.join(name)).unwrap();
    link("1.txt", "pos/2.txt");
    link("nowhere", "pos/.git/hidden");
    let _hidden = std::os::unix::net::UnixListener::bind(folder.join(".socket")).unwrap();
    assert_eq!(open(), Ok(2));
    let refused = |name: &str, got: &str| {
        let path = folder.join(name);
        assert_eq!(open(), Err(format!("`{}`: expected a file or a folder, got {got}", path.display())));
        std::fs::remove_file(path).unwrap();
    };
    link("nowhere", "pos/3.txt");
    refused("pos/3.txt", "a link that leads nowhere");
    link("pos", "neg");
    refused("neg", "a link to a folder: put the folder itself there");
    let _listener = std::os::unix::net::UnixListener::bind(folder.join("pipe")).unwrap();
    refused("pipe", "a pipe or a device");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_damaged_zip_is_an_error_wherever_it_is_damaged() {
    let text = (0..3000).map(|i| format!("{i}\n")).collect::<String>();
    let whole = zipped(&[("a.txt", text.as_bytes())]);
    assert_eq!(file(&whole).text().unwrap(), text);
    for end in [4, 40, whole.len() / 2, whole.len() - 1] {
        assert!(file(&whole[..end]).text().is_err(), "cut at {end}");
    }
    // Every flipped bit in the packed bytes is detected.
    for at in (50..whole.len() - 120).step_by(97) {
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        assert!(file(&flipped).text().is_err(), "flipped at {at}");
    }
    // A damaged byte anywhere gives an error or the unchanged text, but never a panic.
    for at in 0..whole.len() {
        let mut flipped = whole.clone();
        flipped[at] ^= 0xff;
        if let Ok(read) = file(&flipped).text() {
            assert_eq!(read, text, "flipped at {at}");
        }
    }
    // The bit `encrypted` is set in the central directory and in the header of the file.
    let mut encrypted = whole.clone();
    let directory = whole.windows(4).position(|bytes| bytes == b"PK\x01\x02").unwrap();
    encrypted[directory + 8] |= 1;
    encrypted[6] |= 1;
    let expected =
        "file `f`: expected a zip that can be read, got a zip with the member `a.txt`, which is encrypted";
    assert_eq!(message(file(&encrypted).text()), expected);
}

#[test]
fn folders_and_absent_files_are_refused() {
    let folder = std::env::temp_dir();
    let expected =
        format!("file `{}`: expected a file, got a folder: give the path of a file in it", folder.display());
    assert_eq!(message(TextFile::open(&folder)), expected);
    #[cfg(unix)]
    {
        let path = folder.join(format!("unpadded-{}-socket", std::process::id()));
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let expected = "expected a file that can be read more than once, got a pipe or a device";
        assert!(message(TextFile::open(&path)).contains(expected));
        std::fs::remove_file(&path).unwrap();
    }
    assert_eq!(TextFile::open("no/such/file").unwrap_err().kind(), ErrorKind::Io);
    let absent = message(TextFile::open("no/such/file"));
    assert!(absent.starts_with("file `no/such/file`: expected a file, got none ("), "{absent}");
    assert_eq!(Folder::open("no/such/file").unwrap_err().kind(), ErrorKind::Io);
    let text = Temporary::new("text", b"text");
    assert_eq!(TextFile::open(&text.0).unwrap().text().unwrap(), "text");
    let expected =
        format!("file `{}`: expected a folder or a zip, got a file of another kind", text.0.display());
    assert_eq!(message(Folder::open(&text.0)), expected);
}

#[test]
fn labels_come_from_names_of_files_and_folders() {
    let opened = |name: &str, members: &[(&str, &[u8])], labels: fn(&Folder) -> Result<Classes>| {
        let zip = Temporary::new(name, &zipped(members));
        let read = |folder: Folder| {
            let classes = labels(&folder)?.into_iter();
            Ok(classes.map(|(label, file)| (label, file.text().unwrap())).collect::<Vec<_>>())
        };
        Folder::open(&zip.0)
            .and_then(read)
            .map_err(|e| e.to_string().replace(&*zip.0.to_string_lossy(), "ZIP"))
    };
    let pair = |label: &str, text: &str| (label.to_owned(), text.to_owned());
    let files: &[(&str, &[u8])] = &[("Czech.txt", b"c"), ("Arabic.txt", b"a"), (".DS_Store", b"x")];
    assert_eq!(opened("1", files, Folder::file_per_class), Ok(vec![pair("Arabic", "a"), pair("Czech", "c")]));
    let files: &[(&str, &[u8])] = &[("rt.pos", b"p"), ("rt.neg", b"n")];
    assert_eq!(opened("2", files, Folder::file_per_class), Ok(vec![pair("neg", "n"), pair("pos", "p")]));
    let nested: &[(&str, &[u8])] = &[("m/pos/2.txt", b"2"), ("m/pos/1.txt", b"1"), ("m/neg/1.txt", b"3")];
    let expected = Ok(vec![pair("neg", "3"), pair("pos", "1"), pair("pos", "2")]);
    assert_eq!(opened("3", nested, Folder::folder_per_class), expected);
    let error = opened("4", nested, Folder::file_per_class).unwrap_err();
    let expected = "labels in `ZIP`: expected one file per label, got label `1` for `ZIP!m/neg/1.txt` and `ZIP!m/pos/1.txt`";
    assert_eq!(error, expected);
    let error = opened("5", &[("1.txt", b"1")], Folder::folder_per_class).unwrap_err();
    assert_eq!(
        error,
        "files of `ZIP`: expected each file in a folder with the name of its label, got `1.txt` outside of any folder"
    );
    let error = opened("6", &[("1.txt", b"1")], Folder::file_per_class).unwrap_err();
    assert_eq!(error, "labels in `ZIP`: expected at least two, got only `1`");
    assert_eq!(
        opened("7", &[], Folder::file_per_class).unwrap_err(),
        "files of `ZIP`: expected at least one, got none"
    );
    let filtered = opened("8", &[("a.md", b"1")], |folder| folder.clone().extension("txt")?.file_per_class());
    assert_eq!(filtered.unwrap_err(), "files of `ZIP`: expected files that end with `.txt`, got none");
}
