//! Tests that compare `cross_entropy` with numbers from PyTorch and with the formula, and tests of edge cases.

use super::*;
use crate::operator::call::Direct;
use crate::ops::Pool;
use crate::program::{Builder, Initializer};

fn call(op: SoftmaxCrossEntropy, operands: &[Operand]) -> Result<Vec<Variable>> {
    let op: Arc<dyn Op> = Arc::new(op);
    op.call(operands)
}

/// Compares the mean loss with numbers that PyTorch 2.15 computed with `reduction="mean"`.
#[test]
fn the_mean_is_pytorchs() -> Result<()> {
    let logits = array![
        [0.2941622, -0.3205199, 0.02126356, -0.4896022, -0.9001454, -0.5486473],
        [0.7265365, -1.851911, -2.049539, 0.7254498, 0.5227273, 0.6228451],
        [-1.225549, 0.3940807, -2.027051, -0.3577613, 0.07801643, 0.05847946],
        [-0.2320095, -1.461197, -0.05992517, 0.5235571, -0.7182935, 0.3797318],
        [-0.7339855, -0.5546188, 0.4146466, -1.199243, -0.9557641, 0.2384572],
        [-1.532174, 0.06639942, 1.11278, 2.307673, -0.1595149, -0.5847425],
        [-0.6000807, 1.792625, -0.7259599, 0.1867508, -1.218402, 0.3773976],
        [1.47052, -0.3519036, 1.550312, 0.401514, -1.972369, 1.838365],
        [1.172927, 0.6565672, 1.656467, 0.3770694, -1.49383, 0.3595695],
        [0.9465159, -0.1634137, 0.4310734, 1.766756, 1.540174, -1.414699],
        [-0.2540285, 0.3522683, -1.271973, -0.8298268, 0.2100102, -0.1010231],
    ];
    let labels = array![4i64, 1, -100, 1, 4, 0, 0, 2, 1, 4, 4];
    let weight = array![0.91317576, 1.190976, 0.9722873, 0.74064451, 0.90791923, 0.60978854];
    for (smoothing, weighted, mean) in
        [(0.0, false, 2.51106596), (0.1, false, 2.47713423), (0.0, true, 2.54775143)]
    {
        let mut operands =
            vec![Operand::batch("logits", logits.clone()), Operand::batch("labels", labels.clone())];
        if weighted {
            operands.push(Operand::constant("weight", weight.clone()));
        }
        let out =
            call(SoftmaxCrossEntropy { ignore_index: Some(-100), label_smoothing: smoothing }, &operands)?;
        let sum = |slot: usize| out[slot].as_slice::<f64>().map(|rows| rows.iter().sum::<f64>());
        let got = sum(SoftmaxCrossEntropy::LOSS)? / sum(SoftmaxCrossEntropy::SHARE)?;
        assert!((got - mean).abs() < 1e-6, "{got} for {mean}");
    }
    Ok(())
}

#[test]
fn a_label_out_of_range_names_row_and_classes() {
    let operands = [
        Operand::batch("logits", array![[0.5f32, 1.0], [0.0, 0.0]]),
        Operand::batch("labels", array![1i32, 2]),
    ];
    let error =
        call(SoftmaxCrossEntropy { ignore_index: None, label_smoothing: 0.0 }, &operands).unwrap_err();
    let expected = "label of sample 1: expected at least 0 and below 2, the number of classes, got 2";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_impossible_class_does_no_harm_and_a_nan_is_not_hidden() -> Result<()> {
    let logits = array![[0.0f32, f32::NEG_INFINITY], [0.0, f32::NAN]];
    let operands = [Operand::batch("logits", logits), Operand::batch("labels", array![0i64, 0])];
    let out = call(SoftmaxCrossEntropy { ignore_index: None, label_smoothing: 0.0 }, &operands)?;
    let losses = out[SoftmaxCrossEntropy::LOSS].as_slice::<f32>()?;
    assert!(losses[0] == 0.0 && losses[1].is_nan(), "{losses:?}");
    Ok(())
}

/// Compares the loss and the gradient of 37 classes with the formula; the sum has fewer lanes than classes.
#[test]
fn many_classes_are_those_of_the_formula() -> Result<()> {
    let logits = ndarray::Array2::from_shape_fn((3, 37), |(i, j)| 4.0 * ((i * 37 + j) as f64 * 0.9).sin());
    let labels = array![36i64, 0, 17];
    let operands = [Operand::batch("logits", logits.clone()), Operand::batch("labels", labels.clone())];
    let op = SoftmaxCrossEntropy { ignore_index: None, label_smoothing: 0.0 };
    let direct = Direct::new(Arc::new(op), &operands)?;
    let out = direct.forward()?;
    let ones = Dense::from(array![1.0, 1.0, 1.0]).into();
    let gradients = direct.backward(
        &out,
        &[vec![Some(ones)], vec![None]],
        &|slot| slot == SoftmaxCrossEntropy::LOGITS,
        None,
    )?;
    let gradient = gradients[SoftmaxCrossEntropy::LOGITS][0]
        .as_ref()
        .expect("asked for")
        .as_dense()?
        .as_slice::<f64>()?;
    for (row, (logits, &label)) in logits.rows().into_iter().zip(&labels).enumerate() {
        let sum: f64 = logits.iter().map(|x| x.exp()).sum();
        let loss = -(logits[label as usize].exp() / sum).ln();
        assert!((out[SoftmaxCrossEntropy::LOSS][0].as_slice::<f64>()?[row] - loss).abs() < 1e-12);
        for (class, x) in logits.iter().enumerate() {
            let expected = x.exp() / sum - f64::from(u8::from(class == label as usize));
            assert!((gradient[row * 37 + class] - expected).abs() < 1e-12);
        }
    }
    Ok(())
}

#[test]
fn a_classifier_is_built_from_the_operators() -> Result<()> {
    let net = Builder::new();
    let ids = net.feed("ids", DType::I64, &[], 1);
    let labels = net.feed("labels", DType::I32, &[1], 0);
    let table = net.parameter("table", DType::F32, &[10, 4], Initializer::new("zeros", Attributes::new()));
    let head = net.parameter("head", DType::F32, &[4, 3], Initializer::new("zeros", Attributes::new()));
    let pooled = net.sequence_pool(net.lookup(ids, table, Some(0), true), Pool::Last);
    let logits = net.product(pooled, head, None);
    let (loss, share) = net.cross_entropy_with(logits, labels, CrossEntropy::default());
    let accuracy = net.accuracy(logits, labels, None);
    let lengths = net.lod_of(ids);
    let specs =
        [pooled, loss, share, accuracy, lengths].map(|var| net.spec(var).map(|spec| spec.to_string()));
    let expected = ["f32[batch, 4]", "f32[batch]", "f32[batch]", "f32[]", "i64[batch]"];
    assert_eq!(specs, expected.map(|spec| Some(spec.to_owned())));
    let smoothed = CrossEntropy { label_smoothing: 1.5, ..CrossEntropy::default() };
    let error = net.cross_entropy_with(logits, labels, smoothed).0.refused().to_string();
    assert!(error.contains("attribute `label_smoothing`: expected a number from 0 to 1, got 1.5"), "{error}");
    Ok(())
}
