//! Reads a safetensors file: checks the head against the file size before any tensor is read.
//!
//! ```text
//! file = length of head u64 | head, JSON: name -> dtype, shape, [first byte, last byte + 1] of the numbers | numbers
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use ::safetensors::tensor::{Metadata, TensorInfo};
use ::safetensors::{Dtype, SafeTensorError};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};

use crate::error::{Error, ErrorKind, Result};
use crate::reserve;
use crate::tensor::{DType, Dense};

/// The maximum size in bytes of a head, as the safetensors format defines it.
const LONGEST: u64 = 100_000_000;
/// The size in bytes of the field with the head's length.
const LENGTH: u64 = 8;
/// The key in the head under which the file's metadata is stored.
pub(super) const METADATA: &str = "__metadata__";

/// An open safetensors file and its parsed head.
pub(super) struct File {
    /// The name of the file for error messages.
    shown: String,
    input: BufReader<fs::File>,
    /// The position in the file, in bytes, at which the numbers begin.
    begin: u64,
    pub(super) tensors: BTreeMap<String, TensorInfo>,
}

impl File {
    pub(super) fn open(path: &Path) -> Result<Self> {
        let shown = format!("file `{}`", path.display());
        let failed = |e: std::io::Error| Error::io(&shown, "read", &e);
        // The path must be a regular file: opening a pipe would wait for a writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(Error::of(ErrorKind::Io, shown, "a file", "a folder or a device"));
        }
        let file = fs::File::open(path).map_err(failed)?;
        let size = file.metadata().map_err(failed)?.len();
        let mut input = BufReader::new(file);
        let wrong = |what: &str, expected: String, got: String| {
            let error = Error::of(ErrorKind::Format, format!("{shown}, {what}"), expected, got);
            Err(error.noted("is the file a complete safetensors file?"))
        };

        let mut length = [0; LENGTH as usize];
        if size < LENGTH {
            return wrong("length of the head", format!("{LENGTH} bytes"), format!("{size}, the whole file"));
        }
        input.read_exact(&mut length).map_err(failed)?;
        let length = u64::from_le_bytes(length);
        let most = LONGEST.min(size - LENGTH);
        if length > most {
            return wrong("length of the head", format!("at most {most} bytes"), length.to_string());
        }
        let mut head = reserve::vector(length as usize, "head of a safetensors file")?;
        input.by_ref().take(length).read_to_end(&mut head).map_err(failed)?;
        let listed: Listed = match serde_json::from_slice(&head) {
            Ok(listed) => listed,
            Err(e) => return wrong("head", "a list of tensors, as JSON".into(), e.to_string()),
        };
        if let Some(name) = listed.twice {
            return wrong("head", "each tensor once".into(), format!("`{name}` twice"));
        }
        // Tensors are sorted by the position of their numbers, because the safetensors library requires this order.
        let mut tensors = listed.tensors;
        tensors.sort_by(|(a, left), (b, right)| (left.data_offsets, a).cmp(&(right.data_offsets, b)));
        let metadata = match Metadata::new(None, tensors.clone()) {
            Ok(metadata) => metadata,
            Err(e) => return wrong("head", "tensors whose numbers follow each other".into(), reason(&e)),
        };
        let (begin, numbers) = (LENGTH + length, metadata.data_len() as u64);
        if begin.checked_add(numbers) != Some(size) {
            return wrong(
                "numbers",
                format!("{numbers} bytes, as its head says"),
                (size - begin).to_string(),
            );
        }
        Ok(Self { shown, input, begin, tensors: tensors.into_iter().collect() })
    }

    /// Returns the name of the file for error messages.
    pub(super) fn shown(&self) -> &str {
        &self.shown
    }

    /// Reads the numbers of one tensor, in the shape and dtype that it has in the file.
    pub(super) fn read(&mut self, name: &str) -> Result<Dense> {
        let missing = || Error::new(&self.shown, "a tensor", format!("no tensor `{name}`"));
        let info = self.tensors.get(name).ok_or_else(missing)?;
        let wrong = || Error::new(&self.shown, "a tensor of a known dtype", format!("{:?}", info.dtype));
        let dtype = dtype(info.dtype).ok_or_else(wrong)?;
        let failed = |e: std::io::Error| Error::io(&self.shown, "read", &e);
        self.input.seek(SeekFrom::Start(self.begin + info.data_offsets.0 as u64)).map_err(failed)?;
        let value =
            Dense::read_numbers(dtype, &info.shape, |piece| self.input.read_exact(piece).map_err(failed));
        let value = value.map_err(|e| e.variable(name).noted(format!("in {}", self.shown)))?;
        value.check_finite("tensor").map_err(|e| e.variable(name).noted(format!("in {}", self.shown)))?;
        Ok(value)
    }
}

/// Describes, for a message, the fault of a head that an error of the safetensors library reports.
fn reason(error: &SafeTensorError) -> String {
    match error {
        SafeTensorError::InvalidOffset(name) => format!("a gap or an overlap before `{name}`"),
        SafeTensorError::TensorInvalidInfo => "a tensor whose shape has another number of bytes".into(),
        SafeTensorError::ValidationOverflow => "a shape of more numbers than can be counted".into(),
        other => other.to_string(),
    }
}

/// Returns this crate's dtype for a safetensors dtype; `None` if this crate has no such dtype.
pub(super) fn dtype(dtype: Dtype) -> Option<DType> {
    DTYPES.iter().find(|(theirs, _)| *theirs == dtype).map(|(_, ours)| *ours)
}

/// Returns the safetensors dtype for a dtype of this crate; `None` if the format has no such dtype.
pub(super) fn stored(dtype: DType) -> Option<Dtype> {
    DTYPES.iter().find(|(_, ours)| *ours == dtype).map(|(theirs, _)| *theirs)
}

const DTYPES: [(Dtype, DType); 9] = [
    (Dtype::F32, DType::F32),
    (Dtype::F64, DType::F64),
    (Dtype::F16, DType::F16),
    (Dtype::BF16, DType::BF16),
    (Dtype::I8, DType::I8),
    (Dtype::I16, DType::I16),
    (Dtype::I32, DType::I32),
    (Dtype::I64, DType::I64),
    (Dtype::BOOL, DType::Bool),
];

/// The tensors of a head in the order of the file. The list is used to detect duplicate names, since the library silently keeps
/// only the last tensor of a name.
struct Listed {
    tensors: Vec<(String, TensorInfo)>,
    twice: Option<String>,
}

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Head)
    }
}

struct Head;

impl<'de> Visitor<'de> for Head {
    type Value = Listed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("names with dtype, shape and data_offsets")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Listed, A::Error> {
        let (mut names, mut tensors, mut twice) = (BTreeSet::new(), Vec::new(), None);
        while let Some(name) = entries.next_key::<String>()? {
            if name == METADATA {
                entries.next_value::<IgnoredAny>()?;
            } else {
                tensors.push((name.clone(), entries.next_value()?));
            }
            if !names.insert(name.clone()) {
                twice = twice.or(Some(name));
            }
        }
        Ok(Listed { tensors, twice })
    }
}
