//! Fallback to dense: if an operator has no kernel for a variable's storage, the builder appends an operator `to_dense`. The
//! operator then reads the dense copy of the variable.

use std::panic::Location;

use super::builder::Builder;
use super::state::State;
use super::warning::{Fallback, Warning};
use crate::error::{Error, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Extent, VarId};
use crate::operator::size::Size;
use crate::program::description::language::TO_DENSE;
use crate::program::description::storages::Conversion;

impl Builder {
    /// Sets what the builder does if an operator has no kernel for a variable's storage (default: [`Fallback::Warn`]). Later
    /// calls use the new setting.
    ///
    /// ```
    /// use unpadded::{Builder, DType, Fallback};
    /// let net = Builder::new().fallback(Fallback::Deny);
    /// let bags = net.feed_csr("bags", DType::F32, 1000, 0);
    /// bags.softmax();
    /// let error = net.finish().unwrap_err().to_string();
    /// assert!(error.contains("variable `bags`: storage of input `x`: expected dense, got csr"), "{error}");
    /// ```
    #[must_use]
    pub fn fallback(self, policy: Fallback) -> Self {
        self.state.borrow_mut().fallback = policy;
        self
    }

    /// Returns one warning per operator `to_dense` that the builder appended under [`Fallback::Warn`], in the order of the calls.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let bags = net.feed_csr("bags", DType::F32, 1000, 0);
    /// bags.tanh().softmax(); // tanh stays csr, softmax has no zeros
    /// let warning = net.warnings()[0].to_string();
    /// let expected = "variable `sparse_tanh` is csr, for which `x` of softmax #2 has no kernel: made dense, 4000 × batch bytes";
    /// assert!(warning.starts_with(expected), "{warning}");
    /// ```
    pub fn warnings(&self) -> Vec<Warning> {
        self.state.borrow().warnings.clone()
    }
}

impl State {
    /// Appends an operator after appending a `to_dense` for each variable in `due`. If the operator itself is refused, removes
    /// the appended `to_dense` operators.
    pub(super) fn append_to_dense(
        &mut self,
        block: BlockId,
        kind: &str,
        attributes: &Attributes,
        inputs: Vec<(&str, Vec<VarId>)>,
        due: Vec<Conversion>,
        caller: &'static Location<'static>,
    ) -> Result<Vec<VarId>> {
        let before = (self.program.mark(), self.open.clone(), self.dense.clone(), self.warnings.len());
        let mut dense = inputs.clone();
        let converted = self.densify(block, kind, due, &mut dense, caller);
        let appended = converted.and_then(|()| self.append_as_stored(block, kind, attributes, dense, caller));
        appended.map_err(|error| {
            self.program.rewind(&before.0);
            (self.open, self.dense) = (before.1, before.2);
            self.warnings.truncate(before.3);
            // An error about the operator must name the user's variables, not the dense copies of the variables.
            let mistake = self.program.mistake(&self.registry, block, kind, attributes, &inputs);
            let place = self.program.next_place(block, kind, caller.to_string());
            mistake.unwrap_or(error).of_operator(&place).at(place)
        })
    }

    /// Replaces each variable in `due` by a dense copy, and records the warnings.
    fn densify(
        &mut self,
        block: BlockId,
        kind: &str,
        due: Vec<Conversion>,
        inputs: &mut [(&str, Vec<VarId>)],
        caller: &'static Location<'static>,
    ) -> Result<()> {
        let mut made = Vec::new();
        for Conversion { slot, var } in due {
            // A constant is made dense once, in the constant's own block, instead of in each step.
            let home = if self.program.spec(var)?.batched() { block } else { self.program.var(var).block };
            let dense = match self.dense.get(&(home, var)) {
                Some(&dense) => dense,
                None => {
                    let attributes = Attributes::new().with(TO_DENSE.attributes[0], format!("{kind}.{slot}"));
                    let inputs = vec![(TO_DENSE.inputs[0], vec![var])];
                    let dense = self.append_known(home, TO_DENSE.kind, &attributes, inputs, caller)?;
                    let dense = *dense.first().ok_or_else(|| Error::new("dense variable", "one", "none"))?;
                    self.dense.insert((home, var), dense);
                    made.push((slot, var, dense));
                    dense
                }
            };
            for (_, vars) in inputs.iter_mut().filter(|(given, _)| *given == slot) {
                vars.iter_mut().filter(|given| **given == var).for_each(|given| *given = dense);
            }
        }
        let number = self.program.block(block).ops.len();
        for (slot, var, dense) in made.into_iter().filter(|_| self.fallback == Fallback::Warn) {
            // A warning names a variable outside of all step blocks: a view in a step block is replaced by the view's outer
            // variable.
            let (var, dense) = (self.outermost(var), self.outermost(dense));
            self.warnings.push(Warning {
                operator: format!("{kind} #{number}"),
                slot,
                variable: self.program.var(var).name.clone(),
                storage: self.program.spec(var)?.storage,
                dense: Size::of(self.program.spec(dense)?, Extent::Known(0)),
                caller,
            });
        }
        Ok(())
    }

    /// Follows a view in nested step blocks to the outermost outer variable; returns `var` if `var` is no view.
    fn outermost(&self, var: VarId) -> VarId {
        self.open.iter().rev().fold(var, |seen, step| {
            let mut pairs = step.desc.inputs.iter().chain(&step.desc.statics);
            pairs.find(|pair| pair.inner == seen).map_or(seen, |pair| pair.outer)
        })
    }
}
