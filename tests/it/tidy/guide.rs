//! Examples of the guide run their models: a block of Rust that builds a model also trains it or computes something with it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use unpadded::recipes::{Config, Task};

/// The pages whose examples run.
const PAGES: [&str; 6] = ["cells", "first_model", "how_do_i", "lod", "sparse", "structured"];

/// Page, heading and reason of each block that builds a model without a run.
const ALLOWED: [(&str, &str, &str); 4] = [
    ("cells", "What may stand in a step", "the builder refuses the model"),
    ("first_model", "The model", "the next block trains the same model"),
    ("how_do_i", "Export to PyTorch", "it writes weights to a file, and checks the names there"),
    ("lod", "In a program", "it declares feeds, and there is nothing to compute"),
];

/// The calls that run a model.
const RUNS: [&str; 6] = [".fit(", ".evaluate(", ".run(", ".run_on(", ".likeliest(", "interpret("];

/// The heading of each block that builds a model and does not run it.
fn blocks_without_run(page: &str) -> Vec<&str> {
    let (mut heading, mut block, mut found) = ("", None, Vec::new());
    for line in page.lines() {
        block = match (block.take(), line.strip_prefix("```")) {
            (None, Some(kind)) => Some((kind, String::new())),
            (None, None) => {
                heading = line.strip_prefix("## ").unwrap_or(heading);
                None
            }
            (Some((kind, code)), Some(_)) => {
                let runs = RUNS.iter().any(|run| code.contains(run)) && !kind.contains("no_run");
                if kind.starts_with("rust") && code.contains("Builder::new") && !runs {
                    found.push(heading);
                }
                None
            }
            (Some((kind, code)), None) => Some((kind, code + line + "\n")),
        };
    }
    found
}

#[test]
fn models_of_the_guide_run() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/guide");
    let mut found = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(folder.join(page).with_extension("md")).unwrap();
        found.extend(blocks_without_run(&text).into_iter().map(|heading| (page, heading.to_owned())));
    }
    let allowed: Vec<_> = ALLOWED.iter().map(|&(page, heading, _)| (page, heading.to_owned())).collect();
    assert_eq!(found, allowed, "left: blocks without one of {RUNS:?}; right: those that `ALLOWED` lists");
}

/// The rule fails on a block that only builds, and on a block that is only compiled.
#[test]
fn the_rule_bites() {
    let check = |block: &str, expected: &[&str]| {
        let page = format!("# Page\n\n## First\n\n## Second\n\n{block}```\n\n## Third\n");
        assert_eq!(blocks_without_run(&page), expected, "{block}");
    };
    check("```rust\nlet net = Builder::new();\n", &["Second"]);
    check("```rust\n# let net = Builder::new();\nnet.finish()?;\n", &["Second"]);
    check("```rust,no_run\nlet net = Builder::new();\ntrainer.fit(&data)?;\n", &["Second"]);
    check("```rust\nlet net = Builder::new();\n## trainer.fit(&data)?;\n", &[]);
    check("```rust\n# let net = Builder::new();\n# trainer.fit(&data)?;\n", &[]);
    check("```rust\nlet bags = words.bags(texts)?;\n", &[]);
    check("```python\nBuilder::new\n", &[]);
}

#[test]
fn every_setting_is_on_its_page_of_the_guide() {
    let page = include_str!("../../../src/guide/settings.md");
    let keys = Task::ALL.iter().flat_map(|&task| Config::keys(task)).map(|key| format!("`{key}`"));
    let missing: BTreeSet<String> = keys.filter(|key| !page.contains(key.as_str())).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
