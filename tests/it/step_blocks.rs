//! The step executor against the reference interpreter: programs at random, and the cases that are hard by name.

mod attention;
mod cases;
mod checks;
pub(crate) mod generator;
mod training;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use unpadded::checkpoint::Checkpoint;
use unpadded::executor::{Executor, Run, Scope, Stage};
use unpadded::layers::init;
use unpadded::op::{MatrixUnit, Reach};
use unpadded::ops::catalogue;
use unpadded::program::VarId;
use unpadded::tensor::{Dense, StorageKind};
use unpadded::{DType, Mode, Result, Variable};

use crate::thorough::times;
use checks::{check, directional, updates};
pub(crate) use generator::F32;
use generator::{Case, Kind, callable, case, fed, mistake, seeds};

/// How many programs the suite runs of each kind.
const PROGRAMS: usize = 50;
const F64: Kind = Kind { dtype: DType::F64, ..F32 };

pub(crate) fn run<'a>(feeds: &'a [(VarId, &'a Variable)], numbers: &'a [u64]) -> Run<'a> {
    with!(Run::train(feeds, 2), mode: Mode::Train, numbers, places: &[], stage: Stage::Gradients)
}

/// The values of `fetch` after a run of the compiled program on buffers that it has used before.
pub(crate) fn compiled(
    case: &Case,
    fetch: &[VarId],
    feeds: &[(VarId, &Variable)],
    numbers: &[u64],
    threads: usize,
) -> Result<Vec<Dense>> {
    let mut used = Compiled::new(case, fetch, threads)?;
    used.run(feeds, numbers)?;
    let (memory, taken) = (used.executor.memory(&used.executor.counts_of_run()), used.executor.bytes());
    assert!(memory.buffers >= taken, "{taken} bytes of buffers, computed {memory:?}\n{}", case.program);
    used.run(feeds, numbers)
}

/// A compiled program and the variables to fetch.
struct Compiled {
    scope: Scope,
    executor: Executor,
    fetch: Vec<VarId>,
}

impl Compiled {
    fn new(case: &Case, fetch: &[VarId], threads: usize) -> Result<Self> {
        let executor = Executor::new(&case.program, &case.registry, fetch, threads)?;
        let executor = if threads == 3 { crate::models::divided(executor) } else { executor };
        Ok(Self { scope: Scope::of(&case.program)?, executor, fetch: fetch.to_vec() })
    }

    fn run(&mut self, feeds: &[(VarId, &Variable)], numbers: &[u64]) -> Result<Vec<Dense>> {
        self.executor.run(&mut self.scope, &run(feeds, numbers))?;
        self.fetch.iter().map(|&v| self.executor.fetch(v)?.into_parts().0.into_dense()).collect()
    }
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

/// The largest deviations, and statistics of the programs.
#[derive(Default, Debug)]
struct Worst {
    off: HashMap<&'static str, f64>,
    /// Programs with merged products, and programs whose loss is not finite or cannot be checked by differences.
    merged: usize,
    not_finite: usize,
    rough: usize,
    /// The refusals of the builder.
    refused: BTreeMap<String, usize>,
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

/// Each sequence by itself gives the bits that it gives in the batch: values, and gradients of feeds.
fn alone(case: &Case, all: &[VarId], batch: &[Dense], data: &[u64]) -> Check {
    let of_the_batch = checks::of_the_batch(case);
    let batched = |v: &VarId| case.program.spec(*v).unwrap().batched() && !of_the_batch.contains(v);
    let fetch: Vec<VarId> = all.iter().copied().filter(batched).collect();
    let mut parts: Vec<Vec<Dense>> = Vec::new();
    let err = |e: unpadded::Error| e.to_string();
    let mut used = Compiled::new(case, &fetch, 1).map_err(err)?;
    for (i, number) in data.iter().enumerate() {
        parts.push(used.run(&fed(&case.alone(i)), &[*number]).map_err(err)?);
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

fn hold(seeds: impl Iterator<Item = u64>, mut check: impl FnMut(u64, &mut Worst) -> Check) {
    let mut worst = Worst::default();
    let mut failures = Vec::new();
    let mut count = 0;
    for seed in seeds {
        count += 1;
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| check(seed, &mut worst)));
        match caught {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => {
                println!("seed {seed}: {}", failure.lines().next().unwrap_or_default());
                failures.push(format!("seed {seed}: {failure}"));
            }
            Err(panic) => {
                let text = panic.downcast_ref::<String>().cloned();
                let text = text.or(panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
                failures.push(format!("seed {seed}: panicked: {}", text.unwrap_or_default()));
            }
        }
    }
    let Worst { off, merged, not_finite, rough, refused } = worst;
    println!(
        "{count} programs, {merged} with merged calls, {not_finite} not finite, {rough} too rough, {} failures, \
         deviations {off:?}",
        failures.len()
    );
    refused.iter().for_each(|(words, count)| println!("{count} times refused: {words}"));
    failures.sort_by_key(String::len);
    failures.iter().for_each(|f| println!("{}", f.lines().next().unwrap_or_default()));
    assert!(failures.is_empty(), "{} of {count} failed; the smallest:\n{}", failures.len(), failures[0]);
    assert!(10 * (not_finite + rough) <= count, "{not_finite} not finite and {rough} too rough of {count}");
}

#[test]
fn compiled_programs_do_what_the_interpreter_does() {
    hold(seeds(PROGRAMS), |seed, worst| check(&made(seed, F32, worst)?, F32, worst));
}

#[test]
fn gradients_are_derivatives_in_a_direction() {
    let smooth = Kind { smooth: true, ..F64 };
    hold(seeds(PROGRAMS), |seed, worst| {
        let case = made(seed, smooth, worst)?;
        check(&case, smooth, worst)?;
        directional(seed, &case, worst)
    });
}

/// Programs with products in bf16, in the orders of both units, give the bits of the interpreter, on any number of threads and for
/// each sequence alone. Values that are not fetched may be stored in bf16, and gates may be saved in bf16.
#[test]
fn products_in_bf16_have_the_same_bits_in_any_program() {
    let [stored, saved] = [const { AtomicUsize::new(0) }; 2];
    for unit in [MatrixUnit::Bf16Pairs, MatrixUnit::Bf16Tiles] {
        hold(seeds(PROGRAMS / 2), |seed, worst| {
            let mut case = made(seed, F32, worst)?;
            case.program.unit = unit;
            let few: Vec<VarId> = case.gradients.iter().copied().chain([case.loss]).collect();
            let executor =
                Executor::new(&case.program, &case.registry, &few, 1).map_err(|e| e.to_string())?;
            let listing = executor.listing().to_string();
            let notes = ["in bf16, since only products read it", "in bf16 for the backward pass"];
            for (count, note) in [&stored, &saved].into_iter().zip(notes) {
                count.fetch_add(usize::from(listing.contains(note)), Ordering::Relaxed);
            }
            check(&case, F32, worst)
        });
    }
    let [stored, saved] = [stored, saved].map(AtomicUsize::into_inner);
    println!("{stored} of {} programs store values in bf16, {saved} save gates in bf16", PROGRAMS / 2 * 2);
    assert!(stored > 0 && saved > 0, "no program stores a value in bf16, or none saves a value in bf16");
}

/// The unit multiplies numbers in f32; a program in f64 has the same bits with any unit.
#[test]
fn programs_in_f64_do_not_change_in_bf16() {
    hold(seeds(PROGRAMS / 5), |seed, worst| {
        let mut case = made(seed, F64, worst)?;
        let all: Vec<VarId> = case.values.iter().chain(&case.gradients).copied().collect();
        let run = |case: &Case| compiled(case, &all, &case.fed(), &[], 2).map_err(|e| e.to_string());
        let expected = run(&case)?;
        case.program.unit = MatrixUnit::Bf16Tiles;
        let same = run(&case)?.iter().zip(&expected).all(|(a, b)| a.bits_eq(b));
        if same { Ok(()) } else { Err(format!("other bits\n{}", case.program)) }
    });
}

#[test]
fn lanes_of_large_loops_give_the_same_bits() {
    let wide = Kind { wide: true, ..F32 };
    hold(seeds(4), |seed, worst| check(&made(seed, wide, worst)?, wide, worst));
}

/// The forward pass of a program whose weights are 8-bit integers gives the bits of the interpreter, on any number of threads and
/// for each sequence alone. The codes are drawn like any first value.
#[test]
fn products_of_codes_have_the_same_bits_in_any_program() {
    let wide = Kind { wide: true, ..F32 };
    let coded = AtomicUsize::new(0);
    hold(seeds(PROGRAMS / 8), |seed, worst| {
        let mut case = made(seed, wide, worst)?;
        let outputs = case.values.iter().enumerate();
        let outputs = outputs.map(|(i, &id)| (i.to_string(), case.program.var(id).name.clone()));
        let mut checkpoint = Checkpoint::of(case.program.clone(), outputs.collect::<BTreeMap<_, _>>());
        let mut scope = Scope::of(&case.program).map_err(|e| e.to_string())?;
        for name in scope.names().map(str::to_owned).collect::<Vec<_>>() {
            let value = scope.value(&name).map_err(|e| e.to_string())?;
            checkpoint.tensors.insert(name, value);
        }
        match checkpoint.quantize(&catalogue()) {
            Ok(found) => case.program = found.program,
            Err(error) if error.to_string().contains("got none") => return Ok(()),
            Err(error) => return Err(error.to_string()),
        }
        coded.fetch_add(1, Ordering::Relaxed);
        let parameters: Vec<VarId> = case.program.parameters().collect();
        for id in parameters {
            let desc = case.program.var_mut(id);
            if desc.name.ends_with(".scale") {
                desc.initializer = Some(init::uniform(0.0, 0.01));
            } else if desc.spec().is_some_and(|spec| spec.dtype == DType::I8) {
                desc.initializer = Some(init::uniform(-127.0, 127.0));
            }
        }
        case.gradients.clear();
        let all = case.values.clone();
        check(&case, wide, worst)?;
        let data: Vec<u64> = (0..case.fed()[0].1.batch_size() as u64).collect();
        let one = compiled(&case, &all, &case.fed(), &data, 1).map_err(|e| e.to_string())?;
        alone(&case, &all, &one, &data)
    });
    assert!(coded.into_inner() > 0, "no program had a weight to quantize");
}

#[test]
fn updates_follow_from_the_gradients() {
    hold(seeds(PROGRAMS / 2), |seed, worst| updates(seed, &made(seed, F64, worst)?));
}

/// Holds a program in f64 to the interpreter and its gradients to differences.
pub(crate) fn holds(case: &Case) -> Check {
    let mut worst = Worst::default();
    check(case, F64, &mut worst)?;
    directional(1, case, &mut worst)?;
    if worst.rough > 0 { Err("too rough for differences".to_owned()) } else { Ok(()) }
}

fn made(seed: u64, kind: Kind, worst: &mut Worst) -> Result<Case, String> {
    let case = case(seed, kind).map_err(|e| format!("building: {e}"))?;
    for (words, count) in &case.refused {
        *worst.refused.entry(words.clone()).or_default() += count;
    }
    match case.wrong.first() {
        Some(error) => Err(format!("refused by no word of a user's: {error}\n{}", case.program)),
        None => Ok(case),
    }
}

/// Random programs contain every operator of the catalogue; this fails for a new operator that the generator cannot call.
#[test]
fn every_operator_stands_in_programs_at_the_root_and_in_blocks() {
    let registry = catalogue();
    let mut missing: BTreeSet<(usize, &'static str)> = BTreeSet::new();
    for kind in callable(&registry) {
        let sample = registry.samples(kind).unwrap().remove(0);
        let op = registry.parse(kind, &sample.attributes).unwrap();
        // No block has rows that are not dense.
        let kernels = op.signature().kernels;
        let dense =
            |kernel: &&[&[StorageKind]]| kernel.iter().all(|storages| storages.contains(&StorageKind::Dense));
        let sparse = !kernels.is_empty() && !kernels.iter().any(dense);
        // At the root, in a block, and in a block of a block.
        let depths = if op.facts().reach == Reach::Batch || sparse { 0..1 } else { 0..3 };
        missing.extend(depths.map(|depth| (depth, kind)));
    }
    // Programs at random, then a few at a time that call more often what is still missing.
    const AT_RANDOM: u64 = 256;
    const TOGETHER: u64 = 16;
    for first in (0..6000).step_by(TOGETHER as usize) {
        let Some(&(_, rare)) = missing.first() else { break };
        let kind = Kind { often: (first >= AT_RANDOM).then_some(rare), ..F32 };
        let seeds = (first..first + TOGETHER).into_par_iter();
        let called: Vec<_> = seeds.flat_map_iter(|seed| calls(&case(seed, kind).unwrap())).collect();
        missing.retain(|(depth, kind)| !called.iter().any(|(at, call)| at == depth && call == kind));
    }
    assert!(missing.is_empty(), "the generator calls these nowhere, by the depth of the block: {missing:?}");
}

/// The operators that a program calls, each with the depth of its block, at most 2.
fn calls(case: &Case) -> Vec<(usize, String)> {
    let program = &case.forward;
    let depth = |id| (program.blocks().filter(|(outer, _)| program.encloses(*outer, id)).count() - 1).min(2);
    let calls = program.blocks().flat_map(|(id, block)| {
        let depth = depth(id);
        block.ops.iter().map(move |op| (depth, op.kind.clone()))
    });
    calls.collect()
}

/// The kind of an operator and its number, as errors name it.
fn numbered(operator: &str) -> (&str, usize) {
    let (kind, number) = operator.split_once(" #").unwrap_or((operator, ""));
    (kind, number.parse().unwrap_or(usize::MAX - 2))
}

/// Programs at random with one wrong call each, whose unknown result is used as the right one would be: one error, which
/// names that call and its line.
#[test]
fn one_mistake_is_one_error() {
    let mut wrong = Vec::new();
    let mut made = 0;
    for seed in 0..times(300) as u64 {
        let Some((errors, (operator, block))) = mistake(seed).unwrap() else { continue };
        made += 1;
        let [error] = &errors[..] else {
            wrong.push(format!("{seed}: {operator}: {} errors: {errors:?}", errors.len()));
            continue;
        };
        let place = error.place();
        let line = place.caller.as_deref().is_some_and(|line| line.contains("attempts.rs"));
        // Conversions to dense come before the call, and have numbers, too.
        let known = place.operator.as_ref().is_some_and(|named| {
            let (kind, number) = numbered(&operator);
            let (named, at) = numbered(named);
            named == kind && (number..=number + 2).contains(&at)
        });
        if (known, place.block, line) != (true, block, true) {
            wrong.push(format!("{seed}: expected {operator} in {block:?}: {error}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {made}\n{}", wrong.len(), wrong[..wrong.len().min(10)].join("\n"));
    assert!(made > 250, "{made}");
}
