//! The compiler: turns a program into a plan by a fixed order of analyses.
//!
//! Each analysis is one function in one file: it reads the results of earlier analyses and returns a result of its own.
//! [`saved`] finds the forward values that are kept for the backward pass. [`blocks`] decides which operators leave
//! each recurrent loop, and why. [`schedule`] lists the calls in the order of the run. [`layouts`] decides which rows
//! stay in step-major order. [`writers`] decides which contribution to a gradient is written and which contributions
//! are added. [`slots`] assigns a slot to each variable. [`build`] makes the instructions from the results of all these
//! analyses. [`lives`] and [`buffers`] decide which slots share a buffer; [`finish`] numbers the instructions.
//! [`packed`] decides which calls share the memory of packed weights.

mod blocks;
mod buffers;
mod build;
mod chains;
mod effort;
mod finish;
mod layouts;
mod lives;
mod loops;
mod needs;
mod packed;
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

/// Compiles a program for the variables `wanted`. `nexts` are variables of the root block. The next run reads their
/// values, as a step reads the values that the previous step computed.
pub(crate) fn compile(
    program: Program,
    registry: &Registry,
    wanted: &[VarId],
    nexts: &[VarId],
) -> Result<Plan> {
    #[cfg(test)]
    crate::program::counted::COMPILATIONS.set(crate::program::counted::COMPILATIONS.get() + 1);
    program.validate()?;
    if !program.is_built_by(registry) {
        program.check_shapes(registry, &live(&program, wanted)?)?;
    }
    let rewritten = rewrite(program, registry, wanted, nexts)?;
    let source = source::Source::new(&rewritten, registry, wanted, nexts)?;
    // The plan lists the losses, because the executor checks that they are finite before the updates.
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
    let prepared = packed::assign(&mut finished.code, &slots.slots);
    let (pool_of, pools) = pools::assign(&slots, &lives.of_slot, &mut finished.code);
    let placed = slots.slots.iter().enumerate().zip(of_slot.iter().zip(&pool_of));
    let placed = placed.map(|((slot, desc), (&buffer, &pool))| {
        let life = lives.in_instructions(slot);
        let slots::SlotDesc { var, dtype, width, rows, home, persistent, alias, .. } = *desc;
        Slot { var, dtype, width, rows, home, buffer, life, persistent, alias, pool }
    });
    let slots: Vec<Slot> = placed.collect();
    let needs =
        needs::needs(&slots, &pools, (&finished.code, &lives.firsts), &layouts.keyed, source.program.unit);
    Ok(Plan {
        needs,
        slots,
        code: finished.code,
        chains,
        of_var,
        buffers,
        pools,
        prepared,
        instructions: finished.instructions,
        keyed: layouts.keyed,
        losses,
        views,
        same,
        program: rewritten.program,
        wanted: wanted.to_vec(),
        refused: rewritten.refused,
    })
}
