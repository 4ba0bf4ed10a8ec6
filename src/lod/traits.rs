//! Standard traits of a LoD: equality, printing, serialization.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Lod, build, lengths};
use crate::error::{Error, Result};

impl PartialEq for Lod {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.offsets == other.offsets && Lod::same(self.upper.as_ref(), other.upper.as_ref()))
    }
}

impl Eq for Lod {}

impl fmt::Debug for Lod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lod").field(&self.all()).finish()
    }
}

/// Shows the lengths of the sequences of every level, from the top level on. A precision limits the number of lengths
/// that are shown per level; messages use `{lod:.8}`.
impl fmt::Display for Lod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = f.precision().unwrap_or(usize::MAX);
        for (k, offsets) in self.all().into_iter().enumerate() {
            let lengths = lengths(offsets);
            let more = lengths.len().saturating_sub(shown);
            write!(f, "{}", if k == 0 { "[[" } else { ", [" })?;
            for (i, length) in lengths.enumerate().take(shown) {
                write!(f, "{}{length}", if i == 0 { "" } else { ", " })?;
            }
            if more > 0 {
                write!(f, ", … {more} more")?;
            }
            write!(f, "]")?;
        }
        write!(f, "]")
    }
}

impl TryFrom<Vec<Vec<usize>>> for Lod {
    type Error = Error;

    fn try_from(levels: Vec<Vec<usize>>) -> Result<Self> {
        build(levels)
    }
}

/// A LoD is written as the offsets of every level, from the top level on.
impl Serialize for Lod {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_seq(self.all())
    }
}

/// Reads the offsets of every level, and checks them as [`Lod::new`] does.
impl<'de> Deserialize<'de> for Lod {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        build(Vec::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}
