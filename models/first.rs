//! The small program: an LSTM reads lines of `text<TAB>label` and learns the label, without padding.
//! `cargo run --release --example first` trains on `datasets/reviews`. On data of your own:
//! `… first -- --train FILE --dev FILE [--test FILE] [--epochs 15] [--seed 1] [--threads 0] [--json]`
use std::collections::{BTreeSet, HashMap};
use std::{process::ExitCode, time::Instant};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::{Builder, DType, Var, Variable, kernels};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Lines = (String, Vec<(Vec<String>, i64)>); // a file's name, and the words and the label of each line
type Data = Vec<(Vec<i64>, i64)>; // the word ids and the class of each line
struct Net(Executor, Scope, [Var; 2], [Var; 2]); // words and label go in, loss and accuracy come out
const FLAGS: [&str; 7] = ["--train", "--dev", "--test", "--epochs", "--seed", "--threads", "--json"];
const TRAIN: (&str, &str) = ("datasets/reviews/train.tsv", include_str!("../datasets/reviews/train.tsv"));
const DEV: (&str, &str) = ("datasets/reviews/dev.tsv", include_str!("../datasets/reviews/dev.tsv"));

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
    let executor = Executor::new(&program, &registry, &[loss.id(), accuracy.id()], threads)?;
    Ok(Net(executor, Scope::of(&program)?, [words, label], [loss, accuracy]))
}

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
        let label = Variable::dense(batch.iter().map(|&i| data[i].1).collect::<ndarray::Array1<i64>>());
        let numbers: Vec<u64> = batch.iter().map(|&i| i as u64).collect();
        let feeds = [(feeds[0].id(), &words), (feeds[1].id(), &label)];
        let before = |epoch| epoch * data.len().div_ceil(32) as u64; // steps
        let run = epoch.map_or(Run::infer(&feeds), |e| Run::train(&feeds, before(e) + k));
        executor.run(scope, &run.numbers(&numbers))?;
        for (mean, &var) in means.iter_mut().zip(&*fetch) {
            *mean += executor.scalar(var)? * batch.len() as f64 / data.len() as f64;
        }
    }
    Ok(means)
}

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
    let line = |(i, (words, label)): (usize, &(Vec<String>, i64))| {
        let unseen = |_| format!("{name}:{}: expected a training label of {labels:?}, got {label}", i + 1);
        let ids = words.iter().map(|w| ids.get(w).copied().unwrap_or(0)).collect();
        Ok((ids, labels.binary_search(label).map_err(unseen)? as i64))
    };
    lines.iter().enumerate().map(line).collect()
}

fn run(mut words: impl Iterator<Item = String>) -> Outcome<()> {
    let mut options = HashMap::new();
    while let Some(flag) = words.next() {
        if !FLAGS.contains(&flag.as_str()) {
            return Err(format!("unknown flag `{flag}`: expected one of {}", FLAGS.join(", ")).into());
        }
        let given = if flag == "--json" { Some(String::new()) } else { words.next() };
        let value = given.filter(|v| !v.starts_with("--"));
        options.insert(flag.clone(), value.ok_or(format!("{flag}: expected a value after it"))?);
    }
    let number = |flag: &str, default: &str| {
        let text = options.get(flag).map_or(default, String::as_str);
        text.parse::<u64>().map_err(|_| format!("{flag}: expected a whole number, got `{text}`"))
    };
    let (seed, threads) = (number("--seed", "1")?, number("--threads", "0")?);
    let epochs = Some(number("--epochs", "15")?).filter(|&n| n > 0).ok_or("--epochs: expected 1 or more")?;
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
            (best, tested) = (accuracy, test.as_ref().map(|t| pass(&mut net, t, None)).transpose()?);
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
    let losses = (0..30).map(|epoch| pass(&mut net, &data, Some(epoch)));
    assert!(losses.collect::<unpadded::Result<Vec<_>>>().is_ok_and(|l| l[29][0] < l[0][0] / 2.0));
    Ok(())
}
