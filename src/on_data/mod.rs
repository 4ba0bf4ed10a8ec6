//! A model on data: the runs of a compiled program on batches, a pass over data that updates metrics, and the loss of a batch in
//! parts. Trainings and predictors both use this module.

mod batch_runner;
mod carried;
mod parts;
mod pass;

pub(crate) use batch_runner::{BatchRunner, DataBatch};
pub(crate) use carried::{fed, zeros};
pub(crate) use parts::{BatchLoss, Totals, Whole};
pub(crate) use pass::{BatchState, Measure, each_batch, make_sums, merged, named, scores, zeros_of};
