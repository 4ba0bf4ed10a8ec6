//! Tests of headers that are repeated, of labels and their notations, and of what is refused as labelled texts.

use super::*;
use crate::{QuestionKind, Questions};

fn open(files: &Files, name: &str, options: &ReadOptions) -> Result<LabelledTexts> {
    LabelledTexts::open_with([files.at(name)], options)
}

#[test]
fn a_header_that_is_repeated_is_left_out_and_counted() {
    let lines = |from: usize, to: usize| -> String {
        (from..to).map(|i| format!("{i},a fine film {i},{}\n", ["y", "n"][i % 2])).collect()
    };
    let late = format!("id,text,label\n{}id,text,label\n{}", lines(0, 1500), lines(0, 9));
    let files = Files::new(
        "headers-again",
        &[
            ("a.csv", b"text,label\ngood,y\ntext,label\nbad,n\n\xef\xbb\xbftext,label\ndull,n\n"),
            ("late.csv", late.as_bytes()),
            ("numbers.csv", b"satz,sterne\ngut,5\nschlecht,1\nsatz,sterne\nfad,2\n"),
            ("record.csv", b"nice,good\nnice,good\nbad,n\n"),
            ("other.csv", b"text,label\ngood,y\nlabel,text\nn,bad\n"),
        ],
    );
    let read = |name: &str| open(&files, name, &ReadOptions::new()).unwrap();
    let found = read("a.csv");
    assert_eq!(texts(&found), [("good", "y"), ("bad", "n"), ("dull", "n")]);
    let said = found.read_as().left_out().unwrap();
    assert!(
        said.starts_with("header repeated in 2 lines, left out: ") && said.ends_with("a.csv:5"),
        "{said}"
    );
    assert_eq!(read("late.csv").records().len(), 1509);
    assert_eq!(texts(&read("numbers.csv")), [("gut", "5"), ("schlecht", "1"), ("fad", "2")]);
    assert_eq!(read("record.csv").records().len(), 3);
    // Each pass over files counts the same lines; several files count together.
    let paths = ["late.csv", "a.csv"].map(|name| files.at(name));
    let of = LabelledFiles::open_with(paths, &ReadOptions::new().text("text").label("label")).unwrap();
    for _ in 0..2 {
        assert_eq!(of.records().filter(Result::is_ok).count(), 1512);
        assert!(of.read_as().to_string().contains("header repeated in 3 lines"));
    }
    files.says(open(&files, "other.csv", &ReadOptions::new()), &["other.csv:3", "another order"]);
    let asked = Questions::open(files.at("a.csv"), &ReadOptions::new(), QuestionKind::Text).unwrap();
    let wrong: Vec<String> = asked.filter_map(|one| Some(one.unwrap().text.err()?.to_string())).collect();
    assert!(wrong.len() == 2 && wrong[0].contains("the header again: remove this line"), "{wrong:?}");
}

#[test]
fn words_and_tags_are_no_labelled_texts() {
    let lines = |separator: &str, tags: [&str; 2], blank: bool| -> String {
        let line = |i: usize| {
            let end = if blank && i % 5 == 4 { "\n" } else { "" };
            format!("word{i}{separator}{}\n{end}", tags[usize::from(i % 3 == 0)])
        };
        (0..30).map(line).collect()
    };
    let of = |separator, tags, blank| lines(separator, tags, blank).into_bytes();
    let texts =
        (0..30).map(|i| format!("a film of words {i}\t{}\n", ["O", "B-x"][i % 2])).collect::<String>();
    let files = Files::new(
        "tags-as-labels",
        &[
            ("a.conll", b"good\ty\nbad\tn\n"),
            ("b.dict", b"good\ty\nbad\tn\n"),
            ("tabs.txt", &of("\t", ["O", "B-x"], false)),
            ("spaces.txt", &of(" N ", ["O", "I-x"], true)),
            ("commas.csv", &of(",N,", ["O", "B-x"], false)),
            ("plain.txt", &of("\t", ["NOUN", "VERB"], true)),
            ("names.txt", &of("\t", ["Irish", "Dutch"], false)),
            ("texts.tsv", texts.as_bytes()),
        ],
    );
    let read = |name: &str, options: &ReadOptions| open(&files, name, options);
    let tagger = "`--task tag` trains a tagger";
    files.says(read("a.conll", &ReadOptions::new()), &["since its name ends with `.conll`", tagger]);
    files.says(read("b.dict", &ReadOptions::new()), &["their phonemes", "`--task translate` reads it"]);
    for name in ["tabs.txt", "spaces.txt", "commas.csv", "plain.txt"] {
        files.says(
            read(name, &ReadOptions::new()),
            &["a word and its tag in each of the first lines", tagger],
        );
    }
    let set = ReadOptions::new().format(FileFormat::Tsv);
    for (name, options) in [
        ("tabs.txt", &set),
        ("a.conll", &set),
        ("names.txt", &ReadOptions::new()),
        ("texts.tsv", &ReadOptions::new()),
    ] {
        assert!(read(name, options).is_ok(), "{name}");
    }
    files.says(PlainText::open(files.at("a.conll")), &["`plain` reads it as text"]);
}

#[test]
fn a_column_of_numbers_is_no_text_of_a_later_file() {
    let lines = |number: bool| -> String {
        let line = |i: usize| match number {
            true => format!("{i},a film {i}\n"),
            false => format!("a film {i},{}\n", ["y", "n"][i % 2]),
        };
        (0..30).map(line).collect()
    };
    let other = format!("id,satz\n{}", lines(true));
    let files =
        Files::new("later-numbers", &[("a.csv", lines(false).as_bytes()), ("b.csv", other.as_bytes())]);
    let trained = open(&files, "a.csv", &ReadOptions::new()).unwrap().read_as().to_note();
    let later = || ReadOptions::new().or_note(&trained).unwrap();
    files.says(
        open(&files, "b.csv", &later()),
        &["the text in an earlier file", "`id` with only numbers", "`data.text`"],
    );
    let asked = Questions::open(files.at("b.csv"), &later(), QuestionKind::Text);
    files.says(asked.map(drop), &["expected texts", "only numbers in column id"]);
    assert!(open(&files, "b.csv", &later().text("2").label("1")).is_ok());
}
