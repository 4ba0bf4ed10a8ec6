//! The builder of programs: each method call appends one operator and checks it at once.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::rc::Rc;

use super::open_step::OpenStep;
use super::scopes::Scopes;
use super::state::{self, State};
use super::var::Var;
use super::vars::Outputs;
use super::warning::Fallback;
use crate::error::{Error, ErrorKind, Place, Result, is_own};
use crate::operator::attributes::{Attributes, Literal};
use crate::operator::extent::{BlockId, Extent, Levels, MAX_LEVELS, Spec, VarId};
use crate::operator::registry::Registry;
use crate::program::description::program::Program;
use crate::program::description::var_desc::{VarDesc, VarKind, VarRole};
use crate::tensor::{DType, StorageKind};

/// Builds a [`Program`]. A builder is cheap to clone, and all clones build the same program.
///
/// All methods of a builder that append operators take `&self`. Each operator is a method of the builder. An operator with one
/// main input is also a method of [`Var`]. A user's crate declares further operators by [`operator!`](crate::operator!).
///
/// If the arguments of a call do not fit, the builder records an error with the source line of the call, and the call returns
/// an unknown [`Var`]. [`Self::finish`] and [`Trainer::new`](crate::train::Trainer::new) return all recorded errors. Every
/// operator stores the source line that appended it, and every error about the operator names that line. If you write a method
/// that calls methods of the builder, mark your method `#[track_caller]`; errors then name the line that calls it. If your
/// method calls the builder in a closure (for example in a step block), your method must also use [`Builder::part`].
///
/// # By family
///
/// The methods that append operators are on the page [`ops`](crate::ops), by family, with their formulas. The other methods:
///
/// | family | methods |
/// |---|---|
/// | the program | [`feed`](Self::feed) [`feed_like`](Self::feed_like) [`feed_stored`](Self::feed_stored) [`feed_csr`](Self::feed_csr) [`parameter`](Self::parameter) [`literal`](Self::literal) [`recurrent`](Self::recurrent) [`recurrent_with`](Self::recurrent_with) [`append`](Self::append) |
/// | states that pass from batch to batch | [`carried_state`](Self::carried_state) [`carried_state_of`](Self::carried_state_of) [`carry`](Self::carry) |
/// | parts of a model | [`layer`](Self::layer) [`layer_with`](Self::layer_with) [`scope`](Self::scope) [`part`](Self::part) |
/// | finish, check, and inspect | [`finish`](Self::finish) [`check`](Self::check) [`program`](Self::program) [`describe`](Self::describe) [`spec`](Self::spec) [`name_of`](Self::name_of) [`registry`](Self::registry) [`seed`](Self::seed) |
/// | for authors of layers | [`refuse`](Self::refuse) [`unknown`](Self::unknown) [`watch`](Self::watch) [`stop_gradient`](Self::stop_gradient) |
/// | layers | [`linear`](Self::linear) [`attention`](Self::attention) [`conv`](Self::conv) [`norm`](Self::norm) [`highway`](Self::highway) [`embedding`](Self::embedding) [`embedding_bag`](Self::embedding_bag) [`lstm`](Self::lstm) [`lstm_states`](Self::lstm_states) [`gru`](Self::gru) [`gru_states`](Self::gru_states) [`rnn`](Self::rnn) [`rnn_states`](Self::rnn_states) [`mgu`](Self::mgu) [`mgu_states`](Self::mgu_states) [`qrnn`](Self::qrnn) [`sru`](Self::sru) [`transformer_block`](Self::transformer_block) [`stacked`](Self::stacked) [`stacked_states`](Self::stacked_states) [`bidirectional`](Self::bidirectional) [`bidirectional_states`](Self::bidirectional_states) [`zoneout`](Self::zoneout) |
///
/// # A program with mistakes
///
/// ```
/// use unpadded::{Builder, DType};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[8], 1);
/// let label = net.feed("label", DType::I64, &[], 0);
/// let narrow = x.linear(0);
/// let loss = (narrow + x).cross_entropy(label).mean(); // unknown, but no mistake of its own
/// let wide = x.slice(0..9);
/// net.finish().unwrap_err().all().zip([loss, wide]).for_each(|(error, _)| println!("{error}"));
/// ```
#[derive(Clone)]
pub struct Builder {
    pub(super) number: u64,
    pub(super) state: Rc<RefCell<State>>,
    pub(super) block: BlockId,
}

impl Builder {
    /// Returns a builder with an empty program and the operators of `registry`.
    pub fn with_registry(registry: Registry) -> Self {
        Self::over(Program::new(), registry)
    }

    /// Returns a builder that appends to an existing program.
    pub(crate) fn over(program: Program, registry: Registry) -> Self {
        let state = state::entered(|number| State {
            number,
            program,
            registry,
            open: Vec::new(),
            opened_at: Vec::new(),
            scopes: Scopes::default(),
            carried: Vec::new(),
            errors: Vec::new(),
            fallback: Fallback::default(),
            warnings: Vec::new(),
            stopped: HashSet::new(),
            dense: HashMap::new(),
        });
        let number = state.borrow().number.0;
        Self { number, state, block: BlockId(0) }
    }

    /// Returns the builder of a variable. The returned builder appends to the innermost open step block. A method of [`Var`] in a
    /// user's crate begins by calling `Builder::of`; the macro `operator!` writes such methods.
    ///
    /// Returns `None` if the builder belongs to another thread or no longer exists. An error is then recorded in the builder on
    /// the other thread. If the builder no longer exists, this thread keeps the error for its next [`Self::check`].
    #[track_caller]
    pub fn of(var: Var) -> Option<Builder> {
        let found = Self::found(var);
        if found.is_none() && !var.is_unknown() {
            state::keep_stray(var.builder, Location::caller());
        }
        found
    }

    /// Returns the builder of a variable; `None` if the builder is not on this thread.
    pub(crate) fn found(var: Var) -> Option<Builder> {
        let state = state::state_of(var.builder)?;
        let block = state.borrow().innermost();
        Some(Builder { number: var.builder, state, block })
    }

    /// Returns the source line that errors name: in a layer call, the line of the outermost layer call. Outside of layer calls,
    /// errors name the line of the user's code that called the current method; that method must be `#[track_caller]`.
    #[track_caller]
    pub(super) fn here(&self) -> &'static Location<'static> {
        let layer = self.state.borrow().scopes.lines.first().copied();
        layer.unwrap_or(Location::caller())
    }

    /// Returns the source line in a user's layer that called the current method. Returns `None` outside of layers, or if the line
    /// belongs to this crate.
    #[track_caller]
    fn inside(&self) -> Option<&'static Location<'static>> {
        let line = Location::caller();
        (self.here() != line && !is_own(line.file())).then_some(line)
    }

    /// Sets the seed of the initialisers and of the random operators of the program (default: 0).
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        self.state.borrow_mut().program.seed = seed;
        self
    }

    /// Checks that the builder recorded no error so far.
    ///
    /// # Errors
    /// Fails if the builder recorded an error: [`Error::all`] lists all recorded errors in the order of the calls.
    pub fn check(&self) -> Result<()> {
        let state = &mut *self.state.borrow_mut();
        state.errors.extend(state::stray_errors(self.number));
        let errors: Vec<Error> =
            state.errors.iter().map(|error| state.program.worded(error.clone())).collect();
        Error::several(&errors).map_or(Ok(()), Err)
    }

    /// Returns a copy of the program with all operators that were appended so far.
    ///
    /// # Errors
    /// Fails if [`Self::check`] fails.
    pub fn program(&self) -> Result<Program> {
        self.check()?;
        Ok(self.state.borrow().program.clone())
    }

    /// Calls a function with the program so far and the registry; the function must not append operators.
    pub(crate) fn with_program<R>(&self, read: impl FnOnce(&Program, &Registry) -> R) -> R {
        let state = self.state.borrow();
        read(&state.program, &state.registry)
    }

    /// Checks that no error was recorded and that the program is complete. A complete program has no open step block, and each
    /// carried state has a [`Self::carry`].
    pub(crate) fn check_whole(&self) -> Result<()> {
        let mut errors: Vec<Error> = self.check().err().iter().flat_map(Error::all).cloned().collect();
        let state = self.state.borrow();
        errors.extend(state.carried.iter().filter_map(|open| open.missing(&state.program)));
        errors.extend(state.open.iter().map(OpenStep::unfinished));
        Error::several(&errors).map_or(Ok(()), Err)
    }

    /// Returns the finished program.
    ///
    /// # Errors
    /// Fails if an error was recorded, if a step block is still open, or if a [carried state](Self::carried_state) has no
    /// [`carry`](Self::carry).
    pub fn finish(self) -> Result<Program> {
        self.check_whole()?;
        Ok(match Rc::try_unwrap(self.state) {
            Ok(state) => state.into_inner().program,
            Err(shared) => shared.borrow().program.clone(),
        })
    }

    /// Returns the registry with the operators that the builder can append.
    pub fn registry(&self) -> Registry {
        self.state.borrow().registry.clone()
    }

    /// Records an error that a layer detected, with the line of the user's code. Returns an unknown variable, for the layer to
    /// return as its result.
    #[track_caller]
    pub fn refuse(&self, error: Error) -> Var {
        let (caller, inside) = (self.here(), self.inside());
        let error = match inside {
            Some(line) => error.called(caller).noted(format!("inside the layer, at {line}")),
            None => error.called(caller),
        };
        self.state.borrow_mut().errors.push(error);
        self.unknown()
    }

    /// Returns an unknown variable, for a layer to return if the layer's input is unknown.
    pub fn unknown(&self) -> Var {
        Var::unknown(self.number)
    }

    /// Returns whether [`Self::check`] succeeds.
    pub(crate) fn is_without_errors(&self) -> bool {
        self.check().is_ok()
    }

    /// Returns the id of the variable `var`, which this builder's block must be able to read. Returns `None` if the variable is
    /// unknown; records an error and returns `None` if the block cannot read the variable.
    #[track_caller]
    pub(crate) fn visible(&self, var: Var) -> Option<VarId> {
        let seen = {
            let state = self.state.borrow();
            state
                .own(var)
                .and_then(|id| id.map_or(Ok(None), |id| state.seen(self.block, id).map(|()| Some(id))))
        };
        self.fitting(seen).flatten()
    }

    /// Returns the number of the builder, which is unique in the process.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the id of a variable, as [`Self::visible`] does for the block to which an operator on the variable would be
    /// appended.
    #[track_caller]
    pub(crate) fn reachable(&self, var: Var) -> Option<VarId> {
        let home = Builder { block: self.home([&var]), ..self.clone() };
        home.visible(var)
    }

    /// Returns the number of errors that the builder recorded.
    pub(crate) fn errors(&self) -> usize {
        self.state.borrow().errors.len()
    }

    /// Returns the value of `found`; if `found` is an error, records the error and returns `None`.
    #[track_caller]
    pub(crate) fn fitting<T>(&self, found: Result<T>) -> Option<T> {
        match found {
            Ok(found) => Some(found),
            Err(error) => {
                self.refuse(error);
                None
            }
        }
    }

    /// Returns the id of a variable of this builder. Returns `None` if the variable is unknown; records an error and returns
    /// `None` if the variable belongs to another builder.
    #[track_caller]
    pub(super) fn known(&self, var: Var) -> Option<VarId> {
        let own = self.state.borrow().own(var);
        self.fitting(own).flatten()
    }

    /// Returns the spec (dtype, shape, storage and LoD levels) of a variable; `None` if the variable is unknown.
    ///
    /// # Errors
    /// Records an error and returns `None` if the variable belongs to another builder or is a literal.
    #[track_caller]
    pub fn spec(&self, var: Var) -> Option<Spec> {
        let id = self.known(var)?;
        let spec = self.state.borrow().program.spec(id).cloned();
        self.fitting(spec)
    }

    /// Returns the id of a variable of this builder; an unknown variable is an error.
    pub(crate) fn owned(&self, var: Var) -> Result<VarId> {
        let unknown = || Error::of(ErrorKind::Program, "variable", "a known variable", "an unknown variable");
        self.state.borrow().own(var)?.ok_or_else(unknown)
    }

    /// Returns the spec of a variable; `None` if the variable is unknown or a literal.
    pub(crate) fn spec_of_tensor(&self, var: Var) -> Option<Spec> {
        let state = self.state.borrow();
        let id = state.own(var).ok()??;
        state.program.var(id).spec().cloned()
    }

    /// Describes a variable by name, dtype, shape and LoD levels, as ``` `x`: f32[rows0, 8] lod(0) ```. `{x:?}` prints the same
    /// text.
    pub fn describe(&self, var: Var) -> String {
        self.state.borrow().describe(var)
    }

    /// Returns the name of a variable; `?` for an unknown variable.
    pub fn name_of(&self, var: Var) -> String {
        let state = self.state.borrow();
        let id = state.own(var).ok().flatten();
        id.map_or_else(|| "?".to_owned(), |id| state.program.var(id).name.clone())
    }

    /// Declares an input of the program; the caller feeds a value for the input at every run. Each row of the feed has the shape
    /// `dims`, and `lod_level` is the feed's number of LoD levels. A feed with `lod_level` 0 has one row per sequence of the
    /// batch. The feed's LoD levels are new; [`Self::feed_like`] declares a feed with the levels of another variable.
    ///
    /// # Errors
    /// Records an error if the name is taken or if the method is called in a step block. Also records an error if there are too
    /// many dimensions or levels, or if a row has 2^63 bytes or more.
    #[track_caller]
    pub fn feed(&self, name: &str, dtype: DType, dims: &[usize], lod_level: usize) -> Var {
        self.add_feed(name, |program| ragged(program, dtype, dims, lod_level))
    }

    /// Declares a feed in any storage: dense, csr, coo or selected rows. `shape` is the whole shape of the feed, with `None` for
    /// the number of rows of the batch. A csr or coo feed has two dimensions. For selected rows, the first dimension is the
    /// height of the table, and must be known.
    ///
    /// # Errors
    /// Records the errors of [`Self::feed`]. Records an error if a dimension after the first is unknown, if the height of
    /// selected rows is unknown, or if the storage does not allow this number of dimensions. A csr or coo feed can have at most
    /// 2^60 columns; if the number of rows is known, rows times columns can be at most 2^60.
    #[track_caller]
    pub fn feed_stored(
        &self,
        name: &str,
        dtype: DType,
        shape: &[Option<usize>],
        storage: StorageKind,
    ) -> Var {
        self.add_feed(name, |_| {
            let rows = match shape.first() {
                Some(Some(n)) => Extent::Known(*n),
                Some(None) if storage == StorageKind::SelectedRows => {
                    return Err(Error::new("shape of a feed", "a known height of selected rows", "None"));
                }
                Some(None) => Extent::Batch,
                None => return Err(Error::new("shape of a feed", "at least one dimension", "none")),
            };
            let dims: Option<Vec<usize>> = shape[1..].iter().copied().collect();
            let dims = dims.ok_or_else(|| {
                Error::new("shape of a feed", "known dimensions after the first", format!("{shape:?}"))
            })?;
            if matches!(storage, StorageKind::Csr | StorageKind::Coo) && dims.len() != 1 {
                let got = format!("{} dimensions", shape.len());
                return Err(Error::new("shape of a feed", format!("two dimensions for {storage}"), got));
            }
            Ok(Spec { storage, ..Spec::rows_of(dtype, rows, &dims, Levels::new())? })
        })
    }

    /// Declares a sparse feed (csr) with `lod_level` LoD levels. A row has `columns` numbers, most of which are 0, as in a bag
    /// of words. A run converts the fed value to canonical form: ascending columns, with repeated entries added up.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::executor::{Executor, Run, Scope};
    /// use unpadded::tensor::Csr;
    /// use unpadded::{Builder, DType, Variable};
    /// let net = Builder::new();
    /// let bags = net.feed_csr("bags", DType::F32, 1000, 0);
    /// let total = bags.sum();
    /// let (registry, program) = (net.registry(), net.finish()?);
    /// let mut executor = Executor::new(&program, &registry, &[total.id()], 1)?;
    /// // Row 0 has 1 in column 999 and 2 in column 0, row 1 has 5 in column 1.
    /// let two = Csr::new([2, 1000], vec![0, 2, 3], vec![999, 0, 1], array![1.0f32, 2.0, 5.0])?;
    /// let two = Variable::new(two, None)?;
    /// executor.run(&mut Scope::of(&program)?, &Run::infer(&[(bags.id(), &two)]))?;
    /// assert_eq!(executor.scalar(total)?, 8.0);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Records the errors of [`Self::feed`]; records an error if `dtype` is not f32 or f64, or if there are more than 2^60
    /// columns.
    #[track_caller]
    pub fn feed_csr(&self, name: &str, dtype: DType, columns: usize, lod_level: usize) -> Var {
        self.add_feed(name, |program| {
            let dense = ragged(program, dtype, &[columns], lod_level)?;
            Ok(Spec { storage: StorageKind::Csr, ..dense })
        })
    }

    /// Declares a feed with the LoD levels of the variable `like`. A run checks that the feed and the variable have the same
    /// sequences.
    ///
    /// # Errors
    /// Records the errors of [`Self::feed`]; records an error if `like` is not batched.
    #[track_caller]
    pub fn feed_like(&self, name: &str, dtype: DType, dims: &[usize], like: Var) -> Var {
        let outside = Builder { block: BlockId(0), ..self.clone() };
        let Some(like) = outside.visible(like).and_then(|_| self.spec(like)) else { return self.unknown() };
        self.add_feed(name, |_| {
            if !like.batched() {
                return Err(Error::new("feed_like", "a batched variable", like.to_string()));
            }
            Spec::rows_of(dtype, like.rows(), dims, like.lod.clone())
        })
    }

    #[track_caller]
    fn add_feed(&self, name: &str, spec: impl FnOnce(&mut Program) -> Result<Spec>) -> Var {
        let add = |program: &mut Program| {
            if self.block != BlockId(0) {
                return Err(Error::of(ErrorKind::Program, "feed", "the root block", "a step block"));
            }
            let spec = spec(program)?;
            spec.check_size()?;
            if spec.storage != StorageKind::Dense && !spec.dtype.is_float() {
                return Err(Error::new("dtype of a sparse feed", "f32 or f64", spec.dtype.to_string()));
            }
            program.add_var(VarDesc {
                stop_gradient: true,
                ..VarDesc::new(name, self.block, VarKind::Tensor(spec), VarRole::Feed)
            })
        };
        let added = add(&mut self.state.borrow_mut().program).map_err(|e| e.variable(name));
        self.made(added)
    }

    /// Returns the variable with this id; if `id` is an error, records the error and returns an unknown variable.
    #[track_caller]
    pub(super) fn made(&self, id: Result<VarId>) -> Var {
        self.fitting(id).map_or_else(|| self.unknown(), |id| self.var(id))
    }

    /// Makes differentiation compute the gradient of a variable that would get none, such as a feed. Gradient checks and
    /// saliency maps need such gradients. Call `watch` before the first operator that reads the variable: if no input of an
    /// operator has a gradient, the operator marks its outputs as variables without gradients.
    ///
    /// # Errors
    /// Records an error if the variable does not hold floats, or if an operator already reads the variable.
    #[track_caller]
    pub fn watch(&self, var: Var) {
        let Some(spec) = self.spec(var) else { return };
        if !spec.dtype.is_float() {
            self.refuse(Error::new("watch", "a float variable", spec.to_string()));
            return;
        }
        let watched = self.state.borrow_mut().watch(var.id);
        self.fitting(watched);
    }

    /// Returns the dtype `source`, or the dtype of the variable `source`; `None` if the variable is unknown.
    #[track_caller]
    pub(super) fn dtype(&self, source: impl Into<DTypeSource>) -> Option<DType> {
        match source.into() {
            DTypeSource::DType(dtype) => Some(dtype),
            DTypeSource::Var(var) => self.spec(var).map(|spec| spec.dtype),
        }
    }

    /// Adds a literal to the program: a constant scalar, string, list of scalars or list of strings.
    ///
    /// # Errors
    /// Records an error if another variable has the name.
    #[track_caller]
    pub fn literal(&self, name: &str, value: impl Into<Literal>) -> Var {
        let added = self.state.borrow_mut().program.add_var(VarDesc {
            stop_gradient: true,
            ..VarDesc::new(name, BlockId(0), VarKind::Literal(value.into()), VarRole::Literal)
        });
        self.made(added)
    }

    /// Stops the gradient at a variable and excludes the variable from training.
    ///
    /// # Errors
    /// Records an error if the variable belongs to another builder.
    #[track_caller]
    pub fn stop_gradient(&self, var: Var) {
        let Some(id) = self.known(var) else { return };
        let state = &mut *self.state.borrow_mut();
        let var = &mut state.program.vars[id.0 as usize];
        (var.stop_gradient, var.trainable) = (true, false);
        state.stopped.insert(id);
    }

    /// Returns the variables on which [`Self::stop_gradient`] was called.
    pub(crate) fn stopped(&self) -> HashSet<VarId> {
        self.state.borrow().stopped.clone()
    }

    /// Appends an operator, given its kind, the variables of each input slot, and the attributes. Returns the operator's outputs
    /// in the order of the output slots: a variable, an array, a tuple or a list. If an input is a variable of an open step
    /// block, the operator is appended to the innermost open step block. A batched input from a block around the step block
    /// becomes a static input of the step block.
    ///
    /// # Errors
    /// Records an error if the operator refuses an input or an attribute, or if the number of outputs does not match `V`. The
    /// error names the operator and the caller's line, and the returned variables are unknown.
    #[track_caller]
    pub fn append<V: Outputs>(&self, kind: &str, inputs: &[(&str, &[Var])], attributes: Attributes) -> V {
        let (caller, block) = (self.here(), self.home(inputs.iter().flat_map(|&(_, vars)| vars)));
        let slots = || {
            let state = self.state.borrow();
            state.registry.parse(kind, &attributes).map_or(1, |op| op.signature().outputs.len())
        };
        let unknown = || V::unknown(self.unknown(), slots());
        let appended = self.state.borrow_mut().append(block, kind, &attributes, inputs, caller);
        let Some(Some(outputs)) = self.fitting(appended) else { return unknown() };
        let outputs: Vec<Var> = outputs.into_iter().map(|id| self.var(id)).collect();
        if let Some(outputs) = V::of(&outputs) {
            return outputs;
        }
        let number = self.state.borrow().program.block(block).ops.len() - 1;
        let expected = format!("{}, as many as the operator makes", outputs.len());
        let error = Error::of(ErrorKind::Program, "requested outputs", expected, "another number");
        let inside = self.state.borrow().program.inside(block);
        self.refuse(error.at(Place { operator: Some(format!("{kind} #{number}")), ..inside }));
        unknown()
    }

    /// Returns the block to which an operator on these variables is appended. The block is the innermost open step block if one
    /// of the variables belongs to a step block inside this builder's block; else it is this builder's block.
    pub(super) fn home<'a>(&self, inputs: impl IntoIterator<Item = &'a Var>) -> BlockId {
        let state = self.state.borrow();
        let innermost = state.innermost();
        if innermost == self.block || !state.program.encloses(self.block, innermost) {
            return self.block;
        }
        let inside = |id: VarId| {
            let from = state.program.var(id).block;
            from != self.block
                && state.program.encloses(self.block, from)
                && state.program.encloses(from, innermost)
        };
        let mut known = inputs.into_iter().filter_map(|&var| state.own(var).ok().flatten());
        if known.any(inside) { innermost } else { self.block }
    }

    /// Returns the output of an existing operator of kind `kind` with only `var` in its input slot `slot`. Searches only the
    /// block to which an operator on `var` would be appended.
    pub(crate) fn made_by(&self, kind: &str, slot: &str, var: Var) -> Option<Var> {
        let block = self.home([&var]);
        let mut state = self.state.borrow_mut();
        let id = state.resolve(block, var).ok()??;
        let mut ops = state.program.block(block).ops.iter();
        let op = ops.find(|op| op.kind == kind && op.input(slot) == [id])?;
        op.writes().next().map(|out| self.var(out))
    }

    /// Returns the variable with this number in the builder's program.
    pub(crate) fn var(&self, id: VarId) -> Var {
        Var { builder: self.number, id }
    }
}

/// Returns the spec of a new feed: rows of the shape `dims`, with `lod_level` new LoD levels.
fn ragged(program: &mut Program, dtype: DType, dims: &[usize], lod_level: usize) -> Result<Spec> {
    if lod_level > MAX_LEVELS {
        return Err(Error::new("lod_level", format!("at most {MAX_LEVELS} levels"), lod_level.to_string()));
    }
    let levels: Levels = (0..lod_level).map(|_| program.add_level()).collect();
    let rows = levels.last().map_or(Extent::Batch, |&level| Extent::Rows(level));
    Spec::rows_of(dtype, rows, dims, levels)
}

/// The dtype of a new variable: given directly, or equal to the dtype of another variable.
#[derive(Debug, Clone, Copy)]
pub enum DTypeSource {
    /// The dtype is given directly.
    DType(DType),
    /// The dtype of the given variable.
    Var(Var),
}

impl From<DType> for DTypeSource {
    fn from(dtype: DType) -> Self {
        Self::DType(dtype)
    }
}

impl From<Var> for DTypeSource {
    fn from(var: Var) -> Self {
        Self::Var(var)
    }
}
