//! Operations on the LoD of a batch: slice, split, merge, take, reorder, repeat and flatten.
//!
//! For each operation that moves rows, such as `take`, a second function, such as `take_rows`, returns row indices. With
//! these indices, the rows of a tensor can be moved in the same way.

use std::ops::Range;
use std::sync::Arc;

use super::{Lod, last, reserved};
use crate::error::{AtCaller, Error, Result};

impl Lod {
    /// Returns the range of the rows of the top-level sequences in `part`.
    ///
    /// # Errors
    /// Fails if the range ends before it starts or beyond the last top-level sequence.
    #[track_caller]
    pub fn row_range(&self, part: Range<usize>) -> Result<Range<usize>> {
        self.check_part(&part).at_caller()?;
        Ok(self.all().iter().fold(part, |part, offsets| offsets[part.start]..offsets[part.end]))
    }

    /// Returns the LoD of the top-level sequences in `part`, with all levels. [`Lod::row_range`] returns the rows of
    /// these sequences.
    ///
    /// # Errors
    /// Fails if the range ends before it starts or beyond the last top-level sequence.
    #[track_caller]
    pub fn slice(&self, part: Range<usize>) -> Result<Arc<Lod>> {
        self.check_part(&part).at_caller()?;
        self.pick(vec![part]).at_caller()
    }

    /// Splits the batch into consecutive slices: slice *i* has the next `counts[i]` top-level sequences.
    ///
    /// ```
    /// use unpadded::Lod;
    /// let lod = Lod::from_lengths1(&[4, 5, 3])?;
    /// let parts = lod.split(&[2, 1])?;
    /// assert_eq!((parts[0].to_string(), parts[1].to_string()), ("[[4, 5]]".into(), "[[3]]".into()));
    /// assert_eq!(Lod::merge(&parts)?, lod);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the sum of the counts is not [`Lod::sequences`].
    #[track_caller]
    pub fn split(&self, counts: &[usize]) -> Result<Vec<Arc<Lod>>> {
        let sum = counts.iter().try_fold(0usize, |sum, &n| sum.checked_add(n));
        if sum != Some(self.sequences()) {
            let got = sum.map_or("a sum that overflows".into(), |sum| sum.to_string());
            return Err(Error::new("sum of the parts", format!("{} sequences", self.sequences()), got));
        }
        let mut start = 0;
        let slice = |&n: &usize| {
            start += n;
            self.slice(start - n..start)
        };
        counts.iter().map(slice).collect::<Result<_>>().at_caller()
    }

    /// Concatenates the LoDs of several batches. A single LoD is returned unchanged.
    ///
    /// # Errors
    /// Fails if `parts` is empty, if LoDs have different numbers of levels, or if a sum overflows.
    #[doc(alias = "concat")]
    #[track_caller]
    pub fn merge(parts: &[Arc<Lod>]) -> Result<Arc<Lod>> {
        let first = match parts {
            [] => return Err(Error::new("LoDs to merge", "at least one", "none")),
            [only] => return Ok(Arc::clone(only)),
            [first, ..] => first,
        };
        let levels = first.levels();
        if let Some(i) = parts.iter().position(|part| part.levels() != levels) {
            let what = format!("levels of part {i} to merge");
            return Err(Error::new(what, format!("{levels}, as part 0"), parts[i].levels().to_string()));
        }
        let mut merged = vec![vec![0]; levels];
        for part in parts {
            for (whole, offsets) in merged.iter_mut().zip(part.all()) {
                let base = last(whole);
                base.checked_add(last(offsets)).ok_or_else(overflow).at_caller()?;
                whole.extend(offsets[1..].iter().map(|offset| base + offset));
            }
        }
        Self::new(merged)
    }

    /// Returns the LoD of the listed top-level sequences, in the listed order. A sequence may be listed repeatedly or
    /// not at all. [`Lod::take_rows`] returns the rows of these sequences.
    ///
    /// # Errors
    /// Fails if a listed index is not less than [`Lod::sequences`], or if the result is too large for memory.
    #[doc(alias = "gather")]
    #[track_caller]
    pub fn take(&self, sequences: &[usize]) -> Result<Arc<Lod>> {
        self.check_sequences(sequences).at_caller()?;
        self.pick(sequences.iter().map(|&i| i..i + 1).collect()).at_caller()
    }

    /// Returns, for each row of the batch after [`Lod::take`], the index that the row has in this batch.
    ///
    /// # Errors
    /// Fails as [`Lod::take`] does.
    #[track_caller]
    pub fn take_rows(&self, sequences: &[usize]) -> Result<Vec<usize>> {
        self.check_sequences(sequences).at_caller()?;
        let offsets = self.row_offsets(0).at_caller()?;
        let parts = sequences.iter().map(|&i| offsets[i]..offsets[i + 1]);
        let room = total(parts.clone()).at_caller()?;
        let mut rows = reserved(room, "rows of the taken sequences").at_caller()?;
        parts.for_each(|part| rows.extend(part));
        Ok(rows)
    }

    /// Puts the top-level sequences into another order: sequence *i* of the result is sequence `order[i]` of this
    /// batch.
    ///
    /// ```
    /// use unpadded::Lod;
    /// let lod = Lod::from_lengths1(&[2, 1])?;
    /// assert_eq!(lod.reorder(&[1, 0])?.to_string(), "[[1, 2]]");
    /// assert_eq!(lod.reorder_rows(&[1, 0])?, [2, 0, 1]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `order` does not list every top-level sequence exactly once.
    #[track_caller]
    pub fn reorder(&self, order: &[usize]) -> Result<Arc<Lod>> {
        self.check_order(order).at_caller()?;
        self.take(order)
    }

    /// Returns, for each row of the batch after [`Lod::reorder`], the index that the row has in this batch.
    ///
    /// # Errors
    /// Fails if `order` does not list every top-level sequence exactly once.
    #[track_caller]
    pub fn reorder_rows(&self, order: &[usize]) -> Result<Vec<usize>> {
        self.check_order(order).at_caller()?;
        self.take_rows(order)
    }

    /// Repeats each top-level sequence: sequence *i* occurs `times[i]` times in succession; if `times[i]` is 0, the
    /// sequence is left out.
    ///
    /// ```
    /// use unpadded::Lod;
    /// let lod = Lod::from_lengths1(&[2, 1, 3])?;
    /// assert_eq!(lod.repeat(&[2, 1, 0])?.to_string(), "[[2, 2, 1]]");
    /// assert_eq!(lod.repeat_rows(&[2, 1, 0])?, [0, 1, 0, 1, 2]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if `times` does not have one number for each top-level sequence, or if the result is too large for memory.
    #[track_caller]
    pub fn repeat(&self, times: &[usize]) -> Result<Arc<Lod>> {
        self.take(&self.repeated(times).at_caller()?)
    }

    /// Returns, for each row of the batch after [`Lod::repeat`], the index that the row has in this batch.
    ///
    /// # Errors
    /// Fails as [`Lod::repeat`] does.
    #[track_caller]
    pub fn repeat_rows(&self, times: &[usize]) -> Result<Vec<usize>> {
        self.take_rows(&self.repeated(times).at_caller()?)
    }

    /// Flattens a level: removes level `k + 1`. A sequence of level `k` then contains sequences of level `k + 2` or, if
    /// level `k + 1` was the last level, rows. The rows are unchanged.
    ///
    /// ```
    /// use unpadded::Lod;
    /// let articles = Lod::from_lengths(&[vec![2, 1], vec![3, 2, 4]])?;
    /// assert_eq!(articles.flatten(0)?.to_string(), "[[5, 4]]"); // words an article
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// [`Lod::without_top`] removes the top level instead. [`Lod::upper`] removes the last level, as pooling does.
    ///
    /// # Errors
    /// Fails if there is no level below `k`.
    #[track_caller]
    pub fn flatten(&self, k: usize) -> Result<Arc<Lod>> {
        let mut levels = self.to_levels();
        if k >= levels.len() - 1 {
            let expected = match levels.len() {
                1 => "a LoD of two levels or more".into(),
                n => format!("a level less than {}, the last level", n - 1),
            };
            return Err(Error::new(
                "LoD level to flatten",
                expected,
                format!("level {k} of {}", levels.len()),
            ));
        }
        let finer = levels.remove(k + 1);
        levels[k].iter_mut().for_each(|offset| *offset = finer[*offset]);
        Self::new(levels)
    }

    /// Removes the top level: the sequences of the next level become the top-level sequences. Returns `None` if there
    /// is only one level.
    pub fn without_top(&self) -> Option<Arc<Lod>> {
        let mut levels = self.to_levels();
        levels.remove(0);
        Self::new(levels).ok()
    }

    /// Returns the LoD of several ranges of top-level sequences, one after another. The ranges must be within the
    /// batch.
    fn pick(&self, mut runs: Vec<Range<usize>>) -> Result<Arc<Lod>> {
        let mut upper = None;
        for offsets in self.all() {
            let room = total(runs.iter().cloned())?.checked_add(1).ok_or_else(overflow)?;
            let mut picked = reserved(room, "offsets of the result")?;
            picked.push(0);
            for run in &mut runs {
                let (base, start) = (last(&picked), offsets[run.start]);
                base.checked_add(offsets[run.end] - start).ok_or_else(overflow)?;
                picked.extend(offsets[run.start + 1..=run.end].iter().map(|offset| base + (offset - start)));
                *run = start..offsets[run.end];
            }
            upper = Some(Self::extend(upper, picked)?);
        }
        upper.ok_or_else(overflow)
    }

    fn repeated(&self, times: &[usize]) -> Result<Vec<usize>> {
        if times.len() != self.sequences() {
            let expected = format!("{}, one for each sequence", self.sequences());
            return Err(Error::new("repetitions", expected, times.len().to_string()));
        }
        let mut taken = reserved(total(times.iter().map(|&n| 0..n))?, "repeated sequences")?;
        for (i, &n) in times.iter().enumerate() {
            taken.resize(taken.len() + n, i);
        }
        Ok(taken)
    }

    fn check_part(&self, part: &Range<usize>) -> Result<()> {
        if part.start <= part.end && part.end <= self.sequences() {
            return Ok(());
        }
        let expected = format!("a range within 0..{}", self.sequences());
        Err(Error::new("sequences to slice", expected, format!("{part:?}")))
    }

    fn check_sequences(&self, sequences: &[usize]) -> Result<()> {
        let n = self.sequences();
        match sequences.iter().position(|&i| i >= n) {
            None => Ok(()),
            Some(index) => {
                let what = format!("sequence at place {index}");
                Err(Error::new(what, format!("a number below {n}"), sequences[index].to_string()))
            }
        }
    }

    fn check_order(&self, order: &[usize]) -> Result<()> {
        let n = self.sequences();
        if order.len() != n {
            return Err(Error::new(
                "order",
                format!("{n} numbers, one for each sequence"),
                order.len().to_string(),
            ));
        }
        self.check_sequences(order)?;
        let mut seen = vec![false; n];
        match order.iter().position(|&i| std::mem::replace(&mut seen[i], true)) {
            None => Ok(()),
            Some(index) => {
                let got = format!("{} again at place {index}", order[index]);
                Err(Error::new("order", format!("every sequence of 0..{n} once"), got))
            }
        }
    }
}

fn total(parts: impl Iterator<Item = Range<usize>>) -> Result<usize> {
    parts.map(|part| part.len()).try_fold(0usize, usize::checked_add).ok_or_else(overflow)
}

fn overflow() -> Error {
    Error::new("rows of the result", format!("at most {}", usize::MAX), "more")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested() -> Arc<Lod> {
        Lod::from_lengths(&[vec![3, 1, 2], vec![3, 2, 4, 1, 2, 3]]).unwrap()
    }

    #[test]
    fn slices_of_nested_sequences() {
        assert_eq!(nested().slice(1..3).unwrap().to_string(), "[[1, 2], [1, 2, 3]]");
        assert_eq!(nested().row_range(1..3).unwrap(), 9..15);
        assert_eq!(nested().slice(2..2).unwrap().to_string(), "[[], []]");
        let message = nested().slice(2..4).unwrap_err().to_string();
        assert_eq!(message, "sequences to slice: expected a range within 0..3, got 2..4");
        #[allow(clippy::reversed_empty_ranges)]
        let backwards = 2..1;
        assert!(nested().row_range(backwards).is_err());
    }

    #[test]
    fn nested_sequences_move_as_a_whole() {
        assert_eq!(nested().reorder(&[2, 1, 0]).unwrap().to_string(), "[[2, 1, 3], [2, 3, 1, 3, 2, 4]]");
        assert_eq!(nested().reorder_rows(&[2, 1, 0]).unwrap()[..6], [10, 11, 12, 13, 14, 9]);
        assert_eq!(nested().repeat(&[0, 3, 0]).unwrap().to_string(), "[[1, 1, 1], [1, 1, 1]]");
        assert!(nested().reorder(&[0, 0, 1]).unwrap_err().to_string().contains("0 again at place 1"));
        assert!(nested().reorder(&[0, 1]).is_err());
        assert!(nested().take(&[0, 3]).is_err());
        assert!(nested().repeat(&[1]).is_err());
    }

    #[test]
    fn flattening_and_dropping() {
        assert_eq!(nested().flatten(0).unwrap().to_string(), "[[9, 1, 5]]");
        assert!(nested().flatten(1).is_err());
        assert_eq!(nested().without_top().unwrap().to_string(), "[[3, 2, 4, 1, 2, 3]]");
        assert!(nested().without_top().unwrap().without_top().is_none());
        let deep = nested().append(vec![0; 16]).unwrap();
        assert_eq!(deep.flatten(1).unwrap().to_string(), "[[3, 1, 2], [0, 0, 0, 0, 0, 0]]");
    }

    #[test]
    fn parts_must_fit_each_other() {
        assert!(Lod::merge(&[]).is_err());
        assert!(Lod::merge(&[nested(), Lod::from_lengths1(&[1]).unwrap()]).is_err());
        let huge = Lod::from_lengths1(&[usize::MAX]).unwrap();
        assert!(Lod::merge(&[huge.clone(), huge.clone()]).is_err());
        assert!(huge.repeat(&[2]).is_err());
        assert!(huge.repeat(&[usize::MAX]).is_err());
        assert!(huge.repeat_rows(&[1]).is_err());
        assert!(nested().split(&[usize::MAX, 1, 3]).is_err());
        let one = nested();
        assert!(Arc::ptr_eq(&Lod::merge(std::slice::from_ref(&one)).unwrap(), &one));
    }
}
