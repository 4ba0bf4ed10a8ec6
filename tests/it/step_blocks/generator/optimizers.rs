//! Random optimizers: every rule, also in its deferred form for selected rows, with every setting that it can be combined with.

use unpadded::op::Literal;
use unpadded::optimizer::{AnyOptimizer, Group, OptimizerKind, Schedule};

use super::Dice;

/// A schedule of any form, that moves within some steps.
fn schedule(dice: &mut Dice, rate: f64) -> Schedule {
    let steps = 1 + dice.below(40);
    let schedule = match dice.below(8) {
        0 => Schedule::constant(),
        1 => Schedule::step(steps, 0.5),
        2 => Schedule::step_after(dice.below(20), steps, 0.7),
        3 => Schedule::piecewise([(steps, 0.5), (steps + 5, 0.0625), (steps + 9, 1.5)]),
        4 => Schedule::cosine_to(steps, 0.1 * rate),
        5 => Schedule::linear(steps),
        6 => Schedule::inverse_sqrt(steps),
        _ => Schedule::one_cycle(steps, 0.3),
    };
    if dice.chance(40) { schedule.warm_up(1 + dice.below(10)) } else { schedule }
}

/// A hash of a draw and a name (FNV-1a).
fn hash(draw: u64, name: &str) -> u64 {
    let bytes = draw.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

/// An optimizer that is exact under gradients of selected rows, with its name. The variant is the one whose name has the largest
/// hash with the draw, so that a new variant changes only the programs that draw it.
pub(crate) fn optimizer(dice: &mut Dice) -> (&'static str, AnyOptimizer) {
    let draw = dice.below(usize::MAX) as u64;
    let exact = OptimizerKind::variants().into_iter().filter(|build| build.owes.at_once().is_none());
    let build = exact.max_by_key(|build| hash(draw, build.name)).unwrap();
    let mut optimizer = build.optimizer;
    let attributes = &mut optimizer.rule.attributes;
    // All numbers are drawn for each rule, so that they do not depend on the attributes of a rule.
    let (beta1, beta2) = [(0.9, 0.999), (0.5, 0.9), (0.0, 0.99), (0.97, 0.9999), (0.9, 0.85)][dice.below(5)];
    let epsilon = [1e-8, 1e-8, 1e-4, 1e-2][dice.below(4)];
    let (momentum, alpha) = ([0.5, 0.9, 0.99][dice.below(3)], [0.99, 0.8][dice.below(2)]);
    let (l1, l2) = (1e-3 * dice.below(2) as f64, 0.1 * dice.below(2) as f64);
    let weight_decay = if dice.chance(50) { 0.2 * (1.0 + dice.number()) } else { 0.0 };
    // FTRL has no decay. Decay in the gradient can be deferred only by plain descent.
    let decays = attributes.get("weight_decay").is_some();
    if decays && optimizer.rule.kind != "sgd" {
        attributes.set("decoupled", true);
    }
    let drawn = [
        ("beta1", beta1),
        ("beta2", beta2),
        ("momentum", momentum),
        ("alpha", alpha),
        ("l1", l1),
        ("l2", l2),
    ];
    for (name, value) in drawn.into_iter().chain([("weight_decay", weight_decay), ("epsilon", epsilon)]) {
        // A variant with a larger epsilon needs it.
        let fixed = |now: &Literal| name == "epsilon" && matches!(now, Literal::Float(now) if *now > 1e-8);
        if attributes.get(name).is_some_and(|now| !fixed(now)) {
            attributes.set(name, value);
        }
    }
    let options = &mut optimizer.options;
    if dice.chance(60) {
        options.schedule = schedule(dice, options.rate);
    }
    if dice.chance(20) {
        options.clip_value = Some(0.01 + 0.3 * dice.number().abs());
    }
    if dice.chance(20) {
        options.clip_norm = Some(0.01 + dice.number().abs());
    }
    if dice.chance(30) {
        options.max_norm = Some(0.01 + dice.number().abs());
    }
    if dice.chance(30) {
        let digit = ["0", "1", "2", "t"][dice.below(4)];
        let group = Group::matching(move |name| name.ends_with(digit));
        let group = group.rate([0.0, 0.3, 2.0][dice.below(3)]);
        let own = dice.chance(50) && decays;
        options.groups.push(if own { group.weight_decay(0.1) } else { group });
    }
    options.adjustable = dice.chance(20);
    (build.name, optimizer)
}
