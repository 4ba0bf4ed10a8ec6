//! Compares several models on the same texts.

use unpadded::data::Fingerprint;
use unpadded::{Error, ErrorKind, Result};

use super::answer::Answer;
use super::config::Config;
use super::evaluation::{Evaluation, Outcome};
use super::model::Model;

const SHOWN: usize = 10;

/// The result of comparing several models on the same texts.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ModelComparison {
    /// The evaluation of each model.
    pub scored: Vec<Evaluation>,
    /// For each model after the first, the difference from the first model.
    pub against_first: Vec<ModelDifference>,
}

/// The difference between a model and the first model.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ModelDifference {
    /// The two-sided p value for the difference of the headline figures; `None` if the two models have different
    /// headline figures, or were scored on different texts.
    pub p_value: Option<f64>,
    /// The number of texts to which the two models give different answers.
    pub differ: u64,
    /// The first texts with different answers of the two models, at most 10.
    pub texts: Vec<Disagreement>,
}

/// A text to which two models give different answers.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Disagreement {
    /// The text.
    pub text: String,
    /// The right answer to the text.
    pub truth: String,
    /// The answer of the first model, then the answer of the other model.
    pub found: [String; 2],
}

/// Returns the hash of a scored text with its right answer, and the hash of the model's answer.
fn hashes(outcome: &Outcome<'_>) -> (u64, u64) {
    let number = |text: &str| Fingerprint::default().text(text).finish();
    (number(&format!("{}\n{}", outcome.text, outcome.truth)), number(outcome.found))
}

pub(super) fn compare(runs: &[(&Config, &Model)]) -> Result<ModelComparison> {
    let mut compared = ModelComparison { scored: Vec::new(), against_first: Vec::new() };
    let Some(((config, first), others)) = runs.split_first() else { return Ok(compared) };
    let path = |config: &Config| config.data.test.clone().unwrap_or_default();
    let mut seen = Vec::new();
    compared.scored.push(first.scores(config, &path(config), &mut |outcome| seen.push(hashes(&outcome)))?);
    for (config, model) in others {
        if first.task() != model.task() {
            let expected = format!("models of the task `{}`, as the first model", first.task().name());
            let got = format!("a model of `{}`", model.task().name());
            return Err(Error::of(ErrorKind::Program, "models", expected, got));
        }
        let (mut at, mut alike, mut differ) = (0, true, 0);
        let (mut texts, mut asked) = (Vec::new(), Vec::new());
        let scored = model.scores(config, &path(config), &mut |outcome| {
            let (text, answer) = hashes(&outcome);
            match seen.get(at) {
                Some(&(known, found)) if known == text && found != answer => {
                    differ += 1;
                    if texts.len() < SHOWN {
                        asked.push(outcome.asked.to_owned());
                        let [text, truth, found] =
                            [outcome.text, outcome.truth, outcome.found].map(str::to_owned);
                        texts.push(Disagreement { text, truth, found: [String::new(), found] });
                    }
                }
                known => alike &= known.is_some_and(|(known, _)| *known == text),
            }
            at += 1;
        })?;
        let asked: Vec<&str> = asked.iter().map(String::as_str).collect();
        let answers: Vec<String> = first.predict(&asked)?.iter().map(found).collect();
        texts.iter_mut().zip(answers).for_each(|(one, answer)| one.found[0] = answer);
        let one = compared.scored.first();
        let p_value = one.filter(|one| alike && at == seen.len() && one.headline == scored.headline);
        let p_value = p_value.and_then(|one| one.sample.paired(&scored.sample, one.columns, one.of?));
        compared.against_first.push(ModelDifference { p_value, differ, texts });
        compared.scored.push(scored);
    }
    Ok(compared)
}

fn found(answer: &Answer) -> String {
    match answer {
        Answer::Label { label, .. } => label.clone(),
        Answer::Labels { labels, separator, .. } => labels.join(separator),
        Answer::Number(number) => number.to_string(),
        Answer::Empty => String::new(),
        Answer::Text(text) => text.clone(),
        Answer::Ranked(texts) => texts.first().map_or_else(String::new, |(text, _)| text.clone()),
        Answer::Tags { tags, label: Some((label, _)), .. } => format!("{}  {label}", tags.join(" ")),
        Answer::Tags { tags, .. } => tags.join(" "),
    }
}
