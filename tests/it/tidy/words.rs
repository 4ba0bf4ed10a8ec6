//! The glossary of `CONTRIBUTING.md`, section "Words", held against the names in `src/`: a type is a noun, no two public
//! types have one name, and no type has a word of the second table as its name. The recorded exceptions only become fewer.

use std::collections::{BTreeMap, BTreeSet};

/// Words that name no thing: question words, adverbs, prepositions, verbs and irregular participles. No type ends with one.
const NO_NOUNS: &str = "Added Again Against Ahead Alone Along Among Around Asking At Back Backwards Before Behind Begun \
    Beside Between By Chosen Come Does Done Drawn Each Every Few Forth Forwards Found From Given Goes Gone Has Held \
    Here Holds How In Inside Kept Known Left Lent Less Lost Made Met More Next No Not Of On Other Out Outside Over Own \
    Ran Read Said Same Seen Sent Several Shown Spoken Taken That There To Told Under Unlike Unseen What When Where \
    Which Who Whose Why Written Wrong";

/// Types that end like a participle and are the field's own nouns, with the reason.
const FIELD_NAMES: [(&str, &str); 2] = [
    ("Stacked", "stacked recurrent layers are called so elsewhere"),
    ("Sealed", "the trait that seals another one is called so everywhere in Rust"),
];

/// The file of the names that a rule is against and that exist, under a heading for each rule. Names are only taken off this
/// list: by hand, or by `UNPADDED_WRITE=1`.
const RECORDED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/tidy/names.txt");

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Visibility {
    Public,
    Crate,
    Private,
}

/// A type of `src/`, and where it is declared.
struct Type {
    name: String,
    visibility: Visibility,
    at: String,
}

/// Types and functions of the sources.
#[derive(Default)]
pub(super) struct Names {
    types: Vec<Type>,
    functions: Vec<(String, String)>,
}

impl Names {
    /// Adds a file by its path below `src/`. Unit tests are left out. So are operators: their types are named like their kinds.
    pub(super) fn add(&mut self, file: &str, source: &str) {
        if file.ends_with("tests.rs") || file.contains("/tests/") {
            return;
        }
        let lines = super::code(source);
        for (i, line) in &lines {
            let opens = |next: &(usize, String)| next.1.contains("mod ") && next.1.trim_end().ends_with('{');
            if line.starts_with("#[cfg(test)]") && lines.get(i + 1).is_some_and(opens) {
                break;
            }
            let (visibility, item) = visibility(line.trim_start());
            let item = item.trim_start_matches("const ").trim_start_matches("unsafe ");
            let Some((kind, rest)) = item.split_once(' ') else { continue };
            let Some(name) = super::words(rest).next().filter(|name| !name.is_empty()) else { continue };
            match kind {
                "struct" | "enum" | "union" if rest.contains(" = ") => {}
                // An associated type belongs to its trait.
                "type" if line.starts_with(' ') => {}
                "struct" | "enum" | "trait" | "union" | "type" if name.starts_with(char::is_uppercase) => {
                    self.types.push(Type {
                        name: name.to_owned(),
                        visibility,
                        at: format!("{file}:{}", i + 1),
                    });
                }
                "fn" => self.functions.push((name.to_owned(), format!("{file}:{}", i + 1))),
                _ => {}
            }
        }
    }

    /// Returns the violations of the rules. `reserved` are the words of the second table.
    pub(super) fn complaints(&self, reserved: &BTreeSet<String>) -> Vec<String> {
        let mut found = Vec::new();
        let mut sharing: BTreeMap<&str, Vec<&Type>> = BTreeMap::new();
        for one in &self.types {
            let Type { name, visibility, at } = one;
            sharing.entry(name).or_default().push(one);
            let last = last_word(name);
            if FIELD_NAMES.iter().any(|(known, _)| known == name) {
                continue;
            }
            if NO_NOUNS.split_whitespace().any(|word| word == last) {
                found.push(format!("{at}: type `{name}` ends with `{last}`: name it by a noun"));
            } else if is_participle(last) && *visibility != Visibility::Private {
                found.push(format!("{at}: type `{name}` is named by a participle: name it by a noun"));
            }
            let word = name.to_lowercase();
            let singular = word.strip_suffix('s').unwrap_or(&word);
            let is_error_place = name == "Place" && at.starts_with("error.rs");
            if (reserved.contains(&word) || reserved.contains(singular)) && !is_error_place {
                found.push(format!("{at}: `{name}` means several things: see the second table of \"Words\""));
            }
        }
        for (name, _) in FIELD_NAMES.iter().filter(|(name, _)| !sharing.contains_key(name)) {
            found.push(format!("no type `{name}` any more: take it out of `FIELD_NAMES`"));
        }
        for (name, types) in &sharing {
            let public: Vec<&str> = types
                .iter()
                .filter(|one| one.visibility == Visibility::Public)
                .map(|one| &one.at[..])
                .collect();
            if public.len() > 1 && *name != "Sealed" {
                found.push(format!("public type `{name}` is declared twice: {}", public.join(", ")));
            }
        }
        found
    }

    /// The names that each rule is against, sorted, with their places.
    fn exceptions(&self, reserved: &BTreeSet<String>) -> [(&'static str, Vec<(&str, String)>); 4] {
        let mut sharing: BTreeMap<&str, Vec<&Type>> = BTreeMap::new();
        self.types.iter().for_each(|one| sharing.entry(&one.name).or_default().push(one));
        let twice = |least: Visibility| {
            let places = |types: &Vec<&Type>| {
                let seen = types.iter().filter(|one| one.visibility <= least);
                seen.map(|one| one.at.clone()).collect::<Vec<_>>()
            };
            let all = sharing.iter().map(|(name, types)| (*name, places(types)));
            all.filter(|(_, at)| at.len() > 1).map(|(name, at)| (name, at.join(", "))).collect()
        };
        let is_private = |one: &&Type| {
            let is_known = FIELD_NAMES.iter().any(|(known, _)| *known == one.name);
            one.visibility == Visibility::Private && is_participle(last_word(&one.name)) && !is_known
        };
        let mut participles: Vec<(&str, String)> =
            self.types.iter().filter(is_private).map(|one| (&one.name[..], one.at.clone())).collect();
        let functions = self.functions.iter().filter(|(name, _)| reserved.contains(name));
        let mut functions: Vec<(&str, String)> =
            functions.map(|(name, at)| (&name[..], at.clone())).collect();
        participles.sort_unstable();
        functions.sort_unstable();
        [
            ("private types named by a participle", participles),
            ("names of several types that other files see", twice(Visibility::Crate)),
            ("names of several types", twice(Visibility::Private)),
            ("functions named by a word of the second table", functions),
        ]
    }

    /// Returns the names that `recorded` does not have, and the recorded names that do not exist.
    pub(super) fn added(&self, reserved: &BTreeSet<String>, recorded: &str) -> Vec<String> {
        let mut found = Vec::new();
        for (what, now) in self.exceptions(reserved) {
            let section = recorded.split("# ").find(|section| section.starts_with(&format!("{what}\n")));
            let mut before: Vec<&str> = section.unwrap_or_default().lines().skip(1).collect();
            for (name, at) in now {
                match before.iter().position(|known| *known == name) {
                    Some(location) => drop(before.remove(location)),
                    None => found.push(format!("{at}: `{name}` is added to the {what}: choose another name")),
                }
            }
            found.extend(before.iter().filter(|name| !name.is_empty()).map(|name| {
                format!("`{name}` is no longer among the {what}: take it out of tests/it/tidy/names.txt")
            }));
        }
        found
    }

    /// Writes the list of the names that exist.
    fn record(&self, reserved: &BTreeSet<String>) -> String {
        let section = |(what, names): (&str, Vec<(&str, String)>)| {
            let names: String = names.iter().map(|(name, _)| format!("{name}\n")).collect();
            format!("# {what}\n{names}")
        };
        self.exceptions(reserved).map(section).join("\n")
    }
}

fn is_participle(word: &str) -> bool {
    word.ends_with("ed") && !word.ends_with("eed")
}

/// Who sees an item, and the rest of its line.
fn visibility(line: &str) -> (Visibility, &str) {
    match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with(' ') => (Visibility::Public, rest.trim_start()),
        Some(rest) if rest.starts_with('(') => {
            (Visibility::Crate, rest.split_once(')').map_or("", |(_, rest)| rest.trim_start()))
        }
        _ => (Visibility::Private, line),
    }
}

/// The last word of a name in camel case.
fn last_word(name: &str) -> &str {
    name.rfind(char::is_uppercase).map_or(name, |at| &name[at..])
}

/// The rows of the tables of the section "Words", each its first cell and the rest.
fn rows(table: usize) -> Vec<(&'static str, &'static str)> {
    let text = include_str!("../../../CONTRIBUTING.md");
    let section = text.split("\n## Words\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let tables = section.split("|---|---|\n").nth(table).unwrap();
    let lines = tables.lines().take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split_once('|').unwrap()).collect()
}

/// The words that would mean several things.
pub(super) fn reserved() -> BTreeSet<String> {
    rows(2).iter().map(|(word, _)| word.trim().to_owned()).collect()
}

/// The glossary agrees with the code: every quoted name exists.
#[test]
fn what_the_glossary_quotes_is_in_the_sources() {
    let paths = super::all_sources();
    let all: String = paths.iter().map(|(_, path)| std::fs::read_to_string(path).unwrap()).collect();
    let known: BTreeSet<&str> = super::words(&all).collect();
    let (first, second) = (rows(1), rows(2));
    assert!(first.len() > 15 && second.len() > 5, "{first:?} {second:?}");
    let cells = first.iter().chain(&second).flat_map(|(word, meaning)| [*word, *meaning]);
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).flat_map(super::words);
    let missing: Vec<&str> = quoted.filter(|word| !word.is_empty() && !known.contains(word)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The types of several words in the sentences of a file's documentation that are not marked as code. Lines of code are passed over.
fn unmarked<'a>(source: &'a str, types: &BTreeSet<&str>) -> Vec<&'a str> {
    let (mut found, mut in_code) = (Vec::new(), false);
    for line in source.lines().map(str::trim_start) {
        let Some(text) = line.strip_prefix("///").or(line.strip_prefix("//!")) else {
            in_code = false;
            continue;
        };
        if text.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        let sentence: Vec<&str> = text.split('`').step_by(2).collect();
        let is_code =
            |part: &&str| part.contains(['{', '}', '=']) || part.contains("::") || part.contains("->");
        if in_code || sentence.iter().any(is_code) {
            continue;
        }
        let plain = sentence.into_iter().flat_map(super::words);
        let humps = |word: &str| word.matches(char::is_uppercase).count();
        found.extend(plain.filter(|word| humps(word) > 1 && types.contains(word)));
    }
    found
}

/// A word of a sentence that a renamed type replaced by mistake is found.
#[test]
fn sentences_mark_the_names_of_types() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = super::all_sources().into_iter().map(|(_, path)| path).collect();
    let mut names = Names::default();
    // Update rules have the names of algorithms, which sentences are about.
    paths.retain(|path| !path.starts_with(root.join("src/optimizer/rules.rs")));
    paths.iter().for_each(|path| names.add("", &std::fs::read_to_string(path).unwrap()));
    let types: BTreeSet<&str> = names.types.iter().map(|one| &one.name[..]).collect();
    for folder in [
        "models",
        "tests",
        "benches",
        "crates/text/tests",
        "crates/recipes/tests",
        "crates/serve/tests",
        "crates/command/tests",
    ] {
        paths.extend(super::sources(&root.join(folder)));
    }
    let mut complaints = Vec::new();
    for path in &paths {
        let source = std::fs::read_to_string(path).unwrap();
        complaints.extend(unmarked(&source, &types).iter().map(|name| format!("{}: {name}", path.display())));
    }
    assert!(complaints.is_empty(), "types outside of backticks:\n{}", complaints.join("\n"));
    let source = "/// UpdateGate rules, and `UpdateGate::Keeps`.\n/// ```\n/// UpdateGate\n/// ```\nfn f() {}\n//! A gate.\n";
    assert_eq!(unmarked(source, &BTreeSet::from(["UpdateGate"])), ["UpdateGate"]);
}

#[test]
fn exceptions_of_names_become_fewer() {
    let (mut names, reserved) = (Names::default(), reserved());
    for (name, path) in super::all_sources() {
        names.add(&name, &std::fs::read_to_string(&path).unwrap());
    }
    if std::env::var_os("UNPADDED_WRITE").is_some() {
        return std::fs::write(RECORDED, names.record(&reserved)).unwrap();
    }
    let added = names.added(&reserved, &std::fs::read_to_string(RECORDED).unwrap());
    assert!(added.is_empty(), "\n{}", added.join("\n"));
}

/// Every rule can fail, and no rule fails on correct code.
#[test]
fn each_rule_of_names_bites() {
    let reserved = BTreeSet::from(["part".to_owned(), "place".to_owned()]);
    let complaints = |source: &str| {
        let mut names = Names::default();
        names.add("x/a.rs", source);
        names.add("x/b.rs", "pub struct Stacked;\npub trait Sealed {}\n");
        names.complaints(&reserved).join("\n")
    };
    for (source, expected) in [
        ("pub struct Token;\npub(crate) enum Speed {}\nstruct Red;\n", ""),
        ("    type Sum;\n    pub struct Swish = swish {}\n    /// struct Wanted;\n", ""),
        ("pub(super) struct Wanted<'a>(&'a str);\n", "x/a.rs:1: type `Wanted` is named by a participle"),
        ("struct RowFrom;\n", "type `RowFrom` ends with `From`"),
        ("//! Two.\npub enum Which {\n", "x/a.rs:2: type `Which` ends with `Which`"),
        ("pub struct Room;\npub struct Room;\n", "public type `Room` is declared twice: x/a.rs:1, x/a.rs:2"),
        ("struct Parts;\n", "`Parts` means several things"),
        ("#[cfg(test)]\nmod tests {\n    struct Parts;\n}\n", ""),
    ] {
        let found = complaints(source);
        assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{source}: {found}");
    }

    // What is added to a recorded list is named with its place, and what is no longer there is named, too.
    let mut names = Names::default();
    names.add("x/a.rs", "struct Kept;\nstruct Joined;\nfn part() {}\n");
    names.add("x/b.rs", "struct Joined;\n");
    let recorded = names.record(&reserved);
    assert!(names.added(&reserved, &recorded).is_empty(), "{recorded}");
    names.add("x/c.rs", "struct Kept;\nstruct Split;\nfn part() {}\n");
    assert_eq!(
        names.added(&reserved, &format!("{recorded}place\n")),
        [
            "x/a.rs:1, x/c.rs:1: `Kept` is added to the names of several types: choose another name",
            "x/c.rs:3: `part` is added to the functions named by a word of the second table: choose another name",
            "`place` is no longer among the functions named by a word of the second table: take it out of \
             tests/it/tidy/names.txt",
        ]
    );
}
