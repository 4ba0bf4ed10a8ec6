//! Step blocks: which operators leave the loop and why, what has no memory of its own, where the rest lives.

pub(crate) mod backward;
pub(crate) mod block;
pub(crate) mod columns;
pub(crate) mod forward;
mod in_place;
pub(crate) mod levels;
mod pins;
mod same;
pub(crate) mod views;
pub(crate) mod when;
