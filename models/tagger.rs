//! Tags the words of texts: LSTMs read words and their characters in both directions, and a conditional random field finds the
//! best sequence of tags (Lample et al., "Neural architectures for named entity recognition", 2016).
//!
//! `cargo run --release --example tagger` learns what requests ask for. Two paths train on other texts and measure on the second:
//! files of CoNLL columns, the word first and the tag last, or folders with `seq.in`, `seq.out` and perhaps `label`.
mod paths;

use unpadded::data::{Batching, Limits, Loader, Vocabulary};
use unpadded::layers::{Crf, Embedding, Lstm, Stacked};
use unpadded::metrics::ChunkF1;
use unpadded::ops::{self, Pool};
use unpadded::optimizer::{Adam, Schedule};
use unpadded::predict::Predictor;
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Result, Variable};
use unpadded_text::{TaggedTexts, scheme_of};

const TEXTS: usize = 16; // a batch

/// Returns the form in which words are known: in small letters, with every digit as 0. Their characters are unchanged.
fn form(word: &str) -> String {
    word.chars().flat_map(char::to_lowercase).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

struct Vocabularies {
    words: Vocabulary,
    characters: Vocabulary,
    tags: Vocabulary,
}

/// Words and characters → vectors → LSTMs → scores of tags → the best sequence of tags.
fn network(vocabularies: &Vocabularies, [train, dev]: [&TaggedTexts; 2], epochs: u64) -> Result<Trainer> {
    let net = Builder::new().seed(1);
    let characters = net.feed("characters", DType::I64, &[], 2); // of each word of each text
    let c = characters.embedding(Embedding::new(vocabularies.characters.len(), 32)).dropout(0.2);
    let forth = c.lstm(48).sequence_pool(Pool::Last); // one row a word
    let back = c.lstm(Lstm::new(48).backwards()).sequence_pool(Pool::First);
    let words = net.feed_like("words", DType::I64, &[], forth);
    let known = words.embedding(Embedding::new(vocabularies.words.len(), 128).sparse());
    // Some words are randomly made unknown, so that the model learns to use their characters and neighbours.
    let known = known * known.slice(0..1).fill_like(1.0).dropout(0.15);
    let x = net.concat(&[known, forth, back]).dropout(0.5);
    let h = x.stacked(Stacked::new(Lstm::new(160), 1).bidirectional());

    let tags = net.feed_like("tags", DType::I64, &[], words);
    let tagging = scheme_of(&[train, dev])?;
    let names = tagging.standard(&vocabularies.tags)?;
    let crf = net.layer(Crf::new().forbidding(&tagging.scheme.transitions(&names)?));
    let scores = h.dropout(0.5).linear(vocabularies.tags.len());
    let (loss, found) = (crf.loss(scores, tags).mean(), crf.of(scores));
    let steps = epochs as usize * train.records().len().div_ceil(TEXTS);
    let adam = Adam::new(3e-3).lazy().clip_global_norm(5.0).schedule(Schedule::cosine_to(steps, 1e-4));
    let trainer = Trainer::new(net, loss, &adam)?.output("tags", found);
    let trainer = trainer.metric(ChunkF1::new(found, tags, tagging.scheme, &names)?).select("chunk F1");
    let trainer =
        trainer.vocabulary("words", vocabularies.words.clone()).vocabulary("tags", vocabularies.tags.clone());
    Ok(trainer.vocabulary("characters", vocabularies.characters.clone()))
}

/// Trains for some epochs. Returns the chunk F1 on `dev`, from 0 to 1, and a predictor, both of the best epoch.
fn train(texts: &TaggedTexts, dev: &TaggedTexts, epochs: u64) -> Result<(f64, Predictor)> {
    let vocabularies = Vocabularies {
        words: texts.words(form, &Limits::default().min_count(2))?,
        characters: texts.characters(&Limits::default())?,
        tags: TaggedTexts::tags([texts, dev])?,
    };
    let batches = |texts: &TaggedTexts| -> Result<Loader> {
        let samples = texts.samples(
            form,
            &vocabularies.words,
            Some(&vocabularies.characters),
            &vocabularies.tags,
            None,
        )?;
        Ok(Loader::new(samples, &["words", "characters", "tags"])?.batching(Batching::Sequences(TEXTS)))
    };
    let mut trainer = network(&vocabularies, [texts, dev], epochs)?;
    trainer.fit(&batches(texts)?.shuffle(1).prefetch(4), &batches(dev)?, Until::Epochs(epochs))?;
    trainer.use_best()?;
    for (name, table) in trainer.tables(&batches(dev)?)? {
        println!("{name}\n{table}");
    }
    let f1 = trainer.evaluate(&batches(dev)?)?.get("chunk F1").unwrap_or(f64::NAN);
    Ok((f1, Predictor::new(trainer.for_inference()?, &ops::catalogue())?))
}

/// Returns the words of a text, each followed by its tag unless the tag is `O`.
fn predict(predictor: &Predictor, words: &[String]) -> Result<String> {
    let ids = predictor.vocabulary("words")?.ids(words.iter().map(|word| form(word)))?;
    let characters = predictor.vocabulary("characters")?;
    let spelled = words
        .iter()
        .map(|word| characters.ids(word.chars().map(String::from)))
        .collect::<Result<Vec<_>>>()?;
    let (ids, spelled) = (Variable::from_sequence(ids)?, Variable::from_nested(&[spelled])?);
    let found = predictor.run(&[("words", &ids), ("characters", &spelled)], &["tags"])?;
    let tags = predictor.vocabulary("tags")?;
    let tagged = words.iter().zip(found[0].as_slice::<i64>()?).map(|(word, &tag)| match tags.token(tag) {
        Some("O") | None => word.clone(),
        Some(tag) => format!("{word}/{tag}"),
    });
    Ok(tagged.collect::<Vec<_>>().join(" "))
}

fn main() -> Result<()> {
    let [path, dev] = paths::paths(["requests/train", "requests/dev"])?;
    let dev = TaggedTexts::open(dev)?;
    let (_, predictor) = train(&TaggedTexts::open(path)?, &dev, 15)?;
    for text in dev.records().iter().take(3) {
        println!("{}", predict(&predictor, &text.words)?);
    }
    Ok(())
}

#[test]
fn it_learns_and_predicts() -> Result<()> {
    let open = |part| TaggedTexts::open(format!("{}/datasets/requests/{part}", env!("CARGO_MANIFEST_DIR")));
    let (texts, dev) = (open("train")?.hold_out(8, 1).1, open("dev")?.hold_out(8, 1).1);
    let (f1, predictor) = train(&texts, &dev, 8)?;
    let words = "set an alarm for 7".split(' ').map(str::to_owned).collect::<Vec<_>>();
    assert!(f1 > 0.15 && predict(&predictor, &words)?.starts_with("set an alarm"), "{f1}");
    Ok(())
}
