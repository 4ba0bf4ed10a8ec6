//! The settings of a training, as the user gave them, with the source line of each call that may be wrong.

use std::ops::ControlFlow;
use std::path::PathBuf;

use super::plateau::Plateau;
use super::progress::Progress;
use crate::checkpoint::{EpochScores, Position};
use crate::error::{CallerSetting, Error};
use crate::on_data::Measure;
use crate::operator::Precision;
use crate::program::Var;

/// The settings of a training: they do not change while it runs, and a checkpoint does not have them.
pub(super) struct TrainingSettings {
    /// The metrics; the loss is the first one.
    pub(super) metrics: Vec<Measure>,
    pub(super) objective: LossSettings,
    pub(super) rates: RateSettings,
    pub(super) division: StepDivision,
    pub(super) outputs: Vec<CallerSetting<(String, Var)>>,
    pub(super) file: Option<PathBuf>,
    pub(super) every: Option<CallerSetting<u64>>,
    pub(super) patience: Option<CallerSetting<u64>>,
    pub(super) on_epoch: Option<OnEpoch>,
    pub(super) precision: Option<CallerSetting<Precision>>,
    /// Whether [`Trainer::allow_slow`](super::Trainer::allow_slow) was called.
    pub(super) allow_slow: bool,
    /// Whether [`Trainer::remeasure_best`](super::Trainer::remeasure_best) was called.
    pub(super) remeasure: bool,
    /// An error in the settings of [`Trainer::averaged`](super::Trainer::averaged), which `fit` returns.
    pub(super) averaged_wrongly: Option<Error>,
    pub(super) threads: usize,
    pub(super) progress: Progress,
}

/// How the loss is measured, and which metric decides the best epoch.
pub(super) struct LossSettings {
    pub(super) select: Option<CallerSetting<String>>,
    /// The variable that weighs the losses of batches ([`Trainer::weight`](super::Trainer::weight)).
    pub(super) weight: Option<CallerSetting<Var>>,
    /// Whether the first metric is the trainer's own loss; `false` if a user's metric named `loss` replaces it.
    pub(super) own_loss: bool,
    /// The error for a loss that cannot be computed over several batches; it has the line that made the trainer. `None` if the
    /// loss can be computed batch by batch.
    pub(super) unseen: Option<Error>,
}

/// The changes of the learning rate in addition to the optimizer's schedule.
#[derive(Default)]
pub(super) struct RateSettings {
    pub(super) plateau: Option<CallerSetting<Plateau>>,
    pub(super) rate_by: Option<CallerSetting<RateFn>>,
    /// Whether [`Trainer::change_rate`](super::Trainer::change_rate) was called.
    pub(super) change_rate: bool,
}

/// The division of a step into batches, parts and pieces.
#[derive(Default)]
pub(super) struct StepDivision {
    pub(super) accumulate: Option<CallerSetting<u64>>,
    pub(super) parts: Option<CallerSetting<u64>>,
    pub(super) memory_limit: Option<CallerSetting<u64>>,
    /// Whether [`Trainer::deal_tables`](super::Trainer::deal_tables) was called.
    pub(super) deal_tables: Option<CallerSetting<()>>,
}

/// A user's function that the trainer calls after each epoch.
type OnEpoch = Box<dyn FnMut(&EpochScores) -> ControlFlow<()>>;

/// A user's function that returns a factor of the learning rate for a position.
type RateFn = Box<dyn Fn(&Position) -> f64>;

impl TrainingSettings {
    pub(super) fn new(loss: Measure, objective: LossSettings) -> Self {
        Self {
            metrics: vec![loss],
            objective,
            rates: RateSettings::default(),
            division: StepDivision::default(),
            outputs: Vec::new(),
            file: None,
            every: None,
            patience: None,
            on_epoch: None,
            precision: None,
            allow_slow: false,
            remeasure: false,
            averaged_wrongly: None,
            threads: 0,
            progress: Progress::Auto,
        }
    }
}
