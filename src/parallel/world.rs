//! The world: the ranks of a training as one of them sees them.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use super::communicator::{Communicator, Lost};
use crate::error::{Error, ErrorKind, Result};

/// The longest wait for another rank unless [`World::deadline`] sets it.
const DEADLINE: Duration = Duration::from_secs(300);

/// The ranks of a training, as one rank sees them. A clone is the same world.
#[derive(Clone)]
pub struct World(Rc<RefCell<Inner>>);

struct Inner {
    communicator: Box<dyn Communicator>,
    deadline: Duration,
    traffic: Traffic,
    /// Why no further exchange is possible.
    failed: Option<Error>,
    received: Vec<Vec<u8>>,
}

/// What a rank has sent, received and waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Traffic {
    /// Exchanges with the other ranks.
    pub exchanges: u64,
    /// Bytes sent.
    pub sent: u64,
    /// Bytes received.
    pub received: u64,
    /// Time in exchanges: waiting for other ranks, and transport.
    pub waited: Duration,
}

impl World {
    /// The world that a communicator connects.
    pub fn new(communicator: impl Communicator + 'static) -> Self {
        let inner = Inner {
            received: vec![Vec::new(); communicator.size()],
            communicator: Box::new(communicator),
            deadline: DEADLINE,
            traffic: Traffic::default(),
            failed: None,
        };
        Self(Rc::new(RefCell::new(inner)))
    }

    /// Sets the deadline: the longest wait for the other ranks in one exchange (300 s by default). It has to exceed the longest time that a
    /// rank spends alone, as in saving a checkpoint.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.0.borrow_mut().deadline = deadline;
        self
    }

    /// The number of this rank, below [`Self::size`].
    pub fn rank(&self) -> usize {
        self.0.borrow().communicator.rank()
    }

    /// The number of ranks.
    pub fn size(&self) -> usize {
        self.0.borrow().communicator.size()
    }

    /// What this rank has exchanged so far.
    pub fn traffic(&self) -> Traffic {
        self.0.borrow().traffic
    }

    /// Sends `messages[r]` to each rank r and returns what each sent to this one; of this rank, its own message.
    ///
    /// # Errors
    /// If a rank has failed or does not answer in time; the message names the rank and what this one was `doing`. All later
    /// exchanges return that error.
    pub(crate) fn exchange(&self, doing: &str, messages: &[&[u8]]) -> Result<Vec<Vec<u8>>> {
        let mut inner = self.0.borrow_mut();
        let Inner { communicator, deadline, traffic, failed, received } = &mut *inner;
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
            communicator.leave(&format!("{error}"));
            return Err(error);
        }
        let mut all = std::mem::replace(received, vec![Vec::new(); messages.len()]);
        let lengths = |all: &[usize]| all.iter().sum::<usize>() as u64;
        let others = |r: &usize| *r != rank;
        traffic.sent +=
            lengths(&(0..messages.len()).filter(others).map(|r| messages[r].len()).collect::<Vec<_>>());
        traffic.received += lengths(&(0..all.len()).filter(others).map(|r| all[r].len()).collect::<Vec<_>>());
        if let (Some(own), Some(message)) = (all.get_mut(rank), messages.get(rank)) {
            *own = message.to_vec();
        }
        Ok(all)
    }

    /// Sends one message to every rank and returns what each rank sent, by rank.
    ///
    /// # Errors
    /// As [`Self::exchange`].
    pub(crate) fn gather(&self, doing: &str, message: &[u8]) -> Result<Vec<Vec<u8>>> {
        self.exchange(doing, &vec![message; self.size()])
    }

    /// Tells the other ranks that this one fails, once: whoever waits for it gets this error with the number of the rank.
    pub(crate) fn fail(&self, error: &Error) {
        let mut inner = self.0.borrow_mut();
        if inner.failed.is_none() {
            inner.failed = Some(error.clone());
            inner.communicator.leave(&error.to_string());
        }
    }
}

impl Drop for Inner {
    /// A rank that panics has failed.
    fn drop(&mut self) {
        if std::thread::panicking() && self.failed.is_none() {
            self.communicator.leave("it panicked");
        }
    }
}

impl Lost {
    /// The error of a rank that was `doing` something.
    pub(super) fn error(self, doing: &str, deadline: Duration) -> Error {
        let what = format!("exchange with the other processes while {doing}");
        match self {
            Lost::Left { rank, reason } => Error::of(
                ErrorKind::Io,
                what,
                "all of them to go on",
                format!("a failure of rank {rank}: {reason}"),
            ),
            Lost::Late { ranks } => {
                let ranks: Vec<String> = ranks.iter().map(usize::to_string).collect();
                let got = format!("none of rank {}", ranks.join(", "));
                let expected = format!("an answer within {:.1} s", deadline.as_secs_f64());
                Error::of(ErrorKind::Io, what, expected, got)
            }
        }
    }
}
