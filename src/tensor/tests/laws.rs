//! Tests that each operation on sparse tensors agrees with the operation on dense tensors. All numbers are small whole
//! numbers, so that every dtype represents them exactly and every order of summation gives the same result.

use ndarray::{Array1, Array2, Axis, concatenate, s};
use proptest::prelude::*;

use super::{Triple, csr, wide};
use crate::tensor::*;

/// All dtypes except bool and i8: the sum of bools is "or", and sums of i8 would wrap around.
const DTYPES: [DType; 7] =
    [DType::F32, DType::F64, DType::I16, DType::I32, DType::I64, DType::F16, DType::BF16];

fn triples() -> impl Strategy<Value = Vec<Triple>> {
    prop::collection::vec((0usize..9, 0usize..9, -2i8..3), 0..12)
}

fn extents() -> impl Strategy<Value = [usize; 3]> {
    [0usize..6, 0usize..7, 0usize..6]
}

fn dtypes() -> impl Strategy<Value = DType> {
    prop::sample::select(&DTYPES[..])
}

/// Returns the numbers of a sparse matrix as a dense array.
fn means(csr: &Csr) -> Array2<f64> {
    wide(&csr.to_dense().unwrap())
}

fn numbers(shape: [usize; 2], dtype: DType) -> Dense {
    let array = Array2::from_shape_fn(shape, |(i, j)| ((7 * i + 3 * j) % 5) as f64 - 2.0);
    Dense::from(array).cast(dtype)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn entries_are_what_they_are_in_dense(t in triples(), [r, c, _] in extents(), dtype in dtypes()) {
        let x = csr([r, c], &t, dtype);
        let dense = means(&x);
        let mut expected = Array2::<f64>::zeros((r, c));
        t.iter().filter(|_| r * c > 0).for_each(|&(i, j, v)| expected[[i % r, j % c]] += f64::from(v));
        prop_assert_eq!(&dense, &expected);
        let listed = t.iter().filter(|_| r * c > 0).map(|&(i, j, v)| ((i % r) as i64, (j % c) as i64, f64::from(v)));
        let made = Csr::from_triples([r, c], listed).unwrap();
        prop_assert!(made.is_canonical());
        prop_assert_eq!(&means(&made), &expected);
        let wide = x.cast(DType::F64).unwrap();
        for ((i, j), &v) in dense.indexed_iter() {
            prop_assert_eq!(wide.get::<f64>(i, j).unwrap(), v);
        }
    }

    #[test]
    fn numbers_meet_as_in_dense(a in triples(), b in triples(), [r, c, _] in extents(), dtype in dtypes()) {
        let (x, y) = (csr([r, c], &a, dtype), csr([r, c], &b, dtype));
        let (p, q) = (means(&x), means(&y));
        prop_assert_eq!(means(&x.add(&y).unwrap()), &p + &q);
        prop_assert_eq!(means(&x.sub(&y).unwrap()), &p - &q);
        prop_assert_eq!(means(&x.mul(&y).unwrap()), &p * &q);
        prop_assert!(x.add(&y).unwrap().is_canonical());
        prop_assert_eq!(means(&x.scale(-3.0).unwrap()), p.mapv(|v| -3.0 * v));
        prop_assert_eq!(means(&-&x), -&p);
        let d = numbers([r, c], dtype);
        prop_assert_eq!(means(&x.mul_dense(&d).unwrap()), &p * &wide(&d));
        let row = numbers([1, c], dtype);
        prop_assert_eq!(means(&x.mul_dense(&row.clone().reshape(&[c]).unwrap()).unwrap()), &p * &wide(&row));
        let column = numbers([r, 1], dtype);
        prop_assert_eq!(means(&x.mul_dense(&column).unwrap()), &p * &wide(&column));
        prop_assert_eq!(wide(&x.add_dense(&d).unwrap()), &p + &wide(&d));
    }

    #[test]
    fn rows_move_as_in_dense(
        a in triples(),
        b in triples(),
        [r, c, k] in extents(),
        dtype in dtypes(),
        picks in prop::collection::vec(0usize..9, 0..5),
        ends in [0usize..7, 0usize..7],
    ) {
        let (x, y) = (csr([r, c], &a, dtype), csr([k, c], &b, dtype));
        let p = means(&x);
        prop_assert_eq!(means(&x.transpose().unwrap()), p.t().to_owned());
        prop_assert_eq!(means(&Csr::concat_rows(&[&x, &y]).unwrap()), concatenate![Axis(0), p, means(&y)]);
        let rows: Vec<usize> = picks.iter().filter(|_| r > 0).map(|i| i % r.max(1)).collect();
        prop_assert_eq!(means(&x.take(&rows).unwrap()), p.select(Axis(0), &rows));
        let range = |end: usize| ends[0].min(ends[1]).min(end)..ends[0].max(ends[1]).min(end);
        prop_assert_eq!(means(&x.slice_rows(range(r)).unwrap()), p.slice(s![range(r), ..]).to_owned());
    }

    #[test]
    fn products_are_those_of_dense(a in triples(), b in triples(), [r, c, n] in extents(), dtype in dtypes()) {
        let (x, y, d) = (csr([r, c], &a, dtype), csr([c, n], &b, dtype), numbers([c, n], dtype));
        let p = means(&x);
        prop_assert_eq!(wide(&x.dot(&d).unwrap()), p.dot(&wide(&d)));
        let sparse = x.dot(&y).unwrap();
        prop_assert!(sparse.is_canonical());
        prop_assert_eq!(means(&sparse), p.dot(&means(&y)));
        let rows = y.to_selected_rows().unwrap();
        prop_assert_eq!(wide(&x.dot(&rows).unwrap()), p.dot(&means(&y)));
        let e = numbers([r, n], dtype);
        let turned = x.transposed_dot(&e).unwrap();
        prop_assert!(turned.is_merged() && turned.row_ids().iter().all(|id| x.indices().contains(id)));
        prop_assert_eq!(wide(&turned.densify().unwrap()), p.t().dot(&wide(&e)));
        let column = numbers([c, 1], dtype);
        let vector: Array1<f64> =
            x.dot(&column.clone().reshape(&[c]).unwrap()).unwrap().cast(DType::F64).try_into().unwrap();
        prop_assert_eq!(vector, p.dot(&wide(&column)).column(0).to_owned());
        let (m, q) = (numbers([n, r], dtype), y.to_selected_rows().unwrap());
        prop_assert_eq!(wide(&q.dot(&m).unwrap().densify().unwrap()), means(&y).dot(&wide(&m)));
    }

    #[test]
    fn every_storage_means_the_same(t in triples(), [r, c, _] in extents(), dtype in dtypes()) {
        let x = csr([r, c], &t, dtype);
        let dense = x.to_dense().unwrap();
        let all = StorageKind::ALL.map(|kind| Storage::from(x.clone()).convert(kind).unwrap());
        for from in &all {
            for kind in StorageKind::ALL {
                let to = from.clone().convert(kind).unwrap();
                prop_assert_eq!(to.kind(), kind);
                prop_assert_eq!(to.shape(), dense.shape());
                prop_assert_eq!(&*to.to_dense().unwrap(), &dense);
            }
        }
    }

    #[test]
    fn coo_means_what_csr_means(a in triples(), b in triples(), [r, c, _] in extents(), dtype in dtypes()) {
        let (x, y) = (csr([r, c], &a, dtype), csr([r, c], &b, dtype));
        let (s, t) = (x.to_coo().unwrap(), y.to_coo().unwrap());
        let same = |coo: Coo, csr: Csr| coo.to_dense().unwrap() == csr.to_dense().unwrap();
        prop_assert!(same(s.add(&t).unwrap(), x.add(&y).unwrap()));
        prop_assert!(same(s.sub(&t).unwrap(), x.sub(&y).unwrap()));
        prop_assert!(same(s.mul(&t).unwrap(), x.mul(&y).unwrap()));
        prop_assert!(same(s.scale(2.0).unwrap(), x.scale(2.0).unwrap()));
        prop_assert!(same(-&s, -&x));
        prop_assert!(same(Coo::concat_rows(&[&s, &t]).unwrap(), Csr::concat_rows(&[&x, &y]).unwrap()));
        let rows: Vec<usize> = [4, 0, 4].iter().filter(|_| r > 0).map(|i| i % r.max(1)).collect();
        prop_assert!(same(s.take(&rows).unwrap(), x.take(&rows).unwrap()));
        prop_assert!(same(s.slice_rows(r / 2..r).unwrap(), x.slice_rows(r / 2..r).unwrap()));
        let (s, x) = (s.cast(DType::F64).unwrap(), x.cast(DType::F64).unwrap());
        for (i, j, _) in a.iter().filter(|_| r * c > 0) {
            prop_assert_eq!(s.get::<f64>(&[i % r, j % c]).unwrap(), x.get::<f64>(i % r, j % c).unwrap());
        }
    }

    #[test]
    fn selected_rows_mean_what_csr_means(
        ids in [prop::collection::vec(0i64..6, 0..6), prop::collection::vec(0i64..6, 0..6)],
        dtype in dtypes(),
    ) {
        let make = |ids: &Vec<i64>| SelectedRows::new(6, ids.clone(), numbers([ids.len(), 3], dtype)).unwrap();
        let (s, t) = (make(&ids[0]), make(&ids[1]));
        let (x, y) = (s.to_csr().unwrap(), t.to_csr().unwrap());
        let same = |rows: SelectedRows, csr: Csr| rows.densify().unwrap() == csr.to_dense().unwrap();
        prop_assert!(same(s.add(&t).unwrap(), x.add(&y).unwrap()));
        prop_assert!(same(s.sub(&t).unwrap(), x.sub(&y).unwrap()));
        prop_assert!(same(s.mul(&t).unwrap(), x.mul(&y).unwrap()));
        prop_assert!(same(s.scale(2.0).unwrap(), x.scale(2.0).unwrap()));
        prop_assert!(same(-&s, -&x));
        let p = means(&x);
        let mut only = p.clone();
        for (row, mut numbers) in only.outer_iter_mut().enumerate() {
            if !ids[1].contains(&(row as i64)) { numbers.fill(0.0); }
        }
        prop_assert_eq!(wide(&s.retain(&ids[1]).unwrap().densify().unwrap()), only);
        for row in 0..6 {
            let got: Array1<f64> = s.row(row).unwrap().cast(DType::F64).try_into().unwrap();
            prop_assert_eq!(got, p.row(row).to_owned());
        }
    }

    #[test]
    fn bools_count_as_zero_and_one(a in triples(), b in triples(), [r, c, n] in extents()) {
        // Absolute values cannot cancel, so a sum is true exactly if one of its numbers is true.
        let positive = |t: &[Triple]| t.iter().map(|&(i, j, v)| (i, j, v.abs())).collect::<Vec<_>>();
        let make = |shape, t: &[Triple]| csr(shape, &positive(t), DType::Bool);
        let (x, y, z) = (make([r, c], &a), make([r, c], &b), make([c, n], &b));
        let (p, q) = (means(&x), means(&y));
        let truth = |array: Array2<f64>| array.mapv(|v| f64::from(u8::from(v != 0.0)));
        prop_assert_eq!(means(&x.add(&y).unwrap()), truth(&p + &q));
        prop_assert_eq!(means(&x.sub(&y).unwrap()), truth(&p - &q));
        prop_assert_eq!(means(&x.mul(&y).unwrap()), truth(&p * &q));
        prop_assert_eq!(means(&x.dot(&z).unwrap()), truth(p.dot(&means(&z))));
        prop_assert_eq!(wide(&x.dot(&z.to_dense().unwrap()).unwrap()), truth(p.dot(&means(&z))));
        prop_assert_eq!(means(&-&x), p);
    }
}
