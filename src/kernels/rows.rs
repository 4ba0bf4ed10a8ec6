//! Gathering of rows by index, and merging of rows with equal ids in a fixed order.

use std::ops::Range;

use super::float::Float;
use super::path::{Arithmetic, Sweep, sweep};
use super::view::{View, ViewMut};

/// Gathers rows of `src` by index: `out[i] = src[index[i]]`.
///
/// # Panics
/// If an index is not the index of a row of `src`; or if `out` does not have one row per index, as wide as the rows of
/// `src`.
pub fn gather_rows<T: Copy>(src: View<'_, T>, index: &[usize], mut out: ViewMut<'_, T>) {
    assert_eq!((out.rows(), out.width()), (index.len(), src.width()), "the shape of gathered rows");
    for (out, &i) in out.iter_mut().zip(index) {
        out.copy_from_slice(src.row(i));
    }
}

/// A plan to merge the gradients of rows that were gathered by id: the distinct ids in a batch, each with its positions in
/// the batch.
///
/// The caller keeps the plan for the next batch; once its memory has grown, planning allocates no memory.
#[derive(Debug, Clone, Default)]
pub struct RowMerge {
    ids: Vec<i64>,
    starts: Vec<usize>,
    order: Vec<u32>,
    keys: Vec<u64>,
    spare_keys: Vec<u64>,
    spare_order: Vec<u32>,
}

/// The sign bit of an id. The keys have this bit flipped, so that unsigned keys sort in the order of the signed ids.
const SIGN: u64 = 1 << 63;
/// The number of bits for a position in the batch.
const INDEX_BITS: u32 = u32::BITS;

/// A digit of a key: the bits by which one pass of the radix sort sorts.
struct Digit {
    shift: u32,
    bits: u32,
}

impl Digit {
    /// The maximum number of bits of a digit. With this maximum, the counts of all values of a digit stay in the
    /// nearest cache.
    const MOST: u32 = 11;

    /// Returns the digits that cover `bits` bits of a key from bit `from` on, the lowest digit first.
    fn all(from: u32, bits: u32) -> impl Iterator<Item = Self> {
        let each = bits.div_ceil(bits.div_ceil(Self::MOST).max(1)).max(1);
        (0..bits).step_by(each as usize).map(move |at| Self { shift: from + at, bits: each.min(bits - at) })
    }

    /// Calls `put` for each key with the key's index and its position after a stable sort by this digit.
    fn each(&self, keys: &[u64], mut put: impl FnMut(usize, usize)) {
        let digit = |key: u64| (key >> self.shift) as usize & ((1 << self.bits) - 1);
        let mut next = [0u32; 1 << Self::MOST];
        for &key in keys {
            next[digit(key)] += 1;
        }
        let mut sum = 0;
        for slot in &mut next {
            sum += std::mem::replace(slot, sum);
        }
        for (from, &key) in keys.iter().enumerate() {
            let slot = &mut next[digit(key)];
            put(from, *slot as usize);
            *slot += 1;
        }
    }
}

/// Reserves memory for exactly `len` elements of a list.
fn to<T>(list: &mut Vec<T>, len: usize) {
    list.reserve_exact(len.saturating_sub(list.len()));
}

impl RowMerge {
    /// The size of a plan in bytes per row to merge.
    pub const BYTES_PER_ROW: usize = 4 * size_of::<u64>() + 2 * size_of::<u32>();

    /// Returns a plan for no rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reserves memory, so that planning for `rows` rows allocates no memory.
    pub fn reserve(&mut self, rows: usize) {
        self.reserve_narrow(rows);
        to(&mut self.spare_order, rows);
    }

    /// Reserves the memory of a plan whose ids differ in few bits.
    fn reserve_narrow(&mut self, rows: usize) {
        to(&mut self.ids, rows);
        to(&mut self.starts, rows + 1);
        to(&mut self.order, rows);
        to(&mut self.keys, rows);
        to(&mut self.spare_keys, rows);
    }

    /// Plans the merge of rows; `ids` has the id of each row in the batch.
    ///
    /// # Panics
    /// If `ids` has 2^32 ids or more.
    pub fn prepare(&mut self, ids: &[i64]) {
        assert!(u32::try_from(ids.len()).is_ok(), "{} rows to merge", ids.len());
        self.reserve_narrow(ids.len());
        self.keys.clear();
        self.keys.extend(ids.iter().map(|&id| id as u64 ^ SIGN));
        self.sort();
        self.ids.clear();
        self.starts.clear();
        let mut last = None;
        for (at, &key) in self.keys.iter().enumerate() {
            if last != Some(key) {
                last = Some(key);
                self.ids.push((key ^ SIGN) as i64);
                self.starts.push(at);
            }
        }
        self.starts.push(ids.len());
    }

    /// Sorts the keys by a stable radix sort, and computes `order`, the original position of each key. Bits that are equal
    /// in all keys are skipped.
    fn sort(&mut self) {
        let Self { keys, order, spare_keys, spare_order, .. } = self;
        let first = keys.first().copied().unwrap_or(0);
        let bits = u64::BITS - keys.iter().fold(0, |bits, &key| bits | (key ^ first)).leading_zeros();
        spare_keys.resize(keys.len(), 0);
        if bits <= INDEX_BITS {
            // If the differing bits and the position fit into one number, each pass moves only this number instead of a
            // key and a position.
            let differing = (1 << bits) - 1;
            for (index, key) in keys.iter_mut().enumerate() {
                *key = (*key & differing) << INDEX_BITS | index as u64;
            }
            for digit in Digit::all(INDEX_BITS, bits) {
                digit.each(keys, |from, to| spare_keys[to] = keys[from]);
                std::mem::swap(keys, spare_keys);
            }
            order.clear();
            order.extend(keys.iter().map(|&key| key as u32));
            keys.iter_mut().for_each(|key| *key = first & !differing | *key >> INDEX_BITS);
            return;
        }
        order.clear();
        order.extend(0..keys.len() as u32);
        spare_order.resize(keys.len(), 0);
        for digit in Digit::all(0, bits) {
            digit.each(keys, |from, to| (spare_keys[to], spare_order[to]) = (keys[from], order[from]));
            std::mem::swap(keys, spare_keys);
            std::mem::swap(order, spare_order);
        }
    }

    /// Returns the distinct ids in ascending order.
    pub fn ids(&self) -> &[i64] {
        &self.ids
    }

    /// Returns the positions in the batch of the `i`-th distinct id, in ascending order.
    ///
    /// # Panics
    /// If there are at most `i` distinct ids.
    pub fn occurrences(&self, i: usize) -> &[u32] {
        &self.order[self.starts[i]..self.starts[i + 1]]
    }

    /// Returns the total number of occurrences of the first `i` distinct ids.
    ///
    /// # Panics
    /// If there are fewer than `i` distinct ids.
    pub fn occurrences_before(&self, i: usize) -> usize {
        self.starts[i]
    }

    /// Merges rows: `out[i]` is the sum of the rows of `values` at the positions that [`Self::occurrences`] returns for
    /// `i`, added in the order of these positions.
    ///
    /// # Panics
    /// If `values` does not have the planned number of rows, or if `out` does not have one row per distinct id, as wide
    /// as the rows of `values`.
    pub fn merge<T: Float>(&self, values: View<'_, T>, out: ViewMut<'_, T>) {
        self.merge_range(values, 0..self.ids().len(), out);
    }

    /// Merges rows like [`Self::merge`], for a range of the distinct ids, so that threads can divide the work. `out` has one
    /// row per id of the range.
    ///
    /// # Panics
    /// As [`Self::merge`].
    pub fn merge_range<T: Float>(&self, values: View<'_, T>, range: Range<usize>, out: ViewMut<'_, T>) {
        assert_eq!(values.rows(), self.order.len(), "the rows to merge");
        assert_eq!((out.rows(), out.width()), (range.len(), values.width()), "the shape of merged rows");
        sweep(Merge { plan: self, values, range, out });
    }
}

struct Merge<'a, T> {
    plan: &'a RowMerge,
    values: View<'a, T>,
    range: Range<usize>,
    out: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Merge<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        for (out, i) in self.out.iter_mut().zip(self.range) {
            let [first, rest @ ..] = self.plan.occurrences(i) else { continue };
            out.copy_from_slice(self.values.row(*first as usize));
            for &row in rest {
                for (out, &value) in out.iter_mut().zip(self.values.row(row as usize)) {
                    *out += value;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::kernels::checks::numbers;
    use crate::kernels::view::Extent2;

    #[test]
    fn rows_are_gathered_by_number() {
        let table = numbers::<f32>(5 * 4, 1);
        let view = View::strided(&table, Extent2 { rows: 5, width: 3, stride: 4 });
        let index = [4, 0, 2];
        let mut out = [0.0; 9];
        gather_rows(view, &index, ViewMut::new(&mut out, 3, 3));
        assert_eq!(out[..3], table[16..19]);
        assert_eq!((&out[3..6], &out[6..]), (&table[..3], &table[8..11]));
        gather_rows(view, &[], ViewMut::new(&mut out, 0, 3));
        gather_rows(view.columns(1, 1), &[1, 2], ViewMut::new(&mut out, 2, 0));
    }

    #[test]
    #[should_panic(expected = "row 5 of 5")]
    fn an_index_out_of_range_panics() {
        gather_rows(View::new(&[0u8; 5], 5, 1), &[5], ViewMut::new(&mut [0], 1, 1));
    }

    #[test]
    fn duplicates_merge_in_order_of_occurrence() {
        let mut plan = RowMerge::new();
        for (len, bound) in [(0, 1i64), (1, 1), (7, 3), (1000, 50), (3000, i64::MAX), (500, 1 << 20), (20, 1)]
        {
            let ids: Vec<i64> = numbers::<f64>(len, 3).iter().map(|x| (x * bound as f64) as i64).collect();
            let width = 5;
            let values = numbers::<f32>(len * width, 4);
            let mut expected: BTreeMap<i64, Vec<f32>> = BTreeMap::new();
            for (id, value) in ids.iter().zip(values.chunks(width)) {
                expected
                    .entry(*id)
                    .and_modify(|sum| sum.iter_mut().zip(value).for_each(|(sum, x)| *sum += x))
                    .or_insert_with(|| value.to_vec());
            }
            plan.prepare(&ids);
            assert_eq!(plan.ids(), expected.keys().copied().collect::<Vec<_>>());
            let mut out = vec![f32::NAN; plan.ids().len() * width];
            plan.merge(View::new(&values, len, width), ViewMut::new(&mut out, plan.ids().len(), width));
            assert_eq!(out, expected.values().flatten().copied().collect::<Vec<_>>());
            assert!((0..plan.ids().len()).all(|i| plan.occurrences(i).is_sorted()));
        }
    }
}
