//! The precision of the matrix products of a training.

use crate::checkpoint::Checkpoint;
use crate::error::{CallerSetting, Error, ErrorKind, Result};
use crate::operator::precision::no_unit;
use crate::operator::{MatrixUnit, Precision};

use super::Trainer;

impl Trainer {
    /// Sets the precision of matrix products (default: [`Precision::F32`]). In [`Precision::Bf16`], products, their gradients,
    /// convolutions and attention round their operands to bf16, which has 8 bits of mantissa and the range of f32, and sum in
    /// f32. Depthwise and row convolutions, parameters, the optimizer's state, activations, softmax, losses and normalizations stay f32. The loss needs no
    /// scaling. Products of f64 numbers and of sparse matrices do not change.
    ///
    /// The unit of this CPU that multiplies bf16 numbers decides the bits of the results ([`MatrixUnit`](crate::op::MatrixUnit));
    /// the checkpoint keeps the unit. [`Self::fit`] fails if the CPU has no such unit, unless [`Self::allow_slow`] is set.
    ///
    /// ```
    /// use unpadded::data::{Batching, Field, Loader, Samples};
    /// use unpadded::layers::Embedding;
    /// use unpadded::ops::Pool;
    /// use unpadded::optimizer::Adam;
    /// use unpadded::train::{Progress, Trainer, Until};
    /// use unpadded::{Builder, DType, Precision};
    /// let net = Builder::new();
    /// let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// let h = words.embedding(Embedding::new(9, 8)).lstm(8).sequence_pool(Pool::Last);
    /// let loss = h.linear(2).cross_entropy(label).mean();
    /// let samples: Samples = (0..64).map(|i| vec![Field::from(vec![i % 2; 5]), (i % 2).into()]).collect();
    /// let data = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(8));
    /// let mut trainer = Trainer::new(net, loss, &Adam::new(0.05))?
    ///     .precision(Precision::Bf16)
    ///     .allow_slow() // this example must run on every CPU
    ///     .progress(Progress::Quiet);
    /// let report = trainer.fit(&data, &data, Until::Epochs(5))?;
    /// assert!(report.last.loss() < 0.6);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn precision(mut self, precision: Precision) -> Self {
        (self.settings.precision, self.step.programs) = (Some(CallerSetting::new(precision)), None);
        // A CPU without a unit for bf16 computes the products of AVX-512 by other instructions.
        self.training.program.unit = MatrixUnit::of_cpu(precision).unwrap_or(MatrixUnit::Bf16Pairs);
        self
    }

    /// Lets a training run in a precision for which this CPU has no unit: other instructions compute the bits of the unit, more
    /// slowly than f32. A resumed training then computes the bits of the unit in its checkpoint, on any CPU.
    #[must_use]
    pub fn allow_slow(mut self) -> Self {
        self.settings.allow_slow = true;
        self
    }

    /// Returns the unit that computes the matrix products of f32 numbers.
    pub fn unit(&self) -> MatrixUnit {
        self.training.program.unit
    }

    /// Returns an error if the CPU computes the products of the training slowly and this is not allowed.
    pub(super) fn check_precision(&self) -> Result<()> {
        let unit = self.unit();
        if unit.is_fast() || self.settings.allow_slow {
            return Ok(());
        }
        let note = "`Trainer::allow_slow` trains anyway, more slowly than in f32, with the same results";
        let error = no_unit(unit.precision()).noted_in_code(note);
        Err(self.settings.precision.iter().fold(error, |error, given| error.called(given.line)))
    }

    /// Returns the unit of a training that is resumed from a checkpoint.
    ///
    /// # Errors
    /// If the unit of the checkpoint gives other bits than this trainer's unit.
    pub(super) fn resumed_unit(&self, from: &Checkpoint) -> Result<MatrixUnit> {
        let (ours, theirs) = (self.unit(), from.program.unit);
        let same = ours.precision() == theirs.precision();
        if ours == theirs || same && self.settings.allow_slow {
            return Ok(theirs);
        }
        let expected = format!("{theirs}, as in the checkpoint");
        let error =
            Error::of(ErrorKind::Program, "precision of the matrix products", expected, ours.to_string());
        Err(match same {
            true => error.noted_in_code(
                "`Trainer::allow_slow` computes the products of the checkpoint's unit, slowly",
            ),
            false => error.noted_in_code("`Trainer::precision` sets the precision"),
        })
    }
}
