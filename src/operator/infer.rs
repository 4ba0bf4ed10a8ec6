//! Runs the shape rule of an operator, and checks the output shapes against the operator's declarations.

use super::facts::{LodEffect, Reach};
use super::levels::made_levels;
use super::op::Op;
use super::shapes::{InferShape, InputSlots, Phase};
use super::signature::Arity;
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
    op.infer_shape(&mut shapes)?;
    finish(shapes, op)
}

fn finish(shapes: InferShape<'_>, op: &dyn Op) -> Result<Vec<Vec<Spec>>> {
    if matches!(shapes.phase, Phase::Build { .. }) {
        declared(&shapes, op)?;
    }
    for (slot, specs) in shapes.signature.outputs.iter().zip(&shapes.outputs) {
        if slot.arity == Arity::One && specs.len() != 1 {
            return Err(Error::new(format!("output `{}`", slot.name), "a shape from infer_shape", "none"));
        }
    }
    Ok(shapes.outputs)
}

/// Checks that an operator makes LoD levels from data if its facts declare `LodEffect::FromData`, and only then.
fn declared(shapes: &InferShape<'_>, op: &dyn Op) -> Result<()> {
    let facts = op.facts();
    let wrong = |expected: &str, got: &str| {
        Err(Error::of(ErrorKind::Program, "levels that an operator makes from data", expected, got))
    };
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
