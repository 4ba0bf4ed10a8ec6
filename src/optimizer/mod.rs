//! Optimizers: settings that append parameter updates to a program.
//!
//! An [`Optimizer`] holds only settings, no state of the training. Each update rule is an operator (`sgd`, `adagrad`,
//! `adam`, …): [`Optimizer::minimize`] appends one update operator per parameter, after the backward operators and the
//! clipping. Therefore, a printed or saved program contains the operators and states of its training, and the training
//! can be resumed.
//!
//! ```
//! use unpadded::optimizer::{Adam, Optimizer, Schedule};
//! use unpadded::op::Attributes;
//! use unpadded::program::Initializer;
//! use unpadded::{Builder, DType, ops};
//! let net = Builder::new();
//! let zeros = || Initializer::new("zeros", Attributes::new());
//! let a = net.parameter("a", DType::F32, &[1, 3], zeros());
//! let b = net.parameter("b", DType::F32, &[3, 1], zeros());
//! let loss = a.product(b, None);
//! let mut program = net.finish()?;
//! let adam = Adam::new(1e-3).clip_global_norm(5.0).schedule(Schedule::cosine(1000).warm_up(50));
//! adam.minimize(&mut program, &ops::catalogue(), loss.id())?;
//! let updates: Vec<&str> = program.root().ops[3..].iter().map(|op| op.kind.as_str()).collect();
//! assert_eq!(updates, ["learning_rate", "global_norm", "scale_gradient", "scale_gradient", "adam", "adam"]);
//! assert!(program.find("a.moment2").is_some());
//! # Ok::<(), unpadded::Error>(())
//! ```

mod average;
mod declare;
mod options;
mod rate;
mod rules;
mod settle;
#[cfg(test)]
mod tests;
#[cfg(any(test, feature = "internals"))]
mod variants;

use std::panic::Location;

pub use crate::ops::update::rule::SparseMode;
pub use crate::ops::update::schedule::Schedule;
pub(crate) use average::{average, averages};
pub use declare::AnyOptimizer;
pub use options::{Group, Options};
pub use rate::RATE_SCALE;
use rate::{LEARNING_RATE, own};
pub(crate) use rate::{adjustable, base_rate, other_past, take_rate};
pub use rules::{
    Adadelta, Adagrad, Adam, AdamW, Adamax, Ftrl, Lamb, Lion, NAdam, OptimizerKind, RmsProp, Sgd,
};
pub(crate) use settle::row_selections;
#[cfg(any(test, feature = "internals"))]
pub use variants::OptimizerVariant;

use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Attributes, BlockId, Debt, Registry, Slot, Spec, VarId};
use crate::ops::HISTORY_SHAPE;
use crate::program::description::initialize::{ZEROS, constant};
use crate::program::{Append, Initializer, Program, Role, backward};
use crate::tensor::{DType, StorageKind};

/// An update operator, given as its kind and its attributes.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateRule {
    /// The kind of the update operator, such as `adam`. An operator of this kind has the inputs `grad` and `rate`, and updates
    /// `param` and any state variables.
    pub kind: &'static str,
    /// The attributes of the update operator, except `mode`, which [`Options`] sets.
    pub attributes: Attributes,
}

/// The variables of the operators that [`Optimizer::minimize`] appended.
#[derive(Debug, Clone, PartialEq)]
pub struct Minimization {
    /// The trained parameters, each with the variable of its gradient. Clipping changes a gradient in place, so after a run the
    /// variable holds the clipped gradient.
    pub gradients: Vec<(VarId, VarId)>,
    /// The variable of the learning rate of a step.
    pub rate: VarId,
    /// The variable of the global norm of all gradients before global-norm clipping scales the gradients; `None` without
    /// global-norm clipping.
    pub norm: Option<VarId>,
}

/// An optimizer, which trains the parameters of a program.
///
/// A custom optimizer returns its [`Options`] and the kind of an update operator that is registered. [`Optimizer::minimize`]
/// adds a state variable, with zeros at the start, for every variable that the operator updates besides `param`.
pub trait Optimizer {
    /// Returns the options that all optimizers have, such as the learning rate.
    fn options(&self) -> &Options;

    /// Returns the update operator, which is appended once per parameter.
    ///
    /// # Errors
    /// Returns an error if two settings of the optimizer contradict each other.
    fn rule(&self) -> Result<UpdateRule>;

    /// Appends the backward operators of `loss`, then the learning rate, the clipping, and an update of each trainable variable
    /// that the loss depends on. If the method returns an error, the program is unchanged.
    ///
    /// # Errors
    /// Returns an error if the loss is not a scalar or depends on no trainable variable, or if a setting is out of range. Also
    /// returns an error for a gradient of selected rows in exact mode in two cases: the rule cannot move the unselected rows
    /// later, or no operator reads the parameter.
    #[track_caller]
    fn minimize(&self, program: &mut Program, registry: &Registry, loss: VarId) -> Result<Minimization> {
        let caller = Location::caller();
        let mark = program.mark();
        let minimized = backward::append(program, registry, loss)
            .and_then(|gradients| append(program, registry, self.options(), self.rule()?, gradients, caller));
        minimized.inspect_err(|_| program.rewind(&mark)).map_err(|e| e.called(caller))
    }

    /// Appends the same operators as [`Self::minimize`], except the backward operators, for gradients that the caller passes.
    /// The argument `gradients` has pairs of a variable and its gradient; both variables are in the root block. If the method
    /// returns an error, the program is unchanged.
    ///
    /// # Errors
    /// Returns the errors of [`Self::minimize`], and an error if `gradients` is empty.
    #[track_caller]
    fn update(
        &self,
        program: &mut Program,
        registry: &Registry,
        gradients: Vec<(VarId, VarId)>,
    ) -> Result<Minimization> {
        let caller = Location::caller();
        let mark = program.mark();
        let rule = self.rule().map_err(|e| e.called(caller))?;
        let minimized = append(program, registry, self.options(), rule, gradients, caller);
        minimized.inspect_err(|_| program.rewind(&mark)).map_err(|e| e.called(caller))
    }
}

/// Checks that the gradients are variables of the program, and that each group has a parameter.
fn check(program: &Program, options: &Options, gradients: &[(VarId, VarId)]) -> Result<()> {
    let known = |var: VarId| (var.0 as usize) < program.vars().len();
    if let Some(pair) = gradients.iter().find(|&&(param, grad)| !known(param) || !known(grad)) {
        let expected = "two variables of the program";
        let got = format!("{} and {}", program.called(pair.0), program.called(pair.1));
        return Err(Error::of(ErrorKind::Program, "parameter and gradient", expected, got));
    }
    if gradients.is_empty() {
        return Err(Error::of(ErrorKind::Program, "parameters to update", "at least one", "none"));
    }
    let names: Vec<&str> = gradients.iter().map(|&(param, _)| program.var(param).name.as_str()).collect();
    options.check_groups(&names)
}

fn append(
    program: &mut Program,
    registry: &Registry,
    options: &Options,
    rule: UpdateRule,
    gradients: Vec<(VarId, VarId)>,
    caller: &Location<'_>,
) -> Result<Minimization> {
    check(program, options, &gradients)?;
    let request = |kind| Append { role: Role::Update, caller: caller.to_string(), ..Append::forward(kind) };
    let root = BlockId(0);

    let rate = Append { attributes: options.schedule.attributes(options.rate), ..request(LEARNING_RATE) };
    let made = program.append(registry, root, rate)?;
    let rate = first(&made, 0)?;

    let norm = Clip { registry, gradients: &gradients, caller }.all(program, options)?;

    let every = rule.attributes.with("mode", options.mode.name());
    let outputs = registry.parse(rule.kind, &every)?.signature().outputs;
    let mut history = None;
    let mut owing = Vec::new();
    for &(param, grad) in &gradients {
        // The attribute `storage` is set only for row-sparse parameters, so that custom rules need not support this
        // attribute.
        let row_sparse = program.var(param).is_row_sparse();
        let name = program.var(param).name.clone();
        let mut attributes = options.grouped(&name, &every);
        if row_sparse {
            attributes.set("storage", StorageKind::SelectedRows.name());
        }
        let parsed = registry.parse(rule.kind, &attributes).map_err(|e| e.variable(&name))?;
        let waits = options.mode == SparseMode::Exact
            && parsed.owes() == Debt::Later
            && program.spec(grad)?.storage == StorageKind::SelectedRows
            && !row_sparse;
        let updated = updated_by(program, outputs, param, waits)?;
        let mut inputs = vec![("grad", vec![grad]), ("rate", vec![rate])];
        if waits {
            let history = match history {
                Some(history) => history,
                None => *history.insert(add_history(program)?),
            };
            inputs.push(("history", vec![history]));
            let updated_var =
                |name: &str| updated.iter().find(|(slot, _)| *slot == name).map(|&(_, var)| var);
            let states = updated.iter().filter(|(slot, _)| !["param", SETTLED].contains(slot));
            owing.extend(updated_var(SETTLED).map(|settled| settle::Owing {
                param,
                states: states.map(|&(_, var)| var).collect(),
                settled,
                kind: rule.kind,
                attributes: attributes.clone(),
            }));
        }
        let update = Append { inputs, updated, attributes, ..request(rule.kind) };
        program.append(registry, root, update).map_err(|e| e.variable(name))?;
    }
    if let Some(history) = history {
        let inputs = vec![("rate", vec![rate])];
        let updated = vec![("history", history)];
        program.append(registry, root, Append { inputs, updated, ..request("update_history") })?;
    }
    if options.adjustable {
        adjustable(program, rate)?;
    }
    if let Some(history) = history {
        // This is the last call that can fail, because the program cannot be rewound after an insertion.
        settle::before_readers(program, registry, &owing, history, &caller.to_string())?;
    }
    Ok(Minimization { gradients, rate, norm })
}

/// Returns the variable of each slot that the rule updates; a state that is new becomes a variable of the program.
fn updated_by(
    program: &mut Program,
    outputs: &'static [Slot],
    param: VarId,
    waits: bool,
) -> Result<Vec<(&'static str, VarId)>> {
    let mut updated = Vec::with_capacity(outputs.len());
    for slot in outputs.iter().filter(|slot| slot.updated) {
        let var = match slot.name {
            "param" => param,
            SETTLED if !waits => continue,
            SETTLED => {
                let height = program.spec(param)?.shape.first().and_then(|e| e.known()).unwrap_or(0);
                state(program, param, SETTLED, Spec::fixed(DType::F64, &[height])?, 0.0)?
            }
            name => {
                let spec = program.spec(param)?.clone();
                state(program, param, name, spec, slot.start)?
            }
        };
        updated.push((slot.name, var));
    }
    Ok(updated)
}

/// The gradients to clip, and the arguments for the clipping operators. The operators clip in place: a gradient's
/// variable then holds the clipped gradient.
#[derive(Clone, Copy)]
struct Clip<'a> {
    registry: &'a Registry,
    gradients: &'a [(VarId, VarId)],
    caller: &'a Location<'a>,
}

impl<'a> Clip<'a> {
    fn request(&self, kind: &'a str) -> Append<'a> {
        Append { role: Role::Update, caller: self.caller.to_string(), ..Append::forward(kind) }
    }

    /// Appends operators that clip as the options require; returns the variable of the global norm.
    fn all(&self, program: &mut Program, options: &Options) -> Result<Option<VarId>> {
        if let Some(limit) = options.clip_value {
            self.value(program, limit)?;
        }
        if let Some(max_norm) = options.clip_norm {
            for one in self.gradients.chunks(1) {
                Clip { gradients: one, ..*self }.norm(program, max_norm)?;
            }
        }
        options.max_norm.map(|max_norm| self.norm(program, max_norm)).transpose()
    }

    /// Appends operators that clip every number of every gradient to the range from −limit to limit.
    fn value(&self, program: &mut Program, limit: f64) -> Result<()> {
        for &(param, grad) in self.gradients {
            let storage = program.spec(grad)?.storage.to_string();
            let clipped = Append {
                inputs: vec![("param", vec![param])],
                updated: vec![("grad", grad)],
                attributes: Attributes::new().with("storage", storage).with("limit", limit),
                ..self.request("clip_gradient")
            };
            program.append(self.registry, BlockId(0), clipped)?;
        }
        Ok(())
    }

    /// Appends operators that clip by the global norm of `self.gradients`; returns the variable of the norm before
    /// clipping.
    fn norm(&self, program: &mut Program, max_norm: f64) -> Result<VarId> {
        let clip = Append {
            inputs: vec![("grads", self.gradients.iter().map(|&(_, grad)| grad).collect())],
            attributes: Attributes::new().with("max_norm", max_norm),
            ..self.request("global_norm")
        };
        let made = program.append(self.registry, BlockId(0), clip)?;
        let scale = first(&made, 1)?;
        for &(param, grad) in self.gradients {
            let storage = program.spec(grad)?.storage.to_string();
            let scaled = Append {
                inputs: vec![("param", vec![param]), ("scale", vec![scale])],
                updated: vec![("grad", grad)],
                attributes: Attributes::new().with("storage", storage),
                ..self.request("scale_gradient")
            };
            program.append(self.registry, BlockId(0), scaled)?;
        }
        first(&made, 0)
    }
}

/// The output slot of the state that counts, for each row of a parameter, the updates that the row has received.
const SETTLED: &str = "settled";

/// Adds the state variable `history`, which holds the learning rates of the last updates. The history is zeros at the start,
/// which means that there were no updates.
fn add_history(program: &mut Program) -> Result<VarId> {
    let spec = Spec::fixed(DType::F64, &HISTORY_SHAPE)?;
    // If a program is trained by several optimizers, each optimizer has a history of its own.
    let name = |number: usize| match number {
        0 => "learning_rate.history".to_owned(),
        more => format!("learning_rate.history_{more}"),
    };
    let free = (0..).map(name).find(|name| program.find(name).is_none());
    own(program, free.unwrap_or_else(|| name(0)), spec, Initializer::new(ZEROS, Attributes::new()))
}

/// Adds the state variable `PARAM.SLOT` of a parameter, whose numbers start at `start`.
fn state(program: &mut Program, param: VarId, slot: &str, spec: Spec, start: f64) -> Result<VarId> {
    let name = format!("{}.{slot}", program.var(param).name);
    own(program, name, spec, constant(start))
}

fn first(made: &[Vec<VarId>], slot: usize) -> Result<VarId> {
    let found = made.get(slot).and_then(|vars| vars.first());
    found
        .copied()
        .ok_or_else(|| Error::of(ErrorKind::Program, format!("output {slot}"), "a variable", "none"))
}
