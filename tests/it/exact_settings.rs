//! Exact sparse updates under unusual settings: several optimizers in one program, and those whose steps hardly fade.

use unpadded::executor::{Executor, Run, Scope, settle};
use unpadded::layers::init;
use unpadded::op::Debt;
use unpadded::optimizer::{Adam, AdamW, Group, Optimizer, OptimizerKind, Sgd};
use unpadded::program::{VarId, backward};
use unpadded::{Builder, DType, Program, Registry, Variable};

use crate::exact::farthest;
use crate::models::Random;
use crate::store::says;

/// Two tables that a loss is of, with their gradients, which are selected rows or dense.
fn two_tables(rows: bool) -> (Program, Registry, VarId, Vec<(VarId, VarId)>) {
    let net = Builder::new().seed(4);
    let words = net.feed("words", DType::I64, &[], 0);
    let tables = ["a", "b"].map(|name| net.parameter(name, DType::F64, &[9, 3], init::uniform(-1.0, 1.0)));
    let looked_up = tables.map(|table| net.lookup(words, table, None, rows));
    let loss = (looked_up[0] * looked_up[1]).tanh().mean();
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    let gradients = backward::append(&mut program, &registry, loss.id()).unwrap();
    (program, registry, words.id(), gradients)
}

#[test]
fn several_optimizers_of_one_program_remember_their_own_updates() {
    let trained = |rows: bool| {
        let (mut program, registry, words, gradients) = two_tables(rows);
        AdamW::new(0.01).weight_decay(0.1).update(&mut program, &registry, gradients[..1].to_vec()).unwrap();
        Sgd::new(0.1).momentum(0.9).update(&mut program, &registry, gradients[1..].to_vec()).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
        let mut random = Random(5);
        for step in 0..200 {
            let ids: Vec<i64> = (0..random.below(4)).map(|_| random.below(9) as i64).collect();
            let ids = Variable::dense(ndarray::Array1::from(ids));
            executor.run(&mut scope, &Run::train(&[(words, &ids)], step)).unwrap();
        }
        settle(&program, &registry, &mut scope, 1).unwrap();
        ["a", "b"].map(|name| scope.get(name).unwrap().as_slice::<f64>().unwrap().to_vec())
    };
    for (rows, dense) in trained(true).iter().zip(&trained(false)) {
        for (a, b) in rows.iter().zip(dense) {
            assert!((a - b).abs() < 1e-9, "{a} for {b}");
        }
    }
}

#[test]
fn each_table_of_an_optimizer_owes_at_its_own_rate_and_decay() {
    let groups: [fn() -> Group; 4] = [
        || Group::of(["a"]).rate(0.2),
        || Group::of(["b"]).rate(2.0),
        || Group::of(["a"]).after(250),
        || Group::of(["b"]).after(7).rate(0.5),
    ];
    let owing = OptimizerKind::variants().into_iter().filter(|build| build.owes == Debt::Later);
    for (build, group) in owing.zip(groups.iter().cycle()) {
        let decoupled = build.optimizer.rule.attributes.get("decoupled") == Some(&true.into());
        let own = decoupled.then(|| Group::of(["b"]).weight_decay(0.01));
        let (name, optimizer) =
            (build.name, build.with(|options| options.groups.extend([group()].into_iter().chain(own))));
        let trained = |rows: bool| {
            let (mut program, registry, words, gradients) = two_tables(rows);
            optimizer.update(&mut program, &registry, gradients).unwrap();
            let mut scope = Scope::of(&program).unwrap();
            let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
            for step in 0..400 {
                // All rows together, then one alone for longer than momentum lasts.
                let ids: Vec<i64> = if step % 200 == 0 { (0..9).collect() } else { vec![step as i64 / 200] };
                let ids = Variable::dense(ndarray::Array1::from(ids));
                executor.run(&mut scope, &Run::train(&[(words, &ids)], step)).unwrap();
            }
            settle(&program, &registry, &mut scope, 1).unwrap();
            ["a", "b"].map(|table| scope.get(table).unwrap().as_slice::<f64>().unwrap().to_vec())
        };
        let off = trained(true)
            .iter()
            .zip(&trained(false))
            .map(|(rows, dense)| farthest(rows, dense))
            .fold(0.0, f64::max);
        assert!(off < 1e-9, "{name}: {off:e}");
    }
}

#[test]
fn steps_that_hardly_fade_are_refused_by_name() {
    let refused = |optimizer: &dyn Optimizer| {
        let (mut program, registry, _, gradients) = two_tables(true);
        optimizer.update(&mut program, &registry, gradients).map(drop)
    };
    says(refused(&AdamW::new(0.1).betas(0.5, 0.0)), &["fade too slowly where beta1² is about beta2"]);
    for optimizer in [Adam::new(0.1).betas(0.9, 0.82), Adam::new(0.1).betas(0.9, 0.7).lazy()] {
        refused(&optimizer).unwrap();
    }
}
