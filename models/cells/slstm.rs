//! sLSTM of xLSTM: an LSTM whose input gate is an exponential, with a normaliser and a stabiliser beside the cell state.
//!
//! With (z̃, ĩ, f̃, õ) = W x_t + R h_{t−1} + b:
//!
//! m_t = max(log σ(f̃) + m_{t−1}, ĩ), i_t = exp(ĩ − m_t), f_t = exp(log σ(f̃) + m_{t−1} − m_t),
//! c_t = f_t ∘ c_{t−1} + i_t ∘ tanh(z̃), n_t = f_t ∘ n_{t−1} + i_t, h_t = σ(õ) ∘ c_t / n_t.
//!
//! Beck et al.: xLSTM: Extended Long Short-Term Memory (2024), arXiv:2405.04517, section 2.2, with the sigmoid as the
//! forget gate and one head, and m_0 = −∞. m only keeps the exponentials small; c/n, and so h, would be the same with any other.

use unpadded::layers::Linear;
use unpadded::{Builder, Var};

/// The hidden state after every step, `hidden` numbers.
#[track_caller]
pub(crate) fn slstm(net: &Builder, x: Var, hidden: usize) -> Var {
    net.part("slstm", |net| {
        net.recurrent(x, |step, x_t| {
            let [h_prev, c_prev, n_prev, m_prev] = [hidden; 4].map(|width| step.memory(width));
            let from_state = h_prev.linear(Linear::new(4 * hidden).without_bias());
            let [z, i, f, o] = (x_t.linear(4 * hidden) + from_state).split([hidden; 4]);
            // log σ(f) = −log(1 + e^−f)
            let log_f = -(-f).softplus();
            // m starts at −∞, but a memory at 0; else nothing is left of a small first i, and c/n is 0/0. From the first
            // step on n is at least 1, since the larger of i and f is.
            let started = (2.0 * n_prev).clamp(0.0, 1.0);
            let kept = log_f + m_prev + 1e30 * (started - 1.0);
            let m = kept.maximum(i);
            let (i, f) = ((i - m).exp(), (kept - m).exp());
            let c = f * c_prev + i * z.tanh();
            let n = f * n_prev + i;
            let h = o.sigmoid() * (c / n);
            for (memory, next) in [(h_prev, h), (c_prev, c), (n_prev, n), (m_prev, m)] {
                step.update(memory, next);
            }
            h
        })
    })
}

#[test]
fn gradients_are_central_differences() {
    crate::trial::gradients(slstm);
}

#[test]
fn it_learns() {
    crate::trial::learns(slstm);
}

/// Input gates far below zero from the first step on: what a sequence of one step holds is σ(õ) ∘ tanh(z̃) all the same.
#[test]
fn small_input_gates_are_no_nan() {
    use unpadded::executor::{Executor, Run, Scope, Stage};
    use unpadded::program::backward;
    use unpadded::{DType, Lod, Variable, ops};

    let net = Builder::new().seed(1);
    let x = net.feed("x", DType::F32, &[3], 1);
    let y = slstm(&net, x, 8);
    let loss = net.sum(net.square(y));
    let mut program = net.finish().unwrap();
    let gradients = backward::append(&mut program, &ops::catalogue(), loss.id()).unwrap();
    let wanted: Vec<_> = gradients.iter().map(|g| g.1).chain([loss.id()]).collect();
    let mut executor = Executor::new(&program, &ops::catalogue(), &wanted, 1).unwrap();
    let rows = ndarray::Array2::from_shape_fn((6, 3), |(i, j)| 1000.0 * ((3 * i + j) as f32).sin());
    let rows = Variable::sequences(rows, Lod::from_lengths1(&[5, 0, 1]).unwrap()).unwrap();
    let mut scope = Scope::of(&program).unwrap();
    executor.run(&mut scope, &Run::train(&[(x.id(), &rows)], 0).until(Stage::Gradients)).unwrap();
    assert!(executor.scalar(loss).unwrap() > 0.0);
    for (variable, gradient) in &gradients {
        let value = executor.fetch(*gradient).unwrap();
        let finite = value.as_slice::<f32>().unwrap().iter().all(|x| x.is_finite());
        assert!(finite, "the gradient of `{}`", program.var(*variable).name);
    }
}
