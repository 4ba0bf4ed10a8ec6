//! Literals in the slots of operators: scalars, strings and lists that a program carries, read at the root and in step
//! blocks, in direct calls, compiled and interpreted, trained, saved and loaded; and refusals.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::refused::Outcome;
use ndarray::{Array2, array};
use unpadded::executor::{Executor, Run, Scope, interpret};
use unpadded::layers::Linear;
use unpadded::op::{
    Assign, Attributes, Backward, CheckCase, Direct, Float, Forward, Gradient, Hints, InferShape, Literal,
    LiteralRef, Op, Operand, Prepare, RowValue, Spec, testing,
};
use unpadded::ops::Pool;
use unpadded::optimizer::{Optimizer, Sgd};
use unpadded::program::{VarId, VarKind, VarRole};
use unpadded::{
    Builder, DType, ErrorKind, Lod, Program, Registry, Result, Var, Variable, operator, ops, with_float,
};

use crate::models::Random;
use crate::thorough::times;

operator! {
    /// out = x · by or x + by, as the string `how` says, in the columns that the lists in `columns` name (all without any);
    /// the others are as they were.
    struct Change = "test.change" {}
    inputs { X = x: one, HOW = how: literal, BY = by: literal, COLUMNS = columns: any.literals() }
    outputs { OUT = out: one }
}

/// Returns for each column whether it changes.
fn changed<'a>(columns: impl ExactSizeIterator<Item = LiteralRef<'a>>, width: usize) -> Result<Vec<bool>> {
    let mut changed = vec![columns.len() == 0; width];
    for list in columns {
        for column in list.as_sizes()? {
            *changed.get_mut(column).ok_or_else(|| list.mismatch(&format!("columns below {width}")))? = true;
        }
    }
    Ok(changed)
}

fn multiplies(how: LiteralRef<'_>) -> Result<bool> {
    match how.as_text()? {
        "times" => Ok(true),
        "plus" => Ok(false),
        _ => Err(how.mismatch("`times` or `plus`")),
    }
}

impl Op for Change {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(Self::X)?;
        multiplies(s.literal(Self::HOW)?)?;
        s.literal(Self::BY)?.as_float()?;
        changed(s.literals(Self::COLUMNS), s.input(Self::X).width())?;
        s.set(Self::OUT, s.input(Self::X).clone());
        Ok(())
    }

    fn prepare(&self, prepare: &mut Prepare<'_>) -> Result<()> {
        // Before a loop, so that no step reads lists.
        assert!(prepare.literal(Self::BY)?.as_float()?.is_finite());
        *prepare.keep::<f64>() = prepare.literal(Self::BY)?.as_float()?;
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => {
            let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
            let (times, by) = (multiplies(run.literal(Self::HOW)?)?, run.literal(Self::BY)?.as_float()?);
            assert_eq!(run.prepared::<f64>().copied().unwrap_or(by), by);
            let changed = changed(run.literals(Self::COLUMNS), x.width())?;
            for (out, x) in out.iter_mut().zip(x.iter()) {
                for ((out, &x), &changed) in out.iter_mut().zip(x).zip(&changed) {
                    let by = T::from_f64(by);
                    *out = if !changed { x } else if times { x * by } else { x + by };
                }
            }
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(Self::X), T => slopes::<T>(run))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        Gradient::reads_nothing()
    }

    fn hints(&self) -> Hints {
        Hints { prepares: true, ..Hints::default() }
    }

    fn samples() -> Result<Vec<CheckCase>> {
        let sample = |name, lengths: &[usize]| {
            let rows: usize = lengths.iter().sum();
            let x = Array2::from_shape_fn((rows, 3), |(i, j)| ((i * 3 + j) as f64).sin());
            let x = Variable::sequences(x, Lod::from_lengths1(lengths).unwrap()).unwrap();
            CheckCase::new(name, Attributes::new()).batch("x", x)
        };
        Ok(vec![
            sample("times", &[2, 0, 1]).literal("how", "times").literal("by", 3),
            sample("some columns", &[1, 2])
                .literal("how", "times")
                .literal("by", -0.5)
                .literal("columns", vec![2])
                .literal("columns", vec![0]),
            sample("plus", &[]).literal("how", "plus").literal("by", 1.5),
        ])
    }
}

fn slopes<T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let (Some((mut dx, store)), Some(dout)) =
        (run.gradient::<T>(Change::X)?, run.output_gradient::<T>(Change::OUT)?)
    else {
        return Ok(());
    };
    let (times, by) = (multiplies(run.literal(Change::HOW)?)?, run.literal(Change::BY)?.as_float()?);
    let changed = changed(run.literals(Change::COLUMNS), dout.width())?;
    for (dx, dout) in dx.iter_mut().zip(dout.iter()) {
        for ((dx, &g), &changed) in dx.iter_mut().zip(dout).zip(&changed) {
            let g = if changed && times { g * T::from_f64(by) } else { g };
            *dx = if store == Assign::Add { *dx + g } else { g };
        }
    }
    Ok(())
}

trait Changes {
    fn change(&self, x: Var, how: &str, by: f64, columns: Option<&[i64]>) -> Var;
}

impl Changes for Builder {
    #[track_caller]
    fn change(&self, x: Var, how: &str, by: f64, columns: Option<&[i64]>) -> Var {
        let name = |what: &str| self.program().unwrap().fresh_name(&format!("change.{what}"));
        let (how, by) = (self.literal(&name("how"), how), self.literal(&name("by"), by));
        let columns = columns.map(|c| self.literal(&name("columns"), c.to_vec()));
        let columns: Vec<Var> = columns.into_iter().collect();
        let inputs: [(&str, &[Var]); 4] =
            [("x", &[x]), ("how", &[how]), ("by", &[by]), ("columns", &columns)];
        self.append("test.change", &inputs, Attributes::new())
    }
}

fn registry() -> Registry {
    let mut registry = ops::catalogue();
    registry.add::<Change>().unwrap();
    registry
}

#[test]
fn an_operator_with_literals_keeps_the_contract() {
    let mut own = Registry::empty();
    own.add::<Change>().unwrap();
    testing::check(&own).unwrap();
}

#[test]
fn a_direct_call_reads_them() {
    let op = registry().parse("test.change", &Attributes::new()).unwrap();
    let call = |operands: &[Operand]| op.clone().call(operands);
    let x = Operand::batch("x", array![[1.0, 2.0]]);
    let (how, by) = (Operand::literal("how", "plus"), Operand::literal("by", 10));
    let out = call(&[x.clone(), how.clone(), by.clone(), Operand::literal("columns", vec![1])]).unwrap();
    assert_eq!(out[0].as_slice::<f64>().unwrap(), [1.0, 12.0]);
    let refused = |operands: &[Operand], words: &str| {
        let message = call(operands).unwrap_err().to_string();
        assert!(message.contains(words) && message.contains(file!()), "expected `{words}` in: {message}");
    };
    refused(&[x.clone(), by.clone()], "input `how`: expected one variable, got 0");
    refused(
        &[x.clone(), how.clone(), Operand::constant("by", array![1.0])],
        "input `by`: expected a literal, got a tensor",
    );
    refused(
        &[Operand::literal("x", 1.0), how, by.clone()],
        "input `x`: expected a tensor, got a literal, a number (1.0)",
    );
    refused(
        &[x, by.clone(), Operand::literal("how", 7)],
        "input `how`: expected a string, got a whole number (7)",
    );
}

/// Builds a model with literals at the root, in a step block and in an inner block, made inside and outside of the block; returns
/// its outputs.
fn model() -> (Builder, Var, Var, Var) {
    let net = Builder::with_registry(registry()).seed(3);
    let x = net.feed("x", DType::F32, &[3], 1);
    net.watch(x);
    let outer = net.literal("shared", "times");
    let two = net.literal("two", 2.0);
    let first = net.change(x, "plus", 0.25, Some(&[0, 2]));
    let h = net.recurrent(first, |step, x| {
        let before = step.memory(3);
        let small = step.change(before, "times", 0.5, Some(&[1]));
        let inputs: [(&str, &[Var]); 3] = [("x", &[x]), ("how", &[outer]), ("by", &[two])];
        let large = step.append("test.change", &inputs, Attributes::new());
        let h = step.tanh(step.add(small, large));
        step.update(before, h);
        h
    });
    let h = net.linear(h, Linear::new(3));
    let last = net.sequence_pool(h, Pool::Last);
    let out = net.change(last, "times", -1.0, None);
    let loss = net.mean(net.square(out));
    (net, x, out, loss)
}

fn fed() -> Variable {
    let x = Array2::from_shape_fn((6, 3), |(i, j)| ((i * 5 + j) as f32).sin());
    Variable::sequences(x, Lod::from_lengths1(&[3, 0, 2, 1]).unwrap()).unwrap()
}

fn numbers(program: &Program, wanted: &[VarId], x: VarId, threads: usize) -> Vec<Vec<f32>> {
    let mut executor = Executor::new(program, &registry(), wanted, threads).unwrap();
    let (mut scope, fed) = (Scope::of(program).unwrap(), fed());
    executor.run(&mut scope, &Run::train(&[(x, &fed)], 0)).unwrap();
    wanted.iter().map(|&var| executor.fetch(var).unwrap().as_slice::<f32>().unwrap().to_vec()).collect()
}

#[test]
fn they_are_read_at_the_root_and_in_step_blocks() {
    let (net, x, out, loss) = model();
    let mut program = net.finish().unwrap();
    let forward = program.clone();
    let made = Sgd::new(0.1).minimize(&mut program, &registry(), loss.id()).unwrap();
    let gradient = program.find("x@grad").unwrap();
    let wanted = [out.id(), loss.id(), gradient, made.gradients[0].1];
    let alone = numbers(&program, &wanted, x.id(), 1);
    assert_eq!(numbers(&program, &wanted, x.id(), 2), alone);
    let (mut scope, value) = (Scope::of(&program).unwrap(), fed());
    let values = interpret(&program, &registry(), &mut scope, &Run::train(&[(x.id(), &value)], 0)).unwrap();
    for (var, compiled) in wanted.iter().zip(&alone) {
        let meant = values[var].as_slice::<f32>().unwrap();
        assert!(meant.iter().zip(compiled).all(|(a, b)| (a - b).abs() < 1e-6), "{meant:?} {compiled:?}");
        assert!(compiled.iter().any(|&x| x != 0.0), "{compiled:?}");
    }

    // Saved and loaded, as a whole and for inference, and by windows.
    let bytes = program.to_bytes().unwrap();
    let loaded = Program::from_bytes(&bytes).unwrap();
    assert_eq!((loaded.difference(&program), loaded.to_bytes().unwrap()), (None, bytes));
    assert_eq!(numbers(&loaded, &wanted, x.id(), 2), alone);
    let inference = loaded.inference(&[out.id()]).unwrap();
    assert_eq!(numbers(&inference, &[out.id()], x.id(), 1), alone[..1]);
    let streamed = forward.streamed(&registry(), &[out.id()]).unwrap();
    let pass = &streamed.passes[0].program;
    assert!(pass.reads().contains(&program.find("shared").unwrap()) && streamed.rest.root().ops.len() == 1);

    // Listed, drawn and compared.
    let text = program.to_string();
    for line in [
        "  shared = \"times\"",
        "how=change.how, by=change.by, columns=change.columns)",
        "how=shared, by=two",
    ] {
        assert!(text.contains(line), "expected `{line}` in:\n{text}");
    }
    let literal = program.find("change.columns").unwrap();
    let dot = program.dot();
    assert!(dot.contains(&format!("v{} -> o0_0 [label=\"columns\"]", literal.0)), "{dot}");
    assert!(dot.contains("shared\\na string (\\\"times\\\")"), "{dot}");
    let mut other = program.clone();
    other.var_mut(literal).kind = VarKind::Literal(vec![0, 1].into());
    let message = program.difference(&other).unwrap();
    assert_eq!(message, "variable `change.columns` as a list ([0, 1]) instead of a list ([0, 2])");
}

/// The messages for a literal that does not fit.
#[test]
fn what_does_not_fit_is_refused_at_the_users_line() {
    let net = Builder::with_registry(registry());
    let x = net.feed("x", DType::F32, &[3], 1);
    let [how, by, columns] =
        [net.literal("how", "times"), net.literal("by", 2), net.literal("columns", vec![0, 3])];
    let flag = net.literal("flag", true);
    let long = net.literal("long", "é".repeat(100));
    #[track_caller]
    fn says(made: impl Outcome, words: &str) {
        let message = made.refused().to_string();
        assert!(message.contains(words) && message.contains(file!()), "expected `{words}` in: {message}");
    }
    let change = |inputs: &[(&str, &[Var])]| net.append::<Var>("test.change", inputs, Attributes::new());
    let with = |how: &[Var], by: &[Var]| change(&[("x", &[x]), ("how", how), ("by", by)]);
    assert!(net.spec(with(&[how], &[by])).is_some());
    says(with(&[], &[by]), "input `how`: expected one variable, got 0");
    says(with(&[how, how], &[by]), "input `how`: expected one variable, got 2");
    says(with(&[x], &[by]), "input `how`: expected a literal, got a tensor, f32[rows of `x`, 3]");
    says(with(&[by], &[by]), "input `how`: expected a string, got a whole number (2)");
    says(with(&[how], &[flag]), "input `by`: expected a number, got a truth value (true)");
    says(with(&[long], &[by]), "input `how`: expected `times` or `plus`, got a string (\"ééé");
    says(
        change(&[("x", &[x]), ("how", &[how]), ("by", &[by]), ("columns", &[columns])]),
        "input `columns`: expected columns below 3, got a list ([0, 3])",
    );
    says(
        change(&[("x", &[by]), ("how", &[how]), ("by", &[by])]),
        "input `x`: expected a tensor, got a literal",
    );
    says(net.tanh(how), "input `x`: expected a tensor, got a literal, a string (\"times\")");
    says(net.recurrent(how, |_, x| x), "variable `how`: expected a tensor, got a literal");
    says(
        net.recurrent(x, |step, x| {
            let memory = step.memory_from(how);
            step.update(memory, x);
            step.last(memory)
        }),
        "variable `how`: expected a tensor, got a literal",
    );
}

/// Programs of files: another kind of literal, a tensor for a literal, a literal for a tensor, and literals where no
/// operator may have them. Each is refused, wherever it comes to light.
#[test]
fn a_changed_program_is_refused() {
    let (net, x, out, loss) = model();
    let mut program = net.finish().unwrap();
    Sgd::new(0.1).minimize(&mut program, &registry(), loss.id()).unwrap();
    let becomes = |program: &mut Program, name: &str, kind: VarKind, role: VarRole| {
        let id = program.find(name).unwrap();
        let var = program.var_mut(id);
        (var.kind, var.role, var.persistable, var.trainable) = (kind, role, false, false);
    };
    let literal = |program: &mut Program, name: &str, value: Literal| {
        becomes(program, name, VarKind::Literal(value), VarRole::Literal);
    };
    let row = VarKind::Tensor(program.spec(x.id()).unwrap().clone());
    type Damage<'a> = &'a dyn Fn(&mut Program);
    let cases: [(&str, Damage<'_>); 11] = [
        ("another kind at the root", &|p| literal(p, "change.how", 1.into())),
        ("another kind in a step", &|p| literal(p, "shared", vec![true].into())),
        ("out of range", &|p| literal(p, "change.columns", vec![9].into())),
        ("not a number", &|p| literal(p, "two", "2".into())),
        ("a tensor for a literal", &|p| becomes(p, "change.how", row.clone(), VarRole::Feed)),
        ("a tensor for a literal in a step", &|p| becomes(p, "two", row.clone(), VarRole::Feed)),
        ("a literal for a tensor", &|p| literal(p, "x", "x".into())),
        ("a literal for a weight", &|p| literal(p, "linear_0.weight", 1.0.into())),
        ("a literal for a result", &|p| literal(p, "sequence_pool", 1.0.into())),
        ("a literal that is fed", &|p| becomes(p, "two", VarKind::Literal(2.0.into()), VarRole::Feed)),
        ("a tensor that says it is none", &|p| becomes(p, "x", row.clone(), VarRole::Literal)),
    ];
    let (value, fed) = (fed(), x.id());
    for (case, damage) in cases {
        let mut changed = program.clone();
        damage(&mut changed);
        let _ = (changed.to_string(), changed.dot(), changed.difference(&program));
        let loaded = changed.to_bytes().and_then(|bytes| Program::from_bytes(&bytes));
        let compiled = loaded.and_then(|p| Executor::new(&p, &registry(), &[out.id()], 1)).map(drop);
        let error = compiled.expect_err(case);
        let clear = [ErrorKind::Program, ErrorKind::Mismatch].contains(&error.kind());
        assert!(clear, "{case}: {error}");
        // Nothing that takes a program by hand panics either.
        let _ = Executor::new(&changed, &registry(), &[loss.id()], 1).map(drop);
        let _ = changed.inference(&[out.id()]).and_then(|p| p.streamed(&registry(), &[out.id()]));
        if let Ok(mut scope) = Scope::of(&changed) {
            drop(interpret(&changed, &registry(), &mut scope, &Run::train(&[(fed, &value)], 0)));
        }
    }
    let op = registry().parse("test.change", &Attributes::new()).unwrap();
    assert!(Direct::new(op, &[]).is_err());
}

/// Bytes of a program with literals, changed at random: it compiles and runs, or is refused.
#[test]
fn changed_bytes_never_panic() {
    let (net, x, out, loss) = model();
    let mut program = net.finish().unwrap();
    Sgd::new(0.1).minimize(&mut program, &registry(), loss.id()).unwrap();
    let (body, value) = (program.to_section().unwrap(), fed());
    let (mut random, mut loaded, mut ran) = (Random(7), 0, 0);
    for round in 0..times(600) {
        let mut changed = body.clone();
        let (at, from) = (random.below(body.len() - 4), random.below(body.len() - 4));
        match random.below(3) {
            0 => changed[at] = random.below(12) as u8,
            1 => changed[at] = changed[at].wrapping_add(1),
            _ => changed.copy_within(from..from + 4, at),
        }
        let Ok(program) = Program::from_section(&changed) else { continue };
        let large = |spec: &Spec| spec.shape.iter().filter_map(|e| e.known()).any(|n| n > 1 << 10);
        if program.vars().filter_map(|(_, v)| v.spec()).any(large) {
            continue;
        }
        loaded += 1;
        let used = AssertUnwindSafe(|| {
            let _ = (program.to_string(), program.dot());
            let mut executor = Executor::new(&program, &registry(), &[out.id(), loss.id()], 1)?;
            executor.run(&mut Scope::of(&program)?, &Run::train(&[(x.id(), &value)], 0))
        });
        let outcome = catch_unwind(used).unwrap_or_else(|_| panic!("round {round}"));
        ran += usize::from(outcome.is_ok());
    }
    assert!(loaded > 50 && ran > 10, "{loaded} {ran}");
}
