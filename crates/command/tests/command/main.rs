//! The command as people use it: its files, its answers, and its exit codes.

#![allow(clippy::unwrap_used)]

mod console;
mod ensembles;
mod figures;
mod kinds;
mod limits;
mod lines;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
mod memory;
mod outputs;
mod portions;
mod precision;
mod printable;
#[cfg(all(unix, feature = "mpi"))]
mod processes;
mod quantized;
mod repeated;
mod reports;
#[cfg(all(unix, feature = "serve"))]
mod serving;
mod snapshots;
mod started;
#[cfg(all(unix, feature = "mpi"))]
#[path = "../../../../tests/it/thorough.rs"]
mod thorough;
mod translate;
mod tune;
mod words;

use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// A folder of its own, where the command is called; removed at the end.
struct TestDir(PathBuf);

impl TestDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("unpadded-command-{name}-{}", std::process::id()));
        // Of two tests with one name, the first to end would remove the folder of both.
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_unpadded"));
        command.current_dir(&self.0).args(arguments).stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn given(&self, arguments: &[&str], input: &str) -> Output {
        let mut child = self.command(arguments).spawn().unwrap();
        // A command that reads no input may have ended before the input is written.
        child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
        child.wait_with_output().unwrap()
    }

    /// A new folder with texts in `reviews.tsv` or `reviews.csv`, and a small model of them in the run `run`.
    fn trained(name: &str, file: &str, epochs: &str) -> Self {
        let dir = Self::new(name);
        let of_csv = || format!("text,stars\n{}", reviews().replace('\t', ","));
        dir.write(file, &if file.ends_with("csv") { of_csv() } else { reviews() });
        dir.stdout(&with(&["train", "--train", file, "--quiet"], &["--epochs", epochs, "--run", "run"]), "");
        dir
    }

    /// Returns the standard output of a command that succeeds.
    fn stdout(&self, arguments: &[&str], input: &str) -> String {
        let output = self.given(arguments, input);
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {error}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str], input: &str) -> Value {
        let text = self.stdout(arguments, input);
        serde_json::from_str(text.trim_end().lines().last().unwrap()).unwrap()
    }

    /// Returns the message of a command that is refused with exit code 2.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.given(arguments, "");
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
        // A check prints the settings that it understands before the error.
        let silent = output.stdout.is_empty() || arguments.starts_with(&["data", "check"]);
        assert!(silent && !error.contains("src/"), "{arguments:?}: {error}");
        error
    }

    /// Checks that a command is refused, and that its message has all of these parts.
    #[track_caller]
    fn refuses(&self, arguments: &[&str], parts: &[&str]) {
        let text = self.refused(arguments);
        assert!(parts.iter().all(|part| text.contains(part)), "{arguments:?}: {parts:?} in {text}");
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    /// Checks that best.ckpt of a run is byte for byte what its last.ckpt becomes for inference.
    fn best_is_of_last(&self, run: &str) {
        let run = self.0.join(run);
        let last = unpadded::checkpoint::Checkpoint::load(run.join("last.ckpt")).unwrap();
        let best = last.for_inference(&unpadded::ops::catalogue()).unwrap();
        let bytes = best.dense_tables().unwrap().to_bytes().unwrap();
        assert!(fs::read(run.join("best.ckpt")).unwrap() == bytes, "{}", run.display());
    }

    fn files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(&self.0)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Returns texts that are labelled by a word in them.
fn reviews() -> String {
    let line = |i: usize| {
        let (word, label) = if i.is_multiple_of(2) { ("fine", "good") } else { ("dull", "bad") };
        format!("{}it was {word}\t{label}\n", "and then ".repeat(i % 5))
    };
    (0..120).map(line).collect()
}

/// A small model, that trains in a moment.
const SMALL: [&str; 6] =
    ["--set", "model.hidden=8", "--set", "model.embedding=8", "--set", "training.rate=0.03"];

/// Returns the arguments of a command line.
fn split(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

/// Checks that a text has all of these parts.
#[track_caller]
fn says(text: &str, parts: &[&str]) {
    assert!(parts.iter().all(|part| text.contains(part)), "{parts:?} in {text}");
}

fn with<'a>(first: &[&'a str], rest: &[&'a str]) -> Vec<&'a str> {
    [first, &SMALL, rest].concat()
}

#[test]
fn from_a_file_of_texts_to_answers() {
    let dir = TestDir::new("whole");
    dir.write("reviews.tsv", &reviews());
    let last = dir.json(&with(&["train", "--train", "reviews.tsv"], &["--epochs", "6", "--json"]), "");
    assert_eq!((&last["run"], &last["value"]), (&"runs/classify-1".into(), &100.0.into()), "{last}");
    let run = dir.0.join("runs/classify-1");
    for name in ["config.toml", "metrics.jsonl", "last.ckpt", "best.ckpt", "report.html"] {
        assert!(run.join(name).is_file(), "{name}");
    }
    let events = |entry: std::io::Result<fs::DirEntry>| {
        entry.unwrap().file_name().to_string_lossy().starts_with("events.out.tfevents.")
    };
    assert!(fs::read_dir(&run).unwrap().any(events));
    let metrics = fs::read_to_string(run.join("metrics.jsonl")).unwrap();
    let epochs: Vec<Value> = metrics.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(epochs.len(), 6, "{metrics}");
    let report = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(report.contains("</html>") && !report.contains("<script") && !report.contains("http:"));

    // It answers: by line, as JSON, and nothing of nothing.
    let answers = dir.stdout(&["predict", "runs/classify-1"], "it was fine\nand then it was dull");
    let labels: Vec<&str> = answers.lines().map(|line| line.split('\t').next().unwrap()).collect();
    assert_eq!(labels, ["good", "bad"]);
    let answer = dir.json(&["predict", "runs/classify-1", "--json"], "it was dull\n");
    assert_eq!((&answer["text"], &answer["label"]), (&"it was dull".into(), &"bad".into()));
    assert_eq!(dir.stdout(&["predict", "runs/classify-1"], ""), "");
    let scores = dir.json(&["eval", "runs/classify-1", "reviews.tsv", "--json"], "");
    assert_eq!(scores["value"], 100.0, "{scores}");
    assert_eq!((&scores["metric"], &scores["dataset"]), (&"accuracy".into(), &"reviews.tsv".into()));
    assert!(scores["scores"]["loss"].as_f64() > Some(0.0) && scores["interval"][1] == 100.0, "{scores}");

    // It is looked at, drawn, written for PyTorch and read back.
    let inspected = dir.json(&["inspect", "runs/classify-1", "--json"], "");
    assert_eq!((&inspected["task"], &inspected["epochs"]), (&"classify".into(), &6.into()));
    let updates = inspected["optimizer"].as_array().unwrap();
    assert!(updates.contains(&"adam".into()), "{inspected}");
    assert!(inspected["optimizer_state"].as_u64() > Some(0), "{inspected}");
    assert!(dir.stdout(&["graph", "runs/classify-1"], "").starts_with("<svg"));
    assert!(dir.stdout(&["graph", "runs/classify-1", "--format", "dot"], "").starts_with("digraph"));
    if cfg!(feature = "safetensors") {
        let text = dir.stdout(&["export", "runs/classify-1", "weights.safetensors"], "");
        assert!(text.contains("parameter ") && text.contains("names in the file\n"), "{text}");
        let import = ["import", "runs/classify-1", "weights.safetensors", "-o", "again.ckpt"];
        dir.stdout(&import, "");
        assert_eq!(dir.stdout(&["predict", "again.ckpt"], "it was fine\nand then it was dull"), answers);
    }
    let stats = dir.json(&["data", "stats", "reviews.tsv", "--json"], "");
    assert_eq!((&stats["shortest"], &stats["longest"]), (&3.into(), &11.into()), "{stats}");
    let small = with(&["bench", "--train", "reviews.tsv"], &["--seconds", "0.2", "--json"]);
    let bench = dir.json(&small, "");
    let above = |figures: &Value| figures["median"].as_f64().unwrap() > 0.0;
    assert!(above(&bench["train"]) && above(&bench["predict"]) && above(&bench["alone_ms"]), "{bench}");
    assert!(!bench["operators"].as_array().unwrap().is_empty(), "{bench}");

    // The same config makes the same bytes.
    let config = "runs/classify-1/config.toml";
    dir.stdout(&["train", config, "--run", "again", "--quiet"], "");
    let [one, other] = [run, dir.0.join("again")].map(|run| fs::read(run.join("best.ckpt")).unwrap());
    assert!(one == other);
}

#[test]
fn mistakes_end_with_2_and_write_nothing() {
    let dir = TestDir::new("mistakes");
    dir.write("reviews.tsv", &reviews());
    dir.write("bad.tsv", "good\tone\nno label here\n");
    dir.write("key.toml", "task = \"classify\"\n[model]\nhiden = 3\n");
    dir.write("type.toml", "[model]\nhidden = \"wide\"\n");
    dir.write("broken.toml", "[model\n");
    dir.write("torn.ckpt", "not a checkpoint");
    let before = dir.files();
    for (arguments, expected) in [
        (&["train", "key.toml"][..], &["key.toml:3", "`model.hidden`", "`model.hiden`"][..]),
        (&["train", "type.toml"], &["type.toml:2", "whole number", "wide"]),
        (&["train", "broken.toml"], &["broken.toml:1"]),
        (&["train", "none.toml"], &["none.toml"]),
        (&["train", "--train", "none.tsv"], &["none.tsv"]),
        (&["train", "--train", "bad.tsv"], &["bad.tsv:2"]),
        (&["train", "--train", "reviews.tsv", "--set", "model.cell=lsmt"], &["`lstm`", "lsmt"]),
        (&["train", "--train", "reviews.tsv", "--set", "nonsense"], &["nonsense"]),
        (&["train", "--task", "clasify"], &["classify"]),
        (&["train", "--epocs", "3"], &["--epochs"]),
        (&["train", "--resume", "runs/none"], &["runs/none"]),
        (&["train", "--task", "translate"], &["data.train"]),
        (&["predict", "torn.ckpt"], &["torn.ckpt"]),
        (&["predict", "none"], &["none"]),
        (&["bench", "--seconds", "0"], &["above 0"]),
        (&["data", "check", "bad.tsv"], &["bad.tsv:2"]),
    ] {
        let text = dir.refused(arguments);
        for part in expected {
            assert!(text.contains(part), "{arguments:?}: {part} in {text}");
        }
    }
    assert_eq!(dir.files(), before);

    // A question to a model of another task is refused, too.
    dir.stdout(&with(&["train", "--train", "reviews.tsv"], &["--epochs", "1", "--run", "run"]), "");
    assert!(dir.refused(&["generate", "run"]).contains("expected a language model"));
    let again = with(&["train", "--train", "reviews.tsv"], &["--run", "run"]);
    assert!(dir.refused(&again).contains("--overwrite"));
    assert!(dir.refused(&["eval", "run", "bad.tsv"]).contains("bad.tsv"));
    assert!(dir.refused(&["export", "run", "run/best.ckpt"]).contains("new file"));
    assert!(dir.refused(&["train", "--set", "task=tag"]).contains("--task"));

    // Existing files are not replaced without a flag.
    let kept = fs::read(dir.0.join("run/last.ckpt")).unwrap();
    assert!(dir.refused(&["train", "--resume", "run", "--overwrite"]).contains("cannot be used with"));
    // A run that ended before its first checkpoint.
    fs::create_dir(dir.0.join("early")).unwrap();
    fs::write(dir.0.join("early/metrics.jsonl"), "").unwrap();
    for options in [&["--run", "early"][..], &["--resume", "early"]] {
        dir.refuses(&with(&["train"], options), &["nothing was saved", "--overwrite"]);
    }
    assert!(dir.refused(&["graph", "run", "-o", "run/last.ckpt"]).contains("new file"));
    fs::create_dir(dir.0.join("folder")).unwrap();
    dir.write("folder/notes.txt", "mine");
    let over = with(&["train", "--train", "reviews.tsv"], &["--run", "folder", "--overwrite"]);
    assert!(dir.refused(&over).contains("with other files"));
    assert_eq!(fs::read(dir.0.join("run/last.ckpt")).unwrap(), kept);
}

#[test]
fn several_processes_are_refused_where_they_cannot_train() {
    let dir = TestDir::new("alone");
    let text = |arguments: &[&str]| {
        let mut command = dir.command(arguments);
        command.env("OMPI_COMM_WORLD_SIZE", "2").env("OMPI_COMM_WORLD_RANK", "0");
        let output = command.stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let expected = "expected 1, since only `train` runs on several processes, got 2";
    says(&text(&["init", "classify"]), &[expected]);
    if !cfg!(feature = "mpi") {
        assert!(text(&["train"]).contains("`cargo install unpadded-command --features mpi`"));
    }
    assert!(dir.files().is_empty());
}

#[test]
fn all_settings_that_make_no_sense_are_named() {
    let dir = TestDir::new("settings");
    let wrong = [
        "training.epochs=0",
        "training.halve_after=0",
        "training.momentum=0.9",
        "training.averaging_decay=0.5",
        "training.averaging_from=2",
        "training.focal=-1",
        "text.freeze=true",
        "training.parts=6",
        "training.rate=1e39",
        "threads=99999",
        "model.layers=100000",
        "model.dropout=2",
    ];
    let mut arguments = vec!["train", "--quiet"];
    arguments.extend(wrong.iter().flat_map(|setting| ["--set", setting]));
    let text = dir.refused(&arguments);
    for setting in wrong {
        let name = setting.split('=').next().unwrap();
        assert!(text.contains(&format!("{name}: expected")), "{name}: {text}");
    }
}

#[test]
fn answers_are_one_line_and_no_command_to_the_terminal() {
    let dir = TestDir::new("control");
    let reviews = reviews().replace("good\n", "\u{1b}[31mgood\n");
    dir.write("reviews.tsv", &reviews);
    let text =
        dir.stdout(&with(&["train", "--train", "reviews.tsv"], &["--epochs", "6", "--run", "run"]), "");
    assert!(!text.contains('\u{1b}'), "{text}");
    let text = dir.stdout(&["predict", "run"], "it was fine\n");
    assert!(text.starts_with("\\u001b[31mgood\t"), "{text}");
}

#[test]
fn files_of_others_are_left_alone() {
    let dir = TestDir::new("folders");
    dir.write("reviews.tsv", &reviews());
    let train = with(&["train", "--train", "reviews.tsv"], &["--epochs", "1", "--run", "mine"]);
    fs::create_dir(dir.0.join("mine")).unwrap();
    let others = ["mine/config.toml", "mine/events.out.tfevents.1.other", "mine/notes.txt"];
    others.iter().for_each(|name| dir.write(name, "mine"));
    assert!(dir.refused(&train).contains("with other files"));
    // Only files of a run are replaced, and no file of the previous run is left.
    dir.write("mine/best.ckpt", "old");
    dir.stdout(&[&train[..], &["--overwrite"]].concat(), "");
    for (name, kept) in others.iter().zip([false, true, true]) {
        assert_eq!(fs::read_to_string(dir.0.join(name)).unwrap() == "mine", kept, "{name}");
    }
    dir.stdout(&["predict", "mine"], "it was fine");
    // A training does not continue with other texts, and its files stay unchanged.
    let kept = || {
        ["config.toml", "best.ckpt", "metrics.jsonl"]
            .map(|name| fs::read(dir.0.join("mine").join(name)).unwrap())
    };
    let before = kept();
    dir.write("reviews.tsv", &(reviews() + "another\tgood\n"));
    let text = dir.refused(&["train", "--resume", "mine", "--epochs", "2"]);
    assert!(text.contains("the data of the training so far"), "{text}");
    assert!(kept() == before);
    // While a training runs its last checkpoint answers.
    fs::remove_file(dir.0.join("mine/best.ckpt")).unwrap();
    dir.stdout(&["predict", "mine"], "it was fine");
}

#[test]
fn all_lines_that_are_wrong_are_named() {
    let dir = TestDir::new("lines");
    dir.write("bad.tsv", &reviews().replace("\tbad", ""));
    let text = dir.refused(&["data", "check", "bad.tsv"]);
    for line in [2, 4, 6, 8] {
        assert!(text.contains(&format!("bad.tsv:{line}:")), "{line}: {text}");
    }
    assert!(text.contains("in all"), "{text}");
    dir.write("reviews.csv", &reviews().replace('\t', ","));
    // A column by its number, though a number is no text.
    let columns = ["--set", "data.text=1", "--set", "data.label=2"];
    dir.stdout(&[&["data", "check", "reviews.csv"][..], &columns].concat(), "");
    let stats = dir.json(&["data", "stats", "reviews.csv", "--json"], "");
    assert!(stats["coverage"].as_f64().is_some_and(|share| share > 0.9), "{stats}");
    assert_eq!(stats["labels"].as_object().unwrap().len(), 2, "{stats}");
    let vocabulary = dir.json(&["data", "vocab", "reviews.csv", "--json"], "");
    assert!(vocabulary["words"]["counts"]["was"].as_u64() > Some(90), "{vocabulary}");
}

#[test]
fn words_of_tagged_text_are_counted() {
    let dir = TestDir::new("tagged");
    let text: String = (0..100).map(|i| format!("word{i} O\nNorth B-X\n\n")).collect();
    dir.write("train.conll", &text);
    let object = |what: &str| dir.json(&["data", what, "--task", "tag", "train.conll", "--json"], "");
    let stats = object("stats");
    let number = |name: &str| stats[name].as_u64().unwrap();
    assert_eq!((number("tokens"), number("padded")), (2 * number("texts"), 2 * number("texts")), "{stats}");
    assert!(number("characters") > 9 * number("texts"), "{stats}");
    let counts = &object("vocab")["tags"]["counts"];
    // The vocabulary has the counts of the training texts.
    assert_eq!((&counts["O"], &counts["B-X"]), (&stats["texts"], &stats["texts"]), "{counts}");
    assert_eq!((&stats["tags"]["O"], &stats["tags"]["B-X"]), (&100.into(), &100.into()), "{stats}");
}

#[cfg(unix)]
/// Waits until the training in this run folder has finished `epochs` epochs.
fn wait_for(run: &std::path::Path, epochs: usize) {
    use std::time::{Duration, Instant};
    let begun = Instant::now();
    while fs::read_to_string(run.join("metrics.jsonl")).map_or(0, |text| text.lines().count()) < epochs {
        assert!(begun.elapsed() < Duration::from_secs(120), "no epoch ends");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(unix)]
fn signal(child: &std::process::Child, name: &str) {
    assert!(Command::new("kill").arg(name).arg(child.id().to_string()).status().unwrap().success());
}

#[cfg(unix)]
#[test]
fn interrupted_or_killed_it_goes_on_to_the_same_bytes() {
    let dir = TestDir::new("resume");
    dir.write("reviews.tsv", &reviews());
    let train = |run: &'static str| {
        let first = ["train", "--train", "reviews.tsv", "--set", "training.patience=0"];
        with(&first, &["--epochs", "40", "--threads", "1", "--run", run])
    };
    dir.stdout(&train("whole"), "");
    let first = ["-INT", "-KILL", "-TERM"];
    for (name, code) in first.into_iter().zip([Some(130), None, Some(130)]) {
        let run = dir.0.join("run");
        let mut child = dir.command(&train("run")).spawn().unwrap();
        wait_for(&run, 3);
        if name == "-INT" {
            // A second training meanwhile is refused.
            dir.refuses(&["train", "--resume", "run"], &["run", "in use"]);
        }
        signal(&child, name);
        assert_eq!(child.wait().unwrap().code(), code, "{name}");
        let ended = fs::read_to_string(run.join("metrics.jsonl")).unwrap().lines().count();
        assert!(ended < 40, "{name}: it was over before");
        // An interrupted run has a report of the epochs so far, a killed run has none.
        let report = fs::read_to_string(run.join("report.html")).ok();
        let epochs = report.map(|page| page.contains(&format!("<dt>epochs</dt><dd dir=\"auto\">{ended}<")));
        assert_eq!(epochs, code.map(|_| true), "{name}");
        if code.is_some() {
            dir.best_is_of_last("run");
        }
        dir.stdout(&["train", "--resume", "run"], "");
        for file in ["best.ckpt", "last.ckpt"] {
            let [one, other] = ["whole", "run"].map(|run| fs::read(dir.0.join(run).join(file)).unwrap());
            assert!(one == other, "{name}: {file}");
        }
        let values = |run: &str| -> Vec<Value> {
            let text = fs::read_to_string(dir.0.join(run).join("metrics.jsonl")).unwrap();
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["dev"].clone()).collect()
        };
        let whole = values("whole");
        assert!(whole.len() == 40 && whole[0].is_object() && values("run") == whole, "{name}");
        fs::remove_dir_all(run).unwrap();
    }
}

#[test]
fn the_best_model_is_the_same_from_memory_and_from_the_file() {
    let dir = TestDir::new("best");
    dir.write("reviews.tsv", &reviews());
    let train = ["train", "--train", "reviews.tsv", "--set", "training.patience=0", "--epochs", "6"];
    for averaging in ["none", "ema", "mean"] {
        let setting = format!("training.averaging={averaging}");
        dir.stdout(&with(&train, &["--run", averaging, "--set", &setting]), "");
        dir.best_is_of_last(averaging);
        // No later epoch is better, so the best one is of the time before.
        dir.stdout(&["train", "--resume", averaging, "--epochs", "8"], "");
        dir.best_is_of_last(averaging);
        let metrics = fs::read_to_string(dir.0.join(averaging).join("metrics.jsonl")).unwrap();
        let best = metrics.lines().map(|line| line.contains("\"best\":true"));
        let best = best.collect::<Vec<_>>();
        assert!(best.len() == 8 && best[..6].contains(&true) && !best[6..].contains(&true), "{metrics}");
        // Nothing is left to train, so no file is written.
        let run = dir.0.join(averaging);
        let files = || -> std::collections::BTreeMap<PathBuf, Vec<u8>> {
            let entries = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path());
            entries.map(|path| (path.clone(), fs::read(path).unwrap())).collect()
        };
        let before = files();
        for more in [&[][..], &["--epochs", "7", "--set", "training.rate=0.01"]] {
            dir.stdout(&[&["train", "--resume", averaging][..], more].concat(), "");
            assert!(files() == before, "{averaging} {more:?}");
        }
    }
}

#[test]
fn help_and_completions() {
    let dir = TestDir::new("help");
    let help = dir.stdout(&["--help"], "");
    assert!(!help.contains('\u{1b}'), "colours in a pipe");
    assert!(dir.stdout(&["completions", "bash"], "").contains("_unpadded"));
    let config = dir.stdout(&["init", "tag", "--train", "train.conll"], "");
    assert!(config.contains("task = \"tag\"") && config.contains("train = \"train.conll\""), "{config}");
    assert!(dir.files().is_empty());
}

#[test]
fn a_test_file_is_scored_by_class_and_by_two_runs() {
    let dir = TestDir::new("scores");
    dir.write("reviews.tsv", &reviews());
    dir.write("test.tsv", "it was fine\tgood\nit was dull\tbad\nit was\tmiddling\nit was fine\tgood\n");
    let train = ["train", "--train", "reviews.tsv", "--test", "test.tsv"];
    let last = dir.json(&with(&train, &["--epochs", "6", "--run", "one", "--json"]), "");
    assert_eq!((&last["test"], &last["test_scores"]["value"]), (&75.0.into(), &75.0.into()), "{last}");
    let kept = fs::read_to_string(dir.0.join("one/test.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept).unwrap(), last["test_scores"]);
    let report = fs::read_to_string(dir.0.join("one/report.html")).unwrap();
    assert!(report.contains("Scores on the test set") && report.contains("macro F1"));
    let evaluated = dir.json(&["eval", "one", "test.tsv", "--json"], "");
    assert_eq!(evaluated, last["test_scores"]);
    assert_eq!(evaluated["unseen"][0]["first"][0], "test.tsv:3", "{evaluated}");
    let support = evaluated["tables"]["label"].as_array().unwrap().iter().map(|row| row["support"].as_u64());
    assert_eq!(support.sum::<Option<u64>>(), Some(4));
    let output = dir.given(&["eval", "one", "test.tsv"], "");
    let (text, warned) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(text.contains("label") && text.contains("precision") && text.contains("75.00 %"), "{text}");
    says(&warned, &["label `middling` never occurs in training", "test.tsv:3"]);

    dir.stdout(&with(&["train", "--train", "reviews.tsv"], &["--epochs", "1", "--run", "two"]), "");
    let text = dir.stdout(&["eval", "one", "two", "test.tsv"], "");
    assert!(text.contains("training.epochs") && text.contains("p = "), "{text}");
    let counts = text.lines().find(|line| line.starts_with("texts ")).unwrap_or_default();
    assert_eq!(counts.split_whitespace().collect::<Vec<_>>(), ["texts", "4", "4"], "{text}");
    let both = dir.json(&["eval", "one", "two", "test.tsv", "--json"], "");
    assert_eq!(
        (&both["runs"][0]["value"], &both["settings"]["training.epochs"][1]),
        (&75.0.into(), &"1".into())
    );
    assert!(both["comparisons"][0]["p_value"].as_f64().is_some(), "{both}");
}

#[cfg(not(feature = "serve"))]
#[test]
fn a_command_without_the_server_says_how_to_install_it() {
    let dir = TestDir::new("no-server");
    let hint = "`cargo install --path crates/command --features serve` installs it";
    dir.refuses(&["serve", "runs/classify-1", "--port", "80"], &[hint]);
    dir.refuses(&["serve", "--help"], &[hint]);
}
