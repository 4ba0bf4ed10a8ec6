//! Hard cases by name.

use ndarray::{Array1, Array2};

use unpadded::layers::{Gru, Linear, Lstm, Mgu, Reset, init};
use unpadded::op::Attributes;
use unpadded::ops::Pool;
use unpadded::program::{Recurrence, Step, VarId};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Var, Variable};

use super::generator::{Case, Dice};
use super::{alone, compiled, distance, numbers, run};
use unpadded::executor::{Scope, interpret};

/// Rows of `width` numbers in sequences of these lengths.
fn sequences(lengths: &[Vec<usize>], width: usize) -> Variable {
    let lod = Lod::from_lengths(lengths).unwrap();
    let mut dice = Dice::new(lod.rows() as u64);
    let values = (0..lod.rows() * width).map(|_| dice.number()).collect();
    let rows = Dense::from_vec(&[lod.rows(), width], values).unwrap().cast(DType::F32);
    Variable::new(rows, Some(lod)).unwrap()
}

fn rows(n: usize, width: usize) -> Variable {
    let mut dice = Dice::new(99);
    let values = (0..n * width).map(|_| dice.number()).collect();
    Variable::dense(Dense::from_vec(&[n, width], values).unwrap().cast(DType::F32))
}

fn spread(width: usize) -> Linear {
    Linear::new(width).weight_init(init::uniform(-0.8, 0.8)).bias_init(init::uniform(-0.8, 0.8))
}

/// Builds a case from the variables that `build` returns, and compares the executor with the interpreter. Returns the values.
fn holds(feeds: &[(&str, Variable)], build: impl FnOnce(&Builder, &[Var]) -> Vec<Var>) -> (Case, Vec<Dense>) {
    let net = Builder::new().seed(5);
    let mut vars = Vec::new();
    for (name, value) in feeds {
        let levels = value.lod().map_or(0, |lod| lod.levels());
        let var = net.feed(name, DType::F32, &value.shape()[1..], levels);
        net.watch(var);
        vars.push(var);
    }
    let results = build(&net, &vars);
    let mut loss: Option<Var> = None;
    for &result in &results {
        let part = net.sum(net.square(result));
        loss = Some(loss.map_or(part, |sum| net.add(sum, part)));
    }
    let (loss, registry) = (loss.unwrap().id(), net.registry());
    let feeds = vars.iter().zip(feeds).map(|(var, (_, value))| (var.id(), value.clone())).collect();
    let values = results.iter().map(|v| v.id()).collect();
    let case = Case::of(net.finish().unwrap(), registry, loss, feeds, values).unwrap();
    let fed = case.fed();
    let data: Vec<u64> = (0..fed[0].1.batch_size() as u64).collect();
    let mut scope = Scope::of(&case.program).unwrap();
    let expected = interpret(&case.program, &case.registry, &mut scope, &run(&fed, &data)).unwrap();
    let all: Vec<VarId> = case.values.iter().chain(&case.gradients).copied().collect();
    let got = compiled(&case, &all, &fed, &data, 1).unwrap();
    for (k, var) in all.iter().enumerate() {
        let expected = expected[var].storage().to_dense().unwrap();
        let fine = if k < case.values.len() {
            expected.bits_eq(&got[k])
        } else {
            distance(&got[k], &expected, 1.0) < 1e-4
        };
        assert!(
            fine,
            "`{}`: {expected:?} became {:?}\n{}",
            case.program.var(*var).name,
            got[k],
            case.program
        );
    }
    alone(&case, &all, &got, &data).unwrap();
    drop(fed);
    (case, got)
}

#[test]
fn a_sequence_without_steps_hands_its_start_on_and_the_gradient_back() {
    let (_, got) = holds(&[("x", sequences(&[vec![2, 0, 1, 0]], 3)), ("h", rows(4, 3))], |net, vars| {
        let last = net.recurrent(vars[0], |step, x| {
            let h = step.memory_from(vars[1]);
            let next = step.tanh(step.add(step.linear(h, spread(3)), x));
            step.update(h, next);
            step.last(h)
        });
        vec![last]
    });
    let (last, start, slope) =
        (numbers(&got[0]), numbers(&rows(4, 3).into_parts().0.into_dense().unwrap()), &got[2]);
    for row in [1, 3] {
        assert_eq!(last[3 * row..3 * row + 3], start[3 * row..3 * row + 3]);
        let twice: Vec<f64> = start[3 * row..3 * row + 3].iter().map(|x| 2.0 * x).collect();
        assert_eq!(numbers(slope)[3 * row..3 * row + 3], twice);
    }
}

#[test]
fn memories_that_hold_the_input_and_each_other() {
    holds(&[("x", sequences(&[vec![4, 0, 1, 3]], 2)), ("h", rows(4, 2))], |net, vars| {
        let (out, a, b) = net.recurrent(vars[0], |step, x| {
            let (before, a, b) = (step.memory(2), step.memory_from(vars[1]), step.memory(2));
            step.update(before, x);
            step.update(a, b);
            step.update(b, step.add(a, before));
            (step.mul(a, before), step.last(a), step.last(b))
        });
        vec![out, a, b]
    });
}

#[test]
fn attention_over_a_static_sub_sequence() {
    let feeds = [("x", sequences(&[vec![3, 0, 2]], 3)), ("keys", sequences(&[vec![2, 4, 0]], 3))];
    holds(&feeds, |net, vars| {
        let keys = vars[1];
        let out = net.recurrent(vars[0], |step, x| {
            let h = step.memory(3);
            let query = step.linear(h, spread(3));
            let met = step.tanh(step.add(step.sequence_expand_as(query, keys), keys));
            let weights = step.sequence_softmax(step.linear(met, spread(1)));
            let context = step.sequence_pool(step.mul(keys, weights), Pool::Sum);
            let next = step.tanh(step.add(step.linear(context, spread(3)), step.add(x, h)));
            step.update(h, next);
            next
        });
        vec![out]
    });
}

#[test]
fn an_inner_loop_that_starts_from_the_outer_memory() {
    let lengths = [vec![2, 0, 3], vec![3, 0, 1, 2, 4]];
    // Fed back or not (then nothing but the outputs depends on the inner loop), and from either end.
    for (fed_back, reverse) in [(true, false), (true, true), (false, false), (false, true)] {
        holds(&[("x", sequences(&lengths, 2)), ("start", rows(3, 2))], |net, vars| {
            let outer = Recurrence { level: Some(0), reverse };
            let inner = Recurrence { level: None, reverse };
            let (out, last) = net.recurrent_with(outer, vars[0], |step, sentence| {
                let h = step.memory_from(vars[1]);
                let (words, end) = step.recurrent_with(inner, sentence, |step, word| {
                    let g = step.memory_from(h);
                    let next = step.tanh(step.add(step.linear(g, spread(2)), word));
                    step.update(g, next);
                    (next, step.last(g))
                });
                let pooled = step.sequence_pool(sentence, Pool::Mean);
                let next =
                    step.tanh(step.add(step.linear(h, spread(2)), if fed_back { end } else { pooled }));
                step.update(h, next);
                (words, step.last(h))
            });
            vec![out, last]
        });
    }
}

#[test]
fn dropout_on_a_static_row_differs_from_step_to_step() {
    let (_, got) = holds(&[("x", sequences(&[vec![6, 2]], 4)), ("s", rows(2, 4))], |net, vars| {
        let out = net.recurrent(vars[0], |step, x| step.add(x, step.dropout(vars[1], 0.5)));
        vec![net.sub(out, vars[0])]
    });
    let masks: Vec<Vec<bool>> =
        numbers(&got[0])[..24].chunks(4).map(|r| r.iter().map(|x| x.abs() < 1e-6).collect()).collect();
    assert!(masks.iter().any(|mask| *mask != masks[0]), "{masks:?}");
}

fn matrix(scope: &mut Scope, name: &str) -> Array2<f64> {
    let value = scope.get(name).unwrap().cast(DType::F64);
    let shape = if let [n] = *value.shape() { (1, n) } else { (value.rows(), value.width()) };
    Array2::from_shape_vec(shape, numbers(&value)).unwrap()
}

fn row(value: &Variable, i: usize) -> Array1<f64> {
    let width = value.shape()[1];
    value.as_slice::<f32>().unwrap()[i * width..(i + 1) * width].iter().map(|&x| f64::from(x)).collect()
}

#[test]
fn plain_loops_over_arrays_give_the_same_numbers() {
    let x = sequences(&[vec![3, 0, 5, 1]], 3);
    let (case, got) = holds(&[("x", x.clone())], |net, vars| {
        let h = net.recurrent(vars[0], |step, x| {
            let h = step.memory(4);
            let a = step.linear(x, spread(4).named("in"));
            let next = step.tanh(step.add(a, step.linear(h, spread(4).named("back"))));
            step.update(h, next);
            next
        });
        vec![h, net.lstm(vars[0], Lstm::new(4).named("lstm"))]
    });
    let mut scope = Scope::of(&case.program).unwrap();
    let [w, b, u, c] = ["in.weight", "in.bias", "back.weight", "back.bias"].map(|n| matrix(&mut scope, n));
    let names: Vec<String> = scope.names().filter(|n| n.starts_with("lstm")).map(str::to_owned).collect();
    let find =
        |part: &str| names.iter().find(|n| n.contains(part)).unwrap_or_else(|| panic!("{part} in {names:?}"));
    let [lw, lu, lb] = [find("weight_ih"), find("weight_hh"), find("bias")].map(|n| matrix(&mut scope, n));
    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
    let lod = x.lod().unwrap();
    let (mut plain, mut lstm) = (Vec::new(), Vec::new());
    for s in 0..4 {
        let (mut h, mut g, mut cell) = (Array1::zeros(4), Array1::<f64>::zeros(4), Array1::<f64>::zeros(4));
        for i in lod.range(0, s).unwrap() {
            let x = row(&x, i);
            h = (x.dot(&w) + b.row(0) + h.dot(&u) + c.row(0)).mapv(f64::tanh);
            plain.extend(h.to_vec());
            let pre = x.dot(&lw) + g.dot(&lu) + lb.row(0);
            for k in 0..4 {
                let gate = |n: usize| pre[4 * n + k];
                cell[k] = sigmoid(gate(1)) * cell[k] + sigmoid(gate(0)) * gate(2).tanh();
                g[k] = sigmoid(gate(3)) * cell[k].tanh();
            }
            lstm.extend(g.to_vec());
        }
    }
    for (expected, got) in [plain, lstm].iter().zip(&got) {
        let far = expected.iter().zip(numbers(got)).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(far < 1e-6, "off by {far}");
    }
}

/// Values that a block inside a loop computes from parameters alone are the same at every visit; their gradients are not.
#[test]
fn operators_on_parameters_in_a_loop_that_a_memory_reaches() {
    type Made = fn(&Step, Var) -> Var;
    let made: [(&str, Made); 6] = [
        ("scale", |s, w| s.scale(w, 2.0, 0.0)),
        ("tanh", |s, w| s.tanh(w)),
        ("assign", |s, w| s.assign(w)),
        ("slice", |s, w| s.slice(s.concat(&[w, w]), 1..3)),
        ("matmul", |s, w| s.matmul(w, w)),
        ("a chain", |s, w| s.square(s.add(s.tanh(w), s.scale(w, 0.5, 0.1)))),
    ];
    for (what, make) in made {
        for depth in [1, 2, 3] {
            let lengths = [vec![2, 3], vec![1, 2, 0, 1, 2], vec![1, 3, 0, 2, 1, 2]];
            let (case, got) = holds(&[("x", sequences(&lengths[..depth], 2))], |net, vars| {
                let w = net.parameter("w", DType::F32, &[2, 2], init::uniform(-0.7, 0.7));
                vec![visits(net, vars[0], depth, None, &|step| make(step, w))]
            });
            let gradient = got.last().map(numbers).unwrap_or_default();
            assert!(
                gradient.iter().any(|d| d.abs() > 1e-3),
                "{what} {depth}: {:?}",
                case.program.var(case.loss).name
            );
        }
    }
}

/// Loops inside loops, each starting from the memory around it; the innermost one multiplies by a weight that it makes.
fn visits(net: &Builder, x: Var, depth: usize, around: Option<Var>, make: &dyn Fn(&Step) -> Var) -> Var {
    let level = if depth > 1 { Some(0) } else { None };
    net.recurrent_with(Recurrence { level, reverse: false }, x, |step, x| {
        let h = match around {
            Some(start) => step.memory_from(start),
            None => step.memory(2),
        };
        let next = match depth {
            1 => step.tanh(step.add(step.product(h, make(step), None), x)),
            _ => step.tanh(step.add(step.scale(h, 0.5, 0.1), visits(step, x, depth - 1, Some(h), make))),
        };
        step.update(h, next);
        step.last(h)
    })
}

#[test]
fn the_gradient_of_a_weight_that_an_inner_loop_scales_by_hand() {
    let net = Builder::new();
    let x = net.feed("x", DType::F64, &[1], 2);
    let w = net.parameter("w", DType::F64, &[1, 1], init::constant(0.5));
    let outer = Recurrence { level: Some(0), reverse: false };
    let last = net.recurrent_with(outer, x, |s, x| {
        let m = s.memory_of(DType::F64, &[1]);
        let last = s.recurrent(x, |s, x| {
            let h = s.memory_from(m);
            let n = s.add(s.product(x, s.scale(w, 2.0, 0.0), None), h);
            s.update(h, n);
            s.last(h)
        });
        let n = s.add(s.scale(m, 0.5, 0.0), last);
        s.update(m, n);
        n
    });
    let loss = net.sum(last).id();
    let registry = net.registry();
    // m1 = 2w, m2 = 1.5 m1 + 4w; the loss is m1 + m2 = 9w.
    let rows = Dense::from_vec(&[2, 1], vec![1.0, 2.0]).unwrap();
    let x = (x.id(), Variable::new(rows, Some(Lod::from_lengths(&[vec![2], vec![1, 1]]).unwrap())).unwrap());
    let case = Case::of(net.finish().unwrap(), registry, loss, vec![x], vec![loss]).unwrap();
    let got = compiled(&case, &[loss, case.gradients[0]], &case.fed(), &[], 1).unwrap();
    assert_eq!(got.iter().map(numbers).collect::<Vec<_>>(), [[4.5], [9.0]]);
}

#[test]
fn layers_that_cut_their_weights_over_words_in_sentences_in_documents() {
    let lengths = [vec![2, 1], vec![2, 1, 3], vec![3, 1, 2, 0, 1, 2]];
    type Layer = fn(&Builder, Var, Var) -> Var;
    let layers: [(&str, Layer); 3] = [
        ("gru", |net, x, h| net.gru(x, Gru::new(3).reset(Reset::Before).initial(h))),
        ("mgu", |net, x, h| net.mgu(x, Mgu::new(3).initial(h))),
        ("lstm", |net, x, h| net.lstm(x, Lstm::new(3).peepholes().initial(h, h))),
    ];
    for (name, layer) in layers {
        println!("{name}");
        holds(&[("x", sequences(&lengths, 3))], |net, vars| {
            let outer = Recurrence { level: Some(0), reverse: false };
            let out = net.recurrent_with(outer, vars[0], |step, document| {
                let h = step.memory(3);
                let last = step.recurrent_with(outer, document, |step, sentence| {
                    let g = step.memory_from(h);
                    let words = layer(step, sentence, g);
                    let next = step.sequence_pool(words, Pool::Last);
                    step.update(g, next);
                    step.last(g)
                });
                let next = step.tanh(step.add(last, h));
                step.update(h, next);
                next
            });
            vec![out]
        });
    }
}

/// Something before the loop reads a term to which another one is added in place, in the loop.
#[test]
fn a_term_of_a_sum_that_is_read_before_the_loop_too() {
    type Read = fn(&Step, Var, Var) -> Var;
    let reads: [Read; 4] = [
        |s, sum, a| s.mul(sum, s.tanh(a)),
        |s, sum, a| s.mul(sum, a),
        |s, sum, a| s.add(s.tanh(sum), s.tanh(a)),
        |s, sum, a| s.mul(s.linear(s.square(a), spread(2)), s.tanh(sum)),
    ];
    for read in reads {
        holds(&[("x", sequences(&[vec![3, 0, 2]], 2))], |net, vars| {
            let out = net.recurrent(vars[0], |s, x| {
                let h = s.memory(2);
                let (a, b) = (s.linear(x, spread(2)), s.linear(h, spread(2)));
                let next = s.tanh(read(s, s.add(a, b), a));
                s.update(h, next);
                next
            });
            vec![out]
        });
    }
}

#[test]
fn a_sparse_table_that_is_looked_up_and_made_dense() {
    let looked_up = |net: &Builder, ids: Var, table: Var| -> Var {
        let attributes = Attributes::new().with("sparse", true);
        net.append("embedding", &[("ids", &[ids]), ("weight", &[table])], attributes)
    };
    for in_steps in [false, true] {
        for dense_first in [false, true] {
            println!("in steps: {in_steps}, made dense first: {dense_first}");
            holds(&[("x", sequences(&[vec![2, 1]], 2))], |net, vars| {
                let w = net.parameter("w", DType::F32, &[4, 2], init::uniform(-0.8, 0.8));
                let table = w.to_selected_rows().abs();
                let dense = dense_first.then(|| table.to_dense());
                // The first row of the table.
                let ids = vars[0].slice(0..1).argmax();
                let rows = match in_steps {
                    false => looked_up(net, ids, table),
                    true => net.recurrent(ids, |step, ids| looked_up(step, ids, table)),
                };
                vec![rows, dense.unwrap_or_else(|| table.to_dense())]
            });
        }
    }
}
