//! The only `unsafe` in the crate: products, vector maths, gather and scatter, disjoint writes, random numbers.
//!
//! Everything here works on slices and [`View`]s and knows nothing of tensors, programs or operators. Each fast
//! kernel has a naive twin in its tests.
#![allow(unsafe_code)]

pub mod arena;
pub mod view;

pub use view::{Extent2, View, ViewMut};
