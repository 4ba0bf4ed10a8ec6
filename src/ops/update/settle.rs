//! `settle`: applies the missed updates of rows of a parameter, before the rows are read.

use std::sync::Arc;

use ndarray::{Array2, array};

use super::block::Rule;
use super::engine;
use super::rule::{HISTORY_SHAPE, history_fits};
use crate::error::{Error, ErrorKind, Result};
use crate::operator;
use crate::operator::attributes::Attribute;
use crate::operator::{
    Arity, Attributes, CallMemory, CallSizes, CheckCase, DENSE_OR_CSR, Declaration, Facts, Forward,
    InferShape, Literal, LodEffect, Op, Operators, Spec,
};
use crate::ops::lookup::ids::Ids;
use crate::tensor::{DType, Variable};

operator! {
    /// Applies the missed updates of rows of a parameter, before an operator reads the rows. In the mode `exact`, an
    /// update rule skips rows without a gradient. If the dense rule would move a skipped row, the row misses the
    /// update.
    ///
    /// `ids` holds the indices of the rows that will be read: whole numbers, or the columns of a sparse matrix's entries. Without
    /// `ids`, the missed updates of all rows are applied. Each call also settles one of every 8192 rows, in turn, so that no row
    /// misses many updates. `rule` is the kind of the update rule; `settle` calls [`Op::settle`](crate::operator::Op::settle) of
    /// this rule. `settings` are the attributes of the rule; `shape` and `dtype` are the shape and dtype of the parameter.
    /// `settled`, f64 `[height]`, has the number of updates that have been applied to each row. A settled row has the numbers
    /// that the dense rule gives, up to rounding.
    ///
    /// If an id is not a row of the parameter, no row is settled; the operator that reads the rows reports the id.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Literal, Operand};
    /// let pair = |name: &str, value: Literal| Literal::List(vec![name.into(), value]);
    /// let settings = vec![pair("mode", "exact".into()), pair("weight_decay", 1.0.into())];
    /// let sgd = Attributes::new().with("rule", "sgd").with("settings", settings);
    /// // There were two updates, at rates of 0.5 and 0.25. Row 0 has made neither of them, row 1 only the first.
    /// let mut history = Array2::<f64>::zeros([16385, 2]);
    /// (history[[0, 0]], history[[1, 0]], history[[2, 0]]) = (2.0, 0.5, 0.25);
    /// let out = ops::catalogue().parse("settle", &sgd.with("dtype", "f64").with("shape", vec![2usize, 1]))?.call(&[
    ///     Operand::constant("history", history),
    ///     Operand::constant("param", array![[8.0], [8.0]]),
    ///     Operand::constant("settled", array![0.0, 1.0]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [8.0 * 0.5 * 0.75, 8.0 * 0.75]);
    /// assert_eq!(out[1].as_slice::<f64>()?, [2.0, 2.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct Settle = settle {
        rule: RuleKind,
        settings: Settings,
        dtype: DType,
        shape: Vec<usize>,
    }
    inputs { IDS = ids: optional.without_gradient(), HISTORY = history: one.without_gradient() }
    kernels { [DENSE_OR_CSR] }
    outputs { PARAM = param: one.updated(), STATE = state: any.updated(), SETTLED = settled: one.updated() }
}

/// The kind of an update rule, such as `adam`, with the operator that a registry has made for the kind.
pub(in crate::ops) struct RuleKind {
    kind: String,
    /// The operator of the update rule with its settings; `None` until a registry has resolved the kind.
    found: Option<Arc<dyn Op>>,
}

impl RuleKind {
    fn new(kind: &str) -> Self {
        Self { kind: kind.to_owned(), found: None }
    }

    fn found(&self) -> Result<&dyn Op> {
        let unknown =
            || Error::of(ErrorKind::Program, "attribute `rule`", "a rule from a registry", &*self.kind);
        self.found.as_deref().ok_or_else(unknown)
    }
}

impl Attribute for RuleKind {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        attributes.text(name).map(Self::new)
    }

    fn write(&self, attributes: &mut Attributes, name: &str) {
        attributes.set(name, &*self.kind);
    }
}

/// The attributes of the update rule, stored as one attribute of `settle`: a list of pairs of a name and a value.
pub(in crate::ops) struct Settings(Attributes);

impl Attribute for Settings {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        let wrong = || {
            let expected = "a list of pairs of a name and a value";
            Error::of(ErrorKind::Program, format!("attribute `{name}`"), expected, "another value")
        };
        let Some(Literal::List(pairs)) = attributes.get(name) else { return Err(wrong()) };
        let mut settings = Attributes::new();
        for pair in pairs {
            match pair {
                Literal::List(pair) => match &pair[..] {
                    [Literal::Text(name), value] => settings.set(name, value.clone()),
                    _ => return Err(wrong()),
                },
                _ => return Err(wrong()),
            }
        }
        Ok(Self(settings))
    }

    fn write(&self, attributes: &mut Attributes, name: &str) {
        let pairs = self.0.iter().map(|(name, value)| Literal::List(vec![name.into(), value.clone()]));
        attributes.set(name, Literal::List(pairs.collect()));
    }
}

/// Returns the attributes of a `settle` operator for an update rule.
pub(crate) fn settle_attributes(
    rule: &str,
    settings: &Attributes,
    dtype: DType,
    shape: &[usize],
) -> Attributes {
    let (rule, settings, shape) = (RuleKind::new(rule), Settings(settings.clone()), shape.to_vec());
    Settle { rule, settings, dtype, shape }.attributes()
}

/// Returns whether an operator is an update rule that can apply missed updates later; such a rule has the output
/// `settled`.
fn waits(declaration: &Declaration) -> bool {
    declaration.signature.outputs.iter().any(|slot| slot.name == "settled" && slot.arity == Arity::Optional)
}

/// Runs the operator `settle` with the arithmetic of `rule`.
pub(in crate::ops) fn settle(run: &mut Forward<'_>, rule: &dyn Rule) -> Result<()> {
    let ids = (run.count(Settle::IDS) > 0).then_some(read_ids as engine::ReadIds);
    engine::settle(run, rule, Settle::HISTORY, ids)
}

/// Appends the row numbers in the input `ids` to `to`.
fn read_ids(run: &Forward<'_>, to: &mut Vec<i64>) -> Result<()> {
    if let Some(csr) = run.csr(Settle::IDS) {
        to.extend_from_slice(csr.indices());
        return Ok(());
    }
    let ids = Ids::of(run, Settle::IDS)?;
    to.extend((0..ids.len()).map(|row| ids.get(row)));
    Ok(())
}

impl Op for Settle {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn resolve(&mut self, operators: &dyn Operators) -> Result<()> {
        let kind = &*self.rule.kind;
        let waiting = operators.declarations().into_iter().filter(|operator| waits(operator));
        let waiting: Vec<&str> = waiting.map(|operator| operator.kind).collect();
        if !waiting.contains(&kind) {
            let expected = format!("an update rule whose moves can wait: {}", waiting.join(", "));
            return Err(Error::of(ErrorKind::Program, "attribute `rule`", expected, kind));
        }
        self.rule.found = Some(operators.operator(kind, &self.settings.0)?);
        Ok(())
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let slots = self.rule.found()?.signature().outputs;
        let states =
            slots.iter().filter(|slot| slot.updated && slot.arity == Arity::One).count().saturating_sub(1);
        history_fits(s, Self::HISTORY)?;
        let height = match self.shape.first() {
            Some(&height) if matches!(self.dtype, DType::F32 | DType::F64) => height,
            _ => {
                let got = format!("{}{:?}", self.dtype, self.shape);
                return Err(Error::of(ErrorKind::Program, "parameter to settle", "rows of f32 or f64", got));
            }
        };
        let spec = Spec::fixed(self.dtype, &self.shape)?;
        s.set(Self::PARAM, spec.clone());
        s.set_many(Self::STATE, vec![spec; states]);
        s.set(Self::SETTLED, Spec::fixed(DType::F64, &[height])?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        self.rule.found()?.settle(run)
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (rows, width) = sizes.input(Self::IDS);
        // A sparse matrix names as many rows as it has entries; a dense value has no stored entries.
        let ids = match sizes.stored(Self::IDS) {
            0 => rows.saturating_mul(width),
            entries => entries,
        };
        let height = self.shape.first().copied().unwrap_or(0);
        engine::settle_memory((sizes.count(Self::IDS) > 0).then_some(ids), height)
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let settings = Attributes::new().with("mode", "exact").with("weight_decay", 0.0);
        let settings = settings.with("momentum", 0.5).with("nesterov", false);
        let attributes = settle_attributes("sgd", &settings, DType::F64, &[3, 2]);
        let mut history = Array2::<f64>::zeros(HISTORY_SHAPE);
        history.row_mut(0)[0] = 2.0;
        for update in 0..2 {
            history.row_mut(1 + update).assign(&array![0.25, 1.0 + update as f64]);
        }
        let all = CheckCase::new("all rows", attributes)
            .without_gradient()
            .fixed("history", history)
            .fixed("param", array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
            .fixed("state", array![[1.0, -1.0], [0.0, 0.0], [2.0, 2.0]])
            .fixed("settled", array![0.0, 0.0, 2.0]);
        let some = |name: &str, ids: &[Vec<i64>]| -> Result<CheckCase> {
            let some = CheckCase { name: name.to_owned(), ..all.clone() };
            Ok(some.batch("ids", Variable::from_sequences(ids)?))
        };
        Ok(vec![
            all.clone(),
            some("some rows, and one that is none", &[vec![2, 2], vec![], vec![7]])?,
            some("no row", &[])?,
        ])
    }
}
