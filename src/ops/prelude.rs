//! The names that most files of operators use.

pub(in crate::ops) use std::ops::Range;
pub(in crate::ops) use std::sync::Arc;

pub(in crate::ops) use ndarray::{Array1, Array2, array};

pub(in crate::ops) use crate::error::{Error, ErrorKind, Result};
pub(in crate::ops) use crate::kernels::arena::Plain;
pub(in crate::ops) use crate::kernels::{Arithmetic, Assign, Float, Sweep, View, ViewMut, sweep};
pub(in crate::ops) use crate::lod::Lod;
pub(in crate::ops) use crate::operator::context::Scratch;
pub(in crate::ops) use crate::operator::sample::{numbers, sparse_numbers};
pub(in crate::ops) use crate::operator::{
    Arity, Attributes, Backward, CSR, CallInputs, CallMemory, CallSizes, CheckCase, Cost, DENSE, Declaration,
    DeclaredOp, Extent, Facts, Forward, Gradient, Hints, InferShape, LodEffect, NewLevels, Op, Operand, Pass,
    Pieces, Prepare, ROWS, RowValue, RunFacts, Sequences, Signature, Slot, Spec, StorageBound, Work,
};
pub(in crate::ops) use crate::program::Var;
pub(in crate::ops) use crate::tensor::{DType, Dense, Element, Number, StorageKind, Variable, with_element};
pub(in crate::ops) use crate::{builder_methods, operator, with_float};
