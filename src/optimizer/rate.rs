//! Changes the learning rate of a program that already has update operators: adds a scale, or copies the settings of another
//! program.

use crate::error::{Error, ErrorKind, Result};
use crate::operator::{Attributes, BlockId, Spec, VarId};
use crate::ops::update::schedule::Schedule;
use crate::program::description::initialize::CONSTANT;
use crate::program::{Initializer, OpDesc, Program, SlotVars, VarDesc, VarKind, VarRole};
use crate::tensor::DType;

/// The name of the state that multiplies the learning rate of every step, if an optimizer is
/// [`adjustable`](super::Sgd::adjustable). The state is an f32 scalar, which is 1 at the start, and is saved with the
/// training. Between steps, you may set the state to any finite number that is not negative.
///
/// ```
/// use unpadded::executor::{Executor, Run, Scope};
/// use unpadded::optimizer::{Optimizer, RATE_SCALE, Sgd};
/// use unpadded::op::Attributes;
/// use unpadded::program::Initializer;
/// use unpadded::tensor::Dense;
/// use unpadded::{Builder, DType, ops};
/// let net = Builder::new();
/// let a = net.parameter("a", DType::F32, &[1, 1], Initializer::new("zeros", Attributes::new()));
/// let loss = a.sum();
/// let mut program = net.finish()?;
/// Sgd::new(0.5).adjustable().minimize(&mut program, &ops::catalogue(), loss.id())?;
/// let mut scope = Scope::of(&program)?;
/// let mut executor = Executor::new(&program, &ops::catalogue(), &[], 1)?;
/// executor.run(&mut scope, &Run::train(&[], 0))?;
/// scope.set(RATE_SCALE, Dense::from_vec(&[], vec![0.25f32])?)?;
/// executor.run(&mut scope, &Run::train(&[], 1))?;
/// assert_eq!(scope.get("a")?.as_slice::<f32>()?, [-0.5 - 0.125]);
/// # Ok::<(), unpadded::Error>(())
/// ```
pub const RATE_SCALE: &str = "learning_rate.scale";

/// The kind of the operator that computes the learning rate.
pub(super) const LEARNING_RATE: &str = "learning_rate";
/// The input slot of `learning_rate` for the scale.
const SCALE: &str = "scale";

/// Makes the state [`RATE_SCALE`] multiply the learning rate in the variable `rate`. If the program has no variable
/// [`RATE_SCALE`], the function adds this state as the last variable.
///
/// # Errors
/// Returns an error if no operator `learning_rate` computes `rate`, or if a variable named [`RATE_SCALE`] is not a persistent
/// f32 scalar.
pub(crate) fn adjustable(program: &mut Program, rate: VarId) -> Result<()> {
    let at = operator_index(program, rate)?;
    let spec = Spec::fixed(DType::F32, &[])?;
    let scale = match program.find(RATE_SCALE) {
        Some(known) if program.spec(known)? == &spec && program.var(known).persistable => known,
        Some(_) => {
            let expected = "a persistent scalar of f32, or no variable of this name";
            let got = format!("another variable `{RATE_SCALE}`");
            return Err(Error::of(ErrorKind::Program, "scale of the learning rate", expected, got));
        }
        None => {
            let one = Initializer::new(CONSTANT, Attributes::new().with("value", 1.0));
            own(program, RATE_SCALE.to_owned(), spec, one)?
        }
    };
    let inputs = &mut program.blocks[0].ops[at].inputs;
    if !inputs.iter().any(|bound| bound.slot == SCALE) {
        inputs.push(SlotVars { slot: SCALE.to_owned(), vars: vec![scale] });
    }
    Ok(())
}

/// Returns the base of the learning rate `rate`: the number that the schedule and the scale multiply.
///
/// # Errors
/// Returns an error if no operator `learning_rate` computes `rate`.
pub(crate) fn base_rate(program: &Program, rate: VarId) -> Result<f64> {
    program.root().ops[operator_index(program, rate)?].attributes.float("base")
}

/// Copies the settings of all learning rates (base rate, schedule, scale) from the program `from` to `program`. Two operators
/// `learning_rate` correspond if they have equal positions in the root blocks of their programs; a learning rate of `program`
/// without a counterpart in `from` is unchanged.
pub(crate) fn take_rate(from: &Program, program: &mut Program) {
    let is_rate = |op: &OpDesc| op.kind == LEARNING_RATE;
    for (at, ours) in from.root().ops.iter().enumerate().filter(|(_, op)| is_rate(op)) {
        let Some(theirs) = program.blocks[0].ops.get_mut(at).filter(|op| is_rate(op)) else { continue };
        theirs.attributes = ours.attributes.clone();
        let rate = theirs.writes().next();
        if ours.input(SCALE).is_empty() {
            theirs.inputs.retain(|bound| bound.slot != SCALE);
        } else if let Some(rate) = rate {
            // If the state of the scale cannot be added, the operator in `program` gets no scale, and the two programs differ.
            adjustable(program, rate).ok();
        }
    }
    let unread = |program: &Program| !program.root().ops.iter().any(|op| !op.input(SCALE).is_empty());
    if unread(program) && program.vars.last().is_some_and(|var| var.name == RATE_SCALE) {
        program.vars.pop();
    }
}

/// Compares the learning rates of `ours` with their counterparts in `theirs`, as in [`take_rate`]. Two schedules agree on the
/// first `steps` steps if they give them equal shares of their base rates, or equal rates at the base rate of `theirs` (as with
/// an equal least rate). For the first rate whose schedules do not agree, returns the rate of the last of these steps in `theirs`,
/// and the rate of the next step in `ours`.
///
/// # Errors
/// Returns an error if a schedule has an invalid attribute.
pub(crate) fn other_past(ours: &Program, theirs: &Program, steps: u64) -> Result<Option<(f64, f64)>> {
    // A hostile file may have any number of steps, so a long past is compared at some of its steps.
    let compared = (0..steps).step_by((steps >> 16) as usize + 1).chain(steps.checked_sub(1));
    let pairs = ours.root().ops.iter().zip(&theirs.root().ops);
    for (ours, theirs) in pairs.filter(|(a, b)| a.kind == LEARNING_RATE && b.kind == LEARNING_RATE) {
        let shown =
            |op: &OpDesc| Ok::<_, Error>((Schedule::parse(&op.attributes)?, op.attributes.float("base")?));
        let ((new, new_base), (old, old_base)) = (shown(ours)?, shown(theirs)?);
        let far = |a: f64, b: f64| (a - b).abs() > 1e-9 * a.abs().max(b.abs());
        let shares = |s: u64| far(new.rate(new_base, s) * old_base, old.rate(old_base, s) * new_base);
        let rates = |s: u64| far(new.rate(old_base, s), old.rate(old_base, s));
        if compared.clone().any(shares) && compared.clone().any(rates) {
            return Ok(Some((old.rate(old_base, steps.saturating_sub(1)), new.rate(new_base, steps))));
        }
    }
    Ok(None)
}

fn operator_index(program: &Program, rate: VarId) -> Result<usize> {
    let computes = |op: &OpDesc| op.kind == LEARNING_RATE && op.writes().any(|var| var == rate);
    program.root().ops.iter().position(computes).ok_or_else(|| {
        let expected = "a variable that the operator `learning_rate` computes";
        Error::of(ErrorKind::Program, "learning rate", expected, "another variable")
    })
}

/// Adds a state variable of the optimizer to the root block: persistable and not trainable.
pub(super) fn own(
    program: &mut Program,
    name: String,
    spec: Spec,
    initializer: Initializer,
) -> Result<VarId> {
    program.add_var(VarDesc {
        persistable: true,
        stop_gradient: true,
        initializer: Some(initializer),
        ..VarDesc::new(name, BlockId(0), VarKind::Tensor(spec), VarRole::State)
    })
}
