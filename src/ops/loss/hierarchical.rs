//! `hierarchical_sigmoid`: a softmax over many classes, computed as a path of binary decisions through a tree.

use super::class_table::{BIAS, LABELS, LOSS, Table, WEIGHT, X, check, gradients};
use super::sampled;
use crate::ops::lookup::ids::Ids;
use crate::ops::prelude::*;

/// A binary tree over the classes, for a [hierarchical sigmoid](crate::Builder::hierarchical_sigmoid).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ClassTree {
    /// The complete binary tree over the given number of classes: the path to each class has about log₂(classes) decisions.
    Complete(usize),
    /// For each class, the path as a list of steps: each step is a node (a row index of the weight table) and the side on which
    /// the path leaves the node. The caller ensures that the paths form a tree, so that the probabilities of all classes add up
    /// to 1.
    Paths(Vec<Vec<(usize, Side)>>),
}

/// The side on which a path leaves a node of the class tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The left side, taken with the probability sigmoid(s), where s is the score of the node.
    Left,
    /// The right side, taken with the probability sigmoid(−s), where s is the score of the node.
    Right,
}

impl ClassTree {
    pub(crate) fn classes(&self) -> usize {
        match self {
            ClassTree::Complete(classes) => *classes,
            ClassTree::Paths(paths) => paths.len(),
        }
    }

    /// Concatenates the steps of all paths into one list. Returns the index at which each path starts in the list, followed by
    /// the list's length, and the list itself. Both results are empty for a complete tree. A step is stored as the
    /// index of its node plus 1, negated for a right step.
    pub(in crate::ops) fn listed(&self) -> (Vec<usize>, Vec<i64>) {
        let ClassTree::Paths(paths) = self else { return (Vec::new(), Vec::new()) };
        let mut starts = vec![0];
        let mut steps = Vec::new();
        for path in paths {
            for &(node, side) in path {
                let step = i64::try_from(node).unwrap_or(i64::MAX).saturating_add(1);
                steps.push(if side == Side::Left { step } else { -step });
            }
            starts.push(steps.len());
        }
        (starts, steps)
    }
}

operator! {
    /// Hierarchical softmax: the negative log-likelihood of each row's label. The probability of a class is the product
    /// of the probabilities of all decisions on the path to the class in a binary tree (Morin and Bengio, "Hierarchical
    /// probabilistic neural network language model", 2005).
    ///
    /// The nodes n on the path to the label have the scores s_n = x_i · W_n + b_n. The loss is loss_i = Σ_n ln(1 + e^∓s_n),
    /// where the sign is − at a left step of the path and + at a right step. Here e^−loss_i is the probability of the
    /// label's class; the probabilities of all classes add up to 1. Without given paths, the tree is the complete
    /// binary tree over C classes: node k has the children 2k and 2k + 1, the leaf of class c is C + c, and node k uses
    /// row k − 1 of W. In the complete tree, a row needs about log₂ C dot products instead of C.
    ///
    /// The shapes are x `[rows, width]`, `weight` W `[nodes, width]` (C − 1 nodes in the complete tree) and `bias` b `[nodes]`.
    /// The operator computes each row alone: the rows may have any LoD, which the loss `[rows]` keeps. The gradient of W is
    /// dense or, with `sparse`, selected rows: for each row of x, one row for each node on the path to the label. The gradient
    /// of the bias b is dense.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[3, 0])?;
    /// let op = ops::catalogue().parse("hierarchical_sigmoid", &Attributes::new().with("classes", 3usize))?;
    /// let out = op.call(&[
    ///     Operand::batch("x", Variable::sequences(array![[1.0], [1.0], [1.0]], lod.clone())?),
    ///     Operand::constant("weight", array![[0.3], [-0.7]]),
    ///     Operand::batch("labels", Variable::sequences(array![0i64, 1, 2], lod)?),
    /// ])?;
    /// let total: f64 = out[0].as_slice::<f64>()?.iter().map(|loss| (-loss).exp()).sum();
    /// assert!((total - 1.0).abs() < 1e-12);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is an error if numbers of rows, LoDs, widths or dtypes do not match; if the weight does not have one row per
    /// node, or a path names a node that has no row; at a run, it is an error if a label is negative or not below the
    /// number of classes.
    #[derive(Clone)]
    pub(in crate::ops) struct HierarchicalSigmoid = hierarchical_sigmoid {
        classes: usize,
        starts: Vec<usize> = Vec::new(),
        steps: Vec<i64> = Vec::new(),
        sparse: bool = false,
    }
    inputs { X = x: one, WEIGHT = weight: one, BIAS = bias: optional, LABELS = labels: one.without_gradient() }
    outputs { LOSS = loss: one }
}

builder_methods! { Builder, Var;
    /// Hierarchical softmax: the negative log-likelihood of each row's label. The probability of a class is the product
    /// of the probabilities of all decisions on the path to the class in a binary tree. The loss of row i is Σ_n ln(1 +
    /// e^∓s_n), with the scores s_n = x_i · W_n + b_n of the nodes n on the path to the label; the sign is − at a left
    /// step and + at a right step. Here e^−loss_i is the probability of the label's class. The operator
    /// [`hierarchical_sigmoid`](crate::ops) has the full formula, with the shapes. The gradient of W is selected rows:
    /// for each row of x, one row for each node on the path to the label.
    ///
    /// ```
    /// use unpadded::layers::init;
    /// use unpadded::ops::{ClassTree, Side};
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 1);
    /// let words = net.feed_like("words", DType::I64, &[], x);
    /// let nodes = net.parameter("nodes", DType::F32, &[999, 8], init::normal(0.1));
    /// let loss = x.hierarchical_sigmoid(nodes, None, words, ClassTree::Complete(1000));
    /// assert_eq!(net.describe(loss), "`hierarchical_sigmoid.loss`: f32[rows0] lod(0)");
    ///
    /// // Three classes. The first is frequent, so its path has one decision; the other paths have two.
    /// let few = net.parameter("few", DType::F32, &[2, 8], init::normal(0.1));
    /// let tree = ClassTree::Paths(vec![
    ///     vec![(0, Side::Left)],
    ///     vec![(0, Side::Right), (1, Side::Left)],
    ///     vec![(0, Side::Right), (1, Side::Right)],
    /// ]);
    /// let loss = x.hierarchical_sigmoid(few, None, words, tree);
    /// assert_eq!(net.describe(loss.mean()), "`mean`: f32[]");
    /// ```
    ///
    /// # Errors
    /// It is an error if numbers of rows, LoDs, widths or dtypes do not match; if the weight does not have one row per
    /// node, or a path names a node that has no row.
    #[doc(alias = "hsigmoid")]
    pub fn hierarchical_sigmoid(&self, x: Var, weight: Var, bias: Option<Var>, labels: Var, tree: ClassTree) -> Var {
        let (starts, steps) = tree.listed();
        let op = HierarchicalSigmoid { classes: tree.classes(), starts, steps, sparse: true };
        let inputs: [(&str, &[Var]); 4] =
            [("x", &[x]), ("weight", &[weight]), ("bias", bias.as_slice()), ("labels", &[labels])];
        self.append("hierarchical_sigmoid", &inputs, op.attributes())
    }
}

impl HierarchicalSigmoid {
    /// Calls `at` for each step of the path to a class, with the node's row index in the weight, and with 1 for a left step or −1
    /// for a right step.
    fn path<T: Float>(&self, class: usize, mut at: impl FnMut(usize, T)) {
        let sign = |left: bool| if left { T::ONE } else { -T::ONE };
        if self.starts.is_empty() {
            let mut node = class + self.classes;
            while node > 1 {
                at(node / 2 - 1, sign(node.is_multiple_of(2)));
                node /= 2;
            }
            return;
        }
        let steps = self.starts.get(class).zip(self.starts.get(class + 1));
        for &step in steps.and_then(|(&from, &to)| self.steps.get(from..to)).unwrap_or(&[]) {
            at((step.unsigned_abs() - 1) as usize, sign(step > 0));
        }
    }

    /// Checks that the weight has one row per node of the complete tree, or at least a row for every node of the given paths.
    fn check_tree(&self, s: &InferShape<'_>, height: usize) -> Result<()> {
        if self.classes == 0 {
            return Err(Error::new("attribute `classes`", "at least 1", "0"));
        }
        if self.starts.is_empty() {
            if height != self.classes - 1 {
                let expected = format!("{} rows, one for each node of the tree", self.classes - 1);
                return Err(s.mismatch(WEIGHT, &expected));
            }
            return Ok(());
        }
        let whole = self.starts.len() == self.classes + 1
            && self.starts.first() == Some(&0)
            && self.starts.last() == Some(&self.steps.len())
            && self.starts.is_sorted();
        if !whole {
            let expected = format!("{} offsets of {} steps", self.classes + 1, self.steps.len());
            return Err(Error::new("attribute `starts`", expected, format!("{} offsets", self.starts.len())));
        }
        let known = |step: &&i64| **step != 0 && step.unsigned_abs() <= height as u64;
        match self.steps.iter().find(|step| !known(step)) {
            None => Ok(()),
            Some(step) => {
                let got = step.unsigned_abs().wrapping_sub(1);
                Err(Error::new(
                    "node of a path",
                    format!("below {height}, the rows of `weight`"),
                    got.to_string(),
                ))
            }
        }
    }

    fn losses<T: RowValue>(&self, run: &mut Forward<'_>) -> Result<()> {
        let (x, labels) = (run.input::<T>(X)?, Ids::of(run, LABELS)?);
        let table = Table { weight: run.input::<T>(WEIGHT)?, bias: run.optional::<T>(BIAS)? };
        let mut out = run.output::<T>(LOSS)?;
        for (row, x) in x.iter().enumerate() {
            let class = self.class(&labels, row)?;
            let mut loss = T::ZERO;
            self.path::<T>(class, |node, sign| {
                let s = sign * table.score(node, x);
                loss += (-s).max(T::ZERO) + (T::ONE + (-s.abs()).exp()).ln();
            });
            out.row(row)[0] = loss;
        }
        Ok(())
    }

    fn slopes<T: RowValue>(&self, run: &mut Backward<'_>) -> Result<()> {
        let table = Table { weight: run.input::<T>(WEIGHT)?, bias: run.optional::<T>(BIAS)? };
        let labels = Ids::of(run, LABELS)?;
        gradients::<T>(run, self.depth(), &mut |_, row, x, add| {
            let class = self.class(&labels, row)?;
            self.path::<T>(class, |node, sign| {
                // The derivative of ln(1 + e^−s) with respect to s is −sigmoid(−s), here with s = sign · score.
                let s = sign * table.score(node, x);
                let e = (-s.abs()).exp();
                let missing = if s > T::ZERO { e / (T::ONE + e) } else { T::ONE / (T::ONE + e) };
                add(node, -sign * missing);
            });
            Ok(())
        })
    }

    fn class(&self, labels: &Ids<'_>, row: usize) -> Result<usize> {
        let missing = || Error::new("label", "a class", "none").row(row);
        labels.class(row, self.classes, None)?.ok_or_else(missing)
    }
}

impl HierarchicalSigmoid {
    /// Returns the length of the longest path.
    fn depth(&self) -> usize {
        let given = self.starts.windows(2).map(|path| path[1] - path[0]).max();
        given.unwrap_or_else(|| (2 * self.classes).max(1).ilog2() as usize)
    }
}

impl Op for HierarchicalSigmoid {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        let (height, loss) = check(s)?;
        self.check_tree(s, height)?;
        s.set(LOSS, loss);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => self.losses::<T>(run))
    }

    fn gradient(&self, wrt: usize, _: &[Vec<Spec>]) -> Gradient {
        let reads = Gradient::reads_nothing().input(X).input(WEIGHT).input(BIAS).input(LABELS);
        if wrt == WEIGHT && self.sparse { reads.stored(StorageKind::SelectedRows) } else { reads }
    }

    fn stored_gradient(&self, _: usize) -> StorageBound {
        StorageBound::PerRow(X, self.depth())
    }

    fn hints(&self) -> Hints {
        // The gradients are computed in separate calls, because the gradient of x can be divided over threads and the gradient
        // of the weight cannot.
        Hints { separate_gradients: true, ..Hints::default() }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => self.slopes::<T>(run))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        let (left, right) = (Side::Left, Side::Right);
        let tree = ClassTree::Paths(vec![
            vec![(1, left)],
            vec![(1, right), (0, left)],
            vec![(1, right), (0, right), (2, right)],
            vec![(1, right), (0, right), (2, left)],
        ]);
        let (starts, steps) = tree.listed();
        let complete = |sparse| HierarchicalSigmoid { classes: 4, starts: vec![], steps: vec![], sparse };
        let given = HierarchicalSigmoid { classes: 4, starts, steps, sparse: false };
        let all = [complete(false), complete(true), given].map(|op| op.attributes());
        sampled::samples(&all, 4, 3)
    }
}
