//! Text classification: predicts a label, labels or a number for each text, by word vectors, recurrent layers and pooling.

mod network;
mod objective;
mod reader;
mod scores;
mod thresholds;

use std::borrow::Cow;
use std::sync::Arc;

use super::answer::Answer;
use super::config::Config;
use super::evaluation::{EachOutcome, Evaluation, Outcome};
use super::labels::{self, COLUMNS, LABELS, PROBABILITIES};
use super::portions::{self, EachClass, Portion, RecordAnswers};
use super::prepare::{FirstRecords, RecordCounts, TaskNetwork, TaskSurvey, TrainingTexts, prepare};
use super::recipe::{AnsweringModel, Preview, Recipe, RecordCheck, RecordModel, TestFile};
use super::sections::{DecodingConfig, Target, label_smoothing};
use super::started::{Origin, Table};
use super::texts::{Texts, add_characters};
use super::training::{Case, Column, Paths, Preparation, TOKENIZER_NOTE, options, options_of, tokenizer};
use super::{embedded, net, rows};
pub(super) use network::LABEL;
use network::NUMBER;
use objective::{Labels, Objective, labels_in};
use reader::{CHARACTERS, TextColumns, WORDS};
pub(super) use reader::{FIRST, Reader, SECOND, SEPARATOR};
use thresholds::Thresholds;
pub(super) use thresholds::finished;
use unpadded::Variable;
use unpadded::data::{Fingerprint, Limits, Loader, TokenCounts, Tokenizer, Vocabulary};
use unpadded::predict::Predictor;
use unpadded::{Error, ErrorKind, Result};
use unpadded_text::{LabelNotation, LabelledText, LabelledTexts, QuestionKind, ReadOptions, Record as _};

const TABLES: [Table; 6] = [
    Table::new(net::TABLE, WORDS, &[0]),
    Table::new("characters.weight", CHARACTERS, &[0]),
    Table::new("labels.weight", LABELS, &[1]),
    Table::new("labels.bias", LABELS, &[0]),
    Table::new("wide.weight", LABELS, &[1]),
    Table::new("wide.bias", LABELS, &[0]),
];

pub(super) const RECIPE: Recipe = Recipe {
    preview: |config, path| (recipe(rows::are_meant(config, path)?).preview)(config, path),
    prepare: |config, paths| {
        let rows = paths.train.as_ref().map(|train| rows::are_meant(config, train)).transpose()?;
        (recipe(rows.unwrap_or(false)).prepare)(config, paths)
    },
    check: |file, known| (recipe(file.known.note(rows::COLUMNS).is_some()).check)(file, known),
    load: |predictor, config| (recipe(predictor.note(rows::COLUMNS).is_some()).load)(predictor, config),
    ..Recipe::of::<Classifier>()
};

fn recipe(rows: bool) -> Recipe {
    if rows { Recipe::of::<rows::Classifier>() } else { Recipe::of::<Classifier>() }
}

/// Adds the text columns of the config to read options and, if a text may have several labels, lists of labels.
fn reading(config: &Config, options: ReadOptions) -> ReadOptions {
    let columns: Vec<&str> = config.data.text.iter().chain(&config.data.pair).map(String::as_str).collect();
    let options = match columns.len() {
        0 | 1 => options,
        _ => options.texts(columns).pair(config.data.pair.is_some()),
    };
    match (config.data.target, &config.data.label_separator) {
        (Target::Labels, Some(given)) => options.label_lists().label_notation(LabelNotation::parse(given)),
        (Target::Labels, None) => options.label_lists(),
        (Target::Number, _) => options.numbers(),
        (Target::Label, _) => options,
    }
}

struct TextSurvey<'a> {
    config: &'a Config,
    tokenizer: Tokenizer,
    labels: Labels,
    characters: TokenCounts,
}

impl<'a> TaskSurvey<'a> for TextSurvey<'a> {
    type Record = LabelledText;
    type Model = Classifier;

    fn embedded(train: bool) -> Result<LabelledTexts> {
        embedded::reviews(train)
    }

    fn begin(config: &'a Config, _: FirstRecords<'_, LabelledText>, from: &Origin) -> Result<Self> {
        let tokenizer = tokenizer(config)?;
        from.same_tokenizer(TOKENIZER_NOTE, &tokenizer)?;
        Ok(Self { config, tokenizer, labels: Labels::new(config), characters: TokenCounts::default() })
    }

    fn count(&mut self, text: &LabelledText, portion: Portion, counts: &mut RecordCounts) {
        let Self { config, tokenizer, labels, characters } = self;
        if portion != Portion::Dev {
            labels.add(text, portion == Portion::HeldOut);
        }
        if portion != Portion::Train {
            let truth = || Objective::truth(config.data.target, &text.label);
            counts.held_out.add(|| Case { text: text.text.clone(), truth: truth() });
        }
        let spells = config.model.characters && portion == Portion::Train;
        let spell = |token: &Cow<'_, str>| {
            if spells {
                add_characters(characters, token)
            }
        };
        counts.add(tokenizer.tokens(&text.text).inspect(spell), portion);
    }

    fn check(&self, counts: &RecordCounts, train: &str) -> Result<()> {
        self.labels.check(counts, train)
    }

    fn end(self, texts: &mut TrainingTexts<'_, LabelledText>, tokens: TokenCounts) -> Result<TaskNetwork> {
        let Self { config, tokenizer, labels, characters: spelling } = self;
        let TrainingTexts { train, dev, from, counts, .. } = &*texts;
        let joint = objective::joint(config, train.options());
        let classes = &counts.facts.classes;
        let (hint, name, parts) = (labels.hint(classes, &joint), train.called(), TextColumns::of(config));
        let (objective, weights) = labels.end(counts, joint)?;
        let specials = [Vocabulary::UNKNOWN, SEPARATOR];
        let specials = if parts.columns == 1 { &specials[..1] } else { &specials };
        let words = net::vocabulary((&tokenizer, tokens), specials, (from, &TABLES[0]), (config, &name))?;
        let characters =
            config.model.characters.then(|| spelling.within(&from.grows(Limits::default(), &TABLES[1])));
        let reader = Reader { tokenizer, words, characters: characters.transpose()?, parts };
        let data = |texts: &_| loader(texts, &reader, &objective, config);
        let loaders = [data(train)?, data(dev)?];
        let (threshold, of_threshold) = thresholds::rule(config, &objective, classes);
        let (learning, steps) = ((&objective, &weights, threshold), net::steps(config, counts.lengths.len()));
        let (mut trainer, metric) = network::network(config, &reader, learning, from.below(), steps)?;
        if of_threshold.is_some() {
            trainer = trainer.note(thresholds::RULE, threshold.to_string());
        }
        let data = match objective.labels() {
            Some(labels) => format!(" of {} labels", labels.len()),
            None => {
                format!(" with numbers of mean {:.4} and deviation {:.4}", weights.mean, weights.deviation)
            }
        };
        // `eval` prints the loss without these, so a line for people states the difference.
        let (rate, gamma) = (label_smoothing(config), config.training.focal);
        let before = [
            hint,
            of_threshold,
            (rate > 0.0).then(|| format!("loss is with label smoothing of {rate}")),
            (gamma > 0.0).then(|| format!("loss is focal, with the exponent {gamma}")),
            (!config.training.class_weights.is_empty()).then(|| "loss is with class weights".to_owned()),
        ];
        let doubt = train.options().doubt().map(|doubt| format!("warning: {doubt}"));
        Ok(TaskNetwork {
            loaders,
            trainer: trainer.note(TOKENIZER_NOTE, reader.tokenizer.name()),
            metric,
            known: [format!("{data}, {} words known", reader.words.len()), String::new()],
            reading: Some((reader.words, train.options().clone())),
            messages: [before.into_iter().flatten().collect(), doubt.into_iter().collect(), Vec::new()],
        })
    }
}

struct Classifier {
    reader: Reader,
    objective: Objective,
    thresholds: Thresholds,
    /// The other classifiers of an ensemble, each with the index of each label of this classifier.
    others: Vec<(Classifier, Predictor, Vec<usize>)>,
}

/// `values` has `width` values per text: probabilities or a number. `attention` has the weights of all tokens, if computed.
struct Outputs {
    values: Vec<f32>,
    attention: Option<Vec<f32>>,
    width: usize,
}

impl Classifier {
    /// Returns the name of the output with the answers.
    fn output(&self) -> &'static str {
        if self.objective.labels().is_some() { PROBABILITIES } else { NUMBER }
    }

    fn run(&self, predictor: &Predictor, texts: &[&str], outputs: &[&str]) -> Result<Vec<Variable>> {
        let values = self.reader.batch(texts)?;
        let feeds: Vec<(&str, &Variable)> =
            values.iter().map(|(name, value)| (name.as_str(), value)).collect();
        predictor.run(&feeds, outputs)
    }

    /// Returns the mean of the values of all models, and the attention weights of the first model.
    fn found(&self, predictor: &Predictor, texts: &[&str]) -> Result<Outputs> {
        let mut found = self.own(predictor, texts)?;
        for (classifier, predictor, places) in &self.others {
            labels::add_rows(&mut found.values, &classifier.own(predictor, texts)?.values, places);
        }
        let models = self.others.len() as f32 + 1.0;
        found.values.iter_mut().for_each(|sum| *sum /= models);
        Ok(found)
    }

    fn own(&self, predictor: &Predictor, texts: &[&str]) -> Result<Outputs> {
        let (output, width) = (self.output(), self.objective.labels().map_or(1, Vocabulary::len));
        let attends = predictor.outputs().any(|output| output == labels::ATTENTION);
        let outputs: &[&str] = if attends { &[output, labels::ATTENTION] } else { &[output] };
        let mut found = self.run(predictor, texts, outputs)?.into_iter();
        let floats = |variable: Option<Variable>| -> Result<Option<Vec<f32>>> {
            variable.map(|variable| Ok(variable.as_slice::<f32>()?.to_vec())).transpose()
        };
        let values = floats(found.next())?.unwrap_or_default();
        Ok(Outputs { values, attention: floats(found.next())?, width })
    }
}

impl AnsweringModel for Classifier {
    fn tokenizers(&self) -> Option<[&Tokenizer; 2]> {
        Some([&self.reader.tokenizer; 2])
    }

    fn others(&self) -> Vec<&Predictor> {
        self.others.iter().map(|(_, predictor, _)| predictor).collect()
    }

    fn embeds(&self) -> Option<&'static str> {
        Some(self.output())
    }

    fn rows(&self, by: &Predictor, texts: &[&str], output: &str) -> Result<Variable> {
        Ok(self.run(by, texts, &[output])?.swap_remove(0))
    }

    fn answers(&self, by: &Predictor, texts: &[&str], how: &DecodingConfig) -> Result<Vec<Answer>> {
        let thresholds = self.thresholds.by(how.threshold)?;
        let Outputs { values, attention, width } = self.found(by, texts)?;
        let mut weights = attention.as_ref().map(|weights| weights.iter().copied());
        let answer = |(row, text): (&[f32], &&str)| -> Result<Answer> {
            Ok(match &self.objective {
                Objective::Label(known) => {
                    let words = match &mut weights {
                        Some(weights) => self.reader.tokens(text)?.into_iter().zip(weights).collect(),
                        None => Vec::new(),
                    };
                    labels::answer(known, row, words)
                }
                Objective::Labels(known, separator) => {
                    let all: Vec<(String, f32)> =
                        known.tokens().map(str::to_owned).zip(row.iter().copied()).collect();
                    let labels = names(known, &given(row, &thresholds)).map(str::to_owned).collect();
                    Answer::Labels { labels, all, separator: separator.clone() }
                }
                Objective::Number => Answer::Number(row.first().copied().unwrap_or_default()),
            })
        };
        values.chunks_exact(width).zip(texts).map(answer).collect()
    }

    fn join(&mut self, _: &Predictor, other: Predictor, config: &Config) -> Result<()> {
        let wrong = |got: &str| {
            let expected = "classifiers of texts with the same target: a label, several labels or a number";
            Err(Error::of(ErrorKind::Program, "models to join", expected, got))
        };
        if other.note(rows::COLUMNS).is_some() {
            return wrong("a classifier of rows of features");
        }
        let classifier = Self::load(&other, config)?;
        let places = match (&self.objective, &classifier.objective) {
            (Objective::Label(first), Objective::Label(known))
            | (Objective::Labels(first, _), Objective::Labels(known, _)) => {
                labels::places("labels", first, known)?
            }
            (Objective::Number, Objective::Number) => vec![0],
            (Objective::Label(_) | Objective::Labels(..) | Objective::Number, _) => {
                return wrong("a classifier with another target");
            }
        };
        self.thresholds.join(&classifier.thresholds, &places, self.others.len() as f32 + 2.0);
        self.others.push((classifier, other, places));
        Ok(())
    }
}

impl RecordAnswers for Classifier {
    type Record = LabelledText;

    fn classes(config: &Config, text: &LabelledText, each: EachClass<'_>) {
        let mut each = |label: &str| each(portions::LABEL, label, &|| portions::location(text));
        match config.data.target {
            Target::Label => each(&text.label),
            Target::Labels => labels_in(&text.label).into_iter().for_each(each),
            Target::Number => {}
        }
    }

    /// Lists of labels are equal in any order, and numbers in any spelling.
    fn answer(config: &Config, text: &LabelledText) -> u64 {
        let f = Fingerprint::default();
        match config.data.target {
            Target::Label => f.text(&text.label).finish(),
            Target::Labels => {
                let mut labels = labels_in(&text.label);
                labels.sort_unstable();
                labels.into_iter().fold(f, Fingerprint::text).finish()
            }
            // Adding 0.0 changes −0 to 0.
            Target::Number => objective::number(&text.label)
                .map_or(0, |number| f.number((number + 0.0).to_bits().into()).finish()),
        }
    }
}

impl RecordModel for Classifier {
    const ASKING: QuestionKind = QuestionKind::Text;
    const COLUMNS: [Column; 2] = COLUMNS;
    const TABLES: &'static [Table] = &TABLES;
    const STARTS_FROM_LM: bool = true;

    fn training_options(config: &Config) -> Result<ReadOptions> {
        // The column of a pair's first text is not detected.
        if let (Some(pair), []) = (&config.data.pair, &config.data.text[..]) {
            let expected = format!("the column of the first text, beside `data.pair`, which is `{pair}`");
            return Err(Error::new("data.text", expected, "none"));
        }
        Ok(reading(config, options(config, COLUMNS)?))
    }

    fn line(text: &LabelledText) -> String {
        let labels = labels_in(&text.label).into_iter().map(Preview::shortened).collect::<Vec<_>>();
        let label = if labels.is_empty() { "none".to_owned() } else { labels.join(" and ") };
        format!("text {}, label {label}", Preview::shortened(&text.text))
    }

    fn prepare(config: &Config, paths: Paths) -> Result<Preparation> {
        prepare::<TextSurvey<'_>>(config, paths)
    }

    fn load(predictor: &Predictor, config: &Config) -> Result<Self> {
        let (reader, objective) = (reader(predictor, config)?, Objective::of(predictor, config)?);
        let thresholds = Thresholds::of(predictor, &objective)?;
        Ok(Self { reader, objective, thresholds, others: Vec::new() })
    }

    fn adds(&self, _: &Predictor, _: &DecodingConfig) -> Vec<String> {
        let adds: &[&str] = match self.objective {
            Objective::Label(_) => &Answer::LABEL,
            Objective::Labels(..) => &["labels", "probabilities"],
            Objective::Number => &[NUMBER],
        };
        adds.iter().map(|&name| name.to_owned()).collect()
    }

    fn options(file: &TestFile<'_>) -> Result<ReadOptions> {
        Ok(reading(file.config, options_of(file.config, COLUMNS, file.known)?))
    }

    fn loader(&self, file: &TestFile<'_>, texts: &Texts<LabelledText>) -> Result<Loader> {
        loader(texts, &self.reader, &self.objective, file.config)
    }

    fn checks<'a>(file: &'a TestFile<'_>, _: &Texts<LabelledText>) -> Result<RecordCheck<'a, LabelledText>> {
        let (reader, target) = (reader(file.known, file.config)?, file.config.data.target);
        Ok(Box::new(move |_, text| {
            reader.fields(&text.text)?;
            match target {
                Target::Number => objective::number(&text.label).map(drop).map_err(|e| placed(e, text)),
                Target::Label | Target::Labels => Ok(()),
            }
        }))
    }

    fn scored(
        &self,
        file: &TestFile<'_>,
        texts: Texts<LabelledText>,
        each: EachOutcome<'_>,
    ) -> Result<Evaluation> {
        let by = file.known;
        let joint = objective::joint(file.config, texts.options());
        let thresholds = self.thresholds.by(file.config.decoding.threshold)?;
        let mut scores = match &self.objective {
            Objective::Label(known) => ObjectiveScores::Label(labels::LabelScores::new(known)),
            Objective::Labels(known, _) => ObjectiveScores::Labels(known, scores::LabelSets::new(known)),
            Objective::Number => ObjectiveScores::Number(scores::Numbers::new()),
        };
        texts.in_batches(self.batch(), &|text| text.text.len(), &mut |part| {
            let asked: Vec<&str> = part.iter().map(|(_, text)| text.text.as_str()).collect();
            let found = self.found(by, &asked)?;
            for ((number, labelled), row) in part.iter().zip(found.values.chunks_exact(found.width)) {
                let (text, truth) = (labelled.text.as_str(), labelled.label.as_str());
                let tokens = self.reader.tokenizer.tokens(text).count();
                let unknown = || format!("record {number} of `{}`", texts.called());
                let location = || portions::location(labelled).unwrap_or_else(unknown);
                match &mut scores {
                    ObjectiveScores::Label(scores) => scores.add((text, truth), &location, tokens, row, each),
                    ObjectiveScores::Labels(known, scores) => {
                        let given = given(row, &thresholds);
                        scores.add(truth, &location, tokens, row, &given);
                        let found = names(known, &given).collect::<Vec<_>>().join(&joint);
                        let truth = labels_in(truth).join(&joint);
                        each(Outcome { text, asked: text, truth: &truth, found: &found });
                    }
                    ObjectiveScores::Number(scores) => {
                        let number = objective::number(truth).map_err(|e| placed(e, labelled))?;
                        let found = row.first().copied().unwrap_or_default();
                        scores.add(number.into(), found.into(), tokens);
                        each(Outcome { text, asked: text, truth, found: &found.to_string() });
                    }
                }
            }
            Ok(())
        })?;
        Ok(match scores {
            ObjectiveScores::Label(scores) => scores.end(),
            ObjectiveScores::Labels(_, scores) => scores.end(),
            ObjectiveScores::Number(scores) => scores.end(),
        })
    }
}

enum ObjectiveScores<'a> {
    Label(labels::LabelScores<'a>),
    Labels(&'a Vocabulary, scores::LabelSets<'a>),
    Number(scores::Numbers),
}

fn names<'a>(known: &'a Vocabulary, given: &'a [bool]) -> impl Iterator<Item = &'a str> {
    known.tokens().zip(given).filter(|(_, given)| **given).map(|(label, _)| label)
}

fn given(row: &[f32], thresholds: &[f32]) -> Vec<bool> {
    row.iter().zip(thresholds).map(|(p, threshold)| p >= threshold).collect()
}

/// Adds the location of a text in its file to an error about the text, if the location is known.
fn placed(error: Error, text: &LabelledText) -> Error {
    match text.file_line() {
        Some(location) => error.within(&location.to_string()),
        None => error,
    }
}

fn reader(known: &Predictor, config: &Config) -> Result<Reader> {
    Reader::of(config, known.note(TOKENIZER_NOTE), &mut |name| known.vocabulary(name).cloned())
}

fn loader(
    texts: &Texts<LabelledText>,
    reader: &Reader,
    objective: &Objective,
    config: &Config,
) -> Result<Loader> {
    let labels = objective.labels().map_or(0, Vocabulary::fingerprint);
    let salt = Fingerprint::default().number(reader.fingerprint()).number(labels).finish();
    let feeds = [reader.feeds(), vec![LABEL]].concat();
    let (reader, objective, name) = (reader.clone(), objective.clone(), texts.called().into_owned());
    let sample = move |text: &LabelledText| {
        let noted = |e: Error| match text.file_line() {
            Some(location) => {
                e.noted(format!("of {}", Preview::shortened(&text.text))).within(&location.to_string())
            }
            None => e.noted(format!("of {} in `{name}`", Preview::shortened(&text.text))),
        };
        let mut fields = reader.fields(&text.text).map_err(noted)?;
        fields.push(objective.field(&text.label).map_err(noted)?);
        Ok(fields)
    };
    texts.loader(&feeds, salt, Arc::new(sample), config)
}
