//! Texts whose words have tags, and their samples for taggers.

use std::sync::Arc;

use unpadded::data::{Field, Fingerprint, Limits, Vocabulary};
use unpadded::{AtCaller, Error, Result, reserve};

use super::data_set::{Passes, RecordStorage};
use crate::detect::form::FileForm;
use crate::detect::tag_spelling::TagSurvey;
use crate::format::conll::Columns;
use crate::format::parallel;
use crate::record::projection::Projection;
use crate::source::reason::Reason;
use crate::source::records::{self, Remark, Stream, shown};
use crate::{DataSet, ReadOptions, Tagging, TextFile};

/// A text as a list of words with one tag per word. Two texts are equal even if they were read from different places.
#[derive(Debug, Clone, PartialEq)]
pub struct TaggedText {
    /// The words.
    pub words: Vec<String>,
    /// The tags, one per word.
    pub tags: Vec<String>,
    /// The label of the whole text, such as an intent; `None` for a text without a label.
    pub label: Option<String>,
    /// The place from which the text was read, for error messages; `None` for a text made in memory.
    pub(crate) location: Remark<Option<(Arc<str>, TextLocation)>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum TextLocation {
    /// The line of the first word, in a file with one word per line and no other lines between the words.
    LineOfFirst(u64),
    /// The line in which the text begins; all words of the text are reported at this line.
    Line(u64),
    /// The number of the record, in a file that has no lines.
    Record(u64),
}

impl TaggedText {
    /// Returns a text of words with one tag per word, and without a label for the whole text.
    pub fn new(words: Vec<String>, tags: Vec<String>) -> Self {
        Self { words, tags, label: None, location: Remark(None) }
    }

    pub(crate) fn placed(self, file: &Arc<str>, at: TextLocation) -> Self {
        Self { location: Remark(Some((Arc::clone(file), at))), ..self }
    }

    /// Returns the location of the word with index `word` for a message; `None` for a text made in memory.
    pub fn location_of(&self, word: usize) -> Option<String> {
        self.location.0.as_ref().map(|(file, at)| match at {
            TextLocation::LineOfFirst(line) => format!("{file}:{}", line + word as u64),
            TextLocation::Line(line) => format!("{file}:{line}"),
            TextLocation::Record(number) => format!("tags of record {number} of `{file}`"),
        })
    }

    /// Splits a line into words at spaces and tabs, as in training files; other white space is part of a word.
    pub fn words_of(line: &str) -> impl Iterator<Item = &str> {
        records::words(line)
    }
}

/// A data set of texts in memory, in which each word has one tag.
///
/// [`DataSet::open`] reads:
/// - a file of columns ([`TaggedTexts::of_columns`]);
/// - JSON Lines or Parquet with a list of words and a list of tags;
/// - a folder of parallel files ([`TaggedTexts::of_parallel`]): line `n` of `seq.in` has the words of a text, line `n`
///   of `seq.out` has the tags of these words, and line `n` of the optional file `label` has the label of the text.
///
/// A pattern such as `data/*.conll` reads several files; `some.zip!file` reads a file in a zip. The options name a
/// column by its number, counted from 1, or by its name. In CoNLL-U, a column has a number and a name. In JSON and
/// Parquet, a column has only a name.
///
/// ```
/// use unpadded::data::{Data, Limits};
/// use unpadded_text::{TaggedTexts, TextFile};
/// let file = TextFile::embedded("chunks.txt", "He PRP B-NP\nruns VBZ B-VP\n\nStop VB B-VP\n");
/// let texts = TaggedTexts::of_columns(&file)?;
/// assert_eq!((texts.records().len(), texts.records()[1].tags[0].as_str()), (2, "B-VP"));
/// let words = texts.words(str::to_lowercase, &Limits::default())?;
/// let characters = texts.characters(&Limits::default())?;
/// let tags = TaggedTexts::tags([&texts])?;
/// let samples = texts.samples(str::to_lowercase, &words, Some(&characters), &tags, None)?;
/// let train = unpadded::data::Loader::new(samples, &["words", "characters", "tags"])?.shuffle(1);
/// assert_eq!(train.batch_count(), Some(1));
/// # Ok::<(), unpadded::Error>(())
/// ```
pub type TaggedTexts = DataSet<TaggedText>;

impl TaggedTexts {
    /// Reads columns with one word per line, as in the CoNLL shared tasks: the first column has the word, and the last
    /// column has its tag. A blank line ends a text. If most of the first lines have a tab, only tabs separate columns;
    /// otherwise spaces and tabs do. Lines that begin with `-DOCSTART-` are skipped; in CoNLL-2003, such a line begins
    /// a document.
    ///
    /// A file is read as CoNLL-U if its name ends with `.conllu`, or if its lines have ten columns between tabs and the
    /// first column has numbers. In CoNLL-U, the words are in the column `form`, and the tags are in the column `upos`.
    /// Comments, ranges of words (such as `3-4`) and empty nodes are skipped. In other files whose first column numbers
    /// the words, the words are in the second column, and the tags are in the first column with tags of a scheme, such
    /// as `B-NP`. CoNLL-U Plus is detected by the line `# global.columns`, and CoNLL-2012 is detected by the line
    /// `#begin document`. A first line of known column names, such as `Token POS NER`, is a header. Tags in brackets,
    /// such as `(PER*`, are read as `B-PER` and `I-PER`.
    ///
    /// # Errors
    /// Fails if the file cannot be read, has no text or fewer than two columns, or if a line has another number of
    /// columns than most lines.
    #[track_caller]
    pub fn of_columns(file: &TextFile) -> Result<Self> {
        Columns::of(file, None, None, None, None)
            .and_then(|columns| {
                let (name, make) = (file.name(), TaggedText::maker(file, &ReadOptions::default()));
                let texts = FileForm::Words(columns).records(file, make)?;
                Ok(Self::new(&name, reserve::collected(texts, &name)?))
            })
            .at_caller()
    }

    /// Reads two or three parallel files. A line of `words` has the words of a text, separated by spaces and tabs. The
    /// line with the same number in `tags` has the tags of these words. If `labels` is given, the line with the same
    /// number in `labels` has the label of the text. A line that is blank in all files is skipped.
    ///
    /// # Errors
    /// Fails if a file cannot be read or has no text, or if one file ends before another file. Also fails if a text
    /// does not have one tag per word, has no label, or has a label but no words. The message has the file and the
    /// line.
    #[track_caller]
    pub fn of_parallel(words: &TextFile, tags: &TextFile, labels: Option<&TextFile>) -> Result<Self> {
        let read = || reserve::collected(of_lines(words, tags, labels)?, &words.name());
        Ok(Self::new(&words.name(), read().at_caller()?))
    }

    /// Returns the vocabulary of the words; `form` returns the form in which a word is counted, such as its lower case.
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does.
    #[track_caller]
    pub fn words(&self, form: impl Fn(&str) -> String, limits: &Limits) -> Result<Vocabulary> {
        let words = self.records.iter().flat_map(|text| text.words.iter().map(|word| form(word)));
        Vocabulary::of(words, limits).map_err(|e| self.noted(e)).at_caller()
    }

    /// Returns the vocabulary of the characters in the words.
    ///
    /// # Errors
    /// Fails as [`Vocabulary::of`] does.
    #[track_caller]
    pub fn characters(&self, limits: &Limits) -> Result<Vocabulary> {
        let words = self.records.iter().flat_map(|text| &text.words);
        let characters = words.flat_map(|word| word.chars().map(String::from));
        Vocabulary::of(characters, limits).map_err(|e| self.noted(e)).at_caller()
    }

    /// Returns the tags of several data sets, sorted, with their counts.
    ///
    /// # Errors
    /// Fails if the texts have no tag.
    #[track_caller]
    pub fn tags<'a>(all: impl IntoIterator<Item = &'a TaggedTexts>) -> Result<Vocabulary> {
        let texts = all.into_iter().flat_map(|texts_of| &texts_of.records);
        Vocabulary::labels(texts.flat_map(|text| &text.tags))
    }
}

impl<S: RecordStorage<TaggedText>> DataSet<TaggedText, S> {
    /// Makes a sample of each text: the ids of its words, of the characters of each word, of its tags, and of its
    /// label. Without a vocabulary of characters or of labels, the sample has no ids of characters or of the label.
    /// Files are read once, so that errors are reported before the first epoch; each epoch reads them again.
    ///
    /// # Errors
    /// Fails if there is no text, if a vocabulary lacks a word, a character, a tag or a label, or if a file has an error.
    #[track_caller]
    pub fn samples(
        &self,
        form: impl Fn(&str) -> String + Send + Sync + 'static,
        words: &Vocabulary,
        characters: Option<&Vocabulary>,
        tags: &Vocabulary,
        labels: Option<&Vocabulary>,
    ) -> Result<S::Samples> {
        let known = [Some(words), characters, Some(tags), labels];
        let own = (words.clone(), characters.cloned(), tags.clone(), labels.cloned());
        let name = self.name.clone();
        let sample = move |text: &TaggedText| {
            let (words, characters, tags, labels) = &own;
            let noted = |e: Error, what: &str| {
                e.noted(format!("{what} of {} in `{name}`", shown(&text.words.join(" "))))
            };
            let ids = words.ids(text.words.iter().map(|word| form(word)));
            let mut fields = vec![Field::Ints(ids.map_err(|e| noted(e, "a word"))?)];
            if let Some(characters) = characters {
                let spelled = |word: &String| characters.spelling(word);
                let spelled: Result<Vec<Vec<i64>>> = text.words.iter().map(spelled).collect();
                fields.push(Field::Nested(spelled.map_err(|e| noted(e, "a word"))?));
            }
            fields.push(tags.ids(&text.tags).map_err(|e| noted(e, "a tag"))?.into());
            if let Some(labels) = labels {
                let label = text.label.as_deref().unwrap_or_default();
                fields.push(labels.lookup(label).map_err(|e| noted(e, "the label"))?.into());
            }
            Ok(fields)
        };
        let salt =
            |f| known.into_iter().flatten().fold(f, |f: Fingerprint, noted| f.number(noted.fingerprint()));
        S::samples(self, salt, sample).at_caller()
    }
}

/// Detects the scheme and the spelling of the tags of several data sets; [`ReadOptions::scheme`] sets the scheme.
///
/// # Errors
/// Fails if a file cannot be read, or if texts break the scheme. The message has the file and the line of the first text
/// that breaks the scheme, and the number of such texts.
#[track_caller]
pub fn scheme(all: &[&dyn Passes<TaggedText>]) -> Result<Tagging> {
    let set = all.iter().find_map(|data| data.options().scheme);
    let sentences = |visit: &mut dyn FnMut(&[String])| {
        all.iter().try_for_each(|data| data.each(&mut |text| visit(&text.tags)))
    };
    let location = |at: usize, word: usize| {
        let (mut before, mut location) = (0, String::new());
        for data in all {
            let mut number = 0;
            data.each(&mut |text| {
                number += 1;
                if before + number == at + 1 {
                    let unplaced = || format!("tags of text {number} of `{}`", data.called());
                    location = text.location_of(word).unwrap_or_else(unplaced);
                }
            })?;
            before += number;
        }
        Ok(location)
    };
    TagSurvey::of(&sentences, set).and_then(|found| found.whole(&sentences, &location)).at_caller()
}

/// Opens two or three parallel files as texts: a line of `words` has the words of a text, the same line of `tags` has
/// the tags, and the same line of `labels`, if given, has the label.
pub(crate) fn of_lines(
    words: &TextFile,
    tags: &TextFile,
    labels: Option<&TextFile>,
) -> Result<Stream<TaggedText>> {
    let name = Arc::from(tags.name());
    let files: Vec<&TextFile> = [words, tags].into_iter().chain(labels).collect();
    parallel::records(&files, move |number, lines| {
        let [words, tags, label @ ..] = lines else { return Ok(None) };
        let label = label.first().map(|label| label.trim());
        let split = |line: &str| TaggedText::words_of(line).map(str::to_owned).collect::<Vec<_>>();
        let mut text = TaggedText::new(split(words), split(tags)).placed(&name, TextLocation::Line(number));
        if text.words.is_empty() && text.tags.is_empty() && label.unwrap_or_default().is_empty() {
            return Ok(None);
        }
        if text.words.len() != text.tags.len() {
            let expected = format!("{} tags, one for each word of {}", text.words.len(), shown(words));
            return Err((1, Reason::of(expected, text.tags.len().to_string())));
        }
        let wrong = |at: usize, expected: String| Err((at, Reason::of(expected, "a blank line")));
        match label {
            Some("") => wrong(2, "a label".to_owned()),
            Some(label) if text.words.is_empty() => wrong(0, format!("words for the label {}", shown(label))),
            label => {
                text.label = label.map(str::to_owned);
                Ok(Some(text))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &'static str) -> TextFile {
        TextFile::embedded(name, text)
    }

    #[track_caller]
    fn refused(outcome: Result<TaggedTexts>, expected: &str) {
        let error = format!("{:#}", outcome.unwrap_err());
        assert!(error.starts_with(expected), "{error}");
    }

    #[test]
    fn parallel_files_are_read_line_by_line() {
        let (words, tags) =
            (file("seq.in", "play some jazz \n\nstop\n"), file("seq.out", "O O B-genre\n\nO\n"));
        let texts = TaggedTexts::of_parallel(&words, &tags, Some(&file("label", "Play\n \nStop\n"))).unwrap();
        assert_eq!(texts.records().len(), 2);
        assert_eq!(
            (texts.records()[0].tags[2].as_str(), texts.records()[1].label.as_deref()),
            ("B-genre", Some("Stop"))
        );
        let read = |tags: &'static str, labels: &'static str| {
            TaggedTexts::of_parallel(&words, &file("seq.out", tags), Some(&file("label", labels)))
        };
        let jazz = "seq.out:1: expected 3 tags, one for each word of \"play some jazz \", got 2";
        for (tags, labels, expected) in [
            ("O O\n\nO\n", "a\n\nc\n", jazz),
            ("O O O\n\nO\n", "a\nb\n", "lines of file `label`: expected 3, as many as `seq.in` has, got 2"),
            ("O O O\n\n", "a\nb\nc\n", "lines of file `seq.out`: expected 3, as many as `seq.in` has, got 2"),
            ("O O O\n\nO\n", "a\n\n \n", "label:3: expected a label, got a blank line"),
            ("O O O\n\nO\n", "a\nb\nc\n", "seq.in:2: expected words for the label \"b\", got a blank line"),
            ("O O O\nO\nO\n", "a\n\nc\n", "seq.out:2: expected 0 tags, one for each word of \"\", got 1"),
        ] {
            refused(read(tags, labels), expected);
        }
    }

    #[test]
    fn carriage_returns_alone_end_no_line() {
        let expected = "expected lines that end with a line feed, got a carriage return inside \"a O\\rb O\"";
        refused(TaggedTexts::of_columns(&file("c.txt", "a O\rb O\r")), &format!("c.txt:1: {expected}"));
        let mixed = TaggedTexts::of_columns(&file("c.txt", "x O\r\n\r\na O\r\r\nb O\n")).unwrap();
        assert_eq!(mixed.records()[1].words, ["a", "b"]);
        let (words, tags) = (file("seq.in", "a\nb c\n"), file("seq.out", "O\nO\rO\n"));
        refused(
            TaggedTexts::of_parallel(&words, &tags, None),
            "seq.out:2: expected lines that end with a line feed, got a carriage return inside \"O\\rO\"",
        );
    }

    #[test]
    fn columns_are_those_of_most_lines() {
        let read = |text: &'static str| TaggedTexts::of_columns(&file("c.txt", text));
        let texts = read("\n\na x O\nb y B-A\n\nc z O\n").unwrap();
        assert_eq!(texts.records()[0].tags, ["O", "B-A"]);
        refused(read("a O\nb\n"), "c.txt:2: expected 2 columns, got 1 in \"b\"");
        refused(
            read("a\nb\n"),
            "columns of file `c.txt`: expected at least two columns, a word and its tag, got one column in the first lines",
        );
        refused(read("\n"), "records of file `c.txt`: expected at least one, got none");
    }

    #[test]
    fn tags_that_break_the_scheme_have_their_line() {
        let one = TaggedTexts::of_columns(&file("one.txt", "a B-X\nb I-X\n\nc B-X\n")).unwrap();
        let other = TaggedTexts::of_columns(&file("other.txt", "\nd O\n\n\ne O\nf I-X\ng I-Y\n")).unwrap();
        let expected =
            "other.txt:6: expected a tag of IOB2, which 3 of 4 sentences keep, got `I-X` behind `O`";
        let shown = |all: &[&dyn Passes<TaggedText>]| format!("{:#}", scheme(all).unwrap_err());
        assert!(shown(&[&one, &other]).starts_with(expected), "{}", shown(&[&one, &other]));
        // A held-out part of a file and several files together give the same error.
        let (rest, held) = other.clone().hold_out(2, 1);
        assert!(shown(&[&one, &rest, &held]).starts_with(expected));
        let all = TaggedTexts::new("all", [one.records, other.records].concat());
        assert!(shown(&[&all]).starts_with(expected));
        let (words, tags) = (file("seq.in", "a\nb c\n"), file("seq.out", "B-X\nO I-X\n"));
        let texts = TaggedTexts::of_parallel(&words, &tags, None).unwrap();
        assert!(shown(&[&texts]).starts_with("seq.out:2: expected a tag of IOB2"), "{}", shown(&[&texts]));
    }

    #[test]
    fn tags_are_counted() {
        let (words, tags) = (file("seq.in", "a b\nc\n"), file("seq.out", "O B-X\nO\n"));
        let texts = TaggedTexts::of_parallel(&words, &tags, None).unwrap();
        let tags = TaggedTexts::tags([&texts]).unwrap();
        assert_eq!((tags.count(0), tags.count(1), tags.token(1)), (1, 2, Some("O")));
    }

    #[test]
    fn a_text_is_held_out_by_its_words_and_the_seed() {
        let texts = TaggedTexts::of_columns(&file("c.txt", "a O\n\nb O\n\nc O\n\nd O\n\na O\n")).unwrap();
        let (rest, held) = texts.clone().hold_out(2, 1);
        assert_eq!(rest.records().len() + held.records().len(), 5);
        assert!(!rest.records().iter().any(|text| held.records().contains(text)));
        assert!((0..20).any(|seed| texts.clone().hold_out(2, seed).1 != held));
        assert_eq!(texts.clone().hold_out(0, 1).0, texts);
    }

    #[test]
    fn what_a_vocabulary_lacks_is_named_with_its_text() {
        let texts = TaggedTexts::of_columns(&file("c.txt", "ab O\n")).unwrap();
        let words = texts.words(str::to_uppercase, &Limits::default()).unwrap();
        assert_eq!(words.token(1), Some("AB"));
        let (characters, tags) =
            (texts.characters(&Limits::default()).unwrap(), TaggedTexts::tags([&texts]).unwrap());
        let other = TaggedTexts::of_columns(&file("d.txt", "ax B-A\n")).unwrap();
        let error = other.samples(str::to_uppercase, &words, Some(&characters), &tags, None).unwrap_err();
        assert_eq!(format!("{error:#}"), "token: expected one of `O`, got `B-A`; a tag of \"ax\" in `d.txt`");
    }
}
