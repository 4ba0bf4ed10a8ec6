//! Ranks that are threads of one process, for tests, and for simulations of lost messages and failing ranks.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::communicator::{Communicator, ExchangeFailure};
use crate::kernels::random::uniform01;

/// Returns the communicators of a world of threads, one per rank; each thread makes a [`World`](super::World) from one
/// communicator.
///
/// ```
/// use std::time::{Duration, Instant};
/// use unpadded::parallel::{Communicator, threads};
///
/// std::thread::scope(|scope| {
///     for mut rank in threads(2) {
///         scope.spawn(move || {
///             let message = format!("rank {}", rank.rank());
///             let mut received = vec![Vec::new(); 2];
///             let deadline = Instant::now() + Duration::from_secs(5);
///             rank.exchange("greeting", &[message.as_bytes(); 2], &mut received, deadline).unwrap();
///             assert_eq!(received[1 - rank.rank()], format!("rank {}", 1 - rank.rank()).into_bytes());
///         });
///     }
/// });
/// ```
pub fn threads(size: usize) -> Vec<ThreadRank> {
    ranks(size, None)
}

/// Returns the communicators of a world of threads with random faults, in simulated time.
///
/// Simulated time advances only while every living rank waits. Simulated time advances to the next arrival of a delayed
/// message; if no message is delayed, the deadlines of all waiting ranks expire at once. A simulation never waits for real
/// time, and equal seeds give equal faults.
pub fn simulated(size: usize, faults: Faults) -> Vec<ThreadRank> {
    ranks(size, Some(faults))
}

fn ranks(size: usize, faults: Option<Faults>) -> Vec<ThreadRank> {
    let state = State {
        mail: (0..size).map(|_| vec![VecDeque::new(); size]).collect(),
        presence: vec![Presence::Running; size],
        late: vec![false; size],
        now: 0,
        settled: faults.is_none(),
        left: Vec::new(),
    };
    let shared = Arc::new(ThreadExchange { state: Mutex::new(state), changed: Condvar::new() });
    (0..size).map(|rank| ThreadRank { rank, size, exchanges: 0, faults, shared: shared.clone() }).collect()
}

/// The faults of a simulation: for each kind of fault, the fraction (0 to 1) of messages or exchanges with this fault.
///
/// A fault depends only on the seed, the ranks and the number of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// The seed from which all faults are drawn.
    pub seed: u64,
    /// The fraction of messages that are delayed; the messages between two ranks stay in order.
    pub delays: f64,
    /// The fraction of messages that are lost.
    pub drops: f64,
    /// The fraction of exchanges in which a rank dies: it sends only some of its messages, and does not report a failure.
    pub deaths: f64,
}

/// The longest delay of a message, in units of simulated time.
const LONGEST: f64 = 8.0;

/// The random decisions that a simulation makes.
#[derive(Clone, Copy)]
enum Fault {
    Delay,
    Length,
    Drop,
    Death,
    Unsent,
}

impl Faults {
    fn draw(&self, fault: Fault, from: usize, to: usize, exchange: u64) -> f64 {
        uniform01(self.seed, [from as u32, to as u32, exchange as u32, fault as u32])
    }

    /// Returns the arrival time of a message that is sent at time `now`; `None` if the message is lost.
    fn arrival(&self, now: u64, from: usize, to: usize, exchange: u64) -> Option<u64> {
        if self.draw(Fault::Drop, from, to, exchange) < self.drops {
            return None;
        }
        let delayed = self.draw(Fault::Delay, from, to, exchange) < self.delays;
        let delay = 1.0 + self.draw(Fault::Length, from, to, exchange) * LONGEST;
        Some(now + if delayed { delay as u64 } else { 0 })
    }
}

/// The communicator of a rank that is a thread; [`threads`] and [`simulated`] make it.
pub struct ThreadRank {
    rank: usize,
    size: usize,
    /// The number of exchanges that this rank has started.
    exchanges: u64,
    faults: Option<Faults>,
    shared: Arc<ThreadExchange>,
}

struct ThreadExchange {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// The messages that were sent but not received: indexed by receiver, then by sender; the oldest message first.
    mail: Vec<Vec<VecDeque<Message>>>,
    presence: Vec<Presence>,
    /// The ranks whose simulated deadline has passed.
    late: Vec<bool>,
    now: u64,
    /// Whether waiting ranks can see that other ranks have failed or ended. In a simulation, this becomes true only when every
    /// living rank waits. Therefore the messages that a rank has received before it sees a failure depend on the seed alone.
    settled: bool,
    /// The ranks that have left, each with its reason, in order: the first one failed, and later ones may have failed because of
    /// it.
    left: Vec<(usize, String)>,
}

#[derive(Clone)]
struct Message {
    exchange: u64,
    arrival: u64,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq)]
enum Presence {
    Running,
    /// The rank is in an exchange and waits for messages that have not arrived.
    Waiting,
    /// The rank has ended: its communicator was dropped.
    Ended,
    /// The simulation has ended the rank, and the other ranks got no report.
    Dead,
}

impl ThreadExchange {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Wakes every waiting rank.
    fn wake(&mut self, changed: &Condvar) {
        for presence in self.presence.iter_mut().filter(|presence| **presence == Presence::Waiting) {
            *presence = Presence::Running;
        }
        changed.notify_all();
    }

    fn set(&mut self, rank: usize, now: Presence) {
        if let Some(presence) = self.presence.get_mut(rank) {
            *presence = now;
        }
    }

    /// Returns the queue of messages from the rank `from` to the rank `to`.
    fn queue(&mut self, to: usize, from: usize) -> Option<&mut VecDeque<Message>> {
        self.mail.get_mut(to)?.get_mut(from)
    }

    /// Takes the message of this exchange from the rank `from` to the rank `to`; `None` if it has not arrived.
    fn take(&mut self, to: usize, from: usize, exchange: u64) -> Option<Vec<u8>> {
        let now = self.now;
        let queue = self.queue(to, from)?;
        let fits = |message: &Message| message.exchange == exchange && message.arrival <= now;
        if queue.front().is_some_and(fits) { queue.pop_front().map(|message| message.bytes) } else { None }
    }

    /// Returns whether the rank `from` has ended without sending its message of this exchange to the rank `to`.
    fn ended(&mut self, to: usize, from: usize, exchange: u64) -> bool {
        let sent = self
            .queue(to, from)
            .is_some_and(|queue| queue.iter().any(|message| message.exchange == exchange));
        self.presence.get(from) == Some(&Presence::Ended) && !sent
    }

    /// If every living rank waits, advances a simulation: makes failures visible to the ranks, or advances the time. Returns
    /// whether the simulation has advanced.
    fn advance(&mut self) -> bool {
        if self.presence.contains(&Presence::Running) {
            return false;
        }
        let broken = !self.left.is_empty() || self.presence.contains(&Presence::Ended);
        self.settled = broken && !self.settled;
        if self.settled {
            return true;
        }
        let waiting: Vec<usize> = (0..self.late.len())
            .filter(|&rank| self.presence.get(rank) == Some(&Presence::Waiting))
            .collect();
        let to_them = waiting.iter().filter_map(|&rank| self.mail.get(rank)).flatten().flatten();
        match to_them.map(|message| message.arrival).filter(|&arrival| arrival > self.now).min() {
            Some(arrival) => self.now = arrival,
            None => {
                for rank in waiting {
                    if let Some(late) = self.late.get_mut(rank) {
                        *late = true;
                    }
                }
            }
        }
        true
    }
}

impl ThreadRank {
    /// Sends the messages of an exchange, without the messages that the simulation loses. Returns whether this rank is still
    /// alive after sending.
    fn send(&self, messages: &[&[u8]], exchange: u64) -> bool {
        let others = messages.iter().enumerate().take(self.size).filter(|(to, _)| *to != self.rank);
        let mut copies: Vec<(usize, Vec<u8>)> = others.map(|(to, bytes)| (to, bytes.to_vec())).collect();
        let dies =
            |faults: &Faults| faults.draw(Fault::Death, self.rank, self.rank, exchange) < faults.deaths;
        let dying = self.faults.filter(dies);
        if let Some(faults) = dying {
            copies.retain(|(to, _)| faults.draw(Fault::Unsent, self.rank, *to, exchange) < 0.5);
        }
        let mut state = self.shared.lock();
        for (to, bytes) in copies {
            let now = state.now;
            let arrival = match &self.faults {
                Some(faults) => faults.arrival(now, self.rank, to, exchange),
                None => Some(now),
            };
            if let (Some(arrival), Some(queue)) = (arrival, state.queue(to, self.rank)) {
                let arrival = queue.back().map_or(arrival, |last| arrival.max(last.arrival));
                queue.push_back(Message { exchange, arrival, bytes });
            }
        }
        if dying.is_some() {
            state.set(self.rank, Presence::Dead);
        }
        state.settled = self.faults.is_none();
        state.wake(&self.shared.changed);
        dying.is_none()
    }
}

impl Communicator for ThreadRank {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &mut self,
        _doing: &str,
        messages: &[&[u8]],
        received: &mut [Vec<u8>],
        deadline: Instant,
    ) -> Result<(), ExchangeFailure> {
        let (rank, exchange) = (self.rank, self.exchanges);
        self.exchanges += 1;
        let died = || ExchangeFailure::Left { rank, reason: "the simulation ended it".to_owned() };
        if self.shared.lock().presence.get(rank) == Some(&Presence::Dead) || !self.send(messages, exchange) {
            return Err(died());
        }
        let mut missing: Vec<usize> = (0..self.size).filter(|&from| from != rank).collect();
        let mut state = self.shared.lock();
        loop {
            missing.retain(|&from| match (state.take(rank, from, exchange), received.get_mut(from)) {
                (Some(bytes), Some(index)) => {
                    *index = bytes;
                    false
                }
                (bytes, _) => bytes.is_none(),
            });
            let late = state.late.get(rank) == Some(&true);
            let lacks = missing.iter().any(|from| state.left.iter().any(|(rank, _)| rank == from));
            let failed = state.left.first().filter(|_| lacks && state.settled && !late).cloned();
            let ended = missing.iter().copied().find(|&from| state.ended(rank, from, exchange));
            let lost = if missing.is_empty() {
                None
            } else if let Some((rank, reason)) = failed {
                Some(ExchangeFailure::Left { rank, reason })
            } else if let Some(rank) = ended.filter(|_| state.settled && !late) {
                Some(ExchangeFailure::Left { rank, reason: "it ended before this exchange".to_owned() })
            } else if late || Instant::now() >= deadline {
                Some(ExchangeFailure::Late { ranks: missing.clone() })
            } else {
                state.set(rank, Presence::Waiting);
                if self.faults.is_some() && state.advance() {
                    state.wake(&self.shared.changed);
                    continue;
                }
                let left = deadline.saturating_duration_since(Instant::now());
                let waited = self.shared.changed.wait_timeout(state, left);
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            };
            state.set(rank, Presence::Running);
            return lost.map_or(Ok(()), Err);
        }
    }

    fn leave(&mut self, reason: &str) {
        let mut state = self.shared.lock();
        if state.presence.get(self.rank) != Some(&Presence::Dead) {
            state.left.push((self.rank, reason.to_owned()));
            state.wake(&self.shared.changed);
        }
    }
}

impl Drop for ThreadRank {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if state.presence.get(self.rank) != Some(&Presence::Dead) {
            state.set(self.rank, Presence::Ended);
            state.wake(&self.shared.changed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::parallel::World;

    /// If the thread of a rank panics, every rank that waits for it gets an error with the panic's text, now and in later calls.
    #[test]
    fn a_panic_is_a_failure() {
        let mut ranks = threads(3);
        let panics = ranks.pop().unwrap();
        let ended = std::thread::spawn(move || {
            let _world = World::new(panics);
            panic!("this test means it");
        });
        let message: Vec<String> = std::thread::scope(|scope| {
            let wait = |rank| {
                let world = World::new(rank).deadline(Duration::from_secs(60));
                let error = world.gather("summing gradients", vec![1]).unwrap_err().to_string();
                assert_eq!(world.gather("again", vec![1]).unwrap_err().to_string(), error);
                error
            };
            let waiting: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || wait(rank))).collect();
            waiting.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ended.join().is_err());
        for message in message {
            assert!(
                message.contains("summing gradients") && message.contains("rank 2: it panicked"),
                "{message}"
            );
        }
    }

    /// A world counts the bytes sent to and received from other ranks, but not a message from a rank to itself.
    #[test]
    fn a_world_counts_its_bytes() {
        std::thread::scope(|scope| {
            for rank in threads(2) {
                scope.spawn(move || {
                    let world = World::new(rank);
                    let own = vec![7; 3 + world.rank()];
                    let all = world.gather("counting", own.to_vec()).unwrap();
                    assert_eq!(all, [vec![7; 3], vec![7; 4]]);
                    let traffic = world.traffic();
                    let (sent, received) = (own.len() as u64, 7 - own.len() as u64);
                    assert_eq!((traffic.exchanges, traffic.sent, traffic.received), (1, sent, received));
                });
            }
        });
    }
}
