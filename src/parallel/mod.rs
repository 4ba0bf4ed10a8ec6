//! Trains one model with several processes: their ranks, and the exchange of bytes between them.
//!
//! A [`World`] is the set of all processes of a training; each process (a *rank*) has its own `World` value. A world sends
//! bytes through a [`Communicator`]: between threads of one process (for tests and simulations), or by MPI (the feature `mpi`).
//! [`Trainer::distributed`](crate::train::Trainer) trains with a world; the key-value store [`store`](crate::store) divides its
//! rows over the ranks of a world.

mod bytes;
mod communicator;
mod deal;
mod gradients;
#[cfg(feature = "mpi")]
mod mpi;
mod threads;
mod tree;
mod world;

pub(crate) use bytes::{End, Message, Reader};
pub use communicator::{Communicator, ExchangeFailure};
pub(crate) use deal::{by_tokens, in_turn, parts_of};
pub(crate) use gradients::{GradientShare, GradientSpec, HeldSums, add_rows};
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
// The simulation of lost messages is only for tests.
#[doc(hidden)]
pub use threads::{Faults, simulated};
pub use threads::{ThreadRank, threads};
pub(crate) use tree::{subtrees, sum, sum_all};
pub use world::{Traffic, World};
