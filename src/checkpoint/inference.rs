//! Checkpoints for inference: a model without the training state.

use std::borrow::Cow;
use std::collections::BTreeMap;

use super::checkpoint::Checkpoint;
use super::purpose::Purpose;
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::executor::{self, Scope};
use crate::operator::{BlockId, MatrixUnit, Registry, RowTable, VarId};
use crate::optimizer::averages;
use crate::program::VarKind;
use crate::program::description::initialize;
use crate::tensor::StorageKind;

impl Checkpoint {
    /// Returns a checkpoint for inference only. The returned checkpoint has the operators that outputs and metrics need, and
    /// the parameters that these operators read. Each parameter has the value that a [`Predictor`](crate::predict) uses: the
    /// value after the best epoch, if the parameters of that epoch were kept. A checkpoint for inference has no optimizer
    /// state, gradients, updates or data position, so no training can resume from it. `registry` has the update rule of the
    /// training, whose postponed updates are applied.
    ///
    /// ```no_run
    /// # use unpadded::checkpoint::Checkpoint;
    /// # use unpadded::ops;
    /// Checkpoint::load("sentiment.ckpt")?.for_inference(&ops::catalogue())?.save("sentiment.model")?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the checkpoint has no outputs, if an output is not computed in the forward pass, if a parameter is missing, or if
    /// `registry` lacks the update rule.
    #[track_caller]
    pub fn for_inference(self, registry: &Registry) -> Result<Self> {
        self.bare(registry).at_caller()
    }

    /// Returns this checkpoint for inference with a dense parameter in place of each
    /// [row-sparse parameter](crate::Builder::row_sparse_parameter): the rows that no update has touched get their initial
    /// values. Files of other frameworks need dense parameters.
    ///
    /// # Errors
    /// Fails if the checkpoint is of a training, or if a table does not fit into memory.
    #[track_caller]
    pub fn dense_tables(mut self) -> Result<Self> {
        if self.purpose != Purpose::Inference {
            let got = "a checkpoint of a training";
            return Err(Error::of(ErrorKind::Program, "tables", "a checkpoint for inference", got));
        }
        for id in self.program.parameters().collect::<Vec<_>>() {
            let var = self.program.var(id);
            let Some(value) = self.tensors.get_mut(&var.name).filter(|_| var.is_row_sparse()) else {
                continue;
            };
            let table = initialize::start_of(var, value.shape(), self.program.seed);
            let table = table.and_then(|start| RowTable::new(value.dtype(), value.shape(), start));
            let dense = table.and_then(|table| table.with_rows(value.as_selected_rows()?.clone()));
            *value = dense.map_err(|e| e.variable(&var.name)).at_caller()?.into();
            if let VarKind::Tensor(spec) = &mut self.program.var_mut(id).kind {
                *spec = spec.stored(StorageKind::Dense);
            }
        }
        Ok(self)
    }

    /// Returns the checkpoint after [settling](crate::executor::settle): all postponed updates are applied to the rows of
    /// parameters. A training is saved before its postponed updates are applied. The parameters of the best epoch have no
    /// postponed updates. `registry` has the update rule of the training.
    ///
    /// # Errors
    /// Fails if the checkpoint lacks a parameter that may have postponed updates, or a state variable of the parameter's update
    /// rule, such as a momentum; also if `registry` lacks the update rule.
    #[track_caller]
    pub fn settled(self, registry: &Registry) -> Result<Self> {
        self.settle(registry).at_caller()
    }

    fn settle(mut self, registry: &Registry) -> Result<Self> {
        let Some(settling) = self.program.settling() else { return Ok(self) };
        let mut names: Vec<String> = Vec::new();
        for op in &settling.root().ops {
            let vars = op.reads().chain(op.writes()).map(|id| settling.var(id).name.clone());
            names.extend(vars);
        }
        names.sort_unstable();
        names.dedup();
        let mut scope = Scope::new();
        for name in &names {
            let missing = || Error::of(ErrorKind::Program, "checkpoint", "a value for this variable", "none");
            let value = self.tensors.remove(name).ok_or_else(missing).map_err(|e| e.variable(name))?;
            scope.set_of(&settling, name, value)?;
        }
        executor::settle(&self.program, registry, &mut scope, 0)?;
        for name in names {
            let value = scope.value(&name)?;
            self.tensors.insert(name, value);
        }
        Ok(self)
    }

    /// Returns the checkpoint with the parameters to predict with, as [`Self::predicting`] does; it is copied only if they differ
    /// from the stored parameters.
    ///
    /// # Errors
    /// Fails as [`Self::settled`] does.
    pub(crate) fn predicting_copy(&self, registry: &Registry) -> Result<Cow<'_, Self>> {
        match self.predicts_as_it_is() {
            true => Ok(Cow::Borrowed(self)),
            false => self.clone().predicting(registry).map(Cow::Owned),
        }
    }

    /// Returns whether a predictor uses the stored parameters unchanged: the parameters of the best epoch were kept, or no
    /// parameter has postponed updates or an average.
    fn predicts_as_it_is(&self) -> bool {
        let plain = || self.program.settling().is_none() && averages(&self.program).next().is_none();
        !self.best.is_empty() || plain()
    }

    /// Returns the checkpoint with the parameters to predict with. These are the parameters of the best epoch, if they were
    /// kept. Otherwise, they are the averages of the parameters. If the training has no averages, they are the last parameters
    /// after settling.
    ///
    /// # Errors
    /// Fails as [`Self::settled`] does.
    pub(crate) fn predicting(mut self, registry: &Registry) -> Result<Self> {
        // Prediction is in f32 unless another precision is chosen.
        self.program.unit = MatrixUnit::F32;
        if self.predicts_as_it_is() {
            return Ok(self);
        }
        let mut found = self.settle(registry)?;
        if found.position.step > 0 {
            for (param, average) in averages(&found.program) {
                if let Some(value) = found.tensors.get(average).cloned() {
                    found.tensors.insert(param.to_owned(), value);
                }
            }
        }
        Ok(found)
    }

    fn bare(self, registry: &Registry) -> Result<Self> {
        let Self { program, mut tensors, mut best, vocabularies, notes, outputs, metrics, .. } =
            self.predicting(registry)?;
        if outputs.is_empty() {
            let error = Error::of(ErrorKind::Program, "outputs of the checkpoint", "at least one", "none");
            return Err(error.noted_in_code("a trainer names outputs by `Trainer::output(name, variable)`"));
        }
        let named = outputs.values().chain(metrics.iter().flat_map(|metric| &metric.variables));
        let find = |name: &String| {
            let missing = || {
                Error::of(ErrorKind::Program, "checkpoint", "a variable of the checkpoint's program", name)
            };
            program.find(name).ok_or_else(missing)
        };
        let mut wanted: Vec<VarId> = named.map(find).collect::<Result<_>>()?;
        // Variables of step blocks are left out: a step block computes all of its variables when it runs.
        wanted.retain(|&id| program.var(id).block == BlockId(0));
        wanted.extend(program.carried_states().map(|state| state.after));
        let program = program.inference(&wanted)?.shortened(&wanted);
        let mut kept = BTreeMap::new();
        for desc in program.reads().into_iter().map(|id| program.var(id)).filter(|desc| desc.persistable) {
            let value = best.remove(&desc.name).or_else(|| tensors.remove(&desc.name));
            let missing = || Error::of(ErrorKind::Program, "checkpoint", "a value for this variable", "none");
            kept.insert(desc.name.clone(), value.ok_or_else(missing).map_err(|e| e.variable(&desc.name))?);
        }
        let purpose = Purpose::Inference;
        Ok(Self { purpose, program, tensors: kept, vocabularies, notes, outputs, metrics, ..Self::default() })
    }
}
