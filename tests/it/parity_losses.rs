//! Norms, losses, convolutions, attention and the adaptive softmax against PyTorch's (`fixtures/make_losses.py`), and batch norm
//! over the steps of a training.

use ndarray::{Array2, array};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{AdaptiveSoftmax, AdaptiveWeights, Linear, Norm, NormWeights};
use unpadded::ops::{BinaryCrossEntropy, Context, DotAttention, FocalLoss};
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::program::backward;
use unpadded::{Builder, DType, Lod, Var, Variable};

use crate::fixture::Fixture;
use crate::parity::{BOTH, Net, close};

/// One call of a case: its inputs by name, as rows of sequences or as constants, and whether the gradient of each input was
/// computed.
struct Call<'a> {
    name: &'a str,
    rows: &'a [&'a str],
    constants: &'a [&'a str],
    learned: &'a [&'a str],
}

fn check(file: &str, call: Call<'_>, function: impl Fn(&Builder, &[Var]) -> Var) {
    let Call { name, rows, constants, learned } = call;
    let case = Fixture::load(file);
    let array = |slot: &str| case.array::<f32>(&format!("{name}.{slot}"));
    for dtype in BOTH {
        let mut net = Net::new(&case, dtype);
        let mut given: Vec<Var> = Vec::new();
        for slot in rows {
            let values = net.floats(array(slot));
            given.push(net.rows(slot, values));
        }
        given.extend(constants.iter().map(|slot| net.weight(slot, array(slot))));
        let operand = |slot: &&str| given[rows.iter().chain(constants).position(|s| s == slot).unwrap()];
        let wrt: Vec<Var> = learned.iter().map(operand).collect();
        wrt.iter().for_each(|&var| net.net.watch(var));
        let out = function(&net.net, &given);
        let expected = array("out");
        let shape = [vec![expected.shape()[0]], vec![expected.len() / expected.shape()[0]]].concat();
        let weights = array("R").into_shape_with_order(shape).unwrap();
        let weights = net.rows("R", net.floats(weights));
        let loss = net.loss(&[(out, weights)]);
        let (values, grads) = net.run(loss, &[out], &wrt);
        close(&values[0], expected, &format!("{name} {dtype}"));
        for (slot, grad) in learned.iter().zip(&grads) {
            close(grad, array(&format!("grad.{slot}")), &format!("{name} {dtype}, gradient of {slot}"));
        }
    }
}

#[test]
fn norms_are_those_of_pytorch() {
    let all: &[&str] = &["x", "gain", "bias"];
    let call = Call { name: "layer_norm", rows: &all[..1], constants: &all[1..], learned: all };
    check("norms", call, |_, v| v[0].layer_norm(Some(v[1]), Some(v[2]), 1e-5));
    let call = Call { name: "rms_norm", rows: &all[..1], constants: &all[1..2], learned: &all[..2] };
    check("norms", call, |_, v| v[0].rms_norm(Some(v[1]), 1e-5));
}

#[test]
fn losses_are_those_of_pytorch() {
    let pair: &[&str] = &["x", "y"];
    let both = |name| Call { name, rows: pair, constants: &[], learned: pair };
    let first = |name| Call { learned: &pair[..1], ..both(name) };
    check("losses", both("squared_error"), |_, v| v[0].squared_error(v[1]));
    check("losses", both("huber"), |_, v| v[0].huber(v[1], 0.75));
    check("losses", both("kl_divergence"), |_, v| v[0].kl_divergence(v[1]));
    check("losses", both("cosine_similarity"), |_, v| v[0].cosine_similarity(v[1]));
    check("losses", first("binary_cross_entropy"), |_, v| v[0].binary_cross_entropy(v[1]));
    check("losses", first("hinge"), |_, v| v[0].hinge(v[1]));
    check("losses", first("focal_loss"), |_, v| v[0].focal_loss_with(v[1], FocalLoss::default()));
    let weighted = Call { constants: &["weight", "positive"], ..first("binary_cross_entropy_weighted") };
    check("losses", weighted, |_, v| {
        let options = BinaryCrossEntropy::default().weights(v[2]).positive_weights(v[3]);
        v[0].binary_cross_entropy_with(v[1], options)
    });
    let labelled = Call { rows: &["x", "y", "like"], ..both("cosine_loss") };
    check("losses", labelled, |_, v| v[0].cosine_loss(v[1], v[2], 0.1));
    let labelled = Call { rows: &["x", "y", "first"], ..both("margin_ranking") };
    check("losses", labelled, |_, v| v[0].margin_ranking(v[1], v[2], 0.5));
}

#[test]
fn convolutions_and_attention_are_those_of_pytorch() {
    let filter: &[&str] = &["x", "weight", "bias"];
    let conv = |name| Call { name, rows: &filter[..1], constants: &filter[1..], learned: filter };
    let convolved = |v: &[Var], context| v[0].sequence_conv_with(v[1], Some(v[2]), None, context);
    check("sequences", conv("conv"), |_, v| convolved(v, Context::new(3)));
    check("sequences", conv("conv_causal"), |_, v| convolved(v, Context::new(3).dilation(2).causal()));
    check("sequences", conv("conv_grouped"), |_, v| convolved(v, Context::new(2).groups(2).causal()));
    let all: &[&str] = &["x", "k", "v"];
    let attention = |name| Call { name, rows: all, constants: &[], learned: all };
    let heads = DotAttention::heads(2);
    check("sequences", attention("attention"), |_, v| v[0].dot_attention(v[1], v[2], heads));
    check("sequences", attention("attention_causal"), |_, v| v[0].dot_attention(v[1], v[2], heads.causal()));
}

#[test]
fn the_adaptive_softmax_is_that_of_pytorch() {
    let case = Fixture::load("adaptive_softmax");
    let array = |name: &str| case.array::<f32>(name);
    for dtype in BOTH {
        let mut net = Net::new(&case, dtype);
        let values = net.floats(array("x"));
        let x = net.rows("x", values);
        let labels = net.rows("labels", case.array::<i64>("labels").into());
        let weights = net.floats(array("R"));
        let r = net.rows("R", weights);
        net.net.watch(x);
        let mut learned = vec![(x, "x".to_owned())];
        let mut linear = |name: &str, bias: Option<&str>| {
            let mut part = |name: &str| {
                let var = net.weight(name, array(name));
                learned.push((var, name.to_owned()));
                var
            };
            let (weight, bias) = (part(&format!("{name}.weight")), bias.map(&mut part));
            let layer = Linear::new(array(&format!("{name}.weight")).shape()[1]);
            net.net.layer_with(if bias.is_some() { layer } else { layer.without_bias() }, (weight, bias))
        };
        let head = linear("head", Some("head.bias"));
        let clusters =
            [1, 2].map(|k| [linear(&format!("project_{k}"), None), linear(&format!("cluster_{k}"), None)]);
        let weights = AdaptiveWeights { head, clusters: clusters.to_vec() };
        let softmax = net.net.layer_with(AdaptiveSoftmax::new(12, &[3, 7]).divide(2), weights);
        let (losses, all) = (softmax.loss(x, labels), softmax.of(x));
        let loss = net.loss(&[(losses, r)]);
        let wrt: Vec<Var> = learned.iter().map(|(var, _)| *var).collect();
        let (values, grads) = net.run(loss, &[losses, all], &wrt);
        close(&values[0], array("out"), &format!("adaptive softmax {dtype}"));
        close(&values[1], array("all"), &format!("all log-probabilities {dtype}"));
        for ((_, name), grad) in learned.iter().zip(&grads) {
            close(grad, array(&format!("grad.{name}")), &format!("{dtype}, gradient of {name}"));
        }
    }
}

/// Returns a running statistic of a batch norm.
fn kept(scope: &mut Scope, slot: &str) -> Variable {
    Variable::new(scope.value(&format!("bn.{slot}")).unwrap(), None).unwrap()
}

#[test]
fn batch_norm_is_that_of_pytorch_in_training_and_in_inference() {
    let case = Fixture::load("norms");
    let array = |slot: &str| case.array::<f32>(&format!("batch_norm.{slot}"));
    let lengths: Vec<usize> = case.array::<i64>("lengths").iter().map(|&n| n as usize).collect();
    for threads in [1, 3] {
        let net = Builder::new();
        let x = net.feed("x", DType::F32, &[6], 1);
        let r = net.feed_like("R", DType::F32, &[6], x);
        net.watch(x);
        let norm = net.layer(Norm::batch().named("bn"));
        let y = norm.of(x);
        let NormWeights { gain, bias, .. } = norm.weights().unwrap();
        let loss = (y * r).sum();
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        let grads = backward::differentiate(&mut program, &registry, loss.id()).unwrap();
        let wanted = [x, gain.unwrap(), bias.unwrap()].map(|var| grads[&var.id()]);
        let mut executor =
            Executor::new(&program, &registry, &[&wanted[..], &[y.id()]].concat(), threads).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        for slot in ["gain", "bias"] {
            scope.set(&format!("bn.{slot}"), array(slot)).unwrap();
        }
        let lod = Lod::from_lengths1(&lengths).unwrap();
        let values = ["x", "R"].map(|slot| Variable::sequences(array(slot), lod.clone()).unwrap());
        let fed = [(x.id(), &values[0]), (r.id(), &values[1])];
        executor.run(&mut scope, &Run::train(&fed, 0)).unwrap();
        for (id, slot) in [y.id()].iter().chain(&wanted).zip(["out", "grad.x", "grad.gain", "grad.bias"]) {
            close(&executor.fetch(*id).unwrap(), array(slot), &format!("batch norm {slot}"));
        }
        for slot in ["mean", "variance"] {
            close(&kept(&mut scope, slot), array(slot), slot);
        }
        executor.run(&mut scope, &Run::infer(&fed)).unwrap();
        close(&executor.fetch(y.id()).unwrap(), array("inferred"), "batch norm, inferred");
        close(&kept(&mut scope, "mean"), array("mean"), "inference moves nothing");
    }
}

/// Gradients while training, where the mean and the variance depend on all rows, against central differences.
#[test]
fn the_gradient_of_batch_norm_in_training_is_the_derivative() {
    for rows in [0, 1, 2, 5] {
        let net = Builder::new();
        let x = net.feed("x", DType::F64, &[2], 1);
        let r = net.feed_like("R", DType::F64, &[2], x);
        net.watch(x);
        let y = x.norm(Norm::batch().epsilon(0.01));
        let loss = (y * r).sum();
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        let grads = backward::differentiate(&mut program, &registry, loss.id()).unwrap();
        let wanted = [grads[&x.id()], loss.id()];
        let mut executor = Executor::new(&program, &registry, &wanted, 1).unwrap();
        let lod = || Lod::from_lengths1(&[rows, 0]).unwrap();
        let number = |(i, j): (usize, usize)| ((i * 2 + j) as f64 * 1.7).sin();
        let start = Array2::from_shape_fn((rows, 2), number);
        let weights = Variable::sequences(start.mapv(|v| v * v + 0.5), lod()).unwrap();
        let mut run = |values: &Array2<f64>| {
            let values = Variable::sequences(values.clone(), lod()).unwrap();
            let fed = [(x.id(), &values), (r.id(), &weights)];
            // Kept values start anew.
            executor.run(&mut Scope::of(&program).unwrap(), &Run::train(&fed, 0)).unwrap();
            let grad = executor.fetch(grads[&x.id()]).unwrap();
            (executor.scalar(loss).unwrap(), grad.as_slice::<f64>().unwrap().to_vec())
        };
        let (_, grad) = run(&start);
        for (at, grad) in grad.iter().enumerate() {
            let mut moved = [1e-5, -1e-5].map(|step| {
                let mut values = start.clone();
                values[[at / 2, at % 2]] += step;
                run(&values).0
            });
            moved[0] -= moved[1];
            assert!((moved[0] / 2e-5 - grad).abs() < 1e-6, "{rows} rows, number {at}: {grad}");
        }
    }
}

#[test]
fn batch_norm_keeps_what_it_has_of_a_batch_of_one_row_and_of_none() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[1], 1);
    let y = x.norm(Norm::batch());
    let loss = y.linear(1).square().mean();
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    Sgd::new(0.0).minimize(&mut program, &registry, loss.id()).unwrap();
    let mut executor = Executor::new(&program, &registry, &[y.id()], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    scope.set("norm_0.mean", array![2.0f32]).unwrap();
    scope.set("norm_0.variance", array![4.0f32]).unwrap();
    for (rows, expected) in [(vec![8.0f32], vec![3.0f32]), (vec![], vec![])] {
        let lengths = [rows.len()];
        let rows = Array2::from_shape_vec((lengths[0], 1), rows).unwrap();
        let rows = Variable::sequences(rows, Lod::from_lengths1(&lengths).unwrap()).unwrap();
        executor.run(&mut scope, &Run::train(&[(x.id(), &rows)], 0)).unwrap();
        let out = executor.fetch(y.id()).unwrap();
        let close = |(a, b): (&f32, &f32)| (a - b).abs() < 1e-4;
        assert!(out.as_slice::<f32>().unwrap().iter().zip(&expected).all(close), "{out:?}");
        assert_eq!(scope.value("norm_0.mean").unwrap().as_dense().unwrap().as_slice::<f32>().unwrap(), [2.0]);
        assert_eq!(
            scope.value("norm_0.variance").unwrap().as_dense().unwrap().as_slice::<f32>().unwrap(),
            [4.0]
        );
    }
}

#[test]
fn options_of_norms_that_do_not_fit_are_refused() {
    let refusal = |norm: Norm| {
        let net = Builder::new();
        let _ = net.feed("x", DType::F32, &[2], 1).norm(norm);
        net.finish().unwrap_err().to_string()
    };
    assert!(
        refusal(Norm::layer().momentum(0.5))
            .contains("expected none: only a batch norm has a running mean and variance, got 0.5")
    );
    assert!(refusal(Norm::batch().momentum(1.5)).contains("1.5"));
    assert!(refusal(Norm::rms().bias_init(unpadded::layers::init::zeros())).contains("bias"));
    assert!(refusal(Norm::layer().epsilon(0.0)).contains("a number above 0"));
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 1);
    let _ = net.recurrent(x, |_, x| x.norm(Norm::batch()));
    assert!(net.finish().unwrap_err().to_string().contains("a row-wise or sequence-wise operator"));
}
