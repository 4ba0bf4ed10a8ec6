//! Files of answers: their names, the files that they replace, and the files after an interrupt.

use super::*;

#[cfg(unix)]
#[test]
fn an_interrupt_removes_the_temporary_file() {
    let place = Place::trained("interrupted", "reviews.csv", "6");
    place.write("many.csv", &format!("text\n{}", "and then it was fine\n".repeat(500_000)));
    for (name, code) in [("-INT", 130), ("-TERM", 143), ("-HUP", 129)] {
        let arguments = ["predict", "run", "many.csv", "--output", "out.csv", "--batch", "1"];
        let child = place.command(&arguments).spawn().unwrap();
        let temporary = place.0.join(format!("out.csv.{}.part", child.id()));
        while !temporary.exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {said}");
        assert!(said.contains("interrupted after ") && said.contains("`out.csv` is not written"), "{said}");
        assert_eq!(place.files(), ["many.csv", "reviews.csv", "run"], "{name}");
    }
}

#[test]
fn a_name_of_another_format_is_refused() {
    let place = Place::trained("endings", "reviews.csv", "6");
    place.write("new.csv", "id,text\n7,it was fine\n");
    place.write("new.tsv", "id\ttext\n7\tit was fine\n");
    place.write("new.jsonl", "{\"text\": \"it was fine\"}\n");
    place.write("plain.txt", "it was fine\nit was dull\n");
    let before = place.files();
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
        place.refuses(&["predict", "run", input, "--output", output, "--set", "data.text=text"], &[expected]);
    }
    let plain = ["predict", "run", "plain.txt", "--set", "data.format=plain", "--output", "out.json"];
    assert!(place.refused(&plain).contains("a name for lines of text, the format that is written"));
    assert_eq!(place.files(), before);
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
        place.said(&["predict", "run", input, "--output", output], "");
    }
}

#[cfg(unix)]
#[test]
fn a_symbolic_link_stays_and_a_file_that_is_read_is_not_replaced() {
    let place = Place::trained("links", "reviews.csv", "6");
    place.write("new.csv", "id,text\n7,it was fine\n");
    place.write("real.csv", "old\n");
    let link = place.0.join("link.csv");
    std::os::unix::fs::symlink("real.csv", &link).unwrap();
    place.said(&["predict", "run", "new.csv", "--output", "link.csv", "--overwrite"], "");
    assert!(link.is_symlink());
    assert!(fs::read_to_string(place.0.join("real.csv")).unwrap().contains("7,it was fine,good,"));
    std::os::unix::fs::symlink("none.csv", place.0.join("dangling.csv")).unwrap();
    let said = place.refused(&["predict", "run", "new.csv", "--output", "dangling.csv"]);
    assert!(said.contains("a symbolic link to a file that is not there"), "{said}");

    let mut zip = zip::ZipWriter::new(fs::File::create(place.0.join("some.data")).unwrap());
    zip.start_file("a.csv", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(b"id,text\n7,it was fine\n").unwrap();
    zip.finish().unwrap();
    let output = ["--output", "some.data", "--overwrite"];
    let said = place.refused(&[&["predict", "run", "some.data!a.csv"], &output[..]].concat());
    assert!(said.contains("expected a new file, got the file that is read"), "{said}");
}

/// Returns the message of a command that is refused; a command that waits for a pipe is ended.
#[cfg(unix)]
fn refused_at_once(place: &Place, arguments: &[&str]) -> String {
    let mut child = place.command(arguments).spawn().unwrap();
    let begun = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begun.elapsed() > std::time::Duration::from_secs(120) {
            child.kill().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
    said
}

#[cfg(unix)]
#[test]
fn no_file_of_a_run_is_written_through_a_link_or_a_pipe() {
    let place = Place::trained("run-links", "reviews.csv", "6");
    place.write("victim", "as it was\n");
    let pipe = |path: &std::path::Path| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    let link = |path: &std::path::Path| std::os::unix::fs::symlink("../victim", path).unwrap();
    let resume = ["train", "--resume", "run", "--epochs", "7"];
    let anew = with(&["train", "--train", "reviews.csv", "--run", "run", "--overwrite"], &["--epochs", "1"]);
    for name in
        [".lock", ".config.toml.new", ".report.html.new", "metrics.jsonl", "report.html", ".last.ckpt.lock"]
    {
        let (at, kept) = (place.0.join("run").join(name), place.0.join("kept"));
        let before = at.exists().then(|| fs::rename(&at, &kept).unwrap());
        for make in [&link as &dyn Fn(&std::path::Path), &pipe] {
            make(&at);
            for arguments in [&resume[..], &anew] {
                let said = refused_at_once(&place, arguments);
                assert!(said.contains("expected a plain file") && said.contains(name), "{name}: {said}");
                assert!(said.contains("a symbolic link") || said.contains("a pipe or a device"), "{said}");
            }
            assert_eq!(fs::read_to_string(place.0.join("victim")).unwrap(), "as it was\n", "{name}");
            fs::remove_file(&at).unwrap();
        }
        if before.is_some() {
            fs::rename(&kept, &at).unwrap();
        }
    }
    // A name in a new folder, and a file that a command reads.
    fs::create_dir(place.0.join("new")).unwrap();
    link(&place.0.join("new/.lock"));
    let train = ["train", "--train", "reviews.csv", "--run", "new"];
    assert!(refused_at_once(&place, &train).contains("a symbolic link"));
    let read = [("config.toml", &resume[..]), ("metrics.jsonl", &["report", "run"]), ("last.ckpt", &anew)];
    let best = [&anew[..], &["predict", "run"], &["predict", "run/best.ckpt"], &["train", "--from", "run"]];
    for (name, arguments) in read.into_iter().chain(best.map(|arguments| ("best.ckpt", arguments))) {
        let (at, kept) = (place.0.join("run").join(name), place.0.join("kept"));
        fs::rename(&at, &kept).unwrap();
        pipe(&at);
        let said = refused_at_once(&place, arguments);
        assert!(said.contains(name) && said.contains("or a device"), "{said}");
        fs::remove_file(&at).unwrap();
        fs::rename(&kept, &at).unwrap();
    }
    // A new file never appears at the end of a link.
    std::os::unix::fs::symlink("none", place.0.join("page")).unwrap();
    for command in ["report", "graph"] {
        place.refuses(&[command, "run", "-o", "page"], &["a symbolic link to a file that is not there"]);
    }
    assert!(!place.0.join("none").exists());
    // The config that the user names may be a pipe.
    let config = place.said(&["init", "classify", "--train", "reviews.csv"], "");
    pipe(&place.0.join("config"));
    let at = place.0.join("config");
    let writer = std::thread::spawn(move || fs::write(at, config).unwrap());
    place.said(&with(&["train", "config", "--run", "piped", "--quiet"], &["--epochs", "1"]), "");
    writer.join().unwrap();
    place.said(&[&resume[..], &["--quiet"]].concat(), "");
}

#[cfg(unix)]
#[test]
fn a_test_file_that_vanishes_leaves_the_run() {
    let place = Place::new("vanished");
    place.write("reviews.tsv", &reviews());
    place.write("test.tsv", &reviews());
    let files = ["train", "--train", "reviews.tsv", "--test", "test.tsv"];
    let child = place.command(&with(&files, &["--epochs", "40", "--run", "run"])).spawn().unwrap();
    wait_for(&place.0.join("run"), 1);
    fs::remove_file(place.0.join("test.tsv")).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    says(&said, &["the run is saved: `unpadded eval run test.tsv` computes the test scores later"]);
    assert!(place.0.join("run/best.ckpt").is_file() && place.0.join("run/report.html").is_file());
}

#[test]
fn settings_of_columns_are_compared_as_they_were_trained() {
    let place = Place::new("asked-columns");
    place.write(
        "reviews.csv",
        &format!("a,b,c\n{}", reviews().replace('\t', ",").replace("it was", "it,it was")),
    );
    let texts = reviews();
    let rows = texts.lines().map(|line| {
        let (text, label) = line.split_once('\t').unwrap();
        format!("{text},so {text},{label}\n")
    });
    place.write("reviews.csv", &format!("one,two,label\n{}", rows.collect::<String>()));
    for (column, run) in [("one", "first"), ("two", "second")] {
        let set = format!("data.text={column}");
        let train = ["train", "--train", "reviews.csv", "--set", &set];
        place.said(&with(&train, &["--epochs", "1", "--run", run, "-q"]), "");
    }
    let said = place.said(&["eval", "first", "second", "reviews.csv"], "");
    assert!(said.lines().any(|line| line.starts_with("data.text ")), "{said}");
    says(&said, &["no test: the runs differ in their texts, their headline score, or their labels or tags"]);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_named_wherever_it_is_written() {
    let place = Place::trained("full", "reviews.csv", "2");
    for arguments in [
        &["--help"][..],
        &["init", "classify"],
        &["predict", "run", "reviews.csv", "--quiet"],
        &["eval", "run", "reviews.csv"],
        &["graph", "run"],
    ] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.command(arguments).stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(
            said.contains("expected room to write it, got a full disk (No space left on device"),
            "{said}"
        );
    }
}

#[test]
fn a_resumed_training_reports_another_rate() {
    let place = Place::trained("rate", "reviews.csv", "2");
    let resumed = |more: &[&str]| {
        let output = place.given(&[&["train", "--resume", "run"], more].concat(), "");
        String::from_utf8(output.stderr).unwrap()
    };
    let said = resumed(&["--epochs", "3", "--set", "training.rate=0.0625"]);
    assert!(
        said.contains("training.rate: ") && said.contains(" in the training so far, 0.0625 from here on"),
        "{said}"
    );
    assert!(!resumed(&["--epochs", "4"]).contains("from here on"));
    // A complete training has no further steps.
    assert!(!resumed(&["--set", "training.rate=0.5"]).contains("from here on"));
}
