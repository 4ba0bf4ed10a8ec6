//! `c = a·b` for a `b` that stays the same over many products: the weights of a step, packed once a batch.
//!
//! `b` is copied into panels of columns as wide as two vector registers, or three; `a` is read as it lies. The bits of an
//! element of `c` depend on its row of `a`, its column of `b` and the [`Path`], on nothing else: not on the other
//! rows, nor on how many there are, nor on which columns a thread was given. That is what makes a sequence's
//! results independent of the batch it travels in.

use std::mem::MaybeUninit;
use std::ops::Range;

use super::cpu::{Cpu, cpu};
use super::float::{Float, Store};
use super::fork::join;
use super::path::Path;
use super::tile::{self, MAX_LANES, PANEL_VECTORS, Size, Tile};
use super::view::{View, ViewMut};

/// Rows and columns of sums that wait before they are added: they have room on the stack.
const ADDED_ROWS: usize = 96;
const MAX_COLUMNS: usize = 3 * MAX_LANES;
/// Below this many multiply-adds, twenty microseconds, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 19;
/// Panels start on a cache line.
pub(super) const ALIGNMENT: usize = 64;

/// Whether a matrix is taken as it lies or transposed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transpose {
    /// As it lies.
    No,
    /// Rows as columns.
    Yes,
}

impl Transpose {
    /// Of the transposed matrix.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Transpose::No => Transpose::Yes,
            Transpose::Yes => Transpose::No,
        }
    }

    /// Rows and columns of the matrix that is taken, by those that lie there.
    pub fn shape<N>(self, (rows, columns): (N, N)) -> (N, N) {
        match self {
            Transpose::No => (rows, columns),
            Transpose::Yes => (columns, rows),
        }
    }
}

/// A right-hand matrix, K × N, in panels of columns.
#[derive(Debug)]
pub struct Packed<T> {
    data: Vec<T>,
    start: usize,
    k: usize,
    n: usize,
    /// Vectors of a panel.
    vectors: usize,
    path: Path,
}

impl<T: Float> Default for Packed<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Float> Packed<T> {
    /// An empty matrix, 0 × 0.
    pub fn new() -> Self {
        Self { data: vec![], start: 0, k: 0, n: 0, vectors: PANEL_VECTORS, path: Path::best() }
    }

    /// The same for a given path, for tests.
    #[cfg(test)]
    pub(super) fn on(path: Path) -> Self {
        assert!(Path::available().contains(&path), "{path:?} on a CPU without it");
        Self { path, ..Self::new() }
    }

    /// Takes `b`, or its transpose, in place of what was there; the allocation is reused.
    pub fn pack(&mut self, b: View<'_, T>, transpose: Transpose) {
        let (k, n) = transpose.shape((b.rows(), b.width()));
        self.resize(k, n);
        self.put(b, transpose, (0, 0));
    }

    /// Becomes K × N, for [`Self::put`] to fill; the allocation is reused.
    pub fn resize(&mut self, k: usize, n: usize) {
        (self.k, self.n) = (k, n);
        self.vectors = tile::panel_vectors(self.path, T::lanes(self.path), n);
        let len = self.panels() * self.panel_width() * k;
        let spare = ALIGNMENT / size_of::<T>();
        if self.data.len() < len + spare {
            self.data.resize(len + spare, T::ZERO);
        }
        self.start = aligned(&self.data);
        if !n.is_multiple_of(self.panel_width()) {
            let last = (self.panels() - 1) * self.panel_width() * k;
            self.data[self.start + last..self.start + len].fill(T::ZERO);
        }
    }

    /// Puts `b`, or its transpose, where its first element is the one in row `row` and column `column`. So matrices that
    /// lie side by side or one below the other are packed one by one.
    ///
    /// # Panics
    /// Unless it fits there.
    pub fn put(&mut self, b: View<'_, T>, transpose: Transpose, (row, column): (usize, usize)) {
        let (k, n, width) = (self.k, self.n, self.panel_width());
        let (rows, columns) = transpose.shape((b.rows(), b.width()));
        assert!(row + rows <= k && column + columns <= n, "a part of a matrix to pack");
        let data = &mut self.data[self.start..self.start + n.div_ceil(width) * width * k];
        for (p, panel) in data.chunks_exact_mut((width * k).max(1)).enumerate() {
            let first = p * width;
            let (from, to) = (first.max(column), (first + width).min(column + columns));
            if from >= to {
                continue;
            }
            let panel = &mut panel[row * width..(row + rows) * width];
            match transpose {
                Transpose::No => {
                    for (to_row, row) in panel.chunks_exact_mut(width).zip(b.iter()) {
                        to_row[from - first..to - first].copy_from_slice(&row[from - column..to - column]);
                    }
                }
                Transpose::Yes => {
                    pack_transposed(b.rows_range(from - column, to - column), panel, (width, from - first));
                }
            }
        }
    }

    /// Rows of the matrix: the length of every sum.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Columns of the matrix.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Columns of a panel; the last one may be partly empty.
    pub fn panel_width(&self) -> usize {
        self.vectors * T::lanes(self.path)
    }

    /// Number of panels.
    pub fn panels(&self) -> usize {
        self.n.div_ceil(self.panel_width())
    }

    /// The columns that a range of panels holds.
    pub fn columns(&self, panels: Range<usize>) -> Range<usize> {
        let width = self.panel_width();
        (panels.start * width).min(self.n)..(panels.end * width).min(self.n)
    }
}

/// Where the first cache line of an array that has one to spare starts.
pub(super) fn aligned<T>(data: &[T]) -> usize {
    // Where the allocator's address is not known (an interpreter), alignment is only speed.
    let spare = ALIGNMENT / size_of::<T>();
    Some(data.as_ptr().align_offset(ALIGNMENT)).filter(|&start| start <= spare).unwrap_or(0)
}

/// Rows of `b` become columns of a panel of `width`, from column `first` on; in blocks, so that both sides stay in cache.
fn pack_transposed<T: Copy>(b: View<'_, T>, panel: &mut [T], (width, first): (usize, usize)) {
    const BLOCK: usize = 16;
    for (block, to) in panel.chunks_mut(width * BLOCK).enumerate() {
        let from = block * BLOCK;
        for (j, row) in b.iter().enumerate() {
            let rest = &row[from..row.len().min(from + BLOCK)];
            for (to, &value) in to.chunks_exact_mut(width).zip(rest) {
                to[first + j] = value;
            }
        }
    }
}

/// `c = a·b`, or `c += a·b` with the finished sums.
///
/// # Panics
/// Unless `a` is M × K, `b` K × N and `c` M × N.
pub fn product<T: Float>(a: View<'_, T>, b: &Packed<T>, c: ViewMut<'_, T>, store: Store) {
    product_panels(a, b, 0..b.panels(), None, c, store);
}

/// `c = bias + a·b` with the finished sums, or `c += …`; without a bias as [`product`]. Up to `threads` threads of
/// rayon's pool share the columns, with the same bits: for few rows, which cannot be divided.
///
/// # Panics
/// Unless `a` is M × K, `b` K × N, `bias` N and `c` M × N.
pub fn affine<T: Float>(
    a: View<'_, T>,
    b: &Packed<T>,
    bias: Option<&[T]>,
    c: ViewMut<'_, T>,
    store: Store,
    threads: usize,
) {
    share_columns(a, b, 0..b.panels(), (bias, c, store), threads);
}

fn share_columns<T: Float>(
    a: View<'_, T>,
    b: &Packed<T>,
    panels: Range<usize>,
    (bias, c, store): (Option<&[T]>, ViewMut<'_, T>, Store),
    threads: usize,
) {
    let work = a.rows() * b.k * b.columns(panels.clone()).len();
    if threads < 2 || panels.len() < 2 || work < WORTH_A_THREAD {
        return product_panels(a, b, panels, bias, c, store);
    }
    let left = threads / 2;
    let middle = panels.start + (panels.len() * left / threads).max(1);
    let columns = b.columns(panels.start..middle).len();
    let (left_bias, right_bias) = bias.map(|bias| bias.split_at(columns)).unzip();
    let (left_c, right_c) = c.split_columns(columns);
    join(
        || share_columns(a, b, panels.start..middle, (left_bias, left_c, store), left),
        || share_columns(a, b, middle..panels.end, (right_bias, right_c, store), threads - left),
    );
}

/// The columns of the product that a range of panels holds, so that threads may share the columns; `c` has just
/// these columns ([`Packed::columns`]), and so has `bias`.
///
/// # Panics
/// Unless `a` is M × K, `b` K × N and `c` M × the number of columns.
pub fn product_panels<T: Float>(
    a: View<'_, T>,
    b: &Packed<T>,
    panels: Range<usize>,
    bias: Option<&[T]>,
    c: ViewMut<'_, T>,
    store: Store,
) {
    product_on(cpu(), a, b, panels, bias, c, store);
}

/// The same, cut for a given CPU.
fn product_on<T: Float>(
    cpu: Cpu,
    a: View<'_, T>,
    b: &Packed<T>,
    panels: Range<usize>,
    bias: Option<&[T]>,
    mut c: ViewMut<'_, T>,
    store: Store,
) {
    assert!(panels.start <= panels.end && panels.end <= b.panels(), "{panels:?} of {} panels", b.panels());
    let (rows, k, columns) = (a.rows(), b.k, b.columns(panels.clone()).len());
    assert_eq!(a.width(), k, "the inner sizes of a product");
    assert_eq!((c.rows(), c.width()), (rows, columns), "the shape of a product");
    assert!(bias.is_none_or(|bias| bias.len() == columns), "the length of a bias");
    if rows == 0 || columns == 0 {
        return;
    }
    let (path, vectors, width) = (b.path, b.vectors, b.panel_width());
    let max_rows = tile::max_rows(path, vectors);
    let panel_len = width * k;
    let (a_ptr, c_ptr, c_stride) = (a.as_ptr(), c.as_mut_ptr(), c.stride());
    let bias = bias.map_or(std::ptr::null(), <[T]>::as_ptr);
    let block = cpu.product_block::<T>(rows, width);
    let cuts = k.div_ceil(block.k).max(1);
    // Sums that are added to what is there wait in a place of their own until they are finished.
    let mut room = MaybeUninit::<[T; ADDED_ROWS * MAX_COLUMNS]>::uninit();
    let apart = store == Store::Add && cuts > 1;
    for rows in even_blocks(rows, if apart { block.rows.min(ADDED_ROWS) } else { block.rows }) {
        let largest = rows.len().div_ceil(rows.len().div_ceil(max_rows));
        let at_once = tile::max_panels(path, vectors, largest).min(if apart { 1 } else { usize::MAX });
        let together = if apart { 1 } else { panels.len() };
        for group in panels.clone().step_by(together) {
            let group = group..panels.end.min(group + together);
            for cut in 0..cuts {
                let (ks, last) = (k * cut / cuts..k * (cut + 1) / cuts, cut + 1 == cuts);
                for panel in group.clone().step_by(at_once) {
                    let count = at_once.min(group.end - panel);
                    let first = (panel - panels.start) * width;
                    for part in even_blocks(rows.len(), max_rows) {
                        let row = rows.start + part.start;
                        // SAFETY: `part` are rows of `a` and `c`; the panels lie in `data` after `start`, as `resize` made
                        // them, and `ks` are rows of theirs; columns from `first` on exist in `c`. Apart, there is one panel
                        // at a time, at most `MAX_COLUMNS` wide, and `part` are rows of the room, which the first cut writes
                        // before the second reads. The CPU has `path`: `Packed::new` asked it.
                        unsafe {
                            let to = c_ptr.add(row * c_stride + first);
                            let (sums, sums_stride) = match apart {
                                true => {
                                    (room.as_mut_ptr().cast::<T>().add(part.start * MAX_COLUMNS), MAX_COLUMNS)
                                }
                                false => (to, c_stride),
                            };
                            let (c, c_stride) = if last { (to, c_stride) } else { (sums, sums_stride) };
                            T::tile(path, Size { rows: part.len(), panels: count, vectors })(&Tile {
                                k: ks.len(),
                                a: a_ptr.wrapping_add(row * a.stride() + ks.start),
                                a_stride: a.stride(),
                                b: b.data.as_ptr().add(b.start + panel * panel_len + ks.start * width),
                                b_stride: panel_len,
                                c,
                                c_stride,
                                columns: columns - first,
                                from: if cut > 0 { sums } else { std::ptr::null() },
                                from_stride: sums_stride,
                                bias: if last && !bias.is_null() {
                                    bias.add(first)
                                } else {
                                    std::ptr::null()
                                },
                                add: last && store == Store::Add,
                            });
                        }
                    }
                }
            }
        }
    }
}

/// `0..len` in as few blocks of at most `most` as possible, of sizes that differ by one at most: 13 rows are
/// 7 + 6, which is faster than 12 + 1.
pub(super) fn even_blocks(len: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    let blocks = len.div_ceil(most);
    (0..blocks).map(move |i| len * i / blocks..len * (i + 1) / blocks)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::cpu::tests::CPUS;
    use crate::kernels::numbers;
    use crate::kernels::view::Extent2;

    fn naive<T: Float>(a: View<'_, T>, b: View<'_, T>, transpose: Transpose) -> Vec<f64> {
        let n = if transpose == Transpose::No { b.width() } else { b.rows() };
        let at = |k: usize, j: usize| if transpose == Transpose::No { b.row(k)[j] } else { b.row(j)[k] };
        let mut out = vec![];
        for row in a.iter() {
            for j in 0..n {
                out.push(row.iter().enumerate().map(|(k, &x)| x.to_f64() * at(k, j).to_f64()).sum());
            }
        }
        out
    }

    fn check<T: Float>(path: Path, (m, k, n): (usize, usize, usize), transpose: Transpose, tolerance: f64) {
        let (b_rows, b_width) = if transpose == Transpose::No { (k, n) } else { (n, k) };
        let a = numbers::<T>((m + 1) * (k + 3), 1);
        let b = numbers::<T>((b_rows + 1) * (b_width + 2), 2);
        let a = View::strided(&a, Extent2 { rows: m, width: k, stride: k + 3 });
        let b = View::strided(&b, Extent2 { rows: b_rows, width: b_width, stride: b_width + 2 });
        let mut packed = Packed::on(path);
        packed.pack(View::new(&numbers::<T>(15, 3), 3, 5), Transpose::No);
        packed.pack(b, transpose);
        assert_eq!((packed.k(), packed.n()), (k, n));
        let stride = n + 5;
        let mut c = vec![T::from_f64(f64::NAN); m * stride];
        let extent = Extent2 { rows: m, width: n, stride };
        product(a, &packed, ViewMut::strided(&mut c, extent), Store::Write);
        let once = c.clone();
        product(a, &packed, ViewMut::strided(&mut c, extent), Store::Add);
        let bias = numbers::<T>(n, 8);
        let mut biased = vec![T::from_f64(f64::NAN); m * stride];
        affine(a, &packed, Some(&bias), ViewMut::strided(&mut biased, extent), Store::Write, 1);
        let first = biased.clone();
        affine(a, &packed, Some(&bias), ViewMut::strided(&mut biased, extent), Store::Add, 1);
        let expected = naive(a, b, transpose);
        for i in 0..m {
            for j in 0..n {
                let (x, twice, y) = (once[i * stride + j], c[i * stride + j], expected[i * n + j]);
                assert!(
                    (x.to_f64() - y).abs() <= tolerance * (k as f64).sqrt(),
                    "{path:?} {m}x{k}x{n}: {x} {y}"
                );
                assert!(twice == x + x, "{path:?} {m}x{k}x{n}: {twice} is not {x} twice");
                let (first, both) = (first[i * stride + j], biased[i * stride + j]);
                assert!(first == bias[j] + x && both == first + first, "{path:?} {m}x{k}x{n}: a bias");
            }
            assert!(
                once[i * stride + n..(i + 1) * stride].iter().all(|x| !x.is_finite()),
                "wrote past a row"
            );
        }
    }

    #[test]
    fn every_cpu_makes_the_same_bits() {
        // Long sums, a last panel that is not full, rows that make several blocks; written and added.
        for (m, k, n) in [(1, 2000, 40), (13, 3001, 33), (130, 1200, 70), (800, 300, 20)] {
            for path in Path::available() {
                let (a, b) = (numbers::<f32>(m * k, 4), numbers::<f32>(k * n, 5));
                let (bias, start) = (numbers::<f32>(n, 6), numbers::<f32>(m * n, 7));
                let mut packed = Packed::on(path);
                packed.pack(View::new(&b, k, n), Transpose::No);
                let run = |cpu, store, bias| {
                    let mut c = start.clone();
                    let to = ViewMut::new(&mut c, m, n);
                    product_on(cpu, View::new(&a, m, k), &packed, 0..packed.panels(), bias, to, store);
                    c
                };
                for (store, bias) in
                    [(Store::Write, None), (Store::Write, Some(&bias[..])), (Store::Add, Some(&bias[..]))]
                {
                    let [first, others @ ..] = CPUS;
                    let expected = run(first, store, bias);
                    for other in others {
                        assert!(
                            run(other, store, bias) == expected,
                            "{path:?} {m}x{k}x{n} {store:?} on {other:?}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn products_match_the_naive_sum() {
        for path in Path::available() {
            for m in [0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 29] {
                for (k, n) in [(0, 5), (1, 1), (7, 33), (64, 64), (30, 131), (17, 0), (5, 200)] {
                    for transpose in [Transpose::No, Transpose::Yes] {
                        check::<f32>(path, (m, k, n), transpose, 1e-6);
                        check::<f64>(path, (m, k, n), transpose, 1e-14);
                    }
                }
            }
        }
    }

    #[test]
    fn matrices_side_by_side_or_below_each_other_pack_as_the_one_they_make() {
        let (k, widths) = (37, [5, 0, 40, 1, 70]);
        let n = widths.iter().sum::<usize>();
        let b = numbers::<f32>(k * n, 9);
        let b = View::new(&b, k, n);
        for path in Path::available() {
            for transpose in [Transpose::No, Transpose::Yes] {
                let mut whole = Packed::on(path);
                whole.pack(b, transpose);
                let numbers =
                    |p: &Packed<f32>| p.data[p.start..p.start + p.panels() * p.panel_width() * p.k].to_vec();
                let room = || {
                    let mut parts = Packed::on(path);
                    // What was there before does not shine through.
                    parts.pack(View::new(&self::numbers::<f32>(200 * 90, 3), 200, 90), Transpose::No);
                    let (k, n) = transpose.shape((k, n));
                    parts.resize(k, n);
                    parts
                };
                let place = |row, column| transpose.shape((row, column));
                let (mut beside, mut at) = (room(), 0);
                for width in widths {
                    beside.put(b.columns(at, at + width), transpose, place(0, at));
                    at += width;
                }
                assert_eq!(numbers(&whole), numbers(&beside), "{path:?}, {transpose:?}");
                let mut below = room();
                for (from, to) in [(0, 20), (20, 20), (20, 21), (21, k)] {
                    below.put(b.rows_range(from, to), transpose, place(from, 0));
                }
                assert_eq!(numbers(&whole), numbers(&below), "{path:?}, {transpose:?}");
            }
        }
    }

    #[test]
    fn products_match_matrixmultiply() {
        let (m, k, n) = (37, 300, 120);
        let (a, b) = (numbers::<f64>(m * k, 6), numbers::<f64>(k * n, 7));
        let mut packed = Packed::new();
        packed.pack(View::new(&b, k, n), Transpose::No);
        let mut ours = vec![0.0; m * n];
        product(View::new(&a, m, k), &packed, ViewMut::new(&mut ours, m, n), Store::Write);
        let mut theirs = vec![0.0; m * n];
        let (ka, na) = (k as isize, n as isize);
        // SAFETY: the three matrices have the sizes and strides that are given.
        unsafe {
            let (a, b, c) = (a.as_ptr(), b.as_ptr(), theirs.as_mut_ptr());
            matrixmultiply::dgemm(m, k, n, 1.0, a, ka, 1, b, na, 1, 0.0, c, na, 1);
        }
        approx::assert_abs_diff_eq!(ours[..], theirs[..], epsilon = 1e-12);
    }

    #[test]
    fn bits_depend_on_neither_rows_nor_columns() {
        // Enough for a second thread; of the two widths one is in panels of two vectors, one of three.
        for n in [150, 140] {
            same_bits(57, 1100, n);
        }
    }

    fn same_bits(m: usize, k: usize, n: usize) {
        let (a, b) = (numbers::<f32>(m * k, 4), numbers::<f32>(k * n, 5));
        for path in Path::available() {
            let mut packed = Packed::on(path);
            packed.pack(View::new(&b, k, n), Transpose::No);
            let mut whole = vec![0.0; m * n];
            product(View::new(&a, m, k), &packed, ViewMut::new(&mut whole, m, n), Store::Write);
            for rows in [1, 2, 3, 5, 8, 13, 40] {
                for from in [0, 1, m - rows] {
                    let mut part = vec![0.0; rows * n];
                    let view = View::new(&a, m, k).rows_range(from, from + rows);
                    product(view, &packed, ViewMut::new(&mut part, rows, n), Store::Write);
                    assert!(part == whole[from * n..(from + rows) * n], "{path:?}: {rows} rows from {from}");
                }
            }
            let mut split = vec![0.0; m * n];
            let at = packed.panels() / 2 + 1;
            let (left, right) = ViewMut::new(&mut split, m, n).split_columns(packed.columns(0..at).end);
            product_panels(View::new(&a, m, k), &packed, 0..at, None, left, Store::Write);
            product_panels(View::new(&a, m, k), &packed, at..packed.panels(), None, right, Store::Write);
            assert!(split == whole, "{path:?}: split columns");
            for threads in [2, 3, 9] {
                let mut shared = vec![0.0; m * n];
                let c = ViewMut::new(&mut shared, m, n);
                affine(View::new(&a, m, k), &packed, None, c, Store::Write, threads);
                assert!(shared == whole, "{path:?}: columns on {threads} threads");
            }
            let mut alone = Packed::on(path);
            alone.pack(View::new(&b, k, n).columns(70, 117), Transpose::No);
            let mut few = vec![0.0; m * 47];
            product(View::new(&a, m, k), &alone, ViewMut::new(&mut few, m, 47), Store::Write);
            for i in 0..m {
                assert!(
                    few[i * 47..(i + 1) * 47] == whole[i * n + 70..i * n + 117],
                    "{path:?}: fewer columns"
                );
            }
        }
    }

    #[test]
    fn blocks_are_even() {
        let sizes = |len, most| even_blocks(len, most).map(|r| r.len()).collect::<Vec<_>>();
        assert_eq!(sizes(13, 12), [6, 7]);
        assert_eq!(sizes(12, 12), [12]);
        assert_eq!(sizes(32, 12), [10, 11, 11]);
        assert!(sizes(0, 12).is_empty());
    }

    #[test]
    #[should_panic(expected = "inner sizes")]
    fn an_inner_mismatch_panics() {
        let mut packed = Packed::new();
        packed.pack(View::new(&[1.0f32; 6], 2, 3), Transpose::No);
        product(View::new(&[1.0; 3], 1, 3), &packed, ViewMut::new(&mut [0.0; 3], 1, 3), Store::Write);
    }
}
