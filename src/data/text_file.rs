//! Files of text, and readers of their records.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::Fingerprint;
use super::archive::{Bytes, Member, Origin, Wrapping};
use super::encoding::Encoding;
use super::head::Head;
use super::kind;
use super::libsvm::{FirstIndex, LabelledRow, LibsvmLine};
use super::lines::{Lines, quoted};
#[cfg(feature = "parquet")]
use super::memory::Usage;
use super::records::{
    Block, ColumnSpec, LabelledText, MalformedLines, OneLine, Pair, Parser, Records, Stream, at_least_one,
    labelled, pair, translation,
};
use crate::error::{AtCaller, Error, ErrorKind, Result};

/// A file of text, plain or compressed with gzip or zip; UTF-8 unless [`Self::encoding`] is set.
///
/// ```
/// use unpadded::data::TextFile;
/// let file = TextFile::embedded("reviews.tsv", "a fine film\t1\n\na dull one\t0\n");
/// let reviews = file.labelled()?.read_all()?;
/// assert_eq!((reviews.len(), reviews[1].text.as_str(), reviews[1].label.as_str()), (2, "a dull one", "0"));
///
/// let file = TextFile::embedded("reviews.tsv", "a fine film\t1\na dull one 0\n");
/// let message = file.labelled()?.read_all().unwrap_err().to_string();
/// let said = "reviews.tsv:2: expected text, one tab and a label, got no tab in \"a dull one 0\"";
/// assert!(message.starts_with(said), "{message}");
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TextFile {
    origin: Origin,
    member: Option<Member>,
    /// The name of the list that [`Self::member`] chose in a JSON file that is one object.
    list: Option<Arc<str>>,
    /// Whether the file may be an HTML page or an XML document.
    markup: bool,
    encoding: Encoding,
    /// Whether the encoding was detected, and is not UTF-8.
    guessed: bool,
    malformed: MalformedLines,
    max_line: usize,
    max_text: usize,
    head: Head,
}

impl TextFile {
    /// Default of [`Self::max_line`]: 16 MiB.
    pub const MAX_LINE: usize = 1 << 24;
    /// Default of [`Self::max_text`]: 1 GiB.
    pub const MAX_TEXT: usize = 1 << 30;

    /// Opens a file; its contents are not read yet. A later read is an error if the file has changed since this call.
    ///
    /// # Errors
    /// If there is no such file, or the path is a folder, a pipe or a device, which cannot be read repeatedly.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Origin::file(path.as_ref()).map(|origin| Self::of(origin, None)).at_caller()
    }

    /// A file embedded in the program, from `include_str!` or `include_bytes!`; `name` is its name in errors.
    pub fn embedded(name: &str, contents: &'static (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::of(Origin::Embedded { name: name.into(), bytes: contents.as_ref() }, None)
    }

    pub(super) fn of(origin: Origin, member: Option<Member>) -> Self {
        Self {
            origin,
            member,
            list: None,
            markup: false,
            encoding: Encoding::default(),
            guessed: false,
            malformed: MalformedLines::default(),
            max_line: Self::MAX_LINE,
            max_text: Self::MAX_TEXT,
            head: Head::default(),
        }
    }

    /// Chooses a member: a file of a zip, or a list of a JSON file that is one object. `FILE!LIST` chooses a list of a file in
    /// a zip.
    ///
    /// # Errors
    /// If the file is neither a zip nor a JSON object, or is damaged; if a zip has no such file: the message lists some of
    /// its files. A missing list is an error only when the records are read.
    #[track_caller]
    pub fn member(mut self, name: &str) -> Result<Self> {
        if self.member.is_some() || self.origin.wrapping().at_caller()? != Wrapping::Zip {
            if !self.is_object().at_caller()? {
                let what = format!("member `{name}` of file `{}`", self.name());
                let expected = "a zip, or a JSON file that is one object";
                return Err(Error::of(ErrorKind::Format, what, expected, "a file of another kind"));
            }
            self.list = Some(name.into());
            return Ok(self);
        }
        let members = self.origin.members().at_caller()?;
        let find = |name: &str| members.iter().find(|member| &*member.name == name).cloned();
        match (find(name), name.rsplit_once('!').and_then(|(file, list)| Some((find(file)?, list)))) {
            (Some(member), _) => (self.member, self.head) = (Some(member), Head::default()),
            (None, Some((member, list))) => {
                (self.member, self.head) = (Some(member), Head::default());
                return self.member(list);
            }
            _ => return Err(self.which(&members, &format!("`{name}`"))),
        }
        Ok(self)
    }

    /// Returns whether the file begins with a JSON object.
    fn is_object(&self) -> Result<bool> {
        const LOOKED_AT: u64 = 1 << 10;
        let ((name, bytes), mut first) = (self.sample()?, Vec::new());
        let read = bytes.take(LOOKED_AT).read_to_end(&mut first);
        read.map_err(|e| super::lines::broken(format!("file `{name}`"), &e))?;
        let first = first.strip_prefix(super::lines::MARK).unwrap_or(&first);
        Ok(first.trim_ascii_start().starts_with(b"{"))
    }

    /// The chosen list of a JSON file that is one object.
    pub(super) fn list(&self) -> Option<&str> {
        self.list.as_deref()
    }

    #[track_caller]
    fn which(&self, members: &[Member], got: &str) -> Error {
        let expected = match members {
            [] => "a file in it".to_owned(),
            _ => format!("one of {}", quoted(members.iter().map(|member| &*member.name))),
        };
        Error::of(ErrorKind::Format, format!("member of zip `{}`", self.origin.name()), expected, got)
    }

    /// Opens the file. In a zip, chooses the member if there is only one besides notes, whose names begin with `_`. The flag
    /// is true for a zip with several members of which none was chosen.
    pub(super) fn chosen(mut self) -> Result<(Self, bool)> {
        if self.member.is_some() {
            return Ok((self, false));
        }
        match self.origin.bytes()? {
            (Wrapping::Zip, _) => {
                let mut members = self.origin.members()?;
                let several = members.len() > 1;
                members.retain(|member| {
                    !member.name.rsplit('/').next().is_some_and(|name| name.starts_with('_'))
                });
                self.member = if members.len() == 1 { members.pop() } else { None };
                let several = several && self.member.is_none();
                Ok((self, several))
            }
            (_, bytes) => {
                self.head = Head::new(self.name().into(), bytes);
                Ok((self, false))
            }
        }
    }

    /// The same file, opened anew when it is read.
    pub(super) fn reopened(&self) -> Self {
        Self { head: Head::default(), ..self.clone() }
    }

    /// Closes the file that detection has opened.
    pub(super) fn close(&mut self) {
        self.head = Head::default();
    }

    /// Sets whether the file may be an HTML page or an XML document, as a text that is a whole file may be.
    pub(super) fn markup(mut self, may: bool) -> Self {
        self.markup = may;
        self
    }

    /// Sets the encoding.
    #[must_use]
    pub fn encoding(mut self, encoding: Encoding) -> Self {
        self.encoding = encoding;
        self
    }

    /// Marks the encoding as a guess.
    pub(super) fn guessed(self) -> Self {
        Self { guessed: true, ..self }
    }

    /// A note for the user on the encoding; `None` if the encoding was not guessed.
    pub(super) fn encoding_note(&self) -> Option<String> {
        let why = match self.encoding {
            Encoding::Windows1252 => "since the bytes beyond ASCII are no UTF-8",
            _ => "as the byte order mark says",
        };
        let name = self.encoding.name();
        self.guessed
            .then(|| format!("encoding {name}, {why}; `encoding` (`data.encoding` in a config) sets another"))
    }

    /// Malformed lines: an error, skipped, or collected (default: [`MalformedLines::Error`]).
    #[must_use]
    pub fn malformed(mut self, policy: MalformedLines) -> Self {
        self.malformed = policy;
        self
    }

    /// Sets the maximum length of a line, in bytes; a longer line is malformed, and is never held in memory.
    #[must_use]
    pub fn max_line(mut self, bytes: usize) -> Self {
        self.max_line = bytes;
        self
    }

    /// Sets the maximum length of the text that [`Self::text`] reads, in bytes.
    #[must_use]
    pub fn max_text(mut self, bytes: usize) -> Self {
        self.max_text = bytes;
        self
    }

    /// The name in messages: the path and, behind a `!`, the name in a zip or the name of a list in JSON.
    pub fn name(&self) -> String {
        let name = match &self.member {
            Some(member) => format!("{}!{}", self.origin.name(), member.name),
            None => self.origin.name(),
        };
        // A name is within one line of a message.
        let name = name.replace('\n', "\\n");
        match &self.list {
            Some(list) => format!("{name}!{list}"),
            None => name,
        }
    }

    /// The fingerprint of the file's bytes and of the settings for reading. This call reads the whole file.
    ///
    /// # Errors
    /// If the file cannot be read.
    #[track_caller]
    pub fn fingerprint(&self) -> Result<u64> {
        let f = Fingerprint::default().number(self.origin.fingerprint().at_caller()?);
        let f = self.member.as_ref().map_or(f, |member| f.text(&member.name));
        let f = self.list.as_ref().map_or(f, |list| f.text(list));
        let f = match self.encoding {
            Encoding::Utf8 => f.number(0),
            Encoding::Latin1 => f.number(1),
            Encoding::Windows1252 => f.number(2),
            Encoding::Named(_) => f.number(3).text(self.encoding.name()),
        };
        Ok(f.number(self.malformed as u64).number(self.max_line as u64).finish())
    }

    /// The unpacked bytes, and their name in messages. Continues the file that detection has opened.
    pub(super) fn bytes(&self) -> Result<(Arc<str>, Bytes)> {
        self.checked(self.raw()?)
    }

    /// The unpacked bytes as in [`Self::bytes`], but in the encoding of the file.
    fn raw(&self) -> Result<(Arc<str>, Bytes)> {
        self.head.take().map_or_else(|| self.opened(), Ok)
    }

    /// The first bytes, to detect the kind of file; [`Self::bytes`] returns them again.
    pub(super) fn sample(&self) -> Result<(Arc<str>, Bytes)> {
        self.checked(self.raw_sample()?)
    }

    /// The first bytes as in [`Self::sample`], but in the encoding of the file, which is detected from them.
    pub(super) fn raw_sample(&self) -> Result<(Arc<str>, Bytes)> {
        self.head.sample(|| self.opened())
    }

    fn checked(&self, (name, bytes): (Arc<str>, Bytes)) -> Result<(Arc<str>, Bytes)> {
        let bytes = self.encoding.decoded(bytes);
        let bytes = if self.markup { bytes } else { kind::no_markup(&name, bytes)? };
        Ok((name, bytes))
    }

    /// The first lines, for detection.
    pub(super) fn first_lines(&self) -> Result<Lines> {
        let (name, bytes) = self.sample()?;
        Ok(self.lines_in(name, bytes))
    }

    fn opened(&self) -> Result<(Arc<str>, Bytes)> {
        let mut file = self.clone();
        if file.member.is_none() {
            let (wrapping, bytes) = file.origin.bytes()?;
            if wrapping != Wrapping::Zip {
                return Ok((file.name().into(), bytes));
            }
            let members = file.origin.members()?;
            match &members[..] {
                [only] => file.member = Some(only.clone()),
                [] => return Err(file.which(&members, "none")),
                _ => {
                    let got = format!("{}: unpack the one meant", members.len());
                    return Err(file.which(&members, &got));
                }
            }
        }
        let bytes = match &file.member {
            Some(member) => file.origin.member(member)?,
            None => file.origin.bytes()?.1,
        };
        Ok((file.name().into(), bytes))
    }

    /// The share of the file's bytes that the latest reader has read, from 0 to 1; `None` for a file in a zip.
    pub(super) fn share(&self) -> Option<f32> {
        if self.member.is_some() { None } else { self.origin.share() }
    }

    /// The opened file, for random access; `None` if it is compressed.
    #[cfg(feature = "parquet")]
    pub(super) fn plain(&self) -> Result<Option<std::fs::File>> {
        if self.member.is_some() { Ok(None) } else { self.origin.plain() }
    }

    /// All unpacked bytes of the file; an error if there are more than [`Self::max_text`].
    #[cfg(feature = "parquet")]
    pub(super) fn contents(&self) -> Result<Vec<u8>> {
        const PIECE: u64 = 1 << 20;
        let ((name, bytes), mut contents, mut room) = (self.raw()?, Vec::new(), Usage::default());
        let mut bytes = bytes.take((self.max_text as u64).saturating_add(1));
        loop {
            let read = bytes.by_ref().take(PIECE).read_to_end(&mut contents);
            let read = read.map_err(|e| super::lines::broken(format!("file `{name}`"), &e))?;
            room.read(read, || format!("file `{name}`"))?;
            if read == 0 {
                break;
            }
        }
        if contents.len() > self.max_text {
            let expected = format!("at most {} bytes in gzip or zip, or a file without them", self.max_text);
            return Err(Error::of(ErrorKind::Format, format!("file `{name}`"), expected, "more"));
        }
        Ok(contents)
    }

    /// The lines of these bytes, read with the settings of this file.
    pub(super) fn lines_in(&self, name: Arc<str>, bytes: Bytes) -> Lines {
        Lines::new(name, bytes, self.encoding, self.max_line).guessed(self.guessed)
    }

    /// Maximum length in bytes of a record that is not a line, such as an element of a JSON list.
    pub(super) fn longest_record(&self) -> usize {
        self.max_line
    }

    /// The encoding, and whether it is a guess.
    pub(super) fn characters(&self) -> (Encoding, bool) {
        (self.encoding, self.guessed)
    }

    /// The policy of malformed lines.
    pub(super) fn policy(&self) -> MalformedLines {
        self.malformed
    }

    pub(super) fn lines_of(&self) -> Result<Lines> {
        let (name, bytes) = self.bytes()?;
        if self.list.is_some() {
            let expected = "a file of lines, or the format `jsonl`";
            return Err(Error::of(ErrorKind::Format, format!("file `{name}`"), expected, "a list in JSON"));
        }
        Ok(self.lines_in(name, bytes))
    }

    #[track_caller]
    pub(super) fn records<R>(&self, parser: impl Parser<R> + 'static) -> Result<Records<R>> {
        Ok(Records::new(self.lines_of().at_caller()?, Box::new(parser), self.malformed))
    }

    /// The first records, for detection: all records within the bytes that detection reads.
    pub(super) fn first_records<R>(&self, parser: impl Parser<R> + 'static) -> Result<Records<R>> {
        Ok(Records::new(self.first_lines()?, Box::new(parser), self.malformed))
    }

    /// Reads lines of `text<TAB>label`; blank lines are skipped.
    ///
    /// # Errors
    /// If the file cannot be opened; a malformed line is an item of the iterator.
    #[track_caller]
    pub fn labelled(&self) -> Result<Records<LabelledText>> {
        self.records(OneLine(labelled))
    }

    /// Reads lines of `source<TAB>target`; blank lines are skipped.
    ///
    /// # Errors
    /// If the file cannot be opened; a malformed line is an item of the iterator.
    #[track_caller]
    pub fn pairs(&self) -> Result<Records<Pair>> {
        self.records(OneLine(pair))
    }

    /// Reads lines of `source<TAB>target`, perhaps with a third column, which is skipped, such as the authors in files of
    /// Tatoeba. Blank lines are skipped.
    ///
    /// # Errors
    /// If the file cannot be opened; a malformed line is an item of the iterator.
    #[track_caller]
    pub fn translations(&self) -> Result<Records<Pair>> {
        self.records(OneLine(translation))
    }

    /// Reads sentences with a token per line and its tags in columns, as in the CoNLL shared tasks; blank lines end a sentence.
    /// A sentence is a list of its columns, all of one length: `sentence[column][token]`.
    ///
    /// ```
    /// use unpadded::data::{ColumnSpec, TextFile};
    /// let file = TextFile::embedded("chunks.txt", "He PRP B-NP\nruns VBZ B-VP\n\nStop VB B-VP\n");
    /// let sentences = file.columns(ColumnSpec::default().columns(3))?.read_all()?;
    /// assert_eq!(sentences[0], [["He", "runs"], ["PRP", "VBZ"], ["B-NP", "B-VP"]]);
    /// assert_eq!(sentences[1][2], ["B-VP"]);
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be opened; a malformed line is an item of the iterator.
    #[track_caller]
    pub fn columns(&self, spec: ColumnSpec) -> Result<Records<Vec<Vec<String>>>> {
        self.records(Block::new(move |sentence: &mut Vec<Vec<String>>, line: &str| spec.add(sentence, line)))
    }

    /// Reads sparse rows as in LIBSVM and SVMlight: lines of `label index:value index:value …`, perhaps with `qid:n` behind
    /// the label and a comment behind `#`; blank lines are skipped. In the file, the indices of a row may be in any order;
    /// in the records, they ascend and count from 0. Values are rounded to `f32`.
    ///
    /// A line is malformed if its label is no finite number, or consists of several numbers, such as `1,3`; if an index is
    /// repeated, is no whole number or is below the first; if a value is not finite in `f32`. The message has the pair's
    /// number in the line, counted from 1 and without `qid`.
    ///
    /// ```
    /// use unpadded::data::{FirstIndex, TextFile};
    /// let rows = TextFile::embedded("bags.txt", "+1 7:0.5 2:3 # unsorted\n-1 qid:4 1:1\n");
    /// let rows = rows.libsvm(FirstIndex::One)?.read_all()?;
    /// assert_eq!((rows[0].label, &rows[0].indices[..], &rows[0].values[..]), (1.0, &[1, 6][..], &[3.0, 0.5][..]));
    /// assert_eq!((rows[1].label, rows[1].query), (-1.0, Some(4)));
    ///
    /// let twice = TextFile::embedded("bags.txt", "1 7:1 2:1 7:2\n").libsvm(FirstIndex::One)?.read_all();
    /// let said = "bags.txt:1: expected each index once, got index 7 of pair 1 again in pair 3";
    /// assert!(twice.unwrap_err().to_string().starts_with(said));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// In a zip with several files, [`Self::member`] chooses one.
    ///
    /// # Errors
    /// If the file cannot be opened; a malformed line is an item of the iterator.
    #[track_caller]
    pub fn libsvm(&self, first: FirstIndex) -> Result<Records<LabelledRow>> {
        let mut lines = LibsvmLine::new(first);
        self.records(OneLine(move |line: &str| lines.row(line)))
    }

    /// Reads every line unchanged, including blank lines.
    ///
    /// # Errors
    /// If the file cannot be opened; a malformed line is an item of the iterator.
    #[track_caller]
    pub fn lines(&self) -> Result<Records<String>> {
        self.records(OneLine(|line: &str| Ok(Some(line.to_owned()))))
    }

    /// Reads documents with a sentence per line; blank lines end a document.
    ///
    /// # Errors
    /// If the file cannot be opened; a malformed line is an item of the iterator.
    #[track_caller]
    pub fn documents(&self) -> Result<Records<Vec<String>>> {
        self.records(Block::new(|document: &mut Vec<String>, line: &str| {
            document.push(line.to_owned());
            Ok(())
        }))
    }

    /// Reads the whole text, with `\n` as line ends. A malformed line is always an error, whatever [`Self::malformed`]
    /// sets.
    ///
    /// # Errors
    /// If the file cannot be read, is empty, has a malformed line, or is longer than [`Self::max_text`].
    #[track_caller]
    pub fn text(&self) -> Result<String> {
        self.pieces(Some(self.max_text)).and_then(Iterator::collect).at_caller()
    }

    /// The text in pieces, as [`Lines::pieces`]; an error if there is none.
    pub(super) fn pieces(&self, held: Option<usize>) -> Result<Stream<String>> {
        let lines = self.lines_of()?;
        let name = Arc::clone(&lines.name);
        let none = move || Error::of(ErrorKind::Format, format!("file `{name}`"), "text", "an empty file");
        Ok(at_least_one(lines.pieces(held), none))
    }

    /// Maximum length in bytes of a text that is held in memory.
    pub(super) fn longest_text(&self) -> usize {
        self.max_text
    }
}

#[cfg(test)]
mod tests;
