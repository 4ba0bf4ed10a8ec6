//! `conv`: a convolution of width 5 over sequences of 10 to 500 rows, forward and backward.

use ndarray::Array2;
use unpadded::layers::{Conv, init};
use unpadded::optimizer::Sgd;
use unpadded::{Builder, DType, Lod, Variable, kernels};

use crate::data::Batch;
use crate::models::Model;
use crate::{Bench, Outcome, Stage};

const CHANNELS: usize = 256;
const BATCH: usize = 32;
const BATCHES: usize = 8;

pub(crate) fn run(threads: usize, steps: Option<usize>) -> Outcome<()> {
    // A parameter is added to the input, so that the input's gradient is computed as in the middle of a network.
    let model = |net: &Builder| {
        let x = net.feed("x", DType::F32, &[CHANNELS], 1);
        let start = net.parameter("start", DType::F32, &[CHANNELS], init::zeros());
        let loss = (x + start).conv(Conv::new(5, CHANNELS)).sum();
        Model { feeds: vec![x], loss }
    };
    let mut bench = Bench::new(model, &Sgd::new(0.0), threads)?;
    let batches = (0..BATCHES as u32).map(batch).collect::<Outcome<Vec<_>>>()?;
    let timed = bench.measure(&batches, steps.unwrap_or(30), Stage::Gradients)?;
    println!("{}", timed.json_of("conv", "unpadded", threads, &format!(r#","channels":{CHANNELS}"#)));
    Ok(())
}

/// Sequences of 10 to 500 rows, and how many rows they are.
fn batch(number: u32) -> Outcome<Batch> {
    let uniform = |row: u32, column: u32| kernels::random::uniform01::<f64>(7, [row, column, number, 0]);
    let lengths: Vec<usize> =
        (0..BATCH as u32).map(|i| 10 + (uniform(i, u32::MAX) * 491.0) as usize).collect();
    let lod = Lod::from_lengths1(&lengths)?;
    let rows = lod.rows();
    let x = Array2::from_shape_fn((rows, CHANNELS), |(i, j)| uniform(i as u32, j as u32) as f32 - 0.5);
    Ok((vec![Variable::sequences(x, lod)?], rows))
}
