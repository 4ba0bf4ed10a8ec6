//! Computes the loss and the gradients of a batch that comes in parts; they equal the loss and the gradients of the whole
//! batch. Batches come in parts if several batches make one training step, or if several workers compute one batch.
//! [`LossTerms`] describes the method.

use std::collections::HashSet;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Executor, Run, Scope, Threads};
use crate::metrics::checked_weight;
use crate::operator::{Extent, ReadSlots, Registry, Total, VarId};
use crate::program::{LossTerms, Program, Role, TotalVar, VarRole, grad_name};
use crate::tensor::{Dense, Storage, Variable};
use crate::with_float;

/// The loss of a batch that comes in parts, computed by two programs: the body and the head. The *totals* are sums and means
/// over rows; the body computes them for each part. The head computes the loss from the totals, summed over all parts.
pub(crate) struct BatchLoss {
    terms: LossTerms,
    /// The program that computes one part; its feeds include the gradients of the totals.
    pub(crate) body: Program,
    head: Executor,
    /// For each total, the variable of its gradient, which the head computes and the body takes as a feed. `None` for a total
    /// without a gradient.
    seeds: Vec<Option<VarId>>,
    /// The variables with the gradients of the parameters that the head reads; the head computes these gradients.
    gradients: Vec<VarId>,
    /// The index of the only total that has a gradient; `None` if no total has a gradient, or several totals have one. If only
    /// one total has a gradient, the parts can be computed with gradient 1 and multiplied by the real gradient afterwards.
    late: Option<usize>,
    /// Whether the gradients of the totals depend on the values of the totals, and not only on the numbers of rows.
    by_value: bool,
}

/// For each total, two sums over the parts seen so far. For a mean over rows: Σ x and Σ n (n = number of rows). For a sum over
/// rows: Σ x and the number of parts.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Totals(Vec<[f64; 2]>);

/// The results that need the totals of all parts.
pub(crate) struct Whole {
    pub(crate) loss: f64,
    /// The gradient of the loss with respect to each total; 0 for a total without a gradient.
    seeds: Vec<f64>,
    /// The gradients that the head computes for the parameters that it reads, each with the variable of the gradient.
    pub(crate) gradients: Vec<(VarId, Storage)>,
}

impl BatchLoss {
    /// Divides a differentiated program into a body and a head, as `terms` describes, and compiles the head.
    ///
    /// # Errors
    /// Fails if an operator is not registered.
    pub(crate) fn new(
        program: &Program,
        registry: &Registry,
        terms: LossTerms,
        threads: Threads,
    ) -> Result<Self> {
        let (body, head) = (terms.body(program), terms.head(program));
        let with_gradient: Vec<usize> =
            (0..).zip(&head.seeds).filter_map(|(i, seed)| seed.map(|_| i)).collect();
        let late = if let [one] = with_gradient[..] { Some(one) } else { None };
        let by_value = reads_totals(&head.program, registry, &terms, &head.seeds)?;
        let mut wanted: Vec<VarId> = head.seeds.iter().flatten().chain(&head.gradients).copied().collect();
        // If the loss is itself a total, it is a feed of the head and cannot be fetched.
        wanted.extend((!terms.is_total()).then_some(terms.loss));
        let executor = Executor::on(head.program, registry, &wanted, threads)?;
        Ok(Self { terms, body, head: executor, seeds: head.seeds, gradients: head.gradients, late, by_value })
    }

    /// Returns the operators whose rows depend on all rows of a part, each with its kind and the user's line. A program with
    /// such an operator gives other results for parts than for the whole batch.
    pub(crate) fn whole_batch(&self) -> &[(String, String)] {
        &self.terms.whole
    }

    /// Returns the variables that must be fetched from the body for [`Self::read`].
    pub(crate) fn wanted(&self) -> impl Iterator<Item = VarId> {
        let counts =
            self.terms.totals.iter().map(|total| total.of).filter(|&counted| !self.counts_rows(counted));
        self.terms.totals.iter().map(|total| total.var).chain(counts)
    }

    /// Returns whether the count of a mean is the number of rows of the variable `counted`. If not, the count is the value of `counted`.
    fn counts_rows(&self, counted: VarId) -> bool {
        self.body.spec(counted).is_ok_and(|spec| spec.batched())
    }

    /// Returns the totals of an empty batch, in which all sums are 0.
    pub(crate) fn zero(&self) -> Totals {
        Totals(vec![[0.0; 2]; self.terms.totals.len()])
    }

    /// Returns the totals of one part, after the body (or its forward half) has run on the part.
    ///
    /// # Errors
    /// Fails if a total is not finite.
    pub(crate) fn read(&self, body: &mut Executor) -> Result<Totals> {
        let read = |total: &TotalVar| {
            let value = body.scalar(total.var)?;
            let rows = match self.counts_rows(total.of) {
                true => body.rows(total.of)? as f64,
                false => checked_weight(body.scalar(total.of)?)
                    .map_err(|e| e.variable(&body.program().var(total.of).name))?,
            };
            let sums = match total.kind {
                Total::Sum => [value, 1.0],
                Total::Mean if rows == 0.0 => [0.0, 0.0],
                Total::Mean => [value * rows, rows],
            };
            match value.is_finite() || rows == 0.0 {
                true => Ok(sums),
                false => Err(not_finite(body.program(), total.var)),
            }
        };
        self.terms.totals.iter().map(read).collect::<Result<_>>().map(Totals)
    }

    /// Returns whether the gradients of one part can be computed before the totals of the other parts are known.
    pub(crate) fn is_late(&self) -> bool {
        self.late.is_some()
    }

    /// Returns the totals of one part from its numbers of rows alone, with 0 for each Σ x. `None` if the gradients depend on
    /// the values of the totals, or no feed has the rows that a total counts.
    pub(crate) fn counted<'a>(&self, value: impl Fn(VarId) -> Option<&'a Variable>) -> Option<Totals> {
        if self.by_value {
            return None;
        }
        // Returns the value of the first feed for whose extent of rows `such` is true.
        let fed = |such: &dyn Fn(Extent) -> bool| {
            let feeds = self.body.vars().filter(|(_, var)| var.role == VarRole::Feed);
            let mut feeds = feeds.filter(|(_, var)| var.spec().is_some_and(|spec| such(spec.rows())));
            feeds.find_map(|(feed, _)| value(feed))
        };
        let count = |total: &TotalVar| {
            let rows = match self.body.spec(total.of).ok()?.rows() {
                Extent::Batch => fed(&|rows| matches!(rows, Extent::Batch | Extent::Rows(_)))?.batch_size(),
                Extent::Rows(level) => fed(&|rows| rows == Extent::Rows(level))?.rows(),
                _ => return None,
            };
            Some([0.0, if total.kind == Total::Mean { rows as f64 } else { 1.0 }])
        };
        self.terms.totals.iter().map(count).collect::<Option<_>>().map(Totals)
    }

    /// Returns the values for the body's gradient feeds, for one part. If `whole` is `None`, all values are 1, and the
    /// gradients are multiplied by the factor [after the parts](Self::is_late).
    ///
    /// # Errors
    /// Fails if the body lacks the feed of a gradient.
    pub(crate) fn seeds(
        &self,
        whole: Option<(&Whole, &Totals)>,
        part: &Totals,
    ) -> Result<Vec<(VarId, Variable)>> {
        let seeds = self.seeds.iter().enumerate().filter_map(|(i, seed)| Some((i, (*seed)?)));
        seeds
            .map(|(i, seed)| {
                let factor = whole.map_or(1.0, |(whole, all)| {
                    whole.seeds[i] * share(self.terms.totals[i].kind, part.0[i], all.0[i])
                });
                Ok((seed, scalar(&self.body, seed, factor)?))
            })
            .collect()
    }

    /// Returns the weight of a part's gradient in the sum over parts: the number of rows for a mean, else 1. The sum is
    /// later multiplied by [`Self::factor`].
    pub(crate) fn weight(&self, part: &Totals) -> f64 {
        match self.late {
            Some(i) if self.terms.totals[i].kind == Total::Mean => part.0[i][1],
            _ => 1.0,
        }
    }

    /// Returns the factor that turns the weighted sum of the parts' gradients into the gradient of the whole batch.
    pub(crate) fn factor(&self, whole: &Whole, all: &Totals) -> f64 {
        match self.late {
            None => 1.0,
            Some(i) if self.terms.totals[i].kind == Total::Mean && all.0[i][1] > 0.0 => {
                whole.seeds[i] / all.0[i][1]
            }
            Some(i) => whole.seeds[i],
        }
    }

    /// Returns whether the weighted mean of the parts' gradients is the gradient of the whole batch, whatever values the totals
    /// have.
    pub(crate) fn is_mean(&self) -> bool {
        self.terms.is_total() && self.terms.totals.iter().all(|total| total.kind == Total::Mean)
    }

    /// Computes the loss and the gradients of the totals from the totals of all parts; `scope` has the parameters, and random
    /// operators draw for step `step`.
    ///
    /// # Errors
    /// Fails if the loss is not finite.
    pub(crate) fn whole(&mut self, scope: &mut Scope, all: &Totals, step: u64) -> Result<Whole> {
        let whole = self.of_counted(scope, all, step)?;
        match whole.loss.is_finite() {
            true => Ok(whole),
            false => Err(not_finite(&self.body, self.terms.loss)),
        }
    }

    /// Computes the results as [`Self::whole`] does, from [counted](Self::counted) totals; the gradients are valid, but the
    /// loss is not.
    ///
    /// # Errors
    /// Fails if the run of the head fails.
    pub(crate) fn of_counted(&mut self, scope: &mut Scope, all: &Totals, step: u64) -> Result<Whole> {
        let values: Vec<f64> =
            self.terms.totals.iter().zip(&all.0).map(|(t, &sums)| value(t.kind, sums)).collect();
        let fed = self.terms.totals.iter().zip(&values);
        let fed: Vec<(VarId, Variable)> =
            fed.map(|(t, &value)| Ok((t.var, scalar(&self.body, t.var, value)?))).collect::<Result<_>>()?;
        let feeds: Vec<(VarId, &Variable)> = fed.iter().map(|(id, value)| (*id, value)).collect();
        self.head.run(scope, &Run::train(&feeds, step))?;
        let loss = match self.terms.is_total() {
            true => values.first().copied().unwrap_or_default(),
            false => self.head.scalar(self.terms.loss)?,
        };
        let seeds = self.seeds.iter().map(|seed| seed.map_or(Ok(0.0), |seed| self.head.scalar(seed)));
        let seeds = seeds.collect::<Result<_>>()?;
        let mut gradients = Vec::with_capacity(self.gradients.len());
        for &gradient in &self.gradients {
            gradients.push((gradient, self.head.fetch(gradient)?.into_parts().0));
        }
        Ok(Whole { loss, seeds, gradients })
    }
}

impl Totals {
    /// Returns all sums of the totals as one list, so that a store can add them over processes.
    pub(crate) fn numbers(&self) -> impl Iterator<Item = f64> {
        self.0.iter().flatten().copied()
    }

    /// Returns all sums of the totals, for a message to fill.
    pub(crate) fn numbers_mut(&mut self) -> &mut [f64] {
        self.0.as_flattened_mut()
    }

    /// Returns the totals whose sums are `numbers`: two sums per total.
    pub(crate) fn of_numbers(numbers: &[f64]) -> Self {
        Self(numbers.as_chunks().0.to_vec())
    }

    /// Adds the sums of another part to these totals.
    pub(crate) fn add(&mut self, part: &Self) {
        let sums = self.0.iter_mut().flatten().zip(part.0.iter().flatten());
        sums.for_each(|(sum, x)| *sum += x);
    }
}

fn value(kind: Total, [sum, count]: [f64; 2]) -> f64 {
    match kind {
        Total::Sum => sum,
        Total::Mean if count > 0.0 => sum / count,
        Total::Mean => 0.0,
    }
}

/// Returns a part's share of a total: its share of the rows for a mean, and 1 for a sum.
fn share(kind: Total, [_, part]: [f64; 2], [_, all]: [f64; 2]) -> f64 {
    match kind {
        Total::Sum => 1.0,
        Total::Mean if all > 0.0 => part / all,
        Total::Mean => 0.0,
    }
}

/// Returns a value for a variable without rows: an array in the variable's shape that is filled with a number.
fn scalar(program: &Program, var: VarId, value: f64) -> Result<Variable> {
    let spec = program.spec(var)?;
    let shape: Vec<usize> = spec.shape.iter().map(|extent| extent.known().unwrap_or(1)).collect();
    with_float!(spec.dtype, T => {
        let value = <T as crate::kernels::Float>::from_f64(value);
        Variable::new(Dense::from_vec(&shape, vec![value; shape.iter().product()])?, None)
    })
}

/// Returns whether the gradients of the totals depend on the values of the totals.
fn reads_totals(
    head: &Program,
    registry: &Registry,
    terms: &LossTerms,
    seeds: &[Option<VarId>],
) -> Result<bool> {
    let mut needed: HashSet<VarId> = seeds.iter().flatten().copied().collect();
    for op in head.root().ops.iter().rev() {
        let computed: Vec<VarId> = op.writes().filter(|var| needed.contains(var)).collect();
        if computed.is_empty() {
            continue;
        }
        if op.role != Role::Backward {
            // The gradient of the loss starts as 1 in the shape of the loss, and needs no value of the loss.
            let first = computed.iter().any(|&var| head.var(var).gradient_of.is_some());
            needed.extend(op.reads().filter(|_| !first));
            continue;
        }
        let instance = registry.parse(&op.kind, &op.attributes)?;
        let signature = instance.signature();
        let specs = head.input_specs(signature, op)?;
        let wanted =
            signature.inputs.iter().enumerate().filter(|(_, slot)| {
                op.output(&grad_name(slot.name)).iter().any(|var| computed.contains(var))
            });
        let reads = wanted.map(|(i, _)| instance.gradient(i, &specs).reads);
        let reads = reads.fold(ReadSlots::nothing(), ReadSlots::union);
        let inputs = signature.inputs.iter().enumerate().filter(|(i, _)| reads.has_input(*i));
        let outputs = signature.outputs.iter().enumerate().filter(|(i, _)| reads.has_output(*i));
        let values = inputs.chain(outputs).flat_map(|(_, slot)| op.input(slot.name));
        let gradients = signature.outputs.iter().flat_map(|slot| op.input(&grad_name(slot.name)));
        needed.extend(values.chain(gradients));
    }
    Ok(terms.totals.iter().any(|total| needed.contains(&total.var)))
}

fn not_finite(program: &Program, var: VarId) -> Error {
    let got = "NaN or infinity; nothing was updated";
    Error::of(ErrorKind::NotFinite, "loss", "finite numbers", got).variable(&program.var(var).name)
}
