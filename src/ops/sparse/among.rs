//! Finds the entries of a sparse matrix whose column is in a set of ids. The ids are, for example, the row indices of
//! selected rows.

use crate::kernels::sparse::CsrView;
use crate::operator::{CsrBuffer, RowBuffer};
use crate::ops::prelude::*;

/// Entries of a sparse matrix with renumbered columns: the new column of an entry is the index of its old column in an
/// ascending list of ids. The memory is kept from call to call.
pub(in crate::ops) struct RenumberedColumns<T> {
    indptr: Vec<i64>,
    places: Vec<i64>,
    values: Vec<T>,
    /// The indices of the renumbered entries among all entries of the matrix.
    entries: Vec<usize>,
    ids: usize,
    numbers: Vec<T>,
}

impl<T> Default for RenumberedColumns<T> {
    fn default() -> Self {
        let (indptr, places, values) = (Vec::new(), Vec::new(), Vec::new());
        Self { indptr, places, values, entries: Vec::new(), ids: 0, numbers: Vec::new() }
    }
}

impl<T: Float> RenumberedColumns<T> {
    /// Returns the maximum number of bytes for a matrix with `rows` rows and `entries` entries.
    pub(in crate::ops) fn bytes_of(rows: usize, entries: usize) -> usize {
        (rows + 1) * size_of::<i64>() + 2 * entries * (size_of::<i64>() + size_of::<T>())
    }

    /// Finds the entries of `x` with a column in `ids`, and renumbers their columns. `ids` and the columns of each row of `x`
    /// must ascend.
    pub(in crate::ops) fn find(&mut self, x: CsrView<'_, T>, ids: &[i64]) {
        self.ids = ids.len();
        self.indptr.clear();
        self.indptr.push(0);
        self.places.clear();
        self.values.clear();
        self.entries.clear();
        self.places.reserve(x.entries());
        self.values.reserve(x.entries());
        self.entries.reserve(x.entries());
        self.indptr.reserve(x.rows());
        let mut entry = 0;
        for r in 0..x.rows() {
            let (columns, values) = x.row(r);
            let mut from = 0;
            for (&column, &value) in columns.iter().zip(values) {
                from += ids[from..].partition_point(|&id| id < column);
                if ids.get(from) == Some(&column) {
                    self.places.push(from as i64);
                    self.values.push(value);
                    self.entries.push(entry);
                }
                entry += 1;
            }
            self.indptr.push(self.places.len() as i64);
        }
    }

    /// Returns the entries that were found, as a matrix with one column per id.
    pub(in crate::ops) fn view(&self) -> CsrView<'_, T> {
        CsrView::new(self.ids, &self.indptr, &self.places, &self.values)
    }

    /// Writes or adds to `to` one number for each entry of the matrix, renumbered or not. The numbers of the renumbered entries
    /// are written by `fill`, in the order of the entries; the number of every other entry is 0.
    pub(in crate::ops) fn at_entries(
        &mut self,
        to: &mut [T],
        assign: Assign,
        fill: impl FnOnce(CsrView<'_, T>, &mut [T]),
    ) {
        let Self { indptr, places, values, entries, ids, numbers } = self;
        numbers.clear();
        numbers.resize(entries.len(), T::ZERO);
        fill(CsrView::new(*ids, indptr, places, values), numbers);
        if assign == Assign::Write {
            to.fill(T::ZERO);
        }
        entries.iter().zip(numbers).for_each(|(&entry, &mut number)| to[entry] += number);
    }
}

/// Returns the sparse matrix of a slot; the operator's declared kernels guarantee that the slot has a sparse matrix.
///
/// # Errors
/// It is an error if the operand is not a sparse matrix.
pub(in crate::ops) fn given(csr: Option<&CsrBuffer>) -> Result<&CsrBuffer> {
    csr.ok_or_else(|| Error::of(ErrorKind::Program, "operand", "a sparse matrix", "another storage"))
}

/// Returns the values of selected rows as a view. If there are no rows, the dtype may be unknown; the view is then
/// empty.
///
/// # Errors
/// It is an error if the dtype of the rows is not `T`.
pub(in crate::ops) fn values<T: RowValue>(rows: &RowBuffer, width: usize) -> Result<View<'_, T>> {
    if rows.ids().is_empty() { Ok(View::new(&[], 0, width)) } else { rows.values::<T>() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_their_columns() {
        let mut among = RenumberedColumns::<f32>::default();
        let (indptr, indices, values) = ([0, 3, 3, 5], [1, 4, 7, 0, 7], [1.0, 2.0, 3.0, 4.0, 5.0]);
        let x = CsrView::new(9, &indptr, &indices, &values);
        among.find(x, &[4, 5, 7]);
        let found = among.view();
        assert_eq!((found.rows(), found.columns()), (3, 3));
        assert_eq!(
            (found.row(0), found.row(1), found.row(2)),
            ((&[0, 2][..], &[2.0, 3.0][..]), (&[][..], &[][..]), (&[2][..], &[5.0][..]))
        );
        let mut to = [10.0; 5];
        among.at_entries(&mut to, Assign::Add, |found, to| to.copy_from_slice(found.values()));
        assert_eq!(to, [10.0, 12.0, 13.0, 10.0, 15.0]);
        among.at_entries(&mut to, Assign::Write, |found, to| to.copy_from_slice(found.values()));
        assert_eq!(to, [0.0, 2.0, 3.0, 0.0, 5.0]);
        among.find(x, &[]);
        assert_eq!((among.view().entries(), among.view().columns()), (0, 0));
    }
}
