//! The options of recurrent layers: each against the formula in plain loops, and its gradients against central
//! differences.

use crate::refused::Outcome;
use ndarray::{Array1, Array2, ArrayView1, Axis, Ix1, Ix2, concatenate, s};
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::{
    Activation, Embedding, Gru, Linear, Lstm, LstmWeights, Mgu, RecurrentWeights, Reset, Rnn, Stacked, init,
};
use unpadded::op::testing;
use unpadded::ops::UpdateGate;
use unpadded::program::{VarId, Vars, backward};
use unpadded::{Builder, DType, Lod, Mode, Program, Var, Variable, ops};

const IN: usize = 3;
const LENGTHS: [usize; 4] = [3, 0, 4, 1];

/// Numbers without a pattern, between -0.8 and 0.8.
fn number(i: usize, salt: usize) -> f64 {
    0.8 * ((i + 1) as f64 * 2.4 + salt as f64 * 0.9).sin()
}

fn input() -> Variable {
    let lod = Lod::from_lengths1(&LENGTHS).unwrap();
    let rows = Array2::from_shape_fn((lod.rows(), IN), |(i, j)| number(i * IN + j, 0));
    Variable::sequences(rows, lod).unwrap()
}

/// A scope whose parameters are all without a pattern, so that none is zero.
fn scope(program: &Program) -> Scope {
    let mut scope = Scope::of(program).unwrap();
    for (salt, id) in program.parameters().enumerate() {
        let name = &program.var(id).name;
        let mut value = scope.get(name).unwrap();
        let numbers = value.as_mut_slice::<f64>().unwrap();
        numbers.iter_mut().enumerate().for_each(|(i, x)| *x = number(i, salt + 1));
        scope.set(name, value).unwrap();
    }
    scope
}

/// The results of `build`, run once.
struct Ran {
    program: Program,
    scope: Scope,
    values: Vec<Variable>,
}

impl Ran {
    fn new(mode: Mode, build: impl Fn(&Builder, Var) -> Vec<Var>) -> Self {
        let net = Builder::new();
        let x = net.feed("x", DType::F64, &[IN], 1);
        let wanted: Vec<VarId> = build(&net, x).into_iter().map(Var::id).collect();
        let program = net.finish().unwrap();
        let mut scope = scope(&program);
        let mut exe = Executor::new(&program, &ops::catalogue(), &wanted, 1).unwrap();
        let x_value = input();
        let feeds = [(x.id(), &x_value)];
        exe.run(&mut scope, &with!(Run::train(&feeds, 1).until(Stage::Forward), mode)).unwrap();
        let values = wanted.iter().map(|&id| exe.fetch(id).unwrap()).collect();
        Self { program, scope, values }
    }

    fn matrix(&self, k: usize) -> Array2<f64> {
        let dense = self.values[k].storage().to_dense().unwrap().into_owned();
        dense.into_array::<f64>().unwrap().into_dimensionality::<Ix2>().unwrap()
    }

    fn weight(&mut self, name: &str) -> Array2<f64> {
        let value = self.scope.get(name).unwrap().into_array::<f64>().unwrap();
        value.into_dimensionality::<Ix2>().unwrap()
    }

    fn bias(&mut self, name: &str) -> Array1<f64> {
        let value = self.scope.get(name).unwrap().into_array::<f64>().unwrap();
        value.into_dimensionality::<Ix1>().unwrap()
    }
}

fn sigmoid(x: &Array1<f64>) -> Array1<f64> {
    x.mapv(|x| 1.0 / (1.0 + (-x).exp()))
}

fn tanh(x: &Array1<f64>) -> Array1<f64> {
    x.mapv(f64::tanh)
}

/// The output after every step and the last states, by a step in plain code: from x and the states to the states.
fn reference<const S: usize>(
    widths: [usize; S],
    step: impl Fn(ArrayView1<'_, f64>, &[Array1<f64>; S]) -> [Array1<f64>; S],
) -> Vec<Array2<f64>> {
    let x = input().storage().to_dense().unwrap().into_owned().into_array::<f64>().unwrap();
    let x = x.into_dimensionality::<Ix2>().unwrap();
    let (mut row, mut out) = (0, Vec::new());
    let mut last = widths.map(|width| Array2::zeros((0, width)));
    for length in LENGTHS {
        let mut states = widths.map(Array1::zeros);
        for _ in 0..length {
            states = step(x.row(row), &states);
            out.push(states[0].clone());
            row += 1;
        }
        last.iter_mut().zip(&states).for_each(|(last, state)| last.push_row(state.view()).unwrap());
    }
    let rows: Vec<_> = out.iter().map(|row| row.view().insert_axis(Axis(0))).collect();
    [concatenate(Axis(0), &rows).unwrap()].into_iter().chain(last).collect()
}

#[track_caller]
fn agree(ran: &Ran, expected: &[Array2<f64>]) {
    assert_eq!(ran.values.len(), expected.len(), "{}", ran.program);
    for (k, expected) in expected.iter().enumerate() {
        let got = ran.matrix(k);
        assert_eq!(got.shape(), expected.shape());
        let worst = (&got - expected).iter().fold(0.0, |m: f64, x| m.max(x.abs()));
        assert!(worst < 1e-12, "value {k} is {worst} off\n{}", ran.program);
    }
}

/// An LSTM with everything, step by step.
#[test]
fn lstm_with_all_options_is_its_formula() {
    const H: usize = 4;
    for bound in [0.3, 100.0] {
        let options = || {
            let gates = Activation::Sigmoid;
            let all = Lstm::new(H).named("lstm").peepholes().projection(2).cell_clip(bound);
            all.activations(gates, Activation::Identity, Activation::Relu)
        };
        let mut ran = Ran::new(Mode::Infer, |net, x| {
            let (y, h, c) = net.lstm_states(x, options());
            vec![y, h, c]
        });
        let [w_ih, w_hh, w_hr] =
            ["weight_ih", "weight_hh", "weight_hr"].map(|w| ran.weight(&format!("lstm.{w}")));
        let [b, peephole] = ["bias", "peephole"].map(|b| ran.bias(&format!("lstm.{b}")));
        let expected = reference([2, H], |x, [h, c]| {
            let pre = x.dot(&w_ih) + h.dot(&w_hh) + &b;
            let gate = |k: usize| pre.slice(s![k * H..(k + 1) * H]);
            let seen = |k: usize| peephole.slice(s![k * H..(k + 1) * H]);
            let i = sigmoid(&(&gate(0) + &(&seen(0) * c)));
            let f = sigmoid(&(&gate(1) + &(&seen(1) * c)));
            let c = (f * c + i * gate(2)).mapv(|c| c.clamp(-bound, bound));
            let o = sigmoid(&(&gate(3) + &(&seen(2) * &c)));
            [(o * c.mapv(|c| c.max(0.0))).dot(&w_hr), c]
        });
        agree(&ran, &expected);
        let clipped = expected[2].iter().filter(|c| c.abs() == bound).count();
        assert_eq!(clipped > 0, bound < 1.0, "{clipped} numbers are at the bound of {bound}");
    }
}

#[test]
fn gru_in_both_conventions_is_its_formula() {
    const H: usize = 4;
    for reset in [Reset::After, Reset::Before] {
        for update in [UpdateGate::Keeps, UpdateGate::Takes] {
            let mut ran = Ran::new(Mode::Infer, |net, x| {
                let (y, h) = net.gru_states(x, Gru::new(H).reset(reset).update(update).named("gru"));
                vec![y, h]
            });
            let [w_ih, w_hh] = ["gru.weight_ih", "gru.weight_hh"].map(|w| ran.weight(w));
            let (b_ih, b_hh) = match reset {
                Reset::After => (ran.bias("gru.bias_ih"), ran.bias("gru.bias_hh")),
                Reset::Before => (ran.bias("gru.bias"), Array1::zeros(3 * H)),
            };
            let expected = reference([H], |x, [h]| {
                let (from_x, from_h) = (x.dot(&w_ih) + &b_ih, h.dot(&w_hh) + &b_hh);
                let gate = |all: &Array1<f64>, k: usize| all.slice(s![k * H..(k + 1) * H]).to_owned();
                let r = sigmoid(&(gate(&from_x, 0) + gate(&from_h, 0)));
                let z = sigmoid(&(gate(&from_x, 1) + gate(&from_h, 1)));
                let kept = match reset {
                    Reset::After => r * gate(&from_h, 2),
                    Reset::Before => (r * h).dot(&w_hh.slice(s![.., 2 * H..])),
                };
                let n = tanh(&(gate(&from_x, 2) + kept));
                match update {
                    UpdateGate::Keeps => [(1.0 - &z) * n + z * h],
                    UpdateGate::Takes => [(1.0 - &z) * h + z * n],
                }
            });
            agree(&ran, &expected);
        }
    }
}

#[test]
fn minimal_gated_unit_is_its_formula() {
    const H: usize = 4;
    let mut ran = Ran::new(Mode::Infer, |net, x| {
        let (y, h) = net.mgu_states(x, Mgu::new(H).named("mgu"));
        vec![y, h]
    });
    let [w_ih, w_hh] = ["mgu.weight_ih", "mgu.weight_hh"].map(|w| ran.weight(w));
    let b = ran.bias("mgu.bias");
    let expected = reference([H], |x, [h]| {
        let (from_x, from_h) = (x.dot(&w_ih) + &b, h.dot(&w_hh));
        let f = sigmoid(&(&from_x.slice(s![..H]) + &from_h.slice(s![..H])));
        let n = tanh(&(&from_x.slice(s![H..]) + &(&f * h).dot(&w_hh.slice(s![.., H..]))));
        [(1.0 - &f) * h + f * n]
    });
    agree(&ran, &expected);
}

/// Outside of training the result is a mean of old and new; in training each number is one of the two.
#[test]
fn zoneout_keeps_old_states() {
    const H: usize = 16;
    let rate = 0.3;
    let build = |net: &Builder, x: Var| {
        let (y, h) = net.rnn_states(x, Rnn::new(H).zoneout([rate]).named("rnn"));
        vec![y, h]
    };
    let mut ran = Ran::new(Mode::Infer, build);
    let [w_ih, w_hh] = ["rnn.weight_ih", "rnn.weight_hh"].map(|w| ran.weight(w));
    let b = ran.bias("rnn.bias");
    let next = |x: ArrayView1<'_, f64>, h: &Array1<f64>| tanh(&(x.dot(&w_ih) + h.dot(&w_hh) + &b));
    agree(&ran, &reference([H], |x, [h]| [rate * h + (1.0 - rate) * next(x, h)]));

    let trained = Ran::new(Mode::Train, build);
    let y = trained.matrix(0);
    let row = std::cell::Cell::new(0);
    let (kept, all) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    reference([H], |x, [h]| {
        let (new, got) = (next(x, h), y.row(row.get()).to_owned());
        for ((&got, &old), &new) in got.iter().zip(h).zip(&new) {
            let is_old = (got - old).abs() < 1e-12;
            assert!(is_old || (got - new).abs() < 1e-12, "{got} is neither {old} nor {new}");
            kept.set(kept.get() + usize::from(is_old));
            all.set(all.get() + 1);
        }
        row.set(row.get() + 1);
        [got]
    });
    let share = f64::from(kept.get() as u32) / f64::from(all.get() as u32);
    assert!((0.15..0.45).contains(&share), "{share} of the numbers were kept");
}

/// All rows of a sequence are masked alike, outside and inside of a step block; sequences differ.
#[test]
fn variational_dropout_has_one_mask_a_sequence() {
    let ran = Ran::new(Mode::Train, |net, x| {
        let ones = net.fill_like(net.linear(x, 64), 1.0);
        let outside = net.variational_dropout(ones, 0.5);
        let inside = net.recurrent(ones, |step, one| {
            let before = step.memory_of(DType::F64, &[64]);
            // A memory of ones, so that the operator stays in the loop.
            let next = step.maximum(before, one);
            step.update(before, next);
            step.variational_dropout(next, 0.5)
        });
        vec![outside, inside]
    });
    for k in 0..2 {
        let masked = ran.matrix(k);
        let kept = masked.iter().filter(|&&x| x == 2.0).count() as f64 / masked.len() as f64;
        assert!(masked.iter().all(|&x| x == 0.0 || x == 2.0) && (0.35..0.65).contains(&kept), "{kept}");
        let (mut row, mut firsts) = (0, Vec::new());
        for length in LENGTHS.into_iter().filter(|&n| n > 0) {
            (row..row + length).for_each(|other| assert_eq!(masked.row(other), masked.row(row)));
            firsts.push(masked.row(row));
            row += length;
        }
        assert!(firsts[0] != firsts[1] && firsts[1] != firsts[2] && firsts[0] != firsts[2]);
    }
}

#[test]
fn residual_layers_add_their_input() {
    let mut ran = Ran::new(Mode::Infer, |net, x| {
        let y = net.stacked(x, Stacked::new(Rnn::new(IN), 2).residual());
        vec![y]
    });
    let layers: Vec<_> = (0..2)
        .map(|k| {
            let [w_ih, w_hh] = ["weight_ih", "weight_hh"].map(|w| ran.weight(&format!("rnn_{k}.{w}")));
            (w_ih, w_hh, ran.bias(&format!("rnn_{k}.bias")))
        })
        .collect();
    let next = |k: usize, x: ArrayView1<'_, f64>, h: &Array1<f64>| {
        let (w_ih, w_hh, b) = &layers[k];
        tanh(&(x.dot(w_ih) + h.dot(w_hh) + b))
    };
    let mut expected = reference([IN, IN, IN], |x, [_, first, second]| {
        let first = next(0, x, first);
        let second = next(1, first.view(), second);
        [&first + &second, first, second]
    });
    expected.truncate(1);
    agree(&ran, &expected);
}

/// Checks the gradients of a layer against central differences.
#[track_caller]
fn differences(name: &str, build: impl Fn(&Builder, Var) -> Vec<Var>) {
    testing::check_gradients(Builder::new(), &[input()], &|net, inputs| build(net, inputs[0]))
        .unwrap_or_else(|error| panic!("{name}: {error}"));
}

fn lstm(net: &Builder, x: Var, options: Lstm) -> Vec<Var> {
    let (y, h, c) = net.lstm_states(x, options);
    vec![y, h, c]
}

fn gru(net: &Builder, x: Var, options: Gru) -> Vec<Var> {
    let (y, h) = net.gru_states(x, options);
    vec![y, h]
}

/// A loss on the last cell state alone reaches the weights.
#[test]
fn gradients_of_the_last_cell_state() {
    let options = [Lstm::new(4), Lstm::new(4).peepholes(), Lstm::new(4).backwards()];
    for options in options {
        differences("last cell state", |net, x| vec![net.lstm_states(x, options.clone()).2]);
    }
}

/// The error of a check has the number that is furthest off, its name, and the line of the call.
#[test]
fn a_wrong_gradient_is_named() {
    let check = |inputs: &[Variable], build: &dyn Fn(&Builder, &[Var]) -> Vec<Var>| {
        let error = testing::check_gradients(Builder::new(), inputs, build).unwrap_err();
        assert!(error.to_string().contains("cells.rs:"), "{error}");
        error.to_string()
    };
    // Half of the slope passes no gradient.
    let half = |net: &Builder, x: Var| {
        let held = x.tanh() * 1.0;
        net.stop_gradient(held);
        held + x.linear(1)
    };
    let error = check(&[input()], &|net, inputs| vec![half(net, inputs[0])]);
    assert!(
        error.starts_with("gradient of `input_0`, number ")
            && error.contains(" by central differences, got "),
        "{error}"
    );
    assert!(error.contains("(compiled)") || error.contains("(interpreted)"), "{error}");
    let error = check(&[input()], &|net, inputs| {
        let unused = net.parameter("unused", DType::F64, &[1], init::constant(1.0));
        vec![inputs[0] * (unused * 0.0)]
    });
    assert!(error.starts_with("gradient of `unused`: expected a number that is not 0, got none"), "{error}");
    let error = check(&[input()], &|_, inputs| vec![inputs[0].linear(0)]);
    assert!(error.contains("linear"), "{error}");
    let ids = Variable::from_sequences(&[vec![1i64, 2], vec![]]).unwrap();
    let table = Embedding::new(4, 3);
    let error = check(std::slice::from_ref(&ids), &|_, inputs| vec![inputs[0].embedding(table.clone())]);
    assert!(error.starts_with("output 0 of the model: expected f64, got f32"), "{error}");
    let error = check(&[ids], &|net, inputs| vec![net.cast(inputs[0].embedding(table.clone()), DType::F64)]);
    assert!(error.starts_with("parameter `embedding_0.weight`: expected f64, got f32"), "{error}");
    let error = check(&[input()], &|_, _| Vec::new());
    assert!(error.starts_with("outputs of the model: expected at least one, got none"), "{error}");
}

/// Several inputs: two that share their sequences, and one with a row for each sequence.
#[test]
fn inputs_share_their_sequences_if_their_lengths_are_equal() {
    let topic = Variable::dense(Array2::from_shape_fn((LENGTHS.len(), 2), |(i, j)| number(2 * i + j, 5)));
    testing::check_gradients(Builder::new(), &[input(), input(), topic], &|net, inputs| {
        let &[x, y, topic] = inputs else { panic!("three inputs") };
        let h = net.recurrent((x, y), |step, (x, y)| {
            let h_prev = step.memory(2);
            let h = (x.linear(2) + y.linear(2) + topic.linear(2) + h_prev.linear(2)).tanh();
            step.update(h_prev, h);
            h
        });
        vec![h]
    })
    .unwrap();
}

/// The widths of a matrix memory's values and keys.
const MATRIX: [usize; 2] = [4, 2];

/// A memory of matrices, C_t = f · C_{t−1} + i · v · kᵀ, where f depends on what was read before; h = tanh(C · q).
fn matrix_memory(net: &Builder, x: Var) -> Vec<Var> {
    let [values, keys] = MATRIX;
    let (h, last) = net.recurrent(x, |step, x| {
        let c = step.memory_of(DType::F64, &MATRIX);
        let plain = |name: &str, width| step.linear(x, Linear::new(width).without_bias().named(name));
        let (q, k, v) = (plain("q", keys), plain("k", keys), plain("v", values));
        let i = step.sigmoid(plain("i", 1));
        let f = step.sigmoid(step.linear(step.matvec(c, q), Linear::new(1).without_bias().named("f")));
        let next = step.add(step.mul(c, f), step.mul(step.outer(v, k), i));
        step.update(c, next);
        (step.tanh(step.matvec(next, q)), step.last(c))
    });
    vec![h, last]
}

#[test]
fn a_matrix_memory_is_its_formula() {
    let [values, keys] = MATRIX;
    let mut ran = Ran::new(Mode::Infer, |net, x| vec![matrix_memory(net, x)[0]]);
    let [q, k, v, i, f] = ["q", "k", "v", "i", "f"].map(|name| ran.weight(&format!("{name}.weight")));
    let mut expected = reference([values, values * keys], |x, [_, c]| {
        let (q, k, v) = (x.dot(&q), x.dot(&k), x.dot(&v));
        let c = c.clone().into_shape_with_order((values, keys)).unwrap();
        let (i, f) = (sigmoid(&x.dot(&i))[0], sigmoid(&c.dot(&q).dot(&f))[0]);
        let c = Array2::from_shape_fn((values, keys), |(a, b)| f * c[(a, b)] + i * v[a] * k[b]);
        [tanh(&c.dot(&q)), Array1::from_iter(c)]
    });
    expected.truncate(1);
    agree(&ran, &expected);
}

#[test]
fn gradients_of_a_matrix_memory() {
    differences("matrix memory", matrix_memory);
    // The last matrices alone.
    differences("last matrices", |net, x| vec![matrix_memory(net, x)[1]]);
}

#[test]
fn a_matrix_memory_has_the_same_bits_on_any_number_of_threads() {
    let net = Builder::new();
    let x = net.feed("x", DType::F64, &[IN], 1);
    net.watch(x);
    let values = matrix_memory(&net, x);
    let sums = values.iter().map(|&v| net.sum(net.square(v)));
    let loss = sums.reduce(|a, b| net.add(a, b)).unwrap();
    let mut program = net.finish().unwrap();
    let grads = backward::differentiate(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let gradients = program.trained_parameters().chain([x.id()]).map(|v| grads[&v]);
    let wanted: Vec<VarId> = values.iter().map(|v| v.id()).chain(gradients).collect();
    let run = |threads: usize| {
        let (mut scope, x_value) = (scope(&program), input());
        let mut exe = Executor::new(&program, &ops::catalogue(), &wanted, threads).unwrap();
        exe.run(&mut scope, &Run::train(&[(x.id(), &x_value)], 1).until(Stage::Gradients)).unwrap();
        let fetched = |&v: &VarId| exe.fetch(v).unwrap().as_slice::<f64>().unwrap().to_vec();
        wanted.iter().map(fetched).collect::<Vec<_>>()
    };
    let one = run(1);
    assert_eq!(one[1].len(), LENGTHS.len() * MATRIX.iter().product::<usize>());
    assert!(one.iter().all(|numbers| numbers.iter().any(|&x| x != 0.0)));
    for threads in [2, 3] {
        assert!(run(threads) == one, "{threads} threads");
    }
}

#[test]
fn gradients_of_lstm_options() {
    let smooth = Lstm::new(4).activations(Activation::Tanh, Activation::Sigmoid, Activation::Identity);
    let cases = [
        ("peepholes", Lstm::new(4).peepholes()),
        ("projection", Lstm::new(4).projection(2)),
        ("cell clip", Lstm::new(4).cell_clip(0.3)),
        ("activations", smooth),
        ("all", Lstm::new(4).peepholes().projection(5).cell_clip(0.3).backwards()),
        ("zoneout", Lstm::new(4).zoneout([0.2, 0.4])),
        ("recurrent dropout", Lstm::new(4).recurrent_dropout(0.3).without_bias()),
    ];
    for (name, options) in cases {
        differences(name, |net, x| lstm(net, x, options.clone()));
    }
}

#[test]
fn gradients_of_gru_options() {
    for update in [UpdateGate::Keeps, UpdateGate::Takes] {
        for reset in [Reset::After, Reset::Before] {
            let options = Gru::new(4).reset(reset).update(update);
            differences("gru", |net, x| gru(net, x, options.clone()));
            differences("gru, dropout", |net, x| gru(net, x, options.clone().recurrent_dropout(0.3)));
        }
    }
}

#[test]
fn gradients_of_small_cells() {
    differences("rnn", |net, x| net.rnn_states(x, Rnn::new(4).zoneout([0.3])).list());
    differences("mgu", |net, x| net.mgu_states(x, Mgu::new(4).backwards()).list());
}

#[test]
fn gradients_of_stacked_layers() {
    differences("stacked", |net, x| {
        let options = Stacked::new(Gru::new(2), 2).bidirectional().residual();
        let (y, states) = net.stacked_states(x, options.dropout(0.2).variational_dropout(0.3));
        [y].into_iter().chain(states.into_iter().flatten()).collect()
    });
    differences("bidirectional", |net, x| vec![net.bidirectional(x, Lstm::new(2))]);
}

#[test]
fn what_does_not_fit_is_refused() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 1);
    let mut all = Vec::new();
    let mut refused = |var: Var| {
        let error = var.refused().to_string();
        let (message, location) = error.split_once(" (at ").unwrap();
        assert!(location.starts_with(file!()), "{error}");
        all.push(message.to_owned());
    };
    refused(net.lstm(x, Lstm::new(2).cell_clip(0.0)));
    refused(net.lstm(x, Lstm::new(2).zoneout([0.0, 1.0])));
    refused(net.gru(x, Gru::new(2).recurrent_dropout(f64::NAN)));
    refused(net.stacked(x, Stacked::new(Rnn::new(2), 1).variational_dropout(1.5)));
    refused(net.stacked(x, Stacked::new(Rnn::new(2), 1).dropout(1.5)));
    refused(net.stacked(x, Stacked::new(Rnn::new(2), 1).dropout(f64::NAN)));
    refused(net.lstm(x, Lstm::new(usize::MAX)));
    refused(net.gru(x, Gru::new(usize::MAX / 2)));
    refused(net.mgu(x, Mgu::new(usize::MAX)));
    refused(net.stacked(x, Stacked::new(Rnn::new(2), usize::MAX).bidirectional()));
    refused(net.stacked(x, Stacked::new(Rnn::new(2), 0)));
    refused(net.stacked(x, Stacked::new(Rnn::new(2), 2).initial(vec![[x]])));
    refused(net.layer_with(Stacked::new(Rnn::new(2), 2), []).of(x));
    let weight = |dims: &[usize]| net.parameter("w", DType::F32, dims, init::zeros());
    // Cells that take their weights apart name the weight too, not the operator that does it.
    let narrow = |gates: usize| RecurrentWeights {
        w_ih: weight(&[3, gates]),
        w_hh: weight(&[2, 2]),
        b_ih: None,
        b_hh: None,
    };
    for reset in [Reset::Before, Reset::After] {
        refused(net.layer_with(Gru::new(2).reset(reset), narrow(6)).of(x));
        refused(net.layer_with(Gru::new(usize::MAX).reset(reset), narrow(6)).of(x));
    }
    refused(net.layer_with(Mgu::new(2), narrow(4)).of(x));
    let gates = RecurrentWeights { w_ih: weight(&[3, 8]), w_hh: weight(&[2, 8]), b_ih: None, b_hh: None };
    refused(net.layer_with(Lstm::new(2).peepholes(), gates).of(x));
    let weights = with!(LstmWeights::from(gates), peepholes: Some(weight(&[4])));
    refused(net.layer_with(Lstm::new(2).peepholes(), weights).of(x));
    insta::assert_snapshot!(all.join("\n"));
}
