//! The command speaks of its own flags and settings, not of the library's types.

use super::*;

/// An error in the command's words.
fn plain(dir: &TestDir, arguments: &[&str], expected: &[&str]) {
    let text = dir.refused(arguments);
    assert!(!text.contains("::"), "{arguments:?}: {text}");
    for part in expected {
        assert!(text.contains(part), "{arguments:?}: {part} in {text}");
    }
}

#[test]
fn errors_name_settings_and_no_types() {
    let dir = TestDir::new("words");
    dir.write("reviews.tsv", &reviews());
    // Held-out texts depend on the seed, texts of a file do not.
    let texts = ["train", "--train", "reviews.tsv", "--dev", "reviews.tsv"];
    let train = with(&texts, &["--epochs", "2", "--run", "run", "--quiet"]);
    dir.stdout(&train, "");

    // Vocabularies.
    dir.write("reviews.txt", &reviews());
    let rare = with(&["train", "--train", "reviews.tsv", "--run", "none"], &["--set", "text.min_count=1000"]);
    plain(&dir, &rare, &["`text.min_count` (it is 1000)", "`text.tokens` (it is `words`)"]);
    let rare = ["train", "--task", "lm", "--train", "reviews.txt", "--set", "text.min_count=99999"];
    plain(&dir, &rare, &["`text.min_count` (it is 99999)", "`text.tokens` (it is `characters`)"]);

    // Files that are something else.
    fs::create_dir(dir.0.join("parts")).unwrap();
    dir.write("parts/train.tsv", &reviews());
    dir.write("parts/dev.tsv", &reviews());
    plain(&dir, &["eval", "run", "parts"], &["parts", "give the path of the part"]);
    let folder = with(&["train", "--train", "reviews.tsv"], &["--set", "text.vectors=parts"]);
    plain(&dir, &folder, &["parts", "expected a file, got a folder"]);
    fs::write(
        dir.0.join("latin.tsv"),
        [&"é à ü\tgood\n".repeat(9).into_bytes()[..], b"\xe9\tbad\n"].concat(),
    )
    .unwrap();
    plain(&dir, &["data", "check", "latin.tsv"], &["latin.tsv:10", "0xe9"]);
    dir.write("long.tsv", &format!("{}\tgood\n", "a".repeat(1 << 24)));
    plain(&dir, &["data", "check", "long.tsv"], &["long.tsv:1", "16777216 bytes"]);
    let mut zip = zip::ZipWriter::new(fs::File::create(dir.0.join("two.zip")).unwrap());
    for name in ["a.txt", "b.txt"] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(b"it 1 2\n").unwrap();
    }
    zip.finish().unwrap();
    let zipped = with(&["train", "--train", "reviews.tsv"], &["--set", "text.vectors=two.zip"]);
    plain(&dir, &zipped, &["two.zip", "unpack"]);

    // A training that does not fit its checkpoint.
    plain(&dir, &["train", "--resume", "run", "--seed", "9"], &["seed", "--run NEW"]);
    plain(&dir, &["train", "--resume", "run", "--set", "model.hidden=9"], &["program", "--run NEW"]);
    plain(&dir, &["train", "--set", "training.rate=1e39"], &["training.rate", "3.4e38"]);
    if cfg!(feature = "safetensors") {
        for name in ["weights.onnx", "weights.txt", "weights", "weights.safetensors.gz"] {
            plain(&dir, &["export", "run", name], &["safetensors", "another ending"]);
        }
        dir.stdout(&["export", "run", "weights.safetensors"], "");
        let wider = ["train", "--train", "reviews.tsv", "--epochs", "1", "--run", "other", "--quiet"];
        dir.stdout(&with(&wider, &["--set", "model.hidden=9"]), "");
        let import = ["import", "other", "weights.safetensors", "-o", "new.ckpt"];
        plain(&dir, &import, &["of another shape", "`--rename OURS=THEIRS`"]);
    }
}

#[test]
fn numbers_below_zero_are_values() {
    let dir = TestDir::new("negative");
    for arguments in [
        &["train", "--seed", "-1"][..],
        &["train", "--epochs", "-1"],
        &["train", "--threads", "-1"],
        &["generate", "run", "--length", "-1"],
        &["data", "vocab", "a.tsv", "--top", "-1"],
        &["bench", "--seconds", "-1"],
    ] {
        let text = dir.refused(arguments);
        assert!(text.contains("invalid value '-1'") && !text.contains("tip"), "{arguments:?}: {text}");
    }
    dir.refuses(&["train", "--seed", "-1"], &["expected a whole number from 0 to 9223372036854775807"]);
}

#[test]
fn a_config_that_was_emptied_is_not_resumed() {
    let dir = TestDir::trained("emptied", "reviews.tsv", "1");
    let config = fs::read_to_string(dir.0.join("run/config.toml")).unwrap();
    let head = config.split("[training]").next().unwrap();
    for (text, missing) in [("", "no `task`"), (head, "no table `[training]`")] {
        dir.write("run/config.toml", text);
        let output = dir.refused(&["train", "--resume", "run", "--epochs", "2"]);
        assert!(output.contains(missing) && output.contains("`unpadded inspect run` prints"), "{output}");
    }
    dir.write("run/config.toml", &config);
    dir.stdout(&["train", "--resume", "run", "--epochs", "2"], "");
}

#[test]
fn samples_at_the_end_have_no_escapes_for_columns() {
    let dir = TestDir::new("samples");
    dir.write("reviews.tsv", &reviews());
    let text =
        dir.stdout(&with(&["train", "--train", "reviews.tsv"], &["--epochs", "1", "--run", "run"]), "");
    assert!(!text.contains("\\t") && text.contains("  (truth: "), "{text}");
}

#[test]
fn what_was_understood_is_in_json() {
    let dir = TestDir::new("understood");
    let texts = reviews().replace('\t', ";");
    dir.write("reviews.csv", &format!("text;label\n{texts}"));
    let text = dir.json(&["data", "check", "reviews.csv", "--json"], "");
    let read = &text["read_as"];
    assert_eq!(
        (&read["format"], &read["header"], &read["separator"]),
        (&"csv".into(), &true.into(), &";".into())
    );
    assert_eq!((&read["encoding"], &read["columns"]["label"]), (&"UTF-8".into(), &"label".into()), "{text}");
    assert!(
        read["notes"].as_array().is_some_and(|notes| notes.contains(&"separated by `;`".into())),
        "{text}"
    );
    let labels = text["labels"].as_object().unwrap().values().filter_map(Value::as_u64).sum::<u64>();
    let count = |name: &str| text[name].as_u64().unwrap();
    assert_eq!(
        (labels, text["records"].as_array().unwrap().len()),
        (count("texts") + count("held_out"), 3),
        "{text}"
    );
    let stats = dir.stdout(&["data", "stats", "reviews.csv"], "");
    says(&stats, &[&format!("labels of {labels} texts, of which {} are held out:", count("held_out"))]);
}

#[test]
fn a_check_finds_the_encoding_that_a_training_does() {
    let dir = TestDir::new("late-encoding");
    let texts: String = (0..20_000).map(|i| format!("plain text {i}\t{}\n", ["y", "n"][i % 2])).collect();
    fs::write(dir.0.join("late.tsv"), [texts.as_bytes(), b"caf\xe9 noir\ty\n"].concat()).unwrap();
    for set in [&[][..], &["--set", "data.window=100"]] {
        let text = dir.stdout(&with(&["data", "check", "late.tsv"], set), "");
        assert!(text.contains("encoding windows-1252") && text.contains("the data is valid"), "{text}");
    }
}

#[test]
fn malformed_records_are_left_out_as_set() {
    let dir = TestDir::new("left-out");
    let text = reviews() + "no label\n" + &"a good film again\tgood\n".repeat(20) + "a\tb\tc\n";
    dir.write("some.tsv", &text);
    dir.write("clean.tsv", &reviews());
    let lines: Vec<usize> =
        (1..).zip(text.lines()).filter(|(_, line)| line.split('\t').count() != 2).map(|(at, _)| at).collect();
    let skips = ["--set", "data.skip_bad=true", "--set", "data.skip_bad_share=0.1"];
    // `data check` and `train` count the same records, also in files larger than memory.
    let output = dir.stdout(&with(&["data", "check", "some.tsv"], &skips), "");
    assert!(output.contains("malformed records left out: 2 of ") && output.contains("some.tsv:"), "{output}");
    let window = with(&with(&["data", "check", "some.tsv"], &skips), &["--set", "data.window=20"]);
    assert!(dir.stdout(&window, "").contains("malformed records left out: 2 of "));
    let few = ["data", "check", "some.tsv", "--set", "data.skip_bad=true"];
    plain(
        &dir,
        &few,
        &["2 of ", "`data.skip_bad_share`", "`data.skip_bad`", &format!("some.tsv:{}", lines[0])],
    );
    let train =
        ["train", "--train", "some.tsv", "--test", "some.tsv", "--epochs", "1", "--run", "run", "--quiet"];
    dir.stdout(&with(&train, &skips), "");
    let table = fs::read_to_string(dir.0.join("run/skipped.tsv")).unwrap();
    let rows: Vec<Vec<&str>> = table.lines().map(|line| line.split('\t').collect()).collect();
    assert_eq!(rows[0], ["file", "line", "reason", "text"]);
    assert!(rows.len() >= 3 && rows[1..].iter().all(|row| row.len() == 4), "{table}");
    assert_eq!((rows[1][1], rows[1][3]), (&*lines[0].to_string(), "no label"));
    assert_eq!(rows[2][3], "a\\tb\\tc");
    // `eval` leaves out records as the training did; `predict` gives an answer to each record.
    let output = String::from_utf8(dir.given(&["eval", "run", "some.tsv"], "").stderr).unwrap();
    assert!(output.contains("malformed records left out: 2 of "), "{output}");
    plain(&dir, &["eval", "run", "some.tsv", "--set", "data.skip_bad=false"], &["some.tsv:"]);
    plain(
        &dir,
        &["predict", "run", "clean.tsv", "--set", "data.skip_bad=true"],
        &["each record gets an answer"],
    );
}

/// Paths that are not UTF-8, such as names in Latin-1, are read, trained on, resumed and reported.
#[cfg(target_os = "linux")]
#[test]
fn paths_that_are_not_utf_8_work() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    let dir = TestDir::new("latin");
    let done = |arguments: &[&[u8]]| -> String {
        let arguments: Vec<&OsStr> = arguments.iter().map(|bytes| OsStr::from_bytes(bytes)).collect();
        let output = dir.command(&[]).args(&arguments).output().unwrap();
        let message = String::from_utf8([output.stderr, output.stdout].concat()).unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {message}");
        message
    };
    let write = |name: &[u8], text: &str| {
        let path = dir.0.join(OsStr::from_bytes(name));
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(b"caf\xe9.tsv", &reviews());
    write(br"caf\xe9.tsv", "it was literal\tgood\n");
    for label in ["good", "bad"] {
        for at in 0..20 {
            write(&[b"cl\xe9s/", label.as_bytes(), b"\xe9/", &[b'0' + at, 0xe9]].concat(), "it was fine");
        }
    }
    let message = done(&[b"data", b"check", b"caf\xe9.tsv"]);
    assert!(message.contains(r"caf\xe9.tsv: 96 texts of 2 labels"), "{message}");
    let message = done(&[b"data", b"check", b"cl\xe9s"]);
    assert!(message.contains(r"labels of 40 texts") && message.contains(r"good\xe9"), "{message}");
    let train: &[&[u8]] = &[b"train", b"--train", b"caf\xe9.tsv", b"--epochs", b"1", b"--run"];
    let small: &[&[u8]] = &[b"--set", b"model.hidden=8", b"--set", b"model.embedding=8", b"--json"];
    let tested: &[&[u8]] = &[b"r\xe9", b"--dev", b"c*\xe9.tsv", b"--test", b"caf\xe9.tsv"];
    let message = done(&[train, tested, small].concat());
    assert!(
        message.contains(r#""dataset":"caf\\xe9.tsv""#) && message.contains(r#""run":"r\\xe9""#),
        "{message}"
    );
    assert!(message.contains(r"unpadded predict $'r\xe9'"), "{message}");
    done(&[b"train", b"--resume", b"r\xe9", b"--epochs", b"2"]);
    done(&[train, &[b"two", b"--from", b"r\xe9"]].concat());
    let message = done(&[b"eval", b"r\xe9", b"two", b"caf\xe9.tsv"]);
    assert!(message.contains(r"two against r\xe9"), "{message}");
    assert_eq!(done(&[b"predict", b"r\xe9", b"caf\xe9.tsv", b"--quiet"]).lines().count(), 120);
    let message = done(&[b"predict", b"r\xe9", br"caf\xe9.tsv"]);
    assert!(
        message.starts_with(r"caf\x5cxe9.tsv: read as") && message.contains("it was literal"),
        "{message}"
    );
}
