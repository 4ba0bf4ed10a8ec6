//! Numbers that are not finite: found before the update, and named where they first came from.

use unpadded::checkpoint::Checkpoint;
use unpadded::tensor::Storage;

use super::*;

/// Refuses to train a step: the error, after it was seen that nothing has changed.
fn refused(net: Builder, loss: Var, field: &str, fields: Vec<Field>, set: impl Fn(&mut Trainer)) -> Error {
    let samples: Samples = fields.into_iter().map(|field| vec![field]).collect();
    let data = Loader::new(samples, &[field]).unwrap();
    let file = path("not-finite");
    let mut trainer =
        Trainer::new(net, loss, &Adam::new(0.1)).unwrap().checkpoint(&file).progress(Progress::Quiet);
    trainer.save(&file).unwrap();
    set(&mut trainer);
    let (before, saved) = (values(&mut trainer), std::fs::read(&file).unwrap());
    let error = trainer.fit(&data, &data, Until::Epochs(1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFinite, "{error}");
    let after = values(&mut trainer);
    assert!(before.len() == after.len() && saved == std::fs::read(&file).unwrap());
    assert!(before.iter().zip(&after).all(|((_, a), (_, b))| a.bits_eq(b)));
    assert_eq!(trainer.position().step, 0);
    std::fs::remove_file(file).unwrap();
    error
}

/// Returns the error of a training whose loss is computed from sequences `x` of numbers and a parameter `w`, initially one.
fn of(values: &[&[f32]], set: Option<f32>, loss: impl Fn(&Builder, Var, Var) -> Var) -> Error {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[], 1);
    let one = Initializer::new("constant", Attributes::new().with("value", 1.0));
    let w = net.parameter("w", DType::F32, &[1], one);
    let loss = loss(&net, x, w);
    let fields = values.iter().map(|v| Field::Floats(v.to_vec())).collect();
    refused(net, loss, "x", fields, |trainer| {
        if let Some(w) = set {
            trainer.set_parameter("w", Dense::from_vec(&[1], vec![w]).unwrap()).unwrap();
        }
    })
}

/// Checks the operator and the variable of an error, and the text that its message must contain.
fn check(error: &Error, operator: Option<&str>, variable: &str, holds: &str) {
    let place = error.place();
    let found = (place.operator.as_deref(), place.variable.as_deref());
    assert_eq!(found, (operator, Some(variable)), "{error}");
    assert!(error.to_string().contains(holds), "{error}");
}

#[test]
fn the_operator_that_overflows_is_named_with_its_row() {
    let line = line!() + 2;
    let found = of(&[&[1.0, 2.0], &[], &[0.5, 89.0]], None, |net, x, w| {
        let y = net.exp(net.mul(x, w));
        net.mean(net.add(y, y))
    });
    let whose = "got infinity in row 3, position 1 of sequence 2 in the data; nothing was updated";
    check(&found, Some("exp #1"), "exp", whose);
    let caller = found.place().caller.clone().unwrap_or_default();
    assert!(caller.contains(&format!("not_finite.rs:{line}:")), "{found}");
    assert!(found.to_string().contains("; no checkpoint was saved in `"), "{found}");
}

#[test]
fn division_by_zero_and_the_logarithm_of_a_negative_number() {
    let found = of(&[&[1.0, 0.0]], None, |net, x, w| net.mean(net.div(net.mul(x, w), x)));
    check(&found, Some("div #1"), "div", "got NaN in row 1, position 1 of sequence 0");
    let found = of(&[&[1.0], &[-1.0]], None, |net, x, w| net.mean(net.log(net.mul(x, w))));
    check(&found, Some("log #1"), "log", "got NaN in row 1, position 0 of sequence 1");
}

#[test]
fn a_step_block_is_named_with_the_step() {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let x = net.embedding(words, Embedding::new(3, 1));
    // From zero on: e², then exp(e² + 2) = 11,954, whose exp is infinite.
    let h = net.recurrent(x, |step, x_t| {
        let before = step.memory(1);
        let h = step.exp(step.add(before, x_t));
        step.update(before, h);
        h
    });
    let loss = net.mean(h);
    let fields = [1, 0, 3, 4].map(|n| Field::Ints(vec![1; n]));
    let found = refused(net, loss, "words", fields.into(), |trainer| {
        let table = Dense::from_vec(&[3, 1], vec![2.0f32; 3]).unwrap();
        trainer.set_parameter("embedding_0.weight", table).unwrap();
    });
    let whose = "got infinity in row 0, position 2 of sequence 2 in the data";
    check(&found, Some("exp #1"), "exp", whose);
    assert_eq!(found.place().block, Some(1));
    assert!(found.place().caller.as_ref().is_some_and(|c| c.contains("not_finite.rs")), "{found}");
}

#[test]
fn feeds_and_parameters_are_named() {
    let product = |net: &Builder, x, w| net.mean(net.mul(x, w));
    let found = of(&[&[1.0, f32::NAN]], None, product);
    check(&found, None, "x", "value fed: expected finite numbers, got NaN");
    let found = of(&[&[1.0]], Some(f32::NEG_INFINITY), product);
    check(&found, None, "w", "parameter before the step: expected finite numbers, got -infinity");
}

#[test]
fn a_gradient_alone_and_a_loss_alone() {
    let found = of(&[&[0.0, 1.0]], None, |net, x, w| net.mean(net.sqrt(net.mul(x, w))));
    check(
        &found,
        Some("sqrt #5, backward"),
        "mul@grad",
        "gradient: expected finite numbers, got infinity in row 0",
    );
    // The gradient of the square is finite where the square is not.
    let found = of(&[&[1.0]], Some(3e20), |net, x, w| {
        let y = net.mul(x, w);
        net.mean(net.mul(y, y))
    });
    check(&found, Some("mul #1"), "mul_2", "got infinity");
}

#[test]
fn what_is_not_finite_is_not_saved() {
    let file = path("not-saved");
    let mut trainer = trainer();
    trainer.save(&file).unwrap();
    let before = std::fs::read(&file).unwrap();
    trainer.set_parameter("linear_0.bias", Dense::from_vec(&[2], vec![0.0f32, f32::NAN]).unwrap()).unwrap();
    let error = trainer.save(&file).unwrap_err();
    assert_eq!(
        (error.kind(), error.place().variable.as_deref()),
        (ErrorKind::NotFinite, Some("linear_0.bias"))
    );
    assert!(before == std::fs::read(&file).unwrap());
    std::fs::remove_file(file).unwrap();
}

/// A resumed training with numbers that are not finite is refused: in parameters, in the optimizer's state, in the best epoch.
#[test]
fn what_is_not_finite_is_not_resumed() {
    let file = path("not-resumed");
    let mut first = trainer();
    fit(&mut first, Until::Epochs(1));
    first.save(&file).unwrap();
    let sound = Checkpoint::load(&file).unwrap();
    let with = |value: &Storage| -> Storage {
        let mut numbers = value.as_dense().unwrap().as_slice::<f32>().unwrap().to_vec();
        *numbers.last_mut().unwrap() = f32::INFINITY;
        Dense::from_vec(value.shape(), numbers).unwrap().into()
    };
    let floats = |all: &std::collections::BTreeMap<String, Storage>| -> Vec<String> {
        let all = all.iter().filter(|(_, value)| value.dtype() == DType::F32 && !value.shape().is_empty());
        all.map(|(name, _)| name.clone()).collect()
    };
    let (mut second, mut tried) = (trainer(), 0);
    let before = values(&mut second);
    let cases = floats(&sound.tensors).into_iter().map(|name| (name, false));
    for (name, best) in cases.chain(floats(&sound.best).into_iter().map(|name| (name, true))) {
        let mut odd = sound.clone();
        let all = if best { &mut odd.best } else { &mut odd.tensors };
        all.insert(name.clone(), with(&all[&name]));
        odd.save(&file).unwrap();
        let error = second.resume(&file).unwrap_err();
        assert_eq!(error.place().variable.as_deref(), Some(name.as_str()), "{error}");
        assert!(error.to_string().contains("value of the checkpoint: expected finite numbers, got inf at ["));
        tried += 1;
    }
    assert!(tried > 10 && values(&mut second) == before && second.position().step == 0);
    std::fs::remove_file(file).unwrap();
}

/// A metric whose sums have every bit that a number may have.
fn odd(label: Var) -> impl Metric {
    own_metric("odd", label, 3, |sums, _, sequences| {
        (sums[0], sums[1]) = (f64::from_bits(NAN), f64::NEG_INFINITY);
        sums[2] += sequences as f64;
        Ok(())
    })
}

const NAN: u64 = 0xfff8_dead_beef_0001;

/// A metric that is not finite does not end a training: the training is saved, and continues to the same bits.
#[test]
fn a_metric_that_is_not_finite_is_saved_and_resumed_within_an_epoch() {
    let build = || {
        let net = Builder::new().seed(3);
        let words = net.feed("words", DType::I64, &[], 1);
        let label = net.feed("label", DType::I64, &[], 0);
        let h = net.sequence_pool(net.embedding(words, Embedding::new(20, 6)), Pool::Sum);
        let loss = net.mean(net.cross_entropy(net.linear(h, 2), label));
        let trainer = Trainer::new(net, loss, &Adam::new(0.02)).unwrap();
        trainer.metric(odd(label)).threads(1).progress(Progress::Quiet)
    };
    let mut whole = build();
    fit(&mut whole, Until::Steps(14));
    let expected = bytes(&mut whole);
    let file = path("odd-metric");
    for k in [4, 13] {
        let mut first = build();
        fit(&mut first, Until::Steps(k));
        first.save(&file).unwrap();
        let running = Checkpoint::load(&file).unwrap().position.running["odd"].clone();
        let bits: Vec<u64> = running[..2].iter().map(|x| x.to_bits()).collect();
        assert_eq!(bits, [NAN, f64::NEG_INFINITY.to_bits()]);
        let mut second = build();
        second.resume(&file).unwrap();
        fit(&mut second, Until::Steps(14));
        assert!(bytes(&mut second) == expected, "after {k} steps");
    }
    std::fs::remove_file(file).unwrap();
}
