//! Columns of small files.

use super::*;

fn file(name: &str, text: &'static str) -> TextFile {
    TextFile::embedded(name, text)
}

/// The description of the columns, and the sentences: first line, and words with their tags.
fn read(name: &str, text: &'static str, tags: Option<&str>) -> Result<(String, Vec<String>)> {
    let file = file(name, text);
    let columns = Columns::of(&file, None, tags, None, None)?;
    let shown = |one: Sentence| {
        let pairs = one.words.iter().zip(&one.tags).map(|(word, tag)| format!("{word}/{tag}"));
        format!("{}: {}", one.line, pairs.collect::<Vec<_>>().join(" "))
    };
    Ok((columns.to_string(), columns.sentences(&file)?.into_iter().map(shown).collect()))
}

#[track_caller]
fn refused(text: &'static str, expected: &str) {
    let error = format!("{:#}", read("c.conll", text, None).unwrap_err());
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn tabs_alone_separate_where_there_are_tabs() {
    let (said, texts) = read("c.conll", "San Marino\tB-LOC\nlies\tO\n20\u{a0}000\tO\t\n", None).unwrap();
    assert_eq!(said, "words in column 1, tags in column 2, 2 columns between tabs");
    assert_eq!(texts, ["1: San Marino/B-LOC lies/O 20\u{a0}000/O"]);
    let text = "a\u{a0}b X O\n c\u{2028}d  Y\tB-A \n\ne\u{3000} Z O\r\n";
    let (said, texts) = read("c.conll", text, None).unwrap();
    assert_eq!(said, "words in column 1, tags in column 3, 3 columns between spaces");
    assert_eq!(texts, ["1: a\u{a0}b/O c\u{2028}d/B-A", "4: e\u{3000}/O"]);
}

#[test]
fn the_line_with_other_columns_is_the_wrong_one() {
    refused("New York B-LOC\nis O\nnice O\n", "c.conll:1: expected 2 columns, got 3 in \"New York B-LOC\"");
    refused("is O\nnice\n", "c.conll:2: expected 2 columns, got 1 in \"nice\"");
    refused("is\tO\nso\tO\nnice\n", "c.conll:3: expected 2 columns between tabs, got 1 in \"nice\"");
    refused("is\t\tO\nso\tX\tO\n", "c.conll:1: expected 3 columns between tabs, got an empty one in");
}

#[test]
fn runs_of_tabs_align_columns_where_no_cell_is_empty() {
    let text = "Antananarivo\tNNP\tB-LOC\nis\t\t\tVBZ\tO\n\nso\t\t\tRB\tO\n";
    let (said, texts) = read("c.conll", text, None).unwrap();
    assert_eq!(said, "words in column 1, tags in column 3, 3 columns between runs of tabs");
    assert_eq!(texts, ["1: Antananarivo/B-LOC is/O", "4: so/O"]);
    assert_eq!(read("c.conll", "is\t\tO\nso\t\tO\n", None).unwrap().1, ["1: is/O so/O"]);
    let missing = "a\tN\tO\n".repeat(20) + "b\t\tN\tO\n\tN\tO\tX\n";
    refused(missing.leak(), "c.conll:22: expected 3 columns between runs of tabs, got an empty one in");
    // As many tabs in each line: a value is missing.
    refused(
        "is\tV\t\tO\nso\t\tX\tO\n",
        "c.conll:1: expected 4 columns between tabs, got an empty one in \"is\\tV\\t\\tO\"",
    );
    let aligned = "1\ta\t\ta\tX\t_\t_\t0\troot\t_\t_\n2\tb\t\tb\tX\t_\t_\t1\tdep\t_\t_\n";
    refused(aligned, "c.conll:1: expected 10 columns between tabs, as CoNLL-U has, got an empty one in");
}

#[test]
fn a_hash_among_comments_is_kept_or_refused() {
    let text = "# about one text\n# O\na B-X\n\n# about another text\nb O\n";
    assert_eq!(read("c", text, None).unwrap().1, ["2: #/O a/B-X", "6: b/O"]);
    refused(
        "# about one text\na N\n\n# SYM\nb N\n",
        "c.conll:4: expected a comment or a word, which a line of `#` and 2 columns between spaces does not tell apart",
    );
}

const UNIVERSAL_TEXT: &str = "# sent_id = 1\n# text = des arbres\n1-2\tdes\t_\t_\t_\t_\t_\t_\t_\t_\n\
    1\tde\tde\tADP\tP\t_\t3\tcase\t_\t_\n2\tles\tle\tDET\tD\tDefinite=Def\t3\tdet\t_\t_\n\
    3\tarbres\tarbre\tNOUN\tN\t_\t0\troot\t_\t_\n3.1\tsont\tetre\tAUX\t_\t_\t_\t_\t_\t_\n\n\
    # sent_id = 2\n1\t#\t#\tSYM\tS\t_\t0\troot\t_\t_\n";

#[test]
fn conllu_is_known_by_its_name_and_its_columns() {
    for name in ["a.conllu", "a.CONLLU.gz", "a.txt"] {
        let (said, texts) = read(name, UNIVERSAL_TEXT, None).unwrap();
        let expected = "CoNLL-U, words in column 2 (form), tags in column 4 (upos), 10 columns between tabs";
        assert_eq!(said, expected);
        assert_eq!(texts, ["4: de/ADP les/DET arbres/NOUN", "10: #/SYM"]);
    }
    for (tags, expected) in [("lemma", "#"), ("XPOS", "S"), ("deprel", "root"), ("8", "root"), ("feats", "_")]
    {
        assert_eq!(read("a.conllu", UNIVERSAL_TEXT, Some(tags)).unwrap().1[1], format!("10: #/{expected}"));
    }
    let said = |text, tags| read("a.conllu", text, tags).unwrap_err().to_string();
    let error = said(UNIVERSAL_TEXT, Some("pos"));
    assert!(
        error.contains("a number from 1 to 10, or one of `id`, `form`") && error.contains("got `pos`"),
        "{error}"
    );
    let error = said("one\tx\n", None);
    assert!(error.contains("a.conllu:1: expected 10 columns between tabs, as CoNLL-U has, got 2"), "{error}");
    let error = said("x\ta\ta\tX\t_\t_\t0\troot\t_\t_\n", None);
    assert!(error.contains("expected the number of the word in column 1"), "{error}");
}

#[test]
fn comments_and_numbers_are_no_words() {
    let text = "#\thttp://a.example/1\t[2009-01-02]\t\n1\tAnna\tB-PER\tO\n2\truft\tO\tO\n3\tBonn\tB-ORG\tB-LOC\n\n\
        #\thttp://a.example/2\t[2009-01-02]\t\n1\tNein\tO\tO\n";
    let (said, texts) = read("de.tsv", text, None).unwrap();
    let expected = "words in column 2, tags in column 3, 4 columns between tabs, of which the first numbers the words, \
                    lines with `#` are comments";
    assert_eq!(said, expected);
    assert_eq!(texts, ["2: Anna/B-PER ruft/O Bonn/B-ORG", "7: Nein/O"]);
    assert_eq!(read("de.tsv", text, Some("4")).unwrap().1[0], "2: Anna/O ruft/O Bonn/B-LOC");
    // The last one, unless all behind the words are tags of a scheme.
    assert_eq!(read("n", "1 a N O\n2 b V B-X\n", None).unwrap().1, ["1: a/O b/B-X"]);
    // A hash with its tag is a word, and numbers are words where nothing else is.
    assert_eq!(read("n", "# O\n1 O\n\n# B-X\n", None).unwrap().1, ["1: #/O 1/O", "4: #/B-X"]);
    assert_eq!(read("n", "1 O\n2 O\n3 B-X\n", None).unwrap().1, ["1: 1/O 2/O 3/B-X"]);
    let mixed = "# id of one\n#\tO\na\tO\n\n# id of two\nb\tB-X\n#\tO\n";
    assert_eq!(read("n", mixed, None).unwrap().1, ["2: #/O a/O", "6: b/B-X #/O"]);
}

#[test]
fn marks_of_documents_are_no_words() {
    let text = "-DOCSTART- -X- O O\nEU NNP B-NP B-ORG\n-DOCSTART-\nHe PRP B-NP O\n\n-DOCSTART- -X- -X- O\n\n\
        Peter NNP B-NP B-PER\n";
    assert_eq!(read("c.conll", text, None).unwrap().1, ["2: EU/B-ORG", "4: He/O", "8: Peter/B-PER"]);
    refused("-DOCSTART- O\n", "records of file `c.conll`: expected at least one, got none");
}

#[test]
fn other_files_have_the_columns_of_the_first() {
    let (first, other) = (file("a", "1 a N O\n2 b V B-X\n"), file("b", "1\tc\tB-X\tO\n"));
    let like = Columns::of(&first, None, None, None, None).unwrap();
    let found = Columns::of(&other, None, None, None, Some(&like)).unwrap();
    assert_eq!((found.words, found.tags, found.separator), (1, 3, Separator::Tabs));
    let error = Columns::of(&file("c", "a O\n"), None, None, None, Some(&like)).unwrap_err().to_string();
    let expected = "columns of file `c`: expected 4, as in the file that was read before, got 2";
    assert!(error.contains(expected), "{error}");
}
