//! The estimated effort of a call: the numbers that it writes, and the multiply-adds of products.

use crate::executor::plan::{Effort, OpInstr, Ref};
use crate::operator::{Extent, Reach};

/// The number of multiply-adds of a product that take about as long as writing one number elsewhere.
const MULTIPLY_ADDS: usize = 16;

/// The effort of a call whose views are known; each of its numbers costs as much as `heavy` numbers of an ordinary operator.
pub(crate) fn effort(op: &OpInstr, heavy: usize) -> Effort {
    let numbers = |r: &Ref| r.rows.known().map(|rows| rows.saturating_mul(r.width));
    let sum = |numbers: &mut dyn Iterator<Item = usize>| numbers.fold(0, usize::saturating_add);
    let batched = || op.writes.iter().chain(&op.reads).filter(|r| r.rows.known().is_none());
    let extents = || batched().map(|r| r.rows);
    // If some operands have the rows of sequences and others have one row per sequence, count the rows of the sequences.
    let rows = extents().find(|rows| matches!(rows, Extent::Rows(_))).or_else(|| extents().next());
    let Some(rows) = rows else {
        // Selected rows are some of a table's rows, and seldom many of them.
        let written = if op.selects() { 0 } else { sum(&mut op.writes.iter().filter_map(numbers)) };
        return Effort { rows: Extent::Known(1), row: written };
    };
    // Each row is multiplied by all numbers of a packed constant, and is added to all numbers of a written constant.
    let packed = op.constants.iter().filter(|_| op.prepared.is_some()).cloned().flatten();
    let constants = packed.map(|read| &op.reads[read]).chain(&op.writes);
    let products = sum(&mut constants.filter_map(numbers)) / MULTIPLY_ADDS;
    let width = |views: &[Ref]| sum(&mut views.iter().filter(|r| r.rows == rows).map(|r| r.width));
    let of_row = match width(&op.writes) {
        // The result is pooled or summed: each row is added to all columns of another row.
        0 => batched().map(|r| r.width).fold(width(&op.reads), usize::max),
        // The result may have few numbers per row, and still depend on all numbers of a row.
        written if op.reach == Reach::Sequence => written.max(width(&op.reads)),
        written => written,
    };
    Effort { rows, row: of_row.saturating_mul(heavy.max(1)).saturating_add(products) }
}
