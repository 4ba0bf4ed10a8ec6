//! Counts the bytes that pass the second-level caches in a training step of the loss in f32, from the block sizes.

use super::chunk_rows;
use super::columns::columns_at_once;
use crate::kernels::{Cpu, SUM_ROWS};

/// Returns the bytes of the logits, the losses, and the gradients of x and W of one chunk, for panels of 32 columns. A number that
/// is written counts twice, since its cache line is read first. A cache holds operands in nine tenths of its size.
fn beyond_l2(cpu: Cpu, [rows, height, classes]: [usize; 3], threads: usize) -> [usize; 4] {
    let (w, x, logits) = (4 * height * classes, 4 * rows * height, 4 * rows * classes);
    let streams = |numbers: usize| usize::from(4 * numbers > cpu.l2 / 10 * 9);
    // The threads divide the columns, and pack some columns at a time; each block of rows reads the packed columns.
    let (columns, blocks) = (columns_at_once(cpu, height), rows.div_ceil(cpu.product_rows()));
    let block = rows.div_ceil(blocks);
    let packed = (2 + blocks) * w * streams((columns + block) * height + columns * block);
    let of_x = x * classes.div_ceil(threads).div_ceil(columns) * threads;
    // The threads divide the rows of the gradient of x. Sums are cut, and each cut reads and writes the sums.
    let share = rows.div_ceil(threads);
    let block = cpu.product_block(share, 32);
    let (cuts, sums) = (classes.div_ceil(block.k), height * share.min(block.rows));
    let of_dx = 2 * x * cuts * streams(sums + classes / cuts * (height + share.min(block.rows)));
    let of_w = w * threads * share.div_ceil(block.rows);
    // The gradient of W is read and written for each block of rows.
    let parts = height.div_ceil(cpu.gradient_columns(SUM_ROWS, 32));
    let of_dw = 2 * w * rows.div_ceil(SUM_ROWS) + x * threads;
    [w + packed + of_x + 2 * logits, 2 * logits, logits + of_w + of_dx, logits * parts + of_dw]
}

/// The counts of `linear(512, 10000)` for 704 rows. A cache model that replays each tile counts 190, 56, 112 and 156 MB.
#[test]
fn block_sizes_decide_the_bytes_beyond_l2() {
    let xeon = Cpu { l2: 2 << 20, l3: 24 << 20, shared: 43, memory: 64 };
    assert!(chunk_rows(xeon, 10_000, 2) >= 704);
    let phases = beyond_l2(xeon, [704, 512, 10_000], 2);
    assert_eq!(phases.map(|bytes| bytes / 1_000_000), [190, 56, 112, 153]);
    assert_eq!(phases.iter().sum::<usize>() / 704 / 1000, 728);
}
