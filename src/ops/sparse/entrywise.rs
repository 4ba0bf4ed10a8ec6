//! Functions f with f(0) = 0, applied to the stored numbers of a sparse variable: kernels of `tanh`, `relu`, `sqrt` and others
//! for csr, coo and selected rows.
//!
//! out = f(x) for every stored number of x. Numbers that x does not store are 0. These zeros stay 0 and get no gradient, even
//! if f′(0) is not 0.

use super::samples::{changed, of_storages};
use super::twin::twins;
use crate::kernels::{helpers, join};
use crate::operator::{CsrBuffer, Kernel, RowBuffer};
use crate::ops::elementwise::activation;
use crate::ops::elementwise::unary::{Function, OverViews, SlopeSource};
use crate::ops::prelude::*;

/// Slot numbers of `x` and `out`, in all operators of this file.
const X: usize = 0;
const OUT: usize = 0;

/// With fewer stored numbers than this, a second thread costs more time than it saves.
const WORTH_A_THREAD: usize = 1 << 15;

/// Checks that a function is 0 at 0; some functions are so only with certain attributes.
fn check(function: &dyn OverViews<f64>, kind: &str) -> Result<()> {
    let mut at_zero = 0.0f64;
    function.values(row(&[0.0]), row_mut(std::slice::from_mut(&mut at_zero)));
    if at_zero == 0.0 {
        return Ok(());
    }
    let expected = format!("attributes of a `{kind}` that is 0 at 0");
    Err(Error::of(ErrorKind::Program, "attributes", expected, format!("{at_zero} at 0")))
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

/// The methods of [`OnSparse`] for a function of one number.
macro_rules! methods {
    (($($attribute:ident = $value:literal),*) ()) => {
        fn check(&self) -> Result<()> {
            check(self, Self::kind())
        }

        fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
            s.set(OUT, s.input(X).clone());
            Ok(())
        }

        fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
            with_float!(run.dtype(X), T => forward::<T>(run, self))
        }

        fn gradient(&self, _: usize, _: &[Vec<Spec>]) -> Gradient {
            // The gradient has numbers at the entries of the input, so the backward pass reads the input.
            let gradient = Gradient::reads_nothing().input(X);
            if Self::SLOPE_FROM == SlopeSource::Output { gradient.output(OUT) } else { gradient }
        }

        fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
            with_float!(run.dtype(X), T => backward::<T>(run, self, Self::SLOPE_FROM))
        }

        #[cfg(feature = "testing")]
        fn samples() -> Result<Vec<CheckCase>> {
            samples(&Self { $($attribute: $value),* }.attributes(), Self::POSITIVE)
        }
    };
}

const KERNELS: &[Kernel] = &[&[CSR], &[ROWS]];

twins! {
    OPERATORS: methods, inputs ["x"],
    "the stored numbers of a csr, coo or selected-rows `x`; the output has the storage of `x`. The function must be 0 at 0.", "";
    activation::Abs = "sparse_abs" of "abs" () KERNELS, ();
    activation::Clamp = "sparse_clamp" of "clamp" (low = -0.6, high = 0.9) KERNELS, ();
    activation::Elu = "sparse_elu" of "elu" (alpha = 0.7) KERNELS, ();
    activation::Gelu = "sparse_gelu" of "gelu" () KERNELS, ();
    activation::LeakyRelu = "sparse_leaky_relu" of "leaky_relu" (alpha = 0.25) KERNELS, ();
    activation::Relu = "sparse_relu" of "relu" () KERNELS, ();
    activation::Scale = "sparse_scale" of "scale" (factor = -1.5, offset = 0.0) KERNELS, ();
    activation::Silu = "sparse_silu" of "silu" () KERNELS, ();
    activation::Softsign = "sparse_softsign" of "softsign" () KERNELS, ();
    activation::Sqrt = "sparse_sqrt" of "sqrt" () KERNELS, ();
    activation::Square = "sparse_square" of "square" () KERNELS, ();
    activation::Tanh = "sparse_tanh" of "tanh" () KERNELS, ();
}
