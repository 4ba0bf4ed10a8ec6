//! The search space of the command `tune`: the settings that vary, each with its possible values.

use std::fmt;

use unpadded::data::Fingerprint;
use unpadded::{AtCaller, Error, Result};

use super::config::Config;
use super::sections::{SettingRules, Task};
use super::settings::{Value, float as number};

/// The tables of the settings that a search may vary, except `training.epochs`, which decides how long a training takes.
const SECTIONS: [&str; 3] = ["text", "model", "training"];
const EPOCHS: &str = "training.epochs";

/// A search space: the settings that a search varies, each with its possible values.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Space {
    settings: Vec<(String, Values)>,
}

/// The possible values of a setting, from which a search draws.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Values {
    /// A list of values; each value is drawn with equal probability.
    OneOf(Vec<Value>),
    /// A range of numbers from `from` to `to`; only whole numbers are drawn if both ends are whole numbers.
    Between {
        from: Value,
        to: Value,
        /// Whether the logarithm is drawn uniformly: a number from 1 to 10 is as likely as a number from 10 to 100.
        log: bool,
    },
}

impl fmt::Display for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Values::OneOf(values) => {
                let values: Vec<String> = values.iter().map(Value::to_string).collect();
                write!(f, "[{}]", values.join(", "))
            }
            Values::Between { from, to, log } => {
                let log = if *log { ", log = true" } else { "" };
                write!(f, "{{ from = {from}, to = {to}{log} }}")
            }
        }
    }
}

/// Formats the space as the lines of the table `[space]` in TOML.
impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.settings.iter().try_for_each(|(name, values)| writeln!(f, "{name} = {values}"))
    }
}

impl Space {
    /// Returns the default search space of a task, as the lines of the table `[space]`.
    pub(super) fn lines(task: Task) -> String {
        let tried = SettingRules::all().filter_map(|one| Some((one.key, one.tried(task)?)));
        tried.map(|(key, values)| format!("{key} = {values}\n")).collect()
    }

    /// Returns the names of the settings that the space varies.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.settings.iter().map(|(name, _)| name.as_str())
    }

    /// Removes each setting for which `decided` returns true, given the name of the setting.
    #[must_use]
    pub fn without(mut self, decided: impl Fn(&str) -> bool) -> Self {
        self.settings.retain(|(name, _)| !decided(name));
        self
    }

    /// Adds a setting; its values must be valid together with the other settings of the config.
    pub(super) fn add(&mut self, config: &Config, name: &str, values: Values) -> Result<()> {
        let section = name.split_once('.').map_or("", |(section, _)| section);
        if Config::has(config.run.task, name) && (!SECTIONS.contains(&section) || name == EPOCHS) {
            let expected = "a setting of `text`, `model` or `training` except `training.epochs`";
            return Err(Error::new("space", expected, format!("`{name}`")));
        }
        let ends: &[Value] = match &values {
            Values::OneOf(values) if values.is_empty() => {
                return Err(Error::new(name, "a list of values", "an empty list"));
            }
            Values::OneOf(values) => values,
            Values::Between { from, to, log } => {
                let ends = number(from).zip(number(to)).filter(|(from, to)| from < to);
                let least = if *log { 0.0 } else { f64::NEG_INFINITY };
                if ends.is_none_or(|(from, _)| from <= least) {
                    let above = if *log { "above 0 " } else { "" };
                    let expected = format!("two numbers {above}in `from` and `to`, the smaller one first");
                    return Err(Error::new(name, expected, values.to_string()));
                }
                &[from.clone(), to.clone()]
            }
        };
        for value in ends {
            let mut config = config.clone();
            config.set(name, value)?;
            // An error about another setting is ignored.
            if let Err(e) = config.check() {
                Error::all(&e).into_iter().find(|e| e.what() == name).map_or(Ok(()), |e| Err(e.clone()))?;
            }
        }
        self.settings.push((name.to_owned(), values));
        Ok(())
    }

    /// Returns a copy of the config in which each setting of the space has a randomly drawn value. Each value depends
    /// only on the seed, the number of the draw, and the name of the setting.
    ///
    /// ```
    /// use unpadded_recipes::{Config, Space, Task};
    /// let config = Config::new(Task::Classify);
    /// let space = Space::of(&config)?;
    /// let drawn = space.draw(&config, 1, 7)?;
    /// assert!((5e-4..=5e-3).contains(&drawn.training.rate) && drawn == space.draw(&config, 1, 7)?);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the task of the config does not have a setting of the space.
    #[track_caller]
    pub fn draw(&self, config: &Config, seed: u64, number: u64) -> Result<Config> {
        let mut config = config.clone();
        for (name, values) in &self.settings {
            let bits = Fingerprint::default().number(seed).number(number).text(name).finish();
            // `at` is a random number from 0 to below 1, with 53 bits.
            let at = (bits >> 11) as f64 / (1u64 << 53) as f64;
            if let Some(value) = values.at(at) {
                config.set(name, &value).at_caller()?;
            }
        }
        Ok(config)
    }
}

impl Values {
    /// Returns the value at the position `share` of the list or the range; `share` is from 0 to below 1.
    fn at(&self, share: f64) -> Option<Value> {
        match self {
            Values::OneOf(values) => values.get((share * values.len() as f64) as usize).cloned(),
            Values::Between { from, to, log } => {
                let (first, last) = (number(from)?, number(to)?);
                let between = |first: f64, last: f64| first + share * (last - first);
                Some(match (from, to) {
                    (Value::Int(from), Value::Int(to)) => {
                        // The number is drawn below `last + 1` and rounded down, so that `last` can be drawn, too.
                        let x = match log {
                            true => between(first.ln(), (last + 1.0).ln()).exp(),
                            false => between(first, last + 1.0),
                        };
                        Value::Int((x.floor() as i64).clamp(*from, *to))
                    }
                    _ => {
                        let x =
                            if *log { between(first.ln(), last.ln()).exp() } else { between(first, last) };
                        // The drawn number is rounded to three digits, which are enough and easy to read.
                        Value::Float(format!("{x:.2e}").parse().unwrap_or(x).clamp(first, last))
                    }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_drawn_from_all_of_the_space() {
        let drawn = |values: Values| -> Vec<f64> {
            (0..1_000).filter_map(|i| number(&values.at(f64::from(i) / 1_000.0)?)).collect()
        };
        let range = |from, to, log| drawn(Values::Between { from, to, log });
        let share = |numbers: &[f64], below: f64| numbers.iter().filter(|x| **x < below).count();
        let rates = range(Value::Float(1e-4), Value::Float(1e-2), true);
        assert!((499..=501).contains(&share(&rates, 1e-3)) && rates[0] == 1e-4, "{rates:?}");
        assert_eq!(share(&range(Value::Float(0.0), Value::Int(1), false), 0.25), 250);
        let whole = range(Value::Int(1), Value::Int(4), false);
        assert_eq!([2.0, 3.0, 4.0, 5.0].map(|x| share(&whole, x)), [250, 500, 750, 1_000]);
        let powers = range(Value::Int(8), Value::Int(512), true);
        assert!(powers[0] == 8.0 && powers[999] > 505.0 && share(&powers, 64.0) > 480);
        let list = drawn(Values::OneOf(vec![Value::Int(3), Value::Int(5)]));
        assert_eq!(share(&list, 4.0), 500);
    }
}
