//! Batches of one continuous text, for language models that pass their state from batch to batch. The text is cut into
//! parallel streams, and each stream into windows.

use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

use super::spilled::{SpilledIds, Spilling};
use super::{Batch, Batches, Data, Fingerprint};
use crate::error::{AtCaller, Error, Result};
use crate::lod::Lod;
use crate::reserve;
use crate::tensor::{Dense, Variable};

/// A text that is cut into parallel streams. Batch `k` has one sequence per stream: window `k` of the stream. In each
/// stream, window `k + 1` follows window `k`, so a model can pass its state from batch to batch. The target of each id
/// is the next id of the text. Each id of the text is a target once per epoch, except the first id.
///
/// The lengths of the streams differ by at most one. In the last batch, windows may be shorter than `steps`; some may
/// even be empty.
///
/// ```
/// use unpadded::data::{Continuous, Data};
/// let text = Continuous::new((0..10).collect::<Vec<i64>>(), 2, 3, ["x", "y"])?;
/// let batches = text.batches(Some(0), 0)?.collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(text.batch_count(), Some(2));
/// let x = |k: usize| batches[k].values[0].1.as_slice::<i64>();
/// assert_eq!((x(0)?, x(1)?), (&[0, 1, 2, 5, 6, 7][..], &[3, 4, 8][..]));
/// assert_eq!(batches[1].values[1].1.as_slice::<i64>()?, [4, 5, 9]);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Continuous {
    ids: Ids,
    streams: usize,
    steps: usize,
    names: [String; 2],
    fingerprint: u64,
    /// The line of the user's code that made this `Continuous`.
    caller: &'static Location<'static>,
}

impl Continuous {
    /// Cuts a text into `streams` streams, and each stream into windows of `steps` ids. `names` has the names of two
    /// feeds: first the feed of the ids, then the feed of the targets. The value of either feed is an `i64` tensor of
    /// shape `[rows]` whose LoD has one level. Each id takes two bytes of memory, or four bytes if an id is 2^16 or more.
    ///
    /// # Errors
    /// Fails if `streams` or `steps` is 0, or if both names are equal. Also fails if the text does not have more ids
    /// than streams, or if an id is not from 0 to 2^32 - 1.
    #[track_caller]
    pub fn new(
        ids: impl IntoIterator<Item = i64>,
        streams: usize,
        steps: usize,
        names: [&str; 2],
    ) -> Result<Self> {
        Self::try_new(ids.into_iter().map(Ok), streams, steps, names)
    }

    /// Cuts a text as [`Self::new`] does, but an item of the iterator `ids` may be an error. The ids may be made while
    /// the text is read, so that the whole text is never in memory.
    ///
    /// ```
    /// use unpadded::data::{Continuous, Limits, Tokenizer, Vocabulary};
    /// let (cut, text) = (Tokenizer::characters(), "to be or not to be");
    /// let characters = Vocabulary::of(cut.tokens(text), &Limits::default())?;
    /// let ids = cut.tokens(text).map(|token| characters.lookup(&token));
    /// let data = Continuous::try_new(ids, 2, 4, ["x", "y"])?;
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::new`] does, or with the first error among the ids.
    #[track_caller]
    pub fn try_new(
        ids: impl IntoIterator<Item = Result<i64>>,
        streams: usize,
        steps: usize,
        names: [&str; 2],
    ) -> Result<Self> {
        let mut held = HeldIds::default();
        let mut fingerprint = Fingerprint::default();
        for id in numbered(ids) {
            let id = id.at_caller()?;
            fingerprint = fingerprint.number(u64::from(id));
            held.push(id).at_caller()?;
        }
        Self::of(held.end(), fingerprint, streams, steps, names)
    }

    /// Cuts a text that may be larger than memory, as [`Self::try_new`] does. A text of more than `window` ids is
    /// written to a temporary file, and each batch is read from the file. The file is in the folder for temporary files
    /// (`TMPDIR`), and is removed when the data is dropped. Every id must be less than `below`, which decides whether
    /// an id takes one, two or four bytes in the file.
    ///
    /// ```
    /// use unpadded::data::{Continuous, Data};
    /// let in_memory = Continuous::new((0..1000).collect::<Vec<i64>>(), 2, 3, ["x", "y"])?;
    /// let in_file = Continuous::windowed((0..1000).map(Ok), (100, 1000), 2, 3, ["x", "y"])?;
    /// assert_eq!(in_file.fingerprint(), in_memory.fingerprint());
    /// let batch = |streamed: &Continuous| streamed.batches(None, 7).and_then(|mut batches| batches.next().transpose());
    /// assert_eq!(batch(&in_file)?, batch(&in_memory)?);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails as [`Self::try_new`] does. Also fails if an id is not less than `below`, or if the temporary file cannot be
    /// written.
    #[track_caller]
    pub fn windowed(
        ids: impl IntoIterator<Item = Result<i64>>,
        (window, below): (usize, usize),
        streams: usize,
        steps: usize,
        names: [&str; 2],
    ) -> Result<Self> {
        let read = || -> Result<(Ids, Fingerprint)> {
            let (mut held, mut fingerprint, mut file) = (HeldIds::default(), Fingerprint::default(), None);
            for id in numbered(ids) {
                let id = id?;
                fingerprint = fingerprint.number(u64::from(id));
                let file = match &mut file {
                    None if held.len() < window => {
                        held.push(id)?;
                        continue;
                    }
                    None => {
                        let mut begun = Spilling::new(below)?;
                        let ids = std::mem::take(&mut held);
                        ids.narrow
                            .into_iter()
                            .map(u32::from)
                            .chain(ids.wide)
                            .try_for_each(|id| begun.push(id))?;
                        file.insert(begun)
                    }
                    Some(file) => file,
                };
                file.push(id)?;
            }
            let ids = match file {
                None => held.end(),
                Some(file) => Ids::InFile(Arc::new(file.end()?)),
            };
            Ok((ids, fingerprint))
        };
        let (ids, fingerprint) = read().at_caller()?;
        Self::of(ids, fingerprint, streams, steps, names)
    }

    #[track_caller]
    fn of(
        ids: Ids,
        fingerprint: Fingerprint,
        streams: usize,
        steps: usize,
        names: [&str; 2],
    ) -> Result<Self> {
        for (what, number) in [("streams of a text", streams), ("steps of a window", steps)] {
            if number == 0 {
                return Err(Error::new(what, "at least 1", "0"));
            }
        }
        if names[0] == names[1] {
            return Err(Error::new("names of feeds", "two different names", format!("`{}` twice", names[0])));
        }
        if ids.len() <= streams {
            let expected = format!("more ids than its {streams} streams");
            return Err(Error::new("text", expected, ids.len().to_string()));
        }
        let f = fingerprint.number(streams as u64).number(steps as u64).text(names[0]).text(names[1]);
        let (names, fingerprint) = (names.map(str::to_owned), f.finish());
        Ok(Self { ids, streams, steps, names, fingerprint, caller: Location::caller() })
    }

    /// The length of the longest stream: the number of its ids that have a target.
    fn longest(&self) -> usize {
        self.ids.len().saturating_sub(1).div_ceil(self.streams)
    }

    /// The position in the text at which stream `s` begins. If the ids cannot be divided evenly, the first streams
    /// have one id more than the later streams.
    fn start(&self, s: usize) -> usize {
        let pairs = self.ids.len() - 1;
        s * (pairs / self.streams) + s.min(pairs % self.streams)
    }

    fn batch(&self, k: usize) -> Result<Batch> {
        let from = k.saturating_mul(self.steps);
        let mut lengths = reserve::vector(self.streams, "sequences of a batch")?;
        let most = self.steps.saturating_mul(self.streams).min(self.ids.len());
        let (mut x, mut y) = (reserve::vector(most, "batch of ids")?, reserve::vector(most, "batch of ids")?);
        let mut ids = reserve::vector(self.steps.saturating_add(1).min(self.ids.len()), "ids of a text")?;
        for s in 0..self.streams {
            let (start, end) = (self.start(s), self.start(s + 1));
            let first = start.saturating_add(from).min(end);
            let last = first.saturating_add(self.steps).min(end);
            self.ids.read(first..last + 1, &mut ids)?;
            let (Some(given), Some(next)) = (ids.get(..last - first), ids.get(1..)) else { continue };
            x.extend_from_slice(given);
            y.extend_from_slice(next);
            lengths.push(last - first);
        }
        let lod = Lod::from_lengths1(&lengths)?;
        let (tokens, longest) = (x.len(), lengths.iter().copied().max().unwrap_or(0));
        let value = |name: &String, ids: Vec<i64>| {
            Variable::sequences(Dense::from_vec(&[tokens], ids)?, Arc::clone(&lod)).map(|v| (name.clone(), v))
        };
        let values = vec![value(&self.names[0], x)?, value(&self.names[1], y)?];
        let first = (k as u64).wrapping_mul(self.streams as u64);
        let numbers = (0..self.streams as u64).map(|s| first.wrapping_add(s)).collect();
        let mut batch = Batch::of(values, numbers, tokens);
        batch.padded = self.streams.saturating_mul(longest);
        Ok(batch)
    }
}

/// The ids of a text, in memory or in a temporary file.
#[derive(Debug, Clone)]
enum Ids {
    Narrow(Arc<Vec<u16>>),
    Wide(Arc<Vec<u32>>),
    InFile(Arc<SpilledIds>),
}

/// The ids of a text while it is read: all in `narrow`, until an id needs more than 16 bits; from then on all in `wide`.
#[derive(Debug, Default)]
struct HeldIds {
    narrow: Vec<u16>,
    wide: Vec<u32>,
}

impl HeldIds {
    fn len(&self) -> usize {
        self.narrow.len() + self.wide.len()
    }

    fn push(&mut self, id: u32) -> Result<()> {
        const WHAT: &str = "ids of a text";
        if self.wide.is_empty() {
            if let Ok(id) = u16::try_from(id) {
                reserve::items(&mut self.narrow, 1, WHAT)?;
                self.narrow.push(id);
                return Ok(());
            }
            reserve::items(&mut self.wide, self.narrow.len() + 1, WHAT)?;
            self.wide.extend(std::mem::take(&mut self.narrow).into_iter().map(u32::from));
        }
        reserve::items(&mut self.wide, 1, WHAT)?;
        self.wide.push(id);
        Ok(())
    }

    /// Ends the text, and releases the unused capacity of the vectors.
    fn end(mut self) -> Ids {
        self.narrow.shrink_to_fit();
        self.wide.shrink_to_fit();
        if self.wide.is_empty() { Ids::Narrow(Arc::new(self.narrow)) } else { Ids::Wide(Arc::new(self.wide)) }
    }
}

impl Ids {
    fn len(&self) -> usize {
        match self {
            Self::Narrow(ids) => ids.len(),
            Self::Wide(ids) => ids.len(),
            Self::InFile(file) => file.len,
        }
    }

    /// Replaces the contents of the vector `ids` by the ids at the positions `places` of the text.
    fn read(&self, places: Range<usize>, ids: &mut Vec<i64>) -> Result<()> {
        ids.clear();
        match self {
            Self::Narrow(held) => {
                ids.extend(held.get(places).unwrap_or_default().iter().copied().map(i64::from));
                Ok(())
            }
            Self::Wide(held) => {
                ids.extend(held.get(places).unwrap_or_default().iter().copied().map(i64::from));
                Ok(())
            }
            Self::InFile(file) => file.read(places, ids),
        }
    }
}

/// Converts the ids to `u32`; an id that does not fit into `u32` is an error.
fn numbered(ids: impl IntoIterator<Item = Result<i64>>) -> impl Iterator<Item = Result<u32>> {
    ids.into_iter().enumerate().map(|(index, id)| {
        let id = id?;
        let wrong = |_| Error::new(format!("id {index} of a text"), "0 to 4294967295", id.to_string());
        u32::try_from(id).map_err(wrong)
    })
}

impl Data for Continuous {
    /// Returns the same batches in every epoch, because a shuffled order would break the state that a model passes from
    /// batch to batch.
    fn batches(&self, _epoch: Option<u64>, from: u64) -> Result<Batches> {
        let (text, count) = (self.clone(), self.longest().div_ceil(self.steps));
        let from = usize::try_from(from).unwrap_or(usize::MAX);
        Ok(Box::new((from..count).map(move |k| text.batch(k))))
    }

    fn made_at(&self) -> Option<&'static Location<'static>> {
        Some(self.caller)
    }

    fn may_wait(&self) -> bool {
        matches!(self.ids, Ids::InFile(_))
    }

    fn held_bytes(&self) -> usize {
        match &self.ids {
            Ids::Narrow(ids) => size_of_val(ids.as_slice()),
            Ids::Wide(ids) => size_of_val(ids.as_slice()),
            Ids::InFile(_) => 0,
        }
    }

    fn batch_count(&self) -> Option<u64> {
        Some(self.longest().div_ceil(self.steps) as u64)
    }

    fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_stream_goes_on_where_it_ended(n in 2usize..200, streams in 1usize..9, steps in 1usize..12, from in 0u64..9) {
            prop_assume!(n > streams);
            let ids: Vec<i64> = (0..n as i64).collect();
            let text = Continuous::new(ids, streams, steps, ["x", "y"]).unwrap();
            let batches: Vec<Batch> = text.batches(None, 0).unwrap().collect::<Result<_>>().unwrap();
            prop_assert_eq!(batches.len() as u64, text.batch_count().unwrap());
            let rest: Vec<Batch> = text.batches(Some(3), from).unwrap().collect::<Result<_>>().unwrap();
            prop_assert_eq!(&rest[..], batches.get(from as usize..).unwrap_or_default());
            let mut pieces = vec![Vec::new(); streams];
            for (k, batch) in batches.iter().enumerate() {
                let [(_, x), (_, y)] = &batch.values[..] else { panic!() };
                prop_assert!(x.lod() == y.lod() && x.batch_size() == streams && batch.tokens == x.rows());
                let next: Vec<i64> = x.as_slice::<i64>().unwrap().iter().map(|id| id + 1).collect();
                prop_assert_eq!(y.as_slice::<i64>().unwrap(), &next[..]);
                for (s, piece) in pieces.iter_mut().enumerate() {
                    let window = x.slice_sequences(s..s + 1).unwrap();
                    prop_assert!(window.rows() == steps || k + 1 == batches.len());
                    piece.extend_from_slice(window.as_slice::<i64>().unwrap());
                }
                prop_assert!(batch.padded >= batch.tokens && batch.padded - batch.tokens < streams);
            }
            let lengths = pieces.iter().map(Vec::len);
            prop_assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            prop_assert!(pieces.concat().into_iter().eq(0..n as i64 - 1));
        }
    }

    #[test]
    fn what_cannot_be_cut_is_refused() {
        let streamed = |n: i64, streams, steps, names| {
            Continuous::new((0..n).collect::<Vec<_>>(), streams, steps, names).unwrap_err().to_string()
        };
        assert_eq!(streamed(3, 3, 1, ["x", "y"]), "text: expected more ids than its 3 streams, got 3");
        assert_eq!(streamed(3, 0, 1, ["x", "y"]), "streams of a text: expected at least 1, got 0");
        assert_eq!(streamed(3, 1, 0, ["x", "y"]), "steps of a window: expected at least 1, got 0");
        assert_eq!(
            streamed(3, 1, 1, ["x", "x"]),
            "names of feeds: expected two different names, got `x` twice"
        );
        for id in [-1, 1 << 32] {
            let error = Continuous::new([1, id, 2], 1, 1, ["x", "y"]).unwrap_err().to_string();
            assert_eq!(error, format!("id 1 of a text: expected 0 to 4294967295, got {id}"));
        }
        let unknown = || Error::new("token", "a known one", "another");
        let failed = Continuous::try_new([Ok(1), Err(unknown())], 1, 1, ["x", "y"]);
        assert_eq!(failed.unwrap_err(), unknown());
        let whole = Continuous::new(vec![1; 9], 2, usize::MAX, ["x", "y"]).unwrap();
        assert_eq!(whole.batches(None, 0).unwrap().count(), 1);
        assert_eq!(whole.batches(None, u64::MAX).unwrap().count(), 0);
    }
}
