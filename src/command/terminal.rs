//! Standard input, output and error. That nobody reads the output any more is no error.

use std::fmt::Display;
use std::io::{self, BufRead, BufReader, ErrorKind, IsTerminal, Read, Write};

use super::outcome::{Outcome, bad};
use unpadded::data::TextFile;

/// Writes a line to standard output.
pub(crate) fn print(text: impl Display) -> Outcome<()> {
    print_bytes(format!("{text}\n").as_bytes())
}

/// Writes to standard output; ends quietly where nobody reads any more.
pub(crate) fn print_bytes(bytes: &[u8]) -> Outcome<()> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        Err(e) => Err(format!("standard output: {e}").into()),
        Ok(()) => Ok(()),
    }
}

/// A text in a line, which no character of control breaks or colours: ends of lines and the like as they are written in programs.
pub(crate) fn shown(text: &str) -> String {
    text.chars().fold(String::new(), |text, c| {
        if c.is_control() {
            text + &c.escape_default().to_string()
        } else {
            text + c.encode_utf8(&mut [0; 4])
        }
    })
}

/// Writes to the standard error, if that is still there.
pub(crate) fn say(text: impl Display) {
    drop(writeln!(io::stderr(), "{text}"));
}

/// Gives the lines of standard input in parts: all that has come, at most so many.
pub(crate) fn lines(most: usize, mut each: impl FnMut(&[String]) -> Outcome<()>) -> Outcome<()> {
    let mut input = BufReader::new(io::stdin().lock());
    if io::stdin().is_terminal() {
        say("one text a line; Ctrl-D ends");
    }
    let (mut waiting, mut number, mut bytes) = (Vec::new(), 0u64, Vec::new());
    loop {
        number += 1;
        bytes.clear();
        let wrong = |e: &dyn Display| format!("standard input, line {number}: {e}");
        let mut part = input.by_ref().take(TextFile::MAX_LINE as u64 + 1);
        let ended = part.read_until(b'\n', &mut bytes).map_err(|e| wrong(&e))? == 0;
        if !ended {
            if bytes.len() > TextFile::MAX_LINE {
                let expected = format!("expected at most {} bytes, got more", TextFile::MAX_LINE);
                return bad(wrong(&expected));
            }
            let Ok(text) = std::str::from_utf8(&bytes) else {
                return bad(wrong(&"expected UTF-8, got other bytes"));
            };
            let text = if number == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
            let text = text.strip_suffix('\n').unwrap_or(text);
            waiting.push(text.strip_suffix('\r').unwrap_or(text).to_owned());
        }
        // Whoever types a line, or another program that waits for its answer, gets it at once.
        let more = input.buffer().contains(&b'\n');
        if !waiting.is_empty() && (ended || waiting.len() >= most || !more) {
            each(&waiting)?;
            waiting.clear();
        }
        if ended {
            return Ok(());
        }
    }
}
