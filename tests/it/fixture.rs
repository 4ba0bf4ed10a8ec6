//! Reference values: one safetensors file a case in `tests/it/fixtures`, read by the names that its maker gave.

use std::collections::HashMap;

use ndarray::ArrayD;
use safetensors::{Dtype, SafeTensors};

/// A case: its arrays, and its settings as JSON texts.
pub(crate) struct Fixture {
    name: String,
    bytes: Vec<u8>,
    settings: HashMap<String, String>,
}

/// The element type of an array.
pub(crate) trait Number: Sized + Clone {
    const DTYPE: Dtype;
    fn read(bytes: &[u8]) -> Vec<Self>;
}

macro_rules! number {
    ($type:ty, $dtype:ident) => {
        impl Number for $type {
            const DTYPE: Dtype = Dtype::$dtype;
            fn read(bytes: &[u8]) -> Vec<Self> {
                let (numbers, _) = bytes.as_chunks();
                numbers.iter().map(|&b| <$type>::from_le_bytes(b)).collect()
            }
        }
    };
}
number!(f32, F32);
number!(i64, I64);

impl Fixture {
    /// The case `name`.
    pub(crate) fn load(name: &str) -> Self {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fixtures");
        let bytes = std::fs::read(format!("{folder}/{name}.safetensors")).unwrap();
        let (_, head) = SafeTensors::read_metadata(&bytes).unwrap();
        let settings = head.metadata().clone().unwrap_or_default().into_iter().collect();
        Self { name: name.to_owned(), bytes, settings }
    }

    /// An array.
    pub(crate) fn array<T: Number>(&self, tensor: &str) -> ArrayD<T> {
        let file = SafeTensors::deserialize(&self.bytes).unwrap();
        let found = file.tensor(tensor).unwrap_or_else(|e| panic!("{}: {tensor}: {e}", self.name));
        assert_eq!(found.dtype(), T::DTYPE, "{}: {tensor}", self.name);
        ArrayD::from_shape_vec(found.shape(), T::read(found.data())).unwrap()
    }

    /// A setting, as JSON.
    pub(crate) fn metadata(&self, key: &str) -> Option<&str> {
        self.settings.get(key).map(String::as_str)
    }

    /// A setting that is a number, or `default` where the file has none.
    pub(crate) fn number(&self, key: &str, default: f64) -> f64 {
        self.metadata(key).map_or(default, |text| text.parse().unwrap())
    }
}
