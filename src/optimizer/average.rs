//! Averages of parameters over training steps; the averages are added to a complete program.

use super::rate::own;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Attributes, BlockId, Registry, VarId};
use crate::program::description::initialize::ZEROS;
use crate::program::{Append, Initializer, Program, Role};
use crate::tensor::StorageKind;

/// The kind of the operator that updates the average of a parameter.
const AVERAGE_WEIGHTS: &str = "average_weights";

/// Appends the state `NAME.average`, and the operator that moves this state towards the parameter `param` at each training
/// step.
///
/// # Errors
/// Returns an error if the parameter is row-sparse or its gradient is selected rows, since the averages of all rows of
/// the table would change at every step. Returns an error if the operator refuses `attributes`.
pub(crate) fn average(
    program: &mut Program,
    registry: &Registry,
    (param, gradient): (VarId, VarId),
    attributes: Attributes,
    caller: String,
) -> Result<()> {
    let name = program.var(param).name.clone();
    if program.var(param).is_row_sparse() || program.spec(gradient)?.storage != StorageKind::Dense {
        let expected = "a dense gradient, or `Averaging::except` with the parameter's name";
        let got =
            "a gradient of selected rows, whose average would move every row of the table at every step";
        return Err(Error::of(ErrorKind::Program, "parameter to average", expected, got).variable(name));
    }
    let spec = program.spec(param)?.clone();
    let average = own(program, format!("{name}.average"), spec, Initializer::new(ZEROS, Attributes::new()))?;
    let request = Append {
        inputs: vec![("param", vec![param])],
        updated: vec![("average", average)],
        attributes,
        role: Role::Update,
        caller,
        ..Append::forward(AVERAGE_WEIGHTS)
    };
    program.append(registry, BlockId(0), request).map(drop).map_err(|e| e.variable(name))
}

/// Returns the name of each parameter that the program averages, with the name of its average.
pub(crate) fn averages(program: &Program) -> impl Iterator<Item = (&str, &str)> {
    let ops = program.root().ops.iter().filter(|op| op.kind == AVERAGE_WEIGHTS);
    ops.filter_map(|op| {
        let name = |var: VarId| program.var(var).name.as_str();
        Some((name(*op.input("param").first()?), name(op.writes().next()?)))
    })
}
