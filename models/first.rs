//! The small program: an LSTM reads `text<TAB>label` lines and learns the label, without padding.
//!
//! `cargo run --release --example first` trains on `datasets/reviews`. Your own data, and all the options:
//! `-- --train FILE --dev FILE [--test FILE] [--epochs 10] [--seed 1] [--threads 0] [--json]`

use std::collections::HashMap;
use std::time::Instant;

use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::{Builder, DType, Var, Variable};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const BATCH: usize = 32;
const UNKNOWN: &str = "<unk>";

#[derive(Default)]
struct Options {
    train: Option<String>,
    dev: Option<String>,
    test: Option<String>,
    epochs: Option<usize>,
    seed: u64,
    threads: usize,
    json: bool,
}

fn options(mut words: impl Iterator<Item = String>) -> Outcome<Options> {
    let mut options = Options { seed: 1, ..Options::default() };
    while let Some(flag) = words.next() {
        let mut value = || words.next().ok_or(format!("{flag}: expected a value after it"));
        let number = |v: String| v.parse().map_err(|_| format!("{flag}: expected a whole number, got `{v}`"));
        match flag.as_str() {
            "--train" => options.train = Some(value()?),
            "--dev" => options.dev = Some(value()?),
            "--test" => options.test = Some(value()?),
            "--epochs" => options.epochs = Some(number(value()?)? as usize),
            "--seed" => options.seed = number(value()?)?,
            "--threads" => options.threads = number(value()?)? as usize,
            "--json" => options.json = true,
            _ => return Err(format!("unknown flag `{flag}`: see the top of models/first.rs").into()),
        }
    }
    match options.train.is_some() == options.dev.is_some() {
        true => Ok(options),
        false => Err("--train and --dev: expected both or neither".into()),
    }
}

/// The words and the label of each line.
type Examples = Vec<(Vec<String>, i64)>;

fn read(path: Option<&String>, embedded: (&str, &str)) -> Outcome<(String, Examples)> {
    let (name, text) = match path {
        Some(path) => (path.clone(), std::fs::read_to_string(path).map_err(|e| format!("{path}: {e}"))?),
        None => (embedded.0.to_owned(), embedded.1.to_owned()),
    };
    let mut examples = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let place = format!("{name}:{}", i + 1);
        let (words, label) =
            line.rsplit_once('\t').ok_or(format!("{place}: expected text<TAB>label, got no tab"))?;
        let wrong = |_| format!("{place}: expected a whole number as label, got `{label}`");
        let label = label.trim().parse().map_err(wrong)?;
        examples.push((words.to_lowercase().split_whitespace().map(str::to_owned).collect(), label));
    }
    match examples.is_empty() {
        false => Ok((name, examples)),
        true => Err(format!("{name}: expected lines of text<TAB>label, got an empty file").into()),
    }
}

/// Each sequence's ids and class, and its number in the data.
struct Coded(Vec<(Vec<i64>, i64)>);

impl Coded {
    fn new(name: &str, examples: &Examples, ids: &HashMap<String, i64>, labels: &[i64]) -> Outcome<Self> {
        let code = |(i, (words, label)): (usize, &(Vec<String>, i64))| {
            let class = labels.binary_search(label).map_err(|_| {
                format!(
                    "{name}:{}: expected one of the labels of the training data, {labels:?}, got {label}",
                    i + 1
                )
            })?;
            let id = |w: &String| ids.get(w).copied().unwrap_or(0);
            Ok((words.iter().map(id).collect(), class as i64))
        };
        examples.iter().enumerate().map(code).collect::<Outcome<_>>().map(Self)
    }
}

/// The program with the variables that a run feeds and fetches.
struct Net {
    executor: Executor,
    scope: Scope,
    words: Var,
    label: Var,
    loss: Var,
    accuracy: Var,
}

fn network(vocabulary: usize, classes: usize, seed: u64, threads: usize) -> unpadded::Result<Net> {
    let net = Builder::new().seed(seed);
    let words = net.feed("words", DType::I64, &[], 1)?; // one id a row, sequences of rows
    let label = net.feed("label", DType::I64, &[], 0)?; // one a sequence
    let x = net.embedding(words, Embedding::new(vocabulary, 128).sparse())?;
    let h = net.lstm(net.dropout(x, 0.5)?, Lstm::new(128))?; // as many steps as each sequence has words
    let last = net.sequence_pool(h, Pool::Last)?;
    let logits = net.linear(net.dropout(last, 0.5)?, classes)?;
    let loss = net.mean(net.cross_entropy(logits, label)?)?;
    let accuracy = net.accuracy(logits, label, None)?;
    let registry = net.registry();
    let mut program = net.finish();
    Adam::new(1e-3).lazy().minimize(&mut program, &registry, loss.id())?;
    let executor = Executor::new(&program, &registry, &[loss.id(), accuracy.id()], threads)?;
    Ok(Net { executor, scope: Scope::of(&program)?, words, label, loss, accuracy })
}

impl Net {
    /// The mean loss and accuracy over the data in the order given; it trains if there is a number of a first step.
    fn pass(
        &mut self,
        data: &Coded,
        order: &[usize],
        mut step: Option<&mut u64>,
    ) -> unpadded::Result<(f64, f64)> {
        let (mut loss, mut hits) = (0.0, 0.0);
        for batch in order.chunks(BATCH) {
            let ids: Vec<Vec<i64>> = batch.iter().map(|&i| data.0[i].0.clone()).collect();
            let words = Variable::from_sequences(&ids)?;
            let label = Variable::dense(batch.iter().map(|&i| data.0[i].1).collect::<ndarray::Array1<i64>>());
            let numbers: Vec<u64> = batch.iter().map(|&i| i as u64).collect();
            let feeds = [(self.words.id(), &words), (self.label.id(), &label)];
            let run = match step.as_deref_mut() {
                Some(step) => {
                    *step += 1;
                    Run::train(&feeds, *step - 1).numbers(&numbers)
                }
                None => Run::infer(&feeds),
            };
            self.executor.run(&mut self.scope, &run)?;
            loss += self.executor.scalar(self.loss)? * batch.len() as f64;
            hits += self.executor.scalar(self.accuracy)? * batch.len() as f64;
        }
        Ok((loss / order.len().max(1) as f64, 100.0 * hits / order.len().max(1) as f64))
    }
}

fn run(options: &Options) -> Outcome<()> {
    let embedded = |name, text| (name, text);
    let train_file = embedded("datasets/reviews/train.tsv", include_str!("../datasets/reviews/train.tsv"));
    let dev_file = embedded("datasets/reviews/dev.tsv", include_str!("../datasets/reviews/dev.tsv"));
    let (name, train) = read(options.train.as_ref(), train_file)?;
    let (dev_name, dev) = read(options.dev.as_ref(), dev_file)?;
    let mut labels: Vec<i64> = train.iter().map(|e| e.1).collect();
    labels.sort_unstable();
    labels.dedup();
    if labels.len() < 2 {
        return Err(format!("{name}: expected at least two labels, got only {labels:?}").into());
    }
    let mut counts: HashMap<&str, usize> = HashMap::new();
    train.iter().flat_map(|e| &e.0).for_each(|word| *counts.entry(word).or_default() += 1);
    let mut vocabulary: Vec<&str> = counts.iter().filter(|c| *c.1 >= 2).map(|c| *c.0).collect();
    vocabulary.sort_unstable();
    vocabulary.insert(0, UNKNOWN);
    let ids = vocabulary.iter().zip(0..).map(|(w, i)| ((*w).to_owned(), i)).collect();
    let train = Coded::new(&name, &train, &ids, &labels)?;
    let dev = Coded::new(&dev_name, &dev, &ids, &labels)?;
    let (start, mut step, mut seconds, mut best) = (Instant::now(), 0, 0.0, (-1.0, Vec::new()));
    let mut net = network(vocabulary.len(), labels.len(), options.seed, options.threads)?;
    let in_order = |data: &Coded| (0..data.0.len()).collect::<Vec<_>>();
    let epochs = options.epochs.unwrap_or(10);
    for epoch in 1..=epochs {
        let mut order = in_order(&train);
        let key = [options.seed as u32, (options.seed >> 32) as u32];
        order.sort_by_key(|&i| unpadded::kernels::philox([i as u32, epoch as u32, 0, 0], key)[0]);
        let clock = Instant::now();
        let (loss, _) = net.pass(&train, &order, Some(&mut step))?;
        seconds += clock.elapsed().as_secs_f64();
        let (dev_loss, accuracy) = net.pass(&dev, &in_order(&dev), None)?;
        println!("epoch {epoch}: loss {loss:.4}, dev loss {dev_loss:.4}, dev accuracy {accuracy:.2} %");
        if accuracy > best.0 {
            let names: Vec<String> = net.scope.names().map(str::to_owned).collect();
            let values: unpadded::Result<Vec<_>> =
                names.into_iter().map(|n| Ok((net.scope.get(&n)?, n))).collect();
            best = (accuracy, values?);
        }
    }
    let tokens: usize = train.0.iter().map(|e| e.0.len()).sum();
    for (value, name) in best.1 {
        net.scope.set(&name, value)?;
    }
    if options.test.is_some() {
        let (name, test) = read(options.test.as_ref(), ("", ""))?;
        let test = Coded::new(&name, &test, &ids, &labels)?;
        println!("test accuracy {:.2} %", net.pass(&test, &in_order(&test), None)?.1);
    }
    println!("best dev accuracy {:.2} %, {:.1} s", best.0, start.elapsed().as_secs_f64());
    if options.json {
        let folder = std::path::Path::new(&name).parent().and_then(|p| p.file_name()).unwrap_or_default();
        println!(
            r#"{{"model": "first", "dataset": {folder:?}, "metric": "dev_accuracy", "value": {:.3}, "train_seconds": {seconds:.3}, "tokens_per_s": {:.0}}}"#,
            best.0,
            (tokens * epochs) as f64 / seconds.max(1e-9)
        );
    }
    Ok(())
}

fn main() -> std::process::ExitCode {
    match options(std::env::args().skip(1)).and_then(|options| run(&options)) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
