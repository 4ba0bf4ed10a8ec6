//! A long sequence is never in memory as a whole, except in feeds and outputs.
//!
//! A binary of its own, because its allocator counts.

#![allow(clippy::unwrap_used)]

#[path = "it/peak_memory.rs"]
mod peak_memory;

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::Scope;
use unpadded::layers::{Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::predict::Predictor;
use unpadded::{Builder, DType, Variable, ops};

const WIDTH: usize = 16;
const ROWS: usize = 6_000;

/// Bytes at the peak of predicting for one sequence, beside the sequence; `of_rows` asks for a value of each row.
fn peak(rows: usize, most_rows: usize, of_rows: bool) -> usize {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let x = net.dropout(net.embedding(words, Embedding::new(50, WIDTH)), 0.5);
    let h = net.lstm(net.lstm(x, Lstm::new(WIDTH)), Lstm::new(WIDTH));
    let (last, mean) = (net.sequence_pool(h, Pool::Last), net.sequence_pool(h, Pool::Mean));
    let back = net.lstm(x, Lstm::new(WIDTH).backwards());
    let first = net.sequence_pool(back, Pool::First);
    let read = net.linear(net.concat(&[last, mean, first]), 3);
    let named = [("read", read), ("h", h)].map(|(name, var)| (name.to_owned(), net.name_of(var)));
    let program = net.finish().unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let kept = program.vars().filter(|(_, desc)| desc.persistable);
    let tensors = kept.map(|(_, desc)| (desc.name.clone(), scope.value(&desc.name).unwrap())).collect();
    let mut checkpoint = Checkpoint::of(program, named);
    checkpoint.tensors = tensors;
    let predictor = Predictor::new(checkpoint, &ops::catalogue()).unwrap();
    let predictor = predictor.threads(1).most_rows(most_rows);
    let words = Variable::from_sequence((0..rows as i64).map(|i| i * 7 % 50).collect()).unwrap();
    let outputs: &[&str] = if of_rows { &["read", "h"] } else { &["read"] };
    peak_memory::of(|| predictor.run(&[("words", &words)], outputs).unwrap()).0
}

#[test]
fn a_long_sequence_takes_what_a_window_takes() {
    const WINDOW: usize = 200;
    let (whole, short) = (peak(ROWS, usize::MAX, false), peak(2 * WINDOW, WINDOW, false));
    let (long, with_rows) = (peak(ROWS, WINDOW, false), peak(ROWS, WINDOW, true));
    let asked_for = ROWS * WIDTH * 4;
    println!(
        "{whole} bytes whole, {long} in windows, {short} of a short one, {with_rows} with {asked_for} of its rows"
    );
    assert!(whole > 5 * ROWS * WIDTH * 4, "the count can be believed: {whole}");
    assert!(long < short + short / 10, "{long} of a long sequence, {short} of a short one");
    assert!(with_rows < short + short / 2 + asked_for, "{with_rows}, of which {asked_for} are asked for");
}
