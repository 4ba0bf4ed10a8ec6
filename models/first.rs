//! The small program: an LSTM reads lines of `text<TAB>label` and learns the label, without padding.
//!
//! `cargo run --release --example first` trains on `datasets/reviews`. On data of your own:
//! `… first -- --train FILE --dev FILE [--test FILE] [--epochs 15] [--seed 1] [--threads 0] [--json]`
use std::collections::{BTreeSet, HashMap};
use std::process::ExitCode;
use std::time::Instant;

use ndarray::Array1;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::program::VarId;
use unpadded::{Builder, DType, Variable, kernels};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
const FLAGS: [&str; 6] = ["--train", "--dev", "--test", "--epochs", "--seed", "--threads"];
const TRAIN: (&str, &str) = ("datasets/reviews/train.tsv", include_str!("../datasets/reviews/train.tsv"));
const DEV: (&str, &str) = ("datasets/reviews/dev.tsv", include_str!("../datasets/reviews/dev.tsv"));

/// A compiled program with its parameters; the feeds are words and label, the fetched are loss and accuracy.
struct Net(Executor, Scope, [VarId; 2], [VarId; 2]);

fn network(vocabulary: usize, classes: usize, seed: u64, threads: usize) -> unpadded::Result<Net> {
    let net = Builder::new().seed(seed);
    let words = net.feed("words", DType::I64, &[], 1)?; // one id a row, in sequences
    let label = net.feed("label", DType::I64, &[], 0)?; // one a sequence
    let x = net.embedding(words, Embedding::new(vocabulary, 128).sparse())?;
    let h = net.lstm(net.dropout(x, 0.5)?, Lstm::new(128))?; // a sequence takes as many steps as it has words
    let last = net.sequence_pool(h, Pool::Last)?;
    let logits = net.linear(net.dropout(last, 0.5)?, classes)?;
    let loss = net.mean(net.cross_entropy(logits, label)?)?;
    let accuracy = net.accuracy(logits, label, None)?;
    let registry = net.registry();
    let mut program = net.finish();
    Adam::new(1e-3).lazy().minimize(&mut program, &registry, loss.id())?;
    let (feeds, fetch) = ([words.id(), label.id()], [loss.id(), accuracy.id()]);
    let executor = Executor::new(&program, &registry, &fetch, threads)?;
    Ok(Net(executor, Scope::of(&program)?, feeds, fetch))
}

/// Word ids and the class of each line.
type Data = Vec<(Vec<i64>, i64)>;

/// The mean loss and the accuracy over `data`; in an epoch of training the order is a shuffled one.
fn pass(net: &mut Net, data: &Data, epoch: Option<u64>) -> unpadded::Result<[f64; 2]> {
    let Net(executor, scope, feeds, fetch) = net;
    let (mut order, mut means) = ((0..data.len()).collect::<Vec<_>>(), [0.0; 2]);
    let key = |i: usize| {
        kernels::philox([i as u32, epoch.unwrap_or(0) as u32, 0, 0], [executor.program().seed as u32, 0])
    };
    order.sort_by_key(|&i| epoch.map(|_| key(i)));
    for (batch, k) in order.chunks(32).zip(0..) {
        let ids: Vec<Vec<i64>> = batch.iter().map(|&i| data[i].0.clone()).collect();
        let words = Variable::from_sequences(&ids)?;
        let label = Variable::dense(batch.iter().map(|&i| data[i].1).collect::<Array1<i64>>());
        let numbers: Vec<u64> = batch.iter().map(|&i| i as u64).collect();
        let feeds = [(feeds[0], &words), (feeds[1], &label)];
        let step = epoch.map(|epoch| epoch * data.len().div_ceil(32) as u64 + k);
        let run = step.map_or(Run::infer(&feeds), |step| Run::train(&feeds, step));
        executor.run(scope, &run.numbers(&numbers))?;
        for (mean, &var) in means.iter_mut().zip(&*fetch) {
            *mean += executor.scalar(var)? * batch.len() as f64 / data.len() as f64;
        }
    }
    Ok(means)
}

/// A file's name, and the words and the label of each of its lines.
type Lines = (String, Vec<(Vec<String>, i64)>);

fn read(path: Option<&String>, embedded: (&str, &str)) -> Outcome<Lines> {
    let name = path.map_or(embedded.0.to_owned(), String::clone);
    let text = path.map_or(Ok(embedded.1.to_owned()), std::fs::read_to_string);
    let mut lines = Vec::new();
    for (i, line) in text.map_err(|e| format!("{name}: {e}"))?.lines().enumerate() {
        let wrong = |got: &str| format!("{name}:{}: expected text<TAB>whole number, got {got}", i + 1);
        let (words, label) = line.rsplit_once('\t').ok_or_else(|| wrong("no tab"))?;
        let label = label.trim().parse().map_err(|_| wrong(&format!("the label `{label}`")))?;
        lines.push((words.to_lowercase().split_whitespace().map(str::to_owned).collect(), label));
    }
    let empty = format!("{name}: expected lines of text<TAB>label, got an empty file");
    if lines.is_empty() { Err(empty.into()) } else { Ok((name, lines)) }
}

/// Words to ids (0 for one that training did not see twice) and labels to classes.
fn code((name, lines): Lines, ids: &HashMap<String, i64>, labels: &[i64]) -> Outcome<Data> {
    let expected = format!("expected a label that training has, one of {labels:?}");
    let line = |(i, (words, label)): (usize, &(Vec<String>, i64))| {
        let unseen = |_| format!("{name}:{}: {expected}, got {label}", i + 1);
        let ids = words.iter().map(|w| ids.get(w).copied().unwrap_or(0)).collect();
        Ok((ids, labels.binary_search(label).map_err(unseen)? as i64))
    };
    lines.iter().enumerate().map(line).collect()
}

fn run(mut words: impl Iterator<Item = String>) -> Outcome<()> {
    let mut options = HashMap::new();
    while let Some(flag) = words.next() {
        let value = match flag.as_str() {
            "--json" => Some(String::new()),
            known if FLAGS.contains(&known) => words.next(),
            _ => return Err(format!("unknown flag `{flag}`: expected one of {FLAGS:?} or --json").into()),
        };
        options.insert(flag.clone(), value.ok_or(format!("{flag}: expected a value after it"))?);
    }
    let number = |flag: &str, default: u64| match options.get(flag).map(|text| text.parse()) {
        Some(Err(_)) => Err(format!("{flag}: expected a whole number, got `{}`", options[flag])),
        number => Ok(number.and_then(Result::ok).unwrap_or(default)),
    };
    let (epochs, seed, threads) = (number("--epochs", 15)?, number("--seed", 1)?, number("--threads", 0)?);
    if options.contains_key("--train") != options.contains_key("--dev") {
        return Err("--train and --dev: expected both or neither".into());
    }
    let (name, lines) = read(options.get("--train"), TRAIN)?;
    let labels: Vec<i64> = lines.iter().map(|l| l.1).collect::<BTreeSet<_>>().into_iter().collect();
    if labels.len() < 2 {
        return Err(format!("{name}: expected two labels or more, got only {labels:?}").into());
    }
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<&String> = lines.iter().flat_map(|l| &l.0).filter(|&w| !seen.insert(w)).collect();
    let ids: HashMap<String, i64> = twice.into_iter().cloned().zip(1..).collect();
    let dev = code(read(options.get("--dev"), DEV)?, &ids, &labels)?;
    let test = options.get("--test").map(|path| code(read(Some(path), DEV)?, &ids, &labels)).transpose()?;
    let folder = name.rsplit('/').nth(1).unwrap_or_default().to_owned();
    let train = code((name, lines), &ids, &labels)?;
    let mut net = network(ids.len() + 1, labels.len(), seed, threads as usize)?;
    let (mut seconds, mut best, mut tested) = (0.0, -1.0, None);
    for epoch in 0..epochs {
        let clock = Instant::now();
        let [loss, _] = pass(&mut net, &train, Some(epoch))?;
        seconds += clock.elapsed().as_secs_f64();
        let accuracy = pass(&mut net, &dev, None)?[1] * 100.0;
        println!("epoch {}: loss {loss:.4}, dev accuracy {accuracy:.2} %, {seconds:.1} s", epoch + 1);
        if accuracy > best {
            best = accuracy;
            tested = test.as_ref().map(|test| pass(&mut net, test, None)).transpose()?;
        }
    }
    println!("best dev accuracy {best:.2} %");
    tested.iter().for_each(|test| println!("test accuracy of that epoch {:.2} %", test[1] * 100.0));
    if options.contains_key("--json") {
        let speed = train.iter().map(|l| l.0.len() as f64).sum::<f64>() * epochs as f64 / seconds;
        print!(r#"{{"model":"first","dataset":{folder:?},"metric":"dev_accuracy","value":{best:.3},"#);
        println!(r#""train_seconds":{seconds:.3},"tokens_per_s":{speed:.0}}}"#);
    }
    Ok(())
}

fn main() -> ExitCode {
    let done = run(std::env::args().skip(1)).inspect_err(|error| eprintln!("error: {error}"));
    done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}

#[test]
fn the_loss_falls() -> unpadded::Result<()> {
    let data = (0..32).map(|i| ((0..i % 5).chain([i % 2]).collect(), i % 2)).collect();
    let mut net = network(5, 2, 1, 2)?;
    let mut losses = (0..30).map(|epoch| pass(&mut net, &data, Some(epoch)));
    let (first, last) = (losses.next().transpose()?, losses.last().transpose()?);
    assert!(first.zip(last).is_some_and(|(first, last)| last[0] < first[0] / 2.0), "{first:?} {last:?}");
    Ok(())
}
