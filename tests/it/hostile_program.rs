//! Programs of damaged or hostile files: a program that loads prints, and it compiles and runs, or it is refused.

use std::panic::{AssertUnwindSafe, catch_unwind};

use unpadded::checkpoint::{Checkpoint, MetricDesc};
use unpadded::executor::{Executor, Run, Scope};
use unpadded::op::{Extent, Spec};
use unpadded::optimizer::{Adam, Optimizer};
use unpadded::predict::Predictor;
use unpadded::program::{VarId, VarKind, VarRole};
use unpadded::{Builder, DType, ErrorKind, Program, Result, Variable, ops};

use crate::damage::{Sections, fields, file, item, items, record, sections};
use crate::models::{LOOP_IN_LOOP, Model, Random, STATIC_ROWS, TRAINED, TRAINED_NESTED, batch};
use crate::store::says;
use crate::thorough::times;
use crate::trained;
use crate::trainer::Made;

/// A classifier, a loop in a loop, static inputs, and a classifier over two levels.
const MODELS: [Model; 4] = [TRAINED, LOOP_IN_LOOP, STATIC_ROWS, TRAINED_NESTED];
/// How many changed programs the suite tries of each model.
const ROUNDS: usize = 800;

/// A program that trains, and its loss.
fn program(model: &Model) -> (Program, VarId) {
    let net = Builder::new().seed(7);
    let made = (model.build)(&net);
    let mut program = net.finish().unwrap();
    Adam::new(1e-3).lazy().minimize(&mut program, &ops::catalogue(), made.loss.id()).unwrap();
    (program, made.loss.id())
}

/// Does everything that a user does with a loaded program: its loss, all variables of its root block, and some other variable are
/// computed and fetched. Returns whether this succeeded for the loss, and for all.
fn use_up(
    program: &Program,
    loss: VarId,
    model: &Model,
    values: &[Variable],
    random: &mut Random,
) -> [bool; 2] {
    let _ = (program.to_string(), program.dot());
    // A well-formed program with large variables needs memory for them.
    let count = |spec: &Spec| spec.shape.iter().filter_map(|e| e.known()).fold(1usize, usize::saturating_mul);
    if program.vars().filter_map(|(_, v)| v.spec()).any(|spec| count(spec) > 1 << 20) {
        return [false; 2];
    }
    let feed = |(_, v): &(VarId, &unpadded::program::VarDesc)| v.role == VarRole::Feed;
    let feeds = program.vars().filter(feed).map(|(id, _)| id);
    let feeds: Vec<(VarId, &Variable)> = feeds.zip(values).collect();
    let run = |wanted: &[VarId]| {
        let Ok(mut exe) = Executor::new(program, &ops::catalogue(), wanted, 2) else { return false };
        let Ok(mut scope) = Scope::of(program) else { return false };
        let _ = exe.counts(&feeds);
        let ran = exe.run(&mut scope, &Run::train(&feeds, 0)).is_ok();
        let fetched = wanted.iter().filter(|&&id| (exe.scalar(id).is_ok(), exe.fetch(id).is_ok()).1);
        ran && fetched.count() == wanted.len()
    };
    let root = program.vars().filter(|(_, v)| v.block.0 == 0 && !v.persistable && v.spec().is_some());
    let root: Vec<VarId> = root.map(|(id, _)| id).collect();
    run(&[VarId(random.below(program.vars().len()) as u32)]);
    [run(&[loss]) && feeds.len() == model.feeds.len(), run(&root)]
}

/// Changes one or two places of a program's bytes, most often to numbers that occur elsewhere.
pub(crate) fn damaged(mut body: Vec<u8>, random: &mut Random) -> Vec<u8> {
    for _ in 0..1 + random.below(2) {
        let at = random.below(body.len() - 8);
        match random.below(4) {
            0 => body[at] = random.below(256) as u8,
            1 => body[at] = random.below(12) as u8,
            2 => body[at] = body[at].wrapping_add(1),
            _ => {
                let from = random.below(body.len() - 8);
                body.copy_within(from..from + 4, at);
            }
        }
    }
    body
}

/// Changes bytes and updates the checksum, most often to numbers that occur elsewhere in the file.
fn change(model: &Model) {
    let (program, loss) = program(model);
    let body = program.to_section().unwrap();
    let values = batch(model, &[vec![2, 3], vec![], vec![1]], 3);
    let (mut random, mut loaded, mut ran, mut bad) = (Random(5), 0, [0; 2], Vec::new());
    assert_eq!(use_up(&program, loss, model, &values, &mut random), [true; 2]);
    let rounds = times(ROUNDS);
    for round in 0..rounds {
        let Ok(program) = Program::from_section(&damaged(body.clone(), &mut random)) else { continue };
        loaded += 1;
        let used = AssertUnwindSafe(|| use_up(&program, loss, model, &values, &mut random));
        match catch_unwind(used) {
            Ok(fine) => (0..2).for_each(|i| ran[i] += usize::from(fine[i])),
            Err(_) => bad.push(round),
        }
    }
    println!("{}: {loaded} loaded, {ran:?} ran, {} panicked", model.name, bad.len());
    assert!(bad.is_empty(), "{}: rounds {bad:?}", model.name);
    assert!(loaded > rounds / 20 && ran.iter().all(|&n| n > 0), "{loaded} {ran:?}");
}

#[test]
fn a_changed_program_never_panics() {
    MODELS.iter().for_each(change);
}

/// An operator's outputs belong to its own block. A gradient may belong to an outer block: the block of its variable's gradients.
#[test]
fn an_operator_writes_in_its_own_block() {
    let (whole, _) = program(&LOOP_IN_LOOP);
    let step = unpadded::program::BlockId(1);
    let written: Vec<VarId> = whole.root().ops.iter().flat_map(|op| op.writes()).collect();
    let mut refused = 0;
    for id in written {
        let desc = whole.var(id);
        if desc.persistable {
            continue;
        }
        let mut other = whole.clone();
        other.var_mut(id).block = step;
        let Err(error) = other.validate() else { panic!("`{}` in a step block", desc.name) };
        assert!(matches!(error.kind(), ErrorKind::Program), "{error}");
        refused += usize::from(error.to_string().contains("expected to write variables of its own block"));
    }
    assert!(refused > 5, "{refused}");
    // A persistent variable has the same rows in every batch.
    let (mut rows, _) = program(&TRAINED);
    let weight = rows.find("linear_0.weight").unwrap();
    rows.var_mut(weight).kind =
        VarKind::Tensor(Spec::rows_of(DType::F32, Extent::Batch, &[2], Default::default()).unwrap());
    says(rows.validate(), &["shape of a persistent variable: expected a fixed shape"]);
}

/// A shape that no rule gives would be a kernel's panic.
#[test]
fn a_shape_that_is_not_the_operators_is_refused() {
    let (whole, loss) = program(&TRAINED);
    let refusal = |program: &Program| Executor::new(program, &ops::catalogue(), &[loss], 1).err();
    assert!(refusal(&whole).is_none());
    let computed = |(_, v): &(VarId, &unpadded::program::VarDesc)| v.role == VarRole::Computed;
    for (id, desc) in whole.vars().filter(computed) {
        let Some(spec) = desc.spec() else { continue };
        let mut other = whole.clone();
        other.var_mut(id).kind = VarKind::Tensor(spec.with_width(spec.width() + 1));
        let error = refusal(&other).unwrap_or_else(|| panic!("`{}` of any width", desc.name));
        assert!(matches!(error.kind(), ErrorKind::Program | ErrorKind::Mismatch), "{error}");
    }
}

#[test]
fn sizes_and_depths_beyond_all_reason_are_refused() {
    let mut deep = Program::new();
    let mut block = unpadded::program::BlockId(0);
    for _ in 0..10_000 {
        block = deep.add_block(block);
    }
    says(deep.validate(), &["expected at most 64 nested blocks"]);

    let (mut wide, _) = program(&TRAINED);
    let weight = wide.find("linear_0.weight").unwrap();
    wide.var_mut(weight).kind = VarKind::Tensor(Spec::fixed(DType::F32, &[usize::MAX / 2, 0, 5]).unwrap());
    says(wide.validate(), &["a number of elements that memory can hold"]);

    let (mut levels, _) = program(&TRAINED);
    for _ in 0..10_000 {
        levels.add_level();
    }
    assert!(levels.validate().unwrap_err().to_string().contains("number of levels"));
}

/// The fields of an operator and of its step block that are one record, and no list.
const STEP: u8 = 6;
const GRADIENT: u8 = 9;
/// The lists of an operator, each by the numbers of the fields that lead to it: slots and their variables, and what passes into a
/// step block and out of it, forward and backward. Before them: the operators themselves.
const LISTS: [&[u8]; 13] = [
    &[],
    &[3],
    &[4],
    &[3, 2],
    &[4, 2],
    &[STEP, 4],
    &[STEP, 5],
    &[STEP, 6],
    &[STEP, 7],
    &[STEP, GRADIENT, 2],
    &[STEP, GRADIENT, 3],
    &[STEP, GRADIENT, 4],
    &[STEP, GRADIENT, 6],
];

/// Returns a record in all versions in which a list lacks an item, or has two neighbours in the other order.
fn changed_lists(bytes: &[u8], path: &[u8]) -> Vec<Vec<u8>> {
    let all = fields(bytes);
    let Some(at) = all.iter().position(|(number, _)| *number == path[0]) else { return Vec::new() };
    let with = |value: Vec<u8>| {
        let mut other = all.clone();
        other[at].1 = value;
        record(&other)
    };
    if matches!(path, [STEP | GRADIENT, _, ..]) {
        return changed_lists(&all[at].1, &path[1..]).into_iter().map(with).collect();
    }
    let (parts, mut found) = (items(&all[at].1), Vec::new());
    let mut add = |parts: Vec<Vec<u8>>| {
        found.push(with(parts.iter().map(|part| item(part)).collect::<Vec<_>>().concat()));
    };
    for i in 0..parts.len() {
        let mut other = parts.clone();
        if path.len() > 1 {
            for inner in changed_lists(&parts[i], &path[1..]) {
                other[i] = inner;
                add(other.clone());
            }
            continue;
        }
        drop(other.remove(i));
        add(other);
        if i + 1 < parts.len() {
            let mut other = parts.clone();
            other.swap(i, i + 1);
            add(other);
        }
    }
    found
}

/// Loads a checkpoint, predicts every output, scores, and reduces the checkpoint; returns whether all of this succeeded.
fn load_and_use(bytes: &[u8], data: &Made) -> Result<()> {
    let registry = ops::catalogue();
    let checkpoint = Checkpoint::from_bytes(bytes)?;
    let reduced = checkpoint.clone().for_inference(&registry).map(drop);
    let (settled, small) = (checkpoint.clone().settled(&registry), checkpoint.clone().quantize(&registry));
    for checkpoint in [small, settled.clone()].into_iter().flatten() {
        let _ = Predictor::new(checkpoint, &registry);
    }
    let outputs: Vec<String> = checkpoint.outputs.keys().cloned().collect();
    let predictor = Predictor::new(checkpoint, &registry)?.threads(1);
    let scores = predictor.evaluate(data).map(drop);
    let feeds = data.0[0].iter().filter(|(name, _)| predictor.feeds().contains(&name.as_str()));
    let feeds: Vec<(&str, &Variable)> = feeds.map(|(name, value)| (name.as_str(), value)).collect();
    for output in &outputs {
        let rows = predictor.run(&feeds, &[output])?[0].rows();
        assert!(predictor.memory(&feeds, &[output])?.total() > 0 && rows > 0);
    }
    settled.map(drop).and(reduced).and(scores)
}

/// A checkpoint of an untrained model that names all of its outputs, and its batch.
fn untrained(model: &Model) -> (Checkpoint, Made) {
    let (whole, loss) = program(model);
    let net = Builder::new().seed(7);
    let outputs = (model.build)(&net).outputs;
    let outputs = outputs.into_iter().enumerate().map(|(i, var)| (format!("output {i}"), net.name_of(var)));
    let mut checkpoint = Checkpoint::of(whole, outputs.collect::<std::collections::BTreeMap<_, _>>());
    let mut metric = MetricDesc::default();
    (metric.name, metric.kind) = ("loss".to_owned(), "loss".to_owned());
    metric.variables = vec![checkpoint.program.var(loss).name.clone()];
    checkpoint.metrics = vec![metric];
    let mut scope = Scope::of(&checkpoint.program).unwrap();
    for (_, kept) in checkpoint.program.vars().filter(|(_, v)| v.persistable) {
        checkpoint.tensors.insert(kept.name.clone(), scope.value(&kept.name).unwrap());
    }
    let values = batch(model, &[vec![2, 3], vec![], vec![1]], 3);
    (checkpoint, Made(vec![model.feeds.iter().map(|feed| feed.name().to_owned()).zip(values).collect()]))
}

/// A file whose checksums are right, and whose program lacks a part, is refused, or it is a model that works.
fn each_part_is_needed(checkpoint: &Checkpoint, data: &Made) {
    let whole = sections(&checkpoint.to_bytes().unwrap());
    load_and_use(&file(&whole), data).unwrap();
    let (mut refused, mut fine, mut bad) = (0, 0, Vec::new());
    for list in LISTS {
        for (number, body) in changed_lists(&whole[0].1, &[&[2, 2], list].concat()).into_iter().enumerate() {
            let mut other: Sections = whole.clone();
            other[0].1 = body;
            let bytes = file(&other);
            match catch_unwind(|| load_and_use(&bytes, data)) {
                Ok(Ok(())) => fine += 1,
                Ok(Err(_)) => refused += 1,
                Err(_) => bad.push((list, number)),
            }
        }
    }
    println!("{refused} refused, {fine} worked");
    assert!(bad.is_empty(), "{bad:?}");
    assert!(refused > 20 && fine > 0, "{refused} refused, {fine} worked");
}

#[test]
fn a_file_whose_program_lacks_a_part_never_panics() {
    for model in MODELS {
        let (checkpoint, data) = untrained(&model);
        each_part_is_needed(&checkpoint.for_inference(&ops::catalogue()).unwrap(), &data);
    }
}

#[test]
fn a_training_whose_program_lacks_a_part_never_panics() {
    let data = Made(vec![trained::batch().map(|(name, value)| (name.to_owned(), value)).into()]);
    each_part_is_needed(&trained::checkpoint(4), &data);
    let (checkpoint, data) = untrained(&STATIC_ROWS);
    each_part_is_needed(&checkpoint, &data);
}
