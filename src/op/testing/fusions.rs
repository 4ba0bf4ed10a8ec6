//! Checks of fusions: on its own check cases, a fused operator gives the result of the two operators that it replaces.

use std::sync::Arc;

use super::case::{Case, CaseRun, SEED, STEP, graded};
use super::values::{Outcome, ensure, near};
use crate::operator::call::Direct;
use crate::operator::{Attributes, CheckCase, Fusion, Mode, Op, Operand, Registry, RunFacts};
use crate::tensor::{DType, Storage};

/// The tolerance for results of a fused operator in f64, relative to the largest number. The results may differ by
/// rounding, since the fused operator adds up numbers in a different order.
const ROUNDING: f64 = 1e-12;

/// Returns the distinct fusions that an operator declares with the attributes of any of its check cases.
pub(super) fn of_kind(registry: &Registry, kind: &str, samples: &[CheckCase]) -> Vec<Fusion> {
    let mut found: Vec<Fusion> = Vec::new();
    for sample in samples {
        let Ok(op) = registry.parse(kind, &sample.attributes) else { continue };
        for fusion in op.hints().fusions {
            if !found
                .iter()
                .any(|f| (f.producer, f.into, f.slot) == (fusion.producer, fusion.into, fusion.slot))
            {
                found.push(*fusion);
            }
        }
    }
    found
}

/// The two operators that a fusion replaces, with the attributes that they share with the fused operator.
struct Pair {
    producer: Arc<dyn Op>,
    consumer: Arc<dyn Op>,
}

/// Returns the operands of one of the two replaced operators, with the slot names of the replaced operator.
fn under(names: &[(&str, &str)], operands: &[Operand]) -> Vec<Operand> {
    let own = |o: &Operand| {
        let (name, _) = names.iter().find(|(_, third)| *third == o.slot)?;
        Some(Operand { slot: (*name).to_owned(), ..o.clone() })
    };
    operands.iter().filter_map(own).collect()
}

/// The call of the fused operator (`third`), and the calls of the two operators that the fused operator replaces.
struct Calls<'a> {
    third: &'a CaseRun,
    producer: &'a Direct,
    consumer: &'a CaseRun,
}

impl Case<'_> {
    /// Checks, on one check case, that the fused operator gives the result of the producer followed by the consumer.
    pub(super) fn fused(&self, consumer: &str, fusion: &Fusion) -> Outcome {
        let pair = Pair { producer: self.part(fusion.producer)?, consumer: self.part(consumer)? };
        let operands = self.operands(DType::F64)?;
        let third = self.run(&operands, &self.numbers(), None)?;
        for operand in &operands {
            let known = fusion.producer_slots.iter().chain(fusion.own_slots).any(|(_, n)| *n == operand.slot);
            ensure(known, || format!("`{}` of `{}` is neither's", operand.slot, self.kind))?;
        }
        let facts = RunFacts { mode: Mode::Infer, step: STEP, seed: SEED, threads: 1, ..RunFacts::default() };
        let direct = |op: &Arc<dyn Op>, operands: &[Operand]| -> crate::error::Result<Direct> {
            Ok(Direct::new(op.clone(), operands)?.run_as(facts, &self.numbers()))
        };
        let producer = direct(&pair.producer, &under(fusion.producer_slots, &operands))?;
        let mut made = producer.forward()?;
        let between = match made.iter().flatten().count() {
            1 => made.remove(0).remove(0),
            count => return ensure(false, || format!("`{}` has {count} outputs", fusion.producer)),
        };
        let batched = producer.output_specs().iter().flatten().any(|spec| spec.batched());
        let mut own = under(fusion.own_slots, &operands);
        own.push(Operand { batched, ..Operand::constant(fusion.slot, between.clone()) });
        let mut consumer = CaseRun::new(direct(&pair.consumer, &own)?)?;

        let thirds = self.op.signature().outputs;
        for (slot, declared) in pair.consumer.signature().outputs.iter().enumerate() {
            let apart = fusion.by_others.iter().find(|(name, _)| *name == declared.name);
            let index = thirds.iter().position(|s| s.name == declared.name);
            for k in 0..consumer.outputs[slot].len() {
                let expected = consumer.outputs[slot][k].storage().clone();
                let name = format!("`{}`[{k}]", declared.name);
                match (index, apart) {
                    (Some(index), None) => {
                        let words = format!("{name} of `{}`", self.kind);
                        near(third.outputs[index][k].storage(), &expected, ROUNDING, words)?;
                        // The backward call of the consumer gets the gradients of the fused operator's outputs.
                        consumer.weights[slot][k] = third.weights[index][k].clone();
                    }
                    (None, Some((_, kind))) => {
                        let found = self.beside(kind, declared.name, &operands)?;
                        near(&found, &expected, ROUNDING, format!("{name} of `{kind}`"))?;
                        consumer.weights[slot][k] = None;
                    }
                    _ => ensure(false, || {
                        format!("{name} is neither an output of `{}` nor of another operator", self.kind)
                    })?,
                }
            }
        }
        let calls = Calls { third: &third, producer: &producer, consumer: &consumer };
        self.fused_gradients(&pair, fusion, calls, between.storage())
    }

    /// Returns one of the two replaced operators, with the attributes that the replaced and the fused operator have in
    /// common.
    fn part(&self, kind: &str) -> crate::error::Result<Arc<dyn Op>> {
        let known = self.registry.declaration(kind).map_or(&[][..], |declaration| declaration.attributes);
        let mut own = Attributes::new();
        for (name, value) in self.sample.attributes.iter().filter(|(name, _)| known.contains(name)) {
            own.set(name, value.clone());
        }
        self.registry.parse(kind, &own)
    }

    /// Computes an output of the consumer by the operator `kind`, which computes this output separately after the fusion.
    fn beside(&self, kind: &str, output: &str, operands: &[Operand]) -> Outcome<Storage> {
        let op = self.registry.parse(kind, &self.sample.attributes)?;
        let signature = op.signature();
        let own: Vec<Operand> =
            operands.iter().filter(|o| signature.inputs.iter().any(|s| s.name == o.slot)).cloned().collect();
        let found = Direct::new(op, &own)?.forward()?;
        let slot = signature.outputs.iter().position(|s| s.name == output);
        match slot.and_then(|slot| found[slot].first()) {
            Some(value) => Ok(value.storage().clone()),
            None => Err(super::values::Broken(format!("`{kind}` has no output `{output}`"))),
        }
    }

    fn fused_gradients(&self, pair: &Pair, fusion: &Fusion, calls: Calls<'_>, between: &Storage) -> Outcome {
        let Calls { third, producer, consumer } = calls;
        let slots = self.slots(third);
        if slots.is_empty() || third.weights.iter().flatten().all(Option::is_none) {
            return Ok(());
        }
        let found = third.gradients(&slots, None)?;
        let theirs = consumer.gradients(&graded(&*pair.consumer, &consumer.direct), None)?;
        let position =
            |op: &Arc<dyn Op>, name: &str| op.signature().inputs.iter().position(|slot| slot.name == name);
        let Some(slot) = position(&pair.consumer, fusion.slot) else {
            return ensure(false, || format!("no input `{}`", fusion.slot));
        };
        let passed = theirs[slot].first().cloned().flatten();
        let before = vec![vec![crate::tensor::Variable::new(between.clone(), None)?]];
        let wanted = graded(&*pair.producer, producer);
        let made = producer.backward(&before, &[vec![passed]], &|slot| wanted.contains(&slot), None)?;
        for slot in slots {
            let name = self.input_name(slot);
            let own = |names: &[(&'static str, &'static str)]| {
                names.iter().find(|(_, third)| *third == name).map(|(own, _)| *own)
            };
            let at_producer = own(fusion.producer_slots).and_then(|n| position(&pair.producer, n));
            let at_consumer = own(fusion.own_slots).and_then(|n| position(&pair.consumer, n));
            let expected = match (at_producer, at_consumer) {
                (Some(at), _) => &made[at],
                (None, Some(at)) => &theirs[at],
                (None, None) => return ensure(false, || format!("`{name}` is neither's")),
            };
            for (k, pair) in found[slot].iter().zip(expected).enumerate() {
                let (Some(got), Some(expected)) = pair else { continue };
                near(got, expected, ROUNDING, format!("gradient of `{name}`[{k}] of `{}`", self.kind))?;
            }
        }
        Ok(())
    }
}
