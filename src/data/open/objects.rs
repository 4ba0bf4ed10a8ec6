//! Records whose fields have names: JSON, or the rows of a Parquet file.

use super::columns::{Wanted, missing};
use super::fields::{Object, Value, at, names};
use super::json;
use super::options::FileFormat;
#[cfg(feature = "parquet")]
use super::parquet;
use crate::data::TextFile;
use crate::data::lines::Reason;
use crate::data::records::Stream;
use crate::error::{Error, ErrorKind, Result};

/// An object that shows which fields there are, and of what kind: the first one of a file, or what the file says of them.
fn example(file: &TextFile, format: FileFormat) -> Result<Option<Object<'static>>> {
    match format {
        #[cfg(feature = "parquet")]
        FileFormat::Parquet => parquet::example(file).map(Some),
        _ => json::first(file),
    }
}

/// The names of the fields that are wanted.
pub(super) fn picked(file: &TextFile, format: FileFormat, wanted: &[Wanted<'_>]) -> Result<Vec<String>> {
    let Some(example) = example(file, format)? else {
        let what = format!("records of file `{}`", file.name());
        return Err(Error::of(ErrorKind::Format, what, "at least one", "none"));
    };
    let all = names(&example);
    let mut found: Vec<String> = Vec::new();
    for (place, one) in wanted.iter().enumerate() {
        // Words and their tags are lists, and nothing else is.
        let listed = ["tokens", "tags"].contains(&one.what);
        let fits = |value: &Value<'_>| {
            matches!(value, Value::List(_)) == listed && !matches!(value, Value::Object(_))
        };
        let free =
            |name: &&&str| example.get(name).is_some_and(fits) && !found.iter().any(|other| other == **name);
        let name = match one.given {
            Some(given) if at(&example, given).is_some() => given.to_owned(),
            Some(given) => {
                let what = format!("field `{given}` of file `{}`, the {}", file.name(), one.what);
                return Err(missing(what, given, &all));
            }
            // Of two elements the first is the text, the source or the words.
            None if example.is_list => {
                let fitting: Vec<_> = example.fields.iter().filter(|(_, value)| fits(value)).collect();
                match fitting.get(place) {
                    Some((name, _)) if fitting.len() == 2 || wanted.len() == fitting.len() => {
                        name.to_string()
                    }
                    _ => {
                        let what = format!("element of the {} in file `{}`", one.what, file.name());
                        let (expected, got) = ("a list of two", format!("one of {}", example.fields.len()));
                        let advice = format!("`{}` gives its number from 1 on", one.what);
                        return Err(Error::of(ErrorKind::Format, what, expected, got).noted(advice));
                    }
                }
            }
            None => match one.known.iter().find(free) {
                Some(name) => (*name).to_owned(),
                None => {
                    let what = format!("field of the {} in file `{}`", one.what, file.name());
                    let quote = |names: &[String]| format!("`{}`", names.join("`, `"));
                    let known: Vec<String> =
                        one.known.iter().take(4).map(|name| (*name).to_owned()).collect();
                    let expected = format!("one called {}", quote(&known));
                    return Err(Error::of(
                        ErrorKind::Format,
                        what,
                        expected,
                        format!("the fields {}", quote(&all)),
                    )
                    .noted(format!("`{}` names it; a dot leads into an object", one.what)));
                }
            },
        };
        found.push(name);
    }
    Ok(found)
}

/// Two names that were picked.
pub(super) fn two(names: Vec<String>) -> Result<[String; 2]> {
    <[String; 2]>::try_from(names).map_err(|_| Error::new("fields", "two", "others"))
}

/// Whether there is such a field, with a single value.
pub(super) fn has_single(file: &TextFile, format: FileFormat, name: &str) -> bool {
    let example = example(file, format).ok().flatten();
    example.is_some_and(|of| matches!(of.get(name), Some(Value::Text(_) | Value::Number(_))))
}

/// The records of the file, made of these fields.
pub(super) fn records<R: 'static>(
    file: &TextFile,
    format: FileFormat,
    fields: &[String],
    make: impl FnMut(&Object<'_>) -> Result<R, Reason> + Send + 'static,
) -> Result<Stream<R>> {
    match format {
        #[cfg(feature = "parquet")]
        FileFormat::Parquet => parquet::records(file, fields, make),
        _ => json::records(file, Some(fields.to_vec()), make),
    }
}
