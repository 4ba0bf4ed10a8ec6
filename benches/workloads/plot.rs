//! Curves over two logarithmic axes, as SVG to be looked at or printed.
//!
//! The viewer of the picture draws the text in a font of its own: none is needed here.
use std::time::SystemTime;

use plotters::prelude::*;

use crate::Outcome;

/// A line of a picture.
pub(crate) struct Curve {
    pub(crate) threads: usize,
    pub(crate) points: Vec<(f64, f64)>,
}

pub(crate) struct Picture<'a> {
    pub(crate) title: &'a str,
    pub(crate) x_label: &'a str,
    pub(crate) y_label: &'a str,
    pub(crate) curves: &'a [Curve],
}

const SIZE: (u32, u32) = (800, 520);
/// Above the curves: title, machine and date, legend.
const HEAD: u32 = 96;
/// Beside them: the axis' name and numbers.
const LEFT: i32 = 100;
const MARGIN: i32 = 14;
/// Far apart also where colours are not seen, or not printed.
const COLOURS: [RGBColor; 2] = [RGBColor(214, 110, 20), RGBColor(20, 60, 130)];

impl Picture<'_> {
    pub(crate) fn draw(&self, path: &str) -> Outcome<()> {
        let root = SVGBackend::new(path, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let grey = RGBColor(80, 80, 80);
        root.draw(&Text::new(self.title, (LEFT, 18), ("sans-serif", 20).into_font()))?;
        let where_and_when = format!("{}, {}", cpu(), today());
        root.draw(&Text::new(where_and_when, (LEFT, 46), ("sans-serif", 14).into_font().color(&grey)))?;

        let points = || self.curves.iter().flat_map(|curve| &curve.points);
        let (xs, ys): (Vec<f64>, Vec<f64>) = points().copied().unzip();
        let (x, y) = (places(&xs), round_numbers(&ys));
        let (Some(x_range), Some(y_range)) = (ends(&x), ends(&y)) else {
            return Err("expected points to draw, got none".into());
        };
        // A little room, so that no point lies on the frame.
        let x_range = x_range.0 / 1.1..x_range.1 * 1.1;
        let mut chart = ChartBuilder::on(&root)
            .margin_top(HEAD)
            .margin_left(MARGIN)
            .margin_right(30)
            .margin_bottom(10)
            .x_label_area_size(52)
            .y_label_area_size(LEFT - MARGIN)
            .build_cartesian_2d(
                x_range.log_scale().with_key_points(x),
                (y_range.0..y_range.1).log_scale().with_key_points(y),
            )?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(RGBColor(215, 215, 215))
            .x_desc(format!("{} (logarithmic)", self.x_label))
            .y_desc(format!("{} (logarithmic)", self.y_label))
            .x_label_formatter(&|&v| grouped(v))
            .y_label_formatter(&|&v| grouped(v))
            .label_style(("sans-serif", 14))
            .axis_desc_style(("sans-serif", 15))
            .draw()?;
        for (i, (curve, colour)) in self.curves.iter().zip(COLOURS.iter().cycle()).enumerate() {
            let line = ShapeStyle { color: colour.to_rgba(), filled: true, stroke_width: 2 };
            chart.draw_series(LineSeries::new(curve.points.iter().copied(), line))?;
            chart.draw_series(curve.points.iter().map(|&point| Circle::new(point, 4, line)))?;
            let (left, middle) = (LEFT + 130 * i as i32, 78);
            root.draw(&PathElement::new(vec![(left, middle), (left + 30, middle)], line))?;
            root.draw(&Circle::new((left + 15, middle), 4, line))?;
            let threads = if curve.threads == 1 { "thread" } else { "threads" };
            let name = format!("{} {threads}", curve.threads);
            root.draw(&Text::new(name, (left + 38, middle - 7), ("sans-serif", 15).into_font()))?;
        }
        root.present()?;
        Ok(())
    }
}

fn ends(sorted: &[f64]) -> Option<(f64, f64)> {
    Some((*sorted.first()?, *sorted.last()?))
}

/// Each value once, in order.
fn places(values: &[f64]) -> Vec<f64> {
    let mut places = values.to_vec();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places
}

/// Returns the fewest round numbers that enclose positive values, and the round numbers in between. They are 1, 2 and 5 times
/// powers of ten; where these would be few, 3 and 7 times, too.
fn round_numbers(values: &[f64]) -> Vec<f64> {
    let (low, high) = values.iter().fold((f64::INFINITY, 0.0_f64), |(l, h), &v| (l.min(v), h.max(v)));
    let digits: &[f64] = if high > 10.0 * low { &[1.0, 2.0, 5.0] } else { &[1.0, 2.0, 3.0, 5.0, 7.0] };
    let all: Vec<f64> =
        (-3..15).flat_map(|power| digits.iter().map(move |d| d * 10f64.powi(power))).collect();
    let first = all.iter().rposition(|&n| n <= low).unwrap_or(0);
    let last = all.iter().position(|&n| n >= high).unwrap_or(all.len() - 1);
    all.get(first..=last).unwrap_or_default().to_vec()
}

/// A whole number with commas between its thousands.
fn grouped(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Returns the CPU's name under Linux, and the number of its threads.
fn cpu() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
    let name = name.map_or("unknown CPU", |(_, name)| name.trim());
    match std::thread::available_parallelism() {
        Ok(cpus) => format!("{name} ({cpus} CPUs)"),
        Err(_) => name.to_owned(),
    }
}

/// The date in UTC, as 2026-11-22.
fn today() -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (mut days, mut year) = (now / 86_400, 1970_u64);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if days < length {
            break;
        }
        days -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", days + 1)
}
