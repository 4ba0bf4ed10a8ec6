//! States that pass from batch to batch: what the next one is fed.

use crate::error::{Error, Place, Result};
use crate::program::{CarriedState, Program};
use crate::tensor::{Dense, Variable};

/// What so many sequences are fed of a state of the program: zeros at first, then the rows of those that go on.
///
/// # Errors
/// If they are more than there were before.
pub(super) fn fed(
    program: &Program,
    state: &CarriedState,
    before: Option<&Variable>,
    sequences: usize,
) -> Result<Variable> {
    match before {
        None => {
            let spec = program.spec(state.before)?;
            let dims = spec.shape.iter().skip(1).map(|e| e.known().unwrap_or(0));
            let shape: Vec<usize> = std::iter::once(sequences).chain(dims).collect();
            Ok(Variable::dense(Dense::zeros(spec.dtype, &shape)?))
        }
        Some(value) if sequences <= value.rows() => value.slice_sequences(0..sequences),
        Some(value) => {
            let expected = format!("at most {}, as the batch before, whose state is carried", value.rows());
            let place = Place {
                variable: Some(program.var(state.before).name.clone()),
                caller: Some(state.caller.clone()),
                ..Place::default()
            };
            Err(Error::new("sequences of a batch", expected, sequences.to_string()).at(place))
        }
    }
}
