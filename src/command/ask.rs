//! `unpadded eval`, `predict` and `generate`: a trained model is asked.

use clap::Args;
use serde_json::Value;

use super::outcome::{Asked, Ended, Outcome, bad};
use super::which::Which;
use super::{json, terminal, train};
use unpadded::predict::Sampling;
use unpadded::recipes::{Answer, Config, Task};

/// How many lines are answered together, where they come quickly.
const TOGETHER: usize = 256;

#[derive(Args)]
#[command(after_help = "\
Examples:
  echo 'What a film!' | unpadded predict runs/classify-1
  unpadded predict runs/classify-1 --json < texts.txt | jq .label")]
pub(crate) struct Predict {
    #[command(flatten)]
    which: Which,
    /// A line of JSON for each text
    #[arg(long)]
    json: bool,
}

impl Predict {
    pub(crate) fn run(self) -> Outcome<Ended> {
        let model = self.which.load()?;
        let mut before = 0;
        terminal::lines(TOGETHER, |texts| {
            let answer = |text: &String, answer: Answer| {
                if self.json {
                    terminal::print(of(text, &answer))
                } else {
                    let answer = answer.to_string();
                    let columns: Vec<String> = answer.split('\t').map(terminal::shown).collect();
                    terminal::print(columns.join("\t"))
                }
            };
            match model.predict(texts) {
                Ok(answers) => texts.iter().zip(answers).try_for_each(|(text, found)| answer(text, found))?,
                // One by one, so that those before a bad one are answered and it is named.
                Err(_) => {
                    for (i, text) in texts.iter().enumerate() {
                        match model.predict(&[text]) {
                            Ok(found) => found.into_iter().try_for_each(|found| answer(text, found))?,
                            Err(e) => {
                                let line = before + i + 1;
                                return bad(format!(
                                    "standard input, line {line}: {}",
                                    super::outcome::plain(&e)
                                ));
                            }
                        }
                    }
                }
            }
            before += texts.len();
            Ok(())
        })?;
        Ok(Ended::Done)
    }
}

/// An answer as JSON.
fn of(text: &str, answer: &Answer) -> Value {
    let x = |x: f32| json::number(f64::from(x));
    match answer {
        Answer::Label { label, probability, all, .. } => json::object([
            ("text", text.into()),
            ("label", label.as_str().into()),
            ("probability", x(*probability)),
            (
                "probabilities",
                json::numbers(&all.iter().map(|(l, p)| (l.clone(), f64::from(*p))).collect::<Vec<_>>()),
            ),
        ]),
        Answer::Tags { words, tags, label } => json::object([
            ("text", text.into()),
            ("words", words.clone().into()),
            ("tags", tags.clone().into()),
            ("label", label.as_ref().map_or(Value::Null, |(label, _)| label.as_str().into())),
            ("probability", label.as_ref().map_or(Value::Null, |(_, probability)| x(*probability))),
        ]),
        Answer::Text(found) => json::object([("text", text.into()), ("found", found.as_str().into())]),
    }
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  echo 'The models' | unpadded generate runs/lm-1 --length 200
  echo | unpadded generate runs/lm-1 --temperature 0.5 --seed 7")]
pub(crate) struct Generate {
    #[command(flatten)]
    which: Which,
    /// How many tokens to write, at most 100000
    #[arg(long, value_name = "NUMBER", default_value_t = 200, value_parser = clap::value_parser!(u32).range(..=100_000))]
    length: u32,
    /// Below 1 likely tokens become likelier, at 0 it is always the likeliest
    #[arg(long, value_name = "NUMBER", default_value_t = 0.8)]
    temperature: f64,
    /// Draw only from so many tokens, the likeliest
    #[arg(long, value_name = "NUMBER")]
    top_k: Option<usize>,
    /// Draw only from the likeliest tokens that together have this probability
    #[arg(long, value_name = "SHARE", default_value_t = 1.0)]
    top_p: f64,
    /// Where the draws start: equal seeds write equal texts
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A line of JSON for each text
    #[arg(long)]
    json: bool,
}

impl Generate {
    pub(crate) fn run(self) -> Outcome<Ended> {
        let Self { length, temperature, top_k, top_p, seed, .. } = self;
        let sampling = Sampling { temperature, top_k, top_p, ..Sampling::default() };
        sampling.sampler(seed).asked()?;
        let model = self.which.load()?;
        if model.task() != Task::Lm {
            let got = model.task().name();
            return bad(format!(
                "model: expected a language model (`lm`), got one of `{got}`: `unpadded predict` asks it"
            ));
        }
        terminal::lines(1, |texts| {
            for text in texts {
                let written = model.write(text, sampling, seed, length as usize)?;
                match self.json {
                    true => terminal::print(of(text, &Answer::Text(written)))?,
                    false => terminal::print(format!("{text}{written}"))?,
                }
            }
            Ok(())
        })?;
        Ok(Ended::Done)
    }
}

#[derive(Args)]
#[command(after_help = "Example:\n  unpadded eval runs/classify-1 test.tsv")]
pub(crate) struct Eval {
    #[command(flatten)]
    which: Which,
    /// The texts, with what is right, as for a training
    #[arg(value_name = "PATH")]
    data: String,
    /// End in a line of JSON
    #[arg(long)]
    json: bool,
}

impl Eval {
    pub(crate) fn run(self) -> Outcome<Ended> {
        let model = self.which.load()?;
        let mut config: Config = super::file::parse("config of the checkpoint", model.config())?;
        config.data.test = Some(self.data.clone());
        let data = unpadded::recipes::test_data(&config, &model).asked()?;
        let scores = model.predictor().evaluate(&*data).asked()?;
        for (name, value) in &scores.0 {
            let shown =
                if train::shares(name) { format!("{:.2} %", 100.0 * value) } else { format!("{value:.4}") };
            terminal::print(format!("{name}: {shown}"))?;
        }
        if self.json {
            let first = scores.0.iter().find(|(name, _)| name != "loss");
            let value = first.map(|(name, x)| if train::shares(name) { 100.0 * x } else { *x });
            terminal::print(json::object([
                ("dataset", self.data.as_str().into()),
                ("metric", first.map_or(Value::Null, |(name, _)| name.as_str().into())),
                ("value", value.map_or(Value::Null, json::number)),
                ("scores", json::numbers(&scores.0)),
            ]))?;
        }
        Ok(Ended::Done)
    }
}
