//! The trait that every transport between processes implements.

use std::time::Instant;

/// The connection of one rank to the ranks of a training, numbered from 0.
///
/// All ranks make the same calls in the same order. Numbers are never added up here: their sums would depend on the number of
/// ranks.
pub trait Communicator {
    /// The number of this rank, below [`Self::size`].
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Sends `messages[r]` to each rank r and waits for the message of each rank, which replaces `received[r]`. Both have an entry per
    /// rank; the entries of this rank itself are left alone. Messages of all lengths arrive whole, in the order of the calls.
    ///
    /// `doing` names the waiting work, for the message of a transport that has to end the process by itself.
    ///
    /// # Errors
    /// If a rank has [left](Self::leave), or messages are missing at the deadline. The communicator is of no further use then.
    fn exchange(
        &mut self,
        doing: &str,
        messages: &[&[u8]],
        received: &mut [Vec<u8>],
        deadline: Instant,
    ) -> Result<(), ExchangeFailure>;

    /// Reports the failure of this rank to all other ranks, without waiting for them: each waiting [exchange](Self::exchange),
    /// now or later, returns an error with this reason.
    fn leave(&mut self, reason: &str);
}

/// The reason why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExchangeFailure {
    /// A rank failed.
    Left {
        /// The rank that failed.
        rank: usize,
        /// Its own message.
        reason: String,
    },
    /// The deadline passed.
    Late {
        /// The ranks whose messages are missing.
        ranks: Vec<usize>,
    },
}
