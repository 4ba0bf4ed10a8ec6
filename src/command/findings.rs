//! What a report shows, found out of a trained model and the texts that were held out.

use super::outcome::Outcome;
use super::report::{Bin, Confusion, Epoch, Example, Lengths, Mistake, OperatorTime, Page};
use super::scores;
use unpadded::checkpoint::Checkpoint;
use unpadded::executor::Profile;
use unpadded::recipes::{Answer, Case, Config, HeldOut, Model, Scored, Truth, Weigher};
use unpadded::train::Report;

/// So many mistakes and examples are shown.
const SHOWN: usize = 12;

/// What a training came to.
pub(crate) struct Findings<'a> {
    pub(crate) config: &'a Config,
    pub(crate) model: &'a Model,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) name: &'a str,
    pub(crate) metric: &'a str,
    /// Whether the metric is a share.
    pub(crate) percent: bool,
    pub(crate) report: &'a Report,
    pub(crate) test: Option<&'a Scored>,
    pub(crate) lengths: Vec<usize>,
    pub(crate) held_out: &'a HeldOut,
    pub(crate) profile: Option<&'a Profile>,
}

impl Findings<'_> {
    /// The page of the report.
    pub(crate) fn page(self) -> Outcome<Page> {
        let Self { config, model, name, metric, percent, report, .. } = self;
        let task = config.run.task.name();
        let unit = if percent { "%" } else { "" };
        let scaled = |x: f64| if percent { 100.0 * x } else { x };
        let mut facts = vec![
            ("data".to_owned(), name.to_owned()),
            ("epochs".to_owned(), report.epochs.to_string()),
            ("steps".to_owned(), report.steps.to_string()),
            (
                "trained for".to_owned(),
                format!("{:.1} s, {:.0} tokens/s", report.seconds, report.tokens_per_s),
            ),
            ("parameters".to_owned(), parameters(&self.checkpoint).to_string()),
            ("held-out texts".to_owned(), self.held_out.count.to_string()),
        ];
        facts.extend(report.best.map(|best| ("best epoch".to_owned(), best.epoch.to_string())));
        let tested = self.test.and_then(|scored| scored.get(metric));
        facts.extend(tested.map(|x| (format!("test {metric}"), format!("{:.2} {unit}", scaled(x)))));
        let epoch = |of: &unpadded::checkpoint::EpochScores| Epoch {
            epoch: of.epoch,
            step: of.step,
            rate: of.rate,
            train: of.train.clone(),
            dev: of.dev.clone(),
            best: report.best.is_some_and(|best| best.epoch == of.epoch),
        };
        let mut page = Page {
            title: format!("{task}: {name}"),
            task: task.to_owned(),
            facts,
            headline: report
                .best
                .map(|best| (format!("held-out {metric}"), scaled(best.value), unit.to_owned())),
            epochs: report.history.iter().map(epoch).collect(),
            operators: self.profile.map(operators).unwrap_or_default(),
            config: config.to_toml(),
            tables: self.test.map(scores::tables).unwrap_or_default(),
            ..Page::default()
        };
        if !self.lengths.is_empty() {
            page.lengths =
                Some(Lengths { lengths: self.lengths, tokens: report.tokens, padded: report.padded });
        }
        let cases = &self.held_out.cases[..];
        let asked = if matches!(cases.first(), Some(Case { truth: Truth::Label(_) | Truth::Tags(..), .. })) {
            cases
        } else {
            &cases[..cases.len().min(SHOWN)]
        };
        let texts: Vec<&str> = asked.iter().map(|case| case.text.as_str()).collect();
        let answers = model.predict(&texts)?;
        labels(&mut page, asked, &answers, model, self.checkpoint, config.run.threads)?;
        page.examples = asked
            .iter()
            .zip(answers)
            .filter_map(|(case, answer)| example(case, answer))
            .take(SHOWN)
            .collect();
        Ok(page)
    }
}

fn parameters(checkpoint: &Checkpoint) -> usize {
    let parameters = checkpoint.program.parameters().map(|id| &checkpoint.program.var(id).name);
    parameters
        .filter_map(|name| checkpoint.tensors.get(name))
        .map(|x| x.shape().iter().product::<usize>())
        .sum()
}

/// The time of each kind of operator, longest first.
fn operators(profile: &Profile) -> Vec<OperatorTime> {
    let mut found: Vec<OperatorTime> = Vec::new();
    for entry in &profile.entries {
        // `linear #3, backward` is one of `linear, backward`.
        let (kind, rest) = entry.operator.split_once(" #").unwrap_or((&entry.operator, ""));
        let name = match rest.split_once(',') {
            Some((_, part)) => format!("{kind},{part}"),
            None => kind.to_owned(),
        };
        let seconds = entry.time.as_secs_f64();
        match found.iter_mut().find(|known| known.name == name) {
            Some(known) => {
                (known.calls, known.seconds) = (known.calls + entry.calls, known.seconds + seconds)
            }
            None => found.push(OperatorTime { name, calls: entry.calls, seconds }),
        }
    }
    found.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    found
}

/// Which labels were taken for which, how sure the model was, and its worst mistakes.
fn labels(
    page: &mut Page,
    cases: &[Case],
    answers: &[Answer],
    model: &Model,
    checkpoint: Checkpoint,
    threads: usize,
) -> Outcome<()> {
    const BINS: usize = 10;
    let mut confusion = Confusion::default();
    let mut sums = [(0.0, 0.0, 0u64); BINS];
    let mut wrong: Vec<(f64, &Case, &str)> = Vec::new();
    for (case, answer) in cases.iter().zip(answers) {
        let (Truth::Label(truth), Answer::Label { label, probability, all, .. }) = (&case.truth, answer)
        else {
            return Ok(());
        };
        if confusion.labels.is_empty() {
            confusion.labels = all.iter().map(|(label, _)| label.clone()).collect();
            confusion.counts = vec![vec![0; all.len()]; all.len()];
        }
        let at = |of: &str| confusion.labels.iter().position(|label| label == of);
        if let (Some(row), Some(column)) = (at(truth), at(label)) {
            confusion.counts[row][column] += 1;
        }
        let p = f64::from(*probability);
        let bin = &mut sums[((p * BINS as f64) as usize).min(BINS - 1)];
        *bin = (bin.0 + p, bin.1 + f64::from(u8::from(truth == label)), bin.2 + 1);
        if truth != label {
            wrong.push((p, case, label));
        }
    }
    if confusion.labels.is_empty() {
        return Ok(());
    }
    let bin = |&(p, right, count): &(f64, f64, u64)| Bin {
        confidence: p / count as f64,
        accuracy: right / count as f64,
        count,
    };
    page.calibration = Some(sums.iter().filter(|(.., count)| *count > 0).map(bin).collect());
    page.confusion = Some(confusion);
    wrong.sort_by(|a, b| b.0.total_cmp(&a.0));
    // Words are cut and weighed where there are any.
    let mut weigher = match model.tokenizer() {
        Some(_) => Some(Weigher::new(checkpoint, threads)?),
        None => None,
    };
    for (probability, case, predicted) in wrong.into_iter().take(SHOWN) {
        let Truth::Label(truth) = &case.truth else { continue };
        page.mistakes.push(Mistake {
            words: match &mut weigher {
                Some(weigher) => weigher.weigh(&case.text, predicted)?,
                None => case.text.split(' ').map(|cell| (cell.to_owned(), 0.0)).collect(),
            },
            truth: truth.clone(),
            predicted: predicted.to_owned(),
            probability,
        });
    }
    Ok(())
}

/// A text with what the model makes of it.
fn example(case: &Case, answer: Answer) -> Option<Example> {
    match (&case.truth, answer) {
        (Truth::Tags(truth, _), Answer::Tags { words, tags, .. }) => {
            Some(Example::Tagged { words, truth: truth.clone(), found: tags })
        }
        (Truth::Label(_), Answer::Label { label, words, probability, .. })
            if words.iter().any(|(_, weight)| *weight != 0.0) =>
        {
            Some(Example::Attention { words, answer: format!("{label} ({:.1} %)", 100.0 * probability) })
        }
        (Truth::Texts(texts), Answer::Text(target)) => {
            Some(Example::Pair { source: case.text.clone(), target, truths: texts.clone() })
        }
        (Truth::Open, Answer::Text(text)) => Some(Example::Written { beginning: case.text.clone(), text }),
        _ => None,
    }
}
