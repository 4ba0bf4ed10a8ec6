//! The memory limit of a training. A batch that does not fit is divided into pieces of whole sequences, which run one after
//! another, like the batches of an accumulated step.

use std::collections::BTreeMap;
use std::ops::Range;

use super::progress::BatchCounts;
use super::trainer::Trainer;
use crate::data::{Batch, Batches, Data};
use crate::error::{CallerSetting, Error, ErrorKind, Result};
use crate::executor::MemoryUse;
use crate::memory::{excess_shown, limit_shown, shown};
use crate::on_data::BatchRunner;
use crate::operator::VarId;
use crate::tensor::{StorageKind, Variable};

/// The divisor of the reserve: 1/`RESERVE` of the memory limit is left for packed weights and scratch memory. Their
/// size depends on the machine and the number of threads, so it must not decide how a batch is divided.
const RESERVE: usize = 8;

/// Consecutive sequences of a batch that run together.
pub(super) struct Piece {
    pub(super) batch: Batch,
    /// The indices of the sequences in the whole batch.
    sequences: Range<usize>,
    /// The number of sequences of the whole batch.
    of: usize,
}

impl Piece {
    /// Returns a whole batch as a single piece.
    pub(super) fn whole(batch: Batch, runner: &BatchRunner) -> Self {
        let count = runner.sequences(&batch);
        Self { batch, sequences: 0..count, of: count }
    }

    pub(super) fn is_whole(&self) -> bool {
        self.sequences.len() == self.of
    }

    /// Takes the carried states of this piece from the states of the whole batch; [`Self::put_states`] puts them back.
    pub(super) fn take_states(
        &self,
        runner: &BatchRunner,
        all: &mut BTreeMap<String, Variable>,
    ) -> Result<BTreeMap<String, Variable>> {
        if self.is_whole() {
            return Ok(std::mem::take(all));
        }
        runner.carry(all, self.of)?;
        let own = |(name, value): (&String, &Variable)| {
            Ok((name.clone(), value.slice_sequences(self.sequences.clone())?))
        };
        all.iter().map(own).collect()
    }

    /// Writes the carried states of this piece to the states of the whole batch.
    pub(super) fn put_states(
        &self,
        own: BTreeMap<String, Variable>,
        all: &mut BTreeMap<String, Variable>,
    ) -> Result<()> {
        if self.is_whole() {
            *all = own;
            return Ok(());
        }
        let Range { start, end } = self.sequences;
        for (name, value) in own {
            if let Some(whole) = all.get_mut(&name) {
                let (before, after) =
                    (whole.slice_sequences(0..start)?, whole.slice_sequences(end..self.of)?);
                *whole = Variable::merge(&[before, value, after])?;
            }
        }
        Ok(())
    }
}

/// The memory limit of a training, and the memory that the training takes in addition to the runs of its program, in
/// bytes.
#[derive(Clone, Copy)]
struct Budget {
    /// The limit; 0 means no limit.
    limit: usize,
    data: usize,
    /// The number of batches that are made in advance.
    ahead: usize,
    /// The sums of gradients of a step in parts.
    sums: usize,
}

impl Budget {
    fn with_training(self, memory: MemoryUse) -> MemoryUse {
        let Self { data, ahead, sums, .. } = self;
        MemoryUse { data, sums, batch: memory.batch.saturating_mul(ahead + 1), ..memory }
    }

    /// Returns the memory that the limit leaves for a batch.
    fn left(self, memory: &MemoryUse) -> usize {
        (self.limit - self.limit / RESERVE).saturating_sub(memory.fixed())
    }
}

/// The number of bytes that the step of a batch needs, and the number of bytes that the memory limit leaves for the
/// step.
#[derive(Clone, Copy)]
struct Deficit {
    needed: usize,
    left: usize,
    /// The bytes of the step of an empty batch, such as the gradients of the parameters.
    base: usize,
    /// The bytes of the parameters, the optimizer's state and the data.
    fixed: usize,
}

/// Returns the memory limit with which `bytes` fit beside the memory that the limit leaves free.
fn limit_of(bytes: usize) -> u128 {
    let (bytes, reserve) = (bytes as u128, RESERVE as u128);
    bytes + bytes / (reserve - 1) + reserve
}

impl Trainer {
    /// Memory limit: limits the memory of the training, in bytes (default: no limit). A batch whose step does not fit is
    /// divided into pieces of whole sequences, and the gradients of the pieces are summed, as in
    /// [`accumulate`](Self::accumulate). Up to rounding, the step equals the step of the whole batch. Batches that fit are
    /// computed as if there were no limit.
    ///
    /// The limit counts the parameters, the state of the optimizer, the samples in memory, and the step of a batch, as
    /// [`Self::memory`] does. An eighth of the limit is left for packed weights and scratch memory. The program itself
    /// is not counted. Only the batch and the limit decide how a batch is divided, not the machine. The checkpoint has
    /// the limit, and a resumed training uses the limit of its checkpoint. In a [distributed](Self::distributed)
    /// training, the limit applies to each process; if the processes have different limits, the smallest limit applies.
    ///
    /// A sequence that does not fit by itself is an error. A batch that does not fit is an error, too, if the loss
    /// cannot be computed in parts, has a [weight](Self::weight), or depends on an operator that reads a whole batch.
    ///
    /// ```
    /// # use unpadded::data::{Batching, Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::Adam;
    /// # use unpadded::train::{Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// # let samples: Samples = (0..64).map(|i| vec![Field::from(vec![i % 7; 500]), (i % 2).into()]).collect();
    /// # let net = Builder::new();
    /// # let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// # let h = words.embedding(Embedding::new(9, 8).sparse()).lstm(8).sequence_pool(unpadded::ops::Pool::Last);
    /// # let loss = h.linear(2).cross_entropy(label).mean();
    /// let data = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(32));
    /// let mut trainer = Trainer::new(net, loss, &Adam::new(0.01).lazy())?.memory_limit(4_000_000);
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// let report = trainer.fit(&data, &data, Until::Epochs(1))?;
    /// assert_eq!(report.steps, 2); // of 32 sequences, whether they are divided or not
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    #[track_caller]
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        (self.settings.division.memory_limit, self.step.programs) = (Some(CallerSetting::new(bytes)), None);
        self
    }

    /// Adds the memory of the training to the memory of a run.
    pub(super) fn with_training(&self, memory: MemoryUse, in_parts: bool) -> MemoryUse {
        self.budget(in_parts, self.step.collected).with_training(memory)
    }

    /// Returns the limit and the memory beside the runs; `collected` has the bytes of the selected rows that the step collects.
    fn budget(&self, in_parts: bool, collected: usize) -> Budget {
        let (data, ahead) = self.step.held_data;
        let limit = usize::try_from(self.training.position.memory).unwrap_or(usize::MAX);
        Budget { limit, data, ahead, sums: if in_parts { self.bytes_of_sums(collected) } else { 0 } }
    }

    /// Returns the batches of an epoch. Data that make batches by memory get a function that returns whether a batch
    /// fits the limit.
    pub(super) fn batches_of(&self, data: &dyn Data, epoch: Option<u64>, from: u64) -> Result<Batches> {
        data.batches_that_fit(epoch, from, &|| {
            let in_parts = self.is_in_parts();
            // The rows that earlier steps have collected must not decide the batches: a resumed training has not made
            // these steps, and must make the same batches.
            let budget = self.budget(in_parts, 0);
            if budget.limit == 0 {
                let expected = "a memory limit for batches by memory (`Trainer::memory_limit`)";
                return Err(Error::new("memory limit", expected, "none"));
            }
            // The function needs its own program, because batches may be made in advance on another thread.
            let mut runner = self.compile(in_parts)?.runner;
            Ok(Box::new(move |batch: &Batch| {
                // If a batch does not fit the model, its step returns the error.
                let Ok(memory) = runner.memory(batch) else { return Ok(true) };
                let memory = budget.with_training(memory);
                Ok(memory.of_batch() <= budget.left(&memory))
            }))
        })
    }

    /// Returns the bytes of the sums of the gradients in a step in parts. The bytes include one sum for each level of
    /// the tree of parts, one gradient to be added, and, with several parts, one message to other processes.
    /// `collected` has the bytes of the selected rows that the step collects.
    fn bytes_of_sums(&self, collected: usize) -> usize {
        let program = &self.training.program;
        let bytes = |(_, gradient): &(VarId, VarId)| {
            let spec = program.spec(*gradient).ok().filter(|spec| spec.storage == StorageKind::Dense)?;
            Some(spec.rows().known()?.saturating_mul(spec.width()).saturating_mul(spec.dtype.size_of()))
        };
        let gradients = self.training.trained.iter().filter_map(bytes).fold(0, usize::saturating_add);
        // At the end of a step, selected rows exist three times: as collected from all pieces, as merged rows, and as
        // the gradient of the update.
        let selected = collected.saturating_mul(3);
        // The number of processes is left out, because it must not change how a batch is divided.
        let (levels, several) = (self.parts_a_batch().trailing_zeros() as usize, self.parts_a_batch() > 1);
        gradients.saturating_mul(levels + 2 + usize::from(several)).saturating_add(selected)
    }

    /// Computes the bytes of the selected rows that the gradients of a step collect, over all batches of the step.
    pub(super) fn count_collected(&mut self, batches: &[Batch]) -> Result<()> {
        self.step.collected = 0;
        if self.training.position.memory == 0 {
            return Ok(());
        }
        let runner = &mut self.step.compiled()?.runner;
        // If a batch does not fit the model, its run returns the error.
        let selected = batches.iter().filter_map(|batch| Some(runner.memory(batch).ok()?.selected));
        self.step.collected = selected.fold(0, usize::saturating_add);
        Ok(())
    }

    /// Returns the shortage of memory for a batch; `None` if the batch fits. If the batch fits only without the buffers
    /// of earlier batches, the method releases these buffers. Call it directly before the batch runs.
    fn shortage(&mut self, batch: &Batch) -> Result<Option<Deficit>> {
        let compiled = self.step.program()?;
        let in_parts = compiled.parts.is_some();
        let (budget, whole) = (self.budget(in_parts, 0), self.budget(in_parts, self.step.collected));
        if whole.limit == 0 {
            return Ok(None);
        }
        // The selected rows that all pieces of the step collect count as memory of the batch, although dividing the
        // batch does not reduce them.
        let collected = whole.sums.saturating_sub(budget.sums);
        // If a batch does not fit the model, its run returns the error.
        let runner = &mut self.step.compiled()?.runner;
        let Ok(memory) = runner.memory(batch).map(|memory| budget.with_training(memory)) else {
            return Ok(None);
        };
        let alone = MemoryUse { kept: 0, sums: whole.sums, ..memory };
        if alone.total() > self.step.largest.total() {
            self.step.largest = alone;
        }
        let (needed, left) = (memory.of_batch().saturating_add(collected), budget.left(&memory));
        if left == 0 {
            return Err(self.too_low(memory.fixed()));
        }
        if needed <= left {
            // Batches of other shapes may have left buffers that are larger than this batch needs.
            if needed.saturating_add(memory.kept) > left {
                self.step.compiled()?.runner.executor.release();
            }
            return Ok(None);
        }
        let runner = &mut self.step.compiled()?.runner;
        let empty = runner.share(batch, &[])?;
        let base = runner.memory(&empty).map_or(0, |memory| memory.of_batch());
        let base = base.saturating_add(collected).min(needed);
        Ok(Some(Deficit { needed, left, base, fixed: memory.fixed() }))
    }

    /// Checks that the limit leaves memory for batches beside the parameters, the optimizer's state and the data.
    pub(super) fn has_room(&self) -> Result<()> {
        let budget = self.budget(self.is_in_parts(), 0);
        let memory = budget.with_training(MemoryUse::of_program(&self.training.program));
        match budget.limit > 0 && budget.left(&memory) == 0 {
            true => Err(self.too_low(memory.fixed())),
            false => Ok(()),
        }
    }

    /// Returns the error for a limit that the parameters, the optimizer's state and the data exceed, which take `fixed` bytes.
    fn too_low(&self, fixed: usize) -> Error {
        let expected =
            format!("more than {} for parameters, optimizer and data", excess_shown(limit_of(fixed)));
        let got = limit_shown(self.training.position.memory.into());
        self.of_limit(Error::of(ErrorKind::Memory, "memory limit", expected, got))
    }

    fn of_limit(&self, error: Error) -> Error {
        self.settings.division.memory_limit.iter().fold(error, |error, given| error.called(given.line))
    }

    /// Returns whether the step of a batch fits the memory limit; like [`Self::shortage`], may release buffers of
    /// earlier batches.
    pub(super) fn fits(&mut self, batch: &Batch) -> Result<bool> {
        self.shortage(batch).map(|shortage| shortage.is_none())
    }

    /// Divides a batch into pieces that fit the memory limit. `whole` has the operators that read a whole batch.
    ///
    /// # Errors
    /// Fails if a single sequence does not fit, or if the batch must be divided and an operator reads a whole batch.
    pub(super) fn pieces(&mut self, batch: Batch, whole: &[(String, String)]) -> Result<Vec<Piece>> {
        let mut pieces = Vec::new();
        let mut left = vec![Piece::whole(batch, self.runner()?)];
        let mut longest = None;
        while let Some(piece) = left.pop() {
            let Some(short) = self.shortage(&piece.batch)? else {
                pieces.push(piece);
                continue;
            };
            if let Some(weight) = &self.settings.objective.weight {
                let note = format!(
                    "the loss has a weight of each batch (`Trainer::weight`, at {}), so the batch cannot be divided",
                    weight.line
                );
                return Err(self.too_large(&piece.batch, short).noted(note));
            }
            if let Some((operator, line)) = whole.first() {
                let note = format!(
                    "`{operator}`, called at {line}, reads a whole batch, so the batch cannot be divided"
                );
                return Err(self.too_large(&piece.batch, short).noted(note));
            }
            let runner = self.runner()?;
            if longest.is_none() {
                let lengths = runner.lengths(&piece.batch)?;
                let at = (0..lengths.len()).max_by_key(|&i| (lengths[i], std::cmp::Reverse(i)));
                longest = at.map(|at| runner.share(&piece.batch, &[at])).transpose()?;
            }
            if piece.sequences.len() < 2 {
                // If the selected rows that all pieces collect exceed the limit, the error is about the longest sample,
                // which has the most rows.
                let of_all = longest.filter(|_| short.base > short.left);
                return Err(self.too_large(&of_all.unwrap_or(piece.batch), short));
            }
            left.extend(self.divided(piece, short)?.into_iter().rev());
        }
        Ok(pieces)
    }

    /// Returns the progress line about the first step that was divided.
    pub(super) fn first_division(&self, made: &BatchCounts) -> String {
        let limit = shown(self.training.position.memory.into());
        format!(
            "memory limit {limit}: batches that do not fit are divided; the first is at {}, with {} tokens",
            self.training.position, made.tokens
        )
    }

    /// Returns the progress line for a resumed training whose checkpoint has another limit than this trainer.
    pub(super) fn other_limit(&self) -> Option<String> {
        let (known, own) = (self.training.position.memory, **self.settings.division.memory_limit.as_ref()?);
        let known_limit = if known == 0 { "none".to_owned() } else { shown(known.into()) };
        (own != known).then(|| {
            format!(
                "memory limit: {known_limit}, as in the training so far; {} is ignored",
                shown(own.into())
            )
        })
    }

    /// Cuts a piece into smaller pieces with about the same number of rows. The number of pieces is the smallest that
    /// removes the shortage, if memory is proportional to rows.
    fn divided(&self, piece: Piece, Deficit { needed, left, base, .. }: Deficit) -> Result<Vec<Piece>> {
        let runner = self.runner()?;
        let lengths = runner.lengths(&piece.batch)?;
        let count = (needed - base).div_ceil(left.saturating_sub(base).max(1)).clamp(2, lengths.len());
        let rows: usize = lengths.iter().map(|length| length + 1).sum();
        let (mut cuts, mut before) = (vec![0], 0);
        for (i, length) in lengths.iter().enumerate() {
            before += length + 1;
            // A piece ends when its share of the rows is reached, or when only one sequence is left for each later
            // piece.
            let (made, after) = (cuts.len(), lengths.len() - i - 1);
            if made < count && (before * count >= rows * made || after == count - made) {
                cuts.push(i + 1);
            }
        }
        cuts.push(lengths.len());
        let start = piece.sequences.start;
        let own = |range: &[usize]| {
            let (from, to) = (range[0], range[1]);
            let batch = runner.share(&piece.batch, &(from..to).collect::<Vec<_>>())?;
            Ok(Piece { batch, sequences: start + from..start + to, of: piece.of })
        };
        cuts.windows(2).map(own).collect()
    }

    /// Returns the error for a batch that does not fit and cannot be divided.
    fn too_large(&self, batch: &Batch, Deficit { needed, left, base, fixed }: Deficit) -> Error {
        let expected = format!(
            "at most {} for a step, of the memory limit of {}",
            limit_shown(left as u128),
            limit_shown(self.training.position.memory.into())
        );
        let lengths = self.runner().and_then(|runner| runner.lengths(batch)).unwrap_or_default();
        let (count, rows) = (lengths.len(), lengths.iter().sum::<usize>());
        let got = match count {
            1 => format!("{} for {rows} tokens", excess_shown(needed as u128)),
            _ => format!("{} for {count} samples with {rows} tokens", excess_shown(needed as u128)),
        };
        let error = match batch.numbers[..] {
            [sample] if count == 1 => {
                let error = Error::of(ErrorKind::Memory, "memory", expected, got).row(0);
                batch.noted(error.of_sample(|_| Some((sample, None))))
            }
            _ => Error::of(ErrorKind::Memory, "memory of a batch", expected, got),
        };
        // The memory above `base` grows at least in proportion to the rows, so this number of rows fits.
        let fit = rows as u128 * left.saturating_sub(base) as u128 / (needed - base).max(1) as u128;
        let limit = excess_shown(limit_of(needed.saturating_add(fixed)));
        let error = error.noted(match count {
            1 => format!("about {fit} tokens fit; shorten the sample, or raise the memory limit to at least {limit}"),
            _ => {
                format!("about {fit} tokens fit; make smaller batches, or raise the memory limit to at least {limit}")
            }
        });
        self.of_limit(error)
    }

    /// Chooses the program of a step on a batch: the main program, or the program for steps in parts if the batch does not fit
    /// the memory limit and must be divided.
    pub(super) fn choose_program(&mut self, batch: &Batch) -> Result<()> {
        if self.is_in_parts() || self.fits(batch)? {
            self.step.switch(false);
            return Ok(());
        }
        if self.step.programs.as_ref().is_some_and(|programs| programs.divided.is_none()) {
            let mut divided = self.compile(true)?;
            if self.step.compiled()?.runner.executor.is_profiled() {
                divided.runner.executor.start_profile();
            }
            if let Some(programs) = &mut self.step.programs {
                programs.divided = Some(divided);
            }
        }
        self.step.switch(true);
        Ok(())
    }
}
