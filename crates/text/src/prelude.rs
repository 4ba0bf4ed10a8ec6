//! The names that most programs use: those of [`unpadded::prelude`] and the files of text.

pub use super::{LabelledTexts, TextFile};
pub use unpadded::prelude::*;
