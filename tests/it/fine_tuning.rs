//! Starting from the parameters of another training.

use unpadded::checkpoint::Checkpoint;
use unpadded::data::{Batching, Field, Loader, Samples, Vocabulary};
use unpadded::layers::Embedding;
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Group, Optimizer, Sgd};
use unpadded::tensor::{Dense, Storage};
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, ErrorKind};

/// Builds a classifier with `classes` classes and an LSTM of width `width`.
fn trainer(classes: usize, width: usize, optimizer: &dyn Optimizer) -> Trainer {
    let net = Builder::new().seed(classes as u64);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let h = words.embedding(Embedding::new(7, 4)).lstm(width);
    let logits = h.sequence_pool(Pool::Last).linear(classes);
    Trainer::new(net, logits.cross_entropy(label).mean(), optimizer)
        .unwrap()
        .output("logits", logits)
        .progress(Progress::Quiet)
}

fn data() -> Loader {
    let sample = |i: i64| vec![Field::from(vec![i % 7, 3, i * i % 7]), (i % 2).into()];
    Loader::new((0..30).map(sample).collect::<Samples>(), &["words", "label"])
        .unwrap()
        .batching(Batching::Sequences(7))
}

fn trained() -> Checkpoint {
    let mut first = trainer(2, 3, &Adam::new(0.05));
    first.fit(&data(), &data(), Until::Epochs(2)).unwrap();
    first.for_inference().unwrap()
}

fn values(trainer: &mut Trainer) -> Vec<(String, Storage)> {
    let names: Vec<String> = trainer.scope().names().map(str::to_owned).collect();
    names.into_iter().map(|name| (name.clone(), trainer.scope().value(&name).unwrap())).collect()
}

#[test]
fn a_training_starts_from_the_parameters_of_a_file() {
    let from = trained();
    let mut second = trainer(2, 3, &Sgd::new(0.1));
    let before = second.evaluate(&data()).unwrap();
    second.load_parameters(&from).unwrap();
    for (name, value) in &from.tensors {
        assert_eq!(&second.scope().value(name).unwrap(), value, "{name}");
    }
    assert_eq!(second.position().step, 0);
    let loaded = second.evaluate(&data()).unwrap();
    assert_ne!(loaded, before);
    // It is the same as setting them one by one.
    let mut by_hand = trainer(2, 3, &Sgd::new(0.1));
    for (name, value) in &from.tensors {
        by_hand.set_parameter(name, value.clone()).unwrap();
    }
    for trainer in [&mut second, &mut by_hand] {
        trainer.fit(&data(), &data(), Until::Epochs(1)).unwrap();
    }
    assert_eq!(values(&mut second), values(&mut by_hand));
}

/// A whole checkpoint gives its best epoch's parameters, and nothing of its optimizer.
#[test]
fn a_whole_checkpoint_gives_what_a_predictor_takes() {
    let mut first = trainer(2, 3, &Adam::new(0.05));
    first.fit(&data(), &data(), Until::Epochs(2)).unwrap();
    let file = std::env::temp_dir().join(format!("unpadded-fine-tuning-{}", std::process::id()));
    first.save(&file).unwrap();
    let mut whole = Checkpoint::load(&file).unwrap();
    std::fs::remove_file(file).unwrap();
    let bias = "linear_0.bias";
    whole.best.insert(bias.to_owned(), Dense::from_vec(&[2], vec![3.0f32, 4.0]).unwrap().into());
    let mut second = trainer(2, 3, &Adam::new(0.05));
    let fresh = values(&mut second);
    second.load_parameters(&whole).unwrap();
    for (name, value) in fresh {
        let expected = whole.best.get(&name).unwrap_or(&value);
        assert_eq!(&second.scope().value(&name).unwrap(), expected, "{name}");
    }
    whole.best.clear();
    second.load_parameters(&whole).unwrap();
    assert_eq!(second.scope().value(bias).unwrap(), whole.tensors[bias]);
}

#[test]
fn all_that_does_not_fit_is_said_and_nothing_is_loaded() {
    let from = trained();
    let refused = |mut other: Trainer, from: &Checkpoint, expected: &[&str]| {
        let before = values(&mut other);
        let error = other.load_parameters(from).unwrap_err();
        assert_eq!(values(&mut other), before);
        let error = error.to_string();
        assert!(error.contains("tests/it/fine_tuning.rs:"), "{error}");
        expected.iter().for_each(|expected| assert!(error.contains(expected), "{error}"));
    };
    // Another head, and another width: every parameter but the embedding.
    refused(
        trainer(3, 5, &Adam::new(0.05)),
        &from,
        &[
            "parameters of the checkpoint: expected the model's parameters, with the same names, shapes and vocabularies, got of another \
             shape: linear_0.bias (f32[3] in the model, f32[2] in the checkpoint), linear_0.weight (f32[5, 3] in the model, \
             f32[3, 2] in the checkpoint), lstm_0.",
            "`Trainer::load_fitting_parameters` loads what fits",
        ],
    );
    let mut other = from.clone();
    let taken = other.tensors.remove("linear_0.bias").unwrap();
    other.tensors.insert("of a later layer".to_owned(), taken);
    let missing = ["only in the model: linear_0.bias; only in the checkpoint: of a later layer"];
    refused(trainer(2, 3, &Adam::new(0.05)), &other, &missing);
    let wrong = |number: f32| {
        let mut other = from.clone();
        other
            .tensors
            .insert("linear_0.bias".to_owned(), Dense::from_vec(&[2], vec![0.5, number]).unwrap().into());
        other
    };
    refused(
        trainer(2, 3, &Adam::new(0.05)),
        &wrong(f32::NAN),
        &["variable `linear_0.bias`: value of the checkpoint: expected finite numbers, got NaN"],
    );
    let words = |tokens: [&str; 2]| Vocabulary::labels(tokens).unwrap();
    let mut with = from.clone();
    with.vocabularies.insert("labels".to_owned(), words(["no", "yes"]));
    let other = trainer(2, 3, &Adam::new(0.05)).vocabulary("labels", words(["yes", "no!"]));
    refused(other, &with, &["got vocabularies with other entries: labels"]);
    // In the midst of a training it would be neither one nor the other.
    let mut begun = trainer(2, 3, &Adam::new(0.05));
    begun.fit(&data(), &data(), Until::Steps(1)).unwrap();
    refused(
        begun,
        &from,
        &["expected a trainer before its first step, got a trainer at epoch 1, batch 2 (step 1)"],
    );
}

#[test]
fn what_fits_can_be_taken_alone() {
    let mut from = trained();
    let taken = from.tensors.remove("embedding_0.weight").unwrap();
    from.tensors.insert("more".to_owned(), taken);
    let mut other = trainer(3, 3, &Adam::new(0.05));
    let before = values(&mut other);
    let found = other.load_fitting_parameters(&from).unwrap();
    assert_eq!(found.only_in_model, ["embedding_0.weight"]);
    assert_eq!(found.only_in_checkpoint, ["more"]);
    let unlike: Vec<&str> = found.unlike.iter().map(|unlike| &*unlike.name).collect();
    assert_eq!(unlike, ["linear_0.bias", "linear_0.weight"]);
    assert!(found.loaded.iter().all(|name| name.starts_with("lstm_0.")) && found.loaded.len() > 1);
    assert_eq!(
        found.to_string(),
        format!(
            "{} loaded; only in the model: embedding_0.weight; only in the checkpoint: more; of another shape: linear_0.bias \
             (f32[3] in the model, f32[2] in the checkpoint), linear_0.weight (f32[3, 3] in the model, f32[3, 2] in the checkpoint)",
            found.loaded.len()
        )
    );
    for (name, value) in &before {
        let expected = if found.loaded.contains(name) { &from.tensors[name] } else { value };
        assert_eq!(&other.scope().value(name).unwrap(), expected, "{name}");
    }
    let error = other.load_fitting_parameters(&Checkpoint::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Program);
    assert!(error.to_string().contains("expected at least one parameter that fits the model"), "{error}");
}

/// A group that is held for a while: equal bits on any number of threads, and resumed before and after it moves.
#[test]
fn gradual_unfreezing_is_resumed_bit_for_bit() {
    let adam = || {
        let lower = |name: &str| name.starts_with("embedding_0") || name.starts_with("lstm_0");
        Adam::new(0.05).group(Group::matching(lower).after(7).rate(0.5))
    };
    let fit = |mut trainer: Trainer, until| {
        trainer.fit(&data(), &data(), until).unwrap();
        trainer
    };
    let mut start = trainer(2, 3, &adam());
    let before = values(&mut start);
    let value =
        |all: &[(String, Storage)], name: &str| all.iter().find(|(n, _)| n == name).unwrap().1.clone();
    let held = values(&mut fit(start, Until::Steps(7)));
    for name in ["embedding_0.weight", "lstm_0.weight_hh"] {
        assert_eq!(value(&held, name), value(&before, name), "{name}");
    }
    assert_ne!(value(&held, "linear_0.weight"), value(&before, "linear_0.weight"));
    let whole = values(&mut fit(trainer(2, 3, &adam()).threads(1), Until::Epochs(3)));
    assert_ne!(value(&whole, "embedding_0.weight"), value(&before, "embedding_0.weight"));
    for (steps, threads) in [(3, 2), (9, 4)] {
        let file = std::env::temp_dir().join(format!("unpadded-held-{steps}-{}", std::process::id()));
        fit(trainer(2, 3, &adam()).threads(threads), Until::Steps(steps)).save(&file).unwrap();
        let mut resumed = trainer(2, 3, &adam()).threads(threads);
        resumed.resume(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        assert_eq!(values(&mut fit(resumed, Until::Epochs(3))), whole, "{steps} steps");
    }
    let mut unlike = trainer(2, 3, &Adam::new(0.05));
    let held = fit(trainer(2, 3, &adam()), Until::Steps(1)).for_inference().unwrap();
    unlike.load_parameters(&held).unwrap();
}
