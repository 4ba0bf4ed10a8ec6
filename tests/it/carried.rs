//! States that pass from batch to batch: as data of a program, in training, in prediction, and refusals.

use std::path::PathBuf;

use unpadded::data::{Continuous, Data};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::layers::{Embedding, Lstm};
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::predict::Predictor;
use unpadded::program::{CarriedState, VarId, VarRole};
use unpadded::train::{Progress, Trainer, Until};
use unpadded::{Builder, DType, Error, ErrorKind, Program, Result, Var, Variable, ops};

const WIDTH: usize = 6;

/// Builds a language model whose state before a batch is `before`; returns the state after the batch, the logits and the loss.
fn model(net: &Builder, before: impl Fn(&str) -> Var) -> ([Var; 4], Var, Var) {
    let x = net.feed("x", DType::I64, &[], 1);
    let y = net.feed_like("y", DType::I64, &[], x);
    let (h0, c0) = (before("h"), before("c"));
    let vectors = net.dropout(net.embedding(x, Embedding::new(5, WIDTH)), 0.1);
    let (h, h_last, c_last) = net.lstm_states(vectors, Lstm::new(WIDTH).initial(h0, c0));
    let logits = h.linear(5);
    ([h0, c0, h_last, c_last], logits, logits.cross_entropy(y).mean())
}

fn trainer() -> Trainer {
    let net = Builder::new().seed(3);
    let ([h0, c0, h, c], logits, loss) = model(&net, |name| net.carried_state_of(name, DType::F32, &[WIDTH]));
    net.carry(h0, h);
    net.carry(c0, c);
    let trainer = Trainer::new(net, loss, &Adam::new(0.02)).unwrap();
    trainer.output("logits", logits).threads(1).progress(Progress::Quiet)
}

fn text() -> Continuous {
    Continuous::new((0..101).map(|i: i64| i * i % 11 % 5).collect::<Vec<_>>(), 3, 7, ["x", "y"]).unwrap()
}

#[test]
fn a_trainer_carries_what_one_carries_by_hand() {
    let (mut trainer, text) = (trainer(), text());
    trainer.fit(&text, &text, Until::Steps(9)).unwrap();

    // The same model with plain feeds, its states fetched and fed.
    let net = Builder::new().seed(3);
    let ([h0, c0, h, c], _, loss) = model(&net, |name| net.feed(name, DType::F32, &[WIDTH], 0));
    let mut program = net.finish().unwrap();
    Adam::new(0.02).minimize(&mut program, &ops::catalogue(), loss.id()).unwrap();
    assert_eq!(program.carried_states().count(), 0);
    let mut executor = Executor::new(&program, &ops::catalogue(), &[loss.id(), h.id(), c.id()], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    let mut step = 0;
    for epoch in 0..2 {
        let zeros = Variable::dense(ndarray::Array2::<f32>::zeros((3, WIDTH)));
        let (mut before_h, mut before_c) = (zeros.clone(), zeros);
        for batch in text.batches(Some(epoch), 0).unwrap().take(9 - step) {
            let batch = batch.unwrap();
            let mut feeds: Vec<(VarId, &Variable)> = vec![(h0.id(), &before_h), (c0.id(), &before_c)];
            feeds.extend(batch.values.iter().map(|(name, value)| (program.find(name).unwrap(), value)));
            executor.run(&mut scope, &Run::train(&feeds, step as u64).numbers(&batch.numbers)).unwrap();
            (before_h, before_c) = (executor.fetch(h.id()).unwrap(), executor.fetch(c.id()).unwrap());
            step += 1;
        }
    }
    assert_eq!(step, 9);
    for id in program.parameters() {
        let name = &program.var(id).name;
        assert_eq!(trainer.scope().get(name).unwrap(), scope.get(name).unwrap(), "{name}");
    }
}

fn path(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("unpadded-carried-{name}-{}", std::process::id()))
}

/// Returns the predictor of a model that was trained, saved and loaded.
fn predictor(name: &str) -> Predictor {
    let (mut trainer, text, file) = (trainer(), text(), path(name));
    trainer.fit(&text, &text, Until::Steps(5)).unwrap();
    trainer.save(&file).unwrap();
    let predictor = Predictor::load(&file).unwrap().threads(1);
    std::fs::remove_file(file).unwrap();
    predictor
}

fn ids(texts: &[&[i64]]) -> Variable {
    Variable::from_sequences(&texts.iter().map(|ids| ids.to_vec()).collect::<Vec<_>>()).unwrap()
}

fn logits(out: Result<Vec<Variable>>) -> Vec<f32> {
    out.unwrap()[0].as_slice::<f32>().unwrap().to_vec()
}

#[test]
fn a_predictor_that_goes_on_gives_the_bits_of_the_whole_text() {
    let some = predictor("halves");
    assert_eq!(some.feeds(), ["x"]);
    let (first, second): ([i64; 5], [i64; 4]) = ([0, 3, 1, 4, 2], [2, 2, 0, 1]);
    let whole = ids(&[&[&first[..], &second].concat(), &[1, 2, 3]]);
    let whole = logits(some.run(&[("x", &whole)], &["logits"]));
    for most_rows in [16_384, 3] {
        let some = some.clone().most_rows(most_rows);
        // The second text ends in the first batch; it takes no step in the next.
        let begun = logits(some.run(&[("x", &ids(&[&first, &[1, 2, 3]]))], &["logits"]));
        let (of_first, of_other) = begun.split_at(5 * 5);
        let rest = logits(some.run_on(&[("x", &ids(&[&second, &[]]))], &["logits"]));
        assert_eq!([of_first, &rest, of_other].concat(), whole, "{most_rows}");
        // A part of the sequences may continue, and a state may be the only output.
        some.run(&[("x", &ids(&[&first, &[1]]))], &[]).unwrap();
        assert_eq!(logits(some.run_on(&[("x", &ids(&[&second]))], &["logits"])), rest);
        // A new start does not continue.
        assert_ne!(logits(some.run(&[("x", &ids(&[&second]))], &["logits"])), rest);
    }
}

/// A clone starts from the states of the original; from then on each has its own states.
#[test]
fn clones_have_states_of_their_own() {
    let some = predictor("clones");
    let (begun, one, other) = (ids(&[&[0, 3, 1]]), ids(&[&[4]]), ids(&[&[2, 2]]));
    let on = |some: &Predictor, text: &Variable| logits(some.run_on(&[("x", text)], &["logits"]));
    some.run(&[("x", &begun)], &[]).unwrap();
    let clone = some.clone();
    let expected = [on(&some, &one), on(&some, &other)];
    let threads: Vec<_> = (0..3).map(|_| clone.clone()).collect();
    let of_one = |clone: &Predictor| [on(clone, &one), on(clone, &other)];
    std::thread::scope(|scope| {
        let all: Vec<_> = threads.iter().map(|clone| scope.spawn(move || of_one(clone))).collect();
        all.into_iter().for_each(|thread| assert_eq!(thread.join().unwrap(), expected));
    });
    // Runs of one predictor follow each other, in whatever order they arrive.
    some.run(&[("x", &ids(&[&[]]))], &[]).unwrap();
    let whole = logits(some.run(&[("x", &ids(&[&[3, 3, 3, 3]]))], &["logits"]));
    let three = ids(&[&[3]]);
    some.run(&[("x", &three)], &[]).unwrap();
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| on(&some, &three)))));
    let last = on(&some, &three);
    assert_ne!(last, whole[15..]);
    some.run(&[("x", &three)], &[]).unwrap();
    std::thread::scope(|scope| (0..2).for_each(|_| drop(scope.spawn(|| on(&some, &three)))));
    assert_eq!(on(&some, &three), whole[15..]);
}

#[test]
fn what_goes_on_is_said() {
    let some = predictor("said");
    let (one, two) = (ids(&[&[1, 2]]), ids(&[&[1, 2], &[3]]));
    // Before the first batch the state is zero, and a failed call leaves the state unchanged.
    let begun = logits(some.run_on(&[("x", &one)], &["logits"]));
    let error = some.run_on(&[("x", &two)], &["logits"]).unwrap_err();
    let expected = "variable `h`: sequences of a batch: expected at most 1, as in the batch before, whose state is carried, got 2";
    assert!(error.to_string().starts_with(expected), "{error}");
    // A smaller batch drops the states of the other sequences.
    let smaller = predictor("smaller");
    smaller.run(&[("x", &two)], &[]).unwrap();
    smaller.run_on(&[("x", &one)], &[]).unwrap();
    let error = smaller.run_on(&[("x", &two)], &["logits"]).unwrap_err();
    assert!(error.to_string().starts_with(expected), "{error}");
    let missing = some.run_on(&[], &["logits"]).unwrap_err().to_string();
    assert!(missing.starts_with("feeds for `logits`: expected `x` among them, got none"), "{missing}");
    let more = logits(some.run_on(&[("x", &one)], &["logits"]));
    assert_ne!(more, begun);
    assert_eq!(logits(some.run(&[("x", &one)], &["logits"])), begun);
    assert_eq!(logits(some.run_on(&[("x", &one)], &["logits"])), more);
    // A fed state replaces the carried state.
    let zeros = Variable::dense(ndarray::Array2::<f32>::zeros((1, WIDTH)));
    let fed = some.run_on(&[("x", &one), ("h", &zeros), ("c", &zeros)], &["logits"]);
    assert_eq!(logits(fed), begun);
}

#[test]
fn a_saved_program_knows_its_states() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let (a, b) = (net.carried_state(2), net.carried_state(2));
    net.carry(b, a + x);
    net.carry(a, x);
    let program = net.finish().unwrap();
    let program = Program::from_bytes(&program.to_bytes().unwrap()).unwrap();
    let states: Vec<CarriedState> = program.carried_states().collect();
    assert_eq!(states.iter().map(|s| s.before).collect::<Vec<_>>(), [b.id(), a.id()]);
    assert_eq!(program.var(b.id()).name, "state_1");
    assert_eq!(program.var(states[1].after).role, VarRole::Carried);
    assert!(states[0].caller.contains("tests/it/carried.rs:"), "{}", states[0].caller);
    // The state stays where it is an output, and only there.
    let kept = program.inference(&[states[0].after]).unwrap();
    assert_eq!(kept.carried_states().collect::<Vec<_>>(), states[..1]);
}

/// Checks the error of a program, and that it names the line before the call of this function.
#[track_caller]
fn refused(net: Builder, line: u32, expected: &str) {
    let error = net.finish().unwrap_err();
    assert_eq!(error.all().count(), 1, "{error}");
    let text = error.to_string();
    assert!(text.starts_with(expected), "{text}");
    assert!(text.contains(&format!("tests/it/carried.rs:{line}:")), "{line}: {text}");
}

#[test]
fn what_does_not_fit_is_written_down_with_its_line() {
    let started = || {
        let net = Builder::new();
        let (x, state) = (net.feed("x", DType::F32, &[2], 1), net.carried_state_of("s", DType::F32, &[3]));
        (net, x, state)
    };
    let (net, x, state) = started();
    net.carry(state, x.sequence_pool(ops::Pool::Sum));
    let wide = "carry #1: state after the batch: expected f32[batch, 3], as it is before, got f32[batch, 2]";
    refused(net, line!() - 2, wide);

    let (net, x, state) = started();
    net.carry(state, x.linear(3));
    let rows =
        "carry #1: state after the batch: expected f32[batch, 3], as it is before, got f32[rows of `x`, 3]";
    refused(net, line!() - 3, rows);

    let (net, _, state) = started();
    net.carry(state, state);
    net.carry(state, state);
    refused(net, line!() - 1, "variable `s`: carried state: expected one `carry`, got a second `carry`");

    let net = Builder::new();
    let _ = net.carried_state(2);
    let never = "variable `state_0`: carried state: expected a `carry` that sets its next value, got none";
    refused(net.clone(), line!() - 2, never);
    assert!(net.check().is_ok() && net.program().is_ok()); // it may still be said

    let (net, x, state) = started();
    net.carry(state, state);
    net.carry(x, x);
    refused(
        net,
        line!() - 3,
        "variable `x`: carried state: expected a variable of `carried_state`, got another variable",
    );

    let (net, x, state) = started();
    net.recurrent(x, |step, _| {
        step.carry(state, state);
        step.linear(step.memory(2), 2)
    });
    let error = net.finish().unwrap_err().to_string();
    let step = "variable `s`: carried state: expected `carry` in the root block, got `carry` in a step block";
    assert!(error.contains(step), "{error}");

    let (net, x, state) = started();
    net.carry(state, state);
    net.recurrent(x, |step, x| {
        step.carried_state(2);
        x
    });
    refused(net, line!() - 3, "variable `state_0`: feed: expected the root block, got a step block");

    let (net, _, state) = started();
    let (_other, _, foreign) = started();
    net.carry(state, foreign);
    let other = "carry #0: variable: expected a variable of this builder, got `s` of another builder";
    refused(net, line!() - 2, other);

    let (net, _, state) = started();
    let (_other, _, foreign) = started();
    net.carry(state, state);
    net.carry(foreign, state);
    refused(net, line!() - 1, "variable: expected a variable of this builder, got `s` of another builder");

    // An unknown variable is no second mistake.
    let (net, x, state) = started();
    net.carry(state, x.slice(0..9));
    refused(net, line!() - 1, "slice #0");
    let (net, x, state) = started();
    net.carry(state, state);
    let loss = x.mean();
    let _ = net.carried_state(2);
    let error = Trainer::new(net, loss, &Adam::new(0.1)).err().unwrap().to_string();
    assert!(error.contains("expected a `carry` that sets its next value"), "{error}");
}

/// Files may contain anything.
#[test]
fn a_wrong_pair_is_refused_before_anything_runs() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[2], 0);
    let state = net.carried_state(2);
    let sum = x + state;
    net.carry(state, sum);
    let program = net.finish().unwrap();
    let after = program.carried_states().next().unwrap().after;
    let wrong = |change: &dyn Fn(&mut Program), expected: &str| {
        let mut program = program.clone();
        change(&mut program);
        let error: Error = program.validate().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Program);
        assert!(error.to_string().contains(expected), "{error}");
        assert!(program.to_bytes().is_err());
    };
    assert!(program.validate().is_ok());
    let feed = "carried state: expected a feed with one row per sequence, got `state_0`, f32[batch, 2]";
    wrong(&|p| p.var_mut(state.id()).role = VarRole::Computed, feed);
    let slot = "variable `add`: carried state: expected one feed in the slot `before`, and one output, got another number of feeds or outputs";
    wrong(&|p| p.var_mut(sum.id()).role = VarRole::Carried, slot);
    let spec = |p: &mut Program, var: VarId, like: usize| {
        let unpadded::program::VarKind::Tensor(spec) = &mut p.var_mut(var).kind else { panic!("a tensor") };
        *spec = unpadded::op::Spec::fixed(DType::F32, &[like, 2]).unwrap();
    };
    wrong(&|p| spec(p, after, 4), "expected f32[batch, 2], as the feed `state_0`, got f32[4, 2]");
    let fixed = "a feed with one row per sequence, got `state_0`, f32[4, 2]";
    wrong(&|p| [state.id(), after].into_iter().for_each(|id| spec(p, id, 4)), fixed);

    // In a file: another feed in the slot, and another slot.
    let body = program.to_section().unwrap();
    let at = body.windows(6).rposition(|bytes| bytes == b"before").unwrap();
    let mut renamed = body.clone();
    renamed[at] = b'B';
    let error = Program::from_section(&renamed).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Format);
    assert!(error.to_string().contains("expected one feed in the slot `before`"), "{error}");
    assert!(Program::from_section(&body).is_ok());
}

/// A task that waits for its run starts no other task, so that runs do not pile up on a thread's stack, and a running call never
/// meets another call on its thread.
#[test]
fn tasks_of_a_pool_of_threads_may_predict() {
    use rayon::iter::{IntoParallelIterator, ParallelIterator};
    let some = predictor("tasks").threads(2);
    let text = ids(&[&[3, 1]]);
    let expected = logits(some.run(&[("x", &text)], &["logits"]));
    let all: Vec<_> =
        (0..2000).into_par_iter().map(|_| logits(some.run(&[("x", &text)], &["logits"]))).collect();
    assert!(all.iter().all(|one| *one == expected));
    let on = |_| some.run_on(&[("x", &text)], &["logits"]).is_ok();
    assert!((0..200).into_par_iter().map(on).collect::<Vec<_>>().into_iter().all(|fine| fine));
}
