//! Tests of the columns of small files.

use super::*;

fn file(name: &str, text: &'static str) -> TextFile {
    TextFile::embedded(name, text)
}

/// Returns the description of the columns, and the sentences; a sentence is shown as the number of its first line, then
/// its words with their tags.
fn read(name: &str, text: &'static str, tags: Option<&str>) -> Result<(String, Vec<String>)> {
    let file = file(name, text);
    let columns = Columns::of(&file, None, tags, None, None)?;
    let shown = |one: Sentence| {
        let pairs = one.words.iter().zip(&one.tags).map(|(word, tag)| format!("{word}/{tag}"));
        format!("{}: {}", one.lines[0], pairs.collect::<Vec<_>>().join(" "))
    };
    Ok((columns.to_string(), columns.sentences(&file)?.read_all()?.into_iter().map(shown).collect()))
}

#[track_caller]
fn refused(text: &'static str, expected: &str) {
    let error = format!("{:#}", read("c.conll", text, None).unwrap_err());
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn tabs_alone_separate_where_there_are_tabs() {
    let (note, texts) = read("c.conll", "San Marino\tB-LOC\nlies\tO\n20\u{a0}000\tO\t\n", None).unwrap();
    assert_eq!(note, "words in column 1, tags in column 2, 2 columns between tabs");
    assert_eq!(texts, ["1: San Marino/B-LOC lies/O 20\u{a0}000/O"]);
    let text = "a\u{a0}b X O\n c\u{2028}d  Y\tB-A \n\ne\u{3000} Z O\r\n";
    let (note, texts) = read("c.conll", text, None).unwrap();
    assert_eq!(note, "words in column 1, tags in column 3, 3 columns between spaces");
    assert_eq!(texts, ["1: a\u{a0}b/O c\u{2028}d/B-A", "4: e\u{3000}/O"]);
}

#[test]
fn the_line_with_other_columns_is_the_wrong_one() {
    refused("New York B-LOC\nis O\nnice O\n", "c.conll:1: expected 2 columns, got 3 in \"New York B-LOC\"");
    refused("is O\nnice\n", "c.conll:2: expected 2 columns, got 1 in \"nice\"");
    refused("is\tO\nso\tO\nnice\n", "c.conll:3: expected 2 columns between tabs, got 1 in \"nice\"");
    refused("is\t\tO\nso\tX\tO\n", "c.conll:1: expected 3 columns between tabs, got an empty column in");
}

#[test]
fn runs_of_tabs_align_columns_where_no_cell_is_empty() {
    let text = "Antananarivo\tNNP\tB-LOC\nis\t\t\tVBZ\tO\n\nso\t\t\tRB\tO\n";
    let (note, texts) = read("c.conll", text, None).unwrap();
    assert_eq!(note, "words in column 1, tags in column 3, 3 columns between runs of tabs");
    assert_eq!(texts, ["1: Antananarivo/B-LOC is/O", "4: so/O"]);
    assert_eq!(read("c.conll", "is\t\tO\nso\t\tO\n", None).unwrap().1, ["1: is/O so/O"]);
    let missing = "a\tN\tO\n".repeat(20) + "b\t\tN\tO\n\tN\tO\tX\n";
    refused(missing.leak(), "c.conll:22: expected 3 columns between runs of tabs, got an empty column in");
    // All lines have the same number of tabs, so the empty cells are missing values.
    refused(
        "is\tV\t\tO\nso\t\tX\tO\n",
        "c.conll:1: expected 4 columns between tabs, got an empty column in \"is\\tV\\t\\tO\"",
    );
    let aligned = "1\ta\t\ta\tX\t_\t_\t0\troot\t_\t_\n2\tb\t\tb\tX\t_\t_\t1\tdep\t_\t_\n";
    refused(aligned, "c.conll:1: expected 10 columns between tabs, as CoNLL-U has, got an empty column in");
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
        let (note, texts) = read(name, UNIVERSAL_TEXT, None).unwrap();
        let expected = "CoNLL-U, words in column 2 (form), tags in column 4 (upos), 10 columns between tabs";
        assert_eq!(note, expected);
        assert_eq!(texts, ["4: de/ADP les/DET arbres/NOUN", "10: #/SYM"]);
    }
    for (tags, expected) in [("lemma", "#"), ("XPOS", "S"), ("deprel", "root"), ("8", "root"), ("feats", "_")]
    {
        assert_eq!(read("a.conllu", UNIVERSAL_TEXT, Some(tags)).unwrap().1[1], format!("10: #/{expected}"));
    }
    let note = |text, tags| read("a.conllu", text, tags).unwrap_err().to_string();
    let error = note(UNIVERSAL_TEXT, Some("pos"));
    assert!(
        error.contains("a number from 1 to 10, or one of `id`, `form`") && error.contains("got `pos`"),
        "{error}"
    );
    let error = note("one\tx\n", None);
    assert!(error.contains("a.conllu:1: expected 10 columns between tabs, as CoNLL-U has, got 2"), "{error}");
    let error = note("x\ta\ta\tX\t_\t_\t0\troot\t_\t_\n", None);
    assert!(error.contains("expected the number of the word in column 1"), "{error}");
}

#[test]
fn comments_and_numbers_are_no_words() {
    let text = "#\thttp://a.example/1\t[2009-01-02]\t\n1\tAnna\tB-PER\tO\n2\truft\tO\tO\n3\tBonn\tB-ORG\tB-LOC\n\n\
        #\thttp://a.example/2\t[2009-01-02]\t\n1\tNein\tO\tO\n";
    let (note, texts) = read("de.tsv", text, None).unwrap();
    let expected = "words in column 2, tags in column 3, 4 columns between tabs, of which the first numbers the words, \
                    lines with `#` are comments";
    assert_eq!(note, expected);
    assert_eq!(texts, ["2: Anna/B-PER ruft/O Bonn/B-ORG", "7: Nein/O"]);
    assert_eq!(read("de.tsv", text, Some("4")).unwrap().1[0], "2: Anna/O ruft/O Bonn/B-LOC");
    // Usually, the last column has the tags. If all columns behind the words have tags of a scheme, the first of these
    // columns has the tags.
    assert_eq!(read("n", "1 a N O\n2 b V B-X\n", None).unwrap().1, ["1: a/O b/B-X"]);
    // A `#` with a tag is a word, and numbers are words if no other column has words.
    assert_eq!(read("n", "# O\n1 O\n\n# B-X\n", None).unwrap().1, ["1: #/O 1/O", "4: #/B-X"]);
    assert_eq!(read("n", "1 O\n2 O\n3 B-X\n", None).unwrap().1, ["1: 1/O 2/O 3/B-X"]);
    let mixed = "# id of one\n#\tO\na\tO\n\n# id of two\nb\tB-X\n#\tO\n";
    assert_eq!(read("n", mixed, None).unwrap().1, ["2: #/O a/O", "6: b/B-X #/O"]);
}

#[test]
fn ten_columns_that_count_are_conllu_without_comments() {
    let lines = "1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_\n1\tde\tde\tADP\tP\t_\t3\tcase\t_\t_\n2\tle\tle\tDET\tD\t_\t3\tdet\t_\t_\n\
        3\tpain\tpain\tNOUN\tN\t_\t0\troot\t_\t_\n3.1\tmis\tmettre\tVERB\t_\t_\t_\t_\t_\t_\n\n1\tOui\toui\tINTJ\tI\t_\t0\troot\t_\t_\n";
    let (note, texts) = read("corpus.txt", lines, None).unwrap();
    assert!(note.starts_with("CoNLL-U, words in column 2 (form), tags in column 4 (upos)"), "{note}");
    assert_eq!(texts, ["2: de/ADP le/DET pain/NOUN", "7: Oui/INTJ"]);
    let spaced = "1 de de ADP P _ 2 case _ _\n2 pain pain NOUN N _ 0 root _ _\n";
    let (note, texts) = read("corpus.txt", spaced, None).unwrap();
    assert!(note.ends_with("10 columns between spaces") && texts == ["1: de/ADP pain/NOUN"], "{note}");
    // Ranges of words are skipped in other formats than CoNLL-U, too, if the first column counts the words.
    let other = "1-2\tdu\t_\n1\tde\tADP\n2\tle\tDET\n";
    assert_eq!(read("corpus.txt", other, None).unwrap().1, ["2: de/ADP le/DET"]);
}

#[test]
fn conllu_plus_names_its_columns() {
    let text = "# global.columns = ID FORM UPOS X:NE\n# sent_id = 1\n1-2\tdu\t_\t_\n1\tde\tADP\tO\n2\tParis\tPROPN\tB-LOC\n";
    let (note, texts) = read("a.conllup", text, None).unwrap();
    assert_eq!(
        note,
        "CoNLL-U Plus, words in column 2 (form), tags in column 3 (upos), 4 columns between tabs"
    );
    assert_eq!(texts, ["4: de/ADP Paris/PROPN"]);
    assert_eq!(read("a.conllup", text, Some("x:ne")).unwrap().1, ["4: de/O Paris/B-LOC"]);
}

#[test]
fn comments_with_as_many_columns_as_words_are_no_words() {
    let (note, texts) = read("c", "# id 5\nHe N O\n\n# id 6\nParis N B-LOC\n", None).unwrap();
    assert!(note.ends_with("the first line of each sentence, with `#`, is a comment"), "{note}");
    assert_eq!(texts, ["2: He/O", "5: Paris/B-LOC"]);
    assert_eq!(read("c", "# 5\nHe PRP\n\n# 6\nruns VB\n", None).unwrap().1, ["2: He/PRP", "5: runs/VB"]);
    assert_eq!(read("c", "#id 5\nHe PRP\n\n#id 6\nruns VB\n", None).unwrap().1, ["2: He/PRP", "5: runs/VB"]);
    let (note, texts) = read("c", "# id 7 domain=en\nHe _ _ O\n\nParis _ _ B-LOC\n", None).unwrap();
    assert!(note.ends_with("lines with `#` are comments"), "{note}");
    assert_eq!(texts, ["2: He/O", "4: Paris/B-LOC"]);
    // A line with `#` is a word if its tag is a tag of a scheme or the tag of another word. A line with `#` that does
    // not begin a sentence is a word, too.
    assert_eq!(read("c", "# O\na B-X\n\n# O\nb O\n", None).unwrap().1, ["1: #/O a/B-X", "4: #/O b/O"]);
    assert_eq!(read("c", "# N\na N\n\n# V\nb V\n", None).unwrap().1, ["1: #/N a/N", "4: #/V b/V"]);
    let (note, texts) = read("c", "# SYM\na N\n\nb N\n# SYM\n", None).unwrap();
    assert!(note.ends_with("`#` before a sentence is a word"), "{note}");
    assert_eq!(texts, ["1: #/SYM a/N", "4: b/N #/SYM"]);
    assert_eq!(read("c", "#fun HT\na N\n\nb N\n#so HT\n", None).unwrap().1[0], "1: #fun/HT a/N");
}

#[test]
fn marks_between_documents_are_no_words() {
    let text = "#begin document (a); part 000\nHe PRP\n\nruns VB\n#end document\n#begin document (b); part 000\nYes UH\n";
    let (note, texts) = read("c", text, None).unwrap();
    assert!(note.ends_with("lines between documents are no words"), "{note}");
    assert_eq!(texts, ["2: He/PRP", "4: runs/VB", "7: Yes/UH"]);
    let text = "###MEDLINE:1\n\nIL-2\tB-DNA\ngene\tI-DNA\n\n###MEDLINE:2\n\nYes\tO\n";
    assert_eq!(read("c", text, None).unwrap().1, ["3: IL-2/B-DNA gene/I-DNA", "8: Yes/O"]);
    assert_eq!(read("c", "-docstart- O\n\nHe O\n", None).unwrap().1, ["3: He/O"]);
}

#[test]
fn conll_2012_has_as_many_columns_as_it_needs() {
    let text = "#begin document (x); part 000\nx 0 0 Ann NNP (S* - - - a (PERSON* (A0* -\nx 0 1 Lee NNP *) - - - a *) *) -\n\n\
        x 0 0 Yes UH (S*) - - - a * -\n\n#end document\n";
    let (note, texts) = read("x.gold_conll", text, None).unwrap();
    let expected =
        "CoNLL-2012, words in column 4 (word), tags in column 11 (ne), at least 11 columns between spaces";
    assert!(note.starts_with(expected), "{note}");
    assert_eq!(texts, ["2: Ann/B-PERSON Lee/I-PERSON", "5: Yes/O"]);
    assert_eq!(read("x", text, Some("pos")).unwrap().1[0], "2: Ann/NNP Lee/NNP");
}

#[test]
fn tags_in_brackets_are_chunks() {
    let (note, texts) = read("c", "Ann (PER*\nLee *)\nsees *\nBonn (LOC*)\nUlm (LOC)\n", None).unwrap();
    assert!(note.ends_with("tags in brackets, as `(kind*`, are read as IOB2"), "{note}");
    assert_eq!(texts, ["1: Ann/B-PER Lee/I-PER sees/O Bonn/B-LOC Ulm/B-LOC"]);
    assert_eq!(read("c", "a (A0*A0)\nb (V*\nc *V)\n", None).unwrap().1, ["1: a/B-A0 b/B-V c/I-V"]);
    refused("a *\nb *)\n", "c.conll:2: expected a chunk, begun by `(kind*`, before its end, got `*)`");
    refused(
        "a (A*\nb (B*)\n",
        "c.conll:2: expected the end `*)` of a chunk before the next chunk, got `(B*)`",
    );
    refused(
        "a (A*\n\nb *\n",
        "c.conll:2: expected the end `*)` of the chunk `(A*`, got the end of the sentence",
    );
    // A bracketed parse tree, such as `(S(NP*))`, is not a bracketed tag.
    assert_eq!(read("c", "a (S(NP*))\nb *)\n", None).unwrap().1, ["1: a/(S(NP*)) b/*)"]);
}

#[test]
fn a_header_names_the_columns() {
    let header = |text, words, tags, header| {
        let file = file("c", text);
        let columns = Columns::of(&file, words, tags, header, None)?;
        Ok::<_, unpadded::Error>((
            columns.to_string(),
            columns.sentences(&file)?.read_all()?.into_iter().map(|s| (s.words, s.tags)).next(),
        ))
    };
    let text = "id\tToken\tPOS\tNER\n1\tHe\tPRP\tO\n2\truns\tVB\tB-X\n";
    let (note, texts) = header(text, None, None, None).unwrap();
    assert!(
        note.starts_with("words in column 2 (token), tags in column 4 (ner), 4 columns between tabs"),
        "{note}"
    );
    assert!(note.ends_with(", the first line is a header"), "{note}");
    let owned = |all: [&str; 2]| all.map(str::to_owned).to_vec();
    assert_eq!(texts, Some((owned(["He", "runs"]), owned(["O", "B-X"]))));
    assert_eq!(header(text, None, Some("pos"), None).unwrap().1.unwrap().1, ["PRP", "VB"]);
    // A line with unknown names is a header if the user sets these names or sets `header`.
    let text = "mot etiquette\n\nun O\n";
    assert_eq!(header(text, None, None, None).unwrap().1.unwrap().0, ["mot"]);
    assert_eq!(header(text, Some("mot"), Some("etiquette"), None).unwrap().1.unwrap().0, ["un"]);
    assert_eq!(header(text, None, None, Some(true)).unwrap().1.unwrap().0, ["un"]);
    let text = "word tag\nun O\n";
    assert_eq!(header(text, None, None, None).unwrap().1.unwrap().0, ["un"]);
    assert_eq!(header(text, None, None, Some(false)).unwrap().1.unwrap().0, ["word", "un"]);
    // A known name that is the tag of another word is a tag, so the first line is no header.
    assert_eq!(header("word tag\nun tag\n", None, None, None).unwrap().1.unwrap().0, ["word", "un"]);
    refused(
        "word tag\nun O\n\nword tag\nun O\n",
        "c.conll:4: expected a header once, or words and their tags: `header`",
    );
    let first = file("a", "word tag\nun O\n");
    let like = Columns::of(&first, None, None, None, None).unwrap();
    let other = |text| Columns::of(&file("b", text), None, None, None, Some(&like));
    assert!(!other("un O\ndeux O\n").unwrap().header);
    let french = file("a", "mot etiquette\nun O\n");
    let like = Columns::of(&french, None, None, Some(true), None).unwrap();
    assert!(Columns::of(&french, None, None, None, Some(&like)).unwrap().header);
    let like = Columns::of(&first, None, None, None, None).unwrap();
    let other = |text| Columns::of(&file("b", text), None, None, None, Some(&like));
    let error = other("tag word\nO un\n").unwrap_err().to_string();
    assert!(error.contains("expected `word`, `tag`, as in the file that was read before"), "{error}");
    // The first file has no header. The header of a later file must not name the column of the words as the tags.
    let bare = Columns::of(&file("a", "it O\nruns X\n"), None, None, None, None).unwrap();
    let read_columns = |text| Columns::of(&file("b", text), None, None, None, Some(&bare));
    assert!(read_columns("word tag\nit O\nruns X\n").unwrap().header);
    let error = read_columns("tag word\nO it\nX runs\n").unwrap_err().to_string();
    let expected = "columns of file `b`: expected words in column 1 and tags in column 2, as in the file that was read before, got the header \
                    `tag`, `word`";
    assert!(error.starts_with(expected), "{error}");
}

#[test]
fn what_is_no_file_of_columns_is_named() {
    for (text, expected) in [
        ("T1\tLOC 0 4\tBonn\nT2\tLOC 9 12\tUlm\n", "annotations of brat (`.ann`)"),
        ("12|t|On IL-2\n12|a|It acts.\n12\t3\t7\tIL-2\tGene\n", "annotations of PubTator"),
        ("Sentence: 1,He,O\nSentence: 1,runs,O\n", "`,` in each line: replace each `,` by a tab"),
        ("the/DT dog/NN\na/DT cat/NN\n", "words joined to tags by `/`"),
        ("Sentence #\tWord\tTag\nS 1\tHe\tO\nS 1\truns\tO\n", "no blank line, and a column `sentence_#`"),
        (
            "a 1 He O\na 2 runs O\n\nb 1 So O\nb 2 be O\n",
            "the same word in each line of a sentence, as in \"a 1 He O\"",
        ),
        ("7 He O\n8 runs O\n\n9 Yes O\n", "only numbers, as in \"7 He O\""),
        ("1-1\t0-2\tHe\tO\n1-2\t3-7\truns\tO\n", "only numbers, as in"),
    ] {
        let error = read("c", text, None).unwrap_err().to_string();
        assert!(error.contains("columns of file `c`: expected") && error.contains(expected), "{error}");
    }
    let file = file("c", "7 He O\n8 runs O\n");
    let columns = Columns::of(&file, Some("2"), None, None, None).unwrap();
    assert_eq!(columns.sentences(&file).unwrap().read_all().unwrap()[0].words, ["He", "runs"]);
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

#[test]
fn tags_are_where_those_of_a_scheme_are() {
    let (note, texts) = read("c", "B-A\tx\nI-A\ty\nO\tz\n\nO\tx\nB-B\tz\n", None).unwrap();
    assert_eq!(
        note,
        "words in column 2, tags in column 1, 2 columns between tabs, since tags of a scheme are there"
    );
    assert_eq!(texts, ["1: x/B-A y/I-A z/O", "5: x/O z/B-B"]);
    assert_eq!(read("c", "B_A x\nI_A y\nO z\n", None).unwrap().1, ["1: x/B_A y/I_A z/O"]);
    refused(
        "O N x\nB-A N y\nI-A V z\n",
        "columns of file `c.conll`: expected tags of a scheme in column 3: set `tags` (`data.label` in a config) to the column of the tags, and `tokens` (`data.text`) to the column of the words, got tags of a scheme in column 1",
    );
    assert_eq!(read("c", "x B-A N\ny O V\n", Some("3")).unwrap().1, ["1: x/N y/V"]);
    let semantic = "1 a a a N N _ _ 2 2 x x _ _\n2 b b b V V _ _ 0 0 y y _ _\n";
    refused(semantic, "columns of file `c.conll`: expected a known column of tags: set `tags`");
    assert_eq!(read("c", semantic, Some("5")).unwrap().1, ["1: a/N b/V"]);
    let asked =
        Columns::of_words(&file("c", semantic), KnownColumns { like: None, words: None, columns: false })
            .unwrap();
    assert_eq!(asked.map(|columns| columns.words), Some(1));
}

#[test]
fn a_first_line_that_may_be_a_header_is_refused() {
    let lines = "un DT\nchat NN\ndort VB\n\n".repeat(10);
    for header in ["mot marque\n", "x y\n", "Wort Marke\n\n"] {
        let text: &str = (header.to_owned() + &lines).leak();
        refused(text, "c.conll:1: expected words and tags, or a header with known names");
        let file = file("c", text);
        let columns = |header| Columns::of(&file, None, None, Some(header), None).unwrap();
        let count = |header| columns(header).sentences(&file).and_then(|mut all| all.read_all());
        assert_eq!(count(true).unwrap()[0].words, ["un", "chat", "dort"]);
        assert!(count(false).unwrap()[0].words.len() < 5);
    }
    // The first line is no header: its word or its tag occurs again, or other tags are rare.
    for line in ["un UH\n", "oui NN\n", "oui UH\n\nnon INTJ\n"] {
        assert!(read("c", (line.to_owned() + &lines).leak(), None).is_ok(), "{line}");
    }
}

#[test]
fn marks_of_comments_are_no_words() {
    for mark in ["# doc", ";; doc", "%% 0", "// a b c"] {
        let text = format!("{mark}\nHe PRP\nruns VB\n\n{mark}\nshe PRP\n\nruns VB\n");
        let (note, texts) = read("c", text.leak(), None).unwrap();
        let word = first_word(mark);
        assert!(note.contains(&format!("lines of `{word}` before a sentence are comments")), "{note}");
        assert_eq!(texts, ["2: He/PRP runs/VB", "6: she/PRP", "8: runs/VB"], "{mark}");
    }
    // These lines are words: the tag is a tag of other words, or the mark also begins other lines.
    assert_eq!(read("c", "% N\na N\n\n% N\nb V\n", None).unwrap().1[0], "1: %/N a/N");
    assert_eq!(read("c", "% Y\na N\n% Y\n\n% Y\nb V\n", None).unwrap().1[1], "5: %/Y b/V");
    assert_eq!(read("c", "# SYM\na N\n\n# SYM\nb V\n", None).unwrap().1[1], "4: #/SYM b/V");
    assert_eq!(read("c", "-DOCEND- X\n\nHe O\n-docend- O\n", None).unwrap().1, ["3: He/O"]);
    assert_eq!(read("c", "-DOC- X\nDOC-A X\n", None).unwrap().1, ["1: -DOC-/X DOC-A/X"]);
    let (note, texts) = read(
        "c",
        "TOKEN\tNE-COARSE-LIT\tMISC\n# document_id = x\nHe\tO\t_\nBonn\tB-LOC\t_\n\n# document_id = y\nso\tO\t_\n",
        None,
    )
    .unwrap();
    assert!(note.contains("tags in column 2 (ne_coarse_lit)"), "{note}");
    assert_eq!(texts, ["3: He/O Bonn/B-LOC", "7: so/O"]);
}

#[test]
fn a_missing_blank_line_is_where_words_count_anew() {
    let line = |id: usize| format!("{id}\tw\tw\tN\t_\t_\t0\troot\t_\t_\n");
    let sentence = |last: usize| (1..=last).map(line).collect::<String>();
    let [two, three] = [2, 3].map(sentence);
    let expected = "c.conll:4: expected a blank line before the first word of the next sentence, got \"1\"";
    refused(format!("{three}{two}\n{two}\n{three}").leak(), expected);
    refused(format!("{three}{two}").leak(), expected);
    let comment = format!("{two}# id = 2\n{two}\n{three}");
    refused(comment.leak(), "c.conll:4: expected a blank line before the first word of the next sentence");
    refused(
        format!("{}{}", sentence(3), line(5)).leak(),
        "c.conll:4: expected the word with number 4, got \"5\"",
    );
    refused("1 a N\n2 b V\n1 c N\n2 d N\n\n1 a N\n2 b V\n", "c.conll:3: expected a blank line before");
    let text = "# id = 1\n2\tw\tw\tN\t_\t_\t0\troot\t_\t_\n";
    refused(text, "c.conll:2: expected the word with number 1 at the start of a sentence, got \"2\"");
}
