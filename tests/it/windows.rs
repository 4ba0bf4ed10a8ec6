//! Inference in windows has the bits of whole sequences, for every model, every window and any number of threads.

use unpadded::layers::{Embedding, Gru, Lstm, Mgu, RecurrentLayer, Rnn, Stacked, init};
use unpadded::op::{Attributes, CheckCase, Facts, Forward, InferShape, Op};
use unpadded::ops::Pool;
use unpadded::program::VarId;
use unpadded::tensor::{Dense, StorageKind};
use unpadded::{Builder, DType, ErrorKind, Lod, Program, Registry, Result, Var, Variable, operator, ops};

use crate::models::{self, Random};
use crate::sessions::predictor;
use crate::step_blocks::{self, generator};
use crate::thorough::times;

const WINDOWS: [usize; 5] = [1, 2, 5, 13, 40];
const WIDTH: usize = 6;

#[track_caller]
fn same(got: &Variable, whole: &Variable, what: &str) {
    assert_eq!((got.shape(), got.lod(), got.dtype()), (whole.shape(), whole.lod(), whole.dtype()), "{what}");
    let (a, b) = (got.storage().as_dense().unwrap(), whole.storage().as_dense().unwrap());
    assert!(a.bits_eq(b), "{what}: {a:?} for {b:?}");
}

/// Runs `outputs` whole and in windows of every size, twice each, and compares.
#[track_caller]
fn check(
    program: &Program,
    registry: &Registry,
    outputs: &[VarId],
    feeds: &[(&str, &Variable)],
    windows: &[usize],
    what: &str,
) {
    let names: Vec<String> = (0..outputs.len()).map(|k| k.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let run = |most_rows: usize, threads: usize| {
        let predictor = predictor(program, registry, outputs).threads(threads).most_rows(most_rows);
        let first = predictor.run(feeds, &names).unwrap();
        assert_eq!(predictor.run(feeds, &names).unwrap(), first, "{what}: a second run");
        first
    };
    let whole = run(usize::MAX, 1);
    for (k, &most_rows) in windows.iter().enumerate() {
        for (name, (got, whole)) in names.iter().zip(run(most_rows, 1 + k % 2).iter().zip(&whole)) {
            same(got, whole, &format!("{what}, output {name}, windows of {most_rows} rows"));
        }
    }
}

operator! {
    /// out = x + a random number for each row, when it infers too.
    struct Noise = "test.noise" {}
    inputs { X = x: one }
    outputs { OUT = out: one }
}

impl Op for Noise {
    fn facts(&self) -> Facts {
        Facts { random: true, ..Facts::row_wise() }
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(0, s.input(0).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, mut out) = (run.input::<f32>(0)?, run.output::<f32>(0)?);
        for row in 0..x.rows() {
            let out = out.row(row);
            run.uniform(row, out);
            out.iter_mut().zip(x.row(row)).for_each(|(out, x)| *out = (*out - 0.5) * 0.1 + x);
        }
        Ok(())
    }

    fn samples() -> Result<Vec<CheckCase>> {
        Ok(Vec::new())
    }
}

fn noise(net: &Builder, x: Var) -> Var {
    net.append("test.noise", &[("x", &[x])], Attributes::new())
}

/// The layers and operators of a model by dice; each keeps the rows and their width.
fn layer(net: &Builder, random: &mut Random, x: Var, topic: Var) -> Var {
    match random.below(15) {
        0 => net.lstm(x, Lstm::new(WIDTH)),
        1 => net.lstm(x, Lstm::new(WIDTH).peepholes().cell_clip(0.4)),
        2 => net.lstm(x, Lstm::new(9).projection(WIDTH).zoneout([0.1, 0.2])),
        3 => net.lstm(x, Lstm::new(WIDTH).initial(net.tanh(topic), topic).recurrent_dropout(0.3)),
        4 => net.gru(x, Gru::new(WIDTH)),
        5 => net.gru(x, Gru::new(WIDTH).initial(net.linear(topic, WIDTH))),
        6 => net.rnn(x, Rnn::new(WIDTH)),
        7 => net.mgu(x, Mgu::new(WIDTH)),
        8 => net.stacked(x, Stacked::new(Lstm::new(WIDTH), 3).residual().dropout(0.2)),
        9 => net.dropout(net.linear(x, WIDTH), 0.4),
        10 => net.add(x, net.sequence_expand_as(topic, x)),
        11 => noise(net, x),
        12 => net.add(x, net.parameter("shift", DType::F32, &[WIDTH], init::uniform(-0.5, 0.5))),
        _ => {
            // A cell of one's own: two memories, one of them of whole numbers; a static row; noise in the loop.
            net.recurrent(x, |step, x| {
                let (h, steps) = (step.memory_from(topic), step.memory_of(DType::F32, &[WIDTH]));
                let h_seen = noise(step, h);
                let mixed = step.add(step.linear(x, WIDTH), step.linear(step.add(h_seen, topic), WIDTH));
                let next = step.tanh(step.add(mixed, steps));
                step.update(h, next);
                step.update(steps, step.scale(steps, 1.0, 0.125));
                next
            })
        }
    }
}

/// Builds a model of a seed over ids; returns its outputs, all of which can be run in windows.
fn model(net: &Builder, random: &mut Random) -> Result<Vec<VarId>> {
    let (words, topic) = (net.feed("words", DType::I64, &[], 1), net.feed("topic", DType::F32, &[WIDTH], 0));
    let mut x = net.embedding(words, Embedding::new(models::VOCABULARY, WIDTH));
    let mut outputs = vec![words, topic];
    for _ in 0..1 + random.below(4) {
        x = layer(net, random, x, topic);
        if random.below(3) == 0 {
            outputs.push(x);
        }
    }
    let mut read = topic;
    if random.below(2) == 0 {
        // From the end, over rows that no recurrent made: its windows come from the end.
        let ids = net.embedding(words, Embedding::new(models::VOCABULARY, WIDTH));
        let seen = noise(net, net.add(ids, net.sequence_expand_as(topic, ids)));
        let back = net.lstm(seen, Lstm::new(WIDTH).initial(topic, topic).backwards());
        let (again, last) = net.gru_states(noise(net, back), Gru::new(WIDTH).backwards());
        let pools = [net.sequence_pool(back, Pool::First), net.sequence_pool_with(again, Pool::Last, -1.0)];
        outputs.extend([pools[0], pools[1], last, again]);
        read = net.linear(net.concat(&pools), WIDTH);
    }
    for pool in Pool::ALL {
        if random.below(2) == 0 {
            let pooled = net.sequence_pool_with(x, pool, 0.25);
            outputs.push(pooled);
            read = net.add(read, net.linear(pooled, WIDTH));
        }
    }
    let (h, last, c) = net.lstm_states(x, Lstm::new(WIDTH));
    outputs.extend([h, last, c, net.softmax(read), net.mean(read)]);
    Ok(outputs.into_iter().map(Var::id).collect())
}

#[test]
fn models_at_random_have_the_same_bits_in_windows() {
    for seed in 0..times(10) as u64 {
        let mut random = Random(seed * 7919 + 1);
        let mut registry = ops::catalogue();
        registry.add::<Noise>().unwrap();
        let net = Builder::with_registry(registry.clone()).seed(seed);
        let outputs = model(&net, &mut random).unwrap();
        let program = net.finish().unwrap();
        assert_eq!(program.streamed(&registry, &outputs).map(|_| ()), Ok(()), "seed {seed}");
        let lengths: Vec<usize> = (0..1 + random.below(5)).map(|_| random.below(24)).chain([0, 30]).collect();
        let lod = Lod::from_lengths1(&lengths).unwrap();
        let ids: Vec<i64> = (0..lod.rows()).map(|_| random.below(models::VOCABULARY) as i64).collect();
        let words = Variable::new(Dense::from_vec(&[ids.len()], ids).unwrap(), Some(lod)).unwrap();
        let topic: Vec<f32> = (0..lengths.len() * WIDTH).map(|i| (i as f32 * 1.7).sin()).collect();
        let topic = Variable::dense(Dense::from_vec(&[lengths.len(), WIDTH], topic).unwrap());
        check(
            &program,
            &registry,
            &outputs,
            &[("words", &words), ("topic", &topic)],
            &WINDOWS,
            &format!("seed {seed}"),
        );
    }
}

/// Random programs compute the same results in windows or, where windows are impossible, whole.
#[test]
fn programs_at_random_have_the_same_bits_in_windows() {
    let (mut streamed, mut whole) = (0, 0);
    for seed in 0..times(36) as u64 {
        let case = generator::case(seed, step_blocks::F32).unwrap();
        let can = |&id: &VarId| case.program.streamed(&case.registry, &[id]).is_ok();
        let dense =
            |id: &&VarId| case.program.spec(**id).is_ok_and(|spec| spec.storage == StorageKind::Dense);
        let (mut outputs, rest): (Vec<VarId>, Vec<VarId>) =
            case.values.iter().filter(dense).partition(|&id| can(id));
        // Over the sequences of one feed at a time: sequences of two feeds are not cut together.
        while !outputs.is_empty() && case.program.streamed(&case.registry, &outputs).is_err() {
            outputs.pop();
        }
        (streamed, whole) = (streamed + outputs.len(), whole + rest.len());
        for outputs in [outputs, rest] {
            let needed = predictor(&case.program, &case.registry, &case.values);
            let needed = needed.feeds();
            let feeds = case.feeds.iter().map(|(id, value)| (case.program.var(*id).name.as_str(), value));
            let feeds: Vec<_> = feeds.filter(|(name, _)| needed.contains(name)).collect();
            if !outputs.is_empty() {
                check(&case.program, &case.registry, &outputs, &feeds, &[1, 3], &format!("seed {seed}"));
            }
        }
    }
    assert!(streamed > 20 && whole > 100, "{streamed} in windows, {whole} whole");
}

/// Wrong feeds are found before the first window, and an error in a late window leaves no state behind.
#[test]
fn errors_are_those_of_the_whole() {
    let net = Builder::new();
    let x = net.feed("x", DType::I64, &[], 1);
    let start = net.feed("start", DType::F32, &[WIDTH], 0);
    let rows = net.embedding(x, Embedding::new(9, WIDTH));
    let last = net.gru_states(rows, Gru::new(WIDTH).initial(start)).1.id();
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let whole = predictor(&program, &registry, &[last]);
    let windows = predictor(&program, &registry, &[last]).most_rows(4);
    let start = |sequences: usize| Variable::dense(Dense::zeros(DType::F32, &[sequences, WIDTH]).unwrap());
    let ids = Variable::from_sequences(&[vec![1i64; 20], vec![2; 5]]).unwrap();
    let mut wrong = ids.clone();
    wrong.as_mut_slice::<i64>().unwrap()[18] = 9;
    let expected = whole.run(&[("x", &ids), ("start", &start(2))], &["0"]).unwrap();
    for (ids, start) in [(&ids, start(3)), (&ids, Variable::dense(ndarray::array![[0.0f64]]))] {
        let feeds = [("x", ids), ("start", &start)];
        let [a, b] = [&whole, &windows].map(|p| p.run(&feeds, &["0"]).unwrap_err());
        assert_eq!(a.to_string(), b.to_string());
    }
    let feeds = [("x", &wrong), ("start", &start(2))];
    let [a, b] = [&whole, &windows].map(|p| p.run(&feeds, &["0"]).unwrap_err());
    assert!(b.to_string().contains("at least 0 and below 9, the height, got 9"), "{b}");
    assert_eq!((a.place(), a.to_string()), (b.place(), b.to_string()));
    assert!(b.to_string().contains("sample 0, position 18"), "{b}");
    let mut none = start(2);
    none.as_mut_slice::<f32>().unwrap()[WIDTH] = f32::NAN;
    let [a, b] = [&whole, &windows].map(|p| p.run(&[("x", &ids), ("start", &none)], &["0"]).unwrap_err());
    assert_eq!(a.to_string(), b.to_string());
    assert!(b.to_string().starts_with("output `0`: expected numbers, got NaN in row 1"), "{b}");
    assert_eq!(windows.run(&[("x", &ids), ("start", &start(2))], &["0"]).unwrap(), expected);
}

#[test]
fn a_memory_limit_cuts_windows_or_refuses() {
    let made = |backward: bool| {
        let net = Builder::new().seed(1);
        let words = net.feed("words", DType::I64, &[], 1);
        let x = words.embedding(Embedding::new(50, 16));
        let forward = x.lstm(16);
        let h =
            if backward { net.concat(&[forward, net.lstm(x, Lstm::new(16).reversed())]) } else { forward };
        let out = h.linear(5);
        let outputs = [out.id()];
        (net.finish().unwrap(), outputs)
    };
    let ids: Vec<i64> = (0..3000).map(|i| i * i % 50).collect();
    let words = Variable::from_sequences(&[ids[..1000].to_vec(), ids]).unwrap();
    let feeds = [("words", &words)];
    for backward in [false, true] {
        let (program, outputs) = made(backward);
        let predictor = predictor(&program, &ops::catalogue(), &outputs);
        let whole = predictor.run(&feeds, &["0"]).unwrap();
        let memory = predictor.memory(&feeds, &["0"]).unwrap();
        assert!(memory.buffers > words.rows() * 16 * 4 && memory.batch > words.rows() * 28, "{memory:?}");
        let limit = (memory.total() - memory.buffers / 2) as u64;
        assert_eq!(predictor.last_memory(), 0);
        let limited = predictor.memory_limit(limit);
        match (limited.run(&feeds, &["0"]), backward) {
            (Ok(windowed), false) => same(&windowed[0], &whole[0], "in windows"),
            (Err(error), true) => {
                assert_eq!(error.kind(), ErrorKind::Memory);
                let text = error.to_string();
                assert!(
                    text.starts_with("memory of a batch: expected at most ")
                        && text.contains("for 4000 rows"),
                    "{text}"
                );
            }
            (other, backward) => panic!("{backward}: {other:?}"),
        }
        // The limit can be raised again.
        assert_eq!(limited.last_memory(), memory.total() as u64);
        let clone = limited.clone();
        let raised = limited.memory_limit(memory.total() as u64);
        assert_eq!(raised.run(&feeds, &["0"]).unwrap(), whole);
        assert_eq!(clone.last_memory(), memory.total() as u64);
    }
}
