//! Sources of samples: samples in memory, or streams of samples.

use super::{Sample, Samples};
use crate::error::Result;

/// An iterator over the samples of one pass.
pub type SampleIterator = Box<dyn Iterator<Item = Result<Sample>> + Send>;

/// A source of samples, in memory or in a file. Each epoch opens the source again.
pub trait Source: Send + Sync {
    /// Iterates over the samples; every pass has the same order.
    ///
    /// # Errors
    /// Fails if the source cannot be opened. An error that occurs later is an item of the iterator.
    fn open(&self) -> Result<SampleIterator>;

    /// Returns the number of samples; `None` if the number is unknown until all samples are read.
    fn size(&self) -> Option<u64>;

    /// Returns the fingerprint of the samples: sources with different samples have different fingerprints.
    fn fingerprint(&self) -> u64;

    /// Returns all samples if they are in memory, so that a loader can permute them; `None` for a stream.
    fn in_memory(&self) -> Option<Samples> {
        None
    }

    /// The memory, in bytes, that the samples of a shuffle buffer may take; `None` if the source sets no limit. A loader uses the
    /// limit unless [`Loader::buffer`](super::Loader::buffer) sets a number of samples.
    fn buffer_bytes(&self) -> Option<usize> {
        None
    }
}

impl Source for Samples {
    fn open(&self) -> Result<SampleIterator> {
        let samples = self.clone();
        Ok(Box::new((0..samples.len()).filter_map(move |i| samples.get(i).map(Ok))))
    }

    fn size(&self) -> Option<u64> {
        Some(self.len() as u64)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn in_memory(&self) -> Option<Samples> {
        Some(self.clone())
    }
}

/// A stream of samples: each epoch reads the samples again, so that not all samples need to be in memory at once.
pub struct SampleStream {
    open: Box<dyn Fn() -> Result<SampleIterator> + Send + Sync>,
    size: Option<u64>,
    fingerprint: u64,
    /// All samples, if they are in memory; else `None`.
    held: Option<Samples>,
    buffer_bytes: Option<usize>,
}

impl From<Samples> for SampleStream {
    /// Makes a stream of samples that are in memory.
    fn from(samples: Samples) -> Self {
        let (fingerprint, size) = (samples.fingerprint(), samples.size());
        let held = Some(samples.clone());
        Self { size, held, ..Self::new(fingerprint, move || samples.open()) }
    }
}

impl SampleStream {
    /// Returns a stream of samples; `open` starts a pass over the samples, from the first sample. `fingerprint` must
    /// differ for different samples: for example, combine the fingerprints of the file and of the vocabulary.
    #[track_caller]
    pub fn new(fingerprint: u64, open: impl Fn() -> Result<SampleIterator> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), size: None, fingerprint, held: None, buffer_bytes: None }
    }

    /// Sets the number of samples, if it is known, so that progress can be shown.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.size = Some(size);
        self
    }

    /// Limits the memory of a shuffle buffer to `bytes`.
    #[must_use]
    pub fn buffer_within(mut self, bytes: usize) -> Self {
        self.buffer_bytes = Some(bytes);
        self
    }
}

impl Source for SampleStream {
    fn open(&self) -> Result<SampleIterator> {
        (self.open)()
    }

    fn size(&self) -> Option<u64> {
        self.size
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn in_memory(&self) -> Option<Samples> {
        self.held.clone()
    }

    fn buffer_bytes(&self) -> Option<usize> {
        self.buffer_bytes
    }
}
