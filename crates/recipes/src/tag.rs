//! Tagging: recurrent layers over words and their characters, and a conditional random field over the tags, predict a tag for each
//! word (Lample et al., "Neural architectures for named entity recognition", 2016).

use std::path::Path;

use unpadded::data::{Chunk, Limits, Loader, TagScheme, TokenCounts, Tokenizer, Vocabulary};
use unpadded::layers::{Crf, Linear};
use unpadded::metrics::{Accuracy, ChunkF1, TokenAccuracy};
use unpadded::ndarray::Array2;
use unpadded::ops::Pool;
use unpadded::predict::Predictor;
use unpadded::tensor::Dense;
use unpadded::train::Trainer;
use unpadded::{Builder, DType, Error, ErrorKind, Lod, Result, Variable, reserve};
use unpadded_text::{QuestionKind, ReadOptions, TaggedText, TaggedTexts, Tagging, scheme_of};

use super::answer::{Answer, AnswerBatch, Entity};
use super::config::Config;
use super::encoder::Encoder;
use super::evaluation::{EachOutcome, Evaluation, likeliest};
use super::labels::trained_id;
use super::portions::{self, EachClass, Portion, RecordAnswers};
use super::prepare::{
    DevTexts, FirstRecords, RecordCounts, TaskNetwork, TaskSurvey, TrainingTexts, Within, prepare,
};
use super::recipe::{AnsweringModel, Preview, RecordCheck, RecordModel, TestFile};
use super::sections::{DecodingConfig, ModelConfig};
use super::started::{Origin, Table};
use super::tag_scores::{FoundTags, TagScores};
use super::texts::{Texts, add_characters};
use super::training::{Case, Column, Paths, Preparation, READ_AS, Truth, options_of, read_as, refuse_texts};
use super::vote::Voters;
use super::{embedded, net};

const FEEDS: [&str; 4] = ["words", "characters", "tags", "label"];
const COLUMNS: [Column; 2] = [|o, column| o.tokens(column), |o, column| o.tags(column)];
/// The names of the vocabularies. The outputs, of tags and of the probabilities of labels, have the same names.
const WORDS: &str = "words";
const CHARACTERS: &str = "characters";
const TAGS: &str = "tags";
const CRF: &str = "crf";
const LABELS: &str = "labels";

const TABLES: [Table; 7] = [
    Table { form, ..Table::new(net::TABLE, WORDS, &[0]) },
    Table::new("characters.weight", CHARACTERS, &[0]),
    Table::new("tags.weight", TAGS, &[1]),
    Table::new("tags.bias", TAGS, &[0]),
    Table::new("crf.transitions", TAGS, &[0, 1]),
    Table::new("labels.weight", LABELS, &[1]),
    Table::new("labels.bias", LABELS, &[0]),
];

/// With more than this number of tags, a message warns that the training is slow.
const MANY_TAGS: usize = 300;

type TextTags = (Vec<i64>, Option<(String, f32)>);

/// A tagger, with the other taggers of its ensemble.
pub(super) struct Tagger(Voters);

impl AnsweringModel for Tagger {
    /// A batch is small, because the memory of the model grows with all words or characters of a batch.
    fn batch(&self) -> AnswerBatch {
        AnswerBatch::of_bytes(1 << 13)
    }

    fn others(&self) -> Vec<&Predictor> {
        self.0.others().collect()
    }

    fn length(&self, text: &str) -> usize {
        TaggedText::words_of(text).count()
    }

    fn answers(&self, by: &Predictor, texts: &[&str], how: &DecodingConfig) -> Result<Vec<Answer>> {
        // A tagger that also predicts labels of texts reads each text as a whole, so its texts are not divided.
        let labelled = is_labelled(by);
        let may_divide = |e: &Error| e.is_over_limit() && how.overlap > 0 && !labelled;
        // A record of a file has one word per line and ends with a line break, because a word may contain spaces.
        let words: Vec<Vec<&str>> = texts
            .iter()
            .map(|text| match text.ends_with('\n') {
                true => text.lines().collect(),
                false => TaggedText::words_of(text).collect(),
            })
            .collect();
        let whole: Vec<&[&str]> = words.iter().map(Vec::as_slice).collect();
        let found = match (self.found(by, &whole), &words[..]) {
            (Err(error), [words]) if may_divide(&error) => {
                let mut tags = |words: &[&str]| Ok(self.found(by, &[words])?.swap_remove(0).0);
                vec![(in_windows(words, how.overlap, &mut tags)?, None)]
            }
            (found, _) => {
                found.map_err(|error| match error.is_over_limit() && !labelled && how.overlap == 0 {
                    true => error
                        .noted("`decoding.overlap`, such as 50, tags a longer text in overlapping windows"),
                    false => error,
                })?
            }
        };
        let tags = by.vocabulary(TAGS)?;
        let tagging = noted_tagging(by).filter(|tagging| tagging.scheme != TagScheme::Plain);
        let standard = |tagging: Tagging| Ok::<_, Error>((tagging.scheme, tagging.standard(tags)?));
        let scheme = tagging.map(standard).transpose()?;
        let answer = |(words, (ids, label)): (Vec<&str>, TextTags)| {
            let chunks = scheme.as_ref().map(|(scheme, standard)| scheme.chunks(&names(standard, &ids)));
            let entity = |Chunk { kind, words }: Chunk<'_>| Entity { label: kind.to_owned(), words };
            Ok(Answer::Tags {
                tags: names(tags, &ids).into_iter().map(str::to_owned).collect(),
                words: words.into_iter().map(str::to_owned).collect(),
                entities: chunks.transpose()?.into_iter().flatten().map(entity).collect(),
                label,
            })
        };
        words.into_iter().zip(found).map(answer).collect()
    }

    fn join(&mut self, predictor: &Predictor, other: Predictor, _: &Config) -> Result<()> {
        let (first, known) = (Entries::of(predictor)?, Entries::of(&other)?);
        let may = match noted_tagging(predictor) {
            Some(tagging) => tagging.scheme.transitions(&tagging.standard(&first.tags)?)?,
            None => Array2::zeros((first.tags.len() + 2, first.tags.len())),
        };
        self.0.add((first.tags, first.labels), may, other, (known.tags, known.labels))
    }
}

impl RecordAnswers for Tagger {
    type Record = TaggedText;

    fn classes(_: &Config, text: &TaggedText, each: EachClass<'_>) {
        text.label.iter().for_each(|label| each(portions::LABEL, label, &|| text.location_of(0)));
        let tags = text.tags.iter().enumerate();
        tags.for_each(|(word, tag)| each(portions::TAG, tag, &|| text.location_of(word)));
    }
}

impl RecordModel for Tagger {
    const ASKING: QuestionKind = QuestionKind::Words;
    const COLUMNS: [Column; 2] = COLUMNS;
    const TABLES: &'static [Table] = &TABLES;
    const STARTS_FROM_LM: bool = true;
    const ONE_RECORD: &'static str =
        "in columns, a blank line ends a text: without a blank line, all lines are one text";

    fn line(text: &TaggedText) -> String {
        let words = text.words.iter().zip(&text.tags).map(|(word, tag)| format!("{word}/{tag}"));
        let label = text.label.as_ref().map(|label| format!(", label {}", Preview::shortened(label)));
        let words: Vec<String> = words.collect();
        format!("words/tags {}{}", Preview::shortened(&words.join(" ")), label.unwrap_or_default())
    }

    fn prepare(config: &Config, paths: Paths) -> Result<Preparation> {
        prepare::<WordSurvey<'_>>(config, paths)
    }

    fn load(_: &Predictor, _: &Config) -> Result<Self> {
        Ok(Self(Voters::default()))
    }

    fn adds(&self, predictor: &Predictor, _: &DecodingConfig) -> Vec<String> {
        let labels = if is_labelled(predictor) { &Answer::LABEL[..] } else { &[] };
        [&[TAGS], labels].concat().into_iter().map(str::to_owned).collect()
    }

    fn options(file: &TestFile<'_>) -> Result<ReadOptions> {
        let like = options_of(file.config, COLUMNS, file.known)?;
        refuse_texts(file.path, &like)?;
        Ok(like)
    }

    fn loader(&self, file: &TestFile<'_>, texts: &Texts<TaggedText>) -> Result<Loader> {
        Entries::of(file.known)?.loader(texts, file.config)
    }

    fn checks<'a>(file: &'a TestFile<'_>, texts: &Texts<TaggedText>) -> Result<RecordCheck<'a, TaggedText>> {
        let mut scores = tag_scores(file.known, texts)?;
        Ok(Box::new(move |number, text| {
            let tags = &vec![0; text.words.len()];
            scores.add(text, number, &FoundTags { tags, label: None }, &mut |_| ())
        }))
    }

    fn scored(
        &self,
        file: &TestFile<'_>,
        texts: Texts<TaggedText>,
        each: EachOutcome<'_>,
    ) -> Result<Evaluation> {
        let by = file.known;
        let (mut scores, entries) = (tag_scores(file.known, &texts)?, Entries::of(file.known)?);
        let (is_known, mut some) = (entries.is_known(), false);
        texts.in_batches(self.batch(), &|text| text.words.iter().map(String::len).sum(), &mut |part| {
            let words = part.iter().map(|(_, text)| text.words.iter().map(String::as_str).collect());
            let words: Vec<Vec<&str>> = words.collect();
            let found = self.found(by, &words.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
            for ((number, text), (tags, label)) in part.iter().zip(&found) {
                let label = label.as_ref().map(|(label, _)| label.as_str());
                scores.add(text, *number, &FoundTags { tags, label }, each)?;
                some |= is_known(text);
            }
            Ok(())
        })?;
        // The loss is of texts in which training saw all tags and the label. An ensemble, whose taggers vote, has none.
        let loss = match texts {
            Texts::InFiles(files, window) if some && self.0.is_empty() => {
                let is_known = Texts::InFiles(files.retain(is_known), window);
                Some(by.evaluate(&entries.loader(&is_known, file.config)?)?.loss())
            }
            _ => None,
        };
        Ok(scores.end().with_loss(loss))
    }
}

fn names<'a>(tags: &'a Vocabulary, ids: &[i64]) -> Vec<&'a str> {
    ids.iter().map(|&id| tags.token(id).unwrap_or_default()).collect()
}

struct WordSurvey<'a> {
    config: &'a Config,
    characters: TokenCounts,
    labelled: usize,
}

impl<'a> TaskSurvey<'a> for WordSurvey<'a> {
    type Record = TaggedText;
    type Model = Tagger;

    fn embedded(train: bool) -> Result<TaggedTexts> {
        embedded::requests(train)
    }

    /// If the tags of `data.dev` are of another scheme, they are converted to the scheme of the training texts.
    fn open_dev(train: &Texts<TaggedText>, path: &Path, within: Within<'_>) -> DevTexts<TaggedText> {
        let mut texts = Texts::open(path, within, train.options())?;
        if let (Err(_), Ok(of_train)) = (scheme_of(&[&**train, &*texts]), scheme_of(&[&**train])) {
            texts = Texts::open(path, within, &train.options().clone().tagging(of_train))?;
        }
        Ok((texts, None))
    }

    fn begin(config: &'a Config, _: FirstRecords<'_, TaggedText>, _: &Origin) -> Result<Self> {
        Ok(Self { config, characters: TokenCounts::default(), labelled: 0 })
    }

    fn count(&mut self, text: &TaggedText, portion: Portion, counts: &mut RecordCounts) {
        counts.add(text.words.iter().map(|word| form(word)), portion);
        self.labelled += usize::from(text.label.is_some());
        if portion == Portion::Train {
            text.words.iter().for_each(|word| add_characters(&mut self.characters, word));
        } else if text.words.iter().all(|word| TaggedText::words_of(word).eq([word])) {
            let truth = || Truth::Tags(text.tags.clone(), text.label.clone());
            counts.held_out.add(|| Case { text: text.words.join(" "), truth: truth() });
        } else {
            // A report shows a text as its words joined by spaces, and this text would then be cut into other words.
            counts.held_out.count += 1;
        }
    }

    fn end(self, texts: &mut TrainingTexts<'_, TaggedText>, tokens: TokenCounts) -> Result<TaskNetwork> {
        let Self { config, characters, labelled } = self;
        let TrainingTexts { train, dev, from, counts, .. } = texts;
        let (tagging, name) = (scheme_of(&[&**train, &**dev])?, train.called());
        let (counted, specials) = ((&Tokenizer::whitespace(), tokens), [Vocabulary::UNKNOWN]);
        let words = net::vocabulary(counted, &specials, (from, &TABLES[0]), (config, &name))?;
        let characters =
            config.model.characters.then(|| characters.within(&from.grows(Limits::default(), &TABLES[1])));
        let characters = characters.transpose().map_err(|e| e.noted(format!("in `{name}`")))?;
        let all_labelled = labelled == counts.lengths.len() + counts.dev;
        let classes = &mut counts.facts.classes;
        if !all_labelled {
            classes.without_labels();
        }
        let labels = all_labelled.then(|| classes.vocabulary(portions::LABEL)).transpose()?;
        let found = Entries { words, characters, tags: classes.vocabulary(portions::TAG)?, labels };
        if let (1, Some(only)) = (found.tags.len(), found.tags.token(0)) {
            let hint = "`tags` (`data.label` in a config) sets another column of tags";
            let read = read_as(train.options()).map_or_else(String::new, |read| format!("{read}; "));
            let (what, got) = (format!("tags in `{name}`"), format!("only `{only}`"));
            return Err(
                Error::of(ErrorKind::Format, what, "at least two", got).noted(format!("{read}{hint}"))
            );
        }
        let loaders = [found.loader(train, config)?, found.loader(dev, config)?];
        let steps = net::steps(config, counts.lengths.len());
        let (trainer, metric) = network(config, &found, &tagging, from.below(), steps)?;
        let tags = found.tags.len();
        let plain = (tagging.scheme == TagScheme::Plain).then(|| {
            let why = tagging.note().map_or_else(String::new, |why| format!(" ({why})"));
            format!("plain tags{why}: scored token by token")
        });
        let many = (tags > MANY_TAGS).then(|| {
            format!("{tags} tags: each pair of them has a score, so that time and memory grow with the square of their number")
        });
        let known = format!(" of {tags} tags ({tagging}), {} words known", found.words.len());
        Ok(TaskNetwork {
            loaders,
            trainer,
            metric,
            reading: Some((found.words, train.options().clone().tagging(tagging))),
            known: [known, String::new()],
            messages: [Vec::new(), Vec::new(), plain.into_iter().chain(many).collect()],
        })
    }
}

/// Returns the form of a word in the vocabulary: lower case, with every digit replaced by 0.
fn form(word: &str) -> String {
    word.chars().flat_map(char::to_lowercase).map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

/// Returns scores with the tag scheme in the note of the checkpoint or, without a note, the scheme of the texts.
fn tag_scores<'a>(known: &'a Predictor, texts: &Texts<TaggedText>) -> Result<TagScores<'a>> {
    let tagging = noted_tagging(known).map_or_else(|| scheme_of(&[&**texts]), Ok)?;
    let labels = if is_labelled(known) { Some(known.vocabulary(LABELS)?) } else { None };
    TagScores::new(known.vocabulary(TAGS)?, labels, &tagging)
}

impl Tagger {
    fn found(&self, predictor: &Predictor, texts: &[&[&str]]) -> Result<Vec<TextTags>> {
        let lengths: Vec<usize> = texts.iter().map(|words| words.len()).collect();
        let own = found(predictor, texts)?;
        let (tags, labels) = self.0.join(own, &lengths, &|other| found(other, texts))?;
        let known = if labels.is_empty() { None } else { Some(predictor.vocabulary(LABELS)?) };
        let (mut tags, mut rows) = (tags.into_iter(), labels.chunks_exact(known.map_or(1, Vocabulary::len)));
        let label = |(row, known): (&[f32], &Vocabulary)| {
            let at = likeliest(row)?;
            Some((known.tokens().nth(at)?.to_owned(), *row.get(at)?))
        };
        let next_tags =
            |length| (tags.by_ref().take(length).collect(), rows.next().zip(known).and_then(label));
        Ok(lengths.into_iter().map(next_tags).collect())
    }
}

/// Returns the tag id of each word and, if the model predicts labels, the probability of each label for each text.
fn found(predictor: &Predictor, texts: &[&[&str]]) -> Result<(Vec<i64>, Vec<f32>)> {
    let known = predictor.vocabulary(WORDS)?;
    let ids = texts.iter().map(|words| known.ids(words.iter().map(|word| form(word))));
    let (ids, mut characters) = (Variable::from_sequences(&ids.collect::<Result<Vec<_>>>()?)?, None);
    if let Ok(character_vocabulary) = predictor.vocabulary(CHARACTERS) {
        // The character ids of all words are in one list: a list per word would take several times their memory.
        let words = || texts.iter().flat_map(|words| words.iter());
        let in_words: Vec<usize> = words().map(|word| word.chars().count()).collect();
        let mut ids = reserve::vector(in_words.iter().sum(), "characters of words")?;
        for word in words() {
            ids.extend(character_vocabulary.spelling(word)?);
        }
        let lod = Lod::from_lengths(&[texts.iter().map(|words| words.len()).collect(), in_words])?;
        characters = Some(Variable::new(Dense::from_vec(&[ids.len()], ids)?, Some(lod))?);
    }
    let characters = characters.as_ref().map(|characters| (FEEDS[1], characters));
    let feeds: Vec<(&str, &Variable)> = [(FEEDS[0], &ids)].into_iter().chain(characters).collect();
    let outputs = if is_labelled(predictor) { &[TAGS, LABELS][..] } else { &[TAGS] };
    let found = predictor.run(&feeds, outputs)?;
    let none = || Error::of(ErrorKind::Program, "outputs of the model", "tags", "none");
    let tags = found.first().ok_or_else(none)?.as_slice::<i64>()?.to_vec();
    let labels = found.get(1).map(|labels| labels.as_slice::<f32>()).transpose()?;
    Ok((tags, labels.unwrap_or_default().to_vec()))
}

fn is_labelled(known: &Predictor) -> bool {
    known.outputs().any(|output| output == LABELS)
}

fn noted_tagging(known: &Predictor) -> Option<Tagging> {
    let note = known.note(READ_AS).and_then(|note| serde_json::from_str(note).ok());
    let tagging = note.as_ref().and_then(|note: &serde_json::Value| note.get("tagging")?.as_str());
    tagging.and_then(Tagging::of_note)
}

struct Entries {
    words: Vocabulary,
    characters: Option<Vocabulary>,
    tags: Vocabulary,
    labels: Option<Vocabulary>,
}

impl Entries {
    fn of(known: &Predictor) -> Result<Self> {
        let vocabulary = |name| known.vocabulary(name).cloned();
        let labels = is_labelled(known).then(|| vocabulary(LABELS)).transpose()?;
        Ok(Self {
            words: vocabulary(WORDS)?,
            characters: vocabulary(CHARACTERS).ok(),
            tags: vocabulary(TAGS)?,
            labels,
        })
    }

    fn loader(&self, texts: &Texts<TaggedText>, config: &Config) -> Result<Loader> {
        let Self { words, characters, tags, labels } = self;
        let present = [true, characters.is_some(), true, labels.is_some()];
        let names: Vec<&str> =
            FEEDS.into_iter().zip(present).filter(|(_, fed)| *fed).map(|(name, _)| name).collect();
        let (characters, labels) = (characters.as_ref(), labels.as_ref());
        let samples = match texts {
            Texts::Held(texts) => texts.samples(form, words, characters, tags, labels)?.into(),
            Texts::InFiles(files, _) => files.samples(form, words, characters, tags, labels)?,
        };
        Ok(texts.batches(Loader::new(samples, &names)?, config))
    }

    /// Returns a function that checks whether training saw the label and all tags of a text.
    fn is_known(&self) -> impl Fn(&TaggedText) -> bool + Send + Sync + 'static {
        let (tags, labels) = (self.tags.clone(), self.labels.clone());
        move |text| {
            let label =
                |label: &String| labels.as_ref().is_none_or(|known| trained_id(known, label).is_some());
            text.tags.iter().all(|tag| trained_id(&tags, tag).is_some())
                && text.label.as_ref().map_or(labels.is_none(), label)
        }
    }
}

fn network(
    config: &Config,
    found: &Entries,
    tagging: &Tagging,
    below: Option<&ModelConfig>,
    steps: usize,
) -> Result<(Trainer, &'static str)> {
    let model = &config.model;
    let net = Builder::new().seed(config.run.seed);
    let characters = found.characters.as_ref().map(|characters| characters.len());
    let encoder = Encoder::new(&net, config, found.words.len(), characters, below);
    let (words, vectors) = encoder.read(&net, [FEEDS[0], FEEDS[1]], 1);
    let h = encoder.layers.of(vectors);

    let tags = net.feed_like(FEEDS[2], DType::I64, &[], words);
    let standard = tagging.standard(&found.tags)?;
    let scores = h.dropout(model.dropout).linear(Linear::new(found.tags.len()).named(TAGS));
    let known = net::of_trained(&net, scores, (TAGS, &found.tags));
    let (mut loss, best) = match model.crf {
        true => {
            let crf = net.layer(Crf::new().named(CRF).forbidding(&tagging.scheme.transitions(&standard)?));
            (crf.loss(scores, tags).mean(), crf.of(known))
        }
        // The loss of a text is the sum over its words, as with a conditional random field.
        false => {
            let losses = scores.cross_entropy(tags).sequence_pool(Pool::Sum);
            (losses.mean(), known.argmax())
        }
    };
    let label = found.labels.as_ref().map(|labels| {
        let label = net.feed(FEEDS[3], DType::I64, &[], 0);
        let logits =
            h.sequence_pool(Pool::Max).dropout(model.dropout).linear(Linear::new(labels.len()).named(LABELS));
        loss = loss + logits.cross_entropy(label).mean();
        let logits = net::of_trained(&net, logits, (LABELS, labels));
        (Accuracy::new(logits, label).named("label accuracy"), logits.softmax(), labels.clone())
    });
    let trainer = net::trainer(net, loss, config, steps)?;
    let (trainer, metric) = match tagging.scheme {
        TagScheme::Plain => (trainer.metric(TokenAccuracy::new(best, tags)), "token accuracy"),
        scheme => (trainer.metric(ChunkF1::new(best, tags, scheme, &standard)?), "chunk F1"),
    };
    let trainer = trainer
        .output(TAGS, best)
        .vocabulary(WORDS, found.words.clone())
        .vocabulary(TAGS, found.tags.clone());
    let characters = found.characters.iter();
    let trainer =
        characters.fold(trainer, |trainer, vocabulary| trainer.vocabulary(CHARACTERS, vocabulary.clone()));
    let trainer = label.into_iter().fold(trainer, |trainer, (accuracy, probabilities, labels)| {
        trainer.metric(accuracy).output(LABELS, probabilities).vocabulary(LABELS, labels)
    });
    Ok((trainer, metric))
}

/// Tags a text in windows: halves, quarters, and so on, until a window fits the memory limit or has at most `overlap` words. Each
/// window is read with `overlap` further words at either end, because a model may read in both directions.
fn in_windows<W>(
    words: &[W],
    overlap: usize,
    tag: &mut dyn FnMut(&[W]) -> Result<Vec<i64>>,
) -> Result<Vec<i64>> {
    let mut size = words.len();
    loop {
        size = size.div_ceil(2).max(1);
        let windows = (0..words.len()).step_by(size).map(|start| {
            let end = words.len().min(start.saturating_add(size));
            let (from, to) = (start.saturating_sub(overlap), words.len().min(end.saturating_add(overlap)));
            let found = tag(words.get(from..to).unwrap_or_default())?;
            Ok(found.get(start - from..end - from).unwrap_or_default().to_vec())
        });
        match windows.collect::<Result<Vec<_>>>() {
            Err(error) if error.is_over_limit() && size > overlap => (),
            outcome => return outcome.map(|tags| tags.concat()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unpadded::{Error, ErrorKind};

    /// Returns, as a word's tag, the sum of it and its neighbours; an error for more than `most` words. `seen` is the largest call.
    fn sums(most: usize, seen: &mut usize, words: &[i64]) -> Result<Vec<i64>> {
        if words.len() > most {
            let got = words.len().to_string();
            return Err(Error::of(ErrorKind::Memory, "words", most.to_string(), got).over_limit());
        }
        *seen = (*seen).max(words.len());
        let at = |i: usize| words.get(i).copied().unwrap_or(0);
        Ok((0..words.len()).map(|i| at(i.wrapping_sub(1)) + at(i) + at(i + 1)).collect())
    }

    #[test]
    fn windows_that_overlap_enough_give_the_tags_of_the_whole_text() {
        for n in [1, 2, 7, 64, 100] {
            let words: Vec<i64> = (0..n).map(|i| i * i % 13).collect();
            let whole = sums(usize::MAX, &mut 0, &words).unwrap();
            for most in [8, 20, 200] {
                let mut seen = 0;
                let found = in_windows(&words, 2, &mut |words| sums(most, &mut seen, words)).unwrap();
                assert_eq!(found, whole, "{n} words, at most {most}");
                assert!(seen <= most);
            }
        }
        let words = [1; 100];
        let error = in_windows(&words, 5, &mut |words| sums(8, &mut 0, words)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Memory);
        // Without an overlap, the tags at the ends of the windows are wrong.
        let windowed = in_windows(&words, 0, &mut |words| sums(8, &mut 0, words)).unwrap();
        assert!(windowed.iter().filter(|&&sum| sum == 2).count() > 2 && windowed.len() == 100);
    }
}
