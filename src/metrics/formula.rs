//! A scalar loss over several batches: the sums and means over rows are accumulated batch by batch, and the rest of the loss is
//! computed once from the accumulated values.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::operator::{Op, Operand, Registry, Total, VarId};
use crate::program::{LossTerms, OpDesc, Program, Role, TotalVar, Var, VarKind};
use crate::tensor::{DType, Dense, Variable};

/// A scalar loss as a function of arguments that are sums and means over rows.
pub(super) struct Formula {
    loss: VarId,
    leaves: Vec<Leaf>,
    steps: Vec<Step>,
    literals: HashMap<VarId, VarKind>,
}

/// An argument of a loss function. The numbers of the argument are summed over the batches; a mean also needs the count by
/// which the sum is divided.
struct Leaf {
    var: VarId,
    /// The variable that is fetched after each batch to compute the argument.
    fetched: Var,
    dtype: DType,
    shape: Vec<usize>,
    /// The index of the first sum of this argument. An argument has one sum per number, then a count. The last of all sums is
    /// the number of batches.
    at: usize,
    counts: Counts,
}

#[derive(Clone, Copy)]
enum Counts {
    /// The argument is a sum, not a mean: no count divides the sum.
    Nothing,
    /// The argument is a mean: the sum is divided by the count of all numbers in the rows.
    Numbers,
    /// The argument does not depend on rows, such as a penalty on weights: its sum is divided by the number of batches.
    Batches,
}

struct Step {
    op: Arc<dyn Op>,
    desc: OpDesc,
}

impl Leaf {
    fn len(&self) -> usize {
        self.shape.iter().product()
    }
}

impl Formula {
    /// Derives the loss function and its arguments from the operators that compute `loss`.
    ///
    /// # Errors
    /// If the loss is not one number, or is not computed from sums and means over rows.
    pub(super) fn of(
        program: &Program,
        registry: &Registry,
        loss: VarId,
        var: impl Fn(VarId) -> Var,
    ) -> Result<Self> {
        let spec = program.spec(loss)?;
        if spec.shape.iter().any(|extent| extent.known() != Some(1)) {
            let error = Error::new("loss", "one number, or one per row", spec.to_string());
            return Err(error.variable(&program.var(loss).name));
        }
        let terms = LossTerms::of(program, registry, loss)?;
        let (mut leaves, mut at) = (Vec::new(), 0);
        let mut leaf = |id: VarId, fetched: VarId, counts| {
            let spec = program.spec(id)?;
            let shape: Vec<usize> = spec.shape.iter().filter_map(|extent| extent.known()).collect();
            let leaf = Leaf { var: id, fetched: var(fetched), dtype: spec.dtype, shape, at, counts };
            at += leaf.len() + 1;
            leaves.push(leaf);
            Ok::<(), Error>(())
        };
        for &TotalVar { var, of: counted, kind } in &terms.totals {
            match kind {
                Total::Sum => leaf(var, var, Counts::Nothing)?,
                Total::Mean => leaf(var, counted, Counts::Numbers)?,
            }
        }
        terms.givens.iter().try_for_each(|&given| match program.var(given).spec() {
            Some(_) => leaf(given, given, Counts::Batches),
            None => Ok(()),
        })?;
        let head = program.root().ops.iter().filter(|op| op.role == Role::Forward);
        let head = head.filter(|op| op.writes().any(|var| terms.is_of_head(var)));
        let steps =
            head.map(|op| Ok(Step { op: registry.parse(&op.kind, &op.attributes)?, desc: op.clone() }));
        let steps = steps.collect::<Result<_>>()?;
        let literals = program.vars().filter(|(_, var)| var.spec().is_none());
        let literals = literals.map(|(id, var)| (id, var.kind.clone())).collect();
        Ok(Self { loss, leaves, steps, literals })
    }

    /// If the loss is the mean of a variable over rows, returns this variable; else returns `None`.
    pub(super) fn mean_of(&self) -> Option<Var> {
        match &self.leaves[..] {
            [Leaf { var, fetched, counts: Counts::Numbers, .. }] if *var == self.loss => Some(*fetched),
            _ => None,
        }
    }

    pub(super) fn variables(&self) -> impl Iterator<Item = Var> {
        self.leaves.iter().map(|leaf| leaf.fetched)
    }

    /// Returns the number of sums of all arguments.
    pub(super) fn sums(&self) -> usize {
        self.leaves.iter().map(|leaf| leaf.len() + 1).sum::<usize>() + 1
    }

    /// Adds the values that were fetched after a batch to the sums.
    ///
    /// # Errors
    /// If the values do not have the shapes of the arguments.
    pub(super) fn update(&self, sums: &mut [f64], values: &[Variable]) -> Result<()> {
        let mut added = sums.to_vec();
        for (leaf, value) in self.leaves.iter().zip(values) {
            let numbers = value.storage().numbers().cast(DType::F64);
            let numbers = numbers.as_slice::<f64>()?;
            let sums = &mut added[leaf.at..leaf.at + leaf.len() + 1];
            let (count, sums) = sums.split_last_mut().ok_or_else(|| wrong("a count", "none"))?;
            match leaf.counts {
                Counts::Numbers => {
                    sums.iter_mut().for_each(|sum| *sum += numbers.iter().sum::<f64>());
                    *count += value.shape().iter().product::<usize>() as f64;
                }
                Counts::Nothing | Counts::Batches if numbers.len() == sums.len() => {
                    sums.iter_mut().zip(numbers).for_each(|(sum, x)| *sum += x);
                    *count += 1.0;
                }
                Counts::Nothing | Counts::Batches => {
                    return Err(wrong(&format!("{} numbers", sums.len()), &numbers.len().to_string()));
                }
            }
        }
        if let Some(batches) = added.last_mut() {
            *batches += 1.0;
        }
        sums.copy_from_slice(&added);
        Ok(())
    }

    /// Returns the loss over all batches as if the batches were one batch, even if no batch has a row; `None` before the
    /// first batch.
    ///
    /// # Errors
    /// If an operator of the loss function fails.
    pub(super) fn value(&self, sums: &[f64]) -> Result<Option<f64>> {
        if sums.last().is_none_or(|&batches| batches == 0.0) {
            return Ok(None);
        }
        let mut values: HashMap<VarId, Variable> = HashMap::new();
        for leaf in &self.leaves {
            let (numbers, count) = (&sums[leaf.at..leaf.at + leaf.len()], sums[leaf.at + leaf.len()]);
            let by = match leaf.counts {
                Counts::Numbers | Counts::Batches => count.max(1.0),
                Counts::Nothing => 1.0,
            };
            if leaf.var == self.loss {
                return Ok(numbers.first().map(|sum| sum / by));
            }
            let numbers = numbers.iter().map(|sum| sum / by).collect();
            let value = Dense::from_vec::<f64>(&leaf.shape, numbers)?.cast(leaf.dtype);
            values.insert(leaf.var, Variable::new(value, None)?);
        }
        for Step { op, desc } in &self.steps {
            let operands =
                desc.inputs.iter().flat_map(|bound| bound.vars.iter().map(|var| (&bound.slot, var)));
            let operands = operands.map(|(slot, var)| match (values.get(var), self.literals.get(var)) {
                (Some(value), _) => Ok(Operand::fixed(slot, value.clone())),
                (None, Some(VarKind::Literal(literal))) => Ok(Operand::literal(slot, literal.clone())),
                _ => Err(wrong("a value of every input", slot)),
            });
            let made = Arc::clone(op).call(&operands.collect::<Result<Vec<_>>>()?)?;
            values.extend(desc.writes().zip(made));
        }
        let loss = values.get(&self.loss).ok_or_else(|| wrong("a value of the loss", "none"))?;
        Ok(loss.storage().numbers().cast(DType::F64).as_slice::<f64>()?.first().copied())
    }
}

fn wrong(expected: &str, got: &str) -> Error {
    Error::new("values of a loss", expected, got)
}

impl fmt::Debug for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Formula").field("loss", &self.loss).finish_non_exhaustive()
    }
}
