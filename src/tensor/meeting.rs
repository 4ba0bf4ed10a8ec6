//! Merges two ascending lists of positions, to find the entries of two sparse tensors that have the same position.

use std::cmp::Ordering;

use super::dense::Pair;

/// Pairs equal entries of two lists, which must be in ascending order without repeats. `lengths` has the lengths of the
/// lists. `order(i, j)` compares entry *i* of the first list with entry *j* of the second list. An entry without an
/// equal entry in the other list is a pair by itself.
pub(super) fn union(lengths: [usize; 2], order: impl Fn(usize, usize) -> Ordering) -> Vec<Pair> {
    let [left, right] = lengths;
    let (mut a, mut b) = (0, 0);
    let mut pairs = Vec::with_capacity(left.max(right));
    while a < left && b < right {
        match order(a, b) {
            Ordering::Less => {
                pairs.push(Pair::Left(a));
                a += 1;
            }
            Ordering::Greater => {
                pairs.push(Pair::Right(b));
                b += 1;
            }
            Ordering::Equal => {
                pairs.push(Pair::Both(a, b));
                (a, b) = (a + 1, b + 1);
            }
        }
    }
    pairs.extend((a..left).map(Pair::Left));
    pairs.extend((b..right).map(Pair::Right));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_is_met_once() {
        let (a, b) = ([1, 3, 4], [0, 3, 9, 10]);
        let pairs = union([3, 4], |i, j| a[i].cmp(&b[j]));
        use Pair::{Both, Left, Right};
        assert_eq!(pairs, [Right(0), Left(0), Both(1, 1), Left(2), Right(2), Right(3)]);
        assert!(union([0, 0], |_, _| Ordering::Equal).is_empty());
    }
}
