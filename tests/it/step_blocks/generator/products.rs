//! Products: of rows with weights, of products, side by side; and the gates that cells are made of.

use unpadded::kernels::Transpose;
use unpadded::{Builder, Result, Var};

use super::{Dice, Item, LARGE, Maker};

impl Maker {
    /// x · W + b, with a weight of any origin.
    pub(super) fn weighted_to(&mut self, net: &Builder, x: &Item, width: usize) -> Result<Item> {
        let x = self.small(net, x, LARGE)?;
        let mut var = x.var;
        if x.spec.dtype != self.kind.dtype {
            var = net.cast(var, self.kind.dtype);
        }
        let depth = if self.dice.chance(60) { 0 } else { 3 };
        let transposed = if self.dice.chance(20) { Transpose::Yes } else { Transpose::No };
        let (height, columns) = transposed.shape((x.spec.width(), width));
        let w = self.constant(net, &[height, columns], depth)?;
        let b = if self.dice.chance(40) { Some(self.constant(net, &[width], depth)?) } else { None };
        let size = x.spec.width() as f64 * x.size * w.size + b.as_ref().map_or(0.0, |b| b.size);
        let b = b.map(|b| b.var);
        let var = match transposed {
            Transpose::No => net.product(var, w.var, b),
            Transpose::Yes => net.product_transposed(var, w.var, b),
        };
        self.item(net, var, size)
    }

    pub(super) fn weighted(&mut self, net: &Builder, x: &Item) -> Result<Item> {
        let width = if self.dice.chance(80) { self.width } else { 1 + self.dice.below(self.width + 1) };
        self.weighted_to(net, x, width)
    }

    /// Products of products, which share inputs and at times weights, and sums of some.
    pub(super) fn products(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let memories: Vec<Item> = items.iter().filter(|i| i.memory && i.float()).cloned().collect();
        // Only products that depend on a memory are merged.
        let own = if memories.is_empty() || self.dice.chance(30) { items } else { &memories };
        let x = self.floats(net, own)?;
        let y = self.partner(net, &x, items)?;
        let mut all = vec![x, y];
        let mut pairs: Vec<Item> = Vec::new();
        for _ in 0..2 + self.dice.below(5) {
            let from = self.any(&all);
            let from = self.small(net, &from, LARGE)?;
            // Often two of one input, as merging looks for them.
            for _ in 0..1 + self.dice.below(3) {
                pairs.push(self.weighted_to(net, &from, self.width)?);
            }
            if self.dice.chance(30) {
                let (a, b) = (self.any(&pairs), self.any(&pairs));
                let var = net.add(a.var, b.var);
                pairs.push(self.item(net, var, a.size + b.size)?);
            }
            if self.dice.chance(20) {
                let last = pairs[pairs.len() - 1].clone();
                pairs.push(self.changed(net, &last)?);
            }
            all.extend(pairs.iter().cloned());
        }
        let mut out = pairs[pairs.len() - 1].clone();
        for pair in pairs.iter().rev().skip(1) {
            if self.dice.chance(70) {
                let (a, b) = (self.small(net, &out, LARGE)?, self.small(net, pair, LARGE)?);
                let (var, size) = match self.dice.below(3) {
                    0 => (net.mul(a.var, b.var), a.size * b.size),
                    1 => (net.sub(a.var, b.var), a.size + b.size),
                    _ => (net.add(a.var, b.var), a.size + b.size),
                };
                out = self.item(net, var, size)?;
            }
        }
        Ok(vec![out])
    }

    /// Gates one by one, each of products of the same two variables; some lack a term or have one more, add them in
    /// another order, or share a weight.
    pub(super) fn gates(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let x = self.floats(net, items)?;
        let y = self.partner(net, &x, items)?;
        let plain = self.dice.chance(50);
        let mut all: Option<Var> = None;
        for _ in 0..2 + self.dice.below(3) {
            let odd = |dice: &mut Dice| !plain && dice.chance(25);
            let (a, b) = (self.weighted_to(net, &x, self.width)?, self.weighted_to(net, &y, self.width)?);
            let mut sum = if odd(&mut self.dice) { net.add(b.var, a.var) } else { net.add(a.var, b.var) };
            if odd(&mut self.dice) {
                sum = net.add(sum, self.weighted_to(net, &y, self.width)?.var);
            }
            if odd(&mut self.dice) {
                sum = net.mul(sum, net.tanh(a.var));
            }
            let gate = if self.dice.chance(50) { net.sigmoid(sum) } else { net.tanh(sum) };
            all = Some(match all {
                Some(before) if self.dice.chance(50) => net.mul(before, gate),
                Some(before) => net.add(before, gate),
                None => gate,
            });
        }
        let var = net.tanh(all.unwrap_or(x.var));
        Ok(vec![self.item(net, var, 1.0)?])
    }

    /// An LSTM cell whose gates are a sum of two products, or one product.
    pub(super) fn cell(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let x = self.floats(net, items)?;
        let (y, c) = (self.partner(net, &x, items)?, self.partner(net, &x, items)?);
        let mut gates = self.weighted_to(net, &x, 4 * self.width)?.var;
        if self.dice.chance(75) {
            gates = net.add(gates, self.weighted_to(net, &y, 4 * self.width)?.var);
        }
        let c = self.fit_width(net, &c, self.width)?;
        let (h, next) = net.lstm_cell(gates, c.var);
        Ok(vec![self.item(net, next, c.size + 1.0)?, self.item(net, h, 1.0)?])
    }

    /// Gates as columns of one product, as in a cell; at times one of them is split again, or left out.
    pub(super) fn gates_side_by_side(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let w = self.width;
        let x = self.floats(net, items)?;
        let y = self.partner(net, &x, items)?;
        let (a, b) = (self.weighted_to(net, &x, 3 * w)?, self.weighted_to(net, &y, 3 * w)?);
        let parts = net.split(net.add(a.var, b.var), [w, 2 * w]);
        let parts = [parts[0], net.slice(parts[1], 0..w), net.split(parts[1], [w, w])[1]];
        let kept = net.mul(net.sigmoid(parts[0]), net.tanh(parts[2]));
        let sum = if self.dice.chance(50) { net.add(kept, parts[1]) } else { kept };
        let var = net.tanh(sum);
        Ok(vec![self.item(net, var, 1.0)?])
    }
}
