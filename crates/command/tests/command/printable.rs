//! Names out of files are no commands to the terminal, wherever they come from.

use super::*;
use unpadded::checkpoint::Checkpoint;

/// Characters that no output may contain, with text around them.
const HOSTILE: &str =
    "a\u{1b}[31mb\u{7}\u{8}\u{7f}\u{85}\u{9b}\u{61c}\u{200e}\u{200f}\u{202e}x\u{2066}\u{2069}\u{202a}";

/// Runs the command, with any exit code, and checks every character of its output.
fn clean(dir: &TestDir, arguments: &[&str], input: &str) -> String {
    let output = dir.given(arguments, input);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let commands = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert!(!text.contains(commands), "{arguments:?}: {text:?}");
    assert!(!text.is_empty() && output.status.code().is_some(), "{arguments:?}");
    text
}

#[test]
fn names_in_files_are_no_commands() {
    let dir = TestDir::new("hostile");
    let (dataset, tagged) = (format!("{HOSTILE}.tsv"), format!("{HOSTILE}.conll"));
    let reviews =
        reviews().replace("good\n", &format!("{HOSTILE}\n")).replace("and", &format!("and{HOSTILE}"));
    dir.write(&dataset, &reviews);
    for arguments in [&["stats"][..], &["vocab"], &["check"], &["stats", "--json"], &["vocab", "--json"]] {
        clean(&dir, &[&["data"][..], arguments, &[dataset.as_str()]].concat(), "");
    }

    // A model of such labels and words, in a folder of such a name.
    let run = format!("run{HOSTILE}");
    let train = with(&["train", "--train", &dataset], &["--epochs", "2", "--json", "--run", &run]);
    assert!(clean(&dir, &train, "").contains("\\u001b[31m"));
    let asked = format!("and{HOSTILE} it was fine\n{HOSTILE}\t{HOSTILE}\n");
    clean(&dir, &["predict", &run], &asked);
    let answer = clean(&dir, &["predict", &run, "--json"], &format!("{HOSTILE} fine"));
    let answer: Value = serde_json::from_str(&answer).unwrap();
    assert_eq!(answer["text"], format!("{HOSTILE} fine"));
    for arguments in [
        &["eval", &run, &dataset][..],
        &["eval", &run, &dataset, "--json"],
        &["inspect", &run, "--program"],
        &["inspect", &run, "--json"],
        &["graph", &run],
        &["graph", &run, "--format", "dot"],
        &["generate", &run],
        &train,
    ] {
        clean(&dir, arguments, "");
    }
    let mut checkpoint = Checkpoint::load(dir.0.join(&run).join("best.ckpt")).unwrap();
    for name in ["task", "config", "tokens"] {
        checkpoint.notes.insert(name.to_owned(), HOSTILE.to_owned());
    }
    checkpoint.save(dir.0.join("noted.ckpt")).unwrap();
    clean(&dir, &["predict", "noted.ckpt"], "fine");
    clean(&dir, &["inspect", "noted.ckpt"], "");
    if cfg!(feature = "safetensors") {
        let tensor = |dtype: &str| {
            let head =
                serde_json::json!({ HOSTILE: { "dtype": dtype, "shape": [1], "data_offsets": [0, 4] } });
            let head = head.to_string().into_bytes();
            [&(head.len() as u64).to_le_bytes()[..], &head, &[0; 4]].concat()
        };
        for dtype in ["F32", HOSTILE] {
            fs::write(dir.0.join("weights"), tensor(dtype)).unwrap();
            clean(&dir, &["import", &run, "weights", "-o", "new.ckpt"], "");
        }
    }

    // Tags.
    let sentence = format!("it O\nParis{HOSTILE} B-{HOSTILE}\n\n");
    dir.write(&tagged, &sentence.repeat(20));
    for arguments in [&["data", "stats"][..], &["data", "vocab"], &["train", "--epochs", "1", "--train"]] {
        clean(&dir, &[arguments, &[&tagged, "--task", "tag"]].concat(), "");
    }
    dir.write(&tagged, &format!("it X{HOSTILE}\nParis I-{HOSTILE}\n\nlone{HOSTILE}\n\n"));
    clean(&dir, &["data", "check", &tagged, "--task", "tag"], "");
}

#[test]
fn columns_fields_and_entries_are_no_commands() {
    let dir = TestDir::new("columns");
    let row = "it was fine,good,1\nit was dull,bad,2\n";
    dir.write("a.csv", &format!("{HOSTILE}1,{HOSTILE}2,{HOSTILE}3\n{}", row.repeat(20)));
    dir.write(
        "b.jsonl",
        &format!("{{\"{}\": \"x\", \"b\": \"y\"}}\n", HOSTILE.replace(['\u{1b}', '\u{7}', '\u{8}'], "")),
    );
    dir.write(
        "c.jsonl",
        &serde_json::json!({ "text": { HOSTILE: [HOSTILE] }, "label": HOSTILE }).to_string(),
    );
    dir.write("d.jsonl", &format!("{{{HOSTILE}"));
    let (first, second) = (format!("data.text={HOSTILE}1"), format!("data.label={HOSTILE}2"));
    clean(&dir, &["data", "stats", "a.csv", "--set", &first, "--set", &second], "");
    let format = format!("data.format={HOSTILE}");
    for path in [
        "a.csv",
        "b.jsonl",
        "c.jsonl",
        "d.jsonl",
        HOSTILE,
        &format!("a.csv!{HOSTILE}"),
        &format!("{HOSTILE}*"),
    ] {
        clean(&dir, &["data", "check", path], "");
        for setting in [&first, &second, &format] {
            clean(&dir, &["data", "check", path, "--set", setting], "");
        }
    }
    let mut zip = zip::ZipWriter::new(fs::File::create(dir.0.join("z.zip")).unwrap());
    for name in [format!("{HOSTILE}a.tsv"), format!("{HOSTILE}/b.tsv")] {
        zip.start_file(name, zip::write::SimpleFileOptions::default()).unwrap();
        zip.write_all(format!("{HOSTILE}\tgood\nno label{HOSTILE}\n").as_bytes()).unwrap();
    }
    zip.finish().unwrap();
    for path in ["z.zip", "z.zip!none", &format!("z.zip!{HOSTILE}"), &format!("z.zip!{HOSTILE}a.tsv")] {
        clean(&dir, &["data", "check", path], "");
    }

    // Configs and arguments.
    let quoted = HOSTILE.chars().map(|c| format!("\\u{:04x}", u32::from(c))).collect::<String>();
    let config = format!("{HOSTILE}.toml");
    for text in [
        format!("\"{quoted}\" = 1\n"),
        format!("[\"{quoted}\"]\n\"{quoted}\" = \"{quoted}\"\n"),
        format!("[model]\ncell = \"{quoted}\"\n\"{quoted}\" = 2\n"),
        format!("[data]\ntrain = \"{quoted}\"\n"),
        format!("task = \"{quoted}\"\n"),
        format!("[{HOSTILE}\n"),
    ] {
        dir.write(&config, &text);
        clean(&dir, &["train", &config], "");
    }
    for arguments in [
        &["train", "--task", HOSTILE][..],
        &["train", "--epochs", HOSTILE],
        &["train", "--set", HOSTILE],
        &["train", "a.toml", HOSTILE],
        &["train", "--run", "a.csv", "--train", HOSTILE],
        &["predict", HOSTILE],
        &["predict", &config],
        &[HOSTILE],
        &["init", "tag", "--train", HOSTILE],
    ] {
        clean(&dir, arguments, "");
    }
}

#[test]
fn scripts_with_combining_marks_and_joiners_are_printed_as_they_are() {
    let dir = TestDir::new("scripts");
    let (hindi, arabic) = ("यह हिन्दी की अच्छी फ़िल्म है", "هٰذَا فِيلْمٌ جَمِيلٌ");
    let lines = format!("{hindi}\tसकारात्मक\n{arabic}\tجَيِّد\n").repeat(30);
    dir.write("films.tsv", &lines);
    let output = clean(&dir, &["data", "check", "films.tsv"], "");
    for text in [hindi, "सकारात्मक", arabic, "جَيِّد"] {
        assert!(output.contains(&format!("\"{text}\"")), "{output}");
    }
    dir.write("films.tsv", &format!("{lines}{hindi}\n"));
    assert!(clean(&dir, &["data", "check", "films.tsv"], "").contains(&format!("1 in \"{hindi}\"")));
}
