//! The progress bar of a training on a terminal.

use std::fmt::Display;
use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};

pub(super) struct Bar(ProgressBar);

impl Bar {
    /// Returns a bar for `batches` batches; `None` if the standard error is no terminal.
    pub(super) fn new(batches: u64) -> Option<Self> {
        std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{prefix} {wide_bar} {msg}");
            let bar = ProgressBar::new(batches);
            Self(style.map_or(bar.clone(), |style| bar.with_style(style)))
        })
    }

    /// Prints a line of text above the bar.
    pub(super) fn say(&self, line: &dyn Display) {
        self.0.suspend(|| drop(writeln!(std::io::stderr(), "{line}")));
    }

    pub(super) fn show(&self, [done, batches]: [u64; 2], epoch: String, text: String) {
        self.0.set_length(batches);
        self.0.set_position(done);
        self.0.set_prefix(epoch);
        self.0.set_message(text);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
