//! Detects PyTorch modules among the layers of a program, by the operators that read the layers' parameters.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::operator::{BlockId, Literal, VarId};
use crate::program::{Block, OpDesc, Program, RECURRENT, Role, VarDesc};

/// The PyTorch module to which a parameter belongs, and the parameter's tensors in the module. The module is named
/// after the program's layer.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct TorchModule {
    pub(super) module: String,
    pub(super) tensors: Vec<String>,
    pub(super) form: Form,
}

/// The relation between a parameter and its PyTorch tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// One tensor, which is equal to the parameter.
    Same,
    /// One tensor, which is the transpose of the parameter.
    Turned,
    /// Two tensors, whose sum is the parameter.
    Sum,
}

/// Returns the PyTorch module of each parameter that belongs to a module, by the parameter's name. If `begins` returns
/// true for a layer, the layer begins a new module.
pub(super) fn places(program: &Program, begins: impl Fn(&str) -> bool) -> BTreeMap<String, TorchModule> {
    let mut found = BTreeMap::new();
    for (_, op) in forward(program) {
        rows(program, op, &mut found);
    }
    recurrent(program, begins, &mut found);
    found
}

fn forward(program: &Program) -> impl Iterator<Item = (BlockId, &OpDesc)> {
    let ops = |(id, block): (BlockId, &'_ Block)| (id, block.ops.len());
    let blocks: Vec<_> = program.blocks().map(ops).collect();
    blocks
        .into_iter()
        .flat_map(move |(id, _)| program.block(id).ops.iter().map(move |op| (id, op)))
        .filter(|(_, op)| op.role == Role::Forward)
}

/// Divides the name of a parameter into the name of its layer and the last part.
fn split_name(name: &str) -> (&str, &str) {
    name.rsplit_once('.').unwrap_or(("", name))
}

/// Adds the parameters of a layer that is not recurrent, such as a linear layer; `op` is the operator of the layer.
fn rows(program: &Program, op: &OpDesc, found: &mut BTreeMap<String, TorchModule>) {
    let slots: &[(&str, &str, &str, Form)] = match op.kind.as_str() {
        "linear" if op.attributes.get("transposed") == Some(&Literal::Bool(true)) => {
            &[("bias", "bias", "bias", Form::Same)]
        }
        "linear" => &[("weight", "weight", "weight", Form::Turned), ("bias", "bias", "bias", Form::Same)],
        "embedding" => &[("weight", "weight", "weight", Form::Same)],
        "layer_norm" => &[("gain", "gain", "weight", Form::Same), ("bias", "bias", "bias", Form::Same)],
        _ => return,
    };
    for &(slot, ours, theirs, form) in slots {
        for &id in op.input(slot) {
            let desc = program.var(id);
            let (layer, part) = split_name(&desc.name);
            if part != ours || !desc.persistable {
                continue;
            }
            let module_of = TorchModule { module: layer.to_owned(), tensors: vec![theirs.to_owned()], form };
            // A table that is looked up is an embedding, even if a linear layer uses it, too.
            if form == Form::Same || !found.contains_key(&desc.name) {
                found.insert(desc.name.clone(), module_of);
            }
        }
    }
}

/// The kinds of recurrent cells that PyTorch has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The properties that all layers of a module share: the cell, the shape of the recurrent weight, and the names of the layer's
/// parameters.
#[derive(Debug, Clone, PartialEq)]
struct Kind<'p> {
    cell: Cell,
    state: Vec<Option<usize>>,
    parts: BTreeSet<&'p str>,
}

/// A recurrent layer of the program, at its first call.
struct Layer<'p> {
    name: &'p str,
    kind: Kind<'p>,
    block: BlockId,
    input: VarId,
    output: Option<VarId>,
    reverse: bool,
}

/// A level of a module: one layer, or two layers that run in opposite directions over one input.
struct Level<'p> {
    module: &'p str,
    number: usize,
    kind: Kind<'p>,
    reverse: bool,
    /// The outputs of the level's layers; the forward direction comes first.
    outputs: Vec<Option<VarId>>,
    /// Whether the module already has a level above this level.
    covered: bool,
}

fn recurrent(program: &Program, begins: impl Fn(&str) -> bool, found: &mut BTreeMap<String, TorchModule>) {
    let writers: HashMap<VarId, &OpDesc> =
        forward(program).flat_map(|(_, op)| op.writes().map(move |id| (id, op))).collect();
    let (mut seen, mut layers) = (BTreeSet::new(), Vec::new());
    for (block, op) in forward(program) {
        if let Some(layer) = layer(program, block, op).filter(|layer| seen.insert(layer.name)) {
            layers.push(layer);
        }
    }
    let mut levels: Vec<Level<'_>> = Vec::new();
    let mut rest = &layers[..];
    while let Some((first, behind)) = rest.split_first() {
        let back = behind.first().filter(|back| {
            let same = (back.block, back.input, &back.kind) == (first.block, first.input, &first.kind);
            same && back.reverse && !first.reverse && !begins(back.name)
        });
        rest = if back.is_some() { behind.get(1..).unwrap_or_default() } else { behind };
        let outputs: Vec<Option<VarId>> =
            std::iter::once(first).chain(back).map(|layer| layer.output).collect();
        let read: Vec<Option<VarId>> = source(first.input, &writers).into_iter().map(Some).collect();
        let below = levels.iter_mut().find(|below| {
            let same = (&below.kind, below.reverse) == (&first.kind, first.reverse);
            same && !below.covered && below.outputs.len() == outputs.len() && below.outputs == read
        });
        let (module, number) = match below.filter(|_| !begins(first.name)) {
            Some(below) => {
                below.covered = true;
                (below.module, below.number + 1)
            }
            None => (first.name, 0),
        };
        for (layer, suffix) in std::iter::once(first).chain(back).zip(["", "_reverse"]) {
            let named = |tensor: &str| format!("{tensor}_l{number}{suffix}");
            for &part in &layer.kind.parts {
                let (tensors, form) = match part {
                    "bias" => (vec![named("bias_ih"), named("bias_hh")], Form::Sum),
                    "bias_ih" | "bias_hh" => (vec![named(part)], Form::Same),
                    _ => (vec![named(part)], Form::Turned),
                };
                let module_of = TorchModule { module: module.to_owned(), tensors, form };
                found.insert(format!("{}.{part}", layer.name), module_of);
            }
        }
        let (kind, reverse) = (first.kind.clone(), first.reverse);
        levels.push(Level { module, number, kind, reverse, outputs, covered: false });
    }
}

/// Returns the variables from which a variable comes: dropout is skipped, and a concatenation is replaced by the variables that
/// it concatenates.
fn source(mut id: VarId, writers: &HashMap<VarId, &OpDesc>) -> Vec<VarId> {
    while let Some(op) = writers.get(&id) {
        match (op.kind.as_str(), op.input("x")) {
            ("dropout" | "variational_dropout", &[x]) => id = x,
            ("concat", _) => return op.reads().collect(),
            _ => break,
        }
    }
    vec![id]
}

/// Returns the recurrent layer that an operator runs; `None` if PyTorch has no such layer.
fn layer<'p>(program: &'p Program, block: BlockId, op: &'p OpDesc) -> Option<Layer<'p>> {
    let step = op.step.as_ref().filter(|step| op.kind == RECURRENT && step.gradient.is_none())?;
    let ops = &program.block(step.block).ops;
    let read: BTreeMap<&str, &VarDesc> = ops
        .iter()
        .flat_map(OpDesc::reads)
        .map(|id| program.var(id))
        .filter(|desc| desc.persistable)
        .map(|desc| (desc.name.as_str(), desc))
        .collect();
    let mut names = read.keys().filter_map(|name| name.strip_suffix(".weight_ih"));
    let (name, other) = (names.next()?, names.next());
    // A step block that reads parameters of several layers is a cell that the user wrote.
    let parts: BTreeSet<&str> =
        read.keys().filter_map(|key| key.strip_prefix(name)?.strip_prefix('.')).collect();
    if other.is_some() || !parts.contains("weight_hh") {
        return None;
    }
    let state = dims(read.get(format!("{name}.weight_hh").as_str())?);
    let has = |kind: &str| ops.iter().find(|op| op.kind == kind);
    let flips = |op: &OpDesc| op.attributes.get("flip") == Some(&Literal::Bool(true));
    let cell = match (has("lstm_cell"), has("gru_cell")) {
        (Some(_), _) => Cell::Lstm,
        (_, Some(op)) if !flips(op) => Cell::Gru,
        _ if state.first() != state.get(1) => return None,
        _ if has("tanh").is_some() => Cell::Tanh,
        _ if has("relu").is_some() => Cell::Relu,
        _ => return None,
    };
    let known = ["weight_ih", "weight_hh", "weight_hr", "bias", "bias_ih", "bias_hh"];
    if !parts.iter().all(|part| known.contains(part)) {
        return None;
    }
    let input = step.inputs.first()?.outer;
    let output = step.outputs.first().map(|pair| pair.outer);
    let kind = Kind { cell, state, parts };
    Some(Layer { name, kind, block, input, output, reverse: step.reverse })
}

/// Returns the extents of a parameter's shape.
fn dims(desc: &VarDesc) -> Vec<Option<usize>> {
    desc.spec().map(|spec| spec.shape.iter().map(|extent| extent.known()).collect()).unwrap_or_default()
}
