//! Parses the lines of LIBSVM files; a line has a label and the entries of a sparse row.

use unpadded::{AtCaller, Result};

use crate::source::reason::Reason;
use crate::source::records::shown;

/// A sparse row with its label: the content of a line in a LIBSVM file.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct LabelledRow {
    /// The label of the row: the number of a class, such as -1 or +1, or the target of a regression.
    pub label: f64,
    /// The id of the row's query, for ranking, written `qid:5` in the file; `None` without a query.
    pub query: Option<u64>,
    /// The column of each entry, counted from 0 even if the file counts from 1. In a row from a file, the columns are
    /// in ascending order, and no column is repeated.
    pub indices: Vec<i64>,
    /// The value of each entry. A zero in the file is an entry, too.
    pub values: Vec<f32>,
}

impl LabelledRow {
    /// Parses one line of a LIBSVM file; returns `None` for a blank line or a comment.
    /// [`TextFile::libsvm`](crate::TextFile::libsvm) parses a whole file.
    ///
    /// ```
    /// use unpadded_text::{FirstIndex, LabelledRow};
    /// let row = LabelledRow::of_line("-1 3:0.5 1:2", FirstIndex::One)?.unwrap();
    /// assert_eq!((row.label, &row.indices[..], &row.values[..]), (-1.0, &[0, 2][..], &[2.0, 0.5][..]));
    /// let message = LabelledRow::of_line("-1 3", FirstIndex::One).unwrap_err().to_string();
    /// assert!(message.starts_with("row: expected index:value in pair 1, got \"3\""), "{message}");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the line is malformed.
    #[track_caller]
    pub fn of_line(line: &str, first: FirstIndex) -> Result<Option<Self>> {
        let row = LibsvmLine::new(first).row(line);
        row.map_err(|reason| reason.at("row")).at_caller()
    }
}

/// The number of the first column in a LIBSVM file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FirstIndex {
    /// The first column has number 0, as in files that scikit-learn writes by default.
    Zero = 0,
    /// The first column has number 1, as LIBSVM defines the format; index 0 is then an error.
    #[default]
    One = 1,
}

impl FirstIndex {
    /// The number of the first column: 0 or 1.
    pub fn number(self) -> i64 {
        self as i64
    }

    /// Returns the variant for the number 0 or 1; `None` for any other number.
    pub fn of_number(number: i64) -> Option<Self> {
        [Self::Zero, Self::One].into_iter().find(|first| first.number() == number)
    }
}

pub(crate) struct LibsvmLine {
    first: FirstIndex,
    /// For each entry of the line: the column, the number of the pair and the value. The memory is reused.
    pairs: Vec<(i64, usize, f32)>,
}

impl LibsvmLine {
    pub(crate) fn new(first: FirstIndex) -> Self {
        Self { first, pairs: Vec::new() }
    }

    /// Parses a line; `None` for a blank line or a comment.
    pub(crate) fn row(&mut self, line: &str) -> Result<Option<LabelledRow>, Reason> {
        let line = line.split('#').next().unwrap_or_default();
        let mut cells = line.split_ascii_whitespace().peekable();
        let Some(label) = cells.next().map(label).transpose()? else { return Ok(None) };
        let query = cells.peek().and_then(|cell| cell.strip_prefix("qid:")).map(query).transpose()?;
        if query.is_some() {
            cells.next();
        }
        self.pairs.clear();
        for (number, cell) in (1..).zip(cells) {
            self.pairs.push(self.pair(number, cell)?);
        }
        if !self.pairs.is_sorted_by(|a, b| a.0 < b.0) {
            self.sort()?;
        }
        let (indices, values) = self.pairs.iter().map(|&(index, _, value)| (index, value)).unzip();
        Ok(Some(LabelledRow { label, query, indices, values }))
    }

    fn pair(&self, number: usize, cell: &str) -> Result<(i64, usize, f32), Reason> {
        let wrong = |expected: String, hint: &str| Reason::of(expected, format!("{}{hint}", shown(cell)));
        let Some((index, value)) = cell.split_once(':') else {
            return Err(wrong(format!("index:value in pair {number}"), ""));
        };
        let first = self.first.number();
        let parsed = index.parse::<i64>().ok();
        let Some(index) = parsed.map(|index| index.saturating_sub(first)).filter(|&index| index >= 0) else {
            let hint = match parsed {
                Some(0) => ": the setting `first_index` 0 reads a file that counts from 0",
                _ => "",
            };
            return Err(wrong(format!("an index from {first} to {} in pair {number}", i64::MAX), hint));
        };
        match value.parse::<f32>() {
            Ok(value) if value.is_finite() => Ok((index, number, value)),
            _ => Err(wrong(format!("a value that is finite in f32 in pair {number}"), "")),
        }
    }

    /// Sorts the entries of the current line. A repeated column is an error: it is unknown which value to keep.
    fn sort(&mut self) -> Result<(), Reason> {
        self.pairs.sort_unstable_by_key(|&(index, number, _)| (index, number));
        let again = self.pairs.windows(2).filter(|two| two[0].0 == two[1].0);
        let Some(two) = again.min_by_key(|two| two[1].1) else { return Ok(()) };
        let written = match self.first {
            FirstIndex::Zero => two[0].0.to_string(),
            // The sum is computed in `u64`, because adding 1 to the largest index would overflow `i64`.
            FirstIndex::One => (two[0].0 as u64 + 1).to_string(),
        };
        let got = format!("index {written} of pair {} again in pair {}", two[0].1, two[1].1);
        Err(Reason::of("each index once", got))
    }
}

fn label(cell: &str) -> Result<f64, Reason> {
    match cell.parse::<f64>() {
        // Adding 0 turns the label -0 into 0.
        Ok(label) if label.is_finite() => Ok(label + 0.0),
        _ => {
            let hint = if cell.contains(':') {
                ", which is a pair"
            } else if cell.contains(',') {
                ": a row with several labels is not supported"
            } else {
                ""
            };
            Err(Reason::of("a label that is a finite number", format!("{}{hint}", shown(cell))))
        }
    }
}

fn query(number: &str) -> Result<u64, Reason> {
    number.parse().map_err(|_| Reason::of("a whole number, 0 or more, behind `qid:`", shown(number)))
}
