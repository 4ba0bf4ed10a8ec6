//! Tests each analysis alone, on programs of a few lines: compares the result, as text, with a snapshot.

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
    let rewritten = rewrite(program.clone(), &registry, wanted, &[]).unwrap();
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
    let leaves = program.vars().filter(|(_, desc)| given(desc.role));
    let leaves = leaves.filter_map(|(var, _)| gradients.get(&var).copied());
    let wanted = [loss.id()].into_iter().chain(leaves).collect();
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

#[test]
fn saved_is_what_backward_operators_read() {
    let (program, wanted) = differentiated(recurrent);
    // A product reads its input and its weight; tanh and sigmoid read their outputs.
    insta::assert_snapshot!(analysed(&program, &wanted).saved);
    // If only the loss is fetched, no value is saved.
    assert_eq!(analysed(&program, &wanted[..1]).saved, "");
}

#[test]
fn the_inputs_product_leaves_the_loop_and_the_states_is_added_to_it() {
    let (program, wanted) = differentiated(recurrent);
    insta::assert_snapshot!(analysed(&program, &wanted).forward);
}

#[test]
fn gradients_of_weights_leave_the_loop() {
    let (program, wanted) = differentiated(recurrent);
    insta::assert_snapshot!(analysed(&program, &wanted).backward);
}

#[test]
fn the_schedule_has_each_call_with_what_it_reads_and_writes() {
    let (program, wanted) = differentiated(recurrent);
    insta::assert_snapshot!(analysed(&program, &wanted).schedule);
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
    insta::assert_snapshot!(found.layouts);
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
    insta::assert_snapshot!(analysed(&program, &wanted).writers);
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
    insta::assert_snapshot!(analysed(&program, &wanted).writers);
}

#[test]
fn slots_and_how_long_they_live() {
    let (program, wanted) = differentiated(recurrent);
    let found = analysed(&program, &wanted);
    insta::assert_snapshot!(found.slots);
    insta::assert_snapshot!(found.lives);
}
