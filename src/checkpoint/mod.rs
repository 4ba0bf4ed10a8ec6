//! Checkpoints: everything that a training needs to resume exactly, in one file.
//!
//! The file is a frame with a magic number, a version and sections with checksums (`src/wire.rs`). Its sections:
//!
//! ```text
//! program      the program that trains, as in a program's own file
//! position     how far the training is
//! sums         in pieces, the sums of each metric that has many: places and numbers of those that are not zero
//! notes        name -> text
//! outputs      name -> variable
//! vocabulary   one for each: its name, the vocabulary
//! criterion    by what the best epoch was chosen, if there is one
//! metric       one for each metric that a predictor can compute
//! epoch        one for each finished epoch: what it came to
//! purpose      that it is for inference; without it, it is a training
//! tensor       one for each persistent variable of the program (for inference, that it reads): head, numbers
//! best         one for each parameter, as it was after the best epoch: head, numbers
//! rows         in the place of `tensor` for a row-sparse variable: head of rows, numbers of the rows, numbers
//! best_rows    in the place of `best`: the same
//! carried      one for each value that passes from batch to batch: head, numbers
//!
//! head    = length u32 | a record: name, dtype by name, shape, offsets if there are any
//! head of rows = length u32 | a record: name, dtype by name, shape, how many rows
//! numbers of the rows = i64 each, ascending
//! numbers = row-major, little-endian, every bit as it was; a bool is 0 or 1
//! ```
//!
//! Each of the first four sections is there once, `program` first. Names are sorted and nothing comes from a clock, so equal states
//! give equal bytes. Structure is stored as records (`src/wire.rs`), by the structs of `stored/`. Later releases add
//! fields with a default, or sections with new names: a reader skips sections that it does not know if their checksums are
//! right.

#[allow(clippy::module_inception)]
mod checkpoint;
mod feeds;
mod history;
mod inference;
mod metric;
pub(crate) mod position;
mod purpose;
mod sections;
mod stored;
mod sums;
mod tensor;

pub use checkpoint::Checkpoint;
pub(crate) use feeds::{feeds_from_bytes, feeds_to_bytes};
pub use history::EpochScores;
pub use metric::MetricDesc;
pub use position::{Best, Criterion, Position};
pub use purpose::Purpose;
pub use sums::SparseSums;
