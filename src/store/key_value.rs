//! What a store is asked: keys, and the trait that every store has, in this process or behind a connection.

use std::fmt;
use std::path::Path;

use super::rows_by_part::filled;
use super::rule::Rule;
use crate::error::{AtCaller, Error, Result};
use crate::tensor::{DType, Dense, Storage};

/// What a value of a store is found by.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A name, such as a parameter's.
    Name(String),
    /// A number.
    Number(u64),
}

impl From<&str> for Key {
    fn from(name: &str) -> Self {
        Self::Name(name.to_owned())
    }
}

impl From<u64> for Key {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

/// A name as it is, a number as `#7`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "#{number}"),
        }
    }
}

/// What one worker has of a key-value store: values by key, to which the workers push gradients, and from which they pull.
///
/// Whatever goes in or comes out is an owned value, and every answer may be an error, so that a store may as well be in another
/// process. An error of one call leaves the store as it was before the call, with two exceptions, which say so: an update operator that
/// fails amid its rows, after which the key refuses everything until the store is restored, and a round whose sum is not finite, which has
/// failed for all workers.
///
/// The operations are those of MXNet's `KVStore` (Chen et al., "MXNet: a flexible and efficient machine learning library for
/// heterogeneous distributed systems", 2015, arXiv:1512.01274) and of Li et al., "Scaling distributed machine learning with the
/// parameter server", OSDI 2014.
pub trait KeyValueStore {
    /// Makes a key with a first value, of f32 or f64: dense, or selected rows in a table of zeros.
    ///
    /// # Errors
    /// If the key is there, or the value is of another dtype or storage, or not finite.
    #[track_caller]
    fn init(&mut self, key: &Key, value: Storage) -> Result<()>;

    /// Makes a key as [`Self::init`] does, with a value of this dtype and shape whose rows `fill` writes, given their numbers. Each process
    /// of a store over several asks for its own rows alone, so none needs memory for the whole value.
    ///
    /// # Errors
    /// As [`Self::init`]; those of `fill`.
    #[track_caller]
    fn init_rows(
        &mut self,
        key: &Key,
        dtype: DType,
        shape: &[usize],
        fill: &mut dyn FnMut(usize, &mut [f64]) -> Result<()>,
    ) -> Result<()> {
        let value =
            filled((dtype, shape), (0, 1), fill).map_err(|e| e.variable(key.to_string())).at_caller()?;
        self.init(key, value.into())
    }

    /// Says what is done with the gradients that are pushed to a key; without a rule they are added to its value. The rule's state
    /// is the store's, beside the value.
    ///
    /// # Errors
    /// If the key is not there or has a rule; if a round of it is under way.
    #[track_caller]
    fn set_rule(&mut self, key: &Key, rule: Rule) -> Result<()>;

    /// Pushes a gradient of the value's shape: dense, or selected rows, which may repeat. How the gradients of several workers are
    /// merged the [module](super) says; `weight` is how much this one counts in a mean, so for a loss that is the mean over
    /// samples, the number of them.
    ///
    /// # Errors
    /// If the key is not there; if the gradient is of another shape, dtype or storage, or not finite; if the weight is negative or
    /// not finite; if the rule refuses selected rows; if this worker's gradient of the round before waits for a worker that has
    /// left.
    #[track_caller]
    fn push(&mut self, key: &Key, gradient: Storage, weight: f64) -> Result<()>;

    /// The whole value.
    ///
    /// # Errors
    /// If the key is not there; if it waits for a worker that has left.
    #[track_caller]
    fn pull(&mut self, key: &Key) -> Result<Dense>;

    /// Rows of a value by their numbers, in any order and repeated: one row for each number, in that order.
    ///
    /// # Errors
    /// As [`Self::pull`]; if there is no row of a number, with all that is asked for unanswered; if the value has no rows.
    #[track_caller]
    fn row_sparse_pull(&mut self, key: &Key, ids: Vec<i64>) -> Result<Dense>;

    /// The sums of these numbers over all workers, which all give as many in a round; the numbers themselves if gradients are applied
    /// as they come. It waits for the other workers.
    ///
    /// # Errors
    /// If it waits for a worker that has left, or another one gives another number of them.
    #[track_caller]
    fn sum(&mut self, numbers: &[f64]) -> Result<Vec<f64>>;

    /// Says that this worker has done a round, and may wait before the next: see [`Consistency::Asynchronous`](super::Consistency).
    ///
    /// # Errors
    /// If it waits for a worker that has left; if a gradient of the round could not be applied.
    #[track_caller]
    fn end_round(&mut self) -> Result<()>;

    /// Whether a call that is an error of one worker is one of all of them. By default it is not.
    fn fails_together(&self) -> bool {
        false
    }

    /// Reports to the other workers of a store that [fails together](Self::fails_together) that this one fails: the call in which they wait
    /// for it returns this error. By default nothing is reported.
    fn fail(&mut self, error: &Error) {
        let _ = error;
    }

    /// Writes the whole state to a file, where the store is: every value, its rule with the rule's state, and how often it was
    /// applied. What stood there is replaced whole, or not at all.
    ///
    /// # Errors
    /// If a round is under way, a key was left half updated, or the file cannot be written.
    #[track_caller]
    fn save(&mut self, path: &Path) -> Result<()>;

    /// Puts the whole state of a file in the place of the store's.
    ///
    /// # Errors
    /// If a round is under way; if the file is damaged, or lacks something; if its keys, their shapes, dtypes or rules are not the
    /// store's. The store is then as it was.
    #[track_caller]
    fn restore(&mut self, path: &Path) -> Result<()>;
}

/// What is wrong with a key, by its name.
pub(super) trait OfKey {
    #[track_caller]
    fn of_key(self, key: &Key) -> Self;
}

impl<T> OfKey for Result<T> {
    #[track_caller]
    fn of_key(self, key: &Key) -> Self {
        self.map_err(|e| e.variable(key.to_string())).at_caller()
    }
}
