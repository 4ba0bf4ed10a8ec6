//! Tests of the operators that each optimizer appends, and of the errors of each optimizer.

use std::collections::BTreeSet;

use super::*;
use crate::operator::{Arity, Signature, Slot, Spec};
use crate::ops::catalogue;
use crate::program::{StopGradient, VarRole};
use crate::tensor::{DType, StorageKind};
use crate::{Builder, Var};

fn zeros() -> Initializer {
    Initializer::new("zeros", Attributes::new())
}

/// Makes a program with a loss that depends on `a` and `b`, and with a parameter `idle` on which the loss does not
/// depend.
fn model() -> (Program, Var) {
    let net = Builder::new();
    let a = net.parameter("a", DType::F32, &[1, 3], zeros());
    let b = net.parameter("b", DType::F32, &[3, 1], zeros());
    net.parameter("idle", DType::F32, &[2], zeros());
    let loss = net.product(a, b, None);
    (net.finish().unwrap(), loss)
}

/// Makes a program that looks up rows of a table; returns the program, and the table with its gradient of selected
/// rows.
fn table() -> (Program, Vec<(VarId, VarId)>) {
    let net = Builder::new();
    let table = net.parameter("table", DType::F32, &[9, 2], zeros());
    net.lookup(net.feed("ids", DType::I64, &[], 0), table, None, true);
    with_rows(net, table)
}

fn with_rows(net: Builder, table: Var) -> (Program, Vec<(VarId, VarId)>) {
    let table = table.id();
    let mut program = net.finish().unwrap();
    let spec = Spec { storage: StorageKind::SelectedRows, ..program.spec(table).unwrap().clone() };
    let grad = program.add_computed("table@grad", BlockId(0), spec, VarRole::Computed, StopGradient::Yes);
    (program, vec![(table, grad)])
}

fn updates(program: &Program) -> Vec<&str> {
    let ops = program.root().ops.iter().filter(|op| op.role == Role::Update);
    ops.map(|op| op.kind.as_str()).collect()
}

/// An update rule that the list of optimizers lacks is tested by no suite.
#[test]
fn every_update_rule_is_in_the_list_of_optimizers() {
    let catalogue = catalogue();
    let rules = catalogue.kinds().filter(|kind| {
        let has = |name| move |slot: &Slot| slot.name == name;
        let Signature { inputs, outputs, .. } = catalogue.declaration(kind).unwrap().signature;
        inputs.iter().any(has("rate")) && outputs.iter().any(has("param"))
    });
    let listed = OptimizerKind::variants().into_iter().map(|variant| variant.optimizer.rule.kind);
    let of_names = OptimizerKind::ALL.iter().map(|kind| kind.at_rate(0.1).rule.kind);
    let rules: BTreeSet<&str> = rules.collect();
    assert_eq!(listed.collect::<BTreeSet<_>>(), rules);
    assert_eq!(of_names.collect::<BTreeSet<_>>(), rules);
    for kind in OptimizerKind::ALL {
        assert_eq!(kind.to_string().parse::<OptimizerKind>().as_ref(), Ok(kind));
    }
    assert!("adm".parse::<OptimizerKind>().unwrap_err().to_string().contains("one of sgd, adagrad, adam"));
}

#[test]
fn every_parameter_gets_an_update_and_a_state() {
    for variant in OptimizerKind::variants() {
        let UpdateRule { kind, attributes } = variant.optimizer.rule().unwrap();
        let parsed = catalogue().parse(kind, &attributes.with("mode", "exact")).unwrap();
        let (mut program, loss) = model();
        let made = variant.optimizer.minimize(&mut program, &catalogue(), loss.id()).unwrap();
        assert_eq!(updates(&program), ["learning_rate", kind, kind], "{}", variant.name);
        assert_eq!((made.gradients.len(), made.norm), (2, None));
        program.validate().unwrap();
        for (op, (param, grad)) in program.root().ops.iter().rev().zip(made.gradients.iter().rev()) {
            assert_eq!((op.input("grad"), op.input("rate")), (&[*grad][..], &[made.rate][..]));
            assert_eq!(op.output("param"), [*param]);
            assert!(op.caller.contains("optimizer/tests.rs"), "{}", op.caller);
            let desc = program.var(*param);
            let states = parsed.signature().outputs.iter().filter(|slot| slot.arity == Arity::One);
            for state in states.map(|slot| slot.name).filter(|name| *name != "param") {
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
fn a_state_exists_only_if_a_setting_needs_it() {
    let states = |optimizer: &dyn Optimizer| {
        let (mut program, loss) = model();
        optimizer.minimize(&mut program, &catalogue(), loss.id()).unwrap();
        let of_a = program.vars().filter_map(|(_, var)| var.name.strip_prefix("a."));
        of_a.map(str::to_owned).collect::<Vec<_>>()
    };
    let none: [&str; 0] = [];
    assert_eq!(states(&Sgd::new(0.1)), none);
    assert_eq!(states(&Sgd::new(0.1).momentum(0.9).momentum(0.0)), none);
    assert_eq!(states(&Sgd::new(0.1).momentum(0.9)), ["velocity"]);
    assert_eq!(states(&Adam::new(0.1)), ["moment1", "moment2"]);
    assert_eq!(states(&AdamW::new(0.1).amsgrad()), ["moment1", "moment2", "largest"]);
    assert_eq!(states(&RmsProp::new(0.1)), ["square"]);
    assert_eq!(states(&RmsProp::new(0.1).momentum(0.9)), ["square", "velocity"]);
    assert_eq!(states(&RmsProp::new(0.1).centred()), ["square", "mean"]);
    assert_eq!(states(&RmsProp::new(0.1).centred().momentum(0.9)), ["square", "mean", "velocity"]);
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
fn each_kind_of_clipping_has_its_place() {
    let all = Sgd::new(0.1).clip_global_norm(5.0).clip_norm(2.0).clip_value(1.0);
    let each = ["global_norm", "scale_gradient"];
    let (mut program, loss) = model();
    let made = all.minimize(&mut program, &catalogue(), loss.id()).unwrap();
    let clips = ["clip_gradient", "clip_gradient"].into_iter().chain(each).chain(each);
    let clips = clips.chain(["global_norm", "scale_gradient", "scale_gradient"]);
    let expected: Vec<&str> = ["learning_rate"].into_iter().chain(clips).chain(["sgd", "sgd"]).collect();
    assert_eq!(updates(&program), expected);
    program.validate().unwrap();
    let global = program.root().ops.iter().rfind(|op| op.kind == "global_norm").unwrap();
    assert_eq!((global.inputs[0].vars.len(), made.norm), (2, Some(global.output("norm")[0])));
    let (mut program, gradients) = table();
    all.update(&mut program, &catalogue(), gradients).unwrap();
    let kinds = ["learning_rate", "clip_gradient", each[0], each[1], each[0], each[1], "sgd"];
    assert_eq!(updates(&program), kinds);
}

#[test]
fn a_rate_that_can_be_adjusted_is_a_state() {
    let (mut program, loss) = model();
    Sgd::new(0.1).adjustable().minimize(&mut program, &catalogue(), loss.id()).unwrap();
    let id = program.find(RATE_SCALE).unwrap();
    let scale = program.var(id);
    assert!(scale.persistable && !scale.trainable && scale.role == VarRole::State);
    assert_eq!(program.root().ops.iter().find(|op| op.kind == "learning_rate").unwrap().input("scale"), [id]);
    program.validate().unwrap();
    let (mut program, loss) = model();
    Sgd::new(0.1).minimize(&mut program, &catalogue(), loss.id()).unwrap();
    assert_eq!(program.find(RATE_SCALE), None);
}

#[test]
fn groups_say_what_is_not_as_for_the_others() {
    let minimized = |optimizer: &dyn Optimizer| {
        let (mut program, loss) = model();
        optimizer.minimize(&mut program, &catalogue(), loss.id()).map_err(|e| e.to_string())?;
        let updates = program.root().ops.iter().filter(|op| op.inputs.iter().any(|i| i.slot == "rate"));
        Ok::<_, String>(updates.map(|op| op.attributes.clone()).collect::<Vec<_>>())
    };
    let plain = Adam::new(0.1).weight_decay(0.5);
    let without = minimized(&plain).unwrap();
    assert!(without[0].get("rate_factor").is_none());
    let group = Group::of(["b"]).rate(0.5).weight_decay(0.0).l1(0.25);
    let with = minimized(&plain.clone().group(Group::matching(|name| name == "b").rate(0.1)).group(group));
    let with = with.unwrap();
    assert_eq!(with[0], without[0]);
    let expected = without[1].clone().with("rate_factor", 0.5).with("weight_decay", 0.0).with("l1", 0.25);
    assert_eq!(with[1], expected);
    let held = minimized(&plain.clone().group(Group::of(["a"]).after(7))).unwrap();
    assert_eq!(held[0], without[0].clone().with("held", 7usize));
    assert_eq!(minimized(&plain.clone().group(Group::matching(|_| false).rate(2.0))).unwrap(), without);

    let unknown = minimized(&plain.clone().group(Group::of(["idle"]).rate(0.5))).unwrap_err();
    assert!(unknown.contains("`idle`") && unknown.contains("a, b"), "{unknown}");
    let negative = minimized(&plain.group(Group::of(["a"]).rate(-1.0))).unwrap_err();
    assert!(negative.contains("rate_factor") && negative.contains("`a`"), "{negative}");
    let none = minimized(&Ftrl::new(0.1).group(Group::of(["b"]).weight_decay(0.5))).unwrap_err();
    assert!(none.contains("weight_decay") && none.contains("`b`"), "{none}");
}

#[test]
fn selected_rows_are_exact_unless_a_move_cannot_wait() {
    let check = |optimizer: &dyn Optimizer| {
        let (mut program, gradients) = table();
        let made = optimizer.update(&mut program, &catalogue(), gradients);
        made.map(|_| program.find("table.settled").is_some()).map_err(|e| e.to_string())
    };
    for variant in OptimizerKind::variants() {
        let outcome = check(&variant.optimizer);
        match variant.owes {
            Debt::Nothing => assert_eq!(outcome, Ok(false), "{}", variant.name),
            Debt::Later => assert_eq!(outcome, Ok(true), "{}", variant.name),
            Debt::AtOnce(why) | Debt::Whole(why) => {
                let error = outcome.unwrap_err();
                let parts = [".lazy()", "`table`", why];
                assert!(parts.iter().all(|part| error.contains(part)), "{}: {error}", variant.name);
            }
        }
        assert_eq!(check(&variant.with(|options| options.mode = SparseMode::Lazy)), Ok(false));
    }
}

#[test]
fn a_parameter_that_nothing_reads_cannot_owe() {
    let make = |optimizer: &dyn Optimizer| {
        let net = Builder::new();
        let table = net.parameter("table", DType::F32, &[9, 2], zeros());
        let (mut program, gradients) = with_rows(net, table);
        let before = program.clone();
        let made = optimizer.update(&mut program, &catalogue(), gradients);
        (made.map(drop).map_err(|e| e.to_string()), program == before)
    };
    let (refused, same) = make(&Adam::new(0.1));
    let refused = refused.unwrap_err();
    assert!(
        refused.contains("`table`") && refused.contains(".lazy()") && refused.contains("nothing reads"),
        "{refused}"
    );
    assert!(same);
    for taken in [&Adam::new(0.1).lazy() as &dyn Optimizer, &Sgd::new(0.1)] {
        assert_eq!(make(taken).0, Ok(()));
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
    refused(&Adam::new(0.1).clip_norm(-1.0), "max_norm");
    refused(&Adam::new(0.1).clip_value(f64::NAN), "limit");
    refused(&RmsProp::new(0.1).alpha(1.0), "alpha");
    refused(&RmsProp::new(0.1).momentum(-0.5), "momentum");
    refused(&Adadelta::new(0.1).rho(1.5), "rho");
    refused(&Ftrl::new(0.1).l2(-1.0), "l2");
    refused(&Lion::new(0.1).l1(-1.0), "l1");
    refused(&NAdam::new(0.1).momentum_decay(-1.0), "momentum_decay");
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
