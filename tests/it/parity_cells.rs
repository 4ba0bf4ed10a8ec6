//! Values and gradients of recurrent layers, one and stacked in both directions, against PyTorch's.

use ndarray::{ArrayD, Axis};
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::{
    Activation, Gru, Lstm, RecurrentLayer, RecurrentWeights, Rnn, Stacked, from_torch, load_torch,
};
use unpadded::program::VarId;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Var, Variable, ops};

use crate::fixture::Fixture;
use crate::parity::{BOTH, Net, close, turned};

/// Returns the suffixes of PyTorch's weight names, layer by layer and direction by direction.
fn suffixes(case: &Fixture) -> Vec<String> {
    let directions: &[&str] =
        if case.metadata("bidirectional") == Some("true") { &["", "_reverse"] } else { &[""] };
    let layers = case.number("layers", f64::NAN) as usize;
    (0..layers).flat_map(|k| directions.iter().map(move |d| format!("_l{k}{d}"))).collect()
}

/// Part `k` of `[layers · directions, sequences, width]`.
fn part(values: &ArrayD<f32>, k: usize) -> ArrayD<f32> {
    values.index_axis(Axis(0), k).to_owned()
}

/// Everything of a case; `states` are PyTorch's letters of the layer's states.
fn check<const STATES: usize, L>(name: &str, layer: &L, states: [&str; STATES])
where
    L: RecurrentLayer<States = [Var; STATES], Weights: From<RecurrentWeights>>,
{
    let case = Fixture::load(name);
    let (array, suffixes) = (|name: &str| case.array::<f32>(name), suffixes(&case));
    for dtype in BOTH {
        let mut net = Net::new(&case, dtype);
        let x = net.rows("x", net.floats(array("x")));
        let r = net.rows("R", net.floats(array("R")));
        let (mut initial, mut of_states, mut weights) = (Vec::new(), Vec::new(), Vec::new());
        for (k, suffix) in suffixes.iter().enumerate() {
            let mut each = |prefix: &str, end: &str| {
                states.map(|s| {
                    let name = format!("{prefix}{s}{end}");
                    net.states(&format!("{name}.{k}"), part(&array(&name), k))
                })
            };
            initial.push(each("", "0"));
            of_states.push(each("R", ""));
            let mut weight = |name: &str| {
                let value = array(&format!("{name}{suffix}"));
                net.weight(&format!("{name}{suffix}"), if value.ndim() == 2 { turned(value) } else { value })
            };
            let [w_ih, w_hh, b_ih, b_hh] = ["weight_ih", "weight_hh", "bias_ih", "bias_hh"].map(&mut weight);
            weights.push(RecurrentWeights { w_ih, w_hh, b_ih: Some(b_ih), b_hh: Some(b_hh) });
        }
        for &var in initial.iter().flatten().chain([&x]) {
            net.net.watch(var);
        }
        let stacked =
            Stacked::new(layer.clone(), case.number("layers", 0.0) as usize).initial(initial.clone());
        let both = suffixes.iter().any(|s| s.ends_with("reverse"));
        let stacked = if both { stacked.bidirectional() } else { stacked };
        let given = weights.iter().map(|&w| net.net.layer_with(layer.clone(), w));
        let (y, last) = net.net.layer_with(stacked, given.collect::<Vec<_>>()).states(x);
        let of_last = |k: usize| last[k].into_iter().zip(of_states[k]);
        let parts: Vec<(Var, Var)> = [(y, r)].into_iter().chain((0..last.len()).flat_map(of_last)).collect();
        let loss = net.loss(&parts);

        // The compared variables, by PyTorch's names.
        let (mut values, mut wrt) =
            (vec![("loss".to_owned(), 0, loss), ("y".to_owned(), 0, y)], vec![("x".to_owned(), 0, x)]);
        for (k, suffix) in suffixes.iter().enumerate() {
            for (i, state) in states.iter().enumerate() {
                values.push((format!("{state}_n"), k, last[k][i]));
                wrt.push((format!("{state}0"), k, initial[k][i]));
            }
            let RecurrentWeights { w_ih, w_hh, b_ih, b_hh } = weights[k];
            let vars = [w_ih, w_hh, b_ih.unwrap(), b_hh.unwrap()];
            for (name, var) in ["weight_ih", "weight_hh", "bias_ih", "bias_hh"].into_iter().zip(vars) {
                wrt.push((format!("{name}{suffix}"), k, var));
            }
        }
        let vars = |named: &[(String, usize, Var)]| named.iter().map(|n| n.2).collect::<Vec<_>>();
        let (got, grads) = net.run(loss, &vars(&values), &vars(&wrt));
        let named = values.iter().map(|(n, k, _)| (n.clone(), *k)).zip(&got);
        let grads = wrt.iter().map(|(n, k, _)| (format!("grad.{n}"), *k)).zip(&grads);
        for ((what, k), got) in named.chain(grads) {
            let expected = array(&what);
            let expected = match expected.ndim() {
                3 => part(&expected, k),
                2 if what.starts_with("grad.weight") => turned(expected),
                _ => expected,
            };
            close(got, expected, &format!("{name} {dtype} {what} of {k}"));
        }
    }
}

#[test]
fn lstm_is_that_of_pytorch() {
    check("lstm", &Lstm::new(3), ["h", "c"]);
    check("lstm_2layers_bidirectional", &Lstm::new(3), ["h", "c"]);
}

/// The cell that is composed of plain operators is the other one.
#[test]
fn composed_lstm_is_that_of_pytorch() {
    let clipped = Lstm::new(3).cell_clip(1e3);
    check("lstm", &clipped, ["h", "c"]);
    check("lstm_2layers_bidirectional", &clipped, ["h", "c"]);
}

#[test]
fn gru_is_that_of_pytorch() {
    check("gru", &Gru::new(3), ["h"]);
    check("gru_2layers_bidirectional", &Gru::new(3), ["h"]);
}

#[test]
fn rnn_is_that_of_pytorch() {
    check("rnn_tanh", &Rnn::new(3), ["h"]);
    check("rnn_relu", &Rnn::new(3).activation(Activation::Relu), ["h"]);
}

/// Layers with parameters of their own take PyTorch's weights by its names.
#[test]
fn layers_load_the_weights_of_pytorch() {
    let case = Fixture::load("lstm_2layers_bidirectional");
    let (array, suffixes) = (|name: &str| case.array::<f32>(name), suffixes(&case));
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let lengths: Vec<usize> = case.array::<i64>("lengths").iter().map(|&n| n as usize).collect();
    let rows = Variable::sequences(Dense::from(array("x")), Lod::from_lengths1(&lengths).unwrap()).unwrap();
    let mut feeds: Vec<(VarId, Variable)> = vec![(x.id(), rows)];
    let initial: Vec<[Var; 2]> = (0..suffixes.len())
        .map(|k| {
            ["h0", "c0"].map(|name| {
                let var = net.feed(&format!("{name}.{k}"), DType::F32, &[3], 0);
                feeds.push((var.id(), Variable::dense(Dense::from(part(&array(name), k)))));
                var
            })
        })
        .collect();
    let y = net.stacked(x, Stacked::new(Lstm::new(3), 2).bidirectional().initial(initial));
    let program = net.finish().unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let read = |name: &str| Ok(Dense::from(array(name)));
    for (k, suffix) in suffixes.iter().enumerate() {
        load_torch(&mut scope, &format!("lstm_{k}"), suffix, read).unwrap();
    }
    let mut exe = Executor::new(&program, &ops::catalogue(), &[y.id()], 1).unwrap();
    let feeds: Vec<(VarId, &Variable)> = feeds.iter().map(|(id, v)| (*id, v)).collect();
    exe.run(&mut scope, &Run::infer(&feeds).until(Stage::Forward)).unwrap();
    close(&exe.fetch(y).unwrap(), array("y"), "y with loaded weights");

    let w_ih = array("weight_ih_l0").into_dimensionality().unwrap();
    let before = scope.get("lstm_0.weight_ih").unwrap();
    assert!(before.bits_eq(&Dense::from(from_torch(w_ih.view()).into_dyn())));
    // The second layer's input is wider: refused, and nothing changed.
    let error = load_torch(&mut scope, "lstm_0", "_l1", read).unwrap_err().to_string();
    assert!(error.contains("lstm_0.weight_ih") && error.contains("[4, 12], got [6, 12]"), "{error}");
    assert!(scope.get("lstm_0.weight_ih").unwrap().bits_eq(&before));
    let error = load_torch(&mut scope, "lstm_7", "_l0", read).unwrap_err().to_string();
    assert!(error.contains("`lstm_7`"), "{error}");
}
