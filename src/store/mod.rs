//! The key-value store: values that several workers push gradients to, with the update rule where the values are.
//!
//! A [`KeyValueStore`] is what one worker has of it: [`init`](KeyValueStore::init) makes a key, [`push`](KeyValueStore::push)
//! gives a gradient, dense or of some rows, [`pull`](KeyValueStore::pull) the value, and
//! [`row_sparse_pull`](KeyValueStore::row_sparse_pull) some of its rows. [`LocalStore`] is the one in this process: its workers
//! are on threads, and the rows of a value are dealt to shards with a lock each. [`WorldStore`] is the one over the ranks of a
//! [`World`](crate::parallel::World): each is a worker, and has its rows of every value. Nothing that the trait says is in common memory.
//!
//! # What becomes of a gradient
//! [`Consistency::Synchronous`] merges those of all workers, [`Consistency::Asynchronous`] takes each alone.
//!
//! - *A key with a [`Rule`]* (its update operators, as an optimizer appends them to a program) is moved by the weighted mean,
//!   Σ wᵢ·gᵢ / Σ wᵢ. The gradient of a loss that is the mean over n samples is Σ over parts of nᵢ/n · gᵢ if gᵢ is that of a part of
//!   nᵢ samples: with the numbers of samples as weights, the workers do what one trainer does on the parts together.
//! - *A key without one* gets Σ wᵢ·gᵢ added.
//!
//! A rule in exact mode gives the numbers of dense gradients here too: rows without a gradient make the moves that they owe when they
//! are pulled, and all rows when the store is saved. So the numbers are the same up to rounding whatever was pulled or saved between,
//! and on any number of shards. Who mixes dense gradients and selected rows by one key pays for settling the whole value at each
//! dense one.
//!
//! They are summed in the order of the workers' numbers, so the bits do not depend on who came first. Selected rows stay selected
//! rows if all of them are, and equal ones are added up before the rule. The step that the rule and its schedule see is the
//! number of merged gradients that the key was moved by before: in asynchronous mode each worker's push is one.
//!
//! # What goes wrong
//! All of a gradient is checked before it is used: key, shape, dtype, row numbers, and that it is finite, also summed. So no value
//! is left half updated. Keys are by themselves: of a trainer that dies between two of its pushes, some keys are a round ahead of
//! others. A worker that is dropped, as by a panic of its thread, has left, and whoever would wait for it gets an error
//! instead; so does everybody in a round whose sum is not finite. The values stay as they are after the last whole round, for new
//! [workers](LocalStore::workers). If an update operator itself fails or panics amid its rows, its key refuses everything until the
//! store is [restored](KeyValueStore::restore).
//!
//! # Over several processes
//! Row r of a value, with what its rule keeps for it, is on rank r modulo the number of ranks, and nowhere else: a table may be larger than
//! the memory of a process. A push sends each rank its rows of the gradient, a pull gets rows from the ranks that have them, in one exchange
//! for the numbers of the rows and one for the rows. So bytes follow the rows that a batch touches, whatever the height of the table. The
//! numbers are those of a [`LocalStore`] with as many synchronous workers, to the bit (of exact rules: with as many shards as well).
//!
//! All ranks make the same calls in the same order. If one of them fails, the call is an error on all, which names the rank, and they
//! may go on with others: a gradient is applied only after all ranks have merged their rows of it.
//!
//! [`share`] with an empty scope starts each parameter by its initialiser, row by row, and [`StoreTrainer`] holds only the rows that a batch
//! reads. [`save`](KeyValueStore::save) writes a file for each rank beside the path, in a folder that all ranks see, and then the path,
//! which is a whole set of files at each moment. Any number of ranks restores it, and a [`LocalStore`], too.
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
//!     // On a thread of its own; with MPI, in a process of its own.
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
//! // Values in at most four shards, and two workers that keep step. One of them makes the keys.
//! let values = LocalStore::new(&registry, 4)?;
//! let mut workers = values.workers(2, Consistency::Synchronous)?;
//! store::share(&program, &mut Scope::of(&program)?, &mut workers[0])?;
//!
//! // Each trains on its part of every batch, on a thread of its own: here, words below 50 are of class 0.
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
//! assert!(losses.iter().all(|&loss| loss < 0.69)); // that of a guess
//!
//! // The values are still there, for other workers.
//! let mut worker = values.workers(1, Consistency::Asynchronous { staleness: None })?.remove(0);
//! let rows = worker.row_sparse_pull(&"embedding_0.weight".into(), vec![57, 3, 57])?;
//! assert_eq!(rows.shape(), [3, 4]);
//!
//! // A key without a rule: what is pushed is added.
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
pub use trainer::{StoreTrainer, share};
pub use world::WorldStore;
