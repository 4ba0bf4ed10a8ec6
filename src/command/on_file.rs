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
/// Limit of the records that are answered together, in bytes of text.
const BYTES_TOGETHER: usize = 1 << 18;

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
        let mut out = Output::open(self.output, Path::new(self.path), self.overwrite)?;
        let head = questions.head(&added);
        if !self.quiet {
            terminal::say(format!("{}: read as {}", questions.name(), questions.read_as()));
        }
        out.write(&head)?;
        let mut done = Done::new(self);
        let (mut waiting, mut size) = (Vec::new(), 0);
        loop {
            let question = questions.next().transpose()?;
            let ended = question.is_none();
            size += question.as_ref().map_or(0, |question| question.text.as_ref().map_or(0, String::len));
            waiting.extend(question);
            if ended || waiting.len() >= self.batch || size >= BYTES_TOGETHER {
                if let Err(e) = done.answer(&questions, &waiting, &mut out) {
                    // What was answered before it is there.
                    out.flush()?;
                    return Err(e);
                }
                waiting.clear();
                size = 0;
            }
            if ended {
                break;
            }
        }
        out.write(&questions.tail())?;
        out.end()?;
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

    fn answer(&mut self, questions: &Questions, asked: &[Question], out: &mut Output) -> Outcome<()> {
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
            match answer {
                Ok(answer) => out.write(&questions.written(question, &answer.cells()))?,
                Err(why) => {
                    self.failed(why)?;
                    out.write(&questions.written(question, &[]))?;
                }
            }
        }
        self.show();
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

    fn show(&mut self) {
        const EACH: Duration = Duration::from_millis(200);
        if self.shown.is_some_and(|shown| shown.elapsed() >= EACH) {
            self.shown = Some(Instant::now());
            eprint!("\r{}", self.rate());
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
    Standard(Vec<u8>),
    File { file: BufWriter<File>, path: PathBuf, temporary: Temporary },
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
        let Some(path) = path else { return Ok(Self::Standard(Vec::new())) };
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
        let (file, temporary) = (BufWriter::with_capacity(1 << 16, file), Temporary(temporary.into()));
        Ok(Self::File { file, path: path.to_owned(), temporary })
    }

    fn write(&mut self, text: &str) -> Outcome<()> {
        match self {
            Self::Standard(waiting) => {
                waiting.extend_from_slice(text.as_bytes());
                if waiting.len() >= 1 << 16 { self.flush() } else { Ok(()) }
            }
            Self::File { file, path, .. } => {
                file.write_all(text.as_bytes()).map_err(|e| format!("{}: {e}", path.display()).into())
            }
        }
    }

    fn flush(&mut self) -> Outcome<()> {
        if let Self::Standard(waiting) = self {
            match io::stdout().is_terminal() {
                true => {
                    terminal::print_bytes(Printable(String::from_utf8_lossy(waiting)).to_string().as_bytes())?
                }
                false => terminal::print_bytes(waiting)?,
            }
            waiting.clear();
        }
        Ok(())
    }

    /// Gives the file its name.
    fn end(mut self) -> Outcome<()> {
        self.flush()?;
        if let Self::File { mut file, path, temporary } = self {
            let wrong = |e: io::Error| format!("{}: {e}", path.display());
            file.flush().and_then(|()| file.get_ref().sync_all()).map_err(wrong)?;
            fs::rename(&temporary.0, &path).map_err(wrong)?;
        }
        Ok(())
    }
}

/// An answer for each text, none of which may be too long.
pub(super) fn answers(model: &Model, texts: &[&str]) -> unpadded::Result<Vec<Answer>> {
    let whole = matches!(model.task(), Task::Tag | Task::Translate);
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
