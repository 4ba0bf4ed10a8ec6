//! Traits and the macro that declare elementwise update rules: [`update_rule!`](crate::update_rule) and [`ElementRule`].

use std::any::Any;

use arrayvec::ArrayVec;

use super::block::{BLOCK, Block, Kernel, Move, Rule, UniformStep};
use super::decay::Decay;
use super::engine;
use super::owed::{DeferredRule, Moment, Moves, Remains, RowDebt};
use super::rule::{self, ElementStep, SparseMode};
use super::settle;
use crate::error::Result;
use crate::kernels::{Float, sweep};
use crate::operator::{
    Arity, Attributes, CallMemory, CallSizes, CheckCase, Debt, DeclaredOp, Forward, InferShape, Slot,
};
use crate::tensor::StorageKind;

/// The settings that every update rule has. [`update_rule!`](crate::update_rule) implements this trait.
pub trait RuleSettings: DeclaredOp + Clone + PartialEq {
    /// Returns the mode of the rule, exact or lazy, for gradients of selected rows.
    fn mode(&self) -> SparseMode;

    /// Returns the storage of the parameter and its states.
    fn storage(&self) -> StorageKind;

    /// Returns the factor of the learning rate for this parameter in step `step` = 1, 2, …. The factor is 0 in the first `held`
    /// steps.
    fn rate_factor(&self, step: f64) -> f64;

    /// Returns the weight decay, L1 and L2.
    fn decay(&self) -> Decay;
}

/// An elementwise update rule: the arithmetic of an update, and the effect of missed updates on a row without a gradient.
///
/// `FIELDS` is the number of variables that the rule updates, at most eight: the parameter and its states.
/// [`update_rule!`](crate::update_rule) declares the operator with its slots.
pub trait ElementRule<const FIELDS: usize>: RuleSettings {
    /// Returns the arithmetic of one update. A rule with L1 and L2 decay returns `self.decay().before(rate, step)`.
    fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, FIELDS>;

    /// Returns the learning rate of an update for this parameter: the rate in `moment` times
    /// [`rate_factor`](RuleSettings::rate_factor).
    fn rate(&self, moment: Moment) -> f64 {
        moment.rate * self.rate_factor(moment.step)
    }

    /// Returns whether an update in the mode `exact` changes a row without a gradient, and whether the change can be
    /// made later. A rule with weight decay returns the result of [`Decay::owes`].
    fn owes(&self) -> Debt {
        Debt::Nothing
    }

    /// Returns the factor by which an update without a gradient multiplies each field. The first factor, of the
    /// parameter, is ignored. `None`, the default, means that missed updates are made one by one, unless the rule
    /// combines missed updates.
    fn fall(&self) -> Option<[f64; FIELDS]> {
        None
    }

    /// Returns the number of updates without a gradient after which the state no longer moves the parameter. The missed updates
    /// up to this number are made one by one, unless the rule combines missed updates ([`is_known`](Self::is_known)).
    fn horizon(&self) -> usize {
        if self.fall().is_some() { 0 } else { usize::MAX }
    }

    /// Returns the factor by which weight decay multiplies the parameter in one update without a gradient.
    #[doc(hidden)]
    fn kept(&self, moment: Moment) -> f64 {
        self.decay().kept(self.rate(moment))
    }

    /// Returns whether only weight decay moves a row without a gradient if all states of the row are 0.
    #[doc(hidden)]
    fn rests(&self) -> bool {
        self.fall().is_some()
    }

    /// Returns the effect of zero updates: the start value to which [`earlier`](Self::earlier) adds updates one by one.
    #[doc(hidden)]
    fn none(&self) -> Moves {
        [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    }

    /// Returns the combined effect of the updates in `moves` and of one earlier update. By default, the first value of the effect
    /// is the decay factor of the parameter, and all other values are 0.
    #[doc(hidden)]
    fn earlier(&self, &[kept, ..]: &Moves, moment: Moment) -> Moves {
        [kept * self.kept(moment), 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    }

    /// Returns whether the combined effect `moves` is accurate enough to replace the single updates. If the effect is not
    /// accurate enough, missed updates are made one by one.
    #[doc(hidden)]
    fn is_known(&self, _moves: &Moves) -> bool {
        self.horizon() == 0
    }

    /// Returns the arithmetic that replaces all missed updates of a row. The returned step ignores its argument `grad`.
    #[doc(hidden)]
    fn settled<T: Float>(&self, owed: &RowDebt<'_>) -> impl ElementStep<T, FIELDS> {
        Remains::of(self.fall().unwrap_or([1.0; FIELDS]), owed)
    }
}

/// A wrapper that implements the object-safe traits of the update engine for an [`ElementRule`].
struct Erased<'a, R, const FIELDS: usize>(&'a R);

impl<R: ElementRule<N>, const N: usize> DeferredRule for Erased<'_, R, N> {
    fn owes(&self) -> Debt {
        self.0.owes()
    }

    fn none(&self) -> Moves {
        self.0.none()
    }

    fn earlier(&self, moves: &Moves, moment: Moment) -> Moves {
        self.0.earlier(moves, moment)
    }

    fn kept(&self, moment: Moment) -> f64 {
        self.0.kept(moment)
    }

    fn horizon(&self) -> usize {
        self.0.horizon()
    }

    fn is_known(&self, moves: &Moves) -> bool {
        self.0.is_known(moves)
    }

    fn rests(&self) -> bool {
        self.0.rests()
    }

    fn is(&self, other: &dyn Any) -> bool {
        other.downcast_ref() == Some(self.0)
    }

    fn copied(&self) -> Box<dyn Any + Send> {
        Box::new(self.0.clone())
    }
}

impl<T: Float, R: ElementRule<N>, const N: usize> Kernel<T> for Erased<'_, R, N> {
    fn update(&self, moment: Moment, block: Block<'_, '_, T>) {
        sweep(Move::<T, _, N> { steps: UniformStep(self.0.at(moment)), block });
    }

    fn settle(&self, owed: &[RowDebt<'_>], block: Block<'_, '_, T>) {
        let mut steps = ArrayVec::<_, BLOCK>::new();
        for owed in owed {
            steps.push(self.0.settled(owed));
        }
        sweep(Move::<T, _, N> { steps: &steps[..], block });
    }
}

impl<R: ElementRule<N>, const N: usize> Rule for Erased<'_, R, N> {
    fn fields(&self) -> usize {
        const { assert!(N > 0 && N <= crate::operator::MOST_TABLES, "a parameter and its states") };
        N
    }
}

/// The items that the code of [`update_rule!`](crate::update_rule) uses to implement `Op`.
#[doc(hidden)]
pub mod parts {
    use super::*;

    pub use crate::operator::{DENSE, ROWS};

    /// A rule with any number of fields.
    pub struct AnyRule<'a>(&'a dyn Rule);

    /// Calls `then` with a rule that updates N fields.
    pub fn with<R: ElementRule<N>, const N: usize, O>(of: &R, then: impl FnOnce(AnyRule<'_>) -> O) -> O {
        then(AnyRule(&Erased::<R, N>(of)))
    }

    impl AnyRule<'_> {
        pub fn owes(&self) -> Debt {
            self.0.owes()
        }

        pub fn infer_shape(&self, s: &mut InferShape<'_>, rule: &impl RuleSettings) -> Result<()> {
            rule.mode().infer_shape(s, self.0.fields(), rule.storage(), self.0.owes())
        }

        pub fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
            engine::update(run, self.0)
        }

        pub fn memory(&self, sizes: &CallSizes<'_>) -> CallMemory {
            engine::memory(sizes, self.0.horizon())
        }

        pub fn settle(&self, run: &mut Forward<'_>) -> Result<()> {
            settle::settle(run, self.0)
        }
    }

    pub fn samples(modes: [Attributes; 2], slots: &[Slot]) -> Result<Vec<CheckCase>> {
        let fields = slots.iter().filter(|slot| slot.arity == Arity::One).map(|slot| slot.name);
        rule::samples(modes, &fields.collect::<Vec<_>>())
    }
}

/// Declares an update operator, with the attributes, slots, shape rule, kernels and check cases that all update rules
/// have. The caller of the macro implements the arithmetic, [`ElementRule`](crate::op::ElementRule), for the declared
/// type.
///
/// ```
/// use unpadded::op::{Debt, ElementRule, ElementStep, Float, Moment, settings, testing};
/// use unpadded::{ops, update_rule};
///
/// update_rule! {
///     /// Descent along a mean of the gradients: mean += (1 − beta) · (grad − mean), param −= rate · mean.
///     pub struct Averaged = "acme.averaged" { beta: f64 => settings::fraction }
///     states { MEAN = mean }
///     samples { beta: 0.75 }
/// }
///
/// #[derive(Clone, Copy)]
/// struct Along<T> {
///     rate: T,
///     new: T,
/// }
///
/// impl<T: Float> ElementStep<T, 2> for Along<T> {
///     #[inline(always)]
///     fn step(&self, [param, mean]: [T; 2], grad: T) -> [T; 2] {
///         let mean = mean + self.new * (grad - mean);
///         [param - self.rate * mean, mean]
///     }
/// }
///
/// impl ElementRule<2> for Averaged {
///     fn at<T: Float>(&self, moment: Moment) -> impl ElementStep<T, 2> {
///         Along { rate: T::from_f64(self.rate(moment)), new: T::from_f64(1.0 - self.beta) }
///     }
///
///     // The mean also moves rows without a gradient. They make these moves when they are next read.
///     fn owes(&self) -> Debt {
///         Debt::Later
///     }
/// }
///
/// let mut registry = ops::catalogue();
/// registry.add::<Averaged>()?;
/// # if false {
/// testing::check_kinds(&registry, &["acme.averaged"]).unwrap(); // in a test
/// # }
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// - **Attributes** of the rule are declared like the attributes of [`operator!`](crate::operator!). Every rule also has
///   `mode`, `storage`, `rate_factor` and `held`.
/// - **Decay** is optional: `decay { weight_decay => settings::or_zero, decoupled = false }` adds the attributes `weight_decay`
///   (read by the given function), `l1` and `decoupled` (with the given default; without `= …`, `decoupled` is required).
/// - **States** are declared as a constant and the name of the state's slot in programs. Each state has the shape of the
///   parameter, and starts at 0, or at the given number: `states { SUM = sum = 0.1 }`.
/// - **Variants** are optional: `variants |rule| rule.centred => { false => [SQUARE], true => [SQUARE, MEAN] }` matches a value of
///   the rule with patterns, and lists the states of each case, in their order. The rule implements `ElementRule` for each number
///   of fields.
/// - **Samples** are values of the attributes with which tests [check](crate::op::testing) the rule: one block or several.
#[macro_export]
macro_rules! update_rule {
    (
        $(#[doc = $text:literal])*
        $visible:vis struct $type:ident = $kind:tt {
            $($(#[doc = $about:literal])* $field:ident: $holds:ty $(= $default:expr)? $(=> $read:path)?),* $(,)?
        }
        decay { weight_decay => $weight:path, decoupled $(= $coupled:literal)? }
        states $states:tt
        $(variants |$rule:ident| $case:expr => $variants:tt)?
        samples $({ $($sampled:ident: $sample:expr),* $(,)? })+
    ) => {
        $crate::update_rule! { @declare [$(#[doc = $text])*] [$visible] $type = $kind {
            $($(#[doc = $about])* $field: $holds $(= $default)? $(=> $read)?,)*
            /// Weight decay: the share of `param` that is added to the gradient.
            weight_decay: f64 => $weight,
            /// L1: the multiple of the sign of `param` that is added to the gradient; 0 by default.
            l1: f64 => $crate::op::settings::or_zero,
            /// Whether `weight_decay` and `l1` move `param` before the step and leave the gradient unchanged.
            decoupled: bool $(= $coupled)?,
        } states $states variants [$($rule $case => $variants)?] samples [$({ $($sampled: $sample,)* weight_decay: 0.5, l1: 0.25, })+] decay { weight_decay l1 decoupled } }
    };
    (
        $(#[doc = $text:literal])*
        $visible:vis struct $type:ident = $kind:tt {
            $($(#[doc = $about:literal])* $field:ident: $holds:ty $(= $default:expr)? $(=> $read:path)?),* $(,)?
        }
        states $states:tt
        $(variants |$rule:ident| $case:expr => $variants:tt)?
        samples $({ $($sampled:ident: $sample:expr),* $(,)? })+
    ) => {
        $crate::update_rule! { @declare [$(#[doc = $text])*] [$visible] $type = $kind {
            $($(#[doc = $about])* $field: $holds $(= $default)? $(=> $read)?,)*
        } states $states variants [$($rule $case => $variants)?] samples [$({ $($sampled: $sample,)* })+] decay {} }
    };
    (@declare [$(#[doc = $text:literal])*] [$visible:vis] $type:ident = $kind:tt { $($setting:tt)* }
        states { $($constant:ident = $state:ident $(= $start:expr)?),* $(,)? } variants [$($variants:tt)*]
        samples [$({ $($sampled:tt)* })+] decay { $($decay:ident)* }
    ) => {
        $crate::operator! {
            $(#[doc = $text])*
            #[derive(Clone, PartialEq)]
            $visible struct $type = $kind {
                mode: $crate::optimizer::SparseMode,
                /// The storage of `param` and its states: `dense` (default), or `selected_rows` for a row-sparse parameter.
                storage: $crate::tensor::StorageKind => $crate::op::settings::dense_or_rows,
                $($setting)*
                /// The factor of `rate` for this parameter; 1 by default.
                rate_factor: f64 => $crate::op::settings::or_one,
                /// The number of steps, from the first step on, in which `rate` is 0 for this parameter; 0 by default.
                held: usize => $crate::op::settings::steps,
            }
            inputs { GRAD = grad: one.without_gradient(), RATE = rate: one.without_gradient(), PAST = history: optional.without_gradient() }
            kernels { [$crate::op::DENSE], [$crate::op::ROWS] }
            outputs_of written
            outputs {
                PARAM = param: one.updated().table(),
                $($constant = $state: one.updated().table()$(.starting_at($start))?,)*
                SETTLED = settled: optional.updated(),
            }
        }

        $crate::update_rule! { @variants $type [$($constant $state)*] $($variants)* }

        impl $crate::op::RuleSettings for $type {
            fn mode(&self) -> $crate::optimizer::SparseMode {
                self.mode
            }

            fn storage(&self) -> $crate::tensor::StorageKind {
                self.storage
            }

            fn rate_factor(&self, step: f64) -> f64 {
                $crate::op::settings::after(self.held, step) * self.rate_factor
            }

            fn decay(&self) -> $crate::op::Decay {
                #[allow(clippy::needless_update)]
                $crate::op::Decay { $($decay: self.$decay,)* ..$crate::op::Decay::NONE }
            }
        }

        impl $crate::op::Op for $type {
            fn facts(&self) -> $crate::op::Facts {
                $crate::op::Facts::batch_wide($crate::op::LodEffect::Drops)
            }

            fn infer_shape(&self, s: &mut $crate::op::InferShape<'_>) -> $crate::Result<()> {
                self.erased(|rule| rule.infer_shape(s, self))
            }

            fn owes(&self) -> $crate::op::Debt {
                self.erased(|rule| rule.owes())
            }

            fn forward(&self, run: &mut $crate::op::Forward<'_>) -> $crate::Result<()> {
                self.erased(|rule| rule.forward(run))
            }

            fn memory(&self, sizes: &$crate::op::CallSizes<'_>) -> $crate::op::CallMemory {
                self.erased(|rule| rule.memory(sizes))
            }

            fn settle(&self, run: &mut $crate::op::Forward<'_>) -> $crate::Result<()> {
                self.erased(|rule| rule.settle(run))
            }

            fn samples() -> $crate::Result<Vec<$crate::op::CheckCase>> {
                let storage = $crate::tensor::StorageKind::Dense;
                let modes = [$crate::optimizer::SparseMode::Exact, $crate::optimizer::SparseMode::Lazy];
                let mut cases = Vec::new();
                $(
                    let attributes = modes.map(|mode| $type { mode, storage, rate_factor: 0.5, held: 0, $($sampled)* });
                    cases.extend($crate::op::update_parts::samples(attributes.each_ref().map($type::attributes), attributes[0].written())?);
                )+
                Ok(cases)
            }
        }
    };
    (@variants $type:ident [$($constant:ident $state:ident)*]) => {
        impl $type {
            fn erased<O>(&self, then: impl FnOnce($crate::op::update_parts::AnyRule<'_>) -> O) -> O {
                $crate::op::update_parts::with::<_, { [0, $(Self::$constant),*].len() }, _>(self, then)
            }

            fn written(&self) -> &'static [$crate::op::Slot] {
                <Self as $crate::op::DeclaredOp>::declaration().signature.outputs
            }
        }
    };
    (@variants $type:ident [$($constant:ident $state:ident)*] $rule:ident $case:expr => {
        $($pattern:pat => [$($present:ident),*]),* $(,)?
    }) => {
        impl $type {
            const FIELDS: &[&str] = &["param", $(stringify!($state)),*];

            fn erased<O>(&self, then: impl FnOnce($crate::op::update_parts::AnyRule<'_>) -> O) -> O {
                let $rule = self;
                match $case {
                    $($pattern => $crate::op::update_parts::with::<_, { [0, $(Self::$present),*].len() }, _>(self, then),)*
                }
            }

            fn written(&self) -> &'static [$crate::op::Slot] {
                let $rule = self;
                match $case {
                    $($pattern => const {
                        &[
                            $crate::op::Slot::one("param").updated().table(),
                            $($crate::op::Slot::one(Self::FIELDS[Self::$present]).updated().table(),)*
                            $crate::op::Slot::optional("settled").updated(),
                        ]
                    },)*
                }
            }
        }
    };
}
