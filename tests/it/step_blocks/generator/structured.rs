//! Chains of tags, labels of frames, distances of sequences.

use unpadded::{Builder, DType, Result, Var};

use super::operators::ids_of_sequences;
use super::{Item, LARGE, Maker, TABLE};

/// The operators of this file.
pub(super) const STRUCTURED: [&str; 6] =
    ["linear_chain_crf", "crf_marginals", "viterbi_decode", "ctc_loss", "ctc_align", "edit_distance"];

impl Maker {
    pub(super) fn structured(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        if kind == "ctc_align" || kind == "edit_distance" {
            return self.of_sequences_of_ids(net, kind, items);
        }
        let least = if kind == "ctc_loss" { 2 } else { 1 };
        let sequences = |i: &&Item| i.float() && !i.spec.lod.is_empty() && i.spec.width() >= least;
        let sequences: Vec<Item> = items.iter().filter(sequences).cloned().collect();
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let x = self.any(&sequences);
        let x = self.small(net, &x, LARGE)?;
        if kind == "ctc_loss" {
            return self.labelled(net, &x, items);
        }
        let tags = x.spec.width();
        let transitions = self.constant(net, &[tags + 2, tags], 1)?.var;
        match kind {
            "linear_chain_crf" => {
                let ids: Vec<Item> = items.iter().filter(|i| !i.float() && i.meets(&x)).cloned().collect();
                if ids.is_empty() {
                    return Ok(Vec::new());
                }
                let ids = self.any(&ids);
                let wanted = self.classes(net, &ids, tags);
                let var = net.linear_chain_crf(x.var, transitions, wanted, &[]);
                Ok(vec![self.item(net, var, f64::INFINITY)?])
            }
            // No gradient passes them.
            "crf_marginals" if self.kind.smooth => Ok(Vec::new()),
            "crf_marginals" => {
                let forbidden = if tags > 1 && self.dice.chance(50) { vec![1] } else { vec![] };
                let var = net.crf_marginals(x.var, transitions, &forbidden);
                Ok(vec![self.item(net, var, 1.0)?])
            }
            _ => {
                let (paths, _) = net.viterbi_decode(x.var, transitions, 1, &[]);
                Ok(vec![self.item(net, paths, tags as f64)?])
            }
        }
    }

    /// Returns the loss of labels given by other sequences; no label is the last class, the blank.
    fn labelled(&mut self, net: &Builder, x: &Item, items: &[Item]) -> Result<Vec<Item>> {
        let blank = x.spec.width() - 1;
        let ids = ids_of_sequences(items, TABLE);
        let alike = |i: &&Item| i.spec.upper_levels() == x.spec.upper_levels();
        let others: Vec<Item> = ids.iter().filter(alike).cloned().collect();
        if others.is_empty() {
            return Ok(Vec::new());
        }
        let other = self.any(&others);
        let labels = self.classes(net, &other, blank);
        let var = net.ctc_loss(x.var, labels, blank, true);
        Ok(vec![self.item(net, var, f64::INFINITY)?])
    }

    /// Class 0 or 1 of `count` classes, by ids.
    fn classes(&mut self, net: &Builder, ids: &Item, count: usize) -> Var {
        let below = if count > 1 { self.dice.below(TABLE) } else { 0 };
        net.cast(net.less(ids.var, below as f64), DType::I64)
    }

    fn of_sequences_of_ids(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let ids = ids_of_sequences(items, TABLE);
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.any(&ids);
        if kind == "ctc_align" {
            let var = net.ctc_align(found.var, self.dice.below(3));
            return Ok(vec![self.item(net, var, found.size)?]);
        }
        let alike = |i: &&Item| i.spec.upper_levels() == found.spec.upper_levels();
        let references: Vec<Item> = ids.iter().filter(alike).cloned().collect();
        let reference = self.any(&references);
        let var = net.cast(net.edit_distance(found.var, reference.var, false), self.kind.dtype);
        Ok(vec![self.item(net, var, f64::INFINITY)?])
    }
}
