//! The page of operators (`src/ops/operators.md`) lists each operator of the catalogue once, with its nearest names elsewhere;
//! its columns on LoD, empty sequences and storages agree with the declarations and the behaviour of the operators.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use unpadded::op::{Attributes, CheckCase, LodEffect, Op, Operand, Slot, Spec};
use unpadded::tensor::StorageKind;
use unpadded::{Builder, DType, Lod, Variable, layers::init, ops};

/// The path of the page in the project.
const PAGE: &str = "src/ops/operators.md";
/// The cells of a row: operator, formula, what is computed, and three names.
const CELLS: usize = 8;
/// The text for most operators.
const STAYS: &str = "stays empty";

#[test]
fn the_page_is_what_the_operators_declare_and_do() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = fs::read_to_string(&path).unwrap();
    let mut seen = BTreeMap::new();
    let lines: Vec<String> = page.lines().map(|line| computed(line, &mut seen)).collect();
    let catalogue = ops::catalogue();
    let wrong: Vec<&str> = catalogue.kinds().filter(|kind| seen.get(*kind) != Some(&1)).collect();
    assert!(wrong.is_empty(), "not on the page, or more than once: {wrong:?}");
    assert_eq!(seen.len(), catalogue.kinds().count(), "the page has operators that the catalogue has not");

    let written = lines.join("\n") + "\n";
    if std::env::var_os("UNPADDED_WRITE").is_some() {
        fs::write(&path, &written).unwrap();
        return;
    }
    for (number, (stands, line)) in page.lines().zip(&lines).enumerate() {
        let hint = "`UNPADDED_WRITE=1 cargo test --test it operator_page` writes it anew";
        assert_eq!(stands, line, "{PAGE}:{} is stale: {hint}", number + 1);
    }
}

/// Every declaration in `src/ops` is in the list of its family: an operator that is declared, but not registered, fails.
#[test]
fn every_declared_operator_is_registered() {
    let catalogue = ops::catalogue();
    let sources = sources_of_operators();
    let lines = sources.iter().flat_map(|source| source.lines());
    let declared = lines.filter_map(|line| line.trim_start().strip_prefix("pub(in crate::ops) struct "));
    let kinds = declared.filter_map(|rest| rest.split_once(" = ")?.1.split_once(" {")).map(|(kind, _)| kind);
    let kinds: Vec<&str> = kinds.filter(|kind| !kind.starts_with('$')).collect();
    let missing: Vec<&&str> = kinds.iter().filter(|kind| catalogue.declaration(kind).is_none()).collect();
    assert!(
        kinds.len() > 80 && missing.is_empty(),
        "{} declared, not in `operators!`: {missing:?}",
        kinds.len()
    );
}

/// The sources of all operators.
pub(super) fn sources_of_operators() -> Vec<String> {
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/ops")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "rs") => {
                    sources.push(fs::read_to_string(path).unwrap());
                }
                false => {}
            }
        }
    }
    sources
}

/// Returns the expected line of the page; in a row of a table, some cells are computed.
fn computed(line: &str, seen: &mut BTreeMap<String, usize>) -> String {
    let Some(rest) = line.strip_prefix("| [`") else { return line.to_owned() };
    let kind = rest.split('`').next().unwrap();
    *seen.entry(kind.to_owned()).or_default() += 1;
    let inner = line.trim_start_matches("| ").trim_end_matches(" |");
    let mut cells: Vec<String> = inner.split(" | ").map(str::to_owned).collect();
    assert_eq!(cells.len(), CELLS, "{line}");
    assert!(
        cells.iter().all(|cell| !cell.is_empty()),
        "{kind} needs a formula, and its names elsewhere or `–`"
    );
    let registry = ops::catalogue();
    let samples = registry.samples(kind).unwrap();
    let cases: Vec<Case> = samples.iter().map(|sample| Case::of(kind, sample)).collect();
    cells[2] = each(cases.iter().filter_map(|case| case.lod.clone()));
    let of_empty: Vec<&String> = cases.iter().filter_map(|case| case.of_empty.as_ref()).collect();
    let usual = of_empty.iter().find(|text| text.as_str() == STAYS).or(of_empty.first());
    cells[3] = usual.map_or_else(|| "–".to_owned(), |text| text.to_string());
    cells[4] = storages(kind, &cases);
    format!("| {} |", cells.join(" | "))
}

/// Joins the distinct texts, in their order; a dash if there are none.
fn each(found: impl Iterator<Item = String>) -> String {
    let mut different: Vec<String> = Vec::new();
    for one in found {
        if !different.contains(&one) {
            different.push(one);
        }
    }
    if different.is_empty() { "–".to_owned() } else { different.join(", or ") }
}

/// An operator's results on one of its samples.
struct Case {
    lod: Option<String>,
    of_empty: Option<String>,
    /// The inputs whose gradients are not dense, with their storages.
    gradients: Vec<String>,
}

impl Case {
    fn of(kind: &str, sample: &CheckCase) -> Self {
        let registry = ops::catalogue();
        let op = registry.parse(kind, &sample.attributes).unwrap();
        let batched = sample.operands.iter().any(|operand| operand.batched);
        let inputs = registry.declaration(kind).unwrap().signature.inputs;
        let named = |slot: usize| format!("`{}`", inputs[slot].name);
        let effect = op.facts().lod;
        let lod = match effect {
            LodEffect::Keeps(slot) => format!("LoD of {}", named(slot)),
            LodEffect::DropsLevel(slot) => format!("LoD of {} without its last level", named(slot)),
            LodEffect::Replaces => "new lengths, by the lengths".to_owned(),
            LodEffect::FromData(slots) => {
                let slots: Vec<String> = slots.iter().map(|&slot| named(slot)).collect();
                format!("new lengths, by the numbers of {}", slots.join(" and "))
            }
            LodEffect::Drops => "none".to_owned(),
        };
        let deciding = match effect {
            LodEffect::Keeps(slot) | LodEffect::DropsLevel(slot) => Some(inputs[slot].name),
            _ => None,
        };
        let of_empty = match effect {
            LodEffect::Drops => batched.then(|| "adds nothing".to_owned()),
            _ => of_empty(&op, sample, deciding),
        };
        Case { lod: batched.then_some(lod), of_empty, gradients: gradients(&*op, sample, inputs) }
    }
}

/// Describes the result for an empty sequence of the last level, if the sample has one beside others.
fn of_empty(op: &Arc<dyn Op>, sample: &CheckCase, deciding: Option<&str>) -> Option<String> {
    let lods = sample.operands.iter().filter(|operand| deciding.is_none_or(|slot| operand.slot == slot));
    let lod = lods.filter(|operand| operand.batched).find_map(|operand| operand.value.lod())?;
    let offsets = lod.offsets();
    let empty = offsets.windows(2).position(|pair| pair[0] == pair[1]).filter(|_| lod.rows() > 0)?;
    let sequences = offsets.len() - 1;
    let outputs = Arc::clone(op).call(&sample.operands).ok()?;
    let out = outputs.first()?;
    let (level, rows) =
        (lod.levels(), |new: &Lod, from: usize, to: usize| new.offsets()[to] - new.offsets()[from]);
    let rows = match out.lod() {
        Some(new) if new.levels() == level && new.offsets().len() == offsets.len() => {
            rows(new, empty, empty + 1)
        }
        // A level more: the pieces of the sequence.
        Some(new) if new.levels() == level + 1 => {
            let pieces = new.upper()?.offsets();
            rows(new, pieces[empty], pieces[empty + 1])
        }
        other if out.rows() == sequences && other.map_or(1, |lod| lod.levels() + 1) == level => {
            return Some(row_of(out, empty, &sample.attributes));
        }
        _ => return None,
    };
    Some(if rows == 0 { STAYS.to_owned() } else { format!("{rows} rows") })
}

/// Describes the contents of a row.
fn row_of(out: &Variable, row: usize, attributes: &Attributes) -> String {
    let Ok(dense) = out.storage().as_dense() else { return "a row".to_owned() };
    let numbers = dense.cast(DType::F64);
    let numbers = numbers.as_slice::<f64>().unwrap();
    let width = numbers.len() / out.rows();
    match &numbers[row * width..][..width] {
        [first, rest @ ..] if rest.iter().all(|x| x == first) => match attributes.float("pad_value") {
            Ok(padding) if padding == *first => "a row of `pad_value`".to_owned(),
            _ => format!("a row of {}", first + 0.0),
        },
        _ => "a row".to_owned(),
    }
}

/// The gradients that are not dense.
fn gradients(op: &dyn Op, sample: &CheckCase, slots: &[Slot]) -> Vec<String> {
    let dense = |operand: &Operand| operand.value.storage().as_dense().is_ok();
    if !sample.operands.iter().all(dense) {
        return Vec::new();
    }
    let net = Builder::new();
    let spec = |operand: &Operand| -> Spec {
        let (dtype, shape) = (operand.value.dtype(), operand.value.shape());
        let name = format!("operand_{}", net.program().map_or(0, |program| program.vars().len()));
        let var = match operand.batched {
            true => net.feed(&name, dtype, &shape[1..], operand.value.lod().map_or(0, |lod| lod.levels())),
            false => net.parameter(&name, dtype, shape, init::zeros()),
        };
        net.spec(var).unwrap()
    };
    let gradients_of =
        |slot: &Slot| sample.operands.iter().filter(|o| o.slot == slot.name).map(spec).collect::<Vec<Spec>>();
    let specs: Vec<Vec<Spec>> = slots.iter().map(gradients_of).collect();
    let stored = |(number, slot): (usize, &Slot)| {
        let storage = op.gradient(number, &specs).storage;
        let sparse = storage != StorageKind::Dense && slot.gradient && !specs[number].is_empty();
        sparse.then(|| format!("gradient of `{}`: {storage}", slot.name))
    };
    slots.iter().enumerate().filter_map(stored).collect()
}

/// Lists the storages that kernels accept, and the storages of gradients.
fn storages(kind: &str, cases: &[Case]) -> String {
    let signature = ops::catalogue().declaration(kind).unwrap().signature;
    let kernels = signature.kernels.iter().map(|kernel| {
        let slot =
            |kinds: &&[StorageKind]| kinds.iter().map(StorageKind::to_string).collect::<Vec<_>>().join("/");
        kernel.iter().map(slot).collect::<Vec<_>>().join(" ∘ ")
    });
    let mut all: Vec<String> = kernels.collect();
    if all.is_empty() {
        all.push("dense".to_owned());
    }
    let mut found: Vec<String> = Vec::new();
    for one in all.into_iter().chain(cases.iter().flat_map(|case| case.gradients.clone())) {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found.join("; ")
}
