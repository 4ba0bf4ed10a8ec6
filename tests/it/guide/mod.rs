//! The programs of the guide. A page shows the lines that teach; its program here has every line, and runs.
//!
//! rustdoc could hide the other lines by `# `, but code hosts and package pages show them.
#![allow(clippy::all, unused)]

use std::path::Path;

macro_rules! pages {
    ($($page:ident),* $(,)?) => {
        $(mod $page;)*

        const PAGES: &[(&str, &str)] = &[$((stringify!($page), include_str!(concat!(stringify!($page), ".rs")))),*];
    };
}

pages! {
PAGES
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
