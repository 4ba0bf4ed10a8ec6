//! Lines of standard input: each gets an answer or an error.

use std::io::{BufRead, BufReader};

use super::*;

fn asked(dir: &TestDir, arguments: &[&str], input: &[u8]) -> (i32, String, String) {
    let mut child = dir.command(arguments).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writing = std::thread::spawn(move || stdin.write_all(&input).ok());
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

fn labels(answers: &str) -> Vec<&str> {
    answers.lines().map(|line| line.split('\t').next().unwrap_or_default()).collect()
}

#[test]
fn a_bad_line_leaves_the_others_their_answers() {
    let dir = TestDir::trained("bad-lines", "reviews.tsv", "6");
    let input = b"it was fine\nit was \xff\nit was dull\r\n\xfe\n\nit was fine";
    let (code, answers, errors) = asked(&dir, &["predict", "run"], input);
    let found = labels(&answers);
    assert_eq!((code, found.len()), (1, 6), "{answers} {errors}");
    assert_eq!([found[0], found[1], found[2], found[3], found[5]], ["good", "", "bad", "", "good"]);
    let first = "error: standard input, line 2: expected UTF-8, got byte 0xff at place 7: convert";
    says(&errors, &[first, "line 4: "]);
    assert!(errors.ends_with("error: 2 of 6 lines have no answer\n"), "{errors}");

    let (code, answers, _) = asked(&dir, &["predict", "run", "--json"], input);
    let answers: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((code, answers.len()), (1, 6));
    assert!(answers[1]["error"].as_str().unwrap().contains("line 2") && answers[1]["text"].is_null());
    assert_eq!((&answers[2]["label"], &answers[2]["error"]), (&"bad".into(), &Value::Null));

    let (code, answers, errors) = asked(&dir, &["predict", "run", "--strict"], input);
    assert_eq!((code, labels(&answers)), (1, vec!["good"]), "{errors}");
    assert!(errors.ends_with("place 7: convert the text, as by `iconv -t UTF-8`\n"), "{errors}");

    // Too long a line is left out to its end.
    let long = [&vec![b'a'; (1 << 24) + 1][..], b"\nit was dull\n"].concat();
    let (code, answers, errors) = asked(&dir, &["predict", "run"], &long);
    assert_eq!((code, labels(&answers)), (1, vec!["", "bad"]), "{errors}");
    assert!(errors.contains("line 1: expected at most 16777216 bytes"), "{errors}");

    // Records of the training's file are warned of, once.
    let (code, answers, errors) = asked(&dir, &["predict", "run"], b"it was fine\tgood\nit was dull\tbad\n");
    assert_eq!((code, answers.lines().count(), errors.matches("warning").count()), (0, 2, 1), "{errors}");
    assert!(errors.contains("line 1: `good` beside a tab is a label of the model"), "{errors}");
    let warned = |lines: &str| asked(&dir, &["predict", "run"], lines.as_bytes()).2;
    let errors = warned("{\"text\": \"fine\", \"label\": \"good\"}\n");
    says(&errors, &["`good` is a label of the model, and the whole JSON object"]);
    for (line, separator) in [
        ("it was dull,bad\n", "comma"),
        ("it was dull;bad", "semicolon"),
        ("\"it was dull\";\"bad\"", "semicolon"),
        ("bad|dull", "bar"),
    ] {
        says(&warned(line), &[&format!("`bad` beside a {separator} is a label of the model")]);
    }
    assert_eq!(warned("good\nit was\tfine\ngood, it was bad\ngood; it was | fine\n"), "");
    // Without a known label, too; a header has the names of the columns, which no table of the training had here.
    for line in ["{\"text\": \"it was fine\"}", "[\"it was fine\", 3]"] {
        let errors = warned(line);
        assert!(errors.contains("the whole JSON") && errors.matches("warning").count() == 1, "{errors}");
    }
    assert_eq!(warned("text,label\n[1]\n{it was} fine\n[it was] fine\n"), "");
}

#[test]
fn records_without_a_text_have_empty_answers() {
    let dir = TestDir::trained("no-text", "reviews.tsv", "1");
    let sentences = (0..40).map(|i| format!("word{i} O\nParis B-place\n\n"));
    dir.write("train.conll", &sentences.collect::<String>());
    let train = ["train", "--task", "tag", "--train", "train.conll", "--run", "tag"];
    // The format of the training does not decide how a table of texts is read.
    dir.stdout(&with(&train, &["--epochs", "1", "--set", "data.format=columns"]), "");
    dir.write("new.csv", "id,text\n1,it was fine\n2,\n3,  \n4,dull\n");
    for (run, columns) in [("run", 2), ("tag", 1)] {
        let (code, answers, errors) = asked(&dir, &["predict", run], b"it was fine\n\n \t \ndull\n");
        let lines: Vec<&str> = answers.lines().collect();
        assert_eq!((code, lines.len(), lines[1], lines[2]), (0, 4, "", ""), "{answers} {errors}");
        assert!(!lines[0].is_empty() && !lines[3].is_empty(), "{answers}");
        assert!(errors.ends_with("2 of 4 lines have no text; their answers are empty\n"), "{errors}");
        let (code, answers, _) = asked(&dir, &["predict", run, "--json"], b" \nfine\n");
        let objects: Vec<Value> = answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((code, &objects[0]), (0, &serde_json::json!({"text": " ", "answer": null})), "{answers}");
        assert!(objects[1].get("answer").is_none(), "{answers}");
        let (code, answers, errors) = asked(&dir, &["predict", run, "new.csv"], b"");
        let lines: Vec<&str> = answers.lines().collect();
        let none = ",".repeat(columns);
        assert_eq!(
            (code, lines[2], lines[3]),
            (0, &*format!("2,{none}"), &*format!("3,  {none}")),
            "{errors}"
        );
        assert!(errors.ends_with("2 of 4 records have no text; their answers are empty\n"), "{errors}");
        assert_eq!(asked(&dir, &["predict", run, "new.csv", "-q"], b"").2, "", "-q");
    }
    // Texts of the table are tagged, as on standard input; a score needs tags.
    let tagged = dir.stdout(&["predict", "tag", "new.csv", "-q"], "");
    assert!(tagged.starts_with("id,text,tags\n1,it was fine,"), "{tagged}");
    let tags = tagged.lines().nth(1).unwrap().rsplit(',').next().unwrap().split(' ').count();
    assert_eq!(tags, 3, "{tagged}");
    dir.write("new.tsv", "id\ttext\n1\tit was fine\n2\tdull it was\n");
    for file in ["new.csv", "new.tsv"] {
        let parts = ["expected words and their tags", "`predict` tags them", "`--set data.text=NAME` sets"];
        dir.refuses(&["eval", "tag", file], &parts);
    }
    let separated = [&train[..4], &["train.conll", "--set", "data.separator=;"]].concat();
    assert!(dir.refused(&separated).contains("expected none, since tabs or spaces separate the columns"));
    // A number of threads that no machine has is one mistake, not a mistake of each record.
    let text = dir.refused(&["predict", "run", "new.csv", "--threads", "1025"]);
    assert!(text.matches("threads: expected at most 1024, got 1025").count() == 1, "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    for command in
        [&["eval", "run", "reviews.csv"][..], &["generate", "run"], &["data", "stats", "reviews.csv"]]
    {
        let text = dir.refused(&[command, &["--threads", "1025"]].concat());
        assert!(text.contains("threads: expected at most 1024, got 1025"), "{text}");
    }
}

#[test]
fn headers_and_columns_on_standard_input_are_warned_of() {
    let dir = TestDir::new("headers");
    dir.write("reviews.csv", &format!("review,stars\n{}", reviews().replace('\t', ",")));
    dir.stdout(
        &with(&["train", "--train", "reviews.csv"], &["--epochs", "1", "--run", "run", "--quiet"]),
        "",
    );
    for line in ["review,stars\n", "id,review\n", "\"id\";\"review\"\n"] {
        let (_, _, errors) = asked(&dir, &["predict", "run"], line.as_bytes());
        assert!(errors.contains("line 1: `review` is a column of the training"), "{line}: {errors}");
    }
    for line in ["review\n", "review, he said\n", "fine\nid,review\n"] {
        assert_eq!(asked(&dir, &["predict", "run"], line.as_bytes()).2, "", "{line}");
    }

    let sentences = (0..40).map(|i| format!("word{i} NN O\nParis NNP B-place\n. . O\n\n"));
    dir.write("train.conll", &sentences.collect::<String>());
    let train = ["train", "--task", "tag", "--train", "train.conll", "--epochs", "1", "--run", "tag"];
    dir.stdout(&[&train[..], &["--set", "model.hidden=8", "--set", "model.embedding=8"]].concat(), "");
    for (line, expected) in
        [("Paris NNP B-place\n", "`B-place` is a tag"), ("Paris\tNNP\n", "line with tabs")]
    {
        let (_, _, errors) = asked(&dir, &["predict", "tag"], line.as_bytes());
        assert!(errors.contains(expected) && errors.contains("without tags"), "{errors}");
    }
    let (_, _, errors) = asked(&dir, &["predict", "tag"], b"it was Jackie O\nit is over .\nB-place\n");
    assert_eq!(errors, "");
}

#[test]
fn a_line_is_answered_before_the_next_is_written() {
    let dir = TestDir::trained("slow", "reviews.tsv", "6");
    let mut child = dir.command(&["predict", "run"]).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
    for (text, label) in [("it was fine\n", "good\t"), ("it was dull\n", "bad\t")] {
        stdin.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stdout.read_line(&mut answer).unwrap();
        assert!(answer.starts_with(label), "{answer}");
    }
    drop(stdin);
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_text_that_fills_memory_is_an_error_of_its_line() {
    let dir = TestDir::new("long-word");
    let sentences = (0..40).map(|i| format!("word{i} O\nParis B-place\n\n"));
    dir.write("train.conll", &sentences.collect::<String>());
    let train = ["train", "--task", "tag", "--train", "train.conll", "--epochs", "1", "--run", "run"];
    dir.stdout(&[&train[..], &["--set", "model.hidden=8", "--set", "model.embedding=8"]].concat(), "");
    let input = format!("it Paris\n{}\nParis\tB-place\n", "a".repeat(1 << 18));
    let limited = ["predict", "run", "--memory", "8MB"];
    let (code, answers, errors) = asked(&dir, &limited, input.as_bytes());
    assert_eq!((code, answers.lines().count()), (1, 3), "{errors}");
    assert!(errors.contains("line 2: memory of a batch: expected at most 8.0 MB, got "), "{errors}");
    let (code, answers, wrong) = asked(&dir, &["predict", "run", "--memory", "8"], b"it Paris\n");
    assert_eq!((code, &*answers), (2, ""));
    assert!(wrong.contains("expected a size with its unit, as 500MB or 4GB"), "{wrong}");
    assert!(errors.contains("warning: standard input, line 3: `B-place` beside a tab"), "{errors}");
}

#[test]
fn records_of_a_file_keep_their_columns_and_get_answers() {
    let dir = TestDir::trained("on-file", "reviews.csv", "6");
    dir.write("new.csv", "id,text\n7,it was fine\n8,it\n9\n10,it was dull\n");
    let (code, out, errors) = asked(&dir, &["predict", "run", "new.csv", "--output", "out.csv"], b"");
    assert_eq!((code, &*out), (1, ""), "{errors}");
    says(&errors, &["error: new.csv:4: expected 2 columns", "1 of 4 records"]);
    let written = std::fs::read_to_string(dir.0.join("out.csv")).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!((lines.len(), lines[0], lines[3]), (5, "id,text,label,probability", "9,,"));
    assert!(lines[1].starts_with("7,it was fine,good,0."), "{written}");
    assert!(lines[4].starts_with("10,it was dull,bad,"), "{written}");
    // The answers to one record do not depend on the others.
    let (_, out, _) =
        asked(&dir, &["predict", "run", "new.csv", "--batch", "1", "--threads", "1", "-q"], b"");
    assert_eq!(out, written);

    for (arguments, expected) in [
        (&["predict", "run", "new.csv", "--output", "out.csv"][..], "--overwrite replaces it"),
        (
            &["predict", "run", "new.csv", "--output", "new.csv", "--overwrite"],
            "a new file, got the file that is read",
        ),
        (&["predict", "run", "new.csv", "--output", "/dev/null", "--overwrite"], "got a folder or a device"),
        (&["predict", "run", "new.csv", "--set", "data.text=body"], "column `body` of file `new.csv`"),
        (&["predict", "run", "gone.csv"], "gone.csv"),
        (&["predict", "run", "--output", "out.csv"], "<FILE>"),
    ] {
        let (code, out, errors) = asked(&dir, arguments, b"");
        assert!(code == 2 && out.is_empty() && errors.contains(expected), "{errors}");
    }
    // A mark that is never closed costs its line; a file without records is no mistake; a known name is taken, and said.
    dir.write("open.csv", "id,text\r\n1,\"it was fine\r\n2,it was dull\r\n");
    let (code, out, errors) = asked(&dir, &["predict", "run", "open.csv"], b"");
    assert!(code == 1 && errors.contains("open.csv:2: expected the end of the cell"), "{errors}");
    assert!(
        out.starts_with("id,text,label,probability\r\n1,\"it was fine,,\r\n2,it was dull,bad,0."),
        "{out}"
    );
    dir.write("empty.csv", "");
    let (code, out, errors) = asked(&dir, &["predict", "run", "empty.csv", "--output", "none.csv"], b"");
    assert!(code == 0 && out.is_empty() && errors.contains("a file without text"), "{errors}");
    assert_eq!(std::fs::read_to_string(dir.0.join("none.csv")).unwrap(), "");
    dir.write("body.csv", "id,body\n1,it was fine\n");
    let (code, _, errors) = asked(&dir, &["predict", "run", "body.csv"], b"");
    assert!(code == 0 && errors.contains("text in `body`, since there is no `text`"), "{errors}");
    let (code, _, errors) = asked(&dir, &["predict", "run", "new.csv", "--output", "out.parquet"], b"");
    assert!(code == 2 && !dir.0.join("out.parquet").exists(), "{errors}");
    says(&errors, &["got the name of a Parquet file"]);

    // At the first bad record it ends, and no file is half written.
    let strict = ["predict", "run", "new.csv", "--output", "strict.csv", "--strict"];
    let (code, _, errors) = asked(&dir, &strict, b"");
    assert!(code == 1 && errors.contains("new.csv:4:"), "{errors}");
    assert!(!dir.0.join("strict.csv").exists());
    assert!(dir.files().iter().all(|name| !name.ends_with(".part")), "{:?}", dir.files());
}
