//! A long sequence is never in memory as a whole, except in feeds and outputs, and its memory is given back.

use std::sync::Barrier;
use std::thread;

use unpadded::layers::{Crf, Embedding, Lstm};
use unpadded::ops::Pool;
use unpadded::{Builder, DType, Variable};

use crate::peak_memory;
use crate::predicted::predictor;

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
    let predictor = predictor(net, &[("read", read), ("h", h)]).threads(1).most_rows(most_rows);
    let words = Variable::from_sequence((0..rows as i64).map(|i| i * 7 % 50).collect()).unwrap();
    let outputs: &[&str] = if of_rows { &["read", "h"] } else { &["read"] };
    peak_memory::of(|| predictor.run(&[("words", &words)], outputs).unwrap()).0
}

#[test]
fn a_long_sequence_takes_what_a_window_takes() {
    own_process!();
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

/// Bytes that a predictor holds after a large batch for each output of `large`, all at the same time, and `small` small
/// batches for the tags. With `beside`, further small batches run until the large ones have ended, so that most often one of
/// them ends last.
fn held(large: &[&str], beside: bool, small: usize) -> usize {
    /// A block that is larger than all that the predictor allocates, so that the peak is this block beside what is held.
    const BLOCK: usize = 1 << 28;
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let h = words.embedding(Embedding::new(50, WIDTH)).lstm(WIDTH);
    let h = net.lstm(h, Lstm::new(WIDTH).backwards());
    let scores = h.linear(5);
    let tags = net.layer(Crf::new()).of(scores);
    let predictor = predictor(net, &[("tags", tags), ("scores", scores)]).threads(1);
    let batch = |rows: usize| Variable::from_sequence(vec![1i64; rows]).unwrap();
    let (many, little) = (batch(2 * ROWS), batch(5));
    let run = |batch: &Variable, output: &str| predictor.run(&[("words", batch)], &[output]).unwrap();
    run(&little, "tags");
    // The second batch divides the program, and keeps the rows of the words.
    let tags = run(&little, "tags");
    let (peak, _) = peak_memory::of(|| {
        let begin = Barrier::new(large.len());
        let one = |output: &str| {
            begin.wait();
            run(&many, output);
        };
        let one = &one;
        thread::scope(|scope| {
            let threads: Vec<_> = large.iter().map(|output| scope.spawn(move || one(output))).collect();
            while beside && !threads.iter().all(|thread| thread.is_finished()) {
                run(&little, "tags");
            }
        });
        for _ in 0..small {
            assert_eq!(run(&little, "tags"), tags);
        }
        std::hint::black_box(vec![0u8; BLOCK])
    });
    peak - BLOCK
}

#[test]
fn the_memory_of_a_large_batch_is_given_back() {
    own_process!();
    let kept = held(&["tags"], false, 1);
    assert!(kept > 2_000_000, "the count can be believed: {kept}");
    for (large, beside) in
        [(&["tags"][..], false), (&["tags", "tags"], false), (&["tags"], true), (&["scores"], false)]
    {
        let left = held(large, beside, 20);
        println!("{kept} bytes after a large batch, {left} after 20 small ones: {large:?}, {beside}");
        assert!(left < kept / 10, "{left} of {kept}: {large:?}, {beside}");
    }
}
