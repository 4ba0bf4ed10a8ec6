//! The memory limit: a batch that does not fit is divided, and the step is the step of the whole batch.

use unpadded::ErrorKind;
use unpadded::layers::Norm;
use unpadded::parallel::World;

use super::parts::{LOSSES, PARAMETERS, SEQUENCES, apart, data_for, parameters, trainer_of};
use super::processes::{on_ranks, state};
use super::*;

/// Returns the smallest limit, to two percent, under which a training does not fail.
fn least(fit: &dyn Fn(u64) -> Result<Report>) -> u64 {
    let (mut fails, mut fits) = (0, 1 << 22);
    while fits - fails > fits / 50 + 1 {
        let middle = (fails + fits) / 2;
        match fit(middle) {
            Ok(_) => fits = middle,
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
                fails = middle;
            }
        }
    }
    fits
}

#[test]
fn a_divided_step_is_that_of_the_whole_batch() {
    let mut divided_sparse = 0;
    for (dtype, tolerance) in [(DType::F64, 1e-10), (DType::F32, 1e-5)] {
        for (loss, sparse) in LOSSES.into_iter().flat_map(|loss| [(loss, false), (loss, true)]) {
            let fresh = || trainer_of(&loss.1, dtype, sparse);
            let mut joined = fresh();
            let all = data_for(&joined, SEQUENCES);
            let expected = joined.fit(&*all, &*all, Until::Steps(3)).unwrap();
            let expected_values = parameters(&mut joined);
            for (parts, batches, sequences) in [(1, 1, SEQUENCES), (2, 1, SEQUENCES), (1, 2, 7)] {
                let divided = |limit| fresh().parts(parts).accumulate(batches).memory_limit(limit);
                let fit = |trainer: &mut Trainer, until| {
                    let parts_data = data_for(trainer, sequences);
                    trainer.fit(&*parts_data, &*all, until)
                };
                let least = least(&|limit| fit(&mut divided(limit), Until::Steps(1)));
                for limit in [least, 1 << 30] {
                    let mut divided = divided(limit);
                    let got =
                        fit(&mut divided, Until::Steps(3)).unwrap_or_else(|e| panic!("{}: {e}", loss.0));
                    // The selected rows of a step are collected, however it is divided: if they are most of its memory, no
                    // limit divides it.
                    let divides = limit == least && (!sparse || got.divided > 0);
                    divided_sparse += usize::from(sparse && divides);
                    assert_eq!((got.steps, got.divided), (3, if divides { 3 } else { 0 }), "{}", loss.0);
                    let far = (expected.last.loss() - got.last.loss()).abs() / expected.last.loss().abs();
                    assert!(far < tolerance, "{}, in {parts}: dev loss {far:e}", loss.0);
                    for ((a, b), name) in expected_values.iter().zip(parameters(&mut divided)).zip(PARAMETERS)
                    {
                        let far = apart(a, &b);
                        assert!(far < tolerance, "{}, sparse {sparse}, in {parts}: {name} {far:e}", loss.0);
                        // What fits is computed as without a limit.
                        let whole = limit > least && parts * batches == 1;
                        assert!(!whole || far == 0.0, "{}: {name} {far:e}", loss.0);
                    }
                }
            }
        }
    }
    assert!(divided_sparse >= 133, "{divided_sparse} of 138 trainings with sparse gradients were divided");
}

#[test]
fn a_divided_training_has_the_same_bits_on_any_machine() {
    let limited = |limit: u64| trainer().memory_limit(limit);
    let limit = least(&|limit| limited(limit).fit(&train(), &dev(), Until::Epochs(3)));
    let mut whole = limited(limit);
    let report = fit(&mut whole, Until::Epochs(3));
    let expected = state(&mut whole, &report, "limit");
    let mut undivided = trainer();
    fit(&mut undivided, Until::Epochs(3));
    assert_ne!(values(&mut whole), values(&mut undivided), "no batch was divided");
    // On several threads.
    let mut threads = limited(limit).threads(3);
    let report = fit(&mut threads, Until::Epochs(3));
    assert!(state(&mut threads, &report, "limit") == expected);
    // A resumed training keeps the limit of its checkpoint.
    let file = path("limit");
    let mut first = limited(limit);
    fit(&mut first, Until::Steps(13));
    first.save(&file).unwrap();
    let mut second = limited(limit * 100);
    second.resume(&file).unwrap();
    let report = fit(&mut second, Until::Epochs(3));
    assert_eq!(state(&mut second, &report, "limit").0, expected.0);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn ranks_divide_as_one_process_does() {
    let least = |parts: u64| {
        least(&|limit| trainer().parts(parts).memory_limit(limit).fit(&train(), &dev(), Until::Epochs(1)))
    };
    let limit = least(2);
    let fit = |world: Option<World>, own: u64| {
        let trainer = trainer().parts(2).memory_limit(own);
        let mut trainer = world.into_iter().fold(trainer, Trainer::distributed);
        let report = fit(&mut trainer, Until::Epochs(2));
        state(&mut trainer, &report, "limits")
    };
    let expected = fit(None, limit);
    assert!(fit(None, limit * 100).0 != expected.0, "no batch was divided");
    // The smallest limit counts.
    let all = on_ranks(2, |world| {
        let own = if world.rank() == 0 { limit * 100 } else { limit };
        fit(Some(world), own)
    });
    all.iter().for_each(|got| assert!(*got == expected));
}

#[test]
fn carried_states_are_divided_with_their_sequences() {
    let ids: Vec<i64> = (0..301).map(|i: i64| i * i % 11 % 5).collect();
    let text = Continuous::new(ids, 5, 7, ["x", "y"]).unwrap();
    let mut whole = language_model();
    let expected = whole.fit(&text, &text, Until::Epochs(2)).unwrap();
    let limit = least(&|limit| language_model().memory_limit(limit).fit(&text, &text, Until::Epochs(1)));
    let mut divided = language_model().memory_limit(limit);
    let report = divided.fit(&text, &text, Until::Epochs(2)).unwrap();
    assert!((report.last.loss() - expected.last.loss()).abs() < 1e-4, "{report:?}, {expected:?}");
    assert!(values(&mut divided) != values(&mut whole), "no batch was divided");
    // Resumed in the middle of an epoch.
    let file = path("carried-limit");
    let mut first = language_model().memory_limit(limit);
    first.fit(&text, &text, Until::Steps(4)).unwrap();
    first.save(&file).unwrap();
    let mut second = language_model();
    second.resume(&file).unwrap();
    second.fit(&text, &text, Until::Epochs(2)).unwrap();
    assert!(bytes(&mut divided) == bytes(&mut second));
    std::fs::remove_file(file).unwrap();
}

/// Returns the error of a training whose batches do not fit, of a model that allows no division.
fn refused(build: impl Fn() -> Trainer, data: &dyn Data) -> String {
    let least = least(&|limit| build().memory_limit(limit).fit(data, data, Until::Epochs(1)));
    let mut trainer = build().memory_limit(least * 95 / 100);
    let error = trainer.fit(data, data, Until::Epochs(1)).unwrap_err();
    assert!(error.place().caller.as_ref().is_some_and(|line| line.contains("memory_limit.rs")), "{error}");
    error.to_string()
}

#[test]
fn what_cannot_be_divided_is_refused() {
    // A sample that does not fit by itself.
    let sample = |i: u64| vec![Field::Ints(vec![3; if i == 5 { 4000 } else { 4 }]), Field::Int(0)];
    let samples: Samples = (0..12).map(sample).collect();
    let long = Loader::new(samples, &["words", "label"]).unwrap().batching(Batching::Sequences(8));
    let limit = least(&|limit| trainer().memory_limit(limit).fit(&train(), &dev(), Until::Epochs(1)));
    let error = trainer().memory_limit(limit * 2).fit(&long, &dev(), Until::Epochs(1)).unwrap_err();
    assert!(error.place().caller.as_ref().is_some_and(|line| line.contains("memory_limit.rs")), "{error}");
    let text = error.to_string();
    assert!(
        text.starts_with("memory of sample 5: expected at most ") && text.contains("for 4000 tokens"),
        "{text}"
    );
    assert!(
        text.contains(" tokens fit; ")
            && text.contains("shorten the sample, or raise the memory limit to at least "),
        "{text}"
    );
    // An operator that reads a whole batch.
    let normed = || {
        let net = Builder::new().seed(3);
        let words = net.feed("words", DType::I64, &[], 1);
        let label = net.feed("label", DType::I64, &[], 0);
        let x = net.embedding(words, Embedding::new(20, 6)).sequence_pool(Pool::Mean);
        let logits = x.norm(Norm::batch()).linear(2);
        let loss = logits.cross_entropy(label).mean();
        Trainer::new(net, loss, &Adam::new(0.01)).unwrap().progress(Progress::Quiet)
    };
    let text = refused(normed, &train());
    assert!(text.contains("reads a whole batch, so the batch cannot be divided"), "{text}");
    assert!(text.starts_with("memory of a batch: expected at most "), "{text}");
    // A loss that parts do not tell.
    let centred = || {
        let net = Builder::new().seed(1);
        let words = net.feed("words", DType::I64, &[], 1);
        let _label = net.feed("label", DType::I64, &[], 0);
        let y = words.embedding(Embedding::new(20, 6)).linear(1);
        let rows = y.fill_like(1.0).sum();
        let loss = (y - y.mean()).square().mean();
        let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::Quiet);
        (trainer, rows)
    };
    let weighed = || {
        let (trainer, rows) = centred();
        trainer.weight(rows)
    };
    let text = refused(weighed, &train());
    assert!(text.contains("the loss has a weight of each batch (`Trainer::weight`, at "), "{text}");
    // Less than the model.
    let error = trainer().memory_limit(100).fit(&train(), &dev(), Until::Epochs(1)).unwrap_err().to_string();
    assert!(
        error.starts_with("memory limit: expected more than ")
            && error.contains("for parameters, optimizer and data"),
        "{error}"
    );
    let error = trainer().memory_limit(0).fit(&train(), &dev(), Until::Epochs(1)).unwrap_err().to_string();
    assert!(error.starts_with("memory limit in bytes: expected at least 1, got 0"), "{error}");
}

/// The batches of the first epoch of a training by memory: the numbers of the samples of each batch.
fn by_memory(limit: u64) -> (Trainer, Report, Loader) {
    let data =
        Loader::new(samples(0..77), &["words", "label"]).unwrap().batching(Batching::Memory).shuffle(5);
    let mut trainer = trainer().memory_limit(limit);
    let report = trainer.fit(&data, &dev(), Until::Epochs(2)).unwrap();
    (trainer, report, data)
}

#[test]
fn batches_by_memory_are_as_large_as_fit() {
    let limit = least(&|limit| trainer().memory_limit(limit).fit(&train(), &dev(), Until::Epochs(1)));
    let (mut whole, small, data) = by_memory(limit);
    let (_, large, _) = by_memory(limit * 10);
    assert!(large.steps == 2 && small.steps > 2, "{} and {} steps", large.steps, small.steps);
    assert_eq!((small.divided, large.divided), (0, 0));
    // A training that is interrupted in an epoch continues with the same batches.
    let file = path("by-memory");
    let mut first = trainer().memory_limit(limit);
    first.fit(&data, &dev(), Until::Steps(small.steps / 2 + 1)).unwrap();
    first.save(&file).unwrap();
    let mut second = trainer();
    second.resume(&file).unwrap();
    second.fit(&data, &dev(), Until::Epochs(2)).unwrap();
    assert!(bytes(&mut whole) == bytes(&mut second));
    std::fs::remove_file(file).unwrap();
    // Without a limit there is no size.
    let error = trainer().fit(&data, &dev(), Until::Epochs(1)).unwrap_err().to_string();
    assert!(error.contains("memory limit: expected a memory limit for batches by memory"), "{error}");
    let error = data.batches(None, 0).err().unwrap().to_string();
    assert!(error.starts_with("batching by memory: expected a training with a memory limit"), "{error}");
}
