//! `unpadded predict RUN FILE`: the records of a file are answered, each with all that the file has of it.

use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::outcome::{Asked, Ended, Outcome, bad, plain};
use super::terminal;
use unpadded::data::{Question, Questions};
use unpadded::recipes::{Answer, Config, Model, Task};
use unpadded::{Error, Printable};

/// Text limit of taggers and translators, in characters: the whole text is in memory, at some kilobytes per character.
const MOST_CHARACTERS: usize = 1 << 18;
/// How many bad records are shown one by one.
const SHOWN: u64 = 20;
/// Limit of the records that are answered together, in bytes of text: what a batch computes is all in memory.
const BYTES_TOGETHER: usize = 1 << 16;
/// The same of taggers, which also read the characters of each word, and of translators.
const WORDS_TOGETHER: usize = 1 << 14;

/// What is asked, and where the answers are written.
pub(super) struct OnFile<'a> {
    pub(super) model: &'a Model,
    pub(super) config: &'a Config,
    pub(super) path: &'a str,
    /// Standard output without it.
    pub(super) output: Option<&'a Path>,
    pub(super) overwrite: bool,
    /// End at the first record that cannot be answered.
    pub(super) strict: bool,
    pub(super) quiet: bool,
    /// How many records are answered together.
    pub(super) batch: usize,
}

impl OnFile<'_> {
    pub(super) fn run(&self) -> Outcome<Ended> {
        let (mut questions, added) = self.model.questions(self.config, self.path).asked()?;
        let parquet = self.output.is_some_and(|path| path.extension().is_some_and(|of| of == "parquet"));
        match (questions.has_lines(), self.output) {
            (true, Some(path)) if parquet => {
                let name = path.display();
                return bad(format!(
                    "--output {name}: expected a name for lines of text, as {} has, got one of Parquet",
                    questions.name()
                ));
            }
            (false, Some(path)) if !parquet => {
                let name = path.display();
                return bad(format!(
                    "--output {name}: expected a name that ends with `.parquet`, since answers to Parquet are Parquet"
                ));
            }
            (false, None) if io::stdout().is_terminal() => {
                return bad("predict: expected `--output NAME.parquet` for Parquet, got a terminal");
            }
            _ => {}
        }
        let output = Output::open(self.output, Path::new(self.path), self.overwrite)?;
        let named = |e: unpadded::Error| match self.output {
            Some(path) => format!("{}: {}", path.display(), plain(&e)),
            None => plain(&e),
        };
        questions.write_to(output.writer()?, &added).map_err(named)?;
        if !self.quiet {
            terminal::say(format!("{}: read as {}", questions.name(), questions.read_as()));
        }
        let mut done = Done::new(self);
        let most = if reads_whole(self.model) { WORDS_TOGETHER } else { BYTES_TOGETHER };
        let (mut waiting, mut size) = (Vec::new(), 0);
        loop {
            let question = questions.next().transpose()?;
            let ended = question.is_none();
            size += question.as_ref().map_or(0, |question| question.text.as_ref().map_or(0, String::len));
            waiting.extend(question);
            if ended || waiting.len() >= self.batch || size >= most {
                // What was answered before an error is there.
                done.answer(&mut questions, &waiting)?;
                waiting.clear();
                size = 0;
            }
            if ended {
                break;
            }
        }
        questions.finish().map_err(named)?;
        output.end()?;
        done.end()
    }
}

/// What has become of the records so far.
struct Done<'a> {
    how: &'a OnFile<'a>,
    records: u64,
    failed: u64,
    begun: Instant,
    /// When the progress was shown last; never where nobody sees it.
    shown: Option<Instant>,
}

impl<'a> Done<'a> {
    fn new(how: &'a OnFile<'a>) -> Self {
        let begun = Instant::now();
        let seen = !how.quiet && how.output.is_some() && io::stderr().is_terminal();
        Self { how, records: 0, failed: 0, begun, shown: seen.then_some(begun) }
    }

    fn answer(&mut self, questions: &mut Questions, asked: &[Question]) -> Outcome<()> {
        let texts: Vec<&str> = asked.iter().filter_map(|one| one.text.as_deref().ok()).collect();
        let found = answers(self.how.model, &texts).ok().filter(|found| found.len() == texts.len());
        let mut found = found.map(Vec::into_iter);
        for question in asked {
            self.records += 1;
            let answer = match (&question.text, &mut found) {
                (Err(why), _) => Err(plain(why)),
                (Ok(_), Some(found)) => found.next().ok_or_else(|| "expected an answer, got none".to_owned()),
                // One by one, so that the bad record is named and all others are answered.
                (Ok(text), None) => answers(self.how.model, &[text])
                    .map_err(|e| format!("{}:{}: {}", questions.name(), question.line, plain(&e)))
                    .and_then(|found| {
                        found.into_iter().next().ok_or_else(|| "expected an answer, got none".to_owned())
                    }),
            };
            let cells = match answer {
                Ok(answer) => answer.cells(),
                Err(why) => {
                    self.failed(why)?;
                    Vec::new()
                }
            };
            questions.answer(question, &cells).map_err(|e| match self.how.output {
                Some(path) => format!("{}: {}", path.display(), plain(&e)),
                None => plain(&e),
            })?;
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
            next if next == SHOWN + 1 => terminal::say("error: more such records are only counted"),
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

    fn end(self) -> Outcome<Ended> {
        if self.shown.is_some() {
            eprint!("\r");
        }
        if let (Some(output), false) = (self.how.output, self.how.quiet) {
            terminal::say(format!("{}: {}", output.display(), self.rate()));
        }
        match self.failed {
            0 => Ok(Ended::Done),
            failed => Err(format!("{failed} of {} records have no answer", self.records).into()),
        }
    }
}

/// A file that is there once it is whole, or standard output.
enum Output {
    Standard,
    File { file: File, path: PathBuf, temporary: Temporary },
}

/// Standard output, whose text is without what commands a terminal.
struct Standard {
    waiting: Vec<u8>,
    terminal: bool,
}

impl Write for Standard {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        const TOGETHER: usize = 1 << 16;
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= TOGETHER {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let waiting = std::mem::take(&mut self.waiting);
        let written = match self.terminal {
            true => {
                let text = Printable(String::from_utf8_lossy(&waiting)).to_string();
                terminal::print_bytes(text.as_bytes())
            }
            false => terminal::print_bytes(&waiting),
        };
        written.map_err(|_| io::Error::other("standard output cannot be written"))
    }
}

impl Drop for Standard {
    fn drop(&mut self) {
        self.flush().ok();
    }
}

/// A file that is removed unless it got its name.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

impl Output {
    fn open(path: Option<&Path>, input: &Path, overwrite: bool) -> Outcome<Self> {
        let Some(path) = path else { return Ok(Self::Standard) };
        let name = path.display();
        let real = |path: &Path| fs::canonicalize(path).ok();
        if path.exists() {
            if !path.is_file() {
                return bad(format!(
                    "--output {name}: expected the name of a file, got a folder or a device"
                ));
            }
            if real(input) == real(path) {
                return bad(format!("--output {name}: expected another file than the one that is read"));
            }
            if !overwrite {
                return bad(format!(
                    "--output {name}: expected a new file, got one that is there; --overwrite replaces it"
                ));
            }
        }
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.part", std::process::id()));
        let file = File::create_new(&temporary).map_err(|e| format!("--output {name}: {e}"))?;
        Ok(Self::File { file, path: path.to_owned(), temporary: Temporary(temporary.into()) })
    }

    /// What answers are written by.
    fn writer(&self) -> Outcome<Box<dyn Write + Send>> {
        Ok(match self {
            Self::Standard => {
                Box::new(Standard { waiting: Vec::new(), terminal: io::stdout().is_terminal() })
            }
            Self::File { file, path, .. } => {
                let file = file.try_clone().map_err(|e| format!("{}: {e}", path.display()))?;
                Box::new(BufWriter::with_capacity(1 << 16, file))
            }
        })
    }

    /// Gives the file its name.
    fn end(self) -> Outcome<()> {
        let Self::File { file, path, temporary } = self else { return Ok(()) };
        let wrong = |e: io::Error| format!("{}: {e}", path.display());
        file.sync_all().map_err(wrong)?;
        Ok(fs::rename(&temporary.0, &path).map_err(wrong)?)
    }
}

/// Whether a model computes something for each word or character of a text at once.
fn reads_whole(model: &Model) -> bool {
    matches!(model.task(), Task::Tag | Task::Translate)
}

/// An answer for each text, none of which may be too long.
pub(super) fn answers(model: &Model, texts: &[&str]) -> unpadded::Result<Vec<Answer>> {
    let whole = reads_whole(model);
    let sizes = texts.iter().map(|text| text.chars().count());
    match sizes.max().filter(|&size| whole && size > MOST_CHARACTERS) {
        Some(size) => Err(Error::new(
            "text",
            format!("at most {MOST_CHARACTERS} characters"),
            format!("{size}: split it into several lines"),
        )),
        None => model.predict(texts),
    }
}
