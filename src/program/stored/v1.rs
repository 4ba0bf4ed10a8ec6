//! How version 1 of the file format has a program: what serde and bincode made of structs, by the order of their fields. It is
//! only read, and never changes.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{DeserializeSeed, EnumAccess, Error, SeqAccess, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::MAX_LITERAL_DEPTH;
use crate::program::description::op_desc::Role;
use crate::program::description::var_desc::VarRole;
use crate::tensor::{DType, StorageKind};
use crate::wire::InFiles;
use crate::wire::record::Named;

/// What a later version has in the place of a value.
trait Later<T> {
    fn later(self) -> T;
}

macro_rules! same {
    ($($type:ty),*) => {
        $(impl Later<$type> for $type {
            fn later(self) -> $type {
                self
            }
        })*
    };
}
same!(u32, u64, bool, String);

macro_rules! by_name {
    ($($type:ty),*) => {
        $(impl Later<Named<$type>> for $type {
            fn later(self) -> Named<$type> {
                Named(self)
            }
        })*
    };
}
by_name!(DType, StorageKind, Role, VarRole);

impl<A: Later<B>, B> Later<Vec<B>> for Vec<A> {
    fn later(self) -> Vec<B> {
        self.into_iter().map(A::later).collect()
    }
}

impl<A: Later<B>, B> Later<Option<B>> for Option<A> {
    fn later(self) -> Option<B> {
        self.map(A::later)
    }
}

impl<A: Later<B>, B> Later<Box<B>> for Box<A> {
    fn later(self) -> Box<B> {
        Box::new((*self).later())
    }
}

impl<A: Later<B>, B> Later<BTreeMap<String, B>> for BTreeMap<String, A> {
    fn later(self) -> BTreeMap<String, B> {
        self.into_iter().map(|(name, value)| (name, value.later())).collect()
    }
}

/// Structs with the fields of version 1 in its order, which are all that theirs of the same name have now.
macro_rules! structs {
    ($($name:ident { $($field:ident: $type:ty),* })*) => {
        $(
            #[derive(Deserialize)]
            pub(crate) struct $name {
                $($field: $type,)*
            }

            impl Later<super::$name> for $name {
                fn later(self) -> super::$name {
                    super::$name { $($field: self.$field.later(),)* }
                }
            }
        )*
    };
}

structs! {
    StoredProgram { variables: Vec<Variable>, blocks: Vec<Block>, levels: u32, seed: u64 }
    Variable {
        name: String, block: u32, kind: Kind, role: VarRole, persistable: bool, trainable: bool, stop_gradient: bool,
        initializer: Option<Initializer>, gradient_of: Option<u32>
    }
    Spec { dtype: DType, shape: Vec<Extent>, lod: Vec<u32>, storage: StorageKind }
    Initializer { kind: String, attributes: BTreeMap<String, Literal> }
    Block { parent: Option<u32>, ops: Vec<Operator> }
    Operator {
        kind: String, role: Role, inputs: Vec<Slot>, outputs: Vec<Slot>, attributes: BTreeMap<String, Literal>,
        step: Option<Box<Step>>, caller: String
    }
    Slot { name: String, variables: Vec<u32> }
    Pair { outer: u32, inner: u32 }
    Memory { previous: u32, next: u32, initial: Option<u32>, last: Option<u32> }
    Step {
        block: u32, level: u32, reverse: bool, inputs: Vec<Pair>, statics: Vec<Pair>, memories: Vec<Memory>,
        outputs: Vec<Pair>, levels: Vec<Pair>, gradient: Option<Box<StepGradient>>
    }
    StepGradient {
        block: u32, outputs: Vec<Pair>, inputs: Vec<Pair>, statics: Vec<Pair>, constants: Vec<u32>,
        memories: Vec<MemoryGradient>
    }
    MemoryGradient { memory: u32, previous: Option<u32>, next: u32, last: Option<u32>, initial: Option<u32> }
}

impl InFiles for super::StoredProgram {
    type Version1 = StoredProgram;
}

impl From<StoredProgram> for super::StoredProgram {
    fn from(old: StoredProgram) -> Self {
        old.later()
    }
}

#[derive(Deserialize)]
enum Kind {
    Tensor(Spec),
    Literal(Literal),
}

#[derive(Deserialize)]
enum Extent {
    Known(u64),
    Batch,
    Rows(u32),
    Alive(u32),
    Data(u32),
}

impl Later<super::Kind> for Kind {
    fn later(self) -> super::Kind {
        match self {
            Kind::Tensor(spec) => super::Kind::Tensor(spec.later()),
            Kind::Literal(literal) => super::Kind::Literal(literal.0),
        }
    }
}

impl Later<super::Extent> for Extent {
    fn later(self) -> super::Extent {
        match self {
            Extent::Known(n) => super::Extent::Known(n),
            Extent::Batch => super::Extent::Batch(()),
            Extent::Rows(level) => super::Extent::Rows(level),
            Extent::Alive(block) => super::Extent::Alive(block),
            Extent::Data(id) => super::Extent::Data(id),
        }
    }
}

/// A literal.
struct Literal(super::Literal);

impl Later<super::Literal> for Literal {
    fn later(self) -> super::Literal {
        self.0
    }
}

const VARIANTS: [&str; 5] = ["Bool", "Int", "Float", "Text", "List"];

/// To 16 lists in each other: what is deeper is an error, not an overflow of the stack.
impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Nested(MAX_LITERAL_DEPTH).deserialize(deserializer).map(Literal)
    }
}

/// A literal with so many lists in each other at most.
#[derive(Clone, Copy)]
struct Nested(usize);

impl<'de> DeserializeSeed<'de> for Nested {
    type Value = super::Literal;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<super::Literal, D::Error> {
        deserializer.deserialize_enum("Literal", &VARIANTS, self)
    }
}

impl<'de> Visitor<'de> for Nested {
    type Value = super::Literal;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a literal")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<super::Literal, A::Error> {
        let (variant, value) = data.variant::<Variant>()?;
        Ok(match variant {
            Variant::Bool => super::Literal::Bool(value.newtype_variant()?),
            Variant::Int => super::Literal::Int(value.newtype_variant()?),
            Variant::Float => super::Literal::Float(value.newtype_variant()?),
            Variant::Text => super::Literal::Text(value.newtype_variant()?),
            Variant::List => {
                let depth = self.0.checked_sub(1).ok_or_else(|| {
                    A::Error::custom(format!("lists nested deeper than {MAX_LITERAL_DEPTH}"))
                })?;
                super::Literal::List(value.newtype_variant_seed(Items(depth))?)
            }
        })
    }
}

#[derive(Deserialize)]
enum Variant {
    Bool,
    Int,
    Float,
    Text,
    List,
}

/// The items of a list.
struct Items(usize);

impl<'de> DeserializeSeed<'de> for Items {
    type Value = Vec<super::Literal>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<super::Literal>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<super::Literal>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of literals")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<super::Literal>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Nested(self.0))? {
            list.push(item);
        }
        Ok(list)
    }
}
