//! The programs of the guide. A page shows the lines that teach; its program here has every line, and runs.
//!
//! rustdoc could hide the other lines by `# `, but code hosts and package pages show them.
#![allow(clippy::all, unused)]

pub(crate) mod pages;

use std::path::Path;

use pages::{FirstModel, Folder, first_model};

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
    "generation": generation;
    "lod": lod;
    "sparse": sparse;
    "structured": structured;
}

/// Page, program and reason of each program that builds a model and does not run it.
const ALLOWED: [(&str, &str, &str); 2] = [
    ("cells", "operators_in_a_step", "the builder refuses the model"),
    ("lod", "in_a_program", "it declares feeds, and there is nothing to compute"),
];

#[test]
fn the_pages_show_lines_of_their_programs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    pages::check(&folder, PAGES, &["cells", "lod", "sparse", "structured"], &ALLOWED);
}
