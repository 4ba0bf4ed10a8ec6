//! Random programs: step blocks in step blocks, of every operator of the catalogue, over sequences of any lengths.
//!
//! A program grows call by call. The operands of a call are picked with little thought: a call that the builder refuses is
//! recorded and the program is made again without it, so that nothing here repeats the library's rules of shapes. Each file
//! holds one family: `attempts` the remaking of programs, and programs with a mistake; `operators` a call of one operator,
//! `products` products that can be merged, `constants` operators on parameters, `blocks` step blocks and layers, `feeds` the
//! data, `optimizers` the optimizers.

mod attempts;
mod attention;
mod blocks;
mod classes;
mod constants;
mod dice;
mod feeds;
mod operators;
mod optimizers;
mod products;
mod sequences;
mod sparse;
mod structured;

use std::collections::BTreeMap;

use unpadded::layers::init;
use unpadded::op::{Reach, Spec};
use unpadded::ops::catalogue;
use unpadded::program::{VarId, backward};
use unpadded::{Builder, DType, Error, Program, Registry, Result, Var, Variable};

use crate::thorough::times;
use attempts::Attempts;
pub(crate) use attempts::{case, mistake, model, twins};
pub(crate) use dice::Dice;
use feeds::Size;
pub(crate) use optimizers::optimizer;

/// The contents that a program may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kind {
    pub(crate) dtype: DType,
    /// No kinks, so that differences approximate the gradient.
    pub(crate) smooth: bool,
    /// Enough numbers that loops are split over threads.
    pub(crate) wide: bool,
    pub(crate) tables: Tables,
    /// The operator of half of the calls.
    pub(crate) often: Option<&'static str>,
}

/// Tables that ids are looked up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tables {
    /// Some, with gradients of either storage.
    Some,
    /// Many, of various heights, most of them with gradients of selected rows.
    Rows,
    /// Tables as in `Rows`, with dense gradients.
    Dense,
}

/// Returns the seeds: `UNPADDED_SEEDS=first..end` replaces the suite's seeds, for example by a failed seed.
pub(crate) fn seeds(count: usize) -> std::ops::Range<u64> {
    let asked = std::env::var("UNPADDED_SEEDS").ok();
    let range = asked.as_ref().and_then(|text| text.split_once(".."));
    range.map_or(0..times(count) as u64, |(a, b)| a.parse().unwrap()..b.parse().unwrap())
}

/// The usual programs.
pub(crate) const F32: Kind =
    Kind { dtype: DType::F32, smooth: false, wide: false, tables: Tables::Some, often: None };

impl Kind {
    /// Whether ids are looked up often, in tables that are higher than a batch has ids.
    fn high(self) -> bool {
        self.tables != Tables::Some
    }

    /// Ids are below that many where they can be looked up.
    fn ids(self) -> usize {
        if self.high() { HIGH } else { TABLE }
    }
}

/// A value for each feed.
pub(crate) type Batch = Vec<(VarId, Variable)>;

/// A program, its feeds, and the variables to fetch.
pub(crate) struct Case {
    pub(crate) program: Program,
    /// The program before it was differentiated.
    pub(crate) forward: Program,
    pub(crate) registry: Registry,
    pub(crate) loss: VarId,
    pub(crate) feeds: Batch,
    /// Other batches, of other sizes.
    pub(crate) others: Vec<Batch>,
    /// Variables that the forward part of the root block computes.
    pub(crate) values: Vec<VarId>,
    /// Gradients of parameters and watched feeds.
    pub(crate) gradients: Vec<VarId>,
    /// The refusals of the builder, counted by their words.
    pub(crate) refused: BTreeMap<String, usize>,
    /// Refusals that do not name the line of the call, or that mention internals.
    pub(crate) wrong: Vec<String>,
}

pub(crate) fn fed(batch: &Batch) -> Vec<(VarId, &Variable)> {
    batch.iter().map(|(id, v)| (*id, v)).collect()
}

/// A program with gradients of tables as selected rows, the same with dense ones, and batches to train both on.
pub(crate) struct Twins {
    pub(crate) rows: Program,
    pub(crate) dense: Program,
    pub(crate) registry: Registry,
    pub(crate) loss: VarId,
    pub(crate) batches: Vec<Batch>,
    /// One without sequences.
    pub(crate) nothing: Batch,
}

impl Case {
    /// The case of a program that is not differentiated yet.
    pub(crate) fn of(
        forward: Program,
        registry: Registry,
        loss: VarId,
        feeds: Batch,
        values: Vec<VarId>,
    ) -> Result<Case> {
        let mut program = forward.clone();
        let grads = backward::differentiate(&mut program, &registry, loss)?;
        let vars = feeds.iter().map(|(id, _)| *id).chain(program.trained_parameters());
        let gradients = vars.filter_map(|v| grads.get(&v).copied()).collect();
        let (others, refused, wrong) = (Vec::new(), BTreeMap::new(), Vec::new());
        Ok(Case { program, forward, registry, loss, feeds, others, values, gradients, refused, wrong })
    }

    pub(crate) fn fed(&self) -> Vec<(VarId, &Variable)> {
        fed(&self.feeds)
    }

    /// The case of one sequence of the batch.
    pub(crate) fn alone(&self, i: usize) -> Batch {
        self.feeds.iter().map(|(id, v)| (*id, v.slice_sequences(i..i + 1).unwrap())).collect()
    }
}

/// A variable that operators may take, as the block at hand sees it.
#[derive(Clone)]
struct Item {
    var: Var,
    /// Its id; for a variable that a mistake made unknown, the id without the mistake.
    id: VarId,
    spec: Spec,
    /// The approximate size of its largest number; ids below [`TABLE`] can be looked up.
    size: f64,
    memory: bool,
}

impl Item {
    fn meets(&self, other: &Item) -> bool {
        self.spec.lod == other.spec.lod && self.spec.rows() == other.spec.rows()
    }

    fn float(&self) -> bool {
        matches!(self.spec.dtype, DType::F32 | DType::F64)
    }
}

struct Maker {
    dice: Dice,
    kind: Kind,
    width: usize,
    /// The approximate number of calls of a block: small programs are easier to read when they fail.
    calls: usize,
    registry: Registry,
    /// The operators that a program may call itself, so all but those that update something.
    kinds: Vec<&'static str>,
    parameters: Vec<Item>,
    /// Constants that the open blocks have computed.
    made: Vec<Item>,
    attempts: Attempts,
}

/// Rows of the tables that ids are looked up in, and classes of the labels.
const TABLE: usize = 5;
/// Rows of higher tables, of which most batches name few.
const HIGH: usize = 29;
/// Larger numbers are made small before anything else is done to them.
const LARGE: f64 = 6.0;

/// The operators that a program calls itself: those that update variables are an optimizer's.
pub(crate) fn callable(registry: &Registry) -> Vec<&'static str> {
    let updates = |kind: &&'static str| {
        let sample = registry.samples(kind).unwrap().first().cloned().unwrap_or_default();
        registry
            .parse(kind, &sample.attributes)
            .is_ok_and(|op| op.signature().outputs.iter().any(|s| s.updated))
    };
    // Operators on codes of 8 bits have no gradients; the test of products of codes puts them into these programs. The compiler
    // puts `round_bf16` into programs whose products compute in bf16.
    registry
        .kinds()
        .filter(|kind| !updates(kind) && !kind.starts_with("int8_") && *kind != "round_bf16")
        .collect()
}

/// Those, the ones more often that most blocks refuse.
fn often(registry: &Registry) -> Vec<&'static str> {
    let times = |kind: &&'static str| {
        let sample = registry.samples(kind).unwrap().first().cloned().unwrap_or_default();
        registry.parse(kind, &sample.attributes).map_or(1, |op| match op.facts().reach {
            Reach::Row => 1,
            Reach::Sequence => 2,
            Reach::Batch => 3,
        })
    };
    callable(registry).into_iter().flat_map(|kind| std::iter::repeat_n(kind, times(&kind))).collect()
}

/// Grows the program of a seed; returns the builder, the feeds, the variables to fetch (the loss last), and the dice.
fn grown(seed: u64, kind: Kind, attempts: Attempts) -> Result<(Builder, Maker, feeds::Feeds, Vec<Var>)> {
    let mut dice = Dice::new(seed);
    let net = Builder::new().seed(seed);
    let width = if kind.wide { 48 } else { 1 + dice.below(4) };
    let registry = catalogue();
    let calls = if kind.wide { 1 + dice.below(3) } else { [1, 2, 4, 7, 7][dice.below(5)] };
    let kinds = often(&registry);
    let (parameters, made) = (Vec::new(), Vec::new());
    let mut maker = Maker { dice, kind, width, calls, kinds, registry, parameters, made, attempts };
    let (feeds, mut items) = maker.feeds(&net)?;
    let fed = items.len();
    if kind.high() {
        for _ in 0..1 + maker.dice.below(3) {
            let known = items.clone();
            maker.tried(&net, |maker| maker.of_ids(&net, &known), &mut items);
        }
    }
    let depth = if kind.wide { 1 + maker.dice.below(2) } else { 1 + maker.dice.below(3) };
    for _ in 0..maker.dice.below(2 + calls.min(4)) {
        maker.grow(&net, &mut items, 0);
    }
    for _ in 0..1 + maker.dice.below(calls.min(2)) {
        let known = items.clone();
        maker.tried(&net, |maker| maker.recurrent(&net, &known, depth), &mut items);
        for _ in 0..maker.dice.below(2 + calls.min(4)) {
            maker.grow(&net, &mut items, 0);
        }
    }
    let loss = maker.loss(&net, &items[fed..]);
    let values = items[fed..].iter().chain(&maker.made).map(|i| i.var).chain([loss]).collect();
    Ok((net, maker, feeds, values))
}

/// Returns the words of an error without the parts that differ from program to program.
pub(crate) fn words(error: &Error) -> String {
    let text = error.to_string();
    let text = text.split(" (at ").next().and_then(|text| text.split(", got f").next()).unwrap_or_default();
    let text = text.split(", got i").next().unwrap_or_default();
    let mut quoted = false;
    let mut plain = String::new();
    for c in text.chars() {
        quoted ^= c == '`';
        if !c.is_ascii_digit() && (!quoted || c == '`') {
            plain.push(c);
        }
    }
    plain
}

impl Maker {
    /// Appends an operator or a few; `depth` step blocks may still be opened.
    fn grow(&mut self, net: &Builder, items: &mut Vec<Item>, depth: usize) {
        for _ in 0..5 {
            let known = items.clone();
            if self.tried(net, |maker| maker.call(net, &known, depth), items) {
                break;
            }
        }
        if !self.kind.smooth
            && self.dice.chance(2)
            && let Some(last) = items.last()
        {
            net.stop_gradient(last.var);
        }
    }

    /// Makes an attempt, and returns whether it added anything.
    fn tried(
        &mut self,
        net: &Builder,
        call: impl FnOnce(&mut Maker) -> Result<Vec<Item>>,
        items: &mut Vec<Item>,
    ) -> bool {
        let number = self.attempts.number();
        let Some(new) = self.attempt(net, call) else { return false };
        let some = !new.is_empty();
        for mut item in new {
            if self.parameters.iter().any(|i| i.id == item.id) {
                continue;
            }
            let list = if item.spec.batched() { &mut *items } else { &mut self.made };
            if !list.iter().any(|i| i.id == item.id) {
                self.attempts.made(net, number, &mut item);
                list.push(item);
            }
        }
        some
    }

    fn call(&mut self, net: &Builder, items: &[Item], depth: usize) -> Result<Vec<Item>> {
        if self.kind.high() && self.dice.chance(30) {
            return self.of_ids(net, items);
        }
        match self.dice.below(if depth > 0 { 28 } else { 22 }) {
            0..=7 => self.any_operator(net, items),
            8 | 9 => self.products(net, items),
            10 => self.gates(net, items),
            11 => self.cell(net, items),
            12 => self.gates_side_by_side(net, items),
            13 | 14 => {
                let x = self.floats(net, items)?;
                self.weighted(net, &x).map(|item| vec![item])
            }
            15 | 16 => self.meets_constant(net, items),
            17 => {
                let dims = [vec![self.width; 2], vec![self.width]];
                let dims = self.dice.pick(&dims).clone();
                self.constant(net, &dims, 3).map(|c| vec![c])
            }
            18 => self.attention(net, items),
            19 => self.any_pooled(net, items),
            20 | 21 => self.layer(net, items),
            _ => self.recurrent(net, items, depth),
        }
    }

    /// One of the items, rather new than old.
    fn any(&mut self, items: &[Item]) -> Item {
        let from = if self.dice.chance(50) { items.len() / 2 } else { 0 };
        items[from + self.dice.below(items.len() - from)].clone()
    }

    /// Floats of moderate size: an item, or the rows looked up by ids.
    fn floats(&mut self, net: &Builder, items: &[Item]) -> Result<Item> {
        let memories: Vec<Item> = items.iter().filter(|i| i.memory && i.float()).cloned().collect();
        let item =
            if !memories.is_empty() && self.dice.chance(15) { self.any(&memories) } else { self.any(items) };
        match item.float() {
            true => self.small(net, &item, LARGE),
            false if item.size <= self.kind.ids() as f64 => self.lookup(net, &item),
            false => {
                let var = net.cast(item.var, self.kind.dtype);
                let var = net.tanh(var);
                self.item(net, var, 1.0)
            }
        }
    }

    /// The item itself if its numbers are at most so large, else their tanh.
    fn small(&mut self, net: &Builder, item: &Item, most: f64) -> Result<Item> {
        if item.size <= most || !item.float() {
            return Ok(item.clone());
        }
        let var = net.tanh(item.var);
        self.item(net, var, 1.0)
    }

    /// Floats in the rows of `item`: another item, or something made of it.
    fn partner(&mut self, net: &Builder, item: &Item, items: &[Item]) -> Result<Item> {
        let fits: Vec<Item> = items
            .iter()
            .filter(|i| i.float() && i.meets(item) && i.spec.dtype == item.spec.dtype)
            .cloned()
            .collect();
        if fits.is_empty() || self.dice.chance(10) {
            return self.changed(net, item);
        }
        let same: Vec<Item> = fits.iter().filter(|i| i.spec == item.spec).cloned().collect();
        let found = if same.is_empty() { self.any(&fits) } else { self.any(&same) };
        let found = self.small(net, &found, LARGE)?;
        if found.spec == item.spec || self.dice.chance(5) {
            return Ok(found);
        }
        self.fit(net, &found, &item.spec)
    }

    /// Builds a loss: a sum over some of the computed variables.
    fn loss(&mut self, net: &Builder, items: &[Item]) -> Var {
        let mut sum = None;
        let all: Vec<Item> = items.iter().chain(&self.made).cloned().collect();
        for item in all {
            if sum.is_some() && self.dice.chance(if self.kind.high() { 15 } else { 40 }) {
                continue;
            }
            if let Some(Some(part)) = self.attempt(net, |maker| maker.part(net, &item)) {
                sum = Some(match sum {
                    None => part,
                    Some(sum) => net.add(sum, part),
                });
            }
        }
        // Something that a gradient reaches.
        let some = net.parameter("some", self.kind.dtype, &[2], init::uniform(-0.8, 0.8));
        let some = net.sum(net.square(some));
        sum.map_or(some, |sum| net.add(sum, some))
    }

    fn part(&mut self, net: &Builder, item: &Item) -> Result<Option<Var>> {
        if !item.float() {
            return Ok(None);
        }
        let small = self.small(net, item, LARGE)?;
        let small = if self.dice.chance(70) { self.weighted_to(net, &small, 1)? } else { small };
        let var = net.sum(net.tanh(small.var));
        Ok(Some(if item.spec.dtype == self.kind.dtype { var } else { net.cast(var, self.kind.dtype) }))
    }
}
