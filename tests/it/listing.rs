//! The compiled program as text: the parts of step loops, the reasons, the buffers.

use unpadded::executor::Executor;
use unpadded::layers::Rnn;
use unpadded::ops::Pool;
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::{Builder, DType, Lod, Var, Variable, ops};

use crate::models;

fn listing(build: impl FnOnce(&Builder) -> Var) -> String {
    let net = Builder::new();
    let loss = build(&net);
    let mut program = net.finish().unwrap();
    Sgd::new(0.1).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let executor = Executor::new(&program, &ops::catalogue(), &[loss.id()], 1).unwrap();
    executor.listing().to_string()
}

/// Checks that the listing contains the lines in this order, apart from the numbers of instructions and of buffers and the lines
/// of this file.
#[track_caller]
fn stands(listing: &str, expected: &str) {
    let plain = |line: &str| {
        let line = line.trim();
        let line = line.split_once("] ").filter(|_| line.starts_with('[')).map_or(line, |(_, rest)| rest);
        let end = line.find("; at tests").or_else(|| line.find("at tests"));
        let mut words = line[..end.unwrap_or(line.len())].split("buffer ");
        let first = words.next().unwrap_or_default().to_owned();
        let digits = |c: char| c.is_ascii_digit();
        words.fold(first, |all, rest| all + "buffer _" + rest.trim_start_matches(digits))
    };
    let lines = |text: &str| text.lines().map(plain).filter(|l| !l.is_empty()).collect::<Vec<_>>();
    let (all, part) = (lines(listing), lines(expected));
    assert!(all.windows(part.len()).any(|window| window == part), "{expected}\nis not in\n{listing}");
}

#[test]
fn a_classifier() {
    let text = listing(|net| (models::TRAINED.build)(net).loss);
    stands(
        &text,
        "recurrent #2, block 1, over level 0
        gathered into step order: dropout -> buffer 3
        memory `memory`: the rows of `lstm_cell.h` that the step before wrote, at first zero
        memory `memory_2`: the rows of `lstm_cell.c` that the step before wrote, at first zero
        before the loop, over all steps at once
        linear #0 (dropout.step, lstm_0.weight_ih, lstm_0.bias) -> linear: f32[alive1, 256] in buffer 5
        no other step reaches it; prepared once from lstm_0.weight_ih, lstm_0.bias
        the loop, at every step, each thread its own sequences
        linear #1 (memory, lstm_0.weight_hh) -> linear_2: f32[alive1, 256] in buffer 5, added
        `memory` reaches it, and it reaches `lstm_cell.h`; prepared once from lstm_0.weight_hh",
    );
    stands(
        &text,
        "linear #2, backward (lstm_0.weight_hh, linear_2@grad) -> memory@grad: f32[alive1, 64] in buffer 5, the rows of the step before, added
        writes what the step passes on; prepared once from lstm_0.weight_hh
        after the loop, over all steps at once
        linear #2, backward (memory, linear_2@grad) -> lstm_0.weight_hh@grad: f32[64, 256] in buffer 25
        `add@grad` reaches it, and no step needs it",
    );
    stands(
        &text,
        "without a call
        linear@grad: is add@grad
        linear_2@grad: is add@grad
        dropout #15, backward (dropout@grad) -> embedding@grad: f32[rows0, 24] lod(0) in buffer 3
        on rows in the loop's order, without a copy
        reorder embedding@grad from loop order to batch order -> buffer 4
        an operator or a fetch needs the batch's order
        embedding #16, backward (words, embedding@grad) -> embedding_0.weight@grad: f32[500, 24] selected_rows in selected rows 0",
    );
    // One buffer, many variables: their sizes as functions of rows.
    stands(
        &text,
        "3 f32: dropout (96 B x rows0), lstm_cell.h.steps (256 B x rows0), dropout_2 (256 B x batch), \
         lstm_cell.h.steps@grad (256 B x rows0), lstm_cell.c@grad (256 B x rows0), dropout.step@grad (96 B x rows0)",
    );
    stands(&text, "7 f32: embedding_0.weight (48000 B, kept)");
}

#[test]
fn sums_and_gradients_lie_where_their_terms_and_values_do() {
    let text = listing(|net| (models::TRAINED.build)(net).loss);
    stands(
        &text,
        "without a call
        linear_2: added up in linear
        add: added up in linear",
    );
    assert!(text.contains("over add, which nothing else reads"), "{text}");
}

#[test]
fn columns_are_views() {
    let text = listing(|net| {
        let x = net.feed("x", DType::F32, &[3], 1);
        let h = net.recurrent(x, |step, x| {
            let before = step.memory(4);
            let both = step.add(step.linear(x, 8), step.linear(before, 8));
            let parts = step.split(both, [4, 4]);
            let next = step.mul(step.sigmoid(parts[0]), step.tanh(parts[1]));
            step.update(before, next);
            next
        });
        net.sum(h)
    });
    stands(
        &text,
        "without a call
        linear_2: added up in linear
        add: added up in linear
        split: columns 0..4 of linear
        split_2: columns 4..8 of linear",
    );
}

#[test]
fn first_and_last_states_have_a_line() {
    let text = listing(|net| {
        let x = net.feed("x", DType::F32, &[3], 1);
        let start = net.linear(net.sequence_pool(x, Pool::Mean), 4);
        let (_, last) = net.rnn_states(x, Rnn::new(4).initial(start));
        net.sum(last)
    });
    assert!(text.contains("the last row of each sequence: tanh -> buffer "), "{text}");
    assert!(text.contains("at the last row of each sequence: memory.last@grad into tanh@grad"), "{text}");
    assert!(text.contains("what the first step passes back: linear@grad -> buffer "), "{text}");
}

#[test]
fn rows_of_sequences() {
    let text = listing(|net| (models::STATIC_ROWS.build)(net).loss);
    stands(
        &text,
        "before the loop, once a sequence
        linear #0 (topic.static, linear_1.weight, linear_1.bias) -> linear_2: f32[alive1, 64] in buffer 7
        no other step reaches it; prepared once from linear_1.weight, linear_1.bias
        the loop, at every step, each thread its own sequences",
    );
    stands(
        &text,
        "add #2 (linear_3, linear_2) -> add: f32[alive1, 64] in buffer 9
        mixes rows of sequences with rows of steps",
    );
    stands(&text, "19 f32: topic.static (96 B x batch), linear_0.bias@grad (256 B)");
}

#[test]
fn a_loop_in_a_loop() {
    let text = listing(|net| (models::LOOP_IN_LOOP.build)(net).loss);
    stands(
        &text,
        "recurrent #2, block 2, over level 2
        `memory` reaches it, and it reaches `tanh`
        gathered into step order: dropout -> buffer 13
        memory `memory_2`: the rows of `lstm_cell.h` that the step before wrote, at first linear
        memory `memory_3`: the rows of `lstm_cell.c` that the step before wrote, at first memory
        before the loop, over all steps at once
        linear #0 (dropout.step, lstm_0.weight_ih, lstm_0.bias) -> linear_2: f32[alive2, 256] in buffer 14
        no other step reaches it; prepared once from lstm_0.weight_ih, lstm_0.bias
        the loop, at every step, each thread its own sequences",
    );
    stands(
        &text,
        "zero -> buffer 36
        the next loop adds to this gradient at every step",
    );
    assert!(text.contains("the loop, at every step, all sequences together"), "{text}");
}

#[test]
fn chains() {
    let text = listing(|net| {
        let x = net.feed("x", DType::F32, &[4], 1);
        let states = net.recurrent(x, |step, x_t| {
            let h_prev = step.memory(4);
            let gate = step.sigmoid(step.linear(x_t, 4));
            let h = step.add(step.mul(h_prev, gate), step.mul(gate, x_t));
            step.update(h_prev, h);
            step.tanh(step.square(h))
        });
        net.mean(net.sequence_pool(states, Pool::Last))
    });
    // As many as fit into half of a core's own cache.
    let rows = |bytes: usize| unpadded::kernels::cpu().chunk() / bytes;
    let (four, five) = (rows(64), rows(80));
    let expected = format!(
        "before the loop, over all steps at once
        these 3 calls in turn on every {four} rows
        linear #0 (x.step, linear_0.weight, linear_0.bias) -> linear: f32[alive1, 4] in buffer 1
        no other step reaches it; prepared once from linear_0.weight, linear_0.bias
        sigmoid #1 (linear) -> sigmoid: f32[alive1, 4] in buffer 6
        no other step reaches it
        mul #3 (sigmoid, x.step) -> mul_2: f32[alive1, 4] in buffer 2
        no other step reaches it
        the loop, at every step, each thread its own sequences
        these 2 calls in turn on every {five} rows
        mul #2 (memory, sigmoid) -> mul: f32[alive1, 4] in buffer 9",
    );
    stands(&text, &expected);
    // A sum over all rows is no part of it.
    let expected = format!(
        "after the loop, over all steps at once
        these 2 calls in turn on every {five} rows
        mul #3, backward (x.step, mul_2@grad) -> sigmoid@grad: f32[alive1, 4] in buffer 0, added
        `add@grad` reaches it, and no step needs it
        sigmoid #5, backward (sigmoid, sigmoid@grad) -> linear@grad: f32[alive1, 4] in buffer 9
        `add@grad` reaches it, and no step needs it
        linear #6, backward (x.step, linear@grad) -> linear_0.weight@grad: f32[4, 4] in buffer 13, linear_0.bias@grad: f32[4] in buffer 15",
    );
    stands(&text, &expected);
}

/// Values that only the steps of a loop use share buffers with values that only the instructions before or after the steps use.
#[test]
fn the_parts_of_a_loop_share_buffers() {
    let text = listing(|net| {
        let x = net.feed("x", DType::F32, &[8], 1).linear(8);
        x.lstm(16).sequence_pool(Pool::Last).linear(1).mean()
    });
    let (_, buffers) = text.split_once("buffers, with").unwrap();
    let of_hidden: Vec<&str> = buffers.lines().filter(|line| line.contains("(64 B x rows0)")).collect();
    // The states, the cells, the states' gradient in the batch's order, and then in the order of the steps. The cells' gradient
    // takes the place of the gradient in the batch's order; the states before each step are copied when the steps are over.
    assert_eq!(of_hidden.len(), 4, "{text}");
}

/// Weights that an update changes are packed again in every run, so calls with weights of equal shapes share the memory.
#[test]
fn layers_share_the_memory_of_packed_weights() {
    let packed = |layers: usize, trained: bool| {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[32], 1).linear(32);
        let loss = (0..layers).fold(x, |x, _| x.linear(32)).mean();
        let mut program = net.finish().unwrap();
        if trained {
            Sgd::new(0.1).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
        }
        let mut executor = Executor::new(&program, &ops::catalogue(), &[loss.id()], 1).unwrap();
        let rows =
            Variable::sequences(ndarray::Array2::<f32>::zeros((3, 32)), Lod::from_lengths1(&[3]).unwrap())
                .unwrap();
        let counts = executor.counts(&[(program.find("x").unwrap(), &rows)]).unwrap();
        executor.memory(&counts).packed
    };
    assert_eq!(packed(4, true), packed(1, true));
    assert_eq!(packed(4, false), 5 * packed(1, true));
}
