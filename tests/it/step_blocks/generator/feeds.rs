//! The feeds of a program, and batches of several sizes for them.

use std::sync::Arc;

use unpadded::tensor::Dense;
use unpadded::{Builder, DType, Lod, Result, Var, Variable};

use super::{Batch, Dice, HIGH, Item, Kind, Maker, TABLE};

/// Feeds in groups, each of one LoD.
pub(super) struct Feeds {
    kind: Kind,
    /// The levels of each group.
    groups: Vec<usize>,
    feeds: Vec<Feed>,
}

struct Feed {
    var: Var,
    dtype: DType,
    dims: Vec<usize>,
    group: usize,
    /// The exclusive upper bound of the ids.
    below: usize,
}

/// The shape of a batch.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Size {
    Usual,
    Larger,
    Smaller,
    EmptySequences,
    NoSequences,
}

impl Maker {
    /// The feeds, and an item for each.
    pub(super) fn feeds(&mut self, net: &Builder) -> Result<(Feeds, Vec<Item>)> {
        let mut feeds = Feeds { kind: self.kind, groups: Vec::new(), feeds: Vec::new() };
        let mut items = Vec::new();
        for group in 0..3 {
            let levels = if group == 0 { *self.dice.pick(&[1, 2, 2, 3, 3]) } else { self.dice.below(3) };
            feeds.groups.push(levels);
            let mut first = None;
            let least = if self.kind.high() { 2 } else { 1 };
            for k in 0..least + self.dice.below(3) {
                let name = format!("x{group}{k}");
                let ids = k > 0 && self.dice.chance(if self.kind.high() { 85 } else { 60 });
                let (dtype, dims) = match self.dice.below(8) {
                    0 if ids => (DType::I32, vec![]),
                    _ if ids => (DType::I64, vec![]),
                    0 => (self.kind.dtype, vec![]),
                    1 => (self.kind.dtype, vec![self.width + 1]),
                    _ => (self.kind.dtype, vec![self.width]),
                };
                let var = match first {
                    None => net.feed(&name, dtype, &dims, levels),
                    Some(first) => net.feed_like(&name, dtype, &dims, first),
                };
                first = first.or(Some(var));
                if !ids && !self.dice.chance(10) {
                    net.watch(var);
                }
                let below = if self.kind.high() && self.dice.chance(60) { HIGH } else { TABLE };
                feeds.feeds.push(Feed { var, dtype, dims, group, below });
                items.push(self.item(net, var, if ids { below as f64 } else { 1.0 })?);
            }
        }
        Ok((feeds, items))
    }
}

impl Feeds {
    pub(super) fn batch(&self, dice: &mut Dice, size: Size) -> Result<Batch> {
        let sequences = match size {
            Size::NoSequences => 0,
            Size::Smaller => 1,
            Size::Larger => 9,
            _ if self.kind.wide => 40,
            _ => [0, 1, 1, 2, 3, 4, 5, 2, 3, 4, 5, 3][dice.below(12)],
        };
        let lods: Vec<Option<Arc<Lod>>> =
            self.groups.iter().map(|&levels| self.lod(dice, sequences, levels, size)).collect();
        let mut batch = Batch::new();
        for feed in &self.feeds {
            let lod = &lods[feed.group];
            let rows = lod.as_ref().map_or(sequences, |lod| lod.rows());
            let shape: Vec<usize> = [rows].into_iter().chain(feed.dims.iter().copied()).collect();
            let count: usize = shape.iter().product();
            let dense = if feed.dtype.is_float() {
                // Numbers that every dtype holds.
                let numbers = (0..count).map(|_| dice.number()).collect();
                Dense::from_vec::<f64>(&shape, numbers)?.cast(DType::F32).cast(feed.dtype)
            } else {
                // Where there are many, few of them are frequent.
                let id = |dice: &mut Dice| match feed.below > TABLE && dice.chance(70) {
                    true => dice.below(TABLE),
                    false => dice.below(feed.below),
                };
                let ids = (0..count).map(|_| id(dice) as i64).collect();
                Dense::from_vec::<i64>(&shape, ids)?.cast(feed.dtype)
            };
            batch.push((feed.var.id(), Variable::new(dense, lod.clone())?));
        }
        Ok(batch)
    }

    fn lod(&self, dice: &mut Dice, sequences: usize, levels: usize, size: Size) -> Option<Arc<Lod>> {
        let mut lod: Option<Arc<Lod>> = None;
        let mut count = sequences;
        for level in 0..levels {
            let most = if self.kind.wide { [24, 3, 2][level] } else { [8, 5, 4][level] };
            let long = size == Size::Larger || dice.chance(70);
            let mut offsets = vec![0];
            for _ in 0..count {
                let n = match size {
                    Size::EmptySequences => 0,
                    _ if dice.chance(20) || !long => dice.below(2),
                    _ => dice.below(most),
                };
                offsets.push(offsets[offsets.len() - 1] + n);
            }
            count = offsets[offsets.len() - 1];
            lod = Some(Lod::extend(lod, offsets).unwrap());
        }
        lod
    }
}
