//! Normalization layers: layer norm, root mean square norm and batch norm, which scale rows or columns by their mean and
//! variance.

use crate::builder_methods;
use crate::error::Error;
use crate::layers::{Layer, init};
use crate::operator::Attributes;
use crate::program::{Builder, Initializer, Var};

/// Options of a normalization layer ([`Builder::norm`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Norm {
    kind: Kind,
    /// The momentum of a batch norm; `None` for the default, `MOMENTUM`.
    momentum: Option<f64>,
    epsilon: f64,
    gain: Option<Initializer>,
    bias: Option<Initializer>,
    name: Option<String>,
}

/// The default momentum of a batch norm, the weight of the batch in each step: running mean ← (1 − momentum) · running mean +
/// momentum · batch mean, and likewise for the variance.
const MOMENTUM: f64 = 0.1;

/// The kind of normalization: over the numbers of a row (layer norm, root mean square norm), or over the rows of the batch
/// (batch norm).
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Layer,
    Rms,
    Batch,
}

/// The variables of a [`Norm`]; each variable has the shape `[width]`.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct NormWeights {
    /// The gain, a factor for each column; `None` if the options omit the gain.
    pub gain: Option<Var>,
    /// The bias, a number that is added to each column; `None` if the options omit the bias.
    pub bias: Option<Var>,
    /// The running mean and variance, with which a batch norm normalizes at inference; `None` for other norms.
    pub running: Option<(Var, Var)>,
}

impl Norm {
    fn of(kind: Kind, bias: Option<Initializer>) -> Self {
        Self { kind, momentum: None, epsilon: 1e-5, gain: Some(init::constant(1.0)), bias, name: None }
    }

    /// Layer norm: normalizes each row by the mean and variance of the row ([`Builder::layer_norm`]). The gain starts at 1, the
    /// bias at 0.
    pub fn layer() -> Self {
        Self::of(Kind::Layer, Some(init::zeros()))
    }

    /// Root mean square norm: divides each row by the root mean square of the row ([`Builder::rms_norm`]). The gain starts at
    /// 1.
    pub fn rms() -> Self {
        Self::of(Kind::Rms, None)
    }

    /// Batch norm: normalizes each column by the mean and variance of the column over all rows of the batch. The gain starts at
    /// 1, the bias at 0.
    ///
    /// out_ij = (x_ij − m_j) / √(v_j + epsilon) · gain_j + bias_j. While training, m and v are the mean and the
    /// variance of a column over the rows of all sequences of the batch; there is no padding. In addition to its
    /// weights, a batch norm has the running `mean` and `variance`, which start at 0 and 1. At the end of each training
    /// step, after the check that all gradients are finite, running mean ← (1 − momentum) · running mean + momentum ·
    /// batch mean, and likewise for the variance (default momentum: 0.1). Inference and evaluation normalize by the
    /// running mean and variance, so that the result for a row does not depend on the rest of the batch. The batch
    /// variance that enters the running variance has the divisor n − 1 for n rows, as in PyTorch's `BatchNorm1d`.
    ///
    /// A batch without rows, or with one row, has no variance. Even while training, such a batch is normalized by the running
    /// mean and variance, and leaves both unchanged. If a training step has several batches (gradient accumulation), each
    /// batch is normalized separately, and only the last batch changes the running mean and variance.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::executor::{Executor, Run, Scope};
    /// use unpadded::layers::Norm;
    /// use unpadded::optimizer::{Optimizer, Sgd};
    /// use unpadded::{Builder, DType, Lod, Variable};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F64, &[1], 1);
    /// let y = x.norm(Norm::batch().momentum(0.5));
    /// let loss = y.square().mean();
    /// let (registry, mut program) = (net.registry(), net.finish()?);
    /// Sgd::new(0.0).minimize(&mut program, &registry, loss.id())?;
    ///
    /// let (mut executor, mut scope) = (Executor::new(&program, &registry, &[y.id()], 1)?, Scope::of(&program)?);
    /// let rows = Variable::sequences(array![[1.0], [3.0], [5.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// executor.run(&mut scope, &Run::train(&[(x.id(), &rows)], 0))?;
    /// assert_eq!(scope.value("norm_0.mean")?.as_dense()?.as_slice::<f64>()?, [1.5]); // halfway to 3
    /// assert_eq!(scope.value("norm_0.variance")?.as_dense()?.as_slice::<f64>()?, [2.5]); // halfway to 8 / 2
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub fn batch() -> Self {
        Self::of(Kind::Batch, Some(init::zeros()))
    }

    /// Sets the epsilon added to the variance, above 0 (default: 10⁻⁵).
    #[must_use]
    pub fn epsilon(self, epsilon: f64) -> Self {
        Self { epsilon, ..self }
    }

    /// Sets the momentum of a batch norm, from 0 to 1: the weight of the batch when a training step updates the running mean
    /// and variance. For other norms, a momentum is an error.
    #[must_use]
    pub fn momentum(self, momentum: f64) -> Self {
        Self { momentum: Some(momentum), ..self }
    }

    /// Omits the gain and the bias.
    #[must_use]
    pub fn plain(self) -> Self {
        Self { gain: None, bias: None, ..self }
    }

    /// Omits the bias.
    #[must_use]
    pub fn without_bias(self) -> Self {
        Self { bias: None, ..self }
    }

    /// Sets the initializer of the gain.
    #[must_use]
    pub fn gain_init(self, gain: Initializer) -> Self {
        Self { gain: Some(gain), ..self }
    }

    /// Sets the initializer of the bias. A root mean square norm has no bias.
    #[must_use]
    pub fn bias_init(self, bias: Initializer) -> Self {
        Self { bias: Some(bias), ..self }
    }

    /// Sets the first part of the variables' names (default: `norm_0` and so on).
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: Some(name.to_owned()), ..self }
    }
}

impl Layer for Norm {
    type Weights = NormWeights;

    fn kind(&self) -> &str {
        "norm"
    }

    fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    fn weights(&self, net: &Builder, x: Var) -> Option<NormWeights> {
        let spec = net.spec(x)?;
        if self.kind == Kind::Rms && self.bias.is_some() {
            net.refuse(Error::new("root mean square norm", "no bias", "a bias"));
            return None;
        }
        if let Some(momentum) = self.momentum
            && !(self.kind == Kind::Batch && (0.0..=1.0).contains(&momentum))
        {
            let expected = match self.kind {
                Kind::Batch => "a number from 0 to 1",
                _ => "none: only a batch norm has a running mean and variance",
            };
            net.refuse(Error::new("momentum of layer `norm`", expected, momentum.to_string()));
            return None;
        }
        let dims = [spec.width()];
        let learned = |name, start: &Option<Initializer>| {
            start.clone().map(|start| net.parameter(name, spec.dtype, &dims, start))
        };
        let (gain, bias) = (learned("gain", &self.gain), learned("bias", &self.bias));
        let kept = |name, start| net.kept(name, spec.dtype, &dims, init::constant(start));
        let running = (self.kind == Kind::Batch).then(|| (kept("mean", 0.0), kept("variance", 1.0)));
        Some(NormWeights { gain, bias, running })
    }

    fn run(&self, net: &Builder, x: Var, &NormWeights { gain, bias, running }: &NormWeights) -> Var {
        match (self.kind, running) {
            (Kind::Layer, _) => net.layer_norm(x, gain, bias, self.epsilon),
            (Kind::Rms, _) => net.rms_norm(x, gain, self.epsilon),
            (Kind::Batch, Some((mean, variance))) => {
                let attributes = Attributes::new().with("epsilon", self.epsilon);
                let inputs: [(&str, &[Var]); 5] = [
                    ("x", &[x]),
                    ("gain", gain.as_slice()),
                    ("bias", bias.as_slice()),
                    ("mean", &[mean]),
                    ("variance", &[variance]),
                ];
                let (out, batch_mean, batch_variance): (Var, Var, Var) =
                    net.append("batch_norm", &inputs, attributes);
                let momentum = Attributes::new().with("momentum", self.momentum.unwrap_or(MOMENTUM));
                for (batch, kept) in [(batch_mean, mean), (batch_variance, variance)] {
                    net.append_update("running_average", ("x", batch), ("average", kept), momentum.clone());
                }
                out
            }
            (Kind::Batch, None) => {
                let expected = "a mean and a variance, as a batch norm keeps them";
                net.refuse(Error::new("weights of layer `norm`", expected, "none"))
            }
        }
    }
}

builder_methods! { Norm, Builder, Var;
    /// Normalizes rows or columns, then multiplies each column by a gain and adds a bias:
    /// [`Norm::layer`](crate::layers::Norm::layer), [`rms`](crate::layers::Norm::rms) or [`batch`](crate::layers::Norm::batch).
    /// The output has the LoD of `x`. Parameters: `gain` and `bias` `[width]`; batch norm also has the states `mean` and
    /// `variance`.
    ///
    /// ```
    /// use unpadded::layers::Norm;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let y = x.norm(Norm::layer()).linear(16).norm(Norm::rms().epsilon(1e-6).named("last"));
    /// assert_eq!(net.describe(y), "`rms_norm`: f32[rows0, 16] lod(0)");
    /// assert!(net.finish()?.find("last.gain").is_some());
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If `x` does not hold rows of floats, or an option is out of range.
    pub fn norm(&self, x: Var, options: Norm) -> Var {
        self.layer(options).run(self, x)
    }
}
