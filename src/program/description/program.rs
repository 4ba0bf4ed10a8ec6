//! Programs: a computation as data, in blocks of operators.

use std::panic::Location;

use super::names::Names;
use super::op_desc::{OpDesc, Role, SlotVars};
use super::shape_source::ShapeSource;
use super::var_desc::{StopGradient, VarDesc, VarKind, VarRole};
use crate::error::{AtCaller, Error, ErrorKind, Result, is_own};
use crate::operator::attributes::Attributes;
use crate::operator::extent::{BlockId, Extent, LevelId, Spec, VarId};
use crate::operator::facts::Reach;
use crate::operator::infer::infer;
use crate::operator::precision::MatrixUnit;
use crate::operator::registry::Registry;
use crate::operator::shapes::{InputSlots, Phase};
use crate::operator::signature::Slot;

/// A list of operators: the root block or a step block. The parent of a step block is the block of the operator that runs the
/// step block.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct Block {
    /// The number of the block around this block; `None` for the root block.
    pub(crate) parent: Option<BlockId>,
    /// The operators of the block, in the order in which they run.
    pub ops: Vec<OpDesc>,
}

/// An iterator over the operators of all blocks. Adapters over one type with `next` compile faster than over a `flat_map`.
#[derive(Debug, Clone)]
pub struct ProgramOps<'a> {
    blocks: &'a [Block],
    /// The remaining operators of the current block.
    ops: &'a [OpDesc],
}

impl<'a> Iterator for ProgramOps<'a> {
    type Item = &'a OpDesc;

    fn next(&mut self) -> Option<&'a OpDesc> {
        loop {
            if let Some((op, rest)) = self.ops.split_first() {
                self.ops = rest;
                return Some(op);
            }
            let (block, rest) = self.blocks.split_first()?;
            (self.blocks, self.ops) = (rest, &block.ops);
        }
    }
}

/// A computation as plain data. A program can be printed, compared, saved and sent without a registry of operators.
#[derive(Debug, Clone, PartialEq)]
pub struct Program {
    pub(crate) vars: Vec<VarDesc>,
    pub(crate) blocks: Vec<Block>,
    pub(crate) levels: u32,
    /// The seed of the initialisers and of the random operators.
    pub seed: u64,
    /// The unit that computes the matrix products of f32 numbers, and so their precision.
    pub unit: MatrixUnit,
    pub(in crate::program) names: Names,
    pub(in crate::program) shape_source: ShapeSource,
}

impl Default for Program {
    fn default() -> Self {
        Self {
            vars: Vec::new(),
            blocks: vec![Block::default()],
            levels: 0,
            seed: 0,
            unit: MatrixUnit::F32,
            names: Names::default(),
            shape_source: ShapeSource::default(),
        }
    }
}

#[track_caller]
pub(in crate::program) fn malformed(
    what: impl Into<String>,
    expected: impl Into<String>,
    got: impl Into<String>,
) -> Error {
    Error::of(ErrorKind::Program, what, expected, got)
}

impl Program {
    /// Returns an empty program.
    pub fn new() -> Self {
        Self::default()
    }

    /// Iterates over all variables of the program, by ascending number.
    pub fn vars(&self) -> impl ExactSizeIterator<Item = (VarId, &VarDesc)> {
        self.vars.iter().enumerate().map(|(i, v)| (VarId(i as u32), v))
    }

    /// Returns the description of a variable.
    ///
    /// # Panics
    /// Panics if this program has no variable with the number `id`.
    pub fn var(&self, id: VarId) -> &VarDesc {
        &self.vars[id.0 as usize]
    }

    /// Returns the description of a variable, to be changed.
    ///
    /// # Panics
    /// Panics if this program has no variable with the number `id`.
    pub fn var_mut(&mut self, id: VarId) -> &mut VarDesc {
        self.names.loosen(id, &self.vars);
        self.shape_source = ShapeSource::default();
        &mut self.vars[id.0 as usize]
    }

    /// Returns whether this process built the program with this registry, so that all shapes are known to be right.
    pub(crate) fn is_built_by(&self, registry: &Registry) -> bool {
        self.shape_source.0.as_ref().is_some_and(|known| known.is_clone_of(registry))
    }

    /// Returns a variable's name, for messages; if this program has no variable `id`, the message asks whether `id` belongs to
    /// another program.
    pub(crate) fn called(&self, id: VarId) -> String {
        match self.vars.get(id.0 as usize) {
            Some(var) => format!("`{}`", var.name),
            None => format!("number {} of {} variables: is it another program's?", id.0, self.vars.len()),
        }
    }

    /// Replaces source lines of this library by `caller` in all operators. A call through `dyn` records a line of the library
    /// instead of the caller's line.
    pub(crate) fn called_from(&mut self, caller: &Location<'_>) {
        for op in self.blocks.iter_mut().flat_map(|block| &mut block.ops).filter(|op| is_own(&op.caller)) {
            op.caller = caller.to_string();
        }
    }

    /// Returns the spec (dtype, shape, storage and LoD levels) of a tensor variable.
    ///
    /// # Errors
    /// Fails if the variable is a literal.
    #[track_caller]
    pub fn spec(&self, id: VarId) -> Result<&Spec> {
        let var = self.var(id);
        var.spec()
            .ok_or_else(|| malformed(format!("variable `{}`", var.name), "a tensor", "a literal"))
            .at_caller()
    }

    /// Returns the variable with the name `name`; `None` if no variable has this name.
    pub fn find(&self, name: &str) -> Option<VarId> {
        if self.names.current(&self.vars) {
            return self.names.get(&self.vars, name);
        }
        self.vars.iter().position(|v| v.name == name).map(|i| VarId(i as u32))
    }

    /// Returns a free variable name: `wish`, or `wish_2` and so on if `wish` is taken.
    pub fn fresh_name(&self, wish: &str) -> String {
        let from = self.names.free_number(&self.vars, wish);
        let number = |number| if number == 1 { wish.to_owned() } else { format!("{wish}_{number}") };
        let mut names = std::iter::once(1).chain(from..).map(number);
        names.find(|name| self.find(name).is_none()).unwrap_or_default()
    }

    /// Iterates over all blocks of the program; the first block is the root block.
    pub fn blocks(&self) -> impl ExactSizeIterator<Item = (BlockId, &Block)> {
        self.blocks.iter().enumerate().map(|(i, b)| (BlockId(i as u32), b))
    }

    /// Iterates over the operators of all blocks, block by block.
    pub fn ops(&self) -> ProgramOps<'_> {
        ProgramOps { blocks: &self.blocks, ops: &[] }
    }

    /// Returns the block with the number `id`.
    ///
    /// # Panics
    /// Panics if this program has no block with the number `id`.
    pub fn block(&self, id: BlockId) -> &Block {
        &self.blocks[id.0 as usize]
    }

    /// Returns the root block, which has number 0.
    pub fn root(&self) -> &Block {
        &self.blocks[0]
    }

    /// Iterates over all parameters. Among the parameters are parameters that [`stop_gradient`](crate::Builder::stop_gradient)
    /// excludes from training, and averages that a layer updates, such as a batch norm's running mean. The states of an
    /// optimizer are not parameters.
    ///
    /// ```
    /// use unpadded::layers::init;
    /// use unpadded::{Builder, DType};
    /// let net = Builder::new();
    /// let x = net.feed("x", DType::F32, &[8], 0);
    /// let frozen = net.parameter("frozen", DType::F32, &[8], init::constant(1.0));
    /// net.stop_gradient(frozen);
    /// (x * frozen).linear(2);
    /// let program = net.finish()?;
    /// assert_eq!(program.parameters().count(), 3);
    /// assert_eq!(program.trained_parameters().count(), 2); // without `frozen`
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    pub fn parameters(&self) -> impl Iterator<Item = VarId> {
        self.vars().filter(|(_, v)| v.role == VarRole::Parameter).map(|(id, _)| id)
    }

    /// Iterates over the parameters that an optimizer may change.
    pub fn trained_parameters(&self) -> impl Iterator<Item = VarId> {
        self.vars().filter(|(_, v)| v.trainable).map(|(id, _)| id)
    }

    /// Returns the first operator that reads a variable, with the operator's number in its block.
    pub(in crate::program) fn reader(&self, id: VarId) -> Option<(usize, &OpDesc)> {
        let mut ops = self.blocks.iter().flat_map(|block| block.ops.iter().enumerate());
        ops.find(|(_, op)| op.reads().any(|read| read == id))
    }

    /// Returns whether the block `inner` is the block `outer` or is nested in it.
    pub fn encloses(&self, outer: BlockId, mut inner: BlockId) -> bool {
        loop {
            if inner == outer {
                return true;
            }
            match self.block(inner).parent {
                Some(parent) => inner = parent,
                None => return false,
            }
        }
    }

    /// Returns the extent that counts the top-level sequences in a block: the sequences of the batch or, in a step block, the
    /// sequences that have not ended.
    pub(crate) fn top(&self, block: BlockId) -> Extent {
        if block.0 == 0 { Extent::Batch } else { Extent::Alive(block) }
    }

    /// Adds an empty block inside the block `parent`, and returns the new block's number.
    pub fn add_block(&mut self, parent: BlockId) -> BlockId {
        self.blocks.push(Block { parent: Some(parent), ops: Vec::new() });
        BlockId(self.blocks.len() as u32 - 1)
    }

    /// Returns a mark, to which [`Self::rewind`] returns.
    pub(crate) fn mark(&self) -> Mark {
        let ops = self.blocks.iter().map(|block| block.ops.len()).collect();
        let updates = self.root().ops.iter().map(|op| op.role == Role::Update).collect();
        Mark { vars: self.vars.len(), levels: self.levels, ops, updates }
    }

    /// Removes all variables, levels, blocks and operators that were added after a mark. Since the mark, operators may only have
    /// been appended, and updates of the root block may only have been moved behind other operators.
    pub(crate) fn rewind(&mut self, mark: &Mark) {
        self.vars.truncate(mark.vars);
        self.levels = mark.levels;
        self.names = Names::default();
        self.blocks.truncate(mark.ops.len());
        let root = std::mem::take(&mut self.blocks[0].ops).into_iter();
        let (updates, others): (Vec<_>, Vec<_>) = root.partition(|op| op.role == Role::Update);
        let (mut updates, mut others) = (updates.into_iter(), others.into_iter());
        let ordered =
            mark.updates.iter().filter_map(|&update| if update { updates.next() } else { others.next() });
        self.blocks[0].ops = ordered.collect();
        for (block, &count) in self.blocks.iter_mut().zip(&mark.ops) {
            block.ops.truncate(count);
        }
    }

    /// Adds a LoD level, and returns its number.
    pub fn add_level(&mut self) -> LevelId {
        self.levels += 1;
        LevelId(self.levels - 1)
    }

    /// Adds a variable to the program, and returns the variable's number.
    ///
    /// # Errors
    /// Fails if another variable has the name.
    #[track_caller]
    pub fn add_var(&mut self, var: VarDesc) -> Result<VarId> {
        self.names.settle(&self.vars);
        if self.find(&var.name).is_some() {
            return Err(malformed("variable name", "a new name", format!("`{}` again", var.name)));
        }
        Ok(self.push(var))
    }

    /// Adds a variable without checking that its name is free.
    fn push(&mut self, var: VarDesc) -> VarId {
        self.vars.push(var);
        self.names.settle(&self.vars);
        VarId(self.vars.len() as u32 - 1)
    }

    /// Marks the variable `grad` as the gradient of the variable `var`.
    pub(crate) fn set_gradient_of(&mut self, grad: VarId, var: VarId) {
        self.vars[grad.0 as usize].gradient_of = Some(var);
    }

    /// Adds a variable of the role `role` with a free name.
    pub(crate) fn add_computed(
        &mut self,
        wish: &str,
        block: BlockId,
        spec: Spec,
        role: VarRole,
        stop: StopGradient,
    ) -> VarId {
        self.names.settle(&self.vars);
        let name = self.fresh_name(wish);
        let stop_gradient = stop == StopGradient::Yes || !spec.dtype.is_float();
        self.push(VarDesc { stop_gradient, ..VarDesc::new(name, block, VarKind::Tensor(spec), role) })
    }

    /// Appends an operator to a block: checks the operator's slots, runs its shape rule, and adds its output variables.
    ///
    /// # Errors
    /// Fails if the operator refuses an input, an attribute or the block. The error names the operator and `caller`, and the
    /// program is unchanged.
    #[track_caller]
    pub fn append(
        &mut self,
        registry: &Registry,
        block: BlockId,
        request: Append<'_>,
    ) -> Result<Vec<Vec<VarId>>> {
        let (kind, caller) = (request.kind.to_owned(), request.caller.clone());
        let appended = self.try_append(registry, block, request);
        appended.map_err(|e| self.worded(e).at(self.next_place(block, &kind, caller))).at_caller()
    }

    fn try_append(
        &mut self,
        registry: &Registry,
        block: BlockId,
        request: Append<'_>,
    ) -> Result<Vec<Vec<VarId>>> {
        let Append { kind, inputs, updated, attributes, role, name, caller } = request;
        let kind = self.kind_for(registry, kind, &attributes, &inputs).unwrap_or(kind);
        let op = registry.parse(kind, &attributes)?;
        registry.check_names(kind, &attributes)?;
        let signature = op.signature();
        let groups = self.arrange(signature.inputs, &inputs, block)?;
        let specs = self.specs(&groups)?;
        self.check_storages(signature, &groups)?;
        if block.0 > 0 {
            self.check_dense_rows(&groups)?;
        }
        if block.0 > 0 && op.facts().reach == Reach::Batch && specs.iter().flatten().any(Spec::batched) {
            let got =
                "an operator over the whole batch: a sequence's result would depend on the other sequences";
            return Err(malformed("operator in a step block", "a row-wise or sequence-wise operator", got));
        }
        let mut levels = self.levels;
        let outputs = {
            let phase = Phase::Build { next: &mut levels };
            let literals = self.literals(&groups);
            infer(&*op, InputSlots { specs: &specs, literals: &literals }, self.top(block), phase)?
        };
        let stop = !groups.iter().flatten().any(|&v| !self.var(v).stop_gradient);
        self.levels = levels;
        let mut written = Vec::new();
        for (slot, specs) in signature.outputs.iter().zip(outputs) {
            let mut vars = Vec::new();
            for (k, spec) in specs.into_iter().enumerate() {
                if slot.updated {
                    vars.push(self.updated_var(slot, k, &updated, &spec)?);
                    continue;
                }
                let wish = match (name, slot.name, k) {
                    (Some(name), "out", 0) => name.to_owned(),
                    (Some(name), slot, _) => format!("{name}.{slot}"),
                    (None, "out", _) => kind.to_owned(),
                    (None, slot, _) => format!("{kind}.{slot}"),
                };
                // If no input has a gradient (labels have none, for example), the output has no gradient either.
                let stop = stop || !slot.gradient;
                vars.push(self.add_computed(&wish, block, spec, VarRole::Computed, stop.into()));
            }
            written.push(vars);
        }
        let bind = |slots: &[Slot], vars: &[Vec<VarId>]| -> Vec<SlotVars> {
            let pairs = slots.iter().zip(vars).filter(|(_, vars)| !vars.is_empty());
            pairs.map(|(slot, vars)| SlotVars { slot: slot.name.to_owned(), vars: vars.clone() }).collect()
        };
        let desc = OpDesc {
            kind: kind.to_owned(),
            role,
            inputs: bind(signature.inputs, &groups),
            outputs: bind(signature.outputs, &written),
            attributes,
            step: None,
            caller,
        };
        self.shape_source.append(registry, self.ops().next().is_none());
        self.blocks[block.0 as usize].ops.push(desc);
        Ok(written)
    }

    /// Returns the `k`-th variable that the operator updates in place through the output slot `slot`.
    fn updated_var(&self, slot: &Slot, k: usize, updated: &[(&str, VarId)], spec: &Spec) -> Result<VarId> {
        let found = updated.iter().filter(|(name, _)| *name == slot.name).nth(k);
        let &(_, var) = found
            .ok_or_else(|| malformed(format!("output `{}`", slot.name), "a variable to update", "none"))?;
        if self.spec(var)? != spec {
            return Err(Error::new(
                format!("output `{}`", slot.name),
                spec.to_string(),
                self.spec(var)?.to_string(),
            ));
        }
        Ok(var)
    }

    /// Returns the given variables by slot, in the order of the slots; checks that each slot can take its variables.
    fn arrange(
        &self,
        slots: &[Slot],
        given: &[(&str, Vec<VarId>)],
        block: BlockId,
    ) -> Result<Vec<Vec<VarId>>> {
        if let Some((name, _)) = given.iter().find(|(name, _)| !slots.iter().any(|s| s.name == *name)) {
            let names: Vec<&str> = slots.iter().map(|s| s.name).collect();
            return Err(malformed("input slot", format!("one of {}", names.join(", ")), format!("`{name}`")));
        }
        let mut groups = Vec::with_capacity(slots.len());
        for slot in slots {
            let vars: Vec<VarId> =
                given.iter().filter(|(n, _)| *n == slot.name).flat_map(|(_, v)| v.clone()).collect();
            if !slot.arity.takes(vars.len()) {
                let (expected, got) = (slot.arity.to_string(), vars.len().to_string());
                return Err(malformed(format!("input `{}`", slot.name), expected, got));
            }
            for &var in &vars {
                self.check_usable(var, slot, block)?;
            }
            groups.push(vars);
        }
        Ok(groups)
    }

    fn check_usable(&self, var: VarId, slot: &Slot, block: BlockId) -> Result<()> {
        let desc = self
            .vars
            .get(var.0 as usize)
            .ok_or_else(|| malformed("variable", "a variable of this program", "another variable"))?;
        self.check_kind(desc, slot)?;
        let visible = desc.block == block
            || (self.encloses(desc.block, block) && !desc.spec().is_some_and(Spec::batched))
            || self.is_gradient_of(desc.block, block);
        if !visible {
            let expected = format!("a variable of block {} or a constant of a block around it", block.0);
            return Err(malformed("scope", expected, format!("a variable of block {}", desc.block.0))
                .variable(&desc.name));
        }
        Ok(())
    }

    fn is_gradient_of(&self, step: BlockId, gradient: BlockId) -> bool {
        self.ops()
            .filter_map(|op| op.step.as_deref())
            .any(|s| s.block == step && s.gradient.as_ref().is_some_and(|g| g.block == gradient))
    }
}

/// The counts of a program's variables, levels and operators.
pub(crate) struct Mark {
    vars: usize,
    levels: u32,
    /// The number of operators of each block.
    ops: Vec<usize>,
    /// For each operator of the root block, whether it is an update.
    updates: Vec<bool>,
}

/// A request to append an operator to a block, with the operator's inputs and settings.
#[non_exhaustive]
pub struct Append<'a> {
    pub(crate) kind: &'a str,
    /// The variables that the operator reads, by input slot.
    pub inputs: Vec<(&'a str, Vec<VarId>)>,
    /// The variables that the operator updates in place, by output slot.
    pub(crate) updated: Vec<(&'a str, VarId)>,
    /// The attributes of the operator.
    pub attributes: Attributes,
    pub(crate) role: Role,
    /// The prefix of the names of the output variables; `None` means the operator's kind.
    pub(crate) name: Option<&'a str>,
    /// The source line of the user's code that appends the operator.
    pub(crate) caller: String,
}

impl<'a> Append<'a> {
    /// Returns a request for a forward operator of the kind `kind`, without inputs and attributes.
    pub fn forward(kind: &'a str) -> Self {
        Append {
            kind,
            inputs: Vec::new(),
            updated: Vec::new(),
            attributes: Attributes::new(),
            role: Role::Forward,
            name: None,
            caller: String::new(),
        }
    }
}
