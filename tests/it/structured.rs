//! Chains of tags and labels of frames: compared with PyTorch, in trainings, and with wrong inputs.

use ndarray::{Array1, Array2, array};
use unpadded::data::{Field, Loader, Samples, TagScheme, Vocabulary};
use unpadded::layers::{Crf, Embedding};
use unpadded::metrics::{ChunkF1, ErrorRate};
use unpadded::op::{Attributes, Operand};
use unpadded::optimizer::Adam;
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, Lod, Result, Variable, ops};

use crate::fixture::Fixture;
use crate::parity::{BOTH, Net, close};

#[test]
fn ctc_is_that_of_pytorch() {
    let case = Fixture::load("ctc");
    let lengths: Vec<usize> = case.array::<i64>("label_lengths").iter().map(|&n| n as usize).collect();
    for dtype in BOTH {
        let mut net = Net::new(&case, dtype);
        let logits = net.rows("logits", net.floats(case.array("logits")));
        net.net.watch(logits);
        let labels = net.others("labels", case.array::<i64>("labels").into(), &lengths);
        let cost = net.net.ctc_loss(logits, labels, case.number("blank", f64::NAN) as usize, false);
        // PyTorch averages the losses per label.
        let shares: Array1<f32> = lengths.iter().map(|&n| 1.0 / (n * lengths.len()) as f32).collect();
        let shares = net.states("shares", shares.into_dyn());
        let loss = net.loss(&[(cost, shares)]);
        let (values, grads) = net.run(loss, &[cost, loss], &[logits]);
        close(&values[0], case.array("each"), &format!("ctc {dtype}, each"));
        close(&values[1], case.array("loss"), &format!("ctc {dtype}, mean"));
        close(&grads[0], case.array("grad.logits"), &format!("ctc {dtype}, gradient"));
    }
}

/// Numbers whose tags follow from the previous numbers: a chunk begins at each 3, and continues while numbers grow.
fn numbers(seed: u64) -> Samples {
    let sample = |i: u64| {
        let words: Vec<i64> = (0..3 + i % 7).map(|k| ((i * 31 + k * k * 7 + seed) % 9) as i64).collect();
        let (mut tags, mut before) = (Vec::new(), None);
        for &word in &words {
            let inside = before.is_some_and(|before| word > before);
            tags.push(if word == 3 {
                0
            } else if inside {
                1
            } else {
                2
            });
            before = if word == 3 || inside { Some(word) } else { None };
        }
        vec![Field::Ints(words), Field::Ints(tags)]
    };
    (0..200).map(sample).collect()
}

#[test]
fn a_tagger_learns_chunks_and_never_breaks_its_scheme() {
    let tags = Vocabulary::labels(["O", "B-x", "I-x"]).unwrap();
    let order = |text: &str| tags.lookup(text).unwrap();
    assert_eq!(["B-x", "I-x", "O"].map(order), [0, 1, 2]);
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let wanted = net.feed_like("tags", DType::I64, &[], words);
    let scores = words.embedding(Embedding::new(9, 8)).lstm(16).linear(3);
    let crf = net.layer(Crf::new().forbidding(&TagScheme::Iob2.transitions(&tags).unwrap()));
    let (loss, found) = (crf.loss(scores, wanted).mean(), crf.of(scores));
    let (paths, of_paths) = crf.n_best(scores, 3);
    let likely = crf.marginals(scores);
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.02))
        .unwrap()
        .metric(ChunkF1::new(found, wanted, TagScheme::Iob2, &tags).unwrap())
        .select("chunk F1")
        .output("found", found)
        .output("paths", paths)
        .output("scores", of_paths)
        .output("likely", likely)
        .progress(Progress::Quiet);
    let loader = |seed| Loader::new(numbers(seed), &["words", "tags"]).unwrap();
    let report = trainer.fit(&loader(0).shuffle(1), &loader(5), Until::Epochs(12)).unwrap();
    assert!(report.best.unwrap().value > 0.95, "{:?}", report.best);
    let tables = trainer.tables(&loader(5)).unwrap();
    assert!(tables[0].0 == "chunk F1" && tables[0].1.contains('x'), "{tables:?}");

    // The transitions that the scheme forbids have not moved; the others have.
    let checkpoint = trainer.for_inference().unwrap();
    let trained =
        checkpoint.tensors["crf_0.transitions"].as_dense().unwrap().as_slice::<f32>().unwrap().to_vec();
    let mask = TagScheme::Iob2.transitions(&tags).unwrap();
    for (score, may) in trained.iter().zip(&mask) {
        assert_eq!(*score == 0.0, *may == f32::NEG_INFINITY, "{trained:?}");
    }
    let predictor = unpadded::predict::Predictor::new(checkpoint, &ops::catalogue()).unwrap();
    let words = Variable::from_sequences(&[vec![3i64, 4, 5, 0, 3, 8], vec![], vec![5]]).unwrap();
    let all = predictor.run(&[("words", &words)], &["found", "paths", "scores", "likely"]).unwrap();
    let found = all[0].as_slice::<i64>().unwrap();
    assert!(found[0] == 0 && found[6] == 2, "{found:?}");
    let first: Vec<i64> = all[1].as_slice::<i64>().unwrap().chunks(3).map(|row| row[0]).collect();
    assert_eq!(first, all[0].as_slice::<i64>().unwrap());
    let scores = all[2].as_slice::<f32>().unwrap();
    assert!(scores[0] > scores[1] && scores[1] > scores[2]);
    assert_eq!(scores[3..6], [0.0, f32::NEG_INFINITY, f32::NEG_INFINITY]);
    for likely in all[3].as_slice::<f32>().unwrap().chunks(3) {
        assert!((likely.iter().sum::<f32>() - 1.0).abs() < 1e-5, "{likely:?}");
    }
}

#[test]
fn frames_learn_their_labels() {
    // A label lasts for two or three frames; what follows it is quiet.
    let sample = |i: u64| {
        let labels: Vec<i64> = (0..i % 4).map(|k| 1 + ((i + k * k) % 3) as i64).collect();
        let mut frames = Vec::new();
        for (at, label) in labels.iter().enumerate() {
            frames.extend(vec![*label; 2 + (i as usize + at) % 2]);
            frames.push(0);
        }
        vec![Field::Ints(frames), Field::Ints(labels)]
    };
    let data =
        Loader::new((0..120).map(sample).collect::<Samples>(), &["frames", "labels"]).unwrap().shuffle(2);
    let net = Builder::new().seed(1);
    let frames = net.feed("frames", DType::I64, &[], 1);
    let labels = net.feed("labels", DType::I64, &[], 1);
    let logits = frames.embedding(Embedding::new(4, 8)).lstm(16).linear(4);
    let loss = logits.ctc_loss(labels, 0, false).mean();
    let text = logits.ctc_greedy(0);
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.02))
        .unwrap()
        .metric(ErrorRate::new(text, labels))
        .select("error rate")
        .progress(Progress::Quiet);
    let report = trainer.fit(&data, &data, Until::Epochs(20)).unwrap();
    assert!(report.best.unwrap().value < 0.02, "{:?}", report.best);
}

fn call(kind: &str, attributes: &Attributes, operands: &[Operand]) -> Result<Vec<Variable>> {
    ops::catalogue().parse(kind, attributes)?.call(operands)
}

#[test]
fn what_cannot_be_costs_infinitely_much_or_nothing() {
    let lod = Lod::from_lengths1(&[1, 3]).unwrap();
    let logits = Variable::sequences(Array2::<f32>::zeros((4, 3)), lod).unwrap();
    let labels = Variable::from_sequences(&[vec![1i64, 2], vec![1, 1]]).unwrap();
    let operands = [Operand::batch("logits", logits.clone()), Operand::batch("labels", labels)];
    let out = call("ctc_loss", &Attributes::new(), &operands).unwrap();
    assert_eq!(out[0].as_slice::<f32>().unwrap()[0], f32::INFINITY);
    let zeroed = call("ctc_loss", &Attributes::new().with("zero_infinity", true), &operands).unwrap();
    let (costs, expected) = (zeroed[0].as_slice::<f32>().unwrap(), 27f32.ln());
    assert!(costs[0] == 0.0 && (costs[1] - expected).abs() < 1e-5, "{costs:?}"); // one way of 27: 1, blank, 1

    // Nothing may follow anything: a cost without bound, no marginals, and the path of zeros.
    let x = Operand::batch("emissions", logits);
    let none = Operand::constant("transitions", Array2::from_elem((5, 3), f32::NEG_INFINITY));
    let tags = Variable::sequences(array![0i64, 0, 1, 2], Lod::from_lengths1(&[1, 3]).unwrap()).unwrap();
    let plain = Attributes::new();
    let cost =
        call("linear_chain_crf", &plain, &[x.clone(), none.clone(), Operand::batch("tags", tags)]).unwrap();
    assert_eq!(cost[0].as_slice::<f32>().unwrap(), [f32::INFINITY; 2]);
    let likely = call("crf_marginals", &plain, &[x.clone(), none.clone()]).unwrap();
    assert_eq!(likely[0].as_slice::<f32>().unwrap(), [0.0; 12]);
    let best = call("viterbi_decode", &plain.with("n_best", 1usize), &[x, none]).unwrap();
    assert_eq!(best[0].as_slice::<i64>().unwrap(), [0; 4]);
    assert_eq!(best[1].as_slice::<f32>().unwrap(), [f32::NEG_INFINITY; 2]);
}

#[test]
fn mistakes_are_named() {
    #[track_caller]
    fn says(outcome: Result<Vec<Variable>>, expected: &str) {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
    let lod = Lod::from_lengths1(&[2, 1]).unwrap();
    let rows = |width: usize| Variable::sequences(Array2::<f64>::zeros((3, width)), lod.clone()).unwrap();
    let ids = |ids: [i64; 3]| Variable::sequences(Array1::from(ids.to_vec()), lod.clone()).unwrap();
    let transitions =
        |rows: usize, tags: usize| Operand::constant("transitions", Array2::<f64>::zeros((rows, tags)));
    let crf = |x: Variable, transitions: Operand, tags: Variable| {
        call(
            "linear_chain_crf",
            &Attributes::new(),
            &[Operand::batch("emissions", x), transitions, Operand::batch("tags", tags)],
        )
    };
    says(
        crf(rows(2), transitions(4, 2), ids([0, 1, 2])),
        "label of sample 1, position 0: expected at least 0 and below 2, the number of classes, got 2",
    );
    says(crf(rows(2), transitions(4, 2), ids([0, -1, 1])), "got -1");
    says(
        crf(rows(2), transitions(2, 2), ids([0, 1, 0])),
        "input `transitions`: expected a constant of shape [4, 2], got f64[2, 2]",
    );
    says(crf(rows(0), transitions(2, 0), ids([0, 1, 0])), "a score for each tag, at least one");
    says(crf(Variable::dense(Array2::<f64>::zeros((3, 2))), transitions(4, 2), ids([0, 1, 0])), "sequences");
    let forbidden = Attributes::new().with("forbidden", vec![8i64]);
    let inputs = [Operand::batch("emissions", rows(2)), transitions(4, 2)];
    says(
        call("crf_marginals", &forbidden, &inputs),
        "places of transitions [4, 2], from 0 to below 8, got 8",
    );
    for n in [0usize, 4097] {
        says(
            call("viterbi_decode", &Attributes::new().with("n_best", n), &inputs),
            "`n_best`: expected 1 to 4096",
        );
    }

    let ctc = |labels: Variable, blank: usize| {
        let operands = [Operand::batch("logits", rows(3)), Operand::batch("labels", labels)];
        call("ctc_loss", &Attributes::new().with("blank", blank), &operands)
    };
    says(
        ctc(ids([1, 0, 2]), 0),
        "label 1 of sequence 0: expected at least 0 and below 3, and not 0, the blank, got 0",
    );
    says(
        ctc(ids([1, 3, 2]), 0),
        "label 1 of sequence 0: expected at least 0 and below 3, and not 0, the blank, got 3",
    );
    says(ctc(ids([1, 1, 2]), 3), "a number for each class, the blank 3 among them");
    says(ctc(Variable::from_sequences(&[vec![1i64]]).unwrap(), 0), "sequences");
    let normalised = Attributes::new().with("normalised", true);
    let pair = |found: Variable, reference: Variable| {
        call(
            "edit_distance",
            &normalised,
            &[Operand::batch("found", found), Operand::batch("reference", reference)],
        )
    };
    let empty = Variable::from_sequences(&[vec![1i64], vec![]]).unwrap();
    says(
        pair(ids([0, 1, 2]), empty),
        "sequence 1 of `reference`, for a normalised distance: expected at least one row, got none",
    );
}

#[test]
fn a_mask_that_does_not_fit_its_scores_is_refused() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let crf = net.layer(Crf::new().forbidding(&Array2::zeros((5, 3))));
    let _ = crf.of(x);
    let error = net.finish().unwrap_err().to_string();
    assert!(
        error.contains("mask of layer `crf`: expected [6, 4]") && error.contains("got [5, 3]"),
        "{error}"
    );
}
