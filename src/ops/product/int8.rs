//! `int8_linear`: the operator `linear` for prediction, with weights of 8-bit integers.

use crate::kernels::{CodedMatrix, CodedRows, MAX_CODE_ROWS, Transpose, coded_affine, emptied};
use crate::operator::Merge;
use crate::ops::prelude::*;

operator! {
    /// Linear layer with weights of 8-bit integers: out = x · W + b, for prediction.
    ///
    /// `x` is `[rows, in]`, `codes` C `[in, out]` of i8, `scale` s `[out]` and `bias` b `[out]`. A weight is its code times the
    /// scale of its column: W\[i, j\] = C\[i, j\] · s\[j\]. Each row of x is rounded to codes, too, by a scale of its own:
    /// the largest magnitude of the row divided by 127. The sums of products of codes are exact, so a row's result depends neither
    /// on other rows nor on the CPU. A row with a number that is NaN or infinite gives a row of NaN.
    ///
    /// With the attribute `transposed`, the codes are `[out, in]`. There may be several codes, each with its scale and, if there
    /// are biases, its bias; the results are concatenated. The operator has no gradients: to differentiate it is an error.
    /// [`Checkpoint::quantize`](crate::checkpoint::Checkpoint::quantize) appends it.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("int8_linear", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("x", Variable::from(array![[127.0, -2.2]])),
    ///     Operand::constant("codes", array![[1i8, 0], [0, 10]]),
    ///     Operand::constant("scale", array![0.5, 1.0]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [63.5, -20.0]); // -2.2 is rounded to -2
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the shapes of `x`, `codes`, `scale` and `bias` do not match, or if `x` has more than 65,536 columns.
    pub(in crate::ops) struct Int8Linear = int8_linear { transposed: Transpose }
    inputs {
        X = x: one.without_gradient(),
        CODES = codes: many.without_gradient(),
        SCALE = scale: many.without_gradient(),
        BIAS = bias: any.without_gradient(),
    }
    outputs { OUT = out: one }
}

/// Scratch memory of a call; `weights` is used only if the codes were not prepared before the call.
#[derive(Default)]
struct Scratch<T: Float> {
    weights: CodedMatrix,
    /// The scales and the biases of the call, concatenated.
    scales: Vec<T>,
    bias: Vec<T>,
    rows: CodedRows<T>,
}

impl Op for Int8Linear {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.same_dtype(Self::X, Self::SCALE)?;
        let (x, codes) = (s.input(Self::X), s.many(Self::CODES));
        if x.shape.len() != 2 || x.width() > MAX_CODE_ROWS {
            return Err(s.mismatch(Self::X, &format!("rows of at most {MAX_CODE_ROWS} numbers")));
        }
        for (slot, name) in [(Self::SCALE, "scale"), (Self::BIAS, "bias")] {
            let (count, optional) = (s.many(slot).len(), slot == Self::BIAS);
            if count != codes.len() && !(optional && count == 0) {
                let (what, expected) = (format!("number of `{name}`, one for each `codes`"), codes.len());
                return Err(Error::new(what, expected.to_string(), count.to_string()));
            }
        }
        let mut width = 0usize;
        for (k, spec) in codes.iter().enumerate() {
            let matrix = match (spec.dtype, spec.shape.as_slice()) {
                (DType::I8, &[Extent::Known(rows), Extent::Known(columns)]) => Some((rows, columns)),
                _ => None,
            };
            let Some((inputs, outputs)) = matrix.map(|shape| self.transposed.shape(shape)) else {
                return Err(s.mismatch_at(Self::CODES, k, "a constant matrix of i8"));
            };
            if inputs != x.width() {
                let expected = format!("codes for rows of {} numbers, the width of `x`", x.width());
                return Err(s.mismatch_at(Self::CODES, k, &expected));
            }
            s.constant_at(Self::SCALE, k, &[outputs])?;
            if !s.many(Self::BIAS).is_empty() {
                s.same_dtype(Self::X, Self::BIAS)?;
                s.constant_at(Self::BIAS, k, &[outputs])?;
            }
            width = width.checked_add(outputs).ok_or_else(|| {
                Error::new("the widths of `codes` together", "a number that can be counted", "more")
            })?;
        }
        s.set(Self::OUT, x.with_width(width));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => self.products::<T>(run))
    }

    fn hints(&self) -> Hints {
        let merges = Some(Merge { beside: &["codes", "scale", "bias"], parts: "split" });
        Hints {
            accumulates: true,
            prepares: true,
            divides_columns: true,
            multiplies_codes: true,
            merges,
            ..Hints::default()
        }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(Self::X), T => Ok(Self::memory_of::<T>(sizes))).unwrap_or_default()
    }

    fn prepare(&self, prepare: &mut Prepare<'_>) -> Result<()> {
        if prepare.constant::<i8>(Self::CODES).is_some() {
            let mut weights = std::mem::take(prepare.keep::<CodedMatrix>());
            let constant = |k| {
                let expected = || Error::new("codes", "a constant", "a variable that changes");
                prepare.constant_at::<i8>(Self::CODES, k).ok_or_else(expected)
            };
            self.put(&mut weights, prepare.count(Self::CODES), constant)?;
            *prepare.keep::<CodedMatrix>() = weights;
        }
        Ok(())
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let ((m, k), (_, n)) = (work.input(Self::X), work.output(Self::OUT));
        Cost { flops: 2 * m * k * n, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let codes = array![[3i8, -127], [110, 20], [-40, 127]];
        let second = array![[-60i8], [10], [80]];
        let mut samples = Vec::new();
        let cases =
            [("sequences with an empty one", vec![2, 0, 1]), ("all empty", vec![0, 0]), ("none", vec![])];
        for transposed in [Transpose::No, Transpose::Yes] {
            let attributes = || Int8Linear { transposed }.attributes();
            let turn = |codes: &Array2<i8>| match transposed {
                Transpose::No => codes.clone(),
                Transpose::Yes => codes.t().as_standard_layout().into_owned(),
            };
            for (name, lengths) in &cases {
                let lod = Lod::from_lengths1(lengths)?;
                let x = Variable::sequences(numbers(lod.rows(), 3, 0), lod)?;
                let name = format!("{name}, {transposed:?}");
                let sample = CheckCase::new(&name, attributes()).without_gradient().batch("x", x);
                let sample = sample.constant("codes", turn(&codes)).constant("scale", array![0.01, 0.02]);
                samples.push(sample.clone());
                let biased = sample.constant("bias", array![0.5, -0.25]);
                samples.push(biased.clone());
                let many = biased.constant("codes", turn(&second)).constant("scale", array![0.03]);
                samples.push(many.constant("bias", array![0.75]));
            }
        }
        Ok(samples)
    }
}

impl Int8Linear {
    /// Copies `count` matrices of codes side by side into one matrix.
    fn put<'v>(
        &self,
        weights: &mut CodedMatrix,
        count: usize,
        codes: impl Fn(usize) -> Result<View<'v, i8>>,
    ) -> Result<()> {
        let shape = |k| codes(k).map(|codes| self.transposed.shape((codes.rows(), codes.width())));
        let (mut height, mut width) = (0, 0);
        for k in 0..count {
            let (inputs, outputs) = shape(k)?;
            (height, width) = (inputs, width + outputs);
        }
        weights.resize(height, width);
        let mut first = 0;
        for k in 0..count {
            weights.put(codes(k)?, self.transposed, first);
            first += shape(k)?.1;
        }
        Ok(())
    }

    fn memory_of<T: RowValue>(sizes: &CallSizes<'_>) -> CallMemory {
        let ((rows, inputs), (_, outputs)) = (sizes.input(Self::X), sizes.output(Self::OUT));
        let packed = CodedMatrix::bytes_of(inputs, outputs);
        let unprepared = if sizes.is_prepared() { 0 } else { packed };
        let of_all = sizes.threads().saturating_mul(outputs).saturating_mul(size_of::<T>());
        let beside = |slot| if sizes.count(slot) > 1 { of_all } else { 0 };
        CallMemory::prepared(packed)
            .scratch::<Scratch<T>>(unprepared)
            .scratch::<Scratch<T>>(beside(Self::SCALE))
            .scratch::<Scratch<T>>(beside(Self::BIAS))
            .scratch::<Scratch<T>>(sizes.rooms().saturating_mul(CodedRows::<T>::bytes_of(rows, inputs)))
    }

    fn products<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
        let (assign, RunFacts { threads, .. }) = (run.assign(), run.run());
        let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
        let weights = match run.prepared::<CodedMatrix>() {
            Some(weights) => weights,
            None => {
                self.put(&mut room.weights, run.count(Self::CODES), |k| run.input_at(Self::CODES, k))?;
                &room.weights
            }
        };
        let width = out.width();
        let beside = |slot, room: &mut Vec<T>| -> Result<()> {
            emptied(room, width);
            for k in 0..run.count(slot) {
                room.extend_from_slice(run.input_at::<T>(slot, k)?.row(0));
            }
            Ok(())
        };
        let (scales, bias) = match run.count(Self::CODES) {
            1 => (
                run.input::<T>(Self::SCALE)?.row(0),
                match run.count(Self::BIAS) {
                    0 => None,
                    _ => Some(run.input::<T>(Self::BIAS)?.row(0)),
                },
            ),
            _ => {
                beside(Self::SCALE, &mut room.scales)?;
                beside(Self::BIAS, &mut room.bias)?;
                (&room.scales[..], Some(&room.bias[..]).filter(|bias| !bias.is_empty()))
            }
        };
        coded_affine(x, weights, scales, bias, out, assign, &mut room.rows, threads);
        *run.scratch().get::<Scratch<T>>() = room;
        Ok(())
    }
}
