//! Comparisons with variables and numbers, as masks, in step blocks, and refusals.

use crate::refused::Outcome;
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::init;
use unpadded::ops;
use unpadded::program::{Term, backward};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Result, Var, Variable};

/// One call of each comparison, in the order of [`HOLD`].
fn all(net: &Builder, x: Var, y: impl Into<Term> + Copy) -> Result<[Var; 6]> {
    Ok([
        net.greater(x, y),
        net.greater_equal(x, y),
        net.less(x, y),
        net.less_equal(x, y),
        net.equal(x, y),
        net.not_equal(x, y),
    ])
}

/// Returns the results of the six comparisons of two numbers.
fn hold<T: PartialOrd>(x: T, y: T) -> [bool; 6] {
    [x > y, x >= y, x < y, x <= y, x == y, x != y]
}

fn feed(rows: usize, width: usize, lengths: &[usize], numbers: Vec<f32>) -> Variable {
    let dense = Dense::from_vec(&[rows, width], numbers).unwrap();
    Variable::new(dense, Some(Lod::from_lengths1(lengths).unwrap())).unwrap()
}

fn run(net: Builder, feeds: &[(Var, &Variable)], wanted: &[Var]) -> Vec<Variable> {
    let program = net.finish().unwrap();
    let wanted: Vec<_> = wanted.iter().map(|v| v.id()).collect();
    let feeds: Vec<_> = feeds.iter().map(|(v, value)| (v.id(), *value)).collect();
    let mut executor = Executor::new(&program, &ops::catalogue(), &wanted, 2).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    executor.run(&mut scope, &Run::train(&feeds, 0).until(Stage::Forward)).unwrap();
    wanted.iter().map(|&v| executor.fetch(v).unwrap()).collect()
}

const NUMBERS: [f32; 5] = [0.5, -1.0, f32::NAN, f32::INFINITY, 0.1];

/// Floats with NaN and infinities, with each other and with numbers: a number is rounded to the dtype.
#[test]
fn floats_compare_as_in_rust() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[1], 1);
    let y = net.feed_like("y", DType::F32, &[1], x);
    let mut wanted = all(&net, x, y).unwrap().to_vec();
    for number in [0.5, f64::NAN, f64::NEG_INFINITY, 0.1] {
        wanted.extend(all(&net, x, number).unwrap());
    }
    wanted.extend(all(&net, x, -1).unwrap());
    // Every number with every one.
    let pairs: Vec<(f32, f32)> = NUMBERS.iter().flat_map(|&a| NUMBERS.map(|b| (a, b))).collect();
    let side = |k: usize| {
        let numbers = pairs.iter().map(|p| if k == 0 { p.0 } else { p.1 }).collect();
        feed(pairs.len(), 1, &[20, 0, 5], numbers)
    };
    let (a, b) = (side(0), side(1));
    let values = run(net, &[(x, &a), (y, &b)], &wanted);
    for (group, others) in values.chunks(6).zip([
        None,
        Some(0.5),
        Some(f32::NAN),
        Some(f32::NEG_INFINITY),
        Some(0.1),
        Some(-1.0),
    ]) {
        for (k, value) in group.iter().enumerate() {
            let mask = |&(x, y): &(f32, f32)| f32::from(u8::from(hold(x, others.unwrap_or(y))[k]));
            let expected: Vec<f32> = pairs.iter().map(mask).collect();
            assert_eq!(value.as_slice::<f32>().unwrap(), expected, "comparison {k} with {others:?}");
            assert_eq!(value.lod().unwrap().to_string(), "[[20, 0, 5]]");
        }
    }
}

/// Whole numbers are not compared by way of floats.
#[test]
fn ids_compare_exactly() {
    let net = Builder::new();
    let x = net.feed("x", DType::I64, &[], 1);
    let y = net.feed_like("y", DType::I64, &[], x);
    let mut wanted = all(&net, x, y).unwrap().to_vec();
    wanted.extend(all(&net, x, (1i64 << 53) as f64).unwrap());
    let large = 1i64 << 53;
    let (a, b) = (vec![large + 1, large, 3, -7], vec![large, large + 1, 3, 7]);
    let lod = Some(Lod::from_lengths1(&[1, 0, 3]).unwrap());
    let ids =
        |ids: &Vec<i64>| Variable::new(Dense::from_vec(&[4], ids.clone()).unwrap(), lod.clone()).unwrap();
    let values = run(net, &[(x, &ids(&a)), (y, &ids(&b))], &wanted);
    for (k, value) in values.iter().enumerate() {
        let other = |i: usize| if k < 6 { b[i] } else { large };
        let expected: Vec<i64> = (0..4).map(|i| i64::from(hold(a[i], other(i))[k % 6])).collect();
        assert_eq!(value.as_slice::<i64>().unwrap(), expected, "comparison {k}");
    }
}

/// A mask selects the elements of its factor and passes no gradient itself; in a step block, too.
#[test]
fn a_mask_keeps_what_is_above_a_bound() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 1);
    net.watch(x);
    let bound = net.parameter("bound", DType::F32, &[2], init::constant(0.25));
    let kept = net.mul(x, net.greater(x, bound));
    let inside = net.recurrent(x, |step, x| {
        let most = step.memory(2);
        let larger = step.greater(x, most);
        let next = step.add(step.mul(x, larger), step.mul(most, step.less_equal(x, most)));
        step.update(most, next);
        next
    });
    let loss = net.add(net.sum(kept), net.sum(inside));
    let mut program = net.finish().unwrap();
    let grads = backward::differentiate(&mut program, &ops::catalogue(), loss.id()).unwrap();
    assert!(!grads.contains_key(&bound.id()), "no gradient passes a comparison");
    let wanted = [kept.id(), inside.id(), grads[&x.id()]];
    let mut executor = Executor::new(&program, &ops::catalogue(), &wanted, 1).unwrap();
    let value = feed(3, 2, &[2, 0, 1], vec![0.5, 0.25, 0.3, 0.5, -1.0, 2.0]);
    let mut scope = Scope::of(&program).unwrap();
    executor.run(&mut scope, &Run::train(&[(x.id(), &value)], 0).until(Stage::Gradients)).unwrap();
    let [kept, inside, dx] = wanted.map(|v| executor.fetch(v).unwrap().as_slice::<f32>().unwrap().to_vec());
    assert_eq!(kept, [0.5, 0.0, 0.3, 0.5, 0.0, 2.0]);
    // The running maximum from 0.
    assert_eq!(inside, [0.5, 0.25, 0.5, 0.5, 0.0, 2.0]);
    // The gradients through the mask, and of the rows that hold a maximum.
    assert_eq!(dx, [1.0 + 2.0, 0.0 + 1.0, 1.0 + 0.0, 1.0 + 1.0, 0.0, 1.0 + 1.0]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let net = Builder::new();
    let x = net.feed("x", DType::I32, &[2], 1);
    let floats = net.feed("floats", DType::F32, &[3], 1);
    let other = net.feed("other", DType::F32, &[2], 1);
    let flags = net.feed("flags", DType::Bool, &[2], 1);
    let error = |made: Var| made.refused().to_string();
    let cases = [
        (
            error(net.greater(x, 0.5)),
            "attribute `number`: expected a whole number that fits i32, the dtype of `x`",
        ),
        (
            error(net.greater(x, 2f64.powi(31))),
            "attribute `number`: expected a whole number that fits i32, the dtype of `x`",
        ),
        (
            error(net.less(x, f64::NAN)),
            "attribute `number`: expected a whole number that fits i32, the dtype of `x`",
        ),
        (error(net.equal(x, floats)), "`y`: expected i32, the dtype of `x`"),
        (error(net.equal(floats, other)), "rows and LoD of `y`"),
        (error(net.less(flags, 1)), "`x`: expected dtype f32 or f64 or i32 or i64"),
        (
            error(net.append("less", &[("x", &[x])], Default::default())),
            "what `x` is compared with: expected a variable `y` or a `number`, got neither",
        ),
    ];
    for (error, text) in cases {
        assert!(error.contains(text) && error.contains(file!()), "{text}\nis not in {error}");
    }
    net.greater(x, -2f64.powi(31));
}
