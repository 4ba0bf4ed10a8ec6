//! Refused exact updates: the error names the cause, and nothing is half updated.

use std::path::PathBuf;

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Run, Scope, settle};
use unpadded::layers::init;
use unpadded::optimizer::{Adam, AdamW, Optimizer, Sgd};
use unpadded::tensor::{Dense, Storage};
use unpadded::train::{Trainer, Until};
use unpadded::{Builder, DType, Result, Variable};

use crate::damage::{fields, file, sections};
use crate::exact::{
    Gradient, HEIGHT, Model, WIDTH, batch, farthest, loader, model, numbers, rules, trainer, trainer_with,
};
use crate::models::Random;

type Values = Vec<(String, Storage)>;

/// Returns every parameter, every state, the settled rows and the number of updates.
fn values(scope: &mut Scope) -> Values {
    let names: Vec<String> = scope.names().map(str::to_owned).collect();
    names.into_iter().map(|name| (name.clone(), scope.value(&name).unwrap())).collect()
}

#[track_caller]
fn same(found: &Values, before: &Values) {
    for ((name, a), (other, b)) in found.iter().zip(before) {
        assert!(name == other && a.as_dense().unwrap().bits_eq(b.as_dense().unwrap()), "{name}");
    }
    assert_eq!(found.len(), before.len());
}

#[test]
fn an_id_beyond_the_table_moves_nothing() {
    let lazy = ("adam, lazy", Adam::new(0.01).lazy().into());
    for (name, optimizer) in rules().into_iter().chain([lazy]) {
        for (gradient, threads) in [(Gradient::Rows, 1), (Gradient::Rows, 3), (Gradient::Dense, 1)] {
            let Model { program, registry, words, loss } = model(DType::F64, gradient, &optimizer);
            let train = |odd: &[i64]| {
                let mut executor = Executor::new(&program, &registry, &[loss], threads).unwrap();
                let (mut scope, mut random) = (Scope::of(&program).unwrap(), Random(5));
                for step in 0..12 {
                    let batch = batch(&mut random, step);
                    if step == 9 {
                        let before = values(&mut scope);
                        for odd in odd {
                            let fed =
                                Variable::from_sequences(&[vec![7i64, 1], vec![], vec![2, *odd]]).unwrap();
                            let feeds = [(words, &fed)];
                            for run in [Run::train(&feeds, step), Run::infer(&feeds)] {
                                let error = executor.run(&mut scope, &run).unwrap_err();
                                let text = format!(
                                    "id of sample 2, position 1: expected at least 0 and below {HEIGHT}, the height, got {odd}"
                                );
                                assert!(error.to_string().contains(&text), "{error}");
                                assert_eq!(error.place().variable.as_deref(), Some("table"), "{error}");
                                same(&values(&mut scope), &before);
                            }
                        }
                    }
                    executor.run(&mut scope, &Run::train(&[(words, &batch)], step)).unwrap();
                }
                values(&mut scope)
            };
            println!("{name}");
            same(&train(&[-1, HEIGHT as i64, i64::MAX, i64::MIN]), &train(&[]));
        }
    }
}

/// A table before the table with the bad id may have been settled; its rows are the same as without the failure.
#[test]
fn beside_a_bad_id_other_tables_are_where_they_would_be() {
    let net = Builder::new().seed(2);
    let [a, b] = ["a", "b"].map(|name| {
        let ids = net.feed(&format!("ids of {name}"), DType::I64, &[], 1);
        let table = net.parameter(name, DType::F64, &[HEIGHT, WIDTH], init::uniform(-0.5, 0.5));
        (ids.id(), net.sum(net.tanh(net.lookup(ids, table, None, true))))
    });
    let loss = net.add(a.1, b.1);
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    Adam::new(0.01).minimize(&mut program, &registry, loss.id()).unwrap();
    let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let ids_of = |ids: &[i64]| Variable::from_sequences(&[ids.to_vec()]).unwrap();
    for step in 0..9i64 {
        let (x, y) = (ids_of(&[step, 1]), ids_of(&[step + 2, 3]));
        executor.run(&mut scope, &Run::train(&[(a.0, &x), (b.0, &y)], step as u64)).unwrap();
    }
    let settled = |scope: &Scope| {
        let mut scope = scope.clone();
        settle(&program, &registry, &mut scope, 1).unwrap();
        values(&mut scope)
    };
    let before = settled(&scope);
    for (x, y, named) in
        [(ids_of(&[0, 1]), ids_of(&[HEIGHT as i64]), "b"), (ids_of(&[-1]), ids_of(&[0]), "a")]
    {
        let raw = values(&mut scope);
        let error = executor.run(&mut scope, &Run::train(&[(a.0, &x), (b.0, &y)], 9)).unwrap_err();
        assert_eq!(error.place().variable.as_deref(), Some(named), "{error}");
        for ((name, found), (_, raw)) in values(&mut scope).iter().zip(&raw) {
            let whole = name == "learning_rate.history" || name.starts_with(named);
            assert!(!whole || found == raw, "{name}");
        }
        for ((name, found), (_, before)) in settled(&scope).iter().zip(&before) {
            let off = farthest(&numbers(found), &numbers(before));
            assert!(off < 1e-12, "{name}: {off:e}");
        }
    }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("unpadded-exact-{name}-{}.ckpt", std::process::id()))
}

/// A file that is refused leaves a training as it was.
fn refused(into: &mut Trainer, bytes: &[u8], file: &PathBuf, words: &[&str]) {
    std::fs::write(file, bytes).unwrap();
    let (before, position) = (values(into.scope()), into.position().clone());
    let error = into.resume(file).unwrap_err().to_string();
    let shown = file.display().to_string();
    assert!(error.contains(&shown) && words.iter().all(|word| error.contains(word)), "{error}");
    same(&values(into.scope()), &before);
    assert_eq!(into.position(), &position);
}

fn saved(trainer: &mut Trainer, steps: u64, file: &PathBuf) -> Vec<u8> {
    trainer.fit(&loader(), &loader(), Until::Steps(steps)).unwrap();
    trainer.save(file).unwrap();
    std::fs::read(file).unwrap()
}

#[test]
fn damaged_missing_and_foreign_states_change_nothing() {
    let at = path("refused");
    let whole = saved(&mut trainer(Gradient::Rows), 7, &at);
    let mut into = trainer(Gradient::Rows);
    into.fit(&loader(), &loader(), Until::Steps(3)).unwrap();
    // Every byte is covered by a checksum.
    for index in (0..whole.len()).step_by(whole.len() / 400) {
        let mut bytes = whole.clone();
        bytes[index] ^= 0x20;
        refused(&mut into, &bytes, &at, &[]);
    }
    for index in (0..whole.len()).step_by(whole.len() / 40) {
        refused(&mut into, &whole[..index], &at, &[]);
    }
    // Each state of the rule, the settled rows, and the number of updates.
    let parts = sections(&whole);
    let name_of = |body: &[u8]| {
        let length = u32::from_le_bytes(body[..4].try_into().unwrap()) as usize;
        let named = fields(&body[4..4 + length]).into_iter().find(|(number, _)| *number == 1);
        String::from_utf8(named.unwrap().1).unwrap()
    };
    for missing in ["moment1", "moment2", "settled"]
        .map(|ids_of| format!("embedding_0.weight.{ids_of}"))
        .into_iter()
        .chain(["embedding_0.weight".to_owned(), "learning_rate.history".to_owned()])
    {
        let kept = |part: &&(String, Vec<u8>)| part.0 != "tensor" || name_of(&part.1) != missing;
        let left: Vec<_> = parts.iter().filter(kept).cloned().collect();
        assert_eq!(left.len() + 1, parts.len(), "{missing}");
        let named = format!("`{missing}`");
        refused(
            &mut into,
            &file(&left),
            &at,
            &[&named, "expected a tensor for this variable of the program, got none"],
        );
    }
    let adamw = || AdamW::new(0.02).weight_decay(0.1);
    let others: [(&dyn Optimizer, &[&str]); 5] = [
        (&Sgd::new(0.02).momentum(0.9), &["embedding_0.weight.velocity"]),
        (&AdamW::new(0.02).weight_decay(0.1).amsgrad(), &["largest"]),
        (&adamw().lazy(), &["program: expected the program of the model being built"]),
        (&adamw().betas(0.8, 0.999), &["beta1"]),
        (&adamw().clip_global_norm(1.0), &["program: expected the program of the model being built"]),
    ];
    for (other, words) in others {
        let bytes = saved(&mut trainer_with(Gradient::Rows, other), 7, &at);
        refused(&mut into, &bytes, &at, words);
    }
    let dense = saved(&mut trainer(Gradient::Dense), 7, &at);
    refused(&mut into, &dense, &at, &["program: expected the program of the model being built"]);
    // Training continues as if no checkpoint had been read.
    let mut alone = trainer(Gradient::Rows);
    for trainer in [&mut into, &mut alone] {
        trainer.fit(&loader(), &loader(), Until::Steps(9)).unwrap();
    }
    same(&values(into.scope()), &values(alone.scope()));
    std::fs::remove_file(at).unwrap();
}

/// Numbers that no training writes, under checksums that are right, are refused or trained with.
#[test]
fn no_history_panics() {
    let at = path("hostile");
    saved(&mut trainer(Gradient::Rows), 7, &at);
    let whole = Checkpoint::load(&at).unwrap();
    for (name, index) in [
        ("learning_rate.history", 0),
        ("learning_rate.history", 1),
        ("learning_rate.history", 2),
        ("learning_rate.history", 5),
        ("embedding_0.weight.settled", 3),
    ] {
        for number in [-1.0, 0.5, 1e4, 16_384.0, 1e5, 1e19, f64::MAX, -f64::MAX, f64::MIN_POSITIVE] {
            let mut odd = whole.clone();
            let mut value = odd.tensors[name].as_dense().unwrap().clone();
            value.as_mut_slice::<f64>().unwrap()[index] = number;
            odd.tensors.insert(name.to_owned(), value.into());
            odd.save(&at).unwrap();
            let go_on = || -> Result<()> {
                let mut trainer = trainer(Gradient::Rows);
                trainer.resume(&at)?;
                trainer.fit(&loader(), &loader(), Until::Steps(12))?;
                odd.clone().settled(&unpadded::ops::catalogue()).map(drop)
            };
            println!("{name}[{index}] = {number:e}: {:?}", go_on().err().map(|e| e.to_string()));
        }
    }
    std::fs::remove_file(at).unwrap();
}

/// A gradient that is not finite moves nothing either.
#[test]
fn an_update_without_finite_gradients_moves_nothing() {
    let net = Builder::new().seed(2);
    let ids = net.feed("ids", DType::I64, &[], 1);
    let factor = net.feed_like("factor", DType::F64, &[1], ids);
    let table = net.parameter("table", DType::F64, &[HEIGHT, WIDTH], init::uniform(-0.5, 0.5));
    let loss = net.sum(net.mul(net.lookup(ids, table, None, true), factor));
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    Adam::new(0.01).minimize(&mut program, &registry, loss.id()).unwrap();
    let mut executor = Executor::new(&program, &registry, &[], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let mut run = |scope: &mut Scope, words: &[i64], by: f64, step| {
        let words = Variable::from_sequences(&[words.to_vec()]).unwrap();
        let by = Dense::from_vec(&[words.rows(), 1], vec![by; words.rows()]).unwrap();
        let by = Variable::new(by, words.lod().cloned()).unwrap();
        executor.run(scope, &Run::train(&[(ids.id(), &words), (factor.id(), &by)], step))
    };
    (0..5).for_each(|step| run(&mut scope, &[step as i64, 3], 1.0, step).unwrap());
    let settled = |scope: &Scope| {
        let mut scope = scope.clone();
        settle(&program, &registry, &mut scope, 1).unwrap();
        values(&mut scope)
    };
    let before = settled(&scope);
    let history = scope.value("learning_rate.history").unwrap();
    let error = run(&mut scope, &[1, 2], f64::INFINITY, 5).unwrap_err();
    assert_eq!(error.kind(), unpadded::ErrorKind::NotFinite, "{error}");
    assert!(error.to_string().contains("nothing was updated"), "{error}");
    assert_eq!(scope.value("learning_rate.history").unwrap(), history);
    for ((name, found), (_, before)) in settled(&scope).iter().zip(&before) {
        assert!(farthest(&numbers(found), &numbers(before)) < 1e-12, "{name}");
    }
}
