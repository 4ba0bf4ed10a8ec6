//! Operators of ids and labels that name rows of a table: losses over classes, rows gathered and scattered.

use unpadded::ops::{ClassTree, SampledClasses};
use unpadded::tensor::StorageKind;
use unpadded::{Builder, DType, Result};

use super::{Item, Maker, TABLE};

/// The operators of this file.
pub(super) const CLASSES: [&str; 7] = [
    "class_clusters",
    "gather_rows",
    "hierarchical_sigmoid",
    "nce",
    "one_hot",
    "sampled_softmax",
    "scatter_rows",
];

impl Maker {
    /// One of them, over an item of ids.
    pub(super) fn of_classes(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let ids: Vec<Item> = items.iter().filter(|i| !i.float() && i.size <= TABLE as f64).cloned().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.any(&ids);
        let rows: Vec<Item> = items.iter().filter(|i| i.float() && i.meets(&ids)).cloned().collect();
        let x = if rows.is_empty() { self.lookup(net, &ids)? } else { self.any(&rows) };
        match kind {
            "one_hot" => {
                let var = net.one_hot(ids.var, TABLE);
                let var = if self.kind.dtype == DType::F32 { var } else { net.cast(var, self.kind.dtype) };
                Ok(vec![self.item(net, var, 1.0)?])
            }
            "class_clusters" => {
                let (head, cluster, within) = net.class_clusters(ids.var, &[1, 3, TABLE]);
                let all = [(head, 2.0), (cluster, 2.0), (within, TABLE as f64)];
                all.into_iter().map(|(var, size)| self.item(net, var, size)).collect()
            }
            "gather_rows" => {
                let table = self.constant(net, &[TABLE, self.width], 1)?;
                let var = net.gather_rows(table.var, ids.var);
                Ok(vec![self.item(net, var, table.size)?])
            }
            "scatter_rows" => {
                let var = net.scatter_rows(x.var, ids.var, TABLE);
                Ok(vec![self.item(net, var, f64::INFINITY)?])
            }
            _ => {
                let x = self.fit_width(net, &x, self.width)?;
                let gradient =
                    if self.dice.chance(50) { StorageKind::SelectedRows } else { StorageKind::Dense };
                let bias = self.dice.chance(50);
                let rows = if kind == "hierarchical_sigmoid" { TABLE - 1 } else { TABLE };
                let table = self.constant(net, &[rows, self.width], 0)?;
                let bias = if bias { Some(self.constant(net, &[rows], 0)?.var) } else { None };
                let options = SampledClasses::new(1 + self.dice.below(3)).bias(bias).gradient(gradient);
                let loss = match kind {
                    "nce" => net.nce(x.var, table.var, ids.var, options).0,
                    "sampled_softmax" => net.sampled_softmax(x.var, table.var, ids.var, options).0,
                    _ => {
                        let tree = ClassTree::Complete(TABLE);
                        net.hierarchical_sigmoid(x.var, table.var, bias, ids.var, tree)
                    }
                };
                Ok(vec![self.item(net, loss, f64::INFINITY)?])
            }
        }
    }
}
