//! Translation: a bidirectional GRU encodes the source, and a GRU with attention decodes the target
//! (Bahdanau, Cho, Bengio, "Neural machine translation by jointly learning to align and translate", 2015).
//!
//! `cargo run --release --example translate` learns to rewrite dates in ISO 8601. Two paths of files with lines
//! `source<TAB>target` train on the first and measure on the second.
mod made_up_dates;
mod paths;

use made_up_dates::{Part, dates};
use unpadded::data::{Batching, Limits, Loader, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Gru, Linear, Stacked, init};
use unpadded::metrics::{Bleu, Loss, RunningMetric};
use unpadded::ops::{self, Pool, UpdateGate};
use unpadded::optimizer::Adam;
use unpadded::predict::{Beam, Generation, Predictor};
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Result, Variable};
use unpadded_text::Pairs;

const CHARACTERS: Tokenizer = Tokenizer::characters();
const ENDS: [&str; 2] = ["<s>", "</s>"];
const HIDDEN: usize = 96;

/// The encoder, the attention decoder and the loss of the next target token.
fn network(sources: &Vocabulary, targets: &Vocabulary) -> Result<Trainer> {
    let net = Builder::new().seed(1);
    let source = net.feed("source", DType::I64, &[], 1);
    let given = net.feed("given", DType::I64, &[], 1); // target tokens behind `<s>`, with their own lengths
    let next = net.feed_like("next", DType::I64, &[], given);

    let x = source.embedding(Embedding::new(sources.len(), 48).sparse()).dropout(0.1);
    let states = x.stacked(Stacked::new(Gru::new(HIDDEN), 1).bidirectional()).dropout(0.1);
    // Keys and values of the attention, computed once for all steps.
    let (keys, values) = (states.linear(HIDDEN), states.linear(HIDDEN));
    let start = states.sequence_pool(Pool::Mean).linear(HIDDEN).tanh();
    let bound = 1.0 / (HIDDEN as f64).sqrt();
    let score = net.parameter("score", DType::F32, &[HIDDEN], init::uniform(-bound, bound));

    // Input and output embedding are tied (Press and Wolf, "Using the output embedding to improve language models", 2017).
    let table = net.layer(Embedding::new(targets.len(), 48));
    let write = net.layer(Linear::tied(&table));
    let y = table.of(given).dropout(0.1);
    let (h, context) = net.recurrent(y, |step, y| {
        let before = step.memory_from(start);
        let query = before.linear(Linear::new(HIDDEN).without_bias());
        let context = query.additive_attention(keys, values, score);
        let input = y.linear(3 * HIDDEN) + context.linear(Linear::new(3 * HIDDEN).without_bias());
        let h = step.gru_cell(input, before.linear(3 * HIDDEN), before, UpdateGate::Keeps);
        step.update(before, h);
        (h, context)
    });
    // The output layer runs outside the loop: one product for all steps.
    let logits = write.of(net.concat(&[h, context, y]).linear(48).tanh().dropout(0.1));
    let losses = logits.cross_entropy(next);
    let trainer = Trainer::new(net, losses.mean(), &Adam::new(3e-3).lazy().clip_global_norm(1.0))?;
    let trainer = trainer.metric(Loss::new(losses)).output("logits", logits);
    Ok(trainer.vocabulary("sources", sources.clone()).vocabulary("targets", targets.clone()))
}

/// Trains for the given epochs and returns a predictor of the best one.
fn train(pairs: &Pairs, dev: &Pairs, epochs: u64) -> Result<Predictor> {
    let sources = pairs.sources(&CHARACTERS, &Limits::default())?;
    let specials = [ENDS[0], ENDS[1], Vocabulary::UNKNOWN];
    let targets = pairs.targets(&CHARACTERS, &Limits::default().specials(specials))?;
    let (feeds, vocabularies) = (["source", "given", "next"], [&sources, &targets]);
    let batches = |pairs: &Pairs| -> Result<Loader> {
        Ok(pairs.loader(feeds, [&CHARACTERS; 2], vocabularies, ENDS)?.batching(Batching::Sequences(64)))
    };
    let mut trainer = network(&sources, &targets)?;
    trainer.fit(&batches(pairs)?.shuffle(1).prefetch(4), &batches(dev)?, Until::Epochs(epochs))?;
    trainer.use_best()?;
    Predictor::new(trainer.for_inference()?, &ops::catalogue())
}

/// Translates each text by beam search with a beam width of four.
fn translate(predictor: &Predictor, texts: &[&str]) -> Result<Vec<String>> {
    let (sources, targets) = (predictor.vocabulary("sources")?, predictor.vocabulary("targets")?);
    let ids = texts.iter().map(|text| sources.ids(CHARACTERS.tokens(text))).collect::<Result<Vec<_>>>()?;
    let longest = ids.iter().map(Vec::len).max().unwrap_or(0);
    let [start, stop, unknown] = [0, 1, 2]; // the special tokens come first in a vocabulary
    let options = Generation::new(start).stop(stop).max_steps(2 * longest + 20).banned([start, unknown]);
    let source = Variable::from_sequences(&ids)?;
    let generator = predictor.generator("given", "logits")?;
    let generated = generator.beam(&[("source", &source)], &options, &Beam::new(4).length(0.6))?;
    let tokens = generated.best()?.into_iter().map(|best| best.map_or(&[][..], |best| best.tokens));
    Ok(tokens.map(|ids| CHARACTERS.join(ids.iter().filter_map(|&id| targets.token(id)))).collect())
}

fn main() -> Result<()> {
    let made_up = |seed, count, part| Pairs::new("made-up dates", dates(seed, count, part));
    let (pairs, dev) = match std::env::args().len() {
        1 => (made_up(1, 12_000, Part::Train), made_up(2, 1_000, Part::Dev)),
        _ => paths::paths([""; 2]).and_then(|[train, dev]| Ok((Pairs::open(train)?, Pairs::open(dev)?)))?,
    };
    let predictor = train(&pairs, &dev, 6)?;
    let mut bleu = RunningMetric::new(Bleu::of_texts())?;
    for batch in dev.by_source().chunks(64) {
        let sources: Vec<&str> = batch.iter().map(|(source, _)| *source).collect();
        let found = translate(&predictor, &sources)?;
        println!("{} -> {}", sources[0], found[0]);
        found.iter().zip(batch).for_each(|(found, (_, targets))| bleu.texts(found, targets));
    }
    println!("BLEU {:.1}", 100.0 * bleu.value());
    Ok(())
}

#[test]
fn it_learns_to_reverse_and_capitalise() -> Result<()> {
    let file = unpadded_text::TextFile::embedded("pairs.tsv", "abc\tCBA\nbc\tCB\nca\tAC\na\tA\nbba\tABB\n");
    let pairs = Pairs::of_lines(&file)?;
    let found = translate(&train(&pairs, &pairs, 200)?, &["abc", "bc", "ca", "a", "bba"])?;
    assert_eq!(found, ["CBA", "CB", "AC", "A", "ABB"]);
    Ok(())
}
