//! `row_conv`: look-ahead convolution, the weighted sum of each row and the next rows, column by column.

use crate::kernels::{ConvRows, Window, depthwise_forward, depthwise_gradient};
use crate::ops::prelude::*;

operator! {
    /// Look-ahead convolution: the weighted sum of each row and the next rows of its sequence, column by column, as in streaming
    /// speech recognition (Wang et al., 2016).
    ///
    /// out_t = Σ_j x_(t+j) ∘ W_j, for 0 ≤ j < c, where W `[c, D]` is `filter`. Rows after the end of the sequence count as
    /// zeros. The output has the shape and LoD of x; an empty sequence stays empty. [`sequence_conv`](Self::sequence_conv)
    /// allows windows with earlier rows, and combines all columns.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1.0, 2.0, 3.0], vec![], vec![4.0]])?;
    /// let op = ops::catalogue().parse("row_conv", &Attributes::new())?;
    /// let out = op.call(&[Operand::batch("x", x), Operand::constant("filter", array![[10.0], [1.0]])])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [12.0, 23.0, 30.0, 40.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD or does not hold floats, or `filter` and `x` have different widths.
    #[doc(alias("lookahead", "look_ahead"))]
    pub(in crate::ops) struct RowConv = row_conv {}
    inputs { X = x: one, FILTER = filter: one }
    outputs { OUT = out: one }
    impl Builder, Var { fn row_conv(&self, x: Var, filter: Var) -> Var; }
}

impl Op for RowConv {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        s.same_dtype(Self::X, Self::FILTER)?;
        let (x, filter) = (s.input(Self::X), s.input(Self::FILTER));
        let fits = matches!(filter.shape.as_slice(), &[Extent::Known(_), Extent::Known(width)] if width == x.width());
        if !fits {
            return Err(s.mismatch(Self::FILTER, &format!("a constant of shape [rows, {}]", x.width())));
        }
        s.set(Self::OUT, x.clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (filter, assign) = (run.input::<T>(Self::FILTER)?, run.assign());
            let ahead = ahead(run.input::<T>(Self::X)?, run.sequences(Self::X)?, filter.rows());
            depthwise_forward(ahead, filter, None, (run.output::<T>(Self::OUT)?, assign));
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => gradients::<T>(run))
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing().input(if wrt == Self::X { Self::FILTER } else { Self::X })
    }

    fn hints(&self) -> Hints {
        Hints { accumulates: true, separate_gradients: true, ..Hints::default() }
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let ((rows, width), (taps, _)) = (work.input(Self::X), work.input(Self::FILTER));
        let passes = match work.pass() {
            Pass::Forward => 1,
            Pass::Backward => u64::from(work.wants(Self::X)) + u64::from(work.wants(Self::FILTER)),
        };
        Cost { flops: 2 * passes * rows * width * taps, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (taps, width) in [(3, 2), (1, 3), (6, 1)] {
            samples.extend(CheckCase::of_sequences(&Attributes::new(), |sample, lod| {
                let x = Variable::sequences(numbers(lod.rows(), width, 0), lod)?;
                Ok(sample.batch("x", x).constant("filter", numbers(taps, width, 1)))
            })?);
        }
        Ok(samples)
    }
}

/// Makes the operands of a convolution of each row with the next `taps − 1` rows.
fn ahead<'a, T>(x: View<'a, T>, sequences: Sequences<'a>, taps: usize) -> ConvRows<'a, T> {
    ConvRows { x, padding: None, offsets: sequences.offsets(), window: Window { start: 0, step: 1, taps } }
}

fn gradients<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let dout = run.dout::<T>(RowConv::OUT)?;
    let sequences = run.sequences(RowConv::X)?;
    if let Some(to) = run.gradient::<T>(RowConv::X)? {
        let filter = run.input::<T>(RowConv::FILTER)?;
        let rows = ahead(dout, sequences, filter.rows());
        depthwise_forward(ConvRows { window: rows.window.turned(), ..rows }, filter, None, to);
    }
    if let Some(to) = run.gradient::<T>(RowConv::FILTER)? {
        let rows = ahead(run.input::<T>(RowConv::X)?, sequences, to.0.rows());
        depthwise_gradient(rows, dout, to, run.run().threads);
    }
    Ok(())
}
