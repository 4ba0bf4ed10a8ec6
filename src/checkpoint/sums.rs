//! Running sums of metrics that have many sums, most of which are zero.

use std::collections::BTreeMap;

use super::sections::MakeError;
use crate::error::{Error, Result};

/// The maximum number of sums in one section. With their indices, these sums take 12 MiB.
const PIECE: usize = 1 << 19;

/// Sums stored sparsely: sums that are +0 are left out. A sum may be NaN or infinite, as in
/// [`Position::running`](super::Position::running).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SparseSums {
    /// The number of all sums, including zeros.
    pub count: u64,
    /// The index and the value of each sum that is not +0, sorted by index.
    pub sums: Vec<(u64, f64)>,
}

impl SparseSums {
    /// Returns the sparse sums of a list; a −0 is stored too, so that a loaded checkpoint is bit-identical to the saved one.
    pub(crate) fn of(all: &[f64]) -> Self {
        let sums = all.iter().enumerate().filter(|(_, sum)| sum.to_bits() != 0);
        Self { count: all.len() as u64, sums: sums.map(|(index, &sum)| (index as u64, sum)).collect() }
    }

    /// Writes all sums, including zeros, to `all`, which must have [`Self::count`] elements.
    pub(crate) fn fill(&self, all: &mut [f64]) {
        all.fill(0.0);
        for &(index, sum) in &self.sums {
            if let Some(to) = usize::try_from(index).ok().and_then(|index| all.get_mut(index)) {
                *to = sum;
            }
        }
    }

    /// Divides the sums into pieces; each piece is one section `sums`.
    pub(super) fn pieces(&self) -> impl Iterator<Item = &[(u64, f64)]> {
        self.sums.chunks(PIECE)
    }

    /// Appends a piece to the earlier pieces of the metric `name`, which has `count` sums in total.
    ///
    /// # Errors
    /// Fails if the numbers of indices and sums in the piece differ, or if `count` differs from the `count` of the earlier
    /// pieces.
    pub(super) fn join(
        all: &mut BTreeMap<String, Self>,
        (name, count): (String, u64),
        (places, sums): (Vec<u64>, Vec<f64>),
    ) -> Result<()> {
        let wrong = |what: &str, expected: u64, got: u64| {
            Err(Error::new(format!("{what} of `{name}`"), expected.to_string(), got.to_string()))
        };
        if places.len() != sums.len() {
            return wrong("sums", places.len() as u64, sums.len() as u64);
        }
        let known = all.get(&name).map_or(count, |known| known.count);
        if known != count {
            return wrong("total number of sums", known, count);
        }
        let known = all.entry(name).or_insert(Self { count, sums: Vec::new() });
        known.sums.extend(places.into_iter().zip(sums));
        Ok(())
    }

    /// Checks that the indices are ascending and below the count. A sum need not be finite: a metric may be NaN although the
    /// training is sound.
    pub(super) fn check(&self, what: &str, wrong: MakeError<'_>) -> Result<()> {
        let mut next = 0;
        for &(index, _) in &self.sums {
            if index < next || index >= self.count {
                let expected = format!("ascending indices below {}", self.count);
                return Err(wrong(what, &expected, &index.to_string()));
            }
            next = index + 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_that_are_no_numbers_are_kept_with_their_bits() {
        let mut all = vec![0.0; 2000];
        (all[3], all[4], all[1999]) = (f64::NAN, -0.0, f64::NEG_INFINITY);
        let sparse = SparseSums::of(&all);
        assert_eq!(sparse.sums.iter().map(|sum| sum.0).collect::<Vec<_>>(), [3, 4, 1999]);
        sparse.check("sums", &|what, expected, got| Error::new(what, expected, got)).unwrap();
        let mut filled = vec![1.0; all.len()];
        sparse.fill(&mut filled);
        assert!(filled.iter().zip(&all).all(|(a, b)| a.to_bits() == b.to_bits()));
    }

    #[test]
    fn sums_of_several_pieces_are_joined() {
        let mut all = vec![0.5; PIECE + 3];
        all[7] = 0.0;
        let sparse = SparseSums::of(&all);
        assert_eq!((sparse.count, sparse.sums.len()), (all.len() as u64, all.len() - 1));
        let mut joined = BTreeMap::new();
        let mut join =
            |name: &str, count, piece| SparseSums::join(&mut joined, (name.to_owned(), count), piece);
        assert_eq!(sparse.pieces().count(), 2);
        for piece in sparse.pieces() {
            join("many", sparse.count, piece.iter().copied().unzip()).unwrap();
        }
        let error = join("many", 3, (vec![1], vec![1.0])).unwrap_err().to_string();
        assert!(error.contains("total number of sums of `many`: expected 524291, got 3"), "{error}");
        let error = join("few", 3, (vec![1, 2], vec![1.0])).unwrap_err().to_string();
        assert!(error.contains("sums of `few`: expected 2, got 1"), "{error}");
        assert_eq!(joined["many"], sparse);
        let mut filled = vec![1.0; all.len()];
        joined["many"].fill(&mut filled);
        assert_eq!(filled, all);
    }
}
