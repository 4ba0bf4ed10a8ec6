//! The command `unpadded data`: checks texts and computes statistics of texts before a training.

use std::ops::Range;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use unpadded::executor::MemoryUse;
use unpadded_recipes::{
    BatchRule, ByteSize, ClassCount, Config, Preparation, Preview, Task, check_data, prepare, preview,
};
use unpadded_text::{SkipReport, path_of_text};

use super::init;
use super::memory::{limited, megabytes, of_step};
use super::outcome::{Ending, Outcome, UsageError, bad, plain};
use super::request::whole;
use super::scores::Table;
use super::terminal::{self, Console};

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded data stats reviews.tsv
  unpadded data vocab --task tag train.conll --top 50
  unpadded data check data.csv --set data.text=review
  unpadded data check run.toml")]
pub(crate) struct Data {
    #[command(subcommand)]
    what: DataCommand,
}

#[derive(Subcommand)]
enum DataCommand {
    /// Statistics of texts: lengths, labels, the known share of held-out tokens, and the cost of padding
    #[command(after_help = "Example:\n  unpadded data stats reviews.tsv --json | jq .coverage")]
    Stats(Texts),
    /// Vocabulary: the known tokens with their counts
    #[command(after_help = "Example:\n  unpadded data vocab --task tag train.conll --top 50")]
    Vocab {
        #[command(flatten)]
        texts: Texts,
        /// Number of tokens to show, the most frequent ones
        #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", default_value_t = 30, value_parser = whole::<usize>)]
        top: usize,
    },
    /// Check every record for a training: reports malformed lines, and the memory of the largest batch
    #[command(after_help = "Example:\n  unpadded data check data.csv --set data.text=review")]
    Check(Texts),
}

#[derive(Args)]
struct Texts {
    /// Data: a file or a folder, or a config of a training (`run.toml`)
    #[arg(value_name = "PATH", value_parser = init::path())]
    path: String,
    /// Task to train for: classify, tag, lm or translate (default: classify, or the task of the config)
    #[arg(long, value_parser = init::task)]
    task: Option<Task>,
    /// Setting of the config, as text.tokens=characters; repeatable
    #[arg(long, value_name = "NAME=VALUE", value_parser = init::path())]
    set: Vec<String>,
    /// Threads to run on, 0 for one per core [default: as the config sets]
    #[arg(long, allow_negative_numbers = true, value_name = "NUMBER", value_parser = whole::<usize>)]
    threads: Option<usize>,
    #[command(flatten)]
    console: Console,
}

impl Texts {
    fn config(&self) -> Outcome<Config> {
        let mut config = if self.path.ends_with(".toml") {
            let config = Config::load(path_of_text(&self.path)).usage()?;
            if let Some(task) = self.task.filter(|task| *task != config.run.task) {
                let (trained_task, task) = (config.run.task.name(), task.name());
                return bad(format!(
                    "--task: expected `{trained_task}`, the task of `{}`, got `{task}`",
                    self.path
                ));
            }
            config
        } else {
            let mut config = Config::new(self.task.unwrap_or(Task::Classify));
            config.data.train = Some(self.path.clone());
            config
        };
        self.set.iter().try_for_each(|flag| super::file::set(&mut config, flag))?;
        config.run.threads = self.threads.unwrap_or(config.run.threads);
        // The statistics are for batches of `training.batch` texts, because batches by memory need a trainer.
        config.training.batching = BatchRule::Texts;
        Ok(config)
    }

    fn read(&self) -> Outcome<Preparation> {
        prepare(&self.config()?).usage()
    }
}

impl Data {
    pub(crate) fn run(self) -> Outcome<Ending> {
        match self.what {
            DataCommand::Stats(texts) => stats(&texts)?,
            DataCommand::Vocab { texts, top } => vocabulary(&texts, top)?,
            DataCommand::Check(texts) => check(&texts)?,
        }
        Ok(Ending::Done)
    }
}

fn check(texts: &Texts) -> Outcome<()> {
    let config = texts.config()?;
    let Preview { messages: shown, how, records, .. } = preview(&config).usage()?;
    let how: Value = serde_json::from_str(&how).unwrap_or_default();
    let console = texts.console;
    // The command shows the parsed records even if they are too few for a training.
    shown.iter().try_for_each(|line| console.more(line))?;
    if !records.is_empty() {
        console.more(format!("the first {} records:", records.len()))?;
    }
    for (number, record) in (1..).zip(&records) {
        console.more(format!("record {number}: {}", terminal::shown(record)))?;
    }
    let (prepared, too_few) = check_data(&config).usage()?;
    let (dataset, classes) = (prepared.name.clone(), classes(&prepared));
    let (count, held_out) = (prepared.lengths.len(), prepared.held_out.count);
    let divided = prepared.held_out.divided;
    // The pass over all records may add a clause to the line about how the file is read; only this clause is new.
    let new = |line: &String| match shown.as_ref().and_then(|shown| line.strip_prefix(shown.as_str())) {
        Some("") => None,
        Some(more) => Some(more.strip_prefix("; ").unwrap_or(line).to_owned()),
        None => Some(line.clone()),
    };
    let messages: Vec<String> = prepared.messages.iter().filter_map(new).collect();
    let skipped: Vec<Value> = prepared.skipped.iter().map(skip_json).collect();
    let largest = LargestStep::of(prepared, &config).usage()?;
    console.object(|| {
        let is_warning = |line: &&String| line.starts_with("warning: ");
        json!({
            "dataset": dataset, "texts": count, "held_out": held_out,
            "labels": counts(&classes, "label"), "tags": counts(&classes, "tag"),
            "read_as": how, "records": records, "skipped": skipped, "memory": largest.json(),
            "warnings": messages.iter().filter(is_warning).collect::<Vec<_>>(),
            "too_few": too_few.as_ref().map(plain),
        })
    })?;
    messages.into_iter().try_for_each(|line| console.more(line))?;
    if !console.quiet {
        let tables = tables(&classes, [count, held_out], divided, CLASSES);
        tables.iter().try_for_each(|table| table.print(console))?;
    }
    console.more(largest.shown())?;
    if let Some(e) = too_few {
        return console.result(format!("the records can be read, but a training needs more: {}", plain(&e)));
    }
    let doubt = shown.is_some_and(|messages| messages.contains("if it is a header"));
    console.result(if doubt {
        "the data is valid if the first line is a record, not a header"
    } else {
        "the data is valid"
    })
}

/// Returns the number of the malformed records that were left out of a part of the data, the share, and the first reasons.
fn skip_json(report: &SkipReport) -> Value {
    json!({
        "count": report.count(), "records": report.records, "share": report.share(),
        "first": report.first().collect::<Vec<_>>(),
    })
}

struct LargestStep {
    memory: MemoryUse,
    /// The numbers of the texts in the training part, from 0; `None` for a language model, whose batches are windows.
    texts: Option<Range<usize>>,
    /// The memory limit of the training in bytes.
    limit: u64,
}

impl LargestStep {
    /// Returns the step with the most memory; the batches are in the order of the file.
    fn of(prepared: Preparation, config: &Config) -> unpadded::Result<Self> {
        let Preparation { mut trainer, train, dev, .. } = prepared;
        if config.run.memory.is_none() {
            trainer = limited(trainer);
        }
        let machine = || ByteSize::of_machine().map_or(u64::MAX, ByteSize::bytes);
        let limit = config.run.memory.map_or_else(machine, ByteSize::bytes);
        let mut largest = Self { memory: MemoryUse::default(), texts: None, limit };
        trainer.check_data(&*train, &*dev)?;
        let mut texts = 0;
        for batch in train.batches(None, 0)? {
            let batch = batch?;
            let (from, count) = (texts, batch.numbers.len());
            texts += count;
            let memory = trainer.memory(&batch)?;
            if memory.total() > largest.memory.total() {
                largest.memory = memory;
                largest.texts = (!config.run.task.continues_texts()).then_some(from..texts);
            }
        }
        Ok(largest)
    }

    fn json(&self) -> Value {
        let Self { memory, texts, limit } = self;
        json!({
            "batch_bytes": of_step(memory), "model_bytes": memory.parameters + memory.state,
            "first_text": texts.as_ref().map(|texts| texts.start + 1),
            "last_text": texts.as_ref().map(|texts| texts.end), "limit_bytes": limit,
        })
    }

    fn shown(&self) -> String {
        let Self { memory, texts, limit } = self;
        // A training keeps an eighth of the limit free.
        let over = match memory.total() as u64 > limit - limit / 8 {
            true => format!(
                "; the limit is {}: batches that do not fit are divided, texts that do not fit by themselves are refused",
                megabytes(*limit as usize)
            ),
            false => String::new(),
        };
        let step = megabytes(of_step(memory));
        let batch = match texts {
            Some(texts) => format!(
                "in the order of the file, a batch of {} texts takes at most {step}, at texts {} to {} of the training part",
                texts.len(),
                texts.start + 1,
                texts.end
            ),
            None => format!("a batch takes at most {step}"),
        };
        format!("memory: {batch}; model and optimizer {}{over}", megabytes(memory.parameters + memory.state))
    }
}

/// The maximum number of labels, and of tags, that `data check` shows.
const CLASSES: usize = 20;

/// Returns the labels and tags with their counts. The counts of `data.dev` are zero, since it is another file.
fn classes(prepared: &Preparation) -> Vec<ClassCount> {
    let mut classes = prepared.classes.clone();
    if !prepared.held_out.divided {
        classes.iter_mut().for_each(|class| class.held_out.count = 0);
        classes.retain(|class| class.train > 0);
    }
    classes
}

/// Returns the counts of the labels or of the tags as JSON; held-out texts are included.
fn counts(classes: &[ClassCount], what: &str) -> Value {
    let counted = classes.iter().filter(|class| class.held_out.what == what);
    counted.map(|counted| (counted.held_out.name.clone(), counted.train + counted.held_out.count)).collect()
}

/// Returns a table of the labels and a table of the tags, each with at most `most` rows, the most frequent ones first.
fn tables(classes: &[ClassCount], [train, held_out]: [usize; 2], divided: bool, most: usize) -> Vec<Table> {
    let (texts, held) = match divided {
        true => (train + held_out, format!(", of which {held_out} are held out")),
        false => (train, String::new()),
    };
    let mut tables = Vec::new();
    for what in ["label", "tag"] {
        let mut counted: Vec<&ClassCount> =
            classes.iter().filter(|class| class.held_out.what == what).collect();
        if counted.is_empty() {
            continue;
        }
        if counted.len() > most {
            counted.sort_by_key(|class| std::cmp::Reverse(class.train + class.held_out.count));
        }
        let columns = if divided { &[what, "training", "held out"][..] } else { &[what, "training"] };
        let mut table = Table::new(&format!("{what}s of {texts} texts{held}:"), columns);
        let row = |class: &&ClassCount| {
            let counts = [class.train, class.held_out.count].map(|count| count.to_string());
            [terminal::shown(&class.held_out.name)].into_iter().chain(counts).take(columns.len()).collect()
        };
        table.rows = counted.iter().take(most).map(row).collect();
        if counted.len() > most {
            table.notes.push(format!("{} more", counted.len() - most));
        }
        tables.push(table);
    }
    tables
}

fn stats(texts: &Texts) -> Outcome<()> {
    let prepared = texts.read()?;
    let classes = classes(&prepared);
    let Preparation { messages, mut lengths, name, train, coverage, held_out, .. } = prepared;
    let (mut tokens, mut padded, mut characters) = (0, 0, None);
    for batch in train.batches(Some(0), 0)? {
        let batch = batch?;
        (tokens, padded) = (tokens + batch.tokens, padded + batch.padded);
        if let Some((_, of_words)) = batch.values.iter().find(|(name, _)| name == "characters") {
            characters = Some(characters.unwrap_or(0) + of_words.rows());
        }
    }
    lengths.sort_unstable();
    let at = |share: f64| {
        lengths.get(((lengths.len().max(1) - 1) as f64 * share).round() as usize).copied().unwrap_or(0)
    };
    let more = 100.0 * (padded as f64 / (tokens as f64).max(1.0) - 1.0);
    let console = texts.console;
    let (held_out, divided) = (held_out.count, held_out.divided);
    console.object(|| {
        json!({
            "dataset": name, "texts": lengths.len(), "held_out": held_out,
            "tokens": tokens, "padded": padded, "characters": characters,
            "shortest": at(0.0), "median": at(0.5), "p95": at(0.95), "longest": at(1.0), "coverage": coverage,
            "labels": counts(&classes, "label"), "tags": counts(&classes, "tag"),
        })
    })?;
    messages.iter().try_for_each(|line| console.more(line))?;
    if !lengths.is_empty() {
        let [low, high, middle, most] = [0.0, 1.0, 0.5, 0.95].map(at);
        console.result(format!(
            "lengths in tokens: {low} to {high}, median {middle}, 19 in 20 have at most {most}"
        ))?;
    }
    console.result(format!(
        "{tokens} tokens per epoch; padded batches of the same texts would have {padded}, {more:.0} % more"
    ))?;
    if let Some(characters) = characters {
        console.result(format!("the tokens are words with {characters} characters"))?;
    }
    if let Some(coverage) = coverage {
        console.result(format!("{:.2} % of the held-out tokens are known", 100.0 * coverage))?;
    }
    let tables = tables(&classes, [lengths.len(), held_out], divided, usize::MAX);
    tables.iter().try_for_each(|table| table.print(console))
}

fn vocabulary(texts: &Texts, top: usize) -> Outcome<()> {
    let prepared = texts.read()?;
    let mut all = serde_json::Map::new();
    for (name, vocabulary) in prepared.trainer.vocabularies() {
        let known = vocabulary.tokens().enumerate().take(top);
        let counted = known.map(|(id, token)| (token, vocabulary.count(id as i64)));
        if texts.console.json {
            let counts: Value = counted.collect();
            all.insert(name.to_owned(), json!({"size": vocabulary.len(), "counts": counts}));
            continue;
        }
        let mut table = Table::new(&format!("{name}: {} known", vocabulary.len()), &["token", "count"]);
        table.rows = counted.map(|(token, count)| vec![terminal::shown(token), count.to_string()]).collect();
        table.print(texts.console)?;
    }
    texts.console.object(|| Value::Object(all))
}
