//! The clients of the page "Serving", each run as it is written there.

use std::process::Command;

use super::*;

const PAGE: &str = include_str!("../../src/serving.md");

/// Returns the first block of a language on the page that has `part`.
fn block(language: &str, part: &str) -> &'static str {
    let begin = format!("```{language}\n");
    let blocks = PAGE.split(&begin).skip(1).filter_map(|rest| rest.split("```").next());
    blocks
        .into_iter()
        .find(|block| block.contains(part))
        .unwrap_or_else(|| panic!("no {language} with {part}"))
}

#[test]
fn every_client_of_the_page_runs() {
    let models = [("reviews", trained(Task::Classify)), ("novel", trained(Task::Lm))];
    let server = Running::new(Settings::default(), &models);
    let rust = block("rust", "fn main");
    assert_eq!(rust, include_str!("../../examples/client.rs"));
    let url = format!("http://{}", server.address);
    let examples = std::env::current_exe().unwrap();
    let examples = examples.parent().and_then(|deps| deps.parent()).unwrap().join("examples");
    let mut clients = vec![(examples.join("client").into_os_string(), vec![url.clone()])];
    for (program, name, code) in
        [("python3", "client.py", block("python", "urllib")), ("node", "client.mjs", block("js", "fetch"))]
    {
        if Command::new(program).arg("--version").output().is_err() {
            println!("{program} is not installed: its client is not tested");
            continue;
        }
        std::fs::write(file(name), code.replace("http://127.0.0.1:8080", &url)).unwrap();
        clients.push((program.into(), vec![file(name).to_string_lossy().into_owned()]));
    }
    for (program, arguments) in clients {
        let output = Command::new(&program).args(arguments).output().unwrap();
        let [out, error] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        assert!(output.status.success(), "{program:?}: {error}");
        let labels =
            out.lines().take(2).filter(|line| line.contains("positive") || line.contains("negative"));
        assert!(labels.count() == 2 && out.trim().lines().count() > 2, "{program:?}: {out}");
    }
}
