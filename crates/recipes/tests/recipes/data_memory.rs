//! Data and the memory limit: texts that would take too much stay in their files, and their token ids are in memory; if the
//! token ids would take too much, too, each epoch reads the files again.

use std::io::Write;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use unpadded::data::{Batch, Data};
use unpadded::train::{Progress, Until};
use unpadded::{ErrorKind, Result};
use unpadded_recipes::{ByteSize, Config, Preparation, Task, Tokens, prepare, prepare_resumed};

/// A file that is removed at the end of the test.
struct File(PathBuf);

impl File {
    fn new(name: &str, contents: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("unpadded-memory-{}-{name}", std::process::id()));
        std::fs::write(&path, contents).unwrap();
        Self(path)
    }

    fn gzip(name: &str, text: &str) -> Self {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(text.as_bytes()).unwrap();
        Self::new(name, &packed.finish().unwrap())
    }
}

impl Drop for File {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// Returns a config of a small model; with `memory`, the training has a limit of this size.
fn config(task: Task, train: &Path, memory: Option<&str>) -> Config {
    let mut config = Config::new(task);
    config.data.train = Some(train.to_string_lossy().into_owned());
    (config.model.embedding, config.model.hidden) = (4, 4);
    if task == Task::Lm {
        config.text.tokens = Some(Tokens::Words);
    }
    config.run.memory = memory.map(|size| size.parse::<ByteSize>().unwrap());
    config
}

fn batches(data: &dyn Data, epoch: u64) -> Result<Vec<Batch>> {
    data.batches(Some(epoch), 0)?.collect()
}

/// The lines about memory among the lines that a training says at its start.
fn of_memory(prepared: &Preparation) -> Vec<&String> {
    prepared.messages.iter().filter(|line| line.contains("memory limit")).collect()
}

fn words(i: usize) -> String {
    format!("Word{} of the text {} is here", i % 170, i * i % 53)
}

/// A file of each task, gzipped where the task may read it so, with a limit of which an eighth is less than the texts, and a
/// quarter is more than their token ids.
fn files(test: &str, times: usize) -> Vec<(Task, File, &'static str)> {
    let texts: String = (0..3000 * times).map(|i| format!("{}\tlabel{}\n", words(i), i % 3)).collect();
    let pairs: String =
        (0..3000 * times).map(|i| format!("{}\twort {} von {}\n", words(i), i % 17, i % 5)).collect();
    let tagged: String =
        (0..2000 * times).map(|i| format!("Word{} B-A\nof I-A\n{} O\n\n", i % 17, i % 50)).collect();
    let lines: String = (0..30_000 * times).map(|i| format!("Line {} of a text.\n", i * i % 101)).collect();
    vec![
        (Task::Classify, File::gzip(&format!("{test}-texts.tsv.gz"), &texts), "1 MB"),
        (Task::Translate, File::new(&format!("{test}-pairs.tsv"), pairs.as_bytes()), "1 MB"),
        (Task::Tag, File::gzip(&format!("{test}-tagged.conll.gz"), &tagged), "2 MB"),
        (Task::Lm, File::new(&format!("{test}-lines.txt"), lines.as_bytes()), "4 MB"),
    ]
}

#[test]
fn texts_in_files_give_the_training_of_texts_in_memory() -> Result<()> {
    for (task, file, limit) in files("held", 1) {
        let (held, streamed) =
            (prepare(&config(task, &file.0, None))?, prepare(&config(task, &file.0, Some(limit)))?);
        assert!(of_memory(&held).is_empty(), "{task:?}: {:?}", held.messages);
        let text = of_memory(&streamed);
        assert!(
            text.len() <= 2 && text.iter().all(|line| line.contains("are in memory")),
            "{task:?}: {text:?}"
        );
        assert!(text[0].contains(&*streamed.name) && text[0].contains("an eighth"), "{task:?}: {text:?}");
        let rest = |preparation: &Preparation| -> Vec<String> {
            preparation.messages.iter().filter(|line| !line.contains("memory limit")).cloned().collect()
        };
        assert_eq!((rest(&streamed), &streamed.lengths), (rest(&held), &held.lengths), "{task:?}");
        assert_eq!((&streamed.held_out, streamed.coverage), (&held.held_out, held.coverage), "{task:?}");
        for (streamed, held) in [(&streamed.train, &held.train), (&streamed.dev, &held.dev)] {
            assert_eq!(streamed.fingerprint(), held.fingerprint(), "{task:?}");
            assert_eq!(streamed.held_bytes(), held.held_bytes(), "{task:?}");
            assert!(held.held_bytes() > 0 && !held.may_wait() && !streamed.may_wait(), "{task:?}");
            for epoch in [0, 3] {
                assert_eq!(batches(&**streamed, epoch)?, batches(&**held, epoch)?, "{task:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn a_window_within_the_limit_has_each_text_once_and_is_resumed() -> Result<()> {
    for (task, file, _) in files("window", 12) {
        // A quarter of the limit is less than the token ids.
        let small = config(task, &file.0, Some("3 MB"));
        let streamed = prepare(&small)?;
        let message = of_memory(&streamed);
        assert!(message.len() == 1 && streamed.train.may_wait(), "{task:?}: {message:?}");
        let held = prepare(&config(task, &file.0, None))?;
        let text = |batches: Vec<Batch>| {
            let mut numbers: Vec<u64> = batches.into_iter().flat_map(|batch| batch.numbers).collect();
            numbers.sort_unstable();
            numbers
        };
        let epochs = [0, 1].map(|epoch| batches(&*streamed.train, epoch).unwrap());
        assert!(task == Task::Lm || epochs[0] != epochs[1], "{task:?}: every epoch has the same order");
        for epoch in epochs {
            assert_eq!(text(epoch), text(batches(&*held.train, 0)?), "{task:?}");
        }
        let window = streamed.train.held_bytes();
        assert!(window <= 750_000 && (task == Task::Lm || window > 700_000), "{task:?}: {window}");

        // The checkpoint keeps the limit, so that a resumed training has the order of the first part.
        let last = File::new(&format!("{task:?}.ckpt"), b"");
        let mut trainer = streamed.trainer.progress(Progress::Quiet);
        trainer.fit(&*streamed.train, &*streamed.dev, Until::Steps(2))?;
        trainer.save(&last.0)?;
        let resumed = prepare_resumed(&config(task, &file.0, Some("1 GB")), &last.0)?;
        assert_eq!(resumed.train.fingerprint(), streamed.train.fingerprint(), "{task:?}");
        assert_eq!(resumed.train.held_bytes(), window, "{task:?}");
        assert_eq!(batches(&*resumed.train, 1)?, batches(&*streamed.train, 1)?, "{task:?}");
        let mut trainer = resumed.trainer.progress(Progress::Quiet);
        trainer.resume(&last.0)?;
        trainer.fit(&*resumed.train, &*resumed.dev, Until::Steps(4))?;
    }
    Ok(())
}

#[test]
fn rows_that_exceed_the_limit_are_refused() -> Result<()> {
    let rows: String =
        (0..2000).map(|i| format!("{} {}:1 {}:0.5\n", i % 2, i % 40 + 1, i % 50 + 50)).collect();
    let file = File::new("rows.svm", rows.as_bytes());
    assert!(prepare(&config(Task::Classify, &file.0, Some("10 MB"))).is_ok());
    let error = prepare(&config(Task::Classify, &file.0, Some("100 kB"))).map(drop).unwrap_err();
    let text = error.to_string();
    assert_eq!(error.kind(), ErrorKind::Memory, "{text}");
    assert!(
        text.starts_with("rows of `") && text.contains("at most 12 kB, as the memory limit allows"),
        "{text}"
    );
    Ok(())
}
