//! Ranks that are threads: the cases that every transport passes, and simulations of messages and ranks that are lost.
//!
//! `UNPADDED_SCHEDULES=100000 cargo test --test it ranks:: -- --nocapture` simulates more.

use std::ops::Range;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use unpadded::parallel::{Communicator, ExchangeFailure, Faults, ThreadRank, World, simulated, threads};

use crate::conformance::{self, Case, exchange};
use crate::models::Random;

/// How many simulations to run.
const SCHEDULES: &str = "UNPADDED_SCHEDULES";

/// Runs a case on ranks that are threads.
fn run(ranks: Vec<ThreadRank>, (name, case): Case) {
    let size = ranks.len();
    let run = move |mut rank: ThreadRank| case(&mut rank);
    let threads: Vec<_> = ranks.into_iter().map(|rank| thread::spawn(move || run(rank))).collect();
    for (rank, thread) in threads.into_iter().enumerate() {
        assert!(thread.join().is_ok(), "{name}, rank {rank} of {size}");
    }
}

#[test]
fn threads_conform() {
    assert!(threads(0).is_empty());
    for size in 1..=4 {
        conformance::TOGETHER.into_iter().for_each(|case| run(threads(size), case));
        if size > 1 {
            conformance::ENDING.into_iter().for_each(|case| run(threads(size), case));
        }
    }
}

/// A simulation without faults is an ordinary world, but for deadlines: they pass where nothing can happen.
#[test]
fn simulations_conform() {
    let delays = Faults { seed: 3, delays: 0.5, ..Faults::default() };
    conformance::TOGETHER.into_iter().for_each(|case| run(simulated(3, delays), case));
}

/// The result of one rank: the number of correct exchanges, and the error that ended them.
type Met = (u64, Option<ExchangeFailure>);

/// The ranks, exchanges and faults of a seed: a quarter has delays alone, a quarter drops beside, a quarter deaths, the last all.
fn schedule(seed: u64) -> (usize, u64, Faults) {
    let mut random = Random(seed);
    let (size, exchanges) = (2 + random.below(4), 3 + random.below(8) as u64);
    let share = |on: bool| if on { 0.03 } else { 0.0 };
    let (drops, deaths) = (share(seed % 2 == 1), share(seed % 4 >= 2));
    (size, exchanges, Faults { seed, delays: 0.3, drops, deaths })
}

/// Returns the result of each rank of a schedule.
fn simulate(seed: u64) -> Vec<Met> {
    let (size, exchanges, faults) = schedule(seed);
    let rank = |mut rank: ThreadRank| {
        for number in 0..exchanges {
            let length = |from: usize, to: usize| {
                Random(seed ^ (from as u64) << 40 ^ (to as u64) << 48 ^ number << 56).below(300)
            };
            let deadline = Instant::now() + Duration::from_secs(60);
            if let Err(lost) = exchange(&mut rank, seed << 8 | number, length, deadline) {
                rank.leave("it cannot go on");
                return (number, Some(lost));
            }
        }
        (exchanges, None)
    };
    thread::scope(|scope| {
        let ranks = simulated(size, faults).into_iter();
        let threads: Vec<_> = ranks.map(|it| scope.spawn(move || rank(it))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// How the ranks of many schedules ended.
#[derive(Debug, Default)]
struct Counts {
    schedules: u64,
    right: u64,
    done: u64,
    late: u64,
    left: u64,
    died: u64,
}

fn count(seeds: Range<u64>) -> Counts {
    let mut counts = Counts::default();
    for seed in seeds {
        let (size, exchanges, faults) = schedule(seed);
        let met = simulate(seed);
        counts.schedules += 1;
        for (rank, (right, lost)) in met.iter().enumerate() {
            counts.right += right;
            match lost {
                None => {
                    assert_eq!(*right, exchanges, "seed {seed}");
                    counts.done += 1;
                }
                Some(lost) => {
                    assert!(faults.drops + faults.deaths > 0.0, "seed {seed}, rank {rank}: {lost:?}");
                    match lost {
                        ExchangeFailure::Late { ranks } => {
                            assert!(!ranks.is_empty() && ranks.iter().all(|&r| r < size && r != rank));
                            counts.late += 1;
                        }
                        ExchangeFailure::Left { rank: left_rank, .. } if *left_rank == rank => {
                            counts.died += 1
                        }
                        ExchangeFailure::Left { .. } => counts.left += 1,
                    }
                }
            }
        }
        if seed % 20 == 0 {
            let rights = |met: &[Met]| met.iter().map(|(right, _)| *right).collect::<Vec<_>>();
            assert_eq!(rights(&simulate(seed)), rights(&met), "seed {seed} again");
        }
    }
    counts
}

/// Whatever is delayed, dropped or dies, each exchange returns the bytes that were sent, or an error; nothing hangs.
#[test]
fn schedules_are_right_or_errors() {
    let schedules =
        std::env::var(SCHEDULES).map_or(2000, |n| n.parse().expect("UNPADDED_SCHEDULES: a number"));
    let (began, (done, counted)) = (Instant::now(), mpsc::channel());
    let workers = [0..schedules / 2, schedules / 2..schedules].map(|seeds| {
        let done = done.clone();
        thread::spawn(move || done.send(count(seeds)))
    });
    drop(done);
    // A hundredth of a second per schedule is thirty times the usual duration.
    let limit = Duration::from_secs(60) + Duration::from_millis(10) * schedules as u32;
    for _ in &workers {
        match counted.recv_timeout(limit.saturating_sub(began.elapsed())) {
            Ok(counts) => {
                println!("{counts:?} after {:.1?}", began.elapsed());
                assert!(counts.done > 0 && counts.late > 0 && counts.died > 0, "{counts:?}");
            }
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("a simulation hangs: {limit:?} have passed"),
            Err(mpsc::RecvTimeoutError::Disconnected) => panic!("a simulation is wrong; its seed is above"),
        }
    }
}

/// No deadline is too long for the clock.
#[test]
fn the_longest_deadline_is_one() {
    for rank in threads(1) {
        let world = World::new(rank).deadline(Duration::MAX);
        assert_eq!(world.broadcast("greeting", b"word").unwrap(), b"word");
    }
}
