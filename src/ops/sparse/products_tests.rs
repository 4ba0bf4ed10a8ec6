//! Tests that products of sparse matrices, gathered rows, and concatenated or sliced columns equal the results of the
//! dense operators on the same numbers. The matrices have entries at random positions.

use crate::kernels::random::{RowStream, fill_uniform};
use crate::operator::call::Direct;
use crate::ops::catalogue;
use crate::ops::prelude::*;
use crate::tensor::{Csr, SelectedRows, Storage};

/// Makes a matrix in which about `dense` percent of the positions have entries; every fifth row and every seventh column is
/// empty.
fn pattern(rows: usize, columns: usize, dense: f32, seed: u64) -> Result<Variable> {
    let (mut indptr, mut indices, mut values) = (vec![0], Vec::new(), Vec::new());
    let mut draws = vec![0.0; 2 * columns];
    for row in 0..rows {
        let stream = RowStream { seed, step: 0, operator: 0, sequence: row as u64, position: 0 };
        fill_uniform(stream, &mut draws);
        for column in (0..columns).filter(|column| row % 5 != 3 && column % 7 != 2) {
            if draws[column] * 100.0 < dense {
                indices.push(column as i64);
                values.push(f64::from(draws[columns + column]) - 0.5);
            }
        }
        indptr.push(indices.len() as i64);
    }
    Variable::new(Csr::new([rows, columns], indptr, indices, Array1::from(values))?, None)
}

fn rows_of(height: usize, width: usize, seed: usize) -> Result<Variable> {
    let ids: Vec<i64> = (0..height as i64).filter(|id| id % 3 == seed as i64 % 3).collect();
    let values = numbers(ids.len(), width, seed);
    Variable::new(SelectedRows::new(height, ids, values)?, None)
}

fn near(got: &[f64], expected: &[f64], what: &str) {
    assert_eq!(got.len(), expected.len(), "{what}");
    for (index, (got, expected)) in got.iter().zip(expected).enumerate() {
        assert!(
            (got - expected).abs() <= 1e-12 * expected.abs().max(1.0),
            "{what} at {index}: {got}, {expected}"
        );
    }
}

fn dense(storage: &Storage) -> Result<Vec<f64>> {
    Ok(storage.to_dense()?.as_slice::<f64>()?.to_vec())
}

/// The outputs and gradients of a call.
struct Ran {
    outputs: Vec<Vec<Variable>>,
    gradients: Vec<Vec<Option<Storage>>>,
}

fn run(
    kind: &str,
    attributes: &Attributes,
    operands: &[Operand],
    weight: &[f64],
    threads: usize,
) -> Result<Ran> {
    let op = catalogue().parse(kind, attributes)?;
    let facts = RunFacts { threads, ..RunFacts::default() };
    let direct = Direct::new(Arc::clone(&op), operands)?.run_as(facts, &[]);
    let outputs = direct.forward()?;
    // The output's gradient has the storage and the stored positions of the output.
    let out = outputs[0][0].storage();
    let shape = out.shape().to_vec();
    let all = |columns: usize, row: usize, column: usize| weight[row * columns + column];
    let dout: Storage = match out {
        Storage::Dense(_) => Dense::from_vec(&shape, weight.to_vec())?.into(),
        Storage::SelectedRows(rows) => {
            let ids = rows.row_ids().to_vec();
            let at = |(i, j): (usize, usize)| all(shape[1], ids[i] as usize, j);
            SelectedRows::new(shape[0], ids.clone(), Array2::from_shape_fn((ids.len(), shape[1]), at))?.into()
        }
        Storage::Csr(csr) => {
            let (indptr, indices) = (csr.indptr().to_vec(), csr.indices().to_vec());
            let row = |row: usize| (indptr[row] as usize..indptr[row + 1] as usize).map(move |e| (row, e));
            let values = (0..shape[0]).flat_map(row).map(|(row, e)| all(shape[1], row, indices[e] as usize));
            let values = Array1::from_iter(values);
            Csr::new([shape[0], shape[1]], indptr.clone(), indices.clone(), values)?.into()
        }
        Storage::Coo(_) => unreachable!("no operator here makes coo of csr"),
    };
    // The dense operator gets the same gradient, as a dense matrix with zeros.
    let dout = if operands.iter().all(|o| o.value.storage().kind() == StorageKind::Dense) {
        dout.to_dense()?.into_owned().into()
    } else {
        dout
    };
    let gradients = direct.backward(&outputs, &[vec![Some(dout)]], &|_| true, None)?;
    Ok(Ran { outputs, gradients })
}

/// Checks that a call on sparse operands gives the results of the dense operator on the same numbers, on one thread and
/// on three.
fn alike(
    kind: &str,
    (twin, attributes): (&str, &Attributes),
    names: &[(&str, &str)],
    operands: &[Operand],
) -> Result<()> {
    let twins: Vec<Operand> = operands
        .iter()
        .map(|operand| {
            let slot = names
                .iter()
                .find(|(own, _)| *own == operand.slot)
                .map_or(&operand.slot[..], |(_, other)| other);
            let value = match operand.value.storage().kind() {
                StorageKind::Dense => operand.value.clone(),
                _ => Variable::new(operand.value.storage().to_dense()?.into_owned(), None)?,
            };
            Ok(Operand { slot: slot.to_owned(), value, ..operand.clone() })
        })
        .collect::<Result<_>>()?;
    let own = if attributes.bool("transpose_x").unwrap_or(false) { &Attributes::new() } else { attributes };
    let own = if kind == "dot" { &Attributes::new() } else { own };
    let forward = Direct::of(&catalogue(), kind, own, operands)?.forward()?;
    let len = forward[0][0].storage().shape().iter().product::<usize>();
    let mut weight: Vec<f64> = numbers(len.max(1), 1, 5).into_iter().take(len).collect();
    // A number that the sparse result does not store has no gradient, so the dense gradient is 0 there.
    let stored = match forward[0][0].storage() {
        Storage::Csr(csr) => {
            let [rows, columns] = *csr.shape() else { panic!("csr of two dimensions") };
            let mut stored = vec![0.0; rows * columns];
            for row in 0..rows {
                let entries = csr.indptr()[row] as usize..csr.indptr()[row + 1] as usize;
                csr.indices()[entries]
                    .iter()
                    .for_each(|&column| stored[row * columns + column as usize] = 1.0);
            }
            stored
        }
        Storage::SelectedRows(rows) => {
            let width = rows.value().width();
            (0..len).map(|at| f64::from(u8::from(rows.row_ids().contains(&((at / width) as i64))))).collect()
        }
        _ => vec![1.0; len],
    };
    weight.iter_mut().zip(&stored).for_each(|(weight, stored)| *weight *= stored);
    let (sparse, other) = (run(kind, own, operands, &weight, 1)?, run(twin, attributes, &twins, &weight, 1)?);
    near(&dense(sparse.outputs[0][0].storage())?, &dense(other.outputs[0][0].storage())?, kind);
    for (slot, gradients) in sparse.gradients.iter().enumerate() {
        for (k, gradient) in gradients.iter().enumerate() {
            let other = &other.gradients[slot][k];
            let (Some(gradient), Some(other)) = (gradient, other) else {
                assert_eq!(gradient.is_some(), other.is_some(), "{kind}: gradient {slot}");
                continue;
            };
            let expected = dense(other)?;
            let what = format!("{kind}: gradient {slot}, {k}");
            match gradient {
                Storage::Csr(csr) => {
                    let columns = csr.shape()[1];
                    let values = csr.values().as_slice::<f64>()?;
                    for row in 0..csr.shape()[0] {
                        for e in csr.indptr()[row] as usize..csr.indptr()[row + 1] as usize {
                            near(
                                &values[e..=e],
                                &[expected[row * columns + csr.indices()[e] as usize]],
                                &what,
                            );
                        }
                    }
                }
                Storage::SelectedRows(rows) => {
                    let width = rows.value().width();
                    let values = rows.value().as_slice::<f64>()?;
                    for (at, &id) in rows.row_ids().iter().enumerate() {
                        let own = id as usize * width..(id as usize + 1) * width;
                        near(&values[at * width..(at + 1) * width], &expected[own], &what);
                    }
                    let operand = operands.iter().filter(|o| o.slot == "weight" || o.slot == "y").nth(k);
                    if operand.is_some_and(|o| o.value.storage().kind() == StorageKind::Dense) {
                        assert!(rows.is_merged(), "{what}");
                        near(&dense(gradient)?, &expected, &what);
                    }
                }
                gradient => near(&dense(gradient)?, &expected, &what),
            }
        }
    }
    let again = run(kind, own, operands, &weight, 3)?;
    assert_eq!(again.outputs, sparse.outputs, "{kind} on threads");
    assert_eq!(again.gradients, sparse.gradients, "{kind} on threads");
    Ok(())
}

/// The number of rows, the number of columns and the percentage of entries of each matrix; the last matrix is large
/// enough to be divided over threads.
const CASES: [(usize, usize, f32); 6] =
    [(0, 5, 10.0), (4, 1, 50.0), (20, 30, 0.0), (33, 17, 20.0), (9, 200, 4.0), (300, 150, 30.0)];

#[test]
fn products_with_weights_are_the_dense_ones() -> Result<()> {
    for (seed, (rows, columns, entries)) in CASES.into_iter().enumerate() {
        let x = Operand::batch("x", pattern(rows, columns, entries, seed as u64)?);
        let bias = |width: usize, salt| {
            Operand::constant("bias", numbers(1, width, salt).remove_axis(ndarray::Axis(0)))
        };
        for transposed in [false, true] {
            let attributes =
                if transposed { Attributes::new().with("transposed", true) } else { Attributes::new() };
            let weight = |width, salt| {
                let weight =
                    if transposed { numbers(width, columns, salt) } else { numbers(columns, width, salt) };
                Operand::constant("weight", weight)
            };
            let linear = ("linear", &attributes);
            alike("sparse_linear", linear, &[], &[x.clone(), weight(20, 1), bias(20, 2)])?;
            let many = [x.clone(), weight(3, 1), weight(18, 4), bias(3, 2), bias(18, 3)];
            alike("sparse_linear", linear, &[], &many)?;
            let (height, width) = if transposed { (20, columns) } else { (columns, 20) };
            let rows = Operand::constant("weight", rows_of(height, width, seed)?);
            alike("sparse_linear", linear, &[], &[x.clone(), rows])?;
        }
    }
    Ok(())
}

#[test]
fn products_of_matrices_are_the_dense_ones() -> Result<()> {
    let matmul =
        |transposed: bool| Attributes::new().with("transpose_x", transposed).with("transpose_y", false);
    for (seed, (rows, columns, entries)) in CASES.into_iter().enumerate() {
        let x = Operand::constant("x", pattern(rows, columns, entries, seed as u64)?);
        let y = |value: Variable| [x.clone(), Operand::constant("y", value)];
        for kind in ["dot", "sparse_matmul"] {
            for value in [
                Variable::from(numbers(columns, 20, 1)),
                pattern(columns, 12, 20.0, 9)?,
                rows_of(columns, 20, seed)?,
            ] {
                alike(kind, ("matmul", &matmul(false)), &[], &y(value))?;
            }
        }
        let d = |value: Variable| [x.clone(), Operand::constant("d", value)];
        for value in [Variable::from(numbers(rows, 20, 1)), pattern(rows, 12, 20.0, 9)?] {
            alike("transposed_dot", ("matmul", &matmul(true)), &[("d", "y")], &d(value))?;
        }
    }
    Ok(())
}

#[test]
fn rows_and_columns_are_the_dense_ones() -> Result<()> {
    for (seed, (rows, columns, entries)) in CASES.into_iter().enumerate() {
        let x = pattern(rows, columns, entries, seed as u64)?;
        let more = pattern(rows, 8, 40.0, 3)?;
        let both = [Operand::batch("x", x.clone()), Operand::batch("x", more)];
        alike("sparse_concat", ("concat", &Attributes::new()), &[], &both)?;
        let range = Attributes::new().with("from", columns / 3).with("to", columns - columns / 4);
        alike("sparse_slice", ("slice", &range), &[], &both[..1])?;
        if rows == 0 {
            continue;
        }
        let ids = Array1::from_iter((0..50i64).map(|i| i * i * 7 % rows as i64));
        for table in [x, rows_of(rows, 6, seed)?] {
            let operands = [Operand::batch("ids", ids.clone()), Operand::constant("x", table)];
            alike("take_rows", ("embedding", &Attributes::new()), &[("x", "weight")], &operands)?;
        }
    }
    Ok(())
}
