//! Tests the creation, access, conversion and errors of dense tensors by examples.

use ndarray::{Array1, Array2, array};

use super::*;
use crate::tensor::{Coo, Csr, SelectedRows};

#[test]
fn arrays_of_any_layout_come_in_row_major() {
    let x = Dense::from(array![[1, 2, 3], [4, 5, 6]].reversed_axes());
    assert_eq!(x.shape(), [3, 2]);
    assert_eq!(x.as_slice::<i32>().unwrap(), [1, 4, 2, 5, 3, 6]);
    assert_eq!(Array2::<i32>::try_from(x.clone()).unwrap(), array![[1, 4], [2, 5], [3, 6]]);
    let message = Array1::<i32>::try_from(x.clone()).unwrap_err().to_string();
    assert_eq!(message, "array: expected 1 dimensions, got shape [3, 2]");
    assert_eq!(x.as_slice::<i64>().unwrap_err().to_string(), "dtype: expected i64, got i32");
    assert!(x.into_array::<bool>().is_err());
}

#[test]
fn rows_and_widths() {
    let check = |shape: &[usize], rows, width| {
        let x = Dense::zeros(DType::F16, shape).unwrap();
        assert_eq!((x.rows(), x.width(), x.len()), (rows, width, rows * width));
    };
    check(&[], 1, 1);
    check(&[3], 3, 1);
    check(&[3, 2, 4], 3, 8);
    check(&[0, 5], 0, 5);
    check(&[5, 0], 5, 0);
}

#[test]
fn sizes_too_large_are_errors() {
    for shape in [&[usize::MAX][..], &[1 << 40, 1 << 40], &[1 << 62], &[1 << 55], &[0, usize::MAX, 2]] {
        assert!(Dense::zeros(DType::F64, shape).is_err(), "{shape:?}");
    }
    assert!(Dense::from_vec(&[2, 2], vec![1.0f32; 3]).is_err());
    assert!(Dense::from_vec(&[usize::MAX, 2], vec![1.0f32; 3]).is_err());
    let narrow = Dense::zeros(DType::Bool, &[1 << 40, 0]).unwrap();
    assert!(narrow.nonzero_rows().unwrap().is_empty());
}

#[test]
fn casts_keep_what_can_be_kept() {
    let x = Dense::from(array![-1e30f64, f64::NAN, 0.0, 2.9]);
    assert_eq!(x.cast(DType::I16).as_slice::<i16>().unwrap(), [i16::MIN, 0, 0, 2]);
    assert_eq!(x.cast(DType::I8).as_slice::<i8>().unwrap(), [i8::MIN, 0, 0, 2]);
    assert_eq!(x.cast(DType::Bool).as_slice::<bool>().unwrap(), [true, true, false, true]);
    let ids = Dense::from(array![i64::MAX, -5]);
    assert_eq!(ids.cast(DType::I32).as_slice::<i32>().unwrap(), [i32::MAX, -5]);
    assert_eq!(ids.cast(DType::I8).as_slice::<i8>().unwrap(), [i8::MAX, -5]);
    assert_eq!(ids.cast(DType::I8).cast(DType::I64).as_slice::<i64>().unwrap(), [127, -5]);
    for dtype in DType::ALL {
        let ones = Dense::from(array![true, false]).cast(dtype);
        assert_eq!(ones.dtype(), dtype);
        assert_eq!(ones.cast(DType::F32).as_slice::<f32>().unwrap(), [1.0, 0.0]);
    }
}

#[test]
fn bytes_are_stored_in_every_way() {
    let x = Dense::from(array![[0i8, -128], [0, 0], [127, 0]]);
    assert_eq!((x.dtype(), x.dtype().size_of()), (DType::I8, 1));
    assert_eq!(Array2::<i8>::try_from(x.clone()).unwrap()[[2, 0]], 127);
    assert_eq!(Csr::from_dense(&x).unwrap().to_dense().unwrap(), x);
    assert_eq!(Coo::from_dense(&x).unwrap().to_dense().unwrap(), x);
    let twice = SelectedRows::new(3, vec![2, 2], array![[100i8, -1], [100, 1]]).unwrap();
    // Sums of integers wrap around.
    assert_eq!(twice.densify().unwrap(), Dense::from(array![[0i8, 0], [0, 0], [-56, 0]]));
}

#[test]
fn rows_are_gathered_sliced_and_concatenated() {
    let x = Dense::from(array![[1, 2], [3, 4], [5, 6]]);
    assert_eq!(x.gather_rows(&[1, 1]).unwrap(), Dense::from(array![[3, 4], [3, 4]]));
    assert_eq!(x.gather_rows(&[]).unwrap().shape(), [0, 2]);
    let message = x.gather_rows(&[0, 3]).unwrap_err().to_string();
    assert_eq!(message, "row number at place 1: expected below 3, got 3");
    let parts = [x.slice_rows(0..1).unwrap(), x.slice_rows(1..1).unwrap(), x.slice_rows(1..3).unwrap()];
    assert_eq!(Dense::concat_rows(&parts.each_ref()).unwrap(), x);
    assert!(x.slice_rows(2..4).is_err());
    assert!(Dense::concat_rows(&[]).is_err());
    assert!(Dense::concat_rows(&[&x, &Dense::from(array![[1, 2, 3]])]).is_err());
    assert!(Dense::concat_rows(&[&x, &x.cast(DType::I64)]).is_err());
    assert!(Dense::zeros(DType::F32, &[]).unwrap().gather_rows(&[0]).is_err());
    assert_eq!(x.clone().reshape(&[6]).unwrap().rows(), 6);
    assert!(x.reshape(&[4]).is_err());
}

#[test]
fn bits_are_stricter_than_values() {
    let nan = Dense::from(array![f32::NAN]);
    assert!(nan.bits_eq(&nan) && nan != nan.clone());
    assert!(!Dense::from(array![0.0f32]).bits_eq(&Dense::from(array![-0.0f32])));
    assert!(!Dense::from(array![0i32]).bits_eq(&Dense::from(array![0i64])));
    assert!(!Dense::from(array![0i32]).bits_eq(&Dense::from(array![[0i32]])));
}

#[test]
fn half_sums_are_kept_in_single_precision() {
    let x = Dense::from(Array1::from_elem(1000, bf16::from_f32(1.0)));
    let order: Vec<usize> = (0..1000).collect();
    let (sum, heads) = x.sum_runs(&order, &|_, _| true).unwrap();
    assert_eq!(heads, [0]);
    assert_eq!(sum.as_slice::<bf16>().unwrap(), [bf16::from_f32(1000.0)]);
}
