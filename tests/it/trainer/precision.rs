//! Trainings in bf16: the same bits on any number of threads and after a resumption, and refusals of other precisions.

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::op::MatrixUnit;
use unpadded::optimizer::Optimizer;
use unpadded::predict::Predictor;
use unpadded::{Precision, Variable, ops};

use super::*;

fn in_bf16() -> Trainer {
    trainer().precision(Precision::Bf16).allow_slow()
}

/// A checkpoint of the first steps, as a CPU with this unit would have saved it.
fn started(unit: MatrixUnit, steps: u64) -> PathBuf {
    let file = path("started");
    let mut first = in_bf16();
    first.save(&file).unwrap();
    let mut checkpoint = Checkpoint::load(&file).unwrap();
    checkpoint.program.unit = unit;
    checkpoint.save(&file).unwrap();
    let mut first = in_bf16();
    first.resume(&file).unwrap();
    fit(&mut first, Until::Steps(steps));
    first.save(&file).unwrap();
    file
}

#[test]
fn a_training_in_bf16_has_the_same_bits_on_any_threads_and_when_resumed() {
    let mut ends = Vec::new();
    for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
        let start = started(unit, 0);
        let resumed = |from: &PathBuf, threads: usize| {
            let mut trainer = in_bf16().threads(threads);
            trainer.resume(from).unwrap();
            assert_eq!(trainer.unit(), unit);
            fit(&mut trainer, Until::Epochs(4));
            bytes(&mut trainer)
        };
        let whole = resumed(&start, 1);
        for threads in [2, 3, 7] {
            assert!(resumed(&start, threads) == whole, "{unit} on {threads} threads");
        }
        for steps in [3, 10, 27] {
            let file = started(unit, steps);
            assert!(resumed(&file, 2) == whole, "{unit} after {steps} steps");
            std::fs::remove_file(file).unwrap();
        }
        std::fs::remove_file(start).unwrap();
        ends.push(whole);
    }
    let mut single = trainer();
    fit(&mut single, Until::Epochs(4));
    ends.push(bytes(&mut single));
    assert!(ends[0] != ends[1] && ends[0] != ends[2] && ends[1] != ends[2], "each unit has its own bits");
}

#[test]
fn it_learns_as_in_f32() {
    let [single, half] = [trainer(), in_bf16()].map(|mut trainer| fit(&mut trainer, Until::Epochs(12)).last);
    assert!(half.get("accuracy").unwrap() > 0.85, "{half}");
    assert!((half.loss() - single.loss()).abs() < 0.1 * single.loss(), "{half} {single}");
}

#[track_caller]
fn says(error: &Error, expected: &[&str]) {
    let text = error.to_string();
    assert!(expected.iter().all(|words| text.contains(words)), "{text}\nexpected: {expected:?}");
    // Who runs the command has no method to call.
    assert!(!format!("{error:#}").contains("::"), "{error:#}");
}

#[test]
fn another_precision_or_unit_is_refused_and_named() {
    let file = started(MatrixUnit::Bf16Tiles, 2);
    let mut single = trainer();
    let error = single.resume(&file).unwrap_err();
    says(&error, &["precision", "expected bf16-amx, as in the checkpoint, got f32", "`Trainer::precision`"]);
    assert_eq!((single.position().step, single.unit()), (0, MatrixUnit::F32));

    // A CPU with the unit of the checkpoint resumes without more words.
    let mut other = trainer().precision(Precision::Bf16);
    let unit = other.unit();
    match other.resume(&file) {
        Ok(()) => assert_eq!(unit, MatrixUnit::Bf16Tiles),
        Err(error) => {
            let got = format!("expected bf16-amx, as in the checkpoint, got {unit}");
            says(&error, &[&got, "`Trainer::allow_slow`"]);
            assert_eq!((other.position().step, other.unit()), (0, unit));
        }
    }
    std::fs::remove_file(file).unwrap();

    let file = path("single");
    trainer().save(&file).unwrap();
    says(&in_bf16().resume(&file).unwrap_err(), &["expected f32, as in the checkpoint, got bf16-"]);
    std::fs::remove_file(file).unwrap();
}

#[test]
fn a_cpu_without_a_unit_is_refused_before_anything_is_written() {
    if MatrixUnit::of_cpu(Precision::Bf16).is_some() {
        return;
    }
    let file = path("refused");
    let mut slow = trainer().precision(Precision::Bf16).checkpoint(&file);
    let error = slow.fit(&train(), &dev(), Until::Epochs(1)).unwrap_err();
    says(&error, &["precision `bf16`", "AMD from Zen 4", "`Trainer::allow_slow`"]);
    let line = error.place().caller.clone().unwrap_or_default();
    assert!(line.contains("precision.rs"), "{line}");
    assert!(!file.exists());
    let mut model = trainer();
    let predictor = Predictor::new(model.for_inference().unwrap(), &ops::catalogue()).unwrap();
    let words = Variable::from_sequence(vec![3i64, 17, 4]).unwrap();
    let predictor = predictor.precision(Precision::Bf16);
    let run = |predictor: &Predictor| predictor.run(&[("words", &words)], &["logits"]);
    let (rounded, full) = (run(&predictor), run(&predictor.precision(Precision::F32)).unwrap());
    if MatrixUnit::Bf16Pairs.is_vectorised() {
        let numbers = |found: Vec<Variable>| found[0].as_slice::<f32>().unwrap().to_vec();
        let (rounded, full) = (numbers(rounded.unwrap()), numbers(full));
        let largest = rounded.iter().zip(&full).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest > 0.0 && largest < 0.02, "{rounded:?} {full:?}");
    } else {
        says(&rounded.unwrap_err(), &["precision `bf16`", "AMD from Zen 4"]);
    }
}

/// A model that was trained in bf16 predicts in f32, as on a CPU without bf16.
#[test]
fn a_model_trained_in_bf16_predicts_in_f32() {
    let mut trained = in_bf16();
    fit(&mut trained, Until::Epochs(1));
    let checkpoint = trained.for_inference().unwrap();
    assert_eq!(checkpoint.program.unit, MatrixUnit::F32);
    let file = path("whole");
    trained.save(&file).unwrap();
    let whole = Checkpoint::load(&file).unwrap();
    assert_eq!(whole.program.unit.precision(), Precision::Bf16);
    let words = Variable::from_sequence(vec![3i64, 17, 4]).unwrap();
    let run = |checkpoint| {
        let predictor = Predictor::new(checkpoint, &ops::catalogue()).unwrap();
        predictor.run(&[("words", &words)], &["logits"]).unwrap().remove(0)
    };
    assert_eq!(run(checkpoint), run(whole));
    std::fs::remove_file(file).unwrap();
}

/// bf16 has the range of f32: a gradient that is scaled down by a power of two keeps its bits, until it is subnormal in f32. So
/// the loss needs no scaling.
#[test]
fn small_gradients_do_not_vanish() {
    let gradient = |scale: f64| {
        let net = Builder::new().seed(3);
        let x = net.feed("x", DType::F32, &[40], 1);
        let loss = x.linear(30).tanh().linear(20).sum() * scale;
        let mut program = net.finish().unwrap();
        let made = Sgd::new(0.1).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
        program.unit = MatrixUnit::Bf16Pairs;
        let fetch: Vec<_> = made.gradients.iter().map(|(_, gradient)| *gradient).collect();
        let mut executor = Executor::new(&program, &ops::catalogue(), &fetch, 1).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        let rows: Vec<f32> = (0..40 * 7).map(|i| ((i * 37) % 101) as f32 / 50.0 - 1.0).collect();
        let rows = Variable::sequences(
            ndarray::Array2::from_shape_vec((7, 40), rows).unwrap(),
            unpadded::Lod::from_lengths1(&[3, 4]).unwrap(),
        );
        let x = program.find("x").unwrap();
        executor.run(&mut scope, &Run::train(&[(x, &rows.unwrap())], 0).until(Stage::Gradients)).unwrap();
        let all = fetch.iter().flat_map(|&v| executor.fetch(v).unwrap().as_slice::<f32>().unwrap().to_vec());
        all.collect::<Vec<f32>>()
    };
    let usual = gradient(1.0);
    assert!(usual.iter().filter(|x| **x != 0.0).count() > usual.len() / 2);
    for exponent in [-24, -60, -90] {
        let scale = 2f64.powi(exponent);
        let small = gradient(scale);
        assert!(usual.iter().zip(&small).all(|(a, b)| (f64::from(*a) * scale) as f32 == *b), "{exponent}");
    }
}

#[test]
fn a_listing_names_the_calls_in_bf16() {
    let shown = |dtype: DType| {
        let net = Builder::new();
        let h = net.feed("x", dtype, &[4], 1).linear(3).tanh();
        let mut program = net.finish().unwrap();
        program.unit = MatrixUnit::Bf16Tiles;
        let executor = Executor::new(&program, &ops::catalogue(), &[h.id()], 1).unwrap();
        executor.listing().to_string()
    };
    let listing = shown(DType::F32);
    assert!(listing.contains("matrix products: bf16-amx"), "{listing}");
    let noted = |listing: &str| -> Vec<String> {
        let lines: Vec<&str> = listing.lines().collect();
        let notes = lines.windows(2).filter(|pair| pair[1].trim_start().split("; ").any(|n| n == "bf16-amx"));
        notes.map(|pair| pair[0].trim().to_owned()).collect()
    };
    let calls = noted(&listing);
    assert!(calls.len() == 1 && calls[0].contains("linear"), "{calls:?}\n{listing}");
    assert!(noted(&shown(DType::F64)).is_empty());
}
