//! The vector instructions of the kernels (a path), chosen once at run time for the CPU.
//!
//! A kernel is plain generic code, marked `#[inline(always)]`, that implements [`Sweep`]. The function [`sweep`] runs the
//! kernel inside a function that is compiled for the CPU's vector instructions. The compiler thus generates AVX-512, AVX2,
//! NEON and portable code from the same source. Callers need no `unsafe`: an operator with a fused loop of its own only
//! implements [`Sweep`].
//!
//! Every run on the same path gives the same bits. Results on two paths differ in rounding, since only some paths have a
//! fused multiply-add.

use std::sync::OnceLock;

use super::float::Float;

/// A path: a set of vector instructions that kernels are compiled for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// AVX-512: 16 lanes of f32, 32 registers, fused multiply-add.
    Avx512,
    /// AVX2: 8 lanes of f32, 16 registers, fused multiply-add.
    Avx2,
    /// NEON, which every 64-bit ARM has: 4 lanes of f32, 32 registers, fused multiply-add.
    Neon,
    /// Only the instructions that the target of the build guarantees.
    Portable,
}

impl Path {
    /// Returns the fastest path that this CPU can run.
    #[inline]
    pub fn best() -> Self {
        static BEST: OnceLock<Path> = OnceLock::new();
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// Panics if this CPU does not have the instructions of the path. No part of [`sweep_on`], which is compiled for each loop.
    #[cfg(target_arch = "x86_64")]
    fn check(self) {
        if self != Self::best() {
            assert!(Self::available().contains(&self), "{self:?} on a CPU without it");
        }
    }

    /// Returns the name of the path in reports.
    pub(super) fn name(self) -> &'static str {
        match self {
            Path::Avx512 => "avx512",
            Path::Avx2 => "avx2",
            Path::Neon => "neon",
            Path::Portable => "portable",
        }
    }

    /// Returns all paths that this CPU can run, the fastest first; tests iterate over these paths.
    pub fn available() -> Vec<Self> {
        let mut paths = vec![];
        #[cfg(target_arch = "x86_64")]
        {
            let fused = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            let wide = is_x86_feature_detected!("avx512f")
                && is_x86_feature_detected!("avx512vl")
                && is_x86_feature_detected!("avx512dq")
                && is_x86_feature_detected!("avx512bw");
            if fused && wide {
                paths.push(Path::Avx512);
            }
            if fused {
                paths.push(Path::Avx2);
            }
        }
        #[cfg(target_arch = "aarch64")]
        paths.push(Path::Neon);
        paths.push(Path::Portable);
        paths
    }
}

/// The precision of the operands of matrix products in f32. Products in f64 are always computed in f64.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Precision {
    /// The operands are f32.
    #[default]
    F32,
    /// The operands are rounded to bf16, and sums are f32: [bfloat16](https://en.wikipedia.org/wiki/Bfloat16_floating-point_format)
    /// has the range of f32 and 8 bits of mantissa.
    Bf16,
}

/// The unit of a CPU that computes the matrix products of a program, which decides the bits of the products.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum MatrixUnit {
    /// The operands are f32. The instructions of the CPU's path compute the products.
    #[default]
    F32,
    /// The operands are bf16, as the instruction `vdpbf16ps` of AVX-512 multiplies them: it adds the product of the odd number
    /// of a pair to the sum, then the product of the even number, and rounds each sum to f32.
    Bf16Pairs,
    /// The operands are bf16, as the instruction `tdpbf16ps` of AMX multiplies them: of 32 numbers, it sums the products of the
    /// even and of the odd numbers apart, then adds the two sums, then adds the result to the sum.
    Bf16Tiles,
}

/// What computes the products of a unit; all give the same bits, except the payloads of NaN.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Implementation {
    /// The instruction.
    Instruction,
    /// Fused multiply-adds in f32.
    Fused,
    /// The twin: plain code.
    Twin,
}

/// The code that computes products: tiles of panels, in f32 or bf16.
///
/// The panels of every engine hold *words* of 32 bits. In f32, a word is a number. In bf16, a word is a pair of numbers: two
/// successive numbers of a row of the left matrix, or of a column of the right matrix, the first in the lower half.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProductEngine {
    /// Numbers in f32, by the vector instructions of a path.
    F32(Path),
    /// Pairs of bf16 numbers, in the order of `vdpbf16ps`.
    Pairs(Implementation),
    /// Pairs of bf16 numbers, in the order of `tdpbf16ps`.
    Tiles(Implementation),
}

/// The arithmetic of a path. It computes `a·b + c` by a fused instruction if the path has one, and never by a call into
/// libm.
pub trait Arithmetic: Copy {
    /// Returns `a·b + c`, rounded once or twice.
    fn mul_add<T: Float>(a: T, b: T, c: T) -> T;
}

/// Arithmetic with a fused multiply-add, which rounds once.
#[derive(Debug, Clone, Copy)]
pub struct Fma;

/// Arithmetic with a product and a sum, each rounded.
#[derive(Debug, Clone, Copy)]
pub struct MulAdd;

impl Arithmetic for Fma {
    #[inline(always)]
    fn mul_add<T: Float>(a: T, b: T, c: T) -> T {
        a.mul_add(b, c)
    }
}

impl Arithmetic for MulAdd {
    #[inline(always)]
    fn mul_add<T: Float>(a: T, b: T, c: T) -> T {
        a * b + c
    }
}

/// A loop that the compiler compiles for every path. Mark `run` and every function that it calls `#[inline(always)]`;
/// otherwise the loop is correct, but not vectorised.
pub trait Sweep {
    /// The type of the loop's result.
    type Output;
    /// Whether the loop is compiled only for the portable path, as every loop over f64 is. f64 serves only to check f32, and
    /// each further path would cost compile time. A loop over `T: Float` sets `T::PORTABLE`.
    const PORTABLE: bool;
    /// Runs the loop with the arithmetic `A` of a path.
    fn run<A: Arithmetic>(self) -> Self::Output;
}

/// Runs a loop on the fastest path of this CPU.
#[inline]
pub fn sweep<S: Sweep>(kernel: S) -> S::Output {
    sweep_on(Path::best(), kernel)
}

/// Runs a loop on the given path; a [portable](Sweep::PORTABLE) loop always runs on the portable path.
///
/// # Panics
/// If this CPU does not have the instructions of the path.
#[inline]
pub fn sweep_on<S: Sweep>(path: Path, kernel: S) -> S::Output {
    // The condition is a constant, so that the compiler generates no other path for a portable loop.
    if const { S::PORTABLE } {
        return kernel.run::<MulAdd>();
    }
    match path {
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 | Path::Avx2 => {
            path.check();
            // SAFETY: `check` found that this CPU can run the path.
            unsafe { if path == Path::Avx512 { x86::avx512(kernel) } else { x86::avx2(kernel) } }
        }
        #[cfg(target_arch = "aarch64")]
        Path::Neon => kernel.run::<Fma>(),
        #[cfg(not(target_feature = "fma"))]
        _ => kernel.run::<MulAdd>(),
        #[cfg(target_feature = "fma")]
        _ => kernel.run::<Fma>(),
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Fma, Sweep};

    #[target_feature(enable = "avx512f,avx512vl,avx512dq,avx512bw,avx2,fma")]
    pub(super) fn avx512<S: Sweep>(kernel: S) -> S::Output {
        kernel.run::<Fma>()
    }

    #[target_feature(enable = "avx2,fma")]
    pub(super) fn avx2<S: Sweep>(kernel: S) -> S::Output {
        kernel.run::<Fma>()
    }
}
