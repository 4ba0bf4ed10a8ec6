//! Programs whose files have the kinds of update operators that version 1 had: they load, and train to the bits of their time.

use std::path::PathBuf;

use unpadded::data::{Batching, Field, Loader, Samples};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, init};
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Optimizer, RmsProp, Sgd};
use unpadded::program::backward;
use unpadded::tensor::Storage;
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, Program, Variable, ops};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures").join(name)
}

/// Each rule with states that a setting adds, for a table with gradients of selected rows and a dense parameter.
fn optimizers() -> Vec<Box<dyn Optimizer>> {
    vec![
        Box::new(Sgd::new(0.05).weight_decay(0.1)),
        Box::new(Sgd::new(0.05).momentum(0.9)),
        Box::new(Sgd::new(0.05).momentum(0.5).nesterov().weight_decay(0.1).decoupled()),
        Box::new(Adam::new(0.02)),
        Box::new(Adam::new(0.02).amsgrad().weight_decay(0.1).decoupled()),
        Box::new(RmsProp::new(0.02).weight_decay(0.1).decoupled()),
        Box::new(RmsProp::new(0.02).momentum(0.9)),
        Box::new(RmsProp::new(0.02).centred()),
        Box::new(RmsProp::new(0.02).centred().momentum(0.5).epsilon(1e-3)),
    ]
}

fn written() -> Program {
    let net = Builder::new().seed(11);
    let ids = net.feed("ids", DType::I64, &[], 0);
    let start = || init::uniform(-1.0, 1.0);
    let mut losses = Vec::new();
    for number in 0..optimizers().len() {
        let table = net.parameter(&format!("table_{number}"), DType::F32, &[7, 3], start());
        let scale = net.parameter(&format!("scale_{number}"), DType::F32, &[3], start());
        losses.push(net.sum(net.tanh(net.mul(net.lookup(ids, table, None, true), scale))));
    }
    let loss = losses.into_iter().reduce(|a, b| a + b).unwrap();
    let (registry, mut program) = (net.registry(), net.finish().unwrap());
    let gradients = backward::append(&mut program, &registry, loss.id()).unwrap();
    for (number, optimizer) in optimizers().into_iter().enumerate() {
        let ours = |&(param, _): &(_, _)| program.var(param).name.ends_with(&format!("_{number}"));
        let pairs = gradients.iter().copied().filter(ours).collect();
        optimizer.update(&mut program, &registry, pairs).unwrap();
    }
    program
}

/// A hash of the bits of a value (FNV-1a).
fn hash(value: &Storage) -> u64 {
    let value = value.to_dense().unwrap().cast(DType::F64);
    let bytes = value.as_slice::<f64>().unwrap().iter().flat_map(|x| x.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
}

fn hashes(scope: &mut Scope) -> String {
    let names: Vec<String> = scope.names().map(str::to_owned).collect();
    let line = |name: &String| format!("{name} {:016x}\n", hash(&scope.value(name).unwrap()));
    names.iter().map(line).collect()
}

/// Trains a program for some steps, in which most rows have no gradient for a while.
fn trained(program: &Program) -> String {
    let mut scope = Scope::of(program).unwrap();
    let mut executor = Executor::new(program, &ops::catalogue(), &[], 1).unwrap();
    let ids = program.find("ids").unwrap();
    for step in 0..20u64 {
        let fed: Vec<i64> = (0..step % 4).map(|k| ((step * step + k * 3) % 7) as i64).collect();
        let fed = Variable::dense(ndarray::Array1::from(fed));
        executor.run(&mut scope, &Run::train(&[(ids, &fed)], step)).unwrap();
    }
    hashes(&mut scope)
}

fn trainer() -> Trainer {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let logits = words.embedding(Embedding::new(20, 3).sparse()).sequence_pool(Pool::Sum).linear(2);
    let loss = logits.cross_entropy(label).mean();
    let optimizer = RmsProp::new(0.02).centred().momentum(0.5).lazy();
    Trainer::new(net, loss, &optimizer).unwrap().progress(Progress::Quiet).threads(1)
}

fn loader() -> Loader {
    let sample = |i: i64| vec![Field::from(vec![i % 20, i * i % 20]), (i % 2).into()];
    let samples: Samples = (0..40).map(sample).collect();
    Loader::new(samples, &["words", "label"]).unwrap().batching(Batching::Sequences(6)).shuffle(2)
}

fn resumed() -> String {
    let mut trainer = trainer();
    trainer.resume(fixture("update_kinds_v1.ckpt")).unwrap();
    trainer.fit(&loader(), &loader(), Until::Epochs(3)).unwrap();
    let parameters = trainer.scope().names().map(str::to_owned).collect::<Vec<_>>();
    let line =
        |name: &String| format!("resumed {name} {:016x}\n", hash(&trainer.scope().value(name).unwrap()));
    parameters.iter().map(line).collect()
}

#[test]
fn kinds_of_version_1_load_and_train_to_the_same_bits() {
    let program = Program::from_bytes(&std::fs::read(fixture("update_kinds_v1.program")).unwrap()).unwrap();
    let expected = std::fs::read_to_string(fixture("update_kinds_v1.txt")).unwrap();
    assert_eq!(trained(&program) + &resumed(), expected);
    // A program of today has today's kinds, and is equal.
    assert_eq!(program.to_string(), written().to_string());
}
