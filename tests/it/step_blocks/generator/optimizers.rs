//! Random optimizers: every rule, also in its deferred form for selected rows, with every setting that it can be combined with.

use unpadded::optimizer::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Group, Lion, NAdam, Optimizer, RmsProp, Schedule, Sgd,
};

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

/// An optimizer that is exact under gradients of selected rows.
pub(crate) fn optimizer(dice: &mut Dice) -> Box<dyn Optimizer> {
    let decay = if dice.chance(50) { 0.2 * (1.0 + dice.number()) } else { 0.0 };
    // The number of rules.
    let rule = dice.below(16);
    // Decay in the gradient can be deferred only by plain descent; FTRL has no decay.
    let decays = rule != 15;
    macro_rules! finished {
        ($optimizer:expr, $rate:expr) => {{
            let mut optimizer = $optimizer;
            if dice.chance(60) {
                optimizer = optimizer.schedule(schedule(dice, $rate));
            }
            if dice.chance(20) {
                optimizer = optimizer.clip_value(0.01 + 0.3 * dice.number().abs());
            }
            if dice.chance(20) {
                optimizer = optimizer.clip_norm(0.01 + dice.number().abs());
            }
            if dice.chance(30) {
                optimizer = optimizer.clip_global_norm(0.01 + dice.number().abs());
            }
            if dice.chance(30) {
                let digit = ["0", "1", "2", "t"][dice.below(4)];
                let group = Group::matching(move |name| name.ends_with(digit));
                let group = group.rate([0.0, 0.3, 2.0][dice.below(3)]);
                let own = decays && dice.chance(50);
                optimizer = optimizer.group(if own { group.weight_decay(0.1) } else { group });
            }
            if dice.chance(20) {
                optimizer = optimizer.adjustable();
            }
            let boxed: Box<dyn Optimizer> = Box::new(optimizer);
            boxed
        }};
    }
    let betas = [(0.9, 0.999), (0.5, 0.9), (0.0, 0.99), (0.97, 0.9999), (0.9, 0.85)][dice.below(5)];
    let epsilon = [1e-8, 1e-8, 1e-4, 1e-2][dice.below(4)];
    let momentum = [0.5, 0.9, 0.99][dice.below(3)];
    macro_rules! of_betas {
        ($optimizer:expr) => {
            $optimizer.betas(betas.0, betas.1).epsilon(epsilon).weight_decay(decay)
        };
    }
    macro_rules! of_squares {
        ($optimizer:expr) => {
            $optimizer.alpha([0.99, 0.8][dice.below(2)]).weight_decay(decay).decoupled()
        };
    }
    match rule {
        0 => finished!(Sgd::new(0.02).weight_decay(decay), 0.02),
        1 => finished!(Sgd::new(0.02).weight_decay(decay).decoupled(), 0.02),
        2 => finished!(Sgd::new(0.01).momentum(momentum).weight_decay(decay), 0.01),
        3 => finished!(Sgd::new(0.01).momentum(momentum).nesterov().weight_decay(decay).decoupled(), 0.01),
        4 => finished!(of_betas!(Adam::new(0.005)).decoupled(), 0.005),
        5 => finished!(of_betas!(AdamW::new(0.005)), 0.005),
        6 => finished!(of_betas!(AdamW::new(0.005)).amsgrad(), 0.005),
        7 => finished!(of_betas!(Adamax::new(0.005)).decoupled(), 0.005),
        8 => finished!(of_betas!(NAdam::new(0.005)).decoupled().momentum_decay(0.02), 0.005),
        9 => finished!(Lion::new(0.001).betas(betas.0, betas.1).weight_decay(decay), 0.001),
        10 => finished!(
            Adagrad::new(0.02).rate_decay(0.01).epsilon(epsilon).weight_decay(decay).decoupled(),
            0.02
        ),
        11 => finished!(of_squares!(RmsProp::new(0.005).epsilon(epsilon)), 0.005),
        12 => finished!(of_squares!(RmsProp::new(0.005).epsilon(epsilon).momentum(momentum)), 0.005),
        // Where the deviation is almost 0, its rounding errors matter.
        13 => finished!(of_squares!(RmsProp::new(0.005).centred().epsilon(1e-3)), 0.005),
        14 => finished!(of_squares!(RmsProp::new(0.005).centred().epsilon(1e-3).momentum(momentum)), 0.005),
        _ if dice.chance(50) => {
            finished!(Ftrl::new(0.02).l1(1e-3 * dice.below(2) as f64).l2(0.1 * dice.below(2) as f64), 0.02)
        }
        _ => finished!(Adadelta::new(0.5).rho(0.9).weight_decay(decay).decoupled(), 0.5),
    }
}
