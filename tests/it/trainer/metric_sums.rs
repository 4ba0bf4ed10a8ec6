//! Metrics of one's own whose number of sums changes; what a metric of a loss is the sum of.

use unpadded::metrics::{Better, Loss, Metric};
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

/// A metric that the user called `loss` stays, whatever is said of the weight of a batch before or after it.
#[test]
fn a_weight_replaces_the_trainers_own_loss_alone() {
    let loss = |told: fn(Trainer, [Var; 2]) -> Trainer| {
        let net = Builder::new().seed(3);
        let words = net.feed("words", DType::I64, &[], 1);
        let _label = net.feed("label", DType::I64, &[], 0);
        let rows = words.embedding(Embedding::new(20, 6)).linear(20).cross_entropy(words);
        let (loss, count) = (rows.mean(), rows.fill_like(1.0).sum());
        let trainer = Trainer::new(net, loss, &Sgd::new(0.02)).unwrap().progress(Progress::Quiet);
        told(trainer, [rows, count]).evaluate(&dev()).unwrap().loss()
    };
    let mean = loss(|trainer, _| trainer);
    assert!((loss(|trainer, [_, count]| trainer.weight(count)) - mean).abs() < 1e-5);
    for perplexity in [
        loss(|trainer, [rows, count]| trainer.metric(Loss::perplexity(rows).named("loss")).weight(count)),
        loss(|trainer, [rows, count]| trainer.weight(count).metric(Loss::perplexity(rows).named("loss"))),
    ] {
        assert!((perplexity - mean.exp()).abs() < 1e-3 * perplexity, "{perplexity}, mean {mean}");
    }
}

/// Without the program nothing tells what a scalar loss of several batches is.
#[test]
fn a_scalar_loss_needs_its_builder() {
    let net = Builder::new();
    let rows = net.feed("rows", DType::F64, &[], 1);
    let loss = rows.mean() * 2.0;
    let mut before = Loss::new(loss);
    assert_eq!(Loss::perplexity(loss).value(), 0.0);
    assert_eq!(before.variables().len(), 2);
    net.finish().unwrap();
    let number = |x: f64| Variable::dense(ndarray::arr0(x));
    let rows = |rows: Vec<f64>| Variable::from_sequences(&[rows]).unwrap();
    before.update(&[number(3.0), rows(vec![1.0, 2.0])], 1).unwrap();
    before.update(&[number(9.0), rows(vec![4.5; 6])], 1).unwrap();
    assert_eq!(before.value(), 2.0 * 30.0 / 8.0);
    let mut after = Loss::new(loss);
    for value in [number(3.0), Variable::dense(ndarray::array![3.0])] {
        let error = after.update(&[value], 2).unwrap_err().to_string();
        for words in
            ["metric `loss`: expected one loss per row", "before `Builder::finish`", "`Loss::weighted`"]
        {
            assert!(error.contains(words), "{error}");
        }
    }
    after.update(&[rows(vec![1.0, 2.0])], 1).unwrap();
    assert_eq!(after.value(), 1.5);
}

/// Numbers that are neither one a row nor one a batch have no loss.
#[test]
fn several_numbers_of_a_batch_are_no_loss() {
    let net = Builder::new();
    let sums = net.feed("rows", DType::F64, &[3], 1).sum_rows();
    let mut metric = Loss::new(sums);
    let error = metric.update(&[Variable::dense(ndarray::array![1.0, 2.0, 3.0])], 1).unwrap_err().to_string();
    assert!(error.contains("loss: expected one number, or one per row, got f64[3]"), "{error}");
}

fn fitted(mut trainer: Trainer) {
    trainer.fit(&train(), &dev(), Until::Epochs(1)).unwrap();
}
