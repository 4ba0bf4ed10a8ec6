//! The conversions between values in memory and their stored forms: the [records](super::record) of files.

use crate::error::{Error, Result};
use crate::wire::record::NamedEntry;

/// The stored form of the values of a type `T`.
pub(crate) trait StoredForm<T>: Sized {
    /// Returns the stored form of a value.
    fn of(value: &T) -> Self;

    /// Returns the value that has this stored form.
    ///
    /// # Errors
    /// Fails if no value has this stored form.
    fn read(self) -> Result<T>;
}

/// Declares records whose fields are the stored forms of the fields of a struct with the same names. An expression behind `..`
/// has the values of the struct's fields that are not stored.
macro_rules! mirrors {
    ($($stored:ident of $($type:ident)::+ { $($field:ident),* $(, ..$others:expr)? })*) => {
        $(impl $crate::wire::stored::StoredForm<$($type)::+> for $stored {
            fn of(value: &$($type)::+) -> Self {
                Self { $($field: $crate::wire::stored::StoredForm::of(&value.$field)),* }
            }

            fn read(self) -> $crate::error::Result<$($type)::+> {
                Ok($($type)::+ { $($field: $crate::wire::stored::StoredForm::read(self.$field)?,)* $(..$others)? })
            }
        })*
    };
}

/// Declares types whose values are stored unchanged.
macro_rules! unchanged {
    ($($type:ty),*) => {
        $(impl $crate::wire::stored::StoredForm<$type> for $type {
            fn of(value: &$type) -> Self {
                value.clone()
            }

            fn read(self) -> $crate::error::Result<$type> {
                Ok(self)
            }
        })*
    };
}
unchanged!(bool, u32, u64, f64, String);

pub(crate) use {mirrors, unchanged};

impl StoredForm<usize> for u64 {
    fn of(number: &usize) -> Self {
        *number as u64
    }

    fn read(self) -> Result<usize> {
        let expected = || format!("at most {}, as this machine counts", usize::MAX);
        usize::try_from(self).map_err(|_| Error::new("number", expected(), self.to_string()))
    }
}

impl<T: Copy> StoredForm<T> for NamedEntry<T> {
    fn of(value: &T) -> Self {
        NamedEntry(*value)
    }

    fn read(self) -> Result<T> {
        Ok(self.0)
    }
}

impl<T, S: StoredForm<T>> StoredForm<Option<T>> for Option<S> {
    fn of(value: &Option<T>) -> Self {
        value.as_ref().map(S::of)
    }

    fn read(self) -> Result<Option<T>> {
        self.map(S::read).transpose()
    }
}

impl<T, S: StoredForm<T>> StoredForm<Box<T>> for Box<S> {
    fn of(value: &Box<T>) -> Self {
        Box::new(S::of(value))
    }

    fn read(self) -> Result<Box<T>> {
        (*self).read().map(Box::new)
    }
}

impl<T, S: StoredForm<T>> StoredForm<Vec<T>> for Vec<S> {
    fn of(values: &Vec<T>) -> Self {
        values.iter().map(S::of).collect()
    }

    fn read(self) -> Result<Vec<T>> {
        self.into_iter().map(S::read).collect()
    }
}
