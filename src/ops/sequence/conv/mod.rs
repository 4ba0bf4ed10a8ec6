//! `sequence_conv`: a one-dimensional convolution over the rows of each sequence.

mod context;

pub use context::Context;

use super::counts::{count, count_or_one};
use crate::kernels::{
    ConvGradient, ConvRoom, ConvRows, GradientRoom, MatrixUnit, PackedMatrix, Transpose, affine_gradient,
    conv_forward, conv_gradient, conv_padding_gradient, depthwise_forward, depthwise_gradient,
    depthwise_padding_gradient,
};
use crate::ops::prelude::*;
use context::{near, window};

operator! {
    /// Convolves the rows of each sequence of the last level, with an optional bias and learnt padding rows: `filter`
    /// `[length · D / groups, M]`, `bias` `[M]`, `padding` `[above + below, D]`.
    ///
    /// out_t = b + Σ_j x_(t + start + j · dilation) · W_j, over the `length` rows of the [`Context`](crate::ops::Context), for
    /// every row t of x; a row of x has D numbers. Without groups, W_j are the rows j · D … (j + 1) · D − 1 of the
    /// filter. The output has one row of M numbers for each row of x, and the LoD of x. A row outside of the sequence
    /// counts as zeros or, with `padding`, as a padding row: the first `above` rows of `padding` come directly before
    /// the sequence, the next `below` rows directly after it
    /// ([`Context::padding_rows`](crate::ops::Context::padding_rows) returns both numbers). The gradient of a padding
    /// row is the sum of the gradients from all sequences.
    ///
    /// With `groups` G, the columns of x and of the output are divided into G groups of equal width. Group g of the output
    /// depends only on group g of x, which has D / G columns, and on group g of the filter's columns. If `groups` is the number
    /// of columns of x, each column is convolved alone ("depthwise"). An empty sequence has no output rows. Sequences are not
    /// padded to one length.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let x = Variable::from_sequences(&[vec![1.0, 2.0, 3.0], vec![], vec![4.0]])?;
    /// let attributes = Attributes::new().with("start", -1).with("length", 3);
    /// let op = ops::catalogue().parse("sequence_conv", &attributes)?;
    /// let out = op.call(&[
    ///     Operand::batch("x", x),
    ///     Operand::constant("filter", array![[100.0], [10.0], [1.0]]),
    ///     Operand::constant("bias", array![0.5]),
    ///     Operand::constant("padding", array![[7.0], [9.0]]), // above and below
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [712.5, 123.5, 239.5, 749.5]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[3, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `x` has no LoD or does not hold floats, if the groups do not divide the columns of `x` and of the
    /// filter, or if a shape does not fit; if the length, the dilation or the number of groups is 0; if the context reaches
    /// further than 2³¹ − 1 rows.
    pub(in crate::ops) struct SequenceConv = sequence_conv {
        start: i64 => near,
        length: usize => count,
        dilation: usize => count_or_one,
        groups: usize => count_or_one,
    }
    inputs {
        X = x: one,
        FILTER = filter: one,
        BIAS = bias: optional,
        PADDING = padding: optional,
    }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn sequence_conv_with(&self, x: Var, filter: Var, bias: Option<Var>, padding: Option<Var>, context: Context) -> Var {
            let (start, length, (dilation, groups)) = (context.start(), context.length(), context.divides());
        }
    }
}

builder_methods! { Builder, Var;
    /// Convolves the rows of each sequence of the last level with a `filter` `[length · D / groups, M]` of the caller.
    /// In contrast, the layer `layers::Conv` creates its filter.
    ///
    /// out_t = Σ_j x_(t + start + j · dilation) · W_j, over the `length` rows of the `context`; rows outside of the sequence
    /// count as zeros. [`sequence_conv_with`](Self::sequence_conv_with) has the full formula, a bias and padding rows.
    ///
    /// ```
    /// use unpadded::layers::init;
    /// use unpadded::ops::Context;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let filter = net.parameter("filter", DType::F32, &[3 * 8, 16], init::xavier());
    /// let y = x.sequence_conv(filter, Context::new(3).dilation(2).causal());
    /// assert_eq!(net.describe(y), "`sequence_conv`: f32[rows0, 16] lod(0)");
    /// ```
    ///
    /// # Errors
    /// The errors are the errors of [`sequence_conv_with`](Self::sequence_conv_with).
    #[doc(alias("conv1d", "causal"))]
    pub fn sequence_conv(&self, x: Var, filter: Var, context: Context) -> Var {
        self.sequence_conv_with(x, filter, None, None, context)
    }
}

/// Scratch memory of a call; `weights` is used only if the filter was not prepared before the call.
#[derive(Default)]
struct Scratch<T: Float> {
    weights: Vec<PackedMatrix<T>>,
    conv: ConvRoom<T>,
    gradient: ConvGradient<T>,
}

/// The number of columns in a group of the input, and in a group of the output.
#[derive(Clone, Copy)]
struct Group {
    input: usize,
    output: usize,
}

impl Group {
    /// Returns whether each column is a group of its own (a depthwise convolution).
    fn is_a_column(self) -> bool {
        self.input == 1 && self.output == 1
    }
}

impl Op for SequenceConv {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::Keeps(Self::X))
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.has_lod(Self::X)?;
        s.same_dtype(Self::X, Self::FILTER)?;
        let (x, filter, groups) = (s.input(Self::X), s.input(Self::FILTER), self.groups);
        let (width, above_below) = (x.width(), window(self.start, self.length, self.dilation).padding_rows());
        if x.shape.len() > 2 || !width.is_multiple_of(groups) {
            return Err(s.mismatch(Self::X, &format!("rows of numbers that {groups} groups divide")));
        }
        let height = self.length.checked_mul(width / groups);
        let &[Extent::Known(rows), Extent::Known(columns)] = filter.shape.as_slice() else {
            return Err(s.mismatch(Self::FILTER, "a constant of shape [length · in / groups, out]"));
        };
        if Some(rows) != height || !columns.is_multiple_of(groups) {
            let height = height.map_or_else(|| "more than can be counted".to_owned(), |n| n.to_string());
            let expected = format!(
                "{height} rows (length {} · {width} / {groups}), and columns that {groups} groups divide",
                self.length
            );
            return Err(s.mismatch(Self::FILTER, &expected));
        }
        if s.optional(Self::BIAS).is_some() {
            s.same_dtype(Self::X, Self::BIAS)?;
            s.constant(Self::BIAS, &[columns])?;
        }
        if s.optional(Self::PADDING).is_some() {
            s.same_dtype(Self::X, Self::PADDING)?;
            s.constant(Self::PADDING, &[above_below, width])?;
        }
        let out = x.with_width(columns);
        s.set(Self::OUT, out);
        Ok(())
    }

    float_passes!(Self::X, T: (self, run) => self.convolved::<T>(run), self.gradients::<T>(run));

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        match wrt {
            Self::X | Self::PADDING => Gradient::reads_nothing().input(Self::FILTER),
            Self::FILTER => Gradient::reads_nothing().input(Self::X).input(Self::PADDING),
            _ => Gradient::reads_nothing(),
        }
    }

    fn hints(&self) -> Hints {
        Hints {
            accumulates: true,
            separate_gradients: true,
            prepares: true,
            multiplies: true,
            ..Hints::default()
        }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(Self::X), T => Ok(self.memory_of::<T>(sizes))).unwrap_or_default()
    }

    fn prepare(&self, prepare: &mut Prepare<'_>) -> Result<()> {
        with_float!(prepare.dtype(Self::X), T => {
            let wanted = prepare.wants(Self::X) || prepare.wants(Self::PADDING);
            if let Some(filter) = prepare.constant::<T>(Self::FILTER)
                && (prepare.pass() == Pass::Forward || wanted)
            {
                let pass = prepare.pass();
                let how = (pass, prepare.unit(), prepare.threads());
                self.pack(filter, how, prepare.keep::<Vec<PackedMatrix<T>>>());
            }
            Ok(())
        })
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let ((rows, _), (height, width)) = (work.input(Self::X), work.input(Self::FILTER));
        let product = 2 * rows * height * width;
        let products = match work.pass() {
            Pass::Forward => 1,
            Pass::Backward => u64::from(work.wants(Self::X)) + u64::from(work.wants(Self::FILTER)),
        };
        Cost { flops: products * product, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let cases = [
            ("centred", Context::new(3), 2, 3),
            ("causal, dilated", Context::new(2).dilation(2).causal(), 2, 1),
            ("ahead, in groups", Context::new(2).starting_at(1).groups(2), 4, 6),
            ("each column, dilated", Context::new(3).dilation(2).groups(3), 3, 3),
            ("of one row", Context::new(1), 2, 2),
            ("far before", Context::new(2).starting_at(-7), 1, 2),
        ];
        let mut samples = Vec::new();
        for (k, (name, context, width, columns)) in cases.into_iter().enumerate() {
            let conv = Self::of(context);
            let filter = numbers(context.length() * width / conv.groups, columns, 1);
            let (above, below) = context.padding_rows();
            let whole = CheckCase::of_sequences(&conv.attributes(), |sample, lod| {
                let x = Variable::sequences(numbers(lod.rows(), width, 0), lod)?;
                let name = format!("{name}, {}", sample.name);
                Ok(CheckCase { name, ..sample }.batch("x", x).constant("filter", filter.clone()))
            })?;
            for sample in whole {
                let more = |sample: CheckCase| {
                    let padding: Array2<f64> = numbers(above + below, width, 2);
                    sample
                        .constant("bias", numbers(1, columns, 3).row(0).to_owned())
                        .constant("padding", padding)
                };
                if k % 2 == 0 {
                    samples.push(sample.clone());
                }
                samples.push(more(sample));
            }
        }
        Ok(samples)
    }
}

impl SequenceConv {
    fn memory_of<T: RowValue>(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let ((rows, width), (_, columns)) = (sizes.input(Self::X), sizes.output(Self::OUT));
        let group = Group { input: width / self.groups, output: columns / self.groups };
        if group.is_a_column() {
            return CallMemory::default();
        }
        let (forward, threads, unit) = (sizes.pass() == Pass::Forward, sizes.threads(), sizes.unit());
        let (k, n) = match forward {
            true => (self.length * group.input, group.output),
            false => (self.length * group.output, group.input),
        };
        let (of_x, of_padding) = (sizes.wants(Self::X), sizes.wants(Self::PADDING));
        let some = |wanted: bool, bytes: usize| if wanted { bytes } else { 0 };
        let packed = self.groups * (PackedMatrix::<T>::bytes_of(unit, k, n) + size_of::<PackedMatrix<T>>());
        let packed = some(forward || of_x || of_padding, packed);
        let widths = (group.input, group.output);
        let filter = ConvGradient::<T>::bytes_of(unit, rows, widths, self.groups, threads);
        let padding = ConvGradient::<T>::padding_bytes_of(unit, sizes.input(Self::PADDING).0, k);
        CallMemory::prepared(packed)
            .scratch::<Scratch<T>>(some(!sizes.is_prepared(), packed))
            .scratch::<Scratch<T>>(some(forward || of_x, ConvRoom::<T>::bytes_of(unit, rows, k, threads)))
            .scratch::<Scratch<T>>(some(sizes.wants(Self::FILTER), filter))
            .scratch::<Scratch<T>>(some(of_padding, padding))
    }

    fn of(context: Context) -> Self {
        let (dilation, groups) = context.divides();
        Self { start: context.start(), length: context.length(), dilation, groups }
    }

    /// Returns the number of columns in a group of the input and of the output, from the shape of the filter.
    fn group(&self, (rows, width): (usize, usize)) -> Group {
        Group { input: rows / self.length, output: width / self.groups }
    }

    /// Packs the filter of each group for the forward product or, transposed, for the gradient of x. A depthwise filter is not
    /// packed.
    fn pack<T: Float>(
        &self,
        filter: View<'_, T>,
        (pass, unit, threads): (Pass, MatrixUnit, usize),
        packed: &mut Vec<PackedMatrix<T>>,
    ) {
        let Group { input, output } = self.group((filter.rows(), filter.width()));
        let count = if self.group((filter.rows(), filter.width())).is_a_column() { 0 } else { self.groups };
        packed.resize_with(count, PackedMatrix::new);
        for (g, packed) in packed.iter_mut().enumerate() {
            let filter = filter.columns(g * output, (g + 1) * output);
            packed.set_unit(unit);
            match pass {
                Pass::Forward => packed.pack(filter, Transpose::No, threads),
                Pass::Backward => {
                    packed.resize(self.length * output, input);
                    for tap in 0..self.length {
                        let of_tap = filter.rows_range(tap * input, (tap + 1) * input);
                        packed.put(of_tap, Transpose::Yes, (tap * output, 0), threads);
                    }
                }
            }
        }
    }

    fn rows<'a, T>(
        &self,
        x: View<'a, T>,
        padding: Option<View<'a, T>>,
        sequences: Sequences<'a>,
    ) -> ConvRows<'a, T> {
        let window = window(self.start, self.length, self.dilation);
        ConvRows { x, padding, offsets: sequences.offsets(), window }
    }

    fn convolved<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (filter, bias) = (run.input::<T>(Self::FILTER)?, run.optional::<T>(Self::BIAS)?);
        let rows = self.rows(run.input::<T>(Self::X)?, run.optional(Self::PADDING)?, run.sequences(Self::X)?);
        let RunFacts { threads, unit, .. } = run.run();
        let out = (run.output::<T>(Self::OUT)?, run.assign());
        let bias = bias.map(|bias| bias.row(0));
        if self.group((filter.rows(), filter.width())).is_a_column() {
            depthwise_forward(rows, filter, bias, out);
            return Ok(());
        }
        let prepared = run.prepared::<Vec<PackedMatrix<T>>>();
        let Scratch { weights, conv: room, .. } = run.scratch().get::<Scratch<T>>();
        let weights = prepared.unwrap_or_else(|| {
            self.pack(filter, (Pass::Forward, unit, threads), weights);
            weights
        });
        conv_forward(rows, weights, bias, out, room, threads);
        Ok(())
    }

    fn gradients<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let dout = run.dout::<T>(Self::OUT)?;
        let RunFacts { threads, unit, .. } = run.run();
        let sequences = run.sequences(Self::X)?;
        let filter = run.input_spec(Self::FILTER);
        let alone = self.group((filter.shape[0].known().unwrap_or(0), filter.width())).is_a_column();
        let (dx, dpadding) = (run.gradient::<T>(Self::X)?, run.gradient::<T>(Self::PADDING)?);
        if dx.is_some() || dpadding.is_some() {
            let filter = run.input::<T>(Self::FILTER)?;
            let prepared = run.prepared::<Vec<PackedMatrix<T>>>();
            let back = self.rows(dout, None, sequences);
            let Scratch { weights, conv: room, gradient } = run.scratch().get::<Scratch<T>>();
            let weights = prepared.unwrap_or_else(|| {
                self.pack(filter, (Pass::Backward, unit, threads), weights);
                weights
            });
            if let Some(to) = dpadding {
                if alone {
                    depthwise_padding_gradient(back, filter, to);
                } else {
                    conv_padding_gradient(back, weights, to, gradient);
                }
            }
            if let Some(to) = dx {
                let back = ConvRows { window: back.window.turned(), ..back };
                if alone {
                    depthwise_forward(back, filter, None, to);
                } else {
                    conv_forward(back, weights, None, to, room, threads);
                }
            }
        }
        let mut bias = run.gradient::<T>(Self::BIAS)?;
        let mut bias = bias.as_mut().map(|(db, assign)| (db.row(0), *assign));
        if let Some(to) = run.gradient::<T>(Self::FILTER)? {
            let rows = self.rows(run.input::<T>(Self::X)?, run.optional(Self::PADDING)?, sequences);
            if alone {
                depthwise_gradient(rows, dout, to, threads);
            } else {
                let room = &mut run.scratch().get::<Scratch<T>>().gradient;
                conv_gradient(rows, dout, self.groups, to, bias.take(), (unit, room), threads);
            }
        }
        // A depthwise convolution is no product, and computes in f32.
        let unit = if alone { MatrixUnit::F32 } else { unit };
        affine_gradient(dout.into(), None, bias, unit, run.scratch().get::<GradientRoom<T>>(), threads);
        Ok(())
    }
}
