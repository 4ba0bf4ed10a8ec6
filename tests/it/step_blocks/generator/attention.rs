//! Attention of sequences to one another, and of a row to a sequence.

use unpadded::ops::DotAttention;
use unpadded::{Builder, Result};

use super::{Item, LARGE, Maker};

/// The operators that are called here.
pub(super) const ATTENTION: [&str; 3] = ["additive_attention", "dot_attention", "rotary"];

impl Maker {
    pub(super) fn of_attention(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let sequences: Vec<Item> =
            items.iter().filter(|i| i.float() && !i.spec.lod.is_empty()).cloned().collect();
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let heads = 1 + self.dice.below(2);
        let x = self.any(&sequences);
        let x = self.small(net, &x, LARGE)?;
        let k = self.fit_width(net, &x, 2 * heads)?;
        if kind == "rotary" {
            let var = net.rotary(k.var, heads);
            return Ok(vec![self.item(net, var, 2.0 * k.size)?]);
        }
        let fits: Vec<Item> = items.iter().filter(|i| i.float() && i.meets(&x)).cloned().collect();
        let v = if fits.is_empty() || self.dice.chance(40) { x.clone() } else { self.any(&fits) };
        let v = self.fit_width(net, &v, heads)?;
        if kind == "additive_attention" {
            return self.additive(net, &k, &v, items);
        }
        // One query per sequence, or the queries of a sequence with the same levels above.
        let above = &x.spec.lod[..x.spec.lod.len() - 1];
        let beside = |i: &&Item| i.spec.lod.len() == x.spec.lod.len() && i.spec.lod.starts_with(above);
        let others: Vec<Item> = sequences.iter().filter(beside).cloned().collect();
        let single = self.dice.chance(30);
        let q = match single {
            true => self.pooled(net, &x)?,
            false if others.is_empty() => x.clone(),
            false => self.any(&others),
        };
        let q = self.small(net, &q, LARGE)?;
        let q = self.fit_width(net, &q, 2 * heads)?;
        let mut options = DotAttention::heads(heads);
        if !single {
            options = options.before(self.dice.chance(30).then(|| self.dice.below(3)));
            options = options.after(self.dice.chance(30).then(|| self.dice.below(3)));
            if self.dice.chance(30) {
                options = options.bias(self.constant(net, &[heads, 3], 2)?.var);
            }
        }
        let (out, log_sums) = net.dot_attention_with(q.var, k.var, v.var, options);
        let score = 4.0 * q.size * k.size;
        Ok(vec![self.item(net, log_sums, score + 8.0)?, self.item(net, out, v.size)?])
    }
    /// One query a sequence: a row that is there, as a memory in a step block, or one made of the keys.
    fn additive(&mut self, net: &Builder, k: &Item, v: &Item, items: &[Item]) -> Result<Vec<Item>> {
        let pooled = self.pooled(net, k)?;
        let beside: Vec<Item> = items.iter().filter(|i| i.float() && i.meets(&pooled)).cloned().collect();
        let query = if beside.is_empty() || self.dice.chance(20) { pooled } else { self.any(&beside) };
        let query = self.small(net, &query, LARGE)?;
        let width = k.spec.width();
        let query = self.fit_width(net, &query, width)?;
        let columns = match self.dice.chance(30) {
            true => self.partner_of_width(net, &query, &beside)?,
            false => self.constant(net, &[width], 2)?,
        };
        let (out, weights) = net.additive_attention_with(query.var, k.var, v.var, columns.var);
        Ok(vec![self.item(net, weights, 1.0)?, self.item(net, out, v.size)?])
    }

    /// Another row of the same sequences, as wide as `like`.
    fn partner_of_width(&mut self, net: &Builder, like: &Item, items: &[Item]) -> Result<Item> {
        let row = if items.is_empty() { like.clone() } else { self.any(items) };
        let row = self.small(net, &row, LARGE)?;
        self.fit_width(net, &row, like.spec.width())
    }
}
