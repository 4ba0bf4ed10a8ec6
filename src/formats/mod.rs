//! Files of other frameworks, in and out. Each format is a feature of its own.

#[cfg(feature = "safetensors")]
pub mod safetensors;
