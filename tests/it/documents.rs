//! Documents compared with the library: methods by family, and the messages in the guide.

use std::collections::BTreeSet;

use unpadded::ops;

use crate::operator_page::sources_of_operators;

/// Every method of `impl Builder` in `program` and `layers` is in the table at the head of `Builder`, and every method in `ops` is
/// on the page of operators; that those on these lists exist is seen by the links of the documents.
#[test]
fn every_method_of_the_builder_is_in_a_family() {
    let builder = include_str!("../../src/program/construction/builder.rs");
    let table = builder.lines().filter(|line| line.starts_with("/// | "));
    let mut listed: BTreeSet<&str> = table.flat_map(|line| links(line, "(Self::")).collect();
    listed.extend(links(include_str!("../../src/ops/operators.md"), "(Builder::"));
    let ops = sources_of_operators();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let sources = [
        builder,
        include_str!("../../src/program/construction/naming.rs"),
        include_str!("../../src/program/construction/carried.rs"),
        include_str!("../../src/program/construction/step.rs"),
        include_str!("../../src/layers/layer.rs"),
        include_str!("../../src/layers/recurrent.rs"),
        include_str!("../../src/layers/stacked.rs"),
        include_str!("../../src/layers/linear.rs"),
        include_str!("../../src/layers/attention.rs"),
        include_str!("../../src/layers/conv.rs"),
        include_str!("../../src/layers/qrnn.rs"),
        include_str!("../../src/layers/sru.rs"),
        include_str!("../../src/layers/transformer.rs"),
        include_str!("../../src/layers/norm.rs"),
        include_str!("../../src/layers/highway.rs"),
        include_str!("../../src/layers/embedding.rs"),
        include_str!("../../src/layers/embedding_bag.rs"),
    ];
    for source in sources.into_iter().chain(ops.iter().map(String::as_str)) {
        let mut own = false;
        for line in source.lines() {
            if line.trim_start().starts_with("impl Builder") || line.starts_with("builder_methods! {") {
                own = true;
            } else if line == "}" {
                own = false;
            }
            // In `operator!`, methods have no `pub`; in other macros, the name is a parameter of the macro.
            let of_operator =
                line.strip_prefix("        fn ").or(line.split_once("{ fn ").map(|(_, name)| name));
            if let Some(method) = line.strip_prefix("    pub fn ").or(of_operator).filter(|_| own) {
                known.extend(method.split(['(', '<', '[']).next().filter(|name| !name.starts_with('$')));
            }
        }
    }
    // The constructors, which the example of `Builder` shows.
    let constructors = ["new", "with_registry", "of"];
    let missing: Vec<_> =
        known.iter().filter(|m| !listed.contains(*m) && !constructors.contains(m)).collect();
    assert!(known.len() > 130 && missing.is_empty(), "{missing:?}");
}

/// Returns the text after each `before`, up to the closing parenthesis.
fn links<'a>(text: &'a str, before: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(before).skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn every_operator_has_a_worked_example() {
    let catalogue = ops::catalogue();
    let without = |kind: &&str| !catalogue.declaration(kind).unwrap().text.contains("assert");
    let without: Vec<&str> = catalogue.kinds().filter(without).collect();
    // The docs of `ops::Schedule` contain its formulas and its example.
    assert_eq!(without, ["learning_rate"]);
}

/// Files and folders in backticks (with a slash or a file's extension), or linked, exist.
#[test]
fn the_files_and_folders_that_contributing_names_are_there() {
    let text = include_str!("../../CONTRIBUTING.md");
    let quoted = text.split('`').skip(1).step_by(2).filter(|quoted| {
        let file = [".md", ".rs", ".toml"].iter().any(|end| quoted.ends_with(end));
        !quoted.contains(char::is_whitespace) && (file || quoted.contains('/'))
    });
    let named: BTreeSet<&str> = quoted.chain(links(text, "](")).collect();
    assert!(named.len() > 15, "{named:?}");
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let missing: Vec<&&str> = named.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

/// The chain of calls of a training step in ARCHITECTURE: each function is in its file, and its body calls the next one.
#[test]
fn the_chain_of_a_step_is_the_chain_of_calls() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = include_str!("../../ARCHITECTURE.md");
    let section = text.split("## From `Trainer::fit` to an operator").nth(1).unwrap();
    let rows: Vec<&str> = section.lines().skip_while(|line| !line.starts_with("| 1")).collect();
    let rows: Vec<&str> = rows.into_iter().take_while(|line| line.starts_with("| ")).collect();
    assert!((4..=7).contains(&rows.len()), "{} rooms", rows.len());
    let (mut file, mut chain) = ("", Vec::new());
    for row in rows {
        for name in row.split('|').nth(4).unwrap().split('`').skip(1).step_by(2) {
            match name.strip_suffix(".rs") {
                Some(_) => file = name,
                None => chain.push((file, name)),
            }
        }
    }
    assert!(chain.len() > 15, "{chain:?}");
    for pair in chain.windows(2) {
        let ((file, name), (_, next)) = (pair[0], pair[1]);
        let source = std::fs::read_to_string(root.join("src").join(file)).unwrap();
        let head = format!("fn {name}");
        let bodies = source.split(&head).skip(1).filter(|rest| rest.starts_with(['(', '<']));
        let bodies: Vec<&str> = bodies.map(|rest| rest.split("\n    }\n").next().unwrap()).collect();
        assert!(!bodies.is_empty(), "{file} has no function `{name}`");
        let calls =
            |body: &&str| [".", " ", "::", "("].iter().any(|at| body.contains(&format!("{at}{next}(")));
        assert!(bodies.iter().any(calls), "`{name}` in {file} does not call `{next}`");
    }
}
