//! Carried states: state variables whose value after a batch is their value before the next batch.

use std::sync::Arc;

use crate::error::{Error, Place, Result};
use crate::lod::Lod;
use crate::operator::VarId;
use crate::program::{CarriedState, Program};
use crate::tensor::{Dense, Variable};

/// Returns the value of a carried state for `sequences` sequences. The value is zeros if `before` is `None` (first
/// batch), else the first `sequences` sequences of `before`.
///
/// # Errors
/// It is an error if `before` has fewer than `sequences` sequences.
pub(crate) fn fed(
    program: &Program,
    state: &CarriedState,
    before: Option<&Variable>,
    sequences: usize,
) -> Result<Variable> {
    match before {
        None => zeros(program, state.before, sequences, None),
        Some(value) if sequences <= value.rows() => value.slice_sequences(0..sequences),
        Some(value) => {
            let expected =
                format!("at most {}, as in the batch before, whose state is carried", value.rows());
            let place = Place {
                variable: Some(program.var(state.before).name.clone()),
                caller: Some(state.caller.clone()),
                ..Place::default()
            };
            Err(Error::new("sequences of a batch", expected, sequences.to_string()).at(place))
        }
    }
}

pub(crate) fn zeros(program: &Program, id: VarId, rows: usize, lod: Option<Arc<Lod>>) -> Result<Variable> {
    let spec = program.spec(id)?;
    let mut shape: Vec<usize> = spec.shape.iter().map(|e| e.known().unwrap_or(rows)).collect();
    if let Some(first) = shape.first_mut() {
        *first = rows;
    }
    Variable::new(Dense::zeros(spec.dtype, &shape)?, lod)
}
