//! Translates: GRUs read the source in both directions, and another one writes, looking at each step at the states of the source that it needs
//! (Bahdanau, Cho, Bengio, "Neural machine translation by jointly learning to align and translate", 2015).
//!
//! `cargo run --release --example translate` learns to read dates as people write them. Two paths, of lines `source<TAB>target`, train on other
//! pairs and measure on the second.
mod made_up_dates;
mod paths;

use made_up_dates::{Part, dates};
use unpadded::data::{Batching, Limits, Loader, Pairs, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Gru, Linear, Stacked, init};
use unpadded::metrics::{Bleu, Loss, Metric};
use unpadded::ops::{self, Pool, UpdateGate};
use unpadded::optimizer::Adam;
use unpadded::predict::{Beam, Generation, Predictor};
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Result, Variable};

const CHARACTERS: Tokenizer = Tokenizer::characters();
const ENDS: [&str; 2] = ["<s>", "</s>"];
const START: i64 = 0;
const STOP: i64 = 1;
const UNKNOWN: i64 = 2;
const HIDDEN: usize = 96;

/// Source → states in both directions; at each step the state of the decoder, what it attends to and the token before → the next token.
fn network(sources: &Vocabulary, targets: &Vocabulary) -> Result<Trainer> {
    let net = Builder::new().seed(1);
    let source = net.feed("source", DType::I64, &[], 1);
    let given = net.feed("given", DType::I64, &[], 1); // as many as there are sources, of other lengths
    let next = net.feed_like("next", DType::I64, &[], given);

    let x = source.embedding(Embedding::new(sources.len(), 48).sparse()).dropout(0.1);
    let states = x.stacked(Stacked::new(Gru::new(HIDDEN), 1).bidirectional()).dropout(0.1);
    // Computed once: what is looked for, and what is found.
    let (keys, values) = (states.linear(HIDDEN), states.linear(HIDDEN));
    let start = states.sequence_pool(Pool::Mean).linear(HIDDEN).tanh();
    let bound = 1.0 / (HIDDEN as f64).sqrt();
    let score = net.parameter("score", DType::F32, &[HIDDEN], init::uniform(-bound, bound));

    // Tokens are read and written by the same vectors (Press and Wolf, "Using the output embedding to improve language models", 2017).
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
    // What is written leaves the loop: one product for all steps.
    let logits = write.of(net.concat(&[h, context, y]).linear(48).tanh().dropout(0.1));
    let losses = logits.cross_entropy(next);
    let trainer = Trainer::new(net, losses.mean(), &Adam::new(3e-3).lazy().clip_global_norm(1.0))?;
    let trainer = trainer.metric(Loss::new(losses)).output("logits", logits);
    Ok(trainer.vocabulary("sources", sources.clone()).vocabulary("targets", targets.clone()))
}

/// Trains for some epochs. Returns a predictor of the best one.
fn train(pairs: &Pairs, dev: &Pairs, epochs: u64) -> Result<Predictor> {
    let sources = pairs.sources(&CHARACTERS, &Limits::default())?;
    let specials = [ENDS[0], ENDS[1], Vocabulary::UNKNOWN];
    let targets = pairs.targets(&CHARACTERS, &Limits::default().specials(specials))?;
    let batches = |pairs: &Pairs| -> Result<Loader> {
        let loader =
            pairs.loader(["source", "given", "next"], [&CHARACTERS; 2], [&sources, &targets], ENDS)?;
        Ok(loader.batching(Batching::Sequences(64)))
    };
    let mut trainer = network(&sources, &targets)?;
    trainer.fit(&batches(pairs)?.shuffle(1).prefetch(4), &batches(dev)?, Until::Epochs(epochs))?;
    trainer.use_best()?;
    Predictor::new(trainer.for_inference()?, &ops::catalogue())
}

/// What each text becomes, by a beam search that follows four translations side by side.
fn translate(predictor: &Predictor, texts: &[&str]) -> Result<Vec<String>> {
    let sources = predictor.vocabulary("sources")?;
    let ids = texts.iter().map(|text| sources.ids(CHARACTERS.tokens(text))).collect::<Result<Vec<_>>>()?;
    let most = 2 * ids.iter().map(Vec::len).max().unwrap_or(0) + 20;
    let options = Generation::new(START).stop(STOP).max_steps(most).banned([START, UNKNOWN]);
    let generator = predictor.generator("given", "logits")?;
    let fed = Variable::from_sequences(&ids)?;
    let found = generator.beam(&[("source", &fed)], &options, &Beam::new(4).length(0.6))?;
    let targets = predictor.vocabulary("targets")?;
    let text = |ids: &[i64]| CHARACTERS.join(ids.iter().map(|&id| targets.token(id).unwrap_or_default()));
    Ok(found
        .best()?
        .into_iter()
        .map(|best| best.map_or_else(String::new, |best| text(best.tokens)))
        .collect())
}

fn main() -> Result<()> {
    let made_up = |seed, count, part| Pairs::new("made-up dates", dates(seed, count, part));
    let (pairs, dev) = match std::env::args().len() {
        1 => (made_up(1, 12_000, Part::Train), made_up(2, 1_000, Part::Dev)),
        _ => paths::paths([""; 2]).and_then(|[train, dev]| Ok((Pairs::open(train)?, Pairs::open(dev)?)))?,
    };
    let predictor = train(&pairs, &dev, 6)?;
    let (sources, mut bleu) = (dev.by_source(), Bleu::of_texts());
    for part in sources.chunks(64) {
        let texts: Vec<&str> = part.iter().map(|(source, _)| *source).collect();
        for (found, (_, targets)) in translate(&predictor, &texts)?.iter().zip(part) {
            bleu.texts_of_several(found, targets);
        }
    }
    let texts: Vec<&str> = sources.iter().take(5).map(|(source, _)| *source).collect();
    for (source, found) in texts.iter().zip(translate(&predictor, &texts)?) {
        println!("{source} becomes {found}");
    }
    println!("BLEU {:.1}", 100.0 * bleu.value());
    Ok(())
}

#[test]
fn it_learns_and_translates() -> Result<()> {
    let of = |(source, target): (&str, &str)| unpadded::data::Pair {
        source: source.into(),
        target: target.into(),
    };
    let lines = [("abc", "CBA"), ("bc", "CB"), ("ca", "AC"), ("a", "A"), ("bba", "ABB")];
    let pairs = Pairs::new("some", lines.map(of));
    let predictor = train(&pairs, &pairs, 200)?;
    let found = translate(&predictor, &lines.map(|(source, _)| source))?;
    assert_eq!(found, lines.map(|(_, target)| target));
    Ok(())
}
