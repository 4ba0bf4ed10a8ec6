//! Step blocks: the operators that leave the loop, with the reasons; the variables without memory of their own; the homes of all
//! other variables.

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
