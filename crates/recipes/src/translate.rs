//! Translation: GRUs read the source text in both directions, and another GRU writes the target text, with attention to
//! the source states at each step (Bahdanau, Cho, Bengio, "Neural machine translation by jointly learning to align and
//! translate", 2015).

use unpadded::data::{Loader, TokenCounts, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Gru, Linear, Stacked, init};
use unpadded::metrics::{Loss, Unit};
use unpadded::ops::{Pool, UpdateGate};
use unpadded::predict::{Beam, Generation, Generator, Hypothesis, Predictor};
use unpadded::program::Step;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, Result, Var, Variable};
use unpadded_text::{Pair, Pairs, Passes, QuestionKind, are_pronunciations};

use super::answer::Answer;
use super::answer_batch::AnswerBatch;
use super::config::Config;
use super::evaluation::{EachOutcome, Evaluation};
use super::net;
use super::preview::Preview;
use super::recipe::{AnsweringModel, RecordModel, TestFile};
use super::sections::{DecodingConfig, TextConfig, Tokens};
use super::started::Table;
use super::text_scores::TextScores;
use super::texts::Texts;
use super::training::{
    CUT, Case, Column, HeldOutTexts, Paths, Preparation, READ_AS, TARGET_CUT, Truth, both, cut_of,
    of_training, one_in, options, read_as, read_otherwise, target_tokenizer, tokenizer,
};

pub(super) const FEEDS: [&str; 3] = ["source", "given", "next"];
/// The special tokens at the start and at the end of a target text.
pub(super) const ENDS: [&str; 2] = ["<s>", "</s>"];
/// Maximum number of tokens in a translation, however long the source text is.
const MOST_TOKENS: usize = 1024;
/// Maximum number of source texts that are translated as one batch.
const SOURCES: usize = 64;

/// The functions that set columns in the read options: `data.text` names the column of the source, and `data.label`
/// names the column of the target.
const COLUMNS: [Column; 2] = [|o, column| o.source(column), |o, column| o.target(column)];
/// The names of the vocabulary of source tokens and of the vocabulary of target tokens.
pub(super) const KNOWN: [&str; 2] = ["sources", "targets"];
/// The parameters with a row per entry of a vocabulary. The function `prepare` reads entry 0 (the source token vectors)
/// and entry 1 (the target token vectors) of this list.
const TABLES: [Table; 3] = [
    Table::new("sources.weight", KNOWN[0], &[0]),
    Table::new("targets.weight", KNOWN[1], &[0]),
    Table::new("written.bias", KNOWN[1], &[0]),
];
/// The name of the output with the logits of the next target token.
const LOGITS: &str = "logits";

fn loader(
    pairs: &Texts<Pair>,
    cuts: [&Tokenizer; 2],
    known: [&Vocabulary; 2],
    config: &Config,
) -> Result<Loader> {
    let loader = match pairs {
        Texts::Held(pairs) => pairs.loader(FEEDS, cuts, known, ENDS)?,
        Texts::InFiles(files, _) => files.loader(FEEDS, cuts, known, ENDS)?,
    };
    Ok(pairs.batches(loader, config))
}

/// A function that is called once per window, with the pairs of the window.
type EachWindow<'a> = &'a mut dyn FnMut(&Pairs) -> Result<()>;

/// A collector of pairs in windows of at most 65,536 pairs; the size of a window limits the memory. Pairs with equal
/// sources are grouped only within a window.
#[derive(Default)]
struct BySource {
    window: Vec<Pair>,
    windows: usize,
}

impl BySource {
    const MOST: usize = 1 << 16;

    /// Adds a pair; when the window is full, its pairs are passed to `each`.
    fn add(&mut self, pair: Pair, each: EachWindow<'_>) -> Result<()> {
        self.window.push(pair);
        if self.window.len() < Self::MOST { Ok(()) } else { self.end(each) }
    }

    /// Passes the pairs in the window to `each`, and begins a new window.
    fn end(&mut self, each: EachWindow<'_>) -> Result<()> {
        let pairs = Pairs::new("window", std::mem::take(&mut self.window));
        self.windows += usize::from(!pairs.records().is_empty());
        each(&pairs)
    }

    /// Returns a message that equal sources are grouped only within windows; `None` if there was only one window.
    fn said(&self) -> Option<String> {
        (self.windows > 1).then(|| {
            format!("pairs with equal sources are grouped only within blocks of {} pairs", Self::MOST)
        })
    }
}

const PRONUNCIATIONS: &str = "words and their phonemes: tokens are `characters`, target tokens `whitespace`; `text.tokens` and `text.target_tokens` set other tokens";

/// Returns a copy of the config that sets the tokens for pronunciations: characters of the word, and phonemes separated
/// by white space. Returns `None` if the pairs are not words with their phonemes, or if the config sets tokens or a
/// tokenizer.
fn spoken(config: &Config, pairs: &Texts<Pair>) -> Result<Option<Config>> {
    let TextConfig { tokens: None, target_tokens: None, tokenizer: None, .. } = config.text else {
        return Ok(None);
    };
    const LOOKED_AT: usize = 1_000;
    let first: Vec<Pair> = pairs.records().take(LOOKED_AT).collect::<Result<_>>()?;
    Ok(are_pronunciations(&first).then(|| {
        let (tokens, target_tokens) = (Some(Tokens::Characters), Some(Tokens::Whitespace));
        Config { text: TextConfig { tokens, target_tokens, ..config.text.clone() }, ..config.clone() }
    }))
}

/// Builds the network of a translator. Returns the logits, the feed of the right target tokens and, if `attends` is
/// set, the operands of attention: the queries (one per written token), the keys (one per source token), and the score
/// vector.
pub(super) fn layers(
    net: &Builder,
    config: &Config,
    [sources, targets]: [&Vocabulary; 2],
    attends: bool,
) -> (Var, Var, Option<[Var; 3]>) {
    let model = &config.model;
    let (hidden, dropout) = (model.hidden, model.dropout);
    let source = net.feed(FEEDS[0], DType::I64, &[], 1);
    let given = net.feed(FEEDS[1], DType::I64, &[], 1); // one sequence per source, of another length
    let next = net.feed_like(FEEDS[2], DType::I64, &[], given);

    let x = net::dropped(source.embedding(net::table(sources.len(), "sources", config)), model);
    let reader = Gru::new(hidden).recurrent_dropout(model.recurrent_dropout);
    let states = x.stacked(Stacked::new(reader, model.layers).bidirectional().dropout(dropout));
    let states = states.dropout(dropout);
    // The keys and values of the attention are computed once per source text, not in each step.
    let (keys, values) = (states.linear(hidden), states.linear(hidden));
    let start = states.sequence_pool(Pool::Mean).linear(hidden).tanh();

    // The same vectors of target tokens are used to read tokens and to predict them (Press and Wolf, "Using the output
    // embedding to improve language models", 2017).
    let table = net.layer(Embedding::new(targets.len(), model.embedding).named(KNOWN[1]));
    let say = net.layer(Linear::tied(&table).named("written"));
    let query = net.layer(Linear::new(hidden).without_bias());
    let bound = 1.0 / (hidden as f64).sqrt();
    let score = net.parameter("score", DType::F32, &[hidden], init::uniform(-bound, bound));
    let [of_token, of_context, of_state] = [true, false, true].map(|bias| {
        let gates = Linear::new(3 * hidden);
        net.layer(if bias { gates } else { gates.without_bias() })
    });
    let y = net::dropped(table.of(given), model);
    let step = |step: &Step, y: Var| {
        let before = step.memory_from(start);
        let wanted = query.of(before);
        let context = wanted.additive_attention(keys, values, score);
        let from_input = of_token.of(y) + of_context.of(context);
        let h = step.gru_cell(from_input, of_state.of(before), before, UpdateGate::Keeps);
        step.update(before, h);
        (h, context, wanted)
    };
    let (h, context, attention) = if attends {
        let (h, context, wanted) = net.recurrent(y, step);
        (h, context, Some([wanted, keys, score]))
    } else {
        let (h, context) = net.recurrent(y, |at, y| {
            let (h, context, _) = step(at, y);
            (h, context)
        });
        (h, context, None)
    };
    let logits = say.of(net.concat(&[h, context, y]).linear(model.embedding).tanh().dropout(dropout));
    (logits, next, attention)
}

fn network(config: &Config, known: [&Vocabulary; 2], texts: usize) -> Result<Trainer> {
    let net = Builder::new().seed(config.run.seed);
    let (logits, next, _) = layers(&net, config, known, false);
    let plain = logits.cross_entropy(next);
    let losses = net::smoothed(logits, next, config).unwrap_or(plain);
    let trainer = net::trainer(net, losses.mean(), config, net::steps(config, texts))?;
    Ok(trainer.metric(Loss::perplexity(plain)).output(LOGITS, logits))
}

/// A trained translator.
pub(super) struct Translator {
    generator: Generator,
    cut: Tokenizer,
    target_cut: Tokenizer,
}

impl AnsweringModel for Translator {
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]> {
        Some([&self.cut, &self.target_cut])
    }

    /// A batch is small, because the memory of the model grows with all words or characters of a batch.
    fn batch(&self) -> AnswerBatch {
        AnswerBatch::of_bytes(1 << 13)
    }

    /// Translates each text by beam search with the settings in `how`.
    fn answers(&self, by: &Predictor, texts: &[&str], how: &DecodingConfig) -> Result<Vec<Answer>> {
        let (sources, targets) = (by.vocabulary(KNOWN[0])?, by.vocabulary(KNOWN[1])?);
        let ids: Vec<Vec<i64>> =
            texts.iter().map(|text| sources.ids(self.cut.tokens(text))).collect::<Result<_>>()?;
        // Source texts of similar lengths are translated as a batch, because their translations end after a similar
        // number of steps. The maximum number of tokens in a translation depends on the length of the source text.
        let most = |i: &usize| (2 * ids[*i].len() + 20).next_multiple_of(32).min(MOST_TOKENS);
        let mut order: Vec<usize> = (0..texts.len()).collect();
        order.sort_by_key(|&i| ids[i].len());
        let [start, stop] = [targets.special(ENDS[0])?, targets.special(ENDS[1])?];
        let banned: Vec<i64> = [start].into_iter().chain(targets.unknown()).collect();
        let DecodingConfig { beam, length_penalty, n_best, scores, .. } = *how;
        let beam = Beam::new(beam).n_best(n_best).length(length_penalty);
        let mut found = vec![Vec::new(); texts.len()];
        for alike in order.chunk_by(|a, b| most(a) == most(b)).flat_map(|alike| alike.chunks(SOURCES)) {
            let fed = alike.iter().map(|&i| ids[i].clone()).collect::<Vec<_>>();
            let fed = Variable::from_sequences(&fed)?;
            let most = alike.first().map_or(0, most);
            let options = Generation::new(start).stop(stop).max_steps(most).banned(banned.clone());
            let generated = self.generator.beam(&[(FEEDS[0], &fed)], &options, &beam)?;
            for (source, &i) in alike.iter().enumerate() {
                let text = |one: &Hypothesis<'_>| {
                    let tokens = one.tokens.iter().map(|&id| targets.token(id).unwrap_or_default());
                    (self.target_cut.join(tokens), one.score)
                };
                found[i] = generated.hypotheses(source)?.iter().map(text).collect();
            }
        }
        let answer = |mut best: Vec<(String, f64)>| match n_best > 1 || scores {
            true => Answer::Ranked(best),
            false => Answer::Text(if best.is_empty() { String::new() } else { best.swap_remove(0).0 }),
        };
        Ok(found.into_iter().map(answer).collect())
    }
}

impl RecordModel for Translator {
    type Record = Pair;
    const ASKING: QuestionKind = QuestionKind::Source;
    const COLUMNS: [Column; 2] = COLUMNS;
    const TABLES: &'static [Table] = &TABLES;

    fn line(of: &Pair) -> String {
        format!("source {}, target {}", Preview::cut(&of.source), Preview::cut(&of.target))
    }

    fn prepare(config: &Config, paths: Paths) -> Result<Preparation> {
        let Paths { train: Some(path), dev, test, from, memory, .. } = paths else {
            let expected = "a file with lines of source<TAB>target";
            return Err(Error::new("data.train", expected, "none: no translations come with the program"));
        };
        let train = Texts::<Pair>::open(path, (config, memory), &options(config, COLUMNS)?)?;
        // The other parts of the data set are read with the options that were detected in the training texts.
        let like = train.read_as().clone();
        let given = dev.is_some();
        let (train, dev) = match &dev {
            Some(dev) => {
                let dev = Texts::open(dev, (config, memory), train.read_as())?;
                (train, dev)
            }
            // At most about 2,000 pairs are held out, since translations of more pairs would take long to evaluate after
            // each epoch.
            None => {
                let one_in = one_in(config).max(train.count()? as u64 / 2_000);
                train.hold_out(one_in, config)
            }
        };
        let spoken = spoken(config, &train)?;
        let said_of_tokens = spoken.as_ref().map(|_| PRONUNCIATIONS.to_owned());
        let config = spoken.as_ref().unwrap_or(config);
        let (cut, target_cut) = (tokenizer(config)?, target_tokenizer(config)?);
        from.same_cut(CUT, &cut)?;
        from.same_cut(TARGET_CUT, &target_cut)?;
        let (mut lengths, mut known) = (Vec::new(), TokenCounts::default());
        let [mut of_sources, mut of_targets] = [(); 2].map(|()| TokenCounts::default());
        train.each(&mut |pair| {
            let tokens = cut.tokens(&pair.source).inspect(|token| of_sources.add(token));
            lengths.push(tokens.count());
            target_cut.tokens(&pair.target).for_each(|token| of_targets.add(&token));
        })?;
        let (mut held_out, mut by_source, mut dev_pairs) = (HeldOutTexts::default(), BySource::default(), 0);
        let mut shown = |pairs: &Pairs| {
            for (source, targets) in pairs.by_source() {
                let truth = || Truth::Texts(targets.iter().map(|&target| target.to_owned()).collect());
                held_out.add(|| Case { text: source.to_owned(), truth: truth() });
            }
            Ok(())
        };
        let mut wrong = Ok(());
        dev.each(&mut |pair| {
            dev_pairs += 1;
            cut.tokens(&pair.source).for_each(|token| known.add(&token));
            if wrong.is_ok() {
                wrong = by_source.add(pair.clone(), &mut shown);
            }
        })?;
        wrong.and_then(|()| by_source.end(&mut shown))?;
        both([(train.name(), lengths.len()), (dev.name(), dev_pairs)])?;
        let limits = from.grows(net::limits(config, &[Vocabulary::UNKNOWN]), &TABLES[0]);
        let sources =
            net::known(train.vocabulary(of_sources, (config, &cut, &limits), |pair| &pair.source), config)?;
        let limits = from.grows(net::limits(config, &[ENDS[0], ENDS[1], Vocabulary::UNKNOWN]), &TABLES[1]);
        let targets = net::known(
            train.vocabulary(of_targets, (config, &target_cut, &limits), |pair| &pair.target),
            config,
        )?;
        let loader = |pairs: &Texts<Pair>| loader(pairs, [&cut, &target_cut], [&sources, &targets], config);
        let (of_train, of_dev) = (of_training(loader(&train)?, config), loader(&dev)?);
        let of_memory = Some(&dev).filter(|_| given).and_then(|dev| dev.said_of_memory(&of_dev, memory));
        let of_memory = train.said_of_memory(&of_train, memory).into_iter().chain(of_memory);
        let trainer = network(config, [&sources, &targets], lengths.len())?;
        let trainer =
            trainer.note(CUT, cut.name()).note(TARGET_CUT, target_cut.name()).note(READ_AS, like.to_note());
        let coverage = known.coverage(&sources);
        let apart = if given { "" } else { ", none of whose sources is in the training pairs" };
        let different = if held_out.count == dev_pairs {
            String::new()
        } else {
            format!(", of {} different sources", held_out.count)
        };
        let said = format!(
            "{}: {} pairs, {} source tokens and {} target tokens known; {dev_pairs} held out{different}{apart}",
            train.name(),
            lengths.len(),
            sources.len(),
            targets.len(),
        );
        let others = Some(&dev).filter(|_| given);
        let others = others.and_then(|of| read_otherwise(&of.name(), of.read_as(), train.read_as()));
        // With label smoothing, the reported perplexity is not the exponential of the training loss, so a line for people
        // states the difference.
        let rate = config.label_smoothing();
        let smoothed =
            (rate > 0.0).then(|| format!("loss is with label smoothing of {rate}, perplexity without"));
        Ok(Preparation {
            trainer: trainer.vocabulary(KNOWN[0], sources).vocabulary(KNOWN[1], targets),
            train: Box::new(of_train),
            dev: Box::new(of_dev),
            test,
            name: train.name().into_owned(),
            metric: "perplexity",
            coverage,
            lengths,
            held_out,
            said: [said]
                .into_iter()
                .chain(read_as(train.read_as()))
                .chain(said_of_tokens)
                .chain(smoothed)
                .chain(others)
                .chain(of_memory)
                .collect(),
        })
    }

    fn load(predictor: &Predictor, _: &Config) -> Result<Self> {
        let (cut, target_cut) = (cut_of(predictor, CUT)?, cut_of(predictor, TARGET_CUT)?);
        Ok(Self { generator: predictor.generator(FEEDS[1], LOGITS)?, cut, target_cut })
    }

    fn adds(&self, _: &Predictor, decoding: &DecodingConfig) -> Vec<String> {
        let name = |name: &str, place: usize| match place {
            1 => name.to_owned(),
            _ => format!("{name} {place}"),
        };
        let of = |place| match decoding.n_best > 1 || decoding.scores {
            true => vec![name("translation", place), name("score", place)],
            false => vec![name("translation", place)],
        };
        (1..=decoding.n_best).flat_map(of).collect()
    }

    fn loader(&self, file: &TestFile<'_>, pairs: &Texts<Pair>) -> Result<Loader> {
        let known = [file.known.vocabulary(KNOWN[0])?, file.known.vocabulary(KNOWN[1])?];
        loader(pairs, [&self.cut, &self.target_cut], known, file.config)
    }

    fn scored(
        &self,
        by: &Predictor,
        file: &TestFile<'_>,
        pairs: Texts<Pair>,
        each: EachOutcome<'_>,
    ) -> Result<Evaluation> {
        // Only the best translation of each source text is scored.
        let decoding = DecodingConfig { n_best: 1, scores: false, ..file.config.decoding.clone() };
        let mut scores = TextScores::new([&self.cut, &self.target_cut]);
        let (mut by_source, mut count) = (BySource::default(), 0);
        let mut scored = |pairs: &Pairs| {
            let mut sources = pairs.by_source().into_iter().map(Ok);
            self.batch().divide(&mut sources, &|(source, _)| source.len(), &mut |part| {
                let sources: Vec<&str> = part.iter().map(|(source, _)| *source).collect();
                let found = self.answers(by, &sources, &decoding)?;
                for ((source, targets), found) in part.iter().zip(found) {
                    scores.add(source, targets, &found.to_string(), each);
                }
                Ok(())
            })
        };
        pairs.in_batches(self.batch(), &|pair| pair.source.len(), &mut |part| {
            count += part.len() as u64;
            part.iter().try_for_each(|(_, pair)| by_source.add(pair.clone(), &mut scored))
        })?;
        by_source.end(&mut scored)?;
        // The perplexity is computed over all target tokens, without the label smoothing of the training loss.
        let perplexity = by.evaluate(&self.loader(file, &pairs)?)?.get("perplexity");
        let mut scored = scores.end().with_loss(perplexity.map(f64::ln));
        if let Some(perplexity) = perplexity {
            scored = scored.with("perplexity", Unit::Number, perplexity);
        }
        scored.counts.push(("pairs", count));
        Ok(Evaluation { said: by_source.said().into_iter().collect(), ..scored })
    }
}
