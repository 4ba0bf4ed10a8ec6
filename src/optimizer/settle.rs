//! Inserts operators `settle` before operators that read a parameter. A `settle` applies the missed updates of the rows
//! that the next operator reads.

use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Attributes, BlockId, Registry, Spec, VarId};
use crate::ops::settle_attributes;
use crate::program::{Append, OpDesc, Program, RECURRENT, Role, StepDesc};

/// A parameter whose rows may have missed updates, because the parameter's gradient is selected rows and its update
/// mode is exact.
pub(super) struct Owing {
    pub(super) param: VarId,
    /// The state variables of the parameter's update rule, in the order of the output slots.
    pub(super) states: Vec<VarId>,
    /// The state that counts, for each row of the parameter, the updates that the row has received.
    pub(super) settled: VarId,
    pub(super) kind: &'static str,
    pub(super) attributes: Attributes,
}

/// The rows of a parameter that an operator reads: the rows named by ids, or all rows.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    /// The rows that the ids in this variable name.
    Of(VarId),
    All,
}

/// Inserts a `settle` before every forward operator of the root block that reads one of the parameters, directly or in its step
/// block.
///
/// # Errors
/// Returns an error if no operator reads one of the parameters, since the missed updates of this parameter would never
/// be applied.
pub(super) fn before_readers(
    program: &mut Program,
    registry: &Registry,
    owing: &[Owing],
    history: VarId,
    caller: &str,
) -> Result<()> {
    let mut unread: Vec<VarId> = owing.iter().map(|owing| owing.param).collect();
    // The operators are inserted from the last position to the first, so that an insertion does not change the positions of later
    // insertions; and only if nothing fails, so that an error leaves the operators of the program in their order.
    let mut inserted = Vec::new();
    for at in (0..program.root().ops.len()).rev() {
        let reader = program.root().ops[at].clone();
        if reader.role != Role::Forward {
            continue;
        }
        for owing in owing {
            let mut rows = Vec::new();
            rows_read(program, registry, &reader, owing.param, &mut rows)?;
            if rows.contains(&Rows::All) {
                rows = vec![Rows::All];
            }
            if !rows.is_empty() {
                unread.retain(|&param| param != owing.param);
            }
            for rows in rows {
                settle(program, registry, owing, history, rows, caller)?;
                inserted.extend(program.blocks[0].ops.pop().map(|op| (at, op)));
            }
        }
    }
    let Some(&param) = unread.first() else {
        inserted.into_iter().for_each(|(at, op)| program.blocks[0].ops.insert(at, op));
        return Ok(());
    };
    let expected = "a parameter that the program reads, so that missed updates of rows are applied before a read, or `.lazy()` on the \
                    optimizer (then only touched rows and their state move)";
    let error = Error::of(
        ErrorKind::Program,
        "parameter with a gradient of selected rows",
        expected,
        "a parameter that nothing reads",
    );
    Err(error.variable(&program.var(param).name))
}

fn settle(
    program: &mut Program,
    registry: &Registry,
    owing: &Owing,
    history: VarId,
    rows: Rows,
    caller: &str,
) -> Result<()> {
    let spec: &Spec = program.spec(owing.param)?;
    let shape: Vec<usize> = spec.shape.iter().filter_map(|e| e.known()).collect();
    let attributes = settle_attributes(owing.kind, &owing.attributes, spec.dtype, &shape);
    let mut inputs = vec![("history", vec![history])];
    if let Rows::Of(ids) = rows {
        inputs.push(("ids", vec![ids]));
    }
    let states = owing.states.iter().map(|&state| ("state", state));
    let updated = [("param", owing.param)].into_iter().chain(states).chain([("settled", owing.settled)]);
    let request = Append {
        inputs,
        updated: updated.collect(),
        attributes,
        role: Role::Settle,
        caller: caller.to_owned(),
        ..Append::forward("settle")
    };
    program.append(registry, BlockId(0), request).map(drop)
}

/// Returns the variables whose numbers select the rows that the forward operators read of a parameter, as the operators declare
/// ([`Op::rows_read`](crate::operator::Op::rows_read)); `None` if an operator may read any row.
///
/// # Errors
/// If an operator is not registered.
pub(crate) fn row_selections(
    program: &Program,
    registry: &Registry,
    param: VarId,
) -> Result<Option<Vec<VarId>>> {
    let mut rows = Vec::new();
    for op in program.root().ops.iter().filter(|op| op.role == Role::Forward) {
        rows_read(program, registry, op, param, &mut rows)?;
    }
    let ids = |rows| if let Rows::Of(ids) = rows { Some(ids) } else { None };
    Ok(rows.into_iter().map(ids).collect())
}

/// Finds the rows of `param` that an operator reads, either itself or in its step block, and adds these rows to
/// `to`.
fn rows_read(
    program: &Program,
    registry: &Registry,
    op: &OpDesc,
    param: VarId,
    to: &mut Vec<Rows>,
) -> Result<()> {
    if !op.reads().any(|var| var == param) {
        return Ok(());
    }
    let mut add = |rows: Rows| {
        if !to.contains(&rows) {
            to.push(rows);
        }
    };
    if let (RECURRENT, Some(step)) = (op.kind.as_str(), op.step.as_deref()) {
        let mut inner = Vec::new();
        for op in program.block(step.block).ops.iter().filter(|op| op.role == Role::Forward) {
            rows_read(program, registry, op, param, &mut inner)?;
        }
        inner.into_iter().for_each(|rows| add(outside(program, step, rows)));
        return Ok(());
    }
    let parsed = registry.parse(&op.kind, &op.attributes)?;
    let signature = parsed.signature();
    for (number, slot) in signature.inputs.iter().enumerate() {
        if op.input(slot.name).contains(&param) {
            let ids = parsed.rows_read(number).and_then(|ids| op.input(signature.inputs[ids].name).first());
            add(ids.map_or(Rows::All, |&ids| Rows::Of(ids)));
        }
    }
    Ok(())
}

/// Replaces an ids variable of a step block by the variable outside of the block from which the ids come. Returns all
/// rows if the ids are neither a step input nor a static input.
fn outside(program: &Program, step: &StepDesc, rows: Rows) -> Rows {
    let Rows::Of(ids) = rows else { return Rows::All };
    if program.var(ids).block != step.block {
        return rows;
    }
    let passed = step.inputs.iter().chain(&step.statics).find(|pair| pair.inner == ids);
    passed.map_or(Rows::All, |pair| Rows::Of(pair.outer))
}
