//! The tree form of a [`Lod`]. A tree is easier to write by hand and to print than offsets, but slower to use.

use std::sync::Arc;

use super::{Lod, lengths, sums};
use crate::error::{AtCaller, Error, Result};

/// The LoD of a batch as a tree. The children of the root are the top-level sequences; a leaf is a sequence of rows.
///
/// Level *k* of a [`Lod`] corresponds to the nodes at depth *k + 1*, from left to right; the root has depth 0. The
/// length of a sequence is the number of children of its node, or the number of rows of a leaf.
///
/// ```
/// use unpadded::{Lod, SeqPos};
/// use SeqPos::{Rows, Sequences};
/// let tree = Sequences(vec![Sequences(vec![Rows(3), Rows(2)]), Sequences(vec![Rows(4)])]);
/// let lod = Lod::from_tree(&tree)?;
/// assert_eq!(lod.to_string(), "[[2, 1], [3, 2, 4]]");
/// assert_eq!(lod.to_tree(), tree);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeqPos {
    /// A leaf: a sequence with this number of rows.
    Rows(usize),
    /// A sequence that consists of these shorter sequences, in order. The root of a tree has the top-level sequences of the
    /// batch.
    Sequences(Vec<SeqPos>),
}

/// Drops the tree without recursion, because recursion could overflow the stack for a deep tree.
impl Drop for SeqPos {
    fn drop(&mut self) {
        let mut waiting = match self {
            SeqPos::Sequences(children) if !children.is_empty() => std::mem::take(children),
            _ => return,
        };
        while let Some(mut node) = waiting.pop() {
            if let SeqPos::Sequences(children) = &mut node {
                waiting.append(children);
            }
        }
    }
}

impl Lod {
    /// Makes a LoD from a tree whose leaves all have the same depth. If the tree has no leaf, the depth is unknown, and
    /// the LoD has the fewest possible levels.
    ///
    /// # Errors
    /// Fails if the root is a leaf, if leaves have different depths, or if there are more than [`Lod::MAX_LEVELS`]
    /// levels.
    #[track_caller]
    pub fn from_tree(tree: &SeqPos) -> Result<Arc<Lod>> {
        let SeqPos::Sequences(children) = tree else {
            return Err(Error::new("tree", "a batch of sequences at the root", "a leaf of rows"));
        };
        let mut front: Vec<&SeqPos> = children.iter().collect();
        let mut upper = None;
        for level in 0.. {
            let deeper = front.iter().any(|node| matches!(node, SeqPos::Sequences(_)));
            let mut lengths = Vec::with_capacity(front.len());
            let mut next = Vec::new();
            for (index, &node) in front.iter().enumerate() {
                match node {
                    SeqPos::Rows(_) if deeper => {
                        let what = format!("tree, depth {}, place {index}", level + 1);
                        let expected = "a sequence of sequences, like the other nodes at this depth";
                        return Err(Error::new(what, expected, "a leaf: the depth is ragged"));
                    }
                    SeqPos::Rows(rows) => lengths.push(*rows),
                    SeqPos::Sequences(children) => {
                        lengths.push(children.len());
                        next.extend(children);
                    }
                }
            }
            upper = Some(Self::extend(upper, sums(level, &lengths).at_caller()?)?);
            if !deeper {
                break;
            }
            front = next;
        }
        upper.ok_or_else(|| Error::new("tree", "a level", "none")).at_caller()
    }

    /// Converts the LoD to a tree. [`Lod::from_tree`] converts the tree back to this LoD, with one exception. If at
    /// least the last two levels have no sequences, the tree does not show how many levels without sequences there are.
    /// The LoD of the tree then has fewer levels.
    pub fn to_tree(&self) -> SeqPos {
        let mut nodes: Vec<SeqPos> = lengths(&self.offsets).map(SeqPos::Rows).collect();
        for upper in self.above() {
            let mut children = nodes.into_iter();
            nodes = lengths(&upper.offsets)
                .map(|n| SeqPos::Sequences(children.by_ref().take(n).collect()))
                .collect();
        }
        SeqPos::Sequences(nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::SeqPos::{Rows, Sequences};
    use super::*;

    #[test]
    fn ragged_depth_is_refused() {
        let tree = Sequences(vec![Sequences(vec![Rows(1)]), Rows(2)]);
        let message = Lod::from_tree(&tree).unwrap_err().to_string();
        assert!(message.starts_with("tree, depth 1, place 1: expected a sequence of sequences"), "{message}");
        assert!(Lod::from_tree(&Rows(2)).is_err());
    }

    #[test]
    fn a_hostile_depth_is_an_error() {
        let mut tree = Rows(1);
        for _ in 0..1_000_000 {
            tree = Sequences(vec![tree]);
        }
        assert!(
            Lod::from_tree(&tree)
                .unwrap_err()
                .to_string()
                .contains("levels of a LoD: expected at most 6, got 7")
        );
    }

    #[test]
    fn empty_sequences_keep_their_place() {
        for lengths in [vec![vec![]], vec![vec![0]], vec![vec![0, 0], vec![]], vec![vec![0, 1], vec![0]]] {
            let lod = Lod::from_lengths(&lengths).unwrap();
            assert_eq!(Lod::from_tree(&lod.to_tree()).unwrap(), lod);
        }
    }
}
