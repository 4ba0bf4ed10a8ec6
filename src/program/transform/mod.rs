//! From a program to another: its gradients, the part that infers, and the one that infers window by window.

pub mod backward;
pub(crate) mod decided;
mod inference;
pub mod streamed;
