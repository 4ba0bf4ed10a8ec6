//! Does building scale linearly with a program's size? The seconds of each phase before a program runs, at sizes that double.

use std::time::Instant;

use unpadded::executor::Executor;
use unpadded::ops::Pool;
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::program::backward;
use unpadded::{Builder, DType, Program, Result, Var};

use crate::Outcome;

/// A family of programs: its name, the function that grows it, and its sizes.
type Family = (&'static str, fn(&Builder, Var, usize) -> Var, &'static [usize]);

const FAMILIES: [Family; 3] = [
    ("pairs in a step", in_a_step, &[1000, 2000, 4000, 8000]),
    ("pairs at the root", at_the_root, &[1000, 2000, 4000, 8000]),
    ("LSTM layers", layers, &[50, 100, 200, 400, 800, 1600]),
];

/// Pairs of `add` and `tanh` in one step block.
fn in_a_step(net: &Builder, x: Var, pairs: usize) -> Var {
    net.recurrent(x, |step, x_t| {
        let before = step.memory(8);
        let after = chain(before + x_t, x_t, pairs);
        step.update(before, after);
        after
    })
}

fn at_the_root(_: &Builder, x: Var, pairs: usize) -> Var {
    chain(x, x, pairs)
}

fn chain(h: Var, x: Var, pairs: usize) -> Var {
    (0..pairs).fold(h, |h, _| (h + x).tanh())
}

fn layers(_: &Builder, x: Var, layers: usize) -> Var {
    (0..layers).fold(x, |h, _| h.lstm(8))
}

/// Seconds of a call, and what it returned.
fn timed<T>(call: impl FnOnce() -> Result<T>) -> Result<(f64, T)> {
    let clock = Instant::now();
    let made = call()?;
    Ok((clock.elapsed().as_secs_f64(), made))
}

pub(crate) fn run() -> Outcome<()> {
    println!(
        "| program | size | build | differentiate | minimize | validate | to bytes | from bytes | compile | list |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|");
    for (name, grow, sizes) in FAMILIES {
        for &size in sizes {
            // The least of three: other load of the machine only adds time.
            let mut least = phases(grow, size)?;
            for _ in 0..2 {
                let again = phases(grow, size)?;
                least.iter_mut().zip(again).for_each(|(least, seconds)| *least = least.min(seconds));
            }
            println!("| {name} | {size} |{} |", least.map(|seconds| format!(" {seconds:.4}")).join(" |"));
        }
    }
    Ok(())
}

/// The seconds of each column of the table.
fn phases(grow: fn(&Builder, Var, usize) -> Var, size: usize) -> Result<[f64; 8]> {
    let net = Builder::new();
    let registry = net.registry();
    let (build, (loss, forward)) = timed(|| {
        let x = net.feed("x", DType::F32, &[8], 1).linear(8);
        let loss = grow(&net, x, size).sequence_pool(Pool::Last).mean();
        Ok((loss, net.finish()?))
    })?;
    let (differentiate, _) = timed(|| backward::append(&mut forward.clone(), &registry, loss.id()))?;
    let mut program = forward.clone();
    let adam = Adam::new(1e-3).clip_global_norm(1.0);
    let (minimize, _) = timed(|| adam.minimize(&mut program, &registry, loss.id()))?;
    let (validate, ()) = timed(|| program.validate())?;
    // With gradients the largest are longer than a file may be.
    let (to_bytes, bytes) = timed(|| forward.to_bytes())?;
    let (from_bytes, _) = timed(|| Program::from_bytes(&bytes))?;
    let (compile, executor) = timed(|| Executor::new(&program, &registry, &[loss.id()], 1))?;
    let (list, _) = timed(|| Ok(executor.listing().to_string()))?;
    Ok([build, differentiate, minimize, validate, to_bytes, from_bytes, compile, list])
}
