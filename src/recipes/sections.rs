//! The tables of a config: their settings, defaults and comments.

use super::settings::{choice, section};
use crate::data::Fold;

/// The notes of a recipe's file that hold its task, and the config as TOML.
pub(super) const TASK: &str = "task";
pub(super) const CONFIG: &str = "config";

choice! {
    /// The task.
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
    /// How the states of a text become one vector.
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

choice! {
    /// What a classifier learns of each text.
    Target {
        /// One label.
        Label = "label",
        /// Several labels, or none.
        Labels = "labels",
        /// A number: regression.
        Number = "number",
    }
}

choice! {
    /// How a document is divided into sentences.
    Sentences {
        /// Not at all: a text is one sequence.
        None = "none",
        /// A line is a sentence.
        Lines = "lines",
        /// Sentences end at marks of punctuation, by the rules of Unicode (UAX #29).
        Punctuation = "punctuation",
    }
}

choice! {
    /// The rule that updates the parameters.
    Rule {
        /// Adam (Kingma and Ba, 2015).
        Adam = "adam",
        /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
        AdamW = "adamw",
        /// Adam with Nesterov momentum (Dozat, 2016).
        NAdam = "nadam",
        /// Sign momentum (Chen et al., 2023).
        Lion = "lion",
        /// Stochastic gradient descent, with momentum or without.
        Sgd = "sgd",
        /// Adagrad (Duchi et al., 2011).
        Adagrad = "adagrad",
        /// RMSProp (Tieleman and Hinton, 2012).
        RmsProp = "rmsprop",
        /// Adadelta (Zeiler, 2012).
        Adadelta = "adadelta",
    }
}

choice! {
    /// How the learning rate changes over the training.
    RateSchedule {
        /// It does not change.
        Constant = "constant",
        /// Half a cosine, down to a hundredth.
        Cosine = "cosine",
        /// A straight line, down to a hundredth.
        Linear = "linear",
        /// The inverse square root of the step.
        InverseSqrt = "inverse-sqrt",
        /// Up for three tenths of the training, then down.
        OneCycle = "one-cycle",
        /// Halved after each epoch, from `halve_after` epochs on.
        Halve = "halve",
        /// Halved after `halve_after` epochs without a better one.
        Plateau = "plateau",
    }
}

choice! {
    /// Which average of the parameters is evaluated and saved.
    Average {
        /// None: the parameters themselves.
        None = "none",
        /// Exponential moving average.
        Ema = "ema",
        /// The mean over the steps (Polyak and Juditsky, 1992).
        Mean = "mean",
    }
}

section! {
    /// Where the texts are.
    DataConfig = "data" {
        /// Training data: a file, a folder, or several files by a pattern such as `data/*.tsv`; all paths start in the folder in which the command runs (default: the texts that come with the program).
        train: Option<String> = None;
        /// Development data, measured after each epoch to choose the best epoch (default: a part of the training texts, see `hold_out`).
        dev: Option<String> = None;
        /// Test data, measured once, at the end, with the best epoch.
        test: Option<String> = None;
        /// Hold-out: the share of the training texts that is measured on where there is no `dev`, from 0 to 0.5; rounded to one text in a whole number.
        hold_out: f64 = 0.1;
        /// Fold of a cross-validation, measured on in the place of `hold_out`: `"2/5"` is the second of five; `train --folds 5` sets it. Equal texts are in one fold (`group` keeps more together), and folds have about equal shares of each label (default: none).
        fold: Option<Fold> = None;
        /// Group column, such as the author, the patient or the document of a text: texts with the same value in it are all in one fold, or on one side of the hold-out. In tables, JSON and Parquet.
        group: Option<String> = None;
        /// Format of the files: `tsv`, `csv`, `jsonl`, `parquet`, `columns`, `parallel`, `file-per-class`, `folder-per-class`, `trees`, `fasttext`, `dictionary`, `libsvm` or `plain` (default: detected and printed).
        format: Option<String> = None;
        /// Column of the text: its name or number, or its field in JSON Lines or Parquet; of tagged texts the words, of pairs the source. Of `classify` several columns are joined, as in `["title", "body"]`, with a separator token between them.
        text: Vec<String> = Vec::new();
        /// Column of a second text: pairs of texts, as in natural language inference and similarity. One encoder reads both.
        pair: Option<String> = None;
        /// Column or field of the label, of the number, of the tags, or of the translation; the tags of CoNLL-U also by name: `upos`, `xpos`, `feats`, `deprel` or `lemma`.
        label: Option<String> = None;
        /// Target: `label` (one label per text), `labels` (several labels per text, or none) or `number` (regression).
        target: Target = Target::Label;
        /// Separator of several labels in a cell; a list in JSON or Parquet needs none.
        label_separator: String = ",".to_owned();
        /// Header: whether the first record of a table, or the first line of words and tags, names the columns (default: detected and printed).
        header: Option<bool> = None;
        /// Separator of a table's columns: one character, or `tab` (default: the one of comma, semicolon, tab and bar that fits).
        separator: Option<String> = None;
        /// Encoding of the files: `utf-8`, `windows-1252`, `gbk` or another name (default: UTF-8, UTF-16 or windows-1252, as detected).
        encoding: Option<String> = None;
        /// Binary sentiment of trees: 0 and 1 are one label, 3 and 4 the other, 2 is left out.
        binary: bool = false;
        /// Phrases of trees: train on every phrase of the sentiment trees, with the label of its node. Development and test data are whole sentences, and `dev` has to be set.
        phrases: bool = false;
        /// First index of features in LIBSVM files: 0, as scikit-learn writes them, or 1 (default: 0 if any index is 0, else 1).
        first_index: Option<usize> = None;
        /// Repair of tags that break their scheme, as conlleval reads them: an `I` behind `O` begins a chunk. Without it, they are an error.
        repair_tags: bool = false;
        /// Tag scheme: `iob1`, `iob2` (`bio`), `ioe1`, `ioe2`, `iobes` (`bilou`, `bmes`), or `plain`, whose tags are kinds as they are (default: detected and printed).
        scheme: Option<String> = None;
        /// Shuffle window in texts, for files that are larger than memory: files are read anew in each epoch, only the window is in memory, and the files must not change meanwhile. Of `lm`, in tokens: a longer text is in a temporary file. Not for LIBSVM files (default: all texts are in memory).
        window: Option<usize> = None;
    }
}

section! {
    /// How text becomes tokens, and the vocabulary.
    TextConfig = "text" {
        /// Tokens: `words`, `characters`, `pieces` or `whitespace` (`translate` by default: `pieces`, or `characters` of pronunciations).
        tokens: Option<Tokens> = Some(Tokens::Words);
        /// Tokenizer of Hugging Face: a `tokenizer.json`, which cuts text and numbers its tokens in the place of the other settings here.
        tokenizer: Option<String> = None;
        /// Tokens of the text that is written (default: as `tokens`, of pronunciations `whitespace`: the phonemes).
        target_tokens: Option<Tokens> = None;
        /// Lowercase: whether capital letters count as small ones.
        lowercase: bool = true;
        /// Minimum count: a token that occurs less often in the training texts is unknown.
        min_count: usize = 2;
        /// Vocabulary size: the most tokens that are known, the most frequent ones (default: no limit).
        max_size: Option<usize> = None;
        /// Pre-trained word vectors: a file of GloVe, word2vec or fastText, whose width is `model.embedding`.
        vectors: Option<String> = None;
        /// Freeze the word vectors: training does not change them.
        freeze: bool = false;
    }
}

section! {
    /// The model.
    ModelConfig = "model" {
        /// Embedding width: the numbers of a token's vector.
        embedding: usize = 128;
        /// Character encoder beside words: an LSTM in both directions over the characters of each word, whose states are joined to the word's vector.
        characters: bool = false;
        /// Recurrent cell: `lstm`, `gru` or `rnn`.
        cell: Cell = Cell::Lstm;
        /// Hidden width: the numbers of a state.
        hidden: usize = 128;
        /// Recurrent layers, one over the other: at most 64.
        layers: usize = 1;
        /// Bidirectional: whether each layer reads in both directions.
        bidirectional: bool = false;
        /// Pooling: how the states of a text become one vector: `last`, `max`, `mean` or `attention`.
        pool: Pooling = Pooling::Last;
        /// Documents: how a text is divided into sentences, which are read one by one before the document is: `none`, `lines` or `punctuation`.
        documents: Sentences = Sentences::None;
        /// Conditional random field over the tags, which scores neighbouring tags; without it each tag is chosen by itself.
        crf: bool = true;
        /// Tied weights: the output layer shares the embedding's vectors (Press and Wolf, 2017).
        tied: bool = false;
        /// Dropout: the share of activations set to zero between layers while training.
        dropout: f64 = 0.6;
        /// Embedding dropout: the share of the numbers of token vectors set to zero while training (default: as `dropout`).
        embedding_dropout: Option<f64> = None;
        /// Recurrent (variational) dropout: the share of each state set to zero while training, with one mask for all steps of a text (Gal and Ghahramani, 2016).
        recurrent_dropout: f64 = 0.0;
        /// Word dropout: the share of tokens whose vector is zero while training, so that a model learns to do without a word.
        word_dropout: f64 = 0.0;
    }
}

section! {
    /// The training.
    TrainingConfig = "training" {
        /// Epochs: passes over the training texts.
        epochs: u64 = 30;
        /// Batch size in texts; of a language model, pieces of the text that are read side by side.
        batch: usize = 16;
        /// Optimizer: `adam`, `adamw`, `nadam`, `lion`, `sgd`, `adagrad`, `rmsprop` or `adadelta`.
        optimizer: Rule = Rule::Adam;
        /// Learning rate at the start.
        rate: f64 = 2e-3;
        /// Momentum of `sgd`: the share of the velocity that is kept from step to step.
        momentum: f64 = 0.0;
        /// Weight decay (default: 0.01 of `adamw`, else 0). Of `adamw` and `lion` it is decoupled from the gradient.
        weight_decay: Option<f64> = None;
        /// Learning-rate schedule: `constant`, `cosine`, `linear`, `inverse-sqrt`, `one-cycle`, `halve` (after each epoch from `halve_after` on) or `plateau` (halved after `halve_after` epochs without a better one).
        schedule: RateSchedule = RateSchedule::Constant;
        /// Epochs until the learning rate is halved, of the schedules `halve` and `plateau`.
        halve_after: u64 = 4;
        /// Warm-up: steps over which the learning rate rises to its start.
        warm_up: usize = 0;
        /// Averaging of the parameters, which are then evaluated and saved: `none`, `ema` or `mean`. Word vectors then have dense gradients: every row moves in each step.
        averaging: Average = Average::None;
        /// Decay of the exponential moving average (`ema`) per step.
        averaging_decay: f64 = 0.999;
        /// Epochs before the averaging begins: an average from the start would hold the random parameters for long.
        averaging_from: u64 = 1;
        /// Gradient clipping: the largest norm of all gradients together.
        clip: f64 = 1.0;
        /// Label smoothing: the share of each target that is spread over all classes (default: 0.1 of `translate`, and of `classify` with one label per text and without `focal`; else 0).
        label_smoothing: Option<f64> = None;
        /// Class weights in the loss: `balanced` (texts / (classes · texts of the class)), or weights by label, as in `["spam=5", "rare label=2.5"]`; other labels have 1.
        class_weights: Vec<String> = Vec::new();
        /// Focal loss: its exponent γ, which weakens the loss of texts that are already right (Lin et al., 2017); 0 is the plain loss.
        focal: f64 = 0.0;
        /// Early stopping: stop after this many epochs without a better one; 0 never stops early.
        patience: u64 = 5;
        /// Fine-tuning: the run folder or checkpoint whose vocabularies and parameters start the training; of `classify` and `tag` also one of a language model (`lm`), whose layers are below the task's own (default: parameters start at random).
        from: Option<String> = None;
        /// Gradual unfreezing of a model that `from` names: epochs between levels, the output layers first and the word vectors last; 0 trains all levels from the start.
        unfreeze: u64 = 0;
        /// Learning rate of each level of a model that `from` names, relative to the level above it: above 0, at most 1, which gives all levels one rate.
        lower_rates: f64 = 1.0;
        /// Parts of a batch, a power of two: gradients are computed part by part and summed along a fixed tree, and up to this many processes (`mpirun`) compute them; the parts decide the bits of a training, the number of processes does not (default: 1, or the number of processes rounded up to a power of two).
        parts: Option<u64> = None;
    }
}

section! {
    /// How a translator writes.
    DecodingConfig = "decoding" {
        /// Beam width: hypotheses that are kept at each step; 1 is greedy.
        beam: usize = 4;
        /// Length penalty α: a hypothesis of n tokens is ranked by log p / ((5 + n) / 6)^α (Wu et al., 2016).
        length_penalty: f64 = 0.6;
        /// N best: translations of each text in the answer, best first; at most `beam`.
        n_best: usize = 1;
        /// Scores in the answer: the rank score of the translation; several translations (`n_best`) always have theirs.
        scores: bool = false;
    }
}

section! {
    /// What is above all tables.
    RunConfig = "" {
        /// Task: `classify`, `tag`, `lm` or `translate`.
        task: Task = Task::Classify;
        /// Seed of all random numbers: equal seeds give equal results.
        seed: u64 = 1;
        /// Threads to run on, 0 for one a core; the results are the same on any number.
        threads: usize = 0;
    }
}
