//! Rules: the update operators of one parameter, which the store runs on the value of a key.

use std::panic::Location;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::operator::{
    Arity, Attributes, BlockId, Debt, Extent, Levels, Literal, Op, Registry, Signature, Slot, Spec, VarId,
};
use crate::ops::update::{rule::SparseMode, schedule::Schedule};
use crate::ops::{HISTORY_SHAPE, settle_attributes};
use crate::optimizer::Optimizer;
use crate::program::description::initialize::{ZEROS, constant};
use crate::program::{Append, Initializer, OpDesc, Program, Role, VarDesc, VarKind, VarRole};
use crate::tensor::{DType, StorageKind};

/// The update rule of a key: the operators that an [`Optimizer`] appends to a program for one parameter, which are the
/// learning rate, the clipping by value and the update. The store applies the rule to merged gradients.
///
/// The rows of a value are in several shards, so a rule has to update each row by itself: clipping by norms and LAMB are
/// errors. A learning rate with an [adjustable scale](crate::optimizer::RATE_SCALE) is an error too.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    kind: String,
    /// The attributes of the update operator, without the attribute for the storage of the parameter.
    attributes: Attributes,
    /// The attributes of the operator `learning_rate`.
    rate: Attributes,
    /// The limits of clipping by value: the largest magnitudes of the gradient's numbers, in the order of the clipping
    /// operators.
    limits: Vec<f64>,
}

impl Rule {
    /// Makes the rule of an optimizer; the operators of the optimizer must be in `registry`.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range; if the optimizer has groups, since each key has a rule of its own; if the
    /// rule does not work row by row.
    #[track_caller]
    pub fn new(optimizer: &dyn Optimizer, registry: &Registry) -> Result<Self> {
        let caller = Location::caller();
        if !optimizer.options().groups.is_empty() {
            return Err(refused("an optimizer without groups, since each key has its own rule", "groups"));
        }
        let mut program = Program::new();
        let spec = Spec::fixed(DType::F32, &[1])?;
        let param = program.add_var(parameter("value", spec.clone()))?;
        let grad = program.add_var(feed("gradient", spec))?;
        optimizer
            .update(&mut program, registry, vec![(param, grad)])
            .and_then(|_| Self::of(&program, registry, param))
            .map_err(|e| e.called(caller))
    }

    /// Returns the rule for a key without a rule: gradient descent with the rate 1, which adds negated gradients to the value.
    pub(super) fn adding() -> Self {
        let plain = Attributes::new().with("mode", "exact").with("weight_decay", 0.0);
        let rate = Schedule::constant().attributes(1.0);
        Self { kind: "sgd".to_owned(), attributes: plain, rate, limits: Vec::new() }
    }

    /// Returns the rule by which a program updates the parameter `param`.
    ///
    /// # Errors
    /// Returns an error if the program does not update the parameter, the operator is not registered, or the update does not work
    /// row by row.
    pub(super) fn of(program: &Program, registry: &Registry, param: VarId) -> Result<Self> {
        let named = |e: Error| e.variable(&program.var(param).name);
        let updates = || program.root().ops.iter().filter(|op| op.role == Role::Update);
        let update = update_of(program, param);
        let update = update.ok_or_else(|| named(refused("a parameter that an optimizer updates", "none")))?;
        // The input for the history of updates is not counted, since the store keeps a history for each key.
        let others = update.reads().count() - update.input(HISTORY).len();
        let slots = update.input("grad").first().zip(update.input("rate").first());
        let (Some((&grad, &rate)), 2) = (slots, others) else {
            return Err(named(refused("an update that reads only `grad` and `rate`", &update.kind)));
        };
        let mut limits = Vec::new();
        let touches = |op: &OpDesc| op.reads().chain(op.writes()).any(|var| var == param || var == grad);
        for op in updates().filter(|op| touches(op) && !std::ptr::eq(*op, update)) {
            match &*op.kind {
                "clip_gradient" => limits.push(op.attributes.float("limit")?),
                other => return Err(named(not_by_rows(other))),
            }
        }
        if matches!(registry.parse(&update.kind, &update.attributes)?.owes(), Debt::Whole(_)) {
            return Err(named(not_by_rows(&update.kind)));
        }
        let rate = updates().find(|op| op.writes().any(|var| var == rate));
        let rate = rate.filter(|op| op.kind == "learning_rate" && op.reads().next().is_none());
        let Some(rate) = rate else {
            return Err(named(refused(
                "a rate by a schedule",
                "a rate that is set from outside (`adjustable`)",
            )));
        };
        let attributes = update.attributes.iter().filter(|(name, _)| *name != "storage");
        let attributes =
            attributes.fold(Attributes::new(), |all, (name, value)| all.with(name, value.clone()));
        Ok(Self { kind: update.kind.clone(), attributes, rate: rate.attributes.clone(), limits })
    }

    /// Appends the operators and states of the rule to a program that has the value and its gradient. If the rule leaves
    /// pending moves in rows that a gradient does not select, the method also adds the history of updates, from which these
    /// moves are computed.
    ///
    /// # Errors
    /// Returns an error if the operator is not registered, or refuses the gradient's storage.
    pub(super) fn append(
        &self,
        program: &mut Program,
        registry: &Registry,
        (param, grad): (VarId, VarId),
        name_of_state: &dyn Fn(&str) -> String,
    ) -> Result<()> {
        let root = BlockId(0);
        let request = |kind| Append { role: Role::Update, ..Append::forward(kind) };
        let rate = Append { attributes: self.rate.clone(), ..request("learning_rate") };
        let rate = program.append(registry, root, rate)?;
        let rate = rate.into_iter().flatten().next();
        let rate = rate.ok_or_else(|| refused("a learning rate", "none"))?;
        let storage = program.spec(grad)?.storage;
        for &limit in &self.limits {
            let clip = Append {
                inputs: vec![("param", vec![param])],
                updated: vec![("grad", grad)],
                attributes: Attributes::new().with("storage", storage.name()).with("limit", limit),
                ..request("clip_gradient")
            };
            program.append(registry, root, clip)?;
        }
        let op = registry.parse(&self.kind, &self.attributes)?;
        let mut updated = Vec::new();
        for slot in kept(op.signature()) {
            let var = match slot.name {
                "param" => param,
                other => {
                    let initializer = Some(constant(slot.start));
                    let state = state(&name_of_state(other), program.spec(param)?.clone());
                    program.add_var(VarDesc { initializer, ..state })?
                }
            };
            updated.push((slot.name, var));
        }
        let mut inputs = vec![("grad", vec![grad]), ("rate", vec![rate])];
        let owes = storage == StorageKind::SelectedRows && self.owes(&*op)?;
        let history = if owes { Some(add_history(program, param, name_of_state)?) } else { None };
        if let Some((history, settled)) = history {
            inputs.push((HISTORY, vec![history]));
            updated.push((SETTLED, settled));
        }
        let update = Append { inputs, updated, attributes: self.attributes.clone(), ..request(&self.kind) };
        program.append(registry, root, update).at_caller()?;
        if let Some((history, _)) = history {
            let inputs = vec![("rate", vec![rate])];
            let noted = Append { inputs, updated: vec![(HISTORY, history)], ..request("update_history") };
            program.append(registry, root, noted).at_caller()?;
        }
        Ok(())
    }

    /// Returns whether the rows that a gradient does not select get pending moves: changes that are applied later.
    fn owes(&self, op: &dyn Op) -> Result<bool> {
        Ok(self.attributes.text("mode")? == SparseMode::Exact.name() && op.owes() == Debt::Later)
    }

    /// Returns the program that applies the pending moves of some rows, and the feed with the row numbers. The argument `trained` is
    /// a [`program`](Self::program) for gradients of selected rows. Returns `None` if rows never have pending moves.
    ///
    /// # Errors
    /// The errors are the errors of [`Self::append`].
    pub(super) fn settling(
        &self,
        trained: &Program,
        registry: &Registry,
    ) -> Result<Option<(Program, VarId)>> {
        let op = registry.parse(&self.kind, &self.attributes)?;
        let beside = |slot: &str| trained.find(&format!("{VALUE}.{slot}"));
        let (Some(param), Some(history), Some(settled)) =
            (trained.find(VALUE), beside(HISTORY), beside(SETTLED))
        else {
            return Ok(None);
        };
        let mut program = trained.clone();
        program.blocks[0].ops.clear();
        let ids = Spec::rows_of(DType::I64, Extent::Batch, &[], Levels::new())?;
        let ids = program.add_var(feed("ids", ids))?;
        let spec = trained.spec(param)?;
        let shape: Vec<usize> = spec.shape.iter().filter_map(|extent| extent.known()).collect();
        let mut updated = vec![("param", param)];
        for slot in kept(op.signature()).filter(|slot| slot.name != "param") {
            updated.extend(beside(slot.name).map(|state| ("state", state)));
        }
        updated.push((SETTLED, settled));
        let settle = Append {
            inputs: vec![("ids", vec![ids]), (HISTORY, vec![history])],
            updated,
            attributes: settle_attributes(&self.kind, &self.attributes, spec.dtype, &shape),
            role: Role::Settle,
            ..Append::forward("settle")
        };
        program.append(registry, BlockId(0), settle)?;
        Ok(Some((program, ids)))
    }

    /// Returns the slots of the states that the store keeps for this rule together with the value.
    ///
    /// # Errors
    /// Returns an error if the operator is not registered.
    pub(super) fn states(&self, registry: &Registry) -> Result<Vec<String>> {
        let op = registry.parse(&self.kind, &self.attributes)?;
        let states = kept(op.signature()).filter(|slot| slot.name != "param");
        Ok(states.map(|slot| slot.name.to_owned()).collect())
    }

    /// Returns the program that updates one value, and the feed of the gradient, which has the storage `storage`. In the
    /// program, the variable of the value has the name [`VALUE`].
    ///
    /// # Errors
    /// The errors are the errors of [`Self::append`].
    pub(super) fn program(
        &self,
        registry: &Registry,
        (dtype, dims): (DType, &[usize]),
        storage: StorageKind,
    ) -> Result<(Program, VarId)> {
        let mut program = Program::new();
        let spec = Spec::fixed(dtype, dims)?;
        let param = program.add_var(parameter(VALUE, spec.clone()))?;
        let grad = program.add_var(feed("gradient", spec.stored(storage)))?;
        self.append(&mut program, registry, (param, grad), &|slot| format!("{VALUE}.{slot}"))?;
        Ok((program, grad))
    }

    /// Formats the rule for error messages: the kind, such as `adam`, with the attributes.
    pub(super) fn shown(&self) -> String {
        let pair = |(name, value): (&str, &Literal)| format!("{name} = {value}");
        let attributes: Vec<String> = self.attributes.iter().chain(self.rate.iter()).map(pair).collect();
        let limits: String = self.limits.iter().map(|limit| format!(", clipped at {limit}")).collect();
        format!("`{}` ({}{limits})", self.kind, attributes.join(", "))
    }
}

/// Adds two state variables: the history (the learning rates of the last updates), and for each row the number of updates that
/// the row has received.
fn add_history(
    program: &mut Program,
    param: VarId,
    name_of_state: &dyn Fn(&str) -> String,
) -> Result<(VarId, VarId)> {
    let height = program.spec(param)?.rows().known().unwrap_or(0);
    let history = state(&name_of_state(HISTORY), Spec::fixed(DType::F64, &HISTORY_SHAPE)?);
    let settled = state(&name_of_state(SETTLED), Spec::fixed(DType::F64, &[height])?);
    Ok((program.add_var(history)?, program.add_var(settled)?))
}

/// Returns the output slots that a saved file stores: `param` and the states of the rule. A saved file needs no history, since
/// pending moves are applied before the file is written.
fn kept(signature: Signature) -> impl Iterator<Item = &'static Slot> {
    signature.outputs.iter().filter(|slot| slot.updated && slot.arity == Arity::One)
}

/// Returns the operator of the program that updates the parameter `param`.
pub(super) fn update_of(program: &Program, param: VarId) -> Option<&OpDesc> {
    let mut updates = program.root().ops.iter().filter(|op| op.role == Role::Update);
    updates.find(|op| op.writes().any(|var| var == param))
}

/// The name of the value's variable in the program that updates the value.
pub(super) const VALUE: &str = "value";
/// The name of the operator slot for the history of updates. The name of the history's variable is made from this name and the
/// name of the value.
pub(super) const HISTORY: &str = "history";
/// The name of the operator slot for the number of updates per row. The name of the variable is made from this name and
/// the name of the value, as for [`HISTORY`].
pub(super) const SETTLED: &str = "settled";

#[track_caller]
fn refused(expected: &str, got: &str) -> Error {
    Error::of(ErrorKind::Program, "rule of a key", expected, got)
}

#[track_caller]
fn not_by_rows(kind: &str) -> Error {
    let got = format!("`{kind}`, which needs all rows at once");
    refused("update operators that take each row by itself", &got)
}

/// Returns the description of a persistent variable that is a parameter.
pub(super) fn parameter(name: &str, spec: Spec) -> VarDesc {
    VarDesc { persistable: true, trainable: true, ..bare(name, spec, VarRole::Parameter) }
}

/// Returns the description of a persistent variable that is a state, with zeros as the initial value.
pub(super) fn state(name: &str, spec: Spec) -> VarDesc {
    let zeros = Some(Initializer::new(ZEROS, Attributes::new()));
    VarDesc { persistable: true, initializer: zeros, ..bare(name, spec, VarRole::State) }
}

pub(super) fn feed(name: &str, spec: Spec) -> VarDesc {
    bare(name, spec, VarRole::Feed)
}

fn bare(name: &str, spec: Spec, role: VarRole) -> VarDesc {
    VarDesc { stop_gradient: true, ..VarDesc::new(name, BlockId(0), VarKind::Tensor(spec), role) }
}
