//! Tests of answers to the records of a file: the output keeps the contents of the file, in the same order.

use std::sync::{Arc, Mutex};

use super::*;
#[cfg(feature = "parquet")]
use crate::TaggedText;
use crate::{AnswerCell, Question, QuestionKind, Questions};

mod texts;

/// An output that the test can read.
#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Returns the file with an answer to each record: a label, or a tag `T` for each word. A record without a text gets no
/// answer.
fn answered(mut questions: Questions, added: &[&str]) -> (String, Vec<String>) {
    let (sink, mut asked) = (Sink::default(), Vec::new());
    questions.write_to(Box::new(sink.clone()), added).unwrap();
    while let Some(question) = questions.next() {
        let question: Question = question.unwrap();
        let answer = match &question.text {
            Err(why) => {
                asked.push(format!("{}: {}", question.line, why.to_string().rsplit('/').next().unwrap()));
                Vec::new()
            }
            Ok(text) => {
                let shown = text.strip_suffix('\n').map(|words| words.replace('\n', " "));
                asked.push(format!("{}: {}", question.line, shown.as_ref().unwrap_or(text)));
                let words = if text.ends_with('\n') { text.lines().count() } else { text.split(' ').count() };
                let tags = vec!["T".to_owned(); words];
                match added {
                    ["tags"] => vec![AnswerCell::Words(tags)],
                    ["tags", ..] => {
                        vec![
                            AnswerCell::Words(tags),
                            AnswerCell::Text("flight".into()),
                            AnswerCell::Number(0.5),
                        ]
                    }
                    _ => vec![AnswerCell::Text("a,b".into()), AnswerCell::Number(0.5)],
                }
            }
        };
        questions.answer(&question, &answer).unwrap();
    }
    questions.finish().unwrap();
    let written = sink.0.lock().unwrap().clone();
    (String::from_utf8(written).unwrap(), asked)
}

fn read(text: &str, name: &str, asking: QuestionKind, options: &ReadOptions) -> (String, Vec<String>) {
    let files = Files::new(&format!("questions-{name}-{}", text.len()), &[(name, text.as_bytes())]);
    let questions = Questions::open(files.at(name), options, asking).unwrap();
    let added: &[&str] = if asking == QuestionKind::Words { &["tags"] } else { &["label", "p"] };
    answered(questions, added)
}

#[test]
fn an_answer_with_fewer_cells_leaves_the_others_empty() {
    let files =
        Files::new("questions-fewer", &[("a.csv", b"text,id\nso,1\n"), ("a.jsonl", b"{\"text\": \"so\"}\n")]);
    let answers = |name: &str| {
        let questions = Questions::open(files.at(name), &ReadOptions::new(), QuestionKind::Text).unwrap();
        answered(questions, &["translation", "score", "translation 2", "score 2"]).0
    };
    let head = "text,id,translation,score,translation 2,score 2";
    assert_eq!(answers("a.csv"), format!("{head}\nso,1,\"a,b\",0.5,,\n"));
    assert!(answers("a.jsonl").ends_with("\"translation 2\":null,\"score 2\":null}\n"));
}

#[test]
fn tables_keep_their_columns_and_quotation_marks() {
    let trained = ReadOptions::new().text("review").label("label");
    let table = "sep=;\nid;review;label\n\n7;\"so; \"\"fine\"\"\";good\n8;\"two\r\nlines\";bad\n9;short\n10;last;good\n";
    let (text, asked) = read(table, "a.csv", QuestionKind::Text, &trained);
    let expected = "sep=;\nid;review;label;predicted_label;p\n\n7;\"so; \"\"fine\"\"\";good;a,b;0.5\n\
                    8;\"two\r\nlines\";bad;a,b;0.5\n9;short;;\n10;last;good;a,b;0.5\n";
    assert_eq!(text, expected);
    assert_eq!(asked[..2], ["4: so; \"fine\"", "5: two\nlines"]);
    assert!(asked[2].starts_with("7: a.csv:7: expected 3 columns"), "{asked:?}");
    assert_eq!(asked[3], "8: last");
    // This file has no label column, and its columns are in another order.
    let (text, _) = read("review,id\n\"a, b\",1\n", "b.csv", QuestionKind::Text, &trained);
    assert_eq!(text, "review,id,label,p\n\"a, b\",1,\"a,b\",0.5\n");
    // In this table of tabs, a quotation mark is text. The training data had no header, so its columns are given by
    // numbers.
    let numbers = ReadOptions::new().text("2").label("1");
    let (text, asked) = read("x\ta \"b\nz\tc\n", "c.tsv", QuestionKind::Text, &numbers);
    assert_eq!((text.as_str(), &asked[0][..]), ("x\ta \"b\ta,b\t0.5\nz\tc\ta,b\t0.5\n", "1: a \"b"));
    // Each line is a text, whatever columns the training data had.
    let (text, asked) = read("a fine film\n\ndull\n", "d.txt", QuestionKind::Text, &numbers);
    assert_eq!(text, "a fine film\ta,b\t0.5\n\ndull\ta,b\t0.5\n");
    assert_eq!(asked, ["1: a fine film", "2: ", "3: dull"]);
    let (text, asked) =
        read("Go.\tVa !\nRun!\tCours !\n", "e.tsv", QuestionKind::Source, &ReadOptions::new());
    assert_eq!((text.lines().next(), &asked[1][..]), (Some("Go.\tVa !\ta,b\t0.5"), "2: Run!"));
}

#[test]
fn lines_of_json_get_fields_more() {
    let lines = "{\"id\": 12345678901234567890123, \"text\": \"a\\u00e9\"}\n{\"id\":2}\n\n{\"text\":\"b\",\"label\":\"x\" }\n";
    let (text, asked) = read(lines, "a.jsonl", QuestionKind::Text, &ReadOptions::new());
    let expected = "{\"id\": 12345678901234567890123, \"text\": \"a\\u00e9\",\"predicted_label\":\"a,b\",\"p\":0.5}\n\
                    {\"id\":2,\"predicted_label\":null,\"p\":null}\n\n\
                    {\"text\":\"b\",\"label\":\"x\",\"predicted_label\":\"a,b\",\"p\":0.5}\n";
    assert_eq!(text, expected);
    assert_eq!((&asked[0][..], &asked[2][..]), ("1: aé", "4: b"));
    let (text, _) =
        read("{\"tokens\":[\"Go\",\"on\"]}\n", "b.jsonl", QuestionKind::Words, &ReadOptions::new());
    assert_eq!(text, "{\"tokens\":[\"Go\",\"on\"],\"tags\":[\"T\",\"T\"]}\n");
    let files = Files::new("questions-list", &[("a.json", b"[{\"text\": \"a\"}, {\"text\": \"b\"}]\n")]);
    let shown = files.error(Questions::open(files.at("a.json"), &ReadOptions::new(), QuestionKind::Text));
    assert!(shown.contains("`jq -c '.[]'` writes one element per line"), "{shown}");
}

/// Returns the read note of training data in columns.
fn noted_columns(text: &str) -> String {
    let files = Files::new("questions-columns", &[("train.conll", text.as_bytes())]);
    TaggedTexts::open(files.at("train.conll")).unwrap().read_as().to_note()
}

#[test]
fn columns_get_a_tag_for_each_word() {
    let words = |text: &str, name: &str| read(text, name, QuestionKind::Words, &ReadOptions::new());
    let (text, asked) = words("# id 1\na x O\nb y B-A\n\n\nc z O\n\n# end\n", "a.conll");
    assert_eq!(text, "# id 1\na x O T\nb y B-A T\n\n\nc z O T\n\n# end\n");
    assert_eq!(asked, ["1: a b", "6: c"]);
    // The header has another order of columns than the training data.
    let trained = ReadOptions::new();
    let trained = trained.or_note(&noted_columns("word\tpos\ttag\na\tX\tO\n\nb\tX\tO\n")).unwrap();
    let turned = "tag\tword\tpos\nO\ta\tX\nO\tb\tX\n\nO\tc\tX\n";
    let (text, asked) = read(turned, "t.conll", QuestionKind::Words, &trained);
    assert_eq!(asked, ["1: a b", "5: c"], "{text}");
    let (text, _) = words("word\tner\na\tO\nb\tO\n\nc\tB-X\n", "b.tsv");
    assert_eq!(text, "word\tner\ttags\na\tO\tT\nb\tO\tT\n\nc\tB-X\tT\n");
    // A sentence with a malformed line has no answer.
    let (text, asked) = words("a O\nb\nc O\n\nd O\ne O\n\nf O\ng O\nh O\ni O\nj O\nk O\nl O\n", "c.conll");
    assert!(text.starts_with("a O _\nb\nc O _\n\nd O T\ne O T\n"), "{text}");
    assert!(asked[0].starts_with("1: c.conll:2: expected 2 columns"), "{asked:?}");
    let universal = "# text = a b\n1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_\n1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t_\t_\n\n";
    let tagged = universal.replace("root\t_\t_", "root\t_\ttags=T").replace("dep\t_\t_", "dep\t_\ttags=T");
    assert_eq!(words(universal, "d.conllu").0, tagged);
    let bare = universal.replace("\tX\t", "\t_\t");
    assert_eq!(words(&bare, "h.conllu").0, universal.replace("\tX\t", "\tT\t"));
    // A word may contain spaces. A sentence that cannot be read has no tag that could be mistaken for an answer.
    let spaced = "1\t10 000\t_\tNUM\t_\t_\t0\troot\t_\t_\n\n1\ta\t_\tX\t_\t_\t0\troot\t_\t_\nx\tb\t_\tX\t_\t_\t0\troot\t_\t_\n\n1\tc\t_\tX\t_\t_\t0\troot\t_\t\u{a0}\n\n";
    let (text, asked) = words(spaced, "g.conllu");
    assert_eq!(text, spaced.replacen("root\t_\t_", "root\t_\ttags=T", 1).replace("\u{a0}", "\u{a0}|tags=T"));
    assert!(asked.len() == 3 && asked[0] == "1: 10 000" && asked[1].contains("g.conllu:4"), "{asked:?}");
    // The first file has only words; the second file has running text.
    assert_eq!(words("a\nb\n\nc\n", "e.txt").0, "a\tT\nb\tT\n\nc\tT\n");
    assert_eq!(words("a b c d\nc d\ne\n", "f.txt").0, "a b c d\tT T T T\nc d\tT T\ne\tT\n");
}

#[test]
fn rows_get_a_comment() {
    let (text, asked) =
        read("# rows\n1 1:2 3:1 # x\n\n2:1\n", "a.svm", QuestionKind::Row, &ReadOptions::new());
    assert_eq!(text, "# rows\n1 1:2 3:1 # x # label a,b p 0.5\n\n2:1 # label a,b p 0.5\n");
    assert_eq!(asked, ["1: 1 1:2 3:1", "4: 2:1"]);
}

#[test]
fn what_may_be_read_wrongly_is_refused() {
    let shown = |name: &str, text: &str, options: &ReadOptions, asking| {
        let files = Files::new(&format!("doubt-{name}"), &[(name, text.as_bytes())]);
        files.error(Questions::open(files.at(name), options, asking))
    };
    let trained = ReadOptions::new().or_note(r#"{"text":"1","label":"2"}"#).unwrap();
    let commas = "Good film, not bad\nDull, but good\nFine, very fine\n";
    assert!(shown("a.txt", commas, &ReadOptions::new(), QuestionKind::Text).contains("`plain` or `csv`"));
    let plain = ReadOptions::new().format(FileFormat::Plain);
    assert_eq!(read(commas, "b.txt", QuestionKind::Text, &plain).1[0], "1: Good film, not bad");
    let ids = shown("c.tsv", "1\ta film\n2\tanother\n", &trained, QuestionKind::Text);
    assert!(ids.contains("only numbers in column 1"), "{ids}");
    let numbers = shown("d.conll", "17 a N\n12 b N\n\n14 c N\n", &ReadOptions::new(), QuestionKind::Words);
    assert!(numbers.contains("only numbers"), "{numbers}");
    // Of a dictionary, only the words are read. Malformed text stays in the output, with replacement characters.
    let (_, asked) = read("GO  G OW1\nRUN  R AH1 N\n", "e.dict", QuestionKind::Source, &ReadOptions::new());
    assert_eq!(asked.len(), 2);
    assert!(asked[0].eq_ignore_ascii_case("1: go"), "{asked:?}");
    let utf_8 = ReadOptions::new().encoding("utf-8".parse().unwrap());
    let files = Files::new("doubt-bytes", &[("f.csv", b"text,id\nfine,1\nd\xe9j\xe0,2\nso,3\n")]);
    let questions = Questions::open(files.at("f.csv"), &utf_8, QuestionKind::Text).unwrap();
    let (text, asked) = answered(questions, &["label", "p"]);
    assert_eq!(text.lines().nth(2), Some("d\u{fffd}j\u{fffd},2,,"), "{text}");
    assert!(asked[1].contains("f.csv:3: expected UTF-8") && asked.len() == 3, "{asked:?}");
    let (text, _) = read("{\"text\":\"a\"}\nnot json\n", "g.jsonl", QuestionKind::Text, &ReadOptions::new());
    assert!(text.ends_with("\nnot json\n"), "{text}");
}

/// Returns the description of the detected format and columns, and the output.
fn read_as(
    text: &[u8],
    name: &str,
    asking: QuestionKind,
    options: &ReadOptions,
    added: &[&str],
) -> [String; 2] {
    let files = Files::new(&format!("read-as-{name}-{}", text.len()), &[(name, text)]);
    let questions = Questions::open(files.at(name), options, asking).unwrap();
    let shown = questions.read_as().to_string();
    [shown, answered(questions, added).0]
}

fn noted(note: &str) -> ReadOptions {
    ReadOptions::new().or_note(note).unwrap()
}

#[test]
fn names_decide_which_column_is_asked() {
    let source = |text: &str, note: &str| {
        read_as(text.as_bytes(), "a.csv", QuestionKind::Source, &noted(note), &["t", "p"])
    };
    let named = r#"{"source":"en","target":"de"}"#;
    assert!(source("de,en\nrot,red\n", named)[0].contains("source in `en`"));
    // If the training data had no column names, the position decides, and a note explains this decision.
    let [shown, text] = source("de,en\nrot,red\n", r#"{"source":"1","target":"2"}"#);
    assert!(shown.contains("source in `de`") && shown.contains("by its place"), "{shown}");
    assert_eq!(text, "de,en,t,p\nrot,red,\"a,b\",0.5\n");
    let [shown, _] = source("de,note,en\nrot,x,red\n", r#"{"source":"1","target":"2"}"#);
    assert!(shown.contains("source in `de`") && shown.contains("by its place"), "{shown}");
    let files = Files::new("languages", &[("b.csv", b"German,English\nrot,red\n")]);
    let shown = files.error(Questions::open(files.at("b.csv"), &noted(named), QuestionKind::Source));
    says(&shown, &["header of file `b.csv`: expected the language `en`", "--set data.text"]);

    let text = |text: &str, name: &str, note: &str| {
        read_as(text.as_bytes(), name, QuestionKind::Text, &noted(note), &["label", "p"])
    };
    // The header has another known name for the text than the training data; a name takes precedence over a position.
    let [shown, _] = text("id,text\n1,cat\n", "c.csv", r#"{"text":"review","label":"label"}"#);
    assert!(shown.contains("text in `text`, since there is no `review`"), "{shown}");
    let [shown, _] = text("id,text\na1,cat\nb2,dog\n", "d.csv", r#"{"text":"1","label":"2"}"#);
    says(&shown, &["text in `text`, by the name of the column; in the training, text in column 1"]);
    let [shown, _] = text("{\"id\":1,\"text\":\"cat\"}\n", "e.jsonl", r#"{"text":"review"}"#);
    assert!(shown.contains("text in `text`, since there is no `review`"), "{shown}");
    let refused = |text: &str, name: &str, options: &ReadOptions| {
        let files = Files::new(&format!("no-name-{name}"), &[(name, text.as_bytes())]);
        files.error(Questions::open(files.at(name), options, QuestionKind::Text))
    };
    let trained = noted(r#"{"text":"review"}"#);
    for (text, name) in [
        ("id,body,title\n1,a,b\n", "f.csv"),
        ("{\"a\":\"x\",\"b\":\"y\"}\n", "g.jsonl"),
        ("id,x\na,b\n", "i.csv"),
    ] {
        let shown = refused(text, name, &trained);
        says(&shown, &["`review` is the text of the training", "--set data.text=NAME"]);
    }
    let set = ReadOptions::new().text("body").or_note(r#"{"text":"review"}"#).unwrap();
    assert!(refused("id,text\n1,cat\n", "h.csv", &set).contains("column `body`"));
}

#[test]
fn line_ends_stay_and_encodings_are_told() {
    let trained = ReadOptions::new();
    let text = |text: &[u8], name: &str| read_as(text, name, QuestionKind::Text, &trained, &["label", "p"]);
    let [_, found] = text(b"\xef\xbb\xbfid,text\r\n1,cat\r\n2,dog", "a.csv");
    assert_eq!(found, "\u{feff}id,text,label,p\r\n1,cat,\"a,b\",0.5\r\n2,dog,\"a,b\",0.5\r\n");
    let [shown, found] = text(b"id,text\n1,caf\xe9\n", "b.csv");
    assert!(shown.contains("windows-1252") && shown.ends_with("answers are written in UTF-8"), "{shown}");
    assert!(found.contains("1,caf\u{e9},"), "{found}");
    let utf_16: Vec<u8> = "\u{feff}id,text\r\n1,cat\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let [shown, found] = text(&utf_16, "c.csv");
    says(&shown, &["UTF-16LE"]);
    assert_eq!(found, "id,text,label,p\r\n1,cat,\"a,b\",0.5\r\n");
    // A few bytes that are not valid in the encoding make only their own records malformed.
    let mut bad = b"id,text\n".to_vec();
    (0..40).for_each(|i| bad.extend(format!("{i},a cat\n").bytes()));
    bad.extend(b"40,a \xff\xfe cat\n41,dog\n");
    let [_, found] = text(&bad, "d.csv");
    assert!(found.contains("40,a \u{fffd}\u{fffd} cat,,\n41,dog,\"a,b\",0.5\n"), "{found}");
}

#[test]
fn a_mark_that_is_never_closed_costs_its_line() {
    let trained = ReadOptions::new().text("text");
    let (text, asked) = read("id,text\n1,\"a cat\n2,dog\n3,cow\n", "a.csv", QuestionKind::Text, &trained);
    assert_eq!(text, "id,text,label,p\n1,\"a cat,,\n2,dog,\"a,b\",0.5\n3,cow,\"a,b\",0.5\n");
    says(&asked[0], &["a.csv:2: expected the end of the cell whose quotation mark is in line 2"]);
    assert!(asked[0].contains("the lines behind this line are read as separate records"), "{asked:?}");
    assert_eq!(asked[1..], ["3: dog", "4: cow"]);
    // A quotation mark in a later line does not close the open cell.
    let (_, asked) =
        read("id,text\n1,\"a cat\n2,dog\n3,\"a \"\"b\"\"\nc\"\n", "b.csv", QuestionKind::Text, &trained);
    assert_eq!(
        (asked.len(), &asked[1..]),
        (3, &["3: dog".to_owned(), "4: a \"b\"\nc".to_owned()][..]),
        "{asked:?}"
    );
}

#[test]
fn fields_are_added_by_the_same_names_in_all_lines() {
    let (text, asked) = read(
        "[\"id\",\"text\"]\n[1,\"cat\"]\n[2,\"dog\"]\n",
        "a.jsonl",
        QuestionKind::Text,
        &ReadOptions::new(),
    );
    assert_eq!(text, "[\"id\",\"text\",\"label\",\"p\"]\n[1,\"cat\",\"a,b\",0.5]\n[2,\"dog\",\"a,b\",0.5]\n");
    assert_eq!(asked, ["2: cat", "3: dog"]);
    let nested = "{\"text\":\"a\",\"m\":{\"label\":3}}\n{\"text\":\"the \\\"label\\\"\"}\n";
    let (text, _) = read(nested, "b.jsonl", QuestionKind::Text, &ReadOptions::new());
    assert_eq!(text.matches(",\"label\":\"a,b\"").count(), 2, "{text}");
    // A field that first occurs in a late line stays in the output, and an error names the field.
    let late = "{\"text\":\"a\"}\n".repeat(1001) + "{\"text\":\"b\",\"label\":\"x\"}\n";
    let (text, asked) = read(&late, "c.jsonl", QuestionKind::Text, &ReadOptions::new());
    assert!(text.ends_with("{\"text\":\"b\",\"label\":\"x\",\"p\":null}\n"), "{}", &text[text.len() - 80..]);
    assert!(asked[1001].contains("c.jsonl:1002: expected no field `label`"), "{}", asked[1001]);
}

#[test]
fn files_without_records_are_answered_by_what_they_have() {
    let trained = noted(r#"{"text":"review"}"#);
    let (_, asked) = read("\n \n", "lines", QuestionKind::Text, &trained);
    assert_eq!(asked, ["1: ", "2: "]);
    // A line of very many words that could be tags has no columns.
    let many = "B-X ".repeat(2000) + "\nB-X\n";
    assert_eq!(read(&many, "lines", QuestionKind::Words, &ReadOptions::new()).1.len(), 2);
    for name in ["a.csv", "a.jsonl", "a.conll", "a.tsv"] {
        for (text, asking) in
            [("", QuestionKind::Text), ("\n\n", QuestionKind::Words), ("", QuestionKind::Source)]
        {
            let trained = noted(r#"{"text":"review","source":"en"}"#);
            let [shown, found] = read_as(text.as_bytes(), name, asking, &trained, &["label"]);
            assert_eq!((&shown[..], &found[..]), ("a file without text", text));
        }
    }
    let trained = noted(r#"{"text":"review"}"#);
    let [_, found] = read_as(b"id,review\n", "b.csv", QuestionKind::Text, &trained, &["label"]);
    assert_eq!(found, "id,review,label\n");
    let [_, found] =
        read_as(b"token\tpos\tner\n", "c.tsv", QuestionKind::Words, &ReadOptions::new(), &["tags"]);
    assert_eq!(found, "token\tpos\tner\ttags\n");
}

#[test]
fn columns_are_those_of_the_training() {
    let columns = |header: &str, names: &str| {
        noted(&format!(
            r#"{{"format":"columns","columns":{{"separator":"tabs","count":3,"words":0,"tags":2,"numbered":false,"comments":false,"universal":false,"header":{header},"names":[{names}]}}}}"#
        ))
    };
    let named = columns("true", r#""token","pos","ner""#);
    let words = |text: &str, name: &str, options: &ReadOptions| {
        read_as(text.as_bytes(), name, QuestionKind::Words, options, &["tags"])
    };
    // The columns are found by the names from the training data, even in another order.
    let [shown, text] = words("ner\tpos\ttoken\nO\tN\tcat\n", "a.tsv", &named);
    assert!(shown.contains("words in column 3 (token), tags in column 1 (ner)"), "{shown}");
    assert_eq!(text, "ner\tpos\ttoken\ttags\nO\tN\tcat\tT\n");
    // The file is one sentence, which has a malformed line.
    let (text, asked) = read("a\tN\tO\nb\nc\tN\tO\n", "b.txt", QuestionKind::Words, &columns("false", ""));
    assert_eq!(text, "a\tN\tO\t_\nb\nc\tN\tO\t_\n");
    assert!(asked[0].contains("b.txt:2: expected 3 columns"), "{asked:?}");
    let (text, _) = read("the O\ncat B-X\n", "c.txt", QuestionKind::Words, &ReadOptions::new());
    assert_eq!(text, "the O T\ncat B-X T\n");
    // The extension shows that the first file has only words. The second file is running text with the same number of
    // words in each line.
    assert_eq!(words("the\ncat\n", "d.conll", &named)[1], "the\tT\ncat\tT\n");
    let [shown, text] = words("the red cat\na big dog\n", "e.txt", &ReadOptions::new());
    says(&shown, &["one text per line"]);
    assert_eq!(text, "the red cat\tT T T\na big dog\tT T T\n");
}

#[test]
fn intents_are_comments_where_columns_have_some() {
    let added = ["tags", "label", "probability"];
    let words = |text: &str, name: &str| {
        read_as(text.as_bytes(), name, QuestionKind::Words, &ReadOptions::new(), &added)[1].clone()
    };
    let universal = "# text = a b\n1-2\tab\t_\t_\t_\t_\t_\t_\t_\t_\n1\ta\t_\tX\t_\t_\t0\troot\t_\t_\n2\tb\t_\tX\t_\t_\t1\tdep\t_\t_\n\n";
    let expected = universal
        .replace("1-2", "# intent = flight\n# probability = 0.5\n1-2")
        .replace("root\t_\t_", "root\t_\ttags=T")
        .replace("dep\t_\t_", "dep\t_\ttags=T");
    assert_eq!(words(universal, "a.conllu"), expected);
    // A comment of the file stays in the output, and is not mistaken for an answer.
    let known = universal.replace("# text = a b", "# intent = fare");
    assert!(words(&known, "b.conllu").starts_with("# intent = fare\n# predicted_intent = flight\n"));
    let lines = "# id 1\na x O\nb y B-A\n\n# id 2\nc z O\n";
    assert!(words(lines, "c.conll").starts_with("# id 1\n# intent = flight\n# probability = 0.5\na x O T\n"));
    assert_eq!(words("a O\nb O\n\nc O\n", "d.conll"), "a O T\nb O T\n\nc O T\n");
}

/// Returns the bytes of a copy of a Parquet file with answers, and the text of each record.
#[cfg(feature = "parquet")]
fn of_parquet(name: &str, asking: QuestionKind, added: &[&str]) -> (Vec<u8>, Vec<String>) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/text/fixtures/parquet_{name}.parquet"));
    let mut questions = Questions::open(path, &ReadOptions::new(), asking).unwrap();
    let (sink, mut all) = (Sink::default(), Vec::new());
    questions.write_to(Box::new(sink.clone()), added).unwrap();
    // As in the command, several records are read before the first is answered.
    for question in questions.by_ref() {
        all.push(question.unwrap());
    }
    assert_eq!(questions.share(), Some(1.0));
    let mut texts = Vec::new();
    for question in &all {
        let text = question.text.as_ref().unwrap();
        let tags = text.lines().map(|word| format!("T-{word}")).collect();
        let answer = match asking {
            QuestionKind::Words => vec![AnswerCell::Words(tags)],
            // The first record has no answer.
            _ if texts.is_empty() => Vec::new(),
            _ => vec![AnswerCell::Text(format!("about {}", text.len())), AnswerCell::Number(0.5)],
        };
        questions.answer(question, &answer).unwrap();
        texts.push(text.clone());
    }
    questions.finish().unwrap();
    let bytes = sink.0.lock().unwrap().clone();
    (bytes, texts)
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_keeps_its_columns_and_gets_more() {
    let columns = |files: &Files, name: &str, field: &str| -> Vec<String> {
        let options = ReadOptions::new().source(field).target("text");
        let pairs = Pairs::open_with([files.at(name)], &options).unwrap();
        pairs.records().iter().map(|pair| pair.source.clone()).collect()
    };
    for name in ["reviews", "reviews_none", "reviews_gzip", "reviews_v2", "reviews_zstd", "reviews_brotli"] {
        if name.ends_with("brotli") || (name.ends_with("zstd") && !cfg!(feature = "parquet-zstd")) {
            continue;
        }
        let (bytes, texts) = of_parquet(name, QuestionKind::Text, &["label", "probability"]);
        let before = std::fs::read(format!(
            "{}/tests/text/fixtures/parquet_{name}.parquet",
            env!("CARGO_MANIFEST_DIR")
        ));
        let files = Files::new(
            &format!("to-parquet-{name}"),
            &[("a.parquet", &bytes), ("before.parquet", &before.unwrap())],
        );
        let old = LabelledTexts::open(files.at("before.parquet")).unwrap();
        // The output has the labels of the file, and the predicted labels beside them.
        let labelled =
            LabelledTexts::open_with([files.at("a.parquet")], &ReadOptions::new().label("label")).unwrap();
        assert_eq!(labelled.records(), old.records());
        let read: Vec<Option<String>> = {
            let options =
                ReadOptions::new().text("text").label("predicted_label").malformed(MalformedLines::Skip);
            let found = LabelledTexts::open_with([files.at("a.parquet")], &options).unwrap();
            found.records().iter().map(|one| Some(one.label.clone())).collect()
        };
        let expected: Vec<Option<String>> =
            texts.iter().skip(1).map(|text| Some(format!("about {}", text.len()))).collect();
        assert_eq!(read, expected);
        if name == "reviews" {
            for field in ["good", "number", "share", "about.by", "about.long"] {
                assert_eq!(columns(&files, "a.parquet", field), columns(&files, "before.parquet", field));
            }
        }
    }
    let [texts, to_tag] = [QuestionKind::Text, QuestionKind::Words]
        .map(|asking| of_parquet("reviews", asking, &["tags"]).1.concat().replace(['\n', '\r'], " "));
    assert_eq!(texts, to_tag);
    let (bytes, texts) = of_parquet("tagged_texts", QuestionKind::Words, &["tags"]);
    let files = Files::new("to-parquet-tags", &[("a.parquet", &bytes)]);
    let options = ReadOptions::new().tokens("tokens").tags("predicted_tags");
    let found = TaggedTexts::open_with([files.at("a.parquet")], &options).unwrap();
    let expected: Vec<String> =
        texts.iter().map(|text| text.lines().map(|word| format!("{word} T-{word}\n")).collect()).collect();
    let written = |one: &TaggedText| -> String {
        one.words.iter().zip(&one.tags).map(|(word, tag)| format!("{word} {tag}\n")).collect()
    };
    assert_eq!(found.records().iter().map(written).collect::<Vec<_>>(), expected);
}
