//! `linear`: multiplies the rows of a batch by a weight matrix, and adds a bias.

use crate::kernels::{
    GradientRoom, MatrixUnit, PackedMatrix, RoundedRows, Transpose, affine, affine_gradient,
    affine_gradient_bytes, most,
};
use crate::operator::Merge;
use crate::ops::prelude::*;

operator! {
    /// Computes x · W + b from variables of the caller: `x` `[rows, in]`, `weight` `[in, out]`, `bias` `[out]`. In
    /// contrast, the layer `layers::Linear` creates the weight and the bias.
    ///
    /// out = x · W + b, with x `[rows, in]`, W `[in, out]`, b `[out]`. The operator computes each row alone; the rows of x may
    /// have any LoD, which the output keeps. There may be several weights, with one bias for each weight or without
    /// biases. The weights are then concatenated: out = x · [W₁ W₂ …] + [b₁ b₂ …]. With the attribute `transposed`,
    /// each weight input is Wᵀ, `[out, in]`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], Lod::from_lengths1(&[2, 0, 1])?)?;
    /// let op = ops::catalogue().parse("linear", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("x", x),
    ///     Operand::constant("weight", array![[1.0], [10.0]]),
    ///     Operand::constant("bias", array![0.5]),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [21.5, 43.5, 65.5]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if the widths of `x`, `weight` and `bias` do not match.
    pub(in crate::ops) struct Linear = linear { transposed: Transpose }
    inputs { X = x: one, WEIGHT = weight: many, BIAS = bias: any }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn product(&self, x: Var, weight: Var, bias: Option<Var>) -> Var {
            let transposed = Transpose::No;
        }
    }
}

builder_methods! { Builder, Var;
    /// Computes x · Wᵀ + b from variables of the caller: `x` `[rows, in]`, `weight` W `[out, in]`, `bias` `[out]`. With
    /// this method, an embedding table `[vocabulary, width]` can also compute logits from states (tied weights); the
    /// table's gradient is then the sum of the gradients of both uses.
    ///
    /// ```
    /// use unpadded::{Builder, DType};
    /// use unpadded::layers::init;
    /// let net = Builder::new();
    /// let words = net.feed("words", DType::I64, &[], 1);
    /// let table = net.parameter("table", DType::F32, &[1000, 16], init::normal(0.25));
    /// let logits = words.lookup(table, None, false).product_transposed(table, None);
    /// assert_eq!(net.describe(logits), "`linear`: f32[rows0, 1000] lod(0)");
    /// ```
    ///
    /// # Errors
    /// It is an error if the widths of `x`, `weight` and `bias` do not match.
    #[doc(alias = "tied")]
    pub fn product_transposed(&self, x: Var, weight: Var, bias: Option<Var>) -> Var {
        let attributes = Linear { transposed: Transpose::Yes }.attributes();
        let inputs: [(&str, &[Var]); 3] = [("x", &[x]), ("weight", &[weight]), ("bias", bias.as_slice())];
        self.append("linear", &inputs, attributes)
    }
}

/// The product for which weights are packed: the forward product, or the product for the gradient of x.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PackedFor {
    /// The forward product x · W, for which the weights are packed side by side.
    Product,
    /// The product dout · Wᵀ for the gradient of x, for which the transposed weights are packed one below the other.
    InputGradient,
}

/// Packs `count` weights as one matrix for the given product.
fn pack<'v, T: Float + 'v>(
    packed: &mut PackedMatrix<T>,
    count: usize,
    weight: impl Fn(usize) -> Result<View<'v, T>>,
    (transposed, purpose): (Transpose, PackedFor),
    (unit, threads): (MatrixUnit, usize),
) -> Result<()> {
    let (turn, take) = match purpose {
        PackedFor::Product => (Transpose::No, transposed),
        PackedFor::InputGradient => (Transpose::Yes, transposed.other()),
    };
    let shape = |weight: View<'_, T>| transposed.shape((weight.rows(), weight.width()));
    let (mut height, mut width) = (0, 0);
    for k in 0..count {
        let (inputs, outputs) = shape(weight(k)?);
        (height, width) = (inputs, width + outputs);
    }
    let (rows, columns) = turn.shape((height, width));
    packed.set_unit(unit);
    packed.resize(rows, columns);
    let mut at = 0;
    for k in 0..count {
        let weight = weight(k)?;
        packed.put(weight, take, turn.shape((0, at)), threads);
        at += shape(weight).1;
    }
    Ok(())
}

/// Scratch memory of a call; `weights` is used only if the weights were not prepared before the call.
#[derive(Default)]
struct Scratch<T: Float> {
    weights: PackedMatrix<T>,
    /// All biases of the call, concatenated.
    bias: Vec<T>,
    rounded: RoundedRows<T>,
}

/// Infers the spec of a product of x and weights. `x` and the weights may have any storages; the output has the storage
/// of `x`.
pub(in crate::ops) fn product_of(s: &InferShape<'_>, transposed: Transpose) -> Result<Spec> {
    s.is_float(Linear::X)?;
    s.same_dtype(Linear::X, Linear::WEIGHT)?;
    let (x, weights, biases) = (s.input(Linear::X), s.many(Linear::WEIGHT), s.many(Linear::BIAS));
    let mut widths = Vec::with_capacity(weights.len());
    for (k, weight) in weights.iter().enumerate() {
        let (shape, side) = match transposed {
            Transpose::No => ("[in, out]", "height"),
            Transpose::Yes => ("[out, in]", "width"),
        };
        let &[Extent::Known(rows), Extent::Known(width)] = weight.shape.as_slice() else {
            return Err(s.mismatch_at(Linear::WEIGHT, k, &format!("a constant of shape {shape}")));
        };
        let (inputs, outputs) = transposed.shape((rows, width));
        if k > 0 && inputs != x.width() {
            let expected = format!("a {side} of {}, the {side} of the first weight", x.width());
            return Err(s.mismatch_at(Linear::WEIGHT, k, &expected));
        }
        if x.width() != inputs || x.shape.len() > 2 {
            let expected = format!("rows of {inputs} numbers, since the {side} of `weight` is {inputs}");
            return Err(s.mismatch(Linear::X, &expected));
        }
        widths.push(outputs);
    }
    if !biases.is_empty() {
        s.same_dtype(Linear::X, Linear::BIAS)?;
        if biases.len() != weights.len() {
            let (expected, got) = (format!("none or {}", weights.len()), biases.len().to_string());
            return Err(Error::new("number of `bias`, one for each `weight`", expected, got));
        }
        for (k, &width) in widths.iter().enumerate() {
            s.constant_at(Linear::BIAS, k, &[width])?;
        }
    }
    let width = widths.into_iter().try_fold(0, usize::checked_add).ok_or_else(|| {
        Error::new("the widths of `weight` together", "a number that can be counted", "more")
    })?;
    Ok(x.with_width(width))
}

impl Op for Linear {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let out = product_of(s, self.transposed)?;
        s.set(Self::OUT, out);
        Ok(())
    }

    float_passes!(Self::X, T: (self, run) => self.products::<T>(run), self.gradients::<T>(run));

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        match wrt {
            Self::X => Gradient::reads_nothing().input(Self::WEIGHT),
            Self::WEIGHT => Gradient::reads_nothing().input(Self::X),
            _ => Gradient::reads_nothing(),
        }
    }

    fn hints(&self) -> Hints {
        let merges = Some(Merge { beside: &["weight", "bias"], parts: "split" });
        Hints {
            accumulates: true,
            separate_gradients: true,
            prepares: true,
            divides_columns: true,
            multiplies: true,
            takes_bf16: &["x"],
            takes_bf16_gradient: true,
            merges,
            ..Hints::default()
        }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(Self::X), T => Ok(self.memory_of::<T>(sizes))).unwrap_or_default()
    }

    fn prepare(&self, prepare: &mut Prepare<'_>) -> Result<()> {
        with_float!(prepare.dtype(Self::X), T => {
            let wanted = prepare.pass() == Pass::Forward || prepare.wants(Self::X);
            if wanted && prepare.constant::<T>(Self::WEIGHT).is_some() {
                let purpose = match prepare.pass() {
                    Pass::Forward => PackedFor::Product,
                    Pass::Backward => PackedFor::InputGradient,
                };
                let tools = (prepare.unit(), prepare.threads());
                let mut weights = std::mem::take(prepare.keep::<PackedMatrix<T>>());
                let constant = |k| {
                    let expected = || Error::new("weight", "a constant", "a variable that changes");
                    prepare.constant_at::<T>(Self::WEIGHT, k).ok_or_else(expected)
                };
                pack(&mut weights, prepare.count(Self::WEIGHT), constant, (self.transposed, purpose), tools)?;
                *prepare.keep::<PackedMatrix<T>>() = weights;
            }
            Ok(())
        })
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let ((m, k), (_, n)) = (work.input(Self::X), work.output(Self::OUT));
        let product = 2 * m * k * n;
        let flops = match work.pass() {
            // The bias needs no extra pass over the output, because each sum starts with the bias.
            Pass::Forward => product,
            Pass::Backward => {
                let products = u64::from(work.wants(Self::X)) + u64::from(work.wants(Self::WEIGHT));
                products * product + u64::from(work.wants(Self::BIAS)) * m * n
            }
        };
        Cost { flops, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let weight = array![[0.3, -0.7], [1.1, 0.2], [-0.4, 0.9]];
        let mut samples = Vec::new();
        let cases =
            [("sequences with an empty one", vec![2, 0, 1]), ("all empty", vec![0, 0]), ("none", vec![])];
        for (name, lengths) in cases {
            let lod = Lod::from_lengths1(&lengths)?;
            let x = Variable::sequences(numbers(lod.rows(), 3, 0), lod)?;
            let sample =
                CheckCase::new(name, Attributes::new()).batch("x", x).constant("weight", weight.clone());
            samples.push(sample.clone());
            samples.push(sample.constant("bias", array![0.5, -0.25]));
        }
        let second = array![[-0.6], [0.1], [0.8]];
        let of_many = |sample: &CheckCase| {
            let many = sample.clone().constant("weight", second.clone());
            let biased = sample.operands.iter().any(|o| o.slot == "bias");
            if biased { many.constant("bias", array![0.75]) } else { many }
        };
        let many: Vec<CheckCase> = samples.iter().map(of_many).collect();
        samples.extend(many);
        let vector = CheckCase::new("a constant vector", Attributes::new());
        samples.push(vector.constant("x", array![0.5, -1.5, 2.0]).constant("weight", weight));
        let mut transposed = Vec::new();
        for sample in &samples {
            let mut turned = sample.clone();
            turned.name += ", transposed";
            turned.attributes = Linear { transposed: Transpose::Yes }.attributes();
            for weight in turned.operands.iter_mut().filter(|o| o.slot == "weight") {
                let [rows, width] = *weight.value.shape() else { continue };
                let numbers = weight.value.as_slice::<f64>()?;
                let at = |(i, j): (usize, usize)| numbers[j * width + i];
                weight.value = Variable::from(Array2::from_shape_fn((width, rows), at));
            }
            transposed.push(turned);
        }
        samples.extend(transposed);
        Ok(samples)
    }
}

impl Linear {
    fn memory_of<T: RowValue>(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let ((rows, inputs), (_, outputs)) = (sizes.input(Self::X), sizes.output(Self::OUT));
        let unit = sizes.unit();
        let number = size_of::<T>();
        let (packed, read) = match sizes.pass() {
            Pass::Forward => (PackedMatrix::<T>::bytes_of(unit, inputs, outputs), inputs),
            Pass::Backward if sizes.wants(Self::X) => {
                (PackedMatrix::<T>::bytes_of(unit, outputs, inputs), outputs)
            }
            Pass::Backward => (0, 0),
        };
        let bias = if sizes.count(Self::BIAS) > 1 { sizes.threads() * outputs * number } else { 0 };
        let gradient = match sizes.wants(Self::WEIGHT) {
            true => affine_gradient_bytes::<T>(unit, (inputs, outputs), self.transposed, sizes.threads()),
            false => 0,
        };
        let unprepared = if sizes.is_prepared() { 0 } else { packed };
        // Outside of a loop, the threads divide the rows. In a loop, each thread may have any number of the rows.
        let of_thread = if sizes.rooms() > 1 { rows } else { most(rows, sizes.threads()) };
        let lies = sizes.multiplies_pairs(Self::X, Self::OUT) && RoundedRows::<T>::reads_pairs(unit, read);
        let of_thread = if lies { 0 } else { of_thread };
        let rounded = sizes.threads() * RoundedRows::<T>::bytes_of(unit, of_thread, read);
        CallMemory::prepared(packed)
            .scratch::<Scratch<T>>(unprepared)
            .scratch::<Scratch<T>>(bias)
            .scratch::<Scratch<T>>(rounded)
            .scratch::<GradientRoom<T>>(gradient)
    }

    fn products<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, out) = (run.left_matrix::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
        let (assign, RunFacts { threads, unit, .. }) = (run.assign(), run.run());
        let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
        let weights = match run.prepared::<PackedMatrix<T>>() {
            Some(weights) => weights,
            None => {
                pack(
                    &mut room.weights,
                    run.count(Self::WEIGHT),
                    |k| run.input_at(Self::WEIGHT, k),
                    (self.transposed, PackedFor::Product),
                    (unit, threads),
                )?;
                &room.weights
            }
        };
        room.bias.clear();
        let bias = match run.count(Self::BIAS) {
            0 => None,
            1 => Some(run.input::<T>(Self::BIAS)?.row(0)),
            count => {
                for k in 0..count {
                    room.bias.extend_from_slice(run.input_at::<T>(Self::BIAS, k)?.row(0));
                }
                Some(&room.bias[..])
            }
        };
        affine(x, weights, bias, out.into(), assign, &mut room.rounded, threads);
        *run.scratch().get::<Scratch<T>>() = room;
        Ok(())
    }

    fn gradients<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let dout = run.gradient_matrix::<T>(Self::OUT)?;
        let RunFacts { threads, unit, .. } = run.run();
        if let Some((dx, assign)) = run.gradient::<T>(Self::X)? {
            let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
            let weights = match run.prepared::<PackedMatrix<T>>() {
                Some(weights) => weights,
                None => {
                    pack(
                        &mut room.weights,
                        run.count(Self::WEIGHT),
                        |k| run.input_at(Self::WEIGHT, k),
                        (self.transposed, PackedFor::InputGradient),
                        (unit, threads),
                    )?;
                    &room.weights
                }
            };
            affine(dout, weights, None, dx.into(), assign, &mut room.rounded, threads);
            *run.scratch().get::<Scratch<T>>() = room;
        }
        let mut from = 0;
        for k in 0..run.count(Self::WEIGHT) {
            let spec = run.input_spec_at(Self::WEIGHT, k);
            let (_, width) = self.transposed.shape((spec.shape[0].known().unwrap_or(0), spec.width()));
            let to = from + width;
            let weight = match run.gradient_at::<T>(Self::WEIGHT, k)? {
                Some((dw, assign)) => Some((run.left_matrix::<T>(Self::X)?, (dw, assign, self.transposed))),
                None => None,
            };
            let mut bias = run.gradient_at::<T>(Self::BIAS, k)?;
            let bias = bias.as_mut().map(|(db, assign)| (db.row(0), *assign));
            let dout = dout.columns(from, to);
            affine_gradient(dout, weight, bias, unit, run.scratch().get(), threads);
            from = to;
        }
        Ok(())
    }
}
