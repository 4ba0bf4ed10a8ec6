//! Taggers of column files, with any columns and any spelling of tags.

use unpadded::Result;
use unpadded::train::Progress;
use unpadded_recipes::{Config, Model, Preparation, Task, Value, prepare, test_data};

/// A file that is removed behind the test.
struct File(std::path::PathBuf);

impl File {
    fn new(name: &str, text: &str) -> Self {
        let path = std::env::temp_dir().join(format!("unpadded-tagged-{}-{name}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        Self(path)
    }

    fn prepared(&self, settings: &[(&str, Value)]) -> Result<Preparation> {
        let mut config = Config::new(Task::Tag);
        (config.model.hidden, config.model.embedding) = (4, 4);
        config.data.train = Some(self.0.to_string_lossy().into_owned());
        settings.iter().try_for_each(|(name, value)| config.set(name, value))?;
        prepare(&config)
    }
}

impl Drop for File {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn label(name: &str) -> [(&'static str, Value); 1] {
    [("data.label", Value::Text(name.into()))]
}

/// Returns the frequency of each tag in the training texts and the held-out texts.
fn tags(prepared: &Preparation) -> Vec<(String, u64)> {
    let tags = prepared.classes.iter().filter(|class| class.held_out.what == "tag");
    tags.map(|class| (class.held_out.name.clone(), class.train + class.held_out.count)).collect()
}

/// Sentences of chunks, with the tags that `spelled` gives.
fn chunks(spelled: impl Fn(char) -> String) -> String {
    let sentence = |i: usize| {
        let words = [("big", 'B'), ("dogs", 'I'), ("run", 'O'), ("north", 'B')];
        let line = |(word, tag): (&str, char)| format!("{word}{} {}\n", i % 17, spelled(tag));
        words.into_iter().cycle().skip(i % 4 * 2 % 4).take(4 + i % 2 * 2).map(line).collect::<String>()
    };
    (0..80).map(|i| sentence(i) + "\n").collect()
}

#[test]
fn conllu_is_read_by_the_name_of_a_column() -> Result<()> {
    let sentence = |i: usize| {
        format!(
            "# sent_id = {i}\n1\tNo{i}\tno\tDET\tD\t_\t3\tdet\t_\t_\n2-3\tdogs\t_\t_\t_\t_\t_\t_\t_\t_\n\
             2\tbig\tbig\tADJ\tA\t_\t3\tamod\t_\t_\n3\tdog\tdog\tNOUN\tN\t_\t0\troot\t_\t_\n\n"
        )
    };
    let file = File::new("a.conllu", &(0..40).map(sentence).collect::<String>());
    let prepared = file.prepared(&[])?;
    let text = prepared.messages.join("\n");
    assert!(
        text.contains(
            "`columns`, CoNLL-U, words in column 2 (form), tags in column 4 (upos), 10 columns between tabs"
        ),
        "{text}"
    );
    assert!(text.contains("plain tags: scored token by token"), "{text}");
    assert_eq!(tags(&prepared), [("ADJ".into(), 40), ("DET".into(), 40), ("NOUN".into(), 40)]);
    let deprel = file.prepared(&label("deprel"))?;
    assert!(
        deprel.messages.iter().any(|line| line.contains("tags in column 8 (deprel)")),
        "{:?}",
        deprel.messages
    );
    assert_eq!(tags(&deprel)[2], ("root".into(), 40));
    assert_eq!(tags(&file.prepared(&label("5"))?)[0], ("A".into(), 40));
    let error = file.prepared(&label("pos")).err().unwrap().to_string();
    assert!(error.contains("or one of `id`, `form`, `lemma`"), "{error}");
    // Three words a text, and not their characters.
    let batch = prepared.dev.batches(None, 0)?.next().unwrap()?;
    assert_eq!((batch.tokens, batch.padded), (3 * batch.numbers.len(), 3 * batch.numbers.len()));
    Ok(())
}

#[test]
fn however_they_are_spelled_tags_have_the_same_chunks() -> Result<()> {
    type Spelled = fn(char) -> String;
    let read = |kind: &'static str, spelled: Spelled| -> Result<(String, f64)> {
        let prepared = File::new(kind, &chunks(spelled)).prepared(&[])?;
        let first = prepared.messages[0].clone();
        let mut trainer = prepared.trainer.progress(Progress::Quiet);
        let scores = trainer.evaluate(&*prepared.train)?;
        Ok((first, scores.get(prepared.metric).unwrap()))
    };
    let standard = |tag: char| if tag == 'O' { "O".to_owned() } else { format!("{tag}-X") };
    let (text, expected) = read("standard", standard)?;
    assert!(text.contains("(IOB2)") && expected > 0.0, "{text} {expected}");
    let spellings: [(&str, Spelled); 4] = [
        ("IOB2, spelled `B`, `I`", |tag| tag.to_string()),
        ("IOB2, spelled `B_kind`, `I_kind`", |tag| if tag == 'O' { "O".into() } else { format!("{tag}_X") }),
        ("IOB2, spelled `kind-B`, `kind-I`", |tag| if tag == 'O' { "O".into() } else { format!("X-{tag}") }),
        ("IOB2, spelled `b-kind`, `i-kind`", |tag| {
            if tag == 'O' { "o".into() } else { format!("{}-x", tag.to_ascii_lowercase()) }
        }),
    ];
    for (name, spelled) in spellings {
        let (text, found) = read("other", spelled)?;
        assert!(text.contains(name), "{text}");
        // Tags are numbered by their order, which suffixes change: then the untrained model is another one.
        assert!(name.contains("kind-B") || found == expected, "{name}: {found} {expected}");
    }
    Ok(())
}

#[test]
fn a_tag_that_breaks_the_scheme_has_its_line_and_is_repaired() -> Result<()> {
    let text = chunks(|tag| if tag == 'O' { "O".into() } else { format!("{tag}-X") });
    let lines = text.lines().count();
    let file = File::new("broken.conll", &(text + "\nso O\nbad I-X\n"));
    let error = format!("{:#}", file.prepared(&[]).err().unwrap());
    assert!(
        error.contains(&format!("broken.conll:{}: expected a tag of IOB2, which 80 of 81", lines + 3)),
        "{error}"
    );
    assert!(error.contains("got `I-X` behind `O`") && error.contains("`repair_tags`"), "{error}");
    let prepared = file.prepared(&[("data.repair_tags", Value::Flag(true))])?;
    let message = prepared.messages.join("\n");
    assert!(message.contains("tags rewritten to keep IOB2, as conlleval reads them: 1"), "{message}");
    Ok(())
}

/// A file of 40 texts, which `text` gives by their number.
fn texts(name: &str, text: impl Fn(usize) -> String) -> File {
    File::new(name, &(0..40).map(text).collect::<String>())
}

#[test]
fn conllu_without_comments_is_known_by_its_columns() -> Result<()> {
    let line = |id: &str, form: &str, upos: &str| format!("{id}\t{form}\t_\t{upos}\t_\t_\t_\t_\t_\t_\n");
    let file = texts("bare.txt", |i| {
        let words =
            line("1", &format!("no{i}"), "DET") + &line("2-3", "dogs", "_") + &line("2", "big", "ADJ");
        words + &line("2.1", "is", "AUX") + &line("3", "dog", "NOUN") + "\n"
    });
    let prepared = file.prepared(&[])?;
    assert!(
        prepared.messages.concat().contains("CoNLL-U, words in column 2 (form)"),
        "{:?}",
        prepared.messages
    );
    assert_eq!(tags(&prepared), [("ADJ".into(), 40), ("DET".into(), 40), ("NOUN".into(), 40)]);
    Ok(())
}

#[test]
fn comments_marks_and_headers_are_no_words() -> Result<()> {
    let expected = [("B-X".to_owned(), 40), ("O".to_owned(), 40)];
    let id = texts("id.txt", |i| format!("# id {i}\nin{i} P O\nRome N B-X\n\n"));
    let marks = texts("marks.txt", |i| {
        format!("#begin document (a{i}); part 000\nin{i} P O\nRome N B-X\n\n#end document\n")
    });
    let header = texts("header.txt", |i| {
        let header = if i == 0 { "Token\tPOS\tNER\n" } else { "" };
        format!("{header}in{i}\tP\tO\nRome\tN\tB-X\n\n")
    });
    for (file, text) in [(&id, "is a comment"), (&marks, "between documents"), (&header, "is a header")] {
        let prepared = file.prepared(&[])?;
        assert!(prepared.messages.concat().contains(text), "{:?}", prepared.messages);
        assert_eq!(tags(&prepared), expected, "{text}");
    }
    let pos = header.prepared(&label("pos"))?;
    assert_eq!(tags(&pos), [("N".to_owned(), 40), ("P".to_owned(), 40)]);
    let error = format!("{:#}", header.prepared(&[("data.header", Value::Flag(false))]).err().unwrap());
    assert!(
        error.contains("header.txt:1: expected a tag of IOB2") && error.contains("`data.header`"),
        "{error}"
    );
    Ok(())
}

#[test]
fn brackets_are_chunks() -> Result<()> {
    let file = texts("brackets.txt", |i| format!("Ann{i} (PER*\nLee *)\nsees *\nUlm (LOC*)\n\n"));
    let prepared = file.prepared(&[])?;
    assert!(prepared.messages.concat().contains("tags in brackets"), "{:?}", prepared.messages);
    let names: Vec<String> = tags(&prepared).into_iter().map(|(tag, _)| tag).collect();
    assert_eq!(names, ["B-LOC", "B-PER", "I-PER", "O"]);
    Ok(())
}

#[test]
fn a_scheme_that_is_set_rules() -> Result<()> {
    let scheme = |name: &str| [("data.scheme", Value::Text(name.into()))];
    // Parts of speech that look like a scheme.
    let file = texts("pos.txt", |i| format!("so{i} B\ngo I\n\n"));
    assert!(file.prepared(&[])?.messages[0].contains("(IOB2, spelled"));
    let prepared = file.prepared(&scheme("plain"))?;
    assert!(prepared.messages[0].contains("(plain)"), "{:?}", prepared.messages);
    let file = texts("set.txt", |i| format!("so{i} O\nRome B-X\n\n"));
    let error = format!("{:#}", file.prepared(&scheme("iob1")).err().unwrap());
    assert!(
        error.contains("set.txt:2: expected a tag of IOB1") && error.contains("got `B-X` behind `O`"),
        "{error}"
    );
    let error = file.prepared(&scheme("iob")).err().unwrap().to_string();
    assert!(error.contains("expected one of `iob1`, `iob2`") && error.contains("`data.scheme`"), "{error}");
    Ok(())
}

/// Each part may keep a scheme of its own; a test file is compared with the scheme of the training.
#[test]
fn parts_of_other_schemes_are_translated_or_refused() -> Result<()> {
    let train = texts("iob2.txt", |i| format!("in{i} O\nNew B-X\nYork I-X\n\n"));
    let dev = texts("iobes.txt", |i| format!("at{i} O\nRome S-X\nLos B-X\nAngeles E-X\n\n"));
    let set = |file: &File| [("data.dev", Value::Text(file.0.to_string_lossy().into_owned()))];
    let prepared = train.prepared(&set(&dev))?;
    let text = prepared.messages.join("\n");
    assert!(text.contains("tags of IOBES translated to IOB2, which the training has"), "{text}");
    assert_eq!(tags(&prepared).iter().map(|(tag, _)| tag.as_str()).collect::<Vec<_>>(), ["B-X", "I-X", "O"]);
    let broken =
        texts("dev.txt", |i| if i == 7 { "so O\nYork I-X\n\n".into() } else { "a O\nb B-X\n\n".into() });
    let error = format!("{:#}", train.prepared(&set(&broken)).err().unwrap());
    assert!(
        error.contains("dev.txt:23: expected a tag of IOB2") && error.contains("got `I-X` behind `O`"),
        "{error}"
    );

    // A test file by the scheme of the model.
    let mut config = Config::new(Task::Tag);
    (config.model.hidden, config.model.embedding) = (4, 4);
    config.data.train = Some(train.0.to_string_lossy().into_owned());
    let model = Model::new(prepare(&config)?.trainer.for_inference()?)?;
    let mut test = |file: &File| {
        config.data.test = Some(file.0.to_string_lossy().into_owned());
        test_data(&config, &model)
    };
    assert!(test(&dev)?.messages.concat().contains("tags of IOBES translated to IOB2"));
    let error = format!("{:#}", test(&broken).map(drop).unwrap_err());
    assert!(
        error.contains("dev.txt:23: expected a tag of IOB2") && error.contains("the training"),
        "{error}"
    );
    Ok(())
}

#[test]
fn equal_tags_are_nothing_to_learn() {
    let file = texts("equal.txt", |i| format!("in{i} P O\nRome N O\n\n"));
    let error = format!("{:#}", file.prepared(&[]).err().unwrap());
    assert!(error.contains("equal.txt`: expected at least two, got only `O`"), "{error}");
    assert!(error.contains("tags in column 3") && error.contains("`data.label` in a config"), "{error}");
    assert!(file.prepared(&label("2")).is_ok());
}
