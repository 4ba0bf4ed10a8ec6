//! Tests of several tables that each have a header, of first lines that may be headers, and of tables that are classes.

use super::*;

#[test]
fn each_file_is_read_by_its_own_header() {
    let files = Files::new(
        "headers-of-files",
        &[
            ("a.csv", b"text,label\ngood,y\n"),
            ("b.csv", b"label,text\nn,bad\n"),
            ("c.csv", b"class,sentence\nn,dull\n"),
            ("bare.csv", b"fine,y\nworse,n\n"),
            ("texts.csv", b"text\nfine\n"),
            ("one.csv", b"fine\nworse\n"),
        ],
    );
    let all = |names: &[&str]| {
        let paths = names.iter().map(|name| files.at(name));
        LabelledTexts::open_with(paths, &ReadOptions::new())
    };
    let found = all(&["a.csv", "b.csv", "c.csv"]).unwrap();
    assert_eq!(texts(&found), [("good", "y"), ("bad", "n"), ("dull", "n")]);
    let shown = found.read_as().to_string();
    assert!(shown.ends_with("c.csv` read as `csv`, text in `sentence`, label in `class`"), "{shown}");
    assert!(!shown.contains("b.csv"), "{shown}");
    // The first file has no header, so its columns are given by numbers.
    let found = all(&["bare.csv", "b.csv"]).unwrap();
    assert_eq!(texts(&found), [("fine", "y"), ("worse", "n"), ("bad", "n")]);
    for (names, expected) in [
        (
            ["a.csv", "bare.csv"],
            "line 1 names none of the wanted columns: if the line is a record, put a header with `text`, `label` above it",
        ),
        (["a.csv", "texts.csv"], "expected a column with a label for each text, got a single column, `text`"),
        (
            ["bare.csv", "one.csv"],
            "column `2` of file `one.csv`, the label: expected a column with a label for each text",
        ),
    ] {
        files.says(all(&names), &[expected]);
    }
}

#[test]
fn a_header_in_other_words_is_asked_for() {
    let lines = |first: &str, text: &str| -> Vec<u8> {
        let line = |i: usize| format!("{text} {i};{}\n", ["bueno", "malo"][i % 2]);
        (first.to_owned() + &(0..12).map(line).collect::<String>()).into_bytes()
    };
    let files = Files::new(
        "other-words",
        &[
            ("es.csv", &lines("texto;etiqueta\n", "la pelicula")),
            // These first lines are records: the label occurs again, the text has several words or is not the shortest,
            // or there are few records.
            ("again.csv", &lines("texto;malo\n", "la pelicula")),
            ("words.csv", &lines("un texto;otro\n", "la pelicula")),
            ("long.csv", &lines("entretenimiento;otro\n", "la obra")),
            ("few.csv", b"texto;etiqueta\nla pelicula;bueno\nla obra;malo\n"),
        ],
    );
    let open = |name: &str, options: &ReadOptions| LabelledTexts::open_with([files.at(name)], options);
    let shown = files.error(open("es.csv", &ReadOptions::new()));
    begins(&shown, "line 1 of file `es.csv`: expected a header with known names, or a record");
    assert!(shown.contains("set `header` (`data.header` in a config) to true"), "{shown}");
    for (header, size) in [(true, 12), (false, 13)] {
        assert_eq!(open("es.csv", &ReadOptions::new().header(header)).unwrap().records().len(), size);
    }
    for (name, size) in [("again.csv", 13), ("words.csv", 13), ("long.csv", 13), ("few.csv", 3)] {
        assert_eq!(open(name, &ReadOptions::new()).unwrap().records().len(), size, "{name}");
    }
}

#[test]
fn tables_of_texts_alone_are_classes() {
    let files = Files::new(
        "table-per-class",
        &[
            ("two/pos.csv", b"text\n\"good, fine\"\n" as &[u8]),
            ("two/neg.csv", b"text\nbad\n\"two\nlines\"\n"),
            ("numbered/part1.csv", b"good\nfine\n"),
            ("numbered/part2.csv", b"bad\ndull\n"),
            ("lines/train.en", b"go\n"),
            ("lines/train.fr", b"va\n"),
            ("four.tsv", b"1\tgo\t7\tva\n2\trun\t8\tcours\n"),
        ],
    );
    let found = LabelledTexts::open(files.at("two")).unwrap();
    assert_eq!(texts(&found), [("bad", "neg"), ("two\nlines", "neg"), ("good, fine", "pos")]);
    let shown = files.error(LabelledTexts::open(files.at("numbered")));
    says(&shown, &["if each file is one class, set `format` (`data.format`) to `file-per-class`"]);
    let set = ReadOptions::new().format(FileFormat::FilePerClass);
    assert_eq!(LabelledTexts::open_with([files.at("numbered")], &set).unwrap().records().len(), 4);
    let shown = files.error(crate::DataPaths::find(files.at("lines")));
    assert!(
        shown.contains("set `data.train` (`--train`) to `lines/*.{en,fr}` if `en` is the source, to `lines/*.{fr,en}` if `fr` is the source"),
        "{shown}"
    );
    let shown = files.error(Pairs::open(files.at("four.tsv")));
    assert!(shown.contains("four.tsv:1: expected text, one tab and text"), "{shown}");
    says(&shown, &["in other columns, set `source` and `target` (`data.text` and `data.label`"]);
    let shown = files.error(Pairs::open(files.at("lines/train.en")));
    assert!(shown.contains("two files whose lines belong together are named by one path"), "{shown}");
}

#[test]
fn encodings_are_read_or_named_and_never_mixed() {
    let line = |i: usize| {
        format!("{} {i}\t{}\n", ["очень хороший фильм", "плохое кино"][i % 2], ["да", "нет"][i % 2])
    };
    let text: String = (0..20).map(line).collect();
    let cyrillic = encoding_rs::WINDOWS_1251.encode(&text).0.into_owned();
    let chinese = encoding_rs::GBK.encode("这部电影非常好看\t好\n不好看的电影\t坏\n").0.into_owned();
    let both: Vec<u8> = [b"caf\xe9 noir\ty\nna\xefve\ty\n".as_slice(), "café\tn\n".as_bytes()].concat();
    // The malformed byte is behind the head of the file; only the head is read to detect the encoding.
    let late = ["plain text\ty\nmore text\tn\n".repeat(60_000).as_bytes(), b"caf\xe9\ty\n"].concat();
    let refuted = [
        "caf\u{e9} noir\ty\nna\u{ef}ve\tn\n".repeat(60_000).chars().map(|c| c as u8).collect(),
        "café\ty\n".as_bytes().to_vec(),
    ]
    .concat();
    let zeros: Vec<u8> = "text\tlabel\nfine\ty\n".encode_utf16().flat_map(u16::to_be_bytes).collect();
    let files = Files::new(
        "encodings",
        &[
            ("ru.tsv", &cyrillic),
            ("zh.tsv", &chinese),
            ("both.tsv", &both),
            ("late.tsv", &late),
            ("refuted.tsv", &refuted),
            ("zeros.tsv", &zeros),
        ],
    );
    let open = |name: &str| LabelledTexts::open(files.at(name));
    for (name, expected) in [
        (
            "ru.tsv",
            "expected UTF-8 or windows-1252, got bytes that are most likely windows-1251: set `encoding`",
        ),
        (
            "zh.tsv",
            "got bytes that are most likely GBK: set `encoding` (`data.encoding` in a config) to `gbk`",
        ),
        ("zeros.tsv", "got UTF-16BE without a byte order mark: set `encoding`"),
        (
            "both.tsv",
            "both.tsv:1: expected UTF-8, got byte 0xe9 at place 3: `data.encoding` in a config sets another",
        ),
    ] {
        let shown = files.error(open(name));
        assert!(shown.contains(expected), "{name}: {shown}");
    }
    let set = ReadOptions::new().encoding("windows-1251".parse().unwrap());
    let found = LabelledTexts::open_with([files.at("ru.tsv")], &set).unwrap();
    assert_eq!(texts(&found)[1], ("плохое кино 1", "нет"));
    let late = LabelledFiles::open(files.at("late.tsv")).unwrap();
    let shown = files.error(late.records().collect::<Result<Vec<_>>>());
    begins(&shown, "late.tsv:120001: expected UTF-8, got byte 0xe9 at place 3: `data.encoding`");
    let refuted = LabelledFiles::open(files.at("refuted.tsv")).unwrap();
    let shown = files.error(refuted.records().collect::<Result<Vec<_>>>());
    assert!(shown.starts_with("refuted.tsv:120001: expected windows-1252, as the first bytes"), "{shown}");
}

#[test]
fn a_guess_of_windows_1252_is_refuted_in_each_format() {
    let line = |i: usize| format!("\u{e9}t\u{e9} {i} \u{e0} c\u{f4}t\u{e9}");
    let mixed = |record: &dyn Fn(usize) -> String, between: &str| -> Vec<u8> {
        let mut bytes = Vec::new();
        for i in 0..40 {
            let record = record(i) + between;
            match i {
                30 => bytes.extend(record.bytes()),
                _ => bytes.extend(record.chars().map(|c| c as u8)),
            }
        }
        bytes
    };
    let list = mixed(&|i| format!("[\"{}\", \"{}\"]", line(i), i % 2), ",\n");
    let list = [b"[".as_slice(), &list, b"[\"a\", \"0\"]]"].concat();
    let tagged = mixed(&|i| format!("{i}\tO\n\u{e9}t\u{e9}\tX\n"), "\n");
    let whole: Vec<u8> = tagged.iter().copied().filter(|&byte| byte < 0xc0 || byte == 0xe9).collect();
    let files = Files::new(
        "refuted",
        &[
            ("list.json", &list),
            ("plain.txt", &mixed(&line, "\n")),
            ("tagged.conll", &tagged),
            ("whole.conll", &whole),
        ],
    );
    let expected =
        "expected windows-1252, as the first bytes beyond ASCII are, got UTF-8: the file mixes both";
    let shown = files.error(LabelledTexts::open(files.at("list.json")));
    assert!(shown.starts_with(&format!("list.json:31: {expected}")), "{shown}");
    let shown = files.error(crate::PlainText::open(files.at("plain.txt")));
    assert!(shown.starts_with(&format!("plain.txt:31: {expected}")), "{shown}");
    let shown = files.error(TaggedTexts::open(&files.0));
    assert!(shown.contains("or a folder with `seq.in` and `seq.out`, got several files"), "{shown}");
    let shown = files.error(TaggedTexts::open(files.at("tagged.conll")));
    assert!(shown.starts_with(&format!("tagged.conll:92: {expected}")), "{shown}");
    let shown = TaggedTexts::open(files.at("whole.conll")).unwrap().read_as().to_string();
    assert!(shown.contains("; encoding windows-1252, since the bytes beyond ASCII are no UTF-8"), "{shown}");
}

#[test]
fn a_later_file_with_its_columns_in_another_order_is_refused() {
    let records = |label_first: bool| -> String {
        let record = |i: usize| {
            let (text, label) = (format!("text number {i}"), ["pos", "neg"][i % 2]);
            if label_first { format!("{label}\t{text}\n") } else { format!("{text}\t{label}\n") }
        };
        (0..20).map(record).collect()
    };
    let (texts, labels) = (records(false), records(true));
    let list = |line: &str| format!("[\"{}\"]\n", line.replace('\t', "\", \""));
    let [text_lists, label_lists] =
        [&texts, &labels].map(|lines| lines.lines().map(list).collect::<String>());
    let files = Files::new(
        "other-order",
        &[
            ("a1.tsv", texts.as_bytes()),
            ("a2.tsv", labels.as_bytes()),
            ("b1.tsv", labels.as_bytes()),
            ("b2.tsv", texts.as_bytes()),
            ("c1.tsv", texts.as_bytes()),
            ("c2.tsv", texts.as_bytes()),
            ("d1.jsonl", text_lists.as_bytes()),
            ("d2.jsonl", label_lists.as_bytes()),
        ],
    );
    for (pattern, (text, label)) in [("a*.tsv", (1, 2)), ("b*.tsv", (2, 1))] {
        let shown = files.error(LabelledTexts::open(files.at(pattern)));
        let expected = format!(
            "expected the text in column {text} and the label in column {label}, as in an earlier file, got values in \
             column {text} that repeat and are shorter than those in column {label}; put the columns of all files in the same order"
        );
        assert!(shown.contains(&expected), "{shown}");
        // Columns that the user has set are not checked.
        let set = ReadOptions::new().text("1").label("2");
        assert_eq!(LabelledTexts::open_with([files.at(pattern)], &set).unwrap().records().len(), 40);
    }
    assert_eq!(LabelledTexts::open(files.at("c*.tsv")).unwrap().records().len(), 40);
    // JSON records that are lists are checked in the same way.
    files.says(
        LabelledTexts::open(files.at("d*.jsonl")),
        &["expected the text in column 1 and the label in column 2, as in an earlier file"],
    );
}

#[test]
fn lines_that_are_no_text_count() {
    let records = "caf\u{e9},x\n".repeat(5);
    let bytes = [records.as_bytes(), b"\xff,c\nd,\"e\n"].concat();
    let files = Files::new("counted", &[("some.csv", &bytes)]);
    let collect = ReadOptions::new().malformed(crate::MalformedLines::Collect);
    let shown = files.error(LabelledTexts::open_with([files.at("some.csv")], &collect));
    assert!(shown.contains("some.csv:6: expected UTF-8"), "{shown}");
    assert!(shown.contains("the cell whose quotation mark is in line 7, got"), "{shown}");
}

#[test]
fn which_column_has_the_labels_is_no_guess() {
    let lines = |line: &dyn Fn(usize) -> String| (0..60).map(line).collect::<String>();
    // In the first file, a few long classes are before many short names. In the second file, utterances and acts both
    // repeat. In the third file, each text has its own class.
    let classes = lines(&|i| format!("{}\tname {i}\n", ["A long name of a class", "Another one"][i % 2]));
    let acts = lines(&|i| format!("{}\tact number {}\n", ["ok", "uh huh", "well"][i % 3], i % 5));
    let unique = lines(&|i| format!("text {i}\tclass {i}\n"));
    let files = Files::new(
        "labels",
        &[("a.tsv", classes.as_bytes()), ("b.tsv", acts.as_bytes()), ("c.tsv", unique.as_bytes())],
    );
    let open = |name: &str| LabelledTexts::open(files.at(name));
    assert_eq!(texts(&open("a.tsv").unwrap())[1], ("name 1", "Another one"));
    assert_eq!(texts(&open("b.tsv").unwrap())[1], ("uh huh", "act number 1"));
    files.says(
        open("c.tsv"),
        &["labels in column 2 of file `c.tsv`: expected values that repeat, got 60 different"],
    );
    let set = ReadOptions::new().text("1").label("2");
    assert_eq!(LabelledTexts::open_with([files.at("c.tsv")], &set).unwrap().records().len(), 60);
}

#[test]
fn pairs_may_have_a_header_of_languages() {
    let below = "go now please,va maintenant\nrun away from it,cours loin\n";
    for (header, named) in [
        ("de,en", true),
        ("en,fr", true),
        ("English words/sentences,French words/sentences", true),
        ("en-US,fr-FR", true),
        ("noisy,clean", true),
        ("source_text,target_text", true),
        ("hello there,salut", false),
    ] {
        let text = format!("{header}\n{below}");
        let files = Files::new("languages", &[("a.csv", text.as_bytes())]);
        let found = Pairs::open(files.at("a.csv")).unwrap();
        assert_eq!(
            (found.records().len(), &*found.records().last().unwrap().source),
            (3 - usize::from(named), "run away from it"),
            "{header}"
        );
    }
    let files = Files::new("unknown", &[("a.csv", format!("Frage,Antwort\n{below}").as_bytes())]);
    let shown = Pairs::open(files.at("a.csv")).unwrap().read_as().to_string();
    assert!(shown.contains("if it is a header, set `header`"), "{shown}");
}

#[test]
fn a_header_above_several_labels_is_doubted() {
    let line = |i: usize| format!("text {i}\tmore\t{}\n", ["a,b", "b", "a,c", "c,b,a"][i % 4]);
    let below: String = (0..40).map(line).collect();
    for (first, doubted) in [("the title\ttwo\ttopics\n", true), ("a text\tmore\tb,d\n", false)] {
        let files = Files::new("doubted", &[("a.tsv", format!("{first}{below}").as_bytes())]);
        let options = ReadOptions::new().texts(["1", "2"]).label("3").label_lists();
        let found = LabelledTexts::open_with([files.at("a.tsv")], &options).unwrap();
        assert_eq!((found.records().len(), found.read_as().doubt().is_some()), (41, doubted), "{first}");
    }
}

#[test]
fn two_files_are_read_line_by_line() {
    let files = Files::new(
        "two",
        &[
            ("t.de", b"Geh.\n\nLauf \"weg\"\tjetzt\n"),
            ("t.en", b"Go.\n\nRun\n"),
            ("short.en", b"Go.\n"),
            ("gap.en", b"Go.\nx\nRun\n"),
        ],
    );
    let open = |name: &str| Pairs::open(files.at(name));
    let found = open("t.{de,en}").unwrap();
    let pairs: Vec<(&str, &str)> = found.records().iter().map(|p| (&*p.source, &*p.target)).collect();
    assert_eq!(pairs, [("Geh.", "Go."), ("Lauf \"weg\"\tjetzt", "Run")]);
    assert!(found.read_as().to_string().contains("target in the lines of"), "{}", found.read_as());
    files.says(
        Pairs::open(format!("{{{},{}}}", files.at("t.de").display(), files.at("short.en").display())),
        &["short.en`: expected 3, as many as", "got 1"],
    );
    files.says(
        Pairs::open(format!("{{{},{}}}", files.at("t.de").display(), files.at("gap.en").display())),
        &["t.de:2: expected a text, since line 2 of"],
    );
}

#[test]
fn parts_of_two_languages_are_found_by_their_endings() {
    let files = Files::new(
        "languages",
        &[
            ("c/train.de-en.de.gz", b"x"),
            ("c/train.de-en.en", b"x"),
            ("c/valid.de", b"x"),
            ("c/valid.en", b"x"),
            ("c/test.{x}.de", b"x"),
            ("c/test.{x}.en", b"x"),
            ("c/train.de-en.fr", b"x"),
            ("c/README.de", b"x"),
            ("c/europarl.de", b"x"),
            ("d/train.de", b"x"),
            ("d/train.de.gz", b"x"),
            ("d/train.en", b"x"),
            ("e/valid.de", b"x"),
            ("e/valid.en", b"x"),
            ("f/train.tsv", b"a\tb\n"),
            ("f/train_notes.de", b"x"),
            ("f/train_notes.en", b"x"),
        ],
    );
    let name = |path: &std::path::Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let parts = crate::DataPaths::find(files.at("c/*.{en,de}")).unwrap();
    assert_eq!(name(&parts.train), "train.de-en.{en,de.gz}");
    assert_eq!(parts.dev.as_deref().map(name).as_deref(), Some("valid.{en,de}"));
    let test = crate::source::paths::two(parts.test.as_deref().unwrap()).unwrap();
    assert_eq!(test.map(|path| name(&path)), ["test.{x}.en", "test.{x}.de"]);
    assert_eq!(parts.left_out, [files.at("c/train.de-en.fr")]);
    let shown = |path: &str| files.error(crate::DataPaths::find(files.at(path)));
    says(&shown("c"), &["`train.de-en.de` and `train.de-en.en` and `train.de-en.fr`"]);
    assert!(shown("d/*.{de,en}").contains("expected one file, got `train.de` and `train.de.gz`"));
    assert!(shown("e/*.{de,en}").contains("expected `train.de` and `train.en`, got none"));
    // A file with the exact name of a part takes precedence over notes beside it.
    assert_eq!(name(&crate::DataPaths::find(files.at("f")).unwrap().train), "train.tsv");
    // Extensions that are language codes, with or without a region, decide which file has the sources.
    let named = Files::new(
        "two-named",
        &[
            ("a.de", b"ja\n"),
            ("a.en", b"yes\n"),
            ("b.de-DE", b"nein\n"),
            ("b.en-US", b"no\n"),
            ("c.fr", b"oui\n"),
            ("c.es", b"si\n"),
        ],
    );
    let like = Pairs::open(named.at("a.{de,en}")).unwrap().read_as().clone();
    let turned = Pairs::open_with([named.at("b.{en-US,de-DE}")], &like).unwrap();
    assert_eq!(turned.records()[0].source, "nein");
    let shown = named.error(Pairs::open_with([named.at("c.{fr,es}")], &like));
    says(&shown, &["expected `de` and `en`, the languages of the training, got `fr` and `es`"]);
}
