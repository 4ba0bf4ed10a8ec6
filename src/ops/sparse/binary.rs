//! The operators `add`, `sub`, `mul`, `div`, `maximum` and `minimum` on two variables of which at least one is sparse.
//!
//! | x, y | result |
//! |---|---|
//! | csr and csr, selected rows and selected rows | the same storage, with the positions of x or y (`mul`: of both) |
//! | one sparse, one dense | for `mul`, and `div` by a dense y: the storage and positions of the sparse operand; else dense |
//!
//! A coo matrix has the memory layout of a csr matrix; the result of a csr and a coo operand is csr. A dense operand may be
//! broadcast: a vector to all rows, a single number to all rows and columns, one number per row to all columns. A sparse
//! operand cannot be broadcast.
//!
//! Numbers that a sparse operand does not store are 0, and `mul` and `div` skip these zeros. So the result has no NaN
//! from 0 · ∞ or 0 / 0, unlike the result of dense operands. A sparse operand has a gradient at its stored numbers
//! only; a dense operand has a dense gradient.

use super::meet::{
    DenseKernel, Entries, MANY, MeetKernel, SecondOperand, SelectedReader, Sparse, Zeros, beside, gather,
};
use super::samples::of_two;
use super::twin::twins;
use crate::kernels::sparse::{intersection, union};
use crate::operator::{Kernel, ReadSlots};
use crate::ops::elementwise::arithmetic::{self, Combine, Function, Sums, together};
use crate::ops::prelude::*;

/// Slot numbers of `x`, `y` and `out`, in all operators of this file.
const X: usize = 0;
const Y: usize = 1;
const OUT: usize = 0;

/// Returns the storage of the result if the operands have the storages `x` and `y`.
fn storage(zeros: Zeros, x: StorageKind, y: StorageKind) -> StorageKind {
    match (x, y) {
        (StorageKind::Dense, y) if zeros.of(Y) => y,
        (x, StorageKind::Dense) if zeros.of(X) => x,
        (StorageKind::Dense, _) | (_, StorageKind::Dense) => StorageKind::Dense,
        (x, y) if x == y => x,
        _ => StorageKind::Csr,
    }
}

/// The methods of [`OnSparse`] for a function of two numbers; the word is its [`Zeros`].
macro_rules! methods {
    (() $zeros:ident) => {
        fn infer_shape(&self, s: &mut InferShape<'_>) -> Result<()> {
            infer_shape(s, Zeros::$zeros)
        }

        fn forward(&self, run: &mut Forward<'_>) -> Result<()> {
            with_float!(run.dtype(X), T => forward(run, Zeros::$zeros, arithmetic::value::<Self, T>()))
        }

        fn gradient(&self, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
            declared_gradient::<Self>(Zeros::$zeros, wrt, inputs)
        }

        fn stored(&self) -> StorageBound {
            match Zeros::$zeros {
                Zeros::Neither => StorageBound::Together(&[X, Y]),
                Zeros::OfX => StorageBound::Together(&[X]),
                Zeros::OfEither => StorageBound::Least(&[X, Y]),
            }
        }

        fn backward(&self, run: &mut Backward<'_>) -> Result<()> {
            with_float!(run.dtype(X), T => {
                let slopes = arithmetic::slopes::<Self, T>();
                gradient(run, X, Self::READS[X], slopes[X])?;
                gradient(run, Y, Self::READS[Y], slopes[Y])
            })
        }

        #[cfg(feature = "testing")]
        fn samples() -> Result<Vec<CheckCase>> {
            of_two(Zeros::$zeros)
        }
    };
}

fn declared_gradient<F: Function>(zeros: Zeros, wrt: usize, inputs: &[Vec<Spec>]) -> Gradient {
    let [this, other] = [&inputs[wrt][0], &inputs[1 - wrt][0]];
    let reads = Gradient::reading(F::READS[wrt]);
    if this.storage != StorageKind::Dense {
        // The gradient of a sparse input has numbers at the entries of the input, so the backward pass reads the input.
        return reads.input(wrt);
    }
    let whole = (this.rows(), this.width()) == (other.rows(), other.width());
    let dense = storage(zeros, inputs[X][0].storage, inputs[Y][0].storage) == StorageKind::Dense;
    reads.passes(F::PASSES[wrt] && whole && dense)
}

fn infer_shape(s: &mut InferShape<'_>, zeros: Zeros) -> Result<()> {
    let out = together(s)?;
    let size = |spec: &Spec| (spec.rows(), spec.width());
    for slot in [X, Y] {
        if s.input(slot).storage != StorageKind::Dense && size(s.input(slot)) != size(&out) {
            return Err(s.mismatch(
                slot,
                "all rows and columns of the result, since a sparse operand is not repeated",
            ));
        }
    }
    s.set(OUT, out.stored(storage(zeros, s.input(X).storage, s.input(Y).storage)));
    Ok(())
}

fn forward<T: RowValue>(run: &mut Forward<'_>, zeros: Zeros, value: Combine<T>) -> Result<()> {
    let sparse = if run.input_spec(X).storage == StorageKind::Dense { Y } else { X };
    let f = MeetKernel::new(value, sparse);
    match run.output_spec(OUT).storage {
        StorageKind::Dense => dense(run, sparse, f),
        StorageKind::SelectedRows => rows(run, sparse, zeros, f),
        _ => entries(run, sparse, zeros, f),
    }
}

/// Computes the dense result f(sparse, dense), where the slot `sparse` has the sparse operand, and the other slot has
/// the dense operand.
fn dense<T: RowValue>(run: &mut Forward<'_>, sparse: usize, f: MeetKernel<T>) -> Result<()> {
    let (out, dense, threads) = (run.output::<T>(OUT)?, run.input::<T>(1 - sparse)?, run.run().threads);
    let zero = [T::ZERO];
    let sparse = Sparse::of(run.csr(sparse), run.rows(sparse), &zero)?;
    DenseKernel { f, sparse, dense, g: None, to: out, first: 0, assign: Assign::Write }.share(threads);
    Ok(())
}

/// Computes the result f(this, other) as selected rows. `this` is the operand in `slot`, which is selected rows;
/// `other` is the other operand.
fn rows<T: RowValue>(run: &mut Forward<'_>, slot: usize, zeros: Zeros, f: MeetKernel<T>) -> Result<()> {
    run.fill_rows(OUT, |run, out| {
        let Some(x) = run.rows(slot) else { return Ok(()) };
        out.reset::<T>(x.height(), x.width());
        let zero = [T::ZERO];
        let this = SelectedReader::of(Some(x), &zero)?;
        let mut put = |id: i64, other: &[T]| {
            let mut to = out.extend::<T>(std::iter::once(id));
            f.put(this.row(id as usize), other, &[], to.row(0), Assign::Write);
        };
        match run.rows(1 - slot) {
            None => {
                let other = run.input::<T>(1 - slot)?;
                x.ids().iter().for_each(|&id| put(id, beside(other, id as usize)));
            }
            Some(y) => {
                let others = SelectedReader::of(Some(y), &zero)?;
                for (id, in_both) in merged(x.ids(), y.ids()) {
                    if in_both || zeros == Zeros::Neither {
                        put(id, others.row(id as usize));
                    }
                }
            }
        }
        out.set_merged();
        Ok(())
    })
}

/// Merges two ascending lists: returns each element once, in ascending order, with a flag that is true if both lists contain the
/// element.
fn merged<'a>(x: &'a [i64], y: &'a [i64]) -> impl Iterator<Item = (i64, bool)> + 'a {
    let (mut i, mut j) = (0, 0);
    std::iter::from_fn(move || {
        let (a, b) = (x.get(i).copied(), y.get(j).copied());
        let id = match (a, b) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        i += usize::from(a == Some(id));
        j += usize::from(b == Some(id));
        Some((id, a == b))
    })
}

/// Computes the result f(this, other) as a sparse matrix. `this` is the operand in `slot`, which is a sparse matrix;
/// `other` is the other operand.
fn entries<T: RowValue>(run: &mut Forward<'_>, slot: usize, zeros: Zeros, f: MeetKernel<T>) -> Result<()> {
    let threads = run.run().threads;
    run.fill_csr(OUT, |run, out| {
        let Some(x) = run.csr(slot) else { return Ok(()) };
        if let Some(y) = run.csr(1 - slot) {
            let (x, y, out) = (x.view::<T>()?, y.view::<T>()?, out.fill::<T>(x.columns()));
            let f = |x: &[T], y: &[T], to: &mut [T]| f.put(x, y, &[], to, Assign::Write);
            match zeros {
                Zeros::Neither => union(x, y, &f, out),
                Zeros::OfX | Zeros::OfEither => intersection(x, y, &f, out),
            }
            return Ok(());
        }
        let (zero, other) = ([T::ZERO], SecondOperand::Dense(run.input::<T>(1 - slot)?));
        let g = SecondOperand::Dense(View::new(&zero, 1, 1));
        out.zeros_at::<T>(x);
        let to = out.values_mut::<T>()?;
        Entries { f, of: x.view::<T>()?, other, g, to, first: 0, assign: Assign::Write }.share(threads);
        Ok(())
    })
}

/// Computes the gradient of the operand in `slot`. The kernel `slope` computes the derivative with respect to this operand, and
/// reads the slots in `reads`.
fn gradient<T: RowValue>(
    run: &mut Backward<'_>,
    slot: usize,
    reads: ReadSlots,
    slope: Combine<T>,
) -> Result<()> {
    if run.input_spec(slot).storage != StorageKind::Dense {
        let f = MeetKernel::new(slope, slot);
        run.fill_gradient::<T>(slot, 0, |run, to, assign| of_stored(run, slot, reads, (to, assign), f))?;
        return Ok(());
    }
    let Some(to) = run.gradient::<T>(slot)? else { return Ok(()) };
    let f = MeetKernel::new(slope, 1 - slot);
    let mut sums = std::mem::take(run.scratch().get::<Sums<T>>());
    let outcome = match run.output_spec(OUT).storage {
        StorageKind::Dense => everywhere(run, slot, reads, to, f, &mut sums),
        _ => at_stored(run, slot, reads, to, f, &mut sums.row),
    };
    *run.scratch().get() = sums;
    outcome
}

/// Returns the dense operand in `slot`, or one zero if the kernel does not read the operand: the buffer of an operand that no
/// kernel reads may be overwritten before the backward pass.
fn read<'z, T: RowValue>(
    run: &Backward<'z>,
    reads: ReadSlots,
    slot: usize,
    zero: &'z [T; 1],
) -> Result<View<'z, T>> {
    if reads.has_input(slot) { run.input::<T>(slot) } else { Ok(View::new(zero, 1, 1)) }
}

/// Computes the gradient of a sparse operand at its stored numbers: f(sparse, other, g), where `other` is the other operand and g
/// is the gradient of the output.
fn of_stored<T: RowValue>(
    run: &Backward<'_>,
    slot: usize,
    reads: ReadSlots,
    (to, assign): (&mut [T], Assign),
    f: MeetKernel<T>,
) -> Result<()> {
    let zero = &[T::ZERO];
    let is_dense = |spec: &Spec| spec.storage == StorageKind::Dense;
    let other_dense = is_dense(run.input_spec(1 - slot));
    let dout = if is_dense(run.output_spec(OUT)) { run.output_gradient::<T>(OUT)? } else { None };
    if let Some(x) = run.csr(slot) {
        let other = match run.csr(1 - slot) {
            Some(csr) => SecondOperand::Csr(csr.view()?),
            None if other_dense => SecondOperand::Dense(read(run, reads, 1 - slot, zero)?),
            None => SecondOperand::Dense(View::new(zero, 1, 1)),
        };
        let g = match (dout, run.output_gradient_csr(OUT)) {
            (Some(dout), _) => SecondOperand::Dense(dout),
            (None, Some(dout)) => SecondOperand::Csr(dout.view()?),
            (None, None) => return Ok(()),
        };
        Entries { f, of: x.view::<T>()?, other, g, to, first: 0, assign }.share(run.run().threads);
        return Ok(());
    }
    let Some(x) = run.rows(slot).filter(|x| !x.ids().is_empty()) else { return Ok(()) };
    let dense = if other_dense { Some(read(run, reads, 1 - slot, zero)?) } else { None };
    let others = SelectedReader::of(run.rows(1 - slot), zero)?;
    let gradients = SelectedReader::of(run.output_gradient_rows(OUT), zero)?;
    for ((&id, x), to) in
        x.ids().iter().zip(x.values::<T>()?.iter()).zip(to.chunks_exact_mut(x.width().max(1)))
    {
        let id = id as usize;
        let other = dense.map_or(others.row(id), |dense| beside(dense, id));
        let g = dout.map_or(gradients.row(id), |dout| dout.row(id));
        if g.len() == to.len() {
            f.put(x, other, g, to, assign);
        } else if assign == Assign::Write {
            // The output does not store this row, so the gradient of the row is 0.
            to.fill(T::ZERO);
        }
    }
    Ok(())
}

/// Computes the gradient of a dense operand if the result is sparse: f(sparse, dense, g) at the positions that the result stores,
/// and 0 elsewhere. Here g is the gradient of the output.
fn at_stored<T: RowValue>(
    run: &Backward<'_>,
    slot: usize,
    reads: ReadSlots,
    (mut to, assign): (ViewMut<'_, T>, Assign),
    f: MeetKernel<T>,
    terms: &mut Vec<T>,
) -> Result<()> {
    if assign == Assign::Write {
        to.fill(T::ZERO);
    }
    let zero = &[T::ZERO];
    let this = read(run, reads, slot, zero)?;
    let own_rows = to.rows() > 1;
    let index = |i: usize| if own_rows { i } else { 0 };
    if let Some(g) = run.output_gradient_csr(OUT) {
        // The result has its entries at the positions of the entries of the other operand, which is the sparse operand.
        let others = run.csr(1 - slot).map(|other| other.values::<T>()).transpose()?;
        let values = g.values::<T>()?;
        let (mut there, mut terms) = ([T::ZERO; MANY], [T::ZERO; MANY]);
        for (i, pair) in g.indptr().windows(2).enumerate() {
            let (this, to) = (beside(this, i), to.row(index(i)));
            let mut sum = T::ZERO;
            let end = pair[1] as usize;
            for from in (pair[0] as usize..end).step_by(MANY) {
                let part = from..end.min(from + MANY);
                let (columns, terms) = (&g.indices()[part.clone()], &mut terms[..part.len()]);
                let other = others.map_or(&zero[..], |others| &others[part.clone()]);
                f.put(other, gather(this, columns, &mut there), &values[part], terms, Assign::Write);
                for (&column, &term) in columns.iter().zip(&*terms) {
                    if to.len() == 1 { sum += term } else { to[column as usize] += term }
                }
            }
            if let [to] = to {
                *to += sum;
            }
        }
    }
    if let Some(g) = run.output_gradient_rows(OUT).filter(|g| !g.ids().is_empty()) {
        let others = SelectedReader::of(run.rows(1 - slot), zero)?;
        for (&id, g) in g.ids().iter().zip(g.values::<T>()?.iter()) {
            let id = id as usize;
            let (this, other, to) = (beside(this, id), others.row(id), to.row(index(id)));
            if to.len() == g.len() {
                f.put(other, this, g, to, Assign::Add);
            } else {
                terms.resize(g.len(), T::ZERO);
                f.put(other, this, g, terms, Assign::Write);
                to[0] += terms.iter().copied().sum::<T>();
            }
        }
    }
    Ok(())
}

/// Computes the gradient of a dense operand if the result is dense: f(sparse, dense, g) for every element, summed over the rows
/// and columns to which the operand was broadcast. Here g is the gradient of the output.
fn everywhere<T: RowValue>(
    run: &Backward<'_>,
    slot: usize,
    reads: ReadSlots,
    (mut to, assign): (ViewMut<'_, T>, Assign),
    f: MeetKernel<T>,
    Sums { all, row }: &mut Sums<T>,
) -> Result<()> {
    let Some(dout) = run.output_gradient::<T>(OUT)? else { return Ok(()) };
    let zero = &[T::ZERO];
    let dense = read(run, reads, slot, zero)?;
    let sparse = Sparse::of(run.csr(1 - slot), run.rows(1 - slot), zero)?;
    let (own_row, own_column) = (to.rows() == dout.rows(), to.width() == dout.width());
    if own_row && own_column {
        DenseKernel { f, sparse, dense, g: Some(dout), to, first: 0, assign }.share(run.run().threads);
        return Ok(());
    }
    all.clear();
    all.resize(to.width(), T::ZERO);
    row.resize(dout.width(), T::ZERO);
    for (i, g) in dout.iter().enumerate() {
        let (sparse, dense) = (sparse.row(i), beside(dense, i));
        if own_column {
            f.put_row(sparse, dense, g, all, Assign::Add);
            continue;
        }
        f.put_row(sparse, dense, g, row, Assign::Write);
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
    Ok(())
}

const EVERY: &[Kernel] =
    &[&[CSR, CSR], &[CSR, DENSE], &[DENSE, CSR], &[ROWS, ROWS], &[ROWS, DENSE], &[DENSE, ROWS]];

twins! {
    OPERATORS: methods, inputs ["x", "y"],
    "two variables of which at least one is csr, coo or selected rows. The result of two sparse variables stores the positions \
    that `x` or `y` stores, and a product those that both store. The result with a dense variable is dense, but a product, and a \
    quotient with a dense `y`, have the storage and the positions of the sparse variable. A sparse variable is not broadcast.",
    ", Operand::constant(\"y\", array![1.0, 10.0, 100.0])";
    arithmetic::Add = "sparse_add" of "add" () EVERY, Neither;
    arithmetic::Sub = "sparse_sub" of "sub" () EVERY, Neither;
    arithmetic::Mul = "sparse_mul" of "mul" () EVERY, OfEither;
    arithmetic::Div = "sparse_div" of "div" () &[&[CSR, DENSE], &[ROWS, DENSE]], OfX;
    arithmetic::Maximum = "sparse_maximum" of "maximum" () EVERY, Neither;
    arithmetic::Minimum = "sparse_minimum" of "minimum" () EVERY, Neither;
}
