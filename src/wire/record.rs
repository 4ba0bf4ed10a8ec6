//! Records: the encoding of the structured sections of files. A record is a list of numbered fields, so that a later
//! release can add a field.
//!
//! ```text
//! record  = field...        each field at most once
//! field   = number u8 | length u32 | value
//! list    = item...         item = length u32 | value
//! variant = one field, whose number is the number of the variant
//! map     = list of records, in ascending order of names: field 1 is the name, field 2 is the value
//! value   = a number or bool as bincode encodes it (the bytes, little-endian), a text in UTF-8, a list, a record,
//!           a variant, or a map
//! ```
//!
//! A reader skips fields with unknown numbers, which are from a later release. A field that is missing in a file gets
//! its default value; if the field has no default, the missing field is an error. A later release may add a field if
//! the default of the field keeps the meaning of old files. A later release must not change the type of a field or
//! reuse a number. Fields are written in the order of their numbers, so equal values are encoded to equal bytes.
//!
//! A reader does not trust its input. Each length is checked against the remaining bytes of the enclosing value.
//! Memory is allocated piece by piece while bytes are read, and the nesting depth of values is limited.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Read};
use std::str::FromStr;

use super::encoding::{number, put_number};
use crate::error::{Error, ErrorKind, Result};
use crate::reserve;

/// Maximum nesting depth of values. The record of a program has a depth of about ten. Each level of lists in a literal
/// adds two levels, up to twice the maximum depth of literals.
const DEEPEST: u32 = 64;

/// Maximum number of bytes that are read at once into a growing buffer.
const PIECE: usize = 1 << 16;

/// A type of values that a field of a record can have.
pub(crate) trait FieldType: Sized {
    /// Appends the encoding of the value to `out`.
    fn put(&self, out: &mut Vec<u8>);

    /// Decodes a value from all remaining bytes of the source.
    ///
    /// # Errors
    /// Fails if the bytes do not encode a value of this type.
    fn get(from: &mut Source<'_>) -> Result<Self>;

    fn put_field(&self, number: u8, out: &mut Vec<u8>) {
        out.push(number);
        put_item(self, out);
    }

    /// Returns the value for a field that is missing in a record; `None` if a missing field is an error.
    fn missing() -> Option<Self> {
        None
    }
}

/// Appends the length of the encoding of a value to `out`, then the encoding.
fn put_item<T: FieldType>(value: &T, out: &mut Vec<u8>) {
    behind_length(out, |out| value.put(out));
}

/// Appends to `out` the number of bytes that `put` appends, then these bytes.
fn behind_length(out: &mut Vec<u8>, put: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put(out);
    // A value of more than 4 GiB gets a wrong length here. The callers refuse to write such large records.
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&length.to_le_bytes());
}

pub(crate) fn to_bytes<T: FieldType>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    value.put(&mut out);
    out
}

/// Decodes a value; bytes behind the value are an error.
///
/// # Errors
/// Fails if the bytes do not encode a value of this type.
pub(crate) fn from_bytes<T: FieldType>(mut bytes: &[u8]) -> Result<T> {
    let left = bytes.len() as u64;
    from_read(&mut bytes, left)
}

/// Decodes a value from the next `left` bytes of a reader.
///
/// # Errors
/// Fails if the bytes do not encode a value of this type, or cannot be read.
pub(crate) fn from_read<T: FieldType>(input: &mut dyn Read, left: u64) -> Result<T> {
    let mut source = Source { input, left, depth: DEEPEST };
    let value = T::get(&mut source)?;
    source.end()?;
    Ok(value)
}

/// Returns the error for bytes that do not encode the expected value.
pub(crate) fn wrong(expected: impl Into<String>, got: impl Into<String>) -> Error {
    Error::of(ErrorKind::Format, "stored value", expected, got)
}

/// The encoding of a value, which is read piece by piece from a reader.
pub(crate) struct Source<'a> {
    input: &'a mut dyn Read,
    /// The number of bytes of the value that are not read yet.
    left: u64,
    /// The number of nesting levels that are still allowed.
    depth: u32,
}

impl Source<'_> {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<()> {
        let n = bytes.len() as u64;
        if n > self.left {
            return Err(wrong(format!("{n} more bytes"), self.left.to_string()));
        }
        let failed = |e: io::Error| Error::io("stored value", "read", &e);
        self.input.read_exact(bytes).map_err(failed)?;
        self.left -= n;
        Ok(())
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    /// Reads the remaining bytes of the value; memory is allocated piece by piece.
    fn rest(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        while self.left > 0 {
            let start = bytes.len();
            let more = usize::try_from(self.left).unwrap_or(PIECE).min(PIECE);
            reserve::items(&mut bytes, more, "stored value")?;
            bytes.resize(start + more, 0);
            self.fill(&mut bytes[start..])?;
        }
        Ok(bytes)
    }

    /// Returns the number of bytes of the value that are not read yet.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// Reads the number of the next field of a record; `None` after the last field.
    pub(crate) fn field(&mut self) -> Result<Option<u8>> {
        if self.left == 0 {
            return Ok(None);
        }
        match self.take()? {
            [0] => Err(wrong("the number of a field, from 1 on", "0")),
            [number] => Ok(Some(number)),
        }
    }

    /// Reads the length of a value, then decodes the value. The value is an item of a list, or belongs to a field
    /// whose number was already read.
    pub(crate) fn item<T: FieldType>(&mut self) -> Result<T> {
        let length = self.length()?;
        let Some(depth) = self.depth.checked_sub(1) else {
            return Err(wrong(format!("at most {DEEPEST} nested values"), "more"));
        };
        let mut inner = Source { input: &mut *self.input, left: length, depth };
        let value = T::get(&mut inner)?;
        inner.end()?;
        self.left -= length;
        Ok(value)
    }

    /// Skips the value of a field with an unknown number, which is from a later release.
    pub(crate) fn skip(&mut self) -> Result<()> {
        let mut left = self.length()?;
        let mut piece = [0; 256];
        while left > 0 {
            let n = usize::try_from(left).unwrap_or(piece.len()).min(piece.len());
            self.fill(&mut piece[..n])?;
            left -= n as u64;
        }
        Ok(())
    }

    /// Reads the length of a value; an error if fewer bytes remain in the enclosing value.
    fn length(&mut self) -> Result<u64> {
        let length = u64::from(u32::from_le_bytes(self.take()?));
        if length > self.left {
            return Err(wrong(format!("at most the {} bytes that are left", self.left), length.to_string()));
        }
        Ok(length)
    }

    /// Decodes the value of a field into `slot`; fails if the field occurred before. The error calls the field
    /// `what`.
    pub(crate) fn once<T: FieldType>(&mut self, slot: &mut Option<T>, what: &str) -> Result<()> {
        match slot.replace(self.item().map_err(|e| e.noted(format!("in {what}")))?) {
            None => Ok(()),
            Some(_) => Err(wrong(format!("{what} once"), format!("{what} twice"))),
        }
    }

    fn end(&self) -> Result<()> {
        if self.left == 0 {
            return Ok(());
        }
        Err(wrong("a value and nothing behind it", format!("{} more bytes", self.left)))
    }
}

/// The value of an enum variant without fields, which is encoded as no bytes.
impl FieldType for () {
    fn put(&self, _: &mut Vec<u8>) {}

    fn get(_: &mut Source<'_>) -> Result<Self> {
        Ok(())
    }
}

macro_rules! numbers {
    ($($type:ty)*) => {
        $(impl FieldType for $type {
            fn put(&self, out: &mut Vec<u8>) {
                put_number(*self, out);
            }

            fn get(from: &mut Source<'_>) -> Result<Self> {
                number(&from.take::<{ size_of::<$type>() }>()?)
            }
        })*
    };
}
numbers!(u32 u64 i64 f64);

impl FieldType for bool {
    fn put(&self, out: &mut Vec<u8>) {
        put_number(*self, out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        match from.take()? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(wrong("0 or 1", other.to_string())),
        }
    }
}

impl FieldType for String {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_bytes());
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        String::from_utf8(from.rest()?).map_err(|_| wrong("text", "bytes that are no UTF-8"))
    }
}

impl<T: FieldType> FieldType for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|item| put_item(item, out));
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        let mut items = Vec::new();
        while from.left > 0 {
            items.push(from.item()?);
        }
        Ok(items)
    }
}

impl<T: FieldType> FieldType for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        (**self).put(out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        T::get(from).map(Box::new)
    }
}

/// An optional field: the value `None` is not written, and a field that is missing in a record is `None`.
impl<T: FieldType> FieldType for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put(out));
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        T::get(from).map(Some)
    }

    fn put_field(&self, number: u8, out: &mut Vec<u8>) {
        self.iter().for_each(|value| value.put_field(number, out));
    }

    fn missing() -> Option<Self> {
        Some(None)
    }
}

impl<T: FieldType> FieldType for BTreeMap<String, T> {
    fn put(&self, out: &mut Vec<u8>) {
        for (name, value) in self {
            behind_length(out, |out| {
                name.put_field(NAME, out);
                value.put_field(VALUE, out);
            });
        }
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        let mut all = Self::new();
        while from.left > 0 {
            let Entry { name, value } = from.item()?;
            if all.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(wrong("names in ascending order", format!("`{name}` after another name")));
            }
            all.insert(name, value);
        }
        Ok(all)
    }
}

const NAME: u8 = 1;
const VALUE: u8 = 2;

/// The name and the value of an entry of a map, while the map is decoded.
struct Entry<T> {
    name: String,
    value: T,
}

impl<T: FieldType> FieldType for Entry<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.name.put_field(NAME, out);
        self.value.put_field(VALUE, out);
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        let (mut name, mut value) = (None, None);
        while let Some(number) = from.field()? {
            match number {
                NAME => from.once(&mut name, "the name of an entry")?,
                VALUE => from.once(&mut value, "the value of an entry")?,
                _ => from.skip()?,
            }
        }
        match (name, value) {
            (Some(name), Some(value)) => Ok(Self { name, value }),
            _ => Err(wrong("a name and a value", "an entry without name or value")),
        }
    }
}

/// A value of an enum with named variants, which is encoded as the name of the variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NamedEntry<T>(pub(crate) T);

impl<T: Display + FromStr<Err = Error>> FieldType for NamedEntry<T> {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.0.to_string().as_bytes());
    }

    fn get(from: &mut Source<'_>) -> Result<Self> {
        let name = String::get(from)?;
        name.parse()
            .map(NamedEntry)
            .map_err(|e: Error| wrong("a name that this release knows", format!("{e:#}")))
    }
}

/// Declares a struct that is stored as a record: each field has a number and, if a later release added the field, a
/// default.
macro_rules! record {
    ($(#[$meta:meta])* $vis:vis struct $name:ident {
        $($(#[$of_field:meta])* $number:literal $field:ident: $type:ty $(= $default:expr)?),* $(,)?
    }) => {
        $(#[$meta])*
        $vis struct $name {
            $($(#[$of_field])* $field: $type,)*
        }

        impl $crate::wire::record::FieldType for $name {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put_field($number, out);)*
            }

            fn get(from: &mut $crate::wire::record::Source<'_>) -> $crate::error::Result<Self> {
                $(let mut $field: Option<$type> = None;)*
                while let Some(number) = from.field()? {
                    match number {
                        $($number => from.once(&mut $field, concat!(stringify!($name), " ", stringify!($field)))?,)*
                        _ => from.skip()?,
                    }
                }
                Ok(Self {
                    $($field: match $field $(.or_else(|| Some($default)))? .or_else(<$type as $crate::wire::record::FieldType>::missing) {
                        Some(value) => value,
                        None => {
                            let expected = concat!("a field `", stringify!($field), "` of ", stringify!($name));
                            return Err($crate::wire::record::wrong(expected, "none"));
                        }
                    },)*
                })
            }
        }
    };
}

/// Declares an enum that is stored as a record with one field: the number of the field is the number of the variant.
macro_rules! variants {
    ($(#[$meta:meta])* $vis:vis enum $name:ident {
        $($(#[$of_variant:meta])* $number:literal $variant:ident($type:ty)),* $(,)?
    }) => {
        $(#[$meta])*
        $vis enum $name {
            $($(#[$of_variant])* $variant($type),)*
        }

        impl $crate::wire::record::FieldType for $name {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $(Self::$variant(value) => value.put_field($number, out),)*
                }
            }

            fn get(from: &mut $crate::wire::record::Source<'_>) -> $crate::error::Result<Self> {
                match from.field()? {
                    $(Some($number) => from.item().map(Self::$variant),)*
                    Some(other) => {
                        let expected = concat!("a ", stringify!($name), " that this release knows");
                        Err($crate::wire::record::wrong(expected, format!("number {other}")))
                    }
                    None => Err($crate::wire::record::wrong(concat!("a ", stringify!($name)), "nothing")),
                }
            }
        }
    };
}

pub(crate) use {record, variants};

#[cfg(test)]
mod tests;
