//! Runs the shape rule of an operator, and checks the output shapes against the operator's declarations.

use super::facts::{LodEffect, Reach, StorageBound};
use super::levels::made_levels;
use super::op::Op;
use super::shapes::{InferShape, InputSlots, Phase};
use super::signature::Arity;
use super::slots::missing_slot;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::extent::{Extent, Spec};

/// Runs an operator's shape rule; returns the specs of the outputs by slot, checked against the operator's declarations.
pub(crate) fn infer(
    op: &dyn Op,
    inputs: InputSlots<'_>,
    top: Extent,
    phase: Phase<'_>,
) -> Result<Vec<Vec<Spec>>> {
    let mut shapes = InferShape::new(op.signature(), inputs, top, phase);
    let outcome = op.infer_shape(&mut shapes);
    match shapes.missing.take() {
        Some(slot) => Err(missing_slot(shapes.signature, slot)),
        None => outcome.and_then(|()| finish(shapes, op)),
    }
}

fn finish(shapes: InferShape<'_>, op: &dyn Op) -> Result<Vec<Vec<Spec>>> {
    if matches!(shapes.phase, Phase::Build { .. }) {
        declared(&shapes, op)?;
        shapes.outputs.iter().flatten().try_for_each(Spec::check_layout)?;
    }
    for (slot, specs) in shapes.signature.outputs.iter().zip(&shapes.outputs) {
        if slot.arity == Arity::One && specs.len() != 1 {
            return Err(Error::new(format!("output `{}`", slot.name), "a shape from infer_shape", "none"));
        }
    }
    Ok(shapes.outputs)
}

/// Iterates over the input slots that an operator names in its declarations.
fn declared_slots(shapes: &InferShape<'_>, op: &dyn Op) -> impl Iterator<Item = usize> {
    let (inputs, outputs) = (0..shapes.inputs.len(), 0..shapes.outputs.len());
    let bounds =
        outputs.map(|slot| op.stored(slot)).chain(inputs.clone().map(|slot| op.stored_gradient(slot)));
    let of_bounds = bounds.flat_map(|bound| {
        let (one, several) = match bound {
            StorageBound::Everything => (None, &[][..]),
            StorageBound::PerRow(slot, _) => (Some(slot), &[][..]),
            StorageBound::Together(slots) | StorageBound::Least(slots) => (None, slots),
        };
        one.into_iter().chain(several.iter().copied())
    });
    let of_lod = match op.facts().lod {
        // Slot 0 is the default, also of an operator without inputs.
        LodEffect::Keeps(slot @ 1..) | LodEffect::DropsLevel(slot) => Some(slot),
        _ => None,
    };
    of_bounds.chain(of_lod).chain(inputs.filter_map(|slot| op.rows_read(slot)))
}

/// Checks that an operator makes LoD levels from data if its facts declare `LodEffect::FromData`, and only then.
fn declared(shapes: &InferShape<'_>, op: &dyn Op) -> Result<()> {
    let facts = op.facts();
    let wrong = |expected: &str, got: &str| {
        Err(Error::of(ErrorKind::Program, "levels that an operator makes from data", expected, got))
    };
    if let Some(slot) = declared_slots(shapes, op).find(|&slot| slot >= shapes.inputs.len()) {
        return Err(missing_slot(shapes.signature, slot));
    }
    let LodEffect::FromData(slots) = facts.lod else {
        return match shapes.from_data.is_empty() {
            true => Ok(()),
            false => wrong("`LodEffect::FromData` among its facts", &format!("`LodEffect::{:?}`", facts.lod)),
        };
    };
    if facts.reach == Reach::Row {
        return wrong("a sequence-wise or batch-wide operator", "a row-wise operator");
    }
    if slots.iter().any(|&slot| slot >= shapes.inputs.len()) {
        let got = format!("slots {slots:?} of {}", shapes.inputs.len());
        return wrong("input slots of the operator", &got);
    }
    if shapes.from_data.is_empty() || shapes.made != shapes.from_data.len() {
        return wrong("all levels to be made by `level_from_data`", "other levels, or none");
    }
    if made_levels(shapes.inputs, &shapes.outputs) != shapes.from_data {
        return wrong("each level in an output, below the level that it was made for", "other levels");
    }
    Ok(())
}
