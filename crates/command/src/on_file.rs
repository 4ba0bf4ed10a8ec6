//! The command `unpadded predict RUN FILE`: answers the records of a file, and writes each record with its answer.

use std::io::{self, IsTerminal};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use unpadded::Error;
use unpadded_recipes::{Answer, AnswerBatch, Config, Model};
use unpadded_text::{Question, QuestionKind, Questions, path_of_text, text_of_path};

use super::interrupts::Interrupts;
use super::outcome::{Ending, Outcome, UsageError, bad, plain};
use super::output::{Output, check_ending};
use super::terminal;

/// The maximum number of failing records that are reported one by one.
const SHOWN: u64 = 20;
/// The file of records to answer, and the output of the answers.
pub(super) struct OnFile<'a> {
    pub(super) model: &'a Model,
    pub(super) config: &'a Config,
    pub(super) path: &'a str,
    /// The path of the output file; `None` for standard output.
    pub(super) output: Option<&'a Path>,
    pub(super) overwrite: bool,
    /// Whether the command stops at the first record without an answer.
    pub(super) strict: bool,
    pub(super) quiet: bool,
    pub(super) batch: AnswerBatch,
}

impl OnFile<'_> {
    pub(super) fn run(&self) -> Outcome<Ending> {
        let opened = self.model.questions(self.config, self.path).map_err(|e| self.advised(e));
        let (mut questions, added) = opened.usage()?;
        let parquet =
            self.output.is_some_and(|path| path.extension().is_some_and(|extension| extension == "parquet"));
        match (questions.has_lines(), self.output) {
            (true, Some(path)) if parquet => {
                let name = path.display();
                return bad(format!(
                    "--output {name}: expected the name of a text file, since {} has lines of text, got the name of a Parquet file",
                    questions.name()
                ));
            }
            (false, Some(path)) if !parquet => {
                let name = path.display();
                return bad(format!(
                    "--output {name}: expected a name that ends with `.parquet`, since the answers to a Parquet file are written as Parquet"
                ));
            }
            (false, None) if io::stdout().is_terminal() => {
                return bad("predict: expected `--output NAME.parquet` for a Parquet file, got a terminal");
            }
            (true, Some(path)) => check_ending(path, self.path, questions.read_as())?,
            _ => {}
        }
        // Signals are caught only for an output file, whose temporary file must be removed; else a signal ends the command at once.
        let interrupts = self.output.map(|_| Interrupts::catch()).transpose()?;
        let signal = || interrupts.as_ref().and_then(Interrupts::signal);
        let output = Output::open(self.output, self.path, self.overwrite)?;
        let named = |e| self.named(&e);
        questions
            .write_to(output.writer()?, &added.iter().map(String::as_str).collect::<Vec<_>>())
            .map_err(named)?;
        if !self.quiet {
            terminal::say(format!("{}: read as {}", questions.name(), questions.read_as()));
        }
        let mut done = AnswerProgress::new(self);
        let (mut waiting, mut size) = (Vec::new(), 0);
        loop {
            if let Some(signal) = signal() {
                return Ok(done.interrupted(signal));
            }
            let question = questions.next().transpose()?;
            let ended = question.is_none();
            size += question.as_ref().map_or(0, |question| question.text.as_ref().map_or(0, String::len));
            waiting.extend(question);
            if ended || self.batch.is_complete(waiting.len(), size) {
                // The answers of each batch are written at once, so they are kept if the command fails to read a later record.
                done.answer(&mut questions, &waiting)?;
                waiting.clear();
                size = 0;
            }
            if ended {
                break;
            }
        }
        questions.finish().map_err(named)?;
        if let Some(signal) = signal() {
            return Ok(done.interrupted(signal));
        }
        output.end()?;
        done.end()
    }

    /// Returns the message of an error, with the name of the output file.
    fn named(&self, e: &Error) -> String {
        self.output.map_or_else(|| plain(e), |path| format!("{}: {}", path.display(), plain(e)))
    }

    /// Adds the advice to give only the file of source texts, if the path names two files with parallel lines.
    fn advised(&self, error: Error) -> Error {
        let parts = self.path.split_once('{').zip(self.path.rsplit_once('}'));
        let Some(((before, _), (inside, behind))) = parts else { return error };
        let between = inside.get(before.len() + 1..).unwrap_or_default();
        if self.model.asking() != Some(QuestionKind::Source)
            || !between.contains(',')
            || path_of_text(self.path).exists()
        {
            return error;
        }
        let note = self.model.predictor().note("read as").and_then(|note| serde_json::from_str(note).ok());
        let languages: Value = note.unwrap_or_default();
        let source = languages["languages"][0].as_str();
        let source = source.filter(|source| between.split(',').any(|name| name == *source));
        let named = source.map(|source| format!(", as `{before}{source}{behind}`")).unwrap_or_default();
        error.noted(format!("give only the file of the source texts{named}"))
    }
}

/// Returns the answer of each text, or its error. After an error, the texts are answered one by one, so that the error names
/// the failing text and all other texts are answered. `predict` gets texts, and the position of the first one.
pub(super) fn answers(
    texts: &[&str],
    mut predict: impl FnMut(usize, &[&str]) -> unpadded::Result<Vec<Answer>>,
) -> Vec<Result<Answer, String>> {
    match predict(0, texts) {
        Ok(found) if found.len() == texts.len() => found.into_iter().map(Ok).collect(),
        // One text is not tried again, since the beginning of its answer may already be printed.
        Err(e) if texts.len() == 1 => vec![Err(plain(&e))],
        _ => {
            let alone = |(at, text): (usize, &&str)| match predict(at, &[text]) {
                Ok(found) => {
                    found.into_iter().next().ok_or_else(|| "expected an answer, got none".to_owned())
                }
                Err(e) => Err(plain(&e)),
            };
            texts.iter().enumerate().map(alone).collect()
        }
    }
}

/// Returns an error if records have no answer; `what` names the records.
pub(super) fn unanswered(failed: u64, all: u64, what: &str) -> Outcome<Ending> {
    if failed == 0 {
        Ok(Ending::Done)
    } else {
        Err(format!("{failed} of {all} {what} have no answer").into())
    }
}

/// The progress of answering the records of a file.
struct AnswerProgress<'a> {
    how: &'a OnFile<'a>,
    records: u64,
    failed: u64,
    /// The number of records without a text.
    empty: u64,
    begun: Instant,
    /// The time of the last progress line; `None` if progress is not shown.
    shown: Option<Instant>,
}

impl<'a> AnswerProgress<'a> {
    fn new(how: &'a OnFile<'a>) -> Self {
        let begun = Instant::now();
        let seen = !how.quiet && how.output.is_some() && io::stderr().is_terminal();
        Self { how, records: 0, failed: 0, empty: 0, begun, shown: seen.then_some(begun) }
    }

    fn answer(&mut self, questions: &mut Questions, asked: &[Question]) -> Outcome<()> {
        let texts: Vec<&str> = asked.iter().filter_map(|one| one.text.as_deref().ok()).collect();
        let mut found = answers(&texts, |_, texts| self.how.model.predict(texts)).into_iter();
        for question in asked {
            self.records += 1;
            let answer = match &question.text {
                Err(why) => Err(plain(why)),
                Ok(_) => {
                    let answer =
                        found.next().unwrap_or_else(|| Err("expected an answer, got none".to_owned()));
                    answer.map_err(|why| format!("{}:{}: {why}", questions.name(), question.line))
                }
            };
            let cells = match answer {
                Ok(answer) => {
                    self.empty += u64::from(answer == Answer::Empty);
                    answer.cells()
                }
                Err(why) => {
                    self.failed(why)?;
                    Vec::new()
                }
            };
            questions.answer(question, &cells).map_err(|e| self.how.named(&e))?;
        }
        self.show(questions.share());
        Ok(())
    }

    fn failed(&mut self, why: String) -> Outcome<()> {
        self.failed += 1;
        if self.how.strict {
            return Err(why.into());
        }
        match self.failed {
            0..=SHOWN => terminal::say(format!("error: {why}")),
            next if next == SHOWN + 1 => {
                terminal::say("error: further records without an answer are counted, but not listed")
            }
            _ => {}
        }
        Ok(())
    }

    fn rate(&self) -> String {
        let seconds = self.begun.elapsed().as_secs_f64();
        format!("{} records, {:.0} a second", self.records, self.records as f64 / seconds.max(1e-9))
    }

    fn show(&mut self, share: Option<f32>) {
        const EACH: Duration = Duration::from_millis(200);
        if self.shown.is_some_and(|shown| shown.elapsed() >= EACH) {
            self.shown = Some(Instant::now());
            let share = share.map(|share| format!(", {:.0} %", 100.0 * share)).unwrap_or_default();
            eprint!("\r{}{share}", self.rate());
        }
    }

    /// Reports that a signal interrupted the command. The caller drops the output, which removes the temporary file.
    fn interrupted(&self, signal: u8) -> Ending {
        if self.shown.is_some() {
            eprint!("\r");
        }
        let name = text_of_path(self.how.output.unwrap_or(Path::new("")));
        terminal::say(format!("interrupted after {} records: `{name}` is not written", self.records));
        Ending::Signal(signal)
    }

    fn end(self) -> Outcome<Ending> {
        if self.shown.is_some() {
            eprint!("\r");
        }
        if !self.how.quiet {
            self.how
                .output
                .inspect(|output| terminal::say(format!("{}: {}", text_of_path(output), self.rate())));
            terminal::say_empty(self.empty, self.records, "records");
        }
        unanswered(self.failed, self.records, "records")
    }
}
