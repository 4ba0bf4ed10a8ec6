//! Tests that errors contain the expected value and name the wrong entry.

use ndarray::{arr0, array};

use crate::error::Result;
use crate::tensor::*;

#[track_caller]
fn fails<T>(result: Result<T>, expected: &str) {
    let Err(error) = result else { panic!("it was not refused: {expected}") };
    assert_eq!(error.to_string().split(" (at").next().unwrap_or_default(), expected);
}

#[test]
fn of_csr() {
    let x = Csr::from_triples([2, 3], [(1, 2, 4.0f32), (0, 1, 2.0)]).unwrap();
    let below = "expected 0 or more and less than";
    fails(
        Csr::from_triples([2, 3], [(0, 0, 1), (2, 0, 1)]),
        &format!("row of triple 1: {below} 2, the number of rows, got 2"),
    );
    fails(
        Csr::from_triples([2, 3], [(0, -1, 1)]),
        &format!("column of triple 0: {below} 3, the number of columns, got -1"),
    );
    fails(
        Csr::from_bags(&[vec![0], vec![1, 4]], 4),
        &format!("id at place 1 of bag 1: {below} 4, the number of columns, got 4"),
    );
    fails(
        Csr::from_rows(2, [vec![(2, 1i32)]]),
        &format!("index of csr at place 0: {below} 2, the number of columns, got 2"),
    );
    fails(x.get::<f32>(2, 0), "row of csr: expected less than 2, the number of rows, got 2");
    fails(x.get::<f32>(0, 3), "column of csr: expected less than 3, the number of columns, got 3");
    fails(x.get::<f64>(0, 0), "dtype: expected f64, got f32");
    fails(x.row::<f32>(9), "row of csr: expected less than 2, the number of rows, got 9");
    fails(x.take(&[0, 2]), "row number at place 1: expected below 2, got 2");
    fails(x.slice_rows(1..3), "rows to slice: expected a range within 0..2, got 1..3");
    fails(Csr::concat_rows(&[]), "csr to concatenate: expected at least one, got none");
    let other = Csr::zeros(DType::F32, [3, 2]).unwrap();
    fails(
        Csr::concat_rows(&[&x, &other]),
        "csr 1 to concatenate: expected f32 of 3 columns, got f32 of 2 columns",
    );
    fails(x.add(&other), "csr to add: expected f32 [2, 3], got f32 [3, 2]");
    fails(x.mul(&x.cast(DType::I8).unwrap()), "csr to multiply by: expected f32 [2, 3], got i8 [2, 3]");
    fails(
        x.cast(DType::I32).unwrap().scale(0.5),
        "factor of i32 numbers: expected a number that i32 can hold, got 0.5",
    );
    fails(
        x.mul_dense(&array![1.0f32, 2.0].into()),
        "dense tensor to multiply by: expected a shape that broadcasts to [2, 3], got shape [2]",
    );
    fails(x.mul_dense(&array![1].into()), "dense tensor to multiply by: expected f32, got i32");
    fails(x.add_dense(&array![1.0f32].into()), "dense tensor to add: expected f32 [2, 3], got f32 [1]");
    let product = "right side of a product with csr: expected f32 of 3 rows";
    fails(x.dot(&Dense::from(array![1.0f32])), &format!("{product}, got f32 [1]"));
    fails(x.dot(&Dense::from(arr0(1.0f32))), &format!("{product}, got f32 []"));
    fails(x.dot(&x), &format!("{product}, got f32 [2, 3]"));
    fails(
        x.transposed_dot(&array![1, 2].into()),
        "right side of a product with csr: expected f32 of 2 rows, got i32 [2]",
    );
}

#[test]
fn of_coo_and_selected_rows() {
    let x = Coo::from_entries([2, 3], [([1, 2], 4.0f32)]).unwrap();
    fails(x.get::<f32>(&[1, 3]), "place in coo: expected a place within shape [2, 3], got [1, 3]");
    fails(x.get::<f32>(&[1]), "place in coo: expected a place within shape [2, 3], got [1]");
    fails(x.take(&[2]), "row number at place 0: expected below 2, got 2");
    fails(x.slice_rows(0..3), "rows to slice: expected a range within 0..2, got 0..3");
    let cube = Coo::zeros(DType::F32, &[2, 3, 1]).unwrap();
    fails(x.add(&cube), "coo to add: expected f32 [2, 3], got f32 [2, 3, 1]");
    fails(
        Coo::concat_rows(&[&x, &cube]),
        "coo 1 to concatenate: expected f32 [2, 3] (the first extent may differ), got f32 [2, 3, 1]",
    );
    fails(cube.to_csr(), "coo for csr: expected two dimensions, got shape [2, 3, 1]");
    let endless = Coo::zeros(DType::F32, &[usize::MAX, 3]).unwrap();
    assert!(Coo::concat_rows(&[&x, &endless]).is_err() && endless.to_csr().is_err());

    let s = SelectedRows::new(4, vec![1, 1], array![[1.0f32, 2.0], [3.0, 4.0]]).unwrap();
    fails(s.row(4), "row of selected rows: expected below the table's height of 4, got 4");
    fails(
        s.retain(&[0, -1]),
        "row to retain at place 1: expected 0 or more and below the table's height of 4, got -1",
    );
    fails(
        SelectedRows::zeros(DType::F32, &[]),
        "shape of selected rows: expected at least one dimension, got []",
    );
    fails(
        s.dot(&array![[1.0f32]].into()),
        "right side of a product with selected rows: expected f32 of 2 rows, got f32 [1, 1]",
    );
    fails(
        s.dot(&array![1.0f32].into()),
        "product of selected rows: expected two matrices, got shapes [4, 2] and [1]",
    );
    let vector = SelectedRows::new(4, vec![1], array![1.0f32]).unwrap();
    fails(vector.to_csr(), "selected rows for csr: expected two dimensions, got shape [4]");
    fails(s.add(&vector), "selected rows to add: expected f32 [4, 2], got f32 [4]");
}

#[test]
fn numbers_that_are_none_are_kept() {
    let x = Csr::from_triples([1, 3], [(0, 0, f32::NAN), (0, 1, f32::INFINITY)]).unwrap();
    assert!(x.scale(2.0).unwrap().get::<f32>(0, 0).unwrap().is_nan());
    // Positions without an entry stay 0, even if the factor is infinite.
    assert_eq!(x.scale(f64::INFINITY).unwrap().get::<f32>(0, 2).unwrap(), 0.0);
    let wide = Csr::from_triples([1, 1], [(0, 0, i32::MAX)]).unwrap();
    assert_eq!(wide.add(&wide).unwrap().get::<i32>(0, 0).unwrap(), -2);
    assert_eq!((-&Csr::from_triples([1, 1], [(0, 0, i8::MIN)]).unwrap()).get::<i8>(0, 0).unwrap(), i8::MIN);
}
