//! Formatting of text and numbers for a report; text from outside passes through [`escape`] or [`shortened`].

use std::fmt::Display;

/// The maximum length of a word that is shown whole, in characters.
pub(super) const WORD: usize = 60;
/// The maximum length of a label, name or value that is shown whole, in characters.
pub(super) const LABEL: usize = 120;
/// The maximum length of a text that is shown whole, in characters.
pub(super) const TEXT: usize = 2_000;
/// The maximum number of words of a text that are shown.
pub(super) const WORDS: usize = 250;

/// Appends formatted text to a string, to which writing cannot fail.
macro_rules! put {
    ($out:ident, $($text:tt)*) => {{
        use std::fmt::Write as _;
        $out.write_fmt(format_args!($($text)*)).unwrap_or_default()
    }};
}
pub(super) use put;

/// Escapes text for use in HTML, including attribute values. Control characters, which HTML does not allow, become `�`.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 8);
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\r' => {}
            '\n' | '\t' => out.push(c),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Escapes the first `most` characters of a text, and adds the number of omitted characters.
pub(super) fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => escape(text),
        Some((end, _)) => {
            // The cut keeps an accent or a joined emoji with its base, unless the sequence is too long.
            let joins = |c: char| matches!(c, '\u{200d}' | '\u{fe0f}' | '\u{300}'..='\u{36f}' | '\u{1f3fb}'..='\u{1f3ff}');
            let kept = text.get(..end).unwrap_or_default().trim_end_matches(joins);
            let left = text.chars().count() - kept.chars().count();
            format!("{}<span class=\"cut\">… {} more characters</span>", escape(kept), count(left as u64))
        }
    }
}

/// Shortens a label in a chart to `most` characters, with `…` at the end, and escapes the label without adding markup.
pub(super) fn brief(text: &str, most: usize) -> String {
    let flat: String = text.chars().take(most + 1).map(|c| if c.is_whitespace() { ' ' } else { c }).collect();
    if flat.chars().count() <= most {
        return escape(&flat);
    }
    escape(&flat.chars().take(most.saturating_sub(1)).collect::<String>()) + "…"
}

pub(super) fn begun(text: &str) -> String {
    let mut rest = text.chars();
    rest.next().into_iter().flat_map(char::to_uppercase).chain(rest).collect()
}

/// Returns a label for use within other text; the markup keeps the label's own text direction.
pub(super) fn label(text: &str) -> String {
    if text.is_empty() { "<i>(empty)</i>".into() } else { format!("<bdi>{}</bdi>", shortened(text, LABEL)) }
}

/// Begins a table in a scrollable box, so that a wide table is not cut off.
pub(super) fn boxed(out: &mut String, name: &str, class: &str, head: impl IntoIterator<Item: Display>) {
    put!(
        out,
        "<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"{}\">\n<table class=\"{class}\">\n<thead><tr>",
        brief(name, LABEL)
    );
    head.into_iter().for_each(|cell| put!(out, "<th scope=\"col\">{cell}</th>"));
    out.push_str("</tr></thead>\n<tbody>\n");
}

pub(super) fn row(out: &mut String, heading: &str, cells: impl IntoIterator<Item: Display>) {
    put!(out, "<tr><th scope=\"row\">{heading}</th>");
    cells.into_iter().for_each(|cell| put!(out, "<td>{cell}</td>"));
    out.push_str("</tr>\n");
}

/// Returns a section of the page; `body` is HTML.
pub(super) fn section(id: &str, title: &str, body: &str) -> String {
    format!("<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">{title}</h2>\n{body}</section>\n")
}

pub(super) const END: &str = "</tbody>\n</table>\n</div>\n";

/// Formats a number with four significant digits, as in `0.4217`, `13.25`, `1,234` or `3.2e-5`.
pub(crate) fn number(value: f64) -> String {
    let size = value.abs();
    let shown = match value {
        v if v.is_nan() => return "NaN".into(),
        v if v.is_infinite() => return if v > 0.0 { "∞".into() } else { "−∞".into() },
        0.0 => return "0".into(),
        _ if size >= 1e15 => format!("{size:.3e}"),
        _ if size >= 999.95 => count(size.round() as u64),
        _ if size >= 99.995 => trimmed(&format!("{size:.1}")),
        _ if size >= 9.9995 => trimmed(&format!("{size:.2}")),
        _ if size >= 0.99995 => trimmed(&format!("{size:.3}")),
        _ if size >= 1e-3 => trimmed(&format!("{size:.4}")),
        _ => {
            let written = format!("{size:.2e}");
            let (digits, power) = written.split_once('e').unwrap_or((&written, "0"));
            format!("{}e{power}", trimmed(digits)).replace('-', "−")
        }
    };
    signed(value, shown)
}

fn signed(value: f64, digits: String) -> String {
    if value < 0.0 { format!("−{digits}") } else { digits }
}

/// Returns the label of an axis tick, without unnecessary digits.
pub(super) fn tick(value: f64) -> String {
    match value.abs() {
        size @ 1e-4..1.0 => signed(value, trimmed(&format!("{size:.6}"))),
        _ => number(value),
    }
}

fn trimmed(digits: &str) -> String {
    let is_fraction = digits.contains('.');
    if is_fraction { digits.trim_end_matches('0').trim_end_matches('.').into() } else { digits.into() }
}

/// Formats a count with thousands separators, as in `1,234,567`.
pub(super) fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Formats a count with its noun, as in `1 text` or `2 texts`.
pub(super) fn counted(value: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(value), if value == 1 { one } else { many })
}

/// Formats a share from 0 to 1 as a percentage, as in `37.5 %`, with a no-break space.
pub(super) fn percent(share: f64) -> String {
    match 100.0 * share {
        p if !p.is_finite() => number(p),
        p if p > 0.0 && p < 0.05 => "&lt; 0.1\u{a0}%".into(),
        p if p == 0.0 || p >= 100.0 => format!("{p:.0}\u{a0}%"),
        p => format!("{p:.1}\u{a0}%"),
    }
}

/// Formats a duration, as in `12.3 ms`, `4.21 s`, `3 min 20 s` or `2 h 5 min`.
pub(super) fn seconds(value: f64) -> String {
    match value {
        v if !v.is_finite() || v < 0.0 => number(v),
        0.0 => "0\u{a0}s".into(),
        v if v < 1e-3 => format!("{}\u{a0}µs", trimmed(&format!("{:.1}", v * 1e6))),
        v if v < 0.9995 => format!("{}\u{a0}ms", trimmed(&format!("{:.1}", v * 1e3))),
        v if v < 59.95 => format!("{}\u{a0}s", trimmed(&format!("{v:.1}"))),
        v if v < 3599.5 => format!("{}\u{a0}min {}\u{a0}s", v.round() as u64 / 60, v.round() as u64 % 60),
        v => {
            let minutes = (v / 60.0).round() as u64;
            format!("{}\u{a0}h {}\u{a0}min", minutes / 60, minutes % 60)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_html_would_read_is_escaped() {
        assert_eq!(escape("<script>a && \"b\" 'c'"), "&lt;script&gt;a &amp;&amp; &quot;b&quot; &#39;c&#39;");
        assert_eq!(escape("a\0\u{1b}[31m\r\n"), "a\u{fffd}\u{fffd}[31m\n");
        assert_eq!(escape("שלום 😀"), "שלום 😀");
    }

    #[test]
    fn long_text_is_cut_and_says_by_how_much() {
        assert_eq!(shortened("abc", 3), "abc");
        let expected = "ä".repeat(60) + "<span class=\"cut\">… 1,240 more characters</span>";
        assert_eq!(shortened(&"ä".repeat(1_300), 60), expected);
        assert!(shortened(&"👩‍👩‍👧".repeat(9), 2).starts_with("👩<span"), "no joiner without what it joins");
        assert_eq!(brief("a\nbcd", 4), "a b…");
        assert_eq!(brief("a<b", 4), "a&lt;b");
    }

    #[test]
    fn numbers_are_short() {
        let values =
            [0.0, 0.42171, -0.5, 13.2549, 1234.56, 3.2e-5, -1e-9, f64::NAN, f64::INFINITY, 99.999, 1e300];
        let shown = "0|0.4217|−0.5|13.25|1,235|3.2e−5|−1e−9|NaN|∞|100|1.000e300";
        assert_eq!(values.map(number).join("|"), shown);
        assert_eq!([0, 999, 1_000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let shown = [0.0, 0.0001, 0.034, 0.375, 0.9996, 1.0].map(percent).join("|").replace('\u{a0}', " ");
        assert_eq!(shown, "0 %|&lt; 0.1 %|3.4 %|37.5 %|100.0 %|100 %");
        let shown = [0.0005, 0.001, -0.25, 0.0, 300.0, 1e-6].map(tick).join("|");
        assert_eq!(shown, "0.0005|0.001|−0.25|0|300|1e−6");
        let shown = [2e-5, 0.0123, 4.21, 59.99, 200.0, 7_500.0].map(seconds).join("|").replace('\u{a0}', " ");
        assert_eq!(shown, "20 µs|12.3 ms|4.2 s|1 min 0 s|3 min 20 s|2 h 5 min");
    }
}
