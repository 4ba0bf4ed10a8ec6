//! Loops that round numbers to bf16: compiled for the instruction that rounds two vectors, and, as plain code, for every path.
//! Both give the same bits.

#[cfg(target_arch = "x86_64")]
use std::sync::OnceLock;

use ::half::bf16;

use super::{round, word};
#[cfg(target_arch = "x86_64")]
use crate::kernels::engine::awkward_pairs;
use crate::kernels::path::{Arithmetic, Sweep, sweep};

/// The number of words that are rounded or transposed at a time.
pub(super) const LANES: usize = 16;

pub(super) type Words = [f32; LANES];

/// A way to round numbers to bf16 and to transpose words.
pub(super) trait Rounding {
    /// Returns pairs: pair i has number i of `even` first, and number i of `odd` second.
    fn across(even: [f32; LANES], odd: [f32; LANES]) -> Words;
    /// Returns pairs of successive numbers.
    fn along(numbers: &[f32; 2 * LANES]) -> Words;
    fn turn(square: &mut [Words; LANES]);
}

/// A loop that rounds numbers. Mark `run` and every function that it calls `#[inline(always)]`, as for a
/// [`Sweep`](crate::kernels::path::Sweep).
pub(super) trait RoundingLoop {
    fn run<R: Rounding>(self);
}

/// Runs a loop by the instruction if this CPU has it, else as plain code.
#[inline]
pub(super) fn round_by<L: RoundingLoop>(kernel: L) {
    #[cfg(target_arch = "x86_64")]
    if has_instruction() {
        // SAFETY: the CPU has the instructions.
        return unsafe { x86::run(kernel) };
    }
    sweep(PlainLoop(kernel));
}

/// Returns whether this CPU has the instruction, and the instruction gives the words of plain code; an emulator may get it wrong.
#[cfg(target_arch = "x86_64")]
pub(super) fn has_instruction() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    *HAS.get_or_init(|| {
        x86::has_instructions()
            && (0..8).all(|seed| {
                let numbers = awkward_pairs((LANES, 2 * LANES), seed, |at| at % 8);
                let Some(numbers) = numbers.as_chunks().0.first_chunk() else { return false };
                let [mut ours, mut plain] = [[[[0.0; LANES]; LANES]; 3]; 2];
                // SAFETY: the CPU has the instructions.
                unsafe { x86::run(EveryWay { numbers, words: &mut ours }) };
                sweep(PlainLoop(EveryWay { numbers, words: &mut plain }));
                let bits = |x: &f32| x.to_bits();
                let [ours, plain] = [&ours, &plain].map(|x| x.as_flattened().as_flattened().iter().map(bits));
                ours.eq(plain)
            })
    })
}

/// A loop that rounds numbers in every way and transposes the words, for comparisons.
#[cfg(any(test, target_arch = "x86_64"))]
pub(super) struct EveryWay<'a> {
    pub(super) numbers: &'a [[f32; 2 * LANES]; LANES],
    /// Pairs of successive numbers, these pairs transposed, and pairs of the two halves of each row.
    pub(super) words: &'a mut [[Words; LANES]; 3],
}

#[cfg(any(test, target_arch = "x86_64"))]
impl RoundingLoop for EveryWay<'_> {
    #[inline(always)]
    fn run<R: Rounding>(self) {
        let [along, turned, across] = self.words;
        for ((row, along), across) in self.numbers.iter().zip(along.iter_mut()).zip(across) {
            *along = R::along(row);
            *across = R::across(numbers_at(row, 0), numbers_at(row, LANES));
        }
        *turned = *along;
        R::turn(turned);
    }
}

/// A loop that rounds by plain code.
pub(super) struct PlainLoop<L>(pub(super) L);

impl<L: RoundingLoop> Sweep for PlainLoop<L> {
    type Output = ();
    const PORTABLE: bool = false;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        self.0.run::<PlainCode>();
    }
}

pub(super) struct PlainCode;

impl Rounding for PlainCode {
    #[inline(always)]
    fn across(even: [f32; LANES], odd: [f32; LANES]) -> Words {
        let mut words = [0.0; LANES];
        words.iter_mut().zip(even).zip(odd).for_each(|((to, even), odd)| *to = word(round(even), round(odd)));
        words
    }

    #[inline(always)]
    fn along(numbers: &[f32; 2 * LANES]) -> Words {
        let mut words = [0.0; LANES];
        let pairs = numbers.as_chunks::<2>().0;
        words.iter_mut().zip(pairs).for_each(|(to, &[even, odd])| *to = word(round(even), round(odd)));
        words
    }

    #[inline(always)]
    fn turn(square: &mut [Words; LANES]) {
        let rows = *square;
        for (column, to) in square.iter_mut().enumerate() {
            *to = rows.map(|row| row[column]);
        }
    }
}

pub(super) trait ToBf16: Copy + Send + Sync {
    /// The number 0.
    const ZERO: Self;
    /// Returns pairs, as [`Rounding::across`] does.
    fn across<R: Rounding>(even: [Self; LANES], odd: [Self; LANES]) -> Words;
    /// Returns pairs of successive numbers.
    fn along<R: Rounding>(numbers: &[Self; 2 * LANES]) -> Words;
}

impl ToBf16 for f32 {
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn across<R: Rounding>(even: [Self; LANES], odd: [Self; LANES]) -> Words {
        R::across(even, odd)
    }

    #[inline(always)]
    fn along<R: Rounding>(numbers: &[Self; 2 * LANES]) -> Words {
        R::along(numbers)
    }
}

impl ToBf16 for bf16 {
    const ZERO: Self = bf16::ZERO;

    #[inline(always)]
    fn across<R: Rounding>(even: [Self; LANES], odd: [Self; LANES]) -> Words {
        let mut words = [0.0; LANES];
        for ((to, even), odd) in words.iter_mut().zip(even).zip(odd) {
            *to = word(u32::from(even.to_bits()), u32::from(odd.to_bits()));
        }
        words
    }

    #[inline(always)]
    fn along<R: Rounding>(numbers: &[Self; 2 * LANES]) -> Words {
        let mut words = [0.0; LANES];
        for (to, &[even, odd]) in words.iter_mut().zip(numbers.as_chunks::<2>().0) {
            *to = word(u32::from(even.to_bits()), u32::from(odd.to_bits()));
        }
        words
    }
}

/// Returns `N` numbers of a row from `at` on, with zeros beyond the end of the row.
#[inline(always)]
pub(super) fn numbers_at<T: ToBf16, const N: usize>(row: &[T], at: usize) -> [T; N] {
    let rest = &row[at.min(row.len())..];
    rest.first_chunk().copied().unwrap_or_else(|| {
        let mut numbers = [T::ZERO; N];
        numbers.iter_mut().zip(rest).for_each(|(to, &from)| *to = from);
        numbers
    })
}

/// Copies the first elements of a vector into `to`, which has at most `N` elements.
#[inline(always)]
pub(super) fn put_first<T: Copy, const N: usize>(from: &[T; N], to: &mut [T]) {
    match to.first_chunk_mut() {
        Some(to) => *to = *from,
        None => to.copy_from_slice(&from[..to.len()]),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{
        __m512bh, __m512i, _mm512_cvtne2ps_pbh, _mm512_loadu_ps, _mm512_loadu_si512, _mm512_permutexvar_epi16,
    };
    use std::mem::transmute;

    use super::{LANES, Rounding, RoundingLoop, Words};
    use crate::kernels::turn::{Avx512, TransposeSquare};

    /// Returns whether this CPU has the instructions of [`run`].
    pub(super) fn has_instructions() -> bool {
        is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
    }

    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx512bf16,avx2,fma")]
    pub(super) fn run<L: RoundingLoop>(kernel: L) {
        kernel.run::<Instructions>();
    }

    /// Rounding by the instruction `vcvtne2ps2bf16`.
    struct Instructions;

    /// For each number of 16 pairs, its index in the first numbers of all pairs, followed by the second numbers of all pairs.
    const PAIRS: [u16; 2 * LANES] = {
        let mut indices = [0; 2 * LANES];
        let mut i = 0;
        while i < 2 * LANES {
            indices[i] = (i / 2 + i % 2 * LANES) as u16;
            i += 1;
        }
        indices
    };

    // SAFETY (every block): only `run` uses the type, on a CPU that has the instructions; arrays are as large as the vectors.
    impl Rounding for Instructions {
        #[inline(always)]
        fn across(even: [f32; LANES], odd: [f32; LANES]) -> Words {
            // SAFETY: see above.
            unsafe {
                let (even, odd) = (_mm512_loadu_ps(even.as_ptr()), _mm512_loadu_ps(odd.as_ptr()));
                let halves = transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(odd, even));
                let indices = _mm512_loadu_si512(PAIRS.as_ptr().cast());
                transmute::<__m512i, Words>(_mm512_permutexvar_epi16(indices, halves))
            }
        }

        #[inline(always)]
        fn along(numbers: &[f32; 2 * LANES]) -> Words {
            // SAFETY: see above.
            unsafe {
                let first = _mm512_loadu_ps(numbers.as_ptr());
                let second = _mm512_loadu_ps(numbers.as_ptr().add(LANES));
                transmute::<__m512bh, Words>(_mm512_cvtne2ps_pbh(second, first))
            }
        }

        #[inline(always)]
        fn turn(square: &mut [Words; LANES]) {
            let words = square.as_mut_ptr().cast();
            // SAFETY: see above.
            unsafe { Avx512::turn(words, LANES, words, LANES) }
        }
    }
}
