//! The exchange of messages between processes in a step: the results of each part with its gradients, the sums of the
//! gradients, and the statistics of layers.

use std::sync::atomic::Ordering;

use super::gradients::{IN_SLOTS, PartSums, SumsInArena, not_finite};
use super::parts::{OwnSums, PartResult, StepParts};
use super::step::ReadRows;
use super::step::unprepared;
use super::trainer::Trainer;
use super::training::TrainingState;
use crate::error::{Error, Result};
use crate::executor::Run;
use crate::on_data::{Totals, merged, zeros_of};
use crate::parallel::{self, End, GradientShare, Message, Reader, World};
use crate::store::{WeighedGradient, merge};
use crate::tensor::{Dense, SelectedRows, Variable};

#[cfg(test)]
mod tests;

/// The messages that a process has received, each with the position at which the gradients begin.
type Messages = Vec<(Vec<u8>, usize)>;

impl Trainer {
    /// Completes the gradients of a step: exchanges the results and the gradients of this process's parts, or its error, with all
    /// processes; merges the metrics; and sums the gradients in the executor's slots.
    pub(super) fn exchange_sums(
        &mut self,
        ran: Result<OwnSums>,
        dealt: &StepParts,
        mut results: Vec<Option<PartResult>>,
    ) -> Result<()> {
        let (world, step) = (self.others().cloned(), self.training.position.step);
        let (mut own, received) = match &world {
            None => (ran?, Messages::new()),
            Some(world) => self.exchange_results(world, ran, dealt, &mut results)?,
        };
        self.merge_results(&results)?;
        if self.step.program()?.parts.is_none() {
            return Ok(());
        }
        let all = self.total(&results)?;
        let compiled = self.step.compiled()?;
        let parts = compiled.parts.as_mut().ok_or_else(unprepared)?;
        let whole = parts.whole(&mut self.training.scope, &all, step)?;
        // The gradients of a single batch in a single part are used without a change.
        if dealt.is_single() && parts.is_mean() {
            return Ok(());
        }
        let factor = parts.factor(&whole, &all);
        if let Some(world) = &world {
            let rows = self.exchange_gradients(world, &mut own, dealt, received, factor)?;
            return self.set_gradients(rows, 1.0, &whole);
        }
        let key = own.keys.first().and_then(|(_, key)| *key);
        let rows = |param| {
            let mut rows = key.map_or(Vec::new(), |key| own.sums.take_rows(key, param));
            rows.iter_mut().for_each(|part| part.factor *= factor);
            rows
        };
        let rows = (0..self.training.trained.len()).map(rows).collect();
        self.set_gradients(rows, factor, &whole)
    }

    /// Sends the results and the gradients of this process's parts to all processes, each of which gets its share of the
    /// gradients; receives the results of the other parts. Rows that other processes have read without a gradient are settled
    /// here, as reading settles them there.
    fn exchange_results(
        &mut self,
        world: &World,
        ran: Result<OwnSums>,
        dealt: &StepParts,
        results: &mut [Option<PartResult>],
    ) -> Result<(OwnSums, Messages)> {
        let (size, parts) = (world.size(), results.len());
        // The flag is read once: a signal that comes after the message was written must not stop this process alone.
        let mut stop = self.step.stop.load(Ordering::SeqCst);
        let (mine, own) = match ran {
            Err(error) => (Err(error), None),
            Ok(mut own) => {
                let kept = self.keep_rows_without_gradient(&own.sums);
                let mine = kept.and_then(|()| self.messages_to_all(world, &mut own, dealt, (results, stop)));
                (mine, Some(own))
            }
        };
        let doing = format!("step {}", self.training.position.step + 1);
        let all = world.agree_each(&doing, mine)?;
        let own = own.ok_or_else(unprepared)?;
        let read = &self.step.program()?.read;
        let heights: Vec<usize> = read.iter().map(|read| read.height).collect();
        let mut rows: Vec<Vec<i64>> = read.iter().map(|read| read.rows.clone()).collect();
        let zero = self.zero_result(parts)?;
        let mut received = Messages::with_capacity(size);
        for (sender, bytes) in all.into_iter().enumerate() {
            let mut message = Reader(&bytes);
            if sender != world.rank() {
                let theirs = parallel::parts_of(sender, size, parts);
                for part in theirs.clone().filter(|&part| dealt.occupied[part]) {
                    results[part] = Some(zero.clone());
                }
                let (mut theirs_stop, mut read) = (false, vec![Vec::new(); heights.len()]);
                let end = &mut End::Read(&mut message);
                step_message(end, &mut theirs_stop, &mut results[theirs], &mut read, &heights)?;
                stop |= theirs_stop;
                rows.iter_mut().zip(read).for_each(|(rows, read)| rows.extend(read));
            }
            let begin = bytes.len() - message.0.len();
            received.push((bytes, begin));
        }
        self.step.stopping |= stop;
        self.settle_rows(rows)?;
        Ok((own, received))
    }

    /// Writes the message to each process: the results of this process's parts, and the gradients of the other process's share.
    fn messages_to_all(
        &mut self,
        world: &World,
        own: &mut OwnSums,
        dealt: &StepParts,
        (results, mut stop): (&mut [Option<PartResult>], bool),
    ) -> Result<Vec<Vec<u8>>> {
        let compiled = self.step.compiled()?;
        let heights: Vec<usize> = compiled.read.iter().map(|read| read.height).collect();
        let mut rows: Vec<Vec<i64>> =
            compiled.read.iter_mut().map(|read| std::mem::take(&mut read.rows)).collect();
        let mut head = Message::default();
        let end = &mut End::Write(&mut head);
        step_message(end, &mut stop, &mut results[dealt.own.clone()], &mut rows, &heights)?;
        compiled.read.iter_mut().zip(rows).for_each(|(read, rows)| read.rows = rows);
        let specs = own.sums.specs.clone();
        let mut held = SumsInArena { sums: &mut own.sums, executor: &mut compiled.runner.executor };
        let message = |rank: usize| {
            let mut message = Message(if rank == world.rank() { Vec::new() } else { world.message() });
            if rank != world.rank() {
                message.0.extend_from_slice(&head.0);
                let share = GradientShare::new(rank, world.size(), &specs);
                own.keys
                    .iter()
                    .filter_map(|(_, key)| *key)
                    .try_for_each(|key| share.write(&mut held, key, &mut message))?;
            }
            Ok(message.0)
        };
        (0..world.size()).map(message).collect()
    }

    /// Sums this process's share of the gradients, and exchanges the sums of all shares, times `factor`: the dense sums go to the
    /// executor's slots. Returns the selected rows of each parameter with the factor; of a dealt table, only the rows of this
    /// process.
    fn exchange_gradients(
        &mut self,
        world: &World,
        own: &mut OwnSums,
        dealt: &StepParts,
        received: Messages,
        factor: f64,
    ) -> Result<Vec<Vec<WeighedGradient>>> {
        let specs = own.sums.specs.clone();
        let compiled = self.step.compiled()?;
        let mut held = SumsInArena { sums: &mut own.sums, executor: &mut compiled.runner.executor };
        let share = |rank: usize| GradientShare::new(rank, world.size(), &specs);
        let mut readers: Vec<Reader<'_>> =
            received.iter().map(|(bytes, begin)| Reader(&bytes[*begin..])).collect();
        let mut mine = Message(world.message());
        let to = (factor, &mut mine);
        let own_rank = (world.rank(), world.size());
        let summed = share(own_rank.0).sums(&dealt.occupied, &own.keys, &mut held, &mut readers, to);
        // No other process sees a sum of a dealt table, so this process checks that the sum is finite before any process updates.
        let finite = |(param, rows): (usize, SelectedRows)| {
            let gradient = merge(vec![WeighedGradient { gradient: rows.into(), factor }])?;
            let name = &self.training.state.program.var(self.training.trained[param].0).name;
            gradient.check_finite("gradient").map_err(|_| not_finite(name))?;
            Ok((param, gradient))
        };
        let summed = summed.and_then(|(position, kept)| {
            Ok((position, kept.into_iter().map(finite).collect::<Result<Vec<_>>>()?))
        });
        drop(readers);
        world.reuse(received.into_iter().map(|(bytes, _)| bytes).collect());
        let doing = format!("gradients of step {}", self.training.position.step + 1);
        let mine = summed.as_ref().map(|_| mine.0).map_err(Error::clone);
        let all = world.agree(&doing, mine)?;
        let (position, kept) = summed?;
        // The sums of the own share may be in the slots already.
        let in_slots = position.is_some() && position == held.sums.in_slots();
        let mut rows: Vec<Vec<SelectedRows>> = vec![Vec::new(); specs.len()];
        for (rank, message) in all.iter().enumerate() {
            let to = Some(IN_SLOTS).filter(|_| rank != world.rank() || !in_slots);
            share(rank).take(message, &mut held, to, &mut rows)?;
        }
        world.reuse(all);
        let mut tables: Vec<Vec<WeighedGradient>> = Vec::with_capacity(specs.len());
        for (param, (rows, spec)) in rows.into_iter().zip(&specs).enumerate() {
            if !spec.selected_rows || spec.dealt {
                tables.push(Vec::new());
                continue;
            }
            let gradient = SelectedRows::joined(&rows)?;
            if let Some(tables) = &mut compiled.tables {
                tables.note(self.training.trained[param].0, &gradient, own_rank);
            }
            tables.push(vec![WeighedGradient { gradient: gradient.into(), factor }]);
        }
        for (param, gradient) in kept {
            tables[param].push(WeighedGradient { gradient, factor: 1.0 });
        }
        Ok(tables)
    }

    /// Returns the result of a part without rows, which a message fills.
    fn zero_result(&self, parts: usize) -> Result<PartResult> {
        let totals = self.loss_parts()?.zero();
        // With a single part per batch, the run of the part has already added to the metrics, so no sums are sent.
        let sent = if parts > 1 { usize::MAX } else { 0 };
        let mut metrics = zeros_of(&self.settings.metrics)?;
        metrics.truncate(sent);
        Ok(PartResult { totals, metrics })
    }

    /// Adds the sums of the metrics of all parts to the metrics, in the order of the tree of parts.
    fn merge_results(&mut self, results: &[Option<PartResult>]) -> Result<()> {
        if results.len() == 1 {
            return Ok(());
        }
        let of_part = |result: &Option<PartResult>| result.as_ref().map(|result| result.metrics.clone());
        let parts = results.iter().map(of_part).collect();
        if let Some(step) = parallel::sum_all(parts, &mut |sum, other| Ok(merged(sum, &other)))? {
            self.training.sums = merged(std::mem::take(&mut self.training.sums), &step);
        }
        Ok(())
    }

    /// Leaves out the rows that have a gradient in `sums` from the rows that this process has read in a step: the update settles
    /// them on all processes.
    fn keep_rows_without_gradient(&mut self, sums: &PartSums) -> Result<()> {
        for ReadRows { params, rows, .. } in &mut self.step.compiled()?.read {
            rows.sort_unstable();
            rows.dedup();
            rows.retain(|&row| !params.iter().all(|&param| sums.has_row(param, row)));
        }
        Ok(())
    }

    /// Applies the missed updates of rows, given for each of the compiled [`ReadRows`].
    fn settle_rows(&mut self, rows: Vec<Vec<i64>>) -> Result<()> {
        let TrainingState { scope, state, .. } = &mut self.training;
        let read = self.step.compiled()?.read.iter_mut();
        for (ReadRows { ids, settling, .. }, rows) in read.zip(rows).filter(|(_, rows)| !rows.is_empty()) {
            let rows = Variable::dense(Dense::from_vec(&[rows.len()], rows)?);
            settling.run(scope, &Run::train(&[(*ids, &rows)], state.position.step))?;
        }
        Ok(())
    }

    /// Sends the totals of this process's parts (one set of totals per part and batch) to all processes; receives the totals
    /// of the other parts.
    pub(super) fn share_totals(
        &self,
        ran: Result<()>,
        dealt: &StepParts,
        found: &mut [Vec<Totals>],
    ) -> Result<()> {
        let Some(world) = self.others() else { return ran };
        let mine = ran.and_then(|()| {
            let mut message = Message::default();
            totals_message(&mut End::Write(&mut message), &mut found[dealt.own.clone()])?;
            Ok(message.0)
        });
        let doing = format!("forward pass of step {}", self.training.position.step + 1);
        for (rank, message) in world.agree(&doing, mine)?.iter().enumerate() {
            let parts = parallel::parts_of(rank, world.size(), found.len());
            totals_message(&mut End::Read(&mut Reader(message)), &mut found[parts])?;
        }
        Ok(())
    }

    /// Sends the statistics of layers, such as the running averages of a batch norm, to all processes. After a step, the
    /// statistics of the process that computes the last part with sequences are sent to all other processes.
    pub(super) fn share_statistics(&mut self, dealt: &StepParts) -> Result<()> {
        let Some(world) = self.others().cloned() else { return Ok(()) };
        let names = self.statistics();
        if names.is_empty() {
            return Ok(());
        }
        let last = dealt.occupied.iter().rposition(|&occupied| occupied).unwrap_or(0);
        let size = world.size();
        let owner =
            (0..size).find(|&rank| parallel::parts_of(rank, size, dealt.occupied.len()).contains(&last));
        let mut message = Message::default();
        if owner == Some(world.rank()) {
            for name in &names {
                let value = self.training.scope.value(name)?.into_dense()?;
                message.numbers(&value, 0..value.len())?;
            }
        }
        let all = world.gather("statistics of layers", message.0)?;
        let mut message = Reader(all.get(owner.unwrap_or(0)).map_or(&[], Vec::as_slice));
        for name in &names {
            let like = self.training.scope.value(name)?;
            self.training.scope.set(name, message.numbers(like.dtype(), like.shape())?)?;
        }
        Ok(())
    }
}

/// The part of a step's message that all processes get: whether the process was asked to stop, the results of its parts that have
/// sequences, and the rows that they read without a gradient.
fn step_message(
    end: &mut End<'_, '_>,
    stop: &mut bool,
    results: &mut [Option<PartResult>],
    rows: &mut [Vec<i64>],
    heights: &[usize],
) -> Result<()> {
    end.flag(stop)?;
    for PartResult { totals, metrics } in results.iter_mut().flatten() {
        end.floats(totals.numbers_mut())?;
        metrics.iter_mut().try_for_each(|sums| end.sums(sums))?;
    }
    rows.iter_mut().zip(heights).try_for_each(|(rows, &height)| end.ids(rows, height))
}

/// The message with the totals of the parts of a process: for each part, the totals of each batch.
fn totals_message(end: &mut End<'_, '_>, parts: &mut [Vec<Totals>]) -> Result<()> {
    for totals in parts {
        let mut numbers: Vec<Vec<f64>> = totals.iter().map(|totals| totals.numbers().collect()).collect();
        end.list(&mut numbers)?;
        *totals = numbers.iter().map(|numbers| Totals::of_numbers(numbers)).collect();
    }
    Ok(())
}
