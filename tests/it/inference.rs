//! Files for inference: the same predictions and scores from fewer bytes, without the state of the training.

use std::path::PathBuf;

use unpadded::checkpoint::{Checkpoint, Position, Purpose};
use unpadded::data::{Batching, Continuous, Data, Field, Loader, Samples, TagScheme, Vocabulary};
use unpadded::layers::{Embedding, Lstm};
use unpadded::metrics::{
    Accuracy, Average, Better, Bleu, CalibrationError, ChunkF1, ConfusionMatrix, ErrorRate, ExactMatch, F1,
    LabelSetF1, LabelThreshold, Loss, MeanError, Metric, Precision, Recall, RocAuc, Scores, TokenAccuracy,
    TopK, Unit,
};
use unpadded::op::Attributes;
use unpadded::ops::Pool;
use unpadded::optimizer::Adam;
use unpadded::parallel::{World, threads};
use unpadded::predict::Predictor;
use unpadded::program::VarRole;
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, ErrorKind, Result, Var, Variable, ops};

use crate::store::says;
use crate::trained;
use crate::trainer::own_metric;

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("unpadded-inference-{name}-{}", std::process::id()))
}

/// A metric that no file can describe.
fn rows(variable: Var) -> impl Metric {
    own_metric("rows", variable, 1, |sums, values, _| {
        sums[0] += values[0].rows() as f64;
        Ok(())
    })
}

/// A built-in metric. Its twin is written as a user would write it: a file has only the name and the variables.
struct BuiltIn {
    metric: Box<dyn Metric>,
    twin: bool,
}

impl Metric for BuiltIn {
    fn name(&self) -> &str {
        self.metric.name()
    }

    fn variables(&self) -> Vec<Var> {
        self.metric.variables()
    }

    fn better(&self) -> Better {
        self.metric.better()
    }

    fn unit(&self) -> Unit {
        self.metric.unit()
    }

    fn sums(&self) -> usize {
        self.metric.sums()
    }

    fn update(&self, sums: &mut [f64], values: &[Variable], sequences: usize) -> Result<()> {
        self.metric.update(sums, values, sequences)
    }

    fn value(&self, sums: &[f64]) -> f64 {
        self.metric.value(sums)
    }

    fn table(&self, sums: &[f64]) -> Option<String> {
        self.metric.table(sums)
    }

    fn kind(&self) -> Option<&'static str> {
        self.metric.kind().filter(|_| !self.twin)
    }

    fn attributes(&self) -> Attributes {
        self.metric.attributes()
    }
}

type Make = fn(&[Var]) -> Box<dyn Metric>;

/// Every kind of metric, each with the index of its variables in [`classifier`].
const METRICS: [(usize, Make); 23] = [
    (0, |v| Box::new(Accuracy::new(v[0], v[1]))),
    (0, |v| Box::new(Accuracy::new(v[0], v[1]).ignoring(2).named("of two"))),
    (0, |v| Box::new(F1::new(v[0], v[1], 3, Average::Macro))),
    (0, |v| Box::new(F1::new(v[0], v[1], 3, Average::Micro).ignoring(0))),
    (0, |v| Box::new(F1::new(v[0], v[1], 3, Average::Class(1)))),
    (0, |v| Box::new(Precision::new(v[0], v[1], 3, Average::Macro))),
    (0, |v| Box::new(Recall::new(v[0], v[1], 3, Average::Class(1)).ignoring(0))),
    (0, |v| Box::new(ConfusionMatrix::new(v[0], v[1], &labels()))),
    (0, |v| Box::new(TopK::new(v[0], v[1], 2))),
    (0, |v| Box::new(RocAuc::new(v[0], v[1], 2))),
    (0, |v| Box::new(CalibrationError::new(v[0], v[1]).bins(7))),
    (1, |v| Box::new(MeanError::absolute(v[0], v[1]))),
    (1, |v| Box::new(MeanError::squared(v[0], v[1]))),
    (1, |v| Box::new(MeanError::root_squared(v[0], v[1]).named("root"))),
    (4, |v| Box::new(LabelSetF1::new(v[0], v[1]).named("sets of logits"))),
    (1, |v| {
        let per_label = LabelThreshold::PerLabel;
        Box::new(LabelSetF1::of_probabilities(v[0], v[1], 3, per_label).named("sets"))
    }),
    (2, |v| Box::new(ErrorRate::new(v[0], v[1]))),
    (2, |v| Box::new(ExactMatch::new(v[0], v[1]))),
    (2, |v| Box::new(TokenAccuracy::new(v[0], v[1]))),
    (2, |v| Box::new(Bleu::new(v[0], v[1]))),
    (2, |v| {
        let tags = ["O", "B-A", "I-A", "B-B", "I-B", "B-C", "I-C", "B-D", "I-D", "B-E", "I-E"];
        let tags = Vocabulary::labels(tags).unwrap();
        Box::new(ChunkF1::new(v[0], v[1], TagScheme::Iob2, &tags).unwrap())
    }),
    (3, |v| Box::new(Loss::perplexity(v[0]))),
    (3, |v| Box::new(Loss::bits_per_character(v[0]).named("bits"))),
];

fn labels() -> Vocabulary {
    Vocabulary::labels(["a", "b", "c"]).unwrap()
}

/// A classifier of short texts, with dropout and every kind of metric, or their twins.
fn classifier_with(twin: bool) -> Trainer {
    let net = Builder::new().seed(5);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let h = words.embedding(Embedding::new(11, 6).sparse()).dropout(0.25).lstm(Lstm::new(5));
    let logits = h.sequence_pool(Pool::Last).linear(3);
    let losses = logits.cross_entropy(label);
    let (probabilities, backwards) = (logits.softmax(), words.sequence_reverse());
    let variables = [
        vec![logits, label],
        vec![probabilities, logits],
        vec![backwards, words],
        vec![losses],
        vec![logits, probabilities],
    ];
    let metrics: Vec<BuiltIn> =
        METRICS.iter().map(|(vars, make)| BuiltIn { metric: make(&variables[*vars]), twin }).collect();
    let trainer = Trainer::new(net, losses.mean(), &Adam::new(0.02).lazy()).unwrap();
    metrics
        .into_iter()
        .fold(trainer, Trainer::metric)
        .metric(rows(logits))
        .output("probabilities", probabilities)
        .vocabulary("labels", labels())
        .note("of", "a test")
        .threads(1)
        .progress(Progress::Quiet)
}

fn classifier() -> Trainer {
    classifier_with(false)
}

fn texts(part: std::ops::Range<i64>) -> Loader {
    let sample =
        |i: i64| vec![Field::from((0..i % 9).map(|k| (k * i) % 11).collect::<Vec<_>>()), (i % 3).into()];
    let samples = part.map(sample).collect::<Samples>();
    Loader::new(samples, &["words", "label"]).unwrap().batching(Batching::Tokens(17)).shuffle(3)
}

fn bits(scores: &Scores) -> Vec<(String, u64)> {
    scores.0.iter().map(|(name, value)| (name.clone(), value.to_bits())).collect()
}

#[test]
fn a_file_for_inference_predicts_and_scores_as_the_whole_one() {
    let (mut trainer, train, dev) = (classifier(), texts(0..60), texts(60..97));
    trainer.fit(&train, &dev, Until::Epochs(3)).unwrap();
    let file = path("whole");
    trainer.save(&file).unwrap();
    let whole = Checkpoint::load(&file).unwrap();
    let bare = whole.clone().for_inference(&ops::catalogue()).unwrap();
    assert_eq!(bare, trainer.for_inference().unwrap());
    assert_eq!(bare, bare.clone().for_inference(&ops::catalogue()).unwrap());

    // Parameters alone, each as it was after the best epoch, and no operator that trains.
    assert_eq!((bare.purpose, &bare.position), (Purpose::Inference, &Position::default()));
    assert_eq!(bare.tensors, whole.best);
    assert!(bare.program.ops().all(|op| op.role.name() == "forward"));
    let small = path("bare");
    bare.save(&small).unwrap();
    let loaded = Checkpoint::load(&small).unwrap();
    assert_eq!(loaded, bare);
    assert_eq!(loaded.to_bytes().unwrap(), std::fs::read(&small).unwrap());
    let sizes = [&file, &small].map(|file| std::fs::metadata(file).unwrap().len());
    assert!(sizes[1] * 2 < sizes[0], "{sizes:?}");

    // The same predictions, by the bit, and the same scores as the trainer's.
    let batch = dev.batches(None, 0).unwrap().next().unwrap().unwrap();
    let feeds = [("words", &batch.values[0].1)];
    let [a, b] = [&file, &small].map(|file| Predictor::load(file).unwrap());
    let outputs = a.run(&feeds, &["probabilities"]).unwrap();
    assert_eq!(b.run(&feeds, &["probabilities"]).unwrap(), outputs);
    assert_eq!((b.note("of"), b.feeds()), (Some("a test"), vec!["words"]));
    trainer.use_best().unwrap();
    let whole_scores = trainer.evaluate(&dev).unwrap();
    let mut expected = bits(&whole_scores);
    expected.retain(|(name, _)| name != "rows");
    assert_eq!(expected.len(), 24);
    for predictor in [a.clone().threads(1), a.clone().threads(2), b] {
        // A file has only the name and the variables of the user's own metric.
        let scores = predictor.evaluate(&dev).unwrap();
        assert_eq!((bits(&scores), scores.missing()), (expected.clone(), &["rows".to_owned()][..]));
        assert!(scores.to_string().ends_with(", rows not computed"), "{scores}");
        let predictor = predictor.metric("rows", |vars| rows(vars[0])).unwrap();
        let scores = predictor.clone().evaluate(&dev).unwrap();
        assert_eq!((&scores, scores.missing()), (&whole_scores, &[][..]));
        assert_eq!(predictor.evaluate(&dev).unwrap(), whole_scores);
        // Scoring leaves nothing behind.
        assert_eq!(predictor.run(&feeds, &["probabilities"]).unwrap(), outputs);
    }
    let mut last = whole;
    last.best.clear();
    let last = Predictor::new(last, &ops::catalogue()).unwrap();
    assert_ne!(bits(&last.evaluate(&dev).unwrap()), expected);
    for file in [file, small] {
        std::fs::remove_file(file).unwrap();
    }
}

/// A language model carries its states through the evaluated data, as in training.
#[test]
fn scores_carry_states_from_batch_to_batch() {
    let text = |from: i64| (from..from + 90).map(|i| i * i % 11 % 5).collect::<Vec<_>>();
    let data = |from| Continuous::new(text(from), 3, 7, ["x", "y"]).unwrap();
    let net = Builder::new().seed(3);
    let x = net.feed("x", DType::I64, &[], 1);
    let y = net.feed_like("y", DType::I64, &[], x);
    let (h0, c0) = (net.carried_state(6), net.carried_state(6));
    let (h, h1, c1) = net.lstm_states(x.embedding(Embedding::new(5, 6)), Lstm::new(6).initial(h0, c0));
    net.carry(h0, h1);
    net.carry(c0, c1);
    let logits = h.linear(5);
    let losses = logits.cross_entropy(y);
    let mut trainer = Trainer::new(net, losses.mean(), &Adam::new(0.02))
        .unwrap()
        .metric(Loss::perplexity(losses))
        .output("logits", logits)
        .progress(Progress::Quiet);
    trainer.fit(&data(0), &data(40), Until::Epochs(2)).unwrap();
    trainer.use_best().unwrap();
    let predictor = Predictor::new(trainer.for_inference().unwrap(), &ops::catalogue()).unwrap();
    // Evaluation ignores the states that a prediction has left.
    predictor.run(&[("x", &Variable::from_sequence(vec![1i64, 2]).unwrap())], &["logits"]).unwrap();
    assert_eq!(bits(&predictor.evaluate(&data(40)).unwrap()), bits(&trainer.evaluate(&data(40)).unwrap()));
}

#[test]
fn no_training_is_resumed_from_it() {
    let (mut trainer, train, dev) = (classifier(), texts(0..20), texts(20..30));
    trainer.fit(&train, &dev, Until::Epochs(1)).unwrap();
    let file = path("resumed");
    trainer.for_inference().unwrap().save(&file).unwrap();
    let mut other = classifier();
    let error = other.resume(&file).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Program);
    let text = error.to_string();
    let expected = "checkpoint to resume: expected a checkpoint of a training, with the optimizer's state and the position in the data, got a checkpoint for inference, which has only the parameters";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains("`Trainer::load_parameters` starts a new training from the parameters"), "{text}");
    assert!(text.ends_with(&format!("in checkpoint `{}`", file.display())), "{text}");
    assert_eq!(other.position(), &Position::default());
    std::fs::remove_file(file).unwrap();
}

/// A metric of the user's own chooses the best epoch; it is the same metric in a program that only predicts.
#[test]
fn a_metric_of_the_users_own_is_defined_again() {
    let net = Builder::new().seed(5);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let logits = words.embedding(Embedding::new(11, 6)).sequence_pool(Pool::Sum).linear(3);
    let loss = logits.cross_entropy(label).mean();
    let mut trainer = Trainer::new(net, loss, &Adam::new(0.02))
        .unwrap()
        .metric(rows(logits))
        .select("rows")
        .output("logits", logits)
        .progress(Progress::Quiet);
    trainer.fit(&texts(0..30), &texts(60..97), Until::Epochs(1)).unwrap();
    let bare = trainer.for_inference().unwrap();
    let bare = Checkpoint::from_bytes(&bare.to_bytes().unwrap()).unwrap();
    let predictor = || Predictor::new(bare.clone(), &ops::catalogue()).unwrap();
    let scores = predictor().metric("rows", |vars| rows(vars[0])).unwrap().evaluate(&texts(60..97));
    assert_eq!(scores.unwrap().get("rows"), Some(37.0));

    let refused = |outcome: Result<Predictor>, expected: &str| {
        let error = outcome.err().unwrap().to_string();
        assert!(error.contains(expected) && error.contains("tests/it/inference.rs:"), "{error}");
    };
    let error = predictor().metric("row", |vars| rows(vars[0]));
    refused(error, "metric: expected a known name (`loss`, `rows`), got `row`");
    let error = predictor().metric("rows", |vars| Accuracy::new(vars[0], vars[0]));
    refused(error, "metric `rows`: expected a metric of this name that reads the variables `");
    let other = Builder::new().feed("words", DType::I64, &[], 1);
    let error = predictor().metric("rows", move |_| rows(other));
    refused(error, "metric `rows`: expected a metric of this name that reads the variables `");
    // Without its loss, a model has no first score.
    let mut own_loss = bare.clone();
    own_loss.metrics.remove(0);
    let expected = "metric: expected the definition of this metric, got only its name and variables";
    says(Predictor::new(own_loss, &ops::catalogue()).unwrap().evaluate(&texts(60..97)), &[expected]);
}

/// Trains in parts, with a resume within an epoch or on the ranks of a world; returns the scores of all epochs and the tables.
fn trained_in_parts(twin: bool, world: Option<World>) -> (String, Trainer) {
    let (train, dev) = (texts(0..60), texts(60..97));
    let new = || world.clone().into_iter().fold(classifier_with(twin).parts(2), Trainer::distributed);
    let mut trainer = new();
    trainer.fit(&train, &dev, Until::Steps(5)).unwrap();
    if world.is_none() {
        let file = path(&format!("twin-{twin}"));
        trainer.save(&file).unwrap();
        trainer = new();
        trainer.resume(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
    }
    trainer.fit(&train, &dev, Until::Epochs(2)).unwrap();
    let tables = trainer.tables(&dev).unwrap();
    (format!("{:?} {tables:?}", trainer.history()), trainer)
}

/// A user's metric that computes what a built-in one computes has the same bits and the same line: in parts, on two ranks, after
/// a resume within an epoch, in tables and in a predictor.
#[test]
fn twins_of_the_built_in_metrics_give_the_same_line() {
    let on_ranks = |twin: bool| -> Vec<String> {
        std::thread::scope(|scope| {
            let run = |rank| scope.spawn(move || trained_in_parts(twin, Some(World::new(rank))).0);
            let ranks: Vec<_> = threads(2).into_iter().map(run).collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    };
    let [(expected, mut built_in), (twins, mut own)] = [false, true].map(|twin| trained_in_parts(twin, None));
    assert_eq!(expected, twins);
    for twin in [false, true] {
        assert_eq!(on_ranks(twin), [expected.clone(), expected.clone()]);
    }
    let line = |trainer: &mut Trainer, twin: bool| {
        let file = trainer.for_inference().unwrap();
        let names: Vec<String> = file.metrics[1..].iter().map(|metric| metric.name.clone()).collect();
        let units = Unit::of_metrics(&file, &ops::catalogue());
        let mut predictor = Predictor::new(file, &ops::catalogue()).unwrap();
        for (name, (_, make)) in names.iter().zip(METRICS).filter(|_| twin) {
            let twin_of = move |vars: &[Var]| BuiltIn { metric: make(vars), twin };
            predictor = predictor.metric(name, twin_of).unwrap();
        }
        (predictor.evaluate(&texts(60..97)).unwrap().to_string(), units)
    };
    assert_eq!(line(&mut built_in, false), line(&mut own, true));
}

/// The sums over each text add up to the sums over all texts, for values of each text and for a value of the whole batch.
#[test]
fn sums_of_each_text_are_the_sums_of_all() {
    let (file, dev) = (trainer_file(), texts(60..97));
    let predictor = Predictor::new(file, &ops::catalogue()).unwrap();
    let var = |name| predictor.variable(name).unwrap();
    let vars = [var("probabilities"), var("label")];
    let (of_rows, of_words) = (Accuracy::new(vars[0], vars[1]), rows(var("words")));
    let mut all = [vec![0.0; 2], vec![0.0]];
    let mut count = 0;
    let mut add = |sums: &[Vec<f64>]| {
        count += 1;
        assert_eq!(sums[0][1], 1.0);
        all.iter_mut().flatten().zip(sums.iter().flatten()).for_each(|(all, sum)| *all += sum);
    };
    predictor.evaluate_each(&dev, &[&of_rows, &of_words], &mut add).unwrap();
    assert_eq!((count, all[0][1]), (37, 37.0));
    assert_eq!(Some(of_rows.value(&all[0])), predictor.evaluate(&dev).unwrap().get("accuracy"));
    assert_eq!(all[1], [(60..97).map(|i| i % 9).sum::<i64>() as f64]);
    let foreign = Builder::new();
    let later = (0..99).map(|i| foreign.feed(&i.to_string(), DType::F32, &[], 1)).collect::<Vec<_>>()[98];
    let error = predictor.evaluate_each(&dev, &[&rows(later)], &mut |_| ()).unwrap_err().to_string();
    assert!(error.contains("metric `rows`: expected variables of the model"), "{error}");
}

#[test]
fn what_cannot_be_made_or_scored_says_why() {
    let refused = |outcome: Result<Checkpoint>, expected: &str| {
        let error = outcome.unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("tests/it/inference.rs:"), "{error}");
    };
    let whole = trained::checkpoint(2);
    let none = with!(whole.clone(), outputs: [].into());
    let bare = |checkpoint: Checkpoint| checkpoint.for_inference(&ops::catalogue());
    refused(bare(none), "outputs of the checkpoint: expected at least one, got none");
    let mut missing = whole.clone();
    missing.best.clear();
    missing.tensors.remove("linear_0.bias");
    let expected = "variable `linear_0.bias`: checkpoint: expected a value for this variable, got none";
    refused(bare(missing), expected);
    // A file that is marked as for inference contains no training state.
    let mut mixed = bare(whole.clone()).unwrap();
    mixed.position.step = 1;
    let expected = "expected no position, no best epoch and no carried values, got at least one of these";
    says(mixed.to_bytes(), &[expected, file!()]);
    let state = whole.program.vars().find(|(_, v)| v.role == VarRole::State).unwrap().1.name.clone();
    let mut mixed = bare(whole.clone()).unwrap();
    mixed.tensors.insert(state.clone(), whole.tensors[&state].clone());
    says(
        mixed.to_bytes(),
        &["expected only variables that the program keeps, got another variable", file!()],
    );

    let early = with!(whole.clone(), metrics: Vec::new());
    let predictor = Predictor::new(early, &ops::catalogue()).unwrap();
    let error = predictor.evaluate(&texts(0..9)).unwrap_err().to_string();
    assert!(error.starts_with("metrics of the checkpoint: expected at least one, got none"), "{error}");
    let scored = Predictor::new(trainer_file(), &ops::catalogue()).unwrap();
    let odd =
        Loader::new((0..4).map(|_| vec![Field::from(vec![1])]).collect::<Samples>(), &["word"]).unwrap();
    let error = scored.evaluate(&odd).unwrap_err().to_string();
    assert!(error.starts_with("name of a feed in the data: expected one of `label`, `words`"), "{error}");

    // The metrics of a file are validated.
    let message = |change: &dyn Fn(&mut Checkpoint)| {
        let mut other = trainer_file();
        change(&mut other);
        let bytes = other.to_bytes().unwrap();
        let predictor = Predictor::new(Checkpoint::from_bytes(&bytes).unwrap(), &ops::catalogue()).unwrap();
        predictor.evaluate(&texts(0..9)).unwrap_err().to_string()
    };
    let later = message(&|c| c.metrics[1].kind = "of a later release".to_owned());
    assert!(later.contains("expected a kind that this release knows, and its variables"), "{later}");
    let huge = message(&|c| c.metrics[3].attributes.set("classes", i64::MAX));
    assert!(huge.contains("expected as many classes as columns, 3, got 9223372036854775807"), "{huge}");
    let three = message(&|c| c.metrics[0].variables = vec![c.metrics[0].variables[0].clone(); 3]);
    assert!(three.contains("in metric `loss` of the checkpoint"), "{three}");
    let mut unknown = trainer_file();
    unknown.metrics[1].variables[0] = "no such".to_owned();
    refused(unknown.to_bytes().map(|_| whole.clone()), "expected a tensor of the root block, got `no such`");
}

fn trainer_file() -> Checkpoint {
    classifier().for_inference().unwrap()
}
