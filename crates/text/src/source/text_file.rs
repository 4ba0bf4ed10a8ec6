//! Text files, and readers of the records in them.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use unpadded::{AtCaller, Error, Result};

use super::archive::{Bytes, Member, Origin, Wrapping};
use super::encoding::Encoding;
use super::head::Head;
use super::kind;
use super::lines::{Lines, quoted};
use super::reason::wrong_format;
use super::records::{
    LabelledText, MalformedLines, OneLine, Pair, Parser, Records, Stream, at_least_one, labelled,
    to_first_error, translation,
};
use super::skipped::SkipLog;
use crate::format::libsvm::{FirstIndex, LabelledRow, LibsvmLine};
#[cfg(feature = "parquet")]
use crate::memory::Usage;

/// A text file, which may be compressed with gzip or zip, in UTF-8 unless [`Self::encoding`] sets another encoding.
///
/// ```
/// use unpadded_text::TextFile;
/// let file = TextFile::embedded("reviews.tsv", "a fine film\t1\n\na dull one\t0\n");
/// let reviews = file.labelled()?.read_all()?;
/// assert_eq!((reviews.len(), reviews[1].text.as_str(), reviews[1].label.as_str()), (2, "a dull one", "0"));
///
/// let file = TextFile::embedded("reviews.tsv", "a fine film\t1\na dull one 0\n");
/// let message = file.labelled()?.read_all().unwrap_err().to_string();
/// let shown = "reviews.tsv:2: expected text, one tab and a label, got no tab in \"a dull one 0\"";
/// assert!(message.starts_with(shown), "{message}");
/// # Ok::<(), unpadded::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct TextFile {
    origin: Origin,
    member: Option<Member>,
    /// The list that [`Self::member`] chose in a JSON file whose value is one object.
    pub(crate) list: Option<Arc<str>>,
    /// Whether the file may be an HTML page or an XML document; if not, an HTML page or an XML document is an error.
    markup: bool,
    encoding: Encoding,
    /// Whether the encoding was detected and is not UTF-8.
    pub(crate) guessed: bool,
    pub(crate) malformed: MalformedLines,
    /// The log of the malformed records that a pass over the records leaves out; `None` without a greatest share of them.
    pub(crate) skips: Option<Arc<SkipLog>>,
    pub(crate) skip_lines: u64,
    pub(crate) max_line: usize,
    max_text: usize,
    pub(crate) head: Head,
}

impl TextFile {
    /// The maximum length of a line: 16 MiB. A longer line is malformed and is never kept in memory.
    pub const MAX_LINE: usize = 1 << 24;
    /// The maximum length of the text that [`Self::text`] reads: 1 GiB.
    pub const MAX_TEXT: usize = 1 << 30;

    /// Opens a file without reading the contents. If the file changes after this call, reading it is an error.
    ///
    /// # Errors
    /// Fails if the file does not exist, or if the path is a folder, a pipe or a device. A pipe or a device can be read
    /// only once.
    #[track_caller]
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Origin::file(path.as_ref()).map(|origin| Self::of(origin, None)).at_caller()
    }

    /// Returns a file that is embedded by `include_str!` or `include_bytes!`; messages show `name` as its name.
    pub fn embedded(name: &str, contents: &'static (impl AsRef<[u8]> + ?Sized)) -> Self {
        Self::of(Origin::Embedded { name: name.into(), bytes: contents.as_ref() }, None)
    }

    pub(crate) fn of(origin: Origin, member: Option<Member>) -> Self {
        Self {
            origin,
            member,
            list: None,
            markup: false,
            encoding: Encoding::default(),
            guessed: false,
            malformed: MalformedLines::default(),
            skips: None,
            skip_lines: 0,
            max_line: Self::MAX_LINE,
            max_text: Self::MAX_TEXT,
            head: Head::default(),
        }
    }

    /// Chooses a file in a zip, or a list in a JSON file that is one object; `FILE!LIST` chooses a list in a zip.
    ///
    /// # Errors
    /// Fails if the file is neither a zip nor a JSON object, or is damaged; if the zip has no file with this name (the
    /// message lists some files of the zip). A JSON list that does not exist is an error only when the records are
    /// read.
    #[track_caller]
    pub fn member(mut self, name: &str) -> Result<Self> {
        if self.member.is_some() || self.origin.wrapping().at_caller()? != Wrapping::Zip {
            if !self.is_object().at_caller()? {
                let what = format!("member `{name}` of file `{}`", self.name());
                let expected = "a zip, or a JSON file that is one object";
                return Err(wrong_format(what, expected, "a file of another kind"));
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

    /// Returns whether the file is JSON that begins with an object.
    fn is_object(&self) -> Result<bool> {
        const LOOKED_AT: u64 = 1 << 10;
        let ((name, bytes), mut first) = (self.sample()?, Vec::new());
        let read = bytes.take(LOOKED_AT).read_to_end(&mut first);
        read.map_err(|e| super::lines::broken(format!("file `{name}`"), &e))?;
        let first = first.strip_prefix(super::lines::MARK).unwrap_or(&first);
        Ok(first.trim_ascii_start().starts_with(b"{"))
    }

    #[track_caller]
    fn which(&self, members: &[Member], got: &str) -> Error {
        let expected = match members {
            [] => "a file in the zip".to_owned(),
            _ => format!("one of {}", quoted(members.iter().map(|member| &member.name))),
        };
        wrong_format(format!("member of zip `{}`", self.origin.name()), expected, got)
    }

    /// Opens the file, and chooses the only file in a zip. Files in a zip with names that begin with `_` are notes and
    /// do not count. The returned flag is true for a zip with several files, of which none was chosen.
    pub(crate) fn chosen(mut self) -> Result<(Self, bool)> {
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

    /// Returns a copy that opens the file again when it is read.
    pub(crate) fn reopened(&self) -> Self {
        Self { head: Head::default(), ..self.clone() }
    }

    /// Closes the file that detection may have left open.
    pub(crate) fn close(&mut self) {
        self.head = Head::default();
    }

    /// Sets whether the file may be an HTML page or an XML document, for texts that are whole files.
    pub(crate) fn markup(self, may: bool) -> Self {
        Self { markup: may, ..self }
    }

    /// Sets the encoding of the file.
    #[must_use]
    pub fn encoding(self, encoding: Encoding) -> Self {
        Self { encoding, ..self }
    }

    /// Returns a note for the user about a detected encoding; `None` if the encoding was not detected.
    pub(crate) fn encoding_note(&self) -> Option<String> {
        let why = match self.encoding {
            Encoding::Windows1252 => "since the bytes beyond ASCII are no UTF-8",
            _ => "as the byte order mark says",
        };
        let name = self.encoding.name();
        self.guessed.then(|| {
            format!("encoding {name}, {why}; `encoding` (`data.encoding` in a config) sets another encoding")
        })
    }

    /// Sets the treatment of malformed lines; the default is an error ([`MalformedLines::Error`]).
    #[must_use]
    pub fn malformed(self, policy: MalformedLines) -> Self {
        Self { malformed: policy, ..self }
    }

    /// Returns the name for messages: the path and, behind `!`, the name of a file in a zip or of a list in JSON.
    pub fn name(&self) -> String {
        let name = match &self.member {
            Some(member) => format!("{}!{}", self.origin.name(), member.name),
            None => self.origin.name(),
        };
        // A line feed in a file name is escaped, so that the name does not break a message into lines.
        let name = name.replace('\n', "\\n");
        match &self.list {
            Some(list) => format!("{name}!{list}"),
            None => name,
        }
    }

    /// Returns the name for messages, and a reader of the decoded bytes, from the start of a file that is open.
    pub(crate) fn bytes(&self) -> Result<(Arc<str>, Bytes)> {
        self.checked(self.raw()?)
    }

    /// Returns the same as [`Self::bytes`], but the bytes are not decoded to UTF-8.
    pub(crate) fn raw(&self) -> Result<(Arc<str>, Bytes)> {
        self.head.take().map_or_else(|| self.opened(), Ok)
    }

    /// Returns a reader of the first bytes of the file, for detection; [`Self::bytes`] returns these bytes once more.
    pub(crate) fn sample(&self) -> Result<(Arc<str>, Bytes)> {
        self.checked(self.raw_sample()?)
    }

    /// As [`Self::sample`], but not decoded to UTF-8, so that the encoding can be detected.
    pub(crate) fn raw_sample(&self) -> Result<(Arc<str>, Bytes)> {
        self.head.sample(|| self.opened())
    }

    fn checked(&self, (name, bytes): (Arc<str>, Bytes)) -> Result<(Arc<str>, Bytes)> {
        let bytes = self.encoding.decoded(bytes);
        let bytes = if self.markup { bytes } else { kind::unless(kind::markup, &name, bytes)? };
        Ok((name, bytes))
    }

    pub(crate) fn first_lines(&self) -> Result<Lines> {
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
                    let got = format!("{} files: unpack the wanted file", members.len());
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

    /// Returns the share of the file's bytes that the latest reader has read, from 0 to 1; `None` for a file in a zip.
    pub(crate) fn share(&self) -> Option<f32> {
        if self.member.is_some() { None } else { self.origin.share() }
    }

    /// Returns the open file for random access; `None` for a compressed file.
    #[cfg(feature = "parquet")]
    pub(crate) fn plain(&self) -> Result<Option<std::fs::File>> {
        if self.member.is_some() { Ok(None) } else { self.origin.plain() }
    }

    /// Returns all unpacked bytes of the file; an error if there are more than [`Self::MAX_TEXT`].
    #[cfg(feature = "parquet")]
    pub(crate) fn contents(&self) -> Result<Vec<u8>> {
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
            let expected =
                format!("at most {} bytes after decompression, or an uncompressed file", self.max_text);
            return Err(wrong_format(format!("file `{name}`"), expected, "more"));
        }
        Ok(contents)
    }

    /// Returns a reader of lines from these bytes, with the settings of this file.
    pub(crate) fn lines_in(&self, name: Arc<str>, bytes: Bytes) -> Lines {
        Lines::new(name, bytes, self.characters(), self.max_line)
    }

    /// Returns the encoding, and whether it was detected.
    pub(crate) fn characters(&self) -> (Encoding, bool) {
        (self.encoding, self.guessed)
    }

    pub(crate) fn lines_of(&self) -> Result<Lines> {
        let (name, bytes) = self.bytes()?;
        if self.list.is_some() {
            let expected = "a file of lines, or the format `jsonl`";
            return Err(wrong_format(format!("file `{name}`"), expected, "a list in JSON"));
        }
        Ok(self.lines_in(name, bytes))
    }

    #[track_caller]
    pub(crate) fn records<R>(&self, parser: impl Parser<R> + 'static) -> Result<Records<R>> {
        let mut records = Records::new(self.lines_of().at_caller()?, Box::new(parser), self.malformed);
        records.log.clone_from(&self.skips);
        Ok(records)
    }

    /// Returns the records at the start of the file, for detection; the records beyond the bytes that detection reads
    /// are left out. The records end as [`Records::ahead`] ends them.
    pub(crate) fn first_records<R>(&self, parser: impl Parser<R> + 'static) -> Result<Records<R>> {
        Ok(Records::new(self.first_lines()?, Box::new(parser), self.malformed).ahead(true))
    }

    /// Returns the first lines that are not blank, up to a malformed line, but at most `most` lines.
    pub(crate) fn head_lines(&self, most: usize) -> Result<Vec<String>> {
        let above = self.skip_lines;
        let make = move |number, line: &str| {
            Ok((number > above && !line.trim().is_empty()).then(|| line.to_owned()))
        };
        Ok(self.first_records(OneLine(make))?.map_while(Result::ok).take(most).collect())
    }

    /// Reads lines of `text<TAB>label`; blank lines are skipped.
    ///
    /// # Errors
    /// Fails if the file cannot be opened. A malformed line is an error item of the iterator.
    #[track_caller]
    pub fn labelled(&self) -> Result<Records<LabelledText>> {
        self.records(OneLine(labelled))
    }

    /// Reads lines of `source<TAB>target`; a third column, as in files of Tatoeba, and blank lines are skipped.
    ///
    /// # Errors
    /// Fails if the file cannot be opened. A malformed line is an error item of the iterator.
    #[track_caller]
    pub fn translations(&self) -> Result<Records<Pair>> {
        self.records(OneLine(|_, line: &str| translation(line)))
    }

    /// Reads sparse rows as in LIBSVM and SVMlight: lines of `label index:value index:value …`, with an optional
    /// `qid:n` after the label and an optional comment after `#`. Blank lines are skipped. In the file, the indices of
    /// a row may be in any order. In the returned rows, the indices ascend and count from 0. The values of a row are
    /// rounded to `f32`.
    ///
    /// A line is malformed in these cases:
    /// - The label is not a finite number, or consists of several numbers, such as `1,3`.
    /// - An index is repeated, is not a whole number, or is less than the first index.
    /// - A value is not finite in `f32`.
    ///
    /// The message numbers the pairs `index:value` of a line from 1 on; `qid` is not counted.
    ///
    /// ```
    /// use unpadded_text::{FirstIndex, TextFile};
    /// let rows = TextFile::embedded("bags.txt", "+1 7:0.5 2:3 # unsorted\n-1 qid:4 1:1\n");
    /// let rows = rows.libsvm(FirstIndex::One)?.read_all()?;
    /// assert_eq!((rows[0].label, &rows[0].indices[..], &rows[0].values[..]), (1.0, &[1, 6][..], &[3.0, 0.5][..]));
    /// assert_eq!((rows[1].label, rows[1].query), (-1.0, Some(4)));
    ///
    /// let twice = TextFile::embedded("bags.txt", "1 7:1 2:1 7:2\n").libsvm(FirstIndex::One)?.read_all();
    /// let shown = "bags.txt:1: expected each index once, got index 7 of pair 1 again in pair 3";
    /// assert!(twice.unwrap_err().to_string().starts_with(shown));
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// In a zip with several files, choose a file by [`Self::member`].
    ///
    /// # Errors
    /// Fails if the file cannot be opened. A malformed line is an error item of the iterator.
    #[track_caller]
    pub fn libsvm(&self, first: FirstIndex) -> Result<Records<LabelledRow>> {
        let mut lines = LibsvmLine::new(first);
        self.records(OneLine(move |_, line: &str| lines.row(line)))
    }

    /// Reads every line unchanged, including blank lines.
    ///
    /// # Errors
    /// Fails if the file cannot be opened. A malformed line is an error item of the iterator.
    #[track_caller]
    pub fn lines(&self) -> Result<Records<String>> {
        self.records(OneLine(|_, line: &str| Ok(Some(line.to_owned()))))
    }

    /// Reads the whole text of the file. In the returned text, every line ends with `\n`, even if the lines of the file
    /// end with `\r\n`. A malformed line is always an error, even if [`Self::malformed`] is set to skip.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is empty, has a malformed line, or is longer than [`Self::MAX_TEXT`].
    #[track_caller]
    pub fn text(&self) -> Result<String> {
        self.pieces(true).and_then(Iterator::collect).at_caller()
    }

    /// Returns the text in pieces, within the maximum length if `held` is true; the first item is an error in an empty file.
    pub(crate) fn pieces(&self, held: bool) -> Result<Stream<String>> {
        let mut lines = self.lines_of()?;
        lines.log.clone_from(&self.skips);
        let name = Arc::clone(&lines.name);
        let none = move || wrong_format(format!("file `{name}`"), "text", "an empty file");
        Ok(at_least_one(to_first_error(lines.pieces(held.then_some(self.max_text))), none))
    }
}

#[cfg(test)]
mod tests;
