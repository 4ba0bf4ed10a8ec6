//! Language model: recurrent layers predict the next token of a text. The states at the end of a window are the first states of the
//! next window; gradients stay within a window (truncated back-propagation through time).

use std::f64::consts::LN_2;
use std::ops::ControlFlow;
use std::path::Path;

use unpadded::data::{Data, TokenCounts, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Linear, RecurrentLayer};
use unpadded::metrics::{Loss, Unit, ratio};
use unpadded::predict::{Beam, Generation, Hypothesis, Predictor, Sampling, Session};
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, Result, Var, Variable};
use unpadded_text::{PlainFiles, path_of_text};

use super::answer::Answer;
use super::by_length::ByLength;
use super::config::Config;
use super::encoder::with_cell;
use super::evaluation::{EachOutcome, Evaluation, NamedFigure, Outcome, ScoreSums};
use super::prose::{COLUMNS, FEEDS, Prose, STEPS, TokenWindow};
use super::recipe::{AnsweringModel, Continuation, Preview, Recipe, TestCheck, TestFile, TrainedModel};
use super::sample::FigureFn;
use super::sections::{DecodingConfig, ModelConfig, Tokens};
use super::started::{self, Table};
use super::text_session::{EachPiece, Pieces, TextSession};
use super::training::{
    Case, DataMemory, HeldOutTexts, Paths, Preparation, TOKENIZER_NOTE, TestData, Truth, one_in, options,
    skipped, tokenizer, tokenizer_of,
};
use super::{embedded, net};

const NEXT: &str = "next";
const TOKENS: &str = "tokens";
const TABLES: [Table; 3] = [
    Table::new(net::TABLE, TOKENS, &[0]),
    Table::new("next.weight", TOKENS, &[1]),
    Table::new("next.bias", TOKENS, &[0]),
];
const LOGITS: &str = "logits";
/// Maximum number of held-out lines in a report; the model continues the beginning of each line.
const OPENINGS: usize = 5;
const ANSWERED: usize = 100;

pub(super) const RECIPE: Recipe = Recipe {
    tables: &TABLES,
    starts_from_lm: false,
    asking: None,
    preview,
    prepare,
    check: |file, _| check(file),
    load: |predictor, _| Ok(Box::new(Writer(tokenizer_of(predictor, TOKENIZER_NOTE)?))),
};

fn preview(config: &Config, path: &Path) -> Result<Preview> {
    let text = PlainFiles::open_with([path], &options(config, COLUMNS)?)?;
    let mut records = Vec::new();
    for piece in text.pieces() {
        let piece = piece?;
        let lines = piece.lines().filter(|line| !line.trim().is_empty());
        records.extend(lines.take(Preview::SHOWN - records.len()).map(Preview::shortened));
        if records.len() == Preview::SHOWN {
            break;
        }
    }
    Ok(Preview::new(text.read_as(), records))
}

fn check(file: &TestFile<'_>) -> Result<TestCheck> {
    let (text, known) = (test_text(file)?, file.known.vocabulary(TOKENS)?);
    let (tokenizer, mut count) = (tokenizer_of(file.known, TOKENIZER_NOTE)?, 0);
    // Looks up every token: an unknown token is an error if the vocabulary has no entry for unknown tokens.
    let known = text.ids(&tokenizer, known).inspect(|_| count += 1).find_map(Result::err);
    at_least_two(&text, if known.is_some() { 2 } else { count })?;
    let read = text.read_as().into_iter().chain(skipped(text.name(), text.options())).collect();
    let skipped = text.options().skipped();
    known.map_or_else(|| Ok(TestCheck { read, warnings: Vec::new(), skipped }), Err)
}

struct Writer(Tokenizer);

impl TrainedModel for Writer {
    fn data(&self, file: &TestFile<'_>) -> Result<TestData> {
        let (config, tokenizer) = (file.config, &self.0);
        let text = Prose::open(path_of_text(file.path), config, DataMemory::set_by(config))?;
        let count = text.count(tokenizer)?;
        at_least_two(&text, count)?;
        let known = file.known.vocabulary(TOKENS)?;
        let data = text.stream(config.training.batch, STEPS, tokenizer, known, count)?;
        Ok(TestData { data: Box::new(data), messages: text.read_as().into_iter().collect() })
    }

    /// Scores the predicted tokens of a text, window by window; the bootstrap intervals resample windows.
    fn scores(&self, file: &TestFile<'_>, each: EachOutcome<'_>) -> Result<Evaluation> {
        /// Maximum number of logits in memory, which limits a window, but not the number of streams: each begins without a context.
        const LOGITS_TOGETHER: usize = 1 << 24;
        let (config, tokenizer, by) = (file.config, &self.0, file.known);
        let (text, known) = (test_text(file)?, by.vocabulary(TOKENS)?);
        let (mut count, mut unknown, mut words, mut letters, mut bytes) = (0, 0u64, 0, 0, 0);
        let id = known.unknown();
        text.each(&mut |piece| {
            for token in tokenizer.tokens(piece) {
                count += 1;
                unknown += u64::from(id.is_some() && known.id(&token).or(id) == id);
            }
            words += piece.split_whitespace().count();
            letters += piece.chars().count();
            bytes += piece.len();
        })?;
        at_least_two(&text, count)?;
        let together = config.training.batch.saturating_mul(known.len()).max(1);
        let steps = (LOGITS_TOGETHER / together).clamp(1, STEPS);
        let data = text.stream(config.training.batch, steps, tokenizer, known, count)?;
        let (tokens, letters, bytes) = (count as f64, letters as f64, bytes as f64);
        let mut sums = ScoreSums::new(ByLength::new("bits per token", Unit::Number).by("tokens read before"));
        for (number, batch) in data.batches(None, 0)?.enumerate() {
            let batch = batch?;
            let [(_, x), (_, y)] = &batch.values[..] else { continue };
            let feeds = [(FEEDS[0], x)];
            // Each window after the first starts from the states at the end of the previous window.
            let found = match number {
                0 => by.run(&feeds, &[LOGITS])?,
                _ => by.run_on(&feeds, &[LOGITS])?,
            };
            let (Some(found), Some(lod)) = (found.first(), y.lod()) else { continue };
            let (logits, next) = (found.as_slice::<f32>()?, y.as_slice::<i64>()?);
            let rows: Vec<f64> =
                logits.chunks_exact(known.len()).zip(next).map(|(row, &id)| nats(row, id)).collect();
            for window in lod.offsets().windows(2) {
                let nats = rows.get(window[0]..window[1]).unwrap_or_default();
                if !nats.is_empty() {
                    let count = nats.len() as f64;
                    // The tokens identify the window: two models are compared only if their windows have equal tokens.
                    let ids = next.get(window[0]..window[1]).unwrap_or_default();
                    let window: Vec<&str> = ids.iter().filter_map(|&id| known.token(id)).collect();
                    let window = window.join("\u{1f}");
                    each(Outcome { text: &window, asked: &window, truth: "", found: "" });
                    (number * steps..)
                        .zip(nats)
                        .for_each(|(read, nats)| sums.lengths.add(read, nats / LN_2, 1.0));
                    let (letters, bytes) = (letters * count / tokens, bytes * count / tokens);
                    sums.sample.add([
                        (NATS, nats.iter().sum()),
                        (COUNTED, count),
                        (LETTERS, letters),
                        (BYTES, bytes),
                    ]);
                }
            }
        }
        let mut figures: [NamedFigure; 3] = [
            ("bits per character", Unit::Number, FigureFn::Of(|x| ratio(x[NATS], x[LETTERS]) / LN_2)),
            ("perplexity", Unit::Number, FigureFn::Of(|x| ratio(x[NATS], x[COUNTED]).exp())),
            ("bits per byte", Unit::Number, FigureFn::Of(|x| ratio(x[NATS], x[BYTES]) / LN_2)),
        ];
        if !by_characters(config) {
            figures.swap(0, 1);
        }
        let total = sums.sample.total(4);
        let scored = sums.end(4, &figures, Vec::new());
        let counts = vec![
            ("tokens", tokens as u64),
            ("predicted tokens", total[COUNTED] as u64),
            ("unknown tokens", unknown),
            ("words", words as u64),
            ("characters", letters as u64),
            ("bytes", bytes as u64),
        ];
        let message = text.read_as().into_iter().chain(skipped(text.name(), text.options())).collect();
        Ok(Evaluation {
            counts,
            messages: message,
            ..scored.with_loss(Some(ratio(total[NATS], total[COUNTED])))
        })
    }
}

impl AnsweringModel for Writer {
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]> {
        Some([&self.0; 2])
    }

    /// Continues each text greedily: each new token is the most probable one.
    fn answers(&self, by: &Predictor, texts: &[&str], _: &DecodingConfig) -> Result<Vec<Answer>> {
        let greedy = Sampling::default().temperature(0.0);
        let written = |text: &&str| {
            let (mut all, mut session) = (String::new(), TextSession::new(by.session(&[LOGITS])?));
            self.read(by, &mut session, text, &mut || ControlFlow::Continue(()))?;
            let how = Continuation { sampler: &mut greedy.sampler(0)?, tokens: ANSWERED };
            self.write(by, &mut session, how, &mut |piece| {
                all.push_str(piece);
                ControlFlow::Continue(())
            })?;
            Ok(Answer::Text(all))
        };
        texts.iter().map(written).collect()
    }

    fn read(
        &self,
        by: &Predictor,
        TextSession { session, pieces }: &mut TextSession,
        text: &str,
        each: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<usize> {
        let known = by.vocabulary(TOKENS)?;
        let tokens: Vec<_> = self.0.tokens(text).collect();
        let mut ids = known.ids(&tokens)?;
        if ids.is_empty() && session.steps() == 0 {
            ids.push(first(known));
        }
        let mut next = Variable::dense(unpadded::ndarray::array![0i64]);
        for (count, &id) in ids.iter().enumerate() {
            if each().is_break() {
                return Ok(count);
            }
            next.as_mut_slice()?[0] = id;
            session.step(&[(FEEDS[0], &next)])?;
            tokens.get(count).into_iter().for_each(|token| pieces.read(token));
        }
        pieces.end_read(&self.0, text);
        Ok(ids.len())
    }

    fn write(
        &self,
        by: &Predictor,
        TextSession { session, pieces }: &mut TextSession,
        how: Continuation<'_>,
        each: EachPiece<'_>,
    ) -> Result<usize> {
        let known = by.vocabulary(TOKENS)?;
        let mut next = Variable::dense(unpadded::ndarray::array![0i64]);
        let (unknown, mut row) = (known.unknown(), Vec::new());
        for count in 0..how.tokens {
            row.clear();
            row.extend_from_slice(session.output(LOGITS)?.as_slice::<f32>()?);
            // The unknown token is never drawn, since it has no text.
            let never = unknown.and_then(|id| row.get_mut(id as usize));
            never.into_iter().for_each(|logit| *logit = f32::NEG_INFINITY);
            let id = how.sampler.draw(&row)?;
            let ends = pieces.push(&self.0, known.token(id).unwrap_or_default(), each).is_break();
            next.as_mut_slice()?[0] = id;
            session.step(&[(FEEDS[0], &next)])?;
            if ends {
                return Ok(count + 1);
            }
        }
        let _ = pieces.end(&self.0, each);
        Ok(how.tokens)
    }

    fn search_memory(&self, by: &Predictor, beam: usize) -> Result<u64> {
        search_memory(by.sessions(beam, &[LOGITS])?, by.vocabulary(TOKENS)?.len())
    }

    fn search(&self, by: &Predictor, text: &str, tokens: usize, beam: &Beam) -> Result<Vec<(String, f64)>> {
        let known = by.vocabulary(TOKENS)?;
        let (words, mut before): (Vec<_>, _) = (self.0.tokens(text).collect(), Pieces::default());
        let mut ids = known.ids(&words)?.into_iter();
        let start = ids.next().unwrap_or_else(|| first(known));
        let prefix: Vec<i64> = ids.collect();
        let read = prefix.len();
        // A token of the prefix cannot be banned.
        let banned = known.unknown().filter(|unknown| !prefix.contains(unknown));
        let options = Generation::new(start).max_steps(read + tokens).prefix(prefix);
        let options = options.banned(banned.into_iter().collect::<Vec<_>>());
        let found = by.generator(FEEDS[0], LOGITS)?.beam(&[], &options, beam)?;
        words.iter().for_each(|word| before.read(word));
        before.end_read(&self.0, text);
        let found_text = |one: &Hypothesis<'_>| {
            let (mut pieces, mut found) = (before.clone(), String::new());
            let mut each = |piece: &str| {
                found.push_str(piece);
                ControlFlow::Continue(())
            };
            for &id in one.tokens.iter().skip(read) {
                let _ = pieces.push(&self.0, known.token(id).unwrap_or_default(), &mut each);
            }
            let _ = pieces.end(&self.0, &mut each);
            (found, one.score)
        };
        Ok(found.hypotheses(0)?.iter().map(found_text).collect())
    }
}

/// Returns the memory of a search in bytes: the step of a session with a sequence for each hypothesis, a copy of its states, and its
/// logits with their ranks.
pub(super) fn search_memory(mut session: Session, tokens: usize) -> Result<u64> {
    if session.sequences() == 0 {
        return Err(Error::new("beam width", "at least 1", "0"));
    }
    let memory = session.memory()?;
    let logits = session.sequences().saturating_mul(tokens).saturating_mul(2 * size_of::<f32>());
    let step = memory.total().saturating_sub(memory.parameters).saturating_add(memory.state);
    Ok(step.saturating_add(logits) as u64)
}

/// Returns the token in place of an empty text: a line break, or the first token if the vocabulary has no line break.
fn first(known: &Vocabulary) -> i64 {
    known.id("\n").unwrap_or_default()
}

fn prepare(config: &Config, paths: Paths) -> Result<Preparation> {
    let Paths { train, dev, test, from, memory, .. } = paths;
    let whole = match train {
        Some(path) => Prose::open(path, config, memory)?,
        None => Prose::Held(embedded::prose()?),
    };
    let dev = dev.map(|path| Prose::open(path, config, memory)).transpose()?;
    let tokenizer = tokenizer(config)?;
    from.same_tokenizer(TOKENIZER_NOTE, &tokenizer)?;
    let (name, as_read) = (whole.name().to_owned(), whole.read_as());
    // The end of the text is held out: training lines around a single held-out line would reveal its content.
    let given = dev.is_some();
    let (train, dev) = match dev {
        Some(dev) => (whole, dev),
        None => whole.hold_out_end(one_in(config))?,
    };
    let (mut length, mut dev_length, mut held_out) = (0, 0, HeldOutTexts::default());
    let [mut counted, mut of_dev] = [(); 2].map(|()| TokenCounts::default());
    train.each(&mut |piece| {
        length += tokenizer.tokens(piece).inspect(|token| counted.add(token)).count();
    })?;
    dev.each(&mut |piece| {
        dev_length += tokenizer.tokens(piece).inspect(|token| of_dev.add(token)).count();
        let missing = OPENINGS - held_out.count;
        let long = |line: &&str| tokenizer.tokens(line).nth(3).is_some();
        let of_line = |line: &str| {
            let half = tokenizer.tokens(line).count() / 2;
            Case { text: tokenizer.join(tokenizer.tokens(line).take(half.clamp(1, 40))), truth: Truth::Open }
        };
        piece.lines().filter(long).take(missing).for_each(|line| held_out.add(|| of_line(line)));
    })?;
    at_least_two(&train, length)?;
    let advice = |e: Error| if given { e } else { e.noted("add text, or set `data.dev` to a file") };
    at_least_two(&dev, dev_length).map_err(advice)?;
    // The vocabulary always has an unknown token, since new texts have tokens that the training text lacks.
    let limits = from.grows(net::limits(config, &[Vocabulary::UNKNOWN]), &TABLES[0]);
    let tokens = net::known(tokenizer.vocabulary_of(counted, &limits), config)?;
    let stream = |text: &Prose, count| text.stream(config.training.batch, STEPS, &tokenizer, &tokens, count);
    let (train_data, dev_data) = (stream(&train, length)?, stream(&dev, dev_length)?);
    // The batches are counted in the data: a text too short for all streams has more batches than the batch size says.
    let batches =
        train_data.batch_count().and_then(|count| usize::try_from(count).ok()).unwrap_or(usize::MAX);
    let steps = (config.training.epochs as usize).saturating_mul(batches);
    let (trainer, metric) = network(config, tokens.len(), steps)?;
    let of_memory = train.memory_message(&train_data, config, memory);
    let message = format!(
        "{name}: {length} tokens to train on, {} different tokens; {dev_length} held out",
        tokens.len(),
    );
    let coverage = of_dev.coverage(&tokens);
    let parts = [Some(&train), given.then_some(&dev)].into_iter().flatten();
    let reports = parts.clone().filter_map(|part| part.options().skipped()).collect();
    let left_out: Vec<String> = parts.filter_map(|part| skipped(part.name(), part.options())).collect();
    Ok(Preparation {
        trainer: trainer.vocabulary(TOKENS, tokens).note(TOKENIZER_NOTE, tokenizer.name()),
        train: Box::new(train_data),
        dev: Box::new(dev_data),
        test,
        name,
        metric,
        coverage,
        lengths: Vec::new(),
        held_out,
        score_held_out: None,
        classes: Vec::new(),
        facts: Default::default(),
        messages: [message].into_iter().chain(as_read).chain(of_memory).chain(left_out).collect(),
        skipped: reports,
    })
}

/// Opens the text of a path for scoring; the text stays in its files and is read piece by piece.
fn test_text(file: &TestFile<'_>) -> Result<Prose> {
    /// Maximum number of tokens in memory; the tokens of a longer text are in a temporary file.
    const HELD: usize = 1 << 23;
    let files = PlainFiles::open_with([path_of_text(file.path)], &options(file.config, COLUMNS)?)?;
    Ok(Prose::InFiles(files, TokenWindow::Tokens(HELD)))
}

/// Checks that a text has at least two tokens, since prediction begins with the second.
fn at_least_two(text: &Prose, tokens: usize) -> Result<()> {
    let what = || format!("text of `{}`", text.name());
    if tokens > 1 { Ok(()) } else { Err(Error::new(what(), "two tokens or more", tokens.to_string())) }
}

/// The columns of a bootstrap sample of windows: the sum of −ln p, tokens, and characters and bytes (in proportion to tokens).
const NATS: usize = 0;
const COUNTED: usize = 1;
const LETTERS: usize = 2;
const BYTES: usize = 3;

/// Returns −ln p of the token `id`; p is the softmax of `logits`, which has one number per token.
fn nats(logits: &[f32], id: i64) -> f64 {
    let most = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|&x| f64::from(x - most).exp()).sum();
    let own = usize::try_from(id).ok().and_then(|id| logits.get(id)).copied().unwrap_or(f32::NEG_INFINITY);
    sum.ln() + f64::from(most - own)
}

fn by_characters(config: &Config) -> bool {
    config.text.tokens == Some(Tokens::Characters) && config.text.tokenizer.is_none()
}

fn network(config: &Config, tokens: usize, steps: usize) -> Result<(Trainer, &'static str)> {
    let model = &config.model;
    let net = Builder::new().seed(config.run.seed);
    let x = net.feed(FEEDS[0], DType::I64, &[], 1);
    let y = net.feed_like(FEEDS[1], DType::I64, &[], x);
    let table = net.layer(match model.tied {
        // With tied weights, each step changes every row of the table, so the table has dense gradients.
        true => Embedding::new(tokens, model.embedding).named(net::WORDS),
        false => net::table(tokens, net::WORDS, config),
    });
    let h = carried(&net, net::dropped(table.of(x), model), model).dropout(model.dropout);
    let logits = match model.tied {
        false => h.linear(Linear::new(tokens).named(NEXT)),
        true if model.hidden == model.embedding => net.layer(Linear::tied(&table).named(NEXT)).of(h),
        true => net.layer(Linear::tied(&table).named(NEXT)).of(h.linear(model.embedding)),
    };
    let losses = logits.cross_entropy(y);
    let smoothed = net::smoothed(logits, y, config).unwrap_or(losses);
    let (metric, name) = match by_characters(config) {
        true => (Loss::bits_per_character(losses), "bits per character"),
        false => (Loss::perplexity(losses), "perplexity"),
    };
    let trainer = net::trainer(net, smoothed.mean(), config, steps)?.metric(metric).output(LOGITS, logits);
    Ok((trainer, name))
}

/// Returns the states after each token; the states at the end of the previous window are the first states.
fn carried(net: &Builder, mut x: Var, model: &ModelConfig) -> Var {
    fn layer<L: RecurrentLayer<States = [Var; N]>, const N: usize>(
        net: &Builder,
        x: Var,
        layer: L,
        width: usize,
    ) -> Var {
        let before: [Var; N] = std::array::from_fn(|_| net.carried_state(width));
        let (h, after) = net.layer(layer.starting_from(before)).states(x);
        before.into_iter().zip(after).for_each(|(before, after)| net.carry(before, after));
        h
    }
    for at in 0..model.layers {
        let (below, name) = (if at > 0 { x.dropout(model.dropout) } else { x }, &started::layer(at));
        x = with_cell!(model, cell => {
            layer(net, below, cell.recurrent_dropout(model.recurrent_dropout).named(name), model.hidden)
        });
    }
    x
}
