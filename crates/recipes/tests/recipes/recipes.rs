//! Recipes: each task trains from a config, and its file answers by itself.

use std::path::PathBuf;

use unpadded::Result;
use unpadded::checkpoint::Checkpoint;
use unpadded::train::{Progress, Until};
use unpadded_recipes::{
    Answer, Config, Model, Pooling, RateSchedule, Task, Tokens, Value, Weigher, prepare, test_data,
};

/// Trains, and returns the file for prediction and the first and last values of the metric.
fn trained(name: &str, config: &Config) -> Result<(PathBuf, [f64; 2])> {
    let path = std::env::temp_dir().join(format!("unpadded-recipe-{name}-{}.ckpt", std::process::id()));
    let prepared = prepare(config)?;
    let mut trainer = prepared.trainer.progress(Progress::Quiet);
    let before = trainer.evaluate(&*prepared.dev)?.get(prepared.metric).unwrap_or(f64::NAN);
    let report = trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(config.training.epochs))?;
    trainer.for_inference()?.save(&path)?;
    Ok((path, [before, report.best.map_or(f64::NAN, |best| best.value)]))
}

fn written(name: &str, text: &str) -> std::io::Result<String> {
    let path = std::env::temp_dir().join(format!("unpadded-recipe-{name}-{}", std::process::id()));
    std::fs::write(&path, text)?;
    Ok(path.to_string_lossy().into_owned())
}

#[test]
fn a_classifier_answers_out_of_its_file() -> Result<()> {
    for pool in [Pooling::Last, Pooling::Attention, Pooling::Max, Pooling::Mean] {
        let mut config = Config::new(Task::Classify);
        (config.model.pool, config.model.hidden, config.training.epochs) = (pool, 32, 2);
        config.model.bidirectional = pool != Pooling::Attention;
        let (path, [_, after]) = trained(&format!("classify-{}", pool.name()), &config)?;
        let model = Model::load(&path)?;
        assert_eq!((model.task(), model.config()), (Task::Classify, config.to_toml().as_str()));
        let texts = ["Nobody would call it dull.", "zzz"];
        let answers = model.predict(&texts)?;
        assert_eq!(model.predict(&["zzz", ""])?[1], Answer::Empty);
        for (text, answer) in texts.iter().zip(&answers) {
            let Answer::Label { label, probability, all, words } = answer else { panic!("{answer:?}") };
            assert!(["negative", "positive"].contains(&label.as_str()) && *probability >= 0.5);
            assert!((all.iter().map(|(_, p)| p).sum::<f32>() - 1.0).abs() < 1e-5);
            assert_eq!(model.predict(&[text])?[0], *answer); // alone as among others
            let attended: f32 = words.iter().map(|(_, weight)| weight).sum();
            assert!(
                pool != Pooling::Attention || words.is_empty() || (attended - 1.0).abs() < 1e-5,
                "{words:?}"
            );
        }
        // The same score from the file as in the training.
        let mut eval = config.clone();
        eval.data.test = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/reviews/dev.tsv").into());
        let scores = model.predictor().evaluate(&*test_data(&eval, &model)?.data)?;
        assert_eq!(scores.get("accuracy"), Some(after));
        std::fs::remove_file(path).ok();
    }
    Ok(())
}

#[test]
fn words_weigh_as_small_changes_of_their_vectors_do() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let lines: String = (0..60).map(|i| format!("film {} , not {}, {}\n", i % 7, i % 5, i % 3)).collect();
    let lines = written("weighed.csv", &format!("a,b,c,label\n{}", lines.replace(" , ", ",a film,")))?;
    let none: [&str; 0] = [];
    // The columns of the first text, the column of the second text, a text, and the words of each column.
    for (columns, pair, text, lengths) in [
        (&none[..], None, "a film that is not dull", &[6][..]),
        (&["a"], Some("c"), "film 3\tnot 2", &[2, 2]),
        (&["a", "b"], Some("c"), "film 3\ta film\tnot", &[2, 2, 1]),
        (&["a", "b", "c"], None, "film 3\t\tnot 2", &[2, 0, 2]),
    ] {
        let mut config = Config::new(Task::Classify);
        (config.model.hidden, config.model.embedding, config.training.epochs) = (16, 8, 1);
        config.data.text = columns.iter().map(|&column| column.to_owned()).collect();
        config.data.pair = pair.map(str::to_owned);
        if !columns.is_empty() {
            config.data.train = Some(lines.clone());
            config.text.min_count = 1;
        }
        let (path, _) = trained(&format!("weigh-{}", text.len()), &config)?;
        let checkpoint = Checkpoint::load(&path)?;
        let model = Model::load(&path)?;
        let Answer::Label { label, .. } = model.predict(&[text])?.remove(0) else { panic!("no label") };
        let weights = Weigher::new(checkpoint.clone(), 1)?.weigh(text, &label)?;
        assert_eq!(weights.iter().map(Vec::len).collect::<Vec<_>>(), lengths);
        assert!(weights.iter().flatten().all(|(word, _)| text.contains(word)), "{weights:?}");
        // The sum over words is the derivative of log p by a factor on all vectors: central differences are equal. The vector
        // of the separator, entry 1 of the vocabulary, keeps its size, as its weight is not in the sum.
        let log_p = |factor: f32| -> Result<f64> {
            let mut scaled = checkpoint.clone();
            for tensors in [&mut scaled.tensors, &mut scaled.best] {
                if let Some(table) = tensors.get_mut("words.weight") {
                    let mut dense = table.as_dense()?.clone();
                    let kept = if columns.len() > 1 { 8..16 } else { 0..0 };
                    let entries = dense.as_mut_slice::<f32>()?.iter_mut().enumerate();
                    entries.filter(|(at, _)| !kept.contains(at)).for_each(|(_, x)| *x *= factor);
                    *table = dense.into();
                }
            }
            let answer = Model::new(scaled)?.predict(&[text])?.remove(0);
            let Answer::Label { all, .. } = answer else { panic!("{answer:?}") };
            Ok(f64::from(all.iter().find(|(name, _)| *name == label).map_or(0.0, |(_, p)| *p)).ln())
        };
        let expected = (log_p(1.01)? - log_p(0.99)?) / 0.02;
        let found: f32 = weights.iter().flatten().map(|(_, weight)| weight).sum();
        assert!((f64::from(found) - expected).abs() < 1e-3 + 0.02 * expected.abs(), "{found} {expected}");
        std::fs::remove_file(path).ok();
    }
    std::fs::remove_file(lines)?;
    Ok(())
}

#[test]
fn a_tagger_answers_out_of_its_file() -> Result<()> {
    let mut config = Config::new(Task::Tag);
    (config.model.hidden, config.model.embedding, config.training.epochs) = (24, 24, 2);
    let (path, [before, after]) = trained("tag", &config)?;
    assert!(after > before, "{before} {after}");
    let texts = ["set an alarm for 7", "", "play   jazz"];
    let answers = Model::load(&path)?.predict(&texts)?;
    assert_eq!(answers[1], Answer::Empty);
    for (text, answer) in texts.iter().zip(&answers).step_by(2) {
        let Answer::Tags { words, tags, label, entities } = answer else { panic!("{answer:?}") };
        assert_eq!((words.len(), tags.len()), (text.split_whitespace().count(), words.len()));
        assert!(label.is_some());
        // Every word with a tag other than `O` is in an entity with the label of the tag.
        for (at, tag) in tags.iter().enumerate() {
            let label =
                entities.iter().find(|entity| entity.words.contains(&at)).map(|entity| &*entity.label);
            assert_eq!(label, tag.split_once('-').map(|(_, label)| label), "{answer:?}");
        }
    }
    std::fs::remove_file(path).ok();
    Ok(())
}

#[test]
fn a_language_model_writes_out_of_its_file() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::new(Task::Lm);
    config.data.train = Some(written("lm.txt", &"abcde\n".repeat(200))?);
    (config.model.hidden, config.model.layers, config.training.epochs) = (24, 2, 12);
    (config.model.dropout, config.training.rate) = (0.0, 2e-2);
    let (path, [before, after]) = trained("lm", &config)?;
    assert!(after < before / 2.0, "{before} {after}");
    let model = Model::load(&path)?;
    let answer = model.predict(&["cde\nab"])?.remove(0).to_string();
    assert!(answer.starts_with("cde\nabcde\n"), "{answer:?}");
    assert_eq!(model.predict(&[" \n"])?, [Answer::Empty]);
    // A session that reads and writes in parts writes the same text; a search of one beam is greedy.
    let sampling = unpadded::predict::Sampling::default().temperature(0.0);
    let whole = model.write("abc", sampling, 1, 12)?;
    let (mut session, mut sampler, mut text) = (model.begin()?, sampling.sampler(1)?, String::new());
    let mut add = |piece: &str| {
        text.push_str(piece);
        std::ops::ControlFlow::Continue(())
    };
    let go_on = &mut || std::ops::ControlFlow::Continue(());
    assert_eq!((model.read(&mut session, "ab", go_on)?, model.read(&mut session, "c", go_on)?), (2, 1));
    let stop = &mut || std::ops::ControlFlow::Break(());
    assert_eq!(model.read(&mut model.begin()?, "abc", stop)?, 0);
    for tokens in [5, 7] {
        assert_eq!(model.write_each(&mut session, &mut sampler, tokens, &mut add)?, tokens);
    }
    assert_eq!((&text, &model.search("abc", 12, &unpadded::predict::Beam::new(1))?[0].0), (&whole, &whole));
    assert_eq!(
        (model.length("abc\n"), model.truncate("abcde", 3, true), model.truncate("abcde", 3, false)),
        (4, "cde", "abc")
    );
    let error = Weigher::new(Checkpoint::load(&path)?, 1).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("expected a checkpoint of `classify`"), "{error}");
    std::fs::remove_file(path).ok();
    Ok(())
}

#[test]
fn a_schedule_of_a_language_model_spans_all_batches_of_a_short_text()
-> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::new(Task::Lm);
    // Four streams, where a batch has room for 64.
    config.data.train = Some(written("short.txt", &"abcde\n".repeat(800))?);
    (config.model.hidden, config.model.embedding, config.training.epochs) = (4, 4, 4);
    config.training.schedule = RateSchedule::Linear;
    let prepared = prepare(&config)?;
    let mut trainer = prepared.trainer.progress(Progress::Quiet);
    let report = trainer.fit(&*prepared.train, &*prepared.dev, Until::Epochs(4))?;
    let rates: Vec<f64> = report
        .history
        .iter()
        .filter_map(|epoch| epoch.rate)
        .map(|rate| rate / config.training.rate)
        .collect();
    let expected = [0.75, 0.5, 0.25, 0.0];
    assert!(
        rates.len() == 4 && rates.iter().zip(expected).all(|(rate, expected)| (rate - expected).abs() < 0.05),
        "{rates:?}"
    );
    Ok(())
}

#[test]
fn a_translator_answers_out_of_its_file() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let mut config = Config::new(Task::Translate);
    let lines: String =
        (0..60).map(|i| format!("{} {}\t{} to {}\n", i % 10, i / 10, i / 10, i % 10)).collect();
    config.data.train = Some(written("pairs.tsv", &lines)?);
    (config.text.tokens, config.text.target_tokens) = (Some(Tokens::Characters), Some(Tokens::Whitespace));
    config.text.min_count = 1;
    (config.model.hidden, config.model.embedding, config.model.dropout) = (24, 16, 0.0);
    (config.training.epochs, config.training.rate, config.training.batch) = (30, 1e-2, 8);
    let (path, [before, after]) = trained("translate", &config)?;
    assert!(after < before / 2.0, "{before} {after}");
    let model = Model::load(&path)?;
    let answer = model.predict(&["3 4", ""])?;
    let words: Vec<String> = answer[0].to_string().split(' ').map(str::to_owned).collect();
    assert_eq!((answer.len(), words.len(), &*words[1]), (2, 3, "to"), "{answer:?}");
    assert!(model.write("x", unpadded::predict::Sampling::default(), 1, 3).is_err());
    std::fs::remove_file(path).ok();
    Ok(())
}

#[test]
fn what_makes_no_sense_is_refused() {
    let text = |change: &dyn Fn(&mut Config)| {
        let mut config = Config::new(Task::Classify);
        change(&mut config);
        prepare(&config).err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert!(text(&|config| config.model.layers = 0).contains("model.layers: expected at least 1, got 0"));
    assert!(text(&|config| config.data.train = Some("no.tsv".into())).contains("`no.tsv`"));
    assert!(text(&|config| config.run.task = Task::Translate).contains("data.train: expected a file"));
    assert!(text(&|config| config.training.rate = -1.0).contains("training.rate: expected a number above 0"));
    assert!(
        text(&|config| config.data.first_index = Some(2))
            .contains("data.first_index: expected 0 or 1, got 2")
    );
    let other = Checkpoint::default();
    let error = Model::new(other).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(error.contains("expected a checkpoint of a recipe"), "{error}");
    let mut config = Config::new(Task::Lm);
    assert!(config.set("model.pool", &Value::Text("max".into())).is_err());
}

#[test]
fn rows_of_features_have_classes() -> Result<()> {
    let mut config = Config::new(Task::Classify);
    config.data.train =
        Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/clicks/train.libsvm").into());
    (config.model.embedding, config.model.hidden, config.training.epochs) = (16, 8, 2);
    let (path, [before, after]) = trained("rows", &config)?;
    assert!(after > 0.7 && after > before, "{before} {after}");
    let model = Model::load(&path)?;
    assert!(model.tokenizer().is_none() && model.task() == Task::Classify);
    // With a label or without, entries in any order, a feature that was never seen, and no entry.
    let answers = model.predict(&["1 3:1 1:1", "1:1 3:1", "1:1 3:1 999999999:1", ""])?;
    assert!(answers[0] == answers[1] && answers[1] == answers[2] && answers[2] != answers[3], "{answers:?}");
    let text = model.predict(&["1:1", "words in it"]).unwrap_err().to_string();
    assert!(text.contains("row: expected"), "{text}");
    let mut test = config.clone();
    test.data.test = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/../../datasets/clicks/test.libsvm").into());
    let scores = model.predictor().evaluate(&*test_data(&test, &model)?.data)?;
    assert!(scores.get("accuracy").is_some_and(|accuracy| accuracy > 0.7), "{scores:?}");
    std::fs::remove_file(path).ok();
    Ok(())
}

#[test]
fn features_that_count_from_0_do_so_in_every_file() -> Result<()> {
    let lines = |from: usize| -> String {
        (0..80).map(|i| format!("{} {}:1 {}:0.5\n", i % 2, from + i % 2, from + 2 + i % 3)).collect()
    };
    let (zero, one) = (written("zero.svm", &lines(0))?, written("one.svm", &lines(1))?);
    // No row to test on has the first feature, nor a word about from where they count.
    let test = written("test.svm", "1 1:1 2:0.5\n1 1:1 3:0.5\n")?;
    let config = |train: &str| {
        let mut config = Config::new(Task::Classify);
        (config.data.train, config.data.test) = (Some(train.to_owned()), Some(test.clone()));
        config.data.dev = Some(train.to_owned()); // equal rows would be held out together
        (config.model.embedding, config.model.hidden, config.training.epochs) = (4, 4, 30);
        config.training.rate = 0.02;
        config
    };
    let prepared = prepare(&config(&zero))?;
    assert_eq!(
        prepared.messages[1],
        "read as `libsvm`; indices count from 0, since there is an index 0; the setting `first_index` overrides this"
    );
    assert!(prepared.messages[0].contains("80 rows of 5 features"), "{:?}", prepared.messages);
    assert!(prepared.held_out.cases.iter().any(|case| case.text.starts_with("0:1 ")));
    let one = prepare(&config(&one))?;
    assert!(
        one.messages[0].contains("80 rows of 5 features")
            && one.messages[1].starts_with("read as `libsvm`; indices count from 1, since")
    );
    let mut set = config(&test);
    set.data.first_index = Some(0);
    set.data.dev = Some(zero.clone());
    set.data.train = Some(written("late.svm", "1 1:1 2:0.5\n0 2:1 3:0.5\n")?);
    let text = prepare(&set)?.messages;
    assert!(
        text[0].contains("2 rows of 4 features")
            && text.contains(&"read as `libsvm`; indices count from 0, as set".to_owned()),
        "{text:?}"
    );
    set.data.first_index = Some(1);
    let text = prepare(&set).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(
        text.contains("zero.svm")
            && text.contains(":1: expected an index from 1")
            && text.contains("the setting `first_index` 0"),
        "{text}"
    );

    let (path, _) = trained("from-zero", &config(&zero))?;
    let model = Model::load(&path)?;
    let answers = model.predict(&["0:1 2:0.5", "1:1 2:0.5"])?;
    let label = |answer: &Answer| match answer {
        Answer::Label { label, .. } => label.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!((label(&answers[0]), label(&answers[1])), ("0".to_owned(), "1".to_owned()));
    let scores = model.predictor().evaluate(&*test_data(&config(&zero), &model)?.data)?;
    assert_eq!(scores.get("accuracy"), Some(1.0));
    std::fs::remove_file(path).ok();
    Ok(())
}

#[test]
fn a_text_that_spells_a_special_token_is_translated_as_text() -> Result<()> {
    let tags = [["open", "<s>"], ["close", "</s>"], ["blank", "<pad>"], ["none", "<unk>"]];
    let line = |i: usize| {
        let [a, b] = [tags[i % 4], tags[i / 4 % 4]];
        format!("{} {} end\t{} {} fin\n", a[0], b[0], a[1], b[1])
    };
    let lines: String = (0..400).map(line).collect();
    let mut config = Config::new(Task::Translate);
    let dev = written("specials-dev.tsv", &(0..48).map(line).collect::<String>())?;
    (config.data.train, config.data.dev) = (Some(written("specials.tsv", &lines)?), Some(dev));
    (config.model.embedding, config.model.hidden, config.model.dropout) = (24, 24, 0.0);
    (config.training.epochs, config.training.batch, config.training.rate) = (12, 16, 0.01);
    config.text.tokens = Some(Tokens::Whitespace);
    let (path, _) = trained("specials", &config)?;
    let model = Model::load(&path)?;
    let targets = model.predictor().vocabulary("targets")?;
    for special in ["<s>", "</s>", "<unk>"] {
        assert_ne!(Some(targets.special(special)?), targets.id(special));
    }
    let answers = model.predict(&["close open end", "none blank end", "close close end"])?;
    let text: Vec<String> = answers.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["</s> <s> fin", "<unk> <pad> fin", "</s> </s> fin"]);
    std::fs::remove_file(path).ok();
    Ok(())
}

#[test]
fn the_lists_of_a_json_file_are_its_parts() -> Result<()> {
    let row = |i: usize| format!("[\"{} number {i}\", \"{}\"]", ["good", "bad"][i % 2], ["y", "n"][i % 2]);
    let list = |from: usize, to: usize| format!("[{}]", (from..to).map(row).collect::<Vec<_>>().join(",\n "));
    let text = format!(
        "{{\"other_train\": {}, \"train\": {}, \"val\": {}, \"test\": {}}}",
        list(0, 3),
        list(0, 40),
        list(40, 50),
        list(50, 56)
    );
    let mut config = Config::new(Task::Classify);
    let path = written("parts.json", &text)?;
    config.data.train = Some(path.clone());
    (config.model.embedding, config.model.hidden) = (4, 4);
    let prepared = prepare(&config)?;
    assert_eq!((prepared.lengths.len(), prepared.held_out.count), (40, 10));
    let name = path.rsplit(std::path::MAIN_SEPARATOR).next().unwrap_or_default();
    assert!(prepared.test.is_some_and(|test| test.ends_with(format!("{name}!test"))));
    let left_out =
        format!("left out: `{name}!other_train`; `data.train`, `data.dev` and `data.test` name other parts");
    assert!(prepared.messages.contains(&left_out), "{:?}", prepared.messages);
    Ok(())
}

/// Files of a task that are read in a window give the same training as those in memory.
fn same_in_a_window(task: Task, train: String, window: usize) -> Result<()> {
    let mut config = Config::new(task);
    config.data.train = Some(train);
    (config.model.embedding, config.model.hidden) = (4, 4);
    let mut windowed = config.clone();
    windowed.data.window = Some(window);
    let (held, streamed) = (prepare(&config)?, prepare(&windowed)?);
    assert_eq!((&streamed.messages, &streamed.name), (&held.messages, &held.name), "{task:?}");
    assert_eq!((&streamed.lengths, &streamed.held_out), (&held.lengths, &held.held_out), "{task:?}");
    assert_eq!(streamed.coverage, held.coverage, "{task:?}");
    for (streamed, held) in [(&streamed.train, &held.train), (&streamed.dev, &held.dev)] {
        let (streamed, held) = (streamed.batches(None, 0)?, held.batches(None, 0)?);
        let numbers = |batches: Vec<unpadded::data::Batch>| -> Vec<_> {
            batches.into_iter().map(|batch| (batch.numbers, batch.values)).collect()
        };
        let (streamed, held) = (streamed.collect::<Result<Vec<_>>>()?, held.collect::<Result<Vec<_>>>()?);
        assert!(!held.is_empty() && numbers(streamed) == numbers(held), "{task:?}");
    }
    Ok(())
}

#[test]
fn a_window_of_a_task_gives_the_batches_of_memory() -> Result<()> {
    let words = |i: usize| format!("Word{} of {}\t", i % 17, i % 5);
    let pairs: String = (0..300).map(|i| format!("{}wort {} von {}\n", words(i), i % 17, i % 5)).collect();
    same_in_a_window(Task::Translate, written("window.tsv", &pairs)?, 20)?;
    let tagged: String = (0..300).map(|i| format!("Word{} B-A\nof I-A\n{} O\n\n", i % 17, i % 50)).collect();
    same_in_a_window(Task::Tag, written("window.conll", &tagged)?, 20)?;
    let text: String = (0..3000).map(|i| format!("Line {} of a text.\n", i * i % 101)).collect();
    same_in_a_window(Task::Lm, written("window.txt", &text)?, 1000)
}

#[test]
fn a_tagger_reads_a_text_that_exceeds_the_limit_in_windows_that_overlap() -> Result<()> {
    let tagged: String = (0..300).map(|i| format!("Word{} B-A\nof I-A\n{} O\n\n", i % 17, i % 50)).collect();
    let mut config = Config::new(Task::Tag);
    config.data.train = Some(written("overlap.conll", &tagged)?);
    (config.model.embedding, config.model.hidden, config.training.epochs) = (8, 8, 2);
    let (path, _) = trained("overlap", &config)?;
    let text: String = (0..4000).map(|i| format!("Word{} of {} ", i * i % 17, i % 50)).collect();
    let tags = |answers: Vec<Answer>| match answers.into_iter().next() {
        Some(Answer::Tags { words, tags, .. }) => {
            assert_eq!((words.len(), tags.len()), (12_000, 12_000));
            tags
        }
        other => panic!("{other:?}"),
    };
    let whole = tags(Model::load(&path)?.predict(&[&text])?);
    let limited = || Ok::<_, unpadded::Error>(Model::load(&path)?.memory_limit(3_000_000));
    let refused = limited()?.predict(&[&text]).unwrap_err();
    assert_eq!(refused.kind(), unpadded::ErrorKind::Memory, "{refused}");
    config.decoding.overlap = 30;
    let windows = tags(limited()?.answering(&config).predict(&[&text])?);
    let different = whole.iter().zip(&windows).filter(|(a, b)| a != b).count();
    assert!(different <= 12, "{different} of 12,000 tags differ");
    // A text that fits is read whole.
    let short = "Word1 of 2";
    assert_eq!(limited()?.answering(&config).predict(&[short])?, Model::load(&path)?.predict(&[short])?);
    std::fs::remove_file(path).ok();
    Ok(())
}
