//! A label for each text: words, their vectors, recurrent layers, and what of their states says the label.

use std::borrow::Cow;
use std::path::Path;

use super::answer::Answer;
use super::config::Config;
use super::labels::{self, ATTENTION, COLUMNS, LABELS, PROBABILITIES};
use super::net::{self, TABLE};
use super::prepared::{
    CUT, Case, HeldOut, Paths, Prepared, READ_AS, TestData, Truth, as_in_training, both, cut_of, one_in,
    options, options_of, read_as, read_otherwise, tokenizer,
};
use super::preview::Preview;
use super::recipe::{Asked, Recipe, Trained};
use super::scored::{Outcome, Scored, in_parts};
use super::texts::Texts;
use super::{embedded, rows};
use crate::data::{Asking, Counted, Labelled, LabelledFiles, Passes, Tokenizer, Vocabulary};
use crate::error::Result;
use crate::layers::Embedding;
use crate::metrics::Accuracy;
use crate::predict::Predictor;
use crate::program::Builder;
use crate::tensor::{DType, Variable};
use crate::train::Trainer;

pub(super) const FEEDS: [&str; 2] = ["words", "label"];
/// The vocabulary of the tokens.
pub(super) const WORDS: &str = "words";

/// A label for each text, or for each row of features.
pub(super) struct Classify;

impl Recipe for Classify {
    fn defaults(&self, _: &mut Config) {}

    fn without(&self) -> &'static [&'static str] {
        &["text.target_tokens", "data.repair_tags", "data.scheme"]
    }

    fn preview(&self, config: &Config, path: &Path) -> Result<Preview> {
        if rows::are_meant(config, path)? {
            return rows::preview(config, path);
        }
        let files = LabelledFiles::open_with([path], &options(config, COLUMNS)?)?;
        let texts = files.records().take(Preview::SHOWN).collect::<Result<Vec<_>>>()?;
        let line =
            |of: &Labelled| format!("text {}, label {}", Preview::cut(&of.text), Preview::cut(&of.label));
        Ok(Preview::new(files.read_as(), texts.iter().map(line).collect()))
    }

    fn prepare(&self, config: &Config, paths: Paths) -> Result<Prepared> {
        match &paths.train {
            Some(train) if rows::are_meant(config, train)? => rows::prepare(config, paths),
            _ => prepare(config, paths),
        }
    }

    fn model(&self, predictor: &Predictor) -> Result<Box<dyn Trained>> {
        match predictor.note(rows::COLUMNS) {
            Some(_) => Ok(Box::new(rows::Classifier)),
            None => Ok(Box::new(Classifier { cut: cut_of(predictor, CUT)? })),
        }
    }
}

/// Classes of texts.
struct Classifier {
    cut: Tokenizer,
}

impl Trained for Classifier {
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]> {
        Some([&self.cut; 2])
    }

    fn data(&self, config: &Config, predictor: &Predictor, path: &str) -> Result<TestData> {
        data(config, predictor, &self.cut, path)
    }

    fn check(&self, config: &Config, predictor: &Predictor, path: &str) -> Result<Vec<String>> {
        let files = test_files(config, predictor, path)?;
        let mut texts = 0;
        files.records().try_for_each(|text| text.map(|_| texts += 1))?;
        if texts == 0 {
            return Err(labels::none(&files.name()));
        }
        Ok(read_as(files.read_as()).into_iter().collect())
    }

    /// Texts are read as they are scored, and none is held.
    fn scores(
        &self,
        config: &Config,
        predictor: &Predictor,
        path: &str,
        each: &mut dyn FnMut(Outcome<'_>),
    ) -> Result<Scored> {
        let files = test_files(config, predictor, path)?;
        let (words, mut scores) =
            (predictor.vocabulary(WORDS)?, labels::Scores::new(predictor.vocabulary(LABELS)?, files.name()));
        let records = (1..).zip(files.records()).map(|(number, text)| Ok((number, text?)));
        in_parts(
            records,
            |(_, text): &(u64, Labelled)| text.text.len(),
            |part| {
                let ids = part.iter().map(|(_, text)| words.ids(self.cut.tokens(&text.text)));
                let ids = Variable::from_sequences(&ids.collect::<Result<Vec<_>>>()?)?;
                let texts = part
                    .iter()
                    .map(|(number, text)| (text.text.as_str(), text.label.as_str(), text.place(), *number));
                scores.add(predictor, (FEEDS[0], &ids), texts, each)
            },
        )?;
        scores.end(read_as(files.read_as()).into_iter().collect())
    }

    fn asked(&self, _: &Predictor) -> Option<Asked> {
        Some(Asked { asking: Asking::Text, columns: COLUMNS, adds: Answer::LABEL.into() })
    }

    fn answers(&self, predictor: &Predictor, texts: &[&str]) -> Result<Vec<Answer>> {
        let words = predictor.vocabulary(WORDS)?;
        let ids = texts.iter().map(|text| words.ids(self.cut.tokens(text))).collect::<Result<Vec<_>>>()?;
        labels::answers(predictor, (FEEDS[0], &Variable::from_sequences(&ids)?), texts, &|text| {
            self.cut.tokens(text).map(Cow::into_owned).collect()
        })
    }
}

/// The texts of a path, which are read as those of the training, one after another.
fn test_files(config: &Config, predictor: &Predictor, path: &str) -> Result<LabelledFiles> {
    let like = options_of(config, COLUMNS, predictor)?;
    LabelledFiles::open_with([path], &like).map_err(|e| as_in_training(e, &like))
}

fn data(config: &Config, predictor: &Predictor, cut: &Tokenizer, path: &str) -> Result<TestData> {
    let known = (predictor.vocabulary(WORDS)?, predictor.vocabulary(LABELS)?);
    // Nothing is shuffled that a model is measured on.
    let like = options_of(config, COLUMNS, predictor)?;
    let texts = Texts::open(path, config, &like).map_err(|e| as_in_training(e, &like))?;
    let data = texts.loader(FEEDS, cut, known, config)?;
    Ok(TestData { data: Box::new(data), said: read_as(texts.read_as()).into_iter().collect() })
}

fn prepare(config: &Config, paths: Paths) -> Result<Prepared> {
    let Paths { train, dev, test, .. } = paths;
    let own = train.is_some();
    let train = match train {
        Some(path) => Texts::open(path, config, &options(config, COLUMNS)?)?,
        None => Texts::Held(embedded::reviews(true)?),
    };
    let cut = tokenizer(config)?;
    let divides = dev.is_none() && (own || config.data.fold.is_some());
    let part = if divides { one_in(config) } else { 0 };
    let (mut lengths, mut held_out, mut tokens) = (Vec::new(), HeldOut::default(), Counted::default());
    let mut measured = |text: &Labelled| {
        held_out.add(|| case(text));
        cut.tokens(&text.text).for_each(|token| tokens.add(&token));
    };
    let limits = net::limits(config, &[Vocabulary::UNKNOWN]);
    let found = train.survey((part, config), &cut, &limits, &mut |text, held| match held {
        true => measured(text),
        false => lengths.push(cut.tokens(&text.text).count()),
    })?;
    let (train, labels) = (found.rest, found.labels?);
    let dev = match dev {
        Some(dev) => train.open_alike(dev)?,
        None if divides => found.held,
        None => Texts::Held(embedded::reviews(false)?),
    };
    if part == 0 {
        dev.each(&mut measured)?;
    }
    both([(train.name(), lengths.len()), (dev.name(), held_out.count)])?;
    let words = net::known(found.words, config)?;
    let coverage = tokens.coverage(&words);
    let loader = |texts: &Texts<Labelled>| texts.loader(FEEDS, &cut, (&words, &labels), config);
    let (of_train, of_dev) = (loader(&train)?.shuffle(config.run.seed).prefetch(4), loader(&dev)?);
    let others = Some(&dev).filter(|_| part == 0 && own);
    let others = others.and_then(|of| read_otherwise(&of.name(), of.read_as(), train.read_as()));
    let mut trainer = network(config, &words, &labels, lengths.len())?
        .note(CUT, cut.name())
        .note(READ_AS, train.read_as().to_note());
    let mut said = vec![format!(
        "{}: {} texts of {} labels, {} words known; {} held out",
        train.name(),
        lengths.len(),
        labels.len(),
        words.len(),
        held_out.count
    )];
    said.extend(read_as(train.read_as()));
    said.extend(others);
    said.extend(net::vectors(config, &mut trainer, &words)?);
    Ok(Prepared {
        trainer,
        train: Box::new(of_train),
        dev: Box::new(of_dev),
        test,
        name: train.name().into_owned(),
        metric: "accuracy",
        lengths,
        coverage,
        held_out,
        said,
    })
}

fn case(of: &Labelled) -> Case {
    Case { text: of.text.clone(), truth: Truth::Label(of.label.clone()) }
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
    let trainer = net::trainer(net, loss, config, net::steps(config, texts))?
        .metric(Accuracy::new(logits, label))
        .output(PROBABILITIES, probabilities)
        .vocabulary(WORDS, words.clone())
        .vocabulary(LABELS, labels.clone());
    Ok(match weights {
        Some(weights) => trainer.output(ATTENTION, weights),
        None => trainer,
    })
}
