//! The paths of the highest scores (Viterbi, "Error bounds for convolutional codes and an asymptotically optimum decoding
//! algorithm", 1967).

use super::transitions::{LANES, Transitions};
use crate::kernels::float::Float;
use crate::kernels::path::{Arithmetic, Sweep, sweep};
use crate::kernels::view::View;

/// What the best paths of a sequence are found in, used again for the next.
#[derive(Debug, Default)]
pub struct BestPaths {
    /// The highest scores of paths that end in each tag, best first, now and a row before.
    now: Vec<f64>,
    before: Vec<f64>,
    /// How many there are of each tag.
    counts: Vec<usize>,
    counts_before: Vec<usize>,
    /// By row, tag and rank: which path it goes on from.
    back: Vec<u32>,
    /// The ends of the best paths, and the scores of these.
    ends: Vec<(f64, usize)>,
    path: Vec<usize>,
}

/// The `most` paths of the highest scores, best first: of each its rank, its score and its tags to `each`. Of equal ones the one with
/// the smaller tag at the last place where they differ comes first. There are fewer if the others are forbidden; if all are, the best
/// one has tag 0 everywhere, and the score minus infinity.
pub fn best_paths<T: Float>(
    transitions: &Transitions,
    rows: View<'_, T>,
    most: usize,
    room: &mut BestPaths,
    mut each: impl FnMut(usize, f64, &[usize]),
) {
    let (tags, count) = (transitions.tags, rows.rows());
    room.ends.clear();
    room.path.clear();
    room.path.resize(count, 0);
    if count == 0 {
        return each(0, 0.0, &room.path);
    }
    let per_row = match most {
        1 => {
            sweep(Best { transitions, rows, room });
            transitions.stride
        }
        _ => {
            several(transitions, rows, most, room);
            tags * most
        }
    };
    if room.ends.is_empty() {
        return each(0, f64::NEG_INFINITY, &room.path);
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
}

/// Keeps a list of at most `most` in order, best first; what is equal stays in front.
fn insert<X: Copy>(list: &mut Vec<(f64, X)>, most: usize, score: f64, what: X) {
    let place = list.partition_point(|&(known, _)| known >= score);
    if place < most {
        list.truncate(most - 1);
        list.insert(place, (score, what));
    }
}

fn several<T: Float>(transitions: &Transitions, rows: View<'_, T>, most: usize, room: &mut BestPaths) {
    let tags = transitions.tags;
    let BestPaths { now, before, counts, counts_before, back, ends, .. } = room;
    let size = tags * most;
    for list in [&mut *now, &mut *before] {
        list.resize(size.max(list.len()), 0.0);
    }
    for list in [&mut *counts, &mut *counts_before] {
        list.clear();
        list.resize(tags, 0);
    }
    back.resize((rows.rows() * size).max(back.len()), 0);
    for (row, scores) in rows.iter().enumerate() {
        std::mem::swap(now, before);
        std::mem::swap(counts, counts_before);
        for (tag, score) in scores.iter().enumerate() {
            let score = score.to_f64();
            ends.clear();
            let mut meet = |path: f64, from: usize| {
                if path > f64::NEG_INFINITY {
                    insert(ends, most, path, from);
                }
            };
            if row == 0 {
                meet(transitions.end(tag)[0] + score, 0);
            } else {
                for (from, count) in counts_before.iter().enumerate() {
                    let pair = transitions.pair(from, tag) + score;
                    let known = from * most..from * most + count;
                    known.for_each(|path| meet(before[path] + pair, path));
                }
            }
            counts[tag] = ends.len();
            for (rank, &(path, from)) in ends.iter().enumerate() {
                now[tag * most + rank] = path;
                back[row * size + tag * most + rank] = from as u32;
            }
        }
    }
    ends.clear();
    for (tag, count) in counts.iter().enumerate() {
        for (rank, score) in now[tag * most..][..*count].iter().enumerate() {
            let score = score + transitions.end(tag)[1];
            if score > f64::NEG_INFINITY {
                insert(ends, most, score, tag * most + rank);
            }
        }
    }
}

/// The best path alone.
struct Best<'a, T> {
    transitions: &'a Transitions,
    rows: View<'a, T>,
    room: &'a mut BestPaths,
}

impl<T: Float> Sweep for Best<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self { transitions, rows, room } = self;
        let &Transitions { tags, stride, scores: ref table, .. } = transitions;
        let BestPaths { now, before, back, ends, .. } = room;
        for list in [&mut *now, &mut *before] {
            list.resize(stride.max(list.len()), 0.0);
        }
        back.resize((rows.rows() * stride).max(back.len()), 0);
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
