//! One call of one operator of the catalogue. Most operators are called by their declarations, with the attributes of
//! one of their samples; operators whose operands must fit each other by width or by value have code of their own.

use unpadded::kernels::Transpose;
use unpadded::op::{Arity, Attributes, ROWS, Spec};
use unpadded::ops::{BagPool, CrossEntropy, LookupBag, Pool, UpdateGate};
use unpadded::tensor::StorageKind;
use unpadded::{Builder, DType, Result, Var};

use super::attention::ATTENTION;
use super::classes::CLASSES;
use super::sequences::SEQUENCES;
use super::sparse::SPARSE;
use super::structured::STRUCTURED;
use super::{HIGH, Item, LARGE, Maker, TABLE, Tables};

/// Operators that a difference does not approximate the gradient of: they have kinks or jumps, or declare that no
/// gradient passes where the function has one.
const ROUGH: [&str; 29] = [
    "abs",
    "accuracy",
    "argmax",
    "binary_cross_entropy",
    "focal_loss",
    "cast",
    "clamp",
    "elu",
    "equal",
    "global_norm",
    "greater",
    "greater_equal",
    "hinge",
    "huber",
    "leaky_relu",
    "less",
    "less_equal",
    "max_features",
    "maximum",
    "minimum",
    "not_equal",
    "relu",
    "select",
    "softsign",
    "top_k",
    "learning_rate",
    "sequence_pool",
    "sequence_pool_piece",
    "sequence_topk_pool",
];

/// Operators with one operand that most rows fit.
const CHANGES: [&str; 16] = [
    "assign",
    "scale",
    "tanh",
    "square",
    "sigmoid",
    "exp",
    "softmax",
    "log_softmax",
    "silu",
    "gelu",
    "softplus",
    "dropout",
    "sqrt",
    "log",
    "relu",
    "abs",
];

impl Maker {
    pub(super) fn any_operator(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let kind = match self.kind.often {
            Some(kind) if self.dice.chance(50) => kind,
            _ => *self.dice.pick(&self.kinds.clone()),
        };
        let w = self.width;
        match kind {
            "accuracy" | "cross_entropy" | "linear_cross_entropy" | "cross_entropy_share" => {
                self.of_labels(net, kind, items)
            }
            "embedding" => self.looked_up(net, items),
            "embedding_bag" => self.bags(net, items),
            kind if SPARSE.contains(&kind) => self.of_sparse(net, kind, items),
            kind if CLASSES.contains(&kind) => self.of_classes(net, kind, items),
            kind if ATTENTION.contains(&kind) => self.of_attention(net, kind, items),
            kind if SEQUENCES.contains(&kind) => self.of_sequences(net, kind, items),
            kind if STRUCTURED.contains(&kind) => self.structured(net, kind, items),
            "gru_cell" => {
                let h = self.floats(net, items)?;
                let x = self.partner(net, &h, items)?;
                let h = self.fit_width(net, &h, w)?;
                let (a, b) = (self.weighted_to(net, &x, 3 * w)?, self.weighted_to(net, &h, 3 * w)?);
                let update = if self.dice.chance(50) { UpdateGate::Keeps } else { UpdateGate::Takes };
                let var = net.gru_cell(a.var, b.var, h.var, update);
                Ok(vec![self.item(net, var, h.size.max(1.0))?])
            }
            "linear" => {
                let x = self.floats(net, items)?;
                Ok(vec![self.weighted(net, &x)?])
            }
            "lstm_cell" => {
                let x = self.floats(net, items)?;
                let c = self.partner(net, &x, items)?;
                let (pre, c) = (self.weighted_to(net, &x, 4 * w)?, self.fit_width(net, &c, w)?);
                let (h, next) = net.lstm_cell(pre.var, c.var);
                Ok(vec![self.item(net, next, c.size + 1.0)?, self.item(net, h, 1.0)?])
            }
            "matmul" => {
                let a = self.constant(net, &[w, w], 2)?;
                let b = self.constant(net, &[w, w], 2)?;
                self.by_signature(net, kind, &[a, b], items)
            }
            "matvec" | "outer" => {
                let x = self.floats(net, items)?;
                let y = self.partner(net, &x, items)?;
                let matrix = net.outer(x.var, y.var);
                let matrix = self.item(net, matrix, x.size * y.size)?;
                let var = net.matvec(matrix.var, y.var);
                let size = matrix.size * y.size * y.spec.width() as f64;
                let product = self.item(net, var, size)?;
                Ok(if self.dice.chance(70) { vec![product] } else { vec![matrix, product] })
            }
            "sequence_expand" | "sequence_expand_as" => {
                let sequences: Vec<Item> = items.iter().filter(|i| !i.spec.lod.is_empty()).cloned().collect();
                if sequences.is_empty() {
                    return Ok(Vec::new());
                }
                let y = self.any(&sequences);
                let above = &y.spec.lod[..y.spec.lod.len() - 1];
                let fits: Vec<Item> = items
                    .iter()
                    .filter(|i| i.spec.lod.as_slice() == above || i.spec.lod == y.spec.lod)
                    .cloned()
                    .collect();
                let x = if self.dice.chance(30) { self.pooled(net, &y)? } else { self.any(&fits) };
                self.by_signature(net, kind, &[x, y], items)
            }
            "sequence_erase" => {
                let sequences = ids_of_sequences(items, TABLE);
                if sequences.is_empty() {
                    return Ok(Vec::new());
                }
                let ids = self.any(&sequences);
                let tokens = self.tokens();
                let var = net.sequence_erase(ids.var, &tokens);
                Ok(vec![self.item(net, var, ids.size)?])
            }
            "sequence_slice" => self.sliced(net, items),
            "sequence_pool" => self.any_pooled(net, items),
            "sequence_pool_piece" => self.pieces(net, kind, items),
            "sequence_softmax" => {
                let x = self.floats(net, items)?;
                let x = self.fit_width(net, &x, 1)?;
                self.by_signature(net, kind, &[x], items)
            }
            "slice" => {
                let x = self.floats(net, items)?;
                if x.spec.width() == 0 {
                    return Ok(Vec::new());
                }
                let from = self.dice.below(x.spec.width());
                let to = from + 1 + self.dice.below(x.spec.width() - from);
                let var = net.slice(x.var, from..to);
                Ok(vec![self.item(net, var, x.size)?])
            }
            "split" => {
                let x = self.floats(net, items)?;
                let first = self.dice.below(x.spec.width() + 1);
                let parts = net.split(x.var, [first, x.spec.width() - first]);
                parts.into_iter().map(|var| self.item(net, var, x.size)).collect()
            }
            _ => self.by_signature(net, kind, &[], items),
        }
    }

    /// Some of the ids that there are.
    fn tokens(&mut self) -> Vec<i64> {
        (0..TABLE as i64).filter(|_| self.dice.chance(40)).collect()
    }

    /// A slice of each sequence. Ids in the same sequences give its position: it begins after as many rows as one list of ids
    /// has, and has as many rows as another list.
    fn sliced(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let sequences = ids_of_sequences(items, TABLE);
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.any(&sequences);
        let fits: Vec<Item> = items.iter().filter(|i| i.meets(&ids)).cloned().collect();
        let x = if self.dice.chance(25) { self.lookup(net, &ids)? } else { self.any(&fits) };
        let before = self.tokens();
        let inside: Vec<i64> = self.tokens().into_iter().filter(|id| !before.contains(id)).collect();
        let count = |counted: &[i64]| -> Var {
            let others: Vec<i64> = (0..TABLE as i64).filter(|id| !counted.contains(id)).collect();
            net.lod_of(net.sequence_erase(ids.var, &others))
        };
        let (offset, length) = (count(&before), count(&inside));
        let offset = if self.dice.chance(50) { offset } else { net.cast(offset, DType::I32) };
        let length = if !before.is_empty() || self.dice.chance(70) { length } else { net.lod_of(x.var) };
        let var = net.sequence_slice(x.var, offset, length);
        Ok(vec![self.item(net, var, x.size)?])
    }

    /// Labels of an item of ids, and logits in its rows.
    fn of_labels(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let ids: Vec<Item> = items.iter().filter(|i| !i.float() && i.size <= TABLE as f64).cloned().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let labels = self.any(&ids);
        let rows: Vec<Item> = items.iter().filter(|i| i.float() && i.meets(&labels)).cloned().collect();
        let x = if rows.is_empty() || self.dice.chance(20) {
            self.lookup(net, &labels)?
        } else {
            self.any(&rows)
        };
        // A constant that passes no gradient.
        let weights = if self.dice.chance(30) {
            let c = self.parameter(net, &[TABLE])?;
            net.stop_gradient(c.var);
            Some(c.var)
        } else {
            None
        };
        let ignore_index = self.dice.chance(40).then(|| self.dice.below(TABLE) as i64);
        let label_smoothing = if self.dice.chance(40) { 0.2 } else { 0.0 };
        match kind {
            "accuracy" if self.kind.smooth => Ok(Vec::new()),
            "accuracy" => {
                let logits = self.weighted_to(net, &x, TABLE)?;
                let var = net.accuracy(logits.var, labels.var, ignore_index);
                Ok(vec![self.item(net, var, 1.0)?])
            }
            "cross_entropy" => {
                let logits = self.weighted_to(net, &x, TABLE)?;
                let options = CrossEntropy::default()
                    .ignore_index(ignore_index)
                    .class_weights(weights)
                    .label_smoothing(label_smoothing);
                let (loss, share) = net.cross_entropy_with(logits.var, labels.var, options);
                Ok(vec![self.item(net, loss, 4.0 * logits.size + 2.0)?, self.item(net, share, 1.0)?])
            }
            _ => {
                let mut attributes = Attributes::new().with("label_smoothing", label_smoothing);
                if let Some(index) = ignore_index {
                    attributes.set("ignore_index", index);
                }
                let x = self.small(net, &x, LARGE)?;
                let transposed = if self.dice.chance(30) { Transpose::Yes } else { Transpose::No };
                if transposed == Transpose::Yes {
                    attributes.set("transposed", true);
                }
                let (height, columns) = transposed.shape((x.spec.width(), TABLE));
                let w = self.constant(net, &[height, columns], 2)?;
                let class_weights = weights.as_slice();
                let mut inputs: Vec<(&str, &[Var])> = vec![
                    ("weight", std::slice::from_ref(&w.var)),
                    ("labels", std::slice::from_ref(&labels.var)),
                ];
                inputs.push(("class_weights", class_weights));
                let x = [x.var];
                if kind == "linear_cross_entropy" {
                    inputs.push(("x", &x));
                }
                let var = net.append(kind, &inputs, attributes);
                Ok(vec![self.item(net, var, f64::INFINITY)?])
            }
        }
    }

    /// The rows of a table, looked up by ids.
    pub(super) fn lookup(&mut self, net: &Builder, ids: &Item) -> Result<Item> {
        let depth = if self.dice.chance(80) { 0 } else { 2 };
        let height = self.height(ids);
        let table = self.constant(net, &[height, self.width], depth)?;
        let padding = self.dice.chance(20).then(|| self.dice.below(TABLE) as i64);
        // The row of a padding id has no gradient, where the function has one.
        let padding = if self.kind.smooth { None } else { padding };
        let rows = self.gradient_of_rows();
        let var = net.lookup(ids.var, table.var, padding, rows);
        self.item(net, var, table.size)
    }

    /// Rows looked up by ids, one by one or pooled.
    pub(super) fn of_ids(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        if self.dice.chance(60) { self.looked_up(net, items) } else { self.bags(net, items) }
    }

    /// The rows of some ids, if there are any.
    fn looked_up(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let fits = |i: &&Item| !i.float() && i.size <= self.kind.ids() as f64;
        let ids: Vec<Item> = items.iter().filter(fits).cloned().collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.any(&ids);
        Ok(vec![self.lookup(net, &ids)?])
    }

    /// Returns the number of rows of a table for ids.
    fn height(&mut self, ids: &Item) -> usize {
        match self.kind.high() {
            false => TABLE,
            true if ids.size > TABLE as f64 => HIGH,
            true => *self.dice.pick(&[TABLE, HIGH]),
        }
    }

    /// Whether the gradient of a table is stored as rows.
    fn gradient_of_rows(&mut self) -> bool {
        let rows = self.dice.chance(if self.kind.high() { 85 } else { 50 });
        rows && self.kind.tables != Tables::Dense
    }

    /// A row for each sequence of ids.
    fn bags(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let sequences = ids_of_sequences(items, self.kind.ids());
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let ids = self.any(&sequences);
        let depth = if self.dice.chance(80) { 0 } else { 2 };
        let height = self.height(&ids);
        let table = self.constant(net, &[height, self.width], depth)?;
        let pools = [BagPool::Sum, BagPool::Mean, BagPool::Max];
        let pool = pools[self.dice.below(if self.kind.smooth { 2 } else { 3 })];
        let beside: Vec<Item> = items.iter().filter(|i| i.float() && i.meets(&ids)).cloned().collect();
        let weights = if pool == BagPool::Sum && !beside.is_empty() && self.dice.chance(60) {
            let x = self.any(&beside);
            Some(self.fit_width(net, &x, 1)?)
        } else {
            None
        };
        let padding_id = self.dice.chance(20).then(|| self.dice.below(TABLE) as i64);
        let gradient = if self.gradient_of_rows() { StorageKind::SelectedRows } else { StorageKind::Dense };
        let size = table.size * weights.as_ref().map_or(1.0, |w| w.size);
        let weights = weights.map(|w| w.var);
        let var = net.lookup_bag(
            ids.var,
            table.var,
            LookupBag::default().pool(pool).weights(weights).padding_id(padding_id).gradient(gradient),
        );
        let most = if self.kind.wide { 30.0 } else { 8.0 };
        Ok(vec![self.item(net, var, if pool == BagPool::Sum { most * size } else { size })?])
    }

    /// Something else in the same rows.
    pub(super) fn changed(&mut self, net: &Builder, item: &Item) -> Result<Item> {
        let kind = *self.dice.pick(&CHANGES);
        let made = self.by_signature(net, kind, std::slice::from_ref(item), &[])?;
        match made.into_iter().next() {
            Some(made) => self.small(net, &made, LARGE),
            None => {
                let var = net.scale(item.var, -0.5, 0.25);
                self.item(net, var, 0.5 * item.size + 0.25)
            }
        }
    }

    /// Rows of another width, and dtype, in the rows of `item`.
    pub(super) fn fit(&mut self, net: &Builder, item: &Item, like: &Spec) -> Result<Item> {
        let mut fits = self.fit_width(net, item, like.width())?;
        if fits.spec.dtype != like.dtype {
            fits = self.item(net, net.cast(fits.var, like.dtype), fits.size)?;
        }
        Ok(fits)
    }

    pub(super) fn fit_width(&mut self, net: &Builder, item: &Item, width: usize) -> Result<Item> {
        if item.spec.width() == width && item.spec.dtype == self.kind.dtype {
            return Ok(item.clone());
        }
        let fits = self.weighted_to(net, item, width)?;
        self.small(net, &fits, LARGE)
    }

    /// Numbers of about 1.
    fn positive(&mut self, net: &Builder, item: &Item) -> Result<Item> {
        let var = net.scale(net.sigmoid(item.var), 1.0, 0.5);
        self.item(net, var, 1.5)
    }

    /// Calls an operator by its declaration: `given` fill its first slots, the other slots get items that seem to fit.
    fn by_signature(
        &mut self,
        net: &Builder,
        kind: &str,
        given: &[Item],
        items: &[Item],
    ) -> Result<Vec<Item>> {
        // The operator's effect on numbers, whatever their storage.
        let does = kind.strip_prefix("sparse_").unwrap_or(kind);
        if self.kind.smooth && ROUGH.contains(&does) {
            return Ok(Vec::new());
        }
        let samples = self.registry.samples(kind).unwrap();
        let attributes = self.dice.pick(&samples).attributes.clone();
        // If the first operand of the samples has sequences, this operand mostly has sequences, too.
        let ragged = samples.iter().filter_map(|s| s.operands.first()).any(|o| o.value.lod().is_some());
        let sequences: Vec<Item> = items.iter().filter(|i| !i.spec.lod.is_empty()).cloned().collect();
        let preferred =
            if ragged && !sequences.is_empty() && self.dice.chance(60) { &sequences } else { items };
        let signature = self.registry.parse(kind, &attributes)?.signature();
        let mut bound: Vec<(&str, Vec<Item>)> = Vec::new();
        for (k, slot) in signature.inputs.iter().enumerate() {
            let count = match slot.arity {
                Arity::One => 1,
                Arity::Optional => self.dice.below(2),
                Arity::Many => 1 + self.dice.below(3),
                Arity::Any => self.dice.below(3),
            };
            let mut vars = Vec::new();
            for _ in 0..count {
                let first = bound.first().and_then(|(_, vars)| vars.first()).or(vars.first()).cloned();
                let mut item = match given.get(k) {
                    Some(item) => item.clone(),
                    None if items.is_empty() => return Ok(Vec::new()),
                    None if first.is_none() => self.operand(net, None, preferred)?,
                    None => self.operand(net, first.as_ref(), items)?,
                };
                item = self.small(net, &item, LARGE)?;
                if matches!(
                    (does, k),
                    ("log" | "sqrt" | "reciprocal", 0)
                        | ("div" | "div_no_nan" | "kl_divergence", 1)
                        | ("batch_norm", 4)
                ) {
                    item = self.positive(net, &item)?;
                }
                vars.push(item);
            }
            bound.push((slot.name, vars));
        }
        // Slots whose kernels take no dense variable get a storage that they take.
        if !signature.kernels.is_empty() && does != kind {
            let kernel = *self.dice.pick(signature.kernels);
            for ((_, items), storages) in bound.iter_mut().zip(kernel) {
                for item in items {
                    *item = self.stored(net, item, kernel.contains(&ROWS), storages)?;
                }
            }
        }
        let vars: Vec<Vec<Var>> =
            bound.iter().map(|(_, items)| items.iter().map(|i| i.var).collect()).collect();
        let inputs: Vec<(&str, &[Var])> =
            bound.iter().zip(&vars).map(|((name, _), vars)| (*name, vars.as_slice())).collect();
        let sizes: Vec<f64> = bound.iter().flat_map(|(_, items)| items).map(|i| i.size).collect();
        let made: Vec<Var> = net.append(kind, &inputs, attributes);
        made.into_iter().map(|var| self.item(net, var, grown(does, &sizes))).collect()
    }

    /// The item in one of these storages; a table in its place, if some operand is selected rows.
    fn stored(&mut self, net: &Builder, item: &Item, tables: bool, storages: &[StorageKind]) -> Result<Item> {
        let item = if tables { self.constant(net, &[self.width + 1, self.width], 1)? } else { item.clone() };
        let var = match storages {
            [StorageKind::SelectedRows, ..] => net.to_selected_rows(item.var),
            [StorageKind::Csr, ..] => net.to_csr(item.var),
            _ => return Ok(item),
        };
        self.item(net, var, item.size)
    }

    fn operand(&mut self, net: &Builder, first: Option<&Item>, items: &[Item]) -> Result<Item> {
        let Some(first) = first else {
            return match self.dice.below(20) {
                0..=2 => Ok(self.any(items)),
                3 => self.constant(net, &[self.width], 2),
                4 => self.constant(net, &[self.width, self.width], 2),
                _ => self.floats(net, items),
            };
        };
        match self.dice.below(20) {
            0..=2 if first.float() => self.constant(net, &[first.spec.width()], 2),
            3 if first.float() => self.constant(net, &[], 1),
            4 => Ok(self.any(items)),
            5 if first.float() => {
                let y = self.partner(net, first, items)?;
                self.weighted_to(net, &y, 1)
            }
            6 => Ok(first.clone()),
            _ if first.float() => self.partner(net, first, items),
            _ => Ok(self.any(items)),
        }
    }

    /// A row for each sequence.
    pub(super) fn pooled(&mut self, net: &Builder, y: &Item) -> Result<Item> {
        let pools = [Pool::Sum, Pool::Mean, Pool::Sqrt, Pool::First, Pool::Last, Pool::Max];
        let pool = pools[self.dice.below(if self.kind.smooth { 5 } else { 6 })];
        let pad = if self.dice.chance(30) { 0.5 } else { 0.0 };
        let var = net.sequence_pool_with(y.var, pool, pad);
        let most = if self.kind.wide { 30.0 } else { 8.0 };
        self.item(
            net,
            var,
            if matches!(pool, Pool::Sum | Pool::Sqrt) { most * y.size } else { y.size.max(pad) },
        )
    }

    /// A pool over sequences that come in two pieces.
    fn pieces(&mut self, net: &Builder, kind: &str, items: &[Item]) -> Result<Vec<Item>> {
        let sequences: Vec<Item> =
            items.iter().filter(|i| i.float() && !i.spec.lod.is_empty()).cloned().collect();
        if sequences.is_empty() || self.kind.smooth {
            return Ok(Vec::new());
        }
        let samples = self.registry.samples(kind).unwrap();
        let attributes = self.dice.pick(&samples).attributes.clone();
        let (x, y) = (self.any(&sequences), self.any(&sequences));
        let first: Vec<Var> = net.append(kind, &[("x", &[x.var])], attributes.clone());
        let size = 8.0 * (x.size + y.size);
        if self.dice.chance(30) {
            return first.into_iter().map(|var| self.item(net, var, size)).collect();
        }
        let inputs: [(&str, &[Var]); 3] = [("x", &[y.var]), ("carried", &[first[1]]), ("seen", &[first[2]])];
        let both: Vec<Var> = net.append(kind, &inputs, attributes);
        both.into_iter().map(|var| self.item(net, var, 2.0 * size)).collect()
    }

    pub(super) fn any_pooled(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let sequences: Vec<Item> =
            items.iter().filter(|i| i.float() && !i.spec.lod.is_empty()).cloned().collect();
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let y = self.any(&sequences);
        Ok(vec![self.pooled(net, &y)?])
    }

    /// A row for each sequence, spread over it: additive attention, with luck.
    pub(super) fn attention(&mut self, net: &Builder, items: &[Item]) -> Result<Vec<Item>> {
        let sequences: Vec<Item> =
            items.iter().filter(|i| i.float() && !i.spec.lod.is_empty()).cloned().collect();
        if sequences.is_empty() {
            return Ok(Vec::new());
        }
        let y = self.any(&sequences);
        let y = self.small(net, &y, LARGE)?;
        let pooled = self.pooled(net, &y)?;
        let query = self.partner(net, &pooled, items)?;
        let spread = net.sequence_expand_as(query.var, y.var);
        let met = net.tanh(net.add(spread, y.var));
        let met = self.item(net, met, 1.0)?;
        if self.dice.chance(40) {
            return Ok(vec![met]);
        }
        let column = self.weighted_to(net, &met, 1)?;
        let weights = net.sequence_softmax(column.var);
        let part = net.mul(y.var, weights);
        if self.dice.chance(30) {
            return Ok(vec![self.item(net, part, y.size)?]);
        }
        let var = net.sequence_pool(part, Pool::Sum);
        Ok(vec![self.item(net, var, y.size)?])
    }
}

/// Ids that can be looked up, in sequences.
pub(super) fn ids_of_sequences(items: &[Item], below: usize) -> Vec<Item> {
    let fits =
        |i: &&Item| !i.float() && i.size <= below as f64 && !i.spec.lod.is_empty() && i.spec.width() == 1;
    items.iter().filter(fits).cloned().collect()
}

/// Returns the approximate size of an output's numbers, from the sizes of the inputs. An unlisted operator may do anything.
fn grown(kind: &str, sizes: &[f64]) -> f64 {
    let (x, largest) = (sizes.first().copied().unwrap_or(1.0), sizes.iter().copied().fold(0.0, f64::max));
    match kind {
        "tanh" | "sigmoid" | "softmax" | "softsign" | "sequence_softmax" => 1.0,
        "assign" | "abs" | "relu" | "clamp" | "elu" | "gelu" | "leaky_relu" | "silu" | "concat"
        | "maximum" | "minimum" | "max_features" | "mean_features" | "sequence_reverse"
        | "sequence_expand" | "sequence_expand_as" | "reorder_by_rank" | "sequence_topk_pool" => largest,
        "add" | "sub" => sizes.iter().sum(),
        "mul" => sizes.iter().product(),
        "div" | "div_no_nan" | "dropout" => 2.0 * x,
        "softplus" => x + 1.0,
        "square" => x * x,
        "exp" => x.exp(),
        "log" | "sqrt" => 1.5,
        "reciprocal" => 2.0,
        "equal" | "greater" | "greater_equal" | "less" | "less_equal" | "not_equal" => 1.0,
        _ => f64::INFINITY,
    }
}
