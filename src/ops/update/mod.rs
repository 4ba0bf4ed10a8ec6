//! Update rules: the operators by which an optimizer changes a parameter according to its gradient.

mod adadelta;
mod adagrad;
mod adam;
mod adamax;
pub(super) mod average;
mod block;
pub(super) mod clip_gradient;
pub(crate) mod decay;
mod drift;
pub(crate) mod element;
mod engine;
mod ftrl;
pub(super) mod global_norm;
pub(super) mod history;
mod lamb;
pub(super) mod learning_rate;
mod lion;
mod nadam;
pub(crate) mod owed;
mod rmsprop;
pub(crate) mod rule;
pub(crate) mod schedule;
pub mod settings;
pub(super) mod settle;
mod sgd;

operators! {
    adadelta::Adadelta,
    adagrad::Adagrad,
    adam::Adam,
    adamax::Adamax,
    average::AverageWeights,
    clip_gradient::ClipGradient,
    ftrl::Ftrl,
    global_norm::GlobalNorm,
    global_norm::ScaleGradient,
    history::UpdateHistory,
    lamb::Lamb,
    learning_rate::LearningRate,
    lion::Lion,
    nadam::NAdam,
    rmsprop::RmsProp,
    settle::Settle,
    sgd::Sgd,
}
