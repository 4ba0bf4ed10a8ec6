//! Sampling: generates one hypothesis per source, drawn token by token.

use super::generated::{FinishedHypothesis, Hypotheses};
use super::options::Generation;
use super::rules::{Choice, Rules};
use super::steps::{Steps, logits_of, rooms, wrong_logit};
use crate::error::{Error, Result};
use crate::executor::Threads;
use crate::predict::logits::{largest, log_sum_exp};
use crate::predict::sampling::{Sampler, Sampling};

/// Generates one hypothesis for each source. Each step takes the likeliest token if the temperature is 0, else a random
/// token. A random draw depends on the seed, the index of the source (from `numbers`) and the step, but neither on
/// other sources nor on the number of threads.
///
/// A source has no hypothesis if no token is possible at one of its steps.
///
/// # Errors
/// If `numbers` does not have one index per source; if an option is invalid, or names a token that the model does not score; if
/// the model fails, or returns a score that is NaN or positive infinity.
pub(crate) fn sample(
    steps: &mut dyn Steps,
    sources: usize,
    numbers: &[u64],
    options: &Generation,
    sampling: Sampling,
    seed: u64,
    threads: &Threads,
) -> Result<Hypotheses> {
    if numbers.len() != sources {
        let expected = format!("one for each of {sources} sources");
        return Err(Error::new("numbers of sources", expected, numbers.len().to_string()));
    }
    let sampler = sampling.sampler(seed)?;
    let classes = steps.classes();
    let rules = Rules::new(options, classes, sources)?;
    let mut active: Vec<Line> = numbers.iter().enumerate().map(|(i, &number)| Line::new(i, number)).collect();
    let mut found: Vec<_> = (0..sources).map(|_| Vec::new()).collect();
    let mut parents: Vec<usize> = (0..sources).collect();
    let mut tokens = vec![rules.start; sources];
    let mut room: Vec<Scratch> = Vec::new();
    for step in 0..rules.max_steps {
        if active.is_empty() {
            break;
        }
        steps.advance(&parents, &tokens)?;
        let logits = logits_of(steps, active.len())?;
        room.resize_with(rooms(threads, logits.len()), || Scratch::new(&sampler));
        threads.divide(&mut active, &mut room, |i, line, room| {
            line.next = line.step(&rules, step, &logits[i * classes..(i + 1) * classes], room);
        });
        parents.clear();
        tokens.clear();
        for (i, mut line) in std::mem::take(&mut active).into_iter().enumerate() {
            // If several sources fail, the error of the first failed source is returned, even if the thread of another
            // source failed earlier.
            let Some(token) = std::mem::replace(&mut line.next, Ok(None))? else { continue };
            let stopped = rules.stop() == Some(token);
            if !stopped {
                line.tokens.push(token as i64);
            }
            if stopped || step + 1 == rules.max_steps {
                let Line { source, tokens, sum: score, .. } = line;
                found[source].push(FinishedHypothesis { tokens, score, stopped });
                continue;
            }
            parents.push(i);
            tokens.push(token as i64);
            active.push(line);
        }
    }
    Hypotheses::new(found)
}

/// The hypothesis of a source while its tokens are drawn.
struct Line {
    source: usize,
    number: u64,
    tokens: Vec<i64>,
    sum: f64,
    /// The required tokens that the hypothesis already has, as a set of bits.
    met: u64,
    /// The next token; `None` if no token is possible.
    next: Result<Option<usize>>,
}

/// The buffers of a thread; the sources that the thread works on use the buffers one after another.
struct Scratch {
    sampler: Sampler,
    changed: Vec<f32>,
    allowed: Vec<f32>,
}

impl Scratch {
    fn new(sampler: &Sampler) -> Self {
        Self { sampler: sampler.clone(), changed: Vec::new(), allowed: Vec::new() }
    }
}

impl Line {
    fn new(source: usize, number: u64) -> Self {
        Self { source, number, tokens: Vec::new(), sum: 0.0, met: 0, next: Ok(None) }
    }

    /// Draws the next token from a row of logits; `None` if no token is possible.
    fn step(&mut self, rules: &Rules, step: usize, row: &[f32], room: &mut Scratch) -> Result<Option<usize>> {
        let Scratch { sampler, changed, allowed } = room;
        let most = largest(row).map_err(|wrong| wrong_logit(wrong, self.source, step))?;
        let before = self.tokens.iter().map(|&token| token as usize);
        let (row, most) = rules.penalised(row, most, before, changed);
        if most == f32::NEG_INFINITY {
            return Ok(None);
        }
        allowed.clear();
        let token = match rules.choice(self.source, step, self.met) {
            Choice::Only(token) => Some(token),
            Choice::Missing => {
                allowed.resize(row.len(), f32::NEG_INFINITY);
                rules.missing(self.met).for_each(|token| allowed[token] = row[token]);
                None
            }
            Choice::Any { stop } => {
                let no_stop = rules.stop().filter(|_| !stop);
                if no_stop.is_some() || !rules.banned().is_empty() {
                    allowed.extend_from_slice(row);
                    let excluded = rules.banned().iter().copied().chain(no_stop);
                    excluded.for_each(|token| allowed[token] = f32::NEG_INFINITY);
                }
                None
            }
        };
        let token = match token {
            Some(token) => token,
            None => {
                let logits = if allowed.is_empty() { row } else { &allowed[..] };
                if !logits.iter().any(|&logit| logit > f32::NEG_INFINITY) {
                    return Ok(None);
                }
                sampler.draw_at(self.number, step as u64, logits)? as usize
            }
        };
        if row[token] == f32::NEG_INFINITY {
            return Ok(None);
        }
        self.sum += f64::from(row[token]) - log_sum_exp(row, most);
        self.met = rules.meet(self.met, token);
        Ok(Some(token))
    }
}
