//! What a classifier learns to predict for each text: a label, several labels, or a number.

use std::collections::BTreeSet;

use unpadded::data::{Field, FileLine, Vocabulary};
use unpadded::predict::Predictor;
use unpadded::{Error, ErrorKind, Result};
use unpadded_text::{LabelNotation, LabelledText, ReadOptions, Record as _};

use crate::config::{Config, nearest};
use crate::labels::LABELS;
use crate::portions::{ClassCounts, LABEL};
use crate::prepare::RecordCounts;
use crate::recipe::Preview;
use crate::sections::Target;
use crate::training::{READ_AS, Truth, too_few};

/// The character after each of several labels of a text.
const LISTED: char = '\u{1f}';
/// More distinct numbers than this, and than one per two texts, are no labels. An error lists at most this many labels, too.
const FEW: usize = 20;

/// Returns the distinct labels of a text, in the order of the file, without white space around a label.
pub(super) fn labels_in(cell: &str) -> Vec<&str> {
    let mut found: Vec<&str> = Vec::new();
    for label in cell.split(LISTED).map(str::trim) {
        if !label.is_empty() && !found.contains(&label) {
            found.push(label);
        }
    }
    found
}

/// Returns the separator between several labels in plain answers and cells: of the config or, by default, of the files.
pub(super) fn joint(config: &Config, read_as: &ReadOptions) -> String {
    let set = config.data.label_separator.as_deref().map(LabelNotation::parse);
    set.as_ref().or(read_as.notation()).map_or(",", LabelNotation::joint).to_owned()
}

pub(super) fn number(cell: &str) -> Result<f32> {
    let number = cell.trim().parse::<f32>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| {
        let is_large = cell.contains(|c: char| c.is_ascii_digit()) && cell.trim().parse::<f32>().is_ok();
        let expected = if is_large { "a number of at most 3.4e38" } else { "a number, as 2.5" };
        let error = Error::of(ErrorKind::Format, "number of a text", expected, format!("`{cell}`"));
        if is_large {
            return error.noted("divide all numbers by the same number");
        }
        if cell.contains(',') {
            return error.noted("write `1,234` as `1234`, or as `1.234` if the comma is a decimal comma");
        }
        error.noted("`data.target` is `number`; `data.label` sets the column of the numbers")
    })
}

#[derive(Debug, Clone)]
pub(super) enum Objective {
    Label(Vocabulary),
    Labels(Vocabulary, String),
    Number,
}

impl Objective {
    pub(super) fn of(predictor: &Predictor, config: &Config) -> Result<Self> {
        Ok(match config.data.target {
            Target::Label => Self::Label(predictor.vocabulary(LABELS)?.clone()),
            Target::Labels => {
                let read_as = ReadOptions::new().or_note(predictor.note(READ_AS).unwrap_or("{}"))?;
                Self::Labels(predictor.vocabulary(LABELS)?.clone(), joint(config, &read_as))
            }
            Target::Number => Self::Number,
        })
    }

    pub(super) fn labels(&self) -> Option<&Vocabulary> {
        match self {
            Self::Label(labels) | Self::Labels(labels, _) => Some(labels),
            Self::Number => None,
        }
    }

    pub(super) fn several(&self) -> Option<&Vocabulary> {
        match self {
            Self::Labels(labels, _) => Some(labels),
            Self::Label(_) | Self::Number => None,
        }
    }

    /// Converts a label cell to a field: the id of the label, a sparse row with 1 for each label, or a number.
    pub(super) fn field(&self, label: &str) -> Result<Field> {
        match self {
            Self::Label(labels) => Ok(labels.lookup(label)?.into()),
            Self::Labels(labels, _) => {
                let ids = labels_in(label).into_iter().map(|label| labels.lookup(label));
                let indices = ids.collect::<Result<Vec<_>>>()?;
                Ok(Field::Sparse { columns: labels.len(), values: vec![1.0; indices.len()], indices })
            }
            Self::Number => Ok(number(label)?.into()),
        }
    }

    pub(super) fn truth(target: Target, label: &str) -> Truth {
        match target {
            Target::Label => Truth::Label(label.to_owned()),
            Target::Labels => Truth::Labels(labels_in(label).into_iter().map(str::to_owned).collect()),
            Target::Number => number(label).map_or(Truth::Open, |number| Truth::Number(number.into())),
        }
    }
}

/// What a pass over the texts finds about their labels, beside the counts of the labels.
pub(super) struct Labels {
    target: Target,
    several: bool,
    /// The count of the numbers in training texts, their mean, and the sum of squared differences from the mean.
    moments: (f64, f64, f64),
    held: [f32; 2],
    /// The first error about a label cell that is no number, with the location of the text if the location is known.
    wrong: Option<(Error, Option<FileLine>)>,
}

impl Labels {
    pub(super) fn new(config: &Config) -> Self {
        let (moments, held) = ((0.0, 0.0, 0.0), [f32::INFINITY, f32::NEG_INFINITY]);
        Self { target: config.data.target, several: false, moments, held, wrong: None }
    }

    pub(super) fn add(&mut self, text: &LabelledText, held: bool) {
        match self.target {
            Target::Label => {}
            Target::Labels => self.several |= labels_in(&text.label).len() > 1,
            Target::Number => match number(&text.label) {
                Ok(number) if held => self.held = [self.held[0].min(number), self.held[1].max(number)],
                Ok(number) => {
                    // Welford's algorithm updates the mean and the sum of squared differences by one number.
                    let (n, mean, squares) = &mut self.moments;
                    let difference = f64::from(number) - *mean;
                    *n += 1.0;
                    *mean += difference / *n;
                    *squares += difference * (f64::from(number) - *mean);
                }
                Err(error) => {
                    self.wrong.get_or_insert_with(|| (error, text.file_line()));
                }
            },
        }
    }

    pub(super) fn check(&self, counts: &RecordCounts, name: &str) -> Result<()> {
        if let Some((error, location)) = &self.wrong {
            let error = error.clone();
            return Err(match location {
                Some(location) => error.within(&location.to_string()),
                None => error.noted(format!("in `{name}`")),
            });
        }
        let (least, expected) = match self.target {
            Target::Label => (2, "at least two"),
            Target::Labels => (1, "at least one"),
            Target::Number if self.deviation() > 0.0 => return Ok(()),
            // Another error says that all texts would be held out.
            Target::Number if counts.lengths.is_empty() => return Ok(()),
            Target::Number => {
                let (what, only) = (format!("numbers in `{name}`"), format!("only {}", self.moments.1));
                let [low, high] = self.held.map(f64::from);
                if counts.dev == 0 || (low, high) == (self.moments.1, self.moments.1) {
                    return Err(Error::of(ErrorKind::Format, what, "different numbers", only));
                }
                let (expected, held) = ("different numbers in the texts that are not held out", counts.dev);
                let got = format!("{only}: the texts are too few to hold out {held} of them");
                let error = Error::of(ErrorKind::Format, what, expected, got);
                return Err(too_few(error).noted("add texts, or set `data.dev` to a file"));
            }
        };
        let classes = &counts.facts.classes;
        if least == 2 {
            are_no_numbers(classes, counts.lengths.len() + counts.dev, name)?;
        }
        if classes.names().count() < least {
            let got = classes.names().next().map_or("none".to_owned(), |label| format!("only `{label}`"));
            return Err(Error::of(ErrorKind::Format, format!("labels in `{name}`"), expected, got));
        }
        Ok(())
    }

    fn deviation(&self) -> f64 {
        let (n, _, squares) = self.moments;
        (squares / n.max(1.0)).sqrt()
    }

    /// The vocabulary also has the labels that only the held-out texts have, so that their loss is defined.
    pub(super) fn end(&self, counts: &RecordCounts, joint: String) -> Result<(Objective, Weights)> {
        let labels = || counts.facts.classes.vocabulary(LABEL);
        let objective = match self.target {
            Target::Label => Objective::Label(labels()?),
            Target::Labels => Objective::Labels(labels()?, joint),
            Target::Number => Objective::Number,
        };
        let (texts, mean) = (counts.lengths.len() as f64, self.moments.1);
        Ok((objective, Weights { texts, mean, deviation: self.deviation() }))
    }

    /// Returns a hint if single labels look like several or like numbers, or several like single ones. `joint` joins answers.
    pub(super) fn hint(&self, classes: &ClassCounts, joint: &str) -> Option<String> {
        let Self { target, several, .. } = self;
        let (all, keys) = (classes.names().count(), || classes.names());
        let having = |separator: &str| keys().filter(|label| label.contains(separator)).count();
        match target {
            Target::Labels if having(joint) > 0 => Some(format!(
                "warning: {} labels have `{joint}` in them, which separates labels in plain answers and cells: data.label_separator sets \
                 another separator",
                having(joint)
            )),
            Target::Labels if !several && keys().all(|label| ["0", "1"].contains(&label)) => Some(
                "warning: the labels are `0` and `1`: for a column of 0 and 1 for each label, data.label lists the columns".to_owned(),
            ),
            Target::Labels if !several => {
                let parts = |label| str::split(label, |c: char| !c.is_alphanumeric()).filter(|part| !part.is_empty());
                let different = keys().flat_map(parts).collect::<BTreeSet<_>>().len();
                (different < keys().flat_map(parts).count()).then(|| {
                    format!(
                        "warning: no text has two labels, such as {}: data.label_separator sets how the labels of a text are separated",
                        Preview::shortened(keys().max_by_key(|label| label.len()).unwrap_or_default())
                    )
                })
            }
            Target::Labels => ["|", ";", "['", "[\""].into_iter().find(|mark| having(mark) > 0).map(|mark| {
                format!(
                    "warning: {} labels have `{mark}` in them: data.label_separator sets how the labels of a text are separated",
                    having(mark)
                )
            }),
            Target::Label if LabelNotation::of_numbers(keys()).is_some() => {
                Some("labels are numbers with decimal commas: data.target=number learns numbers".to_owned())
            }
            Target::Label => {
                // Single labels look like several if cut ones are fewer than the distinct cells or, at rare marks, recur.
                let cuts = |mark: &&str| {
                    let is_list = mark.starts_with('[');
                    let marks: &[char] =
                        if is_list { &['[', ']', ',', '\'', '"'] } else { &[',', ';', '|', '\n'] };
                    let parts = |label| str::split(label, marks).map(str::trim).filter(|part| !part.is_empty());
                    let (count, different) =
                        (keys().flat_map(parts).count(), keys().flat_map(parts).collect::<BTreeSet<_>>().len());
                    having(mark) > 0 && (different < all || (*mark != "," && different < count) || is_list)
                };
                let mark = ["['", "[\"", ",", ";", "|", "\n"].into_iter().find(cuts)?;
                let shown = mark.replace('\n', "\\n");
                Some(format!(
                    "{} of {all} labels have `{shown}` in them: data.target=labels reads several labels per text",
                    having(mark)
                ))
            }
            Target::Number => None,
        }
    }
}

/// Returns an error if the labels are many distinct numbers, since numbers need a regression.
fn are_no_numbers(classes: &ClassCounts, texts: usize, name: &str) -> Result<()> {
    let all = classes.names().count();
    let commas = || LabelNotation::of_numbers(classes.names()).is_some();
    let many = all > FEW && 2 * all > texts;
    if !many || !(classes.names().all(|label| number(label).is_ok()) || commas()) {
        return Ok(());
    }
    let got = format!("{all} different numbers in {texts} texts");
    let error = Error::of(ErrorKind::Format, format!("labels of `{name}`"), "labels that recur", got);
    Err(error
        .noted("data.target=number learns numbers (regression); data.label sets the column of the labels"))
}

pub(super) struct Weights {
    texts: f64,
    pub(super) mean: f64,
    pub(super) deviation: f64,
}

impl Weights {
    /// Returns one weight per label for the loss; `None` for a regression, or if `training.class_weights` is not set.
    pub(super) fn of_labels(&self, config: &Config, known: &Objective) -> Result<Option<Vec<f32>>> {
        let given = &config.training.class_weights;
        let (Some(labels), false) = (known.labels(), given.is_empty()) else { return Ok(None) };
        if let [one] = &given[..]
            && one == "balanced"
        {
            let several = known.several().is_some();
            let weight = |id: i64| match labels.count(id) as f64 {
                // For each label, the texts with the label and the texts without it get equal total weight.
                count if several => (self.texts - count).max(1.0) / count.max(1.0),
                count => self.texts / (labels.len() as f64 * count.max(1.0)),
            };
            return Ok(Some((0..labels.len() as i64).map(|id| weight(id) as f32).collect()));
        }
        const EXPECTED: &str = "`balanced`, or labels with their weights as [\"label=2.5\", \"other=0.5\"]";
        let (mut weights, mut seen) = (vec![1.0; labels.len()], Vec::new());
        for one in given {
            let wrong = |expected: String| Error::new("training.class_weights", expected, format!("`{one}`"));
            let (label, weight) = one.rsplit_once('=').ok_or_else(|| wrong(EXPECTED.to_owned()))?;
            let weight =
                weight.trim().parse::<f32>().ok().filter(|weight| *weight >= 0.0 && weight.is_finite());
            let weight = weight.ok_or_else(|| wrong("a weight from 0 on behind `=`".to_owned()))?;
            let id = labels.id(label.trim()).and_then(|id| weights.get_mut(id as usize));
            *id.ok_or_else(|| {
                let near = nearest(label.trim(), labels.tokens());
                let names: Vec<String> =
                    labels.tokens().take(FEW).map(|label| format!("`{label}`")).collect();
                wrong(match near {
                    Some(near) => format!("a label, perhaps `{near}`"),
                    None => format!("{EXPECTED}; labels: {}", names.join(", ")),
                })
            })? = weight;
            if seen.contains(&label.trim()) {
                return Err(wrong("each label once".to_owned()));
            }
            seen.push(label.trim());
        }
        if weights.iter().all(|weight| *weight == 0.0) {
            return Err(Error::new("training.class_weights", "a weight above 0", "0 for each label"));
        }
        Ok(Some(weights))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Classifier;
    use super::*;
    use crate::portions::Portion;
    use crate::sections::Task;

    fn counted(config: &Config, labels: &[&str]) -> (Labels, RecordCounts) {
        let (mut counted, mut counts) = (Labels::new(config), RecordCounts::default());
        for label in labels {
            let text = LabelledText::new("text", *label);
            counted.add(&text, false);
            counts.add([""].iter(), Portion::Train);
            counts.facts.add::<Classifier>(config, &text, Portion::Train);
        }
        (counted, counts)
    }

    fn ended(config: &Config, labels: &[&str]) -> Result<(Objective, Weights)> {
        let (counted, counts) = counted(config, labels);
        counted.check(&counts, "f.csv")?;
        counted.end(&counts, ",".into())
    }

    fn hinted(config: &Config, labels: &[&str]) -> Option<String> {
        let (counted, counts) = counted(config, labels);
        counted.hint(&counts.facts.classes, ",")
    }

    #[test]
    fn cells_and_lists_have_several_labels() {
        assert_eq!(labels_in("a,b\u{1f}c\u{1f}c\u{1f}"), ["a,b", "c"]);
        assert!(labels_in("\u{1f}").is_empty() && labels_in(" ").is_empty());
    }

    #[test]
    fn numbers_are_not_taken_for_labels() {
        let config = Config::new(Task::Classify);
        let numbers: Vec<String> = (0..40).map(|i| format!("{}.5", i % 30)).collect();
        let numbers: Vec<&str> = numbers.iter().map(String::as_str).collect();
        let message = ended(&config, &numbers).err().unwrap().to_string();
        assert!(message.contains("30 different numbers in 40 texts; data.target=number"), "{message}");
        let stars: Vec<&str> = numbers.iter().map(|number| &number[..1]).collect();
        assert!(ended(&config, &stars).is_ok());
    }

    #[test]
    fn several_labels_in_cells_are_hinted_at() {
        let config = Config::new(Task::Classify);
        let hint = hinted(&config, &["a,b", "b,c", "a,c", "a,b,c"]).unwrap();
        assert!(hint.starts_with("4 of 4 labels have `,` in them: data.target=labels"), "{hint}");
        assert_eq!(hinted(&config, &["New York, NY", "Paris", "Rome"]), None);
        for labels in [["a|b", "b"], ["a;b", "b;c"], ["['a', 'b']", "['b']"]] {
            let hint = hinted(&config, &labels).unwrap();
            assert!(hint.ends_with("data.target=labels reads several labels per text"), "{hint}");
        }
        let hint = hinted(&config, &["2,5", "3", "0,25"]).unwrap();
        assert!(hint.contains("data.target=number") && !hint.contains("labels reads"), "{hint}");
        let mut several = Config::new(Task::Classify);
        several.data.target = Target::Labels;
        let hint = hinted(&several, &["a/b", "b"]).unwrap();
        assert!(hint.contains("no text has two labels, such as \"a/b\": data.label_separator"), "{hint}");
        assert_eq!(hinted(&several, &["a\u{1f}b\u{1f}", "b"]), None);
    }

    #[test]
    fn weights_are_balanced_or_by_name() -> Result<()> {
        let mut config = Config::new(Task::Classify);
        let weights = |config: &Config| {
            let (objective, weights) = ended(config, &["a", "a", "a", "b=c"])?;
            weights.of_labels(config, &objective)
        };
        assert_eq!(weights(&config)?, None);
        config.training.class_weights = vec!["balanced".into()];
        assert_eq!(weights(&config)?, Some(vec![4.0 / 6.0, 2.0]));
        config.training.class_weights = vec!["b=c=5".into()];
        assert_eq!(weights(&config)?, Some(vec![1.0, 5.0]));
        config.training.class_weights = vec!["other=5".into()];
        let message = weights(&config).unwrap_err().to_string();
        assert_eq!(
            message,
            "training.class_weights: expected `balanced`, or labels with their weights as [\"label=2.5\", \"other=0.5\"]; labels: `a`, `b=c`, got `other=5`"
        );
        config.data.target = Target::Labels;
        config.training.class_weights = vec!["balanced".into()];
        let (objective, weights_by_name) = ended(&config, &["a\u{1f}b\u{1f}", "a", "", "a"])?;
        assert_eq!(weights_by_name.of_labels(&config, &objective)?, Some(vec![1.0 / 3.0, 3.0]));
        Ok(())
    }

    #[test]
    fn numbers_have_a_mean_and_a_deviation() -> Result<()> {
        let mut config = Config::new(Task::Classify);
        config.data.target = Target::Number;
        let (_, labels) = ended(&config, &["1", "2", " 3 "])?;
        assert!(
            (labels.mean - 2.0).abs() < 1e-12 && (labels.deviation - (2.0f64 / 3.0).sqrt()).abs() < 1e-12
        );
        let message = ended(&config, &["1", "two"]).err().unwrap().to_string();
        assert!(message.contains("expected a number, as 2.5, got `two`"), "{message}");
        assert!(ended(&config, &["2", "2"]).is_err());
        let (mut labels, mut counts) = counted(&config, &["0.5"]);
        labels.add(&LabelledText::new("text", "1.5"), true);
        counts.add([""].iter(), Portion::HeldOut);
        let message = labels.check(&counts, "f.csv").err().unwrap().to_string();
        assert!(message.contains("got only 0.5: the texts are too few to hold out 1 of them"), "{message}");
        let large = LabelledText::new("text", "1e40").placed(&"f.csv".into(), 3);
        let mut labels = Labels::new(&config);
        labels.add(&large, false);
        let message = labels.check(&RecordCounts::default(), "f.csv").err().unwrap().to_string();
        let expected = "f.csv:3: number of a text: expected a number of at most 3.4e38, got `1e40`; divide all numbers by the same \
                        number";
        assert_eq!(message, expected);
        Ok(())
    }
}
