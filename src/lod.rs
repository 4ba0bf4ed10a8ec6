//! LoD: the nested offsets that divide the rows of a batch into sequences, and sequences into groups, in up to six
//! levels ([`Lod::MAX_LEVELS`]).
//!
//! A batch of texts stores the rows of all texts one after another, without padding. The [`Lod`] (level of detail) of
//! the batch divides the rows into sequences. Levels are numbered from the top level, which is level 0. The offsets of
//! level *k* divide the sequences of level *k+1*; the offsets of the last level divide the rows.
//!
//! ```
//! use unpadded::Lod;
//! // Three articles of 3, 1 and 2 sentences; the six sentences have 3, 2, 4, 1, 2 and 3 words.
//! let lod = Lod::from_lengths(&[vec![3, 1, 2], vec![3, 2, 4, 1, 2, 3]])?;
//! assert_eq!(lod.level(0)?, [0, 3, 4, 6]);
//! assert_eq!(lod.level(1)?, [0, 3, 5, 9, 10, 12, 15]);
//! assert_eq!((lod.sequences(), lod.rows()), (3, 15));
//! assert_eq!(lod.range(0, 2)?, 10..15); // the last article's words
//! assert_eq!(lod.to_string(), "[[3, 1, 2], [3, 2, 4, 1, 2, 3]]");
//! # Ok::<(), unpadded::Error>(())
//! ```

mod batch;
mod traits;
mod tree;

pub use tree::SeqPos;

use std::ops::Range;
use std::sync::Arc;

use crate::error::{AtCaller, Error, Result};
use crate::reserve;

/// The nested offsets of the sequences of a batch. A LoD is checked when it is built, and does not change while it has
/// several owners.
///
/// A LoD is a linked list of its levels, from the last level upwards. [`Lod::upper`], the LoD without the last level,
/// therefore needs no copy. A LoD has at least one level: rows without sequences have no LoD, which is `None` in an
/// `Option`.
///
/// # Validity
/// The offsets of a level start with 0 and never decrease. The last offset of a level is the number of sequences of the
/// next level or, in the last level, the number of rows. A batch without sequences has the offsets `[0]`; the empty
/// list `[]` is not valid. There are at most [`Lod::MAX_LEVELS`] levels. Every constructor checks these rules.
#[doc(alias = "ragged")]
#[doc(alias = "jagged")]
#[doc(alias = "row_splits")]
#[derive(Clone)]
pub struct Lod {
    upper: Option<Arc<Lod>>,
    offsets: Vec<usize>,
}

impl Lod {
    /// Maximum number of levels of a LoD. The characters of a batch of books need five levels: each book has chapters,
    /// which have paragraphs, sentences, words and characters.
    pub const MAX_LEVELS: usize = 6;

    /// Makes a LoD from the offsets of every level; the top level comes first.
    ///
    /// # Errors
    /// Fails if there is no level, if there are more than [`Lod::MAX_LEVELS`] levels, or if the offsets of a level are
    /// not valid.
    #[track_caller]
    pub fn new(levels: Vec<Vec<usize>>) -> Result<Arc<Lod>> {
        build(levels).map(Arc::new).at_caller()
    }

    /// Makes a LoD with the levels of `upper` and a new last level, which has the offsets `offsets`. If `upper` is
    /// `None`, the new level is the only level.
    ///
    /// # Errors
    /// Fails if the offsets are not valid, or if the number of sequences of the new level is not the last offset of `upper`.
    #[track_caller]
    pub fn extend(upper: Option<Arc<Lod>>, offsets: Vec<usize>) -> Result<Arc<Lod>> {
        check(upper.as_deref(), &offsets).at_caller()?;
        Ok(Arc::new(Lod { upper, offsets }))
    }

    /// Makes a LoD with a new last level below this LoD: the rows of this LoD become sequences.
    ///
    /// # Errors
    /// Fails as [`Lod::extend`] does.
    #[track_caller]
    pub fn append(self: &Arc<Self>, offsets: Vec<usize>) -> Result<Arc<Lod>> {
        Self::extend(Some(Arc::clone(self)), offsets)
    }

    /// Makes a LoD from the sequence lengths of every level; the top level comes first.
    ///
    /// # Errors
    /// Fails if a sum of lengths overflows, or if the sum of the lengths of a level is not the number of sequences of
    /// the next level.
    #[track_caller]
    pub fn from_lengths(lengths: &[Vec<usize>]) -> Result<Arc<Lod>> {
        let levels = lengths.iter().enumerate().map(|(level, lengths)| sums(level, lengths));
        Self::new(levels.collect::<Result<_>>().at_caller()?)
    }

    /// Makes a LoD of one level from the lengths of its sequences.
    ///
    /// # Errors
    /// Fails if the sum of the lengths overflows.
    #[track_caller]
    pub fn from_lengths1(lengths: &[usize]) -> Result<Arc<Lod>> {
        Self::extend(None, sums(0, lengths).at_caller()?)
    }

    /// Makes a LoD of one level with `sequences` sequences; `row_ids[i]` is the index of the sequence that contains row i.
    ///
    /// ```
    /// use unpadded::Lod;
    /// let lod = Lod::from_row_ids(&[0, 0, 2], 4)?;
    /// assert_eq!(lod.offsets(), [0, 2, 2, 3, 3]);
    /// assert_eq!(lod.row_ids()?, [0, 0, 2]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the sequence indices decrease, or if a sequence index is not less than `sequences`.
    #[doc(alias = "value_rowids")]
    #[track_caller]
    pub fn from_row_ids(row_ids: &[usize], sequences: usize) -> Result<Arc<Lod>> {
        let mut offsets = reserved(sequences.saturating_add(1), "LoD from row ids").at_caller()?;
        for (row, &id) in row_ids.iter().enumerate() {
            if id >= sequences {
                let expected = format!("a sequence number below {sequences}");
                return Err(Error::new(format!("row_ids[{row}]"), expected, id.to_string()));
            }
            if row > 0 && id < row_ids[row - 1] {
                let expected =
                    format!("at least {}, the sequence number of the row before it", row_ids[row - 1]);
                return Err(Error::new(format!("row_ids[{row}]"), expected, id.to_string()));
            }
            while offsets.len() <= id {
                offsets.push(row);
            }
        }
        offsets.resize(sequences + 1, row_ids.len());
        Self::extend(None, offsets)
    }

    /// Replaces the LoD in `slot` by a LoD with the levels of `upper` and a new last level. `fill` fills an empty
    /// vector with the offsets of the new level. No memory is allocated if `slot` is the only owner of the old LoD, and
    /// if the offsets fit into the capacity of the old vector.
    ///
    /// # Errors
    /// Fails as [`Lod::extend`] does; `slot` is then `None`.
    #[track_caller]
    pub fn rebuild(
        slot: &mut Option<Arc<Lod>>,
        upper: Option<Arc<Lod>>,
        fill: impl FnOnce(&mut Vec<usize>),
    ) -> Result<()> {
        let mut shared = slot.take();
        if let Some(lod) = shared.as_mut().and_then(Arc::get_mut) {
            lod.offsets.clear();
            fill(&mut lod.offsets);
            check(upper.as_deref(), &lod.offsets).at_caller()?;
            lod.upper = upper;
            *slot = shared;
        } else {
            let mut offsets = Vec::new();
            fill(&mut offsets);
            *slot = Some(Self::extend(upper, offsets)?);
        }
        Ok(())
    }

    /// Releases all levels above the last level of the LoD in `slot`, so that the memory of these levels can be reused.
    /// Only [`Lod::rebuild`] may use the remaining LoD.
    pub(crate) fn release(slot: &mut Option<Arc<Lod>>) {
        if let Some(lod) = slot.as_mut().and_then(Arc::get_mut) {
            lod.upper = None;
        }
    }

    /// Returns the LoD without the last level; every call returns the same `Arc`, without a copy. `None` if there is
    /// only one level.
    pub fn upper(&self) -> Option<&Arc<Lod>> {
        self.upper.as_ref()
    }

    /// Returns the offsets of the last level. The number of offsets is one more than the number of sequences; the last
    /// offset is the number of rows.
    pub fn offsets(&self) -> &[usize] {
        &self.offsets
    }

    /// Returns the number of levels, at least 1.
    pub fn levels(&self) -> usize {
        1 + self.above().count()
    }

    /// Returns the number of rows: the last offset of the last level.
    pub fn rows(&self) -> usize {
        last(&self.offsets)
    }

    /// Returns the batch size: the number of sequences of the top level.
    pub fn sequences(&self) -> usize {
        self.above().last().unwrap_or(self).last_len()
    }

    /// Returns the number of sequences of the last level.
    pub fn last_len(&self) -> usize {
        self.offsets.len() - 1
    }

    /// Returns the offsets of level `k`; level 0 is the top level.
    ///
    /// # Errors
    /// Fails if there is no level `k`.
    #[track_caller]
    pub fn level(&self, k: usize) -> Result<&[usize]> {
        self.level_to(k).map(Lod::offsets).at_caller()
    }

    /// Returns the lengths of the sequences of level `k`.
    ///
    /// # Errors
    /// Fails if there is no level `k`.
    #[track_caller]
    pub fn lengths(&self, k: usize) -> Result<impl ExactSizeIterator<Item = usize> + '_> {
        self.level(k).map(lengths)
    }

    /// Returns the number of sequences of level `k`; for `k` equal to [`Lod::levels`], the number of rows.
    ///
    /// # Errors
    /// Fails if `k` is greater than [`Lod::levels`].
    #[track_caller]
    pub fn count(&self, k: usize) -> Result<usize> {
        if k == self.levels() { Ok(self.rows()) } else { self.level_to(k).map(Lod::last_len).at_caller() }
    }

    /// Returns the range of the rows of sequence `i` of level `k`.
    ///
    /// # Errors
    /// Fails if there is no level `k`, or if level `k` has no sequence `i`.
    #[track_caller]
    pub fn range(&self, k: usize, i: usize) -> Result<Range<usize>> {
        let sequences = self.level_to(k).at_caller()?.last_len();
        if i >= sequences {
            let what = format!("sequence of LoD level {k}");
            return Err(Error::new(what, format!("a number below {sequences}"), i.to_string()));
        }
        (k..self.levels())
            .try_fold(i..i + 1, |part, k| {
                let offsets = self.level(k)?;
                Ok(offsets[part.start]..offsets[part.end])
            })
            .at_caller()
    }

    /// Returns the offsets of level `k`, counted in rows instead of in sequences of the next level.
    ///
    /// # Errors
    /// Fails if there is no level `k`.
    #[track_caller]
    pub fn row_offsets(&self, k: usize) -> Result<Vec<usize>> {
        let mut offsets = self.level(k)?.to_vec();
        for finer in &self.all()[k + 1..] {
            offsets.iter_mut().for_each(|offset| *offset = finer[*offset]);
        }
        Ok(offsets)
    }

    /// Finds the first sequence that has different lengths in this LoD and in `other`. Returns the level, the index of
    /// the sequence in the level, and both lengths; `None` if both LoDs are equal. Both LoDs must have the same number
    /// of levels and the same number of top-level sequences.
    pub(crate) fn first_difference(&self, other: &Lod) -> Option<(usize, usize, [usize; 2])> {
        self.all().into_iter().zip(other.all()).enumerate().find_map(|(level, (a, b))| {
            let mut pairs = lengths(a).zip(lengths(b)).enumerate();
            pairs.find(|(_, (a, b))| a != b).map(|(i, (a, b))| (level, i, [a, b]))
        })
    }

    /// Returns the index of the top-level sequence that contains sequence `i` of level `k`, or row `i` if `k` is
    /// [`Lod::levels`].
    pub(crate) fn top_of(&self, k: usize, i: usize) -> usize {
        let upwards = std::iter::once(self).chain(self.above()).skip(self.levels().saturating_sub(k));
        upwards
            .map(Lod::offsets)
            .fold(i, |i, offsets| offsets.partition_point(|&start| start <= i).saturating_sub(1))
    }

    /// Returns, for each row, the index of the last-level sequence that contains the row.
    ///
    /// # Errors
    /// Fails if the result does not fit into memory, since offsets can describe more rows than memory can hold.
    #[doc(alias = "value_rowids")]
    #[track_caller]
    pub fn row_ids(&self) -> Result<Vec<usize>> {
        let mut ids = reserved(self.rows(), "row ids").at_caller()?;
        for (sequence, pair) in self.offsets.windows(2).enumerate() {
            ids.resize(pair[1], sequence);
        }
        Ok(ids)
    }

    /// Returns the offsets of every level, from the top level on.
    pub fn to_levels(&self) -> Vec<Vec<usize>> {
        self.all().into_iter().map(<[usize]>::to_vec).collect()
    }

    /// Returns whether two optional LoDs are equal: both are `None`, or both have equal offsets.
    pub fn same(a: Option<&Arc<Lod>>, b: Option<&Arc<Lod>>) -> bool {
        match (a, b) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || **a == **b,
            _ => false,
        }
    }

    /// Checks that this LoD has `rows` rows, the number of rows of a tensor.
    ///
    /// # Errors
    /// Fails if the last offset of the last level is not `rows`.
    #[track_caller]
    pub fn check_rows(&self, rows: usize) -> Result<()> {
        if rows == self.rows() {
            return Ok(());
        }
        let expected = format!("{}, the last offset of its LoD", self.rows());
        Err(Error::new("number of rows", expected, rows.to_string()))
    }

    /// Returns the LoD that ends with level `k`, without the levels below.
    fn level_to(&self, k: usize) -> Result<&Lod> {
        let levels = self.levels();
        let found = levels
            .checked_sub(k)
            .and_then(|n| std::iter::once(self).chain(self.above()).nth(n.checked_sub(1)?));
        found.ok_or_else(|| {
            let expected =
                if levels == 1 { "0, the only level".into() } else { format!("0 to {}", levels - 1) };
            Error::new("LoD level", expected, k.to_string())
        })
    }

    /// Iterates over this LoD without its last level, without its last two levels, and so on.
    fn above(&self) -> impl Iterator<Item = &Lod> {
        std::iter::successors(self.upper.as_deref(), |lod| lod.upper.as_deref())
    }

    /// Returns the offsets of every level, from the top level on.
    fn all(&self) -> Vec<&[usize]> {
        let mut all: Vec<&[usize]> = std::iter::once(self).chain(self.above()).map(Lod::offsets).collect();
        all.reverse();
        all
    }
}

/// Checks that the offsets of a new last level below `upper` are valid.
fn check(upper: Option<&Lod>, offsets: &[usize]) -> Result<()> {
    let level = upper.map_or(0, Lod::levels);
    let refuse = |expected: String, got: String| {
        Err(Error::new(format!("offsets of LoD level {level}"), expected, got))
    };
    check_depth(level + 1)?;
    match offsets.first() {
        None => return refuse("at least the offset 0".into(), "none".into()),
        Some(0) => {}
        Some(first) => return refuse("to start with 0".into(), first.to_string()),
    }
    if let Some(i) = offsets.windows(2).position(|pair| pair[1] < pair[0]) {
        let got = format!("{} after {} at place {}", offsets[i + 1], offsets[i], i + 1);
        return refuse("never to decrease".into(), got);
    }
    match upper {
        Some(upper) if upper.rows() != offsets.len() - 1 => refuse(
            format!("{} sequences, the last offset of the level above", upper.rows()),
            format!("{}", offsets.len() - 1),
        ),
        _ => Ok(()),
    }
}

fn check_depth(levels: usize) -> Result<()> {
    match levels > Lod::MAX_LEVELS {
        true => {
            Err(Error::new("levels of a LoD", format!("at most {}", Lod::MAX_LEVELS), levels.to_string()))
        }
        false => Ok(()),
    }
}

fn build(levels: Vec<Vec<usize>>) -> Result<Lod> {
    check_depth(levels.len())?;
    let mut levels = levels.into_iter();
    let Some(offsets) = levels.next() else {
        return Err(Error::new("LoD", "at least one level", "none"));
    };
    check(None, &offsets)?;
    levels.try_fold(Lod { upper: None, offsets }, |upper, offsets| {
        check(Some(&upper), &offsets)?;
        Ok(Lod { upper: Some(Arc::new(upper)), offsets })
    })
}

fn sums(level: usize, lengths: &[usize]) -> Result<Vec<usize>> {
    let mut offsets = reserved(lengths.len() + 1, "LoD")?;
    offsets.push(0);
    for (i, &length) in lengths.iter().enumerate() {
        let Some(end) = last(&offsets).checked_add(length) else {
            let what = format!("lengths of LoD level {level}");
            let got = format!("{} + {length} at place {i}", last(&offsets));
            return Err(Error::new(what, format!("a sum of at most {}", usize::MAX), got));
        };
        offsets.push(end);
    }
    Ok(offsets)
}

fn lengths(offsets: &[usize]) -> impl ExactSizeIterator<Item = usize> + '_ {
    offsets.windows(2).map(|pair| pair[1] - pair[0])
}

fn last(offsets: &[usize]) -> usize {
    offsets.last().copied().unwrap_or(0)
}

/// Returns an empty vector with capacity `n`. If memory is short, the result is an error instead of an abort, because
/// `n` may come from the offsets of a hostile file.
fn reserved(n: usize, what: &str) -> Result<Vec<usize>> {
    let mut vector = Vec::new();
    match reserve::fits_exactly(&mut vector, n) {
        true => Ok(vector),
        false => Err(Error::new(what, "a size that fits into memory", n.to_string())),
    }
}

#[cfg(test)]
mod tests;
