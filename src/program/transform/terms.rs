//! The terms of a loss: sums and means over rows. The terms of a whole batch can be computed from the terms of the parts of the
//! batch.
//!
//! A batch may be divided into *parts* of whole sequences. Examples of parts are the batches that make one training step, the
//! shares of several workers, and the batches of an evaluation. Most losses are a function of *totals*: L = f(T₁, …, Tₙ, θ). A
//! total is a sum or a mean over rows. A total of the whole batch can be computed from its values for the parts b. Sums over
//! parts are added. Means over parts are averaged, with the number of rows of each part as the weight m:
//!
//! ```text
//! sum    Tᵢ = Σ_b Tᵢb               a part's share sᵢb = 1
//! mean   Tᵢ = Σ_b mᵢb Tᵢb / Σ_b mᵢb                sᵢb = mᵢb / Σ_b mᵢb
//!
//! ∂L/∂θ = Σᵢ ∂f/∂Tᵢ Σ_b sᵢb ∂Tᵢb/∂θ + ∂f/∂θ
//! ```
//!
//! The function f is the *head* of the loss: operators on variables without rows. Values that depend on parameters alone, such as
//! a penalty on weights, belong to the head. A value of the head counts once per batch, not once per part.

use std::collections::{HashMap, HashSet};

use crate::error::{Error, ErrorKind, Place, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, VarId};
use crate::operator::hints::Total;
use crate::operator::registry::Registry;
use crate::program::description::language::FILL;
use crate::program::description::op_desc::{OpDesc, Role};
use crate::program::description::program::Program;
use crate::program::description::var_desc::VarRole;

/// The totals of a loss, and the head that computes the loss from the totals.
#[derive(Debug, Clone)]
pub(crate) struct LossTerms {
    pub(crate) loss: VarId,
    /// The totals of the loss, in the order in which the program computes them.
    pub(crate) totals: Vec<TotalVar>,
    /// The variables that the head reads and that do not depend on rows: parameters, and values computed from parameters alone.
    pub(crate) givens: Vec<VarId>,
    /// The variables that the head computes from totals. The loss is one of the variables of the head, unless the loss itself is
    /// a total.
    head: HashSet<VarId>,
    /// The variables that depend on rows of the batch.
    reached: HashSet<VarId>,
    /// The variables that depend on feeds without rows, each with one of these feeds.
    fed: HashMap<VarId, VarId>,
    /// The operators that declare that their output rows depend on all rows of a batch: the kind and the user's source line of
    /// each operator.
    pub(crate) whole: Vec<(String, String)>,
}

/// A total: the sum or the mean of a variable over rows.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TotalVar {
    pub(crate) var: VarId,
    /// The variable whose rows are summed or averaged. If the total is a mean over batches, `of` is the scalar weight of a batch.
    pub(crate) of: VarId,
    pub(crate) kind: Total,
}

impl LossTerms {
    /// Returns the terms of `loss`, which is a variable of the root block without rows.
    ///
    /// # Errors
    /// Fails unless `loss` is computed from sums and means over rows and from parameters, by operators on variables without rows.
    pub(crate) fn of(program: &Program, registry: &Registry, loss: VarId) -> Result<Self> {
        let mut terms = Self::empty(loss);
        terms.reach(program);
        terms.walk(program, registry, loss)?;
        terms.look_for_whole(program, registry, true)?;
        let at = |var: VarId| forward(program).position(|op| op.writes().any(|v| v == var));
        terms.totals.sort_by_key(|total| at(total.var));
        Ok(terms)
    }

    /// Returns the terms of a loss that is averaged over batches; the scalar `weight` is the weight of a batch.
    ///
    /// # Errors
    /// Fails if an operator is not registered.
    pub(crate) fn weighted(
        program: &Program,
        registry: &Registry,
        loss: VarId,
        weight: VarId,
    ) -> Result<Self> {
        let mut terms = Self::empty(loss);
        terms.reach(program);
        terms.totals.push(TotalVar { var: loss, of: weight, kind: Total::Mean });
        terms.look_for_whole(program, registry, false)?;
        Ok(terms)
    }

    fn empty(loss: VarId) -> Self {
        let (totals, givens, whole) = (Vec::new(), Vec::new(), Vec::new());
        let (head, reached, fed) = (HashSet::new(), HashSet::new(), HashMap::new());
        Self { loss, totals, givens, head, reached, fed, whole }
    }

    /// Returns whether the head computes the variable `var` from totals.
    pub(crate) fn is_of_head(&self, var: VarId) -> bool {
        self.head.contains(&var)
    }

    /// Returns whether the loss itself is the only total.
    pub(crate) fn is_total(&self) -> bool {
        self.totals.iter().any(|total| total.var == self.loss)
    }

    /// Finds all variables that depend on rows, and all variables that depend on feeds without rows.
    fn reach(&mut self, program: &Program) {
        let batched = |id: VarId| program.spec(id).is_ok_and(|spec| spec.batched());
        let feeds = program.vars().filter(|(_, var)| var.block == BlockId(0) && var.role == VarRole::Feed);
        let (with_rows, without): (Vec<VarId>, Vec<VarId>) =
            feeds.map(|(id, _)| id).partition(|&id| batched(id));
        self.reached.extend(with_rows);
        self.fed.extend(without.into_iter().map(|feed| (feed, feed)));
        for op in forward(program) {
            if let Some(feed) = op.reads().find_map(|var| self.fed.get(&var).copied()) {
                self.fed.extend(op.writes().map(|var| (var, feed)));
            }
            if op.reads().any(|var| self.reached.contains(&var)) || op.writes().any(batched) {
                self.reached.extend(op.writes());
            }
        }
    }

    /// Finds the totals that the variable `var` is computed from.
    fn walk(&mut self, program: &Program, registry: &Registry, var: VarId) -> Result<()> {
        if self.head.contains(&var) || self.totals.iter().any(|total| total.var == var) {
            return Ok(());
        }
        if !self.reached.contains(&var) {
            if let Some(&feed) = self.fed.get(&var) {
                let got = format!("`{}`, a feed without rows", program.var(feed).name);
                let op = forward(program).find(|op| op.writes().any(|v| v == var));
                let hint = "parts may be fed other values; a number that is the same for all rows can be a feed of one number per \
                            sequence, multiplied with the losses before their sum or mean";
                return Err(unseen(program, self.loss, op, &got).noted(hint));
            }
            if !self.givens.contains(&var) {
                self.givens.push(var);
            }
            return Ok(());
        }
        let batched = |id: VarId| program.spec(id).is_ok_and(|spec| spec.batched());
        let Some(op) = forward(program).find(|op| op.writes().any(|v| v == var)) else {
            return Err(unseen(program, self.loss, None, "a variable that no operator computes"));
        };
        let instance = match &op.step {
            Some(_) => None,
            None => Some(registry.parse(&op.kind, &op.attributes)?),
        };
        if let Some(counted) = op.reads().find(|&v| batched(v)) {
            let Some(kind) = instance.and_then(|op| op.hints().total) else {
                let got = format!("`{}`, which `{}` computes from rows", program.var(var).name, op.kind);
                return Err(unseen(program, self.loss, Some(op), &got));
            };
            self.totals.push(TotalVar { var, of: counted, kind });
            return Ok(());
        }
        self.head.extend(op.writes());
        let inputs: Vec<VarId> = op.reads().collect();
        inputs.into_iter().try_for_each(|input| self.walk(program, registry, input))
    }

    /// Adds operators to `whole`. An operator is added if the totals depend on it, and if it declares that its output rows
    /// depend on all rows of a batch. If `refuse` is true, fails if one of these operators computes rows from a value of the
    /// whole batch, such as a mean over all rows.
    fn look_for_whole(&mut self, program: &Program, registry: &Registry, refuse: bool) -> Result<()> {
        let batched = |id: VarId| program.spec(id).is_ok_and(|spec| spec.batched());
        let mut needed: HashSet<VarId> = self.totals.iter().flat_map(|total| [total.var, total.of]).collect();
        for op in program.root().ops.iter().rev().filter(|op| op.role == Role::Forward) {
            if !op.writes().any(|var| needed.contains(&var)) {
                continue;
            }
            needed.extend(op.reads());
            let number = op.reads().find(|&v| self.reached.contains(&v) && !batched(v));
            if let (Some(number), true) = (number, refuse && op.writes().any(batched)) {
                let got = format!(
                    "rows that are computed from `{}`, a number of the whole batch",
                    program.var(number).name
                );
                return Err(unseen(program, self.loss, Some(op), &got));
            }
            if op.step.is_none() && registry.parse(&op.kind, &op.attributes)?.facts().batch_dependent {
                self.whole.push((op.kind.clone(), op.caller.clone()));
            }
        }
        Ok(())
    }

    /// Returns the program that computes the gradients of a part. The gradients of the totals are feeds of this program, and the
    /// backward operators of the head are left out.
    pub(crate) fn body(&self, program: &Program) -> Program {
        let mut body = program.clone();
        let seeds: Vec<VarId> = self.totals.iter().filter_map(|t| gradient_of(program, t.var)).collect();
        for &seed in &seeds {
            body.var_mut(seed).role = VarRole::Feed;
        }
        let of_head = |op: &OpDesc| {
            let gradients = op.reads().filter_map(|var| program.var(var).gradient_of);
            let mut gradients = gradients.filter(|grad_var| program.var(*grad_var).block == BlockId(0));
            op.role == Role::Backward && gradients.any(|grad_var| self.head.contains(&grad_var))
        };
        let starts = |op: &OpDesc| op.writes().any(|var| program.var(var).gradient_of == Some(self.loss));
        let ops = std::mem::take(&mut body.blocks[0].ops);
        let fill = ops.iter().find(|op| op.kind == FILL.kind && starts(op)).cloned();
        let kept = ops.into_iter().filter(|op| !of_head(op) && (op.role == Role::Update || !starts(op)));
        body.blocks[0].ops = only_reached(&body, kept.collect(), &seeds);
        only_run(&mut body);
        // The gradient of a parameter that only the head reads is filled with zeros in the program of a part.
        let Some(fill) = fill else { return body };
        // Update operators are skipped, because an update operator may write gradients (clipping does).
        let computed = body.root().ops.iter().filter(|op| op.role != Role::Update);
        let written: HashSet<VarId> = computed.flat_map(OpDesc::writes).collect();
        let orphans =
            program.trained_parameters().filter_map(|param| Some((param, gradient_of(program, param)?)));
        let orphans =
            orphans.filter(|(_, gradient)| !written.contains(gradient) && !seeds.contains(gradient));
        let zeros: Vec<OpDesc> = orphans
            .map(|(param, gradient)| {
                let mut zero = fill.clone();
                zero.attributes = Attributes::new().with(FILL.attributes[0], 0.0);
                zero.inputs.iter_mut().for_each(|bound| bound.vars = vec![param]);
                zero.outputs.iter_mut().for_each(|bound| bound.vars = vec![gradient]);
                zero
            })
            .collect();
        let updates = body.root().ops.iter().position(|op| op.role == Role::Update);
        let at = updates.unwrap_or(body.root().ops.len());
        body.blocks[0].ops.splice(at..at, zeros);
        body
    }

    /// Returns the program of the head, with the totals as feeds. The program of the head computes the loss, the gradients of the
    /// totals, and the gradients of the parameters that the head reads.
    pub(crate) fn head(&self, program: &Program) -> Head {
        let mut head = program.clone();
        let totals: HashSet<VarId> = self.totals.iter().map(|total| total.var).collect();
        for &total in &totals {
            head.var_mut(total).role = VarRole::Feed;
        }
        let of_rows = |var: VarId| {
            program.var(var).gradient_of.is_none() && self.reached.contains(&var) && !self.head.contains(&var)
        };
        let ops = std::mem::take(&mut head.blocks[0].ops);
        let kept = ops.into_iter().filter(|op| match op.role {
            Role::Forward => !op.writes().any(of_rows),
            Role::Backward => !op.reads().filter_map(|var| program.var(var).gradient_of).any(of_rows),
            Role::Update | Role::Settle => false,
        });
        head.blocks[0].ops = only_reached(&head, kept.collect(), &[]);
        only_run(&mut head);
        let written: HashSet<VarId> = head.root().ops.iter().flat_map(OpDesc::writes).collect();
        let made = |var: VarId| gradient_of(program, var).filter(|gradient| written.contains(gradient));
        let seeds = self.totals.iter().map(|total| made(total.var)).collect();
        let gradients = program.trained_parameters().filter_map(made).collect();
        Head { program: head, seeds, gradients }
    }
}

/// The head of a loss as a program.
pub(crate) struct Head {
    pub(crate) program: Program,
    /// The gradient of each total; `None` if no gradient reaches the total.
    pub(crate) seeds: Vec<Option<VarId>>,
    /// The gradients of the parameters that the head reads.
    pub(crate) gradients: Vec<VarId>,
}

fn forward(program: &Program) -> impl Iterator<Item = &OpDesc> {
    program.root().ops.iter().filter(|op| op.role == Role::Forward)
}

/// Returns the variable that is the gradient of the variable `differentiated`.
fn gradient_of(program: &Program, differentiated: VarId) -> Option<VarId> {
    program.vars().find(|(_, var)| var.gradient_of == Some(differentiated)).map(|(id, _)| id)
}

/// Returns `ops` without the backward operators that read only gradients that are no longer computed.
fn only_reached(program: &Program, ops: Vec<OpDesc>, seeds: &[VarId]) -> Vec<OpDesc> {
    let mut there: HashSet<VarId> = seeds.iter().copied().collect();
    let mut kept = Vec::with_capacity(ops.len());
    for mut op in ops {
        if op.role == Role::Backward && op.step.is_none() {
            let is_gradient = |var: &VarId| program.var(*var).gradient_of.is_some();
            let gradients: Vec<VarId> = op.reads().filter(is_gradient).collect();
            if !gradients.iter().any(|var| there.contains(var)) {
                continue;
            }
            for var in op.inputs.iter_mut().flat_map(|bound| &mut bound.vars) {
                if gradients.contains(var) && !there.contains(var) {
                    *var = VarId::NONE;
                }
            }
        }
        there.extend(op.writes());
        kept.push(op);
    }
    kept
}

/// Empties the blocks that no operator runs.
fn only_run(program: &mut Program) {
    let mut run = vec![false; program.blocks.len()];
    let mut next = vec![BlockId(0)];
    while let Some(block) = next.pop() {
        run[block.0 as usize] = true;
        let steps = program.blocks[block.0 as usize].ops.iter().filter_map(|op| op.step.as_deref());
        next.extend(steps.map(|step| step.gradient.as_ref().map_or(step.block, |gradient| gradient.block)));
    }
    for (block, _) in program.blocks.iter_mut().zip(run).filter(|(_, run)| !run) {
        block.ops.clear();
    }
}

/// Returns the operators that `vars` depend on and whose output rows depend on all rows of the batch, also in an evaluation. Each
/// operator is returned as its kind and the user's source line. If an update reads the outputs of an operator, such as a batch
/// norm's mean, the operator is left out: an evaluation reads a running mean instead.
///
/// # Errors
/// Fails if an operator is not registered.
pub(crate) fn whole_batch(
    program: &Program,
    registry: &Registry,
    vars: impl Iterator<Item = VarId>,
) -> Result<Vec<(String, String)>> {
    let mut needed: HashSet<VarId> = vars.collect();
    let updates = program.root().ops.iter().filter(|op| op.role == Role::Update);
    let kept: HashSet<VarId> = updates.flat_map(OpDesc::reads).collect();
    let batched = |id: VarId| program.spec(id).is_ok_and(|spec| spec.batched());
    let mut whole = Vec::new();
    for op in program.root().ops.iter().rev().filter(|op| op.role == Role::Forward) {
        if !op.writes().any(|var| needed.contains(&var)) {
            continue;
        }
        needed.extend(op.reads());
        let by_batch = op.writes().any(batched) && !op.writes().any(|var| kept.contains(&var));
        if by_batch && op.step.is_none() && registry.parse(&op.kind, &op.attributes)?.facts().batch_dependent
        {
            whole.push((op.kind.clone(), op.caller.clone()));
        }
    }
    whole.reverse();
    Ok(whole)
}

/// Returns the error that a loss cannot be computed from totals.
fn unseen(program: &Program, loss: VarId, op: Option<&OpDesc>, got: &str) -> Error {
    let expected = "sums and means over rows (`sum`, `mean`) and operators on these, so that batches of any sizes add up to the loss";
    let error = Error::of(ErrorKind::Program, "loss", expected, got).variable(&program.var(loss).name);
    match op {
        Some(op) => error.at(Place {
            operator: Some(op.kind.clone()),
            caller: Some(op.caller.clone()),
            variable: Some(program.var(loss).name.clone()),
            ..Place::default()
        }),
        None => error,
    }
}
