//! The programs of the guide. A page shows the lines that teach; its program here has every line, and runs.
//!
//! rustdoc could hide the other lines by `# `, but code hosts and package pages show them.
#![allow(clippy::all, unused)]

#[path = "../../../../../tests/it/guide/pages.rs"]
mod pages;

use std::collections::BTreeSet;
use std::path::Path;

use pages::{FirstModel, Folder, first_model};
use unpadded::data::{Field, Loader, Samples};
use unpadded::{Builder, DType, Result};
use unpadded_recipes::{Config, Task};

macro_rules! pages {
    ($($page:literal: $($file:ident)+;)*) => {
        $($(mod $file;)+)*

        /// Each page, with the sources of its programs.
        const PAGES: &[(&str, &str)] = &[$(($page, concat!($(include_str!(concat!(stringify!($file), ".rs"))),+))),*];
    };
}

pages! {
    "fine_tuning": fine_tuning;
    "first_model": first_model;
    "how_do_i": how_do_i how_do_i_beyond;
    "memory": memory;
}

/// Texts whose label is known by their last word.
fn labelled() -> Result<Loader> {
    let samples: Samples = (0..40).map(|i| vec![Field::from(vec![i % 7, 3, 7 + i % 2]), (i % 2).into()]).collect();
    Loader::new(samples, &["words", "label"])
}

/// Page, program and reason of each program that builds a model and does not run it.
const ALLOWED: [(&str, &str, &str); 3] = [
    ("first_model", "the_model", "the next program trains the same model"),
    ("how_do_i", "export_to_pytorch", "it writes weights to a file, and checks the names there"),
    ("first_model", "mistakes", "the builder refuses the model"),
];

#[test]
fn the_pages_show_lines_of_their_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    pages::check(&folder, PAGES, &["first_model", "how_do_i"], &ALLOWED);
}

#[test]
fn every_setting_is_on_its_page_of_the_guide() {
    let page = include_str!("../../../src/guide/settings.md");
    let keys = Task::ALL.iter().flat_map(|&task| Config::keys(task)).map(|key| format!("`{key}`"));
    let missing: BTreeSet<String> = keys.filter(|key| !page.contains(key.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}


/// The lines of the first block of a language behind a heading.
fn block<'a>(text: &'a str, heading: &str, language: &str) -> Vec<&'a str> {
    let section = text.split(&format!("\n{heading}\n")).nth(1).unwrap();
    let block = section.split(&format!("\n```{language}\n")).nth(1).unwrap();
    block.split("\n```").next().unwrap().lines().collect()
}

#[test]
fn the_guide_prints_what_its_mistakes_print() {
    let page = include_str!("../../../src/guide/first_model.md");
    let (code, printed) = (block(page, "## Mistakes", "rust"), block(page, "## Mistakes", "text"));

    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[8], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let h = x + x.lstm(16);
    let gate = x.slice(4..12).sigmoid();
    let _ = (gate * h).linear(2);
    let _ = x.linear(2).cross_entropy(label).mean();
    let error = net.finish().unwrap_err();

    // Without the lines, which are this file's here.
    let without_line = |line: &str| line.split(" (at ").next().unwrap().to_owned();
    let text: Vec<String> = printed.iter().map(|line| without_line(line)).collect();
    assert_eq!(text, format!("{error:#}").lines().collect::<Vec<_>>());
    // The printed lines and columns agree with the code.
    let places = printed.iter().filter_map(|line| line.split_once(" (at src/main.rs:"));
    let calls: Vec<&str> = places
        .map(|(_, position)| {
            let (line, column) = position.trim_end_matches(')').split_once(':').unwrap();
            &code[line.parse::<usize>().unwrap() - 1][column.parse::<usize>().unwrap() - 1..]
        })
        .collect();
    let expected = ["x + x.lstm(16)", "slice(4..12)", "cross_entropy(label)"];
    assert_eq!(calls.len(), expected.len());
    for (call, expected) in calls.iter().zip(expected) {
        assert!(call.starts_with(expected), "{call}");
    }
}
