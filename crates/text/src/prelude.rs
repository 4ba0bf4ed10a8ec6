//! The names that most programs use: the names in [`unpadded::prelude`], and two for files of text.

pub use crate::{LabelledTexts, TextFile};
pub use unpadded::prelude::*;
