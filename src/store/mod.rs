//! The key-value store (parameter server): several workers push gradients, and the store updates the values by a rule.
//!
//! A [`KeyValueStore`] is the handle of one worker. The method [`init`](KeyValueStore::init) makes a key,
//! [`push`](KeyValueStore::push) sends a gradient of all rows or of some rows, [`pull`](KeyValueStore::pull) returns the value,
//! and [`row_sparse_pull`](KeyValueStore::row_sparse_pull) returns some rows of the value. A [`LocalStore`] is in this process:
//! the workers are on threads, and the rows of a value are divided over shards, each with a lock. A [`WorldStore`] is over the
//! ranks of a [`World`](crate::parallel::World): each rank is a worker, and holds some rows of every value. The trait
//! `KeyValueStore` requires no shared memory.
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
//! # Over several processes
//! In a `WorldStore`, row r of a value, with the rule's states of row r, is only on rank r modulo the number of ranks, so a
//! table may be larger than the memory of a process. In a push to a `WorldStore`, each rank receives the gradient of its own
//! rows of the value. In a pull of rows, each rank requests rows from the ranks that hold them: one exchange of row numbers,
//! then one exchange of rows. So the traffic between ranks depends on the number of rows that a batch reads, not on the height
//! of the table. The values are bit-identical to the values of a [`LocalStore`] with as many synchronous workers as ranks (and,
//! for exact rules, with as many shards as ranks; the rows of a vector have one shard there, so that under an exact rule they
//! are equal up to rounding).
//!
//! All ranks of a `WorldStore` must make the same calls in the same order. If a call fails on one rank, all ranks
//! return an error that names the rank, from this call or from a later one. The ranks can then make further calls. No
//! rank applies a gradient before all ranks have merged their rows of the gradient.
//!
//! [`share`] with an empty scope initializes each parameter row by row, and [`StoreTrainer`] holds only the rows of an
//! embedding table that a batch reads. [`save`](KeyValueStore::save) writes a file for each rank beside the path, in a
//! folder that all ranks see, then an index file at the path. Therefore, the path names a complete set of files at each
//! moment. A saved set of files can be restored by any number of ranks, or by a [`LocalStore`].
//! ```
//! use ndarray::array;
//! use unpadded::optimizer::Adam;
//! use unpadded::parallel::{World, threads};
//! use unpadded::store::{KeyValueStore, Rule, WorldStore};
//! use unpadded::tensor::SelectedRows;
//! use unpadded::{DType, ops};
//! # std::thread::scope(|scope| {
//! # let mut running = Vec::new();
//! for rank in threads(2) {
//!     let run = move || {
//!         let world = World::new(rank);
//!         let number = world.rank() as i64;
//!         let mut store = WorldStore::new(&ops::catalogue(), world);
//!         // Each rank is asked for its own rows.
//!         store.init_rows(&"table".into(), DType::F32, &[1000, 2], &mut |row, out| {
//!             out.fill(row as f64);
//!             Ok(())
//!         })?;
//!         store.set_rule(&"table".into(), Rule::new(&Adam::new(0.1), &ops::catalogue())?)?;
//!         let gradient = SelectedRows::new(1000, vec![7, 500 + number], array![[1f32, 0.0], [0.0, 1.0]])?;
//!         store.push(&"table".into(), gradient.into(), 1.0)?;
//!         store.row_sparse_pull(&"table".into(), vec![7, 8])
//!     };
//!     // Each rank on a thread; with MPI, in a process.
//!     # running.push(scope.spawn(run));
//! }
//! # for rank in running {
//! #     let rows = rank.join().expect("no panic")?;
//! #     let rows = rows.as_slice::<f32>()?;
//! #     assert!((rows[0] - 6.9).abs() < 1e-3 && rows[1..] == [7.0, 8.0, 8.0]);
//! # }
//! # Ok(())
//! # })
//! # .map_err(|e: unpadded::Error| e)?;
//! # Ok::<(), unpadded::Error>(())
//! ```
//!
//! # Several trainers of one model
//! ```
//! use ndarray::array;
//! use unpadded::layers::Embedding;
//! use unpadded::executor::Scope;
//! use unpadded::ops::Pool;
//! use unpadded::optimizer::{Adagrad, Optimizer};
//! use unpadded::store::{self, KeyValueStore, LocalStore, Consistency, StoreTrainer};
//! use unpadded::tensor::SelectedRows;
//! use unpadded::{Builder, DType, Variable};
//! let net = Builder::new().seed(1);
//! let words = net.feed("words", DType::I64, &[], 1);
//! let label = net.feed("label", DType::I64, &[], 0);
//! let table = Embedding::new(100, 4).sparse();
//! let logits = words.embedding(table).sequence_pool(Pool::Mean).linear(2);
//! let loss = logits.cross_entropy(label).mean();
//! let (registry, mut program) = (net.registry(), net.finish()?);
//! Adagrad::new(0.5).minimize(&mut program, &registry, loss.id())?;
//!
//! // Values in at most four shards, and two synchronous workers. One worker makes the keys.
//! let values = LocalStore::new(&registry, 4)?;
//! let mut workers = values.workers(2, Consistency::Synchronous)?;
//! store::share(&program, &mut Scope::of(&program)?, &mut workers[0])?;
//!
//! // Each worker trains on its part of every batch, on a thread of its own: here, words below 50 are of class 0.
//! let losses = std::thread::scope(|threads| {
//!     let mut trainings = Vec::new();
//!     for (number, worker) in (0i64..).zip(workers) {
//!         let (program, registry) = (&program, &registry);
//!         trainings.push(threads.spawn(move || {
//!             let mut trainer = StoreTrainer::new(program, registry, loss, worker)?;
//!             let mut last = 0.0;
//!             for step in 0..20 {
//!                 let ids = [(3 * step + number) % 10, 50 + (7 * step + number) % 10];
//!                 let batch = Variable::from_sequences(&ids.map(|id| vec![id, id]))?;
//!                 let labels = Variable::dense(array![ids[0] / 50, ids[1] / 50]);
//!                 last = trainer.step(&[(words.id(), &batch), (label.id(), &labels)], &[])?;
//!             }
//!             Ok::<f64, unpadded::Error>(last)
//!         }));
//!     }
//!     trainings.into_iter().map(|training| training.join().expect("no panic")).collect::<Result<Vec<_>, _>>()
//! })?;
//! assert!(losses.iter().all(|&loss| loss < 0.69)); // ln 2 is the loss of a random guess
//!
//! // The values stay, for new workers.
//! let mut worker = values.workers(1, Consistency::Asynchronous { staleness: None })?.remove(0);
//! let rows = worker.row_sparse_pull(&"embedding_0.weight".into(), vec![57, 3, 57])?;
//! assert_eq!(rows.shape(), [3, 4]);
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
mod meeting;
mod merge;
mod rounds;
mod rows_by_part;
mod rule;
mod saved;
mod shard;
mod shard_files;
mod trainer;
mod world;

pub use key_value::{Key, KeyValueStore};
pub use local::{LocalStore, LocalWorker};
pub(crate) use merge::{WeighedGradient, merge};
pub use rounds::Consistency;
pub use rule::Rule;
pub(crate) use trainer::add_row_numbers;
pub use trainer::{StoreTrainer, share};
pub use world::WorldStore;
