//! The texts of a request: one or many, pairs, or rows of numbers; their limits, and their cut on request.

use std::fmt;
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use unpadded_recipes::Model;
use unpadded_text::QuestionKind;
use utoipa::ToSchema;

use super::body::off_thread;
use super::failure::Failure;
use super::models::ModelVersion;
use super::state::State;

/// The end of a text that is cut if the text is longer than the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Truncate {
    /// The first tokens are cut.
    Left,
    /// The last tokens are cut.
    Right,
}

/// A text, or the texts of a record: their columns are joined by tabs, as in the lines that the command answers.
#[derive(Debug, Clone)]
pub(crate) struct Text(pub(crate) String);

/// A text, or a list of texts.
#[derive(Debug, Clone)]
pub(crate) struct Texts(pub(crate) Vec<Text>);

/// A row of numbers: all of them, or an object with the index and the value of those that are not zero.
#[derive(Debug, Clone)]
pub(crate) struct Row(Vec<(Option<u64>, f64)>);

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list with the texts of one record")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text(text.to_owned()))
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Text, E> {
        Ok(Text(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut cells: A) -> Result<Text, A::Error> {
        let mut joined: Option<String> = None;
        while let Some(cell) = cells.next_element::<String>()? {
            // A tab within a text would begin another column.
            let cell = cell.replace('\t', " ");
            joined = Some(joined.map_or(cell.clone(), |joined| joined + "\t" + &cell));
        }
        Ok(Text(joined.unwrap_or_default()))
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

struct TextsVisitor;

impl<'de> Visitor<'de> for TextsVisitor {
    type Value = Texts;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list of texts")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Texts, E> {
        Ok(Texts(vec![Text(text.to_owned())]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Texts, A::Error> {
        let mut texts = Vec::new();
        while let Some(text) = all.next_element()? {
            texts.push(text);
        }
        Ok(Texts(texts))
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextsVisitor)
    }
}

struct RowVisitor;

impl<'de> Visitor<'de> for RowVisitor {
    type Value = Row;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of numbers, or an object from index to number")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut all: A) -> Result<Row, A::Error> {
        let mut row = Vec::new();
        while let Some(value) = all.next_element::<f64>()? {
            row.push((None, value));
        }
        Ok(Row(row))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut all: A) -> Result<Row, A::Error> {
        let mut row = Vec::new();
        while let Some((index, value)) = all.next_entry::<String, f64>()? {
            let index =
                index.parse().map_err(|_| A::Error::custom(format!("expected an index, got `{index}`")))?;
            row.push((Some(index), value));
        }
        row.sort_by_key(|(index, _)| *index);
        Ok(Row(row))
    }
}

impl<'de> Deserialize<'de> for Row {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RowVisitor)
    }
}

impl Row {
    /// Returns the row as a line of a LIBSVM file.
    fn line(&self, first: u64) -> String {
        let entry = |(at, (index, value)): (usize, &(Option<u64>, f64))| {
            let index = index.unwrap_or(first + at as u64);
            (*value != 0.0).then(|| format!("{index}:{value}"))
        };
        let entries: Vec<String> = self.0.iter().enumerate().filter_map(entry).collect();
        // A row of zeros only has no entries; a line without entries would be an empty text.
        if entries.is_empty() { format!("{first}:0") } else { entries.join(" ") }
    }
}

/// The texts of a request within the limits of the server.
pub(crate) struct Input {
    pub(crate) texts: Arc<[String]>,
    /// The number of tokens of all texts, after the cut.
    pub(crate) tokens: usize,
    /// The number of tokens that were cut from each text.
    pub(crate) truncated: Vec<usize>,
}

impl Input {
    /// Checks the texts of a request against the limits, and cuts those that are too long if the request asks for it.
    pub(crate) async fn checked(
        state: &State,
        model: &Arc<ModelVersion>,
        texts: Vec<String>,
        truncate: Option<Truncate>,
    ) -> Result<Self, Failure> {
        let settings = &state.settings;
        if texts.len() > settings.texts {
            let (most, got) = (settings.texts, texts.len());
            return Err(Failure::too_large(format!("texts: expected at most {most} a request, got {got}")));
        }
        let bytes = texts.iter().map(String::len).sum();
        let (model, most) = (model.clone(), settings.text_tokens);
        let input = off_thread(bytes, move || fit(&model.model, texts, most, truncate)).await??;
        state.metrics.truncated.inc_by(input.truncated.iter().filter(|&&count| count > 0).count() as u64);
        Ok(input)
    }
}

fn fit(
    model: &Model,
    mut texts: Vec<String>,
    most: usize,
    truncate: Option<Truncate>,
) -> Result<Input, Failure> {
    let (mut tokens, mut truncated) = (0_usize, vec![0; texts.len()]);
    let pairs = model.trained_by().data.pair.is_some() || model.trained_by().data.text.len() > 1;
    for (at, (text, truncated)) in texts.iter_mut().zip(&mut truncated).enumerate() {
        let mut length = model.length(text);
        if length > most {
            let refused = |why: &str| {
                Failure::too_large(format!(
                    "`texts[{at}]`: expected at most {most} tokens, got {length}{why}"
                ))
            };
            let Some(side) = truncate else {
                return Err(refused("; `\"truncate\": \"right\"` cuts the end"));
            };
            if pairs || model.asking() == Some(QuestionKind::Row) {
                return Err(refused("; only single texts are cut"));
            }
            *text = model.truncate(text, most, side == Truncate::Left).to_owned();
            let kept = model.length(text);
            (*truncated, length) = (length - kept, kept);
        }
        tokens = tokens.saturating_add(length);
    }
    Ok(Input { texts: texts.into(), tokens, truncated })
}

/// Returns the texts or the rows of a request as lines that the model reads; exactly one of the fields must be given.
pub(crate) fn lines(
    model: &Model,
    text: Option<Text>,
    texts: Option<Texts>,
    rows: Option<Vec<Row>>,
) -> Result<Vec<String>, Failure> {
    let takes_rows = model.asking() == Some(QuestionKind::Row);
    let mut found: Vec<String> = match (text, texts, rows) {
        (Some(Text(text)), None, None) => vec![text],
        (None, Some(Texts(texts)), None) => texts.into_iter().map(|Text(text)| text).collect(),
        (None, None, Some(rows)) if takes_rows => {
            let first =
                model.predictor().note("first index").and_then(|first| first.parse().ok()).unwrap_or(1);
            rows.iter().map(|row| row.line(first)).collect()
        }
        (None, None, Some(_)) => {
            let got = "got `rows` for a model that reads texts";
            return Err(Failure::invalid(format!("expected `text` or `texts`, {got}")));
        }
        (None, None, None) => {
            let expected = if takes_rows { "`rows`, a list of rows of numbers" } else { "`text` or `texts`" };
            return Err(Failure::invalid(format!("expected {expected}, got neither")));
        }
        _ => return Err(Failure::invalid("expected one of `text`, `texts` and `rows`, got several")),
    };
    let data = &model.trained_by().data;
    let columns = data.text.len().max(1) + usize::from(data.pair.is_some());
    if columns > 1 && !takes_rows {
        let wrong =
            found.iter().position(|text| text.split('\t').count() != columns && !text.trim().is_empty());
        if let Some(at) = wrong {
            let got = found[at].split('\t').count();
            return Err(Failure::invalid(format!(
                "`texts[{at}]`: expected a list of {columns} texts, which the model reads together, got {got}"
            )));
        }
    }
    if model.asking() == Some(QuestionKind::Words) {
        // A tagger splits texts at spaces; a space for a line break keeps all offsets.
        found.iter_mut().for_each(|text| *text = text.replace(['\n', '\r'], " "));
    }
    Ok(found)
}
