//! Files of JSON that are lists, or objects with lists in them, and numbers as they are written.

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
    assert_eq!(tagged.texts()[0].tags, [one, "7"]);
    let said = files.said(TaggedTexts::open(files.at("half.jsonl")));
    assert!(said.contains("got a number in it"), "{said}");
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
    assert_eq!(open("rows.json").read_as().to_string(), "`jsonl`, text in `1`, label in `2`");
    assert_eq!(texts(&open("latin.json")), [("café", "y"), ("bad", "n")]);
    assert_eq!(PlainText::open(files.at("pretty.json")).unwrap().text(), "good\nbad\n");
    assert_eq!(PlainText::open(files.at("rows.json")).unwrap().text(), "good\nbad\n");
    let pairs = Pairs::open(files.at("pairs.json")).unwrap();
    assert_eq!((pairs.by_source()[1].0, &*pairs.by_source()[1].1), ("run", &["cours"][..]));
    assert_eq!(Pairs::open(files.at("named.json")).unwrap().pairs()[0].target, "va");
    assert_eq!(TaggedTexts::open(files.at("tagged_rows.json")).unwrap().texts()[0].tags, ["O", "B-X"]);
    let said = files.said(TaggedTexts::open(files.at("tagged.json")));
    assert!(said.starts_with("tagged.json:2: expected an element tokens, got a list of 2"), "{said}");
    let said = files.said(LabelledTexts::open(files.at("three.json")));
    assert!(
        said.contains("expected a list of two, got one of 3; `text` gives its number from 1 on"),
        "{said}"
    );
    let numbered = ReadOptions::new().text("2").label("3");
    let found = LabelledTexts::open_with([files.at("three.json")], &numbered).unwrap();
    assert_eq!(texts(&found), [("good", "y"), ("bad", "n")]);
    let found = LabelledFiles::open(files.at("pretty.json")).unwrap();
    assert_eq!(found.texts().collect::<Result<Vec<_>>>().unwrap(), open("line.json").texts());
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
    let parts = Parts::find(files.at("all.json")).unwrap();
    let at = |list: &str| files.at(&format!("all.json!{list}"));
    assert_eq!((parts.train, parts.dev, parts.test), (at("train"), Some(at("val")), Some(at("test"))));
    assert_eq!(parts.left_out, [at("extra_train")]);
    let open = |list: &str| LabelledTexts::open(at(list));
    assert_eq!(texts(&open("train").unwrap()), [("good", "y"), ("bad", "n")]);
    assert_eq!(texts(&open("test").unwrap()), [("dull", "n")]);
    assert!(open("train").unwrap().name().ends_with("all.json!train"));
    let said = files.said(open("dev"));
    let expected =
        "file `all.json!dev`: expected one of the lists `extra_train`, `train`, `val`, `test`, got `dev`";
    assert!(said.starts_with(expected), "{said}");
    let said = files.said(LabelledTexts::open(files.at("all.json")));
    let expected = "file `all.json`: expected one of its lists of records, as `all.json!extra_train`, got 4: `extra_train`, `train`";
    assert!(said.starts_with(expected), "{said}");
    assert_eq!(texts(&LabelledTexts::open(files.at("one.json")).unwrap()), [("good", "y")]);
    assert_eq!(Parts::find(files.at("one.json")).unwrap().train, files.at("one.json"));
    assert_eq!(Parts::find(files.at("lines.json")).unwrap().train, files.at("lines.json"));
    assert!(files.said(Parts::find(files.at("twice.json"))).contains("expected one to train on, got"));
    assert_eq!(texts(&LabelledTexts::open(files.at("lines.json")).unwrap()), [("a", "y"), ("b", "n")]);
    assert_eq!(texts(&LabelledTexts::open(files.at("line.jsonl")).unwrap()), [("a", "y")]);
    let parts = Parts::find(files.at("folder")).unwrap();
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
            ("columns.json", b"{\"text\":{\"0\":\"a\"},\"label\":{\"0\":\"x\"}}"),
        ],
    );
    let collect = ReadOptions::new().malformed(Malformed::Collect);
    let said = |name: &str| files.said(LabelledTexts::open_with([files.at(name)], &collect));
    for (name, expected) in [
        (
            "object.json",
            "file `object.json`: expected one object a line, a list of objects, or an object with such a list in it, got one object over several lines, with `text`, `label`; `jq -c .` writes",
        ),
        (
            "objects.json",
            "objects.json:4: expected the end of the file behind the object; of several, one a line, got `{`",
        ),
        (
            "cut.json",
            "cut.json:2: expected the end of the value of JSON that begins in line 2, got the end of the file",
        ),
        ("open.json", "open.json:3: expected `,` or `]` in the list, got the end of the file"),
        ("comma.json", "comma.json:2: expected `,` or `]` in the list, got `{`"),
        ("behind.json", "behind.json:2: expected the end of the file behind the list, got `[`"),
        ("uneven.json", "uneven.json:2: expected a list of 2, as the first, got 3"),
        (
            "scalars.json",
            "scalars.json:1: expected an object, or a list of its fields, got a string in \"\\\"a\\\"\"",
        ),
        (
            "deep.json",
            "deep.json:1: expected an object, or a list of its fields, got no JSON (more than 64 values in each other",
        ),
        ("line.jsonl", "line.jsonl:1: expected a JSON object in one line, got EOF"),
        ("lines.jsonl", "lines.jsonl:1: expected a JSON object in one line, got EOF"),
        ("empty.json", "records of file `empty.json`: expected at least one, got none"),
        ("columns.json", "field of the text in file `columns.json`: expected one called `text`"),
    ] {
        assert!(said(name).starts_with(expected), "{name}: {}", said(name));
    }
    // Of records that end all are read, and each has its line.
    let found = said("bad.json");
    for expected in [
        "bad.json:4: expected an object, or a list of its fields, got no JSON (expected ident at column 11) in",
        "bad.json:5: expected a field `label`, got an object with text",
        "bad.json:6: expected an object, or a list of its fields, got a number in \"7\"",
    ] {
        assert!(found.contains(expected), "{found}");
    }
    let skip = ReadOptions::new().malformed(Malformed::Skip);
    assert_eq!(texts(&LabelledTexts::open_with([files.at("bad.json")], &skip).unwrap()), [("a", "y")]);
}

#[test]
fn a_record_is_all_that_is_in_memory() {
    let many: String =
        (0..20_000).map(|i| format!("{{\"text\": \"word{i} [,]\", \"label\": {}}},", i % 3)).collect();
    let list = format!("[{}]", many.trim_end_matches(','));
    let files = Files::new("long", &[("a.json", list.as_bytes())]);
    let file = crate::data::TextFile::open(files.at("a.json")).unwrap().max_line(64);
    let wanted = Some(vec!["text".to_owned()]);
    let texts =
        super::super::json::records(&file, wanted.clone(), |of| super::super::fields::text(of, "text"));
    let texts = texts.unwrap().collect::<Result<Vec<_>>>().unwrap();
    assert_eq!((texts.len(), texts[19_999].as_str()), (20_000, "word19999 [,]"));
    let file = file.max_line(32);
    let found = super::super::json::records(&file, wanted, |_| Ok(())).unwrap();
    let said = files.said(found.collect::<Result<Vec<_>>>());
    assert!(said.starts_with("a.json:1: expected a record of at most 32 bytes, got a longer one"), "{said}");
}
