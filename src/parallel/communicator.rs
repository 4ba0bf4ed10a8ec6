//! The trait for a transport of bytes between processes.

use std::time::Instant;

/// The connection of one rank (process) to all ranks of a training; ranks are numbered from 0.
///
/// All ranks must make the same calls in the same order. A communicator transports bytes and never adds numbers. If a transport
/// added numbers, the order of the additions, and so the bits of a sum, would depend on the number of ranks.
pub trait Communicator {
    /// Returns the number of this rank, which is below [`Self::size`].
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn size(&self) -> usize;

    /// Sends `messages[r]` to each rank r, and waits for a message from each rank r, to store the message in
    /// `received[r]`. Both slices have one entry per rank; the entries of the calling rank are not used. Messages of
    /// any length arrive complete, and the messages from one rank to another arrive in the order of the calls.
    ///
    /// `doing` describes the work for which the messages are exchanged. A transport that must end the process prints `doing`.
    ///
    /// # Errors
    /// It is an error if a rank has [left](Self::leave) without sending its message, or if messages are still missing at the
    /// deadline. If a rank leaves after it has sent its message, this exchange succeeds, and the next one fails. After an error,
    /// the communicator cannot be used again.
    fn exchange(
        &mut self,
        doing: &str,
        messages: &[&[u8]],
        received: &mut [Vec<u8>],
        deadline: Instant,
    ) -> Result<(), ExchangeFailure>;

    /// Reports the failure of this rank to all other ranks, without waiting for them. Every other rank that waits for a message
    /// of this rank in an [exchange](Self::exchange), now or later, then gets an error with this reason.
    fn leave(&mut self, reason: &str);
}

/// The reason why an exchange failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExchangeFailure {
    /// Another rank failed and reported the failure.
    Left {
        /// The number of the rank that failed.
        rank: usize,
        /// The error message of the failed rank.
        reason: String,
    },
    /// Messages were still missing at the deadline.
    Late {
        /// The ranks whose messages are missing.
        ranks: Vec<usize>,
    },
}
