//! Vocabularies, tokenizers, tag schemes, samples, loaders.

use std::fs;

use unpadded::data::{
    Batch, Batching, Continuous, Data, Field, Limits, Loader, Sample, SampleStream, Samples, Source,
    TagScheme, TokenCounts, Tokenizer, Vocabulary,
};
use unpadded::metrics::{ChunkRule, counted};
use unpadded::{Error, Result, reserve};

use super::Calls;
use crate::trainer::path;

fn samples() -> Samples {
    (0..4).map(|i| vec![Field::Ints(vec![i]), Field::Int(i)]).collect()
}

/// The first error of its batches.
#[track_caller]
fn read(data: &dyn Data) -> Result<()> {
    data.batches(None, 0)?.try_for_each(|batch| batch.map(drop))
}

pub(super) fn calls(calls: &mut Calls) {
    let folder = path("caller_lines");
    fs::create_dir(&folder).unwrap();
    let nowhere = folder.join("nowhere");
    let words = Vocabulary::labels(["a"]).unwrap();
    let scheme = TagScheme::Iob2;
    calls.at("TagScheme::from_name", || TagScheme::from_name("x"));
    calls.at("TagScheme::kind", || scheme.kind("E-A"));
    calls.at("TagScheme::chunks", || scheme.chunks(&["O", "X"]));
    calls.at("TagScheme::strict_chunks", || scheme.strict_chunks(&["O", "X"]));
    calls.at("TagScheme::transitions", || scheme.transitions(&words));

    calls.at("chunks::counted", || counted(scheme, ChunkRule::Lenient, &["X"], &["O"]).map(drop));
    calls.at("Tokenizer::from_name", || Tokenizer::from_name("bpe"));
    calls.at("Tokenizer::hugging_face", || Tokenizer::hugging_face(&nowhere));
    calls.at("Tokenizer::from_json", || Tokenizer::from_json("tokenizer.json", "{}"));
    calls.at("Tokenizer::vocabulary_of", || {
        Tokenizer::words().vocabulary_of(TokenCounts::default(), &Limits::default())
    });
    calls.at("Tokenizer::vocabulary", || Tokenizer::words().vocabulary([""; 0], &Limits::default()));
    calls.at("Vocabulary::of", || Vocabulary::of::<&str>([], &Limits::default()));
    let twice = Limits::default().specials(["a", "a"]);
    calls.at("Vocabulary::of", || Vocabulary::of(["b"], &twice));
    calls.at("Vocabulary::labels", || Vocabulary::labels::<&str>([]));
    let labels = Vocabulary::labels(["good", "bad"]).unwrap();
    calls.at("Vocabulary::lookup", || labels.lookup("fair"));
    calls.at("Vocabulary::special", || labels.special("<s>"));
    calls.at("Vocabulary::ids", || labels.ids(["good", "fair"]));
    calls.at("Vocabulary::spelt", || labels.spelt("fair"));
    calls.at("TokenCounts::labels", || TokenCounts::default().labels());
    calls.at("TokenCounts::within", || TokenCounts::default().within(&Limits::default()));
    calls.at("Vocabulary::save", || labels.save(nowhere.join("x")));
    calls.at("Vocabulary::load", || Vocabulary::load(&nowhere));

    let names = ["words".to_owned(), "label".to_owned()];
    let one = || Sample::new(3, [Field::from(vec![1i64])]);
    calls.at("Batch::new", || Batch::new(&names, &[one()]));
    calls.at("Batch::new", || Batch::new::<Sample>(&names, &[]));
    calls.at("Samples::try_of", || Samples::try_of([Err(Error::new("sample", "one", "none"))].into_iter()));
    calls.at("Loader::new", || Loader::new(samples(), &[]));
    calls.at("Loader::new", || Loader::new(samples(), &["words"]));
    calls.at("Continuous::new", || Continuous::new(vec![1], 2, 3, ["x", "y"]));
    let few = [Ok(1), Ok(300), Ok(1)];
    calls.at("Continuous::windowed", || Continuous::windowed(few, (1, 256), 2, 3, ["x", "y"]));
    calls.at("Continuous::try_new", || Continuous::try_new([Ok(1), Ok(-1)], 2, 3, ["x", "y"]));
    calls.at("Data::same_lengths", || {
        let one: Samples = [vec![Field::Ints(vec![1]), Field::Ints(vec![1, 2])]].into_iter().collect();
        Loader::new(one, &["words", "tags"])?.same_lengths(["words", "tags"], 1)
    });
    // The batches of a loader name the line that made it.
    calls.at("Data::batches", || {
        read(&Loader::new(samples(), &["words", "label"])?.batching(Batching::Tokens(0)))
    });
    calls.at("Data::batches_that_fit", || {
        let none = || Err(Error::new("memory limit", "one", "none"));
        Loader::new(samples(), &["words", "label"])?
            .batching(Batching::Memory)
            .batches_that_fit(None, 0, &none)
    });
    let stream = || {
        let two = vec![Sample::new(0, [Field::Int(0)]), Sample::new(1, [Field::Float(0.0)])];
        Ok(Box::new(two.into_iter().map(Ok)) as unpadded::data::SampleIterator)
    };
    calls.at("Data::batches", || read(&Loader::new(SampleStream::new(0, stream), &["x"])?));
    let fails = || SampleStream::new(0, || Err(Error::new("source", "to be there", "none")));
    assert!(fails().open().is_err());
    calls.at("Data::batches", || read(&Loader::new(fails(), &["x"])?.prefetch(2)));
    let most = usize::MAX / 4;
    calls.at("reserve::items", || reserve::items(&mut vec![7u64], most, "ids"));
    calls.at("reserve::vector", || reserve::vector::<u64>(most, "ids"));
    calls.at("reserve::entries", || {
        reserve::entries(&mut std::collections::HashMap::<u8, u8>::new(), most, "words")
    });
    calls.at("reserve::collected", || {
        reserve::collected([Err::<u8, _>(Error::new("id", "one", "none"))].into_iter(), "ids")
    });
    fs::remove_dir_all(&folder).unwrap();
}
