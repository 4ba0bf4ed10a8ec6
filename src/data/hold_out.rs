//! What is held out of a data set: by what each entry is and a seed, so that equal ones are on one side.

use super::Fingerprint;

/// The rest, and what is held out: about one in so many by what `key` takes in of each, none of 0. Which side an entry is on depends
/// on no other.
pub(super) fn hold_out<T>(
    all: Vec<T>,
    one_in: u64,
    seed: u64,
    key: impl Fn(Fingerprint, &T) -> Fingerprint,
) -> (Vec<T>, Vec<T>) {
    let seeded = Fingerprint::default().number(seed);
    let (held, rest) =
        all.into_iter().partition(|one| key(seeded, one).finish().checked_rem(one_in) == Some(0));
    (rest, held)
}

/// What messages call the part of a data set that is held out.
pub(super) fn held_name(name: &str) -> String {
    format!("{name}, held out")
}
