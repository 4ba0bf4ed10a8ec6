//! Profiles: the measured time of runs, by operator, by phase of the step block, and by thread.

use std::fmt;
use std::time::Duration;

use crate::executor::plan::{Instr, Loop, LoopRows, OpInstr, Plan};
use crate::executor::run::recorder::{Recorder, Totals};
use crate::kernels::int8_unit;
use crate::operator::{Cost, MatrixUnit, Pass};
use crate::program::RECURRENT;
use crate::tensor::DType;

/// The phase of the program, or of a step block, in which the calls of an entry ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum LoopPhase {
    /// The calls ran outside step blocks.
    Outside,
    /// The calls ran before the loop, on the rows of all steps at once.
    Before,
    /// The calls ran once, on one row per sequence, before or after the loop.
    Sequences,
    /// The calls ran at every step of the loop.
    Loop,
    /// The calls ran after the loop, on the rows of all steps at once.
    After,
    /// The calls packed constants, once per run; a constant that has not changed since the previous run is not packed again.
    Prepare,
    /// Rows were moved between the batch's order and the order of a loop.
    Moves,
    /// Time in a loop but outside its calls: finding the rows of each step, and waiting for other threads.
    Stepping,
}

impl LoopPhase {
    /// All phases.
    pub(crate) const ALL: [LoopPhase; 8] = [
        LoopPhase::Outside,
        LoopPhase::Before,
        LoopPhase::Sequences,
        LoopPhase::Loop,
        LoopPhase::After,
        LoopPhase::Prepare,
        LoopPhase::Moves,
        LoopPhase::Stepping,
    ];
}

impl fmt::Display for LoopPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            LoopPhase::Outside => "outside",
            LoopPhase::Before => "before",
            LoopPhase::Sequences => "sequences",
            LoopPhase::Loop => "loop",
            LoopPhase::After => "after",
            LoopPhase::Prepare => "prepare",
            LoopPhase::Moves => "moves",
            LoopPhase::Stepping => "stepping",
        })
    }
}

/// An entry of a profile: all calls of one instruction in one phase.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Entry {
    /// The instruction's number in the [listing](crate::executor::Listing).
    pub(crate) instruction: usize,
    /// The operator's name, such as `"linear #3, backward"`.
    pub operator: String,
    /// The operator's kind, such as `"linear"`; `"recurrent"` for a loop, `"reorder"` for moved rows.
    pub kind: String,
    /// The pass of the operator (forward, backward or update).
    pub pass: Pass,
    /// The step block that contains the instruction; `None` in the root block.
    pub(crate) block: Option<usize>,
    /// The line of the user's code; `None` if the user did not write the operator.
    pub caller: Option<String>,
    /// The phase of the program or step block in which the calls ran.
    pub part: LoopPhase,
    /// The number of calls in all runs.
    pub calls: u64,
    /// The number of rows of the operator's first output, summed over all calls.
    pub rows: u64,
    /// The number of operations and bytes, summed over all calls.
    pub cost: Cost,
    /// Wall-clock time.
    pub time: Duration,
    /// The wall-clock time on each thread; a call that several threads share counts on the thread that waited for the others.
    pub threads: Vec<Duration>,
    /// For each thread, the time of the calls during which other threads ran the same loop or chain, on other sequences or
    /// rows.
    pub side_by_side: Vec<Duration>,
    /// The dtype in which the operator computes: bf16 for matrix products in bf16, i8 for products of 8-bit integers; not a float
    /// dtype if the operator has no float operand.
    pub(crate) dtype: DType,
}

impl Entry {
    /// Returns the operations per second of the entry.
    pub fn flops_per_second(&self) -> f64 {
        rate(self.cost.flops, self.time)
    }

    /// Returns the bytes that the entry read and wrote per second.
    pub fn bytes_per_second(&self) -> f64 {
        rate(self.cost.read + self.cost.written, self.time)
    }
}

/// A profile of some runs: where their time was spent.
///
/// [`Executor::start_profile`](crate::executor::Executor::start_profile) starts a profile, and
/// [`Executor::take_profile`](crate::executor::Executor::take_profile) stops and returns it. A [`Profile`] prints as a table,
/// and can be written as a trace for Chrome's `about:tracing` or Perfetto. Instructions are numbered as in the
/// [listing](crate::executor::Listing), which gives the reason for the position of each instruction.
///
/// ```
/// use unpadded::executor::{Executor, LoopPhase, Run, Scope};
/// use unpadded::{Builder, DType, Lod, Variable};
/// use ndarray::Array2;
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[8], 1);
/// let h = x.lstm(16);
/// let (registry, program) = (net.registry(), net.finish()?);
/// let (mut executor, mut scope) = (Executor::new(&program, &registry, &[h.id()], 1)?, Scope::of(&program)?);
/// let batch = Variable::sequences(Array2::<f32>::ones((7, 8)), Lod::from_lengths1(&[4, 3])?)?;
///
/// executor.start_profile();
/// executor.run(&mut scope, &Run::infer(&[(x.id(), &batch)]))?;
/// let Some(profile) = executor.take_profile() else { unreachable!("it was started") };
/// println!("{profile}");
///
/// // A product is 2·M·K·N operations. The input's is one over all 7 tokens, the state's one a step; both rows × 4 gates.
/// let products: Vec<_> = profile.entries.iter().filter(|e| e.kind == "linear").collect();
/// let facts = |part| products.iter().find(|e| e.part == part).map(|e| (e.calls, e.rows, e.cost.flops));
/// assert_eq!(facts(LoopPhase::Before), Some((1, 7, 2 * 7 * 8 * 64)));
/// assert_eq!(facts(LoopPhase::Loop), Some((4, 7, 2 * 7 * 16 * 64)));
/// assert!(profile.chrome_trace().starts_with('{'));
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// # Cost
/// Without a profile, a call costs one additional branch, and no memory. With a profile, each call costs two readings
/// of the clock and a count of bytes, together under a microsecond. For an LSTM(256) over 64 sequences, this cost is
/// less than the variation between runs.
///
/// # Meaning of the numbers
/// *Time* is wall-clock time. If `n` threads run the steps of a loop side by side, each thread counts 1/n of its time, so all
/// entries and the time outside entries add up to [`Profile::wall`]. Operators declare their operations (FLOP, see
/// [`Op::cost`](crate::operator::Op::cost)); a multiply-add counts as two. Bytes are the bytes of the operands, in a cache or
/// in memory. The second line of the table shows the maximum rates of this machine; the column *bound* shows the rate that an
/// entry comes nearest to (see [`Bound`](crate::executor::Bound)).
pub struct Profile {
    /// The entries, sorted by time, longest first.
    pub entries: Vec<Entry>,
    /// The number of runs that ended without an error.
    pub runs: u64,
    /// The total duration of all runs, including runs that ended with an error.
    pub wall: Duration,
    /// The number of threads of the executor.
    pub threads: usize,
    /// The unit that computed the matrix products.
    pub(crate) unit: MatrixUnit,
    pub(super) recorders: Vec<Recorder>,
    pub(super) names: Vec<String>,
}

impl Profile {
    /// Returns the total time of the entries in one phase.
    pub fn time_in(&self, part: LoopPhase) -> Duration {
        self.entries.iter().filter(|entry| entry.part == part).map(|entry| entry.time).sum()
    }
}

/// The data that is collected while runs are profiled.
#[derive(Default)]
pub(crate) struct Profiling {
    runs: u64,
    wall: Duration,
}

impl Profiling {
    /// Adds the duration of a run or of half a run. A run that failed counts too, since its calls are recorded.
    pub(crate) fn took(&mut self, length: Duration) {
        self.wall += length;
    }

    /// Counts a run that succeeded.
    pub(crate) fn count(&mut self) {
        self.runs += 1;
    }

    /// Makes the profile of the runs of a plan, from the records of all threads.
    pub(crate) fn profile(self, plan: &Plan, recorders: Vec<Recorder>) -> Profile {
        let Self { runs, wall } = self;
        let names = vec![String::new(); plan.instructions];
        let threads = recorders.len();
        let mut profile =
            Profile { entries: Vec::new(), runs, wall, threads, unit: plan.program.unit, recorders, names };
        account(&mut profile, &plan.code, &|_| LoopPhase::Outside);
        profile.entries.sort_by_key(|entry| std::cmp::Reverse(entry.time));
        profile
    }
}

/// Makes the entries of some instructions, and returns their total wall-clock time in seconds.
fn account(profile: &mut Profile, code: &[Instr], part: &dyn Fn(LoopRows) -> LoopPhase) -> f64 {
    let (mut time, unit) = (0.0, profile.unit);
    for instr in code {
        time += match instr {
            Instr::Zero(_, index) => {
                profile.names[*index] = "zero".to_owned();
                0.0
            }
            Instr::Reorder { index, .. } => {
                let entry = Entry {
                    instruction: *index,
                    part: LoopPhase::Moves,
                    ..nothing("into the batch's order", "reorder", Pass::Forward)
                };
                profile.add(entry, |recorder| &recorder.calls)
            }
            Instr::Levels(op) => {
                profile.add(Entry { part: part(op.span), ..of_op(op, unit) }, |recorder| &recorder.calls)
            }
            Instr::Op(op) => {
                // Constants are packed before the top-level instruction runs, so the packing time is not in the time of the
                // loop around the operator.
                profile
                    .add(Entry { part: LoopPhase::Prepare, ..of_op(op, unit) }, |recorder| &recorder.packs);
                profile.add(Entry { part: part(op.span), ..of_op(op, unit) }, |recorder| &recorder.calls)
            }
            Instr::Loop(inner) => account_loop(profile, inner),
        };
    }
    time
}

fn account_loop(profile: &mut Profile, inner: &Loop) -> f64 {
    let outside = |all: LoopPhase| {
        move |span| match span {
            LoopRows::All | LoopRows::Steps => all,
            LoopRows::Sequences => LoopPhase::Sequences,
        }
    };
    let entry = || Entry {
        instruction: inner.index,
        block: inner.place.block,
        caller: inner.place.caller.clone(),
        ..nothing(
            inner.place.operator.as_deref().unwrap_or(RECURRENT),
            RECURRENT,
            if inner.backward { Pass::Backward } else { Pass::Forward },
        )
    };
    let moves = profile.add(Entry { part: LoopPhase::Moves, ..entry() }, |recorder| &recorder.calls);
    let before = account(profile, &inner.before, &outside(LoopPhase::Before));
    let body = account(profile, &inner.body, &|_| LoopPhase::Loop);
    let after = account(profile, &inner.after, &outside(LoopPhase::After));
    let totals = |recorder: &Recorder| recorder.bodies[inner.index];
    let steps: Vec<Totals> = profile.recorders.iter().map(totals).collect();
    let whole: f64 = steps.iter().map(|totals| totals.clock).sum();
    let rest = (whole - body).max(0.0);
    let calls = steps.iter().map(|totals| totals.calls).sum();
    if rest > 0.0 && !inner.body.is_empty() {
        let time = Duration::from_secs_f64(rest);
        profile.entries.push(Entry { part: LoopPhase::Stepping, calls, time, ..entry() });
    }
    moves + before + body.max(whole) + after
}

pub(super) fn nothing(operator: &str, kind: &str, pass: Pass) -> Entry {
    Entry {
        instruction: 0,
        operator: operator.to_owned(),
        kind: kind.to_owned(),
        pass,
        block: None,
        caller: None,
        part: LoopPhase::Outside,
        calls: 0,
        rows: 0,
        cost: Cost::default(),
        time: Duration::ZERO,
        threads: Vec::new(),
        side_by_side: Vec::new(),
        dtype: DType::Bool,
    }
}

/// Returns the name of the instructions that compute matrix products in a dtype: in bf16 by `unit`, or of 8-bit integers; `None` for
/// another dtype.
pub(super) fn instructions(dtype: DType, unit: MatrixUnit) -> Option<String> {
    match dtype {
        DType::BF16 => Some(unit.to_string()),
        DType::I8 => Some(int8_unit().to_owned()),
        _ => None,
    }
}

fn of_op(op: &OpInstr, unit: MatrixUnit) -> Entry {
    let (kind, pass) = &op.named;
    Entry {
        instruction: op.index,
        block: op.place.block,
        caller: op.place.caller.clone().filter(|caller| !caller.is_empty()),
        dtype: op.computes_in(unit).unwrap_or(DType::I64),
        ..nothing(op.place.operator.as_deref().unwrap_or_default(), kind, *pass)
    }
}

impl Profile {
    /// Adds an entry with the totals that the threads recorded for the entry, unless they recorded no call. Returns the
    /// entry's wall-clock time in seconds.
    fn add(&mut self, mut entry: Entry, totals_of: impl Fn(&Recorder) -> &[Totals]) -> f64 {
        let index = entry.instruction;
        self.names[index].clone_from(&entry.operator);
        let mut clock = 0.0;
        for recorder in &self.recorders {
            let totals = totals_of(recorder)[index];
            entry.calls += totals.calls;
            entry.rows += totals.rows;
            entry.cost += totals.cost;
            entry.threads.push(totals.busy);
            entry.side_by_side.push(totals.side_by_side);
            clock += totals.clock;
        }
        if entry.calls > 0 {
            entry.time = Duration::from_secs_f64(clock);
            self.entries.push(entry);
        }
        clock
    }
}

pub(super) fn rate(count: u64, time: Duration) -> f64 {
    if time > Duration::ZERO { count as f64 / time.as_secs_f64() } else { 0.0 }
}
