//! The convolutions compared with plain loops, on every path, on any number of threads and in any batch.

use super::*;
use crate::kernels::checks::{near, numbers, packed};
use crate::kernels::float::{Assign, Float};
use crate::kernels::path::MatrixUnit;
use crate::kernels::path::Path;
use crate::kernels::products::{PackedMatrix, Transpose};
use crate::kernels::view::{View, ViewMut};

struct Case {
    window: Window,
    lengths: &'static [usize],
    groups: usize,
    /// The width of one group in the input, and its width in the output.
    group: (usize, usize),
}

const WINDOWS: [Window; 6] = [
    Window { start: -1, step: 1, taps: 3 },
    Window { start: -6, step: 3, taps: 3 },
    Window { start: 1, step: 2, taps: 2 },
    Window { start: 2, step: -2, taps: 4 },
    Window { start: 0, step: 1, taps: 1 },
    Window { start: 9, step: 1, taps: 2 },
];

fn cases() -> impl Iterator<Item = Case> {
    let lengths: [&[usize]; 4] = [&[5, 0, 1, 17, 2], &[300, 700], &[0, 0], &[]];
    let groups = [(1, (3, 40)), (2, (5, 4)), (7, (1, 1)), (3, (1, 2))];
    WINDOWS.into_iter().flat_map(move |window| {
        lengths
            .into_iter()
            .flat_map(move |lengths| groups.map(|(groups, group)| Case { window, lengths, groups, group }))
    })
}

fn offsets(lengths: &[usize]) -> Vec<usize> {
    // The first offset need not be 0.
    let mut offsets = vec![3];
    for length in lengths {
        offsets.push(offsets[offsets.len() - 1] + length);
    }
    offsets
}

/// Calls `each` with a row, a tap and the index of the row that the tap reads. The rows of x come first, then the
/// padding rows.
fn naive(case: &Case, offsets: &[usize], mut each: impl FnMut(usize, usize, usize)) {
    let rows = offsets[offsets.len() - 1] - offsets[0];
    for pair in offsets.windows(2) {
        let (start, end) = ((pair[0] - offsets[0]) as isize, (pair[1] - offsets[0]) as isize);
        for row in start..end {
            for tap in 0..case.window.taps {
                let index = row + case.window.start + tap as isize * case.window.step;
                let above = case.window.above() as isize;
                let from = if index < start {
                    rows as isize + above + index - start
                } else if index < end {
                    index
                } else {
                    rows as isize + above + index - end
                };
                each(row as usize, tap, from as usize);
            }
        }
    }
}

fn shape<T>(v: &mut [T], width: usize) -> ViewMut<'_, T> {
    ViewMut::new(v, v.len() / width, width)
}

#[test]
fn convolutions_and_gradients_match_plain_loops() {
    match_plain_loops::<f64>(&[Path::best()]);
    match_plain_loops::<f32>(&Path::available());
}

fn match_plain_loops<T: Float>(paths: &[Path]) {
    for case in cases() {
        let Case { window, lengths, groups, group: (input, output) } = case;
        let (offsets, taps) = (offsets(lengths), window.taps);
        let rows = offsets[offsets.len() - 1] - offsets[0];
        let (width, n) = (input * groups, output * groups);
        let x = numbers::<T>(rows * width, 1);
        let w = numbers::<T>(taps * input * n, 2);
        let bias = numbers::<T>(n, 3);
        let pad = numbers::<T>(window.padding_rows() * width, 4);
        let dy = numbers::<T>(rows * n, 5);
        let all = [&x[..], &pad[..]].concat();
        let mut out: Vec<f64> = (0..rows * n).map(|i| bias[i % n].to_f64()).collect();
        let (mut dall, mut dw) = (vec![0.0; all.len()], vec![0.0; w.len()]);
        naive(&case, &offsets, |row, tap, from| {
            for c in 0..n {
                for k in 0..input {
                    let (x, w_at) = (from * width + c / output * input + k, (tap * input + k) * n + c);
                    out[row * n + c] += all[x].to_f64() * w[w_at].to_f64();
                    dall[x] += dy[row * n + c].to_f64() * w[w_at].to_f64();
                    dw[w_at] += dy[row * n + c].to_f64() * all[x].to_f64();
                }
            }
        });
        let nan = T::from_f64(f64::NAN);
        let close = |ours: &[T], expected: &[f64], what: &str| {
            near(ours, expected, if size_of::<T>() == 4 { 1e-4 } else { 1e-11 }, what);
        };
        let what = format!("{window:?} {lengths:?} {groups} groups of {input} and {output}");
        let padding = Some(View::new(&pad, window.padding_rows(), width));
        let read = ConvRows { x: View::new(&x, rows, width), padding, offsets: &offsets, window };
        let back = ConvRows { x: View::new(&dy, rows, n), padding: None, offsets: &offsets, window };
        let turned = ConvRows { window: window.turned(), ..back };
        let filter = View::new(&w, taps * input, n);
        let mut ours = [rows * n, x.len(), pad.len()].map(|len| vec![nan; len]);
        let [a, b, c] = &mut ours;
        if (input, output) == (1, 1) {
            depthwise_forward(read, filter, Some(&bias), (shape(a, n), Assign::Write));
            depthwise_forward(turned, filter, None, (shape(b, width), Assign::Write));
            depthwise_padding_gradient(back, filter, (shape(c, width), Assign::Write));
        }
        for &path in paths {
            let filter_of = |g: usize| filter.columns(g * output, (g + 1) * output);
            let turned_packed = |g: usize| {
                let mut packed = PackedMatrix::on(path);
                packed.resize(taps * output, input);
                for tap in 0..taps {
                    let tap_rows = filter_of(g).rows_range(tap * input, (tap + 1) * input);
                    packed.put(tap_rows, Transpose::Yes, (tap * output, 0), 1);
                }
                packed
            };
            let weights: Vec<_> = (0..groups).map(|g| packed(path, filter_of(g), Transpose::No)).collect();
            let weights_back: Vec<_> = (0..groups).map(turned_packed).collect();
            let (mut room, mut gradients) = (ConvRoom::default(), ConvGradient::default());
            for _ in 0..2 {
                if (input, output) != (1, 1) {
                    conv_forward(read, &weights, Some(&bias), (shape(a, n), Assign::Write), &mut room, 2);
                    conv_forward(turned, &weights_back, None, (shape(b, width), Assign::Write), &mut room, 1);
                    let to = (shape(c, width), Assign::Write);
                    conv_padding_gradient(back, &weights_back, to, &mut gradients);
                }
                close(a, &out, &what);
                close(b, &dall[..x.len()], &what);
                close(c, &dall[x.len()..], &what);
            }
        }
        let db: Vec<f64> = (0..n).map(|c| (0..rows).map(|row| dy[row * n + c].to_f64()).sum()).collect();
        let mut first = vec![];
        for threads in [1, 2, 5] {
            let (mut to, mut sums) = (vec![nan; w.len()], vec![nan; n]);
            let mut room = ConvGradient::default();
            let mut run = |assign| {
                let to = (ViewMut::new(&mut to, taps * input, n), assign);
                if (input, output) == (1, 1) {
                    depthwise_gradient(read, back.x, to, threads);
                } else {
                    let db = Some((&mut sums[..], assign));
                    conv_gradient(read, back.x, groups, to, db, (MatrixUnit::F32, &mut room), threads);
                }
            };
            run(Assign::Write);
            run(Assign::Add);
            let half = |v: &[T]| v.iter().map(|&x| x / T::from_f64(2.0)).collect::<Vec<_>>();
            close(&half(&to), &dw, &what);
            if (input, output) != (1, 1) {
                close(&half(&sums), &db, &what);
            }
            if first.is_empty() {
                first = to.clone();
            }
            assert!(to == first, "{what}: other bits on {threads} threads");
        }
    }
}

#[test]
fn a_sequence_has_the_same_bits_in_any_batch() {
    let (width, n, taps) = (37, 50, 5);
    let window = Window { start: -2, step: 1, taps };
    let (x, w) = (numbers::<f32>(900 * width, 1), numbers::<f32>(taps * width * n, 2));
    let packed = packed(Path::best(), View::new(&w, taps * width, n), Transpose::No);
    let run = |from: usize, offsets: &[usize]| {
        let rows = offsets[offsets.len() - 1] - offsets[0];
        let mut out = vec![f32::NAN; rows * n];
        let x = View::new(&x, 900, width).rows_range(from, from + rows);
        let to = (ViewMut::new(&mut out, rows, n), Assign::Write);
        let read = ConvRows { x, padding: None, offsets, window };
        conv_forward(read, std::slice::from_ref(&packed), None, to, &mut ConvRoom::default(), 1);
        out
    };
    let offsets = [0, 1, 400, 404, 404, 900];
    let whole = run(0, &offsets);
    for pair in offsets.windows(2) {
        assert!(run(pair[0], pair) == whole[pair[0] * n..pair[1] * n], "rows {pair:?}");
    }
}
