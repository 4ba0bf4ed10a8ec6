//! Bootstrap resampling of counts per text: confidence intervals, and the paired test of two models.

use unpadded::metrics::{Metric, ratio};
use unpadded::op::philox;

/// Maximum number of groups that are resampled; with more texts, a group consists of several texts.
const GROUPS: u64 = 10_000;
const RESAMPLES: u32 = 1_000;
const SEED: u32 = 41;
/// With more sums, a metric gets no interval, since each sum is resampled.
const MOST_SUMS: usize = 200;

/// With fewer texts, the bootstrap interval of a share is too short: with 30, it contains the true accuracy in 89.7 % of all samples.
const FEW: f64 = 100.0;
const NORMAL: f64 = 1.959_963_984_540_054;

/// How a figure, such as accuracy, is computed from the summed counts; the counts are indexed by column.
#[derive(Debug, Clone, Copy)]
pub(super) enum FigureFn {
    /// A share of texts: the column of the hits and the column of all texts; a text adds 0 or 1 to either column.
    Share(usize, usize),
    /// Any other figure; NaN if the figure is undefined for these counts.
    Of(fn(&[f64]) -> f64),
}

/// A number that is computed from summed counts: a figure, or a metric, whose sums are the columns.
pub(super) trait OfSums {
    fn value(&self, sums: &[f64]) -> f64;

    /// Returns the columns of the hits and of all texts; `None` unless the number is a share of texts.
    fn share(&self) -> Option<(usize, usize)> {
        None
    }
}

impl OfSums for FigureFn {
    fn value(&self, sums: &[f64]) -> f64 {
        match *self {
            Self::Share(hits, texts) => ratio(sums[hits], sums[texts]),
            Self::Of(figure) => figure(sums),
        }
    }

    fn share(&self) -> Option<(usize, usize)> {
        if let Self::Share(hits, texts) = *self { Some((hits, texts)) } else { None }
    }
}

impl OfSums for &dyn Metric {
    fn value(&self, sums: &[f64]) -> f64 {
        Metric::value(*self, sums)
    }
}

/// Returns the 95 % score interval of a share (Wilson, 1927); `None` without texts.
fn wilson(hits: f64, texts: f64) -> Option<[f64; 2]> {
    let (share, z) = (hits / texts, NORMAL * NORMAL / texts);
    let middle = (share + z / 2.0) / (1.0 + z);
    let half = (z * (share * (1.0 - share) + z / 4.0)).sqrt() / (1.0 + z);
    (texts > 0.0).then(|| [(middle - half).max(0.0), (middle + half).min(1.0)])
}

/// The counts of each text, in columns. After 10,000 texts, which bounds the memory, each text is added to one of their groups by a
/// hash of its index, so that models on the same texts have equal groups.
#[derive(Debug, Clone, Default)]
pub(super) struct Bootstrap {
    groups: Vec<Vec<f64>>,
    pub(super) texts: u64,
}

impl Bootstrap {
    pub(super) fn add(&mut self, counts: impl IntoIterator<Item = (usize, f64)>) {
        let group = match self.texts < GROUPS {
            true => self.texts,
            // The group is random: if equal texts recur periodically, taking turns would put them into one group.
            false => {
                let [word, ..] = philox([self.texts as u32, (self.texts >> 32) as u32, 0, 1], [SEED, 0]);
                (u64::from(word) * GROUPS) >> 32
            }
        } as usize;
        self.texts += 1;
        if self.groups.len() <= group {
            self.groups.resize_with(group + 1, Vec::new);
        }
        let Some(sums) = self.groups.get_mut(group) else { return };
        for (column, count) in counts {
            if sums.len() <= column {
                sums.resize(column + 1, 0.0);
            }
            sums[column] += count;
        }
    }

    /// Returns the value and the 95 % interval of a metric whose sums are the counts. With many sums, there is no interval.
    pub(super) fn of_metric(&self, metric: &dyn Metric) -> (f64, Option<[f64; 2]>) {
        let columns = metric.sums();
        let is_hit = |sums: &Vec<f64>| *sums == [0.0, 1.0] || *sums == [1.0, 1.0];
        let is_ratio = |interval: &[f64; 2]| metric.value(interval) == ratio(interval[0], interval[1]);
        let is_share = columns == 2
            && self.groups.iter().all(is_hit)
            && [[0.0, 1.0], [1.0, 1.0], [1.0, 2.0]].iter().all(is_ratio);
        let intervals = match is_share {
            true => self.intervals(columns, &[FigureFn::Share(0, 1)]),
            false if columns <= MOST_SUMS => self.intervals(columns, &[metric]),
            false => Vec::new(),
        };
        (metric.value(&self.total(columns)), intervals.first().copied().flatten())
    }

    fn width(&self) -> usize {
        self.groups.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Returns the sum of each column over all texts, for at least `columns` columns.
    pub(super) fn total(&self, columns: usize) -> Vec<f64> {
        let mut total = vec![0.0; self.width().max(columns)];
        self.groups.iter().for_each(|group| add(&mut total, group));
        total
    }

    /// Returns the 95 % interval of each figure; `None` for fewer than two texts or an undefined figure: Wilson's for a share of few
    /// texts, else percentiles over samples drawn with replacement (Efron, 1979), in any order of up to 10,000 texts.
    pub(super) fn intervals<F: OfSums>(&self, columns: usize, figures: &[F]) -> Vec<Option<[f64; 2]>> {
        if self.groups.len() < 2 {
            return vec![None; figures.len()];
        }
        let mut order: Vec<&[f64]> = self.groups.iter().map(Vec::as_slice).collect();
        order.sort_by(|a, b| compared(a, b));
        let mut values = vec![Vec::with_capacity(RESAMPLES as usize); figures.len()];
        let mut sums = vec![0.0; self.width().max(columns)];
        for resample in 0..RESAMPLES {
            sums.fill(0.0);
            drawn(resample, &order, |group| add(&mut sums, group));
            values.iter_mut().zip(figures).for_each(|(values, figure)| values.push(figure.value(&sums)));
        }
        let percentiles = |mut values: Vec<f64>| {
            values.retain(|value| !value.is_nan());
            values.sort_by(f64::total_cmp);
            let index = |share: f64| ((share * values.len() as f64) as usize).saturating_sub(1);
            Some([*values.get(index(0.025))?, *values.get(index(0.975))?])
        };
        let total = self.total(columns);
        let interval = |(values, figure): (Vec<f64>, &F)| match figure.share() {
            Some((hits, texts)) if total[texts] < FEW => wilson(total[hits], total[texts]),
            _ => percentiles(values),
        };
        values.into_iter().zip(figures).map(interval).collect()
    }

    /// Returns the two-sided p value of sacreBLEU's paired bootstrap test (Riezler and Maxwell, 2005): the share of samples whose
    /// difference is as far from their mean as the observed one from 0. `None` for other or fewer than two texts, or if undefined.
    pub(super) fn paired(&self, other: &Self, columns: usize, figure: FigureFn) -> Option<f64> {
        if self.texts != other.texts || self.groups.len() < 2 {
            return None;
        }
        let mut order: Vec<(&[f64], &[f64])> =
            self.groups.iter().zip(&other.groups).map(|(a, b)| (a.as_slice(), b.as_slice())).collect();
        order.sort_by(|a, b| compared(a.0, b.0).then_with(|| compared(a.1, b.1)));
        let width = self.width().max(other.width()).max(columns);
        let (mut one, mut two) = (vec![0.0; width], vec![0.0; width]);
        let mut differences = Vec::with_capacity(RESAMPLES as usize);
        for resample in 0..RESAMPLES {
            one.fill(0.0);
            two.fill(0.0);
            drawn(resample, &order, |(a, b)| {
                add(&mut one, a);
                add(&mut two, b);
            });
            differences.push(figure.value(&one) - figure.value(&two));
        }
        let observed = (figure.value(&self.total(width)) - figure.value(&other.total(width))).abs();
        if observed.is_nan() {
            return None;
        }
        differences.retain(|difference| !difference.is_nan());
        let mean = ratio(differences.iter().sum(), differences.len() as f64);
        let as_far = differences.iter().filter(|x| (*x - mean).abs() >= observed - 1e-12).count();
        Some((as_far as f64 + 1.0) / (differences.len() as f64 + 1.0))
    }
}

fn add(sums: &mut [f64], group: &[f64]) {
    sums.iter_mut().zip(group).for_each(|(sum, count)| *sum += count);
}

fn compared(a: &[f64], b: &[f64]) -> std::cmp::Ordering {
    let pairs = a.iter().zip(b).map(|(a, b)| a.total_cmp(b));
    pairs.into_iter().find(|order| order.is_ne()).unwrap_or_else(|| a.len().cmp(&b.len()))
}

/// Draws as many groups as there are, with replacement, and passes each drawn group to `each`.
fn drawn<G>(resample: u32, groups: &[G], mut each: impl FnMut(&G)) {
    for from in (0..groups.len()).step_by(4) {
        let words = philox([from as u32, resample, 0, 0], [SEED, 0]);
        for word in words.into_iter().take(groups.len() - from) {
            let at = (u64::from(word) * groups.len() as u64) >> 32;
            groups.get(at as usize).into_iter().for_each(&mut each);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: FigureFn = FigureFn::Of(|sums| sums[0] / sums[1]);

    fn sample(hits: impl IntoIterator<Item = bool>) -> Bootstrap {
        let mut sample = Bootstrap::default();
        hits.into_iter().for_each(|hit| sample.add([(0, f64::from(u8::from(hit))), (1, 1.0)]));
        sample
    }

    #[test]
    fn an_interval_is_about_that_of_the_normal_distribution() {
        // 80 of 100 texts are hits: the standard error is 0.04. With 30,000 texts, a group has three texts on average.
        for (texts, error) in [(100, 0.04), (30_000, 0.04 / 300f64.sqrt())] {
            let interval = sample((0..texts).map(|i| i % 5 > 0)).intervals(2, &[SHARE])[0].unwrap();
            let (width, expected) = (interval[1] - interval[0], 2.0 * 1.96 * error);
            assert!((width / expected - 1.0).abs() < 0.2, "{interval:?}, {expected}");
            assert!(interval[0] <= 0.8 && interval[1] >= 0.8, "{interval:?}");
        }
        assert_eq!(sample([true]).intervals(2, &[SHARE]), [None]);
    }

    #[test]
    fn an_interval_of_few_texts_contains_the_share_as_often_as_promised() {
        let interval = |hits, texts| {
            sample((0..texts).map(|i| i < hits)).intervals(2, &[FigureFn::Share(0, 1)])[0].unwrap()
        };
        // By definition, the ends are 1.96 standard errors of a share that equals the end from the hits.
        for end in interval(27, 30) {
            let errors = (0.9 - end).abs() / (end * (1.0 - end) / 30.0).sqrt();
            assert!((errors - 1.959964).abs() < 1e-6, "{end}");
        }
        assert!(interval(30, 30)[0] < 0.9 && interval(30, 30)[1] > 0.9999 && interval(0, 2)[1] < 0.7);
        // The probability that the interval of a sample of 30 texts contains the share that the samples are drawn with.
        let covered = |share: f64| -> f64 {
            let choose = |hits: i32| (0..hits).map(|i| f64::from(30 - i) / f64::from(i + 1)).product::<f64>();
            let probability = |hits: i32| choose(hits) * share.powi(hits) * (1.0 - share).powi(30 - hits);
            let inside = |hits: &i32| (interval(*hits, 30)[0]..=interval(*hits, 30)[1]).contains(&share);
            (0..=30).filter(inside).map(probability).sum()
        };
        let mean = [0.5, 0.7, 0.8, 0.9].map(covered).iter().sum::<f64>() / 4.0;
        assert!(mean > 0.95, "{mean}");
        // From 100 texts on, the interval is the bootstrap interval.
        assert_eq!(interval(80, 100), sample((0..100).map(|i| i < 80)).intervals(2, &[SHARE])[0].unwrap());
    }

    #[test]
    fn the_order_of_texts_does_not_matter() {
        let hits: Vec<bool> = (0..50).map(|i| i % 7 < 3).collect();
        let turned = hits.iter().rev().copied();
        assert_eq!(sample(hits.clone()).intervals(2, &[SHARE]), sample(turned).intervals(2, &[SHARE]));
    }

    #[test]
    fn equal_models_do_not_differ_and_unequal_ones_do() {
        let one = sample((0..200).map(|i| i % 4 > 0));
        assert_eq!(one.paired(&one, 2, SHARE), Some(1.0));
        let worse = sample((0..200).map(|i| i % 4 > 1));
        assert!(one.paired(&worse, 2, SHARE).is_some_and(|p| p < 0.01));
        // A single different answer among 200 texts is no significant difference.
        let near = sample((0..200).map(|i| i % 4 > 0 && i != 1));
        assert!(one.paired(&near, 2, SHARE).is_some_and(|p| p > 0.2));
        assert_eq!(one.paired(&sample([true, false]), 2, SHARE), None);
    }
}
