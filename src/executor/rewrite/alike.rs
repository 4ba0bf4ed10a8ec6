//! Finds the operators of a step block that can be merged: products that share an input, and sums of these products at
//! equal positions in trees of equal shape.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::operator::{Attributes, Op, VarId};
use crate::program::SlotVars;

/// A node: an operator that may be merged. A node is a product, or the sum of two nodes whose results no other operator reads.
pub(super) struct Node {
    pub(super) instance: Arc<dyn Op>,
    /// The number of the operator in the step block; `back` is the number of its backward operator in the gradient block.
    pub(super) op: usize,
    pub(super) back: Option<usize>,
    pub(super) out: VarId,
    pub(super) grad: Option<VarId>,
    pub(super) key: Key,
    /// The nodes whose results this sum adds; empty for a product.
    pub(super) operands: Vec<usize>,
    pub(super) reader: Option<usize>,
}

/// The properties that must be equal if operators are merged.
#[derive(PartialEq)]
pub(super) struct Key {
    pub(super) kind: String,
    pub(super) attributes: Attributes,
    /// The inputs that the merged operators must have in common.
    pub(super) shared: Vec<SlotVars>,
    /// For each slot of `Merge::beside`, how many variables the operator has in the slot.
    pub(super) beside: Vec<usize>,
    pub(super) graded: bool,
    /// Two flags: the operator depends on a memory; a memory depends on the operator. An operator with two true flags runs at
    /// every step.
    pub(super) reach: (bool, bool),
}

/// Returns the groups of nodes to be merged; a group comes after the groups whose results it reads.
///
/// Equivalent nodes have the same position in trees of the same shape, so a group has one node of each of these trees.
/// All groups order their nodes by the roots of the trees, so that the columns of all groups match.
pub(super) fn groups(nodes: &[Node]) -> Vec<Vec<usize>> {
    let set_of = alike(nodes);
    // The operator that reads a node has a higher number than the node.
    let mut roots: Vec<usize> = (0..nodes.len()).collect();
    for (i, node) in nodes.iter().enumerate().rev() {
        roots[i] = node.reader.map_or(i, |reader| roots[reader]);
    }
    let root = |i: usize| roots[i];
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, &set) in set_of.iter().enumerate() {
        groups.entry(set).or_default().push(i);
    }
    // The results of two nodes of one tree are added together, so the two nodes cannot be merged.
    let within: HashSet<usize> = groups
        .values()
        .flat_map(|group| {
            let mut roots: Vec<usize> = group.iter().map(|&i| root(i)).collect();
            roots.sort_unstable();
            roots.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect::<Vec<_>>()
        })
        .collect();
    let looped: HashSet<usize> = (0..nodes.len())
        .filter(|&i| nodes[i].operands.is_empty() && nodes[i].key.reach == (true, true))
        .map(root)
        .collect();
    let fits = |group: &Vec<usize>| {
        group.len() > 1 && group.iter().all(|&i| looped.contains(&root(i)) && !within.contains(&root(i)))
    };
    let mut groups: Vec<Vec<usize>> = groups.into_values().filter(fits).collect();
    groups.iter_mut().for_each(|group| group.sort_by_key(|&i| root(i)));
    groups
}

/// Returns, for each node, the first equivalent node. Two nodes are equivalent if their keys are equal, and if their
/// operands and readers are equivalent. The method is partition refinement. At first, all nodes with equal keys are one
/// set; then each set whose nodes have neighbours (operands and reader) in different sets is divided, until no such set
/// is left.
fn alike(nodes: &[Node]) -> Vec<usize> {
    let (mut set_of, mut sets) = by_key(nodes);
    // The nodes that must be checked again because a neighbour was moved to another set.
    let mut due: BTreeSet<usize> = (0..nodes.len()).collect();
    while !due.is_empty() {
        let moved = divided(nodes, &set_of, &sets, &due);
        due.clear();
        for (from, leaving) in moved {
            for &i in &leaving {
                set_of[i] = sets.len();
                sets[from].remove(&i);
                due.extend(nodes[i].operands.iter().copied().chain(nodes[i].reader));
            }
            sets.push(leaving.into_iter().collect());
        }
    }
    let mut first: HashMap<usize, usize> = HashMap::new();
    set_of.iter().enumerate().map(|(i, &set)| *first.entry(set).or_insert(i)).collect()
}

/// Partitions the nodes by their keys; returns the set of each node, and the list of sets.
fn by_key(nodes: &[Node]) -> (Vec<usize>, Vec<BTreeSet<usize>>) {
    let mut set_of: Vec<usize> = Vec::with_capacity(nodes.len());
    let mut sets: Vec<BTreeSet<usize>> = Vec::new();
    let mut known: HashMap<(&str, Vec<&[VarId]>), Vec<usize>> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        let shared = node.key.shared.iter().map(|bound| &bound.vars[..]).collect();
        let candidates = known.entry((&node.key.kind, shared)).or_default();
        let same = |number: &usize| sets[*number].first().is_some_and(|&first| nodes[first].key == node.key);
        let found = candidates.iter().copied().find(same);
        let set = found.unwrap_or(sets.len());
        if found.is_none() {
            candidates.push(set);
            sets.push(BTreeSet::new());
        }
        sets[set].insert(i);
        set_of.push(set);
    }
    (set_of, sets)
}

/// Returns the groups of nodes that must leave their sets, each with its old set. A group leaves its set because its neighbours
/// are in other sets than the neighbours of the nodes that stay. The largest group of a set stays, so that only the neighbours
/// of the smaller groups must be checked again.
fn divided(
    nodes: &[Node],
    set_of: &[usize],
    sets: &[BTreeSet<usize>],
    due: &BTreeSet<usize>,
) -> Vec<(usize, Vec<usize>)> {
    let neighbours = |i: usize| {
        let node = &nodes[i];
        let mut operands: Vec<usize> = node.operands.iter().map(|&o| set_of[o]).collect();
        operands.sort_unstable();
        (node.reader.map(|reader| set_of[reader]), operands)
    };
    let mut changed: BTreeMap<usize, BTreeMap<_, Vec<usize>>> = BTreeMap::new();
    for &i in due {
        changed.entry(set_of[i]).or_default().entry(neighbours(i)).or_default().push(i);
    }
    let mut moved: Vec<(usize, Vec<usize>)> = Vec::new();
    for (set, mut pieces) in changed {
        // The neighbours of the set's other nodes have not changed, so these nodes form one group.
        let looked_at: usize = pieces.values().map(Vec::len).sum();
        let other = sets[set].iter().copied().find(|i| !due.contains(i)).map(neighbours);
        let joining = other.as_ref().and_then(|other| pieces.remove(other)).map_or(0, |piece| piece.len());
        let others = sets[set].len() - looked_at + joining;
        let most = pieces.values().map(Vec::len).max().unwrap_or(0);
        if other.is_some() && others >= most {
            moved.extend(pieces.into_values().map(|piece| (set, piece)));
            continue;
        }
        let mut pieces: Vec<Vec<usize>> = pieces.into_values().collect();
        if other.is_some() {
            let leaving: HashSet<usize> = pieces.iter().flatten().copied().collect();
            pieces.push(sets[set].iter().copied().filter(|i| !leaving.contains(i)).collect());
        }
        let stays = pieces.iter().position(|piece| piece.len() == most).unwrap_or_default();
        pieces.swap_remove(stays);
        moved.extend(pieces.into_iter().map(|piece| (set, piece)));
    }
    moved
}

/// Returns the product that is reached by following the first operand of each sum.
pub(super) fn leaf(nodes: &[Node], mut node: usize) -> &Node {
    while let Some(&operand) = nodes[node].operands.first() {
        node = operand;
    }
    &nodes[node]
}
