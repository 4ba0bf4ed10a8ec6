//! Escapes text before it is printed to a terminal, because names from files may contain control sequences of
//! terminals.

use std::fmt::{self, Display, Write};

/// A text that is displayed with escapes, such as `\u001b`, in place of control characters and marks of the reading
/// direction. Line breaks and tabs are not escaped.
///
/// Escaped JSON text has the same meaning as the original JSON text, because JSON has the same escapes.
///
/// ```
/// use unpadded::Printable;
/// assert_eq!(Printable("\u{1b}[31mred\u{202e}\nline 2").to_string(), "\\u001b[31mred\\u202e\nline 2");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Printable<T>(pub T);

impl<T: Display> Display for Printable<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(Escaping(f), "{}", self.0)
    }
}

impl Printable<&str> {
    /// Returns the text in quotation marks for a message, with `…` behind them if the text has more than `most`
    /// characters. Quotation marks, backslashes and characters that print nothing are escaped as in Rust, but combining
    /// marks and joiners, which scripts such as Devanagari need, are not.
    ///
    /// ```
    /// use unpadded::Printable;
    /// assert_eq!(Printable("हिन्दी\n\u{1b}").quoted(60), r#""हिन्दी\n\u{1b}""#);
    /// assert_eq!(Printable("a long text").quoted(6), "\"a long\"…");
    /// ```
    pub fn quoted(self, most: usize) -> String {
        let (mut out, mut before) = (String::from('"'), None);
        for c in self.0.chars().take(most) {
            match before {
                _ if c == '\'' => out.push(c),
                // A joiner between letters of ASCII has no effect, so a reader has to see it.
                Some(before) if matches!(c, '\u{200c}' | '\u{200d}') && !char::is_ascii(&before) => {
                    out.push(c)
                }
                // `escape_debug` escapes a combining mark only if it is the first character.
                Some(_) => out.extend(['a', c].iter().collect::<String>().escape_debug().skip(1)),
                None => out.extend(c.escape_debug()),
            }
            before = Some(c);
        }
        out.push('"');
        if self.0.chars().nth(most).is_some() {
            out.push('…');
        }
        out
    }
}

/// A writer that escapes text, and writes the escaped text to another writer.
pub(crate) struct Escaping<'a>(pub(crate) &'a mut dyn Write);

impl Write for Escaping<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        text.split_inclusive(is_command).try_for_each(|part| {
            let mut before = part.chars();
            match before.next_back().filter(|&c| is_command(c)) {
                Some(c) => write!(self.0, "{}\\u{:04x}", before.as_str(), u32::from(c)),
                None => self.0.write_str(part),
            }
        })
    }
}

/// Returns whether a character must be escaped: a control character of ASCII or C1 other than line feed and tab, or a
/// mark of Unicode's bidirectional algorithm.
fn is_command(c: char) -> bool {
    match c {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        c => c.is_control(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_escaped_and_nothing_else() {
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32) {
            let (text, number) = (format!("a{c}b"), u32::from(c));
            let hidden = match number {
                0x9 | 0xa => false,
                0..0x20 | 0x7f..0xa0 | 0x61c | 0x200e | 0x200f | 0x202a..0x202f | 0x2066..0x206a => true,
                _ => false,
            };
            let expected = if hidden { format!("a\\u{number:04x}b") } else { text.clone() };
            assert_eq!(Printable(text).to_string(), expected);
        }
    }

    #[test]
    fn quoted_text_keeps_its_marks_and_differs_from_debug_in_nothing_else() {
        for text in
            ["हिन्दी क्\u{200d}ष", "العَرَبِيَّة می\u{200c}خواهم", "e\u{301}", "👩\u{200d}👧 ☺\u{fe0f}", "it's"]
        {
            assert_eq!(Printable(text).quoted(99), format!("\"{text}\""));
        }
        for text in
            ["\u{301}a", "a\u{200d}b", "\"\\\0\n\t\r\u{1b}\u{85}", "\u{202e}\u{feff}\u{a0}\u{200b}\u{e0041}"]
        {
            assert_eq!(Printable(text).quoted(99), format!("{text:?}"));
        }
        for c in (0..=u32::from(char::MAX)).filter_map(char::from_u32).filter(|&c| is_command(c)) {
            assert!(!Printable(format!("é{c}").as_str()).quoted(9).contains(c));
        }
    }

    #[test]
    fn json_keeps_its_value() -> Result<(), serde_json::Error> {
        let value = serde_json::json!({ "\u{202e}a\u{0}": "\u{7f}\u{85}\n\t\u{1b}\u{2067}" });
        let read: serde_json::Value = serde_json::from_str(&Printable(&value).to_string())?;
        assert_eq!(read, value);
        Ok(())
    }
}
