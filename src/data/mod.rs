//! Data: from files of text to ragged batches.

mod archive;
mod batch;
mod continuous;
mod fingerprint;
mod folder;
mod lines;
mod loader;
mod order;
mod prefetch;
mod records;
mod source;
mod text_file;
mod tokenizer;
mod vocabulary;

pub use batch::{Batch, Field, Sample};
pub use continuous::Continuous;
pub use fingerprint::Fingerprint;
pub use folder::Folder;
pub use lines::Encoding;
pub use loader::{Batching, Loader};
pub use records::{ColumnSpec, Labelled, Pair, Records, Skipped};
pub use source::{Sampled, Samples, Source, Streamed};
pub use text_file::{Malformed, TextFile};
pub use tokenizer::Tokenizer;
pub use vocabulary::{Limits, Vocabulary};

use crate::error::Result;

/// The batches of one pass over the data, one after another.
pub type Batches = Box<dyn Iterator<Item = Result<Batch>> + Send>;

/// What training and evaluation read.
pub trait Data: Send + Sync {
    /// The batches of an epoch, from batch `from` on: the same as of a pass that never stopped. `None` stands for the
    /// order of the file, for evaluation.
    ///
    /// # Errors
    /// If the data cannot be opened. What goes wrong later comes as an item, after which there are no more.
    fn batches(&self, epoch: Option<u64>, from: u64) -> Result<Batches>;

    /// How many batches an epoch has, if that is known without reading them.
    fn batch_count(&self) -> Option<u64>;

    /// A number of all that decides which batches come: the samples, their order, the batching. Training is resumed
    /// only on data of the same number.
    fn fingerprint(&self) -> u64;
}
