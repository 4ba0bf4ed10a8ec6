//! Kinds of pooling: how `sequence_pool` reduces the rows of a sequence to one row.

use crate::kernels::exceeds;
use crate::operator::attributes::Attribute;
use crate::ops::prelude::*;

/// Pooling: the reduction of the rows of a sequence to one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pool {
    /// Sum pooling: the sum of the rows of a sequence.
    Sum,
    /// Mean pooling: the sum of the rows of a sequence, divided by the number of rows.
    Mean,
    /// Square root pooling: the sum of the rows of a sequence, divided by the square root of the number of rows.
    Sqrt,
    /// Max pooling: the largest value of each column over the rows of a sequence.
    Max,
    /// The first row of a sequence.
    First,
    /// The last row of a sequence.
    Last,
}

/// Whether a sequence has rows before the current piece.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(in crate::ops) enum EarlierRows {
    /// The sequence has no earlier row: the current piece is its first piece.
    Nothing,
    /// The sequence has at least one row before the current piece.
    Rows,
}

impl Pool {
    /// All kinds of pooling, in the order of declaration.
    pub const ALL: [Pool; 6] = [Pool::Sum, Pool::Mean, Pool::Sqrt, Pool::Max, Pool::First, Pool::Last];

    /// Returns the name of this kind of pooling in programs, such as `mean`.
    pub const fn name(self) -> &'static str {
        match self {
            Pool::Sum => "sum",
            Pool::Mean => "mean",
            Pool::Sqrt => "sqrt",
            Pool::Max => "max",
            Pool::First => "first",
            Pool::Last => "last",
        }
    }

    /// Accumulates the rows `rows` of x in `so_far`, which holds the accumulated value of the sequence's earlier rows. If
    /// `before` is `Nothing`, the sequence has no earlier rows, and the old numbers in `so_far` are overwritten.
    pub(in crate::ops) fn take<T: Float>(
        self,
        x: View<'_, T>,
        rows: Range<usize>,
        before: EarlierRows,
        so_far: &mut [T],
    ) {
        if rows.is_empty() {
            return;
        }
        let fresh = usize::from(before == EarlierRows::Nothing);
        if fresh == 1 {
            so_far.copy_from_slice(x.row(rows.start));
        }
        let rest = rows.start + fresh..rows.end;
        match self {
            Pool::First => {}
            Pool::Last => so_far.copy_from_slice(x.row(rows.end - 1)),
            Pool::Max => {
                for row in rest {
                    for (out, &x) in so_far.iter_mut().zip(x.row(row)) {
                        *out = if exceeds(x, *out) { x } else { *out };
                    }
                }
            }
            Pool::Sum | Pool::Mean | Pool::Sqrt => {
                for row in rest {
                    for (out, &x) in so_far.iter_mut().zip(x.row(row)) {
                        *out += x;
                    }
                }
            }
        }
    }

    /// Converts the accumulated value of all `len` rows of a sequence to the pooled row, in place: for `Mean` and
    /// `Sqrt`, divides the sum by [`Self::divisor`].
    pub(in crate::ops) fn finish<T: Float>(self, len: usize, out: &mut [T]) {
        if matches!(self, Pool::Mean | Pool::Sqrt) {
            let divisor = self.divisor::<T>(len);
            out.iter_mut().for_each(|out| *out /= divisor);
        }
    }

    /// Returns the number by which the sum of `len` rows is divided: `len` for the mean, √`len` for `Sqrt`, 1 for all other
    /// kinds.
    pub(in crate::ops) fn divisor<T: Float>(self, len: usize) -> T {
        let len = T::from_f64(len as f64);
        match self {
            Pool::Mean => len,
            Pool::Sqrt => len.sqrt(),
            _ => T::ONE,
        }
    }
}

impl Attribute for Pool {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        let text = attributes.text(name)?;
        Self::ALL.into_iter().find(|pool| pool.name() == text).ok_or_else(|| {
            let names = format!("one of {}", Self::ALL.map(Self::name).join(", "));
            Error::of(ErrorKind::Program, format!("attribute `{name}`"), names, format!("{text:?}"))
        })
    }

    fn write(&self, attributes: &mut Attributes, name: &str) {
        attributes.set(name, self.name());
    }
}
