//! Conformance cases for transports between ranks: each rank of a world runs them, on threads in `tests/it/ranks.rs`, on MPI in
//! `tests/world.rs`. A case panics where a transport is wrong.

use std::thread::sleep;
use std::time::{Duration, Instant};

use unpadded::parallel::{Communicator, ExchangeFailure};

/// A case by its name.
pub(crate) type Case = (&'static str, fn(&mut dyn Communicator));

/// The cases that one world runs one after another.
pub(crate) const TOGETHER: [Case; 6] = [
    ("lengths_vary", lengths_vary),
    ("empty_messages", empty_messages),
    ("large_messages", large_messages),
    ("many_exchanges", many_exchanges),
    ("each_rank_late", each_rank_late),
    ("own_entries", own_entries),
];

/// The cases that end a world of two ranks or more: the last rank fails.
pub(crate) const ENDING: [Case; 7] = [
    ("failure_reaches_all", failure_reaches_all),
    ("failure_amid_exchanges", failure_amid_exchanges),
    ("failure_after_an_exchange", failure_after_an_exchange),
    ("late_with_a_long_message", late_with_a_long_message),
    ("long_reason", long_reason),
    ("deadline_names_the_missing", deadline_names_the_missing),
    ("early_end", early_end),
];

/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(60);

/// Returns the bytes that rank `from` sends to rank `to` in an exchange.
pub(crate) fn message(from: usize, to: usize, exchange: u64, length: usize) -> Vec<u8> {
    let mut state = (exchange << 8 | (from as u64) << 4 | to as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = vec![0; length];
    for chunk in bytes.chunks_mut(8) {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        chunk.copy_from_slice(&(state ^ state >> 29).to_le_bytes()[..chunk.len()]);
    }
    bytes
}

/// Runs an exchange of `length(from, to)` bytes and checks the received bytes.
pub(crate) fn exchange(
    ranks: &mut dyn Communicator,
    number: u64,
    length: impl Fn(usize, usize) -> usize,
    deadline: Instant,
) -> Result<(), ExchangeFailure> {
    let (rank, size) = (ranks.rank(), ranks.size());
    let messages: Vec<Vec<u8>> = (0..size).map(|to| message(rank, to, number, length(rank, to))).collect();
    let messages: Vec<&[u8]> = messages.iter().map(Vec::as_slice).collect();
    let mut received = vec![b"from before".to_vec(); size];
    ranks.exchange("testing", &messages, &mut received, deadline)?;
    for (from, bytes) in received.iter().enumerate().filter(|(from, _)| *from != rank) {
        let expected = message(from, rank, number, length(from, rank));
        assert!(*bytes == expected, "exchange {number}, {from} to {rank}: other bytes than were sent");
    }
    Ok(())
}

/// Runs an exchange that has to succeed.
fn right(ranks: &mut dyn Communicator, number: u64, length: impl Fn(usize, usize) -> usize) {
    exchange(ranks, number, length, Instant::now() + LONG).unwrap();
}

/// Lengths around the limits of transports: of short messages, and powers of two.
fn lengths_vary(ranks: &mut dyn Communicator) {
    let around = [0, 1, 7, 8, 199, 200, 201, 3000, 4087, 4088, 4096, 65_535, 65_536, 65_537, 1 << 20];
    for number in 0..30 {
        right(ranks, number, |from, to| around[(from * 5 + to * 3 + number as usize) % around.len()]);
    }
}

fn empty_messages(ranks: &mut dyn Communicator) {
    for number in 0..20 {
        right(ranks, number, |_, _| 0);
        right(ranks, number, |from, _| if from == number as usize % 3 { 100_000 } else { 0 });
    }
}

/// Up to 20 MB, to one rank alone and to all; beside them, messages of a byte. 2^24 bytes are a piece of MPI's.
fn large_messages(ranks: &mut dyn Communicator) {
    right(ranks, 0, |_, _| 20_000_000);
    right(ranks, 1, |from, to| if from < to { 1 << 24 } else { 1 });
    right(ranks, 2, |from, to| if from > to { (1 << 24) + 1 } else { 0 });
    right(ranks, 3, |_, _| 1);
}

/// Exchanges without a pause, in order: a rank may be one ahead of another.
fn many_exchanges(ranks: &mut dyn Communicator) {
    for number in 0..2000 {
        right(ranks, number, |from, to| (number as usize * 31 + from * 7 + to) % 200);
    }
    for number in 0..200 {
        right(ranks, number, |from, to| (number as usize * 3001 + from * 700 + to) % 20_000);
    }
}

fn each_rank_late(ranks: &mut dyn Communicator) {
    for number in 0..2 * ranks.size() as u64 {
        if number as usize % ranks.size() == ranks.rank() {
            sleep(Duration::from_millis(50));
        }
        right(ranks, number, |_, _| if number % 2 == 0 { 10 } else { 1_000_000 });
    }
}

/// A rank's own entry among the received bytes is left unchanged.
fn own_entries(ranks: &mut dyn Communicator) {
    let (rank, size) = (ranks.rank(), ranks.size());
    let mut received = vec![b"own".to_vec(); size];
    let sent = [rank as u8; 3];
    ranks.exchange("testing", &vec![&sent[..]; size], &mut received, Instant::now() + LONG).unwrap();
    for (from, bytes) in received.iter().enumerate() {
        assert_eq!(bytes[..], if from == rank { *b"own" } else { [from as u8; 3] });
    }
}

fn is_last(ranks: &dyn Communicator) -> bool {
    ranks.rank() == ranks.size() - 1
}

/// An exchange that fails since the last rank did.
fn fails(ranks: &mut dyn Communicator, number: u64, expected: &str) {
    let began = Instant::now();
    let lost = exchange(ranks, number, |_, _| 50_000, began + LONG);
    assert_eq!(lost, Err(ExchangeFailure::Left { rank: ranks.size() - 1, reason: expected.to_owned() }));
    assert!(began.elapsed() < LONG / 2, "after {:?}", began.elapsed());
}

fn failure_reaches_all(ranks: &mut dyn Communicator) {
    let reason = "the disk is full: „checkpoint“";
    if is_last(ranks) {
        sleep(Duration::from_millis(100));
        ranks.leave(reason);
    } else {
        fails(ranks, 1, reason);
    }
}

/// Each exchange before the failure succeeds, even if others still wait for each other.
fn failure_amid_exchanges(ranks: &mut dyn Communicator) {
    let length = |from: usize, to: usize| from * 1000 + to;
    if is_last(ranks) {
        (0..50).for_each(|number| right(ranks, number, length));
        return ranks.leave("amid");
    }
    for number in 0..51 {
        if let Err(lost) = exchange(ranks, number, length, Instant::now() + LONG) {
            assert_eq!(lost, ExchangeFailure::Left { rank: ranks.size() - 1, reason: "amid".to_owned() });
            assert_eq!(number, 50);
            return;
        }
    }
    panic!("no failure");
}

/// The last rank completes the exchange at once and fails, while the other ranks still send each other a long message.
fn failure_after_an_exchange(ranks: &mut dyn Communicator) {
    let last = ranks.size() - 1;
    right(ranks, 0, |from, to| if from == last || to == last { 10 } else { 5_000_000 });
    if is_last(ranks) {
        ranks.leave("afterwards");
    } else {
        fails(ranks, 1, "afterwards");
    }
}

/// The last rank enters an exchange with a long message, after the other ranks have missed it and left.
fn late_with_a_long_message(ranks: &mut dyn Communicator) {
    let last = ranks.size() - 1;
    let length = move |from: usize, _: usize| if from == last { 5_000_000 } else { 10 };
    if is_last(ranks) {
        sleep(Duration::from_millis(500));
        let lost = exchange(ranks, 0, length, Instant::now() + LONG);
        // A transport that keeps messages may complete the exchange.
        let left = |lost| matches!(lost, ExchangeFailure::Left { rank, .. } if rank < last);
        assert!(lost.clone().err().is_none_or(left), "{lost:?}");
    } else {
        let lost = exchange(ranks, 0, length, Instant::now() + Duration::from_millis(200)).unwrap_err();
        ranks.leave(&format!("{lost:?}"));
    }
}

/// A transport may cut a reason, but not within a character, and not to less than 2,000 bytes.
fn long_reason(ranks: &mut dyn Communicator) {
    let reason = "größer ".repeat(2000);
    if is_last(ranks) {
        return ranks.leave(&reason);
    }
    match exchange(ranks, 0, |_, _| 10, Instant::now() + LONG) {
        Err(ExchangeFailure::Left { reason: truncated, .. }) => {
            assert!(truncated.len() >= 2000 && reason.starts_with(&truncated))
        }
        other => panic!("{other:?}"),
    }
}

/// A rank that sleeps is missed by name, with small messages and with large ones.
fn deadline_names_the_missing(ranks: &mut dyn Communicator) {
    right(ranks, 0, |_, _| 1000);
    if is_last(ranks) {
        return sleep(Duration::from_millis(1200));
    }
    let (began, last) = (Instant::now(), ranks.size() - 1);
    let length = |from: usize, _: usize| if from == 0 { 5_000_000 } else { 10 };
    let lost = exchange(ranks, 1, length, began + Duration::from_millis(600));
    match lost {
        Err(ExchangeFailure::Late { ranks }) => assert_eq!(ranks, [last]),
        // Another rank was first, and a transport may inform the other ranks by itself.
        Err(ExchangeFailure::Left { rank, reason }) => {
            assert!(rank < last && reason.contains(&format!("none of rank {last}")), "{rank}: {reason}");
        }
        Ok(()) => panic!("no error"),
    }
    let waited = began.elapsed();
    assert!(waited >= Duration::from_millis(550) && waited < Duration::from_millis(1100), "{waited:?}");
}

/// An ended rank is not waited for.
fn early_end(ranks: &mut dyn Communicator) {
    right(ranks, 0, |_, _| 100_000);
    if !is_last(ranks) {
        fails(ranks, 1, "it ended before this exchange");
    }
}
