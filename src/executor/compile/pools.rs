//! Assigns pool numbers to values that are not dense; values whose lifetimes do not overlap share a number.

use super::slots::Slots;
use crate::executor::plan::{Instr, OpInstr};
use crate::operator::context::OperandPosition;
use crate::tensor::StorageKind;

/// Returns the pool numbers of all values that a call uses.
pub(crate) fn pooled(op: &OpInstr) -> impl Iterator<Item = usize> {
    let wiring = &op.wiring;
    let values = [&wiring.inputs, &wiring.outputs, &wiring.output_gradients, &wiring.results];
    let gradients = wiring.input_gradients.iter().flatten().map(|(position, _)| position);
    values.into_iter().flatten().flatten().chain(gradients).filter_map(|position| match position {
        OperandPosition::Pooled(at) => Some(*at),
        _ => None,
    })
}

/// Lets values of one storage share a pool number if their lifetimes do not overlap. Also updates the pool numbers in
/// the instructions `code`. Returns the pool number of each slot (`None` for a dense slot), and the storage of each
/// pool number.
pub(crate) fn assign(
    made: &Slots,
    lives: &[(usize, usize)],
    code: &mut [Instr],
) -> (Vec<Option<usize>>, Vec<StorageKind>) {
    let Slots { slots, pools: kinds, .. } = made;
    let mut order: Vec<usize> = (0..slots.len()).filter(|&slot| slots[slot].pool.is_some()).collect();
    order.sort_by_key(|&slot| lives[slot]);
    // For each pool number: the storage, and the last moment at which a value uses the number.
    let mut places: Vec<(StorageKind, usize)> = Vec::new();
    let mut index_in_pool: Vec<usize> = vec![0; kinds.len()];
    for slot in order {
        let (Some(own), (first, last)) = (slots[slot].pool, lives[slot]) else { continue };
        let kind = kinds[own];
        // A value that the scope keeps has its pool number for the whole run, so no other value shares the number.
        let (first, last) = if slots[slot].persistent { (0, usize::MAX) } else { (first, last) };
        let free = |(known, until): &(StorageKind, usize)| *known == kind && *until < first;
        let position = places.iter().position(free).unwrap_or_else(|| {
            places.push((kind, 0));
            places.len() - 1
        });
        places[position].1 = last;
        index_in_pool[own] = position;
    }
    code.iter_mut().for_each(|instr| renumber(instr, &index_in_pool));
    let of_slot = slots.iter().map(|slot| slot.pool.map(|own| index_in_pool[own])).collect();
    (of_slot, places.into_iter().map(|(kind, _)| kind).collect())
}

fn renumber(instr: &mut Instr, numbers: &[usize]) {
    match instr {
        Instr::Op(op) | Instr::Levels(op) => {
            let wiring = &mut op.wiring;
            let values =
                [&mut wiring.inputs, &mut wiring.outputs, &mut wiring.output_gradients, &mut wiring.results];
            let gradients = wiring.input_gradients.iter_mut().flatten().map(|(position, _)| position);
            for position in values.into_iter().flatten().flatten().chain(gradients) {
                if let OperandPosition::Pooled(at) = position {
                    *at = numbers[*at];
                }
            }
        }
        Instr::Loop(inner) => {
            let code = inner.before.iter_mut().chain(&mut inner.body).chain(&mut inner.after);
            code.for_each(|instr| renumber(instr, numbers));
        }
        Instr::Zero(..) | Instr::Reorder { .. } => {}
    }
}
