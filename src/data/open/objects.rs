//! Records whose fields have names: lines of JSON, or the rows of a Parquet file.

use serde_json::Value;

use super::columns::{Wanted, missing};
use super::fields::{Object, at, names};
use super::json;
use super::options::FileFormat;
#[cfg(feature = "parquet")]
use super::parquet;
use crate::data::TextFile;
use crate::data::lines::Reason;
use crate::data::records::Stream;
use crate::error::{Error, ErrorKind, Result};

/// An object that shows which fields there are, and of what kind: the first one of a file, or what the file says of them.
fn example(file: &TextFile, format: FileFormat) -> Result<Option<Object>> {
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
    for one in wanted {
        // Words and their tags are lists, and nothing else is.
        let listed = ["tokens", "tags"].contains(&one.what);
        let fits = |value: &Value| value.is_array() == listed && !value.is_object();
        let free = |name: &&&str| {
            example.get(**name).is_some_and(fits) && !found.iter().any(|other| other == **name)
        };
        let name = match one.given {
            Some(given) if at(&example, given).is_some() => given.to_owned(),
            Some(given) => {
                let what = format!("field `{given}` of file `{}`, the {}", file.name(), one.what);
                return Err(missing(what, given, &all));
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
    example.is_some_and(|of| of.get(name).is_some_and(|value| value.is_string() || value.is_number()))
}

/// The records of the file, made of these fields.
pub(super) fn records<R: 'static>(
    file: &TextFile,
    format: FileFormat,
    fields: &[String],
    make: impl FnMut(&Object) -> Result<R, Reason> + Send + 'static,
) -> Result<Stream<R>> {
    match format {
        #[cfg(feature = "parquet")]
        FileFormat::Parquet => parquet::records(file, fields, make),
        _ => {
            let _ = fields; // A line has all of them.
            json::records(file, make)
        }
    }
}
