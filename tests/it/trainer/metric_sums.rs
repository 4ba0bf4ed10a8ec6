//! Metrics of one's own whose number of sums changes.

use unpadded::metrics::{Better, Metric};
use unpadded::{Var, Variable};

use super::*;

/// Has `counts[n]` sums after the n-th update, of which there is one more for each batch.
struct Unsteady {
    label: Var,
    counts: &'static [usize],
    sums: Vec<f64>,
    updates: usize,
}

impl Metric for Unsteady {
    fn name(&self) -> &str {
        "unsteady"
    }
    fn variables(&self) -> Vec<Var> {
        vec![self.label]
    }
    fn better(&self) -> Better {
        Better::Lower
    }
    fn update(&mut self, _: &[Variable], _: usize) -> Result<()> {
        self.updates += 1;
        let count = self.counts.get(self.updates).or(self.counts.last()).copied();
        self.sums.resize(count.unwrap_or_default(), 5.0);
        Ok(())
    }
    fn value(&self) -> f64 {
        self.sums.iter().sum()
    }
    fn sums(&mut self) -> &mut [f64] {
        &mut self.sums
    }
}

fn unsteady(counts: &'static [usize]) -> Trainer {
    let net = Builder::new().seed(3);
    let words = net.feed("words", DType::I64, &[], 1);
    let label = net.feed("label", DType::I64, &[], 0);
    let h = net.sequence_pool(net.embedding(words, Embedding::new(20, 6)), Pool::Sum);
    let loss = net.mean(net.cross_entropy(net.linear(h, 2), label));
    let trainer = Trainer::new(net, loss, &Adam::new(0.02)).unwrap().progress(Progress::Quiet);
    trainer.metric(Unsteady { label, counts, sums: vec![0.0; counts[0]], updates: 0 })
}

/// In a step of one batch, in one of several, and where the held-out data is evaluated.
#[test]
fn a_changed_number_of_sums_is_an_error() {
    for (counts, before, now) in
        [(&[2, 2, 3][..], 2, 3), (&[2, 1], 2, 1), (&[0, 0, 4], 0, 4), (&[3, 3, 0], 3, 0)]
    {
        for batches in [1, 2] {
            let mut trainer = unsteady(counts).accumulate(batches);
            let error = trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap_err().to_string();
            let said =
                format!("sums of metric `unsteady`: expected {before}, as before the update, got {now}");
            assert!(error.contains(&said), "{error}");
            assert!(error.contains("metric_sums.rs"), "{error}");
        }
        let error = unsteady(counts).evaluate(&train()).unwrap_err().to_string();
        assert!(error.contains("sums of metric `unsteady`"), "{error}");
    }
    fitted(unsteady(&[2]));
}

fn fitted(mut trainer: Trainer) {
    trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap();
}
