//! Random programs, trained: gradients of tables as selected rows lead to the same parameters as dense gradients.

use std::collections::{BTreeMap, HashMap};

use unpadded::executor::{Executor, Run, Scope, Stage, interpret, settle};
use unpadded::op::{Direct, Operand, RunFacts};
use unpadded::optimizer::{Minimization, Optimizer, RATE_SCALE};
use unpadded::program::{Role, VarId};
use unpadded::tensor::{Dense, Storage, StorageKind};
use unpadded::{ErrorKind, Mode, Program, Registry, Result, Variable};

use super::generator::{Batch, Dice, Twins, fed, optimizer, twins};
use super::{Check, F64, Worst, distance, hold, largest, numbers, seeds};

/// How many programs the suite trains.
const PROGRAMS: usize = 24;
/// The number of batches; batches without sequences lie between them.
const BATCHES: usize = 20;

/// A program that is trained.
struct Trained<'a> {
    program: Program,
    registry: &'a Registry,
    loss: VarId,
    made: Minimization,
}

/// A step: its batch, and the actions before it.
struct Step<'a> {
    batch: &'a Batch,
    number: u64,
    numbers: Vec<u64>,
    /// Evaluates the batch instead.
    infers: bool,
    /// The factor of the rate from now on, where the rate can change.
    scale: Option<f32>,
}

/// The result of a training.
#[derive(Debug)]
struct Came {
    /// The loss of each step, until a loss is not finite.
    losses: Vec<f64>,
    /// Parameters and the optimizer's states, settled.
    values: BTreeMap<String, Dense>,
}

impl<'a> Trained<'a> {
    fn new(twins: &'a Twins, forward: &Program, optimizer: &dyn Optimizer) -> Result<Self> {
        let mut program = forward.clone();
        let made = optimizer.minimize(&mut program, &twins.registry, twins.loss)?;
        Ok(Self { program, registry: &twins.registry, loss: twins.loss, made })
    }

    fn settles(&self) -> usize {
        self.program.root().ops.iter().filter(|op| op.role == Role::Settle).count()
    }

    /// Returns the result after all deferred updates.
    fn end(&self, mut scope: Scope, losses: Vec<f64>) -> Result<Came> {
        settle(&self.program, self.registry, &mut scope, 1)?;
        let names: Vec<String> = scope.names().map(str::to_owned).collect();
        // The divisor of Adamax is raised to epsilon when it is next used.
        let adamax = self.program.root().ops.iter().any(|op| op.kind == "adamax");
        let own = |name: &String| {
            name.ends_with(".settled") || name.ends_with(".history") || (adamax && name.ends_with(".largest"))
        };
        let kept = names.into_iter().filter(|name| !own(name));
        let values = kept.map(|name| Ok((name.clone(), scope.get(&name)?))).collect::<Result<_>>()?;
        Ok(Came { losses, values })
    }

    /// Trains with a compiled program on some threads.
    fn compiled(&self, mut scope: Scope, steps: &[Step<'_>], threads: usize) -> Result<Came> {
        let executor = Executor::new(&self.program, self.registry, &[self.loss], threads)?;
        let mut executor = if threads > 1 { crate::models::divided(executor) } else { executor };
        let mut losses = Vec::new();
        for step in steps {
            step.prepare(&mut scope)?;
            let fed = fed(step.batch);
            match executor.run(&mut scope, &step.run(&fed)) {
                Err(e) if e.kind() == ErrorKind::NotFinite => break,
                other => other?,
            }
            losses.push(executor.scalar(self.loss)?);
        }
        self.end(scope, losses)
    }

    /// Trains with the interpreter, with the updates of one operator after another.
    fn interpreted(&self, mut scope: Scope, steps: &[Step<'_>]) -> Result<Came> {
        let mut losses = Vec::new();
        for step in steps {
            step.prepare(&mut scope)?;
            let fed = fed(step.batch);
            let run = step.run(&fed);
            let run = with!(run, stage: run.stage.min(Stage::Gradients));
            let mut values = interpret(&self.program, self.registry, &mut scope, &run)?;
            if !step.infers {
                let finite = |var: &VarId| match values.get(var).map(Variable::storage) {
                    Some(Storage::SelectedRows(rows)) => is_finite(rows.value()),
                    Some(Storage::Dense(dense)) => is_finite(dense),
                    _ => true,
                };
                let looked_at = self.made.gradients.iter().map(|(_, grad)| grad).chain([&self.loss]);
                if !looked_at.into_iter().all(finite) {
                    break;
                }
                self.update(&mut values, step.number)?;
            }
            for (id, var) in self.program.vars().filter(|(_, var)| var.persistable) {
                if let Some(value) = values.get(&id) {
                    scope.set(&var.name, value.storage().clone())?;
                }
            }
            losses.push(numbers(values[&self.loss].storage().as_dense()?)[0]);
        }
        self.end(scope, losses)
    }

    /// The updates of a step.
    fn update(&self, values: &mut HashMap<VarId, Variable>, step: u64) -> Result<()> {
        let facts = RunFacts {
            mode: Mode::Train,
            step,
            seed: self.program.seed,
            threads: 1,
            unit: self.program.unit,
        };
        for op in self.program.root().ops.iter().filter(|op| op.role == Role::Update) {
            let mut operands = Vec::new();
            for bound in op.inputs.iter().chain(&op.outputs) {
                let known = bound.vars.iter().filter_map(|var| values.get(var));
                operands.extend(known.map(|value| Operand::constant(&bound.slot, value.clone())));
            }
            let signature = self.registry.parse(&op.kind, &op.attributes)?.signature();
            let made = Direct::of(self.registry, &op.kind, &op.attributes, &operands)?;
            for (slot, made) in signature.outputs.iter().zip(made.run_as(facts, &[]).forward()?) {
                values.extend(op.output(slot.name).iter().copied().zip(made));
            }
        }
        Ok(())
    }
}

fn is_finite(dense: &Dense) -> bool {
    numbers(dense).iter().all(|x| x.is_finite())
}

impl Step<'_> {
    fn prepare(&self, scope: &mut Scope) -> Result<()> {
        match self.scale {
            Some(scale) if scope.names().any(|name| name == RATE_SCALE) => {
                scope.set(RATE_SCALE, Dense::from_vec(&[], vec![scale])?)
            }
            _ => Ok(()),
        }
    }

    fn run<'r>(&'r self, fed: &'r [(VarId, &'r Variable)]) -> Run<'r> {
        let run = if self.infers { Run::infer(fed) } else { Run::train(fed, self.number) };
        run.numbers(&self.numbers)
    }
}

/// Returns batches, now and then with many batches without sequences between them, at times a batch that is only evaluated, and
/// step numbers that skip or start again.
fn steps<'a>(dice: &mut Dice, twins: &'a Twins) -> Vec<Step<'a>> {
    let mut steps = Vec::new();
    let mut number = 0;
    for batch in &twins.batches {
        let scale = dice.chance(10).then(|| 0.5 + dice.below(2) as f32);
        number = match dice.below(40) {
            0 => number + dice.below(3000) as u64,
            1 => 0,
            _ => number,
        };
        let gap = [0, 0, 0, 1, 3, 24][dice.below(6)];
        let step = |batch: &'a Batch, number, infers, scale| {
            let count = batch[0].1.batch_size() as u64;
            Step { batch, number, numbers: (0..count).map(|i| 7 * i + number).collect(), infers, scale }
        };
        steps.push(step(batch, number, dice.chance(10), scale));
        steps.extend((1..=gap).map(|later| step(&twins.nothing, number + later, false, None)));
        number += 1 + gap;
    }
    steps
}

/// Returns the largest difference of two trainings, and the variable that has it.
fn apart<'a>(a: &Came, b: &'a Came) -> Result<(f64, &'a str), String> {
    if a.losses.len() != b.losses.len() {
        return Err(format!("{} finite steps in place of {}", a.losses.len(), b.losses.len()));
    }
    let scale = largest(&b.losses).max(1.0);
    let losses = a.losses.iter().zip(&b.losses).map(|(a, b)| (a - b).abs() / scale).fold(0.0, f64::max);
    let mut most = (losses, "losses");
    for (name, value) in &b.values {
        let Some(ours) = a.values.get(name) else { return Err(format!("`{name}` is missing")) };
        let far = distance(ours, value, 1.0);
        most = if far > most.0 { (far, name) } else { most };
    }
    Ok(most)
}

fn same_bits(a: &Came, b: &Came) -> bool {
    let bits = |came: &Came| came.losses.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    bits(a) == bits(b)
        && a.values.len() == b.values.len()
        && a.values.iter().zip(&b.values).all(|(a, b)| a.0 == b.0 && a.1.bits_eq(b.1))
}

/// Parameters that start a little elsewhere.
fn shaken(program: &Program, dice: &mut Dice) -> Result<Scope> {
    let mut scope = Scope::of(program)?;
    for var in program.parameters() {
        let name = &program.var(var).name;
        let mut value = scope.get(name)?;
        value.as_mut_slice::<f64>()?.iter_mut().for_each(|x| *x *= 1.0 + 1e-13 * dice.number());
        scope.set(name, value)?;
    }
    Ok(scope)
}

/// Statistics of the trained programs.
#[derive(Default, Debug)]
struct Seen {
    /// Programs with rows that owe, with tables that are settled whole, with gradients of rows and nothing owed.
    owing: usize,
    whole: usize,
    rows: usize,
    /// Those whose twin owes, too.
    both: usize,
    rules: BTreeMap<&'static str, usize>,
}

fn trained(seed: u64, worst: &mut Worst, seen: &mut Seen) -> Check {
    let mut dice = Dice::new(seed ^ 0x5EED);
    let kind = super::Kind { smooth: dice.chance(50), ..F64 };
    let twins = twins(seed, kind, BATCHES).map_err(|e| format!("building: {e}"))?;
    let (name, optimizer) = optimizer(&mut dice);
    let rule = optimizer.rule().map_err(|e| e.to_string())?;
    let with_program = |what: String| format!("{what}\n{rule:?}\n{:?}\n{}", optimizer.options(), twins.rows);
    let err = |e: unpadded::Error| with_program(e.to_string());
    let rows = Trained::new(&twins, &twins.rows, &optimizer).map_err(err)?;
    let dense = Trained::new(&twins, &twins.dense, &optimizer).map_err(err)?;
    let stored =
        |(_, grad): &(VarId, VarId)| rows.program.spec(*grad).is_ok_and(|s| s.storage != StorageKind::Dense);
    if rows.settles() > 0 {
        *seen.rules.entry(name).or_default() += 1;
        seen.owing += 1;
    } else if rows.made.gradients.iter().any(stored) {
        *seen.rules.entry(name).or_default() += 1;
        seen.rows += 1;
    }
    let whole = |op: &&unpadded::program::OpDesc| op.role == Role::Settle && op.input("ids").is_empty();
    seen.whole += usize::from(rows.program.root().ops.iter().any(|op| whole(&op)));
    // Products of sparse rows give gradients of rows whatever tables do.
    seen.both += usize::from(dense.settles() > 0);
    let steps = steps(&mut dice, &twins);
    let start = |run: &Trained<'_>| Scope::of(&run.program).map_err(err);
    let expected = dense.compiled(start(&dense)?, &steps, 1).map_err(err)?;
    worst.not_finite += usize::from(expected.losses.len() < steps.len());
    let found = rows.compiled(start(&rows)?, &steps, 1).map_err(err)?;
    for threads in [2, 3] {
        if !same_bits(&rows.compiled(start(&rows)?, &steps, threads).map_err(err)?, &found) {
            return Err(with_program(format!("other bits on {threads} threads")));
        }
    }
    let mut others = vec![("from dense", expected)];
    // It takes as long as all else.
    if seed.is_multiple_of(4) {
        others.push(("from interpreted", rows.interpreted(start(&rows)?, &steps).map_err(err)?));
    }
    for (what, other) in &others {
        let (far, run) = apart(&found, other).map_err(with_program)?;
        if far <= 1e-6 {
            worst.note(what, far);
            continue;
        }
        // A training may make much of little: then it does so of other little things.
        let moved =
            dense.compiled(shaken(&dense.program, &mut dice).map_err(err)?, &steps, 1).map_err(err)?;
        let rough = apart(&moved, &others[0].1).map_or(f64::INFINITY, |(far, _)| far);
        if rough < 1e-8 {
            return Err(with_program(format!(
                "{what}: `{run}` is off by {far:e}, where other starts lead {rough:e} away"
            )));
        }
        worst.rough += 1;
    }
    Ok(())
}

#[test]
fn rows_that_wait_come_to_where_dense_gradients_lead() {
    let mut seen = Seen::default();
    let seeds = seeds(PROGRAMS);
    let all = seeds.end - seeds.start >= PROGRAMS as u64;
    hold(seeds, |seed, worst| trained(seed, worst, &mut seen));
    println!("{seen:?}");
    // Else it would say little.
    let Seen { owing, whole, rows, both, rules } = seen;
    assert!(!all || (owing > PROGRAMS / 2 && whole > 0 && rows > 0 && 4 * both < owing && rules.len() > 8));
}
