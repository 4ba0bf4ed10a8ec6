//! Reading and writing of dense tensors: the dtype by name, the shape, then the numbers in row-major order.

use std::fmt;

use half::{bf16, f16};
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::ser::{Error as _, SerializeTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Data, Dense, layout};
use crate::tensor::DType;

/// As a tuple of the dtype's name, the shape and the numbers in row-major order.
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
        numbers!(F32 F64 I16 I32 I64 Bool F16 BF16)?;
        parts.end()
    }
}

/// Checked as [`Dense::from_vec`] checks.
impl<'de> Deserialize<'de> for Dense {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_tuple(3, Parts)
    }
}

struct Parts;

impl<'de> Visitor<'de> for Parts {
    type Value = Dense;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a dtype, a shape and the numbers of a tensor")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut parts: A) -> Result<Dense, A::Error> {
        fn next<'de, T: Deserialize<'de>, A: SeqAccess<'de>>(
            place: usize,
            parts: &mut A,
        ) -> Result<T, A::Error> {
            parts.next_element()?.ok_or_else(|| A::Error::invalid_length(place, &Parts))
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
