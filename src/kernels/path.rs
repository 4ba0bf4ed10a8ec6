//! The vector instructions that the kernels run with, chosen once at run time.
//!
//! A kernel is plain generic code marked `#[inline(always)]`: a [`Sweep`]. The function [`sweep`] runs the kernel inside a
//! function that is compiled for the CPU's vector instructions, so that the same source becomes AVX-512, AVX2, NEON and
//! portable code. Callers need no `unsafe`: an operator with a fused loop of its own implements [`Sweep`].
//!
//! On one path, every run gives the same bits. Results on two paths differ in rounding, since only some paths have a fused
//! multiply-add.

use std::sync::OnceLock;

use super::float::Float;

/// A set of vector instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Path {
    /// 16 lanes of f32, 32 registers, fused multiply-add.
    Avx512,
    /// 8 lanes of f32, 16 registers, fused multiply-add.
    Avx2,
    /// 4 lanes of f32, 32 registers, fused multiply-add: every 64-bit ARM.
    Neon,
    /// The instructions that the build's target guarantees.
    Portable,
}

impl Path {
    /// Returns the best path that this CPU can run.
    #[inline]
    pub fn best() -> Self {
        static BEST: OnceLock<Path> = OnceLock::new();
        *BEST.get_or_init(|| Self::available()[0])
    }

    /// Returns all paths that this CPU can run, best first; tests iterate over them.
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

/// The arithmetic of a path: `a·b + c` by a fused instruction if the path has one, but never by a call into libm.
pub trait Arithmetic: Copy {
    /// `a·b + c`.
    fn mul_add<T: Float>(a: T, b: T, c: T) -> T;
}

/// A fused multiply-add, with one rounding.
#[derive(Debug, Clone, Copy)]
pub struct Fma;

/// A product and a sum, with two roundings.
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

/// A loop that is compiled for every path. Mark `run` and everything that it calls `#[inline(always)]`; otherwise the loop is
/// correct, but not vectorised.
pub trait Sweep {
    /// The result of the loop.
    type Output;
    /// Whether the loop is compiled only for the portable path, as every loop over f64 is: f64 only checks f32, and each
    /// further path would take compile time. A loop over `T: Float` sets `T::PORTABLE`.
    const PORTABLE: bool;
    /// The loop.
    fn run<A: Arithmetic>(self) -> Self::Output;
}

/// Runs a loop with the best instructions of this CPU.
#[inline]
pub fn sweep<S: Sweep>(kernel: S) -> S::Output {
    sweep_on(Path::best(), kernel)
}

/// Runs a loop on one path; a [portable](Sweep::PORTABLE) loop always runs on the portable path.
///
/// # Panics
/// If this CPU cannot run the path.
#[inline]
pub fn sweep_on<S: Sweep>(path: Path, kernel: S) -> S::Output {
    // The condition is a constant, so that the other paths are not compiled for such a loop.
    if const { S::PORTABLE } {
        return kernel.run::<MulAdd>();
    }
    match path {
        #[cfg(target_arch = "x86_64")]
        Path::Avx512 | Path::Avx2 => {
            if path != Path::best() {
                assert!(Path::available().contains(&path), "{path:?} on a CPU without it");
            }
            // SAFETY: the path is among those that this CPU was found to run.
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
