//! Step blocks, in step blocks, and the layers that open some.

use unpadded::layers::{Activation, Gru, Lstm, Mgu, Reset, Rnn};
use unpadded::op::Spec;
use unpadded::ops::UpdateGate;
use unpadded::program::{Recurrence, Step};
use unpadded::{Builder, DType, Result, Var};

use super::{Item, LARGE, Maker, TABLE};

impl Maker {
    /// A step block over one of the sequences.
    pub(super) fn recurrent(&mut self, net: &Builder, items: &[Item], depth: usize) -> Result<Vec<Item>> {
        let sequences: Vec<Item> = items.iter().filter(|i| !i.spec.lod.is_empty()).cloned().collect();
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let first = self.any(&sequences);
        let levels = first.spec.lod.len();
        let level = if self.dice.chance(60) { self.dice.below(levels) } else { levels - 1 };
        let options = Recurrence {
            level: if level + 1 == levels && self.dice.chance(50) { None } else { Some(level) },
            reverse: self.dice.chance(40),
        };
        let mut inputs = vec![first.clone()];
        for item in &sequences {
            let same = item.spec.lod.len() > level && item.spec.lod[..=level] == first.spec.lod[..=level];
            if same && inputs.len() < 4 && self.dice.chance(if item.float() { 40 } else { 70 }) {
                inputs.push(item.clone());
            }
        }
        let above = first.spec.lod[..level].to_vec();
        let starts: Vec<Item> = items.iter().filter(|i| i.spec.lod[..] == above[..]).cloned().collect();
        let vars: Vec<Var> = inputs.iter().map(|i| i.var).collect();
        let made = self.made.len();
        let mut sizes = Vec::new();
        let results = net.recurrent_with(options, vars, |step, inner: Vec<Var>| {
            let made = self.step(step, &inner, &inputs, &starts, items, depth.saturating_sub(1));
            let (results, bounds) = made.unwrap_or_default();
            sizes = bounds;
            results
        });
        // The block's variables end with the block.
        self.made.truncate(made);
        results.into_iter().zip(sizes).map(|(var, size)| self.item(net, var, size)).collect()
    }

    fn step(
        &mut self,
        step: &Step,
        inner: &[Var],
        inputs: &[Item],
        starts: &[Item],
        around: &[Item],
        depth: usize,
    ) -> Result<(Vec<Var>, Vec<f64>)> {
        let mut items = Vec::new();
        for (var, outer) in inner.iter().zip(inputs) {
            items.push(self.item(step, *var, outer.size)?);
        }
        let own: Vec<_> = items.iter().flat_map(|i| i.spec.lod.clone()).collect();
        let mut memories: Vec<Item> = Vec::new();
        for _ in 0..self.dice.below(4) {
            let memory = self.attempt(step, |maker| {
                let memory = maker.memory(step, starts);
                maker.item(step, memory, 1.0)
            });
            let memory = match memory {
                Some(memory) => memory,
                None => self.item(step, step.memory_of(self.kind.dtype, &[self.width]), 1.0)?,
            };
            let size = if memory.float() { 1.0 } else { TABLE as f64 };
            memories.push(Item { memory: true, size, ..memory });
        }
        items.extend(memories.iter().cloned());
        for item in around {
            if self.dice.chance(if item.memory { 60 } else { 25 }) {
                // The copy shows what the block sees; operators take it or, just as well, the variable itself.
                if let Some(copy) =
                    self.attempt(step, |maker| maker.item(step, step.assign(item.var), item.size))
                {
                    let var = if self.dice.chance(50) { copy.var } else { item.var };
                    let id = if var == copy.var { copy.id } else { item.id };
                    items.push(Item { var, id, spec: copy.spec, ..item.clone() });
                }
            }
        }
        for _ in 0..1 + self.dice.below(self.calls) {
            self.grow(step, &mut items, depth);
        }
        if depth > 0 && self.dice.chance(40) {
            let known = items.clone();
            self.tried(step, |maker| maker.recurrent(step, &known, depth), &mut items);
        }
        for memory in &memories {
            let next = self.attempt(step, |maker| maker.next(step, memory, &items));
            step.update(memory.var, next.unwrap_or(memory.var));
        }
        let (mut results, mut sizes) = (Vec::new(), Vec::new());
        let wanted: Vec<Item> =
            items.iter().filter(|i| i.spec.lod.iter().all(|l| own.contains(l))).cloned().collect();
        for _ in 0..self.dice.below(3) {
            // At times an item below another item's sequences, which is refused with the whole block.
            let item = if self.dice.chance(2) { self.any(&items) } else { self.any(&wanted) };
            results.push(item.var);
            sizes.push(item.size);
        }
        for memory in &memories {
            if self.dice.chance(60) || results.is_empty() {
                results.push(step.last(memory.var));
                sizes.push(memory.size);
            }
        }
        if results.is_empty() {
            let item = self.any(&wanted);
            results.push(step.assign(item.var));
            sizes.push(item.size);
        }
        Ok((results, sizes))
    }

    fn memory(&mut self, step: &Step, starts: &[Item]) -> Var {
        let small: Vec<Item> = starts.iter().filter(|i| i.size <= LARGE).cloned().collect();
        if !small.is_empty() && self.dice.chance(60) {
            let starts: Vec<Item> = small.iter().filter(|i| i.memory).cloned().collect();
            let start =
                if !starts.is_empty() && self.dice.chance(40) { self.any(&starts) } else { self.any(&small) };
            return step.memory_from(start.var);
        }
        let dtype = self.kind.dtype;
        match self.dice.below(10) {
            0 => step.memory_of(dtype, &[self.width + 1]),
            1 => step.memory_of(dtype, &[]),
            2 => step.memory_of(DType::I64, &[]),
            3 if !self.kind.smooth => step.memory_of(DType::F32, &[self.width]),
            _ => step.memory_of(dtype, &[self.width]),
        }
    }

    /// Returns the next value of a memory: an item of the memory's shape.
    fn next(&mut self, step: &Step, memory: &Item, items: &[Item]) -> Result<Var> {
        let Spec { dtype, shape, .. } = &memory.spec;
        let fits: Vec<Item> = items.iter().filter(|i| i.spec == memory.spec).cloned().collect();
        if !memory.float() {
            let fits: Vec<Item> = fits.into_iter().filter(|i| i.size <= memory.size).collect();
            return Ok(if fits.is_empty() { memory.var } else { self.any(&fits).var });
        }
        let next = if shape.len() == 2 && self.dice.chance(30) {
            let rows: Vec<Item> = items.iter().filter(|i| i.meets(memory) && i.float()).cloned().collect();
            let from = self.any(&rows);
            let from = self.small(step, &from, LARGE)?;
            self.fit(step, &from, &memory.spec)?
        } else if fits.is_empty() || self.dice.chance(8) {
            memory.clone()
        } else if self.dice.chance(50) {
            // The last item depends on most other items.
            fits[fits.len() - 1].clone()
        } else {
            self.any(&fits)
        };
        // Fed back, numbers must not grow.
        debug_assert_eq!(next.spec.dtype, *dtype);
        Ok(if next.size <= 1.0 { next.var } else { step.tanh(next.var) })
    }

    /// A layer over one of the sequences.
    pub(super) fn layer(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let dtype = self.kind.dtype;
        let sequences: Vec<Item> =
            items.iter().filter(|i| i.spec.dtype == dtype && !i.spec.lod.is_empty()).cloned().collect();
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let x = self.any(&sequences);
        let x = self.small(net, &x, LARGE)?;
        let w = self.width;
        let back = self.dice.chance(30);
        let bias = self.dice.chance(70);
        let zoneout = if self.dice.chance(20) { 0.3 } else { 0.0 };
        let above = &x.spec.lod[..x.spec.lod.len() - 1];
        let starts: Vec<Item> = items
            .iter()
            .filter(|i| {
                i.spec.lod.as_slice() == above
                    && i.spec.width() == w
                    && i.spec.dtype == dtype
                    && i.size <= 1.0
            })
            .cloned()
            .collect();
        let start =
            if starts.is_empty() || self.dice.chance(50) { None } else { Some(self.any(&starts).var) };
        macro_rules! with_options {
            ($layer:expr) => {{
                let mut layer = $layer;
                layer = if back { layer.backwards() } else { layer };
                if bias { layer } else { layer.without_bias() }
            }};
        }
        let (out, last) = match self.dice.below(4) {
            0 => {
                let mut gru = with_options!(Gru::new(w)).zoneout([zoneout]);
                gru = if self.dice.chance(60) { gru.reset(Reset::Before) } else { gru };
                gru = if self.dice.chance(50) { gru.update(UpdateGate::Takes) } else { gru };
                gru = if let Some(h) = start { gru.initial(h) } else { gru };
                net.gru_states(x.var, gru)
            }
            1 => {
                let mgu = with_options!(Mgu::new(w)).zoneout([zoneout]);
                net.mgu_states(x.var, if let Some(h) = start { mgu.initial(h) } else { mgu })
            }
            2 => {
                let rnn = with_options!(Rnn::new(w)).zoneout([zoneout]).activation(Activation::Tanh);
                net.rnn_states(x.var, if let Some(h) = start { rnn.initial(h) } else { rnn })
            }
            _ => {
                let mut lstm = with_options!(Lstm::new(w)).zoneout([zoneout, 0.0]);
                lstm = if self.dice.chance(50) { lstm.peepholes() } else { lstm };
                let projected = start.is_none() && self.dice.chance(20);
                lstm = if projected { lstm.projection(1 + self.dice.below(w)) } else { lstm };
                lstm = if let Some(h) = start { lstm.initial(h, h) } else { lstm };
                let (out, last, _) = net.lstm_states(x.var, lstm);
                (out, last)
            }
        };
        // A projection may leave the interval of its state.
        Ok(vec![self.item(net, out, LARGE)?, self.item(net, last, LARGE)?])
    }
}
