//! Tests the reading of damaged files, foreign files, and files with absurd lengths.

use super::*;

fn file(sections: &[(&str, &[u8])]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new()).unwrap();
    for (name, body) in sections {
        writer.write_section(name, body).unwrap();
    }
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>> {
    let mut reader = Reader::new("bytes", bytes, bytes.len() as u64)?;
    let mut sections = Vec::new();
    while let Some(name) = reader.next_section()?.map(str::to_owned) {
        sections.push((name, reader.read_section()?));
    }
    Ok(sections)
}

fn refused(bytes: &[u8]) -> String {
    let error = read(bytes).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format);
    error.to_string()
}

#[test]
fn sections_come_back() {
    let long = vec![7; 3 * PIECE + 1];
    let bytes = file(&[("a", b"one"), ("b", &[]), ("c", &long)]);
    let sections = read(&bytes).unwrap();
    let expected = [("a", b"one".to_vec()), ("b", Vec::new()), ("c", long)].map(|(n, b)| (n.to_owned(), b));
    assert_eq!(sections, expected);

    let mut reader = Reader::new("bytes", &bytes[..], bytes.len() as u64).unwrap();
    for name in ["a", "b", "c"] {
        assert_eq!(reader.next_section().unwrap(), Some(name));
    }
    assert_eq!(reader.next_section().unwrap(), None);
    assert_eq!(reader.next_section().unwrap(), None);
    assert!(reader.read_section().is_err());
}

#[test]
fn every_cut_and_every_flipped_bit_is_noticed() {
    let bytes = file(&[("program", b"some bytes"), ("x", b"y")]);
    for end in 0..bytes.len() {
        refused(&bytes[..end]);
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << bit;
            refused(&bytes);
        }
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert!(refused(&longer).contains("expected the end of the file after it, got 1 more bytes"));
}

#[test]
fn errors_say_what_is_wrong() {
    let bytes = file(&[("program", b"body")]);
    assert_eq!(
        refused(b"PK\x03\x04 something else"),
        "bytes: first bytes: expected a file of `unpadded`, got a file of another format"
    );
    let mut future = bytes.clone();
    future[8] = 9;
    assert_eq!(
        refused(&future),
        "bytes: format version: expected 1, got 9: read the file with the release of `unpadded` that wrote it"
    );
    let mut flipped = bytes.clone();
    flipped[33] ^= 1;
    assert!(refused(&flipped).starts_with("bytes: section `program`: expected checksum"));
    assert_eq!(
        refused(&bytes[..34]),
        "bytes: section `program`: expected 8 more bytes, got 2 of the file's 34: it is cut short, or damaged"
    );
    assert_eq!(refused(b""), "bytes: first bytes: expected a file of `unpadded`, got an empty file");
    assert_eq!(refused(b"unp"), "bytes: size: expected at least 29 bytes, got 3: the file is cut short");
    assert_eq!(
        refused(&bytes[..28]),
        "bytes: size: expected at least 29 bytes, got 28: the file is cut short"
    );
    assert!(refused(b"word").contains("got a file of another format"));
}

#[test]
fn absurd_lengths_allocate_nothing() {
    // A section with a declared length of 2^62 bytes, and a valid checksum of its head.
    let mut bytes = file(&[]);
    bytes.truncate(12);
    let mut head = vec![1, b'x'];
    head.extend_from_slice(&(1u64 << 62).to_le_bytes());
    bytes.extend_from_slice(&head);
    bytes.extend_from_slice(&crc32fast::hash(&head).to_le_bytes());
    bytes.extend_from_slice(b"some more");
    assert!(refused(&bytes).contains("section `x`: expected 4611686018427387908 more bytes, got 9"));
}

/// A body that is written in pieces gives the same file as a body that is written at once. Writing a body of another
/// length than declared is an error.
#[test]
fn bodies_are_streamed() {
    let whole = file(&[("x", b"some bytes")]);
    let streamed = |declared: u64| {
        let mut writer = Writer::new(Vec::new()).unwrap();
        writer.stream_section("x", declared, |body| {
            b"some bytes".chunks(3).try_for_each(|piece| body.write(piece))
        })?;
        writer.finish()
    };
    assert_eq!(streamed(10).unwrap(), whole);
    assert!(streamed(9).unwrap_err().to_string().contains("expected 0 more bytes, got more"));
    assert!(streamed(11).unwrap_err().to_string().contains("expected 11 bytes, got 1 bytes fewer"));

    let mut reader = Reader::new("bytes", &whole[..], whole.len() as u64).unwrap();
    assert!(reader.read(&mut [0]).is_err() && reader.end_section().is_err());
    reader.next_section().unwrap();
    let mut four = [0; 4];
    reader.read(&mut four).unwrap();
    assert_eq!((&four, reader.section_left()), (b"some", 6));
    let error = reader.read(&mut [0; 7]).unwrap_err().to_string();
    assert_eq!(error, "bytes: section `x`: expected 7 more bytes, got 6");
    reader.end_section().unwrap();
    assert_eq!(reader.next_section().unwrap(), None);

    let mut damaged = whole.clone();
    damaged[33] ^= 1;
    let mut reader = Reader::new("bytes", &damaged[..], whole.len() as u64).unwrap();
    reader.next_section().unwrap();
    reader.read(&mut four).unwrap();
    assert!(reader.next_section().unwrap_err().to_string().contains("section `x`: expected checksum"));
}
