//! How the parts of a program are stored where serde's derive would not do: roles by name, literals to a bounded
//! depth.

use std::fmt;

use serde::de::{DeserializeSeed, EnumAccess, Error, SeqAccess, VariantAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::program::description::op_desc::Role;
use crate::program::description::var_desc::VarRole;
use crate::program::spec::attributes::Literal;
use crate::tensor::named::named;

named!(Role, "role", Forward = "forward", Backward = "backward", Update = "update");

named!(
    VarRole,
    "role",
    Feed = "feed",
    Parameter = "parameter",
    State = "state",
    Computed = "computed",
    Step = "step",
    Literal = "literal",
    Carried = "carried",
);

/// How deep lists of lists may be in a program that is read.
pub(super) const MAX_LITERAL_DEPTH: usize = 16;

const VARIANTS: [&str; 5] = ["Bool", "Int", "Float", "Text", "List"];

/// To 16 lists in each other: what is deeper is an error, not an overflow of the stack.
impl<'de> Deserialize<'de> for Literal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Nested(MAX_LITERAL_DEPTH).deserialize(deserializer)
    }
}

/// A literal with so many lists in each other at most.
#[derive(Clone, Copy)]
struct Nested(usize);

impl<'de> DeserializeSeed<'de> for Nested {
    type Value = Literal;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Literal, D::Error> {
        deserializer.deserialize_enum("Literal", &VARIANTS, self)
    }
}

impl<'de> Visitor<'de> for Nested {
    type Value = Literal;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a literal")
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Literal, A::Error> {
        let (variant, value) = data.variant::<Variant>()?;
        Ok(match variant {
            Variant::Bool => Literal::Bool(value.newtype_variant()?),
            Variant::Int => Literal::Int(value.newtype_variant()?),
            Variant::Float => Literal::Float(value.newtype_variant()?),
            Variant::Text => Literal::Text(value.newtype_variant()?),
            Variant::List => {
                let depth = self.0.checked_sub(1).ok_or_else(|| {
                    A::Error::custom(format!("lists nested deeper than {MAX_LITERAL_DEPTH}"))
                })?;
                Literal::List(value.newtype_variant_seed(Items(depth))?)
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
    type Value = Vec<Literal>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Vec<Literal>, D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Items {
    type Value = Vec<Literal>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of literals")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<Literal>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Nested(self.0))? {
            list.push(item);
        }
        Ok(list)
    }
}
