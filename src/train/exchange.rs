//! The exchange of messages between processes in a step: the results of each part, the sums of the gradients, and the
//! statistics of layers.

use std::ops::Range;

use super::parts::{PartResult, StepParts, Sums, gradients_of};
use super::step::ReadRows;
use super::trainer::Trainer;
use super::training::Training;
use crate::error::Result;
use crate::executor::{Run, Totals};
use crate::operator::VarId;
use crate::parallel::{self, GradientSpec, Message, Reader};
use crate::store::WeighedGradient;
use crate::tensor::{Dense, StorageKind, Variable};

impl Trainer {
    /// Sends the results of this process's parts, or its error, to all processes; receives the results of the other parts. Rows
    /// that other processes have read without a gradient are settled here, as reading settles them there.
    pub(super) fn share_results(
        &mut self,
        ran: Result<()>,
        dealt: &StepParts,
        results: &mut [Option<PartResult>],
        doing: &str,
    ) -> Result<()> {
        if let Some(world) = self.others().cloned() {
            let read = || self.step.compiled.iter().flat_map(|compiled| &compiled.read);
            let mut rows = vec![Vec::new(); read().count()];
            let mine = ran.map(|()| {
                let mut message = Message::default();
                message.count(usize::from(self.step.stop.load(std::sync::atomic::Ordering::SeqCst)));
                for result in results[dealt.own.clone()].iter().flatten() {
                    message.floats(&result.totals.numbers().collect::<Vec<_>>());
                    result.metrics.iter().for_each(|sums| message.sums(sums));
                }
                read().for_each(|read| message.ids(&read.rows, read.height));
                message.0
            });
            let all = world.agree(doing, mine)?;
            for (rank, message) in all.iter().enumerate() {
                let mut message = Reader(message);
                self.step.stopping |= message.number()? > 0;
                for part in parallel::parts_of(rank, world.size(), results.len()) {
                    if dealt.occupied[part] {
                        let totals = Totals::of_numbers(&message.floats()?);
                        let lengths: Vec<usize> =
                            self.settings.objective.metrics.iter_mut().map(|m| m.sums().len()).collect();
                        let mut metrics: Vec<Vec<f64>> = lengths.iter().map(|&n| vec![0.0; n]).collect();
                        // With a single part per batch, the run of the part has already added to the metrics, so no sums are
                        // sent.
                        let sent = if results.len() > 1 { metrics.len() } else { 0 };
                        metrics.truncate(sent);
                        metrics.iter_mut().try_for_each(|sums| message.sums(sums))?;
                        results[part] = Some(PartResult { totals, metrics });
                    }
                }
                let read = self.step.compiled.iter().flat_map(|compiled| &compiled.read);
                for (read, rows) in read.zip(&mut rows) {
                    rows.extend(message.ids(read.height)?);
                }
            }
            self.settle_rows(rows)?;
        } else {
            ran?;
        }
        if results.len() == 1 {
            return Ok(());
        }
        let before = self.sums_of_metrics();
        let of_part = |result: &Option<PartResult>| result.as_ref().map(|result| result.metrics.clone());
        let parts = results.iter().map(of_part).collect();
        let step = parallel::sum_all(parts, &mut |sum, other| self.merge_metrics(sum, &other))?;
        let merged = step.map_or(Ok(before.clone()), |step| self.merge_metrics(before, &step))?;
        self.restore_metrics(&merged);
        Ok(())
    }

    /// Leaves out the rows that have a gradient in `sums` from the rows that this process has read in a step: the update settles
    /// them on all processes.
    pub(super) fn keep_rows_without_gradient(&mut self, sums: &[(Range<usize>, Option<Sums>)]) {
        let moved = |param: VarId, row: i64| {
            let gradients = sums.iter().filter_map(|(_, sums)| sums.as_ref()?.get(&param)).flatten();
            let mut gradients = gradients.filter_map(|part| part.gradient.as_selected_rows().ok());
            gradients.any(|gradient| gradient.row_ids().binary_search(&row).is_ok())
        };
        for ReadRows { params, rows, .. } in
            self.step.compiled.iter_mut().flat_map(|compiled| &mut compiled.read)
        {
            rows.sort_unstable();
            rows.dedup();
            rows.retain(|&row| !params.iter().all(|&param| moved(param, row)));
        }
    }

    /// Applies the missed updates of rows, given for each of the compiled [`ReadRows`].
    fn settle_rows(&mut self, rows: Vec<Vec<i64>>) -> Result<()> {
        let Training { scope, state, .. } = &mut self.training;
        let read = self.step.compiled.iter_mut().flat_map(|compiled| &mut compiled.read);
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
        let mine = ran.map(|()| {
            let mut message = Message::default();
            for totals in &found[dealt.own.clone()] {
                message.count(totals.len());
                totals.iter().for_each(|totals| message.floats(&totals.numbers().collect::<Vec<_>>()));
            }
            message.0
        });
        let doing = format!("forward pass of step {}", self.training.state.position.step + 1);
        for (rank, message) in world.agree(&doing, mine)?.iter().enumerate() {
            let mut message = Reader(message);
            for part in parallel::parts_of(rank, world.size(), found.len()) {
                let totals = (0..message.number()?).map(|_| Ok(Totals::of_numbers(&message.floats()?)));
                found[part] = totals.collect::<Result<_>>()?;
            }
        }
        Ok(())
    }

    /// Returns, for each parameter, the sum of the gradients of all parts.
    pub(super) fn sum_of_all(
        &self,
        mut own: Vec<(Range<usize>, Option<Sums>)>,
        dealt: &StepParts,
        doing: &str,
    ) -> Result<Sums> {
        let Some(world) = self.others() else {
            return Ok(own.pop().and_then(|(_, sum)| sum).unwrap_or_default());
        };
        let program = &self.training.state.program;
        let mut specs = Vec::with_capacity(self.training.trained.len());
        for (_, gradient) in &self.training.trained {
            let spec = program.spec(*gradient)?;
            let shape = spec.shape.iter().map(|extent| extent.known().unwrap_or(0)).collect();
            let selected_rows = spec.storage == StorageKind::SelectedRows;
            specs.push(GradientSpec { selected_rows, dtype: spec.dtype, shape });
        }
        let mut held = Vec::with_capacity(own.len());
        for (of, sum) in own {
            let gradients = |mut sum: Sums| {
                let all =
                    self.training.trained.iter().flat_map(|(param, _)| sum.remove(param).unwrap_or_default());
                gradients_of(all.collect())
            };
            held.push((of, sum.map(gradients)));
        }
        let sums = world.sum_gradients(doing, &dealt.occupied, &held, &specs)?;
        let sums = self.training.trained.iter().zip(sums);
        Ok(sums
            .map(|((param, _), gradient)| (*param, vec![WeighedGradient { gradient, factor: 1.0 }]))
            .collect())
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
        let of = (0..size).find(|&rank| parallel::parts_of(rank, size, dealt.occupied.len()).contains(&last));
        let mut message = Message::default();
        if of == Some(world.rank()) {
            for name in &names {
                let value = self.training.scope.value(name)?.into_dense()?;
                message.numbers(&value, 0..value.len())?;
            }
        }
        let all = world.gather("statistics of layers", &message.0)?;
        let mut message = Reader(all.get(of.unwrap_or(0)).map_or(&[], Vec::as_slice));
        for name in &names {
            let like = self.training.scope.value(name)?;
            self.training.scope.set(name, message.numbers(like.dtype(), like.shape())?)?;
        }
        Ok(())
    }
}
