//! The contract of an operator: what it declares, what it is asked, and what it sees when it is called.
//!
//! Begin with the trait [`Op`](op::Op). Nothing here knows programs: an operator is called on values as well
//! ([`call`]).

pub mod call;
pub mod context;
pub mod cost;
pub mod declare;
pub mod entries;
pub mod facts;
pub mod hints;
pub(crate) mod infer;
pub(crate) mod keys;
pub(crate) mod levels;
pub(crate) mod literals;
pub mod op;
pub mod registry;
pub mod rows;
pub mod sample;
pub mod shapes;
pub mod signature;
pub mod table;
