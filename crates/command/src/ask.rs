//! The commands `unpadded predict` and `unpadded generate`, which print the answers of a trained model.

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use serde_json::json;
use unpadded::predict::Sampling;
use unpadded_recipes::{Answer, AnswerBatch, AnswerJson, ByteSize, Model};
use unpadded_text::text_of_path;

use super::model_choice::{ModelChoice, ThreadCount};
use super::on_file::{OnFile, answers, unanswered};
use super::outcome::{Ending, Outcome, UsageError, bad};
use super::record::record;
use super::request::whole;
use super::{init, terminal, together};

/// Output of answers to lines of standard input.
#[derive(Args)]
struct Lines {
    /// JSON output: one line of JSON per line of standard input
    #[arg(long)]
    json: bool,
    /// Stop at the first line without an answer
    #[arg(long)]
    strict: bool,
}

/// The number of all lines so far, of lines without an answer, and of lines without a text.
struct Tally<'a> {
    how: &'a Lines,
    lines: u64,
    failed: u64,
    empty: u64,
}

impl Lines {
    /// Answers lines of standard input; a line without an answer gets an empty line, or with `--json` the field `error`.
    fn answer(
        &self,
        batch: AnswerBatch,
        mut predict: impl FnMut(u64, &[&str]) -> unpadded::Result<Vec<Answer>>,
        show: impl Fn(&str, &Answer) -> String,
    ) -> Outcome<Ending> {
        let mut done = Tally { how: self, lines: 0, failed: 0, empty: 0 };
        terminal::lines(batch, |lines| {
            // Consecutive readable lines are one batch; an unreadable line is a batch of its own.
            for part in lines.chunk_by(|one, next| one.text.is_ok() && next.text.is_ok()) {
                let texts: Result<Vec<&str>, &String> =
                    part.iter().map(|line| line.text.as_deref()).collect();
                let first = part.first().map_or(0, |line| line.number);
                let texts = match texts {
                    Ok(texts) => texts,
                    Err(why) => {
                        done.failed(first, None, why)?;
                        continue;
                    }
                };
                let found = answers(&texts, |at, texts| predict(first + at as u64, texts));
                for ((number, text), answer) in (first..).zip(&texts).zip(found) {
                    match answer {
                        Ok(answer) => done.found(text, &answer, &show)?,
                        Err(why) => done.failed(number, Some(text), &why)?,
                    }
                }
            }
            Ok(())
        })?;
        terminal::say_empty(done.empty, done.lines, "lines");
        unanswered(done.failed, done.lines, "lines")
    }
}

impl Tally<'_> {
    fn found(&mut self, text: &str, answer: &Answer, show: impl Fn(&str, &Answer) -> String) -> Outcome<()> {
        self.lines += 1;
        self.empty += u64::from(*answer == Answer::Empty);
        match self.how.json {
            true => {
                terminal::print(serde_json::to_string(&AnswerJson { text, answer, echo: true, offset: 0 })?)
            }
            false => terminal::print(show(text, answer)),
        }
    }

    fn failed(&mut self, number: u64, text: Option<&str>, why: &str) -> Outcome<()> {
        (self.lines, self.failed) = (self.lines + 1, self.failed + 1);
        let why = format!("standard input, line {number}: {why}");
        if self.how.strict {
            return Err(why.into());
        }
        terminal::say(format!("error: {why}"));
        match self.how.json {
            true => terminal::print(json!({"text": text, "error": why})),
            false => terminal::print(""),
        }
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded predict runs/classify-1 reviews.csv --output labelled.csv
  echo 'What a film!' | unpadded predict runs/classify-1
  unpadded predict runs/classify-1 --json < texts.txt | jq .label
  unpadded predict --ensemble runs/classify-1 runs/classify-2 reviews.csv
  unpadded predict --ensemble runs/classify-3 reviews.csv      all runs of `train --seeds` or `--folds`
FILE is read in the format of the training files (CSV, TSV, JSON Lines, CoNLL, Parquet, one text per line). Its records
keep their order and columns, and each gets new columns: label and probability, tags, or translation. Labels in FILE are
kept and never read. Line ends are kept; answers are in UTF-8. Without FILE, each line of standard input is a text, and
its answer is printed as one line, at once. A record or line without a text, or with blanks only, has an empty answer.
A malformed record or line is reported and gets an empty answer (--json: an object with `error`); the exit code is then
1. --ensemble joins runs of `classify` or `tag` with equal labels: probabilities and numbers are means; each run votes
for the tag of each word. Plain lines have control characters escaped, as \\u001b; --json and files keep each text
unchanged.")]
pub(crate) struct Predict {
    #[command(flatten)]
    which: ModelChoice,
    /// Records to answer: a file; without it, lines of standard input. With --ensemble, more runs before the file
    #[arg(value_name = "FILE")]
    file: Vec<PathBuf>,
    /// Ensemble: combine all runs into one model
    #[arg(long)]
    ensemble: bool,
    /// Output file for the answered records of FILE [default: standard output]
    #[arg(long, value_name = "PATH")]
    output: Option<PathBuf>,
    /// Overwrite the output file
    #[arg(long, requires = "output")]
    overwrite: bool,
    /// Setting of the config, as decoding.beam=8, or data.text=review for FILE; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = init::path())]
    set: Vec<String>,
    /// Batch size: records or lines answered together
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", default_value_t = AnswerBatch::TEXTS, value_parser = whole::<usize>)]
    batch: usize,
    #[command(flatten)]
    threads: ThreadCount,
    /// Memory limit of a batch, as 500MB or 4GB: records that do not fit together are answered in smaller batches
    #[arg(long, value_name = "SIZE", default_value = MEMORY, value_parser = size)]
    memory: ByteSize,
    /// Quiet: no progress, and no lines on how FILE was read
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    lines: Lines,
}

/// The default memory limit of a batch.
const MEMORY: &str = "400MB";

pub(crate) fn size(text: &str) -> Result<ByteSize, String> {
    text.parse().map_err(|_| "expected a size with its unit, as 500MB or 4GB".to_owned())
}

impl Predict {
    /// Loads the model, or the ensemble; also returns the path of the records; `None` for lines of standard input.
    fn model(&self) -> Outcome<(Model, Option<String>)> {
        if !self.ensemble {
            if self.file.len() > 1 {
                let got = self.file.len();
                return bad(format!("FILE: expected at most one, got {got}; --ensemble joins several runs"));
            }
            return Ok((
                self.which.load()?.threads(self.threads.number),
                self.file.first().map(text_of_path),
            ));
        }
        let file = self.file.last().filter(|path| !together::is_model(path));
        let more = self.file.iter().take(self.file.len() - usize::from(file.is_some()));
        let runs: Vec<PathBuf> = std::iter::once(&self.which.path).chain(more).cloned().collect();
        Ok((together::load(&runs, self.threads.number)?, file.map(text_of_path)))
    }

    pub(crate) fn run(self) -> Outcome<Ending> {
        let (model, file) = self.model()?;
        for (given, flag) in [(self.output.is_some(), "--output"), (self.quiet, "--quiet")] {
            if given && file.is_none() {
                return bad(format!("{flag}: expected a file with the records to answer (<FILE>), got none"));
            }
        }
        if let (Some(file), true) = (&file, self.lines.json) {
            return bad(format!(
                "--json: expected lines of standard input, got the file `{file}`: its answers have its own format"
            ));
        }
        let mut config = super::file::of_model(&model, &self.set)?;
        self.threads.over(&mut config)?;
        if let Some(flag) = self.set.iter().find(|flag| flag.trim_start().starts_with("data.skip_bad")) {
            return bad(format!(
                "--set {flag}: expected no setting of records to leave out, since each record gets an answer; for a malformed record, the answer is empty, and the reason is printed"
            ));
        }
        let model = model.answering(&config).memory_limit(self.memory.bytes());
        let batch = model.batch().texts(self.batch.max(1));
        if let Some(path) = &file {
            let on_file = OnFile {
                model: &model,
                config: &config,
                path,
                output: self.output.as_deref(),
                overwrite: self.overwrite,
                strict: self.lines.strict,
                quiet: self.quiet,
                batch,
            };
            return on_file.run();
        }
        let mut warned = false;
        let predict = |first: u64, texts: &[&str]| {
            if !warned
                && let Some((number, why)) =
                    (first..).zip(texts).find_map(|(n, t)| Some((n, record(&model, n, t)?)))
            {
                warned = true;
                terminal::say(format!("warning: standard input, line {number}: {why}"));
            }
            model.predict(texts)
        };
        self.lines.answer(batch, predict, |_, answer| terminal::columns(answer).join("\t"))
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  echo 'The models' | unpadded generate runs/lm-1 --length 200
  echo | unpadded generate runs/lm-1 --temperature 0.5 --seed 7")]
pub(crate) struct Generate {
    #[command(flatten)]
    which: ModelChoice,
    /// Length of the generated text in tokens, at most 100000
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=100_000))]
    length: u32,
    /// Temperature of sampling: below 1 likely tokens become likelier; 0 always takes the likeliest
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", default_value_t = 0.8)]
    temperature: f64,
    /// Top-k sampling: draw only from this many likeliest tokens [default: all]
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", value_parser = whole::<usize>)]
    top_k: Option<usize>,
    /// Top-p (nucleus) sampling: draw only from the likeliest tokens with this total probability
    #[arg(long, allow_negative_numbers = true, value_name = "SHARE", default_value_t = 1.0)]
    top_p: f64,
    /// Seed of the draws: equal seeds generate equal texts
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", default_value_t = 1, value_parser = whole::<u64>)]
    seed: u64,
    #[command(flatten)]
    threads: ThreadCount,
    #[command(flatten)]
    lines: Lines,
}

impl Generate {
    pub(crate) fn run(self) -> Outcome<Ending> {
        let Self { length, temperature, top_k, top_p, seed, .. } = self;
        let sampling = Sampling::default().temperature(temperature).top_k(top_k).top_p(top_p);
        sampling.sampler(seed).usage()?;
        let model = self.which.load()?.threads(self.threads.number);
        self.threads.over(&mut model.trained_by().clone())?;
        if !model.task().continues_texts() {
            let got = model.task().name();
            return bad(format!(
                "model: expected a language model (`lm`), got a model of `{got}`: use `unpadded predict`"
            ));
        }
        let json = self.lines.json;
        let write = |_, texts: &[&str]| {
            let mut all = Vec::new();
            for text in texts {
                let mut written = String::new();
                if !json {
                    // The command prints each piece of text as soon as the model has drawn it.
                    terminal::print_piece(text);
                }
                let mut session = model.begin()?;
                model.read(&mut session, text, &mut || ControlFlow::Continue(()))?;
                model.write_each(
                    &mut session,
                    &mut sampling.sampler(seed)?,
                    length as usize,
                    &mut |piece| {
                        match json {
                            true => written.push_str(piece),
                            false => terminal::print_piece(piece),
                        }
                        ControlFlow::Continue(())
                    },
                )?;
                all.push(Answer::Text(written));
            }
            Ok(all)
        };
        self.lines.answer(model.batch().texts(1), write, |_, _| String::new())
    }
}
