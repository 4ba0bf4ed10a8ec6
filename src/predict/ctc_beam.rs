//! Decodes the logits of connectionist temporal classification (CTC) by prefix beam search.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::tensor::{DType, Element, Variable};

/// The natural logarithm of 0.
const NEVER: f64 = f64::NEG_INFINITY;

/// A language model: a function of a prefix and the next label. It returns the natural logarithm of the label's
/// probability.
type LanguageModel = dyn Fn(&[i64], i64) -> f64 + Send + Sync;

/// A beam search for the likeliest labellings of sequences of frames, from the logits of a network that was trained by CTC.
///
/// In each frame, the logits give a probability to every class; one class is the *blank*. A path takes one class in
/// each frame. To get the labelling of a path, consecutive equal classes are merged, and then the blanks are removed.
/// The probability of a labelling is the sum of the probabilities of its paths. A labelling may have many paths, so the
/// likeliest path need not belong to the likeliest labelling. After each frame, the search keeps the best prefixes of
/// labellings, at most as many as the beam width. For each prefix, the search keeps two sums of probabilities: one over
/// the paths that end in a blank, and one over all other paths of the prefix. The score of a labelling is
///
/// ```text
/// ln p(labels) + weight · Σ model(labels before, label) + bonus · number of labels
/// ```
///
/// The search keeps the prefixes with the best scores. If the beam is wide enough to keep every prefix, the result is exact.
///
/// ```
/// use unpadded::ndarray::array;
/// use unpadded::predict::CtcBeam;
/// use unpadded::{Lod, Variable};
/// // A sequence of two frames and a sequence of three; class 0 is the blank.
/// let p = array![[0.6f64, 0.4, 0.0], [0.6, 0.4, 0.0], [0.1, 0.6, 0.3], [0.9, 0.05, 0.05], [0.1, 0.5, 0.4]];
/// let logits = Variable::sequences(p.mapv(f64::ln), Lod::from_lengths1(&[2, 3])?)?;
///
/// let best = CtcBeam::new(16).decode(&logits)?;
/// // Two blanks are the likeliest path (0.36), but three other paths have the labelling 1.
/// assert_eq!(best[0][0].labels, [1]);
/// assert!((best[0][0].score - (0.4f64 * 0.4 + 2.0 * 0.4 * 0.6).ln()).abs() < 1e-12);
/// assert_eq!(best[1][0].labels, [1, 1]);
///
/// // A language model in which a label seldom repeats, and the best two labellings.
/// let seldom = |prefix: &[i64], next| if prefix.last() == Some(&next) { 0.1f64.ln() } else { 0.9f64.ln() };
/// let beam = CtcBeam::new(16).n_best(2).language_model(1.0, seldom);
/// let best = beam.decode(&logits)?;
/// assert_eq!((&best[1][0].labels[..], &best[1][1].labels[..]), (&[1, 2][..], &[2, 1][..]));
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// Sources: Graves, Supervised Sequence Labelling with Recurrent Neural Networks, 2012, chapter 7; Hannun, Maas, Jurafsky and Ng,
/// First-pass large vocabulary continuous speech recognition using bi-directional recurrent DNNs, 2014.
#[derive(Clone)]
pub struct CtcBeam {
    beams: usize,
    blank: usize,
    n_best: usize,
    model: Option<(f64, Arc<LanguageModel>)>,
    bonus: f64,
}

/// A labelling with its score.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct CtcLabels {
    /// The labels: classes other than the blank.
    pub labels: Vec<i64>,
    /// The score: the natural logarithm of the labelling's probability (the sum over the paths that the search kept),
    /// plus the terms of the language model and the bonus.
    pub score: f64,
}

impl CtcBeam {
    /// Makes a search with beam width `beams`: the number of prefixes that are kept after each frame. The blank is class 0,
    /// only the best labelling is returned, and there is no language model and no bonus.
    ///
    /// Time grows with frames · prefixes · classes; memory grows with prefixes · classes and with the labels of the kept
    /// prefixes. Memory is allocated only for existing prefixes, so `beams` may be any number from 1 on.
    pub fn new(beams: usize) -> Self {
        Self { beams, blank: 0, n_best: 1, model: None, bonus: 0.0 }
    }

    /// Sets the class of the blank (default: 0).
    #[must_use]
    pub fn blank(self, blank: usize) -> Self {
        Self { blank, ..self }
    }

    /// Sets the number of labellings that are returned per sequence, best first; there are never more than the beam width.
    #[must_use]
    pub fn n_best(self, n_best: usize) -> Self {
        Self { n_best, ..self }
    }

    /// Adds a language model: the score gains `weight` times the natural logarithm of the probability of each label
    /// after the labels before it. If the model returns negative infinity for a label, the search never appends this
    /// label to this prefix, whatever the weight is.
    ///
    /// Several threads call the model at once. While the search keeps a prefix, it calls the model once for each next label. If
    /// the search drops a prefix and keeps it again later, it may repeat these calls; the model must then return the same
    /// results.
    #[must_use]
    pub fn language_model(
        self,
        weight: f64,
        model: impl Fn(&[i64], i64) -> f64 + Send + Sync + 'static,
    ) -> Self {
        Self { model: Some((weight, Arc::new(model))), ..self }
    }

    /// Adds `bonus` to the score for each label of a labelling, because a language model prefers short labellings.
    #[must_use]
    pub fn bonus(self, bonus: f64) -> Self {
        Self { bonus, ..self }
    }

    /// Decodes logits: returns the best labellings of each sequence, best first. Labellings with equal scores are in
    /// lexicographic order: a labelling that is a prefix of a longer labelling comes before the longer labelling.
    ///
    /// The logits have the shape `[frames, classes]`, in f32 or f64, and a LoD whose last level divides the frames into
    /// sequences. The result has one entry per sequence of that level. `decode` computes the softmax, in f64. A class whose
    /// logit is negative infinity is never taken. A sequence without frames has one labelling, which is empty and has score 0.
    /// A sequence has fewer labellings than `n_best` if no more exist, and none if the language model forbids every labelling.
    ///
    /// The sequences are divided among the threads of rayon's pool; the result does not depend on the number of
    /// threads.
    ///
    /// # Errors
    /// Returns an error in these cases:
    /// - The logits are sparse, have no LoD, or have another shape or dtype.
    /// - A row of logits has NaN, positive infinity, or no class above negative infinity.
    /// - The beam width or the number of labellings is 0, or the blank is not a class.
    /// - The weight or the bonus is not finite.
    /// - The language model returns NaN or positive infinity.
    #[track_caller]
    pub fn decode(&self, logits: &Variable) -> Result<Vec<Vec<CtcLabels>>> {
        match logits.dtype() {
            DType::F32 => self.sequences::<f32>(logits).at_caller(),
            DType::F64 => self.sequences::<f64>(logits).at_caller(),
            other => Err(Error::new("dtype of the logits of CTC", "f32 or f64", other.to_string())),
        }
    }

    fn sequences<T: Element + Into<f64>>(&self, logits: &Variable) -> Result<Vec<Vec<CtcLabels>>> {
        let numbers = logits.as_slice::<T>()?;
        let classes = self.classes(logits.shape())?;
        let Some(lod) = logits.lod() else {
            return Err(Error::new(
                "LoD of the logits of CTC",
                "a LoD that says which frames form a sequence",
                "none",
            ));
        };
        let sequence = |ends: &[usize]| {
            let mut search = Search::new(self, classes);
            let frames = numbers[ends[0] * classes..ends[1] * classes].chunks_exact(classes);
            for (row, frame) in (ends[0]..).zip(frames) {
                search.frame(frame).map_err(|e| e.row(row))?;
            }
            Ok(search.best())
        };
        let decoded: Vec<Result<_>> = lod.offsets().par_windows(2).map(sequence).collect();
        // If several sequences fail, the error of the first failed sequence is returned, even if the thread of another
        // sequence failed earlier.
        decoded.into_iter().collect()
    }

    /// Checks the options and the shape of the logits; returns the number of classes.
    fn classes(&self, shape: &[usize]) -> Result<usize> {
        let Self { beams, blank, n_best, model, bonus } = self;
        let weight = model.as_ref().map_or(0.0, |(weight, _)| *weight);
        let finite = [("weight of the language model", weight), ("bonus for each label", *bonus)];
        if let Some((what, got)) = finite.iter().find(|(_, number)| !number.is_finite()) {
            return Err(Error::new(*what, "a finite number", got.to_string()));
        }
        if let Some((what, _)) = [("beams", beams), ("n_best", n_best)].iter().find(|(_, n)| **n == 0) {
            return Err(Error::new(*what, "at least 1", "0"));
        }
        match shape {
            [_, classes] if blank < classes => Ok(*classes),
            [_, classes] => Err(Error::new("blank", format!("a class below {classes}"), blank.to_string())),
            other => Err(Error::new("shape of the logits of CTC", "[frames, classes]", format!("{other:?}"))),
        }
    }
}

struct Search<'a> {
    beam: &'a CtcBeam,
    prefixes: Prefixes,
    kept: Vec<Prefix>,
    /// The natural logarithms of the probabilities of the classes in the current frame.
    logs: Vec<f64>,
    /// The candidates of the current frame; the buffer is reused from frame to frame.
    found: Vec<Candidate>,
}

/// A prefix that the search keeps after a frame. All probabilities are natural logarithms.
struct Prefix {
    node: usize,
    /// The probability of all paths of this prefix that end in a blank.
    blank: f64,
    /// The probability of all paths of this prefix that end in the last label of the prefix.
    label: f64,
    /// The probability of all paths of this prefix: `blank` and `label` together.
    both: f64,
    /// The language model's terms plus the bonus, summed over the labels of this prefix.
    extra: f64,
    /// For each next label, the term of the language model plus the bonus. An entry is NaN until the model is called for this
    /// label; the vector is empty before the first call.
    asked: Vec<f64>,
}

/// A candidate of a frame: a kept prefix without a new label (`next` is `None`), or a kept prefix with a new label appended.
struct Candidate {
    score: f64,
    blank: f64,
    label: f64,
    both: f64,
    extra: f64,
    from: usize,
    next: Option<usize>,
}

impl<'a> Search<'a> {
    fn new(beam: &'a CtcBeam, classes: usize) -> Self {
        let mut prefixes = Prefixes::new();
        prefixes.keep(ROOT, 0);
        let empty = Prefix { node: ROOT, blank: 0.0, label: NEVER, both: 0.0, extra: 0.0, asked: Vec::new() };
        Self { beam, prefixes, kept: vec![empty], logs: vec![0.0; classes], found: Vec::new() }
    }

    fn frame<T: Copy + Into<f64>>(&mut self, logits: &[T]) -> Result<()> {
        log_softmax(logits, &mut self.logs)?;
        self.found.clear();
        let inside = self.stay();
        self.extend(&inside)?;
        let Self { beam, prefixes, kept, found, .. } = self;
        if found.len() > beam.beams {
            let end = |found: &Candidate| prefixes.end(kept[found.from].node, found.next);
            found.select_nth_unstable_by(beam.beams, |a, b| {
                b.score.total_cmp(&a.score).then_with(|| prefixes.order(end(a), end(b)))
            });
            found.truncate(beam.beams);
        }
        self.keep_found();
        Ok(())
    }

    /// Adds each kept prefix itself as a candidate, without a new label. Three kinds of paths lead to the same prefix: the frame
    /// adds a blank; the frame repeats the last label; or, if the parent prefix is kept, the frame appends the last label to the
    /// parent. Returns, for each kept prefix with a kept parent, the pair (index of the parent among the kept prefixes, last
    /// label), sorted.
    fn stay(&mut self) -> Vec<(usize, usize)> {
        let Self { beam, prefixes, kept, logs, found } = self;
        let mut inside = Vec::new();
        for (from, one) in kept.iter().enumerate() {
            let blank = one.both + logs[beam.blank];
            let mut label = NEVER;
            if let Some((shorter, last)) = prefixes.end(one.node, None) {
                label = one.label + logs[last];
                if let Some(i) = prefixes.nodes[shorter].kept {
                    inside.push((i, last));
                    label = ln_sum(label, kept[i].before(last, prefixes) + logs[last]);
                }
            }
            let both = ln_sum(blank, label);
            if both > NEVER {
                let score = both + one.extra;
                found.push(Candidate { score, blank, label, both, extra: one.extra, from, next: None });
            }
        }
        inside.sort_unstable();
        inside
    }

    /// Adds a candidate for each kept prefix and each next label. Skips the pairs (kept prefix, label) in `inside`: the
    /// longer prefix of such a pair is itself a kept prefix, which `stay` has already added.
    fn extend(&mut self, inside: &[(usize, usize)]) -> Result<()> {
        let Self { beam, prefixes, kept, logs, found } = self;
        // If the beam is full already, a candidate with a lower score than all candidates so far is never kept.
        let full = found.len() >= beam.beams;
        let least = if full { found.iter().map(|f| f.score).fold(f64::INFINITY, f64::min) } else { NEVER };
        let mut inside = inside.iter().copied().peekable();
        let mut labels = Vec::new();
        for (from, one) in kept.iter_mut().enumerate() {
            labels.clear();
            for (next, &log) in logs.iter().enumerate() {
                if inside.next_if_eq(&(from, next)).is_some() || next == beam.blank {
                    continue;
                }
                let label = one.before(next, prefixes) + log;
                if label == NEVER {
                    continue;
                }
                let extra = match &beam.model {
                    None => one.extra + beam.bonus,
                    Some((weight, model)) => {
                        if one.asked.is_empty() {
                            one.asked.resize(logs.len(), f64::NAN);
                        }
                        if one.asked[next].is_nan() {
                            if labels.is_empty() {
                                prefixes.labels(one.node, &mut labels);
                            }
                            let logp = ask(&**model, &labels, next as i64)?;
                            one.asked[next] = if logp > NEVER { weight * logp + beam.bonus } else { NEVER };
                        }
                        one.extra + one.asked[next]
                    }
                };
                let score = label + extra;
                if score > NEVER && score >= least {
                    found.push(Candidate {
                        score,
                        blank: NEVER,
                        label,
                        both: label,
                        extra,
                        from,
                        next: Some(next),
                    });
                }
            }
        }
        Ok(())
    }

    /// Replaces the kept prefixes by the candidates of the frame.
    fn keep_found(&mut self) {
        let Self { prefixes, kept, found, .. } = self;
        let mut before = std::mem::take(kept);
        before.iter().for_each(|one| prefixes.nodes[one.node].kept = None);
        for (i, Candidate { blank, label, both, extra, from, next, .. }) in found.drain(..).enumerate() {
            let from = &mut before[from];
            let (node, asked) = match next {
                None => (from.node, std::mem::take(&mut from.asked)),
                Some(next) => (prefixes.child(from.node, next), Vec::new()),
            };
            prefixes.keep(node, i);
            kept.push(Prefix { node, blank, label, both, extra, asked });
        }
        before.iter().for_each(|one| prefixes.release(one.node));
    }

    fn best(self) -> Vec<CtcLabels> {
        let Self { beam, prefixes, kept, .. } = self;
        let mut best: Vec<(f64, usize)> = kept.iter().map(|one| (one.both + one.extra, one.node)).collect();
        best.sort_unstable_by(|a, b| {
            let order = || prefixes.order(prefixes.end(a.1, None), prefixes.end(b.1, None));
            b.0.total_cmp(&a.0).then_with(order)
        });
        best.truncate(beam.n_best);
        let labels = |(score, node)| {
            let mut labels = Vec::new();
            prefixes.labels(node, &mut labels);
            CtcLabels { labels, score }
        };
        best.into_iter().map(labels).collect()
    }
}

impl Prefix {
    /// Returns the probability of all paths of this prefix to which the class `next` appends a new label. If the last
    /// label of the prefix is `next`, the result includes only the paths that end in a blank: two equal labels without
    /// a blank between them merge into one.
    fn before(&self, next: usize, prefixes: &Prefixes) -> f64 {
        if prefixes.nodes[self.node].label == next { self.blank } else { self.both }
    }
}

/// The node of the empty prefix.
const ROOT: usize = 0;

/// The tree of prefixes: a node is the prefix of its parent node, followed by one label. A node is freed when the
/// search keeps neither the node's prefix nor a longer prefix that begins with the node's prefix. The tree therefore
/// never has more labels than all kept prefixes together.
struct Prefixes {
    nodes: Vec<Node>,
    /// The indices of the freed nodes, which are used again.
    free: Vec<usize>,
    /// The child of each node: (node, label) -> child.
    children: HashMap<(usize, usize), usize>,
}

struct Node {
    parent: usize,
    label: usize,
    /// The number of labels of the node's prefix.
    length: usize,
    /// The index of the node's prefix among the kept prefixes; `None` if the search does not keep the prefix.
    kept: Option<usize>,
    /// The reference count: the number of children, plus 1 if the node's prefix is kept.
    users: usize,
}

impl Prefixes {
    fn new() -> Self {
        // The count of the root starts at 1, so that the root is never freed; the label of the root is not a class.
        let root = Node { parent: ROOT, label: usize::MAX, length: 0, kept: None, users: 1 };
        Self { nodes: vec![root], free: Vec::new(), children: HashMap::new() }
    }

    /// Returns the child of a node for a label; makes the child if it does not exist.
    fn child(&mut self, parent: usize, label: usize) -> usize {
        let Self { nodes, free, children } = self;
        let length = nodes[parent].length + 1;
        *children.entry((parent, label)).or_insert_with(|| {
            nodes[parent].users += 1;
            let node = Node { parent, label, length, kept: None, users: 0 };
            match free.pop() {
                Some(i) => {
                    nodes[i] = node;
                    i
                }
                None => {
                    nodes.push(node);
                    nodes.len() - 1
                }
            }
        })
    }

    fn keep(&mut self, node: usize, number: usize) {
        let node = &mut self.nodes[node];
        node.kept = Some(number);
        node.users += 1;
    }

    /// Drops a reference to a node; frees the node, and then its ancestors, as long as no reference is left.
    fn release(&mut self, mut node: usize) {
        loop {
            let Node { parent, label, users, .. } = &mut self.nodes[node];
            *users -= 1;
            if *users > 0 {
                return;
            }
            self.children.remove(&(*parent, *label));
            self.free.push(node);
            node = *parent;
        }
    }

    /// Returns the parent and the last label of a node. If `next` is a label, returns the pair for the node's child with this
    /// label: the node itself and `next`. Returns `None` for the root without `next`.
    fn end(&self, node: usize, next: Option<usize>) -> Option<(usize, usize)> {
        match next {
            Some(next) => Some((node, next)),
            None if node == ROOT => None,
            None => Some((self.nodes[node].parent, self.nodes[node].label)),
        }
    }

    /// Compares two prefixes in lexicographic order. The comparison walks up the tree from both nodes; this is fast enough,
    /// since scores are seldom equal.
    fn order(&self, a: Option<(usize, usize)>, b: Option<(usize, usize)>) -> Ordering {
        let length = |end: Option<(usize, usize)>| end.map_or(0, |(node, _)| self.nodes[node].length + 1);
        let shorter = |(node, _)| self.end(node, None);
        let (long_a, long_b) = (length(a), length(b));
        let shortened = |end, times: usize| (0..times).fold(end, |end: Option<_>, _| end.and_then(shorter));
        let mut ends =
            (shortened(a, long_a.saturating_sub(long_b)), shortened(b, long_b.saturating_sub(long_a)));
        let mut order = long_a.cmp(&long_b);
        while let (Some(a), Some(b)) = ends {
            // A label further up the tree comes earlier in the prefix, so its comparison overrides the comparisons below it.
            order = a.1.cmp(&b.1).then(order);
            if a.0 == b.0 {
                break;
            }
            ends = (shorter(a), shorter(b));
        }
        order
    }

    /// Appends the labels of a node's prefix, first to last, to an empty vector.
    fn labels(&self, node: usize, labels: &mut Vec<i64>) {
        let mut end = self.end(node, None);
        while let Some((shorter, label)) = end {
            labels.push(label as i64);
            end = self.end(shorter, None);
        }
        labels.reverse();
    }
}

fn ask(model: &LanguageModel, labels: &[i64], next: i64) -> Result<f64> {
    let score = model(labels, next);
    if score < f64::INFINITY {
        return Ok(score);
    }
    let got = format!("{score} for label {next} behind a prefix of length {}", labels.len());
    Err(Error::of(ErrorKind::NotFinite, "language model", "a logarithm below infinity", got))
}

/// Returns ln (eᵃ + eᵇ).
fn ln_sum(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == NEVER { high } else { high + (low - high).exp().ln_1p() }
}

/// Computes the natural logarithms of the probabilities of a frame's classes from the logits.
fn log_softmax<T: Copy + Into<f64>>(logits: &[T], logs: &mut [f64]) -> Result<()> {
    let mut highest = NEVER;
    for (class, (log, &logit)) in logs.iter_mut().zip(logits).enumerate() {
        *log = logit.into();
        if log.is_nan() || *log == f64::INFINITY {
            let got = format!("{log} for class {class}");
            return Err(Error::of(ErrorKind::NotFinite, "logits of CTC", "numbers below infinity", got));
        }
        highest = highest.max(*log);
    }
    if highest == NEVER {
        let expected = "a class above negative infinity";
        return Err(Error::of(ErrorKind::NotFinite, "logits of CTC", expected, "none"));
    }
    let sum: f64 = logs.iter().map(|log| (log - highest).exp()).sum();
    let ln = sum.ln();
    // Subtracts `highest` and `ln` one after the other: in the sum `highest + ln`, a large `highest` would round `ln`
    // away.
    logs.iter_mut().for_each(|log| *log = *log - highest - ln);
    Ok(())
}

#[cfg(test)]
mod tests;
