//! Standard input, standard output and standard error of the command. If the reader of standard output, such as `head`,
//! closes the output early, the command ends without an error.
//!
//! All plain text is escaped by [`Printable`], even in a pipe: plain lines are for people. `--json` writes the exact text.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, ErrorKind, IsTerminal, Read, Write};

use clap::Args;
use serde_json::Value;
use unpadded::Printable;
use unpadded_recipes::{Answer, AnswerBatch};
use unpadded_text::TextFile;

use super::outcome::{Outcome, unwritten};

/// Output of a command: the result to standard output, messages to standard error.
#[derive(Args, Clone, Copy)]
pub(crate) struct Console {
    /// JSON output: the result as one line of JSON on standard output, all else on standard error
    #[arg(long)]
    pub(crate) json: bool,
    /// Quiet: the result alone, without progress, headings, examples or tables of classes
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

impl Console {
    /// Writes a line of the result for people: to standard output, or with `--json` to standard error.
    pub(crate) fn result(self, text: impl Display) -> Outcome<()> {
        match (self.json, self.quiet) {
            (false, _) => print(text),
            (true, false) => {
                say(text);
                Ok(())
            }
            (true, true) => Ok(()),
        }
    }

    /// Writes a heading, an example or another line that is not part of the result; writes nothing with `--quiet`.
    pub(crate) fn more(self, text: impl Display) -> Outcome<()> {
        if self.quiet { Ok(()) } else { self.result(text) }
    }

    /// Writes the result as one line of JSON, if `--json` is set.
    pub(crate) fn object(self, value: impl FnOnce() -> Value) -> Outcome<()> {
        if self.json { print(value()) } else { Ok(()) }
    }
}

pub(crate) fn print(text: impl Display) -> Outcome<()> {
    print_bytes(format!("{}\n", Printable(text)).as_bytes())
}

/// Writes a part of a line; the call of [`print`] that ends the line reports an error.
pub(crate) fn print_piece(text: &str) {
    print_bytes(Printable(text).to_string().as_bytes()).ok();
}

/// Writes bytes to standard output; if the reader has closed the output, ends the command without an error.
pub(crate) fn print_bytes(bytes: &[u8]) -> Outcome<()> {
    write_bytes(bytes).map_err(|e| unwritten("standard output", &e))
}

/// Writes bytes as [`print_bytes`] does, and returns the error of the system.
pub(crate) fn write_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        written => written,
    }
}

/// Returns a text for use within a line: control characters are escaped, including line breaks and tabs.
pub(crate) fn shown(text: &str) -> String {
    Printable(text).to_string().replace('\n', "\\n").replace('\t', "\\t")
}

/// Returns a text for use within a line, shortened to `most` characters if the text is longer.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let text = shown(text);
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// Returns the width of a text in columns of a terminal: 0 for a combining mark, 2 for a wide character of East Asia.
pub(crate) fn width(text: &str) -> usize {
    let width_of = |c: char| match c {
        ' '..='~' => 1,
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{a4cf}'
        | '\u{ac00}'..='\u{d7a3}' => 2,
        '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}' => 2,
        '\u{1f300}'..='\u{1f64f}' | '\u{1f900}'..='\u{1f9ff}' | '\u{20000}'..='\u{3fffd}' => 2,
        // `escape_debug` escapes a combining mark or a joiner, and no letter.
        c => usize::from(c.escape_debug().len() == 1),
    };
    text.chars().map(width_of).sum()
}

/// Returns the columns of an answer that is printed as a plain line, not as JSON.
pub(crate) fn columns(answer: &Answer) -> Vec<String> {
    answer.columns().iter().map(|column| shown(column)).collect()
}

/// Writes a line to standard error; ignores an error, for example if standard error is closed.
pub(crate) fn say(text: impl Display) {
    drop(writeln!(io::stderr(), "{}", Printable(text)));
}

/// Reports how many records have no text, if there are any; `what` names the records.
pub(crate) fn say_empty(empty: u64, all: u64, what: &str) {
    if empty > 0 {
        say(format!("{empty} of {all} {what} have no text; their answers are empty"));
    }
}

/// A line of standard input and its number, from 1 on.
pub(crate) struct Line {
    pub(crate) number: u64,
    /// The text without its line end, or the reason why the line cannot be read.
    pub(crate) text: Result<String, String>,
}

/// Passes the lines of standard input to `each` in batches of the lines that have arrived so far.
pub(crate) fn lines(batch: AnswerBatch, mut each: impl FnMut(&[Line]) -> Outcome<()>) -> Outcome<()> {
    let mut input = BufReader::with_capacity(1 << 16, io::stdin().lock());
    if io::stdin().is_terminal() {
        say("one text per line; Ctrl-D ends the input");
    }
    let (mut waiting, mut number, mut size) = (Vec::new(), 0, 0);
    loop {
        number += 1;
        let line = line(&mut input, number).map_err(|e| format!("standard input, line {number}: {e}"))?;
        let ended = line.is_none();
        size += line.as_ref().map_or(0, |line| line.text.as_ref().map_or(0, String::len));
        waiting.extend(line);
        // A batch ends when no further whole line has arrived, since a person or a program may be waiting for the answers.
        let more = input.buffer().contains(&b'\n') && !batch.is_complete(waiting.len(), size);
        if !waiting.is_empty() && (ended || !more) {
            each(&waiting)?;
            waiting.clear();
            size = 0;
        }
        if ended {
            return Ok(());
        }
    }
}

/// Reads the next line of standard input; `None` at the end of the input.
fn line(input: &mut impl BufRead, number: u64) -> io::Result<Option<Line>> {
    let mut bytes = Vec::new();
    // The limit on the bytes of a line leaves room for a line end of two bytes.
    let most = TextFile::MAX_LINE as u64 + 2;
    let read = input.by_ref().take(most).read_until(b'\n', &mut bytes)?;
    if read == 0 {
        return Ok(None);
    }
    if read as u64 == most && !bytes.ends_with(b"\n") {
        input.skip_until(b'\n')?;
    }
    let line = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let line = if number == 1 { line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line) } else { line };
    let text = match std::str::from_utf8(line) {
        _ if line.len() > TextFile::MAX_LINE => Err(format!(
            "expected at most {} bytes, got more: split the text into several lines",
            TextFile::MAX_LINE
        )),
        // A line with the byte 0 is refused, as in files.
        Ok(text) if text.contains('\0') => {
            Err("expected text, got byte 0x00: is it UTF-16? `iconv -f UTF-16 -t UTF-8` converts it"
                .to_owned())
        }
        Ok(text) => Ok(text.to_owned()),
        Err(_) if line.starts_with(&[0xff, 0xfe]) || line.starts_with(&[0xfe, 0xff]) => {
            Err("expected UTF-8, got UTF-16: `iconv -f UTF-16 -t UTF-8` converts it".to_owned())
        }
        Err(e) => {
            let at = e.valid_up_to();
            let byte = line.get(at).copied().unwrap_or_default();
            Err(format!(
                "expected UTF-8, got byte 0x{byte:02x} at place {at}: convert the text, as by `iconv -t UTF-8`"
            ))
        }
    };
    Ok(Some(Line { number, text }))
}

#[cfg(test)]
mod tests {
    use super::width;

    #[test]
    fn combining_marks_have_no_width() {
        let texts = ["label", "e\u{301}", "हिन्दी", "مُحَمَّد", "中文标签", "a\u{200d}", "ｗ…–’"];
        assert_eq!(texts.map(width), [5, 1, 5, 4, 8, 1, 5]);
    }
}
