//! Hold-out: each sample's content and a seed decide whether it is held out, so that equal samples are on one side.

use super::Fingerprint;

/// Returns whether a sample is held out, by the seed and the content that `key` adds: about one in `one_in` samples is;
/// 0 holds out nothing. The decision does not depend on other samples.
pub(super) fn is_held(one_in: u64, seed: u64, key: impl FnOnce(Fingerprint) -> Fingerprint) -> bool {
    key(Fingerprint::default().number(seed)).finish().checked_rem(one_in) == Some(0)
}

/// The name in messages of the held-out part of a data set.
pub(super) fn held_name(name: &str) -> String {
    format!("{name}, held out")
}
