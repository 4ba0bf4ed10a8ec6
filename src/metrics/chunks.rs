//! Chunk F1: predicted chunks against reference chunks, as in the evaluation of the CoNLL shared tasks.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::classes::ratio;
use super::{Better, Metric, RunningMetric, Unit, one_a_row};
use crate::data::{Chunk, TagScheme, Vocabulary};
use crate::error::{AtCaller, Error, Result};
use crate::operator::Attributes;
use crate::program::Var;
use crate::tensor::{DType, Variable};

/// F1 of chunks: 2 · right / (found + there), where right, found and there are the numbers of right, predicted and reference
/// chunks of all kinds together. A predicted chunk is right if a reference chunk has the same first word, last word and kind
/// (Tjong Kim Sang and Buchholz, 2000). F1 is 0 if there are neither predicted nor reference chunks.
///
/// ```
/// use unpadded::data::{TagScheme, Vocabulary};
/// use unpadded::metrics::{ChunkF1, RunningMetric};
/// use unpadded::{Builder, DType, Variable};
/// let tags = Vocabulary::labels(["O", "B-A", "I-A", "B-B"])?; // B-A 0, B-B 1, I-A 2, O 3
/// let net = Builder::new();
/// let found = net.feed("found", DType::I64, &[], 1);
/// let there = net.feed_like("there", DType::I64, &[], found);
/// let mut f1 = RunningMetric::new(ChunkF1::new(found, there, TagScheme::Iob2, &tags)?)?;
/// let sequences = |ids: &[i64]| Variable::from_sequences(&[ids.to_vec(), vec![]]);
/// f1.update(&[sequences(&[0, 2, 3, 1])?, sequences(&[0, 2, 1, 1])?], 2)?; // A right, one B of two
/// assert_eq!(f1.value(), 2.0 * 2.0 / (2.0 + 3.0));
/// assert_eq!((f1.precision(), f1.recall()), (1.0, 2.0 / 3.0));
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ChunkF1 {
    name: String,
    found: Var,
    there: Var,
    scheme: TagScheme,
    tags: Arc<[String]>,
    kinds: Arc<[String]>,
}

/// The name of chunk F1 in files, and the names of its options.
pub(super) const CHUNKS: &str = "chunk_f1";
pub(super) const SCHEME: &str = "scheme";
pub(super) const TAGS: &str = "tags";

impl ChunkF1 {
    /// Makes chunk F1 of the predicted tags `found` against the reference tags `there`. Both variables hold ids of the
    /// vocabulary `tags`, and have the same LoD.
    ///
    /// # Errors
    /// If a tag does not have the form that the scheme requires.
    #[track_caller]
    pub fn new(found: Var, there: Var, scheme: TagScheme, tags: &Vocabulary) -> Result<Self> {
        Self::of(found, there, scheme, tags.tokens().map(str::to_owned).collect())
    }

    #[track_caller]
    pub(super) fn of(found: Var, there: Var, scheme: TagScheme, tags: Vec<String>) -> Result<Self> {
        let mut kinds = BTreeSet::new();
        for tag in &tags {
            kinds.extend(scheme.kind(tag)?.map(str::to_owned));
        }
        let (name, kinds) = ("chunk F1".to_owned(), kinds.into_iter().collect());
        Ok(Self { name, found, there, scheme, tags: tags.into(), kinds })
    }

    options_of_metric! { "`chunk F1`" }
}

impl RunningMetric<ChunkF1> {
    /// Precision: the share of the predicted chunks that are right; 0 without predicted chunks.
    pub fn precision(&self) -> f64 {
        let [right, found, _] = total(&self.sums);
        ratio(right, found)
    }

    /// Recall: the share of the reference chunks that were predicted; 0 without reference chunks.
    pub fn recall(&self) -> f64 {
        let [right, _, there] = total(&self.sums);
        ratio(right, there)
    }
}

fn total(sums: &[f64]) -> [f64; 3] {
    let add = |total: [f64; 3], counts: &[f64]| [0, 1, 2].map(|i| total[i] + counts[i]);
    sums.chunks_exact(3).fold([0.0; 3], add)
}

impl Metric for ChunkF1 {
    // For each kind of chunk, the numbers of right, predicted and reference chunks.
    fields_of_metric! { Higher, Share, [found, there], |of| 3 * of.kinds.len() }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let wrong =
            |expected: &str, got: String| Error::new(format!("metric `{}`", self.name), expected, got);
        let [found, there] = values else {
            return Err(wrong("predicted tags and reference tags", format!("{} values", values.len())));
        };
        let (Some(lod), true) = (there.lod(), found.lod() == there.lod() && found.rows() == there.rows())
        else {
            let shown = |tags: &Variable| tags.lod().map_or_else(|| "none".to_owned(), |lod| lod.to_string());
            return Err(wrong(
                "tags in the same sequences",
                format!("LoD {} and {}", shown(found), shown(there)),
            ));
        };
        let (tags, scheme) = (Arc::clone(&self.tags), self.scheme);
        let named =
            |ids| named(&self.name, ids, &tags).map_err(|e| e.noted(format!("in metric `{}`", self.name)));
        let (found, there) = (named(found)?, named(there)?);
        for words in lod.offsets().windows(2).map(|pair| pair[0]..pair[1]) {
            for (kind, counts) in counted(scheme, ChunkRule::Lenient, &found[words.clone()], &there[words])? {
                let index = self.kinds.binary_search_by(|known| known.as_str().cmp(kind)).ok();
                let sums = index.and_then(|kind| sums.get_mut(3 * kind..3 * kind + 3));
                sums.into_iter().flatten().zip(counts).for_each(|(sum, count)| *sum += count);
            }
        }
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        let [right, found, there] = total(sums);
        ratio(2.0 * right, found + there)
    }

    /// Returns a line for each kind of chunk and for all kinds together: precision, recall and F1 in percent, and the number of
    /// reference chunks.
    fn table(&self, sums: &[f64]) -> Option<String> {
        let width = self.kinds.iter().map(|kind| kind.chars().count()).max().unwrap_or(0).max(3);
        let line = |name: &str, [right, found, there]: [f64; 3]| {
            let shares = [ratio(right, found), ratio(right, there), ratio(2.0 * right, found + there)];
            let [precision, recall, f1] = shares.map(|share| 100.0 * share);
            format!("{name:width$}  {precision:9.2}  {recall:6.2}  {f1:6.2}  {there:6}\n")
        };
        let of_kinds = self.kinds.iter().zip(sums.as_chunks().0).map(|(kind, &sums)| line(kind, sums));
        let head = format!("{:width$}  precision  recall      F1  chunks\n", "");
        Some([head].into_iter().chain(of_kinds).chain([line("all", total(sums))]).collect())
    }

    fn kind(&self) -> Option<&'static str> {
        Some(CHUNKS)
    }

    fn attributes(&self) -> Attributes {
        Attributes::new().with(SCHEME, self.scheme.name()).with(TAGS, self.tags.to_vec())
    }
}

/// The rule by which a sequence of tags is divided into chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChunkRule {
    /// The rule of the script conlleval: a chunk also begins at an inside tag (`I`) that follows `O` or a tag of another kind.
    Lenient,
    /// The strict rule: a chunk must begin and end with the tags that the scheme requires.
    Strict,
}

/// Returns the predicted chunks of a sentence, then its reference chunks. Each chunk has its kind and three counts, 0 or 1:
/// for right chunks, for predicted chunks and for reference chunks.
///
/// # Errors
/// If a tag does not have the form that the scheme requires.
#[track_caller]
pub fn counted<'a>(
    scheme: TagScheme,
    spans: ChunkRule,
    found: &[&'a str],
    there: &[&'a str],
) -> Result<Vec<(&'a str, [f64; 3])>> {
    counted_by(scheme, spans, found, there).at_caller()
}

fn counted_by<'a>(
    scheme: TagScheme,
    spans: ChunkRule,
    found: &[&'a str],
    there: &[&'a str],
) -> Result<Vec<(&'a str, [f64; 3])>> {
    let chunks = |tags: &[&'a str]| match spans {
        ChunkRule::Lenient => scheme.chunks(tags),
        ChunkRule::Strict => scheme.strict_chunks(tags),
    };
    let (found, there) = (chunks(found)?, chunks(there)?);
    let known: HashSet<&Chunk<'_>> = there.iter().collect();
    let right = |chunk: &Chunk<'_>| f64::from(u8::from(known.contains(chunk)));
    let of_found = found.iter().map(|chunk| (chunk.kind, [right(chunk), 1.0, 0.0]));
    Ok(of_found.chain(there.iter().map(|chunk| (chunk.kind, [0.0, 0.0, 1.0]))).collect())
}

/// Returns the tag for the id in each row.
fn named<'a>(metric: &str, ids: &Variable, tags: &'a [String]) -> Result<Vec<&'a str>> {
    one_a_row(metric, ids)?;
    if ids.dtype().is_float() {
        return Err(Error::new("tags", "whole numbers", ids.dtype().to_string()));
    }
    let ids = ids.storage().as_dense()?.cast(DType::I64);
    let tag_name = |(row, &id): (usize, &i64)| {
        let tag = usize::try_from(id).ok().and_then(|id| tags.get(id)).map(String::as_str);
        tag.ok_or_else(|| Error::new("tag", format!("0 to below {}", tags.len()), id.to_string()).row(row))
    };
    ids.as_slice::<i64>()?.iter().enumerate().map(tag_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Builder, DType};

    fn scored(scheme: TagScheme, found: &[&str], there: &[&str]) -> RunningMetric<ChunkF1> {
        let tags = Vocabulary::labels(found.iter().chain(there).flat_map(|tags| tags.split(' '))).unwrap();
        let ids = |texts: &[&str]| {
            let ids: Vec<Vec<i64>> = texts.iter().map(|text| tags.ids(text.split(' ')).unwrap()).collect();
            Variable::from_sequences(&ids).unwrap()
        };
        let net = Builder::new();
        let [a, b] = ["found", "there"].map(|name| net.feed(name, DType::I64, &[], 1));
        let mut f1 = RunningMetric::new(ChunkF1::new(a, b, scheme, &tags).unwrap()).unwrap();
        f1.update(&[ids(found), ids(there)], found.len()).unwrap();
        f1
    }

    /// The expected numbers are the results of `conlleval`, computed by hand from the rules of the script.
    #[test]
    fn values_are_those_of_the_conll_evaluation() {
        let f1 =
            scored(TagScheme::Iob2, &["B-NP I-NP O B-VP", "B-NP B-NP"], &["B-NP I-NP O B-NP", "B-NP I-NP"]);
        assert_eq!((f1.precision(), f1.recall(), f1.value()), (0.25, 1.0 / 3.0, 2.0 / 7.0));
        let table = f1.table().unwrap();
        let lines: Vec<&str> = table.lines().map(str::trim_end).collect();
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["NP", "33.33", "33.33", "33.33", "3"]);
        assert_eq!(lines[2].split_whitespace().collect::<Vec<_>>(), ["VP", "0.00", "0.00", "0.00", "0"]);
        assert_eq!(lines[3].split_whitespace().collect::<Vec<_>>(), ["all", "25.00", "33.33", "28.57", "3"]);
        // The tag `I-A` after `O` begins a chunk, so the predicted chunk is right.
        assert_eq!(scored(TagScheme::Iob2, &["O I-A I-A"], &["O B-A I-A"]).value(), 1.0);
        // In the next two cases, some predicted chunks are too short, or have another kind than the reference chunks.
        assert_eq!(scored(TagScheme::Iob1, &["I-A I-A B-A"], &["I-A I-A I-A"]).value(), 0.0);
        assert_eq!(scored(TagScheme::Iobes, &["S-A B-B E-B"], &["S-A B-A E-A"]).value(), 0.5);
        assert_eq!(scored(TagScheme::Plain, &["A A O"], &["A A O"]).value(), 1.0);
        assert_eq!(scored(TagScheme::Iob2, &["O O"], &["O O"]).value(), 0.0);
    }

    #[test]
    fn what_does_not_fit_is_refused_and_counts_nothing() {
        let mut f1 = scored(TagScheme::Iob2, &["O B-A"], &["O B-A"]);
        let before = f1.value();
        let ids = |ids: &[i64]| Variable::from_sequences(&[ids.to_vec()]).unwrap();
        for (values, expected) in [
            (vec![ids(&[0]), ids(&[0, 1])], "tags in the same sequences"),
            (vec![ids(&[0])], "predicted tags and reference tags"),
            (vec![ids(&[0, 2]), ids(&[0, 1])], "0 to below 2"),
            (vec![ids(&[0, 1]), ids(&[0, -1])], "0 to below 2"),
        ] {
            let error = format!("{:#}", f1.update(&values, 1).unwrap_err());
            assert!(error.contains(expected) && error.contains("chunk F1"), "{error}");
            assert_eq!(f1.value(), before);
        }
    }
}
