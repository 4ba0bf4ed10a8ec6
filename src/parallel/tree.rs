//! A binary tree over the parts of a training step. The tree fixes the order of additions, so that sums are bit-identical for
//! any number of ranks.

use std::ops::Range;

use crate::error::Result;

/// Returns the largest subtrees that together cover a range of the parts, in ascending order.
pub(crate) fn subtrees(range: Range<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let mut length = 1;
        while start.is_multiple_of(2 * length) && start + 2 * length <= range.end {
            length *= 2;
        }
        found.push(start..start + length);
        start += length;
    }
    found
}

/// A function that returns the sum of a subtree. The outer `None` means that the sum is unknown; the inner `None` means that no
/// part of the subtree has sequences.
type SubtreeSum<'a, T> = dyn FnMut(&Range<usize>) -> Option<Result<Option<T>>> + 'a;

/// Returns the sum over the parts `range`, which form a subtree. If `node` returns the sum of the subtree, this sum is
/// returned; else the sums of the two halves are added. `node` must return the sum of every single part. The returned
/// sum is `None` if no part of the subtree has sequences.
pub(crate) fn sum<T>(
    range: Range<usize>,
    node: &mut SubtreeSum<'_, T>,
    add: &mut dyn FnMut(T, T) -> Result<T>,
) -> Result<Option<T>> {
    if let Some(known) = node(&range) {
        return known;
    }
    if range.len() < 2 {
        return Ok(None);
    }
    let middle = range.start + range.len() / 2;
    let (left, right) = (sum(range.start..middle, node, add)?, sum(middle..range.end, node, add)?);
    match (left, right) {
        (Some(left), Some(right)) => add(left, right).map(Some),
        (left, right) => Ok(left.or(right)),
    }
}

/// Returns the sum over all parts of a step, added in the order of the tree. An element of the list is `None` if the part has
/// no sequences.
pub(crate) fn sum_all<T>(parts: Vec<Option<T>>, add: &mut dyn FnMut(T, T) -> Result<T>) -> Result<Option<T>> {
    let all = 0..parts.len();
    let mut parts = parts.into_iter();
    let mut single = |range: &Range<usize>| (range.len() == 1).then(|| Ok(parts.next().flatten()));
    sum(all, &mut single, add)
}

#[cfg(test)]
mod tests {
    use super::{subtrees, sum, sum_all};
    use crate::parallel::deal::parts_of;

    #[test]
    fn ranks_hold_subtrees() {
        assert_eq!(subtrees(0..8), vec![0..8]);
        assert_eq!(subtrees(0..3), [0..2, 2..3]);
        assert_eq!(subtrees(3..6), [3..4, 4..6]);
        assert!(subtrees(2..2).is_empty());
    }

    /// The order of the additions, written as text, is the same for any number of ranks.
    #[test]
    fn the_order_of_additions_is_that_of_one_rank() {
        let mut join = |a: String, b: String| Ok(format!("({a}+{b})"));
        for parts in [1usize, 2, 4, 8, 16] {
            let leaf = |i: usize| (i % 3 != 1).then(|| i.to_string());
            let whole = sum_all((0..parts).map(leaf).collect(), &mut join).unwrap();
            for size in 1..=parts {
                let mut known = Vec::new();
                for rank in 0..size {
                    for range in subtrees(parts_of(rank, size, parts)) {
                        let mut single = |range: &std::ops::Range<usize>| {
                            (range.len() == 1).then(|| Ok(leaf(range.start)))
                        };
                        known.push((range.clone(), sum(range, &mut single, &mut join).unwrap()));
                    }
                }
                let mut held = |range: &std::ops::Range<usize>| {
                    known.iter().find(|(known, _)| known == range).map(|(_, sum)| Ok(sum.clone()))
                };
                assert_eq!(sum(0..parts, &mut held, &mut join).unwrap(), whole, "{size} of {parts}");
            }
        }
    }
}
