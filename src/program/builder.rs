//! The builder: ordinary Rust calls that append operators, each checked at once.

use std::cell::{Cell, RefCell};
use std::panic::Location;
use std::rc::Rc;

use super::attributes::{Attributes, Literal};
use super::extent::{BlockId, Extent, Levels, MAX_LEVELS, Spec, VarId};
use super::initialize;
use super::op_desc::Role;
use super::program::{Append, Program};
use super::registry::Registry;
use super::step::OpenStep;
use super::var_desc::{Initializer, VarDesc, VarKind, VarRole};
use super::vars::Vars;
use crate::error::{Error, ErrorKind, Place, Result};
use crate::tensor::{DType, StorageKind};

/// A variable of the program that is being built: a small copyable number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Var {
    pub(super) builder: u64,
    pub(super) id: VarId,
}

impl Var {
    /// Its number in the program.
    pub fn id(self) -> VarId {
        self.id
    }
}

impl From<Var> for VarId {
    fn from(var: Var) -> Self {
        var.id
    }
}

pub(super) struct State {
    pub(super) program: Program,
    pub(super) registry: Registry,
    /// The step blocks that are being built, outermost first.
    pub(super) open: Vec<OpenStep>,
}

/// Builds a [`Program`]. Cheap to clone; all clones build the same program.
///
/// Methods take `&self`. One operator is one method, from the file of its family; a user's crate adds its own by an
/// extension trait over [`Builder::append`].
///
/// Every operator records the line that appended it, and every error names it. A method that is `#[track_caller]` and
/// only calls such methods passes its own caller's line on; one that calls them in a closure (a layer with a step
/// block) uses [`Builder::called_from`].
#[derive(Clone)]
pub struct Builder {
    pub(super) number: u64,
    pub(super) state: Rc<RefCell<State>>,
    pub(super) block: BlockId,
    /// The line that operators and errors name, whoever calls.
    pub(super) caller: Option<&'static Location<'static>>,
}

thread_local! {
    static BUILDERS: Cell<u64> = const { Cell::new(0) };
}

impl Builder {
    /// A builder that knows the operators of `registry`.
    pub fn with_registry(registry: Registry) -> Self {
        let number = BUILDERS.replace(BUILDERS.get() + 1);
        let state = State { program: Program::new(), registry, open: Vec::new() };
        Self { number, state: Rc::new(RefCell::new(state)), block: BlockId(0), caller: None }
    }

    /// A builder that goes on with a program.
    pub(crate) fn over(program: Program, registry: Registry) -> Self {
        let net = Self::with_registry(registry);
        net.state.borrow_mut().program = program;
        net
    }

    /// This builder, whose operators and errors name `caller` as the line of the user's code, wherever they are appended:
    /// for a layer, which is called in one line and appends many operators, some of them in closures. Step blocks
    /// that it opens do the same. In a layer inside another layer the outermost one's line stands.
    ///
    /// ```
    /// use std::panic::Location;
    /// use unpadded::{Builder, DType, Result, Var};
    ///
    /// #[track_caller]
    /// fn running_sum(net: &Builder, x: Var, width: usize) -> Result<Var> {
    ///     net.called_from(Location::caller()).recurrent(x, |step, x_t| {
    ///         let before = step.memory(width)?;
    ///         let after = step.add(before, x_t)?;
    ///         step.update(before, after)?;
    ///         Ok(after)
    ///     })
    /// }
    ///
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[3], 1)?;
    /// let line = line!() + 1;
    /// running_sum(&net, x, 3)?;
    /// let program = net.finish();
    /// for op in program.blocks().flat_map(|(_, block)| &block.ops) {
    ///     assert!(op.caller.contains(&format!(":{line}:")), "{}", op.caller);
    /// }
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn called_from(&self, caller: &'static Location<'static>) -> Builder {
        Builder { caller: self.caller.or(Some(caller)), ..self.clone() }
    }

    /// Adds the line of the user's code to an error that a layer found itself, as the builder's own methods do: the line
    /// given by [`Self::called_from`], else that of the call.
    #[track_caller]
    pub fn located(&self, error: Error) -> Error {
        at(error, self.here())
    }

    /// The line given by [`Self::called_from`], else that of the caller of the `#[track_caller]` method around.
    #[track_caller]
    pub(super) fn here(&self) -> &'static Location<'static> {
        self.caller.unwrap_or(Location::caller())
    }

    /// Sets the seed of the initialisers and of random operators; 0 without it.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.state.borrow_mut().program.seed = seed;
        self
    }

    /// The program so far.
    pub fn program(&self) -> Program {
        self.state.borrow().program.clone()
    }

    /// The program, done.
    pub fn finish(self) -> Program {
        match Rc::try_unwrap(self.state) {
            Ok(state) => state.into_inner().program,
            Err(shared) => shared.borrow().program.clone(),
        }
    }

    /// The registry it builds with.
    pub fn registry(&self) -> Registry {
        self.state.borrow().registry.clone()
    }

    /// The spec of a variable.
    ///
    /// # Errors
    /// If it is of another builder or a literal.
    #[track_caller]
    pub fn spec(&self, var: Var) -> Result<Spec> {
        let caller = self.here();
        self.own(var)
            .and_then(|()| self.state.borrow().program.spec(var.id).cloned())
            .map_err(|e| at(e, caller))
    }

    /// The name of a variable; `?` for one of another builder.
    pub fn name_of(&self, var: Var) -> String {
        let own = self.own(var).is_ok();
        if own { self.state.borrow().program.var(var.id).name.clone() } else { "?".to_owned() }
    }

    /// What the caller gives at every run: `dims` in each row, and `lod_level` levels of sequences. With level 0
    /// there is one row a sequence; deeper levels are this feed's own.
    ///
    /// # Errors
    /// If the name is taken, in a step block, or if there are too many dimensions or levels.
    #[track_caller]
    pub fn feed(&self, name: &str, dtype: DType, dims: &[usize], lod_level: usize) -> Result<Var> {
        let caller = self.here();
        self.add_feed(name, |program| {
            if lod_level > MAX_LEVELS {
                return Err(Error::new("lod_level", format!("at most {MAX_LEVELS}"), lod_level.to_string()));
            }
            let levels: Levels = (0..lod_level).map(|_| program.add_level()).collect();
            let rows = levels.last().map_or(Extent::Batch, |&level| Extent::Rows(level));
            Spec::rows_of(dtype, rows, dims, levels)
        })
        .map_err(|e| at(e, caller))
    }

    /// A feed in any storage: csr and coo are two-dimensional, selected rows have the rows of a table of known height.
    /// `shape` is the whole shape, `None` for the rows of the batch.
    ///
    /// # Errors
    /// As [`Self::feed`], or if only the first dimension is not the one that is unknown.
    #[track_caller]
    pub fn feed_stored(
        &self,
        name: &str,
        dtype: DType,
        shape: &[Option<usize>],
        storage: StorageKind,
    ) -> Result<Var> {
        let caller = self.here();
        self.add_feed(name, |_| {
            let rows = match shape.first() {
                Some(Some(n)) => Extent::Known(*n),
                Some(None) => Extent::Batch,
                None => return Err(Error::new("shape of a feed", "at least one dimension", "none")),
            };
            let dims: Option<Vec<usize>> = shape[1..].iter().copied().collect();
            let dims = dims
                .ok_or_else(|| Error::new("shape of a feed", "known dimensions after the first", "others"))?;
            if matches!(storage, StorageKind::Csr | StorageKind::Coo) && dims.len() != 1 {
                let got = format!("{} of them", shape.len());
                return Err(Error::new("shape of a feed", format!("two dimensions for {storage}"), got));
            }
            Ok(Spec { storage, ..Spec::rows_of(dtype, rows, &dims, Levels::new())? })
        })
        .map_err(|e| at(e, caller))
    }

    /// A feed with the sequences of another one; that they are the same is checked when they are fed.
    ///
    /// # Errors
    /// As [`Self::feed`].
    #[track_caller]
    pub fn feed_like(&self, name: &str, dtype: DType, dims: &[usize], like: Var) -> Result<Var> {
        let caller = self.here();
        self.own(like)
            .and_then(|()| {
                self.add_feed(name, |program| {
                    let like = program.spec(like.id)?;
                    if !like.batched() {
                        return Err(Error::new("feed_like", "a batched variable", like.to_string()));
                    }
                    Spec::rows_of(dtype, like.rows(), dims, like.lod.clone())
                })
            })
            .map_err(|e| at(e, caller))
    }

    fn add_feed(&self, name: &str, spec: impl FnOnce(&mut Program) -> Result<Spec>) -> Result<Var> {
        if self.block != BlockId(0) {
            return Err(
                Error::of(ErrorKind::Program, "feed", "the root block", "a step block").variable(name)
            );
        }
        let program = &mut self.state.borrow_mut().program;
        let spec = spec(program).map_err(|e| e.variable(name))?;
        let var = VarDesc {
            name: name.to_owned(),
            block: self.block,
            kind: VarKind::Tensor(spec),
            role: VarRole::Feed,
            persistable: false,
            trainable: false,
            stop_gradient: true,
            initializer: None,
            gradient_of: None,
        };
        program.add_var(var).map(|id| self.var(id))
    }

    /// Lets gradients pass to a feed (or any variable) that has none: for gradient checks and saliency.
    ///
    /// # Errors
    /// If it does not hold floats.
    #[track_caller]
    pub fn watch(&self, var: Var) -> Result<()> {
        let spec = self.spec(var)?;
        if !spec.dtype.is_float() {
            return Err(at(Error::new("watch", "a float variable", spec.to_string()), self.here()));
        }
        self.state.borrow_mut().program.var_mut(var.id).stop_gradient = false;
        Ok(())
    }

    /// A trainable variable of known shape, wherever it is asked for a variable of the root block.
    ///
    /// # Errors
    /// If there are too many dimensions, or they do not fit the initialiser.
    #[track_caller]
    pub fn parameter(
        &self,
        name: &str,
        dtype: DType,
        dims: &[usize],
        initializer: Initializer,
    ) -> Result<Var> {
        let caller = self.here();
        let program = &mut self.state.borrow_mut().program;
        let spec = initialize::check(&initializer, dims)
            .and_then(|()| Spec::fixed(dtype, dims))
            .map_err(|e| at(e.variable(name), caller))?;
        let var = VarDesc {
            name: program.fresh_name(name),
            block: BlockId(0),
            kind: VarKind::Tensor(spec),
            role: VarRole::Parameter,
            persistable: true,
            trainable: true,
            stop_gradient: false,
            initializer: Some(initializer),
            gradient_of: None,
        };
        program.add_var(var).map(|id| self.var(id)).map_err(|e| at(e, caller))
    }

    /// A value that the program carries: a scalar, a string or a list of them.
    ///
    /// # Errors
    /// If the name is taken.
    #[track_caller]
    pub fn literal(&self, name: &str, value: impl Into<Literal>) -> Result<Var> {
        let caller = self.here();
        let var = VarDesc {
            name: name.to_owned(),
            block: BlockId(0),
            kind: VarKind::Literal(value.into()),
            role: VarRole::Literal,
            persistable: false,
            trainable: false,
            stop_gradient: true,
            initializer: None,
            gradient_of: None,
        };
        let program = &mut self.state.borrow_mut().program;
        program.add_var(var).map(|id| self.var(id)).map_err(|e| at(e, caller))
    }

    /// Keeps a variable from being trained or passing a gradient.
    ///
    /// # Errors
    /// If it is of another builder.
    #[track_caller]
    pub fn stop_gradient(&self, var: Var) -> Result<()> {
        let caller = self.here();
        self.own(var).map_err(|e| at(e, caller))?;
        let program = &mut self.state.borrow_mut().program;
        program.var_mut(var.id).stop_gradient = true;
        program.var_mut(var.id).trainable = false;
        Ok(())
    }

    /// Appends an operator: `inputs` by slot name; the result is its outputs in the order of its slots, one variable, a
    /// tuple or a list. A batched variable of a block around a step is captured as a static input.
    ///
    /// # Errors
    /// If anything does not fit, also the number of outputs; the error names the operator and the line that called.
    #[track_caller]
    pub fn append<V: Vars>(
        &self,
        kind: &str,
        inputs: &[(&str, &[Var])],
        attributes: Attributes,
    ) -> Result<V> {
        let caller = self.here();
        let place = || Place {
            operator: Some(kind.to_owned()),
            caller: Some(caller.to_string()),
            ..Place::default()
        };
        let mut bound = Vec::with_capacity(inputs.len());
        for &(slot, vars) in inputs {
            let ids: Result<Vec<VarId>> = vars.iter().map(|&v| self.resolve(v)).collect();
            bound.push((slot, ids.map_err(|e| e.at(place()))?));
        }
        // What a step captured for it stays, as after any call that does not fit.
        let before = self.state.borrow().program.size();
        let outputs = {
            let State { program, registry, open, .. } = &mut *self.state.borrow_mut();
            if let Some(step) = open.iter().find(|step| step.block == self.block) {
                let carried: Vec<VarId> = step.memories.iter().map(|m| m.previous).collect();
                let checked =
                    program.decided_early(registry, (self.block, &carried), (kind, &attributes), &bound);
                checked.map_err(|e| e.at(place()))?;
            }
            let request = Append {
                inputs: bound,
                attributes,
                role: Role::Forward,
                caller: caller.to_string(),
                ..Append::forward(kind)
            };
            program.append(registry, self.block, request)?
        };
        let outputs: Vec<Var> = outputs.into_iter().flatten().map(|id| self.var(id)).collect();
        V::from_list(&outputs).map_err(|_| {
            // The program is as it was.
            let State { program, .. } = &mut *self.state.borrow_mut();
            program.take_back(self.block, before);
            let expected = format!("{}, as many as the operator makes", outputs.len());
            Error::of(ErrorKind::Program, "outputs asked for", expected, "another number").at(place())
        })
    }

    /// A variable of this builder's program by its number.
    pub(crate) fn var(&self, id: VarId) -> Var {
        Var { builder: self.number, id }
    }

    pub(super) fn own(&self, var: Var) -> Result<()> {
        if var.builder == self.number && (var.id.0 as usize) < self.state.borrow().program.vars.len() {
            return Ok(());
        }
        Err(Error::of(ErrorKind::Program, "variable", "one of this builder's program", "one of another's"))
    }
}

pub(super) fn at(error: Error, caller: &Location<'_>) -> Error {
    error.called(caller)
}
