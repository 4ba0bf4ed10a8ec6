//! `linear_chain_crf`: the negative log-likelihood of a sequence's tags under a conditional random field.

use super::chain::HEAVY;
use super::chain::{self, EMISSIONS, TRANSITIONS};
use crate::kernels::{ChainRoom, PairSums, Transitions, helpers, join, log_sum, marginals};
use crate::ops::lookup::ids::{self, Ids};
use crate::ops::prelude::*;

operator! {
    /// Computes the cost of the tags of each sequence under a linear-chain conditional random field (CRF): −ln of the
    /// probability of the whole sequence of tags.
    ///
    /// For the rows x_1 … x_n of a sequence, tags y_1 … y_n and transitions T `[tags + 2, tags]`, the score of a path y
    /// of tags is s(y) = T(tags, y_1) + Σ_t x_t(y_t) + Σ_t T(y_{t−1}, y_t) + T(tags + 1, y_n). Row `tags` of T holds
    /// the scores of the first tag, and row `tags + 1` holds the scores of the last tag. The cost of y is ln Σ_y'
    /// e^s(y') − s(y), where the sum is over all paths y' (Lafferty, McCallum and Pereira, "Conditional random fields:
    /// probabilistic models for segmenting and labeling sequence data", 2001).
    ///
    /// `emissions` (x) has the shape `[rows, tags]` and a LoD; `tags` (y) has one whole number per row. The cost `[sequences]`
    /// has the LoD of x without its last level. A sequence without rows has the cost 0. `forbidden` lists forbidden transitions
    /// as indices in T: the transition from tag a to tag b has the index a · tags + b. The score of a forbidden transition
    /// counts as minus infinity, and its gradient is 0. A path with a forbidden transition has an infinite cost. If every path
    /// is forbidden, the cost of every path is infinite.
    ///
    /// The sum over paths is computed in f64 and scaled at each row, so that a row needs a matrix product but no exponentials.
    /// If relevant numbers of a sequence could underflow, the sequence is computed with logarithms instead. The backward pass
    /// recomputes the values that the gradient needs.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0])?;
    /// let op = ops::catalogue().parse("linear_chain_crf", &Attributes::new())?;
    /// let out = op.call(&[
    ///     Operand::batch("emissions", Variable::sequences(array![[0.0, 0.0], [0.0, 3f64.ln()]], lod.clone())?),
    ///     Operand::constant("transitions", array![[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
    ///     Operand::batch("tags", Variable::sequences(array![0i64, 1], lod)?),
    /// ])?;
    /// let costs = out[0].as_slice::<f64>()?;
    /// assert!((costs[0] - (8f64 / 3.0).ln()).abs() < 1e-12); // 1/2 · 3/4
    /// assert_eq!(costs[1], 0.0);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if rows, widths or dtypes do not fit, or `emissions` has no LoD; when the program runs, it is
    /// also an error if a tag is not below the number of tags.
    #[doc(alias = "crf")]
    #[derive(Clone)]
    pub(in crate::ops) struct LinearChainCrf = linear_chain_crf { forbidden: Vec<i64> = Vec::new() }
    inputs { EMISSIONS = emissions: one, TRANSITIONS = transitions: one, TAGS = tags: one.without_gradient() }
    outputs { COST = cost: one }
    impl Builder, Var { fn linear_chain_crf(&self, emissions: Var, transitions: Var, tags: Var, forbidden: &[i64]) -> Var; }
}

impl Op for LinearChainCrf {
    fn facts(&self) -> Facts {
        Facts::sequence_wise(LodEffect::DropsLevel(EMISSIONS))
    }

    fn hints(&self) -> Hints {
        Hints { heavy: HEAVY, ..Hints::default() }
    }

    fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
        let (rows, tags) = sizes.input(EMISSIONS);
        let path = sizes.longest(EMISSIONS) * size_of::<usize>();
        let blocks = match sizes.pass() {
            Pass::Backward => block_count(rows, tags) * block_numbers(tags) * size_of::<f64>(),
            Pass::Forward => 0,
        };
        chain::memory::<Rooms>(sizes, chain::sums_of_longest(sizes) + path).scratch::<Rooms>(blocks)
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let mut cost = chain::check(s, &self.forbidden)?;
        ids::check(s, Self::TAGS)?;
        s.same_rows(EMISSIONS, Self::TAGS)?;
        cost.shape.truncate(1);
        s.set(Self::COST, cost);
        Ok(())
    }

    float_passes!(EMISSIONS, T: (self, run) => self.costs::<T>(run), self.slopes::<T>(run));

    gradient_reads!(EMISSIONS, TRANSITIONS, Self::TAGS);

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let mut samples = Vec::new();
        for (tags, forbidden) in [(3, vec![]), (1, vec![]), (4, vec![3, 12, 19, 23])] {
            let op = LinearChainCrf { forbidden }.attributes();
            samples.extend(chain::samples(&op, tags, |sample, emissions| {
                let name = format!("{tags} tags, {}", sample.name);
                Ok(CheckCase { name, ..sample }.batch("tags", chain::some_tags(emissions, tags)?))
            })?);
        }
        Ok(samples)
    }
}

#[derive(Default)]
struct Rooms {
    transitions: Transitions,
    rooms: Vec<ChainRoom>,
    blocks: Vec<Block>,
    path: Vec<usize>,
}

/// A block of sequences, with its own sums over pairs of tags. Sums per block, unlike sums per thread, are bit-identical for any
/// number of threads.
#[derive(Default)]
struct Block {
    sequences: Range<usize>,
    pairs: PairSums,
}

/// Limits of the division of sequences into blocks: the maximum number of blocks, the minimum number of rows per block, and the
/// maximum number of elements in the pair sums of all blocks together.
const MOST_BLOCKS: usize = 16;
const BLOCK_ROWS: usize = 256;
const BLOCK_NUMBERS: usize = 1 << 22;

/// With fewer multiply-adds than this, a second thread costs more time than it saves.
const WORTH_A_THREAD: usize = 1 << 18;

impl LinearChainCrf {
    fn costs<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (emissions, tags) = (run.input::<T>(EMISSIONS)?, Ids::of(run, Self::TAGS)?);
        let mut cost = run.output::<T>(Self::COST)?;
        let mut rooms = std::mem::take(run.scratch().get::<Rooms>());
        let transitions = chain::prepare::<T>(run, &self.forbidden, &mut rooms.transitions)?;
        if rooms.rooms.is_empty() {
            rooms.rooms.push(ChainRoom::default());
        }
        for (sequence, rows) in run.sequences(EMISSIONS)?.iter().enumerate() {
            path(&tags, rows.clone(), emissions.width(), &mut rooms.path)?;
            let rows = emissions.rows_range(rows.start, rows.end);
            let total = log_sum(transitions, rows, &mut rooms.rooms[0]);
            let own = transitions.score(rows, rooms.path.iter().copied());
            // If every path of the sequence is forbidden, the cost is infinite.
            let value = if total == f64::NEG_INFINITY { f64::INFINITY } else { total - own };
            cost.row(sequence)[0] = T::from_f64(value);
        }
        *run.scratch().get::<Rooms>() = rooms;
        Ok(())
    }

    fn slopes<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let dcost = run.dout::<T>(Self::COST)?;
        let (emissions, tags) = (run.input::<T>(EMISSIONS)?, Ids::of(run, Self::TAGS)?);
        let sequences = run.sequences(EMISSIONS)?;
        let (demissions, dtransitions) = (run.gradient::<T>(EMISSIONS)?, run.gradient::<T>(TRANSITIONS)?);
        let threads = run.run().threads;
        let scores = run.input::<T>(TRANSITIONS)?;
        let Rooms { mut transitions, mut rooms, mut blocks, path } =
            std::mem::take(run.scratch().get::<Rooms>());
        transitions.prepare(scores, &self.forbidden);
        let width = emissions.width();
        divide(sequences, width, &mut blocks);
        let work = emissions.rows() * width * width * 4;
        let threads = helpers(work, WORTH_A_THREAD, threads);
        if rooms.len() < threads {
            rooms.resize_with(threads, ChainRoom::default);
        }
        let pairs = dtransitions.is_some();
        let shared = CrfInputs { transitions: &transitions, emissions, tags: &tags, sequences, dcost, pairs };
        let result = shared.share(&mut blocks, demissions, &mut rooms[..threads]);
        if let (Ok(()), Some((mut to, assign))) = (&result, dtransitions) {
            let (first, others) = match blocks.split_first_mut() {
                Some((first, others)) => (first, others),
                None => unreachable!("there is always a block"),
            };
            others.iter().for_each(|other| first.pairs.join(&other.pairs));
            for (row, to) in to.iter_mut().enumerate() {
                for (tag, to) in to.iter_mut().enumerate() {
                    assign.put(to, T::from_f64(first.pairs.get(&transitions, row, tag)));
                }
            }
        }
        *run.scratch().get::<Rooms>() = Rooms { transitions, rooms, blocks, path };
        result
    }
}

/// Writes the tags of the rows `rows`, which are one sequence, to `to`; returns an error if a tag is not below `count`.
fn path(tags: &Ids<'_>, rows: Range<usize>, count: usize, to: &mut Vec<usize>) -> Result<()> {
    to.clear();
    for row in rows {
        to.push(tag(tags, row, count)?);
    }
    Ok(())
}

fn tag(tags: &Ids<'_>, row: usize, count: usize) -> Result<usize> {
    let missing = || Error::new("tag", "one of the tags", "none").row(row);
    tags.class(row, count, None)?.ok_or_else(missing)
}

/// Returns how many numbers the pair sums of a block have.
fn block_numbers(tags: usize) -> usize {
    (tags + 1) * tags.next_multiple_of(16) * 2
}

/// Returns how many blocks `rows` rows are divided into.
fn block_count(rows: usize, tags: usize) -> usize {
    MOST_BLOCKS.min(rows / BLOCK_ROWS).min(BLOCK_NUMBERS / block_numbers(tags).max(1)).max(1)
}

/// Divides sequences into blocks with about equal numbers of rows. The division does not depend on the number of threads, so
/// sums per block are bit-identical for any number of threads.
fn divide(sequences: Sequences<'_>, tags: usize, blocks: &mut Vec<Block>) {
    let rows =
        sequences.offsets().last().zip(sequences.offsets().first()).map_or(0, |(end, start)| end - start);
    let count = block_count(rows, tags);
    blocks.resize_with(count, Block::default);
    let (mut start, last) = (0, count - 1);
    for (number, block) in blocks.iter_mut().enumerate() {
        let mut end = start;
        while end < sequences.len()
            && (number == last || sequences.rows(end).end * count <= rows * (number + 1))
        {
            end += 1;
        }
        block.sequences = start..end;
        start = end;
    }
}

/// The inputs of the backward pass that all threads read.
#[derive(Clone, Copy)]
struct CrfInputs<'a, T> {
    transitions: &'a Transitions,
    emissions: View<'a, T>,
    tags: &'a Ids<'a>,
    sequences: Sequences<'a>,
    dcost: View<'a, T>,
    /// Whether the gradient of the transitions is requested; this gradient consists of the sums over pairs of tags.
    pairs: bool,
}

impl<T: RowValue> CrfInputs<'_, T> {
    /// Computes the gradients of several blocks. The gradient of the emissions is written to `to`, whose first row is
    /// the first row of the first block; the sums over pairs of tags are written to each block.
    fn share(
        self,
        blocks: &mut [Block],
        to: Option<(ViewMut<'_, T>, Assign)>,
        rooms: &mut [ChainRoom],
    ) -> Result<()> {
        if rooms.len() < 2 || blocks.len() < 2 {
            return self.on_one(blocks, to, rooms);
        }
        let (left, parts) = (rooms.len() / 2, rooms.len());
        let middle = (blocks.len() * left / parts).clamp(1, blocks.len() - 1);
        let start = self.first_row(blocks);
        let (mine, theirs) = rooms.split_at_mut(left);
        let (before, after) = blocks.split_at_mut(middle);
        let (a, b) = match to {
            None => (None, None),
            Some((to, assign)) => {
                let (a, b) = to.split_rows(self.first_row(after) - start);
                (Some((a, assign)), Some((b, assign)))
            }
        };
        let (x, y) = join(|| self.share(before, a, mine), || self.share(after, b, theirs));
        x.and(y)
    }

    fn first_row(self, blocks: &[Block]) -> usize {
        let first = blocks.first().map_or(0, |block| block.sequences.start);
        self.sequences.offsets()[first] - self.sequences.offsets()[0]
    }

    fn on_one(
        self,
        blocks: &mut [Block],
        mut to: Option<(ViewMut<'_, T>, Assign)>,
        rooms: &mut [ChainRoom],
    ) -> Result<()> {
        let (start, width) = (self.first_row(blocks), self.emissions.width());
        let Some(room) = rooms.first_mut() else { return Ok(()) };
        for Block { sequences, pairs } in blocks {
            pairs.start(self.transitions);
            for sequence in sequences.clone() {
                let rows = self.sequences.rows(sequence);
                let weight = self.dcost.row(sequence)[0];
                let mut failed = Ok(());
                let sums = self.pairs.then_some((&mut *pairs, weight.to_f64()));
                let of_sequence = self.emissions.rows_range(rows.start, rows.end);
                let total = marginals(self.transitions, of_sequence, room, sums, |row, likely| {
                    let Some((to, assign)) = &mut to else { return };
                    let row = rows.start + row;
                    // If every path of a sequence is forbidden, the gradient of its emissions is 0.
                    let known = likely.iter().any(|&x| x != 0.0);
                    match tag(self.tags, row, width) {
                        Err(error) => failed = Err(error),
                        Ok(tag) => {
                            for (class, (to, &likely)) in
                                to.row(row - start).iter_mut().zip(likely).enumerate()
                            {
                                let there = f64::from(u8::from(known && class == tag));
                                assign.put(to, weight * T::from_f64(likely - there));
                            }
                        }
                    }
                });
                failed?;
                if self.pairs && total.is_finite() {
                    self.subtract(rows, weight.to_f64(), pairs)?;
                }
            }
        }
        Ok(())
    }

    /// Subtracts `weight` from the pair sum at (row, tag) of the transition matrix, unless this transition is forbidden.
    fn take(self, pairs: &mut PairSums, (row, tag): (usize, usize), weight: f64) {
        if self.transitions.pair(row, tag) > f64::NEG_INFINITY {
            pairs.add(row, tag, -weight);
        }
    }

    /// Subtracts `weight` from the sums of all transitions on the path of a sequence's true tags.
    fn subtract(self, rows: Range<usize>, weight: f64, pairs: &mut PairSums) -> Result<()> {
        let width = self.emissions.width();
        let mut before = width;
        for row in rows {
            let tag = tag(self.tags, row, width)?;
            self.take(pairs, (before, tag), weight);
            before = tag;
        }
        if before < width {
            self.take(pairs, (width + 1, before), weight);
        }
        Ok(())
    }
}
