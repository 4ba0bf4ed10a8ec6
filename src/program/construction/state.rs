//! The state that all clones of a builder share, and the lists that find the builder of a [`Var`].

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::panic::Location;
use std::rc::{Rc, Weak};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::open_step::{OpenStep, Recurrence};
use super::scopes::Scopes;
use super::var::Var;
use super::warning::{Fallback, Warning};
use crate::error::{Error, ErrorKind, Place, Result};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Extent, LevelId, Levels, Spec, VarId};
use crate::operator::registry::Registry;
use crate::program::description::carried::wrong;
use crate::program::description::op_desc::{Role, StepDesc};
use crate::program::description::program::{Append, Program};
use crate::program::description::var_desc::VarKind;

/// The state of a builder: the program under construction, the open step blocks and the recorded errors.
pub(super) struct State {
    pub(super) number: Number,
    pub(super) program: Program,
    pub(super) registry: Registry,
    /// The step blocks that are being built, from the outermost to the innermost.
    pub(super) open: Vec<OpenStep>,
    /// All step blocks that were opened so far, each with the source line that opened it.
    pub(super) opened_at: Vec<(BlockId, &'static Location<'static>)>,
    pub(super) scopes: Scopes,
    /// The carried states, which pass from batch to batch.
    pub(super) carried: Vec<OpenState>,
    /// The recorded errors, in the order of the calls.
    pub(super) errors: Vec<Error>,
    /// What the builder does if an operator has no kernel for a variable's storage.
    pub(super) fallback: Fallback,
    /// A warning for each variable that the builder made dense.
    pub(super) warnings: Vec<Warning>,
    /// The variables on which the user called `stop_gradient`.
    pub(super) stopped: HashSet<VarId>,
    /// The dense copies, such as the output of `to_dense`: the key is the block of the `to_dense` and the variable that was made
    /// dense.
    pub(super) dense: HashMap<(BlockId, VarId), VarId>,
}

/// A carried state of the program that is being built.
pub(super) struct OpenState {
    pub(super) before: VarId,
    /// Whether a call of `carry` has set the state's value after the batch.
    pub(super) is_carried: bool,
    pub(super) line: &'static Location<'static>,
}

impl OpenState {
    /// Returns the error that no `carry` sets the state after the batch; `None` if there is a `carry`.
    pub(super) fn missing(&self, program: &Program) -> Option<Error> {
        let error = || wrong("a `carry` that sets its next value", "none");
        (!self.is_carried).then(|| error().called(self.line).variable(&program.var(self.before).name))
    }
}

/// The number of the next builder. Builder numbers are unique in the process, so that a variable is never mistaken for a variable
/// of another builder.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The builders of all threads, by number. The value is a list of errors: the errors of calls that other threads made with the
/// builder's variables.
static ALL: LazyLock<Mutex<HashMap<u64, Vec<Error>>>> = LazyLock::new(Mutex::default);

fn all_builders() -> MutexGuard<'static, HashMap<u64, Vec<Error>>> {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

thread_local! {
    /// The builders of this thread, by number.
    static BUILDERS: RefCell<HashMap<u64, Weak<RefCell<State>>>> = RefCell::default();
    /// Errors of calls on this thread with variables whose builder no longer exists.
    static STRAY: RefCell<Vec<Error>> = const { RefCell::new(Vec::new()) };
}

/// The number of a builder. Dropping the number removes the builder from the lists of builders.
pub(super) struct Number(pub(super) u64);

impl Drop for Number {
    fn drop(&mut self) {
        all_builders().remove(&self.0);
        // When a thread ends, its list `BUILDERS` may be dropped before the builder, so this access may fail.
        let _ = BUILDERS.try_with(|builders| builders.try_borrow_mut().map(|mut all| all.remove(&self.0)));
    }
}

/// Makes the state of a new builder and registers it, so that variables find their builder.
pub(super) fn entered(make: impl FnOnce(Number) -> State) -> Rc<RefCell<State>> {
    let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
    all_builders().insert(number, Vec::new());
    let state = Rc::new(RefCell::new(make(Number(number))));
    BUILDERS.with(|builders| builders.borrow_mut().insert(number, Rc::downgrade(&state)));
    state
}

/// Takes this thread's errors about variables whose builder no longer exists, and the errors that other threads recorded for
/// builder `number`.
pub(super) fn stray_errors(number: u64) -> Vec<Error> {
    let mut errors = STRAY.take();
    errors.extend(all_builders().get_mut(&number).into_iter().flat_map(std::mem::take));
    errors
}

/// Records the error that a variable's builder is not on this thread: for the builder or, if the builder no longer exists, for
/// this thread.
pub(super) fn keep_stray(number: u64, caller: &'static Location<'static>) {
    let error =
        |expected: &str, got: &str| Error::of(ErrorKind::Program, "variable", expected, got).called(caller);
    if let Some(errors) = all_builders().get_mut(&number) {
        let error = error("a call on the thread of its builder", "a call on another thread");
        errors.push(error.noted("a program is built on one thread: the thread that made its builder"));
        return;
    }
    let error = error(
        "a variable whose builder still exists",
        "a variable of a builder that was finished or dropped",
    );
    STRAY.with_borrow_mut(|errors| errors.push(error));
}

/// Returns the state of the builder with this number; `None` if the builder is not on this thread.
pub(super) fn state_of(number: u64) -> Option<Rc<RefCell<State>>> {
    BUILDERS.try_with(|builders| builders.try_borrow().ok()?.get(&number)?.upgrade()).ok()?
}

/// Returns the name of another builder's variable, for errors; `a variable` if that builder is not on this thread.
fn name_elsewhere(var: Var) -> String {
    let name = || {
        let state = state_of(var.builder)?;
        let state = state.try_borrow().ok()?;
        (!var.is_unknown()).then(|| format!("`{}`", state.program.var(var.id).name))
    };
    name().unwrap_or_else(|| "a variable".to_owned())
}

/// Returns the error that a step block is finished, so no operator can be appended to the step block.
pub(super) fn finished() -> Error {
    Error::of(ErrorKind::Program, "step", "a step that is being built", "a finished step")
}

impl State {
    /// Returns the number of a variable in this builder's program; `None` if the variable is unknown.
    pub(super) fn own(&self, var: Var) -> Result<Option<VarId>> {
        if var.builder != self.number.0 {
            let got = format!("{} of another builder", name_elsewhere(var));
            return Err(Error::of(ErrorKind::Program, "variable", "a variable of this builder", got));
        }
        // The variable was made by this builder, so its number is the number in the program.
        Ok((!var.is_unknown()).then_some(var.id))
    }

    pub(super) fn describe(&self, var: Var) -> String {
        match self.own(var) {
            Ok(Some(id)) => match &self.program.var(id).kind {
                VarKind::Tensor(spec) => format!("`{}`: {spec}", self.program.var(id).name),
                VarKind::Literal(literal) => format!("`{}`: {}", self.program.var(id).name, literal.shown()),
            },
            Ok(None) => "unknown".to_owned(),
            Err(_) => "another builder's".to_owned(),
        }
    }

    /// Appends an operator to a block; returns `None` if an input of the operator is unknown.
    pub(super) fn append(
        &mut self,
        block: BlockId,
        kind: &str,
        attributes: &Attributes,
        inputs: &[(&str, &[Var])],
        caller: &'static Location<'static>,
    ) -> Result<Option<Vec<VarId>>> {
        let mut bound = Vec::with_capacity(inputs.len());
        let mut known = true;
        for &(slot, vars) in inputs {
            let mut ids = Vec::with_capacity(vars.len());
            for &var in vars {
                let id = self
                    .resolve(block, var)
                    .map_err(|e| e.at(self.program.next_place(block, kind, caller.to_string())))?;
                known &= id.is_some();
                ids.extend(id);
            }
            bound.push((slot, ids));
        }
        if !known {
            return Ok(None);
        }
        self.append_known(block, kind, attributes, bound, caller).map(Some)
    }

    /// Appends an operator to a block, with fallback to dense; the block must be able to read all inputs.
    pub(super) fn append_known(
        &mut self,
        block: BlockId,
        kind: &str,
        attributes: &Attributes,
        inputs: Vec<(&str, Vec<VarId>)>,
        caller: &'static Location<'static>,
    ) -> Result<Vec<VarId>> {
        if self.fallback != Fallback::Deny {
            let due = self.program.conversions(&self.registry, kind, attributes, &inputs);
            if !due.is_empty() {
                return self.append_to_dense(block, kind, attributes, inputs, due, caller);
            }
        }
        self.append_as_stored(block, kind, attributes, inputs, caller)
    }

    /// Appends an operator to a block without fallback to dense: the inputs keep their storages.
    pub(super) fn append_as_stored(
        &mut self,
        block: BlockId,
        kind: &str,
        attributes: &Attributes,
        inputs: Vec<(&str, Vec<VarId>)>,
        caller: &'static Location<'static>,
    ) -> Result<Vec<VarId>> {
        let sparse = |this: &Self| {
            this.has_sparse_rows(&inputs)
                || this.program.makes_sparse_rows(&this.registry, block, kind, attributes, &inputs)
        };
        if block != BlockId(0) && sparse(self) {
            return self.before_loop(block, kind, attributes, &inputs, caller);
        }
        let request = Append {
            inputs,
            attributes: attributes.clone(),
            role: Role::Forward,
            caller: caller.to_string(),
            ..Append::forward(kind)
        };
        let State { program, registry, open, .. } = self;
        if block != BlockId(0) {
            let place = || program.next_place(block, kind, caller.to_string());
            let step = open.iter().find(|step| step.block == block).ok_or_else(|| finished().at(place()))?;
            let carried = || step.memories().iter().map(|m| m.previous).collect();
            let checked = program.decided_early(registry, block, &carried, &request);
            checked.map_err(|e| e.at(place()))?;
        }
        Ok(program.append(registry, block, request)?.into_iter().flatten().collect())
    }

    /// Makes differentiation compute the gradient of a variable; fails if an operator reads the variable already.
    pub(super) fn watch(&mut self, id: VarId) -> Result<()> {
        if !self.program.var(id).stop_gradient {
            return Ok(());
        }
        let reader = match self.program.reader(id) {
            Some((number, op)) => Some((format!("{} #{number}", op.kind), op.caller.clone())),
            None => self.open.iter().find(|step| step.reads(id)).map(|step| {
                let place = step.place.clone();
                (place.operator.unwrap_or_default(), place.caller.unwrap_or_default())
            }),
        };
        let Some((operator, line)) = reader else {
            self.program.vars[id.0 as usize].stop_gradient = false;
            self.stopped.remove(&id);
            return Ok(());
        };
        let expected = "to come before the first operator that reads the variable";
        let error =
            Error::of(ErrorKind::Program, "watch", expected, format!("{operator} before it, at {line}"));
        Err(error.variable(&self.program.var(id).name))
    }

    /// Opens a step block inside `parent`; returns the step block and its views of the step inputs. If a step input does not fit
    /// or is unknown, all views and all outputs are unknown. Errors inside the step block are still detected.
    pub(super) fn open(
        &mut self,
        parent: BlockId,
        options: Recurrence,
        inputs: &[Var],
        caller: &'static Location<'static>,
        place: Place,
    ) -> (BlockId, Vec<Option<VarId>>) {
        let mut outer = Vec::new();
        for &var in inputs {
            match self.resolve(parent, var) {
                Ok(id) => outer.extend(id),
                Err(error) => self.errors.push(error.at(place.clone())),
            }
        }
        let block = self.program.add_block(parent);
        self.opened_at.push((block, caller));
        let mut step = OpenStep {
            block,
            parent,
            above: Levels::new(),
            sequences: Extent::Batch,
            over: None,
            place,
            desc: StepDesc {
                block,
                level: LevelId(u32::MAX),
                reverse: options.reverse,
                inputs: Vec::new(),
                statics: Vec::new(),
                memories: Vec::new(),
                outputs: Vec::new(),
                levels: Vec::new(),
                gradient: None,
            },
            memories: Vec::new(),
            numbers: HashMap::new(),
            taken: HashSet::new(),
            lasts: HashSet::new(),
            captured: HashMap::new(),
            errors: self.errors.len(),
        };
        let mut inner = vec![None; inputs.len()];
        if outer.len() == inputs.len() {
            match step.bind(&mut self.program, options, &outer) {
                Ok(bound) => inner = bound.into_iter().map(Some).collect(),
                Err(error) => self.errors.push(error.at(step.place.clone())),
            }
        }
        self.open.push(step);
        (block, inner)
    }

    /// Returns the variable that an operator of `block` reads for `var`. If `var` is batched and belongs to a block around
    /// `block`, `var` becomes a static input, and its view is returned; else `var` itself is returned. Returns `None` if `var` is
    /// unknown.
    pub(super) fn resolve(&mut self, block: BlockId, var: Var) -> Result<Option<VarId>> {
        let Some(id) = self.own(var)? else { return Ok(None) };
        self.seen(block, id)?;
        let State { program, open, .. } = self;
        let desc = program.var(id);
        let (name, from) = (desc.name.clone(), desc.block);
        if from == block || !desc.spec().is_some_and(Spec::batched) {
            return Ok(Some(id));
        }
        let mut seen = id;
        // The loop captures the variable in each step block from the variable's block down to `block`, and skips all other open
        // step blocks.
        for step in open {
            if !program.encloses(step.block, block) || program.encloses(step.block, from) {
                continue;
            }
            let Some(inside) = step.capture(program, seen).map_err(|e| e.variable(&name))? else {
                return Ok(None);
            };
            seen = inside;
        }
        if program.var(seen).block != block {
            return Err(finished().variable(name));
        }
        Ok(Some(seen))
    }

    /// Checks that a block can read a variable: the variable belongs to the block or to a block around it.
    pub(super) fn seen(&self, block: BlockId, id: VarId) -> Result<()> {
        let State { program, open, opened_at, .. } = self;
        let desc = program.var(id);
        let from = desc.block;
        let scope = |expected: String, got: String| {
            Error::of(ErrorKind::Program, "scope", expected, got).variable(&desc.name)
        };
        if open.iter().any(|step| step.parent == block && step.is_last(id)) {
            let got = "the final value of a memory of a step that is not finished";
            return Err(scope("a value that is known by now".into(), got.into()));
        }
        if program.encloses(from, block) {
            return Ok(());
        }
        let writer = program.block(from).ops.iter().find(|op| op.writes().any(|written| written == id));
        let line = opened_at.iter().find(|(step, _)| *step == from).map(|(_, line)| line.to_string());
        let made = writer.map(|op| op.caller.clone()).or(line).unwrap_or_default();
        let expected = format!("a variable of block {} or of a block around it", block.0);
        let error = scope(expected, format!("a variable inside block {}", from.0));
        Err(error.noted(format!(
            "the variable was made at {made}; outside of a step, only the outputs of the step are known"
        )))
    }

    /// Returns the innermost open step block, or the root block if no step block is open.
    pub(super) fn innermost(&self) -> BlockId {
        self.open.last().map_or(BlockId(0), |step| step.block)
    }
}

/// Prints the variable as [`Builder::describe`](crate::Builder::describe) does: name, dtype, shape and LoD levels.
impl fmt::Debug for Var {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = state_of(self.builder);
        let state = state.as_ref().and_then(|state| state.try_borrow().ok());
        match state {
            Some(state) => f.write_str(&state.describe(*self)),
            None if self.is_unknown() => f.write_str("unknown"),
            None => write!(f, "variable {} of a builder that is not here", self.id.0),
        }
    }
}
