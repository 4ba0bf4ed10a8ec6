//! What each optimizer appends, and what it refuses.

use super::*;
use crate::ops::catalogue;
use crate::program::{Spec, StopGradient};
use crate::tensor::{DType, StorageKind};
use crate::{Builder, Var};

fn zeros() -> Initializer {
    Initializer::new("zeros", Attributes::new())
}

/// A loss that depends on `a` and `b`, and a parameter that it does not depend on.
fn model() -> (Program, Var) {
    let net = Builder::new();
    let a = net.parameter("a", DType::F32, &[1, 3], zeros());
    let b = net.parameter("b", DType::F32, &[3, 1], zeros());
    net.parameter("idle", DType::F32, &[2], zeros());
    let loss = net.product(a, b, None);
    (net.finish().unwrap(), loss)
}

/// A table with a gradient of selected rows.
fn table() -> (Program, Vec<(VarId, VarId)>) {
    let net = Builder::new();
    let table = net.parameter("table", DType::F32, &[9, 2], zeros()).id();
    let mut program = net.finish().unwrap();
    let spec = Spec { storage: StorageKind::SelectedRows, ..program.spec(table).unwrap().clone() };
    let grad = program.add_computed("table@grad", BlockId(0), spec, VarRole::Computed, StopGradient::Yes);
    (program, vec![(table, grad)])
}

fn updates(program: &Program) -> Vec<&str> {
    let ops = program.root().ops.iter().filter(|op| op.role == Role::Update);
    ops.map(|op| op.kind.as_str()).collect()
}

#[test]
fn every_parameter_gets_an_update_and_a_state() {
    let cases: [(&dyn Optimizer, &str, &[&str]); 5] = [
        (&Sgd::new(0.1), "sgd", &[]),
        (&Sgd::new(0.1).momentum(0.9).nesterov(), "momentum", &["velocity"]),
        (&Adagrad::new(0.1), "adagrad", &["sum"]),
        (&Adam::new(0.1), "adam", &["moment1", "moment2"]),
        (&AdamW::new(0.1).weight_decay(0.1), "adam", &["moment1", "moment2"]),
    ];
    for (optimizer, kind, states) in cases {
        let (mut program, loss) = model();
        let made = optimizer.minimize(&mut program, &catalogue(), loss.id()).unwrap();
        assert_eq!(updates(&program), ["learning_rate", kind, kind]);
        assert_eq!((made.gradients.len(), made.norm), (2, None));
        program.validate().unwrap();
        for (op, (param, grad)) in program.root().ops.iter().rev().zip(made.gradients.iter().rev()) {
            assert_eq!((op.input("grad"), op.input("rate")), (&[*grad][..], &[made.rate][..]));
            assert_eq!(op.output("param"), [*param]);
            assert!(op.caller.contains("optimizer/tests.rs"), "{}", op.caller);
            let desc = program.var(*param);
            for state in states {
                let id = program.find(&format!("{}.{state}", desc.name)).unwrap();
                assert_eq!(op.output(state), [id]);
                let own = program.var(id);
                assert_eq!((own.spec(), own.role), (desc.spec(), VarRole::State));
                assert!(own.persistable && !own.trainable && own.initializer == Some(zeros()));
            }
        }
    }
}

#[test]
fn clipping_stands_between_the_gradients_and_the_updates() {
    let (mut program, loss) = model();
    let made = Sgd::new(0.1).clip_global_norm(5.0).minimize(&mut program, &catalogue(), loss.id()).unwrap();
    assert_eq!(
        updates(&program),
        ["learning_rate", "global_norm", "scale_gradient", "scale_gradient", "sgd", "sgd"]
    );
    assert_eq!(program.var(made.norm.unwrap()).name, "global_norm.norm");
    let (mut program, gradients) = table();
    Sgd::new(0.1).clip_global_norm(5.0).update(&mut program, &catalogue(), gradients).unwrap();
    assert_eq!(updates(&program), ["learning_rate", "global_norm", "scale_gradient", "sgd"]);
}

#[test]
fn selected_rows_ask_for_lazy_where_every_row_would_move() {
    let check = |optimizer: &dyn Optimizer| {
        let (mut program, gradients) = table();
        optimizer.update(&mut program, &catalogue(), gradients).map(drop).map_err(|e| e.to_string())
    };
    for exact in [&Sgd::new(0.1) as &dyn Optimizer, &Adagrad::new(0.1)] {
        assert_eq!(check(exact), Ok(()));
    }
    let error = check(&Adam::new(0.1)).unwrap_err();
    assert!(error.contains(".lazy()") && error.contains("`table`") && error.contains("adam"), "{error}");
    assert!(check(&Sgd::new(0.1).momentum(0.9)).unwrap_err().contains(".lazy()"));
    assert!(check(&AdamW::new(0.1)).unwrap_err().contains(".lazy()"));
    for lazy in [&Adam::new(0.1).lazy() as &dyn Optimizer, &Sgd::new(0.1).momentum(0.9).lazy()] {
        assert_eq!(check(lazy), Ok(()));
    }
}

#[test]
fn nonsense_is_refused_and_the_program_stays_as_it_was() {
    let refused = |optimizer: &dyn Optimizer, what: &str| {
        let (mut program, loss) = model();
        let before = program.clone();
        let error = optimizer.minimize(&mut program, &catalogue(), loss.id()).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
        assert_eq!(program, before);
    };
    refused(&Sgd::new(-0.1), "base");
    refused(&Sgd::new(f64::NAN), "base");
    refused(&Sgd::new(0.1).momentum(1.0), "momentum");
    refused(&Sgd::new(0.1).nesterov(), "Nesterov");
    refused(&Sgd::new(0.1).weight_decay(-1.0), "weight_decay");
    refused(&Adagrad::new(0.1).epsilon(-1.0), "epsilon");
    refused(&Adam::new(0.1).betas(0.9, 1.0), "beta2");
    refused(&Adam::new(0.1).clip_global_norm(0.0), "max_norm");
    refused(&Adam::new(0.1).schedule(Schedule::step(0, 0.5)), "every");
}

#[test]
fn a_program_is_minimised_once() {
    let (mut program, loss) = model();
    Adam::new(0.1).minimize(&mut program, &catalogue(), loss.id()).unwrap();
    assert!(Adam::new(0.1).minimize(&mut program, &catalogue(), loss.id()).is_err());
    let gradients = vec![(program.find("a").unwrap(), program.find("a@grad").unwrap())];
    let error = Adam::new(0.1).update(&mut program, &catalogue(), gradients).unwrap_err().to_string();
    assert!(error.contains("a.moment1"), "{error}");
}
