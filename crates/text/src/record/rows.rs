//! Opens sparse rows (LIBSVM files) from a path.

use std::path::{Path, PathBuf};

use unpadded::Result;
use unpadded::data::Fingerprint;

use super::plan::{Opener, Plan};
use crate::dataset::data_set::{Change, Record, RecordPass};
use crate::detect::guess::has_features;
use crate::detect::options::ReadOptions;
use crate::format::FileFormat;
use crate::source::path_text::text_of_path;
use crate::source::paths::{PathContent, as_set, find};
use crate::source::reason::wrong_format;
use crate::{FirstIndex, LabelledRow, LabelledRows, TextFile};

impl Record for LabelledRow {
    const PLURAL: &'static str = "rows";

    fn bytes(&self) -> usize {
        size_of::<Self>() + size_of_val(&*self.indices) + size_of_val(&*self.values)
    }

    fn stratum(&self) -> std::borrow::Cow<'_, str> {
        self.label.to_string().into()
    }

    /// Hashes the query number, so that all rows of a query are held out together; without one, the entries.
    fn held_out_by(&self, fingerprint: Fingerprint) -> Fingerprint {
        match self.query {
            Some(query) => fingerprint.text("query").number(query),
            None => self.input(fingerprint),
        }
    }

    fn input(&self, fingerprint: Fingerprint) -> Fingerprint {
        let entries = self.indices.iter().zip(&self.values);
        entries
            .fold(fingerprint, |f, (&index, value)| f.number(index as u64).number(u64::from(value.to_bits())))
    }

    fn fingerprint(&self, fingerprint: Fingerprint) -> Fingerprint {
        let f = fingerprint.number(self.label.to_bits());
        let f = self.query.map_or(f, |query| f.text("query").number(query));
        self.input(f)
    }

    fn plan(paths: &[PathBuf], options: &ReadOptions, _: bool) -> Result<Plan<Self>> {
        let (name, files) = files(paths)?;
        options.without_columns(FileFormat::Libsvm, &format!("`{name}`"))?;
        options.unused(FileFormat::Libsvm, &format!("`{name}`"))?;
        let first = options.first_index.unwrap_or(FirstIndex::Zero);
        let open = |file: TextFile| -> Opener<Self> {
            let file = as_set(file, options);
            Box::new(move || Ok(Box::new(file.libsvm(first)?)))
        };
        let inputs = files.into_iter().map(open).collect();
        let options = ReadOptions { format: Some(FileFormat::Libsvm), notes: Vec::new(), ..options.clone() };
        Ok(Plan::of(name, options, inputs))
    }

    /// Decides the first index, unless the options set it: 0 if any index of the data set is 0, otherwise 1.
    fn settled(all: RecordPass<'_, Self>, options: &mut ReadOptions) -> Result<Option<Change<Self>>> {
        let is_detected = options.first_index.is_none();
        let (first, why) = match options.first_index {
            Some(first) => (first, "as set".to_owned()),
            None => {
                let mut found = false;
                all(&mut |row| found |= row.indices.contains(&0))?;
                let (first, an) = if found { (FirstIndex::Zero, "an") } else { (FirstIndex::One, "no") };
                (first, format!("since there is {an} index 0; the setting `first_index` overrides this"))
            }
        };
        options.notes = vec![format!("indices count from {}, {why}", first.number())];
        options.first_index = Some(first);
        if !is_detected || first == FirstIndex::Zero {
            return Ok(None);
        }
        Ok(Some(Box::new(|mut row: Self| {
            row.indices.iter_mut().for_each(|index| *index -= 1);
            row
        })))
    }
}

impl LabelledRows {
    /// Returns whether a path has LIBSVM rows: its files end with `.svm`, `.libsvm` or `.svmlight`, or each of the
    /// first lines has a label and numbered features. Returns `false` for a path that cannot be read.
    pub fn are_in(path: impl AsRef<Path>) -> bool {
        let path = path.as_ref();
        if let Some(format) = FileFormat::of_name(&text_of_path(path)) {
            return format == FileFormat::Libsvm;
        }
        let is = |mut file: TextFile| {
            let is = has_features(&file).unwrap_or(false);
            file.close();
            is
        };
        files(&[path.to_owned()]).is_ok_and(|(_, files)| files.into_iter().all(is))
    }
}

fn files(paths: &[PathBuf]) -> Result<(String, Vec<TextFile>)> {
    let (name, found) = find(paths)?;
    let file = |found| match found {
        PathContent::File(file) => Ok(file),
        PathContent::Folder(_) => {
            let expected = "a file, or a file of a zip (`data.zip!train.svm`)";
            Err(wrong_format(format!("rows in `{name}`"), expected, "several files"))
        }
    };
    let files = found.into_iter().map(file).collect::<Result<_>>()?;
    Ok((name, files))
}
