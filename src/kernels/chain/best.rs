//! The paths with the highest scores, by the Viterbi algorithm (Viterbi, "Error bounds for convolutional codes and an
//! asymptotically optimum decoding algorithm", 1967).

use crate::kernels::product::emptied;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use super::transitions::{LANES, Transitions};
use crate::error::{Error, Result};
use crate::kernels::float::Float;
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use crate::kernels::view::View;
use crate::reserve;

/// Scratch of [`best_paths`], which the caller reuses for the next sequence.
#[derive(Debug, Default)]
pub struct BestPaths {
    /// For each tag, the scores of the best paths that end in the tag, best first: at the current row (`now`) and at the
    /// previous row (`before`).
    now: Vec<f64>,
    before: Vec<f64>,
    /// For each tag, the number of stored paths that end in the tag: at the current row (`counts`) and at the previous row
    /// (`counts_before`).
    counts: Vec<usize>,
    counts_before: Vec<usize>,
    /// For each stored path, by row, tag and rank: the tag and rank of its predecessor in the previous row, as one
    /// index.
    back: Vec<u32>,
    /// For each of the best paths: its score, and the index of its tag and rank in the last row.
    ends: Vec<(f64, usize)>,
    path: Vec<usize>,
    /// The next candidate path of each preceding tag.
    next: BinaryHeap<NextPath>,
}

impl BestPaths {
    /// Returns the size in bytes of the scratch for the `most` best paths, for `tags` tags and sequences of up to
    /// `longest` rows.
    pub fn bytes_of(longest: usize, tags: usize, most: usize) -> usize {
        let per_row = per_row(tags.next_multiple_of(LANES), tags, most);
        let path = size_of::<u32>().saturating_mul(per_row) + size_of::<usize>();
        let scores = 2 * (size_of::<f64>().saturating_mul(per_row) + tags * size_of::<usize>());
        let next = (tags + 1) * size_of::<NextPath>() * 2 + 2 * most * size_of::<(f64, usize)>();
        longest.saturating_mul(path).saturating_add(scores).saturating_add(next)
    }

    /// Reserves memory to trace the paths back over `rows` rows of `per_row` paths each. Returns an error if there is not
    /// enough memory.
    fn reserve(&mut self, rows: usize, per_row: usize) -> Result<()> {
        let too_much = || {
            let expected = "a sequence whose rows · tags · paths, 4 bytes each, fit into memory";
            Error::new(
                "likeliest paths",
                expected,
                format!("{rows} rows of {per_row} paths, by tag and rank"),
            )
        };
        let size = rows.checked_mul(per_row).ok_or_else(too_much)?;
        let more = size.saturating_sub(self.back.len());
        if !reserve::fits(&mut self.back, more) {
            return Err(too_much());
        }
        self.back.resize(size.max(self.back.len()), 0);
        Ok(())
    }
}

/// A cursor into a sorted list of paths that continue with the same pair of tags: the cursor points to the best path
/// that is not merged yet. The merge takes the path of the greatest cursor next.
#[derive(Debug)]
struct NextPath {
    score: f64,
    at: usize,
    end: usize,
    pair: f64,
}

impl Ord for NextPath {
    fn cmp(&self, other: &Self) -> Ordering {
        // The comparison needs no order for NaN, since no score is NaN. Of two equal scores, the path with the smaller `at`
        // is taken first.
        self.score.partial_cmp(&other.score).unwrap_or(Ordering::Equal).then(other.at.cmp(&self.at))
    }
}

impl PartialOrd for NextPath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for NextPath {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for NextPath {}

/// Finds the `most` paths with the highest scores, best first, and passes the rank, score and tags of each path to `each`.
///
/// Of two paths with equal scores, the path with the smaller tag at the last row where they differ comes first. Paths with a
/// forbidden pair of tags are not passed, so `each` may be called fewer than `most` times. If all paths are forbidden,
/// `each` is called once, with tag 0 in every row and the score minus infinity. A path whose score is NaN counts as
/// forbidden.
///
/// # Errors
/// If there is not enough memory to trace the paths back: 4 bytes per row, tag and path.
pub fn best_paths<T: Float>(
    transitions: &Transitions,
    rows: View<'_, T>,
    most: usize,
    room: &mut BestPaths,
    mut each: impl FnMut(usize, f64, &[usize]),
) -> Result<()> {
    let (tags, count) = (transitions.tags, rows.rows());
    room.ends.clear();
    emptied(&mut room.path, count).resize(count, 0);
    if count == 0 {
        each(0, 0.0, &room.path);
        return Ok(());
    }
    let per_row = per_row(transitions.stride, tags, most);
    room.reserve(count, per_row)?;
    match most {
        1 => sweep(Best { transitions, rows, room }),
        _ => several(transitions, rows, most, room),
    }
    if room.ends.is_empty() {
        each(0, f64::NEG_INFINITY, &room.path);
        return Ok(());
    }
    let BestPaths { back, ends, path, .. } = room;
    for (rank, &(score, end)) in ends.iter().enumerate() {
        let mut at = end;
        for row in (0..count).rev() {
            path[row] = at / most;
            at = back[row * per_row + at] as usize;
        }
        each(rank, score, path);
    }
    Ok(())
}

/// Returns the number of stored paths for each row.
fn per_row(stride: usize, tags: usize, most: usize) -> usize {
    if most == 1 { stride } else { tags.saturating_mul(most) }
}

/// Merges one list of paths per preceding tag into the `most` best paths; each list and the result are sorted best first.
/// The list of tag t begins at index t · `most` of `scores` and has `counts[t]` paths; `pair` returns the score that is
/// added to all paths of the list.
fn merge(
    next: &mut BinaryHeap<NextPath>,
    (scores, counts, most): (&[f64], &[usize], usize),
    pair: impl Fn(usize) -> f64,
    best: &mut Vec<(f64, usize)>,
) {
    next.clear();
    best.clear();
    for (tag, &count) in counts.iter().enumerate() {
        let (at, pair) = (tag * most, pair(tag));
        let score = scores[at] + pair;
        if count > 0 && score > f64::NEG_INFINITY {
            next.push(NextPath { score, at, end: at + count, pair });
        }
    }
    while best.len() < most
        && let Some(mut first) = next.peek_mut()
    {
        best.push((first.score, first.at));
        first.at += 1;
        match scores.get(first.at).filter(|_| first.at < first.end).map(|score| score + first.pair) {
            Some(score) if score > f64::NEG_INFINITY => first.score = score,
            _ => drop(PeekMut::pop(first)),
        }
    }
}

fn several<T: Float>(transitions: &Transitions, rows: View<'_, T>, most: usize, room: &mut BestPaths) {
    let tags = transitions.tags;
    let BestPaths { now, before, counts, counts_before, back, ends, next, .. } = room;
    let size = tags * most;
    for list in [&mut *now, &mut *before] {
        list.resize(size.max(list.len()), 0.0);
    }
    for list in [&mut *counts, &mut *counts_before] {
        list.clear();
        list.resize(tags, 0);
    }
    for (row, scores) in rows.iter().enumerate() {
        std::mem::swap(now, before);
        std::mem::swap(counts, counts_before);
        for (tag, score) in scores.iter().enumerate() {
            let score = score.to_f64();
            if row == 0 {
                ends.clear();
                let path = transitions.end(tag)[0] + score;
                if path > f64::NEG_INFINITY {
                    ends.push((path, 0));
                }
            } else {
                merge(next, (before, counts_before, most), |from| transitions.pair(from, tag) + score, ends);
            }
            counts[tag] = ends.len();
            for (rank, &(path, from)) in ends.iter().enumerate() {
                now[tag * most + rank] = path;
                back[row * size + tag * most + rank] = from as u32;
            }
        }
    }
    merge(next, (now, counts, most), |tag| transitions.end(tag)[1], ends);
}

/// The search for the single path with the highest score.
struct Best<'a, T> {
    transitions: &'a Transitions,
    rows: View<'a, T>,
    room: &'a mut BestPaths,
}

impl<T: Float> Sweep for Best<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self { transitions, rows, room } = self;
        let &Transitions { tags, stride, scores: ref table, .. } = transitions;
        let BestPaths { now, before, back, ends, .. } = room;
        for list in [&mut *now, &mut *before] {
            list.resize(stride.max(list.len()), 0.0);
        }
        for (row, scores) in rows.iter().enumerate() {
            if row == 0 {
                now[..stride].copy_from_slice(&table[tags * stride..(tags + 1) * stride]);
            } else {
                std::mem::swap(now, before);
                for at in (0..stride).step_by(LANES) {
                    let (mut best, mut from) = ([f64::NEG_INFINITY; LANES], [0.0; LANES]);
                    for (tag, pairs) in table[..tags * stride].chunks_exact(stride).enumerate() {
                        let (score, tag) = (before[tag], tag as f64);
                        let Some(pairs) = pairs[at..].first_chunk::<LANES>() else { continue };
                        for i in 0..LANES {
                            let path = score + pairs[i];
                            let better = path > best[i];
                            best[i] = if better { path } else { best[i] };
                            from[i] = if better { tag } else { from[i] };
                        }
                    }
                    now[at..at + LANES].copy_from_slice(&best);
                    let back = &mut back[row * stride + at..][..LANES];
                    back.iter_mut().zip(from).for_each(|(to, from)| *to = from as u32);
                }
            }
            now.iter_mut().zip(scores).for_each(|(now, score)| *now += score.to_f64());
        }
        let last = &table[(tags + 1) * stride..];
        for (tag, (now, last)) in now[..tags].iter().zip(last).enumerate() {
            let score = now + last;
            let best = ends.first().map_or(f64::NEG_INFINITY, |&(best, _)| best);
            if score > best {
                ends.clear();
                ends.push((score, tag));
            }
        }
    }
}
