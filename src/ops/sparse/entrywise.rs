//! Functions of one number that are 0 at 0, on what a sparse variable stores: the kernels of `tanh`, `relu`, `sqrt` and the like
//! for csr, coo and selected rows.
//!
//! out = f(x) at the entries of x (in its selected rows); what is not stored is 0 and stays so. Entries that are not stored
//! have no gradient, whatever f′(0) is.

use crate::error::{Error, ErrorKind, Result};
use crate::kernels::{Arithmetic, Store, Sweep, helpers, join, sweep};
use crate::ops::elementwise::activation;
use crate::ops::elementwise::unary::{From, Function};
use crate::program::{
    Attributes, Backward, CSR, CsrBuffer, Declaration, Declared, Forward, Gradient, InferShape, Op, ROWS,
    RowBuffer, RowValue, Sample, Signature, Slot, Spec, Stored,
};
use crate::with_float;

use super::samples::{changed, of_storages};

/// The slots of all of them.
const X: usize = 0;
const OUT: usize = 0;

/// Below this many numbers a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 15;

/// A [`Function`] that is 0 at 0, if its attributes are right.
pub(in crate::ops) trait KeepsZero: Function {
    /// The declaration of the operator on sparse variables.
    const DECLARATION: &'static Declaration;
    /// The attributes of its samples.
    fn of_samples() -> Attributes;
}

/// A [`Function`] of every stored number, as an operator.
pub(in crate::ops) struct Entrywise<F>(F);

impl<F: KeepsZero> Declared for Entrywise<F> {
    fn declaration() -> &'static Declaration {
        F::DECLARATION
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        let function = F::parse(attributes)?;
        let at_zero = sweep(AtZero(function));
        if at_zero == 0.0 {
            return Ok(Self(function));
        }
        let kind = F::declaration().kind;
        let expected = format!("those of a `{kind}` that is 0 at 0");
        Err(Error::of(ErrorKind::Program, "attributes", expected, format!("{at_zero} at 0")))
    }

    fn declared(&self) -> &'static Declaration {
        F::DECLARATION
    }
}

/// f(0).
struct AtZero<F>(F);

impl<F: Function> Sweep for AtZero<F> {
    type Output = f64;
    const PORTABLE: bool = true;

    #[inline(always)]
    fn run<A: Arithmetic>(self) -> f64 {
        self.0.value::<f64, A>(0.0)
    }
}

impl<F: KeepsZero> Op for Entrywise<F> {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        let threads = run.run().threads;
        with_float!(run.dtype(X), T => {
            if run.rows(X).is_some() {
                return run.fill_rows(OUT, |run, out| {
                    let Some(x) = run.rows(X) else { return Ok(()) };
                    out.zeros_at::<T>(x);
                    Values { function: self.0, x: flat::<T>(x)?, out: out.flat_mut::<T>()? }.share(threads);
                    Ok(())
                });
            }
            run.fill_csr(OUT, |run, out| {
                let Some(x) = run.csr(X) else { return Ok(()) };
                out.zeros_at::<T>(x);
                Values { function: self.0, x: x.values::<T>()?, out: out.values_mut::<T>()? }.share(threads);
                Ok(())
            })
        })
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        // The input says where the entries are.
        let gradient = Gradient::reads_nothing().input(X);
        if F::SLOPE_FROM == From::Output { gradient.output(OUT) } else { gradient }
    }

    fn stored(&self, _: usize) -> Stored {
        Stored::Together(&[X])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        let threads = run.run().threads;
        with_float!(run.dtype(X), T => {
            run.fill_gradient::<T>(X, 0, |run, dx, store| {
                let dout = numbers::<T>(run.output_gradient_csr(OUT), run.output_gradient_rows(OUT))?;
                let from = match F::SLOPE_FROM {
                    From::Nothing => dout,
                    From::Input => numbers::<T>(run.csr(X), run.rows(X))?,
                    From::Output => numbers::<T>(run.output_csr(OUT), run.output_rows(OUT))?,
                };
                // Without a gradient of the output there is none.
                if dout.len() == dx.len() {
                    Slopes { function: self.0, from, dout, dx, store }.share(threads);
                }
                Ok(())
            })?;
            Ok(())
        })
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<Sample>> {
        of_storages(&F::of_samples(), |mut sample| {
            let value = &mut sample.operands[0].value;
            // No kinks, and no number that the function does not take.
            *value = changed(value, |x| match x {
                _ if F::POSITIVE => x.abs() + 0.25,
                0.0 => 0.375,
                _ => x,
            })?;
            Ok(sample)
        })
    }
}

/// The stored numbers of a sparse variable; none of one that is not there.
pub(super) fn numbers<'a, T: RowValue>(
    csr: Option<&'a CsrBuffer>,
    rows: Option<&'a RowBuffer>,
) -> Result<&'a [T]> {
    match (csr, rows) {
        (Some(csr), _) => csr.values::<T>(),
        (None, Some(rows)) => flat::<T>(rows),
        (None, None) => Ok(&[]),
    }
}

/// The selected rows one after another.
pub(super) fn flat<T: RowValue>(rows: &RowBuffer) -> Result<&[T]> {
    Ok(rows.values::<T>()?.contiguous().unwrap_or(&[]))
}

/// out = f(x).
struct Values<'a, F, T> {
    function: F,
    x: &'a [T],
    out: &'a mut [T],
}

impl<F: Function, T: RowValue> Values<'_, F, T> {
    fn share(self, threads: usize) {
        let threads = helpers(self.x.len(), WORTH_A_THREAD, threads);
        if threads < 2 {
            return sweep(self);
        }
        let middle = self.x.len() / threads * (threads / 2);
        let (x, x_after) = self.x.split_at(middle);
        let (out, out_after) = self.out.split_at_mut(middle);
        let (before, after) = (Self { x, out, ..self }, Self { x: x_after, out: out_after, ..self });
        join(|| before.share(threads / 2), || after.share(threads - threads / 2));
    }
}

impl<F: Function, T: RowValue> Sweep for Values<'_, F, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        for (out, &x) in self.out.iter_mut().zip(self.x) {
            *out = self.function.value::<T, A>(x);
        }
    }
}

/// dx = dout · f'.
struct Slopes<'a, F, T> {
    function: F,
    from: &'a [T],
    dout: &'a [T],
    dx: &'a mut [T],
    store: Store,
}

impl<F: Function, T: RowValue> Slopes<'_, F, T> {
    fn share(self, threads: usize) {
        let threads = helpers(self.dx.len(), WORTH_A_THREAD, threads);
        if threads < 2 {
            return sweep(self);
        }
        let middle = self.dx.len() / threads * (threads / 2);
        let (from, from_after) = self.from.split_at(middle);
        let (dout, dout_after) = self.dout.split_at(middle);
        let (dx, dx_after) = self.dx.split_at_mut(middle);
        let before = Self { from, dout, dx, ..self };
        let after = Self { from: from_after, dout: dout_after, dx: dx_after, ..self };
        join(|| before.share(threads / 2), || after.share(threads - threads / 2));
    }
}

impl<F: Function, T: RowValue> Sweep for Slopes<'_, F, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let (function, store) = (self.function, self.store);
        for ((dx, &from), &g) in self.dx.iter_mut().zip(self.from).zip(self.dout) {
            store.put(dx, g * function.slope::<T, A>(from));
        }
    }
}

/// Declares the operators on sparse variables: for each the function, its kind and that of the dense operator, the attributes of
/// its samples, and a number with the value there.
macro_rules! entrywise {
    ($($type:ident = $kind:literal of $of:literal ($($parameter:ident = $sample:literal),*): $x:literal => $value:literal;)*) => {$(
        impl KeepsZero for activation::$type {
            const DECLARATION: &'static Declaration = &Declaration {
                kind: $kind,
                text: entrywise!(text $kind, $of, $x, $value, $(concat!(".with(\"", stringify!($parameter), "\", ", stringify!($sample), ")")),*),
                attributes: &[$(stringify!($parameter)),*],
                signature: Signature {
                    inputs: &[Slot::one("x")],
                    outputs: &[Slot::one("out")],
                    kernels: &[&[CSR], &[ROWS]],
                },
                stands_for: &[$of],
            };

            #[doc = entrywise!(text $kind, $of, $x, $value, $(concat!(".with(\"", stringify!($parameter), "\", ", stringify!($sample), ")")),*)]
            fn of_samples() -> Attributes {
                Self { $($parameter: $sample),* }.attributes()
            }
        }
    )*};
    (text $kind:literal, $of:literal, $x:literal, $value:literal, $($with:expr),*) => {
        concat!(
            "[`", $of, "`](crate::Builder::", $of, ") of what a csr, coo or selected-rows `x` stores, as which the output is stored, \
            too. It is appended where `", $of, "` is, to such a variable.\n\n\
            ```\n\
            use ndarray::array;\n\
            use unpadded::program::{Attributes, Operand};\n\
            use unpadded::tensor::{Csr, Storage};\n\
            use unpadded::{Variable, ops};\n\
            let op = ops::catalogue().parse(\"", $kind, "\", &Attributes::new()", $($with,)* ")?;\n\
            let x = Variable::new(Csr::new([2, 3], vec![0, 1, 1], vec![2], array![", $x, "])?, None)?;\n\
            let out = op.call(&[Operand::batch(\"x\", x)])?;\n\
            let Storage::Csr(out) = out[0].storage() else { panic!(\"stored otherwise\") };\n\
            assert_eq!((out.indptr(), out.indices()), ([0, 1, 1].as_slice(), [2].as_slice()));\n\
            assert!((out.values().as_slice::<f64>()?[0] - ", $value, ").abs() < 1e-6);\n\
            # Ok::<(), unpadded::Error>(())\n\
            ```\n\n\
            # Errors\n\
            If `x` holds no floats or is dense, or the attributes make the function other than 0 at 0.\n"
        )
    };
}

entrywise! {
    Abs = "sparse_abs" of "abs" (): -3.0 => 3.0;
    Clamp = "sparse_clamp" of "clamp" (low = -0.6, high = 0.9): 3.0 => 0.9;
    Elu = "sparse_elu" of "elu" (alpha = 0.7): -1.0 => -0.442484;
    Gelu = "sparse_gelu" of "gelu" (): 1.0 => 0.841192;
    LeakyRelu = "sparse_leaky_relu" of "leaky_relu" (alpha = 0.25): -4.0 => -1.0;
    Relu = "sparse_relu" of "relu" (): -3.0 => 0.0;
    Scale = "sparse_scale" of "scale" (factor = -1.5, offset = 0.0): 2.0 => -3.0;
    Silu = "sparse_silu" of "silu" (): 1.0 => 0.731059;
    Softsign = "sparse_softsign" of "softsign" (): -3.0 => -0.75;
    Sqrt = "sparse_sqrt" of "sqrt" (): 6.25 => 2.5;
    Square = "sparse_square" of "square" (): -3.0 => 9.0;
    Tanh = "sparse_tanh" of "tanh" (): 1.0 => 0.761594;
}
