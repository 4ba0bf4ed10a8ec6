//! Detects the format of a file by its name, else by its first lines.

use std::io::Read;

use unpadded::{Error, Result};

use super::column::{LABEL, TAGS, TEXT, plain};
use super::options::ReadOptions;
use crate::format::{FileFormat, FormatKind, Task, extension, json};
use crate::source::lines::has_word;
use crate::source::reason::wrong_format;
use crate::source::records::{OneLine, Stream};
use crate::{FirstIndex, LabelledRow, TextFile};

/// Number of lines from which the format is detected.
const LOOKED_AT: usize = 20;

/// The four bytes with which each Parquet file begins and ends.
pub(crate) const PARQUET: &[u8; 4] = b"PAR1";

/// A detected format, and the reason for messages; the reason is `None` if the user has set the format.
#[derive(Debug, Clone)]
pub(crate) struct Guess {
    pub(crate) format: FileFormat,
    why: Option<String>,
}

impl Guess {
    /// Adds a note to an error: which format was detected, why, and how to override it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        match &self.why {
            Some(why) => error.noted(format!(
                "read as `{}`, since {why}; `format` (`data.format` in a config) overrides it",
                self.format
            )),
            None => error,
        }
    }

    /// Adds the note of [`Self::explain`] to each error among the records.
    pub(crate) fn explained<R: 'static>(&self, records: Stream<R>) -> Stream<R> {
        if self.why.is_none() {
            return records;
        }
        let guess = self.clone();
        Box::new(records.map(move |record| record.map_err(|e| guess.explain(e))))
    }
}

/// Returns the format of a file: the format in the options, else the detected format.
pub(crate) fn guess(file: &TextFile, options: &ReadOptions, task: Task) -> Result<Guess> {
    let guess = guessed(file, options, task)?;
    #[cfg(not(feature = "parquet"))]
    if guess.format == FileFormat::Parquet {
        return Err(no_parquet(file));
    }
    if let (Some(separator), Task::Tagged, FormatKind::Words) = (options.separator, task, guess.format.kind())
    {
        let what = format!("separator (`data.separator` in a config) of file `{}`", file.name());
        let expected = "none, since tabs or spaces separate the columns of words and tags";
        return Err(wrong_format(what, expected, format!("{separator:?}")));
    }
    Ok(guess)
}

#[cfg(not(feature = "parquet"))]
pub(super) fn no_parquet(file: &TextFile) -> Error {
    let what = format!("file `{}`, which is Parquet", file.name());
    let expected = "a build with the feature `parquet` (`--features parquet`)";
    wrong_format(what, expected, "a build without this feature")
}

fn guessed(file: &TextFile, options: &ReadOptions, task: Task) -> Result<Guess> {
    if let Some(format) = options.format {
        if format.may_have(task) {
            return Ok(Guess { format, why: None });
        }
        let known: Vec<String> = task.formats().iter().map(|format| format!("`{format}`")).collect();
        let what = format!("format of file `{}`, to be read as {}", file.name(), task.name());
        return Err(wrong_format(what, format!("one of {}", known.join(", ")), format!("`{format}`")));
    }
    let detected = |format, why: &str| Ok(Guess { format, why: Some(why.to_owned()) });
    let (name, mut bytes) = file.sample()?;
    let (name, mut first) = (name.to_lowercase(), [0; PARQUET.len()]);
    if bytes.read_exact(&mut first).is_ok() && first == *PARQUET {
        return detected(FileFormat::Parquet, "its first bytes are `PAR1`");
    }
    if let Some(other) = misnamed(file, task) {
        return Err(other);
    }
    if task == Task::Labelled && has_tags(file)? {
        let got = "a word and its tag in each of the first lines";
        return Err(of_other_task(file, task, got, TAGGER));
    }
    if let Some(format) = by_name(&name, task) {
        let ending = extension(&name).unwrap_or_default();
        return detected(format, &format!("its name ends with `.{ending}`"));
    }
    if file.list.is_some() || (task != Task::Plain && json::is_whole(file)?) {
        return detected(FileFormat::JsonLines, "it is a single JSON value");
    }
    let (format, why) = by_lines(file, task)?;
    detected(format, why)
}

/// Returns the options for a later file: as detected in the first file, or only the user's if its name shows another format.
pub(crate) fn alike(options: &ReadOptions, file: &TextFile, task: Task) -> ReadOptions {
    let other =
        by_name(&file.name(), task).is_some_and(|own| options.format.is_some_and(|known| known != own));
    match &options.as_set {
        Some(as_set) if other && as_set.format.is_none() => {
            let mut own = as_set.as_set();
            own.found.later = options.found.later;
            own
        }
        _ => options.clone(),
    }
}

/// Returns the format of a file by its extension; `None` if the task cannot have this format.
fn by_name(name: &str, task: Task) -> Option<FileFormat> {
    FileFormat::of_name(name).filter(|format| format.may_have(task))
}

/// Returns the error for a file whose name shows a format of another task; `None` for other names.
pub(crate) fn misnamed(file: &TextFile, task: Task) -> Option<Error> {
    let name = file.name();
    let format = FileFormat::of_name(&name).filter(|format| !format.may_have(task))?;
    let (what, advice) = match format.kind() {
        FormatKind::Words => ("words and tags", TAGGER),
        FormatKind::Lines(_) => ("words and their phonemes", "`--task translate` reads it"),
        // Other tasks than `lm` check the contents of rows of features, too.
        FormatKind::Features if task == Task::Plain => ("rows of features", "`--task classify` reads it"),
        FormatKind::Features
        | FormatKind::Table
        | FormatKind::Fields(_)
        | FormatKind::Text
        | FormatKind::Folders(_) => return None,
    };
    let ending = extension(&name).unwrap_or_default();
    Some(of_other_task(file, task, &format!("{what}, since its name ends with `.{ending}`"), advice))
}

fn of_other_task(file: &TextFile, task: Task, got: &str, advice: &str) -> Error {
    let error = wrong_format(format!("file `{}`", file.name()), task.name(), got).noted(advice);
    error.noted(match task {
        Task::Plain => "`format` (`data.format` in a config) `plain` reads it as text",
        Task::Labelled | Task::Pairs | Task::Tagged | Task::ToTag => {
            "`format` (`data.format` in a config) sets another format"
        }
    })
}

pub(super) const TAGGER: &str = "`--task tag` trains a tagger";

/// Returns whether a file has a word per line, and in the last column a tag of a scheme, such as `O` or `B-name`; or, with
/// blank lines between sentences, a tag of any kind. In a table, these sentences must be short, of different lengths, and
/// mostly with several tags: single blank lines between words and their labels show no sentences.
fn has_tags(file: &TextFile) -> Result<bool> {
    const LOOKED_AT: usize = 100;
    /// The greatest mean number of words of sentences in a table.
    const LONG: usize = 40;
    let (mut rows, mut blank) = (Vec::<(usize, String)>::new(), 0);
    let mut begins_at = vec![0];
    let names = |cells: &[&str], known: &str| cells.iter().any(|cell| has_word(known, &plain(cell)));
    let numbered = |cells: &[&str]| names(cells, "word token") && plain(cells[0]).starts_with("sentence");
    let line = OneLine(|_, line: &str| Ok(Some(line.to_owned())));
    for line in file.first_records(line)?.map_while(Result::ok).take(LOOKED_AT) {
        let separator = ['\t', ',', ';'].into_iter().find(|separator| line.contains(*separator));
        let cells: Vec<&str> = match separator {
            Some(separator) => line.split(separator).map(str::trim).collect(),
            None => line.split_whitespace().collect(),
        };
        match cells.last() {
            None | Some(&"") if begins_at.last() == Some(&rows.len()) => {
                blank += usize::from(!rows.is_empty())
            }
            None | Some(&"") => {
                blank += 1;
                begins_at.push(rows.len());
            }
            // A header names the columns of a word and its tag, or of a text and its label.
            Some(_) if rows.is_empty() && numbered(&cells) && names(&cells, TAGS) => return Ok(true),
            Some(_) if rows.is_empty() && names(&cells, TEXT) && names(&cells, LABEL) => return Ok(false),
            Some(last) => {
                let words = cells.iter().all(|cell| !cell.contains(char::is_whitespace));
                rows.push((if words { cells.len() } else { 0 }, last.trim_matches('"').to_owned()));
            }
        }
    }
    let mut widths: Vec<usize> = rows.iter().map(|row| row.0).collect();
    widths.sort_unstable();
    let width = widths.get(widths.len() / 2).copied().unwrap_or_default();
    let tags: Vec<&str> = rows.iter().filter(|row| row.0 == width).map(|(_, tag)| tag.as_str()).collect();
    if width < 2 || tags.len() * 10 < rows.len() * 8 {
        return Ok(false);
    }
    let begins = |tag: &&&str| {
        let ends = [tag.split(['-', '_']).next(), tag.rsplit(['-', '_']).next()];
        tag.contains(['-', '_']) && ends.into_iter().flatten().any(|kind| has_word("B I E S L U M", kind))
    };
    let (begun, outside) =
        (tags.iter().filter(begins).count(), tags.iter().filter(|tag| **tag == "O").count());
    let mixed = || {
        let runs: Vec<&[(usize, String)]> =
            begins_at.windows(2).filter_map(|ends| rows.get(ends[0]..ends[1])).collect();
        let several = runs.iter().filter(|run| run.iter().any(|row| row.1 != run[0].1)).count();
        let uneven = runs.iter().any(|run| run.len() != runs[0].len());
        uneven && several * 2 > runs.len() && rows.len() <= LONG * blank
    };
    let named = FileFormat::of_name(&file.name()).is_some();
    let sentences = blank > 1 && rows.len() >= 2 * blank && (!named || mixed());
    let outside_most = !named && outside * 2 >= tags.len();
    if !(sentences || outside_most || (begun + blank > 0 && (begun + outside) * 10 >= tags.len() * 9)) {
        return Ok(false);
    }
    // Lines of labels and texts, or of features, may have blank lines, too.
    let lines = file.head_lines(self::LOOKED_AT)?;
    let fits = |format: &FileFormat| match format.kind() {
        FormatKind::Lines(line_format) => lines.iter().all(|line| (line_format.fits)(line)),
        _ => false,
    };
    Ok(!Task::Labelled.formats().iter().any(fits) && !has_features(file).unwrap_or(false))
}

fn by_lines(file: &TextFile, task: Task) -> Result<(FileFormat, &'static str)> {
    let is_of_words = match task {
        Task::Plain => return Ok((FileFormat::Plain, "its name shows no other format")),
        Task::Tagged | Task::ToTag => true,
        Task::Labelled | Task::Pairs => false,
    };
    let lines = file.head_lines(LOOKED_AT)?;
    let all = |is: &dyn Fn(&str) -> bool| !lines.is_empty() && lines.iter().all(|line| is(line));
    if all(&|line| line.trim_start().starts_with('{')) {
        return Ok((FileFormat::JsonLines, "its lines begin with `{`"));
    }
    let is_list = |line: &str| serde_json::from_str::<Vec<serde::de::IgnoredAny>>(line).is_ok();
    if all(&is_list) {
        return Ok((FileFormat::JsonLines, "its lines are lists of JSON"));
    }
    no_features(file, task.name())?;
    for format in task.formats() {
        if let FormatKind::Lines(line_format) = format.kind()
            && all(&line_format.fits)
        {
            return Ok((format, line_format.why));
        }
    }
    // A file without records is not an error here: the reader of the records reports it.
    if is_of_words {
        return Ok((FileFormat::Columns, "it is a file and not JSON"));
    }
    if lines.iter().any(|line| line.contains('\t')) {
        return Ok((FileFormat::Tsv, "there are tabs in its first lines"));
    }
    if [',', ';', '|'].iter().any(|&separator| all(&|line| line.contains(separator))) {
        let why = "there is no tab, but a comma, a semicolon or a bar in each of its first lines";
        return Ok((FileFormat::Csv, why));
    }
    if task == Task::Pairs && !lines.is_empty() {
        return Err(wrong_format(
            format!("file `{}`", file.name()),
            "two texts per line, with a tab between the texts",
            "lines without a tab: two files whose lines belong together are named by one path, the source first, as `train.{de,en}`",
        ));
    }
    Ok((FileFormat::Tsv, "its first lines fit no other format"))
}

/// Refuses rows of numbered features where texts are expected; `wanted` describes the expected contents.
pub(crate) fn no_features(file: &TextFile, wanted: &str) -> Result<()> {
    if !has_features(file).unwrap_or(false) {
        return Ok(());
    }
    let got = "rows of numbered features, as in LIBSVM files, which only the task `classify` reads: from a file, or a file of a zip (`data.zip!train.svm`)";
    Err(wrong_format(format!("file `{}`", file.name()), format!("{wanted}, with words"), got))
}

/// Decides, by the name or the first lines of a file, whether the file has rows of numbered features.
pub(crate) fn has_features(file: &TextFile) -> Result<bool> {
    if let Some(format) = FileFormat::of_name(&file.name()) {
        return Ok(format == FileFormat::Libsvm);
    }
    // A row may have no entries, but a file in which each line has only a label is not a file of rows.
    let mut some = false;
    for line in file.head_lines(LOOKED_AT)? {
        match LabelledRow::of_line(&line, FirstIndex::Zero) {
            Ok(row) => some |= row.is_some_and(|row| !row.indices.is_empty()),
            Err(_) => return Ok(false),
        }
    }
    Ok(some)
}
