//! The learning rate of a training: lowered at a plateau, by a function, changed on resumption, shown.

use unpadded::optimizer::{Optimizer, RATE_SCALE};
use unpadded::train::Plateau;

use super::*;
use crate::store::says;

fn with(optimizer: &dyn Optimizer) -> Trainer {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = net.embedding(words, Embedding::new(20, 6).sparse());
    let logits = net.linear(net.sequence_pool(net.dropout(x, 0.3), Pool::Sum), 2);
    let loss = net.mean(net.cross_entropy(logits, label));
    Trainer::new(net, loss, optimizer)
        .unwrap()
        .metric(Accuracy::new(logits, label))
        .threads(1)
        .progress(Progress::Quiet)
}

fn scale(trainer: &mut Trainer) -> f32 {
    trainer.scope().get(RATE_SCALE).unwrap().as_slice::<f32>().unwrap()[0]
}

fn refused<T: std::fmt::Debug>(outcome: Result<T>, line: u32, expected: &str) {
    let error = outcome.unwrap_err();
    assert!(error.to_string().contains(expected), "{error}\nexpected: {expected}");
    let caller = error.place().caller.clone().unwrap_or_default();
    assert!(caller.contains(&format!("rate.rs:{line}:")), "{caller}, not line {line}");
}

#[test]
fn a_stalled_metric_lowers_the_rate_and_goes_on_so_when_resumed() {
    // No epoch is better than the first: nothing moves.
    let still = || with(&Sgd::new(0.0)).select("accuracy").plateau(Plateau::new(0.5).patience(2));
    let mut scales = Vec::new();
    for epochs in 1..8 {
        let mut training = still();
        fit(&mut training, Until::Epochs(epochs));
        scales.push((scale(&mut training), training.position().stalled));
    }
    assert_eq!(scales, [(1.0, 0), (1.0, 1), (0.5, 0), (0.5, 1), (0.25, 0), (0.25, 1), (0.125, 0)]);

    let moving = || with(&Adam::new(0.3).lazy()).plateau(Plateau::new(0.5).patience(2));
    let mut whole = moving();
    fit(&mut whole, Until::Epochs(8));
    assert!(scale(&mut whole) < 1.0);
    let expected = bytes(&mut whole);
    for steps in [5, 20, 35, 50, 61, 70] {
        let file = path("plateau");
        let mut first = moving();
        fit(&mut first, Until::Steps(steps));
        first.save(&file).unwrap();
        let mut second = moving();
        second.resume(&file).unwrap();
        fit(&mut second, Until::Epochs(8));
        assert!(bytes(&mut second) == expected, "after {steps} steps");
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn no_rate_is_lowered_below_the_least() {
    let written = Written::default();
    let mut training = with(&Sgd::new(0.4).group(unpadded::optimizer::Group::matching(|_| true).rate(0.0)))
        .select("accuracy")
        .plateau(Plateau::new(0.1).least(0.02))
        .progress(Progress::To(Box::new(written.clone())));
    fit(&mut training, Until::Epochs(5));
    assert_eq!(scale(&mut training), 0.05);
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let lowered: Vec<&str> = text.lines().filter(|line| line.contains("lowered")).collect();
    let line = |from, to| format!("no better for an epoch: base rate lowered from {from} to {to}");
    assert_eq!(lowered, [line("0.4", "0.04"), line("0.04", "0.02")]);
    let rates = |rate: &str| text.lines().filter(|line| line.contains(&format!(", rate {rate};"))).count();
    assert_eq!([rates("0.4"), rates("0.04"), rates("0.02")], [2, 1, 2], "{text}");
}

#[test]
fn a_function_of_the_position_multiplies_the_rate() {
    let mut scheduled = with(&Sgd::new(0.5).schedule(Schedule::step(10, 0.5)).adjustable());
    let mut asked = with(&Sgd::new(0.5)).rate_by(|position| 0.5f64.powi(position.epoch as i32));
    assert_eq!(scheduled.rate(), None);
    for until in [Until::Steps(13), Until::Epochs(3)] {
        fit(&mut scheduled, until);
        fit(&mut asked, until);
        assert_eq!(values(&mut scheduled), values(&mut asked));
        assert_eq!(scheduled.rate(), asked.rate());
    }
    assert_eq!((asked.rate(), scale(&mut asked)), (Some(0.125), 1.0));

    let (mut wrong, line) = (with(&Sgd::new(0.5)).rate_by(|p| 3.0 - p.step as f64), line!());
    let outcome = wrong.fit(&train(), &dev(), Until::Epochs(1));
    refused(outcome, line, "at epoch 1, batch 5 (step 4): expected a finite number from 0, got -1");
    assert_eq!(wrong.position().step, 4);
}

#[test]
fn who_resumes_may_change_the_rate_if_that_is_said() {
    let adam = |rate| Adam::new(rate).lazy();
    let file = path("change_rate");
    let mut first = with(&adam(0.02)).plateau(Plateau::new(0.5));
    fit(&mut first, Until::Steps(15));
    first.scope().set(RATE_SCALE, ndarray::arr0(0.25f32)).unwrap();
    first.save(&file).unwrap();
    let before = values(&mut first);

    // Not said, or not of the rate alone.
    let mut other = with(&adam(0.01)).plateau(Plateau::new(0.5));
    refused(other.resume(&file), line!(), "attribute `base` 0.02 instead of 0.01");
    let error = other.resume(&file).unwrap_err();
    assert!(error.to_string().contains("`Trainer::change_rate` continues"), "{error}");
    // Who runs a program has no method to call.
    assert!(!format!("{error:#}").contains("::"), "{error:#}");
    let mut other = with(&adam(0.01).epsilon(1e-3)).plateau(Plateau::new(0.5)).change_rate();
    let error = other.resume(&file).unwrap_err().to_string();
    assert!(!error.contains("Trainer::change_rate"), "{error}");
    assert_eq!((other.position().step, scale(&mut other)), (0, 1.0));

    // An unchanged rate continues as before, with or without `change_rate`.
    let resumed = |mut trainer: Trainer| {
        trainer.resume(&file).unwrap();
        assert_eq!(trainer.position().step, 15);
        trainer
    };
    let mut same = resumed(with(&adam(0.02)).plateau(Plateau::new(0.5)).change_rate());
    assert_eq!(values(&mut same), before);

    // Another base rate, schedule, plateau or none.
    let kept = |values: Vec<(String, Dense)>| -> Vec<_> {
        values.into_iter().filter(|(name, _)| name != RATE_SCALE).collect()
    };
    let schedule = Schedule::piecewise([(15, 0.5)]);
    for (mut other, rate) in [
        (with(&adam(0.01)).plateau(Plateau::new(0.5)), 0.01),
        (with(&adam(0.02).schedule(schedule.clone()).adjustable()), 0.01),
        (with(&adam(0.5)), 0.5),
    ] {
        other = resumed(other.change_rate());
        assert_eq!(kept(values(&mut other)), kept(before.clone()));
        assert!(other.scope().get(RATE_SCALE).is_err() || scale(&mut other) == 1.0);
        fit(&mut other, Until::Steps(16));
        assert!((other.rate().unwrap() - rate).abs() < 1e-8, "{:?}", other.rate());
        bytes(&mut other);
    }
    // And one where there was none.
    let mut plain = with(&adam(0.02));
    fit(&mut plain, Until::Steps(3));
    plain.save(&file).unwrap();
    let mut other = with(&adam(0.02)).rate_by(|_| 0.5).change_rate();
    other.resume(&file).unwrap();
    fit(&mut other, Until::Steps(4));
    assert!((other.rate().unwrap() - 0.01).abs() < 1e-8);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_schedule_that_gives_the_finished_steps_other_rates_is_refused() {
    let file = path("schedule");
    let scheduled = |schedule: &Schedule, base| with(&Adam::new(base).lazy().schedule(schedule.clone()));
    let saved = |schedule: &Schedule| {
        let mut first = scheduled(schedule, 0.02);
        fit(&mut first, Until::Steps(12));
        first.save(&file).unwrap();
    };
    let expected =
        "learning-rate schedule: expected the schedule of the model being built for the 12 finished steps";
    for (old, new) in [
        (Schedule::cosine(12), Schedule::cosine(20)),
        (Schedule::cosine(30), Schedule::cosine(20)),
        (Schedule::cosine(30), Schedule::linear(30)),
        (Schedule::cosine(30), Schedule::constant()),
        (Schedule::linear(30), Schedule::linear(31)),
        (Schedule::one_cycle(30, 0.3), Schedule::one_cycle(31, 0.3)),
        (Schedule::step(5, 0.5), Schedule::step(6, 0.5)),
        (Schedule::inverse_sqrt(4), Schedule::inverse_sqrt(5)),
        // The rate of the next step is the same, but the rates of the warm-up are not.
        (Schedule::constant().warm_up(3), Schedule::constant().warm_up(6)),
    ] {
        saved(&old);
        for mut other in [scheduled(&new, 0.02), scheduled(&new, 0.02).change_rate()] {
            refused(other.resume(&file), line!(), expected);
            assert_eq!((other.position().step, other.rate()), (0, None), "{old:?}, {new:?}");
        }
    }
    saved(&Schedule::cosine(12));
    let parts =
        ["attribute `steps` 12 instead of 20: ", "from 0.0003407 to 0.00691", "Trainer::load_parameters"];
    says(scheduled(&Schedule::cosine(20), 0.02).change_rate().resume(&file), &parts);
    // With the same past, a schedule continues: at another base rate, or with other steps to come.
    for (old, new, base, next) in [
        (Schedule::cosine_to(24, 2e-4), Schedule::cosine_to(24, 1e-4), 0.01, 0.00505),
        (Schedule::cosine_to(24, 2e-4), Schedule::cosine_to(24, 2e-4), 0.01, 0.0051),
        (Schedule::constant(), Schedule::piecewise([(12, 0.25)]), 0.02, 0.005),
        (Schedule::step_after(20, 5, 0.5), Schedule::step_after(12, 5, 0.5), 0.02, 0.01),
    ] {
        saved(&old);
        let mut other = scheduled(&new, base).change_rate();
        other.resume(&file).unwrap();
        fit(&mut other, Until::Steps(13));
        assert!((other.rate().unwrap() - next).abs() < 1e-8, "{new:?}: {:?}", other.rate());
    }
    std::fs::remove_file(file).unwrap();
}

#[test]
fn wrong_settings_of_the_rate_are_named() {
    let fitted = |mut trainer: Trainer| trainer.fit(&train(), &dev(), Until::Epochs(1));
    for factor in [0.0, 1.0, -0.5, f64::NAN] {
        let (trainer, line) = (with(&Sgd::new(0.1)).plateau(Plateau::new(factor)), line!());
        refused(fitted(trainer), line, "factor of a plateau: expected a number above 0 and below 1, got ");
    }
    let (trainer, line) = (with(&Sgd::new(0.1)).plateau(Plateau::new(0.5).patience(0)), line!());
    refused(fitted(trainer), line, "patience of a plateau, in epochs: expected at least 1, got 0");
    for least in [-1.0, 0.2, f64::NAN] {
        let (trainer, line) = (with(&Sgd::new(0.1)).plateau(Plateau::new(0.5).least(least)), line!());
        let expected = "least rate of a plateau: expected a rate from 0 to the base rate, 0.1, got ";
        refused(fitted(trainer), line, expected);
    }
}
