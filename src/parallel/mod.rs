//! Several processes that train one model: their ranks, and the exchange of bytes between them.
//!
//! A [`World`] is the set of all processes, as one process (a *rank*) sees it. It sends bytes through a [`Communicator`]:
//! threads of one process (tests and simulations) or MPI (the feature `mpi`). [`Trainer::distributed`](crate::train::Trainer)
//! trains over a world, and the key-value store of [`store`](crate::store) divides its rows over the ranks of a world.

mod bytes;
mod communicator;
mod deal;
mod gradients;
#[cfg(feature = "mpi")]
mod mpi;
mod threads;
mod tree;
mod world;

pub(crate) use bytes::{Message, Reader};
pub use communicator::{Communicator, ExchangeFailure};
pub(crate) use deal::{by_tokens, in_turn, parts_of};
pub(crate) use gradients::{GradientSpec, Gradients, add};
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use threads::{Faults, ThreadRank, simulated, threads};
pub(crate) use tree::{subtrees, sum, sum_all};
pub use world::{Traffic, World};
