//! Generation: sequences that a model continues token by token, by sampling or by beam search. This module needs only the
//! model's scores of the next token ([`Steps`]).

mod beam;
mod generated;
mod hypotheses;
mod options;
mod rules;
mod sample;
mod search;
mod steps;
#[cfg(test)]
mod tests;

pub(crate) use beam::beam;
pub use generated::{Hypotheses, Hypothesis};
pub use options::{Beam, Generation};
pub(crate) use sample::sample;
pub(crate) use steps::Steps;
