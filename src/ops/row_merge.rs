//! Stand-in for the kernel `RowMerge`, with its interface; it goes when the kernel is there.

use crate::kernels::{Float, View, ViewMut};

/// Which rows occur in a batch, and where: the plan by which a row-sparse gradient is merged.
#[derive(Debug, Clone, Default)]
pub(super) struct RowMerge {
    ids: Vec<i64>,
    starts: Vec<usize>,
    order: Vec<u32>,
}

impl RowMerge {
    /// Plans the merge of rows with these ids.
    pub(super) fn prepare(&mut self, ids: &[i64]) {
        self.order.clear();
        self.order.extend(0..ids.len() as u32);
        self.order.sort_by_key(|&row| ids[row as usize]);
        self.ids.clear();
        self.starts.clear();
        for (at, &row) in self.order.iter().enumerate() {
            let id = ids[row as usize];
            if self.ids.last() != Some(&id) {
                self.ids.push(id);
                self.starts.push(at);
            }
        }
        self.starts.push(ids.len());
    }

    /// The distinct ids, ascending.
    pub(super) fn ids(&self) -> &[i64] {
        &self.ids
    }

    /// Number of distinct ids.
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// `out[i]` = the sum of the rows of `values` with the `i`-th distinct id, added in their order.
    pub(super) fn merge<T: Float>(&self, values: View<'_, T>, mut out: ViewMut<'_, T>) {
        for (out, range) in out.iter_mut().zip(self.starts.windows(2)) {
            let [first, rest @ ..] = &self.order[range[0]..range[1]] else { continue };
            out.copy_from_slice(values.row(*first as usize));
            for &row in rest {
                for (out, &value) in out.iter_mut().zip(values.row(row as usize)) {
                    *out += value;
                }
            }
        }
    }
}
