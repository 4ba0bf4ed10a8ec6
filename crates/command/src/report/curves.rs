//! The training curves of a report, and the scores of the epochs as a table.

use super::chart::{self, Line};
use super::page::Epoch;
use super::text::{END, LABEL, boxed, number, put, shortened};
use crate::scores::distinct;

/// The maximum number of rows in the table of epochs, which shows the first, the last and the best epochs.
const ROWS: usize = 200;

/// Returns the section with the training curves; if no epoch has ended, the section is one sentence.
pub(super) fn section(epochs: &[Epoch]) -> String {
    let mut out = String::from("<section aria-labelledby=\"curves\">\n<h2 id=\"curves\">Training</h2>\n");
    if epochs.is_empty() {
        return out + "<p class=\"note\">No epoch was trained.</p>\n</section>\n";
    }
    let names = names(epochs);
    let numbers: Vec<u64> = epochs.iter().map(|e| e.epoch).collect();
    let best = epochs.iter().rposition(|e| e.best);
    out.push_str("<div class=\"cards\">\n");
    for name in &names {
        let curves =
            |pick: fn(&Epoch) -> &Vec<(String, f64)>| epochs.iter().map(|e| value(pick(e), name)).collect();
        let lines = [
            Line { name: "train", class: "train", values: curves(|e| &e.train) },
            Line { name: "dev", class: "dev", values: curves(|e| &e.dev) },
        ];
        let lines: Vec<Line> = lines.into_iter().filter(|l| l.values.iter().any(Option::is_some)).collect();
        out.push_str(&chart::lines(name, &numbers, &lines, best));
    }
    let rates: Vec<Option<f64>> = epochs.iter().map(|e| e.rate).collect();
    if rates.iter().any(Option::is_some) {
        let lines = [Line { name: "learning rate", class: "rate", values: rates }];
        out.push_str(&chart::lines("learning rate", &numbers, &lines, best));
    }
    out.push_str("</div>\n");
    if best.is_some() {
        out.push_str("<p class=\"note\">The green line marks the epoch whose model was kept.</p>\n");
    }
    table(&mut out, epochs, &names, best);
    out + "</section>\n"
}

/// Returns the names of the metrics in the order of their first occurrence, with the loss first.
fn names(epochs: &[Epoch]) -> Vec<&str> {
    let all = epochs.iter().flat_map(|e| e.train.iter().chain(&e.dev));
    let mut names = distinct(all.map(|(name, _)| name.as_str()));
    names.sort_by_key(|name| *name != "loss");
    names
}

pub(super) fn value(scores: &[(String, f64)], name: &str) -> Option<f64> {
    scores.iter().find(|(n, _)| n == name).map(|&(_, v)| v)
}

fn table(out: &mut String, epochs: &[Epoch], names: &[&str], best: Option<usize>) {
    out.push_str("<details>\n<summary>The numbers of each epoch</summary>\n");
    let mut heads = vec!["epoch".to_owned(), "step".to_owned()];
    let has = |pick: fn(&Epoch) -> &Vec<(String, f64)>, name: &str| {
        epochs.iter().any(|e| value(pick(e), name).is_some())
    };
    let mut columns: Vec<(&str, bool)> = Vec::new();
    for &name in names {
        for (dev, there) in [(false, has(|e| &e.train, name)), (true, has(|e| &e.dev, name))] {
            if there {
                columns.push((name, dev));
                let set = if dev { "dev" } else { "train" };
                heads.push(format!("{}<br><small>{set}</small>", shortened(name, LABEL)));
            }
        }
    }
    let rates = epochs.iter().any(|e| e.rate.is_some());
    heads.extend(rates.then(|| "learning rate".to_owned()));
    boxed(out, "Numbers of each epoch", "numbers", heads);
    let mut before = None;
    for (i, epoch) in epochs.iter().enumerate() {
        if i >= ROWS / 2 && i + ROWS / 2 < epochs.len() && best != Some(i) {
            continue;
        }
        if before.is_some_and(|b: usize| b + 1 < i) {
            let left = before.map_or(0, |b| i - b - 1);
            let span = columns.len() + 2 + usize::from(rates);
            put!(out, "<tr><td class=\"cut\" colspan=\"{span}\">… {left} more</td></tr>\n");
        }
        before = Some(i);
        let [class, mark] =
            if best == Some(i) { [" class=\"kept\"", " <small>best</small>"] } else { [""; 2] };
        put!(out, "<tr{class}><th scope=\"row\">{}{mark}</th><td>{}</td>", epoch.epoch, epoch.step);
        for &(name, dev) in &columns {
            let shown = value(if dev { &epoch.dev } else { &epoch.train }, name).map_or("–".into(), number);
            put!(out, "<td>{shown}</td>");
        }
        if rates {
            put!(out, "<td>{}</td>", epoch.rate.map_or("–".into(), number));
        }
        out.push_str("</tr>\n");
    }
    put!(out, "{END}</details>\n");
}
