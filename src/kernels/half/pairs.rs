//! Tiles in bf16 by the instruction `vdpbf16ps` of AVX-512, and their twin.

use super::super::tile::{Size, Tile, TileFn, finish, start};
use super::{add_product, numbers_of};
use crate::kernels::path::{Arithmetic, Implementation, Sweep, sweep};

/// The number of columns of a panel.
pub(in crate::kernels) const WIDTH: usize = 32;

pub(in crate::kernels) fn has_instruction() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bf16")
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

/// Returns the function of a tile that reads rows of `a`.
pub(in crate::kernels) fn of_rows(by: Implementation, #[allow(unused)] size: Size) -> TileFn {
    match by {
        #[cfg(target_arch = "x86_64")]
        Implementation::Instruction => x86::pairs(size, false),
        _ => twin,
    }
}

/// Computes a tile as the instruction does.
///
/// # Safety
/// See [`TileFn`].
unsafe fn twin(t: &Tile) {
    sweep(PairsTwin(t));
}

struct PairsTwin<'a>(&'a Tile);

impl Sweep for PairsTwin<'_> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let t = self.0;
        for row in 0..t.rows {
            for panel in 0..t.columns.div_ceil(WIDTH).min(t.panels) {
                let columns = WIDTH.min(t.columns - panel * WIDTH);
                let mut sums = [0.0f32; WIDTH];
                // SAFETY: the caller of the tile guarantees `rows` rows of `a` and `c`, `panels` panels, and `columns` columns.
                unsafe {
                    start(&mut sums, t, (row, panel * WIDTH, columns));
                    for k in 0..t.k {
                        let (even, odd) = numbers_of(*t.a.wrapping_add(row * t.a_stride + k));
                        let b =
                            t.b.add(panel * t.b_stride + k * WIDTH).cast::<[f32; WIDTH]>().read_unaligned();
                        for (sum, b) in sums.iter_mut().zip(b) {
                            let (b_even, b_odd) = numbers_of(b);
                            *sum = add_product(add_product(*sum, odd, b_odd), even, b_even);
                        }
                    }
                    finish(&mut sums, t, (row, panel * WIDTH, columns));
                }
            }
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512, __m512bh, _mm512_add_ps, _mm512_dpbf16_ps, _mm512_loadu_ps, _mm512_set1_ps, _mm512_storeu_ps,
    };
    use std::mem::transmute;

    use super::super::super::tile::{Size, Tile, TileFn, Vector, tile, tile_table};

    /// A vector of sums, or of pairs of bf16 numbers, which are moved like numbers in f32.
    #[derive(Clone, Copy)]
    pub(super) struct PairVector(__m512);

    // SAFETY (every block): the caller of a method guarantees that the CPU has the instructions and that pointers are valid for
    // `LANES` words.
    impl Vector for PairVector {
        const LANES: usize = 16;
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: the caller guarantees that the CPU has the instructions.
            PairVector(unsafe { _mm512_set1_ps(value) })
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller guarantees the instructions and `LANES` readable words.
            PairVector(unsafe { _mm512_loadu_ps(from) })
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: the caller guarantees the instructions and `LANES` writable words.
            unsafe { _mm512_storeu_ps(to, self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: the caller guarantees that the CPU has the instructions.
            PairVector(unsafe { _mm512_add_ps(self.0, other.0) })
        }
        /// Returns `c` plus the products of the pairs of `self` and `b`.
        #[inline(always)]
        unsafe fn mul_add(self, b: Self, c: Self) -> Self {
            // SAFETY: the caller guarantees that the CPU has the instructions; both types are 64 bytes of any bits.
            PairVector(unsafe {
                _mm512_dpbf16_ps(
                    c.0,
                    transmute::<__m512, __m512bh>(self.0),
                    transmute::<__m512, __m512bh>(b.0),
                )
            })
        }
    }

    tile_table!(
        pairs,
        PairVector,
        [target_feature(enable = "avx512f,avx512bf16,avx2,fma")],
        [2: (1, 1), (1, 2), (1, 3), (1, 4), (2, 1), (2, 2), (2, 3), (3, 1), (3, 2), (4, 1), (4, 2), (5, 1), (6, 1), (7, 1),
            (8, 1), (9, 1), (10, 1), (11, 1), (12, 1)],
        []
    );
}
