//! What an operator may say of itself beyond its contract, so that the compiler can do better: none of it by default, and
//! all of it held against what the operator does (the module `testing`).

use std::ops::Range;

use crate::program::Attributes;

/// What the compiler may make of calls of an operator: see [`Op::hints`](crate::program::Op::hints).
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// The output IS the sum of the two inputs, number for number, where their specs are the same.
    pub sums: bool,
    /// The one output IS the mean of all numbers in the first input slot, 0 if there are none. A trainer whose loss it is
    /// counts them, so that the loss over several batches is the mean over all their rows.
    pub averages: bool,
    /// `forward` can add its one output to what is there: [`Forward::store`](crate::program::Forward::store) then says
    /// so. What is only added to something else needs no memory of its own.
    pub accumulates: bool,
    /// The outputs ARE columns of the first input, number for number: which columns, in order and not overlapping. In a
    /// step block they are then views of the input, and `forward` and `backward` are not called.
    pub columns: Option<Vec<Range<usize>>>,
    /// [`Op::prepare`](crate::program::Op::prepare) does something.
    pub prepares: bool,
    /// The gradients share no work, as those of a product: each may be computed in a call of its own, at another time.
    pub separate_gradients: bool,
    /// `backward` can compute the outputs in the same call, where
    /// [`Backward::result`](crate::program::Backward::result) asks for them.
    pub joins: bool,
    /// How a call of this operator and one of the operator that computes an input can be one call of a third operator,
    /// so that the value between them never is in memory as a whole. The compiler does so where nothing else reads it.
    pub fusions: &'static [Fusion],
    /// How calls that share their other inputs can be one. The compiler makes them one in a step block, at a loop. Only of
    /// operators that are row-wise, not random, and have one output.
    pub merges: Option<Merge>,
    /// How an operator that reaches over the rows of a sequence can be called on one piece of each sequence after the
    /// other, first to last, for the same bits as on whole sequences. `None`: only on whole ones. Not asked of a row-wise
    /// operator, for which a piece is as good as the whole.
    pub pieces: Option<Pieces>,
    /// The same from the last piece to the first.
    pub pieces_from_end: Option<Pieces>,
}

/// Two operators that can be one: see [`Hints::fusions`]. The third operator has the attributes of both, and the outputs of the
/// one that declares it.
#[derive(Debug, Clone, Copy)]
pub struct Fusion {
    /// The input slot that the other operator fills, with its one output.
    pub slot: &'static str,
    /// The kind of the operator that fills it.
    pub producer: &'static str,
    /// The kind of the third operator, which computes the same from the inputs of both.
    pub into: &'static str,
    /// Each input slot of the producer, with its name at the third operator.
    pub producer_slots: &'static [(&'static str, &'static str)],
    /// Each other input slot of this operator, with its name at the third one.
    pub own_slots: &'static [(&'static str, &'static str)],
    /// Outputs of this operator that the third one lacks, each with the operator that computes it: it reads nothing of
    /// the producer's output, and has those of the third one's input slots that it needs.
    pub by_others: &'static [(&'static str, &'static str)],
    /// Rows narrower than this are not worth it.
    pub least_width: usize,
}

/// Calls that can be one: see [`Hints::merges`]. The one call has the variables of all of them in turn in some slots, and
/// its output has the columns of theirs side by side, number for number; the gradient of a shared input is the sum of
/// what theirs would be.
#[derive(Debug, Clone, Copy)]
pub struct Merge {
    /// The input slots that hold the variables of all calls, each constant.
    pub beside: &'static [&'static str],
    /// The kind of the operator that cuts the output into columns, as many in each part as its attribute `sizes` says: one
    /// input, one output slot, and [`Hints::columns`].
    pub parts: &'static str,
}

/// Calls on pieces of sequences: see [`Hints::pieces`]. The operator that is called on each piece has the slots of the one that
/// declares it, and more: for each value that it hands from piece to piece, an optional input, which is zero at the first
/// piece, and an output of the same name. Every other input but the rows of the sequences is the same at each piece; what
/// it writes for each sequence is right at the last piece, what it writes for each row at every one.
#[derive(Debug, Clone)]
pub struct Pieces {
    /// Its kind.
    pub into: &'static str,
    /// Its attributes.
    pub attributes: Attributes,
    /// The values that it hands on, one row a sequence: a slot's name each, of an input and of an output.
    pub carried: &'static [&'static str],
}
