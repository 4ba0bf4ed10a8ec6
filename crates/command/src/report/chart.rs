//! Line charts as SVG: lines have gaps at values that are not finite; the mouse pointer shows the values of an epoch.

use super::text::{self, LABEL, brief, escape, number, put};

/// The width of a chart in SVG units, and about in CSS pixels, so that letters are as large as the page's text.
pub(super) const WIDTH: f64 = 360.0;
const HEIGHT: f64 = 224.0;
pub(super) const LEFT: f64 = 46.0;
pub(super) const RIGHT: f64 = 10.0;
const TOP: f64 = 30.0;
pub(super) const BOTTOM: f64 = 24.0;
/// The maximum number of drawn points per line; the mouse pointer shows only the values of drawn points.
const POINTS: usize = 400;

/// The scale of a chart's vertical axis: its range, its ticks, and whether it is logarithmic.
pub(super) struct Scale {
    low: f64,
    high: f64,
    pub(super) log: bool,
    pub(super) ticks: Vec<f64>,
}

impl Scale {
    /// Returns a scale whose range contains all finite values below 1e100 in magnitude.
    pub(super) fn of(values: impl Iterator<Item = f64> + Clone) -> Scale {
        let finite = values.filter(|v| v.is_finite() && v.abs() < 1e100);
        let (low, high) = finite.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
        if low > high {
            return Scale { low: 0.0, high: 1.0, log: false, ticks: vec![0.0, 0.5, 1.0] };
        }
        if low > 0.0 && high / low > 300.0 {
            let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
            let each = ((last - first) as usize).div_ceil(5).max(1);
            let ticks = (first..=last).step_by(each).map(|power| 10_f64.powi(power)).collect();
            return Scale { low: low.min(10_f64.powi(first)), high: 10_f64.powi(last), log: true, ticks };
        }
        // If all values are 0, the range is 0 to 1, so that the line is at the bottom of the chart.
        let high = if low == 0.0 && high == 0.0 { 1.0 } else { high };
        // The range of one positive value, such as a constant learning rate, begins at 0.
        let (low, high) = match high > low {
            true => (low, high),
            false if low > 0.0 => (0.0, 1.2 * high),
            false => (low - (0.1 * low.abs()).max(5e-10), high + (0.1 * low.abs()).max(5e-10)),
        };
        let room = high - low;
        let step = nice(room / 4.0);
        let (first, last) = ((low / step).floor(), (high / step).ceil());
        let count = (last - first).clamp(1.0, 12.0) as usize;
        let ticks: Vec<f64> = (0..=count).map(|i| (first + i as f64) * step).collect();
        Scale { low: first * step, high: last * step, log: false, ticks }
    }

    /// Returns the relative position of a value on the axis, from 0 to 1.
    pub(super) fn at(&self, value: f64) -> f64 {
        let (value, low, high) = if self.log {
            (value.log10(), self.low.log10(), self.high.log10())
        } else {
            (value, self.low, self.high)
        };
        ((value - low) / (high - low)).clamp(0.0, 1.0)
    }
}

/// Returns the smallest round number (1, 2 or 5 times a power of ten) that is at least `step`.
pub(super) fn nice(step: f64) -> f64 {
    let power = 10_f64.powf(step.log10().floor());
    [1.0, 2.0, 5.0, 10.0].into_iter().map(|m| m * power).find(|&s| s >= step * 0.999).unwrap_or(step)
}

/// A line of a chart: its name, its CSS class (which makes the line dashed or solid), and its value at each epoch.
pub(super) struct Line<'a> {
    pub(super) name: &'a str,
    pub(super) class: &'a str,
    pub(super) values: Vec<Option<f64>>,
}

/// Returns a chart of `lines` over epochs; `best` is the index of the best epoch, whose model is saved.
pub(super) fn lines(title: &str, epochs: &[u64], lines: &[Line<'_>], best: Option<usize>) -> String {
    drawn(title, epochs, lines, best, true)
}

/// Returns a chart of lines without a legend inside the chart; the page shows the names beside the chart.
pub(super) fn overlay(title: &str, epochs: &[u64], lines: &[Line<'_>]) -> String {
    drawn(title, epochs, lines, None, false)
}

fn drawn(title: &str, epochs: &[u64], lines: &[Line<'_>], best: Option<usize>, named: bool) -> String {
    let values = lines.iter().flat_map(|line| line.values.iter().flatten().copied());
    let (first, last) = (epochs.first().copied().unwrap_or(0), epochs.last().copied().unwrap_or(0));
    let axes = &Axes { scale: Scale::of(values), first, last };
    let mut out = format!(
        "<figure class=\"card\">\n<figcaption>{}</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" \
         aria-label=\"{}\">\n",
        brief(title, LABEL),
        spoken(title, epochs, lines, best)
    );
    axes.draw(&mut out);
    if let Some(epoch) = best.and_then(|b| epochs.get(b)) {
        let (at, bottom) = (axes.x(*epoch), HEIGHT - BOTTOM);
        put!(out, "<line class=\"best\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>\n");
    }
    let keep = kept(epochs.len(), best);
    for line in lines {
        draw(&mut out, line, &keep, epochs, axes);
        let value = best.and_then(|b| line.values.get(b).copied().flatten()).filter(|v| v.is_finite());
        if let (Some(value), Some(epoch), true) =
            (value, best.and_then(|b| epochs.get(b)), line.class == "dev")
        {
            put!(
                out,
                "<circle class=\"ring\" cx=\"{:.1}\" cy=\"{:.1}\" r=\"4.5\"/>\n",
                axes.x(*epoch),
                axes.y(value)
            );
        }
    }
    legend(&mut out, if named { lines } else { &[] }, axes.scale.log);
    for (n, &i) in keep.iter().enumerate() {
        let Some(&epoch) = epochs.get(i) else { continue };
        let near =
            |m: usize| keep.get(m).and_then(|&j| epochs.get(j)).map(|&e| (axes.x(e) + axes.x(epoch)) / 2.0);
        let from = n.checked_sub(1).and_then(near).unwrap_or(LEFT);
        let to = near(n + 1).unwrap_or(WIDTH - RIGHT);
        reading(&mut out, (epoch, best == Some(i), named), lines, i, (from, axes.x(epoch), to), axes);
    }
    out + "</svg>\n</figure>\n"
}

/// Returns the indices of the epochs to draw: evenly spaced ones, the last one and the best one.
fn kept(count: usize, best: Option<usize>) -> Vec<usize> {
    let each = count.div_ceil(POINTS).max(1);
    (0..count).filter(|&i| i % each == 0 || i + 1 == count || best == Some(i)).collect()
}

pub(super) fn grid_line(out: &mut String, at: f64, label: &str) {
    let (right, x, y) = (WIDTH - RIGHT, LEFT - 6.0, at + 4.0);
    put!(out, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>");
    put!(out, "<text class=\"tick end\" x=\"{x}\" y=\"{y:.1}\">{label}</text>\n");
}

/// The axes of a chart: the scale of the values, and the first and the last epoch.
struct Axes {
    scale: Scale,
    first: u64,
    last: u64,
}

impl Axes {
    fn x(&self, epoch: u64) -> f64 {
        let share = match self.last > self.first {
            true => epoch.saturating_sub(self.first) as f64 / (self.last - self.first) as f64,
            false => 0.5,
        };
        LEFT + 6.0 + share * (WIDTH - LEFT - RIGHT - 12.0)
    }

    fn y(&self, value: f64) -> f64 {
        TOP + (1.0 - self.scale.at(value)) * (HEIGHT - TOP - BOTTOM)
    }

    fn draw(&self, out: &mut String) {
        for &tick in &self.scale.ticks {
            let shown = if tick.abs() < 1e-12 * self.scale.high.abs() { 0.0 } else { tick };
            grid_line(out, self.y(tick), &text::tick(shown));
        }
        let each = (nice((self.last - self.first) as f64 / 6.0).max(1.0) as u64).max(1);
        let mut next = Some(self.first.div_ceil(each).saturating_mul(each));
        while let Some(epoch) = next.filter(|epoch| *epoch <= self.last) {
            let x = self.x(epoch);
            put!(out, "<text class=\"tick mid\" x=\"{x:.1}\" y=\"{}\">{epoch}</text>\n", HEIGHT - 7.0);
            next = epoch.checked_add(each);
        }
    }
}

fn draw(out: &mut String, line: &Line<'_>, keep: &[usize], epochs: &[u64], axes: &Axes) {
    let (mut path, mut pen, mut run) = (String::new(), false, 0);
    let mut lonely = Vec::new();
    let (mut last, mut missing) = ((0.0, 0.0), Vec::new());
    for &i in keep {
        let Some(&epoch) = epochs.get(i) else { continue };
        match line.values.get(i).copied().flatten() {
            Some(value) if value.is_finite() => {
                last = (axes.x(epoch), axes.y(value));
                put!(path, "{}{:.1} {:.1}", if pen { "L" } else { "M" }, last.0, last.1);
                (pen, run) = (true, run + 1);
                continue;
            }
            Some(_) => missing.push(axes.x(epoch)),
            // An epoch without this score is skipped, and the line continues to the next epoch.
            None => continue,
        }
        if run == 1 {
            lonely.push(last);
        }
        (pen, run) = (false, 0);
    }
    if run == 1 {
        lonely.push(last);
    }
    put!(out, "<path class=\"line {}\" d=\"{path}\"/>\n", line.class);
    for (cx, cy) in lonely {
        put!(out, "<circle class=\"dot {}\" cx=\"{cx:.1}\" cy=\"{cy:.1}\" r=\"3\"/>\n", line.class);
    }
    for at in missing {
        put!(out, "<text class=\"lost mid\" x=\"{at:.1}\" y=\"{}\">×</text>\n", HEIGHT - BOTTOM - 3.0);
    }
}

fn legend(out: &mut String, lines: &[Line<'_>], log: bool) {
    out.push_str("<g class=\"legend\">");
    let mut at = LEFT + 6.0;
    for line in lines {
        put!(out, "<path class=\"line {}\" d=\"M{at} 12H{}\"/>", line.class, at + 20.0);
        put!(out, "<text x=\"{}\" y=\"16\">{}</text>", at + 26.0, escape(line.name));
        at += 26.0 + 8.0 * line.name.len() as f64 + 18.0;
    }
    if log {
        put!(out, "<text class=\"end\" x=\"{}\" y=\"16\">logarithmic</text>", WIDTH - RIGHT);
    }
    out.push_str("</g>\n");
}

/// Writes what appears while the mouse pointer is near an epoch: its values in place of the legend, and points.
fn reading(
    out: &mut String,
    (epoch, best, named): (u64, bool, bool),
    lines: &[Line<'_>],
    i: usize,
    (from, at, to): (f64, f64, f64),
    axes: &Axes,
) {
    let (height, bottom, wide) = (HEIGHT - TOP, HEIGHT - BOTTOM, to - from);
    out.push_str("<g class=\"at\">");
    put!(out, "<rect class=\"hit\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{wide:.1}\" height=\"{height}\"/>");
    let mut text = format!("epoch {epoch}{}", if best { ", the best" } else { "" });
    let read = lines.iter().filter_map(|line| Some((line, line.values.get(i).copied().flatten()?)));
    let read: Vec<(&Line<'_>, f64)> = read.collect();
    for (line, value) in &read {
        let before = if named { " · " } else { "\n" };
        put!(text, "{before}{} {}", brief(line.name, 60), number(*value));
    }
    if !named {
        put!(out, "<title>{text}</title>");
    }
    let wide = WIDTH - LEFT;
    put!(out, "<g class=\"tip\"><rect class=\"cover\" x=\"{LEFT}\" y=\"0\" width=\"{wide}\" height=\"24\"/>");
    put!(out, "<line class=\"cross\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{bottom}\"/>");
    for (line, value) in read.iter().filter(|(_, value)| value.is_finite()) {
        let (class, y) = (line.class, axes.y(*value));
        put!(out, "<circle class=\"dot {class}\" cx=\"{at:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
    }
    let text = if named { text } else { format!("epoch {epoch}") };
    put!(out, "<text class=\"read\" x=\"{}\" y=\"16\">{text}</text></g></g>\n", LEFT + 6.0);
}

/// Describes the chart in one sentence, for screen readers.
fn spoken(title: &str, epochs: &[u64], lines: &[Line<'_>], best: Option<usize>) -> String {
    let mut out = format!("{} by epoch.", brief(title, 80));
    for line in lines {
        let mut values = line.values.iter().flatten();
        let (Some(first), last) = (values.next(), values.next_back()) else { continue };
        put!(out, " {}: {}", escape(line.name), number(*first));
        if let Some(last) = last {
            put!(out, " to {}", number(*last));
        }
        out.push('.');
    }
    if let Some(epoch) = best.and_then(|b| epochs.get(b)) {
        put!(out, " The best epoch is {epoch}.");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_holds_its_values_at_round_ticks() {
        let scale = Scale::of([0.12, 0.69, f64::NAN, f64::INFINITY].into_iter());
        assert_eq!((scale.low, scale.log), (0.0, false));
        assert!((scale.high - 0.8).abs() < 1e-9 && scale.ticks.len() == 5, "{:?}", scale.ticks);
        let constant = Scale::of([0.002; 3].into_iter());
        assert!(constant.low == 0.0 && constant.high < 0.004, "{:?}", constant.ticks);
        let log = Scale::of([1e-6, 1e-2].into_iter());
        assert!(log.log && log.at(1e-6) == 0.0 && log.at(1e-2) == 1.0 && (log.at(1e-4) - 0.5).abs() < 1e-9);
        for odd in [&[][..], &[f64::NAN], &[3.0], &[0.0], &[-5.0, -5.0], &[1e300, -1e300], &[1e-300, 1e-299]]
        {
            let scale = Scale::of(odd.iter().copied());
            assert!(scale.low < scale.high && !scale.ticks.is_empty() && scale.ticks.len() < 15, "{odd:?}");
            assert!(odd.iter().filter(|v| !v.is_nan()).all(|&v| scale.at(v).is_finite()), "{odd:?}");
        }
    }

    #[test]
    fn values_that_are_not_finite_are_gaps_with_a_mark() {
        let values = vec![Some(1.0), Some(0.5), Some(f64::NAN), Some(0.25)];
        let drawn = lines("loss", &[1, 2, 3, 4], &[Line { name: "dev", class: "dev", values }], Some(3));
        assert_eq!(drawn.matches("×").count(), 1);
        assert_eq!(drawn.matches('M').count() - 1, 2, "two strokes beside the legend's: {drawn}");
        assert!(drawn.contains("epoch 3 · dev NaN") && drawn.contains("epoch 4, the best · dev 0.25"));
        assert!(drawn.contains("dev: 1 to 0.25. The best epoch is 4."));
        assert!(!drawn.contains("=\"NaN") && !drawn.contains("inf"));
    }

    #[test]
    fn many_epochs_are_thinned() {
        let epochs: Vec<u64> = (0..100_000).collect();
        let values = epochs.iter().map(|&e| Some(e as f64)).collect();
        let drawn = lines("x", &epochs, &[Line { name: "train", class: "train", values }], Some(77_777));
        assert!(drawn.len() < 300_000, "{}", drawn.len());
        assert!(drawn.contains("epoch 77777, the best") && drawn.contains("epoch 99999"));
    }
}
