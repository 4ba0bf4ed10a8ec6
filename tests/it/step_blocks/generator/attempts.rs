//! Programs are remade without the refused calls until no call is refused; and once more with one mistake.

use std::collections::{BTreeMap, BTreeSet};

use unpadded::layers::{Linear, init};
use unpadded::op::{Attributes, Spec};
use unpadded::program::VarId;
use unpadded::{Builder, Error, Result, Var, Variable};

use super::{Case, Dice, F32, Item, Kind, Maker, Size, Tables, Twins, grown, words};

/// The record of earlier attempts to make a program.
#[derive(Default)]
pub(super) struct Attempts {
    /// The number of the next attempt.
    next: usize,
    /// The attempts to skip, since they were refused.
    left_out: BTreeSet<usize>,
    /// The attempt that was refused this time, and its errors; all later attempts are skipped.
    failed: Option<(usize, Error)>,
    /// The attempts that added something, and the spec of each variable that was inspected.
    succeeded: Vec<usize>,
    seen: Vec<(VarId, Spec)>,
    /// The mistake to make; it supplies the variables that the previous run recorded.
    mistake: Option<Mistake>,
}

/// A mistake at an attempt; its results are unknown from then on.
struct Mistake {
    at: usize,
    seen: std::vec::IntoIter<(VarId, Spec)>,
    dice: Dice,
    /// The operator of the wrong call and its block, as an error has to name them.
    made: Option<(String, Option<usize>)>,
}

/// Words of errors that are no user's business.
const INTERNAL: [&str; 4] = ["merged", "malformed", "a place inside the step", "internal"];

/// The refusals of the builder, counted by their words; and the refusals that do not name the line of the call, or that mention
/// internals.
type Refused = (BTreeMap<String, usize>, Vec<String>);

/// Finds the attempts to leave out so that no call of a seed's program is refused.
fn fitting(seed: u64, kind: Kind) -> Result<(BTreeSet<usize>, Refused)> {
    let (mut left_out, mut refused) = (BTreeSet::new(), Refused::default());
    loop {
        let attempts = Attempts { left_out: left_out.clone(), ..Attempts::default() };
        let (net, maker, ..) = grown(seed, kind, attempts)?;
        let Some((number, errors)) = maker.attempts.failed else {
            net.check()?;
            return Ok((left_out, refused));
        };
        for error in errors.all() {
            let (text, caller) = (error.to_string(), error.place().caller.as_deref().unwrap_or_default());
            if !caller.contains("step_blocks") || INTERNAL.iter().any(|word| text.contains(word)) {
                refused.1.push(text);
            }
            *refused.0.entry(words(error)).or_default() += 1;
        }
        assert!(left_out.insert(number), "attempt {number} was left out already");
    }
}

/// The program of a seed.
pub(crate) fn case(seed: u64, kind: Kind) -> Result<Case> {
    let (left_out, (refused, wrong)) = fitting(seed, kind)?;
    let (net, mut maker, feeds, values) = grown(seed, kind, Attempts { left_out, ..Attempts::default() })?;
    let dice = &mut maker.dice;
    let batch = feeds.batch(dice, Size::Usual)?;
    let sizes = [Size::Larger, Size::Smaller, Size::EmptySequences, Size::NoSequences];
    let others = sizes.into_iter().map(|size| feeds.batch(dice, size)).collect::<Result<_>>()?;
    let values: Vec<_> = values.iter().map(|var| var.id()).collect();
    let case = Case::of(net.finish()?, maker.registry, values[values.len() - 1], batch, values)?;
    Ok(Case { others, refused, wrong, ..case })
}

/// Returns the model of a seed, its loss, and batches by the names of its feeds.
#[allow(clippy::type_complexity)]
pub(crate) fn model(
    seed: u64,
    kind: Kind,
    batches: usize,
) -> Result<(Builder, Var, Vec<Vec<(String, Variable)>>)> {
    let (left_out, _) = fitting(seed, kind)?;
    let (net, mut maker, feeds, values) = grown(seed, kind, Attempts { left_out, ..Attempts::default() })?;
    let program = net.program()?;
    let dice = &mut maker.dice;
    let sizes = [Size::Usual, Size::Usual, Size::Smaller, Size::EmptySequences, Size::Larger];
    let mut batch = |_| {
        let size = *dice.pick(&sizes);
        let fed = feeds.batch(dice, size)?;
        Ok(fed.into_iter().map(|(id, value)| (program.var(id).name.clone(), value)).collect())
    };
    let batches = (0..batches).map(&mut batch).collect::<Result<_>>()?;
    Ok((net, values[values.len() - 1], batches))
}

/// Returns the program of a seed with gradients of tables as selected rows, its twin with dense gradients, and batches for both.
pub(crate) fn twins(seed: u64, kind: Kind, batches: usize) -> Result<Twins> {
    let rows = Kind { tables: Tables::Rows, ..kind };
    let (left_out, _) = fitting(seed, rows)?;
    let attempts = || Attempts { left_out: left_out.clone(), ..Attempts::default() };
    let (net, mut maker, feeds, values) = grown(seed, rows, attempts())?;
    let (other, ..) = grown(seed, Kind { tables: Tables::Dense, ..kind }, attempts())?;
    let dice = &mut maker.dice;
    let sizes = [Size::Usual, Size::Usual, Size::Smaller, Size::Smaller, Size::EmptySequences, Size::Larger];
    let mut batch = |_| {
        let size = *dice.pick(&sizes);
        feeds.batch(dice, size)
    };
    let batches = (0..batches).map(&mut batch).collect::<Result<_>>()?;
    let nothing = feeds.batch(dice, Size::NoSequences)?;
    let loss = values[values.len() - 1].id();
    Ok(Twins {
        rows: net.finish()?,
        dense: other.finish()?,
        registry: maker.registry,
        loss,
        batches,
        nothing,
    })
}

/// Builds the program of a seed with one wrong call, whose result replaces the correct result wherever it is used. Returns all
/// errors of the program, and the operator and the block that the error has to name; `None` if no call can be wrong.
#[allow(clippy::type_complexity)]
pub(crate) fn mistake(seed: u64) -> Result<Option<(Vec<Error>, (String, Option<usize>))>> {
    let (left_out, _) = fitting(seed, F32)?;
    let right = Attempts { left_out: left_out.clone(), ..Attempts::default() };
    let (_, maker, ..) = grown(seed, F32, right)?;
    let Attempts { succeeded, seen, .. } = maker.attempts;
    let mut dice = Dice::new(!seed);
    if succeeded.is_empty() {
        return Ok(None);
    }
    let at = *dice.pick(&succeeded);
    let wrong = Mistake { at, seen: seen.into_iter(), dice, made: None };
    let (net, maker, ..) =
        grown(seed, F32, Attempts { left_out, mistake: Some(wrong), ..Attempts::default() })?;
    let errors = net.finish().err().iter().flat_map(Error::all).cloned().collect();
    Ok(maker.attempts.mistake.and_then(|mistake| mistake.made).map(|made| (errors, made)))
}

impl Maker {
    /// Returns the item of a variable. In a program with a mistake, it describes the variable of the program without the mistake.
    pub(super) fn item(&mut self, net: &Builder, var: Var, size: f64) -> Result<Item> {
        let refused = || Error::new("a call", "to fit", "a refusal");
        let seen = match &mut self.attempts.mistake {
            Some(mistake) => mistake.seen.next(),
            None => net.spec(var).map(|spec| (var.id(), spec)),
        };
        let (id, spec) = seen.ok_or_else(refused)?;
        self.attempts.seen.push((id, spec.clone()));
        Ok(Item { var, id, spec, size, memory: false })
    }

    /// Makes a part of the program; `None` if it was refused, now or the time before.
    pub(super) fn attempt<T>(
        &mut self,
        net: &Builder,
        part: impl FnOnce(&mut Maker) -> Result<T>,
    ) -> Option<T> {
        let number = self.attempts.next;
        self.attempts.next += 1;
        if self.attempts.failed.is_some() || self.attempts.left_out.contains(&number) {
            return None;
        }
        let made = part(self).ok();
        if self.attempts.mistake.is_none()
            && self.attempts.failed.is_none()
            && let Err(errors) = net.check()
        {
            self.attempts.failed = Some((number, errors));
        }
        made.filter(|_| self.attempts.failed.is_none())
    }
}

impl Attempts {
    /// Returns the number of the next attempt.
    pub(super) fn number(&self) -> usize {
        self.next
    }

    /// An attempt made something new. If it is its turn, a wrong call takes its place.
    pub(super) fn made(&mut self, net: &Builder, number: usize, item: &mut Item) {
        let Some(mistake) = &mut self.mistake else {
            self.succeeded.push(number);
            return;
        };
        if mistake.at != number || mistake.made.is_some() {
            return;
        }
        // The operator before it, so that its number is known.
        let before = net.assign(item.var);
        let program = net.program().expect("no mistake was made yet");
        let writes = |op: &unpadded::program::OpDesc| op.writes().any(|written| written == before.id());
        let location =
            program.blocks().find_map(|(id, block)| Some((id, block.ops.iter().position(writes)?)));
        // A variable computed from sparse rows of a step is an input of the step, which no operator writes there.
        let Some((block, index)) = location else { return };
        let width = item.spec.width();
        let inputs: [(&str, &[Var]); 1] = [("x", &[before])];
        let plain = Attributes::new;
        let high = |net: &Builder| net.parameter("high", before, &[width + 1, 3], init::constant(0.5));
        let (kind, unknown): (&str, Var) = match mistake.dice.below(12) {
            0 => ("slice", net.slice(before, 0..width + 1)),
            1 => ("no operator", net.append("no operator", &inputs, plain())),
            2 => ("concat", net.concat(&[])),
            3 => ("tanh", net.append("tanh", &[("y", &[before])], plain())),
            4 => ("dropout", net.dropout(before, 1.5)),
            9 => ("add", net.add(Builder::new().feed("foreign", item.spec.dtype, &[], 0), before)),
            10 => ("mul", net.mul(net.literal("literal", 1.0), before)),
            11 => ("linear", net.layer_with(Linear::new(3).without_bias(), (high(net), None)).of(before)),
            5 => ("sub", net.sub(before, Builder::new().feed("foreign", item.spec.dtype, &[], 0))),
            6 => ("scale", net.append("scale", &inputs, plain().with("b", 1.0))),
            7 => ("assign", net.append::<(Var, Var)>("assign", &inputs, plain()).1),
            _ => ("linear", net.product(before, high(net), None)),
        };
        let operator = format!("{kind} #{}", index + 1);
        mistake.made = Some((operator, (block.0 > 0).then_some(block.0 as usize)));
        item.var = unknown;
    }
}
