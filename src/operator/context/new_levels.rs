//! The context of [`Op::levels`](crate::operator::Op::levels): inputs that decide the offsets of new LoD levels, and the offsets
//! to fill.

use std::sync::Arc;

use super::{Call, OperandPosition, RunFacts, Sequences, another, held};
use crate::error::{AtCaller, Error, Result};
use crate::kernels::View;
use crate::kernels::arena::{Operands, Plain};
use crate::kernels::random::{RowStream, fill_uniform, fill_uniform_53};
use crate::lod::Lod;
use crate::operator::extent::Spec;
use crate::operator::keys::RowKey;
use crate::operator::literals::literal_methods;
use crate::operator::signature::Slot;
use crate::operator::slots::name_of;
use crate::tensor::DType;

/// The context of a call of [`Op::levels`](crate::operator::Op::levels), which computes the offsets of new LoD levels. The call
/// can read only the values of the input slots in the operator's [`LodEffect::FromData`](crate::operator::LodEffect::FromData);
/// it can read the LoD of every input slot.
pub struct NewLevels<'a> {
    pub(crate) call: Call<'a>,
    pub(crate) operands: Operands<'a>,
    /// The offsets of each new LoD level, in the order in which the shape rule makes the levels.
    pub(crate) offsets: &'a mut Vec<Vec<usize>>,
}
shared_methods!(NewLevels, "nothing bound, or not among the slots of `LodEffect::FromData`");

impl NewLevels<'_> {
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

literal_methods!(NewLevels: |run: &NewLevels<'a>| run.call.literals);
