//! Successive halving within a time budget: decides which trial is trained next, and up to which epoch. (Jamieson and
//! Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", 2016.)
//!
//! A rung is a number of epochs at which trials are compared: a ninth, a third, and all epochs. Every trial is trained to the first
//! rung, and the best third of the trials of a rung to the next rung. Each rung has a share of the time budget, so that some trials
//! reach the last rung even if training is slow.

use super::state::{State, Trial};

/// The best third advances: one of `ONE_IN` trials is trained from a rung to the next rung.
const ONE_IN: usize = 3;
/// The maximum number of trials that a search draws; there is a limit because each trial writes its own files.
const MOST: usize = 1_000;
/// The number of failed trials in a row after which a search ends.
const ALL_FAILED: usize = 10;

/// The next step of a hyperparameter search.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Step {
    /// Draw a new config and train this trial to the first rung.
    Draw,
    /// Train the trial with this index up to this rung; rungs are numbered from 1 on.
    Train(usize, usize),
    /// End the search: no further step fits into the time budget, or too many trials have failed in a row.
    End,
}

/// Returns the rungs: the numbers of epochs at which trials are compared.
pub(super) fn rungs(epochs: u64) -> Vec<u64> {
    let part = |divisor: f64| ((epochs as f64 / divisor).round() as u64).max(1);
    let mut rungs = vec![part(9.0), part(3.0), epochs];
    rungs.dedup();
    rungs
}

/// Returns the next step of a search; `drawn` is whether there are configs left to draw.
pub(super) fn next(state: &State, drawn: bool) -> Step {
    if state.used >= state.budget {
        return Step::End;
    }
    // A trial that was interrupted is trained to its rung first.
    if let Some(at) = state.trials.iter().position(|trial| trial.toward > 0) {
        return Step::Train(at, state.trials.get(at).map_or(0, |trial| trial.toward));
    }
    let count = state.trials.len();
    let failed = state.trials.iter().rev().take_while(|trial| trial.failed.is_some()).count();
    if failed >= ALL_FAILED {
        return Step::End;
    }
    let draws = drawn && count < MOST && state.most.is_none_or(|most| (count as u64) < most);
    let ends = ends(state);
    for (&end, rung) in ends.iter().zip(1..) {
        if rung == 1 {
            if draws && fits(state, end, 1, None) {
                return Step::Draw;
            }
        } else if let Some(at) = waiting(state, rung, end, rung < ends.len()) {
            return Step::Train(at, rung);
        }
    }
    // If the number of trials is not limited, the remaining time is used first for later rungs, then for new trials.
    if state.most.is_none() {
        let next =
            (2..=ends.len()).rev().find_map(|rung| Some((waiting(state, rung, state.budget, false)?, rung)));
        if let Some((at, rung)) = next {
            return Step::Train(at, rung);
        }
        if draws && fits(state, state.budget, 1, None) {
            return Step::Draw;
        }
    }
    Step::End
}

/// Returns the index of the best trial that can reach a rung by the time `end`, with `third` only of the best third; else `None`.
/// Trial 1, the given config, comes first: it may learn slowly, but the result should not be worse than the given config.
fn waiting(state: &State, rung: usize, end: f64, third: bool) -> Option<usize> {
    let reached = |trial: &&Trial| trial.rungs + 1 >= rung && trial.failed.is_none();
    let mut ranked: Vec<&Trial> = state.ranked().into_iter().filter(reached).collect();
    let third = if third { ranked.len().div_ceil(ONE_IN) } else { ranked.len() };
    let given = ranked.iter().find(|trial| trial.number == 1).copied();
    ranked.truncate(third);
    ranked.splice(0..0, given);
    let next = ranked.into_iter().find(|trial| trial.rungs < rung && fits(state, end, rung, Some(trial)))?;
    state.trials.iter().position(|trial| trial.number == next.number)
}

/// Returns the end time of each rung, in seconds from the start of the search. Each rung gets time in proportion to its
/// training epochs, assuming that a third of the trials advances from rung to rung.
fn ends(state: &State) -> Vec<f64> {
    let mut trials = 1.0;
    let mut sums = vec![0.0];
    for (at, epochs) in state.rungs.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|at| state.rungs.get(at)).copied().unwrap_or(0);
        sums.push(sums.last().copied().unwrap_or(0.0) + trials * epochs.saturating_sub(before) as f64);
        trials /= ONE_IN as f64;
    }
    let whole = sums.last().copied().unwrap_or(1.0).max(1.0);
    sums.iter().skip(1).map(|sum| state.budget * sum / whole).collect()
}

/// Returns whether a trial (`None`: a new one) would reach a rung in time, by its mean time per epoch or, before its first epoch, the
/// mean of all trials, and by the mean epochs of the trials that have reached the rung, since some stop early. As long as none
/// has, a trial may use the rest of the time budget.
fn fits(state: &State, end: f64, rung: usize, trial: Option<&Trial>) -> bool {
    let per_epoch = |trials: &mut dyn Iterator<Item = &Trial>| {
        let sums =
            trials.fold((0.0, 0), |(seconds, epochs), one| (seconds + one.seconds, epochs + one.epochs));
        (sums.1 > 0).then(|| sums.0 / sums.1 as f64)
    };
    let all = per_epoch(&mut state.trials.iter());
    let own = trial.and_then(|trial| per_epoch(&mut std::iter::once(trial))).or(all);
    let whole = rung.checked_sub(1).and_then(|at| state.rungs.get(at)).copied().unwrap_or(0);
    let reached: Vec<u64> =
        state.trials.iter().filter(|one| one.rungs >= rung).map(|one| one.epochs.min(whole)).collect();
    let usual = match reached.len() {
        0 => whole as f64,
        count => reached.iter().sum::<u64>() as f64 / count as f64,
    };
    let left = (usual - trial.map_or(0, |trial| trial.epochs) as f64).max(1.0);
    let end = if reached.is_empty() { state.budget } else { end };
    // At the start of a search, the time per epoch is unknown, so the trial is assumed to fit.
    own.is_none_or(|seconds| state.used + left * seconds <= end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use unpadded::metrics::Unit;

    fn search(budget: f64, most: Option<u64>) -> State {
        State {
            seed: 1,
            budget,
            most,
            used: 0.0,
            metric: "accuracy".into(),
            unit: Unit::Share,
            higher: Some(true),
            rungs: rungs(27),
            trials: Vec::new(),
        }
    }

    /// Runs all steps of a search with one second per epoch; the closer a trial's number is to 10, the better it is.
    fn made(state: &mut State) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let step = next(state, true);
            steps.push(step);
            let (at, rung) = match step {
                Step::End => return steps,
                Step::Draw => {
                    let number = state.trials.len() as u64 + 1;
                    state.trials.push(Trial { number, ..Trial::default() });
                    (state.trials.len() - 1, 1)
                }
                Step::Train(at, rung) => (at, rung),
            };
            let trial = &mut state.trials[at];
            let taken = state.rungs[rung - 1] - trial.epochs;
            (trial.rungs, trial.epochs) = (rung, state.rungs[rung - 1]);
            trial.best = Some((-(trial.number as f64 - 10.0).abs(), 1));
            trial.seconds += taken as f64;
            state.used += taken as f64;
            assert!(steps.len() < 1_000 && state.used <= state.budget);
        }
    }

    #[test]
    fn the_best_third_goes_on() {
        let expected = [vec![1], vec![1, 2], vec![1, 3, 8], vec![2, 5, 15], vec![3, 10, 30]];
        assert_eq!([1, 2, 8, 15, 30].map(rungs), expected);
        let mut state = search(1e6, Some(9));
        let steps = made(&mut state);
        assert!(steps.starts_with(&[Step::Draw; 9]) && steps.get(9) == Some(&Step::Train(0, 2)), "{steps:?}");
        assert_eq!(steps.get(10), Some(&Step::Train(8, 2)), "{steps:?}");
        // Including trial 1, four trials reach the second rung, and all four have enough time to reach the last rung.
        let rungs = |least: usize| state.trials.iter().filter(|trial| trial.rungs >= least).count();
        assert_eq!((rungs(2), rungs(3)), (4, 4));
    }

    #[test]
    fn each_rung_has_its_share_of_the_time() {
        // The time budget suffices for ten whole trainings.
        let mut state = search(270.0, None);
        made(&mut state);
        let rungs = |least: usize| state.trials.iter().filter(|trial| trial.rungs >= least).count();
        assert!((36..=39).contains(&rungs(1)) && (11..=14).contains(&rungs(2)), "{:?}", [1, 2, 3].map(rungs));
        assert!((3..=5).contains(&rungs(3)) && state.trials[9].rungs == 3, "{:?}", [1, 2, 3].map(rungs));
        // Trial 1 was the worst trial after the first rung, but is trained to the end.
        assert_eq!(state.trials[0].rungs, 3);
        // The budget is less than one training: the best of a few trials is trained until the time is used.
        let mut state = search(20.0, None);
        made(&mut state);
        let trials = &state.trials;
        assert!(trials.len() > 1 && trials.iter().any(|trial| trial.rungs == 2), "{trials:?}");
    }

    #[test]
    fn what_failed_or_would_not_fit_is_left() {
        let mut state = search(1e6, Some(9));
        state.trials = (1..=9)
            .map(|number| Trial { number, rungs: 1, epochs: 3, seconds: 3.0, ..Trial::default() })
            .collect();
        for trial in &mut state.trials {
            trial.best = Some((trial.number as f64, 1));
        }
        state.trials[0].rungs = 3;
        (state.trials[8].failed, state.trials[8].best) = (Some("not finite".into()), None);
        assert_eq!(next(&state, true), Step::Train(7, 2));
        // A trial whose epochs take too long is skipped.
        state.trials[7].seconds = 3e6;
        assert_eq!(next(&state, true), Step::Train(6, 2));
        state.trials[2].toward = 2;
        assert_eq!(next(&state, true), Step::Train(2, 2));
        state.used = state.budget;
        assert_eq!(next(&state, true), Step::End);
        // For a loss, the trial with the lowest value is the best.
        (state.used, state.higher, state.trials[2].toward) = (0.0, Some(false), 0);
        assert_eq!(next(&state, true), Step::Train(1, 2));
        assert_eq!(next(&search(1.0, None), false), Step::End);
    }
}
