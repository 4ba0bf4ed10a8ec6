//! Writes a profile in Chrome's trace event format.

use std::fmt::Write;

use crate::executor::observe::profile::Profile;
use crate::executor::run::recorder::{Event, EventKind, MOST_EVENTS};

impl Profile {
    /// Returns the recorded runs as JSON in Chrome's trace event format, for `about:tracing` or Perfetto. The JSON has one
    /// process, with the calls of each thread of the executor.
    ///
    /// A loop has too many steps to write one event per step. Instead, each loop has one event for all its steps, from its
    /// first to its last moment, and inside that event one event per instruction. The length of an instruction's event is the
    /// total time of its calls (`"calls"` is their number). The events are placed one after another and do not show when the
    /// calls ran. An inner loop has no events of its own: its instructions are listed with the instructions of the outer loop.
    /// A thread records at most 65,536 events; `otherData` in the JSON has the number of dropped events.
    pub fn chrome_trace(&self) -> String {
        let dropped: u64 = self.recorders.iter().map(|recorder| recorder.dropped).sum();
        let mut out = format!(
            r#"{{"displayTimeUnit":"ms","otherData":{{"runs":{},"most_events_a_thread":{MOST_EVENTS},"dropped_events":{dropped}}},"traceEvents":[{}"#,
            self.runs, r#"{"name":"process_name","ph":"M","pid":1,"tid":0,"args":{"name":"unpadded"}}"#
        );
        for (thread, recorder) in self.recorders.iter().enumerate() {
            // Writing to a `String` does not fail.
            let _ = write!(
                out,
                ",\n{{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":1,\"tid\":{thread},\"args\":{{\"name\":\"thread {thread}\"}}}}"
            );
            for event in &recorder.events {
                out.push_str(",\n");
                self.event(event, thread, &mut out);
            }
        }
        out.push_str("]}\n");
        out
    }

    fn event(&self, event: &Event, thread: usize, out: &mut String) {
        let name = |index: usize| self.names.get(index).map_or("", String::as_str);
        let (name, category, index) = match event.kind {
            EventKind::Run => ("run".to_owned(), "run", None),
            EventKind::Call(i) => (name(i).to_owned(), "call", Some(i)),
            EventKind::Pack(i) => (format!("prepare {}", name(i)), "prepare", Some(i)),
            EventKind::Loop(i) => (name(i).to_owned(), "loop", Some(i)),
            EventKind::Body(i) => (format!("{}: steps", name(i)), "steps", Some(i)),
            EventKind::InBody(i) => (format!("{} x {}", name(i), event.calls), "calls of all steps", Some(i)),
        };
        let micros = |time: std::time::Duration| time.as_nanos() as f64 / 1e3;
        let _ = write!(
            out,
            r#"{{"name":"{}","cat":"{category}","ph":"X","pid":1,"tid":{thread},"ts":{:.3},"dur":{:.3},"args":{{"calls":{}"#,
            escaped(&name),
            micros(event.start),
            micros(event.length),
            event.calls
        );
        if let Some(index) = index {
            let _ = write!(out, r#","instruction":{index}"#);
        }
        out.push_str("}}");
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::escaped;

    #[test]
    fn names_are_escaped() {
        assert_eq!(escaped("a \"b\" \\ c\n\u{7}é"), "a \\\"b\\\" \\\\ c\\u000a\\u0007é");
    }
}
