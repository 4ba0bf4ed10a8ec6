//! Update rules against PyTorch's, and laws of their sparse forms.

use ndarray::{Array2, ArrayD, arr0};
use unpadded::executor::{Executor, Run, Scope, settle};
use unpadded::layers::init;
use unpadded::op::{Attributes, Direct, Operand, RunFacts};
use unpadded::optimizer::{Adagrad, Adam, Optimizer, Sgd};
use unpadded::tensor::{Dense, SelectedRows, Storage};
use unpadded::{Builder, DType, Variable, ops};

use crate::exact::farthest;
use crate::fixture::Fixture;

/// An update operator and its attributes; the mode is added by the test.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) kind: &'static str,
    pub(crate) attributes: Attributes,
    pub(crate) state: &'static [&'static str],
}

pub(crate) fn sgd() -> Rule {
    Rule { kind: "sgd", attributes: Attributes::new().with("weight_decay", 0.0), state: &[] }
}

pub(crate) fn momentum(momentum: f64) -> Rule {
    let attributes = Attributes::new().with("momentum", momentum);
    let attributes = attributes.with("weight_decay", 0.0).with("nesterov", false);
    Rule { kind: "momentum", attributes, state: &["velocity"] }
}

pub(crate) fn adagrad(epsilon: f64) -> Rule {
    let attributes = Attributes::new().with("epsilon", epsilon);
    let attributes = attributes.with("rate_decay", 0.0).with("weight_decay", 0.0);
    Rule { kind: "adagrad", attributes, state: &["sum"] }
}

pub(crate) fn rmsprop(epsilon: f64) -> Rule {
    let attributes = Attributes::new().with("alpha", 0.99).with("epsilon", epsilon);
    Rule { kind: "rmsprop", attributes, state: &["square"] }
}

/// Returns centred RMSProp with the same attributes.
pub(crate) fn rmsprop_centred(momentum: f64) -> Rule {
    let Rule { attributes, .. } = rmsprop(1e-8);
    match momentum == 0.0 {
        true => Rule { kind: "rmsprop_centred", attributes, state: &["square", "mean"] },
        false => Rule {
            kind: "rmsprop_centred_momentum",
            attributes: attributes.with("momentum", momentum),
            state: &["square", "mean", "velocity"],
        },
    }
}

pub(crate) fn rmsprop_momentum(momentum: f64) -> Rule {
    let attributes = rmsprop(1e-8).attributes.with("momentum", momentum);
    Rule { kind: "rmsprop_momentum", attributes, state: &["square", "velocity"] }
}

pub(crate) fn adadelta(rho: f64, epsilon: f64) -> Rule {
    let attributes = Attributes::new().with("rho", rho).with("epsilon", epsilon);
    Rule { kind: "adadelta", attributes, state: &["square", "moved"] }
}

pub(crate) fn ftrl() -> Rule {
    let attributes = Attributes::new().with("beta", 1.0).with("l1", 0.0).with("l2", 0.5);
    Rule { kind: "ftrl", attributes, state: &["sum", "linear", "strength"] }
}

pub(crate) fn lion() -> Rule {
    let attributes = Attributes::new().with("beta1", 0.9).with("beta2", 0.99);
    Rule { kind: "lion", attributes, state: &["moment"] }
}

pub(crate) fn adamax() -> Rule {
    Rule { kind: "adamax", attributes: betas(), state: &["moment", "largest"] }
}

pub(crate) fn nadam() -> Rule {
    let attributes = betas().with("momentum_decay", 4e-3);
    Rule { kind: "nadam", attributes, state: &["moment1", "moment2"] }
}

pub(crate) fn amsgrad() -> Rule {
    Rule { kind: "amsgrad", attributes: betas(), state: &["moment1", "moment2", "largest"] }
}

pub(crate) fn lamb() -> Rule {
    Rule { kind: "lamb", attributes: betas().with("weight_decay", 0.1), state: &["moment1", "moment2"] }
}

fn betas() -> Attributes {
    Attributes::new().with("beta1", 0.9).with("beta2", 0.999).with("epsilon", 1e-8)
}

pub(crate) fn adam(epsilon: f64) -> Rule {
    let attributes = Attributes::new().with("beta1", 0.9).with("beta2", 0.999).with("epsilon", epsilon);
    let attributes = attributes.with("weight_decay", 0.0).with("decoupled", false);
    Rule { kind: "adam", attributes, state: &["moment1", "moment2"] }
}

impl Rule {
    pub(crate) fn with(mut self, name: &str, value: impl Into<unpadded::op::Literal>) -> Self {
        self.attributes.set(name, value);
        self
    }
}

/// The parameter and its state.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Fields(pub(crate) Vec<Variable>);

fn cast(x: &Variable, dtype: DType) -> Variable {
    match x.storage() {
        Storage::Dense(x) => Variable::dense(x.cast(dtype)),
        Storage::SelectedRows(x) => rows(x.height(), x.row_ids().to_vec(), x.value().cast(dtype)),
        _ => unreachable!(),
    }
}

pub(crate) fn rows(height: usize, ids: Vec<i64>, values: impl Into<unpadded::tensor::Dense>) -> Variable {
    Variable::new(SelectedRows::new(height, ids, values).unwrap(), None).unwrap()
}

impl Fields {
    pub(crate) fn start(rule: &Rule, param: Variable) -> Self {
        let zeros = unpadded::tensor::Dense::zeros(param.dtype(), param.shape()).unwrap();
        let state = rule.state.iter().map(|_| Variable::dense(zeros.clone()));
        Self(std::iter::once(param).chain(state).collect())
    }

    pub(crate) fn update(&self, rule: &Rule, mode: &str, rate: f64, grad: Variable, run: RunFacts) -> Self {
        let attributes = rule.attributes.clone().with("mode", mode);
        let mut operands =
            vec![Operand::constant("grad", grad), Operand::constant("rate", arr0(rate as f32))];
        for (name, value) in std::iter::once(&"param").chain(rule.state).zip(&self.0) {
            operands.push(Operand::constant(name, value.clone()));
        }
        let call = Direct::of(&ops::catalogue(), rule.kind, &attributes, &operands).unwrap();
        Self(call.run_as(run, &[]).forward().unwrap().concat())
    }

    fn param(&self) -> ArrayD<f64> {
        cast(&self.0[0], DType::F64).into_array::<f64>().unwrap()
    }
}

pub(crate) fn facts(step: u64, threads: usize) -> RunFacts {
    RunFacts { step, threads, ..RunFacts::default() }
}

#[track_caller]
fn close(got: &ArrayD<f64>, expected: &ArrayD<f32>, what: &str) {
    assert_eq!(got.shape(), expected.shape());
    for (got, expected) in got.iter().zip(expected) {
        let expected = f64::from(*expected);
        // Inputs and results are rounded to f32 around 1: near zero nothing is relative.
        let bound = 1e-5 * expected.abs().max(0.02);
        assert!((got - expected).abs() <= bound, "{what}: {got} for {expected}");
    }
}

/// Ten steps on the case's gradients, each result beside the reference `EXPECTED.K`.
fn check(case: &str, rule: impl Fn(&Fixture) -> Rule, mode: &str, expected: &str) {
    let fixture = Fixture::load(case);
    let rule = rule(&fixture);
    for dtype in [DType::F32, DType::F64] {
        let start = Variable::dense(fixture.array::<f32>("start"));
        let mut fields = Fields::start(&rule, cast(&start, dtype));
        for step in 0..10 {
            let grad = if expected == "step" {
                Variable::dense(fixture.array::<f32>(&format!("grad.{step}")))
            } else {
                let ids = fixture.array::<i64>(&format!("rows.{step}")).into_raw_vec_and_offset().0;
                rows(start.rows(), ids, fixture.array::<f32>(&format!("values.{step}")))
            };
            let rate = fixture.number("lr", f64::NAN);
            fields = fields.update(&rule, mode, rate, cast(&grad, dtype), facts(step, 1));
            let reference = fixture.array::<f32>(&format!("{expected}.{step}"));
            close(&fields.param(), &reference, &format!("{case}, {dtype}, step {step}"));
        }
    }
}

#[test]
fn dense_updates_are_those_of_pytorch() {
    check("optim_sgd", |_| sgd(), "exact", "step");
    check("optim_momentum", |f| momentum(f.number("momentum", 0.0)), "exact", "step");
    let nesterov = |f: &Fixture| {
        assert_eq!(f.metadata("nesterov"), Some("true"));
        let rule = momentum(f.number("momentum", 0.0)).with("nesterov", true);
        rule.with("weight_decay", f.number("weight_decay", 0.0))
    };
    check("optim_nesterov_decay", nesterov, "exact", "step");
    check("optim_adagrad", |f| adagrad(f.number("eps", 0.0)), "exact", "step");
    let alpha = |f: &Fixture| rmsprop(f.number("eps", 0.0)).with("alpha", f.number("alpha", 0.0));
    check("optim_rmsprop", alpha, "exact", "step");
    check("optim_adadelta", |f| adadelta(f.number("rho", 0.0), f.number("eps", 0.0)), "exact", "step");
    let betas = |f: &Fixture| assert_eq!(f.metadata("betas"), Some("[0.9, 0.999]"));
    let plain = |f: &Fixture| {
        betas(f);
        adam(f.number("eps", 0.0))
    };
    check("optim_adam", plain, "exact", "step");
    let decoupled = |f: &Fixture| {
        betas(f);
        let decay = f.number("weight_decay", 0.0);
        adam(f.number("eps", 0.0)).with("decoupled", true).with("weight_decay", decay)
    };
    check("optim_adamw", decoupled, "exact", "step");
}

#[test]
fn sparse_updates_are_those_of_pytorch() {
    for expected in ["lazy", "dense"] {
        check("optim_sparse_sgd", |_| sgd(), "exact", expected);
        check("optim_sparse_adagrad", |f| adagrad(f.number("eps", 0.0)), "exact", expected);
    }
    check("optim_sparse_adam", |f| adam(f.number("eps", 0.0)), "lazy", "lazy");
}

/// An optimizer by the settings of a fixture.
type Made<'a> = &'a dyn Fn(&Fixture) -> Box<dyn Optimizer>;

/// In exact mode a program comes to where PyTorch's dense rule does on the densified gradients.
#[test]
fn exact_updates_of_rows_are_those_of_pytorch_on_dense_ones() {
    let momentum = |f: &Fixture| Sgd::new(f.number("lr", 0.0)).momentum(f.number("momentum", 0.0));
    let adam = |f: &Fixture| Adam::new(f.number("lr", 0.0)).epsilon(f.number("eps", 0.0));
    let adagrad = |f: &Fixture| Adagrad::new(f.number("lr", 0.0)).epsilon(f.number("eps", 0.0));
    let cases: [(&str, Made<'_>); 4] = [
        ("optim_sparse_sgd", &|f| Box::new(Sgd::new(f.number("lr", 0.0)))),
        ("optim_sparse_momentum", &|f| Box::new(momentum(f))),
        ("optim_sparse_adagrad", &|f| Box::new(adagrad(f))),
        ("optim_sparse_adam", &|f| Box::new(adam(f))),
    ];
    for (case, optimizer) in cases {
        let fixture = Fixture::load(case);
        let start = fixture.array::<f32>("start");
        let (height, width) = (start.shape()[0], start.shape()[1]);
        // The gradient of the table is `by` in the rows of the ids.
        let net = Builder::new();
        let ids = net.feed("ids", DType::I64, &[], 0);
        let by = net.feed("by", DType::F64, &[width], 0);
        let table = net.parameter("table", DType::F64, &[height, width], init::zeros());
        let loss = net.sum(net.mul(net.lookup(ids, table, None, true), by));
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        optimizer(&fixture).minimize(&mut program, &registry, loss.id()).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        scope.set("table", Dense::from(start).cast(DType::F64)).unwrap();
        let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
        for step in 0..10 {
            let fed = Variable::dense(fixture.array::<i64>(&format!("rows.{step}")));
            let values = Dense::from(fixture.array::<f32>(&format!("values.{step}"))).cast(DType::F64);
            let feeds = [(ids.id(), &fed), (by.id(), &Variable::dense(values))];
            executor.run(&mut scope, &Run::train(&feeds, step)).unwrap();
            let mut settled = scope.clone();
            settle(&program, &registry, &mut settled, 1).unwrap();
            let expected = Dense::from(fixture.array::<f32>(&format!("dense.{step}"))).cast(DType::F64);
            let found = settled.get("table").unwrap();
            let off = farthest(found.as_slice::<f64>().unwrap(), expected.as_slice::<f64>().unwrap());
            assert!(off < 1e-6, "{case}, step {step}: {off:e}");
        }
    }
}

/// All but `lamb`, whose elements depend on one another.
pub(crate) fn every_rule() -> Vec<Rule> {
    let nesterov = momentum(0.9).with("nesterov", true).with("weight_decay", 0.01);
    let adamw = adam(1e-8).with("decoupled", true).with("weight_decay", 0.1);
    let decays = |rule: Rule| rule.with("weight_decay", 0.1).with("l1", 0.01);
    vec![
        sgd().with("weight_decay", 0.01),
        nesterov,
        adagrad(1e-10).with("rate_decay", 0.1),
        adamw,
        rmsprop(1e-8).with("l1", 0.1),
        rmsprop_momentum(0.9),
        rmsprop_centred(0.0),
        decays(rmsprop_centred(0.9)),
        decays(adadelta(0.9, 1e-6)),
        ftrl(),
        decays(lion()).with("decoupled", true),
        decays(adamax()),
        decays(nadam()).with("decoupled", true),
        decays(amsgrad()),
    ]
}

pub(crate) fn numbers(shape: (usize, usize), pace: f32) -> Array2<f32> {
    Array2::from_shape_fn(shape, |(i, j)| ((i * shape.1 + j) as f32 * pace).sin())
}

/// A few steps lead to a state that is not zero.
fn warm(rule: &Rule, height: usize, width: usize) -> Fields {
    let mut fields = Fields::start(rule, Variable::dense(numbers((height, width), 0.3)));
    for step in 0..3 {
        let grad = Variable::dense(numbers((height, width), 0.7 + step as f32));
        fields = fields.update(rule, "exact", 0.1, grad, facts(step, 1));
    }
    fields
}

fn bits(fields: &Fields, row: usize) -> Vec<u32> {
    let width = fields.0[0].shape()[1];
    let row = |v: &Variable| v.as_slice::<f32>().unwrap()[row * width..(row + 1) * width].to_vec();
    fields.0.iter().flat_map(row).map(f32::to_bits).collect()
}

#[test]
fn rows_that_repeat_are_added_up_first_and_others_keep_their_bits() {
    let grad = SelectedRows::new(6, vec![4, 1, 4, 4], numbers((4, 3), 0.9)).unwrap();
    let merged = Variable::new(grad.clone().merge().unwrap(), None).unwrap();
    let repeated = Variable::new(grad, None).unwrap();
    for rule in every_rule() {
        let before = warm(&rule, 6, 3);
        let after = before.update(&rule, "lazy", 0.1, repeated.clone(), facts(3, 1));
        assert_eq!(after, before.update(&rule, "lazy", 0.1, merged.clone(), facts(3, 1)), "{}", rule.kind);
        // A touched row moves as it does under the dense gradient.
        let dense = Variable::dense(merged.storage().to_dense().unwrap().into_owned());
        let dense = before.update(&rule, "exact", 0.1, dense, facts(3, 1));
        for row in 0..6 {
            let touched = [1, 4].contains(&row);
            let expected = if touched { &dense } else { &before };
            assert_eq!(bits(&after, row), bits(expected, row), "{} row {row}", rule.kind);
            assert!(!touched || bits(&after, row) != bits(&before, row));
        }
    }
}

#[test]
fn no_row_moves_nothing() {
    let none = rows(6, vec![], numbers((0, 3), 0.9));
    for rule in every_rule().into_iter().chain([lamb()]) {
        let before = warm(&rule, 6, 3);
        assert_eq!(before.update(&rule, "lazy", 0.1, none.clone(), facts(3, 1)), before, "{}", rule.kind);
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let (height, width) = (1100, 128);
    let ids: Vec<i64> = (0..1000).map(|i| i * 7919 % 1100).collect();
    let sparse = rows(height, ids, numbers((1000, width), 0.9));
    for rule in every_rule().into_iter().chain([lamb()]) {
        let table = warm(&rule, height, width);
        let dense = Variable::dense(numbers((height, width), 0.9));
        let vector =
            Fields::start(&rule, Variable::dense(numbers((1, 150_000), 0.3).remove_axis(ndarray::Axis(0))));
        let along = Variable::dense(numbers((1, 150_000), 0.4).remove_axis(ndarray::Axis(0)));
        let cases = [(&table, "exact", dense), (&table, "lazy", sparse.clone()), (&vector, "exact", along)];
        for (fields, mode, grad) in cases {
            let run = |threads| fields.update(&rule, mode, 0.1, grad.clone(), facts(3, threads));
            let alone = run(1);
            for threads in [2, 3, 7] {
                assert!(alone == run(threads), "{} {mode} on {threads} threads", rule.kind);
            }
        }
    }
}

#[test]
fn sparse_rows_of_a_vector_are_its_elements() {
    let grad = rows(4, vec![3, 0, 3], ndarray::arr1(&[1.0f32, 2.0, 1.0]));
    let fields = Fields::start(&sgd(), Variable::dense(ndarray::arr1(&[1.0f32, 1.0, 1.0, 1.0])));
    let after = fields.update(&sgd(), "exact", 0.5, grad, facts(0, 1));
    assert_eq!(after.0[0].as_slice::<f32>().unwrap(), [0.0, 1.0, 1.0, 0.0]);
}

#[test]
fn exact_rules_whose_moves_cannot_wait_refuse_selected_rows() {
    let refused = |rule: Rule, reason: &str| {
        let grad = rows(6, vec![1], numbers((1, 3), 0.9));
        let operands = [Operand::constant("grad", grad), Operand::constant("rate", arr0(0.1f32))];
        let attributes = rule.attributes.with("mode", "exact");
        let error =
            Direct::of(&ops::catalogue(), rule.kind, &attributes, &operands).err().unwrap().to_string();
        assert!(error.contains(".lazy()") && error.contains(reason), "{error}");
    };
    refused(lamb(), "LAMB, which divides by the length of the whole parameter,");
    refused(sgd().with("l1", 0.1), "L1 decay");
    refused(adagrad(1e-8).with("l1", 0.1).with("decoupled", true), "L1 decay");
    refused(adam(1e-8).with("weight_decay", 0.1), "weight decay that is added to the gradient");
    refused(adagrad(1e-8).with("weight_decay", 0.1), "weight decay that is added to the gradient");
}

#[test]
fn rules_whose_moves_wait_ask_for_the_updates_before() {
    let rules = [
        momentum(0.9),
        rmsprop(1e-8),
        rmsprop_momentum(0.9),
        rmsprop_centred(0.0),
        rmsprop_centred(0.5),
        adadelta(0.9, 1e-6),
        lion(),
        adam(1e-8),
        adamax(),
        nadam(),
        amsgrad(),
        sgd().with("weight_decay", 0.1),
        adagrad(1e-8).with("weight_decay", 0.1).with("decoupled", true),
    ];
    for rule in rules {
        let grad = rows(6, vec![1], numbers((1, 3), 0.9));
        let operands = [Operand::constant("grad", grad), Operand::constant("rate", arr0(0.1f32))];
        let attributes = rule.attributes.with("mode", "exact");
        let made = Direct::of(&ops::catalogue(), rule.kind, &attributes, &operands);
        let said = made.err().unwrap().to_string();
        assert!(said.contains("input `history`: expected the history of updates"), "{}: {said}", rule.kind);
    }
}

#[test]
fn nonsense_settings_are_refused_by_name() {
    let refused = |rule: Rule, name: &str, value: f64| {
        let attributes = rule.with(name, value).attributes.with("mode", "exact");
        let error = ops::catalogue().parse("adam", &attributes).err().unwrap().to_string();
        assert!(error.contains(name), "{error}");
    };
    refused(adam(1e-8), "beta1", 1.0);
    refused(adam(1e-8), "beta2", -0.1);
    refused(adam(1e-8), "epsilon", f64::NAN);
    refused(adam(1e-8), "weight_decay", -1.0);
}

fn clip(max_norm: f64, gradients: &[Variable], threads: usize) -> (f64, f64) {
    let operands: Vec<Operand> = gradients.iter().map(|g| Operand::constant("grads", g.clone())).collect();
    let attributes = Attributes::new().with("max_norm", max_norm);
    let call = Direct::of(&ops::catalogue(), "global_norm", &attributes, &operands).unwrap();
    let out = call.run_as(facts(0, threads), &[]).forward().unwrap().concat();
    let number = |v: &Variable| cast(v, DType::F64).as_slice::<f64>().unwrap()[0];
    (number(&out[0]), number(&out[1]))
}

#[test]
fn clipping_is_that_of_pytorch() {
    let fixture = Fixture::load("clip_global_norm");
    let gradients = ["a", "b"].map(|name| Variable::dense(fixture.array::<f32>(name)));
    let max_norm = fixture.number("max_norm", f64::NAN);
    let (norm, scale) = clip(max_norm, &gradients, 1);
    close(&ndarray::arr1(&[norm]).into_dyn(), &fixture.array::<f32>("norm"), "norm");
    for (name, grad) in ["a", "b"].iter().zip(gradients) {
        let attributes = Attributes::new().with("storage", "dense");
        let out = ops::catalogue().parse("scale_gradient", &attributes).unwrap().call(&[
            Operand::constant("param", grad.clone()),
            Operand::constant("scale", arr0(scale as f32)),
            Operand::constant("grad", grad),
        ]);
        let clipped = cast(&out.unwrap()[0], DType::F64).into_array::<f64>().unwrap();
        close(&clipped, &fixture.array::<f32>(&format!("{name}.clipped")), name);
    }
}

#[test]
fn the_norm_is_that_of_merged_rows_on_any_number_of_threads() {
    let sparse = SelectedRows::new(6, vec![4, 1, 4], numbers((3, 2), 0.9)).unwrap();
    let dense = Variable::dense(sparse.densify().unwrap());
    let small = Variable::dense(numbers((1, 3), 0.2));
    let sparse = Variable::new(sparse, None).unwrap();
    let (a, b) = (clip(0.5, &[small.clone(), sparse], 1), clip(0.5, &[small, dense], 1));
    assert!((a.0 - b.0).abs() < 1e-6 && (a.1 - b.1).abs() < 1e-6 && a.1 < 1.0, "{a:?} {b:?}");
    let big = [Variable::dense(numbers((1100, 128), 0.9)), Variable::dense(numbers((1, 150_000), 0.9))];
    assert_eq!(clip(0.5, &big, 1), clip(0.5, &big, 3));
    assert_eq!(clip(1e9, &big, 1).1, 1.0);
}
