//! The number of random cases of the suite: enough for every kind of case, and more if the environment asks for it.

/// The factor of every number of random programs, damaged files, kills and the like.
const TIMES: &str = "UNPADDED_THOROUGH";

/// Returns `usual` times `UNPADDED_THOROUGH`. The first attempts are the same for every number, so a failure repeats with the
/// same number.
pub(crate) fn times(usual: usize) -> usize {
    let times = std::env::var(TIMES).map_or(1, |times| times.parse().expect("UNPADDED_THOROUGH: a number"));
    usual.saturating_mul(times)
}
