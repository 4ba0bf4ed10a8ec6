//! Quiet steps: the steps during which no neighbour of a shared machine slowed a thread.
//!
//! On a shared machine, one core may compute at 0.4 to 0.6 of its rate for 0.1 to tens of seconds, and no load or stolen time shows
//! it. Before and after each step, outside of its time, a probe therefore measures all threads at once.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use unpadded::kernels::peak::Probe;

use crate::Outcome;

/// The minimum rate of the slowest thread in a quiet step, relative to the best rate of a thread.
const QUIET: f64 = 0.9;

/// The bits of the best rate of a thread in this process; positive numbers have the order of their bits.
static BEST: AtomicU64 = AtomicU64::new(0);

/// A step that was timed.
pub(crate) struct Step {
    pub(crate) seconds: f64,
    pub(crate) tokens: f64,
    pub(crate) loss: f64,
    /// The rate of the slowest thread in the probes before and after the step.
    slowest: f64,
}

impl Step {
    /// Times a step of `n` tokens between two probes; its loss is NaN.
    pub(crate) fn time(probe: &mut Probe, n: usize, run: impl FnOnce() -> Outcome<()>) -> Outcome<Self> {
        let before = slowest(probe);
        let clock = Instant::now();
        run()?;
        let seconds = clock.elapsed().as_secs_f64();
        Ok(Self { seconds, tokens: n as f64, loss: f64::NAN, slowest: before.min(slowest(probe)) })
    }

    /// The tokens per second.
    pub(crate) fn rate(&self) -> f64 {
        self.tokens / self.seconds
    }
}

/// Runs the probe, and returns the rate of the slowest thread. A result that is younger than 50 ms is used again: many probes
/// would disturb short steps.
fn slowest(probe: &mut Probe) -> f64 {
    static LAST: Mutex<Option<(Instant, f64)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match *last {
        Some((at, slowest)) if at.elapsed() < Duration::from_millis(50) => slowest,
        _ => {
            // The threads of the step look for more work for a while before they sleep.
            std::thread::sleep(Duration::from_micros(300));
            let rate = probe.rate();
            BEST.fetch_max(rate.fastest.to_bits(), Ordering::Relaxed);
            *last = Some((Instant::now(), rate.slowest));
            rate.slowest
        }
    }
}

/// Returns the fields of JSON: the share of quiet steps, and their median rate, `null` without a quiet step.
pub(crate) fn fields(steps: &[Step]) -> String {
    let least = QUIET * f64::from_bits(BEST.load(Ordering::Relaxed));
    let mut rates: Vec<f64> = steps.iter().filter(|s| s.slowest >= least).map(Step::rate).collect();
    rates.sort_by(f64::total_cmp);
    let median = rates.get(rates.len() / 2).map_or("null".to_owned(), |rate| format!("{rate:.0}"));
    let share = rates.len() as f64 / steps.len() as f64;
    format!(r#","quiet_share":{share:.2},"tokens_per_s_quiet":{median}"#)
}
