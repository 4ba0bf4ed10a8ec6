//! Settling: applies the postponed updates of parameter rows.

use super::executor::Executor;
use super::run::request::Run;
use super::run::scope::Scope;
use crate::error::{AtCaller, Result};
use crate::operator::Registry;
use crate::program::Program;

/// Applies the postponed updates of parameter rows. With the [mode](crate::optimizer::SparseMode) `exact`, the update
/// of a row that a training step does not read is postponed until the program reads the row. Call `settle` before you
/// read or set a parameter in the scope of a training; a [`Trainer`](crate::train) calls it automatically.
///
/// Afterwards, the parameters and the optimizer state have the values that dense gradients would have given, up to rounding. If
/// no update was postponed, the scope stays unchanged.
///
/// ```
/// use unpadded::executor::{Executor, Run, Scope, settle};
/// use unpadded::layers::init;
/// use unpadded::optimizer::{Optimizer, Sgd};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let ids = net.feed("ids", DType::I64, &[], 0);
/// let table = net.parameter("table", DType::F64, &[3, 1], init::constant(1.0));
/// let loss = net.lookup(ids, table, None, true).sum();
/// let (registry, mut program) = (net.registry(), net.finish()?);
/// Sgd::new(0.5).weight_decay(0.5).minimize(&mut program, &registry, loss.id())?;
/// let mut scope = Scope::of(&program)?;
/// let one = Variable::dense(ndarray::array![1i64]);
/// Executor::new(&program, &registry, &[], 1)?.run(&mut scope, &Run::train(&[(ids.id(), &one)], 0))?;
/// assert_eq!(scope.get("table")?.as_slice::<f64>()?, [1.0, 0.25, 1.0]);
/// settle(&program, &registry, &mut scope, 1)?;
/// assert_eq!(scope.get("table")?.as_slice::<f64>()?, [0.75, 0.25, 0.75]); // their decay of 0.5 · 0.5
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// # Errors
/// Fails if the scope lacks a parameter whose updates can be postponed, or a state variable of the parameter's update
/// rule.
#[track_caller]
pub fn settle(program: &Program, registry: &Registry, scope: &mut Scope, threads: usize) -> Result<()> {
    let Some(all) = program.settling() else { return Ok(()) };
    let mut executor = Executor::new(&all, registry, &[], threads).at_caller()?;
    executor.run(scope, &Run::train(&[], 0)).at_caller()
}
