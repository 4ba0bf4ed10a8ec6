//! Generation: a model continues sequences token by token, by sampling or by beam search. This module uses a model only
//! through the trait [`Steps`], which returns the scores of the next token.

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
