//! The macro [`operator!`](crate::operator!), which declares an operator: kind, documentation, attributes, slots, and append
//! methods.

use super::var::Var;

/// The argument of an append method for one input slot: a variable, an optional variable, or several variables.
pub trait InputArgument {
    /// Returns the variables for the slot, in order; an optional variable that is missing gives an empty list.
    fn vars(&self) -> &[Var];
}

impl InputArgument for Var {
    fn vars(&self) -> &[Var] {
        std::slice::from_ref(self)
    }
}

impl InputArgument for Option<Var> {
    fn vars(&self) -> &[Var] {
        self.as_slice()
    }
}

impl InputArgument for &[Var] {
    fn vars(&self) -> &[Var] {
        self
    }
}

/// Declares the type of an operator, a constant with the index of each slot, and the methods that append the operator. The macro
/// also writes the documentation, and the code that reads and writes the attributes. The macro does not declare the computation:
/// implement the trait [`Op`](crate::operator::Op) for the type.
///
/// ```
/// use unpadded::op::{Backward, CheckCase, Forward, Gradient, InferShape, Op, Spec, testing};
/// use unpadded::{Builder, DType, Registry, Result, Var, operator, ops, with_float};
///
/// operator! {
///     /// `out = x · sqrt(x² + soft)`, every element.
///     ///
///     /// # Errors
///     /// If `x` holds no floats.
///     pub struct Grow = "acme.grow" { soft: f64 }
///     inputs { X = x: one }
///     outputs { OUT = out: one }
///     pub trait BuildGrow, ApplyGrow { fn grow(&self, x: Var, soft: f64) -> Var; }
/// }
///
/// impl Op for Grow {
///     fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
///         s.is_float(Self::X)?;
///         s.set(Self::OUT, s.input(Self::X).clone());
///         Ok(())
///     }
///
///     fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
///         // `T` is f32 or f64, so that its own methods can be called.
///         with_float!(run.dtype(Self::X), T => {
///             let (x, mut out) = (run.input::<T>(Self::X)?, run.output::<T>(Self::OUT)?);
///             for (out, &x) in out.iter_mut().flatten().zip(x.iter().flatten()) {
///                 *out = x * (x * x + self.soft as T).sqrt();
///             }
///             Ok(())
///         })
///     }
///
///     // The gradient of `x` is computed from `x`; the output's value may be freed by then.
///     fn gradient(&self, _wrt: usize, _inputs: &[Vec<Spec>]) -> Gradient {
///         Gradient::reads_nothing().input(Self::X)
///     }
///
///     fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
///         with_float!(run.dtype(Self::X), T => {
///             let (x, g) = (run.input::<T>(Self::X)?, run.output_gradient::<T>(Self::OUT)?);
///             let (Some(g), Some((mut dx, store))) = (g, run.gradient::<T>(Self::X)?) else { return Ok(()) };
///             for (dx, (&x, &g)) in dx.iter_mut().flatten().zip(x.iter().flatten().zip(g.iter().flatten())) {
///                 let root = (x * x + self.soft as T).sqrt();
///                 // Written or added, as the call requests.
///                 store.put(dx, g * (root + x * x / root));
///             }
///             Ok(())
///         })
///     }
///
///     fn samples() -> Result<Vec<CheckCase>> {
///         CheckCase::of_rows(&Grow { soft: 0.5 }.attributes(), 3, |sample, _| Ok(sample))
///     }
/// }
///
/// let mut registry = ops::catalogue();
/// registry.add::<Grow>()?;
/// # if false {
/// testing::check_kinds(&registry, &["acme.grow"]).unwrap(); // in a test, with the feature `testing`
/// # }
/// let net = Builder::with_registry(registry);
/// let x = net.feed("x", DType::F32, &[4], 1);
/// assert_eq!(net.spec(x.grow(1.0)), net.spec(net.grow(x, 1.0)));
/// net.finish()?;
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// - **Kind**: a string, or a plain word. A plain word means the same as the word in quotes; it does not name a constant.
/// - **Attributes** are fields of a type that implements [`Attribute`](crate::operator::attributes::Attribute). Types of
///   attributes are `bool`, `i64`, `usize`, `f64`, `String`, a `Vec` of `i64`, `usize` or `f64`, an `Option` of one of these,
///   and types that a crate defines. If the declaration is `rate: f64 = 0.5`, a stored program may lack the attribute, whose
///   value is then 0.5. The append method still has the parameter. If the declaration is `rate: f64 => read`, the function `fn
///   read(&Attributes, &str) -> Result<f64>` reads the attribute and can refuse values.
/// - **Slots**: each slot has a constant, a name that programs store, and a keyword for what it takes. `one`, `optional`,
///   `many` and `any` give the number of variables; `literal` is for a literal. A slot may have settings of
///   [`Slot`](crate::operator::Slot): `.without_gradient()`, `.updated()`, `.shape_only()`, `.any_storage()`, `.literals()`.
/// - **Kernels** (`kernels { [DENSE], [ROWS] }`, behind the inputs) list the combinations of input storages that the operator has
///   code for. Without this list, all inputs are dense. `stands_for { "linear" }` after the list declares a replacement for the
///   operator `linear`, with the same slots and attributes. If a call appends `linear` to variables in the listed storages, the
///   builder appends this operator instead. `outputs_of written` before the outputs names a method of the type: it returns the
///   output slots that an operator with its attributes has, if these are not all slots.
/// - **The method** has one parameter per input slot (`Var`, `Option<Var>` or `&[Var]`) and one per attribute (of the attribute's
///   type, or of a type that converts into it), in any order. The parameters have the names of the slots and attributes. The
///   method returns the appended outputs: a `Var`, several `Var` in a tuple or an array, or a `Vec<Var>`. The method does not
///   return a `Result`: if a call does not fit, the builder records the error, and the method returns unknown variables. If the
///   parameters are not the slots and attributes themselves, the method's body computes the slots and attributes: `fn
///   slice(&self, x: Var, columns: Range<usize>) -> Var { let (from, to) = (columns.start, columns.end); }`.
/// - **The receiver**: in this crate, `impl Builder, Var { fn … }` defines the method for both types. The first parameter of the
///   builder's method is the receiver of the variable's method: `net.grow(x, 1.0)` and `x.grow(1.0)`. In any other crate, `pub
///   trait BuildGrow, ApplyGrow { fn … }` declares two traits: the first trait is implemented for `Builder`, the second for
///   `Var`. Callers import both traits. An operator without one main input can omit `Var` and the second trait.
/// - In a declaration, the documentation comes first, then `#[doc(alias = "…")]`, then `#[derive(…)]`.
#[macro_export]
macro_rules! operator {
    (
        $(#[doc = $text:literal])*
        $(#[doc($($alias:tt)*)])*
        $(#[derive($($derived:ident),*)])?
        $visible:vis struct $type:ident = $kind:tt {
            $($(#[doc = $about:literal])* $field:ident: $holds:ty $(= $default:expr)? $(=> $read:path)?),* $(,)?
        }
        inputs { $($input:ident = $input_name:ident: $input_arity:ident $(.$input_more:ident($($input_argument:expr)?))*),* $(,)? }
        $(kernels { $($kernel:expr),* $(,)? })?
        $(stands_for { $($stood:literal),* $(,)? })?
        $(outputs_of $outputs_of:ident)?
        outputs { $($output:ident = $output_name:ident: $output_arity:ident $(.$output_more:ident($($output_argument:expr)?))*),* $(,)? }
        $($method:tt)*
    ) => {
        $crate::operator_part!(type [$(#[doc = $text])*] [$($method)*] $(#[derive($($derived),*)])? $visible struct $type = $kind { $([$($about)*] $field: $holds),* });

        impl $type {
            $crate::operator_part!(numbers 0usize; $($input)*);
            $crate::operator_part!(numbers 0usize; $($output)*);

            /// Returns the operator's attributes as a program stores them.
            #[allow(dead_code)]
            $visible fn attributes(&self) -> $crate::op::Attributes {
                #[allow(unused_mut)]
                let mut attributes = $crate::op::Attributes::new();
                $($crate::op::Attribute::write(&self.$field, &mut attributes, stringify!($field));)*
                attributes
            }
        }

        impl $crate::op::DeclaredOp for $type {
            fn declaration() -> &'static $crate::op::Declaration {
                const {
                    &$crate::op::Declaration {
                        kind: $crate::operator_part!(kind $kind),
                        text: concat!($($text, "\n"),*),
                        attributes: &[$(stringify!($field)),*],
                        signature: $crate::op::Signature {
                            inputs: &[$($crate::op::Slot::$input_arity(stringify!($input_name))
                                $(.$input_more($($input_argument)?))*),*],
                            outputs: &[$($crate::op::Slot::$output_arity(stringify!($output_name))
                                $(.$output_more($($output_argument)?))*),*],
                            kernels: &[$($(&$kernel),*)?],
                        },
                        stands_for: &[$($($stood),*)?],
                    }
                }
            }

            fn parse(_attributes: &$crate::op::Attributes) -> $crate::Result<Self> {
                Ok(Self {
                    $($field: $crate::operator_part!(read _attributes, $field $(= $default)? $(=> $read)?),)*
                })
            }

            fn declared(&self) -> &'static $crate::op::Declaration {
                <Self as $crate::op::DeclaredOp>::declaration()
            }

            $(fn signature(&self) -> $crate::op::Signature {
                $crate::op::Signature { outputs: self.$outputs_of(), ..self.declared().signature }
            })?
        }

        $crate::operator_part!(method $type [$(#[doc = $text])* $(#[doc($($alias)*)])*] [$($input_name)*] [$($field)*] $($method)*);
    };
}

/// The parts of the macro [`operator!`](crate::operator!): each rule expands to one part of the declaration.
#[doc(hidden)]
#[macro_export]
macro_rules! operator_part {
    (kind $kind:ident) => { stringify!($kind) };
    (kind $kind:literal) => { $kind };

    // The documentation is on the append method, where readers look for it; an operator without a method has its documentation on
    // the type.
    (type [$(#[$doc:meta])*] [] $(#[$derive:meta])? $visible:vis struct $type:ident = $kind:tt { $([$($about:literal)*] $field:ident: $holds:ty),* }) => {
        $(#[$doc])*
        $(#[$derive])?
        $visible struct $type {
            $(
                #[doc = concat!("The attribute `", stringify!($field), "`.", $($about),*)]
                $visible $field: $holds,
            )*
        }
    };
    (type [$(#[$doc:meta])*] [$($method:tt)+] $(#[$derive:meta])? $visible:vis struct $type:ident = $kind:tt { $([$($about:literal)*] $field:ident: $holds:ty),* }) => {
        #[doc = concat!("The operator `", $crate::operator_part!(kind $kind), "`.")]
        $(#[$derive])?
        $visible struct $type {
            $(
                #[doc = concat!("The attribute `", stringify!($field), "`.", $($about),*)]
                $visible $field: $holds,
            )*
        }
    };

    (numbers $number:expr;) => {};
    (numbers $number:expr; $first:ident $($rest:ident)*) => {
        #[allow(dead_code)]
        const $first: usize = $number;
        $crate::operator_part!(numbers $number + 1usize; $($rest)*);
    };

    (read $attributes:ident, $field:ident) => {
        $crate::op::Attribute::read($attributes, stringify!($field))?
    };
    (read $attributes:ident, $field:ident = $default:expr) => {
        $crate::op::or_default($attributes, stringify!($field), $default)?
    };
    (read $attributes:ident, $field:ident => $read:path) => {
        $read($attributes, stringify!($field))?
    };

    (method $type:ident $docs:tt $slots:tt $fields:tt) => {};
    (method $type:ident [$(#[$doc:meta])*] $slots:tt $fields:tt impl $on:ident $(, $also:ident)? {
        fn $name:ident $([$($generic:tt)*])? (&$self:ident $(, $parameter:ident: $takes:ty)* $(,)?) -> $gives:ty
            $({ $($before:tt)* })? $(;)?
    }) => {
        $crate::builder_methods! { $on $(, $also)?;
            $(#[$doc])*
            pub fn $name $([$($generic)*])? (&$self $(, $parameter: $takes)*) -> $gives {
                $crate::operator_part!(append $type $self $slots $fields $({ $($before)* })?)
            }
        }
    };
    (method $type:ident [$(#[$doc:meta])*] $slots:tt $fields:tt $visible:vis trait $trait:ident $(, $also:ident)? {
        fn $name:ident(&$self:ident $(, $parameter:ident: $takes:ty)* $(,)?) -> $gives:ty $({ $($before:tt)* })? $(;)?
    }) => {
        #[doc = concat!("The builder's method that appends `", stringify!($name), "` to its block.")]
        $visible trait $trait {
            $(#[$doc])*
            #[track_caller]
            fn $name(&$self $(, $parameter: $takes)*) -> $gives;
        }

        impl $trait for $crate::Builder {
            #[track_caller]
            fn $name(&$self $(, $parameter: $takes)*) -> $gives {
                $crate::operator_part!(append $type $self $slots $fields $({ $($before)* })?)
            }
        }

        $crate::operator_part!(of_var $visible $trait $($also)? [$(#[$doc])*] $name [$($parameter: $takes),*] $gives);
    };

    (of_var $visible:vis $trait:ident $docs:tt $name:ident $parameters:tt $gives:ty) => {};
    (of_var $visible:vis $trait:ident $also:ident [$(#[$doc:meta])*] $name:ident
        [$main:ident: $main_takes:ty $(, $parameter:ident: $takes:ty)*] $gives:ty
    ) => {
        #[doc = concat!("The variable's method that appends `", stringify!($name), "`.")]
        $visible trait $also {
            $(#[$doc])*
            #[track_caller]
            fn $name(self $(, $parameter: $takes)*) -> $gives;
        }

        impl $also for $crate::Var {
            #[track_caller]
            fn $name(self $(, $parameter: $takes)*) -> $gives {
                match $crate::Builder::of(self) {
                    Some(net) => <$crate::Builder as $trait>::$name(&net, self $(, $parameter)*),
                    None => $crate::op::unknown_of(self),
                }
            }
        }
    };

    (append $type:ident $self:ident [$($slot:ident)*] [$($field:ident)*] $({ $($before:tt)* })?) => {{
        $($($before)*)?
        let operator = $type { $($field: $field.into()),* };
        $self.append(
            <$type as $crate::op::DeclaredOp>::declaration().kind,
            &[$((stringify!($slot), $crate::op::InputArgument::vars(&$slot))),*],
            operator.attributes(),
        )
    }};
}

/// Defines append methods of [`Builder`](crate::program::Builder) and, if `Var` is listed too, of [`Var`](crate::program::Var).
/// In the methods of `Var`, the first parameter is the receiver. If a name precedes the methods, the macro defines another macro
/// of this name. [`ops`](crate::ops) calls that macro in the `impl` block of the operator's family.
#[doc(hidden)]
#[macro_export]
macro_rules! builder_methods {
    (Builder; $($methods:tt)*) => {
        impl $crate::Builder { $crate::builder_methods!(of_builder $($methods)*); }
    };
    (Builder, Var; $($methods:tt)*) => {
        impl $crate::Builder { $crate::builder_methods!(of_builder $($methods)*); }
        impl $crate::Var { $crate::builder_methods!(of_var $($methods)*); }
    };
    ($family:ident, Builder; $($methods:tt)*) => {
        macro_rules! $family {
            (Builder) => { $crate::builder_methods!(of_builder $($methods)*); };
            (Var) => {};
        }
    };
    ($family:ident, Builder, Var; $($methods:tt)*) => {
        macro_rules! $family {
            (Builder) => { $crate::builder_methods!(of_builder $($methods)*); };
            (Var) => { $crate::builder_methods!(of_var $($methods)*); };
        }
    };

    (of_builder $(
        $(#[$doc:meta])*
        pub fn $name:ident $([$($generic:tt)*])? (&$self:ident $(, $parameter:ident: $takes:ty)* $(,)?) -> $gives:ty $body:block
    )*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name $(<$($generic)*>)? (&$self $(, $parameter: $takes)*) -> $gives $body
    )*};
    (of_var $(
        $(#[$doc:meta])*
        pub fn $name:ident $([$($generic:tt)*])? (
            &$self:ident, $main:ident: $main_takes:ty $(, $parameter:ident: $takes:ty)* $(,)?
        ) -> $gives:ty $body:block
    )*) => {$(
        #[doc = concat!("Calls [`Builder::", stringify!($name), "`](crate::Builder::", stringify!($name), ") on this variable.")]
        #[track_caller]
        pub fn $name $(<$($generic)*>)? (self $(, $parameter: $takes)*) -> $gives {
            match $crate::Builder::of(self) {
                Some(net) => net.$name(self $(, $parameter)*),
                None => $crate::op::unknown_of(self),
            }
        }
    )*};
}
