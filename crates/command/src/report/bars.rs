//! Bar charts for a report: text lengths, errors by length, and time per operator.

use unpadded::metrics::Unit;

use super::chart::{BOTTOM, LEFT, RIGHT, WIDTH, grid_line, nice};
use super::page::{Errors, LengthErrors, Lengths, OperatorTime};
use super::text::{END, LABEL, boxed, brief, count, counted, number, percent, put, seconds};

/// The maximum number of operators with a bar of their own.
const OPERATORS: usize = 12;
/// The maximum length of an operator name that is shown whole, in characters.
const NAME: usize = 36;

/// The height of a bar chart in SVG units.
const HEIGHT: f64 = 204.0;

struct BarFrame {
    top: f64,
    room: f64,
    /// The width for one bar.
    each: f64,
}

impl BarFrame {
    fn new(top: f64, bars: usize) -> Self {
        Self { top, room: HEIGHT - top - BOTTOM, each: (WIDTH - LEFT - RIGHT) / bars as f64 }
    }

    /// Returns the height of a share of the vertical axis.
    fn at(&self, share: f64) -> f64 {
        self.top + self.room * (1.0 - share)
    }

    /// Returns the left edge of the room for bar `i`.
    fn left(&self, i: usize) -> f64 {
        LEFT + self.each * i as f64
    }

    /// Writes bar `i`: its left edge, its width and its height.
    fn bar(&self, out: &mut String, i: usize, title: &str, class: &str, (left, wide, tall): (f64, f64, f64)) {
        let Self { top, room, each } = self;
        let at = self.left(i);
        put!(
            out,
            "<g class=\"point\"><title>{title}</title><rect class=\"hit\" x=\"{at:.1}\" y=\"{top}\" width=\"{each:.1}\" height=\"{room}\"/>\
             <rect class=\"{class}\" x=\"{left:.2}\" y=\"{:.1}\" width=\"{wide:.2}\" height=\"{tall:.1}\"/></g>\n",
            top + room - tall
        );
    }

    fn label(&self, out: &mut String, class: &str, x: f64, label: &str) {
        put!(out, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{}\">{label}</text>\n", HEIGHT - 7.0);
    }
}

/// Returns the histogram of text lengths; a note has the share of rows that padding would add.
pub(super) fn lengths(batches: &Lengths) -> String {
    let mut sorted = batches.lengths.clone();
    sorted.sort_unstable();
    let (Some(&longest), Some(&median)) = (sorted.last(), sorted.get(sorted.len() / 2)) else {
        return String::new();
    };
    let mean = sorted.iter().map(|&l| l as f64).sum::<f64>() / sorted.len() as f64;
    let (bars, wide) = histogram(&sorted);
    let [texts, unit] = batches.of;
    let mut out = format!("<figure class=\"card\">\n<figcaption>Lengths of the {texts}</figcaption>\n");
    let most = bars.iter().copied().max().unwrap_or(1).max(1);
    let measured = format!("median {}, longest {} {unit}", count(median as u64), count(longest as u64));
    let lengths = counted(sorted.len() as u64, "length", "lengths");
    put!(
        out,
        "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"Histogram of {lengths}: {measured}.\">\n"
    );
    let frame = BarFrame::new(10.0, bars.len());
    let step = nice(most as f64 / 4.0).max(1.0) as u64;
    for tick in (0..=most).step_by(step as usize) {
        grid_line(&mut out, frame.at(tick as f64 / most as f64), &number(tick as f64));
    }
    let labels = bars.len().div_ceil(5).max(1);
    for (i, &times) in bars.iter().enumerate() {
        let (from, last) = (i * wide, i + 1 == bars.len());
        let range = match () {
            () if last && longest - from >= wide => format!("{} and longer", count(from as u64)),
            () if wide == 1 => count(from as u64),
            () => format!("{} to {}", count(from as u64), count(from.saturating_add(wide - 1) as u64)),
        };
        let title = format!("{range} {unit}: {}", counted(times, "text", "texts"));
        let tall = frame.room * times as f64 / most as f64;
        let bar = (frame.left(i) + 0.5, (frame.each - 1.0).max(0.5), tall);
        frame.bar(&mut out, i, &title, "fill", bar);
        if i % labels == 0 {
            frame.label(&mut out, "tick", frame.left(i), &number(from as f64));
        }
    }
    let (texts, mean) = (counted(sorted.len() as u64, "text", "texts"), number(mean));
    put!(out, "</svg>\n<p class=\"note\">{texts}; mean {mean}, {measured}.");
    if batches.padded > batches.tokens {
        let share = percent((batches.padded - batches.tokens) as f64 / batches.padded as f64);
        let [padded, tokens] = [batches.padded, batches.tokens].map(count);
        put!(
            out,
            " Padding each batch to its longest text would have made {padded} rows out of {tokens}; <b>{share}</b> of the rows would have been padding."
        );
    }
    out + "</p>\n</figure>\n"
}

/// The bar of a length range with fewer texts than this is drawn pale.
const FEW: u64 = 10;
/// The chart shows a number beside each bar only if it has at most this many bars.
const NUMBERED: usize = 8;
/// The width of a digit of a label in SVG units, with some room.
pub(super) const DIGIT: f64 = 7.2;

/// Returns the errors by text length as a bar chart; the caption begins with `texts`, such as "held-out texts".
pub(super) fn errors(errors: &Errors, texts: &str) -> String {
    let ranges: Vec<_> = errors.ranges.iter().filter(|range| range.value.is_finite()).collect();
    let most = ranges.iter().map(|range| range.value).fold(0.0, f64::max);
    if ranges.is_empty() || errors.ranges.len() > 200 {
        return String::new();
    }
    let shown = |value: f64| if errors.unit == Unit::Share { percent(value) } else { number(value) };
    let step = nice(most.max(1e-3) / 4.0);
    let top_tick = step * (most.max(1e-3) / step - 1e-9).ceil();
    let [texts, what, by] = [texts, &errors.of, &errors.by].map(|text| brief(text, LABEL));
    let mut out = format!(
        "<figure class=\"card\">\n<figcaption>{texts}: {what} by {by}</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         role=\"img\" aria-label=\"{what} by {by}."
    );
    // The ranges of `tokens read before` count tokens; all other ranges count texts.
    let (one, many) = if errors.by.starts_with("length") { ("text", "texts") } else { ("token", "tokens") };
    let name = |from: usize, to: usize| match from == to {
        true => count(from as u64),
        false => format!("{} to {}", count(from as u64), count(to as u64)),
    };
    for range in &ranges {
        put!(out, " {}: {}.", name(range.from, range.to), shown(range.value));
    }
    out.push_str("\">\n");
    let frame = BarFrame::new(22.0, ranges.len());
    for tick in 0..=(top_tick / step).round() as usize {
        let value = tick as f64 * step;
        let label = match errors.unit {
            Unit::Share => format!("{}\u{a0}%", super::text::tick(100.0 * value)),
            _ => super::text::tick(value),
        };
        grid_line(&mut out, frame.at(value / top_tick), &label);
    }
    // The labels have both ends of their ranges only if all of them fit below their bars.
    let both = |range: &LengthErrors| format!("{}–{}", number(range.from as f64), number(range.to as f64));
    let wide = ranges.iter().map(|range| both(range).chars().count()).max().unwrap_or(0);
    let begins = ranges.len() > NUMBERED || wide as f64 * DIGIT > frame.each;
    let labels = ranges.len().div_ceil(NUMBERED).max(1);
    for (i, range) in ranges.iter().enumerate() {
        let fill = if range.texts < FEW { "fill few" } else { "fill" };
        let (middle, wide) = (frame.left(i) + frame.each / 2.0, (frame.each - 3.0).clamp(0.5, 48.0));
        let texts = counted(range.texts, one, many);
        let title = format!("{}: {}, {texts}", name(range.from, range.to), shown(range.value));
        let bar = (middle - wide / 2.0, wide, frame.room * (range.value / top_tick).clamp(0.0, 1.0));
        frame.bar(&mut out, i, &title, fill, bar);
        if i % labels == 0 {
            let label = match begins || range.from == range.to {
                true => number(range.from as f64),
                false => both(range),
            };
            frame.label(&mut out, "tick mid", middle, &label);
        }
    }
    put!(
        out,
        "</svg>\n<p class=\"note\">{}{} {many}.</p>\n</figure>\n",
        if begins { "Each bar has the number at which its range begins. " } else { "" },
        if ranges.iter().any(|range| range.texts < FEW) {
            "Pale bars: fewer than 10"
        } else {
            "A pointer over a bar shows its number of"
        }
    );
    out
}

/// Returns the number of texts in each of about 30 ranges, and their width; the last range includes outliers.
fn histogram(sorted: &[usize]) -> (Vec<u64>, usize) {
    let longest = sorted.last().copied().unwrap_or(0);
    let most = sorted.get(sorted.len() * 99 / 100).copied().unwrap_or(longest);
    let end = if longest > most.saturating_mul(2) { most } else { longest };
    let wide = (nice((end as f64 + 1.0) / 30.0).max(1.0)) as usize;
    let mut bars = vec![0; end / wide + 1];
    let last = bars.len() - 1;
    for &length in sorted {
        if let Some(bar) = bars.get_mut((length / wide).min(last)) {
            *bar += 1;
        }
    }
    (bars, wide)
}

/// Returns a table with bars of the operators that took the most time.
pub(super) fn operators(operators: &[OperatorTime]) -> String {
    let mut sorted: Vec<&OperatorTime> =
        operators.iter().filter(|o| o.seconds.is_finite() && o.seconds >= 0.0).collect();
    sorted.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then_with(|| a.name.cmp(&b.name)));
    let total: f64 = sorted.iter().map(|o| o.seconds).sum();
    let Some(most) = sorted.first().map(|o| o.seconds) else { return String::new() };
    let mut out = String::from("<figure class=\"card broad\">\n<figcaption>Time by operator</figcaption>\n");
    boxed(&mut out, "Time by operator", "bars", ["operator", "calls", "time", "share"]);
    let mut row = |name: String, calls: u64, time: f64, bar: bool| {
        let wide = if bar && most > 0.0 { 100.0 * time / most } else { 0.0 };
        let share = if total > 0.0 { percent(time / total) } else { "–".into() };
        put!(
            out,
            "<tr><th scope=\"row\">{name}</th><td>{}</td><td>{}</td><td class=\"bar\" style=\"--w:{wide:.1}%\">{share}</td></tr>\n",
            count(calls),
            seconds(time)
        );
    };
    let shown = if sorted.len() == OPERATORS + 1 { OPERATORS + 1 } else { OPERATORS };
    for operator in sorted.iter().take(shown) {
        row(brief(&operator.name, NAME).replace('_', "_<wbr>"), operator.calls, operator.seconds, true);
    }
    let rest = sorted.get(shown..).unwrap_or_default();
    if !rest.is_empty() {
        let name = format!("{} others", rest.len());
        row(name, rest.iter().map(|o| o.calls).sum(), rest.iter().map(|o| o.seconds).sum(), false);
    }
    put!(out, "{END}<p class=\"note\">{} in operators altogether.</p>\n</figure>\n", seconds(total));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_bar_for_each_range() {
        let range = |from, to, texts, value| LengthErrors { from, to, texts, value };
        let (what, by) = ("wrong texts".to_owned(), "length in tokens".to_owned());
        let ranges = vec![range(1, 1, 50, 0.25), range(4, 5, 3, 0.5), range(8, 11, 9, f64::NAN)];
        let html = errors(&Errors { of: what, by, unit: Unit::Share, ranges }, "Test set");
        assert!(html.contains("1: 25.0\u{a0}%. 4 to 5: 50.0\u{a0}%.\">"), "{html}");
        assert!(html.matches("<g class=\"point\">").count() == 2 && html.matches("fill few").count() == 1);
        assert!(html.contains(">4–5</text>") && !html.contains("NaN"), "{html}");
        assert!(html.contains("4 to 5: 50.0\u{a0}%, 3 texts"), "{html}");
        assert_eq!(errors(&Errors::default(), "Test set"), "");
    }

    #[test]
    fn lengths_fall_into_round_ranges() {
        assert_eq!(histogram(&[0, 1, 1, 3]), (vec![1, 2, 0, 1], 1));
        let mut far: Vec<usize> = (0..1_000).collect();
        far.push(1_000_000);
        let (bars, wide) = histogram(&far);
        assert_eq!((wide, bars.len(), bars.iter().sum::<u64>()), (50, 20, 1_001));
        let (bars, _) = histogram(&[usize::MAX; 3]);
        assert!(bars.len() < 40 && bars.iter().sum::<u64>() == 3);
    }

    #[test]
    fn the_padding_that_was_avoided_is_told() {
        let html = lengths(&Lengths {
            of: ["training texts", "tokens"],
            lengths: vec![2, 3, 40],
            tokens: 45,
            padded: 120,
        });
        assert!(html.contains("120 rows out of 45; <b>62.5\u{a0}%</b>"), "{html}");
        assert!(!lengths(&Lengths { lengths: vec![0], ..Lengths::default() }).contains("Padding"));
        assert_eq!(lengths(&Lengths::default()), "");
    }

    #[test]
    fn operators_beyond_the_first_are_summed() {
        let operator = |i: u64| OperatorTime { name: format!("op{i}"), calls: i, seconds: i as f64 };
        let html = operators(&(0..40).map(operator).collect::<Vec<_>>());
        assert!(html.contains("28 others") && html.contains("--w:100.0%\">5.0\u{a0}%"), "{html}");
        assert!(html.find("op39") < html.find("op38"));
        assert_eq!(operators(&[OperatorTime { seconds: f64::NAN, ..OperatorTime::default() }]), "");
        assert!(operators(&[OperatorTime::default()]).contains('–'));
    }
}
