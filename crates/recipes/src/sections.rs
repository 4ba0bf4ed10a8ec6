//! The tables of a config file: the settings of each table, with defaults and comments.

use unpadded::Precision;
use unpadded::metrics::LabelThreshold;
use unpadded_text::Fold;

use super::byte_size::ByteSize;
use super::settings::{choice, section};

/// The name of the note with the task in the checkpoint of a recipe. The note `CONFIG` has the config of the training
/// as TOML.
pub(super) const TASK: &str = "task";
pub(super) const CONFIG: &str = "config";

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
    /// The rule by which an optimizer updates parameters.
    Rule {
        /// Adam (Kingma and Ba, 2015).
        Adam = "adam",
        /// Adam with decoupled weight decay (Loshchilov and Hutter, 2019).
        AdamW = "adamw",
        /// Adam with Nesterov momentum (Dozat, 2016).
        NAdam = "nadam",
        /// Lion: the sign of the momentum (Chen et al., 2023).
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

section! {
    /// The settings of the data: where the texts are, and how they are read.
    DataConfig = "data" {
        /// Training data: a file, a folder, or several files by a pattern such as `data/*.tsv`; relative paths begin in the current folder (default: the texts that come with the program).
        train: Option<String> = None;
        /// Development data, measured after each epoch to choose the best epoch (default: a part of the training texts, see `hold_out`).
        dev: Option<String> = None;
        /// Test data, scored once, at the end, with the model of the best epoch (default: none).
        test: Option<String> = None;
        /// Hold-out: the share of the training texts, 0 to 0.5, that is kept for development where `dev` is not set; one text in round(1 / share) is held out.
        hold_out: f64 = 0.1;
        /// Cross-validation fold that is held out instead of the share `hold_out`: `"2/5"` is the second of five; `train --folds 5` sets it. Equal texts are in one fold (`group` keeps more texts together), and folds have about equal shares of each label (default: none).
        fold: Option<Fold> = None;
        /// Group column, such as the author, the patient or the document of a text: texts with the same value are all in one fold, or on one side of the hold-out. For tables, JSON and Parquet (default: none).
        group: Option<String> = None;
        /// Format of the files: `tsv`, `csv`, `jsonl`, `parquet`, `columns`, `parallel`, `file-per-class`, `folder-per-class`, `trees`, `fasttext`, `dictionary`, `libsvm` or `plain` (default: detected and printed).
        format: Option<String> = None;
        /// Text column: its name or number, or its field in JSON Lines or Parquet; for tagged texts the words, for pairs the source. `classify` joins several columns, as in `["title", "body"]`, with a separator token between them (default: detected and printed).
        text: Vec<String> = Vec::new();
        /// Second text column, for pairs of texts as in natural language inference and similarity; one encoder reads both texts (default: none).
        pair: Option<String> = None;
        /// Label column or field: of the label, the number, the tags or the translation; the tags of CoNLL-U also by name: `upos`, `xpos`, `feats`, `deprel` or `lemma` (default: detected and printed).
        label: Option<String> = None;
        /// Target: `label` (one label per text), `labels` (several labels per text, or none) or `number` (regression).
        target: Target = Target::Label;
        /// Label separator, for several labels in a cell; a list in JSON or Parquet needs none.
        label_separator: String = ",".to_owned();
        /// Header: whether the first record of a table, or the first line of words and tags, names the columns (default: detected and printed).
        header: Option<bool> = None;
        /// Column separator of a table: one character, or `tab`; for `tag`, only tables of texts to answer have one (default: comma, semicolon, tab or bar, as detected).
        separator: Option<String> = None;
        /// Encoding of the files: `utf-8`, `windows-1252`, `gbk` or another name (default: UTF-8, UTF-16 or windows-1252, as detected).
        encoding: Option<String> = None;
        /// Binary sentiment of trees: classes 0 and 1 are one label, 3 and 4 the other; texts of class 2 are left out.
        binary: bool = false;
        /// Phrases of sentiment trees: train on every phrase, with the label of its node. Development and test data are whole sentences, and `dev` must be set.
        phrases: bool = false;
        /// First index of features in LIBSVM files: 0, as scikit-learn writes them, or 1 (default: 0 if any index is 0, else 1).
        first_index: Option<usize> = None;
        /// Tag repair: tags that break their scheme are read as conlleval reads them; for example, an `I` behind `O` begins a chunk. Without tag repair, such tags are an error.
        repair_tags: bool = false;
        /// Tag scheme: `iob1`, `iob2` (`bio`), `ioe1`, `ioe2`, `iobes` (`bilou`, `bmes`), or `plain`, where each word has a tag of its own and there are no chunks (default: detected and printed).
        scheme: Option<String> = None;
        /// Size of the shuffle window, as a number of texts, for files larger than memory. Each epoch reads the files again and keeps only the window in memory. The files must not change during the training. For `lm`, the size is a number of tokens: the tokens of a longer text are in a temporary file. Not for LIBSVM files (default: the memory limit decides which texts are in memory).
        window: Option<usize> = None;
    }
}

section! {
    /// The settings of the tokenizer and the vocabulary.
    TextConfig = "text" {
        /// Tokens of the text: `words`, `characters`, `pieces` or `whitespace` (default of `translate`: `pieces`, or `characters` for pronunciations).
        tokens: Option<Tokens> = Some(Tokens::Words);
        /// Tokenizer of Hugging Face: the path of a `tokenizer.json`, which cuts the text and numbers its tokens, in place of `tokens`, `lowercase`, `min_count` and `max_size` (default: none).
        tokenizer: Option<String> = None;
        /// Target tokens: the tokens of the translation (default: as `tokens`; for pronunciations `whitespace`: the phonemes).
        target_tokens: Option<Tokens> = None;
        /// Lowercase: whether capital letters are read as small ones.
        lowercase: bool = true;
        /// Minimum count of the vocabulary: a token that occurs less often in the training texts is unknown.
        min_count: usize = 2;
        /// Vocabulary size: at most this many known tokens, the most frequent ones (default: no limit).
        max_size: Option<usize> = None;
        /// Pre-trained word vectors: a file of GloVe, word2vec or fastText; `model.embedding` must be the width of these vectors (default: vectors start at random).
        vectors: Option<String> = None;
        /// Freeze the word vectors: training does not change them.
        freeze: bool = false;
    }
}

section! {
    /// The model.
    ModelConfig = "model" {
        /// Embedding width: the length of a token's vector.
        embedding: usize = 128;
        /// Character encoder beside words: a bidirectional LSTM over the characters of each word; its last states are appended to the word's vector.
        characters: bool = false;
        /// Recurrent cell: `lstm`, `gru` or `rnn`.
        cell: Cell = Cell::Lstm;
        /// Hidden width: the length of a recurrent layer's state.
        hidden: usize = 128;
        /// Recurrent layers: how many are stacked, at most 64.
        layers: usize = 1;
        /// Bidirectional: whether each layer reads in both directions.
        bidirectional: bool = false;
        /// Pooling: how the states of a text become one vector: `last`, `max`, `mean` or `attention`.
        pool: Pooling = Pooling::Last;
        /// Hierarchical documents: a text is divided into sentences by `lines` or by `punctuation`; each sentence is encoded, then the sequence of sentences; `none` reads a text as one sequence.
        documents: Sentences = Sentences::None;
        /// Conditional random field (CRF) over the tags: it scores neighbouring tags; without it each tag is chosen by itself.
        crf: bool = true;
        /// Tied weights: the output layer uses the vectors of the embedding (Press and Wolf, 2017).
        tied: bool = false;
        /// Dropout: the share of activations set to zero between layers while training.
        dropout: f64 = 0.6;
        /// Embedding dropout: the share of the numbers in token vectors set to zero while training (default: as `dropout`).
        embedding_dropout: Option<f64> = None;
        /// Recurrent (variational) dropout: the share of each state set to zero while training, with one mask for all steps of a text (Gal and Ghahramani, 2016).
        recurrent_dropout: f64 = 0.0;
        /// Word dropout: the share of tokens whose whole vector is set to zero while training.
        word_dropout: f64 = 0.0;
    }
}

section! {
    /// The training.
    TrainingConfig = "training" {
        /// Epochs: passes over the training texts.
        epochs: u64 = 30;
        /// Batch size in texts; for a language model, in parallel streams of the text.
        batch: usize = 16;
        /// Batching: `texts` (each training batch has `batch` texts) or `memory` (as many texts as fit the memory limit, `memory`).
        batching: BatchRule = BatchRule::Texts;
        /// Optimizer: `adam`, `adamw`, `nadam`, `lion`, `sgd`, `adagrad`, `rmsprop` or `adadelta`.
        optimizer: Rule = Rule::Adam;
        /// Learning rate at the start; `schedule` changes it.
        rate: f64 = 2e-3;
        /// Momentum of `sgd`: the share of the velocity that each step keeps.
        momentum: f64 = 0.0;
        /// Weight decay; with `adamw` and `lion` it is decoupled from the gradient (default: 0.01 with `adamw`, else 0).
        weight_decay: Option<f64> = None;
        /// Learning-rate schedule: `constant`, `cosine`, `linear`, `inverse-sqrt`, `one-cycle`, `halve` (after each epoch from `halve_after` on) or `plateau` (halved after `halve_after` epochs without a better one).
        schedule: RateSchedule = RateSchedule::Constant;
        /// Epochs until the learning rate is halved, with the schedules `halve` and `plateau`.
        halve_after: u64 = 4;
        /// Warm-up: the number of steps in which the learning rate rises to its start.
        warm_up: usize = 0;
        /// Averaging of the parameters: `none`, `ema` or `mean`; the average is evaluated and saved. With averaging, word vectors have dense gradients: every row moves in each step.
        averaging: Average = Average::None;
        /// Decay of the exponential moving average (`ema`) per step.
        averaging_decay: f64 = 0.999;
        /// Epochs before averaging begins: an average from the start would contain the random parameters for long.
        averaging_from: u64 = 1;
        /// Gradient clipping: the largest norm of all gradients together.
        clip: f64 = 1.0;
        /// Precision of matrix products: `f32` or `bf16`. With `bf16`, products round their operands to 8 bits of mantissa, which some CPUs multiply several times as fast; parameters and sums stay f32. The model predicts in f32.
        precision: Precision = Precision::F32;
        /// Train in bf16 on a CPU that does not multiply bf16 numbers fast: more slowly than in f32, with the same results.
        allow_slow: bool = false;
        /// Label smoothing: the share of each target that is spread over all classes (default: 0.1 for `translate`, and for `classify` with one label per text and without `focal`; else 0).
        label_smoothing: Option<f64> = None;
        /// Class weights in the loss: `balanced` (texts / (classes · texts of the class)), or weights by label, as in `["spam=5", "rare label=2.5"]`; other labels have weight 1 (default: no weights).
        class_weights: Vec<String> = Vec::new();
        /// Focal loss: the exponent γ, which lowers the loss of texts that are already right (Lin et al., 2017); 0 is the plain loss.
        focal: f64 = 0.0;
        /// Early stopping: stop after this many epochs without a better one; 0 never stops early.
        patience: u64 = 5;
        /// Fine-tuning: a run folder or checkpoint; training starts with its vocabularies and parameters. `classify` and `tag` also accept a language model (`lm`); its layers are then placed below the layers of the task (default: random parameters).
        from: Option<String> = None;
        /// Gradual unfreezing of the model in `from`: the epochs between two levels; the output layers are trained first and the word vectors last; 0 trains all levels from the start.
        unfreeze: u64 = 0;
        /// Learning rate by level (discriminative fine-tuning) of the model in `from`: the rate of each level relative to the level above it, above 0 and at most 1; 1 gives all levels one rate.
        lower_rates: f64 = 1.0;
        /// Parts of a batch, a power of two: gradients are computed part by part and summed along a fixed tree, by up to this many processes (`mpirun`). The number of parts decides the bits of a training, the number of processes does not (default: 1, or the number of processes rounded up to a power of two).
        parts: Option<u64> = None;
    }
}

section! {
    /// The settings for the decoding of answers.
    DecodingConfig = "decoding" {
        /// Beam width: the hypotheses kept at each step; 1 is greedy search.
        beam: usize = 4;
        /// Length penalty α: a hypothesis of n tokens is ranked by log p / ((5 + n) / 6)^α (Wu et al., 2016).
        length_penalty: f64 = 0.6;
        /// N best: the number of translations in an answer, best first; at most `beam`.
        n_best: usize = 1;
        /// Scores in the answer: the score by which translations are ranked; with several translations (`n_best`), the answer always contains the scores.
        scores: bool = false;
        /// Overlap in words, for taggers: a text that exceeds the memory limit of a prediction is read in windows, each with this many further words at either end. With 0, the text is an error. A tagger that also predicts labels of texts never reads in windows.
        overlap: usize = 0;
        /// Threshold of probabilities, for several labels per text: `per-label` (for each label, the threshold with its highest F1 on the held-out texts), `one` (for all labels, the threshold with the highest micro F1) or a number above 0 and below 1 (default: `one` if any label has fewer than 50 held-out texts, else `per-label`; the choice is printed).
        threshold: Option<LabelThreshold> = None;
    }
}

section! {
    /// The settings that are above all tables of a config file.
    RunConfig = "" {
        /// Task: `classify`, `tag`, `lm` or `translate`.
        task: Task = Task::Classify;
        /// Seed of all random numbers: equal seeds give equal results.
        seed: u64 = 1;
        /// Threads to run on, 0 for one per core; the results are the same on any number.
        threads: usize = 0;
        /// Memory limit of the training, as `"4 GB"`: a batch that does not fit is divided, and its gradients are summed (default: 80 % of the memory of the machine or container).
        memory: Option<ByteSize> = None;
    }
}
