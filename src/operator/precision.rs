//! The names of precisions and matrix units in files and listings.

use crate::error::Error;
pub use crate::kernels::{MatrixUnit, Precision};
use crate::tensor::named::named;

named!(Precision, "precision", F32 = "f32", Bf16 = "bf16");
named!(MatrixUnit, "matrix unit", F32 = "f32", Bf16Pairs = "bf16-avx512", Bf16Tiles = "bf16-amx");

impl MatrixUnit {
    /// The CPUs that compute bf16 products fast, for errors.
    pub const FAST_CPU: &str = "a CPU that multiplies bf16 numbers fast: AMD from Zen 4 on, or Intel with AMX (from Sapphire Rapids on)";
}

#[track_caller]
pub(crate) fn no_unit(precision: Precision) -> Error {
    Error::new(format!("precision `{precision}`"), MatrixUnit::FAST_CPU, "this CPU, which has no such unit")
}
