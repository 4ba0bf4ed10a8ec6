//! Check cases: small cases of an operator, which show its behaviour and on which it is checked.

use std::sync::Arc;

use ndarray::Array2;

use crate::error::{AtCaller, Result};
use crate::lod::Lod;
use crate::operator::attributes::{Attributes, Literal};
use crate::tensor::{Csr, Variable};

/// An operand of a sample or of a direct call.
#[derive(Debug, Clone)]
pub struct Operand {
    /// The slot that the operand is bound to.
    pub slot: String,
    /// The operand's value; floats are f64, and tests in f32 cast them.
    pub value: Variable,
    /// Whether the rows are the rows of a batch; else the operand is a constant, like a parameter.
    pub batched: bool,
    /// A literal, for a slot that takes literals; `value` is then not read.
    pub literal: Option<Literal>,
    /// Whether the operand must keep its dtype: no test casts it to another dtype.
    pub fixed: bool,
}

impl Operand {
    /// An operand whose rows are the rows of a batch.
    pub fn batch(slot: &str, value: impl Into<Variable>) -> Self {
        Operand { slot: slot.to_owned(), value: value.into(), batched: true, literal: None, fixed: false }
    }

    /// A constant operand, like a parameter.
    pub fn constant(slot: &str, value: impl Into<Variable>) -> Self {
        Operand { batched: false, ..Self::batch(slot, value) }
    }

    /// A constant operand that no test casts to another dtype.
    pub fn fixed(slot: &str, value: impl Into<Variable>) -> Self {
        Operand { fixed: true, ..Self::constant(slot, value) }
    }

    /// A literal.
    pub fn literal(slot: &str, value: impl Into<Literal>) -> Self {
        Operand { literal: Some(value.into()), ..Self::constant(slot, ndarray::arr0(false)) }
    }
}

/// One call of an operator: attributes and operands.
#[derive(Debug, Clone, Default)]
pub struct CheckCase {
    /// The behaviour that the case shows.
    pub name: String,
    /// The operator's attributes.
    pub attributes: Attributes,
    /// The operands that the operator reads.
    pub operands: Vec<Operand>,
    /// No gradient is checked: the case is on a kink or at a tie.
    pub forward_only: bool,
}

const ZEROS: &str = "rows of zeros";

impl CheckCase {
    /// A case without operands.
    pub fn new(name: &str, attributes: Attributes) -> Self {
        Self { name: name.to_owned(), attributes, ..Self::default() }
    }

    /// Adds a batched operand: its rows are sequences, or the rows of sequences.
    #[must_use]
    pub fn batch(mut self, slot: &str, value: impl Into<Variable>) -> Self {
        self.operands.push(Operand::batch(slot, value));
        self
    }

    /// Adds a constant operand.
    #[must_use]
    pub fn constant(mut self, slot: &str, value: impl Into<Variable>) -> Self {
        self.operands.push(Operand::constant(slot, value));
        self
    }

    /// Adds a constant operand that no test casts to another dtype.
    #[must_use]
    pub fn fixed(mut self, slot: &str, value: impl Into<Variable>) -> Self {
        self.operands.push(Operand::fixed(slot, value));
        self
    }

    /// Adds a literal.
    #[must_use]
    pub fn literal(mut self, slot: &str, value: impl Into<Literal>) -> Self {
        self.operands.push(Operand::literal(slot, value));
        self
    }

    /// Leaves the gradients out of the check against differences: the case is on a kink or at a tie, or its gradient is not
    /// the derivative by definition, such as the gradient of a padding row.
    #[must_use]
    pub fn without_gradient(mut self) -> Self {
        self.forward_only = true;
        self
    }

    /// The standard cases of row-wise operators: a variable `x` of `width` numbers per row, as sequences with an empty one,
    /// in two levels, as empty sequences only, as no sequences, as rows without a LoD, as rows of zeros, and as a constant.
    /// `add` binds further operands beside it.
    ///
    /// # Errors
    /// The error of `add`.
    #[track_caller]
    pub fn of_rows(
        attributes: &Attributes,
        width: usize,
        add: impl Fn(CheckCase, &Variable) -> Result<CheckCase>,
    ) -> Result<Vec<CheckCase>> {
        cases_of_rows(attributes, width, &add).at_caller()
    }

    /// The standard cases of operators on sparse rows: a csr `x` of `columns` columns, with empty rows and columns, a stored
    /// zero, repeated and unsorted entries; as sequences with an empty one, in two levels, as empty sequences only, as no
    /// sequences, as rows without a LoD, and as a constant. `add` binds further operands beside it.
    ///
    /// # Errors
    /// The error of `add`.
    #[track_caller]
    pub fn of_csr(
        attributes: &Attributes,
        columns: usize,
        add: impl Fn(CheckCase, &Variable) -> Result<CheckCase>,
    ) -> Result<Vec<CheckCase>> {
        cases_of_csr(attributes, columns, &add).at_caller()
    }

    /// The standard cases of sequence-wise operators: sequences of which one is empty, sequences of two levels, empty sequences
    /// only, and no sequence. `bind` binds the operands, as sequences with the given LoD; [`numbers`] makes rows for them.
    ///
    /// # Errors
    /// The error of `bind`.
    #[track_caller]
    pub fn of_sequences(
        attributes: &Attributes,
        bind: impl Fn(CheckCase, Arc<Lod>) -> Result<CheckCase>,
    ) -> Result<Vec<CheckCase>> {
        cases_of_sequences(attributes, &bind).at_caller()
    }
}

/// The code of [`CheckCase::of_rows`], compiled once: most callers pass a closure of their own.
fn cases_of_rows(
    attributes: &Attributes,
    width: usize,
    add: &dyn Fn(CheckCase, &Variable) -> Result<CheckCase>,
) -> Result<Vec<CheckCase>> {
    let sequences = |lengths: &[&[usize]]| -> Result<Variable> {
        let lod = Lod::from_lengths(&lengths.iter().map(|l| l.to_vec()).collect::<Vec<_>>())?;
        Variable::sequences(numbers(lod.rows(), width, 0), lod)
    };
    let rows = |rows| Variable::from(numbers(rows, width, 0));
    [
        ("sequences, one empty", sequences(&[&[2, 0, 1]])?, true),
        ("two levels", sequences(&[&[2, 0, 1], &[3, 0, 2]])?, true),
        ("all empty", sequences(&[&[0, 0]])?, true),
        ("no sequence", sequences(&[&[]])?, true),
        ("one row a sequence", rows(3), true),
        (ZEROS, Variable::from(Array2::<f64>::zeros((2, width))), true),
        ("a constant", rows(2), false),
    ]
    .into_iter()
    .map(|(name, value, batched)| {
        let mut sample = CheckCase::new(name, attributes.clone());
        sample.operands.push(Operand { batched, ..Operand::batch("x", value.clone()) });
        let sample = add(sample, &value)?;
        // Many functions have a kink at zero.
        Ok(if name == ZEROS { sample.without_gradient() } else { sample })
    })
    .collect()
}

/// A csr matrix of `rows` rows without a pattern: some rows and most columns are empty, and the entries of a row are unsorted and
/// may repeat.
///
/// # Errors
/// If there are no columns.
#[track_caller]
pub fn sparse_numbers(rows: usize, columns: usize, salt: usize) -> Result<Csr> {
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in 0..rows {
        for k in 0..(row + salt) % 4 {
            let at = (row * 7 + k * 5 + salt * 3 + 1) * 2654435761;
            indices.push((at >> 7) as i64 % columns.max(1) as i64);
            values.push(1.5 * (at as f64).sin());
        }
        indptr.push(indices.len() as i64);
    }
    if let Some(first) = values.first_mut() {
        *first = 0.0;
    }
    Csr::new([rows, columns], indptr, indices, ndarray::Array1::from(values))
}

/// The code of [`CheckCase::of_csr`], compiled once.
fn cases_of_csr(
    attributes: &Attributes,
    columns: usize,
    add: &dyn Fn(CheckCase, &Variable) -> Result<CheckCase>,
) -> Result<Vec<CheckCase>> {
    let sequences = |lengths: &[&[usize]], salt| -> Result<Variable> {
        let lod = Lod::from_lengths(&lengths.iter().map(|l| l.to_vec()).collect::<Vec<_>>())?;
        Variable::new(sparse_numbers(lod.rows(), columns, salt)?, Some(lod))
    };
    let rows = |rows, salt| Variable::new(sparse_numbers(rows, columns, salt)?, None);
    [
        ("csr, sequences, one empty", sequences(&[&[2, 0, 3]], 1)?, true),
        ("csr, two levels", sequences(&[&[2, 0, 1], &[3, 0, 2]], 2)?, true),
        ("csr, all empty", sequences(&[&[0, 0]], 0)?, true),
        ("csr, no sequence", sequences(&[&[]], 0)?, true),
        ("csr, one row a sequence", rows(5, 3)?, true),
        ("csr, no entries", rows(1, 0)?, true),
        ("csr, a constant", rows(4, 2)?, false),
    ]
    .into_iter()
    .map(|(name, value, batched)| {
        let mut sample = CheckCase::new(name, attributes.clone());
        sample.operands.push(Operand { batched, ..Operand::batch("x", value.clone()) });
        add(sample, &value)
    })
    .collect()
}

/// The code of [`CheckCase::of_sequences`], compiled once.
fn cases_of_sequences(
    attributes: &Attributes,
    bind: &dyn Fn(CheckCase, Arc<Lod>) -> Result<CheckCase>,
) -> Result<Vec<CheckCase>> {
    let cases: [(&str, &[&[usize]]); 4] = [
        ("sequences with an empty one", &[&[3, 0, 1]]),
        ("two levels", &[&[2, 0, 1], &[2, 0, 4]]),
        ("all empty", &[&[0, 0]]),
        ("none", &[&[]]),
    ];
    let sample = |(name, lengths): (&str, &[&[usize]])| {
        let lod = Lod::from_lengths(&lengths.iter().map(|l| l.to_vec()).collect::<Vec<_>>())?;
        bind(CheckCase::new(name, attributes.clone()), lod)
    };
    cases.into_iter().map(sample).collect()
}

/// A matrix of numbers between -1.5 and 1.5, without a pattern or a tie; another `salt` gives other numbers.
pub fn numbers(rows: usize, width: usize, salt: usize) -> Array2<f64> {
    Array2::from_shape_fn((rows, width), |(i, j)| {
        1.5 * ((i * width + j + 1) as f64 * 2.4 + salt as f64 * 0.9).sin()
    })
}
