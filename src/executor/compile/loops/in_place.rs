//! Values of a step block that are made where another one lies: `x·W + h·U` is one array, to which the second product
//! is added step by step, and the gradient of a cell's inputs may take the place of those inputs.
//!
//! Both names then stand for one array, as do the parts of a split and the whole (the module `views`). The
//! bits are those of two arrays: a sum that is added to a value is that value plus the finished sum.

use std::collections::{BTreeSet, HashMap, HashSet};

use crate::error::Result;
use crate::executor::compile::Compiler;
use crate::executor::compile::loops::split::{Unit, When};
use crate::executor::compile::loops::through::Through;
use crate::executor::plan::{Access, Home};
use crate::executor::rewrite::classes::{Class, Classes};
use crate::program::{BlockId, OpDesc, RECURRENT, StepDesc, StepGradient, VarId, grad_name};

/// The numbers of units, by variable.
type Numbers = HashMap<VarId, Vec<usize>>;

/// A unit: when it runs, the number of its operator, and its own.
type User = (When, usize, usize);

/// Which units read and write each variable, in the order in which they run.
struct Users {
    reads: HashMap<VarId, BTreeSet<User>>,
    writes: HashMap<VarId, BTreeSet<User>>,
}

impl Users {
    fn of(units: &[Unit], when: &[When], without: &HashSet<usize>) -> Self {
        let mut users = Self { reads: HashMap::new(), writes: HashMap::new() };
        for (i, (unit, &time)) in units.iter().zip(when).enumerate().filter(|(i, _)| !without.contains(i)) {
            let user = (time, unit.op, i);
            for &var in &unit.reads {
                users.reads.entry(var).or_default().insert(user);
            }
            for &var in &unit.writes {
                users.writes.entry(var).or_default().insert(user);
            }
        }
        users
    }

    fn readers(&self, var: VarId) -> impl Iterator<Item = &User> {
        self.reads.get(&var).into_iter().flatten()
    }

    fn writers(&self, var: VarId) -> impl Iterator<Item = &User> {
        self.writes.get(&var).into_iter().flatten()
    }

    /// One unit is gone, another one reads `whole` too, and two variables are `whole` now.
    fn renamed(
        &mut self,
        units: &mut [Unit],
        (gone, adder): (User, User),
        (vars, whole): ([VarId; 2], VarId),
    ) {
        let Unit { reads, writes, .. } = &units[gone.2];
        for (all, own) in [(&mut self.reads, reads), (&mut self.writes, writes)] {
            for var in own {
                all.get_mut(var).map(|users| users.remove(&gone));
            }
        }
        self.reads.entry(whole).or_default().insert(adder);
        let rename = |var: &mut VarId| *var = if vars.contains(var) { whole } else { *var };
        for var in vars {
            if let Some(users) = self.reads.remove(&var) {
                users.iter().for_each(|user| units[user.2].reads.iter_mut().for_each(rename));
                self.reads.entry(whole).or_default().extend(users);
            }
            if let Some(users) = self.writes.remove(&var) {
                users.iter().for_each(|user| units[user.2].writes.iter_mut().for_each(rename));
                self.writes.entry(whole).or_default().extend(users);
            }
        }
    }
}

impl Compiler<'_> {
    /// Lets operators whose result is only added to another value add it there, and takes the additions out of `units`.
    /// When the others run stays as it was decided: what reads a value before something is added to it must not move
    /// behind that, as it would if the decision were made anew for the one array.
    pub(crate) fn add_in_place(
        &mut self,
        step: &StepDesc,
        classes: &Classes,
        kept: &HashSet<VarId>,
        units: &mut Vec<Unit>,
        when: &mut Vec<When>,
    ) -> Result<()> {
        let program = self.program;
        let ops = &program.block(step.block).ops;
        let mut done: HashSet<usize> = HashSet::new();
        let mut users = Users::of(units, when, &done);
        for addition in 0..units.len() {
            let op = &ops[units[addition].op];
            let Some((x, y, out)) = self.sum(op)? else { continue };
            let alone = |var: VarId| {
                classes.get(program, var) == Class::Step
                    && !kept.contains(&var)
                    && !self.in_a_loop(step.block, var)
            };
            if ![x, y, out, self.whole_of(x), self.whole_of(y)].into_iter().all(alone) {
                continue;
            }
            for (term, to) in [(y, x), (x, y)] {
                let whole = self.whole_of(to);
                let writers = users.writers(term).filter(|user| user.2 != addition).take(2);
                let &[&user] = &writers.collect::<Vec<_>>()[..] else { continue };
                let last = |all: Option<&BTreeSet<User>>| {
                    let mut last = all.into_iter().flatten().rev().filter(|user| user.2 != addition);
                    last.next().map(|&(time, op, _)| (time, op))
                };
                let uses = last(users.writes.get(&whole)).max(last(users.reads.get(&whole)));
                let adder = user.2;
                let fits = self.whole_of(term) == term
                    && term != whole
                    && program.spec(whole)? == program.spec(term)?
                    && !self.saved.contains(&term)
                    && !self.saved.contains(&whole)
                    && self.accumulates(&ops[units[adder].op])?
                    && !self.parts_of(term).any(|_| true)
                    && !users.readers(term).any(|user| user.2 != addition)
                    && users.writers(whole).any(|user| user.2 != addition)
                    && uses.is_none_or(|last| last < (user.0, user.1));
                if !fits {
                    continue;
                }
                // Columns of the sum are columns of the whole.
                for part in self.parts_of(out).collect::<Vec<_>>() {
                    let column = self.views.get(&part).map_or(0, |&(_, column)| column);
                    self.view(part, (whole, column));
                }
                for var in [term, out] {
                    self.view(var, (whole, 0));
                }
                if self.saved.contains(&out) {
                    self.saved.insert(whole);
                }
                self.adds.insert((step.block, units[adder].op));
                units[adder].reads.push(whole);
                if done.is_empty() {
                    for unit in units.iter_mut() {
                        unit.reads.iter_mut().chain(&mut unit.writes).for_each(|v| *v = self.whole_of(*v));
                    }
                    done.insert(addition);
                    users = Users::of(units, when, &done);
                } else {
                    done.insert(addition);
                    let gone = (when[addition], units[addition].op, addition);
                    users.renamed(units, (gone, user), ([term, out], whole));
                }
                break;
            }
        }
        let mut number = 0..;
        units.retain(|_| !number.next().is_some_and(|i| done.contains(&i)));
        let mut number = 0..;
        when.retain(|_| !number.next().is_some_and(|i| done.contains(&i)));
        Ok(())
    }

    /// The variables that are columns of one, or are it.
    fn parts_of(&self, whole: VarId) -> impl Iterator<Item = VarId> {
        let of = move |part: &VarId| self.views.get(part).is_some_and(|(of, _)| *of == whole);
        self.parts.get(&whole).into_iter().flatten().copied().filter(of)
    }

    /// The two terms and the sum, if that is what an operator computes.
    fn sum(&self, op: &OpDesc) -> Result<Option<(VarId, VarId, VarId)>> {
        if op.kind == RECURRENT {
            return Ok(None);
        }
        let instance = self.parse(op)?;
        let (inputs, outputs): (Vec<VarId>, Vec<VarId>) = (op.reads().collect(), op.writes().collect());
        let (&[x, y], &[out]) = (&inputs[..], &outputs[..]) else { return Ok(None) };
        let same = self.program.spec(x)? == self.program.spec(y)?;
        Ok((instance.hints().sums && same && x != y).then_some((x, y, out)))
    }

    /// Lets backward operators write a gradient over the value that they alone read. Returns the gradients that have a
    /// place by that.
    pub(crate) fn overwrite(
        &mut self,
        step: &StepDesc,
        gradient: &StepGradient,
        through: &Through,
        units: &[Unit],
    ) -> Result<HashSet<VarId>> {
        let program = self.program;
        let ops = &program.block(gradient.block).ops;
        let pairs = step.inputs.iter().chain(&step.outputs).chain(&step.statics);
        let pairs = pairs.chain(&gradient.inputs).chain(&gradient.outputs).chain(&gradient.statics);
        let mut shared: HashSet<VarId> = pairs.map(|p| p.inner).collect();
        shared.extend(step.memories.iter().flat_map(|m| [m.next, m.previous]));
        shared.extend(gradient.memories.iter().flat_map(|m| [Some(m.next), m.previous]).flatten());
        let (mut readers, mut writers): (Numbers, Numbers) = Default::default();
        for (number, unit) in units.iter().enumerate() {
            unit.reads.iter().for_each(|&var| readers.entry(var).or_default().push(number));
            unit.writes.iter().for_each(|&var| writers.entry(var).or_default().push(number));
        }
        let mut placed = HashSet::new();
        for (number, unit) in units.iter().enumerate().filter(|(_, u)| !u.wrt.is_empty()) {
            let op = &ops[unit.op];
            let instance = self.parse(op)?;
            let specs = program.input_specs(instance.signature(), op)?;
            for &slot in unit.wrt.iter().filter(|&&slot| instance.gradient(slot, &specs).overwrites) {
                let name = instance.signature().inputs[slot].name;
                let (&[value], &[result]) = (op.input(name), op.output(&grad_name(name))) else { continue };
                let whole = self.whole_of(value);
                let own = |var: VarId, block: BlockId| {
                    program.var(var).block == block
                        && self.class(step, var) == Class::Step
                        && !shared.contains(&var)
                        && !self.in_a_loop(block, var)
                };
                let others = |of: &Numbers, var| of.get(&var).into_iter().flatten().any(|i| *i != number);
                let fits = own(value, step.block)
                    && own(whole, step.block)
                    && own(result, gradient.block)
                    && program.spec(whole)?.width() == program.spec(value)?.width()
                    && self.whole_of(result) == result
                    && !through.contains_key(&result)
                    && op.reads().filter(|&v| self.whole_of(v) == whole).count() == 1
                    && !others(&readers, whole)
                    && !others(&writers, result);
                let access = self.access[whole.0 as usize];
                let stepped = |slot: usize| self.slots[slot].home == Home::Stepped(step.block);
                if fits && matches!(access, Some(Access::Slot(slot)) if stepped(slot)) {
                    self.access[result.0 as usize] = access;
                    self.overwrites.insert((gradient.block, unit.op, slot));
                    placed.insert(result);
                }
            }
        }
        Ok(placed)
    }

    fn accumulates(&self, op: &OpDesc) -> Result<bool> {
        if op.kind == RECURRENT || op.writes().count() != 1 {
            return Ok(false);
        }
        Ok(self.parse(op)?.hints().accumulates)
    }
}
