//! The gradients of the parts of a step, summed in the arena of the executor: the newest sum of dense gradients is in the slots
//! of the last run, and a sum is copied to a buffer only before another part runs.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::executor::Executor;
use crate::operator::VarId;
use crate::parallel::{GradientSpec, HeldSums, add_rows};
use crate::program::Program;
use crate::store::{WeighedGradient, merge};
use crate::tensor::{Dense, FloatsMut, SelectedRows, Storage, StorageKind};

/// The key of the gradients in the executor's slots, whatever part they belong to.
pub(super) const IN_SLOTS: usize = usize::MAX;

/// The sums of gradients over parts of a step. A sum has the number of its first part as its key.
pub(super) struct PartSums {
    pub(super) specs: Vec<GradientSpec>,
    params: Vec<VarId>,
    /// The key of the sum whose dense gradients are in the executor's slots.
    in_slots: Option<usize>,
    /// The dense gradients of the other sums, one array per parameter; the array of a parameter with selected rows is empty.
    beside: BTreeMap<usize, Vec<Dense>>,
    /// The selected rows of each sum, per parameter: pairs (rows, factor) that [`Self::finish`] merges.
    rows: BTreeMap<usize, Vec<Vec<WeighedGradient>>>,
    /// Buffers that no sum uses any more.
    unused: Vec<Vec<Dense>>,
}

/// A run of a piece of a part: the key of the part's sum, and whether the run is the first and the last one of the part.
pub(super) struct RunOfPart {
    pub(super) key: usize,
    pub(super) first: bool,
    pub(super) last: bool,
}

impl PartSums {
    /// Makes empty sums of the gradients of `trained`, which has pairs (parameter, gradient); `dealt` says whether each process
    /// needs only its own rows of a parameter's gradient.
    pub(super) fn new(
        program: &Program,
        trained: &[(VarId, VarId)],
        dealt: &dyn Fn(VarId) -> bool,
    ) -> Result<Self> {
        let spec = |(param, gradient): &(VarId, VarId)| {
            let spec = program.spec(*gradient)?;
            let shape = spec.shape.iter().map(|extent| extent.known().unwrap_or(0)).collect();
            let selected_rows = spec.storage == StorageKind::SelectedRows;
            Ok(GradientSpec { selected_rows, dealt: dealt(*param), dtype: spec.dtype, shape })
        };
        let specs = trained.iter().map(spec).collect::<Result<_>>()?;
        let params = trained.iter().map(|(param, _)| *param).collect();
        let (beside, rows, unused) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        Ok(Self { specs, params, in_slots: None, beside, rows, unused })
    }

    /// Adds the gradients of the last run, times `weight`, to the sum of the run's part.
    ///
    /// # Errors
    /// If a gradient is not finite; the error has the name of the parameter.
    pub(super) fn add_run(
        &mut self,
        executor: &mut Executor,
        program: &Program,
        run: &RunOfPart,
        weight: f64,
    ) -> Result<()> {
        let mut sums = match run.first {
            true if run.last => None,
            true => Some(self.buffer()?),
            false => self.beside.remove(&run.key),
        };
        let rows =
            self.rows.entry(run.key).or_insert_with(|| self.params.iter().map(|_| Vec::new()).collect());
        for (at, &param) in self.params.iter().enumerate() {
            let not_finite = || not_finite(&program.var(param).name);
            if self.specs[at].selected_rows {
                let gradient = executor.gradient(param)?;
                gradient.check_finite("gradient").map_err(|_| not_finite())?;
                rows[at].push(WeighedGradient { gradient, factor: weight });
                continue;
            }
            executor.change_gradient(param, &mut |mut gradient| {
                if !gradient.is_finite() {
                    return Err(not_finite());
                }
                match sums.as_mut().map(|sums| FloatsMut::of(&mut sums[at])).transpose()? {
                    None => gradient.scale(weight),
                    Some(mut sum) if run.first => {
                        sum.copy_from(&gradient);
                        sum.scale(weight);
                    }
                    Some(sum) if run.last => gradient.scale_onto(&sum, weight),
                    Some(mut sum) => sum.add_scaled(&gradient, weight),
                }
                Ok(())
            })?;
        }
        match (run.last, sums) {
            (true, sums) => {
                self.in_slots = Some(run.key);
                self.unused.extend(sums);
            }
            (false, Some(sums)) => {
                self.beside.insert(run.key, sums);
            }
            (false, None) => {}
        }
        Ok(())
    }

    /// Merges the selected rows of a part, so that the result does not depend on which process adds the parts.
    pub(super) fn finish(&mut self, key: usize) -> Result<()> {
        for sum in self.rows.get_mut(&key).into_iter().flatten().filter(|sum| !sum.is_empty()) {
            let gradient = merge(std::mem::take(sum))?;
            sum.push(WeighedGradient { gradient, factor: 1.0 });
        }
        Ok(())
    }

    /// Copies the sum in the executor's slots to a buffer; call it before the executor runs.
    pub(super) fn make_room(&mut self, executor: &mut Executor) -> Result<()> {
        let Some(key) = self.in_slots.take() else { return Ok(()) };
        let mut sums = self.buffer()?;
        for (&param, sum) in self.params.iter().zip(&mut sums) {
            executor.change_gradient(param, &mut |gradient| {
                FloatsMut::of(sum)?.copy_from(&gradient);
                Ok(())
            })?;
        }
        self.beside.insert(key, sums);
        Ok(())
    }

    /// Adds the sum `left`, which is in a buffer, to the newest sum, `right`; returns the key of the result.
    pub(super) fn join(&mut self, executor: &mut Executor, left: usize, right: usize) -> Result<usize> {
        let mut sums = self.beside.remove(&left).unwrap_or_default();
        for (&param, sum) in self.params.iter().zip(&mut sums) {
            executor.change_gradient(param, &mut |mut gradient| {
                gradient.add(&FloatsMut::of(sum)?);
                Ok(())
            })?;
        }
        self.unused.push(sums);
        self.in_slots = Some(left);
        let [own, other] = [left, right].map(|key| self.rows.remove(&key).unwrap_or_default());
        let join = |(own, other): (Vec<WeighedGradient>, Vec<WeighedGradient>)| {
            let (Some(own), Some(other)) = (own.first(), other.first()) else { return Ok(Vec::new()) };
            let sum = add_rows(own.gradient.as_selected_rows()?, other.gradient.as_selected_rows()?)?;
            Ok(vec![WeighedGradient { gradient: sum.into(), factor: 1.0 }])
        };
        let joined = own.into_iter().zip(other).map(join).collect::<Result<_>>()?;
        self.rows.insert(left, joined);
        Ok(left)
    }

    /// Takes the selected rows of a parameter out of the sum `key`.
    pub(super) fn take_rows(&mut self, key: usize, param: usize) -> Vec<WeighedGradient> {
        self.rows.get_mut(&key).map(|rows| std::mem::take(&mut rows[param])).unwrap_or_default()
    }

    /// Returns whether a sum has a row of a parameter with selected rows.
    pub(super) fn has_row(&self, param: VarId, row: i64) -> bool {
        let Some(at) = self.params.iter().position(|&known| known == param) else { return false };
        let rows = self.rows.values().flat_map(|rows| &rows[at]);
        let mut rows = rows.filter_map(|part| part.gradient.as_selected_rows().ok());
        rows.any(|rows| rows.row_ids().binary_search(&row).is_ok())
    }

    /// Returns the key of the sum whose dense gradients are in the executor's slots.
    pub(super) fn in_slots(&self) -> Option<usize> {
        self.in_slots
    }

    fn buffer(&mut self) -> Result<Vec<Dense>> {
        if let Some(unused) = self.unused.pop() {
            return Ok(unused);
        }
        let empty = |spec: &GradientSpec| match spec.selected_rows {
            true => Dense::zeros(spec.dtype, &[0]),
            false => Dense::zeros(spec.dtype, &spec.shape),
        };
        self.specs.iter().map(empty).collect()
    }
}

/// The sums of a process together with the executor that has the newest of them.
pub(super) struct SumsInArena<'a> {
    pub(super) sums: &'a mut PartSums,
    pub(super) executor: &'a mut Executor,
}

impl HeldSums for SumsInArena<'_> {
    fn dense(
        &mut self,
        key: usize,
        param: usize,
        act: &mut dyn FnMut(FloatsMut<'_>) -> Result<()>,
    ) -> Result<()> {
        match self.sums.beside.get_mut(&key) {
            Some(sums) => act(FloatsMut::of(&mut sums[param])?),
            None => self.executor.change_gradient(self.sums.params[param], act).map(drop),
        }
    }

    fn rows(&self, key: usize, param: usize) -> Result<&SelectedRows> {
        let rows = self.sums.rows.get(&key).and_then(|rows| rows[param].first());
        let missing = || Error::of(ErrorKind::Program, "gradient of a part", "selected rows", "none");
        rows.map(|part| &part.gradient).ok_or_else(missing).and_then(Storage::as_selected_rows)
    }
}

/// Returns the error of a parameter whose gradient is not finite.
pub(super) fn not_finite(name: &str) -> Error {
    let got = "NaN or infinity; nothing was updated";
    Error::of(ErrorKind::NotFinite, "gradient of a batch", "finite numbers", got).variable(name)
}
