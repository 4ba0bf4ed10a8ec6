//! Each analysis alone, on programs of a few lines: what it found, as text.

use super::build::{Found, build};
use super::text::Names;
use super::{blocks, layouts, lives, saved, schedule, slots, source, stores};
use crate::executor::rewrite::rewrite;
use crate::layers::{Linear, init};
use crate::ops::{Pool, catalogue};
use crate::program::{BlockId, Builder, Program, Var, VarId, backward};
use crate::tensor::DType;

/// What every analysis found.
#[derive(Debug)]
struct Analysed {
    saved: String,
    forward: String,
    backward: String,
    schedule: String,
    layouts: String,
    stores: String,
    slots: String,
    lives: String,
}

/// Analyses a program; the texts of blocks are of step block 1 and gradient block 2.
fn analysed(program: &Program, wanted: &[VarId]) -> Analysed {
    let registry = catalogue();
    let rewritten = rewrite(program, &registry, wanted).unwrap();
    let source = source::Source::new(&rewritten, &registry, wanted).unwrap();
    let saved = saved::saved(&source).unwrap();
    let blocks = blocks::blocks(&source, &saved).unwrap();
    let schedule = schedule::schedule(&source, &blocks).unwrap();
    let layouts = layouts::layouts(&source, &blocks, &schedule).unwrap();
    let stores = stores::stores(&source, &blocks, &schedule, &layouts).unwrap();
    let slots = slots::slots(&source, &blocks, &schedule, &layouts, &stores, wanted).unwrap();
    let found = Found { source: &source, blocks: &blocks, layouts: &layouts, stores: &stores, slots: &slots };
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
        stores: names.stores(&schedule, &stores),
        slots: names.slots(&slots),
        lives: names.lives(&slots, &lives),
    }
}

/// A program, and its loss and all gradients to be fetched.
fn differentiated(build: impl Fn(&Builder) -> Var) -> (Program, Vec<VarId>) {
    let net = Builder::new();
    let loss = build(&net);
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    let gradients = backward::differentiate(&mut program, &registry, loss.id()).unwrap();
    let of = program.vars().filter_map(|(var, _)| gradients.get(&var).copied());
    let wanted = [loss.id()].into_iter().chain(of).collect();
    (program, wanted)
}

/// A recurrent network over sequences of rows of 2 numbers, with a state of 3.
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

/// What was found, line by line.
#[track_caller]
fn assert_text(found: &str, expected: &[&str]) {
    let found: Vec<&str> = found.lines().collect();
    assert!(found == expected, "{found:#?}");
}

#[test]
fn saved_is_what_backward_operators_read() {
    let (program, wanted) = differentiated(recurrent);
    // A product reads its input for its weight's gradient; tanh and sigmoid read what they gave.
    assert_text(&analysed(&program, &wanted).saved, &[]);
    assert_text(&analysed(&program, &wanted[..1]).saved, &[]);
}

#[test]
fn the_inputs_product_leaves_the_loop_and_the_states_is_added_to_it() {
    let (program, wanted) = differentiated(recurrent);
    assert_text(&analysed(&program, &wanted).forward, &[]);
}

#[test]
fn gradients_of_weights_leave_the_loop() {
    let (program, wanted) = differentiated(recurrent);
    assert_text(&analysed(&program, &wanted).backward, &[]);
}

#[test]
fn the_schedule_has_each_call_with_what_it_reads_and_writes() {
    let (program, wanted) = differentiated(recurrent);
    assert_text(&analysed(&program, &wanted).schedule, &[]);
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
    assert_text(&found.layouts, &[]);
    // Only what is fetched is put into the batch's order.
    let copied: Vec<&str> = found.slots.lines().filter(|line| line.contains("copied")).collect();
    assert_text(&copied.join("\n"), &[]);
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
    assert_text(&analysed(&program, &wanted).stores, &[]);
}

#[test]
fn what_a_loop_in_a_loop_adds_to_is_zeroed_before() {
    let (program, wanted) = differentiated(|net| {
        let x = net.feed("x", DType::F32, &[2], 2);
        let w = net.parameter("w", DType::F32, &[2, 2], init::constant(1.0));
        let words = net.recurrent(x, |outer, x| {
            let state = outer.memory(2);
            let read = outer.recurrent(x, |step, x| {
                let h = step.memory(2);
                let next = (x * step.product(h, w, None)).tanh();
                step.update(h, next);
                next
            });
            let next = read.sequence_pool(Pool::Last) + state;
            outer.update(state, next);
            next
        });
        words.mean()
    });
    assert_text(&analysed(&program, &wanted).stores, &[]);
}

#[test]
fn slots_and_how_long_they_live() {
    let (program, wanted) = differentiated(recurrent);
    let found = analysed(&program, &wanted);
    assert_text(&found.slots, &[]);
    assert_text(&found.lives, &[]);
}
