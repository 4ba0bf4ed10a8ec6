//! From a program to a plan: names become slots, what is not wanted goes, gradients learn whether to write or to add.

mod buffers;
mod chains;
mod layout;
mod levels;
pub(crate) mod loops;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Place as Where, Result};
use crate::executor::compile::layout::{Layouts, Ranked};
use crate::executor::compile::loops::Site;
use crate::executor::plan::Views;
use crate::executor::plan::{Access, Home, Instr, MadeLevel, OpInstr, Plan, Ref, Slot, Span};
use crate::executor::rewrite::classes::Classes;
use crate::executor::rewrite::needs::{gradient_reads, live, needed_values, started, wanted_slots};
use crate::executor::rewrite::{Rewritten, rewrite};
use crate::kernels::Store;
use crate::program::contract::context::{Place, Wiring};
use crate::program::{
    BlockId, Extent, Needs, Op, OpDesc, Pass, Program, RECURRENT, Registry, Role, Spec, VarId, VarRole,
    grad_name,
};
use crate::tensor::StorageKind;

/// Lives until the run ends: fetched values.
pub(crate) const FOREVER: usize = usize::MAX;

pub(crate) struct Compiler<'a> {
    pub(crate) program: &'a Program,
    rewritten: &'a Rewritten,
    registry: &'a Registry,
    pub(crate) slots: Vec<Slot>,
    pub(crate) access: Vec<Option<Access>>,
    of_var: Vec<Option<usize>>,
    /// The number of the top-level instruction that is being compiled.
    now: usize,
    /// Gradients that an instruction before has written.
    pub(crate) written: HashSet<VarId>,
    /// Forward values that backward operators read.
    pub(crate) saved: HashSet<VarId>,
    /// Gradients of constants to which the steps of a loop add, with their block: to be zeroed where its run begins.
    zero_first: HashMap<BlockId, Vec<Ref>>,
    pools: usize,
    prepared: usize,
    /// Memories of each forward block, for its backward loop.
    pub(crate) memories: Vec<Vec<crate::executor::plan::MemoryPlan>>,
    /// Where they hold what they will hold next.
    pub(crate) nexts: HashSet<Access>,
    /// The slots that live in the orders of each step block.
    pub(crate) of_block: Vec<Vec<usize>>,
    /// The step block of each gradient block.
    of_gradient: HashMap<BlockId, BlockId>,
    /// What a loop in a block reads or writes, with the block.
    pub(crate) looped: HashSet<(BlockId, VarId)>,
    /// Step blocks whose loops run inside the loop around them, step by step.
    pub(crate) stepwise: HashSet<BlockId>,
    /// Levels that operators make, by forward block.
    pub(crate) made: Vec<Vec<MadeLevel>>,
    /// Which variables lie in step-major order.
    pub(crate) layouts: Layouts,
    /// Variables of step blocks that are columns of another one.
    pub(crate) views: Views,
    /// Variables that were made views of a variable; some may be another one's by now.
    pub(crate) parts: HashMap<VarId, Vec<VarId>>,
    /// Operators of step blocks that add their output to what is there.
    pub(crate) adds: HashSet<(BlockId, usize)>,
    /// Backward operators of step blocks, with an input slot whose value lies where its gradient goes.
    pub(crate) overwrites: HashSet<(BlockId, usize, usize)>,
    /// Gradients that are another one, with that one.
    pub(crate) same: Vec<(VarId, VarId)>,
    wanted: HashSet<VarId>,
    /// What the variables of each forward block have rows for, once it is compiled.
    pub(crate) classes: Vec<Option<Classes>>,
}

/// Compiles a program for the wanted variables.
pub(crate) fn compile(program: &Program, registry: &Registry, wanted: &[VarId]) -> Result<Plan> {
    program.validate()?;
    program.check_steps()?;
    let needed = live(program, wanted)?;
    program.check_shapes(registry, &needed)?;
    program.check_order(&needed)?;
    let rewritten = rewrite(program, registry, wanted)?;
    let program = &rewritten.program;
    let vars = program.vars().len();
    let mut compiler = Compiler {
        program,
        rewritten: &rewritten,
        registry,
        slots: Vec::new(),
        access: vec![None; vars],
        of_var: vec![None; vars],
        now: 0,
        written: HashSet::new(),
        saved: HashSet::new(),
        zero_first: HashMap::new(),
        pools: 0,
        prepared: 0,
        memories: vec![Vec::new(); program.blocks().len()],
        nexts: HashSet::new(),
        of_block: vec![Vec::new(); program.blocks().len()],
        of_gradient: HashMap::new(),
        looped: HashSet::new(),
        stepwise: HashSet::new(),
        made: vec![Vec::new(); program.blocks().len()],
        layouts: Layouts::default(),
        views: Views::default(),
        parts: HashMap::new(),
        adds: HashSet::new(),
        overwrites: HashSet::new(),
        same: Vec::new(),
        wanted: wanted.iter().copied().collect(),
        classes: program.blocks().map(|_| None).collect(),
    };
    let live = live(program, wanted)?;
    debug_assert_eq!(program.check_shapes(registry, &live), Ok(()), "a rewritten program");
    for (block, op) in program.blocks().flat_map(|(id, b)| b.ops.iter().map(move |op| (id, op))) {
        let Some(step) = op.step.as_deref() else { continue };
        compiler.looped.extend(op.reads().chain(op.writes()).map(|var| (block, var)));
        if let Some(gradient) = &step.gradient {
            compiler.of_gradient.entry(gradient.block).or_insert(step.block);
        }
    }
    compiler.layouts = Layouts::new(live.iter().map(|&i| &program.root().ops[i]));
    compiler.saved = compiler.find_saved(&live)?;
    // Feeds that nothing reads are still checked when they come; the others are slots from the start.
    let read: HashSet<VarId> = live.iter().flat_map(|&i| program.root().ops[i].reads()).collect();
    for (id, var) in program.vars() {
        if var.role == VarRole::Feed && (compiler.is_wanted(id) || read.contains(&id)) {
            let slot = compiler.whole(id)?;
            compiler.slots[slot].life.0 = 0;
        }
    }
    let mut code = Vec::new();
    for &number in &live {
        compiler.now = code.len() + 1;
        let mut instrs = Vec::new();
        let op = &program.root().ops[number];
        let site = Site { block: BlockId(0), number, span: Span::All, repeated: false, why: None };
        let place = compiler.place_of(op, (BlockId(0), number));
        let levels = compiler.levels_call(op, site, place.clone()).map_err(|e| e.at(place))?;
        instrs.extend(levels.map(|call| Instr::Levels(Box::new(call))));
        compiler.instruction(op, site, None, &mut instrs)?;
        code.extend(compiler.zero_first(BlockId(0)).into_iter().map(|view| Instr::Zero(view, 0)));
        code.append(&mut compiler.layouts.pending);
        code.extend(instrs);
    }
    compiler.now = code.len() + 1;
    // The losses, whose gradients start as ones, are looked at before the updates.
    let losses: Vec<VarId> = live.iter().flat_map(|&i| started(program, i)).collect();
    for &id in wanted.iter().chain(&losses) {
        compiler.fetch(id)?;
    }
    let losses = losses.into_iter().filter_map(|id| compiler.of_var[id.0 as usize]).collect();
    code.append(&mut compiler.layouts.pending);
    let mut plan = Plan {
        slots: compiler.slots,
        code,
        of_var: compiler.of_var,
        buffers: Vec::new(),
        pools: compiler.pools,
        prepared: compiler.prepared,
        instructions: 0,
        keyed: compiler.layouts.keyed,
        losses,
        views: compiler.views,
        same: compiler.same,
        program: Program::default(),
        refused: Vec::new(),
    };
    (plan.program, plan.refused) = (rewritten.program, rewritten.refused);
    crate::executor::compile::buffers::assign(&mut plan);
    plan.instructions = plan.number();
    Ok(plan)
}

impl<'a> Compiler<'a> {
    pub(crate) fn parse(&self, op: &OpDesc) -> Result<Arc<dyn Op>> {
        self.registry.parse(&op.kind, &op.attributes).map_err(|e| {
            e.at(Where {
                operator: Some(op.kind.clone()),
                caller: Some(op.caller.clone()),
                ..Where::default()
            })
        })
    }

    /// Compiles one operator of a block; `only` restricts a backward operator to some of its gradients.
    pub(crate) fn instruction(
        &mut self,
        op: &OpDesc,
        site: Site,
        only: Option<&[usize]>,
        out: &mut Vec<Instr>,
    ) -> Result<()> {
        let place = self.rewritten.place(op, site);
        if op.kind == RECURRENT {
            let instr = self.step_loop(op, site, place.clone()).map_err(|e| e.at(place))?;
            out.push(Instr::Loop(Box::new(instr)));
        } else {
            for part in self.parts(op, only)? {
                for use_ in 0..self.uses(op)? {
                    let call = self.call(op, site, (part.as_deref(), use_), place.clone());
                    out.push(Instr::Op(Box::new(call.map_err(|e| e.at(place.clone()))?)));
                }
            }
        }
        Ok(())
    }

    /// The gradients of a backward operator, call by call: if they share no work, those of rows, which threads divide,
    /// and those of constants, which are sums over all rows, are calls of their own.
    fn parts(&self, op: &OpDesc, only: Option<&[usize]>) -> Result<Vec<Option<Vec<usize>>>> {
        let together = vec![only.map(<[usize]>::to_vec)];
        if op.role != Role::Backward {
            return Ok(together);
        }
        let instance = self.parse(op)?;
        if !instance.hints().apart {
            return Ok(together);
        }
        let wanted = only.map_or_else(|| wanted_slots(&*instance, op), <[usize]>::to_vec);
        let inputs = instance.signature().inputs;
        let constant = |&slot: &usize| {
            let mut vars = op.output(&grad_name(inputs[slot].name)).iter().filter(|&&v| v != VarId::NONE);
            vars.all(|&v| self.program.spec(v).is_ok_and(|spec| !spec.batched()))
        };
        let (constants, rows): (Vec<usize>, Vec<usize>) = wanted.into_iter().partition(constant);
        Ok([rows, constants].into_iter().filter(|part| !part.is_empty()).map(Some).collect())
    }

    /// How often a backward operator has the same variable's gradient to compute: `mul(x, x)` has it twice. No call
    /// may write one place twice, so each use of a variable is a call of its own.
    fn uses(&self, op: &OpDesc) -> Result<usize> {
        if op.role != Role::Backward {
            return Ok(1);
        }
        Ok(counts(op.writes()).into_values().max().unwrap_or(1))
    }

    fn call(
        &mut self,
        op: &OpDesc,
        site: Site,
        (only, use_): (Option<&[usize]>, usize),
        place: Where,
    ) -> Result<OpInstr> {
        let instance = self.parse(op)?;
        let signature = instance.signature();
        let (facts, hints) = (instance.facts(), instance.hints());
        let input_vars = Program::slots_of(signature.inputs, &op.inputs, "");
        let backward = op.role == Role::Backward;
        let forward_outputs = if backward { &op.inputs } else { &op.outputs };
        let output_vars = Program::slots_of(signature.outputs, forward_outputs, "");
        let all = wanted_slots(&*instance, op);
        let wanted: Vec<usize> = only.map_or(all, <[usize]>::to_vec);
        let needs = gradient_reads(&*instance, &wanted, &self.program.specs(&input_vars)?);
        // What sums over rows beside computing them keeps to the batch's order.
        let order = if hints.joins { None } else { self.order(op, &*instance, (&wanted, needs), site)? };
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        let mut wiring = Wiring::default();
        let mut constants = Vec::new();
        for (slot, vars) in input_vars.iter().enumerate() {
            let over = backward && self.overwrites.contains(&(site.block, site.number, slot));
            if over {
                wiring.in_place.push(slot);
            }
            let bound = !over && (!backward || needs.has_input(slot));
            let constant = bound && vars.iter().all(|&var| self.known_before(var));
            let first = reads.len();
            wiring.inputs.push(self.places(vars, bound, order.as_ref(), &mut reads)?);
            constants.push(first..if constant { reads.len() } else { first });
        }
        let mut flush = Vec::new();
        if backward {
            for (slot, vars) in output_vars.iter().enumerate() {
                wiring.outputs.push(self.places(vars, needs.has_output(slot), order.as_ref(), &mut reads)?);
            }
            for vars in Program::slots_of(signature.outputs, &op.inputs, &grad_name("")) {
                wiring.output_gradients.push(self.places(&vars, true, order.as_ref(), &mut reads)?);
            }
            let mut seen: HashMap<VarId, usize> = HashMap::new();
            for (slot, vars) in
                Program::slots_of(signature.inputs, &op.outputs, &grad_name("")).iter().enumerate()
            {
                let mut places = Vec::new();
                for &var in vars {
                    let count = seen.entry(var).or_default();
                    let before = std::mem::replace(count, *count + 1);
                    if var == VarId::NONE || !wanted.contains(&slot) || before != use_ {
                        places.push((Place::Absent, Store::Write));
                        continue;
                    }
                    let batched = order.is_some() && self.program.spec(var)?.batched();
                    let store = if batched { Store::Write } else { self.store(var, site)? };
                    let place = self.writes(&[var], order.as_ref(), &mut writes)?[0];
                    places.push((place, store));
                    if let Some(Access::Passed { .. }) = self.access[var.0 as usize] {
                        flush.push(self.reference(var)?);
                    }
                }
                wiring.input_gradients.push(places);
            }
            for vars in Program::slots_of(signature.outputs, &op.outputs, "") {
                wiring.results.push(self.writes(&vars, order.as_ref(), &mut writes)?);
            }
        } else {
            wiring.adds = self.adds.contains(&(site.block, site.number));
            for (slot, vars) in signature.outputs.iter().zip(&output_vars) {
                wiring.outputs.push(self.writes(vars, order.as_ref(), &mut writes)?);
                if !slot.updated && site.block != BlockId(0) {
                    for &var in vars {
                        if self.is_next(var) {
                            flush.push(self.reference(var)?);
                        }
                    }
                }
            }
        }
        let (inputs, outputs) = (self.program.specs(&input_vars)?, self.program.specs(&output_vars)?);
        let literals = self.program.literals(&input_vars);
        let names = self.names(&*instance, op);
        let stream = output_vars.iter().flatten().next().map_or(0, |v| u64::from(v.0));
        let prepared = hints.prepares.then(|| {
            self.prepared += 1;
            self.prepared - 1
        });
        Ok(OpInstr {
            op: instance,
            place,
            names,
            pass: if backward { Pass::Backward } else { Pass::Forward },
            role: op.role,
            reach: facts.reach,
            wiring,
            reads,
            writes,
            inputs,
            literals,
            outputs,
            made: Vec::new(),
            top: self.program.top(self.forward_block(site.block)),
            stream,
            random: facts.random,
            prepared,
            constants,
            wanted: (0..signature.inputs.len()).map(|s| wanted.contains(&s)).collect(),
            flush,
            span: site.span,
            order: order.map(|r| (r.block, r.rows)),
            desc: (site.block, site.number),
            why: site.why,
            stands_for: self.rewritten.note(site),
            index: 0,
        })
    }

    /// The name of the variable in each input slot that has one variable.
    pub(crate) fn names(&self, instance: &dyn Op, op: &OpDesc) -> Vec<(&'static str, String)> {
        let slots = instance.signature().inputs;
        let named = |slot: &crate::program::Slot| match *op.input(slot.name) {
            [var] if var != VarId::NONE => Some((slot.name, self.program.var(var).name.clone())),
            _ => None,
        };
        slots.iter().filter_map(named).collect()
    }

    /// Where an operator is in the program that was given.
    pub(crate) fn place_of(&self, op: &OpDesc, (block, number): (BlockId, usize)) -> Where {
        self.rewritten.place(op, Site { block, number, span: Span::All, repeated: false, why: None })
    }

    /// The step block whose sequences a (gradient) block runs over.
    fn forward_block(&self, block: BlockId) -> BlockId {
        self.of_gradient.get(&block).copied().unwrap_or(block)
    }

    /// Whether a contribution to a gradient writes or adds; from now on others add.
    pub(crate) fn store(&mut self, grad: VarId, site: Site) -> Result<Store> {
        let constant = matches!(self.access_of(grad)?, Access::Slot(s) if self.slots[s].home == Home::Whole);
        if constant && site.repeated && self.written.insert(grad) {
            let reference = self.reference(grad)?;
            self.zero_first.entry(self.program.var(grad).block).or_default().push(reference);
            return Ok(Store::Add);
        }
        Ok(if self.written.insert(grad) { Store::Write } else { Store::Add })
    }

    /// What a run of the block, which has just been compiled, has to zero before anything else: a block inside a loop
    /// runs again and again, and the sums of one visit must not go into those of the next.
    pub(crate) fn zero_first(&mut self, block: BlockId) -> Vec<Ref> {
        self.zero_first.remove(&block).unwrap_or_default()
    }

    /// The number of the top-level instruction that is being compiled.
    pub(crate) fn now(&self) -> usize {
        self.now
    }

    /// Whether a variable of a step block goes to another step: what a memory holds next, or its gradient.
    pub(crate) fn passes_on(&self, var: VarId, site: Site) -> bool {
        let passed = matches!(self.access[var.0 as usize], Some(Access::Passed { .. }));
        site.block != BlockId(0) && (passed || self.is_next(var))
    }

    fn is_next(&self, var: VarId) -> bool {
        self.access[var.0 as usize].is_some_and(|access| self.nexts.contains(&access))
    }

    /// A parameter, or anything else with a value before this top-level instruction begins.
    fn known_before(&self, var: VarId) -> bool {
        match self.access.get(var.0 as usize) {
            Some(&Some(Access::Slot(s))) => {
                let slot = &self.slots[s];
                let constant = slot.home == Home::Whole && slot.rows.known().is_some();
                constant && slot.pool.is_none() && (slot.persistent || slot.life.0 < self.now)
            }
            _ => self.program.var(var).persistable,
        }
    }

    /// The order in which an operator can run on rows as they lie.
    fn order(
        &mut self,
        op: &OpDesc,
        instance: &dyn Op,
        (wanted, needs): (&[usize], Needs),
        site: Site,
    ) -> Result<Option<Ranked>> {
        let present = |v: &VarId| *v != VarId::NONE;
        let facts = instance.facts();
        let (reads, writes) = if op.role == Role::Backward {
            let signature = instance.signature();
            let mut reads = needed_values(instance, op, needs);
            reads.extend(
                signature.outputs.iter().flat_map(|s| op.input(&grad_name(s.name))).filter(|v| present(v)),
            );
            let writes = wanted.iter().flat_map(|&s| op.output(&grad_name(signature.inputs[s].name)));
            (reads, writes.copied().filter(present).collect::<Vec<_>>())
        } else {
            (op.reads().collect(), op.writes().collect())
        };
        let reads: Vec<VarId> = self.program.tensors(reads.into_iter()).collect();
        let order = self.order_for(facts.reach, op, site, (&reads, &writes))?;
        if let (Some(order), true) = (&order, facts.random) {
            self.layouts.keyed.push(order.block);
        }
        Ok(order)
    }

    fn writes(&mut self, vars: &[VarId], order: Option<&Ranked>, refs: &mut Vec<Ref>) -> Result<Vec<Place>> {
        if let Some(order) = order {
            for &var in vars {
                // Makes its slot in that order.
                self.ranked_reference(var, order, true)?;
            }
        }
        self.places(vars, true, order, refs)
    }

    pub(crate) fn places(
        &mut self,
        vars: &[VarId],
        bound: bool,
        order: Option<&Ranked>,
        refs: &mut Vec<Ref>,
    ) -> Result<Vec<Place>> {
        let mut places = Vec::new();
        for &var in vars {
            if !bound || var == VarId::NONE || self.program.var(var).spec().is_none() {
                places.push(Place::Absent);
                continue;
            }
            let reference = match order {
                Some(order) => self.ranked_reference(var, order, false)?,
                None => self.reference(var)?,
            };
            if let Access::Slot(s) = reference.access
                && let Some(pool) = self.slots[s].pool
            {
                places.push(Place::Rows(pool));
                continue;
            }
            refs.push(reference);
            places.push(Place::Dense(refs.len() - 1));
        }
        Ok(places)
    }

    /// Where a variable is, with its rows and width.
    pub(crate) fn reference(&mut self, var: VarId) -> Result<Ref> {
        let access = self.access_of(var)?;
        self.touch(access);
        let spec = self.program.spec(var)?;
        let column = self.views.get(&var).map_or(0, |&(_, column)| column);
        Ok(Ref { access, rows: spec.rows(), width: spec.width(), column })
    }

    pub(crate) fn access_of(&mut self, var: VarId) -> Result<Access> {
        let var = self.whole_of(var);
        self.need_natural(var)?;
        match self.access[var.0 as usize] {
            Some(access) => Ok(access),
            None => self.whole(var).map(Access::Slot),
        }
    }

    /// The slot of a variable in the order of the batch, made if need be.
    fn whole(&mut self, var: VarId) -> Result<usize> {
        if let Some(Access::Slot(slot)) = self.access[var.0 as usize] {
            return Ok(slot);
        }
        self.place(var, Home::Whole)
    }

    /// Gives a variable a slot.
    pub(crate) fn place(&mut self, var: VarId, home: Home) -> Result<usize> {
        let desc = self.program.var(var);
        let spec = self.program.spec(var)?;
        // A damaged file can say that a variable of a step belongs elsewhere.
        if home == Home::Whole && matches!(spec.rows(), Extent::Alive(_)) {
            let expected = "a place inside its step";
            return Err(
                Error::of(ErrorKind::Program, "rows of a step", expected, "one outside").variable(&desc.name)
            );
        }
        let slot = self.add_slot(var, spec, home);
        self.slots[slot].persistent = desc.persistable;
        self.access[var.0 as usize] = Some(Access::Slot(slot));
        self.of_var[var.0 as usize] = Some(slot);
        Ok(slot)
    }

    /// A slot for the value of `var`, or for another value of the same kind.
    pub(crate) fn add_slot(&mut self, var: VarId, spec: &Spec, home: Home) -> usize {
        let pool = (spec.storage == StorageKind::SelectedRows).then(|| {
            self.pools += 1;
            self.pools - 1
        });
        self.slots.push(Slot {
            var,
            dtype: spec.dtype,
            width: spec.width(),
            rows: spec.rows(),
            home,
            buffer: 0,
            life: (self.now, self.now),
            persistent: false,
            alias: None,
            pool,
        });
        let slot = self.slots.len() - 1;
        if let Home::Stepped(block) | Home::Sequence(block) = home {
            self.of_block[block.0 as usize].push(slot);
        }
        slot
    }

    pub(crate) fn touch(&mut self, access: Access) {
        let slot = |reference: &Ref| if let Access::Slot(s) = reference.access { Some(s) } else { None };
        let touched: Vec<usize> = match access {
            Access::Slot(s) => vec![s],
            Access::Previous { block, memory } => {
                let m = &self.memories[block.0 as usize][memory];
                [slot(&m.next), slot(&m.start), m.all.as_ref().and_then(slot)].into_iter().flatten().collect()
            }
            Access::Passed { .. } => Vec::new(),
        };
        for mut s in touched {
            loop {
                let life = &mut self.slots[s].life;
                life.1 = life.1.max(self.now);
                match self.slots[s].alias {
                    Some(of) => s = of,
                    None => break,
                }
            }
        }
    }

    pub(crate) fn is_wanted(&self, var: VarId) -> bool {
        self.wanted.contains(&var)
    }

    /// Lets a variable live in a slot that exists.
    pub(crate) fn set_slot(&mut self, var: VarId, slot: usize) {
        self.access[var.0 as usize] = Some(Access::Slot(slot));
    }

    fn fetch(&mut self, id: VarId) -> Result<()> {
        self.need_natural(id)?;
        let slot = self.whole(id)?;
        self.slots[slot].life.1 = FOREVER;
        Ok(())
    }
}

/// How often each variable comes.
pub(crate) fn counts(vars: impl Iterator<Item = VarId>) -> HashMap<VarId, usize> {
    let mut counts = HashMap::new();
    vars.for_each(|var| *counts.entry(var).or_default() += 1);
    counts
}
