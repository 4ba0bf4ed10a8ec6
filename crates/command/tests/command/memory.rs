//! Limits of memory (`ulimit -v`) between the least with which the command starts and the least with which it succeeds: the
//! command ends with a message, and without half a file.
//!
//! The suite draws a few limits per command; `UNPADDED_THOROUGH=5 cargo test --test command memory:: -- --nocapture` draws 40.

use std::fs;
use std::process::{Command, Output};

use super::{TestDir, reviews, with};

/// The number of limits per command.
const LIMITS: u64 = 8;
/// Number of KiB between two limits of the search for the least limit.
const STEP: u64 = 512;

fn limits() -> u64 {
    let times = std::env::var("UNPADDED_THOROUGH").map_or(1, |times| times.parse::<u64>().unwrap());
    LIMITS * times
}

/// Runs a command under a limit of its address space, in KiB.
fn limited(dir: &TestDir, arguments: &[&str], kib: u64) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {kib}; exec \"$0\" \"$@\""), env!("CARGO_BIN_EXE_unpadded")]);
    command.current_dir(&dir.0).args(arguments).env("RUST_BACKTRACE", "0").output().unwrap()
}

/// Returns the least limit with which a command succeeds, to [`STEP`] KiB. `before` prepares each attempt.
fn least(dir: &TestDir, arguments: &[&str], before: &dyn Fn()) -> u64 {
    let (mut fails, mut succeeds) = (0, (1 << 20) / STEP);
    while succeeds - fails > 1 {
        let middle = (fails + succeeds) / 2;
        before();
        match limited(dir, arguments, middle * STEP).status.code() {
            Some(0) => succeeds = middle,
            _ => fails = middle,
        }
    }
    succeeds * STEP
}

/// Runs a command under limits from `start` to the least limit with which the command succeeds. Returns the number of runs and
/// of their failures. `after` checks the files behind each run.
fn under_limits(
    dir: &TestDir,
    arguments: &[&str],
    start: u64,
    before: &dyn Fn(),
    after: &dyn Fn(bool),
) -> [u64; 2] {
    let peak = least(dir, arguments, before).max(start);
    let mut counts = [0, 0];
    for number in 0..limits() {
        let kib = start + (peak - start) * number / (limits() - 1);
        before();
        let output = limited(dir, arguments, kib);
        let text = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code();
        let run = format!("{arguments:?} under {kib} of {peak} KiB: {:?}: {text}", output.status);
        assert!(matches!(code, Some(0..=2)) && !text.contains("panicked"), "{run}");
        assert!(code == Some(0) || text.contains("error: "), "{run}");
        after(code == Some(0));
        counts[0] += 1;
        counts[1] += u64::from(code != Some(0));
    }
    println!("{}: {} limits of {start} to {peak} KiB, {} errors", arguments[0], counts[0], counts[1]);
    counts
}

/// Checks that every checkpoint of a folder can be loaded, and that every JSON line is whole.
fn is_whole(folder: &std::path::Path) {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        match end {
            "ckpt" => drop(unpadded::checkpoint::Checkpoint::load(&path).unwrap()),
            "jsonl" => {
                for line in fs::read_to_string(&path).unwrap().lines() {
                    serde_json::from_str::<serde_json::Value>(line).unwrap();
                }
            }
            "html" => assert!(fs::read_to_string(&path).unwrap().contains("</html>"), "{}", path.display()),
            "toml" => drop(unpadded_recipes::Config::load(&path).unwrap()),
            _ => {}
        }
    }
}

#[test]
fn a_refusal_of_memory_is_a_message_at_every_limit() {
    let dir = TestDir::new("memory");
    dir.write("reviews.tsv", &reviews());
    let train = |run: &str, epochs: &str| {
        let rest = ["--run", run, "--epochs", epochs, "--quiet"];
        dir.stdout(&with(&["train", "--train", "reviews.tsv"], &rest), "");
        fs::read(dir.0.join(run).join("last.ckpt")).unwrap()
    };
    let whole = train("whole", "2");
    train("first", "1");
    // The least limit depends a little on the addresses that the system draws.
    let start = least(&dir, &["--version"], &|| ()) + 2 * STEP;
    let run = dir.0.join("run");
    let none = || drop(fs::remove_dir_all(&run));
    let copied = || {
        none();
        fs::create_dir(&run).unwrap();
        for entry in fs::read_dir(dir.0.join("first")).unwrap() {
            let path = entry.unwrap().path();
            fs::copy(&path, run.join(path.file_name().unwrap())).unwrap();
        }
    };
    // With a checkpoint, a training that failed is resumed without a limit.
    let resumed = |done: bool| {
        is_whole(&run);
        let last = run.join("last.ckpt");
        if !done && last.is_file() {
            dir.given(&["train", "--resume", "run", "--epochs", "2", "--quiet"], "");
        }
        assert!(!last.is_file() || fs::read(&last).unwrap() == whole);
        is_whole(&run);
    };
    let train = with(&["train", "--train", "reviews.tsv"], &["--run", "run", "--epochs", "2", "--quiet"]);
    let resume = ["train", "--resume", "run", "--epochs", "2", "--quiet"];
    let mut all = vec![
        under_limits(&dir, &train, start, &none, &resumed),
        under_limits(&dir, &resume, start, &copied, &resumed),
    ];
    let files = [
        &["predict", "whole", "reviews.tsv"][..],
        &["eval", "whole", "reviews.tsv"],
        &["data", "check", "reviews.tsv"],
    ];
    let nothing = |_: bool| ();
    all.extend(files.map(|arguments| under_limits(&dir, arguments, start, &|| (), &nothing)));
    if cfg!(feature = "safetensors") {
        // A small model is imported with the memory that the start of the command needs.
        let wide = ["--set", "model.hidden=256", "--run", "wide", "--epochs", "1", "--quiet"];
        dir.stdout(&[&["train", "--train", "reviews.tsv"], &wide[..]].concat(), "");
        dir.stdout(&["export", "wide", "weights.safetensors"], "");
        let imported = dir.0.join("imported.ckpt");
        let gone = || drop(fs::remove_file(&imported));
        let import = ["import", "wide", "weights.safetensors", "-o", "imported.ckpt"];
        all.push(under_limits(&dir, &import, start, &gone, &|_| is_whole(&dir.0)));
    }
    let failures: u64 = all.iter().map(|[_, failures]| failures).sum();
    assert!(failures >= all.len() as u64, "{all:?}");
}

#[cfg(unix)]
#[test]
fn an_abort_with_memory_left_stays_an_abort() {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::process::ExitStatusExt;

    let dir = TestDir::trained("abort", "reviews.tsv", "1");
    let mut child = dir.command(&["predict", "run"]).spawn().unwrap();
    let (mut stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    stdin.write_all(b"it was fine\n").unwrap();
    // The command handles signals once it answers.
    BufReader::new(stdout).read_line(&mut String::new()).unwrap();
    let sent = Command::new("kill").args(["-s", "ABRT", &child.id().to_string()]).status().unwrap();
    assert!(sent.success());
    assert_eq!(child.wait().unwrap().signal(), Some(6));
}

#[test]
fn a_check_refuses_a_limit_that_the_model_exceeds() {
    let dir = TestDir::new("check-limit");
    dir.write("reviews.tsv", &reviews());
    let check =
        |memory: &str| dir.command(&["data", "check", "reviews.tsv", "--set", memory]).output().unwrap();
    let refused = check("memory=200kB");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("memory limit: expected more than "), "{text}");
    assert!(text.contains("for parameters, optimizer and data, got 0.2 MB"), "{text}");
    assert_eq!(check("memory=2GB").status.code(), Some(0));
}

#[test]
fn a_run_is_replaced_only_if_the_new_training_can_begin() {
    let dir = TestDir::new("limit-replace");
    dir.write("reviews.tsv", &reviews());
    let train = |more: &[&str]| {
        let arguments = [&["train", "--train", "reviews.tsv", "--epochs", "1", "--quiet"], more].concat();
        dir.command(&arguments).output().unwrap()
    };
    assert_eq!(train(&["--run", "old"]).status.code(), Some(0));
    let kept = std::fs::read(dir.0.join("old/best.ckpt")).unwrap();
    let refused = train(&["--run", "old", "--overwrite", "--set", "memory=200kB"]);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("memory limit: expected more than "), "{text}");
    assert_eq!(std::fs::read(dir.0.join("old/best.ckpt")).unwrap(), kept);
    // A refused training leaves no folder.
    assert_eq!(train(&["--run", "new", "--set", "memory=200kB"]).status.code(), Some(1));
    assert!(!dir.0.join("new").exists());
    // A resumed training keeps its limit, in the config, too.
    assert_eq!(train(&["--run", "new", "--set", "memory=1GB"]).status.code(), Some(0));
    let resume = ["train", "--resume", "new", "--epochs", "2", "--set", "memory=2GB"];
    let resumed = dir.command(&resume).output().unwrap();
    let text = String::from_utf8_lossy(&resumed.stderr);
    assert_eq!(resumed.status.code(), Some(0), "{text}");
    assert!(text.contains("memory limit: 1 GB, as in the training so far; 2 GB is ignored"), "{text}");
    let config = std::fs::read_to_string(dir.0.join("new/config.toml")).unwrap();
    assert!(config.contains("memory = \"1 GB\""), "{config}");
}

#[test]
fn a_text_that_exceeds_the_limit_is_named_by_its_line() {
    let dir = TestDir::new("limit-line");
    let long = "word ".repeat(200_000);
    dir.write("reviews.tsv", &format!("{}{long}\tgood\n", reviews()));
    dir.write("dev.tsv", &reviews());
    let lines = reviews().lines().count() + 1;
    let train =
        ["train", "--train", "reviews.tsv", "--dev", "dev.tsv", "--run", "run", "--set", "memory=30MB"];
    let refused = dir.command(&train).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{text}");
    assert!(text.contains("memory of sample ") && text.contains("for 200000 tokens"), "{text}");
    assert!(text.contains(&format!(" is at reviews.tsv:{lines}")), "{text}");
    assert!(text.contains("or raise the memory limit to at least "), "{text}");
}
