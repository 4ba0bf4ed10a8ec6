//! The identifiers of the old dialect, counted by word in all sources. The numbers only fall.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A word, how many identifiers contain it, and the names to write instead. Lower a number when identifiers are renamed.
const WORDS: [(&str, usize, &str); 7] = [
    ("said", 0, "message, text, or the name of what was printed"),
    ("told", 0, "setting, given, or the name of what is reported"),
    ("learnt", 0, "learned, trained, or the name of the model's part"),
    ("spelt", 0, "spelling, spelled"),
    ("cut", 0, "tokenizer, truncated, boundary, divided"),
    ("place", 233, "position, index, location, slot"),
    ("of", 255, "the name of what the variable holds"),
];

/// Identifiers of more words are sentences: the names of tests.
const MOST_WORDS: usize = 3;

/// The words of an identifier in snake case or camel case, in lower case.
fn parts(identifier: &str) -> Vec<String> {
    let camel = identifier.chars().any(char::is_lowercase);
    let mut parts = vec![String::new()];
    for c in identifier.chars() {
        if c == '_' || (camel && c.is_uppercase()) {
            parts.push(String::new());
        }
        parts.last_mut().unwrap().extend(c.to_lowercase().filter(|c| *c != '_'));
    }
    parts.retain(|part| !part.is_empty());
    parts
}

/// Returns the uses of the words in a source, each with its line. Of `of`, variables alone count: `Scope::of` is a constructor.
fn found(source: &str) -> Vec<(&'static str, usize)> {
    let (tokens, mut found) = (super::uses::tokens(source), Vec::new());
    for (i, token) in tokens.iter().enumerate() {
        let parts = parts(&token.text);
        let before = i.checked_sub(1).map_or("", |before| &tokens[before].text);
        let is_item = ["fn", "::", "."].contains(&before);
        let counts = |word: &str| match word {
            "of" => token.text == word && !is_item,
            // What is done "in place" is a term of the field.
            _ => {
                parts.len() <= MOST_WORDS
                    && parts.iter().any(|p| p == word)
                    && !token.text.ends_with("in_place")
            }
        };
        found.extend(WORDS.iter().filter(|(word, ..)| counts(word)).map(|(word, ..)| (*word, token.line)));
    }
    found
}

#[test]
fn the_old_dialect_does_not_come_back() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<PathBuf> = super::all_sources().into_iter().map(|(_, path)| path).collect();
    let tests = super::CRATES.map(|name| format!("crates/{name}/tests"));
    for folder in ["models", "tests", "benches"].into_iter().chain(tests.iter().map(String::as_str)) {
        paths.extend(super::sources(&root.join(folder)));
    }
    // New uses are in files that were written last.
    paths.sort_by_key(|path| std::cmp::Reverse(path.metadata().and_then(|file| file.modified()).ok()));
    let mut all: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for path in paths {
        let mut lines: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (word, line) in found(&std::fs::read_to_string(&path).unwrap()) {
            lines.entry(word).or_default().push(line);
        }
        let name = path.strip_prefix(root).unwrap().display();
        for (word, lines) in lines {
            all.entry(word).or_default().extend(lines.iter().map(|line| format!("{name}:{line}")));
        }
    }
    let complaint = |(word, most, instead): &(&str, usize, &str)| {
        let uses = all.get(word).map_or(&[][..], Vec::as_slice);
        let shown = uses.iter().take(40).map(|at| format!("\n    {at}")).collect::<String>();
        match uses.len() {
            count if count > *most => Some(format!(
                "{count} identifiers with `{word}`, at most {most}: write {instead}; uses, the newest files first:{shown}"
            )),
            count if count < *most => {
                Some(format!("{count} identifiers with `{word}`: lower {most} in tests/it/tidy/dialect.rs"))
            }
            _ => None,
        }
    };
    let complaints: Vec<String> = WORDS.iter().filter_map(complaint).collect();
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

/// Variables, fields, functions and types count; comments, strings, constructors and sentences do not.
#[test]
fn the_count_of_the_dialect_bites() {
    let words = |source: &str| found(source).into_iter().map(|(word, _)| word).collect::<Vec<_>>().join(" ");
    for (source, expected) in [
        ("let said = 1;", "said"),
        ("fn told_by(x: SequencePlace, CUT: u8)", "told place cut"),
        ("Scope::of(x); fn of() {} x.of(y)", ""),
        ("|of| of.rows()", "of of"),
        ("exp_in_place(place)", "place"),
        ("// said\nlet x = \"told\"; fn places() {}", ""),
        ("fn who_said_what_in_which_line() {}", ""),
    ] {
        assert_eq!(words(source), expected, "{source}");
    }
    assert_eq!(found("//\nlet spelt = 1;"), [("spelt", 2)]);
}
