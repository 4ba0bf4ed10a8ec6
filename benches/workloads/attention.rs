//! `attention`: the operator alone, forward and backward, over ragged sequences.

use ndarray::Array2;
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::ops::DotAttention;
use unpadded::program::backward;
use unpadded::{Builder, DType, Lod, Variable};

use crate::quiet::{Probe, Step};
use crate::{Chosen, Outcome, memory, quiet};

const BATCH: usize = 32;
const WIDTH: usize = 512;
const HEADS: usize = 8;

/// Lengths of 10 to 500, evenly spread, in an order without a pattern.
pub(crate) fn lengths() -> Vec<usize> {
    (0..BATCH).map(|i| 10 + 490 * (i * 11 % BATCH) / (BATCH - 1)).collect()
}

/// Prints a line for all keys, one for causal attention.
pub(crate) fn run(threads: usize, steps: usize) -> Outcome<()> {
    for (mode, options) in
        [("full", DotAttention::heads(HEADS)), ("causal", DotAttention::heads(HEADS).causal())]
    {
        println!("{}", measure(mode, options, threads, steps)?);
    }
    Ok(())
}

fn measure(mode: &str, options: DotAttention, threads: usize, steps: usize) -> Outcome<String> {
    let net = Builder::new();
    let q = net.feed("q", DType::F32, &[WIDTH], 1);
    let [k, v] = ["k", "v"].map(|name| net.feed_like(name, DType::F32, &[WIDTH], q));
    let loss = q.dot_attention(k, v, options).sum();
    let (registry, mut program) = (net.registry(), net.finish()?);
    program.unit = Chosen::get().unit();
    // No parameter is trained: the gradients of the feeds are measured.
    let all: Vec<_> = program.vars().map(|(id, _)| id).collect();
    all.into_iter().for_each(|id| program.var_mut(id).stop_gradient = false);
    let gradients = backward::differentiate(&mut program, &registry, loss.id())?;
    let mut wanted = vec![loss.id()];
    for var in [q, k, v] {
        wanted.extend(gradients.get(&var.id()));
    }
    let mut executor = Executor::new(&program, &registry, &wanted, threads)?;
    let mut scope = Scope::of(&program)?;
    let lod = Lod::from_lengths1(&lengths())?;
    let numbers = |salt: usize| {
        let number = |(i, j): (usize, usize)| ((i * WIDTH + j) as f32 * 0.37 + salt as f32).sin();
        Variable::sequences(Array2::from_shape_fn((lod.rows(), WIDTH), number), lod.clone())
    };
    let fed = [numbers(0)?, numbers(1)?, numbers(2)?];
    let feeds: Vec<_> = [q, k, v].iter().map(|var| var.id()).zip(&fed).collect();
    let before = memory::peak_rss_mb();
    let (mut probe, mut timed) = (Probe::new(threads), Vec::new());
    let run = Run::train(&feeds, 0).until(Stage::Gradients);
    for step in 0..steps + 3 {
        let one = Step::time(&mut probe, lod.rows(), || Ok(executor.run(&mut scope, &run)?))?;
        if step >= 3 {
            timed.push(one);
        }
    }
    let mut times: Vec<f64> = timed.iter().map(|step| step.seconds * 1e3).collect();
    times.sort_by(f64::total_cmp);
    let peak = memory::peak_rss_mb();
    let grown = peak.zip(before).map_or("null".to_owned(), |(peak, before)| format!("{:.0}", peak - before));
    let peak = peak.map_or("null".to_owned(), |mb| format!("{mb:.0}"));
    Ok(format!(
        concat!(
            r#"{{"peer":"unpadded","workload":"attention","mode":"{}","precision":"{}","threads":{},"rows":{},"step_ms_median":{:.2},"#,
            r#""step_ms_min":{:.2},"peak_rss_mb":{},"grown_mb":{}{}}}"#
        ),
        mode,
        Chosen::get().name(),
        threads,
        lod.rows(),
        times[times.len() / 2],
        times[0],
        peak,
        grown,
        quiet::fields(&timed)
    ))
}
