//! Hold-out: the content of a sample and a seed decide whether the sample is held out. Equal samples are therefore in
//! one part.

use unpadded::data::Fingerprint;

/// Returns whether a sample is held out: about one in `one_in` samples is held out, and none if `one_in` is 0. Only the
/// seed and the content that `key` adds to the fingerprint decide; other samples do not matter.
pub(crate) fn is_held(one_in: u64, seed: u64, key: impl FnOnce(Fingerprint) -> Fingerprint) -> bool {
    one_in != 0 && key(Fingerprint::default().number(seed)).finish().is_multiple_of(one_in)
}

/// Returns the name, for messages, of the held-out part of the data set `name`.
pub(crate) fn held_name(name: &str) -> String {
    format!("{name}, held out")
}
