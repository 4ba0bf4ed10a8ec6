//! What a plan is and where its time goes, to be read by people.

pub mod listing;
pub mod profile;
mod trace;
