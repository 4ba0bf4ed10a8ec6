//! Divides the work of attention among threads: by heads and, if there are fewer heads than threads, also by sequences.
//! Only one thread writes each number of a result.

use crate::kernels::{
    AttentionGradients, AttentionInputs, AttentionResult, AttentionRoom, AttentionScores, attention,
    attention_backward, helpers, join,
};
use crate::operator::MatrixUnit;
use crate::ops::prelude::*;

/// The minimum number of multiply-adds in an attention call for which a second thread saves time.
const WORTH_A_THREAD: usize = 1 << 19;

/// The rows of the queries that attend to each sequence of keys.
#[derive(Clone, Copy)]
pub(super) enum Queries<'a> {
    Sequences(Sequences<'a>),
    /// One query row per sequence of keys, like the state of a decoder.
    Single,
}

impl<'a> Queries<'a> {
    /// Returns `Single` (one query per sequence of keys) if the LoD of the queries has fewer levels than the LoD of the keys,
    /// else the sequences of queries.
    pub(super) fn of(
        q: Option<&Arc<Lod>>,
        k: Option<&Arc<Lod>>,
        sequences: impl FnOnce() -> Result<Sequences<'a>>,
    ) -> Result<Self> {
        let levels = |lod: Option<&Arc<Lod>>| lod.map_or(0, |lod| lod.levels());
        if levels(q) < levels(k) { Ok(Queries::Single) } else { sequences().map(Queries::Sequences) }
    }

    fn rows(&self, sequence: usize) -> Range<usize> {
        match self {
            Queries::Sequences(sequences) => sequences.rows(sequence),
            Queries::Single => sequence..sequence + 1,
        }
    }
}

/// The settings of an attention call, which are the same for all sequences and heads.
#[derive(Clone, Copy)]
pub(super) struct Geometry {
    pub(super) heads: usize,
    pub(super) scale: f64,
    pub(super) before: usize,
    pub(super) after: usize,
}

#[derive(Clone, Copy)]
pub(super) struct Inputs<'a, T> {
    pub(super) geometry: Geometry,
    pub(super) q: View<'a, T>,
    pub(super) k: View<'a, T>,
    pub(super) v: View<'a, T>,
    /// The bias of relative positions, with one row per head; `None` if attention has no bias.
    pub(super) bias: Option<View<'a, T>>,
    pub(super) queries: Queries<'a>,
    pub(super) keys: Sequences<'a>,
}

/// Scratch memory of attention: one `AttentionRoom` per thread, and the buffer in which the bias's gradient is summed.
pub(super) struct Rooms<T> {
    rooms: Vec<AttentionRoom<T>>,
    bias: Vec<T>,
}

impl<T> Default for Rooms<T> {
    fn default() -> Self {
        Self { rooms: vec![], bias: vec![] }
    }
}

impl<T: Float> Rooms<T> {
    /// Returns the memory of a call on sequences of at most `queries` queries and `keys` keys. `widths` holds the
    /// columns per head of the keys and of the values; `bias` is the shape of the bias's gradient, (0, 0) if the
    /// gradient is not requested.
    pub(super) fn memory(
        sizes: &CallSizes<'_>,
        (queries, keys): (usize, usize),
        widths: (usize, usize),
        bias: (usize, usize),
    ) -> CallMemory {
        let room = AttentionRoom::<T>::bytes_of(
            sizes.unit(),
            (queries, keys),
            widths,
            sizes.pass() == Pass::Backward,
        );
        CallMemory::default()
            .scratch::<Self>(sizes.threads().saturating_mul(room))
            .scratch::<Self>(bias.0 * bias.1 * size_of::<T>())
    }

    fn some(&mut self, unit: MatrixUnit, count: usize) -> &mut [AttentionRoom<T>] {
        if self.rooms.len() < count {
            self.rooms.resize_with(count, AttentionRoom::default);
        }
        let rooms = &mut self.rooms[..count];
        rooms.iter_mut().for_each(|room| room.set_unit(unit));
        rooms
    }
}

/// A block of work: the heads `heads` of the sequences `sequences`. Blocks are divided among threads.
#[derive(Clone)]
struct HeadBlock {
    heads: Range<usize>,
    sequences: Range<usize>,
}

/// Where a `HeadBlock` is divided into two blocks: the index of the first head, or of the first sequence, of the second
/// block.
enum Halving {
    Heads(usize),
    Sequences(usize),
}

impl<'a, T: Float> Inputs<'a, T> {
    fn all(&self) -> HeadBlock {
        HeadBlock { heads: 0..self.geometry.heads, sequences: 0..self.keys.len() }
    }

    fn columns(&self, width: usize, heads: Range<usize>) -> Range<usize> {
        let head = width / self.geometry.heads;
        heads.start * head..heads.end * head
    }

    /// Estimates the multiply-adds that one head needs for a sequence, from the number of scores.
    fn work(&self, sequence: usize) -> usize {
        let (n, m) = (self.queries.rows(sequence).len(), self.keys.rows(sequence).len());
        let seen = self.geometry.before.saturating_add(self.geometry.after).saturating_add(1).min(m);
        n * seen * (self.q.width() + self.v.width()) / self.geometry.heads
    }

    fn threads(&self, threads: usize) -> usize {
        let work: usize = (0..self.keys.len()).map(|sequence| self.work(sequence)).sum();
        helpers(work * self.geometry.heads, WORTH_A_THREAD, threads)
    }

    /// Returns where to divide a `HeadBlock`, so that the first block has about `left` / `parts` of the work; all heads have
    /// equal work. Returns `None` if the block has one head and cannot be divided by sequences, because it has one
    /// sequence or `sequences` is false.
    fn halving(&self, part: &HeadBlock, (left, parts): (usize, usize), sequences: bool) -> Option<Halving> {
        if part.heads.len() > 1 {
            let heads = part.heads.len() * left / parts;
            return Some(Halving::Heads(part.heads.start + heads.clamp(1, part.heads.len() - 1)));
        }
        if part.sequences.len() < 2 || !sequences {
            return None;
        }
        let all: usize = part.sequences.clone().map(|sequence| self.work(sequence)).sum();
        let mut done = 0;
        let middle = part.sequences.clone().find(|&sequence| {
            done += self.work(sequence);
            done * parts >= all * left
        });
        let middle = middle.unwrap_or(part.sequences.start) + 1;
        Some(Halving::Sequences(middle.clamp(part.sequences.start + 1, part.sequences.end - 1)))
    }

    fn query_rows(&self, sequences: &Range<usize>) -> Range<usize> {
        span(sequences, |sequence| self.queries.rows(sequence))
    }

    fn key_rows(&self, sequences: &Range<usize>) -> Range<usize> {
        span(sequences, |sequence| self.keys.rows(sequence))
    }

    fn attended(&self, sequence: usize, head: usize) -> AttentionInputs<'a, T> {
        let head_rows =
            |x: View<'a, T>, rows: &Range<usize>| read(x, rows, self.columns(x.width(), head..head + 1));
        let (queries, keys) = (self.queries.rows(sequence), self.keys.rows(sequence));
        AttentionInputs {
            q: head_rows(self.q, &queries),
            k: head_rows(self.k, &keys),
            v: head_rows(self.v, &keys),
        }
    }

    fn scores(&self, head: usize) -> AttentionScores<'a, T> {
        let Geometry { scale, before, after, .. } = self.geometry;
        let bias = self.bias.map_or(&[][..], |bias| bias.row(head));
        AttentionScores { scale: T::from_f64(scale), before, after, bias }
    }
}

fn span(sequences: &Range<usize>, rows: impl Fn(usize) -> Range<usize>) -> Range<usize> {
    match sequences.is_empty() {
        true => 0..0,
        false => rows(sequences.start).start..rows(sequences.end - 1).end,
    }
}

/// Returns a part of `view`: the rows `rows` and the columns `columns`. `rows` are row indices of the whole variable,
/// and `view` starts at row `first_row` of the variable.
fn within<'v, T>(
    view: &'v mut ViewMut<'_, T>,
    rows: Range<usize>,
    (first_row, columns): (usize, Range<usize>),
) -> ViewMut<'v, T> {
    let (from, to) = (rows.start - first_row, rows.end - first_row);
    view.reborrow().split_rows(to).0.split_rows(from).1.columns(columns.start, columns.end)
}

fn read<'a, T>(view: View<'a, T>, rows: &Range<usize>, columns: Range<usize>) -> View<'a, T> {
    view.rows_range(rows.start, rows.end).columns(columns.start, columns.end)
}

/// Computes attention: writes the attended values, and ln Σ exp of the scores of each query and head.
pub(super) fn forward<T: Float>(
    inputs: Inputs<'_, T>,
    out: ViewMut<'_, T>,
    log_sums: ViewMut<'_, T>,
    rooms: &mut Rooms<T>,
    RunFacts { threads, unit, .. }: RunFacts,
) {
    let rooms = rooms.some(unit, inputs.threads(threads));
    forward_part(inputs, inputs.all(), out, log_sums, rooms);
}

fn forward_part<T: Float>(
    inputs: Inputs<'_, T>,
    part: HeadBlock,
    mut out: ViewMut<'_, T>,
    mut log_sums: ViewMut<'_, T>,
    rooms: &mut [AttentionRoom<T>],
) {
    let left = rooms.len() / 2;
    let halving = if rooms.len() < 2 { None } else { inputs.halving(&part, (left, rooms.len()), true) };
    let Some(halving) = halving else {
        let first = inputs.query_rows(&part.sequences).start;
        let head_width = inputs.v.width() / inputs.geometry.heads;
        let Some(room) = rooms.first_mut() else { return };
        for sequence in part.sequences.clone() {
            for head in part.heads.clone() {
                let (rows, at) = (inputs.queries.rows(sequence), head - part.heads.start);
                let out = within(&mut out, rows.clone(), (first, at * head_width..(at + 1) * head_width));
                let log_sums = within(&mut log_sums, rows, (first, at..at + 1));
                attention(inputs.attended(sequence, head), inputs.scores(head), out, log_sums, room);
            }
        }
        return;
    };
    let (mine, theirs) = rooms.split_at_mut(left);
    let (a, b) = part.halves(&halving);
    let (out, log_sums) = match halving {
        Halving::Heads(_) => {
            let columns = inputs.columns(inputs.v.width(), a.heads.clone()).len();
            (out.split_columns(columns), log_sums.split_columns(a.heads.len()))
        }
        Halving::Sequences(_) => {
            let rows = inputs.query_rows(&a.sequences).len();
            (out.split_rows(rows), log_sums.split_rows(rows))
        }
    };
    join(
        || forward_part(inputs, a, out.0, log_sums.0, mine),
        || forward_part(inputs, b, out.1, log_sums.1, theirs),
    );
}

impl HeadBlock {
    fn halves(&self, halving: &Halving) -> (Self, Self) {
        let Self { heads, sequences } = self.clone();
        match *halving {
            Halving::Heads(at) => (
                Self { heads: heads.start..at, sequences: sequences.clone() },
                Self { heads: at..heads.end, sequences },
            ),
            Halving::Sequences(at) => (
                Self { heads: heads.clone(), sequences: sequences.start..at },
                Self { heads, sequences: at..sequences.end },
            ),
        }
    }
}

type Gradient<'a, T> = Option<(ViewMut<'a, T>, Assign)>;

/// Where to write the gradients of queries, keys and values; `None` for a gradient that is not requested.
pub(super) struct Gradients<'a, T> {
    pub(super) q: Gradient<'a, T>,
    pub(super) k: Gradient<'a, T>,
    pub(super) v: Gradient<'a, T>,
}

type Halves<'a, T> = (Gradient<'a, T>, Gradient<'a, T>);

fn halves<'a, T>(
    gradient: Gradient<'a, T>,
    split: impl FnOnce(ViewMut<'a, T>) -> (ViewMut<'a, T>, ViewMut<'a, T>),
) -> Halves<'a, T> {
    gradient
        .map(|(view, assign)| {
            let (a, b) = split(view);
            ((a, assign), (b, assign))
        })
        .unzip()
}

/// Computes the requested gradients of queries, keys, values and bias; writes each gradient, or adds it to the numbers of the
/// destination.
pub(super) fn backward<T: Float>(
    inputs: Inputs<'_, T>,
    result: AttentionResult<'_, T>,
    gradients: Gradients<'_, T>,
    dbias: Gradient<'_, T>,
    rooms: &mut Rooms<T>,
    RunFacts { threads, unit, .. }: RunFacts,
) {
    let threads = inputs.threads(threads);
    let mut sums = std::mem::take(&mut rooms.bias);
    sums.clear();
    // Each number of the bias's gradient is summed over the sequences in their order.
    let bias = dbias.as_ref().map(|(dbias, _)| {
        sums.resize(dbias.rows() * dbias.width(), T::ZERO);
        ViewMut::new(&mut sums, dbias.rows(), dbias.width())
    });
    backward_part(inputs, inputs.all(), result, gradients, bias, rooms.some(unit, threads));
    if let Some((dbias, assign)) = dbias {
        let (rows, width) = (dbias.rows(), dbias.width());
        assign.put_rows(dbias, View::new(&sums, rows, width));
    }
    rooms.bias = sums;
}

/// Computes the gradients of the heads and sequences of a block, one head of one sequence after the other.
fn backward_heads<'a, T: Float>(
    inputs: Inputs<'a, T>,
    part: HeadBlock,
    result: AttentionResult<'a, T>,
    gradients: Gradients<'_, T>,
    mut bias: Option<ViewMut<'_, T>>,
    room: &mut AttentionRoom<T>,
) {
    let Gradients { q: mut dq, k: mut dk, v: mut dv } = gradients;
    let first = (inputs.query_rows(&part.sequences).start, inputs.key_rows(&part.sequences).start);
    for sequence in part.sequences.clone() {
        for head in part.heads.clone() {
            let (queries, keys) = (inputs.queries.rows(sequence), inputs.keys.rows(sequence));
            let at = head - part.heads.start;
            // The columns of head `head`: `own` counts columns from the first head of this block, `head_columns` from the first head
            // of the variable.
            let own = |width: usize| inputs.columns(width, at..at + 1);
            let head_columns = |view: View<'a, T>| inputs.columns(view.width(), head..head + 1);
            let read = |view: View<'a, T>| read(view, &queries, head_columns(view));
            let result = AttentionResult {
                out: read(result.out),
                log_sums: read(result.log_sums),
                dout: result.dout.map(read),
                dlog_sums: result.dlog_sums.map(read),
            };
            let (q_columns, v_columns) = (own(inputs.q.width()), own(inputs.v.width()));
            let (q_place, k_place) = ((first.0, q_columns.clone()), (first.1, q_columns));
            let v_place = (first.1, v_columns);
            let q = dq.as_mut().map(|(to, assign)| (within(to, queries, q_place), *assign));
            let k = dk.as_mut().map(|(to, assign)| (within(to, keys.clone(), k_place), *assign));
            let v = dv.as_mut().map(|(to, assign)| (within(to, keys, v_place), *assign));
            let gradients = AttentionGradients { q, k, v, bias: bias.as_mut().map(|bias| bias.row(at)) };
            attention_backward(inputs.attended(sequence, head), inputs.scores(head), result, gradients, room);
        }
    }
}

fn backward_part<'a, T: Float>(
    inputs: Inputs<'a, T>,
    part: HeadBlock,
    result: AttentionResult<'a, T>,
    gradients: Gradients<'_, T>,
    bias: Option<ViewMut<'_, T>>,
    rooms: &mut [AttentionRoom<T>],
) {
    let left = rooms.len() / 2;
    let halving = match rooms.len() < 2 {
        true => None,
        false => inputs.halving(&part, (left, rooms.len()), bias.is_none()),
    };
    let Some(halving) = halving else {
        let Some(room) = rooms.first_mut() else { return };
        return backward_heads(inputs, part, result, gradients, bias, room);
    };
    let Gradients { q: dq, k: dk, v: dv } = gradients;
    let (mine, theirs) = rooms.split_at_mut(left);
    let (a, b) = part.halves(&halving);
    let ((dq, dq_after), (dk, dk_after), (dv, dv_after)) = match halving {
        Halving::Heads(_) => {
            let columns = |width| inputs.columns(width, a.heads.clone()).len();
            let (keys, values) = (columns(inputs.k.width()), columns(inputs.v.width()));
            (
                halves(dq, |view| view.split_columns(keys)),
                halves(dk, |view| view.split_columns(keys)),
                halves(dv, |view| view.split_columns(values)),
            )
        }
        Halving::Sequences(_) => {
            let (queries, keys) =
                (inputs.query_rows(&a.sequences).len(), inputs.key_rows(&a.sequences).len());
            (
                halves(dq, |view| view.split_rows(queries)),
                halves(dk, |view| view.split_rows(keys)),
                halves(dv, |view| view.split_rows(keys)),
            )
        }
    };
    let (bias, bias_after) = bias.map(|bias| bias.split_rows(a.heads.len())).unzip();
    join(
        || backward_part(inputs, a, result, Gradients { q: dq, k: dk, v: dv }, bias, mine),
        || {
            let gradients = Gradients { q: dq_after, k: dk_after, v: dv_after };
            backward_part(inputs, b, result, gradients, bias_after, theirs);
        },
    );
}
