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
            if path != Path::best() {
                assert!(Path::available().contains(&path), "{path:?} on a CPU without it");
            }
            // SAFETY: `available` found that this CPU can run the path.
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
