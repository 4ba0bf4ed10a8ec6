//! The command `unpadded inspect`: shows the contents of a checkpoint.

use clap::Args;
use serde_json::{Value, json};
use unpadded::DType;
use unpadded::checkpoint::{Checkpoint, Purpose};
use unpadded::executor::MemoryUse;
use unpadded::op::{MatrixUnit, int8_unit};
use unpadded::program::{Role, VarRole};
use unpadded_recipes::Config;

use super::memory::megabytes;
use super::model_choice::ModelChoice;
use super::outcome::{Ending, Outcome, UsageError, bad};
use super::scores::Table;
use super::terminal::{self, Console};

#[derive(Args)]
#[command(after_help = "\
Examples:
  unpadded inspect runs/classify-1
  unpadded inspect runs/classify-1 --config > again.toml     the config alone, for `unpadded train again.toml`
  unpadded inspect model.ckpt --json | jq .tensors")]
pub(crate) struct Inspect {
    #[command(flatten)]
    which: ModelChoice,
    /// Program: also print the operators
    #[arg(long)]
    program: bool,
    /// Config of the training as TOML, and nothing else
    #[arg(long, conflicts_with_all = ["program", "json"])]
    config: bool,
    #[command(flatten)]
    console: Console,
}

/// Returns the kinds of update operators with their counts, and the size of the optimizer's state.
fn optimizer(checkpoint: &Checkpoint) -> (Vec<(&str, usize)>, usize) {
    let mut kinds: Vec<(&str, usize)> = Vec::new();
    for op in checkpoint.program.ops() {
        if op.role != Role::Update {
            continue;
        }
        match kinds.iter_mut().find(|(kind, _)| *kind == op.kind) {
            Some((_, count)) => *count += 1,
            None => kinds.push((&op.kind, 1)),
        }
    }
    let states = checkpoint.program.vars().filter(|(_, var)| var.role == VarRole::State);
    let sizes = states
        .filter_map(|(_, var)| Some(checkpoint.tensors.get(&var.name)?.shape().iter().product::<usize>()));
    (kinds, sizes.sum())
}

/// Describes matrix products that are not all in f32: of the training `trained`, and of the checkpoint that predicts.
fn precision(trained: &Checkpoint, checkpoint: &Checkpoint) -> Option<String> {
    let coded = checkpoint.tensors.iter().filter(|(_, value)| value.dtype() == DType::I8).count();
    let mut ops = checkpoint.program.ops();
    let multiplies = ops.any(|op| op.kind == "int8_linear");
    let weights = format!("{coded} weights and tables are 8-bit integers");
    match (coded, multiplies, trained.program.unit) {
        (1.., true, _) => Some(format!("{weights}; matrix products in {} on this CPU", int8_unit())),
        (1.., false, _) => Some(weights),
        (0, _, MatrixUnit::F32) => None,
        (0, _, unit) => Some(format!("trained with matrix products in {unit}; predicts in f32")),
    }
}

/// Returns numbers as a line of block characters; the height of each character shows a number.
fn sparkline(numbers: &[f64]) -> String {
    const BLOCKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let finite = || numbers.iter().copied().filter(|x| x.is_finite());
    let (low, high) = (finite().fold(f64::INFINITY, f64::min), finite().fold(f64::NEG_INFINITY, f64::max));
    let block = |x: &f64| match x.is_finite() {
        true => BLOCKS[(((x - low) / (high - low).max(f64::MIN_POSITIVE)) * 7.0).round() as usize % 8],
        false => '·',
    };
    numbers.iter().map(block).collect()
}

impl Inspect {
    pub(crate) fn run(self) -> Outcome<Ending> {
        let checkpoint = self.which.checkpoint()?;
        let console = self.console;
        if self.config {
            let Some(config) = checkpoint.notes.get("config") else {
                let name = self.which.path.display();
                return bad(format!(
                    "--config: expected a checkpoint of `unpadded train`, got `{name}`, which has no config"
                ));
            };
            // A config that another version wrote may have settings that no longer exist.
            let config =
                Config::from_toml(config).map_err(|e| e.noted("in the config of the checkpoint")).usage()?;
            terminal::print(config.to_toml().trim_end())?;
            return Ok(Ending::Done);
        }
        // A checkpoint for inference has no history of epochs; in a run folder, the training checkpoint has it.
        let beside = super::run::last(&self.which.path);
        let training = if beside.is_file() { Some(Checkpoint::load(beside)?) } else { None };
        let trained = training.as_ref().unwrap_or(&checkpoint);
        let sized = |id| {
            let name = checkpoint.program.var(id).name.as_str();
            let shape = checkpoint.tensors.get(name)?.shape();
            Some((name, shape.to_vec(), shape.iter().product()))
        };
        let sizes: Vec<(&str, Vec<usize>, usize)> =
            checkpoint.program.parameters().filter_map(sized).collect();
        let parameters: usize = sizes.iter().map(|(.., size)| size).sum();
        let (updates, states) = optimizer(trained);
        let feeds = checkpoint.program.vars().filter(|(_, var)| var.role == VarRole::Feed);
        let inputs: Vec<String> = feeds.map(|(_, var)| var.name.clone()).collect();
        let precision = precision(trained, &checkpoint);
        if console.json {
            let memory = MemoryUse::of_program(&trained.program);
            let tensors: Value = sizes.iter().map(|(name, shape, _)| (*name, shape.clone())).collect();
            let vocabularies =
                checkpoint.vocabularies.iter().map(|(name, trained)| (name.clone(), trained.len()));
            let curve = trained.history.iter().map(|epoch| epoch.dev.iter().cloned().collect::<Value>());
            terminal::print(json!({
                "task": checkpoint.notes.get("task"), "parameters": parameters, "tensors": tensors,
                "precision": precision, "optimizer": updates.iter().map(|(kind, _)| *kind).collect::<Value>(),
                "optimizer_state": states, "parameter_bytes": memory.parameters, "state_bytes": memory.state,
                "vocabularies": vocabularies.collect::<Value>(),
                "epochs": trained.position.epoch, "steps": trained.position.step, "inputs": inputs,
                "curve": curve.collect::<Value>(), "outputs": checkpoint.outputs.keys().collect::<Vec<_>>(),
            }))?;
            return Ok(Ending::Done);
        }
        let task = ["task", "model"].iter().find_map(|name| checkpoint.notes.get(*name));
        let task = task.map_or("a program of its own", |task| task);
        let predicts = checkpoint.purpose == Purpose::Inference;
        let purpose = if predicts { "to predict with" } else { "a whole training" };
        terminal::print(format!("{task}, {purpose}"))?;
        let operators: usize = checkpoint.program.blocks().map(|(_, block)| block.ops.len()).sum();
        let memory = MemoryUse::of_program(&trained.program);
        let [model, state] = [memory.parameters, memory.state].map(megabytes);
        terminal::print(format!("memory: parameters {model}, optimizer {state}; a batch takes more"))?;
        if let Some(precision) = &precision {
            terminal::print(format!("precision: {precision}"))?;
        }
        terminal::print(format!("program: {operators} operators; seed {}", checkpoint.program.seed))?;
        let mut table = Table::new(&format!("parameters: {parameters}"), &["parameter", "shape", "numbers"]);
        let row = |(name, shape, size): &(&str, Vec<usize>, usize)| {
            let shape: Vec<String> = shape.iter().map(usize::to_string).collect();
            vec![terminal::shown(name), shape.join(" × "), size.to_string()]
        };
        table.rows = sizes.iter().map(row).collect();
        table.print(console)?;
        console.more("")?;
        if !updates.is_empty() {
            let each = |(kind, count): &(&str, usize)| {
                if *count > 1 { format!("{kind} × {count}") } else { (*kind).to_owned() }
            };
            let updates: Vec<String> = updates.iter().map(each).collect();
            terminal::print(format!("optimizer: {}; a state of {states} numbers", updates.join(", ")))?;
        }
        for (name, vocabulary) in &checkpoint.vocabularies {
            let few: Vec<String> = vocabulary.tokens().take(8).map(terminal::shown).collect();
            let more = if vocabulary.len() > few.len() { ", …" } else { "" };
            let name = terminal::shown(name);
            terminal::print(format!("vocabulary {name}: {} ({}{more})", vocabulary.len(), few.join(", ")))?;
        }
        let line = |names: Vec<String>| terminal::shown(&names.join(", "));
        terminal::print(format!("inputs: {}", line(inputs)))?;
        terminal::print(format!("outputs: {}", line(checkpoint.outputs.keys().cloned().collect())))?;
        if trained.position.step > 0 {
            terminal::print(format!(
                "trained: {} epochs, {} steps",
                trained.position.epoch, trained.position.step
            ))?;
        }
        for (name, _) in trained.history.first().into_iter().flat_map(|epoch| &epoch.dev) {
            let curve: Vec<f64> = trained.history.iter().filter_map(|epoch| epoch.dev(name)).collect();
            let [first, last] = [curve.first(), curve.last()].map(|x| x.copied().unwrap_or(f64::NAN));
            terminal::print(format!("held-out {name}: {} {first:.4} to {last:.4}", sparkline(&curve)))?;
        }
        if let Some(config) = checkpoint.notes.get("config") {
            console.more("\nconfig (--config writes it alone, to train from):")?;
            terminal::print(config.trim_end())?;
        }
        if self.program {
            console.more("\nprogram:")?;
            terminal::print(&checkpoint.program)?;
        }
        Ok(Ending::Done)
    }
}
