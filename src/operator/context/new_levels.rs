//! The context of [`Op::levels`](crate::operator::Op::levels): inputs that decide the offsets of new LoD levels, and the offsets
//! to fill.

use super::{Call, CallInputs, derefs_to_inputs};
use crate::kernels::arena::Operands;

/// The context of a call of [`Op::levels`](crate::operator::Op::levels), which computes the offsets of new LoD levels. The call
/// can read only the values of the input slots in the operator's [`LodEffect::FromData`](crate::operator::LodEffect::FromData);
/// it can read the LoD of every input slot.
pub struct NewLevels<'a> {
    inputs: CallInputs<'a>,
    /// The offsets of each new LoD level, in the order in which the shape rule makes the levels.
    offsets: &'a mut Vec<Vec<usize>>,
}
derefs_to_inputs!(NewLevels);

impl<'a> NewLevels<'a> {
    pub(crate) fn new(call: Call<'a>, operands: Operands<'a>, offsets: &'a mut Vec<Vec<usize>>) -> Self {
        let absent = "nothing bound, or not among the slots of `LodEffect::FromData`";
        Self { inputs: CallInputs { call, operands, pool: &mut [], absent }, offsets }
    }

    /// Returns the offsets of the new LoD level `k`, counted from 0 in the order of the shape rule; the offsets are empty until
    /// the operator fills them. The offsets must start with 0, never decrease, and end with the number of rows. A level has one
    /// offset more than it has sequences. The number of its sequences is the last offset of the level above, or the number of
    /// top-level sequences if there is no level above.
    pub fn offsets(&mut self, k: usize) -> &mut Vec<usize> {
        if self.offsets.len() <= k {
            self.offsets.resize_with(k + 1, Vec::new);
        }
        &mut self.offsets[k]
    }
}
