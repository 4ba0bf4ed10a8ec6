//! Pre-trained word vectors from files, looked up for the tokens of a vocabulary.

mod formats;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use unpadded::data::Vocabulary;
use unpadded::ndarray::Array2;
use unpadded::{AtCaller, Error, Result, reserve};

use crate::{SkippedRecords, TextFile};

/// The row of a token's vector, and whether it is the vector of the token itself, not of its lower-case form; `None` for none.
type VectorLocation = Option<(usize, bool)>;

/// Pre-trained word vectors from a file, for the tokens of a vocabulary.
///
/// The format of the file is detected from the first bytes:
///
/// | format | a vector |
/// |---|---|
/// | text, as in GloVe files | a line with the word and the numbers of the vector |
/// | text, as of word2vec and fastText (`.vec`) | as above, but line 1 has the count and the width of the vectors |
/// | binary, as in word2vec files | the word, a space and little-endian `f32` numbers; line 1 as above |
///
/// A whole fastText model (`.bin`) is refused; fastText also writes a `.vec` file, which has the vectors. A file in a
/// format of the table may be compressed with gzip or zip. In a text format, words may contain spaces, because the last
/// numbers of the line are the vector. The first line may declare the count and the width of the vectors. If the first
/// line is already a vector, the width is the count of numbers in this vector. A first line of two whole numbers is
/// always read as count and width.
///
/// A token gets the vector of the same word in the file, otherwise the vector of its lower-case form. If the file has
/// several vectors of a word, the first one is used. The file is streamed: only the vectors of the vocabulary's tokens
/// are in memory. In the lines of other words, the numbers are counted, but only the first number is parsed.
///
/// ```
/// use unpadded::data::{Limits, Vocabulary};
/// use unpadded_text::{TextFile, WordVectors};
/// let file = TextFile::embedded("vectors.txt", "the 0.1 0.2\nfilm 0.3 -0.4\nof 0.5 0.6\n");
/// let words = Vocabulary::of("The film drags".split(' '), &Limits::default())?;
/// let vectors = WordVectors::of(&file, &words)?;
/// assert_eq!(vectors.to_string(), "2 of 4 words (50.0 %), 1 of them in lower case, width 2");
///
/// // Rows of an embedding's table; those that the file does not have stay as they were drawn.
/// let mut table = unpadded::ndarray::Array2::from_elem((words.len(), vectors.width()), 9.0);
/// vectors.fill(&mut table)?;
/// assert_eq!(table.row(words.lookup("film")? as usize).to_vec(), [0.3, -0.4]);
/// assert_eq!(table.row(words.lookup("drags")? as usize).to_vec(), [9.0, 9.0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// To use the vectors in an embedding, fill a table with [`Self::fill`], and pass the table to
/// [`Trainer::set_parameter`](unpadded::train::Trainer::set_parameter).
#[derive(Debug, Clone)]
pub struct WordVectors {
    name: String,
    width: usize,
    /// The vectors that were found, row after row.
    rows: Vec<f32>,
    /// For each token of the vocabulary, the place of its vector.
    found: Vec<VectorLocation>,
    skipped: SkippedRecords,
}

impl WordVectors {
    /// Maximum width of the vectors, which bounds the allocated memory: a first line may declare any width.
    pub const MAX_WIDTH: usize = 1 << 16;

    /// Reads the vectors of the tokens from a path. [`Self::of`] reads a file in a zip, or in another encoding.
    ///
    /// # Errors
    /// Fails as [`Self::of`] does, or if the file does not exist.
    #[doc(alias = "glove")]
    #[doc(alias = "word2vec")]
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, vocabulary: &Vocabulary) -> Result<Self> {
        Self::of(&TextFile::open(path)?, vocabulary)
    }

    /// Reads the vectors of the vocabulary's tokens from a file.
    ///
    /// ```
    /// use unpadded_text::{TextFile, WordVectors};
    /// use unpadded::data::Vocabulary;
    /// let words = Vocabulary::labels(["a", "b"])?;
    /// let file = TextFile::embedded("vectors.txt", "2 3\na 1 2 3\nb 1 2\n");
    /// let message = WordVectors::of(&file, &words).unwrap_err().to_string();
    /// let shown = "vectors.txt:3: expected a word and 3 numbers, as in the first line, got 3 columns in \"b 1 2\"";
    /// assert!(message.starts_with(shown), "{message}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails in these cases:
    /// - The file cannot be read or has no vector.
    /// - The file has more or fewer vectors than the first line declares.
    /// - A vector has another width than the first vector.
    /// - The vector of a token has a cell that is not a number, or a number that is not finite in `f32`.
    ///
    /// The message has the line. For a binary file, the message has the number of the vector and the position of the
    /// vector's first byte. If [`TextFile::malformed`] is set to skip, malformed vectors are skipped instead.
    #[track_caller]
    pub fn of(file: &TextFile, vocabulary: &Vocabulary) -> Result<Self> {
        VectorSearch::new(vocabulary).read(file).at_caller()
    }

    /// Returns the width of the vectors: the count of numbers in each vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Returns the number of tokens for which a vector was found.
    pub fn found(&self) -> usize {
        self.found.iter().flatten().count()
    }

    /// Returns the number of tokens that use the vector of their lower-case form.
    pub(crate) fn by_lower_case(&self) -> usize {
        self.found.iter().flatten().filter(|(_, itself)| !itself).count()
    }

    /// Returns the vector of the token with this id; `None` if no vector was found for the token.
    pub fn vector(&self, id: i64) -> Option<&[f32]> {
        let (row, _) = (*self.found.get(usize::try_from(id).ok()?)?)?;
        self.rows.get(row * self.width..)?.get(..self.width)
    }

    /// Iterates over the ids of the tokens with a vector, in ascending order, each with its vector.
    pub fn vectors(&self) -> impl Iterator<Item = (i64, &[f32])> {
        (0..self.found.len() as i64).filter_map(|id| Some((id, self.vector(id)?)))
    }

    /// Writes the vector of each token into the row of `table` with its id; the other rows are unchanged.
    ///
    /// # Errors
    /// Fails if `table` does not have one row per token of the vocabulary, or if its width is not the width of the
    /// vectors.
    #[track_caller]
    pub fn fill(&self, table: &mut Array2<f32>) -> Result<()> {
        if table.dim() != (self.found.len(), self.width) {
            let expected = format!(
                "[{}, {}], a row for each token of the vocabulary and the width of `{}`",
                self.found.len(),
                self.width,
                self.name
            );
            return Err(Error::new("table for word vectors", expected, format!("{:?}", table.shape())));
        }
        for (mut row, id) in table.rows_mut().into_iter().zip(0..) {
            if let Some(vector) = self.vector(id) {
                row.iter_mut().zip(vector).for_each(|(to, from)| *to = *from);
            }
        }
        Ok(())
    }

    /// Returns the malformed vectors that were skipped; there are none unless [`TextFile::malformed`] is set to skip.
    pub fn skipped(&self) -> &SkippedRecords {
        &self.skipped
    }
}

impl fmt::Display for WordVectors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, all) = (self.found(), self.found.len());
        let share = 100.0 * found as f64 / all.max(1) as f64;
        write!(f, "{} of {} words ({share:.1} %), ", thousands(found), thousands(all))?;
        write!(f, "{} of them in lower case, width {}", thousands(self.by_lower_case()), self.width)
    }
}

/// Formats a number with commas between groups of three digits.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

/// The search for the vocabulary's vectors while a file is read.
struct VectorSearch<'v> {
    vocabulary: &'v Vocabulary,
    /// For each lower-case form, the ids of the tokens that have this form but are not lower case.
    lower: HashMap<String, Vec<usize>>,
    /// The width of the vectors; 0 until the width is known.
    width: usize,
    rows: Vec<f32>,
    found: Vec<VectorLocation>,
    skipped: SkippedRecords,
}

impl<'v> VectorSearch<'v> {
    fn new(vocabulary: &'v Vocabulary) -> Self {
        let mut lower: HashMap<String, Vec<usize>> = HashMap::new();
        for (id, token) in vocabulary.tokens().enumerate() {
            let form = token.to_lowercase();
            if form != token {
                lower.entry(form).or_default().push(id);
            }
        }
        let found = vec![None; vocabulary.len()];
        Self { vocabulary, lower, width: 0, rows: Vec::new(), found, skipped: SkippedRecords::default() }
    }

    /// Returns the id of a word of the file; special tokens are found, too, since files may have vectors for them.
    fn token(&self, word: &str) -> Option<usize> {
        let id = self.vocabulary.id(word).or_else(|| self.vocabulary.find_special(word));
        usize::try_from(id?).ok()
    }

    /// Returns the ids of the tokens whose lower-case form is this word and for which no vector was found yet.
    fn lower(&self, word: &str) -> impl Iterator<Item = usize> {
        let ids = self.lower.get(word).into_iter().flatten().copied();
        ids.filter(|&id| self.found.get(id) == Some(&None))
    }

    /// Returns whether a token of the vocabulary needs the vector of this word.
    fn wants(&self, word: &str) -> bool {
        let itself = self.token(word).and_then(|id| self.found.get(id));
        itself.is_some_and(|found| !matches!(found, Some((_, true)))) || self.lower(word).next().is_some()
    }

    /// Stores the vector of a word for each token that needs the vector.
    fn keep(&mut self, word: &str, vector: &[f32]) -> Result<()> {
        let waiting: Vec<usize> = self.lower(word).collect();
        for id in waiting {
            let row = self.push(vector)?;
            self.found[id] = Some((row, false));
        }
        let Some(id) = self.token(word) else { return Ok(()) };
        match self.found.get(id).copied() {
            None | Some(Some((_, true))) => {}
            Some(None) => self.found[id] = Some((self.push(vector)?, true)),
            // The vector of the token itself replaces an earlier vector of the token's lower-case form.
            Some(Some((row, false))) => {
                self.rows[row * self.width..][..self.width].copy_from_slice(vector);
                self.found[id] = Some((row, true));
            }
        }
        Ok(())
    }

    /// Appends a vector as a new row, and returns the index of the row.
    fn push(&mut self, vector: &[f32]) -> Result<usize> {
        let row = self.rows.len() / self.width.max(1);
        if !reserve::fits(&mut self.rows, vector.len()) {
            let got = format!("{} vectors of width {}", row + 1, self.width);
            return Err(Error::new("word vectors", "a size that fits into memory", got));
        }
        self.rows.extend_from_slice(vector);
        Ok(row)
    }
}

#[cfg(test)]
mod tests;
