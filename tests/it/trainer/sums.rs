//! The running sums of metrics in checkpoints: of many classes, and of another metric.

use unpadded::Var;
use unpadded::checkpoint::Checkpoint;
use unpadded::metrics::{CalibrationError, ConfusionMatrix};

use super::*;

/// Enough classes that a file with a number for each pair of classes would be too long.
const CLASSES: usize = 1200;

fn classifier(change: impl FnOnce(Trainer, Var, Var) -> Trainer) -> Trainer {
    let net = Builder::new().seed(3);
    let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    let logits = words.embedding(Embedding::new(20, 4)).sequence_pool(Pool::Last).linear(CLASSES);
    let loss = logits.cross_entropy(label).mean();
    let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().threads(1).progress(Progress::Quiet);
    change(trainer, logits, label)
}

fn with_matrix() -> Trainer {
    let names = Vocabulary::labels((0..CLASSES).map(|class| format!("class {class}"))).unwrap();
    classifier(|trainer, logits, label| trainer.metric(ConfusionMatrix::new(logits, label, &names)))
}

#[test]
fn a_training_with_a_metric_of_many_sums_is_saved_and_goes_on() {
    let (file, mut whole) = (path("many"), with_matrix());
    fit(&mut whole, Until::Steps(14));
    let mut first = with_matrix();
    fit(&mut first, Until::Steps(7));
    first.save(&file).unwrap();
    let position = Checkpoint::load(&file).unwrap().position;
    let sums = &position.sparse["accuracy by class"];
    assert_eq!(sums.count, (CLASSES * (CLASSES + 1)) as u64);
    let counted = sums.sums.iter().map(|(_, sum)| sum).sum::<f64>();
    assert!((6.0 * 8.0..=7.0 * 8.0).contains(&counted), "{counted}");
    assert_eq!(position.running.keys().collect::<Vec<_>>(), ["loss"]);
    // A trainer that has evaluated data before it resumes.
    let mut second = with_matrix();
    second.evaluate(&dev()).unwrap();
    second.resume(&file).unwrap();
    fit(&mut second, Until::Steps(14));
    assert!(bytes(&mut second) == bytes(&mut whole));
    // Nothing has been counted of an epoch that has not begun.
    let mut ended = with_matrix();
    fit(&mut ended, Until::Epochs(1));
    ended.save(&file).unwrap();
    let position = Checkpoint::load(&file).unwrap().position;
    assert!(position.running.is_empty() && position.sparse.is_empty(), "{position:?}");
    std::fs::remove_file(file).unwrap();
}

#[test]
fn sums_of_a_metric_that_was_told_something_else_are_not_gone_on_with() {
    let with = |ignored: Option<i64>| {
        classifier(|trainer, logits, label| {
            let error = CalibrationError::new(logits, label);
            trainer.metric(match ignored {
                Some(ignored) => error.ignoring(ignored),
                None => error,
            })
        })
    };
    let file = path("told");
    let mut first = with(None);
    fit(&mut first, Until::Steps(7));
    first.save(&file).unwrap();
    let mut second = with(Some(0));
    second.resume(&file).unwrap();
    let error = second.fit(&train(), &dev(), Until::Steps(14)).unwrap_err().to_string();
    let expected = "metric `calibration error`, whose sums of the epoch so far are in the checkpoint: expected no `ignore`, \
                    got `ignore` 0";
    assert!(error.contains(expected), "{error}");
    let mut named = classifier(|trainer, logits, label| {
        trainer.metric(Accuracy::new(logits, label).named("calibration error"))
    });
    named.resume(&file).unwrap();
    let error = named.fit(&train(), &dev(), Until::Steps(14)).unwrap_err().to_string();
    assert!(error.contains("expected kind `calibration_error`, got kind `accuracy`"), "{error}");
    // Between epochs there is nothing to mix.
    let mut first = with(None);
    fit(&mut first, Until::Epochs(1));
    first.save(&file).unwrap();
    let mut second = with(Some(0)).remeasure_best();
    second.resume(&file).unwrap();
    fit(&mut second, Until::Steps(14));
    std::fs::remove_file(file).unwrap();
}
