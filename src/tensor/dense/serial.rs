//! Serialization of dense tensors: the name of the dtype, the shape, then the numbers in row-major order. Large tensors
//! are read and written in pieces of bytes; no bit of a number is lost.

use std::fmt;

use half::{bf16, f16};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Data, Dense, elements, layout, reserved};
use crate::error::{AtCaller, Error, ErrorKind, Result};
use crate::tensor::dtype::with_element;
use crate::tensor::{DType, Element};

/// Maximum number of elements in a piece that is converted to or from bytes.
const PIECE: usize = 1 << 13;

impl Dense {
    /// Passes the numbers to `take` in row-major order, as little-endian bytes (a bool as 0 or 1), piece by piece.
    ///
    /// # Errors
    /// Fails with the first error of `take`.
    #[track_caller]
    pub fn write_numbers(&self, mut take: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        self.write_pieces(&mut take).at_caller()
    }

    #[track_caller]
    fn write_pieces(&self, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let mut bytes = Vec::new();
        with_element!(self.dtype(), T => {
            for piece in self.as_slice::<T>()?.chunks(PIECE) {
                bytes.clear();
                for &x in piece {
                    x.put(&mut bytes);
                }
                take(&bytes)?;
            }
            Ok(())
        })
    }

    /// Reads a tensor from the bytes that [`Self::write_numbers`] wrote; `fill` must fill the slice that it gets with
    /// the next bytes. Memory for all numbers is allocated at once, so the caller must first check that the file
    /// contains the bytes of all numbers.
    ///
    /// # Errors
    /// Fails if the shape is too large for memory, if the byte of a bool is neither 0 nor 1, or with the first error of
    /// `fill`.
    #[track_caller]
    pub fn read_numbers(
        dtype: DType,
        shape: &[usize],
        mut fill: impl FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        Self::read_pieces(dtype, shape, &mut fill).at_caller()
    }

    fn read_pieces(
        dtype: DType,
        shape: &[usize],
        fill: &mut dyn FnMut(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let n = elements(shape, dtype).at_caller()?;
        let mut bytes = vec![0; n.min(PIECE) * dtype.size_of()];
        with_element!(dtype, T => {
            let mut numbers: Vec<T> = reserved(n).at_caller()?;
            while numbers.len() < n {
                let piece = &mut bytes[..(n - numbers.len()).min(PIECE) * dtype.size_of()];
                fill(piece)?;
                for number in piece.chunks_exact(dtype.size_of()) {
                    let Some(number) = T::get(number) else {
                        let got = format!("{number:?}");
                        return Err(Error::of(ErrorKind::Format, format!("number of a {dtype}"), "0 or 1", got));
                    };
                    numbers.push(number);
                }
            }
            Self::from_vec(shape, numbers)
        })
    }
}

trait NumberBytes: Element {
    fn put(self, bytes: &mut Vec<u8>);
    /// Decodes a number; `None` if the bytes are not valid, such as the byte 2 for a bool.
    fn get(bytes: &[u8]) -> Option<Self>;
}

macro_rules! stored {
    ($($type:ty)*) => {
        $(impl NumberBytes for $type {
            fn put(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }

            fn get(bytes: &[u8]) -> Option<Self> {
                bytes.try_into().ok().map(Self::from_le_bytes)
            }
        })*
    };
}
stored!(f32 f64 i8 i16 i32 i64 f16 bf16);

impl NumberBytes for bool {
    fn put(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }

    fn get(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

/// A dense tensor is written as a tuple of the name of the dtype, the shape, and the numbers in row-major order.
impl Serialize for Dense {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut parts = serializer.serialize_tuple(3)?;
        parts.serialize_element(&self.dtype())?;
        parts.serialize_element(self.shape())?;
        macro_rules! numbers {
            ($($variant:ident)*) => {
                match &self.0 {
                    $(Data::$variant(array) => {
                        parts.serialize_element(array.as_slice().ok_or_else(|| S::Error::custom(layout()))?)
                    })*
                }
            };
        }
        numbers!(F32 F64 I8 I16 I32 I64 Bool F16 BF16)?;
        parts.end()
    }
}

/// [`Dense::from_vec`] checks the shape and the numbers that were read.
impl<'de> Deserialize<'de> for Dense {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple(3, DenseVisitor)
    }
}

struct DenseVisitor;

impl<'de> Visitor<'de> for DenseVisitor {
    type Value = Dense;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dtype, a shape and the numbers of a tensor")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Dense, A::Error> {
        fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
            index: usize,
            parts: &mut A,
        ) -> Result<T, A::Error> {
            parts.next_element()?.ok_or_else(|| A::Error::invalid_length(index, &DenseVisitor))
        }
        let dtype: DType = next(0, &mut parts)?;
        let shape: Vec<usize> = next(1, &mut parts)?;
        macro_rules! dense {
            ($($variant:ident as $type:ty),*) => {
                match dtype {
                    $(DType::$variant => Dense::from_vec::<$type>(&shape, next(2, &mut parts)?),)*
                }
            };
        }
        dense!(
            F32 as f32,
            F64 as f64,
            I8 as i8,
            I16 as i16,
            I32 as i32,
            I64 as i64,
            Bool as bool,
            F16 as f16,
            BF16 as bf16
        )
        .map_err(A::Error::custom)
    }
}
