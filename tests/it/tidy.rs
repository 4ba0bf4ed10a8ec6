//! The invariants of the architecture, checked in the sources: imports point downwards, modules have a description,
//! `unsafe` stays in `kernels/` and the command's allocator, bincode in `wire/`, and files stay readable in one sitting. Files do not use each other
//! in circles, but for those in [`circles::ALLOWED`]. Names keep to the glossary ([`words`]), and models to the public API.

mod circles;
mod dialect;
mod uses;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// The layers, bottom first. A module may use those before it.
const LAYERS: [&str; 26] = [
    "printable",
    "error",
    "memory",
    "reserve",
    "lod",
    "kernels",
    "tensor",
    "wire",
    "operator",
    "program",
    "ops",
    "executor",
    "op",
    "optimizer",
    "layers",
    "data",
    "checkpoint",
    "formats",
    "metrics",
    "on_data",
    "predict",
    "parallel",
    "store",
    "train",
    "prelude",
    "guide",
];
/// The other crates, in `crates/`, bottom first; Cargo checks which of them uses which.
pub(super) const CRATES: [&str; 4] = ["text", "recipes", "serve", "command"];
const MAX_LINES: usize = 600;
/// The most lines of each crate, without files of unit tests, as `benches/size` counts them. Lower a number when a crate has become
/// smaller; raise one only if a feature is worth the lines.
const CEILINGS: [(&str, usize); 5] =
    [("", 118_280), ("text", 17_000), ("recipes", 11_160), ("serve", 3_310), ("command", 9_640)];
/// The one file outside of `kernels/` with `unsafe`: the trait of allocators is unsafe.
const ALLOCATOR: &str = "command/allocator.rs";

/// Returns the sources of all crates, each with its path below `src/`, or below the name of its crate.
fn all_sources() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let crates = CRATES.map(|name| (format!("crates/{name}/src"), format!("{name}/")));
    for (folder, name) in std::iter::once(("src".to_owned(), String::new())).chain(crates) {
        let folder = root.join(folder);
        for path in sources(&folder) {
            let below = path.strip_prefix(&folder).unwrap().to_string_lossy().replace('\\', "/");
            let is_root = below == "main.rs" || (below == "lib.rs" && !name.is_empty());
            let below = if is_root { "mod.rs" } else { &below };
            found.push((format!("{name}{below}"), path));
        }
    }
    found
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/")
}

/// Returns the complaints about a source file, by its path as in [`all_sources`].
fn complaints(path: &str, source: &str) -> Vec<String> {
    let layer = path.split(['/', '.']).next().unwrap_or_default();
    let is_test = is_test(path);
    let rank = LAYERS.iter().position(|&l| l == layer);
    let mut found = Vec::new();
    if !source.starts_with("//!") {
        found.push(format!("{path}: no `//!` at its start that says what it is"));
    }
    let lines = source.lines().count();
    if lines > MAX_LINES {
        found.push(format!("{path}: {lines} lines, at most {MAX_LINES}: it is asking to be two files"));
    }
    if rank.is_none() && layer != "lib" && !CRATES.contains(&layer) {
        found.push(format!("{path}: `{layer}` is not in the list of layers: give it its place"));
    }
    for (i, line) in code(source) {
        let location = format!("{path}:{}", i + 1);
        if layer != "kernels" && path != ALLOCATOR && words(&line).any(|word| word == "unsafe") {
            found.push(format!("{location}: `unsafe` outside `kernels/`"));
        }
        if layer != "wire" && words(&line).any(|word| word == "bincode") {
            found.push(format!("{location}: bincode outside `wire`"));
        }
    }
    let Some(rank) = rank.filter(|_| !is_test) else { return found };
    for (i, used) in imports(source) {
        let location = format!("{path}:{}", i + 1);
        match LAYERS.iter().position(|&l| l == used) {
            Some(other) if other > rank => {
                found.push(format!("{location}: `{layer}` uses `{used}`, a layer above it"))
            }
            // The crate's own name for something would hide which layer it comes from; macros have no other.
            None if used.starts_with(char::is_uppercase) => {
                found.push(format!("{location}: `crate::{used}`: import it from its module"));
            }
            _ => {}
        }
    }
    found
}

fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// The lines with comments and the insides of strings taken away.
fn code(source: &str) -> Vec<(usize, String)> {
    let strip = |line: &str| {
        let (mut out, mut quoted, mut chars) = (String::new(), false, line.chars().peekable());
        while let Some(c) = chars.next() {
            match c {
                '\\' if quoted => drop(chars.next()),
                '"' => quoted = !quoted,
                '/' if !quoted && chars.peek() == Some(&'/') => break,
                c if !quoted => out.push(c),
                _ => {}
            }
        }
        out
    };
    source.lines().map(strip).enumerate().collect()
}

/// The names right after `crate::` (in a list `crate::{a, b::c}`, all of them) and their lines, before the unit tests.
fn imports(source: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let lines = code(source);
    for (i, line) in &lines {
        let opens = |next: &(usize, String)| next.1.contains("mod ") && next.1.trim_end().ends_with('{');
        if line.trim_start().starts_with("#[cfg(test)]") && lines.get(i + 1).is_some_and(opens) {
            break;
        }
        // `$crate::` is read where a macro is called, and an exported macro can name only what is public.
        for (at, _) in line.match_indices("crate::").filter(|(at, _)| !line[..*at].ends_with('$')) {
            let rest: String = std::iter::once(&line[at + "crate::".len()..])
                .chain(lines[i + 1..].iter().take(40).map(|(_, line)| line.as_str()))
                .collect::<Vec<_>>()
                .join(" ");
            let names = match rest.strip_prefix('{') {
                Some(list) => heads(list),
                None => vec![words(&rest).next().unwrap_or_default().to_owned()],
            };
            found.extend(names.into_iter().map(|name| (*i, name)));
        }
    }
    found
}

/// The first name of each entry of a list that ends with its closing brace.
fn heads(list: &str) -> Vec<String> {
    let (mut depth, mut entries) = (0, vec![String::new()]);
    for c in list.chars() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => entries.push(String::new()),
            c if depth == 0 => entries.last_mut().unwrap().push(c),
            _ => {}
        }
    }
    let head = |entry: &String| words(entry.trim()).next().unwrap_or_default().to_owned();
    entries.iter().map(head).filter(|head| !head.is_empty()).collect()
}

/// Returns the files of Rust code in a folder.
pub(crate) fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
    found
}

#[test]
fn sources_are_tidy() {
    let paths = all_sources();
    assert!(paths.len() > 10);
    let (mut found, mut all, mut names) = (Vec::new(), uses::Sources::default(), words::Names::default());
    let mut lines = std::collections::BTreeMap::<&str, usize>::new();
    for (name, path) in paths {
        let source = fs::read_to_string(&path).unwrap();
        if !is_test(&name) {
            let crate_name = CRATES
                .into_iter()
                .find(|crate_name| name.starts_with(&format!("{crate_name}/")))
                .unwrap_or_default();
            *lines.entry(crate_name).or_default() += source.lines().count();
        }
        found.extend(complaints(&name, &source));
        all.add(&name, &source);
        names.add(&name, &source);
    }
    let uses = all.uses();
    assert!(uses.values().map(|used| used.len()).sum::<usize>() > 500);
    for (name, most) in CEILINGS {
        let lines = lines.get(name).copied().unwrap_or_default();
        if lines > most || lines + 200 < most {
            found.push(format!(
                "crate `{name}`: {lines} lines of {most}: change its ceiling in tests/it/tidy.rs"
            ));
        }
    }
    found.extend(circles::complaints(&uses, circles::ALLOWED));
    found.extend(circles::upwards(&uses));
    found.extend(names.complaints(&words::reserved()));
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Modules of the crate that are no part of its public API. `executor` is for those who run programs themselves.
const INTERNALS: [&str; 2] = ["unpadded::kernels", "unpadded::wire"];

#[test]
fn models_use_the_public_api_and_stay_short() {
    let paths = sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models"));
    assert!(paths.len() > 10);
    for path in paths {
        let source = fs::read_to_string(&path).unwrap();
        let internal = INTERNALS.iter().find(|internal| source.contains(**internal));
        assert_eq!(internal, None, "{}", path.display());
        let lines = source.lines().count();
        assert!(lines <= 250, "{}: {lines} lines: an example is to be read at one sitting", path.display());
    }
}

/// Every rule can fail, and no rule fails on correct code.
#[test]
fn each_rule_bites() {
    let check = |path: &str, source: &str, expected: &[&str]| {
        let found = complaints(path, source);
        let fits = found.len() == expected.len() && found.iter().zip(expected).all(|(f, e)| f.contains(e));
        assert!(fits, "{path}: {found:?}, expected {expected:?}");
    };
    check("program/x.rs", "//! Fine.\nuse crate::error::Result;\nuse crate::with_float;\n", &[]);
    check(
        "program/x.rs",
        "//! Up.\nuse crate::ops::catalogue;\n",
        &["program/x.rs:2: `program` uses `ops`, a layer above"],
    );
    check("lod.rs", "//! Up.\nfn f(x: crate::tensor::Dense) {}\n", &["`lod` uses `tensor`"]);
    let list = "//! Up.\nuse crate::{\n    error::{Error, Result},\n    train::Trainer,\n};\n";
    check("tensor/x.rs", list, &["x.rs:2: `tensor` uses `train`"]);
    check(
        "ops/x.rs",
        "//! Root.\nuse crate::{Error, program};\n",
        &["`crate::Error`: import it from its module"],
    );
    check(
        "ops/x.rs",
        "//! Said.\n/// See [`crate::train`].\nconst X: &str = \"crate::train unsafe bincode\"; // unsafe\n",
        &[],
    );
    check("program/x.rs", "//! Tests.\n#[cfg(test)]\nmod tests {\n    use crate::ops::catalogue;\n}\n", &[]);
    let outside = "//! Tests elsewhere.\n#[cfg(test)]\nmod tests;\nuse crate::ops::catalogue;\n";
    check("program/x.rs", outside, &["x.rs:4: `program` uses `ops`"]);
    check("program/x/tests.rs", "//! Tests.\nuse crate::ops::catalogue;\n", &[]);
    check("ops/x.rs", "use std::fmt;\n", &["no `//!`"]);
    check("ops/x.rs", "//! Unsafe.\nunsafe fn f() {}\n", &["x.rs:2: `unsafe` outside"]);
    check("ops/x.rs", "//! Allowed.\n#![deny(unsafe_code)]\n", &[]);
    check("kernels/x.rs", "//! Unsafe.\nunsafe fn f() {}\n", &[]);
    check(ALLOCATOR, "//! Unsafe.\nunsafe fn f() {}\n", &[]);
    check("command/x.rs", "//! Unsafe.\nunsafe fn f() {}\n", &["x.rs:2: `unsafe` outside"]);
    check("train/x.rs", "//! Bincode.\nuse bincode::config;\n", &["x.rs:2: bincode outside"]);
    check("wire.rs", "//! Bincode.\nuse bincode::config;\n", &[]);
    check("ops/x.rs", &"//! Long.\n".repeat(601), &["601 lines, at most 600"]);
    check("utils/x.rs", "//! Where?\n", &["`utils` is not in the list of layers"]);
}
