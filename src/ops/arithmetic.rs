//! `add`, `sub`, `mul`, `div`, `maximum`, `minimum`: two variables, element by element.
//!
//! out = x ∘ y. Both have the same rows (the same LoD), or one of them is a constant that every row of the other meets: a
//! vector of its width, or one number. One of width 1 meets every column of its row. The output has the rows and LoD of
//! the one that has rows, and the width of the wider one; the gradient of what was repeated is the sum over its uses,
//! rows first to last. The larger or smaller of two has the whole gradient; at a tie it is x.
//!
//! ```
//! use ndarray::array;
//! use unpadded::program::{Attributes, Operand};
//! use unpadded::{Lod, Variable, ops};
//! let lod = Lod::from_lengths1(&[2, 0, 1])?;
//! let x = Variable::sequences(array![[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], lod.clone())?;
//! let mul = ops::catalogue().parse("mul", &Attributes::new())?;
//! let every_row = Operand::constant("y", array![10.0, 100.0]);
//! let out = mul.clone().call(&[Operand::batch("x", x.clone()), every_row])?;
//! assert_eq!(out[0].as_slice::<f64>()?, [10.0, 200.0, 30.0, 400.0, 50.0, 600.0]);
//! assert_eq!(out[0].lod().map(|lod| lod.to_string()), Some("[[2, 0, 1]]".into()));
//!
//! let every_column = Operand::batch("y", Variable::sequences(array![[1.0], [0.0], [2.0]], lod)?);
//! let out = mul.call(&[Operand::batch("x", x), every_column])?;
//! assert_eq!(out[0].as_slice::<f64>()?, [1.0, 2.0, 0.0, 0.0, 10.0, 12.0]);
//! # Ok::<(), unpadded::Error>(())
//! ```

use std::marker::PhantomData;

use crate::error::{Error, Result};
use crate::kernels::{Arithmetic, Float, Store, Sweep, View, ViewMut, sweep};
use crate::program::{
    Attributes, Backward, Builder, Extent, Facts, Forward, InferShape, Needs, Op, RowValue, Sample,
    Signature, Slot, Spec, Var,
};
use crate::tensor::Variable;
use crate::with_float;

use super::rowwise::{numbers, put, put_row, row_samples};

const X: usize = 0;
const Y: usize = 1;
const OUT: usize = 0;

impl Builder {
    /// x + y, row by row; either may be a constant for all rows, or a column (the module `ops::arithmetic` says which
    /// shapes meet).
    ///
    /// # Errors
    /// If the rows, widths or dtypes do not fit.
    #[track_caller]
    pub fn add(&self, x: Var, y: Var) -> Result<Var> {
        let (x, y) = self.rows_first(x, y)?;
        self.append1("add", &[("x", &[x]), ("y", &[y])], Attributes::new())
    }

    /// x − y, row by row; either may be a constant for all rows, or a column.
    ///
    /// # Errors
    /// If the rows, widths or dtypes do not fit.
    #[track_caller]
    pub fn sub(&self, x: Var, y: Var) -> Result<Var> {
        self.append1("sub", &[("x", &[x]), ("y", &[y])], Attributes::new())
    }

    /// x · y, element by element; either may be a constant for all rows, or a column.
    ///
    /// # Errors
    /// If the rows, widths or dtypes do not fit.
    #[track_caller]
    pub fn mul(&self, x: Var, y: Var) -> Result<Var> {
        let (x, y) = self.rows_first(x, y)?;
        self.append1("mul", &[("x", &[x]), ("y", &[y])], Attributes::new())
    }

    /// x / y, element by element; either may be a constant for all rows, or a column.
    ///
    /// # Errors
    /// If the rows, widths or dtypes do not fit.
    #[track_caller]
    pub fn div(&self, x: Var, y: Var) -> Result<Var> {
        self.append1("div", &[("x", &[x]), ("y", &[y])], Attributes::new())
    }

    /// The larger of x and y, element by element; either may be a constant for all rows, or a column.
    ///
    /// # Errors
    /// If the rows, widths or dtypes do not fit.
    #[track_caller]
    pub fn maximum(&self, x: Var, y: Var) -> Result<Var> {
        self.append1("maximum", &[("x", &[x]), ("y", &[y])], Attributes::new())
    }

    /// The smaller of x and y, element by element; either may be a constant for all rows, or a column.
    ///
    /// # Errors
    /// If the rows, widths or dtypes do not fit.
    #[track_caller]
    pub fn minimum(&self, x: Var, y: Var) -> Result<Var> {
        self.append1("minimum", &[("x", &[x]), ("y", &[y])], Attributes::new())
    }

    /// The two, one that has rows first.
    #[track_caller]
    fn rows_first(&self, x: Var, y: Var) -> Result<(Var, Var)> {
        let swap = !self.spec(x)?.batched() && self.spec(y)?.batched();
        Ok(if swap { (y, x) } else { (x, y) })
    }
}

/// A function of two numbers, and its derivatives.
pub(super) trait Function: Send + Sync + 'static {
    /// The operator's kind.
    const KIND: &'static str;
    /// What the derivative by x reads.
    const DX_NEEDS: Needs = Needs::nothing();
    /// What the derivative by y reads.
    const DY_NEEDS: Needs = Needs::nothing();
    /// Whether the derivatives by x and by y are 1.
    const PASSES: [bool; 2] = [false, false];
    /// Whether it is x + y.
    const SUMS: bool = false;
    /// The value.
    fn value<T: Float>(x: T, y: T) -> T;
    /// The derivative by x times `g`. What it does not need is 0.
    fn dx<T: Float>(x: T, y: T, g: T) -> T;
    /// The derivative by y times `g`.
    fn dy<T: Float>(x: T, y: T, g: T) -> T;
}

macro_rules! function {
    (
        $name:ident = $kind:literal: |$x:ident, $y:ident| $value:expr, |$g:ident| $dx:expr, $dy:expr
        $(; $fact:ident: $type:ty = $set:expr)*
    ) => {
        /// The function of the operator of that name.
        pub(super) struct $name;

        #[allow(unused_variables)]
        impl Function for $name {
            const KIND: &'static str = $kind;
            $(const $fact: $type = $set;)*

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
    };
}

function!(Add = "add": |x, y| x + y, |g| g, g; PASSES: [bool; 2] = [true, true]; SUMS: bool = true);
function!(Sub = "sub": |x, y| x - y, |g| g, -g; PASSES: [bool; 2] = [true, false]);
function!(Mul = "mul": |x, y| x * y, |g| g * y, g * x;
    DX_NEEDS: Needs = Needs::nothing().input(Y); DY_NEEDS: Needs = Needs::nothing().input(X));
function!(Div = "div": |x, y| x / y, |g| g / y, -(g * x / (y * y));
    DX_NEEDS: Needs = Needs::nothing().input(Y); DY_NEEDS: Needs = Needs::nothing().input(X).input(Y));
// NaN in either comes out, as of the others: that is what the sum is for.
function!(Maximum = "maximum": |x, y| if y > x { y } else if x >= y { x } else { x + y },
    |g| if y > x { T::ZERO } else { g }, if y > x { g } else { T::ZERO };
    DX_NEEDS: Needs = Needs::nothing().input(X).input(Y); DY_NEEDS: Needs = Needs::nothing().input(X).input(Y));
function!(Minimum = "minimum": |x, y| if y < x { y } else if x <= y { x } else { x + y },
    |g| if y < x { T::ZERO } else { g }, if y < x { g } else { T::ZERO };
    DX_NEEDS: Needs = Needs::nothing().input(X).input(Y); DY_NEEDS: Needs = Needs::nothing().input(X).input(Y));

/// A [`Function`] of two variables, as an operator.
pub(super) struct Binary<F>(PhantomData<F>);

impl<F: Function> Op for Binary<F> {
    fn kind() -> &'static str {
        F::KIND
    }

    fn parse(_: &Attributes) -> Result<Self> {
        Ok(Self(PhantomData))
    }

    fn signature(&self) -> Signature {
        const { Signature { inputs: &[Slot::one("x"), Slot::one("y")], outputs: &[Slot::one("out")] } }
    }

    fn facts(&self) -> Facts {
        Facts::row_wise()
    }

    fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
        s.is_float(X)?;
        s.same_dtype(X, Y)?;
        let (x, y) = (s.input(X), s.input(Y));
        let repeated = |spec: &Spec| spec.rows() == Extent::Known(1);
        if !repeated(x) && !repeated(y) {
            s.same_rows(X, Y)?;
        }
        if x.width() != 1 && y.width() != 1 && y.width() != x.width() {
            return Err(s.mismatch(Y, &format!("rows of {} numbers, as `x` has, or of one", x.width())));
        }
        let rows = if repeated(x) { y } else { x };
        let wide = if x.width() == 1 { y } else { x };
        let whole = [x, y].into_iter().find(|s| s.rows() == rows.rows() && s.width() == wide.width());
        s.set(OUT, whole.map_or_else(|| rows.with_width(wide.width()), Spec::clone));
        Ok(())
    }

    fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => {
            let (x, y, out) = (run.input::<T>(X)?, run.input::<T>(Y)?, run.output::<T>(OUT)?);
            let size = (out.rows(), out.width());
            // There is no gradient to read: an operand of the output's size stands for it.
            match [x, y].into_iter().find(|v| (v.rows(), v.width()) == size) {
                Some(g) => combine_rows(|x, y, _| F::value(x, y), x, y, g, out, Store::Write),
                None => combine_outer(F::value::<T>, x, y, out),
            }
            Ok(())
        })
    }

    fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
        with_float!(run.dtype(X), T => backward::<F, T>(run))
    }

    fn needs(&self, wrt: usize) -> Needs {
        if wrt == X { F::DX_NEEDS } else { F::DY_NEEDS }
    }

    fn sums(&self, inputs: &[Vec<Spec>]) -> bool {
        F::SUMS && inputs[X] == inputs[Y]
    }

    fn passes_gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> bool {
        // Not where y is broadcast: then its gradient is a sum.
        let alike = |spec: &Spec| spec.rows() == inputs[X][0].rows() && spec.width() == inputs[X][0].width();
        F::PASSES[wrt] && alike(&inputs[Y][0])
    }

    fn samples() -> Vec<Sample> {
        // Away from 0, which nothing divides by.
        let y = |rows, width| numbers(rows, width, 1).mapv(|v| if v < 0.0 { v - 0.5 } else { v + 0.5 });
        let none = Attributes::new();
        let like = |sample: Sample, x: &Variable, width| {
            let y = Variable::new(Variable::from(y(x.rows(), width)).into_parts().0, x.lod().cloned())?;
            let batched = sample.operands[0].batched;
            Ok(if batched { sample.batch("y", y) } else { sample.constant("y", y) })
        };
        let mut samples = row_samples(&none, 3, |sample, x| like(sample, x, 3));
        samples.extend(row_samples(&none, 3, |sample, x| like(sample, x, 1)));
        samples.extend(row_samples(&none, 3, |sample, _| {
            Ok(sample.constant("y", y(1, 3).remove_axis(ndarray::Axis(0))))
        }));
        samples.extend(row_samples(&none, 3, |sample, _| Ok(sample.constant("y", y(1, 1)))));
        // The other way round: x is what every row or column of y meets.
        let other = |mut sample: Sample, x: &Variable, width| {
            let values = Variable::new(Variable::from(y(x.rows(), width)).into_parts().0, x.lod().cloned())?;
            (sample.operands[0].slot, sample.operands[0].value) = ("y".to_owned(), values);
            Ok::<_, Error>(sample)
        };
        let vector = || numbers(1, 3, 2).remove_axis(ndarray::Axis(0));
        samples.extend(row_samples(&none, 3, |sample, x| Ok(other(sample, x, 3)?.constant("x", vector()))));
        samples.extend(row_samples(&none, 3, |sample, x| Ok(other(sample, x, 1)?.constant("x", vector()))));
        samples.extend(row_samples(&none, 3, |sample, x| {
            Ok(other(sample, x, 3)?.constant("x", numbers(1, 1, 2)))
        }));
        samples.extend(row_samples(&none, 1, |sample, x| like(sample, x, 3)));
        samples
    }
}

/// The row of y that row `i` of `rows` meets: its own, or the only one.
fn meeting<'a, T>(y: View<'a, T>, i: usize, rows: usize) -> &'a [T] {
    y.row(if y.rows() == rows { i } else { 0 })
}

fn backward<F: Function, T: RowValue>(run: &mut Backward<'_>) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
    // What a derivative does not need may be gone: zeros of any fitting shape stand for it.
    let zero = [T::ZERO];
    let zero = View::new(&zero, 1, 1);
    for slot in [X, Y] {
        let Some((to, store)) = run.gradient::<T>(slot)? else { continue };
        let needs = if slot == X { F::DX_NEEDS } else { F::DY_NEEDS };
        let x = if needs.has_input(X) { run.input::<T>(X)? } else { zero };
        let y = if needs.has_input(Y) { run.input::<T>(Y)? } else { zero };
        let sums = run.scratch().get::<Sums<T>>();
        match slot {
            X => gradient(F::dx::<T>, x, y, dout, (to, store), sums),
            _ => gradient(F::dy::<T>, x, y, dout, (to, store), sums),
        }
    }
    Ok(())
}

/// The gradient of an operand, added up over the rows and columns that it was repeated for.
fn gradient<T: Float>(
    f: impl Fn(T, T, T) -> T + Copy,
    x: View<'_, T>,
    y: View<'_, T>,
    dout: View<'_, T>,
    (mut to, store): (ViewMut<'_, T>, Store),
    Sums { all, row }: &mut Sums<T>,
) {
    let rows = dout.rows();
    let (own_row, own_column) = (to.rows() == rows, to.width() == dout.width());
    if own_row && own_column {
        return combine_rows(f, x, y, dout, to, store);
    }
    all.clear();
    all.resize(to.width(), T::ZERO);
    row.resize(dout.width(), T::ZERO);
    for (i, g) in dout.iter().enumerate() {
        let (x, y) = (meeting(x, i, rows), meeting(y, i, rows));
        if own_column {
            sweep(Combine { f, x, y, g, to: all, store: Store::Add });
            continue;
        }
        sweep(Combine { f, x, y, g, to: row, store: Store::Write });
        let sum: T = row.iter().copied().sum();
        if own_row {
            put_row(to.row(i), &[sum], store);
        } else {
            all[0] += sum;
        }
    }
    if !own_row {
        put_row(to.row(0), all, store);
    }
}

/// Sums over rows, and the terms of one row.
struct Sums<T> {
    all: Vec<T>,
    row: Vec<T>,
}

impl<T> Default for Sums<T> {
    fn default() -> Self {
        Self { all: Vec::new(), row: Vec::new() }
    }
}

/// Writes f(x, y) where x has the rows and y the columns, or the other way round.
fn combine_outer<T: Float>(f: impl Fn(T, T) -> T, x: View<'_, T>, y: View<'_, T>, mut to: ViewMut<'_, T>) {
    let rows = to.rows();
    for (i, to) in to.iter_mut().enumerate() {
        let (x, y) = (meeting(x, i, rows), meeting(y, i, rows));
        let at = |v: &[T], column: usize| if v.len() == 1 { v[0] } else { v[column] };
        to.iter_mut().enumerate().for_each(|(column, to)| *to = f(at(x, column), at(y, column)));
    }
}

/// Writes or adds f(x, y, g) in every row of g.
fn combine_rows<T: Float>(
    f: impl Fn(T, T, T) -> T,
    x: View<'_, T>,
    y: View<'_, T>,
    g: View<'_, T>,
    mut to: ViewMut<'_, T>,
    store: Store,
) {
    let f = &f;
    let (rows, size) = (g.rows(), (g.rows(), g.width()));
    let flat = |v: View<'_, T>| [size, (1, 1)].contains(&(v.rows(), v.width()));
    if flat(x) && flat(y) {
        let all = (x.contiguous(), y.contiguous(), g.contiguous(), to.contiguous());
        if let (Some(x), Some(y), Some(g), Some(to)) = all {
            return sweep(Combine { f, x, y, g, to, store });
        }
    }
    for (i, to) in to.iter_mut().enumerate() {
        sweep(Combine { f, x: meeting(x, i, rows), y: meeting(y, i, rows), g: g.row(i), to, store });
    }
}

/// Writes or adds f(x, y, g), where x and y have as many elements as g, or one for all.
struct Combine<'a, F, T> {
    f: F,
    x: &'a [T],
    y: &'a [T],
    g: &'a [T],
    to: &'a mut [T],
    store: Store,
}

impl<F: Fn(T, T, T) -> T, T: Float> Sweep for Combine<'_, F, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        let Combine { f, x, y, g, to, store } = self;
        let to = to.iter_mut().zip(g);
        let whole = |a: &[T]| a.len() == g.len();
        match (whole(x), whole(y)) {
            (true, true) => {
                to.zip(x.iter().zip(y)).for_each(|((to, &g), (&x, &y))| put(to, f(x, y, g), store))
            }
            (true, false) => to.zip(x).for_each(|((to, &g), &x)| put(to, f(x, y[0], g), store)),
            (false, true) => to.zip(y).for_each(|((to, &g), &y)| put(to, f(x[0], y, g), store)),
            (false, false) => to.for_each(|(to, &g)| put(to, f(x[0], y[0], g), store)),
        }
    }
}
