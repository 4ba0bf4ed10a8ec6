//! What classifiers of texts and of rows have in common: labels with their probabilities.

use super::answer::Answer;
use super::prepared::Column;
use crate::error::Result;
use crate::predict::Predictor;
use crate::tensor::Variable;

/// What `data.text` and `data.label` are.
pub(super) const COLUMNS: [Column; 2] = [|o, column| o.text(column), |o, column| o.label(column)];
/// The vocabulary.
pub(super) const LABELS: &str = "labels";
/// The outputs; attention only if the model has it.
pub(super) const PROBABILITIES: &str = "probabilities";
pub(super) const ATTENTION: &str = "attention";

/// The likeliest label of each text, by what is fed of them; with the words that attention weighs.
pub(super) fn answers(
    predictor: &Predictor,
    feed: (&str, &Variable),
    texts: &[&str],
    words: &dyn Fn(&str) -> Vec<String>,
) -> Result<Vec<Answer>> {
    let labels = predictor.vocabulary(LABELS)?;
    let attends = predictor.outputs().any(|output| output == ATTENTION);
    let outputs: &[&str] = if attends { &[PROBABILITIES, ATTENTION] } else { &[PROBABILITIES] };
    let found = predictor.run(&[feed], outputs)?;
    let mut weights = match found.get(1) {
        Some(weights) => weights.as_slice::<f32>()?.iter(),
        None => [].iter(),
    };
    let rows = found[0].as_slice::<f32>()?.chunks_exact(labels.len());
    let answer = |(row, text): (&[f32], &&str)| {
        let all: Vec<(String, f32)> = labels.tokens().map(str::to_owned).zip(row.iter().copied()).collect();
        let likelier = |a: (String, f32), b: (String, f32)| if b.1 > a.1 { b } else { a };
        let (label, probability) = all.iter().cloned().reduce(likelier).unwrap_or_default();
        let words = words(text).into_iter();
        let words = words.map(|word| (word, weights.next().copied().unwrap_or(0.0))).collect();
        Answer::Label { label, probability, all, words }
    };
    Ok(rows.zip(texts).map(answer).collect())
}
