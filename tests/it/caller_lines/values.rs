//! Offsets, tensors, and the framing of files.

use std::path::Path;
use std::sync::Arc;

use ndarray::{Array2, array};
use unpadded::tensor::{Coo, Csr, Dense, SelectedRows, Storage};
use unpadded::wire::{self, Reader, Writer};
use unpadded::{DType, Lod, SeqPos, Variable};

use super::Calls;

#[allow(clippy::reversed_empty_ranges)]
pub(super) fn calls(calls: &mut Calls) {
    let lod = Lod::from_lengths1(&[2, 0, 1]).unwrap();
    calls.at("Lod::new", || Lod::new(vec![vec![1]]));
    calls.at("Lod::new", || Lod::new(vec![vec![0, 1], vec![0, 1, 0]]));
    calls.at("Lod::extend", || Lod::extend(None, vec![0, 2, 1]));
    calls.at("Lod::append", || lod.append(vec![0, 1]));
    calls.at("Lod::from_lengths", || Lod::from_lengths(&[vec![usize::MAX, 1]]));
    calls.at("Lod::from_lengths1", || Lod::from_lengths1(&[usize::MAX, 1]));
    calls.at("Lod::from_row_ids", || Lod::from_row_ids(&[4], 2));
    calls.at("Lod::from_row_ids", || Lod::from_row_ids(&[], usize::MAX));
    calls.at("Lod::rebuild", || Lod::rebuild(&mut None, None, |out| out.push(1)));
    calls.at("Lod::rebuild", || {
        let mut own = Some(Lod::from_lengths1(&[1])?);
        Lod::rebuild(&mut own, None, |out| out.push(1))
    });
    calls.at("Lod::level", || lod.level(1));
    calls.at("Lod::lengths", || lod.lengths(1).map(drop));
    calls.at("Lod::count", || lod.count(2));
    calls.at("Lod::range", || lod.range(1, 0));
    calls.at("Lod::range", || lod.range(0, 9));
    calls.at("Lod::row_offsets", || lod.row_offsets(1));
    let endless = Lod::from_lengths1(&[usize::MAX]).unwrap();
    calls.at("Lod::row_ids", || endless.row_ids());
    calls.at("Lod::check_rows", || lod.check_rows(4));
    calls.at("Lod::row_range", || lod.row_range(2..1));
    calls.at("Lod::slice", || lod.slice(2..4));
    calls.at("Lod::split", || lod.split(&[1]));
    calls.at("Lod::merge", || Lod::merge(&[endless.clone(), endless.clone()]));
    calls.at("Lod::take", || lod.take(&[3]));
    calls.at("Lod::take_rows", || endless.take_rows(&[0]));
    calls.at("Lod::reorder", || lod.reorder(&[0, 0, 1]));
    calls.at("Lod::reorder_rows", || lod.reorder_rows(&[0]));
    calls.at("Lod::repeat", || endless.repeat(&[2]));
    calls.at("Lod::repeat_rows", || lod.repeat_rows(&[1]));
    calls.at("Lod::flatten", || lod.flatten(0));
    calls.at("Lod::from_tree", || Lod::from_tree(&SeqPos::Rows(1)));
    calls.at("Lod::from_tree", || {
        Lod::from_tree(&SeqPos::Sequences(vec![SeqPos::Rows(usize::MAX), SeqPos::Rows(1)]))
    });

    let floats = Dense::from(array![[1.0f32, 2.0], [0.0, 0.0]]);
    calls.at("Dense::from_vec", || Dense::from_vec(&[2], vec![1.0f32]));
    calls.at("Dense::from_vec", || Dense::from_vec(&[usize::MAX], vec![1.0f32]));
    calls.at("Dense::zeros", || Dense::zeros(DType::F32, &[usize::MAX]));
    calls.at("Dense::view", || floats.view::<i64>().map(drop));
    calls.at("Dense::view_mut", || floats.clone().view_mut::<i64>().map(drop));
    calls.at("Dense::as_slice", || floats.as_slice::<i64>().map(drop));
    calls.at("Dense::as_mut_slice", || floats.clone().as_mut_slice::<i64>().map(drop));
    calls.at("Dense::into_array", || floats.clone().into_array::<i64>());
    calls.at("Dense::reshape", || floats.clone().reshape(&[3]));
    calls.at("Dense::gather_rows", || floats.gather_rows(&[2]));
    calls.at("Dense::gather_rows", || Dense::from(ndarray::arr0(1.0f32)).gather_rows(&[]));
    calls.at("Dense::slice_rows", || floats.slice_rows(1..3));
    calls.at("Dense::concat_rows", || Dense::concat_rows(&[&floats, &floats.cast(DType::F64)]));
    calls.at("Dense::write_numbers", || {
        floats.write_numbers(|_| Err(unpadded::Error::new("pen", "ink", "none")))
    });
    calls.at("Dense::read_numbers", || {
        Dense::read_numbers(DType::Bool, &[1], |bytes| {
            bytes.fill(7);
            Ok(())
        })
    });

    let missing = || SelectedRows::new(usize::MAX, vec![1], array![[1.0f32]]);
    calls.at("SelectedRows::new", || SelectedRows::new(3, vec![4], array![[1.0f32]]));
    calls.at("SelectedRows::from_dense", || SelectedRows::from_dense(&Dense::from(ndarray::arr0(1.0f32))));
    calls.at("SelectedRows::densify", || missing().unwrap().densify());

    calls.at("Csr::new", || Csr::new([2, 3], vec![1, 1, 1], vec![0], array![1.0f32]));
    calls.at("Csr::new", || Csr::new([2, 3], vec![0, 1, 1], vec![3], array![1.0f32]));
    calls.at("Csr::from_dense", || Csr::from_dense(&Dense::from(array![1.0f32])));
    let wide = Csr::new([1, usize::MAX], vec![0, 1], vec![i64::MAX], array![1.0f32]).unwrap();
    calls.at("Csr::to_dense", || wide.to_dense());
    calls.at("Coo::new", || Coo::new(&[2], array![[2]], array![1.0f32]));
    calls.at("Coo::from_dense", || Coo::from_dense(&Dense::from(ndarray::arr0(1.0f32))));
    let large = Coo::new(&[usize::MAX, 2], array![[i64::MAX, 1]], array![1.0f32]).unwrap();
    calls.at("Coo::to_dense", || large.to_dense());
    let sparse = Storage::from(missing().unwrap());
    calls.at("Storage::to_dense", || sparse.to_dense().map(drop));
    calls.at("Storage::into_dense", || sparse.clone().into_dense());
    calls.at("Storage::as_dense", || sparse.as_dense().map(drop));
    calls.at("Storage::as_dense_mut", || sparse.clone().as_dense_mut().map(drop));
    calls.at("Storage::as_selected_rows", || Storage::from(floats.clone()).as_selected_rows().map(drop));

    let ids = Variable::from_sequences(&[vec![1i64, 2], vec![], vec![3]]).unwrap();
    calls.at("Variable::new", || Variable::new(floats.clone(), Some(Arc::clone(&lod))));
    calls.at("Variable::sequences", || Variable::sequences(array![1.0f32], Arc::clone(&lod)));
    calls.at("Variable::with_lod", || ids.clone().with_lod(Some(Arc::clone(&endless))));
    calls.at("Variable::as_slice", || ids.as_slice::<f32>().map(drop));
    calls.at("Variable::as_mut_slice", || ids.clone().as_mut_slice::<f32>().map(drop));
    calls.at("Variable::into_array", || ids.clone().into_array::<f32>());
    calls.at("Variable::slice_sequences", || ids.slice_sequences(2..5));
    calls.at("Variable::take_sequences", || ids.take_sequences(&[7]));
    calls.at("Variable::merge", || Variable::merge(&[ids.clone(), Variable::dense(floats.clone())]));
    calls.at("Variable::merge", || Variable::merge(&[Variable::new(sparse.clone(), None)?]));
    calls.at("Dense::into_array", || Array2::<i64>::try_from(floats.clone()));

    let nowhere = Path::new("no such folder/x");
    calls.at("wire::open", || wire::open(nowhere).map(drop));
    calls.at("wire::open", || wire::open(&std::env::temp_dir()).map(drop));
    calls.at("target::write_atomically", || wire::write_atomically(nowhere, |_| Ok(())));
    calls.at("target::write_atomically", || wire::write_atomically(&std::env::temp_dir(), |_| Ok(())));
    calls.at("Writer::new", || Writer::new(Full(0)).map(drop));
    let full = || Writer::new(Full(12)).unwrap();
    calls.at("Writer::write_section", || full().write_section("a", b"b"));
    calls.at("Writer::write_section", || full().write_section("", b"b"));
    calls.at("Writer::stream_section", || full().stream_section("a", 3, |_| Ok(())));
    calls.at("Writer::finish", || full().finish().map(drop));
    calls.at("Body::write", || Writer::new(Vec::new())?.stream_section("a", 1, |body| body.write(b"more")));
    calls.at("Reader::new", || Reader::new("bytes", &b"else"[..], 4).map(drop));
    calls.at("Reader::new", || Reader::new("bytes", &b"unpadded"[..], 99).map(drop));
    let mut bytes = Writer::new(Vec::new()).unwrap().finish().unwrap();
    if let Some(last) = bytes.last_mut() {
        *last ^= 1;
    }
    let read = || Reader::new("bytes", bytes.as_slice(), bytes.len() as u64).unwrap();
    calls.at("Reader::next_section", || read().next_section().map(drop));
    calls.at("Reader::read", || read().read(&mut [0]));
    calls.at("Reader::read_section", || read().read_section());
    calls.at("Reader::read_bytes", || read().read_bytes(1));
    calls.at("Reader::end_section", || read().end_section());
}

/// A writer that takes a limited number of bytes.
struct Full(usize);

impl std::io::Write for Full {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        if bytes.len() > self.0 {
            return Err(std::io::Error::other("full"));
        }
        self.0 -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
