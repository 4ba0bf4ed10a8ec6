//! The compiler: from a program to a plan, by one analysis after another.
//!
//! Each analysis is a function from earlier results to a result of its own, and a file. [`saved`]: the forward values that are
//! kept for the backward pass. [`blocks`]: the operators that leave each loop, and why. [`schedule`]: the calls in the order of
//! the run. [`layouts`]: the rows that stay in step-major order. [`writers`]: the contributions to gradients that are written,
//! and the contributions that are added. [`slots`]: the slot of each variable. [`build`] makes the instructions from these
//! results. The [`lives`] of the slots decide which slots can share one of the [`buffers`]; [`finish`] numbers the instructions.

mod blocks;
mod buffers;
mod build;
mod chains;
mod effort;
mod finish;
mod layouts;
mod lives;
mod loops;
mod pools;
mod saved;
mod schedule;
mod slots;
mod source;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod text;
mod writers;

use crate::error::Result;
use crate::executor::plan::{Plan, Slot};
use crate::executor::rewrite::needs::{live, started};
use crate::executor::rewrite::rewrite;
use crate::operator::{Registry, VarId};
use crate::program::Program;

/// Compiles a program for the wanted variables; `nexts` are variables of the root block that pass from run to run, like a
/// memory from step to step.
pub(crate) fn compile(
    program: &Program,
    registry: &Registry,
    wanted: &[VarId],
    nexts: &[VarId],
) -> Result<Plan> {
    program.validate()?;
    program.check_steps()?;
    let needed = live(program, wanted)?;
    program.check_shapes(registry, &needed)?;
    program.check_order(&needed)?;
    let rewritten = rewrite(program, registry, wanted)?;
    let source = source::Source::new(&rewritten, registry, wanted, nexts)?;
    // The losses, whose gradients start as ones, are checked before the updates.
    let losses: Vec<VarId> = source.live.iter().flat_map(|&number| started(source.program, number)).collect();
    let fetched: Vec<VarId> = wanted.iter().chain(&losses).copied().collect();

    let saved = saved::saved(&source)?;
    let blocks = blocks::blocks(&source, &saved)?;
    let schedule = schedule::schedule(&source, &blocks)?;
    let layouts = layouts::layouts(&source, &blocks, &schedule)?;
    let writers = writers::writers(&source, &blocks, &schedule, &layouts)?;
    let slots = slots::slots(&source, &blocks, &schedule, &layouts, &writers, &fetched)?;
    let found = build::Analysis {
        source: &source,
        blocks: &blocks,
        layouts: &layouts,
        writers: &writers,
        slots: &slots,
    };
    let groups = build::build(&found, &schedule)?;
    let (groups, chains) = chains::root(groups, &slots.slots);
    let kept: Vec<usize> = fetched.iter().filter_map(|&var| slots.slot_of(var)).collect();
    let lives = lives::lives(&groups, &slots, &kept);
    let chain_lives: Vec<_> = chains.iter().map(|chain| lives.of_chain(chain)).collect();
    let mut finished = finish::finish(groups, &slots, &lives);
    let of_var = (0..source.program.vars().len() as u32).map(|var| slots.slot_of(VarId(var))).collect();
    let (views, same) = (blocks.views(), blocks.same());
    let losses = losses.iter().filter_map(|&var| slots.slot_of(var)).collect();
    let (of_slot, buffers) = buffers::assign(&slots.slots, &lives.of_slot, &chain_lives);
    let (pool_of, pools) = pools::assign(&slots, &lives.of_slot, &mut finished.code);
    let placed = slots.slots.iter().zip(&lives.of_slot).zip(of_slot.iter().zip(&pool_of));
    let placed = placed.map(|((desc, &life), (&buffer, &pool))| {
        let slots::SlotDesc { var, dtype, width, rows, home, persistent, alias, .. } = *desc;
        Slot { var, dtype, width, rows, home, buffer, life, persistent, alias, pool }
    });
    Ok(Plan {
        slots: placed.collect(),
        code: finished.code,
        chains,
        of_var,
        buffers,
        pools,
        prepared: finished.prepared,
        instructions: finished.instructions,
        keyed: layouts.keyed,
        losses,
        views,
        same,
        program: rewritten.program,
        refused: rewritten.refused,
    })
}
