//! Tests of JSON files that are lists, or objects that contain lists, and of the text of numbers.

use super::*;

#[test]
fn numbers_are_as_they_are_written() {
    let files = Files::new(
        "numbers",
        &[
            (
                "a.jsonl",
                b"{\"text\": 10000000000000000000001, \"label\": 10000000000000000000001}\n\
                {\"text\": \"b\", \"label\": 10000000000000000000002}\n{\"text\": 0.10, \"label\": 3e2}\n\
                {\"text\": -0.0, \"label\": 3}\n{\"text\": 1E400, \"label\": true}\n"
                    as &[u8],
            ),
            ("b.json", b"[{\"text\": 1.50, \"label\": 1e0}]"),
            ("tags.jsonl", b"{\"tokens\": [\"a\", \"b\"], \"tags\": [10000000000000000000001, 7]}\n"),
            ("half.jsonl", b"{\"tokens\": [\"a\"], \"tags\": [1e0]}\n"),
        ],
    );
    let found = LabelledTexts::open(files.at("a.jsonl")).unwrap();
    let [one, two] = ["10000000000000000000001", "10000000000000000000002"];
    assert_eq!(texts(&found), [(one, one), ("b", two), ("0.10", "3e2"), ("-0.0", "3"), ("1E400", "true")]);
    assert_eq!(found.labels().unwrap().len(), 5);
    assert_eq!(texts(&LabelledTexts::open(files.at("b.json")).unwrap()), [("1.50", "1e0")]);
    let tagged = TaggedTexts::open(files.at("tags.jsonl")).unwrap();
    assert_eq!(tagged.records()[0].tags, [one, "7"]);
    files.says(TaggedTexts::open(files.at("half.jsonl")), &["got a list with a number"]);
}

#[test]
fn a_list_is_read_in_one_line_or_over_many() {
    let files = Files::new(
        "lists",
        &[
            ("line.json", b"[{\"text\":\"good\",\"label\":\"y\"},{\"text\":\"bad\",\"label\":\"n\"}]" as &[u8]),
            ("pretty.json", b"\xef\xbb\xbf[\n  {\n    \"label\": \"y\",\n    \"text\": \"go\\u006fd\"\n  },\n  {\n    \"text\": \"bad\", \"label\": \"n\"\n  }\n]\n"),
            ("mixed", b"[{\"text\":\"good\", \"label\":\"y\"},\n {\"text\":\"bad\",\"label\":\"n\"}]"),
            ("rows.json", b"[\n [\n  \"good\",\n  \"y\"\n ],\n [\n  \"bad\", \"n\"]]"),
            ("latin.json", b"[[\"caf\xe9\", \"y\"], [\"bad\", \"n\"]]"),
            ("pairs.json", b"[[\"go\", \"va\"], [\"run\", \"cours\"]]"),
            ("named.json", b"[{\"source\": \"go\", \"target\": \"va\"}]"),
            ("tagged.json", b"[{\"tokens\": [\"Go\", \"on\"], \"tags\": [\"O\", \"B-X\"]},\n [[\"Go\"], [\"O\"]]]"),
            ("tagged_rows.json", b"[[[\"Go\", \"on\"], [\"O\", \"B-X\"]]]"),
            ("three.json", b"[[7, \"good\", \"y\"], [8, \"bad\", \"n\"]]"),
        ],
    );
    let open = |name: &str| LabelledTexts::open(files.at(name)).unwrap();
    for name in ["line.json", "pretty.json", "mixed", "rows.json"] {
        assert_eq!(texts(&open(name)), [("good", "y"), ("bad", "n")], "{name}");
    }
    let expected = "`jsonl`, text in `1`, label in `2`; element 1 is the text, element 2 is the label";
    assert_eq!(open("rows.json").read_as().to_string(), expected);
    assert_eq!(texts(&open("latin.json")), [("café", "y"), ("bad", "n")]);
    assert_eq!(PlainText::open(files.at("pretty.json")).unwrap().text(), "good\nbad\n");
    assert_eq!(PlainText::open(files.at("rows.json")).unwrap().text(), "good\nbad\n");
    let pairs = Pairs::open(files.at("pairs.json")).unwrap();
    assert_eq!((pairs.by_source()[1].0, &*pairs.by_source()[1].1), ("run", &["cours"][..]));
    assert_eq!(Pairs::open(files.at("named.json")).unwrap().records()[0].target, "va");
    assert_eq!(TaggedTexts::open(files.at("tagged_rows.json")).unwrap().records()[0].tags, ["O", "B-X"]);
    let shown = files.error(TaggedTexts::open(files.at("tagged.json")));
    assert!(shown.starts_with("tagged.json:2: expected an element tokens, got a list of 2"), "{shown}");
    files.says(
        LabelledTexts::open(files.at("three.json")),
        &["got 3 columns without known names; line 1 is `7`, `good`, `y`; set `text`"],
    );
    let numbered = ReadOptions::new().text("2").label("3");
    let found = LabelledTexts::open_with([files.at("three.json")], &numbered).unwrap();
    assert_eq!(texts(&found), [("good", "y"), ("bad", "n")]);
    let found = LabelledFiles::open(files.at("pretty.json")).unwrap();
    assert_eq!(found.records().collect::<Result<Vec<_>>>().unwrap(), open("line.json").records());
    assert_eq!("json".parse::<FileFormat>().unwrap(), FileFormat::JsonLines);
}

#[test]
fn lists_in_an_object_are_like_files_in_a_zip() {
    let whole: &[u8] = b"{\"version\": \"1\", \"extra_train\": [[\"x\", \"z\"]],\n \"train\": [[\"good\", \"y\"], [\"bad\", \"n\"]],\n\
        \"val\": [[\"fine\", \"y\"]], \"test\": [[\"dull\", \"n\"]]}";
    let files = Files::new(
        "objects",
        &[
            ("all.json", whole),
            ("one.json", b"{\"data\": [{\"text\": \"good\", \"label\": \"y\"}], \"labels\": [\"y\", \"n\"]}"),
            ("twice.json", b"{\"train\": [[\"a\", \"b\"]], \"training\": [[\"a\", \"b\"]]}"),
            ("lines.json", b"{\"text\": \"a\", \"label\": \"y\", \"spans\": [{\"at\": 1}]}\n{\"text\": \"b\", \"label\": \"n\"}\n"),
            ("line.jsonl", b"{\"text\": \"a\", \"label\": \"y\", \"spans\": [{\"at\": 1}]}\n"),
            ("folder/train.tsv", b"a\tx\nb\ty\n"),
            ("folder/more-train.tsv", b"c\tx\n"),
        ],
    );
    let parts = DataPaths::find(files.at("all.json")).unwrap();
    let at = |list: &str| files.at(&format!("all.json!{list}"));
    assert_eq!((parts.train, parts.dev, parts.test), (at("train"), Some(at("val")), Some(at("test"))));
    assert_eq!(parts.left_out, [at("extra_train")]);
    let open = |list: &str| LabelledTexts::open(at(list));
    assert_eq!(texts(&open("train").unwrap()), [("good", "y"), ("bad", "n")]);
    assert_eq!(texts(&open("test").unwrap()), [("dull", "n")]);
    assert!(open("train").unwrap().name().ends_with("all.json!train"));
    let shown = files.error(open("dev"));
    let expected =
        "file `all.json!dev`: expected one of the lists `extra_train`, `train`, `val`, `test`, got `dev`";
    assert!(shown.starts_with(expected), "{shown}");
    let shown = files.error(LabelledTexts::open(files.at("all.json")));
    let expected = "file `all.json`: expected the name of a list of records, as `all.json!extra_train`, got the lists `extra_train`, `train`";
    assert!(shown.starts_with(expected), "{shown}");
    assert_eq!(texts(&LabelledTexts::open(files.at("one.json")).unwrap()), [("good", "y")]);
    assert_eq!(DataPaths::find(files.at("one.json")).unwrap().train, files.at("one.json"));
    assert_eq!(DataPaths::find(files.at("lines.json")).unwrap().train, files.at("lines.json"));
    files.says(DataPaths::find(files.at("twice.json")), &["expected one file to train on, got"]);
    assert_eq!(texts(&LabelledTexts::open(files.at("lines.json")).unwrap()), [("a", "y"), ("b", "n")]);
    assert_eq!(texts(&LabelledTexts::open(files.at("line.jsonl")).unwrap()), [("a", "y")]);
    let parts = DataPaths::find(files.at("folder")).unwrap();
    assert_eq!(
        (parts.train, parts.left_out),
        (files.at("folder/train.tsv"), vec![files.at("folder/more-train.tsv")])
    );
}

#[test]
fn one_error_says_what_a_file_is_and_where_it_is_broken() {
    let files = Files::new(
        "broken",
        &[
            ("object.json", b"{\n \"text\": \"a\",\n \"label\": \"y\"\n}\n" as &[u8]),
            ("objects.json", b"{\n \"text\": \"a\"\n}\n{\n \"text\": \"b\"\n}\n"),
            ("cut.json", b"[{\"text\": \"a\", \"label\": \"y\"},\n {\"text\": \"b\", \"la"),
            ("open.json", b"[{\"text\": \"a\", \"label\": \"y\"},\n{\"text\": \"b\", \"label\": \"n\"}\n"),
            ("comma.json", b"[{\"text\": \"a\", \"label\": \"y\"}\n{\"text\": \"b\"}]"),
            ("behind.json", b"[{\"text\": \"a\", \"label\": \"y\"}]\n[1]"),
            ("bad.json", b"[{\"text\": \"a\", \"label\": \"y\"},\n{\n\"text\": \"b\",\n\"label\": no},\n{\"text\": \"c\"},\n7]"),
            ("uneven.json", b"[[\"a\", \"y\"],\n[\"b\", \"n\", \"c\"]]"),
            ("scalars.json", b"[\"a\", \"b\"]"),
            ("deep.json", b"[{\"text\": [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]], \"label\": 1}]"),
            ("line.jsonl", b"{\"text\": \"a\", \"label\": \n"),
            ("lines.jsonl", b"{\"text\": \"a\", \"label\": \"y\n{\"text\": \"b\", \"label\": \"n\"}\n"),
            ("empty.json", b"[ ]"),
            ("shorter.json", b"{\"text\":[\"a\", \"b\"],\n\"label\":[\"x\"]}"),
            ("keys.json", b"{\"text\":{\"0\":\"a\"},\"label\":{\"1\":\"x\"}}"),
            ("names.json", b"{\"text\":{\"b\":\"a\"},\"label\":{\"b\":\"x\"}}"),
        ],
    );
    let collect = ReadOptions::new().malformed(MalformedLines::Collect);
    let shown = |name: &str| files.error(LabelledTexts::open_with([files.at(name)], &collect));
    for (name, expected) in [
        (
            "object.json",
            "file `object.json`: expected one object per line, a list of objects, or an object with a list of objects, got one object over several lines, with `text`, `label`; `jq -c .` writes",
        ),
        (
            "objects.json",
            "objects.json:4: expected the end of the file behind the object; write one object per line, got `{`",
        ),
        (
            "cut.json",
            "cut.json:2: expected the end of the value of JSON that begins in line 2, got the end of the file",
        ),
        ("open.json", "open.json:3: expected `,` or `]` in the list, got the end of the file"),
        ("comma.json", "comma.json:2: expected `,` or `]` in the list, got `{`"),
        ("behind.json", "behind.json:2: expected the end of the file behind the list, got `[`"),
        ("uneven.json", "uneven.json:2: expected 2 elements, as the first list, got 3"),
        (
            "scalars.json",
            "scalars.json:1: expected an object, or a list of its fields, got a string in \"\\\"a\\\"\"",
        ),
        (
            "deep.json",
            "deep.json:1: expected an object, or a list of its fields, got no JSON (more than 64 nested values",
        ),
        ("line.jsonl", "line.jsonl:1: expected a JSON object in one line, got EOF"),
        ("lines.jsonl", "lines.jsonl:1: expected a JSON object in one line, got EOF"),
        ("empty.json", "records of file `empty.json`: expected at least one, got none"),
        (
            "shorter.json",
            "shorter.json:2: expected in column `label` one value for each value in the first column, got no value beside a value",
        ),
        (
            "keys.json",
            "keys.json:1: expected in column `label` one value for each value in the first column, got the value of record `1` \
             beside the value of record `0`",
        ),
        ("names.json", "field of the text in file `names.json`: expected a field called `text`"),
    ] {
        assert!(shown(name).starts_with(expected), "{name}: {}", shown(name));
    }
    // The records after a malformed record are read, too, and each error has the line number of its record.
    let found = shown("bad.json");
    for expected in [
        "bad.json:4: expected an object, or a list of its fields, got no JSON (expected ident at column 11) in",
        "bad.json:5: expected a field `label`, got an object with `text`",
        "bad.json:6: expected an object, or a list of its fields, got a number in \"7\"",
    ] {
        assert!(found.contains(expected), "{found}");
    }
    let skip = ReadOptions::new().malformed(MalformedLines::Skip);
    assert_eq!(texts(&LabelledTexts::open_with([files.at("bad.json")], &skip).unwrap()), [("a", "y")]);
}

#[test]
fn a_record_is_all_that_is_in_memory() {
    let many: String =
        (0..20_000).map(|i| format!("{{\"text\": \"word{i} [,]\", \"label\": {}}},", i % 3)).collect();
    let list = format!("[{}]", many.trim_end_matches(','));
    let files = Files::new("long", &[("a.json", list.as_bytes())]);
    let mut file = crate::TextFile::open(files.at("a.json")).unwrap();
    file.max_line = 64;
    let wanted = Some(vec!["text".to_owned()]);
    let layout = crate::format::json::Layout::of(&file, true).unwrap();
    let records = |file, wanted| {
        crate::format::json::records(file, &layout, wanted, |record| {
            crate::format::fields::text(record, "text")
        })
    };
    let texts = records(&file, wanted.clone());
    let texts = texts.unwrap().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!((texts.len(), texts[19_999].as_str()), (20_000, "word19999 [,]"));
    let mut file = file.clone();
    file.max_line = 32;
    let found = records(&file, wanted).unwrap();
    let shown = files.error(found.collect::<Result<Vec<_>>>());
    begins(&shown, "a.json:1: expected a record of at most 32 bytes, got a longer record");
}

#[test]
fn names_of_elements_and_labels_that_come_first_are_detected() {
    let labels_first = "[[\"y\", \"a good film\"], [\"n\", \"a bad film\"], [\"y\", \"a fine film\"], [\"n\", \"a dull film\"]]";
    let files = Files::new(
        "elements",
        &[
            ("split.json", b"{\"columns\":[\"label\",\"text\"],\"index\":[0,1],\"data\":[[\"y\",\"good\"],[\"n\",\"bad\"]]}" as &[u8]),
            ("uneven.json", b"{\"columns\":[\"label\",\"text\"],\"data\":[[\"y\",\"good\"],\n[\"n\"]]}"),
            ("numbers.json", b"{\"columns\":[0,1],\"data\":[[\"good\",\"y\"],[\"bad\",\"n\"]]}"),
            ("header.json", b"[[\"label\",\"text\"],[\"y\",\"good\"],[\"n\",\"bad\"]]"),
            ("wide.json", b"[[\"id\",\"text\",\"label\"],\n[7,\"good\",\"y\"],[8,\"bad\",\"n\"]]"),
            ("first.json", labels_first.as_bytes()),
            ("tagged.json", b"[[\"tags\",\"tokens\"],[[\"O\",\"O\"],[\"Go\",\"on\"]]]"),
            ("pairs.json", b"[[\"target\",\"source\"],[\"va\",\"go\"],[\"cours\",\"run\"]]"),
        ],
    );
    let open = |name: &str| LabelledTexts::open(files.at(name)).unwrap();
    for name in ["split.json", "numbers.json", "header.json", "wide.json"] {
        assert_eq!(texts(&open(name)), [("good", "y"), ("bad", "n")], "{name}");
    }
    let shown = |name: &str| open(name).read_as().to_string();
    assert_eq!(shown("split.json"), "`jsonl`, text in `text`, label in `label`; elements named by `columns`");
    let expected =
        "`jsonl`, text in `text`, label in `label`; the first list is a header, since it has known names";
    assert_eq!((shown("header.json").as_str(), shown("wide.json").as_str()), (expected, expected));
    let no_header = ReadOptions::new().header(false);
    let all = LabelledTexts::open_with([files.at("header.json")], &no_header).unwrap();
    assert_eq!(texts(&all)[0], ("label", "text"));
    assert_eq!(texts(&open("first.json"))[0], ("a good film", "y"));
    assert!(shown("first.json").ends_with("element 2 is the text, element 1 is the label"));
    assert!(PlainText::open(files.at("first.json")).unwrap().text().starts_with("a good film\na bad"));
    assert_eq!(TaggedTexts::open(files.at("tagged.json")).unwrap().records()[0].words, ["Go", "on"]);
    assert_eq!(Pairs::open(files.at("pairs.json")).unwrap().records()[0].target, "va");
    // The decisions about the file hold in each epoch.
    let windowed = LabelledFiles::open(files.at("wide.json")).unwrap();
    for _ in 0..2 {
        assert_eq!(windowed.records().collect::<Result<Vec<_>>>().unwrap(), open("wide.json").records());
    }
    let shown = files.error(LabelledTexts::open(files.at("uneven.json")));
    begins(&shown, "uneven.json:2: expected a list of 2 elements, one per name, got 1 in");
}

#[test]
fn an_object_larger_than_the_head_is_walked() {
    let records: String = (0..60_000).map(|i| format!("[\"word{i} and more\",\"{}\"],", i % 3)).collect();
    let whole = format!("{{\"version\":1,\"data\":[{}]}}", records.trim_end_matches(','));
    assert!(whole.len() > 3 << 19);
    let files = Files::new("large", &[("a.json", whole.as_bytes())]);
    assert_eq!(LabelledTexts::open(files.at("a.json")).unwrap().records().len(), 60_000);
}

#[test]
fn marks_of_lists_and_of_patterns_may_be_in_names() {
    let lists = b"{\"train\": [[\"good\", \"y\"], [\"bad\", \"n\"]], \"odd!one\": [[\"fine\", \"y\"]]}";
    let files = Files::new("names", &[("wow!/a.json", lists as &[u8]), ("data[1].json", lists)]);
    for path in ["wow!/a.json", "data[1].json"] {
        let open = |list: &str| LabelledTexts::open(files.at(&format!("{path}!{list}"))).unwrap();
        assert_eq!(texts(&open("train")), [("good", "y"), ("bad", "n")], "{path}");
        assert_eq!(texts(&open("odd!one")), [("fine", "y")], "{path}");
        assert_eq!(DataPaths::find(files.at(path)).unwrap().train, files.at(&format!("{path}!train")));
    }
}

#[test]
fn columns_values_and_lines_of_lists_are_records() {
    let files = Files::new(
        "columns-of-json",
        &[
            ("columns.json", b"{\"id\":{\"0\":1,\"1\":2},\"text\":{\"0\":\"good\",\"1\":\"bad\"},\"label\":{\"0\":\"y\",\"1\":\"n\"}}" as &[u8]),
            ("lists.json", b"{\n\"label\": [\"y\", \"n\"],\n\"text\": [\n\"good\", \"b\\u0061d\"]}\n"),
            ("index", b"{\"0\":{\"text\":\"good\",\"label\":\"y\"},\"1\":{\"text\":\"bad\",\"label\":\"n\"}}"),
            ("lines.jsonl", b"[\"good\", \"y\"]\n\n[\"bad\", \"n\"]\n"),
            ("named.jsonl", b"[\"label\", \"text\"]\n[\"y\", \"good\"]\n[\"n\", \"bad\"]\n"),
            ("lines", b"[\"good\", \"y\"]\n[\"bad\", \"n\"]\n"),
            ("words.jsonl", b"[[\"Go\", \"on\"], [\"O\", \"B-X\"]]\n[[\"Go\"], [\"O\"]]\n"),
            ("words.json", b"{\"tokens\": [\"Go\", \"on\"], \"tags\": [\"O\", \"B-X\"]}\n"),
            ("uneven.jsonl", b"[\"good\", \"y\"]\n[\"bad\"]\n"),
        ],
    );
    let expected = [("good", "y"), ("bad", "n")];
    for (name, note) in [
        (
            "columns.json",
            "`jsonl`, text in `text`, label in `label`; records are in the columns of one object; field `id` is not read",
        ),
        ("lists.json", "`jsonl`, text in `text`, label in `label`; records are in the columns of one object"),
        ("index", "`jsonl`, text in `text`, label in `label`; records are the values of one object"),
        ("lines.jsonl", "`jsonl`, text in `1`, label in `2`; element 1 is the text, element 2 is the label"),
        (
            "named.jsonl",
            "`jsonl`, text in `text`, label in `label`; the first list is a header, since it has known names",
        ),
        ("lines", "`jsonl`, text in `1`, label in `2`; element 1 is the text, element 2 is the label"),
    ] {
        let found = LabelledTexts::open(files.at(name)).unwrap();
        assert_eq!(texts(&found), expected, "{name}");
        assert_eq!(found.read_as().to_string(), note);
    }
    // For tagged texts, an object of lists is one record.
    assert_eq!(TaggedTexts::open(files.at("words.json")).unwrap().records().len(), 1);
    assert_eq!(TaggedTexts::open(files.at("words.jsonl")).unwrap().records().len(), 2);
    let shown = files.error(LabelledTexts::open(files.at("uneven.jsonl")));
    assert!(shown.starts_with("uneven.jsonl:2: expected 2 elements, as the first list, got 1"), "{shown}");
}
