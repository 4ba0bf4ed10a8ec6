//! The listing of a plan and the profile of its runs, for people to read.

pub(super) mod bound;
pub(super) mod listing;
pub(super) mod profile;
mod table;
mod trace;
