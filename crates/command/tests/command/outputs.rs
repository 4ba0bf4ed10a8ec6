//! Files of answers: their names, the files that they replace, and the files after an interrupt.

use super::*;

#[cfg(unix)]
#[test]
fn an_interrupt_removes_the_temporary_file() {
    let dir = TestDir::trained("interrupted", "reviews.csv", "6");
    dir.write("many.csv", &format!("text\n{}", "and then it was fine\n".repeat(500_000)));
    for (name, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let arguments = ["predict", "run", "many.csv", "--output", "out.csv", "--batch", "1"];
        let child = dir.command(&arguments).spawn().unwrap();
        let temporary = dir.0.join(format!("out.csv.{}.part", child.id()));
        while !temporary.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {text}");
        assert!(text.contains("interrupted after ") && text.contains("`out.csv` is not written"), "{text}");
        assert_eq!(dir.files(), ["many.csv", "reviews.csv", "run"], "{name}");
    }
}

#[test]
fn a_name_of_another_format_is_refused() {
    let dir = TestDir::trained("endings", "reviews.csv", "6");
    dir.write("new.csv", "id,text\n7,it was fine\n");
    dir.write("new.tsv", "id\ttext\n7\tit was fine\n");
    dir.write("new.jsonl", "{\"text\": \"it was fine\"}\n");
    dir.write("plain.txt", "it was fine\nit was dull\n");
    let before = dir.files();
    for (input, output, expected) in [
        ("new.csv", "out.csv.gz", "without `.gz`, since answers are written uncompressed: `out.csv` fits"),
        ("new.csv", "out.zip", "without `.zip`"),
        ("new.csv", "out.jsonl", "a name for CSV, the format that is written, got `.jsonl`: `.csv` fits"),
        ("new.csv", "out.tsv", "got `.tsv`: `.csv` fits"),
        ("new.tsv", "out.csv", "a name for tab-separated values"),
        ("new.tsv", "out.conllu", "`.tsv` fits"),
        ("new.jsonl", "out.csv", "a name for JSON Lines"),
        ("plain.txt", "out.csv", "got `.csv`: `.tsv` fits"),
    ] {
        dir.refuses(&["predict", "run", input, "--output", output, "--set", "data.text=text"], &[expected]);
    }
    let plain = ["predict", "run", "plain.txt", "--set", "data.format=plain", "--output", "out.json"];
    assert!(dir.refused(&plain).contains("a name for lines of text, the format that is written"));
    assert_eq!(dir.files(), before);
    for (input, output) in [
        ("new.csv", "one.csv"),
        ("new.csv", "one.txt"),
        ("new.csv", "one"),
        ("new.tsv", "one.tsv"),
        ("new.jsonl", "one.ndjson"),
        ("new.jsonl", "one.json"),
        ("plain.txt", "two.txt"),
        ("plain.txt", "two.tsv"),
    ] {
        dir.stdout(&["predict", "run", input, "--output", output], "");
    }
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_stays_and_a_file_that_is_read_is_not_replaced() {
    let dir = TestDir::trained("links", "reviews.csv", "6");
    dir.write("new.csv", "id,text\n7,it was fine\n");
    dir.write("real.csv", "old\n");
    let link = dir.0.join("link.csv");
    std::os::unix::fs::symlink("real.csv", &link).unwrap();
    dir.stdout(&["predict", "run", "new.csv", "--output", "link.csv", "--overwrite"], "");
    assert!(link.is_symlink());
    assert!(fs::read_to_string(dir.0.join("real.csv")).unwrap().contains("7,it was fine,good,"));
    std::os::unix::fs::symlink("none.csv", dir.0.join("dangling.csv")).unwrap();
    let text = dir.refused(&["predict", "run", "new.csv", "--output", "dangling.csv"]);
    assert!(text.contains("a symbolic link to a file that is not there"), "{text}");

    let mut zip = zip::ZipWriter::new(fs::File::create(dir.0.join("some.data")).unwrap());
    zip.start_file("a.csv", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(b"id,text\n7,it was fine\n").unwrap();
    zip.finish().unwrap();
    let output = ["--output", "some.data", "--overwrite"];
    let text = dir.refused(&[&["predict", "run", "some.data!a.csv"], &output[..]].concat());
    assert!(text.contains("expected a new file, got the file that is read"), "{text}");
}

/// Returns the message of a command that is refused; a command that waits for a pipe is ended.
#[cfg(unix)]
fn refused_at_once(dir: &TestDir, arguments: &[&str]) -> String {
    let mut child = dir.command(arguments).spawn().unwrap();
    let begun = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > std::time::Duration::from_secs(120) {
            child.kill().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
    text
}

#[cfg(unix)]
#[test]
fn no_file_of_a_run_is_written_through_a_link_or_a_pipe() {
    let dir = TestDir::trained("run-links", "reviews.csv", "6");
    dir.write("victim", "as it was\n");
    let pipe = |path: &std::path::Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let link = |path: &std::path::Path| std::os::unix::fs::symlink("../victim", path).unwrap();
    let resume = ["train", "--resume", "run", "--epochs", "7"];
    let anew = with(&["train", "--train", "reviews.csv", "--run", "run", "--overwrite"], &["--epochs", "1"]);
    for name in
        [".lock", ".config.toml.new", ".report.html.new", "metrics.jsonl", "report.html", ".last.ckpt.lock"]
    {
        let (at, kept) = (dir.0.join("run").join(name), dir.0.join("kept"));
        let before = at.exists().then(|| fs::rename(&at, &kept).unwrap());
        for make in [&link as &dyn Fn(&std::path::Path), &pipe] {
            make(&at);
            for arguments in [&resume[..], &anew] {
                let text = refused_at_once(&dir, arguments);
                assert!(text.contains("expected a plain file") && text.contains(name), "{name}: {text}");
                assert!(text.contains("a symbolic link") || text.contains("a pipe or a device"), "{text}");
            }
            assert_eq!(fs::read_to_string(dir.0.join("victim")).unwrap(), "as it was\n", "{name}");
            fs::remove_file(&at).unwrap();
        }
        if before.is_some() {
            fs::rename(&kept, &at).unwrap();
        }
    }
    // A name in a new folder, and a file that a command reads.
    fs::create_dir(dir.0.join("new")).unwrap();
    link(&dir.0.join("new/.lock"));
    let train = ["train", "--train", "reviews.csv", "--run", "new"];
    assert!(refused_at_once(&dir, &train).contains("a symbolic link"));
    let read = [("config.toml", &resume[..]), ("metrics.jsonl", &["report", "run"]), ("last.ckpt", &anew)];
    let best = [&anew[..], &["predict", "run"], &["predict", "run/best.ckpt"], &["train", "--from", "run"]];
    for (name, arguments) in read.into_iter().chain(best.map(|arguments| ("best.ckpt", arguments))) {
        let (at, kept) = (dir.0.join("run").join(name), dir.0.join("kept"));
        fs::rename(&at, &kept).unwrap();
        pipe(&at);
        let text = refused_at_once(&dir, arguments);
        assert!(text.contains(name) && text.contains("or a device"), "{text}");
        fs::remove_file(&at).unwrap();
        fs::rename(&kept, &at).unwrap();
    }
    // A new file never appears at the end of a link.
    std::os::unix::fs::symlink("none", dir.0.join("page")).unwrap();
    for command in ["report", "graph"] {
        dir.refuses(&[command, "run", "-o", "page"], &["a symbolic link to a file that is not there"]);
    }
    assert!(!dir.0.join("none").exists());
    // The config that the user names may be a pipe.
    let config = dir.stdout(&["init", "classify", "--train", "reviews.csv"], "");
    pipe(&dir.0.join("config"));
    let at = dir.0.join("config");
    let writer = std::thread::spawn(move || fs::write(at, config).unwrap());
    dir.stdout(&with(&["train", "config", "--run", "piped", "--quiet"], &["--epochs", "1"]), "");
    writer.join().unwrap();
    dir.stdout(&[&resume[..], &["--quiet"]].concat(), "");
}

#[cfg(unix)]
#[test]
fn a_test_file_that_vanishes_leaves_the_run() {
    let dir = TestDir::new("vanished");
    dir.write("reviews.tsv", &reviews());
    dir.write("test.tsv", &reviews());
    let files = ["train", "--train", "reviews.tsv", "--test", "test.tsv"];
    let child = dir.command(&with(&files, &["--epochs", "40", "--run", "run"])).spawn().unwrap();
    wait_for(&dir.0.join("run"), 1);
    fs::remove_file(dir.0.join("test.tsv")).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    says(&text, &["the run is saved: `unpadded eval run test.tsv` computes the test scores later"]);
    assert!(dir.0.join("run/best.ckpt").is_file() && dir.0.join("run/report.html").is_file());
}

#[test]
fn settings_of_columns_are_compared_as_they_were_trained() {
    let dir = TestDir::new("asked-columns");
    dir.write(
        "reviews.csv",
        &format!("a,b,c\n{}", reviews().replace('\t', ",").replace("it was", "it,it was")),
    );
    let texts = reviews();
    let rows = texts.lines().map(|line| {
        let (text, label) = line.split_once('\t').unwrap();
        format!("{text},so {text},{label}\n")
    });
    dir.write("reviews.csv", &format!("one,two,label\n{}", rows.collect::<String>()));
    for (column, run) in [("one", "first"), ("two", "second")] {
        let set = format!("data.text={column}");
        let train = ["train", "--train", "reviews.csv", "--set", &set];
        dir.stdout(&with(&train, &["--epochs", "1", "--run", run, "-q"]), "");
    }
    let output = dir.stdout(&["eval", "first", "second", "reviews.csv"], "");
    assert!(output.lines().any(|line| line.starts_with("data.text ")), "{output}");
    says(
        &output,
        &["no test: the runs differ in their texts, their headline score, or their labels or tags"],
    );
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_wherever_it_is_written() {
    let dir = TestDir::trained("full", "reviews.csv", "2");
    for arguments in [
        &["--help"][..],
        &["init", "classify"],
        &["predict", "run", "reviews.csv", "--quiet"],
        &["eval", "run", "reviews.csv"],
        &["graph", "run"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = dir.command(arguments).stdout(full).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(
            text.contains("expected room to write it, got a full disk (No space left on device"),
            "{text}"
        );
    }
}

#[test]
fn a_resumed_training_reports_another_rate() {
    let dir = TestDir::trained("rate", "reviews.csv", "2");
    let resumed = |more: &[&str]| {
        let output = dir.given(&[&["train", "--resume", "run"], more].concat(), "");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = resumed(&["--epochs", "3", "--set", "training.rate=0.0625"]);
    assert!(
        text.contains("training.rate: ") && text.contains(" in the training so far, 0.0625 from here on"),
        "{text}"
    );
    assert!(!resumed(&["--epochs", "4"]).contains("from here on"));
    // A complete training has no further steps.
    assert!(!resumed(&["--set", "training.rate=0.5"]).contains("from here on"));
}
