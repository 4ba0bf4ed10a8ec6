//! Calls that fail, and the check that their errors name the line of the call.

use std::panic::Location;

use crate::refused::Outcome;

/// What was called, and where the call begins; the line that its error names, and its message.
#[derive(Default)]
pub(crate) struct Calls(Vec<(&'static str, &'static Location<'static>, Option<String>)>, Vec<String>);

impl Calls {
    /// A call that fails, written behind this one, on the same line or further down.
    #[track_caller]
    pub(crate) fn at<T: Outcome>(&mut self, name: &'static str, call: impl FnOnce() -> T) {
        let error = call().error();
        self.1.extend(error.as_ref().map(|e| format!("{name}: {}", without_line(&e.to_string()))));
        let text = error.map(|e| e.place().caller.clone().unwrap_or_else(|| format!("{e}: no line")));
        self.0.push((name, Location::caller(), text));
    }

    /// Returns the complaints: calls that did not fail, or whose error names a line before the call or after the next call.
    fn complaints(&self) -> Vec<String> {
        let next = |i: usize| self.0.get(i + 1).map(|(_, next, _)| next);
        let mut found = Vec::new();
        for (i, (name, from, text)) in self.0.iter().enumerate() {
            let end =
                next(i).filter(|next| next.file() == from.file()).map_or(from.line() + 12, |n| n.line());
            let text = text.as_deref().unwrap_or("no error");
            let line = text.strip_prefix(from.file()).and_then(|rest| rest.strip_prefix(':'));
            let line = line.and_then(|rest| rest.split(':').next()).and_then(|line| line.parse::<u32>().ok());
            if !line.is_some_and(|line| (from.line()..end.max(from.line() + 1)).contains(&line)) {
                found.push(format!("{name} at {}:{}: {text}", from.file(), from.line()));
            }
        }
        found
    }

    /// Checks the lines of the errors, and returns the messages.
    #[track_caller]
    pub(crate) fn messages(self) -> String {
        let wrong = self.complaints();
        assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
        self.1.join("\n")
    }
}

/// A message without the lines of this crate and without paths of this machine.
fn without_line(message: &str) -> String {
    let temporary = std::env::temp_dir().to_string_lossy().into_owned();
    // With the hyphen before it, as numbers in messages may contain the digits.
    let process = format!("-{}", std::process::id());
    let message = message.replace(&temporary, "TEMP").replace(&process, "-PROCESS");
    let mut parts = message.split(" (at ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| match part.split_once(')') {
        Some((location, rest)) if location.contains("tests/") => out + rest,
        _ => out + " (at " + part,
    })
}

/// A call that does not fail and a line that is another's are complained of.
#[test]
fn complaints_bite() {
    let mut calls = Calls::default();
    calls.at("succeeds", || unpadded::Result::Ok(()));
    let early: unpadded::Result<()> = Err(unpadded::Error::new("made", "too", "early"));
    calls.at("early", || early);
    calls.at("right", || Err::<(), _>(unpadded::Error::new("made", "here", "so")));
    let found = calls.complaints();
    assert!(found.len() == 2 && found[0].contains("no error") && found[1].starts_with("early"), "{found:?}");
}
