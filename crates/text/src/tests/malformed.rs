//! Tests of malformed records that are left out, of tables with unusual marks, and of records that no task reads.

use super::*;

fn skip(most: f64) -> ReadOptions {
    ReadOptions::new().skip_malformed(most)
}

/// The lines of the records that were left out, and the number of all records.
fn left_out(read: &ReadOptions) -> (Vec<u64>, u64) {
    read.skipped().map_or((Vec::new(), 0), |report| {
        (report.skipped.iter().map(|one| one.line).collect(), report.records)
    })
}

#[test]
fn malformed_records_of_each_format_are_left_out_in_each_pass() -> Result<()> {
    let files = Files::new(
        "left-out",
        &[
            ("a.csv", b"text,label\ngood,y\none cell\nbad,n\n,y\nfine,y\n"),
            ("a.tsv", b"good\ty\nb\xffd \xc3\xa9\tn\nbad\tn\n\tn\nfine\ty\n"),
            ("a.jsonl", b"{\"text\":\"good\",\"label\":\"y\"}\n{\"text\":\n{\"text\":\"\",\"label\":\"n\"}\n{\"text\":\"bad\",\"label\":\"n\"}\n{\"text\":\"fine\",\"label\":\"y\"}\n"),
            ("a.json", b"[{\"text\":\"good\",\"label\":\"y\"},{\"text\":\"\",\"label\":\"y\"},{\"text\":\"x\"},\n{\"text\":\"bad\",\"label\":\"n\"},{\"text\":\"fine\",\"label\":\"y\"}]"),
            ("fast", b"__label__y good\n__label__y\n__label__n bad\n__label__n\n__label__y fine\n"),
        ],
    );
    let expected = [("good", "y"), ("bad", "n"), ("fine", "y")];
    for (name, lines) in
        [("a.csv", [3, 5]), ("a.tsv", [2, 4]), ("a.jsonl", [2, 3]), ("a.json", [1, 1]), ("fast", [2, 4])]
    {
        let options = skip(0.4).encoding(Encoding::Utf8);
        let found = LabelledTexts::open_with([files.at(name)], &options)?;
        assert_eq!(
            (texts(&found), left_out(found.read_as())),
            (expected.to_vec(), (lines.to_vec(), 5)),
            "{name}"
        );
        let streamed = LabelledFiles::open_with([files.at(name)], &options)?;
        for _ in 0..2 {
            let pass: Vec<LabelledText> = streamed.records().collect::<Result<_>>()?;
            assert_eq!(
                (pass.as_slice(), left_out(streamed.read_as())),
                (found.records(), (lines.to_vec(), 5)),
                "{name}"
            );
        }
        // Another data set with the same options begins with an empty log.
        assert_eq!(left_out(LabelledTexts::open_with([files.at(name)], found.read_as())?.read_as()).1, 5);
        let refused = LabelledTexts::open_with([files.at(name)], &skip(0.3).encoding(Encoding::Utf8));
        let position = format!("{name}:{}: expected ", lines[0]);
        files.says(
            refused,
            &["`data.skip_bad_share`", "`data.skip_bad`", "2 of 5 records, a share of 0.4", &position],
        );
    }
    Ok(())
}

#[test]
fn labels_that_are_no_numbers_are_left_out() -> Result<()> {
    let files = Files::new("no-numbers", &[("a.tsv", b"one\t1\ntwo\t2.5\nthree\tx\nfour\tnan\nfive\t5\n")]);
    let found = LabelledTexts::open_with([files.at("a.tsv")], &skip(0.5).numbers())?;
    assert_eq!((texts(&found).len(), left_out(found.read_as())), (3, (vec![3, 4], 5)));
    Ok(())
}

#[test]
fn sentences_pairs_and_lines_of_text_are_left_out_whole() -> Result<()> {
    let files = Files::new(
        "left-out-whole",
        &[
            ("a.conll", b"a O\nb O\n\nc O\nd\ne O\n\nf O\ng O\n\n"),
            (
                "a.jsonl",
                b"{\"tokens\":[\"a\"],\"tags\":[\"O\"]}\n{\"tokens\":[\"a\",\"b\"],\"tags\":[\"O\"]}\n",
            ),
            ("p.de", b"eins\n\ndrei\n"),
            ("p.en", b"one\ntwo\nthree\n"),
            ("one.txt", b"first\nb\xffd\nlast\n"),
        ],
    );
    let tagged = TaggedTexts::open_with([files.at("a.conll")], &skip(0.5))?;
    assert_eq!(
        (tagged.records()[1].words.as_slice(), left_out(tagged.read_as())),
        (&["f".to_owned(), "g".to_owned()][..], (vec![5], 3))
    );
    assert_eq!(left_out(TaggedTexts::open_with([files.at("a.jsonl")], &skip(0.5))?.read_as()), (vec![2], 2));
    let pairs = Pairs::open_with([files.at("p.{de,en}")], &skip(0.5))?;
    assert_eq!((pairs.records()[1].target.as_str(), left_out(pairs.read_as())), ("three", (vec![2], 3)));
    let options = skip(0.5).encoding(Encoding::Utf8);
    let text = PlainText::open_with([files.at("one.txt")], &options)?;
    assert_eq!((text.text(), left_out(text.read_as())), ("first\nlast\n", (vec![2], 3)));
    let streamed = PlainFiles::open_with([files.at("one.txt")], &options)?;
    for _ in 0..2 {
        assert_eq!(streamed.pieces().collect::<Result<String>>()?, "first\nlast\n");
    }
    assert_eq!(left_out(streamed.read_as()), (vec![2], 3));
    files.says(
        PlainText::open_with([files.at("one.txt")], &skip(0.1).encoding(Encoding::Utf8)),
        &["1 of 3 records"],
    );
    Ok(())
}

/// A quotation mark that is never closed costs its own line, not the lines behind it.
#[test]
fn a_quotation_mark_without_a_partner_leaves_out_one_line() -> Result<()> {
    let rows = |from: usize| (from..from + 20).map(|i| format!("text {i},y\n")).collect::<String>();
    let text = format!("text,label\n{}\"open,y\n{}\"two\nlines\",n\n{}", rows(0), rows(20), rows(40));
    let bad = format!("text,label\n{}\"open,y\n{}b\u{e9}d,y\n", rows(0), rows(20));
    let files = Files::new("quotes", &[("a.csv", text.as_bytes()), ("b.csv", bad.as_bytes())]);
    let found = LabelledTexts::open_with([files.at("a.csv")], &skip(0.1))?;
    assert_eq!((found.records().len(), left_out(found.read_as()).0), (61, vec![22]));
    assert_eq!(found.records()[40].text, "two\nlines");
    assert_eq!(left_out(LabelledTexts::open_with([files.at("b.csv")], &skip(0.1))?.read_as()).0, [22]);
    // The error names the setting if few of many records are malformed.
    let many = format!("text,label\none cell\n{}", rows(0).repeat(10));
    let files = Files::new("few", &[("a.csv", many.as_bytes()), ("b.csv", b"text,label\none\ntwo,y\n")]);
    let collect = ReadOptions::new().malformed(MalformedLines::Collect);
    let open = |name| LabelledTexts::open_with([files.at(name)], &collect);
    files.says(
        open("a.csv"),
        &["a.csv:2: expected 2 columns", "malformed: 1 of 201 records; `data.skip_bad = true`"],
    );
    assert!(!files.error(open("b.csv")).contains("skip_bad"));
    Ok(())
}

#[test]
fn marks_are_text_and_lines_above_a_table_are_left_out_as_set() -> Result<()> {
    let files = Files::new(
        "above",
        &[
            ("a.csv", b"My, table\n\ntext,label\n\"a\" good one,y\nso \"bad,n\n"),
            ("b.tsv", b"\"a\"\ty\n\"b\tn\"\n"),
            ("a.jsonl", b"{\"text\":\"good\",\"label\":\"y\"}\n"),
        ],
    );
    let options = ReadOptions::new().quotes(false).skip_lines(2);
    let found = LabelledTexts::open_with([files.at("a.csv")], &options)?;
    assert_eq!(texts(&found), [("\"a\" good one", "y"), ("so \"bad", "n")]);
    assert!(found.records()[0].file_line().unwrap().to_string().ends_with("a.csv:4"));
    says(&found.read_as().to_string(), &["quotation marks are text", "line 3 is a header"]);
    // The note of a checkpoint has both settings.
    let noted = ReadOptions::new().or_note(&found.read_as().to_note())?;
    let again: Vec<LabelledText> =
        LabelledFiles::open_with([files.at("a.csv")], &noted)?.records().collect::<Result<_>>()?;
    assert_eq!(again, found.records());
    let mut asked = Questions::open(files.at("a.csv"), &noted, QuestionKind::Text)?;
    assert_eq!(asked.next().unwrap()?.text.as_deref(), Ok("\"a\" good one"));
    let raw = LabelledTexts::open_with(
        [files.at("b.tsv")],
        &ReadOptions::new().quotes(false).text("1").label("2"),
    )?;
    assert_eq!(texts(&raw), [("\"a\"", "y"), ("\"b", "n\"")]);
    for (options, shown) in [
        (ReadOptions::new().quotes(true), "`data.quote`"),
        (ReadOptions::new().skip_lines(1), "`data.skip_lines`"),
    ] {
        files
            .says(LabelledTexts::open_with([files.at("a.jsonl")], &options), &[shown, "`jsonl` is no table"]);
    }
    Ok(())
}

#[test]
fn a_separator_that_fits_all_lines_but_one_is_taken() {
    let files = Files::new(
        "nearly",
        &[
            ("a.csv", b"id;text;label\n1;good, fine;y\n2;bad;n\n3;no label\n4;so | so;y\n5;dull;n\n"),
            ("trail.csv", b"text;label;note\ngood;y;;\nbad;n;;\n"),
            ("prose.csv", b"text\nwell, good\nso bad\nfine, so\ndull, too\n"),
        ],
    );
    files.says(LabelledTexts::open(files.at("a.csv")), &["a.csv:4: expected 3 columns", "\"3;no label\""]);
    let found = LabelledTexts::open_with([files.at("a.csv")], &skip(0.5)).unwrap();
    assert_eq!((found.records().len(), found.records()[0].text.as_str()), (4, "good, fine"));
    files.says(
        LabelledTexts::open(files.at("trail.csv")),
        &["expected 4 columns", "got 3", "ends with a separator"],
    );
    let prose = LabelledTexts::open(files.at("prose.csv"));
    assert!(prose.is_err(), "{prose:?}");
}

#[test]
fn a_few_signs_are_windows_1252_and_other_files_are_detected_anew() -> Result<()> {
    let (polish, marked) = (encoding_rs::ISO_8859_2, "\u{feff}good \u{e9}\ty\nbad\tn\n");
    let utf_16: Vec<u8> = marked.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let late = "plain words\ty\n".repeat(30_000) + "caf\u{e9}\tn\n";
    let late = encoding_rs::WINDOWS_1252.encode(&late).0.into_owned();
    let signs = [
        ("pound", "only \u{a3}5"),
        ("half", "\u{bd} or \u{b1} 3"),
        ("yen", "\u{a5} or \u{a3}"),
        ("name", "na\u{ef}ve"),
        ("city", "in Qu\u{c9}bec"),
    ];
    let western: Vec<(&str, Vec<u8>)> = signs
        .iter()
        .map(|(name, sign)| {
            let text = "a plain text\ty\nand more\tn\n".repeat(20) + &format!("it costs {sign} here\ty\n");
            (*name, encoding_rs::WINDOWS_1252.encode(&text).0.into_owned())
        })
        .collect();
    let polish = polish
        .encode("Ksi\u{105}\u{17c}ka by\u{142}a \u{15b}wietna, \u{17c}\u{f3}\u{142}\u{107}\ty\n")
        .0
        .into_owned();
    let mut all: Vec<(&str, &[u8])> = western.iter().map(|(name, bytes)| (*name, bytes.as_slice())).collect();
    all.extend([
        ("utf16", utf_16.as_slice()),
        ("late", &late),
        ("ascii", b"good\ty\nbad\tn\n"),
        ("polish", &polish),
    ]);
    let files = Files::new("signs", &all);
    for (name, sign) in signs {
        let found = LabelledTexts::open(files.at(name))?;
        assert!(found.records()[40].text.contains(sign), "{name}: {:?}", found.records()[40]);
        says(&found.read_as().to_string(), &["encoding windows-1252"]);
    }
    files.says(LabelledTexts::open(files.at("polish")), &["most likely ISO-8859-2"]);
    // A file without a byte order mark is no UTF-16, whatever the training file was.
    let trained = LabelledTexts::open(files.at("utf16"))?;
    let noted = ReadOptions::new().or_note(&trained.read_as().to_note())?;
    assert_eq!(texts(&LabelledTexts::open_with([files.at("ascii")], &noted)?), [("good", "y"), ("bad", "n")]);
    let set = ReadOptions::new().encoding("utf-16le".parse()?);
    files.says(LabelledTexts::open_with([files.at("ascii")], &set), &["expected UTF-16LE", "got ASCII"]);
    // Questions look as far as a data set does.
    let asked = Questions::open(files.at("late"), &ReadOptions::new(), QuestionKind::Text)?;
    assert!(asked.map(|question| question.unwrap().text).all(|text| text.is_ok()));
    Ok(())
}

#[test]
fn numbers_that_are_no_json_matter_only_where_they_are_read() -> Result<()> {
    let line = |label: &str, score: &str| {
        format!("{{\"text\":\"a NaN \\\" Infinity\",\"label\":{label},\"more\":{{\"score\":{score}}}}}")
    };
    let lines = [line("\"y\"", "NaN"), line("\"n\"", "[1, -Infinity]"), line("1", "2")];
    let files = Files::new(
        "nan",
        &[
            ("a.jsonl", lines.join("\n").as_bytes()),
            ("a.json", format!("[{}]", lines.join(",\n")).as_bytes()),
        ],
    );
    for name in ["a.jsonl", "a.json"] {
        let found = LabelledTexts::open(files.at(name))?;
        assert_eq!(texts(&found)[1], ("a NaN \" Infinity", "n"), "{name}");
        let score = LabelledTexts::open_with([files.at(name)], &ReadOptions::new().label("more.score"));
        files.says(score, &[&format!("{name}:1: expected a finite number"), "`more.score`, got NaN"]);
    }
    Ok(())
}

#[test]
fn spans_series_and_markup_are_named() -> Result<()> {
    let sentence: String = (0..40).map(|i| format!("word{i} O\n")).collect();
    let files = Files::new(
        "unread",
        &[
            (
                "doccano.jsonl",
                b"{\"text\":\"a b\",\"label\":[]}\n{\"text\":\"in Rome\",\"label\":[[3,7,\"LOC\"]]}\n",
            ),
            (
                "offsets.jsonl",
                b"{\"text\":\"in Rome\",\"spans\":[{\"start\":3,\"end\":7,\"label\":\"LOC\"}]}\n",
            ),
            ("spacy.json", b"[[\"in Rome\",{\"entities\":[[3,7,\"LOC\"]]}],[\"a\",{\"entities\":[]}]]"),
            ("a.ts", b"#A comment\n@problemName Arrow\n@data\n1,2:0\n"),
            ("a.arff", b"% A comment\n@RELATION arrow\n@DATA\n1,2,0\n"),
            ("series.json", b"{\"train\":[[[1,2],[]],[[3],[4],[5]]],\"test\":[[[1]]]}"),
            ("one.conll", sentence.as_bytes()),
            ("page.html", b"<!DOCTYPE html>\n<p>so</p>\n"),
            ("tei.txt", b"<TEI xmlns=\"x\">\n<p>so</p>\n"),
            ("talk.txt", b"anna|hello|greet\nbob|so|answer\nanna|well|bye\n"),
            ("film.srt", b"1\n00:01 --> 00:02\nso\n\n2\n00:03 --> 00:04\nwell\n"),
        ],
    );
    for (name, field) in [("doccano.jsonl", "label"), ("offsets.jsonl", "spans"), ("spacy.json", "entities")]
    {
        let shown = files.error(TaggedTexts::open(files.at(name)));
        says(&shown, &[&format!("character spans in `{field}`, which are not read"), "`tokens` and `tags`"]);
        assert_eq!(shown.lines().count(), 1);
        let shown = files.error(LabelledTexts::open(files.at(name)));
        says(&shown, &[&format!("character spans in `{field}`"), "`--task tag`"]);
    }
    for name in ["a.ts", "a.arff", "series.json!train"] {
        files.says(LabelledTexts::open(files.at(name)), &["series"]);
        files.says(PlainText::open(files.at(name)), &["series"]);
    }
    let tagged = TaggedTexts::open(files.at("one.conll"))?;
    says(&tagged.read_as().to_string(), &["no blank line was found"]);
    files.says(PlainText::open(files.at("tei.txt")), &["`data.format`", "`plain`"]);
    PlainText::open_with([files.at("tei.txt")], &ReadOptions::new().format(FileFormat::Plain))?;
    for (name, shown) in [
        ("page.html", "marks of HTML"),
        ("talk.txt", "`data.format = \"csv\"`"),
        ("film.srt", "times of subtitles"),
    ] {
        says(&PlainText::open(files.at(name))?.read_as().to_string(), &["`plain`", shown]);
    }
    Ok(())
}

#[test]
fn lines_above_a_table_are_no_lines_of_pairs_and_of_no_later_file() -> Result<()> {
    let files = Files::new(
        "above-pairs",
        &[
            ("p.tsv", b"My corpus\t2024\nein\tone\nzwei\ttwo\n"),
            ("a.csv", b"My table\ntext,label\ngood,y\nbad,n\n"),
            ("b.jsonl", b"{\"text\":\"fine\",\"label\":\"y\"}\n"),
        ],
    );
    let options = ReadOptions::new().skip_lines(1);
    let pairs = Pairs::open_with([files.at("p.tsv")], &options)?;
    assert_eq!(pairs.records().iter().map(|pair| &*pair.source).collect::<Vec<_>>(), ["ein", "zwei"]);
    let found = LabelledTexts::open_with(["a.csv", "b.jsonl"].map(|name| files.at(name)), &options)?;
    assert_eq!(found.records().len(), 3);
    let first = LabelledTexts::open_with([files.at("a.csv")], &options)?;
    says(&first.read_as().to_string(), &["1 line above the table is left out"]);
    assert_eq!(LabelledTexts::open_with([files.at("b.jsonl")], first.read_as())?.records().len(), 1);
    // 0 is set, too.
    let note = first.read_as().to_note();
    says(&ReadOptions::new().skip_lines(0).or_note(&note)?.to_note(), &["\"skip_lines\":0"]);
    Ok(())
}

#[test]
fn the_first_of_separators_that_fit_alike_is_taken_and_said() -> Result<()> {
    let files = Files::new(
        "alike",
        &[("a.csv", b"good film,x;pos\nbad film,x;neg\ndull,y;neg\nfine,y;pos\nno separator here\n")],
    );
    let options = skip(0.5).text("1").label("2");
    let found = LabelledTexts::open_with([files.at("a.csv")], &options)?;
    assert_eq!(texts(&found)[0], ("good film", "x;pos"));
    says(&found.read_as().to_string(), &["separated by `,`; `;` would give nearly equal columns, too"]);
    Ok(())
}

#[test]
fn the_texts_of_many_malformed_records_are_counted_only() -> Result<()> {
    let files = Files::new(
        "many",
        &[("a.csv", ("text,label\n".to_owned() + &"good,y\nbad\n".repeat(12_000)).as_bytes())],
    );
    let streamed = LabelledFiles::open_with([files.at("a.csv")], &skip(0.6))?;
    for _ in 0..2 {
        assert_eq!(streamed.records().filter(Result::is_ok).count(), 12_000);
        let report = streamed.read_as().skipped().unwrap();
        assert_eq!(
            (report.skipped.len(), report.more, report.count(), report.records),
            (10_000, 2_000, 12_000, 24_000)
        );
    }
    Ok(())
}
