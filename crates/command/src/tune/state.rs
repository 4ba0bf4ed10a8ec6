//! The state of a hyperparameter search, as stored in tune.json.

use serde_json::{Value, json};
use unpadded::metrics::Unit;

use super::super::scores;

/// A trial of a search: a config with drawn values, and its results.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Trial {
    /// The number of the trial, from 1 on. Trial 1 has the given config without drawn values.
    pub(super) number: u64,
    /// The number of the draw, from which `Space::draw` computes the values of the trial; 0 for trial 1.
    pub(super) draw: u64,
    pub(super) settings: Vec<(String, Value)>,
    /// The number of rungs (stages of successive halving) that the trial has reached.
    pub(super) rungs: usize,
    /// The rung up to which the trial is being trained; 0 if the trial is not being trained.
    pub(super) toward: usize,
    pub(super) epochs: u64,
    /// The held-out metric of the trial's best epoch, and the number of this epoch; `None` before the first epoch ends.
    pub(super) best: Option<(f64, u64)>,
    /// The seconds that the training of the trial took, including reading data and scoring.
    pub(super) seconds: f64,
    /// The reason why the trial failed; `None` if the trial has not failed.
    pub(super) failed: Option<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct State {
    pub(super) seed: u64,
    /// The time budget of the search, in seconds.
    pub(super) budget: f64,
    /// The maximum number of trials (`--trials`); `None` if the flag is not set.
    pub(super) most: Option<u64>,
    /// The seconds that the search has used so far.
    pub(super) used: f64,
    pub(super) metric: String,
    pub(super) unit: Unit,
    /// Whether a higher value of the metric is better; `None` before the first trial is trained.
    pub(super) higher: Option<bool>,
    /// The rungs: the numbers of epochs at which trials are compared, in ascending order.
    pub(super) rungs: Vec<u64>,
    pub(super) trials: Vec<Trial>,
}

pub(super) fn value(setting: &unpadded_recipes::Value) -> Value {
    match setting {
        unpadded_recipes::Value::Flag(flag) => (*flag).into(),
        unpadded_recipes::Value::Int(number) => (*number).into(),
        unpadded_recipes::Value::Float(number) => (*number).into(),
        unpadded_recipes::Value::Text(text) => text.as_str().into(),
        unpadded_recipes::Value::List(texts) => texts.clone().into(),
        other => other.to_string().into(),
    }
}

impl Trial {
    pub(super) fn name(&self) -> String {
        format!("trial-{}", self.number)
    }

    fn object(&self) -> Value {
        let (value, epoch) = self.best.unzip();
        json!({
            "trial": self.number, "draw": self.draw, "settings": self.settings.iter().cloned().collect::<Value>(),
            "rungs": self.rungs, "toward": self.toward, "epochs": self.epochs,
            "value": value, "epoch": epoch, "seconds": self.seconds, "failed": self.failed,
        })
    }

    fn of(object: &Value) -> Option<Self> {
        let number = |name: &str| object.get(name)?.as_u64();
        let count = |name: &str| usize::try_from(number(name)?).ok();
        let settings = object.get("settings")?.as_object()?;
        Some(Self {
            number: number("trial")?,
            draw: number("draw")?,
            settings: settings.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
            rungs: count("rungs")?,
            toward: count("toward")?,
            epochs: number("epochs")?,
            best: object.get("value").and_then(Value::as_f64).zip(number("epoch")),
            seconds: object.get("seconds")?.as_f64()?,
            failed: object.get("failed")?.as_str().map(str::to_owned),
        })
    }
}

impl State {
    pub(super) fn object(&self) -> Value {
        json!({
            "seed": self.seed, "budget_seconds": self.budget, "most_trials": self.most, "seconds": self.used,
            "metric": self.metric, "share": self.unit == Unit::Share, "higher_is_better": self.higher,
            "rungs": self.rungs, "trials": self.trials.iter().map(Trial::object).collect::<Value>(),
        })
    }

    /// Parses the state of a search from the text of a tune.json.
    pub(super) fn of(text: &str) -> Result<Self, String> {
        let object: Value = serde_json::from_str(text).map_err(|e| format!("no JSON: {e}"))?;
        let found = (|| {
            let seconds = |name: &str| object.get(name)?.as_f64().filter(|seconds| *seconds >= 0.0);
            let trials = object.get("trials")?.as_array()?;
            let rungs = object.get("rungs")?.as_array()?;
            Some(Self {
                seed: object.get("seed")?.as_u64()?,
                budget: seconds("budget_seconds")?,
                most: object.get("most_trials").and_then(Value::as_u64),
                used: seconds("seconds")?,
                metric: object.get("metric")?.as_str()?.to_owned(),
                unit: scores::unit(object.get("share")?.as_bool()?),
                higher: object.get("higher_is_better").and_then(Value::as_bool),
                rungs: rungs.iter().map(Value::as_u64).collect::<Option<_>>()?,
                trials: trials.iter().map(Trial::of).collect::<Option<_>>()?,
            })
        })();
        found
            .filter(|state| state.rungs.is_sorted() && !state.rungs.is_empty())
            .ok_or_else(|| "an object without the trials of a search".to_owned())
    }

    /// Returns the trials with a value that have not failed, the best first; of equal trials, the earlier first.
    pub(super) fn ranked(&self) -> Vec<&Trial> {
        let value = |trial: &Trial| match (trial.best, self.higher) {
            (Some((value, _)), Some(false)) => value,
            (best, _) => best.map_or(f64::INFINITY, |(value, _)| -value),
        };
        let ends = |trial: &&Trial| trial.best.is_some() && trial.failed.is_none();
        let mut ranked: Vec<&Trial> = self.trials.iter().filter(ends).collect();
        ranked.sort_by(|a, b| value(a).total_cmp(&value(b)));
        ranked
    }

    pub(super) fn shown(&self, value: f64) -> String {
        scores::shown(self.unit, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_comes_back_from_its_file() {
        let trial = Trial {
            number: 2,
            draw: 3,
            settings: vec![("model.hidden".into(), 64.into()), ("model.pool".into(), "max".into())],
            rungs: 1,
            toward: 2,
            epochs: 5,
            best: Some((0.5, 4)),
            seconds: 1.25,
            failed: None,
        };
        let failed = Trial { number: 3, failed: Some("not finite".into()), ..Trial::default() };
        let state = State {
            seed: 1,
            budget: 60.0,
            most: Some(9),
            used: 1.5,
            metric: "accuracy".into(),
            unit: Unit::Share,
            higher: Some(true),
            rungs: vec![1, 3],
            trials: vec![Trial::default(), trial, failed],
        };
        assert_eq!(State::of(&state.object().to_string()), Ok(state.clone()));
        // A trial that failed later cannot be the best trial, even if it had the best value.
        let late =
            Trial { number: 4, best: Some((0.9, 1)), failed: Some("not finite".into()), ..Trial::default() };
        let with_late = State { trials: [state.trials.clone(), vec![late]].concat(), ..state };
        assert_eq!(with_late.ranked().iter().map(|trial| trial.number).collect::<Vec<_>>(), [2]);
        for wrong in ["", "[]", "{\"seed\":1}"] {
            assert!(State::of(wrong).is_err(), "{wrong}");
        }
    }
}
