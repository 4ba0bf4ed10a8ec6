//! Hints: declarations with which an operator helps the compiler to make programs faster. By default, an operator declares no
//! hints. `op::testing` checks every declared hint against the operator's results.

use std::ops::Range;

use crate::operator::Attributes;

/// The hints that an operator declares for the compiler: see [`Op::hints`](crate::operator::Op::hints).
#[derive(Debug, Clone, Default)]
pub struct Hints {
    /// Whether the output IS the sum of the two inputs, number for number, if both inputs have the same spec.
    pub sums: bool,
    /// Whether the only output IS the sum or the mean of all numbers in the first input slot. The mean of no numbers is 0. With
    /// this hint, the loss of several batches can be computed from the losses of the batches: sums are added, and means are
    /// averaged with the numbers of rows as weights.
    pub total: Option<Total>,
    /// Whether `forward` can add its only output to the contents of the output's buffer. `forward` must do so if
    /// [`Forward::assign`](crate::operator::Forward::assign) returns `Assign::Add`. An output that is only added to another value
    /// then needs no separate memory.
    pub accumulates: bool,
    /// The ranges of columns of the first input, one range per output, in order and without overlap: each output IS its
    /// range of columns, number for number. In a step block, these outputs are views of the first input, and `forward`
    /// and `backward` are not called. `None` if the outputs are not columns of the first input.
    pub columns: Option<Vec<Range<usize>>>,
    /// Whether the operator implements [`Op::prepare`](crate::operator::Op::prepare).
    pub prepares: bool,
    /// Whether the operator divides the columns of its output over the threads of the call
    /// ([`RunFacts::threads`](crate::operator::RunFacts::threads)), as a matrix product does. The hint `divides_columns` is for
    /// row-wise operators. In the last steps of a loop, which have few rows, the executor gives the operator all rows and all
    /// threads, instead of some rows to each thread. A sequence-wise operator may declare this hint, too. A sequence-wise
    /// operator with this hint gets all threads outside of step blocks, and divides its work in any way. The hint affects
    /// only the speed: the rules `compiled` and `in a step` of `op::testing` check that any number of threads gives the same
    /// bits.
    pub divides_columns: bool,
    /// Whether the operator computes its matrix products of f32 numbers by the unit of the program
    /// ([`RunFacts::unit`](crate::operator::RunFacts::unit)), and so in the precision of the unit. An operator without this
    /// hint computes in f32.
    pub multiplies: bool,
    /// Whether the operator, which computes in f32, first rounds its inputs to bf16 in a program whose products compute in bf16, as
    /// `cross_entropy` rounds logits.
    #[doc(hidden)]
    pub rounds_bf16: bool,
    /// The input slots in which the operator takes rows of f32 numbers that are stored in bf16
    /// ([`Forward::holds_bf16`](crate::operator::CallInputs::holds_bf16)), since it rounds these numbers to bf16 and does nothing else
    /// with them, forward and backward. In a program whose products compute in bf16, the compiler stores a value in bf16 if only
    /// such slots read it. Only for operators with the hint [`multiplies`](Self::multiplies).
    #[doc(hidden)]
    pub takes_bf16: &'static [&'static str],
    /// Whether `backward` takes the gradient of the only output in bf16, too
    /// (`Backward::holds_bf16_gradient`), since only products read it. Only for
    /// operators with the hint [`multiplies`](Self::multiplies).
    #[doc(hidden)]
    pub takes_bf16_gradient: bool,
    /// The input slots whose values `backward` can read in bf16; it then writes the gradients of these slots in bf16. Only for
    /// slots that `backward` needs in no higher precision than products in bf16 have, such as the gates of a recurrent cell. In a
    /// program whose products compute in bf16, the compiler saves such a value of a step in bf16 if the value is a product or a
    /// sum of products, stays in the step, is read by no other backward operator, and if only products read its gradient.
    #[doc(hidden)]
    pub saves_bf16: &'static [&'static str],
    /// Whether each number of the only output IS a number of the first input slot, or zero. `forward` must also work if all
    /// variables of this slot, and the output, are stored in bf16
    /// ([`Forward::holds_bf16`](crate::operator::CallInputs::holds_bf16)).
    pub copies: bool,
    /// Whether the operator multiplies 8-bit integers in place of floats. It has no gradients, and differentiation through it is an
    /// error.
    #[doc(hidden)]
    pub multiplies_codes: bool,
    /// The cost per output number, relative to an ordinary operator (0 means 1). The higher the cost, the fewer rows are enough
    /// to divide a call over threads.
    pub heavy: usize,
    /// Whether the operator draws random numbers only in training: in inference, equal inputs give equal outputs.
    pub draws_in_training: bool,
    /// Whether each gradient may be computed in a separate call of `backward`, at another time: the gradients share no work, as
    /// in a product.
    pub separate_gradients: bool,
    /// Whether `backward` can compute the outputs together with the gradients, if
    /// [`Backward::result`](crate::operator::Backward::result) returns views for the outputs.
    pub joins: bool,
    /// The fusions of the operator. A fusion replaces a call of this operator, and the call of the producer that computes one
    /// of its inputs, by one call of a third operator. The value of this input is then never in memory as a whole. The
    /// compiler fuses two calls only if no other operator reads this value.
    #[doc(hidden)]
    pub fusions: &'static [Fusion],
    /// The merging of calls: several calls become one call if they have the same variables in all input slots except
    /// `Merge::beside`. `None` if calls cannot be merged. The compiler merges calls that a loop makes at every step. Merging is
    /// only for operators that are row-wise, do not draw random numbers, and have one output.
    #[doc(hidden)]
    pub merges: Option<Merge>,
    /// How an operator that reads several rows of a sequence gives the same bits if sequences come in pieces. A first call gets
    /// the first piece of each sequence, a second call the second piece, and so on. `None` means that the operator needs whole
    /// sequences. A row-wise operator need not declare `pieces`, since it gives the same rows for any piece.
    pub pieces: Option<Pieces>,
    /// How the operator gives the same bits if the pieces come from the last piece to the first piece; `None` if it cannot.
    pub pieces_from_end: Option<Pieces>,
}

/// The number that an operator computes from all rows: the sum or the mean of the rows' numbers. See [`Hints::total`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Total {
    /// Σ x, the sum of all numbers.
    Sum,
    /// Σ x / n, the mean of n numbers.
    Mean,
}

/// The fusion of two operators into a third operator: see [`Hints::fusions`]. The third operator has the attributes of both
/// operators, and the outputs of the operator that declares the fusion.
#[derive(Debug, Clone, Copy)]
pub struct Fusion {
    /// The input slot of the declaring operator that the producer's only output is bound to.
    pub slot: &'static str,
    /// The kind of the producer: the operator that computes the input in `slot`.
    pub producer: &'static str,
    /// The kind of the third operator, which computes the declaring operator's outputs from the inputs of both operators.
    pub into: &'static str,
    /// Each input slot of the producer, with the name of the slot at the third operator.
    pub producer_slots: &'static [(&'static str, &'static str)],
    /// Each other input slot of the declaring operator, with the name of the slot at the third operator.
    pub own_slots: &'static [(&'static str, &'static str)],
    /// The outputs of the declaring operator that the third operator lacks, each with the kind of an operator that computes the
    /// output. The operator that computes the missing output does not read the producer's output; all of its input slots are
    /// input slots of the third operator.
    pub by_others: &'static [(&'static str, &'static str)],
    /// The minimum width of the value between the two operators: fusion is faster only for wide rows.
    pub least_width: usize,
}

/// The merging of several calls of an operator into one call: see [`Hints::merges`]. In the slots of `beside`, the merged call
/// has the variables of all calls, one after the other. The output of the merged call is the outputs of the calls side by side,
/// number for number. For an input that the calls share, the gradient of the merged call is the sum of the calls' gradients.
#[derive(Debug, Clone, Copy)]
pub struct Merge {
    /// The input slots in which the calls may have different variables; the variables in these slots are constants.
    pub beside: &'static [&'static str],
    /// The kind of the operator that splits the merged call's output into the outputs of the calls. The splitting operator has
    /// one input slot and one output slot, and declares [`Hints::columns`]. The attribute `sizes` of the splitting operator has
    /// the number of columns of each part.
    pub parts: &'static str,
}

/// The calls of an operator on pieces of sequences: see [`Hints::pieces`]. A call on a piece is a call of the operator `into`,
/// which has all slots of the declaring operator. A value that passes from one piece to the next piece adds two slots of the same
/// name: an optional input, which is zero for the first piece, and an output. Inputs without rows of the sequences are the same
/// for every piece. An output with one row per sequence is complete after the last piece. An output with the rows of the
/// sequences is complete for the rows of each piece.
#[derive(Debug, Clone)]
pub struct Pieces {
    /// The kind of the operator that is called on each piece of the sequences.
    pub into: &'static str,
    /// The attributes of the operator `into`.
    pub attributes: Attributes,
    /// The values that pass from one piece to the next piece, with one row per sequence: the name that the two slots of each
    /// value have.
    pub carried: &'static [&'static str],
}
