//! What a recipe is told: the task, the data, how text is cut, the model and the training.

use super::settings::{Value, choice, section};
use crate::data::Fold;
use crate::error::{AtCaller, Error, Result};
use crate::executor::Executor;
use crate::kernels::edit_distance;
use crate::train::MOST_PARTS;

/// A program has operators for each layer: one of 64 is compiled in seconds, and one of a thousand in minutes.
const MOST_LAYERS: usize = 64;

choice! {
    /// What is learnt.
    Task {
        /// A label for each text.
        Classify = "classify",
        /// A tag for each word of a text, and perhaps a label for the text.
        Tag = "tag",
        /// What comes next: a language model, which writes.
        Lm = "lm",
        /// Another text for each text.
        Translate = "translate",
    }
}

choice! {
    /// How text is cut into tokens.
    Tokens {
        /// What stands between white space.
        Whitespace = "whitespace",
        /// Words by the rules of Unicode; marks of punctuation are tokens of their own.
        Words = "words",
        /// Characters as they are read.
        Characters = "characters",
        /// Words and marks that can be put together again as they were.
        Pieces = "pieces",
    }
}

choice! {
    /// The recurrent cell.
    Cell {
        /// Long short-term memory.
        Lstm = "lstm",
        /// Gated recurrent unit.
        Gru = "gru",
        /// The plain recurrent layer.
        Rnn = "rnn",
    }
}

choice! {
    /// What of a text's states says its label.
    Pooling {
        /// The state after the last word.
        Last = "last",
        /// The largest number of each column.
        Max = "max",
        /// The mean of the states.
        Mean = "mean",
        /// The mean that attention weighs (Lin et al., 2017).
        Attention = "attention",
    }
}

section! {
    /// Where the texts are.
    DataConfig = "data" {
        /// What to train on: a file, a folder, or several by a pattern such as `data/*.tsv`; this and all paths from the folder in which the command runs; without it, the texts that come with the program.
        train: Option<String> = None;
        /// What to measure on after each epoch, and to choose the best epoch by; without it, a part of the training texts is held out.
        dev: Option<String> = None;
        /// What to measure the chosen epoch on, once, at the end.
        test: Option<String> = None;
        /// Which share of the training texts is held out where there is no `dev`, at most 0.5: one text in so many, so about a half, a third, a quarter and so on.
        hold_out: f64 = 0.1;
        /// Cross-validation: the fold that is held out in the place of `hold_out`, as `"2/5"`, the second of five; `train --folds 5` sets it. Equal texts are in one fold, and folds have about equal shares of each label (default: none).
        fold: Option<Fold> = None;
        /// The form of the files, where it cannot be told from them: `tsv`, `csv`, `jsonl`, `parquet`, `columns`, `parallel`, `file-per-class`, `folder-per-class`, `trees`, `fasttext`, `dictionary`, `libsvm` or `plain`.
        format: Option<String> = None;
        /// The column of the text, by name or number, or its field in JSON Lines or Parquet; of tagged texts that of the words, of pairs that of the source.
        text: Option<String> = None;
        /// The column or field of the label, of the tags, or of the translation; the tags of CoNLL-U also by name: `upos`, `xpos`, `feats`, `deprel` or `lemma`.
        label: Option<String> = None;
        /// Header: whether the first record of a table, or the first line of words and tags, names the columns (default: detected, and said).
        header: Option<bool> = None;
        /// Separator of a table's columns: one character, or `tab` (default: the one of comma, semicolon, tab and bar that fits).
        separator: Option<String> = None;
        /// Encoding of the files: `utf-8`, `windows-1252`, `gbk` or another name (default: UTF-8, UTF-16 or windows-1252, as detected).
        encoding: Option<String> = None;
        /// Whether trees of sentiment have two labels: 0 and 1 are one, 3 and 4 the other, 2 is left out.
        binary: bool = false;
        /// The number of the first feature in LIBSVM files: 0, as scikit-learn writes them, or 1; without it, 0 if any index is 0, and else 1. Of `classify` alone.
        first_index: Option<usize> = None;
        /// Whether tags that break their scheme are rewritten as conlleval reads them: an `I` behind `O` begins a chunk. Without it, they are an error.
        repair_tags: bool = false;
        /// Tag scheme: `iob1`, `iob2` (`bio`), `ioe1`, `ioe2`, `iobes` (`bilou`, `bmes`), or `plain`, whose tags are kinds as they stand (default: detected, and said).
        scheme: Option<String> = None;
        /// For files that are larger than memory: a shuffle window in texts. Files are read anew in each epoch, only the window is in memory, and the files must not change meanwhile. Of `lm`, in tokens: a longer text is in a temporary file. Not for LIBSVM files (default: all texts are in memory).
        window: Option<usize> = None;
    }
}

section! {
    /// How text becomes tokens, and which tokens are known.
    TextConfig = "text" {
        /// Tokens: `words`, `characters`, `pieces` or `whitespace` (`translate` by default: `pieces`, or `characters` of pronunciations).
        tokens: Option<Tokens> = Some(Tokens::Words);
        /// A `tokenizer.json` of Hugging Face's, which cuts text and numbers its tokens in the place of the other settings here.
        tokenizer: Option<String> = None;
        /// Tokens of the text that is written (default: as `tokens`, of pronunciations `whitespace`: the phonemes).
        target_tokens: Option<Tokens> = None;
        /// Whether capital letters count as small ones.
        lowercase: bool = true;
        /// A token that occurs less often in the training texts is not known.
        min_count: usize = 2;
        /// How many tokens are known at most, the most frequent ones.
        max_size: Option<usize> = None;
        /// A file of pre-trained word vectors, of GloVe, word2vec or fastText, which `model.embedding` has the width of.
        vectors: Option<String> = None;
    }
}

section! {
    /// The model.
    ModelConfig = "model" {
        /// The width of a token's vector.
        embedding: usize = 128;
        /// The recurrent cell: `lstm`, `gru` or `rnn`.
        cell: Cell = Cell::Lstm;
        /// The width of a state.
        hidden: usize = 128;
        /// How many recurrent layers there are, one over the other: at most 64.
        layers: usize = 1;
        /// Whether each layer reads in both directions.
        bidirectional: bool = false;
        /// What of the states says the label: `last`, `max`, `mean` or `attention`.
        pool: Pooling = Pooling::Last;
        /// Which share of the numbers between layers is left out while training.
        dropout: f64 = 0.6;
    }
}

section! {
    /// The training.
    TrainingConfig = "training" {
        /// How often to go through the texts.
        epochs: u64 = 30;
        /// How many texts make a step; of a language model, how many pieces of the text are read side by side.
        batch: usize = 16;
        /// The learning rate of Adam at the start.
        rate: f64 = 2e-3;
        /// Whether the rate falls to a hundredth by half a cosine.
        cosine: bool = false;
        /// The largest norm of all gradients together.
        clip: f64 = 1.0;
        /// Stop after so many epochs that were not the best; without it, no epoch is left out.
        patience: Option<u64> = None;
        /// Parts of a batch, a power of two: gradients are computed part by part and summed along a fixed tree, and up to this many processes (`mpirun`) compute them; the parts decide the bits of a training, the number of processes does not (default: 1, or the number of processes rounded up to a power of two).
        parts: Option<u64> = None;
    }
}

section! {
    /// What stands above all tables.
    RunConfig = "" {
        /// What is learnt: `classify`, `tag`, `lm` or `translate`.
        task: Task = Task::Classify;
        /// Where random numbers start: equal seeds give equal results.
        seed: u64 = 1;
        /// Threads to run on, 0 for one a core; the results are the same on any number.
        threads: usize = 0;
    }
}

/// What a recipe is told.
///
/// ```
/// use unpadded::recipes::{Config, Task, Value};
/// let mut config = Config::new(Task::Classify);
/// config.set("model.hidden", &Value::Int(64))?;
/// assert_eq!(config.model.hidden, 64);
/// let error = config.set("model.hiden", &Value::Int(64)).unwrap_err().to_string();
/// assert!(error.contains("`model.hidden`"), "{error}");
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Config {
    /// The task, the seed and the threads.
    pub run: RunConfig,
    /// Where the texts are.
    pub data: DataConfig,
    /// How text becomes tokens.
    pub text: TextConfig,
    /// The model.
    pub model: ModelConfig,
    /// The training.
    pub training: TrainingConfig,
}

impl Config {
    /// Sets what the dotted name stands for.
    ///
    /// # Errors
    /// If the task has no such setting (the nearest one is named), or the value is of another type.
    #[track_caller]
    pub fn set(&mut self, name: &str, value: &Value) -> Result<()> {
        let task = self.run.task;
        if !Self::has(task, name) {
            if let Some(other) = Task::ALL.iter().find(|other| Self::has(**other, name)) {
                let expected = format!("one that it has; that one is of `{}`", other.name());
                return Err(Error::new(
                    format!("settings of `{}`", task.name()),
                    expected,
                    format!("`{name}`"),
                ));
            }
            let known: Vec<String> = Self::keys(task).map(|key| key.to_string()).collect();
            let expected = match nearest(name, known.iter().map(String::as_str)) {
                Some(near) => format!("`{near}`, perhaps"),
                None => format!("one of `{}`", known.join("`, `")),
            };
            return Err(Error::new(format!("settings of `{}`", task.name()), expected, format!("`{name}`")));
        }
        let (section, key) = name.split_once('.').unwrap_or(("", name));
        match section {
            "data" => self.data.set(key, value),
            "text" => self.text.set(key, value),
            "model" => self.model.set(key, value),
            "training" => self.training.set(key, value),
            _ => self.run.set(key, value),
        }
    }

    /// What the dotted name stands for; none if it is not set.
    pub fn get(&self, name: &str) -> Option<Value> {
        let (section, key) = name.split_once('.').unwrap_or(("", name));
        match section {
            "data" => self.data.get(key),
            "text" => self.text.get(key),
            "model" => self.model.get(key),
            "training" => self.training.get(key),
            _ => self.run.get(key),
        }
    }

    /// Checks what no type says.
    ///
    /// # Errors
    /// Each setting that makes no sense.
    #[track_caller]
    pub fn check(&self) -> Result<()> {
        let wrong = self.wrong();
        Error::several(&wrong).map_or(Ok(()), Err).at_caller()
    }

    fn wrong(&self) -> Vec<Error> {
        let Self { run, data, text, model, training } = self;
        let mut wrong = Vec::new();
        let mut need = |right: bool, name: &str, expected: &str, got: String| {
            if !right {
                wrong.push(Error::new(name, expected, got));
            }
        };
        if let (Task::Tag, Some(path)) = (run.task, &text.tokenizer) {
            need(false, "text.tokenizer", "none for `tag`, whose words are given", format!("`{path}`"));
        }
        if let Some(first) = data.first_index.filter(|&first| first > 1) {
            need(false, "data.first_index", "0 or 1", first.to_string());
        }
        if data.window.is_some() && data.train.is_none() {
            let expected = "none without `data.train`";
            need(false, "data.window", expected, data.window.unwrap_or(0).to_string());
        }
        let most = Executor::MOST_THREADS;
        let threads = format!("at most {most}");
        let largest = i64::MAX as u64;
        need(run.seed <= largest, "seed", &format!("at most {largest}"), run.seed.to_string());
        need(run.threads <= most, "threads", &threads, run.threads.to_string());
        let held = data.hold_out;
        if !(0.0..=0.5).contains(&held) {
            need(false, "data.hold_out", "a share from 0 to 0.5", held.to_string());
        } else if data.dev.is_none() && data.fold.is_none() && data.train.is_some() {
            let expected = "a share above 0, or `data.dev`";
            need(held > 0.0, "data.hold_out", expected, "0 and no `data.dev`".to_owned());
        }
        let dropout = model.dropout;
        let is_share = (0.0..1.0).contains(&dropout);
        need(is_share, "model.dropout", "a share from 0 to below 1", dropout.to_string());
        for (name, got) in [("training.rate", training.rate), ("training.clip", training.clip)] {
            // A rate is computed with in f32.
            let is_rate = got > 0.0 && got <= f64::from(f32::MAX);
            need(is_rate, name, "a number above 0 and at most 3.4e38", format!("{got:e}"));
        }
        let counts = [
            ("data.window", data.window.unwrap_or(1)),
            ("text.min_count", text.min_count),
            ("text.max_size", text.max_size.unwrap_or(1)),
            ("model.embedding", model.embedding),
            ("model.hidden", model.hidden),
            ("model.layers", model.layers),
            ("training.epochs", training.epochs as usize),
            ("training.batch", training.batch),
            ("training.patience", training.patience.unwrap_or(1) as usize),
        ];
        for (name, count) in counts {
            need(count > 0, name, "at least 1", count.to_string());
        }
        if let Some(parts) = training.parts {
            let expected = format!("a power of two up to {MOST_PARTS}");
            let right = parts.is_power_of_two() && parts <= MOST_PARTS;
            need(right, "training.parts", &expected, parts.to_string());
        }
        let layers = format!("at most {MOST_LAYERS}");
        need(model.layers <= MOST_LAYERS, "model.layers", &layers, model.layers.to_string());
        wrong
    }

    /// The config as TOML, without settings that have no value. [`Self::from_toml`] parses it.
    pub fn to_toml(&self) -> String {
        self.written(false)
    }

    /// The config as TOML with a comment above each setting; settings without a value are comments.
    pub fn commented(&self) -> String {
        self.written(true)
    }

    fn written(&self, comments: bool) -> String {
        let (mut text, mut section) = (String::new(), "");
        for key in Self::keys(self.run.task) {
            if key.section != section {
                section = key.section;
                text += &format!("\n[{section}]\n");
            }
            let value = self.get(&key.to_string());
            if comments {
                text += &format!("#{}\n", key.doc);
            }
            match value {
                Some(value) => text += &format!("{} = {value}\n", key.name),
                None if comments => text += &format!("# {} =\n", key.name),
                None => {}
            }
        }
        text
    }
}

/// What was probably meant: the nearest name, if few letters differ.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let letters = |name: &str| name.chars().collect::<Vec<_>>();
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let distance = |of: &&str| {
        let whole = edit_distance(&letters(name), &letters(of));
        // One that stands in another table is meant, too.
        if last(name) == last(of) { whole.min(1) } else { whole }
    };
    known.min_by_key(distance).filter(|near| distance(near) <= 1 + name.chars().count() / 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_is_written_with_its_comment() -> Result<()> {
        for &task in Task::ALL {
            let config = Config::new(task);
            config.check()?;
            let commented = config.commented();
            assert!(
                Config::keys(task).all(|key| commented.contains(&format!("{} =", key.name))),
                "{commented}"
            );
        }
        Ok(())
    }

    #[test]
    fn mistakes_say_what_was_meant() {
        let mut config = Config::new(Task::Classify);
        let mut said = |name: &str, value: Value| config.set(name, &value).unwrap_err().to_string();
        assert!(
            said("model.hiden", Value::Int(1))
                .contains("expected `model.hidden`, perhaps, got `model.hiden`")
        );
        assert!(said("hidden", Value::Int(1)).contains("expected `model.hidden`, perhaps"));
        assert!(said("zzz", Value::Int(1)).contains("expected one of `task`, `seed`"));
        assert!(
            said("model.hidden", Value::Text("x".into()))
                .contains("expected a whole number from 0 on, got \"x\"")
        );
        assert!(said("model.hidden", Value::Int(-1)).contains("expected a whole number from 0 on, got -1"));
        assert!(
            said("model.cell", Value::Text("lsmt".into())).contains("expected one of `lstm`, `gru`, `rnn`")
        );
        assert!(said("model.dropout", Value::Float(f64::NAN)).contains("expected a number, got NaN"));
        config.model.dropout = 1.0;
        assert!(config.check().unwrap_err().to_string().contains("model.dropout: expected a share"));
    }
}
