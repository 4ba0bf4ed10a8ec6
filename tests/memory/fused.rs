//! The logits of many classes are never in memory as a whole.

use unpadded::executor::{Executor, Run, Scope};
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::program::VarId;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Variable, ops};

use crate::peak_memory;

const CLASSES: usize = 20_000;
const ROWS: usize = 1600;
const WIDTH: usize = 4;
/// Bytes of the logits, of which there would be two arrays: themselves and their gradient.
const LOGITS: usize = ROWS * CLASSES * 4;

/// Bytes at the peak of compiling and of one training step; with the logits fetched, nothing can be fused.
fn peak(fetch_logits: bool) -> usize {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[WIDTH], 1);
    let labels = net.feed_like("labels", DType::I64, &[], x);
    let logits = net.linear(x, CLASSES);
    let loss = net.mean(net.cross_entropy(logits, labels));
    let mut program = net.finish().unwrap();
    Sgd::new(0.1).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let lod = Some(Lod::from_lengths1(&[ROWS / 4; 4]).unwrap());
    let rows: Vec<f32> = (0..ROWS * WIDTH).map(|i| (i as f32).sin()).collect();
    let ids: Vec<i64> = (0..ROWS).map(|i| (i * 7919 % CLASSES) as i64).collect();
    let rows = Variable::new(Dense::from_vec(&[ROWS, WIDTH], rows).unwrap(), lod.clone()).unwrap();
    let ids = Variable::new(Dense::from_vec(&[ROWS], ids).unwrap(), lod).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let mut fetch: Vec<VarId> = vec![loss.id()];
    fetch.extend(fetch_logits.then_some(logits.id()));

    let (most, ()) = peak_memory::of(|| {
        let mut executor = Executor::new(&program, &ops::catalogue(), &fetch, 2).unwrap();
        executor.run(&mut scope, &Run::train(&[(x.id(), &rows), (labels.id(), &ids)], 0)).unwrap();
        assert!(executor.scalar(loss).unwrap().is_finite());
    });
    most
}

#[test]
fn a_training_step_holds_a_part_of_the_logits() {
    own_process!();
    let (fused, whole) = (peak(false), peak(true));
    println!("{fused} bytes fused, {whole} bytes with the logits as a whole, which are {LOGITS}");
    assert!(whole > LOGITS, "the count can be believed: {whole}");
    assert!(fused < LOGITS / 4, "{fused} of {LOGITS}");
}
