//! What a person reads of the command, kept whole, so that a change of words is reviewed as words: help, configs, mistakes and the report.
//!
//! A change that is meant is taken by `INSTA_UPDATE=always cargo test --profile dev --test command -- snapshots`.

use std::fs;

use super::{TestDir, reviews, with};

/// A text without figures, paths of this machine and times.
fn steady(text: &str, dir: &TestDir) -> String {
    let text = text.replace(&*dir.0.to_string_lossy(), "FOLDER");
    let (mut out, mut number) = (String::new(), false);
    for c in text.chars() {
        let digit = c.is_ascii_digit() || (number && (c == '.' || c == ','));
        match (digit, number) {
            (true, false) => out.push('#'),
            (true, true) => {}
            (false, _) => out.push(c),
        }
        number = digit;
    }
    // The unit depends on the load of the machine.
    out.replace("# s in operators", "# ms in operators")
}

#[test]
fn the_help_of_each_command() {
    let dir = TestDir::new("snapshots-help");
    let commands = [
        "init",
        "train",
        "tune",
        "eval",
        "report",
        "predict",
        "generate",
        "inspect",
        "graph",
        "export",
        "import",
        "data",
        "bench",
        "completions",
    ];
    insta::assert_snapshot!("help", dir.stdout(&["--help"], ""));
    for command in commands {
        insta::assert_snapshot!(format!("help_{command}"), dir.stdout(&[command, "--help"], ""));
    }
    insta::assert_snapshot!("help_data_check", dir.stdout(&["data", "check", "--help"], ""));
}

#[test]
fn the_config_of_each_task() {
    let dir = TestDir::new("snapshots-init");
    for task in ["classify", "tag", "lm", "translate"] {
        insta::assert_snapshot!(format!("init_{task}"), dir.stdout(&["init", task], ""));
    }
}

/// Mistakes that newcomers make, each with all that the command writes of it.
#[test]
fn the_mistakes_of_newcomers() {
    let dir = TestDir::new("snapshots-mistakes");
    dir.write("reviews.tsv", &reviews());
    dir.write("empty.tsv", "");
    dir.write("columns.csv", "id;body;stars\n1;good film;5\n2;bad film\n");
    dir.write("bad.toml", "[model]\nhiden = 64\n[dat]\ntrain = \"reviews.tsv\"\n");
    let mistakes: [&[&str]; 12] = [
        &["train", "--train", "nothing.tsv"],
        &["train", "--train", "empty.tsv"],
        &["train", "--train", "columns.csv"],
        &["train", "bad.toml"],
        &["train", "--train", "reviews.tsv", "--set", "model.hiden=64"],
        &["train", "--train", "reviews.tsv", "--set", "model.hidden=many"],
        &["train", "--train", "reviews.tsv", "--task", "tag"],
        &["train", "--train", "reviews.tsv", "--set", "data.label=stars"],
        &["train", "--resume", "runs/none"],
        &["eval", "runs/none", "reviews.tsv"],
        &["predict", "reviews.tsv"],
        &["inspect", "nothing"],
    ];
    let text: Vec<String> = mistakes
        .iter()
        .map(|mistake| format!("unpadded {}\n{}", mistake.join(" "), dir.refused(mistake)))
        .collect();
    insta::assert_snapshot!("mistakes", text.join("\n").replace(&*dir.0.to_string_lossy(), "FOLDER"));
}

/// Headings, captions, heads of tables and explanations of a page, a line each.
fn skeleton(page: &str) -> String {
    let mut lines = Vec::new();
    let kept = ["h1", "h2", "h3", "p", "th", "figcaption", "summary", "dt"];
    let mut rest = page;
    while let Some(open) = rest.find('<') {
        rest = &rest[open + 1..];
        let name: &str = rest.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default();
        let Some(begins) = rest.find('>') else { break };
        let Some(ends) =
            rest.find(&format!("</{name}>")).filter(|ends| kept.contains(&name) && *ends > begins)
        else {
            continue;
        };
        // The rows of a table are in the order of times.
        if rest[..begins].contains("scope=\"row\"") {
            continue;
        }
        let mut text = String::new();
        let mut tag = false;
        for c in rest[begins + 1..ends].chars() {
            match c {
                '<' => tag = true,
                '>' => tag = false,
                c if !tag => text.push(c),
                _ => {}
            }
        }
        lines.push(format!("{name}: {}", text.split_whitespace().collect::<Vec<_>>().join(" ")));
    }
    lines.dedup();
    lines.join("\n")
}

#[test]
fn the_skeleton_of_the_report() {
    let dir = TestDir::new("snapshots-report");
    dir.write("reviews.tsv", &reviews());
    dir.write("test.tsv", "it was fine\tgood\nit was dull\tbad\n");
    let train = ["train", "--train", "reviews.tsv", "--test", "test.tsv", "--run", "run"];
    dir.stdout(&with(&train, &["--epochs", "4"]), "");
    let page = fs::read_to_string(dir.0.join("run/report.html")).unwrap();
    insta::assert_snapshot!("report", steady(&skeleton(&page), &dir));
}
