//! Calls of operators on sparse variables whose operands must fit each other: products, rows and columns.

use unpadded::op::Attributes;
use unpadded::{Builder, Result, Var};

use super::{Item, LARGE, Maker, TABLE};

/// Operators that are called here.
pub(super) const SPARSE: [&str; 9] = [
    "dot",
    "random_projection",
    "retain",
    "sparse_concat",
    "sparse_linear",
    "sparse_matmul",
    "sparse_slice",
    "take_rows",
    "transposed_dot",
];

impl Maker {
    /// Sparse rows: an item as csr, after something that makes a part of it 0, where that is no kink.
    fn sparse_rows(&mut self, net: &Builder, items: &[Item]) -> Result<Item> {
        let x = self.floats(net, items)?;
        let x = self.small(net, &x, LARGE)?;
        let kept = if self.kind.smooth || self.dice.chance(40) { x.var } else { net.relu(x.var) };
        let var = net.to_csr(kept);
        self.item(net, var, x.size)
    }

    pub(super) fn of_sparse(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let w = self.width;
        if matches!(kind, "retain" | "take_rows" | "sparse_matmul") {
            return self.of_table(net, kind, items);
        }
        let x = self.sparse_rows(net, items)?;
        let width = x.spec.width();
        let (var, size) = match kind {
            "dot" => {
                let dims = if self.dice.chance(30) { vec![width] } else { vec![width, w] };
                let y = self.constant(net, &dims, 0)?;
                let sparse = dims.len() == 2 && self.dice.chance(50);
                let var = match (sparse, self.dice.chance(50)) {
                    (false, _) => y.var,
                    (true, false) => net.to_csr(y.var),
                    (true, true) => net.to_selected_rows(y.var),
                };
                (net.dot(x.var, var), width as f64 * x.size * y.size)
            }
            "random_projection" => {
                (net.random_projection(x.var, 1 + self.dice.below(w + 2), 7), width as f64 * x.size)
            }
            "sparse_linear" => {
                let y = self.constant(net, &[width, w], 0)?;
                let bias = if self.dice.chance(50) { Some(self.constant(net, &[w], 0)?) } else { None };
                let size = width as f64 * x.size * y.size + bias.as_ref().map_or(0.0, |b| b.size);
                (net.product(x.var, y.var, bias.map(|b| b.var)), size)
            }
            "sparse_concat" => {
                let y = net.scale(x.var, 0.5, 0.0);
                (net.concat(&[x.var, y]), x.size)
            }
            "sparse_slice" => {
                let from = self.dice.below(width);
                (net.slice(x.var, from..width), x.size)
            }
            _ => {
                let partner = self.partner(net, &x, items)?;
                let d: Var = if self.dice.chance(40) { x.var } else { partner.var };
                let made = net.transposed_dot(x.var, d);
                let rows = if self.kind.wide { 100.0 } else { 30.0 };
                (net.to_dense(made), rows * x.size * x.size.max(partner.size))
            }
        };
        Ok(vec![self.item(net, var, size)?])
    }

    /// Calls an operator on a table that is not dense.
    fn of_table(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let w = self.width;
        let table = self.constant(net, &[TABLE, w], 0)?;
        let sparse = match self.dice.chance(50) {
            true => net.to_csr(table.var),
            false => net.to_selected_rows(table.var),
        };
        if kind == "sparse_matmul" {
            let (x, y) = (net.to_csr(table.var), self.constant(net, &[w, w], 0)?);
            let var: Var = net.append("matmul", &[("x", &[x]), ("y", &[y.var])], self.plain("matmul"));
            return Ok(vec![self.item(net, var, w as f64 * table.size * y.size)?]);
        }
        let ids: Vec<Item> = items.iter().filter(|i| !i.float() && i.size <= TABLE as f64).cloned().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.any(&ids);
        let var = match kind {
            "retain" => net.to_dense(net.retain(sparse, ids.var)),
            _ => net.take_rows(sparse, ids.var),
        };
        Ok(vec![self.item(net, var, table.size)?])
    }

    /// The attributes of an operator's first sample.
    fn plain(&self, kind: &str) -> Attributes {
        self.registry.samples(kind).map(|mut all| all.remove(0).attributes).unwrap_or_default()
    }
}
