//! Checkpoints: one file with everything that is needed to resume a training exactly.
//!
//! A checkpoint file has a magic number, a version, and sections with checksums (`src/wire.rs`). Its sections:
//!
//! ```text
//! program      the training program, encoded as in a program file
//! position     the position of the training
//! shards       a list of the files that have the sections `rows` and `best_rows`, if several ranks hold the rows
//! sums         one or more per metric with many sums: a piece of the sums, as indices and values, without zeros
//! notes        name -> text
//! outputs      name -> variable
//! vocabulary   one per vocabulary: its name, the vocabulary
//! criterion    the criterion of the best epoch, if there is a best epoch
//! metric       one per metric that a predictor can compute
//! epoch        one per finished epoch: its scores
//! purpose      the purpose of a checkpoint for inference; absent for a training
//! tensor       one per persistent variable of the program (for inference: only variables that are read): head, numbers
//! best         one per parameter, with its value after the best epoch: head, numbers
//! rows         instead of `tensor` for a row-sparse variable: head of rows, row numbers, numbers
//! best_rows    instead of `best` for a row-sparse variable: head of rows, row numbers, numbers
//! carried      one per value that passes from batch to batch: head, numbers
//!
//! head    = length u32 | a record: name, dtype by name, shape, offsets if there are any
//! head of rows = length u32 | a record: name, dtype by name, shape, number of rows
//! row numbers = i64 each, ascending
//! numbers = row-major, little-endian, with every bit preserved; a bool is 0 or 1
//! ```
//!
//! The sections `program`, `position`, `notes` and `outputs` must each occur exactly once, and `program` must be the first.
//! A rank file has only sections `rows` and `best_rows`.
//! Names are sorted and no byte depends on a clock, so that equal states are saved as equal bytes. Structured sections are
//! stored as records (`src/wire.rs`); the module `stored` has one struct for each kind of record. Later releases may add fields
//! with a default, or sections with new names: a reader checks the checksum of an unknown section and then skips it.

#[allow(clippy::module_inception)]
mod checkpoint;
mod feeds;
mod history;
mod inference;
mod metric;
pub(crate) mod position;
mod purpose;
mod quantize;
mod sections;
pub(crate) mod shard_files;
mod shards;
mod stored;
mod sums;
mod tensor;

pub use checkpoint::Checkpoint;
pub(crate) use feeds::{feeds_from_bytes, feeds_to_bytes};
pub use history::EpochScores;
pub use metric::MetricDesc;
pub use position::{Best, Criterion, Position};
pub use purpose::Purpose;
pub(crate) use shards::RowFilter;
pub use sums::SparseSums;
