//! The command `unpadded eval`: evaluates trained models on a test set.

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};
use unpadded_recipes::{
    Config, Disagreement, Evaluation, Figure, Model, ModelComparison, ModelDifference, compare, scores,
};
use unpadded_text::text_of_path;

use super::interrupts::until_signal;
use super::model_choice::{ModelChoice, ThreadCount};
use super::outcome::{Ending, Outcome, UsageError};
use super::scores::{self as show, Table};
use super::terminal::{self, Console};
use super::{beside, init, together};

/// The name of the statistical test for whether the difference between two models is significant.
const METHOD: &str = "paired bootstrap, 1,000 samples, two-sided";
const TEXT: usize = 200;

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded eval runs/classify-1 test.tsv               scores with 95 % intervals, and each class
  unpadded eval runs/tag-1 test.conll --json           the same as a line of JSON
  unpadded eval runs/tag-1 runs/tag-2 test.conll       side by side, with a paired bootstrap test
  unpadded eval --ensemble runs/tag-1 runs/tag-2 test.conll   ensemble: means of probabilities, votes for tags
  unpadded eval --ensemble runs/tag-3 test.conll       all runs of `train --seeds` or `--folds` as one
Intervals are percentiles of 1,000 bootstrap samples of the texts; with fewer than 100 texts, the interval of an accuracy or
another share of texts is Wilson's. Labels and tags that training never saw are reported with their places, and scored as wrong.")]
pub(crate) struct Eval {
    /// Run folders (their best epoch) or checkpoints; several are compared
    #[arg(value_name = "RUN", required = true, num_args = 1..)]
    runs: Vec<PathBuf>,
    /// Test data: texts with right answers, in the format of the training data
    #[arg(value_name = "FILE", required = true, value_parser = init::path())]
    data: String,
    /// Ensemble: combine all runs into one model, and score it
    #[arg(long)]
    ensemble: bool,
    /// Setting of the config for FILE, as data.text=review; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = init::path())]
    set: Vec<String>,
    #[command(flatten)]
    threads: ThreadCount,
    #[command(flatten)]
    console: Console,
}

struct Run {
    name: String,
    /// The config that determines how the test texts are read.
    config: Config,
    model: Model,
}

impl Eval {
    pub(crate) fn run(self) -> Outcome<Ending> {
        let Self { runs, data, ensemble, set, threads, console } = self;
        let load = |(name, model): (String, Model)| -> Outcome<Run> {
            let mut config = super::file::of_model(&model, &set)?;
            config.data.test = Some(data.clone());
            threads.over(&mut config)?;
            Ok(Run { name, config, model })
        };
        let named = |path: PathBuf| {
            let name = text_of_path(&path);
            Ok((name, ModelChoice { path }.load()?.threads(threads.number)))
        };
        let models: Vec<(String, Model)> = match ensemble {
            true => vec![("ensemble".to_owned(), together::load(&runs, threads.number)?)],
            false => runs.into_iter().map(named).collect::<Outcome<_>>()?,
        };
        let runs: Vec<Run> = models.into_iter().map(load).collect::<Outcome<_>>()?;
        let message = format!("interrupted while scoring `{data}`: no scores are printed");
        match &runs[..] {
            [Run { config, model, .. }] => {
                let scored = until_signal(&message, || Ok(()), || scores(config, model))?.usage()?;
                show::say(&scored, console);
                show::print(&scored, console)?;
                console.object(|| show::object(&data, &scored))?;
            }
            _ => {
                let pairs: Vec<(&Config, &Model)> =
                    runs.iter().map(|run| (&run.config, &run.model)).collect();
                let compared = until_signal(&message, || Ok(()), || compare(&pairs))?.usage()?;
                side_by_side(&runs, &compared, console)?;
                console.object(|| several(&data, &runs, &compared))?;
            }
        }
        Ok(Ending::Done)
    }
}

fn settings(runs: &[Run]) -> Vec<(String, Vec<String>)> {
    beside::settings(&runs.iter().map(|run| run.model.trained_by()).collect::<Vec<_>>())
}

fn side_by_side(runs: &[Run], compared: &ModelComparison, console: Console) -> Outcome<()> {
    let ModelComparison { scored, against_first, .. } = compared;
    // The lines about the test file are printed once if they are equal for all models.
    for (at, each) in scored.iter().enumerate() {
        if at == 0
            || scored
                .first()
                .is_some_and(|first| first.messages != each.messages || first.unseen != each.unseen)
        {
            show::say(each, console);
        }
    }
    let head = |each: &str| {
        let mut head = Table::new("", &[each]);
        head.head.extend(runs.iter().map(|run| terminal::shown(&run.name)));
        head
    };
    let mut figures = head("score");
    for name in show::distinct(scored.iter().flat_map(|each| &each.figures).map(|figure| &figure.name)) {
        let mut row = vec![show::named(name).to_owned()];
        row.extend(scored.iter().map(|each| match each.figures.iter().find(|figure| figure.name == *name) {
            Some(Figure { unit, value, interval, .. }) => {
                let interval = interval.map(|_| format!(" ({})", show::interval(*unit, *interval)));
                show::shown(*unit, *value) + &interval.unwrap_or_default()
            }
            None => "–".to_owned(),
        }));
        figures.rows.push(row);
    }
    figures.notes.push("in brackets: 95 % intervals".to_owned());
    let mut notes: Vec<&String> = scored.iter().flat_map(|each| &each.notes).collect();
    notes.sort();
    notes.dedup();
    figures.notes.extend(notes.into_iter().cloned());
    figures.print(console)?;
    if !console.quiet {
        counts(head("count"), scored).print(console)?;
    }
    let settings = settings(runs);
    if !settings.is_empty() && !console.quiet {
        let mut table = head("setting");
        table.rows.extend(settings.into_iter().map(|(key, values)| [vec![key], values].concat()));
        table.print(console)?;
    }
    let (Some(one), Some(first)) = (runs.first(), scored.first()) else { return Ok(()) };
    for (run, ModelDifference { p_value, differ, texts, .. }) in runs.iter().skip(1).zip(against_first) {
        let (one, two) = (terminal::shown(&one.name), terminal::shown(&run.name));
        let tested = match p_value {
            Some(p) => format!("p = {p:.3} for {} ({METHOD})", first.headline),
            None => "no test: the runs differ in their texts, their headline score, or their labels or tags"
                .to_owned(),
        };
        console.more("")?;
        console.result(format!("{two} against {one}: {tested}"))?;
        if *differ > 0 {
            let shown = texts.len();
            console.more(format!("{differ} texts have different answers; the first {shown}:"))?;
        }
        for Disagreement { text, truth, found: [a, b], .. } in texts {
            let lines = [("text", text), ("truth", truth), (one.as_str(), a), (two.as_str(), b)];
            let width = lines.iter().map(|(name, _)| terminal::width(name)).max().unwrap_or(0);
            console.more("")?;
            for (name, line) in lines {
                let blanks = " ".repeat(width - terminal::width(name));
                console.more(format!("  {name}{blanks}  {}", terminal::shortened(line, TEXT)))?;
            }
        }
    }
    Ok(())
}

/// Adds one row per count (texts, tokens, unknown tokens) to a table that has one column per run.
fn counts(mut table: Table, scored: &[Evaluation]) -> Table {
    for name in show::distinct(scored.iter().flat_map(|one| &one.counts).map(|(name, _)| *name)) {
        let count =
            |one: &Evaluation| one.counts.iter().find(|(one, _)| *one == name).map(|(_, count)| *count);
        let cells = scored.iter().map(|one| count(one).map_or_else(|| "–".to_owned(), |n| n.to_string()));
        table.rows.push(std::iter::once(name.to_owned()).chain(cells).collect());
    }
    table
}

fn several(
    data: &str,
    runs: &[Run],
    ModelComparison { scored, against_first, .. }: &ModelComparison,
) -> Value {
    let run = |(run, one): (&Run, _)| {
        let mut object = show::object(data, one);
        object["run"] = run.name.as_str().into();
        object
    };
    let first = runs.first().map(|run| &run.name);
    let text = |one: &Disagreement| json!({"text": one.text, "truth": one.truth, "found": one.found});
    let against = |(run, one): (&Run, &ModelDifference)| {
        json!({
            "run": run.name, "against": first, "p_value": one.p_value, "method": METHOD, "differ": one.differ,
            "texts": one.texts.iter().map(text).collect::<Value>(),
        })
    };
    json!({
        "dataset": data,
        "runs": runs.iter().zip(scored).map(run).collect::<Value>(),
        "settings": settings(runs).into_iter().collect::<Value>(),
        "comparisons": runs.iter().skip(1).zip(against_first).map(against).collect::<Value>(),
    })
}
