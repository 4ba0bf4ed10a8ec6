//! Preparation of a trainer before the first batch: checks the settings, resolves names, and compiles the program.

use std::collections::BTreeSet;

use super::dealt::DealtTables;
use super::step::{CompiledTraining, ReadRows};
use super::trainer::{BY_WEIGHT, Trainer, ends_at};
use crate::data::Data;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::{Executor, Profile, Threads};
use crate::metrics::{Better, Metric};
use crate::on_data::BatchLoss;
use crate::on_data::BatchRunner;
use crate::operator::{BlockId, Spec, VarId};
use crate::program::transform::terms::whole_batch;
use crate::program::{LossTerms, Var};

impl Trainer {
    /// Returns a warning for each operator without a gradient between the loss and a trained parameter.
    pub(super) fn without_gradient(&self) -> Vec<String> {
        let warned = self.training.blocked.iter().map(|operator| {
            format!(
                "warning: {}: parameters before this operator are not trained through it (if this is intended, call \
                 `stop_gradient` on its output)",
                ends_at(operator)
            )
        });
        warned.collect()
    }

    /// Returns a warning for each operator whose results on several batches of development data may differ from its result on
    /// one batch.
    pub(super) fn of_batches(&self, dev: &dyn Data) -> Result<Vec<String>> {
        let batches = match dev.batch_count() {
            Some(0 | 1) => return Ok(Vec::new()),
            Some(batches) => batches.to_string(),
            None => "several".to_owned(),
        };
        let warned = self.whole_in_evaluation()?.into_iter();
        let warned = warned.map(|(operator, line)| {
            format!(
                "warning: `{operator}`, called at {line}, reads a whole batch, and sees {batches} batches of development \
                 data by themselves: the loss and the metrics may differ from the results on one batch"
            )
        });
        Ok(warned.collect())
    }

    /// Returns each operator that reads a whole batch and on which a metric depends, with the source line of the
    /// operator.
    pub(super) fn whole_in_evaluation(&self) -> Result<Vec<(String, String)>> {
        let looked_at = self.settings.metrics.iter().flat_map(|metric| metric.variables()).map(Var::id);
        whole_batch(&self.training.program, &self.training.registry, looked_at)
    }

    /// Returns the metric that decides which epoch is the best; `None` if [`Self::select`] names an unknown metric.
    pub fn selected(&self) -> Option<&dyn Metric> {
        Some(&*self.settings.metrics.get(self.place_of_selected()?)?.what)
    }

    fn place_of_selected(&self) -> Option<usize> {
        match &self.settings.objective.select {
            None => Some(usize::from(self.settings.metrics.len() > 1)),
            Some(name) => self.settings.metrics.iter().position(|metric| metric.name() == name.what),
        }
    }

    /// Checks all settings of the trainer; returns the index of the metric that decides which epoch is the best.
    fn check_settings(&self) -> Result<usize> {
        let metrics = &self.settings.metrics;
        // Operators that were added after the trainer was made, for a metric or an output, may have recorded errors.
        self.training.net.check()?;
        for (i, metric) in metrics.iter().enumerate() {
            if metrics[..i].iter().any(|other| other.name() == metric.name()) {
                let error = Error::new("metrics", "each name once", format!("`{}` twice", metric.name()));
                return Err(error.called(metric.line));
            }
            let named = |e: Error| {
                let (what, got) = (format!("metric `{}`", metric.name()), format!("{e:#}"));
                Error::of(e.kind(), what, "variables that fit the model", got).caused_by(e)
            };
            let mut variables = metric.variables().into_iter();
            variables
                .try_for_each(|var| self.own(var).map(drop))
                .map_err(|e| named(e).called(metric.line))?;
        }
        for given in &self.settings.outputs {
            let (name, var) = &**given;
            self.made(*var).map_err(|e| e.variable(format!("output {name}")).called(given.line))?;
        }
        for (what, number) in [
            ("patience, in epochs", &self.settings.patience),
            ("steps from checkpoint to checkpoint", &self.settings.every),
            ("batches that make a step", &self.settings.division.accumulate),
            ("parts of a batch", &self.settings.division.parts),
            ("memory limit in bytes", &self.settings.division.memory_limit),
        ] {
            if let Some(given) = number
                && **given == 0
            {
                return Err(Error::new(what, "at least 1", "0").called(given.line));
            }
        }
        self.check_precision()?;
        self.check_parts()?;
        self.check_tables()?;
        self.check_rate()?;
        self.check_averages()?;
        self.settings.objective.unseen.clone().map_or(Ok(()), Err)?;
        self.check_weight()?;
        self.place_of_selected().ok_or_else(|| {
            let names: Vec<String> = metrics.iter().map(|m| format!("`{}`", m.name())).collect();
            let (expected, select) =
                (format!("one of {}", names.join(", ")), &self.settings.objective.select);
            let got = select.as_ref().map_or_else(|| "none".to_owned(), |name| format!("`{}`", name.what));
            select.iter().fold(Error::new("selected metric", expected, got), |e, name| e.called(name.line))
        })
    }

    /// Checks all settings of the trainer, and compiles its program. If `in_parts` is true, the program makes steps in
    /// parts.
    pub(super) fn compile(&self, in_parts: bool) -> Result<CompiledTraining> {
        let selected = self.check_settings()?;
        let (program, metrics) = (&self.training.program, &self.settings.metrics);
        let mut wanted: Vec<VarId> = vec![self.training.loss.id(), self.training.rate];
        wanted.extend(metrics.iter().flat_map(|m| m.variables()).map(Var::id));
        wanted.extend(program.carried_states().map(|state| state.after));
        let threads = Threads::new(self.threads_here())?;
        let parts = match in_parts {
            false => None,
            true => Some(BatchLoss::new(program, &self.training.registry, self.terms()?, threads.clone())?),
        };
        wanted.extend(parts.iter().flat_map(BatchLoss::wanted));
        // With several processes, the rows that a part reads are sent to the other processes. The variables are wanted for any
        // number of processes, because this number must not change the memory of a part, by which parts are divided.
        let selections = if self.parts_a_batch() > 1 { program.row_selections() } else { BTreeSet::new() };
        wanted.extend(&selections);
        wanted.retain(|&var| !program.var(var).persistable);
        wanted.sort();
        wanted.dedup();
        let mut read = Vec::new();
        for ids in selections.into_iter().filter(|_| self.others().is_some()) {
            let (settling, params) = program.settling_rows(ids)?;
            let settling = Executor::on(settling, &self.training.registry, &[], threads.clone())?;
            let heights = params.iter().filter_map(|&param| program.spec(param).ok()?.rows().known());
            let height = heights.min().unwrap_or(0);
            read.push(ReadRows { ids, params, height, settling, rows: Vec::new() });
        }
        let deals = self.own_rows().is_some();
        let tables = deals.then(|| DealtTables::new(program, &self.training.registry, threads.clone()));
        let program = parts.as_ref().map_or(program, |parts| &parts.body);
        let looked_at = metrics.iter().flat_map(|m| m.variables()).map(Var::id);
        let mut runner = BatchRunner::new(
            Executor::on(program.clone(), &self.training.registry, &wanted, threads)?,
            looked_at,
        );
        if let Some(parts) = &parts {
            runner.seeds = parts.seeds(None, &parts.zero())?;
        }
        Ok(CompiledTraining {
            runner,
            parts,
            selected,
            better: metrics.get(selected).map_or(Better::Lower, |m| m.better()),
            read,
            tables: tables.transpose()?,
        })
    }
}

impl Trainer {
    /// Returns the terms of the loss, which steps in parts need.
    fn terms(&self) -> Result<LossTerms> {
        let program = &self.training.program;
        match &self.settings.objective.weight {
            None => {
                let terms = LossTerms::of(program, &self.training.registry, self.training.loss.id());
                terms.map_err(|e| {
                    let given = self.settings.division.accumulate.iter().chain(&self.settings.division.parts);
                    given.fold(e.noted(BY_WEIGHT), |e, given| e.called(given.line))
                })
            }
            Some(weight) => LossTerms::weighted(
                program,
                &self.training.registry,
                self.training.loss.id(),
                weight.what.id(),
            ),
        }
    }

    /// Checks that the variable of [`Self::weight`] is a single float.
    fn check_weight(&self) -> Result<()> {
        let Some(weight) = &self.settings.objective.weight else { return Ok(()) };
        let one = |spec: &Spec| match spec.shape.iter().all(|extent| extent.known() == Some(1)) {
            true if spec.dtype.is_float() => Ok(()),
            _ => Err(Error::new("weight of a batch", "one float", spec.to_string())),
        };
        self.own(weight.what).and_then(one).map_err(|e| e.called(weight.line))
    }

    /// Returns the spec of a variable of the trained model; an error if the variable belongs to another model.
    fn made(&self, var: Var) -> Result<&Spec> {
        self.training.net.owned(var)?;
        if var.id().0 as usize >= self.training.forward {
            let got = format!("`{}`, which was made later", self.training.net.name_of(var));
            return Err(Error::of(ErrorKind::Program, "variable", "a variable made before the trainer", got));
        }
        self.training.program.spec(var.id())
    }

    /// Returns the spec of a variable of the trained model; an error if the variable is in a step block.
    fn own(&self, var: Var) -> Result<&Spec> {
        let (spec, desc) = (self.made(var)?, self.training.program.var(var.id()));
        if desc.block != BlockId(0) {
            let got = format!("`{}`, a variable of a step block", desc.name);
            return Err(Error::of(ErrorKind::Program, "variable", "a variable of the root block", got));
        }
        Ok(spec)
    }
}

/// Inspection of the compiled program: its listing, and a profile of its operators.
impl Trainer {
    /// Returns the compiled program as text: its instructions, their memory, and the reason for each decision
    /// ([`Listing`](crate::executor::Listing)).
    ///
    /// # Errors
    /// Returns an error if a setting of the trainer does not fit the model.
    #[track_caller]
    pub fn listing(&mut self) -> Result<String> {
        self.compiled().map(|compiled| compiled.runner.executor.listing().to_string()).at_caller()
    }

    /// Starts a profile: from now on, training and evaluation record the time of each operator, until [`Self::take_profile`].
    ///
    /// ```
    /// # use unpadded::data::{Field, Loader, Samples};
    /// # use unpadded::layers::Embedding;
    /// # use unpadded::optimizer::Sgd;
    /// # use unpadded::train::{Progress, Trainer, Until};
    /// # use unpadded::{Builder, DType};
    /// # let samples: Samples = (0..40).map(|i| vec![Field::from(vec![i % 7, 3]), (i % 2).into()]).collect();
    /// # let data = Loader::new(samples, &["words", "label"])?;
    /// # let net = Builder::new();
    /// # let (words, label) = (net.feed("words", DType::I64, &[], 1), net.feed("label", DType::I64, &[], 0));
    /// # let h = words.embedding(Embedding::new(9, 8)).lstm(8);
    /// # let logits = h.sequence_pool(unpadded::ops::Pool::Last).linear(2);
    /// # let loss = logits.cross_entropy(label).mean();
    /// let mut trainer = Trainer::new(net, loss, &Sgd::new(0.1))?;
    /// # let mut trainer = trainer.progress(Progress::Quiet);
    /// trainer.start_profile()?;
    /// trainer.fit(&data, &data, Until::Epochs(1))?;
    /// if let Some(profile) = trainer.take_profile() {
    ///     println!("{profile}"); // a table, longest first; `profile.chrome_trace()` is for about:tracing
    /// #   assert!(profile.to_string().contains("lstm_cell"));
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns an error if a setting of the trainer does not fit the model.
    #[track_caller]
    pub fn start_profile(&mut self) -> Result<()> {
        self.compiled().map(|compiled| compiled.runner.executor.start_profile()).at_caller()
    }

    /// Returns the profile since [`Self::start_profile`]; `None` if no profile was started.
    pub fn take_profile(&mut self) -> Option<Profile> {
        let programs = self.step.programs.as_mut()?;
        let whole = programs.main.runner.executor.take_profile()?;
        // If more runs were made for divided steps than for whole steps, returns the profile of the divided steps.
        let divided = programs.divided.as_mut().and_then(|divided| divided.runner.executor.take_profile());
        Some(divided.filter(|divided| divided.runs > whole.runs).unwrap_or(whole))
    }

    fn compiled(&mut self) -> Result<&mut CompiledTraining> {
        self.prepare(None)?;
        self.step.compiled()
    }
}
