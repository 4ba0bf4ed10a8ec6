//! Ranks that are processes of MPI (the feature `mpi`), started by `mpirun`.
//!
//! An exchange begins with one short message to each rank: the length, and the bytes themselves if they are few. MPI sends a short
//! message without waiting for its receiver. Long ones follow only once the other rank's short one is here, so that nothing is pending
//! on a rank that is late: MPI has no way to give up a send. All requests are polled, and no call of MPI waits.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use mpi::environment::Universe;
use mpi::point_to_point::{Destination as _, Source as _};
use mpi::request::{LocalScope, Request, StaticScope};
use mpi::topology::{Communicator as _, SimpleCommunicator};
use mpi::traits::Equivalence as _;
use mpi::{Tag, Threading};

use super::communicator::{Communicator, Lost};
use super::world::World;
use crate::error::{Error, ErrorKind, Result};

const DATA: Tag = 1;
const FAILURE: Tag = 2;
/// Of the exchange in which ranks end.
const ENDING: Tag = 3;

/// The bytes of a message that travel with its length. With it they stay below what every transport of MPI sends at once (4 KiB).
const SHORT: usize = 3000;
/// The length, in eight bytes.
const LENGTH: usize = 8;
/// Longer messages are sent in pieces: MPI counts bytes in 31 bits.
const PIECE: usize = 1 << 24;

/// From when on a wait without progress sleeps, since ranks may share cores; and how long each time.
const SPIN: Duration = Duration::from_millis(1);
const NAP: Duration = Duration::from_micros(30);
/// How long what was begun may take once an exchange has failed.
const GRACE: Duration = Duration::from_secs(1);

/// A rank that is a process of MPI. There is one per process; MPI is called from its thread alone.
///
/// Dropping it ends MPI, once all ranks do so or one fails.
pub struct Mpi {
    /// Dropping it ends MPI, and waits for all ranks. After a failure it is never dropped.
    universe: Option<Universe>,
    world: SimpleCommunicator,
    rank: usize,
    size: usize,
    failed: bool,
    /// The wait that the last exchange allowed.
    patience: Duration,
}

impl World {
    /// The processes that `mpirun` started; without `mpirun`, a world of one process.
    ///
    /// # Errors
    /// As [`Mpi::new`].
    #[track_caller]
    pub fn mpi() -> Result<Self> {
        Self::new(Mpi::new()?).share_cores()
    }
}

impl Mpi {
    /// Starts MPI in this process, once per process.
    ///
    /// # Errors
    /// If MPI was started before, or its library cannot be used in a process with threads.
    #[track_caller]
    pub fn new() -> Result<Self> {
        let error = |expected, got: String| Error::of(ErrorKind::Io, "start of MPI", expected, got);
        let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Funneled) else {
            return Err(error("one start per process", "MPI was started before in this process".to_owned()));
        };
        if threading < Threading::Funneled {
            return Err(error(
                "a library of MPI for processes with threads (MPI_THREAD_FUNNELED)",
                format!("{threading:?}"),
            ));
        }
        let world = universe.world();
        let number = |n: i32| usize::try_from(n).unwrap_or_default();
        let (rank, size) = (number(world.rank()), number(world.size()));
        Ok(Self { universe: Some(universe), world, rank, size, failed: false, patience: GRACE })
    }

    /// The number of a rank as MPI has it.
    fn process(&self, rank: usize) -> mpi::topology::Process<'_> {
        self.world.process_at_rank(i32::try_from(rank).unwrap_or_default())
    }

    /// The failure of a rank, if one has told this rank.
    fn failure(&self) -> Option<Lost> {
        let (message, status) = self.world.any_process().immediate_matched_probe_with_tag(FAILURE)?;
        let rank = usize::try_from(status.source_rank()).unwrap_or_default();
        let length = usize::try_from(status.count(u8::equivalent_datatype())).unwrap_or_default();
        // Lives on, since MPI may write to it after this call has given up.
        let reason: &'static mut [u8] = Box::leak(vec![0; length].into_boxed_slice());
        let mut request = message.immediate_matched_receive_into(StaticScope, reason);
        let limit = Instant::now() + GRACE;
        let reason = loop {
            match request.test_with_data() {
                Ok((_, reason)) => break String::from_utf8_lossy(reason).into_owned(),
                Err(pending) if Instant::now() >= limit => {
                    std::mem::forget(pending);
                    break "its reason did not arrive".to_owned();
                }
                Err(pending) => request = pending,
            }
            std::thread::yield_now();
        };
        Some(Lost::Left { rank, reason })
    }

    /// An exchange with messages of one tag.
    fn meet(
        &mut self,
        tag: Tag,
        doing: &str,
        messages: &[&[u8]],
        received: &mut [Vec<u8>],
        deadline: Instant,
    ) -> std::result::Result<(), Lost> {
        let patience = deadline.saturating_duration_since(Instant::now());
        self.patience = patience;
        let own: Vec<&[u8]> = (0..self.size).map(|r| messages.get(r).copied().unwrap_or_default()).collect();
        let heads: Vec<Vec<u8>> = own.iter().copied().map(head).collect();
        let mut places = vec![[0; LENGTH + SHORT]; self.size];
        mpi::request::scope(|scope| {
            let mut meeting = Meeting { ranks: self, scope, tag, peers: Vec::new(), pending: Vec::new() };
            let rooms = places.iter_mut().zip(received.iter_mut());
            for (rank, ((own, head), (place, body))) in own.iter().zip(&heads).zip(rooms).enumerate() {
                if rank != self.rank {
                    meeting.send(rank, head);
                    let stage = Stage::Awaited(place.as_mut_slice());
                    meeting.peers.push(Peer { rank, stage, own, body });
                }
            }
            let mut progress = Instant::now();
            let mut lost: Option<(Lost, Instant)> = None;
            while !meeting.peers.is_empty() || !meeting.pending.is_empty() {
                let moved = meeting.poll(lost.is_none());
                let now = Instant::now();
                if moved {
                    progress = now;
                    continue;
                }
                if lost.is_none() {
                    let late = || (now >= deadline).then(|| Lost::Late { ranks: meeting.missing() });
                    let found = self.failure().or_else(|| meeting.ended()).or_else(late);
                    lost = found.map(|lost| (lost, now + GRACE));
                }
                match &lost {
                    Some((lost, _)) if meeting.idle() => return Err(lost.clone()),
                    Some((lost, limit)) if now >= *limit => {
                        eprintln!("rank {}: {}", self.rank, lost.clone().error(doing, patience));
                        self.world.abort(1);
                    }
                    _ if now - progress < SPIN => std::thread::yield_now(),
                    _ => std::thread::sleep(NAP),
                }
            }
            Ok(())
        })
    }
}

/// An exchange under way.
struct Meeting<'a, 's> {
    ranks: &'s Mpi,
    scope: &'s LocalScope<'a>,
    tag: Tag,
    /// The ranks whose short message is not here yet.
    peers: Vec<Peer<'a, 's>>,
    /// What was begun beside, each with the other rank.
    pending: Vec<(usize, Bytes<'a, 's>)>,
}

type Bytes<'a, 's> = Request<'a, [u8], &'s LocalScope<'a>>;

struct Peer<'a, 's> {
    rank: usize,
    stage: Stage<'a, 's>,
    own: &'a [u8],
    body: &'a mut Vec<u8>,
}

enum Stage<'a, 's> {
    /// With the room for the short message.
    Awaited(&'a mut [u8]),
    Begun(Bytes<'a, 's>),
}

impl<'a> Meeting<'a, '_> {
    fn send(&mut self, rank: usize, bytes: &'a [u8]) {
        let request = self.ranks.process(rank).immediate_send_with_tag(self.scope, bytes, self.tag);
        self.pending.push((rank, request));
    }

    /// Takes what has arrived and begins what follows from it; whether anything happened. Short messages are awaited only while
    /// `on`.
    fn poll(&mut self, on: bool) -> bool {
        let mut moved = false;
        for (rank, request) in std::mem::take(&mut self.pending) {
            match request.test() {
                Ok(_) => moved = true,
                Err(request) => self.pending.push((rank, request)),
            }
        }
        for peer in std::mem::take(&mut self.peers) {
            let Peer { rank, stage, own, body } = peer;
            let process = self.ranks.process(rank);
            let stage = match stage {
                Stage::Awaited(place) if on => match process.immediate_matched_probe_with_tag(self.tag) {
                    Some((message, _)) => {
                        moved = true;
                        Stage::Begun(message.immediate_matched_receive_into(self.scope, place))
                    }
                    None => Stage::Awaited(place),
                },
                Stage::Awaited(place) => Stage::Awaited(place),
                Stage::Begun(request) => match request.test_with_data() {
                    Ok((_, head)) => {
                        moved = true;
                        for piece in long(own).chunks(PIECE) {
                            self.send(rank, piece);
                        }
                        for piece in room(head, body).chunks_mut(PIECE) {
                            let request =
                                process.immediate_receive_into_with_tag(self.scope, piece, self.tag);
                            self.pending.push((rank, request));
                        }
                        continue;
                    }
                    Err(request) => Stage::Begun(request),
                },
            };
            self.peers.push(Peer { rank, stage, own, body });
        }
        moved
    }

    /// Whether nothing is under way that MPI could not give up.
    fn idle(&self) -> bool {
        self.pending.is_empty() && self.peers.iter().all(|peer| matches!(peer.stage, Stage::Awaited(_)))
    }

    /// The ranks that this one waits for.
    fn missing(&self) -> Vec<usize> {
        let ranks = self.peers.iter().map(|peer| peer.rank).chain(self.pending.iter().map(|(rank, _)| *rank));
        ranks.collect::<BTreeSet<usize>>().into_iter().collect()
    }

    /// A rank that ended without the message that this one waits for.
    fn ended(&self) -> Option<Lost> {
        let awaited = |peer: &&Peer<'_, '_>| matches!(peer.stage, Stage::Awaited(_)) && self.tag == DATA;
        self.peers.iter().filter(awaited).map(|peer| peer.rank).find_map(|rank| {
            let process = self.ranks.process(rank);
            process.immediate_probe_with_tag(ENDING)?;
            // MPI keeps the order: what the rank sent before it ended is here, too.
            let none = process.immediate_probe_with_tag(DATA).is_none();
            none.then(|| Lost::Left { rank, reason: "it ended before this exchange".to_owned() })
        })
    }
}

/// The short message that begins an exchange: the length, and the message itself unless it is long.
fn head(message: &[u8]) -> Vec<u8> {
    let short = if message.len() <= SHORT { message } else { &[] };
    [&(message.len() as u64).to_le_bytes(), short].concat()
}

/// The message, if it is long.
fn long(message: &[u8]) -> &[u8] {
    if message.len() <= SHORT { &[] } else { message }
}

/// Reads a short message; the room for the long one that follows.
fn room<'a>(head: &[u8], body: &'a mut Vec<u8>) -> &'a mut [u8] {
    let (length, bytes) = head.split_first_chunk::<LENGTH>().map_or((0, head), |(length, bytes)| {
        (usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX), bytes)
    });
    body.clear();
    if length <= SHORT {
        body.extend(bytes.iter().take(length));
        return &mut [];
    }
    if body.capacity() < length {
        *body = vec![0; length];
    } else {
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
    ) -> std::result::Result<(), Lost> {
        let done = self.meet(DATA, doing, messages, received, deadline);
        self.failed |= done.is_err();
        done
    }

    fn leave(&mut self, reason: &str) {
        self.failed = true;
        let mut end = reason.len().min(SHORT);
        while !reason.is_char_boundary(end) {
            end -= 1;
        }
        // Lives on, since MPI may read it after this call has given up.
        let reason: &'static [u8] = Box::leak(reason.as_bytes().get(..end).unwrap_or_default().into());
        let others = (0..self.size).filter(|&r| r != self.rank);
        let send = |r| self.process(r).immediate_send_with_tag(StaticScope, reason, FAILURE);
        let mut sends: Vec<_> = others.map(send).collect();
        let limit = Instant::now() + GRACE / 4;
        while !sends.is_empty() && Instant::now() < limit {
            sends = sends.into_iter().filter_map(|send| send.test().err()).collect();
            std::thread::yield_now();
        }
        sends.into_iter().for_each(std::mem::forget);
    }
}

impl Drop for Mpi {
    /// Ends MPI, which waits for all ranks: after a failure it would wait forever.
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
        if self.failed {
            std::mem::forget(self.universe.take());
        }
    }
}
