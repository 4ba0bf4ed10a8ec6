//! Beam search over many sources at once.

use super::generated::Hypotheses;
use super::options::{Beam, Generation};
use super::rules::Rules;
use super::search::{Running, Scratch, Search, StepOutput};
use super::steps::{Steps, logits_of, rooms};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Threads;

/// The maximum number of logits in one step of a beam search: 2²⁸, or 1 GiB. A beam above this limit is an error; without the
/// limit, a failed allocation would end the process.
const MOST_LOGITS: usize = 1 << 28;

/// Searches the best hypotheses of each source. The hypotheses of a source depend neither on the other sources nor on the
/// number of threads.
///
/// # Errors
/// If an option is invalid, or names a token that the model does not score; if the model fails, or returns a score that is NaN
/// or positive infinity; if there is a coverage penalty, but the model has no attention output.
pub(crate) fn beam(
    steps: &mut dyn Steps,
    sources: usize,
    options: &Generation,
    beam: &Beam,
    threads: &Threads,
) -> Result<Hypotheses> {
    check(beam)?;
    let classes = steps.classes();
    let rules = Rules::new(options, classes, sources)?;
    let mut active: Vec<Search<'_>> = (0..sources).map(|i| Search::new(&rules, *beam, i)).collect();
    let mut found: Vec<_> = (0..sources).map(|_| Vec::new()).collect();
    let mut parents: Vec<usize> = (0..sources).collect();
    let mut tokens = vec![rules.start; sources];
    let mut room: Vec<Scratch> = Vec::new();
    for step in 0..rules.max_steps {
        if active.is_empty() {
            break;
        }
        if parents.len().saturating_mul(classes) > MOST_LOGITS {
            let expected = format!(
                "at most {} with {classes} logits each; use a narrower beam or fewer sources",
                MOST_LOGITS / classes
            );
            let got = parents.len().to_string();
            return Err(Error::of(ErrorKind::Program, format!("hypotheses at step {step}"), expected, got));
        }
        steps.advance(&parents, &tokens)?;
        let logits = logits_of(steps, parents.len())?;
        let attention = if beam.coverage > 0.0 { Some(attention_of(steps)?) } else { None };
        let output = StepOutput { step, classes, logits, attention };
        room.resize_with(rooms(threads, logits.len()), Scratch::default);
        threads.divide(&mut active, &mut room, |_, search, room| {
            search.failed = search.step(output, room).err();
        });
        // If several sources fail, the error of the first failed source is returned, even if the thread of another
        // source failed earlier.
        if let Some(error) = active.iter_mut().find_map(|search| search.failed.take()) {
            return Err(error);
        }
        parents.clear();
        tokens.clear();
        for search in &mut active {
            let before = std::mem::replace(&mut search.first, parents.len());
            parents.extend(search.running.iter().map(|Running { parent, .. }| before + parent));
            tokens.extend(search.running.iter().map(|Running { token, .. }| *token as i64));
        }
        for done in active.extract_if(.., |search| search.running.is_empty()) {
            let source = done.source;
            found[source] = done.found();
        }
    }
    Hypotheses::new(found)
}

fn attention_of(steps: &dyn Steps) -> Result<(&[f32], &[usize])> {
    steps.attention()?.ok_or_else(|| {
        let expected = "a model with an attention output";
        Error::new("coverage penalty", expected, "a model without one")
    })
}

fn check(beam: &Beam) -> Result<()> {
    let Beam { width, n_best, length, coverage, .. } = *beam;
    if let Some((what, _)) = [("width of a beam", width), ("n_best", n_best)].iter().find(|one| one.1 == 0) {
        return Err(Error::new(*what, "at least 1", "0"));
    }
    if n_best > width {
        let expected = format!("at most the width of the beam, {width}");
        return Err(Error::new("n_best", expected, n_best.to_string()));
    }
    let penalties = [("length penalty", length), ("coverage penalty", coverage)];
    if let Some((what, got)) = penalties.iter().find(|one| !(one.1 >= 0.0 && one.1.is_finite())) {
        return Err(Error::new(*what, "a finite number from 0 on", got.to_string()));
    }
    Ok(())
}
