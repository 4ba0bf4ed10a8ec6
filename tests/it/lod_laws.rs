//! The laws that every LoD obeys, over random batches of one to four levels with many empty sequences.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use serde::Deserialize;
use serde::de::{IntoDeserializer, value};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::{Builder, DType, Lod, Variable};

/// Lengths of one to four levels that fit each other.
fn lengths() -> impl Strategy<Value = Vec<Vec<usize>>> {
    (0usize..6, vec(vec(0usize..4, 40), 1..=4)).prop_map(|(batch, pools)| {
        let mut count = batch;
        let level = |pool: Vec<usize>| {
            let lengths: Vec<usize> = pool.into_iter().cycle().take(count).collect();
            count = lengths.iter().sum();
            lengths
        };
        pools.into_iter().map(level).collect()
    })
}

fn lods() -> impl Strategy<Value = Arc<Lod>> {
    lengths().prop_map(|lengths| Lod::from_lengths(&lengths).unwrap())
}

/// A LoD and a permutation of its top sequences.
fn orders() -> impl Strategy<Value = (Arc<Lod>, Vec<usize>)> {
    lods().prop_flat_map(|lod| {
        let order: Vec<usize> = (0..lod.sequences()).collect();
        (Just(lod), Just(order).prop_shuffle())
    })
}

/// A LoD and counts that add up to its top sequences, some of them 0.
fn splits() -> impl Strategy<Value = (Arc<Lod>, Vec<usize>)> {
    (lods(), vec(0usize..10, 0..4)).prop_map(|(lod, mut cuts)| {
        let n = lod.sequences();
        cuts.iter_mut().for_each(|bound| *bound = (*bound).min(n));
        cuts.extend([0, n]);
        cuts.sort_unstable();
        let counts = cuts.windows(2).map(|pair| pair[1] - pair[0]).collect();
        (lod, counts)
    })
}

/// The rows of a batch, numbered: they show where each went.
fn numbered(lod: &Arc<Lod>) -> Variable {
    let rows: Vec<i64> = (0..lod.rows() as i64).collect();
    Variable::sequences(ndarray::Array1::from(rows), Arc::clone(lod)).unwrap()
}

fn moved(rows: &[usize], by: &[usize]) -> Vec<usize> {
    by.iter().map(|&row| rows[row]).collect()
}

proptest! {
    #[test]
    fn split_then_merge_is_the_identity((lod, counts) in splits()) {
        let parts = lod.split(&counts).unwrap();
        for (part, &count) in parts.iter().zip(&counts) {
            prop_assert_eq!(part.sequences(), count);
            prop_assert_eq!(part.levels(), lod.levels());
        }
        prop_assert_eq!(Lod::merge(&parts).unwrap(), lod);
    }

    #[test]
    fn rows_are_split_and_merged_with_their_lod((lod, counts) in splits()) {
        let (batch, mut start) = (numbered(&lod), 0);
        let slice = |&count: &usize| {
            start += count;
            batch.slice_sequences(start - count..start).unwrap()
        };
        let parts: Vec<Variable> = counts.iter().map(slice).collect();
        prop_assert_eq!(Variable::merge(&parts).unwrap(), batch);
    }

    #[test]
    fn lengths_to_offsets_and_back_is_the_identity(lengths in lengths()) {
        let lod = Lod::from_lengths(&lengths).unwrap();
        let back: Vec<Vec<usize>> = (0..lod.levels()).map(|k| lod.lengths(k).unwrap().collect()).collect();
        prop_assert_eq!(&back, &lengths);
        prop_assert_eq!(lod.to_string(), format!("{lengths:?}"));
        prop_assert_eq!(&Lod::new(lod.to_levels()).unwrap(), &lod);
        let counts: Vec<usize> = (0..=lod.levels()).map(|k| lod.count(k).unwrap()).collect();
        let expected: Vec<usize> = lengths.iter().map(Vec::len).chain([lod.rows()]).collect();
        prop_assert_eq!(counts, expected);
    }

    #[test]
    fn row_ids_and_back_is_the_identity(lod in lods()) {
        let ids = lod.row_ids().unwrap();
        let last = Lod::from_row_ids(&ids, lod.last_len()).unwrap();
        prop_assert_eq!(last.offsets(), lod.offsets());
    }

    #[test]
    fn tree_and_back_is_the_identity(lod in lods()) {
        let back = Lod::from_tree(&lod.to_tree()).unwrap();
        if lod.last_len() > 0 {
            prop_assert_eq!(&back, &lod);
        } else {
            // No leaf shows the depth: levels without sequences may be missing, nothing else.
            prop_assert_eq!(&lod.to_levels()[..back.levels()], &back.to_levels()[..]);
        }
        prop_assert_eq!(back.to_tree(), lod.to_tree());
    }

    #[test]
    fn a_permutation_and_its_inverse_is_the_identity((lod, order) in orders()) {
        let mut inverse = vec![0; order.len()];
        order.iter().enumerate().for_each(|(to, &from)| inverse[from] = to);
        let permuted = lod.reorder(&order).unwrap();
        let rows = lod.reorder_rows(&order).unwrap();
        prop_assert_eq!(rows.len(), permuted.rows());
        for (to, &from) in order.iter().enumerate() {
            let came_from: Vec<usize> = lod.range(0, from).unwrap().collect();
            prop_assert_eq!(&rows[permuted.range(0, to).unwrap()], &came_from[..]);
        }
        let back = moved(&rows, &permuted.reorder_rows(&inverse).unwrap());
        prop_assert_eq!(back, (0..lod.rows()).collect::<Vec<_>>());
        prop_assert_eq!(permuted.reorder(&inverse).unwrap(), lod);
    }

    #[test]
    fn repeating_once_is_the_identity(lod in lods()) {
        let ones = vec![1; lod.sequences()];
        prop_assert_eq!(&lod.repeat(&ones).unwrap(), &lod);
        prop_assert_eq!(lod.repeat_rows(&ones).unwrap(), (0..lod.rows()).collect::<Vec<_>>());
    }

    #[test]
    fn repeating_is_merging_copies(lod in lods(), times in vec(0usize..4, 6)) {
        let times = &times[..lod.sequences()];
        let one = |i: usize| lod.slice(i..i + 1).unwrap();
        let copies: Vec<_> =
            times.iter().enumerate().flat_map(|(i, &n)| std::iter::repeat_n(one(i), n)).collect();
        let repeated = lod.repeat(times).unwrap();
        prop_assert_eq!(lod.repeat_rows(times).unwrap().len(), repeated.rows());
        if copies.is_empty() {
            prop_assert_eq!(repeated, lod.slice(0..0).unwrap());
        } else {
            prop_assert_eq!(repeated, Lod::merge(&copies).unwrap());
        }
    }

    #[test]
    fn appending_and_dropping_a_level_are_inverse(lod in lods(), length in 0usize..3) {
        let deeper = lod.append((0..=lod.rows()).map(|i| i * length).collect()).unwrap();
        prop_assert!(Arc::ptr_eq(deeper.upper().unwrap(), &lod));
        if let Some(upper) = lod.upper() {
            prop_assert_eq!(&upper.append(lod.offsets().to_vec()).unwrap(), &lod);
        }
    }

    #[test]
    fn rows_stay_when_levels_are_flattened(lod in lods()) {
        for k in 0..lod.levels() - 1 {
            let flat = lod.flatten(k).unwrap();
            prop_assert_eq!((flat.levels(), flat.rows()), (lod.levels() - 1, lod.rows()));
            prop_assert_eq!(flat.row_offsets(k).unwrap(), lod.row_offsets(k).unwrap());
        }
        prop_assert!(lod.flatten(lod.levels() - 1).is_err());
    }

    #[test]
    fn ranges_tile_the_rows(lod in lods()) {
        for k in 0..lod.levels() {
            let rows: Vec<usize> = (0..lod.count(k).unwrap()).flat_map(|i| lod.range(k, i).unwrap()).collect();
            prop_assert_eq!(rows, (0..lod.rows()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_rebuilt_lod_is_a_new_one(old in lods(), new in lods()) {
        let mut slot = Some(old);
        let offsets = new.offsets();
        Lod::rebuild(&mut slot, new.upper().cloned(), |to| to.extend_from_slice(offsets)).unwrap();
        prop_assert!(Lod::same(slot.as_ref(), Some(&new)));
    }

    #[test]
    fn each_broken_rule_is_refused(lod in lods(), level: prop::sample::Index, at: prop::sample::Index) {
        let k = level.index(lod.levels());
        let broken = |change: &dyn Fn(&mut Vec<usize>)| {
            let mut levels = lod.to_levels();
            change(&mut levels[k]);
            let read: value::SeqDeserializer<_, value::Error> = levels.clone().into_deserializer();
            (Lod::new(levels).is_err(), Lod::deserialize(read).is_err())
        };
        let refused = (true, true);
        prop_assert_eq!(broken(&|level| level.clear()), refused, "no offset");
        prop_assert_eq!(broken(&|level| level[0] = 1), refused, "a first offset of 1");
        let count = lod.count(k).unwrap();
        if count > 0 {
            let at = at.index(count);
            // The last offset stays right, so that only this rule is broken.
            let decreasing = |level: &mut Vec<usize>| level[at] = level[at + 1] + 1;
            prop_assert_eq!(broken(&decreasing), refused, "a decrease");
        }
        if lod.levels() > 1 {
            // One more sequence of the level below than the level above has entries, or the other way round.
            let longer = |level: &mut Vec<usize>| match k {
                0 => *level.last_mut().unwrap() += usize::from(level.len() > 1),
                _ => level.push(*level.last().unwrap()),
            };
            if k > 0 || count > 0 {
                prop_assert_eq!(broken(&longer), refused, "levels that don't fit");
            }
        }
    }

    #[test]
    fn what_is_read_is_what_was_written(lod in lods()) {
        let read: value::SeqDeserializer<_, value::Error> = lod.to_levels().into_deserializer();
        prop_assert_eq!(&Lod::deserialize(read).unwrap(), &*lod);
    }

    #[test]
    fn any_offsets_at_all_are_taken_or_refused_without_a_panic(levels in vec(vec(any::<usize>(), 0..4), 0..4)) {
        if let Ok(lod) = Lod::new(levels) {
            let _ = (lod.to_string(), lod.row_offsets(0), lod.check_rows(0));
        }
    }
}

#[test]
fn data_and_programs_have_one_bound_of_levels() {
    let net = Builder::new();
    let deep = net.feed("deep", DType::F32, &[1], Lod::MAX_LEVELS);
    let lod = Lod::from_lengths(&vec![vec![1]; Lod::MAX_LEVELS]).unwrap();
    let (registry, out) = (net.registry(), deep.tanh().id());
    let program = net.finish().unwrap();
    let fed = Variable::sequences(ndarray::array![[0f32]], lod.clone()).unwrap();
    let mut executor = Executor::new(&program, &registry, &[out], 1).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    executor.run(&mut scope, &Run::infer(&[(deep.id(), &fed)])).unwrap();
    assert_eq!(executor.fetch(out).unwrap().lod(), Some(&lod));

    let net = Builder::new();
    net.feed("deeper", DType::F32, &[1], Lod::MAX_LEVELS + 1);
    let error = net.finish().unwrap_err().to_string();
    assert!(error.contains("lod_level: expected at most 6 levels, got 7"), "{error}");
    assert!(include_str!("../../README.md").contains("LoD of up to six levels"));
}
