//! `settle`: rows make the moves that they owe, before they are read.

use ndarray::{Array2, array};

use super::adadelta::Adadelta;
use super::adagrad::Adagrad;
use super::adam::Adam;
use super::adamax::Adamax;
use super::amsgrad::AmsGrad;
use super::engine;
use super::lion::Lion;
use super::nadam::NAdam;
use super::owed::{Deferred, Falling};
use super::rmsprop::{RmsProp, RmsPropCentred, RmsPropCentredMomentum, RmsPropMomentum};
use super::rule::{HISTORY_SHAPE, history_fits};
use super::sgd::{Momentum, Sgd};
use crate::error::{Error, ErrorKind, Result};
use crate::operator;
use crate::ops::lookup::ids::ids;
use crate::program::attributes::Attribute;
use crate::program::{
    Attributes, DENSE_OR_CSR, Declared, Facts, Forward, InferShape, Literal, LodEffect, Op, RowValue, Sample,
    Spec,
};
use crate::tensor::{DType, Variable};
use crate::with_float;

operator! {
    /// The moves that rows of a parameter owe, since an update rule in exact mode moves them without a gradient too: made
    /// before the rows are read.
    ///
    /// `ids` say which rows are read: whole numbers, or a sparse matrix, whose columns they are; without it all rows are
    /// settled. Beside them come the rows whose turn it is, one in 8192 at each update, so that none owes much. `rule` is the
    /// kind of the update rule, `settings` are its attributes; `shape` and `dtype` are the parameter's. `settled` is `[height]` in f64: up
    /// to which update each row is settled. After it the row has the numbers that the dense rule would have left, up to rounding.
    ///
    /// Where an id is no row of the table nothing is settled: the operator that reads the rows then names it.
    ///
    /// ```
    /// use ndarray::{Array2, array};
    /// use unpadded::ops;
    /// use unpadded::program::{Attributes, Literal, Operand};
    /// let pair = |name: &str, value: Literal| Literal::List(vec![name.into(), value]);
    /// let settings = vec![pair("mode", "exact".into()), pair("weight_decay", 1.0.into())];
    /// let sgd = Attributes::new().with("rule", "sgd").with("settings", settings);
    /// // Two updates, at rates of 0.5 and 0.25, of which row 0 has made none and row 1 one.
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
        rule: String,
        settings: Settings,
        dtype: DType,
        shape: Vec<usize>,
    }
    inputs { IDS = ids: optional.without_gradient(), HISTORY = history: one.without_gradient() }
    kernels { [DENSE_OR_CSR] }
    outputs { PARAM = param: one.updated(), STATE = state: any.updated(), SETTLED = settled: one.updated() }
}

/// Attributes as an attribute: pairs of a name and a value.
pub(in crate::ops) struct Settings(Attributes);

impl Attribute for Settings {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        let wrong = || {
            let expected = "a list of pairs of a name and a value";
            Error::of(ErrorKind::Program, format!("attribute `{name}`"), expected, "something else")
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

/// The attributes of an operator that settles what an update rule leaves.
pub(crate) fn settle_attributes(
    rule: &str,
    settings: &Attributes,
    dtype: DType,
    shape: &[usize],
) -> Attributes {
    let (rule, settings, shape) = (rule.to_owned(), Settings(settings.clone()), shape.to_vec());
    Settle { rule, settings, dtype, shape }.attributes()
}

/// The rules whose moves can wait, each with how many variables it updates: those whose states only fall, and the others.
macro_rules! rules {
    (falling { $($falling:ident $falling_fields:literal,)+ } moving { $($moving:ident $moving_fields:literal,)+ }) => {
        impl Settle {
            /// How many variables of state the rule has.
            fn states(&self) -> Result<usize> {
                let kind = self.rule.as_str();
                $(if kind == $falling::declaration().kind {
                    return $falling::parse(&self.settings.0).map(|_| $falling_fields - 1);
                })+
                $(if kind == $moving::declaration().kind {
                    return $moving::parse(&self.settings.0).map(|_| $moving_fields - 1);
                })+
                let falling = [$($falling::declaration().kind),+].join(", ");
                let moving = [$($moving::declaration().kind),+].join(", ");
                let expected = format!("an update rule whose moves can wait: {falling}, {moving}");
                Err(Error::of(ErrorKind::Program, "attribute `rule`", expected, kind))
            }

            fn settle<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
                let (kind, settings) = (self.rule.as_str(), &self.settings.0);
                $(if kind == $falling::declaration().kind {
                    let rule = $falling::parse(settings)?;
                    return with_rule::<T, $falling_fields, _>(run, &Falling(rule));
                })+
                $(if kind == $moving::declaration().kind {
                    return with_rule::<T, $moving_fields, _>(run, &$moving::parse(settings)?);
                })+
                self.states().map(drop)
            }
        }
    };
}

rules! {
    falling {
        Adadelta 3,
        Adagrad 2,
        Adamax 3,
        AmsGrad 4,
        RmsProp 2,
        RmsPropCentred 3,
        RmsPropCentredMomentum 4,
        RmsPropMomentum 3,
        Sgd 1,
    }
    moving {
        Adam 3,
        Lion 2,
        Momentum 2,
        NAdam 3,
    }
}

fn with_rule<T: RowValue, const FIELDS: usize, R: Deferred<T, FIELDS>>(
    run: &mut Forward<'_>,
    rule: &R,
) -> Result<()> {
    let ids = (run.count(Settle::IDS) > 0).then_some(read_ids);
    engine::settle(run, rule, Settle::HISTORY, ids)
}

/// The rows that are read.
fn read_ids(run: &Forward<'_>, to: &mut Vec<i64>) -> Result<()> {
    if let Some(csr) = run.csr(Settle::IDS) {
        to.extend_from_slice(csr.indices());
        return Ok(());
    }
    let ids = ids!(run, Settle::IDS);
    to.extend((0..ids.len()).map(|row| ids.get(row)));
    Ok(())
}

impl Op for Settle {
    fn facts(&self) -> Facts {
        Facts::batch_wide(LodEffect::Drops)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let states = self.states()?;
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
        with_float!(self.dtype, T => self.settle::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        let settings = Attributes::new().with("mode", "exact").with("weight_decay", 0.0);
        let settings = settings.with("momentum", 0.5).with("nesterov", false);
        let attributes = settle_attributes("momentum", &settings, DType::F64, &[3, 2]);
        let mut history = Array2::<f64>::zeros(HISTORY_SHAPE);
        history.row_mut(0)[0] = 2.0;
        for update in 0..2 {
            history.row_mut(1 + update).assign(&array![0.25, 1.0 + update as f64]);
        }
        let all = Sample::new("all rows", attributes)
            .without_gradient()
            .fixed("history", history)
            .fixed("param", array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
            .fixed("state", array![[1.0, -1.0], [0.0, 0.0], [2.0, 2.0]])
            .fixed("settled", array![0.0, 0.0, 2.0]);
        let some = |name: &str, ids: &[Vec<i64>]| -> Result<Sample> {
            let some = Sample { name: name.to_owned(), ..all.clone() };
            Ok(some.batch("ids", Variable::from_sequences(ids)?))
        };
        Ok(vec![
            all.clone(),
            some("some rows, and one that is none", &[vec![2, 2], vec![], vec![7]])?,
            some("no row", &[])?,
        ])
    }
}
