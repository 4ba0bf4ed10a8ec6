//! The recurrent layers against PyTorch: outputs, final states and every gradient of one LSTM and one GRU over
//! sequences of lengths 3, 1, 5, 2 from given initial states.

use ndarray::{Array2, ArrayD, Ix2, Ix3};
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::{Gru, GruWeights, Lstm, LstmWeights, from_torch, init};
use unpadded::program::backward;
use unpadded::{Builder, DType, Lod, Var, Variable};

use crate::fixture::Fixture;

/// A case that is being built: its feeds, and the weights' values.
struct Case {
    file: Fixture,
    net: Builder,
    feeds: Vec<(Var, Variable)>,
    weights: Vec<(&'static str, Var, ArrayD<f32>)>,
}

impl Case {
    fn new(name: &str) -> Self {
        Self { file: Fixture::load(name), net: Builder::new(), feeds: Vec::new(), weights: Vec::new() }
    }

    fn rows(&mut self, name: &str) -> Var {
        let lengths: Vec<usize> = self.file.array::<i64>("lengths").iter().map(|&n| n as usize).collect();
        let rows: Array2<f32> = self.file.array(name).into_dimensionality::<Ix2>().unwrap();
        let width = rows.ncols();
        let value = Variable::sequences(rows, Lod::from_lengths1(&lengths).unwrap()).unwrap();
        let var = match self.feeds.first() {
            Some((like, _)) => self.net.feed_like(name, DType::F32, &[width], *like).unwrap(),
            None => self.net.feed(name, DType::F32, &[width], 1).unwrap(),
        };
        self.feeds.push((var, value));
        var
    }

    fn state(&mut self, name: &str) -> Var {
        let value = self.matrix(name);
        let var = self.net.feed(name, DType::F32, &[value.ncols()], 0).unwrap();
        self.feeds.push((var, value.into()));
        var
    }

    /// A state, which PyTorch stores with a dimension for the layers.
    fn matrix(&self, name: &str) -> Array2<f32> {
        let all = self.file.array(name).into_dimensionality::<Ix3>().unwrap();
        all.index_axis_move(ndarray::Axis(0), 0)
    }

    fn weight(&mut self, name: &'static str) -> Var {
        let value = self.imported(name);
        let var = self.net.parameter(name, DType::F32, value.shape(), init::zeros()).unwrap();
        self.weights.push((name, var, value));
        var
    }

    /// An array of the file, weights and their gradients in this crate's layout.
    fn imported(&self, name: &str) -> ArrayD<f32> {
        let value = self.file.array(name);
        match value.view().into_dimensionality::<Ix2>() {
            Ok(matrix) if name.contains("weight") => from_torch(matrix).into_dyn(),
            _ => value,
        }
    }

    /// Runs and compares the outputs and the gradients of their weighted sum; once as read from its own bytes.
    fn check(self, outputs: &[(&str, Var, Var)], watched: &[(&str, Var)]) {
        let parts: Vec<Var> =
            outputs.iter().map(|&(_, y, r)| self.net.sum(self.net.mul(y, r).unwrap()).unwrap()).collect();
        let loss = parts[1..].iter().fold(parts[0], |sum, &part| self.net.add(sum, part).unwrap());
        let registry = self.net.registry();
        let mut program = self.net.program();
        let gradients = backward::differentiate(&mut program, &registry, loss.id()).unwrap();
        let program = unpadded::Program::from_bytes(&program.to_bytes().unwrap()).unwrap();

        let mut wanted = vec![("loss".to_owned(), loss.id(), self.file.array("loss"))];
        wanted.extend(outputs.iter().map(|&(name, y, _)| (name.to_owned(), y.id(), self.file.array(name))));
        for (name, var) in
            watched.iter().copied().chain(self.weights.iter().map(|&(name, var, _)| (name, var)))
        {
            let name = format!("grad.{name}");
            let value = self.imported(&name);
            wanted.push((name, gradients[&var.id()], value));
        }
        let fetch: Vec<_> = wanted.iter().map(|(_, id, _)| *id).collect();
        for threads in [1, 2] {
            let mut scope = Scope::of(&program).unwrap();
            for (name, _, value) in &self.weights {
                scope.set(name, value.clone()).unwrap();
            }
            let mut executor = Executor::new(&program, &registry, &fetch, threads).unwrap();
            let feeds: Vec<_> = self.feeds.iter().map(|(var, value)| (var.id(), value)).collect();
            executor.run(&mut scope, &Run::infer(&feeds).until(Stage::Gradients)).unwrap();
            for (name, id, expected) in &wanted {
                let got = executor.fetch(*id).unwrap();
                let got = got.as_slice::<f32>().unwrap();
                assert_eq!(got.len(), expected.len(), "{name}");
                for (g, e) in got.iter().zip(expected) {
                    assert!((g - e).abs() <= 1e-5 * (1.0 + e.abs()), "{name}: {g}, expected {e}");
                }
            }
        }
    }
}

#[test]
fn lstm() {
    let mut case = Case::new("lstm");
    let (x, r) = (case.rows("x"), case.rows("R"));
    let (h0, c0, rh, rc) = (case.state("h0"), case.state("c0"), case.state("Rh"), case.state("Rc"));
    let weights = LstmWeights {
        w_ih: case.weight("weight_ih_l0"),
        w_hh: case.weight("weight_hh_l0"),
        b_ih: Some(case.weight("bias_ih_l0")),
        b_hh: Some(case.weight("bias_hh_l0")),
    };
    let watched = [("x", x), ("h0", h0), ("c0", c0)];
    watched.iter().for_each(|(_, var)| case.net.watch(*var).unwrap());
    let (y, h, c) = case.net.lstm_states_with(x, weights, Lstm::new(3).initial(h0, c0)).unwrap();
    case.check(&[("y", y, r), ("h_n", h, rh), ("c_n", c, rc)], &watched);
}

#[test]
fn gru() {
    let mut case = Case::new("gru");
    let (x, r) = (case.rows("x"), case.rows("R"));
    let (h0, rh) = (case.state("h0"), case.state("Rh"));
    let weights = GruWeights {
        w_ih: case.weight("weight_ih_l0"),
        w_hh: case.weight("weight_hh_l0"),
        b_ih: Some(case.weight("bias_ih_l0")),
        b_hh: Some(case.weight("bias_hh_l0")),
    };
    let watched = [("x", x), ("h0", h0)];
    watched.iter().for_each(|(_, var)| case.net.watch(*var).unwrap());
    let (y, h) = case.net.gru_states_with(x, weights, Gru::new(3).initial(h0)).unwrap();
    case.check(&[("y", y, r), ("h_n", h, rh)], &watched);
}
