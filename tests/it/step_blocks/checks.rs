//! The checks of a random program.

use std::collections::HashSet;

use unpadded::executor::{Executor, Scope, Stage, interpret};
use unpadded::op::{MatrixUnit, Reach};
use unpadded::optimizer::{Adagrad, Adam, Optimizer, Sgd};
use unpadded::program::{Role, VarId};
use unpadded::tensor::Dense;
use unpadded::{DType, Result};

use super::generator::{Batch, Case, Dice, Kind, fed};
use super::{Check, Compiled, Worst, alone, compiled, distance, largest, name, numbers, run};

/// Checks all properties that do not depend on the kind: values and gradients equal the interpreter's, on any number of threads,
/// whatever ran before, whatever is fetched, and for each sequence alone.
pub(super) fn check(case: &Case, kind: Kind, worst: &mut Worst) -> Check {
    let with_program = |what: String| format!("{what}\n{}", case.program);
    let err = |e: unpadded::Error| with_program(e.to_string());
    let fed = case.fed();
    let batch = fed[0].1.batch_size();
    let data: Vec<u64> = (0..batch as u64).map(|i| i * 7 + 3).collect();
    let mut scope = Scope::of(&case.program).map_err(err)?;
    let reference = interpret(&case.program, &case.registry, &mut scope, &run(&fed, &data)).map_err(err)?;
    let all: Vec<VarId> = case.values.iter().chain(&case.gradients).copied().collect();
    let one = compiled(case, &all, &fed, &data, 1).map_err(err)?;
    let executor = Executor::new(&case.program, &case.registry, &all, 1).map_err(err)?;
    worst.merged += usize::from(executor.listing().to_string().contains(" as one"));
    let expect = |var: VarId| -> Result<Dense, String> {
        let value =
            reference.get(&var).ok_or_else(|| with_program(format!("{} is missing", name(case, var))))?;
        value.storage().to_dense().map(|d| d.into_owned()).map_err(err)
    };
    worst.not_finite += usize::from(!numbers(&expect(case.loss)?)[0].is_finite());
    let mut scale = 0.0f64;
    for &var in &case.gradients {
        scale = scale.max(largest(&numbers(&expect(var)?)));
    }
    // The compiler may sum in another order than the interpreter. In bf16, a sum that differs by a rounding can become another
    // number of 8 bits when it is an operand of the next product.
    let tolerance = match (kind.dtype, case.program.unit) {
        (DType::F32, MatrixUnit::F32) => 1e-4,
        (DType::F32, _) => 5e-2,
        _ => 1e-11,
    };
    for (k, &var) in all.iter().enumerate() {
        let expected = expect(var)?;
        if one[k].shape() != expected.shape() || one[k].dtype() != expected.dtype() {
            return Err(with_program(format!("{}: {expected:?} became {:?}", name(case, var), one[k])));
        }
        if k < case.values.len() {
            if !expected.bits_eq(&one[k]) {
                return Err(with_program(format!("{}: {expected:?} became {:?}", name(case, var), one[k])));
            }
            continue;
        }
        let far = distance(&one[k], &expected, scale);
        worst.note("gradients", far);
        if far > tolerance {
            let what =
                format!("gradient {}, off by {far}: {expected:?} became {:?}", name(case, var), one[k]);
            return Err(with_program(what));
        }
    }
    // Buffers that other batches have used, on several threads.
    let others: Vec<&Batch> = case.others.iter().collect();
    let [larger, smaller, empty, none] = others[..] else { return Err("other batches are missing".into()) };
    let uses: [(usize, &[&Batch]); 4] =
        [(1, &[larger, smaller]), (2, &[none, larger]), (3, &[smaller, empty]), (7, &[larger, none, empty])];
    for (threads, before) in uses {
        let mut used = Compiled::new(case, &all, threads).map_err(err)?;
        for batch in before {
            let numbers: Vec<u64> = (0..batch[0].1.batch_size() as u64).collect();
            used.run(&super::fed(batch), &numbers).map_err(err)?;
        }
        let again = used.run(&fed, &data).map_err(err)?;
        if let Some(k) = (0..all.len()).find(|&k| !one[k].bits_eq(&again[k])) {
            let what = format!("{}: other bits on {threads} threads after other batches", name(case, all[k]));
            return Err(with_program(format!("{what}: {:?} became {:?}", one[k], again[k])));
        }
    }
    // Other values to fetch give other lifetimes and other buffers.
    let few: Vec<VarId> = [case.loss].into_iter().chain(case.gradients.iter().copied()).collect();
    let single = all[(batch + all.len()) / 2 % all.len()];
    for fetch in [few, vec![single]] {
        let fewer = Compiled::new(case, &fetch, 1).and_then(|mut c| c.run(&fed, &data)).map_err(err)?;
        for (var, value) in fetch.iter().zip(&fewer) {
            let at = all.iter().position(|v| v == var).unwrap_or(0);
            if !one[at].bits_eq(value) {
                return Err(with_program(format!("{}: other bits when less is fetched", name(case, *var))));
            }
        }
    }
    if kind.wide { Ok(()) } else { alone(case, &all, &one, &data).map_err(with_program) }
}

/// Returns the variables that depend on more than their own sequence, for example on a sum over the batch.
pub(super) fn of_the_batch(case: &Case) -> HashSet<VarId> {
    let program = &case.program;
    let batched = |v: &VarId| program.var(*v).spec().is_some_and(|s| s.batched());
    let mut found = HashSet::new();
    for op in &program.root().ops {
        let reads: Vec<VarId> = op.reads().collect();
        let facts = case.registry.parse(&op.kind, &op.attributes).ok().map(|o| o.facts());
        let reach = facts.is_some_and(|facts| facts.reach == Reach::Batch);
        // The gradient of a mean has the size of the batch in it.
        let wide = op.role == Role::Backward && op.kind != "sum" && op.step.is_none() && reach;
        let wide = wide && !op.kind.starts_with("sequence_");
        // A batch norm gives rows that are made of the averages over all rows.
        let whole = op.role == Role::Forward && facts.is_some_and(|facts| facts.batch_dependent);
        let tainted = wide || whole || reads.iter().any(|v| found.contains(v));
        let reduces = op.role == Role::Forward && reads.iter().any(batched);
        for var in op.writes() {
            if tainted || (reduces && !batched(&var)) {
                found.insert(var);
            }
        }
    }
    found
}

/// The derivative of the loss in one random direction of all parameters and feeds, by differences in f64.
pub(super) fn directional(seed: u64, case: &Case, worst: &mut Worst) -> Check {
    let with_program = |what: String| format!("{what}\n{}", case.program);
    let err = |e: unpadded::Error| with_program(e.to_string());
    let fed_ = case.fed();
    let data: Vec<u64> = (0..fed_[0].1.batch_size() as u64).collect();
    let mut scope = Scope::of(&case.program).map_err(err)?;
    let mut executor = Executor::new(&case.program, &case.registry, &case.gradients, 1).map_err(err)?;
    executor.run(&mut scope, &run(&fed_, &data)).map_err(err)?;
    let mut forward = Executor::new(&case.program, &case.registry, &[case.loss], 1).map_err(err)?;
    let mut dice = Dice::new(!seed);
    // A variable without a gradient has a derivative of zero, unless its gradient was stopped.
    let trained: Vec<VarId> = case.program.trained_parameters().collect();
    let watched = case.feeds.iter().map(|(id, _)| *id).filter(|&id| {
        let var = case.program.var(id);
        !var.stop_gradient && var.spec().is_some_and(|s| s.dtype.is_float())
    });
    let mut moved: Vec<(VarId, Dense, Vec<f64>)> = Vec::new();
    let (mut slope, mut size) = (0.0, 0.0);
    for var in trained.into_iter().chain(watched) {
        let value = match case.feeds.iter().find(|(id, _)| *id == var) {
            Some((_, value)) => value.storage().to_dense().map_err(err)?.into_owned(),
            None => scope.get(&case.program.var(var).name).map_err(err)?,
        };
        let direction: Vec<f64> = (0..value.len()).map(|_| dice.number()).collect();
        let is_gradient = |grad: &&VarId| case.program.var(**grad).gradient_of == Some(var);
        if let Some(&grad) = case.gradients.iter().find(is_gradient) {
            let grad = executor.fetch(grad).map_err(err)?.into_parts().0.into_dense().map_err(err)?;
            for (g, d) in numbers(&grad).iter().zip(&direction) {
                slope += g * d;
                size += (g * d).abs();
            }
        }
        moved.push((var, value, direction));
    }
    let mut loss = |by: f64| -> Result<f64> {
        let mut feeds = case.feeds.clone();
        for (var, value, direction) in &moved {
            let mut value = value.clone();
            value.as_mut_slice::<f64>()?.iter_mut().zip(direction).for_each(|(x, d)| *x += by * d);
            match feeds.iter_mut().find(|(id, _)| id == var) {
                Some((_, feed)) => feed.as_mut_slice::<f64>()?.copy_from_slice(value.as_slice::<f64>()?),
                None => scope.set(&case.program.var(*var).name, value)?,
            }
        }
        forward.run(&mut scope, &run(&fed(&feeds), &data))?;
        forward.scalar(case.loss)
    };
    // Central differences of two steps, extrapolated; where two such disagree, the function is too rough for them.
    let mut central = |h: f64| -> Result<f64> { Ok((loss(h)? - loss(-h)?) / (2.0 * h)) };
    let mut extrapolated = |h: f64| -> Result<f64> { Ok((4.0 * central(h)? - central(2.0 * h)?) / 3.0) };
    let (by, again) = (extrapolated(1e-4).map_err(err)?, extrapolated(3e-5).map_err(err)?);
    let scale = size.max(by.abs()).max(1e-3);
    if !by.is_finite() || !slope.is_finite() {
        return Ok(());
    }
    if (by - again).abs() > 1e-7 * scale {
        worst.rough += 1;
        return if (by - slope).abs() > 1e-2 * scale + 10.0 * (by - again).abs() {
            Err(with_program(format!("the loss's slope is about {by}, the gradients say {slope}")))
        } else {
            Ok(())
        };
    }
    let far = (by - slope).abs() / scale;
    worst.note("slopes", far);
    if far > 1e-6 {
        Err(with_program(format!("the loss's slope is {by}, the gradients say {slope}")))
    } else {
        Ok(())
    }
}

/// Two steps of an optimizer leave the same parameters on any number of threads; parameters of plain descent follow from
/// the gradients.
pub(super) fn updates(seed: u64, case: &Case) -> Check {
    let with_program = |what: String| format!("{what}\n{}", case.program);
    let err = |e: unpadded::Error| with_program(e.to_string());
    if case
        .program
        .trained_parameters()
        .all(|p| !case.gradients.iter().any(|&g| case.program.var(g).gradient_of == Some(p)))
    {
        return Ok(());
    }
    let fed_ = case.fed();
    let data: Vec<u64> = (0..fed_[0].1.batch_size() as u64).collect();
    let optimizers: [Box<dyn Optimizer>; 4] = [
        Box::new(Sgd::new(0.125)),
        Box::new(Sgd::new(0.125).momentum(0.9).lazy().clip_global_norm(0.5)),
        Box::new(Adam::new(0.01).lazy()),
        Box::new(Adagrad::new(0.1).clip_global_norm(1.0)),
    ];
    let optimizer = &optimizers[seed as usize % 4];
    let mut program = case.forward.clone();
    optimizer.minimize(&mut program, &case.registry, case.loss).map_err(err)?;
    let trained = |threads: usize, steps: u64, fetch: &[VarId]| -> Result<Vec<Dense>> {
        let mut scope = Scope::of(&program)?;
        let executor = Executor::new(&program, &case.registry, fetch, threads)?;
        let mut executor = if threads == 3 { crate::models::divided(executor) } else { executor };
        for step in 0..steps {
            let run = with!(run(&fed_, &data), step, stage: Stage::Updates);
            match executor.run(&mut scope, &run) {
                Err(e) if e.kind() == unpadded::ErrorKind::NotFinite => break,
                other => other?,
            }
        }
        program.trained_parameters().map(|p| scope.get(&program.var(p).name)).collect()
    };
    let one = trained(1, 2, &[]).map_err(err)?;
    for (threads, fetch) in [(2, vec![]), (3, vec![case.loss]), (7, case.values.clone())] {
        let again = trained(threads, 2, &fetch).map_err(err)?;
        if let Some(k) = (0..one.len()).find(|&k| !one[k].bits_eq(&again[k])) {
            return Err(with_program(format!("parameter {k}: other bits on {threads} threads")));
        }
    }
    if !seed.is_multiple_of(4) {
        return Ok(());
    }
    let mut scope = Scope::of(&case.program).map_err(err)?;
    let descent = with!(run(&fed_, &data), step: 0);
    let reference = interpret(&case.program, &case.registry, &mut scope, &descent).map_err(err)?;
    let after = trained(1, 1, &[]).map_err(err)?;
    for (p, after) in case.program.trained_parameters().zip(&after) {
        let name = &case.program.var(p).name;
        let before = numbers(&scope.get(name).map_err(err)?);
        let grad = case.gradients.iter().find(|&&g| case.program.var(g).gradient_of == Some(p));
        let grad = match grad.and_then(|g| reference.get(g)) {
            Some(grad) => numbers(&*grad.storage().to_dense().map_err(err)?),
            None => vec![0.0; before.len()],
        };
        let far = before.iter().zip(&grad).zip(numbers(after)).map(|((b, g), a)| (b - 0.125 * g - a).abs());
        let far = far.fold(0.0, f64::max);
        if far > 1e-10 * largest(&grad).max(1.0) {
            return Err(with_program(format!("parameter `{name}` is {far} from where its gradient leads")));
        }
    }
    Ok(())
}
