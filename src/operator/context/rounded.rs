//! Values that the compiler stores in bf16: see [`Hints::takes_bf16`](crate::operator::Hints::takes_bf16).

use half::bf16;

use super::{Backward, CallInputs, Forward, OperandPosition};
use crate::error::Result;
use crate::kernels::LeftMatrix;
use crate::kernels::arena::Plain;

impl<'a> CallInputs<'a> {
    /// Returns whether the variable in input slot `slot` is stored in bf16: then `input::<half::bf16>(slot)` returns its
    /// view. A variable of f32 can be stored in bf16 in a slot of
    /// [`Hints::takes_bf16`](crate::operator::Hints::takes_bf16), in the first slot of an operator with the hint
    /// [`copies`](crate::operator::Hints::copies) and, in `backward`, in a slot of
    /// [`Hints::saves_bf16`](crate::operator::Hints::saves_bf16).
    pub fn holds_bf16(&self, slot: usize) -> bool {
        let position = self.call.wiring.missing.slot(&self.call.wiring.inputs, slot).first();
        matches!(position, Some(&OperandPosition::Dense(i)) if self.operands.read_is::<bf16>(i))
    }

    /// Returns the view of the variable in input slot `slot`, in the form in which it is stored.
    ///
    /// # Errors
    /// Fails under the conditions of [`Self::input`].
    pub(crate) fn left_matrix<T: Plain>(&self, slot: usize) -> Result<LeftMatrix<'a, T>> {
        match self.holds_bf16(slot) {
            true => self.input::<bf16>(slot).map(LeftMatrix::Rounded),
            false => self.input::<T>(slot).map(LeftMatrix::Full),
        }
    }
}

impl<'a> Backward<'a> {
    /// Returns whether the gradient of output slot `slot` is stored in bf16: then `output_gradient::<half::bf16>(slot)` returns
    /// its view. It can be in bf16 if the operator has the hint
    /// [`takes_bf16_gradient`](crate::operator::Hints::takes_bf16_gradient).
    pub(crate) fn holds_bf16_gradient(&self, slot: usize) -> bool {
        let position = self.call.wiring.position(&self.call.wiring.output_gradients, slot, 0);
        matches!(position, OperandPosition::Dense(i) if self.operands.read_is::<bf16>(i))
    }

    /// Returns whether the gradient of input slot `slot` is stored in bf16: then `gradient::<half::bf16>(slot)` returns its view.
    /// It can be in bf16 in a slot of [`Hints::saves_bf16`](crate::operator::Hints::saves_bf16).
    pub(crate) fn writes_bf16_gradient(&self, slot: usize) -> bool {
        let position = self.call.wiring.missing.slot(&self.call.wiring.input_gradients, slot).first();
        matches!(position, Some(&(OperandPosition::Dense(i), _)) if self.operands.write_is::<bf16>(i))
    }

    /// Returns the gradient of output slot `slot`, in the form in which it is stored.
    ///
    /// # Errors
    /// Fails under the conditions of [`Self::dout`].
    pub(crate) fn gradient_matrix<T: Plain>(&self, slot: usize) -> Result<LeftMatrix<'a, T>> {
        match self.holds_bf16_gradient(slot) {
            true => self.dout::<bf16>(slot).map(LeftMatrix::Rounded),
            false => self.dout::<T>(slot).map(LeftMatrix::Full),
        }
    }
}

impl Forward<'_> {
    /// Returns whether the variable in output slot `slot` is stored in bf16, although its dtype is f32: then
    /// `output::<half::bf16>(slot)` returns its view.
    pub(crate) fn writes_bf16(&self, slot: usize) -> bool {
        let position = self.call.wiring.missing.slot(&self.call.wiring.outputs, slot).first();
        matches!(position, Some(&OperandPosition::Dense(i)) if self.operands.write_is::<bf16>(i))
    }
}
