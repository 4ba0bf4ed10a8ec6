//! The file format of programs. The file format has its own structs, so that the types of programs can change while old files
//! stay readable.
//!
//! Each struct is the stored form of a type in [`crate::program`], with the same fields. Variables, blocks and levels are stored
//! by their numbers. Reading a stored program does not check it: [`Program::validate`] checks it.

mod renamed;

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
use crate::wire::stored::{StoredForm, mirrors};

/// The maximum nesting depth of lists in a literal of a stored program.
pub(super) const MAX_LITERAL_DEPTH: usize = 16;

record! {
    pub(crate) struct StoredProgram {
        1 vars: Vec<Variable>,
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
        1 slot: String,
        2 vars: Vec<u32>,
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

mirrors! {
    StoredProgram of Program { vars, blocks, levels, seed, unit, ..Program::default() }
    Variable of VarDesc {
        name, block, kind, role, persistable, trainable, stop_gradient, initializer, gradient_of
    }
    Initializer of var_desc::Initializer { kind, attributes }
    Operator of OpDesc { kind, role, inputs, outputs, attributes, step, caller }
    Slot of SlotVars { slot, vars }
    Pair of op_desc::VarPair { outer, inner }
    Memory of op_desc::Memory { previous, next, initial, last }
    Step of StepDesc { block, level, reverse, inputs, statics, memories, outputs, levels, gradient }
    StepGradient of op_desc::StepGradient { block, outputs, inputs, statics, constants, memories }
    MemoryGradient of op_desc::MemoryGradient { memory, previous, next, last, initial }
}

impl StoredForm<program::Block> for Block {
    fn of(block: &program::Block) -> Self {
        Self { parent: StoredForm::of(&block.parent), ops: StoredForm::of(&block.ops) }
    }

    fn read(self) -> Result<program::Block> {
        let ops: Vec<OpDesc> = self.ops.read()?;
        Ok(program::Block {
            parent: self.parent.read()?,
            ops: ops.into_iter().map(renamed::renamed).collect(),
        })
    }
}

macro_rules! ids {
    ($($type:ident),*) => {
        $(impl StoredForm<$type> for u32 {
            fn of(id: &$type) -> Self {
                id.0
            }

            fn read(self) -> Result<$type> {
                Ok($type(self))
            }
        })*
    };
}
ids!(VarId, BlockId, LevelId);

impl StoredForm<MatrixUnit> for Option<NamedEntry<MatrixUnit>> {
    fn of(unit: &MatrixUnit) -> Self {
        Some(*unit).filter(|&unit| unit != MatrixUnit::F32).map(NamedEntry)
    }

    fn read(self) -> Result<MatrixUnit> {
        Ok(self.map_or(MatrixUnit::F32, |NamedEntry(unit)| unit))
    }
}

impl StoredForm<(LevelId, LevelId)> for Pair {
    fn of((outer, inner): &(LevelId, LevelId)) -> Self {
        Self { outer: outer.0, inner: inner.0 }
    }

    fn read(self) -> Result<(LevelId, LevelId)> {
        Ok((LevelId(self.outer), LevelId(self.inner)))
    }
}

impl StoredForm<VarKind> for Kind {
    fn of(kind: &VarKind) -> Self {
        match kind {
            VarKind::Tensor(spec) => Kind::Tensor(StoredForm::of(spec)),
            VarKind::Literal(literal) => Kind::Literal(StoredForm::of(literal)),
        }
    }

    fn read(self) -> Result<VarKind> {
        Ok(match self {
            Kind::Tensor(spec) => VarKind::Tensor(spec.read()?),
            Kind::Literal(literal) => VarKind::Literal(literal.read()?),
        })
    }
}

impl StoredForm<extent::Spec> for Spec {
    fn of(spec: &extent::Spec) -> Self {
        Self {
            dtype: NamedEntry(spec.dtype),
            shape: spec.shape.iter().map(StoredForm::of).collect(),
            lod: spec.lod.iter().map(StoredForm::of).collect(),
            storage: NamedEntry(spec.storage),
        }
    }

    fn read(self) -> Result<extent::Spec> {
        let (mut shape, mut lod) = (Shape::new(), Levels::new());
        let many = |what: &str, most: usize| Error::new(what, format!("at most {most}"), "more");
        for extent in self.shape {
            shape.try_push(extent.read()?).map_err(|_| many("dimensions", extent::MAX_RANK))?;
        }
        for level in self.lod {
            lod.try_push(LevelId(level)).map_err(|_| many("levels", extent::MAX_LEVELS))?;
        }
        Ok(extent::Spec { dtype: self.dtype.0, shape, lod, storage: self.storage.0 })
    }
}

impl StoredForm<extent::Extent> for Extent {
    fn of(extent: &extent::Extent) -> Self {
        match *extent {
            extent::Extent::Known(n) => Extent::Known(n as u64),
            extent::Extent::Batch => Extent::Batch(()),
            extent::Extent::Rows(level) => Extent::Rows(level.0),
            extent::Extent::Alive(block) => Extent::Alive(block.0),
            extent::Extent::Data(id) => Extent::Data(id),
        }
    }

    fn read(self) -> Result<extent::Extent> {
        Ok(match self {
            Extent::Known(n) => extent::Extent::Known(n.read()?),
            Extent::Batch(()) => extent::Extent::Batch,
            Extent::Rows(level) => extent::Extent::Rows(LevelId(level)),
            Extent::Alive(block) => extent::Extent::Alive(BlockId(block)),
            Extent::Data(id) => extent::Extent::Data(id),
        })
    }
}

impl StoredForm<attributes::Literal> for Literal {
    fn of(literal: &attributes::Literal) -> Self {
        match literal {
            attributes::Literal::Bool(v) => Literal::Bool(*v),
            attributes::Literal::Int(v) => Literal::Int(*v),
            attributes::Literal::Float(v) => Literal::Float(*v),
            attributes::Literal::Text(v) => Literal::Text(v.clone()),
            attributes::Literal::List(v) => Literal::List(StoredForm::of(v)),
        }
    }

    fn read(self) -> Result<attributes::Literal> {
        read_literal(self, MAX_LITERAL_DEPTH)
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

impl StoredForm<Attributes> for BTreeMap<String, Literal> {
    fn of(attributes: &Attributes) -> Self {
        attributes.iter().map(|(name, literal)| (name.to_owned(), StoredForm::of(literal))).collect()
    }

    fn read(self) -> Result<Attributes> {
        let mut attributes = Attributes::new();
        for (name, literal) in self {
            attributes.set(&name, literal.read()?);
        }
        Ok(attributes)
    }
}
