//! Hints: declarations of an operator beyond its contract, so that the compiler can do better. The default declares nothing.
//! `op::testing` checks every declaration against the operator's results.

use std::ops::Range;

use crate::operator::Attributes;

/// The hints of an operator for the compiler: see [`Op::hints`](crate::operator::Op::hints).
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// The output IS the sum of the two inputs, number for number, where their specs are the same.
    pub sums: bool,
    /// The one output IS the sum or the mean of all numbers in the first input slot; the mean of no numbers is 0. So the loss of
    /// several batches follows from the losses of the batches: sums are added, and means are averaged by numbers of rows.
    pub total: Option<Total>,
    /// `forward` can add its one output to the contents of the output's buffer, if
    /// [`Forward::assign`](crate::operator::Forward::assign) returns `Assign::Add`. An output that is only added to another value
    /// then needs no memory of its own.
    pub accumulates: bool,
    /// The outputs ARE columns of the first input, number for number: which columns, in order and not overlapping. In a
    /// step block they are then views of the input, and `forward` and `backward` are not called.
    pub columns: Option<Vec<Range<usize>>>,
    /// The operator implements [`Op::prepare`](crate::operator::Op::prepare).
    pub prepares: bool,
    /// The operator divides the columns of its result over the threads that a call may use
    /// ([`RunFacts::threads`](crate::operator::RunFacts::threads)), as a matrix product does. This hint is for row-wise
    /// operators. The last steps of a loop have few rows: the executor then gives the operator all threads and all rows, instead
    /// of some rows to each thread. A sequence-wise operator that declares this divides its work as it likes, and gets all
    /// threads outside of step blocks. This affects speed alone: the rules `compiled` and `in a step` check for every operator
    /// that any number of threads gives the same bits.
    pub divides_columns: bool,
    /// Cost per output number relative to an ordinary operator (0 means 1). The more an output number costs, the fewer rows
    /// suffice for a call to be divided over threads.
    pub heavy: usize,
    /// The operator draws random numbers only in training: in inference, the same input gives the same output.
    pub draws_in_training: bool,
    /// Each gradient may be computed in a call of its own, at another time: the gradients share no work, as in a product.
    pub separate_gradients: bool,
    /// `backward` can compute the outputs together with the gradients, if [`Backward::result`](crate::operator::Backward::result)
    /// returns a view for them.
    pub joins: bool,
    /// Fusions: a call of this operator and a call of the operator that computes an input become one call of a third
    /// operator, so that the value between them is never in memory as a whole. The compiler fuses if nothing else reads that
    /// value.
    pub fusions: &'static [Fusion],
    /// Merging: several calls become one if they have the same variables in all input slots except [`Merge::beside`]. The
    /// compiler merges such calls if a loop makes them at every step. This is only for operators that are row-wise, are not
    /// random, and have one output.
    pub merges: Option<Merge>,
    /// Pieces: how an operator that reads several rows of a sequence gives the same bits if the sequences come in pieces: first
    /// the first piece of each sequence, then the second piece of each sequence, and so on. `None`: the operator needs whole
    /// sequences. A row-wise operator need not declare anything, since any piece is as good as the whole.
    pub pieces: Option<Pieces>,
    /// As `pieces`, for pieces that come last to first.
    pub pieces_from_end: Option<Pieces>,
}

/// One number of all rows: see [`Hints::total`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Total {
    /// Σ x.
    Sum,
    /// Σ x / n, of n numbers.
    Mean,
}

/// Two operators that can be fused into a third: see [`Hints::fusions`]. The third operator has the attributes of both, and
/// the outputs of the operator that declares the fusion.
#[derive(Debug, Clone, Copy)]
pub struct Fusion {
    /// The input slot that the other operator fills, with its one output.
    pub slot: &'static str,
    /// The kind of the other operator, which fills that slot.
    pub producer: &'static str,
    /// The kind of the third operator, which computes the same outputs from the inputs of both operators.
    pub into: &'static str,
    /// Each input slot of the producer, with its name at the third operator.
    pub producer_slots: &'static [(&'static str, &'static str)],
    /// Each other input slot of this operator, with its name at the third operator.
    pub own_slots: &'static [(&'static str, &'static str)],
    /// Outputs of this operator that the third operator lacks, each with the kind of an operator that computes it. That operator
    /// does not read the producer's output; its input slots are input slots of the third operator.
    pub by_others: &'static [(&'static str, &'static str)],
    /// The least width of the value between the two operators: fusing pays for wide rows only.
    pub least_width: usize,
}

/// Calls that can be merged: see [`Hints::merges`]. The merged call has, in the slots of `beside`, the variables of all calls in
/// turn. Its output is the outputs of the calls side by side, number for number. For an input that the calls share, the gradient
/// of the merged call is the sum of the gradients of the calls.
#[derive(Debug, Clone, Copy)]
pub struct Merge {
    /// The input slots in which the calls may have different variables; all of these are constants.
    pub beside: &'static [&'static str],
    /// The kind of the operator that cuts the output into the outputs of the calls. It has one input and one output slot,
    /// declares [`Hints::columns`], and its attribute `sizes` says how many columns each part has.
    pub parts: &'static str,
}

/// Calls on pieces of sequences: see [`Hints::pieces`]. The operator that is called on each piece has the slots of the operator
/// that declares this. Each value that a call passes to the call on the next piece adds two slots of one name: an optional input,
/// which is zero at the first piece, and an output. All other inputs, except the rows of the sequences, are the same at each
/// piece. An output with a row per sequence is complete after the last piece; an output with the rows of the sequences is
/// complete at once.
#[derive(Debug, Clone)]
pub struct Pieces {
    /// The kind of the operator that is called on each piece.
    pub into: &'static str,
    /// The attributes of that operator.
    pub attributes: Attributes,
    /// The values that a call passes to the call on the next piece, one row per sequence: for each value, the name of its two
    /// slots.
    pub carried: &'static [&'static str],
}
