//! Assigns stores to the calls that pack constants, such as weights. Constants that change from run to run are packed in every
//! run, just before the instruction of the root block that uses them. Calls of different instructions therefore share a store
//! if they pack matrices of equal shapes.

use std::collections::{HashMap, HashSet};

use super::slots::SlotDesc;
use crate::executor::plan::{Access, Instr, OpInstr, Ref};
use crate::operator::Extent;

/// Numbers the stores of the calls that pack constants. Returns the number of stores.
pub(crate) fn assign(code: &mut [Instr], slots: &[SlotDesc]) -> usize {
    let written: HashSet<usize> = code.iter().flat_map(written).collect();
    let changes = |read: &Ref| match read.access {
        Access::Slot(slot) => !slots[slot].persistent || written.contains(&slot),
        Access::Previous { .. } | Access::Passed { .. } => true,
    };
    let mut stores = 0;
    let mut new = || {
        stores += 1;
        stores - 1
    };
    // The stores that calls of one kind share if they pack matrices of equal shapes.
    let mut shared: HashMap<_, Vec<usize>> = HashMap::new();
    for instr in code {
        let mut calls = Vec::new();
        collect(instr, &mut calls);
        let mut taken: HashMap<_, usize> = HashMap::new();
        for call in calls {
            let constants = || call.constants.iter().cloned().flatten().map(|read| &call.reads[read]);
            if !constants().any(changes) {
                call.prepared = Some(new());
                continue;
            }
            let dtype = |read: &Ref| match read.access {
                Access::Slot(slot) => Some(slots[slot].dtype),
                _ => None,
            };
            // The backward call of a product packs the matrix without the bias.
            let matrices = constants().filter(|read| read.rows != Extent::Known(1));
            let shapes: Vec<_> = matrices.map(|read| (dtype(read), read.rows, read.width)).collect();
            let equal = (call.named.0.clone(), shapes);
            let taken = taken.entry(equal.clone()).or_default();
            let known = shared.entry(equal).or_default();
            if *taken == known.len() {
                known.push(new());
            }
            call.prepared = Some(known[*taken]);
            *taken += 1;
        }
    }
    stores
}

/// Returns the slots that an instruction of the root block writes.
fn written(instr: &Instr) -> impl Iterator<Item = usize> {
    let writes = if let Instr::Op(op) = instr { &op.writes[..] } else { &[] };
    writes.iter().filter_map(|view| if let Access::Slot(slot) = view.access { Some(slot) } else { None })
}

/// Collects the calls in an instruction that pack constants.
fn collect<'a>(instr: &'a mut Instr, calls: &mut Vec<&'a mut OpInstr>) {
    match instr {
        Instr::Op(op) | Instr::Levels(op) => calls.extend(op.prepared.is_some().then_some(&mut **op)),
        Instr::Loop(inner) => {
            let code = inner.before.iter_mut().chain(&mut inner.body).chain(&mut inner.after);
            code.for_each(|instr| collect(instr, calls));
        }
        Instr::Zero(..) | Instr::Reorder { .. } => {}
    }
}
