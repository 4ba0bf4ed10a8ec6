//! The exchange of messages between the ranks of a store, one exchange per call. Each message contains the kind of call that
//! its rank makes, and whether the call failed.

use super::key_value::Key;
use crate::error::{Error, ErrorKind, Result};
use crate::parallel::World;
use crate::tensor::{DType, Dense};

/// The kinds of calls in which the ranks of a store exchange messages. A message contains the kind as one byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Request {
    Init,
    SetRule,
    Push,
    Pull,
    AskRows,
    PullRows,
    Sum,
    EndRound,
    Save,
    Restore,
}

impl Request {
    fn name(self) -> &'static str {
        match self {
            Self::Init => "making a key",
            Self::SetRule => "setting the rule of a key",
            Self::Push => "pushing a gradient",
            Self::Pull => "pulling a value",
            Self::AskRows | Self::PullRows => "pulling rows",
            Self::Sum => "adding up numbers",
            Self::EndRound => "ending a round",
            Self::Save => "saving the store",
            Self::Restore => "restoring the store",
        }
    }

    fn of(number: u8) -> Option<Self> {
        use Request::{AskRows, EndRound, Init, Pull, PullRows, Push, Restore, Save, SetRule, Sum};
        let all = [Init, SetRule, Push, Pull, AskRows, PullRows, Sum, EndRound, Save, Restore];
        all.into_iter().find(|call| *call as u8 == number)
    }
}

/// The status of a rank in an exchange, which is the first byte of the rank's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Status {
    Fine,
    /// The current call of the rank failed.
    Fails,
    /// The gradient that the rank pushed last cannot be applied.
    Failed,
}

/// The number of bytes before the content of a message: one for the status, one for the call, four for the checksum of the key.
const HEAD: usize = 6;

/// The messages of this rank to the other ranks.
pub(super) enum Letters {
    /// One message, which is sent to all ranks.
    Same(Letter),
    /// One message for each rank, by rank; the message for this rank itself is not sent.
    Each(Vec<Letter>),
}

/// A message to another rank, with space for status, call and checksum at the start.
#[derive(Debug, Clone)]
pub(super) struct Letter(Vec<u8>);

impl Letter {
    pub(super) fn new() -> Self {
        Self(vec![0; HEAD])
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(super) fn put_numbers(&mut self, numbers: &Dense) -> Result<()> {
        numbers.write_numbers(|piece| {
            self.put(piece);
            Ok(())
        })
    }

    /// Appends row numbers of a value with `height` rows: four bytes per row number if `height` fits in a u32, else eight
    /// bytes.
    pub(super) fn put_rows(&mut self, ids: impl Iterator<Item = i64>, height: usize) {
        match id_size(height) {
            4 => ids.for_each(|id| self.put(&(id as u32).to_le_bytes())),
            _ => ids.for_each(|id| self.put(&id.to_le_bytes())),
        }
    }
}

/// A reader of the content of a rank's message.
pub(super) struct MessageReader<'a>(&'a [u8]);

impl<'a> MessageReader<'a> {
    pub(super) fn new(message: &'a [u8]) -> Self {
        Self(message.get(HEAD..).unwrap_or(&[]))
    }

    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let short =
            || Error::of(ErrorKind::Format, "message", format!("{count} bytes"), self.0.len().to_string());
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(short)?;
        self.0 = rest;
        Ok(taken)
    }

    pub(super) fn number<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N)?);
        Ok(bytes)
    }

    /// Reads the rest of the message as the numbers of a tensor with the given dtype and shape.
    pub(super) fn numbers(&mut self, dtype: DType, shape: &[usize]) -> Result<Dense> {
        let expected = shape.iter().product::<usize>() * dtype.size_of();
        if expected != self.left() {
            let expected = format!("{expected} bytes of {dtype}{shape:?}");
            return Err(Error::of(ErrorKind::Format, "message", expected, self.left().to_string()));
        }
        Dense::read_numbers(dtype, shape, |bytes| {
            bytes.copy_from_slice(self.take(bytes.len())?);
            Ok(())
        })
    }

    /// Reads `count` row numbers, which belong to a value with `height` rows.
    pub(super) fn rows(&mut self, count: usize, height: usize) -> Result<Vec<i64>> {
        let size = id_size(height);
        let bytes = self.take(count * size)?;
        let number =
            |id: &[u8]| id.iter().rev().fold(0u64, |number, &byte| number << 8 | u64::from(byte)) as i64;
        Ok(bytes.chunks_exact(size).map(number).collect())
    }
}

/// Returns the size in bytes of a row number in a message, for a value with `height` rows.
pub(super) fn id_size(height: usize) -> usize {
    if u32::try_from(height).is_ok() { 4 } else { 8 }
}

/// Exchanges the messages of one call; returns the messages of all ranks, by rank, and whether to apply the last pushed gradient.
///
/// `pushed` is the result of merging the last pushed gradient on this rank; `letters` are the messages of this rank, or the
/// error of the call. If one rank fails, all ranks return an error.
pub(super) fn meet(
    world: &World,
    (call, key): (Request, Option<&Key>),
    pushed: Result<()>,
    letters: Result<Letters>,
) -> (Result<Vec<Vec<u8>>>, bool) {
    let (status, failed, letters) = match (pushed, letters) {
        (Ok(()), Ok(letters)) => (Status::Fine, None, letters),
        (Ok(()), Err(error)) => (Status::Fails, Some(error), Letters::Same(Letter::new())),
        (Err(error), _) => (Status::Failed, Some(error), Letters::Same(Letter::new())),
    };
    let name = key.map(Key::to_string).unwrap_or_default();
    let sum = crc32fast::hash(name.as_bytes());
    let mut letters = match letters {
        Letters::Same(letter) => vec![letter],
        Letters::Each(letters) => letters,
    };
    for Letter(bytes) in &mut letters {
        let head = [status as u8, call as u8].into_iter().chain(sum.to_le_bytes());
        bytes.iter_mut().zip(head).for_each(|(to, byte)| *to = byte);
        if let Some(error) = &failed {
            bytes.extend_from_slice(format!("{error:#}").as_bytes());
        }
    }
    let bytes_of = |rank: usize| letters.get(rank).or(letters.first()).map_or(&[][..], |Letter(bytes)| bytes);
    let messages: Vec<&[u8]> = (0..world.size()).map(bytes_of).collect();
    let doing = if name.is_empty() { call.name().to_owned() } else { format!("{} of `{name}`", call.name()) };
    let all = match world.exchange(&doing, &messages) {
        Ok(mut all) => {
            all[world.rank()] = bytes_of(world.rank()).to_vec();
            all
        }
        Err(error) => return (Err(failed.unwrap_or(error)), false),
    };
    let own = [&[call as u8][..], &sum.to_le_bytes()].concat();
    let mut worst = (Status::Fine, None);
    for (rank, message) in all.iter().enumerate() {
        let (status, theirs) = message.split_at_checked(1).unwrap_or((&[], &[]));
        let theirs_call = theirs.first().and_then(|&number| Request::of(number));
        if !theirs.starts_with(&own) {
            let expected = format!(
                "{doing}, as on rank {}: all ranks make the same calls in the same order",
                world.rank()
            );
            let got = match theirs_call {
                Some(theirs) if theirs != call => theirs.name().to_owned(),
                _ => format!("{} of another key", call.name()),
            };
            let error =
                Error::of(ErrorKind::Program, format!("call of the store on rank {rank}"), expected, got);
            world.fail(&error);
            return (Err(error), false);
        }
        let status = [Status::Fine, Status::Fails, Status::Failed].into_iter().find(|s| status == [*s as u8]);
        let status = status.unwrap_or(Status::Failed);
        if status > worst.0 {
            worst = (status, Some(rank));
        }
    }
    let apply = worst.0 != Status::Failed;
    match (failed, worst.1) {
        (Some(own), _) => (Err(own), apply),
        (None, None) => (Ok(all), apply),
        (None, Some(rank)) => {
            let text = all.get(rank).map(|message| String::from_utf8_lossy(MessageReader::new(message).0));
            let got = format!("a failure of rank {rank}: {}", text.unwrap_or_default());
            (Err(Error::of(ErrorKind::Program, doing, "no failure on any rank", got)), apply)
        }
    }
}
