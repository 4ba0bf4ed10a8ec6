//! Sessions: row by row, every model has the bits of whole sequences, on any number of threads.

use std::sync::Arc;

use unpadded::checkpoint::Checkpoint;
use unpadded::executor::Scope;
use unpadded::layers::{Embedding, Gru, Lstm, Stacked};
use unpadded::ops::Pool;
use unpadded::predict::Predictor;
use unpadded::program::VarId;
use unpadded::tensor::{Dense, StorageKind};
use unpadded::{Builder, DType, Lod, Program, Registry, Var, Variable};

use crate::step_blocks::{self, generator};
use crate::thorough::times;

/// A predictor of some variables, named by their numbers, with the parameters as they start.
pub(crate) fn predictor(program: &Program, registry: &Registry, outputs: &[VarId]) -> Predictor {
    let mut scope = Scope::of(program).unwrap();
    let mut checkpoint = Checkpoint::of(program.clone(), []);
    for (_, desc) in program.vars().filter(|(_, desc)| desc.persistable) {
        checkpoint.tensors.insert(desc.name.clone(), scope.value(&desc.name).unwrap());
    }
    let named = |(k, &id): (usize, &VarId)| (k.to_string(), program.var(id).name.clone());
    checkpoint.outputs = outputs.iter().enumerate().map(named).collect();
    Predictor::new(checkpoint, registry).unwrap()
}

/// Returns the rows of all sequences at step `t`: an ended sequence has its last row, an empty sequence the first row of all.
fn rows_at(value: &Variable, t: usize) -> Variable {
    let offsets = value.lod().unwrap().offsets();
    let rows: Vec<usize> = offsets
        .windows(2)
        .map(|pair| if pair[0] + t < pair[1] { pair[0] + t } else { pair[1].saturating_sub(1) })
        .collect();
    Variable::dense(value.storage().as_dense().unwrap().gather_rows(&rows).unwrap())
}

/// Runs outputs, all with the rows of one feed's sequences, whole and row by row, and compares every row. Half-way the session
/// is saved, and another session continues.
#[track_caller]
fn check(predictor: &Predictor, feeds: &[(&str, &Variable)], outputs: &[&str], what: &str) {
    let whole = predictor.run(feeds, outputs).unwrap();
    let Some(lod) = whole[0].lod().cloned() else { panic!("{what}: no sequences") };
    let lengths: Vec<usize> = lod.offsets().windows(2).map(|pair| pair[1] - pair[0]).collect();
    let mut session = predictor.sessions(lengths.len(), outputs).unwrap();
    let begin = session.begin_feeds();
    let begin: Vec<_> = feeds.iter().filter(|(name, _)| begin.contains(name)).copied().collect();
    session.begin(&begin).unwrap();
    let rows: Vec<String> = session.step_feeds().into_iter().map(str::to_owned).collect();
    let longest = lengths.iter().copied().max().unwrap_or(0);
    if lod.rows() == 0 {
        return;
    }
    for t in 0..longest {
        if t == longest / 2 {
            let saved = session.save().unwrap();
            session = predictor.sessions(lengths.len(), outputs).unwrap();
            session.restore(&saved).unwrap();
            assert_eq!(session.steps(), t as u64);
        }
        let of_step: Vec<(&str, Variable)> = feeds
            .iter()
            .filter(|(name, _)| rows.iter().any(|row| row == name))
            .map(|(name, value)| (*name, rows_at(value, t)))
            .collect();
        let fed: Vec<(&str, &Variable)> = of_step.iter().map(|(name, value)| (*name, value)).collect();
        session.step(&fed).unwrap_or_else(|e| panic!("{what}, step {t}: {e}"));
        for (name, whole) in outputs.iter().zip(&whole) {
            let got = session.output(name).unwrap().storage().as_dense().unwrap().clone();
            let alive: Vec<usize> = (0..lengths.len()).filter(|&i| t < lengths[i]).collect();
            let at: Vec<usize> = alive.iter().map(|&i| lod.offsets()[i] + t).collect();
            let (got, want) = (
                got.gather_rows(&alive).unwrap(),
                whole.storage().as_dense().unwrap().gather_rows(&at).unwrap(),
            );
            assert!(got.bits_eq(&want), "{what}, output {name}, step {t}: {got:?} for {want:?}");
        }
    }
}

fn ids(lengths: &[usize], below: i64) -> Variable {
    let sequences: Vec<Vec<i64>> = lengths
        .iter()
        .enumerate()
        .map(|(i, &n)| (0..n as i64).map(|t| (t * 7 + i as i64 * 3) % below).collect())
        .collect();
    Variable::from_sequences(&sequences).unwrap()
}

/// A translator: an encoder in both directions, a decoder that attends to its states, and starts from their maximum.
fn translator(net: &Builder) -> Var {
    let source = net.feed("source", DType::I64, &[], 1);
    let target = net.feed("target", DType::I64, &[], 1);
    let x = source.embedding(Embedding::new(11, 6));
    let states = x.stacked(Stacked::new(Lstm::new(5), 1).bidirectional());
    let start = states.sequence_pool(Pool::Max).linear(8).tanh();
    let y = target.embedding(Embedding::new(9, 7));
    let h = net.recurrent(y, |step, y| {
        let before = step.memory_from(start);
        let keys = states.linear(8);
        let wide = step.sequence_expand_as(before.linear(8), keys);
        let weights = (keys + wide).tanh().linear(1).sequence_softmax();
        let context = (states * weights).sequence_pool(Pool::Sum);
        let h = (step.concat(&[y, context]).linear(8) + before.linear(8)).tanh();
        step.update(before, h);
        step.concat(&[h, context])
    });
    h.dropout(0.3).linear(9)
}

#[test]
fn the_bits_of_whole_sequences() {
    let words = ids(&[5, 1, 0, 9], 11);
    let net = Builder::new().seed(3);
    let x = net.feed("source", DType::I64, &[], 1).embedding(Embedding::new(11, 6));
    let deep = x.stacked(Stacked::new(Lstm::new(33), 3));
    let (first, second) = (deep.linear(17).softmax(), x.gru(Gru::new(8)) * 2.0);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let both = predictor(&program, &registry, &[first.id(), second.id()]);
    for threads in 1..=2 {
        let both = both.clone().threads(threads);
        check(&both, &[("source", &words)], &["0", "1"], "layers");
        check(&both, &[("source", &ids(&[4], 11))], &["1"], "one layer");
    }

    let net = Builder::new().seed(4);
    let logits = translator(&net);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let stepped = program.stepped(&registry, &[logits.id()]).unwrap();
    let kinds = |program: &Program| program.root().ops.iter().map(|op| op.kind.clone()).collect::<Vec<_>>();
    // The keys are computed once, and nothing of the encoder at a step.
    assert!(kinds(&stepped.before).contains(&"recurrent".to_owned()));
    assert!(!kinds(&stepped.step).contains(&"recurrent".to_owned()));
    let linears = |program| kinds(program).iter().filter(|kind| *kind == "linear").count();
    assert_eq!((linears(&stepped.before), linears(&stepped.step)), (2, 5), "{:?}", kinds(&stepped.step));
    let model = predictor(&program, &registry, &[logits.id()]);
    let (source, target) = (ids(&[3, 8, 1, 2], 11), ids(&[5, 1, 0, 9], 9));
    for threads in 1..=2 {
        check(
            &model.clone().threads(threads),
            &[("source", &source), ("target", &target)],
            &["0"],
            "translator",
        );
    }
}

/// Row by row, random programs have the bits of whole runs.
#[test]
fn programs_at_random_have_the_same_bits_row_by_row() {
    let mut stepped = 0;
    for seed in 0..times(45) as u64 {
        let case = generator::case(seed, step_blocks::F32).unwrap();
        for &id in &case.values {
            let dense = case.forward.spec(id).is_ok_and(|spec| spec.storage == StorageKind::Dense);
            if !dense {
                continue;
            }
            if case.forward.stepped(&case.registry, &[id]).is_err() {
                continue;
            }
            stepped += 1;
            let model = predictor(&case.forward, &case.registry, &[id]).threads(1 + seed as usize % 2);
            let needed = model.feeds();
            let feeds = case.feeds.iter().map(|(id, value)| (case.program.var(*id).name.as_str(), value));
            let feeds: Vec<_> = feeds.filter(|(name, _)| needed.contains(name)).collect();
            check(&model, &feeds, &["0"], &format!("seed {seed}, {}", case.forward.var(id).name));
        }
    }
    assert!(stepped >= times(20) / 2, "{stepped} row by row");
}

#[test]
fn what_cannot_be_is_refused_by_name() {
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[4], 1);
    let back = x.gru(Gru::new(3).backwards());
    let pooled = x.sequence_pool(Pool::Max);
    let ahead = x.sequence_reverse();
    let from_pool = x.gru(Gru::new(4).initial(pooled));
    let around = net.recurrent(x, |step, row| {
        let before = step.memory(4);
        let next = row + before + x.sequence_pool(Pool::Mean);
        step.update(before, next);
        next
    });
    let (registry, program) = (net.registry(), net.finish().unwrap());
    for (var, expected) in [
        (back, "recurrent #"),
        (back, "got a loop that runs from the end"),
        (pooled, "got f32[batch, 4]"),
        (ahead, "sequence_reverse #"),
        (ahead, "got an operator that needs other rows too"),
        (from_pool, "sequence_pool #"),
        (around, "got a loop that reads whole sequences at every step"),
    ] {
        let error = predictor(&program, &registry, &[var.id()]).session(&["0"]).err().unwrap();
        let text = format!("{error} {:?}", error.place());
        assert!(text.contains(expected), "{text}");
        assert!(text.contains("sessions.rs"), "{text}");
    }
}

#[test]
fn wrong_steps_change_nothing() {
    let net = Builder::new().seed(5);
    let logits = translator(&net);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let model = predictor(&program, &registry, &[logits.id()]);
    let text = |outcome: unpadded::Result<()>| outcome.unwrap_err().to_string();
    let token = |id: i64| Variable::dense(ndarray::array![id]);
    let source = ids(&[4], 11);
    let mut session = model.session(&["0"]).unwrap().most_steps(2);
    assert_eq!((session.begin_feeds(), session.step_feeds()), (vec!["source"], vec!["target"]));
    let error = text(session.step(&[("target", &token(1))]));
    assert!(error.contains("expected `source` among them, got none"), "{error}");
    assert!(text(session.begin(&[("sauce", &source)])).contains("(`source`), got `sauce`"));
    assert!(
        text(session.begin(&[("source", &ids(&[4, 2], 11))]))
            .contains("sequences of a feed: expected 1, got 2")
    );
    session.begin(&[("source", &source)]).unwrap();
    assert!(session.output("0").unwrap_err().to_string().contains("a step before the output is read"));
    session.step(&[("target", &token(1))]).unwrap();
    let (first, state) = (session.output("0").unwrap().clone(), session.save().unwrap());
    assert!(text(session.step(&[("target", &token(99))])).contains("below 9"));
    assert!(text(session.step(&[])).contains("expected `target` among them"));
    let twice = [("target", &token(1)), ("target", &token(2))];
    assert!(text(session.step(&twice)).contains("each once, got `target` twice"));
    assert!(text(session.step(&[("source", &token(1))])).contains("(`target`), got `source`"));
    let two = Variable::dense(ndarray::array![1i64, 2]);
    assert!(text(session.step(&[("target", &two)])).contains("expected 1, one for each sequence, got 2"));
    assert!(text(session.step(&[("target", &ids(&[1], 9))])).contains("levels of LoD"));
    assert_eq!(session.output("0").unwrap(), &first);
    assert_eq!(session.save().unwrap(), state);
    session.step(&[("target", &token(2))]).unwrap();
    let second = session.output("0").unwrap().clone();
    let error = text(session.step(&[("target", &token(2))]));
    assert!(error.contains("at most 2, the limit of this session, got another step after 2"), "{error}");

    let mut other = model.session(&["0"]).unwrap();
    for at in [0, state.len() / 2, state.len() - 3] {
        let mut damaged = state.clone();
        damaged[at] ^= 0x41;
        assert!(other.restore(&damaged).is_err());
        assert!(other.restore(&state[..at]).is_err());
    }
    assert_eq!(other.steps(), 0);
    other.restore(&state).unwrap();
    assert!(other.output("0").unwrap_err().to_string().contains("a step before the output is read"));
    let mut clone = other.clone();
    for session in [&mut other, &mut clone] {
        session.step(&[("target", &token(2))]).unwrap();
        assert_eq!(session.output("0").unwrap(), &second);
    }
    assert!(
        model.sessions(2, &["0"]).unwrap().restore(&state).unwrap_err().to_string().contains("expected 2")
    );
    assert!(model.session(&["1"]).err().unwrap().to_string().contains("(`0`), got `1`"));
}

/// Sessions of several threads on one predictor do not mix.
#[test]
fn many_at_once() {
    let net = Builder::new().seed(6);
    let logits = translator(&net);
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let model = Arc::new(predictor(&program, &registry, &[logits.id()]).threads(1));
    std::thread::scope(|scope| {
        for k in 0..6usize {
            let model = model.clone();
            scope.spawn(move || {
                let source = ids(&[1 + k], 11);
                let target = ids(&[12 + k], 9);
                for _ in 0..3 {
                    check(&model, &[("source", &source), ("target", &target)], &["0"], "a thread");
                }
            });
        }
    });
    let lod = Lod::from_lengths1(&[0]).unwrap();
    let empty = Variable::new(Dense::from_vec(&[0], Vec::<i64>::new()).unwrap(), Some(lod)).unwrap();
    check(&model, &[("source", &empty), ("target", &ids(&[4], 9))], &["0"], "an empty source");
}
