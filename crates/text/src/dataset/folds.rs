//! Cross-validation: divides a data set into folds of about equal sizes; each fold is held out in one training.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;

use super::data_set::{DataSet, Record};

/// The fold of a cross-validation that is held out: `2/5` is the second of five folds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fold {
    number: u64,
    folds: u64,
}

impl Fold {
    /// Maximum number of folds of a cross-validation.
    pub const MOST: u64 = 1_000;

    /// Returns fold `number` of `folds` folds, counted from 1. Returns `None` if `folds` is not from 2 to
    /// [`Self::MOST`], or if `number` is not from 1 to `folds`.
    pub fn new(number: u64, folds: u64) -> Option<Self> {
        ((2..=Self::MOST).contains(&folds) && (1..=folds).contains(&number)).then_some(Self { number, folds })
    }

    /// Returns the number of folds.
    pub fn folds(self) -> u64 {
        self.folds
    }

    /// Parses a fold such as `2/5`; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, folds) = text.split_once('/')?;
        Self::new(number.trim().parse().ok()?, folds.trim().parse().ok()?)
    }
}

impl fmt::Display for Fold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.folds)
    }
}

/// Records that must be in the same fold, since the same content decides their hold-out, such as the text.
struct Group {
    key: u64,
    records: usize,
    /// For each stratum, such as a label, the number of the group's records in the stratum.
    strata: BTreeMap<String, usize>,
}

impl<R: Record> DataSet<R> {
    /// Returns the keys ([`Record::held_out_key`]) of the records in a fold. The folds depend on the seed and on the
    /// records, but not on the order of the records. If [`Self::hold_out`] never separates two records, both are in the
    /// same fold. All folds have about the same number of records, and about the same number of records per label.
    pub fn fold_keys(&self, fold: Fold, seed: u64) -> HashSet<u64> {
        let mut groups: HashMap<u64, Group> = HashMap::new();
        for record in self.records() {
            let key = record.held_out_key(seed);
            let group =
                groups.entry(key).or_insert_with(|| Group { key, records: 0, strata: BTreeMap::new() });
            group.records += 1;
            *group.strata.entry(record.stratum().into_owned()).or_default() += 1;
        }
        dealt(groups.into_values().collect(), fold).into_iter().collect()
    }
}

/// Assigns groups to folds, and returns the keys of the groups in `fold`. A group gets the fold with the smallest share so far of
/// all records with the labels of the group; of several such folds, the fold with the fewest records.
fn dealt(mut groups: Vec<Group>, fold: Fold) -> Vec<u64> {
    // Large groups are assigned first, so that small groups even out the sizes of the folds. Groups of equal size and
    // equal strata are in the pseudorandom order of their keys.
    groups.sort_by(|a, b| {
        b.records.cmp(&a.records).then_with(|| a.strata.cmp(&b.strata)).then(a.key.cmp(&b.key))
    });
    let mut totals: BTreeMap<&str, usize> = BTreeMap::new();
    for (label, count) in groups.iter().flat_map(|group| &group.strata) {
        *totals.entry(label).or_default() += count;
    }
    #[derive(Default, Clone)]
    struct FoldCounts<'a> {
        records: usize,
        strata: HashMap<&'a str, usize>,
    }
    let mut folds = vec![FoldCounts::default(); fold.folds as usize];
    let mut found = Vec::new();
    for group in &groups {
        let share = |counts: &FoldCounts<'_>| -> f64 {
            let shares = group.strata.iter().map(|(label, count)| {
                let inside = counts.strata.get(&**label).copied().unwrap_or(0);
                (count * inside) as f64 / totals.get(&**label).copied().unwrap_or(1) as f64
            });
            shares.sum()
        };
        let fewest = folds.iter().map(|counts| (share(counts), counts.records)).enumerate();
        let fewest = fewest.min_by(|(_, a), (_, b)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let Some((at, _)) = fewest else { continue };
        if let Some(counts) = folds.get_mut(at) {
            counts.records += group.records;
            for (label, count) in &group.strata {
                *counts.strata.entry(label).or_default() += count;
            }
        }
        if at as u64 + 1 == fold.number {
            found.push(group.key);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use crate::{LabelledText, LabelledTexts};

    fn divided(texts: &LabelledTexts, fold: Fold, seed: u64) -> (LabelledTexts, LabelledTexts) {
        let held = texts.fold_keys(fold, seed);
        texts.clone().hold_out_by(Arc::new(move |text| held.contains(&text.held_out_key(seed))))
    }

    fn texts(count: usize) -> LabelledTexts {
        let label = |i: usize| if i.is_multiple_of(5) { "rare" } else { "frequent" };
        // Each text occurs twice in the data set.
        let text = |i: usize| LabelledText::new(format!("text {}", i / 2), label(i / 2));
        LabelledTexts::new("texts", (0..count).map(text).collect::<Vec<_>>())
    }

    fn held(texts: &LabelledTexts, number: u64, seed: u64) -> Vec<String> {
        let (rest, held) = divided(texts, Fold::new(number, 5).unwrap(), seed);
        assert_eq!(rest.records().len() + held.records().len(), texts.records().len());
        let rare = held.records().iter().filter(|text| text.label == "rare").count();
        assert!((7..=9).contains(&rare) && (39..=41).contains(&held.records().len()), "{rare}");
        held.records().iter().map(|text| text.text.clone()).collect()
    }

    #[test]
    fn each_text_is_in_one_fold_and_labels_are_spread() {
        let texts = texts(200);
        let folds: Vec<Vec<String>> = (1..=5).map(|number| held(&texts, number, 3)).collect();
        let all: BTreeSet<&String> = folds.iter().flatten().collect();
        assert_eq!((all.len(), folds.iter().map(Vec::len).sum::<usize>()), (100, 200));
        // The folds depend on the seed, but not on the order of the records.
        let mut records = texts.records().to_vec();
        records.reverse();
        let mut turned = held(&LabelledTexts::new("texts", records), 2, 3);
        turned.reverse();
        assert_eq!(turned, folds[1]);
        assert!(held(&texts, 2, 4) != folds[1]);
    }

    #[test]
    fn texts_of_a_group_are_in_one_fold() {
        // Forty authors have 4, 8 or 12 texts each; a quarter of the texts of every author are rare.
        let mut records = Vec::new();
        for author in 0..40 {
            for i in 0..4 * (author % 3 + 1) {
                let label = if i % 4 == 0 { "rare" } else { "frequent" };
                let mut text = LabelledText::new(format!("text {i} of {author}"), label);
                text.group.0 = Some(format!("author {author}"));
                records.push(text);
            }
        }
        let texts = LabelledTexts::new("texts", records);
        let authors = |fold: &LabelledTexts| -> BTreeSet<Option<String>> {
            fold.records().iter().map(|text| text.group.0.clone()).collect()
        };
        let mut seen = 0;
        for number in 1..=5 {
            let (rest, held) = divided(&texts, Fold::new(number, 5).unwrap(), 7);
            assert!(authors(&rest).is_disjoint(&authors(&held)));
            let rare = held.records().iter().filter(|text| text.label == "rare").count();
            assert!((14..=18).contains(&rare) && (56..=72).contains(&held.records().len()), "{rare}");
            seen += held.records().len();
        }
        assert_eq!(seen, texts.records().len());
        let (rest, held) = texts.hold_out(4, 7);
        assert!(authors(&rest).is_disjoint(&authors(&held)) && !held.records().is_empty());
    }

    #[test]
    fn the_last_fold_is_the_smallest() {
        let texts = texts(8);
        let sizes = (1..=3).map(|number| {
            let fold = Fold::new(number, 3).unwrap();
            divided(&texts, fold, 1).1.records().len()
        });
        assert_eq!(sizes.collect::<Vec<_>>(), [4, 2, 2]);
        assert_eq!(divided(&texts, Fold::new(9, 9).unwrap(), 1).1.records().len(), 0);
    }

    #[test]
    fn folds_are_texts() {
        let fold = Fold::new(2, 5).unwrap();
        assert_eq!((Fold::parse("2/5"), Fold::parse(" 2 / 5")), (Some(fold), Some(fold)));
        assert_eq!(Fold::parse(&fold.to_string()), Some(fold));
        for wrong in ["", "2", "0/5", "6/5", "1/1", "1/1001", "-1/5", "a/b"] {
            assert_eq!(Fold::parse(wrong), None, "{wrong}");
        }
    }
}
