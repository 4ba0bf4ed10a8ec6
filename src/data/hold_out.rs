//! What is held out of a data set: by what each entry is and a seed, so that equal ones are on one side.

use super::Fingerprint;

/// Whether an entry is held out: about one in `one_in`, by what `key` takes in of it; none of 0. Which side an entry is on depends on no
/// other.
pub(super) fn is_held(one_in: u64, seed: u64, key: impl FnOnce(Fingerprint) -> Fingerprint) -> bool {
    key(Fingerprint::default().number(seed)).finish().checked_rem(one_in) == Some(0)
}

/// What messages call the part of a data set that is held out.
pub(super) fn held_name(name: &str) -> String {
    format!("{name}, held out")
}
