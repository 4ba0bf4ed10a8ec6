//! The scratch of attention.

use crate::kernels::float::Float;
use crate::kernels::path::MatrixUnit;
use crate::kernels::products::{PackedMatrix, RoundedRows};

/// The number of queries in a tile. This number and [`KEYS`] decide the order of summation, and therefore the bits of
/// results. Both tile sizes are constants, so that results have the same bits on every machine.
pub(super) const QUERIES: usize = 64;
/// The number of keys in a tile.
pub(super) const KEYS: usize = 128;

/// Scratch of attention: a few tiles, and two numbers per query.
pub struct AttentionRoom<T> {
    pub(super) keys: PackedMatrix<T>,
    pub(super) values: PackedMatrix<T>,
    /// The keys in row order, for the gradient of the queries.
    pub(super) rows: PackedMatrix<T>,
    pub(super) weights: PackedMatrix<T>,
    pub(super) tile: Vec<T>,
    pub(super) other: Vec<T>,
    pub(super) turned: Vec<T>,
    /// The transposed gradients of a tile's keys (`dk`) and values (`dv`), and scratch to transpose one of them back
    /// (`back`).
    pub(super) dk: Vec<T>,
    pub(super) dv: Vec<T>,
    pub(super) back: Vec<T>,
    pub(super) most: Vec<T>,
    pub(super) sums: Vec<T>,
    /// The scores of the keys, if the sequence has a single query.
    pub(super) scores: Vec<T>,
    pub(super) rounded: RoundedRows<T>,
}

impl<T: Float> Default for AttentionRoom<T> {
    fn default() -> Self {
        Self {
            keys: PackedMatrix::new(),
            values: PackedMatrix::new(),
            rows: PackedMatrix::new(),
            weights: PackedMatrix::new(),
            tile: vec![],
            other: vec![],
            turned: vec![],
            dk: vec![],
            dv: vec![],
            back: vec![],
            most: vec![],
            sums: vec![],
            scores: vec![],
            rounded: RoundedRows::default(),
        }
    }
}

impl<T: Float> AttentionRoom<T> {
    /// Sets the unit that computes the products.
    pub fn set_unit(&mut self, unit: MatrixUnit) {
        let Self { keys, values, rows, weights, .. } = self;
        [keys, values, rows, weights].into_iter().for_each(|packed| packed.set_unit(unit));
    }

    /// Returns the size in bytes of a room for sequences of up to `queries` queries and `keys` keys. A query or a key
    /// has `width` numbers, and a value has `values` numbers. The room is for the backward pass if `backward` is set,
    /// else for the forward pass.
    pub fn bytes_of(
        unit: MatrixUnit,
        (queries, keys): (usize, usize),
        (width, values): (usize, usize),
        backward: bool,
    ) -> usize {
        let (q, k) = (queries.min(QUERIES), keys.min(KEYS));
        let packed = |k, n| PackedMatrix::<T>::bytes_of(unit, k, n);
        let rounded = |rows, k| RoundedRows::<T>::bytes_of(unit, rows, k);
        let larger = width.max(values);
        let (matrices, numbers) = match backward {
            false => (packed(width, k) + packed(k, values) + rounded(q, width.max(k)), q * k + 2 * queries),
            true => (
                packed(width, k)
                    + packed(values, k)
                    + packed(k, width)
                    + packed(q, k)
                    + rounded(q, larger.max(k)).max(rounded(larger, q)),
                2 * q * k + q * larger + k * (width + values + larger) + queries,
            ),
        };
        numbers.saturating_add(keys).saturating_mul(size_of::<T>()).saturating_add(matrices)
    }
}
