//! Estimates the effort of a call, as a count of numbers: the numbers that the call writes, plus the scaled multiply-adds of
//! its matrix products.

use crate::executor::plan::{Effort, OpInstr, Ref};
use crate::operator::{Extent, Reach};

/// The number of multiply-adds in a matrix product that take about as long as writing one number in another operator.
const MULTIPLY_ADDS: usize = 16;

/// Estimates the effort of a call from its views. Each number that the call writes costs as much as `heavy` numbers of an
/// ordinary operator; `packed` is the size in bytes of the packed constants.
pub(crate) fn effort(op: &OpInstr, heavy: usize, packed: usize) -> Effort {
    let numbers = |r: &Ref| r.rows.known().map(|rows| rows.saturating_mul(r.width));
    let sum = |numbers: &mut dyn Iterator<Item = usize>| numbers.fold(0, usize::saturating_add);
    let batched = || op.writes.iter().chain(&op.reads).filter(|r| r.rows.known().is_none());
    let extents = || batched().map(|r| r.rows);
    // If some operands have one row per position and others have one row per sequence, the positions are counted.
    let rows = extents().find(|rows| matches!(rows, Extent::Rows(_))).or_else(|| extents().next());
    let Some(rows) = rows else {
        // Selected rows are usually few rows of a table, so their numbers count as 0.
        let written = if op.selects() { 0 } else { sum(&mut op.writes.iter().filter_map(numbers)) };
        return Effort { rows: Extent::Known(1), row: written, packed };
    };
    // Each row is multiplied by all numbers of a packed constant, or adds to all numbers of a result with a known
    // number of rows, such as the gradient of a weight.
    let read = op.constants.iter().filter(|_| op.prepared.is_some()).cloned().flatten();
    let constants = read.map(|read| &op.reads[read]).chain(&op.writes);
    let products = sum(&mut constants.filter_map(numbers)) / MULTIPLY_ADDS;
    let width = |views: &[Ref]| sum(&mut views.iter().filter(|r| r.rows == rows).map(|r| r.width));
    let of_row = match width(&op.writes) {
        // The call pools or sums rows: it writes nothing per row, so the width of the widest operand counts.
        0 => batched().map(|r| r.width).fold(width(&op.reads), usize::max),
        // A sequence-wise operator may write few numbers per row and still read all numbers of the row.
        written if op.reach == Reach::Sequence => written.max(width(&op.reads)),
        written => written,
    };
    Effort { rows, row: of_row.saturating_mul(heavy.max(1)).saturating_add(products), packed }
}
