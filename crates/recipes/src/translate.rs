//! Translation: GRUs read the source text in both directions, another GRU writes the target text, with attention to the source states
//! (Bahdanau, Cho, Bengio, "Neural machine translation by jointly learning to align and translate", 2015).

use std::borrow::Cow;

use unpadded::data::{Loader, TokenCounts, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Gru, Linear, Stacked, init};
use unpadded::metrics::{Loss, Unit};
use unpadded::ops::{Pool, UpdateGate};
use unpadded::predict::{Beam, Generation, Generator, Hypothesis, Predictor};
use unpadded::program::Step;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, Result, Var, Variable};
use unpadded_text::{Pair, Pairs, QuestionKind, are_pronunciations};

use super::answer::{Answer, AnswerBatch};
use super::config::Config;
use super::evaluation::{EachOutcome, Evaluation};
use super::net;
use super::portions::{Portion, RecordAnswers};
use super::prepare::{FirstRecords, RecordCounts, TaskNetwork, TaskSurvey, TrainingTexts, prepare};
use super::recipe::{AnsweringModel, Preview, RecordModel, TestFile};
use super::sections::{DecodingConfig, TextConfig, Tokens, label_smoothing};
use super::started::{Origin, Table};
use super::text_scores::TextScores;
use super::texts::Texts;
use super::training::{
    Case, Column, Paths, Preparation, TARGET_TOKENIZER_NOTE, TOKENIZER_NOTE, Truth, one_in, target_tokenizer,
    tokenizer, tokenizer_of,
};

pub(super) const FEEDS: [&str; 3] = ["source", "given", "next"];
pub(super) const ENDS: [&str; 2] = ["<s>", "</s>"];
/// Maximum number of tokens in a translation, however long the source text is.
const MOST_TOKENS: usize = 1024;
const SOURCES: usize = 64;

const COLUMNS: [Column; 2] = [|o, column| o.source(column), |o, column| o.target(column)];
pub(super) const KNOWN: [&str; 2] = ["sources", "targets"];
const TABLES: [Table; 3] = [
    Table::new("sources.weight", KNOWN[0], &[0]),
    Table::new("targets.weight", KNOWN[1], &[0]),
    Table::new("written.bias", KNOWN[1], &[0]),
];
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

/// Collects pairs in windows, which limit the memory and within which pairs of equal sources are grouped.
#[derive(Default)]
struct BySource {
    window: Vec<Pair>,
    windows: usize,
}

impl BySource {
    const MOST: usize = 1 << 16;

    fn add(&mut self, pair: Pair) -> Option<Pairs> {
        self.window.push(pair);
        if self.window.len() < Self::MOST { None } else { Some(self.end()) }
    }

    fn end(&mut self) -> Pairs {
        self.windows += usize::from(!self.window.is_empty());
        Pairs::new("window", std::mem::take(&mut self.window))
    }
}

const PRONUNCIATIONS: &str = "words and their phonemes: tokens are `characters`, target tokens `whitespace`; `text.tokens` and `text.target_tokens` set other tokens";

/// Returns the config with the tokens of pronunciations, if the pairs are words with their phonemes and no tokens are set.
fn spoken(config: &Config, first: FirstRecords<'_, Pair>) -> Result<Option<Config>> {
    let TextConfig { tokens: None, target_tokens: None, tokenizer: None, .. } = config.text else {
        return Ok(None);
    };
    Ok(are_pronunciations(&first(1_000)?).then(|| {
        let (tokens, target_tokens) = (Some(Tokens::Characters), Some(Tokens::Whitespace));
        Config { text: TextConfig { tokens, target_tokens, ..config.text.clone() }, ..config.clone() }
    }))
}

/// Returns the logits, the feed of the right tokens and, if `attends`, the queries, keys and score vector of the attention.
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

    // One table of target tokens is read and predicted (Press and Wolf, "Using the output embedding", 2017).
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

struct PairSurvey<'a> {
    /// The config of the training, with the tokens of pronunciations if the pairs are pronunciations (`spoken`).
    config: Cow<'a, Config>,
    cuts: [Tokenizer; 2],
    targets: TokenCounts,
    by_source: BySource,
}

impl<'a> TaskSurvey<'a> for PairSurvey<'a> {
    type Record = Pair;
    type Model = Translator;

    fn embedded(_: bool) -> Result<Pairs> {
        let expected = "a file with lines of source<TAB>target";
        Err(Error::new("data.train", expected, "none: no translations come with the program"))
    }

    /// At most about 2,000 pairs are held out, since more pairs would take long to translate after each epoch.
    fn one_in(config: &Config, all: &Texts<Pair>) -> Result<u64> {
        Ok(one_in(config).max(all.count()? as u64 / 2_000))
    }

    fn begin(config: &'a Config, first: FirstRecords<'_, Pair>, from: &Origin) -> Result<Self> {
        let config = spoken(config, first)?.map_or(Cow::Borrowed(config), Cow::Owned);
        let cuts = [tokenizer(&config)?, target_tokenizer(&config)?];
        from.same_tokenizer(TOKENIZER_NOTE, &cuts[0])?;
        from.same_tokenizer(TARGET_TOKENIZER_NOTE, &cuts[1])?;
        let (targets, by_source) = (TokenCounts::default(), BySource::default());
        Ok(Self { config, cuts, targets, by_source })
    }

    fn count(&mut self, pair: &Pair, portion: Portion, counts: &mut RecordCounts) {
        counts.add(self.cuts[0].tokens(&pair.source), portion);
        if portion == Portion::Train {
            self.cuts[1].tokens(&pair.target).for_each(|token| self.targets.add(&token));
        } else if let Some(pairs) = self.by_source.add(pair.clone()) {
            show(&pairs, counts);
        }
    }

    fn end(self, texts: &mut TrainingTexts<'_, Pair>, tokens: TokenCounts) -> Result<TaskNetwork> {
        let Self { config, cuts, targets, mut by_source } = self;
        show(&by_source.end(), &mut texts.counts);
        let TrainingTexts { train, dev, given, from, counts } = &*texts;
        let (spoken, config, name) = (matches!(config, Cow::Owned(_)), &*config, train.called());
        let counted_table = |at: usize, counted, specials: &[&str]| {
            net::vocabulary((&cuts[at], counted), specials, (from, &TABLES[at]), (config, &name))
        };
        let sources = counted_table(0, tokens, &[Vocabulary::UNKNOWN])?;
        let targets = counted_table(1, targets, &[ENDS[0], ENDS[1], Vocabulary::UNKNOWN])?;
        let (known, rate) = ([&sources, &targets], label_smoothing(config));
        let counted_table = |pairs: &_| loader(pairs, cuts.each_ref(), known, config);
        let loaders = [counted_table(train)?, counted_table(dev)?];
        let trainer = network(config, known, net::steps(config, counts.lengths.len()))?
            .note(TOKENIZER_NOTE, cuts[0].name())
            .note(TARGET_TOKENIZER_NOTE, cuts[1].name())
            .vocabulary(KNOWN[0], sources.clone());
        let different = match counts.held_out.count {
            count if count == counts.dev => String::new(),
            count => format!(", of {count} different sources"),
        };
        let alone = if *given { "" } else { ", none of whose sources is in the training pairs" };
        // With label smoothing, the perplexity is not the exponential of the training loss, which a line for people states.
        let smoothed =
            (rate > 0.0).then(|| format!("loss is with label smoothing of {rate}, perplexity without"));
        let pronounced = spoken.then(|| PRONUNCIATIONS.to_owned());
        let read = format!(", {} source tokens and {} target tokens known", sources.len(), targets.len());
        Ok(TaskNetwork {
            loaders,
            trainer: trainer.vocabulary(KNOWN[1], targets),
            metric: "perplexity",
            reading: Some((sources, train.options().clone())),
            known: [read, format!("{different}{alone}")],
            messages: [Vec::new(), pronounced.into_iter().chain(smoothed).collect(), Vec::new()],
        })
    }
}

fn show(pairs: &Pairs, counts: &mut RecordCounts) {
    for (source, targets) in pairs.by_source() {
        let truth = || Truth::Texts(targets.iter().map(|&target| target.to_owned()).collect());
        counts.held_out.add(|| Case { text: source.to_owned(), truth: truth() });
    }
}

fn network(config: &Config, known: [&Vocabulary; 2], steps: usize) -> Result<Trainer> {
    let net = Builder::new().seed(config.run.seed);
    let (logits, next, _) = layers(&net, config, known, false);
    let plain = logits.cross_entropy(next);
    let losses = net::smoothed(logits, next, config).unwrap_or(plain);
    let trainer = net::trainer(net, losses.mean(), config, steps)?;
    Ok(trainer.metric(Loss::perplexity(plain)).output(LOGITS, logits))
}

pub(super) struct Translator {
    generator: Generator,
    cuts: [Tokenizer; 2],
}

impl AnsweringModel for Translator {
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]> {
        Some(self.cuts.each_ref())
    }

    fn batch(&self) -> AnswerBatch {
        AnswerBatch::of_bytes(1 << 13)
    }

    fn search_memory(&self, by: &Predictor, beam: usize) -> Result<u64> {
        let mut session = by.sessions(SOURCES * beam, &[LOGITS])?;
        // The memory of the sources themselves counts for the batch, so that each source has one token here.
        session.begin(&[(FEEDS[0], &Variable::from_sequences(&vec![vec![0i64]; SOURCES * beam])?)])?;
        super::lm::search_memory(session, by.vocabulary(KNOWN[1])?.len())
    }

    fn answers(&self, by: &Predictor, texts: &[&str], how: &DecodingConfig) -> Result<Vec<Answer>> {
        let (sources, targets) = (by.vocabulary(KNOWN[0])?, by.vocabulary(KNOWN[1])?);
        let ids: Vec<Vec<i64>> =
            texts.iter().map(|text| sources.ids(self.cuts[0].tokens(text))).collect::<Result<_>>()?;
        // Source texts of similar lengths are a batch, since their translations, limited by the length, end after similar steps.
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
                    (self.cuts[1].join(tokens), one.score)
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

impl RecordAnswers for Translator {
    type Record = Pair;
    const MANY_ANSWERS: bool = true;
}

impl RecordModel for Translator {
    const ASKING: QuestionKind = QuestionKind::Source;
    const COLUMNS: [Column; 2] = COLUMNS;
    const TABLES: &'static [Table] = &TABLES;
    const SCORES_HELD_OUT: bool = false;

    fn line(pair: &Pair) -> String {
        format!("source {}, target {}", Preview::shortened(&pair.source), Preview::shortened(&pair.target))
    }

    fn prepare(config: &Config, paths: Paths) -> Result<Preparation> {
        prepare::<PairSurvey<'_>>(config, paths)
    }

    fn load(predictor: &Predictor, _: &Config) -> Result<Self> {
        let cuts =
            [tokenizer_of(predictor, TOKENIZER_NOTE)?, tokenizer_of(predictor, TARGET_TOKENIZER_NOTE)?];
        Ok(Self { generator: predictor.generator(FEEDS[1], LOGITS)?, cuts })
    }

    fn adds(&self, _: &Predictor, decoding: &DecodingConfig) -> Vec<String> {
        let name = |name: &str, position: usize| match position {
            1 => name.to_owned(),
            _ => format!("{name} {position}"),
        };
        let value = |position| match decoding.n_best > 1 || decoding.scores {
            true => vec![name("translation", position), name("score", position)],
            false => vec![name("translation", position)],
        };
        (1..=decoding.n_best).flat_map(value).collect()
    }

    fn loader(&self, file: &TestFile<'_>, pairs: &Texts<Pair>) -> Result<Loader> {
        let known = [file.known.vocabulary(KNOWN[0])?, file.known.vocabulary(KNOWN[1])?];
        loader(pairs, self.cuts.each_ref(), known, file.config)
    }

    fn scored(&self, file: &TestFile<'_>, pairs: Texts<Pair>, each: EachOutcome<'_>) -> Result<Evaluation> {
        let by = file.known;
        // Only the best translation of each source text is scored.
        let decoding = DecodingConfig { n_best: 1, scores: false, ..file.config.decoding.clone() };
        let mut scores = TextScores::new(self.cuts.each_ref());
        let (mut by_source, mut count) = (BySource::default(), 0);
        let mut scored = |pairs: Pairs| {
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
            part.iter().try_for_each(|(_, pair)| by_source.add(pair.clone()).map_or(Ok(()), &mut scored))
        })?;
        scored(by_source.end())?;
        // The perplexity is computed over all target tokens, without the label smoothing of the training loss.
        let perplexity = by.evaluate(&self.loader(file, &pairs)?)?.get("perplexity");
        let mut scored = scores.end().with_loss(perplexity.map(f64::ln));
        if let Some(perplexity) = perplexity {
            scored = scored.with("perplexity", Unit::Number, perplexity);
        }
        scored.counts.push(("pairs", count));
        let most = BySource::MOST;
        let message = format!("pairs with equal sources are grouped only within blocks of {most} pairs");
        Ok(Evaluation { messages: if by_source.windows > 1 { vec![message] } else { Vec::new() }, ..scored })
    }
}
