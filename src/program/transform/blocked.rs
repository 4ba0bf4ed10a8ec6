//! Finds operators without a gradient that are between a loss and trained parameters.

use std::collections::{HashMap, HashSet};

use crate::error::Result;
use crate::operator::extent::VarId;
use crate::operator::registry::Registry;
use crate::operator::signature::{Signature, Slot};
use crate::program::description::op_desc::{OpDesc, Role};
use crate::program::description::program::Program;

/// For each variable, the operator that writes it, with the operator's signature and its index in the program.
type Writers<'a> = HashMap<VarId, (&'a OpDesc, Signature, usize)>;

/// Returns the operators without a gradient that `loss` depends on and that depend on trained parameters. Each operator is
/// returned as its kind and the user's source line, in the order of the program. The search stops at variables in `stopped`, and
/// at variables of a loaded program that stop gradients.
///
/// # Errors
/// Fails if an operator is not in the registry.
pub(crate) fn blocked(
    program: &Program,
    registry: &Registry,
    loss: VarId,
    stopped: &HashSet<VarId>,
) -> Result<Vec<(String, String)>> {
    let mut writers = Writers::new();
    let mut beside: HashMap<VarId, Vec<VarId>> = HashMap::new();
    let ops = program.ops().filter(|op| op.role == Role::Forward);
    for (number, op) in ops.enumerate() {
        if let Some(step) = &op.step {
            let mut is = |after: VarId, before: VarId| beside.entry(after).or_default().push(before);
            step.outputs.iter().for_each(|pair| is(pair.outer, pair.inner));
            step.inputs.iter().chain(&step.statics).for_each(|pair| is(pair.inner, pair.outer));
            for memory in &step.memories {
                is(memory.previous, memory.next);
                memory.last.into_iter().for_each(|last| is(last, memory.next));
                memory.initial.into_iter().for_each(|initial| is(memory.previous, initial));
                // For a sequence without steps, the last value of a memory is the initial value.
                memory.last.into_iter().zip(memory.initial).for_each(|(last, initial)| is(last, initial));
            }
            continue;
        }
        let signature = registry.parse(&op.kind, &op.attributes)?.signature();
        writers.extend(op.writes().map(|var| (var, (op, signature, number))));
    }
    let trained = trained(program, &writers, &beside);
    let (mut due, mut seen) = (vec![loss], HashSet::from([loss]));
    let mut found: Vec<(usize, &OpDesc)> = Vec::new();
    while let Some(var) = due.pop() {
        if stopped.contains(&var) {
            continue;
        }
        let mut before: Vec<VarId> = beside.get(&var).cloned().unwrap_or_default();
        if let Some(&(op, signature, number)) = writers.get(&var) {
            let reads = |passes: fn(&Slot) -> bool| {
                let slots = signature.inputs.iter().filter(move |slot| passes(slot));
                slots.flat_map(|slot| op.input(slot.name)).copied().collect::<Vec<VarId>>()
            };
            if signature.inputs.iter().any(|slot| slot.gradient) {
                if passed(program, op, &signature, &trained, var) {
                    before.extend(reads(|slot| slot.gradient));
                }
            } else {
                before.extend(reads(|slot| !slot.shape_only && !slot.literal));
                if before.iter().any(|var| trained.contains(var))
                    && !found.iter().any(|(other, _)| *other == number)
                {
                    found.push((number, op));
                }
            }
        }
        due.extend(before.into_iter().filter(|&var| seen.insert(var)));
    }
    found.sort_by_key(|&(number, _)| number);
    Ok(found.into_iter().map(|(_, op)| (op.kind.clone(), op.caller.clone())).collect())
}

/// Returns the trained parameters, and all variables that depend on trained parameters through slots with gradients.
fn trained(program: &Program, writers: &Writers<'_>, beside: &HashMap<VarId, Vec<VarId>>) -> HashSet<VarId> {
    let mut readers: HashMap<VarId, Vec<VarId>> = HashMap::new();
    for (&after, before) in beside {
        before.iter().for_each(|&before| readers.entry(before).or_default().push(after));
    }
    for (&out, (op, signature, _)) in writers {
        let slots = signature.inputs.iter().filter(|slot| slot.gradient);
        let reads = slots.flat_map(|slot| op.input(slot.name));
        reads.for_each(|&var| readers.entry(var).or_default().push(out));
    }
    let passes = |var: VarId| !program.var(var).stop_gradient;
    let mut due: Vec<VarId> = program.trained_parameters().filter(|&var| passes(var)).collect();
    let mut trained: HashSet<VarId> = due.iter().copied().collect();
    while let Some(var) = due.pop() {
        let after = readers.get(&var).into_iter().flatten().copied();
        due.extend(after.filter(|&after| passes(after) && trained.insert(after)));
    }
    trained
}

/// Returns whether an operator passes the gradient of its output `out` on to its inputs: `out` has a gradient (ids have none),
/// and the user did not stop the gradient.
fn passed(
    program: &Program,
    op: &OpDesc,
    signature: &Signature,
    trained: &HashSet<VarId>,
    out: VarId,
) -> bool {
    let writes = |slot: &Slot| slot.gradient && op.output(slot.name).contains(&out);
    let reads = |slot: &Slot| slot.gradient && op.input(slot.name).iter().any(|var| trained.contains(var));
    let stopped = program.var(out).stop_gradient
        && program.var(out).spec().is_some_and(|spec| spec.dtype.is_float())
        && signature.inputs.iter().any(reads);
    signature.outputs.iter().any(writes) && !stopped
}
