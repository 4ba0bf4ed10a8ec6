//! Tests of headers that are repeated, of labels and their notations, and of what is refused as labelled texts.

use super::*;
use crate::{LabelNotation, LabelledRows, QuestionKind, Questions};

#[test]
fn a_header_that_is_repeated_is_left_out_and_counted() {
    let lines = |from: usize, to: usize| -> String {
        (from..to).map(|i| format!("{i},a fine film {i},{}\n", ["y", "n"][i % 2])).collect()
    };
    let late = format!("id,text,label\n{}id,text,label\n{}", lines(0, 1500), lines(0, 9));
    let unknown = "kommentar,stimmung\n".to_owned() + &"a fine film,y\na dull film,n\n".repeat(6);
    let files = Files::new(
        "headers-again",
        &[
            ("a.csv", b"text,label\ngood,y\ntext,label\nbad,n\n\xef\xbb\xbftext,label\ndull,n\n"),
            ("late.csv", late.as_bytes()),
            ("unknown.csv", unknown.repeat(2).as_bytes()),
            ("numbers.csv", b"satz,sterne\ngut,5\nschlecht,1\nsatz,sterne\nfad,2\n"),
            ("record.csv", b"nice,good\nnice,good\nbad,n\n"),
            ("other.csv", b"text,label\ngood,y\nlabel,text\nn,bad\n"),
            ("text.csv", b"text,label\ngood,y\nText,Label\ntext,y\nbad,n\n"),
        ],
    );
    let read = |name: &str| open(&files, name, &ReadOptions::new()).unwrap();
    let found = read("a.csv");
    assert_eq!(texts(&found), [("good", "y"), ("bad", "n"), ("dull", "n")]);
    let shown = found.read_as().left_out().unwrap();
    assert!(
        shown.starts_with("header repeated in 2 lines, left out: ") && shown.ends_with("a.csv:5"),
        "{shown}"
    );
    assert_eq!(read("late.csv").records().len(), 1509);
    files.says(open(&files, "unknown.csv", &ReadOptions::new()), &["unknown.csv", "`header` (`data.header`"]);
    let named = open(&files, "unknown.csv", &ReadOptions::new().header(true)).unwrap();
    assert_eq!(named.records().len(), 24);
    assert_eq!(texts(&read("numbers.csv")), [("gut", "5"), ("schlecht", "1"), ("fad", "2")]);
    assert_eq!(read("record.csv").records().len(), 3);
    assert_eq!(texts(&read("text.csv")), [("good", "y"), ("text", "y"), ("bad", "n")]);
    // Each pass over files counts the same lines; several files count together.
    let paths = ["late.csv", "a.csv"].map(|name| files.at(name));
    let files_read =
        LabelledFiles::open_with(paths, &ReadOptions::new().text("text").label("label")).unwrap();
    for _ in 0..2 {
        assert_eq!(files_read.records().filter(Result::is_ok).count(), 1512);
        assert!(files_read.read_as().to_string().contains("header repeated in 3 lines"));
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
            format!("word{i}{separator}{}\n{end}", tags[usize::from(i.is_multiple_of(3))])
        };
        (0..30).map(line).collect()
    };
    let bytes = |separator, tags, blank| lines(separator, tags, blank).into_bytes();
    let texts =
        (0..30).map(|i| format!("a film of words {i}\t{}\n", ["O", "B-x"][i % 2])).collect::<String>();
    let files = Files::new(
        "tags-as-labels",
        &[
            ("a.conll", b"good\ty\nbad\tn\n"),
            ("b.dict", b"good\ty\nbad\tn\n"),
            ("tabs.txt", &bytes("\t", ["O", "B-x"], false)),
            ("spaces.txt", &bytes(" N ", ["O", "I-x"], true)),
            ("commas.csv", &bytes(",N,", ["O", "B-x"], false)),
            ("plain.txt", &bytes("\t", ["NOUN", "VERB"], true)),
            ("outside.tsv", &bytes("\tO\t", ["O", "O"], true)),
            ("names.txt", &bytes("\t", ["Irish", "Dutch"], false)),
            ("texts.tsv", texts.as_bytes()),
        ],
    );
    let read = |name: &str, options: &ReadOptions| open(&files, name, options);
    let tagger = "`--task tag` trains a tagger";
    files.says(read("a.conll", &ReadOptions::new()), &["since its name ends with `.conll`", tagger]);
    files.says(read("b.dict", &ReadOptions::new()), &["their phonemes", "`--task translate` reads it"]);
    for name in ["tabs.txt", "spaces.txt", "commas.csv", "plain.txt", "outside.tsv"] {
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
    files.says(asked.map(drop), &["expected texts", "only numbers"]);
    assert!(open(&files, "b.csv", &later().text("2").label("1")).is_ok());
}

#[test]
fn several_labels_are_cut_by_the_notation_of_the_first_cells() {
    let table = |cells: &[&str]| -> String {
        let line = |(i, cell): (usize, &&str)| format!("a film {i}\t{cell}\n");
        format!("text\tlabels\n{}", cells.iter().enumerate().map(line).collect::<String>())
    };
    let bytes = |cells: &[&str]| table(cells).into_bytes();
    let files = Files::new(
        "notations",
        &[
            ("bars.tsv", &bytes(&["a|b", "b", "", "c|a"])),
            ("lists.tsv", &bytes(&["['a', \"it's\"]", "[]", "['b']", "[\"c\", \"d\"]", "['a' 'b']"])),
            ("commas.tsv", &bytes(&["a, b", "b"])),
            ("proved.tsv", &bytes(&["Rock, Pop|Jazz", "Jazz", "Rock, Pop", "Folk"])),
            ("open.tsv", &bytes(&["a|b", "c;d"])),
            ("mixed.tsv", &bytes(&["['a', 'b']", "c", "d"])),
            ("late.tsv", &bytes(&["['a', 'b']", "['b']", "c, d"])),
            ("lines.csv", b"text,labels\nso,\"a\nb\"\nno,b\n"),
            ("strings.jsonl", b"{\"text\":\"so\",\"labels\":\"a;b\"}\n{\"text\":\"no\",\"labels\":\"b\"}\n"),
        ],
    );
    let lists = ReadOptions::new().label_lists();
    let labels = |name: &str, options: &ReadOptions| -> Vec<String> {
        let found = open(&files, name, options).unwrap();
        found.records().iter().map(|record| record.label.replace('\u{1f}', "+")).collect()
    };
    assert_eq!(labels("bars.tsv", &lists), ["a+b+", "b", "", "c+a+"]);
    assert_eq!(labels("lists.tsv", &lists), ["a+it's+", "+", "b", "c+d+", "a+b+"]);
    assert_eq!(labels("commas.tsv", &lists), ["a+b+", "b"]);
    assert_eq!(labels("proved.tsv", &lists), ["Rock, Pop+Jazz+", "Jazz", "Rock, Pop", "Folk"]);
    assert_eq!(labels("lines.csv", &lists), ["a+b+", "b"]);
    assert_eq!(labels("strings.jsonl", &lists), ["a+b+", "b"]);
    files.says(
        open(&files, "open.tsv", &lists),
        &["several possible ones: `;`, `|`", "`data.label_separator`"],
    );
    files.says(open(&files, "mixed.tsv", &lists), &["several possible ones: `['a', 'b']`"]);
    files.says(open(&files, "late.tsv", &lists), &["late.tsv:4: expected a list of labels", "got \"c, d\""]);
    let set = lists.clone().label_notation(LabelNotation::parse(";"));
    assert_eq!(labels("open.tsv", &set), ["a|b", "c+d+"]);
    // The detected notation is in the note, with which later files are read.
    let trained = open(&files, "bars.tsv", &lists).unwrap().read_as().clone();
    assert!(trained.to_string().contains("labels separated by `|`"), "{trained}");
    let later = ReadOptions::new().or_note(&trained.to_note()).unwrap();
    assert_eq!(labels("commas.tsv", &later), ["a, b", "b"]);
    let shown = "expected labels separated by `|`, as in an earlier file, got labels in lists";
    files.says(open(&files, "lists.tsv", &later), &[shown, "`data.label_separator`"]);
    assert_eq!(labels("lists.tsv", &later.label_notation(LabelNotation::Lists))[3], "c+d+");
    // Without several labels per text, cells are as they are.
    assert_eq!(labels("bars.tsv", &ReadOptions::new().malformed(MalformedLines::Skip)), ["a|b", "b", "c|a"]);
}

#[test]
fn columns_of_0_and_1_and_scores_are_labels() {
    let files = Files::new(
        "flags",
        &[
            ("a.csv", b"id,words,red,blue\n1,so,1,0\n2,no,0,0\n3,oh,TRUE,1.0\n"),
            ("bad.csv", b"id,words,red,blue\n1,so,1,0\n2,no,2,0\n"),
            ("empty.csv", b"id,words,red,blue\n1,so,1,\n"),
            ("a.jsonl", b"{\"words\":\"so\",\"red\":1,\"blue\":false}\n{\"words\":\"no\",\"red\":true,\"blue\":1.0}\n"),
            ("null.jsonl", b"{\"words\":\"so\",\"red\":1,\"blue\":null}\n"),
            ("scores.jsonl", b"{\"text\":\"so\",\"cats\":{\"x\":1.0,\"y\":0.5}}\n{\"text\":\"no\",\"cats\":{\"x\":0,\"y\":0}}\n"),
            ("one.jsonl", b"{\"text\":\"so\",\"cats\":{\"x\":0.9,\"y\":0.1}}\n{\"text\":\"no\",\"cats\":{\"x\":false,\"y\":true}}\n"),
            ("texts.csv", b"id,words\n1,so\n2,no\n"),
        ],
    );
    let flags = ReadOptions::new().text("words").labels(["red", "blue"]).label_lists();
    for (name, expected) in [
        ("a.csv", &[("so", "red\u{1f}"), ("no", "\u{1f}"), ("oh", "red\u{1f}blue\u{1f}")][..]),
        ("a.jsonl", &[("so", "red\u{1f}"), ("no", "red\u{1f}blue\u{1f}")]),
    ] {
        let found = open(&files, name, &flags).unwrap();
        assert_eq!(texts(&found), expected);
        // Later files are read alike by the note, and files to answer need no labels.
        let later = ReadOptions::new().or_note(&found.read_as().to_note()).unwrap();
        assert_eq!(texts(&open(&files, name, &later).unwrap()), expected);
        let asked = Questions::open(files.at("texts.csv"), &later, QuestionKind::Text).unwrap();
        assert_eq!(asked.map(|one| one.unwrap().text.unwrap()).collect::<Vec<_>>(), ["so", "no"]);
    }
    for (name, shown) in [
        ("bad.csv", "bad.csv:3: expected 0 or 1 in the column of the label `red`, got \"2\""),
        ("empty.csv", "empty.csv:2: expected 0 or 1 in the column of the label `blue`, got \"\""),
        ("null.jsonl", "null.jsonl:1: expected 0 or 1 in the column of the label `blue`, got \"\""),
    ] {
        files.says(open(&files, name, &flags), &[shown]);
    }
    let advice =
        "`red`, `blue` have only 0 and 1: `data.target = \"labels\"` and `data.label = [\"red\", \"blue\"]`";
    for name in ["a.csv", "a.jsonl"] {
        files.says(open(&files, name, &ReadOptions::new().text("words")), &[advice]);
    }
    // Objects of scores.
    let found = open(&files, "scores.jsonl", &ReadOptions::new().label_lists()).unwrap();
    assert_eq!(texts(&found), [("so", "x\u{1f}y\u{1f}"), ("no", "\u{1f}")]);
    assert!(found.read_as().to_string().contains("labels in `cats` are those with a score of at least 0.5"));
    assert_eq!(texts(&open(&files, "one.jsonl", &ReadOptions::new()).unwrap()), [("so", "x"), ("no", "y")]);
    let shown = "scores.jsonl:1: expected one label with a score of at least 0.5 in the field `cats`, got 2 such labels";
    files.says(open(&files, "scores.jsonl", &ReadOptions::new()), &[shown, "`data.target = \"labels\"`"]);
}

#[test]
fn numbers_with_decimal_commas_get_points() {
    let files = Files::new(
        "decimal-commas",
        &[
            ("a.csv", b"text;score\nso;2,5\nno;3\noh;-0,125\n"),
            ("points.csv", b"text;score\nso;2.5\nno;3\n"),
            ("unclear.csv", b"text;score\nso;1,234\nno;5\n"),
        ],
    );
    let numbers = ReadOptions::new().numbers();
    let found = open(&files, "a.csv", &numbers).unwrap();
    assert_eq!(texts(&found), [("so", "2.5"), ("no", "3"), ("oh", "-0.125")]);
    assert!(found.read_as().to_string().ends_with("numbers with decimal commas"));
    let later = ReadOptions::new().or_note(&found.read_as().to_note()).unwrap();
    assert_eq!(texts(&open(&files, "unclear.csv", &later).unwrap()), [("so", "1.234"), ("no", "5")]);
    files.says(open(&files, "points.csv", &later), &["points.csv:2: expected a number with a decimal comma"]);
    // A comma before three digits may separate thousands, so it is not changed.
    assert_eq!(texts(&open(&files, "unclear.csv", &numbers).unwrap()), [("so", "1,234"), ("no", "5")]);
    assert_eq!(texts(&open(&files, "a.csv", &ReadOptions::new()).unwrap())[0], ("so", "2,5"));
}

#[test]
fn numbers_without_a_header_need_not_repeat() {
    let lines = |label: &str| (0..40).map(|i| format!("text {i}\t{label}{i}\n")).collect::<String>();
    let (numbers, words) = (lines("0."), lines("x"));
    let files =
        Files::new("different", &[("numbers.tsv", numbers.as_bytes()), ("words.tsv", words.as_bytes())]);
    let found = open(&files, "numbers.tsv", &ReadOptions::new().numbers()).unwrap();
    assert_eq!(texts(&found)[39], ("text 39", "0.39"));
    for (name, options) in [("numbers.tsv", ReadOptions::new()), ("words.tsv", ReadOptions::new().numbers())]
    {
        files.says(open(&files, name, &options), &["expected values that repeat"]);
    }
}

#[test]
fn columns_and_settings_that_are_not_read_are_named() {
    let wide = format!("text,label,{}\nso,y,{}\n", "a,b,c,d,e,f", "1,2,3,4,5,6");
    let files = Files::new(
        "not-read",
        &[
            ("one.csv", b"id,text,label\n1,so,y\n"),
            ("wide.csv", wide.as_bytes()),
            ("a.jsonl", b"{\"id\":1,\"text\":\"so\",\"label\":\"y\",\"meta\":{\"n\":2}}\n"),
            ("pairs.tsv", b"so\tsi\tsource 1\nno\tno\tsource 2\n"),
            ("a.ft", b"__label__y so\n__label__n no\n"),
            ("a.svm", b"1 1:2\n0 1:3\n"),
        ],
    );
    for (name, note) in [
        ("one.csv", "column 1 (`id`) is not read"),
        ("wide.csv", "columns 3 to 8 are not read"),
        ("a.jsonl", "fields `id`, `meta` are not read"),
    ] {
        let shown = open(&files, name, &ReadOptions::new()).unwrap().read_as().to_string();
        assert!(shown.ends_with(note), "{shown}");
    }
    assert!(
        Pairs::open(files.at("pairs.tsv")).unwrap().read_as().to_string().ends_with("column 3 is not read")
    );
    for (options, key) in [
        (ReadOptions::new().text("so"), "`data.text`"),
        (ReadOptions::new().label("y"), "`data.label`"),
        (ReadOptions::new().separator(';'), "`data.separator`"),
        (ReadOptions::new().header(true), "`data.header`"),
    ] {
        files.says(open(&files, "a.ft", &options), &[key, "since `fasttext` has no columns"]);
        files.says(
            LabelledRows::open_with([files.at("a.svm")], &options),
            &[key, "since `libsvm` has no columns"],
        );
    }
    // A file that is read as an earlier one may have another format.
    let note = open(&files, "one.csv", &ReadOptions::new()).unwrap().read_as().to_note();
    let later = ReadOptions::new().text("text").or_note(&note).unwrap();
    assert_eq!(open(&files, "a.ft", &later).unwrap().records().len(), 2);
}

#[test]
fn a_repeated_header_of_one_column_or_of_lists_is_no_record() -> Result<()> {
    let files = Files::new(
        "header-of-one",
        &[
            ("a.csv", b"text\nfoo\ntext\nbar\n"),
            ("b.csv", b"title\nfoo\ntitle\nbar\n"),
            ("a.jsonl", b"[\"text\",\"label\"]\n[\"good\",\"y\"]\n[\"text\",\"label\"]\n[\"bad\",\"n\"]\n"),
        ],
    );
    let text = |name: &str, column: &str| {
        crate::PlainText::open_with([files.at(name)], &ReadOptions::new().text(column))
    };
    let found = text("a.csv", "text")?;
    assert_eq!(found.text(), "foo\nbar\n");
    assert!(found.read_as().to_string().contains("header repeated in 1 line, left out"));
    assert!(text("b.csv", "1")?.text().ends_with("foo\ntitle\nbar\n"));
    files.says(open(&files, "a.jsonl", &ReadOptions::new()), &["a.jsonl:3", "the header again"]);
    Ok(())
}

#[test]
fn escapes_and_names_of_labels_are_read_or_refused() {
    let files = Files::new(
        "label-escapes",
        &[
            (
                "a.tsv",
                br#"good	['sci\xa0fi', 'it\'s']
bad	['\u00e9', 'c']
"#,
            ),
            ("b.tsv", b"good\t['a', 'b']\nbad\t['\\q', 'c']\n"),
            ("a.jsonl", b"{\"text\":\"good\",\"cats\":{\"a\":1,\"b\":0}}\n{\"text\":\"bad\",\"cats\":{}}\n"),
            (
                "b.jsonl",
                b"{\"text\":\"good\",\"cats\":{\"a\":1,\"b\":0}}\n{\"text\":\"bad\",\"cats\":{\"\":1}}\n",
            ),
        ],
    );
    let options = ReadOptions::new().label_lists();
    let read = |name: &str| -> Vec<String> {
        let found = open(&files, name, &options).unwrap();
        found.records().iter().map(|text| text.label.replace('\u{1f}', "+")).collect()
    };
    assert_eq!(read("a.tsv"), ["sci\u{a0}fi+it's+", "é+c+"]);
    assert_eq!(read("a.jsonl"), ["a+", "+"]);
    files.says(open(&files, "b.tsv", &options), &["b.tsv:2", "a list of labels"]);
    files.says(open(&files, "b.jsonl", &options), &["b.jsonl:2", "no name may be empty"]);
    // Only a read note names the notation of numbers.
    assert_eq!(LabelNotation::parse("decimal comma"), LabelNotation::Separator("decimal comma".to_owned()));
}

#[test]
fn tags_of_any_kind_are_refused_but_lines_of_labels_and_features_are_not() -> Result<()> {
    let words = "the\tDET\ndog\tNOUN\nbarks\tVERB\n\nit\tPRON\nis\tVERB\n\nwe\tPRON\nsee\tVERB\na\tDET\ncat\tNOUN\n\n";
    let names = "Ivan\tru\nPetr\tru\n\nJean\tfr\nLuc\tfr\nGuy\tfr\n\nHans\tde\n\n".repeat(2);
    let features = "1 1:0.5 2:1\n0 1:0.1 2:2\n\n1 1:1 2:3\n0 1:2 2:1\n\n1 1:1 2:1\n0 1:1 2:5\n";
    let files = Files::new(
        "any-tags",
        &[
            ("a.tsv", words.as_bytes()),
            ("names.tsv", names.as_bytes()),
            ("fast", b"__label__pos great\n__label__neg awful\n\n__label__pos fine\n__label__neg dull\n\n__label__pos nice\n__label__neg bad\n"),
            ("rows", features.as_bytes()),
        ],
    );
    let read = |name: &str| open(&files, name, &ReadOptions::new());
    files.says(read("a.tsv"), &["a word and its tag", "`--task tag`"]);
    assert_eq!(read("names.tsv")?.records().len(), 12);
    assert_eq!(read("fast")?.records().len(), 6);
    assert_eq!(LabelledRows::open(files.at("rows"))?.records().len(), 6);
    Ok(())
}
