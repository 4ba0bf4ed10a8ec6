//! The networks of classifiers: an encoder of texts with an output layer.

use unpadded::data::Vocabulary;
use unpadded::layers::{Linear, init};
use unpadded::metrics::{Accuracy, Average, F1, LabelSetF1, LabelThreshold, MeanError};
use unpadded::ops::{BinaryCrossEntropy, CrossEntropy, FocalLoss};
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Result, Var};

use super::objective::{Objective, Weights};
use super::reader::{CHARACTERS, FIRST, Reader, SECOND, WORDS};
use crate::config::Config;
use crate::encoder::{Encoder, Layers, Pooler};
use crate::labels::{ATTENTION, LABELS, PROBABILITIES};
use crate::net;
use crate::sections::{ModelConfig, Sentences, label_smoothing};

/// The name of the feed of right answers: the label, labels or number of each text.
pub(crate) const LABEL: &str = "label";
/// The name of the output of a regression. The output layer of a regression has the same name.
pub(super) const NUMBER: &str = "number";
const CLASS_WEIGHTS: &str = "class_weights";
/// Added to the argument of a logarithm, which is then never 0.
const LEAST: f64 = 1e-6;

pub(super) fn network(
    config: &Config,
    reader: &Reader,
    (objective, weights, threshold): (&Objective, &Weights, LabelThreshold),
    below: Option<&ModelConfig>,
    steps: usize,
) -> Result<(Trainer, &'static str)> {
    let net = Builder::new().seed(config.run.seed);
    let (text, attention) = vectors(&net, config, reader, below);
    let text = text.dropout(config.model.dropout);
    let given = weights.of_labels(config, objective)?;
    let class_weights = given.as_ref().map(|weights| {
        let weights = net.parameter(CLASS_WEIGHTS, DType::F32, &[weights.len()], init::constant(1.0));
        net.stop_gradient(weights);
        weights
    });
    let (mut trainer, metric) = match objective {
        Objective::Label(labels) => {
            let label = net.feed(LABEL, DType::I64, &[], 0);
            let logits = text.linear(Linear::new(labels.len()).named(LABELS));
            let loss = of_label(logits, label, class_weights, config);
            let logits = net::of_trained(&net, logits, (LABELS, labels));
            let accuracy = Accuracy::new(logits, label);
            let macro_f1 = F1::new(logits, label, labels.len(), Average::Macro).named("macro F1");
            let probabilities = logits.softmax();
            let trainer = net::trainer(net, loss, config, steps)?.output(PROBABILITIES, probabilities);
            match class_weights {
                // The first metric is macro F1, which weighs all classes equally: class weights are set when rare classes matter.
                Some(_) => (trainer.metric(macro_f1).metric(accuracy), "macro F1"),
                None => (trainer.metric(accuracy), "accuracy"),
            }
        }
        Objective::Labels(labels, _) => {
            let targets = net.feed_csr(LABEL, DType::F32, labels.len(), 0).to_dense();
            let logits = text.linear(Linear::new(labels.len()).named(LABELS));
            let losses = match config.training.focal {
                0.0 => {
                    let options = BinaryCrossEntropy::default().positive_weights(class_weights);
                    logits.binary_cross_entropy_with(targets, options)
                }
                gamma => logits.focal_loss_with(targets, FocalLoss::default().gamma(gamma).alpha(None)),
            };
            let (loss, probabilities) =
                (losses.mean(), net::of_trained(&net, logits, (LABELS, labels)).sigmoid());
            let trainer = net::trainer(net, loss, config, steps)?.output(PROBABILITIES, probabilities);
            let f1 = LabelSetF1::of_probabilities(probabilities, targets, labels.len(), threshold);
            (trainer.metric(f1), "micro F1")
        }
        Objective::Number => {
            let number = net.feed(LABEL, DType::F32, &[], 0);
            // The network predicts the standardized number, (number − mean) / standard deviation.
            let Weights { mean, deviation, .. } = *weights;
            let standard = text.linear(Linear::new(1).named(NUMBER));
            let loss = standard.squared_error((number - mean) / deviation).mean();
            let found = standard * deviation + mean;
            let trainer = net::trainer(net, loss, config, steps)?.output(NUMBER, found);
            (trainer.metric(MeanError::squared(found, number)), "mean squared error")
        }
    };
    if let Some(weights) = given {
        trainer.set_parameter(CLASS_WEIGHTS, unpadded::ndarray::Array1::from(weights))?;
    }
    trainer = trainer.vocabulary(WORDS, reader.words.clone());
    if let Some(characters) = &reader.characters {
        trainer = trainer.vocabulary(CHARACTERS, characters.clone());
    }
    if let Some(labels) = objective.labels() {
        trainer = trainer.vocabulary(LABELS, labels.clone());
    }
    Ok((attention.into_iter().fold(trainer, |trainer, weights| trainer.output(ATTENTION, weights)), metric))
}

/// Returns one vector per record, and the attention weights of all tokens with attention pooling of single texts.
fn vectors(
    net: &Builder,
    config: &Config,
    reader: &Reader,
    below: Option<&ModelConfig>,
) -> (Var, Option<Var>) {
    let model = &config.model;
    let encoder =
        Encoder::new(net, config, reader.words.len(), reader.characters.as_ref().map(Vocabulary::len), below);
    let pooler = Pooler::new(net, model);
    let documents = model.documents != Sentences::None;
    let read = |feeds| {
        let (_, vectors) = encoder.read(net, feeds, if documents { 2 } else { 1 });
        pooler.of(net, encoder.layers.of(vectors))
    };
    let (first, attention) = read(FIRST);
    if documents {
        // Sentence vectors are encoded and pooled as word vectors are (Yang et al., "Hierarchical attention networks", 2016).
        let states = Layers::new(net, model).of(first.dropout(model.dropout));
        return (Pooler::new(net, model).of(net, states).0, None);
    }
    if !reader.parts.pair {
        return (first, attention);
    }
    // The vectors of both texts, their distance and their product are the features of a pair (Conneau et al.,
    // "Supervised learning of universal sentence representations from natural language inference data", 2017).
    let (second, _) = read(SECOND);
    (net.concat(&[first, second, (first - second).abs(), first * second]), None)
}

fn of_label(logits: Var, label: Var, class_weights: Option<Var>, config: &Config) -> Var {
    let options =
        CrossEntropy::default().class_weights(class_weights).label_smoothing(label_smoothing(config));
    let (losses, shares) = logits.cross_entropy_with(label, options);
    let losses = match config.training.focal {
        0.0 => losses,
        gamma => {
            // Focal loss multiplies the plain loss −ln p of a text by (1 − p)^γ.
            let plain = logits.cross_entropy(label);
            let missing = (1.0 + LEAST) - (plain * -1.0).exp();
            (missing.log() * gamma).exp() * losses
        }
    };
    match class_weights {
        Some(_) => losses.sum().div_no_nan(shares.sum()),
        None => losses.mean(),
    }
}
