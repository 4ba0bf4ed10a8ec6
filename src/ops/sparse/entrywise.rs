//! Functions f with f(0) = 0, applied to the stored numbers of a sparse variable: kernels of `tanh`, `relu`, `sqrt` and others
//! for csr, coo and selected rows.
//!
//! out = f(x) for every stored number of x. Numbers that x does not store are 0. These zeros stay 0 and get no gradient, even
//! if f′(0) is not 0.

use super::samples::{changed, of_storages};
use crate::kernels::{helpers, join};
use crate::operator::{CsrBuffer, RowBuffer};
use crate::ops::elementwise::activation;
use crate::ops::elementwise::unary::{Function, OverViews, SlopeSource};
use crate::ops::prelude::*;

/// Slot numbers of `x` and `out`, in all operators of this file.
const X: usize = 0;
const OUT: usize = 0;

/// With fewer stored numbers than this, a second thread costs more time than it saves.
const WORTH_A_THREAD: usize = 1 << 15;

/// A [`Function`] f with f(0) = 0; some functions are 0 at 0 only with certain attributes.
pub(in crate::ops) trait KeepsZero: Function {
    /// The declaration of this function's operator on sparse variables.
    const DECLARATION: &'static Declaration;
    /// Returns attributes for the check cases, with which the function is 0 at 0.
    fn of_samples() -> Attributes;
}

/// The operator that applies a [`Function`] to every stored number of a sparse variable.
pub(in crate::ops) struct Entrywise<F>(F);

impl<F: KeepsZero> DeclaredOp for Entrywise<F> {
    fn declaration() -> &'static Declaration {
        F::DECLARATION
    }

    fn parse(attributes: &Attributes) -> Result<Self> {
        let function = F::parse(attributes)?;
        let mut at_zero = 0.0f64;
        function.values(row(&[0.0]), row_mut(std::slice::from_mut(&mut at_zero)));
        if at_zero == 0.0 {
            return Ok(Self(function));
        }
        let kind = F::declaration().kind;
        let expected = format!("attributes of a `{kind}` that is 0 at 0");
        Err(Error::of(ErrorKind::Program, "attributes", expected, format!("{at_zero} at 0")))
    }

    fn declared(&self) -> &'static Declaration {
        F::DECLARATION
    }
}

impl<F: KeepsZero> Op for Entrywise<F> {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, s.input(X).clone());
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => forward::<T>(run, &self.0))
    }

    fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
        // The gradient has numbers at the entries of the input, so the backward pass reads the input.
        let gradient = Gradient::reads_nothing().input(X);
        if F::SLOPE_FROM == SlopeSource::Output { gradient.output(OUT) } else { gradient }
    }

    fn stored(&self, _: usize) -> StorageBound {
        StorageBound::Together(&[X])
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<T>(run, &self.0, F::SLOPE_FROM))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples(&F::of_samples(), F::POSITIVE)
    }
}

fn samples(attributes: &Attributes, positive: bool) -> Result<Vec<CheckCase>> {
    of_storages(attributes, &|mut sample| {
        let value = &mut sample.operands[0].value;
        // The arguments of the check cases avoid kinks of the function and numbers outside of its domain.
        *value = changed(value, &|x| match x {
            _ if positive => x.abs() + 0.25,
            0.0 => 0.375,
            _ => x,
        })?;
        Ok(sample)
    })
}

fn forward<T: RowValue>(run: &mut Forward<'_>, function: &dyn OverViews<T>) -> Result<()> {
    let threads = run.run().threads;
    if run.rows(X).is_some() {
        return run.fill_rows(OUT, |run, out| {
            let Some(x) = run.rows(X) else { return Ok(()) };
            out.zeros_at::<T>(x);
            values(function, flat::<T>(x)?, out.flat_mut::<T>()?, threads);
            Ok(())
        });
    }
    run.fill_csr(OUT, |run, out| {
        let Some(x) = run.csr(X) else { return Ok(()) };
        out.zeros_at::<T>(x);
        values(function, x.values::<T>()?, out.values_mut::<T>()?, threads);
        Ok(())
    })
}

fn backward<T: RowValue>(
    run: &mut Backward<'_>,
    function: &dyn OverViews<T>,
    from: SlopeSource,
) -> Result<()> {
    let threads = run.run().threads;
    run.fill_gradient::<T>(X, 0, |run, dx, assign| {
        let dout = numbers::<T>(run.output_gradient_csr(OUT), run.output_gradient_rows(OUT))?;
        let from = match from {
            SlopeSource::Nothing => dout,
            SlopeSource::Input => numbers::<T>(run.csr(X), run.rows(X))?,
            SlopeSource::Output => numbers::<T>(run.output_csr(OUT), run.output_rows(OUT))?,
        };
        // If the output has no gradient, `dout` is shorter than `dx`, and the input gets no gradient.
        if dout.len() == dx.len() {
            slopes(function, [from, dout], dx, assign, threads);
        }
        Ok(())
    })?;
    Ok(())
}

/// Returns the stored numbers of a sparse variable; an empty slice if there is neither a csr matrix nor selected rows.
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

/// Returns the selected rows as one slice, row by row.
pub(super) fn flat<T: RowValue>(rows: &RowBuffer) -> Result<&[T]> {
    Ok(rows.values::<T>()?.contiguous().unwrap_or(&[]))
}

fn row<T>(numbers: &[T]) -> View<'_, T> {
    View::new(numbers, 1, numbers.len())
}

fn row_mut<T>(numbers: &mut [T]) -> ViewMut<'_, T> {
    let len = numbers.len();
    ViewMut::new(numbers, 1, len)
}

/// Returns the index at which `len` numbers are divided into two halves, and the number of threads for each half; `None` if one
/// thread computes all numbers.
fn divided(len: usize, threads: usize) -> Option<(usize, [usize; 2])> {
    let threads = helpers(len, WORTH_A_THREAD, threads);
    (threads > 1).then(|| (len / threads * (threads / 2), [threads / 2, threads - threads / 2]))
}

/// Computes out = f(x) for a slice of numbers, on up to `threads` threads.
fn values<T: RowValue>(function: &dyn OverViews<T>, x: &[T], out: &mut [T], threads: usize) {
    let Some((middle, [left, right])) = divided(x.len(), threads) else {
        return function.values(row(x), row_mut(out));
    };
    let (x, x_after) = x.split_at(middle);
    let (out, out_after) = out.split_at_mut(middle);
    join(|| values(function, x, out, left), || values(function, x_after, out_after, right));
}

/// Computes dx = dout · f'(x), or adds dout · f'(x) to dx, for a slice of numbers, on up to `threads` threads.
fn slopes<T: RowValue>(
    function: &dyn OverViews<T>,
    [from, dout]: [&[T]; 2],
    dx: &mut [T],
    assign: Assign,
    threads: usize,
) {
    let Some((middle, [left, right])) = divided(dx.len(), threads) else {
        return function.slopes(row(from), row(dout), row_mut(dx), assign);
    };
    let (from, from_after) = from.split_at(middle);
    let (dout, dout_after) = dout.split_at(middle);
    let (dx, dx_after) = dx.split_at_mut(middle);
    join(
        || slopes(function, [from, dout], dx, assign, left),
        || slopes(function, [from_after, dout_after], dx_after, assign, right),
    );
}

/// Declares the entrywise operators on sparse variables. A line has the function, the kind of the sparse operator, the kind of
/// the dense operator, the attributes of the check cases, and an example: an argument and the value of the function.
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
            "[`", $of, "`](crate::Builder::", $of, ") of the stored numbers of a csr, coo or selected-rows `x`; the output has the \
            storage of `x`. A call of `", $of, "` with such a variable appends this operator instead.\n\n\
            ```\n\
            use ndarray::array;\n\
            use unpadded::op::{Attributes, Operand};\n\
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
            It is an error if `x` holds no floats or is dense, or if the function with these attributes is not 0 at 0.\n"
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
