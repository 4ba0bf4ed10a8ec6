//! The innermost loop of the packed products in f32: it multiplies a few rows by one or more panels of columns, with the
//! sums in registers.
//!
//! The generic function [`tile`] over a [`Vector`] type is the only source of all tiles; a macro compiles it for each tile
//! size and for the vector's instructions. A tile reads the left matrix by rows, or, for a transposed product, by columns.
//! Every output element has one sum, which starts at 0 and adds `a[i][k]·b[k][j]` for ascending k. The sums may be stored
//! after any k and continued later. Neither storing the sums nor the size of a tile changes the bits of an element.

use std::mem::MaybeUninit;

use super::path::Path;
use super::prefetch;

/// The usual number of vectors per row of a panel.
pub(super) const PANEL_VECTORS: usize = 2;
/// The number of f32 elements of the widest vector.
pub(super) const MAX_LANES: usize = 16;

/// The operands of a tile: rows of `a`, panels of `b` and elements of `c`.
pub(super) struct Tile {
    pub(super) rows: usize,
    pub(super) panels: usize,
    /// The number of words that each sum reads of each operand: the number of products, or of pairs of products.
    pub(super) k: usize,
    /// The address of the first row of `a`; for a transposed tile, of the first column.
    pub(super) a: *const f32,
    /// The number of elements from the start of one stored row of `a` to the start of the next row.
    pub(super) a_stride: usize,
    /// The address of the first panel of `b`.
    pub(super) b: *const f32,
    /// The number of elements from the start of one panel of `b` to the start of the next panel.
    pub(super) b_stride: usize,
    /// The address of the first element of `c`.
    pub(super) c: *mut f32,
    /// The number of elements from the start of one row of `c` to the start of the next row.
    pub(super) c_stride: usize,
    /// The number of columns of `c` from the tile's first column on; the panels may be wider.
    pub(super) columns: usize,
    /// The address of stored sums that the tile continues; null if the sums start at 0.
    pub(super) from: *const f32,
    /// The number of elements from the start of one row of `from` to the start of the next row.
    pub(super) from_stride: usize,
    /// The address of the biases, one per column; null if there is no bias.
    pub(super) bias: *const f32,
    /// The distance, in elements, from the words of the panels that are read to the words that are prefetched; 0 prefetches
    /// nothing.
    pub(super) ahead: usize,
    /// Whether the result is added to `c` instead of replacing it.
    pub(super) add: bool,
}

/// A function that computes tiles of one size with the instructions of one path. The pointers in the argument must be valid for
/// the tile's size, and the CPU must have the instructions of the path.
pub(super) type TileFn = unsafe fn(&Tile);

/// The size of a tile: `rows` rows × `panels` panels of `vectors` vectors each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) rows: usize,
    pub(super) panels: usize,
    pub(super) vectors: usize,
}

/// Returns the number of f32 elements in a vector of a path.
pub(super) fn lanes(path: Path) -> usize {
    match path {
        Path::Avx512 => 16,
        Path::Avx2 => 8,
        Path::Neon | Path::Portable => 4,
    }
}

/// Returns the function of a tile that reads rows of `a`. The size must not exceed [`max_rows`] and [`max_panels`].
pub(super) fn of_rows(path: Path, size: Size) -> TileFn {
    sized(path, size, false)
}

/// Returns the function of a transposed tile. The function reads `rows` columns of `a` (at most [`max_rows`]) as rows,
/// and one panel of [`PANEL_VECTORS`] vectors. The sums of a transposed tile start at 0 and have no bias.
pub(super) fn of_columns(path: Path, rows: usize) -> TileFn {
    sized(path, Size { rows, panels: 1, vectors: PANEL_VECTORS }, true)
}

fn sized(path: Path, size: Size, transposed: bool) -> TileFn {
    match path {
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 => x86::avx512(size, transposed),
        #[cfg(target_arch = "x86_64")]
        Path::Avx2 => x86::avx2(size, transposed),
        #[cfg(target_arch = "aarch64")]
        Path::Neon => neon::neon(size, transposed),
        _ => portable(size, transposed),
    }
}

/// Returns the number of vectors per panel for a matrix of `columns` columns. The choice minimizes the empty columns of the
/// last panel, since computing them is wasted work.
pub(super) fn panel_vectors(path: Path, columns: usize) -> usize {
    let filled = |vectors: usize| columns.div_ceil(vectors * lanes(path)) * vectors;
    if matches!(path, Path::Avx512 | Path::Neon) && filled(3) < filled(PANEL_VECTORS) {
        3
    } else {
        PANEL_VECTORS
    }
}

/// Returns the maximum number of rows of a tile whose panels have `vectors` vectors.
pub(super) fn max_rows(path: Path, vectors: usize) -> usize {
    match (path, vectors) {
        (Path::Avx512 | Path::Neon, PANEL_VECTORS) => 12,
        (Path::Avx512 | Path::Neon, _) => 8,
        (Path::Avx2 | Path::Portable, _) => 6,
    }
}

/// Returns the maximum number of panels for a tile of `rows` rows. A tile with few rows has more panels, so that there are
/// enough independent sums.
pub(super) fn max_panels(path: Path, vectors: usize, rows: usize) -> usize {
    match (path, vectors, rows) {
        (Path::Avx512 | Path::Neon, PANEL_VECTORS, 1) => 4,
        (Path::Avx512 | Path::Neon, PANEL_VECTORS, 2) | (Path::Avx512 | Path::Neon, _, 1) => 3,
        (Path::Avx512 | Path::Neon, PANEL_VECTORS, 3 | 4) | (Path::Avx512 | Path::Neon, _, 2) => 2,
        (Path::Avx2 | Path::Portable, _, 1) => 4,
        (Path::Avx2 | Path::Portable, _, 2) => 2,
        _ => 1,
    }
}

/// A vector register of f32 elements. The methods of a vector must run inside a function that is compiled for the vector's
/// instructions.
pub(super) trait Vector: Copy {
    const LANES: usize;
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: *const f32) -> Self;
    unsafe fn store(self, to: *mut f32);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
}

/// # Safety
/// See [`TileFn`].
#[expect(clippy::needless_range_loop, reason = "rows and columns are places in three arrays")]
#[inline(always)]
pub(super) unsafe fn tile<
    V,
    const ROWS: usize,
    const COLUMNS: usize,
    const VECTORS: usize,
    const TRANSPOSED: bool,
>(
    t: &Tile,
) where
    V: Vector,
{
    // SAFETY: all pointers stay within `ROWS` rows of `k` elements, within the panels of `COLUMNS` vectors and within
    // `columns` columns; the caller guarantees these sizes. Each vector has its own part of `room`, which is written before
    // it is read.
    unsafe {
        let zero = V::splat(0.0);
        // Code that uses the sums must consist of short loops, nested at most two deep. The compiler unrolls these
        // loops, so that the sums stay in registers. A tile with its sums in memory is half as fast. If `c` has fewer
        // columns than the panels, the sums are therefore loaded and stored through `room`.
        let mut sums = [[zero; COLUMNS]; ROWS];
        let mut room = MaybeUninit::<[[V; COLUMNS]; ROWS]>::uninit();
        let room = room.as_mut_ptr().cast::<f32>();
        let width = COLUMNS * V::LANES;
        // The code uses wrapping pointer arithmetic: for k = 0, `a` may have no elements.
        let mut rows = [t.a; ROWS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = t.a.wrapping_add(i * t.a_stride);
        }
        // A large result is not in the cache, so the cache lines of `c` are prefetched while the sums are computed.
        for i in 0..ROWS {
            for v in 0..COLUMNS {
                // The address may be beyond the last column of `c`; prefetching such an address is allowed.
                prefetch::to_write(t.c.wrapping_add(i * t.c_stride + v * V::LANES));
            }
        }
        if const { !TRANSPOSED } && !t.from.is_null() {
            let (mut from, mut stride) = (t.from, t.from_stride);
            if t.columns < width {
                first_columns(room, (ROWS, width), t);
                (from, stride) = (room, width);
            }
            for i in 0..ROWS {
                for v in 0..COLUMNS {
                    sums[i][v] = V::load(from.add(i * stride + v * V::LANES));
                }
            }
        }
        for k in 0..t.k {
            let mut b = [zero; COLUMNS];
            for (v, vector) in b.iter_mut().enumerate() {
                let (panel, within) = (v / VECTORS, v % VECTORS);
                let at = t.b.add(panel * t.b_stride + (k * VECTORS + within) * V::LANES);
                *vector = V::load(at);
                // Without a distance, this prefetches the line that was just read, which costs less than a branch.
                if const { !TRANSPOSED } && (v * V::LANES).is_multiple_of(MAX_LANES) {
                    prefetch::to_read(at.wrapping_add(t.ahead));
                }
            }
            for i in 0..ROWS {
                let a = if TRANSPOSED { t.a.add(k * t.a_stride + i) } else { rows[i].add(k) };
                let a = V::splat(*a);
                for v in 0..COLUMNS {
                    sums[i][v] = a.mul_add(b[v], sums[i][v]);
                }
            }
        }
        if t.columns < width {
            for i in 0..ROWS {
                for v in 0..COLUMNS {
                    sums[i][v].store(room.add(i * width + v * V::LANES));
                }
            }
            return last_columns(room, (ROWS, width), t);
        }
        if const { !TRANSPOSED } && !t.bias.is_null() {
            for i in 0..ROWS {
                for v in 0..COLUMNS {
                    sums[i][v] = V::load(t.bias.add(v * V::LANES)).add(sums[i][v]);
                }
            }
        }
        if t.add {
            for i in 0..ROWS {
                for v in 0..COLUMNS {
                    sums[i][v] = V::load(t.c.add(i * t.c_stride + v * V::LANES)).add(sums[i][v]);
                }
            }
        }
        for i in 0..ROWS {
            for v in 0..COLUMNS {
                sums[i][v].store(t.c.add(i * t.c_stride + v * V::LANES));
            }
        }
    }
}

/// Sets the sums of a row to the stored sums that the tile continues, if there are any. The sums belong to the `columns`
/// columns from `column` on.
///
/// # Safety
/// The caller must satisfy [`TileFn`] for a tile with this row and these columns.
#[inline(always)]
pub(super) unsafe fn start(sums: &mut [f32], t: &Tile, (row, column, columns): (usize, usize, usize)) {
    if !t.from.is_null() {
        // SAFETY: the caller guarantees the row and the columns of `from`.
        let from = unsafe { std::slice::from_raw_parts(t.from.add(row * t.from_stride + column), columns) };
        sums[..columns].copy_from_slice(from);
    }
}

/// Writes the sums of a row to `c`: adds the bias, then adds the result to `c` if the tile adds.
///
/// # Safety
/// The caller must satisfy [`TileFn`] for a tile with this row and these columns.
#[inline(always)]
pub(super) unsafe fn finish(sums: &mut [f32], t: &Tile, (row, column, columns): (usize, usize, usize)) {
    let sums = &mut sums[..columns];
    // SAFETY: the caller guarantees the row and the columns of `c`, and the columns of `bias`; no operand overlaps `c`.
    let (c, bias) = unsafe {
        let c = std::slice::from_raw_parts_mut(t.c.add(row * t.c_stride + column), columns);
        (c, (!t.bias.is_null()).then(|| std::slice::from_raw_parts(t.bias.add(column), columns)))
    };
    if let Some(bias) = bias {
        sums.iter_mut().zip(bias).for_each(|(sum, bias)| *sum += bias);
    }
    match t.add {
        true => c.iter_mut().zip(sums).for_each(|(c, sum)| *c += *sum),
        false => c.copy_from_slice(sums),
    }
}

/// Loads stored sums into `room` if `c` has fewer columns than the panels; `room` then has rows of `width` numbers, padded with
/// zeros.
///
/// # Safety
/// The caller must satisfy [`TileFn`] for a tile of `rows` rows; `room` must hold `rows` rows of `width` elements.
#[inline(never)]
unsafe fn first_columns(room: *mut f32, (rows, width): (usize, usize), t: &Tile) {
    for i in 0..rows {
        // SAFETY: each row of `from` is read only in `columns` columns, which are fewer than `width`.
        unsafe {
            let to = room.add(i * width);
            to.copy_from_nonoverlapping(t.from.add(i * t.from_stride), t.columns);
            to.add(t.columns).write_bytes(0, width - t.columns);
        }
    }
}

/// Writes the sums in `room` to `c` if `c` has fewer columns than the panels.
///
/// # Safety
/// The caller must satisfy [`TileFn`] for a tile of `rows` rows; `room` must hold `rows` rows of `width` elements.
#[inline(never)]
unsafe fn last_columns(room: *mut f32, (rows, width): (usize, usize), t: &Tile) {
    for i in 0..rows {
        // SAFETY: `room` has `rows` rows of `width` numbers, and overlaps no operand; `columns` is less than `width`.
        unsafe {
            let sums = std::slice::from_raw_parts_mut(room.add(i * width), width);
            finish(sums, t, (i, 0, t.columns));
        }
    }
}

/// A vector for builds without intrinsics: an array that the compiler turns into vector instructions.
#[derive(Clone, Copy)]
pub(super) struct Array([f32; 4]);

impl Vector for Array {
    const LANES: usize = 4;
    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Array([value; 4])
    }
    #[inline(always)]
    unsafe fn load(from: *const f32) -> Self {
        // SAFETY: the caller guarantees that `LANES` elements are readable.
        unsafe { Array(from.cast::<[f32; 4]>().read_unaligned()) }
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut f32) {
        // SAFETY: the caller guarantees that `LANES` elements are writable.
        unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        Array(std::array::from_fn(|i| self.0[i] + other.0[i]))
    }
    #[inline(always)]
    unsafe fn mul_add(self, b: Self, c: Self) -> Self {
        #[cfg(target_feature = "fma")]
        return Array(std::array::from_fn(|i| self.0[i].mul_add(b.0[i], c.0[i])));
        #[cfg(not(target_feature = "fma"))]
        Array(std::array::from_fn(|i| self.0[i] * b.0[i] + c.0[i]))
    }
}

#[cfg(target_arch = "x86_64")]
macro_rules! x86_vector {
    ($vector:ident, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $fma:ident) => {
        // SAFETY (every block): the caller of a method guarantees that the CPU has the instructions and that pointers are
        // valid for `LANES` elements.
        impl Vector for std::arch::x86_64::$vector {
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                // SAFETY: the caller guarantees that the CPU has the instructions.
                unsafe { std::arch::x86_64::$splat(value) }
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: the caller guarantees the instructions and `LANES` readable elements.
                unsafe { std::arch::x86_64::$load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: the caller guarantees the instructions and `LANES` writable elements.
                unsafe { std::arch::x86_64::$store(to, self) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: the caller guarantees that the CPU has the instructions.
                unsafe { std::arch::x86_64::$add(self, other) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: the caller guarantees that the CPU has the instructions.
                unsafe { std::arch::x86_64::$fma(self, b, c) }
            }
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! neon_vector {
    ($vector:ident, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $fma:ident) => {
        impl Vector for std::arch::aarch64::$vector {
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(mut value: f32) -> Self {
                // The empty assembly block keeps the number in a register, so that `fmla` reads the number as an element of
                // a vector. Otherwise the compiler fills a vector with `ld1r`, which occupies one of the multiplication
                // units. SAFETY: the assembly is empty, and every 64-bit ARM has the instructions.
                unsafe {
                    asm!("/* {0:v} */", inout(vreg) value, options(pure, nomem, nostack, preserves_flags));
                    std::arch::aarch64::$splat(value)
                }
            }
            #[inline(always)]
            unsafe fn load(from: *const f32) -> Self {
                // SAFETY: the caller guarantees that `LANES` elements are readable.
                unsafe { std::arch::aarch64::$load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut f32) {
                // SAFETY: the caller guarantees that `LANES` elements are writable.
                unsafe { std::arch::aarch64::$store(to, self) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: every 64-bit ARM CPU has these instructions.
                unsafe { std::arch::aarch64::$add(self, other) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: every 64-bit ARM CPU has these instructions.
                unsafe { std::arch::aarch64::$fma(c, self, b) }
            }
        }
    };
}

/// Defines a function that returns the tile function for a size; each tile function is compiled with the given target
/// features.
macro_rules! tile_table {
    ($name:ident, $vector:ty, [$($feature:meta)?],
        [$($vectors:literal: $(($rows:literal, $panels:literal)),+);+], [$($columns:literal),*]) => {
        pub(super) fn $name(size: Size, transposed: bool) -> TileFn {
            /// # Safety
            /// See [`TileFn`].
            $(#[$feature])?
            unsafe fn sized<
                const ROWS: usize,
                const COLUMNS: usize,
                const VECTORS: usize,
                const TRANSPOSED: bool,
            >(
                t: &Tile,
            ) {
                // SAFETY: the caller guarantees the conditions of `tile`.
                unsafe { tile::<$vector, ROWS, COLUMNS, VECTORS, TRANSPOSED>(t) }
            }
            match (size.vectors, size.rows, size.panels, transposed) {
                $($(($vectors, $rows, $panels, false) => sized::<$rows, { $panels * $vectors }, $vectors, false>,)+)+
                $((PANEL_VECTORS, $columns, 1, true) => sized::<$columns, PANEL_VECTORS, PANEL_VECTORS, true>,)*
                _ => unreachable!("a tile of {size:?}"),
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use tile_table;

/// The tile sizes for CPUs with 32 vector registers.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! wide_table {
    ($name:ident, $vector:ty, [$($feature:meta)?]) => {
        tile_table!(
            $name,
            $vector,
            [$($feature)?],
            [
                2: (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1),
                    (6, 1), (7, 1), (8, 1), (9, 1), (10, 1), (11, 1), (12, 1);
                3: (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1), (4, 1), (5, 1), (6, 1), (7, 1), (8, 1)
            ],
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]
        );
    };
}

/// The tile sizes for CPUs with 16 vector registers.
macro_rules! narrow_table {
    ($name:ident, $vector:ty, [$($feature:meta)?]) => {
        tile_table!(
            $name,
            $vector,
            [$($feature)?],
            [2: (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (3, 1), (4, 1), (5, 1), (6, 1)],
            [1, 2, 3, 4, 5, 6]
        );
    };
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{PANEL_VECTORS, Size, Tile, TileFn, Vector, tile};
    use std::arch::x86_64::{__m256, __m512};
    x86_vector!(
        __m512,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_fmadd_ps
    );
    x86_vector!(__m256, 8, _mm256_set1_ps, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_add_ps, _mm256_fmadd_ps);
    wide_table!(avx512, __m512, [target_feature(enable = "avx512f,avx2,fma")]);
    narrow_table!(avx2, __m256, [target_feature(enable = "avx2,fma")]);
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{PANEL_VECTORS, Size, Tile, TileFn, Vector, tile};
    use std::arch::{aarch64::float32x4_t, asm};
    neon_vector!(float32x4_t, 4, vdupq_n_f32, vld1q_f32, vst1q_f32, vaddq_f32, vfmaq_f32);
    wide_table!(neon, float32x4_t, []);
}

narrow_table!(portable, Array, []);

#[cfg(test)]
mod tests;
