//! The memory of reading text: a long text takes its own bytes and four per character, without lists of characters; a file of
//! word vectors takes the vectors of the vocabulary's words; a stream of texts takes the texts of its window.
//!
//! A binary of its own, because its allocator counts.

#![allow(clippy::unwrap_used)]

#[path = "../../../tests/it/peak_memory.rs"]
mod peak_memory;

use std::sync::Mutex;

use unpadded::data::{Batching, Continuous, Data, Limits, Loader, Tokenizer, Vocabulary};
use unpadded_text::{
    AnswerCell, LabelledFiles, PairFiles, PlainFiles, QuestionKind, Questions, ReadOptions, TaggedFiles,
    TextFile, WordVectors,
};

/// Who counts, as the allocator counts for all threads.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn a_text_is_held_once_and_its_characters_as_numbers() {
    let _alone = ALONE.lock().unwrap();
    // Just below a power of two, so that buffers that grow by doubling are full.
    let size = (1 << 20) - 16;
    let path = std::env::temp_dir().join(format!("unpadded-text-memory-{}", std::process::id()));
    std::fs::write(&path, "to be or not to be\n".repeat(size / 19 + 1).get(..size).unwrap()).unwrap();
    let (peak, data) = peak_memory::of(|| {
        let (text, tokenizer) = (TextFile::open(&path).unwrap().text().unwrap(), Tokenizer::characters());
        let characters = Vocabulary::of(tokenizer.tokens(&text), &Limits::default()).unwrap();
        let ids = tokenizer.tokens(&text).map(|character| characters.lookup(&character));
        Continuous::try_new(ids, 64, 64, ["x", "y"]).unwrap()
    });
    assert_eq!(data.batch_count(), Some((size as u64 - 1).div_ceil(64 * 64)));
    // While the ids are moved to a place of twice the size, both are there: 6 bytes, and the text with room to grow.
    assert!(peak <= 8 * size, "{peak} bytes for a text of {size}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn of_a_file_of_word_vectors_the_words_of_the_vocabulary_are_held() {
    let _alone = ALONE.lock().unwrap();
    let path = std::env::temp_dir().join(format!("unpadded-vector-memory-{}", std::process::id()));
    let numbers = " 0.125".repeat(100);
    let text: String = (0..10_000).map(|i| format!("word{i}{numbers}\n")).collect();
    std::fs::write(&path, &text).unwrap();
    let vocabulary = Vocabulary::of(["word7", "word9999", "none"], &Limits::default()).unwrap();
    let (peak, vectors) = peak_memory::of(|| WordVectors::open(&path, &vocabulary).unwrap());
    assert_eq!((vectors.found(), vectors.width()), (2, 100));
    // The lines for detecting the format, and a buffer of a file's lines; not a buffer of the file's six million bytes.
    assert!(text.len() > 6_000_000 && peak <= 400_000, "{peak} bytes");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_stream_takes_its_window_however_long_the_file_is() {
    let _alone = ALONE.lock().unwrap();
    let path = std::env::temp_dir().join(format!("unpadded-stream-memory-{}.tsv", std::process::id()));
    let (words, labels) = (Vocabulary::labels(["a", "b"]).unwrap(), Vocabulary::labels(["x", "y"]).unwrap());
    let epoch = |lines: usize| {
        let line = |i: usize| format!("{}\t{}\n", "a b ".repeat(100), ["x", "y"][i % 2]);
        std::fs::write(&path, (0..lines).map(line).collect::<String>()).unwrap();
        peak_memory::of(|| {
            let tokenizer = Tokenizer::whitespace();
            let files = LabelledFiles::open(&path).unwrap();
            assert_eq!(files.labels().unwrap().len(), labels.len());
            let loader = files.loader(["words", "label"], &tokenizer, (&words, &labels)).unwrap();
            let loader = loader.shuffle(3).buffer(256).batching(Batching::Sequences(16));
            let mut seen = vec![0u8; lines];
            for batch in loader.batches(Some(0), 0).unwrap() {
                batch.unwrap().numbers.iter().for_each(|&number| seen[number as usize] += 1);
            }
            assert!(seen.iter().all(|&times| times == 1), "each once an epoch");
        })
        .0
    };
    // A window is 256 samples of 200 numbers of 8 bytes; to detect the columns, 1000 lines of 400 bytes are read, with their
    // distinct values.
    let (short, long) = (epoch(2_000), epoch(20_000));
    assert!(
        short < 1_600_000 && long <= short + 100_000,
        "{short} bytes of a short file, {long} of a long one"
    );
    std::fs::remove_file(path).unwrap();
}

/// The peaks of an epoch over a file with this line 1,000 times, and 10,000 times.
fn peaks(name: &str, line: &str, epoch: &dyn Fn(&std::path::Path)) -> [usize; 2] {
    let path = std::env::temp_dir().join(format!("unpadded-memory-{}-{name}", std::process::id()));
    let peaks = [1_000, 10_000].map(|times| {
        std::fs::write(&path, line.repeat(times)).unwrap();
        peak_memory::of(|| epoch(&path)).0
    });
    std::fs::remove_file(path).unwrap();
    peaks
}

#[test]
fn streams_of_all_tasks_take_their_window() {
    let _alone = ALONE.lock().unwrap();
    let (words, tags) = (Vocabulary::labels(["a", "b"]).unwrap(), Vocabulary::labels(["O"]).unwrap());
    let tokenizer = Tokenizer::whitespace();
    let read = |data: &dyn Data| {
        let batches = data.batches(None, 0).unwrap().map(|batch| batch.unwrap().tokens);
        assert!(batches.sum::<usize>() > 100_000);
    };
    let tagged = peaks("a.conll", &("a O\nb O\n".repeat(100) + "\n"), &|path| {
        let files = TaggedFiles::open(path).unwrap();
        let samples = files.samples(str::to_owned, &words, Some(&words), &tags, None).unwrap();
        let loader = Loader::new(samples, &["words", "characters", "tags"]).unwrap();
        read(&loader.shuffle(1).buffer(16).batching(Batching::Sequences(4)));
    });
    let ends = ["a", "b"];
    let pairs = peaks("a.tsv", &format!("{0}\t{0}\n", "a b ".repeat(100)), &|path| {
        let files = PairFiles::open(path).unwrap();
        let loader = files.loader(["s", "g", "n"], [&tokenizer; 2], [&words; 2], ends).unwrap();
        read(&loader.shuffle(1).buffer(16).batching(Batching::Sequences(4)));
    });
    let plain = peaks("a.txt", &("a b ".repeat(200) + "\n"), &|path| {
        let files = PlainFiles::open_with([path], &ReadOptions::new()).unwrap();
        let ids = files.pieces().flat_map(|piece| {
            let piece = piece.unwrap();
            tokenizer.tokens(&piece).map(|token| words.lookup(&token)).collect::<Vec<_>>()
        });
        read(&Continuous::windowed(ids, (1_000, 2), 8, 64, ["x", "y"]).unwrap());
    });
    let asked = peaks("a.csv", &format!("{},label {{}}\n", "a b ".repeat(100)), &|path| {
        let out = std::io::sink();
        let mut questions = Questions::open(path, &ReadOptions::new().text("1"), QuestionKind::Text).unwrap();
        questions.write_to(Box::new(out), &["p"]).unwrap();
        while let Some(question) = questions.next() {
            questions.answer(&question.unwrap(), &[AnswerCell::Number(0.5)]).unwrap();
        }
        questions.finish().unwrap();
    });
    // Of plain text, a piece of a mebibyte and its tokens are held.
    for (name, [short, long]) in [("tagged", tagged), ("pairs", pairs), ("plain", plain), ("asked", asked)] {
        assert!(
            long <= short + 2_000_000 && long < 60_000_000,
            "{name}: {short} bytes, {long} of a long file"
        );
    }
}
