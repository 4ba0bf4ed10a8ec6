//! Ensembles of taggers: the answer is the tag sequence with the most votes among the sequences that the scheme allows.

use unpadded::data::Vocabulary;
use unpadded::ndarray::Array2;
use unpadded::predict::Predictor;
use unpadded::{Error, ErrorKind, Result};

use super::labels::{add_rows, places};

type Answers = (Vec<i64>, Vec<f32>);

#[derive(Default)]
pub(super) struct Voters {
    others: Vec<Voter>,
    /// The allowed transitions, in the layout of [`TagScheme::transitions`](unpadded::data::TagScheme::transitions).
    may: Array2<f32>,
}

struct Voter {
    predictor: Predictor,
    /// For each tag id of this tagger, the id of the same tag in the first tagger.
    tags: Vec<usize>,
    /// For each label id of the first tagger, the id of the same label in this tagger.
    labels: Vec<usize>,
}

impl Voters {
    /// Adds a tagger; an error, unless it has the first one's tags and labels (`known`). `may` has the allowed transitions.
    pub(super) fn add(
        &mut self,
        first: (Vocabulary, Option<Vocabulary>),
        may: Array2<f32>,
        predictor: Predictor,
        known: (Vocabulary, Option<Vocabulary>),
    ) -> Result<()> {
        places("tags", &first.0, &known.0)?;
        let tags = places("tags", &known.0, &first.0)?;
        let labels = match (&first.1, &known.1) {
            (Some(first), Some(known)) => places("labels", first, known)?,
            (None, None) => Vec::new(),
            _ => {
                let expected = "labels of texts in all taggers or in none";
                let got = "labels in some taggers only";
                return Err(Error::of(ErrorKind::Program, "models to join", expected, got));
            }
        };
        self.may = may;
        self.others.push(Voter { predictor, tags, labels });
        Ok(())
    }

    /// Returns the predictors of the other taggers.
    pub(super) fn others(&self) -> impl Iterator<Item = &Predictor> {
        self.others.iter().map(|voter| &voter.predictor)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.others.is_empty()
    }

    /// Returns the voted tags of texts of these `lengths`, and the mean probability of each label; `found` asks another tagger.
    pub(super) fn join(
        &self,
        (tags, mut labels): Answers,
        lengths: &[usize],
        found: &dyn Fn(&Predictor) -> Result<Answers>,
    ) -> Result<Answers> {
        if self.is_empty() {
            return Ok((tags, labels));
        }
        let mut all = vec![tags];
        for voter in &self.others {
            let (tags, rows) = found(&voter.predictor)?;
            let tag = |id: &i64| usize::try_from(*id).ok().and_then(|id| voter.tags.get(id));
            all.push(tags.iter().map(|id| tag(id).map_or(*id, |&id| id as i64)).collect());
            add_rows(&mut labels, &rows, &voter.labels);
        }
        labels.iter_mut().for_each(|sum| *sum /= all.len() as f32);
        let (mut from, mut voted) = (0, Vec::new());
        for length in lengths {
            let tag = all.iter().map(|tags| tags.get(from..from + length).unwrap_or_default());
            voted.extend(vote(&tag.collect::<Vec<_>>(), &self.may));
            from += length;
        }
        Ok((voted, labels))
    }
}

/// The cost of a transition that the scheme forbids, which outweighs all votes.
const FORBIDDEN: f64 = 1e9;

/// Returns the allowed sequence with the most votes; in a tie, the earlier model wins. `found` has the tag ids by each model.
fn vote(found: &[&[i64]], may: &Array2<f32>) -> Vec<i64> {
    let Some(first) = found.first() else { return Vec::new() };
    let tags = may.ncols();
    let cost = |from: usize, to: i64| {
        let allowed = usize::try_from(to).ok().and_then(|to| may.get((from, to))).is_some_and(|x| *x == 0.0);
        if allowed { 0.0 } else { FORBIDDEN }
    };
    let row = |tag: i64| usize::try_from(tag).unwrap_or(usize::MAX);
    // The first model's votes weigh slightly more, to break ties: over a whole text, less than one vote.
    let own = 0.5 / (first.len() as f64 + 1.0);
    // For each word and voted tag: the tag, the best sum of votes so far, and the index of the preceding tag in this sequence.
    let mut words: Vec<Vec<(i64, f64, usize)>> = Vec::with_capacity(first.len());
    for at in 0..first.len() {
        let mut candidates: Vec<(i64, f64, usize)> = Vec::new();
        for (model, tags) in found.iter().enumerate() {
            let Some(&tag) = tags.get(at) else { continue };
            let weight = if model == 0 { 1.0 + own } else { 1.0 };
            match candidates.iter_mut().find(|(known, ..)| *known == tag) {
                Some((_, votes, _)) => *votes += weight,
                None => candidates.push((tag, weight, 0)),
            }
        }
        for (tag, sum, from) in &mut candidates {
            let before = match words.last() {
                None => Some((0, -cost(tags, *tag))),
                Some(before) => {
                    let sums = before.iter().map(|(known, sum, _)| sum - cost(row(*known), *tag)).enumerate();
                    sums.reduce(better)
                }
            };
            if let Some((index, best)) = before {
                (*sum, *from) = (*sum + best, index);
            }
        }
        words.push(candidates);
    }
    let ends = words.last().into_iter().flatten().map(|(tag, sum, _)| sum - cost(tags + 1, *tag)).enumerate();
    let mut index = ends.reduce(better).map_or(0, |(index, _)| index);
    let mut best: Vec<i64> = Vec::with_capacity(words.len());
    for candidates in words.iter().rev() {
        let Some(&(tag, _, from)) = candidates.get(index) else { break };
        best.push(tag);
        index = from;
    }
    best.reverse();
    best
}

fn better(a: (usize, f64), b: (usize, f64)) -> (usize, f64) {
    if b.1 > a.1 { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unpadded::Result;
    use unpadded::data::{TagScheme, Vocabulary};

    #[test]
    fn the_most_votes_decide_and_chunks_begin_where_they_may() -> Result<()> {
        let tags = Vocabulary::labels(["B-x", "I-x", "O"])?;
        let [b, i, o] = ["B-x", "I-x", "O"].map(|tag| tags.id(tag).unwrap_or_default());
        let may = TagScheme::Iob2.transitions(&tags)?;
        assert_eq!(vote(&[&[o, b], &[b, i], &[b, i]], &may), [b, i]);
        // The first model wins a tie; in a tie without the first model, the earlier model wins.
        assert_eq!(vote(&[&[o, o], &[b, i]], &may), [o, o]);
        assert_eq!(vote(&[&[o], &[b], &[b], &[i], &[i]], &may), [b]);
        // Voting on each word alone would give `O I-x`, which the scheme forbids.
        assert_eq!(vote(&[&[o, o], &[b, i], &[o, b], &[b, i], &[o, o]], &may), [o, o]);
        // If every sequence of voted tags is forbidden, each word gets the tag with the most votes.
        assert_eq!(vote(&[&[o, i], &[o, i]], &may), [o, i]);
        assert!(vote(&[&[]], &may).is_empty() && vote(&[], &may).is_empty());
        let free = Array2::zeros((5, 3));
        assert_eq!(vote(&[&[o, i], &[b, i], &[o, b]], &free), [o, i]);
        Ok(())
    }
}
