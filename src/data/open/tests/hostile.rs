//! Counts the bytes that the parsers of hostile files get: each line is parsed a bounded number of times.

use super::*;
use crate::data::lines::PARSED;
use crate::data::{PairFiles, QuestionKind, Questions, TaggedFiles};

/// Lines that open more than they close, that close what is not open, and lines without a text.
const LINES: [&str; 20] = [
    "x\",\"z",
    "\"",
    "\"a",
    "1,\"a",
    "\"x\",\"y",
    "a\t\"b",
    "a\"\t\"b",
    "x,\"\"\"",
    "[[[[[[[[",
    "]",
    "{\"text\": \"",
    "{\"text\": [",
    "\\\"",
    ",,,,,,,,",
    "\t\t\t\t",
    "",
    "   ",
    "(2 (",
    "__label__a __label__b",
    "1 1:1 2:",
];

/// The first lines of a file in each format; they decide how the file is read.
const HEADS: [(&str, &str); 9] = [
    ("a.csv", "text,label\nso,x\n\"no, so\",y\n"),
    ("a.tsv", "text\tlabel\n\"so\"\t\"x\"\n\"no\"\t\"y\"\n"),
    ("a.jsonl", "{\"text\":\"so\",\"label\":\"x\"}\n"),
    ("a.json", "[{\"text\":\"so\",\"label\":\"x\"},\n"),
    ("a.conll", "so\tO\nno\tO\n\n"),
    ("trees", "(2 (3 so) (2 no))\n"),
    ("words", "__label__x so\n__label__y no\n"),
    ("a.svm", "1 1:1 2:2\n"),
    ("plain", "so it was\n"),
];

#[test]
fn each_line_of_a_hostile_file_is_parsed_a_few_times() {
    const SIZE: usize = 1 << 16;
    let skip = ReadOptions::new().malformed(MalformedLines::Skip);
    for (name, head) in HEADS {
        for line in LINES {
            let text = head.to_owned() + &format!("{line}\n").repeat(SIZE / (line.len() + 1));
            let files = Files::new("hostile", &[(name, text.as_bytes())]);
            let path = files.at(name);
            // The detection reads the first bytes of a file in a number of passes that does not depend on the file; the
            // reader of the records then reads the whole file.
            let check = |what: &str, count: &dyn Fn(&dyn Fn()) -> bool| {
                PARSED.set(0);
                let detected = std::cell::Cell::new(0);
                let opened = count(&|| detected.set(PARSED.get()));
                let (all, found) = (PARSED.get(), if opened { detected.get() } else { PARSED.get() });
                assert!(found <= 12 * text.len(), "{name} {line:?} {what}: detection read {found} bytes");
                assert!(all - found <= 4 * text.len(), "{name} {line:?} {what}: {} bytes", all - found);
            };
            for kind in [QuestionKind::Text, QuestionKind::Source, QuestionKind::Words, QuestionKind::Row] {
                check(&format!("{kind:?}"), &|begin| {
                    let questions = Questions::open(&path, &skip, kind);
                    begin();
                    questions.map(Iterator::count).is_ok()
                });
            }
            macro_rules! check_records {
                ($($files:ident)*) => {$(check(stringify!($files), &|begin| {
                    let files = $files::open_with([&path], &skip);
                    begin();
                    files.map(|files| files.records().count()).is_ok()
                });)*};
            }
            check_records!(LabelledFiles PairFiles TaggedFiles);
        }
    }
}

/// Whether a line of a malformed record is answered depends on the lines from it on, not on the lines before it, except
/// in a long record with a wrong number of columns: there, lines that open a cell may be reported as parts of it.
#[test]
fn lines_of_a_malformed_record_are_records_of_their_own() {
    let asked = |text: &str| -> Vec<String> {
        let files = Files::new("again", &[("a.csv", text.as_bytes())]);
        let trained = ReadOptions::new().text("text").label("label");
        let questions = Questions::open(files.at("a.csv"), &trained, QuestionKind::Text).unwrap();
        let shown = |question: crate::data::Question| match question.text {
            Ok(text) => format!("{}: {text}", question.line),
            Err(e) => format!("{}: {e}", question.line).replace(&format!("{}/", files.0.display()), ""),
        };
        questions.map(|question| shown(question.unwrap())).collect()
    };
    let head = "text,label\nso,x\nno,y\nso,x\nno,y\n";
    // Each line closes the cell of the line before, and opens a cell; the cell of line 9 has no end.
    let found = asked(&(head.to_owned() + &"x\",\"z\n".repeat(4)));
    assert_eq!(found.len(), 8, "{found:?}");
    for (line, found) in (6..).zip(&found[4..]) {
        let said =
            format!("{line}: a.csv:{line}: expected the end of the cell whose quotation mark is in line 9");
        let note = found.contains("the lines behind this line are read as separate records");
        assert!(found.starts_with(&said) && note == (line < 9), "{found}");
    }
    // A record of several lines that has too many cells is parsed as three lines, of which the last is whole.
    let found = asked(&(head.to_owned() + "a,\"b\n5\",\"so\nit\",z\nyes,x\n"));
    says(&found[4], &["a.csv:6: expected 2 columns, as in most of the first records, got 4"]);
    assert!(found[5].contains("a.csv:7: expected 2 columns") && found[6] == "8: it\"", "{found:?}");
    assert_eq!(found[7..], ["9: yes"]);
    // The same with one cell less: the lines behind the first line are a whole record of two lines.
    let found = asked(&(head.to_owned() + "a,\"b\n5\",\"so\nit\"\nyes,x\n"));
    says(&found[4], &["6: a.csv:6: expected 2 columns", "got 3"]);
    assert_eq!(found[5..], ["7: 5\"", "9: yes"]);
    // Each line opens a cell, so that each line begins a record up to the last line; only the last such record has two
    // cells. A few of the others are parsed.
    let (text, before) = (head.to_owned() + &"x\",\"z\n".repeat(1000) + "it\"\nyes,x\n", PARSED.get());
    let found = asked(&text);
    let bytes = PARSED.get() - before;
    says(&found[4], &["6: a.csv:6: expected 2 columns", "got 1001"]);
    let part = "504: a.csv:504: expected a record, got a part of the malformed record of line 7";
    assert!(found[502].starts_with(part), "{}", found[502]);
    assert_eq!(found[1003..], ["1005: x\"", "1007: yes"]);
    assert!(bytes <= 12 * text.len(), "{bytes} of {}", text.len());
    // A value that is nested deeper than the limit of the parser is refused once, in one pass.
    for (depth, wrong) in [(60, false), (70, true)] {
        let nested = format!("{{\"text\":\"so\",\"label\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
        let (before, parsed) = (PARSED.get(), super::super::fields::record(&nested, None));
        assert_eq!(parsed.is_err(), wrong, "{depth}");
        assert!(PARSED.get() - before <= 2 * nested.len());
    }
}
