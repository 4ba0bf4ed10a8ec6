//! Sentences are plain: phrases that no sentence needs are in no comment, message or page.

use std::fs;
use std::path::{Path, PathBuf};

/// The phrases, as words. A pronoun for a noun, or a verb that says less than the field's verb, makes a sentence need two readings.
/// The check reads this file too, so no string here is a whole phrase.
const PHRASES: [&[&str]; 17] = [
    &["so", "many"],
    &["the", "same", "of"],
    &["that", "of"],
    &["those", "of"],
    &["is", "said"],
    &["are", "said"],
    &["was", "said"],
    &["what", "is", "said"],
    &["found", "out"],
    &["finds", "out"],
    &["is", "told"],
    &["are", "told"],
    &["be", "told"],
    &[concat!("st", "ands")],
    &[concat!("st", "and")],
    &[concat!("go", "es")],
    &["such", "a", "one"],
];

/// The words of a text, with a mark for each end of a sentence; code between backticks is one word.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    for (at, prose) in text.split('`').enumerate() {
        if at % 2 == 1 {
            words.extend(["`".to_owned(), String::new()]);
            continue;
        }
        for c in prose.chars() {
            match c {
                'a'..='z' | '\'' => words.last_mut().unwrap().push(c),
                'A'..='Z' => words.last_mut().unwrap().push(c.to_ascii_lowercase()),
                c if c.is_alphabetic() || c.is_whitespace() || "()*_[]-,".contains(c) => {
                    words.push(String::new())
                }
                _ => words.extend([".".to_owned(), String::new()]),
            }
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// What a person reads of a source file, by line: comments and the insides of strings.
fn prose(source: &str) -> Vec<String> {
    let line = |line: &str| {
        if let Some(comment) = line.trim_start().strip_prefix("//") {
            return comment.trim_start_matches(['/', '!']).to_owned();
        }
        let (mut out, mut quoted, mut chars) = (". ".to_owned(), false, line.chars().peekable());
        while let Some(c) = chars.next() {
            match c {
                '\\' if quoted => drop(chars.next()),
                '"' => {
                    quoted = !quoted;
                    out.push_str(" . ");
                }
                '/' if !quoted && chars.peek() == Some(&'/') => {
                    out.push_str(" . ");
                    out.extend(chars.by_ref());
                }
                c if quoted => out.push(c),
                _ => {}
            }
        }
        out + " ."
    };
    source.lines().map(line).collect()
}

/// The lines of a page that are no code.
fn page(markdown: &str) -> Vec<String> {
    let mut code = false;
    let line = |line: &str| {
        code ^= line.trim_start().starts_with("```");
        if code { ".".to_owned() } else { line.to_owned() }
    };
    markdown.lines().map(line).collect()
}

/// The phrases of some lines, each with the number of the line in which it begins.
fn found(lines: &[String]) -> Vec<(usize, String)> {
    let words: Vec<(usize, String)> = lines
        .iter()
        .enumerate()
        .flat_map(|(at, line)| words(line).into_iter().map(move |word| (at + 1, word)))
        .collect();
    let mut found = Vec::new();
    for phrase in PHRASES {
        for window in words.windows(phrase.len()) {
            if window.iter().map(|(_, word)| word).eq(phrase) {
                found.push((window[0].0, phrase.join(" ")));
            }
        }
    }
    found
}

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, into);
        } else if path.extension().is_some_and(|ending| ending == "rs" || ending == "md") {
            into.push(path);
        }
    }
}

#[test]
fn no_sentence_has_a_phrase_that_none_needs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths = Vec::new();
    ["src", "crates", "tests", "models", "benches"]
        .iter()
        .for_each(|folder| files(&root.join(folder), &mut paths));
    paths.extend(
        fs::read_dir(root)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.extension().is_some_and(|e| e == "md")),
    );
    assert!(paths.len() > 500);
    let mut complaints = Vec::new();
    for path in paths {
        let name = path.strip_prefix(root).unwrap().to_string_lossy().replace('\\', "/");
        let text = fs::read_to_string(&path).unwrap();
        let lines = if name.ends_with(".md") { page(&text) } else { prose(&text) };
        complaints
            .extend(found(&lines).into_iter().map(|(line, phrase)| format!("{name}:{line}: `{phrase}`")));
    }
    complaints.sort();
    assert!(complaints.is_empty(), "name the noun, or take the field's verb:\n{}", complaints.join("\n"));
}

/// The check finds a phrase in each place that a person reads, and none in code.
#[test]
fn the_check_of_phrases_bites() {
    // The phrases are made here, since the check reads this file too.
    let [many, verb, those] = [["so", "many"], ["is", "told"], ["those", "of"]].map(|words| words.join(" "));
    let in_source = |source: &str| found(&prose(source));
    assert_eq!(in_source("/// The rows of x, and those\n/// of y."), [(1, those)]);
    assert_eq!(in_source(&format!("let x = 1; // {many}")), [(1, many.clone())]);
    assert_eq!(in_source(&format!("say(\"it {verb}\")")), [(1, verb)]);
    assert_eq!(in_source("let so = many; let that = of;"), []);
    assert_eq!(in_source(&format!("/// Like `{many}`, and so. Many.")), []);
    let in_page = |text: &str| found(&page(text));
    assert_eq!(in_page(&format!("# Title\n\nIt has {many}.")), [(3, many.clone())]);
    assert_eq!(in_page(&format!("```text\n{many}\n```\n")), []);
}
