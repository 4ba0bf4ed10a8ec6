//! Import and export of files of other frameworks. Each file format is a cargo feature.

#[cfg(feature = "safetensors")]
pub mod safetensors;
