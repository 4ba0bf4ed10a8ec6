//! Data sets of texts with labels, and loaders of batches of these texts.

use std::collections::{BTreeMap, BTreeSet};

use unpadded::data::{Fingerprint, Limits, Loader, Tokenizer, Vocabulary};
use unpadded::{AtCaller, Error, Result};

use super::data_set::RecordStorage;
use crate::source::reason::wrong_format;
use crate::source::records::shown;
use crate::{DataSet, LabelledText, TextFile};

/// A data set of texts with one label each, in memory.
///
/// [`DataSet::open`] reads a file with columns between tabs or commas, or a file of JSON Lines, Parquet or trees. A
/// folder or a zip may have a file per class (a text per line) or a folder per class (a text per file). A pattern such
/// as `data/*.tsv` gives several files, and `some.zip!file` gives a file in a zip. [`FileFormat`](crate::FileFormat)
/// lists the formats.
///
/// ```
/// use unpadded::data::{Data, Limits, Tokenizer};
/// use unpadded_text::{LabelledTexts, TextFile};
/// let file = TextFile::embedded("reviews.tsv", "A fine film.\tpraise\nDull.\tblame\nFine, but dull!\tblame\n");
/// let reviews = LabelledTexts::of_lines(&file)?;
/// let tokenizer = Tokenizer::words().lowercase();
/// let (words, labels) = (reviews.vocabulary(&tokenizer, &Limits::default())?, reviews.labels()?);
/// let train = reviews.loader(["words", "label"], &tokenizer, (&words, &labels))?.shuffle(1);
/// assert_eq!(train.batch_count(), Some(1));
///
/// # let path = std::env::temp_dir().join(format!("unpadded-open-{}.csv", std::process::id()));
/// # std::fs::write(&path, "id,review,label\n1,\"Fine, but dull\",blame\n2,Good.,praise\n").unwrap();
/// let reviews = LabelledTexts::open(&path)?; // id,review,label ↵ 1,"Fine, but dull",blame ↵ …
/// assert_eq!((&*reviews.records()[0].text, &*reviews.records()[0].label), ("Fine, but dull", "blame"));
/// # std::fs::remove_file(&path).unwrap();
/// # Ok::<(), unpadded::Error>(())
/// ```
pub type LabelledTexts = DataSet<LabelledText>;

impl LabelledTexts {
    /// Reads a file with lines of `text<TAB>label`, as [`TextFile::labelled`] does.
    ///
    /// # Errors
    /// Fails if the file cannot be read, has no record, or has a malformed line.
    #[track_caller]
    pub fn of_lines(file: &TextFile) -> Result<Self> {
        Ok(Self::new(&file.name(), file.labelled()?.read_all().at_caller()?))
    }

    /// Reads one file per class, with a text per line. [`Folder::file_per_class`](crate::Folder::file_per_class)
    /// returns the labels and the files for `classes`. White space around texts, blank lines and repeated texts of a
    /// class are removed; the texts are sorted. Messages show `name` as the name of the data set.
    ///
    /// # Errors
    /// Fails if a file cannot be read, has no line, or has a malformed line.
    #[track_caller]
    pub fn of_classes(name: &str, classes: impl IntoIterator<Item = (String, TextFile)>) -> Result<Self> {
        let mut found = BTreeSet::new();
        for (class, file) in classes {
            let lines = file.lines()?.read_all().at_caller()?;
            let texts = lines.iter().map(|line| line.trim()).filter(|text| !text.is_empty());
            found.extend(texts.map(|text| (text.to_owned(), class.clone())));
        }
        let texts: Vec<_> = found.into_iter().map(|(text, label)| LabelledText::new(text, label)).collect();
        Ok(Self::new(name, texts))
    }

    /// Sorts the labelled texts, and removes texts that are repeated with the same label.
    #[must_use]
    pub fn distinct(mut self) -> Self {
        self.records.sort_by(|a, b| (&a.text, &a.label).cmp(&(&b.text, &b.label)));
        self.records.dedup();
        self
    }

    /// Divides the data set into one data set per label, sorted by label, for example to compute a score per class.
    #[must_use]
    pub fn by_label(&self) -> Vec<Self> {
        let mut found: BTreeMap<&str, Vec<LabelledText>> = BTreeMap::new();
        for text in &self.records {
            found.entry(&text.label).or_default().push(text.clone());
        }
        found.into_values().map(|texts| Self::new(&self.name, texts)).collect()
    }
}

impl<S: RecordStorage<LabelledText>> DataSet<LabelledText, S> {
    /// Makes the vocabulary of the texts with [`Tokenizer::vocabulary`], in one pass over the texts.
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does, or if a file has an error.
    #[track_caller]
    pub fn vocabulary(&self, tokenizer: &Tokenizer, limits: &Limits) -> Result<Vocabulary> {
        self.vocabulary_of(|text| &text.text, tokenizer, limits).at_caller()
    }

    /// Returns the distinct labels, sorted, in one pass over the texts.
    ///
    /// # Errors
    /// Fails if there are fewer than two labels, since a model could learn nothing, or if a file has an error.
    #[track_caller]
    pub fn labels(&self) -> Result<Vocabulary> {
        self.with_texts(|text| &text.label, |labels| at_least_two(&self.name, Vocabulary::labels(labels)))
            .at_caller()
    }

    /// Makes a loader of batches with the token ids and the label id of each text; `feeds` has the names of the two
    /// feeds. Files are read once, so that errors are reported before the first epoch, unless a
    /// [hold-out by a pass](crate::Files::hold_out_by_pass) has read them; each epoch reads the files again. In files,
    /// [`Loader::shuffle`] shuffles within a window of [`Loader::buffer`] texts.
    ///
    /// # Errors
    /// Fails as [`Loader::new`] does. Also fails if there is no text, if a vocabulary lacks a label or a token, or if a
    /// file has an error.
    #[track_caller]
    pub fn loader(
        &self,
        feeds: [&str; 2],
        tokenizer: &Tokenizer,
        (tokens, labels): (&Vocabulary, &Vocabulary),
    ) -> Result<Loader> {
        let (name, own) = (self.name.clone(), (tokenizer.clone(), tokens.clone(), labels.clone()));
        let sample = move |LabelledText { text, label, .. }: &LabelledText| {
            let (tokenizer, tokens, labels) = &own;
            let noted = |e: Error, what: &str| e.noted(format!("{what} of {} in `{name}`", shown(text)));
            let ids = tokens.ids(tokenizer.tokens(text)).map_err(|e| noted(e, "a token"))?;
            let label = labels.lookup(label).map_err(|e| noted(e, "the label"))?;
            Ok(vec![ids.into(), label.into()])
        };
        // The vocabularies and the tokenizer are part of the fingerprint, because the ids depend on them.
        let salt =
            |f| tokens.tokens().chain(labels.tokens()).fold(f, Fingerprint::text).text(&tokenizer.name());
        Loader::new(S::samples(self, salt, sample).at_caller()?, &feeds)
    }
}

/// Returns the vocabulary of the labels; an error if there are fewer than two distinct labels.
pub(crate) fn at_least_two(name: &str, labels: Result<Vocabulary>) -> Result<Vocabulary> {
    let got = match labels {
        Ok(found) if found.len() > 1 => return Ok(found),
        Ok(found) => found.tokens().map(|label| format!("only `{label}`")).collect(),
        Err(_) => "none".to_owned(),
    };
    Err(wrong_format(format!("labels in `{name}`"), "at least two", got))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(lines: &'static str) -> LabelledTexts {
        LabelledTexts::of_lines(&TextFile::embedded("some.tsv", lines)).unwrap()
    }

    #[test]
    fn classes_have_each_text_once_and_sorted() {
        let file = |name, text: &'static str| (String::from(name), TextFile::embedded(name, text));
        let found =
            LabelledTexts::of_classes("f", [file("B", " b \n\nb\na\n"), file("A", "b\n c\n")]).unwrap();
        let pairs: Vec<(&str, &str)> =
            found.records().iter().map(|t| (t.text.as_str(), t.label.as_str())).collect();
        assert_eq!(pairs, [("a", "B"), ("b", "A"), ("b", "B"), ("c", "A")]);
        let by_label = found.by_label();
        let of_each: Vec<(usize, &str)> =
            by_label.iter().map(|class| (class.records.len(), class.records[0].label.as_str())).collect();
        assert_eq!(of_each, [(2, "A"), (2, "B")]);
        assert_eq!(
            (found.clone().hold_out(0, 1).0, found.clone().hold_out(1, 1).1.records.len()),
            (found, 4)
        );
    }

    #[test]
    fn errors_name_the_file() {
        let tokenizer = Tokenizer::words();
        let (some, other) = (texts("good\tyes\nbad\tno\n"), texts("good\tmaybe\n"));
        let (words, labels) =
            (some.vocabulary(&tokenizer, &Limits::default()).unwrap(), some.labels().unwrap());
        let message = |outcome: Result<()>, expected: &str| {
            let error = format!("{:#}", outcome.unwrap_err());
            assert_eq!(error, expected);
        };
        let feeds = ["words", "label"];
        let expected = "token: expected one of `no`, `yes`, got `maybe`; the label of \"good\" in `some.tsv`";
        message(other.loader(feeds, &tokenizer, (&words, &labels)).map(drop), expected);
        let expected = "texts of `some.tsv, held out`: expected at least one, got none";
        let held = some.clone().hold_out(0, 1).1;
        message(held.loader(feeds, &tokenizer, (&words, &labels)).map(drop), expected);
        message(other.labels().map(drop), "labels in `some.tsv`: expected at least two, got only `maybe`");
        let often = Limits::default().min_count(2);
        let none = "tokens of a vocabulary: expected at least one token that occurs 2 times or more and fits into the size \
                    limit, got none among 2 distinct tokens; in `some.tsv`";
        message(some.vocabulary(&tokenizer, &often).map(drop), none);
    }
}
