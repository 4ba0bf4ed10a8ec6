//! Pre-trained word vectors from files, for the tokens of a vocabulary.

mod formats;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use ndarray::Array2;

use super::{SkippedRecords, TextFile, Vocabulary};
use crate::error::{AtCaller, Error, Result};

/// The row in which a token's vector is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VectorPlace {
    No,
    /// The row of the vector of the token's lower-case form.
    LowerCase(usize),
    /// The row of the vector of the token itself.
    Itself(usize),
}

/// Pre-trained vectors of the words of a vocabulary, from a file.
///
/// The form of the file is detected from its first bytes:
///
/// | form | a vector |
/// |---|---|
/// | text, as of GloVe | a line of the word and its numbers |
/// | text, as of word2vec and fastText (`.vec`) | a line of the word and its numbers; line 1: count and width of vectors |
/// | binary, as of word2vec | the word, a space and little-endian `f32`; line 1 as in the form above |
///
/// A whole model of fastText (`.bin`) is refused; the `.vec` file that comes with the model has the vectors. Any of these forms
/// may be compressed with gzip or zip. In text, words may contain spaces, since the vector is the last numbers of a line. The
/// width is declared in the first line or, if the first line is a vector, is the number of numbers behind its first word. A
/// first line of two whole numbers is always a declaration.
///
/// A token gets the vector of its word, or else the vector of its lower-case form; if a word has several vectors, the first one
/// counts. The file is streamed: memory holds only the vectors of the vocabulary's tokens. For words that are not in the
/// vocabulary, the numbers are counted, but not parsed.
///
/// ```
/// use unpadded::data::{Limits, TextFile, Vocabulary, WordVectors};
/// let file = TextFile::embedded("vectors.txt", "the 0.1 0.2\nfilm 0.3 -0.4\nof 0.5 0.6\n");
/// let words = Vocabulary::of("The film drags".split(' '), &Limits::default())?;
/// let vectors = WordVectors::of(&file, &words)?;
/// assert_eq!(vectors.to_string(), "2 of 4 words (50.0 %), 1 of them in lower case, width 2");
/// assert_eq!(vectors.coverage("The film drags".split(' ')), 2.0 / 3.0);
///
/// // Rows of an embedding's table; those that the file does not have stay as they were drawn.
/// let mut table = ndarray::Array2::from_elem((words.len(), vectors.width()), 9.0);
/// vectors.fill(&mut table)?;
/// assert_eq!(table.row(words.lookup("film")? as usize).to_vec(), [0.3, -0.4]);
/// assert_eq!(table.row(words.lookup("drags")? as usize).to_vec(), [9.0, 9.0]);
/// # Ok::<(), unpadded::Error>(())
/// ```
///
/// [`Trainer::set_parameter`](crate::train::Trainer::set_parameter) sets the table that [`Self::fill`] has filled as
/// the parameter of an embedding.
#[derive(Debug, Clone)]
pub struct WordVectors {
    name: String,
    vocabulary: Vocabulary,
    width: usize,
    /// The found vectors, one after another.
    rows: Vec<f32>,
    /// The position of the vector of each token of the vocabulary.
    found: Vec<VectorPlace>,
    skipped: SkippedRecords,
}

impl WordVectors {
    /// Maximum width of vectors. A header may declare any width; the limit bounds the memory that is allocated for a
    /// declaration.
    pub const MAX_WIDTH: usize = 1 << 16;

    /// Reads the vectors of the vocabulary's tokens from a path; [`Self::of`] reads a member of a zip, or another encoding.
    ///
    /// # Errors
    /// As [`Self::of`], or if there is no such file.
    #[doc(alias = "glove")]
    #[doc(alias = "word2vec")]
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, vocabulary: &Vocabulary) -> Result<Self> {
        Self::of(&TextFile::open(path)?, vocabulary)
    }

    /// Reads the vectors of the vocabulary's tokens from a file.
    ///
    /// ```
    /// use unpadded::data::{TextFile, Vocabulary, WordVectors};
    /// let words = Vocabulary::labels(["a", "b"])?;
    /// let file = TextFile::embedded("vectors.txt", "2 3\na 1 2 3\nb 1 2\n");
    /// let message = WordVectors::of(&file, &words).unwrap_err().to_string();
    /// let said = "vectors.txt:3: expected a word and 3 numbers, as the first line has it, got 3 columns in \"b 1 2\"";
    /// assert!(message.starts_with(said), "{message}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// If the file cannot be read or has no vector; if it is cut short, or has more or fewer vectors than its first line
    /// declares; if a vector has another number of columns than the first, or a token's vector has a cell that is no number, or
    /// not finite in `f32`. The message has the line or, for a binary file, the number of the vector and its first byte. If
    /// [`TextFile::malformed`] is set to skip, malformed vectors are skipped instead.
    #[track_caller]
    pub fn of(file: &TextFile, vocabulary: &Vocabulary) -> Result<Self> {
        VectorSearch::new(vocabulary).read(file).at_caller()
    }

    /// The width: the number of numbers in a vector.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The number of tokens with a vector.
    pub fn found(&self) -> usize {
        self.found.iter().filter(|found| **found != VectorPlace::No).count()
    }

    /// The number of tokens with the vector of their lower-case form.
    pub(crate) fn by_lower_case(&self) -> usize {
        self.found.iter().filter(|found| matches!(found, VectorPlace::LowerCase(_))).count()
    }

    /// The vector of the token with this id; `None` if no vector was found.
    pub fn vector(&self, id: i64) -> Option<&[f32]> {
        match *self.found.get(usize::try_from(id).ok()?)? {
            VectorPlace::No => None,
            VectorPlace::LowerCase(row) | VectorPlace::Itself(row) => {
                self.rows.get(row * self.width..)?.get(..self.width)
            }
        }
    }

    /// The ids of the tokens that have a vector, with their vectors, in the order of the ids.
    pub fn vectors(&self) -> impl Iterator<Item = (i64, &[f32])> {
        (0..self.found.len() as i64).filter_map(|id| Some((id, self.vector(id)?)))
    }

    /// The share of the tokens of a text that have a vector, from 0 to 1. A token that is not in the vocabulary counts as a token
    /// without a vector, even if [`Vocabulary::UNKNOWN`] has a vector. Without tokens the share is 0.
    pub fn coverage<T: AsRef<str>>(&self, tokens: impl IntoIterator<Item = T>) -> f64 {
        let (mut all, mut covered) = (0u64, 0u64);
        for token in tokens {
            let id = self.vocabulary.id(token.as_ref());
            covered += u64::from(id.and_then(|id| self.vector(id)).is_some());
            all += 1;
        }
        covered as f64 / all.max(1) as f64
    }

    /// Writes each vector into the row of `table` whose number is the id of the token; other rows are unchanged.
    ///
    /// # Errors
    /// If the table does not have exactly one row per token of the vocabulary, or has another width.
    #[track_caller]
    pub fn fill(&self, table: &mut Array2<f32>) -> Result<()> {
        if table.dim() != (self.found.len(), self.width) {
            let expected = format!(
                "[{}, {}], a row for each token of the vocabulary and the width of `{}`",
                self.found.len(),
                self.width,
                self.name
            );
            let got = format!("{:?}", table.shape());
            return Err(Error::new("table for word vectors", expected, got));
        }
        for (mut row, id) in table.rows_mut().into_iter().zip(0..) {
            if let Some(vector) = self.vector(id) {
                row.iter_mut().zip(vector).for_each(|(to, from)| *to = *from);
            }
        }
        Ok(())
    }

    /// The malformed vectors that were skipped; none unless [`TextFile::malformed`] is set to skip.
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

/// Formats a number with thousands separators.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut shown = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// The search for vectors while a file is read.
struct VectorSearch<'v> {
    vocabulary: &'v Vocabulary,
    /// The tokens that are not lower case, by their lower-case form.
    lower: HashMap<String, Vec<usize>>,
    /// The width of the vectors; 0 until it is known.
    width: usize,
    rows: Vec<f32>,
    found: Vec<VectorPlace>,
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
        let found = vec![VectorPlace::No; vocabulary.len()];
        Self { vocabulary, lower, width: 0, rows: Vec::new(), found, skipped: SkippedRecords::default() }
    }

    /// The id of a word, which may be a special token: files have vectors of special tokens, too.
    fn token(&self, word: &str) -> Option<usize> {
        let id = self.vocabulary.id(word).or_else(|| self.vocabulary.find_special(word));
        usize::try_from(id?).ok()
    }

    /// The ids of the tokens that have no vector yet and whose lower-case form is this word.
    fn lower(&self, word: &str) -> impl Iterator<Item = usize> {
        let ids = self.lower.get(word).into_iter().flatten().copied();
        ids.filter(|&id| self.found.get(id) == Some(&VectorPlace::No))
    }

    /// Returns whether a token needs the vector of a word.
    fn wants(&self, word: &str) -> bool {
        let itself = self.token(word).and_then(|id| self.found.get(id));
        itself.is_some_and(|found| !matches!(found, VectorPlace::Itself(_)))
            || self.lower(word).next().is_some()
    }

    /// Stores the vector of a word for the tokens that need it.
    fn keep(&mut self, word: &str, vector: &[f32]) -> Result<()> {
        let waiting: Vec<usize> = self.lower(word).collect();
        for id in waiting {
            let row = self.push(vector)?;
            self.set(id, VectorPlace::LowerCase(row));
        }
        let Some(id) = self.token(word) else { return Ok(()) };
        match self.found.get(id).copied() {
            None | Some(VectorPlace::Itself(_)) => {}
            Some(VectorPlace::No) => {
                let row = self.push(vector)?;
                self.set(id, VectorPlace::Itself(row));
            }
            // The vector of the token itself comes later in the file than the vector of its lower-case form, and
            // replaces it.
            Some(VectorPlace::LowerCase(row)) => {
                let place = self.rows.get_mut(row * self.width..).and_then(|rest| rest.get_mut(..self.width));
                if let Some(place) = place {
                    place.copy_from_slice(vector);
                }
                self.set(id, VectorPlace::Itself(row));
            }
        }
        Ok(())
    }

    fn set(&mut self, id: usize, found: VectorPlace) {
        if let Some(place) = self.found.get_mut(id) {
            *place = found;
        }
    }

    /// Appends a vector as a new row, and returns the number of the row.
    fn push(&mut self, vector: &[f32]) -> Result<usize> {
        let row = self.rows.len() / self.width.max(1);
        self.rows.try_reserve(vector.len()).map_err(|_| {
            let got = format!("{} vectors of width {}", row + 1, self.width);
            Error::new("word vectors", "a size that fits into memory", got)
        })?;
        self.rows.extend_from_slice(vector);
        Ok(row)
    }

    /// Ends the search; `name` is the name of the file.
    fn done(self, name: &str) -> WordVectors {
        let Self { vocabulary, width, mut rows, found, skipped, .. } = self;
        rows.shrink_to_fit();
        WordVectors { name: name.to_owned(), vocabulary: vocabulary.clone(), width, rows, found, skipped }
    }
}

#[cfg(test)]
mod tests;
