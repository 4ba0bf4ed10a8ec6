//! What a plan is and where its time goes, to be read by people.

pub mod bound;
pub mod listing;
pub mod profile;
mod table;
mod trace;
