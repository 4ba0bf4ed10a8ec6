//! Sums over the rows of a batch: the gradients of a weight and of a bias.
//!
//! Their order of summation depends on the shapes alone, never on the number of threads.

use super::float::{Float, Store};
use super::path::{Arithmetic, Path, Sweep, sweep};
use super::prefetch;
use super::product::{ALIGNMENT, Transpose, aligned, even_blocks};
use super::tile::{PANEL_VECTORS, Tile, max_rows};
use super::view::{Extent2, View, ViewMut};

/// Below this many multiply-adds, or numbers to add, a second thread costs more than it gains.
const WORTH_A_THREAD: usize = 1 << 20;
/// Rows whose products are summed up before they are added to the result: a panel of them, packed, stays in the nearest
/// cache, and they themselves in the next.
const BLOCK_ROWS: usize = 512;

/// What weight gradients pack into, kept from call to call: a panel for each thread, and for a transposed result one of
/// its parts before it is turned.
#[derive(Debug, Default)]
pub struct GradientRoom<T>(Vec<Vec<T>>);

/// The gradient of a weight, whether it is written or added, and whether the weight lies transposed.
pub type WeightGradient<'a, T> = (ViewMut<'a, T>, Store, Transpose);
/// The same of a bias.
pub type BiasGradient<'a, T> = (&'a mut [T], Store);

/// The gradients of [`affine`](super::affine): `dw = xᵀ·dy`, or `dw += xᵀ·dy`, where `x` and `dw` are given, and the
/// column sums of `dy`, which cost little beside it. A transposed `dw` has the same numbers, rows as columns. Long sums are added block by block. On up to `threads` threads of rayon's pool, with the same bits for
/// any number of them.
///
/// # Panics
/// Unless `x` is R × K, `dy` R × N, `dw` K × N (transposed N × K), and `db` of N numbers.
pub fn affine_gradient<T: Float>(
    dy: View<'_, T>,
    weight: Option<(View<'_, T>, WeightGradient<'_, T>)>,
    bias: Option<BiasGradient<'_, T>>,
    room: &mut GradientRoom<T>,
    threads: usize,
) {
    match (weight, bias) {
        (Some((x, dw)), db) => weight_gradient(Path::best(), Gradients { x, dy, dw, db }, room, threads),
        (None, Some((db, store))) => bias_gradient(dy, db, store, threads),
        (None, None) => {}
    }
}

/// What is summed over the same rows.
struct Gradients<'a, T> {
    x: View<'a, T>,
    dy: View<'a, T>,
    dw: WeightGradient<'a, T>,
    db: Option<BiasGradient<'a, T>>,
}

fn weight_gradient<T: Float>(
    path: Path,
    mut all: Gradients<'_, T>,
    room: &mut GradientRoom<T>,
    threads: usize,
) {
    let Gradients { x, dy, dw: (dw, store, transpose), db } = &mut all;
    let (rows, k, n) = (x.rows(), x.width(), dy.width());
    assert_eq!(dy.rows(), rows, "the rows of a weight gradient");
    assert_eq!((dw.rows(), dw.width()), transpose.shape((k, n)), "the shape of a weight gradient");
    assert!(db.as_ref().is_none_or(|(db, _)| db.len() == n), "the length of a bias gradient");
    if rows == 0 || k == 0 || n == 0 {
        if *store == Store::Write {
            dw.fill(T::ZERO);
        }
        if let Some((db, store)) = db {
            bias_gradient(*dy, db, *store, threads);
        }
        return;
    }
    let threads = super::helpers(rows * k * n, WORTH_A_THREAD, threads);
    room.0.resize_with(room.0.len().max(threads), Vec::new);
    share(path, all, &mut room.0[..threads]);
}

/// Threads share the result: its columns, as long as these are several panels, else its rows.
fn share<T: Float>(path: Path, all: Gradients<'_, T>, rooms: &mut [Vec<T>]) {
    let (width, parts) = (PANEL_VECTORS * T::lanes(path), rooms.len());
    let (panels, k) = (all.dy.width().div_ceil(width), all.x.width());
    if parts < 2 || panels < 2 && k < 2 {
        return blocks(path, all, &mut rooms[0]);
    }
    let (left, right) = rooms.split_at_mut(parts / 2);
    let Gradients { x, dy, dw: (dw, store, transpose), db } = all;
    let (a, b) = if panels > 1 {
        let middle = (panels * left.len() / parts).max(1) * width;
        let (dw, dw_after) = match transpose {
            Transpose::No => dw.split_columns(middle),
            Transpose::Yes => dw.split_rows(middle),
        };
        let db = db.map(|(db, store)| (db.split_at_mut(middle), store));
        let (db, db_after) = db.map(|((db, after), store)| ((db, store), (after, store))).unzip();
        let dy_after = dy.columns(middle, dy.width());
        (
            Gradients { x, dy: dy.columns(0, middle), dw: (dw, store, transpose), db },
            Gradients { x, dy: dy_after, dw: (dw_after, store, transpose), db: db_after },
        )
    } else {
        let middle = (k * left.len() / parts).max(1);
        let (dw, dw_after) = match transpose {
            Transpose::No => dw.split_rows(middle),
            Transpose::Yes => dw.split_columns(middle),
        };
        (
            Gradients { x: x.columns(0, middle), dy, dw: (dw, store, transpose), db },
            Gradients { x: x.columns(middle, k), dy, dw: (dw_after, store, transpose), db: None },
        )
    };
    rayon::join(|| share(path, a, left), || share(path, b, right));
}

/// Block of rows by block of rows, panel by panel of columns: `dy` is packed, `x` is read as it lies.
fn blocks<T: Float>(path: Path, all: Gradients<'_, T>, room: &mut Vec<T>) {
    let Gradients { x, dy, dw: (mut dw, store, transpose), mut db } = all;
    let (width, rows, n) = (PANEL_VECTORS * T::lanes(path), x.rows(), dy.width());
    let turned = if transpose == Transpose::Yes { x.width() * width } else { 0 };
    let size = BLOCK_ROWS * width + turned + ALIGNMENT / size_of::<T>();
    if room.len() < size {
        room.resize(size, T::ZERO);
    }
    let start = aligned(room);
    let (panel, turned) = room[start..].split_at_mut(BLOCK_ROWS * width);
    for row in (0..rows).step_by(BLOCK_ROWS) {
        let x = x.rows_range(row, rows.min(row + BLOCK_ROWS));
        let later = |store: Store| if row > 0 { Store::Add } else { store };
        for column in (0..n).step_by(width) {
            let columns = column..n.min(column + width);
            let dy_part = dy.rows_range(row, row + x.rows()).columns(columns.start, columns.end);
            let db = db.as_mut().map(|(db, store)| (&mut db[columns.clone()], later(*store)));
            sweep(Pack { dy: dy_part, panel, width, db });
            let next = if columns.end < n { (row, columns.end) } else { (row + BLOCK_ROWS, 0) };
            let ahead = Ahead { dy, row: next.0, column: next.1, end: rows.min(next.0 + BLOCK_ROWS) };
            match transpose {
                Transpose::No => {
                    let dw = dw.reborrow().columns(columns.start, columns.end);
                    multiply(path, x, panel, (dw, later(store)), ahead);
                }
                // The same products in a part that stays in the cache; only then rows become columns.
                Transpose::Yes => {
                    let extent = Extent2 { rows: x.width(), width: columns.len(), stride: width };
                    multiply(path, x, panel, (ViewMut::strided(turned, extent), Store::Write), ahead);
                    let (_, dw) = dw.reborrow().split_rows(columns.start);
                    let (dw, _) = dw.split_rows(columns.len());
                    sweep(Turn { from: turned, width, to: dw, store: later(store) });
                }
            }
        }
    }
}

/// Rows of at most `width` columns, side by side and filled up with zeros; and their sum, where it is wanted.
struct Pack<'a, T> {
    dy: View<'a, T>,
    panel: &'a mut [T],
    width: usize,
    db: Option<BiasGradient<'a, T>>,
}

impl<T: Float> Sweep for Pack<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        match self.width {
            32 => self.rows::<32>(),
            16 => self.rows::<16>(),
            8 => self.rows::<8>(),
            _ => self.rows::<4>(),
        }
    }
}

impl<T: Float> Pack<'_, T> {
    /// A length that is known makes each row a few vectors.
    #[inline(always)]
    fn rows<const WIDTH: usize>(self) {
        let mut sums = [T::ZERO; WIDTH];
        for (row, to) in self.dy.iter().zip(self.panel.as_chunks_mut::<WIDTH>().0) {
            match row.first_chunk::<WIDTH>() {
                Some(row) => *to = *row,
                None => {
                    *to = [T::ZERO; WIDTH];
                    to[..row.len()].copy_from_slice(row);
                }
            }
            sums.iter_mut().zip(to).for_each(|(sum, &mut dy)| *sum += dy);
        }
        if let Some((db, store)) = self.db {
            put(&sums[..db.len()], db, store);
        }
    }
}

/// Columns, in rows of `width`, that become the rows of `to`, or are added to them.
struct Turn<'a, T> {
    from: &'a [T],
    width: usize,
    to: ViewMut<'a, T>,
    store: Store,
}

impl<T: Float> Sweep for Turn<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        match self.width {
            32 => self.columns::<32>(),
            16 => self.columns::<16>(),
            8 => self.columns::<8>(),
            _ => self.columns::<4>(),
        }
    }
}

impl<T: Float> Turn<'_, T> {
    /// A few rows at a time, so that both sides stay in the nearest cache.
    #[inline(always)]
    fn columns<const WIDTH: usize>(mut self) {
        const BLOCK: usize = 16;
        let rows = &self.from.as_chunks::<WIDTH>().0[..self.to.width()];
        for (block, from) in rows.chunks(BLOCK).enumerate() {
            let start = block * BLOCK;
            for (j, to) in self.to.iter_mut().enumerate().take(WIDTH) {
                let to = &mut to[start..start + from.len()];
                match from.first_chunk::<BLOCK>() {
                    Some(from) => to.iter_mut().zip(from).for_each(|(to, row)| self.store.put(to, row[j])),
                    None => to.iter_mut().zip(from).for_each(|(to, row)| self.store.put(to, row[j])),
                }
            }
        }
    }
}

/// The panel after this one, which is asked for while this one is multiplied: it comes from memory.
struct Ahead<'a, T> {
    dy: View<'a, T>,
    row: usize,
    end: usize,
    column: usize,
}

impl<T: Float> Ahead<'_, T> {
    /// Asks for so many rows of `width` numbers.
    #[inline]
    fn ask(&mut self, rows: usize, width: usize) {
        for row in self.row..self.end.min(self.row + rows) {
            for at in (0..width).step_by(ALIGNMENT / size_of::<T>()) {
                let from = self.dy.as_ptr().wrapping_add(row * self.dy.stride() + self.column + at);
                prefetch::to_read_later(from);
            }
        }
        self.row += rows;
    }
}

/// `dw = xᵀ·dy` for a packed panel of `dy`.
fn multiply<T: Float>(
    path: Path,
    x: View<'_, T>,
    panel: &[T],
    (mut dw, store): (ViewMut<'_, T>, Store),
    mut ahead: Ahead<'_, T>,
) {
    let (width, rows, k) = (PANEL_VECTORS * T::lanes(path), x.rows(), x.width());
    assert!(panel.len() >= width * rows && dw.width() <= width && dw.rows() == k, "a packed panel");
    let (to, stride) = (dw.as_mut_ptr(), dw.stride());
    let share = BLOCK_ROWS.div_ceil(k.div_ceil(max_rows(path, PANEL_VECTORS)));
    for part in even_blocks(k, max_rows(path, PANEL_VECTORS)) {
        ahead.ask(share, width);
        // SAFETY: `part` are columns of `x` and rows of `dw`; the panel has as many rows as `x`, and its columns exist
        // in `dw` as far as `columns` says. `Path::best` is what the CPU has, and tests ask for available ones.
        unsafe {
            T::transposed_tile(path, part.len())(&Tile {
                k: rows,
                a: x.as_ptr().add(part.start),
                a_stride: x.stride(),
                b: panel.as_ptr(),
                b_stride: 0,
                c: to.add(part.start * stride),
                c_stride: stride,
                columns: dw.width(),
                bias: std::ptr::null(),
                add: store == Store::Add,
            });
        }
    }
}

/// `db[j] = Σ dy[i][j]`, or `db += …`, in blocks of 128 rows, for accuracy as much as for speed; on up to `threads`
/// threads of rayon's pool, which share the columns.
///
/// # Panics
/// If `db` is not as long as a row of `dy`.
fn bias_gradient<T: Float>(dy: View<'_, T>, db: &mut [T], store: Store, threads: usize) {
    let width = dy.width();
    assert_eq!(db.len(), width, "the length of a bias gradient");
    if threads < 2 || width < 2 || dy.rows() * width < WORTH_A_THREAD {
        return sweep(ColumnSums { dy, db, store });
    }
    let left = threads / 2;
    let middle = width * left / threads;
    let (a, b) = db.split_at_mut(middle);
    rayon::join(
        || bias_gradient(dy.columns(0, middle), a, store, left),
        || bias_gradient(dy.columns(middle, width), b, store, threads - left),
    );
}

struct ColumnSums<'a, T> {
    dy: View<'a, T>,
    db: &'a mut [T],
    store: Store,
}

impl<T: Float> Sweep for ColumnSums<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<A: Arithmetic>(self) {
        const ROWS: usize = 128;
        const COLUMNS: usize = 128;
        for (chunk, db) in self.db.chunks_mut(COLUMNS).enumerate() {
            let from = chunk * COLUMNS;
            let columns = self.dy.columns(from, from + db.len());
            let mut total = [T::ZERO; COLUMNS];
            let mut row = 0;
            while row < columns.rows() {
                let mut block = [T::ZERO; COLUMNS];
                let end = columns.rows().min(row + ROWS);
                for dy in columns.rows_range(row, end).iter() {
                    for (sum, &dy) in block.iter_mut().zip(dy) {
                        *sum += dy;
                    }
                }
                for (total, &sum) in total.iter_mut().zip(&block) {
                    *total += sum;
                }
                row = end;
            }
            put(&total[..db.len()], db, self.store);
        }
    }
}

fn put<T: Float>(sums: &[T], to: &mut [T], store: Store) {
    for (to, &sum) in to.iter_mut().zip(sums) {
        *to = if store == Store::Add { *to + sum } else { sum };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::numbers;

    fn naive<T: Float>(x: View<'_, T>, dy: View<'_, T>) -> Vec<f64> {
        let n = dy.width();
        let mut dw = vec![0.0; x.width() * n];
        for (x, dy) in x.iter().zip(dy.iter()) {
            for (i, &x) in x.iter().enumerate() {
                for (j, &dy) in dy.iter().enumerate() {
                    dw[i * n + j] += x.to_f64() * dy.to_f64();
                }
            }
        }
        dw
    }

    fn check<T: Float>(path: Path, (rows, k, n): (usize, usize, usize), tolerance: f64) {
        let x = numbers::<T>((rows + 1) * (k + 1), 1);
        let dy = numbers::<T>((rows + 1) * (n + 2), 2);
        let x = View::strided(&x, Extent2 { rows, width: k, stride: k + 1 });
        let dy = View::strided(&dy, Extent2 { rows, width: n, stride: n + 2 });
        let extent = Extent2 { rows: k, width: n, stride: n + 3 };
        let mut dw = vec![T::from_f64(f64::NAN); k * (n + 3)];
        let mut db = vec![T::from_f64(f64::NAN); n];
        let mut room = GradientRoom::default();
        let mut run = |dw: &mut [T], db: &mut [T], store, threads| {
            let (dw, db) = ((ViewMut::strided(dw, extent), store, Transpose::No), Some((db, store)));
            weight_gradient(path, Gradients { x, dy, dw, db }, &mut room, threads);
        };
        run(&mut dw, &mut db, Store::Write, 1);
        let (once, sums) = (dw.clone(), db.clone());
        run(&mut dw, &mut db, Store::Add, 2);
        let extent = Extent2 { rows: n, width: k, stride: k + 5 };
        let mut turned = vec![T::from_f64(f64::NAN); n * (k + 5)];
        for (store, threads, expected) in [(Store::Write, 1, &once), (Store::Add, 2, &dw)] {
            let to = (ViewMut::strided(&mut turned, extent), store, Transpose::Yes);
            weight_gradient(path, Gradients { x, dy, dw: to, db: None }, &mut room, threads);
            for (i, j) in (0..k).flat_map(|i| (0..n).map(move |j| (i, j))) {
                let (ours, theirs) = (turned[j * (k + 5) + i], expected[i * (n + 3) + j]);
                assert!(ours == theirs, "{path:?} {rows}x{k}x{n}, transposed: {ours} is not {theirs}");
            }
            let past = turned.chunks(k + 5).all(|row| row[k..].iter().all(|x| !x.is_finite()));
            assert!(past, "{path:?} {rows}x{k}x{n}, transposed: wrote past a row");
        }
        for j in 0..n {
            let sum: f64 = dy.iter().map(|row| row[j].to_f64()).sum();
            let off = (sums[j].to_f64() - sum).abs();
            assert!(off <= tolerance * (1.0 + rows as f64), "{rows}x{k}x{n}: {} {sum}", sums[j]);
            let off = (db[j].to_f64() - 2.0 * sum).abs();
            assert!(off <= tolerance * (1.0 + rows as f64), "{rows}x{k}x{n}: {} twice {sum}", db[j]);
        }
        let expected = naive(x, dy);
        for i in 0..k {
            for j in 0..n {
                let (a, b, y) =
                    (once[i * (n + 3) + j].to_f64(), dw[i * (n + 3) + j].to_f64(), expected[i * n + j]);
                let bound = tolerance * (1.0 + rows as f64).sqrt();
                assert!(
                    (a - y).abs() <= bound && (b - 2.0 * y).abs() <= 2.0 * bound,
                    "{rows}x{k}x{n}: {a} {b} {y}"
                );
            }
        }
    }

    #[test]
    fn weight_gradients_match_the_naive_sum() {
        for shape in [
            (0, 3, 4),
            (1, 1, 1),
            (1, 7, 33),
            (3, 64, 5),
            (200, 17, 31),
            (700, 40, 130),
            (5, 0, 3),
            (260, 300, 520),
        ] {
            for path in Path::available() {
                check::<f32>(path, shape, 2e-6);
                check::<f64>(path, shape, 1e-14);
            }
        }
    }

    #[test]
    fn weight_gradients_have_the_same_bits_on_any_number_of_threads() {
        let shapes = [
            (16000, 128, 1024),
            (16000, 256, 1024),
            (1, 128, 1024),
            (7, 256, 1024),
            (63, 300, 777),
            (1000, 33, 2000),
            (3000, 512, 65),
            (20000, 300, 1),
            (20000, 1, 300),
            (40, 2000, 300),
        ];
        for (rows, k, n) in shapes {
            let (x, dy) = (numbers::<f32>(rows * k, 1), numbers::<f32>(rows * n, 2));
            let run = |threads, transpose: Transpose| {
                let (mut dw, mut db) = (vec![0.5; k * n], vec![0.5; n]);
                let (x, dy) = (View::new(&x, rows, k), View::new(&dy, rows, n));
                let (height, width) = transpose.shape((k, n));
                let weight = Some((x, (ViewMut::new(&mut dw, height, width), Store::Add, transpose)));
                let room = &mut GradientRoom::default();
                affine_gradient(dy, weight, Some((&mut db, Store::Add)), room, threads);
                (dw, db)
            };
            for transpose in [Transpose::No, Transpose::Yes] {
                let one = run(1, transpose);
                for threads in [2, 3] {
                    assert!(run(threads, transpose) == one, "{rows}x{k}x{n} on {threads} threads");
                }
            }
        }
    }

    #[test]
    fn bias_gradients_have_the_same_bits_on_any_number_of_threads() {
        for (rows, n) in [(9000, 130), (1050, 1001), (600_000, 2), (2_000_000, 1)] {
            let dy = numbers::<f32>(rows * n, 1);
            let run = |threads| {
                let mut db = vec![0.5; n];
                bias_gradient(View::new(&dy, rows, n), &mut db, Store::Add, threads);
                db
            };
            let one = run(1);
            for threads in [2, 3] {
                assert!(run(threads) == one, "{rows}x{n} on {threads} threads");
            }
        }
    }

    #[test]
    fn bias_gradients_match_the_naive_sum() {
        for (rows, n) in [(0, 3), (1, 1), (5, 0), (300, 129), (1000, 256), (128, 500)] {
            let dy = numbers::<f32>((rows + 1) * (n + 2), 1);
            let dy = View::strided(&dy, Extent2 { rows, width: n, stride: n + 2 });
            let mut db = vec![f32::NAN; n];
            bias_gradient(dy, &mut db, Store::Write, 1);
            let once = db.clone();
            bias_gradient(dy, &mut db, Store::Add, 1);
            for j in 0..n {
                let expected: f64 = dy.iter().map(|row| f64::from(row[j])).sum();
                assert!((f64::from(once[j]) - expected).abs() < 1e-4, "{} {expected}", once[j]);
                assert_eq!(db[j], once[j] + once[j]);
            }
        }
    }
}
