//! The key-value store and the trainers over it.

use std::path::Path;

use ndarray::array;
use unpadded::executor::Scope;
use unpadded::optimizer::{Lamb, Optimizer, Sgd};
use unpadded::store::{Consistency, Key, KeyValueStore, LocalStore, Rule, StoreTrainer, share};
use unpadded::tensor::Storage;
use unpadded::{Builder, DType, Program, Variable, ops};

use super::Calls;

pub(super) fn calls(calls: &mut Calls) {
    let catalogue = ops::catalogue();
    calls.at("LocalStore::new", || LocalStore::new(&catalogue, 0).map(drop));
    let store = LocalStore::new(&catalogue, 2).unwrap();
    let mode = Consistency::Asynchronous { staleness: Some(0) };
    calls.at("LocalStore::workers", || store.workers(0, mode).map(drop));
    let mut workers = store.workers(2, mode).unwrap();
    calls.at("LocalStore::workers", || store.workers(1, mode).map(drop));
    drop(workers.pop());
    let mut worker = workers.remove(0);
    let (key, rule) = (Key::from("t"), Rule::new(&Sgd::new(0.1), &catalogue).unwrap());
    let values = || Storage::from(array![1.0f32, 2.0]);
    calls.at("KeyValueStore::init", || worker.init(&key, array![1i64].into()));
    calls.at("KeyValueStore::set_rule", || worker.set_rule(&key, rule.clone()));
    calls.at("KeyValueStore::push", || worker.push(&key, values(), 1.0));
    calls.at("KeyValueStore::pull", || worker.pull(&key));
    calls.at("KeyValueStore::row_sparse_pull", || worker.row_sparse_pull(&key, vec![0]));
    worker.init(&key, values()).unwrap();
    calls.at("KeyValueStore::init", || worker.init(&key, values()));
    calls.at("KeyValueStore::init_rows", || worker.init_rows(&key, DType::F32, &[2], &mut |_, _| Ok(())));
    calls.at("KeyValueStore::push", || worker.push(&key, values(), -1.0));
    calls.at("KeyValueStore::row_sparse_pull", || worker.row_sparse_pull(&key, vec![2]));
    calls.at("KeyValueStore::end_round", || worker.end_round());
    let mut two = LocalStore::new(&catalogue, 1).unwrap().workers(2, Consistency::Synchronous).unwrap();
    drop(two.pop());
    calls.at("KeyValueStore::sum", || two[0].sum(&[1.0]));
    calls.at("KeyValueStore::save", || worker.save(Path::new("no such folder/x")));
    calls.at("KeyValueStore::restore", || worker.restore(Path::new("no such folder/x")));
    calls.at("Rule::new", || Rule::new(&Lamb::new(0.1), &catalogue));
    calls.at("Rule::new", || Rule::new(&Sgd::new(-0.1), &catalogue));

    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let y = x.linear(1);
    let loss = (y * y).mean();
    let mut program = net.finish().unwrap();
    let mut bare = Scope::of(&program).unwrap();
    let forward: Program = program.clone();
    calls.at("trainer::share", || share(&forward, &mut bare, &mut worker));
    Sgd::new(0.1).minimize(&mut program, &catalogue, loss.id()).unwrap();
    let mut trainer = StoreTrainer::new(&program, &catalogue, loss, worker).unwrap();
    let row = Variable::dense(array![[1.0f32, 2.0]]);
    calls.at("StoreTrainer::step", || trainer.step(&[(x.id(), &row)], &[]));
    calls.at("StoreTrainer::scope", || trainer.scope().map(drop));
    share(&program, &mut bare, trainer.store()).unwrap();
    calls.at("trainer::share", || share(&program, &mut Scope::new(), trainer.store()));
    calls.at("StoreTrainer::step", || trainer.step(&[], &[]));
    let worker = LocalStore::new(&catalogue, 1).unwrap().workers(1, mode).unwrap().remove(0);
    calls.at("StoreTrainer::new", || StoreTrainer::new(&forward, &catalogue, loss, worker).map(drop));
}
