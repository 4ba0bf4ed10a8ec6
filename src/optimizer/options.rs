//! The options that every optimizer has: learning rate, gradient clipping, and parameter groups with settings of their own.

use std::fmt;
use std::sync::Arc;

use crate::error::{Error, ErrorKind, Result};
use crate::operator::Attributes;
use crate::ops::update::{rule::SparseMode, schedule::Schedule};

/// The options that every optimizer has, apart from the settings of its update rule.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Options {
    /// The base learning rate, which the schedule and the scale multiply.
    pub rate: f64,
    /// The learning rate schedule (default: constant).
    pub schedule: Schedule,
    /// Whether the state [`RATE_SCALE`](super::RATE_SCALE) multiplies the learning rate.
    pub adjustable: bool,
    /// Gradient clipping by value: the largest magnitude of a number in a gradient; `None` means no clipping by value.
    pub clip_value: Option<f64>,
    /// Gradient clipping by norm: the largest norm of the gradient of one parameter; `None` means no clipping by norm.
    pub clip_norm: Option<f64>,
    /// Gradient clipping by global norm: the largest norm of the gradients of all parameters together; `None` means no clipping
    /// by global norm.
    pub max_norm: Option<f64>,
    /// The update mode for gradients that are stored as selected rows (default: exact).
    pub mode: SparseMode,
    /// The parameter groups, each of which overrides settings for some parameters.
    pub groups: Vec<Group>,
}

impl Options {
    /// Makes options with a constant learning rate, no clipping, exact updates and no parameter groups.
    pub fn new(rate: f64) -> Self {
        Self {
            rate,
            schedule: Schedule::constant(),
            adjustable: false,
            clip_value: None,
            clip_norm: None,
            max_norm: None,
            mode: SparseMode::Exact,
            groups: Vec::new(),
        }
    }

    /// Returns the attributes of the update operator of a parameter: the attributes of the rule, overridden by the settings of
    /// the parameter's groups.
    pub(super) fn grouped(&self, name: &str, attributes: &Attributes) -> Attributes {
        let groups = self.groups.iter().filter(|group| group.which.holds(name));
        groups.fold(attributes.clone(), |attributes, group| group.over(attributes))
    }

    /// Returns an error if a group contains a name that is not the name of a trained parameter.
    pub(super) fn check_groups(&self, trained: &[&str]) -> Result<()> {
        for group in &self.groups {
            let Members::Named(names) = &group.which else { continue };
            if let Some(name) = names.iter().find(|name| !trained.contains(&name.as_str())) {
                let expected = format!("a trained parameter ({})", trained.join(", "));
                let got = format!("`{name}`");
                return Err(Error::of(ErrorKind::Program, "parameter of a group", expected, got));
            }
        }
        Ok(())
    }
}

/// A parameter group: settings for some parameters, added to any optimizer by its method [`group`](super::Sgd::group).
/// If the group does not set an option, the option of the optimizer applies to the parameters of the group. The
/// settings of the group become attributes of the update operators, so a saved program contains the settings.
///
/// ```
/// use unpadded::optimizer::{AdamW, Group, Optimizer};
/// use unpadded::op::Attributes;
/// use unpadded::program::Initializer;
/// use unpadded::{Builder, DType, ops};
/// let net = Builder::new();
/// let ones = || Initializer::new("constant", Attributes::new().with("value", 1.0));
/// let a = net.parameter("a", DType::F32, &[1, 3], ones());
/// let b = net.parameter("b.bias", DType::F32, &[3, 1], ones());
/// let loss = a.product(b, None);
/// let mut program = net.finish()?;
/// let adam = AdamW::new(1e-3)
///     .group(Group::matching(|name| name.ends_with(".bias")).weight_decay(0.0))
///     .group(Group::of(["a"]).rate(0.1));
/// adam.minimize(&mut program, &ops::catalogue(), loss.id())?;
/// let [.., a, b] = &program.root().ops[..] else { unreachable!() };
/// assert_eq!((a.attributes.float("rate_factor")?, a.attributes.float("weight_decay")?), (0.1, 0.01));
/// assert_eq!(b.attributes.float("weight_decay")?, 0.0);
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    which: Members,
    rate: Option<f64>,
    held: Option<usize>,
    weight_decay: Option<f64>,
    l1: Option<f64>,
}

/// A function that returns whether the parameter with a name is in the group.
type NamePredicate = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// The parameters of a group, given by their names or by a predicate on names.
#[derive(Clone)]
enum Members {
    Named(Vec<String>),
    Matching(NamePredicate),
}

impl Members {
    fn holds(&self, name: &str) -> bool {
        match self {
            Members::Named(names) => names.iter().any(|n| n == name),
            Members::Matching(asked) => asked(name),
        }
    }
}

impl fmt::Debug for Members {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Members::Named(names) => f.debug_tuple("Named").field(names).finish(),
            Members::Matching(_) => f.write_str("Matching(…)"),
        }
    }
}

/// Two predicates are equal if both are the same object, since functions cannot be compared.
impl PartialEq for Members {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Members::Named(a), Members::Named(b)) => a == b,
            (Members::Matching(a), Members::Matching(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Group {
    /// Makes a group of the parameters with these names. When the update operators are appended, a name that is not the name of
    /// a trained parameter is an error.
    pub fn of<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self::new(Members::Named(names.into_iter().map(Into::into).collect()))
    }

    /// Makes a group of all parameters whose names satisfy a predicate.
    pub fn matching(name: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self::new(Members::Matching(Arc::new(name)))
    }

    fn new(which: Members) -> Self {
        Self { which, rate: None, held: None, weight_decay: None, l1: None }
    }

    /// Multiplies the learning rate of the group's parameters by `factor`; the factor 0 freezes the parameters.
    #[must_use]
    pub fn rate(self, factor: f64) -> Self {
        Self { rate: Some(factor), ..self }
    }

    /// Gradual unfreezing: the parameters of the group do not move in the first `steps` steps of the training. In the first
    /// `steps` steps, the gradients of these parameters are still computed, clipped with all other gradients, and added to the
    /// moments of the update rule (Howard and Ruder, "Universal language model fine-tuning for text classification", 2018,
    /// arXiv:1801.06146).
    #[doc(alias = "unfreeze")]
    #[doc(alias = "freeze")]
    #[must_use]
    pub fn after(self, steps: usize) -> Self {
        Self { held: Some(steps), ..self }
    }

    /// Sets the weight decay of the group's parameters.
    #[must_use]
    pub fn weight_decay(self, weight_decay: f64) -> Self {
        Self { weight_decay: Some(weight_decay), ..self }
    }

    /// Sets the L1 regularisation of the group's parameters.
    #[must_use]
    pub fn l1(self, l1: f64) -> Self {
        Self { l1: Some(l1), ..self }
    }

    fn over(&self, attributes: Attributes) -> Attributes {
        let settings = [("rate_factor", self.rate), ("weight_decay", self.weight_decay), ("l1", self.l1)];
        let given = settings.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let attributes = given.fold(attributes, |attributes, (name, value)| attributes.with(name, value));
        self.held.into_iter().fold(attributes, |attributes, steps| attributes.with("held", steps))
    }
}
