//! Opens the data sets of a path. Formats and columns that the user does not set are detected.

mod answers;
mod asked;
mod column;
mod columns;
mod dictionary;
mod fasttext;
mod fields;
mod guess;
mod json;
mod labelled;
mod languages;
mod objects;
mod options;
mod pairs;
#[cfg(feature = "parquet")]
mod parquet;
mod parts;
mod paths;
mod plain;
mod questions;
mod read_note;
mod rows;
mod table;
mod tagged;
mod trees;
mod walk;

pub use answers::{AnswerCell, Question};
pub use dictionary::are_pronunciations;
pub use options::{FileFormat, ReadOptions};
pub use parts::DataPaths;
pub use plain::PlainSource;
pub use plain::{PlainFiles, PlainText};
pub use questions::{QuestionKind, Questions};

#[cfg(test)]
mod tests;
