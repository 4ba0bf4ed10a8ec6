//! Update rules as a user's crate defines them: declared by `update_rule!`, registered beside the catalogue, held to its contract,
//! and exact under gradients of selected rows.

use ndarray::array;
use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Run, Scope, settle};
use unpadded::layers::init;
use unpadded::op::{
    Attributes, Debt, ElementRule, ElementStep, Float, Moment, RuleSettings, settings, testing,
};
use unpadded::optimizer::{Optimizer, Options, Schedule, SparseMode, UpdateRule};
use unpadded::predict::Predictor;
use unpadded::program::{Append, BlockId, Role};
use unpadded::store::{Key, KeyValueStore, LocalStore, Rule};
use unpadded::tensor::{SelectedRows, Storage};
use unpadded::{Builder, DType, Program, Registry, Result, Variable, ops, update_rule};

use crate::models::Random;
use crate::store::{ALONE, says};

update_rule! {
    /// Descent along a mean of the gradients: mean += (1 − beta) · (grad − mean), param −= rate · mean.
    struct Averaged = "acme.averaged" { beta: f64 => settings::fraction }
    states { MEAN = mean }
    samples { beta: 0.75 }
}

update_rule! {
    /// The rule with decay, and with its deferred updates in a closed form until the mean has faded.
    struct Fading = "acme.fading" { beta: f64 => settings::fraction }
    decay { weight_decay => settings::or_zero, decoupled = true }
    states { MEAN = mean }
    samples { beta: 0.75, decoupled: true }
}

update_rule! {
    /// Descent along a mean that starts at 0.25, divided by the root of a sum of squared gradients that starts at 0.5.
    struct Started = "acme.started" { beta: f64 => settings::fraction }
    states { MEAN = mean = 0.25, SUM = sum = 0.5 }
    samples { beta: 0.75 }
}

#[derive(Clone, Copy)]
struct Divided<T>(Along<T>);

impl<T: Float> ElementStep<T, 3> for Divided<T> {
    #[inline(always)]
    fn step(&self, [param, mean, sum]: [T; 3], grad: T) -> [T; 3] {
        let (mean, sum) = (mean + self.0.new * (grad - mean), sum + grad * grad);
        [param - self.0.rate * mean / sum.sqrt(), mean, sum]
    }
}

impl ElementRule<3> for Started {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 3> {
        Divided(Along::new(self.rate(moment), self.beta))
    }

    fn owes(&self) -> Debt {
        Debt::Later
    }
}

#[derive(Clone, Copy)]
struct Along<T> {
    rate: T,
    new: T,
}

impl<T: Float> Along<T> {
    fn new(rate: f64, beta: f64) -> Self {
        Self { rate: T::from_f64(rate), new: T::from_f64(1.0 - beta) }
    }
}

impl<T: Float> ElementStep<T, 2> for Along<T> {
    #[inline(always)]
    fn step(&self, [param, mean]: [T; 2], grad: T) -> [T; 2] {
        let mean = mean + self.new * (grad - mean);
        [param - self.rate * mean, mean]
    }
}

impl ElementRule<2> for Averaged {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 2> {
        Along::new(self.rate(moment), self.beta)
    }

    fn owes(&self) -> Debt {
        Debt::Later
    }
}

impl ElementRule<2> for Fading {
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 2> {
        let rate = self.rate(moment);
        self.decay().before(rate, Along::new(rate, self.beta))
    }

    fn owes(&self) -> Debt {
        self.decay().owes(Debt::Later)
    }

    fn fall(&self) -> Option<[f64; 2]> {
        Some([1.0, self.beta])
    }

    fn horizon(&self) -> usize {
        // 0.5⁶⁰ is nothing beside 1.
        60
    }
}

/// One of the two, as an optimizer.
struct Descent {
    options: Options,
    rule: UpdateRule,
}

impl Descent {
    fn new(kind: &'static str, attributes: Attributes) -> Self {
        let options = with!(Options::new(0.25), schedule: Schedule::step(25, 0.5));
        Self { options, rule: UpdateRule { kind, attributes: attributes.with("beta", 0.5) } }
    }
}

impl Optimizer for Descent {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        Ok(self.rule.clone())
    }
}

fn rules() -> [Descent; 3] {
    [
        Descent::new("acme.started", Attributes::new()),
        Descent::new("acme.averaged", Attributes::new()),
        Descent::new("acme.fading", Attributes::new().with("weight_decay", 0.125)),
    ]
}

fn registry() -> Registry {
    let mut registry = ops::catalogue();
    registry.add::<Averaged>().unwrap().add::<Fading>().unwrap().add::<Started>().unwrap();
    registry
}

const HEIGHT: usize = 40;

/// The table and its mean after a training whose batches leave most rows out.
fn trained(optimizer: &Descent, sparse: bool, threads: usize) -> Vec<f64> {
    let net = Builder::with_registry(registry()).seed(3);
    let ids = net.feed("ids", DType::I64, &[], 0);
    let table = net.parameter("table", DType::F64, &[HEIGHT, 3], init::uniform(-1.0, 1.0));
    let loss = net.lookup(ids, table, None, sparse).tanh().sum();
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    optimizer.minimize(&mut program, &registry, loss.id()).unwrap();
    let settles = program.root().ops.iter().filter(|op| op.role == Role::Settle).count();
    assert_eq!(settles, usize::from(sparse));
    let mut executor = Executor::new(&program, &registry, &[], threads).unwrap();
    let (mut scope, mut random) = (Scope::of(&program).unwrap(), Random(7));
    for step in 0..200 {
        let batch: Vec<i64> = (0..random.below(4)).map(|_| random.below(HEIGHT) as i64).collect();
        let fed = Variable::dense(ndarray::Array1::from(batch));
        executor.run(&mut scope, &Run::train(&[(ids.id(), &fed)], step)).unwrap();
    }
    settle(&program, &registry, &mut scope, threads).unwrap();
    let names: Vec<String> =
        scope.names().filter(|name| name.starts_with("table")).map(str::to_owned).collect();
    let kept = names.iter().filter(|name| !name.ends_with("settled"));
    kept.flat_map(|name| scope.get(name).unwrap().as_slice::<f64>().unwrap().to_vec()).collect()
}

#[test]
fn they_keep_the_contract_of_the_catalogue() {
    testing::check_kinds(&registry(), &["acme.averaged", "acme.fading", "acme.started"]).unwrap();
}

#[test]
fn under_selected_rows_they_have_the_numbers_of_dense_gradients() {
    for optimizer in rules() {
        let (dense, rows) = (trained(&optimizer, false, 1), trained(&optimizer, true, 1));
        assert_eq!(dense.len() % (HEIGHT * 3), 0);
        for (dense, row) in dense.iter().zip(&rows) {
            assert!((dense - row).abs() <= 1e-12, "{}: {row} for {dense}", optimizer.rule.kind);
        }
        assert_eq!(rows, trained(&optimizer, true, 2));
    }
}

/// The numbers of a table and its states after two steps with gradients in one row, in every way to hold the table: a program
/// with dense gradients, selected rows, a row-sparse table, the same after a checkpoint, and a store.
#[test]
fn states_start_at_their_first_value_in_every_storage() {
    let optimizer = |lazy: bool| {
        let mut started = Descent::new("acme.started", Attributes::new());
        if lazy {
            started.options.mode = SparseMode::Lazy;
        }
        started
    };
    // Both numbers of the row have the gradients 1 and 1.
    let (mut param, mut mean, mut sum) = (0.0f64, 0.25f64, 0.5f64);
    for _ in 0..2 {
        (mean, sum) = (mean + 0.5 * (1.0 - mean), sum + 1.0);
        param -= 0.25 * mean / sum.sqrt();
    }
    for (sparse, row_sparse, lazy) in
        [(false, false, false), (true, false, false), (true, false, true), (true, true, true)]
    {
        let net = Builder::with_registry(registry());
        let ids = net.feed("ids", DType::I64, &[], 0);
        let table = match row_sparse {
            true => net.row_sparse_parameter("table", DType::F64, &[5, 2], init::zeros()),
            false => net.parameter("table", DType::F64, &[5, 2], init::zeros()),
        };
        let loss = net.lookup(ids, table, None, sparse).sum();
        let (registry, mut program) = (net.registry(), net.finish().unwrap());
        optimizer(lazy).minimize(&mut program, &registry, loss.id()).unwrap();
        let mut checkpoint = Checkpoint::of(program.clone(), []);
        let mut scope = Scope::of(&program).unwrap();
        let fed = Variable::dense(array![2i64]);
        for step in 0..2 {
            let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
            executor.run(&mut scope, &Run::train(&[(ids.id(), &fed)], step)).unwrap();
            // The rest of the training continues from a file.
            for (_, var) in program.vars().filter(|(_, var)| var.persistable) {
                checkpoint.tensors.insert(var.name.clone(), scope.value(&var.name).unwrap());
            }
            checkpoint = Checkpoint::from_bytes(&checkpoint.to_bytes().unwrap()).unwrap();
            scope = Scope::new();
            checkpoint.clone().restore(&mut scope).unwrap();
        }
        settle(&program, &registry, &mut scope, 1).unwrap();
        for (name, expected, untouched) in
            [("table", param, None), ("table.mean", mean, Some(0.25)), ("table.sum", sum, Some(0.5))]
        {
            let value = scope.value(name).unwrap();
            let what = format!("{name}, {sparse}, {row_sparse}, {lazy}");
            let rows = match &value {
                // A row-sparse table holds only rows that were read.
                Storage::SelectedRows(rows) => {
                    assert_eq!(rows.row_ids(), [2], "{what}");
                    rows.value().clone()
                }
                value => {
                    let all = value.to_dense().unwrap().into_owned();
                    let other = all.as_slice::<f64>().unwrap()[0];
                    assert!(untouched.is_none_or(|first| !lazy || other == first), "{what}: {other}");
                    all.gather_rows(&[2]).unwrap()
                }
            };
            let close = |x: &f64| (x - expected).abs() < 1e-12;
            assert!(rows.as_slice::<f64>().unwrap().iter().all(close), "{what}: {rows:?}, not {expected}");
        }
    }
    let store = LocalStore::new(&registry(), 2).unwrap();
    let mut worker = store.workers(1, ALONE).unwrap().remove(0);
    let key = Key::from("table");
    worker.init(&key, ndarray::Array2::<f64>::zeros((5, 2)).into()).unwrap();
    worker.set_rule(&key, Rule::new(&optimizer(true), &registry()).unwrap()).unwrap();
    for _ in 0..2 {
        worker.push(&key, SelectedRows::new(5, vec![2], array![[1.0, 1.0]]).unwrap().into(), 1.0).unwrap();
    }
    let rows = worker.row_sparse_pull(&key, vec![2, 0]).unwrap();
    let rows = rows.as_slice::<f64>().unwrap();
    assert!((rows[0] - param).abs() < 1e-12 && rows[1] == rows[0] && rows[2..] == [0.0, 0.0], "{rows:?}");
}

#[test]
fn a_settle_of_no_rule_that_waits_is_refused_with_those_that_do() {
    let append = |registry: &Registry, rule: &str| {
        let attributes = Attributes::new().with("rule", rule).with("settings", Vec::<i64>::new());
        let attributes = attributes.with("dtype", "f64").with("shape", vec![2usize, 1]);
        let request = with!(Append::forward("settle"), attributes);
        Program::new().append(registry, BlockId(0), request)
    };
    for rule in ["lamb", "settle", "tanh", "nothing"] {
        let expected = "attribute `rule`: expected an update rule whose moves can wait: ";
        let known = "acme.averaged, acme.fading, acme.started, adadelta, ";
        says(append(&registry(), rule), &[expected, known, &format!("got {rule}")]);
    }
    says(append(&ops::catalogue(), "acme.averaged"), &["got acme.averaged"]);
}

/// A checkpoint without a best epoch, some of whose rows still owe moves of a rule of the user's.
#[test]
fn a_checkpoint_that_owes_moves_of_the_rule_is_settled_by_the_callers_registry() {
    let net = Builder::with_registry(registry()).seed(3);
    let ids = net.feed("ids", DType::I64, &[], 0);
    let table = net.parameter("table", DType::F32, &[HEIGHT, 16], init::uniform(-1.0, 1.0));
    let scores = net.lookup(ids, table, None, true).linear(16);
    let outputs = [("scores".to_owned(), net.name_of(scores))];
    let loss = scores.tanh().sum();
    let mut checkpoint = Checkpoint::of(net.finish().unwrap(), outputs);
    rules()[2].minimize(&mut checkpoint.program, &registry(), loss.id()).unwrap();
    let program = checkpoint.program.clone();
    let mut scope = Scope::of(&program).unwrap();
    let mut executor = Executor::new(&program, &registry(), &[], 1).unwrap();
    for step in 0..5 {
        let fed = Variable::dense(ndarray::array![step as i64, 7]);
        executor.run(&mut scope, &Run::train(&[(ids.id(), &fed)], step)).unwrap();
    }
    for (_, kept) in program.vars().filter(|(_, v)| v.persistable) {
        checkpoint.tensors.insert(kept.name.clone(), scope.value(&kept.name).unwrap());
    }
    settle(&program, &registry(), &mut scope, 1).unwrap();
    let settled = scope.value("table").unwrap();
    assert_ne!(checkpoint.tensors["table"], settled);

    let fed = Variable::dense(ndarray::Array1::from_iter(0..HEIGHT as i64));
    let predict = |trained: Checkpoint, registry: &Registry| -> Result<Vec<f32>> {
        let out = Predictor::new(trained, registry)?.run(&[("ids", &fed)], &["scores"])?;
        Ok(out[0].as_slice::<f32>()?.to_vec())
    };
    let bare = checkpoint.clone().for_inference(&registry()).unwrap();
    assert_eq!(bare.tensors["table"], settled);
    assert_eq!(checkpoint.clone().settled(&registry()).unwrap().tensors["table"], settled);
    let expected = predict(bare, &ops::catalogue()).unwrap();
    assert_eq!(predict(checkpoint.clone(), &registry()).unwrap(), expected);
    let small = predict(checkpoint.clone().quantize(&registry()).unwrap(), &ops::catalogue()).unwrap();
    assert!(small.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 0.05));
    let without = ops::catalogue();
    let mut refused = vec![
        predict(checkpoint.clone(), &without).unwrap_err(),
        checkpoint.clone().for_inference(&without).unwrap_err(),
        checkpoint.clone().settled(&without).unwrap_err(),
        checkpoint.clone().quantize(&without).unwrap_err(),
    ];
    #[cfg(feature = "safetensors")]
    {
        use unpadded::formats::safetensors::{Names, export, import};
        let path = crate::trainer::path("user-rule");
        refused.push(export(&checkpoint, &without, &Names::new(), &path).unwrap_err());
        export(&checkpoint, &registry(), &Names::new(), &path).unwrap();
        let mut again = checkpoint.clone();
        import(&path, &Names::new(), &mut again).unwrap();
        assert_eq!(again.tensors["table"], settled);
        std::fs::remove_file(path).unwrap();
    }
    for error in refused {
        assert!(error.to_string().contains("got acme."), "{error}");
    }
}
