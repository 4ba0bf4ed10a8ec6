//! The interface of a store: keys, and the trait that every store implements, in this process or over a connection.

use std::fmt;
use std::path::Path;

use super::rows_by_part::filled;
use super::rule::Rule;
use crate::error::{AtCaller, Error, Result};
use crate::tensor::{DType, Dense, Storage};

/// The key of a value in a store.
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

/// Prints a name unchanged, a number as `#7`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "#{number}"),
        }
    }
}

/// One worker's handle of a key-value store (parameter server): workers push gradients to the values of keys, and pull the
/// values.
///
/// All arguments and results are owned values, and every call may return an error, so that a store may be in another process.
/// After an error the store is unchanged, with two exceptions, which the messages state. If an update operator fails amid its
/// rows, the key refuses every call until the store is restored. If the sum of a round is not finite, the round has failed for
/// all workers.
///
/// The operations follow MXNet's `KVStore` (Chen et al., "MXNet: a flexible and efficient machine learning library for
/// heterogeneous distributed systems", 2015, arXiv:1512.01274) and Li et al., "Scaling distributed machine learning with the
/// parameter server", OSDI 2014.
pub trait KeyValueStore {
    /// Makes a key with a first value, of f32 or f64: dense, or selected rows in a table of zeros.
    ///
    /// # Errors
    /// Returns an error if the key exists, or the value is of another dtype or storage, or not finite.
    #[track_caller]
    fn init(&mut self, key: &Key, value: Storage) -> Result<()>;

    /// Makes a key as [`Self::init`] does, with a value of this dtype and shape; `fill(row number, numbers)` writes the numbers
    /// of one row. In a store over several processes, each process fills only its own rows, so no process needs memory for the
    /// whole value.
    ///
    /// # Errors
    /// As [`Self::init`]; if `fill` fails.
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

    /// Sets the update rule of a key, which is applied to pushed gradients; without a rule, pushed gradients are added to the
    /// value. The store keeps the rule's state beside the value.
    ///
    /// # Errors
    /// Returns an error if the key does not exist or has a rule; if a round of the key is under way.
    #[track_caller]
    fn set_rule(&mut self, key: &Key, rule: Rule) -> Result<()>;

    /// Pushes a gradient of the value's shape: dense, or selected rows, which may repeat. The [module](super) describes how the
    /// gradients of several workers are merged; `weight` is this gradient's weight in a mean: for a loss that is the mean over
    /// samples, the number of samples.
    ///
    /// # Errors
    /// Returns an error if the key does not exist; if the gradient is of another shape, dtype or storage, or not finite; if the
    /// weight is negative or not finite; if the rule refuses selected rows; if this worker's gradient of the previous round
    /// waits for a worker that has left.
    #[track_caller]
    fn push(&mut self, key: &Key, gradient: Storage, weight: f64) -> Result<()>;

    /// Pulls the whole value.
    ///
    /// # Errors
    /// Returns an error if the key does not exist; if the pull waits for a worker that has left.
    #[track_caller]
    fn pull(&mut self, key: &Key) -> Result<Dense>;

    /// Pulls rows of a value: one row for each row number in `ids`, in the order of `ids`. Numbers may repeat.
    ///
    /// # Errors
    /// As [`Self::pull`]; if a number is not a row number of the value, or the value has no rows.
    #[track_caller]
    fn row_sparse_pull(&mut self, key: &Key, ids: Vec<i64>) -> Result<Dense>;

    /// Sums `numbers` over all workers, position by position, after waiting for the other workers; all workers must pass the
    /// same count of numbers. In asynchronous mode, returns `numbers` unchanged.
    ///
    /// # Errors
    /// Returns an error if the call waits for a worker that has left, or another worker passes more or fewer numbers.
    #[track_caller]
    fn sum(&mut self, numbers: &[f64]) -> Result<Vec<f64>>;

    /// Ends this worker's round. In asynchronous mode, may wait for slower workers: see
    /// [`Consistency::Asynchronous`](super::Consistency).
    ///
    /// # Errors
    /// Returns an error if the call waits for a worker that has left; if a gradient of the round could not be applied.
    #[track_caller]
    fn end_round(&mut self) -> Result<()>;

    /// Returns whether an error of one worker's call is an error of all workers (default: no).
    fn fails_together(&self) -> bool {
        false
    }

    /// Reports a failure of this worker to the other workers of a store that [fails together](Self::fails_together): their next
    /// call, which waits for this worker, returns this error. By default nothing is reported.
    fn fail(&mut self, error: &Error) {
        let _ = error;
    }

    /// Saves the whole state to a file on the store's machine: every value with its number of updates, its rule and the rule's
    /// state. An existing file is replaced whole, or not at all.
    ///
    /// # Errors
    /// Returns an error if a round is under way, a key was left half updated, or the file cannot be written.
    #[track_caller]
    fn save(&mut self, path: &Path) -> Result<()>;

    /// Restores the whole state from a file.
    ///
    /// # Errors
    /// Returns an error if a round is under way; if the file is damaged or incomplete; if its keys, their shapes, dtypes or
    /// rules differ from the store's. After an error, the store is unchanged.
    #[track_caller]
    fn restore(&mut self, path: &Path) -> Result<()>;
}

/// Adds the name of a key to an error.
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
