//! Refused runs and their errors; a failed run changes nothing.

use unpadded::executor::{Executor, LoopPhase, Run, Scope, Stage};
use unpadded::layers::{Embedding, Lstm};
use unpadded::op::{Attributes, CheckCase, Forward, InferShape, Op};
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Minimization, Optimizer, Sgd};
use unpadded::program::{VarId, backward};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Error, ErrorKind, Lod, Program, Registry, Result, Variable, operator, ops};

use crate::models::divided;

/// Words, a mark beside each word, a label and a row of numbers for each sequence.
struct Tagger {
    program: Program,
    words: VarId,
    marks: VarId,
    label: VarId,
    topic: VarId,
    logits: VarId,
    loss: VarId,
    made: Minimization,
}

const WORDS: [&[i64]; 3] = [&[3, 1, 4], &[], &[1, 5]];

fn tagger() -> Tagger {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let marks = net.feed_like("marks", DType::F32, &[2], words);
    let label = net.feed("label", DType::I64, &[], 0);
    let topic = net.feed("topic", DType::F32, &[3], 0);
    let x = net.embedding(words, Embedding::new(10, 4).sparse().named("table"));
    let x = net.concat(&[x, marks]);
    let h = net.lstm(x, Lstm::new(3));
    let last = net.concat(&[net.sequence_pool(h, Pool::Last), topic]);
    let logits = net.linear(last, 2);
    let loss = net.mean(net.cross_entropy(logits, label));
    let mut program = net.finish().unwrap();
    let adam = Adam::new(0.1).lazy().clip_global_norm(5.0);
    let made = adam.minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let [words, marks, label, topic] = [words, marks, label, topic].map(|v| v.id());
    Tagger { program, words, marks, label, topic, logits: logits.id(), loss: loss.id(), made }
}

/// The feeds of a batch: words, marks, labels, topics.
fn batch(words: &[&[i64]]) -> [Variable; 4] {
    let words: Vec<Vec<i64>> = words.iter().map(|w| w.to_vec()).collect();
    let (rows, count) = (words.iter().map(Vec::len).sum::<usize>(), words.len());
    let ids = Variable::from_sequences(&words).unwrap();
    let floats = |rows: usize, width: usize| {
        Dense::from_vec(&[rows, width], (0..rows * width).map(|i| (i as f32).sin()).collect()).unwrap()
    };
    let marks = Variable::new(floats(rows, 2), ids.lod().cloned()).unwrap();
    let labels = Dense::from_vec(&[count], (0..count as i64).map(|i| i % 2).collect()).unwrap();
    [ids, marks, Variable::dense(labels), Variable::dense(floats(count, 3))]
}

impl Tagger {
    fn executor(&self) -> Executor {
        Executor::new(&self.program, &ops::catalogue(), &[self.loss, self.logits], 1).unwrap()
    }

    fn feeds<'a>(&self, values: &'a [Variable; 4]) -> [(VarId, &'a Variable); 4] {
        let [words, marks, label, topic] = values;
        [(self.words, words), (self.marks, marks), (self.label, label), (self.topic, topic)]
    }

    /// Returns the error of a failing run. The scope is unchanged, and the next run has the results that it would have had.
    #[track_caller]
    fn fails(&self, feeds: &[(VarId, &Variable)]) -> Error {
        let (mut scope, mut other) = (trained(self), trained(self));
        let before = contents(&mut scope);
        let mut exe = self.executor();
        let error = exe.run(&mut scope, &Run::train(feeds, 1)).unwrap_err();
        assert!(contents(&mut scope) == before, "something was updated: {error}");
        let unread = exe.fetch(self.loss).unwrap_err().to_string();
        assert!(unread.contains("a successful run before the fetch"), "{unread}");
        let values = batch(&WORDS);
        exe.run(&mut scope, &Run::train(&self.feeds(&values), 1)).unwrap();
        let mut fresh = self.executor();
        fresh.run(&mut other, &Run::train(&self.feeds(&values), 1)).unwrap();
        assert_eq!(exe.fetch(self.logits), fresh.fetch(self.logits));
        assert!(contents(&mut scope) == contents(&mut other), "the next run differs");
        error
    }

    /// The error of a run whose feed `which` is `value`.
    #[track_caller]
    fn fails_with(&self, which: usize, value: Variable) -> Error {
        let mut values = batch(&WORDS);
        values[which] = value;
        self.fails(&self.feeds(&values))
    }
}

/// A scope after one step, so that no state is zero.
fn trained(this: &Tagger) -> Scope {
    let mut scope = Scope::of(&this.program).unwrap();
    let values = batch(&WORDS);
    this.executor().run(&mut scope, &Run::train(&this.feeds(&values), 0)).unwrap();
    scope
}

fn contents(scope: &mut Scope) -> Vec<(String, Vec<u32>)> {
    let names: Vec<String> = scope.names().map(str::to_owned).collect();
    let bits = |scope: &mut Scope, name: &str| {
        scope.get(name).unwrap().as_slice::<f32>().unwrap().iter().map(|x| x.to_bits()).collect()
    };
    names.into_iter().map(|name| (name.clone(), bits(scope, &name))).collect()
}

#[track_caller]
fn says(error: &Error, expected: &str) {
    let (message, line) = (error.to_string(), format!(" (at {}:", file!()));
    let text = message.rsplit_once(&line).map(|(text, _)| text);
    assert_eq!(text, Some(expected), "{message}");
}

#[test]
fn a_missing_feed() {
    let this = tagger();
    let values = batch(&WORDS);
    let feeds = this.feeds(&values);
    let error = this.fails(&feeds[..3]);
    says(&error, "variable `topic`: feeds: expected a value for this variable, got none");
    let twice = [feeds[0], feeds[1], feeds[2], feeds[3], feeds[2]];
    says(&this.fails(&twice), "variable `label`: feed: expected each feed once, got this feed twice");
    let stranger = [feeds[0], feeds[1], feeds[2], (this.loss, &values[3])];
    let loss = &this.program.var(this.loss).name;
    says(&this.fails(&stranger), &format!("feed: expected a feed of the program, got `{loss}`"));
    let nobody = [feeds[0], feeds[1], feeds[2], (VarId(10_000), &values[3])];
    says(
        &this.fails(&nobody),
        &format!(
            "feed: expected a feed of the program, got number 10000 of {} variables: is it another program's?",
            this.program.vars().len()
        ),
    );
}

#[test]
fn a_feed_that_does_not_fit() {
    let this = tagger();
    let topics = |shape: &[usize]| Dense::zeros(DType::F32, shape).unwrap();
    let error = this.fails_with(3, Variable::dense(topics(&[3, 3]).cast(DType::F64)));
    says(&error, "variable `topic`: feed: expected f32 dense, got f64 dense");
    let error = this.fails_with(3, Variable::dense(topics(&[3, 4])));
    says(&error, "variable `topic`: shape of a feed: expected f32[batch, 3], got [3, 4]");
    let error = this.fails_with(3, Variable::dense(topics(&[9])));
    says(&error, "variable `topic`: shape of a feed: expected f32[batch, 3], got [9]");
    let flat = Variable::dense(Dense::from_vec(&[5], vec![1i64; 5]).unwrap());
    says(&this.fails_with(0, flat), "variable `words`: levels of LoD of a feed: expected 1, got 0");
    let deep = Variable::from_nested(&[vec![vec![1i64]], vec![vec![1]], vec![]]).unwrap();
    says(&this.fails_with(0, deep), "variable `words`: levels of LoD of a feed: expected 1, got 2");
}

#[test]
fn sequences_that_disagree() {
    let this = tagger();
    let marks = Variable::sequences(
        Dense::zeros(DType::F32, &[5, 2]).unwrap(),
        Lod::from_lengths1(&[2, 1, 2]).unwrap(),
    );
    let error = this.fails_with(1, marks.unwrap());
    says(&error, "variable `marks`: length of sequence 0 of the batch: expected 3, as in `words`, got 2");
    // Eight equal lengths first: the difference comes late.
    let (long, other) = (vec![vec![1i64; 3]; 12], [vec![vec![1i64; 3]; 11], vec![vec![1; 4]]].concat());
    let [words, marks] = [long, other].map(|ids| Variable::from_sequences(&ids).unwrap());
    let marks =
        Dense::zeros(DType::F32, &[37, 2]).map(|numbers| Variable::new(numbers, marks.lod().cloned()));
    let values = [words, marks.unwrap().unwrap()];
    let feeds: Vec<_> = this.feeds(&batch(&WORDS)).iter().zip(&values).map(|(&(id, _), v)| (id, v)).collect();
    let numbers: Vec<u64> = (70..82).collect();
    let run = Run::train(&feeds, 0).numbers(&numbers);
    let error = this.executor().run(&mut Scope::of(&this.program).unwrap(), &run).unwrap_err();
    says(
        &error,
        "variable `marks`: length of sequence 11 of the batch, number 81 in the data: expected 3, as in `words`, \
         got 4",
    );
    let error = this.fails_with(2, Variable::dense(Dense::from_vec(&[2], vec![0i64, 1]).unwrap()));
    says(&error, "variable `label`: sequences of a feed: expected 3, as `words` has, got 2");
    let values = batch(&WORDS);
    let (mut scope, feeds) = (trained(&this), this.feeds(&values));
    let before = contents(&mut scope);
    let error = this.executor().run(&mut scope, &Run::train(&feeds, 1).numbers(&[1, 2])).unwrap_err();
    says(&error, "numbers of the sequences: expected 3, got 2");
    assert!(contents(&mut scope) == before);
}

#[test]
fn what_only_the_data_shows() {
    let this = tagger();
    for id in [10, -1, i64::MAX] {
        let error =
            this.fails_with(0, Variable::from_sequences(&[vec![3, 1, id], vec![], vec![1, 5]]).unwrap());
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        let message = error.to_string();
        for word in [&id.to_string(), "table.weight", "10", "embedding", file!()] {
            assert!(message.contains(word), "`{word}` in: {message}");
        }
    }
    let error = this.fails_with(2, Variable::dense(Dense::from_vec(&[3], vec![0i64, 7, 1]).unwrap()));
    assert!(error.to_string().contains("label of sample 1: expected at least 0 and below 2"), "{error}");
    for bad in [f32::NAN, f32::INFINITY] {
        let mut values = batch(&WORDS);
        values[3].as_mut_slice::<f32>().unwrap()[4] = bad;
        let error = this.fails(&this.feeds(&values));
        assert_eq!(error.kind(), ErrorKind::NotFinite, "{error}");
        let message = error.to_string();
        assert!(message.contains("NaN or infinity; nothing was updated"), "{message}");
    }
    // A NaN of another feed: the first gradient that it reached is named.
    let mut values = batch(&WORDS);
    values[1].as_mut_slice::<f32>().unwrap()[0] = f32::NAN;
    let error = this.fails(&this.feeds(&values));
    assert_eq!(error.kind(), ErrorKind::NotFinite);
    assert!(
        error.to_string().contains("variable `lstm_0.weight_ih@grad`: gradient: expected finite"),
        "{error}"
    );
}

/// A call that is divided over threads counts the rows of the batch.
#[test]
fn errors_are_the_same_on_any_number_of_threads() {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let x = net.embedding(words, Embedding::new(10, 64));
    let loss = net.sum(x);
    let program = net.finish().unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let mut ids = vec![vec![1i64; 100]; 10];
    (ids[7][5], ids[9][0]) = (12, 11);
    let value = Variable::from_sequences(&ids).unwrap();
    for threads in [1, 2, 3] {
        let mut exe = divided(Executor::new(&program, &ops::catalogue(), &[loss.id()], threads).unwrap());
        let error = exe.run(&mut scope, &Run::infer(&[(words.id(), &value)])).unwrap_err().to_string();
        let expected = "embedding #0: variable `embedding_0.weight`: id of sample 7, position 5: \
                        expected at least 0 and below 10, the height, got 12 (at ";
        assert!(error.starts_with(expected), "{threads} threads: {error}");
    }
}

#[test]
fn what_cannot_be_fetched() {
    let this = tagger();
    let values = batch(&WORDS);
    let feeds = this.feeds(&values);
    let (_, grad) = this.made.gradients[0];
    let weight = this.program.find("linear_0.weight").unwrap();
    let mut exe = Executor::new(&this.program, &ops::catalogue(), &[this.loss, grad, weight], 1).unwrap();
    let mut scope = Scope::of(&this.program).unwrap();
    let error = exe.fetch(this.loss).unwrap_err();
    says(
        &error,
        &format!(
            "variable `{}`: fetch: expected a successful run before the fetch, got none",
            name(&this, this.loss)
        ),
    );
    exe.run(&mut scope, &Run::infer(&feeds)).unwrap();
    assert!(exe.fetch(this.loss).is_ok());
    let expected = "fetch: expected a run that computes the variable, got a run until Forward";
    says(&exe.fetch(grad).unwrap_err(), &format!("variable `{}`: {expected}", name(&this, grad)));
    let error = exe.fetch(this.logits).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Program);
    assert!(error.to_string().contains("fetch: expected a variable given to `Executor::new`"), "{error}");
    let error = exe.fetch(weight).unwrap_err().to_string();
    assert!(error.contains("whose value is in the scope"), "{error}");
    let error = exe.fetch(VarId(10_000)).unwrap_err().to_string();
    assert!(error.contains("got number 10000 of "), "{error}");
    assert!(exe.scalar(grad).is_err());
    assert!(Executor::new(&this.program, &ops::catalogue(), &[VarId(10_000)], 1).is_err());
}

fn name(this: &Tagger, id: VarId) -> String {
    this.program.var(id).name.clone()
}

#[test]
fn an_operator_that_is_not_registered() {
    let this = tagger();
    let error = Executor::new(&this.program, &Registry::empty(), &[this.loss], 1).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Program);
    let message = error.to_string();
    assert!(
        message.contains("operator kind: expected a registered operator, but the registry is empty, got ")
            && message.contains(file!()),
        "{message}"
    );
}

/// The first variables fit, a later one does not: all of them must be back after the run.
#[test]
fn a_scope_that_lacks_a_parameter_or_has_another_shape() {
    let this = tagger();
    let values = batch(&WORDS);
    let feeds = this.feeds(&values);
    let whole = contents(&mut trained(&this));
    for (missing, _) in &whole {
        let mut source = trained(&this);
        let mut scope = Scope::new();
        for (name, _) in whole.iter().filter(|(name, _)| name != missing) {
            scope.set(name, source.get(name).unwrap()).unwrap();
        }
        let before = contents(&mut scope);
        let mut exe = this.executor();
        for _ in 0..2 {
            let error = exe.run(&mut scope, &Run::train(&feeds, 1)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Program);
            let expected = "scope: expected the variable, initialised or loaded, got none";
            says(&error, &format!("variable `{missing}`: {expected}"));
            assert!(contents(&mut scope) == before, "without `{missing}`");
        }
        scope.set(missing, source.get(missing).unwrap()).unwrap();
        exe.run(&mut scope, &Run::train(&feeds, 1)).unwrap();
        exe.run(&mut source, &Run::train(&feeds, 1)).unwrap();
        assert!(contents(&mut scope) == contents(&mut source));
    }
    let mut scope = Scope::new();
    scope.set("table.weight", Dense::zeros(DType::F32, &[10, 5]).unwrap()).unwrap();
    let error = scope.initialize(&this.program).unwrap_err().to_string();
    let text = "variable `table.weight`: value in the scope: expected f32[10, 4], got f32[10, 5] (at ";
    assert!(error.starts_with(text), "{error}");
}

#[test]
fn no_sequence_and_empty_sequences_train_without_nan() {
    let this = tagger();
    for threads in [1, 2] {
        let exe =
            Executor::new(&this.program, &ops::catalogue(), &[this.loss, this.logits], threads).unwrap();
        let mut exe = divided(exe);
        let mut scope = trained(&this);
        let batches: [&[&[i64]]; 5] = [&[], &[&[], &[]], &WORDS, &[], &[&[2]]];
        for (step, words) in batches.into_iter().enumerate() {
            let values = batch(words);
            exe.run(&mut scope, &Run::train(&this.feeds(&values), step as u64 + 1)).unwrap();
            let loss = exe.scalar(this.loss).unwrap();
            assert!(loss.is_finite() && (loss == 0.0) == words.is_empty(), "{loss}");
            assert_eq!(exe.fetch(this.logits).unwrap().shape(), [words.len(), 2]);
        }
        let finite = |(_, bits): &(String, Vec<u32>)| bits.iter().all(|&b| f32::from_bits(b).is_finite());
        assert!(contents(&mut scope).iter().all(finite));
    }
}

operator! {
    /// Hands its input on, and panics when that holds a 13.
    struct Unlucky = unlucky {}
    inputs { X = x: one.without_gradient() }
    outputs { OUT = out: one }
}

impl Op for Unlucky {
    fn infer_shape(&self, shapes: &mut InferShape<'_>) -> Result<()> {
        shapes.set(0, shapes.input(0).clone());
        Ok(())
    }
    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, mut out) = (run.input::<f32>(0)?, run.output::<f32>(0)?);
        for (from, to) in x.iter().zip(out.iter_mut()) {
            assert!(!from.contains(&13.0), "unlucky");
            to.copy_from_slice(from);
        }
        Ok(())
    }
    fn samples() -> Result<Vec<CheckCase>> {
        Ok(Vec::new())
    }
}

#[test]
fn a_panic_in_a_users_operator_leaves_the_scope_whole() {
    let mut registry = ops::catalogue();
    registry.add::<Unlucky>().unwrap();
    let net = Builder::with_registry(registry.clone());
    let x = net.feed("x", DType::F32, &[1], 0);
    let x: (_, unpadded::Var) = (x, net.append("unlucky", &[("x", &[x])], Attributes::new()));
    let loss = net.sum(net.linear(x.1, 1));
    let mut program = net.finish().unwrap();
    Sgd::new(0.5).minimize(&mut program, &registry, loss.id()).unwrap();
    let (good, bad) = (ndarray::array![[2.0f32], [3.0]].into(), ndarray::array![[2.0f32], [13.0]].into());
    for threads in [1, 2] {
        let mut exe = divided(Executor::new(&program, &registry, &[loss.id()], threads).unwrap());
        let (mut scope, mut other) = (Scope::of(&program).unwrap(), Scope::of(&program).unwrap());
        let before = contents(&mut scope);
        let unlucky =
            std::panic::AssertUnwindSafe(|| exe.run(&mut scope, &Run::train(&[(x.0.id(), &bad)], 0)));
        assert!(std::panic::catch_unwind(unlucky).is_err());
        assert!(contents(&mut scope) == before);
        exe.run(&mut scope, &Run::train(&[(x.0.id(), &good)], 0)).unwrap();
        let mut fresh = Executor::new(&program, &registry, &[loss.id()], threads).unwrap();
        fresh.run(&mut other, &Run::train(&[(x.0.id(), &good)], 0)).unwrap();
        assert!(contents(&mut scope) == contents(&mut other) && contents(&mut scope) != before);
    }
}

#[test]
fn a_run_goes_as_far_as_it_is_told() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let loss = net.sum(net.linear(x, 1));
    let mut program = net.finish().unwrap();
    let mut forward_only = program.clone();
    let weight = program.find("linear_0.weight").unwrap();
    let made = Sgd::new(1.0).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let grad = made.gradients.iter().find(|(p, _)| *p == weight).unwrap().1;
    let mut exe = Executor::new(&program, &ops::catalogue(), &[loss.id(), grad], 1).unwrap();
    let value = Variable::dense(ndarray::array![[1.0f32, 2.0], [3.0, 5.0]]);
    let feeds = [(x.id(), &value)];
    let mut scope = Scope::of(&program).unwrap();
    let before = contents(&mut scope);
    for stage in [Stage::Forward, Stage::Gradients] {
        exe.run(&mut scope, &Run::train(&feeds, 0).until(stage)).unwrap();
        assert!(contents(&mut scope) == before);
        assert_eq!(exe.fetch(grad).is_ok(), stage == Stage::Gradients);
    }
    assert_eq!(exe.fetch(grad).unwrap().as_slice::<f32>().unwrap(), [4.0, 7.0]);
    let start = scope.get("linear_0.weight").unwrap();
    exe.run(&mut scope, &Run::train(&feeds, 0)).unwrap();
    let end = scope.get("linear_0.weight").unwrap();
    let moved = |i: usize| start.as_slice::<f32>().unwrap()[i] - end.as_slice::<f32>().unwrap()[i];
    assert!((moved(0) - 4.0).abs() < 1e-5 && (moved(1) - 7.0).abs() < 1e-5);

    // A program without gradients, and one with gradients and no updates, share the scope.
    let mut infer = Executor::new(&forward_only, &ops::catalogue(), &[loss.id()], 1).unwrap();
    infer.run(&mut scope, &Run::infer(&feeds)).unwrap();
    exe.run(&mut scope, &Run::infer(&feeds)).unwrap();
    assert_eq!(infer.scalar(loss).unwrap(), exe.scalar(loss).unwrap());
    backward::append(&mut forward_only, &ops::catalogue(), loss.id()).unwrap();
    let mut whole = Executor::new(&forward_only, &ops::catalogue(), &[loss.id()], 1).unwrap();
    let before = contents(&mut scope);
    whole.run(&mut scope, &Run::train(&feeds, 0)).unwrap();
    assert!(contents(&mut scope) == before);
}

/// Weights that were packed in one run serve later runs only as long as the scope holds the same values, whoever writes the
/// values, and whichever scope a run is given.
#[test]
fn packed_weights_are_those_of_the_scope() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[3], 1);
    let loss = x.lstm(4).linear(2).mean();
    let forward = net.finish().unwrap();
    let mut program = forward.clone();
    Sgd::new(0.5).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let rows = Dense::from_vec(&[3, 3], vec![1.0f32, -2.0, 0.5, 0.25, 3.0, -1.0, 2.0, 0.0, 1.0]).unwrap();
    let value = Variable::new(rows, Some(Lod::from_lengths1(&[2, 1]).unwrap())).unwrap();
    let feeds = [(x.id(), &value)];
    let executor = |program: &Program| Executor::new(program, &ops::catalogue(), &[loss.id()], 1).unwrap();
    let (mut infer, mut train) = (executor(&forward), executor(&program));
    let mut scope = Scope::of(&program).unwrap();
    // An executor that ran before has the results of an executor that never ran.
    let mut seen = Vec::new();
    let mut same = |infer: &mut Executor, scope: &mut Scope, what: &str| {
        infer.run(scope, &Run::infer(&feeds)).unwrap();
        let mut fresh = executor(&forward);
        fresh.run(&mut scope.clone(), &Run::infer(&feeds)).unwrap();
        let (known, now) = (infer.scalar(loss).unwrap(), fresh.scalar(loss).unwrap());
        assert_eq!(known.to_bits(), now.to_bits(), "{what}");
        seen.push(now);
    };
    same(&mut infer, &mut scope, "the first run");
    let mut before = scope.clone();
    same(&mut infer, &mut before, "a clone");
    train.run(&mut scope, &Run::train(&feeds, 0)).unwrap();
    same(&mut infer, &mut scope, "after an update");
    train.run(&mut scope, &Run::train(&feeds, 1)).unwrap();
    same(&mut train, &mut scope, "the executor that updates");
    same(&mut infer, &mut scope, "after another");
    for name in ["lstm_0.weight_hh", "linear_0.weight"] {
        let old = scope.get(name).unwrap();
        let numbers = old.as_slice::<f32>().unwrap().iter().map(|w| w * 1.5).collect();
        scope.set(name, Dense::from_vec::<f32>(old.shape(), numbers).unwrap()).unwrap();
        same(&mut infer, &mut scope, name);
    }
    same(&mut infer, &mut before, "the clone again");
    train.run(&mut before, &Run::train(&feeds, 2)).unwrap();
    same(&mut infer, &mut before, "after an update of the clone");
    same(&mut infer, &mut scope, "the first scope again");
    seen.sort_by(f64::total_cmp);
    seen.dedup();
    // The clone was updated to the values of the first scope.
    assert_eq!(seen.len(), 5, "values that differ: {seen:?}");
    // Prediction leaves the weights packed, also in an executor that could update them.
    let mut packed = |runs: u64| {
        train.start_profile();
        for _ in 0..runs {
            train.run(&mut scope, &Run::infer(&feeds)).unwrap();
        }
        let profile = train.take_profile().unwrap();
        profile.entries.iter().filter(|e| e.part == LoopPhase::Prepare).map(|e| e.calls).sum::<u64>()
    };
    assert!(packed(1) > 0);
    assert_eq!(packed(3), 0);
}

/// An operator that makes a level runs at the root, forward and backward, on batches that grow and shrink.
#[test]
fn a_level_that_an_operator_makes_has_its_rows() {
    let net = Builder::new();
    let x = net.feed("x", DType::F64, &[], 1);
    net.watch(x);
    let repeated = net.sequence_expand(x, x, None);
    let twice = net.scale(repeated, 2.0, 0.0);
    let loss = net.sum(net.square(twice)).id();
    let mut program = net.finish().unwrap();
    let gradients = backward::differentiate(&mut program, &ops::catalogue(), loss).unwrap();
    let (out, gradient) = (twice.id(), gradients[&x.id()]);
    let mut executor = Executor::new(&program, &ops::catalogue(), &[out, gradient], 2).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    type Batch<'a> = (&'a [Vec<f64>], &'a str, &'a [f64], &'a [f64]);
    let cases: [Batch<'_>; 4] = [
        (
            &[vec![1.0, 2.0], vec![], vec![3.0]],
            "[[2, 0, 1], [2, 2, 1]]",
            &[2.0, 4.0, 2.0, 4.0, 6.0],
            &[16.0, 32.0, 24.0],
        ),
        (&[vec![1.0, 1.0, 1.0], vec![1.0]], "[[3, 1], [3, 3, 3, 1]]", &[2.0; 10], &[24.0, 24.0, 24.0, 8.0]),
        (&[vec![]], "[[0], []]", &[], &[]),
        (&[vec![5.0]], "[[1], [1]]", &[10.0], &[40.0]),
    ];
    for (data, lod, numbers, slopes) in cases {
        let fed = Variable::from_sequences(data).unwrap();
        executor.run(&mut scope, &Run::train(&[(x.id(), &fed)], 1).until(Stage::Gradients)).unwrap();
        let value = executor.fetch(out).unwrap();
        assert_eq!(value.as_slice::<f64>().unwrap(), numbers);
        assert_eq!(value.lod().unwrap().to_string(), lod);
        assert_eq!(executor.fetch(gradient).unwrap().as_slice::<f64>().unwrap(), slopes);
    }
}

/// Rows are looked up in a table that an operator computes: the gradient through that operator is dense.
#[test]
fn a_sparse_lookup_in_a_table_that_is_computed() {
    let net = Builder::new();
    let ids = net.feed("ids", DType::I64, &[], 0);
    let w = net.parameter("w", DType::F64, &[3, 2], unpadded::layers::init::constant(1.0));
    let table = net.scale(w, 2.0, 0.0);
    let rows = net.lookup(ids, table, None, true);
    let loss = net.sum(net.square(rows)).id();
    let mut program = net.finish().unwrap();
    let gradient = backward::append(&mut program, &ops::catalogue(), loss).unwrap()[0].1;
    let mut executor = Executor::new(&program, &ops::catalogue(), &[gradient], 1).unwrap();
    let fed = Variable::dense(Dense::from_vec(&[3], vec![2i64, 0, 2]).unwrap());
    let mut scope = Scope::of(&program).unwrap();
    executor.run(&mut scope, &Run::train(&[(ids.id(), &fed)], 1).until(Stage::Gradients)).unwrap();
    let got = executor.fetch(gradient).unwrap();
    assert_eq!(got.as_slice::<f64>().unwrap(), [8.0, 8.0, 0.0, 0.0, 16.0, 16.0]);
}

/// Variables of types without arithmetic are fed, copied, carried from step to step, reversed and fetched all the same.
#[test]
fn every_dtype_passes_through_a_program() {
    for dtype in DType::ALL {
        let net = Builder::new();
        let x = net.feed("x", dtype, &[], 1);
        let before = net.recurrent(x, |step, x| {
            let memory = step.memory_of(dtype, &[]);
            step.update(memory, x);
            step.assign(memory)
        });
        let turned = net.sequence_reverse(before);
        let wide = net.cast(turned, DType::F64);
        let program = Program::from_bytes(&net.finish().unwrap().to_bytes().unwrap()).unwrap();
        let fetch = [turned.id(), wide.id()];
        let mut executor = Executor::new(&program, &ops::catalogue(), &fetch, 1).unwrap();
        let mut scope = Scope::of(&program).unwrap();
        let rows = Dense::from_vec(&[4], vec![1i64, 0, 1, 1]).unwrap().cast(dtype);
        let lod = Lod::from_lengths(&[vec![3, 0, 1]]).unwrap();
        let fed = Variable::new(rows, Some(lod)).unwrap();
        executor.run(&mut scope, &Run::infer(&[(x.id(), &fed)])).unwrap();
        let [turned, wide] = fetch.map(|var| executor.fetch(var).unwrap());
        assert_eq!(wide.as_slice::<f64>().unwrap(), [0.0, 1.0, 0.0, 0.0], "{dtype}");
        assert_eq!(
            (turned.dtype(), turned.storage().to_dense().unwrap().cast(DType::F64)),
            (dtype, wide.into_parts().0.into_dense().unwrap())
        );
        let other = Variable::new(Dense::zeros(DType::F32, &[4]).unwrap(), fed.lod().cloned()).unwrap();
        if dtype != DType::F32 {
            let refused = executor.run(&mut scope, &Run::infer(&[(x.id(), &other)])).unwrap_err();
            assert!(
                refused.to_string().contains(&format!("expected {dtype} dense, got f32 dense")),
                "{refused}"
            );
        }
    }
}
