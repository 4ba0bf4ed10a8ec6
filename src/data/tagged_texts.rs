//! Texts whose words have a tag each, and what a tagger is trained on of them.

use super::conll::{Columns, Sentence};
use super::hold_out::{held_name, hold_out};
use super::lines::Reason;
use super::records::{self, shown, unbroken};
use super::tag_spelling::Found;
use super::{Field, Fingerprint, Limits, ReadOptions, Samples, TagScheme, Tagging, TextFile, Vocabulary};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// A text of words with a tag each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TaggedText {
    /// The words.
    pub words: Vec<String>,
    /// The tag of each word.
    pub tags: Vec<String>,
    /// What the whole of it is, if that is said: an intent, say.
    pub label: Option<String>,
}

impl TaggedText {
    /// The words of a line, between spaces and tabs; other white space is part of a word, as in the files of a training.
    pub fn words_of(line: &str) -> impl Iterator<Item = &str> {
        records::words(line)
    }
}

/// Texts whose words have a tag each, in memory, and what messages call where they are from.
///
/// ```
/// use unpadded::data::{Data, Limits, TaggedTexts, TextFile};
/// let file = TextFile::embedded("chunks.txt", "He PRP B-NP\nruns VBZ B-VP\n\nStop VB B-VP\n");
/// let texts = TaggedTexts::of_columns(&file)?;
/// assert_eq!((texts.texts().len(), texts.texts()[1].tags[0].as_str()), (2, "B-VP"));
/// let words = texts.words(str::to_lowercase, &Limits::default())?;
/// let characters = texts.characters(&Limits::default())?;
/// let tags = TaggedTexts::tags([&texts])?;
/// let samples = texts.samples(str::to_lowercase, &words, &characters, &tags, None)?;
/// let train = unpadded::data::Loader::new(samples, &["words", "characters", "tags"])?.shuffle(1);
/// assert_eq!(train.batch_count(), Some(1));
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct TaggedTexts {
    name: String,
    texts: Vec<TaggedText>,
    /// The files that they were read from.
    files: Vec<String>,
    /// Where each is in these files; nothing of texts that were read from none.
    places: Vec<Place>,
    read_as: ReadOptions,
    repaired: usize,
}

/// Where a text is.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Place {
    file: usize,
    at: At,
}

/// Where in its file a text is.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    /// In this line and those behind it: each word in a line.
    LineOfFirst(u64),
    /// The whole is in this line, or begins there and has others between its words.
    Line(u64),
    /// The record of this number, of files that have no lines.
    Record(u64),
}

impl TaggedTexts {
    /// These texts; `name` is what messages call them.
    pub fn new(name: &str, texts: impl Into<Vec<TaggedText>>) -> Self {
        Self {
            name: name.to_owned(),
            texts: texts.into(),
            files: Vec::new(),
            places: Vec::new(),
            read_as: ReadOptions::default(),
            repaired: 0,
        }
    }

    /// Texts of a file, each with its place.
    fn placed(file: &TextFile, texts: impl IntoIterator<Item = (TaggedText, At)>) -> Self {
        let mut found = Self { files: vec![file.name()], ..Self::new(&file.name(), []) };
        for (text, at) in texts {
            found.texts.push(text);
            found.places.push(Place { file: 0, at });
        }
        found
    }

    /// The records of a file, in its order.
    pub(super) fn of_records(file: &TextFile, texts: Vec<TaggedText>) -> Self {
        Self::placed(file, texts.into_iter().zip((1..).map(At::Record)))
    }

    /// The texts of both, these first.
    pub(super) fn and(mut self, other: Self) -> Self {
        // Without places of the one, those of the other would be of the wrong texts.
        let placed = self.places.len() == self.texts.len() && other.places.len() == other.texts.len();
        let files = self.files.len();
        self.texts.extend(other.texts);
        self.files.extend(other.files);
        self.places.extend(other.places.into_iter().map(|place| Place { file: files + place.file, ..place }));
        if !placed {
            self.places.clear();
        }
        self
    }

    /// As these options say they were read, under this name.
    pub(super) fn read_by(self, name: &str, read_as: ReadOptions) -> Self {
        Self { name: name.to_owned(), read_as, ..self }
    }

    /// Rewrites tags that break the scheme, as conlleval reads them: that of texts that were read before, or the one that the fewest texts
    /// break. Returns that scheme.
    pub(super) fn repair(&mut self, known: Option<Tagging>, set: Option<TagScheme>) -> Tagging {
        let tagging = known.unwrap_or_else(|| {
            let all: Vec<&[String]> = self.texts.iter().map(|text| &*text.tags).collect();
            Found::of(&all, set).tagging
        });
        for text in &mut self.texts {
            if let Some(tags) = tagging.repaired(&text.tags) {
                self.repaired += tags.iter().zip(&text.tags).filter(|(tag, before)| tag != before).count();
                text.tags = tags;
            }
        }
        tagging
    }

    /// A word a line, in columns as in the CoNLL shared tasks: the word in the first one, its tag in the last one. Blank lines end a
    /// text. If most of the first lines have a tab, tabs alone separate columns, else spaces and tabs. Lines of `-DOCSTART-`, which say
    /// in CoNLL-2003 that a document begins, are left out.
    ///
    /// CoNLL-U is known by a name that ends with `.conllu`, or by ten columns between tabs with numbers in the first: the words are forms, the
    /// tags `upos`; comments, ranges of words and empty nodes are left out. If the first of other columns numbers the words, the second has
    /// the words, and the first one with tags of a scheme the tags.
    ///
    /// # Errors
    /// If the file cannot be read, has no text, has fewer than two columns, or a line with more or fewer columns than most.
    #[track_caller]
    pub fn of_columns(file: &TextFile) -> Result<Self> {
        Columns::of(file, None, None, None, None)
            .and_then(|columns| Self::of_these(&columns, file))
            .at_caller()
    }

    /// The texts in these columns of a file.
    pub(super) fn of_these(columns: &Columns, file: &TextFile) -> Result<Self> {
        let of = |Sentence { line, dense, words, tags }| {
            let at = if dense { At::LineOfFirst(line) } else { At::Line(line) };
            (TaggedText { words, tags, label: None }, at)
        };
        Ok(Self::placed(file, columns.sentences(file)?.into_iter().map(of)))
    }

    /// Parallel files: the words of a text a line, between spaces and tabs; the tags of these words in the same line of the second file;
    /// and in the third, if there is one, what the text is. A line that is blank in all of them is no text.
    ///
    /// # Errors
    /// If a file cannot be read or has no line; if one ends before the others, or in a line there are more or fewer tags than words, no
    /// label, or a label alone: the message has the file and the line.
    #[track_caller]
    pub fn of_parallel(words: &TextFile, tags: &TextFile, labels: Option<&TextFile>) -> Result<Self> {
        Self::parallel(words, tags, labels).at_caller()
    }

    fn parallel(words: &TextFile, tags: &TextFile, labels: Option<&TextFile>) -> Result<Self> {
        let read = |file: &TextFile| -> Result<Vec<String>> {
            let lines = file.lines()?.read_all()?;
            let broken =
                lines.iter().zip(1..).find_map(|(line, number)| Some((unbroken(line).err()?, number)));
            match broken {
                None => Ok(lines),
                Some((Reason { expected, got }, number)) => {
                    Err(Error::of(ErrorKind::Format, format!("{}:{number}", file.name()), expected, got))
                }
            }
        };
        let lines = read(words)?;
        let of = |file: &TextFile| -> Result<Vec<String>> {
            let found = read(file)?;
            if found.len() == lines.len() {
                return Ok(found);
            }
            let what = format!("lines of file `{}`", file.name());
            let expected = format!("{}, as many as `{}` has", lines.len(), words.name());
            Err(Error::of(ErrorKind::Format, what, expected, found.len().to_string()))
        };
        let (tag_lines, label_lines) = (of(tags)?, labels.map(of).transpose()?);
        let mut texts = Vec::with_capacity(lines.len());
        for (at, (line, tag_line)) in lines.iter().zip(&tag_lines).enumerate() {
            let cut = |line: &str| TaggedText::words_of(line).map(str::to_owned).collect::<Vec<_>>();
            let text = TaggedText { words: cut(line), tags: cut(tag_line), label: None };
            let wrong = |file: &TextFile, expected: String, got: String| {
                Error::of(ErrorKind::Format, format!("{}:{}", file.name(), at + 1), expected, got)
            };
            let label = label_lines.as_ref().map(|found| found[at].trim());
            if text.words.is_empty() && text.tags.is_empty() && label.unwrap_or_default().is_empty() {
                continue;
            }
            if text.words.len() != text.tags.len() {
                let expected = format!("{} tags, one for each word of {}", text.words.len(), shown(line));
                return Err(wrong(tags, expected, text.tags.len().to_string()));
            }
            match (label, labels) {
                (Some(""), Some(file)) => return Err(wrong(file, "a label".into(), "a blank line".into())),
                (Some(label), _) if text.words.is_empty() => {
                    let expected = format!("words, of which the label is {}", shown(label));
                    return Err(wrong(words, expected, "a blank line".into()));
                }
                _ => {
                    let label = label.map(str::to_owned);
                    texts.push((TaggedText { label, ..text }, At::Line(at as u64 + 1)))
                }
            }
        }
        Ok(Self { name: words.name(), ..Self::placed(tags, texts) })
    }

    /// What messages call them.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Each of them.
    pub fn texts(&self) -> &[TaggedText] {
        &self.texts
    }

    /// The format and the columns that [`Self::open`] found, and all that it was told: other parts of the same data set are read so.
    pub fn read_as(&self) -> &ReadOptions {
        &self.read_as
    }

    /// Whether each text has a label.
    pub fn labelled(&self) -> bool {
        self.texts.iter().all(|text| text.label.is_some())
    }

    /// How many tags `ReadOptions::repair_tags` has rewritten; of a part that is held out, they count in the other part.
    pub fn repaired(&self) -> usize {
        self.repaired
    }

    /// Holds out about one in so many, by the words and the seed alone: equal texts are on one side. The rest comes first.
    #[must_use]
    pub fn hold_out(self, one_in: u64, seed: u64) -> (Self, Self) {
        let Self { name, texts, files, places, read_as, repaired } = self;
        let numbered: Vec<(usize, TaggedText)> = texts.into_iter().enumerate().collect();
        let words = |f, (_, text): &(usize, TaggedText)| {
            text.words.iter().fold(f, |f: Fingerprint, word| f.text(word))
        };
        let (rest, held) = hold_out(numbered, one_in, seed, words);
        let part = |name: String, part: Vec<(usize, TaggedText)>, repaired: usize| {
            let places = part.iter().filter_map(|(at, _)| places.get(*at).copied()).collect();
            let texts = part.into_iter().map(|(_, text)| text).collect();
            Self { name, texts, files: files.clone(), places, read_as: read_as.clone(), repaired }
        };
        let held = part(held_name(&name), held, 0);
        (part(name, rest, repaired), held)
    }

    /// The words, in the form that `form` gives them.
    ///
    /// # Errors
    /// As [`Vocabulary::of`].
    #[track_caller]
    pub fn words(&self, form: impl Fn(&str) -> String, limits: &Limits) -> Result<Vocabulary> {
        let words = self.texts.iter().flat_map(|text| text.words.iter().map(|word| form(word)));
        Vocabulary::of(words, limits).map_err(|e| e.noted(format!("in `{}`", self.name))).at_caller()
    }

    /// The characters of the words.
    ///
    /// # Errors
    /// As [`Vocabulary::of`].
    #[track_caller]
    pub fn characters(&self, limits: &Limits) -> Result<Vocabulary> {
        let words = self.texts.iter().flat_map(|text| &text.words);
        let characters = words.flat_map(|word| word.chars().map(String::from));
        Vocabulary::of(characters, limits).map_err(|e| e.noted(format!("in `{}`", self.name))).at_caller()
    }

    /// The tags of all these texts, sorted, with their counts.
    ///
    /// # Errors
    /// If there is none.
    #[track_caller]
    pub fn tags<'a>(all: impl IntoIterator<Item = &'a TaggedTexts>) -> Result<Vocabulary> {
        let texts = all.into_iter().flat_map(|of| &of.texts);
        Vocabulary::labels(texts.flat_map(|text| &text.tags))
    }

    /// The scheme that the tags of all these texts keep, or that `ReadOptions::scheme` sets, and how they are spelled.
    ///
    /// # Errors
    /// If some texts break it: the message has the file and the line of the first one, and how many there are.
    #[track_caller]
    pub fn scheme<'a>(all: impl IntoIterator<Item = &'a TaggedTexts>) -> Result<Tagging> {
        let all: Vec<&TaggedTexts> = all.into_iter().collect();
        let sentences: Vec<&[String]> =
            all.iter().flat_map(|of| &of.texts).map(|text| text.tags.as_slice()).collect();
        let place = |mut at: usize, word: usize| {
            for of in &all {
                if at < of.texts.len() {
                    return of.place(at, word);
                }
                at -= of.texts.len();
            }
            "tags".to_owned()
        };
        let set = all.iter().find_map(|of| of.read_as.scheme);
        Found::of(&sentences, set).whole(&sentences, place).at_caller()
    }

    /// Where the word of a text is, for messages.
    fn place(&self, text: usize, word: usize) -> String {
        let place = self.places.get(text).and_then(|place| Some((self.files.get(place.file)?, place)));
        match place {
            Some((file, Place { at: At::LineOfFirst(line), .. })) => format!("{file}:{}", line + word as u64),
            Some((file, Place { at: At::Line(line), .. })) => format!("{file}:{line}"),
            Some((file, Place { at: At::Record(number), .. })) => {
                format!("tags of record {number} of `{file}`")
            }
            None => format!("tags of text {} of `{}`", text + 1, self.name),
        }
    }

    /// The labels of all these texts, sorted, with their counts.
    ///
    /// # Errors
    /// If no text has one.
    #[track_caller]
    pub fn labels<'a>(all: impl IntoIterator<Item = &'a TaggedTexts>) -> Result<Vocabulary> {
        let all: Vec<&TaggedTexts> = all.into_iter().collect();
        let labels = || all.iter().flat_map(|of| &of.texts).filter_map(|text| text.label.as_deref());
        if labels().next().is_none() && !all.is_empty() {
            let names: Vec<String> = all.iter().map(|of| format!("`{}`", of.name)).collect();
            let what = format!("labels of the texts of {}", names.join(" and "));
            return Err(Error::of(ErrorKind::Format, what, "one for each text", "none at all"));
        }
        Vocabulary::labels(labels())
    }

    /// Samples of the numbers of the words, of the characters of each word, of the tags, and of the label if there is a vocabulary for
    /// it.
    ///
    /// # Errors
    /// If there is no text, or a word, a character, a tag or a label that its vocabulary does not have.
    #[track_caller]
    pub fn samples(
        &self,
        form: impl Fn(&str) -> String,
        words: &Vocabulary,
        characters: &Vocabulary,
        tags: &Vocabulary,
        labels: Option<&Vocabulary>,
    ) -> Result<Samples> {
        if self.texts.is_empty() {
            let what = format!("texts of `{}`", self.name);
            return Err(Error::of(ErrorKind::Format, what, "at least one", "none"));
        }
        let sample = |text: &TaggedText| {
            let of = |e: Error, what: &str| {
                e.noted(format!("{what} of {} in `{}`", shown(&text.words.join(" ")), self.name))
            };
            let mut fields = fields(&text.words, &form, words, characters).map_err(|e| of(e, "a word"))?;
            fields.push(tags.ids(&text.tags).map_err(|e| of(e, "a tag"))?.into());
            if let Some(labels) = labels {
                let label = text.label.as_deref().unwrap_or_default();
                fields.push(labels.lookup(label).map_err(|e| of(e, "the label"))?.into());
            }
            Ok(fields)
        };
        self.texts.iter().map(sample).collect::<Result<_>>().at_caller()
    }
}

/// What a tagger reads of words: their numbers in the form that `form` gives them, and the numbers of their characters.
fn fields(
    text: &[String],
    form: impl Fn(&str) -> String,
    words: &Vocabulary,
    characters: &Vocabulary,
) -> Result<Vec<Field>> {
    let ids = words.ids(text.iter().map(|word| form(word)))?;
    let spelt = |word: &String| characters.ids(word.chars().map(String::from));
    Ok(vec![Field::Ints(ids), Field::Nested(text.iter().map(spelt).collect::<Result<_>>()?)])
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
        assert_eq!(texts.texts().len(), 2);
        assert_eq!(
            (texts.texts()[0].tags[2].as_str(), texts.texts()[1].label.as_deref()),
            ("B-genre", Some("Stop"))
        );
        assert!(texts.labelled());
        let of = |tags: &'static str, labels: &'static str| {
            TaggedTexts::of_parallel(&words, &file("seq.out", tags), Some(&file("label", labels)))
        };
        refused(
            of("O O\n\nO\n", "a\n\nc\n"),
            "seq.out:1: expected 3 tags, one for each word of \"play some jazz \", got 2",
        );
        refused(
            of("O O O\n\nO\n", "a\nb\n"),
            "lines of file `label`: expected 3, as many as `seq.in` has, got 2",
        );
        refused(
            of("O O O\n\n", "a\nb\nc\n"),
            "lines of file `seq.out`: expected 3, as many as `seq.in` has, got 2",
        );
        refused(of("O O O\n\nO\n", "a\n\n \n"), "label:3: expected a label, got a blank line");
        refused(
            of("O O O\n\nO\n", "a\nb\nc\n"),
            "seq.in:2: expected words, of which the label is \"b\", got a blank line",
        );
        refused(
            of("O O O\nO\nO\n", "a\n\nc\n"),
            "seq.out:2: expected 0 tags, one for each word of \"\", got 1",
        );
    }

    #[test]
    fn carriage_returns_alone_end_no_line() {
        let expected = "expected lines that end with a line feed, got a carriage return inside \"a O\\rb O\"";
        refused(TaggedTexts::of_columns(&file("c.txt", "a O\rb O\r")), &format!("c.txt:1: {expected}"));
        let mixed = TaggedTexts::of_columns(&file("c.txt", "x O\r\n\r\na O\r\r\nb O\n")).unwrap();
        assert_eq!(mixed.texts()[1].words, ["a", "b"]);
        let (words, tags) = (file("seq.in", "a\nb c\n"), file("seq.out", "O\nO\rO\n"));
        refused(
            TaggedTexts::of_parallel(&words, &tags, None),
            "seq.out:2: expected lines that end with a line feed, got a carriage return inside \"O\\rO\"",
        );
    }

    #[test]
    fn texts_without_labels_are_named() {
        let texts = TaggedTexts::of_columns(&file("c.txt", "a O\n")).unwrap();
        let error = TaggedTexts::labels([&texts]).unwrap_err().to_string();
        let expected = "labels of the texts of `c.txt`: expected one for each text, got none at all";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn columns_are_those_of_most_lines() {
        let read = |text: &'static str| TaggedTexts::of_columns(&file("c.txt", text));
        let texts = read("\n\na x O\nb y B-A\n\nc z O\n").unwrap();
        assert_eq!(texts.texts()[0].tags, ["O", "B-A"]);
        assert!(!texts.labelled());
        refused(read("a O\nb\n"), "c.txt:2: expected 2 columns, got 1 in \"b\"");
        refused(
            read("a\nb\n"),
            "columns of file `c.txt`: expected at least two, a word and its tag, got one in its first lines",
        );
        refused(read("\n"), "records of file `c.txt`: expected at least one, got none");
    }

    #[test]
    fn tags_that_break_the_scheme_have_their_line() {
        let one = TaggedTexts::of_columns(&file("one.txt", "a B-X\nb I-X\n\nc B-X\n")).unwrap();
        let other = TaggedTexts::of_columns(&file("other.txt", "\nd O\n\n\ne O\nf I-X\ng I-Y\n")).unwrap();
        let expected =
            "other.txt:6: expected a tag of IOB2, which 3 of 4 sentences keep, got `I-X` behind `O`";
        let said =
            |all: &[&TaggedTexts]| format!("{:#}", TaggedTexts::scheme(all.iter().copied()).unwrap_err());
        assert!(said(&[&one, &other]).starts_with(expected), "{}", said(&[&one, &other]));
        // Also of a part that is held out, and of several files together.
        let (rest, held) = other.clone().hold_out(2, 1);
        assert!(said(&[&one, &rest, &held]).starts_with(expected));
        let mut all = one.and(other);
        assert!(said(&[&all]).starts_with(expected));
        let scheme = all.repair(None, None);
        assert_eq!((scheme.name().as_str(), all.repaired()), ("IOB2", 2));
        assert_eq!(all.texts()[3].tags, ["O", "B-X", "B-Y"]);
        assert_eq!(TaggedTexts::scheme([&all]).unwrap(), scheme);
        let (words, tags) = (file("seq.in", "a\nb c\n"), file("seq.out", "B-X\nO I-X\n"));
        let texts = TaggedTexts::of_parallel(&words, &tags, None).unwrap();
        assert!(said(&[&texts]).starts_with("seq.out:2: expected a tag of IOB2"), "{}", said(&[&texts]));
    }

    #[test]
    fn tags_and_labels_are_counted() {
        let (words, tags) = (file("seq.in", "a b\nc\n"), file("seq.out", "O B-X\nO\n"));
        let texts = TaggedTexts::of_parallel(&words, &tags, Some(&file("label", "A\nA\n"))).unwrap();
        let tags = TaggedTexts::tags([&texts]).unwrap();
        assert_eq!((tags.count(0), tags.count(1), tags.token(1)), (1, 2, Some("O")));
        assert_eq!(TaggedTexts::labels([&texts]).unwrap().count(0), 2);
    }

    #[test]
    fn a_text_is_held_out_by_its_words_and_the_seed() {
        let texts = TaggedTexts::of_columns(&file("c.txt", "a O\n\nb O\n\nc O\n\nd O\n\na O\n")).unwrap();
        let (rest, held) = texts.clone().hold_out(2, 1);
        assert_eq!(rest.texts().len() + held.texts().len(), 5);
        assert!(!rest.texts().iter().any(|text| held.texts().contains(text)));
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
        let error = other.samples(str::to_uppercase, &words, &characters, &tags, None).unwrap_err();
        assert_eq!(format!("{error:#}"), "token: expected one of `O`, got `B-A`; a tag of \"ax\" in `d.txt`");
    }
}
