//! Data: vocabularies, tokenizers and ragged batches of samples. The crate `unpadded-text` reads files of text, and makes
//! samples from them.
//!
//! | from | to | by |
//! |---|---|---|
//! | text | tokens | [`Tokenizer`] |
//! | tokens, labels | numbers | [`Vocabulary`], [`TokenCounts`] |
//! | tags of words | chunks, transitions | [`TagScheme`] |
//! | samples in memory, or read anew in each epoch | batches | [`Loader`] of [`Samples`] or [`SampleStream`] |
//! | one long text | batches of its pieces, for language models | [`Continuous`] |
//!
//! A training reads its data only through the trait [`Data`]. The order of samples depends only on the seed and the
//! epoch, so that an epoch can be resumed at any batch. Streaming needs bounded memory: a shuffle buffer, and a few
//! prefetched batches.
//!
//! # From text to a batch
//!
//! ```
//! use unpadded::data::{Batching, Data, Field, Limits, Loader, Samples, Tokenizer, Vocabulary};
//!
//! let reviews = [("A fine film.", "praise"), ("Dull.", "blame"), ("Fine, but dull!", "blame")];
//!
//! let cut = Tokenizer::words().lowercase();
//! let words = Vocabulary::of(reviews.iter().flat_map(|(text, _)| cut.tokens(text)), &Limits::default())?;
//! let labels = Vocabulary::labels(reviews.map(|(_, label)| label))?;
//!
//! let mut samples = Vec::new();
//! for (text, label) in reviews {
//!     let ids = words.ids(cut.tokens(text))?;
//!     samples.push(vec![Field::Ints(ids), Field::Int(labels.lookup(label)?)]);
//! }
//! let samples: Samples = samples.into_iter().collect(); // numbered from 0
//!
//! let train = Loader::new(samples, &["words", "label"])?.batching(Batching::Sequences(2)).shuffle(7);
//! for batch in train.batches(Some(0), 0)? { // of epoch 0, from the first batch on
//!     let batch = batch?;
//!     println!("{:?}: {} rows, {} if they were padded", batch.numbers, batch.tokens, batch.padded);
//! }
//!
//! // The order of the file: four tokens and two, one after another, with nothing between.
//! let first = train.batches(None, 0)?.next().unwrap()?;
//! let (name, value) = &first.values[0];
//! assert_eq!((name.as_str(), value.lod().unwrap().to_string().as_str()), ("words", "[[4, 2]]"));
//! let read: Vec<_> = value.as_slice::<i64>()?.iter().filter_map(|&id| words.token(id)).collect();
//! assert_eq!(read, ["a", "fine", "film", ".", "dull", "."]);
//! assert_eq!(first.values[1].1.as_slice::<i64>()?, [1, 0]); // blame is 0, praise 1
//! assert_eq!((first.tokens, first.padded), (6, 8));
//! # Ok::<(), unpadded::Error>(())
//! ```

mod batch;
mod continuous;
mod file_line;
mod fingerprint;
#[cfg(feature = "tokenizers")]
mod hugging_face;
mod loader;
pub(crate) mod order;
mod prefetch;
mod samples;
mod source;
mod spilled;
mod tag_scheme;
mod tokenizer;
mod vocabulary;

pub use batch::{Batch, Field, Sample};
pub use continuous::Continuous;
pub use file_line::FileLine;
pub use fingerprint::Fingerprint;
pub use loader::{Batching, Loader};
pub(crate) use prefetch::until_stopped;
pub use samples::{Samples, SamplesBuilder};
pub use source::{SampleIterator, SampleStream, Source};
pub use tag_scheme::{Chunk, TagScheme};
pub use tokenizer::Tokenizer;
pub(crate) use vocabulary::WordHashing;
pub(crate) use vocabulary::stored::StoredVocabulary;
pub use vocabulary::{Limits, TokenCounts, Vocabulary};

use std::panic::Location;

use crate::error::Result;

/// An iterator over the batches of one pass over the data.
pub type Batches = Box<dyn Iterator<Item = Result<Batch>> + Send>;

/// A function that returns whether a batch fits the memory limit of a training.
pub type FitsMemory = Box<dyn FnMut(&Batch) -> Result<bool> + Send>;

/// The data of a training or an evaluation: batches in a reproducible order.
pub trait Data: Send + Sync {
    /// Returns the batches of an epoch, from the batch with index `from` on, counted from 0. These batches are equal
    /// to the batches with the same indices in an uninterrupted pass. If `epoch` is `None`, the samples are in the
    /// order of the file, for evaluation.
    ///
    /// # Errors
    /// Fails if the data cannot be opened. A later error is the last item of the iterator.
    fn batches(&self, epoch: Option<u64>, from: u64) -> Result<Batches>;

    /// Returns the batches of an epoch as [`Self::batches`] does, for a training with a memory limit. Data that makes
    /// the largest batches that fit ([`Batching::Memory`]) calls `fits` once. `fits` returns a function that decides
    /// whether a batch fits the memory limit. By default, the batches do not depend on the memory limit.
    ///
    /// # Errors
    /// Fails as [`Self::batches`] does, or if `fits` fails.
    fn batches_that_fit(
        &self,
        epoch: Option<u64>,
        from: u64,
        _fits: &dyn Fn() -> Result<FitsMemory>,
    ) -> Result<Batches> {
        self.batches(epoch, from)
    }

    /// The number of batches of an epoch; `None` if the number is unknown before the batches are read.
    fn batch_count(&self) -> Option<u64>;

    /// Checks that two feeds have sequences of equal lengths in each sample, in the first `levels` LoD levels, counted
    /// from the outermost level. A training calls this method before the first batch, for feeds that share their
    /// sequences (`feed_like`). Data that is not in memory returns `Ok`; the training then refuses a batch with
    /// different lengths when the batch is read.
    ///
    /// # Errors
    /// Fails if the lengths differ in a sample. The message has the number of the first sample with different lengths.
    fn same_lengths(&self, _feeds: [&str; 2], _levels: usize) -> Result<()> {
        Ok(())
    }

    /// The fingerprint of everything that decides the batches: the samples, the order of the samples, and the batch
    /// size. A training is resumed only on data with an equal fingerprint.
    fn fingerprint(&self) -> u64;

    /// Returns whether reading a batch may block, for example while a file is read. A trainer reads batches that may
    /// block in a thread, so that the trainer can handle interrupts while it waits.
    fn may_wait(&self) -> bool {
        true
    }

    /// The number of bytes of samples that the data hold in memory, for the memory limit of a training. By default 0.
    fn held_bytes(&self) -> usize {
        0
    }

    /// The number of batches that are made in advance, for the memory limit of a training. By default 0.
    fn batches_ahead(&self) -> usize {
        0
    }

    /// The line of the user's code that made the data, for errors about data that does not fit the model.
    fn made_at(&self) -> Option<&'static Location<'static>> {
        None
    }
}
