//! `linear_cross_entropy`: computes `linear` and the `cross_entropy` of its output in one operator, which holds only a
//! chunk of the logits in memory.

use half::bf16;

use super::cross_entropy::{Target, log_sum_exp, smoothing};
use crate::kernels::{
    Cpu, GradientRoom, LeftMatrix, MatrixUnit, PackedMatrix, ResultMatrix, RoundedRows, SUM_ROWS, Transpose,
    WeightGradient, affine, affine_gradient, affine_gradient_bytes, boundary, cpu, helpers, join_measured,
    lengthen, most, rows_to_widen, widen_rows,
};
use crate::ops::lookup::ids::{self, Ids};
use crate::ops::prelude::*;
use columns::{LogitsRoom, by_columns, columns_at_once};

mod columns;
pub(in crate::ops) mod share;
#[cfg(test)]
mod traffic;

/// A chunk with fewer multiply-adds than this is not divided over threads.
const WORTH_DIVIDING: usize = 1 << 16;

/// From this number of bytes on, a training step does not pack all of W for the logits.
const LARGE: usize = 4 << 20;

/// Returns the number of rows of a chunk, for logits with `classes` columns. A chunk has enough rows to make the matrix products
/// take much longer than reading W. But a chunk has no more rows than one block of a product per thread, because more
/// rows would not save a pass over W. With few classes, a chunk may have more rows: up to 4096 rows with about a
/// million logits in total. To limit memory, a chunk has at most eight million logits, unless [`SUM_ROWS`] / 2 rows
/// have more logits. The number of rows of a chunk is a multiple of [`SUM_ROWS`], or half of [`SUM_ROWS`], so that sums
/// over rows have the same bits on every machine.
fn chunk_rows(cpu: Cpu, classes: usize, threads: usize) -> usize {
    let logits = |count: usize| count / classes.max(1);
    let most = logits(8 << 20) / SUM_ROWS * SUM_ROWS;
    if most == 0 {
        return SUM_ROWS / 2;
    }
    let blocks = (threads * cpu.product_rows() / SUM_ROWS * SUM_ROWS).max(SUM_ROWS);
    let rows = logits(1 << 20).min(4096).max(cpu.rows_for_a_pass().min(blocks));
    rows.next_multiple_of(SUM_ROWS).min(most)
}

operator! {
    /// Computes the cross-entropy of a softmax over a linear layer, and holds only a chunk of the logits in memory.
    ///
    /// loss = `cross_entropy`(x · W + b, labels), with x `[rows, in]`, W `[in, classes]`, b `[classes]` and the attributes of
    /// `cross_entropy`; with `transposed` the weight is Wᵀ, `[classes, in]`. The loss of a row depends on no other row.
    /// The share of each row, which is the row's weight in the mean loss, is computed by a separate operator,
    /// `cross_entropy_share`, which reads the labels but not the logits.
    ///
    /// The operator divides the rows of x into chunks, and computes one chunk after another. Sums over rows are
    /// computed in fixed blocks of rows, so the bits of these sums do not depend on the number of threads. For each
    /// chunk, the operator computes the losses, then the gradient of the logits, which replaces the logits in memory,
    /// and then the chunk's part of the gradients of x, W and b. A separate backward call would compute the logits
    /// again, so the compiler merges the forward and the backward call into one call, which computes the logits once.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0])?;
    /// let op = ops::catalogue().parse("linear_cross_entropy", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("x", Variable::sequences(array![[0.0], [0.0]], lod.clone())?),
    ///     Operand::constant("weight", array![[1.0, -1.0]]),
    ///     Operand::batch("labels", Variable::sequences(array![1i64, 0], lod)?),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [2f64.ln(), 2f64.ln()]); // both classes have the same logit
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub(in crate::ops) struct LinearCrossEntropy = linear_cross_entropy { ignore_index: Option<i64>, label_smoothing: f64 => smoothing, transposed: Transpose }
    inputs { X = x: one, WEIGHT = weight: one, BIAS = bias: optional, LABELS = labels: one.without_gradient(), CLASS_WEIGHTS = class_weights: optional.without_gradient() }
    outputs { LOSS = loss: one }
}

impl Op for LinearCrossEntropy {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        s.same_dtype(Self::X, Self::WEIGHT)?;
        let x = s.input(Self::X);
        let (inputs, classes) = sizes(s, Self::WEIGHT, self.transposed)?;
        if x.width() != inputs || x.shape.len() > 2 {
            let side = if self.transposed == Transpose::No { "height" } else { "width" };
            let expected = format!("rows of {inputs} numbers, since the {side} of `weight` is {inputs}");
            return Err(s.mismatch(Self::X, &expected));
        }
        if s.optional(Self::BIAS).is_some() {
            s.same_dtype(Self::X, Self::BIAS)?;
            s.constant(Self::BIAS, &[classes])?;
        }
        ids::check(s, Self::LABELS)?;
        s.same_rows(Self::X, Self::LABELS)?;
        if s.optional(Self::CLASS_WEIGHTS).is_some() {
            s.same_dtype(Self::X, Self::CLASS_WEIGHTS)?;
            s.constant(Self::CLASS_WEIGHTS, &[classes])?;
        }
        let mut loss = x.clone();
        loss.shape.truncate(1);
        s.set(Self::LOSS, loss);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let loss = run.output::<T>(Self::LOSS)?;
            let (x, weight, labels) = (run.left_matrix::<T>(Self::X)?, run.input::<T>(Self::WEIGHT)?, Ids::of(run, Self::LABELS)?);
            let shared = RowInputs {
                bias: run.optional::<T>(Self::BIAS)?.map(|bias| bias.row(0)),
                target: Target::new(self.ignore_index, self.label_smoothing, self.transposed.shape((weight.rows(), weight.width())).1, run.optional::<T>(Self::CLASS_WEIGHTS)?),
                labels: &labels,
            };
            let rows = Chunk { first: 0, x, loss: Some(loss), dloss: None, dx: None };
            let (RunFacts { threads, unit, .. }, prepared) = (run.run(), run.prepared::<Weights<T>>());
            let room = run.scratch().get::<Scratch<T>>();
            let products = Products { logits: true, inputs: false };
            let weights = room.weights.packed(prepared, weight, (self.transposed, unit, threads), products);
            let tools = Tools { threads, unit, logits: &mut room.logits, rooms: &mut room.rooms, gradient: &mut room.gradient };
            all(&shared, (weight, weights), rows, None, tools)
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let loss = run.result::<T>(Self::LOSS)?;
            let (dx, dw, db) = (run.gradient::<T>(Self::X)?, run.gradient::<T>(Self::WEIGHT)?, run.gradient::<T>(Self::BIAS)?);
            let Some(dloss) = run.output_gradient::<T>(Self::LOSS)? else {
                [dx, dw, db].into_iter().flatten().for_each(|(to, assign)| assign.put_nothing(to));
                return Ok(());
            };
            let (x, weight, labels) = (run.left_matrix::<T>(Self::X)?, run.input::<T>(Self::WEIGHT)?, Ids::of(run, Self::LABELS)?);
            let shared = RowInputs {
                bias: run.optional::<T>(Self::BIAS)?.map(|bias| bias.row(0)),
                target: Target::new(self.ignore_index, self.label_smoothing, self.transposed.shape((weight.rows(), weight.width())).1, run.optional::<T>(Self::CLASS_WEIGHTS)?),
                labels: &labels,
            };
            let (RunFacts { threads, unit, .. }, prepared) = (run.run(), run.prepared::<Weights<T>>());
            let room = run.scratch().get::<Scratch<T>>();
            let products = self.packed_products::<T>((weight.rows(), weight.width()), Pass::Backward, dx.is_some());
            let weights = room.weights.packed(prepared, weight, (self.transposed, unit, threads), products);
            let tools = Tools { threads, unit, logits: &mut room.logits, rooms: &mut room.rooms, gradient: &mut room.gradient };
            let rows = Chunk { first: 0, x, loss, dloss: Some(dloss), dx };
            let dw = dw.map(|(dw, assign)| (dw, assign, self.transposed));
            all(&shared, (weight, weights), rows, Some(Sums { dw, db }), tools)
        })
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing()
            .input(Self::X)
            .input(Self::WEIGHT)
            .input(Self::BIAS)
            .input(Self::LABELS)
            .input(Self::CLASS_WEIGHTS)
    }

    fn hints(&self) -> Hints {
        Hints { prepares: true, joins: true, multiplies: true, takes_bf16: &["x"], ..Hints::default() }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        with_float!(sizes.dtype(Self::X), T => Ok(self.memory_of::<T>(sizes))).unwrap_or_default()
    }

    fn prepare(&self, prepare: &mut Prepare<'_>) -> Result<()> {
        with_float!(prepare.dtype(Self::X), T => {
            if let Some(weight) = prepare.constant::<T>(Self::WEIGHT) {
                let shape = (weight.rows(), weight.width());
                let products = self.packed_products::<T>(shape, prepare.pass(), prepare.wants(Self::X));
                let how = (self.transposed, prepare.unit(), prepare.threads());
                prepare.keep::<Weights<T>>().pack(weight, how, products);
            }
            Ok(())
        })
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let (rows, _) = work.input(Self::X);
        let (height, classes) = self.transposed.shape(work.input(Self::WEIGHT));
        let products = 1 + u64::from(work.wants(Self::X)) + u64::from(work.wants(Self::WEIGHT));
        let bias = u64::from(work.wants(Self::BIAS)) * rows * classes;
        Cost { flops: products * 2 * rows * height * classes + bias, ..work.touched() }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let plain = Attributes::new();
        let options = |ignore_index, label_smoothing, transposed| {
            LinearCrossEntropy { ignore_index, label_smoothing, transposed }.attributes()
        };
        let smooth = options(Some(-1), 0.2, Transpose::No);
        let weight = array![[0.3, -0.7, 0.9], [1.1, 0.2, -0.6]];
        let sample = |name: &str,
                      lengths: &[Vec<usize>],
                      labels: &[i64],
                      attributes: &Attributes|
         -> Result<CheckCase> {
            let lod = Lod::from_lengths(lengths)?;
            Ok(CheckCase::new(name, attributes.clone())
                .batch("x", Variable::sequences(numbers(labels.len(), 2, 0), lod.clone())?)
                .constant("weight", weight.clone())
                .batch("labels", Variable::sequences(Array1::from(labels.to_vec()), lod)?))
        };
        let bias = |sample: CheckCase| sample.constant("bias", array![0.5, -0.25, 0.1]);
        let class_weights = |sample: CheckCase| sample.constant("class_weights", array![0.5, 1.0, 2.0]);
        let samples = [
            sample("sequences with an empty one", &[vec![2, 0, 1]], &[2, 0, 1], &plain),
            sample("with a bias", &[vec![3]], &[0, 1, 2], &plain).map(bias),
            sample("smoothed, weighted, one ignored", &[vec![2, 0, 2]], &[2, -1, 1, 0], &smooth)
                .map(bias)
                .map(class_weights),
            sample("two levels", &[vec![2, 0, 1], vec![1, 0, 3]], &[2, 1, 1, 0], &plain).map(class_weights),
            sample("all empty", &[vec![0, 0]], &[], &plain).map(bias),
            sample("none", &[vec![]], &[], &smooth),
        ];
        let mut samples: Vec<CheckCase> = samples.into_iter().collect::<Result<_>>()?;
        let turned = |sample: &CheckCase, attributes: Attributes| {
            let mut turned = CheckCase { attributes, ..sample.clone() };
            turned.name += ", transposed";
            let weights = turned.operands.iter_mut().filter(|o| o.slot == "weight");
            weights.for_each(|o| o.value = Variable::from(weight.t().to_owned()));
            turned
        };
        let transposed = [
            turned(&samples[1], options(None, 0.0, Transpose::Yes)),
            turned(&samples[2], options(Some(-1), 0.2, Transpose::Yes)),
            turned(&samples[4], options(None, 0.0, Transpose::Yes)),
        ];
        samples.extend(transposed);
        Ok(samples)
    }
}

impl LinearCrossEntropy {
    /// Returns the products for which a call packs all of W; `shape` is the shape of W as stored. A training step with a large
    /// W does not pack W for the logits: it packs a few columns at a time, again for each chunk. Copying rows of W costs
    /// little beside the products, and the packed copy would take as much memory as W.
    fn packed_products<T: Float>(&self, shape: (usize, usize), pass: Pass, wants_inputs: bool) -> Products {
        let (height, classes) = self.transposed.shape(shape);
        let large = PackedMatrix::<T>::bytes_of(MatrixUnit::F32, height, classes) >= LARGE;
        let whole = !large || self.transposed == Transpose::Yes || pass == Pass::Forward;
        Products { logits: whole, inputs: pass == Pass::Backward && wants_inputs }
    }

    fn memory_of<T: RowValue>(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (height, classes) = self.transposed.shape(sizes.input(Self::WEIGHT));
        let ((rows, _), unit, threads) = (sizes.input(Self::X), sizes.unit(), sizes.threads());
        let products =
            self.packed_products::<T>(sizes.input(Self::WEIGHT), sizes.pass(), sizes.wants(Self::X));
        let packed = |wanted, bytes| if wanted { bytes } else { 0 };
        let prepared = packed(products.logits, PackedMatrix::<T>::bytes_of(unit, height, classes))
            + packed(products.inputs, PackedMatrix::<T>::bytes_of(unit, classes, height));
        let chunk = chunk_rows(cpu(), classes, threads).min(rows);
        let columns = match products.logits {
            true => 0,
            false => threads * PackedMatrix::<T>::bytes_of(unit, height, columns_at_once(cpu(), height)),
        };
        // The gradients of the logits are in bf16 whenever a product rounds.
        let lie = RoundedRows::<T>::reads_pairs(unit, classes);
        let read = if products.inputs && !lie { classes } else { 0 };
        let rounded = |rows: usize, k| threads * RoundedRows::<T>::bytes_of(unit, rows, k);
        let rounded = rounded(most(chunk, threads), read).max(rounded(chunk, height));
        let gradient = match sizes.pass() {
            Pass::Backward => affine_gradient_bytes::<T>(unit, (height, classes), self.transposed, threads),
            Pass::Forward => 0,
        };
        let (number, wide) = match RoundedRows::<T>::rounds(unit) {
            true => {
                (size_of::<bf16>(), threads * rows_to_widen(classes).min(chunk) * classes * size_of::<T>())
            }
            false => (size_of::<T>(), 0),
        };
        let unprepared = if sizes.is_prepared() { 0 } else { prepared };
        CallMemory::prepared(prepared)
            .scratch::<Scratch<T>>(unprepared)
            .scratch::<Scratch<T>>(chunk * classes * number)
            .scratch::<Scratch<T>>(columns + rounded + wide)
            .scratch::<Scratch<T>>(gradient)
    }
}

/// Returns the number of inputs and the number of classes of a weight.
fn sizes(s: &InferShape<'_>, slot: usize, transposed: Transpose) -> Result<(usize, usize)> {
    match *s.input(slot).shape.as_slice() {
        [Extent::Known(rows), Extent::Known(columns)] => Ok(transposed.shape((rows, columns))),
        _ if transposed == Transpose::No => Err(s.mismatch(slot, "a constant of shape [in, classes]")),
        _ => Err(s.mismatch(slot, "a constant of shape [classes, in]")),
    }
}

/// The matrix products for which all of W is packed.
#[derive(Clone, Copy)]
struct Products {
    /// The product that computes the logits.
    logits: bool,
    /// The product that computes the gradient of x.
    inputs: bool,
}

/// The weight W, packed for the product that computes the logits and, transposed, for the product that computes the gradient of
/// x. Each is `None` if it is not packed.
#[derive(Default)]
struct Weights<T: Float> {
    logits: Option<PackedMatrix<T>>,
    inputs: Option<PackedMatrix<T>>,
}

impl<T: Float> Weights<T> {
    fn pack(&mut self, weight: View<'_, T>, how: (Transpose, MatrixUnit, usize), products: Products) {
        let (transposed, unit, threads) = how;
        let put = |packed: &mut Option<PackedMatrix<T>>, wanted: bool, transpose| match wanted {
            true => {
                let packed = packed.get_or_insert_default();
                packed.set_unit(unit);
                packed.pack(weight, transpose, threads);
            }
            false => *packed = None,
        };
        put(&mut self.logits, products.logits, transposed);
        put(&mut self.inputs, products.inputs, transposed.other());
    }

    /// Returns the packed weights `before` or, if `before` is `None`, packs `weight` and returns the result.
    fn packed<'a>(
        &'a mut self,
        before: Option<&'a Self>,
        weight: View<'_, T>,
        how: (Transpose, MatrixUnit, usize),
        products: Products,
    ) -> &'a Self {
        if let Some(weights) = before {
            return weights;
        }
        self.pack(weight, how, products);
        self
    }
}

/// Scratch memory of a call: the logits of a chunk, the memory of each thread, the packed operands of products, and the packed
/// weights if the caller has not packed the weights.
#[derive(Default)]
struct Scratch<T: Float> {
    weights: Weights<T>,
    logits: LogitsMemory<T>,
    rooms: Vec<LogitsRoom<T>>,
    gradient: GradientRoom<T>,
}

/// The memory for the logits of a chunk. If the products compute in bf16, the logits are rounded to bf16, and so is their gradient,
/// which only products read. A loss is then computed from the rounded logits.
#[derive(Default)]
struct LogitsMemory<T> {
    full: Vec<T>,
    rounded: Vec<bf16>,
}

impl<T: Float> LogitsMemory<T> {
    fn rows(&mut self, rows: usize, classes: usize, unit: MatrixUnit) -> ResultMatrix<'_, T> {
        if RoundedRows::<T>::rounds(unit) {
            lengthen(&mut self.rounded, rows * classes);
            return ResultMatrix::Rounded(ViewMut::new(&mut self.rounded, rows, classes));
        }
        lengthen(&mut self.full, rows * classes);
        ResultMatrix::Full(ViewMut::new(&mut self.full, rows, classes))
    }
}

/// The number of threads and the buffers of a call.
struct Tools<'a, T: Float> {
    threads: usize,
    unit: MatrixUnit,
    logits: &'a mut LogitsMemory<T>,
    rooms: &'a mut Vec<LogitsRoom<T>>,
    gradient: &'a mut GradientRoom<T>,
}

/// The inputs that all rows share: bias, target distribution and labels.
struct RowInputs<'a, T> {
    bias: Option<&'a [T]>,
    target: Target<'a, T>,
    labels: &'a Ids<'a>,
}

/// A range of rows of a call, with the part of each variable in this range.
struct Chunk<'a, T> {
    /// The index of the chunk's first row among all rows of the call.
    first: usize,
    x: LeftMatrix<'a, T>,
    loss: Option<ViewMut<'a, T>>,
    dloss: Option<View<'a, T>>,
    dx: Option<(ViewMut<'a, T>, Assign)>,
}

impl<'a, T> Chunk<'a, T> {
    fn rows(&self) -> usize {
        self.x.rows()
    }

    fn split(self, at: usize) -> (Self, Self) {
        let Self { first, x, loss, dloss, dx } = self;
        let rows = x.rows();
        let (loss, loss_after) = loss.map(|loss| loss.split_rows(at)).unzip();
        let dx = dx.map(|(dx, assign)| (dx.split_rows(at), assign));
        let (dx, dx_after) = dx.map(|((dx, after), assign)| ((dx, assign), (after, assign))).unzip();
        let dloss_after = dloss.as_ref().map(|d| d.rows_range(at, rows));
        let dloss = dloss.map(|d| d.rows_range(0, at));
        (
            Self { first, x: x.rows_range(0, at), loss, dloss, dx },
            Self {
                first: first + at,
                x: x.rows_range(at, rows),
                loss: loss_after,
                dloss: dloss_after,
                dx: dx_after,
            },
        )
    }
}

/// The gradients of W and b, which are sums over all rows; `None` for a gradient that is not requested.
struct Sums<'a, T> {
    dw: Option<WeightGradient<'a, T>>,
    db: Option<(ViewMut<'a, T>, Assign)>,
}

/// Computes the losses and requested gradients of all rows, chunk by chunk.
fn all<T: RowValue>(
    shared: &RowInputs<'_, T>,
    (weight, weights): (View<'_, T>, &Weights<T>),
    rows: Chunk<'_, T>,
    mut sums: Option<Sums<'_, T>>,
    tools: Tools<'_, T>,
) -> Result<()> {
    let Tools { threads, unit, logits: room, rooms, gradient } = tools;
    // A W that is not packed for the logits is not transposed.
    let classes = weights.logits.as_ref().map_or(weight.width(), PackedMatrix::n);
    let most = chunk_rows(cpu(), classes, threads).min(rows.rows());
    let mut rest = rows;
    // The loop runs at least once, so that the gradients of W and b are written even if there are no rows.
    loop {
        let count = most.min(rest.rows());
        let (chunk, after) = rest.split(count);
        let x = chunk.x;
        let mut logits = room.rows(count, classes, unit);
        let parts = helpers(count * x.width() * classes, WORTH_DIVIDING, threads);
        rooms.resize_with(parts.max(rooms.len()), LogitsRoom::default);
        let rooms = &mut rooms[..parts];
        if weights.logits.is_none() {
            rooms.iter_mut().for_each(|room| room.columns.set_unit(unit));
            by_columns(x, weight, shared.bias, logits.reborrow(), rooms);
        }
        take(shared, weights, chunk, logits.reborrow(), rooms)?;
        if let Some(sums) = &mut sums {
            add(x, logits.as_left(), sums, (unit, gradient), threads);
        }
        if after.rows() == 0 {
            return Ok(());
        }
        rest = after;
    }
}

/// Computes the losses of a chunk's rows and, if W is packed for the logits, the logits before; the rows are divided among
/// threads. If the gradient of the losses is given, replaces the numbers of `logits` by the gradient of the logits, and computes
/// the gradient of x.
fn take<T: RowValue>(
    shared: &RowInputs<'_, T>,
    weights: &Weights<T>,
    rows: Chunk<'_, T>,
    mut logits: ResultMatrix<'_, T>,
    rooms: &mut [LogitsRoom<T>],
) -> Result<()> {
    let threads = rooms.len();
    if threads > 1 && rows.rows() > 1 {
        let (left, right) = rooms.split_at_mut(threads / 2);
        let middle = boundary(rows.rows(), left.len(), threads);
        let measured = (middle, rows.rows());
        let (above, below) = rows.split(middle);
        let (logits_above, logits_below) = logits.split_rows(middle);
        let (a, b) = join_measured(
            measured,
            || take(shared, weights, above, logits_above, left),
            || take(shared, weights, below, logits_below, right),
        );
        // If both halves fail, the error of the first half is returned, since it names the smaller row number.
        return a.and(b);
    }
    if let Some(weights) = &weights.logits {
        affine(rows.x, weights, shared.bias, logits.reborrow(), Assign::Write, &mut rooms[0].rounded, 1);
    }
    let Chunk { first, mut loss, dloss, dx, .. } = rows;
    match logits.reborrow() {
        ResultMatrix::Full(logits) => sweep(Losses { shared, first, logits, loss, dloss })?,
        ResultMatrix::Rounded(mut logits) => {
            let wide = &mut rooms[0].wide;
            let (rows, classes) = (logits.rows(), logits.width());
            let most = rows_to_widen(classes).min(rows);
            lengthen(wide, most * classes);
            for start in (0..rows).step_by(most.max(1)) {
                let end = rows.min(start + most);
                let mut wide = ViewMut::new(wide, end - start, classes);
                let some = logits.reborrow().rows_range(start, end);
                widen_rows(some.as_view(), wide.reborrow());
                let loss = loss.as_mut().map(|loss| loss.reborrow().rows_range(start, end));
                let dloss = dloss.map(|dloss| dloss.rows_range(start, end));
                sweep(Losses { shared, first: first + start, logits: wide.reborrow(), loss, dloss })?;
                if dloss.is_some() {
                    T::round_to_bf16(wide.as_view(), some);
                }
            }
        }
    }
    if let (Some((dx, assign)), Some(weights)) = (dx, &weights.inputs) {
        affine(logits.as_left(), weights, None, dx.into(), assign, &mut rooms[0].rounded, 1);
    }
    Ok(())
}

/// Adds a chunk's part to the gradients of W and b, or writes the part if `assign` is `Write`. Then sets `assign` to `Add` for
/// the next chunk.
fn add<T: RowValue>(
    x: LeftMatrix<'_, T>,
    dlogits: LeftMatrix<'_, T>,
    sums: &mut Sums<'_, T>,
    (unit, room): (MatrixUnit, &mut GradientRoom<T>),
    threads: usize,
) {
    let after = |assign: &mut Assign| std::mem::replace(assign, Assign::Add);
    let weight = sums.dw.as_mut().map(|(dw, assign, turn)| (x, (dw.reborrow(), after(assign), *turn)));
    let bias = sums.db.as_mut().map(|(db, assign)| (db.row(0), after(assign)));
    affine_gradient(dlogits, weight, bias, unit, room, threads);
}

/// Computes the losses of a chunk from the logits and, if requested, replaces the logits by their gradient.
struct Losses<'a, T> {
    shared: &'a RowInputs<'a, T>,
    first: usize,
    logits: ViewMut<'a, T>,
    loss: Option<ViewMut<'a, T>>,
    dloss: Option<View<'a, T>>,
}

impl<T: Float> Sweep for Losses<'_, T> {
    type Output = Result<()>;
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) -> Result<()> {
        let RowInputs { target, labels, .. } = self.shared;
        for (row, logits) in self.logits.iter_mut().enumerate() {
            let class = target.class(labels, self.first + row)?;
            let total = if class.is_some() { log_sum_exp::<T, A>(logits) } else { T::ZERO };
            if let Some(losses) = &mut self.loss {
                losses.row(row)[0] = class.map_or(T::ZERO, |class| target.loss(logits, total, class));
            }
            match (class, self.dloss) {
                (Some(class), Some(dloss)) => {
                    target.slopes::<A>((total, class, dloss.row(row)[0]), 0, logits);
                }
                (None, Some(_)) => logits.fill(T::ZERO),
                (_, None) => {}
            }
        }
        Ok(())
    }
}
