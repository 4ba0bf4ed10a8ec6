//! The confusion of classes and the calibration of probabilities, as parts of a report.

use super::bars::DIGIT;
use super::chart::Scale;
use super::page::{Bin, Confusion};
use super::text::{LABEL, brief, count, counted, label, number, percent, put, shortened, tick};

/// The maximum number of classes in a confusion matrix; for more classes, the report lists the most confused pairs.
const CLASSES: usize = 30;
/// The maximum number of pairs in the list of confused pairs.
const PAIRS: usize = 25;
/// The maximum number of points in the chart of true and predicted numbers.
const POINTS: usize = 1_000;
/// The left and the upper edge of a square chart, and its side.
const SQUARE: [f64; 3] = [46.0, 10.0, 240.0];

/// Returns the confusion of classes as a matrix, or for many classes as a list of pairs; an empty string without texts.
pub(super) fn confusion(confusion: &Confusion) -> String {
    let classes = confusion.labels.len();
    let total: u64 = confusion.cells.values().sum();
    if total == 0 {
        return String::new();
    }
    let mut out = String::from("<div class=\"confused\">\n");
    let right: u64 = (0..classes).map(|c| confusion.count(c, c)).sum();
    let (share, number) = (percent(right as f64 / total as f64), counted(classes as u64, "class", "classes"));
    let (what, [right, total]) = (shortened(&confusion.of, LABEL), [right, total].map(count));
    put!(out, "<h3>Confusion of {what}s</h3>\n<p>{right} of {total} right ({share}), {number}.</p>\n");
    if classes > CLASSES {
        pairs(&mut out, confusion)
    } else {
        matrix(&mut out, confusion)
    }
    out + "</div>\n"
}

fn matrix(out: &mut String, confusion: &Confusion) {
    let classes = confusion.labels.len();
    let mut order: Vec<(usize, &String)> = confusion.labels.iter().enumerate().collect();
    if confusion.of == "tag" {
        order.sort_by_key(|(_, tag)| by_type(tag));
    }
    let upright = if classes > 6 { " upright" } else { "" };
    put!(
        out,
        "<p class=\"note\">A row for each true class, a column for each predicted one. Blue is right, red wrong; the darker, the larger \
         its share of the row.</p>\n<div class=\"wide\" role=\"region\" tabindex=\"0\" aria-label=\"Confusion matrix\">\n\
         <table class=\"confusion{upright}\">\n<thead><tr><th scope=\"col\">true / predicted</th>"
    );
    let names: Vec<String> = order.iter().map(|(_, name)| short(name)).collect();
    // Names that are equal after they are shortened get numbers.
    let shown = |at: usize| match names.iter().filter(|name| **name == names[at]).count() {
        1 => names[at].clone(),
        _ => format!("{}: {}", at + 1, names[at]),
    };
    for at in 0..classes {
        put!(out, "<th scope=\"col\"><span><bdi>{}</bdi></span></th>", shown(at));
    }
    out.push_str("<th scope=\"col\" class=\"sum\"><span>recall</span></th></tr></thead>\n<tbody>\n");
    for (at, &(truth, name)) in order.iter().enumerate() {
        let sum = confusion.row_sum(truth);
        put!(out, "<tr><th scope=\"row\" title=\"{}\"><bdi>{}</bdi></th>", brief(name, LABEL), shown(at));
        for &(predicted, other) in &order {
            let times = confusion.count(truth, predicted);
            if times == 0 {
                out.push_str("<td class=\"none\">0</td>");
                continue;
            }
            let kind = if truth == predicted { "right" } else { "wrong" };
            let (share, [name, other]) =
                (times as f64 / sum as f64, [name, other].map(|label| brief(label, LABEL)));
            let ([times, sum], part) = ([times, sum].map(count), percent(share));
            put!(
                out,
                "<td class=\"{kind}\" style=\"--v:{share:.3}\" title=\"true {name}, predicted {other}: {times} of {sum} ({part})\">{times}</td>"
            );
        }
        put!(out, "<td class=\"sum\">{}</td></tr>\n", ratio(confusion.count(truth, truth), sum));
    }
    out.push_str("</tbody>\n<tfoot><tr><th scope=\"row\">precision</th>");
    for &(predicted, _) in &order {
        let sum = (0..classes).map(|truth| confusion.count(truth, predicted)).sum();
        put!(out, "<td class=\"sum\">{}</td>", ratio(confusion.count(predicted, predicted), sum));
    }
    out.push_str("<td class=\"sum\"></td></tr></tfoot>\n</table>\n</div>\n");
}

/// Returns the sort key of a tag: the tags of a chunk type are together, the beginning first, and `O` is last.
fn by_type(tag: &str) -> (bool, &str, Option<usize>) {
    match tag.split_once('-') {
        Some((position, of)) if position.len() == 1 => (false, of, "BIMELSUW".find(position)),
        _ => (tag == "O", tag, None),
    }
}

/// Returns the heading of a class: both ends of a long name, since names may have the same beginning.
fn short(name: &str) -> String {
    let count = name.chars().count();
    match count {
        0 => "<i>(empty)</i>".into(),
        1..=28 => brief(name, 28),
        _ => {
            let end: String = name.chars().skip(count - 14).collect();
            brief(name, 14) + &brief(&end, 14)
        }
    }
}

fn ratio(share: u64, all: u64) -> String {
    if all == 0 { "–".into() } else { percent(share as f64 / all as f64) }
}

fn pairs(out: &mut String, confusion: &Confusion) {
    let wrong =
        confusion.cells.iter().filter(|((truth, predicted), times)| truth != predicted && **times > 0);
    let mut wrong: Vec<(u64, usize, usize)> = wrong.map(|(&(a, b), &times)| (times, a, b)).collect();
    wrong.sort_by_key(|&(times, truth, predicted)| (std::cmp::Reverse(times), truth, predicted));
    if wrong.is_empty() {
        return out.push_str("<p class=\"note\">No class was taken for another.</p>\n");
    }
    let most = wrong.first().map_or(1, |w| w.0);
    put!(
        out,
        "<p class=\"note\">The {} confused most often, of {}.</p>\n<div class=\"wide\" role=\"region\" tabindex=\"0\" \
         aria-label=\"Most confused classes\">\n<table class=\"bars\">\n<thead><tr><th scope=\"col\">true</th>\
         <th scope=\"col\" class=\"text\">predicted</th><th scope=\"col\">times</th><th scope=\"col\">of the true class</th></tr></thead>\n<tbody>\n",
        counted(wrong.len().min(PAIRS) as u64, "pair", "pairs"),
        count(wrong.len() as u64)
    );
    for &(times, truth, predicted) in wrong.iter().take(PAIRS) {
        let name = |class: usize| confusion.labels.get(class).map_or_else(String::new, |l| label(l));
        let (wide, share) = (100.0 * times as f64 / most as f64, ratio(times, confusion.row_sum(truth)));
        let (truth, predicted, times) = (name(truth), name(predicted), count(times));
        put!(
            out,
            "<tr><th scope=\"row\">{truth}</th><td class=\"text\">{predicted}</td><td>{times}</td><td class=\"bar wrong\" style=\"--w:{wide:.1}%\">{share}</td></tr>\n"
        );
    }
    out.push_str("</tbody>\n</table>\n</div>\n");
}

/// Returns a chart of the true number and the predicted number of each text.
pub(super) fn numbers(points: &[[f64; 2]]) -> String {
    let pairs: Vec<[f64; 2]> =
        points.iter().copied().filter(|pair| pair.iter().all(|x| x.is_finite())).collect();
    if pairs.is_empty() {
        return String::new();
    }
    let scale = Scale::of(pairs.iter().flatten().copied());
    let [left, top, side] = SQUARE;
    let (x, y) = (|value| left + side * scale.at(value), |value| top + side * (1.0 - scale.at(value)));
    let error = pairs.iter().map(|[truth, found]| (truth - found).abs()).sum::<f64>() / pairs.len() as f64;
    let (texts, error) = (counted(pairs.len() as u64, "text", "texts"), number(error));
    let mut out = format!(
        "<figure class=\"card calibration\">\n<figcaption>Held-out texts: true and predicted numbers</figcaption>\n<svg class=\"chart\" \
         viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"Predicted number by true number of {texts}. Mean absolute error {error}.\">\n",
        left + side + 12.0,
        top + side + 44.0
    );
    let ticks: Vec<(f64, String)> = scale.ticks.iter().map(|&at| (scale.at(at), tick(at))).collect();
    let digits = ticks.iter().map(|(_, label)| label.chars().count()).max().unwrap_or(1);
    let room = side / scale.ticks.len().saturating_sub(1).max(1) as f64;
    let each = (digits as f64 * DIGIT / room).ceil().max(1.0) as usize;
    square(&mut out, &ticks, each, top + side + 18.0);
    for [truth, found] in pairs.iter().step_by(pairs.len().div_ceil(POINTS)) {
        let (x, y, [truth, found]) = (x(*truth), y(*found), [*truth, *found].map(number));
        put!(
            out,
            "<circle class=\"spot\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>true {truth}, predicted {found}</title></circle>\n"
        );
    }
    let names = if scale.log { " (logarithmic)" } else { "" };
    put!(
        out,
        "<text class=\"tick mid\" x=\"{}\" y=\"{}\">true number (left to right) and predicted number (upward){names}</text>\n</svg>\n<p class=\"note\">\
         {texts}; mean absolute error <b>{error}</b>. On the dotted line the prediction is right.{}</p>\n</figure>\n",
        left + side / 2.0,
        top + side + 38.0,
        if pairs.len() > POINTS { " The chart has a part of the texts, evenly spaced." } else { "" }
    );
    out
}

/// Writes the grid and the diagonal of a square chart with equal axes; the bottom axis labels one in `each` ticks.
fn square(out: &mut String, ticks: &[(f64, String)], each: usize, low: f64) {
    let [left, top, side] = SQUARE;
    let (right, bottom) = (left + side, top + side);
    for (i, (share, label)) in ticks.iter().enumerate() {
        let (x, y) = (left + side * share, bottom - side * share);
        put!(out, "<line class=\"grid\" x1=\"{left}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
        put!(out, "<text class=\"tick end\" x=\"{}\" y=\"{:.1}\">{label}</text>\n", left - 6.0, y + 4.0);
        if i % each == 0 {
            put!(out, "<text class=\"tick mid\" x=\"{x:.1}\" y=\"{low}\">{label}</text>\n");
        }
    }
    put!(out, "<line class=\"even\" x1=\"{left}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{top}\"/>\n");
}

/// Returns the expected calibration error: the weighted mean difference between probability and right answers.
fn calibration_error(bins: &[Bin]) -> Option<f64> {
    let total: u64 = bins.iter().map(|b| b.count).sum();
    let sum: f64 =
        bins.iter().filter(|b| b.count > 0).map(|b| b.count as f64 * (b.accuracy - b.confidence).abs()).sum();
    (total > 0).then(|| sum / total as f64)
}

/// Returns the chart of the share of right answers, and of the number of predictions, by predicted probability.
pub(super) fn calibration(bins: &[Bin]) -> String {
    let Some(error) = calibration_error(bins) else { return String::new() };
    let ([left, top, side], foot) = (SQUARE, 44.0);
    let (width, height) = (left + side + 12.0, top + side + foot + 34.0);
    let finite = |b: &&Bin| b.count > 0 && b.confidence.is_finite() && b.accuracy.is_finite();
    let x = |share: f64| left + side * share.clamp(0.0, 1.0);
    let y = |share: f64| top + side * (1.0 - share.clamp(0.0, 1.0));
    let most = bins.iter().map(|b| b.count).max().unwrap_or(1);
    let mut out = format!(
        "<figure class=\"card calibration\">\n<figcaption>Calibration</figcaption>\n<svg class=\"chart\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"Share of right answers by stated probability. Expected calibration error {}.\">\n",
        number(error)
    );
    let ticks = [0.0, 0.25, 0.5, 0.75, 1.0].map(|share| (share, number(share)));
    square(&mut out, &ticks, 1, top + side + foot + 14.0);
    let mut path = String::new();
    for bin in bins.iter().filter(finite) {
        let pen = if path.is_empty() { "M" } else { "L" };
        put!(path, "{pen}{:.1} {:.1}", x(bin.confidence), y(bin.accuracy));
    }
    put!(out, "<path class=\"line dev\" d=\"{path}\"/>\n");
    for bin in bins.iter().filter(finite) {
        let [stated, right] = [bin.confidence, bin.accuracy].map(percent);
        let size = counted(bin.count, "prediction", "predictions");
        let (at, from, to) = (x(bin.confidence), y(bin.confidence), y(bin.accuracy));
        let tall = foot * bin.count as f64 / most.max(1) as f64 * 0.85;
        let (left, upper, tall) = (at - 5.0, top + side + foot - tall, tall.max(0.8));
        put!(
            out,
            "<g class=\"point\"><title>stated {stated}, right {right}, {size}</title><line class=\"gap\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{from:.1}\" y2=\"{to:.1}\"/>\
             <circle class=\"dot dev\" cx=\"{at:.1}\" cy=\"{to:.1}\" r=\"4\"/>\
             <rect class=\"fill\" x=\"{left:.1}\" y=\"{upper:.1}\" width=\"10\" height=\"{tall:.1}\"/></g>\n"
        );
    }
    let (middle, low) = (x(0.5), height - 4.0);
    put!(
        out,
        "<text class=\"tick mid\" x=\"{middle}\" y=\"{low}\">stated probability; below, how often</text>\n"
    );
    put!(
        out,
        "</svg>\n<p class=\"note\">Expected calibration error <b>{}</b>: the mean difference between the stated probability and the share \
         of right answers, over {}. On the dotted line both are equal; below the dotted line the model is too sure.</p>\n</figure>\n",
        number(error),
        counted(bins.iter().map(|b| b.count).sum(), "prediction", "predictions")
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cells: &[(&str, &str, u64)]) -> Confusion {
        let mut confusion = Confusion::new("label");
        cells.iter().for_each(|&(truth, predicted, times)| confusion.add(truth, predicted, times));
        confusion
    }

    #[test]
    fn a_matrix_has_counts_recall_and_precision() {
        let html = confusion(&of(&[("a", "a", 3), ("a", "<b>", 1), ("<b>", "<b>", 4)]));
        assert!(html.contains("7 of 8 right (87.5\u{a0}%), 2 classes."));
        let cell = "--v:0.250\" title=\"true a, predicted &lt;b&gt;: 1 of 4 (25.0\u{a0}%)\">1</td>";
        let sums = ["75.0", "80.0"].map(|sum| format!("<td class=\"sum\">{sum}\u{a0}%</td>"));
        assert!(html.contains(cell) && sums.iter().all(|sum| html.contains(sum)), "{html}");
    }

    #[test]
    fn long_names_with_a_common_beginning_differ() {
        let [one, two, three] =
            ["/x/and then one", "/x/and then two", "/yyyy/x/and then two"].map(|end| "long/".repeat(9) + end);
        let html = confusion(&of(&[(&one, &two, 1), (&three, &three, 1)]));
        let named =
            |name: &str| html.contains(&format!("<th scope=\"col\"><span><bdi>{name}</bdi></span></th>"));
        assert!(named("long/long/lon…x/and then one"), "{html}");
        let numbered = |at| named(&format!("{at}: long/long/lon…x/and then two"));
        assert!(numbered(2) && numbered(3), "{html}");
    }

    #[test]
    fn tags_of_a_type_are_together() {
        let mut tags = Confusion::new("tag");
        for tag in ["O", "I-PER", "B-LOC", "B-PER", "I-LOC", "X-Y-Z"] {
            tags.add(tag, tag, 1);
        }
        let html = confusion(&tags);
        let at = |tag: &str| html.find(&format!("scope=\"row\" title=\"{tag}\"")).unwrap();
        assert!(["B-LOC", "I-LOC", "B-PER", "I-PER", "X-Y-Z", "O"].map(at).is_sorted(), "{html}");
    }

    #[test]
    fn numbers_are_points_and_a_diagonal() {
        let html = numbers(&[[1.0, 2.0], [4.5, 4.0], [f64::NAN, 1.0]]);
        assert!(html.contains("2 texts; mean absolute error <b>0.75</b>"), "{html}");
        assert!(html.matches("<circle").count() == 2 && html.contains("true 4.5, predicted 4<"), "{html}");
        assert_eq!(numbers(&[[f64::NAN, 1.0]]), "");
    }

    #[test]
    fn no_class_and_too_many() {
        assert_eq!(confusion(&Confusion::default()), "");
        let mut many = Confusion::new("tag");
        for class in 0..1_000 {
            many.add(&format!("class {class}"), &format!("class {class}"), 9);
            many.add(&format!("class {class}"), &format!("class {}", (class + 1) % 1_000), 1);
        }
        let html = confusion(&many);
        assert!(html.contains("The 25 pairs confused most often, of 1,000.") && html.len() < 20_000);
    }

    #[test]
    fn the_calibration_error_is_weighted() {
        let bin = |confidence, accuracy, count| Bin { confidence, accuracy, count };
        let bins = [bin(0.5, 0.4, 10), bin(0.9, 0.9, 30), bin(f64::NAN, f64::NAN, 0)];
        assert!((calibration_error(&bins).unwrap() - 0.025).abs() < 1e-12);
        assert!(calibration(&bins).contains("<b>0.025</b>") && !calibration(&bins).contains("NaN"));
        assert_eq!(calibration(&[]), "");
    }
}
