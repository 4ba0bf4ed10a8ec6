//! The dtypes, and the trait of the Rust types that have a dtype.

use std::fmt;

use half::{bf16, f16};

use crate::tensor::named::{named, stored_by_name};

/// The type of the numbers of a tensor.
///
/// ```
/// use unpadded::DType;
/// assert_eq!("bf16".parse::<DType>()?, DType::BF16);
/// assert_eq!(DType::I64.to_string(), "i64");
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// 32-bit float.
    F32,
    /// 64-bit float.
    F64,
    /// 8-bit signed integer, the dtype of the weights of a [quantized](crate::checkpoint::Checkpoint::quantize) model.
    I8,
    /// 16-bit signed integer.
    I16,
    /// 32-bit signed integer.
    I32,
    /// 64-bit signed integer, the dtype of ids and row numbers.
    I64,
    /// True or false.
    Bool,
    /// 16-bit float of IEEE 754, with 5 bits of exponent.
    F16,
    /// 16-bit float with the exponent of an `f32`.
    BF16,
}

named!(
    DType,
    "dtype",
    F32 = "f32",
    F64 = "f64",
    I8 = "i8",
    I16 = "i16",
    I32 = "i32",
    I64 = "i64",
    Bool = "bool",
    F16 = "f16",
    BF16 = "bf16",
);
stored_by_name!(DType);

impl DType {
    /// Returns the size in bytes of one number.
    pub const fn size_of(self) -> usize {
        match self {
            Self::F64 | Self::I64 => 8,
            Self::F32 | Self::I32 => 4,
            Self::F16 | Self::BF16 | Self::I16 => 2,
            Self::I8 | Self::Bool => 1,
        }
    }

    /// Returns whether this dtype is a float type. Only tensors of floats can have a gradient.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F64 | Self::F16 | Self::BF16)
    }
}

/// A Rust type of numbers that a tensor can store. Only the Rust types of the [`DType`]s implement this trait.
pub trait Element: sealed::Sealed + Copy + Send + Sync + Default + fmt::Debug + PartialEq + 'static {
    /// The dtype of tensors with numbers of this type.
    const DTYPE: DType;
}

/// The intermediate form of a number that is converted from one dtype to another dtype. Every number of every dtype
/// fits one of the two variants without loss.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub(crate) enum Number {
    Integer(i64),
    Float(f64),
}

pub(crate) mod sealed {
    use ndarray::ArrayD;

    use super::Number;
    use crate::tensor::dense::Data;

    /// The operations on numbers that the storages need; users of the crate cannot call these operations.
    #[allow(unreachable_pub, private_interfaces)]
    pub trait Sealed: Sized {
        /// The type of partial sums: `f32` for 16-bit floats, else the type itself.
        #[doc(hidden)]
        type Sum: Copy;
        #[doc(hidden)]
        fn summand(self) -> Self::Sum;
        #[doc(hidden)]
        fn add(sum: Self::Sum, x: Self) -> Self::Sum;
        #[doc(hidden)]
        fn plus(a: Self::Sum, b: Self::Sum) -> Self::Sum;
        #[doc(hidden)]
        fn minus(a: Self::Sum, b: Self::Sum) -> Self::Sum;
        #[doc(hidden)]
        fn times(a: Self::Sum, b: Self::Sum) -> Self::Sum;
        #[doc(hidden)]
        fn narrow(sum: Self::Sum) -> Self;
        #[doc(hidden)]
        fn bits(self) -> u64;
        #[doc(hidden)]
        fn number(self) -> Number;
        #[doc(hidden)]
        fn from_number(number: Number) -> Self;
        #[doc(hidden)]
        fn wrap(array: ArrayD<Self>) -> Data;
        #[doc(hidden)]
        fn unwrap(data: Data) -> Result<ArrayD<Self>, Data>;
        #[doc(hidden)]
        fn get(data: &Data) -> Option<&ArrayD<Self>>;
        #[doc(hidden)]
        fn get_mut(data: &mut Data) -> Option<&mut ArrayD<Self>>;
    }
}

macro_rules! element {
    ($t:ty, $variant:ident, $sum:ty, $widen:expr, $add:expr, $minus:expr, $times:expr, $narrow:expr, $bits:expr,
     $number:expr, $integer:expr, $float:expr) => {
        impl Element for $t {
            const DTYPE: DType = DType::$variant;
        }

        #[allow(private_interfaces)]
        impl sealed::Sealed for $t {
            type Sum = $sum;
            fn summand(self) -> $sum {
                $widen(self)
            }
            fn add(sum: $sum, x: Self) -> $sum {
                $add(sum, $widen(x))
            }
            fn plus(a: $sum, b: $sum) -> $sum {
                $add(a, b)
            }
            fn minus(a: $sum, b: $sum) -> $sum {
                $minus(a, b)
            }
            fn times(a: $sum, b: $sum) -> $sum {
                $times(a, b)
            }
            fn narrow(sum: $sum) -> Self {
                $narrow(sum)
            }
            fn bits(self) -> u64 {
                $bits(self) as u64
            }
            fn number(self) -> Number {
                $number(self)
            }
            fn from_number(number: Number) -> Self {
                match number {
                    Number::Integer(x) => $integer(x),
                    Number::Float(x) => $float(x),
                }
            }
            fn wrap(array: ndarray::ArrayD<Self>) -> super::dense::Data {
                super::dense::Data::$variant(array)
            }
            fn unwrap(data: super::dense::Data) -> Result<ndarray::ArrayD<Self>, super::dense::Data> {
                match data {
                    super::dense::Data::$variant(array) => Ok(array),
                    other => Err(other),
                }
            }
            fn get(data: &super::dense::Data) -> Option<&ndarray::ArrayD<Self>> {
                match data {
                    super::dense::Data::$variant(array) => Some(array),
                    _ => None,
                }
            }
            fn get_mut(data: &mut super::dense::Data) -> Option<&mut ndarray::ArrayD<Self>> {
                match data {
                    super::dense::Data::$variant(array) => Some(array),
                    _ => None,
                }
            }
        }
    };
}

macro_rules! float {
    ($t:ty, $variant:ident) => {
        element!(
            $t,
            $variant,
            $t,
            (|x: $t| x),
            (|a: $t, b: $t| a + b),
            (|a: $t, b: $t| a - b),
            (|a: $t, b: $t| a * b),
            (|x: $t| x),
            (|x: $t| x.to_bits()),
            (|x: $t| Number::Float(f64::from(x))),
            (|x: i64| x as $t),
            (|x: f64| x as $t)
        );
    };
}

macro_rules! short_float {
    ($t:ty, $variant:ident) => {
        element!(
            $t,
            $variant,
            f32,
            (|x: $t| x.to_f32()),
            (|a: f32, b: f32| a + b),
            (|a: f32, b: f32| a - b),
            (|a: f32, b: f32| a * b),
            (<$t>::from_f32),
            (|x: $t| x.to_bits()),
            (|x: $t| Number::Float(x.to_f64())),
            (|x: i64| <$t>::from_f64(x as f64)),
            (<$t>::from_f64)
        );
    };
}

macro_rules! integer {
    ($t:ty, $variant:ident) => {
        element!(
            $t,
            $variant,
            $t,
            (|x: $t| x),
            (<$t>::wrapping_add),
            (<$t>::wrapping_sub),
            (<$t>::wrapping_mul),
            (|x: $t| x),
            (|x: $t| x),
            (|x: $t| Number::Integer(i64::from(x))),
            (|x: i64| x.clamp(i64::from(<$t>::MIN), i64::from(<$t>::MAX)) as $t),
            (|x: f64| x as $t)
        );
    };
}

float!(f32, F32);
float!(f64, F64);
short_float!(f16, F16);
short_float!(bf16, BF16);
integer!(i8, I8);
integer!(i16, I16);
integer!(i32, I32);
integer!(i64, I64);
element!(
    bool,
    Bool,
    bool,
    (|x: bool| x),
    (|a: bool, b: bool| a | b),
    // The difference of two bools is true if the bools differ, because a number that is not 0 counts as true.
    (|a: bool, b: bool| a != b),
    (|a: bool, b: bool| a & b),
    (|x: bool| x),
    (|x: bool| x),
    (|x: bool| Number::Integer(i64::from(x))),
    (|x: i64| x != 0),
    (|x: f64| x != 0.0)
);

/// Runs `$body` with `$T` as the Rust type of a dtype.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use $crate::tensor::DType;
        match $dtype {
            DType::F32 => with_element!(as f32, $T => $body),
            DType::F64 => with_element!(as f64, $T => $body),
            DType::I8 => with_element!(as i8, $T => $body),
            DType::I16 => with_element!(as i16, $T => $body),
            DType::I32 => with_element!(as i32, $T => $body),
            DType::I64 => with_element!(as i64, $T => $body),
            DType::Bool => with_element!(as bool, $T => $body),
            DType::F16 => with_element!(as half::f16, $T => $body),
            DType::BF16 => with_element!(as half::bf16, $T => $body),
        }
    }};
    (as $type:ty, $T:ident => $body:expr) => {{
        type $T = $type;
        $body
    }};
}
pub(crate) use with_element;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_sizes() {
        for dtype in DType::ALL {
            assert_eq!(dtype.name().parse::<DType>().unwrap(), dtype);
        }
        let message = "float".parse::<DType>().unwrap_err().to_string();
        assert_eq!(
            message,
            "dtype: expected one of f32, f64, i8, i16, i32, i64, bool, f16, bf16, got `float`"
        );
        assert_eq!(bf16::DTYPE.size_of(), size_of::<bf16>());
        assert!(f16::DTYPE.is_float() && !bool::DTYPE.is_float());
    }
}
