//! The page that compares several runs: the curves in one chart, the scores side by side, and the settings that differ.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use unpadded::metrics::Unit;

use super::bars;
use super::chart::{self, Line};
use super::curves::value;
use super::frame::{foot, head};
use super::page::{ClassRow, Epoch, Page, TestScores};
use super::tables::ROWS;
use super::text::{END, LABEL, boxed, count, counted, label, number, put, row, section, shortened};
use crate::scores::distinct;

/// The number of line colours; the lines of further runs reuse the colours and are dashed.
const COLOURS: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) name: String,
    pub(crate) task: String,
    pub(crate) data: String,
    pub(crate) epochs: Vec<Epoch>,
    /// The unit of each metric in the epochs; a metric whose unit is unknown is not in the list.
    pub(crate) units: Vec<(String, Unit)>,
    pub(crate) tested: Option<TestScores>,
}

impl Run {
    fn best(&self) -> Option<&Epoch> {
        self.epochs.iter().rfind(|epoch| epoch.best)
    }

    fn shown(&self, metric: &str, value: f64) -> String {
        match self.units.iter().find(|(known, _)| known == metric) {
            Some((_, Unit::Share)) => format!("{:.2} %", 100.0 * value),
            _ => number(value),
        }
    }
}

/// The contents of the page that compares several runs.
#[derive(Debug, Default)]
pub(crate) struct SeveralRuns {
    pub(crate) runs: Vec<Run>,
    /// The settings that differ between the runs; each setting has its value in each run.
    pub(crate) settings: Vec<(String, Vec<String>)>,
}

pub(crate) fn several(page: &SeveralRuns) -> String {
    let runs = &page.runs[..];
    let mut out = String::with_capacity(1 << 16);
    let title = counted(runs.len() as u64, "run", "runs");
    head(
        &mut out,
        &Page { title, task: names(runs.iter().map(|run| &run.task)).join(", "), ..Page::default() },
    );
    out.push_str("<main>\n<ol class=\"runs\">\n");
    for (at, run) in runs.iter().enumerate() {
        let mut facts = vec![run.data.clone(), counted(run.epochs.len() as u64, "epoch", "epochs")];
        facts.extend(run.best().map(|best| format!("the best is {}", best.epoch)));
        let facts = shortened(&facts.join(", "), LABEL);
        put!(out, "<li><b>{}</b> <span class=\"soft\">{facts}</span></li>\n", named(at, run));
    }
    out.push_str("</ol>\n");
    curves(&mut out, runs);
    scores(&mut out, runs);
    settings(&mut out, page);
    classes(&mut out, runs);
    let errors = runs.iter().filter_map(|run| Some((run.tested.as_ref()?.errors.as_ref()?, &run.name)));
    let errors: String = errors.map(|(errors, name)| bars::errors(errors, name)).collect();
    if !errors.is_empty() {
        let body = format!("<div class=\"cards\">\n{errors}</div>\n");
        out += &section("errors", "Errors by length", &body);
    }
    foot(&mut out);
    out
}

fn names<'a>(all: impl Iterator<Item = &'a String>) -> Vec<&'a str> {
    distinct(all.map(String::as_str))
}

fn colour(at: usize) -> String {
    format!("run{}{}", at % COLOURS, if at >= COLOURS { " dashed" } else { "" })
}

/// Returns the name of a run as HTML, in the colour of the run.
fn named(at: usize, run: &Run) -> String {
    format!("<span class=\"swatch {}\"></span>{}", colour(at), label(&run.name))
}

/// Returns the headings of a table with one column per run.
fn heads(first: &str, runs: &[Run]) -> Vec<String> {
    let names = runs.iter().enumerate().map(|(at, run)| named(at, run));
    [first.to_owned()].into_iter().chain(names).collect()
}

/// A function that returns an epoch's scores on the training texts, or on the held-out texts.
type ScoreChoice = fn(&Epoch) -> &Vec<(String, f64)>;

fn curves(out: &mut String, runs: &[Run]) {
    let mut epochs: Vec<u64> = runs.iter().flat_map(|run| &run.epochs).map(|epoch| epoch.epoch).collect();
    epochs.sort_unstable();
    epochs.dedup();
    let colours: Vec<String> = (0..runs.len()).map(colour).collect();
    let mut cards = String::new();
    let parts: [(&str, ScoreChoice); 2] =
        [("held-out", |epoch| &epoch.dev), ("training", |epoch| &epoch.train)];
    for (part, curve) in parts {
        let all = || runs.iter().flat_map(|run| &run.epochs).flat_map(curve);
        for name in names(all().map(|(name, _)| name)) {
            let values = |run: &Run| -> Vec<Option<f64>> {
                let at_epoch = |epoch: &u64| {
                    let at = run.epochs.binary_search_by_key(epoch, |epoch| epoch.epoch).ok()?;
                    value(curve(run.epochs.get(at)?), name)
                };
                epochs.iter().map(at_epoch).collect()
            };
            let all = runs.iter().zip(&colours);
            let lines = all.map(|(run, class)| Line { name: &run.name, class, values: values(run) });
            let lines: Vec<Line<'_>> = lines.filter(|line| line.values.iter().any(Option::is_some)).collect();
            let title = format!("{part} {name}");
            cards.push_str(&chart::overlay(&title, &epochs, &lines));
        }
    }
    let body = match cards.is_empty() {
        true => "<p class=\"note\">No epoch was trained.</p>\n".to_owned(),
        false => format!("<div class=\"cards\">\n{cards}</div>\n"),
    };
    *out += &section("curves", "Training", &body);
}

fn scores(out: &mut String, runs: &[Run]) {
    let best = runs.iter().filter_map(Run::best).flat_map(|epoch| &epoch.dev).map(|(name, _)| name);
    let tested = runs.iter().filter_map(|run| run.tested.as_ref());
    let (best, figures) = (
        names(best),
        names(tested.clone().flat_map(|tested_run| &tested_run.figures).map(|tested_run| &tested_run.name)),
    );
    if best.is_empty() && figures.is_empty() {
        return;
    }
    out.push_str("<section aria-labelledby=\"scores\">\n<h2 id=\"scores\">Scores</h2>\n");
    boxed(out, "Scores of each run", "scores beside", heads("score", runs));
    for name in best {
        let best = |run: &Run| Some(run.shown(name, value(&run.best()?.dev, name)?));
        let cells = runs.iter().map(|run| best(run).unwrap_or_else(|| "–".to_owned()));
        row(out, &format!("held-out {}", shortened(name, LABEL)), cells);
    }
    for name in figures {
        let headline = tested.clone().any(|tested_run| tested_run.metric == name);
        let class = if headline { " class=\"kept\"" } else { "" };
        put!(out, "<tr{class}><th scope=\"row\">test {}</th>", shortened(name, LABEL));
        for run in runs {
            match run.tested.as_ref().and_then(|tested| tested.get(name)) {
                Some(score) => put!(out, "<td>{}<br><small>{}</small></td>", score.shown(), score.interval()),
                None => out.push_str("<td>–</td>"),
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str(END);
    out.push_str("<p class=\"note\">Held-out scores are from the best epoch; below each test score is its 95 % interval.</p>\n");
    let untested = runs.iter().filter(|run| run.tested.is_none()).count();
    if untested > 0 && untested < runs.len() {
        let tested_run = counted(untested as u64, "run has", "runs have");
        put!(out, "<p class=\"note\">{tested_run} no test.json: `train --test FILE` writes it.</p>\n");
    }
    let files = names(tested.map(|tested_run| &tested_run.dataset));
    if files.len() > 1 {
        let files = shortened(&files.join(", "), 400);
        put!(
            out,
            "<p class=\"note bad\">The test files differ, so the scores cannot be compared: {files}.</p>\n"
        );
    }
    out.push_str("</section>\n");
}

fn settings(out: &mut String, SeveralRuns { runs, settings }: &SeveralRuns) {
    if runs.len() < 2 {
        return;
    }
    let mut body = String::new();
    if settings.is_empty() {
        body.push_str("<p class=\"note\">None: the configs are equal.</p>\n");
    } else {
        boxed(&mut body, "Settings that differ", "scores beside", heads("setting", runs));
        for (key, values) in settings {
            put!(body, "<tr><th scope=\"row\"><code>{}</code></th>", shortened(key, LABEL));
            values.iter().for_each(|value| put!(body, "<td class=\"set\">{}</td>", shortened(value, LABEL)));
            body.push_str("</tr>\n");
        }
        body.push_str(END);
    }
    *out += &section("settings", "Settings that differ", &body);
}

/// Writes one table per kind of classes, with the F1 of each class in every run that has the class.
fn classes<'a>(out: &mut String, runs: &'a [Run]) {
    let all = names(
        runs.iter().flat_map(|run| run.tested.iter()).flat_map(|what| &what.tables).map(|table| &table.of),
    );
    let of_all = |what: &str| -> Vec<(usize, &Run, &[ClassRow])> {
        let of_run = |(at, run): (usize, &'a Run)| {
            let table = run.tested.as_ref()?.tables.iter().find(|table| table.of == what)?;
            Some((at, run, &table.rows[..]))
        };
        runs.iter().enumerate().filter_map(of_run).collect()
    };
    let rows = |what: &str| of_all(what).into_iter().map(|(at, _, rows)| (at, rows)).collect::<Vec<_>>();
    let mut sections = String::new();
    for (number, what) in all.iter().enumerate() {
        // A table that equals an earlier table is left out: the strict chunk scores often equal the scores of conlleval.
        if all.iter().take(number).any(|before| rows(before) == rows(what)) {
            continue;
        }
        f1(&mut sections, what, &of_all(what));
    }
    if !sections.is_empty() {
        *out += &section("classes", "F1 of each class of the test set", &sections);
    }
}

fn f1<'a>(out: &mut String, what: &str, runs: &[(usize, &Run, &'a [ClassRow])]) {
    let mut support: BTreeMap<&str, u64> = BTreeMap::new();
    for row in runs.iter().flat_map(|(.., rows)| *rows) {
        support.entry(&row.name).or_insert(row.support);
    }
    let mut order: Vec<(&str, u64)> = support.into_iter().collect();
    order.sort_by_key(|&(_, support)| Reverse(support));
    let scores = |rows: &'a [ClassRow]| rows.iter().map(|row| (row.name.as_str(), row.scores[2])).collect();
    let found: Vec<BTreeMap<&str, f64>> = runs.iter().map(|(.., rows)| scores(rows)).collect();
    put!(out, "<h3>Each {}</h3>\n", shortened(what, LABEL));
    let columns = runs.iter().map(|&(at, run, _)| named(at, run));
    let head = [shortened(what, LABEL)].into_iter().chain(columns).chain(["support".to_owned()]);
    boxed(out, &format!("F1 of each {what}"), "scores beside", head);
    for (name, support) in order.iter().take(ROWS) {
        let shown = |f1: Option<&f64>| f1.map_or("–".to_owned(), |f1| format!("{:.2} %", 100.0 * f1));
        let cells = found.iter().map(|run| shown(run.get(name)));
        row(out, &label(name), cells.chain([count(*support)]));
    }
    out.push_str(END);
    if order.len() > ROWS {
        let more = count((order.len() - ROWS) as u64);
        put!(out, "<p class=\"note\">{more} more, less frequent; test.json has all.</p>\n");
    }
}
