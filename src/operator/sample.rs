//! Check cases: small calls of an operator that show its behaviour, and on which tests check the operator.

use std::sync::Arc;

use ndarray::Array2;

use crate::error::{AtCaller, Result};
use crate::lod::Lod;
use crate::operator::attributes::{Attributes, Literal};
use crate::tensor::{Csr, Variable};

/// An operand of a check case or of a direct call.
#[derive(Debug, Clone)]
pub struct Operand {
    /// The name of the slot that the operand is bound to.
    pub slot: String,
    /// The operand's value; floats are f64, and tests in f32 convert them to f32.
    pub value: Variable,
    /// Whether the operand's rows are rows of a batch; if not, the operand is a constant, such as a parameter.
    pub batched: bool,
    /// The literal, for a slot that takes literals; `value` is then ignored. `None` for a slot that takes tensors.
    pub literal: Option<Literal>,
    /// Whether the operand keeps its dtype in every test: no test converts it to another dtype.
    pub fixed: bool,
}

impl Operand {
    /// Returns an operand whose rows are rows of a batch.
    pub fn batch(slot: &str, value: impl Into<Variable>) -> Self {
        Operand { slot: slot.to_owned(), value: value.into(), batched: true, literal: None, fixed: false }
    }

    /// Returns a constant operand, such as a parameter.
    pub fn constant(slot: &str, value: impl Into<Variable>) -> Self {
        Operand { batched: false, ..Self::batch(slot, value) }
    }

    /// Returns a constant operand that no test converts to another dtype.
    pub fn fixed(slot: &str, value: impl Into<Variable>) -> Self {
        Operand { fixed: true, ..Self::constant(slot, value) }
    }

    /// Returns a literal operand, for a slot that takes literals.
    pub fn literal(slot: &str, value: impl Into<Literal>) -> Self {
        Operand { literal: Some(value.into()), ..Self::constant(slot, ndarray::arr0(false)) }
    }
}

/// One call of an operator in its tests: a name, attributes and operands.
#[derive(Debug, Clone, Default)]
pub struct CheckCase {
    /// The name of the case: the behaviour that it shows.
    pub(crate) name: String,
    /// The attributes of the called operator.
    pub attributes: Attributes,
    /// The operands of the call.
    pub operands: Vec<Operand>,
    /// Whether the check of the gradients is omitted, because an operand is at a kink of the function or at a tie.
    pub(crate) forward_only: bool,
}

const ZEROS: &str = "rows of zeros";

impl CheckCase {
    /// Returns a check case without operands.
    pub fn new(name: &str, attributes: Attributes) -> Self {
        Self { name: name.to_owned(), attributes, ..Self::default() }
    }

    /// Adds a batched operand to the check case; its rows are sequences, or rows of sequences.
    #[must_use]
    pub fn batch(mut self, slot: &str, value: impl Into<Variable>) -> Self {
        self.operands.push(Operand::batch(slot, value));
        self
    }

    /// Adds a constant operand to the check case.
    #[must_use]
    pub fn constant(mut self, slot: &str, value: impl Into<Variable>) -> Self {
        self.operands.push(Operand::constant(slot, value));
        self
    }

    /// Adds a constant operand that no test converts to another dtype.
    #[must_use]
    pub fn fixed(mut self, slot: &str, value: impl Into<Variable>) -> Self {
        self.operands.push(Operand::fixed(slot, value));
        self
    }

    /// Adds a literal operand to the check case.
    #[must_use]
    pub fn literal(mut self, slot: &str, value: impl Into<Literal>) -> Self {
        self.operands.push(Operand::literal(slot, value));
        self
    }

    /// Excludes the gradients from the check against finite differences. Exclude the gradients at a kink or a tie of the
    /// function. Also exclude a gradient that is by definition not the derivative, such as the gradient of a padding row.
    #[must_use]
    pub fn without_gradient(mut self) -> Self {
        self.forward_only = true;
        self
    }

    /// Returns the standard check cases of row-wise operators, with a variable `x` of `width` numbers per row. Each
    /// case has another `x`: sequences of which one is empty, two LoD levels, only empty sequences, no sequence, rows
    /// without a LoD, rows of zeros, or a constant. `add` adds further operands to each case.
    ///
    /// # Errors
    /// Fails if `add` fails.
    #[track_caller]
    pub fn of_rows(
        attributes: &Attributes,
        width: usize,
        add: impl Fn(CheckCase, &Variable) -> Result<CheckCase>,
    ) -> Result<Vec<CheckCase>> {
        cases_of_rows(attributes, width, &add).at_caller()
    }

    /// Returns the standard check cases of operators on sparse rows, with a csr variable `x` of `columns` columns. The
    /// matrix has empty rows and columns, a stored zero, and repeated and unsorted entries. Each case has another `x`:
    /// sequences of which one is empty, two LoD levels, only empty sequences, no sequence, rows without a LoD, a row
    /// without entries, or a constant. `add` adds further operands to each case.
    ///
    /// # Errors
    /// Fails if `add` fails.
    #[track_caller]
    pub fn of_csr(
        attributes: &Attributes,
        columns: usize,
        add: impl Fn(CheckCase, &Variable) -> Result<CheckCase>,
    ) -> Result<Vec<CheckCase>> {
        cases_of_csr(attributes, columns, &add).at_caller()
    }

    /// Returns the standard check cases of sequence-wise operators: sequences of which one is empty, two LoD levels,
    /// only empty sequences, and no sequences. `bind` adds the operands to each case, as sequences with the given LoD;
    /// [`numbers`] makes rows for the operands.
    ///
    /// # Errors
    /// Fails if `bind` fails.
    #[track_caller]
    pub fn of_sequences(
        attributes: &Attributes,
        bind: impl Fn(CheckCase, Arc<Lod>) -> Result<CheckCase>,
    ) -> Result<Vec<CheckCase>> {
        cases_of_sequences(attributes, &bind).at_caller()
    }
}

/// Makes the cases of [`CheckCase::of_rows`]. The function takes a `dyn` closure, so that it is compiled only once for all
/// callers.
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
        // Many functions have a kink at zero, where the gradient is not checked.
        Ok(if name == ZEROS { sample.without_gradient() } else { sample })
    })
    .collect()
}

/// Returns an irregular csr matrix of `rows` rows, as test data. Some rows and most columns are empty, and the entries of a row
/// are unsorted and may repeat.
///
/// # Errors
/// Fails if `columns` is 0 and the matrix has entries.
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

/// Makes the cases of [`CheckCase::of_csr`]. The function is compiled only once for all callers.
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

/// Makes the cases of [`CheckCase::of_sequences`]. The function is compiled only once for all callers.
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

/// Returns a matrix of irregular numbers between -1.5 and 1.5, without equal numbers; another `salt` gives other numbers.
pub fn numbers(rows: usize, width: usize, salt: usize) -> Array2<f64> {
    Array2::from_shape_fn((rows, width), |(i, j)| {
        1.5 * ((i * width + j + 1) as f64 * 2.4 + salt as f64 * 0.9).sin()
    })
}
