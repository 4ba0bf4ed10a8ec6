//! Programs with weights of 8-bit integers, for prediction.

use std::collections::HashMap;

use crate::error::Result;
use crate::kernels::{MAX_CODE_ROWS, Transpose};
use crate::operator::attributes::{Attribute, Attributes};
use crate::operator::extent::{BlockId, Extent, Spec, VarId};
use crate::program::description::initialize::ZEROS;
use crate::program::description::language::RECURRENT;
use crate::program::description::op_desc::{OpDesc, SlotVars};
use crate::program::description::program::Program;
use crate::program::description::var_desc::{Initializer, VarDesc, VarKind, VarRole};
use crate::tensor::{DType, StorageKind};

/// The minimum number of rows and of columns of a coded parameter: with fewer, the scales take a large part of the bytes, and
/// the product takes little time.
const LEAST: usize = 16;

/// An operator that reads a parameter, and the operator that reads the parameter's codes.
struct Coding {
    kind: &'static str,
    slot: &'static str,
    coded: &'static str,
}

const CODINGS: [Coding; 2] = [
    Coding { kind: "linear", slot: "weight", coded: "int8_linear" },
    Coding { kind: "embedding", slot: "weight", coded: "int8_embedding" },
];

/// A parameter that a program reads as codes and scales.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CodedParameter {
    /// The name of the parameter, and of its codes.
    pub(crate) name: String,
    pub(crate) scale: String,
    /// The dimension that has one scale per index: 0 for rows, 1 for columns.
    pub(crate) axis: usize,
}

impl Program {
    /// Returns a copy of the program that reads codes of 8 bits, and scales in f32, in place of the parameters of `linear` and
    /// `embedding`; also returns these parameters. A parameter keeps its dtype if it has fewer than 16 rows or columns, is not
    /// dense or not f32, is one of `kept`, or if another operator reads it.
    pub(crate) fn with_codes(&self, kept: &[VarId]) -> Result<(Self, Vec<CodedParameter>)> {
        let mut axes: HashMap<VarId, Option<usize>> = kept.iter().map(|&id| (id, None)).collect();
        for op in self.ops() {
            for (slot, var) in
                op.inputs.iter().flat_map(|bound| bound.vars.iter().map(move |&var| (bound, var)))
            {
                if op.kind == RECURRENT && slot.slot == "constant" {
                    continue;
                }
                let axis = self.coded_axis(op, slot, var);
                let known = axes.entry(var).or_insert(axis);
                if *known != axis {
                    *known = None;
                }
            }
        }
        let mut coded = self.clone();
        let mut scales: HashMap<VarId, VarId> = HashMap::new();
        let mut parameters = Vec::new();
        for parameter in self.parameters() {
            let Some(axis) = axes.get(&parameter).copied().flatten() else { continue };
            let desc = self.var(parameter);
            let Some(spec) = desc.spec() else { continue };
            let zeros = || Some(Initializer::new(ZEROS, Attributes::new()));
            let of_scales = Spec {
                dtype: DType::F32,
                shape: spec.shape[axis..][..1].iter().copied().collect(),
                ..spec.clone()
            };
            let codes = coded.var_mut(parameter);
            codes.kind = VarKind::Tensor(Spec { dtype: DType::I8, ..spec.clone() });
            (codes.initializer, codes.trainable, codes.stop_gradient) = (zeros(), false, true);
            let name = coded.fresh_name(&format!("{}.scale", desc.name));
            let mut scale = VarDesc::new(&name, BlockId(0), VarKind::Tensor(of_scales), VarRole::Parameter);
            (scale.persistable, scale.stop_gradient, scale.initializer) = (true, true, zeros());
            scales.insert(parameter, coded.add_var(scale)?);
            parameters.push(CodedParameter { name: desc.name.clone(), scale: name, axis });
        }
        for op in coded.blocks.iter_mut().flat_map(|block| &mut block.ops) {
            read_codes(op, &scales);
        }
        Ok((coded, parameters))
    }

    pub(crate) fn has_codes(&self) -> bool {
        let mut ops = self.ops();
        ops.any(|op| CODINGS.iter().any(|coding| coding.coded == op.kind))
    }

    /// Returns the dimension of a parameter that has the scales if an operator reads the parameter as codes; `None` if the
    /// operator cannot.
    fn coded_axis(&self, op: &OpDesc, slot: &SlotVars, var: VarId) -> Option<usize> {
        CODINGS.iter().find(|coding| coding.kind == op.kind && coding.slot == slot.slot)?;
        let desc = self.var(var);
        let spec = desc.spec()?;
        let &[Extent::Known(rows), Extent::Known(columns)] = &spec.shape[..] else { return None };
        let dense = spec.dtype == DType::F32 && spec.storage == StorageKind::Dense;
        if desc.role != VarRole::Parameter || !dense || rows.min(columns) < LEAST || slot.vars.len() > 1 {
            return None;
        }
        if op.kind != "linear" {
            return Some(0);
        }
        let transposed = Transpose::read(&op.attributes, "transposed").ok()?;
        let (inputs, _) = transposed.shape((rows, columns));
        let of_rows = |x: &VarId| self.var(*x).spec().is_some_and(|spec| spec.shape.len() == 2);
        let fits = inputs <= MAX_CODE_ROWS && op.input("x").iter().all(of_rows);
        fits.then_some(transposed.shape((0, 1)).1)
    }
}

/// Makes an operator read codes and scales in place of the parameters in `scales`.
fn read_codes(op: &mut OpDesc, scales: &HashMap<VarId, VarId>) {
    if op.kind == RECURRENT {
        for slot in op.inputs.iter_mut().filter(|slot| slot.slot == "constant") {
            let more: Vec<VarId> = slot.vars.iter().filter_map(|var| scales.get(var).copied()).collect();
            slot.vars.extend(more);
        }
        return;
    }
    let Some(coding) = CODINGS.iter().find(|coding| coding.kind == op.kind) else { return };
    let Some(at) = op.inputs.iter().position(|slot| slot.slot == coding.slot) else { return };
    let Some(&scale) = op.inputs[at].vars.first().and_then(|var| scales.get(var)) else { return };
    op.kind = coding.coded.to_owned();
    op.inputs[at].slot = "codes".to_owned();
    op.inputs.insert(at + 1, SlotVars { slot: "scale".to_owned(), vars: vec![scale] });
    // The attributes of a table's gradient have no meaning without gradients.
    if coding.kind == "embedding" {
        op.attributes = Attributes::new();
    }
}
