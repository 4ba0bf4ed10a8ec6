//! Tests LoDs by examples: the error message of each rule, ranges, shared levels. The laws of LoDs are tested in
//! `tests/it/lod_laws.rs`.

use serde::Deserialize;

use super::*;

fn refused(levels: &[&[usize]], expected: &str) {
    let error = Lod::new(levels.iter().map(|level| level.to_vec()).collect()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn each_rule_has_its_message() {
    refused(&[], "LoD: expected at least one level, got none");
    refused(&[&[]], "offsets of LoD level 0: expected at least the offset 0, got none");
    refused(&[&[1, 2]], "offsets of LoD level 0: expected to start with 0, got 1");
    refused(
        &[&[0, 3], &[0, 2, 1, 4]],
        "offsets of LoD level 1: expected never to decrease, got 1 after 2 at place 2",
    );
    refused(
        &[&[0, 3], &[0, 2]],
        "offsets of LoD level 1: expected 3 sequences, the last offset of the level above, got 1",
    );
    assert!(Lod::new(vec![vec![0]; Lod::MAX_LEVELS]).is_ok());
    let (expected, deepest) = ("levels of a LoD: expected at most 6, got", vec![vec![1]; Lod::MAX_LEVELS]);
    for levels in [7, 9] {
        let refused = Lod::new(vec![vec![0]; levels]).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{expected} {levels}")), "{refused}");
        let refused = Lod::from_lengths(&vec![vec![1]; levels]).unwrap_err().to_string();
        assert!(refused.starts_with(&format!("{expected} {levels}")), "{refused}");
    }
    let refused = Lod::from_lengths(&deepest).unwrap().append(vec![0, 2]).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("{expected} 7")), "{refused}");
}

#[test]
fn sizes_from_outside_are_errors() {
    assert!(Lod::from_lengths1(&[usize::MAX, 1]).is_err());
    assert!(Lod::from_row_ids(&[], usize::MAX).is_err());
    let claims = Lod::new(vec![vec![0, usize::MAX]]).unwrap();
    assert!(claims.row_ids().is_err());
    assert!(claims.check_rows(3).is_err());
    assert!(claims.level(1).is_err());
}

#[test]
fn counts_and_ranges() {
    let lod = Lod::from_lengths(&[vec![2, 0], vec![1, 3]]).unwrap();
    assert_eq!((0..3).map(|k| lod.count(k).unwrap()).collect::<Vec<_>>(), [2, 2, 4]);
    assert_eq!(lod.range(0, 0).unwrap(), 0..4);
    assert_eq!(lod.range(0, 1).unwrap(), 4..4);
    assert_eq!(lod.range(1, 1).unwrap(), 1..4);
    assert_eq!(lod.row_offsets(0).unwrap(), [0, 4, 4]);
    assert_eq!(lod.lengths(1).unwrap().collect::<Vec<_>>(), [1, 3]);
    let level = |k: usize| lod.level(k).map(<[usize]>::to_vec).map_err(|e| e.to_string());
    assert_eq!((level(0), level(1)), (Ok(vec![0, 2, 2]), Ok(vec![0, 1, 4])));
    for k in [2, 3, usize::MAX] {
        let expected = format!("LoD level: expected 0 to 1, got {k}");
        assert_eq!(level(k), Err(expected.clone()));
        assert_eq!(lod.lengths(k).map(drop).unwrap_err().to_string(), expected);
        assert_eq!(lod.row_offsets(k).unwrap_err().to_string(), expected);
        assert_eq!(lod.range(k, 0).unwrap_err().to_string(), expected);
        assert_eq!(lod.count(k).is_err(), k > 2);
    }
    let message = lod.range(0, 2).unwrap_err().to_string();
    assert_eq!(message, "sequence of LoD level 0: expected a number below 2, got 2");
    assert_eq!(format!("{lod:?}"), "Lod([[0, 2, 2], [0, 1, 4]])");
    assert_eq!(format!("{lod:.1}"), "[[2, … 1 more], [1, … 1 more]]");
    assert_eq!(Lod::new(vec![vec![0]]).unwrap().to_string(), "[[]]");
}

#[test]
fn the_first_difference_and_where_it_lies() {
    let built = |lengths: [&[usize]; 2]| Lod::from_lengths(&lengths.map(<[usize]>::to_vec)).unwrap();
    let lod = built([&[2, 0, 1], &[1, 3, 2]]);
    assert_eq!(lod.first_difference(&lod), None);
    assert_eq!(lod.first_difference(&built([&[2, 0, 1], &[1, 3, 4]])), Some((1, 2, [2, 4])));
    assert_eq!(lod.first_difference(&built([&[2, 1, 0], &[1, 3, 2]])), Some((0, 1, [0, 1])));
    let tops = |k: usize, n: usize| (0..n).map(|i| lod.top_of(k, i)).collect::<Vec<_>>();
    assert_eq!((tops(0, 3), tops(1, 3), tops(2, 6)), (vec![0, 1, 2], vec![0, 0, 2], vec![0, 0, 0, 0, 2, 2]));
}

#[test]
fn dropping_a_level_gives_the_same_arc() {
    let top = Lod::from_lengths1(&[2, 1]).unwrap();
    let lod = top.append(vec![0, 1, 2, 5]).unwrap();
    assert!(Arc::ptr_eq(lod.upper().unwrap(), &top));
    assert!(top.upper().is_none());
}

#[test]
fn rebuilding_reuses_what_is_not_shared() {
    let mut slot = Some(Lod::from_lengths1(&[1, 2, 3]).unwrap());
    let before = (Arc::as_ptr(slot.as_ref().unwrap()), slot.as_ref().unwrap().offsets().as_ptr());
    Lod::rebuild(&mut slot, None, |offsets| offsets.extend([0, 4, 4])).unwrap();
    let after = slot.clone().unwrap();
    assert_eq!((Arc::as_ptr(&after), after.offsets().as_ptr()), before);
    assert_eq!(after.to_string(), "[[4, 0]]");
    Lod::rebuild(&mut slot, None, |offsets| offsets.extend([0, 5])).unwrap();
    assert_eq!(after.to_string(), "[[4, 0]]", "a shared LoD never changes");
    assert!(Lod::rebuild(&mut slot, None, |offsets| offsets.push(1)).is_err());
    assert!(slot.is_none());
}

#[test]
fn what_is_read_is_checked() {
    use serde::de::{IntoDeserializer, value::Error};
    let read = |levels: Vec<Vec<usize>>| {
        let source: serde::de::value::SeqDeserializer<_, Error> = levels.into_deserializer();
        Lod::deserialize(source)
    };
    assert_eq!(read(vec![vec![0, 1], vec![0, 7]]).unwrap().rows(), 7);
    assert!(read(vec![vec![0, 2], vec![0, 7]]).is_err());
}
