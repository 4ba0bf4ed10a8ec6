//! The key-value store (parameter server): several workers push gradients, and the store updates the values by a rule.
//!
//! A [`KeyValueStore`] is the handle of one worker. The method [`init`](KeyValueStore::init) makes a key,
//! [`push`](KeyValueStore::push) sends a gradient of all rows or of some rows, [`pull`](KeyValueStore::pull) returns the value,
//! and [`row_sparse_pull`](KeyValueStore::row_sparse_pull) returns some rows of the value. A [`LocalStore`] is in this process:
//! the workers are on threads, and the rows of a value are divided over shards, each with a lock. The trait `KeyValueStore`
//! requires no shared memory. A [`Trainer`](crate::train::Trainer::deal_tables) deals the rows of its tables to processes without
//! a store.
//!
//! # How gradients are merged and applied
//! [`Consistency::Synchronous`] merges the gradients of all workers before an update, [`Consistency::Asynchronous`] applies the
//! gradient of each worker alone.
//!
//! - *A key with a [`Rule`]* (the update operators that an optimizer appends to a program) is updated by the weighted mean of
//!   the gradients, Σ wᵢ·gᵢ / Σ wᵢ. Let the loss be the mean over n samples, and gᵢ the gradient on the nᵢ samples of worker i.
//!   The gradient on all samples is then Σ nᵢ/n · gᵢ. If the weight wᵢ is nᵢ, the workers therefore compute the step of one
//!   trainer on all samples.
//! - *A key without a rule* adds the weighted sum of the gradients, Σ wᵢ·gᵢ, to the value.
//!
//! In exact mode, a rule gives the same numbers for gradients of selected rows as for dense gradients. Rows without a
//! gradient have pending moves, which are applied when the rows are pulled, and for all rows when the store is saved.
//! Except for rounding, the values do not depend on which rows were pulled or saved in between, nor on the number of
//! shards. If one key gets both dense gradients and selected rows, each dense gradient first applies the pending moves
//! of all rows, which costs time.
//!
//! Gradients are summed in the order of the worker indices, so the bits of the sum do not depend on which worker pushes first.
//! If all gradients are selected rows, the merged gradient is selected rows too; rows with equal row numbers are summed before
//! the rule is applied. The step number that the rule and its schedule use is the number of merged gradients that were applied
//! to the key before; in asynchronous mode, each push of a worker counts as one merged gradient.
//!
//! # Failures
//! A gradient is checked before any part of the gradient is applied: the key, the shape, the dtype, the row numbers,
//! and that all numbers and the sum are finite. So no invalid gradient leaves a value half updated. Keys are
//! independent of each other: if a trainer dies between two pushes, some keys are one round ahead of other keys. A
//! worker that is dropped, for example by a panic of its thread, has left the store. Workers that would wait for a
//! worker that has left get an error, and so do all workers in a round whose sum is not finite. After one of these
//! errors, the values are the values of the last complete round; new [workers](LocalStore::workers) can continue from
//! these values. If an update operator fails or panics after some rows of a value, the key of this value refuses every
//! call until the store is [restored](KeyValueStore::restore).
//!
//! # Workers of one store
//! ```
//! use ndarray::array;
//! use unpadded::optimizer::Adagrad;
//! use unpadded::store::{Consistency, KeyValueStore, LocalStore, Rule};
//! use unpadded::tensor::SelectedRows;
//! use unpadded::{DType, ops};
//! // Values in at most four shards, and two synchronous workers. One worker makes the keys.
//! let (registry, table) = (ops::catalogue(), "table".into());
//! let values = LocalStore::new(&registry, 4)?;
//! let mut workers = values.workers(2, Consistency::Synchronous)?;
//! workers[0].init_rows(&table, DType::F32, &[100, 2], &mut |row, out| {
//!     out.fill(row as f64);
//!     Ok(())
//! })?;
//! workers[0].set_rule(&table, Rule::new(&Adagrad::new(0.5), &registry)?)?;
//!
//! // Each worker pulls the rows that it reads and pushes their gradients, on a thread of its own.
//! std::thread::scope(|threads| {
//!     for mut worker in workers {
//!         let table = &table;
//!         threads.spawn(move || {
//!             let rows = worker.row_sparse_pull(table, vec![7])?;
//!             worker.push(table, SelectedRows::new(100, vec![7], rows)?.into(), 1.0)
//!         });
//!     }
//! });
//!
//! // The values stay, for new workers.
//! let mut worker = values.workers(1, Consistency::Asynchronous { staleness: None })?.remove(0);
//! let rows = worker.row_sparse_pull(&table, vec![8, 7, 8])?;
//! assert_eq!(rows.as_slice::<f32>()?, [8.0, 8.0, 6.5, 6.5, 8.0, 8.0]);
//!
//! // A key without a rule: pushed gradients are added.
//! worker.init(&7.into(), array![[1.0], [2.0], [3.0]].into())?;
//! worker.push(&7.into(), SelectedRows::new(3, vec![2, 0, 2], array![[1.0], [1.0], [1.0]])?.into(), 1.0)?;
//! assert_eq!(worker.pull(&7.into())?.as_slice::<f64>()?, [2.0, 2.0, 5.0]);
//! # Ok::<(), unpadded::Error>(())
//! ```

mod entry;
mod key_value;
mod local;
mod merge;
mod rounds;
mod rows_by_part;
mod rule;
mod saved;
mod shard;

pub use key_value::{Key, KeyValueStore};
pub use local::{LocalStore, LocalWorker};
pub(crate) use merge::{WeighedGradient, merge};
pub use rounds::Consistency;
pub use rule::Rule;
