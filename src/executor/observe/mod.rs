//! Text output for people: the listing of a plan, and the profile of its runs.

pub(super) mod bound;
pub(super) mod listing;
pub(super) mod profile;
mod table;
mod trace;
