//! The tables of a config file. A setting is declared once, by its comment and one line: the type, the default by task, the
//! tasks that have it, the range and the conditions of its value, and the values that `tune` tries.

use unpadded::executor::Executor;
use unpadded::metrics::LabelThreshold;
use unpadded::optimizer::OptimizerKind;
use unpadded::train::MOST_PARTS;
use unpadded::{Error, Precision};
use unpadded_text::Fold;

use self::Task::{Classify, Lm, Tag, Translate};
use super::byte_size::ByteSize;
use super::settings::{SettingKey, Value, choice, section};

/// The names of the notes with the task, and with the config of the training as TOML.
pub(super) const TASK: &str = "task";
pub(super) const CONFIG: &str = "config";

/// Returns a function of the tasks that have a setting. All tasks are listed, so that a new task is an error of the compiler.
macro_rules! tasks {
    ($yes:pat, not $no:pat) => {
        |task| match task {
            $yes => true,
            $no => false,
        }
    };
}

choice! {
    /// The task that a model is trained for.
    Task {
        /// One label for each text.
        Classify = "classify",
        /// A tag for each word of a text, and optionally a label for the text.
        Tag = "tag",
        /// A language model, which predicts the next token of a text.
        Lm = "lm",
        /// A translation of each text.
        Translate = "translate",
    }
}

choice! {
    /// How a text is cut into tokens.
    Tokens {
        /// Tokens are the parts between white space.
        Whitespace = "whitespace",
        /// Tokens are words by the rules of Unicode; each punctuation mark is a token of its own.
        Words = "words",
        /// Tokens are single characters (grapheme clusters).
        Characters = "characters",
        /// Tokens are words and marks, from which the original text can be restored.
        Pieces = "pieces",
    }
}

choice! {
    /// The type of the recurrent cell.
    Cell {
        /// Long short-term memory.
        Lstm = "lstm",
        /// Gated recurrent unit.
        Gru = "gru",
        /// Simple recurrent layer (Elman network).
        Rnn = "rnn",
    }
}

choice! {
    /// How the states of a text are reduced to one vector.
    Pooling {
        /// The vector is the state after the last word.
        Last = "last",
        /// The vector is the maximum of each column over all states.
        Max = "max",
        /// The vector is the mean of the states.
        Mean = "mean",
        /// The vector is the mean of the states, weighted by attention (Lin et al., 2017).
        Attention = "attention",
    }
}

choice! {
    /// What a classifier predicts for each text.
    Target {
        /// One label.
        Label = "label",
        /// Several labels for each text, or none.
        Labels = "labels",
        /// One number for each text: regression.
        Number = "number",
    }
}

choice! {
    /// How a document is divided into sentences.
    Sentences {
        /// A document is not divided: it is one sequence of words.
        None = "none",
        /// Each line of a document is a sentence.
        Lines = "lines",
        /// Sentences end at marks of punctuation, by the rules of Unicode (UAX #29).
        Punctuation = "punctuation",
    }
}

choice! {
    /// How the learning rate changes during the training.
    RateSchedule {
        /// The learning rate is constant.
        Constant = "constant",
        /// The learning rate falls along half a cosine, to 1 % of its start.
        Cosine = "cosine",
        /// The learning rate falls along a straight line, to 1 % of its start.
        Linear = "linear",
        /// The learning rate falls with the inverse square root of the step.
        InverseSqrt = "inverse-sqrt",
        /// The learning rate rises for three tenths of the training, then falls.
        OneCycle = "one-cycle",
        /// The learning rate is halved after each epoch, from `halve_after` epochs on.
        Halve = "halve",
        /// The learning rate is halved after `halve_after` epochs without a better one.
        Plateau = "plateau",
    }
}

choice! {
    /// Which rows of a table of token vectors each process holds.
    Tables {
        /// All rows.
        Whole = "whole",
        /// Every N-th row, with N processes.
        Dealt = "dealt",
    }
}

choice! {
    /// What decides the number of texts in a training batch.
    BatchRule {
        /// The setting `batch`.
        Texts = "texts",
        /// The memory limit: as many texts as fit.
        Memory = "memory",
    }
}

choice! {
    /// Which average of the parameters is evaluated and saved.
    Average {
        /// No average: the current parameters are evaluated and saved.
        None = "none",
        /// An exponential moving average of the parameters.
        Ema = "ema",
        /// The mean of the parameters over the steps since epoch `averaging_from` (Polyak and Juditsky, 1992).
        Mean = "mean",
    }
}

/// The config of a recipe: a value for every setting of a task.
///
/// ```
/// use unpadded_recipes::{Config, Task, Value};
/// let mut config = Config::new(Task::Classify);
/// config.set("model.hidden", &Value::Int(64))?;
/// assert_eq!(config.model.hidden, 64);
/// let error = config.set("model.hiden", &Value::Int(64)).unwrap_err().to_string();
/// assert!(error.contains("`model.hidden`"), "{error}");
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Config {
    /// Settings of the run: the task, the seed and the number of threads.
    pub run: RunConfig,
    /// Settings of the data: paths, columns and formats.
    pub data: DataConfig,
    /// Settings of the tokens and the vocabulary.
    pub text: TextConfig,
    /// Settings of the model: layers, widths, dropout and pooling.
    pub model: ModelConfig,
    /// Settings of the training: epochs, batch size, optimizer and loss.
    pub training: TrainingConfig,
    /// Settings for the decoding of answers.
    pub decoding: DecodingConfig,
}

/// Maximum number of recurrent layers: 64 layers compile in seconds, a thousand in minutes.
const MOST_LAYERS: usize = 64;
// The conditions below have these numbers in their messages.
const _: () = assert!(MOST_LAYERS == 64 && Executor::MOST_THREADS == 1024 && MOST_PARTS == 65_536);

/// A range of numbers that a setting may have: what a message expects, and whether a number is in the range.
#[derive(Clone, Copy)]
struct NumberRange(&'static str, fn(f64) -> bool);

const COUNT: NumberRange = NumberRange("at least 1", |x| x >= 1.0);
const SHARE: NumberRange = NumberRange("a share from 0 to below 1", |x| (0.0..1.0).contains(&x));
const HALF: NumberRange = NumberRange("a share from 0 to 0.5", |x| (0.0..=0.5).contains(&x));
const THOUSAND: NumberRange = NumberRange("a number from 0 to 1,000", |x| (0.0..=1e3).contains(&x));
const DECAY: NumberRange = NumberRange("a number above 0 and below 1", |x| x > 0.0 && x < 1.0);
const RATIO: NumberRange = NumberRange("a number above 0, at most 1", |x| x > 0.0 && x <= 1.0);
const POSITIVE: NumberRange =
    NumberRange("a number above 0 and at most 3.4e38", |x| x > 0.0 && x <= f32::MAX as f64);

#[derive(Clone, Copy)]
struct Condition {
    holds: fn(&Config) -> bool,
    /// What the message expects; the name of a setting in braces is replaced by the value of this setting.
    expected: &'static str,
    /// Returns what the message got, if this is not the value of the setting.
    got: Option<fn(&Config) -> String>,
}

/// The declaration of a setting. A line of a table calls the methods behind the default of the setting.
#[derive(Clone, Copy)]
pub(super) struct SettingRules {
    pub(super) key: SettingKey,
    pub(super) get: fn(&Config) -> Option<Value>,
    /// Sets the setting; an error is the expected value.
    pub(super) set: fn(&mut Config, &Value) -> Result<(), String>,
    is_of: fn(Task) -> bool,
    range: Option<NumberRange>,
    conditions: [Option<Condition>; 4],
    tuned: &'static [(Task, &'static str)],
}

impl SettingRules {
    pub(super) const fn new(
        key: SettingKey,
        get: fn(&Config) -> Option<Value>,
        set: fn(&mut Config, &Value) -> Result<(), String>,
    ) -> Self {
        Self { key, get, set, is_of: |_| true, range: None, conditions: [None; 4], tuned: &[] }
    }

    /// Sets the tasks that have the setting; without this call, all tasks have it.
    const fn of(self, is_of: fn(Task) -> bool) -> Self {
        Self { is_of, ..self }
    }

    /// Sets the range of the number, if the setting has a value.
    const fn within(self, range: NumberRange) -> Self {
        Self { range: Some(range), ..self }
    }

    /// Adds a condition on the config: with `holds` false, the value of the setting is invalid.
    const fn only(self, holds: fn(&Config) -> bool, expected: &'static str) -> Self {
        self.with(Condition { holds, expected, got: None })
    }

    /// Adds a condition, as [`Self::only`] does; `got` returns what the message shows as the value.
    const fn but(
        self,
        holds: fn(&Config) -> bool,
        expected: &'static str,
        got: fn(&Config) -> String,
    ) -> Self {
        self.with(Condition { holds, expected, got: Some(got) })
    }

    const fn with(self, condition: Condition) -> Self {
        let (mut conditions, mut free) = (self.conditions, 0);
        // One condition too many is an index out of range, and none is lost.
        while conditions[free].is_some() {
            free += 1;
        }
        conditions[free] = Some(condition);
        Self { conditions, ..self }
    }

    /// Sets the values that `tune` tries by default, for each task whose default search space has the setting.
    const fn tuned(self, tuned: &'static [(Task, &'static str)]) -> Self {
        Self { tuned, ..self }
    }

    /// Returns the declarations of all settings, in the order in which config files have them.
    pub(super) fn all() -> impl Iterator<Item = &'static Self> {
        let tables = [
            RunConfig::SETTINGS,
            DataConfig::SETTINGS,
            TextConfig::SETTINGS,
            ModelConfig::SETTINGS,
            TrainingConfig::SETTINGS,
            DecodingConfig::SETTINGS,
        ];
        tables.into_iter().flatten()
    }

    /// Returns the declaration of the setting with this dotted name, of any task.
    pub(super) fn named(name: &str) -> Option<&'static Self> {
        Self::all().find(|setting| setting.key.is(name))
    }

    /// Returns whether a task has the setting.
    pub(super) fn is_of(&self, task: Task) -> bool {
        (self.is_of)(task)
    }

    /// Returns the values that `tune` tries by default, as TOML; `None` if it does not vary the setting.
    pub(super) fn tried(&self, task: Task) -> Option<&'static str> {
        self.tuned.iter().find(|(task_of_values, _)| *task_of_values == task).map(|(_, values)| *values)
    }

    /// Adds an error for each rule that the value of the setting breaks.
    pub(super) fn check(&self, config: &Config, wrong: &mut Vec<Error>) {
        let (name, value) = (self.key.to_string(), (self.get)(config));
        let number = match value {
            Some(Value::Int(number)) => Some(number as f64),
            Some(Value::Float(number)) => Some(number),
            _ => None,
        };
        if let (Some(NumberRange(expected, holds)), Some(number)) = (self.range, number)
            && !holds(number)
        {
            let is_positive = expected == POSITIVE.0;
            let got = if is_positive { format!("{number:e}") } else { number.to_string() };
            wrong.push(Error::new(name.clone(), expected, got));
        }
        for Condition { holds, expected, got } in self.conditions.iter().flatten() {
            if !holds(config) {
                let setting = |name: &str| config.get(name).map_or_else(String::new, |value| value.plain());
                let braces = expected.split_once('{').and_then(|(a, rest)| Some((a, rest.split_once('}')?)));
                let expected = match braces {
                    Some((before, (other, behind))) => format!("{before}{}{behind}", setting(other)),
                    None => (*expected).to_owned(),
                };
                let got = got.map_or_else(|| setting(&name), |got| got(config));
                wrong.push(Error::new(name.clone(), expected, got));
            }
        }
    }
}

/// Returns whether a text may be joined of several columns.
const JOINS_COLUMNS: fn(Task) -> bool = tasks!(Classify, not Tag | Lm | Translate);

impl Target {
    /// Returns whether each text has exactly one label.
    pub fn has_one_label(self) -> bool {
        match self {
            Self::Label => true,
            Self::Labels | Self::Number => false,
        }
    }

    /// Returns whether the model predicts labels.
    fn has_labels(self) -> bool {
        match self {
            Self::Label | Self::Labels => true,
            Self::Number => false,
        }
    }
}

/// Returns the label smoothing: the value in the config or, without a value, the default of the task.
pub(super) fn label_smoothing(config: &Config) -> f64 {
    let Config { run, data, training, .. } = config;
    let smooths = match run.task {
        Translate => true,
        Classify => data.target.has_one_label() && training.focal == 0.0,
        Tag | Lm => false,
    };
    training.label_smoothing.unwrap_or(if smooths { 0.1 } else { 0.0 })
}

/// Returns whether the schedule of a config halves the learning rate.
fn halves(config: &Config) -> bool {
    matches!(config.training.schedule, RateSchedule::Halve | RateSchedule::Plateau)
}

/// Returns whether a config sets label smoothing.
fn smooths(config: &Config) -> bool {
    config.training.label_smoothing.is_some_and(|share| share != 0.0)
}

section! {
    /// The settings of the data: where the texts are, and how they are read.
    DataConfig(task) = "data", data {
        /// Training data: a file, a folder, or several files by a pattern such as `data/*.tsv`; relative paths begin in the current folder (default: the texts that come with the program).
        train: Option<String> = None;
        /// Development data, measured after each epoch to choose the best epoch (default: a part of the training texts, see `hold_out`).
        dev: Option<String> = None;
        /// Test data, scored once, at the end, with the model of the best epoch (default: none).
        test: Option<String> = None;
        /// Hold-out: the share of the training texts, 0 to 0.5, that is kept for development where `dev` is not set; one text in round(1 / share) is held out.
        hold_out: f64 = 0.1, within(HALF), but(|c| c.data.hold_out != 0.0 || c.data.dev.is_some() || c.data.fold.is_some() || c.data.train.is_none(), "a share above 0, or `data.dev`", |c| format!("{} and no `data.dev`", c.data.hold_out));
        /// Cross-validation fold that is held out instead of the share `hold_out`: `"2/5"` is the second of five; `train --folds 5` sets it. Equal texts are in one fold (`group` keeps more texts together), and folds have about equal shares of each label (default: none).
        fold: Option<Fold> = None, of(tasks!(Classify | Tag | Translate, not Lm));
        /// Group column, such as the author, the patient or the document of a text: texts with the same value are all in one fold, or on one side of the hold-out. For tables, JSON and Parquet (default: none).
        group: Option<String> = None, of(tasks!(Classify, not Tag | Lm | Translate));
        /// Format of the files: `tsv`, `csv`, `jsonl`, `parquet`, `columns`, `parallel`, `file-per-class`, `folder-per-class`, `trees`, `fasttext`, `dictionary`, `libsvm` or `plain` (default: detected and printed).
        format: Option<String> = None;
        /// Text column: its name or number, or its field in JSON Lines or Parquet; for tagged texts the words, for pairs the source. `classify` joins several columns, as in `["title", "body"]`, with a separator token between them (default: detected and printed).
        text: Vec<String> = Vec::new(), but(|c| JOINS_COLUMNS(c.run.task) || c.data.text.len() <= 1, "one column of `{task}`", |c| format!("{} columns", c.data.text.len()));
        /// Second text column, for pairs of texts as in natural language inference and similarity; one encoder reads both texts (default: none).
        pair: Option<String> = None, of(tasks!(Classify, not Tag | Lm | Translate));
        /// Label column or field: of the label, the number, the tags or the translation; the tags of CoNLL-U also by name: `upos`, `xpos`, `feats`, `deprel` or `lemma`. With several labels per text, also a list of columns with 0 or 1 for each label, as in `["red", "blue"]` (default: detected and printed).
        label: Vec<String> = Vec::new(), of(tasks!(Classify | Tag | Translate, not Lm)), but(|c| c.data.label.len() <= 1 || c.data.target == Target::Labels, "one column, or `data.target` = `labels`", |c| format!("{} columns", c.data.label.len()));
        /// Target: `label` (one label per text), `labels` (several labels per text, or none) or `number` (regression).
        target: Target = Target::Label, of(tasks!(Classify, not Tag | Lm | Translate));
        /// Label separator, for several labels in a cell, or `lists` for cells such as `['a', 'b']`; a list in JSON or Parquet needs none (default: `,`, `;`, `|`, a line break or `lists`, as detected and printed).
        label_separator: Option<String> = None, of(tasks!(Classify, not Tag | Lm | Translate)), but(|c| c.data.label_separator.as_ref().is_none_or(|value| !value.is_empty()), "at least one character, as `;`", |_| "none".to_owned());
        /// Header: whether the first record of a table, or the first line of words and tags, names the columns (default: detected and printed).
        header: Option<bool> = None;
        /// Column separator of a table: one character, or `tab`; for `tag`, only tables of texts to answer have one (default: comma, semicolon, tab or bar, as detected).
        separator: Option<String> = None;
        /// Quotation marks in a table: `none` (they are text) or `double` (they enclose cells, as in CSV) (default: detected).
        quote: Option<String> = None;
        /// Lines above a table, such as a title: they are no records, and the header is below them (default: 0).
        skip_lines: Option<u64> = None;
        /// Encoding of the files: `utf-8`, `windows-1252`, `gbk` or another name (default: UTF-8, UTF-16 or windows-1252, as detected).
        encoding: Option<String> = None;
        /// Skip bad records: leave out malformed records (a wrong number of cells, bad JSON, bytes of no character, an empty text or label) in place of an error; `train` writes them to `skipped.tsv` in the run folder.
        skip_bad: bool = false;
        /// Share of all records, from 0 to below 1, that `skip_bad` may leave out; more malformed records are an error.
        skip_bad_share: f64 = 0.001, within(SHARE);
        /// Binary sentiment of trees: classes 0 and 1 are one label, 3 and 4 the other; texts of class 2 are left out.
        binary: bool = false, of(tasks!(Classify, not Tag | Lm | Translate));
        /// Phrases of sentiment trees: train on every phrase, with the label of its node. Development and test data are whole sentences, and `dev` must be set.
        phrases: bool = false, of(tasks!(Classify, not Tag | Lm | Translate)), only(|c| !c.data.phrases || c.data.dev.is_some(), "false without `data.dev`: phrases of a sentence would be on both sides of a hold-out");
        /// First index of features in LIBSVM files: 0, as scikit-learn writes them, or 1 (default: 0 if any index is 0, else 1).
        first_index: Option<usize> = None, of(tasks!(Classify, not Tag | Lm | Translate)), only(|c| c.data.first_index.is_none_or(|first| first <= 1), "0 or 1");
        /// Tag repair: tags that break their scheme are read as conlleval reads them; for example, an `I` behind `O` begins a chunk. Without tag repair, such tags are an error.
        repair_tags: bool = false, of(tasks!(Tag, not Classify | Lm | Translate));
        /// Tag scheme: `iob1`, `iob2` (`bio`), `ioe1`, `ioe2`, `iobes` (`bilou`, `bmes`), or `plain`, where each word has a tag of its own and there are no chunks (default: detected and printed).
        scheme: Option<String> = None, of(tasks!(Tag, not Classify | Lm | Translate));
        /// Size of the shuffle window, as a number of texts, for files larger than memory. Each epoch reads the files again and keeps only the window in memory. The files must not change during the training. For `lm`, the size is a number of tokens: the tokens of a longer text are in a temporary file. Not for LIBSVM files (default: the memory limit decides which texts are in memory).
        window: Option<usize> = None, within(COUNT), only(|c| c.data.window.is_none() || c.data.train.is_some(), "none without `data.train`");
    }
}

section! {
    /// The settings of the tokenizer and the vocabulary.
    TextConfig(task) = "text", text {
        /// Tokens of the text: `words`, `characters`, `pieces` or `whitespace` (default of `translate`: `pieces`, or `characters` for pronunciations).
        tokens: Option<Tokens> = match task { Classify | Tag => Some(Tokens::Words), Lm => Some(Tokens::Characters), Translate => None }, of(tasks!(Classify | Lm | Translate, not Tag));
        /// Tokenizer of Hugging Face: the path of a `tokenizer.json`, which cuts the text and numbers its tokens, in place of `tokens`, `lowercase`, `min_count` and `max_size` (default: none).
        tokenizer: Option<String> = None, of(tasks!(Classify | Lm | Translate, not Tag)), but(|c| !c.run.task.has_words() || c.text.tokenizer.is_none(), "none for `tag`, whose words are given", |c| format!("`{}`", c.text.tokenizer.as_deref().unwrap_or_default()));
        /// Target tokens: the tokens of the translation (default: as `tokens`; for pronunciations `whitespace`: the phonemes).
        target_tokens: Option<Tokens> = None, of(tasks!(Translate, not Classify | Tag | Lm));
        /// Lowercase: whether capital letters are read as small ones.
        lowercase: bool = match task { Classify | Tag => true, Lm | Translate => false }, of(tasks!(Classify | Lm | Translate, not Tag));
        /// Minimum count of the vocabulary: a token that occurs less often in the training texts is unknown.
        min_count: usize = match task { Lm => 1, Classify | Tag | Translate => 2 }, within(COUNT), tuned(&[(Classify, "[1, 2, 3]"), (Tag, "[1, 2, 3]")]);
        /// Vocabulary size: at most this many known tokens, the most frequent ones (default: no limit).
        max_size: Option<usize> = match task { Translate => Some(12_000), Classify | Tag | Lm => None }, within(COUNT);
        /// Pre-trained word vectors: a file of GloVe, word2vec or fastText; `model.embedding` must be the width of these vectors (default: vectors start at random).
        vectors: Option<String> = None, of(tasks!(Classify | Tag, not Lm | Translate));
        /// Freeze the word vectors: training does not change them.
        freeze: bool = false, of(tasks!(Classify | Tag, not Lm | Translate)), only(|c| !c.text.freeze || c.text.vectors.is_some(), "false without `text.vectors`");
    }
}

section! {
    /// The model.
    ModelConfig(task) = "model", model {
        /// Embedding width: the length of a token's vector.
        embedding: usize = match task { Classify | Tag => 128, Lm => 64, Translate => 256 }, within(COUNT), tuned(&[(Classify, "[64, 128, 256]"), (Tag, "[64, 128, 256]"), (Lm, "[32, 64, 128]"), (Translate, "[128, 256]")]);
        /// Character encoder beside words: a bidirectional LSTM over the characters of each word; its last states are appended to the word's vector.
        characters: bool = match task { Tag => true, Classify | Lm | Translate => false }, of(tasks!(Classify | Tag, not Lm | Translate)), only(|c| c.run.task.has_words() || !c.model.characters || c.text.tokens != Some(Tokens::Characters) || c.text.tokenizer.is_some(), "false with `text.tokens = \"characters\"`, whose tokens are characters already");
        /// Recurrent cell: `lstm`, `gru` or `rnn`.
        cell: Cell = match task { Classify | Tag | Lm => Cell::Lstm, Translate => Cell::Gru }, of(tasks!(Classify | Tag | Lm, not Translate));
        /// Hidden width: the length of a recurrent layer's state.
        hidden: usize = match task { Classify => 128, Tag => 160, Lm | Translate => 256 }, within(COUNT), tuned(&[(Classify, "[64, 128, 256]"), (Tag, "[96, 160, 256]"), (Lm, "[128, 256, 512]"), (Translate, "[128, 256, 384]")]);
        /// Recurrent layers: how many are stacked, at most 64.
        layers: usize = 1, within(COUNT), only(|c| c.model.layers <= MOST_LAYERS, "at most 64"), tuned(&[(Tag, "[1, 2]"), (Lm, "[1, 2]")]);
        /// Bidirectional: whether each layer reads in both directions.
        bidirectional: bool = match task { Classify | Tag | Translate => true, Lm => false }, of(tasks!(Classify, not Tag | Lm | Translate)), tuned(&[(Classify, "[false, true]")]);
        /// Pooling: how the states of a text become one vector: `last`, `max`, `mean` or `attention`.
        pool: Pooling = match task { Classify => Pooling::Max, Tag | Lm | Translate => Pooling::Last }, of(tasks!(Classify, not Tag | Lm | Translate)), tuned(&[(Classify, r#"["last", "max", "mean", "attention"]"#)]);
        /// Hierarchical documents: a text is divided into sentences by `lines` or by `punctuation`; each sentence is encoded, then the sequence of sentences; `none` reads a text as one sequence.
        documents: Sentences = Sentences::None, of(tasks!(Classify, not Tag | Lm | Translate)), only(|c| c.model.documents == Sentences::None || c.data.pair.is_none(), "`none` with `data.pair`"), only(|c| c.model.documents == Sentences::None || !c.model.characters, "`none` with `model.characters`");
        /// Conditional random field (CRF) over the tags: it scores neighbouring tags; without it each tag is chosen by itself.
        crf: bool = true, of(tasks!(Tag, not Classify | Lm | Translate));
        /// Tied weights: the output layer uses the vectors of the embedding (Press and Wolf, 2017).
        tied: bool = false, of(tasks!(Lm, not Classify | Tag | Translate));
        /// Dropout: the share of activations set to zero between layers while training.
        dropout: f64 = match task { Classify => 0.6, Tag => 0.5, Lm => 0.2, Translate => 0.3 }, within(SHARE), tuned(&[(Classify, "{ from = 0.2, to = 0.7 }"), (Tag, "{ from = 0.3, to = 0.6 }"), (Lm, "{ from = 0.0, to = 0.5 }"), (Translate, "{ from = 0.1, to = 0.5 }")]);
        /// Embedding dropout: the share of the numbers in token vectors set to zero while training (default: as `dropout`).
        embedding_dropout: Option<f64> = None, within(SHARE);
        /// Recurrent (variational) dropout: the share of each state set to zero while training, with one mask for all steps of a text (Gal and Ghahramani, 2016).
        recurrent_dropout: f64 = 0.0, within(SHARE), tuned(&[(Tag, "[0.0, 0.25]")]);
        /// Word dropout: the share of tokens whose whole vector is set to zero while training.
        word_dropout: f64 = match task { Classify => 0.1, Tag => 0.15, Lm | Translate => 0.0 }, within(SHARE), tuned(&[(Classify, "[0.0, 0.1, 0.2]"), (Tag, "[0.1, 0.2, 0.3]")]);
    }
}

section! {
    /// The training.
    TrainingConfig(task) = "training", training {
        /// Epochs: passes over the training texts.
        epochs: u64 = match task { Classify => 30, Tag | Lm => 15, Translate => 8 }, within(COUNT);
        /// Batch size in texts; for a language model, in parallel streams of the text.
        batch: usize = match task { Classify | Tag => 16, Lm | Translate => 64 }, within(COUNT), tuned(&[(Classify, "[16, 32, 64]"), (Tag, "[8, 16, 32]"), (Lm, "[32, 64, 128]"), (Translate, "[32, 64, 128]")]);
        /// Batching: `texts` (each training batch has `batch` texts) or `memory` (as many texts as fit the memory limit, `memory`).
        batching: BatchRule = BatchRule::Texts, of(tasks!(Classify | Tag | Translate, not Lm));
        /// Optimizer: one of [`OptimizerKind`].
        optimizer: OptimizerKind = OptimizerKind::Adam;
        /// Learning rate at the start; `schedule` changes it.
        rate: f64 = match task { Classify => 2e-3, Tag | Lm => 3e-3, Translate => 1e-3 }, within(POSITIVE), tuned(&[(Classify, "{ from = 5e-4, to = 5e-3, log = true }"), (Tag, "{ from = 1e-3, to = 1e-2, log = true }"), (Lm, "{ from = 1e-3, to = 1e-2, log = true }"), (Translate, "{ from = 5e-4, to = 3e-3, log = true }")]);
        /// Momentum of `sgd`: the share of the velocity that each step keeps.
        momentum: f64 = 0.0, within(SHARE), only(|c| c.training.optimizer == OptimizerKind::Sgd || c.training.momentum == 0.0, "0 with the optimizer `{training.optimizer}`: only `sgd` has a momentum");
        /// Weight decay; with `adamw` and `lion` it is decoupled from the gradient (default: 0.01 with `adamw`, else 0).
        weight_decay: Option<f64> = None, within(THOUSAND);
        /// Learning-rate schedule: `constant`, `cosine`, `linear`, `inverse-sqrt`, `one-cycle`, `halve` (after each epoch from `halve_after` on) or `plateau` (halved after `halve_after` epochs without a better one).
        schedule: RateSchedule = match task { Classify | Lm => RateSchedule::Constant, Tag | Translate => RateSchedule::Cosine }, only(|c| c.training.batching == BatchRule::Texts || halves(c) || c.training.schedule == RateSchedule::Constant, "`constant`, `halve` or `plateau` with `training.batching = \"memory\"`: the number of steps is not known in advance"), tuned(&[(Classify, r#"["constant", "cosine"]"#), (Lm, r#"["constant", "cosine"]"#)]);
        /// Epochs until the learning rate is halved, with the schedules `halve` and `plateau`.
        halve_after: u64 = 4, within(COUNT), only(|c| halves(c) || c.training.halve_after == 4, "the default unless `training.schedule` is `halve` or `plateau`");
        /// Warm-up: the number of steps in which the learning rate rises to its start.
        warm_up: usize = 0;
        /// Averaging of the parameters: `none`, `ema` or `mean`; the average is evaluated and saved. With averaging, word vectors have dense gradients: every row moves in each step.
        averaging: Average = Average::None;
        /// Decay of the exponential moving average (`ema`) per step.
        averaging_decay: f64 = 0.999, within(DECAY), only(|c| c.training.averaging == Average::Ema || c.training.averaging_decay == 0.999, "the default unless `training.averaging` is `ema`");
        /// Epochs before averaging begins: an average from the start would contain the random parameters for long.
        averaging_from: u64 = 1, only(|c| c.training.averaging != Average::None || c.training.averaging_from == 1, "the default without `training.averaging`"), only(|c| c.training.averaging == Average::None || c.training.averaging_from == 1 || c.training.averaging_from < c.training.epochs, "below the epochs, {training.epochs}");
        /// Gradient clipping: the largest norm of all gradients together.
        clip: f64 = match task { Tag => 5.0, Classify | Lm | Translate => 1.0 }, within(POSITIVE);
        /// Precision of matrix products: `f32` or `bf16`. With `bf16`, products round their operands to 8 bits of mantissa, which some CPUs multiply several times as fast; parameters and sums stay f32. The model predicts in f32.
        precision: Precision = Precision::F32;
        /// Train in bf16 on a CPU that does not multiply bf16 numbers fast: more slowly than in f32, with the same results.
        allow_slow: bool = false, only(|c| c.training.precision == Precision::Bf16 || !c.training.allow_slow, "false unless `training.precision` is `bf16`");
        /// Label smoothing: the share of each target that is spread over all classes (default: 0.1 for `translate`, and for `classify` with one label per text and without `focal`; else 0).
        label_smoothing: Option<f64> = None, of(tasks!(Classify | Lm | Translate, not Tag)), within(SHARE), only(|c| c.data.target.has_one_label() || !smooths(c), "0 unless `data.target` is `label`");
        /// Class weights in the loss: `balanced` (texts / (classes · texts of the class)), or weights by label, as in `["spam=5", "rare label=2.5"]`; other labels have weight 1 (default: no weights).
        class_weights: Vec<String> = Vec::new(), of(tasks!(Classify, not Tag | Lm | Translate)), only(|c| c.data.target.has_labels() || c.training.class_weights.is_empty(), "none with `data.target = \"number\"`, whose loss is the squared error"), only(|c| !c.data.target.has_labels() || c.data.target.has_one_label() || c.training.focal <= 0.0 || c.training.class_weights.is_empty(), "none with `training.focal` and `data.target = \"labels\"`: set only one of the two");
        /// Focal loss: the exponent γ, which lowers the loss of texts that are already right (Lin et al., 2017); 0 is the plain loss.
        focal: f64 = 0.0, of(tasks!(Classify, not Tag | Lm | Translate)), within(THOUSAND), only(|c| c.data.target.has_labels() || c.training.focal == 0.0, "0 with `data.target = \"number\"`"), only(|c| c.training.focal == 0.0 || !smooths(c), "0 with `training.label_smoothing`: set only one of the two");
        /// Early stopping: stop after this many epochs without a better one; 0 never stops early.
        patience: u64 = 5;
        /// Fine-tuning: a run folder or checkpoint; training starts with its vocabularies and parameters. `classify` and `tag` also accept a language model (`lm`); its layers are then placed below the layers of the task (default: random parameters).
        from: Option<String> = None;
        /// Gradual unfreezing of the model in `from`: the epochs between two levels; the output layers are trained first and the word vectors last; 0 trains all levels from the start.
        unfreeze: u64 = 0, only(|c| c.training.unfreeze == 0 || c.training.from.is_some(), "none without `training.from`");
        /// Learning rate by level (discriminative fine-tuning) of the model in `from`: the rate of each level relative to the level above it, above 0 and at most 1; 1 gives all levels one rate.
        lower_rates: f64 = 1.0, within(RATIO), only(|c| c.training.lower_rates == 1.0 || c.training.from.is_some(), "none without `training.from`");
        /// Parts of a batch, a power of two: gradients are computed part by part and summed along a fixed tree, by up to this many processes (`mpirun`). The number of parts decides the bits of a training, the number of processes does not (default: 1, or the number of processes rounded up to a power of two).
        parts: Option<u64> = None, only(|c| c.training.parts.is_none_or(|parts| parts.is_power_of_two() && parts <= MOST_PARTS), "a power of two up to 65536");
        /// Table of token vectors: `whole` (each process holds all rows) or `dealt` (of N processes, each holds every N-th row with the optimizer's state of these rows, and asks the others for the rows that it reads). A dealt table may be larger than the memory of one process while it trains.
        tables: Tables = Tables::Whole, only(|c| c.training.tables == Tables::Whole || c.training.averaging == Average::None, "`whole` with `training.averaging`, which changes every row in each step"), only(|c| c.training.tables == Tables::Whole || !c.model.tied, "`whole` with `model.tied`, which reads every row in each step"), only(|c| c.training.tables == Tables::Whole || c.training.optimizer != OptimizerKind::Lamb, "`whole` with `lamb`, whose update of a row depends on all rows"), only(|c| c.training.tables == Tables::Whole || c.text.vectors.is_none() && c.training.from.is_none(), "`whole` with `text.vectors` or `training.from`, whose tables are whole");
    }
}

section! {
    /// The settings for the decoding of answers.
    DecodingConfig(task) = "decoding", decoding {
        /// Beam width: the hypotheses kept at each step; 1 is greedy search.
        beam: usize = 4, of(tasks!(Translate, not Classify | Tag | Lm)), within(COUNT);
        /// Length penalty α: a hypothesis of n tokens is ranked by log p / ((5 + n) / 6)^α (Wu et al., 2016).
        length_penalty: f64 = 0.6, of(tasks!(Translate, not Classify | Tag | Lm)), within(THOUSAND);
        /// N best: the number of translations in an answer, best first; at most `beam`.
        n_best: usize = 1, of(tasks!(Translate, not Classify | Tag | Lm)), within(COUNT), only(|c| c.decoding.n_best <= c.decoding.beam, "at most `decoding.beam`, {decoding.beam}");
        /// Scores in the answer: the score by which translations are ranked; with several translations (`n_best`), the answer always contains the scores.
        scores: bool = false, of(tasks!(Translate, not Classify | Tag | Lm));
        /// Overlap in words, for taggers: a text that exceeds the memory limit of a prediction is read in windows, each with this many further words at either end. With 0, the text is an error. A tagger that also predicts labels of texts never reads in windows.
        overlap: usize = 0, of(tasks!(Tag, not Classify | Lm | Translate));
        /// Threshold of probabilities, for several labels per text: `per-label` (for each label, the threshold with its highest F1 on the held-out texts), `one` (for all labels, the threshold with the highest micro F1) or a number above 0 and below 1 (default: `one` if any label has fewer than 50 held-out texts, else `per-label`; the choice is printed).
        threshold: Option<LabelThreshold> = None, of(tasks!(Classify, not Tag | Lm | Translate)), only(|c| c.decoding.threshold.is_none() || c.data.target.has_labels() && !c.data.target.has_one_label(), "none unless `data.target` is `labels`");
    }
}

section! {
    /// The settings that are above all tables of a config file.
    RunConfig(task) = "", run {
        /// Task: `classify`, `tag`, `lm` or `translate`.
        task: Task = task;
        /// Seed of all random numbers: equal seeds give equal results.
        seed: u64 = 1, but(|c| c.run.seed <= i64::MAX as u64, "at most 9223372036854775807", |c| c.run.seed.to_string());
        /// Threads to run on, 0 for one per core; the results are the same on any number.
        threads: usize = 0, only(|c| c.run.threads <= Executor::MOST_THREADS, "at most 1024");
        /// Memory limit of the training, as `"4 GB"`: a batch that does not fit is divided, and its gradients are summed (default: 80 % of the memory of the machine or container).
        memory: Option<ByteSize> = None;
    }
}
