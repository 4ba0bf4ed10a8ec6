//! Values and gradients of layers and operators, and whole trainings, against PyTorch's.

use ndarray::{ArrayD, Axis, Ix2};
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::{Linear, Lstm, RecurrentWeights, from_torch, init};
use unpadded::ops::{CrossEntropy, Pool};
use unpadded::optimizer::{Adam, Optimizer, Sgd};
use unpadded::program::{VarId, backward};
use unpadded::tensor::{Dense, StorageKind};
use unpadded::{Builder, DType, Lod, Var, Variable, ops};

use crate::fixture::Fixture;

pub(crate) const BOTH: [DType; 2] = [DType::F32, DType::F64];

/// A network over a case's sequences, with the values of its feeds and parameters.
pub(crate) struct Net {
    pub(crate) net: Builder,
    dtype: DType,
    lengths: Vec<usize>,
    /// The first feed of rows, whose sequences the others share.
    first: Option<Var>,
    feeds: Vec<(VarId, Variable)>,
    weights: Vec<(String, Dense)>,
}

impl Net {
    pub(crate) fn new(case: &Fixture, dtype: DType) -> Self {
        let lengths = case.array::<i64>("lengths").iter().map(|&n| n as usize).collect();
        Self { net: Builder::new(), dtype, lengths, first: None, feeds: Vec::new(), weights: Vec::new() }
    }

    /// A feed with a row for each row of the sequences.
    pub(crate) fn rows(&mut self, name: &str, values: Dense) -> Var {
        let dims = &values.shape()[1..];
        let var = match self.first {
            Some(first) => self.net.feed_like(name, values.dtype(), dims, first),
            None => self.net.feed(name, values.dtype(), dims, 1),
        };
        self.first.get_or_insert(var);
        let lod = Lod::from_lengths1(&self.lengths).unwrap();
        self.feeds.push((var.id(), Variable::sequences(values, lod).unwrap()));
        var
    }

    /// A feed of as many sequences, of lengths of their own.
    pub(crate) fn others(&mut self, name: &str, values: Dense, lengths: &[usize]) -> Var {
        let var = self.net.feed(name, values.dtype(), &values.shape()[1..], 1);
        let lod = Lod::from_lengths1(lengths).unwrap();
        self.feeds.push((var.id(), Variable::sequences(values, lod).unwrap()));
        var
    }

    /// A feed of one row a sequence.
    pub(crate) fn states(&mut self, name: &str, values: ArrayD<f32>) -> Var {
        let values = self.floats(flat(values));
        let var = self.net.feed(name, self.dtype, &values.shape()[1..], 0);
        self.feeds.push((var.id(), Variable::dense(values)));
        var
    }

    pub(crate) fn weight(&mut self, name: &str, value: ArrayD<f32>) -> Var {
        let value = self.floats(value);
        self.weights.push((name.to_owned(), value.clone()));
        self.net.parameter(name, self.dtype, value.shape(), init::zeros())
    }

    pub(crate) fn floats(&self, values: ArrayD<f32>) -> Dense {
        Dense::from(values.as_standard_layout().into_owned()).cast(self.dtype)
    }

    /// Σ part · weight, over all of them.
    pub(crate) fn loss(&self, parts: &[(Var, Var)]) -> Var {
        let net = &self.net;
        let sum = |&(part, weight): &(Var, Var)| net.sum(net.mul(part, weight));
        let add = |so_far: Var, one: Var| net.add(so_far, one);
        parts.iter().map(sum).reduce(add).unwrap()
    }

    /// Runs forward and backward; the values, then the gradients.
    pub(crate) fn run(self, loss: Var, values: &[Var], wrt: &[Var]) -> (Vec<Variable>, Vec<Variable>) {
        let mut program = self.net.finish().unwrap();
        let grads = backward::differentiate(&mut program, &ops::catalogue(), loss.id()).unwrap();
        let values: Vec<VarId> = values.iter().map(|v| v.id()).collect();
        let wrt: Vec<VarId> = wrt.iter().map(|v| grads[&v.id()]).collect();
        let mut exe = Executor::new(&program, &ops::catalogue(), &[&values[..], &wrt].concat(), 1).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        self.weights.into_iter().for_each(|(name, value)| scope.set(&name, value).unwrap());
        let feeds: Vec<(VarId, &Variable)> = self.feeds.iter().map(|(id, v)| (*id, v)).collect();
        exe.run(&mut scope, &Run::train(&feeds, 0).until(Stage::Gradients)).unwrap();
        let mut fetch = |ids: &[VarId]| ids.iter().map(|&id| exe.fetch(id).unwrap()).collect();
        (fetch(&values), fetch(&wrt))
    }
}

/// The first layer of `[layers, sequences, width]`.
fn flat(values: ArrayD<f32>) -> ArrayD<f32> {
    if values.ndim() == 3 { values.index_axis_move(Axis(0), 0) } else { values }
}

/// PyTorch's `[out, in]` as `[in, out]`.
pub(crate) fn turned(weight: ArrayD<f32>) -> ArrayD<f32> {
    from_torch(weight.into_dimensionality::<Ix2>().unwrap().view()).into_dyn()
}

/// Checks numbers within 1e-5, relative. Small numbers are differences of large terms: numbers below 0.02, or below a fiftieth of
/// the array's largest, count as this bound.
#[track_caller]
pub(crate) fn close(got: &Variable, expected: ArrayD<f32>, what: &str) {
    within(1e-5, got, expected, what);
}

#[track_caller]
fn within(bound: f64, got: &Variable, expected: ArrayD<f32>, what: &str) {
    let got = got.storage().to_dense().unwrap().cast(DType::F64);
    let (got, expected) = (got.as_slice::<f64>().unwrap(), expected.as_standard_layout());
    assert_eq!(got.len(), expected.len(), "{what}");
    let floor = expected.iter().fold(0.02, |floor: f64, x| floor.max(f64::from(x.abs()) / 50.0));
    let error = |(got, expected): (&f64, &f32)| {
        (got - f64::from(*expected)).abs() / f64::from(expected.abs()).max(floor)
    };
    let worst = got.iter().zip(&expected).map(error).fold(0.0, f64::max);
    println!("{what}: {worst:.1e}");
    assert!(worst <= bound, "{what}: {worst:.1e} off, relative");
}

#[test]
fn embedding_merges_the_rows_of_its_gradient() {
    let case = Fixture::load("embedding_sparse");
    let padding = case.number("padding_idx", f64::NAN) as i64;
    for dtype in BOTH {
        for sparse in [true, false] {
            let mut net = Net::new(&case, dtype);
            let ids = net.rows("ids", case.array::<i64>("ids").into());
            let weight = net.weight("weight", case.array("weight"));
            let r = net.rows("R", net.floats(case.array("R")));
            let y = net.net.lookup(ids, weight, Some(padding), sparse);
            let loss = net.loss(&[(y, r)]);
            let (values, grads) = net.run(loss, &[loss, y], &[weight]);
            close(&values[0], case.array("loss"), &format!("embedding {dtype} loss"));
            close(&values[1], case.array("y"), &format!("embedding {dtype} y"));
            let kind = if sparse { StorageKind::SelectedRows } else { StorageKind::Dense };
            assert_eq!(grads[0].storage().kind(), kind);
            let what = format!("embedding {dtype} {kind} gradient");
            close(&grads[0], case.array("grad.weight.dense"), &what);
            if let unpadded::tensor::Storage::SelectedRows(rows) = grads[0].storage() {
                assert!(!rows.row_ids().contains(&padding));
                let merged = Variable::new(rows.clone().merge().unwrap(), None).unwrap();
                close(&merged, case.array("grad.weight.dense"), &format!("{what}, merged"));
            }
        }
    }
}

#[test]
fn cross_entropy_is_that_of_pytorch() {
    for name in ["cross_entropy", "cross_entropy_smoothed", "cross_entropy_weighted"] {
        let case = Fixture::load(name);
        for dtype in BOTH {
            let mut net = Net::new(&case, dtype);
            let logits = net.rows("logits", net.floats(case.array("logits")));
            net.net.watch(logits);
            let labels = net.rows("labels", case.array::<i64>("target").into());
            let weighted = name.ends_with("weighted");
            let options = CrossEntropy::default()
                .ignore_index(case.number("ignore_index", f64::NAN) as i64)
                .class_weights(weighted.then(|| net.weight("weight", case.array("weight"))))
                .label_smoothing(case.number("label_smoothing", 0.0));
            let (losses, shares) = net.net.cross_entropy_with(logits, labels, options);
            let loss = net.net.div(net.net.sum(losses), net.net.sum(shares));
            let (values, grads) = net.run(loss, &[loss, losses, shares], &[logits]);
            close(&values[0], case.array("loss"), &format!("{name} {dtype} loss"));
            close(&grads[0], case.array("grad.logits"), &format!("{name} {dtype} gradient"));
            let expected = row_losses(&case, weighted);
            close(&values[1], expected.0, &format!("{name} {dtype} losses of the rows"));
            close(&values[2], expected.1, &format!("{name} {dtype} shares of the rows"));
        }
    }
}

/// The loss of each row and its share by the formula, in f64: the file has their mean only.
fn row_losses(case: &Fixture, weighted: bool) -> (ArrayD<f32>, ArrayD<f32>) {
    let (logits, weight) = (case.array::<f32>("logits"), case.array::<f32>("weight"));
    let labels = case.array::<i64>("target");
    let smoothing = case.number("label_smoothing", 0.0);
    let classes = logits.shape()[1];
    let w = |c: usize| if weighted { f64::from(weight[c]) } else { 1.0 };
    let row = |(row, &label): (ndarray::ArrayViewD<'_, f32>, &i64)| {
        let Ok(y) = usize::try_from(label) else { return (0.0, 0.0) };
        let total: f64 = row.iter().map(|&x| f64::from(x).exp()).sum();
        let log_p = |c: usize| f64::from(row[c]) - total.ln();
        let spread: f64 = (0..classes).map(|c| w(c) * log_p(c)).sum();
        let loss = -(1.0 - smoothing) * w(y) * log_p(y) - smoothing / classes as f64 * spread;
        (loss as f32, w(y) as f32)
    };
    let rows = logits.outer_iter().zip(&labels).map(row);
    let (losses, shares): (Vec<f32>, Vec<f32>) = rows.unzip();
    (ndarray::arr1(&losses).into_dyn(), ndarray::arr1(&shares).into_dyn())
}

#[test]
fn sequence_pool_and_attention_are_those_of_pytorch() {
    let case = Fixture::load("sequence_pool");
    for dtype in BOTH {
        for pool in Pool::ALL {
            let name = pool.name();
            let mut net = Net::new(&case, dtype);
            let x = net.rows("x", net.floats(case.array("x")));
            net.net.watch(x);
            let r = net.states("R", case.array(&format!("{name}.R")));
            let y = net.net.sequence_pool(x, pool);
            let loss = net.loss(&[(y, r)]);
            let (values, grads) = net.run(loss, &[y], &[x]);
            close(&values[0], case.array(&format!("{name}.y")), &format!("{name} {dtype}"));
            close(&grads[0], case.array(&format!("{name}.grad.x")), &format!("{name} {dtype} gradient"));
        }
        let mut net = Net::new(&case, dtype);
        let x = net.rows("x", net.floats(case.array("x")));
        let scores = net.rows("scores", net.floats(case.array("scores")));
        for var in [x, scores] {
            net.net.watch(var);
        }
        let r = net.states("R", case.array("attention.R"));
        let shares = net.net.sequence_softmax(scores);
        let y = net.net.sequence_pool(net.net.mul(x, shares), Pool::Sum);
        let loss = net.loss(&[(y, r)]);
        let (values, grads) = net.run(loss, &[y], &[x, scores]);
        close(&values[0], case.array("attention.y"), &format!("attention {dtype}"));
        close(&grads[0], case.array("attention.grad.x"), &format!("attention {dtype} grad.x"));
        close(&grads[1], case.array("attention.grad.scores"), &format!("attention {dtype} grad.scores"));
    }
}

/// 50 steps over 5 batches: each loss, and the weights at the end, within 1e-4.
fn train(case: &str, optimizer: impl Fn(f64) -> Box<dyn Optimizer>) {
    let case_name = case;
    let case = Fixture::load(case);
    let rate = case.number("lr", f64::NAN);
    let lengths: Vec<usize> = case.array::<i64>("lengths").iter().map(|&n| n as usize).collect();
    let lod = Lod::from_lengths1(&lengths).unwrap();

    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let parameter = |name: &str, dims: &[usize]| net.parameter(name, DType::F32, dims, init::zeros());
    let table = parameter("embedding.weight", &[20, 4]);
    let weights = RecurrentWeights {
        w_ih: parameter("lstm.weight_ih_l0", &[4, 12]),
        w_hh: parameter("lstm.weight_hh_l0", &[3, 12]),
        b_ih: Some(parameter("lstm.bias_ih_l0", &[12])),
        b_hh: Some(parameter("lstm.bias_hh_l0", &[12])),
    };
    let x = net.lookup(words, table, None, false);
    let (_, [h, _]) = net.layer_with(Lstm::new(3), weights).states(x);
    let logits = net.linear(h, Linear::new(3).named("out"));
    let loss = net.mean(net.cross_entropy(logits, label));
    let mut program = net.finish().unwrap();
    optimizer(rate).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();

    let mut scope = Scope::of(&program).unwrap();
    let names: Vec<String> = program.trained_parameters().map(|p| program.var(p).name.clone()).collect();
    let reference = |when: &str, name: &str| {
        let value = case.array::<f32>(&format!("{when}.{name}"));
        let matrix = value.ndim() == 2 && name != "embedding.weight";
        if matrix { turned(value) } else { value }
    };
    for name in &names {
        scope.set(name, Dense::from(reference("start", name))).unwrap();
    }
    let mut exe = Executor::new(&program, &ops::catalogue(), &[loss.id()], 1).unwrap();
    let batches: Vec<[Variable; 2]> = (0..5)
        .map(|i| {
            let ids = Dense::from(case.array::<i64>(&format!("ids.{i}")));
            let label = Dense::from(case.array::<i64>(&format!("label.{i}")));
            [Variable::sequences(ids, lod.clone()).unwrap(), Variable::dense(label)]
        })
        .collect();
    let mut losses = Vec::new();
    for step in 0..50 {
        let [ids, labels] = &batches[step % 5];
        let feeds = [(words.id(), ids), (label.id(), labels)];
        exe.run(&mut scope, &Run::train(&feeds, step as u64)).unwrap();
        losses.push(exe.scalar(loss).unwrap());
    }
    let losses = Variable::dense(ndarray::arr1(&losses).into_dyn());
    within(1e-4, &losses, case.array("losses"), &format!("{case_name}: losses"));
    for name in &names {
        let got = Variable::dense(scope.get(name).unwrap());
        within(1e-4, &got, reference("end", name), &format!("{case_name}: {name}"));
    }
}

#[test]
fn training_with_adam_is_that_of_pytorch() {
    train("train_classifier_adam", |rate| Box::new(Adam::new(rate)));
}

#[test]
fn training_with_clipped_sgd_is_that_of_pytorch() {
    let sgd = |rate| -> Box<dyn Optimizer> { Box::new(Sgd::new(rate).momentum(0.9).clip_global_norm(1.0)) };
    let case = Fixture::load("train_classifier_sgd_clip");
    assert_eq!((case.number("momentum", 0.0), case.number("clip", 0.0)), (0.9, 1.0));
    train("train_classifier_sgd_clip", sgd);
}
