//! Import and export of other frameworks' files. Each format is a cargo feature.

#[cfg(feature = "safetensors")]
pub mod safetensors;
