//! Listings: a compiled program as text, with its instructions, their buffers, and the reasons for their positions.

use std::collections::HashMap;
use std::fmt::{self, Write};

use crate::error::Place;
use crate::executor::observe::profile::instructions;
use crate::executor::plan::{
    Access, Chain, Home, Instr, Loop, LoopRows, Move, OpInstr, Plan, Ref, Slot, TimingReason, parts,
};
use crate::kernels::Assign;
use crate::operator::context::OperandPosition;
use crate::operator::{BlockId, Extent, MatrixUnit, Pass, VarId};
use crate::program::{OpDesc, Program, grad_name};
use crate::tensor::StorageKind;

/// A compiled program that prints as text.
///
/// Instructions are numbered in the order in which they first run; a [`Profile`](crate::executor::Profile) uses the same
/// numbers. For each operator of a step block, the listing prints when it runs (before, in or after the loop) and the reason.
///
/// ```
/// use unpadded::executor::Executor;
/// use unpadded::{Builder, DType};
/// let net = Builder::new();
/// let x = net.feed("x", DType::F32, &[8], 1);
/// let h = x.lstm(16);
/// let registry = net.registry();
/// let executor = Executor::new(&net.finish()?, &registry, &[h.id()], 1)?;
/// let listing = executor.listing().to_string();
/// // The input's product leaves the loop, the state's cannot.
/// let (before, the_loop) = listing.split_once("at every step").unwrap_or_default();
/// assert!(before.contains("no other step reaches it"), "{listing}");
/// assert!(the_loop.contains("lstm_cell"), "{listing}");
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Listing<'a> {
    plan: &'a Plan,
}

impl<'a> Listing<'a> {
    pub(crate) fn of(plan: &'a Plan) -> Self {
        Self { plan }
    }
}

impl fmt::Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut loops = HashMap::new();
        loops_of(&self.plan.code, &mut loops);
        let mut passed = HashMap::new();
        gradients_of(&self.plan.code, &mut passed);
        let (mut views, mut same): (ByBlock<_>, ByBlock<_>) = Default::default();
        let (plan, program) = (self.plan, &self.plan.program);
        let block = |var: VarId| program.var(var).block;
        for (&part, &original) in &self.plan.views {
            views.entry(block(part)).or_default().push((part, original));
        }
        for &(var, original) in &self.plan.same {
            same.entry(block(var)).or_default().push((var, original));
        }
        views.values_mut().for_each(|views| views.sort());
        same.values_mut().for_each(|same| same.sort());
        let mut text = Text { plan, loops, passed, views, same, out: String::new(), depth: 0 };
        text.all();
        f.write_str(&text.out)
    }
}

fn loops_of<'p>(code: &'p [Instr], loops: &mut HashMap<BlockId, &'p Loop>) {
    for instr in code {
        if let Instr::Loop(inner) = instr {
            loops.entry(inner.desc.block).or_insert(inner);
            [&inner.before, &inner.body, &inner.after].into_iter().for_each(|part| loops_of(part, loops));
        }
    }
}

/// A list for each block, such as the list of its variables that are columns of another variable.
type ByBlock<T> = HashMap<BlockId, Vec<T>>;

/// Collects the view of each gradient that a step passes to the previous step, by block and memory.
fn gradients_of(code: &[Instr], passed: &mut HashMap<(BlockId, usize), Ref>) {
    for instr in code {
        if let Instr::Loop(inner) = instr {
            for gradient in inner.gradients.iter().filter(|_| inner.backward) {
                passed.entry((inner.desc.block, gradient.memory)).or_insert(gradient.next);
            }
            [&inner.before, &inner.body, &inner.after]
                .into_iter()
                .for_each(|part| gradients_of(part, passed));
        }
    }
}

struct Text<'a> {
    plan: &'a Plan,
    loops: HashMap<BlockId, &'a Loop>,
    passed: HashMap<(BlockId, usize), Ref>,
    /// For each block, the variables that are columns of another variable.
    views: ByBlock<(VarId, (VarId, usize))>,
    /// For each block, the gradients that equal another gradient.
    same: ByBlock<(VarId, VarId)>,
    out: String,
    depth: usize,
}

impl<'a> Text<'a> {
    fn line(&mut self, text: &str) {
        // Writing to a `String` does not fail.
        let _ = writeln!(self.out, "{:indent$}{text}", "", indent = 2 * self.depth);
    }

    fn inside(&mut self, body: impl FnOnce(&mut Self)) {
        self.depth += 1;
        body(self);
        self.depth -= 1;
    }

    fn notes(&mut self, notes: &[String]) {
        if !notes.is_empty() {
            self.inside(|text| text.line(&notes.join("; ")));
        }
    }

    fn name(&self, var: VarId) -> String {
        self.plan.program.shown(var)
    }

    fn all(&mut self) {
        let plan = self.plan;
        self.line(&format!("{} instructions, {} buffers", plan.instructions, plan.buffers.len()));
        if plan.program.unit != MatrixUnit::F32 {
            let unit = plan.program.unit;
            let other = format!(", by {}, since this CPU has no such unit", unit.instructions());
            let by = if unit.is_native() { "" } else { &other };
            self.line(&format!(
                "matrix products: {unit}{by}; a call without the note `{unit}` computes in f32"
            ));
        }
        self.inside(|text| text.code(&plan.code, &plan.chains, None));
        plan.refused.iter().for_each(|why| self.line(&format!("not fused: {why}")));
        self.buffers();
    }

    /// Prints a list of instructions and its chains, or only the instructions that run on certain rows.
    fn code(&mut self, code: &'a [Instr], chains: &[Chain], only: Option<LoopRows>) {
        for (calls, chain) in parts(code.len(), chains) {
            let code = code[calls].iter().filter(|instr| only.is_none_or(|only| instr.span() == only));
            match chain {
                Some(chain) => {
                    self.line(&chain.to_string());
                    self.inside(|text| code.for_each(|instr| text.instruction(instr)));
                }
                None => code.for_each(|instr| self.instruction(instr)),
            }
        }
    }

    fn instruction(&mut self, instr: &'a Instr) {
        match instr {
            Instr::Op(op) => self.call(op),
            Instr::Levels(op) => self.levels(op),
            Instr::Loop(inner) => self.step_loop(inner),
            Instr::Zero(view, index) => {
                self.line(&format!("[{index}] zero -> {}", self.position_of(view)));
                self.inside(|text| text.line("the next loop adds to this gradient at every step"));
            }
            Instr::Reorder { from, to, index, .. } => {
                let (name, to) = (self.slot_name(from), self.position_of(to));
                self.line(&format!("[{index}] reorder {name} from loop order to batch order -> {to}"));
                self.inside(|text| text.line("an operator or a fetch needs the batch's order"));
            }
        }
    }

    fn call(&mut self, op: &'a OpInstr) {
        let Some(desc) = self.plan.program.block(op.desc.block).ops.get(op.desc.number) else { return };
        let (reads, writes) = self.operands(op, desc);
        let operator = op.place.operator.as_deref().unwrap_or(&desc.kind);
        self.line(&format!("[{}] {operator} ({reads}) -> {writes}", op.index));
        let mut notes = Vec::new();
        notes.extend(op.why.map(|why| self.why(why)));
        notes.extend(op.stands_for.as_ref().map(|note| note.text.clone()));
        let slots = op.op.signature().inputs;
        let constant = slots.iter().zip(&op.constants).filter(|(_, reads)| !reads.is_empty());
        let constant: Vec<String> =
            constant.flat_map(|(slot, _)| desc.input(slot.name)).map(|&var| self.name(var)).collect();
        if op.prepared.is_some() && !constant.is_empty() {
            notes.push(format!("prepared once from {}", constant.join(", ")));
        }
        for &slot in &op.wiring.in_place {
            let value = desc.input(slots[slot].name).first().map_or_else(String::new, |&v| self.name(v));
            notes.push(format!("over {value}, which nothing else reads"));
        }
        let unit = self.plan.program.unit;
        notes.extend(op.computes_in(unit).and_then(|dtype| instructions(dtype, unit)));
        if op.order.is_some() {
            notes.push("on rows in the loop's order, without a copy".to_owned());
        }
        notes.extend(line_of(&op.place));
        self.notes(&notes);
    }

    /// Prints the call that computes the offsets of levels.
    fn levels(&mut self, op: &'a OpInstr) {
        let Some(desc) = self.plan.program.block(op.desc.block).ops.get(op.desc.number) else { return };
        let operator = op.place.operator.as_deref().unwrap_or(&desc.kind);
        let made: Vec<String> = op.made.iter().map(|(level, _)| level.0.to_string()).collect();
        let (reads, made) = (self.operands(op, desc).0, made.join(", "));
        self.line(&format!("[{}] {operator} ({reads}) -> the offsets of level {made}", op.index));
        let when = if op.span == LoopRows::Steps { ", for one step after the other" } else { "" };
        self.inside(|text| text.line(&format!("before memory is reserved for its output{when}")));
    }

    /// Returns two texts: the operands that a call reads, and its outputs with their positions.
    fn operands(&self, op: &OpInstr, desc: &OpDesc) -> (String, String) {
        let signature = op.op.signature();
        let backward = op.pass == Pass::Backward;
        let forward_outputs = if backward { &desc.inputs } else { &desc.outputs };
        let inputs = Program::slots_of(signature.inputs, &desc.inputs, "");
        let outputs = Program::slots_of(signature.outputs, forward_outputs, "");
        let mut reads = Vec::new();
        let mut take = |vars: &[Vec<VarId>], places: &[Vec<OperandPosition>]| {
            for (var, position) in vars.iter().flatten().zip(places.iter().flatten()) {
                if *position != OperandPosition::Absent {
                    reads.push(self.name(*var));
                }
            }
        };
        take(&inputs, &op.wiring.inputs);
        let mut written = Vec::new();
        if backward {
            take(&outputs, &op.wiring.outputs);
            take(
                &Program::slots_of(signature.outputs, &desc.inputs, &grad_name("")),
                &op.wiring.output_gradients,
            );
            let grads = Program::slots_of(signature.inputs, &desc.outputs, &grad_name(""));
            let places = op.wiring.input_gradients.iter().flatten();
            written.extend(
                grads.iter().flatten().zip(places).map(|(&v, &(position, assign))| (v, position, assign)),
            );
            let results = Program::slots_of(signature.outputs, &desc.outputs, "");
            let places = op.wiring.results.iter().flatten();
            written.extend(results.iter().flatten().zip(places).map(|(&v, &at)| (v, at, Assign::Write)));
        } else {
            let places = op.wiring.outputs.iter().flatten();
            let assign = if op.wiring.adds { Assign::Add } else { Assign::Write };
            written.extend(outputs.iter().flatten().zip(places).map(|(&v, &position)| (v, position, assign)));
        }
        let shown = |(var, position, assign): (VarId, OperandPosition, Assign)| {
            let at = match position {
                OperandPosition::Absent => return None,
                OperandPosition::Pooled(pool) => self.pooled(pool),
                OperandPosition::Dense(i) => self.position_of(op.writes.get(i)?),
            };
            let spec = self.plan.program.spec(var).map_or_else(|_| String::new(), |spec| format!(": {spec}"));
            let added = if assign == Assign::Add { ", added" } else { "" };
            Some(format!("{}{spec} in {at}{added}", self.name(var)))
        };
        let written: Vec<String> = written.into_iter().filter_map(shown).collect();
        (reads.join(", "), written.join(", "))
    }

    fn slot_of(&self, view: &Ref) -> Option<&'a Slot> {
        let slot_in = |block: BlockId, pick: &dyn Fn(&Loop) -> Option<Ref>| {
            self.loops.get(&block).and_then(|l| pick(l))
        };
        let view = match view.access {
            Access::Slot(_) => Some(*view),
            Access::Previous { block, memory } => slot_in(block, &|l| l.memories.get(memory).map(|m| m.next)),
            Access::Passed { block, memory } => self.passed.get(&(block, memory)).copied(),
        }?;
        if let Access::Slot(s) = view.access { self.plan.slots.get(s) } else { None }
    }

    /// Returns a pool number as listings print it.
    fn pooled(&self, pool: usize) -> String {
        match self.plan.pools.get(pool) {
            Some(StorageKind::SelectedRows) | None => format!("selected rows {pool}"),
            Some(other) => format!("{other} {pool}"),
        }
    }

    fn slot_name(&self, view: &Ref) -> String {
        self.slot_of(view).map_or_else(|| "?".to_owned(), |slot| self.name(slot.var))
    }

    /// Returns the buffer of a view, and the range of its columns, as text.
    fn position_of(&self, view: &Ref) -> String {
        let Some(slot) = self.slot_of(view) else { return "no buffer".to_owned() };
        if let Some(pool) = slot.pool {
            return self.pooled(pool);
        }
        let mut at = format!("buffer {}", slot.buffer);
        if view.width != slot.width {
            let _ = write!(
                at,
                ", columns {}..{} of `{}`",
                view.column,
                view.column + view.width,
                self.name(slot.var)
            );
        }
        match view.access {
            Access::Passed { .. } => at.push_str(", the rows of the step before"),
            Access::Previous { .. } => at.push_str(", the rows that the step before wrote"),
            Access::Slot(_) => {}
        }
        at
    }

    fn why(&self, why: TimingReason) -> String {
        match why {
            TimingReason::Apart => "no other step reaches it".to_owned(),
            TimingReason::Between(from, to) => {
                format!("`{}` reaches it, and it reaches `{}`", self.name(from), self.name(to))
            }
            TimingReason::Sinks(from) => format!("`{}` reaches it, and no step needs it", self.name(from)),
            TimingReason::Pinned(pin) => pin.to_string(),
            TimingReason::Decides => "decides the rows of sequences that are made in the step".to_owned(),
        }
    }

    fn step_loop(&mut self, inner: &'a Loop) {
        let operator = inner.place.operator.as_deref().unwrap_or("recurrent");
        let block = match &inner.desc.gradient {
            Some(gradient) if inner.backward => format!("gradient block {}", gradient.block.0),
            _ => format!("block {}", inner.desc.block.0),
        };
        let end = if inner.desc.reverse { ", from their ends" } else { "" };
        self.line(&format!("[{}] {operator}, {block}, over level {}{end}", inner.index, inner.desc.level.0));
        let mut notes: Vec<String> = inner.why.map(|why| self.why(why)).into_iter().collect();
        notes.extend(line_of(&inner.place));
        self.notes(&notes);
        self.inside(|text| {
            text.gathers("gathered into step order", &inner.gather);
            text.gathers("gathered, one row or sub-sequence per sequence", &inner.statics);
            text.zeroed(inner);
            text.memories(inner);
            let (code, chains) = (&inner.before, &inner.chains.before);
            text.section("before the loop, one step after the other", code, chains, Some(LoopRows::Steps));
            text.section("before the loop, over all steps at once", code, chains, Some(LoopRows::All));
            text.section("before the loop, once a sequence", code, chains, Some(LoopRows::Sequences));
            let how = if inner.in_lanes { "each thread its own sequences" } else { "all sequences together" };
            let title = format!("the loop, at every step, {how}");
            text.section(&title, &inner.body, &inner.chains.body, None);
            let (code, chains) = (&inner.after, &inner.chains.after);
            text.section("after the loop, over all steps at once", code, chains, Some(LoopRows::All));
            text.section("after the loop, once a sequence", code, chains, Some(LoopRows::Sequences));
            text.no_calls(inner);
            text.scatters("back into the batch's order", &inner.scatter);
            text.scatters("back, one row or sub-sequence per sequence", &inner.scatter_statics);
            text.ends(inner);
        });
    }

    /// Prints the instructions before, in or after a loop, or only the instructions that run on certain rows.
    fn section(&mut self, title: &str, code: &'a [Instr], chains: &[Chain], only: Option<LoopRows>) {
        if code.iter().any(|instr| only.is_none_or(|only| instr.span() == only)) {
            self.line(title);
            self.inside(|text| text.code(code, chains, only));
        }
    }

    fn gathers(&mut self, title: &str, moves: &[Move]) {
        moves.iter().for_each(|rows| self.moved(title, &rows.outer, &rows.inner, rows.assign));
    }

    fn scatters(&mut self, title: &str, moves: &[Move]) {
        moves.iter().for_each(|rows| self.moved(title, &rows.inner, &rows.outer, rows.assign));
    }

    fn moved(&mut self, title: &str, from: &Ref, to: &Ref, assign: Assign) {
        let added = if assign == Assign::Add { ", added" } else { "" };
        let text = format!("{title}: {} -> {}{added}", self.slot_name(from), self.position_of(to));
        self.line(&text);
    }

    /// Prints the gradients that are set to zero before a loop.
    fn zeroed(&mut self, inner: &Loop) {
        if !inner.zero.is_empty() {
            let names: Vec<String> = inner.zero.iter().map(|view| self.slot_name(view)).collect();
            self.line(&format!("zeroed: {}", names.join(", ")));
        }
    }

    fn memories(&mut self, inner: &Loop) {
        for (memory, plan) in inner.desc.memories.iter().zip(&inner.memories).filter(|(_, plan)| plan.read) {
            let starts = memory.initial.map_or_else(|| "zero".to_owned(), |var| self.name(var));
            let (previous, next) = (self.name(memory.previous), self.name(memory.next));
            let copy = plan.all.map_or_else(String::new, |all| {
                format!(
                    "; copied for all steps to {}, since it is read outside the loop",
                    self.position_of(&all)
                )
            });
            self.line(&format!(
                "memory `{previous}`: the rows of `{next}` that the step before wrote, at first {starts}{copy}"
            ));
        }
    }

    /// Prints the rows that a loop moves between its memories and outer variables. For a forward loop, these are the last
    /// values of the memories; for a backward loop, the gradients of the last and of the initial values.
    fn ends(&mut self, inner: &Loop) {
        for plan in inner.memories.iter().filter(|_| !inner.backward) {
            if let Some(last) = &plan.last {
                let (next, to) = (self.slot_name(&plan.next), self.position_of(last));
                self.line(&format!("the last row of each sequence: {next} -> {to}"));
            }
        }
        for plan in inner.gradients.iter().filter(|_| inner.backward) {
            if let Some(last) = &plan.last {
                let (next, from) = (self.slot_name(&plan.next), self.slot_name(last));
                self.line(&format!("before the loop, at the last row of each sequence: {from} into {next}"));
            }
            if let Some((initial, assign)) = &plan.initial {
                let added = if *assign == Assign::Add { ", added" } else { "" };
                let (name, to) = (self.slot_name(initial), self.position_of(initial));
                self.line(&format!("what the first step passes back: {name} -> {to}{added}"));
            }
        }
    }

    /// Prints the variables of a block that no call computes: columns of other variables, and gradients that equal another
    /// gradient.
    fn no_calls(&mut self, inner: &Loop) {
        let block = match &inner.desc.gradient {
            Some(gradient) if inner.backward => gradient.block,
            _ => inner.desc.block,
        };
        let mut lines = Vec::new();
        for &(part, (whole, first)) in self.views.get(&block).into_iter().flatten() {
            let width = |var: VarId| self.plan.program.spec(var).map_or(0, |spec| spec.width());
            let (name, original) = (self.name(part), self.name(whole));
            lines.push(match width(part) == width(whole) {
                true => format!("{name}: added up in {original}"),
                false => format!("{name}: columns {first}..{} of {original}", first + width(part)),
            });
        }
        let same = self.same.get(&block).into_iter().flatten();
        lines.extend(same.map(|(var, original)| format!("{}: is {}", self.name(*var), self.name(*original))));
        if !lines.is_empty() {
            self.line("without a call");
            self.inside(|text| lines.iter().for_each(|line| text.line(line)));
        }
    }

    fn buffers(&mut self) {
        self.line("buffers, with the variables that are in them in turn");
        let mut held: Vec<Vec<&Slot>> = vec![Vec::new(); self.plan.buffers.len()];
        for slot in self.plan.slots.iter().filter(|s| s.pool.is_none() && s.alias.is_none()) {
            held[slot.buffer].push(slot);
        }
        for (number, (dtype, mut slots)) in self.plan.buffers.iter().zip(held).enumerate() {
            slots.sort_by_key(|slot| slot.life);
            let held: Vec<String> = slots
                .iter()
                .map(|slot| {
                    let kept = if slot.persistent { ", kept" } else { "" };
                    format!("{} ({}{kept})", self.name(slot.var), self.bytes(slot))
                })
                .collect();
            self.inside(|text| text.line(&format!("{number} {dtype}: {}", held.join(", "))));
        }
    }

    /// Returns the size of a slot as text: a number of bytes, or a number of bytes per row.
    fn bytes(&self, slot: &Slot) -> String {
        let row = slot.width * slot.dtype.size_of();
        match self.rows_of(slot.rows, slot.home) {
            Ok(rows) => format!("{} B", rows * row),
            Err(rows) => format!("{row} B x {rows}"),
        }
    }

    fn rows_of(&self, rows: Extent, home: Home) -> Result<usize, String> {
        let looped = |block: BlockId| self.loops.get(&block);
        Err(match (rows, home) {
            (Extent::Known(n), _) => return Ok(n),
            (Extent::Alive(_), Home::Stepped(block)) => {
                looped(block).map_or_else(|| rows.to_string(), |l| Extent::Rows(l.desc.level).to_string())
            }
            (Extent::Alive(_), Home::Sequence(block)) => {
                looped(block).map_or_else(|| rows.to_string(), |l| l.sequences.to_string())
            }
            (Extent::Rows(level), Home::Stepped(block) | Home::Sequence(block)) => {
                let levels = looped(block).map_or(&[][..], |l| &l.inner);
                let whole = matches!(home, Home::Stepped(_));
                match levels.iter().find(|l| l.inner == level) {
                    Some(l) if l.statics && whole => format!("{} a step", Extent::Rows(l.outer)),
                    Some(l) if l.statics || whole => Extent::Rows(l.outer).to_string(),
                    _ if whole => rows.to_string(),
                    _ => format!("{rows} of the largest step"),
                }
            }
            _ => rows.to_string(),
        })
    }
}

/// Returns the user's source line of an operator; `None` if the user did not write the operator.
fn line_of(place: &Place) -> Option<String> {
    place.caller.as_ref().filter(|caller| !caller.is_empty()).map(|caller| format!("at {caller}"))
}
