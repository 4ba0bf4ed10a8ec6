//! The scores of an evaluation, as plain-text tables and as JSON.

use serde_json::{Value, json};
use unpadded::metrics::Unit;
use unpadded_recipes::{
    ByLength, Confusion, ConfusionCount, Evaluation, Figure, LengthRange, ScoreRow, ScoreTable,
    TranslatedText, UnseenLabel,
};

use super::outcome::Outcome;
use super::terminal::{self, Console};

/// The maximum number of classes in a table.
const ROWS: usize = 30;
/// The maximum number of characters of a class name in a table.
const NAME: usize = 40;

/// Returns the name under which tables show a score, with the usual abbreviation, such as `word error rate (WER)`.
pub(crate) fn named(figure: &str) -> &str {
    match figure {
        "phoneme error rate" => "phoneme error rate (PER)",
        "word error rate" => "word error rate (WER)",
        other => other,
    }
}

/// Returns the values without duplicates, in the order of their first occurrence.
pub(crate) fn distinct<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// Returns the unit of a metric; `share` is true if the metric is a share from 0 to 1.
pub(crate) fn unit(share: bool) -> Unit {
    if share { Unit::Share } else { Unit::Number }
}

/// Returns the factor by which values of a unit are multiplied for display: 100 for a share, which is shown in percent.
pub(crate) fn factor(unit: Unit) -> f64 {
    if unit == Unit::Share { 100.0 } else { 1.0 }
}

/// Returns the symbol to write after a value: a space and `%` for a share, else nothing.
pub(crate) fn sign(unit: Unit) -> &'static str {
    if unit == Unit::Share { " %" } else { "" }
}

/// Returns a value with its unit, as text; `undefined` for NaN.
pub(crate) fn shown(unit: Unit, value: f64) -> String {
    if value.is_nan() {
        return "undefined".to_owned();
    }
    if unit == Unit::Share { format!("{:.2} %", 100.0 * value) } else { format!("{value:.4}") }
}

/// Returns a confidence interval with its unit, as text; empty without an interval.
pub(crate) fn interval(unit: Unit, interval: Option<[f64; 2]>) -> String {
    match interval {
        Some([low, high]) if unit == Unit::Share => format!("{:.2} to {:.2} %", 100.0 * low, 100.0 * high),
        Some([low, high]) => format!("{low:.4} to {high:.4}"),
        None => String::new(),
    }
}

/// Says how the test file was read, unless quiet, and warns of labels that do not occur in training.
pub(crate) fn say(scored: &Evaluation, console: Console) {
    if !console.quiet {
        scored.messages.iter().for_each(terminal::say);
    }
    UnseenLabel::warnings(&scored.unseen).iter().for_each(terminal::say);
}

pub(crate) fn tables(scored: &Evaluation) -> Vec<Table> {
    let mut figures = Table::new("", &["score", "value", "95 % interval"]);
    for figure in &scored.figures {
        let (unit, name) = (figure.unit, named(&figure.name).to_owned());
        figures.rows.push(vec![name, shown(unit, figure.value), interval(unit, figure.interval)]);
    }
    let counts: Vec<String> = scored.counts.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let lines = [counts.join(", ")].into_iter().chain(scored.notes.iter().chain(&scored.signatures).cloned());
    figures.notes = lines.collect();
    [figures].into_iter().chain(scored.tables.iter().map(classes)).collect()
}

/// Returns a table of the most frequent classes with precision, recall and F1.
fn classes(scores: &ScoreTable) -> Table {
    let mut rows: Vec<&ScoreRow> = scores.rows.iter().collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.support), std::cmp::Reverse(row.found)));
    let mut table = Table::new("", &[scores.of, "precision", "recall", "F1", "support"]);
    for row in rows.iter().take(ROWS) {
        let percent = |x: f64| format!("{:.2} %", 100.0 * x);
        let name = terminal::shortened(&row.name, NAME);
        let numbers = [row.precision(), row.recall(), row.f1()].map(percent);
        table.rows.push([name].into_iter().chain(numbers).chain([row.support.to_string()]).collect());
    }
    if rows.len() > ROWS {
        table.notes.push(format!("{} more, less frequent; --json has all", rows.len() - ROWS));
    }
    table
}

/// A table with headings: the cells of the first column are aligned left, all other cells right.
#[derive(Debug, Clone, Default)]
pub(crate) struct Table {
    pub(crate) caption: String,
    pub(crate) head: Vec<String>,
    pub(crate) rows: Vec<Vec<String>>,
    /// The lines of text below the table.
    pub(crate) notes: Vec<String>,
}

impl Table {
    pub(crate) fn new(caption: &str, head: &[&str]) -> Self {
        let head = head.iter().map(|&cell| cell.to_owned()).collect();
        Self { caption: caption.to_owned(), head, ..Self::default() }
    }

    /// Prints a blank line and the whole table; with `--quiet`, prints only the rows.
    pub(crate) fn print(&self, console: Console) -> Outcome<()> {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |at: usize| lines().filter_map(|row| row.get(at)).map(|cell| terminal::width(cell)).max();
        let widths: Vec<usize> = (0..self.head.len()).map(|at| width(at).unwrap_or(0)).collect();
        console.more("")?;
        if !self.caption.is_empty() {
            console.more(&self.caption)?;
        }
        for row in lines().skip(usize::from(console.quiet)) {
            let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
                let blanks = " ".repeat(width - terminal::width(cell));
                if at == 0 { format!("{cell}{blanks}") } else { format!("{blanks}{cell}") }
            });
            console.result(cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        self.notes.iter().try_for_each(|note| console.more(note))
    }
}

/// Prints the scores of an evaluation as tables; with `--quiet`, prints only the table of scores.
pub(crate) fn print(scored: &Evaluation, console: Console) -> Outcome<()> {
    let most = if console.quiet { 1 } else { usize::MAX };
    tables(scored).iter().take(most).try_for_each(|table| table.print(console))
}

pub(crate) fn by_length(table: &ByLength) -> Value {
    let range = |table: &LengthRange| json!({"from": table.from, "to": table.to, "texts": table.texts, "value": table.value});
    let ranges: Value = table.ranges().iter().map(range).collect();
    json!({"of": table.of, "by": table.by, "share": table.unit == Unit::Share, "ranges": ranges})
}

/// Returns the scores as JSON; of the shares, only the fields `value` and `interval` are in percent.
pub(crate) fn object(dataset: &str, scored: &Evaluation) -> Value {
    let headline = scored.headline();
    let percent = |figure: &Figure| factor(figure.unit);
    let scaled = |figure: &Figure| Some(figure.interval?.map(|x| percent(figure) * x));
    let intervals = scored.figures.iter().filter_map(|part| Some((&*part.name, part.interval?.to_vec())));
    let row = |row: &ScoreRow| {
        json!({
            "name": row.name, "precision": row.precision(), "recall": row.recall(), "f1": row.f1(),
            "support": row.support, "found": row.found, "right": row.right,
        })
    };
    let table = |part: &ScoreTable| (part.of, part.rows.iter().map(row).collect::<Value>());
    let cell = |part: &ConfusionCount| json!({"truth": part.truth, "found": part.found, "count": part.count});
    let cells = |part: &Confusion| part.cells.iter().map(cell).collect::<Vec<_>>();
    // The main confusion is of the classes that have a table; for chunks, the confusion of tags has none.
    let main = scored.confusions.iter().find(|part| scored.tables.iter().any(|table| table.of == part.of));
    let example = |part: &TranslatedText| {
        json!({
            "source": part.source, "references": part.references, "found": part.found, "exact": part.exact,
            "chrf": part.chrf,
        })
    };
    let shares =
        scored.figures.iter().filter(|figure| figure.unit == Unit::Share).map(|figure| &*figure.name);
    let unseen = |part: &UnseenLabel| json!({"what": part.what, "name": part.name, "count": part.count, "first": part.places});
    json!({
        "dataset": dataset,
        "metric": headline.map(|part| &part.name),
        "value": headline.map(|part| percent(part) * part.value),
        "interval": headline.and_then(scaled),
        "scores": scored.figures.iter().map(|figure| (&*figure.name, figure.value)).collect::<Value>(),
        "shares": shares.collect::<Value>(),
        "intervals": intervals.collect::<Value>(),
        "counts": scored.counts.iter().copied().collect::<Value>(),
        "tables": scored.tables.iter().map(table).collect::<Value>(),
        "confusion": main.map(cells).unwrap_or_default(),
        "confusions": scored.confusions.iter().map(|part| (part.of, cells(part))).collect::<Value>(),
        "lengths": scored.lengths.as_ref().map(by_length),
        "examples": scored.examples.iter().map(example).collect::<Value>(),
        "unseen": scored.unseen.iter().map(unseen).collect::<Value>(),
        "signatures": scored.signatures,
        "notes": scored.notes,
        "read_as": scored.messages,
    })
}
