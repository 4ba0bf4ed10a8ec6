//! A label for each text: words, their vectors, recurrent layers, and what of their states says the label.

use std::path::PathBuf;

use super::config::Config;
use super::embedded;
use super::net::{self, TABLE};
use super::prepared::{
    CUT, Case, Paths, Prepared, Truth, batches, both, coverage, one_in, options, read_as, tokenizer,
};
use crate::data::{Data, LabelledTexts, Loader, Tokenizer, Vocabulary};
use crate::error::Result;
use crate::layers::Embedding;
use crate::metrics::Accuracy;
use crate::predict::Predictor;
use crate::program::Builder;
use crate::tensor::DType;
use crate::train::Trainer;

pub(super) const FEEDS: [&str; 2] = ["words", "label"];

pub(super) fn data(
    config: &Config,
    predictor: &Predictor,
    cut: &Tokenizer,
    path: &str,
) -> Result<Box<dyn Data>> {
    let known = (predictor.vocabulary("words")?, predictor.vocabulary("labels")?);
    Ok(Box::new(batches(
        LabelledTexts::open_with([path], &options(config)?)?.loader(FEEDS, cut, known)?,
        config,
    )))
}

pub(super) fn prepare(config: &Config) -> Result<Prepared> {
    let Paths { train, dev, test } = Paths::of(config)?;
    let own = train.is_some();
    let train = match train {
        Some(path) => LabelledTexts::open_with([path], &options(config)?)?,
        None => embedded::reviews(true)?,
    };
    // What was found out of the training texts holds for the others.
    let like = train.read_as().clone();
    let read = |path: &PathBuf| LabelledTexts::open_with([path], &like);
    // Before any is held out: a label may be that of one text.
    let labels = train.labels()?;
    let (train, dev) = match &dev {
        Some(dev) => (train, read(dev)?),
        None if own => train.hold_out(one_in(config), config.run.seed),
        None => (train, embedded::reviews(false)?),
    };
    let test = test.as_ref().map(read).transpose()?;
    both([&train, &dev].map(|texts| (texts.name(), texts.texts().len())))?;
    let cut = tokenizer(config)?;
    let words = train.vocabulary(&cut, &net::limits(config, &[Vocabulary::UNKNOWN]))?;
    let loader = |texts: &LabelledTexts| -> Result<Loader> {
        Ok(batches(texts.loader(FEEDS, &cut, (&words, &labels))?, config))
    };
    let (of_train, of_dev) = (loader(&train)?.shuffle(config.run.seed).prefetch(4), loader(&dev)?);
    let test = test.as_ref().map(loader).transpose()?;
    let mut trainer = network(config, &words, &labels, train.texts().len())?.note(CUT, cut.name());
    let lengths: Vec<usize> = train.texts().iter().map(|text| cut.tokens(&text.text).count()).collect();
    let mut said = vec![format!(
        "{}: {} texts of {} labels, {} words known; {} held out",
        train.name(),
        train.texts().len(),
        labels.len(),
        words.len(),
        dev.texts().len()
    )];
    said.extend(read_as(train.read_as()));
    let held_out = dev.texts().iter().flat_map(|text| cut.tokens(&text.text));
    let coverage = coverage(&words, held_out);
    let running = train.texts().iter().flat_map(|text| cut.tokens(&text.text));
    said.extend(net::vectors(config, &mut trainer, &words, running)?);
    let case =
        |of: &crate::data::Labelled| Case { text: of.text.clone(), truth: Truth::Label(of.label.clone()) };
    Ok(Prepared {
        trainer,
        train: Box::new(of_train),
        dev: Box::new(of_dev),
        test: test.map(|test| Box::new(test) as _),
        name: train.name().to_owned(),
        metric: "accuracy",
        lengths,
        coverage,
        held_out: dev.texts().iter().map(case).collect(),
        said,
    })
}

fn network(config: &Config, words: &Vocabulary, labels: &Vocabulary, texts: usize) -> Result<Trainer> {
    let model = &config.model;
    let net = Builder::new().seed(config.run.seed);
    let ids = net.feed(FEEDS[0], DType::I64, &[], 1);
    let label = net.feed(FEEDS[1], DType::I64, &[], 0);
    let table =
        Embedding::new(words.len(), model.embedding).sparse().named(TABLE.trim_end_matches(".weight"));
    let states = net::states(ids.embedding(table).dropout(model.dropout), model);
    let (text, weights) = net::pooled(&net, states, model);
    let logits = text.dropout(model.dropout).linear(labels.len());
    let (loss, probabilities) = (logits.cross_entropy(label).mean(), logits.softmax());
    let trainer = Trainer::new(net, loss, &net::adam(config, net::steps(config, texts)))?
        .metric(Accuracy::new(logits, label))
        .output("probabilities", probabilities)
        .vocabulary("words", words.clone())
        .vocabulary("labels", labels.clone());
    Ok(match weights {
        Some(weights) => trainer.output("attention", weights),
        None => trainer,
    })
}

/// The numbers of a text's tokens.
pub(super) fn ids(words: &Vocabulary, cut: &Tokenizer, text: &str) -> Result<Vec<i64>> {
    words.ids(cut.tokens(text))
}
