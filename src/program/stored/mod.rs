//! The file format of programs. The file format has its own structs, so that the types of programs can change while old files
//! stay readable.
//!
//! Each struct is the stored form of a type in [`crate::program`], with the same fields. Variables, blocks and levels are stored
//! by their numbers. Reading a stored program does not check it: [`Program::validate`] checks it.

use std::collections::BTreeMap;

use crate::error::{Error, ErrorKind, Result};
use crate::operator::attributes::{self, Attributes};
use crate::operator::extent::{self, BlockId, LevelId, Levels, Shape, VarId};
use crate::operator::precision::MatrixUnit;
use crate::program::description::op_desc::{self, OpDesc, Role, SlotVars, StepDesc};
use crate::program::description::program::{self, Program};
use crate::program::description::var_desc::{self, VarDesc, VarKind, VarRole};
use crate::tensor::{DType, StorageKind};
use crate::wire::record::{NamedEntry, record, variants};

/// The maximum nesting depth of lists in a literal of a stored program.
pub(super) const MAX_LITERAL_DEPTH: usize = 16;

record! {
    pub(crate) struct StoredProgram {
        1 variables: Vec<Variable>,
        2 blocks: Vec<Block>,
        3 levels: u32,
        4 seed: u64,
        /// `None` for f32.
        5 unit: Option<NamedEntry<MatrixUnit>>,
    }
}

record! {
    struct Variable {
        1 name: String,
        2 block: u32,
        3 kind: Kind,
        4 role: NamedEntry<VarRole>,
        5 persistable: bool,
        6 trainable: bool,
        7 stop_gradient: bool,
        8 initializer: Option<Initializer>,
        9 gradient_of: Option<u32>,
    }
}

variants! {
    enum Kind {
        1 Tensor(Spec),
        2 Literal(Literal),
    }
}

record! {
    struct Spec {
        1 dtype: NamedEntry<DType>,
        2 shape: Vec<Extent>,
        3 lod: Vec<u32> = Vec::new(),
        4 storage: NamedEntry<StorageKind> = NamedEntry(StorageKind::Dense),
    }
}

variants! {
    enum Extent {
        1 Known(u64),
        2 Batch(()),
        3 Rows(u32),
        4 Alive(u32),
        5 Data(u32),
    }
}

variants! {
    pub(crate) enum Literal {
        1 Bool(bool),
        2 Int(i64),
        3 Float(f64),
        4 Text(String),
        5 List(Vec<Literal>),
    }
}

record! {
    struct Initializer {
        1 kind: String,
        2 attributes: BTreeMap<String, Literal> = BTreeMap::new(),
    }
}

record! {
    struct Block {
        1 parent: Option<u32>,
        2 ops: Vec<Operator>,
    }
}

record! {
    struct Operator {
        1 kind: String,
        2 role: NamedEntry<Role>,
        3 inputs: Vec<Slot>,
        4 outputs: Vec<Slot>,
        5 attributes: BTreeMap<String, Literal> = BTreeMap::new(),
        6 step: Option<Box<Step>>,
        7 caller: String = String::new(),
    }
}

record! {
    struct Slot {
        1 name: String,
        2 variables: Vec<u32>,
    }
}

record! {
    struct Pair {
        1 outer: u32,
        2 inner: u32,
    }
}

record! {
    struct Memory {
        1 previous: u32,
        2 next: u32,
        3 initial: Option<u32>,
        4 last: Option<u32>,
    }
}

record! {
    struct Step {
        1 block: u32,
        2 level: u32,
        3 reverse: bool,
        4 inputs: Vec<Pair>,
        5 statics: Vec<Pair>,
        6 memories: Vec<Memory>,
        7 outputs: Vec<Pair>,
        8 levels: Vec<Pair>,
        9 gradient: Option<Box<StepGradient>>,
    }
}

record! {
    struct StepGradient {
        1 block: u32,
        2 outputs: Vec<Pair>,
        3 inputs: Vec<Pair>,
        4 statics: Vec<Pair>,
        5 constants: Vec<u32>,
        6 memories: Vec<MemoryGradient>,
    }
}

record! {
    struct MemoryGradient {
        1 memory: u32,
        2 previous: Option<u32>,
        3 next: u32,
        4 last: Option<u32>,
        5 initial: Option<u32>,
    }
}

/// Converts all values of a list to the stored form.
fn all<'a, A: 'a, B: From<&'a A>>(of: impl IntoIterator<Item = &'a A>) -> Vec<B> {
    of.into_iter().map(B::from).collect()
}

/// Converts all stored values of a list to the program's types.
fn each<A, B: From<A>>(stored: Vec<A>) -> Vec<B> {
    stored.into_iter().map(B::from).collect()
}

/// Converts all stored values of a list to the program's types; fails if one value cannot be converted.
fn checked<A, B: TryFrom<A, Error = Error>>(stored: Vec<A>) -> Result<Vec<B>> {
    stored.into_iter().map(B::try_from).collect()
}

macro_rules! numbers {
    ($($type:ident),*) => {
        $(impl From<&$type> for u32 {
            fn from(id: &$type) -> u32 {
                id.0
            }
        })*
    };
}
numbers!(VarId, BlockId, LevelId);

impl From<&Program> for StoredProgram {
    fn from(program: &Program) -> Self {
        Self {
            variables: all(&program.vars),
            blocks: all(&program.blocks),
            levels: program.levels,
            seed: program.seed,
            unit: Some(program.unit).filter(|&unit| unit != MatrixUnit::F32).map(NamedEntry),
        }
    }
}

impl TryFrom<StoredProgram> for Program {
    type Error = Error;

    fn try_from(stored: StoredProgram) -> Result<Self> {
        let StoredProgram { variables, blocks, levels, seed, unit } = stored;
        let (vars, blocks) = (checked(variables)?, checked(blocks)?);
        let unit = unit.map_or(MatrixUnit::F32, |NamedEntry(unit)| unit);
        Ok(Self { vars, blocks, levels, seed, unit, ..Self::default() })
    }
}

impl From<&VarDesc> for Variable {
    fn from(desc: &VarDesc) -> Self {
        Self {
            name: desc.name.clone(),
            block: desc.block.0,
            kind: match &desc.kind {
                VarKind::Tensor(spec) => Kind::Tensor(spec.into()),
                VarKind::Literal(literal) => Kind::Literal(literal.into()),
            },
            role: NamedEntry(desc.role),
            persistable: desc.persistable,
            trainable: desc.trainable,
            stop_gradient: desc.stop_gradient,
            initializer: desc.initializer.as_ref().map(|initializer| Initializer {
                kind: initializer.kind.clone(),
                attributes: stored_attributes(&initializer.attributes),
            }),
            gradient_of: desc.gradient_of.map(|id| id.0),
        }
    }
}

impl TryFrom<Variable> for VarDesc {
    type Error = Error;

    fn try_from(stored: Variable) -> Result<Self> {
        let initializer = |Initializer { kind, attributes }| -> Result<_> {
            Ok(var_desc::Initializer { kind, attributes: read_attributes(attributes)? })
        };
        Ok(Self {
            name: stored.name,
            block: BlockId(stored.block),
            kind: match stored.kind {
                Kind::Tensor(spec) => VarKind::Tensor(spec.try_into()?),
                Kind::Literal(literal) => VarKind::Literal(read_literal(literal, MAX_LITERAL_DEPTH)?),
            },
            role: stored.role.0,
            persistable: stored.persistable,
            trainable: stored.trainable,
            stop_gradient: stored.stop_gradient,
            initializer: stored.initializer.map(initializer).transpose()?,
            gradient_of: stored.gradient_of.map(VarId),
        })
    }
}

impl From<&extent::Spec> for Spec {
    fn from(spec: &extent::Spec) -> Self {
        Self {
            dtype: NamedEntry(spec.dtype),
            shape: spec.shape.iter().map(|&extent| extent.into()).collect(),
            lod: all(&spec.lod),
            storage: NamedEntry(spec.storage),
        }
    }
}

impl TryFrom<Spec> for extent::Spec {
    type Error = Error;

    fn try_from(stored: Spec) -> Result<Self> {
        let (mut shape, mut lod) = (Shape::new(), Levels::new());
        let many = |what: &str, most: usize| Error::new(what, format!("at most {most}"), "more");
        for extent in stored.shape {
            let extent = extent.try_into()?;
            shape.try_push(extent).map_err(|_| many("dimensions", extent::MAX_RANK))?;
        }
        for level in stored.lod {
            lod.try_push(LevelId(level)).map_err(|_| many("levels", extent::MAX_LEVELS))?;
        }
        Ok(Self { dtype: stored.dtype.0, shape, lod, storage: stored.storage.0 })
    }
}

impl From<extent::Extent> for Extent {
    fn from(extent: extent::Extent) -> Self {
        match extent {
            extent::Extent::Known(n) => Extent::Known(n as u64),
            extent::Extent::Batch => Extent::Batch(()),
            extent::Extent::Rows(level) => Extent::Rows(level.0),
            extent::Extent::Alive(block) => Extent::Alive(block.0),
            extent::Extent::Data(id) => Extent::Data(id),
        }
    }
}

impl TryFrom<Extent> for extent::Extent {
    type Error = Error;

    fn try_from(stored: Extent) -> Result<Self> {
        Ok(match stored {
            Extent::Known(n) => extent::Extent::Known(usize::try_from(n).map_err(|_| {
                Error::new(
                    "dimension",
                    format!("at most {}, as this machine counts", usize::MAX),
                    n.to_string(),
                )
            })?),
            Extent::Batch(()) => extent::Extent::Batch,
            Extent::Rows(level) => extent::Extent::Rows(LevelId(level)),
            Extent::Alive(block) => extent::Extent::Alive(BlockId(block)),
            Extent::Data(id) => extent::Extent::Data(id),
        })
    }
}

impl From<&attributes::Literal> for Literal {
    fn from(literal: &attributes::Literal) -> Self {
        match literal {
            attributes::Literal::Bool(v) => Literal::Bool(*v),
            attributes::Literal::Int(v) => Literal::Int(*v),
            attributes::Literal::Float(v) => Literal::Float(*v),
            attributes::Literal::Text(v) => Literal::Text(v.clone()),
            attributes::Literal::List(v) => Literal::List(all(v)),
        }
    }
}

/// Converts a stored literal; fails if its lists are nested deeper than `depth`.
fn read_literal(stored: Literal, depth: usize) -> Result<attributes::Literal> {
    Ok(match stored {
        Literal::Bool(v) => attributes::Literal::Bool(v),
        Literal::Int(v) => attributes::Literal::Int(v),
        Literal::Float(v) => attributes::Literal::Float(v),
        Literal::Text(v) => attributes::Literal::Text(v),
        Literal::List(items) => {
            let deeper = depth.checked_sub(1).ok_or_else(|| {
                let expected = format!("at most {MAX_LITERAL_DEPTH} nested lists");
                Error::of(ErrorKind::Format, "literal", expected, "more")
            })?;
            let items = items.into_iter().map(|item| read_literal(item, deeper));
            attributes::Literal::List(items.collect::<Result<_>>()?)
        }
    })
}

pub(crate) fn stored_attributes(attributes: &Attributes) -> BTreeMap<String, Literal> {
    attributes.iter().map(|(name, literal)| (name.to_owned(), literal.into())).collect()
}

pub(crate) fn read_attributes(stored: BTreeMap<String, Literal>) -> Result<Attributes> {
    let mut attributes = Attributes::new();
    for (name, literal) in stored {
        attributes.set(&name, read_literal(literal, MAX_LITERAL_DEPTH)?);
    }
    Ok(attributes)
}

impl From<&program::Block> for Block {
    fn from(block: &program::Block) -> Self {
        Self { parent: block.parent.map(|id| id.0), ops: all(&block.ops) }
    }
}

impl TryFrom<Block> for program::Block {
    type Error = Error;

    fn try_from(stored: Block) -> Result<Self> {
        Ok(Self { parent: stored.parent.map(BlockId), ops: checked(stored.ops)? })
    }
}

impl From<&OpDesc> for Operator {
    fn from(op: &OpDesc) -> Self {
        Self {
            kind: op.kind.clone(),
            role: NamedEntry(op.role),
            inputs: all(&op.inputs),
            outputs: all(&op.outputs),
            attributes: stored_attributes(&op.attributes),
            step: op.step.as_deref().map(|step| Box::new(step.into())),
            caller: op.caller.clone(),
        }
    }
}

impl TryFrom<Operator> for OpDesc {
    type Error = Error;

    fn try_from(stored: Operator) -> Result<Self> {
        Ok(Self {
            kind: stored.kind,
            role: stored.role.0,
            inputs: each(stored.inputs),
            outputs: each(stored.outputs),
            attributes: read_attributes(stored.attributes)?,
            step: stored.step.map(|step| Box::new((*step).into())),
            caller: stored.caller,
        })
    }
}

impl From<&SlotVars> for Slot {
    fn from(bound: &SlotVars) -> Self {
        Self { name: bound.slot.clone(), variables: all(&bound.vars) }
    }
}

impl From<Slot> for SlotVars {
    fn from(stored: Slot) -> Self {
        Self { slot: stored.name, vars: stored.variables.into_iter().map(VarId).collect() }
    }
}

impl From<&op_desc::VarPair> for Pair {
    fn from(pair: &op_desc::VarPair) -> Self {
        Self { outer: pair.outer.0, inner: pair.inner.0 }
    }
}

impl From<Pair> for op_desc::VarPair {
    fn from(stored: Pair) -> Self {
        Self { outer: VarId(stored.outer), inner: VarId(stored.inner) }
    }
}

impl From<&op_desc::Memory> for Memory {
    fn from(memory: &op_desc::Memory) -> Self {
        Self {
            previous: memory.previous.0,
            next: memory.next.0,
            initial: memory.initial.map(|id| id.0),
            last: memory.last.map(|id| id.0),
        }
    }
}

impl From<Memory> for op_desc::Memory {
    fn from(stored: Memory) -> Self {
        Self {
            previous: VarId(stored.previous),
            next: VarId(stored.next),
            initial: stored.initial.map(VarId),
            last: stored.last.map(VarId),
        }
    }
}

impl From<&StepDesc> for Step {
    fn from(step: &StepDesc) -> Self {
        Self {
            block: step.block.0,
            level: step.level.0,
            reverse: step.reverse,
            inputs: all(&step.inputs),
            statics: all(&step.statics),
            memories: all(&step.memories),
            outputs: all(&step.outputs),
            levels: step
                .levels
                .iter()
                .map(|(outer, inner)| Pair { outer: outer.0, inner: inner.0 })
                .collect(),
            gradient: step.gradient.as_deref().map(|gradient| Box::new(gradient.into())),
        }
    }
}

impl From<Step> for StepDesc {
    fn from(stored: Step) -> Self {
        let levels = stored.levels.into_iter().map(|pair| (LevelId(pair.outer), LevelId(pair.inner)));
        Self {
            block: BlockId(stored.block),
            level: LevelId(stored.level),
            reverse: stored.reverse,
            inputs: each(stored.inputs),
            statics: each(stored.statics),
            memories: each(stored.memories),
            outputs: each(stored.outputs),
            levels: levels.collect(),
            gradient: stored.gradient.map(|gradient| Box::new((*gradient).into())),
        }
    }
}

impl From<&op_desc::StepGradient> for StepGradient {
    fn from(gradient: &op_desc::StepGradient) -> Self {
        Self {
            block: gradient.block.0,
            outputs: all(&gradient.outputs),
            inputs: all(&gradient.inputs),
            statics: all(&gradient.statics),
            constants: all(&gradient.constants),
            memories: all(&gradient.memories),
        }
    }
}

impl From<StepGradient> for op_desc::StepGradient {
    fn from(stored: StepGradient) -> Self {
        Self {
            block: BlockId(stored.block),
            outputs: each(stored.outputs),
            inputs: each(stored.inputs),
            statics: each(stored.statics),
            constants: stored.constants.into_iter().map(VarId).collect(),
            memories: each(stored.memories),
        }
    }
}

impl From<&op_desc::MemoryGradient> for MemoryGradient {
    fn from(gradient: &op_desc::MemoryGradient) -> Self {
        Self {
            memory: gradient.memory,
            previous: gradient.previous.map(|id| id.0),
            next: gradient.next.0,
            last: gradient.last.map(|id| id.0),
            initial: gradient.initial.map(|id| id.0),
        }
    }
}

impl From<MemoryGradient> for op_desc::MemoryGradient {
    fn from(stored: MemoryGradient) -> Self {
        Self {
            memory: stored.memory,
            previous: stored.previous.map(VarId),
            next: VarId(stored.next),
            last: stored.last.map(VarId),
            initial: stored.initial.map(VarId),
        }
    }
}
