//! How fast are the products of sparse matrices, beside `sprs` in the same run?
//!
//! `cargo bench --bench sparse` prints a line of JSON for each product: seconds, the median of calls that take turns with the
//! peer's, and `ratio`, the peer's over ours. `sprs` runs on one thread. `transposed·dense` plans the columns at every call
//! if that pays, `planned` has done so before. Every result is compared with the peer's first.
//!
//! `train` learns 20 newsgroups by `linear` of csr rows and of the dense twin, each in a process of its own: accuracy, seconds,
//! peak memory.
//!
//! The matrices are 20 newsgroups as bags of words and a9a, as `20news-bow/20ng.zip` and `a9a/a9a` in the folder that
//! `UNPADDED_DATASETS` names, else `../shared/datasets`. A matrix of about the same shape is drawn for a missing data set.

#[path = "../memory.rs"]
mod memory;
mod train;

use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

use ndarray::{ArrayView2, ArrayViewMut2};
use sprs::CsMat;
use sprs::prod::{
    csc_mulacc_dense_rowmaj, csr_mulacc_dense_rowmaj, mul_acc_mat_vec_csc, mul_acc_mat_vec_csr,
};
use unpadded::kernels::sparse::{Columns, CsrMut, CsrView, SparseRoom, csr_csr, csr_dense};
use unpadded::kernels::{View, ViewMut, philox};
use unpadded::op::Assign;
use unpadded_text::TextFile;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Seconds that a product and its peer are measured, and the fewest turns.
const SECONDS: f64 = 1.2;
const TURNS: usize = 7;

fn main() -> Result<()> {
    // `cargo bench` adds `--bench`; all other arguments choose products by a part of their names.
    let chosen: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with("--")).collect();
    let chosen = |name: &str| chosen.is_empty() || chosen.iter().any(|part| name.contains(part.as_str()));
    if chosen("train") {
        train::compare()?;
    }
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build()?;
    for matrix in [Matrix::newsgroups()?, Matrix::a9a()?] {
        let x = matrix.peer();
        for n in [1, 64, 256] {
            pool.install(|| dense(&matrix, &x, n, &chosen))?;
        }
        if chosen("XᵀX") {
            pool.install(|| squared(&matrix, &x))?;
        }
    }
    Ok(())
}

/// A sparse matrix with ascending columns.
struct Matrix {
    name: &'static str,
    columns: usize,
    indptr: Vec<i64>,
    indices: Vec<i64>,
    values: Vec<f32>,
}

impl Matrix {
    fn newsgroups() -> Result<Self> {
        let path = datasets().join("20news-bow/20ng.zip");
        if there(&path, fs::File::open(&path))?.is_none() {
            return Ok(Self::drawn("drawn like 20news-bow", [11_268, 2_000, 129]));
        }
        Self::parsed("20news-bow", &TextFile::open(&path)?.member("20ng/train.feat")?.text()?)
    }

    fn a9a() -> Result<Self> {
        let path = datasets().join("a9a/a9a");
        let text = there(&path, fs::read_to_string(&path))?;
        text.map_or_else(
            || Ok(Self::drawn("drawn like a9a", [32_561, 123, 28])),
            |text| Self::parsed("a9a", &text),
        )
    }

    /// Lines of a label and `column:value`, columns from 1 on in any order.
    fn parsed(name: &'static str, text: &str) -> Result<Self> {
        let mut rows = vec![];
        for line in text.lines() {
            let mut row = vec![];
            for entry in line.split_ascii_whitespace().skip(1) {
                let (column, value) = entry.split_once(':').ok_or_else(|| format!("{entry:?} in {name}"))?;
                row.push((column.parse::<i64>()? - 1, value.parse()?));
            }
            rows.push(row);
        }
        let columns = rows.iter().flatten().map(|&(column, _)| column + 1).max().unwrap_or(0);
        Ok(Self::of_rows(name, columns as usize, rows))
    }

    /// Rows of 1 to `longest` entries; low columns are the frequent ones.
    fn drawn(name: &'static str, [rows, columns, longest]: [usize; 3]) -> Self {
        let draw =
            |r: usize, i: usize| f64::from(philox([r as u32, i as u32, 0, 0], [7, 7])[0]) / 2f64.powi(32);
        let row = |r| {
            let len = (draw(r, 0) * longest as f64) as usize + 1;
            let column = |i| (draw(r, i + 1).powi(2) * columns as f64) as i64;
            (0..len).map(|i| (column(i), 1.0)).collect()
        };
        Self::of_rows(name, columns, (0..rows).map(row).collect())
    }

    fn of_rows(name: &'static str, columns: usize, rows: Vec<Vec<(i64, f32)>>) -> Self {
        let mut made = Self { name, columns, indptr: vec![0], indices: vec![], values: vec![] };
        for mut row in rows {
            row.sort_by_key(|entry| entry.0);
            row.dedup_by_key(|entry| entry.0);
            made.indices.extend(row.iter().map(|entry| entry.0));
            made.values.extend(row.iter().map(|entry| entry.1));
            made.indptr.push(made.indices.len() as i64);
        }
        made
    }

    fn view(&self) -> CsrView<'_, f32> {
        CsrView::new(self.columns, &self.indptr, &self.indices, &self.values)
    }

    fn peer(&self) -> CsMat<f32> {
        let index = |&at: &i64| at as usize;
        CsMat::new(
            (self.view().rows(), self.columns),
            self.indptr.iter().map(index).collect(),
            self.indices.iter().map(index).collect(),
            self.values.clone(),
        )
    }
}

fn datasets() -> PathBuf {
    std::env::var_os("UNPADDED_DATASETS")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../shared/datasets"), PathBuf::from)
}

/// Returns the contents, or `None` if there is no such file.
fn there<T>(path: &std::path::Path, read: std::io::Result<T>) -> Result<Option<T>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            eprintln!("{} is not there: a matrix of about its shape is drawn instead", path.display());
            Ok(None)
        }
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    }
}

/// `x·y` and `xᵀ·y` with `y` of `n` columns.
fn dense(matrix: &Matrix, x: &CsMat<f32>, n: usize, chosen: &(dyn Fn(&str) -> bool + Sync)) -> Result<()> {
    let (rows, columns, view) = (matrix.view().rows(), matrix.columns, matrix.view());
    let filled = |rows: usize| (0..rows * n).map(|i| (i % 17) as f32 * 0.125 - 1.0).collect::<Vec<_>>();
    if chosen("csr·dense") {
        let y = filled(columns);
        let ours = |out: &mut [f32], threads| {
            csr_dense(view, View::new(&y, columns, n), ViewMut::new(out, rows, n), Assign::Write, threads);
        };
        let theirs = |out: &mut [f32]| -> Result<()> {
            out.fill(0.0);
            if n == 1 {
                mul_acc_mat_vec_csr(x.view(), &y[..], out);
                return Ok(());
            }
            let y = ArrayView2::from_shape((columns, n), &y)?;
            csr_mulacc_dense_rowmaj(x.view(), y, ArrayViewMut2::from_shape((rows, n), out)?);
            Ok(())
        };
        compare(matrix, ("csr·dense", n), rows * n, ours, theirs)?;
    }
    let y = filled(rows);
    let theirs = |out: &mut [f32]| -> Result<()> {
        out.fill(0.0);
        if n == 1 {
            mul_acc_mat_vec_csc(x.transpose_view(), &y[..], out);
            return Ok(());
        }
        let y = ArrayView2::from_shape((rows, n), &y)?;
        csc_mulacc_dense_rowmaj(x.transpose_view(), y, ArrayViewMut2::from_shape((columns, n), out)?);
        Ok(())
    };
    let mut plan = Columns::default();
    if chosen("transposed·dense") {
        let ours = |out: &mut [f32], threads| {
            out.fill(0.0);
            plan.prepare(view);
            plan.product_into(View::new(&y, rows, n), ViewMut::new(out, columns, n), threads);
        };
        compare(matrix, ("transposed·dense", n), columns * n, ours, theirs)?;
    }
    if chosen("planned") {
        plan.prepare(view);
        let ours = |out: &mut [f32], threads| {
            out.fill(0.0);
            plan.product_into(View::new(&y, rows, n), ViewMut::new(out, columns, n), threads);
        };
        compare(matrix, ("transposed·dense, planned", n), columns * n, ours, theirs)?;
    }
    Ok(())
}

/// Two ways to a dense result.
fn compare(
    matrix: &Matrix,
    (name, n): (&str, usize),
    len: usize,
    mut ours: impl FnMut(&mut [f32], usize),
    mut theirs: impl FnMut(&mut [f32]) -> Result<()>,
) -> Result<()> {
    let (mut out, mut expected) = (vec![0.0; len], vec![0.0; len]);
    ours(&mut out, 1);
    theirs(&mut expected)?;
    agree(&out, &expected)?;
    let mut times = Times::default();
    while times.go_on() {
        times.ours(1, || ours(black_box(&mut out), 1));
        times.ours(2, || ours(black_box(&mut out), 2));
        times.theirs(|| theirs(black_box(&mut expected)))?;
    }
    times.print(matrix, name, n);
    Ok(())
}

/// `xᵀ·x`.
fn squared(matrix: &Matrix, x: &CsMat<f32>) -> Result<()> {
    let (mut plan, mut room) = (Columns::default(), SparseRoom::default());
    let (mut indptr, mut indices, mut values) = (vec![], vec![], vec![]);
    let mut ours = |threads| {
        plan.prepare(matrix.view());
        let out = CsrMut { indptr: &mut indptr, indices: &mut indices, values: &mut values };
        csr_csr(plan.transposed(), matrix.view(), out, &mut room, threads);
    };
    let theirs = || &x.transpose_view() * x;
    let mut times = Times::default();
    while times.go_on() {
        times.ours(1, || ours(1));
        times.ours(2, || ours(2));
        times.theirs(|| {
            black_box(theirs());
            Ok(())
        })?;
    }
    let expected = theirs();
    if !indices.iter().zip(expected.indices()).all(|(&ours, &theirs)| ours as usize == theirs) {
        return Err("results have entries at other places".into());
    }
    agree(&values, expected.data())?;
    times.print(matrix, "XᵀX", matrix.columns);
    Ok(())
}

/// Seconds of each call: ours on one thread and on two, and the peer's.
#[derive(Default)]
struct Times {
    ours: [Vec<f64>; 2],
    theirs: Vec<f64>,
    all: f64,
}

impl Times {
    fn go_on(&self) -> bool {
        self.theirs.len() < TURNS || self.all < SECONDS
    }

    fn ours(&mut self, threads: usize, call: impl FnOnce()) {
        let start = Instant::now();
        call();
        let seconds = start.elapsed().as_secs_f64();
        self.all += seconds;
        self.ours[threads - 1].push(seconds);
    }

    fn theirs(&mut self, call: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        call()?;
        let seconds = start.elapsed().as_secs_f64();
        self.all += seconds;
        self.theirs.push(seconds);
        Ok(())
    }

    fn print(&mut self, matrix: &Matrix, name: &str, n: usize) {
        let median = |times: &mut Vec<f64>| {
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        };
        let peer = median(&mut self.theirs);
        for (times, threads) in self.ours.iter_mut().zip([1, 2]) {
            let ours = median(times);
            println!(
                "{{\"bench\": \"sparse\", \"name\": \"{name}\", \"matrix\": \"{}\", \"n\": {n}, \"threads\": {threads}, \"seconds\": {ours:.7}, \"peer\": \"sprs\", \"peer_seconds\": {peer:.7}, \"ratio\": {:.2}}}",
                matrix.name,
                peer / ours
            );
        }
    }
}

/// Returns an error if two results differ by more than another order of summation explains.
fn agree(ours: &[f32], theirs: &[f32]) -> Result<()> {
    let differ = |(ours, theirs): (&f32, &f32)| (ours - theirs).abs() > 1e-3 * (1.0 + theirs.abs());
    match ours.len() == theirs.len() && !ours.iter().zip(theirs).any(differ) {
        true => Ok(()),
        false => Err("results differ".into()),
    }
}
