//! Extents: the dimensions of variables. An extent is a number, or a count that is known only in a run.
//!
//! A dimension of a [`Spec`] is a number, or the name of a count that is known in a run. A ragged variable names the LoD levels
//! that delimit its rows. Two variables with the same level names have the same sequences.

use std::fmt;

use crate::error::{AtCaller, Error, Result};
use crate::lod::Lod;
use crate::tensor::{DType, StorageKind};
use arrayvec::ArrayVec;

/// The maximum number of dimensions of a variable in a program, including the dimension of the rows.
pub(crate) const MAX_RANK: usize = 6;
/// The maximum number of LoD levels of a variable in a program.
pub(crate) const MAX_LEVELS: usize = Lod::MAX_LEVELS;

/// The index of a block of a program; 0 is the root block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BlockId(pub u32);

/// The index of a variable of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VarId(pub u32);

impl VarId {
    /// The index that marks a missing gradient in a slot that takes many variables.
    pub(crate) const NONE: VarId = VarId(u32::MAX);
}

/// The index of a LoD level among all levels of a program. A level belongs to a feed, or is made by an operator. If the last
/// level of a LoD is dropped, the levels above it keep their indices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LevelId(pub u32);

/// A dimension of a variable: a number, or a count that is known only in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Extent {
    /// A number that is known when the program is built.
    Known(usize),
    /// The number of top-level sequences of the batch, which all feeds share.
    Batch,
    /// The number of rows that a LoD level delimits: the last offset of the level.
    Rows(LevelId),
    /// In a step block: the number of sequences that have a row at the current step.
    Alive(BlockId),
    /// The number of entries, or of selected rows, that the sparse variable with this index stores; it is known only after
    /// `forward`. A [report](crate::Program::storage_report) has an upper bound of this count.
    Data(u32),
}

/// The dimensions of a variable; the first dimension counts the rows.
pub type Shape = ArrayVec<Extent, MAX_RANK>;
/// The LoD levels of a variable, from the top level to the last level.
pub(crate) type Levels = ArrayVec<LevelId, MAX_LEVELS>;

impl Extent {
    /// Returns the dimension as a number; `None` if it is known only in a run.
    pub fn known(self) -> Option<usize> {
        match self {
            Extent::Known(n) => Some(n),
            _ => None,
        }
    }
}

/// Returns the words "one row for each sequence of …" for messages; `sequences` counts the sequences that a step runs over.
pub(crate) fn rows_of_step(sequences: Extent) -> String {
    match sequences {
        Extent::Batch => "one row for each sequence of the batch".to_owned(),
        other => format!("one row for each of the {other}"),
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Extent::Known(n) => write!(f, "{n}"),
            Extent::Batch => write!(f, "batch"),
            Extent::Rows(level) => write!(f, "rows{}", level.0),
            Extent::Alive(block) => write!(f, "alive{}", block.0),
            Extent::Data(id) => write!(f, "data{id}"),
        }
    }
}

/// The spec of a tensor, which is known before the program runs: dtype, shape, LoD levels and storage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spec {
    /// The type of the tensor's elements.
    pub dtype: DType,
    /// All dimensions of the tensor; the first dimension counts the rows.
    pub shape: Shape,
    /// The LoD levels that delimit the rows; empty for a variable without LoD.
    pub lod: Levels,
    /// The storage of the tensor's numbers: dense or sparse.
    pub storage: StorageKind,
}

impl Spec {
    /// Returns the spec of a dense tensor of known dimensions, such as a parameter or a constant.
    ///
    /// # Errors
    /// Fails if there are more than six dimensions.
    #[track_caller]
    pub fn fixed(dtype: DType, dims: &[usize]) -> Result<Self> {
        let mut spec = Spec { dtype, shape: Shape::new(), lod: Levels::new(), storage: StorageKind::Dense };
        for &n in dims {
            spec.push(Extent::Known(n)).at_caller()?;
        }
        Ok(spec)
    }

    /// Returns the spec of a dense tensor with a row count of `rows`, and the dimensions `dims` in each row.
    ///
    /// # Errors
    /// Fails if there are more than six dimensions.
    #[track_caller]
    pub fn rows_of(dtype: DType, rows: Extent, dims: &[usize], lod: Levels) -> Result<Self> {
        let mut spec = Spec { dtype, shape: Shape::new(), lod, storage: StorageKind::Dense };
        spec.push(rows).at_caller()?;
        for &n in dims {
            spec.push(Extent::Known(n)).at_caller()?;
        }
        Ok(spec)
    }

    fn push(&mut self, extent: Extent) -> Result<()> {
        self.shape
            .try_push(extent)
            .map_err(|_| Error::new("shape", format!("at most {MAX_RANK} dimensions"), "more dimensions"))
    }

    /// Returns whether the first dimension is known only in a run: the rows are then rows of the batch.
    pub fn batched(&self) -> bool {
        self.shape.first().is_some_and(|e| e.known().is_none())
    }

    /// Returns the extent that counts the rows of the tensor's two-dimensional view. For a batched variable, the rows of the view
    /// are the rows of the variable. A constant vector or scalar has one row in the view; any other constant has as many rows as
    /// its first dimension.
    pub fn rows(&self) -> Extent {
        match self.shape.as_slice() {
            [] => Extent::Known(1),
            [first] if first.known().is_some() => Extent::Known(1),
            [first, ..] => *first,
        }
    }

    /// Returns the number of elements in a row of the two-dimensional view; `usize::MAX` if the number is larger than a `usize`.
    /// Unknown extents count as 1; only the first extent of a spec can be unknown.
    pub fn width(&self) -> usize {
        let dims = match self.shape.as_slice() {
            [] => return 1,
            [only] => return only.known().unwrap_or(1),
            [_, rest @ ..] => rest,
        };
        dims.iter().map(|e| e.known().unwrap_or(1)).fold(1, usize::saturating_mul)
    }

    /// Returns the dimensions of a row: all but the first dimension if the variable is batched, else all dimensions.
    pub fn row_shape(&self) -> &[Extent] {
        if self.batched() { &self.shape[1..] } else { &self.shape }
    }

    /// Returns the spec with another dtype.
    #[must_use]
    pub fn with_dtype(&self, dtype: DType) -> Self {
        Spec { dtype, ..self.clone() }
    }

    /// Returns the spec with another storage.
    #[must_use]
    pub fn stored(&self, storage: StorageKind) -> Self {
        Spec { storage, ..self.clone() }
    }

    /// Returns the spec with the same rows and LoD, and one dimension of `width` in each row. The spec of a constant vector or
    /// scalar becomes a vector of `width` numbers.
    ///
    /// ```
    /// use unpadded::DType;
    /// use unpadded::op::Spec;
    /// let width_7 = |dims: &[usize]| Spec::fixed(DType::F32, dims).map(|spec| spec.with_width(7).to_string());
    /// assert_eq!(width_7(&[2, 3])?, "f32[2, 7]");
    /// assert_eq!(width_7(&[3])?, "f32[7]");
    /// assert_eq!(width_7(&[])?, "f32[7]");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn with_width(&self, width: usize) -> Self {
        let mut shape = Shape::new();
        if self.batched() || self.shape.len() > 1 {
            shape.push(self.shape[0]);
        }
        shape.push(Extent::Known(width));
        Spec { shape, ..self.clone() }
    }

    /// Returns the spec with one row per sequence of the last level, and without the last level. The level above the last level
    /// then counts the rows; if there is no level above, `top` counts the rows.
    ///
    /// # Errors
    /// Fails if the variable has no LoD.
    #[track_caller]
    pub fn drop_level(&self, top: Extent) -> Result<Self> {
        let mut out = self.clone();
        if out.lod.pop().is_none() {
            return Err(Error::new("LoD", "at least one level", "none"));
        }
        out.shape[0] = out.lod.last().map_or(top, |&level| Extent::Rows(level));
        Ok(out)
    }
}

impl Spec {
    /// Returns the spec with its last level replaced by `level`, a level that an operator made. The rows are the rows
    /// of `level`.
    ///
    /// ```
    /// use unpadded::op::{Extent, Spec};
    /// use unpadded::program::LevelId;
    /// use unpadded::DType;
    /// let words = Spec::rows_of(DType::F32, Extent::Rows(LevelId(1)), &[3], [LevelId(0), LevelId(1)].into_iter().collect())?;
    /// assert_eq!(words.with_last_level(LevelId(7)).to_string(), "f32[rows7, 3] lod(0, 7)");
    /// # Ok::<(), unpadded::Error>(())
    /// ```
    #[must_use]
    pub fn with_last_level(&self, level: LevelId) -> Self {
        let mut out = self.clone();
        out.lod.pop();
        out.lod.push(level);
        if let Some(rows) = out.shape.first_mut() {
            *rows = Extent::Rows(level);
        }
        out
    }

    /// Returns the LoD levels above the last level.
    pub fn upper_levels(&self) -> &[LevelId] {
        self.lod.split_last().map_or(&[], |(_, upper)| upper)
    }
}

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.dtype)?;
        for (i, extent) in self.shape.iter().enumerate() {
            write!(f, "{}{extent}", if i > 0 { ", " } else { "" })?;
        }
        write!(f, "]")?;
        if !self.lod.is_empty() {
            let levels: Vec<String> = self.lod.iter().map(|l| l.0.to_string()).collect();
            write!(f, " lod({})", levels.join(", "))?;
        }
        if self.storage != StorageKind::Dense {
            write!(f, " {}", self.storage)?;
        }
        Ok(())
    }
}
