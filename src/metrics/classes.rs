//! Metrics of classification: which class the largest logit names, against the label.

use super::{Better, Metric, MetricKind, one_a_row};
use crate::error::{Error, Result};
use crate::program::{Attributes, Var};
use crate::tensor::{DType, Variable};
use crate::with_float;

/// The share of rows whose first largest logit is at the label. A row with a NaN misses.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{Accuracy, Metric};
/// use unpadded::{Builder, DType, Lod, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[2], 1); // of each word
/// let tags = net.feed_like("tags", DType::I64, &[], logits);
/// let mut accuracy = Accuracy::new(logits, tags).ignoring(-1);
/// let lod = Lod::from_lengths1(&[2, 0, 1])?;
/// let scores = Variable::sequences(array![[0.1f32, 0.9], [0.8, 0.2], [0.3, 0.7]], lod.clone())?;
/// accuracy.update(&[scores, Variable::sequences(array![1i64, 1, -1], lod)?], 3)?;
/// assert_eq!(accuracy.value(), 0.5);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Accuracy {
    name: String,
    classified: Classified,
    /// Hits, and rows that count.
    sums: [f64; 2],
}

impl Accuracy {
    /// Of `logits` `[rows, classes]` against `labels`, one whole number a row.
    pub fn new(logits: Var, labels: Var) -> Self {
        let classified = Classified { logits, labels, ignore: None };
        Self { name: "accuracy".to_owned(), classified, sums: [0.0; 2] }
    }

    /// Rows with this label do not count.
    #[must_use]
    pub fn ignoring(mut self, label: i64) -> Self {
        self.classified.ignore = Some(label);
        self
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }
}

impl Metric for Accuracy {
    fn name(&self) -> &str {
        &self.name
    }

    fn variables(&self) -> Vec<Var> {
        self.classified.variables()
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn update(&mut self, values: &[Variable], _: usize) -> Result<()> {
        let rows = self.classified.rows(&self.name, values)?;
        self.sums[0] += rows.iter().filter(|row| row.guess == Some(row.label)).count() as f64;
        self.sums[1] += rows.len() as f64;
        Ok(())
    }

    fn value(&self) -> f64 {
        ratio(self.sums[0], self.sums[1])
    }

    fn sums(&mut self) -> &mut [f64] {
        &mut self.sums
    }

    fn kind(&self) -> Option<MetricKind> {
        Some(MetricKind { name: ACCURACY, attributes: self.classified.attributes() })
    }
}

/// Over which classes [`F1`] averages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Average {
    /// The mean of the classes' own F1, over those that occur among labels or guesses.
    Macro,
    /// Of all classes' hits and misses together.
    Micro,
    /// Of this class alone.
    Class(usize),
}

/// F1: 2·hits / (labels + guesses) of a class, the harmonic mean of precision and recall; 0 if there are neither.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{Average, F1, Metric};
/// use unpadded::{Builder, DType, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[2], 0);
/// let label = net.feed("label", DType::I64, &[], 0);
/// let mut f1 = F1::new(logits, label, 2, Average::Class(1));
/// let guesses = array![[0.0f32, 1.0], [0.0, 1.0], [1.0, 0.0]]; // 1, 1, 0
/// f1.update(&[guesses.into(), array![1i64, 0, 0].into()], 3)?;
/// assert_eq!(f1.value(), 2.0 / 3.0); // precision 1/2, recall 1
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct F1 {
    name: String,
    classified: Classified,
    average: Average,
    /// Hits, labels and guesses of each class.
    sums: Vec<f64>,
}

impl F1 {
    /// Of `logits` `[rows, classes]` against `labels`, one whole number a row.
    pub fn new(logits: Var, labels: Var, classes: usize, average: Average) -> Self {
        let name = match average {
            Average::Macro => "macro F1".to_owned(),
            Average::Micro => "micro F1".to_owned(),
            Average::Class(class) => format!("F1 of class {class}"),
        };
        let classified = Classified { logits, labels, ignore: None };
        Self { name, classified, average, sums: vec![0.0; 3 * classes] }
    }

    /// Rows with this label do not count.
    #[must_use]
    pub fn ignoring(mut self, label: i64) -> Self {
        self.classified.ignore = Some(label);
        self
    }

    /// Under another name.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }
}

impl Metric for F1 {
    fn name(&self) -> &str {
        &self.name
    }

    fn variables(&self) -> Vec<Var> {
        self.classified.variables()
    }

    fn better(&self) -> Better {
        Better::Higher
    }

    fn update(&mut self, values: &[Variable], _: usize) -> Result<()> {
        let rows = self.classified.rows(&self.name, values)?;
        let known = self.sums.len() / 3;
        let wrong =
            |expected: String, got: String| Err(Error::new(format!("metric `{}`", self.name), expected, got));
        match (self.average, values.first().map(Variable::shape)) {
            (Average::Class(class), _) if class >= known => {
                return wrong(format!("a class below {known}"), class.to_string());
            }
            (_, Some([_, classes])) if *classes != known => {
                return wrong(format!("logits of {known} classes"), classes.to_string());
            }
            _ => {}
        }
        let of = |label| usize::try_from(label).ok().filter(|&class| class < known);
        if let Some(row) = rows.iter().find(|row| of(row.label).is_none()) {
            let expected = format!("labels of 0 to below {known}");
            return wrong(expected, row.label.to_string()).map_err(|e| e.row(row.number));
        }
        for row in rows {
            let (label, guess) = (of(row.label), row.guess.and_then(of));
            for (sum, class) in [(0, guess.filter(|_| guess == label)), (1, label), (2, guess)] {
                if let Some(counted) = class.and_then(|class| self.sums.get_mut(3 * class + sum)) {
                    *counted += 1.0;
                }
            }
        }
        Ok(())
    }

    fn value(&self) -> f64 {
        let of = |sums: &[f64]| ratio(2.0 * sums[0], sums[1] + sums[2]);
        let mut classes = self.sums.chunks_exact(3);
        match self.average {
            Average::Class(class) => classes.nth(class).map_or(0.0, of),
            Average::Macro => {
                let occur: Vec<f64> = classes.filter(|sums| sums[1] + sums[2] > 0.0).map(of).collect();
                ratio(occur.iter().sum(), occur.len() as f64)
            }
            Average::Micro => {
                let add = |total: [f64; 3], sums: &[f64]| [0, 1, 2].map(|i| total[i] + sums[i]);
                of(&classes.fold([0.0; 3], add))
            }
        }
    }

    fn sums(&mut self) -> &mut [f64] {
        &mut self.sums
    }

    fn kind(&self) -> Option<MetricKind> {
        let attributes = self.classified.attributes().with(CLASSES, self.sums.len() / 3);
        let attributes = match self.average {
            Average::Macro => attributes.with(AVERAGE, MACRO),
            Average::Micro => attributes.with(AVERAGE, MICRO),
            Average::Class(class) => attributes.with(CLASS, class),
        };
        Some(MetricKind { name: FSCORE, attributes })
    }
}

/// Logits against labels.
#[derive(Debug, Clone)]
struct Classified {
    logits: Var,
    labels: Var,
    ignore: Option<i64>,
}

/// A row that counts: its number in the batch, its label, and the class of its first largest logit, if no logit is NaN.
struct Row {
    number: usize,
    label: i64,
    guess: Option<i64>,
}

/// The names of these metrics in files, and of what they are told.
pub(super) const ACCURACY: &str = "accuracy";
pub(super) const FSCORE: &str = "f1";
pub(super) const IGNORE: &str = "ignore";
pub(super) const CLASSES: &str = "classes";
pub(super) const CLASS: &str = "class";
pub(super) const AVERAGE: &str = "average";
pub(super) const MACRO: &str = "macro";
pub(super) const MICRO: &str = "micro";

impl Classified {
    fn attributes(&self) -> Attributes {
        let label = self.ignore;
        label.map_or_else(Attributes::new, |label| Attributes::new().with(IGNORE, label))
    }

    fn variables(&self) -> Vec<Var> {
        vec![self.logits, self.labels]
    }

    fn rows(&self, metric: &str, values: &[Variable]) -> Result<Vec<Row>> {
        let wrong = |expected: &str, got: String| Error::new(format!("metric `{metric}`"), expected, got);
        let [logits, labels] = values else {
            return Err(wrong("logits and labels", format!("{} values", values.len())));
        };
        let classes = match logits.shape() {
            [rows, classes] if *rows == one_a_row(labels)? => *classes,
            other => {
                let expected = format!("logits [{}, classes], as many rows as labels", labels.rows());
                return Err(wrong(&expected, format!("{other:?}")));
            }
        };
        if labels.dtype().is_float() {
            return Err(wrong("labels of whole numbers", labels.dtype().to_string()));
        }
        let labels = labels.storage().as_dense()?.cast(DType::I64);
        with_float!(logits.dtype(), T => {
            let guesses = logits.as_slice::<T>()?.chunks(classes.max(1)).map(largest);
            // Rows of no class have no logits, and no guess.
            let guesses = guesses.chain(std::iter::repeat(None));
            let rows = labels.as_slice::<i64>()?.iter().zip(guesses).enumerate();
            let rows = rows.map(|(number, (&label, guess))| Row { number, label, guess });
            Ok(rows.filter(|row| Some(row.label) != self.ignore).collect())
        })
    }
}

/// The place of the first largest number, if none is NaN.
fn largest<T: PartialOrd + Copy>(logits: &[T]) -> Option<i64> {
    let mut best = None;
    for (place, x) in logits.iter().enumerate() {
        match best {
            _ if x.partial_cmp(x).is_none() => return None,
            Some((_, most)) if x <= most => {}
            _ => best = Some((place as i64, x)),
        }
    }
    best.map(|(place, _)| place)
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
