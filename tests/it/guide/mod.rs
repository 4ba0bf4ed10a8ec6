//! The programs of the guide. A page shows the lines that teach; its program here has every line, and runs.
//!
//! rustdoc could hide the other lines by `# `, but code hosts and package pages show them.
#![allow(clippy::all, unused)]

use std::collections::BTreeSet;
use std::path::Path;

use unpadded::recipes::{Config, Task};

use unpadded::data::{Field, Loader, Samples};
use unpadded::layers::Embedding;
use unpadded::ops::Pool;
use unpadded::{Builder, DType, Result, Var};

macro_rules! pages {
    ($($page:literal: $($file:ident)+;)*) => {
        $($(mod $file;)+)*

        /// Each page, with the sources of its programs.
        const PAGES: &[(&str, &str)] = &[$(($page, concat!($(include_str!(concat!(stringify!($file), ".rs"))),+))),*];
    };
}

pages! {
    "cells": cells;
    "coming_from_keras": coming_from_keras;
    "coming_from_paddle": coming_from_paddle;
    "coming_from_pytorch": coming_from_pytorch;
    "fine_tuning": fine_tuning;
    "first_model": first_model;
    "generation": generation;
    "how_do_i": how_do_i how_do_i_beyond;
    "lod": lod;
    "memory": memory;
    "sparse": sparse;
    "structured": structured;
}

/// A folder of a program, which is removed at its end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("unpadded-guide-{name}-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }

    fn file(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).ok();
    }
}

/// The model of the page "A first model", small.
struct FirstModel {
    net: Builder,
    words: Var,
    label: Var,
    h: Var,
    logits: Var,
    loss: Var,
}

fn first_model() -> FirstModel {
    let net = Builder::new().seed(1);
    let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    let h = words.embedding(Embedding::new(10, 8).sparse()).lstm(8);
    let logits = h.sequence_pool(Pool::Last).linear(2);
    let loss = logits.cross_entropy(label).mean();
    FirstModel { net, words, label, h, logits, loss }
}

/// Texts whose label is known by their last word.
fn labelled() -> Result<Loader> {
    let samples: Samples = (0..40).map(|i| vec![Field::from(vec![i % 7, 3, 7 + i % 2]), (i % 2).into()]).collect();
    Loader::new(samples, &["words", "label"])
}

/// The lines of each block of Rust of a page.
fn blocks(page: &str) -> Vec<Vec<&str>> {
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
fn missing(page: &str, programs: &str) -> Option<String> {
    let (blocks, programs): (_, Vec<&str>) = (blocks(page), programs.split("\nfn ").skip(1).collect());
    if blocks.len() != programs.len() {
        return Some(format!("{} blocks of Rust, {} programs", blocks.len(), programs.len()));
    }
    for (at, (block, program)) in blocks.iter().zip(&programs).enumerate() {
        let mut lines = program.lines().map(str::trim);
        for line in block.iter().map(|line| line.trim()).filter(|line| !line.is_empty()) {
            if line.starts_with("# ") || !lines.any(|of| of == line) {
                return Some(format!("block {}: {line}", at + 1));
            }
        }
    }
    None
}

/// Page, program and reason of each program that builds a model and does not run it.
const ALLOWED: [(&str, &str, &str); 5] = [
    ("cells", "operators_in_a_step", "the builder refuses the model"),
    ("first_model", "the_model", "the next program trains the same model"),
    ("how_do_i", "export_to_pytorch", "it writes weights to a file, and checks the names there"),
    ("lod", "in_a_program", "it declares feeds, and there is nothing to compute"),
    ("first_model", "mistakes", "the builder refuses the model"),
];

/// The calls that run a model.
const RUNS: [&str; 7] = ["check_gradients(", ".fit(", ".evaluate(", ".run(", ".run_on(", ".likeliest(", "interpret("];

/// The pages whose models run.
const RUNNING: [&str; 6] = ["cells", "first_model", "how_do_i", "lod", "sparse", "structured"];

/// The name of each program that builds a model and does not run it.
fn without_run(programs: &str) -> Vec<&str> {
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

/// Every program is a test that runs.
#[test]
fn no_program_of_the_guide_is_only_compiled() {
    for (page, programs) in PAGES {
        let tests = programs.matches("\n#[test]\nfn ").count();
        assert_eq!((tests, programs.contains("#[ignore")), (programs.matches("\nfn ").count(), false), "{page}");
    }
}

#[test]
fn models_of_the_guide_run() {
    let pages = PAGES.iter().filter(|(page, _)| RUNNING.contains(page));
    let mut found: Vec<(&str, &str)> =
        pages.flat_map(|(page, programs)| without_run(programs).into_iter().map(move |name| (*page, name))).collect();
    let mut allowed: Vec<(&str, &str)> = ALLOWED.iter().map(|&(page, name, _)| (page, name)).collect();
    allowed.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, allowed, "left: programs without one of {RUNS:?}; right: those that `ALLOWED` lists");
}

#[test]
fn the_rule_of_runs_bites() {
    let program = |code: &str| format!("//! Page.\n\n#[test]\nfn a() {{\n    {code}\n}}\n");
    assert_eq!(without_run(&program("let net = Builder::new();")), ["a"]);
    assert_eq!(without_run(&program("let net = Builder::new(); trainer.fit(&data)?;")), [""; 0]);
    assert_eq!(without_run(&program("let bags = words.bags(texts)?;")), [""; 0]);
    assert_eq!(without_run(&program("let model = first_model();")), ["a"]);
}

#[test]
fn every_setting_is_on_its_page_of_the_guide() {
    let page = include_str!("../../../src/guide/settings.md");
    let keys = Task::ALL.iter().flat_map(|&task| Config::keys(task)).map(|key| format!("`{key}`"));
    let missing: BTreeSet<String> = keys.filter(|key| !page.contains(key.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn the_pages_show_lines_of_their_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let (name, page) = (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(&path).unwrap());
        let programs = PAGES.iter().find(|(page, _)| *page == name).map_or("", |(_, programs)| *programs);
        assert!(path.extension().is_some_and(|e| e == "rs") || missing(&page, programs).is_none(), "{name}.md: {:?}", missing(&page, programs));
    }
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
