//! Update rules as a user's crate defines them: declared by `update_rule!`, registered beside the catalogue, held to its contract,
//! and exact under gradients of selected rows.

use unpadded::executor::{Executor, Run, Scope, settle};
use unpadded::layers::init;
use unpadded::op::{
    Attributes, Debt, ElementRule, ElementStep, Float, Moment, RuleSettings, settings, testing,
};
use unpadded::optimizer::{Optimizer, Options, Schedule, UpdateRule};
use unpadded::program::{Append, BlockId, Role};
use unpadded::{Builder, DType, Program, Registry, Result, Variable, ops, update_rule};

use crate::models::Random;

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

fn rules() -> [Descent; 2] {
    [
        Descent::new("acme.averaged", Attributes::new()),
        Descent::new("acme.fading", Attributes::new().with("weight_decay", 0.125)),
    ]
}

fn registry() -> Registry {
    let mut registry = ops::catalogue();
    registry.add::<Averaged>().unwrap().add::<Fading>().unwrap();
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
    testing::check_kinds(&registry(), &["acme.averaged", "acme.fading"]).unwrap();
}

#[test]
fn under_selected_rows_they_have_the_numbers_of_dense_gradients() {
    for optimizer in rules() {
        let (dense, rows) = (trained(&optimizer, false, 1), trained(&optimizer, true, 1));
        assert_eq!(dense.len(), 2 * HEIGHT * 3);
        for (dense, row) in dense.iter().zip(&rows) {
            assert!((dense - row).abs() <= 1e-12, "{}: {row} for {dense}", optimizer.rule.kind);
        }
        assert_eq!(rows, trained(&optimizer, true, 2));
    }
}

#[test]
fn a_settle_of_no_rule_that_waits_is_refused_with_those_that_do() {
    let refused = |registry: &Registry, rule: &str| {
        let attributes = Attributes::new().with("rule", rule).with("settings", Vec::<i64>::new());
        let attributes = attributes.with("dtype", "f64").with("shape", vec![2usize, 1]);
        let request = with!(Append::forward("settle"), attributes);
        Program::new().append(registry, BlockId(0), request).unwrap_err().to_string()
    };
    for rule in ["lamb", "settle", "tanh", "nothing"] {
        let error = refused(&registry(), rule);
        assert!(
            error.contains("attribute `rule`: expected an update rule whose moves can wait: "),
            "{error}"
        );
        assert!(error.contains("acme.averaged, acme.fading, adadelta, "), "{error}");
        assert!(error.contains(&format!("got {rule}")), "{error}");
    }
    assert!(refused(&ops::catalogue(), "acme.averaged").contains("got acme.averaged"));
}
