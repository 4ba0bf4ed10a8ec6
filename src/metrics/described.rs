//! Metrics in files: describes a metric in a checkpoint, and makes a metric from its description.

use super::bleu::BLEU;
use super::calibration::{BINS, CALIBRATION};
use super::chunks::{CHUNKS, SCHEME, TAGS};
use super::classes::{ACCURACY, AVERAGE, CLASS, CLASSES, FSCORE, IGNORE, MACRO, MICRO, PRECISION, RECALL};
use super::confusion::{CONFUSION, NAMES};
use super::edits::{ERRORS, EXACT};
use super::label_sets::{LABEL_SETS, THRESHOLD};
use super::ranked::{K, POSITIVE, ROC_AUC, TOP_K};
use super::tokens::TOKENS;
use super::{
    Accuracy, Average, Bleu, CalibrationError, ChunkF1, ConfusionMatrix, ErrorRate, ExactMatch, F1, FORMULA,
    LabelSetF1, Loss, LossFigure, MeanError, Metric, Precision, Recall, RocAuc, TokenAccuracy, TopK, Unit,
};
use crate::checkpoint::{Checkpoint, MetricDesc};
use crate::data::TagScheme;
use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Attributes, Registry};
use crate::program::{Program, Var};

/// Limits for a metric from a file: the maximum number of bins, of classes in a confusion matrix, and of classes in other
/// metrics.
const MOST_BINS: usize = 1 << 24;
const MOST_NAMES: usize = 1 << 13;
const MOST_CLASSES: usize = 1 << 28;

/// The kind of a metric of the user's own in files: such a metric cannot be made from its description.
pub(crate) const OWN: &str = "own";

/// The attribute that marks a user's own metric whose unit is a share.
pub(crate) const SHARE: &str = "share";

/// Returns the description of a metric, with the names of its variables in the program.
pub(crate) fn describe(metric: &dyn Metric, program: &Program) -> MetricDesc {
    let variables = metric.variables().into_iter().map(|var| program.var(var.id()).name.clone());
    let attributes = match metric.kind() {
        None if metric.unit() == Unit::Share => metric.attributes().with(SHARE, true),
        _ => metric.attributes(),
    };
    MetricDesc {
        name: metric.name().to_owned(),
        kind: metric.kind().unwrap_or(OWN).to_owned(),
        variables: variables.collect(),
        attributes,
    }
}

/// Returns the variables of a metric in a file.
///
/// # Errors
/// If the program lacks a variable.
pub(crate) fn variables_of(desc: &MetricDesc, program: &Program) -> Result<Vec<Var>> {
    let var = |name: &String| match program.find(name) {
        Some(id) => Ok(Var::of_program(id)),
        None => Err(wrong("a variable of the program", format!("`{name}`"))),
    };
    desc.variables.iter().map(var).collect()
}

fn wrong(expected: &str, got: String) -> Error {
    Error::of(ErrorKind::Program, "metric", expected, got)
}

/// Makes a metric from `desc`, its description in a file.
///
/// # Errors
/// If the kind of metric is unknown, as in a file of a later release, or the variables or attributes do not fit the kind.
pub(crate) fn metric_of(
    desc: &MetricDesc,
    program: &Program,
    registry: &Registry,
) -> Result<Box<dyn Metric>> {
    made(desc, program, registry).map_err(|e| e.noted(format!("in metric `{}` of the checkpoint", desc.name)))
}

impl Unit {
    /// Returns the unit of each metric that a checkpoint describes, by the name of the metric. A metric of this library that
    /// cannot be made with the operators in `registry` is left out.
    pub fn of_metrics(checkpoint: &Checkpoint, registry: &Registry) -> Vec<(String, Self)> {
        let unit = |desc: &MetricDesc| {
            if desc.kind == OWN {
                let unit = desc.attributes.get(SHARE).map_or(Self::Number, |_| Self::Share);
                return Some((desc.name.clone(), unit));
            }
            let metric = metric_of(desc, &checkpoint.program, registry).ok()?;
            Some((desc.name.clone(), metric.unit()))
        };
        checkpoint.metrics.iter().filter_map(unit).collect()
    }
}

/// Returns the loss of a description; `None` if the description has another metric.
fn loss_of(desc: &MetricDesc, vars: &[Var], program: &Program, registry: &Registry) -> Result<Option<Loss>> {
    let shown = LossFigure::ALL.into_iter().find(|(_, name)| *name == desc.kind).map(|(shown, _)| shown);
    let (Some(shown), Some(&losses)) = (shown, vars.first()) else { return Ok(None) };
    let loss = Loss { shown, ..Loss::of_program(program, registry, losses) }.named(&desc.name);
    if desc.attributes.get(FORMULA).is_some() {
        loss.refused()?;
        return Ok(Some(loss));
    }
    match vars[1..] {
        [] => Ok(Some(loss)),
        [share] => Ok(Some(loss.weighted(share))),
        _ => Err(wrong("a loss, or a loss and its shares", format!("{} variables", vars.len()))),
    }
}

/// Returns the number of classes of a precision, recall or F1, and the average over the classes.
fn classes_of(attributes: &Attributes, program: &Program, logits: Var) -> Result<(usize, Average)> {
    let (classes, width) = (attributes.size(CLASSES)?, program.spec(logits.id())?.width());
    if classes != width || classes > MOST_CLASSES {
        return Err(wrong(&format!("as many classes as columns, {width}"), classes.to_string()));
    }
    let average = match attributes.get(CLASS) {
        Some(_) => Average::Class(attributes.size(CLASS)?),
        None => match attributes.text(AVERAGE)? {
            MACRO => Average::Macro,
            MICRO => Average::Micro,
            other => return Err(wrong("an average of macro or micro", format!("`{other}`"))),
        },
    };
    Ok((classes, average))
}

fn made(desc: &MetricDesc, program: &Program, registry: &Registry) -> Result<Box<dyn Metric>> {
    let MetricDesc { name, kind, attributes, .. } = desc;
    let vars = variables_of(desc, program)?;
    if let Some(loss) = loss_of(desc, &vars, program, registry)? {
        return Ok(Box::new(loss));
    }
    let ignored = || attributes.get(IGNORE).map(|_| attributes.int(IGNORE)).transpose();
    if let &[found, wanted] = &*vars
        && let Some(error) = MeanError::of_kind(kind, found, wanted)
    {
        return Ok(Box::new(error.named(name)));
    }
    // Sets the name of the metric, and the label to ignore if the description has one.
    macro_rules! ignoring {
        ($metric:expr) => {{
            let metric = $metric.named(name);
            match ignored()? {
                Some(label) => Box::new(metric.ignoring(label)),
                None => Box::new(metric),
            }
        }};
    }
    Ok(match (kind.as_str(), &*vars) {
        (ACCURACY, &[logits, labels]) => ignoring!(Accuracy::new(logits, labels)),
        (PRECISION | RECALL | FSCORE, &[logits, labels]) => {
            let (classes, average) = classes_of(attributes, program, logits)?;
            match kind.as_str() {
                PRECISION => ignoring!(Precision::new(logits, labels, classes, average)),
                RECALL => ignoring!(Recall::new(logits, labels, classes, average)),
                _ => ignoring!(F1::new(logits, labels, classes, average)),
            }
        }
        (CONFUSION, &[logits, labels]) => {
            let names: Vec<String> = attributes.texts(NAMES)?.into_iter().map(str::to_owned).collect();
            if names.len() > MOST_NAMES {
                return Err(wrong(&format!("at most {MOST_NAMES} classes"), names.len().to_string()));
            }
            ignoring!(ConfusionMatrix::of(logits, labels, names))
        }
        (TOP_K, &[logits, labels]) => ignoring!(TopK::new(logits, labels, attributes.size(K)?)),
        (ROC_AUC, &[logits, labels]) => ignoring!(RocAuc::new(logits, labels, attributes.size(POSITIVE)?)),
        (CALIBRATION, &[logits, labels]) => {
            let bins = attributes.size(BINS)?;
            if !(1..=MOST_BINS).contains(&bins) {
                return Err(wrong(&format!("1 to {MOST_BINS} bins"), bins.to_string()));
            }
            ignoring!(CalibrationError::new(logits, labels).bins(bins))
        }
        (ERRORS, &[found, reference]) => Box::new(ErrorRate::new(found, reference).named(name)),
        (EXACT, &[found, reference]) => Box::new(ExactMatch::new(found, reference).named(name)),
        (LABEL_SETS, &[scores, targets]) if attributes.get(THRESHOLD).is_some() => {
            let (labels, threshold) =
                (program.spec(scores.id())?.width(), attributes.text(THRESHOLD)?.parse()?);
            Box::new(LabelSetF1::of_probabilities(scores, targets, labels, threshold).named(name))
        }
        (LABEL_SETS, &[logits, targets]) => Box::new(LabelSetF1::new(logits, targets).named(name)),
        (TOKENS, &[found, there]) => Box::new(TokenAccuracy::new(found, there).named(name)),
        (BLEU, &[found, reference]) => Box::new(Bleu::new(found, reference).named(name)),
        (CHUNKS, &[found, there]) => {
            let name_of = attributes.text(SCHEME)?;
            let scheme = TagScheme::ALL.into_iter().find(|(_, known)| *known == name_of);
            let Some((scheme, _)) = scheme else {
                return Err(wrong("a scheme of tags", format!("`{name_of}`")));
            };
            let tags = attributes.texts(TAGS)?.into_iter().map(str::to_owned).collect();
            Box::new(ChunkF1::of(found, there, scheme, tags)?.named(name))
        }
        (OWN, _) => {
            let error = wrong("the definition of this metric", "only its name and variables".to_owned());
            return Err(error.noted_in_code("`Predictor::metric` defines a metric of your own"));
        }
        (kind, vars) => {
            let expected = "a kind that this release knows, and its variables";
            return Err(wrong(expected, format!("`{kind}` of {}", vars.len())));
        }
    })
}
