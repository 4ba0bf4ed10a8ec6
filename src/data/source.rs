//! Where samples come from.

use std::sync::Arc;

use super::{Field, Fingerprint, Sample};
use crate::error::Result;

/// The samples of one pass, one after another.
pub type SampleIterator = Box<dyn Iterator<Item = Result<Sample>> + Send>;

/// Samples in memory or in a file; opened afresh for each epoch.
pub trait Source: Send + Sync {
    /// The samples in their order, the same each time.
    ///
    /// # Errors
    /// If they cannot be opened. What goes wrong later comes as an item.
    fn open(&self) -> Result<SampleIterator>;

    /// How many there are, if that is known without reading them.
    fn size(&self) -> Option<u64>;

    /// A number by which other samples are told apart.
    fn fingerprint(&self) -> u64;

    /// All of them, if they are in memory: then an epoch may take them in any order.
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
    /// Samples that `open` starts to read, each time from the first. `fingerprint` tells them from others: that of the
    /// file they come from, say, with the vocabulary's.
    #[track_caller]
    pub fn new(fingerprint: u64, open: impl Fn() -> Result<SampleIterator> + Send + Sync + 'static) -> Self {
        Self { open: Box::new(open), size: None, fingerprint }
    }

    /// Says how many there are, if that is known, so that progress can be shown.
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
