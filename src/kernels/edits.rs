//! The edit distance of two sequences.

/// Returns the edit distance of two sequences: the fewest insertions, deletions and substitutions of an element that turn `a`
/// into `b` (Levenshtein, 1966).
///
/// ```
/// use unpadded::metrics::edit_distance;
/// let letters = |word: &str| word.chars().collect::<Vec<_>>();
/// assert_eq!(edit_distance(&letters("kitten"), &letters("sitting")), 3);
/// assert_eq!(edit_distance(&[1, 2], &[]), 2);
/// ```
pub fn edit_distance<T: PartialEq>(a: &[T], b: &[T]) -> usize {
    // One row of the distance table: the edit distance of the current prefix of `a` to each prefix of `b`.
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut across = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let best = (across + usize::from(x != y)).min(row[j] + 1).min(row[j + 1] + 1);
            across = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row.last().copied().unwrap_or(0)
}
