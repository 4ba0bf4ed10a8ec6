//! The state of a key-value store in a file: resumed bit for bit, and refused whole if anything does not fit.

use std::fs;
use std::path::PathBuf;

use ndarray::{Array2, arr0, array};
use unpadded::optimizer::{Adagrad, Adam, Optimizer, Sgd};
use unpadded::store::{Consistency, Key, KeyValueStore, LocalWorker};
use unpadded::tensor::{Dense, Storage};

use crate::store::{alone, key, numbers, rule, rules, says, some_rows, store};
use crate::store_exact::{exact_rules, near};

fn file(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("unpadded-store-{name}-{}", std::process::id()))
}

const SHAPE: (usize, usize) = (9, 4);

/// A table and a vector under a rule, and a number without one.
fn keys(worker: &mut LocalWorker, optimizer: &dyn Optimizer) {
    worker.init(&key("t"), numbers(SHAPE, 1).into()).unwrap();
    worker.set_rule(&key("t"), rule(optimizer)).unwrap();
    worker.init(&Key::from(3), array![1.0f32, 2.0].into()).unwrap();
    worker.set_rule(&Key::from(3), rule(optimizer)).unwrap();
    worker.init(&key("t.count"), arr0(0.0).into()).unwrap();
}

fn push(worker: &mut LocalWorker, step: u64) {
    let (height, width) = SHAPE;
    worker.push(&key("t"), some_rows(height, width, 5, step).into(), 1.0).unwrap();
    worker.push(&Key::from(3), array![0.5f32, -(step as f32)].into(), 1.0).unwrap();
    worker.push(&key("t.count"), arr0(1.0).into(), 1.0).unwrap();
}

fn all(worker: &mut LocalWorker) -> Vec<Dense> {
    [key("t"), Key::from(3), key("t.count")].map(|key| worker.pull(&key).unwrap()).to_vec()
}

#[track_caller]
fn same(one: &[Dense], two: &[Dense]) {
    assert!(one.len() == two.len() && one.iter().zip(two).all(|(one, two)| one.bits_eq(two)));
}

/// Restoring has the same bits for every rule, into any number of shards. Only the deferred updates are counted per shard.
#[test]
fn a_store_goes_on_where_it_was_saved() {
    let file = file("resumed");
    let owing = exact_rules().into_iter().map(|rule| (rule, true));
    for (optimizer, owes) in rules().into_iter().map(|rule| (rule, false)).chain(owing) {
        let mut worker = alone(&store(3));
        keys(&mut worker, &optimizer);
        (0..5).for_each(|step| push(&mut worker, step));
        worker.save(&file).unwrap();
        let bytes = fs::read(&file).unwrap();
        let saved = all(&mut worker);
        (5..9).for_each(|step| push(&mut worker, step));
        let end = all(&mut worker);
        for shards in [1, 3, 4] {
            let mut other = alone(&store(shards));
            keys(&mut other, &optimizer);
            push(&mut other, 100);
            other.restore(&file).unwrap();
            same(&all(&mut other), &saved);
            // Equal states are equal bytes.
            let again = file.with_extension("again");
            other.save(&again).unwrap();
            assert!(fs::read(&again).unwrap() == bytes);
            fs::remove_file(again).unwrap();
            (5..9).for_each(|step| push(&mut other, step));
            match owes && shards != 3 {
                false => same(&all(&mut other), &end),
                true => near(&all(&mut other)[0], &end[0], "in other shards"),
            }
        }
        // The store that was updated further is restored to the saved state.
        worker.restore(&file).unwrap();
        (5..9).for_each(|step| push(&mut worker, step));
        same(&all(&mut worker), &end);
    }
    fs::remove_file(file).unwrap();
}

/// Whatever is wrong with a file, the store is unchanged and usable.
#[test]
fn what_does_not_fit_is_refused_whole() {
    let file = file("refused");
    let make = |optimizer: &dyn Optimizer| {
        let mut worker = alone(&store(2));
        keys(&mut worker, optimizer);
        (0..3).for_each(|step| push(&mut worker, step));
        worker
    };
    let adam = Adam::new(0.1).lazy();
    let mut worker = make(&adam);
    worker.save(&file).unwrap();
    let whole = fs::read(&file).unwrap();
    push(&mut worker, 3);
    let before = all(&mut worker);
    let mut refused = |bytes: Option<&[u8]>, words: &[&str]| {
        match bytes {
            Some(bytes) => fs::write(&file, bytes).unwrap(),
            None => fs::remove_file(&file).unwrap(),
        }
        let shown = file.display().to_string();
        says(worker.restore(&file), &[&[&*shown], words].concat());
        same(&all(&mut worker), &before);
    };
    refused(None, &["got none"]);
    // Every byte is covered by a checksum.
    for at in (0..whole.len()).step_by(37) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        refused(Some(&bytes), &[]);
    }
    for length in (0..whole.len()).step_by(101) {
        refused(Some(&whole[..length]), &[]);
    }
    let saved = |optimizer: &dyn Optimizer, change: &dyn Fn(&mut LocalWorker)| {
        let other = file.with_extension("other");
        let mut worker = make(optimizer);
        change(&mut worker);
        worker.save(&other).unwrap();
        let bytes = fs::read(&other).unwrap();
        fs::remove_file(other).unwrap();
        bytes
    };
    let nothing = |_: &mut LocalWorker| {};
    // A state of another rule, or of the same one with another setting or schedule.
    let words = ["variable `t`", "rule: expected the store's rule, `adam`", "got `adagrad`"];
    refused(Some(&saved(&Adagrad::new(0.1), &nothing)), &words);
    refused(
        Some(&saved(&Adam::new(0.1).lazy().betas(0.8, 0.999), &nothing)),
        &["beta1 = 0.9", "beta1 = 0.8"],
    );
    refused(Some(&saved(&Adam::new(0.2).lazy(), &nothing)), &["base = 0.1", "base = 0.2"]);
    refused(Some(&saved(&Adam::new(0.1).lazy().clip_value(2.0), &nothing)), &["clipped at 2"]);
    let ruled = |worker: &mut LocalWorker| worker.set_rule(&key("t.count"), rule(&Sgd::new(0.1))).unwrap();
    refused(Some(&saved(&adam, &ruled)), &["variable `t.count`", "the store's rule, none, got `sgd`"]);
    // Other keys.
    let one_more = |worker: &mut LocalWorker| worker.init(&key("u"), arr0(0.0).into()).unwrap();
    let words = ["keys: expected the store's keys, `t`, `t.count`, `#3`, got `t`, `t.count`, `u`, `#3`"];
    refused(Some(&saved(&adam, &one_more)), &words);
    // Other shapes and dtypes under the same keys.
    for (value, got) in [
        (Storage::from(Array2::<f64>::zeros((9, 5))), "got f64[9, 5]"),
        (Array2::<f32>::zeros(SHAPE).into(), "got f32[9, 4]"),
    ] {
        let mut other = alone(&store(1));
        other.init(&key("t"), value).unwrap();
        other.set_rule(&key("t"), rule(&adam)).unwrap();
        other.init(&Key::from(3), array![1.0f32, 2.0].into()).unwrap();
        other.set_rule(&Key::from(3), rule(&adam)).unwrap();
        other.init(&key("t.count"), arr0(0.0).into()).unwrap();
        let path = file.with_extension("other");
        other.save(&path).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        refused(Some(&bytes), &["variable `t`", "value: expected f64[9, 4]", got]);
    }
    fs::write(&file, &whole).unwrap();
    worker.restore(&file).unwrap();
    push(&mut worker, 3);
    same(&all(&mut worker), &before);
    fs::remove_file(file).unwrap();
}

/// Parts that are missing, in files whose checksums are right.
#[test]
fn missing_parts_are_named() {
    use unpadded::checkpoint::Checkpoint;
    let file = file("missing");
    let mut worker = alone(&store(2));
    keys(&mut worker, &Adam::new(0.1).lazy());
    push(&mut worker, 0);
    worker.save(&file).unwrap();
    push(&mut worker, 1);
    let before = all(&mut worker);
    let whole = Checkpoint::load(&file).unwrap();
    let names: Vec<String> = whole.tensors.keys().cloned().collect();
    assert!(names.contains(&"moment2 of name:t".to_owned()), "{names:?}");
    for name in names {
        let mut part = whole.clone();
        part.tensors.remove(&name);
        let gone = part.program.find(&name).unwrap();
        // A program without the variable would not be well formed, so the variable is marked as not persistent.
        part.program.var_mut(gone).persistable = false;
        if part.save(&file).is_ok() {
            says(worker.restore(&file), &[&file.display().to_string()]);
        }
        same(&all(&mut worker), &before);
    }
    let mut negative = whole.clone();
    negative.tensors.insert("steps of name:t".to_owned(), arr0(-1i64).into());
    negative.save(&file).unwrap();
    says(worker.restore(&file), &["variable `t`", "steps: expected a number from 0"]);
    let mut not_finite = whole.clone();
    not_finite.tensors.insert("name:t".to_owned(), Array2::from_elem(SHAPE, f64::NAN).into());
    not_finite.save(&file).unwrap();
    says(worker.restore(&file), &["variable `t`", "value of a key", "NaN at [0, 0]"]);
    let mut not_finite = whole.clone();
    not_finite.tensors.insert("moment1 of name:t".to_owned(), Array2::from_elem(SHAPE, f64::INFINITY).into());
    not_finite.save(&file).unwrap();
    says(worker.restore(&file), &["variable `t`", "state `moment1`", "inf at [0, 0]"]);
    same(&all(&mut worker), &before);
    fs::remove_file(file).unwrap();
}

#[test]
fn amid_a_round_nothing_is_saved_or_restored() {
    let file = file("amid");
    let values = store(2);
    let mut workers = values.workers(2, Consistency::Synchronous).unwrap();
    keys(&mut workers[0], &Adam::new(0.1).lazy());
    workers[0].save(&file).unwrap();
    push(&mut workers[1], 0);
    let words = ["round of the key: expected no round in progress, got only the gradients of workers 1"];
    says(workers[0].save(&file), &words);
    says(workers[0].restore(&file), &words);
    says(workers[0].set_rule(&key("t.count"), rule(&Sgd::new(0.1))), &words);
    push(&mut workers[0], 0);
    let one_step = all(&mut workers[1]);
    workers[1].restore(&file).unwrap();
    workers.iter_mut().for_each(|worker| push(worker, 0));
    same(&all(&mut workers[0]), &one_step);
    fs::remove_file(file).unwrap();
}
