//! What a plan is and where its time goes, to be read by people.

pub(super) mod bound;
pub(super) mod listing;
pub(super) mod profile;
mod table;
mod trace;
