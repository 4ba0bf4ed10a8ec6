//! Tags the words of texts: LSTMs read words and their characters in both directions, and a conditional random field finds the tags
//! that go together.
//!
//! `cargo run --release --example tagger` learns what requests ask for; see `--help`.
mod flags;

use std::{path::PathBuf, process::ExitCode};

use clap::Parser;
use flags::{Flags, Found, Outcome};
use ndarray::Array2;
use unpadded::data::{Batching, Limits, Loader, TaggedTexts, Tagging, TextFile, Vocabulary, WordVectors};
use unpadded::layers::{Crf, Embedding, Lstm, Stacked};
use unpadded::metrics::{Accuracy, ChunkF1};
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Schedule};
use unpadded::predict::Predictor;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, Result, Variable};

const MODEL: &str = "tagger";
const EPOCHS: u64 = 15;
const TEXTS: usize = 16; // a batch
const TABLE: &str = "words.weight";

macro_rules! parallel {
    ($part:literal) => {
        [
            ("seq.in", include_str!(concat!("../datasets/requests/", $part, "/seq.in"))),
            ("seq.out", include_str!(concat!("../datasets/requests/", $part, "/seq.out"))),
            ("label", include_str!(concat!("../datasets/requests/", $part, "/label"))),
        ]
    };
}

/// Learns to tag words: of files in CoNLL columns (the word first, its tag last), or of folders of parallel files (seq.in, seq.out,
/// and perhaps label, what each text is); --predict tags the lines of standard input. Without --dev a tenth of the texts is held out.
#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    flags: Flags,
    /// Learn the tags alone, also where the texts have labels
    #[arg(long, conflicts_with = "predict")]
    tags_only: bool,
    /// Start the words' vectors from a file of GloVe or word2vec, text or binary
    #[arg(long, value_name = "FILE", conflicts_with = "predict")]
    vectors: Option<PathBuf>,
}

/// What there is to learn, and to learn it from.
struct Task {
    words: Vocabulary,
    characters: Vocabulary,
    tags: Vocabulary,
    tagging: Tagging,
    labels: Option<Vocabulary>,
    vectors: Option<WordVectors>,
}

/// The form in which words are known: letters of one case, and every digit 0. Their characters are as they are.
fn form(word: &str) -> String {
    word.chars().flat_map(char::to_lowercase).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

impl Task {
    /// By the training texts; the tags are those of all texts.
    fn new(train: &TaggedTexts, all: &[&TaggedTexts], tags_only: bool) -> Result<Self> {
        let wrong = |texts: &TaggedTexts, expected: &str| {
            Err(Error::new(format!("texts of `{}`", texts.name()), expected, "none"))
        };
        if train.records().is_empty() {
            return wrong(
                train,
                "some that are not equal to all others, to be learnt from when a tenth is held out",
            );
        }
        let labelled = !tags_only && train.labelled();
        if let Some(without) =
            all.iter().find(|texts| labelled && !texts.records().is_empty() && !texts.labelled())
        {
            return wrong(without, "a label each, as the training texts have, or --tags-only");
        }
        Ok(Task {
            words: train.words(form, &Limits { min_count: 2, ..Limits::default() })?,
            characters: train.characters(&Limits::default())?,
            tags: TaggedTexts::tags(all.iter().copied())?,
            tagging: TaggedTexts::scheme(all.iter().copied())?,
            vectors: None,
            labels: labelled.then(|| TaggedTexts::labels(all.iter().copied())).transpose()?,
        })
    }

    /// Words and characters -> vectors -> LSTMs -> scores of tags -> the tags that go together. (Lample et al., "Neural architectures for
    /// named entity recognition", 2016.)
    fn network(&self, train: &TaggedTexts, epochs: u64, seed: u64) -> Result<Trainer> {
        let steps = (epochs as usize).saturating_mul(train.records().len().div_ceil(TEXTS));
        let net = Builder::new().seed(seed);
        let characters = net.feed("characters", DType::I64, &[], 2); // of each word of each text
        let c = characters.embedding(Embedding::new(self.characters.len(), 32)).dropout(0.2);
        let forth = c.lstm(48).sequence_pool(Pool::Last); // one row a word
        let back = c.lstm(Lstm::new(48).backwards()).sequence_pool(Pool::First);
        let words = net.feed_like("words", DType::I64, &[], forth);
        let width = self.vectors.as_ref().map_or(128, WordVectors::width);
        let known = words.embedding(Embedding::new(self.words.len(), width).sparse().named("words"));
        // Now and then a word is not known, so that its characters and its neighbours have to do.
        let known = known * known.slice(0..1).fill_like(1.0).dropout(0.15);
        let x = net.concat(&[known, forth, back]).dropout(0.5);
        let h = x.stacked(Stacked::new(Lstm::new(160), 1).bidirectional());

        let tags = net.feed_like("tags", DType::I64, &[], words);
        let (scheme, standard) = (self.tagging.scheme, self.tagging.standard(&self.tags)?);
        let crf = net.layer(Crf::new().forbidding(&scheme.transitions(&standard)?));
        let scores = h.dropout(0.5).linear(self.tags.len());
        let (mut loss, found) = (crf.loss(scores, tags).mean(), crf.of(scores));
        let label = self.labels.as_ref().map(|labels| {
            let label = net.feed("label", DType::I64, &[], 0);
            let logits = h.sequence_pool(Pool::Max).dropout(0.5).linear(labels.len());
            loss = loss + logits.cross_entropy(label).mean();
            (Accuracy::new(logits, label).named("label accuracy"), logits.softmax())
        });
        let adam = Adam::new(3e-3).lazy().clip_global_norm(5.0).schedule(Schedule::cosine_to(steps, 1e-4));
        let mut trainer = Trainer::new(net, loss, &adam)?
            .metric(ChunkF1::new(found, tags, scheme, &standard)?)
            .output("tags", found)
            .vocabulary("words", self.words.clone())
            .vocabulary("characters", self.characters.clone())
            .vocabulary("tags", self.tags.clone());
        if let Some((accuracy, probabilities)) = label {
            trainer = trainer.metric(accuracy).output("labels", probabilities);
        }
        // The rate falls over all epochs, so that --resume with more of them has another one.
        trainer = trainer.change_rate();
        let trainer = match &self.labels {
            Some(labels) => trainer.vocabulary("labels", labels.clone()),
            None => trainer,
        };
        let mut trainer = trainer.select("chunk F1");
        if let Some(vectors) = &self.vectors {
            // Words that the file does not have start as they would without it.
            let mut table = Array2::zeros((self.words.len(), vectors.width()));
            let drawn = trainer.scope().value(TABLE)?;
            table.iter_mut().zip(drawn.as_dense()?.as_slice::<f32>()?).for_each(|(to, x)| *to = *x);
            vectors.fill(&mut table)?;
            trainer.set_parameter(TABLE, table)?;
        }
        Ok(trainer)
    }

    fn loader(&self, texts: &TaggedTexts) -> Result<Loader> {
        let samples =
            texts.samples(form, &self.words, Some(&self.characters), &self.tags, self.labels.as_ref())?;
        let names = ["words", "characters", "tags", "label"];
        let names = if self.labels.is_some() { &names[..] } else { &names[..3] };
        Ok(Loader::new(samples, names)?.batching(Batching::Sequences(TEXTS)))
    }
}

/// The requests that come with the program.
fn requests(part: &str) -> Result<TaggedTexts> {
    let files = if part == "train" { parallel!("train") } else { parallel!("dev") };
    let [words, tags, labels] =
        files.map(|(name, text)| TextFile::embedded(&format!("datasets/requests/{part}/{name}"), text));
    TaggedTexts::of_parallel(&words, &tags, Some(&labels))
}

/// The words of a line with their tags under them, and what the line is.
fn predict(predictor: &Predictor, line: &str) -> Result<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ids = predictor.vocabulary("words")?.ids(words.iter().map(|word| form(word)))?;
    let of = predictor.vocabulary("characters")?;
    let characters =
        words.iter().map(|word| of.ids(word.chars().map(String::from))).collect::<Result<Vec<_>>>()?;
    let (ids, characters) = (Variable::from_sequence(ids)?, Variable::from_nested(&[characters])?);
    let feeds = [("words", &ids), ("characters", &characters)];
    let found = predictor.run(&feeds, &["tags"])?;
    let tags = predictor.vocabulary("tags")?;
    let (mut above, mut below) = (String::new(), String::new());
    for (word, &tag) in words.iter().zip(found[0].as_slice::<i64>()?) {
        let tag = tags.token(tag).unwrap_or_default();
        let width = word.chars().count().max(tag.chars().count()) + 2;
        for (line, cell) in [(&mut above, *word), (&mut below, tag)] {
            // Not `format!`, which pads to no more than 65,535 characters.
            *line += cell;
            line.extend(std::iter::repeat_n(' ', width - cell.chars().count()));
        }
    }
    let mut said = format!("{}\n{}", above.trim_end(), below.trim_end());
    if predictor.outputs().any(|output| output == "labels") {
        for (label, probability) in predictor.likeliest(&feeds, "labels", "labels")? {
            said += &format!("\n{label}\t{probability:.3}");
        }
    }
    Ok(said)
}

fn run(Cli { flags, tags_only, vectors }: &Cli) -> Outcome<()> {
    if let Some(predictor) = flags.predictor(MODEL)? {
        return flags::answer(|line| predict(&predictor, line));
    }
    let (train, dev) = match (&flags.train, &flags.dev) {
        (None, _) => (requests("train")?, requests("dev")?),
        (Some(train), Some(dev)) => (TaggedTexts::open(train)?, TaggedTexts::open(dev)?),
        (Some(train), None) => TaggedTexts::open(train)?.hold_out(10, flags.seed),
    };
    let test = flags.test.as_ref().map(TaggedTexts::open).transpose()?;
    let all: Vec<&TaggedTexts> = [&train, &dev].into_iter().chain(&test).collect();
    let mut task = Task::new(&train, &all, *tags_only)?;
    if let Some(path) = vectors {
        let found = WordVectors::open(path, &task.words)?;
        let of_texts = train.records().iter().flat_map(|text| &text.words).map(|word| form(word));
        flags::print(format!("{found}: {:.1} % of the running words", 100.0 * found.coverage(of_texts)))?;
        task.vectors = Some(found);
    }
    let (batches, held) = (task.loader(&train)?.shuffle(flags.seed).prefetch(4), task.loader(&dev)?);
    let trainer = task.network(&train, flags.epochs.unwrap_or(EPOCHS), flags.seed)?;
    let Some((mut trainer, report)) = flags.fit(MODEL, trainer, (&batches, &held), EPOCHS)? else {
        return Ok(());
    };
    trainer.use_best()?;
    let (what, texts) = test.as_ref().map_or(("held-out", &dev), |test| ("test", test));
    let data = task.loader(texts)?;
    let scores = trainer.evaluate(&data)?;
    for (_, table) in trainer.tables(&data)? {
        flags::print(format!("\n{table}"))?;
    }
    let [value, label] = ["chunk F1", "label accuracy"].map(|name| scores.get(name).map(|x| 100.0 * x));
    let value = value.unwrap_or(f64::NAN);
    let labels = label.map(|label| format!(", labels {label:.2} %")).unwrap_or_default();
    flags::print(format!("{what}: chunk F1 {value:.2} %{labels} (in the best epoch, chosen on dev)"))?;
    let predictor = flags::load(&flags.save(MODEL), MODEL)?;
    for text in dev.records().iter().take(3) {
        flags::print(format!("\n{}", predict(&predictor, &text.words.join(" "))?))?;
    }
    let more: Vec<(&str, f64)> = label.map(|label| ("intent", label)).into_iter().collect();
    let found = Found { model: MODEL, dataset: train.name(), metric: "chunk_f1", value, more: &more };
    flags.conclude(&found, &report)
}

fn main() -> ExitCode {
    flags::exit(run(&Cli::parse()))
}

#[test]
fn it_learns_and_predicts() -> Outcome<()> {
    let texts = requests("train")?;
    let some = |texts: TaggedTexts| texts.hold_out(20, 1).1;
    let (train, dev) = (some(texts), some(requests("dev")?));
    let path = std::env::temp_dir().join(format!("unpadded-tagger-{}.ckpt", std::process::id()));
    for tags_only in [false, true] {
        let task = Task::new(&train, &[&train, &dev], tags_only)?;
        assert_eq!(
            (task.tagging.scheme, task.labels.is_some()),
            (unpadded::data::TagScheme::Iob2, !tags_only)
        );
        let trainer = task.network(&train, 4, 1)?.progress(unpadded::train::Progress::Quiet);
        let mut trainer = trainer.checkpoint(&path);
        let data = task.loader(&train)?;
        let before = trainer.evaluate(&data)?.loss();
        trainer.fit(&data, &task.loader(&dev)?, unpadded::train::Until::Epochs(4))?;
        assert!(trainer.evaluate(&data)?.loss() < before / 2.0);
        let said = predict(&Predictor::load(&path)?, "set an  alarm for 7")?;
        let long = "w".repeat(70_000);
        assert!(predict(&Predictor::load(&path)?, &long)?.starts_with(&format!("{long}\n")));
        let mut longer = task.network(&train, 5, 1)?.progress(unpadded::train::Progress::Quiet);
        longer.resume(&path)?; // for more epochs
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!((lines.len(), lines[0].split_whitespace().count()), (if tags_only { 2 } else { 3 }, 5));
        assert_eq!(lines[1].split_whitespace().count(), 5, "{said}");
        std::fs::remove_file(&path)?;
    }
    Ok(())
}

#[test]
fn texts_without_labels_and_without_others_are_refused() -> Outcome<()> {
    let file = |name: &str, text: &'static str| TextFile::embedded(name, text);
    let columns = TaggedTexts::of_columns(&file("columns", "a O\n\na O\n"))?;
    let labelled =
        TaggedTexts::of_parallel(&file("in", "a a\n"), &file("out", "O O\n"), Some(&file("label", "x\n")))?;
    let said = |train, all: &[&TaggedTexts], only| Task::new(train, all, only).err().map(|e| e.to_string());
    let error = said(&labelled, &[&labelled, &columns], false).unwrap_or_default();
    assert!(error.contains("texts of `columns`: expected a label each"), "{error}");
    assert_eq!(said(&labelled, &[&labelled, &columns], true), None);
    assert_eq!(said(&columns, &[&columns, &labelled], false), None);
    let (rest, held) = columns.clone().hold_out(1, 1);
    let error = said(&rest, &[&rest, &held], false).unwrap_or_default();
    assert!(error.contains("texts of `columns`: expected some that are not equal"), "{error}");
    Ok(())
}
