//! A small classifier that was trained for some steps, as a checkpoint that has a bit of everything.

// Two test binaries have this module, and each uses its own part of it.
#![allow(dead_code)]

use unpadded::checkpoint::{Best, Checkpoint, Criterion, EpochScores, MetricDesc, Position, Purpose};
use unpadded::data::Vocabulary;
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, Lstm};
use unpadded::metrics::Better;
use unpadded::op::Attributes;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::program::VarRole;
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Program, Variable, ops};

const TOKENS: [&str; 6] = ["a", "film", "fine", "it", "not", "é"];
const HIDDEN: usize = 2;

/// The program that trains, the name of its loss, and the names of its last states.
pub(crate) fn program() -> (Program, String, [String; 3]) {
    let net = Builder::new().seed(7);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let h = net.feed("h", DType::F32, &[HIDDEN], 0);
    let c = net.feed("c", DType::F32, &[HIDDEN], 0);
    let x = net.embedding(words, Embedding::new(TOKENS.len(), 3).sparse());
    let (_, h, c) = net.lstm_states(net.dropout(x, 0.25), Lstm::new(HIDDEN).initial(h, c));
    let logits = net.linear(h, 2);
    let loss = net.mean(net.cross_entropy(logits, label));
    let names = [logits, h, c].map(|var| net.name_of(var));
    let loss_name = net.name_of(loss);
    let mut program = net.finish().unwrap();
    Adam::new(0.05).lazy().minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
    (program, loss_name, names)
}

/// The batch: each feed of the program, by name.
pub(crate) fn batch() -> [(&'static str, Variable); 4] {
    let state = || Variable::dense(Dense::zeros(DType::F32, &[3, HIDDEN]).unwrap());
    let words = Variable::from_sequences(&[vec![0i64, 1, 3, 4, 2], vec![], vec![5, 2]]).unwrap();
    [
        ("words", words),
        ("label", Variable::dense(ndarray::array![0i64, 1, 1])),
        ("h", state()),
        ("c", state()),
    ]
}

/// The feeds of a predictor: no labels.
pub(crate) const FEEDS: [&str; 3] = ["words", "h", "c"];

/// Returns the checkpoint after `steps` steps.
pub(crate) fn checkpoint(steps: u64) -> Checkpoint {
    let (program, loss, [logits, h, c]) = program();
    let id = |name: &str| program.find(name).unwrap();
    let fetch = [id(&loss), id(&h), id(&c)];
    let mut executor = Executor::new(&program, &ops::catalogue(), &fetch, 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let values = batch();
    let feeds: Vec<_> = values.iter().map(|(name, value)| (id(name), value)).collect();
    let all = |scope: &mut Scope, role: Option<VarRole>| {
        let kept = program.vars().filter(|(_, v)| v.persistable && role.is_none_or(|role| role == v.role));
        kept.map(|(_, v)| (v.name.clone(), scope.value(&v.name).unwrap())).collect()
    };
    let (mut best, mut losses) = (Default::default(), Vec::new());
    for step in 0..steps {
        executor.run(&mut scope, &Run::train(&feeds, step)).unwrap();
        losses.push(executor.scalar(fetch[0]).unwrap());
        if step == steps / 2 {
            best = all(&mut scope, Some(VarRole::Parameter));
        }
    }
    let carried = [("h".to_owned(), fetch[1]), ("c".to_owned(), fetch[2])];
    let carried = carried.map(|(name, id)| (name, executor.fetch(id).unwrap())).into();
    let metric = |name: &str, kind: &str, variables, attributes| {
        let mut metric = MetricDesc::default();
        (metric.name, metric.kind) = (name.to_owned(), kind.to_owned());
        (metric.variables, metric.attributes) = (variables, attributes);
        metric
    };
    let named = |pairs: &[(&str, &str)]| pairs.iter().map(|&(a, b)| (a.to_owned(), b.to_owned())).collect();
    let mut criterion = Criterion::default();
    (criterion.metric, criterion.better) = ("accuracy".to_owned(), Better::Higher);
    criterion.data = 0xdead_0000_0000_cafe;
    let mut position = Position::default();
    (position.epoch, position.batch, position.step) = (3, 1, steps);
    (position.tokens, position.data) = (7 * steps, 0xfeed_0000_0000_beef);
    position.rate = Some(0.125);
    let mut best_epoch = Best::default();
    (best_epoch.value, best_epoch.epoch, best_epoch.step) = (0.75, 2, steps / 2);
    position.best = Some(best_epoch);
    (position.since_best, position.stalled) = (1, 1);
    (position.accumulate, position.parts) = (2, 4);
    position.running = [("loss".to_owned(), losses), ("accuracy".to_owned(), vec![2.0, 3.0])].into();

    let mut checkpoint = Checkpoint::default();
    checkpoint.purpose = Purpose::Training;
    checkpoint.tensors = all(&mut scope, None);
    (checkpoint.best, checkpoint.carried) = (best, carried);
    checkpoint.criterion = Some(criterion);
    checkpoint.vocabularies = [
        ("words".to_owned(), Vocabulary::labels(TOKENS).unwrap()),
        ("labels".to_owned(), Vocabulary::labels(["bad", "good"]).unwrap()),
    ]
    .into();
    checkpoint.notes = named(&[("tokenizer", "words"), ("author", "ünpadded")]);
    checkpoint.outputs = named(&[("logits", &logits), ("state", &h)]);
    let ignoring = Attributes::new().with("ignore", -1i64);
    checkpoint.metrics = vec![
        metric("loss", "loss", vec![loss.clone()], Attributes::new()),
        metric("of two", "accuracy", vec![logits, "label".to_owned()], ignoring),
    ];
    let epoch = |epoch: u64| {
        let mut scores = EpochScores::default();
        (scores.epoch, scores.step) = (epoch, steps.min(epoch));
        scores.rate = (epoch > 1).then_some(0.25);
        scores.train = vec![("loss".to_owned(), 0.5 / epoch as f64)];
        scores.dev = vec![("loss".to_owned(), 0.75), ("of two".to_owned(), 0.5)];
        scores.best = epoch != 2;
        scores
    };
    checkpoint.history = (1..=3).map(epoch).collect();
    (checkpoint.position, checkpoint.program) = (position, program);
    checkpoint
}
