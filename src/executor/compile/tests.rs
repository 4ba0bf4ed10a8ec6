//! Tests each analysis alone, on programs of a few lines: compares the result, as text, with the expected text.

use super::build::{Analysis, build};
use super::text::Names;
use super::{blocks, layouts, lives, saved, schedule, slots, source, writers};
use crate::executor::rewrite::rewrite;
use crate::layers::{Linear, init};
use crate::operator::{BlockId, VarId};
use crate::ops::{Pool, catalogue};
use crate::program::{Builder, Program, Recurrence, Var, VarRole, backward};
use crate::tensor::DType;

#[derive(Debug)]
struct Analysed {
    saved: String,
    forward: String,
    backward: String,
    schedule: String,
    layouts: String,
    writers: String,
    slots: String,
    lives: String,
}

/// Analyses a program; the texts of blocks are of step block 1 and gradient block 2.
fn analysed(program: &Program, wanted: &[VarId]) -> Analysed {
    let registry = catalogue();
    let rewritten = rewrite(program, &registry, wanted, &[]).unwrap();
    let source = source::Source::new(&rewritten, &registry, wanted, &[]).unwrap();
    let saved = saved::saved(&source).unwrap();
    let blocks = blocks::blocks(&source, &saved).unwrap();
    let schedule = schedule::schedule(&source, &blocks).unwrap();
    let layouts = layouts::layouts(&source, &blocks, &schedule).unwrap();
    let writers = writers::writers(&source, &blocks, &schedule, &layouts).unwrap();
    let slots = slots::slots(&source, &blocks, &schedule, &layouts, &writers, wanted).unwrap();
    let found =
        Analysis { source: &source, blocks: &blocks, layouts: &layouts, writers: &writers, slots: &slots };
    let groups = build(&found, &schedule).unwrap();
    let kept: Vec<usize> = wanted.iter().filter_map(|&var| slots.slot_of(var)).collect();
    let lives = lives::lives(&groups, &slots, &kept);
    let names = Names(&source);
    Analysed {
        saved: names.saved(&saved),
        forward: names.forward(&blocks, BlockId(1)),
        backward: names.backward(&blocks, BlockId(2)),
        schedule: names.schedule(&schedule),
        layouts: names.layouts(&schedule, &layouts),
        writers: names.writers(&schedule, &writers),
        slots: names.slots(&slots),
        lives: names.lives(&slots, &lives),
    }
}

/// Returns a program, and the variables to fetch: its loss, and the gradients of parameters and watched feeds.
fn differentiated(build: impl Fn(&Builder) -> Var) -> (Program, Vec<VarId>) {
    let net = Builder::new();
    let loss = build(&net);
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    let gradients = backward::differentiate(&mut program, &registry, loss.id()).unwrap();
    let given = |role: VarRole| matches!(role, VarRole::Feed | VarRole::Parameter);
    let of = program.vars().filter(|(_, desc)| given(desc.role));
    let of = of.filter_map(|(var, _)| gradients.get(&var).copied());
    let wanted = [loss.id()].into_iter().chain(of).collect();
    (program, wanted)
}

/// Builds a recurrent network: a row of a sequence has 2 numbers, and the state has 3 numbers.
fn recurrent(net: &Builder) -> Var {
    let x = net.feed("x", DType::F32, &[2], 1);
    net.watch(x);
    let y = net.recurrent(x, |step, x| {
        let h = step.memory(3);
        let next = (x.linear(3) + h.linear(Linear::new(3).without_bias())).tanh();
        step.update(h, next);
        next.sigmoid()
    });
    y.mean()
}

/// Checks that a result, as text, has the expected lines.
#[track_caller]
fn assert_text(found: &str, expected: &[&str]) {
    let found: Vec<&str> = found.lines().collect();
    assert!(found == expected, "{found:#?}");
}

#[test]
fn saved_is_what_backward_operators_read() {
    let (program, wanted) = differentiated(recurrent);
    // A product reads its input and its weight; tanh and sigmoid read their outputs.
    let expected = "x.step, memory, linear_0.weight, linear_1.weight, tanh, sigmoid";
    assert_text(&analysed(&program, &wanted).saved, &[expected]);
    // If only the loss is fetched, no value is saved.
    assert_text(&analysed(&program, &wanted[..1]).saved, &[]);
}

#[test]
fn the_inputs_product_leaves_the_loop_and_the_states_is_added_to_it() {
    let (program, wanted) = differentiated(recurrent);
    assert_text(
        &analysed(&program, &wanted).forward,
        &[
            "Before linear 1.0: no step reaches it",
            "Body linear 1.1: between memory and tanh",
            "Body tanh 1.3: between memory and tanh",
            "After sigmoid 1.4: behind memory",
            "linear_2: column 0 of linear",
            "add: column 0 of linear",
            "linear: all steps of block 1",
            "tanh: all steps of block 1",
            "sigmoid: all steps of block 1",
        ],
    );
}

#[test]
fn gradients_of_weights_leave_the_loop() {
    let (program, wanted) = differentiated(recurrent);
    assert_text(
        &analysed(&program, &wanted).backward,
        &[
            "Before sigmoid' 2.0 [0]: no step reaches it",
            "Body tanh' 2.1 [0]: between tanh@grad and memory@grad",
            "Body linear' 2.3 [0]: writes what the step passes on",
            "After linear' 2.3 [1]: behind tanh@grad",
            "After linear' 2.4 [0]: behind tanh@grad",
            "After linear' 2.4 [1]: behind tanh@grad",
            "After linear' 2.4 [2]: behind tanh@grad",
            "linear@grad: is add@grad",
            "linear_2@grad: is add@grad",
            "sigmoid@grad: all steps of block 1",
            "tanh@grad: all steps of block 1",
            "add@grad: all steps of block 1",
            "x.step@grad: all steps of block 1",
        ],
    );
}

#[test]
fn the_schedule_has_each_call_with_what_it_reads_and_writes() {
    let (program, wanted) = differentiated(recurrent);
    assert_text(
        &analysed(&program, &wanted).schedule,
        &[
            "recurrent 0.0",
            "  before",
            "    linear 1.0(x.step, linear_0.weight, linear_0.bias) -> linear",
            "  at every step",
            "    linear 1.1(memory, linear_1.weight) -> linear_2",
            "    tanh 1.3(add) -> tanh",
            "  after",
            "    sigmoid 1.4(tanh) -> sigmoid",
            "mean 0.1(sigmoid.steps) -> mean",
            "fill_like 0.2(mean) -> mean@grad",
            "mean' 0.3(mean@grad) -> sigmoid.steps@grad",
            "recurrent' 0.4",
            "  before",
            "    sigmoid' 2.0(sigmoid, sigmoid@grad) -> tanh@grad",
            "  at every step",
            "    tanh' 2.1(tanh, tanh@grad) -> add@grad",
            "    linear' 2.3(linear_1.weight, linear_2@grad) -> memory@grad",
            "  after",
            "    linear' 2.3(memory, linear_2@grad) -> linear_1.weight@grad",
            "    linear' 2.4(linear_0.weight, linear@grad) -> x.step@grad",
            "    linear' 2.4(x.step, linear@grad) -> linear_0.weight@grad, linear_0.bias@grad",
        ],
    );
}

#[test]
fn gradients_between_loops_stay_in_step_major_order() {
    let (program, wanted) = differentiated(|net| {
        let x = net.feed("x", DType::F32, &[2], 1);
        net.watch(x);
        let y = x.tanh().lstm(2).tanh().dropout(0.5).lstm(2);
        (y * y).mean()
    });
    let found = analysed(&program, &wanted);
    assert_text(
        &found.layouts,
        &[
            "dropout@grad: left as dropout.step@grad lies",
            "dropout' 0.11: as in block 2",
            "tanh@grad: left as tanh.step@grad lies",
        ],
    );
    // The two backward calls of `tanh` read outputs of forward calls, which are in the batch's order. Both gradients
    // are therefore copied into the batch's order.
    let copied: Vec<&str> = found.slots.lines().filter(|line| line.contains("copied")).collect();
    assert_eq!(copied.len(), 2, "{copied:#?}");
}

#[test]
fn the_first_writes_a_gradient_and_all_others_add() {
    let (program, wanted) = differentiated(|net| {
        let x = net.feed("x", DType::F32, &[2], 0);
        let w = net.parameter("w", DType::F32, &[2, 2], init::constant(1.0));
        let y = net.product(x, w, None);
        let z = net.product(y, w, None);
        (z * z + y).sum()
    });
    assert_text(
        &analysed(&program, &wanted).writers,
        &[
            "add@grad: written by sum' 0.6",
            "mul@grad: written by add' 0.7",
            "linear@grad: written by add' 0.7",
            "linear_2@grad: written by mul' 0.8",
            "linear_2@grad: added by mul' 0.8",
            "linear@grad: added by linear' 0.9",
            "w@grad: written by linear' 0.9",
            "w@grad: added by linear' 0.10",
        ],
    );
}

#[test]
fn what_a_loop_in_a_loop_adds_to_is_zeroed_before() {
    let (program, wanted) = differentiated(|net| {
        let x = net.feed("x", DType::F32, &[2], 2);
        let w = net.parameter("w", DType::F32, &[2, 2], init::constant(1.0));
        let words = net.recurrent_with(Recurrence { level: Some(0), reverse: false }, x, |outer, x| {
            let (state, half) = (outer.memory(2), 0.5 * w);
            let read = outer.recurrent(x + state.sequence_expand_as(x), |step, x| {
                let h = step.memory(2);
                let next = (x * step.product(h, w, None) + step.product(h, half, None)).tanh();
                step.update(h, next);
                next
            });
            let next = read.sequence_pool(Pool::Last) + state;
            outer.update(state, next);
            next
        });
        words.mean()
    });
    // The gradient of `half` belongs to the outer block, so it is set to zero at each run of this block. The gradient
    // of `w` belongs to the root block, so it is set to zero once.
    assert_text(
        &analysed(&program, &wanted).writers,
        &[
            "add_3.steps@grad: written by mean' 0.3",
            "w@grad: zeroed before recurrent' 0.4",
            "scale@grad: zeroed in recurrent' 0.4",
            "memory@grad: added by add' 3.0",
            "tanh.steps@grad: written by sequence_pool' 3.1",
            "add_2@grad: written by tanh' 4.0",
            "add.step@grad: written by mul' 4.2",
            "linear@grad: written by mul' 4.2",
            "linear.merged@grad: written by split' 4.3",
            "memory_2@grad: added by linear' 4.4",
            "w@grad: added by linear' 4.4",
            "scale@grad: added by linear' 4.4",
            "add@grad: written by recurrent' 3.2",
            "memory@grad: added by sequence_expand_as' 3.4",
            "w@grad: added by scale' 3.5",
        ],
    );
}

#[test]
fn slots_and_how_long_they_live() {
    let (program, wanted) = differentiated(recurrent);
    let found = analysed(&program, &wanted);
    assert_text(
        &found.slots,
        &[
            "x: in the batch's order",
            "x.step: all steps of block 1",
            "linear: all steps of block 1",
            "tanh: all steps of block 1",
            "sigmoid: all steps of block 1",
            "tanh: one step of block 1",
            "linear_0.weight: in the batch's order, kept",
            "linear_0.bias: in the batch's order, kept",
            "linear_1.weight: in the batch's order, kept",
            "sigmoid.steps: in the batch's order",
            "mean: in the batch's order",
            "mean@grad: in the batch's order",
            "sigmoid.steps@grad: in the batch's order",
            "sigmoid@grad: all steps of block 1",
            "tanh@grad: all steps of block 1",
            "add@grad: all steps of block 1",
            "x.step@grad: all steps of block 1",
            "tanh: all steps of block 1",
            "tanh@grad: one step of block 1",
            "linear_1.weight@grad: in the batch's order",
            "linear_0.weight@grad: in the batch's order",
            "linear_0.bias@grad: in the batch's order",
            "x@grad: in the batch's order",
        ],
    );
    assert_text(
        &found.lives,
        &[
            "x: 0 to 1",
            "x.step: 1 to 5",
            "linear: 1 to 1",
            "tanh: 1 to 5",
            "sigmoid: 1 to 5",
            "tanh: 1 to 5",
            "linear_0.weight: 1 to 5",
            "linear_0.bias: 1 to 1",
            "linear_1.weight: 1 to 5",
            "sigmoid.steps: 1 to 2",
            "mean: 2 to the end",
            "mean@grad: 3 to 4",
            "sigmoid.steps@grad: 4 to 5",
            "sigmoid@grad: 5 to 5",
            "tanh@grad: 5 to 5",
            "add@grad: 5 to 5",
            "x.step@grad: 5 to 5",
            "tanh: 5 to 5",
            "tanh@grad: 5 to 5",
            "linear_1.weight@grad: 5 to the end",
            "linear_0.weight@grad: 5 to the end",
            "linear_0.bias@grad: 5 to the end",
            "x@grad: 5 to the end",
        ],
    );
}
