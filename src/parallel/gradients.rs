//! The sum of the gradients of all parts of a step, on every rank, in the order of a [binary tree](super::tree) over the parts.
//!
//! Each of the N ranks sums one [`GradientShare`] of the gradients: a range of the dense numbers, and every N-th of the selected rows. Each
//! rank then sends the sums of its share to all ranks. A rank whose parts form one subtree sends 2 (N − 1)/N times the size of
//! the gradients; the height of a sparse table does not matter. Dense gradients stay where they are ([`HeldSums`]): a message is
//! written from them, and a received message is added to them or replaces them.

use std::ops::Range;

use super::bytes::{Message, Reader};
use super::deal::parts_of;
use super::tree::{subtrees, sum};
use crate::error::{Error, ErrorKind, Result};
use crate::operator::RowValue;
use crate::tensor::{DType, Dense, Element, FloatsMut, SelectedRows};
use crate::with_float;

/// The storage of a parameter's gradient: dense numbers, or selected rows of a table.
#[derive(Debug, Clone)]
pub(crate) struct GradientSpec {
    pub(crate) selected_rows: bool,
    /// Whether each rank needs only its own rows of the sum, because the table is dealt to the ranks.
    pub(crate) dealt: bool,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<usize>,
}

impl GradientSpec {
    fn numbers(&self) -> usize {
        if self.selected_rows { 0 } else { self.shape.iter().product() }
    }
}

/// The sums of gradients that a rank holds, one for each of its subtrees of parts; a subtree has a key. The row numbers of
/// selected rows are ascending and distinct.
pub(crate) trait HeldSums {
    /// Calls `act` with the dense gradient of a parameter in the sum `key`.
    fn dense(
        &mut self,
        key: usize,
        param: usize,
        act: &mut dyn FnMut(FloatsMut<'_>) -> Result<()>,
    ) -> Result<()>;

    fn rows(&self, key: usize, param: usize) -> Result<&SelectedRows>;
}

/// Merges two sets of selected rows by ascending row number; rows with equal numbers are added.
pub(crate) fn add_rows(a: &SelectedRows, b: &SelectedRows) -> Result<SelectedRows> {
    with_float!(a.dtype(), T => union::<T>(a, b))
}

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
pub(crate) struct GradientShare<'a> {
    rank: usize,
    size: usize,
    specs: &'a [GradientSpec],
    /// The dense numbers of the share: for each parameter, a range of the numbers of its gradient.
    dense: Vec<(usize, Range<usize>)>,
}

/// The rows of dealt tables in a sum, each table with the index of its parameter.
type DealtRows = Vec<(usize, SelectedRows)>;

/// The sum of a share over a subtree of parts.
struct Node<'m> {
    dense: DenseSum<'m>,
    rows: Vec<SelectedRows>,
}

/// The dense numbers of a share over a subtree, as ranges in the order of the parameters.
enum DenseSum<'m> {
    /// The bytes of a message.
    Received(Vec<&'m [u8]>),
    /// The key of a sum that this rank holds.
    Held(usize),
    Own(Vec<Dense>),
}

impl<'a> GradientShare<'a> {
    pub(crate) fn new(rank: usize, size: usize, specs: &'a [GradientSpec]) -> Self {
        let all: usize = specs.iter().map(GradientSpec::numbers).sum();
        let first = |rank: usize| (all as u128 * rank as u128 / size as u128) as usize;
        let (own, mut start, mut dense) = (first(rank)..first(rank + 1), 0, Vec::new());
        for (param, spec) in specs.iter().enumerate() {
            let range = start..start + spec.numbers();
            let (from, to) = (own.start.max(range.start), own.end.min(range.end));
            if from < to {
                dense.push((param, from - start..to - start));
            }
            start = range.end;
        }
        Self { rank, size, specs, dense }
    }

    fn tables(&self) -> impl Iterator<Item = (usize, &'a GradientSpec)> {
        self.specs.iter().enumerate().filter(|(_, spec)| spec.selected_rows)
    }

    /// Writes the sum `key` of another rank's share to a message to this rank.
    pub(crate) fn write(&self, held: &mut dyn HeldSums, key: usize, to: &mut Message) -> Result<()> {
        for (param, range) in &self.dense {
            held.dense(key, *param, &mut |mut numbers| {
                to.floats_of(&numbers.range(range.clone()));
                Ok(())
            })?;
        }
        self.tables().try_for_each(|(param, _)| {
            let rows = held.rows(key, param)?;
            to.rows(rows, &rows.positions_of((self.rank, self.size)))
        })
    }

    fn read_dense<'m>(&self, from: &mut Reader<'m>) -> Result<Vec<&'m [u8]>> {
        let bytes = |(param, range): &(usize, Range<usize>)| range.len() * self.specs[*param].dtype.size_of();
        self.dense.iter().map(|piece| from.take(bytes(piece))).collect()
    }

    fn read<'m>(&self, from: &mut Reader<'m>) -> Result<Node<'m>> {
        let dense = self.read_dense(from)?;
        let rows = |(_, spec): (usize, &GradientSpec)| from.rows(spec.dtype, &spec.shape);
        Ok(Node { dense: DenseSum::Received(dense), rows: self.tables().map(rows).collect::<Result<_>>()? })
    }

    fn held(&self, held: &dyn HeldSums, key: usize) -> Result<Node<'static>> {
        let own = |(param, _): (usize, &GradientSpec)| {
            let rows = held.rows(key, param)?;
            rows.at(&rows.positions_of((self.rank, self.size)))
        };
        Ok(Node { dense: DenseSum::Held(key), rows: self.tables().map(own).collect::<Result<_>>()? })
    }

    /// Calls `act` for each dense range of a sum that this rank holds, with the index of the range.
    fn each_held(
        &self,
        held: &mut dyn HeldSums,
        key: usize,
        act: &mut dyn FnMut(usize, FloatsMut<'_>) -> Result<()>,
    ) -> Result<()> {
        self.dense.iter().enumerate().try_for_each(|(at, (param, range))| {
            held.dense(key, *param, &mut |mut numbers| act(at, numbers.range(range.clone())))
        })
    }

    /// Returns the numbers of a sum in arrays of their own.
    fn owned(&self, held: &mut dyn HeldSums, sum: DenseSum<'_>) -> Result<Vec<Dense>> {
        let zeros =
            |(param, range): &(usize, Range<usize>)| Dense::zeros(self.specs[*param].dtype, &[range.len()]);
        let mut own: Vec<Dense> = match sum {
            DenseSum::Own(own) => return Ok(own),
            _ => self.dense.iter().map(zeros).collect::<Result<_>>()?,
        };
        match sum {
            DenseSum::Received(bytes) => own.iter_mut().zip(bytes).try_for_each(|(own, bytes)| {
                FloatsMut::of(own)?.copy_bytes(bytes);
                Ok::<(), Error>(())
            })?,
            DenseSum::Held(key) => self.each_held(held, key, &mut |at, numbers| {
                FloatsMut::of(&mut own[at])?.copy_from(&numbers);
                Ok(())
            })?,
            DenseSum::Own(_) => {}
        }
        Ok(own)
    }

    /// Adds two sums. The sum of two numbers does not depend on their order, so the sum replaces a side that this rank holds already.
    fn add<'m>(&self, held: &mut dyn HeldSums, left: Node<'m>, right: Node<'m>) -> Result<Node<'m>> {
        let rows = left.rows.iter().zip(&right.rows).map(|(a, b)| add_rows(a, b)).collect::<Result<_>>()?;
        let dense = match (left.dense, right.dense) {
            (DenseSum::Held(key), DenseSum::Received(bytes))
            | (DenseSum::Received(bytes), DenseSum::Held(key)) => {
                self.each_held(held, key, &mut |at, mut numbers| {
                    numbers.add_bytes(bytes[at]);
                    Ok(())
                })?;
                DenseSum::Held(key)
            }
            (DenseSum::Held(key), other) | (other, DenseSum::Held(key)) => {
                let mut other = self.owned(held, other)?;
                self.each_held(held, key, &mut |at, mut numbers| {
                    numbers.add(&FloatsMut::of(&mut other[at])?);
                    Ok(())
                })?;
                DenseSum::Held(key)
            }
            (one, DenseSum::Received(bytes)) | (DenseSum::Received(bytes), one) => {
                let mut sum = self.owned(held, one)?;
                for (sum, bytes) in sum.iter_mut().zip(bytes) {
                    FloatsMut::of(sum)?.add_bytes(bytes);
                }
                DenseSum::Own(sum)
            }
            (DenseSum::Own(mut sum), DenseSum::Own(mut other)) => {
                for (sum, other) in sum.iter_mut().zip(&mut other) {
                    FloatsMut::of(sum)?.add(&FloatsMut::of(other)?);
                }
                DenseSum::Own(sum)
            }
        };
        Ok(Node { dense, rows })
    }

    /// Sums this rank's share over all parts, and writes the sums, times `factor` for the dense numbers, to a message to all
    /// ranks; returns the rows of dealt tables, which the message does not have, by parameter. `occupied` tells for each part whether it has sequences; `own` has the key of each subtree of this rank (`None` for
    /// a subtree without sequences); `received` has the messages of all ranks, each at the sums of its subtrees. Also returns the
    /// key of the sum that has the dense sums of the share now; `None` if only the message has them.
    ///
    /// # Errors
    /// If no part has sequences, or a message is too short.
    pub(crate) fn sums(
        &self,
        occupied: &[bool],
        own: &[(Range<usize>, Option<usize>)],
        held: &mut dyn HeldSums,
        received: &mut [Reader<'_>],
        (factor, message): (f64, &mut Message),
    ) -> Result<(Option<usize>, DealtRows)> {
        let mut known: Vec<(Range<usize>, Option<Node<'_>>)> = Vec::new();
        for (sender, message) in received.iter_mut().enumerate().filter(|(sender, _)| *sender != self.rank) {
            for of in subtrees(parts_of(sender, self.size, occupied.len())) {
                let has = occupied[of.clone()].contains(&true);
                known.push((of, if has { Some(self.read(message)?) } else { None }));
            }
        }
        for (of, key) in own {
            known.push((of.clone(), key.map(|key| self.held(held, key)).transpose()?));
        }
        let mut node = |of: &Range<usize>| {
            known.iter_mut().find(|(known, _)| known == of).map(|(_, sum)| Ok(sum.take()))
        };
        let sum = sum(0..occupied.len(), &mut node, &mut |left, right| self.add(held, left, right))?;
        let Some(Node { dense, rows }) = sum else {
            let expected = "at least one part with sequences";
            return Err(Error::of(ErrorKind::Program, "parts of a step", expected, "none"));
        };
        let in_place = if let DenseSum::Held(key) = dense { Some(key) } else { None };
        if let Some(key) = in_place {
            self.each_held(held, key, &mut |_, mut numbers| {
                numbers.scale(factor);
                message.floats_of(&numbers);
                Ok(())
            })?;
        } else {
            for mut numbers in self.owned(held, dense)? {
                let mut numbers = FloatsMut::of(&mut numbers)?;
                numbers.scale(factor);
                message.floats_of(&numbers);
            }
        }
        let mut kept = Vec::new();
        for ((param, spec), rows) in self.tables().zip(rows) {
            match spec.dealt {
                true => kept.push((param, rows)),
                false => message.rows(&rows, &(0..rows.row_ids().len()).collect::<Vec<_>>())?,
            }
        }
        Ok((in_place, kept))
    }

    /// Takes the sums of this share from the message of its rank: writes the dense numbers to the gradients of the sum `key`, if
    /// there is one, and adds the selected rows of each table to `rows`.
    pub(crate) fn take(
        &self,
        message: &[u8],
        held: &mut dyn HeldSums,
        key: Option<usize>,
        rows: &mut [Vec<SelectedRows>],
    ) -> Result<()> {
        let message = &mut Reader(message);
        let dense = self.read_dense(message)?;
        if let Some(key) = key {
            self.each_held(held, key, &mut |at, mut numbers| {
                numbers.copy_bytes(dense[at]);
                Ok(())
            })?;
        }
        self.tables().filter(|(_, spec)| !spec.dealt).try_for_each(|(param, spec)| {
            rows[param].push(message.rows(spec.dtype, &spec.shape)?);
            Ok(())
        })
    }
}
