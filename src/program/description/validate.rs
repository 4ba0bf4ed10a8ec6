//! Validation: checks a program that comes from a file or a user, before other code reads the program.
//!
//! After [`Program::validate`], printing, comparing and saving a program is safe. All variable, block and level numbers exist,
//! sizes do not overflow, and blocks are nested correctly. Every step block is run by one `recurrent`, which describes the step
//! block correctly, and no variable is read before it is written. A compiler, which knows the operators, requires one more check.
//! [`Program::check_shapes`]: every slot has its variables, and every shape rule gives the shapes that the program declares.

mod order;

use std::collections::{HashMap, HashSet};

use super::language::RECURRENT;
use super::op_desc::{OpDesc, Role, SlotVars, StepDesc, StepGradient, VarPair};
use super::program::{Block, Program, malformed};
use super::var_desc::{VarDesc, VarRole, grad_name};
use crate::error::{AtCaller, Place, Result};
use crate::operator::extent::{BlockId, Extent, LevelId, Levels, MAX_LEVELS, Spec, VarId, rows_of_step};
use crate::operator::infer::infer;
use crate::operator::registry::Registry;
use crate::operator::shapes::{InputSlots, Phase};
use crate::operator::signature::Signature;
use crate::tensor::StorageKind;

/// The maximum nesting depth of step blocks, so that a recursive compiler does not overflow its stack.
const MAX_DEPTH: usize = 64;

impl Program {
    /// Checks a program that comes from a file or a user. All variable, block and level numbers must exist, names must be
    /// unique, blocks must be nested correctly, and operators must read only what is written before.
    ///
    /// # Errors
    /// Fails with the first rule that the program breaks.
    #[track_caller]
    pub fn validate(&self) -> Result<()> {
        self.well_formed().at_caller()
    }

    fn well_formed(&self) -> Result<()> {
        if self.blocks.first().is_none_or(|root| root.parent.is_some()) {
            return Err(malformed("first block", "a root without a parent", "no such block"));
        }
        // Each LoD level belongs to a variable, and a variable has at most `MAX_LEVELS` levels.
        let most = self.vars.len().saturating_mul(MAX_LEVELS);
        if self.levels as usize > most {
            return Err(malformed("number of levels", format!("at most {most}"), self.levels.to_string()));
        }
        let mut depths = vec![0; self.blocks.len()];
        for (i, block) in self.blocks.iter().enumerate().skip(1) {
            let Some(parent) = block.parent.map(|p| p.0 as usize).filter(|&p| p < i) else {
                let got = block.parent.map_or_else(|| "none".to_owned(), |p| p.0.to_string());
                return Err(malformed(format!("block {i}"), "a parent before it", got));
            };
            depths[i] = depths[parent] + 1;
            if depths[i] > MAX_DEPTH {
                let expected = format!("at most {MAX_DEPTH} nested blocks");
                return Err(malformed(format!("block {i}"), expected, "more"));
            }
        }
        let mut names = HashSet::new();
        for desc in &self.vars {
            if !names.insert(desc.name.as_str()) {
                return Err(malformed("variable name", "each once", format!("`{}` twice", desc.name)));
            }
            self.var_fits(desc).map_err(|e| e.variable(&desc.name))?;
        }
        for (i, block) in self.blocks.iter().enumerate() {
            block.ops.iter().try_for_each(|op| self.op_fits(op, BlockId(i as u32)))?;
        }
        self.check_carried()?;
        self.check_steps()?;
        self.computed().map(drop)
    }

    /// Checks every step block: one `recurrent` runs the step block, and its variables belong to the right blocks.
    ///
    /// # Errors
    /// Fails with the first rule that a step block breaks.
    fn check_steps(&self) -> Result<()> {
        let runs = Runs::of(self);
        for op in self.ops() {
            let Some(step) = op.step.as_deref() else { continue };
            let expected = if step.gradient.is_some() { Role::Backward } else { Role::Forward };
            if op.role != expected {
                return Err(malformed(
                    "role of a recurrent",
                    format!("{expected:?}"),
                    format!("{:?}", op.role),
                ));
            }
            self.step(op, step, &runs)?;
        }
        self.each_block_once()
    }

    pub(in crate::program) fn has_var(&self, id: VarId) -> Result<&VarDesc> {
        let number = || malformed("variable number", format!("below {}", self.vars.len()), id.0.to_string());
        self.vars.get(id.0 as usize).ok_or_else(number)
    }

    fn has_block(&self, id: BlockId) -> Result<&Block> {
        let number = || malformed("block number", format!("below {}", self.blocks.len()), id.0.to_string());
        self.blocks.get(id.0 as usize).ok_or_else(number)
    }

    fn has_level(&self, id: LevelId) -> Result<()> {
        match id.0 < self.levels {
            true => Ok(()),
            false => Err(malformed("level number", format!("below {}", self.levels), id.0.to_string())),
        }
    }

    fn var_fits(&self, desc: &VarDesc) -> Result<()> {
        self.has_block(desc.block)?;
        if desc.block.0 > 0 && (desc.persistable || desc.role == VarRole::Feed) {
            return Err(malformed("block of a feed or a persistent variable", "the root", "a step block"));
        }
        if desc.persistable && desc.spec().is_some_and(Spec::batched) {
            return Err(malformed("shape of a persistent variable", "a fixed shape", "a batch of rows"));
        }
        if let Some(original) = desc.gradient_of {
            self.has_var(original)?;
        }
        if (desc.role == VarRole::Literal) != desc.spec().is_none()
            || (desc.persistable && desc.spec().is_none())
        {
            return Err(malformed("role of a variable", "`Literal` only for literals", "another role"));
        }
        let Some(spec) = desc.spec() else { return Ok(()) };
        spec.lod.iter().try_for_each(|&l| self.has_level(l))?;
        spec.check_layout()?;
        match spec.shape.first() {
            Some(&Extent::Rows(l)) => self.has_level(l)?,
            Some(&Extent::Alive(b)) => drop(self.has_block(b)?),
            _ => {}
        }
        if desc.role == VarRole::Feed && matches!(spec.shape.first(), Some(Extent::Data(_))) {
            return Err(malformed(
                "rows of a feed",
                "the rows of the batch or of a level, or a known number",
                spec.to_string(),
            ));
        }
        if desc.block.0 == 0 && matches!(spec.shape.first(), Some(Extent::Alive(_))) {
            return Err(malformed("shape", "rows that exist outside of step blocks", spec.to_string()));
        }
        Ok(())
    }

    fn op_fits(&self, op: &OpDesc, block: BlockId) -> Result<()> {
        let wrong = |expected: &str, got: String| {
            Err(malformed(format!("operator `{}` of block {}", op.kind, block.0), expected, got))
        };
        for (number, bound) in op.inputs.iter().chain(&op.outputs).enumerate() {
            let gradient = op.role == Role::Backward && bound.slot.ends_with(&grad_name(""));
            // Literals may be in the slot `constant` of a `recurrent`, whose variables the steps read, but in no other slot of a
            // `recurrent`.
            let slot = op.kind != RECURRENT || bound.slot == "constant";
            let literals = number < op.inputs.len() && !gradient && slot;
            for &id in bound.vars.iter().filter(|&&id| id != VarId::NONE || !gradient) {
                let desc = self.has_var(id)?;
                if desc.spec().is_none() && !literals {
                    return wrong("tensors", format!("the literal `{}`", desc.name));
                }
            }
        }
        // An operator may write variables of its own block. A backward operator may also add to a gradient that belongs to a
        // block around its own block.
        for id in op.writes() {
            let desc = self.has_var(id)?;
            let outside = op.role == Role::Backward && desc.gradient_of.is_some();
            if desc.block != block && !(outside && self.encloses(desc.block, block)) {
                let got = format!("`{}` of block {}", desc.name, desc.block.0);
                return wrong("to write variables of its own block", got);
            }
        }
        if (op.kind == RECURRENT) != op.step.is_some() {
            return wrong("a step block if, and only if, it is a `recurrent`", "the opposite".to_owned());
        }
        let Some(step) = op.step.as_deref() else { return Ok(()) };
        let run = step.gradient.as_ref().map_or(step.block, |g| g.block);
        step.validate(&|id| self.has_var(id).map(drop), &|id| self.has_block(id).map(drop), &|id| {
            self.has_level(id)
        })?;
        if self.has_block(run)?.parent != Some(block) {
            return wrong("a step block inside the block of its operator", format!("block {}", run.0));
        }
        Ok(())
    }

    /// Checks the description of a step block, and the variables that pass between the step block and the block around it.
    fn step(&self, op: &OpDesc, step: &StepDesc, runs: &Runs<'_>) -> Result<()> {
        let border = self.border(step, runs)?;
        let (seen, made) = (&[VarRole::Step], &[VarRole::Computed]);
        let depth = border.above.len();
        for (pairs, roles, kept) in
            [(&step.inputs, seen, depth + 1), (&step.statics, seen, depth), (&step.outputs, made, depth + 1)]
        {
            for pair in pairs {
                self.crosses(pair, (step, &border), roles, kept)?;
            }
        }
        let mut views: Vec<VarId> = step.inputs.iter().chain(&step.statics).map(|p| p.inner).collect();
        let mut nexts = Vec::new();
        for memory in &step.memories {
            self.lies(memory.previous, step.block, seen)?;
            self.lies(memory.next, step.block, made)?;
            let (want, got) = (self.spec(memory.previous)?, self.spec(memory.next)?);
            if want != got || want.rows() != Extent::Alive(step.block) {
                return Err(malformed("memory", want.to_string(), got.to_string()));
            }
            for outer in [memory.initial, memory.last].into_iter().flatten() {
                self.alike(outer, memory.previous)?;
                let (desc, spec) = (self.has_var(outer)?, self.spec(outer)?);
                if desc.block != border.home || spec.lod != border.above || spec.rows() != border.sequences {
                    let expected = rows_of_step(border.sequences);
                    return Err(malformed("memory", expected, spec.to_string()).variable(&desc.name));
                }
            }
            views.push(memory.previous);
            nexts.push(memory.next);
        }
        for (what, mut vars) in [("view of a step", views), ("next value of a memory", nexts)] {
            vars.sort();
            if vars.windows(2).any(|pair| pair[0] == pair[1]) {
                return Err(malformed(what, "distinct variables", "a variable twice"));
            }
        }
        same_slot(&op.inputs, "x", outers(&step.inputs))?;
        same_slot(&op.inputs, "static", outers(&step.statics))?;
        same_slot(&op.inputs, "initial", step.memories.iter().filter_map(|m| m.initial))?;
        if let Some(gradient) = step.gradient.as_deref() {
            let lasts = gradient.memories.iter().filter_map(|m| m.last);
            let initials = gradient.memories.iter().filter_map(|m| m.initial);
            same_slot(&op.inputs, &grad_name("out"), outers(&gradient.outputs))?;
            same_slot(&op.inputs, &grad_name("last"), lasts)?;
            same_slot(&op.outputs, &grad_name("x"), outers(&gradient.inputs))?;
            same_slot(&op.outputs, &grad_name("static"), outers(&gradient.statics))?;
            same_slot(&op.outputs, &grad_name("initial"), initials)?;
            return self.step_gradient(step, gradient, runs);
        }
        same_slot(&op.outputs, "out", outers(&step.outputs))?;
        same_slot(&op.outputs, "last", step.memories.iter().filter_map(|m| m.last))
    }

    /// Returns the surroundings of a step block, which are derived from the step block's first step input.
    fn border(&self, step: &StepDesc, runs: &Runs<'_>) -> Result<Border> {
        let first = step.inputs.first().ok_or_else(|| malformed("step inputs", "at least one", "none"))?;
        let lod = &self.spec(first.outer)?.lod;
        let Some(depth) = lod.iter().position(|&l| l == step.level) else {
            let got = format!("level {}", step.level.0);
            return Err(malformed("level of a step", "a level of its first input", got));
        };
        // An inner level must have a higher number than its outer level, so that a walk from inner to outer levels ends.
        if let Some((outer, inner)) = step.levels.iter().find(|(outer, inner)| inner <= outer) {
            let got = format!("{} for {}", inner.0, outer.0);
            return Err(malformed("level in a step", "a level made after the level outside", got));
        }
        let home = self.has_block(step.block)?.parent.unwrap_or_default();
        let above: Levels = lod[..depth].iter().copied().collect();
        let sequences = above.last().map_or(self.top(runs.by(home)), |&l| Extent::Rows(l));
        Ok(Border { home, above, sequences })
    }

    /// Checks that the backward part of a `recurrent` belongs to a forward step block, and that its gradients are gradients of
    /// the step block's variables.
    fn step_gradient(&self, step: &StepDesc, gradient: &StepGradient, runs: &Runs<'_>) -> Result<()> {
        let plain = StepDesc { gradient: None, ..step.clone() };
        if runs.forward.get(&step.block) != Some(&&plain) {
            let got = format!("another recurrent of block {}", step.block.0);
            return Err(malformed("gradient of a recurrent", "a recurrent of the program", got));
        }
        let is = |grad: VarId, original: VarId| -> Result<()> {
            match self.is_gradient(grad, original, runs)? {
                true => self.alike(grad, original),
                false => Err(malformed(
                    "gradient",
                    format!("the gradient of variable {}", original.0),
                    grad.0.to_string(),
                )),
            }
        };
        for (grads, pairs) in [
            (&gradient.outputs, &step.outputs),
            (&gradient.inputs, &step.inputs),
            (&gradient.statics, &step.statics),
        ] {
            // The iteration is in reverse, so that the first of two pairs with the same inner variable is kept.
            let of_inner: HashMap<VarId, &VarPair> = pairs.iter().rev().map(|p| (p.inner, p)).collect();
            for pair in grads {
                let original = self.has_var(pair.inner)?.gradient_of;
                let Some(original) = original.and_then(|original| of_inner.get(&original)) else {
                    return Err(malformed(
                        "gradient",
                        "the gradient of a variable of the step",
                        pair.inner.0.to_string(),
                    ));
                };
                is(pair.outer, original.outer)?;
                is(pair.inner, original.inner)?;
            }
        }
        let mut seen = HashSet::new();
        for m in &gradient.memories {
            let Some(memory) = step.memories.get(m.memory as usize).filter(|_| seen.insert(m.memory)) else {
                return Err(malformed("memory number", "a memory of the step, once", m.memory.to_string()));
            };
            is(m.next, memory.next)?;
            let others =
                [(m.previous, Some(memory.previous)), (m.last, memory.last), (m.initial, memory.initial)];
            for (grad, original) in others {
                match (grad, original) {
                    (Some(grad), Some(original)) => is(grad, original)?,
                    (Some(grad), None) => {
                        let got = format!("variable {}", grad.0);
                        return Err(malformed("gradient of a memory", "none for a missing value", got));
                    }
                    (None, _) => {}
                }
            }
        }
        Ok(())
    }

    fn lies(&self, id: VarId, block: BlockId, roles: &[VarRole]) -> Result<()> {
        let desc = self.has_var(id)?;
        if desc.block != block || !roles.contains(&desc.role) || desc.spec().is_none() {
            let expected = format!("a fitting variable of block {}", block.0);
            return Err(malformed("variable of a step", expected, "another variable").variable(&desc.name));
        }
        Ok(())
    }

    /// Checks an outer variable and its view in a step block. The view has all LoD levels of the outer variable except the first
    /// `kept` levels.
    fn crosses(
        &self,
        pair: &VarPair,
        border_of: (&StepDesc, &Border),
        roles: &[VarRole],
        kept: usize,
    ) -> Result<()> {
        let (step, border) = border_of;
        self.lies(pair.inner, step.block, roles)?;
        self.alike(pair.outer, pair.inner)?;
        let (desc, outer, inner) =
            (self.has_var(pair.outer)?, self.spec(pair.outer)?, self.spec(pair.inner)?);
        let depth = border.above.len();
        let fits = desc.block == border.home
            && outer.lod.len() == kept + inner.lod.len()
            && outer.lod.starts_with(&border.above)
            && (kept == depth || outer.lod[depth] == step.level)
            && (!outer.lod.is_empty() || outer.rows() == border.sequences)
            && (!inner.lod.is_empty() || inner.rows() == Extent::Alive(step.block))
            && outer.lod[kept..].iter().zip(&inner.lod).all(|(outer, inner)| inner > outer);
        if !fits {
            let got = format!("{outer}, inside {inner}");
            return Err(malformed("variable of a step", "the step's sequences", got).variable(&desc.name));
        }
        Ok(())
    }

    /// Checks that two variables have the same dtype and row shape, and that their rows are dense.
    fn alike(&self, a: VarId, b: VarId) -> Result<()> {
        let (x, y) = (self.spec(a)?, self.spec(b)?);
        let row = |s: &Spec| (s.dtype, s.batched(), s.row_shape().to_vec());
        // A step block neither reads nor returns sparse rows.
        let dense = |s: &Spec| s.storage == StorageKind::Dense || !s.batched();
        if row(x) != row(y) || !dense(x) || !dense(y) {
            let name = &self.has_var(b)?.name;
            return Err(malformed("rows", x.to_string(), y.to_string()).variable(name));
        }
        Ok(())
    }

    /// Checks the operators of a validated program by their own rules: slots, kernels for the storages of the inputs, and shape
    /// rule. The shape rule must give the shapes that the program declares. `live` has the indices of the root block's operators
    /// that will run; the operators of their step blocks are checked too.
    ///
    /// # Errors
    /// Fails with an error that names the first operator that is unknown or breaks one of its rules.
    pub(crate) fn check_shapes(&self, registry: &Registry, live: &[usize]) -> Result<()> {
        let runs = Runs::of(self);
        let mut open: Vec<(BlockId, usize)> = live.iter().map(|&number| (BlockId(0), number)).collect();
        while let Some((block, number)) = open.pop() {
            let Some(op) = self.has_block(block)?.ops.get(number) else { continue };
            if let Some(step) = op.step.as_deref() {
                let run = step.gradient.as_ref().map_or(step.block, |g| g.block);
                open.extend((0..self.has_block(run)?.ops.len()).map(|number| (run, number)));
                continue;
            }
            let place = || Place {
                operator: Some(format!("{} #{number}", op.kind)),
                caller: Some(op.caller.clone()),
                ..self.inside(block)
            };
            self.shapes(registry, block, &runs, op).map_err(|e| self.worded(e).at(place()))?;
        }
        Ok(())
    }

    fn shapes(&self, registry: &Registry, block: BlockId, runs: &Runs<'_>, desc: &OpDesc) -> Result<()> {
        let op = registry.parse(&desc.kind, &desc.attributes)?;
        let signature = op.signature();
        let backward = desc.role == Role::Backward;
        let inputs = Self::slots_of(signature.inputs, &desc.inputs, "");
        let outputs =
            Self::slots_of(signature.outputs, if backward { &desc.inputs } else { &desc.outputs }, "");
        self.check_bound(signature.inputs, &inputs)?;
        self.check_bound(signature.outputs, &outputs)?;
        let here = runs.by(block);
        for id in desc.reads().chain(desc.writes()) {
            let var = self.has_var(id)?;
            // A gradient block is beside its step block, in the same parent block, and may read the step block's variables.
            let around = self.encloses(var.block, block) || (backward && self.encloses(var.block, here));
            let constant = around && !var.spec().is_some_and(Spec::batched);
            if var.block != block && !constant && !(backward && var.block == here) {
                let expected = format!("a variable of block {} or a constant around it", block.0);
                return Err(malformed("scope", expected, "another variable").variable(&var.name));
            }
        }
        let specs = self.specs(&inputs)?;
        self.check_storages(signature, &inputs)?;
        if block.0 > 0 {
            self.check_dense_rows(&inputs)?;
            self.check_dense_rows(&outputs)?;
        }
        let mut next = self.levels;
        let (literals, phase) = (self.literals(&inputs), Phase::Build { next: &mut next });
        let given = InputSlots { specs: &specs, literals: &literals };
        let given = infer(&*op, given, self.top(here), phase)?;
        // The shape rule gives new numbers to the levels that it makes; `named` maps each new number to a level of the program.
        let mut named: Vec<(LevelId, LevelId)> = Vec::new();
        for (slot, (vars, given)) in signature.outputs.iter().zip(outputs.iter().zip(&given)) {
            let declared = vars.iter().map(|&v| self.spec(v)).collect::<Result<Vec<_>>>()?;
            let same = declared.len() == given.len()
                && declared.iter().zip(given).all(|(d, g)| same_spec(d, g, self.levels, &mut named));
            if !same {
                let list =
                    |specs: Vec<&Spec>| specs.iter().map(|s| s.to_string()).collect::<Vec<_>>().join(", ");
                let (expected, got) = (list(given.iter().collect()), list(declared));
                return Err(malformed(format!("output `{}`", slot.name), expected, got));
            }
        }
        if backward {
            return self.gradients(signature, desc, runs, &|slot| op.gradient(slot, &specs).storage);
        }
        // Only a row-sparse parameter, or its optimizer state, may be updated in place as selected rows.
        for (slot, vars) in signature.outputs.iter().zip(&outputs).filter(|(slot, _)| slot.updated) {
            for &var in vars {
                let desc = self.has_var(var)?;
                if slot.table && self.spec(var)?.storage == StorageKind::SelectedRows && !desc.is_row_sparse()
                {
                    let got = self.spec(var)?.to_string();
                    let what = format!("output `{}`", slot.name);
                    return Err(malformed(what, "a row-sparse parameter, or its optimizer's state", got)
                        .variable(&desc.name));
                }
            }
        }
        Ok(())
    }

    /// Checks that each gradient that a backward operator reads or writes has the shape of its variable.
    fn gradients(
        &self,
        signature: Signature,
        desc: &OpDesc,
        runs: &Runs<'_>,
        written: &dyn Fn(usize) -> StorageKind,
    ) -> Result<()> {
        for (slots, bounds) in [(signature.outputs, &desc.inputs), (signature.inputs, &desc.outputs)] {
            let writes = std::ptr::eq(bounds, &desc.outputs);
            let (vars, grads) =
                (Self::slots_of(slots, &desc.inputs, ""), Self::slots_of(slots, bounds, &grad_name("")));
            for (slot, (vars, grads)) in
                vars.iter().zip(&grads).enumerate().filter(|(_, (_, g))| !g.is_empty())
            {
                if vars.len() != grads.len() {
                    return Err(malformed("gradients", vars.len().to_string(), grads.len().to_string()));
                }
                for (&vars, &grad) in vars.iter().zip(grads).filter(|(_, grad)| **grad != VarId::NONE) {
                    let (x, dx) = (self.spec(vars)?, self.spec(grad)?);
                    let name = &self.has_var(grad)?.name;
                    if !self.is_gradient(grad, vars, runs)? {
                        let expected = format!("the gradient of variable {}", self.shown(vars));
                        return Err(malformed("gradient", expected, "another").variable(name));
                    }
                    // A gradient may be stored as selected rows only if the operator writes selected rows.
                    let stored = x.storage == dx.storage
                        || x.storage == StorageKind::Dense && writes && dx.storage == written(slot);
                    if !stored || (&x.shape, &x.lod, x.dtype) != (&dx.shape, &dx.lod, dx.dtype) {
                        return Err(malformed("gradient", x.to_string(), dx.to_string()).variable(name));
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether `grad` is the gradient of `original`; if `original` is in a step block, `grad` must be in its gradient block.
    fn is_gradient(&self, grad: VarId, original: VarId, runs: &Runs<'_>) -> Result<bool> {
        let (grad, home) = (self.has_var(grad)?, self.has_var(original)?.block);
        Ok(grad.gradient_of == Some(original) && runs.by(grad.block) == home)
    }

    /// Checks that no two operators run the same block: its variables would keep only the values of the last run.
    fn each_block_once(&self) -> Result<()> {
        let mut seen = HashSet::new();
        for step in self.ops().filter_map(|op| op.step.as_deref()) {
            let run = step.gradient.as_ref().map_or(step.block, |g| g.block);
            if !seen.insert(run) {
                let got = format!("block {} twice", run.0);
                return Err(malformed("step block", "a block that no other operator runs", got));
            }
        }
        Ok(())
    }
}

/// Returns whether a declared spec equals the spec `given` of a shape rule. New levels have numbers from `fresh` on.
fn same_spec(declared: &Spec, given: &Spec, fresh: u32, named: &mut Vec<(LevelId, LevelId)>) -> bool {
    let mut same = |d: LevelId, g: LevelId| {
        if g.0 < fresh {
            return d == g;
        }
        match named.iter().find(|(d_known, g_known)| *d_known == d || *g_known == g) {
            Some(&known) => known == (d, g),
            None => {
                named.push((d, g));
                true
            }
        }
    };
    let extents = declared.shape.iter().zip(&given.shape).all(|(&d, &g)| match (d, g) {
        (Extent::Rows(d), Extent::Rows(g)) => same(d, g),
        _ => d == g,
    });
    extents
        && declared.lod.iter().zip(&given.lod).all(|(&d, &g)| same(d, g))
        && (declared.shape.len(), declared.lod.len()) == (given.shape.len(), given.lod.len())
        && (declared.dtype, declared.storage) == (given.dtype, given.storage)
}

/// For each block, the `recurrent` that runs the block; the first one if several run the block.
struct Runs<'a> {
    forward: HashMap<BlockId, &'a StepDesc>,
    of_gradient: HashMap<BlockId, BlockId>,
}

impl<'a> Runs<'a> {
    fn of(program: &'a Program) -> Self {
        let mut runs = Self { forward: HashMap::new(), of_gradient: HashMap::new() };
        for step in program.ops().filter_map(|op| op.step.as_deref()) {
            match &step.gradient {
                None => drop(runs.forward.entry(step.block).or_insert(step)),
                Some(gradient) => drop(runs.of_gradient.entry(gradient.block).or_insert(step.block)),
            }
        }
        runs
    }

    /// Returns the step block of a gradient block; returns any other block itself.
    fn by(&self, block: BlockId) -> BlockId {
        self.of_gradient.get(&block).copied().unwrap_or(block)
    }
}

/// The surroundings of a step block: the block around it, and the sequences that the steps run over.
struct Border {
    /// The block around the step block.
    home: BlockId,
    /// The LoD levels above the level whose sequences the steps run over.
    above: Levels,
    /// The extent that counts the sequences that the steps run over.
    sequences: Extent,
}

fn outers(pairs: &[VarPair]) -> impl Iterator<Item = VarId> + '_ {
    pairs.iter().map(|p| p.outer)
}

/// Checks that a slot of a `recurrent` lists the same variables as the step block's description, since some code reads only
/// slots.
fn same_slot(slots: &[SlotVars], slot: &str, vars: impl Iterator<Item = VarId>) -> Result<()> {
    let found = slots.iter().find(|b| b.slot == slot).map_or(&[][..], |b| &b.vars);
    let vars: Vec<VarId> = vars.collect();
    if found != vars {
        let shown = |vars: &[VarId]| format!("variables {:?}", vars.iter().map(|v| v.0).collect::<Vec<_>>());
        let (expected, got) = (format!("{}, as the step has", shown(&vars)), shown(found));
        return Err(malformed(format!("slot `{slot}` of a recurrent"), expected, got));
    }
    Ok(())
}
