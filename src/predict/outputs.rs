//! The lists of outputs of a predictor. Each list is resolved once: to variables, needed feeds and a compiled program.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::checks::unknown;
use super::model::Model;
use super::windows::unique;
use crate::error::Result;
use crate::executor::{Plan, compile};
use crate::operator::VarId;
use crate::program::Program;

/// A list of outputs as a request names it, with all that a run needs to know of the model.
pub(super) struct OutputList {
    /// The variables of the outputs, then the carried states after the batch.
    pub(super) wanted: Vec<VarId>,
    /// The names of the feeds that these variables need.
    pub(super) needed: Vec<String>,
    pub(super) plan: Arc<Plan>,
}

impl OutputList {
    /// Compiles `program`, which computes the variables `wanted`, and no others.
    fn compiled(model: &Model, program: Program, wanted: Vec<VarId>) -> Result<Self> {
        let needed = model.feeds(&program, &wanted).into_iter().map(str::to_owned).collect();
        let plan = compile(program, &model.registry, &unique(wanted.iter().copied()), &[])?;
        Ok(Self { wanted, needed, plan: Arc::new(plan) })
    }
}

/// The lists of outputs that were requested so far, by the names of the outputs.
#[derive(Default)]
pub(super) struct OutputLists(Mutex<HashMap<Vec<String>, Arc<OutputList>>>);

impl OutputLists {
    /// The maximum number of lists: each order of the same names is a list, so there may be very many.
    const MOST: usize = 256;

    /// Returns the lists with the list of all outputs of a model.
    ///
    /// # Errors
    /// Fails if the program cannot be compiled.
    pub(super) fn of_all(model: &Model) -> Result<Self> {
        let (names, mut wanted): (Vec<_>, Vec<_>) =
            model.outputs.iter().map(|(name, id)| (name.clone(), *id)).unzip();
        wanted.extend(model.carried.iter().map(|state| state.after));
        let list = OutputList::compiled(model, model.program.clone(), wanted)?;
        Ok(Self(Mutex::new([(names, Arc::new(list))].into())))
    }

    /// Returns the list of these outputs. `ready` is called before a program is compiled.
    ///
    /// # Errors
    /// Fails if an output is unknown, if `ready` fails, or if the program cannot be compiled.
    pub(super) fn get(
        &self,
        model: &Model,
        outputs: &[&str],
        ready: impl FnOnce() -> Result<()>,
    ) -> Result<Arc<OutputList>> {
        let names: Vec<String> = outputs.iter().map(|&name| name.to_owned()).collect();
        // No code that can panic runs while the lock is held.
        let all = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = all().get(&names) {
            return Ok(list.clone());
        }
        let find = |name: &String| {
            let known = model.outputs.keys().map(String::as_str);
            model.outputs.get(name).copied().ok_or_else(|| unknown("output", name, known))
        };
        let mut wanted: Vec<VarId> = names.iter().map(find).collect::<Result<_>>()?;
        wanted.extend(model.carried.iter().map(|state| state.after));
        let set = unique(wanted.iter().copied());
        let same = all().values().find(|list| list.plan.wanted == set).cloned();
        let list = match same {
            Some(same) => OutputList { wanted, needed: same.needed.clone(), plan: same.plan.clone() },
            None => {
                ready()?;
                OutputList::compiled(model, model.program.inference(&set)?, wanted)?
            }
        };
        let mut all = all();
        if all.len() >= Self::MOST {
            all.clear();
        }
        // Another thread may have added the list in the meantime.
        Ok(all.entry(names).or_insert_with(|| Arc::new(list)).clone())
    }
}
