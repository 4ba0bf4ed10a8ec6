//! Limits of memory, of file sizes and of input without an end, and files that change while they are read.

use std::fs;
use std::process::Command;

use super::{TestDir, reviews, says, wait_for, with};

#[test]
fn files_that_are_larger_than_memory_are_left_where_they_are() {
    let dir = TestDir::new("window");
    dir.write("reviews.tsv", &reviews());
    let train = with(&["train", "--train", "reviews.tsv", "--set", "data.window=16"], &["--run", "run"]);
    let last = dir.json(&[&train[..], &["--epochs", "6", "--json"]].concat(), "");
    assert_eq!(last["value"], 100.0, "{last}");
    // The held-out texts are the same as of texts in memory.
    let held_out = |settings: &[&str]| {
        let check = [&["data", "check", "reviews.tsv", "--json"][..], settings].concat();
        dir.json(&check, "")["held_out"].as_u64().unwrap()
    };
    let held = held_out(&[]);
    assert!(held > 0 && held_out(&["--set", "data.window=16"]) == held, "{held}");
    dir.write("longer.tsv", &(reviews() + "no label\n"));
    let longer = with(&["train", "--train", "longer.tsv", "--set", "data.window=16"], &["--run", "none"]);
    let before = dir.files();
    assert!(dir.refused(&longer).contains("longer.tsv:121:"));
    let of_built_in = ["train", "--task", "tag", "--set", "data.window=16", "--run", "none"];
    let of_none = ["train", "--train", "reviews.tsv", "--set", "data.window=0", "--run", "none"];
    for options in [&of_none[..], &of_built_in] {
        dir.refuses(options, &["data.window: expected"]);
    }
    assert_eq!(dir.files(), before);
}

#[cfg(unix)]
#[test]
fn files_that_change_while_they_are_read_anew_end_the_training() {
    let dir = TestDir::new("changes");
    dir.write("reviews.tsv", &reviews());
    let train = with(
        &["train", "--train", "reviews.tsv", "--set", "data.window=16"],
        &["--epochs", "100000", "--run", "run"],
    );
    let child = dir.command(&train).spawn().unwrap();
    wait_for(&dir.0.join("run"), 2);
    dir.write("reviews.tsv", &(reviews() + "it was fine\tgood\n"));
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    says(&text, &["reviews.tsv", "unchanged since it was first opened, got"]);
    assert!(dir.0.join("run/last.ckpt").is_file());
}

#[cfg(unix)]
#[test]
fn a_limit_of_file_sizes_is_an_error_and_leaves_the_checkpoint() {
    let dir = TestDir::new("file-limit");
    dir.write("reviews.tsv", &reviews());
    let wide = ["--set", "model.hidden=64"];
    let train = [&["train", "--train", "reviews.tsv", "--run", "run", "--epochs", "1"], &wide[..]].concat();
    dir.stdout(&train, "");
    let [last, metrics] =
        ["last.ckpt", "metrics.jsonl"].map(|name| fs::read(dir.0.join("run").join(name)).unwrap());
    let limited = |kib: &str, arguments: &str| {
        let mut command = Command::new("sh");
        command.args([
            "-c",
            &format!("ulimit -f {kib}; exec \"$0\" {arguments}"),
            env!("CARGO_BIN_EXE_unpadded"),
        ]);
        let output = command.current_dir(&dir.0).output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        text
    };
    // A file that a command writes at once is whole or is not there, so that the command can be repeated.
    dir.stdout(&["export", "run", "weights.safetensors"], "");
    let before = dir.files();
    for (arguments, name) in [
        ("report run -o", "page.html"),
        ("graph run --all -o", "graph.svg"),
        ("export run", "other.safetensors"),
        ("export run --int8", "small.ckpt"),
        ("import run weights.safetensors -o", "with.ckpt"),
    ] {
        let arguments = format!("{arguments} {name}");
        let text = limited("1", &arguments);
        assert!(text.contains(name) && text.contains("File too large"), "{text}");
        assert_eq!(dir.files(), before, "{arguments}");
        dir.stdout(&arguments.split(' ').collect::<Vec<_>>(), "");
        fs::remove_file(dir.0.join(name)).unwrap();
    }
    let text = limited("64", "train --resume run --epochs 2");
    assert!(text.contains("last.ckpt") && text.contains("File too large"), "{text}");
    assert_eq!(fs::read(dir.0.join("run/last.ckpt")).unwrap(), last);
    assert_eq!(fs::read(dir.0.join("run/metrics.jsonl")).unwrap(), metrics);
    let text = limited("1", "train --train reviews.tsv --run new");
    assert!(text.contains("config.toml") && text.contains("File too large"), "{text}");
    let left: Vec<_> = fs::read_dir(dir.0.join("new")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(left, [".lock"]);
}

#[test]
fn a_folder_that_a_full_disk_left_with_a_config_alone_is_new() {
    let dir = TestDir::new("config-alone");
    dir.write("reviews.tsv", &reviews());
    for (run, several) in
        [("seeds", &["train", "--seeds", "2"][..]), ("tune", &["tune", "--trials", "1", "--budget", "1h"])]
    {
        let folder = dir.0.join(run);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("config.toml"), "task = \"tag\"\n").unwrap();
        let begin = with(several, &["--train", "reviews.tsv", "--epochs", "1", "--run", run, "--quiet"]);
        // Without a lock file, the config is the user's.
        assert!(dir.refused(&begin).contains("got a folder with other files"));
        assert_eq!(fs::read_to_string(folder.join("config.toml")).unwrap(), "task = \"tag\"\n");
        for left in [".lock", ".seeds.json.new", ".tune.json.new"] {
            fs::write(folder.join(left), "").unwrap();
        }
        dir.stdout(&begin, "");
        assert!(fs::read_to_string(folder.join("config.toml")).unwrap().contains("task = \"classify\""));
    }
}

#[test]
fn what_has_no_end_is_bounded_and_the_limit_named() {
    let dir = TestDir::new("bounds");
    dir.write("reviews.tsv", &reviews());
    dir.write("large.toml", &"# more\n".repeat(200_000));
    let before = dir.files();
    assert!(dir.refused(&["train", "large.toml"]).contains("expected a config of at most 1048576 bytes"));
    #[cfg(unix)]
    assert!(dir.refused(&["train", "/dev/zero"]).contains("expected a config of at most 1048576 bytes"));
    let refused =
        |setting: &str| dir.refused(&["train", "--train", "reviews.tsv", "--run", "none", "--set", setting]);
    assert!(refused("model.layers=65").contains("model.layers: expected at most 64, got 65"));
    if cfg!(target_os = "linux") {
        let text = refused("model.hidden=10000000");
        assert!(text.contains("memory of the model's parameters: expected at most"), "{text}");
    }
    assert_eq!(dir.files(), before);
}
