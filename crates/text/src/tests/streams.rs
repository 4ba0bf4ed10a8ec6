//! Tests that data sets in files have the same records as data sets in memory.

use std::fmt::Debug;

use super::*;
use crate::{DataSet, Files as InFiles, PlainFiles, Record};

/// Checks that [`InFiles`] has the same records as [`DataSet`], and that both hold out the same records.
fn same<R: Record + PartialEq + Debug>(paths: &[PathBuf], options: &ReadOptions) -> Result<DataSet<R>> {
    let (held, files) = (DataSet::<R>::open_with(paths, options)?, InFiles::<R>::open_with(paths, options)?);
    let records = |opened: &InFiles<R>| opened.records().collect::<Result<Vec<_>>>();
    assert_eq!((&records(&files)?[..], files.name()), (held.records(), held.name()));
    assert_eq!((files.read_as(), records(&files)?.len()), (held.read_as(), held.records().len()));
    let (rest, out) = files.clone().hold_out(3, 7);
    let (held_rest, held_out) = held.clone().hold_out(3, 7);
    assert!(!held_out.records().is_empty() && !held_rest.records().is_empty());
    assert_eq!((&records(&rest)?[..], &records(&out)?[..]), (held_rest.records(), held_out.records()));
    assert_eq!(out.name(), held_out.name());
    let first = held.records()[0].clone();
    let others = held.records().iter().filter(|record| **record != first).count();
    assert_eq!(records(&files.retain(move |record| *record != first))?.len(), others);
    Ok(held)
}

#[test]
fn tagged_texts_and_pairs_in_files_are_those_in_memory() -> Result<()> {
    use std::fmt::Write;
    let (mut columns, mut pairs, mut json) = (String::new(), String::new(), String::new());
    let (mut words, mut tags, mut dictionary) = (String::new(), String::new(), String::new());
    for i in 0..40 {
        let _ = write!(columns, "word{i} B-A\nnext I-A\nlast O\n\n");
        let _ = writeln!(pairs, "source {i}\ttarget {i}");
        let _ = writeln!(
            json,
            "{{\"tokens\": [\"a\", \"b{i}\"], \"tags\": [\"X\", \"Y\"], \"intent\": \"i{}\"}}",
            i % 3
        );
        let _ = writeln!(words, "go on {i}");
        let _ = writeln!(tags, "O B-X I-X");
        let _ = writeln!(dictionary, "WORD{}  W ER1 D", ["A", "B", "C", "D"][i % 4].repeat(i / 4 + 1));
    }
    let iobes: String = (0..20).map(|i| format!("a{i} S-A\nb O\n\nc{i} B-A\nd E-A\n\n")).collect();
    let mut all = vec![
        ("one.conll", columns.as_bytes()),
        ("two.conll", b"x B-B\ny O\n"),
        ("broken.conll", b"a O\nb I-A\n\nc B-A\n\nd B-A\nd O\n\n"),
        ("iobes.conll", iobes.as_bytes()),
        ("pairs.tsv", pairs.as_bytes()),
        ("tagged.jsonl", json.as_bytes()),
        ("all/seq.in", words.as_bytes()),
        ("all/seq.out", tags.as_bytes()),
        ("cmudict.dict", dictionary.as_bytes()),
    ];
    let lines = [("t.de", &pairs), ("t.en", &pairs)];
    all.extend(lines.iter().map(|(name, text)| (*name, text.as_bytes())));
    let files = Files::new("streams", &all);
    let options = ReadOptions::new();
    let tagged = same::<TaggedText>(&[files.at("one.conll"), files.at("two.conll")], &options)?;
    assert_eq!(tagged.records().len(), 41);
    let of_lists = same::<TaggedText>(&[files.at("tagged.jsonl")], &options)?;
    assert!(of_lists.records().iter().all(|text| text.label.is_some()));
    same::<TaggedText>(&[files.at("all")], &options)?;
    // Tags are repaired and translated in files, too.
    let repaired = ReadOptions::new().repair_tags();
    let found = same::<TaggedText>(&[files.at("one.conll"), files.at("broken.conll")], &repaired)?;
    assert_eq!(found.records()[40].tags, ["O", "B-A"]);
    assert!(found.read_as().to_string().contains("tags rewritten to keep IOB2, as conlleval reads them: 1"));
    let like = tagged.read_as().clone().tagging(crate::scheme_of(&[&tagged])?);
    let found = same::<TaggedText>(&[files.at("iobes.conll")], &like)?;
    assert_eq!(found.records()[1].tags, ["B-A", "I-A"]);
    assert!(found.read_as().to_string().contains("tags of IOBES translated to IOB2"), "{}", found.read_as());

    same::<Pair>(&[files.at("pairs.tsv")], &options)?;
    same::<Pair>(&[files.at("t.{de,en}")], &options)?;
    same::<Pair>(&[files.at("cmudict.dict")], &options)?;
    Ok(())
}

#[test]
fn an_error_in_a_file_comes_when_a_pass_meets_it() -> Result<()> {
    let files = Files::new(
        "stream-errors",
        &[
            ("tags.conll", b"a O\nb B-A\n\nc O\nd\n"),
            ("scheme.conll", b"a O\nb B-A\n\nc O\nd I-A\n\ne B-A\nf I-A\n"),
            ("pairs.tsv", b"a\tb\nc\n"),
            ("empty.conll", b"\n"),
        ],
    );
    let last = |records: Box<dyn Iterator<Item = Result<TaggedText>> + Send>| records.last().transpose();
    let tagged = InFiles::<TaggedText>::open(files.at("tags.conll"))?;
    assert!(files.error(last(tagged.records())).starts_with("tags.conll:5: expected 2 columns"));
    let scheme = InFiles::<TaggedText>::open(files.at("scheme.conll"))?;
    let shown = files.error(crate::scheme_of(&[&scheme]));
    begins(&shown, "scheme.conll:5: expected a tag of IOB2, which 2 of 3 sentences keep");
    let pairs = InFiles::<Pair>::open(files.at("pairs.tsv"))?.records().last().transpose();
    assert!(files.error(pairs).starts_with("pairs.tsv:2: "));
    let both = [files.at("scheme.conll"), files.at("empty.conll")];
    let shown = files.error(
        InFiles::<TaggedText>::open_with(&both, &ReadOptions::new())
            .and_then(|opened| last(opened.records())),
    );
    assert!(shown.contains("empty.conll"), "{shown}");
    Ok(())
}

#[test]
fn plain_text_in_pieces_is_the_text_in_memory() -> Result<()> {
    let long: String = (0..120_000).map(|i| format!("line {i} ä \u{1F600}\r\n")).collect();
    let one_line = "wörd ".repeat(400_000);
    let unbroken = "ä".repeat(1_200_000);
    let files = Files::new(
        "plain-pieces",
        &[
            ("a.txt", long.as_bytes()),
            ("b.txt", one_line.as_bytes()),
            ("c.txt", unbroken.as_bytes()),
            ("d.txt", b"\xef\xbb\xbfone\ntwo"),
            ("e.csv", b"text,n\n\"first, text\",1\nsecond,2\n"),
            ("bad.txt", b"good\nb\xffd\n"),
            ("empty.txt", b""),
        ],
    );
    let options = ReadOptions::new();
    for names in [&["a.txt"][..], &["b.txt"], &["c.txt"], &["d.txt", "a.txt", "d.txt"], &["e.csv"]] {
        let paths: Vec<PathBuf> = names.iter().map(|name| files.at(name)).collect();
        let (held, streamed) =
            (PlainText::open_with(&paths, &options)?, PlainFiles::open_with(&paths, &options)?);
        let text = |opened: &PlainFiles| opened.pieces().collect::<Result<String>>();
        assert!(text(&streamed)? == held.text(), "{names:?}");
        assert_eq!((streamed.name(), streamed.read_as()), (held.name(), held.read_as()));
        assert!(
            held.pieces().collect::<String>() == held.text()
                && held.pieces().all(|piece| piece.len() <= 1 << 20)
        );
        for one_in in [0, 1, 3, 50] {
            let ((rest, last), (held_rest, held_last)) =
                (streamed.clone().hold_out_end(one_in)?, held.clone().hold_out_end(one_in));
            assert!(
                text(&rest)? == held_rest.text() && text(&last)? == held_last.text(),
                "{names:?}: {one_in}"
            );
            assert_eq!(last.name(), held_last.name());
        }
    }
    let options = ReadOptions::new().encoding(crate::Encoding::Utf8);
    let pieces =
        |name: &str| PlainFiles::open_with([files.at(name)], &options)?.pieces().collect::<Result<String>>();
    assert!(
        files.error(pieces("bad.txt")).starts_with("bad.txt:2: expected UTF-8"),
        "{}",
        files.error(pieces("bad.txt"))
    );
    assert!(files.error(pieces("empty.txt")).contains("expected text, got an empty file"));
    Ok(())
}

#[test]
fn lines_of_parallel_files_never_shift() -> Result<()> {
    let files = Files::new(
        "parallel-lines",
        &[
            ("bad/seq.in", b"a b\nc \xff d\ne f\n"),
            ("bad/seq.out", b"O O\nO O\nO O\n"),
            ("p.de", b"eins\nzwei \xff\ndrei\n"),
            ("p.en", b"one\ntwo\nthree\n"),
            ("one.tsv", b"a\tb\nc\n"),
            ("two.tsv", b"a\tb\nd\n"),
        ],
    );
    // A malformed line is left out in both files: if it were left out in only one file, later lines would not match.
    for policy in [MalformedLines::Error, MalformedLines::Skip, MalformedLines::Collect] {
        let options = ReadOptions::new().encoding(crate::Encoding::Utf8).malformed(policy);
        let shown = files.error(TaggedTexts::open_with([files.at("bad")], &options));
        assert!(shown.starts_with("bad/seq.in:2: expected UTF-8"), "{shown}");
        let shown = files.error(Pairs::open_with([files.at("p.{de,en}")], &options));
        assert!(shown.starts_with("p.de:2: expected UTF-8"), "{shown}");
    }
    let skip = ReadOptions::new().encoding(crate::Encoding::Utf8).skip_malformed(0.5);
    let tagged = TaggedTexts::open_with([files.at("bad")], &skip)?;
    assert_eq!(tagged.records()[1].words, ["e", "f"]);
    let pairs = Pairs::open_with([files.at("p.{de,en}")], &skip)?;
    assert_eq!((pairs.records().len(), pairs.records()[1].target.as_str()), (2, "three"));
    let report = pairs.read_as().skipped().unwrap();
    assert_eq!((report.skipped.len(), report.records, report.skipped[0].line), (1, 3, 2));
    // The first error is the last item, whatever the other files contain.
    let pairs = InFiles::<Pair>::open(files.at("*.tsv"))?;
    let found: Vec<Result<Pair>> = pairs.records().collect();
    assert!(found.len() == 2 && files.error(found.into_iter().last().unwrap()).starts_with("one.tsv:2:"));
    Ok(())
}
