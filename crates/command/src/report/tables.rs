//! The section of a report with the scores of the test set.

use super::page::{ClassRow, ClassTable, TestScores};
use super::text::{END, LABEL, begun, boxed, count, label, percent, put, row, shortened};
use super::{bars, classes};

/// The maximum number of classes in a table.
pub(super) const ROWS: usize = 100;

/// Returns the section of the test set or of the held-out texts, with all their scores.
pub(super) fn section(tested: &TestScores, [id, name]: [&str; 2], of_labels: &[(String, f64)]) -> String {
    let mut out = format!(
        "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\">Scores on the {name}</h2>\n<div class=\"tables\">\n"
    );
    figures(&mut out, tested);
    if let Some(errors) = &tested.errors {
        out.push_str(&bars::errors(errors, &begun(name)));
    }
    for (at, table) in tested.tables.iter().enumerate() {
        // A table that equals an earlier table is left out: the strict chunk scores often equal the scores of conlleval.
        match tested.tables.iter().take(at).find(|before| before.rows == table.rows) {
            Some(before) => {
                let [what, other] = [&table.of, &before.of].map(|what| shortened(what, LABEL));
                put!(out, "<p class=\"note\">The scores by “{what}” equal those by “{other}”.</p>\n");
            }
            None => classes_of(&mut out, table),
        }
    }
    out.push_str(&thresholds(of_labels));
    out.push_str("</div>\n");
    out.push_str(&tested.confusions.iter().map(classes::confusion).collect::<String>());
    out + "</section>\n"
}

fn thresholds(labels: &[(String, f64)]) -> String {
    let mut out = String::new();
    if labels.is_empty() {
        return out;
    }
    out.push_str(
        "<div>\n<h3>Thresholds of labels</h3>\n<p class=\"note\">A text gets each label whose probability is at least the threshold of \
         the label. `decoding.threshold` sets another rule.</p>\n",
    );
    boxed(&mut out, "Thresholds of labels", "scores", ["label", "threshold"]);
    for (name, threshold) in labels.iter().take(ROWS) {
        row(&mut out, &label(name), [percent(*threshold)]);
    }
    out.push_str(END);
    if labels.len() > ROWS {
        put!(out, "<p class=\"note\">{} more are not shown.</p>\n", count((labels.len() - ROWS) as u64));
    }
    out + "</div>\n"
}

fn figures(out: &mut String, tested: &TestScores) {
    put!(out, "<div>\n<h3 dir=\"auto\">{}</h3>\n", shortened(&tested.dataset, LABEL));
    boxed(out, "Scores", "scores", ["score", "value", "95 % interval"]);
    for figure in &tested.figures {
        row(out, &shortened(&figure.name, LABEL), [figure.shown(), figure.interval()]);
    }
    out.push_str(END);
    let counts = tested.counts.iter().map(|(name, value)| format!("{} {name}", count(*value)));
    let notes = [counts.collect::<Vec<_>>().join(", ")].into_iter().chain(tested.notes.iter().cloned());
    for note in notes.filter(|note| !note.is_empty()) {
        put!(out, "<p class=\"note\">{}</p>\n", shortened(&note, 400));
    }
    out.push_str("</div>\n");
}

fn classes_of(out: &mut String, ClassTable { of: what, rows }: &ClassTable) {
    if rows.is_empty() {
        return;
    }
    put!(out, "<div>\n<h3>Each {}</h3>\n", shortened(what, LABEL));
    let head = [shortened(what, LABEL), "precision".into(), "recall".into(), "F1".into(), "support".into()];
    boxed(out, &format!("Scores of each {what}"), "scores", head);
    for ClassRow { name, scores, support } in rows.iter().take(ROWS) {
        let scores = scores.map(|score| format!("{:.2}\u{a0}%", 100.0 * score));
        row(out, &label(name), scores.into_iter().chain([count(*support)]));
    }
    out.push_str(END);
    if rows.len() > ROWS {
        let more = count((rows.len() - ROWS) as u64);
        put!(
            out,
            "<p class=\"note\">{more} more, less frequent; the JSON file in the run folder has all.</p>\n"
        );
    }
    out.push_str("</div>\n");
}
