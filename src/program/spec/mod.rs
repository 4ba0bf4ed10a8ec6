//! What is known of a value before it is there: its dimensions and levels, and the attributes of operators.

pub mod attributes;
pub mod extent;
pub mod size;
