//! Averages of the parameters: evaluation, saving, resuming and prediction with them.

use unpadded::predict::Predictor;
use unpadded::train::Averaging;

use super::*;

fn model() -> Trainer {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let x = net.embedding(words, Embedding::new(20, 6));
    let logits = net.linear(net.sequence_pool(net.dropout(x, 0.3), Pool::Sum), 2);
    let loss = net.mean(net.cross_entropy(logits, label));
    Trainer::new(net, loss, &Adam::new(0.05))
        .unwrap()
        .metric(Accuracy::new(logits, label))
        .output("logits", logits)
        .threads(1)
        .progress(Progress::Quiet)
}

const NAMES: [&str; 3] = ["embedding_0.weight", "linear_0.weight", "linear_0.bias"];

fn of(trainer: &mut Trainer, name: &str) -> Vec<f64> {
    trainer.scope().get(name).unwrap().cast(DType::F64).as_slice::<f64>().unwrap().to_vec()
}

#[test]
fn averages_are_those_of_the_formulas_and_leave_the_training_alone() {
    for (averaging, decay, start) in [
        (Averaging::ema(0.8), Some(0.8), 0),
        (Averaging::mean(), None, 0),
        (Averaging::mean().since(7), None, 7),
        (Averaging::ema(0.5).since(3), Some(0.5), 3),
    ] {
        let (mut plain, mut averaged) = (model(), model().averaged(averaging));
        let mut expected: Vec<Vec<f64>> = vec![Vec::new(); NAMES.len()];
        for step in 0..15u64 {
            fit(&mut plain, Until::Steps(step + 1));
            fit(&mut averaged, Until::Steps(step + 1));
            for (name, expected) in NAMES.into_iter().zip(&mut expected) {
                let now = of(&mut plain, name);
                assert_eq!(now, of(&mut averaged, name), "{name}");
                let n = step.saturating_sub(start);
                if n == 0 {
                    expected.clone_from(&now);
                }
                let weight = decay.map_or(1.0 / (n + 1) as f64, |decay| 1.0 - decay);
                expected.iter_mut().zip(&now).for_each(|(e, x)| *e += weight * (x - *e));
                let found = of(&mut averaged, &format!("{name}.average"));
                let most = found.iter().zip(&*expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(most < 1e-6, "{name}, step {step}: {most:e}");
            }
        }
    }
}

#[test]
fn it_evaluates_and_predicts_with_averages_and_goes_on_bit_by_bit() {
    let averaged = || model().averaged(Averaging::ema(0.9));
    let mut whole = averaged();
    let report = fit(&mut whole, Until::Epochs(3));
    let expected = bytes(&mut whole);

    // The evaluation equals an evaluation with the averages as parameters.
    let mut plain = model();
    for name in NAMES {
        let value = whole.scope().value(&format!("{name}.average")).unwrap();
        plain.set_parameter(name, value).unwrap();
    }
    assert_eq!(plain.evaluate(&dev()).unwrap(), report.last);
    let raw = NAMES.map(|name| of(&mut whole, name));
    assert_eq!(whole.evaluate(&dev()).unwrap(), report.last);
    assert_eq!(NAMES.map(|name| of(&mut whole, name)), raw);

    for steps in [4, 10, 17, 20] {
        let file = path("averaged");
        let mut first = averaged();
        fit(&mut first, Until::Steps(steps));
        let evaluated = first.evaluate(&dev()).unwrap();
        first.save(&file).unwrap();
        // Before an epoch has ended, a predictor takes the averages too.
        if steps < 10 {
            let predictor = Predictor::load(&file).unwrap();
            assert_eq!(predictor.evaluate(&dev()).unwrap().loss(), evaluated.loss());
            let bare = Predictor::new(first.for_inference().unwrap(), &unpadded::ops::catalogue()).unwrap();
            assert_eq!(bare.evaluate(&dev()).unwrap().loss(), evaluated.loss());
            let mut tuned = model();
            tuned.load_parameters(&unpadded::checkpoint::Checkpoint::load(&file).unwrap()).unwrap();
            assert_eq!(tuned.evaluate(&dev()).unwrap(), evaluated);
        }
        let mut second = averaged();
        second.resume(&file).unwrap();
        fit(&mut second, Until::Epochs(3));
        assert!(bytes(&mut second) == expected, "after {steps} steps");
        std::fs::remove_file(file).unwrap();
    }

    // The best epoch was chosen by averages, and its parameters are the averages.
    let best = whole.position().best.unwrap();
    whole.use_best().unwrap();
    let metric = whole.evaluate(&dev()).unwrap().get("accuracy").unwrap();
    assert_eq!(metric, best.value);
}

#[test]
fn what_cannot_be_averaged_is_named() {
    let refused = |trainer: Trainer, line: u32, expected: &str| {
        let mut trainer = trainer;
        let error = trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        let caller = error.place().caller.clone().unwrap_or_default();
        assert!(caller.contains(&format!("averaging.rs:{line}:")), "{error}");
    };
    for decay in [0.0, 1.0, -0.5, 1.5, f64::NAN] {
        let (wrong, line) = (model().averaged(Averaging::ema(decay)), line!());
        refused(wrong, line, "decay of an average: expected a number above 0 and below 1, got ");
    }
    let (wrong, line) = (model().averaged(Averaging::mean().except(["bias"])), line!());
    refused(wrong, line, "parameter not to average: expected a trained parameter (");
    let (wrong, line) = (model().averaged(Averaging::mean()).averaged(Averaging::mean()), line!());
    refused(wrong, line, "averages of the parameters: expected one kind of average, got a second kind");
    // The table of `trainer` is looked up sparsely.
    let (wrong, line) = (trainer().averaged(Averaging::ema(0.9)), line!());
    refused(
        wrong,
        line,
        "variable `embedding_0.weight`: parameter to average: expected a dense gradient, or `Averaging::except`",
    );
    let mut without = trainer().averaged(Averaging::ema(0.9).except(["embedding_0.weight"]));
    fit(&mut without, Until::Epochs(1));
    assert!(without.scope().get("embedding_0.weight.average").is_err());
}
