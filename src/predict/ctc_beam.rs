//! Decoding the logits of connectionist temporal classification (CTC) by prefix beam search.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use rayon::prelude::*;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::tensor::{DType, Element, Variable};

/// ln 0.
const NEVER: f64 = f64::NEG_INFINITY;

/// The natural logarithm of the probability of a label after a prefix.
type LanguageModel = dyn Fn(&[i64], i64) -> f64 + Send + Sync;

/// A CTC beam search for the likeliest labellings of sequences of frames, whose network was trained by CTC.
///
/// Each frame has a distribution over the classes, one of which is the *blank*. A path takes one class in each frame; the
/// labelling of a path is the path after merging runs of one class and then removing the blanks. The probability of a labelling
/// is the sum over all its paths, so the labelling of the likeliest path need not be the likeliest labelling. From frame to
/// frame the search keeps a number of prefixes of labellings (the beam width). It adds the probabilities of the paths of a
/// prefix: one sum over the paths that end in a blank, and one over the other paths. A labelling has the score
///
/// ```text
/// ln p(labels) + weight · Σ model(labels before, label) + bonus · number of labels
/// ```
///
/// The search keeps the prefixes with the best scores. If the beam is wide enough to keep all prefixes, the result is exact.
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
/// Sources: A. Graves, Supervised Sequence Labelling with Recurrent Neural Networks, 2012, chapter 7; A. Hannun, A. Maas,
/// D. Jurafsky, A. Ng, First-pass large vocabulary continuous speech recognition using bi-directional recurrent DNNs, 2014.
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
    /// The natural logarithm of the labels' probability, summed over all kept paths, plus the terms of language model and
    /// bonus.
    pub score: f64,
}

impl CtcBeam {
    /// A search with beam width `beams`: the number of prefixes kept from frame to frame. The blank is class 0, only the best
    /// labelling is returned, and there is no language model and no bonus.
    ///
    /// Time grows with frames · prefixes · classes, memory with prefixes · classes and the labels of the kept
    /// prefixes. Memory is allocated only for existing prefixes, so any number is allowed.
    pub fn new(beams: usize) -> Self {
        Self { beams, blank: 0, n_best: 1, model: None, bonus: 0.0 }
    }

    /// Sets the class of the blank (default: 0).
    #[must_use]
    pub fn blank(self, blank: usize) -> Self {
        Self { blank, ..self }
    }

    /// Sets the number of labellings per sequence, best first; at most the beam width are found.
    #[must_use]
    pub fn n_best(self, n_best: usize) -> Self {
        Self { n_best, ..self }
    }

    /// Adds a language model: `weight` times the natural logarithm of the probability of each label after the labels before it.
    /// If the model returns negative infinity, the label is never taken after these labels, whatever the weight.
    ///
    /// Several threads call the model at once. It is called once for each next label while a prefix is kept, and may be called
    /// again if the prefix is kept again later; it must then return the same result.
    #[must_use]
    pub fn language_model(
        self,
        weight: f64,
        model: impl Fn(&[i64], i64) -> f64 + Send + Sync + 'static,
    ) -> Self {
        Self { model: Some((weight, Arc::new(model))), ..self }
    }

    /// Adds a bonus to the score for each label, since a language model prefers short labellings.
    #[must_use]
    pub fn bonus(self, bonus: f64) -> Self {
        Self { bonus, ..self }
    }

    /// Decodes logits: returns the best labellings of each sequence, best first. Labellings with equal scores are ordered by
    /// their first difference: the smaller label, or the labelling that ends there, comes first.
    ///
    /// The logits have the shape `[frames, classes]`, in f32 or f64, and a LoD whose last level divides the frames into
    /// sequences; the result has one entry per sequence of that level. `decode` computes the softmax, in f64. A class whose
    /// logit is negative infinity is never taken, and a sequence without frames has the empty labelling, of score 0. A sequence
    /// has fewer labellings than requested if no more exist, and none if the language model forbids all.
    ///
    /// Sequences are divided over the threads of rayon's pool; the result does not depend on their number.
    ///
    /// # Errors
    /// If the logits are not dense, of another shape or dtype, or have no LoD; at a row with NaN, positive infinity, or no class
    /// above negative infinity; if the beam width or the number of labellings is 0, the blank is not a class, or the weight
    /// or the bonus is not finite; if the language model returns NaN or positive infinity.
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
        // Of several errors, the first sequence's is returned, whichever thread failed first.
        decoded.into_iter().collect()
    }

    /// Checks options and shape; returns the number of classes.
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
            [_, classes] => {
                Err(Error::new("blank", format!("one of {classes} classes, from 0 on"), blank.to_string()))
            }
            other => Err(Error::new("shape of the logits of CTC", "[frames, classes]", format!("{other:?}"))),
        }
    }
}

/// The search through one sequence.
struct Search<'a> {
    beam: &'a CtcBeam,
    prefixes: Prefixes,
    kept: Vec<Prefix>,
    /// The logarithms of a frame's probabilities.
    logs: Vec<f64>,
    /// The candidates of a frame; the buffer is reused from frame to frame.
    found: Vec<Candidate>,
}

/// A kept prefix. Probabilities are natural logarithms.
struct Prefix {
    node: usize,
    /// The probability of the prefix's paths so far that end in a blank.
    blank: f64,
    /// The probability of the prefix's paths so far that end in its last label.
    label: f64,
    /// The probability of all paths of the prefix.
    both: f64,
    /// The terms of language model and bonus.
    extra: f64,
    /// The terms of language model and bonus for each next label: NaN before the model is called for a label, empty before the
    /// first call.
    asked: Vec<f64>,
}

/// A candidate to be kept after a frame: a kept prefix, or a kept prefix and a next label.
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

    /// Advances the search by one frame.
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

    /// Adds each kept prefix as a candidate again. Three kinds of paths lead to the same prefix: a further blank; the last
    /// label once more; and, if the parent prefix is kept, the last label after the parent. Returns the pairs of such a parent
    /// (its number among the kept prefixes) and the last label, sorted.
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

    /// Adds a candidate for each kept prefix and each next label, except for the pairs `inside`, which `stay` has returned.
    fn extend(&mut self, inside: &[(usize, usize)]) -> Result<()> {
        let Self { beam, prefixes, kept, logs, found } = self;
        // If there are already as many candidates as the beam is wide, a candidate worse than all of them will not be kept.
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
                            let said = ask(&**model, &labels, next as i64)?;
                            one.asked[next] = if said > NEVER { weight * said + beam.bonus } else { NEVER };
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

    /// Replaces the kept prefixes by the candidates.
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

    /// Returns the best labellings, best first.
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
    /// Returns the probability of the paths to which `next` adds a new label: after an equal label, only the paths that end in
    /// a blank.
    fn before(&self, next: usize, prefixes: &Prefixes) -> f64 {
        if prefixes.nodes[self.node].label == next { self.blank } else { self.both }
    }
}

/// The prefix without labels.
const ROOT: usize = 0;

/// The tree of prefixes: a node is the prefix of its parent, followed by one label. A node lives as long as its prefix, or a
/// longer prefix that begins with it, is kept; so the tree never has more labels than the kept prefixes together.
struct Prefixes {
    nodes: Vec<Node>,
    /// Freed nodes to reuse.
    free: Vec<usize>,
    /// The child of a node, by the node and the label.
    children: HashMap<(usize, usize), usize>,
}

struct Node {
    parent: usize,
    label: usize,
    /// The number of labels of the prefix.
    length: usize,
    /// Its number among the kept prefixes, if it is kept.
    kept: Option<usize>,
    /// The reference count: children, and the list of kept prefixes.
    users: usize,
}

impl Prefixes {
    fn new() -> Self {
        // The root has one reference too many, so that it is never freed; its label is not a class.
        let root = Node { parent: ROOT, label: usize::MAX, length: 0, kept: None, users: 1 };
        Self { nodes: vec![root], free: Vec::new(), children: HashMap::new() }
    }

    /// Returns the child of a node for a label, made if there is none.
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

    /// Drops a reference to a node, and frees nodes without references.
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

    /// Returns the parent and the last label of a node, or, with `next`, of the node's child for `next`. `None` for the root.
    fn end(&self, node: usize, next: Option<usize>) -> Option<(usize, usize)> {
        match next {
            Some(next) => Some((node, next)),
            None if node == ROOT => None,
            None => Some((self.nodes[node].parent, self.nodes[node].label)),
        }
    }

    /// Compares two prefixes by their first labels that differ. A walk up the tree is fast enough, since scores are seldom
    /// equal.
    fn order(&self, a: Option<(usize, usize)>, b: Option<(usize, usize)>) -> Ordering {
        let length = |end: Option<(usize, usize)>| end.map_or(0, |(node, _)| self.nodes[node].length + 1);
        let shorter = |(node, _)| self.end(node, None);
        let (long_a, long_b) = (length(a), length(b));
        let cut = |end, times: usize| (0..times).fold(end, |end: Option<_>, _| end.and_then(shorter));
        let mut ends = (cut(a, long_a.saturating_sub(long_b)), cut(b, long_b.saturating_sub(long_a)));
        let mut order = long_a.cmp(&long_b);
        while let (Some(a), Some(b)) = ends {
            // A difference further up is an earlier label, so it decides.
            order = a.1.cmp(&b.1).then(order);
            if a.0 == b.0 {
                break;
            }
            ends = (shorter(a), shorter(b));
        }
        order
    }

    /// Writes the labels of a node, from the first on, to an empty vector.
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
    let said = model(labels, next);
    if said < f64::INFINITY {
        return Ok(said);
    }
    let got = format!("{said} for label {next} behind a prefix of length {}", labels.len());
    Err(Error::of(ErrorKind::NotFinite, "language model", "a logarithm below infinity", got))
}

/// ln (eᵃ + eᵇ).
fn ln_sum(a: f64, b: f64) -> f64 {
    let (high, low) = if a > b { (a, b) } else { (b, a) };
    if low == NEVER { high } else { high + (low - high).exp().ln_1p() }
}

/// Computes the logarithms of a frame's probabilities.
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
    // Two subtractions: the logarithm of the sum would be lost beside a large logit.
    logs.iter_mut().for_each(|log| *log = *log - highest - ln);
    Ok(())
}

#[cfg(test)]
mod tests;
