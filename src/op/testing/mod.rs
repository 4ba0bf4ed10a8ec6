//! The check of operators, which compares all declarations of an operator with the operator's results. The operator is
//! called on its check cases, directly and in compiled programs.
//!
//! The Cargo feature `testing`, off by default, enables this module. A program that only runs operators compiles neither the
//! module nor the check cases of the catalogue. A crate with operators of its own enables the feature for its tests:
//!
//! ```toml
//! [dev-dependencies]
//! unpadded = { version = "0.1", features = ["testing"] }
//! ```
//!
//! For the rules in the table below, an operator needs no tests of its own, only [check cases](crate::operator::Op::samples).
//! One line of a test checks the operators of your crate:
//!
//! ```
//! use unpadded::op::{Attributes, CheckCase, Forward, InferShape, Op, testing};
//! use unpadded::{Registry, Result, Var, operator, with_float};
//!
//! operator! {
//!     /// out = 2 · x.
//!     ///
//!     /// # Errors
//!     /// If `x` holds no floats.
//!     struct Twice = "acme.twice" {}
//!     inputs { X = x: one }
//!     outputs { OUT = out: one }
//!     trait BuildTwice { fn twice(&self, x: Var) -> Var; }
//! }
//!
//! impl Op for Twice {
//!     fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
//!         s.is_float(Self::X)?;
//!         s.set(Self::OUT, s.input(Self::X).clone());
//!         Ok(())
//!     }
//!
//!     fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
//!         with_float!(run.dtype(Self::X), T => {
//!             let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
//!             out.iter_mut().flatten().zip(x.iter().flatten()).for_each(|(out, &x)| *out = x + x);
//!             Ok(())
//!         })
//!     }
//!
//!     fn samples() -> Result<Vec<CheckCase>> {
//!         CheckCase::of_rows(&Attributes::new(), 3, |sample, _| Ok(sample))
//!     }
//! }
//!
//! let mut own = Registry::empty();
//! own.add::<Twice>()?;
//! // Your own test only needs `testing::check(&own).unwrap()`. `Twice` has no gradient yet, so the check fails:
//! let failures = testing::check(&own).unwrap_err();
//! assert!(failures.iter().any(|failure| failure.kind == "acme.twice" && failure.rule == "gradient"));
//! assert!(failures.to_string().contains("gradient: gradient: expected an operator with a gradient"));
//! # Ok::<(), unpadded::Error>(())
//! ```
//!
//! # The rules
//!
//! Two results have *the same bits* if they are bit-identical.
//!
//! | rule | requirement |
//! |---|---|
//! | `samples` | check cases can be built, have readable attributes, and include an empty sequence and an empty batch |
//! | `shape and LoD` | outputs have the declared shape, dtype, storage and LoD, no NaN, and the same bits when run twice |
//! | `operands` | `forward` accepts all operands (other dtypes, rows) that the shape rule accepts, and writes all outputs |
//! | `columns` | outputs that are declared columns of the input equal these columns |
//! | `shape only` | the numbers of a slot that is declared `shape_only` have no effect, not even NaN |
//! | `gradient` | gradients equal central differences in f64, for a loss of all outputs and for a loss of each output |
//! | `requests` | a gradient has the same bits if requested alone, can be added to old values, and has the declared storage |
//! | `f32` | f32 results equal f64 results within rounding |
//! | `bf16` | with products in bf16, results equal f32 results within rounding, and exactly if no product is declared |
//! | `reads` | a gradient does not depend on values that the operator does not declare as read for this gradient |
//! | `without gradient` | an output that is declared to pass no gradient has no effect on the gradients of the inputs |
//! | `batch independence` | a call on one sequence gives the bits that the call on the batch gives for this sequence |
//! | `reach` | a call on a range of rows, or of sequences, gives the bits of the whole call |
//! | `random` | an operator depends on the seed in at least one check case if it is declared random, else in none |
//! | `sums` | an output that is declared a sum is x + y, bit for bit |
//! | `total` | an output that is declared a sum or mean is the sum or mean of the first input's numbers, within rounding |
//! | `passes` | a gradient with the declaration `passes` equals the gradient of the first output, bit for bit |
//! | `accumulates` | a forward call that adds gives the old value plus the value of a forward call that writes, bit for bit |
//! | `overwrites` | a gradient that is written over its input's value has the bits of a gradient in another buffer |
//! | `separate gradients` | separate calls, one per gradient and in any order, give the bits of one call for all gradients |
//! | `joins` | a backward call that also computes the outputs gives `forward`'s bits, and reads no output of `forward` |
//! | `prepares` | the bits are the same with prepared constants; constants are prepared only if that is declared |
//! | `merges` | one call gives the bits of two calls that share an input; the shared gradient is the sum of both |
//! | `fusions` | on its check cases, a fused operator gives the f64 results of the two replaced operators within 1e-12 |
//! | `pieces` | calls on pieces of sequences, from either end, give the bits of a call on whole sequences |
//! | `compiled` | programs that call the operator in the root block give the same bits, on 1 and 3 threads, in used buffers |
//! | `in a step` | step blocks (operator before, in or after the loop) give the bits of the interpreter's outputs |
//! | `stored in bf16` | inputs that are stored in bf16 for products in bf16 give the bits of the interpreter's outputs |
//! | `saved in bf16` | values of a step that are saved in bf16 for the backward pass give the interpreter's gradients up to rounding |
//!
//! [`check_gradients`] checks the gradients of a layer, a cell or a whole model.
//!
//! An operator that panics breaks the rule that is being checked; the other rules are checked too. If a check case
//! breaks the rule `shape and LoD`, the other rules are not checked on this check case.

mod call;
mod case;
mod compiled;

mod fusions;
mod gradients;
mod hints;
mod merges;
mod models;
mod parts;
mod pieces;
mod refusals;
mod shapes;
mod steps;
mod stored;

mod values;

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use case::Case;
pub use models::check_gradients;
use values::{Broken, Outcome};

use crate::lod::Lod;
use crate::operator::{CheckCase, Mode, Registry};
use crate::ops;

/// Checks every operator of a registry against the contract of [`Op`](crate::operator::Op), on the check cases of the operator.
/// The programs of the check also use operators of the catalogue; `check` adds these operators, so the registry may have only
/// your own operators.
///
/// # Errors
/// Returns an error that lists all broken rules, one per line.
pub fn check(registry: &Registry) -> Result<(), Failures> {
    let kinds: Vec<&str> = registry.kinds().collect();
    check_kinds(registry, &kinds)
}

/// Checks only the operators with the given kinds, such as your own operators in a registry with the catalogue; see [`check`].
///
/// # Errors
/// The errors are the errors of [`check`], and an error if a kind is not registered.
pub fn check_kinds(registry: &Registry, kinds: &[&str]) -> Result<(), Failures> {
    let all = ops::catalogue().with(registry);
    let mut failures = Vec::new();
    for &kind in kinds {
        Kind { registry: &all, kind, failures: &mut failures }.check();
    }
    if failures.is_empty() { Ok(()) } else { Err(Failures(failures)) }
}

/// A rule that an operator breaks, with the check case and the difference.
#[derive(Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kind of the operator, which is its name in programs.
    pub kind: String,
    /// The name of the check case; `None` if the failure concerns all check cases of the operator.
    pub sample: Option<String>,
    /// The mode in which the check case was run; `None` if the rule is not checked in each mode.
    pub mode: Option<Mode>,
    /// The name of the broken rule, from the table in the [module](self).
    pub rule: &'static str,
    /// The message: the difference between expected and actual results, or the error.
    pub what: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(sample) = &self.sample {
            write!(f, ", sample `{sample}`")?;
        }
        if let Some(mode) = self.mode {
            write!(f, ", {mode:?}")?;
        }
        // The message of a panic may have several lines, which are joined into one line here.
        let what = self.what.split('\n').map(str::trim).collect::<Vec<_>>().join(" ");
        write!(f, ": {}: {what}", self.rule)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// All rules that the checked operators break, as one error. Both `{}` and `{:?}` print one line per failure, so that a failed
/// `unwrap` in a test prints one line per failure too.
#[derive(Clone, PartialEq, Eq)]
pub struct Failures(Vec<Failure>);

impl Failures {
    /// Iterates over the failures, in the order of the operators' kinds and check cases.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Failure> {
        self.0.iter()
    }
}

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = self.0.len() == 1;
        write!(f, "{} failure{} of operators", self.0.len(), if one { "" } else { "s" })?;
        self.0.iter().try_for_each(|failure| write!(f, "\n{failure}"))
    }
}

impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Failures {}

type Rule<'a> = (&'static str, fn(&Case<'a>) -> Outcome);

/// Returns the rules that are checked on each check case, each with its name and its function.
fn rules<'a>() -> [Rule<'a>; 26] {
    [
        (SHAPES, Case::shapes),
        ("operands", Case::operands_that_fit),
        ("columns", Case::columns),
        ("shape only", Case::shape_only),
        ("gradient", Case::differences),
        ("requests", Case::requests),
        ("f32", Case::single_precision),
        ("bf16", Case::half_precision),
        ("reads", Case::reads),
        ("without gradient", Case::without_gradient),
        ("batch independence", Case::batch_independence),
        ("reach", Case::reach),
        (RANDOM, Case::random),
        ("total", Case::total),
        ("passes", Case::passes),
        ("accumulates", Case::accumulates),
        ("overwrites", Case::overwrites),
        ("separate gradients", Case::separate_gradients),
        ("joins", Case::joins),
        ("prepares", Case::prepares),
        ("merges", Case::merges),
        ("pieces", Case::pieces),
        ("compiled", Case::compiled),
        ("in a step", Case::in_steps),
        ("stored in bf16", Case::stored),
        ("saved in bf16", Case::saved),
    ]
}

const SAMPLES: &str = "samples";
const SHAPES: &str = "shape and LoD";
const RANDOM: &str = "random";
const SUMS: &str = "sums";
const FUSIONS: &str = "fusions";

fn panic_message(panic: &(dyn Any + Send)) -> Broken {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("something without words");
    Broken(format!("panicked: {text}"))
}

/// Calls `run`, and turns a panic into an error with the message of the panic.
fn caught<T>(run: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|panic| Err(panic_message(&*panic)))
}

/// The check of all check cases of one operator kind.
struct Kind<'a> {
    registry: &'a Registry,
    kind: &'a str,
    failures: &'a mut Vec<Failure>,
}

impl<'a> Kind<'a> {
    fn note(&mut self, case: Option<(&CheckCase, Option<Mode>)>, rule: &'static str, outcome: Outcome) {
        if let Err(Broken(what)) = outcome {
            let sample = case.map(|(sample, _)| sample.name.clone());
            let mode = case.and_then(|(_, mode)| mode);
            self.failures.push(Failure { kind: self.kind.to_owned(), sample, mode, rule, what });
        }
    }

    /// Returns the check cases of an operator kind; records a failure if they cannot be made.
    fn samples(&mut self, kind: &str) -> Vec<CheckCase> {
        let found = caught(|| Ok(self.registry.samples(kind)?));
        found.unwrap_or_else(|broken| {
            self.note(None, SAMPLES, Err(broken));
            Vec::new()
        })
    }

    fn check(&mut self) {
        if !self.registry.kinds().any(|kind| kind == self.kind) {
            return self.note(None, SAMPLES, Err(Broken("not registered".to_owned())));
        }
        let before = self.failures.len();
        let samples = self.samples(self.kind);
        if self.failures.len() > before {
            return;
        }
        for gap in gaps(&samples) {
            self.note(None, SAMPLES, Err(Broken(gap.to_owned())));
        }
        // The four flags: `random` is true if the operator is declared random; `draws` if some check case draws random numbers;
        // `sums` if the rule of sums applied to some check case; `sound` if some check case could be called.
        let (mut random, mut draws, mut sums, mut sound) = (false, false, false, false);
        let rows = |s: &CheckCase| s.operands.iter().any(|o| o.batched && o.value.rows() > 0);
        let wide = samples.iter().position(rows);
        for (number, sample) in samples.iter().enumerate() {
            let parsed = caught(|| {
                let op = self.registry.parse(self.kind, &sample.attributes)?;
                let random = op.facts().random;
                Ok((op, random))
            });
            let (op, is_random) = match parsed {
                Ok(parsed) => parsed,
                Err(broken) => {
                    self.note(Some((sample, None)), SAMPLES, Err(broken));
                    continue;
                }
            };
            random |= is_random;
            let modes: &[Mode] = if is_random { &[Mode::Infer, Mode::Train] } else { &[Mode::Infer] };
            'modes: for &mode in modes {
                let case = Case {
                    registry: self.registry,
                    kind: self.kind,
                    op: op.clone(),
                    sample: sample.clone(),
                    mode,
                    wide: Some(number) == wide,
                };
                let at = Some((sample, Some(mode)));
                for (rule, run) in rules() {
                    let outcome = caught(|| run(&case));
                    let over = rule == SHAPES && outcome.is_err();
                    self.note(at, rule, outcome);
                    // If an operator cannot be called, all other rules are skipped, since each rule would fail for the
                    // same reason.
                    if over {
                        continue 'modes;
                    }
                }
                sound = true;
                match caught(|| case.sums()) {
                    Ok(met) => sums |= met,
                    Err(broken) => {
                        sums = true;
                        self.note(at, SUMS, Err(broken));
                    }
                }
                draws |= is_random && mode == Mode::Train && caught(|| Ok(case.draws()?)).unwrap_or(true);
            }
        }
        if sound && random && !draws {
            let words = "declared, but in no sample an output depends on the seed while training";
            self.note(None, RANDOM, Err(Broken(words.to_owned())));
        }
        if sound && !sums {
            let words = "declared, but in no sample two dense inputs have the same spec";
            self.note(None, SUMS, Err(Broken(words.to_owned())));
        }
        self.fusions(&samples);
    }

    fn fusions(&mut self, samples: &[CheckCase]) {
        let registry = self.registry;
        let found = caught(|| Ok(fusions::of_kind(registry, self.kind, samples)));
        for fusion in found.unwrap_or_default() {
            let theirs = self.samples(fusion.into);
            if theirs.is_empty() {
                let words = format!("no sample of `{}`, which the two become", fusion.into);
                self.note(None, FUSIONS, Err(Broken(words)));
            }
            for sample in &theirs {
                let outcome = caught(|| {
                    let op = registry.parse(fusion.into, &sample.attributes)?;
                    let sample = sample.clone();
                    let case =
                        Case { registry, kind: fusion.into, op, sample, mode: Mode::Infer, wide: false };
                    case.fused(self.kind, &fusion)
                });
                self.note(Some((sample, None)), FUSIONS, outcome);
            }
        }
    }
}

/// Returns a message for each edge case, such as an empty sequence, that no check case has.
fn gaps(samples: &[CheckCase]) -> impl Iterator<Item = &'static str> {
    let batched = || samples.iter().flat_map(|s| &s.operands).filter(|o| o.batched);
    let lods = || batched().filter_map(|o| o.value.lod());
    let empty = |lod: &Arc<Lod>| lod.offsets().windows(2).any(|pair| pair[0] == pair[1]);
    [
        (samples.is_empty(), "no sample"),
        (lods().count() > 0 && !lods().any(empty), "no sample with an empty sequence"),
        (batched().count() > 0 && !batched().any(|o| o.value.batch_size() == 0), "no sample of no sequence"),
    ]
    .into_iter()
    .filter_map(|(gap, words)| gap.then_some(words))
}
