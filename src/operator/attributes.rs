//! Literals (constant values), and the named attributes of an operator.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::kernels::Transpose;
use crate::tensor::{DType, StorageKind};

/// A literal: a constant scalar, a constant string, or a list of literals.
#[derive(Debug, Clone, PartialEq)]
pub enum Literal {
    /// A truth value: `true` or `false`.
    Bool(bool),
    /// A whole number, as an `i64`.
    Int(i64),
    /// A real number, as an `f64`.
    Float(f64),
    /// A string of text.
    Text(String),
    /// A list of literals, in order.
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

    /// Returns the literal's kind and value, for a message; a value of more than 60 characters is truncated.
    pub(crate) fn shown(&self) -> String {
        const MOST: usize = 60;
        let value = self.to_string();
        match value.char_indices().nth(MOST) {
            Some((end, _)) => format!("{} ({}…)", self.kind(), &value[..end]),
            None => format!("{} ({value})", self.kind()),
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

/// A size over `i64::MAX` becomes `i64::MAX`, since a literal stores whole numbers as `i64`. No real size is that large.
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

/// The attributes of an operator, by name. Reading a missing attribute, or an attribute of the wrong type, is an error that names
/// the attribute.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Attributes(BTreeMap<String, Literal>);

impl Attributes {
    /// Returns an empty set of attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces an attribute and returns the attributes, so that calls can be chained.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Literal>) -> Self {
        self.set(name, value);
        self
    }

    /// Adds an attribute, or replaces the attribute of the same name.
    pub fn set(&mut self, name: &str, value: impl Into<Literal>) {
        self.0.insert(name.to_owned(), value.into());
    }

    /// Returns the attribute `name`; `None` if it is missing.
    pub fn get(&self, name: &str) -> Option<&Literal> {
        self.0.get(name)
    }

    /// Iterates over all attributes, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Literal)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v))
    }

    /// Returns whether the operator has no attributes.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A literal with a name for error messages: the name of the attribute, or of the input slot that the literal is bound to.
/// Reading the literal as a value of the wrong type is an error with this name.
///
/// ```
/// use unpadded::op::Attributes;
/// let attributes = Attributes::new().with("sizes", vec![2, 3]);
/// assert_eq!(attributes.sizes("sizes")?, [2, 3]);
/// let message = attributes.text("sizes").unwrap_err().to_string();
/// assert!(message.contains("attribute `sizes`: expected a string, got a list ([2, 3])"), "{message}");
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct LiteralRef<'a> {
    role: &'static str,
    name: &'a str,
    value: &'a Literal,
}

impl Deref for LiteralRef<'_> {
    type Target = Literal;

    fn deref(&self) -> &Literal {
        self.value
    }
}

impl<'a> LiteralRef<'a> {
    /// Returns the literal that is bound to the input slot `name`.
    pub(crate) fn input(name: &'a str, value: &'a Literal) -> Self {
        Self { role: "input", name, value }
    }

    /// Returns an error about the literal; `expected` names the values that the operator accepts, such as a range.
    #[track_caller]
    pub fn mismatch(self, expected: &str) -> Error {
        wrong(self.role, self.name, expected, self.value.shown())
    }

    #[track_caller]
    fn read<T>(self, expected: &str, read: impl FnOnce(&'a Literal) -> Option<T>) -> Result<T> {
        read(self.value).ok_or_else(|| self.mismatch(expected)).at_caller()
    }
}

#[track_caller]
fn wrong(role: &str, name: &str, expected: &str, got: String) -> Error {
    Error::of(ErrorKind::Program, format!("{role} `{name}`"), expected, got)
}

/// Defines two methods per type of value: a method of `LiteralRef`, and a method of `Attributes` that takes the attribute's name.
macro_rules! readers {
    ($($attribute:ident, $reader:ident -> $type:ty: $expected:literal, $read:expr;)*) => {
        impl<'a> LiteralRef<'a> {
            $(
                #[doc = concat!("Returns the literal as ", $expected, ".")]
                ///
                /// # Errors
                /// Fails if the literal has another type.
                #[track_caller]
                pub fn $reader(self) -> Result<$type> {
                    self.read($expected, $read).at_caller()
                }
            )*
        }

        impl Attributes {
            $(
                #[doc = concat!("Returns the attribute `name`, which is ", $expected, ".")]
                ///
                /// # Errors
                /// Fails if the attribute is missing or has another type.
                #[track_caller]
                #[allow(clippy::needless_lifetimes, reason = "what borrows from the attribute names it")]
                pub fn $attribute<'a>(&'a self, name: &str) -> Result<$type> {
                    let role = "attribute";
                    match self.0.get_key_value(name) {
                        Some((name, value)) => LiteralRef { role, name, value }.$reader().at_caller(),
                        None => Err(wrong(role, name, $expected, "nothing".to_owned())).at_caller(),
                    }
                }
            )*
        }
    };
}
readers! {
    bool, as_bool -> bool: "a truth value", truth;
    int, as_int -> i64: "a whole number", whole;
    size, as_size -> usize: "a whole number from 0", size;
    float, as_float -> f64: "a number", number;
    text, as_text -> &'a str: "a string", text;
    ints, as_ints -> Vec<i64>: "a list of whole numbers", |l| list(l, whole);
    sizes, as_sizes -> Vec<usize>: "a list of whole numbers from 0", |l| list(l, size);
    floats, as_floats -> Vec<f64>: "a list of numbers", |l| list(l, number);
    texts, as_texts -> Vec<&'a str>: "a list of strings", |l| list(l, text);
}

fn truth(literal: &Literal) -> Option<bool> {
    if let Literal::Bool(v) = literal { Some(*v) } else { None }
}

fn whole(literal: &Literal) -> Option<i64> {
    if let Literal::Int(v) = literal { Some(*v) } else { None }
}

fn size(literal: &Literal) -> Option<usize> {
    whole(literal).and_then(|v| usize::try_from(v).ok())
}

fn number(literal: &Literal) -> Option<f64> {
    match literal {
        Literal::Float(v) => Some(*v),
        Literal::Int(v) => Some(*v as f64),
        _ => None,
    }
}

fn text(literal: &Literal) -> Option<&str> {
    if let Literal::Text(v) = literal { Some(v) } else { None }
}

fn list<'a, T>(literal: &'a Literal, item: impl Fn(&'a Literal) -> Option<T>) -> Option<Vec<T>> {
    if let Literal::List(values) = literal { values.iter().map(item).collect() } else { None }
}

/// A type that an attribute of an operator can have. Its values are read from [`Attributes`] and written to
/// [`Attributes`].
pub trait Attribute: Sized {
    /// Reads a value from the attribute `name`.
    ///
    /// # Errors
    /// Fails if the attribute is missing, has another type or is out of range.
    #[track_caller]
    fn read(attributes: &Attributes, name: &str) -> Result<Self>;

    /// Writes the value to the attribute `name`.
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
attribute!(bool: bool, i64: int, usize: size, f64: float, String: text, Vec<f64>: floats, Vec<i64>: ints, Vec<usize>: sizes);

/// Implements `Attribute` for an enum: the attribute is a string with the name of the variant.
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

/// The attribute of a `Transpose` is a truth value. `Transpose::No` writes no attribute, and a missing attribute reads as
/// `Transpose::No`.
impl Attribute for Transpose {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        Ok(if or_default(attributes, name, false)? { Transpose::Yes } else { Transpose::No })
    }

    fn write(&self, attributes: &mut Attributes, name: &str) {
        if *self == Transpose::Yes {
            attributes.set(name, true);
        }
    }
}

/// An attribute of the type `Option` may be missing; a missing attribute reads as `None`.
impl<T: Attribute> Attribute for Option<T> {
    fn read(attributes: &Attributes, name: &str) -> Result<Self> {
        match attributes.get(name) {
            Some(_) => T::read(attributes, name).map(Some),
            None => Ok(None),
        }
    }

    fn write(&self, attributes: &mut Attributes, name: &str) {
        if let Some(value) = self {
            value.write(attributes, name);
        }
    }
}

/// Reads the attribute `name`; returns `default` if the attribute is missing.
///
/// # Errors
/// Fails if the attribute has the wrong type.
#[track_caller]
pub fn or_default<T: Attribute>(attributes: &Attributes, name: &str, default: T) -> Result<T> {
    Ok(Option::<T>::read(attributes, name).at_caller()?.unwrap_or(default))
}
