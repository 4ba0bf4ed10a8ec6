//! The texts of a request: one or many, pairs, or rows of numbers; their limits, and their cut on request.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::Arc;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use unpadded_recipes::Model;
use unpadded_text::QuestionKind;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ArrayBuilder, OneOfBuilder, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::failure::Failure;

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
pub(crate) struct Text {
    pub(crate) text: String,
    /// The number of texts that were joined.
    columns: usize,
}

/// A text, or a list of texts.
#[derive(Debug, Clone)]
pub(crate) struct Texts(pub(crate) Vec<Text>);

/// A row of numbers: all of them, or an object with the index and the value of those that are not zero.
#[derive(Debug, Clone)]
pub(crate) struct Row(Vec<(Option<u64>, f64)>);

/// Returns the schema of a value of one of two kinds.
fn one_of(one: RefOr<Schema>, other: RefOr<Schema>) -> RefOr<Schema> {
    OneOfBuilder::new().item(one).item(other).into()
}

impl PartialSchema for Text {
    fn schema() -> RefOr<Schema> {
        one_of(String::schema(), Vec::<String>::schema())
    }
}

impl PartialSchema for Texts {
    fn schema() -> RefOr<Schema> {
        one_of(String::schema(), ArrayBuilder::new().items(Text::schema()).into())
    }
}

impl PartialSchema for Row {
    fn schema() -> RefOr<Schema> {
        one_of(Vec::<f64>::schema(), HashMap::<String, f64>::schema())
    }
}

impl ToSchema for Text {}
impl ToSchema for Texts {}
impl ToSchema for Row {}

struct TextVisitor;

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text, or a list with the texts of one record")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Text, E> {
        Ok(Text { text: text.to_owned(), columns: 1 })
    }

    fn visit_string<E: Error>(self, text: String) -> Result<Text, E> {
        Ok(Text { text, columns: 1 })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut cells: A) -> Result<Text, A::Error> {
        let (mut text, mut columns) = (String::new(), 0);
        while let Some(cell) = cells.next_element::<String>()? {
            if columns > 0 {
                text.push('\t');
            }
            // A tab within a text would begin another column.
            text.push_str(&cell.replace('\t', " "));
            columns += 1;
        }
        Ok(Text { text, columns })
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
        Ok(Texts(vec![Text { text: text.to_owned(), columns: 1 }]))
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
    /// Returns the row with this number as a line of a LIBSVM file, whose indices count from `first`.
    fn line(&self, number: usize, first: u64) -> Result<String, Failure> {
        let mut line = String::new();
        for (at, (index, value)) in self.0.iter().enumerate().filter(|(_, (_, value))| *value != 0.0) {
            let index = index.unwrap_or(first + at as u64);
            if !(*value as f32).is_finite() || !(first..=i64::MAX as u64).contains(&index) {
                return Err(Failure::invalid(format!(
                    "`rows[{number}]`: expected indices from {first} and values that are finite in f32, got {index}: {value}"
                )));
            }
            // Writing to a `String` cannot fail.
            let _ = write!(line, "{index}:{value} ");
        }
        // A row of zeros only has no entries; a line without entries would be an empty text.
        Ok(if line.is_empty() { format!("{first}:0") } else { line })
    }
}

/// The texts of a request within the limits of the server.
pub(crate) struct Input {
    pub(crate) texts: Arc<[String]>,
    /// The number of tokens of all texts, after the cut.
    pub(crate) tokens: usize,
    /// The number of tokens that were cut from each text.
    pub(crate) truncated: Vec<usize>,
    /// The number of code points that were cut from the beginning of each text.
    pub(crate) offsets: Vec<usize>,
}

impl Input {
    /// Checks texts against a limit in tokens, and cuts those that are too long if `truncate` says where.
    pub(crate) fn new(
        model: &Model,
        mut texts: Vec<String>,
        most: usize,
        truncate: Option<Truncate>,
    ) -> Result<Self, Failure> {
        let (mut tokens, mut truncated, mut offsets) = (0_usize, vec![0; texts.len()], vec![0; texts.len()]);
        for (at, text) in texts.iter_mut().enumerate() {
            let mut length = model.length(text);
            if length > most {
                let is_row = model.asking() == Some(QuestionKind::Row);
                let list = if is_row { "rows" } else { "texts" };
                let refused = |why: &str| {
                    let expected = format!("expected at most {most} tokens, got {length}");
                    Failure::too_large(format!("`{list}[{at}]`: {expected}{why}"))
                };
                let side = match truncate {
                    _ if is_row || model.columns() > 1 => return Err(refused("")),
                    None => return Err(refused("; `\"truncate\": \"right\"` cuts the end")),
                    Some(side) => side,
                };
                let part = model.truncate(text, most, side == Truncate::Left).to_owned();
                if side == Truncate::Left {
                    offsets[at] = text[..text.len() - part.len()].chars().count();
                }
                *text = part;
                let kept = model.length(text);
                (truncated[at], length) = (length - kept, kept);
            }
            tokens = tokens.saturating_add(length);
        }
        Ok(Self { texts: texts.into(), tokens, truncated, offsets })
    }

    /// Returns about the size of the answers in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.tokens.saturating_mul(8)
    }
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
        (Some(text), None, None) => checked_columns(model, vec![text])?,
        (None, Some(Texts(texts)), None) => checked_columns(model, texts)?,
        (None, None, Some(rows)) if takes_rows => {
            let first =
                model.predictor().note("first index").and_then(|first| first.parse().ok()).unwrap_or(1);
            rows.iter().enumerate().map(|(number, row)| row.line(number, first)).collect::<Result<_, _>>()?
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
    if model.asking() == Some(QuestionKind::Words) {
        // A tagger splits texts at spaces; a space for a line break keeps all offsets.
        found.iter_mut().for_each(|text| *text = text.replace(['\n', '\r'], " "));
    }
    Ok(found)
}

/// Checks that each record has the number of texts that the model reads together; also takes a text with tabs in place of a list.
fn checked_columns(model: &Model, texts: Vec<Text>) -> Result<Vec<String>, Failure> {
    let columns = model.columns();
    for (at, Text { text, columns: given }) in texts.iter().enumerate() {
        let given = if *given == 1 && columns > 1 { text.split('\t').count() } else { *given };
        if given != columns && (given == 0 || !text.trim().is_empty()) {
            let expected = match columns {
                1 => "one text".to_owned(),
                _ => format!("a list of {columns} texts, which the model reads together"),
            };
            return Err(Failure::invalid(format!("`texts[{at}]`: expected {expected}, got {given}")));
        }
    }
    Ok(texts.into_iter().map(|text| text.text).collect())
}
