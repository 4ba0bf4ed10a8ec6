//! The division of rows over n parts, which are the shards of a value: row r of a value is row r / n of part r mod n.

use crate::error::{Error, Result};
use crate::kernels::float::Float;
use crate::tensor::{DType, Dense, SelectedRows, Storage};
use crate::with_float;

/// The positions in a list of row numbers, grouped by part: position *i* belongs to the part that has row `ids[i]`.
pub(super) struct RowsByPart {
    places: Vec<usize>,
    starts: Vec<usize>,
}

impl RowsByPart {
    pub(super) fn new(ids: &[i64], parts: usize) -> Self {
        let mut starts = vec![0; parts + 1];
        ids.iter().for_each(|&id| starts[id as usize % parts + 1] += 1);
        (0..parts).for_each(|s| starts[s + 1] += starts[s]);
        let (mut next, mut places) = (starts.clone(), vec![0; ids.len()]);
        for (index, &id) in ids.iter().enumerate() {
            let next = &mut next[id as usize % parts];
            places[*next] = index;
            *next += 1;
        }
        Self { places, starts }
    }

    pub(super) fn of(&self, part: usize) -> &[usize] {
        &self.places[self.starts[part]..self.starts[part + 1]]
    }
}

/// Returns the rows of `value` that are in part `s` of `count` parts, as a dense tensor.
pub(super) fn part_of(value: &Storage, s: usize, count: usize) -> Result<Dense> {
    match value {
        Storage::SelectedRows(rows) => {
            let own = rows.row_ids().iter().enumerate().filter(|(_, id)| **id as usize % count == s);
            let (places, ids): (Vec<usize>, Vec<i64>) = own.map(|(at, id)| (at, id / count as i64)).unzip();
            let height = rows_of(rows.height(), s, count);
            SelectedRows::new(height, ids, rows.value().gather_rows(&places)?)?.densify()
        }
        other => {
            let whole = other.as_dense()?;
            if count == 1 {
                return Ok(whole.clone());
            }
            whole.gather_rows(&(s..whole.rows()).step_by(count).collect::<Vec<_>>())
        }
    }
}

/// Returns the number of rows in part `s` of `count` parts, for a value with `height` rows.
pub(super) fn rows_of(height: usize, s: usize, count: usize) -> usize {
    (height + count - 1 - s) / count
}

/// Copies the rows of part `s` of `count` parts to their positions in the whole value.
pub(super) fn spread<T: Copy>(numbers: &[T], (s, count): (usize, usize), width: usize, whole: &mut [T]) {
    if width > 0 {
        let places = whole.chunks_exact_mut(width).skip(s).step_by(count);
        places.zip(numbers.chunks_exact(width)).for_each(|(to, row)| to.copy_from_slice(row));
    }
}

/// A function that gets a row number, and writes the numbers of this row of a value.
pub(super) type FillRow<'a> = &'a mut dyn FnMut(usize, &mut [f64]) -> Result<()>;

/// Makes a value by calling `fill` for each row.
///
/// # Errors
/// Returns an error if memory is exhausted, or `fill` fails.
pub(super) fn filled(dtype: DType, dims: &[usize], fill: FillRow<'_>) -> Result<Dense> {
    let mut value = Dense::zeros(dtype, dims)?;
    let mut row = vec![0.0; dims.iter().skip(1).product()];
    with_float!(dtype, T => {
        for (id, out) in value.as_mut_slice::<T>()?.chunks_exact_mut(row.len().max(1)).enumerate() {
            fill(id, &mut row)?;
            out.iter_mut().zip(&row).for_each(|(out, &x)| *out = T::from_f64(x));
        }
        Ok::<(), Error>(())
    })?;
    Ok(value)
}
