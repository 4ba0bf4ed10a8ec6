//! Attention of sequences to one another, and of a row to a sequence.

use unpadded::ops::DotAttention;
use unpadded::{Builder, Result};

use super::{Item, LARGE, Maker};

/// The operators that are called here.
pub(super) const ATTENTION: [&str; 2] = ["dot_attention", "rotary"];

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
        // One query a sequence, or those of a sequence with the same levels above.
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
            options.before = self.dice.chance(30).then(|| self.dice.below(3));
            options.after = self.dice.chance(30).then(|| self.dice.below(3));
            if self.dice.chance(30) {
                options.bias = Some(self.constant(net, &[heads, 3], 2)?.var);
            }
        }
        let (out, log_sums) = net.dot_attention_with(q.var, k.var, v.var, options);
        let score = 4.0 * q.size * k.size;
        Ok(vec![self.item(net, log_sums, score + 8.0)?, self.item(net, out, v.size)?])
    }
}
