//! `W6`, `session`, `beam` and `queue`: the cost of generation, step by step.

use std::hint::black_box;
use std::time::Instant;

use ndarray::{Array1, Array2};
use unpadded::checkpoint::Checkpoint;
use unpadded::executor::Scope;
use unpadded::kernels::{PackedMatrix, RoundedRows, Transpose, View, ViewMut, product};
use unpadded::layers::Embedding;
use unpadded::op::Assign;
use unpadded::predict::{Beam, Generation, Predictor, Sampling};
use unpadded::{Builder, DType, Var, Variable, ops};

use crate::models::{Attends, decoder};
use crate::{Chosen, Outcome, data, memory};

/// A predictor of a model's first parameters.
fn predictor(net: Builder, output: Var, threads: usize) -> Outcome<Predictor> {
    let outputs = [("out".to_owned(), net.name_of(output))];
    let program = net.finish()?;
    let mut scope = Scope::of(&program)?;
    let mut checkpoint = Checkpoint::of(program, outputs);
    for (_, parameter) in checkpoint.program.vars().filter(|(_, var)| var.persistable) {
        checkpoint.tensors.insert(parameter.name.clone(), scope.value(&parameter.name)?);
    }
    Ok(Chosen::get().predictor(checkpoint)?.threads(threads))
}

/// The median of times in seconds.
fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// W6: embedding 10000×256 → LSTM(512) twice → linear 10000; 500 tokens after a prompt of 8 tokens, each the likeliest next
/// token; four times.
pub(crate) fn w6(threads: usize) -> Outcome<()> {
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let logits = words.embedding(Embedding::new(10_000, 256)).lstm(512).lstm(512).linear(10_000);
    let predictor = predictor(net, logits, threads)?;
    let mut sampler = Sampling::default().temperature(0.0).sampler(1)?;
    let (mut times, mut token) = (Vec::new(), Variable::dense(Array1::from(vec![1i64])));
    for _ in 0..4 {
        let mut session = predictor.session(&["out"])?;
        let mut step = |token: &mut Variable| -> Outcome<()> {
            session.step(&[("words", token)])?;
            let next = sampler.draw(session.output("out")?.as_slice()?)?;
            token.as_mut_slice()?[0] = next;
            Ok(())
        };
        for prompt in 1..=8 {
            token.as_mut_slice::<i64>()?[0] = prompt;
            step(&mut token)?;
        }
        for _ in 0..500 {
            let clock = Instant::now();
            step(&mut token)?;
            times.push(clock.elapsed().as_secs_f64());
        }
    }
    let (tokens, seconds): (f64, f64) = (times.len() as f64, times.iter().sum());
    let middle = median(&mut times);
    println!(
        r#"{{"peer":"unpadded","workload":"W6","precision":"{}","threads":{threads},"tokens_per_s":{:.0},"tokens_per_s_total":{:.0},"step_ms_median":{:.3},"peak_rss_mb":{:.0}}}"#,
        Chosen::get().name(),
        1.0 / middle,
        tokens / seconds,
        middle * 1e3,
        memory::peak_rss_mb().unwrap_or(f64::NAN)
    );
    Ok(())
}

/// A step of an LSTM(256) over rows of 256 numbers, beside the two products of a step alone, in turns.
pub(crate) fn session() -> Outcome<()> {
    const WIDTH: usize = 256;
    let net = Builder::new();
    let h = net.feed("x", DType::F32, &[WIDTH], 1).lstm(WIDTH);
    let predictor = predictor(net, h, 1)?;
    let mut session = predictor.session(&["out"])?;
    let number = |i: usize, j: usize| ((i * 31 + j * 7) % 17) as f32 * 0.01 - 0.08;
    let x = Variable::dense(Array2::from_shape_fn((1, WIDTH), |(i, j)| number(i, j)));
    let weights = Array2::from_shape_fn((WIDTH, 4 * WIDTH), |(i, j)| number(i, j));
    let packed = [(); 2].map(|()| {
        let mut packed = PackedMatrix::new();
        packed.pack(View::new(weights.as_slice().unwrap_or(&[]), WIDTH, 4 * WIDTH), Transpose::No, 1);
        packed
    });
    let mut out = vec![0.0f32; 4 * WIDTH];
    let (mut steps, mut products, mut rounded) = (Vec::new(), Vec::new(), RoundedRows::default());
    for round in 0..4000 {
        let clock = Instant::now();
        session.step(&[("x", &x)])?;
        let step = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        for (weights, store) in packed.iter().zip([Assign::Write, Assign::Add]) {
            let row = View::new(x.as_slice::<f32>()?, 1, WIDTH);
            product(row, weights, ViewMut::new(black_box(&mut out), 1, 4 * WIDTH), store, &mut rounded);
        }
        let alone = clock.elapsed().as_secs_f64();
        if round >= 200 {
            steps.push(step);
            products.push(alone);
        }
    }
    let (step, alone) = (median(&mut steps) * 1e6, median(&mut products) * 1e6);
    println!(
        r#"{{"peer":"unpadded","workload":"session","step_us":{step:.2},"products_us":{alone:.2},"ratio":{:.3},"step_us_min":{:.2},"products_us_min":{:.2}}}"#,
        step / alone,
        steps[0] * 1e6,
        products[0] * 1e6
    );
    Ok(())
}

/// The model of W5 writes 20 tokens for each of 64 sources: a beam of 8 beside the likeliest token alone, in turns.
pub(crate) fn beam(threads: usize, rounds: usize) -> Outcome<()> {
    const STEPS: usize = 20;
    const WIDTH: usize = 8;
    let net = Builder::new();
    let (_, logits) = decoder(&net, Attends::AsOne);
    let generator = predictor(net, logits, threads)?.generator("words", "out")?;
    let batches = data::pairs()?;
    let sources: Vec<Variable> = batches.iter().take(2).map(|(values, _)| values[0].clone()).collect();
    let sources = Variable::merge(&sources)?;
    let hypotheses = sources.batch_size();
    let feeds = [("source", &sources)];
    let options = Generation::new(0).max_steps(STEPS);
    let (mut one, mut many) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let clock = Instant::now();
        black_box(generator.greedy(&feeds, &options)?);
        let greedy = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        black_box(generator.beam(&feeds, &options, &Beam::new(WIDTH))?);
        let beam = clock.elapsed().as_secs_f64();
        if round > 0 {
            one.push(greedy / (hypotheses * STEPS) as f64);
            // The first step of a beam has one hypothesis a source.
            many.push(beam / (hypotheses * (1 + WIDTH * (STEPS - 1))) as f64);
        }
    }
    let (one, many) = (median(&mut one) * 1e6, median(&mut many) * 1e6);
    println!(
        r#"{{"peer":"unpadded","workload":"beam","threads":{threads},"greedy_us_per_hypothesis_step":{one:.2},"beam_us_per_hypothesis_step":{many:.2},"ratio":{:.3}}}"#,
        many / one
    );
    Ok(())
}

/// 64 callers that each run an LSTM(256) over 20 to 50 steps, again and again: by a queue, and one after another; and the waiting
/// time of a lone caller.
pub(crate) fn queue(threads: usize, rounds: usize) -> Outcome<()> {
    const CALLERS: usize = 64;
    let net = Builder::new();
    let words = net.feed("words", DType::I64, &[], 1);
    let last = words.embedding(Embedding::new(10_000, 128)).lstm(256).sequence_pool(ops::Pool::Last);
    let predictor = predictor(net, last, threads)?;
    let queue = predictor.clone().queue();
    let requests: Vec<Variable> = (0..CALLERS)
        .map(|i| {
            Variable::from_sequence(
                (0..20 + i * 31 % 31).map(|t| ((i * 97 + t * 13) % 10_000) as i64).collect(),
            )
        })
        .collect::<Result<_, _>>()?;
    let (mut alone, mut joined) = (Vec::new(), Vec::new());
    for round in 0..=rounds {
        let clock = Instant::now();
        for request in &requests {
            black_box(predictor.run(&[("words", request)], &["out"])?);
        }
        let serial = clock.elapsed().as_secs_f64() / CALLERS as f64;
        const EACH: usize = 8;
        let clock = Instant::now();
        let answered: usize = std::thread::scope(|scope| {
            let ask = |request| {
                let queue = &queue;
                scope.spawn(move || {
                    (0..EACH).filter(|_| queue.run(&[("words", request)], &["out"]).is_ok()).count()
                })
            };
            let callers: Vec<_> = requests.iter().map(ask).collect();
            callers.into_iter().map(|caller| caller.join().unwrap_or(0)).sum()
        });
        if answered != CALLERS * EACH {
            return Err(format!("expected {} answers, got {answered}", CALLERS * EACH).into());
        }
        if round > 0 {
            alone.push(serial);
            joined.push(clock.elapsed().as_secs_f64() / answered as f64);
        }
    }
    let (mut direct, mut queued) = (Vec::new(), Vec::new());
    for round in 0..600 {
        let clock = Instant::now();
        black_box(predictor.run(&[("words", &requests[10])], &["out"])?);
        let run = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        black_box(queue.run(&[("words", &requests[10])], &["out"])?);
        if round >= 100 {
            direct.push(run);
            queued.push(clock.elapsed().as_secs_f64());
        }
    }
    let (alone, joined) = (median(&mut alone) * 1e6, median(&mut joined) * 1e6);
    let (direct, queued) = (median(&mut direct) * 1e6, median(&mut queued) * 1e6);
    println!(
        r#"{{"peer":"unpadded","workload":"queue","threads":{threads},"one_by_one_us":{alone:.1},"joined_us":{joined:.1},"throughput":{:.2},"lone_direct_us":{direct:.1},"lone_queued_us":{queued:.1},"lone_ratio":{:.3}}}"#,
        alone / joined,
        queued / direct
    );
    Ok(())
}
