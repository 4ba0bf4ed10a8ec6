//! Tests of paths as text.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use super::*;

#[test]
fn text_of_a_path_restores_the_path() {
    let names: [(&[u8], &str); 6] = [
        (b"caf\xe9.csv", r"caf\xe9.csv"),
        ("café.csv".as_bytes(), "café.csv"),
        (br"caf\xe9.csv", r"caf\x5cxe9.csv"),
        (br"a\x5cxe9", r"a\x5cx5cxe9"),
        (b"a\\\xe9\\x41\\x+f\\x\xc3", r"a\\xe9\x41\x+f\x\xc3"),
        (b"\xff/\xfe9{a\\,b}", r"\xff/\xfe9{a\,b}"),
    ];
    for (name, expected) in names {
        let path = Path::new(OsStr::from_bytes(name));
        let text = text_of_path(path);
        assert_eq!(text, expected);
        assert_eq!(path_of_text(&text), path, "{text}");
    }
}
