//! The trait that every transport between processes implements.

use std::time::Instant;

/// The connection of one rank to the ranks of a training, numbered from 0.
///
/// All ranks make the same calls in the same order. A communicator transports bytes and never adds up numbers: in a transport,
/// the order of additions, and so the bits of a sum, would depend on the number of ranks.
pub trait Communicator {
    /// The number of this rank, below [`Self::size`].
    fn rank(&self) -> usize;

    /// The number of ranks.
    fn size(&self) -> usize;

    /// Sends `messages[r]` to each rank r and waits for the message of each rank r, which replaces `received[r]`. Both slices
    /// have one entry per rank; the entries of this rank itself are left alone. A message of any length arrives whole, and the
    /// messages of two ranks arrive in the order of the calls.
    ///
    /// `doing` names the work that needs the exchange. A transport that has to end the process prints it.
    ///
    /// # Errors
    /// If a rank has [left](Self::leave), or messages are missing at the deadline. After an error, the communicator cannot be
    /// used again.
    fn exchange(
        &mut self,
        doing: &str,
        messages: &[&[u8]],
        received: &mut [Vec<u8>],
        deadline: Instant,
    ) -> Result<(), ExchangeFailure>;

    /// Reports the failure of this rank to all other ranks, without waiting for them. If another rank waits in an
    /// [exchange](Self::exchange), now or later, that exchange returns an error with this reason.
    fn leave(&mut self, reason: &str);
}

/// The reason why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExchangeFailure {
    /// A rank failed.
    Left {
        /// The rank that failed.
        rank: usize,
        /// The message of the failed rank.
        reason: String,
    },
    /// The deadline passed before all messages arrived.
    Late {
        /// The ranks whose messages are missing.
        ranks: Vec<usize>,
    },
}
