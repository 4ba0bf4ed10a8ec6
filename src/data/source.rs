//! Sources of samples: samples in memory, or streams of samples.

use std::sync::Arc;

use super::{Field, Fingerprint, Sample};
use crate::error::Result;

/// An iterator over the samples of one pass.
pub type SampleIterator = Box<dyn Iterator<Item = Result<Sample>> + Send>;

/// A source of samples, in memory or in a file. Each epoch opens the source again.
pub trait Source: Send + Sync {
    /// Iterates over the samples; every pass has the same order.
    ///
    /// # Errors
    /// If the source cannot be opened. An error that occurs later is an item of the iterator.
    fn open(&self) -> Result<SampleIterator>;

    /// Returns the number of samples; `None` if the number is unknown until all samples are read.
    fn size(&self) -> Option<u64>;

    /// Returns the fingerprint of the samples: sources with different samples have different fingerprints.
    fn fingerprint(&self) -> u64;

    /// Returns all samples if they are in memory, so that a loader can permute them; `None` for a stream.
    fn in_memory(&self) -> Option<Arc<[Sample]>> {
        None
    }
}

/// Samples in memory.
///
/// ```
/// use unpadded::data::{Field, Samples, Source};
/// let samples: Samples = [(vec![1i64, 2], 0i64), (vec![3], 1)]
///     .into_iter()
///     .map(|(ids, label)| vec![Field::from(ids), label.into()]) // numbered from 0
///     .collect();
/// assert_eq!(samples.size(), Some(2));
/// ```
#[derive(Debug, Clone)]
pub struct Samples {
    samples: Arc<[Sample]>,
    fingerprint: u64,
}

impl From<Vec<Sample>> for Samples {
    fn from(samples: Vec<Sample>) -> Self {
        let fingerprint =
            samples.iter().fold(Fingerprint::default(), |f, sample| sample.fingerprint(f)).finish();
        Self { samples: samples.into(), fingerprint }
    }
}

impl FromIterator<Vec<Field>> for Samples {
    /// Makes a sample of each list of fields; the samples are numbered from 0.
    fn from_iter<I: IntoIterator<Item = Vec<Field>>>(fields: I) -> Self {
        (0..).zip(fields).map(|(number, fields)| Sample { number, fields }).collect::<Vec<_>>().into()
    }
}

impl Source for Samples {
    fn open(&self) -> Result<SampleIterator> {
        let samples = Arc::clone(&self.samples);
        Ok(Box::new((0..samples.len()).filter_map(move |i| samples.get(i).cloned().map(Ok))))
    }

    fn size(&self) -> Option<u64> {
        Some(self.samples.len() as u64)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    fn in_memory(&self) -> Option<Arc<[Sample]>> {
        Some(Arc::clone(&self.samples))
    }
}

/// A stream of samples: each epoch reads the samples again, and the samples are never all in memory at once.
pub struct SampleStream {
    open: Box<dyn Fn() -> Result<SampleIterator> + Send + Sync>,
    size: Option<u64>,
    fingerprint: u64,
}

impl SampleStream {
    /// Returns a stream of samples; `open` starts a pass over the samples, from the first sample. `fingerprint` must
    /// differ for different samples: for example, combine the fingerprints of the file and of the vocabulary.
    #[track_caller]
    pub fn new(fingerprint: u64, open: impl Fn() -> Result<SampleIterator> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), size: None, fingerprint }
    }

    /// Sets the number of samples, if it is known, so that progress can be shown.
    #[must_use]
    pub fn size(mut self, size: u64) -> Self {
        self.size = Some(size);
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
}
