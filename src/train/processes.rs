//! Distributed training on several processes: the check that all settings are equal, decisions that all processes make
//! together, and the work of the first process.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::Process;
use super::step::unprepared;
use super::tables::{bytes_of_path, path_of_bytes};
use super::trainer::Trainer;
use super::training::TrainingState;
use super::until::Until;
use crate::checkpoint::Checkpoint;
use crate::checkpoint::shard_files::ShardFiles;
use crate::data::Data;
use crate::error::{CallerSetting, Error, ErrorKind, Result};
use crate::operator::VarId;
use crate::parallel::{self, Message, Reader, Traffic, World};
use crate::program::{Role, VarDesc};
use crate::tensor::{DType, Storage, Variable};

/// The maximum number of parts of a batch: a larger number is a mistake, since no training has this many processes.
pub const MOST_PARTS: u64 = 1 << 16;

impl Trainer {
    /// Distributed training: trains together with the other processes of `world`. Every process must call the same methods,
    /// with the same settings and the same data.
    ///
    /// Each batch is divided into [`parts`](Self::parts), and each process computes some of the parts. The gradients of all
    /// parts are summed, and every process makes the same update. The parameters are therefore bit-identical to a training in
    /// one process with the same number of parts. All processes have the same losses, metrics and best epoch, and all of them
    /// end together at early stopping or an interrupt. Only the first process (rank 0) shows the progress and writes
    /// checkpoints. If rank 0 has resumed a training, it sends the state of the training to the other processes, which need no
    /// checkpoint.
    ///
    /// If a process has an error, [`fit`](Self::fit) returns an error on all processes; on the other processes, the error names
    /// the rank that failed. It is also an error if a process does not answer within the [deadline](World::deadline). After an
    /// error, the world cannot be used again.
    ///
    /// ```
    /// use unpadded::data::{Batching, Field, Loader, Samples};
    /// use unpadded::layers::Embedding;
    /// use unpadded::ops::Pool;
    /// use unpadded::optimizer::Adam;
    /// use unpadded::parallel::{ThreadRank, World, threads};
    /// use unpadded::train::{Progress, Trainer, Until};
    /// use unpadded::{Builder, DType};
    /// let train = |rank: ThreadRank| {
    ///     let samples: Samples = (0..40).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    ///     let data = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(8));
    ///     let net = Builder::new().seed(1);
    ///     let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    ///     let h = words.embedding(Embedding::new(9, 8).sparse()).sequence_pool(Pool::Last);
    ///     let loss = h.linear(2).cross_entropy(label).mean();
    ///     let trainer = Trainer::new(net, loss, &Adam::new(0.1).lazy())?;
    ///     let mut trainer = trainer.distributed(World::new(rank)).progress(Progress::Quiet);
    ///     trainer.fit(&data, &data, Until::Epochs(2)).map(|report| report.last)
    /// };
    /// // Two ranks on threads of this process. With the feature `mpi`, each process calls `World::mpi(deadline)?` once.
    /// let losses: Vec<_> = std::thread::scope(|scope| {
    ///     let ranks: Vec<_> = threads(2).into_iter().map(|rank| scope.spawn(move || train(rank))).collect();
    ///     ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect::<Result<_, unpadded::Error>>()
    /// })?;
    /// assert_eq!(losses[0], losses[1]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn distributed(mut self, world: World) -> Self {
        (self.step.world, self.step.programs) = (Some(world), None);
        self
    }

    /// Returns the world of processes; `None` if this process is the only one.
    pub(super) fn others(&self) -> Option<&World> {
        self.step.world.as_ref().filter(|world| world.size() > 1)
    }

    /// Returns whether this process is the one that shows the progress and writes files (rank 0, or a single process).
    pub(super) fn is_first(&self) -> bool {
        self.others().is_none_or(|world| world.rank() == 0)
    }

    /// Returns whether the training stops after the last step. A single process stops after its own interrupt. Several
    /// processes stop after a step in which all processes have received the message that one of them was interrupted.
    pub(super) fn is_stopping(&self) -> bool {
        match self.others() {
            Some(_) => self.step.stopping,
            None => self.step.stop.load(Ordering::SeqCst),
        }
    }

    /// Sends an error of this process to the other processes, so that they do not wait for it; returns `outcome` unchanged.
    pub(super) fn reported<T>(&self, outcome: Result<T>) -> Result<T> {
        if let (Err(error), Some(world)) = (&outcome, self.others()) {
            world.fail(error);
        }
        outcome
    }

    /// Returns whether `mine` is true on at least one process.
    pub(super) fn agreed(&self, mine: bool, doing: &str) -> Result<bool> {
        let Some(world) = self.others() else { return Ok(mine) };
        Ok(world.agree(doing, Ok(vec![u8::from(mine)]))?.iter().any(|message| message.first() == Some(&1)))
    }

    pub(super) fn check_parts(&self) -> Result<()> {
        let (parts, size) = (self.parts_a_batch(), self.step.world.as_ref().map_or(1, World::size) as u64);
        let called = |error: Error| {
            self.settings.division.parts.iter().fold(error, |error, given| error.called(given.line))
        };
        if !parts.is_power_of_two() || parts > MOST_PARTS {
            let expected = format!("a power of two up to {MOST_PARTS}");
            return Err(called(Error::new("parts of a batch", expected, parts.to_string())));
        }
        if size > parts {
            let expected = format!("at most {parts}, the number of parts of a batch");
            let error = Error::new("processes", expected, size.to_string());
            return Err(called(error.noted("start fewer processes, or train anew with more `parts`")));
        }
        Ok(())
    }

    /// Returns the number of threads of this process; by default, the processes on a machine share its cores equally.
    pub(super) fn threads_here(&self) -> usize {
        match self.others() {
            Some(world) if self.settings.threads == 0 => {
                let cores = std::thread::available_parallelism().map_or(1, usize::from);
                (cores / world.sharers()).max(1)
            }
            _ => self.settings.threads,
        }
    }

    /// Returns the progress line about the number of processes and parts; `None` for a single process.
    pub(super) fn of_processes(&self) -> Option<String> {
        let world = self.others()?;
        let parts = self.parts_a_batch();
        let why = if self.settings.division.parts.is_some() {
            ""
        } else {
            " (results depend on the number of parts, which `parts` sets)"
        };
        let tables: Vec<String> = self.row_sparse_parameters().map(|name| format!("`{name}`")).collect();
        let size = world.size();
        let dealt = match self.own_rows() {
            Some(_) => format!("; row r of {} is on process r modulo {size}", tables.join(", ")),
            None => String::new(),
        };
        Some(format!("{size} processes, {parts} parts of each batch{why}{dealt}"))
    }

    /// Begins to measure the work of this process for the report of the run.
    pub(super) fn measure(&mut self) -> (Instant, Traffic) {
        self.step.computed = 0;
        (Instant::now(), self.others().map(World::traffic).unwrap_or_default())
    }

    /// Returns the work of each process since [`Self::measure`], by rank.
    pub(super) fn measured(&mut self, (began, before): (Instant, Traffic)) -> Result<Vec<Process>> {
        let Some(world) = self.others().cloned() else { return Ok(Vec::new()) };
        let now = world.traffic();
        let seconds = began.elapsed().as_secs_f64();
        let waited = now.waited.saturating_sub(before.waited).as_secs_f64();
        let sent = now.sent.saturating_sub(before.sent);
        let mut message = Message::default();
        let tables = self.bytes_of_tables()?;
        message.floats(&[self.step.computed as f64, sent as f64, seconds, waited, tables as f64]);
        let parsed = |message: &Vec<u8>| match Reader(message).floats()?[..] {
            [tokens, sent, seconds, waited, tables] => {
                let [tokens, sent, tables] = [tokens, sent, tables].map(|number| number as u64);
                Ok(Process { tokens, sent, seconds, waited, tables })
            }
            _ => Err(unprepared()),
        };
        world.gather("measures of the processes", message.0)?.iter().map(parsed).collect()
    }

    /// Checks that all processes have the same settings; if the states of the processes differ, sends the state of rank
    /// 0 to all processes.
    pub(super) fn synchronize(&mut self, train: &dyn Data, dev: &dyn Data, until: Until) -> Result<()> {
        let Some(world) = self.others().cloned() else { return Ok(()) };
        self.step.carried.clear();
        self.step.stopping = false;
        // The processes may run on different machines with different limits. All processes use the smallest limit,
        // because all must divide a batch in the same way.
        let own = self.settings.division.memory_limit.as_deref().copied().unwrap_or(u64::MAX);
        let all = world.agree("memory limit", Ok(own.to_le_bytes().to_vec()))?;
        let least = all.iter().filter_map(|bytes| Some(u64::from_le_bytes(bytes[..].try_into().ok()?))).min();
        if let Some(least) = least.filter(|&least| least != own) {
            self.settings.division.memory_limit = Some(CallerSetting::new(least));
        }
        let mine = self.described_to_others(train, dev, until);
        let all = world.agree("settings of the training", mine.map(String::into_bytes))?;
        let (first, ours) = (text(&all[0]), text(&all[world.rank()]));
        let differ = first.lines().zip(ours.lines()).find(|(first, ours)| first != ours);
        let differ = differ.map(|(first, ours)| {
            let what = first.split(": ").next().unwrap_or_default();
            let value =
                |line: &str| line.split_once(": ").map_or(String::new(), |(_, value)| value.to_owned());
            let expected = format!("{}, as on rank 0", value(first));
            Error::of(ErrorKind::Program, format!("{what} of rank {}", world.rank()), expected, value(ours))
        });
        world.agree("settings of the training", differ.map_or(Ok(Vec::new()), Err))?;

        // The file from which rank 0 has read its rows of dealt tables; the other processes read theirs from it.
        let file = self.training.rows_from.take().filter(|_| self.is_first());
        let file = file.map_or_else(Vec::new, |file| bytes_of_path(&file));
        let file = world.agree("rows of dealt tables", Ok(file))?.swap_remove(0);
        let file = (!file.is_empty()).then(|| path_of_bytes(&file)).transpose()?;
        if file.is_some() {
            self.training.dealt_as = self.own_rows();
        }
        let digest = self.digest();
        let all = world.agree("state of the training", digest.map(|digest| digest.to_le_bytes().to_vec()))?;
        if file.is_none() && all.iter().all(|digest| *digest == all[0]) {
            return self.keep_own_rows();
        }
        let state = match self.is_first() {
            true => self.as_bytes(),
            false => Ok(Vec::new()),
        };
        let all = world.agree("state of the training", state)?;
        let taken = match self.is_first() {
            true => Ok(()),
            false => Checkpoint::from_message(&all[0])
                .and_then(|state| self.take(state))
                .and_then(|()| file.map_or(Ok(()), |file| self.take_own_rows(&file))),
        };
        let taken = taken.and_then(|()| self.keep_own_rows());
        let resumed = self.training.resumed;
        // The state of rank 0 may have another number of parts, so the program must be compiled again.
        self.step.programs = None;
        world.agree("state of the training", taken.map(|()| Vec::new()))?;
        self.training.resumed = self.agreed(resumed && self.is_first(), "state of the training")?;
        Ok(())
    }

    /// Returns the settings that all processes must share, one per line.
    fn described_to_others(&mut self, train: &dyn Data, dev: &dyn Data, until: Until) -> Result<String> {
        let fingerprint = |bytes: &[u8]| format!("fingerprint {:08x}", crc32fast::hash(bytes));
        let program = self.training.program.to_bytes()?;
        let name = |var: VarId| self.training.program.var(var).name.as_str();
        let metrics: Vec<&str> = self.settings.metrics.iter().map(|metric| metric.name()).collect();
        let plateau = self.settings.rates.plateau.as_deref().map_or(String::new(), |plateau_setting| {
            format!(
                "factor {}, patience {}, least {}",
                plateau_setting.factor, plateau_setting.patience, plateau_setting.least
            )
        });
        let number = |given: &Option<CallerSetting<u64>>| given.as_deref().copied().unwrap_or_default();
        Ok([
            format!("version of unpadded: {}", env!("CARGO_PKG_VERSION")),
            format!("seed: {}", self.training.program.seed),
            format!("precision of the matrix products: {}", self.unit()),
            format!("program: {}", fingerprint(&program)),
            format!("training data: fingerprint {:016x}", train.fingerprint()),
            format!("development data: fingerprint {:016x}", dev.fingerprint()),
            format!("metrics: {}", metrics.join(", ")),
            format!(
                "selected metric: {}",
                self.settings.objective.select.as_ref().map_or("", |select| &select.what)
            ),
            format!("parts of a batch: {}", number(&self.settings.division.parts)),
            format!("dealt tables: {}", self.settings.division.deal_tables.is_some()),
            format!("batches that make a step: {}", self.batches_a_step()),
            format!("end: {until:?}"),
            format!("steps from checkpoint to checkpoint: {}", number(&self.settings.every)),
            format!("patience: {}", number(&self.settings.patience)),
            format!("plateau: {plateau}"),
            format!(
                "weight of a batch: {}",
                self.settings.objective.weight.as_ref().map_or("", |weight| name(weight.what.id()))
            ),
        ]
        .join("\n"))
    }

    /// Returns a checksum of the state of the training.
    fn digest(&mut self) -> Result<u64> {
        let mut sum = crc32fast::Hasher::new();
        sum.update(format!("{:?} {:?}", self.training.position, self.training.criterion).as_bytes());
        sum.update(&[u8::from(self.training.dealt_as.is_some())]);
        for name in self.persistent() {
            let program = &self.training.program;
            let var = program.find(&name).map(|id| program.var(id));
            if self.training.dealt_as.is_some() && var.is_some_and(VarDesc::is_row_sparse) {
                continue;
            }
            let dtype = var.filter(|var| !var.is_row_sparse()).and_then(|var| Some(var.spec()?.dtype));
            match dtype {
                // The numbers are read without a copy of the whole value, because a table may take half of the memory.
                Some(DType::F32) => self
                    .training
                    .scope
                    .read::<f32, _>(&name, |x| digest_of(&mut sum, x, |x| x.to_bits().into()))?,
                Some(DType::F64) => {
                    self.training.scope.read::<f64, _>(&name, |x| digest_of(&mut sum, x, |x| x.to_bits()))?
                }
                _ => {
                    let value = self.training.scope.value(&name)?;
                    if let Storage::SelectedRows(rows) = &value {
                        rows.row_ids().iter().for_each(|id| sum.update(&id.to_le_bytes()));
                    }
                    value.numbers().write_numbers(|piece| {
                        sum.update(piece);
                        Ok(())
                    })?;
                }
            }
        }
        Ok(u64::from(sum.finalize()))
    }

    /// Serializes the state of the training as a checkpoint.
    fn as_bytes(&mut self) -> Result<Vec<u8>> {
        self.with_sums(|trainer| {
            let TrainingState { state, scope, dealt_as, .. } = &mut trainer.training;
            state.shards = dealt_as.map(|_| ShardFiles::none());
            let bytes = state.bytes_from(scope);
            state.shards = None;
            bytes
        })
    }

    /// Returns the names of the statistics of layers: variables that a training step updates with values of its forward
    /// pass.
    pub(super) fn statistics(&self) -> Vec<String> {
        let program = &self.training.program;
        let forward: Vec<_> = program
            .root()
            .ops
            .iter()
            .filter(|op| op.role == Role::Forward)
            .flat_map(|op| op.writes())
            .collect();
        let updates = program.root().ops.iter().filter(|op| op.role == Role::Update);
        let moved = updates.filter(|op| op.reads().any(|var| forward.contains(&var)));
        let moved = moved.flat_map(|op| op.writes()).filter(|&var| program.var(var).persistable);
        moved.map(|var| program.var(var).name.clone()).collect()
    }

    /// Returns the carried states of a part, by the names of the state variables.
    pub(super) fn carried_of(&mut self, part: usize) -> &mut BTreeMap<String, Variable> {
        let parts = self.parts_a_batch() as usize;
        if parts == 1 {
            return &mut self.training.carried;
        }
        if self.step.carried.len() != parts {
            self.step.carried = (0..parts).map(|part| of_part(&self.training.carried, part, parts)).collect();
        }
        &mut self.step.carried[part]
    }

    /// Joins the carried states of all parts into the carried states of the whole batch, for a checkpoint.
    pub(super) fn gather_carried(&mut self) -> Result<()> {
        let parts = self.parts_a_batch() as usize;
        if parts == 1 || self.training.program.carried_states().next().is_none() {
            return Ok(());
        }
        let names: Vec<String> = self
            .training
            .program
            .carried_states()
            .map(|state| self.training.program.var(state.before).name.clone())
            .collect();
        if let Some(world) = self.others().cloned() {
            let own = parallel::parts_of(world.rank(), world.size(), parts);
            let mut message = Message::default();
            let known = self.step.carried.len() == parts;
            message.count(usize::from(known));
            for part in own.filter(|_| known) {
                for name in &names {
                    let value = self.step.carried[part].get(name).map(|value| value.storage().numbers());
                    message.count(value.map_or(0, |value| value.rows()));
                    value.map_or(Ok(()), |value| message.numbers(value, 0..value.len()))?;
                }
            }
            let all = world.agree("carried states", Ok(message.0))?;
            for (rank, message) in all.iter().enumerate() {
                let mut message = Reader(message);
                if message.number()? == 0 || rank == world.rank() {
                    continue;
                }
                for part in parallel::parts_of(rank, world.size(), parts) {
                    for name in &names {
                        let rows = message.number()? as usize;
                        let program = &self.training.program;
                        let like = program.find(name).ok_or_else(unprepared)?;
                        let spec = program.spec(like)?;
                        let mut shape: Vec<usize> =
                            spec.shape.iter().map(|e| e.known().unwrap_or(rows)).collect();
                        shape.iter_mut().take(1).for_each(|first| *first = rows);
                        let value = message.numbers(spec.dtype, &shape)?;
                        self.step.carried[part].insert(name.clone(), Variable::new(value, None)?);
                    }
                }
            }
        }
        if self.step.carried.len() != parts {
            return Ok(());
        }
        for name in names {
            let of_parts: Vec<&Variable> =
                self.step.carried.iter().filter_map(|states| states.get(&name)).collect();
            if let Some(whole) = joined(&of_parts)? {
                self.training.carried.insert(name, whole);
            }
        }
        Ok(())
    }

    pub(super) fn runner(&self) -> Result<&crate::on_data::BatchRunner> {
        Ok(&self.step.program()?.runner)
    }
}

/// Returns the carried states of one part, taken from the carried states of a whole batch.
fn of_part(carried: &BTreeMap<String, Variable>, part: usize, parts: usize) -> BTreeMap<String, Variable> {
    let own = carried.iter().filter_map(|(name, value)| {
        let sequences: Vec<usize> = (part..value.rows()).step_by(parts).collect();
        Some((name.clone(), value.take_sequences(&sequences).ok()?))
    });
    own.collect()
}

/// Returns the carried states of a whole batch, joined from the carried states of its parts; `None` if there are no parts.
fn joined(parts: &[&Variable]) -> Result<Option<Variable>> {
    if parts.is_empty() {
        return Ok(None);
    }
    let all = Variable::merge(&parts.iter().map(|&part| part.clone()).collect::<Vec<_>>())?;
    // With n parts, sequence i of the batch is sequence i / n of part i mod n.
    let starts: Vec<usize> = parts
        .iter()
        .scan(0, |start, part| {
            let own = *start;
            *start += part.rows();
            Some(own)
        })
        .collect();
    let order: Vec<usize> = (0..all.rows()).map(|i| starts[i % parts.len()] + i / parts.len()).collect();
    all.take_sequences(&order).map(Some)
}

fn digest_of<T: Copy>(sum: &mut crc32fast::Hasher, numbers: &[T], bits: impl Fn(T) -> u64) {
    for piece in numbers.chunks(1 << 12) {
        let bytes: Vec<u8> = piece.iter().flat_map(|&x| bits(x).to_le_bytes()).collect();
        sum.update(&bytes);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
