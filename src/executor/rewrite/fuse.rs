//! Fusion: one operator replaces two operators, of which the first computes an input of the second. The second operator
//! must declare the fusion ([`Hints::fusions`]), and no other operator may read the value between the two operators.
//! The fused operator works in chunks, and never holds the whole value between the two operators in memory.
//!
//! In training, the fused operator replaces the two backward operators as well: it computes outputs and gradients in one call,
//! before its outputs are read. Therefore the gradient of the fused operator's output must be known before the fused operator
//! is called. The gradient of a mean or of a masked sum does not depend on the losses, so the operators that compute the
//! gradient can be moved up. If the gradient depends on the losses, the operators are not fused. A run without the backward
//! pass calls the forward operator instead of the fused operator.
//!
//! For fusion, an operator of a step block is moved out of the block if no memory depends on the operator
//! ([`Draft::sink`]). The moved operator reads outputs of the loop; its backward operator is moved, too.
//!
//! [`Hints::fusions`]: crate::operator::Hints::fusions

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{Draft, Origin};
use crate::error::Result;
use crate::executor::plan::Note;
use crate::executor::rewrite::needs::{live, reads};
use crate::operator::{Attributes, BlockId, Fusion, Op, Signature, Slot, VarId};
use crate::program::{OpDesc, Role, SlotVars, grad_name};

impl Draft<'_> {
    /// Fuses operators that the wanted variables need; returns a message with the reason for each pair that could not be fused.
    pub(crate) fn fuse_all(&mut self) -> Result<Vec<String>> {
        let mut refused = Vec::new();
        let mut writers = self.live_writers()?;
        for (output, fusion) in self.candidates() {
            let Some(pair) = self.pair(&writers, output, &fusion) else { continue };
            match self.fuse(pair, output, &fusion)? {
                Ok(()) => writers = self.live_writers()?,
                Err(why) => refused.push(why),
            }
        }
        Ok(refused)
    }

    /// Returns each operator's declared fusions, each with the operator's first output.
    fn candidates(&self) -> Vec<(VarId, Fusion)> {
        let mut found = Vec::new();
        let ops = self.program.ops();
        for (op, origin) in ops.zip(self.origins.iter().flatten()).filter(|(op, _)| op.role == Role::Forward)
        {
            let fusions = origin.instance.as_ref().map_or(&[][..], |instance| instance.hints().fusions);
            found.extend(op.writes().next().into_iter().flat_map(|v| fusions.iter().map(move |f| (v, *f))));
        }
        found
    }

    /// Returns, for each variable of a block, the first needed forward operator that writes it. Operators that are not needed
    /// do not prevent fusion.
    fn live_writers(&self) -> Result<Writers> {
        let live: HashSet<usize> = live(&self.program, self.wanted)?.into_iter().collect();
        let mut writers = Writers::new();
        for (block, _) in self.program.blocks() {
            for (number, op) in self.ops(block).iter().enumerate().filter(|(_, o)| o.role == Role::Forward) {
                if block != BlockId(0) || live.contains(&number) {
                    for var in op.writes() {
                        writers.entry((block, var)).or_insert(number);
                    }
                }
            }
        }
        Ok(writers)
    }

    /// Returns two operators that can be fused, each with its block: the operator that computes `output`, and the producer of
    /// its input. `None` if the producer is of another kind than the fusion declares.
    fn pair(&self, writers: &Writers, output: VarId, fusion: &Fusion) -> Option<Pair> {
        let writer = |block, var| writers.get(&(block, var)).copied();
        // An operator writes only variables of its own block.
        let block = self.program.var(output).block;
        let consumer = writer(block, output)?;
        let between = *self.ops(block)[consumer].input(fusion.slot).first()?;
        let found = writer(block, between)?;
        let op = &self.ops(block)[found];
        if op.kind == fusion.producer {
            return Some([(block, consumer), (block, found)]);
        }
        // The producer may be in the step block of the loop that computes `between`.
        let step = op.step.as_deref().filter(|_| block == BlockId(0))?;
        let inner = step.outputs.iter().find(|pair| pair.outer == between)?.inner;
        let found = writer(step.block, inner)?;
        let fits = self.ops(step.block)[found].kind == fusion.producer;
        fits.then_some([(block, consumer), (step.block, found)])
    }
}

/// The outcome of an attempt to fuse two operators; the error is the reason, as text, why they cannot be fused.
type Outcome = std::result::Result<(), String>;

/// Two operators that may be fused, the one that computes the output first; each has its block and its number there.
type Pair = [(BlockId, usize); 2];

/// The number of the forward operator that writes a variable, by block and variable.
type Writers = HashMap<(BlockId, VarId), usize>;

impl Draft<'_> {
    /// Fuses two operators; a refusal leaves the draft unchanged.
    fn fuse(&mut self, pair: Pair, output: VarId, fusion: &Fusion) -> Result<Outcome> {
        let [(block, consumer), (home, producer)] = pair;
        let both = format!("{} and {}", self.name(home, producer), self.name(block, consumer));
        if let Some(&between) = self.ops(block)[consumer].input(fusion.slot).first()
            && self.program.spec(between)?.width() < fusion.least_width
        {
            let (width, least) = (self.program.spec(between)?.width(), fusion.least_width);
            return Ok(Err(format!("{both}: {width} numbers a row are too few, below {least}")));
        }
        // A copy is needed only if an operator is moved out of a step block: a fusion at the root that fails changes nothing else.
        let moves = block != BlockId(0) || home != BlockId(0);
        let before = moves.then(|| (self.program.clone(), self.origins.clone()));
        // Operators that are not needed are removed, since they must not prevent fusion.
        let live: HashSet<usize> = live(&self.program, self.wanted)?.into_iter().collect();
        let root = std::mem::take(&mut self.program.blocks[0].ops).into_iter();
        let all = root.zip(std::mem::take(&mut self.origins[0])).enumerate();
        let (kept, removed): (Vec<_>, Vec<_>) = all.partition(|(number, _)| live.contains(number));
        (self.program.blocks[0].ops, self.origins[0]) = kept.into_iter().map(|(_, op)| op).unzip();
        let fused = self.fuse_needed(output, fusion)?;
        if fused.is_err() {
            match before {
                Some(before) => (self.program, self.origins) = before,
                None => removed.into_iter().for_each(|(number, op)| self.insert(BlockId(0), number, op)),
            }
        }
        Ok(fused.map_err(|why| format!("{both}: {why}")))
    }

    /// Fuses two operators of a draft without operators that are not needed.
    fn fuse_needed(&mut self, output: VarId, fusion: &Fusion) -> Result<Outcome> {
        let gone = || Ok(Err("they were not found again".to_owned()));
        let Some([(block, consumer), (home, producer)]) = self.pair(&self.live_writers()?, output, fusion)
        else {
            return gone();
        };
        // The consumer is moved out of the step block first, then the producer.
        let mut output = output;
        if block != BlockId(0) {
            match self.sink(block, consumer)? {
                Ok(outer) => output = outer,
                Err(why) => return Ok(Err(why)),
            }
        }
        if home != BlockId(0)
            && let Err(why) = self.sink(home, producer)?
        {
            return Ok(Err(why));
        }
        self.join(output, fusion)
    }

    /// Fuses two operators of the root block.
    fn join(&mut self, output: VarId, fusion: &Fusion) -> Result<Outcome> {
        const ROOT: BlockId = BlockId(0);
        let gone = || Ok(Err("they were not found again".to_owned()));
        let Some(c) = self.writer(ROOT, output) else { return gone() };
        let consumer = self.ops(ROOT)[c].clone();
        let Some(&between) = consumer.input(fusion.slot).first() else { return gone() };
        let Some(p) = self.writer(ROOT, between) else { return gone() };
        let producer = self.ops(ROOT)[p].clone();
        let (back_c, back_p) = (self.backward(&consumer, ROOT), self.backward(&producer, ROOT));
        if let Some(why) = self.in_the_way(between, &[Some(c), back_c, back_p]) {
            return Ok(Err(why));
        }
        let Some((mut op, instance)) = self.fused(&producer, &consumer, fusion) else {
            return Ok(Err(format!("no operator `{}` with all of their slots", fusion.into)));
        };
        let backward = match self.joint_backward([back_c, back_p], (&op, &*instance), fusion)? {
            Ok(backward) => backward,
            Err(why) => return Ok(Err(why)),
        };
        let taken = [Some(c), Some(p), back_c, back_p];
        let mut early = match &backward {
            None => Vec::new(),
            Some(joint) => match self.early(joint, &op, c, &taken)? {
                Ok(early) => early,
                Err(why) => return Ok(Err(why)),
            },
        };
        let beside = self.by_others(&consumer, &op, fusion, &taken)?;
        let text = format!(
            "{} and {} as {}: {} is never in memory as a whole",
            self.name(ROOT, p),
            self.name(ROOT, c),
            fusion.into,
            self.shown(between)
        );
        let without = format!("the output that does not need {}", self.shown(between));
        let ops = std::mem::take(&mut self.program.blocks[0].ops);
        let origins = std::mem::take(&mut self.origins[0]);
        let mut all: Vec<Option<(OpDesc, Origin)>> = ops.into_iter().zip(origins).map(Some).collect();
        let Some((_, origin)) = all[c].take() else { return gone() };
        let noted = |text: String, superseded, instance: &Arc<dyn Op>| Origin {
            note: Some(Note { text, superseded, joint: true }),
            instance: Some(instance.clone()),
            ..origin.clone()
        };
        let superseded = backward.is_some();
        op.caller.clone_from(&consumer.caller);
        early.sort();
        let mut fused: Vec<(OpDesc, Origin)> =
            beside.into_iter().map(|(op, by)| (op, noted(without.clone(), false, &by))).collect();
        fused.extend(early.iter().filter_map(|&i| all[i].take()));
        let one_pass = || noted(format!("{text}, with gradients in one pass"), false, &instance);
        fused.extend(backward.map(|joint| (joint, one_pass())));
        let end = if superseded { "; only in runs that end before the gradients" } else { "" };
        fused.push((op, noted(format!("{text}{end}"), superseded, &instance)));
        for i in [Some(p), back_c, back_p].into_iter().flatten() {
            all[i] = None;
        }
        let after = all.split_off(c);
        let ordered = all.into_iter().flatten().chain(fused).chain(after.into_iter().flatten());
        (self.program.blocks[0].ops, self.origins[0]) = ordered.unzip();
        Ok(Ok(()))
    }

    /// Returns the backward operator of a fusion, from the backward operators of the consumer and the producer; `None` if neither
    /// has one.
    fn joint_backward(
        &self,
        [back_c, back_p]: [Option<usize>; 2],
        (op, instance): (&OpDesc, &dyn Op),
        fusion: &Fusion,
    ) -> Result<std::result::Result<Option<OpDesc>, String>> {
        let (a, b) = match (back_c, back_p) {
            (None, None) => return Ok(Ok(None)),
            (Some(a), Some(b)) => (&self.ops(BlockId(0))[a], &self.ops(BlockId(0))[b]),
            _ => return Ok(Err("only one of them has a gradient".to_owned())),
        };
        let slope = a.output(&grad_name(fusion.slot)).to_vec();
        if let Some(why) = slope.iter().find_map(|&v| self.in_the_way(v, &[back_c, back_p])) {
            return Ok(Err(why));
        }
        let mut outputs = op.outputs.clone();
        outputs.extend(renamed(&b.outputs, fusion.producer_slots, &grad_name("")));
        let mut written: Vec<VarId> = outputs.iter().flat_map(|b| b.vars.clone()).collect();
        written.sort();
        if a.outputs.len() != 1 || written.windows(2).any(|pair| pair[0] == pair[1]) {
            return Ok(Err("two gradients are the same variable".to_owned()));
        }
        if !instance.hints().joins {
            return Ok(Err(format!("`{}` cannot compute gradients with its outputs", fusion.into)));
        }
        let mut inputs = op.inputs.clone();
        inputs.extend(op.outputs.iter().cloned());
        let gradient = |b: &&SlotVars| op.outputs.iter().any(|o| b.slot == grad_name(&o.slot));
        inputs.extend(a.inputs.iter().filter(gradient).cloned());
        Ok(Ok(Some(OpDesc { role: Role::Backward, inputs, outputs, ..op.clone() })))
    }

    /// Returns the operators that compute outputs of the consumer which the fused operator does not compute, and which an operator
    /// reads that is not among the operators `taken`.
    fn by_others(
        &self,
        consumer: &OpDesc,
        op: &OpDesc,
        fusion: &Fusion,
        taken: &[Option<usize>],
    ) -> Result<Vec<(OpDesc, Arc<dyn Op>)>> {
        let mut beside = Vec::new();
        for &(slot, kind) in fusion.by_others {
            let vars = consumer.output(slot);
            let read = |v: &VarId| {
                self.wanted.contains(v)
                    || (0..self.ops(BlockId(0)).len())
                        .any(|i| reads(&self.program, i, *v) && !taken.contains(&Some(i)))
            };
            if vars.iter().any(read) {
                let instance = self.registry.parse(kind, &op.attributes)?;
                let signature = instance.signature();
                let inputs = op.inputs.iter().filter(|b| signature.inputs.iter().any(|s| s.name == b.slot));
                let (kind, inputs) = (kind.to_owned(), inputs.cloned().collect());
                let outputs = vec![SlotVars { slot: slot.to_owned(), vars: vars.to_vec() }];
                beside.push((OpDesc { kind, inputs, outputs, ..op.clone() }, instance));
            }
        }
        Ok(beside)
    }

    /// Returns, as text, a use of a variable that prevents fusion: the variable is fetched, or an operator that is not
    /// in `taken` reads the variable. `None` if no use prevents fusion.
    fn in_the_way(&self, var: VarId, taken: &[Option<usize>]) -> Option<String> {
        if self.wanted.contains(&var) {
            return Some(format!("{} is fetched", self.shown(var)));
        }
        let other = (0..self.ops(BlockId(0)).len())
            .find(|&i| !taken.contains(&Some(i)) && reads(&self.program, i, var))?;
        Some(format!("{} reads {} too", self.name(BlockId(0), other), self.shown(var)))
    }

    /// Returns the operator that replaces two operators, with its slots bound. `None` if the replacing operator lacks a
    /// slot of the two operators.
    fn fused(&self, producer: &OpDesc, consumer: &OpDesc, fusion: &Fusion) -> Option<(OpDesc, Arc<dyn Op>)> {
        let mut attributes = Attributes::new();
        for (name, value) in producer.attributes.iter().chain(consumer.attributes.iter()) {
            attributes.set(name, value.clone());
        }
        let instance = self.registry.parse(fusion.into, &attributes).ok()?;
        let own: Vec<SlotVars> = consumer.inputs.iter().filter(|b| b.slot != fusion.slot).cloned().collect();
        let mut inputs = renamed(&producer.inputs, fusion.producer_slots, "");
        inputs.extend(renamed(&own, fusion.own_slots, ""));
        if inputs.len() != producer.inputs.len() + own.len() {
            return None;
        }
        let Signature { inputs: slots, outputs, .. } = instance.signature();
        let bound = |slot: &Slot| inputs.iter().filter(|b| b.slot == slot.name).map(|b| b.vars.len()).sum();
        if !slots.iter().all(|slot| slot.arity.takes(bound(slot))) {
            return None;
        }
        let apart = |b: &SlotVars| fusion.by_others.iter().any(|(slot, _)| *slot == b.slot);
        if !consumer.outputs.iter().all(|b| apart(b) || outputs.iter().any(|s| s.name == b.slot)) {
            return None;
        }
        let outputs = consumer.outputs.iter().filter(|b| outputs.iter().any(|s| s.name == b.slot)).cloned();
        let op = OpDesc {
            kind: fusion.into.to_owned(),
            role: Role::Forward,
            inputs,
            outputs: outputs.collect(),
            attributes,
            step: None,
            caller: consumer.caller.clone(),
        };
        Some((op, instance))
    }
}

/// Renames slots to their names in the replacing operator; slots without a new name are left out.
fn renamed(bound: &[SlotVars], names: &[(&str, &str)], suffix: &str) -> Vec<SlotVars> {
    let name = |b: &SlotVars| {
        let slot = b.slot.strip_suffix(suffix)?;
        let (_, to) = names.iter().find(|(from, _)| *from == slot)?;
        Some(SlotVars { slot: format!("{to}{suffix}"), vars: b.vars.clone() })
    };
    bound.iter().filter_map(name).collect()
}
