//! Sparse tensors.

use ndarray::array;
use unpadded::data::Vocabulary;
use unpadded::tensor::{Coo, Csr, Dense, Dot, SelectedRows, Storage, StorageKind};
use unpadded::{DType, Variable};

use super::Calls;

pub(super) fn calls(calls: &mut Calls) {
    matrices(calls);
    others(calls);
    storages(calls);
}

fn matrices(calls: &mut Calls) {
    let x = Csr::from_triples([2, 3], [(0, 1, 1.0f32), (1, 2, f32::NAN)]).unwrap();
    let other = Csr::zeros(DType::F32, [3, 2]).unwrap();
    let whole = x.cast(DType::I32).unwrap();
    let wide = Csr::zeros(DType::F32, [1, usize::MAX]).unwrap();
    let narrow = Dense::from(array![1.0f32]);
    calls.at("Csr::zeros", || Csr::zeros(DType::F32, [usize::MAX, 1]));
    calls.at("Csr::from_triples", || Csr::from_triples([1, 1], [(1, 0, 1.0f32)]));
    calls.at("Csr::from_triples", || Csr::from_triples::<f32>([usize::MAX, 1], []));
    calls.at("Csr::from_rows", || Csr::from_rows(1, [vec![(1, 1.0f32)]]));
    calls.at("Csr::from_bags", || Csr::from_bags(&[[7]], 7));
    calls.at("Csr::get", || x.get::<f32>(2, 0));
    calls.at("Csr::get", || x.get::<f32>(0, 3));
    calls.at("Csr::get", || x.get::<i8>(0, 0));
    calls.at("Csr::row", || x.row::<f32>(2).map(drop));
    calls.at("Csr::take", || x.take(&[2]));
    calls.at("Csr::slice_rows", || x.slice_rows(1..3));
    calls.at("Csr::concat_rows", || Csr::concat_rows(&[&x, &other]));
    calls.at("Csr::transpose", || wide.transpose());
    calls.at("Csr::add", || x.add(&other));
    calls.at("Csr::sub", || x.sub(&other));
    calls.at("Csr::mul", || x.mul(&other));
    calls.at("Csr::scale", || whole.scale(0.5));
    calls.at("Csr::map", || x.map(f32::cos));
    calls.at("Csr::map", || x.map(i8::abs));
    calls.at("Csr::mul_dense", || x.mul_dense(&array![1.0f32, 2.0].into()));
    calls.at("Csr::mul_dense", || x.mul_dense(&array![1i8].into()));
    calls.at("Csr::add_dense", || x.add_dense(&narrow));
    calls.at("Csr::sum", || x.sum::<i8>());
    calls.at("Csr::sum_axis", || x.sum_axis(2));
    calls.at("Csr::sum_axis", || wide.sum_axis(0));
    calls.at("Csr::dot", || x.dot(&narrow));
    calls.at("Csr::dot", || x.dot(&x));
    calls.at("Csr::dot", || x.dot(&SelectedRows::zeros(DType::F32, &[2, 2])?));
    calls.at("Dot::product", || x.product(&narrow));
    calls.at("Csr::transposed_dot", || x.transposed_dot(&narrow));
    let tall = Csr::from_triples([1, i64::MAX as usize], [(0, 1, 1.0f32)]).unwrap();
    let full = Csr::from_triples([2, i64::MAX as usize], [(0, 1, 1.0f32)]).unwrap();
    calls.at("Csr::to_selected_rows", || tall.to_selected_rows());
    calls.at("Csr::to_dense", || full.to_dense());
}

fn others(calls: &mut Calls) {
    let x = Coo::from_entries([2, 3], [([1, 2], 4.0f32)]).unwrap();
    let other = Coo::zeros(DType::F32, &[3, 2]).unwrap();
    let wide = Coo::from_entries([2, usize::MAX], [([1, 2], 4.0f32)]).unwrap();
    calls.at("Coo::zeros", || Coo::zeros(DType::F32, &[]));
    calls.at("Coo::from_entries", || Coo::from_entries([2], [([2], 1.0f32)]));
    calls.at("Coo::get", || x.get::<f32>(&[2, 0]));
    calls.at("Coo::get", || x.get::<i8>(&[0, 0]));
    calls.at("Coo::take", || x.take(&[2]));
    calls.at("Coo::slice_rows", || x.slice_rows(1..3));
    calls.at("Coo::concat_rows", || Coo::concat_rows(&[&x, &other]));
    calls.at("Coo::add", || x.add(&other));
    calls.at("Coo::sub", || x.sub(&other));
    calls.at("Coo::mul", || x.mul(&other));
    calls.at("Coo::scale", || x.cast(DType::I8)?.scale(0.5));
    calls.at("Coo::map", || x.map(f32::cos));
    calls.at("Coo::sum", || x.sum::<i8>());
    calls.at("Coo::to_csr", || Coo::zeros(DType::F32, &[1])?.to_csr());
    calls.at("Coo::to_csr", || Coo::zeros(DType::F32, &[usize::MAX, 2])?.to_csr());
    calls.at("Coo::to_selected_rows", || wide.to_selected_rows());

    let x = SelectedRows::new(4, vec![1, 1], array![[1.0f32], [2.0]]).unwrap();
    let other = SelectedRows::zeros(DType::F32, &[4, 2]).unwrap();
    calls.at("SelectedRows::zeros", || SelectedRows::zeros(DType::F32, &[]));
    calls.at("SelectedRows::zeros", || SelectedRows::zeros(DType::F32, &[1, usize::MAX]));
    calls.at("SelectedRows::row", || x.row(4));
    calls.at("SelectedRows::retain", || x.retain(&[4]));
    calls.at("SelectedRows::add", || x.add(&other));
    calls.at("SelectedRows::sub", || x.sub(&other));
    calls.at("SelectedRows::mul", || x.mul(&other));
    calls.at("SelectedRows::scale", || x.cast(DType::I8)?.scale(0.5));
    calls.at("SelectedRows::map", || x.map(f32::cos));
    calls.at("SelectedRows::sum", || x.sum::<i8>());
    calls.at("SelectedRows::norm", || x.cast(DType::I8)?.norm());
    calls.at("SelectedRows::dot", || x.dot(&array![[1.0f32], [1.0]].into()));
    calls.at("SelectedRows::dot", || x.dot(&array![1.0f32].into()));
    calls.at("SelectedRows::to_csr", || SelectedRows::zeros(DType::F32, &[1])?.to_csr());
}

fn storages(calls: &mut Calls) {
    let vector = Storage::from(array![1.0f32]);
    let number = Storage::from(ndarray::arr0(1.0f32));
    let rows = Storage::from(SelectedRows::zeros(DType::F32, &[4, 2]).unwrap());
    calls.at("Storage::convert", || vector.clone().convert(StorageKind::Csr));
    calls.at("Storage::convert", || number.clone().convert(StorageKind::Coo));
    calls.at("Storage::to_csr", || vector.to_csr().map(drop));
    calls.at("Storage::to_coo", || number.to_coo().map(drop));
    calls.at("Storage::to_selected_rows", || number.to_selected_rows().map(drop));
    calls.at("Storage::slice_rows", || rows.slice_rows(0..1));
    calls.at("Storage::slice_rows", || vector.slice_rows(0..2));
    calls.at("Storage::concat_rows", || Storage::concat_rows(&[&vector, &rows]));
    calls.at("Storage::concat_rows", || Storage::concat_rows(&[]));
    calls.at("Storage::as_csr", || rows.as_csr().map(drop));
    calls.at("Storage::as_coo", || rows.as_coo().map(drop));
    calls.at("Variable::slice_sequences", || Variable::new(rows.clone(), None)?.slice_sequences(0..1));
    calls.at("Vocabulary::bags", || Vocabulary::labels(["a"])?.bags([["b"]]));
}
