//! The gradients of a weight and of a bias: sums over the rows of a batch.
//!
//! The order of summation depends only on the shapes of the operands, not on the number of threads.

use std::ops::Range;

use ::half::bf16;

use super::balance::{boundary, join_measured};
use super::column_sums::{SUM_ROWS, bias_gradient, put};
use super::cpu::{Cpu, cpu};
use super::float::{Assign, Float};
use super::path::{Arithmetic, MatrixUnit, Path, ProductEngine, Sweep, sweep};
use super::picked::{PickedRows, RowSource};
use super::prefetch;
use super::product::{ALIGNMENT, aligned, even_blocks, lengthen};
use super::products::{
    BiasGradient, GradientRoom, Gradients, LeftMatrix, RoundedRows, Transpose, WeightGradient,
};
use super::tile::{self, PANEL_VECTORS, Tile, lanes, max_rows};
use super::view::{Extent2, View, ViewMut};

/// Below this number of multiply-adds, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 20;
/// In bf16, the number of panels of `dy` that are packed together. Rows of `dy` are far apart in memory, so one panel's part of a
/// row is too short to be read fast: two panels were slower than four, and eight were no faster.
pub(super) const GROUP: usize = 4;
/// `x` is packed if `dy` has at least this number of panels, since the kernel reads `x` once per panel of `dy`.
const PACKED_FROM: usize = 3;

/// Computes the gradients of [`affine`](super::affine): `dw = xᵀ·dy`, if `weight` is given, and the column sums of `dy`, if
/// `bias` is given. Each result is written or added. With `Transpose::Yes`, `dw` receives the transpose of `xᵀ·dy`. Sums
/// over many rows are added in blocks of [`SUM_ROWS`] rows. Up to `threads` threads of rayon's pool divide the work; the
/// bits do not depend on the number of threads.
///
/// # Panics
/// If `x` is not R × K, `dy` not R × N, or `dw` not K × N (transposed: N × K), if `db` does not have N numbers, or if `x` or `dy`
/// is in bf16, but the gradient is not.
pub fn affine_gradient<T: Float>(
    dy: LeftMatrix<'_, T>,
    weight: Option<(LeftMatrix<'_, T>, WeightGradient<'_, T>)>,
    bias: Option<BiasGradient<'_, T>>,
    unit: MatrixUnit,
    room: &mut GradientRoom<T>,
    threads: usize,
) {
    match (weight, bias) {
        (Some((x, dw)), db) => {
            let x = match x {
                LeftMatrix::Full(x) => RowSource::Lying(x),
                LeftMatrix::Rounded(x) => {
                    assert!(
                        RoundedRows::<T>::at_once(unit.engine()).is_some(),
                        "a gradient of numbers in bf16"
                    );
                    RowSource::Rounded(x)
                }
            };
            T::gradients(Gradients { unit, x, dy, dw, db }, room, threads);
        }
        (None, Some((db, assign))) => {
            bias_gradient((dy, RoundedRows::<T>::rounds(unit)), db, assign, threads)
        }
        (None, None) => {}
    }
}

/// Computes [`affine_gradient`] for rows of `x` that are picked by index, on the calling thread only.
pub(super) fn picked_gradient<T: Float>(
    dy: View<'_, T>,
    x: PickedRows<'_, T>,
    dw: WeightGradient<'_, T>,
    db: Option<BiasGradient<'_, T>>,
    unit: MatrixUnit,
    room: &mut GradientRoom<T>,
) {
    T::gradients(Gradients { unit, x: RowSource::Picked(x), dy: dy.into(), dw, db }, room, 1);
}

/// What computes a gradient, and the CPU whose properties decide the block sizes.
pub(super) type EngineCpu = (ProductEngine, Cpu);

/// Returns how many of `threads` threads should divide the sums of a gradient. Returns `None` if there is nothing to sum;
/// the gradients are then already complete.
///
/// # Panics
/// As [`affine_gradient`].
pub(super) fn divided<T: Float>(all: &mut Gradients<'_, T>, threads: usize) -> Option<usize> {
    let Gradients { unit, x, dy, dw: (dw, assign, transpose), db } = all;
    let (rows, k, n) = (x.rows(), x.width(), dy.width());
    assert_eq!(dy.rows(), rows, "the rows of a weight gradient");
    assert_eq!((dw.rows(), dw.width()), transpose.shape((k, n)), "the shape of a weight gradient");
    assert!(db.as_ref().is_none_or(|(db, _)| db.len() == n), "the length of a bias gradient");
    if rows > 0 && k > 0 && n > 0 {
        return Some(super::helpers(rows * k * n, WORTH_A_THREAD, threads));
    }
    if *assign == Assign::Write {
        dw.fill(T::ZERO);
    }
    if let Some((db, assign)) = db {
        bias_gradient((*dy, RoundedRows::<T>::rounds(*unit)), db, *assign, threads);
    }
    None
}

/// Computes the gradients of a weight and a bias on one thread, with that thread's scratch.
pub(super) type GradientBlocks = fn(EngineCpu, Gradients<'_, f32>, &mut [f32]);

/// Computes the gradients of a weight and a bias in f32, by tiles; `blocks` computes the part of a thread.
pub(super) fn by_tiles(
    blocks: GradientBlocks,
    on: EngineCpu,
    mut all: Gradients<'_, f32>,
    room: &mut GradientRoom<f32>,
    threads: usize,
) {
    let Some(threads) = divided(&mut all, threads) else { return };
    room.0.resize_with(room.0.len().max(threads), Vec::new);
    // Each thread's scratch is large enough for all columns, so that it suffices for any number of threads.
    let picked = matches!(all.x, RowSource::Picked(_));
    let GradientSizes { panels, left, turned } =
        GradientSizes::of(on, all.x.width(), picked, all.dy.width(), all.dw.2);
    let size = panels + left + turned + ALIGNMENT / size_of::<f32>();
    room.0[..threads].iter_mut().for_each(|room| lengthen(room, size));
    share(blocks, on, all, &mut room.0[..threads]);
}

/// Divides the weight's gradient among threads: by columns if the gradient has several panels of columns, else by rows.
fn share(blocks: GradientBlocks, on: EngineCpu, all: Gradients<'_, f32>, rooms: &mut [Vec<f32>]) {
    let (width, parts) = (panel_width(on.0), rooms.len());
    let (panels, k) = (all.dy.width().div_ceil(width), all.x.width());
    if parts < 2 || panels < 2 && k < 2 {
        return blocks(on, all, &mut rooms[0]);
    }
    let (left, right) = rooms.split_at_mut(parts / 2);
    let Gradients { unit, x, dy, dw: (dw, assign, transpose), db } = all;
    let all = if panels > 1 { panels } else { k };
    let at = boundary(all, left.len(), parts);
    let (a, b) = if panels > 1 {
        let middle = at * width;
        let (dw, dw_after) = match transpose {
            Transpose::No => dw.split_columns(middle),
            Transpose::Yes => dw.split_rows(middle),
        };
        let db = db.map(|(db, assign)| (db.split_at_mut(middle), assign));
        let (db, db_after) = db.map(|((db, after), assign)| ((db, assign), (after, assign))).unzip();
        let dy_after = dy.columns(middle, dy.width());
        (
            Gradients { unit, x, dy: dy.columns(0, middle), dw: (dw, assign, transpose), db },
            Gradients { unit, x, dy: dy_after, dw: (dw_after, assign, transpose), db: db_after },
        )
    } else {
        let middle = at;
        let (dw, dw_after) = match transpose {
            Transpose::No => dw.split_rows(middle),
            Transpose::Yes => dw.split_columns(middle),
        };
        (
            Gradients { unit, x: x.columns(0, middle), dy, dw: (dw, assign, transpose), db },
            Gradients { unit, x: x.columns(middle, k), dy, dw: (dw_after, assign, transpose), db: None },
        )
    };
    join_measured((at, all), || share(blocks, on, a, left), || share(blocks, on, b, right));
}

/// The sizes of a thread's scratch, in numbers: packed panels of `dy`, packed columns of `x`, and a part of a transposed
/// result.
pub(super) struct GradientSizes {
    pub(super) panels: usize,
    pub(super) left: usize,
    pub(super) turned: usize,
}

impl GradientSizes {
    /// Returns the scratch sizes for a result of `n` columns; they suffice for any part of the result, too. Rows that are
    /// picked by index, and rows in bf16, are always packed.
    pub(super) fn of(on: EngineCpu, k: usize, picked: bool, n: usize, transpose: Transpose) -> Self {
        let width = panel_width(on.0);
        let part = part(on, k);
        let packs = picked || !on.0.is_f32() || n > (PACKED_FROM - 1) * width;
        let words = on.0.words(SUM_ROWS);
        let group = if on.0.is_f32() { 1 } else { n.div_ceil(width).clamp(1, GROUP) };
        let left = if packs { words * part } else { 0 };
        let turned = if transpose == Transpose::Yes { part * width } else { 0 };
        Self { panels: group * words * width, left, turned }
    }
}

/// Returns the size in bytes of the scratch of [`affine_gradient`] for a weight of `k` rows and `n` columns.
pub fn affine_gradient_bytes<T: Float>(
    unit: MatrixUnit,
    (k, n): (usize, usize),
    transpose: Transpose,
    threads: usize,
) -> usize {
    threads * room_bytes::<T>(unit, k, false, n, transpose)
}

/// Returns the size in bytes of the scratch of [`picked_gradient`] for a weight of `k` rows and `n` columns.
pub(super) fn picked_gradient_bytes<T: Float>(unit: MatrixUnit, k: usize, n: usize) -> usize {
    room_bytes::<T>(unit, k, true, n, Transpose::No)
}

fn room_bytes<T: Float>(unit: MatrixUnit, k: usize, picked: bool, n: usize, transpose: Transpose) -> usize {
    if size_of::<T>() != size_of::<f32>() {
        return 0;
    }
    let GradientSizes { panels, left, turned } =
        GradientSizes::of((unit.engine(), cpu()), k, picked, n, transpose);
    (panels + left + turned) * size_of::<f32>() + ALIGNMENT + size_of::<Vec<f32>>()
}

/// Returns how many columns of `x` are packed into scratch at a time.
pub(super) fn part((engine, cpu): EngineCpu, k: usize) -> usize {
    let most = cpu.gradient_columns(engine.words(SUM_ROWS), panel_width(engine));
    k.min(most).next_multiple_of(engine.max_rows(PANEL_VECTORS))
}

/// Returns the number of columns of a packed panel of `dy`.
pub(super) fn panel_width(engine: ProductEngine) -> usize {
    PANEL_VECTORS * engine.lanes()
}

/// Computes the gradients in f32 in three nested loops: over blocks of rows, over parts of the columns of `x`, and over packed
/// panels of `dy`. The parts of `x` are packed if `dy` has enough panels. Without packing, successive rows of the few
/// columns that a tile reads are far apart in memory, and compete for few sets of the cache.
pub(super) fn blocks(on: EngineCpu, all: Gradients<'_, f32>, room: &mut [f32]) {
    let (ProductEngine::F32(path), _) = on else { unreachable!("a gradient in bf16 has blocks of its own") };
    let Gradients { x, dy, dw: (mut dw, assign, transpose), mut db, .. } = all;
    let LeftMatrix::Full(dy) = dy else { panic!("a gradient in f32 of numbers in bf16") };
    let (width, most) = (PANEL_VECTORS * lanes(path), max_rows(path, PANEL_VECTORS));
    let (rows, k, n) = (x.rows(), x.width(), dy.width());
    let part = part(on, k);
    let picked = matches!(x, RowSource::Picked(_));
    let sizes = GradientSizes::of(on, k, picked, n, transpose);
    let start = aligned(room);
    let (panel, rest) = room[start..].split_at_mut(sizes.panels);
    let (packed, turned) = rest.split_at_mut(sizes.left);
    for row in (0..rows).step_by(SUM_ROWS) {
        let end = rows.min(row + SUM_ROWS);
        let later = |assign: Assign| if row > 0 { Assign::Add } else { assign };
        for first in (0..k).step_by(part) {
            let part = first..k.min(first + part);
            let x = x.rows_range(row, end).columns(part.start, part.end);
            let left = match x {
                RowSource::Lying(x) if sizes.left == 0 => LeftSide::AsItLies(x),
                x => LeftSide::packed(x, packed, most),
            };
            for column in (0..n).step_by(width) {
                let columns = column..n.min(column + width);
                let dy_part = dy.rows_range(row, end).columns(columns.start, columns.end);
                let db = db.as_mut().filter(|_| first == 0);
                let db = db.map(|(db, assign)| (&mut db[columns.clone()], later(*assign)));
                sweep(Pack { dy: dy_part, panel, width, db });
                let ahead = NextColumns::after(dy.into(), row, (columns.end, part.end < k), width);
                match transpose {
                    Transpose::No => {
                        let dw = dw.reborrow().columns(columns.start, columns.end);
                        let (dw, _) = dw.split_rows(part.start).1.split_rows(part.len());
                        multiply(path, left, panel, (dw, later(assign)), ahead);
                    }
                    // The products of this part are computed in scratch that stays in the cache, and are then transposed
                    // into `dw`.
                    Transpose::Yes => {
                        let extent = Extent2 { rows: part.len(), width: columns.len(), stride: width };
                        multiply(path, left, panel, (ViewMut::strided(turned, extent), Assign::Write), ahead);
                        let dw = dw.reborrow().columns(part.start, part.end);
                        let (dw, _) = dw.split_rows(columns.start).1.split_rows(columns.len());
                        sweep(TurnColumns { from: turned, width, to: dw, assign: later(assign) });
                    }
                }
            }
        }
    }
}

/// The left matrix of the product `xᵀ·dy`, stored as the rows of `x`. Each tile of the product reads a few columns of
/// `x`.
#[derive(Clone, Copy)]
enum LeftSide<'a> {
    AsItLies(View<'a, f32>),
    /// Packed columns: the columns of each tile are stored together, row by row. There are `rows` rows and `k` columns in
    /// total.
    Packed {
        columns: &'a [f32],
        rows: usize,
        k: usize,
    },
}

impl<'a> LeftSide<'a> {
    /// Packs the columns of `x` for tiles of at most `most` columns, a few rows at a time, so that cache lines are used
    /// before they are evicted.
    fn packed(x: RowSource<'_, f32>, to: &'a mut [f32], most: usize) -> Self {
        const ROWS: usize = 8;
        let (rows, k) = (x.rows(), x.width());
        for row in (0..rows).step_by(ROWS) {
            let end = rows.min(row + ROWS);
            for part in even_blocks(k, most) {
                let width = part.len();
                let to = &mut to[part.start * rows + row * width..part.start * rows + end * width];
                let columns = x.rows_range(row, end).columns(part.start, part.end);
                match width {
                    12 => copy_rows::<12>(columns, to),
                    11 => copy_rows::<11>(columns, to),
                    8 => copy_rows::<8>(columns, to),
                    6 => copy_rows::<6>(columns, to),
                    5 => copy_rows::<5>(columns, to),
                    _ => {
                        let mut to = to.chunks_exact_mut(width);
                        columns.each(|row| {
                            if let Some(to) = to.next() {
                                to.copy_from_slice(row);
                            }
                        });
                    }
                }
            }
        }
        LeftSide::Packed { columns: to, rows, k }
    }

    fn rows(&self) -> usize {
        match self {
            LeftSide::AsItLies(x) => x.rows(),
            LeftSide::Packed { rows, .. } => *rows,
        }
    }

    fn width(&self) -> usize {
        match self {
            LeftSide::AsItLies(x) => x.width(),
            LeftSide::Packed { k, .. } => *k,
        }
    }

    /// Returns the address of the first row of a tile's columns, and the distance between successive rows.
    fn tile(&self, columns: &Range<usize>) -> (*const f32, usize) {
        match self {
            LeftSide::AsItLies(x) => (x.as_ptr().wrapping_add(columns.start), x.stride()),
            LeftSide::Packed { columns: packed, rows, .. } => {
                (packed[columns.start * rows..].as_ptr(), columns.len())
            }
        }
    }
}

/// Copies rows of the constant width `WIDTH`, so that the compiler copies each row with a few vector moves.
#[inline]
fn copy_rows<const WIDTH: usize>(rows: RowSource<'_, f32>, to: &mut [f32]) {
    let mut to = to.as_chunks_mut::<WIDTH>().0.iter_mut();
    rows.each(|row| {
        if let (Some(row), Some(to)) = (row.first_chunk(), to.next()) {
            *to = *row;
        }
    });
}

/// Packs rows of at most `width` columns into a panel, padded with zeros, and sums the rows for the bias's gradient if
/// this gradient is requested.
struct Pack<'a> {
    dy: View<'a, f32>,
    panel: &'a mut [f32],
    width: usize,
    db: Option<BiasGradient<'a, f32>>,
}

impl Sweep for Pack<'_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        match self.width {
            32 => self.rows::<32>(),
            16 => self.rows::<16>(),
            _ => self.rows::<8>(),
        }
    }
}

impl Pack<'_> {
    /// Packs rows into a panel of the constant width `WIDTH`, so that the compiler copies each row with a few vector moves.
    #[inline(always)]
    fn rows<const WIDTH: usize>(self) {
        let mut sums = [0.0; WIDTH];
        for (row, to) in self.dy.iter().zip(self.panel.as_chunks_mut::<WIDTH>().0) {
            match row.first_chunk::<WIDTH>() {
                Some(row) => *to = *row,
                None => {
                    *to = [0.0; WIDTH];
                    to[..row.len()].copy_from_slice(row);
                }
            }
            sums.iter_mut().zip(to).for_each(|(sum, &mut dy)| *sum += dy);
        }
        if let Some((db, assign)) = self.db {
            put(&sums[..db.len()], db, assign);
        }
    }
}

/// Transposes a part of a gradient: writes or adds the columns of `from` to the rows of `to`. Each row of `from` has
/// `width` numbers.
pub(super) struct TurnColumns<'a> {
    pub(super) from: &'a [f32],
    pub(super) width: usize,
    pub(super) to: ViewMut<'a, f32>,
    pub(super) assign: Assign,
}

impl Sweep for TurnColumns<'_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        match self.width {
            32 => self.columns::<32>(),
            16 => self.columns::<16>(),
            _ => self.columns::<8>(),
        }
    }
}

impl TurnColumns<'_> {
    /// Transposes a few rows at a time, so that the source and the target stay in the nearest cache.
    #[inline(always)]
    fn columns<const WIDTH: usize>(mut self) {
        const BLOCK: usize = 16;
        let rows = &self.from.as_chunks::<WIDTH>().0[..self.to.width()];
        for (block, from) in rows.chunks(BLOCK).enumerate() {
            let start = block * BLOCK;
            for (j, to) in self.to.iter_mut().enumerate().take(WIDTH) {
                let to = &mut to[start..start + from.len()];
                match from.first_chunk::<BLOCK>() {
                    Some(from) => to.iter_mut().zip(from).for_each(|(to, row)| self.assign.put(to, row[j])),
                    None => to.iter_mut().zip(from).for_each(|(to, row)| self.assign.put(to, row[j])),
                }
            }
        }
    }
}

/// The columns of `dy` that are packed next, which are prefetched from memory while the current columns are multiplied.
pub(super) struct NextColumns<'a> {
    dy: LeftMatrix<'a, f32>,
    row: usize,
    end: usize,
    column: usize,
    width: usize,
}

impl<'a> NextColumns<'a> {
    /// Returns the columns, at most `most`, that follow the columns up to `end` of the block from row `row` on. With `again`, all
    /// columns of the block are packed again before the columns of the next block.
    pub(super) fn after(
        dy: LeftMatrix<'a, f32>,
        row: usize,
        (end, again): (usize, bool),
        most: usize,
    ) -> Self {
        let (row, column) = match (end < dy.width(), again) {
            (true, _) => (row, end),
            (false, true) => (row, 0),
            (false, false) => (row + SUM_ROWS, 0),
        };
        let width = most.min(dy.width() - column);
        Self { dy, row, column, end: dy.rows().min(row + SUM_ROWS), width }
    }

    /// Prefetches the columns of the next `rows` rows.
    #[inline]
    pub(super) fn ask(&mut self, rows: usize) {
        for row in self.row..self.end.min(self.row + rows) {
            let (start, stride, size) = match self.dy {
                LeftMatrix::Full(dy) => (dy.as_ptr().cast::<u8>(), dy.stride(), size_of::<f32>()),
                LeftMatrix::Rounded(dy) => (dy.as_ptr().cast(), dy.stride(), size_of::<bf16>()),
            };
            for byte in (0..self.width * size).step_by(ALIGNMENT) {
                prefetch::to_read_later(start.wrapping_add((row * stride + self.column) * size + byte));
            }
        }
        self.row += rows;
    }
}

/// Computes `dw = xᵀ·dy` for one packed panel of `dy`, or adds the product to `dw`.
fn multiply(
    path: Path,
    x: LeftSide<'_>,
    panel: &[f32],
    (mut dw, assign): (ViewMut<'_, f32>, Assign),
    mut ahead: NextColumns<'_>,
) {
    let (width, rows, k) = (PANEL_VECTORS * lanes(path), x.rows(), x.width());
    assert!(panel.len() >= width * rows && dw.width() <= width && dw.rows() == k, "a packed panel");
    let (to, stride) = (dw.as_mut_ptr(), dw.stride());
    let most = max_rows(path, PANEL_VECTORS);
    let share = SUM_ROWS.div_ceil(k.div_ceil(most));
    for part in even_blocks(k, most) {
        ahead.ask(share);
        let (a, a_stride) = x.tile(&part);
        // SAFETY: `part` is a range of columns of `x` and of rows of `dw`. The panel has as many rows as `x`, and
        // `columns` limits the columns that are written to `dw`. The CPU has the instructions of `path`: `path` is
        // `Path::best`, or, in tests, one of the available paths.
        unsafe {
            tile::of_columns(path, part.len())(&Tile {
                rows: part.len(),
                panels: 1,
                k: rows,
                a,
                a_stride,
                b: panel.as_ptr(),
                b_stride: 0,
                c: to.add(part.start * stride),
                c_stride: stride,
                columns: dw.width(),
                from: std::ptr::null(),
                from_stride: 0,
                ahead: 0,
                bias: std::ptr::null(),
                add: assign == Assign::Add,
            });
        }
    }
}

#[cfg(test)]
mod tests;
