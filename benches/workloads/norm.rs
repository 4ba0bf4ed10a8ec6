//! Layer norm and root mean square norm over 100 MB, beside a copy of the same bytes on as many threads in the same run.
//!
//! Forward reads 100 MB and writes 100; backward reads the rows and the gradient of the result, and writes the gradients of the
//! rows, of the gain and of the bias: it is compared with a copy of 150 MB to 150 MB.

use std::time::Instant;

use ndarray::{Array1, Array2};
use unpadded::executor::{Executor, Profile, Run, Scope, Stage};
use unpadded::layers::init;
use unpadded::program::backward;
use unpadded::{Builder, DType, Lod, Variable};

use crate::Outcome;

const BYTES: usize = 100 << 20;
const WIDTHS: [usize; 2] = [512, 64];
const KINDS: [&str; 2] = ["layer_norm", "rms_norm"];

/// Medians in milliseconds: of each kind forward and backward, with the copies that were made in turns with them.
pub(crate) fn run(threads: usize, rounds: usize) -> Outcome<()> {
    for width in WIDTHS {
        for kind in KINDS {
            println!("{}", measure(kind, width, threads, rounds)?);
        }
    }
    Ok(())
}

fn measure(kind: &str, width: usize, threads: usize, rounds: usize) -> Outcome<String> {
    let rows = BYTES / size_of::<f32>() / width;
    let net = Builder::new();
    let x = net.feed("x", DType::F32, &[width], 1);
    let upstream = net.feed_like("upstream", DType::F32, &[width], x);
    net.watch(x);
    let gain = net.parameter("gain", DType::F32, &[width], init::constant(1.0));
    let out = if kind == "rms_norm" {
        x.rms_norm(Some(gain), 1e-5)
    } else {
        let bias = net.parameter("bias", DType::F32, &[width], init::zeros());
        x.layer_norm(Some(gain), Some(bias), 1e-5)
    };
    let forward = net.program()?.inference(&[out.id()])?;
    let loss = (out * upstream).sum();
    let (registry, mut program) = (net.registry(), net.finish()?);
    let gradients = backward::differentiate(&mut program, &registry, loss.id())?;
    let wanted: Vec<_> = [x, gain].iter().map(|var| gradients[&var.id()]).collect();

    let lod = Lod::from_lengths1(&vec![1; rows])?;
    let number = |at: usize| ((at * 2_654_435_761 % 1000) as f32 - 500.0) * 0.004;
    let values = Array2::from_shape_fn((rows, width), |(i, j)| number(i * width + j));
    let values = Variable::sequences(values, lod.clone())?;
    let slopes = Variable::sequences(Array2::from_shape_fn((rows, width), |(i, j)| number(i + j)), lod)?;
    let mut scope = Scope::of(&program)?;

    // A copy of the bytes that forward touches, and a copy of the bytes that backward touches.
    let source = Array1::<f32>::ones(rows * width * 3 / 2).to_vec();
    let mut target = vec![0.5f32; source.len()];
    let (mut times, mut copies) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    let mut of_forward = Executor::new(&forward, &registry, &[out.id()], threads)?;
    let mut of_both = Executor::new(&program, &registry, &wanted, threads)?;
    for round in 0..=rounds {
        let fed = [(x.id(), &values)];
        of_forward.start_profile();
        of_forward.run(&mut scope, &Run::infer(&fed))?;
        let first = time_of(of_forward.take_profile(), kind)?;
        let first_copy = copy(&source[..rows * width], &mut target[..rows * width], threads);
        let fed = [(x.id(), &values), (upstream.id(), &slopes)];
        of_both.start_profile();
        of_both.run(&mut scope, &Run::train(&fed, 0).until(Stage::Gradients))?;
        let second = time_of(of_both.take_profile(), "backward")?;
        let second_copy = copy(&source, &mut target, threads);
        if round > 0 {
            times[0].push(first);
            times[1].push(second);
            copies[0].push(first_copy);
            copies[1].push(second_copy);
        }
    }
    let [forward, backward] = times.map(median);
    let [copied, copied_more] = copies.map(median);
    Ok(format!(
        concat!(
            r#"{{"peer":"unpadded","version":"{}","workload":"norm","mode":"{}","threads":{},"rows":{},"width":{},"#,
            r#""forward_ms":{:.2},"copy_ms":{:.2},"ratio_forward":{:.3},"#,
            r#""backward_ms":{:.2},"copy_of_backward_ms":{:.2},"ratio_backward":{:.3},"rounds":{}}}"#
        ),
        env!("CARGO_PKG_VERSION"),
        kind,
        threads,
        rows,
        width,
        forward,
        copied,
        forward / copied,
        backward,
        copied_more,
        backward / copied_more,
        rounds
    ))
}

/// Milliseconds in the entries of a norm whose operator has this word in its name.
fn time_of(profile: Option<Profile>, word: &str) -> Outcome<f64> {
    let profile = profile.ok_or("no profile")?;
    let of_norm = profile.entries.iter().filter(|e| e.operator.contains("norm") && e.operator.contains(word));
    Ok(of_norm.map(|entry| entry.time.as_secs_f64() * 1e3).sum())
}

/// Returns the milliseconds of a copy that the threads of rayon's pool share, like the threads of an executor.
fn copy(from: &[f32], to: &mut [f32], threads: usize) -> f64 {
    fn share(from: &[f32], to: &mut [f32], threads: usize) {
        if threads < 2 {
            return to.copy_from_slice(from);
        }
        let left = threads / 2;
        let middle = from.len() * left / threads;
        let ((a, b), (c, d)) = (from.split_at(middle), to.split_at_mut(middle));
        rayon::join(|| share(a, c, left), || share(b, d, threads - left));
    }
    let clock = Instant::now();
    share(from, to, threads);
    clock.elapsed().as_secs_f64() * 1e3
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}
