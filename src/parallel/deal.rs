//! Divides the sequences of a batch into parts, and the parts among the ranks.

use std::ops::Range;

/// Returns the range of the parts of a batch that rank `rank` computes. The numbers of parts of any two ranks differ by at most
/// one.
pub(crate) fn parts_of(rank: usize, size: usize, parts: usize) -> Range<usize> {
    let first = |rank: usize| rank * parts / size.max(1);
    first(rank)..first(rank + 1)
}

/// Divides the sequences of a batch into parts, starting with the longest sequence. Returns, for each part, the
/// ascending indices of its sequences. Each sequence is added to the part with the fewest tokens so far. If several
/// parts have the fewest tokens, the part with the fewest sequences among them gets the sequence; if several remain,
/// the first. The result depends only on the lengths and the number of parts, not on the number of ranks.
pub(crate) fn by_tokens(lengths: &[usize], parts: usize) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|&i| std::cmp::Reverse(lengths[i]));
    let mut dealt = vec![(0, Vec::new()); parts];
    for i in order {
        let least = dealt
            .iter_mut()
            .min_by_key(|(tokens, samples): &&mut (usize, Vec<usize>)| (*tokens, samples.len()));
        if let Some((tokens, samples)) = least {
            *tokens += lengths[i];
            samples.push(i);
        }
    }
    let sorted = |(_, mut samples): (usize, Vec<usize>)| {
        samples.sort_unstable();
        samples
    };
    dealt.into_iter().map(sorted).collect()
}

/// Puts sequence i into part i mod `parts`, and returns the indices of the sequences in each part. Sequence i is then
/// in the same part in every batch, as carried states require.
pub(crate) fn in_turn(sequences: usize, parts: usize) -> Vec<Vec<usize>> {
    (0..parts).map(|part| (part..sequences).step_by(parts).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::{by_tokens, in_turn, parts_of};

    #[test]
    fn every_part_is_of_one_rank() {
        for (size, parts) in [(1, 1), (1, 8), (3, 4), (3, 8), (5, 8), (8, 8)] {
            let all: Vec<usize> = (0..size).flat_map(|rank| parts_of(rank, size, parts)).collect();
            assert_eq!(all, (0..parts).collect::<Vec<_>>());
            assert!((0..size).all(|rank| !parts_of(rank, size, parts).is_empty()));
        }
    }

    #[test]
    fn parts_have_about_as_many_tokens() {
        assert_eq!(by_tokens(&[5, 1, 9, 4, 0], 2), [vec![1, 2], vec![0, 3, 4]]);
        assert_eq!(by_tokens(&[3], 4), [vec![0], vec![], vec![], vec![]]);
        assert_eq!(by_tokens(&[0, 0, 0], 2), [vec![0, 2], vec![1]]);
        assert_eq!(in_turn(5, 2), [vec![0, 2, 4], vec![1, 3]]);
    }
}
