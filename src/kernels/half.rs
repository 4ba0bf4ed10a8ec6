//! Arithmetic in bf16: rounding, pairs of numbers, and sums of products as the instructions of CPUs compute them.

pub(super) mod fused;
pub(super) mod gradient;
pub(super) mod pack;
pub(super) mod pairs;
mod rounding;
pub(super) mod tiles;

/// Returns the bf16 number that is nearest to `x`, in the lower 16 bits; of two nearest numbers, the even one. As the
/// instructions of CPUs do, returns a zero for a subnormal number, and a quiet NaN for a NaN.
#[inline(always)]
pub(super) fn round(x: f32) -> u32 {
    let bits = x.to_bits();
    let magnitude = bits & 0x7fff_ffff;
    let nearest = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    if magnitude > 0x7f80_0000 {
        bits >> 16 | 0x40
    } else if magnitude < 0x0080_0000 {
        bits >> 16 & 0x8000
    } else {
        nearest
    }
}

/// Returns the pair of two bf16 numbers, each in the lower 16 bits.
#[inline(always)]
fn word(first: u32, second: u32) -> f32 {
    f32::from_bits(first | second << 16)
}

#[inline(always)]
pub(super) fn numbers_of(pair: f32) -> (f32, f32) {
    let bits = pair.to_bits();
    (f32::from_bits(bits << 16), f32::from_bits(bits & 0xffff_0000))
}

/// Returns `sum + a·b`, rounded once to f32, for `a` and `b` that are bf16 numbers; a subnormal result becomes a zero.
///
/// The product has at most 16 bits, so it is exact in f64. The sum of the product and an f32 number is rounded to f64, then to
/// f32; f64 has more than twice the bits of f32, so the second rounding gives what one rounding would. (S. A. Figueroa, "When is
/// double rounding innocuous?", 1995.)
#[inline(always)]
pub(super) fn add_product(sum: f32, a: f32, b: f32) -> f32 {
    rounded(f64::from(a) * f64::from(b) + f64::from(sum))
}

/// Rounds a number to f32. A number that is below the smallest normal number after rounding becomes a zero with its sign; an
/// instruction decides this for the number rounded to 24 bits, so the bound is half a unit below.
#[inline(always)]
pub(super) fn rounded(x: f64) -> f32 {
    const SMALLEST: f64 = f32::MIN_POSITIVE as f64 * (1.0 - f32::EPSILON as f64 / 4.0);
    if x.abs() < SMALLEST { f32::from_bits((x.to_bits() >> 32) as u32 & 0x8000_0000) } else { x as f32 }
}

#[cfg(test)]
mod tests;
