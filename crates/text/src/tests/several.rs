//! Tests of texts of several columns, and of several labels per text.

use super::*;
use crate::{LabelledRows, LabelledText, QuestionKind, Questions};

const NAMES: [&str; 2] = ["premise", "hypothesis"];

fn of_names() -> ReadOptions {
    ReadOptions::new().texts(NAMES)
}

fn of_numbers(numbers: [&str; 2]) -> ReadOptions {
    ReadOptions::new().texts(numbers)
}

#[test]
fn cells_of_tables_are_joined_by_one_tab() {
    let files = Files::new(
        "several-tables",
        &[
            (
                "a.csv",
                b"id,premise,label,hypothesis\n1,\"A man, here\",yes,\"One\ttab\"\n2,\"Two\r\nlines\n\",no,b\n" as &[u8],
            ),
            ("bare.csv", b"1,good film,pos,I like it\n2,dull film,neg,I hate it\n"),
            ("two.tsv", b"good film\tI like it\tpos\ndull film\tI hate it\tneg\n"),
            ("semi.txt", b"premise;hypothesis;gold\ngood;fine;y\nbad;dull;n\n"),
        ],
    );
    let read = |name: &str, options: &ReadOptions| {
        let found = open(&files, name, options).unwrap();
        // `LabelledFiles`, which are read again in each epoch, have the same records.
        let again = LabelledFiles::open_with([files.at(name)], options).unwrap();
        let again: Vec<LabelledText> = again.records().collect::<Result<_>>().unwrap();
        assert_eq!((&again[..], again.len()), (found.records(), 2));
        let record = |labelled: &LabelledText| (labelled.text.clone(), labelled.label.clone());
        (record(&found.records()[0]), record(&found.records()[1]), found.read_as().to_string())
    };
    let pair = |text: &str, label: &str| (text.to_owned(), label.to_owned());

    let (first, second, shown) = read("a.csv", &of_names());
    assert_eq!((first, second), (pair("A man, here\tOne tab", "yes"), pair("Two lines \tb", "no")));
    let expected = "`csv`, text in `premise` and `hypothesis`, label in `label`; line 1 is a header, since `premise` names a \
                    column; column 1 (`id`) is not read";
    assert_eq!(shown, expected);
    // The cells are joined in the given order of the columns. Here, the columns are given by number although the file
    // has a header; the known name `label` shows the header.
    let (first, _, shown) = read("a.csv", &of_numbers(["4", "2"]));
    assert_eq!(first, pair("One tab\tA man, here", "yes"));
    says(&shown, &["text in `hypothesis` and `premise`, label in `label`; line 1 is a header"]);
    let (first, _, _) = read("a.csv", &of_numbers(["2", "4"]).label("3").header(true));
    assert_eq!(first, pair("A man, here\tOne tab", "yes"));

    let (first, second, shown) = read("bare.csv", &of_numbers(["2", "4"]).label("3"));
    assert_eq!((first, second), (pair("good film\tI like it", "pos"), pair("dull film\tI hate it", "neg")));
    assert_eq!(
        shown,
        "`csv`, text in column 2 and column 4, label in column 3; no header; column 1 is not read"
    );
    // The label is in the only remaining column.
    let (first, _, shown) = read("two.tsv", &of_numbers(["1", "2"]));
    assert_eq!(first, pair("good film\tI like it", "pos"));
    assert!(shown.contains("label in column 3"), "{shown}");
    let (first, ..) = read("semi.txt", &of_names().format(FileFormat::Csv).separator(';'));
    assert_eq!(first, pair("good\tfine", "y"));

    let three = ReadOptions::new().texts(["premise", "id", "hypothesis"]);
    assert_eq!(texts(&open(&files, "a.csv", &three).unwrap())[0].0, "A man, here\t1\tOne tab");
    // A text of one given column keeps its tabs; if no column is given, the column is detected.
    let one = ReadOptions::new().texts(["hypothesis"]);
    assert_eq!(one, ReadOptions::new().text("hypothesis"));
    assert_eq!(texts(&open(&files, "a.csv", &one).unwrap())[0], ("One\ttab", "yes"));
    assert_eq!(ReadOptions::new().texts([""; 0]), ReadOptions::new());
}

#[test]
fn columns_that_are_missing_or_given_twice_are_named() {
    let files = Files::new(
        "several-missing",
        &[
            ("a.csv", b"premise,hypothesis,label\na,b,y\n, ,n\n" as &[u8]),
            ("bare.tsv", b"a\tb\ty\nc\td\tn\n"),
            ("a.jsonl", b"{\"premise\": \"\", \"label\": \"y\", \"hypothesis\": \"\"}\n"),
        ],
    );
    let shown = |name: &str, options: &ReadOptions| files.error(open(&files, name, options));
    let given = |columns: [&str; 2]| ReadOptions::new().texts(columns);
    for (name, options, expected) in [
        (
            "a.csv",
            given(["premise", "hypotheses"]),
            "column `hypotheses` of file `a.csv`, the text: expected one of `premise`, `hypothesis`, `label`, got `hypotheses`; the \
             nearest is `hypothesis`",
        ),
        ("a.csv", given(["1", "7"]), "column `7` of file `a.csv`, the text: expected a number from 1 to 3"),
        (
            "bare.tsv",
            given(["1", "4"]),
            "column `4` of file `bare.tsv`, the text: expected a number from 1 to 3",
        ),
        (
            "a.csv",
            given(["premise", "1"]),
            "columns of the text in file `a.csv`: expected each column once, got column 1 twice",
        ),
        (
            "a.csv",
            of_names().label("hypothesis"),
            "columns of the text and the label in file `a.csv`: expected two columns, got column 2 for both",
        ),
        ("a.csv", of_names(), "a.csv:3: expected something in column `premise`, got nothing"),
        (
            "a.jsonl",
            given(["premise", "other"]),
            "field `other` of file `a.jsonl`, the text: expected one of `premise`, `label`, `hypothesis`, got `other`",
        ),
        (
            "a.jsonl",
            given(["premise", "premise"]),
            "fields of the text in file `a.jsonl`: expected each field once, got `premise` twice",
        ),
        ("a.jsonl", of_names(), "a.jsonl:1: expected something in the field `premise`, got an empty string"),
    ] {
        let shown = shown(name, &options);
        assert!(shown.starts_with(expected), "{shown}");
    }
}

#[test]
fn a_text_may_lack_some_of_its_columns() {
    let files = Files::new(
        "several-empty",
        &[
            ("a.csv", b"premise,hypothesis,label\n,b,y\nc,,n\nd,e,\n" as &[u8]),
            (
                "a.jsonl",
                b"{\"hypothesis\": \"b\", \"label\": \"y\"}\n{\"premise\": \"c\", \"hypothesis\": null, \"label\": \"n\"}\n\
                {\"premise\": \"d\", \"hypothesis\": \"e\", \"label\": \"\"}\n{\"premise\": null, \"label\": \"n\"}\n",
            ),
        ],
    );
    let labels = of_names().label_lists();
    let expected = [("\tb", "y"), ("c\t", "n"), ("d\te", "")];
    assert_eq!(texts(&open(&files, "a.csv", &labels).unwrap()), expected);
    let some = open(&files, "a.jsonl", &labels.clone().malformed(MalformedLines::Skip)).unwrap();
    assert_eq!(texts(&some), expected);
    let shown = files.error(open(&files, "a.jsonl", &labels));
    assert!(shown.starts_with("a.jsonl:4: expected a string in the field `premise`, got null"), "{shown}");
    let shown = files.error(open(&files, "a.csv", &of_names()));
    assert!(shown.starts_with("a.csv:4: expected something in column `label`, got nothing"), "{shown}");
    for name in ["a.csv", "a.jsonl"] {
        let questions = Questions::open(files.at(name), &of_names(), QuestionKind::Text).unwrap();
        assert_eq!(asked(questions)[..3], ["\tb", "c\t", "d\te"], "{name}");
    }
    // Both texts of a pair must have content. In files to predict for, a text may be null or blank, but its field is there.
    let pair = of_names().pair(true);
    let shown = files.error(open(&files, "a.csv", &pair));
    assert!(shown.starts_with("a.csv:2: expected something in column `premise`, got nothing"), "{shown}");
    let note = r#"{"text":["premise","hypothesis"],"label":"label","pair":true}"#;
    assert_eq!(
        open(&files, "a.csv", &pair.malformed(MalformedLines::Skip).label_lists()).unwrap().records().len(),
        1
    );
    let questions =
        Questions::open(files.at("a.jsonl"), &ReadOptions::new().or_note(note).unwrap(), QuestionKind::Text);
    let found = asked(questions.unwrap());
    assert!(found[0].contains("expected a field `premise`"), "{found:?}");
    assert_eq!(found[1..3], ["c\t", "d\te"]);
}

#[test]
fn fields_of_json_are_joined_however_records_stand() {
    let files = Files::new(
        "several-json",
        &[
            (
                "lines.jsonl",
                b"{\"premise\": \"a\\tb\", \"hypothesis\": \"c\\nd\", \"label\": 1}\n{\"label\": 0, \"hypothesis\": \"e\", \"premise\": 2}\n"
                    as &[u8],
            ),
            ("list.json", b"[{\"premise\": \"a b\", \"hypothesis\": \"c d\", \"label\": 1},\n {\"premise\": \"2\", \"hypothesis\": \"e\", \"label\": 0}]"),
            ("columns.json", b"{\"premise\": [\"a b\", \"2\"], \"hypothesis\": [\"c d\", \"e\"], \"label\": [1, 0]}"),
            ("lists.json", b"[[\"premise\", \"hypothesis\", \"label\"], [\"a b\", \"c d\", 1], [\"2\", \"e\", 0]]"),
            ("bare.json", b"[[\"a b\", \"c d\", 1], [\"2\", \"e\", 0]]"),
            ("nested.jsonl", b"{\"of\": {\"premise\": \"a b\", \"hypothesis\": \"c d\"}, \"label\": 1}\n{\"of\": {\"premise\": \"2\", \"hypothesis\": \"e\"}, \"label\": 0}\n"),
        ],
    );
    let expected = [("a b\tc d", "1"), ("2\te", "0")];
    for (name, options) in [
        ("lines.jsonl", of_names()),
        ("list.json", of_names()),
        ("columns.json", of_names()),
        ("lists.json", of_names()),
        ("bare.json", of_numbers(["1", "2"]).label("3")),
        ("bare.json", of_numbers(["1", "2"])),
        ("nested.jsonl", of_numbers(["of.premise", "of.hypothesis"])),
    ] {
        let found = open(&files, name, &options).unwrap();
        assert_eq!(texts(&found), expected, "{name}");
        let again = LabelledFiles::open_with([files.at(name)], &options).unwrap();
        assert_eq!(again.records().collect::<Result<Vec<_>>>().unwrap(), found.records(), "{name}");
    }
    let shown = open(&files, "lines.jsonl", &of_names()).unwrap().read_as().to_json();
    assert!(shown.contains(r#""text":["premise","hypothesis"]"#), "{shown}");
}

#[test]
fn formats_without_columns_refuse_several() {
    let files = Files::new(
        "several-refused",
        &[
            ("t.txt", b"(3 (2 a) (4 b))\n(1 (2 c) (0 d))\n" as &[u8]),
            ("f.txt", b"__label__y good\n__label__n bad\n"),
            ("folders/y/1.txt", b"good"),
            ("folders/n/1.txt", b"bad"),
            ("classes/y.txt", b"good\n"),
            ("classes/n.txt", b"bad\n"),
            ("rows.svm", b"1 1:2\n0 2:3\n"),
            ("plain.txt", b"some text\n"),
        ],
    );
    let advice = "write the texts into such a file, or leave `data.text` out";
    let columns = "expected a file with columns (CSV, TSV, JSON or Parquet), since";
    for (name, format, what) in [
        ("t.txt", "trees", "file `t.txt`"),
        ("f.txt", "fasttext", "file `f.txt`"),
        ("folders", "folder-per-class", "folder `folders`"),
        ("classes", "file-per-class", "folder `classes`"),
    ] {
        let shown = files.error(open(&files, name, &of_names()));
        let expected = format!(
            "columns of the text (`data.text` in a config) of {what}: {columns} `{format}` has none, got `premise`, `hypothesis`; {advice}"
        );
        assert!(shown.starts_with(&expected), "{shown}");
        files.says(
            open(&files, name, &ReadOptions::new().text("premise")),
            &["`data.text`", "has no columns"],
        );
    }
    let paths = ["classes/y.txt", "classes/n.txt"].map(|name| files.at(name));
    let shown = files.error(LabelledTexts::open_with(paths, &of_names().format(FileFormat::FilePerClass)));
    assert!(shown.contains("since `file-per-class` has none"), "{shown}");
    let shown = files.error(LabelledRows::open_with([files.at("rows.svm")], &of_names()));
    says(&shown, &["of `rows.svm`: expected a file with columns", "`libsvm`"]);
    let shown = files.error(PlainText::open_with([files.at("plain.txt")], &of_names()));
    let expected = "columns of the text (`data.text` in a config) of `plain.txt`: expected one column, since plain text is read from one column, got `premise`, `hypothesis`; set `data.text` to one of these columns";
    assert_eq!(shown, expected);
    for name in ["t.txt", "f.txt"] {
        files.says(Questions::open(files.at(name), &of_names(), QuestionKind::Text), &[advice]);
    }
}

#[test]
fn a_note_keeps_the_columns_for_later_files() {
    let files = Files::new(
        "several-note",
        &[
            ("a.csv", b"premise,hypothesis,label\na,b,y\nc,d,n\n" as &[u8]),
            ("b.tsv", b"label\thypothesis\tpremise\ny\tb\ta\n"),
            ("c.jsonl", b"{\"hypothesis\": \"b\", \"premise\": \"a\", \"label\": \"y\"}\n"),
            ("d.csv", b"label,hypothesis\ny,b\n"),
        ],
    );
    let found = open(&files, "a.csv", &of_numbers(["1", "2"]).label_lists()).unwrap();
    let note = found.read_as().to_note();
    assert_eq!(note, r#"{"text":["premise","hypothesis"],"label":"label","label_lists":true}"#);
    let later = ReadOptions::new().or_note(&note).unwrap();
    assert_eq!(later.to_note(), note);
    for name in ["b.tsv", "c.jsonl"] {
        assert_eq!(texts(&open(&files, name, &later).unwrap()), [("a\tb", "y")], "{name}");
    }
    let shown = files.error(open(&files, "d.csv", &later));
    assert!(shown.starts_with("column `premise` of file `d.csv`, the text: expected one of"), "{shown}");
    // Files that are opened together have the columns of the first file.
    let all = ["a.csv", "b.tsv", "c.jsonl"].map(|name| files.at(name));
    let found = LabelledTexts::open_with(all, &of_names()).unwrap();
    assert_eq!(texts(&found), [("a\tb", "y"), ("c\td", "n"), ("a\tb", "y"), ("a\tb", "y")]);
    // A new setting takes precedence over the note, even if the new setting is a single column. In a note, a single
    // column is a string, not a list.
    let other = ReadOptions::new().text("premise").or_note(&note).unwrap();
    assert_eq!(other.to_note(), r#"{"text":"premise","label":"label","label_lists":true}"#);
    assert_eq!(ReadOptions::new().or_note(r#"{"text":[]}"#).unwrap().text, [""; 0]);
}

/// Returns the text of each record, or the reason why the record has no text.
fn asked(questions: Questions) -> Vec<String> {
    let text = |question: Result<crate::Question>| match question.unwrap().text {
        Ok(text) => text,
        Err(why) => why.to_string().rsplit('/').next().unwrap_or_default().to_owned(),
    };
    questions.map(text).collect()
}

#[test]
fn questions_are_texts_of_the_same_columns() {
    let files = Files::new(
        "several-questions",
        &[
            ("a.csv", b"hypothesis,label,premise\n\"b\n1\",y,a\n,n,\nf,y,e\n" as &[u8]),
            ("bare.csv", b"a,b\nc,d\n"),
            ("a.jsonl", b"{\"hypothesis\": \"b\", \"premise\": \"a\\t1\"}\n{\"premise\": \"c\"}\n{\"label\": \"c\"}\n"),
            ("lacks.csv", b"premise,label\na,y\n"),
            ("lacks.jsonl", b"{\"premise\": \"a\"}\n"),
            ("lacks.txt", b"premise\tlabel\na\ty\n"),
            ("header.txt", b"premise\thypothesis\na\tb\n"),
            ("lines.txt", b"A man sleeps.\tHe is awake.\nNo, he is.\tYes\n\n"),
            ("one.txt", b"a text alone\nand one more\n"),
        ],
    );
    // The first options are from training data with a header; the second options are from training data without a
    // header.
    let named = ReadOptions::new().or_note(r#"{"text":["premise","hypothesis"],"label":"label"}"#).unwrap();
    let numbered = ReadOptions::new().or_note(r#"{"text":["1","2"],"label":"3"}"#).unwrap();
    let read = |name: &str, options: &ReadOptions| {
        let questions = Questions::open(files.at(name), options, QuestionKind::Text).unwrap();
        (questions.read_as().to_string(), asked(questions))
    };
    for options in [&named, &of_names()] {
        let (shown, found) = read("a.csv", options);
        assert!(
            shown.starts_with("`csv`, text in `premise` and `hypothesis`; line 1 is a header"),
            "{shown}"
        );
        assert_eq!((&*found[0], &*found[2]), ("a\tb 1", "e\tf"));
        assert_eq!(found[1], "\t", "a record without a text has blank columns");
        let (_, found) = read("a.jsonl", options);
        assert_eq!(found[0], "a 1\tb");
        assert!(found[2].starts_with("a.jsonl:3: expected a field `premise`"), "{found:?}");
        for name in ["lacks.csv", "lacks.jsonl", "lacks.txt"] {
            let shown = files.error(Questions::open(files.at(name), options, QuestionKind::Text));
            let expected = format!("`hypothesis` of file `{name}`, the text: expected one of `premise`");
            assert!(shown.contains(&expected), "{shown}");
        }
        assert_eq!(read("header.txt", options).1, ["a\tb"]);
    }
    let shown = files.error(Questions::open(files.at("lacks.csv"), &named, QuestionKind::Text));
    let expected = "; the text of the training is in the columns `premise`, `hypothesis`; `data.text` sets other columns";
    assert!(shown.contains(expected), "{shown}");
    assert_eq!(read("bare.csv", &numbered).1, ["a\tb", "c\td"]);
    // In files without columns, each line is a text, with or without tabs.
    for options in [&named, &numbered, &of_names()] {
        assert_eq!(read("lines.txt", options).1[..2], ["A man sleeps.\tHe is awake.", "No, he is.\tYes"]);
        assert_eq!(read("one.txt", options).1, ["a text alone", "and one more"]);
    }
    assert_eq!(read("a.csv", &of_names().format(FileFormat::Plain)).1.len(), 5);
}

#[test]
fn labels_may_be_lists() {
    let files = Files::new(
        "label-lists",
        &[
            (
                "a.jsonl",
                b"{\"text\": \"a\", \"labels\": [\" x \", \"y z\"]}\n{\"text\": \"b\", \"labels\": []}\n{\"text\": \"c\", \"labels\": [3, 1.50]}\n\
                {\"text\": \"d\", \"labels\": \" x;y \"}\n{\"text\": \"e\", \"labels\": \"\"}\n{\"text\": \"f\", \"labels\": 7}\n\
                {\"text\": \"g\", \"labels\": null}\n{\"text\": \"h\"}\n"
                    as &[u8],
            ),
            ("late.jsonl", b"{\"text\": \"a\"}\n{\"text\": \"b\", \"topics\": [\"x\"]}\n"),
            ("rows.json", b"[[\"a\", [\"x\"]], [\"b\", []]]"),
            ("header.json", b"[[\"text\", \"labels\"], [\"a\", [\"x\"]], [\"b\", []]]"),
            ("pandas.json", b"{\"text\": {\"0\": \"a\", \"1\": \"b\"}, \"labels\": {\"0\": [\"x\"], \"1\": []}}"),
            ("a.csv", b"text,labels\na,x;y\nb,\nc, z \n"),
            ("two.jsonl", b"{\"q\": \"a\", \"r\": \"b\", \"tags\": [\"x\"]}\n"),
        ],
    );
    let lists = ReadOptions::new().label_lists();
    let read = |name: &str, options: &ReadOptions| {
        let found = open(&files, name, options).unwrap();
        let again = LabelledFiles::open_with([files.at(name)], options).unwrap();
        assert_eq!(again.records().collect::<Result<Vec<_>>>().unwrap(), found.records());
        found
    };
    let expected = [
        ("a", "x\u{1f}y z\u{1f}"),
        ("b", "\u{1f}"),
        ("c", "3\u{1f}1.50\u{1f}"),
        ("d", "x\u{1f}y\u{1f}"),
        ("e", ""),
        ("f", "7"),
        ("g", ""),
        ("h", ""),
    ];
    assert_eq!(texts(&read("a.jsonl", &lists)), expected);
    assert_eq!(texts(&read("late.jsonl", &lists.clone().label("topics"))), [("a", ""), ("b", "x\u{1f}")]);
    let shown = files.error(open(&files, "late.jsonl", &lists.clone().label("topic")));
    assert!(shown.starts_with("field `topic` of file `late.jsonl`, the label: expected one of"), "{shown}");
    for name in ["rows.json", "header.json", "pandas.json"] {
        assert_eq!(texts(&read(name, &lists)), [("a", "x\u{1f}"), ("b", "\u{1f}")], "{name}");
    }
    assert_eq!(texts(&read("a.csv", &lists)), [("a", "x\u{1f}y\u{1f}"), ("b", ""), ("c", "z")]);
    let both = lists.clone().texts(["q", "r"]).label("tags");
    assert_eq!(texts(&read("two.jsonl", &both)), [("a\tb", "x\u{1f}")]);

    // Without the option, a list is no valid label, and a label must not be empty.
    let advice = "`data.target = \"labels\"` in a config (`label_lists`) reads several labels per text";
    for options in [ReadOptions::new(), ReadOptions::new().label("labels")] {
        files.says(open(&files, "a.jsonl", &options), &["got a list", advice]);
    }
    let shown = files.error(open(&files, "a.csv", &ReadOptions::new()));
    assert!(shown.starts_with("a.csv:3: expected something in column `labels`, got nothing"), "{shown}");
}

#[test]
fn items_of_lists_are_labels() {
    let wrong = [
        (
            "[\"x\\u001fy\"]",
            "labels in the list of the field `labels`, got \"x\\u{1f}y\": remove U+001F, which separates labels",
        ),
        ("[\"x\", \" \"]", "labels in the list of the field `labels`, got an empty string"),
        ("[null]", "labels in the list of the field `labels`, got null: a label is a string or a number"),
        (
            "[[\"x\"]]",
            "labels in the list of the field `labels`, got a list: a label is a string or a number",
        ),
        (
            "{\"x\": 2}",
            "a string, a list, or an object with a score from 0 to 1 for each label in the field `labels`",
        ),
    ];
    for (at, (labels, expected)) in wrong.into_iter().enumerate() {
        let text =
            format!("{{\"text\": \"a\", \"labels\": [\"x\"]}}\n{{\"text\": \"b\", \"labels\": {labels}}}\n");
        let files = Files::new(&format!("label-items-{at}"), &[("a.jsonl", text.as_bytes())]);
        let shown = files.error(open(&files, "a.jsonl", &ReadOptions::new().label_lists()));
        assert!(shown.starts_with(&format!("a.jsonl:2: expected {expected}")), "{shown}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn columns_of_parquet_are_joined_and_may_be_lists() {
    let fixture = |name: &str| {
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/text/fixtures/parquet_{name}.parquet"))
    };
    let options = ReadOptions::new().texts(["about.by", "text"]).label("label");
    let found = LabelledTexts::open_with([fixture("reviews")], &options).unwrap();
    let one = LabelledTexts::open(fixture("reviews")).unwrap();
    let expected = |(at, one): (usize, &LabelledText)| format!("writer {}\t{}", at % 3, one.text);
    let expected: Vec<String> = one.records().iter().enumerate().map(expected).collect();
    assert!(found.records().iter().map(|one| &one.text).eq(&expected));
    let questions = Questions::open(fixture("reviews"), &options, QuestionKind::Text).unwrap();
    assert_eq!(asked(questions), expected);
    let shown =
        Questions::open(fixture("reviews_none"), &options, QuestionKind::Text).unwrap_err().to_string();
    assert!(shown.contains("field `about.by` of file"), "{shown}");

    // Tags are lists of the names of classes; words are lists of strings.
    let tagged = TaggedTexts::open(fixture("tagged")).unwrap();
    for (label, column) in [("ner_tags", 0), ("tokens", 1)] {
        let options = ReadOptions::new().text("intent").label(label).label_lists();
        let found = LabelledTexts::open_with([fixture("tagged")], &options).unwrap();
        for (found, tagged) in found.records().iter().zip(tagged.records()) {
            let items = if column == 0 { &tagged.tags } else { &tagged.words };
            assert_eq!(found.label, items.iter().map(|item| format!("{item}\u{1f}")).collect::<String>());
        }
        let shown =
            LabelledTexts::open_with([fixture("tagged")], &ReadOptions::new().text("intent").label(label));
        assert!(shown.unwrap_err().to_string().contains("`data.target = \"labels\"`"));
    }
}
