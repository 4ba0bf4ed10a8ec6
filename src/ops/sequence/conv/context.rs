//! The context of a convolution: the rows that the convolution reads for an output row, and the groups of columns.

use crate::kernels::Window;
use crate::ops::prelude::*;
use crate::ops::sequence::counts::{count, count_or_one};

/// The largest allowed distance between the current row and a row of its context. This limit prevents an overflow of
/// row indices.
const FURTHEST: usize = i32::MAX as usize;

/// The *context* of a convolution: the `length` rows t + start, t + start + dilation, … that the convolution reads for the output
/// row t. The context also holds the number of groups into which the columns are divided.
///
/// By default, the context is centred on the current row, as in a "same" convolution: start = −⌊dilation · (length − 1) / 2⌋.
///
/// ```
/// use unpadded::ops::Context;
/// assert_eq!(Context::new(5).start(), -2);
/// assert_eq!(Context::new(4).start(), -1); // as many above as below, or one less
/// assert_eq!(Context::new(3).dilation(4).causal().start(), -8);
/// assert_eq!(Context::new(3).starting_at(1).start(), 1); // the next row and the two behind it
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Context {
    at: ContextPosition,
    length: usize,
    dilation: usize,
    groups: usize,
}

/// The position of a context relative to the current row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ContextPosition {
    /// The context is centred on the current row.
    Centre,
    /// The context ends with the current row.
    End,
    /// The context starts at this distance from the current row (negative: earlier).
    Start(i64),
}

impl Context {
    /// Makes a context of `length` consecutive rows, centred on the current row, with one group of columns.
    pub const fn new(length: usize) -> Self {
        Self { at: ContextPosition::Centre, length, dilation: 1, groups: 1 }
    }

    /// Causal convolution: the convolution reads the current row and earlier rows, start = −dilation · (length − 1). No row of
    /// a causal convolution's output depends on a later row of the input.
    #[must_use]
    pub const fn causal(self) -> Self {
        Self { at: ContextPosition::End, ..self }
    }

    /// Sets the first row of the context, relative to the current row (negative: earlier).
    #[must_use]
    pub const fn starting_at(self, start: i64) -> Self {
        Self { at: ContextPosition::Start(start), ..self }
    }

    /// Dilation: the rows of the context are `dilation` rows apart.
    #[must_use]
    pub const fn dilation(self, dilation: usize) -> Self {
        Self { dilation, ..self }
    }

    /// Grouped convolution: divides the columns into `groups` groups of equal width. A group of the output's columns depends
    /// only on the same group of the input's columns.
    #[must_use]
    pub const fn groups(self, groups: usize) -> Self {
        Self { groups, ..self }
    }

    /// Returns the first row of the context, relative to the current row (negative: earlier).
    pub fn start(&self) -> i64 {
        let reach = self.length.saturating_sub(1).saturating_mul(self.dilation).min(FURTHEST + 1) as i64;
        match self.at {
            ContextPosition::Centre => -(reach / 2),
            ContextPosition::End => -reach,
            ContextPosition::Start(start) => start,
        }
    }

    /// Returns the number of rows that the convolution reads for each output row.
    pub(crate) const fn length(&self) -> usize {
        self.length
    }

    pub(crate) const fn divides(&self) -> (usize, usize) {
        (self.dilation, self.groups)
    }

    /// Returns the numbers of padding rows that each sequence needs: (rows before the sequence, rows after the sequence).
    ///
    /// ```
    /// use unpadded::ops::Context;
    /// assert_eq!(Context::new(4).padding_rows(), (1, 2));
    /// assert_eq!(Context::new(3).causal().padding_rows(), (2, 0));
    /// ```
    pub fn padding_rows(&self) -> (usize, usize) {
        let reach = self.length.saturating_sub(1).saturating_mul(self.dilation).min(FURTHEST + 1) as i64;
        let (first, last) = (self.start(), self.start().saturating_add(reach));
        (first.min(0).unsigned_abs() as usize, last.max(0).unsigned_abs() as usize)
    }
}

/// Makes the window of the convolution kernel from the attributes of an operator.
pub(super) fn window(start: i64, length: usize, dilation: usize) -> Window {
    Window { start: start as isize, step: dilation as isize, taps: length }
}

/// Reads the start of a context from an attribute; returns an error if the context reaches too far before or after the current
/// row.
pub(super) fn near(attributes: &Attributes, name: &str) -> Result<i64> {
    let start = attributes.int(name)?;
    let (length, dilation) = (count(attributes, "length")?, count_or_one(attributes, "dilation")?);
    let reach = (length - 1).checked_mul(dilation).filter(|&reach| reach <= FURTHEST);
    let Some(reach) = reach else {
        let got = format!("{length} rows, each {dilation} rows after the row before");
        let expected = format!("rows that are at most {FURTHEST} apart");
        return Err(Error::of(ErrorKind::Program, "context", expected, got));
    };
    if start.unsigned_abs() as u128 > FURTHEST as u128 || start.unsigned_abs() as usize + reach > FURTHEST {
        let expected = format!("a row at most {FURTHEST} away, with the whole context");
        return Err(Error::of(
            ErrorKind::Program,
            format!("attribute `{name}`"),
            expected,
            start.to_string(),
        ));
    }
    Ok(start)
}
