//! Tests of word vector files in each format: the vectors that are read, and the errors.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;
use unpadded::data::Limits;
use unpadded::ndarray::Array2;

use super::*;
use crate::{Encoding, MalformedLines};

fn file(bytes: &[u8]) -> TextFile {
    // The bytes are leaked, because an embedded text must live as long as the program.
    TextFile::embedded("f", Box::leak(bytes.to_vec().into_boxed_slice()))
}

fn words(tokens: &[&str]) -> Vocabulary {
    Vocabulary::of(tokens, &Limits::default().without_specials()).unwrap()
}

fn read(bytes: &[u8], vocabulary: &Vocabulary) -> Result<WordVectors> {
    WordVectors::of(&file(bytes), vocabulary)
}

/// Returns the vectors of a file, each with its token.
fn found(bytes: &[u8], tokens: &[&str]) -> Vec<(String, Vec<f32>)> {
    let vocabulary = words(tokens);
    let vectors = read(bytes, &vocabulary).unwrap();
    let named = |(id, vector): (i64, &[f32])| (vocabulary.token(id).unwrap().to_owned(), vector.to_vec());
    vectors.vectors().map(named).collect()
}

#[track_caller]
fn refused(bytes: &[u8], expected: &str) {
    let error = read(bytes, &words(&["a", "b", "c"])).unwrap_err().to_string();
    assert_eq!(error, expected);
}

/// Returns a binary file: the first line, then the vectors, with `end` behind each vector.
fn binary(first: &str, vectors: &[(&str, &[f32])], end: &str) -> Vec<u8> {
    let mut bytes = format!("{first}\n").into_bytes();
    for (word, vector) in vectors {
        bytes.extend_from_slice(word.as_bytes());
        bytes.push(b' ');
        bytes.extend(vector.iter().flat_map(|number| number.to_le_bytes()));
        bytes.extend_from_slice(end.as_bytes());
    }
    bytes
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn every_form_is_recognised_and_says_the_same() {
    let vectors: [(&str, &[f32]); 3] = [("a", &[0.5, -1.25]), ("é", &[3e-3, 2.0]), ("x", &[0.0, 7.0])];
    let expected = vec![("a".to_owned(), vec![0.5, -1.25]), ("é".to_owned(), vec![3e-3, 2.0])];
    let text = "a 0.5 -1.25\né 3e-3 2\nx 0 7\n";
    let forms = [
        text.as_bytes().to_vec(),
        format!("\u{feff}3 2\r\n{}", text.replace('\n', " \r\n")).into_bytes(),
        format!("\n{}\n", text.trim_end().replace(' ', "\t")).into_bytes(),
        format!("3 2\n{text}").into_bytes(),
        binary("3 2", &vectors, "\n"),
        binary("3 2", &vectors, ""),
    ];
    for bytes in forms {
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        assert_eq!(found(&bytes, &["a", "é", "z"]), expected, "{shown}");
        assert_eq!(found(&gzip(&bytes), &["a", "é", "z"]), expected, "{shown} in gzip");
    }
}

#[test]
fn a_binary_file_may_look_like_lines_at_first() {
    // The first byte of the first number is a newline, and the first byte of the second number is a digit.
    let (first, second) =
        (f32::from_le_bytes([b'\n', 0, 0, 0x3f]), f32::from_le_bytes([b'1', 0xd0, b'.', 0x3f]));
    let bytes = binary("2 2", &[("a", &[first, second]), ("b", &[second, first])], "\n");
    assert_eq!(found(&bytes, &["b"]), [("b".to_owned(), vec![second, first])]);
    // Some files have a newline before each word, and none at the end.
    let bytes = binary("2 1", &[("\na", &[first]), ("\nb", &[second])], "");
    assert_eq!(found(&bytes, &["b"]), [("b".to_owned(), vec![second])]);
}

#[test]
fn the_word_itself_is_before_its_lower_case_form_and_the_first_before_the_second() {
    let file = "us 1\nUS 2\nus 3\nUS 4\nparis 5\nÉTÉ 6\nété 7\n";
    let expected = [("PARIS", 5.0), ("Paris", 5.0), ("US", 2.0), ("us", 1.0), ("Été", 7.0)];
    let expected = expected.map(|(word, number)| (word.to_owned(), vec![number]));
    assert_eq!(found(file.as_bytes(), &["US", "us", "Paris", "PARIS", "Été", "ETÉ"]), expected);
    // The vector of the word itself counts, whichever vector comes first in the file.
    assert_eq!(found(b"US 2\nus 1\n", &["US"]), [("US".to_owned(), vec![2.0])]);
    assert!(found(b"Us 2\nUS 1\n", &["us"]).is_empty());
    let vocabulary = words(&["US", "us", "Paris", "none"]);
    let vectors = read(file.as_bytes(), &vocabulary).unwrap();
    assert_eq!((vectors.found(), vectors.by_lower_case(), vectors.width()), (3, 1, 1));
    assert_eq!(vectors.to_string(), "3 of 4 words (75.0 %), 1 of them in lower case, width 1");
}

#[test]
fn words_may_hold_spaces() {
    let text = "the 1 2\n. . . 3 4\nat name@domain.com 5 6\nno\u{a0}break 7 8\nnan 9 10\n2 11 12\n";
    let expected = [
        (". . .", [3.0, 4.0]),
        ("2", [11.0, 12.0]),
        ("at name@domain.com", [5.0, 6.0]),
        ("nan", [9.0, 10.0]),
        ("no\u{a0}break", [7.0, 8.0]),
    ]
    .map(|(word, vector)| (word.to_owned(), vector.to_vec()));
    let tokens: Vec<&str> = expected.iter().map(|(word, _)| word.as_str()).collect();
    assert_eq!(found(text.as_bytes(), &tokens), expected);
    assert_eq!(found(format!("6 2\n{text}").as_bytes(), &tokens), expected);
}

#[test]
fn a_line_that_does_not_fit_is_named() {
    let columns = "expected a word and 2 numbers, as in the first line, got";
    refused(b"x 1 2\n\na 1\n", &format!("f:3: {columns} 2 columns in \"a 1\""));
    refused(b"x 1 2\ny 1 2 3\n", &format!("f:2: {columns} 4 columns in \"y 1 2 3\""));
    refused(b"x 1 2\n 1 2\n", &format!("f:2: {columns} 2 columns in \" 1 2\""));
    refused(b"2 2\nx 1 2\ny 1 2 3\n", &format!("f:3: {columns} 4 columns in \"y 1 2 3\""));
    refused(b"word\n", "f:1: expected a word and 1 to 65536 numbers, got 1 columns in \"word\"");
    let finite = "expected a number that is finite in `f32`, got";
    refused(b"x 1 2\na 1 2,5\n", &format!("f:2: {finite} \"2,5\" as number 2 of the word \"a\""));
    refused(b"x 1 NaN\n", &format!("f:1: {finite} \"NaN\" as number 2 of the word \"x\""));
    refused(b"1 2\na inf 1\n", &format!("f:2: {finite} \"inf\" as number 1 of the word \"a\""));
    refused(b"x 1 2\nb 1e39 1\n", &format!("f:2: {finite} \"1e39\" as number 1 of the word \"b\""));
    // For a word that is not in the vocabulary, only the first number is parsed.
    refused(b"x 1 2\ny z 3\n", &format!("f:2: {finite} \"z\" as number 1 of the word \"y\""));
    assert_eq!(found(b"x 1 2\ny 3 z\na 4 5\n", &["a"]), [("a".to_owned(), vec![4.0, 5.0])]);
}

#[test]
fn nothing_is_no_vector() {
    for bytes in [&b""[..], b"\n \n", b"\xef\xbb\xbf"] {
        refused(bytes, "vectors of file `f`: expected at least one, got none");
    }
    refused(b"0 3\n", "f:1: expected at least one vector, got 0");
}

#[test]
fn a_header_that_lies_is_found_out_without_room_for_what_it_says() {
    let says = |count: u64| format!("vectors of file `f`: expected {count}, as its first line says, got");
    refused(b"3 1\na 1\nb 2\n", &format!("{} 2", says(3)));
    refused(b"1 1\na 1\nb 2\n", &format!("{} 2", says(1)));
    refused(b"9 2", &format!("{} 0", says(9)));
    refused(b"99999999999999999999999 1\na 1\n", &format!("{} 1", says(u64::MAX)));
    refused(b"1 0\na\n", "f:1: expected vectors of 1 to 65536 numbers, got 0");
    let wide = "f:1: expected vectors of 1 to 65536 numbers, got 1000000000000";
    refused(b"1 1000000000000\na 1\n", wide);
    let vectors: [(&str, &[f32]); 2] = [("a", &[0.5]), ("b", &[0.25])];
    let with_header = |first: &str| binary(first, &vectors, "\n");
    refused(&with_header("18446744073709551615 1"), &format!("{} 2", says(u64::MAX)));
    refused(&with_header("3 1"), &format!("{} 2", says(3)));
    refused(&with_header("1 1"), &format!("{} more bytes behind these vectors", says(1)));
    refused(&with_header("2 1000000000000"), wide);
    let short = "f: vector 1, at byte 8: expected a word and 262144 bytes, 65536 numbers, got the end of the file \
                 behind 14 bytes: it was cut short";
    refused(&with_header("2 65536"), short);
}

#[test]
fn a_binary_file_that_is_damaged_is_named_by_its_vector() {
    let whole = binary("2 2", &[("a", &[0.5, 1.0]), ("b", &[0.25, 2.0])], "\n");
    let end =
        "f: vector 2, at byte 14: expected a word and 8 bytes, 2 numbers, got the end of the file behind";
    refused(&whole[..whole.len() - 2], &format!("{end} 10 bytes: it was cut short"));
    refused(&whole[..16], &format!("{end} 2 bytes: it was cut short"));
    refused(&whole[..15], "vectors of file `f`: expected 2, as its first line says, got 1");
    for end in 5..whole.len() - 1 {
        assert!(read(&whole[..end], &words(&["a", "b"])).is_err(), "cut at {end}");
    }
    let finite = "expected a number that is finite in `f32`, got";
    let bytes = binary("2 2", &[("x", &[f32::NAN, 0.0]), ("b", &[0.0, f32::NEG_INFINITY])], "");
    refused(&bytes, &format!("f: vector 2, at byte 14: {finite} \"-inf\" as number 2 of the word \"b\""));
    refused(
        &binary("1 1", &[("", &[0.5])], ""),
        "f: vector 1, at byte 4: expected a word, got an empty word",
    );
    let mut bytes = binary("1 1", &[("a", &[0.5])], "");
    bytes[4] = 0xff;
    refused(&bytes, "f: vector 1, at byte 4: expected a word in UTF-8, got \"\u{fffd}\"");
    let mut bytes = binary("2 1", &[("a", &[0.5])], "");
    bytes.resize(1 << 18, b'x');
    let long = "f: vector 2, at byte 10: expected a word of at most 65536 bytes and a space, got no space in this number of bytes";
    refused(&bytes, long);
    // A damaged byte gives an error or other numbers, but never a panic.
    for at in 0..whole.len() {
        for flip in [1, 0x20, 0xff] {
            let mut bytes = whole.clone();
            bytes[at] ^= flip;
            drop(read(&bytes, &words(&["a", "b"])));
        }
    }
}

#[test]
fn a_download_that_broke_off_is_an_error() {
    let text = (0..20_000).map(|i| format!("w{i} {i} 0.5\n")).collect::<String>();
    let packed = gzip(text.as_bytes());
    let vocabulary = words(&["w7", "w19999"]);
    assert_eq!(read(&packed, &vocabulary).unwrap().found(), 2);
    for end in [15, packed.len() / 2, packed.len() - 4] {
        let error = read(&packed[..end], &vocabulary).unwrap_err().to_string();
        assert!(error.ends_with("as by a download that broke off"), "{error}");
    }
}

#[test]
fn malformed_vectors_are_passed_over_where_the_file_says_so() {
    let vocabulary = words(&["a", "b"]);
    let skipping = |bytes: &[u8]| WordVectors::of(&file(bytes).malformed(MalformedLines::Skip), &vocabulary);
    let vectors = skipping(b"4 1\na x\nb 2\n\xff 1\na 3\n").unwrap();
    assert_eq!((vectors.vector(0), vectors.vector(1)), (Some(&[3.0][..]), Some(&[2.0][..])));
    let expected = [
        "f:2: expected a number that is finite in `f32`, got \"x\" as number 1 of the word \"a\"",
        "f:4: expected UTF-8, got byte 0xff at place 0: `data.encoding` in a config sets another encoding",
    ];
    let first: Vec<String> = vectors.skipped().first.iter().map(ToString::to_string).collect();
    assert_eq!((vectors.skipped().count, first), (2, expected.map(str::to_owned).to_vec()));
    let vectors = skipping(&binary("2 1", &[("a", &[f32::NAN]), ("b", &[0.5])], "\n")).unwrap();
    assert_eq!((vectors.found(), vectors.skipped().count), (1, 1));
    let latin = file(b"caf\xe9 1\n").encoding(Encoding::Latin1);
    assert_eq!(WordVectors::of(&latin, &words(&["café"])).unwrap().found(), 1);
}

#[test]
fn a_table_gets_the_rows_that_are_known() {
    let vocabulary = words(&["a", "b", "C"]);
    let vectors = read(b"c 1 2\nb 3 4\nx 5 6\n", &vocabulary).unwrap();
    let mut table = Array2::from_elem((3, 2), 9.0);
    vectors.fill(&mut table).unwrap();
    assert_eq!(table, unpadded::ndarray::arr2(&[[1.0, 2.0], [9.0, 9.0], [3.0, 4.0]])); // `C` is before `a`
    for shape in [(3, 3), (2, 2), (0, 0)] {
        let error = vectors.fill(&mut Array2::zeros(shape)).unwrap_err().to_string();
        let expected = "table for word vectors: expected [3, 2], a row for each token of the vocabulary and the width \
                        of `f`, got";
        assert_eq!(error, format!("{expected} [{}, {}]", shape.0, shape.1));
    }
    assert_eq!((vectors.vector(-1), vectors.vector(1), vectors.vector(3)), (None, None, None));
}

#[test]
fn thousands_are_set_apart() {
    let written = |numbers: &[usize]| numbers.iter().map(|&n| thousands(n)).collect::<Vec<_>>();
    assert_eq!(written(&[0, 999, 1000, 12_345, 1_234_567]), ["0", "999", "1,000", "12,345", "1,234,567"]);
}

#[test]
fn the_files_of_fasttext_are_told_apart() {
    // The file is as fastText writes it: each line ends with a space, and a word contains a no-break space.
    let vec = "3 2\n</s> 0.5 -1.25 \nnew\u{a0}york 1 2 \nthe -0.0021 3e-05 \n";
    let expected = [("new\u{a0}york".to_owned(), vec![1.0, 2.0]), ("the".to_owned(), vec![-0.0021, 3e-5])];
    assert_eq!(found(vec.as_bytes(), &["the", "new\u{a0}york", "absent"]), expected);
    refused(
        &[0xba, 0x16, 0x4f, 0x2f, 12, 0, 0, 0, 100, 0, 0, 0],
        "file `f`: expected vectors as text, or binary vectors of word2vec, got a whole model of fastText (`.bin`); \
         fastText writes the word vectors to a `.vec` file beside the model",
    );
}
