//! Operators without a gradient between a loss and trained parameters.

use std::io::Write;
use std::sync::{Arc, Mutex};

use unpadded::Var;

use super::*;

/// A writer that keeps its text.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The warnings of two trainings of one trainer, whose loss is made of hidden rows `[rows, 3]` and a feed of as many.
fn warnings(loss: impl FnOnce(&Builder, Var) -> Var) -> Vec<String> {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    net.feed("label", DType::I64, &[], 0);
    let h = words.embedding(Embedding::new(20, 3));
    let loss = h.square().mean() + loss(&net, h);
    let kept = Kept::default();
    let mut trainer =
        Trainer::new(net, loss, &Sgd::new(0.1)).unwrap().progress(Progress::To(Box::new(kept.clone())));
    trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap();
    trainer.fit(&train(), &dev(), Until::Epochs(2)).unwrap();
    let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    text.lines().filter(|line| line.contains("no gradient flows through")).map(str::to_owned).collect()
}

fn transitions(net: &Builder) -> Var {
    net.parameter("transitions", DType::F32, &[5, 3], unpadded::layers::init::zeros())
}

#[test]
fn an_operator_without_a_gradient_is_warned_of_once() {
    let line = line!() + 2;
    let found = warnings(|net, h| {
        let likely = h.crf_marginals(transitions(net), &[]);
        (likely + 1.0).square().mean()
    });
    assert_eq!(found.len(), 1, "{found:?}");
    let text = format!(
        "warning: no gradient flows through `crf_marginals`, called at tests/it/trainer/blocked.rs:{line}:"
    );
    assert!(found[0].starts_with(&text), "{found:?}");
    assert!(found[0].contains("parameters before this operator are not trained through it"), "{found:?}");
    // Behind other operators without a gradient, and in a step block.
    let found = warnings(|net, h| h.crf_marginals(transitions(net), &[]).greater(0.5).mean());
    assert!(found.len() == 1 && found[0].contains("`crf_marginals`"), "{found:?}");
    let found = warnings(|net, h| {
        let open = net.recurrent(h, |step, h| {
            let sum = step.memory(3);
            step.update(sum, sum + h);
            h * sum.greater(0.5)
        });
        open.mean()
    });
    assert!(found.len() == 1 && found[0].contains("`greater`"), "{found:?}");
}

/// No warning if no gradient is lost: constants, lengths, labels, variables that no loss needs, and gradients that the user
/// stopped.
#[test]
fn where_no_gradient_is_lost_nothing_is_said() {
    let nothing = |loss: fn(&Builder, Var) -> Var| assert_eq!(warnings(loss), [""; 0]);
    nothing(|_, h| (h * h.fill_like(2.0)).mean());
    nothing(|_, h| h.sequence_pool(Pool::Sum).div_no_nan(h.lod_of().cast(DType::F32)).mean());
    nothing(|_, h| h.cross_entropy(h.argmax()).mean());
    nothing(|net, h| {
        h.crf_marginals(transitions(net), &[]);
        h.mean()
    });
    nothing(|net, h| {
        let (scores, fixed) = (h.assign(), transitions(net));
        [scores, fixed].into_iter().for_each(|var| net.stop_gradient(var));
        (scores.crf_marginals(fixed, &[]) * h).mean()
    });
    // The output itself, or a variable computed from it.
    nothing(|net, h| {
        let likely = h.crf_marginals(transitions(net), &[]);
        net.stop_gradient(likely);
        (likely * h).mean()
    });
    nothing(|net, h| {
        let fixed = h.crf_marginals(transitions(net), &[]).assign();
        net.stop_gradient(fixed);
        (fixed * h).mean()
    });
    nothing(|net, h| {
        let open = net.recurrent(h, |step, h| {
            let steps = step.memory(1);
            step.update(steps, steps + 1.0);
            h * steps.greater(1.5)
        });
        open.mean()
    });
}

/// A loss without any gradient names where it ends.
#[test]
fn a_loss_without_a_gradient_names_the_operator() {
    let net = Builder::new().seed(3);
    let h = net.feed("words", DType::I64, &[], 1).embedding(Embedding::new(20, 3));
    let (line, likely) = (line!(), h.crf_marginals(transitions(&net), &[]));
    let loss = (likely - 1.0).square().mean();
    let error = Trainer::new(net, loss, &Sgd::new(0.1)).unwrap_err().to_string();
    let ends =
        format!("no gradient flows through `crf_marginals`, called at tests/it/trainer/blocked.rs:{line}:");
    assert!(error.contains("expected to depend on a trainable variable") && error.contains(&ends), "{error}");
}
