//! Learns to translate: GRUs read the source in both directions, and another one writes, looking at each step at the states of the
//! source that it needs (Bahdanau, Cho, Bengio, "Neural machine translation by jointly learning to align and translate", 2015).
//!
//! `cargo run --release --example translate` learns to read dates as people write them; see `--help`.
mod flags;
mod made_up_dates;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use flags::{Flags, Found, Outcome};
use made_up_dates::{Part, dates};
use sha2::{Digest, Sha256};
use unpadded::data::{Batching, FileFormat, Limits, Loader, Pairs, ReadOptions, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Gru, Linear, Stacked, init};
use unpadded::metrics::{Bleu, Loss, Metric};
use unpadded::ops::{CrossEntropy, Pool, UpdateGate};
use unpadded::optimizer::{Adam, Schedule};
use unpadded::predict::{Beam, Generation, Generator, Predictor};
use unpadded::program::Step;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Result, Var, Variable};

const MODEL: &str = "translate";
const FEEDS: [&str; 3] = ["source", "given", "next"];
const ENDS: [&str; 2] = ["<s>", "</s>"];
/// What comes before the first token. It is 0, as a memory is before the first step.
const START: i64 = 0;
const STOP: i64 = 1;
const UNKNOWN: i64 = 2;
const LENGTH_PENALTY: f64 = 0.6;
const SOURCES: usize = 64; // translated together
const MOST_TOKENS: usize = 1024; // of a translation, however long its source is

/// Learns to translate, from lines of `source<TAB>target`, perhaps with a third column that is passed over, as Tatoeba's have it;
/// --predict translates the lines of standard input. Without --dev and --test a part of the lines is held out for each, at most
/// 2,000, and no source of it is in train.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    /// Learn how words are spoken, from a pronouncing dictionary in the form of CMUdict
    #[arg(long, value_name = "FILE", conflicts_with_all = ["train", "predict"])]
    cmudict: Option<PathBuf>,
    /// Read and write the texts of --train character by character, not in words and marks
    #[arg(long, requires = "train")]
    characters: bool,
    /// How many translations are followed side by side; 1 for always the likeliest token
    #[arg(long, value_name = "WIDTH", default_value_t = 4, value_parser = flags::positive::<usize>, allow_negative_numbers = true)]
    beam: usize,
    /// How often the decoder is given, in training, its own likeliest token instead of the right one, from 0 to below 1
    /// [default: 0.1; of words 0, as it takes longer the more of them there are]
    #[arg(long, value_name = "SHARE", allow_negative_numbers = true, conflicts_with = "predict")]
    scheduled_sampling: Option<f64>,
}

/// What a model is like, by what it learns.
#[derive(Debug, Clone, Copy)]
struct Settings {
    /// How sources and targets are cut.
    cut: [fn() -> Tokenizer; 2],
    /// Numbers of a token's vector, of a state, and layers that read.
    width: usize,
    hidden: usize,
    layers: usize,
    dropout: f64,
    /// How often the decoder's own token is given.
    own: f64,
    smoothing: f64,
    rate: f64,
    epochs: u64,
    /// Sources a batch.
    batch: usize,
    /// How often a token occurs that is known, and how many there are at most.
    limits: (u64, usize),
}

const DATES: Settings = Settings {
    cut: [Tokenizer::characters; 2],
    width: 48,
    hidden: 96,
    layers: 1,
    dropout: 0.1,
    own: 0.1,
    smoothing: 0.05,
    rate: 4e-3,
    epochs: 6,
    batch: 64,
    limits: (1, usize::MAX),
};
const SPELLING: Settings = Settings {
    cut: [Tokenizer::characters, Tokenizer::whitespace],
    width: 128,
    hidden: 256,
    layers: 2,
    dropout: 0.25,
    smoothing: 0.1,
    rate: 2e-3,
    epochs: 12,
    ..DATES
};
const TEXT: Settings = Settings {
    cut: [Tokenizer::characters; 2],
    width: 64,
    hidden: 256,
    dropout: 0.2,
    rate: 2e-3,
    ..SPELLING
};
const WORDS: Settings = Settings {
    cut: [Tokenizer::pieces; 2],
    width: 256,
    layers: 1,
    dropout: 0.3,
    own: 0.0,
    epochs: 8,
    limits: (2, 12_000),
    ..SPELLING
};

/// What there is to learn.
struct Task {
    settings: Settings,
    sources: Vocabulary,
    targets: Vocabulary,
}

impl Task {
    fn new(settings: Settings, train: &Pairs) -> Result<Self> {
        let (min_count, max_size) = settings.limits;
        let unknown = Vocabulary::UNKNOWN;
        let limits = |specials: &[&str]| Limits {
            min_count,
            max_size,
            specials: specials.iter().map(|&special| special.to_owned()).collect(),
            base: None,
        };
        let [from, to] = &settings.cut.map(|cut| cut());
        Ok(Task {
            sources: train.sources(from, &limits(&[unknown]))?,
            targets: train.targets(to, &limits(&[ENDS[0], ENDS[1], unknown]))?,
            settings,
        })
    }

    fn loader(&self, pairs: &Pairs) -> Result<Loader> {
        let [from, to] = &self.settings.cut.map(|cut| cut());
        let loader = pairs.loader(FEEDS, [from, to], [&self.sources, &self.targets], ENDS)?;
        Ok(loader.batching(Batching::Sequences(self.settings.batch)))
    }

    /// Source tokens -> vectors -> GRUs from both ends -> their states, which a GRU looks at while it writes.
    fn network(&self, steps: usize, seed: u64) -> Result<Trainer> {
        let Settings { width, hidden, layers, dropout, own, smoothing, rate, .. } = self.settings;
        let net = Builder::new().seed(seed);
        let source = net.feed(FEEDS[0], DType::I64, &[], 1);
        let given = net.feed(FEEDS[1], DType::I64, &[], 1); // as many as there are sources, of other lengths
        let next = net.feed_like(FEEDS[2], DType::I64, &[], given);

        let x = source.embedding(Embedding::new(self.sources.len(), width).sparse()).dropout(dropout);
        let encoder = Stacked::new(Gru::new(hidden), layers).bidirectional().dropout(dropout);
        let states = x.stacked(encoder).dropout(dropout);
        // Computed once: what is looked for, and what is found.
        let (keys, values) = (states.linear(hidden), states.linear(hidden));
        let start = states.sequence_pool(Pool::Mean).linear(hidden).tanh();

        // Tokens are read and said by the same vectors (Press and Wolf, "Using the output embedding to improve language models", 2017).
        let table = net.layer(Embedding::new(self.targets.len(), width));
        let read = net.layer(Linear::new(width));
        let say = net.layer(Linear::tied(&table));
        let query = net.layer(Linear::new(hidden).without_bias());
        let bound = 1.0 / (hidden as f64).sqrt();
        let score = net.parameter("score", DType::F32, &[hidden], init::uniform(-bound, bound));
        let [of_token, of_context, of_state] = [true, false, true].map(|bias| {
            let gates = Linear::new(3 * hidden);
            net.layer(if bias { gates } else { gates.without_bias() })
        });
        // One step: from the state and the vector of the token before to the next state, and what is said with it.
        let advance = |step: &Step, before: Var, y: Var| {
            let context = query.of(before).additive_attention(keys, values, score);
            let from_input = of_token.of(y) + of_context.of(context);
            let h = step.gru_cell(from_input, of_state.of(before), before, UpdateGate::Keeps);
            step.update(before, h);
            (h, context)
        };
        let logits = |at: &Builder, h: Var, context: Var, y: Var| {
            say.of(read.of(at.concat(&[h, context, y])).tanh().dropout(dropout))
        };
        let y = table.of(given);
        let logits = if own > 0.0 {
            // Scheduled sampling (S. Bengio, Vinyals, Jaitly, Shazeer, 2015): at times what is given is the token that was likeliest at
            // the step before. Where nothing is trained, dropout leaves all as it is.
            let right = y.slice(0..1).fill_like(1.0).dropout(own);
            net.recurrent((y.dropout(dropout), right), |step, (y, right)| {
                let (before, own) = (step.memory_from(start), step.memory_of(DType::I64, &[]));
                let y = right.select(y, table.of(own));
                let (h, context) = advance(step, before, y);
                let logits = logits(step, h, context, y);
                step.update(own, logits.argmax());
                logits
            })
        } else {
            // What is said leaves the loop: one product for all steps.
            let y = y.dropout(dropout);
            let (h, context) = net.recurrent(y, |step, y| advance(step, step.memory_from(start), y));
            logits(&net, h, context, y)
        };
        let smoothed = CrossEntropy { label_smoothing: smoothing, ..CrossEntropy::default() };
        let losses = logits.cross_entropy_with(next, smoothed).0;
        let adam = Adam::new(rate).lazy().clip_global_norm(1.0);
        let adam = adam.schedule(Schedule::cosine_to(steps, rate / 20.0));
        let [from, to] = self.settings.cut.map(|cut| cut().name());
        let trainer = Trainer::new(net, losses.mean(), &adam)?
            .metric(Loss::new(losses))
            .output("logits", logits)
            .note("sources are cut in", from)
            .note("targets are cut in", to);
        Ok(trainer.vocabulary("sources", self.sources.clone()).vocabulary("targets", self.targets.clone()))
    }
}

/// A trained model that translates.
struct Translator {
    predictor: Predictor,
    generator: Generator,
    cut: [Tokenizer; 2],
    beam: usize,
}

/// How close translations come, in percent.
struct Score {
    exact: f64,
    bleu: f64,
}

impl Translator {
    fn new(predictor: Predictor, beam: usize) -> Result<Self> {
        let cut = |side: &str| Tokenizer::from_name(predictor.note(side).unwrap_or_default());
        let cut = [cut("sources are cut in")?, cut("targets are cut in")?];
        let generator = predictor.generator(FEEDS[1], "logits")?;
        Ok(Self { predictor, generator, cut, beam })
    }

    /// What each text becomes.
    fn translate(&self, texts: &[&str]) -> Result<Vec<String>> {
        Ok(self.written(texts)?.into_iter().map(|(text, _)| text).collect())
    }

    /// The same, and whether it ended before the limit of its tokens.
    fn written(&self, texts: &[&str]) -> Result<Vec<(String, bool)>> {
        let (sources, targets) =
            (self.predictor.vocabulary("sources")?, self.predictor.vocabulary("targets")?);
        let ids = |text: &&str| sources.ids(self.cut[0].tokens(text));
        let ids: Vec<Vec<i64>> = texts.iter().map(ids).collect::<Result<_>>()?;
        // Those of similar lengths together, as they end together; none gets longer than its own length allows.
        let most = |i: &usize| (2 * ids[*i].len() + 20).next_multiple_of(32).min(MOST_TOKENS);
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&i| ids[i].len());
        let mut found = vec![(String::new(), true); texts.len()];
        for alike in order.chunk_by(|a, b| most(a) == most(b)).flat_map(|alike| alike.chunks(SOURCES)) {
            let fed = alike.iter().map(|&i| ids[i].clone()).collect::<Vec<_>>();
            let fed = Variable::from_sequences(&fed)?;
            let feeds = [(FEEDS[0], &fed)];
            let most = alike.first().map_or(0, most);
            let options = Generation::new(START).stop(STOP).max_steps(most).banned([START, UNKNOWN]);
            let generated = match self.beam {
                1 => self.generator.greedy(&feeds, &options)?,
                width => self.generator.beam(&feeds, &options, &Beam::new(width).length(LENGTH_PENALTY))?,
            };
            for (&i, best) in alike.iter().zip(generated.best()?) {
                let (ids, ended) = best.map_or((&[][..], true), |best| (best.tokens, best.stopped));
                let tokens = ids.iter().map(|&id| targets.token(id).unwrap_or_default());
                found[i] = (self.cut[1].join(tokens), ended);
            }
        }
        Ok(found)
    }

    /// How many sources become one of their targets, and BLEU against all of these.
    fn score(&self, pairs: &Pairs) -> Result<Score> {
        let sources = pairs.by_source();
        let texts: Vec<&str> = sources.iter().map(|(source, _)| *source).collect();
        let (mut exact, mut bleu) = (0, Bleu::of_texts());
        for (found, (_, targets)) in self.translate(&texts)?.iter().zip(&sources) {
            let spaced = |text: &str| self.cut[1].join(self.cut[1].tokens(text));
            exact += usize::from(targets.iter().any(|target| spaced(target) == *found));
            bleu.texts_of_several(found, targets);
        }
        Ok(Score { exact: 100.0 * exact as f64 / sources.len() as f64, bleu: 100.0 * bleu.value() })
    }
}

/// The remainder of a text's SHA-256, read as one number with the first byte in front, in a division: others can make the same parts.
fn rest_of_sha256(text: &str, by: u64) -> u64 {
    Sha256::digest(text).iter().fold(0, |rest, &byte| (rest * 256 + u64::from(byte)) % by)
}

/// What to train on, to choose by and to test on.
fn read(Cli { flags, cmudict, characters, .. }: &Cli) -> Outcome<(Settings, [Pairs; 3])> {
    if let Some(path) = cmudict {
        let dictionary = ReadOptions::new().format(FileFormat::Dictionary);
        let parts = Pairs::open_with([path], &dictionary)?.divide_by(|pair| rest_of_sha256(&pair.source, 20));
        return Ok((SPELLING, parts));
    }
    let Some(train) = &flags.train else {
        let of = |seed, count, part| Pairs::new("made-up dates", dates(seed, count, part));
        let parts = [of(1, 12_000, Part::Train), of(2, 1_000, Part::Dev), of(3, 2_000, Part::Test)];
        return Ok((DATES, parts));
    };
    let train = Pairs::open(train)?;
    let most = (train.records().len() / 10).min(2_000);
    let part = |path: &Option<PathBuf>, train: Pairs, seed| match path {
        Some(path) => Ok::<_, unpadded::Error>((train, Pairs::open(path)?)),
        None => Ok(train.hold_out_pairs(most, seed)),
    };
    let (train, test) = part(&flags.test, train, flags.seed)?;
    let (train, dev) = part(&flags.dev, train, flags.seed.wrapping_add(1))?;
    Ok((if *characters { TEXT } else { WORDS }, [train, dev, test]))
}

fn run(cli: &Cli) -> Outcome<()> {
    let Cli { flags, beam, .. } = cli;
    if let Some(predictor) = flags.predictor(MODEL)? {
        let translator = Translator::new(predictor, *beam)?;
        return flags::answer(|line| {
            let mut said = String::new();
            for (text, ended) in translator.written(&[line])? {
                if !ended {
                    flags::say("the next line had not ended when the limit of its tokens was reached");
                }
                said += &text;
            }
            Ok(said)
        });
    }
    let (mut settings, [train, dev, test]) = read(cli)?;
    settings.own = cli.scheduled_sampling.unwrap_or(settings.own);
    if !(0.0..1.0).contains(&settings.own) {
        return Err(format!("--scheduled-sampling: expected 0 to below 1, got {}", settings.own).into());
    }
    if test.records().is_empty() {
        return Err(format!("{}: expected at least one pair to test on, got none", test.name()).into());
    }
    let task = Task::new(settings, &train)?;
    let (count, sources, targets) = (train.records().len(), task.sources.len(), task.targets.len());
    flags::print(format!(
        "{}: {count} pairs, {sources} source tokens, {targets} target tokens",
        train.name()
    ))?;
    let (batches, held) = (task.loader(&train)?.shuffle(flags.seed).prefetch(4), task.loader(&dev)?);
    let steps =
        (flags.epochs.unwrap_or(settings.epochs) as usize).saturating_mul(count.div_ceil(settings.batch));
    let trainer = task.network(steps, flags.seed)?;
    let Some((_, report)) = flags.fit(MODEL, trainer, (&batches, &held), settings.epochs)? else {
        return Ok(());
    };
    let predictor = flags::load(&flags.save(MODEL), MODEL)?;
    let mut translator = Translator::new(predictor, 1)?;
    let greedy = translator.score(&test)?;
    translator.beam = *beam;
    let Score { exact, bleu } = translator.score(&test)?;
    let shown: Vec<_> = test.by_source().into_iter().take(5).collect();
    let sources: Vec<&str> = shown.iter().map(|(source, _)| *source).collect();
    for ((source, targets), found) in shown.iter().zip(translator.translate(&sources)?) {
        flags::print(format!("\n{source}\n  becomes {found}\n  is      {}", targets.join(" | ")))?;
    }
    let with = "in the best epoch, chosen on other sources";
    flags::print(format!("\ngreedy: {:.2} % exact, BLEU {:.2} ({with})", greedy.exact, greedy.bleu))?;
    flags::print(format!("beam of {beam}: {exact:.2} % exact, BLEU {bleu:.2}"))?;
    let by_words = flags.train.is_some() && !cli.characters;
    let (metric, value, more) = match (&cli.cmudict, by_words) {
        (Some(_), _) => (
            "test_word_error_rate",
            100.0 - exact,
            vec![("test_word_error_rate_greedy", 100.0 - greedy.exact)],
        ),
        (None, true) => ("test_bleu", bleu, vec![("test_bleu_greedy", greedy.bleu), ("test_exact", exact)]),
        (None, false) => {
            ("test_exact", exact, vec![("test_exact_greedy", greedy.exact), ("test_bleu", bleu)])
        }
    };
    flags.conclude(&Found { model: MODEL, dataset: train.name(), metric, value, more: &more }, &report)
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse()))
}

#[test]
fn it_learns_and_translates() -> Outcome<()> {
    let of = |(source, target): (&str, &str)| unpadded::data::Pair {
        source: source.into(),
        target: target.into(),
    };
    let lines = [("a b c", "C b, a"), ("b c", "C b"), ("c a", "A c"), ("a", "A"), ("b b a", "A b, b")];
    let pairs = Pairs::new("some", lines.map(of));
    let path = std::env::temp_dir().join(format!("unpadded-translate-{}.ckpt", std::process::id()));
    for (cut, own) in [(Tokenizer::characters as fn() -> Tokenizer, 0.2), (Tokenizer::pieces, 0.0)] {
        let settings = Settings { cut: [cut; 2], hidden: 32, own, dropout: 0.0, rate: 1e-2, ..DATES };
        let task = Task::new(settings, &pairs)?;
        let trainer = task.network(120, 1)?.progress(unpadded::train::Progress::Quiet);
        let (mut trainer, data) = (trainer.checkpoint(&path), task.loader(&pairs)?);
        let before = trainer.evaluate(&data)?.loss();
        trainer.fit(&data, &data, unpadded::train::Until::Epochs(120))?;
        assert!(trainer.evaluate(&data)?.loss() < before / 2.0);
        for beam in [1, 3, 100] {
            let translator = Translator::new(Predictor::load(&path)?, beam)?;
            let Score { exact, bleu } = translator.score(&pairs)?;
            assert!(exact == 100.0 && bleu > 99.9, "{:?}, {beam}: {exact}, {bleu}", cut());
            // Alone and together, with what was never seen, with nothing, and with more than there ever was.
            let long = "a b ".repeat(60);
            let texts = ["a", "", "Zebras!", "b c", &long];
            let found = translator.translate(&texts)?;
            assert_eq!((found[0].as_str(), found[3].as_str()), ("A", "C b"));
            for (text, found) in texts.iter().zip(&found) {
                assert_eq!(translator.translate(&[text])?, [found.as_str()], "{text}");
            }
        }
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

#[test]
fn dates_come_in_many_forms() -> Outcome<()> {
    let task = Task::new(DATES, &Pairs::new("dates", dates(1, 500, Part::Train)))?;
    let dates = Pairs::new("dates", dates(1, 60, Part::Train));
    let mut trainer = task.network(100, 1)?.progress(unpadded::train::Progress::Quiet);
    let data = task.loader(&dates)?;
    let before = trainer.evaluate(&data)?.loss();
    trainer.fit(&data, &data, unpadded::train::Until::Epochs(10))?;
    assert!(trainer.evaluate(&data)?.loss() < before / 1.2);
    Ok(())
}

/// By sums that `sha256sum` made.
#[cfg(test)]
#[test]
fn parts_are_by_the_sum_as_one_number() {
    for (rests, words) in [
        (2..20, ["aaberg", "aachen", "aachener"]),
        (1..2, ["aancor", "abbreviates", "abeyta"]),
        (0..1, ["abadie", "abdicated", "abhorred"]),
    ] {
        assert!(words.iter().all(|word| rests.contains(&rest_of_sha256(word, 20))), "{words:?}");
    }
}
