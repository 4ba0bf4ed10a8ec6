//! `crf` and `ctc`: the cost of tagging and of aligning labels, forward and backward.
//!
//! `benches/peers/crf.py` and `benches/peers/ctc.py` compute the same losses from the same numbers: the printed losses are equal.

use ndarray::{Array1, Array2};
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::init;
use unpadded::program::backward;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Var, Variable};

use crate::quiet::{Probe, Step};
use crate::{Outcome, memory, quiet};

const TAGS: usize = 45;
const SENTENCES: usize = 64;

const CLASSES: usize = 40;
const UTTERANCES: usize = 32;
const FRAMES: usize = 200;

/// A chain of 45 tags over 64 sequences of 5 to 100 rows: the gradients of emissions and transitions.
pub(crate) fn crf(threads: usize, steps: usize) -> Outcome<()> {
    let net = Builder::new();
    let emissions = net.feed("emissions", DType::F32, &[TAGS], 1);
    let tags = net.feed_like("tags", DType::I64, &[], emissions);
    net.watch(emissions);
    let transitions = net.parameter("transitions", DType::F32, &[TAGS + 2, TAGS], init::zeros());
    let loss = emissions.linear_chain_crf(transitions, tags, &[]).sum();

    let lod = Lod::from_lengths1(&spread(SENTENCES, 29, 5, 100))?;
    let rows = lod.rows();
    let tag = Array1::from_shape_fn(rows, |row| ((row * row + row / 3) % TAGS) as i64);
    let fed = [
        (emissions, Variable::sequences(numbers(rows, TAGS, 1, 2.0), lod.clone())?),
        (tags, Variable::new(Dense::from(tag), Some(lod))?),
    ];
    let start = [("transitions", numbers(TAGS + 2, TAGS, 2, 1.0))];
    measure("crf", (net, loss, &[emissions, transitions]), (&fed, &start), (rows, threads, steps))
}

/// 40 classes, the blank among them, over 32 sequences of 200 frames with 20 to 40 labels: the gradient of the logits.
pub(crate) fn ctc(threads: usize, steps: usize) -> Outcome<()> {
    let net = Builder::new();
    let logits = net.feed("logits", DType::F32, &[CLASSES], 1);
    let labels = net.feed("labels", DType::I64, &[], 1);
    net.watch(logits);
    let loss = logits.ctc_loss(labels, 0, false).sum();

    let lod = Lod::from_lengths1(&[FRAMES; UTTERANCES])?;
    let rows = lod.rows();
    let label = |i: usize, j: usize| (1 + (17 * i + 7 * j + j * j) % (CLASSES - 1)) as i64;
    let lengths = spread(UTTERANCES, 11, 20, 40);
    let targets: Vec<Vec<i64>> =
        lengths.iter().zip(0..).map(|(&n, i)| (0..n).map(|j| label(i, j)).collect()).collect();
    let fed = [
        (logits, Variable::sequences(numbers(rows, CLASSES, 3, 2.0), lod)?),
        (labels, Variable::from_sequences(&targets)?),
    ];
    measure("ctc", (net, loss, &[logits]), (&fed, &[]), (rows, threads, steps))
}

/// Lengths from `least` to `most`, evenly spread, in an order without a pattern.
fn spread(count: usize, stride: usize, least: usize, most: usize) -> Vec<usize> {
    (0..count).map(|i| least + (most - least) * (i * stride % count) / (count - 1)).collect()
}

/// Numbers between -scale and scale, mixed from their places.
fn numbers(rows: usize, width: usize, salt: u32, scale: f32) -> Array2<f32> {
    Array2::from_shape_fn((rows, width), |(i, j)| {
        let mixed =
            ((i * width + j) as u32).wrapping_mul(2_654_435_761).wrapping_add(salt.wrapping_mul(40_503));
        let mixed = (mixed ^ (mixed >> 15)).wrapping_mul(2_246_822_519);
        ((f64::from(mixed ^ (mixed >> 13)) / f64::from(1u32 << 31) - 1.0) as f32) * scale
    })
}

/// Parameters by name, with their initial values.
type Start<'a> = &'a [(&'a str, Array2<f32>)];

/// Prints the line of one workload: its loss, with the gradients of these variables, of values fed and parameters set.
fn measure(
    workload: &str,
    (net, loss, wanted): (Builder, Var, &[Var]),
    (fed, start): (&[(Var, Variable)], Start<'_>),
    (rows, threads, steps): (usize, usize, usize),
) -> Outcome<()> {
    let (registry, mut program) = (net.registry(), net.finish()?);
    let gradients = backward::differentiate(&mut program, &registry, loss.id())?;
    let mut fetched = vec![loss.id()];
    for var in wanted {
        fetched.push(*gradients.get(&var.id()).ok_or("expected a gradient, got none")?);
    }
    let mut executor = Executor::new(&program, &registry, &fetched, threads)?;
    let mut scope = Scope::of(&program)?;
    for (name, values) in start {
        scope.set(name, Dense::from(values.clone()))?;
    }
    let feeds: Vec<_> = fed.iter().map(|(var, value)| (var.id(), value)).collect();
    let before = memory::peak_rss_mb();
    let (mut probe, mut timed) = (Probe::new(threads), Vec::new());
    let run = Run::train(&feeds, 0).until(Stage::Gradients);
    for step in 0..steps + 3 {
        let one = Step::time(&mut probe, rows, || Ok(executor.run(&mut scope, &run)?))?;
        if step >= 3 {
            timed.push(one);
        }
    }
    let mut times: Vec<f64> = timed.iter().map(|step| step.seconds * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let peak = memory::peak_rss_mb();
    let grown = peak.zip(before).map_or("null".to_owned(), |(peak, before)| format!("{:.0}", peak - before));
    let peak = peak.map_or("null".to_owned(), |mb| format!("{mb:.0}"));
    println!(
        concat!(
            r#"{{"peer":"unpadded","version":"{}","workload":"{}","mode":"unpadded","threads":{},"rows":{},"#,
            r#""step_ms_median":{:.3},"step_ms_min":{:.3},"peak_rss_mb":{},"grown_mb":{},"loss":{:.3},"steps":{}{}}}"#
        ),
        env!("CARGO_PKG_VERSION"),
        workload,
        threads,
        rows,
        times[times.len() / 2],
        times[0],
        peak,
        grown,
        executor.scalar(loss)?,
        steps,
        quiet::fields(&timed)
    );
    Ok(())
}
