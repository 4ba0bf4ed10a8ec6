//! Pairs as they come: two files, folders of them, headers of languages, dictionaries.

use super::*;

const SMALL: [&str; 10] = [
    "--set",
    "model.hidden=8",
    "--set",
    "model.embedding=8",
    "--set",
    "text.min_count=1",
    "--epochs",
    "1",
    "--set",
    "training.batch=8",
];

/// Counts in two languages.
fn counts(range: std::ops::Range<usize>) -> [Vec<String>; 2] {
    const EN: [&str; 5] = ["zero", "one", "two", "three", "four"];
    const DE: [&str; 5] = ["null", "eins", "zwei", "drei", "vier"];
    [EN, DE].map(|words| {
        range.clone().map(|i| format!("{} {} {}", words[i % 5], words[i / 5 % 5], words[i / 25])).collect()
    })
}

fn write(dir: &TestDir, part: &str, range: std::ops::Range<usize>) {
    let [en, de] = counts(range);
    dir.write(&format!("corpus/{part}.en"), &en.join("\n"));
    dir.write(&format!("corpus/{part}.de"), &de.join("\n"));
}

fn train<'a>(train: &[&'a str], run: &'a str) -> Vec<&'a str> {
    [&["train", "--task", "translate"], train, &SMALL, &["--run", run]].concat()
}

/// Returns the report on how the files were read.
fn read(dir: &TestDir, arguments: &[&str]) -> String {
    let output = dir.given(arguments, "");
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn two_languages_are_read_by_their_names() {
    let dir = TestDir::new("languages");
    fs::create_dir(dir.0.join("corpus")).unwrap();
    [("train", 0..80), ("dev", 80..100), ("test", 100..120)]
        .into_iter()
        .for_each(|(part, range)| write(&dir, part, range));
    let text = dir.refused(&train(&["--train", "corpus"], "run"));
    for command in ["`corpus/*.{de,en}` if `de` is", "`corpus/*.{en,de}` if `en` is"] {
        assert!(text.contains(command), "{text}");
    }
    let text = read(&dir, &train(&["--train", "corpus/*.{en,de}"], "run"));
    assert!(text.contains("corpus/train.{en,de}: 80 pairs") && text.contains("; 20 held out"), "{text}");
    assert!(text.contains("source in the lines of `corpus/train.en`"), "{text}");
    let tested: Value =
        serde_json::from_str(&fs::read_to_string(dir.0.join("run/test.json")).unwrap()).unwrap();
    assert_eq!(tested["counts"], serde_json::json!({"texts": 20, "pairs": 20}));
    let note = "20 sources are translated and scored, equal sources as one against their targets; loss and perplexity are of all 20 pairs";
    assert_eq!(tested["notes"][0], note);

    // The column names decide which column is the source, whatever their order.
    let [en, de] = counts(100..120);
    let rows = |head: &str, a: &[String], b: &[String]| {
        let rows: Vec<String> = a.iter().zip(b).map(|(a, b)| format!("{a},{b}\n")).collect();
        format!("{head}\n{}", rows.concat())
    };
    dir.write("other.csv", &rows("de,en", &de, &en));
    let scores = |file: &str| dir.json(&["eval", "run", file, "--json", "-q"], "")["scores"].clone();
    for file in ["other.csv", "corpus/test.{de,en}", "corpus/test.{en,de}"] {
        assert_eq!(scores(file), tested["scores"], "{file}");
    }
    let text = read(&dir, &["eval", "run", "corpus/test.{de,en}"]);
    says(&text, &["source is `en`, as in the training"]);
    dir.write("others.csv", &rows("German,English", &de, &en));
    let text = dir.refused(&["eval", "run", "others.csv"]);
    says(&text, &["expected `en` and `de`, the languages of the training, got `German` and `English`"]);
    dir.stdout(
        &["eval", "run", "others.csv", "--set", "data.text=English", "--set", "data.label=German"],
        "",
    );
    // In files to translate, too.
    dir.write("ask.csv", "id,de,en\n1,null,zero\n");
    assert!(read(&dir, &["predict", "run", "ask.csv"]).contains("source in `en`"));
    let text = dir.refused(&["predict", "run", "corpus/test.{de,en}"]);
    assert!(text.contains("give only the file of the source texts, as `corpus/test.en`"), "{text}");
    let lines = String::from_utf8(dir.given(&["predict", "run"], "zero\tnull\n").stderr).unwrap();
    assert!(lines.contains("line with tabs are read as text: expected only the source text"), "{lines}");
    dir.stdout(&train(&["--train", "corpus/*.{de,en}"], "back"), "");
    assert!(read(&dir, &["predict", "back", "ask.csv"]).contains("source in `de`"));

    // Without names in the training the order decides, and a note says so.
    dir.write("plain.tsv", &rows("", &en, &de).replace(',', "\t"));
    dir.stdout(&train(&["--train", "plain.tsv"], "plain"), "");
    let text = read(&dir, &["eval", "plain", "other.csv"]);
    assert!(text.contains("source in `de`, target in `en`; line 1 is a header, since it names two languages; columns by their numbers"), "{text}");
}

#[test]
fn several_translations_have_scores_and_the_best_one_is_reported() {
    let dir = TestDir::new("n-best");
    let [en, de] = counts(0..80);
    dir.write("train.tsv", &en.iter().zip(&de).map(|(a, b)| format!("{a}\t{b}\n")).collect::<String>());
    let arguments = ["--train", "train.tsv", "--set", "decoding.n_best=3", "--set", "decoding.beam=3"];
    dir.stdout(&train(&arguments, "run"), "");
    let alone = ["--set", "decoding.n_best=1"];
    let answer = dir.json(&["predict", "run", "--json"], "one two three\n");
    let best = answer["best"].as_array().unwrap();
    assert!(best.len() == 3 && answer["found"] == best[0]["found"], "{answer}");
    let scores: Vec<f64> = best.iter().map(|one| one["score"].as_f64().unwrap()).collect();
    assert!(scores.is_sorted_by(|a, b| a >= b), "{scores:?}");
    let one = dir.json(&[&["predict", "run", "--json"], &alone[..]].concat(), "one two three\n");
    assert!(one["found"] == answer["found"] && one.get("best").is_none(), "{one}");
    dir.write("ask.csv", "id,text\n1,one two three\n");
    let text = dir.stdout(&["predict", "run", "ask.csv", "-q", "--set", "data.text=text"], "");
    let head = "id,text,translation,score,translation 2,score 2,translation 3,score 3\n";
    assert!(text.starts_with(head), "{text}");
    // A line without a text has no translations.
    let blank = dir.stdout(&["predict", "run"], "one\n\n  \ntwo\n");
    let blank: Vec<bool> = blank.lines().map(str::is_empty).collect();
    assert_eq!(blank, [false, true, true, false]);
    let scored = [&["predict", "run", "--set", "decoding.scores=true"], &alone[..]].concat();
    assert_eq!(dir.stdout(&scored, "one\n").trim_end().split('\t').count(), 2);
    let text = dir.refused(&["predict", "run", "--set", "decoding.beam=2"]);
    assert!(text.contains("decoding.n_best: expected at most `decoding.beam`, 2, got 3"), "{text}");
    // The report shows the best translation of each text.
    let report = fs::read_to_string(dir.0.join("run/report.html")).unwrap();
    assert!(!report.contains("The first 0 held-out texts"), "{report}");
    // The length penalty divides the scores.
    let score = |penalty: &str| {
        let set = format!("decoding.length_penalty={penalty}");
        let answer = dir.json(&["predict", "run", "--json", "--set", &set], "one two three\n");
        answer["best"][0]["score"].as_f64().unwrap()
    };
    assert_ne!(score("0"), score("2"));
}

#[test]
fn files_of_any_name_are_two_parts() {
    let dir = TestDir::new("names");
    fs::create_dir(dir.0.join("corpus")).unwrap();
    write(&dir, "a,b", 0..60);
    write(&dir, "{c}", 60..80);
    let files = ["--train-source", "corpus/a,b.en", "--train-target", "corpus/{c}.de"];
    dir.refuses(&train(&files, "run"), &["{c}.de`: expected 60, as many as `corpus/a,b.en` has, got 20"]);
    let files = ["--train-source", "corpus/a,b.en", "--train-target", "corpus/a,b.de"];
    dir.refuses(&[&["train"], &files[..]].concat(), &["got `classify`: `--task translate` is missing"]);
    let text = read(&dir, &train(&files, "run"));
    assert!(text.contains("corpus/a\\,b.de}: 5"), "{text}");
    // File names tell the source, and a file without its counterpart is refused.
    fs::create_dir(dir.0.join("ends")).unwrap();
    let [en, de] = counts(0..60);
    dir.write("ends/train.src", &en.join("\n"));
    dir.write("ends/train.tgt", &de.join("\n"));
    assert!(read(&dir, &train(&["--train", "ends"], "ends/run")).contains("ends/train.{src,tgt}: "));
    dir.write("ends/dev.src", &en.join("\n"));
    let text = dir.refused(&train(&["--train", "ends"], "other"));
    assert!(text.contains("part `dev` of `ends`: expected `dev.tgt` beside `dev.src`, got none"), "{text}");
}

#[test]
fn dictionaries_are_read_by_characters_and_scored_by_phonemes() {
    let dir = TestDir::new("dictionary");
    let words = (0..60).map(|i| {
        [["ba", "B AA1"], ["ko", "K OW0"], ["ti", "T IY2"]].map(|s| s[0..2].to_vec())[i % 3].clone()
    });
    let words: Vec<_> = words
        .enumerate()
        .map(|(i, s)| {
            (format!("{}{}", s[0], "ks".repeat(i / 3 + 1)), format!("{}{}", s[1], " K S".repeat(i / 3 + 1)))
        })
        .collect();
    let lines = |between: &str| {
        words.iter().map(|(word, text)| format!("{word}{between}{text}\n")).collect::<String>()
    };
    dir.write("some.dict", &lines("  "));
    dir.write("words.tsv", &lines("\t").to_lowercase());
    for (file, run) in [("some.dict", "one"), ("words.tsv", "two")] {
        let text = read(&dir, &train(&["--train", file, "--test", file], run));
        says(&text, &["words and their phonemes: tokens are `characters`, target tokens `whitespace`"]);
        assert_eq!(text.contains("stress, as the 1 of `AH1`, is left out"), run == "one", "{text}");
        let scored = dir.stdout(&["eval", run, file], "");
        says(&scored, &["phoneme error rate (PER)", "word error rate (WER)"]);
        assert!(dir.json(&["eval", run, file, "--json"], "")["scores"]["phoneme error rate"].is_f64());
    }
    // Tokens that are set are kept.
    let set = [train(&["--train", "some.dict"], "three"), vec!["--set", "text.tokens=pieces"]].concat();
    assert!(!read(&dir, &set).contains("words and their phonemes"));
}

#[test]
fn a_test_file_is_checked_before_the_training_as_it_is_scored() {
    let dir = TestDir::new("checked");
    dir.write("reviews.csv", &format!("review,stars\n{}", reviews().replace('\t', ",")));
    let train = |test: &'static str| {
        with(&["train", "--train", "reviews.csv", "--test", test], &["--epochs", "1", "--run", "run", "-q"])
    };
    for (name, text, expected) in [
        ("empty.csv", "", "records of file `empty.csv`: expected at least one, got none"),
        ("texts.csv", "review\nfine\n", "column `stars` of file `texts.csv`, the label: expected a column"),
        ("late.csv", "review,stars\nfine,good\nfine,\n", "late.csv:3: expected something in column `stars`"),
    ] {
        dir.write(name, text);
        let output = dir.refused(&train(name));
        assert!(output.contains(expected) && !dir.0.join("run").exists(), "{name}: {output}");
    }
    dir.write("other.csv", "label,text\ngood,fine\n");
    dir.stdout(&train("other.csv"), "");
    // A pipe is read once only.
    if cfg!(target_os = "linux") {
        let output = dir.refused(&["eval", "run", "/dev/stdin"]);
        assert!(output.contains("read once only: write what comes out of it to a file"), "{output}");
    }
}

#[cfg(unix)]
#[test]
fn an_interrupt_while_a_test_file_is_scored_says_what_is_left_to_do() {
    let dir = TestDir::new("scoring");
    let pairs = |range: std::ops::Range<usize>| -> String {
        let [en, de] = counts(range);
        en.iter().zip(de).map(|(en, de)| format!("{en}\t{de}\n")).collect()
    };
    dir.write("train.tsv", &pairs(0..100));
    dir.write("test.tsv", &(0..20_000).map(|i| format!("{i} {i}\tzwei {i}\n")).collect::<String>());
    let arguments = train(&["--train", "train.tsv", "--test", "test.tsv", "--threads", "1"], "run");
    let child = dir.command(&arguments).spawn().unwrap();
    while !dir.0.join("run/best.ckpt").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    signal(&child, "-INT");
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("interrupted while scoring `test.tsv`: the training has ended"), "{text}");
    assert!(text.contains("`unpadded eval run test.tsv` scores it"), "{text}");
}
