//! Reading and writing of dense tensors: the shape, then the numbers in row-major order under the dtype's name.

use std::borrow::Cow;

use half::{bf16, f16};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::{Data, Dense, layout};

#[derive(Serialize, Deserialize)]
#[serde(rename = "Dense")]
struct Parts<'a> {
    shape: Cow<'a, [usize]>,
    numbers: Numbers<'a>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Numbers<'a> {
    F32(Cow<'a, [f32]>),
    F64(Cow<'a, [f64]>),
    I16(Cow<'a, [i16]>),
    I32(Cow<'a, [i32]>),
    I64(Cow<'a, [i64]>),
    Bool(Cow<'a, [bool]>),
    F16(Cow<'a, [f16]>),
    BF16(Cow<'a, [bf16]>),
}

/// As the shape and the numbers in row-major order, under the dtype's name.
impl Serialize for Dense {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        macro_rules! numbers {
            ($($variant:ident)*) => {
                match &self.0 {
                    $(Data::$variant(array) => array.as_slice().map(|x| Numbers::$variant(x.into())),)*
                }
            };
        }
        let numbers = numbers!(F32 F64 I16 I32 I64 Bool F16 BF16);
        let numbers = numbers.ok_or_else(|| serde::ser::Error::custom(layout()))?;
        Parts { shape: self.shape().into(), numbers }.serialize(serializer)
    }
}

/// Checked as [`Dense::from_vec`] checks.
impl<'de> Deserialize<'de> for Dense {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Parts { shape, numbers } = Parts::deserialize(deserializer)?;
        macro_rules! dense {
            ($($variant:ident)*) => {
                match numbers {
                    $(Numbers::$variant(numbers) => Dense::from_vec(&shape, numbers.into_owned()),)*
                }
            };
        }
        dense!(F32 F64 I16 I32 I64 Bool F16 BF16).map_err(serde::de::Error::custom)
    }
}
