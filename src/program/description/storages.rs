//! Selects an operator's kernel by the storages of the inputs, and finds the inputs that must be made dense first.

use super::program::{Program, malformed};
use super::var_desc::VarDesc;
use crate::error::{Error, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Spec, VarId};
use crate::operator::infer::infer;
use crate::operator::op::Op;
use crate::operator::registry::Registry;
use crate::operator::shapes::{InputSlots, Phase};
use crate::operator::signature::{NoKernel, Signature, Slot};
use crate::tensor::StorageKind;

/// An input that must be made dense, because no kernel of the operator takes its storage.
pub(in crate::program) struct Conversion {
    pub(in crate::program) slot: &'static str,
    /// The variable that must be made dense.
    pub(in crate::program) var: VarId,
}

impl Program {
    /// Returns the storages of the tensors in each input slot. A row-sparse parameter counts as dense in a slot that takes
    /// row-sparse parameters.
    fn storages(&self, signature: Signature, groups: &[Vec<VarId>]) -> Vec<Vec<StorageKind>> {
        let storages = |(slot, vars): (&Slot, &Vec<VarId>)| {
            let descs = vars.iter().filter_map(|&v| self.vars.get(v.0 as usize));
            let stored = |desc: &VarDesc| match slot.table && desc.is_row_sparse() {
                true => Some(StorageKind::Dense),
                false => desc.spec().map(|spec| spec.storage),
            };
            descs.filter_map(stored).collect()
        };
        signature.inputs.iter().zip(groups).map(storages).collect()
    }

    /// Returns the variables of each input slot, in the order of the slots.
    fn by_slot(signature: Signature, inputs: &[(&str, Vec<VarId>)]) -> Vec<Vec<VarId>> {
        let storages_of = |slot: &Slot| {
            let given = inputs.iter().filter(|(name, _)| *name == slot.name);
            given.flat_map(|(_, vars)| vars.iter().copied()).collect()
        };
        signature.inputs.iter().map(storages_of).collect()
    }

    /// Returns the kind of operator that has a kernel for the storages of the inputs: `kind` itself, or a kind that declares
    /// kernels for `kind`.
    pub(in crate::program) fn kind_for(
        &self,
        registry: &Registry,
        kind: &str,
        attributes: &Attributes,
        inputs: &[(&str, Vec<VarId>)],
    ) -> Option<&'static str> {
        let fits = |signature: Signature| {
            let groups = Self::by_slot(signature, inputs);
            signature.kernel(&self.storages(signature, &groups)).is_ok()
        };
        let declared = registry.declaration(kind)?;
        if fits(declared.signature) {
            return Some(declared.kind);
        }
        // A kind that refuses the attributes has no kernel for this call.
        let takes = |other: &&str| registry.parse(other, attributes).is_ok_and(|op| fits(op.signature()));
        registry.standing_for(kind).find(takes)
    }

    /// Returns the fewest inputs that must be made dense so that the operator has a kernel. The list is empty if the operator
    /// already has a kernel, or if no conversion helps.
    pub(in crate::program) fn conversions(
        &self,
        registry: &Registry,
        kind: &str,
        attributes: &Attributes,
        inputs: &[(&str, Vec<VarId>)],
    ) -> Vec<Conversion> {
        let sparse = |&var: &VarId| {
            let spec = self.vars.get(var.0 as usize).and_then(|desc| desc.spec());
            spec.is_some_and(|spec| spec.storage != StorageKind::Dense)
        };
        if !inputs.iter().flat_map(|(_, vars)| vars).any(sparse) {
            return Vec::new();
        }
        let others = registry.standing_for(kind).filter(|other| registry.parse(other, attributes).is_ok());
        let operator_of = |kind: &str| {
            let signature = registry.declaration(kind)?.signature;
            let groups = Self::by_slot(signature, inputs);
            let found = signature.conversions(&self.storages(signature, &groups))?;
            let conversion = |(slot, number): (usize, usize)| {
                Some(Conversion { slot: signature.inputs[slot].name, var: *groups[slot].get(number)? })
            };
            // A row-sparse parameter is never made dense, since its height may be huge; the operator is refused instead.
            let dense = |conversion: &Conversion| !self.var(conversion.var).is_row_sparse();
            Some(found.into_iter().filter_map(conversion).filter(dense).collect::<Vec<_>>())
        };
        let own = operator_of(kind);
        own.into_iter().chain(others.filter_map(operator_of)).min_by_key(Vec::len).unwrap_or_default()
    }

    /// Returns the error of the operator's shape rule for these inputs; `None` if the shape rule accepts the inputs. Does not
    /// check that a kernel exists.
    pub(in crate::program) fn mistake(
        &self,
        registry: &Registry,
        block: BlockId,
        kind: &str,
        attributes: &Attributes,
        inputs: &[(&str, Vec<VarId>)],
    ) -> Option<Error> {
        let op = registry.parse(kind, attributes).ok()?;
        self.inferred(&*op, block, inputs)?.err()
    }

    /// Runs an operator's shape rule on inputs that were not checked; returns `None` if a slot has too many or too few variables.
    fn inferred(
        &self,
        op: &dyn Op,
        block: BlockId,
        inputs: &[(&str, Vec<VarId>)],
    ) -> Option<Result<Vec<Vec<Spec>>>> {
        let signature = op.signature();
        let groups = Self::by_slot(signature, inputs);
        let taken = |(slot, vars): (&Slot, &Vec<VarId>)| slot.arity.takes(vars.len());
        if !signature.inputs.iter().zip(&groups).all(taken) {
            return None;
        }
        let specs = self.specs(&groups).ok()?;
        let (literals, mut next) = (self.literals(&groups), self.levels);
        let given = InputSlots { specs: &specs, literals: &literals };
        Some(infer(op, given, self.top(block), Phase::Build { next: &mut next }))
    }

    /// Returns whether an operator has a batched output in a storage that is not dense.
    pub(in crate::program) fn makes_sparse_rows(
        &self,
        registry: &Registry,
        block: BlockId,
        kind: &str,
        attributes: &Attributes,
        inputs: &[(&str, Vec<VarId>)],
    ) -> bool {
        // An operator that lists no kernels has only dense outputs.
        let knows = registry.declaration(kind).is_some_and(|declared| !declared.signature.kernels.is_empty());
        let Ok(op) = (if knows { registry.parse(kind, attributes) } else { return false }) else {
            return false;
        };
        let sparse = |spec: &Spec| spec.batched() && spec.storage != StorageKind::Dense;
        let made = self.inferred(&*op, block, inputs);
        made.and_then(Result::ok).is_some_and(|made| made.iter().flatten().any(sparse))
    }

    /// Checks that no operand in a step block has sparse rows; operators on sparse rows run before the loop.
    pub(in crate::program) fn check_dense_rows(&self, groups: &[Vec<VarId>]) -> Result<()> {
        let sparse = |spec: &Spec| spec.batched() && spec.storage != StorageKind::Dense;
        let found = groups.iter().flatten().find(|&&var| self.var(var).spec().is_some_and(sparse));
        let Some(&var) = found else { return Ok(()) };
        let got = self.spec(var)?.to_string();
        Err(malformed("operand in a step block", "dense rows", got).variable(&self.var(var).name))
    }

    pub(in crate::program) fn check_storages(
        &self,
        signature: Signature,
        groups: &[Vec<VarId>],
    ) -> Result<()> {
        for (slot, vars) in
            signature.inputs.iter().zip(groups).filter(|(slot, _)| !slot.table && !slot.any_storage)
        {
            if let Some(desc) = vars.iter().map(|&var| self.var(var)).find(|desc| desc.is_row_sparse()) {
                let what = format!("input `{}`", slot.name);
                let expected =
                    "no row-sparse parameter: this operator would need all rows, also untouched ones";
                let got = desc.spec().map_or_else(String::new, Spec::to_string);
                return Err(malformed(what, expected, got).variable(&desc.name));
            }
        }
        let Err(NoKernel { slot, number, expected }) = signature.kernel(&self.storages(signature, groups))
        else {
            return Ok(());
        };
        let var = groups[slot][number];
        let kinds: Vec<String> = expected.iter().map(ToString::to_string).collect();
        let what = format!("storage of input `{}`", signature.inputs[slot].name);
        let got = self.spec(var)?.storage.to_string();
        let error = Error::new(what, kinds.join(" or "), got).variable(&self.var(var).name);
        Err(match expected[..] {
            [StorageKind::Dense] => error.noted("call `to_dense` on the variable first".to_owned()),
            _ => error,
        })
    }
}
