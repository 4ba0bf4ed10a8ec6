//! Arithmetic on two variables, element by element: `add`, `sub`, `mul`, `div`, `div_no_nan`, `maximum`, `minimum`.

use crate::operator::ReadSlots;
use crate::ops::prelude::*;
use crate::program::Builder;

const X: usize = 0;
const Y: usize = 1;
const OUT: usize = 0;

impl Builder {
    /// Returns both operands; if exactly one operand has rows of the batch, this operand comes first.
    pub(in crate::ops) fn rows_first(&self, x: Var, y: Var) -> (Var, Var) {
        // An operand without a spec is invalid; the error is reported when the operator is appended.
        let batched = |var| self.spec_of_tensor(var).is_some_and(|spec| spec.batched());
        if !batched(x) && batched(y) { (y, x) } else { (x, y) }
    }
}

/// A function of two numbers x and y, and the derivatives of the function.
pub(in crate::ops) trait Function: DeclaredOp {
    /// The slots that the derivative with respect to x reads, then the slots that the derivative with respect to y reads.
    const READS: [ReadSlots; 2] = [ReadSlots::nothing(); 2];
    /// Whether the derivative is 1 everywhere: first with respect to x, then with respect to y.
    const PASSES: [bool; 2] = [false, false];
    /// Whether the function is x + y.
    const SUMS: bool = false;
    /// Computes the function at x and y.
    fn value<T: Float>(x: T, y: T) -> T;
    /// Computes the derivative with respect to x, multiplied by the output's gradient `g`. If [`Self::READS`] does not
    /// list the slot of an argument, the argument may be 0 instead of its value.
    fn dx<T: Float>(x: T, y: T, g: T) -> T;
    /// Computes the derivative with respect to y, multiplied by the output's gradient `g`.
    fn dy<T: Float>(x: T, y: T, g: T) -> T;
}

/// Declares functions of two numbers as operators. Each entry has the documentation, a type, a method, the value, both
/// derivatives, and the constants of [`Function`] that differ from the defaults.
macro_rules! functions {
    ($(
        $(#[doc = $text:literal])*
        $type:ident = fn $kind:ident on $($on:ident),+ $(; $first:ident)? $({ $($declared:tt)* })?
            value |$x:ident, $y:ident| $value:expr;
            slopes |$g:ident| $dx:expr, $dy:expr;
    )*) => {
        /// The operators of this file.
        pub(super) const OPERATORS: $crate::ops::family::OperatorList = entries![$(Binary<$type>),*];

        $(
        $crate::operator! {
            $(#[doc = $text])*
            /// The operands x and y have the same number of rows and the same LoD, or one operand is a constant: a
            /// vector or one number, which is broadcast over the rows of the other operand. An operand of width 1 is
            /// broadcast over the columns. The output has the number of rows and the LoD of the operand that is not
            /// broadcast over rows, and the width of the wider operand. The gradient of a broadcast operand is a sum
            /// over all rows and columns that use the operand, added in their order.
            ///
            /// # Errors
            /// It is an error if the numbers of rows, the LoDs, the widths or the dtypes of x and y do not match.
            pub(in crate::ops) struct $type = $kind {}
            inputs { X = x: one, Y = y: one }
            outputs { OUT = out: one }
            impl $($on),+ {
                fn $kind(&self, x: Var, y: Var) -> Var {
                    $(let (x, y) = self.$first(x, y);)?
                }
            }
        }

        #[allow(unused_variables)]
        impl Function for $type {
            $($($declared)*)?

            #[inline(always)]
            fn value<T: Float>($x: T, $y: T) -> T {
                $value
            }
            #[inline(always)]
            fn dx<T: Float>($x: T, $y: T, $g: T) -> T {
                $dx
            }
            #[inline(always)]
            fn dy<T: Float>($x: T, $y: T, $g: T) -> T {
                $dy
            }
        }
        )*
    };
}

functions! {
    /// Adds two variables: out = x + y, element by element; also written `x + y`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let x = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0]], Lod::from_lengths1(&[1, 0, 1])?)?;
    /// let add = ops::catalogue().parse("add", &Attributes::new())?;
    /// let every_row = Operand::constant("y", array![10.0, 100.0]);
    /// assert_eq!(add.call(&[Operand::batch("x", x), every_row])?[0].as_slice::<f64>()?, [11.0, 102.0, 13.0, 104.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Add = fn add on Builder; rows_first {
        const PASSES: [bool; 2] = [true, true];
        const SUMS: bool = true;
    }
        value |x, y| x + y;
        slopes |g| g, g;

    /// Subtracts two variables: out = x − y, element by element; also written `x - y`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let sub = ops::catalogue().parse("sub", &Attributes::new())?;
    /// let (x, y) = (Operand::constant("x", array![5.0, 2.0]), Operand::constant("y", array![1.0, 4.0]));
    /// assert_eq!(sub.call(&[x, y])?[0].as_slice::<f64>()?, [4.0, -2.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Sub = fn sub on Builder {
        const PASSES: [bool; 2] = [true, false];
    }
        value |x, y| x - y;
        slopes |g| g, -g;

    /// Multiplies two variables: out = x · y, element by element; also written `x * y`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::op::{Attributes, Operand};
    /// use unpadded::{Lod, Variable, ops};
    /// let lod = Lod::from_lengths1(&[2, 0, 1])?;
    /// let x = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], lod.clone())?;
    /// let mul = ops::catalogue().parse("mul", &Attributes::new())?;
    /// let every_column = Operand::batch("y", Variable::sequences(array![[1.0], [0.0], [2.0]], lod)?);
    /// let out = mul.call(&[Operand::batch("x", x), every_column])?;
    /// assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 0.0, 0.0, 10.0, 12.0]);
    /// assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Mul = fn mul on Builder; rows_first {
        const READS: [ReadSlots; 2] = [ReadSlots::nothing().input(Y), ReadSlots::nothing().input(X)];
    }
        value |x, y| x * y;
        slopes |g| g * y, g * x;

    /// Divides two variables: out = x / y, element by element; also written `x / y`.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let div = ops::catalogue().parse("div", &Attributes::new())?;
    /// let (x, y) = (Operand::constant("x", array![5.0, 2.0]), Operand::constant("y", array![2.0, -4.0]));
    /// assert_eq!(div.call(&[x, y])?[0].as_slice::<f64>()?, [2.5, -0.5]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Div = fn div on Builder {
        const READS: [ReadSlots; 2] = [ReadSlots::nothing().input(Y), ReadSlots::nothing().input(X).input(Y)];
    }
        value |x, y| x / y;
        slopes |g| g / y, -(g * x / (y * y));

    /// Divides x by y, element by element: out = x / y; where y is 0, out and the gradients of x and y are 0. This division is
    /// for quotients of two sums over rows, such as a weighted mean: the divisor is 0 if every row of the batch has the
    /// weight 0.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let div = ops::catalogue().parse("div_no_nan", &Attributes::new())?;
    /// let (x, y) = (Operand::constant("x", array![5.0, 2.0, 0.0]), Operand::constant("y", array![2.0, 0.0, 0.0]));
    /// assert_eq!(div.call(&[x, y])?[0].as_slice::<f64>()?, [2.5, 0.0, 0.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    DivNoNan = fn div_no_nan on Builder, Var {
        const READS: [ReadSlots; 2] = [ReadSlots::nothing().input(Y), ReadSlots::nothing().input(X).input(Y)];
    }
        value |x, y| if y == T::ZERO { T::ZERO } else { x / y };
        slopes |g| if y == T::ZERO { T::ZERO } else { g / y }, if y == T::ZERO { T::ZERO } else { -(g * x / (y * y)) };

    /// The maximum of two variables, element by element: out = max(x, y); if x or y is NaN, out is NaN. The larger of
    /// the two numbers gets the whole gradient; if both numbers are equal, x gets the gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let maximum = ops::catalogue().parse("maximum", &Attributes::new())?;
    /// let (x, y) = (Operand::constant("x", array![5.0, -2.0]), Operand::constant("y", array![1.0, 4.0]));
    /// assert_eq!(maximum.call(&[x, y])?[0].as_slice::<f64>()?, [5.0, 4.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Maximum = fn maximum on Builder, Var {
        const READS: [ReadSlots; 2] = [ReadSlots::nothing().input(X).input(Y); 2];
    }
        value |x, y| if y > x { y } else if x >= y { x } else { x + y };
        slopes |g| if y > x { T::ZERO } else { g }, if y > x { g } else { T::ZERO };

    /// The minimum of two variables, element by element: out = min(x, y); if x or y is NaN, out is NaN. The smaller of
    /// the two numbers gets the whole gradient; if both numbers are equal, x gets the gradient.
    ///
    /// ```
    /// use ndarray::array;
    /// use unpadded::ops;
    /// use unpadded::op::{Attributes, Operand};
    /// let minimum = ops::catalogue().parse("minimum", &Attributes::new())?;
    /// let (x, y) = (Operand::constant("x", array![5.0, -2.0]), Operand::constant("y", array![1.0, 4.0]));
    /// assert_eq!(minimum.call(&[x, y])?[0].as_slice::<f64>()?, [1.0, -2.0]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    Minimum = fn minimum on Builder, Var {
        const READS: [ReadSlots; 2] = [ReadSlots::nothing().input(X).input(Y); 2];
    }
        value |x, y| if y < x { y } else if x <= y { x } else { x + y };
        slopes |g| if y < x { T::ZERO } else { g }, if y < x { g } else { T::ZERO };
}

/// An operator that applies a [`Function`] to two variables, element by element.
pub(in crate::ops) struct Binary<F>(F);
family!(Binary);

/// Infers the spec of the result of an elementwise function of x and y, with broadcasting over rows and columns.
pub(in crate::ops) fn together(s: &InferShape<'_>) -> Result<Spec> {
    s.same_dtype(X, Y)?;
    let (x, y) = (s.input(X), s.input(Y));
    let repeated = |spec: &Spec| spec.rows() == Extent::Known(1);
    if !repeated(x) && !repeated(y) {
        s.same_rows(X, Y)?;
    }
    if x.width() != 1 && y.width() != 1 && y.width() != x.width() {
        let error = s.mismatch(Y, &format!("rows of {} numbers, as `x` has, or of one number", x.width()));
        let (vector, matrix) = if x.shape.len() < y.shape.len() { (x, y) } else { (y, x) };
        return Err(match (&vector.shape[..], &matrix.shape[..]) {
            ([_, height], [_, lines, Extent::Known(width)]) if height == lines => error.noted_in_code(format!(
                "`v.outer(ones)` makes a matrix from the vector `v` of each row; each row of `ones` has {width} ones"
            )),
            _ => error,
        });
    }
    let rows = if repeated(x) { y } else { x };
    let wide = if x.width() == 1 { y } else { x };
    let whole = [x, y].into_iter().find(|s| s.rows() == rows.rows() && s.width() == wide.width());
    Ok(whole.map_or_else(|| rows.with_width(wide.width()), Spec::clone))
}

impl<F: Function> Op for Binary<F> {
    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.set(OUT, together(s)?);
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => forward(run, value::<F, T>()))
    }

    fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
        // The gradient of a broadcast operand is a sum over rows or columns, so the operand does not get the output's
        // gradient unchanged.
        let size = |slot: usize| (inputs[slot][0].rows(), inputs[slot][0].width());
        Gradient::reading(F::READS[wrt]).passes(F::PASSES[wrt] && size(X) == size(Y))
    }

    fn hints(&self) -> Hints {
        Hints { sums: F::SUMS, ..Hints::default() }
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward(run, F::READS, slopes::<F, T>()))
    }

    #[cfg(feature = "testing")]
    fn samples() -> Result<Vec<CheckCase>> {
        samples()
    }
}

/// Returns the check cases of every function. `samples` is not generic, so that it is compiled only once.
#[cfg(feature = "testing")]
fn samples() -> Result<Vec<CheckCase>> {
    // The numbers of y are not near 0, because y is a divisor in `div`, and the gradient check is inaccurate near a
    // divisor of 0.
    let y = |rows, width| numbers(rows, width, 1).mapv(|v| if v < 0.0 { v - 0.5 } else { v + 0.5 });
    let none = Attributes::new();
    let like = |sample: CheckCase, x: &Variable, width| {
        let y = Variable::new(Variable::from(y(x.rows(), width)).into_parts().0, x.lod().cloned())?;
        let batched = sample.operands[0].batched;
        Ok(if batched { sample.batch("y", y) } else { sample.constant("y", y) })
    };
    let mut samples = CheckCase::of_rows(&none, 3, |sample, x| like(sample, x, 3))?;
    samples.extend(CheckCase::of_rows(&none, 3, |sample, x| like(sample, x, 1))?);
    samples.extend(CheckCase::of_rows(&none, 3, |sample, _| {
        Ok(sample.constant("y", y(1, 3).remove_axis(ndarray::Axis(0))))
    })?);
    samples.extend(CheckCase::of_rows(&none, 3, |sample, _| Ok(sample.constant("y", y(1, 1))))?);
    // The operands are exchanged here: x is broadcast over the rows or columns of y.
    let other = |mut sample: CheckCase, x: &Variable, width| {
        let values = Variable::new(Variable::from(y(x.rows(), width)).into_parts().0, x.lod().cloned())?;
        (sample.operands[0].slot, sample.operands[0].value) = ("y".to_owned(), values);
        Ok::<_, Error>(sample)
    };
    let vector = || numbers(1, 3, 2).remove_axis(ndarray::Axis(0));
    samples
        .extend(CheckCase::of_rows(&none, 3, |sample, x| Ok(other(sample, x, 3)?.constant("x", vector())))?);
    samples
        .extend(CheckCase::of_rows(&none, 3, |sample, x| Ok(other(sample, x, 1)?.constant("x", vector())))?);
    samples.extend(CheckCase::of_rows(&none, 3, |sample, x| {
        Ok(other(sample, x, 3)?.constant("x", numbers(1, 1, 2)))
    })?);
    samples.extend(CheckCase::of_rows(&none, 1, |sample, x| like(sample, x, 3))?);
    Ok(samples)
}

fn forward<T: RowValue>(run: &mut Forward<'_>, value: Combine<T>) -> Result<()> {
    let (x, y, out) = (run.input::<T>(X)?, run.input::<T>(Y)?, run.output::<T>(OUT)?);
    combine_rows(value, x, y, None, out, Assign::Write);
    Ok(())
}

/// Returns the row of y that is combined with row `i` of the result: row `i`, or the only row of a broadcast y; the result has
/// `rows` rows.
pub(in crate::ops) fn meeting<'a, T>(y: View<'a, T>, i: usize, rows: usize) -> &'a [T] {
    y.row(if y.rows() == rows { i } else { 0 })
}

fn backward<T: RowValue>(
    run: &mut Backward<'_>,
    reads: [ReadSlots; 2],
    slopes: [Combine<T>; 2],
) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
    // The buffer of a value that the derivative does not read may be overwritten by now, so one zero, which is broadcast,
    // replaces the value.
    let zero = [T::ZERO];
    let zero = View::new(&zero, 1, 1);
    for slot in [X, Y] {
        let Some((to, assign)) = run.gradient::<T>(slot)? else { continue };
        let x = if reads[slot].has_input(X) { run.input::<T>(X)? } else { zero };
        let y = if reads[slot].has_input(Y) { run.input::<T>(Y)? } else { zero };
        gradient(slopes[slot], x, y, dout, (to, assign), run.scratch().get::<Sums<T>>());
    }
    Ok(())
}

/// Computes the gradient of an operand. If the operand was broadcast, its gradient is the sum over the rows and columns
/// to which the operand was broadcast.
fn gradient<T: Float>(
    f: Combine<T>,
    x: View<'_, T>,
    y: View<'_, T>,
    dout: View<'_, T>,
    (mut to, assign): (ViewMut<'_, T>, Assign),
    Sums { all, row }: &mut Sums<T>,
) {
    let rows = dout.rows();
    let (own_row, own_column) = (to.rows() == rows, to.width() == dout.width());
    if own_row && own_column {
        return combine_rows(f, x, y, Some(dout), to, assign);
    }
    all.clear();
    all.resize(to.width(), T::ZERO);
    row.resize(dout.width(), T::ZERO);
    for (i, g) in dout.iter().enumerate() {
        let (x, y) = (meeting(x, i, rows), meeting(y, i, rows));
        if own_column {
            f(Elements { x, y, g, to: all, assign: Assign::Add });
            continue;
        }
        f(Elements { x, y, g, to: row, assign: Assign::Write });
        let sum: T = row.iter().copied().sum();
        if own_row {
            assign.put_row(to.row(i), &[sum]);
        } else {
            all[0] += sum;
        }
    }
    if !own_row {
        assign.put_row(to.row(0), all);
    }
}

/// Scratch memory for the gradient of a broadcast operand: the sums over all rows, and the terms of one row.
pub(in crate::ops) struct Sums<T> {
    pub(in crate::ops) all: Vec<T>,
    pub(in crate::ops) row: Vec<T>,
}

impl<T> Default for Sums<T> {
    fn default() -> Self {
        Self { all: Vec::new(), row: Vec::new() }
    }
}

/// Writes f(x, y, g) to every row of `to`, or adds f(x, y, g) to the row.
fn combine_rows<T: Float>(
    f: Combine<T>,
    x: View<'_, T>,
    y: View<'_, T>,
    g: Option<View<'_, T>>,
    mut to: ViewMut<'_, T>,
    assign: Assign,
) {
    let (rows, size) = (to.rows(), (to.rows(), to.width()));
    let flat = |v: View<'_, T>| [size, (1, 1)].contains(&(v.rows(), v.width()));
    if flat(x) && flat(y) {
        let g = g.map_or(Some(&[][..]), |g| g.contiguous());
        if let (Some(x), Some(y), Some(g), Some(to)) = (x.contiguous(), y.contiguous(), g, to.contiguous()) {
            return f(Elements { x, y, g, to, assign });
        }
    }
    for (i, to) in to.iter_mut().enumerate() {
        let g = g.map_or(&[][..], |g| g.row(i));
        f(Elements { x: meeting(x, i, rows), y: meeting(y, i, rows), g, to, assign });
    }
}

/// The operands of one call of a [`Combine`] kernel.
pub(in crate::ops) struct Elements<'a, T> {
    /// The numbers of x: as many as `to` has, or one number that is broadcast.
    pub(in crate::ops) x: &'a [T],
    /// The numbers of y: as many as `to` has, or one number that is broadcast.
    pub(in crate::ops) y: &'a [T],
    /// The gradient of the output, one number for each number of `to`; a kernel that computes a function's value does not read
    /// `g`.
    pub(in crate::ops) g: &'a [T],
    pub(in crate::ops) to: &'a mut [T],
    pub(in crate::ops) assign: Assign,
}

/// A kernel that computes a [`Function`] or one of its derivatives for the elements of one row, or of all rows if the
/// rows are contiguous. The kernel is called through a pointer, so that the loops over rows are compiled once for all
/// functions.
pub(in crate::ops) type Combine<T> = fn(Elements<'_, T>);

/// Returns the kernel that computes a function's value.
pub(in crate::ops) fn value<F: Function, T: Float>() -> Combine<T> {
    |elements| sweep(ElementLoop::<_, T, false> { f: |x, y, _| F::value(x, y), elements })
}

/// Returns the kernels that compute a function's derivatives with respect to x and y.
pub(in crate::ops) fn slopes<F: Function, T: Float>() -> [Combine<T>; 2] {
    [
        |elements| sweep(ElementLoop::<_, T, true> { f: F::dx::<T>, elements }),
        |elements| sweep(ElementLoop::<_, T, true> { f: F::dy::<T>, elements }),
    ]
}

/// A loop that writes f(x, y, g) to each element, or adds f(x, y, g) to the element.
struct ElementLoop<'a, F, T, const READS_G: bool> {
    f: F,
    elements: Elements<'a, T>,
}

impl<F: Fn(T, T, T) -> T, T: Float, const READS_G: bool> Sweep for ElementLoop<'_, F, T, READS_G> {
    type Output = ();

    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Self { f, elements: Elements { x, y, g, to, assign } } = self;
        let n = to.len();
        // The slice of `g` is cut to the length n, so that the compiler drops the bounds checks.
        let g = if READS_G { &g[..n] } else { g };
        let g = |i: usize| if READS_G { g[i] } else { T::ZERO };
        match (x.len() == n, y.len() == n) {
            (true, true) => {
                for i in 0..n {
                    assign.put(&mut to[i], f(x[i], y[i], g(i)));
                }
            }
            (true, false) => {
                let y = y[0];
                for i in 0..n {
                    assign.put(&mut to[i], f(x[i], y, g(i)));
                }
            }
            (false, true) => {
                let x = x[0];
                for i in 0..n {
                    assign.put(&mut to[i], f(x, y[i], g(i)));
                }
            }
            (false, false) => {
                let (x, y) = (x[0], y[0]);
                for (i, to) in to.iter_mut().enumerate() {
                    assign.put(to, f(x, y, g(i)));
                }
            }
        }
    }
}
