//! The programs of the guide. A page shows the lines that teach; its program here has every line, and runs.
//!
//! rustdoc could hide the other lines by `# `, but code hosts and package pages show them.
#![allow(clippy::all, unused)]

pub(crate) mod pages;

use std::path::Path;

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
    "generation": generation;
    "lod": lod;
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
