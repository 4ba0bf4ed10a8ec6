//! Tests how often a training and a predictor copy and compile their program.

use crate::checkpoint::Checkpoint;
use crate::data::{Field, Loader, Samples};
use crate::layers::{Embedding, Lstm};
use crate::ops::{self, Pool};
use crate::optimizer::Adam;
use crate::predict::Predictor;
use crate::program::{Builder, counted};
use crate::tensor::{DType, Variable};
use crate::train::{Progress, Trainer, Until};

#[test]
fn a_training_and_a_predictor_copy_a_program_at_most_twice() {
    let net = Builder::new().seed(1);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let states = net.lstm(words.embedding(Embedding::new(9, 4)), Lstm::new(4));
    let logits = states.sequence_pool(Pool::Max).linear(3);
    let loss = logits.cross_entropy(label).mean();
    counted::taken();
    let trainer = Trainer::new(net, loss, &Adam::new(0.01)).unwrap();
    let mut trainer = trainer.output("logits", logits).progress(Progress::Quiet);
    let made = counted::taken();
    let samples: Samples = (0..6).map(|i| vec![Field::from(vec![i, 1]), Field::from(i % 3)]).collect();
    let data = Loader::new(samples, &["words", "label"]).unwrap();
    trainer.fit(&data, &data, Until::Epochs(1)).unwrap();
    assert_eq!((made, counted::taken()), ([1, 0], [1, 1]), "trainer");

    let bytes = trainer.for_inference().unwrap().to_bytes().unwrap();
    let checkpoint = Checkpoint::from_bytes(&bytes).unwrap();
    counted::taken();
    let predictor = Predictor::new(checkpoint, &ops::catalogue()).unwrap().threads(2);
    assert_eq!(counted::taken(), [2, 1], "predictor");
    let words = Variable::from_sequence(vec![1i64, 2, 3]).unwrap();
    // The second batch divides the program into the rows of words and the rest.
    for expected in [[0, 0], [2, 2], [0, 0]] {
        predictor.run(&[("words", &words)], &["logits"]).unwrap();
        assert_eq!(counted::taken(), expected, "batch");
    }
}
