//! Update rules against PyTorch's, and laws of their sparse forms.

use ndarray::{Array2, ArrayD, arr0};
use unpadded::executor::{Executor, Run, Scope, settle};
use unpadded::layers::init;
use unpadded::op::{Arity, Attributes, Debt, Direct, Operand, RunFacts};
use unpadded::optimizer::{
    Adadelta, Adagrad, Adam, Optimizer, OptimizerKind, OptimizerVariant, RmsProp, Sgd, UpdateRule,
};
use unpadded::tensor::{Dense, SelectedRows, Storage};
use unpadded::{Builder, DType, Variable, ops};

use crate::exact::farthest;
use crate::fixture::Fixture;

/// An update operator and its attributes; the mode is added by the test.
#[derive(Clone)]
pub(crate) struct Rule {
    pub(crate) kind: &'static str,
    pub(crate) attributes: Attributes,
}

/// The rule of an optimizer.
pub(crate) fn rule(optimizer: impl Optimizer) -> Rule {
    let UpdateRule { kind, attributes } = optimizer.rule().unwrap();
    Rule { kind, attributes }
}

impl Rule {
    pub(crate) fn with(mut self, name: &str, value: impl Into<unpadded::op::Literal>) -> Self {
        self.attributes.set(name, value);
        self
    }

    /// The slots of the states that the rule has with its settings.
    fn states(&self) -> impl Iterator<Item = &'static str> {
        let op = ops::catalogue().parse(self.kind, &self.attributes.clone().with("mode", "exact")).unwrap();
        let slots = op.signature().outputs.iter().filter(|slot| slot.arity == Arity::One);
        slots.map(|slot| slot.name).filter(|name| *name != "param")
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
        let state = rule.states().map(|_| Variable::dense(zeros.clone()));
        Self(std::iter::once(param).chain(state).collect())
    }

    pub(crate) fn update(&self, rule: &Rule, mode: &str, rate: f64, grad: Variable, run: RunFacts) -> Self {
        let attributes = rule.attributes.clone().with("mode", mode);
        let mut operands =
            vec![Operand::constant("grad", grad), Operand::constant("rate", arr0(rate as f32))];
        for (name, value) in std::iter::once("param").chain(rule.states()).zip(&self.0) {
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

fn sgd(_: &Fixture) -> Rule {
    rule(Sgd::new(0.0))
}

fn adagrad(f: &Fixture) -> Rule {
    rule(Adagrad::new(0.0).epsilon(f.number("eps", 0.0)))
}

fn adam(f: &Fixture) -> Rule {
    rule(Adam::new(0.0).epsilon(f.number("eps", 0.0)))
}

#[test]
fn dense_updates_are_those_of_pytorch() {
    check("optim_sgd", sgd, "exact", "step");
    let momentum = |f: &Fixture| Sgd::new(0.0).momentum(f.number("momentum", 0.0));
    check("optim_momentum", |f| rule(momentum(f)), "exact", "step");
    let nesterov = |f: &Fixture| {
        assert_eq!(f.metadata("nesterov"), Some("true"));
        rule(momentum(f).nesterov().weight_decay(f.number("weight_decay", 0.0)))
    };
    check("optim_nesterov_decay", nesterov, "exact", "step");
    check("optim_adagrad", adagrad, "exact", "step");
    let rmsprop =
        |f: &Fixture| rule(RmsProp::new(0.0).epsilon(f.number("eps", 0.0)).alpha(f.number("alpha", 0.0)));
    check("optim_rmsprop", rmsprop, "exact", "step");
    let adadelta =
        |f: &Fixture| rule(Adadelta::new(0.0).rho(f.number("rho", 0.0)).epsilon(f.number("eps", 0.0)));
    check("optim_adadelta", adadelta, "exact", "step");
    let betas = |f: &Fixture| assert_eq!(f.metadata("betas"), Some("[0.9, 0.999]"));
    let plain = |f: &Fixture| {
        betas(f);
        adam(f)
    };
    check("optim_adam", plain, "exact", "step");
    let decoupled = |f: &Fixture| {
        betas(f);
        adam(f).with("decoupled", true).with("weight_decay", f.number("weight_decay", 0.0))
    };
    check("optim_adamw", decoupled, "exact", "step");
}

#[test]
fn sparse_updates_are_those_of_pytorch() {
    for expected in ["lazy", "dense"] {
        check("optim_sparse_sgd", sgd, "exact", expected);
        check("optim_sparse_adagrad", adagrad, "exact", expected);
    }
    check("optim_sparse_adam", adam, "lazy", "lazy");
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

/// The rules of all variants that the optimizers' list has, also of those that update no row by itself.
pub(crate) fn every_rule() -> Vec<Rule> {
    OptimizerKind::variants().into_iter().map(|build| rule(build.optimizer)).collect()
}

/// The rules that update each row by itself.
fn by_rows() -> Vec<Rule> {
    let variants = OptimizerKind::variants().into_iter().filter(OptimizerVariant::is_by_rows);
    variants.map(|build| rule(build.optimizer)).collect()
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
    for rule in by_rows() {
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
    for rule in every_rule() {
        let before = warm(&rule, 6, 3);
        assert_eq!(before.update(&rule, "lazy", 0.1, none.clone(), facts(3, 1)), before, "{}", rule.kind);
    }
}

#[test]
fn threads_do_not_change_the_bits() {
    let (height, width) = (1100, 128);
    let ids: Vec<i64> = (0..1000).map(|i| i * 7919 % 1100).collect();
    let sparse = rows(height, ids, numbers((1000, width), 0.9));
    for rule in every_rule() {
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
    let sgd = rule(Sgd::new(0.5));
    let fields = Fields::start(&sgd, Variable::dense(ndarray::arr1(&[1.0f32, 1.0, 1.0, 1.0])));
    let after = fields.update(&sgd, "exact", 0.5, grad, facts(0, 1));
    assert_eq!(after.0[0].as_slice::<f32>().unwrap(), [0.0, 1.0, 1.0, 0.0]);
}

#[test]
fn exact_rules_whose_moves_cannot_be_made_now_say_what_they_need() {
    for build in OptimizerKind::variants() {
        let grad = rows(6, vec![1], numbers((1, 3), 0.9));
        let operands = [Operand::constant("grad", grad), Operand::constant("rate", arr0(0.1f32))];
        let Rule { kind, attributes } = rule(build.optimizer);
        let made = Direct::of(&ops::catalogue(), kind, &attributes.with("mode", "exact"), &operands);
        let error = made.err().map_or_else(String::new, |e| e.to_string());
        let expected = match build.owes {
            Debt::Nothing => continue,
            Debt::Later => &["input `history`: expected the history of updates"][..],
            Debt::AtOnce(reason) | Debt::Whole(reason) => &[".lazy()", reason],
        };
        assert!(expected.iter().all(|part| error.contains(part)), "{}: {error}", build.name);
    }
}

#[test]
fn nonsense_settings_are_refused_by_name() {
    let refused = |name: &str, value: f64| {
        let attributes = rule(Adam::new(0.1)).with(name, value).attributes.with("mode", "exact");
        let error = ops::catalogue().parse("adam", &attributes).err().unwrap().to_string();
        assert!(error.contains(name), "{error}");
    };
    refused("beta1", 1.0);
    refused("beta2", -0.1);
    refused("epsilon", f64::NAN);
    refused("weight_decay", -1.0);
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
