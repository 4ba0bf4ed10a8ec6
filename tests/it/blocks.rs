//! Layers that are made of other operators: attention, transformer blocks and simple recurrent units.

use ndarray::Array2;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Attention, Embedding, Norm, Qrnn, QrnnPool, Sru, Stacked, TransformerBlock};
use unpadded::ops::Pool;
use unpadded::program::Recurrence;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Program, Var, Variable};

const WIDTH: usize = 4;

/// Numbers without a pattern.
fn numbers(rows: usize, salt: f64) -> Array2<f64> {
    Array2::from_shape_fn((rows, WIDTH), |(i, j)| ((i * WIDTH + j) as f64 * 1.7 + salt).sin())
}

fn sequences(lengths: &[usize], rows: Array2<f64>) -> Variable {
    Variable::sequences(rows, Lod::from_lengths1(lengths).unwrap()).unwrap()
}

/// A program of one feed and its outputs, with parameters that do not begin at 0.
struct Made {
    program: Program,
    executor: Executor,
    scope: Scope,
    x: Var,
    y: Var,
}

fn made(layer: impl FnOnce(Var) -> Var) -> Made {
    let net = Builder::new().seed(3);
    let x = net.feed("x", DType::F64, &[WIDTH], 1);
    let y = layer(x);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let executor = Executor::new(&program, &registry, &[y.id()], 2).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    for (k, id) in program.parameters().enumerate() {
        let name = program.var(id).name.clone();
        let start = scope.get(&name).unwrap();
        let shifted = start.as_slice::<f64>().unwrap().iter().zip(0..);
        let shifted: Vec<f64> = shifted.map(|(x, i)| x + 0.1 * ((i + 3 * k) as f64).sin()).collect();
        scope.set(&name, Dense::from_vec(start.shape(), shifted).unwrap()).unwrap();
    }
    Made { program, executor, scope, x, y }
}

impl Made {
    fn run(&mut self, x: &Variable) -> Vec<f64> {
        self.executor.run(&mut self.scope, &Run::infer(&[(self.x.id(), x)])).unwrap();
        self.executor.fetch(self.y.id()).unwrap().as_slice::<f64>().unwrap().to_vec()
    }

    fn parameter(&mut self, name: &str) -> Vec<f64> {
        assert!(self.program.find(name).is_some(), "{name}");
        self.scope.get(name).unwrap().as_slice::<f64>().unwrap().to_vec()
    }
}

fn sigmoid(x: f64) -> f64 {
    1.0 / (1.0 + (-x).exp())
}

#[test]
fn a_simple_recurrent_unit_is_its_formula() {
    for hidden in [WIDTH, 3] {
        for reverse in [false, true] {
            let mut unit = made(|x| {
                let sru = Sru::new(hidden);
                x.sru(if reverse { sru.backwards() } else { sru })
            });
            let (lengths, x) = ([3, 0, 5, 1], numbers(9, 0.3));
            let got = unit.run(&sequences(&lengths, x.clone()));
            let [w, v, b] =
                ["weight", "weight_state", "bias"].map(|name| unit.parameter(&format!("sru_0.{name}")));
            let columns = w.len() / WIDTH;
            let mut expected = vec![0.0; 9 * hidden];
            let mut first = 0;
            for length in lengths {
                let mut c = vec![0.0; hidden];
                let order: Vec<usize> =
                    if reverse { (0..length).rev().collect() } else { (0..length).collect() };
                for row in order.into_iter().map(|t| first + t) {
                    let product =
                        |j: usize| (0..WIDTH).map(|i| x[[row, i]] * w[i * columns + j]).sum::<f64>();
                    for j in 0..hidden {
                        let gate = |k: usize| {
                            sigmoid(
                                product((1 + k) * hidden + j) + v[k * hidden + j] * c[j] + b[k * hidden + j],
                            )
                        };
                        let (f, r) = (gate(0), gate(1));
                        c[j] = f * c[j] + (1.0 - f) * product(j);
                        let skip = if hidden == WIDTH { x[[row, j]] } else { product(3 * hidden + j) };
                        expected[row * hidden + j] = r * c[j] + (1.0 - r) * skip;
                    }
                }
                first += length;
            }
            for (got, expected) in got.iter().zip(&expected) {
                assert!((got - expected).abs() < 1e-12, "{hidden}, {reverse}: {got} for {expected}");
            }
        }
    }
}

#[test]
fn a_quasi_recurrent_network_is_its_formula() {
    let pools = [(QrnnPool::F, 2), (QrnnPool::Fo, 3), (QrnnPool::Ifo, 4)];
    for ((pool, parts), window) in pools.into_iter().flat_map(|pool| [1, 2, 3].map(|window| (pool, window))) {
        for reverse in [false, true] {
            let mut unit = made(|x| {
                let qrnn = Qrnn::new(3).pool(pool).window(window);
                x.qrnn(if reverse { qrnn.backwards() } else { qrnn })
            });
            let (lengths, x) = ([3, 0, 5, 1], numbers(9, 0.3));
            let got = unit.run(&sequences(&lengths, x.clone()));
            let [w, b] = ["weight", "bias"].map(|name| unit.parameter(&format!("qrnn_0.{name}")));
            let mut expected = vec![0.0; 9 * 3];
            let mut first = 0;
            for length in lengths {
                // The rows in the order in which they are read.
                let row = |t: usize| first + if reverse { length - 1 - t } else { t };
                let mut c = [0.0; 3];
                for t in 0..length {
                    let gate = |part: usize, j: usize| {
                        let column = part * 3 + j;
                        let taps = (0..window).filter(|tap| t + tap + 1 >= window);
                        taps.fold(b[column], |sum, tap| {
                            let x = x.row(row(t + tap + 1 - window));
                            sum + (0..WIDTH)
                                .map(|i| x[i] * w[(tap * WIDTH + i) * parts * 3 + column])
                                .sum::<f64>()
                        })
                    };
                    for (j, c) in c.iter_mut().enumerate() {
                        let (z, f) = (gate(0, j).tanh(), sigmoid(gate(1, j)));
                        let i = if pool == QrnnPool::Ifo { sigmoid(gate(3, j)) } else { 1.0 - f };
                        *c = f * *c + i * z;
                        let o = if pool == QrnnPool::F { 1.0 } else { sigmoid(gate(2, j)) };
                        expected[row(t) * 3 + j] = o * *c;
                    }
                }
                first += length;
            }
            for (got, expected) in got.iter().zip(&expected) {
                assert!(
                    (got - expected).abs() < 1e-12,
                    "{pool:?}, {window}, {reverse}: {got} for {expected}"
                );
            }
        }
    }
}

/// Later rows and other sequences change nothing; a position counts within the row's own sequence.
#[test]
fn causal_blocks_see_what_was_before() {
    let attentions = [
        Attention::new(2).causal().rotary(),
        Attention::new(1).causal().relative(2),
        Attention::new(2).window(2).causal(),
    ];
    for attention in attentions {
        for block in [
            TransformerBlock::new(attention.clone()),
            TransformerBlock::new(attention.clone()).norm_after().norm(Norm::rms()).hidden(5),
        ] {
            let mut model = made(|x| {
                x.transformer_block(block).transformer_block(TransformerBlock::new(attention.clone()))
            });
            let x = numbers(9, 0.9);
            let got = model.run(&sequences(&[3, 0, 6], x.clone()));
            let rows = |from: usize, to: usize| x.slice(ndarray::s![from..to, ..]).to_owned();
            for (from, to) in [(0, 3), (3, 9), (3, 5)] {
                let alone = model.run(&sequences(&[to - from], rows(from, to)));
                assert_eq!(alone, got[from * WIDTH..to * WIDTH], "{from}..{to}");
            }
        }
    }
}

/// With rotary or relative positions a window at another position has the same numbers.
#[test]
fn places_are_relative() {
    for attention in [Attention::new(2).rotary(), Attention::new(2).relative(3)] {
        let mut model = made(|x| x.attention(attention.window(1)));
        let x = numbers(8, 0.2);
        let whole = model.run(&sequences(&[8], x.clone()));
        let part = model.run(&sequences(&[6], x.slice(ndarray::s![2.., ..]).to_owned()));
        // The first row of the part lacks its predecessor.
        for (a, b) in part[WIDTH..].iter().zip(&whole[3 * WIDTH..]) {
            assert!((a - b).abs() < 1e-12, "{a} for {b}");
        }
    }
}

/// A decoder attends to a memory of other lengths, and simple recurrent units are stacked like any other.
#[test]
fn blocks_attend_to_a_memory() {
    let mut model = made(|x| {
        let memory = x.qrnn(Qrnn::new(3)).stacked(Stacked::new(Sru::new(2), 2).bidirectional());
        let pooled = memory.sequence_pool(unpadded::ops::Pool::Mean);
        let query = pooled.attention(Attention::new(2).over(memory));
        let decoder = TransformerBlock::new(Attention::new(1).causal()).over(Attention::new(2).over(memory));
        x.transformer_block(decoder) + query.sequence_expand_as(x)
    });
    let x = numbers(5, 1.1);
    let both = model.run(&sequences(&[2, 0, 3], x.clone()));
    let alone = model.run(&sequences(&[3], x.slice(ndarray::s![2.., ..]).to_owned()));
    assert_eq!(alone, both[2 * WIDTH..]);
    assert!(both.iter().all(|x| x.is_finite()));
}

/// A step block built by the methods of one builder.
fn stepped(method_of: impl for<'a> Fn(&'a Builder, &'a Builder) -> &'a Builder) -> String {
    let net = Builder::new();
    let x = net.feed("x", DType::F64, &[3], 2);
    let sentences = Recurrence { level: Some(0), ..Recurrence::default() };
    let outer = net.recurrent_with(sentences, x, |step, sentence| {
        let net = method_of(&net, step);
        let rows = net.recurrent(sentence, |inner, row| {
            let net = method_of(net, inner);
            let before = inner.memory(4);
            let joined = net.concat(&[row, before]);
            let now = net.tanh(net.linear(joined, 4));
            inner.update(before, now);
            now
        });
        let states = net.lstm(rows, 4);
        net.sequence_pool(net.concat(&[states, rows]), Pool::Last)
    });
    let whole = net.tanh(outer);
    net.finish().map(|program| format!("{program}{}", whole.id().0)).unwrap()
}

#[test]
fn a_builder_around_a_step_appends_to_the_step() {
    assert_eq!(stepped(|net, _| net), stepped(|_, step| step));
}

#[test]
fn the_likeliest_column_is_an_id_as_ids_are_fed() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 1);
    let label = net.feed_like("label", DType::I64, &[], x);
    assert_eq!(net.spec(x.argmax()), net.spec(label));
    let table = net.layer(Embedding::new(3, 3));
    net.recurrent(x, |step, x_t| {
        let own = step.memory_of(DType::I64, &[]);
        let text = (x_t + table.of(own)).argmax();
        step.update(own, text);
        text
    });
    net.finish().unwrap();
}
