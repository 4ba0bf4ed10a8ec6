//! NaN propagates: every result that depends on NaN is NaN, and a training reports it.

use ndarray::{Array2, array};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::init;
use unpadded::op::{Attributes, Operand};
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::{Builder, DType, ErrorKind, Var, Variable, ops};

fn called(kind: &str, attributes: &Attributes, x: Variable) -> Variable {
    let op = ops::catalogue().parse(kind, attributes).unwrap();
    op.call(&[Operand::batch("x", x)]).unwrap().remove(0)
}

#[test]
fn functions_of_nan_are_nan() {
    let alpha = Attributes::new().with("alpha", 0.5);
    let clamp = Attributes::new().with("low", -1.0).with("high", 1.0);
    let kinds =
        ["tanh", "sigmoid", "relu", "softplus", "softsign", "silu", "gelu", "exp", "log", "sqrt", "abs"];
    let plain = kinds.map(|kind| (kind, Attributes::new()));
    for (kind, attributes) in
        plain.into_iter().chain([("elu", alpha.clone()), ("leaky_relu", alpha), ("clamp", clamp)])
    {
        // More numbers than a vector has, so that the tail is covered, too.
        let x = Array2::from_shape_fn((3, 9), |(i, j)| if (i + j) % 4 == 0 { f64::NAN } else { 0.5 });
        let wide = called(kind, &attributes, x.clone().into());
        let narrow = called(kind, &attributes, x.mapv(|x| x as f32).into());
        for (at, x) in x.iter().enumerate() {
            let found = (wide.as_slice::<f64>().unwrap()[at], narrow.as_slice::<f32>().unwrap()[at]);
            assert_eq!(
                (found.0.is_nan(), found.1.is_nan()),
                (x.is_nan(), x.is_nan()),
                "{kind} of {x}: {found:?}"
            );
        }
    }
    let found = called("relu", &Attributes::new(), array![[-1.0, -0.0, 0.0, 2.0, f64::NEG_INFINITY]].into());
    assert_eq!(
        found.as_slice::<f64>().unwrap().iter().map(|x| x.to_bits()).collect::<Vec<_>>(),
        [0.0f64, 0.0, 0.0, 2.0, 0.0].map(f64::to_bits)
    );
}

#[test]
fn the_maximum_of_a_row_with_nan_is_nan() {
    let nan = f64::NAN;
    let rows = array![[nan, nan, nan], [1.0, nan, 2.0], [nan, 5.0, 1.0], [1.0, 3.0, 2.0]];
    let found = called("max_features", &Attributes::new(), rows.into());
    let found = found.as_slice::<f64>().unwrap();
    assert!(found[..3].iter().all(|x| x.is_nan()) && found[3] == 3.0, "{found:?}");
}

/// Returns the losses of the rows, where x or y is NaN in the first row.
fn losses(width: &[usize], loss: impl Fn(Var, Var, Var) -> Var) -> Vec<f64> {
    let net = Builder::new();
    let [x, y] = ["x", "y"].map(|name| net.feed(name, DType::F64, &[1], 0));
    let sign = net.feed("sign", DType::F64, width, 0);
    let loss = loss(x, y, sign);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let mut executor = Executor::new(&program, &registry, &[loss.id()], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let fed = [array![[f64::NAN], [1.0]], array![[2.0], [1.0]]].map(Variable::from);
    let signs: Variable =
        if width.is_empty() { array![-1.0, -1.0].into() } else { array![[-1.0], [-1.0]].into() };
    let feeds = [(x.id(), &fed[0]), (y.id(), &fed[1]), (sign.id(), &signs)];
    executor.run(&mut scope, &Run::infer(&feeds)).unwrap();
    executor.fetch(loss.id()).unwrap().as_slice::<f64>().unwrap().to_vec()
}

#[test]
fn losses_of_nan_are_nan() {
    let found = [
        losses(&[1], |x, y, sign| x.margin_ranking(y, sign, 0.5)),
        losses(&[], |x, y, sign| x.cosine_loss(y, sign, 0.5)),
        losses(&[1], |x, _, sign| x.hinge(sign)),
    ];
    for found in found {
        assert!(found[0].is_nan() && found[1].is_finite(), "{found:?}");
    }
}

#[test]
fn a_training_whose_relu_meets_nan_says_so() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 0);
    let weight = net.parameter("weight", DType::F32, &[3], init::zeros());
    let loss = (x * weight).relu().mean();
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    Sgd::new(0.1).minimize(&mut program, &registry, loss.id()).unwrap();
    let mut executor = Executor::new(&program, &registry, &[loss.id()], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    scope.set("weight", array![1.0f32, f32::NAN, 1.0]).unwrap();
    let rows = Variable::from(array![[1.0f32, 2.0, 3.0]]);
    let error = executor.run(&mut scope, &Run::train(&[(x.id(), &rows)], 0)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFinite, "{error}");
}

#[test]
fn bounds_that_cannot_be_are_refused_when_built() {
    for (low, high) in [(1.0, -1.0), (f64::NAN, 1.0), (0.0, f64::NAN)] {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[3], 0);
        let _ = x.clamp(low, high);
        let error = net.finish().unwrap_err().to_string();
        let expected =
            "attributes `low` and `high`: expected two numbers, the first not above the second, got ";
        assert!(error.contains(&format!("{expected}{low} and {high}")), "{error}");
    }
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 0);
    let _ = x.clamp(0.5, 0.5).clamp(f64::NEG_INFINITY, 1.0);
    net.finish().unwrap();
}
