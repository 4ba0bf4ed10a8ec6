//! Parallel files: line `n` of each file belongs to line `n` of every other file.

use std::sync::Arc;

use unpadded::{Error, Result};

use crate::source::lines::Lines;
use crate::source::reason::{Reason, wrong_format};
use crate::source::records::{Stream, to_first_error, unbroken};
use crate::{Pair, TextFile};

/// A line of each file, or the index of a file whose line is malformed, and the reason.
type ParallelLines = Result<Vec<String>, (usize, Reason)>;

/// The name and the lines of each file, and the number of lines that were read so far.
struct Parallel(Vec<(String, Lines, u64)>);

impl Parallel {
    /// Returns the next line of each file; `None` if all files end.
    fn next(&mut self) -> Result<Option<ParallelLines>> {
        let mut lines = Vec::with_capacity(self.0.len());
        for (_, file, count) in &mut self.0 {
            if let Some(line) = file.next()? {
                *count += 1;
                lines.push(line.map(std::borrow::Cow::into_owned));
            }
        }
        match lines.len() {
            0 => Ok(None),
            all if all == self.0.len() => {
                let whole =
                    |line: Result<String, Reason>| line.and_then(|line| unbroken(&line).map(|()| line));
                let whole_line = |(at, line)| whole(line).map_err(|reason| (at, reason));
                Ok(Some(lines.into_iter().enumerate().map(whole_line).collect()))
            }
            _ => Err(self
                .uneven()?
                .unwrap_or_else(|| Error::new("lines", "the same number in all files", "different numbers"))),
        }
    }

    /// Returns the error for a file that has more or fewer lines than the first file.
    fn uneven(&mut self) -> Result<Option<Error>> {
        for (_, file, count) in &mut self.0 {
            while file.next()?.is_some() {
                *count += 1;
            }
        }
        let [(first, _, all), others @ ..] = &self.0[..] else { return Ok(None) };
        let other = others.iter().find(|(_, _, count)| count != all);
        Ok(other.map(|(name, _, count)| {
            let expected = format!("{all}, as many as `{first}` has");
            wrong_format(format!("lines of file `{name}`"), expected, count.to_string())
        }))
    }
}

/// Reads parallel files: `record` makes a record of line `n` of every file; its error has the index of a file.
pub(crate) fn records<R: 'static>(
    files: &[&TextFile],
    mut record: impl FnMut(u64, &[String]) -> Result<Option<R>, (usize, Reason)> + Send + 'static,
) -> Result<Stream<R>> {
    let opened = files.iter().map(|file| Ok((file.name(), file.lines_of()?, 0)));
    let (mut lines, mut number) = (Parallel(opened.collect::<Result<_>>()?), 0);
    let log = files.first().and_then(|file| file.skips.clone());
    Ok(to_first_error(move || {
        while let Some(found) = lines.next()? {
            number += 1;
            match found.and_then(|found| record(number, &found)) {
                Ok(None) => {}
                Ok(Some(record)) => return Ok(Some(record)),
                // Files whose numbers of lines differ are an error at their end, since their lines do not belong together.
                Err((at, reason)) => {
                    let Some((name, file, _)) = lines.0.get(at) else { return Ok(None) };
                    let Some(log) = &log else {
                        let error = reason.at(format!("{name}:{number}"));
                        return Err(lines.uneven()?.unwrap_or(error));
                    };
                    log.add(name, [number, 0], &reason, &file.lossy())?;
                }
            }
        }
        Ok(None)
    }))
}

/// Reads two parallel files as pairs. A line that is blank in both files is skipped.
pub(crate) fn pairs(source: &TextFile, target: &TextFile) -> Result<Stream<Pair>> {
    let names = [source.name(), target.name()];
    let file: Arc<str> = Arc::from(names[0].as_str());
    records(&[source, target], move |number, lines| {
        let [source, target] = lines else { return Ok(None) };
        let blank = |at: usize, other: usize| {
            let other = names.get(other).map_or("", String::as_str);
            let expected = format!("a text, since line {number} of `{other}` has a text");
            Err((at, Reason::of(expected, "a blank line")))
        };
        match (source.trim().is_empty(), target.trim().is_empty()) {
            (true, true) => Ok(None),
            (true, false) => blank(0, 1),
            (false, true) => blank(1, 0),
            (false, false) => Ok(Some(Pair::new(source.as_str(), target.as_str()).placed(&file, number))),
        }
    })
}
