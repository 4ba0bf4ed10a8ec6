//! The loader of batches: shuffling, batch size and prefetch.

use std::panic::Location;
use std::sync::Arc;

use super::batch::{Kind, check, kinds, same_lengths};
use super::order::{Buffer, BufferSize, Draws, permutation};
use super::prefetch::prefetch;
use super::{Batch, Batches, Data, Fingerprint, FitsMemory, Sample, SampleIterator, Source};
use crate::error::{AtCaller, Error, Result};

/// The batch size, in samples or in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Batching {
    /// A fixed number of samples per batch; the last batch of an epoch has the remaining samples.
    Sequences(usize),
    /// A maximum number of rows per batch: a batch has as many consecutive samples as fit. The rows of a sample are the
    /// rows of its longest field. A sample with more rows than the maximum is a batch of its own.
    Tokens(usize),
    /// As many consecutive samples as fit the memory limit of the training
    /// ([`Trainer::memory_limit`](crate::train::Trainer::memory_limit)). If a single sample does not fit, it is a batch
    /// of its own, and the training refuses this batch. Only a trainer can make these batches, because they depend on
    /// the model.
    Memory,
}

/// A loader of batches from the samples of a [`Source`].
///
/// ```
/// use unpadded::data::{Batching, Data, Field, Loader, Samples};
/// let samples: Samples = (0..10).map(|i| vec![Field::Ints(vec![i; 5]), Field::Int(i % 2)]).collect();
/// let train = Loader::new(samples, &["words", "label"])?
///     .batching(Batching::Tokens(20))
///     .shuffle(7)
///     .prefetch(4);
/// let sizes = train.batches(Some(0), 0)?.map(|batch| Ok(batch?.numbers.len()));
/// assert_eq!(sizes.collect::<Result<Vec<_>, unpadded::Error>>()?, [4, 4, 2]);
/// # Ok::<(), unpadded::Error>(())
/// ```
pub struct Loader {
    source: Box<dyn Source>,
    names: Arc<[String]>,
    batching: Batching,
    seed: Option<u64>,
    buffer: Option<usize>,
    prefetch: usize,
    /// The line of the user's code that made the loader.
    caller: &'static Location<'static>,
}

impl Loader {
    /// Default size of the shuffle buffer for streamed samples; [`Self::buffer`] sets another size.
    pub(crate) const BUFFER: usize = 16_384;

    /// Makes a loader with batch size 32 and without shuffling; `names` has the name of a feed for each field of the
    /// samples.
    ///
    /// # Errors
    /// Fails if there is no name, or if a name is repeated. Samples in memory are checked at once: the call fails if
    /// there is no sample, or if [`Batch::new`] would refuse a batch of the first sample and a later sample. Streamed
    /// samples are checked when they are read.
    #[track_caller]
    pub fn new(source: impl Source + 'static, names: &[&str]) -> Result<Self> {
        let names: Arc<[String]> = names.iter().map(|&name| name.to_owned()).collect();
        if names.is_empty() {
            return Err(Error::new("names of feeds", "at least one", "none"));
        }
        if let Some((_, name)) =
            names.iter().enumerate().find(|(i, name)| names.iter().skip(i + 1).any(|n| n == *name))
        {
            return Err(Error::new("names of feeds", "each once", format!("`{name}` twice")));
        }
        if let Some(samples) = source.in_memory() {
            let Some(first) = samples.get(0) else {
                return Err(Error::new("samples to load", "at least one", "none"));
            };
            let kinds = kinds(&first);
            samples.iter().try_for_each(|sample| check(&names, &kinds, &sample)).at_caller()?;
        }
        let source = Box::new(source);
        let (batching, caller) = (Batching::Sequences(32), Location::caller());
        Ok(Self { source, names, batching, seed: None, buffer: None, prefetch: 0, caller })
    }

    /// Sets the batch size.
    #[must_use]
    pub fn batching(mut self, batching: Batching) -> Self {
        self.batching = batching;
        self
    }

    /// Shuffles the samples in each epoch. Only the seed and the number of the epoch decide the order. Samples in
    /// memory are permuted; streamed samples are drawn at random from a [`Self::buffer`].
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Shuffle buffer: shuffling draws each sample at random from the next `samples` samples, which are held in memory.
    /// If the buffer is set, samples in memory are drawn from a buffer, too.
    #[must_use]
    pub fn buffer(mut self, samples: usize) -> Self {
        self.buffer = Some(samples);
        self
    }

    /// Prefetch: a thread makes up to `batches` batches in advance; 0 switches prefetch off.
    #[must_use]
    pub fn prefetch(mut self, batches: usize) -> Self {
        self.prefetch = batches;
        self
    }

    /// Checks that the batch size and the buffer size are not 0.
    fn sizes(&self) -> Result<()> {
        let (what, size) = match self.batching {
            Batching::Sequences(n) => ("sequences of a batch", n),
            Batching::Tokens(n) => ("tokens of a batch", n),
            Batching::Memory => ("sequences of a batch", 1),
        };
        for (what, size) in [(what, size), ("samples of a shuffling buffer", self.buffer.unwrap_or(1))] {
            if size == 0 {
                return Err(Error::new(what, "at least 1", "0"));
            }
        }
        Ok(())
    }

    /// Returns the samples in the order of epoch `epoch`; if `epoch` is `None`, in the order of the source.
    fn ordered(&self, epoch: Option<u64>) -> Result<SampleIterator> {
        let Some(draws) = self.seed.zip(epoch).map(|(seed, epoch)| Draws::new(seed, epoch)) else {
            return self.source.open();
        };
        if let (Some(samples), None) = (self.source.in_memory(), self.buffer) {
            let order = permutation(draws, samples.len());
            return Ok(Box::new(order.into_iter().filter_map(move |i| samples.get(i).map(Ok))));
        }
        Ok(Box::new(Buffer::new(self.source.open()?, draws, self.room())))
    }

    /// Returns the size of the shuffle buffer of streamed samples.
    fn room(&self) -> BufferSize {
        match (self.buffer, self.source.buffer_bytes()) {
            (None, Some(bytes)) => BufferSize { samples: usize::MAX, bytes },
            (samples, _) => BufferSize { samples: samples.unwrap_or(Self::BUFFER), bytes: usize::MAX },
        }
    }
}

impl Data for Loader {
    fn batches(&self, epoch: Option<u64>, from: u64) -> Result<Batches> {
        self.batches_that_fit(epoch, from, &|| {
            let expected = "a training with a memory limit (`Trainer::memory_limit`)";
            Err(Error::new("batching by memory", expected, "none").made_at(self.caller))
        })
    }

    fn batches_that_fit(
        &self,
        epoch: Option<u64>,
        from: u64,
        fits: &dyn Fn() -> Result<FitsMemory>,
    ) -> Result<Batches> {
        self.sizes().map_err(|e| e.made_at(self.caller))?;
        let size = match self.batching {
            Batching::Sequences(n) => BatchSize::Rows { samples: n, rows: usize::MAX },
            Batching::Tokens(n) => BatchSize::Rows { samples: usize::MAX, rows: n },
            Batching::Memory => BatchSize::Fitting { fits: fits()?, last: FIRST },
        };
        let batches = Box::new(Batched {
            samples: Some(self.ordered(epoch).map_err(|e| e.made_at(self.caller))?),
            names: Arc::clone(&self.names),
            kinds: None,
            size,
            waiting: Vec::new(),
            skip: from,
            caller: self.caller,
        });
        if self.prefetch == 0 { Ok(batches) } else { prefetch(batches, self.prefetch) }
    }

    fn made_at(&self) -> Option<&'static Location<'static>> {
        Some(self.caller)
    }

    fn may_wait(&self) -> bool {
        self.source.in_memory().is_none()
    }

    fn held_bytes(&self) -> usize {
        match (self.source.in_memory(), self.buffer) {
            // A shuffled epoch holds the indices of all samples.
            (Some(samples), _) => {
                samples.bytes() + self.seed.map_or(0, |_| samples.len() * size_of::<usize>())
            }
            (None, None) if self.seed.is_some() => self.source.buffer_bytes().unwrap_or(0),
            (None, _) => 0,
        }
    }

    fn batches_ahead(&self) -> usize {
        self.prefetch
    }

    fn batch_count(&self) -> Option<u64> {
        match self.batching {
            Batching::Sequences(n) => self.source.size().map(|size| size.div_ceil(n.max(1) as u64)),
            Batching::Tokens(_) | Batching::Memory => None,
        }
    }

    fn same_lengths(&self, feeds: [&str; 2], levels: usize) -> Result<()> {
        let places = feeds.map(|feed| self.names.iter().position(|name| name == feed));
        let ([Some(a), Some(b)], Some(samples)) = (places, self.source.in_memory()) else { return Ok(()) };
        let outcome = samples.iter().try_for_each(|sample| same_lengths(feeds, [a, b], levels, &sample));
        outcome.map_err(|e| e.called(self.caller))
    }

    fn fingerprint(&self) -> u64 {
        let (batching, size) = match self.batching {
            Batching::Sequences(n) => ("sequences", n),
            Batching::Tokens(n) => ("tokens", n),
            Batching::Memory => ("memory", 0),
        };
        let f = self
            .names
            .iter()
            .fold(Fingerprint::default().number(self.source.fingerprint()), |f, n| f.text(n));
        let f = f.text(batching).number(size as u64);
        let Some(seed) = self.seed else { return f.text("in order").finish() };
        let f = f.text("shuffled").number(seed);
        if self.buffer.is_none() && self.source.in_memory().is_some() {
            return f.finish();
        }
        let BufferSize { samples, bytes } = self.room();
        f.text("by a buffer").number(samples as u64).number(bytes as u64).finish()
    }
}

/// The number of samples at which the search for the first batch within the memory limit starts.
const FIRST: usize = 32;

enum BatchSize {
    /// At most `samples` samples, and at most `rows` rows.
    Rows { samples: usize, rows: usize },
    /// As many samples as `fits` allows; `last` is the number of samples of the last batch.
    Fitting { fits: FitsMemory, last: usize },
}

/// An iterator that groups samples into batches.
struct Batched {
    /// The remaining samples; `None` after the last sample and after an error.
    samples: Option<SampleIterator>,
    names: Arc<[String]>,
    /// The kind of each field of the first sample, which all samples must have; `None` before the first sample.
    kinds: Option<Vec<Kind>>,
    size: BatchSize,
    /// The samples that were read for the previous batch, but did not fit into it.
    waiting: Vec<Sample>,
    /// The number of batches to skip at the start.
    skip: u64,
    caller: &'static Location<'static>,
}

impl Batched {
    /// Reads samples until `waiting` has `count` samples; behind the last sample, `waiting` has fewer.
    fn wait_for(&mut self, count: usize) -> Result<()> {
        while self.waiting.len() < count {
            let Some(sample) = self.samples.as_mut().and_then(Iterator::next).transpose()? else { break };
            check(&self.names, self.kinds.get_or_insert_with(|| kinds(&sample)), &sample)?;
            self.waiting.push(sample);
        }
        Ok(())
    }

    /// Collects the samples of the next batch; returns an empty list behind the last sample.
    fn group(&mut self) -> Result<Vec<Sample>> {
        let count = match self.size {
            BatchSize::Rows { samples, rows } => self.within(samples, rows)?,
            BatchSize::Fitting { last, .. } => self.fitting(last)?,
        };
        let rest = self.waiting.split_off(count.min(self.waiting.len()));
        Ok(std::mem::replace(&mut self.waiting, rest))
    }

    /// Returns the largest number of waiting samples, up to `samples`, that have at most `most` rows in total. Returns
    /// at least 1, unless no sample is left.
    fn within(&mut self, samples: usize, most: usize) -> Result<usize> {
        let mut rows = 0usize;
        for count in 0..samples {
            self.wait_for(count + 1)?;
            let Some(sample) = self.waiting.get(count) else { return Ok(count) };
            rows = rows.saturating_add(sample.rows());
            if rows > most && count > 0 {
                return Ok(count);
            }
        }
        Ok(samples)
    }

    /// Returns the largest number of waiting samples that fit the memory limit as one batch, but at least 1. The search
    /// starts at the number of samples of the last batch, and doubles its distance from this number until an interval
    /// contains the result. Then it halves the interval.
    fn fitting(&mut self, last: usize) -> Result<usize> {
        let (mut fit, mut too_many) = (0, usize::MAX);
        let (mut count, mut distance) = (last, 1);
        loop {
            self.wait_for(count)?;
            count = count.min(self.waiting.len());
            if count <= fit || self.fits(count)? {
                fit = fit.max(count);
            } else {
                too_many = count;
            }
            let all = fit == self.waiting.len() && self.is_last(fit)?;
            if all || fit + 1 >= too_many || too_many <= 1 {
                break;
            }
            count = match (fit, too_many) {
                (fit, usize::MAX) => fit.saturating_add(distance),
                (0, too_many) => too_many.saturating_sub(distance).max(1),
                (fit, too_many) => fit + (too_many - fit) / 2,
            };
            distance = distance.saturating_mul(2);
        }
        let found = fit.max(1).min(self.waiting.len());
        if let BatchSize::Fitting { last, .. } = &mut self.size {
            *last = found.max(1);
        }
        Ok(found)
    }

    /// Returns whether no sample is left behind the first `count` samples.
    fn is_last(&mut self, count: usize) -> Result<bool> {
        self.wait_for(count + 1)?;
        Ok(self.waiting.len() <= count)
    }

    /// Returns whether the first `count` waiting samples fit the memory limit.
    fn fits(&mut self, count: usize) -> Result<bool> {
        let batch = Batch::new(&self.names, &self.waiting[..count])?;
        match &mut self.size {
            BatchSize::Fitting { fits, .. } => fits(&batch),
            BatchSize::Rows { .. } => Ok(true),
        }
    }

    fn batch(&mut self) -> Result<Option<Batch>> {
        while self.skip > 0 {
            if self.group()?.is_empty() {
                return Ok(None);
            }
            self.skip -= 1;
        }
        let group = self.group()?;
        if group.is_empty() { Ok(None) } else { Batch::new(&self.names, &group).map(Some) }
    }
}

impl Iterator for Batched {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Result<Batch>> {
        self.samples.as_ref()?;
        let batch = self.batch().map_err(|e| e.made_at(self.caller)).transpose();
        if !matches!(batch, Some(Ok(_))) {
            self.samples = None;
        }
        batch
    }
}

#[cfg(test)]
mod tests;
