//! The contents of a report, computed from a trained model and its held-out texts.

use std::path::PathBuf;

use serde_json::Value;
use unpadded::checkpoint::Checkpoint;
use unpadded::executor::Profile;
use unpadded::metrics::{Better, Unit};
use unpadded::op::Pass;
use unpadded::train::Report;
use unpadded_recipes::{
    Aligner, Answer, ByLength, Case, Config, Evaluation, HeldOutScorer, HeldOutTexts, Model, TranslatedText,
    Truth, Weigher,
};
use unpadded_text::SkipReport;

use super::outcome::Outcome;
use super::report::{Bin, Epoch, Errors, Example, Lengths, Mistake, OperatorTime, Page, TestScores};
use super::scores::{by_length, factor, sign};
use super::{memory, ranks, report};

/// The maximum number of errors, and of examples, in a report.
const SHOWN: usize = 12;
/// The maximum number of held-out texts that are translated for a report.
const TRANSLATED: usize = 100;

pub(crate) struct TrainingFacts {
    pub(crate) name: String,
    pub(crate) metric: &'static str,
    pub(crate) unit: Unit,
    /// Whether higher or lower values of the metric are better; `None` if the trainer has no such metric.
    pub(crate) better: Option<Better>,
    /// The path of the test set; `None` without a test set.
    pub(crate) test: Option<PathBuf>,
    pub(crate) lengths: Vec<usize>,
    pub(crate) held_out: HeldOutTexts,
    pub(crate) score_held_out: Option<HeldOutScorer>,
    /// The malformed records that were left out of the data.
    pub(crate) skipped: Vec<SkipReport>,
}

pub(crate) struct ScoredTraining {
    pub(crate) facts: TrainingFacts,
    pub(crate) report: Report,
    pub(crate) model: Model,
    /// The value, in the best epoch, of the metric that selects this epoch; NaN if no epoch was selected.
    pub(crate) value: f64,
    pub(crate) profile: Option<Profile>,
    /// The scores of the held-out texts, and the object in held_out.json; `None` for models that write texts.
    pub(crate) held: Option<(Evaluation, Value)>,
    /// The scores of the test set, and these scores as the JSON object in test.json; `None` without a test set.
    pub(crate) tested: Option<(Evaluation, Value)>,
    /// The error that prevented the scoring of the test set; `None` without such an error.
    pub(crate) untested: Option<unpadded::Error>,
}

impl TrainingFacts {
    /// Returns a report's page with all that is known without a model.
    pub(crate) fn page(&self, config: &Config, report: &Report) -> Page {
        let Self { name, metric, unit, held_out, .. } = self;
        let (task, Report { seconds, tokens_per_s, .. }) = (config.run.task.name(), report);
        let mut facts = vec![
            ("data".to_owned(), name.clone()),
            ("epochs".to_owned(), report.epochs.to_string()),
            ("steps".to_owned(), report.steps.to_string()),
            ("trained for".to_owned(), format!("{seconds:.1} s, {tokens_per_s:.0} tokens/s")),
            ("held-out texts".to_owned(), held_out.count.to_string()),
            ("memory".to_owned(), memory::described(report)),
            ("matrix products".to_owned(), format!("{} ({})", report.unit, report.unit.instructions())),
        ];
        facts.extend(report.best.map(|best| ("best epoch".to_owned(), best.epoch.to_string())));
        facts.extend(ranks::shares(report).map(|shares| ("processes".to_owned(), shares)));
        let epoch = |value: &unpadded::checkpoint::EpochScores| Epoch {
            epoch: value.epoch,
            step: value.step,
            rate: value.rate,
            train: value.train.clone(),
            dev: value.dev.clone(),
            best: report.best.is_some_and(|best| best.epoch == value.epoch),
        };
        Page {
            title: format!("{task}: {name}"),
            task: task.to_owned(),
            facts,
            headline: report.best.map(|best| {
                let sign = sign(*unit).trim_start().to_owned();
                (format!("held-out {metric}"), factor(*unit) * best.value, sign)
            }),
            epochs: report.history.iter().map(epoch).collect(),
            config: config.to_toml(),
            ..Page::default()
        }
    }
}

impl ScoredTraining {
    /// Computes the contents of the report's page; `checkpoint` has the model.
    pub(crate) fn page(&self, config: &Config, checkpoint: Checkpoint) -> Outcome<Page> {
        let Self { facts: TrainingFacts { metric, lengths, held_out, .. }, report, model, .. } = self;
        let mut page = self.facts.page(config, report);
        // The number of parameters is shown after the duration of the training.
        page.facts.insert(4, ("parameters".to_owned(), parameters(&checkpoint).to_string()));
        page.operators = self.profile.as_ref().map(operators).unwrap_or_default();
        page.tested = self.tested.as_ref().map(|(_, object)| TestScores::of(object)).transpose()?;
        let score = page.tested.as_ref().and_then(|tested| tested.get(metric));
        page.facts.extend(score.map(|score| (format!("test {metric}"), score.shown())));
        let cases = &held_out.cases[..];
        let truth = cases.first().map(|case| &case.truth);
        if !lengths.is_empty() {
            let value = match truth {
                Some(Truth::Tags(..)) => ["training texts", "words"],
                _ if model.tokenizer().is_none() => ["training rows", "features"],
                Some(Truth::Texts(_)) => ["source texts of the training", "tokens"],
                _ => ["training texts", "tokens"],
            };
            page.lengths = Some(Lengths {
                of: value,
                lengths: lengths.clone(),
                tokens: report.tokens,
                padded: report.padded,
            });
        }
        let most = match truth {
            Some(Truth::Label(_) | Truth::Labels(_) | Truth::Number(_) | Truth::Tags(..)) => cases.len(),
            // Beam search is slow, so at most `TRANSLATED` texts are translated.
            Some(Truth::Texts(_)) if page.tested.is_none() => TRANSLATED,
            Some(Truth::Texts(_) | Truth::Open) | None => SHOWN,
        };
        let asked = cases.get(..most).unwrap_or(cases);
        let texts: Vec<&str> = asked.iter().map(|case| case.text.as_str()).collect();
        let answers: Vec<Answer> = model.predict(&texts)?.into_iter().map(best).collect();
        page.held = self.held.as_ref().map(|(_, object)| TestScores::of(object)).transpose()?;
        if page.tested.is_none() && page.held.is_none() {
            let errors = errors(model, asked, &answers);
            page.errors = errors.map(|value| Errors::of(&by_length(&value))).transpose()?;
        }
        let examples = asked.iter().zip(&answers).filter_map(|(case, answer)| example(case, answer));
        page.examples = examples.take(SHOWN).collect();
        if matches!(truth, Some(Truth::Texts(_))) {
            page.examples_of = match &page.tested {
                Some(tested) => {
                    page.examples = tested.examples.clone();
                    "Test set: the first 8 texts, and the 4 other texts with the lowest chrF.".to_owned()
                }
                None => format!("The first {} held-out texts.", page.examples.len()),
            };
            let aligned = Aligner::new(config, checkpoint, config.run.threads);
            // If the attention cannot be computed, the report contains the reason instead of the attention.
            if let Err(e) = aligned.and_then(|aligner| align(&mut page, aligner)) {
                page.examples_of += &format!(" Their attention is not shown: {}", super::outcome::plain(&e));
            }
        } else {
            page.calibration = calibration(asked, &answers);
            page.numbers = asked.iter().zip(&answers).filter_map(numbers).collect();
            page.thresholds = thresholds(&answers, &checkpoint);
            mistakes(&mut page, asked, &answers, config, checkpoint)?;
        }
        Ok(page)
    }
}

/// Returns the best translation of a ranked answer; returns any other answer unchanged.
fn best(answer: Answer) -> Answer {
    match answer {
        Answer::Ranked(mut texts) if !texts.is_empty() => Answer::Text(texts.swap_remove(0).0),
        other => other,
    }
}

/// Adds the attention of each target token to the source tokens, for each translated example.
fn align(page: &mut Page, mut aligner: Aligner) -> unpadded::Result<()> {
    for example in &mut page.examples {
        if let Example::Pair { source, target, attention, .. } = example {
            *attention = Some(aligner.align(source, target)?);
        }
    }
    Ok(())
}

/// Returns the chrF of held-out texts by length; `None` unless the model writes texts that have right answers.
fn errors(model: &Model, cases: &[Case], answers: &[Answer]) -> Option<ByLength> {
    let mut found = ByLength::new("chrF", Unit::Share);
    for (case, answer) in cases.iter().zip(answers) {
        let (Truth::Texts(truths), Answer::Text(text)) = (&case.truth, answer) else { return None };
        let length = match model.tokenizer() {
            Some(tokenizer) => tokenizer.tokens(&case.text).count(),
            None => case.text.split_whitespace().count(),
        };
        let truths: Vec<&str> = truths.iter().map(String::as_str).collect();
        found.add(length, TranslatedText::new(&case.text, &truths, text).chrf, 1.0);
    }
    (!cases.is_empty()).then_some(found)
}

fn parameters(checkpoint: &Checkpoint) -> usize {
    let parameters = checkpoint.program.parameters().map(|id| &checkpoint.program.var(id).name);
    let tensors = parameters.filter_map(|name| checkpoint.tensors.get(name));
    tensors.map(|x| x.shape().iter().product::<usize>()).sum()
}

/// Returns the total time of each kind of operator, separately for each pass (forward, backward), the longest time first.
fn operators(profile: &Profile) -> Vec<OperatorTime> {
    let mut found: Vec<OperatorTime> = Vec::new();
    for entry in &profile.entries {
        let name = match entry.pass {
            Pass::Forward => entry.kind.clone(),
            Pass::Backward => format!("{}, backward", entry.kind),
        };
        let seconds = entry.time.as_secs_f64();
        match found.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                known.calls += entry.calls;
                known.seconds += seconds;
            }
            None => found.push(OperatorTime { name, calls: entry.calls, seconds }),
        }
    }
    found.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    found
}

/// Returns the calibration of a classifier; `None` for other models.
fn calibration(cases: &[Case], answers: &[Answer]) -> Option<Vec<Bin>> {
    const BINS: usize = 10;
    let mut sums = [(0.0, 0.0, 0u64); BINS];
    for (case, answer) in cases.iter().zip(answers) {
        let (Truth::Label(truth), Answer::Label { label, probability, .. }) = (&case.truth, answer) else {
            return None;
        };
        let p = f64::from(*probability);
        let bin = &mut sums[((p * BINS as f64) as usize).min(BINS - 1)];
        *bin = (bin.0 + p, bin.1 + f64::from(u8::from(truth == label)), bin.2 + 1);
    }
    let bin = |&(p, right, count): &(f64, f64, u64)| {
        let [confidence, accuracy] = [p, right].map(|sum| sum / count as f64);
        Bin { confidence, accuracy, count }
    };
    (!cases.is_empty()).then(|| sums.iter().filter(|(.., count)| *count > 0).map(bin).collect())
}

/// Returns the true number and the predicted number of a text; `None` for other answers.
fn numbers((case, answer): (&Case, &Answer)) -> Option<[f64; 2]> {
    match (&case.truth, answer) {
        (Truth::Number(truth), Answer::Number(number)) => Some([*truth, f64::from(*number)]),
        _ => None,
    }
}

/// Returns the threshold of each label from the checkpoint; empty unless a text may have several labels.
fn thresholds(answers: &[Answer], checkpoint: &Checkpoint) -> Vec<(String, f64)> {
    let (Some(Answer::Labels { all, .. }), Some(note)) =
        (answers.first(), checkpoint.notes.get("thresholds"))
    else {
        return Vec::new();
    };
    let thresholds = note.split(' ').filter_map(|threshold| threshold.parse().ok());
    all.iter().map(|(label, _)| label.clone()).zip(thresholds).collect()
}

/// Adds the worst errors of a classifier; if it predicts one label, with the weights of the words.
fn mistakes(
    page: &mut Page,
    cases: &[Case],
    answers: &[Answer],
    config: &Config,
    checkpoint: Checkpoint,
) -> Outcome<()> {
    let wrong = |(case, answer)| Some((case, mistake(case, answer, &page.thresholds)?));
    let mut wrong: Vec<(&Case, (f64, Mistake))> = cases.iter().zip(answers).filter_map(wrong).collect();
    wrong.sort_by(|(_, (a, _)), (_, (b, _))| b.total_cmp(a));
    let head = format!("{} of {} held-out texts", wrong.len(), cases.len());
    page.mistakes_of = match cases.first().map(|case| &case.truth) {
        Some(Truth::Label(_)) => head + " have a wrong label; the most probable wrong labels are first.",
        Some(Truth::Labels(_)) => {
            head + " have a wrong or a missing label; the probabilities farthest from the threshold are first."
        }
        _ => "The held-out texts with the largest differences between prediction and truth.".to_owned(),
    };
    // Word weights are computed only if the model reads words; a model of rows of features reads none.
    let (has_words, has_label) = (checkpoint.vocabularies.contains_key("words"), page.calibration.is_some());
    let mut weigher = match has_words && has_label && !wrong.is_empty() {
        true => Some(Weigher::new(checkpoint, config.run.threads)?),
        false => None,
    };
    let names: Vec<&String> = config.data.text.iter().chain(&config.data.pair).collect();
    for (case, (_, mistake)) in wrong.into_iter().take(SHOWN) {
        let texts: Vec<Vec<(String, f32)>> = match &mut weigher {
            Some(weigher) => weigher.weigh(&case.text, &mistake.predicted)?,
            None => {
                let texts = case.text.splitn(if has_words { names.len().max(1) } else { 1 }, '\t');
                texts.map(|text| text.split(' ').map(|word| (word.to_owned(), 0.0)).collect()).collect()
            }
        };
        let alone = texts.len() == 1;
        let name =
            |at: usize| names.get(at).filter(|_| !alone).map_or_else(String::new, |name| (*name).clone());
        let texts = texts.into_iter().enumerate().map(|(at, words)| (name(at), words)).collect();
        page.mistakes.push(Mistake { texts, ..mistake });
    }
    Ok(())
}

/// Returns a wrong answer with the size of its error, by which errors are sorted; `None` for a right answer.
fn mistake(case: &Case, answer: &Answer, thresholds: &[(String, f64)]) -> Option<(f64, Mistake)> {
    let build = |size: f64, shown: String, [truth, predicted]: [String; 2]| {
        (size, Mistake { truth, predicted, size: shown, ..Mistake::default() })
    };
    let percent = |p: f64| format!("{:.1} %", 100.0 * p);
    match (&case.truth, answer) {
        (Truth::Label(truth), Answer::Label { label, probability, .. }) if truth != label => {
            let p = f64::from(*probability);
            Some(build(p, format!("at {}", percent(p)), [truth.clone(), label.clone()]))
        }
        (Truth::Labels(truth), Answer::Labels { labels, all, .. }) => {
            let wrong = |label: &String| truth.contains(label) != labels.contains(label);
            let found = all.iter().zip(thresholds).filter(|((label, _), _)| wrong(label));
            let far = found.map(|((label, p), (_, threshold))| (f64::from(*p), *threshold, label));
            let size = |&(p, threshold, _): &(f64, f64, &String)| (p - threshold).abs();
            let far = far.max_by(|a, b| size(a).total_cmp(&size(b)));
            let shown = match &far {
                Some((p, at, label)) => format!("({label}: {}, threshold {})", percent(*p), percent(*at)),
                // A label that the training texts do not have, so that the model cannot predict it.
                None => {
                    truth.iter().find(|label| !labels.contains(label)).map(|label| format!("(no {label})"))?
                }
            };
            let named =
                |build: &[String]| if build.is_empty() { "no label".to_owned() } else { build.join(", ") };
            Some(build(far.as_ref().map_or(1.0, size), shown, [named(truth), named(labels)]))
        }
        (Truth::Number(truth), Answer::Number(number)) => {
            let size = (f64::from(*number) - truth).abs();
            let [size_shown, truth, number] = [size, *truth, f64::from(*number)].map(report::number);
            (size > 0.0).then(|| build(size, format!("(off by {size_shown})"), [truth, number]))
        }
        _ => None,
    }
}

/// Returns an example for the report; `None` if the report shows no examples of this kind of answer.
fn example(case: &Case, answer: &Answer) -> Option<Example> {
    match (&case.truth, answer) {
        (Truth::Tags(truth, _), Answer::Tags { words, tags, .. }) => {
            Some(Example::Tagged { words: words.clone(), truth: truth.clone(), found: tags.clone() })
        }
        (Truth::Label(_), Answer::Label { label, words, probability, .. })
            if words.iter().any(|(_, weight)| *weight != 0.0) =>
        {
            let answer = format!("{label} ({:.1} %)", 100.0 * probability);
            Some(Example::Attention { words: words.clone(), answer })
        }
        (Truth::Texts(texts), Answer::Text(target)) => {
            let truths: Vec<&str> = texts.iter().map(String::as_str).collect();
            let TranslatedText { source, references: truths, found: target, exact, chrf, .. } =
                TranslatedText::new(&case.text, &truths, target);
            Some(Example::Pair { source, target, truths, exact, chrf, attention: None })
        }
        (Truth::Open, Answer::Text(text)) => {
            Some(Example::Written { beginning: case.text.clone(), text: text.clone() })
        }
        _ => None,
    }
}
