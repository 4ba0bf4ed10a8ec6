//! Analyses of step blocks: which operators leave the loop and why, which variables have no memory of their own, and where all
//! other variables are stored.

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
