//! The input slots, shape inference and check cases that all update operators have in common.

use crate::error::{Error, ErrorKind, Result};
use crate::kernels::Float;
use crate::operator::attributes::Attribute;
use crate::operator::{Attributes, CheckCase, Debt, Forward, InferShape, Spec};
use crate::tensor::{DType, Dense, SelectedRows, StorageKind, Variable};

/// The arithmetic of one update for one element: computes new values of the parameter and its states, in the order of the
/// output slots.
pub trait ElementStep<T, const FIELDS: usize>: Copy + Send + Sync {
    /// Returns the new values of the parameter and its states, from the old values and the gradient. Mark an implementation
    /// `#[inline(always)]`: the function is the body of a vectorised loop over the elements.
    fn step(&self, fields: [T; FIELDS], grad: T) -> [T; FIELDS];
}

/// The number of updates that the update history holds.
pub(in crate::ops) const KEPT: usize = 1 << 14;
/// The shape of the update history: one row with the number of updates and their hash, then one row per update.
pub(crate) const HISTORY_SHAPE: [usize; 2] = [KEPT + 1, 2];

/// Slot number of the input with the gradient, in every update rule.
pub(in crate::ops) const GRAD: usize = 0;
/// Slot number of the input with the learning rate, in every update rule.
pub(in crate::ops) const RATE: usize = 1;
/// Slot number of the input with the update history, in every rule that may apply updates later.
pub(in crate::ops) const HISTORY: usize = 2;

/// The mode of an update rule for gradients of selected rows; stored by name in the attribute `mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum SparseMode {
    /// Exact mode: gives the result of the rule on the dense gradient, with zeros in the rows without a gradient. The updates
    /// of a row without a gradient are applied when the row is next read. A rule with updates that cannot be deferred refuses
    /// selected rows.
    #[default]
    Exact,
    /// Lazy mode: updates only the rows of the gradient and their states.
    Lazy,
}

impl SparseMode {
    /// Returns the name of the mode in programs: `exact` or `lazy`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            SparseMode::Exact => "exact",
            SparseMode::Lazy => "lazy",
        }
    }

    /// Infers the shapes of an update operator. `fields` is the number of updated outputs, and `storage` is their
    /// storage. `owes` is what an update does to a row without a gradient: no change, a change that can be made later,
    /// or a change that cannot be postponed.
    pub(in crate::ops) fn infer_shape(
        self,
        s: &mut InferShape<'_>,
        fields: usize,
        storage: StorageKind,
        owes: Debt,
    ) -> Result<()> {
        s.is_float(GRAD)?;
        s.is_float(RATE)?;
        s.constant(RATE, &[])?;
        let grad = s.input(GRAD);
        if grad.batched() || !grad.lod.is_empty() {
            return Err(s.mismatch(GRAD, "the gradient of a parameter, of known shape and without LoD"));
        }
        if storage != StorageKind::Dense && grad.storage != StorageKind::SelectedRows {
            let expected = "selected rows, as a lookup in a row-sparse parameter gives";
            return Err(Error::new("gradient of a row-sparse parameter", expected, grad.to_string()));
        }
        let owes = match (grad.storage, self) {
            (StorageKind::SelectedRows, SparseMode::Exact) => owes,
            _ => Debt::Nothing,
        };
        let waits = owes == Debt::Later && storage == StorageKind::SelectedRows;
        if let Some(reason) = owes.at_once().or(waits.then_some("the rule, of a row-sparse parameter,")) {
            return Err(Error::of(
                ErrorKind::Program,
                "gradient of selected rows",
                "a dense gradient, or `.lazy()` on the optimizer (then only touched rows and their state move)",
                format!("{grad} in exact mode, where {reason} moves the untouched rows too"),
            ));
        }
        for field in 0..fields {
            s.set(field, grad.stored(storage));
        }
        if owes == Debt::Later {
            if s.optional(HISTORY).is_none() {
                let expected = "the history of updates, from which missed updates of rows are computed (`Optimizer::minimize` adds it; `lazy` needs none)";
                return Err(Error::of(ErrorKind::Program, "input `history`", expected, "none"));
            }
            history_fits(s, HISTORY)?;
            let height = grad.shape.first().and_then(|e| e.known()).unwrap_or(0);
            s.set(fields, Spec::fixed(DType::F64, &[height])?);
        }
        Ok(())
    }
}

/// Checks that an input slot has the shape that [`update_history`](super::history) writes.
pub(in crate::ops) fn history_fits(s: &InferShape<'_>, slot: usize) -> Result<()> {
    s.dtype_in(slot, &[DType::F64])?;
    s.constant(slot, &HISTORY_SHAPE)
}

impl Attribute for SparseMode {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        match attributes.text(name)? {
            "exact" => Ok(SparseMode::Exact),
            "lazy" => Ok(SparseMode::Lazy),
            other => {
                Err(Error::of(ErrorKind::Program, format!("attribute `{name}`"), "exact or lazy", other))
            }
        }
    }

    fn write(&self, attributes: &mut Attributes, name: &str) {
        attributes.set(name, self.name());
    }
}

pub(in crate::ops) fn scalar(run: &Forward<'_>, slot: usize) -> Result<f64> {
    crate::with_float!(run.dtype(slot), T => Ok(run.input::<T>(slot)?.row(0)[0].to_f64()))
}

/// Returns the learning rate of the step, multiplied by `factor`, the rate factor of the parameter.
pub(in crate::ops) fn rate(run: &Forward<'_>, factor: f64) -> Result<f64> {
    Ok(scalar(run, RATE)? * factor)
}

/// Divides a step by `scale`; returns 0 if `scale` is 0. `scale` is 0 if epsilon and all gradients so far are 0; the quotient
/// would then be 0 / 0.
#[inline(always)]
pub(in crate::ops) fn over<T: Float>(step: T, scale: T) -> T {
    if scale == T::ZERO { T::ZERO } else { step / scale }
}

/// Returns check cases of an update rule in both modes, with the gradient of a matrix, the gradient of a vector, repeated rows,
/// and no rows.
pub(in crate::ops) fn samples([exact, lazy]: [Attributes; 2], fields: &[&str]) -> Result<Vec<CheckCase>> {
    let numbers = |shape: &[usize], pace: f64, least: f64| -> Result<Variable> {
        let len = shape.iter().product::<usize>();
        let values = (0..len).map(|i| (i as f64 * pace).sin() + least).collect();
        Ok(Variable::dense(Dense::from_vec::<f64>(shape, values)?))
    };
    let sample = |name: &str, attributes: &Attributes, shape: &[usize]| -> Result<CheckCase> {
        let rate = Variable::dense(Dense::from_vec(&[], vec![0.125f32])?);
        let mut sample = CheckCase::new(name, attributes.clone()).without_gradient().constant("rate", rate);
        for (k, field) in fields.iter().enumerate() {
            // The parameter and its states start above 0, because some states must be positive.
            sample = sample.constant(field, numbers(shape, 0.9 + k as f64, 1.5)?);
        }
        Ok(sample)
    };
    let rows = |ids: &[i64]| -> Result<Variable> {
        let values = numbers(&[ids.len(), 3], 0.7, 0.0)?.into_parts().0.into_dense()?;
        Variable::new(SelectedRows::new(5, ids.to_vec(), values)?, None)
    };
    Ok(vec![
        sample("matrix", &exact, &[4, 3])?.constant("grad", numbers(&[4, 3], 0.7, 0.0)?),
        sample("vector", &exact, &[5])?.constant("grad", numbers(&[5], 0.7, 0.0)?),
        sample("rows that repeat", &lazy, &[5, 3])?.constant("grad", rows(&[4, 1, 4])?),
        sample("no row", &lazy, &[5, 3])?.constant("grad", rows(&[])?),
    ])
}
