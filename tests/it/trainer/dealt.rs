//! Tables that are dealt to ranks: the bits of one rank that holds all rows, checkpoints of rank files, and refusals. With
//! `UNPADDED_THOROUGH=30`, 300 random models run.

use std::fs;
use std::path::Path;

use unpadded::checkpoint::Checkpoint;
use unpadded::layers::{EmbeddingBag, init};
use unpadded::ops;
use unpadded::optimizer::{Lamb, Optimizer, Options, SparseMode, UpdateRule};
use unpadded::parallel::{World, threads};
use unpadded::predict::Predictor;

use super::processes::{on_ranks, remove, state};
use super::settled::{drawn, drawn_optimizer, ranks_agree};
use super::*;
use crate::step_blocks::generator::Dice;
use crate::thorough::times;

/// A classifier with two tables: of words, whose clipped gradients all ranks need, or none; and of ids that the program computes.
fn classifier(clips: bool) -> Trainer {
    let net = Builder::new().seed(6);
    let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    let x = words.embedding(Embedding::new(1 << 40, 6).row_sparse()).dropout(0.2).lstm(5);
    let others = net.assign(words).embedding(Embedding::new(99, 5).row_sparse()).sequence_pool(Pool::Max);
    let logits = (x.sequence_pool(Pool::Last) + others).linear(2);
    let loss = logits.cross_entropy(label).mean();
    let adam = Adam::new(0.05).lazy();
    let adam = if clips { adam.clip_global_norm(0.5) } else { adam.clip_value(0.1) };
    let trainer = Trainer::new(net, loss, &adam).unwrap().output("class", logits).deal_tables();
    trainer.metric(Accuracy::new(logits, label)).progress(Progress::Quiet).threads(1).parts(4)
}

fn fitted(clips: bool, world: Option<World>, from: Option<&Path>, until: Until) -> (Trainer, Report) {
    let trainer = classifier(clips);
    let mut trainer = world.into_iter().fold(trainer, Trainer::distributed);
    if let Some(from) = from {
        trainer.resume(from).unwrap();
    }
    let report = trainer.fit(&train(), &dev(), until).unwrap();
    (trainer, report)
}

#[test]
fn dealt_rows_have_the_bits_of_one_rank() {
    for clips in [false, true] {
        let (mut alone, report) = fitted(clips, None, None, Until::Epochs(2));
        let expected = state(&mut alone, &report, "alone");
        for size in [2, 3, 4] {
            let all = on_ranks(size, |world| {
                let rank = world.rank();
                let (mut trainer, report) = fitted(clips, Some(world), None, Until::Epochs(2));
                for table in ["embedding_0.weight", "embedding_1.weight"] {
                    let rows = trainer.scope().value(table).unwrap();
                    let ids = rows.as_selected_rows().unwrap().row_ids();
                    assert!(!ids.is_empty() && ids.iter().all(|&id| id as usize % size == rank), "{ids:?}");
                }
                let evaluated = trainer.evaluate(&dev()).unwrap();
                assert_eq!(evaluated, report.last);
                let table_bytes = report.processes[rank].tables;
                assert!(table_bytes > 0, "the report has the bytes of rank {rank}");
                state(&mut trainer, &report, &format!("dealt-{size}-{rank}"))
            });
            assert!(all[0].0 == expected.0, "{size} ranks, clipped by norm: {clips}");
            assert!(all.iter().all(|got| got.1 == expected.1));
        }
    }
}

/// An optimizer in lazy mode.
struct Lazy {
    rule: Box<dyn Optimizer>,
    options: Options,
}

impl Optimizer for Lazy {
    fn options(&self) -> &Options {
        &self.options
    }

    fn rule(&self) -> Result<UpdateRule> {
        self.rule.rule()
    }
}

/// Row-sparse tables of random models, with a lazy optimizer.
#[test]
fn rows_of_models_at_random_are_dealt_alike() {
    let mut refused = 0;
    for seed in 0..times(10) as u64 {
        let lazy = || -> Box<dyn Optimizer> {
            let rule = drawn_optimizer(seed);
            let mut options = rule.options().clone();
            options.mode = SparseMode::Lazy;
            Box::new(Lazy { rule, options })
        };
        let (net, loss) = drawn(seed, true);
        match Trainer::new(net, loss, &*lazy()) {
            Ok(_) => ranks_agree(&format!("seed {seed}"), &|| drawn(seed, true), &lazy, seed, true),
            Err(_) => refused += 1,
        }
    }
    println!("{refused} refused");
    assert!(refused <= times(2), "{refused} refused");
}

/// Returns the files of a checkpoint, by name.
fn files(path: &Path) -> Vec<String> {
    let name = path.file_name().unwrap().to_str().unwrap();
    let all = fs::read_dir(path.parent().unwrap()).unwrap();
    let all = all.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut all: Vec<String> = all.filter_map(|file| Some(file.strip_prefix(name)?.to_owned())).collect();
    all.sort();
    all
}

#[test]
fn rank_files_are_loaded_by_any_number_of_ranks() {
    let (mut alone, report) = fitted(true, None, None, Until::Steps(11));
    let expected = state(&mut alone, &report, "alone-of-files");
    let model = alone.for_inference().unwrap();
    for (first, then) in [(3, 1), (1, 3), (2, 4), (4, 2), (2, 2)] {
        let file = path(&format!("files-{first}-{then}"));
        on_ranks(first, |world| fitted(true, Some(world), None, Until::Steps(6)).0.save(&file).unwrap());
        let listed: Vec<String> = match first {
            1 => vec![String::new()],
            _ => std::iter::once(String::new())
                .chain((0..first).map(|r| format!(".a.{r}-of-{first}")))
                .collect(),
        };
        assert_eq!(files(&file), listed);
        let got = on_ranks(then, |world| {
            let rank = world.rank();
            // The other ranks learn from the first one which file it is.
            let from = Some(&*file).filter(|_| rank == 0);
            let mut trainer = classifier(true).distributed(world).checkpoint(&file);
            from.into_iter().for_each(|from| trainer.resume(from).unwrap());
            let report = trainer.fit(&train(), &dev(), Until::Steps(11)).unwrap();
            if rank == 0 {
                assert!(trainer.for_inference().unwrap() == model, "{first} ranks, then {then}: the model");
            }
            state(&mut trainer, &report, &format!("then-{first}-{then}-{rank}"))
        });
        assert!(got[0].0 == expected.0, "{first} ranks, then {then}");
        // The files of the earlier set are gone.
        assert_eq!(files(&file).len(), 1 + if then > 1 { then } else { 0 }, "{:?}", files(&file));
        Predictor::new(Checkpoint::load(&file).unwrap(), &ops::catalogue()).unwrap();
        remove(&file);
    }
}

/// Returns the error of each rank.
fn errors(size: usize, body: impl Fn(World) -> Result<()> + Sync) -> Vec<String> {
    let all = on_ranks(size, |world| body(world).map_err(|e| e.to_string()));
    all.into_iter().map(Result::unwrap_err).collect()
}

#[test]
fn a_damaged_set_of_files_is_refused_with_its_file() {
    let folder = path("damaged-set");
    fs::create_dir(&folder).unwrap();
    let file = folder.join("last");
    let save = || {
        drop(on_ranks(2, |world| fitted(false, Some(world), None, Until::Steps(3)).0.save(&file).unwrap()))
    };
    save();
    let whole = Checkpoint::load(&file).unwrap();
    let second = folder.join("last.a.1-of-2");
    let bytes = fs::read(&second).unwrap();
    let refused = |words: &[&str]| {
        let error = Checkpoint::load(&file).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
        let resume = |world| classifier(false).distributed(world).resume(&file).map_err(|e| e.to_string());
        let error = on_ranks(2, resume).remove(1).unwrap_err();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    fs::write(&second, &bytes[..bytes.len() - 9]).unwrap();
    refused(&["last.a.1-of-2", "a file that is damaged, or of another set"]);
    fs::remove_file(&second).unwrap();
    refused(&["last.a.1-of-2", "a set of 2 files"]);
    fs::write(&second, &bytes).unwrap();
    assert!(Checkpoint::load(&file).unwrap() == whole);
    let lone = fs::read(&file).unwrap();
    assert!(Checkpoint::from_bytes(&lone).unwrap_err().to_string().contains("a list of rank files"));
    // A save that fails on one rank leaves the set as it was.
    fs::create_dir(folder.join("last.b.1-of-2")).unwrap();
    let error = errors(2, |world| fitted(false, Some(world), None, Until::Steps(3)).0.save(&file));
    assert!(
        error.iter().all(|error| error.contains("last.b.1-of-2") && error.contains("a folder")),
        "{error:?}"
    );
    assert!(Checkpoint::load(&file).unwrap() == whole);
    fs::remove_dir(folder.join("last.b.1-of-2")).unwrap();
    save();
    assert_eq!(files(&file), ["", ".b.0-of-2", ".b.1-of-2"]);
    fs::remove_dir_all(folder).unwrap();
}

/// A batch that one rank cannot read, and a gradient that is not finite, are errors of all ranks before anything is updated.
#[test]
fn an_error_about_rows_reaches_all_ranks() {
    let refused = errors(2, |world| {
        let rank = world.rank();
        let ids = if rank == 1 { vec![1i64, 100] } else { vec![1, 2] };
        let batch = vec![
            ("words".to_owned(), Variable::from_sequences(&vec![ids; 4]).unwrap()),
            ("label".to_owned(), Variable::dense(Dense::from_vec(&[4], vec![0i64, 1, 1, 0]).unwrap())),
        ];
        let data = Made(vec![batch]);
        classifier(false).distributed(world).fit(&data, &data, Until::Steps(1)).map(drop)
    });
    let words = ", position 1: expected at least 0 and below 99";
    assert!(refused.iter().any(|error| error.contains(words)), "{refused:?}");
    let steep = errors(2, |world| {
        let net = Builder::new().seed(6);
        let words = net.feed("words", DType::I64, &[], 1);
        // The gradient of each sequence is finite, and their sum, which only the second rank has, is not.
        let x = words.embedding_bag(EmbeddingBag::new(9, 1).weight_init(init::constant(0.0)).row_sparse());
        let loss = (x * 3e38).sum();
        let mut trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().deal_tables().distributed(world);
        trainer = trainer.progress(Progress::Quiet);
        let data =
            Made(vec![vec![("words".to_owned(), Variable::from_sequences(&[vec![1i64], vec![1]]).unwrap())]]);
        let failed = trainer.fit(&data, &data, Until::Steps(1)).map(drop);
        assert_eq!(
            trainer.scope().value("embedding_bag_0.weight").unwrap().as_selected_rows().unwrap().row_ids(),
            [0i64; 0]
        );
        failed
    });
    assert!(
        steep.iter().all(|error| error.contains("variable `embedding_bag_0.weight`: gradient of a batch")),
        "{steep:?}"
    );
    on_ranks(2, |world| {
        let first = (world.rank() == 0).then(|| World::new(threads(1).remove(0)));
        let (trainer, _) = fitted(false, Some(world), None, Until::Steps(1));
        let Some(alone) = first else { return };
        let error = trainer.distributed(alone).evaluate(&dev()).unwrap_err().to_string();
        assert!(
            error.contains("expected rank 0 of 2 processes, whose rows this trainer holds, got one process"),
            "{error}"
        );
    });
    let error = trainer().deal_tables().fit(&train(), &dev(), Until::Steps(1)).unwrap_err().to_string();
    assert!(
        error.contains("tables to deal: expected a row-sparse parameter") && error.contains(file!()),
        "{error}"
    );
}

/// The bytes that ranks send follow the rows that batches read, whatever the height of the table.
#[test]
fn bytes_follow_the_rows() {
    const WIDTH: usize = 32;
    const BATCH: usize = 300;
    for (size, height) in [(2, 1000), (3, 1000), (2, 1_000_000), (3, 1_000_000)] {
        on_ranks(size, |world| {
            let net = Builder::new();
            let words = net.feed("words", DType::I64, &[], 1);
            let x = words.embedding(Embedding::new(height, WIDTH).row_sparse()).sequence_pool(Pool::Mean);
            let loss = x.linear(20).tanh().mean();
            let trainer = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().deal_tables().parts(4);
            let mut trainer = trainer.threads(1).distributed(world.clone()).progress(Progress::Quiet);
            let mut dice = Dice::new(7);
            let ids: Vec<i64> = (0..BATCH).map(|_| dice.below(height) as i64).collect();
            let mut distinct = ids.clone();
            distinct.sort_unstable();
            distinct.dedup();
            let sequences: Vec<Vec<i64>> = ids.chunks(25).map(<[i64]>::to_vec).collect();
            let batch = vec![("words".to_owned(), Variable::from_sequences(&sequences).unwrap())];
            let data = Made(vec![batch; 6]);
            trainer.fit(&data, &data, Until::Steps(1)).unwrap();
            let before = world.traffic();
            trainer.fit(&data, &data, Until::Steps(5)).unwrap();
            let after = world.traffic();
            let sent = (after.sent - before.sent) as f64 / 4.0;
            // Each rank asks for rows, answers, and sends gradients of rows; four bytes a row number.
            let dense = (WIDTH * 20 + 20) * 4;
            let share = (size as f64 - 1.0) / size as f64;
            let rows = distinct.len() as f64 / size as f64;
            let bound = share * (2.0 * dense as f64 + rows * (2.0 * (WIDTH * 4) as f64 + 12.0));
            assert!(sent < 1.3 * bound + 4000.0, "{size} ranks, {height} rows: {sent} of {bound}");
        });
    }
}

/// Parameters that are loaded into a trainer of own rows; a save that only rank 0 refuses; and a checkpoint behind a link.
#[test]
fn own_rows_stay_own_rows() {
    let folder = path("own-rows");
    fs::create_dir(&folder).unwrap();
    let (mut whole, _) = fitted(true, None, None, Until::Steps(5));
    whole.save(folder.join("whole")).unwrap();
    let start = Checkpoint::load(folder.join("whole")).unwrap();
    let started = |world: Option<World>| {
        let mut trainer = world.into_iter().fold(classifier(true), Trainer::distributed);
        trainer.evaluate(&dev()).unwrap();
        trainer.load_parameters(&start).unwrap();
        let report = trainer.fit(&train(), &dev(), Until::Steps(4)).unwrap();
        (trainer, report)
    };
    let (mut alone, report) = started(None);
    let expected = state(&mut alone, &report, "own-rows-alone");
    #[cfg(unix)]
    std::os::unix::fs::symlink(folder.join("file"), folder.join("link")).unwrap();
    fs::write(folder.join("file"), "").unwrap();
    on_ranks(2, |world| {
        let (mut trainer, report) = started(Some(world));
        let error = trainer.save(folder.join("missing").join("file")).unwrap_err().to_string();
        assert!(error.contains("an existing folder"), "{error}");
        let got = state(&mut trainer, &report, "own-rows-dealt");
        assert!(got.0.is_empty() || got == expected);
        if cfg!(unix) {
            trainer.save(folder.join("link")).unwrap();
            assert!(Checkpoint::load(folder.join("link")).is_ok());
        }
    });
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn what_cannot_be_dealt_is_refused() {
    let net = || {
        let net = Builder::new().seed(6);
        let words = net.feed("words", DType::I64, &[], 1);
        (net, words, words.embedding(Embedding::new(9, 4).row_sparse()))
    };
    let refused = |trainer: &(dyn Fn() -> Trainer + Sync), words: &[&str]| {
        let batch = vec![("words".to_owned(), Variable::from_sequences(&[vec![1i64], vec![2]]).unwrap())];
        let data = Made(vec![batch]);
        let fit = |world| trainer().deal_tables().distributed(world).fit(&data, &data, Until::Steps(1));
        for error in errors(2, |world| fit(world).map(drop)) {
            assert!(words.iter().all(|word| error.contains(word)), "{error}");
        }
    };
    let whole = || {
        let (net, _, x) = net();
        Trainer::new(net, x.square().mean(), &Lamb::new(0.1).lazy()).unwrap()
    };
    refused(&whole, &["variable `embedding_0.weight`", "updates each row by itself, got LAMB"]);
    let dependent = || {
        let (net, _, x) = net();
        let ids = x.linear(9).argmax();
        let y = ids.embedding(Embedding::new(9, 4).row_sparse());
        Trainer::new(net, (x + y).square().mean(), &Sgd::new(0.1)).unwrap()
    };
    refused(&dependent, &["table to deal", "row numbers that depend on `embedding_0.weight`"]);
}
