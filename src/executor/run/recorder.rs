//! What a profiled run writes down, each thread for itself.

use std::time::{Duration, Instant};

use crate::operator::Cost;

/// A thread keeps at most so many events for a trace; the totals go on.
pub(crate) const MOST_EVENTS: usize = 1 << 16;

/// Sums over calls.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Totals {
    pub(crate) calls: u64,
    pub(crate) rows: u64,
    /// On this thread.
    pub(crate) busy: Duration,
    /// Of it, while other threads ran the same loop.
    pub(crate) side_by_side: Duration,
    /// Its part of the time on the clock: where `n` threads run a loop together, each counts for an `n`th.
    pub(crate) clock: f64,
    pub(crate) cost: Cost,
}

/// What an event is of. The number is that of the instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Run,
    Call(usize),
    Pack(usize),
    /// A whole step loop, with what runs before and after it.
    Loop(usize),
    /// The steps of one.
    Body(usize),
    /// All calls of an instruction in the steps of a loop, as if they came one right after another.
    InBody(usize),
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Event {
    pub(crate) kind: EventKind,
    /// Since the profile was started.
    pub(crate) start: Duration,
    pub(crate) length: Duration,
    pub(crate) calls: u64,
}

/// A thread's record.
pub(crate) struct Recorder {
    origin: Instant,
    /// By instruction: its calls; of a loop, the moving of its rows.
    pub(crate) calls: Vec<Totals>,
    /// By instruction: its preparations.
    pub(crate) packs: Vec<Totals>,
    /// By loop: its steps.
    pub(crate) bodies: Vec<Totals>,
    pub(crate) events: Vec<Event>,
    /// How many events there were beside these.
    pub(crate) dropped: u64,
    /// In how many loops the thread is, one in another; a chain outside a loop counts as one.
    depth: usize,
    /// What part of its time counts as time on the clock: an `n`th, where `n` threads run a loop together.
    share: f64,
    /// When the outermost loop began.
    opened: Instant,
    /// What the instructions had done until then.
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

    /// A run starts. The one before may have ended with an error in a loop.
    pub(crate) fn restart(&mut self) {
        self.depth = 0;
        self.share = 1.0;
    }

    /// A run has ended.
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

    /// A call that ends now.
    pub(crate) fn call(&mut self, index: usize, start: Instant, rows: usize, cost: Cost) {
        let busy = start.elapsed();
        add(&mut self.calls[index], busy, self.share, rows, cost);
        if self.depth == 0 {
            self.event(EventKind::Call(index), start, busy, 1);
        }
    }

    /// A preparation that ends now.
    pub(crate) fn pack(&mut self, index: usize, start: Instant, cost: Cost) {
        let busy = start.elapsed();
        add(&mut self.packs[index], busy, self.share, 0, cost);
        self.event(EventKind::Pack(index), start, busy, 1);
    }

    /// A loop ends: how long it moved rows, and how long its steps took.
    pub(crate) fn spent(&mut self, index: usize, moving: Duration, steps: Duration, moved: Cost) {
        add(&mut self.calls[index], moving, self.share, 0, moved);
        add(&mut self.bodies[index], steps, self.share, 0, Cost::default());
    }

    /// In how many loops the thread is.
    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    /// The steps of a loop begin, on so many threads at once; `depth` is in how many loops the first thread was. Those
    /// of a loop in a loop have no events. Returns what [`Self::leave`] wants back.
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

    /// They end. What the instructions of the loop did in them goes into the trace as one event each. A chain outside a
    /// loop has no loop's number.
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
