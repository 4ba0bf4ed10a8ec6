//! Hold-out: the content of a sample and a seed decide whether the sample is held out. Equal samples are therefore in
//! one part.

/// Returns whether a sample is held out: about one in `one_in` samples is held out, and none if `one_in` is 0. Only `key`
/// decides, the hash of the seed and of the content of the sample; other samples do not matter.
pub fn is_held(one_in: u64, key: u64) -> bool {
    one_in != 0 && key.is_multiple_of(one_in)
}

/// Returns the name, for messages, of the held-out part of the data set `name`.
pub(crate) fn held_name(name: &str) -> String {
    format!("{name}, held out")
}
