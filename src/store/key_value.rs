//! The interface of a key-value store: the keys, and the trait of stores.

use std::fmt;
use std::path::Path;

use super::rows_by_part::filled;
use super::rule::Rule;
use crate::error::{AtCaller, Result};
use crate::tensor::{DType, Dense, Storage};

/// The key of a value in a store.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// A name, such as the name of a parameter.
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

/// Prints a key: a name is unchanged, and the number 7 becomes `#7`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "#{number}"),
        }
    }
}

/// The handle that one worker has of a key-value store (parameter server): the worker pushes gradients for the values of keys,
/// and pulls the values.
///
/// All arguments and results are owned values, and every call may return an error, so that the store may be in another process.
/// After an error the store is unchanged, with two exceptions, which the error messages state. First, if an update operator
/// fails after some rows of a value, the key of this value refuses every call until the store is restored. Second, if the sum
/// of the gradients of a round is not finite, the round fails for all workers.
///
/// Sources: MXNet's `KVStore` (Chen et al., "MXNet: a flexible and efficient machine learning library for heterogeneous
/// distributed systems", 2015, arXiv:1512.01274) and Li et al., "Scaling distributed machine learning with the parameter
/// server", OSDI 2014.
pub trait KeyValueStore {
    /// Makes a key with an initial value of f32 or f64: a dense value, or selected rows (all other rows are zeros).
    ///
    /// # Errors
    /// Returns an error if the key exists, or if the value is not of f32 or f64, is neither dense nor selected rows, or is not
    /// finite.
    #[track_caller]
    fn init(&mut self, key: &Key, value: Storage) -> Result<()>;

    /// Makes a key as [`Self::init`] does, with a value of the given dtype and shape; `fill(row number, numbers)` writes the
    /// numbers of one row.
    ///
    /// # Errors
    /// Returns the errors of [`Self::init`], and the error of `fill`.
    #[track_caller]
    fn init_rows(
        &mut self,
        key: &Key,
        dtype: DType,
        shape: &[usize],
        fill: &mut dyn FnMut(usize, &mut [f64]) -> Result<()>,
    ) -> Result<()> {
        let value = filled(dtype, shape, fill).map_err(|e| e.variable(key.to_string())).at_caller()?;
        self.init(key, value.into())
    }

    /// Sets the update rule of a key, which the store applies to pushed gradients. For a key without a rule, the store
    /// adds pushed gradients to the value. The store keeps the states of the rule together with the value.
    ///
    /// # Errors
    /// Returns an error if the key does not exist, if the key has a rule already, or if a round of the key is under way.
    #[track_caller]
    fn set_rule(&mut self, key: &Key, rule: Rule) -> Result<()>;

    /// Pushes a gradient with the shape of the value: a dense gradient, or selected rows, in which row numbers may repeat. The
    /// [module](super) describes how the store merges the gradients of several workers. `weight` is the weight of this gradient
    /// in a mean: the number of samples if the loss is the mean over samples.
    ///
    /// # Errors
    /// Returns an error if the key does not exist; if the gradient does not have the shape and dtype of the value, is neither
    /// dense nor selected rows, or is not finite; if the weight is negative or not finite; if the rule refuses selected rows;
    /// if this worker's gradient of the previous round waits for a worker that has left.
    #[track_caller]
    fn push(&mut self, key: &Key, gradient: Storage, weight: f64) -> Result<()>;

    /// Pulls the whole value of a key.
    ///
    /// # Errors
    /// Returns an error if the key does not exist; if the pull waits for a worker that has left.
    #[track_caller]
    fn pull(&mut self, key: &Key) -> Result<Dense>;

    /// Pulls rows of a value: one row for each row number in `ids`, in the order of `ids`. Row numbers in `ids` may repeat.
    ///
    /// # Errors
    /// Returns the errors of [`Self::pull`], and an error if a number is not a row number of the value, or the value has no
    /// rows.
    #[track_caller]
    fn row_sparse_pull(&mut self, key: &Key, ids: Vec<i64>) -> Result<Dense>;

    /// Sums `numbers` over all workers, position by position. The method waits for the other workers; all workers must
    /// pass lists of the same length. In asynchronous mode, the method returns `numbers` unchanged.
    ///
    /// # Errors
    /// Returns an error if the call waits for a worker that has left, or another worker passes more or fewer numbers.
    #[track_caller]
    fn sum(&mut self, numbers: &[f64]) -> Result<Vec<f64>>;

    /// Ends the current round of this worker. In asynchronous mode, the call may wait for slower workers: see
    /// [`Consistency::Asynchronous`](super::Consistency).
    ///
    /// # Errors
    /// Returns an error if the call waits for a worker that has left; if a gradient of the round could not be applied.
    #[track_caller]
    fn end_round(&mut self) -> Result<()>;

    /// Saves the whole store to a file on the machine of the store: for every key the value, the number of updates, the rule
    /// and the rule's states. An existing file is replaced atomically: after a failure, the old file is unchanged.
    ///
    /// # Errors
    /// Returns an error if a round is under way, a key was left half updated, or the file cannot be written.
    #[track_caller]
    fn save(&mut self, path: &Path) -> Result<()>;

    /// Restores all values and states of the store from a file.
    ///
    /// # Errors
    /// Returns an error if a round is under way; if the file is damaged or incomplete; if the file has other keys, shapes,
    /// dtypes or rules than the store. After an error, the store is unchanged.
    #[track_caller]
    fn restore(&mut self, path: &Path) -> Result<()>;
}

/// A method that adds the name of a key to an error.
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
