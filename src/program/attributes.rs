//! Literal values, and the named attributes of an operator.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::tensor::{DType, StorageKind};

/// A scalar, a string, or a list of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Literal {
    /// A truth value.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A string.
    Text(String),
    /// Several values, in order.
    List(Vec<Literal>),
}

impl Literal {
    fn kind(&self) -> &'static str {
        match self {
            Literal::Bool(_) => "a truth value",
            Literal::Int(_) => "a whole number",
            Literal::Float(_) => "a number",
            Literal::Text(_) => "a string",
            Literal::List(_) => "a list",
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Literal::Bool(v) => write!(f, "{v}"),
            Literal::Int(v) => write!(f, "{v}"),
            Literal::Float(v) => write!(f, "{v:?}"),
            Literal::Text(v) => write!(f, "{v:?}"),
            Literal::List(v) => {
                let parts: Vec<String> = v.iter().map(Literal::to_string).collect();
                write!(f, "[{}]", parts.join(", "))
            }
        }
    }
}

macro_rules! literal_from {
    ($($type:ty => $variant:ident as $as:ty),*) => {$(
        impl From<$type> for Literal {
            fn from(value: $type) -> Self {
                Literal::$variant(value as $as)
            }
        }
    )*};
}
literal_from!(bool => Bool as bool, i64 => Int as i64, i32 => Int as i64, u32 => Int as i64,
    f64 => Float as f64, f32 => Float as f64);

/// Sizes beyond what files hold become the largest that they do: nothing is so large.
impl From<usize> for Literal {
    fn from(value: usize) -> Self {
        Literal::Int(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

impl From<&str> for Literal {
    fn from(value: &str) -> Self {
        Literal::Text(value.into())
    }
}

impl From<String> for Literal {
    fn from(value: String) -> Self {
        Literal::Text(value)
    }
}

impl<T: Into<Literal>> From<Vec<T>> for Literal {
    fn from(values: Vec<T>) -> Self {
        Literal::List(values.into_iter().map(Into::into).collect())
    }
}

/// The attributes of an operator by name. Reading one that is missing or of another type is an error that names it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Attributes(BTreeMap<String, Literal>);

impl Attributes {
    /// No attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one, for chaining.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Literal>) -> Self {
        self.set(name, value);
        self
    }

    /// Adds or replaces one.
    pub fn set(&mut self, name: &str, value: impl Into<Literal>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// One by name.
    pub fn get(&self, name: &str) -> Option<&Literal> {
        self.0.get(name)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Literal)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[track_caller]
    fn read<'a, T>(
        &'a self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&'a Literal) -> Option<T>,
    ) -> Result<T> {
        let wrong = |got: String| Error::of(ErrorKind::Program, format!("attribute `{name}`"), expected, got);
        let literal = self.0.get(name).ok_or_else(|| wrong("nothing".into())).at_caller()?;
        read(literal).ok_or_else(|| wrong(format!("{} ({literal})", literal.kind()))).at_caller()
    }

    /// A truth value.
    ///
    /// # Errors
    /// If it is missing or something else.
    #[track_caller]
    pub fn bool(&self, name: &str) -> Result<bool> {
        self.read(name, "a truth value", |l| if let Literal::Bool(v) = l { Some(*v) } else { None })
    }

    /// A whole number.
    ///
    /// # Errors
    /// If it is missing or something else.
    #[track_caller]
    pub fn int(&self, name: &str) -> Result<i64> {
        self.read(name, "a whole number", |l| if let Literal::Int(v) = l { Some(*v) } else { None })
    }

    /// A whole number that is not negative.
    ///
    /// # Errors
    /// If it is missing or something else.
    #[track_caller]
    pub fn size(&self, name: &str) -> Result<usize> {
        self.read(name, "a whole number from 0", |l| {
            if let Literal::Int(v) = l { usize::try_from(*v).ok() } else { None }
        })
    }

    /// A number.
    ///
    /// # Errors
    /// If it is missing or something else.
    #[track_caller]
    pub fn float(&self, name: &str) -> Result<f64> {
        self.read(name, "a number", |l| match l {
            Literal::Float(v) => Some(*v),
            Literal::Int(v) => Some(*v as f64),
            _ => None,
        })
    }

    /// A string.
    ///
    /// # Errors
    /// If it is missing or something else.
    #[track_caller]
    pub fn text(&self, name: &str) -> Result<&str> {
        self.read(name, "a string", |l| if let Literal::Text(v) = l { Some(v.as_str()) } else { None })
    }

    /// A list of numbers.
    ///
    /// # Errors
    /// If it is missing or something else.
    #[track_caller]
    pub fn floats(&self, name: &str) -> Result<Vec<f64>> {
        self.list(name, "a list of numbers", |l| match l {
            Literal::Float(v) => Some(*v),
            Literal::Int(v) => Some(*v as f64),
            _ => None,
        })
    }

    /// A list of whole numbers that are not negative.
    ///
    /// # Errors
    /// If it is missing or something else.
    #[track_caller]
    pub fn sizes(&self, name: &str) -> Result<Vec<usize>> {
        self.list(name, "a list of whole numbers from 0", |l| {
            if let Literal::Int(v) = l { usize::try_from(*v).ok() } else { None }
        })
    }

    #[track_caller]
    fn list<T>(&self, name: &str, expected: &str, item: impl Fn(&Literal) -> Option<T>) -> Result<Vec<T>> {
        self.read(name, expected, |l| {
            if let Literal::List(values) = l { values.iter().map(&item).collect() } else { None }
        })
    }
}

/// What a field of an operator can be: read from its attributes by name, and written among them.
pub trait Attribute: Sized {
    /// Reads it.
    ///
    /// # Errors
    /// If it is missing, of another type or out of range.
    #[track_caller]
    fn read(attributes: &Attributes, name: &str) -> Result<Self>;

    /// Writes it.
    fn write(&self, attributes: &mut Attributes, name: &str);
}

macro_rules! attribute {
    ($($type:ty: $read:ident),*) => {$(
        impl Attribute for $type {
            fn read(attributes: &Attributes, name: &str) -> Result<Self> {
                attributes.$read(name).map(Into::into)
            }

            fn write(&self, attributes: &mut Attributes, name: &str) {
                attributes.set(name, self.clone());
            }
        }
    )*};
}
attribute!(bool: bool, i64: int, usize: size, f64: float, String: text, Vec<f64>: floats, Vec<usize>: sizes);

/// By name.
macro_rules! named_attribute {
    ($($type:ty),*) => {$(
        impl Attribute for $type {
            fn read(attributes: &Attributes, name: &str) -> Result<Self> {
                attributes.text(name)?.parse()
            }

            fn write(&self, attributes: &mut Attributes, name: &str) {
                attributes.set(name, self.name());
            }
        }
    )*};
}
named_attribute!(DType, StorageKind);

/// One that may be missing.
impl<T: Attribute> Attribute for Option<T> {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        attributes.get(name).map(|_| T::read(attributes, name)).transpose()
    }

    fn write(&self, attributes: &mut Attributes, name: &str) {
        if let Some(value) = self {
            value.write(attributes, name);
        }
    }
}
