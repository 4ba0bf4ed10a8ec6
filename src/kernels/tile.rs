//! The innermost loop of the packed products: a few rows times one or more column panels, sums held in registers.
//!
//! One generic source, [`tile`], over a [`Vector`] type; a macro wraps each size in a function compiled for its
//! instructions. The left side is read as it lies, or transposed: then the sums go down its columns. Every output element
//! has one sum, started at 0 and extended by `a[i][k]·b[k][j]` for k ascending. It may stop at any k, be stored, and go on from
//! there: neither that nor the size of a tile changes an element's bits.

use super::path::Path;
use super::prefetch;

/// Vectors side by side in a panel of columns, where nothing speaks for more.
pub(super) const PANEL_VECTORS: usize = 2;
/// Elements of the widest vector.
pub(super) const MAX_LANES: usize = 16;

/// Rows × panels of one product.
pub struct Tile<T> {
    /// Length of the sums.
    pub(super) k: usize,
    /// First row of `a`, or of a transposed tile first column.
    pub(super) a: *const T,
    /// Elements between rows of `a` as it lies.
    pub(super) a_stride: usize,
    /// First panel of `b`.
    pub(super) b: *const T,
    /// Elements between panels of `b`.
    pub(super) b_stride: usize,
    /// First element of `c`.
    pub(super) c: *mut T,
    /// Elements between rows of `c`.
    pub(super) c_stride: usize,
    /// Columns of `c` that exist; the panels may be wider.
    pub(super) columns: usize,
    /// Where the sums go on from, of the same columns; null where they begin.
    pub(super) from: *const T,
    /// Elements between rows of `from`.
    pub(super) from_stride: usize,
    /// What each column's sums are added to, the same for every row; null for nothing.
    pub(super) bias: *const T,
    /// Adds the result to `c` instead of replacing it.
    pub(super) add: bool,
}

/// A tile of one size on one path. The pointers of its argument must be valid for that size, and the CPU must
/// have the path's instructions.
pub(super) type TileFn<T> = unsafe fn(&Tile<T>);

/// How large a tile is: rows × panels of so many vectors each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    pub(super) rows: usize,
    pub(super) panels: usize,
    pub(super) vectors: usize,
}

/// The tiles of an element type. Sealed: only `f32` and `f64` have them.
pub trait Tiles: Sized {
    /// Elements of a vector.
    fn lanes(path: Path) -> usize;
    /// The function for a size within [`max_rows`] and [`max_panels`].
    fn tile(path: Path, size: Size) -> TileFn<Self>;
    /// The function for so many columns of `a` as rows, within [`max_rows`], × one panel of [`PANEL_VECTORS`].
    fn transposed_tile(path: Path, rows: usize) -> TileFn<Self>;
}

/// The vectors of a panel for a matrix of so many columns: the columns that fill the last panel up are lost work.
pub(super) fn panel_vectors(path: Path, lanes: usize, columns: usize) -> usize {
    let filled = |vectors: usize| columns.div_ceil(vectors * lanes) * vectors;
    if matches!(path, Path::Avx512 | Path::Neon) && filled(3) < filled(PANEL_VECTORS) {
        3
    } else {
        PANEL_VECTORS
    }
}

/// The most rows of one tile of panels of so many vectors.
pub(super) fn max_rows(path: Path, vectors: usize) -> usize {
    match (path, vectors) {
        (Path::Avx512 | Path::Neon, PANEL_VECTORS) => 12,
        (Path::Avx512 | Path::Neon, _) => 8,
        (Path::Avx2 | Path::Portable, _) => 6,
    }
}

/// The panels of one tile of so many rows: with few rows more of them, so that enough sums are under way at a time.
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

/// A register of elements. Its methods must run inside a function that has its instructions.
pub(super) trait Vector: Copy {
    type Elem: Copy + Default + std::ops::Add<Output = Self::Elem>;
    const LANES: usize;
    unsafe fn splat(value: Self::Elem) -> Self;
    unsafe fn load(from: *const Self::Elem) -> Self;
    unsafe fn store(self, to: *mut Self::Elem);
    unsafe fn add(self, other: Self) -> Self;
    unsafe fn mul_add(self, b: Self, c: Self) -> Self;
}

/// # Safety
/// See [`TileFn`].
#[expect(clippy::needless_range_loop, reason = "rows and columns are places in three arrays")]
#[inline(always)]
unsafe fn tile<V, const ROWS: usize, const COLUMNS: usize, const VECTORS: usize, const TRANSPOSED: bool>(
    t: &Tile<V::Elem>,
) where
    V: Vector,
{
    // SAFETY: all pointers stay within `ROWS` rows of `k` elements, the panels of `COLUMNS` vectors and `columns`
    // columns, which the caller vouches for.
    unsafe {
        let zero = V::splat(V::Elem::default());
        // Whatever touches the sums must be a short loop of two levels: the compiler unrolls those, and keeps the sums in
        // registers. In memory a tile is half as fast.
        let mut sums = [[zero; COLUMNS]; ROWS];
        // Without elements (k = 0) there may be nothing to point into.
        let mut rows = [t.a; ROWS];
        for (i, row) in rows.iter_mut().enumerate() {
            *row = t.a.wrapping_add(i * t.a_stride);
        }
        // A large result is not in cache: its lines are asked for while the sums are made.
        for i in 0..ROWS {
            for v in 0..COLUMNS {
                // The last columns may reach past the end.
                prefetch::to_write(t.c.wrapping_add(i * t.c_stride + v * V::LANES));
            }
        }
        if !t.from.is_null() {
            if t.columns < COLUMNS * V::LANES {
                let room = first_columns::<V, ROWS, COLUMNS>(t);
                for i in 0..ROWS {
                    for v in 0..COLUMNS {
                        sums[i][v] = V::load(room[i][v].as_ptr());
                    }
                }
            } else {
                for i in 0..ROWS {
                    for v in 0..COLUMNS {
                        sums[i][v] = V::load(t.from.add(i * t.from_stride + v * V::LANES));
                    }
                }
            }
        }
        for k in 0..t.k {
            let mut b = [zero; COLUMNS];
            for (v, vector) in b.iter_mut().enumerate() {
                let (panel, within) = (v / VECTORS, v % VECTORS);
                *vector = V::load(t.b.add(panel * t.b_stride + (k * VECTORS + within) * V::LANES));
            }
            for i in 0..ROWS {
                let a = if TRANSPOSED { t.a.add(k * t.a_stride + i) } else { rows[i].add(k) };
                let a = V::splat(*a);
                for v in 0..COLUMNS {
                    sums[i][v] = a.mul_add(b[v], sums[i][v]);
                }
            }
        }
        if t.columns < COLUMNS * V::LANES {
            return last_columns(&sums, t);
        }
        if !t.bias.is_null() {
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

/// Sums that go on from where they stopped, if not all columns exist; those that don't are zero.
///
/// # Safety
/// See [`TileFn`].
unsafe fn first_columns<V: Vector, const ROWS: usize, const COLUMNS: usize>(
    t: &Tile<V::Elem>,
) -> [[[V::Elem; MAX_LANES]; COLUMNS]; ROWS] {
    let mut room = [[[V::Elem::default(); MAX_LANES]; COLUMNS]; ROWS];
    for (i, row) in room.iter_mut().enumerate() {
        for (v, to) in row.iter_mut().enumerate() {
            let first = v * V::LANES;
            let live = t.columns.saturating_sub(first).min(V::LANES);
            for (j, to) in to[..live].iter_mut().enumerate() {
                // SAFETY: of `from` only `columns` are touched.
                unsafe { *to = *t.from.add(i * t.from_stride + first + j) };
            }
        }
    }
    room
}

/// Puts sums where they belong if not all columns exist.
///
/// # Safety
/// See [`TileFn`].
#[inline(always)]
unsafe fn last_columns<V: Vector, const ROWS: usize, const COLUMNS: usize>(
    sums: &[[V; COLUMNS]; ROWS],
    t: &Tile<V::Elem>,
) {
    let mut room = [[[V::Elem::default(); MAX_LANES]; COLUMNS]; ROWS];
    // SAFETY: each vector has its place in `room`; of `bias` and `c` only `columns` are touched.
    unsafe {
        for i in 0..ROWS {
            for v in 0..COLUMNS {
                sums[i][v].store(room[i][v].as_mut_ptr());
            }
        }
        for (i, row) in room.iter().enumerate() {
            for (v, sums) in row.iter().enumerate() {
                let first = v * V::LANES;
                let live = t.columns.saturating_sub(first).min(V::LANES);
                for (j, &sum) in sums[..live].iter().enumerate() {
                    let c = t.c.add(i * t.c_stride + first + j);
                    let sum = if t.bias.is_null() { sum } else { *t.bias.add(first + j) + sum };
                    *c = if t.add { *c + sum } else { sum };
                }
            }
        }
    }
}

/// A register for builds without intrinsics; the compiler makes vectors of it.
#[derive(Clone, Copy)]
pub(super) struct Array<T, const LANES: usize>([T; LANES]);

macro_rules! array_vector {
    ($type:ident, $lanes:literal) => {
        impl Vector for Array<$type, $lanes> {
            type Elem = $type;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(value: $type) -> Self {
                Array([value; $lanes])
            }
            #[inline(always)]
            unsafe fn load(from: *const $type) -> Self {
                // SAFETY: the caller vouches for `LANES` elements.
                unsafe { Array(from.cast::<[$type; $lanes]>().read_unaligned()) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $type) {
                // SAFETY: the caller vouches for `LANES` elements.
                unsafe { to.cast::<[$type; $lanes]>().write_unaligned(self.0) }
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
    };
}
array_vector!(f32, 4);
array_vector!(f64, 2);

#[cfg(target_arch = "x86_64")]
macro_rules! x86_vector {
    ($type:ident, $vector:ident, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $fma:ident) => {
        // SAFETY (every block): the methods' contract is that the CPU has the instructions and pointers hold
        // `LANES` elements.
        impl Vector for std::arch::x86_64::$vector {
            type Elem = $type;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(value: $type) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$splat(value) }
            }
            #[inline(always)]
            unsafe fn load(from: *const $type) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $type) {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$store(to, self) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$add(self, other) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: as above.
                unsafe { std::arch::x86_64::$fma(self, b, c) }
            }
        }
    };
}

#[cfg(target_arch = "aarch64")]
macro_rules! neon_vector {
    ($type:ident, $vector:ident, $lanes:literal, $splat:ident, $load:ident, $store:ident, $add:ident, $fma:ident) => {
        impl Vector for std::arch::aarch64::$vector {
            type Elem = $type;
            const LANES: usize = $lanes;
            #[inline(always)]
            unsafe fn splat(mut value: $type) -> Self {
                // Says nothing but that the number is in a register: else the compiler fills a vector by `ld1r`, which
                // takes one of the units that multiply. So `fmla` takes it as an element.
                // SAFETY: it is empty; and every 64-bit ARM has the instructions.
                unsafe {
                    asm!("/* {0:v} */", inout(vreg) value, options(pure, nomem, nostack, preserves_flags));
                    std::arch::aarch64::$splat(value)
                }
            }
            #[inline(always)]
            unsafe fn load(from: *const $type) -> Self {
                // SAFETY: the caller vouches for `LANES` elements.
                unsafe { std::arch::aarch64::$load(from) }
            }
            #[inline(always)]
            unsafe fn store(self, to: *mut $type) {
                // SAFETY: the caller vouches for `LANES` elements.
                unsafe { std::arch::aarch64::$store(to, self) }
            }
            #[inline(always)]
            unsafe fn add(self, other: Self) -> Self {
                // SAFETY: every 64-bit ARM has the instructions.
                unsafe { std::arch::aarch64::$add(self, other) }
            }
            #[inline(always)]
            unsafe fn mul_add(self, b: Self, c: Self) -> Self {
                // SAFETY: every 64-bit ARM has the instructions.
                unsafe { std::arch::aarch64::$fma(c, self, b) }
            }
        }
    };
}

/// A function that picks the tile of a size; every size is compiled with the given target features.
macro_rules! tile_table {
    ($name:ident, $type:ident, $vector:ty, [$($feature:meta)?],
        [$($vectors:literal: $(($rows:literal, $panels:literal)),+);+], [$($columns:literal),+]) => {
        pub(super) fn $name(size: Size, transposed: bool) -> TileFn<$type> {
            /// # Safety
            /// See [`TileFn`].
            $(#[$feature])?
            unsafe fn sized<
                const ROWS: usize,
                const COLUMNS: usize,
                const VECTORS: usize,
                const TRANSPOSED: bool,
            >(
                t: &Tile<$type>,
            ) {
                // SAFETY: the caller's promise, passed on.
                unsafe { tile::<$vector, ROWS, COLUMNS, VECTORS, TRANSPOSED>(t) }
            }
            match (size.vectors, size.rows, size.panels, transposed) {
                $($(($vectors, $rows, $panels, false) => sized::<$rows, { $panels * $vectors }, $vectors, false>,)+)+
                $((PANEL_VECTORS, $columns, 1, true) => sized::<$columns, PANEL_VECTORS, PANEL_VECTORS, true>,)+
                _ => unreachable!("a tile of {size:?}"),
            }
        }
    };
}

/// The sizes that fill 32 registers.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! wide_table {
    ($name:ident, $type:ident, $vector:ty, [$($feature:meta)?]) => {
        tile_table!(
            $name,
            $type,
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

/// The sizes that fill 16 registers.
macro_rules! narrow_table {
    ($name:ident, $type:ident, $vector:ty, [$($feature:meta)?]) => {
        tile_table!(
            $name,
            $type,
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
    use std::arch::x86_64::{__m256, __m256d, __m512, __m512d};
    x86_vector!(
        f32,
        __m512,
        16,
        _mm512_set1_ps,
        _mm512_loadu_ps,
        _mm512_storeu_ps,
        _mm512_add_ps,
        _mm512_fmadd_ps
    );
    x86_vector!(
        f64,
        __m512d,
        8,
        _mm512_set1_pd,
        _mm512_loadu_pd,
        _mm512_storeu_pd,
        _mm512_add_pd,
        _mm512_fmadd_pd
    );
    x86_vector!(
        f32,
        __m256,
        8,
        _mm256_set1_ps,
        _mm256_loadu_ps,
        _mm256_storeu_ps,
        _mm256_add_ps,
        _mm256_fmadd_ps
    );
    x86_vector!(
        f64,
        __m256d,
        4,
        _mm256_set1_pd,
        _mm256_loadu_pd,
        _mm256_storeu_pd,
        _mm256_add_pd,
        _mm256_fmadd_pd
    );
    wide_table!(f32_avx512, f32, __m512, [target_feature(enable = "avx512f,avx2,fma")]);
    wide_table!(f64_avx512, f64, __m512d, [target_feature(enable = "avx512f,avx2,fma")]);
    narrow_table!(f32_avx2, f32, __m256, [target_feature(enable = "avx2,fma")]);
    narrow_table!(f64_avx2, f64, __m256d, [target_feature(enable = "avx2,fma")]);
}

#[cfg(target_arch = "aarch64")]
mod neon {
    use super::{PANEL_VECTORS, Size, Tile, TileFn, Vector, tile};
    use std::arch::{
        aarch64::{float32x4_t, float64x2_t},
        asm,
    };
    neon_vector!(f32, float32x4_t, 4, vdupq_n_f32, vld1q_f32, vst1q_f32, vaddq_f32, vfmaq_f32);
    neon_vector!(f64, float64x2_t, 2, vdupq_n_f64, vld1q_f64, vst1q_f64, vaddq_f64, vfmaq_f64);
    wide_table!(f32_neon, f32, float32x4_t, []);
    wide_table!(f64_neon, f64, float64x2_t, []);
}

narrow_table!(f32_portable, f32, Array<f32, 4>, []);
narrow_table!(f64_portable, f64, Array<f64, 2>, []);

macro_rules! tiles {
    ($type:ident, $avx512:ident, $avx2:ident, $neon:ident, $portable:ident) => {
        impl Tiles for $type {
            fn lanes(path: Path) -> usize {
                let bytes = match path {
                    Path::Avx512 => 64,
                    Path::Avx2 => 32,
                    Path::Neon | Path::Portable => 16,
                };
                bytes / size_of::<$type>()
            }
            fn tile(path: Path, size: Size) -> TileFn<Self> {
                match path {
                    #[cfg(target_arch = "x86_64")]
                    Path::Avx512 => x86::$avx512(size, false),
                    #[cfg(target_arch = "x86_64")]
                    Path::Avx2 => x86::$avx2(size, false),
                    #[cfg(target_arch = "aarch64")]
                    Path::Neon => neon::$neon(size, false),
                    _ => $portable(size, false),
                }
            }
            fn transposed_tile(path: Path, rows: usize) -> TileFn<Self> {
                let size = Size { rows, panels: 1, vectors: PANEL_VECTORS };
                match path {
                    #[cfg(target_arch = "x86_64")]
                    Path::Avx512 => x86::$avx512(size, true),
                    #[cfg(target_arch = "x86_64")]
                    Path::Avx2 => x86::$avx2(size, true),
                    #[cfg(target_arch = "aarch64")]
                    Path::Neon => neon::$neon(size, true),
                    _ => $portable(size, true),
                }
            }
        }
    };
}
tiles!(f32, f32_avx512, f32_avx2, f32_neon, f32_portable);
tiles!(f64, f64_avx512, f64_avx2, f64_neon, f64_portable);
