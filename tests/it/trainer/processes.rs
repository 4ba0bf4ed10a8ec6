//! Several ranks that train together have the bits of one rank with as many parts, for every kind of loss, layer and update.

use std::path::Path;
use std::time::{Duration, Instant};

use unpadded::checkpoint::Checkpoint;
use unpadded::layers::Norm;
use unpadded::parallel::{Communicator, ExchangeFailure, ThreadRank, World, threads};
use unpadded::train::{Averaging, Plateau};

use super::parts::{LOSSES, SEQUENCES, data_for, trainer_of};
use super::*;
use crate::step_blocks::F32;
use crate::step_blocks::generator::{Dice, model, optimizer};
use crate::thorough::times;

/// Runs `train` on `ranks` ranks, and returns the results.
pub(super) fn on_ranks<T: Send>(ranks: usize, train: impl Fn(World) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let run = |rank: ThreadRank| {
            let train = &train;
            scope.spawn(move || train(World::new(rank).deadline(Duration::from_secs(60))))
        };
        let ranks: Vec<_> = threads(ranks).into_iter().map(run).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

/// Returns the bytes of the training's checkpoint, and its report as text. With dealt tables, only the first rank has the bytes.
pub(super) fn state(trainer: &mut Trainer, report: &Report, name: &str) -> (Vec<u8>, String) {
    let path = path(name);
    trainer.save(&path).unwrap();
    let bytes =
        if path.is_file() { Checkpoint::load(&path).unwrap().to_bytes().unwrap() } else { Vec::new() };
    if !bytes.is_empty() {
        remove(&path);
    }
    (bytes, format!("{:?} {:?} {:?}", report.history, report.last, report.best))
}

/// Removes a checkpoint, with the files of its ranks.
pub(super) fn remove(path: &Path) {
    let own = |entry: &std::fs::DirEntry| {
        entry.file_name().as_encoded_bytes().starts_with(path.file_name().unwrap().as_encoded_bytes())
    };
    let all = std::fs::read_dir(path.parent().unwrap()).unwrap().map(Result::unwrap);
    all.filter(own).for_each(|entry| std::fs::remove_file(entry.path()).unwrap());
}

/// Trains on 1 to 8 ranks; all of them have to come to the same.
fn same_for_all(
    name: &str,
    parts: u64,
    sizes: &[usize],
    fit: &(dyn Fn(Option<World>) -> (Trainer, Report) + Sync),
) {
    let (mut alone, report) = fit(None);
    let expected = state(&mut alone, &report, name);
    for &size in sizes {
        let all = on_ranks(size, |world| {
            let rank = world.rank();
            let (mut trainer, report) = fit(Some(world));
            // Every rank has all of it.
            state(&mut trainer, &report, &format!("{name}-{size}-{rank}"))
        });
        for (rank, got) in all.iter().enumerate() {
            assert_eq!(got.1, expected.1, "{name}: rank {rank} of {size}, {parts} parts");
            assert!(got.0 == expected.0, "{name}: rank {rank} of {size}, {parts} parts: another file");
        }
    }
}

#[test]
fn every_loss_has_the_bits_of_one_rank() {
    for ((name, loss), sparse) in LOSSES.into_iter().flat_map(|loss| [(loss, false), (loss, true)]) {
        for (parts, sequences, batches, sizes) in
            [(4, 9, 1, &[2, 3][..]), (2, 5, 3, &[2]), (16, SEQUENCES, 1, &[3])]
        {
            same_for_all("loss", parts, sizes, &|world| {
                let mut trainer = trainer_of(&loss, DType::F32, sparse).parts(parts).accumulate(batches);
                if let Some(world) = world {
                    trainer = trainer.distributed(world);
                }
                let divided = data_for(&trainer, sequences);
                let report = trainer
                    .fit(&*divided, &*data_for(&trainer, 3), Until::Epochs(2))
                    .unwrap_or_else(|e| panic!("{name}: {e}"));
                (trainer, report)
            });
        }
    }
}

/// Trainings that have more than losses and gradients to agree on.
type Case = (&'static str, fn() -> (Trainer, Box<dyn Data>, Box<dyn Data>));

const CASES: [Case; 5] = [
    ("dropout, lazy Adam, clipping, a schedule", || (trainer(), Box::new(train()), Box::new(dev()))),
    ("carried states", || {
        let text = || {
            let ids: Vec<i64> = (0..301).map(|i: i64| i * i % 11 % 5).collect();
            Box::new(Continuous::new(ids, 6, 7, ["x", "y"]).unwrap())
        };
        (language_model(), text(), text())
    }),
    ("a batch norm", || {
        let net = Builder::new().seed(4);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let x = words.embedding(Embedding::new(20, 6)).sequence_pool(Pool::Max);
        let x = net.norm(x, Norm::batch());
        let loss = x.linear(2).cross_entropy(label).mean();
        (Trainer::new(net, loss, &Sgd::new(0.1)).unwrap(), Box::new(train()), Box::new(dev()))
    }),
    ("exact Adam on selected rows, averages", || {
        let net = Builder::new().seed(5);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let x = words.embedding(Embedding::new(20, 6).sparse()).sequence_pool(Pool::Mean);
        let loss = x.linear(2).cross_entropy(label).mean();
        let trainer = Trainer::new(net, loss, &Adam::new(0.05)).unwrap();
        (
            trainer.averaged(Averaging::ema(0.9).except(["embedding_0.weight"])),
            Box::new(train()),
            Box::new(dev()),
        )
    }),
    ("a row-sparse table", || {
        let net = Builder::new().seed(6);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let table = Embedding::new(1_000_000_000_000, 6).row_sparse();
        let x = words.embedding(table).sequence_pool(Pool::Mean);
        let loss = x.linear(2).cross_entropy(label).mean();
        (Trainer::new(net, loss, &Adam::new(0.05).lazy()).unwrap(), Box::new(train()), Box::new(dev()))
    }),
];

#[test]
fn every_training_has_the_bits_of_one_rank() {
    for (name, case) in CASES {
        for (parts, batches, sizes) in [(8, 1, &[2, 3, 8][..]), (4, 2, &[3, 4])] {
            same_for_all(name, parts, sizes, &|world| {
                let (trainer, data, dev) = case();
                let threads = world.as_ref().map_or(2, |world| 1 + world.rank() % 2);
                let trainer =
                    trainer.threads(threads).progress(Progress::Quiet).parts(parts).accumulate(batches);
                let mut trainer = match world {
                    Some(world) => trainer.distributed(world),
                    None => trainer,
                };
                let report = trainer.fit(&*data, &*dev, Until::Epochs(2));
                (trainer, report.unwrap_or_else(|e| panic!("{name}: {e}")))
            });
        }
    }
}

#[test]
fn a_checkpoint_goes_on_with_any_number_of_processes() {
    for (name, case) in CASES {
        let fit = |world: Option<World>, from: Option<&PathBuf>, until| {
            let (trainer, data, dev) = case();
            let trainer = trainer.threads(1).progress(Progress::Quiet).parts(8);
            let first = world.as_ref().is_none_or(|world| world.rank() == 0);
            let mut trainer = match world {
                Some(world) => trainer.distributed(world),
                None => trainer,
            };
            // The other ranks take the state that the first rank has read.
            if let Some(from) = from.filter(|_| first) {
                trainer.resume(from).unwrap();
            }
            let report = trainer.fit(&*data, &*dev, until).unwrap_or_else(|e| panic!("{name}: {e}"));
            (trainer, report)
        };
        let (mut alone, report) = fit(None, None, Until::Steps(17));
        let expected = state(&mut alone, &report, "alone");
        let file = path("continued");
        for (first, then) in [(3, 1), (1, 2), (4, 3)] {
            on_ranks(first, |world| {
                let rank = world.rank();
                let (mut trainer, _) = fit(Some(world), None, Until::Steps(9));
                if rank == 0 {
                    trainer.save(&file).unwrap();
                }
            });
            let got = on_ranks(then, |world| {
                let rank = world.rank();
                let (mut trainer, report) = fit(Some(world), Some(&file), Until::Steps(17));
                state(&mut trainer, &report, &format!("then-{rank}"))
            });
            for got in got {
                assert!(got.0 == expected.0, "{name}: {first}, then {then} processes: another file");
                assert_eq!(got.1, expected.1, "{name}");
            }
        }
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn one_asked_to_stop_stops_all_behind_the_same_step() {
    let reports = on_ranks(3, |world| {
        let second = world.rank() == 1;
        let mut trainer = trainer().parts(4).distributed(world);
        if second {
            trainer.stop_flag().store(true, Ordering::SeqCst);
        }
        trainer.fit(&train(), &dev(), Until::Epochs(3)).unwrap()
    });
    for report in &reports {
        assert_eq!((report.ended, report.steps), (StopReason::Interrupted, 1));
    }
}

/// Returns each rank's error, where one rank differs from the others.
fn errors(size: usize, fit: impl Fn(World) -> Result<Report> + Sync) -> Vec<String> {
    on_ranks(size, |world| fit(world).unwrap_err().to_string())
}

#[test]
fn what_differs_between_processes_is_refused_before_the_first_step() {
    let other_data = errors(3, |world| {
        let data = if world.rank() == 2 { train().shuffle(6) } else { train() };
        trainer().parts(4).distributed(world).fit(&data, &dev(), Until::Epochs(1))
    });
    assert!(other_data[2].contains("training data of rank 2: expected fingerprint"), "{}", other_data[2]);
    assert!(other_data[0].contains("a failure of rank 2: training data of rank 2"), "{}", other_data[0]);
    let other_plateau = errors(2, |world| {
        let factor = if world.rank() == 0 { 0.5 } else { 0.25 };
        let mut trainer = trainer().plateau(Plateau::new(factor)).distributed(world);
        trainer.fit(&train(), &dev(), Until::Epochs(1))
    });
    let words = "plateau of rank 1: expected factor 0.5, patience 1, least 0, as on rank 0, got factor 0.25,";
    assert!(other_plateau[1].contains(words), "{}", other_plateau[1]);
    let other_model = errors(2, |world| {
        let net = Builder::new().seed(world.rank() as u64);
        let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
        let x = words.embedding(Embedding::new(20, 6)).sequence_pool(Pool::Max);
        let loss = x.linear(2).cross_entropy(label).mean();
        let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().threads(1).progress(Progress::Quiet);
        trainer.distributed(world).fit(&train(), &dev(), Until::Epochs(1))
    });
    assert!(other_model[1].contains("seed of rank 1: expected 0, as on rank 0, got 1"), "{}", other_model[1]);
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let error = |parts, ranks| {
        errors(ranks, |world| {
            trainer().parts(parts).distributed(world).fit(&train(), &dev(), Until::Epochs(1))
        })
    };
    let three = &error(3, 2)[0];
    assert!(three.contains("parts of a batch: expected a power of two up to 65536, got 3"), "{three}");
    let few = &error(2, 3)[1];
    assert!(few.contains("processes: expected at most 2, the number of parts of a batch, got 3"), "{few}");
}

/// Data whose fifth batch cannot be read, if so said.
struct Breaks<D>(D, bool);

impl<D: Data> Data for Breaks<D> {
    fn batches(&self, epoch: Option<u64>, from: u64) -> Result<Batches> {
        let breaks = self.1;
        let broken = move |(at, batch): (usize, Result<Batch>)| match at {
            4 if breaks => Err(Error::new("file `x`", "readable", "a broken disk")),
            _ => batch,
        };
        Ok(Box::new(self.0.batches(epoch, from)?.enumerate().map(broken)))
    }
    fn batch_count(&self) -> Option<u64> {
        self.0.batch_count()
    }
    fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }
}

/// A batch of the data that one rank cannot read ends the training on all of them.
#[test]
fn an_error_of_one_process_reaches_all() {
    let text = errors(3, |world| {
        let data = Breaks(train(), world.rank() == 1);
        trainer().parts(4).distributed(world).fit(&data, &dev(), Until::Epochs(1))
    });
    assert!(text[1].starts_with("file `x`: expected readable, got a broken disk"), "{}", text[1]);
    for others in [&text[0], &text[2]] {
        assert!(
            others
                .starts_with("step 5: expected every process to continue, got a failure of rank 1: file `x`"),
            "{others}"
        );
    }
}

#[test]
fn an_evaluation_that_one_process_refuses_fails_on_all() {
    let text = on_ranks(2, |world| {
        let every = world.rank() == 0;
        let mut trainer = trainer().every(Steps(u64::from(every))).parts(2).distributed(world);
        trainer.evaluate(&dev()).unwrap_err().to_string()
    });
    assert!(text[0].contains("a failure of rank 1: steps from checkpoint to checkpoint"), "{}", text[0]);
}

/// After an error the states that the parts carry are saved as they are after the last whole step.
#[test]
fn carried_states_of_parts_are_saved_after_an_error() {
    let text = || {
        let ids: Vec<i64> = (0..301).map(|i: i64| i * i % 11 % 5).collect();
        Continuous::new(ids, 6, 7, ["x", "y"]).unwrap()
    };
    let trainer = || language_model().parts(4);
    let mut whole = trainer();
    let report = whole.fit(&text(), &text(), Until::Steps(9)).unwrap();
    let expected = state(&mut whole, &report, "whole");
    let mut broken = trainer();
    broken.fit(&Breaks(text(), true), &text(), Until::Steps(9)).unwrap_err();
    let file = path("broken");
    broken.save(&file).unwrap();
    let mut rest = trainer();
    rest.resume(&file).unwrap();
    let report = rest.fit(&text(), &text(), Until::Steps(9)).unwrap();
    std::fs::remove_file(&file).unwrap();
    assert!(state(&mut rest, &report, "rest").0 == expected.0);
}

/// A part without a sequence has no state for a later sequence.
#[test]
fn a_larger_batch_than_before_is_refused_in_parts() {
    let batch = |sequences: usize| {
        let x = Variable::from_sequences(&vec![vec![1i64, 2, 3]; sequences]).unwrap();
        vec![("x".to_owned(), x.clone()), ("y".to_owned(), x)]
    };
    let data = Made(vec![batch(2), batch(4)]);
    let message = language_model().parts(4).fit(&data, &data, Until::Epochs(1)).unwrap_err().to_string();
    assert!(
        message.contains("sequences of a batch: expected at most 0, as in the batch before"),
        "{message}"
    );
}

/// Feeds of other numbers of sequences are refused, and no sequence is left out.
#[test]
fn feeds_that_do_not_fit_are_no_parts() {
    let words = Variable::from_sequences(&[vec![1i64, 2], vec![3]]).unwrap();
    let labels = Variable::new(Dense::from_vec(&[3], vec![0i64, 1, 0]).unwrap(), None).unwrap();
    let data = Made(vec![vec![("words".to_owned(), words), ("label".to_owned(), labels)]]);
    let message = trainer().parts(2).fit(&data, &data, Until::Epochs(1)).unwrap_err().to_string();
    let words = "variable `label`: sequences of a feed: expected 2, as `words` has, got 3";
    assert!(message.contains(words) && message.contains("(step 0)"), "{message}");
}

/// Programs at random, trained in parts: the same file and scores, or the same error, for any number of ranks.
#[test]
fn programs_at_random_have_the_bits_of_one_rank() {
    let (mut trained, mut refused) = (0, 0);
    for seed in 0..times(16) as u64 {
        let outcome = |world: Option<World>| {
            let (net, loss, batches) = model(seed, F32, 4).unwrap();
            let mut dice = Dice::new(seed);
            let rank = world.as_ref().map_or(9, World::rank);
            let train = || -> Result<(Vec<u8>, String)> {
                let parts = [2, 4, 4, 8][seed as usize % 4];
                let trainer = Trainer::new(net, loss, &optimizer(&mut dice).1)?;
                let trainer = trainer.threads(1 + rank % 2).progress(Progress::Quiet).parts(parts);
                let mut trainer = match world {
                    Some(world) => trainer.distributed(world),
                    None => trainer,
                };
                let data = Made(batches);
                let report = trainer.fit(&data, &data, Until::Epochs(1 + seed % 2))?;
                Ok(state(&mut trainer, &report, &format!("random-{rank}")))
            };
            train()
        };
        let expected = outcome(None);
        for size in [2 + seed as usize % 2] {
            for got in on_ranks(size, |world| outcome(Some(world))) {
                match (&expected, got) {
                    (Ok(expected), Ok(got)) => {
                        assert_eq!(got.1, expected.1, "seed {seed}, {size} ranks");
                        assert!(got.0 == expected.0, "seed {seed}, {size} ranks: another file");
                    }
                    // It is no function of sums and means, for any of them.
                    (Err(expected), Err(got)) if expected.kind() == got.kind() => {}
                    (expected, got) => {
                        let shown = |outcome: &Result<(Vec<u8>, String)>| match outcome {
                            Ok((_, scores)) => scores.clone(),
                            Err(error) => error.to_string(),
                        };
                        panic!("seed {seed}, {size} ranks: {} and {}", shown(expected), shown(&got));
                    }
                }
            }
        }
        match expected {
            Ok(_) => trained += 1,
            Err(error) => {
                let unseen = error.to_string().contains("loss: expected sums and means over rows");
                assert!(unseen || error.kind() == ErrorKind::NotFinite, "seed {seed}: {error}");
                refused += 1;
            }
        }
    }
    println!("{trained} trained, {refused} refused");
    assert!(trained > refused, "{trained} trained, {refused} refused");
}

/// A communicator that says these numbers of itself and exchanges nothing.
struct Numbers {
    rank: usize,
    size: usize,
}

impl Communicator for Numbers {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &mut self,
        _: &str,
        _: &[&[u8]],
        _: &mut [Vec<u8>],
        _: Instant,
    ) -> std::result::Result<(), ExchangeFailure> {
        Ok(())
    }

    fn leave(&mut self, _: &str) {}
}

#[test]
fn a_communicator_whose_rank_is_not_below_its_size_is_refused() {
    for (rank, size) in [(0, 0), (2, 2)] {
        let error = World::new(Numbers { rank, size }).broadcast("a test", &[]).unwrap_err().to_string();
        let expected =
            format!("rank of a communicator: expected a number below its size, {size}, got {rank}");
        assert!(error.contains(&expected), "{error}");
    }
}
