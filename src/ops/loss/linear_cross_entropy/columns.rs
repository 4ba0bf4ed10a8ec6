//! The logits of a large W, which is packed a few columns at a time.

use std::slice;
use std::sync::{Mutex, PoisonError};

use crate::kernels::{
    Cpu, LeftMatrix, PackedMatrix, ResultMatrix, RoundedRows, Transpose, affine, boundary, cpu, join,
    join_measured,
};
use crate::ops::prelude::*;

/// Scratch memory of a thread: packed columns of W, if W is not packed for the logits, and, in bf16, rounded rows, and a few rows
/// of logits in f32.
#[derive(Default)]
pub(super) struct LogitsRoom<T: Float> {
    pub(super) columns: PackedMatrix<T>,
    pub(super) rounded: RoundedRows<T>,
    pub(super) wide: Vec<T>,
}

/// A multiple of the number of columns of a panel, for every engine.
const PANELS: usize = 96;

/// Returns the number of columns of a W with `height` rows that are packed at a time: the columns stay in half of a core's own
/// cache, and are full panels of any width.
pub(super) fn columns_at_once(cpu: Cpu, height: usize) -> usize {
    (cpu.chunk() / size_of::<f32>() / height.max(1) / PANELS).max(1) * PANELS
}

/// Computes the logits of a chunk from a W that is not packed. Two threads divide the columns of W by their speeds; more threads
/// take the next few columns when they are free. Each thread packs a few columns at a time.
pub(super) fn by_columns<T: RowValue>(
    x: LeftMatrix<'_, T>,
    weight: View<'_, T>,
    bias: Option<&[T]>,
    logits: ResultMatrix<'_, T>,
    rooms: &mut [LogitsRoom<T>],
) {
    let classes = weight.width();
    if let ([left, right], true) = (&mut *rooms, classes > 1) {
        let middle = boundary(classes, 1, 2);
        let (bias, bias_after) = bias.map(|bias| bias.split_at(middle)).unzip();
        let (logits, logits_after) = logits.split_columns(middle);
        join_measured(
            (middle, classes),
            || by_columns(x, weight.columns(0, middle), bias, logits, slice::from_mut(left)),
            || {
                by_columns(
                    x,
                    weight.columns(middle, classes),
                    bias_after,
                    logits_after,
                    slice::from_mut(right),
                )
            },
        );
        return;
    }
    let mut at_once = columns_at_once(cpu(), weight.rows());
    if rooms.len() > 1 {
        at_once = at_once.min(classes.div_ceil(4 * rooms.len()).next_multiple_of(PANELS));
    }
    let due = Mutex::new((0, logits));
    let next = || {
        let mut due = due.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, to) = (due.0, classes.min(due.0 + at_once));
        let rest = std::mem::replace(&mut due.1, ViewMut::new(&mut [], 0, 0).into());
        let (logits, after) = rest.split_columns(to - from);
        *due = (to, after);
        (from < to).then_some((from, to, logits))
    };
    each_room(rooms, &|LogitsRoom { columns, rounded, .. }| {
        while let Some((from, to, logits)) = next() {
            columns.pack(weight.columns(from, to), Transpose::No, 1);
            affine(x, columns, bias.map(|bias| &bias[from..to]), logits, Assign::Write, rounded, 1);
        }
    });
}

/// Calls `run` with the memory of each thread, on all threads.
fn each_room<T: RowValue>(rooms: &mut [LogitsRoom<T>], run: &(dyn Fn(&mut LogitsRoom<T>) + Sync)) {
    match rooms {
        [] => {}
        [room] => run(room),
        _ => {
            let (left, right) = rooms.split_at_mut(rooms.len() / 2);
            join(|| each_room(left, run), || each_room(right, run));
        }
    }
}
