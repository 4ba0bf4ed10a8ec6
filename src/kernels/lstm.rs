//! The pointwise part of an LSTM step: the forward and the backward pass, each in one loop.
//!
//! The gate inputs are `pre` = (i, f, g, o), each as wide as the state; the new states are `c = σ(f)·c_prev + σ(i)·tanh(g)`
//! and `h = σ(o)·tanh(c)`. The backward pass needs only `pre` and `c` from the forward pass: computing the gates again is
//! cheaper than writing and reading the gates.

use super::chunk::{CHUNK, Chunks, Columns, Output, lies, logistics, tangents};
use super::float::{Assign, Float};
use super::path::{Arithmetic, Path, Sweep, sweep_on};
use super::view::{View, ViewMut};

/// Computes the new states `h` and `c` from the gate inputs `pre` and the previous cell state.
///
/// # Panics
/// If `pre` is not n × 4H, or another argument is not n × H.
pub fn lstm_forward<T: Float>(pre: View<'_, T>, c_prev: View<'_, T>, h: ViewMut<'_, T>, c: ViewMut<'_, T>) {
    check(pre, c_prev);
    assert_eq!((h.rows(), h.width()), (c_prev.rows(), c_prev.width()), "the shape of h");
    assert_eq!((c.rows(), c.width()), (c_prev.rows(), c_prev.width()), "the shape of c");
    sweep_on(Path::best(), Forward { pre, c_prev, h, c });
}

fn check<T>(pre: View<'_, T>, c_prev: View<'_, T>) {
    assert_eq!((pre.rows(), pre.width()), (c_prev.rows(), 4 * c_prev.width()), "the shape of the gates");
}

struct Forward<'a, T> {
    pre: View<'a, T>,
    c_prev: View<'a, T>,
    h: ViewMut<'a, T>,
    c: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Forward<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let (rows, width) = (self.c_prev.rows(), self.c_prev.width());
        self.each::<A>(rows, width);
    }
}

impl<T: Float> Chunks for Forward<'_, T> {
    #[inline(always)]
    fn chunk<A: Arithmetic, const WHOLE: bool>(&mut self, at: Columns<WHOLE>) {
        let width = self.c_prev.width();
        let (mut i, mut f) = (at.gate(self.pre, 0, width), at.gate(self.pre, 1, width));
        let (mut g, mut o) = (at.gate(self.pre, 2, width), at.gate(self.pre, 3, width));
        let mut c = at.of(self.c_prev);
        logistics::<A, T>(&mut i);
        logistics::<A, T>(&mut f);
        logistics::<A, T>(&mut o);
        let below = tangents::<A, T>(&mut g);
        for j in 0..CHUNK {
            c[j] = c[j] / f[j] + g[j] / (i[j] * below[j]);
        }
        let mut h = c;
        let below = tangents::<A, T>(&mut h);
        for j in 0..CHUNK {
            h[j] /= o[j] * below[j];
        }
        at.write(&mut self.c, 0, &c);
        at.write(&mut self.h, 0, &h);
    }
}

/// The inputs of the backward pass of an LSTM step.
#[derive(Clone, Copy)]
pub struct LstmBackward<'a, T> {
    /// The gate inputs `pre` of the forward pass, n × 4H. If `None`, the gate inputs are in the buffer `dpre`: the backward pass
    /// reads them there and overwrites them with their gradient.
    pub pre: Option<View<'a, T>>,
    /// The previous cell state, one row per sequence (n × H).
    pub c_prev: View<'a, T>,
    /// The cell state that the forward pass computed, one row per sequence (n × H).
    pub c: View<'a, T>,
    /// The gradient of `h`, n × H; `None` if this gradient is zero.
    pub dh: Option<View<'a, T>>,
    /// The gradient of `c` from the next step, n × H; `None` if this gradient is zero.
    pub dc: Option<View<'a, T>>,
}

impl<T> LstmBackward<'_, T> {
    /// Returns the inputs of the rows `from..to`.
    ///
    /// # Panics
    /// If there are no such rows.
    #[must_use]
    pub fn rows_range(&self, from: usize, to: usize) -> Self {
        Self {
            pre: self.pre.as_ref().map(|pre| pre.rows_range(from, to)),
            c_prev: self.c_prev.rows_range(from, to),
            c: self.c.rows_range(from, to),
            dh: self.dh.as_ref().map(|dh| dh.rows_range(from, to)),
            dc: self.dc.as_ref().map(|dc| dc.rows_range(from, to)),
        }
    }
}

/// Computes the gradients of `pre` (n × 4H) and of `c_prev` (n × H).
///
/// # Panics
/// If two arguments do not have matching shapes, or if neither the gate inputs nor the buffer of their gradient is given.
pub fn lstm_backward<T: Float>(inputs: LstmBackward<'_, T>, dpre: Output<'_, T>, dc_prev: Output<'_, T>) {
    match inputs.pre {
        Some(pre) => check(pre, inputs.c_prev),
        None => assert!(
            matches!(dpre, Some((_, Assign::Write))),
            "expected `pre`, or the gate inputs in `dpre`, where their gradient overwrites them"
        ),
    }
    let state = (inputs.c_prev.rows(), inputs.c_prev.width());
    for view in [Some(inputs.c), inputs.dh, inputs.dc].into_iter().flatten() {
        assert_eq!((view.rows(), view.width()), state, "the shape of a state or its gradient");
    }
    if let Some((out, _)) = &dpre {
        assert_eq!((out.rows(), out.width()), (state.0, 4 * state.1), "the shape of the gates' gradient");
    }
    if let Some((out, _)) = &dc_prev {
        assert_eq!((out.rows(), out.width()), state, "the shape of the memory's gradient");
    }
    sweep_on(Path::best(), Backward { inputs, dpre, dc_prev });
}

struct Backward<'a, T> {
    inputs: LstmBackward<'a, T>,
    dpre: Output<'a, T>,
    dc_prev: Output<'a, T>,
}

impl<T: Float> Sweep for Backward<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let (rows, width) = (self.inputs.c.rows(), self.inputs.c.width());
        self.each::<A>(rows, width);
    }
}

impl<T: Float> Chunks for Backward<'_, T> {
    #[inline(always)]
    fn chunk<A: Arithmetic, const WHOLE: bool>(&mut self, at: Columns<WHOLE>) {
        let LstmBackward { pre, c_prev, c, dh, dc } = self.inputs;
        let width = c.width();
        let pre = lies(pre, &self.dpre);
        at.ask(pre, 4, width);
        at.ask(c, 1, width);
        let (mut i, mut f, mut o) = (at.gate(pre, 0, width), at.gate(pre, 1, width), at.gate(pre, 3, width));
        let (mut g, mut shown) = (at.gate(pre, 2, width), at.of(c));
        logistics::<A, T>(&mut i);
        logistics::<A, T>(&mut f);
        logistics::<A, T>(&mut o);
        let (under_g, under_shown) = (tangents::<A, T>(&mut g), tangents::<A, T>(&mut shown));
        let (c_prev, dh, dc) = (at.of(c_prev), at.take(dh), at.take(dc));
        let [mut di, mut df, mut dg, mut d_o, mut dc_prev] = [[T::ZERO; CHUNK]; 5];
        for j in 0..CHUNK {
            let (i, f, o) = (T::ONE / i[j], T::ONE / f[j], T::ONE / o[j]);
            let both = T::ONE / (under_g[j] * under_shown[j]);
            let (g, shown) = (g[j] * (under_shown[j] * both), shown[j] * (under_g[j] * both));
            let dc = A::mul_add(dh[j] * o, A::mul_add(-shown, shown, T::ONE), dc[j]);
            di[j] = dc * g * (i * (T::ONE - i));
            df[j] = dc * c_prev[j] * (f * (T::ONE - f));
            dg[j] = dc * i * A::mul_add(-g, g, T::ONE);
            d_o[j] = dh[j] * shown * (o * (T::ONE - o));
            dc_prev[j] = dc * f;
        }
        at.put(&mut self.dpre, 0, &di);
        at.put(&mut self.dpre, width, &df);
        at.put(&mut self.dpre, 2 * width, &dg);
        at.put(&mut self.dpre, 3 * width, &d_o);
        at.put(&mut self.dc_prev, 0, &dc_prev);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::checks::{matches_differences, near, numbers, paths_agree};
    use crate::kernels::view::Extent2;

    fn scaled<T: Float>(len: usize, seed: u64) -> Vec<T> {
        numbers::<f64>(len, seed).into_iter().map(|x| T::from_f64(3.0 * x)).collect()
    }

    fn forward<T: Float>(n: usize, width: usize, pre: &[T], c_prev: &[T]) -> (Vec<T>, Vec<T>) {
        let (mut h, mut c) = (vec![T::ZERO; n * width], vec![T::ZERO; n * width]);
        lstm_forward(
            View::new(pre, n, 4 * width),
            View::new(c_prev, n, width),
            ViewMut::new(&mut h, n, width),
            ViewMut::new(&mut c, n, width),
        );
        (h, c)
    }

    #[test]
    fn forward_matches_the_formula_in_f64() {
        for (n, width) in [(0, 3), (1, 1), (2, 0), (3, 17), (2, 64), (2, 131)] {
            let (pre, c_prev) = (scaled::<f32>(n * 4 * width, 1), scaled::<f32>(n * width, 2));
            let (h, c) = forward(n, width, &pre, &c_prev);
            for row in 0..n {
                for j in 0..width {
                    let at = |gate: usize| f64::from(pre[row * 4 * width + gate * width + j]);
                    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                    let memory =
                        sigmoid(at(1)) * f64::from(c_prev[row * width + j]) + sigmoid(at(0)) * at(2).tanh();
                    let shown = sigmoid(at(3)) * memory.tanh();
                    assert!((f64::from(c[row * width + j]) - memory).abs() < 1e-6);
                    assert!((f64::from(h[row * width + j]) - shown).abs() < 1e-6);
                }
            }
        }
    }

    fn backward<T: Float>(n: usize, width: usize, data: [&[T]; 5]) -> (Vec<T>, Vec<T>) {
        let [pre, c_prev, c, dh, dc] = data;
        let state = |x| View::new(x, n, width);
        let inputs = LstmBackward {
            pre: Some(View::new(pre, n, 4 * width)),
            c_prev: state(c_prev),
            c: state(c),
            dh: Some(state(dh)),
            dc: Some(state(dc)),
        };
        let (mut dpre, mut dc_prev) = (vec![T::ZERO; n * 4 * width], vec![T::ZERO; n * width]);
        lstm_backward(
            inputs,
            Some((ViewMut::new(&mut dpre, n, 4 * width), Assign::Write)),
            Some((ViewMut::new(&mut dc_prev, n, width), Assign::Add)),
        );
        (dpre, dc_prev)
    }

    #[test]
    fn backward_matches_central_differences() {
        let (n, width) = (2, 67);
        let (pre, c_prev) = (scaled::<f64>(n * 4 * width, 1), scaled::<f64>(n * width, 2));
        let (dh, dc) = (scaled::<f64>(n * width, 3), scaled::<f64>(n * width, 4));
        let loss = |pre: &[f64], c_prev: &[f64]| -> f64 {
            let (h, c) = forward(n, width, pre, c_prev);
            (0..n * width).map(|i| h[i] * dh[i] + c[i] * dc[i]).sum()
        };
        let (_, c) = forward(n, width, &pre, &c_prev);
        let (dpre, dc_prev) = backward(n, width, [&pre, &c_prev, &c, &dh, &dc]);
        matches_differences(&pre, &dpre, |pre| loss(pre, &c_prev));
        matches_differences(&c_prev, &dc_prev, |c_prev| loss(&pre, c_prev));
        let single = |x: &[f64]| x.iter().map(|&x| x as f32).collect::<Vec<_>>();
        let data = [single(&pre), single(&c_prev), single(&c), single(&dh), single(&dc)];
        let (dpre32, dc_prev32) = backward(n, width, std::array::from_fn(|i| &data[i][..]));
        near(&dpre32, &dpre, 1e-5, "dpre in f32");
        near(&dc_prev32, &dc_prev, 1e-5, "dc_prev in f32");
    }

    #[test]
    fn strided_rows_missing_gradients_and_stores() {
        let (n, width, gap) = (3, 5, 2);
        let extent = |width: usize| Extent2 { rows: n, width, stride: width + gap };
        let pre = scaled::<f32>(n * (4 * width + gap), 1);
        let state = scaled::<f32>(n * (width + gap), 2);
        let (pre, state) = (View::strided(&pre, extent(4 * width)), View::strided(&state, extent(width)));
        let run = |dh, dc, assign| {
            let mut out = vec![1.0f32; n * (4 * width + gap)];
            lstm_backward(
                LstmBackward { pre: Some(pre), c_prev: state, c: state, dh, dc },
                Some((ViewMut::strided(&mut out, extent(4 * width)), assign)),
                None,
            );
            out
        };
        let zero = vec![0.0f32; n * width];
        let zero = View::new(&zero, n, width);
        assert_eq!(run(Some(state), None, Assign::Write), run(Some(state), Some(zero), Assign::Write));
        assert_eq!(run(None, Some(state), Assign::Add), run(Some(zero), Some(state), Assign::Add));
        let (written, added) = (run(Some(state), None, Assign::Write), run(Some(state), None, Assign::Add));
        for (i, (w, a)) in written.iter().zip(&added).enumerate() {
            let inside = i % (4 * width + gap) < 4 * width;
            assert_eq!(*a, if inside { 1.0 + w } else { 1.0 });
        }
        lstm_backward(
            LstmBackward { pre: Some(pre), c_prev: state, c: state, dh: None, dc: None },
            None,
            None,
        );
    }

    #[test]
    fn the_gradient_may_take_the_place_of_the_gates() {
        for (n, width) in [(0, 3), (3, 17), (2, 64), (2, 131)] {
            let (pre, c_prev) = (scaled::<f32>(n * 4 * width, 1), scaled::<f32>(n * width, 2));
            let (dh, (_, c)) = (scaled::<f32>(n * width, 3), forward(n, width, &pre, &c_prev));
            let (apart, _) = backward(n, width, [&pre, &c_prev, &c, &dh, &dh]);
            let state = |x| View::new(x, n, width);
            let inputs = LstmBackward {
                pre: None,
                c_prev: state(&c_prev[..]),
                c: state(&c),
                dh: Some(state(&dh)),
                dc: Some(state(&dh)),
            };
            let mut there = pre.clone();
            lstm_backward(inputs, Some((ViewMut::new(&mut there, n, 4 * width), Assign::Write)), None);
            assert_eq!(there, apart);
        }
    }

    #[test]
    fn gates_that_are_shut_or_open_to_the_limit_are_exact() {
        let (inf, c_prev) = (f32::INFINITY, [0.75f32]);
        for (f, kept) in [(inf, 0.75), (-inf, 0.0)] {
            let pre = [-inf, f, inf, inf];
            let (h, c) = forward(1, 1, &pre, &c_prev);
            assert_eq!(c, [kept]);
            assert!((h[0] - kept.tanh()).abs() < 1e-6);
            let (dpre, dc_prev) = backward(1, 1, [&pre, &c_prev, &c, &[1.0], &[2.0]]);
            assert_eq!(dpre, [0.0; 4]);
            assert_eq!(dc_prev[0] == 0.0, f < 0.0, "{dc_prev:?}");
        }
        for gate in 0..4 {
            let mut pre = [0.5; 4];
            pre[gate] = f32::NAN;
            assert!(forward(1, 1, &pre, &c_prev).0[0].is_nan(), "{gate}");
        }
    }

    #[test]
    fn all_paths_agree_up_to_rounding() {
        let (n, width) = (2, 70);
        let (pre, state) = (scaled::<f32>(n * 4 * width, 1), scaled::<f32>(n * width, 2));
        let (pre, c_prev) = (View::new(&pre, n, 4 * width), View::new(&state, n, width));
        paths_agree(|path| {
            let (mut h, mut c, mut d) =
                (vec![0.0; n * width], vec![0.0; n * width], vec![0.0; n * 4 * width]);
            let view = |x| ViewMut::new(x, n, width);
            sweep_on(path, Forward { pre, c_prev, h: view(&mut h), c: view(&mut c) });
            let dh = Some(View::new(&h[..], n, width));
            let inputs = LstmBackward { pre: Some(pre), c_prev, c: View::new(&c, n, width), dh, dc: None };
            let dpre = Some((ViewMut::new(&mut d, n, 4 * width), Assign::Write));
            sweep_on(path, Backward { inputs, dpre, dc_prev: None });
            [h, c, d].concat()
        });
    }
}
