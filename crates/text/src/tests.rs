//! Tests that open small files of each format by their paths.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use unpadded::Result;
use unpadded::data::{Data, Limits, Loader, Tokenizer};

use crate::{LabelledFiles, LabelledTexts, MalformedLines, Pair, Pairs, TaggedText, TaggedTexts, *};

mod hostile;
mod json;
mod labels;
mod malformed;
mod questions;
mod several;
mod streams;
mod tables;

/// Files in a temporary folder.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, files: &[(&str, &[u8])]) -> Self {
        let folder = std::env::temp_dir().join(format!("unpadded-open-{name}-{}", std::process::id()));
        for (name, text) in files {
            let path = folder.join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The message of an error, without the path of the folder.
    fn error<T>(&self, outcome: Result<T>) -> String {
        format!("{:#}", outcome.err().unwrap()).replace(&format!("{}/", self.0.display()), "")
    }

    /// Checks that the message of an error has all of these parts.
    #[track_caller]
    fn says<T>(&self, outcome: Result<T>, parts: &[&str]) {
        says(&self.error(outcome), parts);
    }
}

/// Checks that a text has all of these parts.
#[track_caller]
fn says(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
}

/// Checks that a text begins with `start`.
#[track_caller]
fn begins(text: &str, start: &str) {
    assert!(text.starts_with(start), "{start} in {text}");
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn open(files: &Files, name: &str, options: &ReadOptions) -> Result<LabelledTexts> {
    LabelledTexts::open_with([files.at(name)], options)
}

fn texts(found: &LabelledTexts) -> Vec<(&str, &str)> {
    found.records().iter().map(|one| (one.text.as_str(), one.label.as_str())).collect()
}

#[test]
fn columns_are_found_by_name_number_and_content() {
    let files = Files::new(
        "columns",
        &[
            ("a.csv", b"id,Review,Label\n1,\"Fine, but dull\",no\n2,\"Two\nlines\",yes\n"),
            ("first.tsv", b"pos\tgood film\nneg\tdull film\npos\ta fine one\n"),
            ("second.txt", b"good film\tpos\ndull film\tneg\n"),
            ("glue.tsv", b"sentence\tlabel\nhe said \"no\tpos\nwell\tneg\n"),
            ("odd.csv", b"stars;opinion;who\n3;good;me\n1;bad;you\n"),
            ("none.csv", b"3,good,me\n1,bad,you\n"),
            ("semi.csv", b"good;3\nbad;1\n"),
        ],
    );
    let open = |name: &str| LabelledTexts::open(files.at(name)).unwrap();
    let found = open("a.csv");
    assert_eq!(texts(&found), [("Fine, but dull", "no"), ("Two\nlines", "yes")]);
    let expected = ReadOptions::new().format(FileFormat::Csv).text("Review").label("Label");
    let as_set = ReadOptions { as_set: None, notes: Vec::new(), ..found.read_as().clone() };
    assert_eq!(ReadOptions { found: Box::default(), ..as_set }, expected);
    let shown = "`csv`, text in `Review`, label in `Label`; line 1 is a header, since it has known names; column 1 (`id`) is not read";
    assert_eq!(found.read_as().to_string(), shown);
    assert_eq!(texts(&open("first.tsv"))[0], ("good film", "pos"));
    assert_eq!(open("first.tsv").read_as().text, ["2"]);
    assert_eq!(texts(&open("second.txt"))[1], ("dull film", "neg"));
    assert_eq!(texts(&open("glue.tsv")), [("he said \"no", "pos"), ("well", "neg")]);

    let options = ReadOptions::new().separator(';');
    let with = |name: &str, options: &ReadOptions| LabelledTexts::open_with([files.at(name)], options);
    let named = options.clone().text("opinion").label("stars");
    assert_eq!(texts(&with("odd.csv", &named).unwrap()), [("good", "3"), ("bad", "1")]);
    let numbered = ReadOptions::new().text("2").label("1");
    assert_eq!(texts(&with("none.csv", &numbered).unwrap()), [("good", "3"), ("bad", "1")]);
    assert_eq!(texts(&with("semi.csv", &options).unwrap())[1], ("bad", "1"));

    let shown = files.error(with("odd.csv", &options.clone().text("opinions").label("stars")));
    let expected = "column `opinions` of file `odd.csv`, the text: expected one of `stars`, `opinion`, `who`, got `opinions`; \
                    the nearest is `opinion`; read as `csv`, since its name ends with `.csv`; `format` (`data.format` in a config) overrides it";
    assert_eq!(shown, expected);
    let shown = files.error(LabelledTexts::open(files.at("none.csv")));
    begins(&shown, "column of the text in file `none.csv`: expected a column called `text`, `sentence`");
    assert!(shown.contains("got 3 columns without known names; line 1 is `3`, `good`, `me`"), "{shown}");
    assert!(shown.contains("set `text` (`data.text` in a config) to the name"), "{shown}");
    files.says(
        with("none.csv", &ReadOptions::new().format(FileFormat::Columns)),
        &["expected one of `tsv`, `csv`, `jsonl`, `parquet`, `trees`, `fasttext`, got `columns`"],
    );
}

#[test]
fn malformed_records_have_their_line_and_the_guess() {
    let files = Files::new(
        "malformed",
        &[
            ("a.tsv", b"good film\tpos\ndull film neg\nbad\tneg\n"),
            ("b.csv", b"text,label\ngood,pos\n,neg\n"),
            ("c.jsonl", b"{\"text\": \"a\", \"label\": 1}\n{\"text\": 3.5, \"label\": null}\n"),
            ("d.jsonl", b"[1,\n2]\n"),
            ("e.csv", b"text,label\ngood,pos\nfine,\n"),
            ("f.jsonl", b"{\"text\": \"a\", \"labels\": [\"b\"]}\n"),
        ],
    );
    let shown = |name: &str| files.error(LabelledTexts::open(files.at(name)));
    let expected = "e.csv:3: expected something in column `label`, got nothing in \"fine | \": fill the cell";
    assert!(shown("e.csv").starts_with(expected), "{}", shown("e.csv"));
    assert!(shown("f.jsonl").contains("got a list in the field `labels`; `label`"), "{}", shown("f.jsonl"));
    let expected = "a.tsv:2: expected 2 columns, as in most of the first records, got 1 in \"dull film neg\"; \
                    read as `tsv`, since its name ends with `.tsv`; `format` (`data.format` in a config) overrides it";
    assert_eq!(shown("a.tsv"), expected);
    begins(&shown("b.csv"), "b.csv:3: expected something in column `text`, got nothing in");
    begins(&shown("c.jsonl"), "c.jsonl:2: expected a string in the field `label`, got null");
    begins(&shown("d.jsonl"), "d.jsonl:1: expected an object, or a list of its fields, got a number");
    let skip = ReadOptions::new().malformed(MalformedLines::Skip);
    assert_eq!(LabelledTexts::open_with([files.at("a.tsv")], &skip).unwrap().records().len(), 2);
}

#[test]
fn json_has_names_and_paths() {
    let files = Files::new(
        "json",
        &[
            ("a.jsonl", b"{\"id\": 1, \"review\": {\"text\": \"good\", \"by\": \"me\"}, \"label\": 1}\n\n{\"review\": {\"text\": \"bad\"}, \"label\": false}\n"),
            ("b.json", b"{\"tokens\": [\"Go\", \"home\"], \"ner_tags\": [\"O\", \"B-X\"], \"intent\": \"go\"}\n"),
            ("c.json", b"{\"tokens\": [\"Go\"], \"tags\": [0.5]}\n"),
            ("d.txt", b"{\"source\": \"go\", \"target\": \"va\"}\n"),
        ],
    );
    let options = ReadOptions::new().text("review.text");
    let found = LabelledTexts::open_with([files.at("a.jsonl")], &options).unwrap();
    assert_eq!(texts(&found), [("good", "1"), ("bad", "false")]);
    let shown = files.error(LabelledTexts::open(files.at("a.jsonl")));
    assert!(shown.contains("got the fields `id`, `review.text`, `review.by`, `label`"), "{shown}");
    let shown =
        files.error(LabelledTexts::open_with([files.at("a.jsonl")], &ReadOptions::new().text("review.txt")));
    assert!(shown.contains("the nearest is `review.text`"), "{shown}");

    let tagged = TaggedTexts::open(files.at("b.json")).unwrap();
    let one = &tagged.records()[0];
    assert_eq!((&*one.words[1], &*one.tags[1], one.label.as_deref()), ("home", "B-X", Some("go")));
    let shown = files.error(TaggedTexts::open(files.at("c.json")));
    begins(
        &shown,
        "c.json:1: expected a list of strings or whole numbers in the field `tags`, got a list with a number",
    );
    let pairs = Pairs::open(files.at("d.txt")).unwrap();
    assert_eq!((&*pairs.records()[0].source, &*pairs.records()[0].target), ("go", "va"));
    assert_eq!(PlainText::open_with([files.at("a.jsonl")], &options).unwrap().text(), "good\nbad\n");
}

#[test]
fn several_files_are_one_data_set() {
    let files = Files::new(
        "several",
        &[
            ("part-1.tsv", b"b\ty\n" as &[u8]),
            ("part-0.tsv", b"a\tx\n"),
            ("mr/rt.pos", b"caf\xe9\nna\xefve\n"),
            ("mr/rt.neg", b"dull\n"),
            ("mr/README", b"about\n"),
            ("docs/pos/1.txt", b"one\ntwo\n"),
            ("docs/neg/1.txt", b"three\n"),
            ("parts/train.tsv", b"a\tx\nb\ty\n"),
            ("parts/dev.tsv", b"a\tx\n"),
            ("broken.txt", b"caf\xc3\xa9\tx\nna\xefve caf\xc3\xa9\ty\n"),
        ],
    );
    let all = LabelledTexts::open(files.at("part-*.tsv")).unwrap();
    assert_eq!(texts(&all), [("a", "x"), ("b", "y")]);
    let listed = [files.at("part-1.tsv"), files.at("part-0.tsv")];
    assert_eq!(
        texts(&LabelledTexts::open_with(listed, &ReadOptions::new()).unwrap()),
        [("b", "y"), ("a", "x")]
    );
    let mr = LabelledTexts::open(files.at("mr")).unwrap();
    assert_eq!(texts(&mr), [("dull", "neg"), ("café", "pos"), ("naïve", "pos")]);
    let docs = LabelledTexts::open(files.at("docs")).unwrap();
    assert_eq!(texts(&docs), [("three\n", "neg"), ("one\ntwo\n", "pos")]);
    assert!(files.error(LabelledTexts::open(files.at("parts"))).contains("expected the files of one part"));
    let parts = DataPaths::find(files.at("parts")).unwrap();
    assert_eq!((parts.train, parts.dev), (files.at("parts/train.tsv"), Some(files.at("parts/dev.tsv"))));
    assert!(
        files.error(LabelledTexts::open(files.at("no-*.tsv"))).contains("expected at least one, got none")
    );
    // A damaged UTF-8 file is not read as Windows-1252.
    let shown = files.error(LabelledTexts::open(files.at("broken.txt")));
    assert!(shown.starts_with("broken.txt:2: expected UTF-8"), "{shown}");
}

#[test]
fn a_file_of_another_format_is_read_as_its_own() {
    let files = Files::new(
        "formats",
        &[
            ("all/a.tsv", b"stars\topinion\tlabel\n3\tgood\tyes\n1\tbad\tno\n"),
            ("all/b.jsonl", b"{\"text\": \"fine\", \"label\": \"yes\"}\n"),
            ("more.tsv", b"stars\topinion\tlabel\n2\tso so\tno\n"),
            ("twice.csv", b"text,label,text\na,b,c\n"),
            ("utf16.tsv", b"\xff\xfeg\0o\0o\0d\0\t\0y\0\n\0"),
        ],
    );
    let options = ReadOptions::new().text("opinion");
    let train = LabelledTexts::open_with([files.at("all/a.tsv")], &options).unwrap();
    // The file's own format counts. The column was set, and this file has no column of that name.
    let shown = files.error(LabelledTexts::open_with([files.at("all/b.jsonl")], train.read_as()));
    assert!(shown.contains("b.jsonl") && shown.contains("`opinion`"), "{shown}");
    let more = LabelledTexts::open_with([files.at("more.tsv")], train.read_as()).unwrap();
    assert_eq!(texts(&more), [("so so", "no")]);
    let train = LabelledTexts::open_with([files.at("all/a.tsv")], &ReadOptions::new().text("2")).unwrap();
    assert_eq!(texts(&train), [("good", "yes"), ("bad", "no")]);
    let found = LabelledTexts::open_with([files.at("twice.csv")], &ReadOptions::new());
    files.says(found, &["column `text`", "expected one column of that name, got 2"]);
    let numbered = ReadOptions::new().text("3").label("2").header(true);
    let found = LabelledTexts::open_with([files.at("twice.csv")], &numbered).unwrap();
    assert_eq!(texts(&found), [("c", "b")]);
    let marked = LabelledTexts::open(files.at("utf16.tsv")).unwrap();
    assert_eq!(texts(&marked), [("good", "y")]);
    assert!(marked.read_as().to_string().contains("encoding UTF-16LE, as the byte order mark says"));
}

#[test]
fn formats_are_mixed_by_the_endings_of_names() {
    let files = Files::new(
        "mixed",
        &[
            ("all/a.tsv", b"stars\ttext\tlabel\n3\tgood\tyes\n1\tbad\tno\n"),
            ("all/b.jsonl", b"{\"sentence\": \"fine\", \"label\": \"yes\"}\n"),
            ("words.jsonl", b"{\"tokens\": [\"a\"], \"tags\": [\"B\"]}\n"),
            ("words.conll", b"a B\nb I\n\n"),
            ("pairs.tsv", b"one\tun\ntwo\tdeux\n"),
            ("pairs.jsonl", b"{\"source\": \"three\", \"target\": \"trois\"}\n"),
        ],
    );
    let all = LabelledTexts::open(files.at("all")).unwrap();
    assert_eq!(texts(&all), [("good", "yes"), ("bad", "no"), ("fine", "yes")]);
    let [tsv, json] = ["all/a.tsv", "all/b.jsonl"].map(|name| files.at(name));
    let like = LabelledTexts::open(&tsv).unwrap().read_as().clone();
    assert_eq!(texts(&LabelledTexts::open_with([&json], &like).unwrap()), [("fine", "yes")]);
    // Conversely, the options that were detected in a JSON file can be used to read a table.
    let like = LabelledTexts::open(&json).unwrap().read_as().clone();
    assert_eq!(LabelledTexts::open_with([&tsv], &like).unwrap().records().len(), 2);
    for [one, other] in [["words.jsonl", "words.conll"], ["words.conll", "words.jsonl"]] {
        let like = TaggedTexts::open(files.at(one)).unwrap().read_as().clone();
        assert_eq!(TaggedTexts::open_with([files.at(other)], &like).unwrap().records().len(), 1);
    }
    for [one, other] in [["pairs.tsv", "pairs.jsonl"], ["pairs.jsonl", "pairs.tsv"]] {
        let like = Pairs::open(files.at(one)).unwrap().read_as().clone();
        assert!(!Pairs::open_with([files.at(other)], &like).unwrap().records().is_empty());
    }
}

#[test]
fn a_stream_is_what_is_read_at_once() -> Result<()> {
    let lines: String = (0..500).map(|i| format!("word{} and word{}\t{}\n", i % 50, i % 7, i % 3)).collect();
    let files = Files::new("stream", &[("a.tsv", lines.as_bytes()), ("b.tsv", b"word1 and word2\t0\n")]);
    let (paths, options, tokenizer) = ([files.at("*.tsv")], ReadOptions::new(), Tokenizer::words());
    let whole = LabelledTexts::open_with(&paths, &options)?;
    let (words, labels) = (whole.vocabulary(&tokenizer, &Limits::default())?, whole.labels()?);
    let in_files = LabelledFiles::open_with(&paths, &options)?;
    let texts = |texts_of: &LabelledFiles| texts_of.records().collect::<Result<Vec<_>>>();
    assert_eq!(texts(&in_files)?, whole.records());
    let limits = Limits::default().min_count(20);
    assert_eq!(in_files.vocabulary(&tokenizer, &limits)?, whole.vocabulary(&tokenizer, &limits)?);
    assert_eq!((in_files.labels()?, in_files.read_as()), (whole.labels()?, whole.read_as()));
    // The texts in files and the texts in memory are held out alike, also in a second hold-out of the remaining texts.
    let (rest, held) = in_files.clone().hold_out(3, 5);
    let (whole_rest, whole_held) = whole.clone().hold_out(3, 5);
    assert_eq!((texts(&rest)?, texts(&held)?), (whole_rest.records().into(), whole_held.records().into()));
    assert_eq!(held.name(), whole_held.name());
    let (rest_files, whole_rest_texts) = (rest.clone(), whole_rest.records().to_vec());
    let (again, whole_again) = (rest.hold_out(2, 6), whole_rest.hold_out(2, 6));
    assert_eq!(texts(&again.0)?, whole_again.0.records());
    assert_eq!(texts(&again.1)?, whole_again.1.records());

    let feeds = ["words", "label"];
    let read = |data: &Loader, epoch, from| -> Result<Vec<_>> {
        let batches = data.batches(epoch, from)?.map(|batch| batch.map(|batch| batch.numbers));
        batches.collect()
    };
    let in_memory = whole.loader(feeds, &tokenizer, (&words, &labels))?;
    let streamed = || in_files.loader(feeds, &tokenizer, (&words, &labels));
    assert_eq!(read(&streamed()?, None, 0)?, read(&in_memory, None, 0)?);
    assert_eq!(streamed()?.batch_count(), in_memory.batch_count());
    // A hold-out by a pass passes all texts to a visitor; its parts are not read again before an epoch begins.
    let mut seen = (Vec::new(), Vec::new());
    let rule = Arc::new(|text: &LabelledText| is_held(3, text.held_out_key(5)));
    let parts = in_files.clone().hold_out_by_pass(rule, &mut |text: &LabelledText, held| match held {
        true => seen.1.push(text.clone()),
        false => seen.0.push(text.clone()),
    })?;
    assert_eq!((&seen.0[..], &seen.1[..]), (whole_rest_texts.as_slice(), whole_held.records()));
    for (passed, plain) in [(&parts.0, &rest_files), (&parts.1, &held)] {
        let texts_of = |files: &LabelledFiles| files.loader(feeds, &tokenizer, (&words, &labels));
        assert_eq!(texts_of(passed)?.fingerprint(), texts_of(plain)?.fingerprint());
        assert_eq!(read(&texts_of(passed)?, None, 0)?, read(&texts_of(plain)?, None, 0)?);
    }
    let shuffled = streamed()?.shuffle(7).buffer(64);
    let (first, second) = (read(&shuffled, Some(0), 0)?, read(&shuffled, Some(1), 0)?);
    assert_ne!(first, second);
    let mut numbers = first.concat();
    assert!(!numbers.is_sorted());
    numbers.sort_unstable();
    assert!(numbers.into_iter().eq(0..501), "each once an epoch");
    for from in [1, 5, 15] {
        assert_eq!(read(&shuffled, Some(0), from)?, first[from as usize..]);
    }
    assert_eq!(shuffled.fingerprint(), streamed()?.shuffle(7).buffer(64).fingerprint());

    // A late malformed line is reported before an epoch begins, and an empty held-out part cannot be loaded.
    fs::write(files.at("b.tsv"), lines.clone() + "no label\n").unwrap();
    let in_files = LabelledFiles::open_with(&paths, &options)?;
    let streamed = || in_files.loader(feeds, &tokenizer, (&words, &labels));
    for shown in [
        in_files.labels().map(drop),
        in_files.vocabulary(&tokenizer, &limits).map(drop),
        streamed().map(drop),
    ] {
        assert!(files.error(shown).starts_with("b.tsv:501: "));
    }
    fs::write(files.at("b.tsv"), "word1\t7\n").unwrap();
    let shown = files.error(streamed());
    assert!(shown.contains("expected the file unchanged since it was first opened, got 8 bytes"), "{shown}");
    let in_files = LabelledFiles::open_with(&paths, &options)?;
    let shown = files.error(in_files.loader(feeds, &tokenizer, (&words, &labels)));
    begins(&shown, "token: expected one of `0`, `1`, `2`, got `7`; the label of \"word1\" in");
    let shown = files.error(in_files.clone().hold_out(0, 1).1.loader(feeds, &tokenizer, (&words, &labels)));
    assert!(shown.contains(", held out`: expected at least one, got none"), "{shown}");
    Ok(())
}

#[test]
fn rows_of_numbers_are_no_texts() {
    let files = Files::new("rows", &[("a9a", b"-1 3:1 11:1 \n+1 5:0.5 7:1\n")]);
    files.says(LabelledTexts::open(files.at("a9a")), &["file `a9a`: expected labelled texts", "LIBSVM"]);
}

/// Checks that the first record is a header only if it has known names for all wanted columns, or a text above a column
/// of numbers.
#[test]
fn headers_are_told_from_records() {
    let known = "line 1 is a header, since it has known names";
    for (name, text, records, first, note) in [
        ("a.csv", "text,label\nfine,good\ndull,bad\n", 2, ("fine", "good"), known),
        ("b.tsv", "id\tTitle\tTopic\nx\tA day\tsun\ny\tA night\tmoon\n", 2, ("A day", "sun"), known),
        (
            "c.tsv",
            "Who is it?\tquestion\nIt is me.\treply\nWhere is it?\tquestion\n",
            3,
            ("Who is it?", "question"),
            "no header",
        ),
        (
            "d.tsv",
            "name\tlanguage\nword\tlanguage\nstone\tthing\n",
            3,
            ("name", "language"),
            "no header: line 1 repeats below",
        ),
        (
            "e.csv",
            "opinion,points\nfine,3\ndull,1\n",
            2,
            ("fine", "3"),
            "line 1 is a header, since all below `points` are numbers",
        ),
        ("f.csv", "opinion,points\nfine,3\ndull,few\n", 3, ("opinion", "points"), "no header"),
        ("g.csv", "fine,N/A\nso so,3\ndull,1\n", 3, ("fine", "N/A"), "no header"),
        (
            "h.csv",
            "opinion,label\nfine,good\ndull,bad\n",
            3,
            ("opinion", "label"),
            "line 1 (`opinion`, `label`) is read as a record; if it is a header",
        ),
    ] {
        let files = Files::new(&format!("header-{name}"), &[(name, text.as_bytes())]);
        let found = LabelledTexts::open(files.at(name)).unwrap();
        assert_eq!((found.records().len(), texts(&found)[0]), (records, first), "{name}");
        let shown = found.read_as().to_string();
        assert!(shown.contains(note), "{name}: {shown}");
    }
    let files = Files::new(
        "header-set",
        &[
            ("a.csv", b"text,label\nfine,good\ndull,bad\n" as &[u8]),
            ("quoted.csv", b"\"3\",\"A day\",\"It was fine.\"\n\"1\",\"A night\",\"It was dull.\"\n"),
            ("to.tsv", "to\tà\nword\tmot\nstone\tpierre\n".as_bytes()),
            ("en.tsv", b"en\tfr\nword\tmot\nstone\tpierre\n"),
            ("dev.csv", b"3,so so\n1,dull\n"),
            ("train.csv", b"stars,opinion\n3,fine\n1,bad\n1,worse\n"),
        ],
    );
    let with = |name: &str, options: ReadOptions| LabelledTexts::open_with([files.at(name)], &options);
    assert_eq!(with("a.csv", ReadOptions::new().header(false)).unwrap().records().len(), 3);
    // A number is read as a position if possible, else as a name. A number does not show that there is a header.
    let numbered = with("quoted.csv", ReadOptions::new().text("3").label("1")).unwrap();
    assert_eq!(texts(&numbered), [("It was fine.", "3"), ("It was dull.", "1")]);
    let named = with("quoted.csv", ReadOptions::new().text("opinion").label("1"));
    assert!(files.error(named).contains("column `opinion` of file `quoted.csv`"));
    assert_eq!(Pairs::open(files.at("to.tsv")).unwrap().records().len(), 3);
    assert_eq!(Pairs::open(files.at("en.tsv")).unwrap().records().len(), 2);
    // Another part of the data set has a header only if its own first line looks like a header.
    let train = with("train.csv", ReadOptions::new().text("2").label("1")).unwrap();
    assert_eq!(train.records().len(), 3);
    let dev = LabelledTexts::open_with([files.at("dev.csv")], train.read_as());
    assert!(files.error(dev).contains("column `opinion` of file `dev.csv`"));
}

#[test]
fn separators_are_those_that_give_equal_columns() {
    for (name, text, first, note) in [
        ("a.csv", "text;label\nfine, really;good\ndull;bad\n", ("fine, really", "good"), "separated by `;`"),
        (
            "b.csv",
            "nice, film;good\nbad, film;bad\nfine, book;good\n",
            ("nice, film", "good"),
            "separated by `;`",
        ),
        (
            "c.csv",
            "text\tlabel\nfine, I say\tgood\n\"a\ttab\"\tbad\n",
            ("fine, I say", "good"),
            "separated by tabs",
        ),
        ("d.csv", "text|label\nfine|good\ndull|bad\n", ("fine", "good"), "separated by `|`"),
        (
            "e.csv",
            "sep=;\ntext;label\n1,5;good\n2,5;bad\n",
            ("1,5", "good"),
            "separated by `;`, as line 1 says; line 2 is a header",
        ),
        (
            "f.csv",
            "text,label\n\"fine; so; so\",good\n\"dull; very\",bad\n",
            ("fine; so; so", "good"),
            "line 1 is a header",
        ),
        ("g.txt", "fine; really;good\ndull; dark;bad\nso; so;bad\n", ("", ""), "text"),
        (
            "h.csv",
            "fine,a;b\ndull,c;d\nso so,a;c\n",
            ("fine", "a;b"),
            "separated by `,`; `;` would give equal columns, too",
        ),
    ] {
        let files = Files::new(&format!("separator-{name}"), &[(name, text.as_bytes())]);
        let found = LabelledTexts::open(files.at(name));
        if first.0.is_empty() {
            let shown = files.error(found);
            assert!(shown.contains(note), "{name}: {shown}");
            continue;
        }
        let found = found.unwrap();
        assert_eq!(texts(&found)[0], first, "{name}");
        let shown = found.read_as().to_string();
        assert!(shown.contains(note), "{name}: {shown}");
    }
}

#[test]
fn class_folders_are_read_beside_other_files() {
    let files = Files::new(
        "classes",
        &[
            ("films/pos/1.txt", b"fine" as &[u8]),
            ("films/neg/1.txt", b"dull"),
            ("films/unsup/1.txt", b"who knows"),
            ("films/bags.feat", b"1 3:1 4:2\n"),
            ("films/urls.txt", b"http://example.org\n"),
            ("mixed/a/1.txt", b"x"),
            ("mixed/b/1.txt", b"y"),
            ("mixed/one.csv", b"text,label\n"),
            ("mixed/two.tsv", b"text\tlabel\n"),
        ],
    );
    let found = LabelledTexts::open(files.at("films")).unwrap();
    assert_eq!(texts(&found), [("dull", "neg"), ("fine", "pos")]);
    let shown = found.read_as().to_string();
    let expected = "`folder-per-class`; left out, since they are beside the class folders: `bags.feat`, `urls.txt`; \
                    left out, since texts in it have no label: `unsup`";
    assert_eq!(shown, expected);
    files.says(LabelledTexts::open(files.at("mixed")), &["`one.csv`, `two.tsv` beside the folders `a`, `b`"]);
}

#[test]
fn lines_of_fasttext_have_their_label_before_them() {
    let files = Files::new(
        "fasttext",
        &[
            ("a.txt", "__label__good A fine film.\n\n__label__bad\tDull, and  long\n".as_bytes()),
            ("b", "__label__très-bon Bien !\n".as_bytes()),
            ("several.ft", b"__label__good fine\n__label__bad __label__long __label__bad dull __label__x\n"),
            ("late.txt", b"__label__good fine\nso dull __label__bad\n"),
            ("empty.txt", b"__label__good fine\n__label__bad  \n"),
        ],
    );
    let found = LabelledTexts::open(files.at("a.txt")).unwrap();
    assert_eq!(texts(&found), [("A fine film.", "good"), ("Dull, and  long", "bad")]);
    assert_eq!(found.read_as().to_string(), "`fasttext`");
    assert_eq!(texts(&LabelledTexts::open(files.at("b")).unwrap()), [("Bien !", "très-bon")]);
    let shown = |name: &str| {
        let options = ReadOptions::new().format(FileFormat::FastText);
        files.error(LabelledTexts::open_with([files.at(name)], &options))
    };
    let found = LabelledTexts::open(files.at("several.ft")).unwrap();
    let once_each = [("fine", "good"), ("dull __label__x", "bad"), ("dull __label__x", "long")];
    assert_eq!(texts(&found), once_each);
    let expected = "`fasttext`; 1 text with several labels is read once with each";
    assert!(found.read_as().to_string().starts_with(expected));
    let lists = ReadOptions::new().label_lists();
    let found = LabelledTexts::open_with([files.at("several.ft")], &lists).unwrap();
    assert_eq!(texts(&found), [("fine", "good\u{1f}"), ("dull __label__x", "bad\u{1f}long\u{1f}")]);
    assert!(shown("late.txt").starts_with("late.txt:2: expected a label at the start of the line"));
    assert!(shown("empty.txt").starts_with("empty.txt:2: expected a text behind the label, got none"));
}

#[test]
fn pages_may_be_texts_and_are_no_data_sets() {
    let page = b"<!DOCTYPE html>\n<p>Good.</p>\n" as &[u8];
    let files = Files::new(
        "pages",
        &[
            ("pages/neg/a.html", page),
            ("pages/pos/b.HTM", page),
            ("mixed/neg/a.txt", page),
            ("mixed/pos/b.txt", b"Fine."),
            ("text.xml", b"<?xml version='1.0'?>\n<p>Good.</p>\n"),
            ("data.csv", page),
        ],
    );
    let found = LabelledTexts::open(files.at("pages")).unwrap();
    assert_eq!(found.records().len(), 2);
    assert_eq!((&*found.records()[0].label, found.records()[0].text.as_bytes()), ("neg", page));
    let shown = files.error(LabelledTexts::open(files.at("mixed")));
    begins(&shown, "file `mixed/neg/a.txt`: expected text, plain or in gzip or zip, got an HTML");
    assert!(shown.contains("set the format (`data.format`) to `folder-per-class`"), "{shown}");
    let set = ReadOptions::new().format(FileFormat::FolderPerClass);
    assert_eq!(LabelledTexts::open_with([files.at("mixed")], &set).unwrap().records().len(), 2);
    assert!(PlainText::open(files.at("text.xml")).unwrap().text().starts_with("<?xml"));
    let shown = files.error(PlainText::open(files.at("data.csv")));
    assert!(shown.contains("got an HTML page in the place of the file"), "{shown}");
    let set = ReadOptions::new().format(FileFormat::Plain);
    assert!(PlainText::open_with([files.at("data.csv")], &set).unwrap().text().starts_with("<!DOC"));
    assert!(files.error(LabelledTexts::open(files.at("data.csv"))).contains("got an HTML page"));
}
