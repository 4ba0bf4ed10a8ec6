//! Parsing of the scores of a test set from the file `test.json`.

use serde_json::Value;

use super::page::{ClassRow, ClassTable, Confusion, Errors, Example, LengthErrors, Score, TestScores};
use crate::outcome::Outcome;
use crate::scores;

fn field<'a>(object: &'a Value, name: &str) -> Outcome<&'a Value> {
    object.get(name).ok_or_else(|| format!("expected a field `{name}`, got none").into())
}

fn parsed<T>(object: &Value, name: &str, owner: &str, parse: impl Fn(&Value) -> Option<T>) -> Outcome<T> {
    let found = field(object, name)?;
    parse(found).ok_or_else(|| format!("field `{name}`: expected {owner}, got {found}").into())
}

fn text(object: &Value, name: &str) -> Outcome<String> {
    parsed(object, name, "a string", |found| found.as_str().map(str::to_owned))
}

/// Parses a number; null becomes NaN, which JSON cannot represent.
fn number(object: &Value, name: &str) -> Outcome<f64> {
    parsed(object, name, "a number", |found| if found.is_null() { Some(f64::NAN) } else { found.as_f64() })
}

fn whole(object: &Value, name: &str) -> Outcome<u64> {
    parsed(object, name, "a whole number", Value::as_u64)
}

/// Returns the entries of a list field; empty if the field is missing, as in files of older versions.
fn list<'a>(object: &'a Value, name: &str) -> &'a [Value] {
    object.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn entries<'a>(object: &'a Value, name: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    object.get(name).and_then(Value::as_object).into_iter().flatten()
}

fn texts(object: &Value, name: &str) -> Vec<String> {
    list(object, name).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

impl TestScores {
    /// Parses the scores of a test set from an object that `scores::object` wrote.
    pub(crate) fn of(object: &Value) -> Outcome<Self> {
        let shares = texts(object, "shares");
        let all = field(object, "scores")?;
        let figures = entries(object, "scores").map(|(name, _)| {
            let interval = match object.get("intervals").map_or(&[][..], |all| list(all, name)) {
                [low, high] => low.as_f64().zip(high.as_f64()).map(|(low, high)| [low, high]),
                _ => None,
            };
            let (value, unit) = (number(all, name)?, scores::unit(shares.contains(name)));
            Ok(Score { name: name.clone(), value, unit, interval })
        });
        let counts =
            entries(object, "counts").filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
        let tables = entries(object, "tables").map(|(what, rows)| {
            let rows = rows.as_array().into_iter().flatten();
            let mut rows = rows.map(class).collect::<Outcome<Vec<_>>>()?;
            rows.sort_by_key(|row| std::cmp::Reverse(row.support));
            Ok(ClassTable { of: what.clone(), rows })
        });
        let confusions = entries(object, "confusions").map(|(what, cells)| {
            let mut confusion = Confusion::new(what);
            for cell in cells.as_array().into_iter().flatten() {
                confusion.add(&text(cell, "truth")?, &text(cell, "found")?, whole(cell, "count")?);
            }
            Ok(confusion)
        });
        let errors = object.get("lengths").filter(|lengths| !lengths.is_null()).map(Errors::of);
        let example = |one: &Value| {
            Ok(Example::Pair {
                source: text(one, "source")?,
                target: text(one, "found")?,
                truths: texts(one, "references"),
                exact: field(one, "exact")?.as_bool().unwrap_or_default(),
                chrf: number(one, "chrf")?,
                attention: None,
            })
        };
        let mut notes = texts(object, "signatures");
        notes.extend(texts(object, "read_as"));
        Ok(Self {
            dataset: text(object, "dataset")?,
            metric: object.get("metric").and_then(Value::as_str).unwrap_or_default().to_owned(),
            figures: figures.collect::<Outcome<_>>()?,
            counts: counts.collect(),
            tables: tables.collect::<Outcome<_>>()?,
            confusions: confusions.collect::<Outcome<_>>()?,
            errors: errors.transpose()?,
            examples: list(object, "examples").iter().map(example).collect::<Outcome<_>>()?,
            notes,
        })
    }
}

impl Errors {
    pub(crate) fn of(lengths: &Value) -> Outcome<Self> {
        let range = |range: &Value| {
            let size = |name| whole(range, name).map(|x| usize::try_from(x).unwrap_or(usize::MAX));
            let (from, to, texts) = (size("from")?, size("to")?, whole(range, "texts")?);
            Ok(LengthErrors { from, to, texts, value: number(range, "value")? })
        };
        let unit = scores::unit(field(lengths, "share")?.as_bool().unwrap_or_default());
        let ranges = list(lengths, "ranges").iter().map(range).collect::<Outcome<_>>()?;
        Ok(Self { of: text(lengths, "of")?, by: text(lengths, "by")?, unit, ranges })
    }
}

fn class(row: &Value) -> Outcome<ClassRow> {
    let scores = [number(row, "precision")?, number(row, "recall")?, number(row, "f1")?];
    Ok(ClassRow { name: text(row, "name")?, scores, support: whole(row, "support")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_read_and_what_is_wrong_is_named() {
        let text = r#"{"dataset": "t.tsv", "metric": "accuracy", "scores": {"loss": null, "accuracy": 0.75},
            "shares": ["accuracy"], "intervals": {"accuracy": [0.5, 1.0]}, "counts": {"texts": 4},
            "tables": {"label": [{"name": "a", "precision": 1.0, "recall": 0.5, "f1": 0.6, "support": 2}]},
            "confusions": {"label": [{"truth": "a", "found": "b", "count": 1}]},
            "lengths": {"of": "wrong texts", "by": "length in tokens", "share": true,
                "ranges": [{"from": 4, "to": 5, "texts": 4, "value": 0.25}]}}"#;
        let object: Value = serde_json::from_str(text).unwrap();
        let tested = TestScores::of(&object).unwrap();
        assert!(tested.get("loss").unwrap().value.is_nan());
        let accuracy = tested.get("accuracy").unwrap();
        assert_eq!((&*accuracy.shown(), &*accuracy.interval()), ("75.00 %", "50.00 to 100.00 %"));
        assert_eq!((tested.tables[0].rows[0].support, tested.confusions[0].labels.len()), (2, 2));
        assert_eq!(tested.errors.unwrap().ranges[0].texts, 4);
        for (old, new, field) in [
            ("\"f1\": 0.6", "\"f1\": \"x\"", "`f1`"),
            ("\"truth\"", "\"truht\"", "`truth`"),
            ("scores", "s", "`scores`"),
        ] {
            let object: Value = serde_json::from_str(&text.replacen(old, new, 1)).unwrap();
            let message = TestScores::of(&object).unwrap_err().to_string();
            assert!(message.contains(field) && message.contains("expected"), "{message}");
        }
    }
}
