//! The model that all clones of a predictor share: the program, the weights, and the other parts of the checkpoint.

use std::collections::BTreeMap;

use super::checks::unknown;
use crate::checkpoint::{Checkpoint, MetricDesc};
use crate::data::Vocabulary;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Scope;
use crate::operator::{BlockId, Registry, VarId};
use crate::program::{CarriedState, Program, RECURRENT, VarRole};
use crate::tensor::StorageKind;

/// A loaded model; it never changes after loading.
#[derive(Clone)]
pub(super) struct Model {
    /// The part of the program that computes the outputs and the carried states.
    pub(super) program: Program,
    /// The part of the program that computes the outputs, the carried states and the values for the metrics.
    pub(super) scored: Program,
    pub(super) metrics: Vec<MetricDesc>,
    pub(super) registry: Registry,
    /// The weights; clones of this scope share the memory of the weights.
    pub(super) weights: Scope,
    pub(super) vocabularies: BTreeMap<String, Vocabulary>,
    pub(super) notes: BTreeMap<String, String>,
    pub(super) outputs: BTreeMap<String, VarId>,
    /// The outputs inside step blocks. They have one value per step, so only sessions and generators return them.
    pub(super) of_steps: BTreeMap<String, VarId>,
    /// The carried states: each batch starts with their values after the previous batch.
    pub(super) carried: Vec<CarriedState>,
    /// The variables of all feeds, by name.
    pub(super) inputs: BTreeMap<String, VarId>,
}

impl Model {
    pub(super) fn new(checkpoint: Checkpoint, registry: &Registry) -> Result<Self> {
        let Checkpoint { program, mut tensors, mut best, vocabularies, notes, outputs, metrics, .. } =
            checkpoint.predicting(registry)?;
        let (mut named, mut of_steps) = (BTreeMap::new(), BTreeMap::new());
        for (name, var_name) in outputs {
            let id = program.find(&var_name).filter(|&id| !program.var(id).persistable);
            let what = format!("output `{name}` of the checkpoint");
            let wrong =
                || Error::of(ErrorKind::Program, what, "a value that the program computes", &var_name);
            let id = id.ok_or_else(wrong)?;
            let var_name = if program.var(id).block == BlockId(0) { &mut named } else { &mut of_steps };
            var_name.insert(name, id);
        }
        if named.is_empty() {
            let error = Error::of(ErrorKind::Program, "outputs of the checkpoint", "at least one", "none");
            return Err(error.noted_in_code("a trainer names outputs by `Trainer::output(name, variable)`"));
        }
        let carried: Vec<CarriedState> = program.carried_states().collect();
        let after = || carried.iter().map(|state| state.after);
        let seen = metrics.iter().flat_map(|metric| &metric.variables).filter_map(|name| program.find(name));
        let scored =
            program.inference(&seen.chain(after()).chain(named.values().copied()).collect::<Vec<_>>())?;
        let all: Vec<VarId> = named.values().copied().chain(after()).collect();
        let program = program.into_inference(&all)?;
        registered(&program, registry)?;
        let mut weights = Scope::new();
        let read = |program: &Program| -> Vec<String> {
            let read = program.reads().into_iter().map(|id| program.var(id));
            read.filter(|desc| desc.persistable).map(|desc| desc.name.clone()).collect()
        };
        let needed = read(&program);
        for name in &needed {
            let value = best.remove(name).or_else(|| tensors.remove(name));
            let missing = || Error::of(ErrorKind::Program, "checkpoint", "a value for this variable", "none");
            let value = value.ok_or_else(missing).map_err(|e| e.variable(name))?;
            value.check_finite("value of the checkpoint").map_err(|e| e.variable(name))?;
            weights.set_of(&program, name, value)?;
        }
        // If a value that only the metrics need is missing, loading succeeds, and scoring returns an error.
        for name in read(&scored).iter().filter(|name| !needed.contains(name)) {
            if let Some(value) = best.remove(name).or_else(|| tensors.remove(name)) {
                weights.set_of(&scored, name, value)?;
            }
        }
        weights.make_common();
        let inputs = program.vars().filter(|(_, desc)| desc.role == VarRole::Feed);
        let inputs = inputs.map(|(id, desc)| (desc.name.clone(), id)).collect();
        let registry = registry.clone();
        Ok(Self {
            program,
            scored,
            metrics,
            registry,
            weights,
            vocabularies,
            notes,
            outputs: named,
            of_steps,
            carried,
            inputs,
        })
    }

    /// Returns the input of the last linear layer from which an output is computed.
    pub(super) fn hidden(&self, output: &str) -> Result<VarId> {
        let known = || unknown("output", output, self.outputs.keys().map(String::as_str));
        let output = *self.outputs.get(output).ok_or_else(known)?;
        let part = self.program.inference(&[output])?;
        let last =
            part.root().ops.iter().rev().find(|op| matches!(op.kind.as_str(), "linear" | "int8_linear"));
        let id = last.and_then(|op| op.input("x").first().copied());
        let fits = |id: &VarId| {
            let (input, output) = (self.program.spec(*id), self.program.spec(output));
            input.ok().zip(output.ok()).is_some_and(|(input, output)| {
                input.lod == output.lod
                    && input.rows() == output.rows()
                    && input.storage == StorageKind::Dense
            })
        };
        let wrong = || {
            let expected = "a linear layer with one input row per row of the output";
            Error::of(ErrorKind::Program, "operators that compute the output", expected, "none")
        };
        id.filter(fits).ok_or_else(wrong)
    }

    /// Returns the names of the feeds that a part of the program reads or returns as outputs; carried states are left out.
    pub(super) fn feeds<'a>(&self, program: &'a Program, outputs: &[VarId]) -> Vec<&'a str> {
        let read = program.reads();
        let used = |id: &VarId| read.contains(id) || outputs.contains(id);
        let given = |id: &VarId| used(id) && !self.carried.iter().any(|state| state.before == *id);
        let feeds = program.vars().filter(|(id, desc)| desc.role == VarRole::Feed && given(id));
        feeds.map(|(_, desc)| desc.name.as_str()).collect()
    }
}

/// Checks that every operator of a program is registered; this must happen before the shapes are computed.
pub(super) fn registered(program: &Program, registry: &Registry) -> Result<()> {
    for op in program.ops() {
        if op.kind != RECURRENT && !registry.kinds().any(|kind| kind == op.kind) {
            let what = format!("operator that the outputs need, appended at {}", op.caller);
            let error =
                Error::of(ErrorKind::Program, what, "a registered operator", format!("`{}`", op.kind));
            return Err(error.noted_in_code("`Predictor::load_with` takes a registry that has the operator"));
        }
    }
    Ok(())
}
