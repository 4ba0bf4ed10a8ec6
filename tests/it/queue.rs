//! A queue answers every request with the bits of a lone run, whatever requests arrive at the same time.

use unpadded::layers::{Embedding, Lstm};
use unpadded::op::{Attributes, CheckCase, Facts, Forward, InferShape, Op};
use unpadded::ops::Pool;
use unpadded::{Builder, DType, Lod, Registry, Result, Variable, operator, ops};

use crate::sessions::predictor;

operator! {
    /// out = x; panics where x is 7.
    struct Fragile = "test.fragile" {}
    inputs { X = x: one }
    outputs { OUT = out: one }
}

impl Op for Fragile {
    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.set(0, s.input(0).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let x = run.input::<f32>(Self::X)?.contiguous().unwrap_or(&[]).to_vec();
        assert!(!x.contains(&7.0), "seven");
        run.output::<f32>(Self::OUT)?.contiguous().unwrap_or(&mut []).copy_from_slice(&x);
        Ok(())
    }

    fn samples() -> Result<Vec<CheckCase>> {
        Ok(Vec::new())
    }
}

/// The same error, which names the line of the call that asked.
fn same(got: Result<Vec<Variable>>, want: Result<Vec<Variable>>) {
    let (got, want) = (got.unwrap_err().to_string(), want.unwrap_err().to_string());
    let text = |error: &str| error.split(" (at ").next().unwrap_or_default().to_owned();
    assert_eq!(text(&got), text(&want));
    assert!(!got.contains("src/predict"), "{got}");
}

#[test]
fn everyone_gets_the_bits_of_his_own() {
    let net = Builder::new().seed(2);
    let x = net.feed("x", DType::I64, &[], 1);
    let h = x.embedding(Embedding::new(50, 12)).lstm(Lstm::new(24));
    let (last, all) = (h.sequence_pool(Pool::Last).linear(3), h.mean());
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let alone = predictor(&program, &registry, &[h.id(), last.id(), all.id()]).threads(1);
    let queue = alone.clone().threads(2).queue();
    std::thread::scope(|scope| {
        for k in 0..12i64 {
            let (alone, queue) = (&alone, &queue);
            scope.spawn(move || {
                for round in 0..15i64 {
                    let bad = k == 3 && round % 4 == 1;
                    let sequences: Vec<Vec<i64>> = (0..1 + (k + round) % 3)
                        .map(|i| {
                            (0..(k * 5 + round * 3 + i) % 17)
                                .map(|t| (t + k) % 50 + if bad { 60 } else { 0 })
                                .collect()
                        })
                        .collect();
                    let x = Variable::from_sequences(&sequences).unwrap();
                    // Some ask for another output, or for one over the whole batch, which nobody else may be in.
                    let outputs: &[&str] =
                        [&["0", "1"][..], &["1"], &["2"]][(k as usize + round as usize) % 3];
                    let (got, want) = (queue.run(&[("x", &x)], outputs), alone.run(&[("x", &x)], outputs));
                    match (got, want) {
                        (Ok(got), Ok(want)) => assert_eq!(got, want),
                        (got, want) => same(got, want),
                    }
                }
            });
        }
    });
}

/// A request that does not fit is refused to its own caller, and none of its samples reaches another request.
#[test]
fn requests_that_do_not_fit_are_not_joined() {
    let net = Builder::new().seed(4);
    let pooled = |name: &str| net.feed(name, DType::F32, &[2], 1).sequence_pool(Pool::Sum);
    let both = pooled("left") * 2.0 + pooled("right");
    let (registry, program) = (net.registry(), net.finish().unwrap());
    let alone = predictor(&program, &registry, &[both.id()]).threads(1);
    let queue = alone.clone().queue();
    let batch = |sequences: usize, from: f32| {
        let rows = ndarray::Array2::from_shape_fn((sequences, 2), |(i, j)| from + (2 * i + j) as f32);
        Variable::sequences(rows, Lod::from_lengths1(&vec![1; sequences]).unwrap()).unwrap()
    };
    let counts = [(2, 3), (1, 1), (3, 2), (1, 1), (2, 2), (3, 1), (1, 3), (4, 4)];
    std::thread::scope(|scope| {
        for (k, (left, right)) in counts.into_iter().enumerate() {
            let (left, right) = (batch(left, k as f32), batch(right, 0.5 * k as f32));
            let (alone, queue) = (&alone, &queue);
            scope.spawn(move || {
                let feeds = [("left", &left), ("right", &right)];
                for _ in 0..200 {
                    match (queue.run(&feeds, &["0"]), alone.run(&feeds, &["0"])) {
                        (Ok(got), Ok(want)) => assert_eq!(got, want),
                        (got, want) => same(got, want),
                    }
                }
            });
        }
    });
}

/// An operator that panics takes its own caller with it, and nobody else.
#[test]
fn a_panic_is_its_own_callers() {
    let mut registry: Registry = ops::catalogue();
    registry.add::<Fragile>().unwrap();
    let net = Builder::with_registry(registry.clone());
    let x = net.feed("x", DType::F32, &[1], 0);
    let y: unpadded::Var = net.append("test.fragile", &[("x", &[x])], Attributes::new());
    let program = net.finish().unwrap();
    let queue = predictor(&program, &registry, &[y.id()]).threads(1).queue();
    let value = |number: f32| Variable::dense(ndarray::array![[number]]);
    std::thread::scope(|scope| {
        let ask = |number: f32| {
            let (queue, x) = (&queue, value(number));
            scope.spawn(move || {
                let ask = || queue.run(&[("x", &x)], &["0"]).unwrap();
                let ask = || std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask)).is_ok();
                (0..50).filter(|_| ask()).count()
            })
        };
        let calm: Vec<_> = (0..4).map(|k| ask(k as f32)).collect();
        let wild = [ask(7.0), ask(7.0)];
        assert!(wild.into_iter().all(|thread| thread.join().unwrap() == 0));
        assert!(calm.into_iter().all(|thread| thread.join().unwrap() == 50));
    });
    assert!(queue.run(&[("x", &value(1.0))], &["0"]).is_ok());
}
