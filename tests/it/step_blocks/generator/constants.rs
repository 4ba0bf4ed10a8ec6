//! Parameters, and operators on parameters, in the current block.

use unpadded::layers::init;
use unpadded::{Builder, Result};

use super::{Item, LARGE, Maker};

/// How many numbers a sum over rows of a constant may take.
const PARTS: usize = 6;

impl Maker {
    /// A new parameter; at times a frozen one.
    pub(super) fn parameter(&mut self, net: &Builder, dims: &[usize]) -> Result<Item> {
        let name = format!("p{}", self.parameters.len());
        let var = net.parameter(&name, self.kind.dtype, dims, init::uniform(-0.8, 0.8));
        if self.dice.chance(8) {
            net.stop_gradient(var);
        }
        let item = self.item(net, var, 0.8)?;
        self.parameters.push(item.clone());
        Ok(item)
    }

    /// Returns a constant of these dimensions: a parameter, old or new, or operators on parameters, at most `depth` deep.
    pub(super) fn constant(&mut self, net: &Builder, dims: &[usize], depth: usize) -> Result<Item> {
        let fits = |i: &&Item| {
            i.spec.dtype == self.kind.dtype
                && i.spec.shape.iter().map(|e| e.known()).eq(dims.iter().map(|&d| Some(d)))
        };
        let known: Vec<Item> = self.parameters.iter().chain(&self.made).filter(fits).cloned().collect();
        if depth == 0 || self.dice.chance(40) {
            if !known.is_empty() && self.dice.chance(70) {
                let known = self.dice.pick(&known).clone();
                return self.small(net, &known, LARGE);
            }
            return self.parameter(net, dims);
        }
        let made = match (dims, self.dice.below(8)) {
            (&[rows, columns], 0) => {
                let between = 1 + self.dice.below(PARTS);
                let a = self.constant(net, &[rows, between], depth - 1)?;
                let b = self.constant(net, &[between, columns], depth - 1)?;
                let size = a.size * b.size * between as f64;
                let var = if self.dice.chance(70) {
                    net.matmul(a.var, b.var)
                } else {
                    net.product(a.var, b.var, None)
                };
                self.item(net, var, size)?
            }
            (&[rows, columns], 1) if rows == columns => {
                let w = self.constant(net, dims, depth - 1)?;
                let var = net.matmul(w.var, w.var);
                self.item(net, var, w.size * w.size * rows as f64)?
            }
            (&[.., columns], 2) => {
                let (before, behind) = (self.dice.below(3), self.dice.below(3));
                let mut wider = dims.to_vec();
                wider[dims.len() - 1] += before + behind;
                let w = self.constant(net, &wider, depth - 1)?;
                let var = net.slice(w.var, before..before + columns);
                self.item(net, var, w.size)?
            }
            (&[.., columns], 3) if columns > 1 => {
                let (mut left, mut right) = (dims.to_vec(), dims.to_vec());
                left[dims.len() - 1] = 1 + self.dice.below(columns - 1);
                right[dims.len() - 1] = columns - left[dims.len() - 1];
                let a = self.constant(net, &left, depth - 1)?;
                let b = self.constant(net, &right, depth - 1)?;
                let var = net.concat(&[a.var, b.var]);
                self.item(net, var, a.size.max(b.size))?
            }
            (_, 4) => {
                let a = self.constant(net, dims, depth - 1)?;
                let b = if self.dice.chance(40) { a.clone() } else { self.constant(net, dims, depth - 1)? };
                let var = if self.dice.chance(50) { net.add(a.var, b.var) } else { net.mul(a.var, b.var) };
                self.item(net, var, (a.size + b.size).max(a.size * b.size))?
            }
            _ => {
                let w = self.constant(net, dims, depth - 1)?;
                self.changed(net, &w)?
            }
        };
        let made = self.small(net, &made, LARGE)?;
        self.made.push(made.clone());
        Ok(made)
    }

    /// Rows that meet a constant: a vector for all rows, or one number.
    pub(super) fn meets_constant(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let x = self.floats(net, items)?;
        let x = if x.spec.dtype == self.kind.dtype { x } else { self.changed(net, &x)? };
        let vector = [x.spec.width()];
        let dims: &[usize] = if self.dice.chance(80) { &vector } else { &[] };
        let c = self.constant(net, dims, 3)?;
        let (var, size) = match self.dice.below(4) {
            0 => (net.mul(x.var, c.var), x.size * c.size),
            1 => (net.sub(x.var, c.var), x.size + c.size),
            2 => (net.add(c.var, x.var), x.size + c.size),
            _ => (net.add(x.var, c.var), x.size + c.size),
        };
        Ok(vec![self.item(net, var, size)?])
    }
}
