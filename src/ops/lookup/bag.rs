//! `embedding_bag`: for each bag of ids, pools the table rows that the ids name. Rows of a dense table are not copied.

use super::ids::{self, Ids, below};
use crate::kernels::{
    BagGradient, BagPool, BagShare, BagTarget, Bags, RowMerge, bag_factor_gradient, bag_first_maximum,
    bag_forward, emptied, join,
};
use crate::operator::RowTable;
use crate::operator::attributes::{Attribute, or_default};
use crate::ops::prelude::*;

/// Options of [`Builder::lookup_bag`](crate::Builder::lookup_bag); by default the pool is the sum of all rows of a bag, and the
/// table's gradient is dense.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LookupBag {
    pub(crate) pool: BagPool,
    pub(crate) weights: Option<Var>,
    pub(crate) padding_id: Option<i64>,
    pub(crate) gradient: StorageKind,
}

impl LookupBag {
    /// Pooling: the sum, mean or maximum of the rows of a bag (default: sum).
    #[must_use]
    pub fn pool(self, pool: BagPool) -> Self {
        Self { pool, ..self }
    }

    /// Weights: a factor for the row of each id, applied before the sum; the variable has one number per id and the LoD of the
    /// ids (default: 1).
    #[must_use]
    pub fn weights(self, weights: impl Into<Option<Var>>) -> Self {
        Self { weights: weights.into(), ..self }
    }

    /// Padding: the id that is skipped in every bag (default: none).
    #[must_use]
    pub fn padding_id(self, padding_id: impl Into<Option<i64>>) -> Self {
        Self { padding_id: padding_id.into(), ..self }
    }

    /// Storage of the table's gradient: dense (default), or selected rows, with one row for each id that occurs.
    #[must_use]
    pub fn gradient(self, gradient: StorageKind) -> Self {
        Self { gradient, ..self }
    }
}

operator! {
    /// Pools the rows of `table` `[height, width]` that the ids of each bag name; the output has one row per bag. A bag is a
    /// sequence of the last level of `ids`. The rows of a dense table are not copied before they are pooled. The layer
    /// [`embedding_bag`](Self::embedding_bag) creates the table.
    ///
    /// For a bag with the ids i_1 … i_n and the weights w_1 … w_n, and the table W:
    ///
    /// | pool | out, of a bag | gradient of W\[i\], over the positions k with i_k = i |
    /// |---|---|---|
    /// | sum | Σ_k w_k · W\[i_k\] | Σ_k w_k · d |
    /// | mean | Σ_k W\[i_k\] / n | Σ_k d / n |
    /// | max | the largest number of each column; NaN counts as the largest | d where k is the first maximum, else 0 |
    ///
    /// In the gradients, d is the gradient of out. Without weights, every w_k is 1. With weights, only the sum is allowed as
    /// the pool: a weighted mean could be Σ w x / n or Σ w x / Σ w, and other operators can compute either mean from the sum.
    /// The gradient of the weight w_k is d · W\[i_k\].
    ///
    /// The ids are whole numbers, i64 or i32, one per row, of shape `[rows]` or `[rows, 1]`; the weights are one number per row
    /// of the ids, in the dtype of the table. For an empty bag, the output row is zeros. If `padding_id` is set, this id is
    /// skipped in every bag: it is not counted in a mean, and its row and its weight get no gradient. The output has the LoD of
    /// the ids without its last level.
    ///
    /// The gradient of a table row is a sum with one term per occurrence of the row's id, added first to last. If the gradient is
    /// stored as selected rows, it has one row for each id that occurs, in ascending order; the cost of this gradient does not
    /// depend on the height of the table. `table` may be a [row-sparse parameter](crate::Builder::row_sparse_parameter), whose
    /// gradient is always stored as selected rows.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Variable, ops};
    /// let op = ops::catalogue().parse("embedding_bag", &Attributes::new().with("pool", "mean"))?;
    /// let table = array![[0.0, 0.5], [1.0, 1.5], [2.0, 2.5]];
    /// let out = op.clone().call(&[
    ///     Operand::batch("ids", Variable::from_sequences(&[vec![2i64, 0], vec![], vec![2]])?),
    ///     Operand::constant("table", table.clone()),
    /// ])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 1.5, 0.0, 0.0, 2.0, 2.5]);
    ///
    /// let ids = Variable::from_sequences(&[vec![0i64], vec![1, 3]])?;
    /// let error = op.call(&[Operand::batch("ids", ids), Operand::constant("table", table)]).unwrap_err();
    /// let message = "variable `table`: id of sample 1, position 1: expected at least 0 and below 3, the height, got 3";
    /// assert!(error.to_string().starts_with(message), "{error}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if `ids` are not whole numbers, one per row, or have no LoD; if `table` is not a matrix of floats; if
    /// there is not one weight per row of the ids; or if there are weights and the pool is not the sum.
    #[doc(alias = "EmbeddingBag")]
    pub(in crate::ops) struct EmbeddingBag = embedding_bag {
        pool: BagPool,
        padding_id: Option<i64>,
        gradient: StorageKind => table_gradient,
    }
    inputs { IDS = ids: one.without_gradient(), TABLE = table: one.table(), WEIGHTS = weights: optional }
    outputs { OUT = out: one }
    impl Builder, Var {
        fn lookup_bag(&self, ids: Var, table: Var, options: LookupBag) -> Var {
            let LookupBag { pool, weights, padding_id, gradient } = options;
        }
    }
}

/// Reads the attribute that names the storage of the table's gradient, dense or selected rows; a missing attribute means dense.
fn table_gradient(attributes: &Attributes, name: &str) -> Result<StorageKind> {
    match or_default(attributes, name, StorageKind::Dense)? {
        storage @ (StorageKind::Dense | StorageKind::SelectedRows) => Ok(storage),
        other => {
            let (what, expected) = (format!("attribute `{name}`"), "dense or selected_rows");
            Err(Error::of(ErrorKind::Program, what, expected, other.name()))
        }
    }
}

const POOLS: [BagPool; 3] = [BagPool::Sum, BagPool::Mean, BagPool::Max];

fn pool_name(pool: BagPool) -> &'static str {
    match pool {
        BagPool::Sum => "sum",
        BagPool::Mean => "mean",
        BagPool::Max => "max",
    }
}

impl Attribute for BagPool {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        let text = attributes.text(name)?;
        POOLS.into_iter().find(|&pool| pool_name(pool) == text).ok_or_else(|| {
            let names = format!("one of {}", POOLS.map(pool_name).join(", "));
            Error::of(ErrorKind::Program, format!("attribute `{name}`"), names, format!("{text:?}"))
        })
    }

    fn write(&self, attributes: &mut Attributes, name: &str) {
        attributes.set(name, pool_name(*self));
    }
}

impl Op for EmbeddingBag {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(Self::IDS))
    }

    fn memory(&self, s: &CallSizes<'_>) -> CallMemory {
        with_float!(s.dtype(Self::TABLE), T => Ok(self.memory_of::<T>(s))).unwrap_or_default()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        ids::check(s, Self::IDS)?;
        s.has_lod(Self::IDS)?;
        s.is_float(Self::TABLE)?;
        let (ids, table) = (s.input(Self::IDS), s.input(Self::TABLE));
        let &[Extent::Known(height), Extent::Known(width)] = table.shape.as_slice() else {
            return Err(s.mismatch(Self::TABLE, "a constant of shape [height, width]"));
        };
        if let Some(id) = self.padding_id.filter(|&id| ids::index(id, height).is_none()) {
            return Err(Error::new("attribute `padding_id`", below(height), id.to_string()));
        }
        if let Some(weights) = s.optional(Self::WEIGHTS) {
            if self.pool != BagPool::Sum {
                let got = format!("weights and the pool {}", pool_name(self.pool));
                return Err(Error::new("input `weights`", "no weights, or the pool sum", got));
            }
            s.same_dtype(Self::TABLE, Self::WEIGHTS)?;
            s.same_rows(Self::IDS, Self::WEIGHTS)?;
            if !weights.batched() || weights.width() != 1 || weights.shape.len() > 2 {
                return Err(s.mismatch(Self::WEIGHTS, "one number for each row, shape [rows] or [rows, 1]"));
            }
        }
        let out = ids.with_dtype(table.dtype).with_width(width).drop_level(s.top())?;
        s.set(Self::OUT, out);
        Ok(())
    }

    float_passes!(Self::TABLE, T: (self, run) => self.pooled::<T>(run), self.gradients::<T>(run));

    fn rows_read(&self, table: usize) -> Option<usize> {
        (table == Self::TABLE).then_some(Self::IDS)
    }

    fn stored_gradient(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[Self::IDS])
    }

    fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
        let gradient = Gradient::reads_nothing().input(Self::IDS);
        if wrt == Self::WEIGHTS {
            return gradient.input(Self::TABLE);
        }
        let dense = inputs[Self::TABLE][0].storage == StorageKind::Dense;
        let gradient = gradient.stored(if dense { self.gradient } else { StorageKind::SelectedRows });
        let gradient = if self.pool == BagPool::Max { gradient.input(Self::TABLE) } else { gradient };
        if inputs[Self::WEIGHTS].is_empty() { gradient } else { gradient.input(Self::WEIGHTS) }
    }

    fn hints(&self) -> Hints {
        Hints { separate_gradients: true, ..Hints::default() }
    }

    fn cost(&self, work: &Work<'_>) -> Cost {
        let (touched, (ids, _), (_, width)) =
            (work.touched(), work.input(Self::IDS), work.input(Self::TABLE));
        match work.pass() {
            // The operator reads from the table only the rows that the ids name.
            Pass::Forward => {
                let (bags, _) = work.output(Self::OUT);
                let size = touched.written.checked_div(bags * width).unwrap_or(0);
                Cost { flops: ids * width, read: ids * width * size, ..touched }
            }
            Pass::Backward => Cost { flops: ids * width, ..touched },
        }
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples()
    }
}

/// Scratch memory, which the next call reuses: the ids of a call, the factor of each id, and the bag of each id.
#[derive(Default)]
struct Scratch<T> {
    /// All ids except the padding id, bag by bag; `starts` holds the start of each bag as an index in this list, followed by
    /// the length of this list.
    rows: Vec<i64>,
    starts: Vec<usize>,
    /// The distinct rows that the ids name, if the table is row-sparse; `places` holds, for each id, the index of the id's row in
    /// `gathered`.
    gathered: Vec<T>,
    places: Vec<i64>,
    /// For each id, the factor of the id's row in the sum; the list is empty if every factor is 1.
    factors: Vec<T>,
    /// For each id, the index of the bag that contains the id.
    bags: Vec<u32>,
    plan: RowMerge,
    /// For each bag and each column, the index in `rows` of the id with the first maximum; `best` holds the maximum.
    which: Vec<u32>,
    best: Vec<T>,
}

impl<T: Float> Scratch<T> {
    /// Returns the dense table, with the ids as row indices; if `dense` is `None`, returns the gathered rows, with the index of
    /// each id's row in them.
    fn table<'a>(&'a self, dense: Option<View<'a, T>>, width: usize) -> (View<'a, T>, &'a [i64]) {
        match dense {
            Some(table) => (table, &self.rows),
            None => (View::new(&self.gathered, self.plan.ids().len(), width), &self.places),
        }
    }

    /// Collects all ids except the padding id; returns an error if an id names no row of the table.
    fn collect(
        &mut self,
        op: &EmbeddingBag,
        ids: &Ids<'_>,
        sequences: Sequences<'_>,
        height: usize,
    ) -> Result<()> {
        let found = match ids {
            Ids::I32(ids) => self.gather(op, *ids, sequences, height),
            Ids::I64(ids) => self.gather(op, *ids, sequences, height),
        };
        match found {
            Ok(()) => Ok(()),
            Err(row) => ids.index(row, height, "table").map(drop),
        }
    }

    /// Collects all ids except the padding id; the error is the row of the first id that names no row of the table.
    fn gather<I: Copy + Into<i64>>(
        &mut self,
        op: &EmbeddingBag,
        ids: View<'_, I>,
        sequences: Sequences<'_>,
        height: usize,
    ) -> std::result::Result<(), usize> {
        let Self { rows, starts, factors, .. } = self;
        factors.clear();
        emptied(rows, ids.rows());
        emptied(starts, sequences.len() + 1).push(0);
        for sequence in sequences.iter() {
            for row in sequence {
                let id = ids.row(row)[0].into();
                if op.padding_id == Some(id) {
                    continue;
                }
                if ids::index(id, height).is_none() {
                    return Err(row);
                }
                rows.push(id);
            }
            starts.push(rows.len());
        }
        Ok(())
    }

    /// Collects the weights of all ids except the padding id; does nothing if there are no weights.
    fn weigh(&mut self, op: &EmbeddingBag, ids: &Ids<'_>, weights: Option<View<'_, T>>) {
        let Some(weights) = weights else { return };
        let kept = weights.iter().enumerate().filter(|(row, _)| op.padding_id != Some(ids.get(*row)));
        emptied(&mut self.factors, weights.rows()).extend(kept.map(|(_, weight)| weight[0]));
    }

    /// Prepares the gradient of the table: computes the bag of each id and, if the pool is the mean, the factor 1 / n of each
    /// id.
    fn share(&mut self, op: &EmbeddingBag) -> Result<()> {
        let Self { rows, starts, factors, bags, plan, .. } = self;
        check_count(rows.len().max(starts.len()))?;
        plan.prepare(rows);
        emptied(bags, rows.len());
        if op.pool == BagPool::Mean {
            emptied(factors, rows.len());
        }
        for (bag, range) in starts.windows(2).enumerate() {
            let count = range[1] - range[0];
            bags.extend(std::iter::repeat_n(bag as u32, count));
            if op.pool == BagPool::Mean {
                let part = T::ONE / T::from_f64(count as f64);
                factors.extend(std::iter::repeat_n(part, count));
            }
        }
        Ok(())
    }

    /// Finds the id with the first maximum, for each bag and each column.
    fn find_maxima(&mut self, dense: Option<View<'_, T>>, width: usize) {
        let count = self.starts.len() - 1;
        let (mut which, mut best) = (std::mem::take(&mut self.which), std::mem::take(&mut self.best));
        emptied(&mut which, count * width).resize(count * width, 0);
        emptied(&mut best, count * width).resize(count * width, T::ZERO);
        let (table, rows) = self.table(dense, width);
        let bags = Bags { rows, starts: &self.starts, factors: None };
        bag_first_maximum(bags, table, &mut which, ViewMut::new(&mut best, count, width));
        (self.which, self.best) = (which, best);
    }
}

impl<T: RowValue> Scratch<T> {
    /// Copies the rows that the ids name from a row-sparse table to `gathered`.
    fn gather_rows(&mut self, table: &RowTable) -> Result<()> {
        let Self { rows, plan, gathered, places, .. } = self;
        check_count(rows.len())?;
        plan.prepare(rows);
        let (table, width) = (table.rows::<T>()?, table.width());
        emptied(gathered, plan.ids().len() * width).resize(plan.ids().len() * width, T::ZERO);
        for (&id, row) in plan.ids().iter().zip(gathered.chunks_exact_mut(width.max(1))) {
            table.read(id, row);
        }
        let index = |id: &i64| plan.ids().binary_search(id).map_or(0, |index| index as i64);
        emptied(places, rows.len()).extend(rows.iter().map(index));
        Ok(())
    }
}

/// Returns an error if the number of ids is 2³² or more, because ids and bags are numbered with `u32`.
fn check_count(ids: usize) -> Result<()> {
    match u32::try_from(ids) {
        Ok(_) => Ok(()),
        Err(_) => Err(Error::new("ids of a batch", "fewer than 2^32", ids.to_string())),
    }
}

impl EmbeddingBag {
    fn memory_of<T: RowValue>(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let ((ids, _), (bags, width)) = (sizes.input(Self::IDS), sizes.output(Self::OUT));
        let (word, number, index) = (size_of::<i64>(), size_of::<T>(), size_of::<u32>());
        let (backward, by_rows) = (sizes.pass() == Pass::Backward, sizes.is_table(Self::TABLE));
        let some = |wanted: bool, bytes: usize| if wanted { bytes } else { 0 };
        let factors = sizes.count(Self::WEIGHTS) > 0 || backward && self.pool == BagPool::Mean;
        CallMemory::default()
            .scratch::<Scratch<T>>((ids + bags + 1) * word + some(backward, ids * index))
            .scratch::<Scratch<T>>(some(by_rows, ids * (width * number + word)))
            .scratch::<Scratch<T>>(some(by_rows || backward, ids * RowMerge::BYTES_PER_ROW))
            .scratch::<Scratch<T>>(some(factors, ids * number))
            .scratch::<Scratch<T>>(some(
                backward && self.pool == BagPool::Max,
                bags * width * (number + index),
            ))
            .bounded(by_rows)
    }

    fn pooled<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
        let result = self.pool_all(run, &mut room);
        *run.scratch().get::<Scratch<T>>() = room;
        result
    }

    fn pool_all<T: RowValue>(&self, run: &mut Forward<'_>, room: &mut Scratch<T>) -> Result<()> {
        let ids = Ids::of(run, Self::IDS)?;
        let (weights, out) = (run.optional::<T>(Self::WEIGHTS)?, run.output::<T>(Self::OUT)?);
        let (sequences, by_rows) = (run.sequences(Self::IDS)?, run.table(Self::TABLE));
        let dense = if by_rows.is_none() { Some(run.input::<T>(Self::TABLE)?) } else { None };
        let height = run.input_spec(Self::TABLE).shape[0].known().unwrap_or(0);
        room.collect(self, &ids, sequences, height)?;
        room.weigh(self, &ids, weights);
        if let Some(table) = by_rows {
            room.gather_rows(table)?;
        }
        let factors = (!room.factors.is_empty()).then_some(room.factors.as_slice());
        let (table, rows) = room.table(dense, out.width());
        bag_forward(self.pool, Bags { rows, starts: &room.starts, factors }, table, out);
        Ok(())
    }

    fn gradients<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let mut room = std::mem::take(run.scratch().get::<Scratch<T>>());
        let result = self.all_gradients(run, &mut room);
        *run.scratch().get::<Scratch<T>>() = room;
        result
    }

    fn all_gradients<T: RowValue>(&self, run: &mut Backward<'_>, room: &mut Scratch<T>) -> Result<()> {
        let dout = run.dout::<T>(Self::OUT)?;
        let ids = Ids::of(run, Self::IDS)?;
        let height = run.input_spec(Self::TABLE).shape[0].known().unwrap_or(0);
        room.collect(self, &ids, run.sequences(Self::IDS)?, height)?;
        // The backward pass reads the numbers of the table only for the gradient of the weights and for maxima.
        let (by_rows, width) = (run.table(Self::TABLE), dout.width());
        let reads = self.pool == BagPool::Max || run.wants(Self::WEIGHTS);
        if let Some(table) = by_rows.filter(|_| reads) {
            room.gather_rows(table)?;
        }
        let dense = if by_rows.is_none() && reads { Some(run.input::<T>(Self::TABLE)?) } else { None };
        if let Some((dweights, assign)) = run.gradient::<T>(Self::WEIGHTS)? {
            let mut factors = std::mem::take(&mut room.factors);
            emptied(&mut factors, room.rows.len()).resize(room.rows.len(), T::ZERO);
            let (table, rows) = room.table(dense, width);
            bag_factor_gradient(
                Bags { rows, starts: &room.starts, factors: None },
                table,
                dout,
                &mut factors,
            );
            self.put_weights(&ids, &factors, dweights, assign);
            factors.clear();
            room.factors = factors;
        }
        if !run.wants(Self::TABLE) {
            return Ok(());
        }
        if run.count(Self::WEIGHTS) > 0 {
            room.weigh(self, &ids, run.optional::<T>(Self::WEIGHTS)?);
        }
        if self.pool == BagPool::Max {
            room.find_maxima(dense, width);
        }
        room.share(self)?;
        let share = match self.pool {
            BagPool::Max => BagShare::Maxima(&room.which),
            _ if room.factors.is_empty() => BagShare::Whole,
            _ => BagShare::Factors(&room.factors),
        };
        let gradient = BagGradient { plan: &room.plan, bags: &room.bags, share };
        let (threads, all) = (run.run().threads, 0..room.plan.ids().len());
        if let Some((rows, assign)) = run.gradient_rows(Self::TABLE) {
            let out = if assign == Assign::Write || rows.dtype().is_none() {
                rows.refill::<T>(height, dout.width(), room.plan.ids())
            } else {
                rows.extend::<T>(room.plan.ids().iter().copied())
            };
            divide(gradient, dout, all, BagTarget::Listed, out, threads);
        } else if let Some((mut out, assign)) = run.gradient::<T>(Self::TABLE)? {
            assign.put_nothing(out.reborrow());
            divide(gradient, dout, all, BagTarget::Table { first: 0 }, out, threads);
        }
        Ok(())
    }

    /// Writes or adds the gradient of the weights; the weight of a padding id gets the gradient 0.
    fn put_weights<T: Float>(&self, ids: &Ids<'_>, found: &[T], mut to: ViewMut<'_, T>, assign: Assign) {
        let mut found = found.iter();
        for (row, to) in to.iter_mut().enumerate() {
            let value = if self.padding_id == Some(ids.get(row)) { None } else { found.next() };
            assign.put(&mut to[0], value.copied().unwrap_or(T::ZERO));
        }
    }
}

/// The minimum number of gradient elements per thread: with fewer, another thread costs more time than it saves.
const GRAIN: usize = 1 << 15;

/// Computes the gradient of the table. The distinct rows are divided among threads; one thread computes the whole sum of a row.
fn divide<T: Float>(
    gradient: BagGradient<'_, T>,
    dout: View<'_, T>,
    range: Range<usize>,
    target: BagTarget,
    out: ViewMut<'_, T>,
    threads: usize,
) {
    let plan = gradient.plan;
    let work = |i: usize| plan.occurrences_before(i) + i;
    let (before, behind) = (work(range.start), work(range.end));
    if threads < 2 || range.len() < 2 || (behind - before) * dout.width() < 4 * GRAIN {
        gradient.put(dout, range, target, out);
        return;
    }
    let goal = before + (behind - before) * (threads / 2) / threads;
    let middle = middle(range.clone(), |i| work(i) < goal);
    let (at, second) = match target {
        BagTarget::Listed => (middle - range.start, target),
        BagTarget::Table { first } => {
            let next = plan.ids()[middle] as usize;
            (next - first, BagTarget::Table { first: next })
        }
    };
    let (head, tail) = out.split_rows(at);
    join(
        || divide(gradient, dout, range.start..middle, target, head, threads / 2),
        || divide(gradient, dout, middle..range.end, second, tail, threads - threads / 2),
    );
}

/// Returns the first index after the start of the range for which `below` is false, by bisection. If `below` is true for all
/// indices, returns the last index of the range. Once `below` is false, it must be false for all larger indices.
fn middle(range: Range<usize>, below: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (range.start + 1, range.end - 1);
    while low < high {
        let at = low + (high - low) / 2;
        if below(at) { low = at + 1 } else { high = at }
    }
    low
}

#[cfg(feature = "testing")]
fn samples() -> Result<Vec<CheckCase>> {
    let table = array![[0.3, -0.7], [1.1, 0.2], [-0.4, 0.9], [0.8, -0.1]];
    let attributes = |pool, padding_id, gradient| EmbeddingBag { pool, padding_id, gradient }.attributes();
    let sample = |name: &str, attributes, ids: &[i64], lengths: &[Vec<usize>]| -> Result<CheckCase> {
        let ids = Variable::sequences(Array1::from(ids.to_vec()), Lod::from_lengths(lengths)?)?;
        Ok(CheckCase::new(name, attributes).batch("ids", ids).constant("table", table.clone()))
    };
    let weighted = |sample: CheckCase, lengths: &[Vec<usize>]| -> Result<CheckCase> {
        let lod = Lod::from_lengths(lengths)?;
        let weights = Array1::from_shape_fn(lod.rows(), |i| 0.5 - 0.3 * i as f64);
        Ok(sample.batch("weights", Variable::sequences(weights, lod)?))
    };
    let (dense, rows) = (StorageKind::Dense, StorageKind::SelectedRows);
    let mut samples = Vec::new();
    for pool in POOLS {
        let name = |what: &str| format!("{}, {what}", pool_name(pool));
        let (plain, sparse) = (attributes(pool, None, dense), attributes(pool, None, rows));
        let (one, two) = ([vec![3, 0, 1]], [vec![2, 0, 1], vec![1, 0, 3]]);
        let three = [vec![2, 0], vec![2, 1], vec![2, 0, 3]];
        samples.push(sample(&name("repeated ids"), plain.clone(), &[3, 0, 3, 1], &one)?);
        samples.push(sample(&name("repeated ids, selected rows"), sparse.clone(), &[3, 0, 3, 3], &one)?);
        samples.push(sample(&name("two levels"), sparse.clone(), &[1, 2, 1, 0], &two)?);
        samples.push(sample(&name("three levels"), plain.clone(), &[1, 2, 1, 0, 1], &three)?);
        samples.push(sample(&name("all empty"), plain.clone(), &[], &[vec![0, 0]])?);
        samples.push(sample(&name("none, selected rows"), sparse, &[], &[vec![]])?);
        let padded = attributes(pool, Some(0), rows);
        // The operator does not read the padding row, so both the derivative and the gradient of this row are zero.
        samples.push(sample(&name("padding"), padded, &[0, 3, 0, 0], &[vec![2, 0, 1, 1]])?);
        let ids = Variable::sequences(array![[2i32], [0]], Lod::from_lengths1(&[0, 2])?)?;
        let column = CheckCase::new(&name("i32, a column"), plain);
        samples.push(column.batch("ids", ids).constant("table", table.clone()));
    }
    for (storage, padding) in [(dense, None), (rows, Some(3))] {
        let attributes = attributes(BagPool::Sum, padding, storage);
        let (one, two) = ([vec![3, 0, 1]], [vec![2, 0, 1], vec![1, 0, 3]]);
        samples.push(weighted(sample("weights", attributes.clone(), &[3, 0, 3, 1], &one)?, &one)?);
        samples
            .push(weighted(sample("weights, two levels", attributes.clone(), &[1, 3, 1, 0], &two)?, &two)?);
        samples.push(weighted(sample("weights, none", attributes, &[], &[vec![0]])?, &[vec![0]])?);
    }
    Ok(samples)
}
