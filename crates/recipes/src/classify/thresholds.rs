//! Thresholds for models with several labels per text: chosen on development data, and stored in notes of the checkpoint.

use unpadded::checkpoint::Checkpoint;
use unpadded::data::Data;
use unpadded::metrics::{LabelSetF1, LabelThreshold, RunningMetric};
use unpadded::predict::Predictor;
use unpadded::{Builder, DType, Error, ErrorKind, Result, Variable, ops};

use super::network::LABEL;
use super::objective::Objective;
use crate::config::Config;
use crate::labels::{LABELS, PROBABILITIES};
use crate::portions::ClassCounts;

/// The name of the note with the rule that chooses the thresholds, for several labels per text.
pub(super) const RULE: &str = "threshold rule";
/// The name of the note with the threshold of each label, in the order of the vocabulary of labels.
const THRESHOLDS: &str = "thresholds";
/// The name of the note with the thresholds of both rules: first the threshold for all labels, then a threshold per label.
const CHOICES: &str = "threshold choices";
const DEFAULT: f32 = 0.5;
/// With fewer held-out texts of the rarest label, all labels get one threshold: the best one on a few texts is often not the best.
const ENOUGH: u64 = 50;

/// Returns the rule that chooses the thresholds and, for several labels per text, a line for people about the rule.
pub(super) fn rule(
    config: &Config,
    objective: &Objective,
    classes: &ClassCounts,
) -> (LabelThreshold, Option<String>) {
    if objective.several().is_none() {
        return (LabelThreshold::One, None);
    }
    let rarest = classes.all().map(|class| (class.held_out.count, &class.held_out.name)).min();
    let few = rarest.filter(|(count, _)| *count < ENOUGH);
    let by_default = if few.is_some() { LabelThreshold::One } else { LabelThreshold::PerLabel };
    let rule = config.decoding.threshold.unwrap_or(by_default);
    let why = match (config.decoding.threshold, few) {
        (Some(_), _) => String::new(),
        (None, Some((count, label))) => format!(", since `{label}` has only {count} held-out texts"),
        (None, None) => format!(", since each label has at least {ENOUGH} held-out texts"),
    };
    (rule, Some(format!("threshold of labels (decoding.threshold): {rule}{why}")))
}

/// The thresholds of a classifier; all lists are empty unless a text may have several labels.
pub(super) struct Thresholds {
    /// The threshold of each label: the answer has all labels with a probability of at least their threshold.
    used: Vec<f32>,
    /// The threshold for all labels, then a threshold per label; empty if the checkpoint has no such note.
    choices: Vec<f32>,
}

impl Thresholds {
    pub(super) fn of(predictor: &Predictor, objective: &Objective) -> Result<Self> {
        let Some(labels) = objective.several() else {
            return Ok(Self { used: Vec::new(), choices: Vec::new() });
        };
        let list = |name: &str, count: usize| {
            let Some(note) = predictor.note(name) else { return Ok(None) };
            let found: Vec<f32> = note.split(' ').filter_map(|number| number.parse().ok()).collect();
            if found.len() != count {
                let what = format!("note `{name}` of the checkpoint");
                let expected = format!("{count} numbers for {} labels", labels.len());
                return Err(Error::of(ErrorKind::Format, what, expected, found.len().to_string()));
            }
            Ok(Some(found))
        };
        let used = list(THRESHOLDS, labels.len())?.unwrap_or_else(|| vec![DEFAULT; labels.len()]);
        Ok(Self { used, choices: list(CHOICES, labels.len() + 1)?.unwrap_or_default() })
    }

    /// Returns the threshold of each label by the setting `decoding.threshold`; `None` keeps the rule of the training.
    pub(super) fn by(&self, rule: Option<LabelThreshold>) -> Result<Vec<f32>> {
        match (rule, &self.choices[..]) {
            (None, _) => Ok(self.used.clone()),
            (Some(LabelThreshold::Number(number)), _) => Ok(vec![number as f32; self.used.len()]),
            (Some(LabelThreshold::One), [one, ..]) => Ok(vec![*one; self.used.len()]),
            (Some(LabelThreshold::PerLabel), [_, each @ ..]) => Ok(each.to_vec()),
            (Some(rule), []) => {
                let expected = "a number, since the checkpoint has no thresholds of a finished training";
                Err(Error::new("decoding.threshold", expected, format!("`{rule}`")))
            }
        }
    }

    /// Adds the thresholds of a further model, with its index of each label, to the means over `models` models.
    pub(super) fn join(&mut self, other: &Self, places: &[usize], models: f32) {
        let add = |mean: &mut f32, other: f32| *mean += (other - *mean) / models;
        for (mean, &position) in self.used.iter_mut().zip(places) {
            add(mean, other.used.get(position).copied().unwrap_or(*mean));
        }
        if self.choices.len() != other.choices.len() {
            self.choices.clear();
        }
        let places = std::iter::once(0).chain(places.iter().map(|position| position + 1));
        for (mean, position) in self.choices.iter_mut().zip(places) {
            add(mean, other.choices.get(position).copied().unwrap_or(*mean));
        }
    }
}

/// Chooses the thresholds by the metric that chose the best epoch. Other checkpoints are returned unchanged.
pub(crate) fn finished(mut checkpoint: Checkpoint, dev: &dyn Data) -> Result<Checkpoint> {
    let (Some(rule), Some(labels)) = (checkpoint.notes.get(RULE), checkpoint.vocabularies.get(LABELS)) else {
        return Ok(checkpoint);
    };
    let (rule, width): (LabelThreshold, usize) = (rule.parse()?, labels.len());
    let predictor = Predictor::new(checkpoint.clone(), &ops::catalogue())?;
    let net = Builder::new();
    let [found, there] = ["found", "there"].map(|name| net.feed(name, DType::F32, &[width], 0));
    let metric = |rule| RunningMetric::new(LabelSetF1::of_probabilities(found, there, width, rule));
    let (mut one, mut each) = (metric(LabelThreshold::One)?, metric(LabelThreshold::PerLabel)?);
    for batch in dev.batches(None, 0)? {
        let batch = batch?;
        let values = batch.values.iter().map(|(name, value)| (name.as_str(), value));
        let (labels, feeds): (Vec<(&str, &Variable)>, Vec<_>) = values.partition(|(name, _)| *name == LABEL);
        let Some((_, labels)) = labels.first() else { continue };
        let labels = Variable::dense(labels.storage().as_csr()?.to_dense()?);
        let values = [predictor.run(&feeds, &[PROBABILITIES])?, vec![labels]].concat();
        one.update(&values, 0)?;
        each.update(&values, 0)?;
    }
    let choices = [one.thresholds(), each.thresholds()].concat();
    let shown = |numbers: &[f32]| numbers.iter().map(f32::to_string).collect::<Vec<_>>().join(" ");
    checkpoint.notes.insert(CHOICES.to_owned(), shown(&choices));
    let used = Thresholds { used: vec![DEFAULT; width], choices }.by(Some(rule))?;
    checkpoint.notes.insert(THRESHOLDS.to_owned(), shown(&used));
    Ok(checkpoint)
}
