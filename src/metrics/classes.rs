//! Metrics of classification: accuracy, precision, recall and F1 of the guess (the class of the largest logit) against the
//! label.

use super::{Better, Metric, Unit, one_a_row, same_sequences};
use crate::error::{Error, Result};
use crate::operator::Attributes;
use crate::program::Var;
use crate::tensor::{DType, Variable};
use crate::with_float;

/// Accuracy: the share of rows whose largest logit is the logit of the label; of equal logits, the first counts as the
/// largest. A row with a NaN logit counts as a miss.
///
/// ```
/// use ndarray::array;
/// use unpadded::metrics::{Accuracy, RunningMetric};
/// use unpadded::{Builder, DType, Lod, Variable};
/// let net = Builder::new();
/// let logits = net.feed("logits", DType::F32, &[2], 1); // of each word
/// let tags = net.feed_like("tags", DType::I64, &[], logits);
/// let mut accuracy = RunningMetric::new(Accuracy::new(logits, tags).ignoring(-1))?;
/// let lod = Lod::from_lengths1(&[2, 0, 1])?;
/// let scores = Variable::sequences(array![[0.1f32, 0.9], [0.8, 0.2], [0.3, 0.7]], lod.clone())?;
/// accuracy.update(&[scores, Variable::sequences(array![1i64, 1, -1], lod)?], 3)?;
/// assert_eq!(accuracy.value(), 0.5);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Accuracy {
    name: String,
    classified: LabelledLogits,
}

impl Accuracy {
    /// Makes the accuracy of `logits` `[rows, classes]` against `labels`, one whole number per row.
    pub fn new(logits: Var, labels: Var) -> Self {
        let classified = LabelledLogits { logits, labels, ignore: None };
        Self { name: "accuracy".to_owned(), classified }
    }

    options_of_metric! { "`accuracy`", classified }
}

impl Metric for Accuracy {
    // The number of hits, and the number of rows that are not ignored.
    fields_of_metric! { Higher, Share, [classified.logits, classified.labels], |_| 2 }

    fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
        let rows = self.classified.rows(&self.name, values)?;
        sums[0] += rows.iter().filter(|row| row.guess == Some(row.label)).count() as f64;
        sums[1] += rows.len() as f64;
        Ok(())
    }

    fn value(&self, sums: &[f64]) -> f64 {
        ratio(sums[0], sums[1])
    }

    fn kind(&self) -> Option<&'static str> {
        Some(ACCURACY)
    }

    fn attributes(&self) -> Attributes {
        self.classified.attributes()
    }
}

/// The way in which a metric per class ([`Precision`], [`Recall`], [`F1`]) is averaged over classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Average {
    /// Macro average: the mean of the values of all classes that occur among the labels or the guesses.
    Macro,
    /// Micro average: the value computed from the counts of all classes together.
    Micro,
    /// No average: the value of the single class with this index.
    Class(usize),
}

/// The counts of a class: the rows with this class as label and guess (hits), as label, and as guess.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counts {
    /// How often the class was predicted and right.
    pub hits: f64,
    /// How often the class is the right class.
    pub labels: f64,
    /// How often the class was predicted.
    pub guesses: f64,
}

impl Counts {
    /// Returns the precision: hits / guesses, 0 without guesses.
    pub fn precision(self) -> f64 {
        ratio(self.hits, self.guesses)
    }

    /// Returns the recall: hits / labels, 0 without labels.
    pub fn recall(self) -> f64 {
        ratio(self.hits, self.labels)
    }

    /// Returns F1: 2 · hits / (labels + guesses), 0 without labels and guesses.
    pub fn f1(self) -> f64 {
        ratio(2.0 * self.hits, self.labels + self.guesses)
    }

    fn occurs(self) -> bool {
        self.labels + self.guesses > 0.0
    }
}

impl Average {
    /// Returns the average of `share` over `classes`. `share` is a function of the counts of a class, such as the
    /// precision.
    pub(super) fn of(self, classes: impl Iterator<Item = Counts>, share: impl Fn(Counts) -> f64) -> f64 {
        let mut classes = classes;
        match self {
            Average::Class(class) => classes.nth(class).map_or(0.0, share),
            Average::Macro => {
                let each: Vec<f64> = classes.filter(|counts| counts.occurs()).map(share).collect();
                ratio(each.iter().sum(), each.len() as f64)
            }
            Average::Micro => share(classes.fold(Counts::default(), |all, one| Counts {
                hits: all.hits + one.hits,
                labels: all.labels + one.labels,
                guesses: all.guesses + one.guesses,
            })),
        }
    }

    /// Returns the default name of the metric `share` with this average, such as `macro F1`.
    fn called(self, share: &str) -> String {
        match self {
            Average::Macro => format!("macro {share}"),
            Average::Micro => format!("micro {share}"),
            Average::Class(class) => format!("{share} of class {class}"),
        }
    }
}

/// The fields that [`Precision`], [`Recall`] and [`F1`] have in common.
#[derive(Debug, Clone)]
struct PerClass {
    name: String,
    classified: LabelledLogits,
    average: Average,
    classes: usize,
}

impl PerClass {
    fn new(share: &str, (logits, labels): (Var, Var), classes: usize, average: Average) -> Self {
        let classified = LabelledLogits { logits, labels, ignore: None };
        Self { name: average.called(share), classified, average, classes }
    }

    fn update(&self, sums: &mut [f64], values: &[Variable]) -> Result<()> {
        let known = self.classes;
        let wrong =
            |expected: String, got: String| Err(Error::new(format!("metric `{}`", self.name), expected, got));
        if let Average::Class(class) = self.average
            && class >= known
        {
            return wrong(format!("a class below {known}"), class.to_string());
        }
        let rows = self.classified.rows_of(&self.name, values, known)?;
        for row in rows {
            for (sum, class) in
                [(0, row.guess.filter(|&guess| guess == row.label)), (1, Some(row.label)), (2, row.guess)]
            {
                if let Some(counted) = class.and_then(|class| sums.get_mut(3 * class as usize + sum)) {
                    *counted += 1.0;
                }
            }
        }
        Ok(())
    }

    fn value(&self, sums: &[f64], share: fn(Counts) -> f64) -> f64 {
        let counts = |sums: &[f64]| Counts { hits: sums[0], labels: sums[1], guesses: sums[2] };
        self.average.of(sums.chunks_exact(3).map(counts), share)
    }

    fn attributes(&self) -> Attributes {
        let attributes = self.classified.attributes().with(CLASSES, self.classes);
        match self.average {
            Average::Macro => attributes.with(AVERAGE, MACRO),
            Average::Micro => attributes.with(AVERAGE, MICRO),
            Average::Class(class) => attributes.with(CLASS, class),
        }
    }
}

/// Declares metrics that are computed from the counts of classes. A line has the documentation, the type, the name in
/// files, the name in output, and the function of the counts.
macro_rules! of_classes {
    ($($(#[doc = $text:literal])* $type:ident = $kind:ident, $called:literal, $share:path;)*) => {$(
        $(#[doc = $text])*
        #[derive(Debug, Clone)]
        pub struct $type(PerClass);

        impl $type {
            /// Makes the metric of `logits` `[rows, classes]` against `labels`, one whole number per row, averaged over classes
            /// by `average`.
            pub fn new(logits: Var, labels: Var, classes: usize, average: Average) -> Self {
                Self(PerClass::new($called, (logits, labels), classes, average))
            }

            /// Ignores the rows with the label `label`.
            #[must_use]
            pub fn ignoring(mut self, label: i64) -> Self {
                self.0.classified.ignore = Some(label);
                self
            }

            /// Sets the name of the metric in output and files.
            #[must_use]
            pub fn named(mut self, name: &str) -> Self {
                self.0.name = name.to_owned();
                self
            }
        }

        impl Metric for $type {
            fn name(&self) -> &str {
                &self.0.name
            }

            fn variables(&self) -> Vec<Var> {
                self.0.classified.variables()
            }

            fn better(&self) -> Better {
                Better::Higher
            }

            fn unit(&self) -> Unit {
                Unit::Share
            }

            fn update(&self, sums: &mut [f64], values: &[Variable], _: usize) -> Result<()> {
                self.0.update(sums, values)
            }

            fn value(&self, sums: &[f64]) -> f64 {
                self.0.value(sums, $share)
            }

            /// Returns the number of sums: for each class, its hits, labels and guesses.
            fn sums(&self) -> usize {
                self.0.classes.saturating_mul(3)
            }

            fn kind(&self) -> Option<&'static str> {
                Some($kind)
            }

            fn attributes(&self) -> Attributes {
                self.0.attributes()
            }
        }
    )*};
}

of_classes! {
    /// Precision: hits / guesses of a class. Of the rows whose guess is the class, precision is the share whose label
    /// is the class, too; 0 without such rows. A row with a NaN logit has no guess.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::metrics::{Average, RunningMetric, Precision};
    /// use unpadded::{Builder, DType, Variable};
    /// let net = Builder::new();
    /// let logits = net.feed("logits", DType::F32, &[2], 0);
    /// let label = net.feed("label", DType::I64, &[], 0);
    /// let mut precision = RunningMetric::new(Precision::new(logits, label, 2, Average::Class(1)))?;
    /// let guesses = array![[0.0f32, 1.0], [0.0, 1.0], [1.0, 0.0]]; // 1, 1, 0
    /// precision.update(&[guesses.into(), array![1i64, 0, 0].into()], 3)?;
    /// assert_eq!(precision.value(), 0.5);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Precision = PRECISION, "precision", Counts::precision;
    /// Recall: hits / labels of a class. Of the rows whose label is the class, recall is the share whose guess is the
    /// class, too; 0 without such rows.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::metrics::{Average, RunningMetric, Recall};
    /// use unpadded::{Builder, DType, Variable};
    /// let net = Builder::new();
    /// let logits = net.feed("logits", DType::F32, &[2], 0);
    /// let label = net.feed("label", DType::I64, &[], 0);
    /// let mut recall = RunningMetric::new(Recall::new(logits, label, 2, Average::Macro))?;
    /// let guesses = array![[0.0f32, 1.0], [0.0, 1.0], [1.0, 0.0]]; // 1, 1, 0
    /// recall.update(&[guesses.into(), array![1i64, 0, 0].into()], 3)?;
    /// assert_eq!(recall.value(), (0.5 + 1.0) / 2.0);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    Recall = RECALL, "recall", Counts::recall;
    /// F1: 2·hits / (labels + guesses) of a class, the harmonic mean of precision and recall; 0 without labels and guesses.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::metrics::{Average, F1, RunningMetric};
    /// use unpadded::{Builder, DType, Variable};
    /// let net = Builder::new();
    /// let logits = net.feed("logits", DType::F32, &[2], 0);
    /// let label = net.feed("label", DType::I64, &[], 0);
    /// let mut f1 = RunningMetric::new(F1::new(logits, label, 2, Average::Class(1)))?;
    /// let guesses = array![[0.0f32, 1.0], [0.0, 1.0], [1.0, 0.0]]; // 1, 1, 0
    /// f1.update(&[guesses.into(), array![1i64, 0, 0].into()], 3)?;
    /// assert_eq!(f1.value(), 2.0 / 3.0); // precision 1/2, recall 1
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    F1 = FSCORE, "F1", Counts::f1;
}

/// The variables of a classification metric, logits and labels, and the label to ignore.
#[derive(Debug, Clone)]
pub(super) struct LabelledLogits {
    pub(super) logits: Var,
    pub(super) labels: Var,
    pub(super) ignore: Option<i64>,
}

/// A row that is not ignored: its index in the batch, its label, and its guess, the class of the first largest logit; `None`
/// if a logit is NaN.
pub(super) struct Row {
    pub(super) number: usize,
    pub(super) label: i64,
    pub(super) guess: Option<i64>,
}

/// The names in files of accuracy, precision, recall and F1, and of their options.
pub(super) const ACCURACY: &str = "accuracy";
pub(super) const PRECISION: &str = "precision";
pub(super) const RECALL: &str = "recall";
pub(super) const FSCORE: &str = "f1";
pub(super) const IGNORE: &str = "ignore";
pub(super) const CLASSES: &str = "classes";
pub(super) const CLASS: &str = "class";
pub(super) const AVERAGE: &str = "average";
pub(super) const MACRO: &str = "macro";
pub(super) const MICRO: &str = "micro";

impl LabelledLogits {
    pub(super) fn attributes(&self) -> Attributes {
        let label = self.ignore;
        label.map_or_else(Attributes::new, |label| Attributes::new().with(IGNORE, label))
    }

    pub(super) fn variables(&self) -> Vec<Var> {
        vec![self.logits, self.labels]
    }

    /// Returns the rows that are not ignored; an error if the logits do not have `classes` columns.
    pub(super) fn rows_of(&self, metric: &str, values: &[Variable], classes: usize) -> Result<Vec<Row>> {
        let rows = self.rows(metric, values)?;
        match values.first().map(Variable::shape) {
            Some([_, columns]) if *columns != classes => {
                let (what, expected) = (format!("metric `{metric}`"), format!("logits of {classes} classes"));
                Err(Error::new(what, expected, columns.to_string()))
            }
            _ => Ok(rows),
        }
    }

    /// Returns the rows that are not ignored. A label without a column in the logits is an error: either the data are wrong,
    /// or the label has to be passed to `ignoring`.
    pub(super) fn rows(&self, metric: &str, values: &[Variable]) -> Result<Vec<Row>> {
        let wrong = |expected: &str, got: String| Error::new(format!("metric `{metric}`"), expected, got);
        let [logits, labels] = values else {
            return Err(wrong("logits and labels", format!("{} values", values.len())));
        };
        let classes = match logits.shape() {
            [rows, classes] if *rows == one_a_row(metric, labels)? => *classes,
            other => {
                let expected = format!("logits [{}, classes], as many rows as labels", labels.rows());
                return Err(wrong(&expected, format!("{other:?}")));
            }
        };
        same_sequences(metric, logits, labels)?;
        if labels.dtype().is_float() {
            return Err(wrong("labels of whole numbers", labels.dtype().to_string()));
        }
        if !logits.dtype().is_float() {
            return Err(wrong("logits that are floats", logits.dtype().to_string()));
        }
        let labels = labels.storage().as_dense()?.cast(DType::I64);
        with_float!(logits.dtype(), T => {
            let guesses = logits.as_slice::<T>()?.chunks(classes.max(1)).map(largest);
            // If there are no classes, a row has no logits and no guess.
            let guesses = guesses.chain(std::iter::repeat(None));
            let rows = labels.as_slice::<i64>()?.iter().zip(guesses).enumerate();
            let rows = rows.map(|(number, (&label, guess))| Row { number, label, guess });
            let rows: Vec<Row> = rows.filter(|row| Some(row.label) != self.ignore).collect();
            let outside = |row: &&Row| !usize::try_from(row.label).is_ok_and(|class| class < classes);
            match rows.iter().find(outside) {
                None => Ok(rows),
                Some(row) => {
                    let expected = format!("labels of 0 to below {classes}");
                    let error = wrong(&expected, row.label.to_string()).row(row.number);
                    Err(error.noted("`ignoring` leaves the rows of a label out"))
                }
            }
        })
    }
}

/// Returns the index of the first largest number; `None` if a number is NaN or there is none.
fn largest<T: PartialOrd + Copy>(logits: &[T]) -> Option<i64> {
    let mut best = None;
    for (index, x) in logits.iter().enumerate() {
        match best {
            _ if x.partial_cmp(x).is_none() => return None,
            Some((_, most)) if x <= most => {}
            _ => best = Some((index as i64, x)),
        }
    }
    best.map(|(index, _)| index)
}

/// Returns `part / whole`, or 0 if `whole` is 0.
pub fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
