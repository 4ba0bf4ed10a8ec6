//! The step executor against the reference interpreter: programs at random, and the cases that are hard by name.

mod cases;
pub(crate) mod generator;

use std::collections::HashMap;

use unpadded::executor::{Executor, Run, Scope, Stage, interpret};
use unpadded::program::VarId;
use unpadded::tensor::Dense;
use unpadded::{DType, Mode, Result, Variable};

use generator::{Case, Kind, case};

/// How many programs the suite runs of each kind.
const PROGRAMS: u64 = 240;
pub(crate) const F32: Kind = Kind { dtype: DType::F32, smooth: false, wide: false };
const F64: Kind = Kind { dtype: DType::F64, ..F32 };

pub(crate) fn run<'a>(feeds: &'a [(VarId, &'a Variable)], numbers: &'a [u64]) -> Run<'a> {
    Run { feeds, mode: Mode::Train, step: 2, numbers, places: &[], stage: Stage::Gradients }
}

/// The values of `fetch` after a run of the compiled program.
pub(crate) fn compiled(
    case: &Case,
    fetch: &[VarId],
    feeds: &[(VarId, &Variable)],
    numbers: &[u64],
    threads: usize,
) -> Result<Vec<Dense>> {
    let mut scope = Scope::of(&case.program)?;
    let mut executor = Executor::new(&case.program, &case.registry, fetch, threads)?;
    // A first run on other data would leave its values behind: the second must not see them.
    executor.run(&mut scope, &run(feeds, numbers))?;
    executor.run(&mut scope, &run(feeds, numbers))?;
    fetch.iter().map(|&v| executor.fetch(v)?.into_parts().0.into_dense()).collect()
}

pub(crate) fn numbers(value: &Dense) -> Vec<f64> {
    value.cast(DType::F64).as_slice::<f64>().unwrap().to_vec()
}

fn largest(values: &[f64]) -> f64 {
    values.iter().filter(|x| x.is_finite()).fold(0.0, |m, x| f64::max(m, x.abs()))
}

/// The largest distance, relative to the scale: the largest number of this value, or a thousandth of all.
pub(crate) fn distance(a: &Dense, b: &Dense, all: f64) -> f64 {
    let (a, b) = (numbers(a), numbers(b));
    assert_eq!(a.len(), b.len());
    let scale = largest(&b).max(all * 1e-3).max(1e-12);
    // A random program may overflow: then both must.
    let far = |(x, y): (&f64, &f64)| match (x.is_finite(), y.is_finite()) {
        (true, true) => (x - y).abs(),
        (false, false) => 0.0,
        _ => f64::INFINITY,
    };
    a.iter().zip(&b).map(far).fold(0.0, f64::max) / scale
}

/// The farthest that anything was off, and in how many programs something was merged.
#[derive(Default, Debug)]
struct Worst {
    off: HashMap<&'static str, f64>,
    merged: usize,
}

impl Worst {
    fn note(&mut self, what: &'static str, distance: f64) {
        let worst = self.off.entry(what).or_default();
        *worst = worst.max(distance);
    }
}

type Check = Result<(), String>;

fn name(case: &Case, var: VarId) -> String {
    format!("`{}` {}", case.program.var(var).name, case.program.spec(var).unwrap())
}

/// Everything that a seed is held to.
fn check(seed: u64, kind: Kind, worst: &mut Worst) -> Check {
    let case = case(seed, kind).map_err(|e| format!("building: {e}"))?;
    let told = |what: String| format!("{what}\n{}", case.program);
    let err = |e: unpadded::Error| told(e.to_string());
    let fed = case.fed();
    let batch = fed[0].1.batch_size();
    let data: Vec<u64> = (0..batch as u64).map(|i| i * 7 + 3).collect();
    let mut scope = Scope::of(&case.program).map_err(err)?;
    let reference = interpret(&case.program, &case.registry, &mut scope, &run(&fed, &data)).map_err(err)?;
    let all: Vec<VarId> = case.values.iter().chain(&case.gradients).copied().collect();
    let one = compiled(&case, &all, &fed, &data, 1).map_err(err)?;
    let executor = Executor::new(&case.program, &case.registry, &all, 1).map_err(err)?;
    worst.merged += usize::from(executor.listing().to_string().contains(" as one"));
    let expect = |var: VarId| -> Result<Dense, String> {
        let value = reference.get(&var).ok_or_else(|| told(format!("{} is missing", name(&case, var))))?;
        value.storage().to_dense().map(|d| d.into_owned()).map_err(err)
    };
    let mut scale = 0.0f64;
    for &var in &case.gradients {
        scale = scale.max(largest(&numbers(&expect(var)?)));
    }
    let tolerance = if kind.dtype == DType::F32 { 1e-4 } else { 1e-11 };
    for (k, &var) in all.iter().enumerate() {
        let expected = expect(var)?;
        if k < case.values.len() {
            if !expected.bits_eq(&one[k]) {
                return Err(told(format!("{}: {expected:?} became {:?}", name(&case, var), one[k])));
            }
            continue;
        }
        let far = distance(&one[k], &expected, scale);
        worst.note("gradients", far);
        if far > tolerance || one[k].shape() != expected.shape() {
            let what =
                format!("gradient {}, off by {far}: {expected:?} became {:?}", name(&case, var), one[k]);
            return Err(told(what));
        }
    }
    let two = compiled(&case, &all, &fed, &data, 2).map_err(err)?;
    // Other values to fetch give other lifetimes and other buffers.
    let few: Vec<VarId> = [case.loss].into_iter().chain(case.gradients.iter().copied()).collect();
    let fewer = compiled(&case, &few, &fed, &data, 1).map_err(err)?;
    for (k, &var) in all.iter().enumerate() {
        if !one[k].bits_eq(&two[k]) {
            return Err(told(format!("{}: other bits on two threads", name(&case, var))));
        }
        let at = few.iter().position(|&v| v == var);
        if at.is_some_and(|at| !one[k].bits_eq(&fewer[at])) {
            return Err(told(format!("{}: other bits when less is fetched", name(&case, var))));
        }
    }
    if kind.wide { Ok(()) } else { alone(&case, &all, &one, &data).map_err(told) }
}

/// Each sequence by itself gives the bits that it gives in the batch: values, and gradients of feeds.
fn alone(case: &Case, all: &[VarId], batch: &[Dense], data: &[u64]) -> Check {
    let batched = |v: &VarId| case.program.spec(*v).unwrap().batched();
    let fetch: Vec<VarId> = all.iter().copied().filter(batched).collect();
    let mut parts: Vec<Vec<Dense>> = Vec::new();
    for (i, number) in data.iter().enumerate() {
        let feeds = case.alone(i);
        let feeds: Vec<_> = feeds.iter().map(|(id, v)| (*id, v)).collect();
        let values = compiled(case, &fetch, &feeds, &[*number], 1).map_err(|e| e.to_string())?;
        parts.push(values);
    }
    for (k, var) in fetch.iter().enumerate() {
        let rows: Vec<&Dense> = parts.iter().map(|p| &p[k]).collect();
        if rows.is_empty() {
            continue;
        }
        let whole = &batch[all.iter().position(|v| v == var).unwrap()];
        let together = Dense::concat_rows(&rows).map_err(|e| e.to_string())?;
        if !together.bits_eq(whole) {
            return Err(format!(
                "{}: sequences alone gave {together:?}, the batch {whole:?}",
                name(case, *var)
            ));
        }
    }
    Ok(())
}

/// Central differences of the loss by a few numbers of every feed and parameter.
fn differences(seed: u64, worst: &mut Worst) -> Check {
    let case = case(seed, Kind { smooth: true, ..F64 }).map_err(|e| format!("building: {e}"))?;
    let told = |what: String| format!("{what}\n{}", case.program);
    let err = |e: unpadded::Error| told(e.to_string());
    let fed = case.fed();
    let mut scope = Scope::of(&case.program).map_err(err)?;
    let mut executor = Executor::new(&case.program, &case.registry, &case.gradients, 1).map_err(err)?;
    executor.run(&mut scope, &run(&fed, &[])).map_err(err)?;
    let mut forward = Executor::new(&case.program, &case.registry, &[case.loss], 1).map_err(err)?;
    let h = 1e-5;
    let mut dice = generator::Dice::new(seed);
    for &grad in &case.gradients {
        let value = executor.fetch(grad).map_err(err)?.into_parts().0.into_dense().map_err(err)?;
        let slopes = numbers(&value);
        let of = case.program.var(grad).gradient_of.unwrap();
        for _ in 0..slopes.len().min(3) {
            let at = dice.below(slopes.len());
            let mut loss = |by: f64| -> Result<f64> {
                let mut moved: Vec<(VarId, Variable)> = case.feeds.clone();
                let name = &case.program.var(of).name;
                match moved.iter_mut().find(|(id, _)| *id == of) {
                    Some((_, value)) => value.as_mut_slice::<f64>()?[at] += by,
                    None => {
                        let mut value = scope.get(name)?;
                        value.as_mut_slice::<f64>()?[at] += by;
                        scope.set(name, value)?;
                    }
                }
                let feeds: Vec<_> = moved.iter().map(|(id, v)| (*id, v)).collect();
                forward.run(&mut scope, &run(&feeds, &[]))?;
                if moved.iter().all(|(id, _)| *id != of) {
                    let mut value = scope.get(name)?;
                    value.as_mut_slice::<f64>()?[at] -= by;
                    scope.set(name, value)?;
                }
                forward.scalar(case.loss)
            };
            let slope = (loss(h).map_err(err)? - loss(-h).map_err(err)?) / (2.0 * h);
            let far = (slope - slopes[at]).abs() / slope.abs().max(largest(&slopes)).max(1e-2);
            worst.note("differences", far);
            if far > 1e-5 {
                let what = format!(
                    "gradient {} at {at}: {} by differences, got {}",
                    name(&case, grad),
                    slope,
                    slopes[at]
                );
                return Err(told(what));
            }
        }
    }
    Ok(())
}

fn hold(seeds: impl Iterator<Item = u64>, mut check: impl FnMut(u64, &mut Worst) -> Check) {
    let mut worst = Worst::default();
    let mut failures = Vec::new();
    let mut count = 0;
    for seed in seeds {
        count += 1;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(seed, &mut worst)));
        match caught {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => failures.push(format!("seed {seed}: {failure}")),
            Err(panic) => {
                let said = panic.downcast_ref::<String>().cloned();
                let said = said.or(panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                failures.push(format!("seed {seed}: panicked: {}", said.unwrap_or_default()));
            }
        }
    }
    let Worst { off, merged } = worst;
    println!("{count} programs, {merged} with merged calls, {} failures, deviations {off:?}", failures.len());
    failures.sort_by_key(String::len);
    failures.iter().for_each(|f| println!("{}", f.lines().next().unwrap_or_default()));
    assert!(failures.is_empty(), "{} of {count} failed; the smallest:\n{}", failures.len(), failures[0]);
}

/// `UNPADDED_SEEDS=first..end` runs other seeds than the suite's.
fn seeds(count: u64) -> std::ops::Range<u64> {
    let asked = std::env::var("UNPADDED_SEEDS").ok();
    let range = asked.as_ref().and_then(|text| text.split_once(".."));
    range.map_or(0..count, |(a, b)| a.parse().unwrap()..b.parse().unwrap())
}

#[test]
fn compiled_programs_do_what_the_interpreter_does() {
    hold(seeds(PROGRAMS), |seed, worst| check(seed, F32, worst));
}

#[test]
fn in_double_precision_too() {
    hold(seeds(PROGRAMS / 2), |seed, worst| check(seed, F64, worst));
}

#[test]
fn lanes_of_large_loops_give_the_same_bits() {
    hold(seeds(6), |seed, worst| check(seed, Kind { wide: true, ..F32 }, worst));
}

#[test]
fn gradients_are_central_differences() {
    hold(seeds(60), differences);
}
