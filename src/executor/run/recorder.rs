//! Recorders: each thread records the times of its calls while runs are profiled.

use std::time::{Duration, Instant};

use crate::operator::Cost;

/// The maximum number of trace events that a thread keeps; further events are dropped, but the totals still count them.
pub(crate) const MOST_EVENTS: usize = 1 << 16;

/// The totals of the calls of one instruction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) calls: u64,
    pub(crate) rows: u64,
    /// The time of the calls on this thread.
    pub(crate) busy: Duration,
    /// The part of `busy` in which other threads ran the same loop or chain.
    pub(crate) side_by_side: Duration,
    /// The share of the wall-clock time, in seconds: if `n` threads run a loop together, each thread counts 1/n of its time.
    pub(crate) clock: f64,
    pub(crate) cost: Cost,
}

/// The kind of a trace event, with the number of the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Run,
    Call(usize),
    Pack(usize),
    /// A whole loop, including the instructions before and after its steps.
    Loop(usize),
    /// All steps of a loop.
    Body(usize),
    /// All calls of one instruction in the steps of a loop, joined into one event.
    InBody(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// The time from the start of the profile to the start of the event.
    pub(crate) start: Duration,
    pub(crate) length: Duration,
    pub(crate) calls: u64,
}

pub(crate) struct Recorder {
    origin: Instant,
    /// The totals of each instruction's calls; for a loop, the totals of its moved rows.
    pub(crate) calls: Vec<Totals>,
    /// The totals of each instruction's packing of constants.
    pub(crate) packs: Vec<Totals>,
    /// The totals of each loop's steps, by the loop's instruction number.
    pub(crate) bodies: Vec<Totals>,
    pub(crate) events: Vec<Event>,
    /// The number of events that were dropped because the list was full.
    pub(crate) dropped: u64,
    /// The nesting depth of loops on this thread; a chain outside a loop counts as a loop.
    depth: usize,
    /// The share of the thread's time that counts as wall-clock time: 1/n if `n` threads run a loop together.
    share: f64,
    /// The time at which the outermost loop began its steps.
    opened: Instant,
    /// A copy of `calls` at the time `opened`.
    before: Vec<Totals>,
}

impl Recorder {
    pub(crate) fn new(origin: Instant, instructions: usize) -> Self {
        let none = || vec![Totals::default(); instructions];
        Self {
            origin,
            calls: none(),
            packs: none(),
            bodies: none(),
            events: Vec::new(),
            dropped: 0,
            depth: 0,
            share: 1.0,
            opened: origin,
            before: none(),
        }
    }

    /// Starts a run: resets the nesting depth and the share. The reset is needed if the previous run ended with an error inside
    /// a loop.
    pub(crate) fn restart(&mut self) {
        self.depth = 0;
        self.share = 1.0;
    }

    /// Records an event for a run that has ended.
    pub(crate) fn run(&mut self, start: Instant, length: Duration) {
        self.event(EventKind::Run, start, length, 1);
    }

    pub(crate) fn event(&mut self, kind: EventKind, start: Instant, length: Duration, calls: u64) {
        if self.events.len() == MOST_EVENTS {
            self.dropped += 1;
            return;
        }
        let start = start.duration_since(self.origin);
        self.events.push(Event { kind, start, length, calls });
    }

    /// Records a call that ends at this moment.
    pub(crate) fn call(&mut self, index: usize, start: Instant, rows: usize, cost: Cost) {
        let busy = start.elapsed();
        add(&mut self.calls[index], busy, self.share, rows, cost);
        if self.depth == 0 {
            self.event(EventKind::Call(index), start, busy, 1);
        }
    }

    /// Records the packing of an instruction's constants, which ends at this moment.
    pub(crate) fn pack(&mut self, index: usize, start: Instant, cost: Cost) {
        let busy = start.elapsed();
        add(&mut self.packs[index], busy, self.share, 0, cost);
        self.event(EventKind::Pack(index), start, busy, 1);
    }

    /// Records a loop that has ended: the time of its moved rows, and the time of its steps.
    pub(crate) fn spent(&mut self, index: usize, moving: Duration, steps: Duration, moved: Cost) {
        add(&mut self.calls[index], moving, self.share, 0, moved);
        add(&mut self.bodies[index], steps, self.share, 0, Cost::default());
    }

    /// Returns the nesting depth of loops on this thread.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// Begins the steps of a loop that `threads` threads run together; `depth` is the nesting depth on the first thread. The
    /// steps of an inner loop get no events. Pass the result to [`Self::leave`].
    pub(crate) fn enter(&mut self, threads: usize, depth: usize) -> usize {
        let around = self.depth;
        self.depth = around.max(depth) + 1;
        self.share = 1.0 / threads.max(1) as f64;
        if self.depth == 1 {
            self.opened = Instant::now();
            self.before.copy_from_slice(&self.calls);
        }
        around
    }

    /// Ends the steps of the loop with number `index`; if `index` is `None`, ends a chain outside a loop. `around` is
    /// the result of [`Self::enter`]. At the end of an outermost loop, the calls of each instruction in `within` become
    /// one event of the trace.
    pub(crate) fn leave(&mut self, index: Option<usize>, within: impl Iterator<Item = usize>, around: usize) {
        let outermost = self.depth == 1;
        self.depth = around;
        self.share = 1.0;
        if !outermost {
            return;
        }
        if let Some(index) = index {
            self.event(EventKind::Body(index), self.opened, self.opened.elapsed(), 1);
        }
        let mut start = self.opened;
        for i in within {
            let (now, before) = (self.calls[i], self.before[i]);
            let (length, calls) = (now.busy - before.busy, now.calls - before.calls);
            if calls > 0 {
                self.event(EventKind::InBody(i), start, length, calls);
                start += length;
            }
        }
    }
}

fn add(totals: &mut Totals, busy: Duration, share: f64, rows: usize, cost: Cost) {
    totals.calls += 1;
    totals.rows += rows as u64;
    totals.busy += busy;
    if share < 1.0 {
        totals.side_by_side += busy;
    }
    totals.clock += busy.as_secs_f64() * share;
    totals.cost += cost;
}
