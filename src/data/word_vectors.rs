//! Pre-trained word vectors out of files, for the words of a vocabulary alone.

mod formats;

use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use ndarray::Array2;

use super::{SkippedRecords, TextFile, Vocabulary};
use crate::error::{AtCaller, Error, Result};

/// Where the vector of a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum VectorPlace {
    No,
    /// The row of the vector of its lower-case form.
    LowerCase(usize),
    /// The row of its own.
    Itself(usize),
}

/// Pre-trained vectors of the words of a vocabulary, from a file.
///
/// What the file is shows in its first bytes:
///
/// | form | a vector |
/// |---|---|
/// | text, as of GloVe | a line of the word and its numbers |
/// | text, as of word2vec and fastText (`.vec`) | the same, below a line with how many vectors there are and their width |
/// | binary, as of word2vec | the word, a space and little-endian `f32`, below the same line |
///
/// A whole model of fastText (`.bin`) is refused, as its vectors are in the `.vec` beside it. Any of these forms may be in gzip or
/// zip. Words may hold spaces, in text: the last numbers of a line are the vector, as many as the first line says or, where that is a
/// vector, has behind its first word. So a first line of two whole numbers is never a vector.
///
/// A token has the vector of the word that it is, or else that of its form in lower case; of several for one word, the first. The file
/// is streamed: in memory are the vectors of the vocabulary's tokens, whatever its size. Of the words that are no tokens the numbers are
/// counted, but not read.
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
/// A training takes the table by [`Trainer::set_parameter`](crate::train::Trainer::set_parameter).
#[derive(Debug, Clone)]
pub struct WordVectors {
    name: String,
    vocabulary: Vocabulary,
    width: usize,
    /// The vectors that were found, one after another.
    rows: Vec<f32>,
    /// Of each token of the vocabulary.
    found: Vec<VectorPlace>,
    skipped: SkippedRecords,
}

impl WordVectors {
    /// The widest vectors that are read. A header may claim any width, and nothing is to be allocated on its word alone.
    pub const MAX_WIDTH: usize = 1 << 16;

    /// The vectors of the vocabulary's tokens that a file has; [`Self::of`] reads a member of a zip, or another encoding.
    ///
    /// # Errors
    /// As [`Self::of`], or if there is no such file.
    #[doc(alias = "glove")]
    #[doc(alias = "word2vec")]
    #[track_caller]
    pub fn open(path: impl AsRef<Path>, vocabulary: &Vocabulary) -> Result<Self> {
        Self::of(&TextFile::open(path)?, vocabulary)
    }

    /// The vectors of the vocabulary's tokens that a file has.
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
    /// If the file cannot be read or has no vector; if it is cut short, or has more or fewer vectors than its first line says; if one
    /// has another number of columns than the first, or a number of a token's vector is none, or not finite in `f32`. The message
    /// has the line or, of a binary file, the number of the vector and its first byte. A vector that is malformed
    /// for itself is passed over instead where the file says so ([`TextFile::malformed`]).
    #[track_caller]
    pub fn of(file: &TextFile, vocabulary: &Vocabulary) -> Result<Self> {
        VectorSearch::new(vocabulary).read(file).at_caller()
    }

    /// How many numbers a vector has.
    pub fn width(&self) -> usize {
        self.width
    }

    /// How many tokens have a vector.
    pub fn found(&self) -> usize {
        self.found.iter().filter(|found| **found != VectorPlace::No).count()
    }

    /// How many of them have that of their lower-case form.
    pub(crate) fn by_lower_case(&self) -> usize {
        self.found.iter().filter(|found| matches!(found, VectorPlace::LowerCase(_))).count()
    }

    /// The vector of a token, by its number.
    pub fn vector(&self, id: i64) -> Option<&[f32]> {
        match *self.found.get(usize::try_from(id).ok()?)? {
            VectorPlace::No => None,
            VectorPlace::LowerCase(row) | VectorPlace::Itself(row) => {
                self.rows.get(row * self.width..)?.get(..self.width)
            }
        }
    }

    /// The numbers of the tokens that have a vector, with it, in the order of the numbers.
    pub fn vectors(&self) -> impl Iterator<Item = (i64, &[f32])> {
        (0..self.found.len() as i64).filter_map(|id| Some((id, self.vector(id)?)))
    }

    /// Which share of the tokens of a text has a vector, from 0 to 1. One that is no token of the vocabulary has none, even where
    /// [`Vocabulary::UNKNOWN`] has; of no tokens at all the share is 0.
    pub fn coverage<T: AsRef<str>>(&self, tokens: impl IntoIterator<Item = T>) -> f64 {
        let (mut all, mut covered) = (0u64, 0u64);
        for token in tokens {
            let id = self.vocabulary.id(token.as_ref());
            covered += u64::from(id.and_then(|id| self.vector(id)).is_some());
            all += 1;
        }
        covered as f64 / all.max(1) as f64
    }

    /// Writes the vectors into the rows of their tokens, and leaves the other rows as they are.
    ///
    /// # Errors
    /// If the table has not a row for each token of the vocabulary, or another width.
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

    /// The vectors that were malformed and passed over, where the file says so.
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

/// A number with a comma before every three digits from its end.
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

/// The vectors that are looked for, while a file is read.
struct VectorSearch<'v> {
    vocabulary: &'v Vocabulary,
    /// The tokens that have another form in lower case, by that.
    lower: HashMap<String, Vec<usize>>,
    /// 0 until it is known.
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

    /// The token that a word is; files have vectors of special tokens, too.
    fn token(&self, word: &str) -> Option<usize> {
        let id = self.vocabulary.id(word).or_else(|| self.vocabulary.find_special(word));
        usize::try_from(id?).ok()
    }

    /// The tokens that are without a vector so far and may have that of a word as their lower-case form.
    fn lower(&self, word: &str) -> impl Iterator<Item = usize> {
        let ids = self.lower.get(word).into_iter().flatten().copied();
        ids.filter(|&id| self.found.get(id) == Some(&VectorPlace::No))
    }

    /// Whether the vector of a word is of use.
    fn wants(&self, word: &str) -> bool {
        let itself = self.token(word).and_then(|id| self.found.get(id));
        itself.is_some_and(|found| !matches!(found, VectorPlace::Itself(_)))
            || self.lower(word).next().is_some()
    }

    /// Keeps the vector of a word for the tokens that want it.
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
            // The word itself came behind its lower-case form.
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

    /// Adds a row, and returns its number.
    fn push(&mut self, vector: &[f32]) -> Result<usize> {
        let row = self.rows.len() / self.width.max(1);
        self.rows.try_reserve(vector.len()).map_err(|_| {
            let got = format!("{} vectors of width {}", row + 1, self.width);
            Error::new("word vectors", "a size that fits into memory", got)
        })?;
        self.rows.extend_from_slice(vector);
        Ok(row)
    }

    /// What was found, of the file of that name.
    fn done(self, name: &str) -> WordVectors {
        let Self { vocabulary, width, mut rows, found, skipped, .. } = self;
        rows.shrink_to_fit();
        WordVectors { name: name.to_owned(), vocabulary: vocabulary.clone(), width, rows, found, skipped }
    }
}

#[cfg(test)]
mod tests;
