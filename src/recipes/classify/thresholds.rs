//! Thresholds for models with several labels per text: chosen on development data, and stored in a note of the
//! checkpoint.

use super::network::LABEL;
use super::objective::Objective;
use crate::checkpoint::Checkpoint;
use crate::data::Data;
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::Counts;
use crate::ops;
use crate::predict::Predictor;
use crate::recipes::config::Config;
use crate::recipes::labels::PROBABILITIES;
use crate::recipes::sections::{Target, Task};
use crate::recipes::training::{CONFIG, TASK};
use crate::tensor::Variable;

/// The name of the note with the threshold of each label, in the order of the vocabulary of labels.
const THRESHOLDS: &str = "thresholds";
/// The threshold of a label whose F1 on development data is 0 at every threshold.
const DEFAULT: f32 = 0.5;

/// Returns the threshold of each label from the note of the checkpoint; 0.5 for each label if the checkpoint has no
/// such note. Returns an empty list unless a text may have several labels.
pub(super) fn of(predictor: &Predictor, learnt: &Objective) -> Result<Vec<f32>> {
    let Objective::Labels(labels, _) = learnt else { return Ok(Vec::new()) };
    let Some(note) = predictor.note(THRESHOLDS) else { return Ok(vec![DEFAULT; labels.len()]) };
    let found: Vec<f32> = note.split(' ').filter_map(|number| number.parse().ok()).collect();
    if found.len() != labels.len() {
        let what = format!("note `{THRESHOLDS}` of the checkpoint");
        let expected = format!("{} numbers, one per label", labels.len());
        return Err(Error::of(ErrorKind::Format, what, expected, found.len().to_string()));
    }
    Ok(found)
}

/// Chooses the threshold of each label that has the highest F1 on development data. The thresholds are stored in a note
/// of the checkpoint. The checkpoint of a model with one label or a number per text is returned unchanged.
pub(in crate::recipes) fn finished(mut checkpoint: Checkpoint, dev: &dyn Data) -> Result<Checkpoint> {
    let config = match (checkpoint.notes.get(TASK), checkpoint.notes.get(CONFIG)) {
        (Some(task), Some(config)) if task == Task::Classify.name() => Config::from_toml(config)?,
        _ => return Ok(checkpoint),
    };
    if config.data.target != Target::Labels {
        return Ok(checkpoint);
    }
    let predictor = Predictor::new(checkpoint.clone(), &ops::catalogue())?;
    // For each label, the predicted probability in each text, and whether the text has the label.
    let mut columns: Vec<Vec<(f32, bool)>> = Vec::new();
    for batch in dev.batches(None, 0)? {
        let batch = batch?;
        let of_label = |(name, _): &&(String, Variable)| name == LABEL;
        let Some((_, labels)) = batch.values.iter().find(of_label) else { continue };
        let labels = labels.storage().as_csr()?;
        let feeds: Vec<(&str, &Variable)> = batch
            .values
            .iter()
            .filter(|(name, _)| name != LABEL)
            .map(|(name, value)| (name.as_str(), value))
            .collect();
        let found = predictor.run(&feeds, &[PROBABILITIES])?;
        let (Some(found), width) = (found.first(), labels.shape()[1]) else { continue };
        columns.resize_with(width, Vec::new);
        let (starts, indices) = (labels.indptr(), labels.indices());
        for (row, bounds) in found.as_slice::<f32>()?.chunks_exact(width).zip(starts.windows(2)) {
            let there = indices.get(bounds[0] as usize..bounds[1] as usize).unwrap_or_default();
            for (label, (column, &p)) in columns.iter_mut().zip(row).enumerate() {
                column.push((p, there.contains(&(label as i64))));
            }
        }
    }
    let found: Vec<String> = columns.into_iter().map(|column| best(column).to_string()).collect();
    checkpoint.notes.insert(THRESHOLDS.to_owned(), found.join(" "));
    Ok(checkpoint)
}

/// Returns the threshold with the highest F1 for a label; `column` has, for each text, the probability of the label and
/// whether the label is right. Candidates are halfway between neighbouring probabilities; if several have the highest
/// F1, the candidate nearest to 0.5 is returned.
fn best(mut column: Vec<(f32, bool)>) -> f32 {
    column.sort_by(|a, b| b.0.total_cmp(&a.0));
    let labels = column.iter().filter(|(_, there)| *there).count() as f64;
    let (mut best, mut hits) = ((0.0, DEFAULT), 0.0);
    for (at, (p, there)) in column.iter().enumerate() {
        hits += f64::from(u8::from(*there));
        let next = column.get(at + 1).map_or(0.0, |(next, _)| *next);
        if next == *p {
            continue;
        }
        let f1 = Counts { hits, labels, guesses: (at + 1) as f64 }.f1();
        let threshold = (p + next) / 2.0;
        let nearer = |than: f32| (threshold - DEFAULT).abs() < (than - DEFAULT).abs();
        if f1 > best.0 || (f1 == best.0 && f1 > 0.0 && nearer(best.1)) {
            best = (f1, threshold);
        }
    }
    best.1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_has_the_highest_f1() {
        let column = vec![(0.9, true), (0.3, true), (0.2, false), (0.1, false)];
        assert_eq!(best(column), 0.25);
        assert_eq!(best(vec![(0.9, false), (0.2, false)]), 0.5);
        assert_eq!(best(vec![(0.4, true), (0.4, true)]), 0.2);
    }
}
