//! How fast does training run, end to end? `cargo bench --bench workloads -- W1 [--threads 2] [--steps N]`
//!
//! W1: embedding 30000×128 → LSTM(256) → last step → linear 2 → softmax cross-entropy, Adam 1e-3 with sparse embedding
//! gradients, batches of 64 sequences in file order. W7: the same with GRU(256). The data: `w1.txt` (ids, a sequence a
//! line) and `w1.label` in the folder `UNPADDED_BENCH_DATA`, or numbers of the same distribution. After 3 steps to warm
//! up it takes one epoch (or `--steps`), at least 20 steps, and prints one line of JSON.
use std::process::ExitCode;
use std::time::Instant;

use ndarray::Array1;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, Gru, Lstm};
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::{Builder, DType, Variable, kernels};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;
type Data = Vec<(Vec<i64>, i64)>;
const VOCABULARY: usize = 30_000;
const BATCH: usize = 64;

fn read(folder: &str) -> Outcome<Data> {
    let file = |name| {
        let path = format!("{folder}/{name}");
        std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))
    };
    let (text, labels) = (file("w1.txt")?, file("w1.label")?);
    let number = |word: &str| word.parse::<i64>().map_err(|_| format!("w1: expected a number, got `{word}`"));
    let example = |(line, label): (&str, &str)| {
        Ok((line.split_whitespace().map(number).collect::<Result<_, _>>()?, number(label.trim())?))
    };
    text.lines().zip(labels.lines()).map(example).collect()
}

/// 2048 sequences, lengths lognormal (median 120, sigma 0.7) in 5..600, ids by Zipf's law with exponent 1.1; the label
/// is the sign of a random linear function of the words.
fn generate() -> Data {
    let mut drawn = 0;
    let mut uniform = || {
        drawn += 1;
        kernels::uniform01::<f64>(101, [drawn, 0, 0, 0])
    };
    let mut sum = 0.0;
    let cumulative: Vec<f64> = (1..=VOCABULARY)
        .map(|rank| {
            sum += (rank as f64).powf(-1.1);
            sum
        })
        .collect();
    let weights: Vec<f64> = (0..VOCABULARY).map(|_| uniform() - 0.5).collect();
    (0..2048)
        .map(|_| {
            let normal = (-2.0 * (1.0 - uniform()).ln()).sqrt() * (std::f64::consts::TAU * uniform()).cos();
            let length = (120.0 * (0.7 * normal).exp()).round().clamp(5.0, 600.0) as usize;
            let id = |u: f64| cumulative.partition_point(|&c| c < u * sum).min(VOCABULARY - 1);
            let ids: Vec<usize> = (0..length).map(|_| id(uniform())).collect();
            let score: f64 = ids.iter().map(|&i| weights[i]).sum();
            (ids.into_iter().map(|i| i as i64).collect(), i64::from(score > 0.0))
        })
        .collect()
}

/// The most memory that this process ever had, in MB.
fn peak_rss() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|l| l.split_whitespace().next()).and_then(|n| n.parse::<f64>().ok());
    kib.unwrap_or(0.0) / 1024.0
}

fn run() -> Outcome<()> {
    let (mut workload, mut threads, mut steps) = (None, 2, None);
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench");
    while let Some(word) = words.next() {
        let mut number = || -> Outcome<usize> {
            let value = words.next().unwrap_or_default();
            value.parse().map_err(|_| format!("{word}: expected a number, got `{value}`").into())
        };
        match word.as_str() {
            "W1" | "W7" => workload = Some(word),
            "--threads" => threads = number()?,
            "--steps" => steps = Some(number()?.max(1)),
            _ => return Err(format!("expected W1, W7, --threads or --steps, got `{word}`").into()),
        }
    }
    let Some(workload) = workload else {
        println!("usage: cargo bench --bench workloads -- W1|W7 [--threads N] [--steps N]");
        return Ok(());
    };
    let data =
        std::env::var("UNPADDED_BENCH_DATA").map_or_else(|_| Ok(generate()), |folder| read(&folder))?;

    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1)?;
    let label = net.feed("label", DType::I64, &[], 0)?;
    let x = net.embedding(words, Embedding::new(VOCABULARY, 128).sparse())?;
    let h = if workload == "W1" { net.lstm(x, Lstm::new(256))? } else { net.gru(x, Gru::new(256))? };
    let logits = net.linear(net.sequence_pool(h, Pool::Last)?, 2)?;
    let loss = net.mean(net.cross_entropy(logits, label)?)?;
    let registry = net.registry();
    let mut program = net.finish();
    Adam::new(1e-3).lazy().minimize(&mut program, &registry, loss.id())?;
    let mut scope = Scope::of(&program)?;
    let mut executor = Executor::new(&program, &registry, &[loss.id()], threads)?;

    let batches: unpadded::Result<Vec<_>> = data
        .chunks(BATCH)
        .map(|batch| {
            let ids: Vec<Vec<i64>> = batch.iter().map(|e| e.0.clone()).collect();
            let labels: Array1<i64> = batch.iter().map(|e| e.1).collect();
            Ok((Variable::from_sequences(&ids)?, Variable::dense(labels)))
        })
        .collect();
    let batches = batches?;
    let mut step = 0;
    let mut train = |(w, l): &(Variable, Variable)| -> unpadded::Result<(f64, f64, f64)> {
        let clock = Instant::now();
        executor.run(&mut scope, &Run::train(&[(words.id(), w), (label.id(), l)], step))?;
        step += 1;
        Ok((clock.elapsed().as_secs_f64(), w.rows() as f64, executor.scalar(loss)?))
    };
    batches.iter().cycle().take(3).try_for_each(|batch| train(batch).map(drop))?;
    let steps = steps.unwrap_or(batches.len().max(20));
    let timed: unpadded::Result<Vec<_>> = batches.iter().cycle().take(steps).map(&mut train).collect();
    let timed = timed?;
    if timed.is_empty() {
        return Err("expected sequences, got none".into());
    }

    let sorted = |value: fn(&(f64, f64, f64)) -> f64| {
        let mut values: Vec<f64> = timed.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let (times, rates) = (sorted(|s| s.0 * 1e3), sorted(|s| s.1 / s.0));
    let total = timed.iter().map(|s| s.1).sum::<f64>() / timed.iter().map(|s| s.0).sum::<f64>();
    let (version, middle) = (env!("CARGO_PKG_VERSION"), timed.len() / 2);
    print!(r#"{{"peer":"unpadded","version":"{version}","workload":"{workload}","mode":"unpadded","#);
    print!(r#""threads":{threads},"tokens_per_s":{:.0},"tokens_per_s_total":{total:.0},"#, rates[middle]);
    print!(r#""step_ms_median":{:.2},"step_ms_min":{:.2},"#, times[middle], times[0]);
    print!(r#""peak_rss_mb":{:.0},"padding_ratio":1.0,"#, peak_rss());
    println!(r#""final_loss":{:.4},"steps":{}}}"#, timed[timed.len() - 1].2, timed.len());
    Ok(())
}

fn main() -> ExitCode {
    let done = run().inspect_err(|error| eprintln!("error: {error}"));
    done.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS)
}
