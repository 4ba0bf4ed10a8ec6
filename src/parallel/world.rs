//! The world: all ranks (processes) of a training, from the view of one rank.

use std::cell::RefCell;
use std::panic::Location;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::communicator::{Communicator, ExchangeFailure};
use crate::error::{Error, ErrorKind, Result};

/// The default deadline of an exchange, which [`World::deadline`] replaces.
const DEADLINE: Duration = Duration::from_secs(300);
/// The length in bytes from which the memory of a message is kept for later messages.
const LONG: usize = 1 << 16;
/// The longest allowed deadline; adding it to the current time cannot overflow the clock.
const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// All ranks (processes) of a training, from the view of one rank. Clones of a `World` refer to the same world.
#[derive(Clone)]
pub struct World(Rc<RefCell<Inner>>);

struct Inner {
    communicator: Box<dyn Communicator>,
    deadline: Duration,
    traffic: Traffic,
    /// The failure after which no further exchange is possible; `None` if there was none.
    failed: Option<Error>,
    received: Vec<Vec<u8>>,
    /// Buffers of earlier messages, which later messages reuse: fresh memory of the system would be zeroed first.
    unused: Vec<Vec<u8>>,
    /// The number of ranks that share CPU cores with this rank, including this rank.
    sharers: usize,
}

/// The traffic of a rank: bytes sent, bytes received, and time waited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// The number of exchanges with the other ranks.
    pub exchanges: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// The time spent in exchanges: waiting for other ranks, and transport.
    pub waited: Duration,
}

impl World {
    /// Makes a world whose ranks exchange messages through the given communicator. If the communicator's rank number is not
    /// below its size, every exchange returns an error.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        let (rank, size) = (communicator.rank(), communicator.size());
        let failed = (rank >= size).then(|| {
            let expected = format!("a number below its size, {size}");
            Error::of(ErrorKind::Program, "rank of a communicator", expected, rank.to_string())
        });
        let inner = Inner {
            received: vec![Vec::new(); size],
            unused: Vec::new(),
            communicator: Box::new(communicator),
            deadline: DEADLINE,
            traffic: Traffic::default(),
            failed,
            sharers: 1,
        };
        Self(Rc::new(RefCell::new(inner)))
    }

    /// Sets the deadline: the longest time to wait for the other ranks in one exchange (default: 300 s). The deadline must be
    /// longer than the longest time for which one rank works alone, for example to save a checkpoint.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.0.borrow_mut().deadline = deadline.min(LONGEST);
        self
    }

    /// Returns the number of this rank, which is below [`Self::size`].
    pub fn rank(&self) -> usize {
        self.0.borrow().communicator.rank()
    }

    /// Returns the number of ranks, at least 1.
    pub fn size(&self) -> usize {
        self.0.borrow().communicator.size().max(1)
    }

    /// Counts the ranks that share CPU cores with this rank. Processes of one host share all cores, unless they are bound to
    /// certain cores.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    #[cfg(feature = "mpi")]
    pub(crate) fn share_cores(self) -> Result<Self> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let status = read("/proc/self/status");
        let cores = status.lines().find(|line| line.starts_with("Cpus_allowed:")).unwrap_or_default();
        let here = format!("{}{cores}", read("/proc/sys/kernel/hostname")).into_bytes();
        let all = self.gather("start", here.clone())?;
        self.0.borrow_mut().sharers = all.iter().filter(|cores| **cores == here).count().max(1);
        Ok(self)
    }

    /// Returns the number of ranks that share CPU cores with this rank, including this rank.
    pub(crate) fn sharers(&self) -> usize {
        self.0.borrow().sharers
    }

    /// Returns the traffic of this rank so far: bytes sent, bytes received, and time waited.
    pub fn traffic(&self) -> Traffic {
        self.0.borrow().traffic
    }

    /// Sends `messages[r]` to each rank r, and returns one received message per rank; the entry of this rank is empty.
    ///
    /// # Errors
    /// It is an error if a rank has failed, or does not answer within the [deadline](Self::deadline). The error names the rank
    /// and `doing`, the work of this rank. After such an error, all later exchanges return the same error.
    pub(crate) fn exchange(&self, doing: &str, messages: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let mut inner = self.0.borrow_mut();
        let Inner { communicator, deadline, traffic, failed, received, unused, .. } = &mut *inner;
        if let Some(error) = failed {
            return Err(error.clone());
        }
        let (rank, began) = (communicator.rank(), Instant::now());
        let done = communicator.exchange(doing, messages, received, began + *deadline);
        traffic.waited += began.elapsed();
        traffic.exchanges += 1;
        if let Err(lost) = done {
            let error = lost.error(doing, *deadline);
            *failed = Some(error.clone());
            communicator.leave(&format!("{error:#}"));
            return Err(error);
        }
        let next = (0..messages.len()).map(|r| if r == rank { None } else { unused.pop() });
        let next = next.map(Option::unwrap_or_default).collect();
        let mut all = std::mem::replace(received, next);
        let lengths = |all: &[usize]| all.iter().sum::<usize>() as u64;
        let others = |r: &usize| *r != rank;
        traffic.sent +=
            lengths(&(0..messages.len()).filter(others).map(|r| messages[r].len()).collect::<Vec<_>>());
        traffic.received += lengths(&(0..all.len()).filter(others).map(|r| all[r].len()).collect::<Vec<_>>());
        all[rank].clear();
        Ok(all)
    }

    /// Returns an empty message, with the memory of an earlier one if there is any.
    pub(crate) fn message(&self) -> Vec<u8> {
        let mut message = self.0.borrow_mut().unused.pop().unwrap_or_default();
        message.clear();
        message
    }

    /// Keeps the memory of long messages that are no longer used for later messages.
    pub(crate) fn reuse(&self, messages: Vec<Vec<u8>>) {
        let most = 2 * self.size();
        let unused = &mut self.0.borrow_mut().unused;
        unused.extend(messages.into_iter().filter(|message| message.capacity() > LONG));
        unused.truncate(most);
    }

    /// Sends one message to every rank, and returns the messages of all ranks, by rank number.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(crate) fn gather(&self, doing: &str, message: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let mut all = self.exchange(doing, &vec![&message[..]; self.size()])?;
        all[self.rank()] = message;
        Ok(all)
    }

    /// Sends the bytes of rank 0 to every rank; every rank returns the bytes of rank 0. The argument `bytes` is ignored on all
    /// other ranks.
    ///
    /// # Errors
    /// It is an error if a rank has failed or does not answer within the [deadline](Self::deadline). The error names the rank and
    /// `doing`, the work of this rank.
    #[track_caller]
    pub fn broadcast(&self, doing: &str, bytes: &[u8]) -> Result<Vec<u8>> {
        let caller = Location::caller();
        let own = if self.rank() == 0 { bytes.to_vec() } else { Vec::new() };
        let all = self.gather(doing, own).map_err(|e| e.called(caller))?;
        Ok(all.into_iter().next().unwrap_or_default())
    }

    /// Sends this rank's result to every rank, and returns the results of all ranks. If any rank failed, every rank
    /// returns an error: a failed rank returns its own error, and each other rank returns the error of the failed rank
    /// with the lowest number.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(crate) fn agree(&self, doing: &str, mine: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let (mut message, failed) = reported(mine);
        message.push(failed.as_ref().map_or(0, code));
        let all = self.gather(doing, message)?;
        agreed(doing, all, failed)
    }

    /// Sends this rank's messages, one to each rank, or its error; everything else is as in [`Self::agree`]. The entry of this
    /// rank in the result is empty.
    ///
    /// # Errors
    /// As [`Self::exchange`], and the error of a rank that failed.
    pub(crate) fn agree_each(&self, doing: &str, mine: Result<Vec<Vec<u8>>>) -> Result<Vec<Vec<u8>>> {
        let (mut messages, failed) = match mine {
            Ok(messages) => (messages, None),
            Err(error) => (vec![format!("{error:#}").into_bytes(); self.size()], Some(error)),
        };
        let code = failed.as_ref().map_or(0, code);
        messages.iter_mut().for_each(|message| message.push(code));
        let mut all = self.exchange(doing, &messages.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
        self.reuse(messages);
        all[self.rank()].push(code);
        agreed(doing, all, failed)
    }

    /// Reports a failure of this rank to the other ranks, at most once; waiting ranks get this error with the number of this
    /// rank.
    pub(crate) fn fail(&self, error: &Error) {
        self.end(error.clone(), &format!("{error:#}"));
    }

    /// Leaves the world: every other rank that waits for this rank gets an error with the given reason. After a failure,
    /// `leave` does nothing.
    pub fn leave(&self, reason: &str) {
        let expected = "a process that has not left the world";
        self.end(Error::of(ErrorKind::Io, "exchange with the other processes", expected, reason), reason);
    }

    fn end(&self, error: Error, reason: &str) {
        let mut inner = self.0.borrow_mut();
        if inner.failed.is_none() {
            inner.failed = Some(error);
            inner.communicator.leave(reason);
        }
    }
}

impl Drop for Inner {
    /// Reports a panic of this rank to the other ranks as a failure.
    fn drop(&mut self) {
        if std::thread::panicking() && self.failed.is_none() {
            self.communicator.leave("it panicked");
        }
    }
}

/// Returns the message of a rank that has failed, or the rank's own message, and the error. The format `{:#}` omits the source
/// line, because the receiving process would print it as a separate line.
fn reported(mine: Result<Vec<u8>>) -> (Vec<u8>, Option<Error>) {
    match mine {
        Ok(message) => (message, None),
        Err(error) => (format!("{error:#}").into_bytes(), Some(error)),
    }
}

fn code(error: &Error) -> u8 {
    1 + KINDS.iter().position(|&kind| kind == error.kind()).unwrap_or_default() as u8
}

/// Returns the messages of all ranks without their codes, or the error of a rank that failed (this rank's own error first).
fn agreed(doing: &str, mut all: Vec<Vec<u8>>, failed: Option<Error>) -> Result<Vec<Vec<u8>>> {
    failed.map_or(Ok(()), Err)?;
    for (rank, message) in all.iter_mut().enumerate() {
        match message.pop() {
            Some(0) => {}
            Some(code) => {
                let kind = KINDS.get(usize::from(code) - 1).copied().unwrap_or_default();
                return Err(failure(kind, doing, rank, &String::from_utf8_lossy(message)));
            }
            None => return Err(failure(ErrorKind::Format, doing, rank, "it sent an empty message")),
        }
    }
    Ok(all)
}

/// All kinds of errors, in the order of their codes in messages. The last byte of a message of [`World::agree`] is 0 if the
/// rank succeeded; for an error, it is 1 plus the index of the error's kind.
const KINDS: [ErrorKind; 6] = [
    ErrorKind::Mismatch,
    ErrorKind::Program,
    ErrorKind::NotFinite,
    ErrorKind::Format,
    ErrorKind::Io,
    ErrorKind::Memory,
];

/// Returns the error that this rank reports for the failure of another rank.
fn failure(kind: ErrorKind, doing: &str, rank: usize, reason: &str) -> Error {
    let got = format!("a failure of rank {rank}: {reason}");
    Error::of(kind, doing, "every process to continue", got)
}

impl ExchangeFailure {
    /// Converts a failure into the error of a rank that waited in the exchange; `doing` describes the work of that rank.
    pub(super) fn error(self, doing: &str, deadline: Duration) -> Error {
        match self {
            ExchangeFailure::Left { rank, reason } => failure(ErrorKind::Io, doing, rank, &reason),
            ExchangeFailure::Late { ranks } => {
                let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
                let expected = format!("an answer of every process within {:.1} s", deadline.as_secs_f64());
                Error::of(ErrorKind::Io, doing, expected, format!("none of rank {}", ranks.join(", ")))
            }
        }
    }
}
