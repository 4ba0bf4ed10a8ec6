//! The best epoch belongs to the data and the metric that chose it, and to nothing else.

use unpadded::checkpoint::{Checkpoint, Criterion};

use super::*;

/// Returns data like [`dev`] with other samples: every label is 1, so that the scores are high.
fn easy() -> Loader {
    let sample = |i: i64| vec![Field::Ints(vec![10 + i % 10]), Field::Int(1)];
    loader((0..16).map(sample).collect())
}

/// A training after some epochs, in a file; and its best epoch.
fn saved(name: &str, epochs: u64) -> (PathBuf, unpadded::checkpoint::Best) {
    let file = path(name);
    let mut first = trainer();
    let best = fit(&mut first, Until::Epochs(epochs)).best.unwrap();
    first.save(&file).unwrap();
    (file, best)
}

fn resumed(file: &PathBuf, trainer: Trainer) -> Trainer {
    let mut trainer = trainer;
    trainer.resume(file).unwrap();
    trainer
}

#[test]
fn other_development_data_are_refused() {
    let (file, best) = saved("other-dev", 3);
    let checkpoint = Checkpoint::load(&file).unwrap();
    let criterion = checkpoint.criterion.unwrap();
    assert_eq!((criterion.metric.as_str(), criterion.data), ("accuracy", dev().fingerprint()));
    let mut second = resumed(&file, trainer());
    let before = bytes(&mut second);
    // Also if no step is left, and only the report would contain it.
    for until in [Until::Epochs(3), Until::Epochs(5), Until::Steps(33)] {
        let error = second.fit(&train(), &easy(), until).unwrap_err().to_string();
        let expected = format!(
            "development data: expected the data on which the best epoch so far was chosen (epoch {}, accuracy {:.4}; \
             fingerprint {:016x}), got other data or batches (fingerprint {:016x}) (at tests/it/trainer/best.rs:",
            best.epoch,
            best.value,
            dev().fingerprint(),
            easy().fingerprint()
        );
        assert!(error.starts_with(&expected), "{error}");
        assert!(
            error.contains("; `Trainer::remeasure_best` (`--remeasure-best` of the programs)"),
            "{error}"
        );
        assert!(bytes(&mut second) == before, "changed by a run that was refused");
    }
    assert_eq!(fit(&mut second, Until::Epochs(3)).best, Some(best));
    std::fs::remove_file(file).unwrap();
}

/// No file is needed: a trainer that has trained knows the metric and the data of its choice.
#[test]
fn another_metric_is_refused() {
    let mut other = trainer();
    fit(&mut other, Until::Epochs(2));
    let mut other = other.select("loss");
    let error = other.fit(&train(), &dev(), Until::Epochs(3)).unwrap_err().to_string();
    let expected = "metric that decides which epoch is the best: expected `accuracy`, where higher is better, which chose \
                    the best epoch so far (epoch ";
    assert!(error.starts_with(expected), "{error}");
    assert!(error.contains("), got `loss`, where lower is better ("), "{error}");
    // No best epoch was chosen yet, so no data or metric can differ.
    let mut none = trainer();
    fit(&mut none, Until::Steps(4));
    none.fit(&train(), &easy(), Until::Epochs(1)).unwrap();
}

#[test]
fn the_best_epoch_is_measured_anew_on_request() {
    let (file, best) = saved("anew", 3);
    let written = Written::default();
    let to = Progress::To(Box::new(written.clone()));
    let mut second = resumed(&file, trainer().remeasure_best().progress(to));
    let last = values(&mut second);
    let report = second.fit(&train(), &easy(), Until::Epochs(3)).unwrap();
    assert!(values(&mut second) == last, "measuring has changed the parameters");
    let anew = report.best.unwrap();
    assert_eq!((anew.epoch, anew.step), (best.epoch, best.step));
    let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
    let message =
        format!("the best epoch so far, {}, measured anew: accuracy {:.4}\n", best.epoch, anew.value);
    assert!(text.contains(&message), "{text}");
    // The value is the score of these parameters on this data, and is stored in the file from now on.
    second.save(&file).unwrap();
    second.use_best().unwrap();
    assert_eq!(second.evaluate(&easy()).unwrap().get("accuracy"), Some(anew.value));
    assert_ne!(anew.value, best.value, "these data cannot tell");
    let checkpoint = Checkpoint::load(&file).unwrap();
    assert_eq!(checkpoint.position.best, Some(anew));
    assert_eq!(checkpoint.criterion.map(|c| c.data), Some(easy().fingerprint()));
    // Where nothing differs nothing is measured.
    let mut same = resumed(&file, trainer().remeasure_best());
    assert_eq!(same.fit(&train(), &easy(), Until::Epochs(3)).unwrap().best, Some(anew));
    assert!(resumed(&file, trainer()).fit(&train(), &dev(), Until::Epochs(3)).is_err());
    std::fs::remove_file(file).unwrap();
}

/// Patience that another measure has used up is there again.
#[test]
fn patience_starts_again_with_the_measure() {
    let (file, _) = saved("patience-anew", 3);
    let mut checkpoint = Checkpoint::load(&file).unwrap();
    checkpoint.position.since_best = 5;
    checkpoint.save(&file).unwrap();
    let run = |trainer: Trainer, dev: &Loader| {
        let mut trainer = resumed(&file, trainer.patience(5));
        trainer.fit(&train(), dev, Until::Epochs(4)).unwrap().ended
    };
    assert_eq!(run(trainer(), &dev()), StopReason::Early);
    let saving = trainer().remeasure_best().checkpoint(&file);
    assert_eq!(run(saving, &easy()), StopReason::Done);
    // The new value was saved, so the resumed training need not ask for measuring again.
    assert_eq!(Checkpoint::load(&file).unwrap().position.epoch, 4);
    assert_eq!(run(trainer(), &easy()), StopReason::Done);
    std::fs::remove_file(file).unwrap();
}

/// An old file does not record which data chose its best epoch, so its value is measured anew.
#[test]
fn the_best_epoch_of_an_old_file_is_measured_anew() {
    let (file, best) = saved("old", 3);
    let mut old = Checkpoint::load(&file).unwrap();
    old.criterion = None;
    old.position.best = Some(with!(best, value: 0.9999));
    old.save(&file).unwrap();
    let mut second = resumed(&file, trainer());
    assert_eq!(fit(&mut second, Until::Epochs(3)).best, Some(best));
    let mut whole = trainer();
    fit(&mut whole, Until::Epochs(5));
    fit(&mut second, Until::Epochs(5));
    assert!(bytes(&mut second) == bytes(&mut whole), "differs from the training without the stop");
    let easy = resumed(&file, trainer()).fit(&train(), &easy(), Until::Epochs(3)).unwrap();
    assert_ne!(easy.best.map(|b| b.value), Some(best.value));
    // Without its parameters it cannot be measured, and is none.
    old.best.clear();
    old.save(&file).unwrap();
    assert_eq!(fit(&mut resumed(&file, trainer()), Until::Epochs(3)).best, None);
    std::fs::remove_file(file).unwrap();
}

/// Stopped while it measures, it has decided nothing.
#[test]
fn an_interrupt_while_measuring_leaves_the_best_epoch_as_it_was() {
    let (file, _) = saved("interrupted-anew", 3);
    let before = std::fs::read(&file).unwrap();
    let mut second = resumed(&file, trainer().remeasure_best().checkpoint(&file));
    let flag = second.stop_flag();
    let report = second.fit(&train(), &flagging(easy(), 1, flag), Until::Epochs(4)).unwrap();
    assert_eq!(report.ended, StopReason::Interrupted);
    assert!(bytes(&mut second) == before);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_criterion_is_stored_by_names_and_comes_back() {
    let (file, _) = saved("criterion", 1);
    let bytes = std::fs::read(&file).unwrap();
    for word in ["criterion", "accuracy", "higher"] {
        assert!(bytes.windows(word.len()).any(|w| w == word.as_bytes()), "{word}");
    }
    let mut checkpoint = Checkpoint::load(&file).unwrap();
    let lower = with!(Criterion::default(), metric: "λ".to_owned(), better: unpadded::metrics::Better::Lower, data: u64::MAX);
    checkpoint.criterion = Some(lower);
    assert_eq!(Checkpoint::from_bytes(&checkpoint.to_bytes().unwrap()).unwrap(), checkpoint);
    std::fs::remove_file(file).unwrap();
}
