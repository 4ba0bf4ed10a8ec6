//! `+ - * /` and the methods of variables: the operators that they append, and the numbers that come out.

use ndarray::array;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::{Builder, DType, Var, Variable};

/// Returns the values of an expression of `x` and `y`, for x = 4, −2 and y = 8, 0.5.
fn value(expression: impl Fn(Var, Var) -> Var) -> Vec<f64> {
    let net = Builder::new();
    let (x, y) = (net.feed("x", DType::F64, &[2], 0), net.feed("y", DType::F64, &[2], 0));
    let out = expression(x, y);
    let program = net.finish().unwrap();
    let feeds = [Variable::dense(array![[4.0, -2.0]]), Variable::dense(array![[8.0, 0.5]])];
    let mut executor = Executor::new(&program, &unpadded::ops::catalogue(), &[out.id()], 1).unwrap();
    let fed = [(x.id(), &feeds[0]), (y.id(), &feeds[1])];
    executor.run(&mut Scope::of(&program).unwrap(), &Run::train(&fed, 0)).unwrap();
    executor.fetch(out).unwrap().as_slice::<f64>().unwrap().to_vec()
}

#[test]
fn operators_between_variables() {
    assert_eq!(value(|x, y| x + y), [12.0, -1.5]);
    assert_eq!(value(|x, y| x - y), [-4.0, -2.5]);
    assert_eq!(value(|x, y| x * y), [32.0, -1.0]);
    assert_eq!(value(|x, y| x / y), [0.5, -4.0]);
    assert_eq!(value(|x, _| -x), [-4.0, 2.0]);
}

#[test]
fn numbers_on_either_side() {
    assert_eq!(value(|x, _| x + 1.5), [5.5, -0.5]);
    assert_eq!(value(|x, _| 1.5 + x), [5.5, -0.5]);
    assert_eq!(value(|x, _| x - 1), [3.0, -3.0]);
    assert_eq!(value(|x, _| 1 - x), [-3.0, 3.0]);
    assert_eq!(value(|x, _| x * 0.5), [2.0, -1.0]);
    assert_eq!(value(|x, _| 3 * x), [12.0, -6.0]);
    assert_eq!(value(|x, _| x / 4), [1.0, -0.5]);
    assert_eq!(value(|x, _| 2.0 / x), [0.5, -1.0]);
    // The type of 1.0 is known, whatever follows.
    assert_eq!(value(|x, y| (1.0 - x).square() / (2 + y)), [0.9, 3.6]);
}

#[test]
fn comparisons_are_masks() {
    assert_eq!(value(|x, y| x.greater(y)), [0.0, 0.0]);
    assert_eq!(value(|x, y| x.less(y) * y), [8.0, 0.5]);
    assert_eq!(value(|x, _| x.greater_equal(4)), [1.0, 0.0]);
    assert_eq!(value(|x, _| x.less_equal(-2.0)), [0.0, 1.0]);
    assert_eq!(value(|x, _| x.equal(4) + 2 * x.not_equal(4)), [1.0, 2.0]);
}

/// The same program, whichever way it is written.
#[test]
fn methods_append_what_the_builder_does() {
    let built = |methods: bool| {
        let net = Builder::new().seed(3);
        let x = net.feed("x", DType::F32, &[4], 1);
        let label = net.feed("label", DType::I64, &[], 0);
        let h = net.recurrent(x, |step, x_t| {
            let before = step.memory(3);
            let h = match methods {
                true => (x_t.linear(3) + before.linear(3) * 0.5).tanh(),
                false => {
                    let sum = step.add(step.linear(x_t, 3), step.scale(step.linear(before, 3), 0.5, 0.0));
                    step.tanh(sum)
                }
            };
            step.update(before, h);
            h
        });
        let loss = match methods {
            true => h.sequence_pool(unpadded::ops::Pool::Last).dropout(0.1).cross_entropy(label).mean(),
            false => {
                let last = net.dropout(net.sequence_pool(h, unpadded::ops::Pool::Last), 0.1);
                net.mean(net.cross_entropy(last, label))
            }
        };
        (net.describe(loss), net.finish().unwrap())
    };
    let (one, other) = (built(true), built(false));
    assert_eq!(one.0, "`mean`: f32[]");
    assert_eq!(one.1.difference(&other.1), None);
}

/// Shapes in sight: name, dtype, shape and LoD levels.
#[test]
fn variables_describe_themselves() {
    let net = Builder::new();
    let x = net.feed("words", DType::I64, &[], 2);
    let step = net.literal("rate", 0.5);
    assert_eq!(format!("{x:?}"), "`words`: i64[rows1] lod(0, 1)");
    assert_eq!(net.describe(x), format!("{x:?}"));
    assert_eq!(net.describe(step), "`rate`: a number (0.5)");
    let other = Builder::new();
    assert_eq!(other.describe(x), "another builder's");
}
