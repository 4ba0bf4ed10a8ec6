//! The context of [`Op::levels`](crate::operator::Op::levels): the numbers that decide the offsets, and the offsets to fill.

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
use crate::tensor::DType;

/// The context of [`Op::levels`](crate::operator::Op::levels). Only the input slots that the operator's
/// [`LodEffect::FromData`](crate::operator::LodEffect::FromData) names can be read; the LoD of all slots can.
pub struct NewLevels<'a> {
    pub(crate) call: Call<'a>,
    pub(crate) operands: Operands<'a>,
    /// The offsets of each new level, in the order in which the shape rule makes the levels.
    pub(crate) offsets: &'a mut Vec<Vec<usize>>,
}
shared_methods!(NewLevels, "nothing bound, or not among the slots of `LodEffect::FromData`");

impl NewLevels<'_> {
    /// The offsets of level `k` of the levels that the operator makes, counted from 0; empty before the operator fills them. They
    /// start with 0, never decrease, and end with the number of rows. There is one offset more than the level has sequences: the
    /// last offset of the level above (without a level above: the number of top-level sequences).
    pub fn offsets(&mut self, k: usize) -> &mut Vec<usize> {
        if self.offsets.len() <= k {
            self.offsets.resize_with(k + 1, Vec::new);
        }
        &mut self.offsets[k]
    }
}

literal_methods!(NewLevels: |run: &NewLevels<'a>| run.call.literals);
