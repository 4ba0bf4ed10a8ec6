//! Sums the gradients of all parts of a step, on every rank, in the order of a [binary tree](super::tree) over the parts.
//!
//! Each of the N ranks sums one share of the gradients: a range of the dense numbers, and every N-th of the selected rows. Each
//! rank then sends the sums of its share to all ranks. A rank whose parts form one subtree sends 2 (N − 1)/N times the size of
//! the gradients; the height of a sparse table does not matter.

use std::ops::Range;

use super::bytes::{Message, Reader, add_to};
use super::deal::parts_of;
use super::tree::{subtrees, sum};
use super::world::World;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::RowValue;
use crate::tensor::{DType, Dense, Element, SelectedRows, Storage};
use crate::with_float;

/// The storage of a parameter's gradient: dense numbers, or selected rows of a table.
#[derive(Debug, Clone)]
pub(crate) struct GradientSpec {
    pub(crate) selected_rows: bool,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

/// The gradients of one part or of several parts, one per parameter, in the order of the parameters. The row numbers of
/// selected rows are ascending and distinct.
pub(crate) type Gradients = Vec<Storage>;

/// Adds the gradients of two parts, parameter by parameter. A selected row that only one of the two parts has is copied.
pub(crate) fn add(sum: Gradients, other: Gradients) -> Result<Gradients> {
    sum.into_iter().zip(other).map(|(sum, other)| add_one(sum, other)).collect()
}

fn add_one(sum: Storage, other: Storage) -> Result<Storage> {
    match (sum, other) {
        (Storage::Dense(mut sum), Storage::Dense(other)) => {
            add_to(&mut sum, &other)?;
            Ok(sum.into())
        }
        (Storage::SelectedRows(sum), Storage::SelectedRows(other)) => {
            Ok(with_float!(sum.dtype(), T => union::<T>(&sum, &other))?.into())
        }
        (sum, other) => {
            let what = "gradients of two parts";
            Err(Error::of(ErrorKind::Program, what, sum.kind().name(), other.kind().name()))
        }
    }
}

/// Merges the selected rows `a` and `b` by ascending row number; rows with equal numbers are added.
fn union<T: RowValue + Element>(a: &SelectedRows, b: &SelectedRows) -> Result<SelectedRows> {
    let (height, width) = (a.height(), a.value().width());
    let (x, y) = (a.value().as_slice::<T>()?, b.value().as_slice::<T>()?);
    let (m, n) = (a.row_ids(), b.row_ids());
    let (mut ids, mut numbers) =
        (Vec::with_capacity(m.len() + n.len()), Vec::with_capacity(x.len() + y.len()));
    let (mut i, mut j) = (0, 0);
    while i < m.len() || j < n.len() {
        let from_a = j == n.len() || (i < m.len() && m[i] <= n[j]);
        let from_b = i == m.len() || (j < n.len() && n[j] <= m[i]);
        ids.push(if from_a { m[i] } else { n[j] });
        let start = numbers.len();
        if from_a {
            numbers.extend_from_slice(&x[i * width..(i + 1) * width]);
        }
        match (from_a, from_b) {
            (true, true) => {
                let row = &y[j * width..(j + 1) * width];
                numbers[start..].iter_mut().zip(row).for_each(|(sum, &y)| *sum += y);
            }
            (false, true) => numbers.extend_from_slice(&y[j * width..(j + 1) * width]),
            _ => {}
        }
        (i, j) = (i + usize::from(from_a), j + usize::from(from_b));
    }
    let mut shape = a.shape().to_vec();
    shape[0] = ids.len();
    SelectedRows::new(height, ids, Dense::from_vec(&shape, numbers)?)
}

/// The share of the gradients that one rank sums.
struct Share<'a> {
    rank: usize,
    size: usize,
    specs: &'a [GradientSpec],
    /// The dense numbers of the share: for each parameter, a range of the numbers of its gradient.
    dense: Vec<(usize, Range<usize>)>,
}

impl<'a> Share<'a> {
    fn new(rank: usize, size: usize, specs: &'a [GradientSpec]) -> Self {
        let length = |spec: &GradientSpec| match spec.selected_rows {
            true => 0,
            false => spec.shape.iter().product(),
        };
        let all: usize = specs.iter().map(length).sum();
        let first = |rank: usize| (all as u128 * rank as u128 / size as u128) as usize;
        let (own, mut start, mut dense) = (first(rank)..first(rank + 1), 0, Vec::new());
        for (param, spec) in specs.iter().enumerate() {
            let of = start..start + length(spec);
            let (from, to) = (own.start.max(of.start), own.end.min(of.end));
            if from < to {
                dense.push((param, from - start..to - start));
            }
            start = of.end;
        }
        Self { rank, size, specs, dense }
    }

    fn rows(&self) -> impl Iterator<Item = (usize, &'a GradientSpec)> {
        self.specs.iter().enumerate().filter(|(_, spec)| spec.selected_rows)
    }

    fn write(&self, gradients: &Gradients, to: &mut Message) -> Result<()> {
        for (param, range) in &self.dense {
            to.numbers(gradients[*param].as_dense()?, range.clone())?;
        }
        for (param, _) in self.rows() {
            let rows = gradients[param].as_selected_rows()?;
            let ids = rows.row_ids().iter().enumerate();
            let own = ids.filter(|(_, id)| **id as usize % self.size == self.rank);
            to.rows(rows, &own.map(|(place, _)| place).collect::<Vec<_>>())?;
        }
        Ok(())
    }

    /// Writes the sums of this share as a message to all ranks.
    fn write_sums(&self, sums: &Gradients, to: &mut Message) -> Result<()> {
        for sum in sums {
            match sum {
                Storage::SelectedRows(rows) => {
                    to.rows(rows, &(0..rows.row_ids().len()).collect::<Vec<_>>())?;
                }
                dense => {
                    let dense = dense.as_dense()?;
                    to.numbers(dense, 0..dense.len())?;
                }
            }
        }
        Ok(())
    }

    /// Reads the sums of this share from a message: the ranges of the dense gradients, then the selected rows of each table.
    fn read(&self, from: &mut Reader<'_>) -> Result<Gradients> {
        let mut read = Gradients::new();
        for (param, range) in &self.dense {
            read.push(from.numbers(self.specs[*param].dtype, &[range.len()])?.into());
        }
        for (_, spec) in self.rows() {
            read.push(from.rows(spec.dtype, &spec.shape)?.into());
        }
        Ok(read)
    }
}

impl World {
    /// Sums the gradients of all parts; the result is bit-identical on each rank, and for any number of ranks. `own` has the
    /// sum of each of this rank's [subtrees](super::tree::subtrees) (`None` for a subtree without sequences). `occupied` tells
    /// for each part whether it has sequences.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(crate) fn sum_gradients(
        &self,
        doing: &str,
        occupied: &[bool],
        own: &[(Range<usize>, Option<Gradients>)],
        specs: &[GradientSpec],
    ) -> Result<Gradients> {
        let (rank, size) = (self.rank(), self.size());
        let shares: Vec<Share<'_>> = (0..size).map(|rank| Share::new(rank, size, specs)).collect();
        let mut messages = Vec::with_capacity(size);
        for share in &shares {
            let mut message = Message::default();
            own.iter()
                .filter_map(|(_, sum)| sum.as_ref())
                .try_for_each(|sum| share.write(sum, &mut message))?;
            messages.push(message.0);
        }
        let received = self.exchange(doing, &messages.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        drop(messages);
        let mut known: Vec<(Range<usize>, Option<Gradients>)> = Vec::new();
        for (sender, message) in received.iter().enumerate() {
            let mut message = Reader(message);
            for of in subtrees(parts_of(sender, size, occupied.len())) {
                let has = occupied[of.clone()].contains(&true);
                known.push((of, if has { Some(shares[rank].read(&mut message)?) } else { None }));
            }
        }
        let mut node = |of: &Range<usize>| {
            known.iter_mut().find(|(known, _)| known == of).map(|(_, sum)| Ok(sum.take()))
        };
        let sums = sum(0..occupied.len(), &mut node, &mut add)?;
        let Some(sums) = sums else {
            return Err(Error::of(
                ErrorKind::Program,
                "parts of a step",
                "at least one part with sequences",
                "none",
            ));
        };
        let mut message = Message::default();
        shares[rank].write_sums(&sums, &mut message)?;
        let received = self.gather(doing, &message.0)?;
        assembled(&shares, &received, specs)
    }
}

/// Assembles the summed gradients from the shares of all ranks.
fn assembled(shares: &[Share<'_>], received: &[Vec<u8>], specs: &[GradientSpec]) -> Result<Gradients> {
    let zeros = |spec: &GradientSpec| match spec.selected_rows {
        true => Dense::zeros(spec.dtype, &[0]),
        false => Dense::zeros(spec.dtype, &spec.shape),
    };
    let mut dense: Vec<Dense> = specs.iter().map(zeros).collect::<Result<_>>()?;
    let mut rows: Vec<Vec<SelectedRows>> = vec![Vec::new(); specs.len()];
    for (share, message) in shares.iter().zip(received) {
        let mut read = share.read(&mut Reader(message))?.into_iter();
        for ((param, range), piece) in share.dense.iter().zip(&mut read) {
            let (to, piece) = (&mut dense[*param], piece.into_dense()?);
            with_float!(piece.dtype(), T => {
                to.as_mut_slice::<T>()?[range.clone()].copy_from_slice(piece.as_slice::<T>()?);
                Ok(())
            })?;
        }
        for ((param, _), piece) in share.rows().zip(read) {
            if let Storage::SelectedRows(piece) = piece {
                rows[param].push(piece);
            }
        }
    }
    let whole = dense.into_iter().zip(rows).zip(specs);
    whole
        .map(|((dense, rows), spec)| match spec.selected_rows {
            true => with_float!(spec.dtype, T => sorted::<T>(&rows, spec)),
            false => Ok(dense.into()),
        })
        .collect()
}

/// Merges sets of selected rows by ascending row number; each row number is in one set only.
fn sorted<T: RowValue + Element>(sets: &[SelectedRows], spec: &GradientSpec) -> Result<Storage> {
    let width: usize = spec.shape.iter().skip(1).product();
    let mut places: Vec<(i64, &[T])> = Vec::new();
    for set in sets {
        let numbers = set.value().as_slice::<T>()?;
        let row = |(place, &id): (usize, &i64)| (id, &numbers[place * width..(place + 1) * width]);
        places.extend(set.row_ids().iter().enumerate().map(row));
    }
    places.sort_unstable_by_key(|(id, _)| *id);
    let numbers = places.iter().flat_map(|(_, row)| row.iter().copied()).collect();
    let mut shape = spec.shape.clone();
    shape[0] = places.len();
    let ids = places.iter().map(|(id, _)| *id).collect();
    Ok(SelectedRows::new(spec.shape[0], ids, Dense::from_vec(&shape, numbers)?)?.into())
}
