//! The names that most programs use: the names in [`unpadded::prelude`], and two for files of text.

pub use super::{LabelledTexts, TextFile};
pub use unpadded::prelude::*;
