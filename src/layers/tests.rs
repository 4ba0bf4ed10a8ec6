//! The operators that layers append: shapes, names, initializers, and errors at the user's line.

use super::*;
use crate::operator::BlockId;
use crate::program::{Builder, Program, Var, VarRole};
use crate::tensor::DType;

fn net() -> (Builder, Var) {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 1);
    (net, x)
}

#[test]
fn names_count_layers_and_take_wishes() {
    let (net, x) = net();
    let h = net.linear(x, 4);
    let h = net.linear(h, Linear::new(4).named("out"));
    let h = net.linear(h, Linear::new(4).named("out"));
    net.linear(h, Linear::new(2).without_bias());
    let program = net.finish().unwrap();
    let names: Vec<&str> = program.parameters().map(|id| program.var(id).name.as_str()).collect();
    let expected = [
        "linear_0.weight",
        "linear_0.bias",
        "out.weight",
        "out.bias",
        "out_2.weight",
        "out_2.bias",
        "linear_1.weight",
    ];
    assert_eq!(names, expected);
    assert_eq!(program.parameter_count(), 3 * 4 + 4 + 2 * (4 * 4 + 4) + 4 * 2);
}

#[test]
fn every_start_can_be_evaluated() {
    let (net, x) = net();
    let ids = net.feed("ids", DType::I64, &[], 1);
    net.linear(x, 4);
    net.embedding(ids, Embedding::new(10, 4).sparse().padding(0));
    net.lstm(x, Lstm::new(5));
    net.gru(x, Gru::new(5));
    net.lstm(x, Lstm::new(5).peepholes().projection(2));
    net.gru(x, Gru::new(5).reset(Reset::Before));
    net.bidirectional(x, Rnn::new(5));
    net.mgu(x, Mgu::new(5));
    let program = net.finish().unwrap();
    for id in program.parameters() {
        let var = program.var(id);
        let dims: Vec<usize> = var.spec().unwrap().shape.iter().filter_map(|e| e.known()).collect();
        let start = var.initializer.as_ref().unwrap();
        let value = crate::program::description::initialize::evaluate(start, &dims, DType::F32, 0, &var.name)
            .unwrap();
        assert_eq!(value.shape(), dims);
        assert_eq!(var.role, VarRole::Parameter);
    }
}

#[test]
fn recurrent_layers_keep_rows_and_give_final_states() {
    let (net, x) = net();
    let (h, h_last, c_last) = net.lstm_states(x, Lstm::new(5).named("encoder"));
    assert_eq!(net.spec(h).unwrap().to_string(), "f32[rows0, 5] lod(0)");
    assert_eq!(net.spec(h_last).unwrap().to_string(), "f32[batch, 5]");
    assert_eq!(net.spec(c_last).unwrap().to_string(), "f32[batch, 5]");
    let y = net.lstm(h, Lstm::new(5).backwards().initial(h_last, c_last));
    let (g, last) = net.gru_states(y, Gru::new(2));
    net.gru(y, Gru::new(5).initial(h_last));
    assert_eq!(net.spec(g).unwrap().to_string(), "f32[rows0, 2] lod(0)");
    assert_eq!(net.spec(last).unwrap().to_string(), "f32[batch, 2]");
    let program = net.finish().unwrap();
    program.validate().unwrap();
    assert_eq!(Program::from_bytes(&program.to_bytes().unwrap()).unwrap(), program);
    for name in ["encoder.weight_ih", "encoder.weight_hh", "encoder.bias"] {
        assert!(program.find(name).is_some(), "{name}");
    }
    // The layer appends a loop, products, a sum and the cell, and no other operator.
    let kinds: std::collections::BTreeSet<&str> = program.ops().map(|op| op.kind.as_str()).collect();
    assert_eq!(
        kinds.into_iter().collect::<Vec<_>>(),
        ["add", "gru_cell", "linear", "lstm_cell", "recurrent"]
    );
}

#[test]
fn shared_weights() {
    let (net, x) = net();
    let weight = |name: &str, dims: &[usize]| net.parameter(name, DType::F32, dims, init::xavier());
    let bias = |name: &str| net.parameter(name, DType::F32, &[8], init::zeros());
    let weights = RecurrentWeights {
        w_ih: weight("w_ih", &[3, 8]),
        w_hh: weight("w_hh", &[2, 8]),
        b_ih: Some(bias("b_ih")),
        b_hh: Some(bias("b_hh")),
    };
    let lstm = net.layer_with(Lstm::new(2), weights);
    let (_, [h, c]) = lstm.states(x);
    lstm.with(|lstm| lstm.backwards().initial(h, c)).of(x);
    assert_eq!(net.program().unwrap().parameters().count(), 4);
    let error = net.layer_with(Lstm::new(3), weights).of(x).refused().to_string();
    assert!(error.contains("variable `w_ih`: `w_ih`: expected f32 [3, 12], got f32[3, 8]"), "{error}");
    let weights =
        GruWeights { w_ih: weight("a", &[3, 6]), w_hh: weight("b", &[2, 6]), b_ih: None, b_hh: None };
    let gru = net.layer_with(Gru::new(2), weights);
    assert!(net.spec(gru.of(x)).is_some());
    let error = net.layer_with(Gru::new(2), GruWeights { w_hh: weights.w_ih, ..weights }).of(x).refused();
    assert!(error.to_string().contains("`w_hh`: expected f32 [2, 6], got f32[3, 6]"), "{error}");
}

#[test]
fn errors_name_this_file() {
    let (net, x) = net();
    let label = net.feed("label", DType::I64, &[], 0);
    let errors = [
        net.lstm(label, Lstm::new(2)).refused(),
        net.gru(label, Gru::new(2)).refused(),
        net.embedding(label, Embedding::new(3, 2).padding(3)).refused(),
        net.linear(label, 2).refused(),
    ];
    let (h, c) = (net.feed("h", DType::F32, &[2], 0), net.feed("c", DType::F32, &[3], 0));
    let initial =
        [net.lstm(x, Lstm::new(2).initial(h, c)).refused(), net.gru(x, Gru::new(2).initial(c)).refused()];
    for (error, slot) in initial.iter().zip(["c", "h"]) {
        let expected = format!(
            "variable `c`: initial `{slot}`: expected f32 rows of 2 numbers, one for each sequence, got"
        );
        assert!(error.to_string().contains(&expected), "{error}");
    }
    let narrow = net.parameter("narrow", DType::F32, &[3, 8], init::zeros());
    let weights = RecurrentWeights { w_ih: narrow, w_hh: narrow, b_ih: None, b_hh: None };
    let given = net.layer_with(Lstm::new(2), weights).of(x).refused();
    for error in errors.into_iter().chain(initial).chain([given]) {
        assert!(error.to_string().contains("src/layers/tests.rs:"), "{error}");
    }
}

/// Checks that all operators have the line of this call.
#[track_caller]
fn all_named<T>(append: impl Fn(&Builder, Var) -> T) {
    let (net, x) = net();
    append(&net, x);
    assert!(!net.program().unwrap().block(BlockId(0)).ops.is_empty());
    let program = net.finish().unwrap();
    let expected = format!("{}:{}:", file!(), std::panic::Location::caller().line());
    for op in program.ops() {
        assert!(op.caller.starts_with(&expected), "{}: {}, expected {expected}", op.kind, op.caller);
    }
}

#[test]
fn operators_name_the_line_that_called_the_layer() {
    all_named(|net, x| net.linear(x, 4));
    all_named(|net, x| net.lstm(x, Lstm::new(4)));
    all_named(|net, x| net.lstm_states(x, Lstm::new(4).backwards()));
    all_named(|net, x| net.gru(x, Gru::new(4)));
    all_named(|net, x| net.gru_states(x, Gru::new(4)));
    all_named(|net, x| net.gru(x, Gru::new(4).reset(Reset::Before)));
    all_named(|net, x| net.lstm(x, Lstm::new(4).peepholes().cell_clip(1.0).projection(2)));
    all_named(|net, x| net.rnn(x, Rnn::new(4).zoneout([0.1]).recurrent_dropout(0.1)));
    all_named(|net, x| net.mgu(x, Mgu::new(4)));
    all_named(|net, x| net.stacked(x, Stacked::new(Mgu::new(4), 2).residual().dropout(0.1)));
    all_named(|net, x| net.bidirectional(x, Rnn::new(4)));
    let ids = |net: &Builder| net.feed("ids", DType::I64, &[], 1);
    all_named(|net, _| net.embedding(ids(net), Embedding::new(9, 4)));
    // The step block appends a copy itself, since no operator of the step computes the output.
    all_named(|net, x| net.recurrent(x, |_, x_t| x_t));
}

/// Appends a layer as a user's crate may define it: it contains a layer of this crate and a step block.
#[track_caller]
fn counted(net: &Builder, x: Var, width: usize) -> Var {
    net.part("counted", |net| {
        let h = x.lstm(width);
        net.recurrent(h, |step, h_t| {
            let (a, b) = (step.memory(width), step.memory(3));
            let next = a + h_t;
            step.update(a, next);
            step.update(b, next);
            next
        })
    })
}

#[test]
fn layers_of_layers_name_the_outermost_call() {
    let (refused, x) = net();
    let line = format!("{}:{}:", file!(), line!() + 1);
    counted(&refused, x, 2);
    let error = refused.finish().unwrap_err();
    assert!(error.place().caller.as_ref().unwrap().starts_with(&line), "{error}");
    let (net, x) = net();
    let line = format!("{}:{}:", file!(), line!() + 1);
    counted(&net, x, 3);
    let program = net.finish().unwrap();
    let kinds: Vec<&str> = program
        .ops()
        .inspect(|op| assert!(op.caller.starts_with(&line), "{}: {}", op.kind, op.caller))
        .map(|op| op.kind.as_str())
        .collect();
    // `assign` is the copy for the second memory with the same next value.
    for kind in ["lstm_cell", "recurrent", "assign"] {
        assert!(kinds.contains(&kind), "{kinds:?}");
    }
}

#[test]
fn scopes_name_parameters() {
    let (net, x) = net();
    let (a, b) = net.scope("encoder", |net| {
        let h = x.lstm(4).linear(Linear::new(4).named("out"));
        (h, net.scope("deep", |net| net.gru(h, 3)))
    });
    let scale = net.scope("encoder", |net| {
        let again = x.lstm(4);
        (again, net.parameter("scale", x, &[4], init::constant(1.0))).1
    });
    x.lstm(4);
    let _ = (a * scale, b);
    let program = net.finish().unwrap();
    let names: Vec<&str> = program.parameters().map(|id| program.var(id).name.as_str()).collect();
    let expected = [
        "encoder.lstm_0.weight_ih",
        "encoder.lstm_0.weight_hh",
        "encoder.lstm_0.bias",
        "encoder.out.weight",
        "encoder.out.bias",
        "encoder.deep.gru_0.weight_ih",
        "encoder.deep.gru_0.weight_hh",
        "encoder.deep.gru_0.bias_ih",
        "encoder.deep.gru_0.bias_hh",
        "encoder.lstm_1.weight_ih",
        "encoder.lstm_1.weight_hh",
        "encoder.lstm_1.bias",
        "encoder.scale",
        "lstm_0.weight_ih",
        "lstm_0.weight_hh",
        "lstm_0.bias",
    ];
    assert_eq!(names, expected);
}

#[test]
fn final_states_of_stacked_and_bidirectional_layers() {
    let (net, x) = net();
    let (both, [forward, backward]) = x.bidirectional_states(Lstm::new(5));
    let (deep, states) = x.stacked_states(Stacked::new(Gru::new(4), 2).bidirectional());
    assert_eq!(net.describe(both), "`concat`: f32[rows0, 10] lod(0)");
    assert_eq!(net.spec(deep).unwrap().width(), 8);
    assert_eq!(states.len(), 4);
    for state in forward.iter().chain(&backward) {
        assert_eq!(net.spec(*state).unwrap().to_string(), "f32[batch, 5]");
    }
    for state in states.iter().flatten() {
        assert_eq!(net.spec(*state).unwrap().to_string(), "f32[batch, 4]");
    }
    // The states can be the initial states of another stack, such as a decoder.
    let y = net.stacked(x, Stacked::new(Gru::new(4), 4).initial(states));
    assert_eq!(net.spec(y).unwrap().width(), 4);
}

#[test]
fn biases_gate_by_gate() {
    let (net, x) = net();
    x.lstm(Lstm::new(2).gate_biases([0.5, 1.5, 0.0, -1.0]));
    x.gru(Gru::new(1).gate_biases([1.0, 2.0, 3.0]));
    x.mgu(Mgu::new(2).gate_biases([4.0, 0.0]));
    x.rnn(Rnn::new(2).gate_biases([0.25]));
    let program = net.finish().unwrap();
    let start = |name: &str| {
        let var = program.var(program.find(name).unwrap());
        let dims: Vec<usize> = var.spec().unwrap().shape.iter().filter_map(|e| e.known()).collect();
        let start = var.initializer.as_ref().unwrap();
        init::evaluate(start, &dims, DType::F32, 0, name).unwrap().as_slice::<f32>().unwrap().to_vec()
    };
    assert_eq!(start("lstm_0.bias"), [0.5, 0.5, 1.5, 1.5, 0.0, 0.0, -1.0, -1.0]);
    assert_eq!(start("gru_0.bias_ih"), [1.0, 2.0, 3.0]);
    assert_eq!(start("gru_0.bias_hh"), [0.0; 3]);
    assert_eq!(start("mgu_0.bias"), [4.0, 4.0, 0.0, 0.0]);
    assert_eq!(start("rnn_0.bias"), [0.25; 2]);
}

#[test]
fn an_lstm_starts_by_chrono() {
    let (net, x) = net();
    x.lstm(Lstm::new(3).chrono(40));
    let program = net.finish().unwrap();
    let bias = program.var(program.find("lstm_0.bias").unwrap());
    assert_eq!(bias.initializer, Some(init::chrono(40)));
    let (net, x) = self::net();
    let line = line!() + 1;
    x.lstm(Lstm::new(3).chrono(1));
    let error = net.finish().unwrap_err().to_string();
    assert!(error.contains("`t_max`: expected at least 2 steps, got 1"), "{error}");
    assert!(error.contains(&format!("tests.rs:{line}")), "{error}");
}

#[test]
fn a_tied_layer_has_no_weight_of_its_own() {
    let net = Builder::new();
    let ids = net.feed("ids", DType::I64, &[], 1);
    let x = net.feed("x", DType::F32, &[4], 1);
    let table = net.layer(Embedding::new(9, 4).sparse());
    // The first call of the tied layer makes the table, before any call of the embedding.
    let logits = x.linear(Linear::tied(&table));
    let again = table.of(ids).linear(Linear::tied(&table).without_bias());
    assert_eq!(net.describe(logits), "`linear`: f32[rows1, 9] lod(1)");
    assert_eq!(net.describe(again), "`linear_2`: f32[rows0, 9] lod(0)");
    let program = net.program().unwrap();
    let names: Vec<&str> = program.parameters().map(|id| program.var(id).name.as_str()).collect();
    assert_eq!(names, ["embedding_0.weight", "linear_0.bias"]);
    let narrow = x.slice(0..3).linear(Linear::tied(&table)).refused().to_string();
    assert!(
        narrow.contains("input `x`: expected rows of 4 numbers, since the width of `weight` is 4"),
        "{narrow}"
    );
    let start = x.linear(Linear::tied(&table).weight_init(init::zeros())).refused().to_string();
    assert!(
        start.starts_with(
            "initialiser of the weight of layer `linear`: expected none, since the weight is tied"
        ),
        "{start}"
    );
}

/// Checks that options whose sizes overflow record an error.
#[test]
fn numbers_that_overflow_are_refused() {
    const MOST: usize = usize::MAX;
    let (net, x) = net();
    let square = net.feed("square", DType::F32, &[2], 1);
    let (weight, bias) = (
        net.parameter("w", DType::F32, &[3, 8], init::zeros()),
        net.parameter("b", DType::F32, &[8], init::zeros()),
    );
    let qrnn = QrnnWeights { weight, bias };
    let sru = SruWeights { weight, of_state: bias, bias };
    let mut all = Vec::new();
    // `refused` returns the error of the last call, so it must be called directly after each call of a layer.
    let mut refused = |var: Var| {
        let error = var.refused().to_string();
        let (message, position) = error.split_once(" (at ").unwrap();
        assert!(position.starts_with(file!()), "{error}");
        all.push(message.to_owned());
    };
    refused(x.qrnn(MOST));
    refused(x.qrnn(Qrnn::new(MOST / 3).pool(QrnnPool::Ifo)));
    refused(x.qrnn(Qrnn::new(2).window(MOST)));
    refused(x.qrnn(Qrnn::new(2).window(0)));
    refused(net.layer_with(Qrnn::new(MOST), qrnn).of(x));
    refused(x.sru(MOST));
    refused(net.layer_with(Sru::new(MOST), sru).of(x));
    refused(square.attention(Attention::new(2).relative(MOST)));
    refused(net.layer(AdaptiveSoftmax::new(MOST, &[])).of(x));
    refused(net.layer(AdaptiveSoftmax::new(MOST, &[2])).of(x));
    refused(net.layer(AdaptiveSoftmax::new(MOST, &[MOST - 1])).of(x));
    insta::assert_snapshot!(all.join("\n"));
}

#[test]
fn an_adaptive_softmax_takes_the_weights_of_its_cutoffs_alone() {
    let (net, x) = net();
    let labels = net.feed_like("labels", DType::I64, &[], x);
    let built = |classes: usize, cutoffs: &[usize]| {
        let softmax = net.layer(AdaptiveSoftmax::new(classes, cutoffs));
        softmax.of(x);
        softmax.weights().unwrap()
    };
    let refused = |weights: AdaptiveWeights, expected: &str| {
        let softmax = net.layer_with(AdaptiveSoftmax::new(12, &[3, 7]), weights);
        for error in [softmax.of(x).refused(), softmax.loss(x, labels).refused()] {
            assert!(error.to_string().contains(expected), "{error}");
        }
    };
    let clusters = "clusters of the weights of layer `adaptive_softmax`: expected 2, one per cutoff, got";
    refused(AdaptiveWeights { clusters: Vec::new(), ..built(12, &[3, 7]) }, &format!("{clusters} 0"));
    refused(built(12, &[3]), &format!("{clusters} 1"));
    refused(built(12, &[3, 5, 7]), &format!("{clusters} 3"));
    let columns =
        |built: &str, count: usize| format!("{built} of layer `adaptive_softmax`: expected {count} classes");
    refused(AdaptiveWeights { head: built(12, &[4, 7]).head, ..built(12, &[3, 7]) }, &columns("head", 5));
    refused(built(13, &[3, 8]), &columns("cluster 1", 4));
    refused(built(13, &[3, 7]), &columns("cluster 2", 5));
    // Cutoffs are checked for given weights, too.
    let unordered = net.layer_with(AdaptiveSoftmax::new(12, &[7, 3]), built(12, &[3, 7]));
    let error = unordered.of(x).refused().to_string();
    assert!(error.contains("classes of layer `adaptive_softmax`: expected cutoffs that ascend"), "{error}");
    let error = net.layer(AdaptiveSoftmax::new(12, &[3]).divide(0)).of(x).refused().to_string();
    assert!(error.contains("`divide` of layer `adaptive_softmax`: expected at least 1, got 0"), "{error}");
    let fits = net.layer_with(AdaptiveSoftmax::new(12, &[3, 7]), built(12, &[3, 7]));
    assert!(net.spec(fits.of(x)).is_some() && net.spec(fits.loss(x, labels)).is_some());
}
