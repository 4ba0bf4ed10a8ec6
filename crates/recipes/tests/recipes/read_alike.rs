//! A model's test file is read as its training files were, or refused; a note gives the reading.

use unpadded::data::Data;
use unpadded::{Error, Result};
use unpadded_recipes::{Config, Model, Task, TestData, Value, prepare, test_data};

/// Files in a folder that is removed behind the test.
struct TestDir(std::path::PathBuf);

impl TestDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("unpadded-alike-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path.to_string_lossy().into_owned()
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A model as its training starts, with its config.
fn model(task: Task, train: &str, settings: &[(&str, Value)]) -> Result<(Config, Model)> {
    let mut config = Config::new(task);
    (config.model.hidden, config.model.embedding, config.data.train) = (4, 4, Some(train.to_owned()));
    settings.iter().try_for_each(|(name, value)| config.set(name, value))?;
    let model = Model::new(prepare(&config)?.trainer.for_inference()?)?;
    Ok((config, model))
}

fn tested((config, model): &(Config, Model), test: String) -> Result<TestData> {
    let mut config = config.clone();
    config.data.test = Some(test);
    test_data(&config, model)
}

fn refused(outcome: Result<TestData>) -> String {
    let error: Error = outcome.map(drop).unwrap_err();
    format!("{error:#}")
}

/// The numbers of the words of the first text, by their tokens.
fn words(model: &Model, vocabulary: &str, data: &dyn Data) -> Result<Vec<String>> {
    let batch = data.batches(None, 0)?.next().unwrap()?;
    let known = model.predictor().vocabulary(vocabulary)?;
    let ids = batch.values[0].1.as_slice::<i64>()?;
    Ok(ids.iter().map(|&id| known.token(id).unwrap_or_default().to_owned()).collect())
}

#[test]
fn a_label_that_comes_first_does_so_in_a_test_file() -> Result<()> {
    let dir = TestDir::new("classify");
    let line =
        |i: usize| format!("{}\ta {} walk to hill {i}\n", ["good", "bad"][i % 2], ["fine", "dull"][i % 2]);
    let train = dir.file("train.tsv", &(0..80).map(line).collect::<String>());
    let settings = [("text.min_count", Value::Int(1))];
    let model = model(Task::Classify, &train, &settings)?;
    let TestData { data, messages, .. } = tested(&model, dir.file("test.tsv", "good\tfine\nbad\tdull\n"))?;
    assert!(messages.concat().contains("text in column 2, label in column 1"), "{messages:?}");
    assert_eq!(words(&model.1, "words", &*data)?, ["fine", "dull"]);
    // A table of another kind has the same columns.
    let TestData { data, .. } = tested(&model, dir.file("test.csv", "good,fine\nbad,dull\n"))?;
    assert_eq!(words(&model.1, "words", &*data)?, ["fine", "dull"]);
    // The config's settings for the test take precedence.
    let mut other = model.0.clone();
    (other.data.text, other.data.label) = (vec!["1".into()], vec!["2".into()]);
    let test = dir.file("other.tsv", "fine\tgood\ndull\tbad\n");
    let TestData { data, .. } = tested(&(other, model.1), test)?;
    assert_eq!(data.batch_count(), Some(1));
    Ok(())
}

#[test]
fn named_columns_of_pairs_are_not_taken_for_others() -> Result<()> {
    let dir = TestDir::new("translate");
    let line = |i: usize| format!("mot {i}\tword {i}\n");
    let train = dir.file("train.tsv", &format!("fr\ten\n{}", (0..60).map(line).collect::<String>()));
    let settings = [("text.min_count", Value::Int(1))];
    let model = model(Task::Translate, &train, &settings)?;
    let TestData { data, messages, .. } =
        tested(&model, dir.file("test.tsv", "fr\ten\nmot\tword\nmot\tword\n"))?;
    assert!(messages.concat().contains("source in `fr`, target in `en`"), "{messages:?}");
    assert_eq!(words(&model.1, "sources", &*data)?, ["mot", "mot"]);
    let error = refused(tested(&model, dir.file("bare.tsv", "mot\tword\nmot 1\tword 1\n")));
    assert!(error.contains("column `fr`") && error.contains("as the files of the training"), "{error}");
    Ok(())
}

#[test]
fn tags_are_repaired_by_the_scheme_of_the_training() -> Result<()> {
    let dir = TestDir::new("tag");
    let sentence = |i: usize| format!("1 in{i} O\n2 old B_X\n3 Rome I_X\n4 new B_X\n5 Nice I_X\n\n");
    let train = dir.file("train.conll", &(0..40).map(sentence).collect::<String>());
    let settings = [("data.repair_tags", Value::Flag(true)), ("text.min_count", Value::Int(1))];
    let model = model(Task::Tag, &train, &settings)?;
    // Alone it would keep IOB1, and its one word says nothing of numbers.
    let TestData { messages, .. } =
        tested(&model, dir.file("test.conll", "1 Rome I_X\n2 is O\n\n1 Nice I_X\n"))?;
    let messages = messages.join("\n");
    assert!(messages.contains("words in column 2, tags in column 3"), "{messages}");
    assert!(messages.contains("as conlleval reads them: 2"), "{messages}");
    let error = refused(tested(&model, dir.file("two.conll", "Rome B_X\n")));
    assert!(error.contains("expected 3, as in the file that was read before, got 2"), "{error}");
    Ok(())
}

#[test]
fn a_tagger_without_words_names_the_settings() {
    let dir = TestDir::new("words");
    let sentence = |i: usize| {
        let word = format!("{}{}", (b'a' + i as u8 % 26) as char, (b'a' + i as u8 / 26) as char);
        format!("{word}x O\n{word}y B-X\n\n")
    };
    let train = dir.file("train.conll", &(0..60).map(sentence).collect::<String>());
    let error = format!("{:#}", model(Task::Tag, &train, &[]).map(drop).unwrap_err());
    assert!(error.contains("lower `text.min_count` (it is 2)") && !error.contains("text.tokens"), "{error}");
}

#[test]
fn tags_in_json_that_break_the_scheme_have_their_record() {
    let dir = TestDir::new("json");
    let line = |i: usize| {
        let last = if i == 33 { "I-Y" } else { "I-X" };
        format!(
            "{{\"tokens\": [\"in\", \"New\", \"York{i}\"], \"tags\": [\"O\", \"B-X\", \"{last}\"], \"id\": {i}}}\n"
        )
    };
    let train = dir.file("train.jsonl", &(0..60).map(line).collect::<String>());
    let error = format!("{:#}", model(Task::Tag, &train, &[]).map(drop).unwrap_err());
    assert!(error.contains("train.jsonl:34: expected a tag of IOB2"), "{error}");
}

#[test]
fn a_test_file_is_read_by_its_own_header() -> Result<()> {
    let dir = TestDir::new("header");
    let line =
        |i: usize| format!("a {} walk to hill {i},{}\n", ["fine", "dull"][i % 2], ["good", "bad"][i % 2]);
    let records = (0..80).map(line).collect::<String>();
    let settings = [("text.min_count", Value::Int(1))];
    for header in ["", "text,label\n"] {
        let train = dir.file("train.csv", &format!("{header}{records}"));
        let model = model(Task::Classify, &train, &settings)?;
        let test = dir.file("test.csv", "id,label,text\n1,good,fine\n2,bad,dull\n");
        let TestData { data, messages, .. } = tested(&model, test)?;
        assert!(messages.concat().contains("text in `text`, label in `label`"), "{messages:?}");
        assert_eq!(words(&model.1, "words", &*data)?, ["fine", "dull"]);
        // Texts alone cannot be measured on.
        let error = refused(tested(&model, dir.file("texts.csv", "text\nfine\ndull\n")));
        assert!(error.contains("expected a column with a label for each text"), "{header}: {error}");
    }
    let model = model(Task::Classify, &dir.file("train.csv", &format!("text,label\n{records}")), &settings)?;
    let error = refused(tested(&model, dir.file("bare.csv", "fine,good\ndull,bad\n")));
    assert!(error.contains("put a header with `text`, `label` above it"), "{error}");
    Ok(())
}
