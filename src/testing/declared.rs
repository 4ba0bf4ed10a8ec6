//! What an operator declares, in one place.

use std::ops::Range;

use crate::error::Result;
use crate::program::{Fusion, Merge, Needs, Op, Pieces, Registry, Sample, Spec};
use crate::tensor::StorageKind;

/// What it declares of the gradient of an input slot.
pub(super) struct Gradient {
    pub(super) storage: StorageKind,
    pub(super) reads: Needs,
    pub(super) passes: bool,
    pub(super) overwrites: bool,
}

pub(super) fn gradient(op: &dyn Op, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
    Gradient {
        storage: op.gradient_storage(wrt),
        reads: op.needs(wrt),
        passes: op.passes_gradient(wrt, inputs),
        overwrites: op.overwrites(wrt),
    }
}

/// What else the compiler may use.
pub(super) struct Hints {
    pub(super) sums: bool,
    pub(super) accumulates: bool,
    pub(super) columns: Option<Vec<Range<usize>>>,
    pub(super) merges: Option<Merge>,
    pub(super) prepares: bool,
    pub(super) apart: bool,
    pub(super) joins: bool,
    pub(super) pieces: Option<Pieces>,
    pub(super) pieces_from_end: Option<Pieces>,
}

pub(super) fn hints(op: &dyn Op, inputs: &[Vec<Spec>]) -> Hints {
    let facts = op.facts();
    Hints {
        sums: op.sums(inputs),
        accumulates: op.accumulates(),
        columns: op.columns(),
        merges: op.merges(),
        prepares: facts.prepares,
        apart: facts.apart,
        joins: facts.joins,
        pieces: op.pieces(false),
        pieces_from_end: op.pieces(true),
    }
}

pub(super) fn samples(registry: &Registry, kind: &str) -> Result<Vec<Sample>> {
    Ok(registry.samples(kind))
}

pub(super) fn fusions(op: &dyn Op) -> &'static [Fusion] {
    op.fusions()
}
