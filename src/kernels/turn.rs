//! The transposition of squares of numbers in the vector registers of x86-64.

use std::arch::x86_64::{
    _mm256_castpd_ps, _mm256_castps_pd, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_setzero_ps,
    _mm256_storeu_ps, _mm256_unpackhi_pd, _mm256_unpackhi_ps, _mm256_unpacklo_pd, _mm256_unpacklo_ps,
    _mm512_castpd_ps, _mm512_castps_pd, _mm512_loadu_ps, _mm512_setzero_ps, _mm512_shuffle_f32x4,
    _mm512_storeu_ps, _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps,
};

/// A way to transpose squares of numbers. Each row of a square is a vector.
pub(super) trait TransposeSquare {
    /// The number of rows and columns of a square.
    const SIDE: usize;

    /// Reads a square whose rows begin `from_stride` numbers apart, and writes the transposed square, whose rows begin
    /// `to_stride` numbers apart. The two squares may be in the same place.
    ///
    /// # Safety
    /// The CPU has the instructions, and `from` and `to` point to squares that are valid for reading and writing.
    unsafe fn turn(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize);
}

/// Squares of 16 × 16 numbers, by AVX-512.
pub(super) struct Avx512;

/// Squares of 8 × 8 numbers, by AVX2.
pub(super) struct Avx2;

/// The even and the odd quarters of two vectors.
const EVEN: i32 = 0b10_00_10_00;
const ODD: i32 = 0b11_01_11_01;
/// The lower and the upper halves of two vectors.
const LOWER: i32 = 0x20;
const UPPER: i32 = 0x31;

impl TransposeSquare for Avx512 {
    const SIDE: usize = 16;

    #[inline(always)]
    unsafe fn turn(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the caller guarantees the instructions and the squares; every row is read before a row is written.
        unsafe {
            let mut rows = [_mm512_setzero_ps(); 16];
            let mut squares = rows;
            for (i, row) in rows.iter_mut().enumerate() {
                *row = _mm512_loadu_ps(from.add(i * from_stride));
            }
            // Squares of 2 × 2, then of 4 × 4 numbers in each quarter of a vector.
            for at in (0..16).step_by(2) {
                let (a, b) = (rows[at], rows[at + 1]);
                (rows[at], rows[at + 1]) = (_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
            }
            for at in (0..16).step_by(4) {
                for half in 0..2 {
                    let (a, b) = (rows[at + half], rows[at + half + 2]);
                    let (a, b) = (_mm512_castps_pd(a), _mm512_castps_pd(b));
                    squares[at + 2 * half] = _mm512_castpd_ps(_mm512_unpacklo_pd(a, b));
                    squares[at + 2 * half + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(a, b));
                }
            }
            // The quarters of four vectors.
            for at in 0..4 {
                let [a, b, c, d] = [squares[at], squares[at + 4], squares[at + 8], squares[at + 12]];
                let (even, odd) = (_mm512_shuffle_f32x4::<EVEN>(a, b), _mm512_shuffle_f32x4::<ODD>(a, b));
                let (even_after, odd_after) =
                    (_mm512_shuffle_f32x4::<EVEN>(c, d), _mm512_shuffle_f32x4::<ODD>(c, d));
                let columns = [
                    _mm512_shuffle_f32x4::<EVEN>(even, even_after),
                    _mm512_shuffle_f32x4::<EVEN>(odd, odd_after),
                    _mm512_shuffle_f32x4::<ODD>(even, even_after),
                    _mm512_shuffle_f32x4::<ODD>(odd, odd_after),
                ];
                for (quarter, column) in columns.into_iter().enumerate() {
                    _mm512_storeu_ps(to.add((4 * quarter + at) * to_stride), column);
                }
            }
        }
    }
}

impl TransposeSquare for Avx2 {
    const SIDE: usize = 8;

    #[inline(always)]
    unsafe fn turn(from: *const f32, from_stride: usize, to: *mut f32, to_stride: usize) {
        // SAFETY: the caller guarantees the instructions and the squares; every row is read before a row is written.
        unsafe {
            let mut rows = [_mm256_setzero_ps(); 8];
            let mut squares = rows;
            for (i, row) in rows.iter_mut().enumerate() {
                *row = _mm256_loadu_ps(from.add(i * from_stride));
            }
            // Squares of 2 × 2, then of 4 × 4 numbers in each half of a vector.
            for at in (0..8).step_by(2) {
                let (a, b) = (rows[at], rows[at + 1]);
                (rows[at], rows[at + 1]) = (_mm256_unpacklo_ps(a, b), _mm256_unpackhi_ps(a, b));
            }
            for at in [0, 1, 4, 5] {
                let (a, b) = (_mm256_castps_pd(rows[at]), _mm256_castps_pd(rows[at + 2]));
                let column = at / 4 * 4 + at % 4 * 2;
                squares[column] = _mm256_castpd_ps(_mm256_unpacklo_pd(a, b));
                squares[column + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(a, b));
            }
            for at in 0..4 {
                let (above, below) = (squares[at], squares[at + 4]);
                _mm256_storeu_ps(to.add(at * to_stride), _mm256_permute2f128_ps::<LOWER>(above, below));
                _mm256_storeu_ps(to.add((at + 4) * to_stride), _mm256_permute2f128_ps::<UPPER>(above, below));
            }
        }
    }
}
