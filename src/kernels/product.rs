//! Matrix products `c = a·b` with a matrix `b` that many products share, such as the weights of a recurrent step: `b` is
//! packed once per batch.
//!
//! In f32, `b` is copied into panels of columns, each two or three vector registers wide; `a` is read without a copy. In
//! f64, which serves only to check f32, the crate `matrixmultiply` computes the product (`double.rs`). The bits of an
//! element of `c` depend only on its row of `a`, its column of `b` and the [`Path`]. They do not depend on other rows, the
//! number of rows, or the division of columns among threads. The results of a sequence therefore do not depend on the other
//! sequences of its batch.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::balance::{boundary, join_measured, queued};
use super::cpu::Cpu;
use super::float::{Assign, Float};
#[cfg(test)]
use super::path::Path;
use super::path::{MatrixUnit, ProductEngine};
use super::products::{Corner, LeftMatrix, PackedMatrix, Products, ResultMatrix, RoundedRows, Transpose};
use super::tile::{MAX_LANES, Size, Tile};
use super::view::{Extent2, View, ViewMut};

/// The number of rows of sums that are computed on the stack before they are added to `c`.
const ADDED_ROWS: usize = 96;
const MAX_COLUMNS: usize = 3 * MAX_LANES;
/// Below this number of multiply-adds (about twenty microseconds), a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 19;
/// The alignment of the start of the panels, in bytes: one cache line.
pub(super) const ALIGNMENT: usize = 64;

/// Makes scratch memory at least `len` numbers long. If the memory must grow, the old memory is freed first; the new
/// memory is exactly `len` numbers long, and all numbers are zero.
pub fn lengthen<T: Copy + Default>(room: &mut Vec<T>, len: usize) {
    if room.len() < len {
        *room = Vec::new();
        room.reserve_exact(len);
        room.resize(len, T::default());
    }
}

/// Empties scratch memory and makes its capacity at least `len` elements. If the capacity must grow, the old memory is
/// freed first, and the new capacity is exactly `len`.
pub fn emptied<T>(room: &mut Vec<T>, len: usize) -> &mut Vec<T> {
    room.clear();
    if room.capacity() < len {
        *room = Vec::new();
        room.reserve_exact(len);
    }
    room
}

impl<T: Float> Default for PackedMatrix<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Float> PackedMatrix<T> {
    /// Returns an empty packed matrix in f32, 0 × 0.
    pub fn new() -> Self {
        Self::by(MatrixUnit::F32.engine())
    }

    /// Returns an empty packed matrix for an engine.
    pub(super) fn by(engine: ProductEngine) -> Self {
        Self { data: vec![], start: 0, k: 0, n: 0, width: T::panel_width(engine, 0), engine }
    }

    /// Returns an empty packed matrix for a given path, for tests.
    #[cfg(test)]
    pub(super) fn on(path: Path) -> Self {
        assert!(Path::available().contains(&path), "{path:?} on a CPU without it");
        Self::by(ProductEngine::F32(path))
    }

    /// Returns an empty packed matrix for products by a unit. A matrix in f64 is the same for every unit.
    pub fn of(unit: MatrixUnit) -> Self {
        Self::by(unit.engine())
    }

    /// Sets the unit for which the next matrix is packed.
    pub fn set_unit(&mut self, unit: MatrixUnit) {
        self.engine = unit.engine();
    }

    /// Returns the size in bytes of a packed matrix of `k` rows and `n` columns.
    pub fn bytes_of(unit: MatrixUnit, k: usize, n: usize) -> usize {
        let engine = unit.engine();
        let (width, words) = (T::panel_width(engine, n), T::words(engine, k));
        n.div_ceil(width).saturating_mul(width).saturating_mul(words).saturating_mul(size_of::<T>())
            + ALIGNMENT
    }

    /// Replaces the packed matrix by `b`, or by the transpose of `b`, on up to `threads` threads; reuses the allocation.
    pub fn pack(&mut self, b: View<'_, T>, transpose: Transpose, threads: usize) {
        let (k, n) = transpose.shape((b.rows(), b.width()));
        self.resize(k, n);
        self.put(b, transpose, (0, 0), threads);
    }

    /// Sets the shape of the packed matrix to K × N, before [`Self::put`] fills the matrix. The method reuses the
    /// allocation.
    pub fn resize(&mut self, k: usize, n: usize) {
        (self.k, self.n) = (k, n);
        self.width = T::panel_width(self.engine, n);
        let words = self.words();
        let len = self.panels() * self.panel_width() * words;
        let spare = ALIGNMENT / size_of::<T>();
        lengthen(&mut self.data, len + spare);
        self.start = aligned(&self.data);
        if !n.is_multiple_of(self.panel_width()) {
            let last = (self.panels() - 1) * self.panel_width() * words;
            self.data[self.start + last..self.start + len].fill(T::ZERO);
        }
        T::clear_ends(self);
    }

    /// Copies `b`, or the transpose of `b`, into the packed matrix, from the row and the column `at` on. A matrix that
    /// consists of several blocks is thus packed block by block. Up to `threads` threads of rayon's pool divide the panels.
    ///
    /// # Panics
    /// If `b` reaches beyond the packed matrix.
    pub fn put(&mut self, b: View<'_, T>, transpose: Transpose, at: Corner, threads: usize) {
        let (rows, columns) = transpose.shape((b.rows(), b.width()));
        assert!(at.0 + rows <= self.k && at.1 + columns <= self.n, "a part of a matrix to pack");
        T::put(self, b, transpose, at, threads);
    }

    /// Returns the number of rows K of the matrix, which is the length of every sum.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Returns the number of elements in a column of a panel: K numbers, or pairs of numbers in bf16.
    pub(super) fn words(&self) -> usize {
        T::words(self.engine, self.k)
    }

    /// Returns the number of columns N of the matrix.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Returns the number of columns per panel; the last panel may be partly empty.
    pub fn panel_width(&self) -> usize {
        self.width
    }

    /// Returns the number of panels of columns.
    pub fn panels(&self) -> usize {
        self.n.div_ceil(self.panel_width())
    }

    /// Returns the range of columns in a range of panels.
    pub fn columns(&self, panels: Range<usize>) -> Range<usize> {
        let width = self.panel_width();
        (panels.start * width).min(self.n)..(panels.end * width).min(self.n)
    }

    /// Returns the packed numbers, followed by spare elements.
    pub(super) fn numbers(&self) -> &[T] {
        &self.data[self.start..]
    }

    /// Returns the packed numbers, followed by spare elements, for writing.
    pub(super) fn numbers_mut(&mut self) -> &mut [T] {
        &mut self.data[self.start..]
    }
}

/// Returns the index of the first element at the start of a cache line; the slice must have a spare line.
pub(super) fn aligned<T>(data: &[T]) -> usize {
    // An interpreter such as Miri may not provide the address; the index is then 0. Alignment affects only the speed.
    let spare = ALIGNMENT / size_of::<T>();
    Some(data.as_ptr().align_offset(ALIGNMENT)).filter(|&start| start <= spare).unwrap_or(0)
}

/// Computes `c = a·b`, or adds the finished sums to `c`. In bf16, `room` holds the rounded rows of `a`.
///
/// # Panics
/// If `a` is not M × K, `b` not K × N, or `c` not M × N.
pub fn product<T: Float>(
    a: View<'_, T>,
    b: &PackedMatrix<T>,
    c: ViewMut<'_, T>,
    assign: Assign,
    room: &mut RoundedRows<T>,
) {
    affine(a.into(), b, None, c.into(), assign, room, 1);
}

/// Computes `c = bias + a·b`, or adds the finished sums to `c`; without a bias, the result equals the result of [`product`].
/// Up to `threads` threads of rayon's pool divide the columns, since a product may have too few rows to divide; the bits do not
/// depend on the number of threads. In bf16, `room` holds the rounded rows of `a`.
///
/// # Panics
/// If `a` is not M × K, `b` not K × N, or `c` not M × N, if `bias` does not have N numbers, if `a` or `c` is in bf16, but `b` is
/// not packed for a product in bf16, or if the product is added to a `c` in bf16.
pub fn affine<T: Float>(
    a: LeftMatrix<'_, T>,
    b: &PackedMatrix<T>,
    bias: Option<&[T]>,
    c: ResultMatrix<'_, T>,
    assign: Assign,
    room: &mut RoundedRows<T>,
    threads: usize,
) {
    assert_eq!(a.width(), b.k, "the inner sizes of a product");
    let threads = if a.rows() * b.k * b.n < WORTH_A_THREAD { 1 } else { threads };
    let most = RoundedRows::<T>::at_once(b.engine).unwrap_or(usize::MAX);
    let mut rest = c;
    for rows in even_blocks(a.rows(), most) {
        let (c, below) = rest.split_rows(rows.len());
        let a = T::left(b.engine, a.rows_range(rows.start, rows.end), room, threads);
        share_columns(a, b, 0..b.panels(), (bias, c, assign), queued(threads));
        rest = below;
    }
}

fn share_columns<T: Float>(
    a: View<'_, T>,
    b: &PackedMatrix<T>,
    panels: Range<usize>,
    (bias, c, assign): (Option<&[T]>, ResultMatrix<'_, T>, Assign),
    threads: usize,
) {
    let work = a.rows() * b.k * b.columns(panels.clone()).len();
    if threads < 2 || panels.len() < 2 || work < WORTH_A_THREAD {
        return product_panels(a, b, panels, bias, c, assign);
    }
    let left = threads / 2;
    let at = boundary(panels.len(), left, threads);
    let middle = panels.start + at;
    let columns = b.columns(panels.start..middle).len();
    let (left_bias, right_bias) = bias.map(|bias| bias.split_at(columns)).unzip();
    let (left_c, right_c) = c.split_columns(columns);
    join_measured(
        (at, panels.len()),
        || share_columns(a, b, panels.start..middle, (left_bias, left_c, assign), left),
        || share_columns(a, b, middle..panels.end, (right_bias, right_c, assign), threads - left),
    );
}

/// Computes the columns of [`affine`] in a range of panels, so that threads can divide the columns. `c` and `bias` have only
/// the columns in these panels ([`PackedMatrix::columns`]); `a` is as the engine of `b` reads it.
///
/// # Panics
/// If `b` does not have these panels, if `a` is not M × K or `b` not K × N, or if `c` or `bias` does not have exactly
/// the columns in the panels.
fn product_panels<T: Float>(
    a: View<'_, T>,
    b: &PackedMatrix<T>,
    panels: Range<usize>,
    bias: Option<&[T]>,
    c: ResultMatrix<'_, T>,
    assign: Assign,
) {
    T::product(a, b, panels, bias, c, assign);
}

/// Checks the shapes of a product, and returns the columns of `b` in a range of panels.
///
/// # Panics
/// As [`product_panels`].
pub(super) fn checked<T: Float>(
    a: View<'_, T>,
    b: &PackedMatrix<T>,
    panels: Range<usize>,
    bias: Option<&[T]>,
    shape: (usize, usize),
) -> Range<usize> {
    assert!(panels.start <= panels.end && panels.end <= b.panels(), "{panels:?} of {} panels", b.panels());
    let columns = b.columns(panels);
    assert_eq!(a.width(), b.words(), "the inner sizes of a product");
    assert_eq!(shape, (a.rows(), columns.len()), "the shape of a product");
    assert!(bias.is_none_or(|bias| bias.len() == columns.len()), "the length of a bias");
    columns
}

/// Computes [`product_panels`] by tiles, with the block sizes for the given CPU.
pub(super) fn product_by_tiles(
    cpu: Cpu,
    a: View<'_, f32>,
    b: &PackedMatrix<f32>,
    panels: Range<usize>,
    bias: Option<&[f32]>,
    c: ResultMatrix<'_, f32>,
    assign: Assign,
) {
    let columns = checked(a, b, panels.clone(), bias, c.shape()).len();
    let (rows, k) = (a.rows(), b.words());
    if rows == 0 || columns == 0 {
        return;
    }
    let (engine, width) = (b.engine, b.width);
    let vectors = width / engine.lanes();
    let max_rows = engine.max_rows(vectors);
    let panel_len = width * k;
    let a_ptr = a.as_ptr();
    let (c_ptr, c_stride, mut halves) = match c {
        ResultMatrix::Full(mut c) => (c.as_mut_ptr(), c.stride(), None),
        ResultMatrix::Rounded(c) => (std::ptr::null_mut(), 0, Some(c)),
    };
    let whole = !engine.is_f32() && assign == Assign::Write;
    assert!(halves.is_none() || whole, "a result in bf16 that a product in bf16 writes");
    let bias = bias.map_or(std::ptr::null(), <[f32]>::as_ptr);
    let ahead = cpu.ahead(rows) / size_of::<f32>();
    let block = cpu.product_block(rows, width);
    let cuts = k.div_ceil(block.k).max(1);
    let boundary_at = |piece: usize| k / engine.step() * piece / cuts * engine.step();
    // If long sums are cut into parts and are added to `c`, or if the sums are rounded, scratch holds the sums until they are
    // finished.
    let mut room = MaybeUninit::<[f32; ADDED_ROWS * MAX_COLUMNS]>::uninit();
    let apart = assign == Assign::Add && cuts > 1 || halves.is_some();
    for rows in even_blocks(rows, if apart { block.rows.min(ADDED_ROWS) } else { block.rows }) {
        let largest = rows.len().div_ceil(rows.len().div_ceil(max_rows));
        let at_once = engine.max_panels(vectors, largest).min(if apart { 1 } else { usize::MAX });
        let together = if apart { 1 } else { panels.len() };
        for group in panels.clone().step_by(together) {
            let group = group..panels.end.min(group + together);
            for piece in 0..cuts {
                let (ks, last) = (boundary_at(piece)..boundary_at(piece + 1), piece + 1 == cuts);
                for panel in group.clone().step_by(at_once) {
                    let count = at_once.min(group.end - panel);
                    let first = (panel - panels.start) * width;
                    for part in even_blocks(rows.len(), max_rows) {
                        let row = rows.start + part.start;
                        // SAFETY: `part` is a range of rows of `a` and `c`. The panels begin at `start` in `data`, as
                        // `resize` arranged them, and `ks` is a range of rows in each panel. `c` has the columns from
                        // `first` on. If `apart` is set, there is one panel at a time, at most `MAX_COLUMNS` wide, and
                        // `part` is a range of rows of the scratch. The first cut writes these rows before the second cut
                        // reads them. If `c` is in bf16, all cuts write the scratch. The CPU has the instructions of the
                        // engine, since `MatrixUnit::engine` chose the engine for this CPU.
                        unsafe {
                            let (sums, sums_stride) = match apart {
                                true => (
                                    room.as_mut_ptr().cast::<f32>().add(part.start * MAX_COLUMNS),
                                    MAX_COLUMNS,
                                ),
                                false => (c_ptr.add(row * c_stride + first), c_stride),
                            };
                            let (c, c_stride) = match last && halves.is_none() {
                                true => (c_ptr.add(row * c_stride + first), c_stride),
                                false => (sums, sums_stride),
                            };
                            engine.of_rows(Size { rows: part.len(), panels: count, vectors })(&Tile {
                                rows: part.len(),
                                panels: count,
                                k: ks.len(),
                                a: a_ptr.wrapping_add(row * a.stride() + ks.start),
                                a_stride: a.stride(),
                                b: b.data.as_ptr().add(b.start + panel * panel_len + ks.start * width),
                                b_stride: panel_len,
                                c,
                                c_stride,
                                columns: columns - first,
                                from: if piece > 0 { sums } else { std::ptr::null() },
                                from_stride: sums_stride,
                                ahead,
                                bias: if last && !bias.is_null() {
                                    bias.add(first)
                                } else {
                                    std::ptr::null()
                                },
                                add: last && assign == Assign::Add,
                            });
                        }
                    }
                    if let Some(to) = halves.as_mut().filter(|_| last) {
                        let to = to.reborrow().columns(first, columns.min(first + width));
                        let to = to.rows_range(rows.start, rows.end);
                        let extent = Extent2 { rows: rows.len(), width: to.width(), stride: MAX_COLUMNS };
                        // SAFETY: the tiles of the last cut wrote these rows and columns of the scratch.
                        let sums = unsafe { View::from_raw(room.as_ptr().cast::<f32>(), extent) };
                        f32::round_to_bf16(sums, to);
                    }
                }
            }
        }
    }
}

/// Divides `0..len` into as few blocks of at most `most` as possible, with sizes that differ by at most one. For example, 13
/// rows become 7 + 6, which is faster than 12 + 1.
pub(super) fn even_blocks(len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = len.div_ceil(most);
    (0..blocks).map(move |i| len * i / blocks..len * (i + 1) / blocks)
}

#[cfg(test)]
mod tests;
