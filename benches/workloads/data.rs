//! The data of the workloads: the peers' files from `UNPADDED_BENCH_DATA`, or numbers of the same distributions.
use ndarray::Array1;
use unpadded::{Variable, kernels};

use crate::Outcome;

/// The values of a batch, in the order of the model's feeds, and its tokens.
pub(crate) type Batch = (Vec<Variable>, usize);

/// Numbers for one stream of draws.
struct Draws(u32, u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 += 1;
        kernels::random::uniform01::<f64>(self.1, [self.0, 0, 0, 0])
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.uniform()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// A length: lognormal, rounded, between bounds.
    fn length(&mut self, median: f64, sigma: f64, bounds: (f64, f64)) -> usize {
        (median * (sigma * self.normal()).exp()).round().clamp(bounds.0, bounds.1) as usize
    }
}

/// Ids by Zipf's law with exponent 1.1: its cumulative weights.
fn zipf(vocabulary: usize) -> Vec<f64> {
    let weight = |sum: &mut f64, rank: usize| {
        *sum += (rank as f64).powf(-1.1);
        Some(*sum)
    };
    (1..=vocabulary).scan(0.0, weight).collect()
}

fn ids(draws: &mut Draws, cumulative: &[f64], length: usize) -> Vec<i64> {
    let sum = cumulative[cumulative.len() - 1];
    let id = |u: f64| cumulative.partition_point(|&c| c < u * sum).min(cumulative.len() - 1) as i64;
    (0..length).map(|_| id(draws.uniform())).collect()
}

/// Sentences with lengths as in the Penn Treebank or in ATIS, or by Zipf's law.
pub(crate) fn sentences_of(lengths: &str, vocabulary: usize, count: usize) -> Vec<Vec<i64>> {
    let (mut draws, cumulative, by_rank) = (Draws(0, 11), zipf(vocabulary), zipf(400));
    let length = |draws: &mut Draws| match lengths {
        "ptb" => draws.length(20.0, 0.5, (2.0, 80.0)),
        "atis" => draws.length(11.0, 0.35, (2.0, 46.0)),
        _ => 1 + by_rank.partition_point(|&c| c < draws.uniform() * by_rank[by_rank.len() - 1]),
    };
    (0..count)
        .map(|_| {
            let length = length(&mut draws);
            ids(&mut draws, &cumulative, length)
        })
        .collect()
}

fn file(folder: &str, name: &str) -> Outcome<String> {
    let path = format!("{folder}/{name}");
    std::fs::read_to_string(&path).map_err(|e| format!("{path}: {e}").into())
}

fn numbers(line: &str) -> Outcome<Vec<i64>> {
    let number = |word: &str| word.parse().map_err(|_| format!("expected a number, got `{word}`").into());
    line.split_whitespace().map(number).collect()
}

/// The sequences of one file with the classes of another.
fn labelled(folder: &str, texts: &str, classes: &str) -> Outcome<Vec<(Vec<i64>, i64)>> {
    let (texts, classes) = (file(folder, texts)?, file(folder, classes)?);
    let example = |(line, label): (&str, &str)| Ok((numbers(line)?, label.trim().parse()?));
    texts.lines().zip(classes.lines()).map(example).collect()
}

/// The sum over the tokens of a random weight each decides the class, so that a loss can fall.
fn class(draws: &[f64], ids: &[i64], classes: i64) -> i64 {
    let score: f64 =
        ids.iter().map(|&i| draws[i as usize] - 0.5).sum::<f64>() / (ids.len() as f64 / 12.0).sqrt();
    (((score / 4.0).tanh() + 1.0) / 2.0 * classes as f64).floor().clamp(0.0, classes as f64 - 1.0) as i64
}

fn labels(values: impl Iterator<Item = i64>) -> Variable {
    Variable::dense(values.collect::<Array1<i64>>())
}

fn batched(examples: Vec<(Vec<i64>, i64)>, batch: usize) -> Outcome<Vec<Batch>> {
    let make = |part: &[(Vec<i64>, i64)]| {
        let ids: Vec<Vec<i64>> = part.iter().map(|e| e.0.clone()).collect();
        let tokens = ids.iter().map(Vec::len).sum();
        Ok((vec![Variable::from_sequences(&ids)?, labels(part.iter().map(|e| e.1))], tokens))
    };
    examples.chunks(batch).map(make).collect()
}

/// W1 and W7: 2,048 sequences of 5 to 600 tokens (median 120) with two classes, batches of 64.
pub(crate) fn classify() -> Outcome<Vec<Batch>> {
    let examples = match std::env::var("UNPADDED_BENCH_DATA") {
        Ok(folder) => labelled(&folder, "w1.txt", "w1.label")?,
        Err(_) => {
            let (mut draws, zipf) = (Draws(0, 101), zipf(30_000));
            let weights: Vec<f64> = (0..zipf.len()).map(|_| draws.uniform()).collect();
            let mut example = || {
                let length = draws.length(120.0, 0.7, (5.0, 600.0));
                let ids = ids(&mut draws, &zipf, length);
                let label = class(&weights, &ids, 2);
                (ids, label)
            };
            (0..2048).map(|_| example()).collect()
        }
    };
    batched(examples, 64)
}

/// W3: 6,400 bags of 1 to 500 ids (median 80) of a table of `size` rows, two classes; batches of 64.
pub(crate) fn wide(size: usize) -> Outcome<Vec<Batch>> {
    let examples = match std::env::var("UNPADDED_BENCH_DATA") {
        Ok(folder) => labelled(&folder, &format!("w3_{size}.txt"), "w3.label")?,
        Err(_) => {
            let mut draws = Draws(0, 103);
            // Zipf's law between whole numbers, since its weights would take more memory than what is measured. A rank may lie
            // anywhere in the table.
            let whole = 1.0 - (size as f64).powf(-0.1);
            let id = |draws: &mut Draws| {
                let rank = (1.0 - draws.uniform() * whole).powi(-10) as usize;
                (rank.saturating_mul(7919) + 12345) as i64 % size as i64
            };
            let mut example = || {
                let length = draws.length(80.0, 0.8, (1.0, 500.0));
                let ids: Vec<i64> = (0..length).map(|_| id(&mut draws)).collect();
                let label = i64::from(ids.iter().map(|id| id % 7 - 3).sum::<i64>() > 0);
                (ids, label)
            };
            (0..6400).map(|_| example()).collect()
        }
    };
    batched(examples, 64)
}

/// Sequences of given lengths, one batch.
pub(crate) fn of_lengths(lengths: &[usize]) -> Outcome<Batch> {
    let (mut draws, zipf) = (Draws(0, 7), zipf(30_000));
    let example = |&length: &usize| (ids(&mut draws, &zipf, length), (length % 2) as i64);
    let examples: Vec<_> = lengths.iter().map(example).collect();
    batched(examples, lengths.len())?.pop().ok_or_else(|| "expected lengths, got none".into())
}

/// W2 and W2wide: 2,000 sentences of 3 to 80 tokens (mean 21); the model predicts each token from the previous tokens. If
/// `bucketed`, a batch has sentences of about one length, and the batches are in random order.
pub(crate) fn sentences(batch: usize, bucketed: bool) -> Outcome<Vec<Batch>> {
    let mut sentences = match std::env::var("UNPADDED_BENCH_DATA") {
        Ok(folder) => file(&folder, "w2.txt")?.lines().map(numbers).collect::<Outcome<Vec<_>>>()?,
        Err(_) => {
            let (mut draws, zipf) = (Draws(0, 102), zipf(10_000));
            let mut sentence = || {
                let length = draws.length(18.05, 0.55, (3.0, 80.0));
                ids(&mut draws, &zipf, length)
            };
            (0..2000).map(|_| sentence()).collect()
        }
    };
    let make = |part: &[Vec<i64>]| {
        let before: Vec<Vec<i64>> = part.iter().map(|s| s[..s.len().saturating_sub(1)].to_vec()).collect();
        let after: Vec<i64> = part.iter().flat_map(|s| s.iter().skip(1).copied()).collect();
        let x = Variable::from_sequences(&before)?;
        let y = Variable::dense(Array1::from_vec(after)).with_lod(x.lod().cloned())?;
        let tokens = x.rows();
        Ok((vec![x, y], tokens))
    };
    if bucketed {
        sentences.sort_by_key(Vec::len);
    }
    let (mut draws, mut parts) = (Draws(0, 106), sentences.chunks(batch).collect::<Vec<_>>());
    parts.sort_by_cached_key(|_| if bucketed { (draws.uniform() * 1e15) as u64 } else { 0 });
    parts.into_iter().map(make).collect()
}

/// W4: 512 documents of 3 to 20 sentences of 4 to 40 words, five classes; batches of 32 documents.
pub(crate) fn documents() -> Outcome<Vec<Batch>> {
    type Document = Vec<Vec<i64>>;
    let documents: Vec<(Document, i64)> = match std::env::var("UNPADDED_BENCH_DATA") {
        Ok(folder) => {
            let (text, classes) = (file(&folder, "w4.txt")?, file(&folder, "w4.label")?);
            let document = |(line, label): (&str, &str)| {
                Ok((line.split('|').map(numbers).collect::<Outcome<_>>()?, label.trim().parse()?))
            };
            text.lines().zip(classes.lines()).map(document).collect::<Outcome<_>>()?
        }
        Err(_) => {
            let (mut draws, zipf) = (Draws(0, 104), zipf(30_000));
            let weights: Vec<f64> = (0..zipf.len()).map(|_| draws.uniform()).collect();
            let mut document = || {
                let sentences = 3 + (draws.uniform() * 18.0) as usize;
                let mut sentence = || {
                    let length = 4 + (draws.uniform() * 37.0) as usize;
                    ids(&mut draws, &zipf, length)
                };
                let document: Document = (0..sentences).map(|_| sentence()).collect();
                let label = class(&weights, &document.concat(), 5);
                (document, label)
            };
            (0..512).map(|_| document()).collect()
        }
    };
    let make = |part: &[(Document, i64)]| {
        let nested: Vec<Document> = part.iter().map(|d| d.0.clone()).collect();
        let x = Variable::from_nested(&nested)?;
        let tokens = x.rows();
        Ok((vec![x, labels(part.iter().map(|d| d.1))], tokens))
    };
    documents.chunks(32).map(make).collect()
}

/// W5: 1,024 pairs of a source of 3 to 60 tokens (mean 20) and a target about as long, which begins with 1 and ends with 2; the
/// model predicts each token of the target from the previous tokens. Batches of 32; the tokens are the target's.
pub(crate) fn pairs() -> Outcome<Vec<Batch>> {
    let pairs: Vec<(Vec<i64>, Vec<i64>)> = match std::env::var("UNPADDED_BENCH_DATA") {
        Ok(folder) => {
            let (sources, targets) = (file(&folder, "w5.src")?, file(&folder, "w5.tgt")?);
            let pair = |(source, target)| Ok((numbers(source)?, numbers(target)?));
            sources.lines().zip(targets.lines()).map(pair).collect::<Outcome<_>>()?
        }
        Err(_) => {
            let (mut draws, zipf) = (Draws(0, 105), zipf(7_997));
            let mut pair = || {
                let length = draws.length(17.65, 0.5, (3.0, 60.0));
                let of_target = (length as f64 * (1.0 + 0.15 * draws.normal())).round().clamp(3.0, 60.0);
                let mut text = |length| ids(&mut draws, &zipf, length).into_iter().map(|id| id + 3);
                let source = text(length).collect();
                let target = std::iter::once(1).chain(text(of_target as usize - 1)).chain([2]).collect();
                (source, target)
            };
            (0..1024).map(|_| pair()).collect()
        }
    };
    let make = |part: &[(Vec<i64>, Vec<i64>)]| {
        let sources: Vec<Vec<i64>> = part.iter().map(|pair| pair.0.clone()).collect();
        let before: Vec<Vec<i64>> =
            part.iter().map(|(_, target)| target[..target.len().saturating_sub(1)].to_vec()).collect();
        let after: Vec<i64> = part.iter().flat_map(|(_, target)| target.iter().skip(1).copied()).collect();
        let x = Variable::from_sequences(&before)?;
        let y = Variable::dense(Array1::from_vec(after)).with_lod(x.lod().cloned())?;
        let tokens = x.rows();
        Ok((vec![Variable::from_sequences(&sources)?, x, y], tokens))
    };
    pairs.chunks(32).map(make).collect()
}
