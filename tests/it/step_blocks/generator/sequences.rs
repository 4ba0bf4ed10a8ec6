//! Operators on sequences whose operands must fit each other: filters, lengths that add up, ids below a width.

use unpadded::ops::Context;
use unpadded::{Builder, DType, Result, Var};

use super::operators::ids_of_sequences;
use super::{Item, LARGE, Maker, TABLE};

/// Most rows of a sequence that is padded.
const PLACES: usize = 3;

/// The operators of this file.
pub(super) const SEQUENCES: [&str; 14] = [
    "sequence_conv",
    "row_conv",
    "sequence_concat",
    "sequence_pad",
    "sequence_unpad",
    "sequence_unpad_as",
    "sequence_reshape",
    "sequence_scatter",
    "sequence_enumerate",
    "sequence_mask",
    "sequence_filter",
    "sequence_place",
    "lod_append",
    "lod_reset",
];

impl Maker {
    pub(super) fn of_sequences(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let sequences: Vec<Item> =
            items.iter().filter(|i| i.float() && !i.spec.lod.is_empty()).cloned().collect();
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let x = self.any(&sequences);
        let x = self.small(net, &x, LARGE)?;
        let width = x.spec.width();
        let var = match kind {
            "sequence_conv" => return self.convolved(net, &x),
            "row_conv" => {
                let taps = 1 + self.dice.below(3);
                let filter = self.constant(net, &[taps, width], 2)?;
                let var = net.row_conv(x.var, filter.var);
                return Ok(vec![self.item(net, var, taps as f64 * x.size * filter.size)?]);
            }
            "sequence_concat" => {
                let alike = |i: &&Item| i.spec.upper_levels() == x.spec.upper_levels();
                let fits: Vec<Item> = sequences.iter().filter(alike).cloned().collect();
                let (mut vars, mut size) = (vec![x.var], x.size);
                for _ in 0..self.dice.below(3) {
                    let y = self.any(&fits);
                    let y = self.fit_width(net, &y, width)?;
                    size = size.max(y.size);
                    vars.push(y.var);
                }
                let var = net.sequence_concat(&vars);
                return Ok(vec![self.item(net, var, size)?]);
            }
            "sequence_pad" | "sequence_unpad" | "sequence_unpad_as" => {
                // As many of the first rows of each sequence as there are places.
                let numbers = net.cast(net.lod_of(x.var), DType::F32);
                let count = |most: f64| net.cast(net.clamp(numbers, 0.0, most), DType::I64);
                let first = net.sequence_slice(x.var, count(0.0), count(PLACES as f64));
                let (padded, lengths) = net.sequence_pad(first, PLACES + self.dice.below(2), 0.5);
                if kind == "sequence_pad" {
                    let lengths = self.item(net, lengths, PLACES as f64)?;
                    return Ok(vec![lengths, self.item(net, padded, x.size.max(0.5))?]);
                }
                if kind == "sequence_unpad_as" {
                    let var = net.sequence_unpad_as(padded, first);
                    return Ok(vec![self.item(net, var, x.size.max(0.5))?]);
                }
                let some = if self.dice.chance(50) { lengths } else { count(2.0) };
                net.sequence_unpad(padded, some)
            }
            "sequence_reshape" => {
                let divisors: Vec<usize> = (1..=width).filter(|d| width.is_multiple_of(*d)).collect();
                if divisors.is_empty() {
                    return Ok(Vec::new());
                }
                let to = *self.dice.pick(&divisors);
                net.sequence_reshape(x.var, to)
            }
            "sequence_scatter" => return self.scattered(net, items),
            "sequence_filter" | "sequence_place" => return self.filtered(net, kind, items),
            "sequence_mask" => {
                let var = net.sequence_mask(net.lod_of(x.var), PLACES, self.kind.dtype);
                return Ok(vec![self.item(net, var, 1.0)?]);
            }
            "sequence_enumerate" => {
                let ids = ids_of_sequences(items, TABLE);
                if ids.is_empty() {
                    return Ok(Vec::new());
                }
                let ids = self.any(&ids);
                let var = net.sequence_enumerate(ids.var, 1 + self.dice.below(3), 0);
                return Ok(vec![self.item(net, var, ids.size)?]);
            }
            // A piece for each row; and back.
            _ => {
                let ones = net.fill_like(net.sum_features(x.var), 1.0);
                let pieces = net.lod_append(x.var, net.cast(ones, DType::I64));
                if kind == "lod_append" { pieces } else { net.lod_reset(pieces, x.var) }
            }
        };
        Ok(vec![self.item(net, var, x.size)?])
    }

    fn convolved(&mut self, net: &Builder, x: &Item) -> Result<Vec<Item>> {
        let width = x.spec.width();
        let (length, columns) = (1 + self.dice.below(3), 1 + self.dice.below(4));
        let mut context = Context::new(length).dilation(1 + self.dice.below(2));
        match self.dice.below(3) {
            0 => context = context.causal(),
            1 => context = context.starting_at(self.dice.below(6) as i64 - 3),
            _ => {}
        }
        // One group, or a group for each column.
        let groups = if self.dice.chance(30) { width.max(1) } else { 1 };
        let context = context.groups(groups);
        let filter = self.constant(net, &[length * width / groups, columns * groups], 2)?;
        let bias =
            if self.dice.chance(40) { Some(self.constant(net, &[columns * groups], 2)?) } else { None };
        let (above, below) = context.padding_rows();
        let padding = if above + below > 0 && self.dice.chance(40) {
            Some(self.constant(net, &[above + below, width], 1)?)
        } else {
            None
        };
        let convolution = |item: &Option<Item>| -> (Option<Var>, f64) {
            (item.as_ref().map(|item| item.var), item.as_ref().map_or(0.0, |item| item.size))
        };
        let ((bias, offset), (padding, outside)) = (convolution(&bias), convolution(&padding));
        let size = (length * width) as f64 * filter.size * x.size.max(outside) + offset;
        let var = net.sequence_conv_with(x.var, filter.var, bias, padding, context);
        Ok(vec![self.item(net, var, size)?])
    }

    /// Rows whose ids are small, alone or with others beside them, and back in their places.
    fn filtered(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let sequences = ids_of_sequences(items, TABLE);
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.any(&sequences);
        let rows: Vec<Item> = items.iter().filter(|i| i.float() && i.meets(&ids)).cloned().collect();
        let x = if rows.is_empty() { self.lookup(net, &ids)? } else { self.any(&rows) };
        let keep = net.less(ids.var, self.dice.below(TABLE + 1) as f64);
        let [kept, its_ids] = net.sequence_filter_all(keep, [x.var, ids.var]);
        let kept = self.item(net, kept, x.size)?;
        let mut made = vec![self.item(net, its_ids, ids.size)?];
        if kind == "sequence_place" || self.dice.chance(50) {
            let placed = net.sequence_place(net.tanh(kept.var), keep);
            made.push(self.item(net, placed, 1.0)?);
        }
        made.push(kept);
        Ok(made)
    }

    /// Numbers at columns that ids name, added to a row for each sequence of them.
    fn scattered(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let sequences = ids_of_sequences(items, TABLE);
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.any(&sequences);
        let rows = self.lookup(net, &ids)?;
        let (updates, pooled) = (self.fit_width(net, &rows, 1)?, self.pooled(net, &rows)?);
        let x = self.fit_width(net, &pooled, TABLE)?;
        let var = net.sequence_scatter(x.var, ids.var, updates.var);
        let most = if self.kind.wide { 30.0 } else { 8.0 };
        Ok(vec![self.item(net, var, x.size + most * updates.size)?])
    }
}
