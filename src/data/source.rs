//! Sources of samples: in memory or streamed.

use std::sync::Arc;

use super::{Field, Fingerprint, Sample};
use crate::error::Result;

/// The samples of one pass, one after another.
pub type SampleIterator = Box<dyn Iterator<Item = Result<Sample>> + Send>;

/// A source of samples, in memory or in a file; opened anew for each epoch.
pub trait Source: Send + Sync {
    /// Iterates over the samples; every pass has the same order.
    ///
    /// # Errors
    /// If the samples cannot be opened. A later error is an item of the iterator.
    fn open(&self) -> Result<SampleIterator>;

    /// The number of samples; `None` if it is unknown before the samples are read.
    fn size(&self) -> Option<u64>;

    /// The fingerprint of the samples: a source of other samples has another fingerprint.
    fn fingerprint(&self) -> u64;

    /// All samples, if they are in memory, so that a loader can permute them; `None` for a stream.
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
    /// Numbers the samples from 0.
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

/// Samples that are read anew in each epoch, and never all held in memory.
pub struct SampleStream {
    open: Box<dyn Fn() -> Result<SampleIterator> + Send + Sync>,
    size: Option<u64>,
    fingerprint: u64,
}

impl SampleStream {
    /// A stream of samples: `open` starts a pass over the samples, from the first one. `fingerprint` distinguishes these
    /// samples from others: for example, combine the fingerprints of the file and of the vocabulary.
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
