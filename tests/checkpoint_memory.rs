//! However a checkpoint is damaged, to load it never takes more memory than a small multiple of its size.
//!
//! A binary of its own, because its allocator counts.

#![allow(clippy::unwrap_used)]

#[path = "it/damage.rs"]
mod damage;
#[path = "it/models.rs"]
mod models;
#[path = "it/peak_memory.rs"]
mod peak_memory;
#[path = "it/trained.rs"]
mod trained;

use damage::{change, file, sections};
use models::Random;
use unpadded::program::VarKind;
use unpadded::tensor::Dense;
use unpadded::train::Checkpoint;
use unpadded::{DType, program::Spec};

/// Bytes that loading takes at its peak, and whether it loads.
fn load(bytes: &[u8]) -> (usize, bool) {
    peak_memory::of(|| Checkpoint::from_bytes(bytes).is_ok())
}

/// Loads many changed files; each may take so many times its own size, and the slack.
fn try_changed(whole: &Checkpoint, rounds: usize, times: f64) {
    // The decoder takes up to a mebibyte for a list of which it has only read the length, twice for a list in a list.
    let slack = 3 << 20;
    let bytes = whole.to_bytes().unwrap();
    let (sound, loads) = load(&bytes);
    assert!(loads);
    let (parts, mut random, mut most) = (sections(&bytes), Random(3), 0);
    for round in 0..rounds {
        let mut all = parts.clone();
        change(&mut all, &mut random);
        let bytes = file(&all);
        let (peak, _) = load(&bytes);
        most = most.max(peak);
        let bound = (times * bytes.len() as f64) as usize + slack;
        assert!(peak <= bound, "round {round}: {peak} bytes for a file of {}", bytes.len());
    }
    println!("{} bytes: {sound} to load, at most {most} damaged", bytes.len());
}

#[test]
fn a_damaged_checkpoint_takes_no_more_memory_than_its_size_justifies() {
    let mut checkpoint = trained::checkpoint(4);
    try_changed(&checkpoint, 10_000, 4.0);

    // The numbers are most of a large one, and are there once.
    let rows = 1_000_000;
    let id = checkpoint.program.find("linear_0.bias").unwrap();
    checkpoint.program.var_mut(id).kind = VarKind::Tensor(Spec::fixed(DType::F32, &[rows]).unwrap());
    checkpoint.best.clear();
    checkpoint.tensors.insert("linear_0.bias".to_owned(), Dense::zeros(DType::F32, &[rows]).unwrap());
    try_changed(&checkpoint, 100, 1.1);
}
