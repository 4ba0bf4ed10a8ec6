//! Tests tensors that are made from randomly damaged parts. The constructor either returns an error, or makes a tensor
//! whose methods return results or errors and never panic.

use ndarray::Array2;

use crate::tensor::*;

/// A generator of pseudorandom numbers.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    /// Returns a random extent, which is mostly small and sometimes too large for memory.
    fn extent(&mut self) -> usize {
        match self.below(12) {
            0 => usize::MAX,
            1 => i64::MAX as usize,
            2 => 1 << 62,
            _ => self.below(5) as usize,
        }
    }

    fn index(&mut self) -> i64 {
        match self.below(40) {
            0 => -1,
            1 => i64::MIN,
            2 => i64::MAX,
            3 => 1 << 61,
            _ => self.below(4) as i64,
        }
    }

    fn indices(&mut self, len: usize) -> Vec<i64> {
        (0..len).map(|_| self.index()).collect()
    }

    fn values(&mut self, shape: &[usize]) -> Dense {
        let dtype = DType::ALL[self.below(9) as usize];
        let numbers = (0..shape.iter().product()).map(|_| match self.below(20) {
            0 => f64::NAN,
            1 => f64::INFINITY,
            2 => -1e300,
            _ => self.below(5) as f64 - 2.0,
        });
        let numbers: Vec<f64> = numbers.collect();
        Dense::from_vec(shape, numbers).unwrap().cast(dtype)
    }

    fn picks(&mut self) -> Vec<usize> {
        (0..self.below(4)).map(|_| self.extent()).collect()
    }
}

/// Formats a result, because `Debug` must not panic either, and keeps the text from being optimised away.
fn look<T: std::fmt::Debug>(result: crate::error::Result<T>) {
    let text = match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => error.to_string(),
    };
    assert!(!text.is_empty());
}

fn damaged_csr(random: &mut Random) -> crate::error::Result<Csr> {
    let shape = [random.below(5) as usize, random.extent()];
    let entries = random.below(7) as usize;
    let len = if random.below(9) == 0 { random.below(7) as usize } else { shape[0] + 1 };
    let mut indptr: Vec<i64> = (0..len).map(|_| random.below(entries as u64 + 1) as i64).collect();
    if random.below(5) != 0 {
        indptr.sort_unstable();
        indptr.first_mut().into_iter().for_each(|first| *first = 0);
        indptr.last_mut().into_iter().for_each(|last| *last = entries as i64);
    }
    if let Some(at) =
        (random.below(6) == 0).then(|| random.below(len as u64 + 1) as usize).filter(|&at| at < len)
    {
        indptr[at] = random.index();
    }
    let values = if random.below(15) == 0 { random.below(7) as usize } else { entries };
    let indices = random.indices(entries);
    Csr::new(shape, indptr, indices, random.values(&[values]))
}

fn every_csr_method(x: &Csr, y: &Csr, random: &mut Random) {
    let (a, b) = (random.extent(), random.extent());
    assert!(!x.to_string().is_empty() && !format!("{x:?}").is_empty());
    look(x.to_dense());
    look(x.clone().canonicalize());
    look(x.transpose());
    look(x.to_coo());
    look(x.to_selected_rows());
    look(x.slice_rows(a..b));
    look(x.take(&random.picks()));
    look(Csr::concat_rows(&[x, y]));
    look(x.add(y));
    look(x.sub(y));
    look(x.mul(y));
    look(x.scale(random.below(3) as f64 / 2.0));
    look(x.cast(DType::ALL[random.below(9) as usize]));
    look(x.dot(y));
    let (rows, columns) = (x.shape()[0], x.shape()[1].min(4));
    let dense = random.values(&[columns, 2]).cast(x.dtype());
    look(x.dot(&dense));
    look(x.mul_dense(&dense));
    look(x.add_dense(&dense));
    look(x.transposed_dot(&random.values(&[rows, 2]).cast(x.dtype())));
    look(y.to_selected_rows().and_then(|y| x.dot(&y)));
    assert!((-x).entries() == x.entries());
    with_element!(x.dtype(), T => {
        look(x.get::<T>(a, b));
        look(x.row::<T>(a));
    });
}

#[test]
fn csr_of_damaged_parts() {
    let mut random = Random(15);
    let (mut accepted, mut last) = (0, Csr::zeros(DType::F32, [2, 3]).unwrap());
    for _ in 0..10_000 {
        if let Ok(x) = damaged_csr(&mut random) {
            accepted += 1;
            let like = x.cast(last.dtype()).unwrap();
            every_csr_method(&x, &last, &mut random);
            every_csr_method(&like, &last, &mut random);
            every_csr_method(&x, &x, &mut random);
            last = x;
        }
    }
    assert!((1000..9000).contains(&accepted), "{accepted} accepted");
}

#[test]
fn coo_of_damaged_parts() {
    let mut random = Random(16);
    let (mut accepted, mut last) = (0, Coo::zeros(DType::F32, &[2, 3]).unwrap());
    for _ in 0..10_000 {
        let rank = random.below(4) as usize;
        let shape: Vec<usize> = (0..rank).map(|_| random.extent()).collect();
        let entries = random.below(4) as usize;
        let given = if random.below(9) == 0 { random.below(4) as usize } else { rank };
        let coordinates = Array2::from_shape_vec((entries, given), random.indices(entries * given)).unwrap();
        let values = if random.below(15) == 0 { random.below(4) as usize } else { entries };
        let Ok(x) = Coo::new(&shape, coordinates, random.values(&[values])) else { continue };
        accepted += 1;
        let y = last.cast(x.dtype()).unwrap();
        let (a, b) = (random.extent(), random.extent());
        assert!(!x.to_string().is_empty());
        look(x.to_dense());
        look(x.clone().canonicalize());
        look(x.to_csr());
        look(x.to_selected_rows());
        look(x.slice_rows(a..b));
        look(x.take(&random.picks()));
        look(Coo::concat_rows(&[&x, &y]));
        for y in [&x, &y] {
            look(x.add(y));
            look(x.sub(y));
            look(x.mul(y));
        }
        look(x.scale(0.5));
        look(x.cast(DType::I8));
        with_element!(x.dtype(), T => {
            look(x.get::<T>(&random.picks()));
        });
        assert!((-&x).entries() == x.entries());
        last = x;
    }
    assert!((1000..9000).contains(&accepted), "{accepted} accepted");
}

#[test]
fn selected_rows_of_damaged_parts() {
    let mut random = Random(17);
    let (mut accepted, mut last) = (0, SelectedRows::zeros(DType::F32, &[2, 3]).unwrap());
    for _ in 0..10_000 {
        let (height, rows) = (random.extent(), random.below(4) as usize);
        let given = if random.below(9) == 0 { random.below(4) as usize } else { rows };
        let rank = random.below(3) as usize;
        let row: Vec<usize> = (0..rank).map(|_| random.below(3) as usize).collect();
        let values = random.values(&[&[given], &row[..]].concat());
        let Ok(x) = SelectedRows::new(height, random.indices(rows), values) else { continue };
        accepted += 1;
        let y = last.cast(x.dtype()).unwrap();
        assert!(!x.to_string().is_empty());
        look(x.densify());
        look(x.clone().merge());
        look(x.to_csr());
        look(x.to_coo());
        look(x.row(random.extent()));
        look(x.retain(&random.indices(2)));
        for y in [&x, &y] {
            look(x.add(y));
            look(x.sub(y));
            look(x.mul(y));
        }
        look(x.scale(0.5));
        look(x.dot(&random.values(&[2, 2]).cast(x.dtype())));
        assert!((-&x).row_ids() == x.row_ids());
        last = x;
    }
    assert!((1000..9000).contains(&accepted), "{accepted} accepted");
}
