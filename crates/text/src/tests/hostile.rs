//! Counts the bytes that the parsers of hostile files get: each line is parsed a bounded number of times.

use super::*;
use crate::source::lines::PARSED;
use crate::{AnswerCell, PairFiles, QuestionKind, Questions, TaggedFiles};

/// Lines that open more than they close, that close what is not open, and lines without a text.
const LINES: [&str; 19] = [
    "x\",\"z",
    "\"",
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

/// Opening a file with its detection, reading all of its records and writing an answer to each of them together parse
/// each byte at most four times. Each run checks a quarter of all combinations, a thorough run all of them.
#[test]
fn each_line_of_a_hostile_file_is_parsed_a_few_times() {
    const SIZE: usize = 1 << 20;
    let thorough = std::env::var_os("UNPADDED_THOROUGH").is_some();
    let long = ["so ".repeat(400) + ",x", format!("{{\"text\":\"{}\",\"label\":1}}", "so ".repeat(400))];
    let lines: Vec<&str> = LINES.iter().copied().chain(long.iter().map(String::as_str)).collect();
    let skip = ReadOptions::new().malformed(MalformedLines::Skip);
    let answered = |path: &Path, kind| -> Result<()> {
        let mut questions = Questions::open(path, &skip, kind)?;
        questions.write_to(Box::new(std::io::sink()), &["label", "probability"])?;
        let answer = [AnswerCell::Text("x".into()), AnswerCell::Nothing];
        while let Some(question) = questions.next().transpose()? {
            questions.answer(&question, &answer[..question.text.is_ok().into()])?;
        }
        questions.finish()
    };
    macro_rules! records {
        ($files:ident) => {
            &|path| $files::open_with([path], &skip).map(|files| _ = files.records().count())
        };
    }
    type Read<'a> = &'a (dyn Fn(&Path) -> Result<()> + Sync);
    let readers: [(&str, Read<'_>); 7] = [
        ("Text", &|path| answered(path, QuestionKind::Text)),
        ("Source", &|path| answered(path, QuestionKind::Source)),
        ("Words", &|path| answered(path, QuestionKind::Words)),
        ("Row", &|path| answered(path, QuestionKind::Row)),
        ("LabelledFiles", records!(LabelledFiles)),
        ("PairFiles", records!(PairFiles)),
        ("TaggedFiles", records!(TaggedFiles)),
    ];
    let check = |at: usize, (name, head): (&str, &str)| {
        let (mut opened, mut all) = (0, 0);
        for (i, line) in lines.iter().enumerate() {
            let text = head.to_owned() + &format!("{line}\n").repeat(SIZE / (line.len() + 1));
            let files = Files::new(&format!("hostile-{name}"), &[(name, text.as_bytes())]);
            for (j, (reader, read)) in readers.iter().enumerate() {
                if thorough || (at + i + j).is_multiple_of(4) {
                    PARSED.set(0);
                    (opened, all) = (opened + usize::from(read(&files.at(name)).is_ok()), all + 1);
                    let parsed = PARSED.get();
                    assert!(parsed <= 4 * text.len(), "{name} {line:?} {reader}: {parsed} of {}", text.len());
                }
            }
        }
        assert!(opened * 5 > all, "{name}: {opened} of {all} opened");
    };
    let check = &check;
    std::thread::scope(|scope| {
        HEADS.iter().enumerate().for_each(|(at, head)| drop(scope.spawn(move || check(at, *head))));
    });
}

/// Whether a line of a malformed record is answered depends on the lines from it on, not on the lines before it, except
/// in a long record with a wrong number of columns: there, lines that open a cell may be reported as parts of it.
#[test]
fn lines_of_a_malformed_record_are_records_of_their_own() {
    let asked = |text: &str| -> Vec<String> {
        let files = Files::new("again", &[("a.csv", text.as_bytes())]);
        let trained = ReadOptions::new().text("text").label("label");
        let questions = Questions::open(files.at("a.csv"), &trained, QuestionKind::Text).unwrap();
        let shown = |question: crate::Question| match question.text {
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
        let message =
            format!("{line}: a.csv:{line}: expected the end of the cell whose quotation mark is in line 9");
        let note = found.contains("the lines behind this line are read as separate records");
        assert!(found.starts_with(&message) && note == (line < 9), "{found}");
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
    // The detection reads a file that is as small as this one several times.
    assert!(bytes <= 8 * text.len(), "{bytes} of {}", text.len());
    // A value that is nested deeper than the limit of the parser is refused once, in one pass.
    for (depth, wrong) in [(60, false), (70, true)] {
        let nested = format!("{{\"text\":\"so\",\"label\":{}1{}}}", "[".repeat(depth), "]".repeat(depth));
        let (before, parsed) = (PARSED.get(), crate::format::fields::record(&nested, None));
        assert_eq!(parsed.is_err(), wrong, "{depth}");
        assert!(PARSED.get() - before <= 2 * nested.len());
    }
}
