//! Several processes that train one model: who they are, and how they exchange bytes.
//!
//! A [`World`] is what one process (a *rank*) has of all of them. It sends bytes through a [`Communicator`]: threads of one process
//! (tests and simulations) or MPI (the feature `mpi`). [`Trainer::distributed`](crate::train::Trainer) trains over a world, and
//! the key-value store of [`store`](crate::store) deals its rows to the ranks of one.

mod communicator;
#[cfg(feature = "mpi")]
mod mpi;
mod threads;
mod world;

pub use communicator::{Communicator, Lost};
#[cfg(feature = "mpi")]
pub use mpi::Mpi;
pub use threads::{Faults, ThreadRank, simulated, threads};
pub use world::{Traffic, World};
