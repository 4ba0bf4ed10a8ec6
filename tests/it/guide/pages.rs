//! Checks of the pages of a guide against their programs, for each crate that has a guide.

use std::collections::BTreeSet;
use std::path::Path;

use unpadded::layers::Embedding;
use unpadded::ops::Pool;
use unpadded::{Builder, DType, Result, Var};

/// A folder of a program, which is removed at its end.
pub(crate) struct Folder(std::path::PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("unpadded-guide-{name}-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The model of the page "A first model", small.
pub(crate) struct FirstModel {
    pub(crate) net: Builder,
    pub(crate) words: Var,
    pub(crate) label: Var,
    pub(crate) h: Var,
    pub(crate) logits: Var,
    pub(crate) loss: Var,
}

pub(crate) fn first_model() -> FirstModel {
    let net = Builder::new().seed(1);
    let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    let h = words.embedding(Embedding::new(10, 8).sparse()).lstm(8);
    let logits = h.sequence_pool(Pool::Last).linear(2);
    let loss = logits.cross_entropy(label).mean();
    FirstModel { net, words, label, h, logits, loss }
}

/// The calls that run a model.
pub(crate) const RUNS: [&str; 7] = ["check_gradients(", ".fit(", ".evaluate(", ".run(", ".run_on(", ".likeliest(", "interpret("];

/// The lines of each block of Rust of a page.
pub(crate) fn blocks(page: &str) -> Vec<Vec<&str>> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("```rust") {
            blocks.push(lines.by_ref().take_while(|line| *line != "```").collect());
        } else if line.starts_with("```") {
            lines.by_ref().take_while(|line| *line != "```").for_each(drop);
        }
    }
    blocks
}

/// What of a page is not in its programs, in order: the first line, with the number of its block.
pub(crate) fn missing(page: &str, programs: &str) -> Option<String> {
    let (blocks, programs): (_, Vec<&str>) = (blocks(page), programs.split("\nfn ").skip(1).collect());
    if blocks.len() != programs.len() {
        return Some(format!("{} blocks of Rust, {} programs", blocks.len(), programs.len()));
    }
    for (at, (block, program)) in blocks.iter().zip(&programs).enumerate() {
        let mut lines = program.lines().map(str::trim);
        for line in block.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
            if line.starts_with("# ") || !lines.any(|other| other == line) {
                return Some(format!("block {}: {line}", at + 1));
            }
        }
    }
    None
}

/// The name of each program that builds a model and does not run it.
pub(crate) fn without_run(programs: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for program in programs.split("\nfn ").skip(1) {
        let (name, code) = program.split_once('(').unwrap_or((program, ""));
        let code = code.split("\n}\n").next().unwrap_or_default();
        let builds = code.contains("Builder::new") || code.contains("first_model()");
        if builds && !RUNS.iter().any(|run| code.contains(run)) {
            found.push(name);
        }
    }
    found
}

/// Complains about programs that are no tests, about models that no program runs, unless `allowed` has the page and the program
/// with a reason, and about lines of a page in `folder` that its programs do not have.
#[track_caller]
pub(crate) fn check(folder: &Path, pages: &[(&str, &str)], running: &[&str], allowed: &[(&str, &str, &str)]) {
    for (page, programs) in pages {
        let tests = programs.matches("\n#[test]\nfn ").count();
        assert_eq!((tests, programs.contains("#[ignore")), (programs.matches("\nfn ").count(), false), "{page}");
    }
    let models = pages.iter().filter(|(page, _)| running.contains(page));
    let found: BTreeSet<(&str, &str)> =
        models.flat_map(|(page, programs)| without_run(programs).into_iter().map(move |name| (*page, name))).collect();
    let allowed: BTreeSet<(&str, &str)> = allowed.iter().map(|&(page, name, _)| (page, name)).collect();
    assert_eq!(found, allowed, "left: programs without one of {RUNS:?}; right: those that are allowed");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let (name, page) = (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap());
        let programs = pages.iter().find(|(page, _)| *page == name).map_or("", |(_, programs)| *programs);
        assert!(path.extension().is_some_and(|e| e == "rs") || missing(&page, programs).is_none(), "{name}.md: {:?}", missing(&page, programs));
    }
}

#[test]
fn the_rule_of_runs_bites() {
    let program = |code: &str| format!("//! Page.\n\n#[test]\nfn a() {{\n    {code}\n}}\n");
    assert_eq!(without_run(&program("let net = Builder::new();")), ["a"]);
    assert_eq!(without_run(&program("let net = Builder::new(); trainer.fit(&data)?;")), [""; 0]);
    assert_eq!(without_run(&program("let bags = words.bags(texts)?;")), [""; 0]);
    assert_eq!(without_run(&program("let model = first_model();")), ["a"]);
}

/// The check fails on a line that no program has, and on lines in another order.
#[test]
fn the_check_of_the_pages_bites() {
    let programs = "\nfn a() {\n    let x = 1;\n    let y = 2;\n}\n";
    let page = |code: &str| format!("# A\n\n```sh\n# fine\n```\n\n```rust\n{code}\n```\n");
    assert_eq!(missing(&page("let x = 1;\n\nlet y = 2;"), programs), None);
    assert_eq!(missing(&page("let y = 2;"), programs), None);
    assert_eq!(missing(&page("let y = 2;\nlet x = 1;"), programs), Some("block 1: let x = 1;".to_owned()));
    assert_eq!(missing(&page("let z = 1;"), programs), Some("block 1: let z = 1;".to_owned()));
    assert_eq!(missing("none", programs), Some("0 blocks of Rust, 1 programs".to_owned()));
}
