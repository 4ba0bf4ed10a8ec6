//! What an operator may declare beyond its contract, so that the compiler can do better. By default it declares nothing;
//! what it declares is held against what it does (`op::testing`).

use std::ops::Range;

use crate::operator::Attributes;

/// What the compiler may do with calls of an operator: see [`Op::hints`](crate::operator::Op::hints).
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// The output IS the sum of the two inputs, number for number, where their specs are the same.
    pub sums: bool,
    /// The one output IS the sum or the mean of all numbers in the first input slot, a mean 0 if there are none. So the loss of
    /// several batches is known from theirs: sums are added up, means weighted by their rows.
    pub total: Option<Total>,
    /// `forward` can add its one output to what is there: [`Forward::assign`](crate::operator::Forward::assign) then says
    /// so. What is only added to something else needs no memory of its own.
    pub accumulates: bool,
    /// The outputs ARE columns of the first input, number for number: which columns, in order and not overlapping. In a
    /// step block they are then views of the input, and `forward` and `backward` are not called.
    pub columns: Option<Vec<Range<usize>>>,
    /// [`Op::prepare`](crate::operator::Op::prepare) does something.
    pub prepares: bool,
    /// A row-wise operator that divides the columns of its result over the threads that a call is given
    /// ([`RunFacts::threads`](crate::operator::RunFacts::threads)), as a product does. In the last steps of a loop, which have few
    /// rows, the executor then gives it all threads and all rows, instead of a part of the rows to each thread. This is
    /// A sequence-wise operator that says this divides its work as it likes, and is given all threads outside of step blocks. This is
    /// about speed alone: that the bits are the same on any number of threads is held for every operator, by the rules
    /// `compiled` and `in a step`.
    pub divides_columns: bool,
    /// About how many numbers an ordinary operator writes while this one is done with one of its own; 0 counts as one. Threads share
    /// its work from so much fewer rows on.
    pub heavy: usize,
    /// A random operator that draws only when it trains: when it infers, the same input gives the same output.
    pub draws_in_training: bool,
    /// The gradients share no work, as those of a product: each may be computed in a call of its own, at another time.
    pub separate_gradients: bool,
    /// `backward` can compute the outputs in the same call, where
    /// [`Backward::result`](crate::operator::Backward::result) asks for them.
    pub joins: bool,
    /// How a call of this operator and one of the operator that computes an input can be one call of a third operator,
    /// so that the value between them never is in memory as a whole. The compiler does so where nothing else reads it.
    pub fusions: &'static [Fusion],
    /// How several calls can be one, if they have the same variables in all input slots but those of [`Merge::beside`]. The
    /// compiler merges such calls if a loop makes them at every step. Only for operators that are row-wise, are not random,
    /// and have one output.
    pub merges: Option<Merge>,
    /// How an operator that reads several rows of a sequence gives the same bits if the sequences come in pieces: first the
    /// first piece of each, then the second of each, and so on. `None`: it takes whole sequences only. A row-wise operator
    /// need not say anything: a piece is to it as good as the whole.
    pub pieces: Option<Pieces>,
    /// The same for pieces that come last to first.
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
    /// Outputs of this operator that the third one lacks, each with the kind of an operator that computes it. That operator
    /// does not read the producer's output; its input slots are some of the third one's.
    pub by_others: &'static [(&'static str, &'static str)],
    /// How wide the value between the two must be at least: fusing pays for wide rows only.
    pub least_width: usize,
}

/// Calls that can be one: see [`Hints::merges`]. The one call has, in the slots of `beside`, the variables of all calls in
/// turn. Its output is the outputs of the calls side by side, number for number. Its gradient of an input that the calls
/// share is the sum of theirs.
#[derive(Debug, Clone, Copy)]
pub struct Merge {
    /// The input slots in which the calls may have different variables; all of these are constants.
    pub beside: &'static [&'static str],
    /// The kind of the operator that cuts the output into the outputs of the calls. It has one input and one output slot,
    /// declares [`Hints::columns`], and its attribute `sizes` says how many columns each part has.
    pub parts: &'static str,
}

/// Calls on pieces of sequences: see [`Hints::pieces`]. The operator that is called on each piece has the slots of the one
/// that declares this. For each value that it hands from piece to piece it has two slots more, of one name: an optional
/// input, which is zero at the first piece, and an output. All other inputs, but for the rows of the sequences, are the same
/// at each piece. What it writes for each sequence is complete after the last piece; what it writes for each row is
/// complete at once.
#[derive(Debug, Clone)]
pub struct Pieces {
    /// Its kind.
    pub into: &'static str,
    /// Its attributes.
    pub attributes: Attributes,
    /// The values that it hands on, one row a sequence: the name of the two slots of each.
    pub carried: &'static [&'static str],
}
