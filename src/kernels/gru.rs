//! The pointwise part of a step of a GRU whose reset gate acts after the recurrent product.
//!
//! A step has two inputs, each of three times the state's width: `xw` = (x_r, x_z, x_n), computed from the step's input, and
//! `hw` = (h_r, h_z, h_n), computed from the old state. The gates are `r = σ(x_r + h_r)` and `z = σ(x_z + h_z)`, the
//! candidate state is `n = tanh(x_n + r·h_n)`, and the new state `h` blends `n` and the old state by `z`. The backward pass
//! computes the gates again from `xw` and `hw`.

use super::chunk::{CHUNK, Chunks, Columns, Output, lies};
use super::float::{Assign, Float};
use super::path::{Arithmetic, Path, Sweep, sweep_on};
use super::view::{View, ViewMut};

/// The convention of the update gate z: which state an open gate selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blend {
    /// `h = (1 - z)·n + z·h_prev`: an open update gate keeps the old state.
    Keep,
    /// `h = z·n + (1 - z)·h_prev`: an open update gate takes the candidate state.
    Take,
}

/// The inputs of the pointwise part of a GRU step.
#[derive(Clone, Copy)]
pub struct GruInputs<'a, T> {
    /// The part of the gates that comes from the step's input, with the input bias; n × 3H.
    pub xw: View<'a, T>,
    /// The part of the gates that comes from the old state, with the recurrent bias; n × 3H.
    pub hw: View<'a, T>,
    /// The old state, one row per sequence (n × H).
    pub h_prev: View<'a, T>,
    /// Which state an open update gate selects.
    pub blend: Blend,
}

impl<T> GruInputs<'_, T> {
    fn check(&self) -> (usize, usize) {
        let state = (self.h_prev.rows(), self.h_prev.width());
        let gates = (state.0, 3 * state.1);
        assert_eq!((self.xw.rows(), self.xw.width()), gates, "the shape of the input's part");
        assert_eq!((self.hw.rows(), self.hw.width()), gates, "the shape of the state's part");
        state
    }
}

/// Computes the new state `h`, one row per sequence (n × H).
///
/// # Panics
/// If two arguments do not have matching shapes.
pub fn gru_forward<T: Float>(inputs: GruInputs<'_, T>, h: ViewMut<'_, T>) {
    let state = inputs.check();
    assert_eq!((h.rows(), h.width()), state, "the shape of h");
    sweep_on(Path::best(), Forward { inputs, h });
}

struct Forward<'a, T> {
    inputs: GruInputs<'a, T>,
    h: ViewMut<'a, T>,
}

impl<T: Float> Sweep for Forward<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let (rows, width) = (self.h.rows(), self.h.width());
        self.each::<A>(rows, width);
    }
}

impl<T: Float> Chunks for Forward<'_, T> {
    #[inline(always)]
    fn chunk<A: Arithmetic, const WHOLE: bool>(&mut self, at: Columns<WHOLE>) {
        let GruInputs { xw, hw, h_prev, blend } = self.inputs;
        let width = h_prev.width();
        let Gates { z, n, .. } = gates::<A, T, WHOLE>(at, xw, hw, width);
        let h_prev = at.of(h_prev);
        let mut h = [T::ZERO; CHUNK];
        for j in 0..CHUNK {
            let (new, old) = shares(z[j], blend);
            h[j] = A::mul_add(new, n[j], old * h_prev[j]);
        }
        at.write(&mut self.h, 0, &h);
    }
}

/// The gates `r` and `z`, the candidate state `n`, and `sn`, the recurrent part h_n of the candidate's input.
struct Gates<T> {
    r: [T; CHUNK],
    z: [T; CHUNK],
    n: [T; CHUNK],
    sn: [T; CHUNK],
}

/// Computes the gates in several short loops; the comment on [`logistics`](super::chunk::logistics) gives the reason.
#[inline(always)]
fn gates<A: Arithmetic, T: Float, const WHOLE: bool>(
    at: Columns<WHOLE>,
    xw: View<'_, T>,
    hw: View<'_, T>,
    width: usize,
) -> Gates<T> {
    let (mut r, mut z, mut n) = (at.gate(xw, 0, width), at.gate(xw, 1, width), at.gate(xw, 2, width));
    let (sr, sz, sn) = (at.gate(hw, 0, width), at.gate(hw, 1, width), at.gate(hw, 2, width));
    for j in 0..CHUNK {
        r[j] = (r[j] + sr[j]).sigmoid_with::<A>();
    }
    for j in 0..CHUNK {
        z[j] = (z[j] + sz[j]).sigmoid_with::<A>();
    }
    for j in 0..CHUNK {
        n[j] = A::mul_add(r[j], sn[j], n[j]).tanh_with::<A>();
    }
    Gates { r, z, n, sn }
}

/// Returns the weights of the candidate state and of the old state in the new state.
#[inline(always)]
fn shares<T: Float>(z: T, blend: Blend) -> (T, T) {
    match blend {
        Blend::Keep => (T::ONE - z, z),
        Blend::Take => (z, T::ONE - z),
    }
}

/// The inputs of the backward pass of a GRU step.
#[derive(Clone, Copy)]
pub struct GruBackward<'a, T> {
    /// The `xw` of the forward pass, n × 3H; `None` if the buffer of the gradient of `xw` still holds `xw`. The gradient
    /// then overwrites `xw`.
    pub xw: Option<View<'a, T>>,
    /// The `hw` of the forward pass, n × 3H; `None` if the buffer of the gradient of `hw` still holds `hw`. The gradient
    /// then overwrites `hw`.
    pub hw: Option<View<'a, T>>,
    /// The old state, one row per sequence (n × H).
    pub h_prev: View<'a, T>,
    /// The gradient of the new state, one row per sequence (n × H).
    pub dh: View<'a, T>,
    /// Which state an open update gate selects.
    pub blend: Blend,
}

/// Computes the gradients of `xw` and `hw` (n × 3H), and of `h_prev` (n × H). The gradient of `h_prev` does not include the
/// path through `hw`.
///
/// # Panics
/// If two arguments do not have matching shapes; or if `xw`, or `hw`, is given neither as a view nor in the buffer of its
/// gradient.
pub fn gru_backward<T: Float>(
    inputs: GruBackward<'_, T>,
    dxw: Output<'_, T>,
    dhw: Output<'_, T>,
    dh_prev: Output<'_, T>,
) {
    let (rows, width) = (inputs.h_prev.rows(), inputs.h_prev.width());
    for (part, gradient) in [(inputs.xw, &dxw), (inputs.hw, &dhw)] {
        match part {
            Some(part) => {
                assert_eq!((part.rows(), part.width()), (rows, 3 * width), "the shape of the gates")
            }
            None => assert!(
                matches!(gradient, Some((_, Assign::Write))),
                "expected `xw` and `hw`, or the missing one in `dxw` or `dhw`, where its gradient overwrites it"
            ),
        }
    }
    assert_eq!((inputs.dh.rows(), inputs.dh.width()), (rows, width), "the shape of the state's gradient");
    for (output, width) in [(&dxw, 3 * width), (&dhw, 3 * width), (&dh_prev, width)] {
        if let Some((out, _)) = output {
            assert_eq!((out.rows(), out.width()), (rows, width), "the shape of a gradient");
        }
    }
    sweep_on(Path::best(), Backward { inputs, dxw, dhw, dh_prev });
}

struct Backward<'a, T> {
    inputs: GruBackward<'a, T>,
    dxw: Output<'a, T>,
    dhw: Output<'a, T>,
    dh_prev: Output<'a, T>,
}

impl<T: Float> Sweep for Backward<'_, T> {
    type Output = ();
    const PORTABLE: bool = T::PORTABLE;

    #[inline(always)]
    fn run<A: Arithmetic>(mut self) {
        let (rows, width) = (self.inputs.dh.rows(), self.inputs.dh.width());
        self.each::<A>(rows, width);
    }
}

impl<T: Float> Chunks for Backward<'_, T> {
    #[inline(always)]
    fn chunk<A: Arithmetic, const WHOLE: bool>(&mut self, at: Columns<WHOLE>) {
        let GruBackward { xw, hw, h_prev, dh, blend } = self.inputs;
        let width = dh.width();
        let (xw, hw) = (lies(xw, &self.dxw), lies(hw, &self.dhw));
        at.ask(xw, 3, width);
        at.ask(hw, 3, width);
        at.ask(h_prev, 1, width);
        let Gates { r, z, n, sn } = gates::<A, T, WHOLE>(at, xw, hw, width);
        let (h_prev, dh) = (at.of(h_prev), at.of(dh));
        let [mut dr, mut dz, mut dn, mut dsn, mut dh_prev] = [[T::ZERO; CHUNK]; 5];
        for j in 0..CHUNK {
            let (r, z, n) = (r[j], z[j], n[j]);
            let (new, old) = shares(z, blend);
            let toward = match blend {
                Blend::Keep => h_prev[j] - n,
                Blend::Take => n - h_prev[j],
            };
            let d = dh[j] * new * A::mul_add(-n, n, T::ONE);
            dn[j] = d;
            dsn[j] = d * r;
            dr[j] = d * sn[j] * (r * (T::ONE - r));
            dz[j] = dh[j] * toward * (z * (T::ONE - z));
            dh_prev[j] = dh[j] * old;
        }
        for (output, dn) in [(&mut self.dxw, &dn), (&mut self.dhw, &dsn)] {
            at.put(output, 0, &dr);
            at.put(output, width, &dz);
            at.put(output, 2 * width, dn);
        }
        at.put(&mut self.dh_prev, 0, &dh_prev);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::checks::{matches_differences, near, numbers, paths_agree};

    struct Case<T> {
        n: usize,
        width: usize,
        data: [Vec<T>; 3],
        blend: Blend,
    }

    impl<T: Float> Case<T> {
        fn new(n: usize, width: usize, blend: Blend) -> Self {
            let make =
                |len, seed| numbers::<f64>(len, seed).into_iter().map(|x| T::from_f64(2.0 * x)).collect();
            Case {
                n,
                width,
                data: [make(n * 3 * width, 1), make(n * 3 * width, 2), make(n * width, 3)],
                blend,
            }
        }

        fn inputs(&self) -> GruInputs<'_, T> {
            let [xw, hw, h_prev] = &self.data;
            GruInputs {
                xw: View::new(xw, self.n, 3 * self.width),
                hw: View::new(hw, self.n, 3 * self.width),
                h_prev: View::new(h_prev, self.n, self.width),
                blend: self.blend,
            }
        }

        fn forward(&self) -> Vec<T> {
            let mut h = vec![T::ZERO; self.n * self.width];
            gru_forward(self.inputs(), ViewMut::new(&mut h, self.n, self.width));
            h
        }

        fn backward_inputs<'a>(&'a self, dh: &'a [T]) -> GruBackward<'a, T> {
            let GruInputs { xw, hw, h_prev, blend } = self.inputs();
            let dh = View::new(dh, self.n, self.width);
            GruBackward { xw: Some(xw), hw: Some(hw), h_prev, dh, blend }
        }

        fn backward(&self, dh: &[T], assign: Assign) -> [Vec<T>; 3] {
            let mut out = self.data.each_ref().map(|x| vec![T::ONE; x.len()]);
            let [dxw, dhw, dh_prev] = &mut out;
            gru_backward(
                self.backward_inputs(dh),
                Some((ViewMut::new(dxw, self.n, 3 * self.width), assign)),
                Some((ViewMut::new(dhw, self.n, 3 * self.width), assign)),
                Some((ViewMut::new(dh_prev, self.n, self.width), assign)),
            );
            out
        }
    }

    #[test]
    fn forward_matches_the_formula_in_f64() {
        for (n, width) in [(0, 2), (1, 1), (3, 0), (2, 16), (3, 77)] {
            for blend in [Blend::Keep, Blend::Take] {
                let case = Case::<f32>::new(n, width, blend);
                let h = case.forward();
                let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                for row in 0..n {
                    for j in 0..width {
                        let at =
                            |d: usize, gate: usize| f64::from(case.data[d][(row * 3 + gate) * width + j]);
                        let (r, z) = (sigmoid(at(0, 0) + at(1, 0)), sigmoid(at(0, 1) + at(1, 1)));
                        let new = (at(0, 2) + r * at(1, 2)).tanh();
                        let old = f64::from(case.data[2][row * width + j]);
                        let y = if blend == Blend::Keep {
                            (1.0 - z) * new + z * old
                        } else {
                            z * new + (1.0 - z) * old
                        };
                        assert!((f64::from(h[row * width + j]) - y).abs() < 1e-6);
                    }
                }
            }
        }
    }

    #[test]
    fn backward_matches_central_differences() {
        let (n, width) = (2, 65);
        for blend in [Blend::Keep, Blend::Take] {
            let case = Case::<f64>::new(n, width, blend);
            let dh = numbers::<f64>(n * width, 9);
            let loss = |case: &Case<f64>| case.forward().iter().zip(&dh).map(|(h, dh)| h * dh).sum::<f64>();
            let gradients = case.backward(&dh, Assign::Write);
            let added = case.backward(&dh, Assign::Add);
            for d in 0..3 {
                matches_differences(&case.data[d], &gradients[d], |data| {
                    let mut moved = Case::<f64>::new(n, width, blend);
                    moved.data[d] = data.to_vec();
                    loss(&moved)
                });
                assert!(added[d].iter().zip(&gradients[d]).all(|(added, gradient)| *added == 1.0 + gradient));
            }
            let single = Case::<f32>::new(n, width, blend);
            let dh32: Vec<f32> = dh.iter().map(|&x| x as f32).collect();
            let in_single = single.backward(&dh32, Assign::Write).concat();
            near(&in_single, &gradients.concat(), 1e-5, "gradients in f32");
        }
    }

    #[test]
    fn the_gradients_may_take_the_place_of_the_gates() {
        for (n, width) in [(0, 2), (3, 17), (2, 64), (2, 131)] {
            let case = Case::<f32>::new(n, width, Blend::Keep);
            let dh = numbers::<f32>(n * width, 9);
            let apart = case.backward(&dh, Assign::Write);
            let [mut xw, mut hw, mut dh_prev] = case.data.clone();
            let inputs = GruBackward { xw: None, hw: None, ..case.backward_inputs(&dh) };
            gru_backward(
                inputs,
                Some((ViewMut::new(&mut xw, n, 3 * width), Assign::Write)),
                Some((ViewMut::new(&mut hw, n, 3 * width), Assign::Write)),
                Some((ViewMut::new(&mut dh_prev, n, width), Assign::Write)),
            );
            assert_eq!([xw, hw, dh_prev], apart);
        }
    }

    #[test]
    fn all_paths_agree_up_to_rounding() {
        let case = Case::<f32>::new(2, 70, Blend::Keep);
        paths_agree(|path| {
            let (mut h, mut d) = (vec![0.0; 140], vec![0.0; 420]);
            sweep_on(path, Forward { inputs: case.inputs(), h: ViewMut::new(&mut h, 2, 70) });
            let dxw = Some((ViewMut::new(&mut d, 2, 210), Assign::Write));
            let inputs = case.backward_inputs(&h);
            sweep_on(path, Backward { inputs, dxw, dhw: None, dh_prev: None });
            [h, d].concat()
        });
    }
}
