//! Labels documents by their structure: words form sentences, and sentences form the document. At both levels a GRU reads in both
//! directions, and attention weighs the words and sentences; its weights are shown.
//!
//! `cargo run --release --example documents` learns from the film reviews of this repository, nested and, to compare, with each
//! document as one sequence of words. Two paths train on other documents and measure on the second (the same path twice: on a
//! tenth of it): a folder or zip with a folder a class and a file a document, a sentence a line; or a file of lines
//! `text<TAB>label`.
mod paths;

use std::io::IsTerminal;
use std::path::Path;

use unpadded::data::{Batching, Field, Limits, Loader, Samples, Tokenizer, Vocabulary};
use unpadded::layers::{Embedding, Gru, Stacked};
use unpadded::metrics::Accuracy;
use unpadded::ops::{self, Pool};
use unpadded::optimizer::{Adam, Schedule};
use unpadded::predict::Predictor;
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Error, Result, Var, Variable};
use unpadded_text::{Folder, LabelledTexts, TextFile};

const WORDS: Tokenizer = Tokenizer::words().lowercase();
const TEXTS: usize = 16; // a batch
const EPOCHS: u64 = 8;

/// A document: its sentences, in words, and its label.
#[derive(Clone)]
struct Document {
    sentences: Vec<String>,
    label: String,
}

/// Splits a text into sentences: each ends with a full stop, an exclamation mark or a question mark before a space.
fn sentences(text: &str) -> Vec<String> {
    let ends = |text: &str| {
        let marks = text.char_indices().zip(text.chars().skip(1));
        let found = marks.filter(|((_, c), next)| ".!?".contains(*c) && next.is_whitespace());
        found.map(|((at, c), _)| at + c.len_utf8()).collect::<Vec<_>>()
    };
    let mut from = 0;
    let mut found = Vec::new();
    for end in ends(text).into_iter().chain([text.len()]) {
        let sentence = text[from..end].trim();
        if !sentence.is_empty() {
            found.push(sentence.to_owned());
        }
        from = end;
    }
    found
}

/// Reads documents from a folder, a zip, or a file of lines.
fn read(path: &Path) -> Result<Vec<Document>> {
    let folder = path.is_dir() || path.extension().is_some_and(|extension| extension == "zip");
    if !folder {
        return Ok(of_lines(&LabelledTexts::of_lines(&TextFile::open(path)?)?));
    }
    let document = |(label, file): (String, TextFile)| {
        let text = file.text()?;
        let sentences =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
        Ok(Document { sentences, label })
    };
    Folder::open(path)?.extension("txt")?.folder_per_class()?.into_iter().map(document).collect()
}

fn of_lines(texts: &LabelledTexts) -> Vec<Document> {
    let document = |text: &unpadded_text::LabelledText| Document {
        sentences: sentences(&text.text),
        label: text.label.clone(),
    };
    texts.records().iter().map(document).collect()
}

/// Holds out one of `one_in` documents, chosen by the seed; returns the rest and the held-out documents.
fn hold_out(documents: Vec<Document>, one_in: usize, seed: u64) -> (Vec<Document>, Vec<Document>) {
    let mut order: Vec<usize> = (0..documents.len()).collect();
    // A permutation that depends on the seed alone: by numbers mixed from seed and index.
    order.sort_by_key(|&i| {
        let mixed = (i as u64 ^ seed.rotate_left(32)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    });
    let held = &order[..documents.len() / one_in];
    let (mut rest, mut out) = (Vec::new(), Vec::new());
    for (i, document) in documents.into_iter().enumerate() {
        if held.contains(&i) { out.push(document) } else { rest.push(document) }
    }
    (rest, out)
}

struct Task {
    words: Vocabulary,
    labels: Vocabulary,
    flat: bool,
}

impl Task {
    fn new(train: &[Document], flat: bool) -> Result<Self> {
        let tokens = || train.iter().flat_map(|d| &d.sentences).flat_map(|sentence| WORDS.tokens(sentence));
        let words = Vocabulary::of(tokens(), &Limits::default().min_count(2))?;
        Ok(Task { words, labels: Vocabulary::labels(train.iter().map(|d| &d.label))?, flat })
    }

    /// Words → sentences → documents. (Yang et al., "Hierarchical attention networks for document classification", 2016.)
    fn network(&self, documents: usize, epochs: u64, seed: u64) -> Result<Trainer> {
        let net = Builder::new().seed(seed);
        let steps = (epochs as usize).saturating_mul(documents.div_ceil(TEXTS));
        let words = net.feed("words", DType::I64, &[], if self.flat { 1 } else { 2 });
        let x = words.embedding(Embedding::new(self.words.len(), 100).sparse()).dropout(0.3);
        let (mut level, of_words) = attended(x);
        let mut seen = vec![("weights of words", of_words)];
        if !self.flat {
            let (document, of_sentences) = attended(level.dropout(0.3));
            seen.push(("weights of sentences", of_sentences));
            level = document;
        }
        let label = net.feed("label", DType::I64, &[], 0);
        let logits = level.dropout(0.3).linear(self.labels.len());
        let (loss, probabilities) = (logits.cross_entropy(label).mean(), logits.softmax());
        let adam =
            Adam::new(2e-3).lazy().clip_global_norm(1.0).schedule(Schedule::cosine_to(steps.max(1), 1e-5));
        let trainer = Trainer::new(net, loss, &adam)?.change_rate();
        let trainer = trainer.metric(Accuracy::new(logits, label)).output("probabilities", probabilities);
        let trainer =
            seen.into_iter().fold(trainer, |trainer, (name, weights)| trainer.output(name, weights));
        Ok(trainer.vocabulary("words", self.words.clone()).vocabulary("labels", self.labels.clone()))
    }

    fn loader(&self, documents: &[Document]) -> Result<Loader> {
        let sample = |document: &Document| {
            let label = self.labels.lookup(&document.label)?;
            Ok(vec![field(&self.words, &document.sentences, self.flat)?, Field::Int(label)])
        };
        let samples = documents.iter().map(sample).collect::<Result<Samples>>()?;
        Ok(Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(TEXTS)))
    }
}

/// Rows of sequences → one row per sequence: a GRU in both directions, and the mean of its states, weighted by attention with a
/// learned query; returns the weights, too.
fn attended(x: Var) -> (Var, Var) {
    let states = x.stacked(Stacked::new(Gru::new(50), 1).bidirectional());
    let weights = states.linear(100).tanh().linear(1).sequence_softmax();
    ((states * weights).sequence_pool(Pool::Sum), weights)
}

/// Returns the input of a document: the ids of its words, in sentences or all together.
fn field(words: &Vocabulary, sentences: &[String], flat: bool) -> Result<Field> {
    let numbers = sentences.iter().map(|sentence| words.ids(WORDS.tokens(sentence)));
    let numbers = numbers.collect::<Result<Vec<_>>>()?;
    Ok(if flat { Field::Ints(numbers.concat()) } else { Field::Nested(numbers) })
}

/// Returns the label of a document, and its words in shades: the darker a word, the larger its attention weight.
fn predict(predictor: &Predictor, sentences: &[String]) -> Result<String> {
    let flat = !predictor.outputs().any(|output| output == "weights of sentences");
    let value = match field(predictor.vocabulary("words")?, sentences, flat)? {
        Field::Nested(numbers) => Variable::from_nested(&[numbers])?,
        Field::Ints(numbers) => Variable::from_sequence(numbers)?,
        _ => return Err(Error::new("words of a document", "sequences", "others")),
    };
    let feeds = [("words", &value)];
    let found = predictor.likeliest(&feeds, "probabilities", "labels")?;
    let weights = predictor.run(&feeds, &["weights of words"])?;
    let of_words = weights[0].as_slice::<f32>()?;
    let of_sentences = match flat {
        true => vec![1.0; sentences.len()],
        false => predictor.run(&feeds, &["weights of sentences"])?[0].as_slice::<f32>()?.to_vec(),
    };
    let mut text: String =
        found.iter().map(|(label, probability)| format!("{label}\t{probability:.3}")).collect();
    let most = of_sentences.iter().copied().fold(0.0f32, f32::max);
    let mut words = of_words.iter();
    for (sentence, weight) in sentences.iter().zip(&of_sentences) {
        let tokens: Vec<String> = WORDS.tokens(sentence).map(|token| token.to_string()).collect();
        let own: Vec<f32> = words.by_ref().take(tokens.len()).copied().collect();
        let darkest = own.iter().copied().fold(0.0f32, f32::max);
        let shaded: Vec<String> =
            tokens.iter().zip(&own).map(|(token, weight)| shade(token, weight / darkest)).collect();
        text += &format!("\n{} {}", shade("  ", weight / most), shaded.join(" "));
    }
    Ok(text)
}

/// Returns a text on a background whose darkness is a share from 0 to 1; without a terminal, behind a block of that darkness.
fn shade(text: &str, share: f32) -> String {
    let step = if share.is_finite() { (share * 4.0).round().clamp(0.0, 4.0) as usize } else { 0 };
    if std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) {
        let (ground, ink) =
            [("", ""), ("48;5;230", "30"), ("48;5;222", "30"), ("48;5;214", "30"), ("48;5;202", "30")][step];
        return if step == 0 { text.to_owned() } else { format!("\x1b[{ground};{ink}m{text}\x1b[0m") };
    }
    let block = ["", "░", "▒", "▓", "█"][step];
    format!("{block}{text}")
}

fn main() -> Result<()> {
    let [path, dev] = paths::paths(["reviews/train.tsv", "reviews/dev.tsv"])?;
    let (train, dev) = match path == dev {
        true => hold_out(read(&path)?, 10, 1),
        false => (read(&path)?, read(&dev)?),
    };
    for flat in [false, true] {
        let task = Task::new(&train, flat)?;
        let mut trainer = task.network(train.len(), EPOCHS, 1)?;
        let batches = task.loader(&train)?.shuffle(1).prefetch(4);
        trainer.fit(&batches, &task.loader(&dev)?, Until::Epochs(EPOCHS))?;
        trainer.use_best()?;
        println!("{}: {}", if flat { "flat" } else { "nested" }, trainer.evaluate(&task.loader(&dev)?)?);
        let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
        for document in dev.iter().take(3) {
            let shown = document.sentences.get(..12).unwrap_or(&document.sentences);
            println!("\nin truth {}; found {}", document.label, predict(&predictor, shown)?);
        }
    }
    Ok(())
}

#[test]
fn it_learns_and_shows_what_it_saw() -> Result<()> {
    assert_eq!(sentences("It is 3.5 m. Good! Is it"), ["It is 3.5 m.", "Good!", "Is it"]);
    let reviews = Path::new(env!("CARGO_MANIFEST_DIR")).join("datasets/reviews/dev.tsv");
    let (train, held) = hold_out(read(&reviews)?, 4, 1);
    assert_eq!((train.len(), held.len()), (195, 65));
    for flat in [false, true] {
        let task = Task::new(&held, flat)?;
        let mut trainer = task.network(held.len(), 30, 1)?.progress(unpadded::train::Progress::Quiet);
        let data = task.loader(&held)?.shuffle(1);
        let before = trainer.evaluate(&data)?.loss();
        trainer.fit(&data, &data, Until::Epochs(30))?;
        assert!(trainer.evaluate(&data)?.loss() < before / 2.0);
        let predictor = Predictor::new(trainer.for_inference()?, &ops::catalogue())?;
        let shaded_text =
            predict(&predictor, &sentences("The plot was dull. It is set in a town. I regretted it."))?;
        assert_eq!(shaded_text.lines().count(), 4, "{shaded_text}");
        assert!(shaded_text.contains('█'), "{shaded_text}");
        assert_eq!(predict(&predictor, &[])?.lines().count(), 1);
    }
    Ok(())
}
