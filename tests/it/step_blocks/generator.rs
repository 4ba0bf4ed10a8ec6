//! Programs at random: step blocks in step blocks, over sequences of any lengths.

use std::sync::Arc;

use unpadded::layers::{Linear, init};
use unpadded::ops::Pool;
use unpadded::program::backward;
use unpadded::program::{Extent, Initializer, Program, Recurrence, Spec, Step, VarId};
use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Result, Var, Variable};

/// A small generator of numbers: one seed, one program.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A number of [-1, 1).
    pub(crate) fn number(&mut self) -> f64 {
        (self.next() >> 40) as f64 / f64::from(1 << 23) - 1.0
    }
}

/// What a program may hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) dtype: DType,
    /// No kinks, so that differences approximate the gradient.
    pub(crate) smooth: bool,
    /// Enough numbers that loops are split over threads.
    pub(crate) wide: bool,
}

/// A program, its feeds, and what there is to fetch.
pub(crate) struct Case {
    pub(crate) program: Program,
    pub(crate) registry: unpadded::Registry,
    pub(crate) loss: VarId,
    pub(crate) feeds: Vec<(VarId, Variable)>,
    /// Float variables that the forward part of the root block computes.
    pub(crate) values: Vec<VarId>,
    /// Gradients of parameters and watched feeds.
    pub(crate) gradients: Vec<VarId>,
}

impl Case {
    pub(crate) fn fed(&self) -> Vec<(VarId, &Variable)> {
        self.feeds.iter().map(|(id, v)| (*id, v)).collect()
    }

    /// The case of one sequence of the batch.
    pub(crate) fn alone(&self, i: usize) -> Vec<(VarId, Variable)> {
        self.feeds.iter().map(|(id, v)| (*id, v.slice_sequences(i..i + 1).unwrap())).collect()
    }
}

/// A variable that operators may take, as the block at hand sees it.
#[derive(Clone)]
struct Item {
    var: Var,
    spec: Spec,
    /// Its numbers stay small however often it is fed back.
    bounded: bool,
}

impl Item {
    fn meets(&self, other: &Item) -> bool {
        self.spec.lod == other.spec.lod && self.spec.rows() == other.spec.rows()
    }

    fn ids(&self) -> bool {
        !self.spec.dtype.is_float()
    }
}

struct Maker {
    dice: Dice,
    kind: Kind,
    width: usize,
    /// Parameters that several operators share.
    square: Vec<Var>,
    table: Var,
}

const TABLE: usize = 5;

/// The program of a seed; the same structure and numbers for every dtype.
pub(crate) fn case(seed: u64, kind: Kind) -> Result<Case> {
    let mut dice = Dice::new(seed);
    let net = Builder::new().seed(seed);
    let width = if kind.wide { 48 } else { 1 + dice.below(4) };
    let around = |n: &str, dims: &[usize]| net.parameter(n, kind.dtype, dims, spread());
    let square = vec![around("u", &[width, width])?, around("v", &[width, width])?];
    let table = around("table", &[TABLE, width])?;
    let mut feeds = Vec::new();
    let sequences = match (kind.wide, dice.below(12)) {
        (true, _) => 60,
        (_, 0) => 0,
        (_, 1) => 1,
        _ => 1 + dice.below(5),
    };
    let mut items = Vec::new();
    let mut maker = Maker { dice, kind, width, square, table };
    for group in 0..3 {
        let levels = match group {
            0 => 1 + maker.dice.below(3),
            _ => maker.dice.below(3),
        };
        let lod = maker.lod(sequences, levels);
        let rows = lod.as_ref().map_or(sequences, |lod| lod.rows());
        let mut first = None;
        for k in 0..1 + maker.dice.below(2) {
            let name = format!("x{group}{k}");
            let ids = k == 1 && maker.dice.chance(40);
            let (dtype, dims): (DType, &[usize]) =
                if ids { (DType::I64, &[]) } else { (kind.dtype, &[width]) };
            let var = match first {
                None => net.feed(&name, dtype, dims, levels)?,
                Some(first) => net.feed_like(&name, dtype, dims, first)?,
            };
            first = first.or(Some(var));
            let dense = if ids {
                Dense::from_vec(&[rows], (0..rows).map(|_| maker.dice.below(TABLE) as i64).collect())?
            } else {
                net.watch(var)?;
                let numbers: Vec<f64> = (0..rows * width).map(|_| maker.dice.number()).collect();
                Dense::from_vec(&[rows, width], numbers)?.cast(DType::F32).cast(kind.dtype)
            };
            feeds.push((var.id(), Variable::new(dense, lod.clone())?));
            items.push(Item { var, spec: net.spec(var)?, bounded: true });
        }
    }
    let fed = items.len();
    let depth = if kind.wide { 1 } else { 1 + maker.dice.below(3) };
    for _ in 0..maker.dice.below(3) {
        maker.operator(&net, &mut items, 0)?;
    }
    for _ in 0..1 + maker.dice.below(2) {
        maker.recurrent(&net, &mut items, depth)?;
        for _ in 0..maker.dice.below(3) {
            maker.operator(&net, &mut items, 0)?;
        }
    }
    let loss = maker.loss(&net, &items, fed)?;
    let registry = net.registry();
    let mut program = net.finish();
    let values: Vec<VarId> = items[fed..].iter().map(|i| i.var.id()).chain([loss.id()]).collect();
    let grads = backward::differentiate(&mut program, &registry, loss.id())?;
    let mut gradients: Vec<VarId> = program.parameters().filter_map(|p| grads.get(&p).copied()).collect();
    gradients.extend(feeds.iter().filter_map(|(id, _)| grads.get(id).copied()));
    Ok(Case { program, registry, loss: loss.id(), feeds, values, gradients })
}

fn spread() -> Initializer {
    init::uniform(-0.8, 0.8)
}

impl Maker {
    fn lod(&mut self, sequences: usize, levels: usize) -> Option<Arc<Lod>> {
        let mut lod: Option<Arc<Lod>> = None;
        let mut count = sequences;
        for level in 0..levels {
            let most = if self.kind.wide { 30 } else { [8, 5, 4][level] };
            let long = self.dice.chance(70);
            let lengths = (0..count).map(|_| {
                if self.dice.chance(20) || !long { self.dice.below(2) } else { self.dice.below(most) }
            });
            let mut offsets = vec![0];
            for n in lengths.collect::<Vec<_>>() {
                offsets.push(offsets[offsets.len() - 1] + n);
            }
            count = offsets[offsets.len() - 1];
            lod = Some(Lod::extend(lod, offsets).unwrap());
        }
        lod
    }

    fn item(&mut self, items: &[Item]) -> Item {
        // Rather something new than something old.
        let from = if self.dice.chance(50) { items.len() / 2 } else { 0 };
        let at = from + self.dice.below(items.len() - from);
        items[at].clone()
    }

    /// Floats: an item, or what ids stand for.
    fn floats(&mut self, net: &Builder, items: &[Item]) -> Result<Item> {
        let item = self.item(items);
        if !item.ids() {
            return Ok(item);
        }
        let var = net.lookup(item.var, self.table, None, self.dice.chance(50))?;
        Ok(Item {
            var,
            spec: Spec { dtype: self.kind.dtype, ..item.spec.with_width(self.width) },
            bounded: true,
        })
    }

    fn partner(&mut self, net: &Builder, item: &Item, items: &[Item]) -> Result<Item> {
        let fits: Vec<Item> = items.iter().filter(|i| !i.ids() && i.meets(item)).cloned().collect();
        if fits.is_empty() || self.dice.chance(10) {
            return self.unary(net, item);
        }
        Ok(self.dice.pick(&fits).clone())
    }

    fn made(&self, item: &Item, var: Var, bounded: bool) -> Item {
        Item { var, spec: item.spec.clone(), bounded }
    }

    fn unary(&mut self, net: &Builder, item: &Item) -> Result<Item> {
        let (var, bounded) = match self.dice.below(5) {
            0 => (net.sigmoid(item.var)?, true),
            1 if !self.kind.smooth => (net.relu(item.var)?, item.bounded),
            2 => (net.softmax(item.var)?, true),
            3 => (net.assign(item.var)?, item.bounded),
            _ => (net.tanh(item.var)?, true),
        };
        Ok(self.made(item, var, bounded))
    }

    fn linear(&mut self, net: &Builder, x: Var, width: usize) -> Result<Var> {
        let options = Linear::new(width).weight_init(spread());
        net.linear(x, if self.dice.chance(50) { options.without_bias() } else { options.bias_init(spread()) })
    }

    /// Appends an operator or a few; `depth` step blocks may still be opened.
    fn operator(&mut self, net: &Builder, items: &mut Vec<Item>, depth: usize) -> Result<()> {
        let x = self.floats(net, items)?;
        let sequences: Vec<Item> =
            items.iter().filter(|i| !i.ids() && !i.spec.lod.is_empty()).cloned().collect();
        let w = self.width;
        let choice = self.dice.below(if depth > 0 { 22 } else { 19 });
        let made = match choice {
            0..=2 => self.unary(net, &x)?,
            3 => {
                let var = self.linear(net, x.var, w)?;
                self.made(&x, var, false)
            }
            4 => {
                let weight = *self.dice.pick(&self.square);
                self.made(&x, net.product(x.var, weight, None)?, false)
            }
            5 => {
                let y = self.partner(net, &x, items)?;
                self.made(&x, net.add(x.var, y.var)?, false)
            }
            6 => {
                let y = self.partner(net, &x, items)?;
                self.made(&x, net.mul(x.var, y.var)?, x.bounded && y.bounded)
            }
            7 if self.dice.chance(50) => {
                // Gates side by side, as in a cell; at times one of them is split again, or left out.
                let y = self.partner(net, &x, items)?;
                let gates = net.add(self.linear(net, x.var, 3 * w)?, self.linear(net, y.var, 3 * w)?)?;
                let parts = net.split(gates, &[w, 2 * w])?;
                let parts = [parts[0], net.slice(parts[1], 0..w)?, net.split(parts[1], &[w, w])?[1]];
                let kept = net.mul(net.sigmoid(parts[0])?, net.tanh(parts[2])?)?;
                let sum = if self.dice.chance(50) { net.add(kept, parts[1])? } else { kept };
                self.made(&x, net.tanh(sum)?, true)
            }
            7 => {
                let y = self.partner(net, &x, items)?;
                let both = net.concat(&[x.var, y.var])?;
                let from = self.dice.below(w + 1);
                self.made(&x, net.slice(both, from..from + w)?, x.bounded && y.bounded)
            }
            8 => self.made(&x, net.dropout(x.var, 0.3)?, x.bounded),
            9 => {
                let c = self.partner(net, &x, items)?;
                let pre = self.linear(net, x.var, 4 * w)?;
                let (h, c) = net.lstm_cell(pre, c.var)?;
                items.push(self.made(&x, c, false));
                self.made(&x, h, true)
            }
            10 => {
                let h = self.partner(net, &x, items)?;
                let (a, b) = (self.linear(net, x.var, 3 * w)?, self.linear(net, h.var, 3 * w)?);
                let flip =
                    if self.dice.chance(50) { Default::default() } else { unpadded::ops::Update::Takes };
                self.made(&x, net.gru_cell(a, b, h.var, flip)?, h.bounded)
            }
            11.. if sequences.is_empty() => self.unary(net, &x)?,
            11 | 12 => {
                let y = self.item(&sequences);
                self.pooled(net, &y)?
            }
            13 => {
                let y = self.item(&sequences);
                let column = self.linear(net, y.var, 1)?;
                let weights = net.sequence_softmax(column)?;
                self.made(&y, net.mul(y.var, weights)?, y.bounded)
            }
            14 => {
                let y = self.item(&sequences);
                self.made(&y, net.sequence_reverse(y.var)?, y.bounded)
            }
            15 | 16 => {
                // A row for each sequence, spread over it: additive attention, with luck.
                let y = self.item(&sequences);
                let pooled = self.pooled(net, &y)?;
                let query = self.partner(net, &pooled, items)?;
                let spread = net.sequence_expand_as(query.var, y.var)?;
                let met = net.tanh(net.add(spread, y.var)?)?;
                if self.dice.chance(50) {
                    self.made(&y, met, true)
                } else {
                    let column = self.linear(net, met, 1)?;
                    let weights = net.sequence_softmax(column)?;
                    let part = net.mul(y.var, weights)?;
                    let var = net.sequence_pool(part, Pool::Sum)?;
                    self.made(&pooled, var, y.bounded)
                }
            }
            17 | 18 => self.gates(net, &x, items)?,
            _ => return self.recurrent(net, items, depth),
        };
        items.push(made);
        Ok(())
    }

    /// Gates one by one, each of products of the same two variables; some lack a term or have one more, add them in
    /// another order, or share a weight.
    fn gates(&mut self, net: &Builder, x: &Item, items: &[Item]) -> Result<Item> {
        let y = self.partner(net, x, items)?;
        let plain = self.dice.chance(50);
        let mut all: Option<Var> = None;
        for _ in 0..2 + self.dice.below(3) {
            let odd = |dice: &mut Dice| !plain && dice.chance(25);
            let term = |this: &mut Self, of: &Item| {
                let shared = odd(&mut this.dice);
                let weight = *this.dice.pick(&this.square);
                if shared { net.product(of.var, weight, None) } else { this.linear(net, of.var, this.width) }
            };
            let (a, b) = (term(self, x)?, term(self, &y)?);
            let mut sum = if odd(&mut self.dice) { net.add(b, a)? } else { net.add(a, b)? };
            if odd(&mut self.dice) {
                sum = net.add(sum, self.linear(net, y.var, self.width)?)?;
            }
            if odd(&mut self.dice) {
                sum = net.mul(sum, if self.dice.chance(50) { a } else { y.var })?;
            }
            let gate = if self.dice.chance(50) { net.sigmoid(sum)? } else { net.tanh(sum)? };
            all = Some(match all {
                Some(before) if self.dice.chance(50) => net.mul(before, gate)?,
                Some(before) => net.add(before, gate)?,
                None => gate,
            });
        }
        Ok(self.made(x, net.tanh(all.unwrap_or(x.var))?, true))
    }

    fn pooled(&mut self, net: &Builder, y: &Item) -> Result<Item> {
        let pools = [Pool::Sum, Pool::Mean, Pool::Sqrt, Pool::First, Pool::Last, Pool::Max];
        let pool = pools[self.dice.below(if self.kind.smooth { 5 } else { 6 })];
        let pad = if self.dice.chance(30) { 0.5 } else { 0.0 };
        let var = net.sequence_pool_with(y.var, pool, pad)?;
        // The spec as the block sees it, even if `y` is a variable from around.
        Ok(Item { var, spec: net.spec(var)?, bounded: y.bounded && pool != Pool::Sum && pool != Pool::Sqrt })
    }

    /// A step block over one of the sequences.
    fn recurrent(&mut self, net: &Builder, items: &mut Vec<Item>, depth: usize) -> Result<()> {
        let sequences: Vec<Item> = items.iter().filter(|i| !i.spec.lod.is_empty()).cloned().collect();
        if sequences.is_empty() {
            return Ok(());
        }
        let first = self.item(&sequences);
        let levels = first.spec.lod.len();
        let level = if self.dice.chance(60) { self.dice.below(levels) } else { levels - 1 };
        let options = Recurrence {
            level: if level + 1 == levels && self.dice.chance(50) { None } else { Some(level) },
            reverse: self.dice.chance(40),
        };
        let above = &first.spec.lod[..level];
        let mut inputs = vec![first.clone()];
        for item in &sequences {
            let same = item.spec.lod.len() > level && item.spec.lod[..=level] == first.spec.lod[..=level];
            if same && inputs.len() < 4 && self.dice.chance(40) {
                inputs.push(item.clone());
            }
        }
        // One row a sequence that runs, outside; and anything that hangs below such sequences.
        let mut counted = net.spec(first.var)?;
        if counted.lod.len() != levels {
            // A variable from around: what counts its sequences here is known once it is one of this block's own.
            counted = first.spec.clone();
        }
        let starts: Vec<Item> = items
            .iter()
            .filter(|i| !i.ids() && i.spec.lod[..] == *above)
            .filter(|i| level > 0 || !matches!(i.spec.rows(), Extent::Rows(_)))
            .cloned()
            .collect();
        let statics: Vec<Item> = items
            .iter()
            .filter(|i| i.spec.lod.len() >= level && i.spec.lod[..level] == *above && i.spec.batched())
            .cloned()
            .collect();
        let _ = counted;
        let vars: Vec<Var> = inputs.iter().map(|i| i.var).collect();
        let mut bounded = Vec::new();
        let results = net.recurrent_with(options, vars, |step, inner: Vec<Var>| {
            let (results, bounds) = self.step(step, inner, &inputs, &starts, &statics, depth - 1)?;
            bounded = bounds;
            Ok(results)
        })?;
        for (var, bounded) in results.into_iter().zip(bounded) {
            if !items.iter().any(|i| i.var.id() == var.id()) {
                items.push(Item { var, spec: net.spec(var)?, bounded });
            }
        }
        Ok(())
    }

    fn step(
        &mut self,
        step: &Step,
        inner: Vec<Var>,
        inputs: &[Item],
        starts: &[Item],
        statics: &[Item],
        depth: usize,
    ) -> Result<(Vec<Var>, Vec<bool>)> {
        let mut items = Vec::new();
        for (var, outer) in inner.iter().zip(inputs) {
            items.push(Item { var: *var, spec: step.spec(*var)?, bounded: outer.bounded });
        }
        let own: Vec<_> = items.iter().flat_map(|i| i.spec.lod.clone()).collect();
        let mut memories = Vec::new();
        for _ in 0..self.dice.below(4) {
            let memory = if !starts.is_empty() && self.dice.chance(60) {
                let start = self.dice.pick(starts).var;
                step.memory_from(start)?
            } else {
                step.memory_of(self.kind.dtype, &[self.width])?
            };
            memories.push(memory);
            items.push(Item { var: memory, spec: step.spec(memory)?, bounded: true });
        }
        for item in statics {
            if self.dice.chance(25) {
                // The copy shows what the block sees; operators take it or, just as well, the variable itself.
                let copy = step.assign(item.var)?;
                let spec = step.spec(copy)?;
                let var = if self.dice.chance(50) { copy } else { item.var };
                items.push(Item { var, spec, bounded: item.bounded });
            }
        }
        let operators = if depth > 0 { 6 } else { 9 };
        for _ in 0..1 + self.dice.below(operators) {
            self.operator(step, &mut items, depth)?;
        }
        let rows: Vec<Item> = items.iter().filter(|i| !i.ids() && i.spec.lod.is_empty()).cloned().collect();
        for &memory in &memories {
            let next = if rows.is_empty() || self.dice.chance(10) {
                step.tanh(memory)?
            } else {
                let next = self.item(&rows);
                if next.bounded { next.var } else { step.tanh(next.var)? }
            };
            step.update(memory, next)?;
        }
        let mut results = Vec::new();
        let mut bounded = Vec::new();
        let wanted: Vec<Item> = items
            .iter()
            .filter(|i| !i.ids() && i.spec.lod.iter().all(|l| own.contains(l)))
            .cloned()
            .collect();
        for _ in 0..self.dice.below(3) {
            if !wanted.is_empty() {
                let item = self.item(&wanted);
                results.push(item.var);
                bounded.push(item.bounded);
            }
        }
        for &memory in &memories {
            if self.dice.chance(60) || results.is_empty() {
                results.push(step.last(memory)?);
                bounded.push(true);
            }
        }
        if results.is_empty() {
            let row = step.assign(if let Some(i) = wanted.last() { i.var } else { inner[0] })?;
            results.push(row);
            bounded.push(true);
        }
        Ok((results, bounded))
    }

    /// A sum over some of what was computed.
    fn loss(&mut self, net: &Builder, items: &[Item], fed: usize) -> Result<Var> {
        let mut sum = None;
        let floats: Vec<&Item> = items[fed..].iter().filter(|i| !i.ids()).collect();
        for (k, item) in floats.iter().enumerate() {
            if k + 1 < floats.len() && self.dice.chance(40) {
                continue;
            }
            let weighed = self.linear(net, item.var, 1)?;
            let part = net.sum(net.tanh(weighed)?)?;
            sum = Some(match sum {
                None => part,
                Some(sum) => net.add(sum, part)?,
            });
        }
        match sum {
            Some(sum) => Ok(sum),
            None => net.sum(self.floats(net, items)?.var),
        }
    }
}
