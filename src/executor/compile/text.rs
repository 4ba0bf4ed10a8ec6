//! Prints the result of each analysis as text, so that tests can check each analysis alone.

use std::fmt::Write;

use super::blocks::Blocks;
use super::layouts::Layouts;
use super::lives::Lives;
use super::loops::block::GradientHome;
use super::loops::when::{Timing, Unit, UnitWork};
use super::saved::SavedValues;
use super::schedule::{Item, Schedule, ScheduledCall};
use super::slots::Slots;
use super::source::Source;
use super::writers::{HandedGradient, Writers};
use crate::executor::plan::{Home, LoopRows, OpId, TimingReason};
use crate::kernels::Assign;
use crate::operator::{BlockId, Pass, VarId};

/// Gives names to the variables, blocks and operators of a program, which have only numbers.
pub(crate) struct Names<'a>(pub(crate) &'a Source<'a>);

impl Names<'_> {
    fn var(&self, var: VarId) -> String {
        self.0.program.shown(var)
    }

    fn list(&self, vars: impl Iterator<Item = VarId>) -> String {
        let mut vars: Vec<VarId> = vars.collect();
        vars.sort_unstable();
        vars.iter().map(|&var| self.var(var)).collect::<Vec<_>>().join(", ")
    }

    fn op(&self, id: OpId) -> String {
        let backward = if self.0.is_backward(id) { "'" } else { "" };
        format!("{}{backward} {}.{}", self.0.desc(id).kind, id.block.0, id.number)
    }

    fn home(&self, home: Home) -> String {
        match home {
            Home::Whole => "in the batch's order".to_owned(),
            Home::Stepped(block) => format!("all steps of block {}", block.0),
            Home::Sequence(block) => format!("one step of block {}", block.0),
        }
    }

    pub(crate) fn saved(&self, saved: &SavedValues) -> String {
        self.list(saved.iter().copied())
    }

    fn units(&self, block: BlockId, units: &[Unit], out: &mut String) {
        for time in [Timing::Before, Timing::Body, Timing::After] {
            for unit in units.iter().filter(|unit| unit.when == time) {
                let why = match unit.why {
                    TimingReason::Apart => "no step reaches it".to_owned(),
                    TimingReason::Between(from, to) => {
                        format!("between {} and {}", self.var(from), self.var(to))
                    }
                    TimingReason::Sinks(from) => format!("behind {}", self.var(from)),
                    TimingReason::Pinned(pin) => pin.to_string(),
                    TimingReason::Decides => "decides rows".to_owned(),
                };
                let what = if unit.does == UnitWork::MakesLevels { "levels of " } else { "" };
                let op = self.op(OpId { block, number: unit.op });
                let slots = if unit.wrt.is_empty() { String::new() } else { format!(" {:?}", unit.wrt) };
                let _ = writeln!(out, "{time:?} {what}{op}{slots}: {why}");
            }
        }
    }

    pub(crate) fn forward(&self, blocks: &Blocks, block: BlockId) -> String {
        let Ok(found) = blocks.forward(block) else { return "not analysed".to_owned() };
        let mut out = String::new();
        self.units(block, &found.units, &mut out);
        let mut views: Vec<_> = found.columns.all().iter().collect();
        views.sort_unstable();
        for (&part, &(whole, column)) in views {
            let _ = writeln!(out, "{}: column {column} of {}", self.var(part), self.var(whole));
        }
        for &(var, home) in &found.homes {
            let _ = writeln!(out, "{}: {}", self.var(var), self.home(home));
        }
        out
    }

    pub(crate) fn backward(&self, blocks: &Blocks, block: BlockId) -> String {
        let Ok(found) = blocks.backward(block) else { return "not analysed".to_owned() };
        let mut out = String::new();
        self.units(block, &found.units, &mut out);
        for (var, original) in blocks.same() {
            let _ = writeln!(out, "{}: is {}", self.var(var), self.var(original));
        }
        for &(var, home) in &found.homes {
            let home = match home {
                GradientHome::Own(home) => self.home(home),
                GradientHome::Over(value) => format!("over {}", self.var(value)),
            };
            let _ = writeln!(out, "{}: {home}", self.var(var));
        }
        out
    }

    pub(crate) fn schedule(&self, schedule: &Schedule) -> String {
        let mut out = String::new();
        schedule.iter().flatten().for_each(|item| self.item(item, 0, &mut out));
        out
    }

    fn item(&self, item: &Item, depth: usize, out: &mut String) {
        let indent = "  ".repeat(depth);
        match item {
            Item::Call(call) | Item::Levels(call) => {
                let what = if matches!(item, Item::Levels(_)) { "levels of " } else { "" };
                let span = if call.site.span == LoopRows::All { "" } else { " (once a sequence)" };
                let (reads, writes) = (self.listed(call.reads()), self.listed(call.writes()));
                let op = self.op(call.id);
                let _ = writeln!(out, "{indent}{what}{op}({reads}) -> {writes}{span}");
            }
            Item::Loop(inner) => {
                let _ = writeln!(out, "{indent}{}", self.op(inner.id));
                for (title, items) in
                    [("before", &inner.before), ("at every step", &inner.body), ("after", &inner.after)]
                {
                    if !items.is_empty() {
                        let _ = writeln!(out, "{indent}  {title}");
                        items.iter().for_each(|item| self.item(item, depth + 2, out));
                    }
                }
            }
        }
    }

    fn listed(&self, vars: impl Iterator<Item = VarId>) -> String {
        vars.map(|var| self.var(var)).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn layouts(&self, schedule: &Schedule, layouts: &Layouts) -> String {
        let mut out = String::new();
        for item in schedule.iter().flatten() {
            match item {
                Item::Call(call) => {
                    if let Some(order) = layouts.order_of(call) {
                        let _ = writeln!(out, "{}: as in block {}", self.op(call.id), order.block.0);
                    }
                }
                Item::Levels(_) => {}
                Item::Loop(inner) => {
                    let mut taken: Vec<_> = layouts.taken.iter().collect();
                    let mut left: Vec<_> = layouts.left.iter().collect();
                    taken.sort_unstable();
                    left.sort_unstable();
                    let blocks = self.0.step(inner.id).ok();
                    let block = blocks.map(|(step, gradient)| gradient.map_or(step.block, |g| g.block));
                    let here = |var: VarId| Some(self.0.program.var(var).block) == block;
                    for (&inner, &outer) in taken.into_iter().filter(|(inner, _)| here(**inner)) {
                        let _ = writeln!(out, "{}: {} as it lies", self.var(inner), self.var(outer));
                    }
                    for (&outer, &inner) in left.into_iter().filter(|(_, inner)| here(**inner)) {
                        let _ = writeln!(out, "{}: left as {} lies", self.var(outer), self.var(inner));
                    }
                }
            }
        }
        out
    }

    pub(crate) fn writers(&self, schedule: &Schedule, writers: &Writers) -> String {
        let mut out = String::new();
        for (items, &number) in schedule.iter().zip(&self.0.live) {
            let id = OpId { block: BlockId(0), number };
            for &var in writers.zeroed_before(id) {
                let _ = writeln!(out, "{}: zeroed before {}", self.var(var), self.op(id));
            }
            items.iter().for_each(|item| self.assigns(item, writers, &mut out));
        }
        out
    }

    fn assigns(&self, item: &Item, writers: &Writers, out: &mut String) {
        let mut line = |var: VarId, assign: Assign, id: OpId| {
            let how = if assign == Assign::Add { "added" } else { "written" };
            let _ = writeln!(out, "{}: {how} by {}", self.var(var), self.op(id));
        };
        match item {
            Item::Call(call) if call.pass == Pass::Backward => {
                let vars: Vec<VarId> = written(call);
                vars.iter().for_each(|&var| line(var, writers.of_call(call, var), call.id));
            }
            Item::Call(_) | Item::Levels(_) => {}
            Item::Loop(inner) => {
                for &var in writers.zeroed_in(inner.id) {
                    let _ = writeln!(out, "{}: zeroed in {}", self.var(var), self.op(inner.id));
                }
                inner.items().for_each(|item| self.assigns(item, writers, out));
                let Some(gradient) = self.0.step(inner.id).ok().and_then(|(_, gradient)| gradient) else {
                    return;
                };
                for (i, pair) in gradient.inputs.iter().enumerate() {
                    let how = writers.of_loop(inner.id, HandedGradient::Input(i));
                    let how = if how == Assign::Add { "added" } else { "written" };
                    let _ = writeln!(out, "{}: {how} by {}", self.var(pair.outer), self.op(inner.id));
                }
            }
        }
    }

    pub(crate) fn slots(&self, slots: &Slots) -> String {
        let mut out = String::new();
        for slot in &slots.slots {
            let alias = slot.alias.map_or("", |_| ", another view");
            let pool = slot.pool.map_or("", |_| ", not dense");
            let kept = if slot.persistent { ", kept" } else { "" };
            let _ = writeln!(out, "{}: {}{alias}{pool}{kept}", self.var(slot.var), self.home(slot.home));
        }
        for copy in &slots.copies {
            let _ = writeln!(out, "{}: copied before {}", self.var(copy.var), copy.before);
        }
        out
    }

    pub(crate) fn lives(&self, slots: &Slots, lives: &Lives) -> String {
        let mut out = String::new();
        for (at, slot) in slots.slots.iter().enumerate() {
            let (first, last) = lives.in_instructions(at);
            let last = if last == usize::MAX { "the end".to_owned() } else { last.to_string() };
            let _ = writeln!(out, "{}: {first} to {last}", self.var(slot.var));
        }
        out
    }
}

fn written(call: &ScheduledCall) -> Vec<VarId> {
    call.input_gradients.iter().flatten().copied().filter(|&var| var != VarId::NONE).collect()
}
