//! Finds the operators of a step block that can be merged: products that share an input, and operators at the same position in
//! trees of sums that have the same shape.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use crate::operator::{Attributes, Op, VarId};
use crate::program::SlotVars;

/// An operator that may be merged: a product, or the sum of two results of such operators that nothing else reads.
pub(super) struct Node {
    pub(super) instance: Arc<dyn Op>,
    /// The operator's number in the step block; `back` is the number of its backward operator in the gradient block.
    pub(super) op: usize,
    pub(super) back: Option<usize>,
    pub(super) out: VarId,
    pub(super) grad: Option<VarId>,
    pub(super) key: Key,
    /// The nodes that a sum adds.
    pub(super) operands: Vec<usize>,
    pub(super) reader: Option<usize>,
}

/// The properties that operators must share to be merged.
#[derive(PartialEq)]
pub(super) struct Key {
    pub(super) kind: String,
    pub(super) attributes: Attributes,
    /// The inputs that all operators to be merged have in common.
    pub(super) shared: Vec<SlotVars>,
    /// The number of the operator's variables in each slot of `Merge::beside`.
    pub(super) beside: Vec<usize>,
    pub(super) graded: bool,
    /// Whether the operator depends on a memory, and whether a memory depends on the operator. If both are true, every step calls
    /// it.
    pub(super) reach: (bool, bool),
}

/// The groups of nodes to be merged, in an order in which a group follows the groups that it reads.
///
/// Equivalent nodes have the same position in trees of the same shape. So a group has one node in each of these trees. The nodes
/// of every group are in the order of their trees' roots, so that the columns of all groups fit together.
pub(super) fn groups(nodes: &[Node]) -> Vec<Vec<usize>> {
    let set_of = alike(nodes);
    // The reader of a node comes after the node.
    let mut roots: Vec<usize> = (0..nodes.len()).collect();
    for (i, node) in nodes.iter().enumerate().rev() {
        roots[i] = node.reader.map_or(i, |reader| roots[reader]);
    }
    let root = |i: usize| roots[i];
    let mut groups: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, &set) in set_of.iter().enumerate() {
        groups.entry(set).or_default().push(i);
    }
    // A node that is added to another node of its group cannot be merged with that node.
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

/// For each node the first of its equivalent nodes: they have one key, and equivalent operands and readers. Found by
/// partition refinement: nodes with one key are a set, and a set is divided as long as the neighbours (operands and reader)
/// of its nodes are in different sets.
fn alike(nodes: &[Node]) -> Vec<usize> {
    let (mut set_of, mut sets) = by_key(nodes);
    // The nodes whose neighbours were moved to another set.
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

/// Partitions the nodes by their keys: the set of each node, and the sets.
fn by_key(nodes: &[Node]) -> (Vec<usize>, Vec<BTreeSet<usize>>) {
    let mut set_of: Vec<usize> = Vec::with_capacity(nodes.len());
    let mut sets: Vec<BTreeSet<usize>> = Vec::new();
    let mut known: HashMap<(&str, Vec<&[VarId]>), Vec<usize>> = HashMap::new();
    for (i, node) in nodes.iter().enumerate() {
        let shared = node.key.shared.iter().map(|bound| &bound.vars[..]).collect();
        let candidates = known.entry((&node.key.kind, shared)).or_default();
        let same = |of: &usize| sets[*of].first().is_some_and(|&first| nodes[first].key == node.key);
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

/// The nodes that leave their sets, because their neighbours are in other sets than the neighbours of the remaining nodes;
/// each piece with its set. The largest piece of a set stays, so that only the neighbours of the other pieces must be
/// checked again.
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
        // The neighbours of the set's other nodes have not changed: these nodes are one piece.
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

/// The product that is reached from a node by the first operands.
pub(super) fn leaf(nodes: &[Node], mut node: usize) -> &Node {
    while let Some(&operand) = nodes[node].operands.first() {
        node = operand;
    }
    &nodes[node]
}
