//! Ranks that are MPI processes (the feature `mpi`), started by `mpirun`.
//!
//! An exchange begins with one short message to each rank. The short message contains the length of the full message,
//! and the full message itself if it is short. MPI sends a short message without waiting for the receiver. A long
//! message follows in pieces, but only after the other rank's short message has arrived. Therefore no long send waits
//! for a late rank. This matters because MPI cannot cancel a send. All MPI requests are polled: no MPI call blocks.
//!
//! If an exchange fails on a rank, the rank sends the reason to all other ranks. The failed rank then receives the pending
//! messages of the other ranks, until each of these ranks has reported a failure, too. If requests are still pending after
//! `GRACE`, because another process has stopped, this process prints the error to standard error and ends by `MPI_Abort`.
//!
//! The start and the end of MPI are the only calls that wait inside the MPI library, for all processes. A call that waits
//! cannot be ended, so a [watchdog](watched) ends the process at the deadline.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use mpi::environment::Universe;
use mpi::point_to_point::{Destination as _, Source as _};
use mpi::request::{LocalScope, Request, StaticScope};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::Equivalence as _;
use mpi::{Tag, Threading};

use super::communicator::{Communicator, ExchangeFailure};
use super::world::World;
use crate::error::{AtCaller, Error, ErrorKind, Result};

const DATA: Tag = 1;
const FAILURE: Tag = 2;
/// The message tag of the final exchange, after which all ranks end MPI.
const ENDING: Tag = 3;

/// The maximum size in bytes of a message that is sent together with its length. Open MPI completes a send of up to 256 bytes
/// at once, even if the receiver has stopped.
const SHORT: usize = 200;
/// The maximum size in bytes of a failure's reason in a message. The reason and the rank number together stay below 4 KiB,
/// which every MPI transport sends without waiting for the receiver.
const REASON: usize = 3000;
/// The size in bytes of a message's length, a u64.
const LENGTH: usize = 8;
/// The size in bytes of one piece of a long message. Over TCP, MPI sends a piece of this size at once: the default limit is 64
/// KiB. MPI first asks the receiver before it sends a larger piece. The request queues behind the data of the other rank, so
/// only one direction transmits at a time (1.8 times as slow, measured at 100 Mbit/s).
const PIECE: usize = 48 << 10;
/// The maximum number of pieces of a message: each polling round checks every piece.
const MOST_PIECES: usize = 512;

/// If a wait has no progress for the time `SPIN`, the rank begins to sleep, since ranks may share cores. A sleep takes 1/128 of
/// the time without progress, so that it delays an exchange by less than 1 %, but at least `NAP` and at most `LONGEST_NAP`.
const SPIN: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_micros(30);
const LONGEST_NAP: Duration = Duration::from_millis(5);
/// The time limit for pending requests after an exchange has failed.
const GRACE: Duration = Duration::from_secs(1);
/// The time for which a failed exchange still receives messages that other ranks may have begun to send.
const LINGER: Duration = Duration::from_millis(50);

/// A rank that is an MPI process. A process has at most one `Mpi`, and only the thread of that `Mpi` calls MPI.
///
/// Dropping an `Mpi` ends MPI, once all ranks have dropped their `Mpi`. If a rank has failed, the drop does not wait for the
/// other ranks, and leaves MPI running.
pub struct Mpi {
    /// The MPI environment of the process. Dropping the environment ends MPI and waits for all ranks, so it is never dropped
    /// after a failure.
    universe: Option<Universe>,
    world: SimpleCommunicator,
    rank: usize,
    size: usize,
    failed: bool,
    /// The failures that other ranks have reported so far: the reporting rank, and the failure.
    reports: Vec<(usize, ExchangeFailure)>,
    /// The time limit of the most recent exchange; before the first exchange, the time limit for the start of MPI. It is also
    /// the limit for the final exchange, after which all ranks end MPI, and for the end of MPI.
    patience: Duration,
}

impl World {
    /// Returns the world of the processes that `mpirun` started; without `mpirun`, a world of one process. The deadline applies
    /// to the start of MPI, to each exchange (until [`World::deadline`] changes it), and to the end of MPI.
    ///
    /// If a process has not started MPI by the deadline, all other processes end, see [`Mpi::new`].
    ///
    /// # Errors
    /// It is an error if [`Mpi::new`] fails, or a process that has started MPI does not answer within the deadline.
    #[track_caller]
    pub fn mpi(deadline: Duration) -> Result<Self> {
        Self::new(Mpi::new(deadline)?).deadline(deadline).share_cores().at_caller()
    }
}

/// Runs a call that waits inside the MPI library for all processes, and returns its result. If the call has not returned by
/// the deadline, a thread prints an error and ends this process with exit code 1; `mpirun` then ends all other processes.
///
/// # Errors
/// It is an error if the system refuses the thread.
fn watched<T>(doing: &'static str, deadline: Duration, call: impl FnOnce() -> T) -> Result<T> {
    let (running, ended) = channel::<()>();
    let watch = move || {
        if ended.recv_timeout(deadline) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        // Before the start of MPI, only the launcher's environment has the rank.
        let rank = ["PMIX_RANK", "PMI_RANK"].into_iter().find_map(|name| std::env::var(name).ok());
        let message = format!(
            "rank {}: {doing}: expected every process to reach it within {:.1} s, got a wait for at least one process: a process \
             is or was stopped, or a host or the network between the hosts hangs; `ps -eo pid,stat,args` on each host prints \
             state T for a stopped process\n",
            rank.as_deref().unwrap_or("unknown"),
            deadline.as_secs_f64()
        );
        // One write, since several ranks write at the same time.
        let _ = std::io::stderr().write_all(message.as_bytes());
        // Functions that run at a usual exit belong to the MPI library, too, and might wait for the call.
        signal_hook::low_level::exit(1);
    };
    std::thread::Builder::new().name("mpi deadline".to_owned()).spawn(watch).map_err(|error| {
        Error::of(ErrorKind::Io, doing, "a thread that watches the deadline", error.to_string())
    })?;
    let result = call();
    drop(running);
    Ok(result)
}

impl Mpi {
    /// Starts MPI in this process, once per process, and waits until all processes have started MPI.
    ///
    /// If a process has not started MPI by the deadline, for example because it is stopped, this process cannot continue: the
    /// MPI library does not return. This process then prints an error to standard error and ends with exit code 1, without
    /// running destructors; `mpirun` ends all other processes. The same applies to the end of MPI.
    ///
    /// # Errors
    /// It is an error if MPI was started before, the MPI library cannot be used in a process with threads, or the system
    /// refuses a thread.
    #[track_caller]
    pub fn new(deadline: Duration) -> Result<Self> {
        let start = || mpi::initialize_with_threading(Threading::Funneled);
        let Some((universe, threading)) = watched("start of MPI", deadline, start).at_caller()? else {
            let got = "a process in which MPI was started before";
            return Err(Error::of(ErrorKind::Io, "start of MPI", "one start per process", got));
        };
        if threading < Threading::Funneled {
            let expected = "a library of MPI for processes with threads (MPI_THREAD_FUNNELED)";
            return Err(Error::of(ErrorKind::Io, "start of MPI", expected, format!("{threading:?}")));
        }
        let world = universe.world();
        let number = |n: i32| usize::try_from(n).unwrap_or_default();
        let (rank, size) = (number(world.rank()), number(world.size()));
        Ok(Self {
            universe: Some(universe),
            world,
            rank,
            size,
            failed: false,
            reports: Vec::new(),
            patience: deadline,
        })
    }

    fn process(&self, rank: usize) -> mpi::topology::Process<'_> {
        self.world.process_at_rank(i32::try_from(rank).unwrap_or_default())
    }

    /// Receives the next report of a failure: the reporting rank, and the failure. `None` if no report has arrived.
    fn failure(&self) -> Option<(usize, ExchangeFailure)> {
        let (message, status) = self.world.any_process().immediate_matched_probe_with_tag(FAILURE)?;
        let teller = usize::try_from(status.source_rank()).unwrap_or_default();
        let length = usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or_default();
        // The receive buffer is leaked, since MPI may write to it after this function has returned.
        let report: &'static mut [u8] = Box::leak(vec![0; length].into_boxed_slice());
        let mut request = message.immediate_matched_receive_into(StaticScope, report);
        let limit = Instant::now() + GRACE;
        let report = loop {
            match request.test_with_data() {
                Ok((_, report)) => break report.split_first_chunk::<LENGTH>(),
                Err(pending) if Instant::now() >= limit => {
                    std::mem::forget(pending);
                    break None;
                }
                Err(pending) => request = pending,
            }
            std::thread::yield_now();
        };
        let (rank, reason) = match report {
            Some((rank, reason)) => {
                let rank = usize::try_from(u64::from_le_bytes(*rank)).unwrap_or(teller);
                (rank, String::from_utf8_lossy(reason).into_owned())
            }
            None => (teller, "its reason did not arrive".to_owned()),
        };
        Some((teller, ExchangeFailure::Left { rank, reason }))
    }

    /// Reports the failure of a rank to all other ranks.
    fn tell(&self, rank: usize, reason: &str) {
        let mut end = reason.len().min(REASON);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        let reason = reason.as_bytes().get(..end).unwrap_or_default();
        // The send buffer is leaked, since MPI may read it after this function has returned.
        let report: &'static [u8] =
            Box::leak([&(rank as u64).to_le_bytes(), reason].concat().into_boxed_slice());
        let others = (0..self.size).filter(|&r| r != self.rank);
        let send = |r| self.process(r).immediate_send_with_tag(StaticScope, report, FAILURE);
        let mut sends: Vec<_> = others.map(send).collect();
        let limit = Instant::now() + GRACE / 4;
        while !sends.is_empty() && Instant::now() < limit {
            sends = sends.into_iter().filter_map(|send| send.test().err()).collect();
            std::thread::yield_now();
        }
        sends.into_iter().for_each(std::mem::forget);
    }

    /// Runs one exchange; all its messages have the MPI tag `tag`.
    fn meet(
        &mut self,
        tag: Tag,
        doing: &str,
        messages: &[&[u8]],
        received: &mut [Vec<u8>],
        deadline: Instant,
    ) -> std::result::Result<(), ExchangeFailure> {
        let patience = deadline.saturating_duration_since(Instant::now());
        self.patience = patience;
        let own: Vec<&[u8]> = (0..self.size).map(|r| messages.get(r).copied().unwrap_or_default()).collect();
        let heads: Vec<Vec<u8>> = own.iter().copied().map(head).collect();
        let mut places = vec![[0; LENGTH + SHORT]; self.size];
        let reports = std::mem::take(&mut self.reports);
        let (done, reports) = mpi::request::scope(|scope| {
            let mut meeting = Meeting {
                ranks: self,
                scope,
                tag,
                peers: Vec::new(),
                pending: Vec::new(),
                lost: None,
                reports,
            };
            let rooms = places.iter_mut().zip(received.iter_mut());
            for (rank, ((own, head), (index, body))) in own.iter().zip(&heads).zip(rooms).enumerate() {
                if rank != self.rank {
                    meeting.send(rank, head);
                    meeting.peers.push(Peer { rank, stage: Stage::Awaited(index, body), own });
                }
            }
            let text = |lost: &ExchangeFailure| lost.clone().error(doing, patience).to_string();
            let mut progress = Instant::now();
            while !meeting.peers.is_empty() || !meeting.pending.is_empty() {
                meeting.reports.extend(self.failure());
                // Before the poll, which would begin to send a long message.
                if meeting.lost.is_none()
                    && let Some(lost) = meeting.unsendable()
                {
                    meeting.lose(lost, text);
                }
                let moved = meeting.poll();
                let now = Instant::now();
                if moved {
                    progress = now;
                    continue;
                }
                let late = || (now >= deadline).then(|| ExchangeFailure::Late { ranks: meeting.missing() });
                if meeting.lost.is_none()
                    && let Some(lost) = meeting.left(now - progress).or_else(|| meeting.ended()).or_else(late)
                {
                    meeting.lose(lost, text);
                }
                match &meeting.lost {
                    Some((_, since)) if meeting.parted(now - *since) => break,
                    Some((lost, since)) if now - *since >= GRACE => {
                        eprintln!("rank {}: {}", self.rank, text(lost));
                        self.world.abort(1);
                    }
                    _ if now - progress < SPIN => std::thread::yield_now(),
                    _ => std::thread::sleep(((now - progress) / 128).clamp(NAP, LONGEST_NAP)),
                }
            }
            (meeting.lost.map_or(Ok(()), |(lost, _)| Err(lost)), meeting.reports)
        });
        self.reports = reports;
        done
    }
}

/// The state of an exchange between this rank and all other ranks, while it runs.
struct Meeting<'a, 's> {
    ranks: &'s Mpi,
    scope: &'s LocalScope<'a>,
    tag: Tag,
    /// The ranks whose messages have not arrived completely.
    peers: Vec<Peer<'a, 's>>,
    /// The pending MPI requests outside `peers`, each with the rank that it sends to or receives from.
    pending: Vec<(usize, Bytes<'a, 's>)>,
    /// The reason why the exchange has failed, and the time at which the failure was detected; `None` if it has not failed.
    lost: Option<(ExchangeFailure, Instant)>,
    /// See [`Mpi::reports`]. A rank that has reported a failure sends no more messages.
    reports: Vec<(usize, ExchangeFailure)>,
}

type Bytes<'a, 's> = Request<'a, [u8], &'s LocalScope<'a>>;

struct Peer<'a, 's> {
    rank: usize,
    stage: Stage<'a, 's>,
    /// The message of this rank to the other rank.
    own: &'a [u8],
}

enum Stage<'a, 's> {
    /// The other rank's short message has not arrived yet: the buffer for it, and the buffer for the whole message.
    Awaited(&'a mut [u8], &'a mut Vec<u8>),
    Begun(Bytes<'a, 's>, &'a mut Vec<u8>),
    /// The other rank's short message has arrived: the buffer for the pieces that are still missing.
    Long(&'a mut [u8]),
}

impl<'a, 's> Meeting<'a, 's> {
    fn send(&mut self, rank: usize, bytes: &'a [u8]) {
        let request = self.ranks.process(rank).immediate_send_with_tag(self.scope, bytes, self.tag);
        self.pending.push((rank, request));
    }

    /// Records the first failure of this exchange, and reports it to the other ranks.
    fn lose(&mut self, lost: ExchangeFailure, text: impl Fn(&ExchangeFailure) -> String) {
        if self.lost.is_none() {
            match &lost {
                ExchangeFailure::Left { rank, reason } => self.ranks.tell(*rank, reason),
                ExchangeFailure::Late { .. } => self.ranks.tell(self.ranks.rank, &text(&lost)),
            }
            self.lost = Some((lost, Instant::now()));
        }
    }

    /// Receives the messages that have arrived and starts the next requests; returns whether there was any progress.
    fn poll(&mut self) -> bool {
        let mut moved = false;
        for (rank, request) in std::mem::take(&mut self.pending) {
            match request.test() {
                Ok(_) => moved = true,
                Err(request) => self.pending.push((rank, request)),
            }
        }
        for mut peer in std::mem::take(&mut self.peers) {
            let (rank, scope) = (peer.rank, self.scope);
            let next = || self.ranks.process(rank).immediate_matched_probe_with_tag(self.tag);
            peer.stage = match peer.stage {
                Stage::Awaited(index, body) => match next() {
                    Some((message, _)) => {
                        moved = true;
                        Stage::Begun(message.immediate_matched_receive_into(scope, index), body)
                    }
                    None => Stage::Awaited(index, body),
                },
                Stage::Begun(request, body) => match request.test_with_data() {
                    Ok((_, head)) => {
                        moved = true;
                        if self.lost.is_none() {
                            let long = long(peer.own);
                            let length = PIECE.max(long.len().div_ceil(MOST_PIECES));
                            long.chunks(length).for_each(|piece| self.send(rank, piece));
                        }
                        Stage::Long(room(head, body))
                    }
                    Err(request) => Stage::Begun(request, body),
                },
                Stage::Long([]) => continue,
                Stage::Long(room) => match next() {
                    Some((message, status)) => {
                        moved = true;
                        let length =
                            usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or_default();
                        let (piece, rest) = room.split_at_mut(room.len().min(length));
                        let request = message.immediate_matched_receive_into(scope, piece);
                        self.pending.push((rank, request));
                        Stage::Long(rest)
                    }
                    None => Stage::Long(room),
                },
            };
            self.peers.push(peer);
        }
        moved
    }

    /// Returns whether a failed exchange can end: MPI has completed all requests, and no rank will send more messages.
    fn parted(&self, since: Duration) -> bool {
        let done = |peer: &Peer<'_, '_>| match peer.stage {
            Stage::Begun(..) => false,
            Stage::Awaited(..) if since >= LINGER => true,
            _ if self.reports.iter().any(|(teller, _)| *teller == peer.rank) => self.silent(peer.rank),
            _ => since >= GRACE,
        };
        self.pending.is_empty() && self.peers.iter().all(done)
    }

    /// Returns whether no message of this exchange from a rank waits to be received. MPI keeps the order of messages: if a
    /// failure report of the rank has arrived, all its earlier messages have arrived, too.
    fn silent(&self, rank: usize) -> bool {
        self.ranks.process(rank).immediate_probe_with_tag(self.tag).is_none()
    }

    /// Returns the failure of a rank that has not received this rank's long message, and now receives no more messages.
    fn unsendable(&self) -> Option<ExchangeFailure> {
        let unsent = |peer: &Peer<'_, '_>| {
            matches!(peer.stage, Stage::Awaited(..) | Stage::Begun(..)) && !long(peer.own).is_empty()
        };
        let unsent_to = |rank: usize| self.peers.iter().any(|peer| peer.rank == rank && unsent(peer));
        self.reports.iter().find(|(teller, _)| unsent_to(*teller)).map(|(_, lost)| lost.clone())
    }

    /// Returns a reported failure that this exchange cannot complete after: a message from the reporting rank will not arrive,
    /// or a request to the rank has not completed. `idle` is the time since the last progress. A rank may also fail after it
    /// has completed this exchange; then the other ranks complete the exchange, too, and the next one fails.
    fn left(&self, idle: Duration) -> Option<ExchangeFailure> {
        let lacks = |rank: usize| {
            let awaited = |stage: &Stage<'_, '_>| match stage {
                Stage::Begun(..) | Stage::Long([]) => false,
                Stage::Awaited(..) | Stage::Long(_) => self.silent(rank),
            };
            self.peers.iter().any(|peer| peer.rank == rank && awaited(&peer.stage))
                || idle >= GRACE && self.pending.iter().any(|(other, _)| *other == rank)
        };
        self.reports.iter().find(|(teller, _)| lacks(*teller)).map(|(_, lost)| lost.clone())
    }

    /// Returns the ranks whose messages are missing, and the ranks that have not received the message of this rank.
    fn missing(&self) -> Vec<usize> {
        let ranks = self.peers.iter().map(|peer| peer.rank).chain(self.pending.iter().map(|(rank, _)| *rank));
        ranks.collect::<BTreeSet<usize>>().into_iter().collect()
    }

    /// Returns a rank that ended MPI without sending its message of this exchange; `None` if there is none.
    fn ended(&self) -> Option<ExchangeFailure> {
        let awaited = |peer: &&Peer<'_, '_>| matches!(peer.stage, Stage::Awaited(..)) && self.tag == DATA;
        self.peers.iter().filter(awaited).map(|peer| peer.rank).find_map(|rank| {
            let process = self.ranks.process(rank);
            process.immediate_probe_with_tag(ENDING)?;
            // MPI keeps the order of messages: if a rank's last message has arrived, all its earlier messages have arrived,
            // too.
            let none = process.immediate_probe_with_tag(DATA).is_none();
            none.then(|| ExchangeFailure::Left { rank, reason: "it ended before this exchange".to_owned() })
        })
    }
}

/// Returns the short message that begins an exchange: the length of `message`, then `message` itself unless it is long.
fn head(message: &[u8]) -> Vec<u8> {
    let short = if message.len() <= SHORT { message } else { &[] };
    [&(message.len() as u64).to_le_bytes(), short].concat()
}

/// Returns the message if it is longer than [`SHORT`] bytes; else an empty slice.
fn long(message: &[u8]) -> &[u8] {
    if message.len() <= SHORT { &[] } else { message }
}

/// Reads a short message; returns the buffer for the pieces of a long message, which is empty if none follow.
fn room<'a>(head: &[u8], body: &'a mut Vec<u8>) -> &'a mut [u8] {
    let (length, bytes) = head.split_first_chunk::<LENGTH>().map_or((0, head), |(length, bytes)| {
        (usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX), bytes)
    });
    if length <= SHORT {
        body.clear();
        body.extend(bytes.iter().take(length));
        return &mut [];
    }
    if body.capacity() < length {
        *body = vec![0; length];
    } else {
        // The bytes of an earlier message are overwritten.
        body.resize(length, 0);
    }
    body
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.size
    }

    fn exchange(
        &mut self,
        doing: &str,
        messages: &[&[u8]],
        received: &mut [Vec<u8>],
        deadline: Instant,
    ) -> std::result::Result<(), ExchangeFailure> {
        let done = self.meet(DATA, doing, messages, received, deadline);
        self.failed |= done.is_err();
        done
    }

    fn leave(&mut self, reason: &str) {
        if !self.failed {
            self.failed = true;
            self.tell(self.rank, reason);
        }
    }
}

impl Drop for Mpi {
    /// Waits until all ranks have dropped their `Mpi`, then ends MPI. After a failure, this wait would never end, so
    /// MPI is left running.
    fn drop(&mut self) {
        if !self.failed && std::thread::panicking() {
            self.leave("it panicked");
        }
        if !self.failed {
            let (messages, mut received) = (vec![&[][..]; self.size], vec![Vec::new(); self.size]);
            let patience = self.patience;
            let ended = self.meet(ENDING, "ending", &messages, &mut received, Instant::now() + patience);
            if let Err(lost) = ended {
                eprintln!("rank {}: {}", self.rank, lost.error("ending", patience));
                self.failed = true;
            }
        }
        // If the system refuses the thread, MPI is left running, too.
        let universe = std::mem::ManuallyDrop::new(self.universe.take());
        if !self.failed
            && let Err(error) =
                watched("end of MPI", self.patience, || drop(std::mem::ManuallyDrop::into_inner(universe)))
        {
            eprintln!("rank {}: {error}", self.rank);
        }
    }
}
