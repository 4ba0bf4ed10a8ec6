//! The rules of a generation, which decide the allowed continuations of a hypothesis. The rules are made from the
//! options and checked against a model.

use super::options::{Generation, Prefixes};
use crate::error::{Error, Result};

/// The maximum number of required tokens: 64, since a set of required tokens is stored as the bits of a u64.
const MOST_REQUIRED: usize = u64::BITS as usize;

/// The checked options of a generation; tokens are indices into a row of logits.
pub(super) struct Rules {
    pub(super) start: i64,
    pub(super) max_steps: usize,
    stop: Option<usize>,
    min_steps: usize,
    /// The forced prefixes: a single prefix for all sources, or a prefix for each source.
    prefixes: Vec<Vec<usize>>,
    /// The banned tokens, ascending, without duplicates.
    banned: Vec<usize>,
    /// The required tokens, ascending, without duplicates.
    required: Vec<usize>,
    repetition: f64,
}

/// The allowed continuations of a hypothesis.
#[derive(Debug, PartialEq)]
pub(super) enum Choice {
    /// Only the next token of the forced prefix is allowed.
    Only(usize),
    /// Only required tokens that the hypothesis lacks are allowed, since no steps are left for other tokens.
    Missing,
    /// All tokens are allowed, except banned tokens and, if `stop` is false, the stop token.
    Any { stop: bool },
}

impl Rules {
    pub(super) fn new(options: &Generation, classes: usize, sources: usize) -> Result<Self> {
        let Generation { start, stop, max_steps, min_steps, prefixes, banned, required, repetition, .. } =
            options;
        if classes == 0 {
            return Err(Error::new("classes that a model scores", "at least 1", "0"));
        }
        let token = |what: &str, token: i64| match usize::try_from(token) {
            Ok(token) if token < classes => Ok(token),
            _ => Err(Error::new(what, format!("a number from 0 on, below {classes}"), token.to_string())),
        };
        let set = |what: &str, tokens: &[i64]| {
            let mut set = tokens.iter().map(|&one| token(what, one)).collect::<Result<Vec<usize>>>()?;
            set.sort_unstable();
            set.dedup();
            Ok::<_, Error>(set)
        };
        if *start < 0 {
            return Err(Error::new("start token", "a number from 0 on", start.to_string()));
        }
        let stop = stop.map(|stop| token("stop token", stop)).transpose()?;
        if *max_steps == 0 {
            return Err(Error::new("max_steps", "at least 1", "0"));
        }
        if min_steps > max_steps {
            let expected = format!("at most max_steps, {max_steps}");
            return Err(Error::new("min_steps", expected, min_steps.to_string()));
        }
        if !(repetition.is_finite() && *repetition > 0.0) {
            return Err(Error::new("repetition penalty", "a finite number above 0", repetition.to_string()));
        }
        let (banned, required) = (set("banned token", banned)?, set("required token", required)?);
        let not_stop = |what: &str, tokens: &[usize]| match stop.filter(|stop| tokens.contains(stop)) {
            Some(stop) => Err(Error::new(what, "a token other than the stop token", stop.to_string())),
            None => Ok(()),
        };
        let not_banned = |what: &str, tokens: &[usize]| match tokens
            .iter()
            .find(|token| banned.binary_search(token).is_ok())
        {
            Some(token) => Err(Error::new(what, "a token that is not banned", token.to_string())),
            None => Ok(()),
        };
        not_stop("banned token", &banned)?;
        not_stop("required token", &required)?;
        not_banned("required token", &required)?;
        if required.len() > MOST_REQUIRED {
            let expected = format!("at most {MOST_REQUIRED}");
            return Err(Error::new("required tokens", expected, required.len().to_string()));
        }
        let lists = match prefixes {
            Prefixes::All(prefix) => std::slice::from_ref(prefix),
            Prefixes::Each(prefixes) if prefixes.len() == sources => &prefixes[..],
            Prefixes::Each(prefixes) => {
                let expected = format!("one for each of {sources} sources");
                return Err(Error::new("prefixes", expected, prefixes.len().to_string()));
            }
        };
        let mut prefixes = Vec::with_capacity(lists.len());
        for list in lists {
            let prefix: Vec<usize> =
                list.iter().map(|&one| token("token of a prefix", one)).collect::<Result<_>>()?;
            not_stop("token of a prefix", &prefix)?;
            not_banned("token of a prefix", &prefix)?;
            let needed = prefix.len() + required.iter().filter(|token| !prefix.contains(token)).count();
            if needed > *max_steps {
                let expected = format!("at least {needed}, for a prefix and the required tokens");
                return Err(Error::new("max_steps", expected, max_steps.to_string()));
            }
            prefixes.push(prefix);
        }
        let (start, max_steps, min_steps, repetition) = (*start, *max_steps, *min_steps, *repetition);
        Ok(Self { start, max_steps, stop, min_steps, prefixes, banned, required, repetition })
    }

    /// Returns the allowed continuations of a hypothesis of `step` tokens that already has the required tokens `met`. Every
    /// allowed continuation leaves enough steps for the required tokens that the hypothesis lacks.
    pub(super) fn choice(&self, source: usize, step: usize, met: u64) -> Choice {
        let prefix = if let [one] = &self.prefixes[..] { one } else { &self.prefixes[source] };
        if let Some(&token) = prefix.get(step) {
            return Choice::Only(token);
        }
        let missing = self.required.len() - met.count_ones() as usize;
        if missing > 0 && missing >= self.max_steps - step {
            return Choice::Missing;
        }
        Choice::Any { stop: missing == 0 && step >= self.min_steps }
    }

    pub(super) fn stop(&self) -> Option<usize> {
        self.stop
    }

    pub(super) fn required(&self) -> usize {
        self.required.len()
    }

    /// Adds `token` to the set `met` if `token` is a required token, and returns the set. Bit i of the set is 1 if the set has
    /// the required token with index i.
    pub(super) fn meet(&self, met: u64, token: usize) -> u64 {
        self.required.binary_search(&token).map_or(met, |i| met | 1 << i)
    }

    /// Iterates over the required tokens that are not in `met`.
    pub(super) fn missing(&self, met: u64) -> impl Iterator<Item = usize> + '_ {
        self.required.iter().enumerate().filter(move |(i, _)| met >> i & 1 == 0).map(|(_, &token)| token)
    }

    /// Returns the banned tokens in ascending order.
    pub(super) fn banned(&self) -> &[usize] {
        &self.banned
    }

    /// Returns the logits of a hypothesis after the repetition penalty, and the largest of these logits. If the penalty
    /// is 1, the result is `logits` itself; else the result is a changed copy in `room`.
    pub(super) fn penalised<'a>(
        &self,
        logits: &'a [f32],
        most: f32,
        tokens: impl Iterator<Item = usize>,
        room: &'a mut Vec<f32>,
    ) -> (&'a [f32], f32) {
        if self.repetition == 1.0 {
            return (logits, most);
        }
        room.clear();
        room.extend_from_slice(logits);
        // Each new logit is computed from the model's logit, so that the penalty applies only once to a token that
        // occurs twice.
        for (token, logit) in tokens.map(|token| (token, logits[token])).filter(|(_, x)| x.is_finite()) {
            let logit = f64::from(logit);
            let changed = if logit > 0.0 { logit / self.repetition } else { logit * self.repetition };
            room[token] = changed.clamp(f32::MIN.into(), f32::MAX.into()) as f32;
        }
        let most = room.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        (room, most)
    }
}
