//! Generation: sequences that a model continues token by token, drawn or by beam search. How the model is run is not known here,
//! only that it scores the next token ([`Steps`]).

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
