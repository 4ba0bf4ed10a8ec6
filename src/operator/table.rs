//! Row-sparse tables, which store only the rows that an update has touched. All other rows have their initial values,
//! which are computed when a row is read.

use std::collections::HashMap;

use super::rows::{Numbers, RowValue};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::random::philox;
use crate::reserve;
use crate::tensor::{DType, Dense, Element, SelectedRows};
use crate::with_float;

/// The distribution of the initial values of a table's rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum RowNumbers {
    /// All values are 0.
    Zeros,
    /// All values are this number.
    Constant(f64),
    /// The values are uniform in `low..high`.
    Uniform {
        /// The inclusive lower bound of the uniform distribution.
        low: f64,
        /// The exclusive upper bound of the uniform distribution.
        high: f64,
    },
    /// The values are normally distributed around 0.
    Normal {
        /// The standard deviation of the normal distribution.
        std: f64,
        /// The index of the padding row, which has only zeros; `None` if there is no padding row.
        padding: Option<i64>,
    },
}

/// The initial values of rows that no update has touched. The initial values depend only on the program's seed, the
/// variable's name, the row's index and the column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RowStart {
    numbers: RowNumbers,
    key: [u32; 2],
    word: u32,
}

impl RowStart {
    pub(crate) fn zeros() -> Self {
        Self { numbers: RowNumbers::Zeros, key: [0; 2], word: 0 }
    }

    /// Returns the initial values for a program with the seed `seed` and a variable with the name hash `name`.
    pub(crate) fn new(numbers: RowNumbers, seed: u64, name: u64) -> Self {
        let ([s0, s1], [n0, n1]) = (halves(seed), halves(name));
        // The generator's counter has no room for both the name and the row's number, so the name is part of the key.
        let [k0, k1, word, _] = philox([n0, n1, 0, 0], [s0, s1]);
        Self { numbers, key: [k0, k1], word }
    }

    fn fill<T: RowValue>(&self, id: i64, out: &mut [T]) {
        match self.numbers {
            RowNumbers::Zeros => out.fill(T::ZERO),
            RowNumbers::Constant(value) => out.fill(T::from_f64(value)),
            RowNumbers::Uniform { low, high } => {
                self.pairs(id, out, |[a, b]| [a, b].map(|x| low + (high - low) * x));
            }
            RowNumbers::Normal { padding, .. } if padding == Some(id) => out.fill(T::ZERO),
            // By the Box-Muller method, two uniform numbers give two normal numbers.
            RowNumbers::Normal { std, .. } => self.pairs(id, out, |[a, b]| {
                let radius = (-2.0 * (1.0 - a).ln()).sqrt();
                let (sin, cos) = (std::f64::consts::TAU * b).sin_cos();
                [cos, sin].map(|part| std * radius * part)
            }),
        }
    }

    /// Fills the columns in pairs: `numbers` computes each pair from two uniform numbers in 0..1.
    fn pairs<T: RowValue>(&self, id: i64, out: &mut [T], numbers: impl Fn([f64; 2]) -> [f64; 2]) {
        let [i0, i1] = halves(id as u64);
        for (block, pair) in out.chunks_mut(2).enumerate() {
            let [w0, w1, w2, w3] = philox([block as u32, self.word, i0, i1], self.key);
            let uniform = |low: u32, high: u32| {
                let bits = u64::from(high) << 32 | u64::from(low);
                (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
            };
            let numbers = numbers([uniform(w0, w1), uniform(w2, w3)]);
            pair.iter_mut().zip(numbers).for_each(|(x, number)| *x = T::from_f64(number));
        }
    }
}

/// Splits a 64-bit number into two 32-bit words, the low word first.
fn halves(x: u64) -> [u32; 2] {
    [x as u32, (x >> 32) as u32]
}

/// A row-sparse parameter, or an optimizer's state for a row-sparse parameter. The table stores the touched rows, in
/// the order of the first touches; all other rows have computed initial values. The memory of the table grows with the
/// number of touched rows; the height of the table needs no memory.
#[derive(Debug, Clone)]
pub(crate) struct RowTable {
    /// The height of the table, then the dimensions of a row.
    dims: Vec<usize>,
    dtype: DType,
    width: usize,
    start: RowStart,
    ids: Vec<i64>,
    numbers: Numbers,
    /// The position of each touched row in memory, by the row's index in the table. The map is never iterated, since its
    /// order differs from run to run.
    places: HashMap<i64, usize>,
}

impl RowTable {
    /// Returns a table of f32 or f64 without touched rows.
    ///
    /// # Errors
    /// Fails if the dtype is not f32 or f64, if the shape has no height, or if the height or the width is too large.
    pub(crate) fn new(dtype: DType, dims: &[usize], start: RowStart) -> Result<Self> {
        let width = dims.iter().skip(1).try_fold(1usize, |width, &n| width.checked_mul(n));
        let (Some(width), true) = (width, dims.first().is_some_and(|&n| i64::try_from(n).is_ok())) else {
            let expected = format!("[height, …] with a height of at most {}", i64::MAX);
            return Err(Error::new("shape of a row-sparse variable", expected, format!("{dims:?}")));
        };
        let mut numbers = Numbers::default();
        match dtype {
            DType::F32 => numbers.reset::<f32>(),
            DType::F64 => numbers.reset::<f64>(),
            other => {
                return Err(Error::new("dtype of a row-sparse variable", "f32 or f64", other.to_string()));
            }
        }
        let (ids, places) = (Vec::new(), HashMap::new());
        Ok(Self { dims: dims.to_vec(), dtype, width, start, ids, numbers, places })
    }

    /// Returns the number of rows of the whole table, touched or not.
    pub(crate) fn height(&self) -> usize {
        self.dims.first().copied().unwrap_or(0)
    }

    /// Returns the number of elements of a row.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Returns the dtype of the table's numbers.
    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn touched(&self) -> usize {
        self.ids.len()
    }

    /// Returns the size in bytes of the touched rows and of their index.
    pub(crate) fn bytes(&self) -> usize {
        let index = self.places.capacity() * size_of::<(i64, usize)>();
        self.ids.capacity() * size_of::<i64>() + self.numbers.bytes() + index
    }

    /// Returns read access to all rows of the table, touched or not.
    ///
    /// # Errors
    /// Fails if the table holds another dtype.
    #[track_caller]
    pub(crate) fn rows<T: RowValue>(&self) -> Result<TableRows<'_, T>> {
        let numbers = self.numbers.get::<T>(WHAT).at_caller()?;
        Ok(TableRows { table: self, numbers })
    }

    /// Adds each row listed in `ids` that the table does not have yet, and writes the position of every listed row to
    /// `places`. An added row gets its initial values. `near` has a guessed position for each row, from a table in which
    /// the same rows were touched. A wrong guess is corrected by a lookup.
    ///
    /// # Errors
    /// Fails if the table holds another dtype.
    pub(crate) fn touch<T: RowValue>(
        &mut self,
        ids: &[i64],
        near: &[usize],
        places: &mut Vec<usize>,
    ) -> Result<()> {
        let numbers = self.numbers.get_mut::<T>(WHAT)?;
        places.clear();
        for (i, &id) in ids.iter().enumerate() {
            if let Some(&position) = near.get(i)
                && self.ids.get(position) == Some(&id)
            {
                places.push(position);
                continue;
            }
            let next = self.ids.len();
            reserve::entries(&mut self.places, 1, "table of row places")?;
            reserve::items(&mut self.ids, 1, "table of row numbers")?;
            reserve::items(numbers, self.width, "table of rows")?;
            let position = *self.places.entry(id).or_insert(next);
            if position == next {
                self.ids.push(id);
                numbers.resize((next + 1) * self.width, T::ZERO);
                self.start.fill(id, &mut numbers[next * self.width..]);
            }
            places.push(position);
        }
        Ok(())
    }

    /// Returns the values of the touched rows, in the order in which the rows were first touched, to be changed in place.
    ///
    /// # Errors
    /// Fails if the table holds another dtype.
    pub(crate) fn numbers_mut<T: RowValue>(&mut self) -> Result<&mut [T]> {
        self.numbers.get_mut::<T>(WHAT).map(Vec::as_mut_slice)
    }

    /// Returns the touched rows, in the order of their row numbers.
    ///
    /// # Errors
    /// Fails if memory does not suffice.
    pub(crate) fn to_selected_rows(&self) -> Result<SelectedRows> {
        let mut order: Vec<usize> = (0..self.ids.len()).collect();
        order.sort_unstable_by_key(|&position| self.ids[position]);
        self.rows_at(&order)
    }

    /// Returns the touched rows among the rows with the numbers `ids`, in the order of `ids`.
    ///
    /// # Errors
    /// Fails if memory does not suffice.
    pub(crate) fn touched_among(&self, ids: &[i64]) -> Result<SelectedRows> {
        let touched: Vec<usize> = ids.iter().filter_map(|id| self.places.get(id).copied()).collect();
        self.rows_at(&touched)
    }

    /// Sets the values of some rows, which are touched afterwards.
    ///
    /// # Errors
    /// Fails if the rows have another dtype or width, or if memory does not suffice.
    pub(crate) fn insert(&mut self, rows: &SelectedRows) -> Result<()> {
        with_float!(self.dtype, T => {
            let (from, mut places) = (rows.value().as_slice::<T>()?, Vec::new());
            self.touch::<T>(rows.row_ids(), &[], &mut places)?;
            let (width, numbers) = (self.width, self.numbers_mut::<T>()?);
            for (&position, row) in places.iter().zip(from.chunks_exact(width.max(1))) {
                numbers[position * width..(position + 1) * width].copy_from_slice(row);
            }
            Ok(())
        })
    }

    /// Removes some rows, which have their initial values afterwards.
    ///
    /// # Errors
    /// Fails if the table holds another dtype than its own, which is a fault of the engine.
    pub(crate) fn remove(&mut self, ids: &[i64]) -> Result<()> {
        with_float!(self.dtype, T => {
            let (width, numbers) = (self.width, self.numbers.get_mut::<T>(WHAT)?);
            for id in ids {
                let Some(position) = self.places.remove(id) else { continue };
                // The last row takes the free position.
                self.ids.swap_remove(position);
                let last = self.ids.len() * width;
                numbers.copy_within(last.., position * width);
                numbers.truncate(last);
                if let Some(&moved) = self.ids.get(position) {
                    self.places.insert(moved, position);
                }
            }
            Ok(())
        })
    }

    /// Returns the touched rows at some positions in memory.
    fn rows_at(&self, order: &[usize]) -> Result<SelectedRows> {
        let mut shape = self.dims.clone();
        if let Some(first) = shape.first_mut() {
            *first = order.len();
        }
        let ids = order.iter().map(|&position| self.ids[position]).collect();
        let value = with_float!(self.dtype, T => self.gather::<T>(order, &shape));
        SelectedRows::new(self.height(), ids, value?)
    }

    /// Returns the values of the touched rows at these positions, in the given order.
    fn gather<T: RowValue + Element>(&self, places: &[usize], shape: &[usize]) -> Result<Dense> {
        let numbers = self.numbers.get::<T>(WHAT)?;
        let rows =
            places.iter().flat_map(|&position| &numbers[position * self.width..(position + 1) * self.width]);
        Dense::from_vec(shape, rows.copied().collect::<Vec<T>>())
    }

    /// Replaces all touched rows by `rows`; all other rows of the table have their initial values again. If `rows`
    /// lists a row several times, the row's values are added up.
    ///
    /// # Errors
    /// Fails if the rows have another shape or dtype. After an error, the table is unchanged.
    pub(crate) fn set(&mut self, rows: SelectedRows) -> Result<()> {
        if rows.shape() != self.dims || rows.dtype() != self.dtype {
            let described = |dtype, dims: &[usize]| format!("{dtype}{dims:?} selected_rows");
            let (expected, got) = (described(self.dtype, &self.dims), described(rows.dtype(), rows.shape()));
            return Err(Error::new("value", expected, got));
        }
        let (ids, value) = rows.merge()?.into_parts();
        with_float!(self.dtype, T => self.refill::<T>(&value))?;
        self.places.clear();
        self.places.extend(ids.iter().enumerate().map(|(position, &id)| (id, position)));
        self.ids = ids;
        Ok(())
    }

    /// Returns all rows of the table, after its touched rows are replaced by `rows`.
    ///
    /// # Errors
    /// Fails as [`Self::set`] does, and if memory does not suffice.
    pub(crate) fn with_rows(mut self, rows: SelectedRows) -> Result<Dense> {
        self.set(rows)?;
        let mut all = Dense::zeros(self.dtype, &self.dims)?;
        with_float!(self.dtype, T => {
            let (rows, width) = (self.rows::<T>()?, self.width.max(1));
            let out = all.as_mut_slice::<T>()?.chunks_exact_mut(width);
            out.enumerate().for_each(|(id, out)| rows.read(id as i64, out));
            Ok::<(), Error>(())
        })?;
        Ok(all)
    }

    fn refill<T: RowValue + Element>(&mut self, value: &Dense) -> Result<()> {
        let (given, numbers) = (value.as_slice::<T>()?, self.numbers.get_mut::<T>(WHAT)?);
        numbers.clear();
        numbers.extend_from_slice(given);
        Ok(())
    }
}

/// Read access to the rows of a [`RowTable`], touched or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableRows<'a, T> {
    table: &'a RowTable,
    numbers: &'a [T],
}

impl<T: RowValue> TableRows<'_, T> {
    /// Copies row `id` to `out`, which has the width of the table. Reading a row does not touch it.
    pub(crate) fn read(&self, id: i64, out: &mut [T]) {
        let width = self.table.width;
        match self.table.places.get(&id) {
            Some(&position) => out.copy_from_slice(&self.numbers[position * width..(position + 1) * width]),
            None => self.table.start.fill(id, out),
        }
    }
}

/// Returns the error that a slot does not hold a row-sparse variable.
pub(crate) fn no_table(slot: &str) -> Error {
    let expected = "a row-sparse parameter, or an optimizer's state for a row-sparse parameter";
    Error::of(ErrorKind::Program, format!("slot `{slot}`"), expected, "a variable in another storage")
}

/// The name of a `RowTable` in messages.
const WHAT: &str = "row-sparse variable";

#[cfg(test)]
mod tests {
    use super::*;

    fn table(dims: &[usize]) -> RowTable {
        let normal = RowNumbers::Normal { std: 0.5, padding: Some(3) };
        RowTable::new(DType::F64, dims, RowStart::new(normal, 1, 2)).unwrap()
    }

    fn row(table: &RowTable, id: i64) -> Vec<f64> {
        let mut row = vec![f64::NAN; table.width()];
        table.rows::<f64>().unwrap().read(id, &mut row);
        row
    }

    #[test]
    fn rows_start_by_seed_name_number_and_column_alone() {
        let (narrow, wide) = (table(&[1 << 62, 3]), table(&[9, 6]));
        for id in [0, 1, 2, 8] {
            assert_eq!(row(&narrow, id), row(&wide, id)[..3], "row {id}");
        }
        assert_eq!(row(&wide, 3), [0.0; 6], "the padding row");
        let high = [row(&narrow, (1 << 62) - 1), row(&narrow, 1 << 32), row(&narrow, 1 << 33)];
        assert!(high[0] != high[1] && high[1] != high[2] && row(&narrow, 0) != high[1]);
        let normal = RowNumbers::Normal { std: 0.5, padding: None };
        for other in [RowStart::new(normal, 2, 2), RowStart::new(normal, 1, 3)] {
            assert_ne!(row(&RowTable::new(DType::F64, &[9, 3], other).unwrap(), 1), row(&narrow, 1));
        }
    }

    #[test]
    fn numbers_are_spread_as_the_initialiser_says() {
        let count = 20_000;
        let numbers = |numbers: RowNumbers| -> Vec<f64> {
            let table = RowTable::new(DType::F64, &[count, 5], RowStart::new(numbers, 7, 9)).unwrap();
            (0..count as i64).flat_map(|id| row(&table, id)).collect()
        };
        let moments = |x: &[f64]| {
            let mean = x.iter().sum::<f64>() / x.len() as f64;
            (mean, x.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / x.len() as f64)
        };
        let uniform = numbers(RowNumbers::Uniform { low: -1.0, high: 3.0 });
        assert!(uniform.iter().all(|x| (-1.0..3.0).contains(x)));
        let (mean, variance) = moments(&uniform);
        assert!((mean - 1.0).abs() < 0.02 && (variance - 16.0 / 12.0).abs() < 0.02, "{mean} {variance}");
        let (mean, variance) = moments(&numbers(RowNumbers::Normal { std: 2.0, padding: None }));
        assert!(mean.abs() < 0.03 && (variance - 4.0).abs() < 0.06, "{mean} {variance}");
        assert!(numbers(RowNumbers::Constant(0.25)).iter().all(|&x| x == 0.25));
    }

    #[test]
    fn reading_touches_nothing_and_touching_changes_nothing() {
        let mut table = table(&[100, 4]);
        let before = [row(&table, 7), row(&table, 50)];
        assert_eq!(table.touched(), 0);
        let mut places = Vec::new();
        table.touch::<f64>(&[50, 7, 50], &[], &mut places).unwrap();
        assert_eq!(places, [0, 1, 0]);
        assert_eq!([row(&table, 7), row(&table, 50)], before);
        table.numbers_mut::<f64>().unwrap()[4] += 1.0;
        assert_eq!((row(&table, 7)[0], row(&table, 50)), (before[0][0] + 1.0, before[1].clone()));
        // A wrong guess of a row's position gives the right position.
        table.touch::<f64>(&[7, 9, 50], &[0, 5, 0], &mut places).unwrap();
        assert_eq!(places, [1, 2, 0]);
        let rows = table.to_selected_rows().unwrap();
        assert_eq!(rows.row_ids(), [7, 9, 50]);
        assert_eq!(table.touched_among(&[3, 9, 50]).unwrap().row_ids(), [9, 50]);
        let mut other = RowTable::new(DType::F64, &[100, 4], RowStart::zeros()).unwrap();
        other.set(rows.clone()).unwrap();
        assert_eq!((row(&other, 7), row(&other, 8)), (row(&table, 7), vec![0.0; 4]));
        assert_eq!(other.to_selected_rows().unwrap(), rows);
    }

    #[test]
    fn removed_rows_have_their_initial_values() {
        let mut changed = table(&[100, 4]);
        let others = |ids: &[i64]| {
            let numbers = ids.iter().flat_map(|&id| [id as f64; 4]).collect();
            SelectedRows::new(100, ids.to_vec(), Dense::from_vec(&[ids.len(), 4], numbers).unwrap()).unwrap()
        };
        changed.insert(&others(&[7, 9, 50, 8])).unwrap();
        changed.remove(&[50, 7, 11]).unwrap();
        assert_eq!(changed.to_selected_rows().unwrap(), others(&[8, 9]));
        assert_eq!([row(&changed, 7), row(&changed, 50)], [7, 50].map(|id| row(&table(&[100, 4]), id)));
        changed.insert(&others(&[50, 9])).unwrap();
        changed.remove(&[8]).unwrap();
        assert_eq!(changed.to_selected_rows().unwrap(), others(&[9, 50]));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        assert!(RowTable::new(DType::I64, &[3, 2], RowStart::zeros()).is_err());
        assert!(RowTable::new(DType::F32, &[usize::MAX, 2], RowStart::zeros()).is_err());
        assert!(RowTable::new(DType::F32, &[3, usize::MAX, 2], RowStart::zeros()).is_err());
        assert!(RowTable::new(DType::F32, &[], RowStart::zeros()).is_err());
        let mut table = table(&[5, 2]);
        for dims in [[6, 2], [5, 1]] {
            let rows = SelectedRows::new(dims[0], vec![], Dense::zeros(DType::F64, &[0, dims[1]]).unwrap());
            assert!(table.set(rows.unwrap()).is_err());
        }
        assert!(table.rows::<f32>().is_err());
    }
}
