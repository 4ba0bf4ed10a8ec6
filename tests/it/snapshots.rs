//! Programs as they are printed, kept whole, so that a change of words is reviewed as words.
//!
//! A change that is meant is taken by `INSTA_UPDATE=always cargo test --profile dev --test it -- snapshots caller_lines`.

use unpadded::layers::Embedding;
use unpadded::ops::Pool;
use unpadded::optimizer::Adam;
use unpadded::train::Trainer;
use unpadded::{Builder, DType};

#[test]
fn a_program_before_and_after_training_is_added() {
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let states = words.embedding(Embedding::new(100, 16).sparse()).lstm(32);
    let logits = states.sequence_pool(Pool::Last).linear(2);
    let loss = logits.cross_entropy(label).mean();
    insta::assert_snapshot!("program", net.program().unwrap().to_string());
    insta::assert_snapshot!(
        "storage",
        net.program().unwrap().storage_report(&net.registry()).unwrap().to_string()
    );
    let trainer = Trainer::new(net, loss, &Adam::new(1e-3).lazy()).unwrap();
    insta::assert_snapshot!("program_that_trains", trainer.program().to_string());
}
