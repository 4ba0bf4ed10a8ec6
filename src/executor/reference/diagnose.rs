//! Diagnoses numbers that are not finite: finds the operator that produced the first NaN or infinity.

use crate::error::{Error, ErrorKind, Result};
use crate::executor::reference::interpret::Interpreter;
use crate::executor::reference::values::BlockValues;
use crate::executor::rewrite::needs::live;
use crate::executor::run::request::Run;
use crate::executor::run::scope::Scope;
use crate::operator::{Registry, VarId};
use crate::program::{OpDesc, Program, VarRole};
use crate::tensor::{Dense, Storage};

/// Returns the first NaN or infinity of a run as an error that names its source. The source is a feed, a parameter, an
/// optimizer state, or the output or gradient of an operator, with the operator's block, the user's line, and the sample
/// (sequence and position). `None` if all numbers that the updates depend on are finite.
///
/// `diagnose` interprets the whole run, which is slow; call it for a training run that
/// [`Executor::run`](crate::executor::Executor) has rejected. `diagnose` does not change `scope`.
///
/// ```
/// use ndarray::array;
/// use unpadded::executor::{Run, Scope, diagnose};
/// use unpadded::optimizer::{Optimizer, Sgd};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[1], 0);
/// let line = line!() + 1;
/// let loss = x.linear(1).exp().mean();
/// let (registry, mut program) = (net.registry(), net.finish()?);
/// Sgd::new(0.1).minimize(&mut program, &registry, loss.id())?;
/// let mut scope = Scope::of(&program)?;
/// scope.set("linear_0.weight", array![[100.0f32]])?;
/// let fed = Variable::dense(array![[0.5f32], [1.0]]);
/// let error = diagnose(&program, &registry, &mut scope, &Run::train(&[(x.id(), &fed)], 0)).unwrap();
/// assert_eq!(error.place().operator.as_deref(), Some("exp #1"));
/// assert!(error.to_string().contains("got infinity in row 1"), "{error}"); // exp(100)
/// assert!(error.place().caller.as_ref().is_some_and(|c| c.contains(&format!(":{line}:"))));
/// # Ok::<(), unpadded::Error>(())
/// ```
pub fn diagnose(program: &Program, registry: &Registry, scope: &mut Scope, run: &Run<'_>) -> Option<Error> {
    let given = run.feeds.iter().find_map(|&(id, value)| {
        let var = program.vars().nth(id.0 as usize)?.1;
        let (row, number) = found(value.storage())?;
        // The message names the row only if the value is not dense.
        let dense = matches!(value.storage(), Storage::Dense(_));
        let location = if dense { String::new() } else { format!(" in row {row}") };
        Some(not_finite("value fed", number, &location).variable(&var.name))
    });
    let kept = || {
        let kept = program.vars().filter(|(_, var)| var.persistable);
        kept.filter_map(|(_, var)| {
            let what = if var.role == VarRole::State {
                "state of the optimizer before the step"
            } else {
                "parameter before the step"
            };
            Some(not_finite(what, found(&scope.value(&var.name).ok()?)?.1, "").variable(&var.name))
        })
        .next()
    };
    given.or_else(kept).or_else(|| {
        let watched = live(program, &[]).ok()?;
        let interpreter =
            Interpreter { watcher: Some((&look, watched)), ..Interpreter::new(program, registry, run) };
        interpreter.run(scope, run.feeds).err().filter(|e| e.kind() == ErrorKind::NotFinite)
    })
}

/// Searches the values that an operator has just written for a NaN or an infinity.
fn look(run: &Interpreter<'_>, op: &OpDesc, values: &BlockValues) -> Result<()> {
    for id in op.writes() {
        if let Some((row, number)) = values.vars.get(&id).and_then(|value| found(value.storage())) {
            let var = run.program.var(id);
            let what = if var.gradient_of.is_some() { "gradient" } else { "result" };
            return Err(not_finite(what, number, &whose(run, id, row, values)?).variable(&var.name));
        }
    }
    Ok(())
}

/// Returns text for a row of a variable: the index of the row and, if the row has a key, its position and its sequence in the
/// data.
fn whose(run: &Interpreter<'_>, id: VarId, row: usize, values: &BlockValues) -> Result<String> {
    let spec = run.program.spec(id)?;
    let mut text = format!(" in row {row}");
    if spec.batched()
        && let Some(&[key]) = run.keys(values, spec.rows(), &[row], 0).as_deref()
    {
        text.push_str(&format!(", position {} of sequence {} in the data", key.position, key.sequence));
    }
    Ok(text)
}

fn not_finite(what: &str, number: f64, location: &str) -> Error {
    let number = if number.is_nan() {
        "NaN".to_owned()
    } else if number > 0.0 {
        "infinity".to_owned()
    } else {
        "-infinity".to_owned()
    };
    Error::of(
        ErrorKind::NotFinite,
        what,
        "finite numbers",
        format!("{number}{location}; nothing was updated"),
    )
}

/// Returns the first NaN or infinity in a value, as (row index, value); `None` if all numbers are finite.
fn found(storage: &Storage) -> Option<(usize, f64)> {
    match storage {
        Storage::Dense(dense) => in_dense(dense),
        Storage::SelectedRows(rows) => {
            let (at, number) = in_dense(rows.value())?;
            Some((usize::try_from(*rows.row_ids().get(at)?).ok()?, number))
        }
        Storage::Csr(csr) => {
            let (at, number) = in_dense(csr.values())?;
            let row = csr.indptr().partition_point(|&start| start <= at as i64).checked_sub(1)?;
            Some((row, number))
        }
        Storage::Coo(coo) => {
            let (at, number) = in_dense(coo.values())?;
            let row = coo.coordinates().get([at, 0]).copied()?;
            Some((usize::try_from(row).ok()?, number))
        }
    }
}

fn in_dense(dense: &Dense) -> Option<(usize, f64)> {
    let (at, number) = dense.find_float(|x| !x.is_finite())?;
    Some((at / dense.width().max(1), number))
}
